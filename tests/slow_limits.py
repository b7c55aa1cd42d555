"""LIME's limit by other formulas, and expectations for every number of removed words: for tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from heed.algebra.limits import kernel
from heed.algebra.ratios import Ratios
from heed.algebra.subsets import scaled_reciprocal


@dataclass(frozen=True, eq=False)
class BySize:
    """E[f | j kept, s of the others removed] and E[f | j removed, s of the others removed], s = 0
    … d - 1."""

    kept: Float[np.ndarray, "size unit"]
    removed: Float[np.ndarray, "size unit"]

    def all(self) -> Float[np.ndarray, "size_and_1"]:
        """E[f | s words removed], s = 0 … d: a kept word picked at random leaves the others to be
        removed."""
        return np.append(self.kept.mean(1), self.removed[-1, 0])


def by_size(f: Ratios) -> BySize:
    """The conditional expectations, by leave-one-out products of polynomials whose powers count
    removed words."""
    d = f.units
    kept, removed = np.zeros((2, d, d))
    for head in range(len(f.c)):
        a, n, b, m = f.a[head], f.n[head], f.b[head], f.m[head]
        low = np.minimum(a, b)
        u, weight = scaled_reciprocal(f.c[head] + low.sum(), f.c[head] + np.maximum(a, b).sum())
        weight = weight * np.exp(-u * (f.c[head] + low.sum()))
        A, B = (np.exp(-u[:, None] * (x - low)) for x in (a, b))
        words = [
            _Dual(np.stack([A[:, j], B[:, j]], 1), np.stack([n[j] * A[:, j], m[j] * B[:, j]], 1))
            for j in range(d)
        ]
        fixed = _Dual(np.ones((len(u), 1)), np.full((len(u), 1), f.n_c[head]))
        for j, others in enumerate(_leave_one_out(words, fixed)):
            with_kept = A[:, j, None] * (others.derivative + n[j] * others.value)
            with_removed = B[:, j, None] * (others.derivative + m[j] * others.value)
            kept[:, j] += weight @ with_kept
            removed[:, j] += weight @ with_removed
    subsets = np.array([float(comb(d - 1, s)) for s in range(d)])[:, None]
    return BySize(kept / subsets + f.constant, removed / subsets + f.constant)


class _Dual(NamedTuple):
    """Polynomials Σ over subsets of e^{-uD}, and of N e^{-uD}: coefficients by the number of
    removed words."""

    value: Float[np.ndarray, "exponential power"]
    derivative: Float[np.ndarray, "exponential power"]

    def times(self, other: _Dual) -> _Dual:
        long, short = (
            (self, other) if self.value.shape[1] >= other.value.shape[1] else (other, self)
        )
        rows, width = long.value.shape
        value, derivative = np.zeros((2, rows, width + short.value.shape[1] - 1))
        for power in range(short.value.shape[1]):
            there = slice(power, power + width)
            v, g = short.value[:, power, None], short.derivative[:, power, None]
            value[:, there] += v * long.value
            derivative[:, there] += v * long.derivative + g * long.value
        return _Dual(value, derivative)


def _leave_one_out(words: list[_Dual], outside: _Dual) -> Iterator[_Dual]:
    """For each word the product of all others: halves are multiplied once and handed to the other
    half."""
    if len(words) == 1:
        yield outside
        return
    middle = len(words) // 2
    for own, others in ((words[:middle], words[middle:]), (words[middle:], words[:middle])):
        yield from _leave_one_out(own, outside.times(_product(others)))


def _product(words: list[_Dual]) -> _Dual:
    if len(words) == 1:
        return words[0]
    middle = len(words) // 2
    return _product(words[:middle]).times(_product(words[middle:]))


class Alphas(NamedTuple):
    """α_p = E[π z_1 … z_p]: the weight of a subset, and that of subsets which keep one or two
    given words."""

    none: float
    one: float
    two: float


def alphas(d: int, bandwidth: float) -> Alphas:
    s, pi = np.arange(1, d + 1), kernel(d, bandwidth)[1:]
    one = (d - s) / d
    two = one * (d - s - 1) / max(d - 1, 1)
    return Alphas(float(pi.mean()), float((pi * one).mean()), float((pi * two).mean()))


class Sigmas(NamedTuple):
    """β_j = (σ1 E[π f] + σ2 E[π z_j f] + σ3 Σ_{k≠j} E[π z_k f]) / c_d: the same limit, without
    ridge."""

    c: float
    one: float
    two: float
    three: float


def sigmas(d: int, bandwidth: float) -> Sigmas:
    a0, a1, a2 = alphas(d, bandwidth)
    return Sigmas(
        c=(d - 1) * a0 * a2 - d * a1**2 + a0 * a1,
        one=-a1,
        two=((d - 2) * a0 * a2 - (d - 1) * a1**2 + a0 * a1) / (a1 - a2),
        three=(a1**2 - a0 * a2) / (a1 - a2),
    )


def lime_limit_wide(table: BySize) -> Float[np.ndarray, "unit"]:
    """The limit for an infinite bandwidth, from expectations by size: every subset weighs 1.

    β_j = 3(d-1)/(d+1) (E[f | j kept] - mean_k E[f | k kept]) + 12d/(d²-1) Cov(f, 1 - s/d),
    with s uniform on 1 … d.
    The first term alone is right for differences between words; the second sets their level.
    """
    d = table.kept.shape[1]
    s = np.arange(1, d)
    given_kept = (d - s) @ table.kept[1:] / (d - s).sum()  # P(s | j kept) is as d - s
    by_size, share = table.all()[1:], 1 - np.arange(1, d + 1) / d
    level = np.mean(by_size * share) - by_size.mean() * share.mean()
    return 3 * (d - 1) / (d + 1) * (given_kept - given_kept.mean()) + 12 * d / (d**2 - 1) * level


def lime_moments(
    table: BySize, whole: float, bandwidth: float
) -> tuple[float, Float[np.ndarray, "unit"]]:
    """E[π f] and E[π z_j f] from expectations by size, for any model that has them; `whole` is f
    of the document."""
    d = table.kept.shape[1]
    pi, s = kernel(d, bandwidth), np.arange(d)
    return float(pi[1:] @ table.all()[1:] / d), (pi[:d] * (d - s) / d**2) @ table.kept - whole / d
