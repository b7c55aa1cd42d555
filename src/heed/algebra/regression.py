"""Weighted ridge regression on rows that are made when they are needed, with standard errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

ENTRIES = 1 << 21  # numbers held at once: bounds memory however many samples are asked for


class Design(Protocol):
    """The regressors of a fit, made a few rows at a time."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def rows(self, which: slice, dtype: Any) -> Float[np.ndarray, "_ column"]: ...


@dataclass(frozen=True, eq=False)
class Words:
    """Which words are kept."""

    keep: Bool[np.ndarray, "sample unit"]

    @property
    def shape(self) -> tuple[int, int]:
        return self.keep.shape[0], self.keep.shape[1]

    def rows(self, which: slice, dtype: Any) -> Float[np.ndarray, "_ column"]:
        return self.keep[which].astype(dtype)


@dataclass(frozen=True, eq=False)
class Controlled:
    """Words, and beside them controls: columns that take up noise but not what words explain.

    chosen    the words to fit
    removed   how many words each sample removes
    phi       functions of that number
    psi       another one, which multiplies how far a word's presence is from its mean at that
              number; for all words but one, since these columns add up to zero
    """

    keep: Bool[np.ndarray, "sample unit"]
    chosen: Int[np.ndarray, "word"]
    removed: Int[np.ndarray, "sample"]
    phi: Float[np.ndarray, "size function"]
    psi: Float[np.ndarray, "size"]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.keep), len(self.chosen) + self.phi.shape[1] + self.keep.shape[1] - 1

    def rows(self, which: slice, dtype: Any) -> Float[np.ndarray, "_ column"]:
        z, s, q = self.keep[which].astype(dtype), self.removed[which], len(self.chosen)
        found = np.empty((len(z), self.shape[1]), dtype=dtype)
        found[:, :q] = z if q == z.shape[1] else z[:, self.chosen]
        found[:, q : q + self.phi.shape[1]] = self.phi[s]
        centred = z[:, :-1] - (1 - s / z.shape[1]).astype(dtype)[:, None]
        np.multiply(
            centred, self.psi[s].astype(dtype)[:, None], out=found[:, q + self.phi.shape[1] :]
        )
        return found


@dataclass(frozen=True, eq=False)
class Ridge:
    """A fitted weighted ridge regression."""

    coefficients: Float[np.ndarray, "column"]
    intercept: float
    standard_errors: Float[np.ndarray, "column"]
    r2: float


def ridge(
    design: Design,
    y: Float[np.ndarray, "sample"],
    weights: Float[np.ndarray, "sample"],
    penalty: float | Float[np.ndarray, "column"],
    *,
    shown: int | None = None,
    first: int = 1,
    together: int = 1,
) -> Ridge:
    """Weighted ridge regression of y with a free intercept.

    shown      how many columns to report; the others are controls
    first      rows in front that are the same in every run, and add nothing to the standard errors
    together   how many neighbouring rows are one draw

    r2 is that of the reported columns.
    """
    columns = design.shape[1]
    shown = columns if shown is None else shown
    # a narrow kernel makes all weights tiny; only their ratios matter
    weights, penalty = weights / weights.max(), penalty / weights.max()
    total = weights.sum()
    y_mean = weights @ y / total
    # an output that moves by rounding only leaves nothing to explain
    if np.ptp(y) <= 1e-12 * max(1.0, float(np.abs(y).max())):
        return Ridge(np.zeros(shown), float(y_mean), np.zeros(shown), 1.0)
    y = y - y_mean
    gram, moment, mean = np.zeros((columns, columns)), np.zeros(columns), np.zeros(columns)
    # Products of many rows are summed in single precision, which is fast. The solution is corrected
    # below, by its gradient in double precision, until it is exact.
    dtype = np.float32 if design.shape[0] * columns > 1 << 16 else np.float64
    for rows in slices(design.shape):
        x, w = design.rows(rows, dtype), weights[rows].astype(dtype)
        gram += (x * w[:, None]).T @ x
        moment += (w * y[rows].astype(dtype)) @ x
        mean += w @ x
    mean /= total
    # a word that all weighted samples keep, or none, cannot be fitted: a tiny ridge leaves it at 0
    trace = np.maximum(penalty, (1e-7 if dtype == np.float32 else 1e-14) * np.trace(gram) / columns)
    inverse = np.linalg.inv(
        gram - total * np.outer(mean, mean) + np.diag(np.broadcast_to(trace, columns))
    )
    slope, rest = inverse @ moment, y
    for _ in range(5):
        gradient, mean, rest = _gradient(design, y, weights, slope)
        step = inverse @ (gradient - penalty * slope)
        slope = slope + step
        # each step makes the error smaller by the same factor, so that 1e-10 is left
        if np.abs(step).max() <= 1e-5 * np.abs(slope).max():
            break
    errors = _standard_errors(design, weights, mean, rest, inverse, shown, first, together)
    spread = float(weights @ y**2)
    if shown < columns:  # the residuals of the words alone, without the controls
        *_, rest = _gradient(design, y, weights, np.where(np.arange(columns) < shown, slope, 0))
    r2 = 1 - float(weights @ rest**2) / spread if spread > 0 else 1.0
    return Ridge(slope[:shown], float(y_mean - mean @ slope), errors, r2)


def _gradient(
    design: Design,
    y: Float[np.ndarray, "sample"],
    weights: Float[np.ndarray, "sample"],
    slope: Float[np.ndarray, "column"],
) -> tuple[Float[np.ndarray, "column"], Float[np.ndarray, "column"], Float[np.ndarray, "sample"]]:
    """Σ w r (x - x̄), x̄ and the residuals r of the fit with the best intercept for this slope."""
    product, mean, fitted = np.zeros(len(slope)), np.zeros(len(slope)), np.empty(len(y))
    for rows in slices(design.shape):
        x = design.rows(rows, np.float64)
        fitted[rows] = x @ slope
        both = np.stack([weights[rows] * (y[rows] - fitted[rows]), weights[rows]]) @ x
        product += both[0]
        mean += both[1]
    total, rest = weights.sum(), y - fitted
    level = weights @ rest
    return product - mean * level / total, mean / total, rest - level / total


def _standard_errors(
    design: Design,
    weights: Float[np.ndarray, "sample"],
    mean: Float[np.ndarray, "column"],
    rest: Float[np.ndarray, "sample"],
    inverse: Float[np.ndarray, "column column"],
    shown: int,
    first: int,
    together: int,
) -> Float[np.ndarray, "shown"]:
    """How far other samples would have moved the coefficients.

    Samples may have unequal variances, and two rows may be one draw. The fit makes residuals too
    small, so each is enlarged by (1 - leverage)^(-1/2), a matrix for draws of two (HC2, CR2). This
    overstates a little where draws with much leverage vary least. Up to 400 draws of two there is
    time for variances without bias, which are used wherever they exist. Draws are independent, so
    that some of them (at least 10 per column, and 500) can stand for all.
    """
    n, columns = design.shape
    used = max(500, 10 * columns) // together * together
    rows = slice(first, min(n, first + used))
    x = design.rows(rows, np.float32) - mean.astype(np.float32)
    influence = x @ inverse.astype(np.float32)
    root = np.sqrt(weights[rows])
    own = np.clip(root**2 * (np.einsum("ij,ij->i", influence, x) + 1 / weights.sum()), 0, 0.99)
    e = root * rest[rows]
    if together == 1:
        left = e / np.sqrt(1 - own)
    else:
        cross = np.einsum("ij,ij->i", influence[::2], x[1::2]) + 1 / weights.sum()
        left = enlarged(
            e.reshape(-1, 2), 1 - own.reshape(-1, 2), -cross * root[::2] * root[1::2]
        ).ravel()
    moved = (influence[:, :shown] * (root * left)[:, None]).reshape(-1, together, shown).sum(1)
    variance = np.square(moved).sum(0, dtype=float) * (n - first) / len(x)
    if together == 2 and 2 * columns <= n - first <= 800:
        with suppress(np.linalg.LinAlgError):
            better = _unbiased(design, weights, mean, rest, inverse, shown, first)
            variance = np.where(better > 0, better, variance)
    return np.sqrt(variance)


def _unbiased(
    design: Design,
    weights: Float[np.ndarray, "sample"],
    mean: Float[np.ndarray, "column"],
    rest: Float[np.ndarray, "sample"],
    inverse: Float[np.ndarray, "column column"],
    shown: int,
    first: int,
) -> Float[np.ndarray, "shown"]:
    """Variances of the coefficients without bias (Hartley, Rao and Kiefer), for draws of two.

    Residuals are e = Mu. So the mean of e e^T in a draw is Σ_j M_j C_j M_j^T over the 2 × 2
    covariances C_j of all draws: linear equations for these. Solving them costs the cube of the
    number of draws. A variance may come out negative.
    """
    x, root = design.rows(slice(first, None), np.float64) - mean, np.sqrt(weights[first:])
    influence = root[:, None] * (x @ inverse)
    M = np.eye(len(x)) - influence @ (root[:, None] * x).T - np.outer(root, root) / weights.sum()
    blocks = M.reshape(len(x) // 2, 2, -1, 2)
    (a, b), (c, d) = ([blocks[:, i, :, j] for j in (0, 1)] for i in (0, 1))
    system = np.block(
        [[a * a, 2 * a * b, b * b], [a * c, a * d + b * c, b * d], [c * c, 2 * c * d, d * d]]
    )
    e, moved = (root * rest[first:]).reshape(-1, 2).T, influence[:, :shown].reshape(-1, 2, shown)
    C = np.linalg.solve(system, np.concatenate([e[0] ** 2, e[0] * e[1], e[1] ** 2])).reshape(3, -1)
    products = moved[:, 0] ** 2, 2 * moved[:, 0] * moved[:, 1], moved[:, 1] ** 2
    return np.sum([own @ product for own, product in zip(C, products, strict=True)], 0)


def enlarged(
    e: Float[np.ndarray, "draw 2"],
    diagonal: Float[np.ndarray, "draw 2"],
    cross: Float[np.ndarray, "draw"],
) -> Float[np.ndarray, "draw 2"]:
    """M^(-1/2) e for symmetric 2 × 2 matrices M: √M = (M + δ)/√(tr M + 2δ) with δ = √det M."""
    delta = np.sqrt(np.maximum(diagonal.prod(1) - cross**2, 1e-4))
    scale = np.sqrt(diagonal.sum(1) + 2 * delta)
    p, r = (diagonal + delta[:, None]).T
    determinant = p * r - cross**2
    return (
        np.stack([r * e[:, 0] - cross * e[:, 1], p * e[:, 1] - cross * e[:, 0]], 1)
        * (scale / determinant)[:, None]
    )


def slices(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of rows with a bounded number of entries; of even length, to keep pairs together."""
    n, columns = shape
    step = max(2, ENTRIES // max(1, columns) // 2 * 2)
    for start in range(0, n, step):
        yield slice(start, start + step)
