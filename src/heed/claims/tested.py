"""Evidence with its intervals: to which verdict it leans, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from heed.claims.claim import FEWEST, LOWER, UPPER, Claim, Evidence
from heed.claims.samples import numbered, samples_of
from heed.intervals import MANY, Ends, Interval, Sample, estimate

Side = Literal["supported", "refuted"]


@dataclass(frozen=True, eq=False)
class Tested:
    """Evidence, and an interval for each of its parts; see `samples_of` for what these are.

    samples   what the intervals were computed from
    chance    the p-values that the claim would have in resamples, if what was measured were true
    """

    evidence: Evidence
    samples: dict[str, Sample]
    intervals: dict[str, Interval]
    chance: Float[np.ndarray, "resample"]

    @property
    def claim(self) -> Claim:
        return self.evidence.claim

    @property
    def has_statistic(self) -> bool:
        return bool(self.intervals) and all(
            np.isfinite(interval.point) for interval in self.intervals.values()
        )

    @property
    def few(self) -> str:
        """Why there are too few documents for a verdict; empty if there are enough."""
        for sample in (self.samples[part] for part in self.deciding):
            if sample.independent < FEWEST:
                copies = len(sample.values) >= FEWEST
                which = " (those that share an id or a text count as one)" if copies else ""
                return f"fewer than {FEWEST} documents{which}"
            if sample.independent < MANY and sample.lumpy:
                return f"fewer than {MANY} documents, and more than half of them share one value"
        return ""

    @property
    def side(self) -> Side | None:
        """The verdict if intervals were points; None if its parts disagree."""
        if not self.has_statistic:
            return None
        at = self.claim.threshold
        sign = 1 if self.claim.above else -1
        away = {part: sign * (i.point - at) for part, i in self.intervals.items()}
        if not self.claim.bracket:
            if min(away.values()) > 0:
                return "supported"
            return "refuted" if max(away.values()) < 0 else None
        if away.get(self._surest, -1.0) > 0:
            return "supported"
        return "refuted" if away.get(self._mildest, 1.0) < 0 else None

    @property
    def _surest(self) -> str:
        """The bound that supports the claim: if even it is on the claim's side, the truth is."""
        return LOWER if self.claim.above else UPPER

    @property
    def _mildest(self) -> str:
        """The bound that refutes the claim."""
        return UPPER if self.claim.above else LOWER

    @property
    def deciding(self) -> list[str]:
        """The parts that must all be decided: of two bounds only the one that can."""
        if not self.claim.bracket or self.side is None:
            return list(self.intervals)
        return [self._surest if self.side == "supported" else self._mildest]

    @property
    def p(self) -> float:
        """The smallest error at which the claim would be decided."""
        if self.side is None or self.few:
            return 1.0
        return max(self.intervals[part].p(self.claim.threshold) for part in self.deciding)

    def shown(self, level: float) -> str:
        """The part that stands for all: of those that decide, the least favourable."""
        if self.claim.bracket and self.side is None:
            return LOWER  # what was found, rather than what could not be ruled out
        # for a claim "above" that is not refuted this is the lowest one
        lowest = self.claim.above == (self.side != "refuted")

        def worth(part: str) -> float:
            low, high = self.intervals[part].ends(level)
            return low if lowest else -high

        return min(self.deciding, key=worth)

    def passes(self, level: float) -> bool:
        """Whether it would be supported at this level."""
        return self.side == "supported" and all(
            self._beyond(part, level, self.claim.above) for part in self.deciding
        )

    def disagrees(self, level: float) -> bool:
        """Whether intervals of some parts lie wholly on one side, and of others on the other."""
        sides = [
            any(self._beyond(p, level, above) for p in self.intervals) for above in (False, True)
        ]
        return self.claim.operators and all(sides)

    def _beyond(self, part: str, level: float, above: bool) -> bool:
        low, high = self.intervals[part].ends(level)
        return low > self.claim.threshold if above else high < self.claim.threshold


def with_intervals(evidence: Sequence[Evidence], any_time: bool = False) -> list[Tested]:
    """The intervals of all evidence, from the same resamples of documents."""
    number = numbered(evidence)
    samples = [samples_of(e, number) for e in evidence]
    intervals, chance = estimate(
        [s for own in samples for s in own.values()], len(number), any_time
    )
    made, start = [], 0
    for e, own in zip(evidence, samples, strict=True):
        stop = start + len(own)
        of_parts = dict(zip(own, intervals[start:stop], strict=True))
        test = Tested(e, own, of_parts, chance[start] if own else np.empty(0))
        if len(own) > 1:
            # all parts are decided no sooner than the one that is closest to the threshold
            last = max(test.deciding, key=lambda part: of_parts[part].p(e.claim.threshold))
            test = Tested(e, own, of_parts, chance[start + list(own).index(last)])
        made.append(test)
        start = stop
    return made


def statistic(evidence: Evidence, level: float) -> tuple[float, Ends]:
    """The statistic of a claim by itself, and its interval; NaN if no document has it."""
    (test,) = with_intervals([evidence])
    if not test.has_statistic:
        return math.nan, (math.nan, math.nan)
    interval = test.intervals[test.shown(level)]
    return interval.point, interval.ends(level)
