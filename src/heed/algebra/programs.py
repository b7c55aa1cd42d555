"""Linear programs over the rows of attention that have the same output."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from heed.errors import NotApplicable
from heed.randomness import generator

_PATIENCE = 10.0  # seconds for a linear program, which takes milliseconds: some never end

Bounds = tuple[Float[np.ndarray, "_"] | float, Float[np.ndarray, "_"] | float]


class NotReached(NotApplicable):
    """The numbers of a problem do not allow an answer that keeps what must be kept."""


class Program:
    """Linear programs with the same constraints: over all x within bounds with A^T x within bounds.

    One solver serves all of them. Each program starts from the solution of the last one.
    """

    def __init__(
        self, A: Float[np.ndarray, "variable constraint"], variables: Bounds, constraints: Bounds
    ):
        import highspy

        n, r = A.shape
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = n, r
        lp.col_cost_ = np.zeros(n)
        lp.col_lower_, lp.col_upper_ = (np.broadcast_to(end, n).astype(float) for end in variables)
        lp.row_lower_, lp.row_upper_ = (
            np.broadcast_to(end, r).astype(float) for end in constraints
        )
        # a dense matrix in the sparse format of the solver: every column has all rows
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.arange(n + 1) * r
        lp.a_matrix_.index_ = np.tile(np.arange(r), n)
        lp.a_matrix_.value_ = np.ascontiguousarray(A).ravel()
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        self._n, self._optimal = n, highspy.HighsModelStatus.kOptimal
        # without presolve, so that a program can start from the solution of the last one
        self._set(
            output_flag=False,
            threads=1,
            presolve="off",
            simplex_iteration_limit=1000 + 10 * (n + r),
        )
        self._solver.passModel(lp)

    def _set(self, **options: bool | int | float | str) -> None:
        for option, value in options.items():
            self._solver.setOptionValue(option, value)

    def smallest(self, cost: Float[np.ndarray, "variable"]) -> Float[np.ndarray, "variable"]:
        """Where the cost is least."""
        self._solver.changeColsCost(
            self._n, np.arange(self._n, dtype=np.int32), np.ascontiguousarray(cost, float)
        )
        # First the primal simplex method (4): the last solution is a corner of this program, too.
        # Where that cycles or fails, the dual one (1), from scratch and with a looser tolerance.
        for strategy, tolerance in ((4, 1e-10), (1, 1e-9), (1, 1e-8)):
            self._set(primal_feasibility_tolerance=tolerance, dual_feasibility_tolerance=tolerance)
            self._set(simplex_strategy=strategy, time_limit=self._solver.getRunTime() + _PATIENCE)
            self._solver.run()
            if self._solver.getModelStatus() == self._optimal:
                return np.array(self._solver.getSolution().col_value)
            self._solver.clearSolver()
        raise NotReached(
            "A linear program over the class of a row has no answer that the solver can find."
        )


def ascend(
    smallest: Callable[[Float[np.ndarray, "cost"]], Row],
    cost: Float[np.ndarray, "cost"],
    away: Callable[[Row], Float[np.ndarray, "cost"]],
    rounds: int = 30,
) -> Row:
    """A point that is far away, found by climbing with linear programs.

    smallest   finds the point where a cost is least
    cost       the climb starts where this cost is least
    away       the vector from the origin of distances to a point; its sum of absolute values counts

    The sum of absolute values is convex. Maximising its linear approximation at a point never goes
    down, and stops at a local maximum.
    """
    point = smallest(cost)
    for _ in range(rounds):
        higher = smallest(-np.sign(away(point)))
        if np.abs(away(higher)).sum() <= np.abs(away(point)).sum() + 1e-9:
            break
        point = higher
    return point


def farthest(
    smallest: Callable[[Float[np.ndarray, "cost"]], Row],
    origin: Float[np.ndarray, "cost"],
    away: Callable[[Row], Float[np.ndarray, "cost"]],
    starts: int = 2,
) -> Row:
    """The farthest of the points that several climbs reach.

    The first starts where there is least overlap with the origin, the others at random costs. One
    start is not enough: at a uniform origin all points overlap alike, the first cost is flat, and
    the climb may end where it began.
    """
    rng = generator("farthest", len(origin))
    costs = [origin, *(rng.standard_normal(len(origin)) for _ in range(starts - 1))]
    reached = [ascend(smallest, cost, away) for cost in costs]
    return max(reached, key=lambda point: float(np.abs(away(point)).sum()))


def two_constraints(w: Float[np.ndarray, "key one"], row: Row) -> Float[np.ndarray, "key 2"]:
    """Smallest and largest x_i over all x ≥ 0 with the Σ x and the Σ w x of a row: a closed form.

    Let v be the mean of w under the row, and m and M the smallest and largest w of the other keys.
    The others must make up the rest of the mean. So x_i lies between the weights at which all the
    others would have to stand at M, or at m.
    """
    total = row.sum()
    if not w.shape[1] or total == 0:
        return np.stack([np.zeros_like(row), np.full_like(row, total)], 1)
    w = w[:, 0]
    # values that differ by less are equal: a quotient of such differences would be rounding
    near = 1e-12 * float(np.ptp(w))
    v, order = w @ row / total, np.argsort(w, kind="stable")
    # of the *other* keys: the key with the extreme value itself has the next one
    m, M = np.full(len(w), w[order[0]]), np.full(len(w), w[order[-1]])
    m[order[0]], M[order[-1]] = w[order[1]], w[order[-2]]
    high = np.ones_like(w)
    above, below = w - v > near, v - w > near
    high[above] = (v - m[above]) / (w - m)[above]
    high[below] = (M[below] - v) / (M - w)[below]
    low = np.zeros_like(w)
    # no other key reaches as far as the mean, so this one is needed
    only = v - M > near
    low[only] = (v - M[only]) / (w - M)[only]
    only = m - v > near
    low[only] = (m[only] - v) / (m - w)[only]
    return total * np.stack([np.clip(low, 0, 1), np.clip(high, 0, 1)], 1)
