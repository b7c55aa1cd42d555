"""Distances, rank correlations and intervals: pure functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Bool, Float, Int


def tvd(
    p: Float[np.ndarray, "*#batch n"], q: Float[np.ndarray, "*#batch n"]
) -> Float[np.ndarray, "*batch"] | float:
    """Total variation distance, ½ Σ |p - q|: between 0 and 1."""
    return 0.5 * np.abs(p - q).sum(-1)


def jsd(
    p: Float[np.ndarray, "*#batch n"], q: Float[np.ndarray, "*#batch n"]
) -> Float[np.ndarray, "*batch"] | float:
    """Jensen–Shannon divergence in nats: between 0 and ln 2; 0·log 0 is 0."""
    middle = (p + q) / 2
    return (kl(p, middle) + kl(q, middle)) / 2


def kl(
    p: Float[np.ndarray, "*#batch n"], q: Float[np.ndarray, "*#batch n"]
) -> Float[np.ndarray, "*batch"] | float:
    """Kullback–Leibler divergence in nats: Σ p log(p/q), where 0·log 0 is 0.

    It is infinite if q is 0 somewhere and p is not.
    """
    # `where` computes both branches: the logarithm of 0 is discarded, its warning is not wanted
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p / q), 0.0).sum(-1)


def auc(scores: Float[np.ndarray, "n"], positive: Bool[np.ndarray, "n"]) -> float:
    """The area under the ROC curve: how often a positive scores above a negative; ties count half.

    NaN if there are no positives or no negatives.
    """
    # the Mann–Whitney U statistic: ranks of the positives, less the smallest sum they could have
    good, bad = int(positive.sum()), int((~positive).sum())
    if not good or not bad:
        return float("nan")
    return float((_ranks(scores)[positive].sum() - good * (good + 1) / 2) / (good * bad))


def average_precision(scores: Float[np.ndarray, "n"], positive: Bool[np.ndarray, "n"]) -> float:
    """The area under the precision–recall curve, as a sum of steps; NaN without positives.

    Equal scores are one step, so their order does not matter.
    """
    if not positive.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(positive[order])
    # the last of each group of equal scores
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    precision, recall = hits[ends] / (ends + 1), hits[ends] / hits[-1]
    return float((precision * np.diff(recall, prepend=0.0)).sum())


def f1(predicted: Bool[np.ndarray, "n"], positive: Bool[np.ndarray, "n"]) -> float:
    """Harmonic mean of precision and recall; NaN if nothing is positive or predicted positive."""
    total = int(predicted.sum() + positive.sum())
    return 2 * int((predicted & positive).sum()) / total if total else float("nan")


def kendall(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """Kendall's τ-b: 1 for the same order, -1 for the reverse; NaN if either side is constant.

    Values that differ by less than 1e-9 of the largest are ties: rounding errors have no order.
    """
    x, y = _rounded(x), _rounded(y)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    if len(x) > 2000:
        from scipy import stats  # faster there, but slow to load

        return float(stats.kendalltau(x, y).statistic)
    a, b = np.sign(x[:, None] - x), np.sign(y[:, None] - y)
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def spearman(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """Spearman's ρ; equal values get their mean rank; NaN if either side is constant.

    Ties are as in `kendall`.
    """
    x, y = _rounded(x), _rounded(y)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def _ranks(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Ranks from 1; equal values get the mean of their ranks."""
    _, group, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]


def _rounded(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Values relative to the largest, so that those equal but for rounding errors become ties."""
    return np.round(x / (np.abs(x).max(initial=0.0) or 1.0), 9)


def bootstrap_mean(
    values: Float[np.ndarray, "n"],
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    groups: Int[np.ndarray, "n"] | None = None,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean; values of one group are resampled together."""
    sums = values if groups is None else np.bincount(groups, values)
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, (1 << 22) // len(sums))  # resamples at a time: bounds memory to 4 M indices
    for start in range(0, resamples, step):
        drawn = rng.integers(0, len(sums), (len(means[start : start + step]), len(sums)))
        count = len(values) if groups is None else np.bincount(groups)[drawn].sum(1)
        means[start : start + step] = sums[drawn].sum(1) / count
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def bootstrap(
    columns: Mapping[str, np.ndarray],
    statistic: Callable[[Mapping[str, np.ndarray]], float],
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    groups: Int[np.ndarray, "n"] | None = None,
) -> tuple[float, float]:
    """Percentile bootstrap interval of any statistic of rows, which are given as columns.

    Rows of one group are resampled together.
    """
    n = len(next(iter(columns.values())))
    counts = np.ones(n, dtype=int) if groups is None else np.bincount(groups)
    order = np.arange(n) if groups is None else np.argsort(groups, kind="stable")
    begins = np.cumsum(counts) - counts
    rng = np.random.default_rng(seed)
    statistics = np.empty(resamples)
    for i in range(resamples):
        drawn = rng.integers(0, len(counts), len(counts))
        sizes = counts[drawn]
        # 0, 1, … within each drawn group: all its rows, without a loop over groups
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = order[np.repeat(begins[drawn], sizes) + within]
        statistics[i] = statistic({key: column[rows] for key, column in columns.items()})
    statistics = statistics[~np.isnan(statistics)]
    if not len(statistics):
        return float("nan"), float("nan")
    low, high = np.quantile(statistics, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
