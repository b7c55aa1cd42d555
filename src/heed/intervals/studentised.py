"""The bootstrap-t: resamples of groups, the same for all statistics of an audit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from heed.intervals.sample import Ends, Interval, Kind, Sample, rounding, within

RESAMPLES = 10_000
_BLOCK = 1 << 22  # weights at a time: bounds memory


@dataclass(frozen=True, eq=False)
class Studentised(Interval):
    """Bootstrap-t.

    error    the standard error of the statistic
    strays   (statistic of a resample − point) ÷ its own standard error, sorted
    """

    kind: ClassVar[Kind] = "studentised"

    point: float
    error: float
    strays: Float[np.ndarray, "resample"]
    bounds: Ends | None = None

    def ends(self, level: float) -> Ends:
        if self.error == 0:  # all rows are alike
            return self.point, self.point
        # the k-th smallest and largest; `p` counts in the same way, so that both always agree
        k = math.floor((1 - level) / 2 * (len(self.strays) + 1) + 1e-9)
        least, most = (self.strays[k - 1], self.strays[-k]) if k else (-math.inf, math.inf)
        low = min(self.point, self.point - float(most) * self.error)
        high = max(self.point, self.point - float(least) * self.error)
        return within(low, high, self.bounds)

    def p(self, threshold: float) -> float:
        distance = self.point - threshold
        if abs(distance) <= rounding(threshold):
            return 1.0
        if self.error == 0:
            return 0.0
        t = distance / self.error
        first = np.searchsorted(self.strays, t, "left")
        beyond = len(self.strays) - first if t > 0 else np.searchsorted(self.strays, t, "right")
        return min(1.0, 2 * (1 + int(beyond)) / (len(self.strays) + 1))


def strays(
    samples: Sequence[Sample],
    groups: int,
    resamples: int = RESAMPLES,
    seed: int = 0,
    floor: float = 0.0,
) -> tuple[Float[np.ndarray, "sample"], Float[np.ndarray, "sample resample"]]:
    """The standard error of each statistic, and how far resamples stray, in errors of their own.

    The k-th resample has the same groups, as often, for all samples.

    floor   the error of a resample counts as at least this share of the error of the statistic
    """
    errors, drawn = np.empty(len(samples)), np.empty((len(samples), resamples))
    means = [i for i, s in enumerate(samples) if s.statistic is None]
    others = [i for i, s in enumerate(samples) if s.statistic is not None]
    columns = [_columns(samples[i], groups) for i in means]
    influences = [_influence(samples[i], groups) for i in others]
    for i, (r, *_) in zip(means, columns, strict=True):
        errors[i] = np.sqrt(np.square(r).sum()) / len(samples[i].values)
    for i, pulls in zip(others, influences, strict=True):
        errors[i] = np.sqrt(np.square(pulls).sum()) / samples[i].independent
    # one matrix for all means: their sums over all resamples are one product
    matrix = np.concatenate([*columns, np.empty((0, groups))]).T
    start = 0
    for weights in _weights(groups, resamples, seed):
        some = slice(start, start + len(weights))
        sums = weights @ matrix
        for place, i in enumerate(means):
            least = floor * errors[i]
            drawn[i, some] = _of_mean(sums[:, 5 * place : 5 * place + 5], least)
        for i, pulls in zip(others, influences, strict=True):
            drawn[i, some] = _of_statistic(samples[i], weights, pulls, floor * errors[i])
        start = some.stop
    return errors, drawn


def _weights(
    groups: int, resamples: int, seed: int
) -> Iterator[Float[np.ndarray, "resample group"]]:
    """How often each group is in each resample, some resamples at a time."""
    rng = np.random.default_rng(seed)
    step = max(1, _BLOCK // max(1, groups))
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        drawn = rng.integers(0, groups, (count, groups))
        # numbers of their own for each resample, so that one count serves them all
        drawn += groups * np.arange(count)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=count * groups)
        yield counts.reshape(count, groups).astype(float)


def _columns(sample: Sample, groups: int) -> Float[np.ndarray, "5 group"]:
    """What must be summed over a resample to have its mean and standard error.

    Of every group the sum r of its values less the mean, its size n, and their squares and product.
    """
    # values that are equal but for rounding have no spread
    alike = np.ptp(sample.values) <= rounding(sample.point)
    residuals = np.zeros(len(sample.values)) if alike else sample.values - sample.point
    r = np.bincount(sample.groups, residuals, minlength=groups)
    n = np.bincount(sample.groups, minlength=groups).astype(float)
    return np.stack([r, n, r * r, r * n, n * n])


def _of_mean(sums: Float[np.ndarray, "resample 5"], least: float) -> Float[np.ndarray, "resample"]:
    """How far resampled means stray, from the sums of `_columns`."""
    r, n, rr, rn, nn = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        off = r / n  # the mean of the resample − the mean
        squares = rr - 2 * off * rn + off * off * nn  # Σ (r − off · n)²
        squares[squares <= 1e-12 * rr] = 0.0  # rounding: these groups are all alike
        return _in_errors(off, np.maximum(least, np.sqrt(squares) / n))


def _influence(sample: Sample, groups: int) -> Float[np.ndarray, "group"]:
    """How much each group pulls the statistic (infinitesimal jackknife), by leaving it out."""
    assert sample.statistic is not None
    pulls, present = np.zeros(groups), np.unique(sample.groups)
    for group in present:
        left = np.flatnonzero(sample.groups != group)
        without = sample.statistic(left) if len(left) else math.nan
        pulls[group] = (len(present) - 1) * (sample.point - without)
    pulls[~np.isfinite(pulls)] = 0.0
    pulls[present] -= pulls[present].mean()
    return pulls


def _of_statistic(
    sample: Sample,
    weights: Float[np.ndarray, "resample group"],
    pulls: Float[np.ndarray, "group"],
    least: float,
) -> Float[np.ndarray, "resample"]:
    """How far a statistic strays: exact values, over errors from the pulls of what was drawn."""
    assert sample.statistic is not None
    rows, statistics = np.arange(len(sample.values)), np.full(len(weights), np.nan)
    for k, times in enumerate(weights.astype(int)[:, sample.groups]):
        if times.any():
            statistics[k] = sample.statistic(np.repeat(rows, times))
    present = np.unique(sample.groups)
    drawn, pulls = weights[:, present], pulls[present]
    count = drawn.sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = drawn @ pulls / count
        squares = np.maximum(drawn @ np.square(pulls) - count * off**2, 0.0)
        own = np.maximum(least, np.sqrt(squares) / count)
        return _in_errors(statistics - sample.point, own)


def _in_errors(
    off: Float[np.ndarray, "resample"], errors: Float[np.ndarray, "resample"]
) -> Float[np.ndarray, "resample"]:
    """Distances in standard errors; infinite where a resample strays but shows no spread."""
    return np.where(np.abs(off) <= 1e-15, 0.0, off / errors)
