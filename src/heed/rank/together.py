"""Methods compared on the same documents: intervals that hold for all of them at once.

Documents are drawn again and again (those that belong together as one), the same for all methods. A
mean strays in a resample by so many of its own standard errors. The largest of these, over all
means at once, says how wide intervals must be for all of them to hold together (max-t). Where pairs
of methods are compared, all pairs are: none is picked out before, so none is flattered by that.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from heed.intervals import RESAMPLES, Sample
from heed.intervals.studentised import strays

LEVEL = 0.95
# Where two methods differ in one document of 60, a resample without it shows no spread, and would
# stray by infinitely many errors of its own: no two methods could then be told apart.
FLOOR = 0.5
ROUNDING = 1e-9  # differences that mean nothing

Values = Float[np.ndarray, "row document"]


class Intervals(NamedTuple):
    """Means with the ends of intervals that hold together."""

    mean: Float[np.ndarray, "row"]
    low: Float[np.ndarray, "row"]
    high: Float[np.ndarray, "row"]


def simultaneous(
    values: Values, groups: Int[np.ndarray, "document"], seed: int = 0, resamples: int = RESAMPLES
) -> Intervals:
    """The mean of each row, with intervals that hold for all rows together."""
    mean, count = values.mean(1), int(groups.max(initial=-1)) + 1
    if count < 2:  # one document tells nothing about others
        unknown = np.full(len(mean), np.inf)
        return Intervals(mean, -unknown, unknown)
    samples = [Sample(row, groups) for row in values]
    errors, drawn = strays(samples, count, resamples, seed, FLOOR)
    # a row whose values are all alike has no error, and never strays
    farthest = np.abs(drawn[errors > 0]).max(0, initial=0.0)
    reach = float(np.quantile(farthest, LEVEL, method="higher"))
    spread = np.multiply(errors, reach, out=np.zeros_like(errors), where=errors > 0)
    return Intervals(mean, mean - spread, mean + spread)


def leads(
    values: Values, groups: Int[np.ndarray, "document"], seed: int = 0, resamples: int = RESAMPLES
) -> Float[np.ndarray, "row row"]:
    """By how much each row at least leads each other one, beyond chance; negative where it may not.

    All pairs hold together.
    """
    least = np.zeros((len(values), len(values)))
    if len(values) < 2:
        return least
    one, other = np.array(list(combinations(range(len(values)), 2))).T
    gap = values[one] - values[other]
    gap[np.abs(gap) < ROUNDING] = 0.0
    found = simultaneous(gap, groups, seed, resamples)
    least[one, other], least[other, one] = found.low, -found.high
    return least
