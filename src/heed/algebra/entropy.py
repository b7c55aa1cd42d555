"""The point of most entropy of { x ≥ 0, Q^T x = c }.

It has the form softmax(Uλ) in every sum of weights, so λ can be found by Newton's method on the
dual problem, for many rows at once. Rows so peaked that λ runs off to infinity are solved one by
one, inside the class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from heed.algebra.least_norm import CERTAIN, SUMS
from heed.algebra.programs import NotReached, Program
from heed.algebra.systems import Basis, Row, Rows, factor, grams

if TYPE_CHECKING:  # the module is imported where methods are listed
    from torch import Tensor

_DOUBLE = float(np.finfo(float).eps)


def most_entropy_batch(
    U: Basis,
    group: Int[np.ndarray, "key"],
    target: Float[np.ndarray, "row rank"],
    masses: Float[np.ndarray, "row group"],
    steps: int = 200,
) -> Rows:
    """x = softmax(Uλ) in every group by itself, with U^T x = target: damped Newton on the dual.

    Rows for which it is not found are NaN.
    """
    import torch

    basis, c, mass = (torch.from_numpy(np.ascontiguousarray(x)) for x in (U, target, masses))
    names = np.unique(group)
    members = [torch.from_numpy(np.flatnonzero(group == g)) for g in names]
    group_of_key = torch.from_numpy(np.searchsorted(names, group))
    gram = grams(basis, len(c))

    def shares(lam: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
        """x, and the logarithm of what normalises it."""
        score = lam @ basis.T
        tops = torch.stack([score[:, m].logsumexp(1) for m in members], 1)
        weights = (score - tops[:, group_of_key]).exp() * mass[:, group_of_key]
        return weights, (tops * mass).sum(1)

    points = torch.full((len(c), len(U)), float("nan"), dtype=c.dtype)
    rows, lam = torch.arange(len(c)), torch.zeros_like(c)
    x, top = shares(lam, mass)
    for _ in range(steps):
        slope = x @ basis - c
        done = (slope.abs() < 1e-15).all(1)
        points[rows[done]] = x[done]
        unsolved = (t[~done] for t in (rows, lam, c, mass, x, top, slope))
        rows, lam, c, mass, x, top, slope = unsolved
        if not len(rows):
            break
        # the Hessian is the covariance of U under x: second moments minus those of the group means
        means = torch.stack([x[:, m] @ basis[m] for m in members], 1)
        scaled = means / mass.clamp(min=1e-300)[:, :, None]
        H = gram(x) - torch.einsum("bgr,bgs->brs", scaled, means)
        move = -torch.cholesky_solve(slope[:, :, None], factor(H))[:, :, 0]
        # scores may change by 20 in one step: beyond that the quadratic model means nothing
        reach = (move @ basis.T).abs().amax(1)
        move = move * (20 / reach).clamp(max=1)[:, None]
        before, fall = top - (lam * c).sum(1), (slope * move).sum(1)
        size = torch.ones_like(before)
        for _ in range(40):
            trial = lam + size[:, None] * move
            x_new, top_new = shares(trial, mass)
            # Armijo's condition, with room for the rounding of the objective itself
            allowed = before + 1e-4 * size * fall + 1e-15 * before.abs().clamp(min=1)
            worse = top_new - (trial * c).sum(1) > allowed
            if not bool(worse.any()):
                break
            size = torch.where(worse, size / 2, size)
        better = (x_new @ basis - c).abs().amax(1) < slope.abs().amax(1)
        # a row that is this close and does not improve is as exact as rounding allows
        stuck = (slope.abs().amax(1) < 1e-11) & ~better
        points[rows[stuck]] = x[stuck]
        rows, c, mass, lam, x, top = (t[~stuck] for t in (rows, c, mass, trial, x_new, top_new))
    return points.numpy()


def most_entropy_inside(Q: Basis, row: Row, near: Row) -> Row:
    """The same for a row so peaked that its class lies at the boundary.

    `near` is what the batch found, NaN if it found nothing.
    """
    if near.min() > 0 and (x := most_entropy_from(Q, near, row, 50)) is not None:
        return x
    start = row if row.min() > 0 else (row + _widest(Q, row)) / 2
    if (x := most_entropy_from(Q, start, row, 500)) is not None:
        return x
    raise NotReached(
        "The attention of most entropy was not found: the row is too peaked, choose the least norm."
    )


def most_entropy_from(Q: Basis, start: Row, row: Row, steps: int) -> Row | None:
    """Newton's method within the class of a row, from a start with positive weights.

    A step is x (Qλ - log x) for the λ that fits log x best where x has its weight. It leaves the
    output as it is. The point exp(Qλ) has the most entropy of all points with its output, so x is
    done when it does not diverge from exp(Qλ). Its output may still differ from that of the row, by
    rounding or because the start did. What is missing is added until it makes no difference.
    """
    positive, c = start > 0, Q.T @ row
    x, Q = start[positive], Q[positive]
    for _ in range(steps):
        x = np.maximum(x, 1e-280)  # so that its logarithm and its root are numbers
        missing = c - Q.T @ x
        with np.errstate(over="ignore", invalid="ignore"):
            growth, regain = _graded(Q, x, missing)
            # Σ x (e^g - 1 - g), the divergence, without the difference of nearly equal numbers
            divergence = float((x * (np.expm1(np.minimum(growth, 700)) - growth)).sum())
        if divergence < CERTAIN:
            missed = float(np.abs(missing).max())
            if missed < 2 * _DOUBLE or (missed < SUMS / 10 and np.abs(x * regain).max() < 5e-10):
                result = np.zeros_like(row)
                result[positive] = x
                return result
            growth = regain
        # weights that vanish anyway would make every step tiny: they shrink by a factor instead
        vanishing = (growth < 0) & (x < 1e-16)
        length = min(1.0, 0.99 / max(float(-growth[~vanishing].min()), 1e-300))
        with np.errstate(over="ignore", invalid="ignore"):
            shrunk = np.exp(np.clip(length * growth, -50, 0))
            x = x * np.where(vanishing, shrunk, 1 + length * growth)
        if not np.isfinite(x).all():
            break
    return None


def _widest(Q: Basis, row: Row) -> Row:
    """A member of the row's class that has weight wherever any member has."""
    n = len(Q)
    # x = y + z with 0 ≤ y ≤ 1, z ≥ 0 and Q^T x = θ c for some θ ≥ 1: the more of y, the wider the
    # support. θ makes room: a member times a large θ has y = 1 wherever it has weight.
    most = np.concatenate([np.ones(n), np.full(n + 1, np.inf)])
    least = np.append(np.zeros(2 * n), 1.0)
    program = Program(np.vstack([Q, Q, -(Q.T @ row)[None]]), (least, most), (0.0, 0.0))
    result = program.smallest(np.concatenate([-np.ones(n), np.zeros(n + 1)]))
    return np.maximum(result[:n] + result[n : 2 * n], 0) / result[-1]


def _graded(Q: Basis, x: Row, missing: Float[np.ndarray, "rank"]) -> tuple[Row, Row]:
    """Qλ - log x for the λ that fits best, each key weighing x; and x's relative change that adds
    `missing` to the output."""
    from scipy.linalg import qr, solve_triangular

    root, log = np.sqrt(x), np.log(x)
    # weights span hundreds of orders of magnitude: with rows sorted by size and columns pivoted, a
    # QR factorisation keeps the digits of the small ones
    order = np.argsort(-root, kind="stable")
    left, R, pivots = qr(root[order, None] * Q[order], mode="economic", pivoting=True)
    rank = int(np.count_nonzero(np.diag(R)))
    left, R, pivots = left[:, :rank], R[:rank, :rank], pivots[:rank]
    regain = np.empty_like(x)
    regain[order] = left @ solve_triangular(R, missing[pivots], trans="T")
    growth = Q[:, pivots] @ solve_triangular(R, left.T @ (root * log)[order]) - log
    return growth, regain / root
