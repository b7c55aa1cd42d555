"""What theory says about LIME and the single-layer classifier: limits, the theorem, its lemmas.

Throughout, subsets of s of the d words are removed, s uniform on 1 … d. z_j says that word j is
kept. A subset weighs π(s) = exp(-δ²/2ν²) with δ = 1 - √(1 - s/d) and ν the bandwidth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from heed.algebra.subsets import size_sums
from heed.errors import InputError

if TYPE_CHECKING:  # which loads torch
    from heed.algebra.ratios import Ratios


def kernel(d: int, bandwidth: float) -> Float[np.ndarray, "size"]:
    """π(s) for s = 0 … d removed words."""
    delta = 1 - np.sqrt(1 - np.arange(d + 1) / d)
    return np.exp(-(delta**2) / (2 * bandwidth**2))


class Fit(NamedTuple):
    """Coefficients and intercept of a linear model of the output in z."""

    coefficients: Float[np.ndarray, "unit"]
    intercept: float


def lime_limit(
    whole: float,
    kept: Float[np.ndarray, "unit"],
    bandwidth: float = 0.25,
    ridge: float = 0.0,
    d: int | None = None,
) -> Fit:
    """What LIME's regression tends to with many samples, from E[π f] and E[π z_j f].

    ridge   the penalty per sample: the `lime` package has 1 / (number of samples)
    d       the number of words of the document, if the regression is on fewer words than that
    """
    d, q = len(kept) if d is None else d, len(kept)
    s, pi = np.arange(1, d + 1), kernel(d, bandwidth)[1:]
    # With α_p = E[π z_1 … z_p]: x = α1 - α2 and x + d y = d α0 Var(1 - s/d), written as sums of
    # positive terms. With a narrow kernel the differences would lose all digits.
    alpha_0, alpha_1 = float(pi.mean()), float((pi * (d - s) / d).mean())
    x = float((pi * s * (d - s)).mean()) / (d * max(d - 1, 1))
    spread = d * float((pi * ((d - s) / d - alpha_1 / alpha_0) ** 2).mean())
    level = x * (1 - q / d) + spread * q / d + ridge
    if level < 1e-6 * x:  # what is left of it would be rounding errors
        raise InputError(
            f"A bandwidth of {bandwidth:g} is too narrow for {d} words: "
            "LIME's level is lost. Widen it."
        )
    r = kept - alpha_1 / alpha_0 * whole
    coefficients = (r - r.mean()) / (x + ridge) + r.mean() / level
    return Fit(coefficients, float((whole - alpha_1 * coefficients.sum()) / alpha_0))


class Exact(NamedTuple):
    """LIME with infinitely many samples, and Shapley values."""

    lime: Fit
    shapley: Float[np.ndarray, "unit"]


def exact(f: Ratios, bandwidth: float = 0.25, ridge: float = 0.0) -> Exact:
    """Both, without sampling; of two words at least."""
    d = f.units
    pi = kernel(d, bandwidth)
    s = np.arange(d)
    sums = size_sums(f, np.stack([pi[:d] * (d - s) / d**2, pi[:d] / d, np.full(d, 1 / d)]))
    document = f.whole() / d  # s = 0 is in the sums but not among the samples
    whole = sums.kept[1].mean() - document + pi[d] / d * f.empty()
    return Exact(
        lime_limit(whole, sums.kept[0] - document, bandwidth, ridge), sums.kept[2] - sums.removed[2]
    )


# The theorem


def lime_theorem(f: Ratios, constant: float = 1.5) -> Float[np.ndarray, "unit"]:
    """Theorem 5.1: constant · Σ_t (a_t w_t - a_{h,t} w_{h,t}), mean over heads.

    The sum is over the positions t of a word. a is the attention in the document, a_h the attention
    in the document with every word replaced.
    """
    a = f.n / (f.c + f.a.sum(1))[:, None]
    a_h = f.m / (f.c + f.b.sum(1))[:, None]
    return constant * (a - a_h).sum(0)


def slope(x: Float[np.ndarray, "unit"], y: Float[np.ndarray, "unit"]) -> float:
    """The least-squares factor c in y = c x; NaN where x is 0."""
    square = float(x @ x)
    return float(x @ y) / square if square > 0 else float("nan")


def relative_error(x: Float[np.ndarray, "unit"], truth: Float[np.ndarray, "unit"]) -> float:
    """‖x - truth‖ ÷ ‖truth‖; NaN where the truth is 0."""
    norm = float(np.sqrt(np.square(truth).sum()))
    return float(np.sqrt(np.square(x - truth).sum())) / norm if norm > 0 else float("nan")


# Lemmas


class Moments(NamedTuple):
    mean: float
    variance: float


def mixture_moments(
    a: Float[np.ndarray, "unit"],
    b: Float[np.ndarray, "unit"],
    removed: int,
    kept: int | None = None,
) -> Moments:
    """Mean and variance of H = Σ (a_i if kept, else b_i) when `removed` words are removed.

    The word `kept` is never removed. H is a constant plus a sum of the differences b - a of the
    removed words, drawn without replacement.
    """
    free = np.ones(len(a), dtype=bool)
    if kept is not None:
        free[kept] = False
    gap = (b - a)[free]
    n, share = len(gap), removed / len(gap)
    variance = removed * (1 - share) * float(gap.var(ddof=1)) if n > 1 else 0.0
    return Moments(float(a.sum() + share * gap.sum()), variance)


def ratio_bound(largest: float, least: float, n: int, variance: float) -> float:
    """An upper bound of |E[X/Y] - E[X]/E[Y]| for |X| ≤ C, 1 ≤ C, and Y ≥ c n.

    The bound is C Var(Y)/(c³n³) + C² √Var(Y)/(c²n²). The difference equals
    E[X (EY - Y)]/E[Y]² + E[X (EY - Y)²/Y]/E[Y]². The second part is at most C Var(Y)/(cn)³. The
    first, a covariance, is at most √(Var(X) Var(Y))/(cn)².
    """
    C, c = largest, least
    return float(C * variance / (c * n) ** 3 + C**2 * np.sqrt(variance) / (c * n) ** 2)
