"""Intervals where models were trained again: over training seeds and documents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from heed.intervals.sample import Ends, Interval, Kind, Sample, rounding, whole, within

_LEAST_P = 1e-12  # where the search for a p-value ends


@dataclass(frozen=True, eq=False)
class Crossed(Interval):
    """Seeds × documents. Both parts of the error, each at its own quantile, add as squares.

    Documents contribute the interval that their rows have alone; seeds the t interval of the
    statistic over seeds. One quantile for the sum, by Satterthwaite's degrees of freedom, is too
    small for three seeds: `python -m bench coverage` shows by how much.

    documents   the interval over documents
    seeds       how many training seeds there are
    error       the standard error that they contribute
    """

    kind: ClassVar[Kind] = "crossed"

    point: float
    documents: Interval
    seeds: int
    error: float
    bounds: Ends | None = None

    @classmethod
    def of(cls, documents: Interval, sample: Sample) -> Crossed:
        assert sample.by_seed is not None
        count = len(sample.by_seed)
        variance = float(sample.by_seed.var(ddof=1)) / count if count > 1 else math.inf
        if sample.median:
            variance *= math.pi / 2  # of a median, at most, in variances of a mean
        return cls(documents.point, documents, count, math.sqrt(variance), sample.bounds)

    def of_seeds(self, level: float) -> float:
        """How far other seeds might move the statistic."""
        from scipy.stats import t  # slow to load

        if self.error <= rounding(self.point):
            return 0.0
        if self.seeds < 2:
            return math.inf
        return float(t.ppf((1 + level) / 2, self.seeds - 1)) * self.error

    def mostly_seeds(self, level: float) -> bool:
        """Whether seeds move the statistic farther than documents."""
        low, high = self.documents.ends(level)
        return self.of_seeds(level) > (high - low) / 2

    def ends(self, level: float) -> Ends:
        low, high = self.documents.ends(level)
        seeds = self.of_seeds(level)
        below, above = math.hypot(self.point - low, seeds), math.hypot(high - self.point, seeds)
        return within(self.point - below, self.point + above, self.bounds)

    def p(self, threshold: float) -> float:
        if abs(self.point - threshold) <= rounding(threshold):
            return 1.0

        def left_out(error: float) -> bool:
            low, high = self.ends(1 - error)
            return not low <= threshold <= high

        # bisection on a logarithmic scale: the interval shrinks as the error grows
        least, most = math.log(_LEAST_P), 0.0
        if left_out(_LEAST_P):
            return _LEAST_P
        for _ in range(40):
            middle = (least + most) / 2
            least, most = (least, middle) if left_out(math.exp(middle)) else (middle, most)
        return math.exp(most)

    def wanted(self, threshold: float, level: float, n: int) -> int | None:
        distance, seeds = abs(threshold - self.point), self.of_seeds(level)
        if distance <= max(seeds, rounding(threshold)):
            return None  # documents do not help against seeds
        documents = self.documents.reach(threshold, level)
        return whole(n * documents**2 / (distance**2 - seeds**2))
