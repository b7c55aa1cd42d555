"""Exact expectations over random subsets of words, for outputs that are sums of ratios (`Ratios`).

A head's output is N/D. Every word adds one pair of numbers to (D, N) if it is kept, and another if
it is removed. Two identities turn the expectation over all 2^d subsets into a short sum:

    1/D = ∫ e^{-uD} du         for a fixed u the weight e^{-uD} is a product over words
    subsets of uniform size    are the same as removing every word independently with
                               probability t, with t uniform on [0, 1]

The first integral is a sum of a few exponentials, exact to 1e-13 for all D in a range
(`reciprocal`). The second identity turns any weights ω(s) of the sizes into a linear functional of
polynomials in t. Its value at the Legendre polynomial P_l is Σ_s ω(s) Q_l(s), with Q_l the discrete
Chebyshev polynomial (`size_moments`). So Gauss–Legendre nodes with other weights carry it out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from heed.errors import InputError

if TYPE_CHECKING:  # which loads torch
    from heed.algebra.ratios import Ratios

_ERROR = 1e-13  # relative, of 1/D
Nodes = Float[np.ndarray, "node"]
_ENTRIES = 1 << 19  # numbers held at once: bounds memory for long documents


class Sums(NamedTuple):
    """Σ_s ω(s) E[f | s of the other words removed], for every weighting ω and word."""

    kept: Float[np.ndarray, "weighting unit"]
    removed: Float[np.ndarray, "weighting unit"]


def size_sums(f: Ratios, weights: Float[np.ndarray, "weighting size"]) -> Sums:
    """Σ_s ω(s) E[f | j kept, s others removed] for each word j, and the same for j removed.

    s runs from 0 to d - 1; each row of `weights` is one ω.
    """
    d = f.units
    assert weights.shape[1] == d
    sums = np.zeros((2, len(weights), d))  # for the word kept, and for the word removed
    sums += f.constant * weights.sum(1, keepdims=True)
    for head in range(len(f.c)):
        # Few nodes are enough for most heads. With d of them the sums are exact, whatever the head.
        nodes = min(24, d)
        while True:
            of_head, error = _head(f, head, size_moments(weights, nodes), nodes)
            if nodes == d or error <= 1e-12:
                break
            nodes = min(2 * nodes, d)
        sums += of_head
    return Sums(*sums)


def size_moments(
    weights: Float[np.ndarray, "weighting size"], orders: int
) -> Float[np.ndarray, "weighting order"]:
    """Σ_s ω(s) b_s for the Legendre polynomials on [0, 1], P_l = Σ_s b_s C(n, s) t^s (1-t)^{n-s}.

    For l < orders. b_s = Q_l(s), the discrete Chebyshev polynomial with Q_l(n) = 1, by its
    three-term recurrence.
    """
    n = weights.shape[1] - 1
    s = np.arange(n + 1)
    before, now = np.zeros(n + 1), np.ones(n + 1)
    moments = np.empty((len(weights), orders))
    for order in range(orders):
        moments[:, order] = weights @ now
        if order < n:
            after = (2 * order + 1) * (2 * s - n) * now - order * (n + 1 + order) * before
            before, now = now, after / ((order + 1) * (n - order))
    return moments


def _head(
    f: Ratios, head: int, moments: Float[np.ndarray, "weighting order"], nodes: int
) -> tuple[Float[np.ndarray, "2 weighting unit"], float]:
    """What one head adds to the sums, with this many nodes in t, and an estimate of the error.

    The error is relative to the largest value of a word. There are two: orders beyond the last are
    left out, and orders from twice the nodes on come back as the lowest ones. Both are judged by
    how the coefficients fall towards the last order, for a function whose values do not cancel.
    """
    t, legendre = _legendre(nodes)
    mu = moments @ legendre  # [weighting, node]
    a, n, b, m = f.a[head], f.n[head], f.b[head], f.m[head]
    # the least that each word adds to D is taken out of the exponentials, so that none underflows
    low = np.minimum(a, b)
    u, weight = scaled_reciprocal(f.c[head] + low.sum(), f.c[head] + np.maximum(a, b).sum())
    weight = weight * np.exp(-u * (f.c[head] + low.sum()))
    sums = np.zeros((2, len(mu), len(a)))
    kept, removed = sums
    # the same function of t, but with absolute values: its coefficients show the error, since
    # nothing in them cancels
    positive = np.zeros(nodes)
    step = max(1, _ENTRIES // (nodes * len(a)))
    for start in range(0, len(u), step):
        here = slice(start, start + step)
        A, B = (np.exp(-u[here, None] * (x - low)) for x in (a, b))  # one of each pair is 1
        # [exponential, node, unit]: E e^{-u · the word's part of D}
        inverse = A[:, None] + t[:, None] * (B - A)[:, None]
        H = weight[here, None] * inverse.prod(-1)  # [exponential, node]
        np.reciprocal(inverse, out=inverse)  # never beyond 1 / min(t, 1-t)
        nA, mB = n * A, m * B
        # ρ_j = ((1-t) nA + t mB)_j / h_j, summed over words: with signs, and without
        four = inverse @ np.stack([nA, mB, np.abs(nA), np.abs(mB)], -1)  # [exponential, node, 4]
        rho, absolute = ((1 - t) * four[..., i] + t * four[..., i + 1] for i in (0, 2))
        positive += (H * (abs(f.n_c[head]) + absolute)).sum(0)
        plain = (H[:, None] * mu) @ inverse
        with_all = ((H * (f.n_c[head] + rho))[:, None] * mu) @ inverse
        # in place: these arrays are the largest
        np.square(inverse, out=inverse)
        if_kept, if_removed = ((H * share)[:, None] * mu @ inverse for share in (1 - t, t))
        with_n = with_all - nA[:, None] * if_kept - mB[:, None] * if_removed  # N of the others
        kept += (A[:, None] * (with_n + n * plain)).sum(0)
        removed += (B[:, None] * (with_n + m * plain)).sum(0)
    coefficients, size = np.abs(legendre @ positive), np.abs(moments).max(0)
    # three orders at a time, since every other coefficient may be 0
    end, half = coefficients[-3:].max(), coefficients[max(0, nodes // 2 - 2) : nodes // 2 + 1].max()
    # From half of the nodes on they fell by end/half. On the way to twice the nodes, where orders
    # begin to come back, they fall by that twice more.
    returning = end * min(1.0, end / half) ** 2 * size.max() if half > 0 else 0.0
    scale = _largest(f, head) * np.abs(moments[:, 0]).max() or 1.0
    return sums, float(max((size * coefficients)[-3:].max(), returning) / scale)


def _largest(f: Ratios, head: int) -> float:
    """The largest value |N/D| that a single word (or what is always there) has in a head."""
    parts = [
        (np.append(f.n[head], f.n_c[head]), np.append(f.a[head], f.c[head])),
        (f.m[head], f.b[head]),
    ]
    return max(float(np.abs(n / np.where(d > 0, d, np.inf)).max()) for n, d in parts)


@lru_cache(maxsize=16)
def _legendre(nodes: int) -> tuple[Float[np.ndarray, "node"], Float[np.ndarray, "order node"]]:
    """Gauss–Legendre nodes on [0, 1], and (2l+1) P_l times their weights.

    The second turns values at the nodes into coefficients.
    """
    x, w = np.polynomial.legendre.leggauss(nodes)
    values = np.polynomial.legendre.legvander(x, nodes - 1).T
    return (x + 1) / 2, values * w / 2 * (2 * np.arange(nodes)[:, None] + 1)


def scaled_reciprocal(low: float, high: float) -> tuple[Nodes, Nodes]:
    """Nodes u and weights with Σ weight · e^{-uD} = 1/D for all D between low and high."""
    if not low > 0:
        reason = "without its words a document has no attention left"
        raise InputError(f"Attention is too peaked for exact values: {reason}.")
    u, weight = reciprocal(int(np.ceil(np.log2(high / low) + 1e-9)))
    return u / low, weight / low


@lru_cache(maxsize=64)
def reciprocal(octaves: int) -> tuple[Nodes, Nodes]:
    """Nodes u and weights with Σ weight · e^{-uD} = 1/D for D from 1 to 2^octaves, to 1e-13 of it.

    The trapezoidal rule in log u is as exact, but long. A few of its exponentials, chosen by
    pivoting, span the others on that range; their weights are fitted again.
    """
    from scipy.linalg import qr

    octaves = max(1, octaves)
    step = 0.25  # error 2 |Γ(1 + 2πi/step)| < 2e-16
    u = np.exp(np.arange(np.log(_ERROR / 10) - octaves * np.log(2), np.log(40), step))
    if octaves > 24:  # to choose would take longer than it saves
        return u, step * u
    D = 2 ** np.linspace(0, octaves, 48 * octaves + 49)
    columns = u * D[:, None] * np.exp(-u * D[:, None])
    order = qr(columns, mode="r", pivoting=True)[1]
    for count in range(8 + 2 * octaves, len(u) + 1):
        pivots = order[:count]
        weight = np.linalg.lstsq(columns[:, pivots], np.ones(len(D)), rcond=1e-15)[0]
        if np.abs(columns[:, pivots] @ weight - 1).max() <= _ERROR:
            break
    return u[pivots], u[pivots] * weight
