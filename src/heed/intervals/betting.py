"""Intervals for means of bounded values that are right for any number of documents."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float

from heed.intervals.sample import Ends, Interval, Kind, Sample, rounding

# What is staked of the most that can be: everything, a half, a quarter, … For any spread of values
# one of these stakes is near the best, and several in parallel earn nearly what the best one does.
_ANY_TIME = 0.5 ** np.arange(9)


def stakes(n: int) -> Float[np.ndarray, "stake"]:
    """Stakes for n groups, where n is fixed beforehand: down to about 2/√n."""
    return 0.5 ** np.arange(max(1, math.ceil(math.log2(math.sqrt(n) / 2))) + 1)


@dataclass(frozen=True, eq=False)
class Betting(Interval):
    """The hedged capital of a bettor on a larger mean and of one on a smaller mean.

    Each stakes constant parts of a capital of 1, several in parallel, on every group. A group pays
    the sum of its values less the mean that is tested. If this mean is right, a bettor cannot
    expect to gain, and ends with 2/α or more with probability α/2 at most. The interval holds the
    means at which both end with less. The order of documents does not matter.

    totals, sizes   the sum of values of each group, and how many there are; the size of the largest
                    bounds what a group can pay
    """

    kind: ClassVar[Kind] = "betting"

    point: float
    totals: Float[np.ndarray, "group"]
    sizes: Float[np.ndarray, "group"]
    bounds: Ends
    stakes: Float[np.ndarray, "stake"]

    @classmethod
    def of(cls, sample: Sample, any_time: bool = False) -> Betting:
        """The interval of a mean; with `any_time` it is valid whenever an audit stops."""
        assert sample.bounds is not None
        _, groups = np.unique(sample.groups, return_inverse=True)
        totals, sizes = np.bincount(groups, sample.values), np.bincount(groups).astype(float)
        staked = _ANY_TIME if any_time else stakes(len(sizes))
        return cls(sample.point, totals, sizes, sample.bounds, staked)

    @cached_property
    def _alike(self) -> tuple[Float[np.ndarray, "2 kind"], Float[np.ndarray, "kind"]]:
        """Totals and sizes of groups that differ, and how many there are of each."""
        pairs = np.stack([self.totals, self.sizes])
        kinds, counts = np.unique(pairs, axis=1, return_counts=True)
        return kinds, counts.astype(float)

    def capital(self, means: Float[np.ndarray, "mean"], larger: bool) -> Float[np.ndarray, "mean"]:
        """The logarithm of what the bettor on a larger (or a smaller) mean has, for each mean."""
        (totals, sizes), counts = self._alike
        low, high = self.bounds
        most = (means - low if larger else high - means) * sizes.max()  # that one group can cost
        with np.errstate(divide="ignore", invalid="ignore"):
            pays = (totals - means[:, None] * sizes) / most[:, None]
            kept = 1 + self.stakes[:, None, None] * (pays if larger else -pays)
            logs = np.log(np.maximum(kept, 0.0)) @ counts  # who stakes all may lose all
            capital = np.logaddexp.reduce(logs, axis=0) - math.log(len(self.stakes))
        # at the end of the range nothing can be lost: certain gains, unless all values are there
        certain = 0.0 if np.allclose(totals, (low if larger else high) * sizes) else math.inf
        return np.where(most > 0, capital, certain)

    def ends(self, level: float) -> Ends:
        enough = math.log(2 / (1 - level))
        low, high = self.bounds
        # the larger the mean, the less the bettor on a larger one has, so there is one crossing
        return (
            _crossing(lambda means: self.capital(means, True) >= enough, low, self.point),
            _crossing(lambda means: self.capital(means, False) >= enough, high, self.point),
        )

    def p(self, threshold: float) -> float:
        if abs(self.point - threshold) <= rounding(threshold):
            return 1.0
        low, high = self.bounds
        if not low <= threshold <= high:
            return 0.0
        capital = float(self.capital(np.array([threshold]), self.point > threshold)[0])
        return min(1.0, 2 * math.exp(-max(0.0, capital)))


def betting_sequence(sample: Sample, level: float = 0.95) -> Ends:
    """An interval for a mean that holds at all times at once, while documents are added.

    Whenever an audit stops, and for whatever reason, the chance that this interval or any before it
    misses the mean is at most 1 − level. Documents must come in random order.
    """
    return Betting.of(sample, any_time=True).ends(level)


_GRID = np.linspace(0, 1, 33)


def _crossing(
    refused: Callable[[Float[np.ndarray, "mean"]], Bool[np.ndarray, "mean"]],
    outside: float,
    inside: float,
) -> float:
    """The last mean that is not refused, between a point that is not and the end of the range."""
    for _ in range(8):  # each grid is 32 times finer than the one before
        means = outside + (inside - outside) * _GRID
        kept = np.flatnonzero(~refused(means[:-1]))
        first = int(kept[0]) if len(kept) else len(means) - 1  # the point itself is not refused
        if first == 0:
            return outside
        outside, inside = float(means[first - 1]), float(means[first])
    return inside
