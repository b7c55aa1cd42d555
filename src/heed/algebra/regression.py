"""Weighted ridge regression on rows that are made when they are needed, with standard errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

ENTRIES = 1 << 21  # numbers held at once: bounds memory however many samples are asked for

Samples = Float[np.ndarray, "sample"]  # a number for each sample
Columns = Float[np.ndarray, "column"]  # a number for each regressor
Pairs = Float[np.ndarray, "pair 2"]


class Design(Protocol):
    """The regressors of a fit."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def rows(self, which: slice, dtype: Any) -> Float[np.ndarray, "_ column"]:
        """Some of the rows."""


@dataclass(frozen=True, eq=False)
class Held:
    """Regressors whose rows were all made at once."""

    table: Float[np.ndarray, "sample column"]

    @property
    def shape(self) -> tuple[int, int]:
        return self.table.shape[0], self.table.shape[1]

    def rows(self, which: slice, dtype: Any) -> Float[np.ndarray, "_ column"]:
        return self.table[which].astype(dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Words:
    """The regressors of a fit, made a few rows at a time: which words are kept."""

    keep: Bool[np.ndarray, "sample unit"]

    @property
    def shape(self) -> tuple[int, int]:
        return self.keep.shape[0], self.keep.shape[1]

    def rows(self, which: slice, dtype: Any) -> Float[np.ndarray, "_ column"]:
        return self.keep[which].astype(dtype)


@dataclass(frozen=True, eq=False)
class Controlled(Words):
    """Words, and beside them controls: columns that take up noise but not what words explain.

    words     the words to fit
    removed   how many words each sample removes
    phi       functions of that number
    psi       another one, which multiplies how far a word's presence is from its mean at that
              number; for all words but one, since these columns add up to zero
    """

    words: Int[np.ndarray, "word"]
    removed: Int[np.ndarray, "sample"]
    phi: Float[np.ndarray, "size function"]
    psi: Float[np.ndarray, "size"]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.keep), len(self.words) + self.phi.shape[1] + self.keep.shape[1] - 1

    def rows(self, which: slice, dtype: Any) -> Float[np.ndarray, "_ column"]:
        kept, removed = self.keep[which].astype(dtype), self.removed[which]
        d, q, functions = kept.shape[1], len(self.words), self.phi.shape[1]
        columns = np.empty((len(kept), self.shape[1]), dtype=dtype)
        columns[:, :q] = kept if q == d else kept[:, self.words]
        columns[:, q : q + functions] = self.phi[removed]
        centred = kept[:, :-1] - (1 - removed / d).astype(dtype)[:, None]
        psi = self.psi[removed].astype(dtype)[:, None]
        np.multiply(centred, psi, out=columns[:, q + functions :])
        return columns


@dataclass(frozen=True, eq=False)
class Ridge:
    """A fitted weighted ridge regression."""

    coefficients: Columns
    intercept: float
    standard_errors: Columns
    r2: float


def ridge(
    design: Design,
    y: Samples,
    weights: Samples,
    penalty: float | Columns,
    *,
    reported: int | None = None,
    pairs: bool = False,
) -> Ridge:
    """Weighted ridge regression of y with a free intercept.

    reported   how many columns to report, with their r2; the others are controls
    pairs      whether two neighbouring rows are one draw, from the second row on

    The first row is the same in every run, and adds nothing to the standard errors.
    """
    samples, columns = design.shape
    if samples * columns <= ENTRIES:  # a correction reads all rows again
        design = Held(design.rows(slice(None), np.float64))
    reported = columns if reported is None else reported
    # a narrow kernel makes all weights tiny; only their ratios matter
    weights, penalty = weights / weights.max(), penalty / weights.max()
    total = weights.sum()
    y_mean = weights @ y / total
    # an output that moves by rounding only leaves nothing to explain
    if np.ptp(y) <= 1e-12 * max(1.0, float(np.abs(y).max())):
        return Ridge(np.zeros(reported), float(y_mean), np.zeros(reported), 1.0)
    # centred, so that sums of squares are not swamped by the level of the output
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
    tiny = (1e-7 if dtype == np.float32 else 1e-14) * np.trace(gram) / columns
    diagonal = np.diag(np.broadcast_to(np.maximum(penalty, tiny), columns))
    inverse = np.linalg.inv(gram - total * np.outer(mean, mean) + diagonal)
    slope = inverse @ moment
    for _ in range(5):
        gradient, mean, residuals = _gradient(design, y, weights, slope)
        step = inverse @ (gradient - penalty * slope)
        slope = slope + step
        # each step makes the error smaller by the same factor, so that 1e-10 is left
        if np.abs(step).max() <= 1e-5 * np.abs(slope).max():
            break
    errors = _Fit(design, weights, mean, residuals, inverse, reported, pairs).standard_errors()
    spread = float(weights @ y**2)
    if reported < columns:  # the residuals of the words alone, without the controls
        words = np.where(np.arange(columns) < reported, slope, 0)
        *_, residuals = _gradient(design, y, weights, words)
    r2 = 1 - float(weights @ residuals**2) / spread if spread > 0 else 1.0
    return Ridge(slope[:reported], float(y_mean - mean @ slope), errors, r2)


def _gradient(
    design: Design, y: Samples, weights: Samples, slope: Columns
) -> tuple[Columns, Columns, Samples]:
    """Σ w r (x - x̄), x̄ and the residuals r of the fit with the best intercept for this slope."""
    product, mean, fitted = np.zeros(len(slope)), np.zeros(len(slope)), np.empty(len(y))
    for rows in slices(design.shape):
        x = design.rows(rows, np.float64)
        fitted[rows] = x @ slope
        # one product for both sums: it reads x once, which is most of the work
        both = np.stack([weights[rows] * (y[rows] - fitted[rows]), weights[rows]]) @ x
        product += both[0]
        mean += both[1]
    total, rest = weights.sum(), y - fitted
    level = weights @ rest
    return product - mean * level / total, mean / total, rest - level / total


class _Fit(NamedTuple):
    """What the standard errors of a regression depend on."""

    design: Design
    weights: Samples
    mean: Columns
    residuals: Samples
    inverse: Float[np.ndarray, "column column"]
    reported: int
    pairs: bool

    def standard_errors(self) -> Float[np.ndarray, "reported"]:
        """How far other samples would have moved the coefficients.

        Samples may have unequal variances, and two rows may be one draw. The fit makes residuals
        too small, so each is enlarged by (1 - leverage)^(-1/2), a matrix for draws of two (HC2,
        CR2). This overstates a little where draws with much leverage vary least. Up to 400 draws of
        two there is time for variances without bias, which are used wherever they exist. Draws are
        independent, so that some of them (at least 10 per column, and 500) can stand for all.
        """
        n, columns = self.design.shape
        together = 2 if self.pairs else 1
        rows = slice(1, min(n, 1 + max(500, 10 * columns) // together * together))
        # single precision is enough for an error, which is an estimate itself
        x = self.design.rows(rows, np.float32) - self.mean.astype(np.float32)
        influence = x @ self.inverse.astype(np.float32)
        root = np.sqrt(self.weights[rows])
        level = 1 / self.weights.sum()  # the leverage of the intercept
        leverage = root**2 * (np.einsum("ij,ij->i", influence, x) + level)
        # a row with leverage 1 is fitted exactly: dividing by 0 would make its noise infinite
        leverage = np.clip(leverage, 0, 0.99)
        residuals = root * self.residuals[rows]
        if self.pairs:
            cross = np.einsum("ij,ij->i", influence[::2], x[1::2]) + level
            cross = -cross * root[::2] * root[1::2]
            by_pair = residuals.reshape(-1, 2)
            noise = enlarged(by_pair, 1 - leverage.reshape(-1, 2), cross).ravel()
        else:
            noise = residuals / np.sqrt(1 - leverage)
        moved = influence[:, : self.reported] * (root * noise)[:, None]
        by_draw = moved.reshape(-1, together, self.reported).sum(1)
        variance = np.square(by_draw).sum(0, dtype=float) * (n - 1) / len(x)
        if self.pairs and 2 * columns <= n - 1 <= 800:
            with suppress(np.linalg.LinAlgError):
                better = _unbiased(self)
                variance = np.where(better > 0, better, variance)
        return np.sqrt(variance)


def _unbiased(fit: _Fit) -> Float[np.ndarray, "reported"]:
    """Variances of the coefficients without bias (Hartley, Rao and Kiefer), for draws of two.

    Residuals are e = Mu. So the mean of e e^T in a draw is Σ_j M_j C_j M_j^T over the 2 × 2
    covariances C_j of all draws: linear equations for these. Solving them costs the cube of the
    number of draws. A variance may come out negative.
    """
    x = fit.design.rows(slice(1, None), np.float64) - fit.mean
    root = np.sqrt(fit.weights[1:])
    influence = root[:, None] * (x @ fit.inverse)
    level = np.outer(root, root) / fit.weights.sum()
    M = np.eye(len(x)) - influence @ (root[:, None] * x).T - level
    blocks = M.reshape(len(x) // 2, 2, -1, 2)
    a, b, c, d = (blocks[:, i, :, j] for i, j in np.ndindex(2, 2))
    # the unknowns are the two variances of each draw and, in the middle, their covariance
    system = np.block(
        [[a * a, 2 * a * b, b * b], [a * c, a * d + b * c, b * d], [c * c, 2 * c * d, d * d]]
    )
    e, f = (root * fit.residuals[1:]).reshape(-1, 2).T
    C = np.linalg.solve(system, np.concatenate([e**2, e * f, f**2])).reshape(3, -1)
    u, v = influence[:, : fit.reported].reshape(-1, 2, fit.reported).swapaxes(0, 1)
    products = u**2, 2 * u * v, v**2
    return np.sum([part @ product for part, product in zip(C, products, strict=True)], 0)


def enlarged(e: Pairs, diagonal: Pairs, cross: Float[np.ndarray, "pair"]) -> Pairs:
    """M^(-1/2) e for symmetric 2 × 2 matrices M: √M = (M + δ)/√(tr M + 2δ) with δ = √det M."""
    # a determinant that rounding made 0 or negative would make a residual infinite
    delta = np.sqrt(np.maximum(diagonal.prod(1) - cross**2, 1e-4))
    scale = np.sqrt(diagonal.sum(1) + 2 * delta)
    p, r = (diagonal + delta[:, None]).T
    determinant = p * r - cross**2
    solved = np.stack([r * e[:, 0] - cross * e[:, 1], p * e[:, 1] - cross * e[:, 0]], 1)
    return solved * (scale / determinant)[:, None]


def slices(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of rows with a bounded number of entries; of even length, to keep pairs together."""
    n, columns = shape
    step = max(2, ENTRIES // max(1, columns) // 2 * 2)
    for start in range(0, n, step):
        yield slice(start, start + step)
