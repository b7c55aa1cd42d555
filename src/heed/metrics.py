"""Distances, rank correlations and the top of a ranking: pure functions of arrays."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float


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
    """The mean, over positives, of the share of positives among all that rank as high.

    Equal scores stand in random order: this is the mean over all their orders, so that constant
    scores get `chance_precision`. Ties are as in `kendall`. NaN without positives.
    """
    if not positive.any():
        return float("nan")
    # groups of equal scores, from the highest down
    _, group, sizes = np.unique(-_rounded(scores), return_inverse=True, return_counts=True)
    hits = np.bincount(group, positive)
    starts, hits_before = np.cumsum(sizes) - sizes, np.cumsum(hits) - hits
    # the group of each rank from 1 to n, and how many of the group stand before it
    at = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.arange(1, len(scores) + 1)
    before = rank - 1 - starts[at]
    # At each rank of a group stands a positive with the chance hits / size. If one does, the other
    # positives are spread evenly over the other ranks of the group, and so among those before.
    others = before * (hits[at] - 1) / np.maximum(sizes[at] - 1, 1)
    precision = (hits_before[at] + 1 + others) / rank
    return float((hits[at] / sizes[at]) @ precision / positive.sum())


def chance_precision(n: int, positive: int) -> float:
    """The mean of `average_precision` over all orders of n scores; NaN without positives.

    It is H/n + (R - 1)(n - H) / (n (n - 1)) for R positives, where H = 1 + 1/2 + … + 1/n: at rank k
    stands a positive with the chance R/n, and then 1 + (k - 1)(R - 1)/(n - 1) of the first k are
    positive on average; this is divided by k and by R, and summed over ranks. It lies above R/n.
    """
    if not positive:
        return float("nan")
    harmonic = float((1 / np.arange(1, n + 1)).sum())
    return harmonic / n + (positive - 1) * (n - harmonic) / (n * max(n - 1, 1))


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


_PAIRS = 1 << 20  # pairs compared at once: bounds memory for long texts


def weighted_kendall(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """How far x ranks as the yardstick y ≥ 0 does, where much counts what scores high in y.

    The mean over pairs of 1 (same order), -1 (reverse order) and 0 (tied in x: the mean of both
    orders), each weighted by the larger of the two y:

        Σ max(y_i, y_j) sgn(x_i - x_j) sgn(y_i - y_j)  /  Σ max(y_i, y_j) |sgn(y_i - y_j)|

    Pairs that are tied in y say nothing. NaN if all are. Ties are as in `kendall`.
    """
    x, y = _rounded(x), _rounded(y)
    order = np.argsort(y)
    x, y = x[order], y[order]
    # a pair counts where its larger y stands: all that come before it and are not equal
    lower = np.searchsorted(y, y, side="left")
    total = float(y @ lower)
    if total == 0:
        return float("nan")
    agreeing = 0.0
    step = max(1, _PAIRS // len(x))
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        below = np.arange(lower[rows][-1]) < lower[rows, None]
        signs = np.sign(x[rows, None] - x[: below.shape[1]])
        agreeing += float(y[rows] @ (signs * below).sum(1))
    return agreeing / total


def spearman(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    """Spearman's ρ; equal values get their mean rank; NaN if either side is constant.

    Ties are as in `kendall`.
    """
    x, y = _rounded(x), _rounded(y)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def top_weights(scores: Float[np.ndarray, "n"], k: int) -> Float[np.ndarray, "n"]:
    """How likely each score is among the k largest if ties are broken at random.

    It is 1 above the cut, 0 below, and a fraction for scores that tie at the cut. The weights sum
    to k. Ties are as in `kendall`.
    """
    scores = _rounded(scores)
    if k <= 0:
        return np.zeros(len(scores))
    if k >= len(scores):
        return np.ones(len(scores))
    cut = np.partition(scores, -k)[-k]  # the k-th largest
    above, at = scores > cut, scores == cut
    return above + at * ((k - above.sum()) / at.sum())


def _ranks(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Ranks from 1; equal values get the mean of their ranks."""
    _, group, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group]


def _rounded(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Values relative to the largest, so that those equal but for rounding errors become ties."""
    return np.round(x / (np.abs(x).max(initial=0.0) or 1.0), 9)
