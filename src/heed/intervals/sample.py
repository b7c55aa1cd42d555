"""What a statistic is computed from, and what every interval can be asked."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

Kind = Literal["studentised", "betting", "crossed"]
Ends = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Sample:
    """What a statistic is computed from.

    values      one per row
    groups      the number of the group of each row; rows of a group are drawn together
    bounds      between which numbers values lie; None if they have no bounds
    statistic   the statistic of the rows with these indices; None if it is the mean of `values`
    by_seed     the statistic for each training seed, where models were trained again
    median      whether the statistic takes the median over training seeds, and not the mean
    """

    values: Float[np.ndarray, "row"]
    groups: Int[np.ndarray, "row"]
    bounds: Ends | None = None
    statistic: Callable[[Int[np.ndarray, "drawn"]], float] | None = None
    by_seed: Float[np.ndarray, "seed"] | None = None
    median: bool = False

    @cached_property
    def point(self) -> float:
        """The statistic of all rows."""
        if self.statistic is None:
            return float(self.values.mean())
        return self.statistic(np.arange(len(self.values)))

    @cached_property
    def independent(self) -> int:
        """The number of groups."""
        return len(np.unique(self.groups))

    @cached_property
    def lumpy(self) -> bool:
        """Whether more than half of the rows share one value, but for a millionth of the range.

        Resamples without the few others would show next to no spread.
        """
        low, high = self.bounds or (self.values.min(), self.values.max())
        scale = max(abs(low), abs(high)) or 1.0
        counts = np.unique((self.values / scale).round(6), return_counts=True)[1]
        return 2 * int(counts.max()) > len(self.values)


class Interval(ABC):
    """A statistic, `point`, and an interval for it at any level."""

    kind: ClassVar[Kind]
    point: float

    @abstractmethod
    def ends(self, level: float) -> Ends:
        """The interval at this level, such as 0.95."""

    @abstractmethod
    def p(self, threshold: float) -> float:
        """The smallest error at which the interval leaves out the threshold; 1 if there is none."""

    def wanted(self, threshold: float, level: float, n: int) -> int | None:
        """About how many documents, in the place of n, would decide on which side the truth is.

        None if no number would.
        """
        distance = abs(threshold - self.point)
        if distance <= rounding(threshold):
            return None
        # the width of an interval shrinks with the square root of the number of documents
        return whole(n * (self.reach(threshold, level) / distance) ** 2)

    def reach(self, threshold: float, level: float) -> float:
        """How far the interval reaches on the side of the threshold."""
        low, high = self.ends(level)
        return self.point - low if threshold < self.point else high - self.point


def rounding(number: float) -> float:
    """Numbers that differ by less than this are equal."""
    return 1e-12 * max(1.0, abs(number))


def whole(number: float) -> int | None:
    """The next whole number; None for infinity."""
    return math.ceil(number) if math.isfinite(number) else None


def within(low: float, high: float, bounds: Ends | None) -> Ends:
    """The part of an interval that lies between the bounds."""
    return (low, high) if bounds is None else (max(low, bounds[0]), min(high, bounds[1]))
