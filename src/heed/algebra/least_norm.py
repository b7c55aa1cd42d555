"""The point of least norm of { x ≥ 0, Q^T x = c }, for many c at once.

Newton's method on x = max(Qλ, 0) finds most points in a few steps. For the others there is an
interior-point method. Both run on all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from heed.algebra.systems import Basis, Row, Rows, factor, grams

if TYPE_CHECKING:  # the module is imported where methods are listed
    from torch import Tensor

# How far half the square of a norm may lie above the least one. The problem is strongly convex, so
# that no weight is off by more than √(2 · 5e-19) = 1e-9.
CERTAIN = 5e-19
SUMS = 1e-10  # how far the sums of the weights of a result may be off


def excess(x: Rows, y: Rows) -> Float[np.ndarray, "row"]:
    """An upper bound on how far ½|x|² lies above the least of the class of x; y is any Qλ.

    The dual problem says that no member has less than λ·Q^T x - ½|max(y, 0)|². The difference is
    written as a sum of positive terms: subtracting nearly equal numbers would lose all digits.
    """
    return np.square(x - np.maximum(y, 0)).sum(1) / 2 + (x * np.maximum(-y, 0)).sum(1)


def on_support(Q: Basis, c: Float[np.ndarray, "rank"], near: Row) -> tuple[Row, float]:
    """x ≥ 0 near a point, positive nowhere else, with Q^T x = c; and how far Q^T x is off.

    What is added lies in the span of Q on the support, so that a least norm stays the least.
    """
    x = np.maximum(near, 0)
    best, least = x, np.inf
    for _ in range(10):
        positive = x > 0
        x = x.copy()
        x[positive] += np.linalg.lstsq(Q[positive].T, c - Q.T @ x, rcond=None)[0]
        # a weight that became negative leaves the support, and the others have to make up for it
        finished, x = x.min() >= 0, np.maximum(x, 0)
        off = float(np.abs(c - Q.T @ x).max())
        best, least = (x, off) if off < least else (best, least)
        if finished:
            break
    return best, least


def least_norm_batch(
    Q: Basis, coordinates: Float[np.ndarray, "row rank"], steps: int = 300
) -> Rows:
    """The points of least norm of { x ≥ 0, Q^T x = c }, one for each row c of `coordinates`.

    An interior-point method (Mehrotra's predictor and corrector) for x - Qλ - s = 0, Q^T x = c,
    x·s = 0, for all rows that `_clipped` does not find. Rows that are done leave the batch. Rows
    that never are done are NaN.
    """
    import torch

    basis, targets = (torch.from_numpy(np.ascontiguousarray(x)) for x in (Q, coordinates))
    gram, n = grams(basis, len(targets)), len(Q)
    points = _clipped(basis, targets, gram)
    rows = points.isnan().any(1).nonzero()[:, 0]
    c = targets[rows]
    # well inside: every weight at least that of uniform attention
    x = torch.clamp(c @ basis.T, min=1 / n)
    s, lam = torch.ones_like(x), torch.zeros_like(c)
    for _ in range(steps):
        mu, y = (x * s).mean(1), lam @ basis.T
        off = c - x @ basis
        done = (mu < 1e-22) & (off.abs().amax(1) < 1e-13)
        done &= torch.from_numpy(excess(x.numpy(), y.numpy()) < CERTAIN)
        points[rows[done]] = x[done]
        rows, x, s, lam, c, mu, y, off = (t[~done] for t in (rows, x, s, lam, c, mu, y, off))
        if not len(rows):
            break
        D = x / (x + s)
        state = _State(basis, D, factor(gram(D)), y + s - x, off, x, s)
        # predictor: straight to x·s = 0; how far that goes says how much to stay in the middle
        dx, ds, _ = state.step(-x * s)
        length = _length(x, dx, s, ds)
        ahead = ((x + length * dx) * (s + length * ds)).mean(1)
        centre = (ahead / mu).clamp(0, 1) ** 3 * mu
        # corrector: with the second-order term of the predictor taken off
        dx, ds, move = state.step(centre[:, None] - x * s - dx * ds)
        length = _length(x, dx, s, ds)
        short = length[:, 0] < 0.3
        if bool(short.any()):
            # near the boundary steps become short: go to the middle first, where the way is free
            calm = state.step(0.5 * mu[:, None] - x * s)
            dx, ds, move = (
                torch.where(short[:, None], a, b) for a, b in zip(calm, (dx, ds, move), strict=True)
            )
            length = _length(x, dx, s, ds)
        # not all the way to the boundary, where the next system would be singular
        length = 0.9995 * length
        x, s, lam = x + length * dx, s + length * ds, lam + length * move
        finite = x.isfinite().all(1) & s.isfinite().all(1)
        rows, x, s, lam, c = (t[finite] for t in (rows, x, s, lam, c))
    solved = (~points.isnan().any(1)).nonzero()[:, 0]
    points[solved] = _settled(basis, targets[solved], gram, points[solved])
    return points.numpy()


def _clipped(
    basis: Float[Tensor, "key rank"],
    c: Float[Tensor, "row rank"],
    gram: Callable[[Float[Tensor, "row key"]], Float[Tensor, "row rank rank"]],
    steps: int = 8,
) -> Float[Tensor, "row key"]:
    """x = max(Qλ, 0) with Q^T x = c, by Newton's method on λ; NaN where a few steps do not find it.

    At the point of least norm x has this form. Rows that are not peaked are found at once. A row is
    given up when its error hardly falls, or when too few keys are left to make up the output.
    """
    import torch

    points = c.new_full((len(c), len(basis)), float("nan"))
    rows, lam, before = torch.arange(len(c)), c, c.new_full((len(c),), torch.inf)
    for _ in range(steps):
        x = (lam @ basis.T).clamp(min=0)
        off = c - x @ basis
        missing = off.abs().amax(1)
        done = missing < 1e-14
        points[rows[done]] = x[done]
        on = ~done & (missing < 0.9 * before) & ((x > 0).sum(1) >= basis.shape[1])
        rows, lam, c, x, off, before = (t[on] for t in (rows, lam, c, x, off, missing))
        if not len(rows):
            break
        # the derivative of max(Qλ, 0) keeps the keys that are positive
        L, bad = torch.linalg.cholesky_ex(gram((x > 0).to(x.dtype)))
        lam = lam + torch.cholesky_solve(off[:, :, None], L)[:, :, 0]
        rows, lam, c, before = (t[bad == 0] for t in (rows, lam, c, before))
    return points


def _settled(
    basis: Float[Tensor, "key rank"],
    c: Float[Tensor, "row rank"],
    gram: Callable[[Float[Tensor, "row key"]], Float[Tensor, "row rank rank"]],
    x: Float[Tensor, "row key"],
) -> Float[Tensor, "row key"]:
    """Rows with what is still missing in Q^T x = c added.

    It is tiny, but weights of keys that are nearly equal may depend on it.
    """
    import torch

    positive = (x > 1e-13).to(x.dtype)
    right = torch.cholesky_solve((c - x @ basis)[:, :, None], factor(gram(positive)))[:, :, 0]
    added = positive * (right @ basis.T)
    # more than rounding is added only where the system is nearly singular: few rows, one by one
    much = ~(added.abs().amax(1) < 1e-9)
    x = x + added.masked_fill(much[:, None], 0)
    for i in much.nonzero()[:, 0].tolist():
        near = (x[i] * positive[i]).numpy()
        x[i] = torch.from_numpy(on_support(basis.numpy(), c[i].numpy(), near)[0])
    return x


class _State(NamedTuple):
    """The system of one interior-point step, factored once and solved for several right sides.

    dual   what is missing in x = Qλ + s
    off    what is missing in Q^T x = c
    """

    basis: Tensor
    D: Tensor
    L: Tensor
    dual: Tensor
    off: Tensor
    x: Tensor
    s: Tensor

    def step(self, complement: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The directions of x, s and λ that change x·s by `complement`, to first order."""
        import torch

        g = self.dual + complement / self.x
        right = self.off - (self.D * g) @ self.basis
        move = torch.cholesky_solve(right[:, :, None], self.L)[:, :, 0]
        dx = self.D * (move @ self.basis.T + g)
        return dx, (complement - self.s * dx) / self.x, move


def _length(x: Tensor, dx: Tensor, s: Tensor, ds: Tensor) -> Tensor:
    """How far x and s may go before a number becomes negative, at most one step."""
    import torch

    most = torch.ones(len(x), dtype=x.dtype)
    for value, move in ((x, dx), (s, ds)):
        ratio = torch.where(move < 0, -value / move, torch.inf)
        most = torch.minimum(most, ratio.amin(1))
    return most[:, None]
