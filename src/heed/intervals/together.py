"""Many statistics of the same documents: the interval of each, and tests of all together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from heed.intervals.betting import Betting
from heed.intervals.crossed import Crossed
from heed.intervals.sample import Interval, Sample
from heed.intervals.studentised import RESAMPLES, Studentised, strays

MANY = 100  # documents from which on resampling can be trusted, if their values are spread
ERROR = 0.05  # the chance of any false decision that is allowed


def estimate(
    samples: Sequence[Sample],
    groups: int,
    any_time: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[list[Interval], Float[np.ndarray, "sample resample"]]:
    """The interval of each sample, and how their errors hang together.

    The second result has a row for each sample: the p-values that it would have in resamples, the
    same for all samples, if what was measured were true. Each row is uniform between 0 and 1.

    groups     how many there are in all samples together
    any_time   intervals that are valid whenever an audit stops; infinite for values without bounds
    """
    errors, drawn = strays(samples, groups, resamples, seed)
    rng = np.random.default_rng(seed + 1)
    noise = rng.random(resamples)  # an order for equal strays, the same for all samples
    together = np.empty((len(samples), resamples))
    for i, sample in enumerate(samples):
        together[i] = _p_among(drawn[i], noise)
        if sample.by_seed is not None or not errors[i]:
            # other seeds, or documents unlike all that were drawn, are independent of the rest
            together[i] = rng.random(resamples)
    parts = zip(samples, errors.tolist(), drawn, strict=True)
    return [interval(sample, error, own, any_time) for sample, error, own in parts], together


def bets(sample: Sample) -> bool:
    """Whether bets are more to be trusted than resamples: few rows, or rows that are mostly alike.

    What is rare may then be missing from the rows, and so from all resamples.
    """
    can_bet = sample.bounds is not None and sample.statistic is None
    return can_bet and (sample.independent < MANY or sample.lumpy)


def interval(
    sample: Sample,
    error: float,
    drawn: Float[np.ndarray, "resample"],
    any_time: bool = False,
) -> Interval:
    """The interval of one sample, from its standard error and how far resamples stray."""
    found: Interval = Studentised(
        sample.point, error, np.sort(drawn[~np.isnan(drawn)]), sample.bounds
    )
    if bets(sample):
        found = Betting.of(sample)
    if any_time:  # resamples are good for one look at the rows
        can_bet = sample.bounds is not None and sample.statistic is None
        unknown = Studentised(sample.point, math.inf, np.empty(0))
        found = Betting.of(sample, any_time) if can_bet else unknown
    return found if sample.by_seed is None else Crossed.of(found, sample)


def _p_among(
    drawn: Float[np.ndarray, "resample"], noise: Float[np.ndarray, "resample"]
) -> Float[np.ndarray, "resample"]:
    """Two-sided p-values of strays among each other; equal ones are ordered by noise."""
    ranks = np.empty(len(drawn))
    ranks[np.lexsort((noise, drawn))] = np.arange(len(drawn))
    below = (ranks + 0.5) / len(drawn)
    return 2 * np.minimum(below, 1 - below)


def step_down(
    p: Float[np.ndarray, "claim"],
    together: Float[np.ndarray, "claim resample"] | None,
    unmeasured: int = 0,
    seed: int = 0,
) -> tuple[Bool[np.ndarray, "claim"], Float[np.ndarray, "claim"]]:
    """Which claims are decided, at 5 % for all of them together, and the level at which each was.

    The smallest p-value is compared with what the smallest of all would be by chance; once it is
    decided, the next with the smallest of those that are left (min-p of Romano and Wolf). Where one
    fails, all that are left fail, at its level.

    together     p-values by chance, as `estimate` gives them; None if claims are tested again and
                 again: then errors add up (Holm)
    unmeasured   claims that were planned and not measured: independent of all others
    """
    order = np.argsort(p, kind="stable")
    critical = ERROR / (len(p) + unmeasured - np.arange(len(p))).astype(float)
    if together is not None and len(p):
        # the smallest of each claim and all behind it in the order
        smallest = np.minimum.accumulate(together[order][::-1])[::-1]
        if unmeasured:
            # the smallest of so many independent uniform numbers, by inversion
            uniform = np.random.default_rng(seed).random(together.shape[1])
            smallest = np.minimum(smallest, -np.expm1(np.log1p(-uniform) / unmeasured))
        k = math.floor(ERROR * (together.shape[1] + 1))
        by_chance = np.partition(smallest, k - 1)[:, k - 1]
        # no stricter than if errors added up, no milder than for one claim alone
        critical = np.clip(by_chance, critical, ERROR)
    decided, levels = np.zeros(len(p), dtype=bool), np.empty(len(p))
    for step, claim in enumerate(order):
        if p[claim] > critical[step]:
            levels[order[step:]] = 1 - critical[step]
            break
        decided[claim], levels[claim] = True, 1 - critical[step]
    return decided, levels
