"""How much of an attention row its output determines.

A row a ≥ 0 with Σ a = 1 multiplies T, which has one row of values for each key. Every a' with
a'T = aT gives the same output. Those among them that are attention, too, form the class of a:

    [a] = { a' ≥ 0, Σ a' = 1, a'T = aT }

    effective        a minus its part in the null space of T: may be negative, need not sum to one
    sum-preserving   a minus its part in the null space of [T, 1]: sums to one, may be negative
    efficient        the member of [a] with the least norm, or with the most entropy: always
                     attention, and the same for all members, since it depends on aT alone

Efficient attention is defined here from the properties that Naim and Asher (2024) state of it.
Weights may belong to several sums, one for each head where heads are stacked.

Everything is computed in double precision, and every result is checked: it must be attention, and
have the output of its row; else there is an error. If the values have less precision, the output is
compared without the directions in which they are only rounding.

The solvers are in `least_norm`, `entropy` and `programs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.algebra.entropy import most_entropy_batch, most_entropy_inside
from heed.algebra.least_norm import CERTAIN, SUMS, excess, least_norm_batch, on_support
from heed.algebra.programs import NotReached, Program, farthest, two_constraints
from heed.algebra.systems import FEW_ROWS, Basis, Row, Rows
from heed.errors import InputError

__all__ = ["VARIANTS", "Efficient", "NotReached", "Space", "Variant"]

Variant = Literal["norm", "entropy"]
VARIANTS: tuple[Variant, ...] = ("norm", "entropy")
_CLOSE = 1e-8  # how far the output of a result may be off, as a share of the largest value
_BELOW = -1e-12  # how far below zero rounding may leave a weight
_LAST_RESORT = 1e-14  # instead of CERTAIN where nothing better exists: no weight is off by 1.5e-7
_DOUBLE = float(np.finfo(float).eps)
_NARROW = 0.6  # of the rank: null spaces of fewer dimensions are searched themselves
_FEW_DIMENSIONS = 64  # below which the exact method, row by row, is faster
Keys = Int[np.ndarray, "key"]  # a number for each key
_CHANGED = "The output would change by {:.1g} of the largest value: {}."
_LOOSE = "the tolerance {:.1g} drops directions that matter, choose a smaller one"
_BEYOND = "the numbers of this row are beyond what double precision allows"


class Efficient(NamedTuple):
    """Efficient attention of rows, and how many of them needed the slow, exact method."""

    rows: Rows
    fallbacks: int


@dataclass(frozen=True, eq=False)
class Space:
    """What rows of attention multiply, and how much of a row that determines.

    T           one row of values for each key
    group       the sum that the weight of each key belongs to
    tolerance   directions in which T is smaller than this share of its norm count as zero
    Q           orthonormal basis of the columns of [T, sums]; its first columns span the sums
    """

    T: Float[np.ndarray, "key value"]
    group: Keys
    tolerance: float
    Q: Basis

    @classmethod
    def of(
        cls,
        T: Float[np.ndarray, "key value"],
        group: Keys | None = None,
        tolerance: float | None = None,
        precision: float = _DOUBLE,
    ) -> Space:
        """The space of values T; weights have one sum unless groups are given.

        The default tolerance is what double precision allows: the larger side of T times the
        machine epsilon. If the values have less precision, rounding errors add up to the square
        root of that side times their epsilon, and directions below that are left out of T.
        """
        T = np.asarray(T, dtype=float)
        if T.ndim != 2 or not len(T) or not np.isfinite(T).all():
            raise InputError("Values must be a table of finite numbers with a row for each key.")
        group = np.zeros(len(T), dtype=np.int64) if group is None else group
        group = np.unique(group, return_inverse=True)[1].ravel()
        rounded = tolerance is None and precision > _DOUBLE
        if tolerance is None:
            tolerance = max(max(T.shape) * _DOUBLE, max(T.shape) ** 0.5 * precision)
        if not 0 <= tolerance < 1:
            raise InputError(
                f"A tolerance is a share of the largest singular value, below 1, got {tolerance}."
            )
        # computed on distinct keys, so that equal keys are equal in Q to the bit; √m stands for m
        # equal keys, which keeps the columns orthonormal
        first, index, root = _distinct(np.column_stack([group, T]))
        sums = root[:, None] * (group[first, None] == np.unique(group))
        sums /= np.linalg.norm(sums, axis=0)
        values = root[:, None] * T[first]
        apart = values - sums @ (sums.T @ values)
        # once more, since rounding has left a little of the sums
        apart = apart - sums @ (sums.T @ apart)
        U, S, _ = np.linalg.svd(apart, full_matrices=False)
        U = U[:, tolerance * np.linalg.norm(values, 2) < S]
        Q = (np.linalg.qr(np.hstack([sums, U]))[0] / root[:, None])[index]
        if rounded:
            # without the rounding, the values are as exact as any others
            T, tolerance = Q @ (Q.T @ T), max(T.shape) * _DOUBLE
        return cls(T, group, float(tolerance), Q)

    @property
    def sums(self) -> int:
        return len(np.unique(self.group))

    @property
    def nullity(self) -> int:
        """The dimension of the null space of [T, sums]: in how many directions a row can move and
        keep its output."""
        return len(self.T) - self.Q.shape[1]

    @cached_property
    def N(self) -> Float[np.ndarray, "key nullity"]:  # noqa: N802
        """Orthonormal basis of that null space."""
        return np.linalg.qr(self.Q, mode="complete")[0][:, self.Q.shape[1] :]

    @cached_property
    def _values(self) -> Basis:
        """Orthonormal basis of the columns of T alone."""
        U, S, _ = np.linalg.svd(self.T, full_matrices=False)
        return U[:, self.tolerance * S[:1].max(initial=0.0) < S]

    @cached_property
    def _scale(self) -> float:
        """The largest value."""
        return float(np.abs(self.T).max(initial=0.0)) or 1.0

    @cached_property
    def _rest(self) -> Float[np.ndarray, "key value"]:
        """The part of T that the tolerance drops, as a share of the largest value."""
        return (self.T - self.Q @ (self.Q.T @ self.T)) / self._scale

    def _dropped(self, moved: Rows) -> float:
        """How far the output moves in directions that the tolerance drops."""
        return float(np.abs(moved @ self._rest).max(initial=0.0))

    # Projections

    def effective(self, rows: Rows) -> Rows:
        """Rows without their part in the null space of T: the same output, but not attention."""
        return self._kept(rows, (rows @ self._values) @ self._values.T, attention=False)

    def sum_preserving(self, rows: Rows) -> Rows:
        """Rows without their part in the null space of [T, sums]: same output and sums, but weights
        may be negative."""
        return self._kept(rows, (rows @ self.Q) @ self.Q.T, attention=False)

    # Efficient attention

    def efficient(self, rows: Rows, variant: Variant = "norm") -> Efficient:
        """The member of each row's class with the least norm, or with the most entropy."""
        rows = self._attention(rows)
        if not self.nullity or not len(rows):
            return Efficient(rows, 0)
        solved = self._least_norm(rows) if variant == "norm" else self._most_entropy(rows)
        return Efficient(self._kept(rows, solved.rows), solved.fallbacks)

    def _least_norm(self, rows: Rows) -> Efficient:
        """The members with the least norm.

        Equal keys get equal weights, so they are one key here: as several keys they would mislead
        the exact method.
        """
        inner, index, root = self._folded
        folded = rows
        if inner is not self:
            folded = np.stack([np.bincount(index, row, len(root)) for row in rows]) / root
        if not inner.nullity:
            return Efficient((folded / root)[:, index], 0)
        coordinates = rows @ self.Q
        # the least norm without x ≥ 0; where that has no negative weight, it is the answer
        points = coordinates @ inner.Q.T
        unsolved = np.flatnonzero(points.min(1) < -1e-15)

        def fits(which: Int[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
            return self._fits(rows[which], (points[which] / root)[:, index])

        many = len(unsolved) >= FEW_ROWS or inner.nullity > 1000
        batched = many and inner.nullity >= _FEW_DIMENSIONS
        if batched:
            points[unsolved] = least_norm_batch(inner.Q, coordinates[unsolved])
            unsolved = unsolved[~fits(unsolved)]
        doubts = np.zeros(len(rows))
        for i in unsolved:
            points[i], doubts[i] = inner._least_distance(folded[i], coordinates[i])
        if not batched:
            # where the exact method is not certain, the other one may be
            doubtful = unsolved[~fits(unsolved) | ~(doubts[unsolved] < CERTAIN)]
            again = least_norm_batch(inner.Q, coordinates[doubtful])
            solved = ~np.isnan(again).any(1)
            points[doubtful[solved]], doubts[doubtful[solved]] = again[solved], 0.0
        points[~(doubts < _LAST_RESORT)] = np.nan
        fallbacks = len(unsolved) if batched else 0
        return Efficient((np.maximum(points, 0) / root)[:, index], fallbacks)

    @cached_property
    def _folded(self) -> tuple[Space, Keys, Float[np.ndarray, "distinct"]]:
        """The space of distinct keys, the index of each key among them, and the root of how many
        keys each of them stands for.

        There, m equal keys with weight x have one coordinate √m x: that keeps norms, and keeps Q
        orthonormal.
        """
        # adding 0 turns -0 into 0: they are equal, but their bytes are not
        first, index, root = _distinct(np.round(self.Q, 13) + 0.0)
        if len(first) == len(self.Q):
            return self, index, root
        T, Q = (root[:, None] * table[first] for table in (self.T, self.Q))
        return Space(T, self.group[first], self.tolerance, Q), index, root

    def _least_distance(
        self, row: Row, coordinates: Float[np.ndarray, "rank"]
    ) -> tuple[Row, float]:
        """The member of the row's class with the least norm, and a bound on how far its norm lies
        above the least (`excess`)."""
        x, mu = self.nearest(coordinates)
        if np.isnan(x).any():
            return x, np.inf
        x = self.polished(row, np.where(mu > 0, 0, x))
        lam, positive = self.Q.T @ (x - mu), x > 0
        # Where x is positive it should be Qλ. What is missing there is often, but not always,
        # rounding, so the bound is taken with both: any λ gives a valid one.
        Q = self.Q[positive]
        nearer = lam + np.linalg.lstsq(Q, x[positive] - Q @ lam, rcond=None)[0]
        return x, float(excess(np.stack([x, x]), np.stack([lam, nearer]) @ self.Q.T).min())

    def nearest(self, coordinates: Float[np.ndarray, "rank"]) -> tuple[Row, Row]:
        """The point of { x = Qc + Nz ≥ 0 } nearest to the origin, and its multipliers μ.

        μ ≥ 0, z = N^T μ and, at the nearest point, μ·x = 0. NaN if there is no answer. The method
        is least distance programming by non-negative least squares (Lawson and Hanson).
        """
        from scipy.optimize import nnls

        x = self.Q @ coordinates
        system = np.vstack([self.N.T, -x])
        target = np.zeros(len(system))
        target[-1] = 1
        lost = np.full_like(x, np.nan)
        try:
            weights, _ = nnls(system, target, maxiter=30 * len(x))
        except RuntimeError:  # too many steps
            return lost, lost
        rest = system @ weights - target
        if not rest[-1]:
            return lost, lost
        return x - self.N @ (rest[:-1] / rest[-1]), -weights / rest[-1]

    def _most_entropy(self, rows: Rows) -> Efficient:
        U = self.Q[:, self.sums :]
        points = most_entropy_batch(U, self.group, rows @ U, self._sums_of(rows))
        unsolved = np.flatnonzero(~(np.abs((points - rows) @ self.Q).max(1) < 1e-14))
        for i in unsolved:
            points[i] = most_entropy_inside(self.Q, rows[i], points[i])
        return Efficient(points, len(unsolved))

    # Intervals and adversaries

    def smallest(self, row: Row) -> Callable[[Row], Row]:
        """The function that finds the member of a row's class with the least cost."""
        # members are x ≥ 0 with Q^T x = Q^T row, or x = row + Nz ≥ 0: fewer dimensions are faster
        if self.nullity < _NARROW * self.Q.shape[1]:
            steps = Program(np.ascontiguousarray(self.N.T), (-np.inf, np.inf), (-row, np.inf))

            def cheapest(cost: Row) -> Row:
                return row + self.N @ steps.smallest(cost @ self.N)
        else:
            output = self.Q.T @ row
            cheapest = Program(self.Q, (0.0, np.inf), (output, output)).smallest

        def checked(cost: Row) -> Row:
            x = cheapest(cost)
            if (off := self._dropped((x - row)[None])) > _CLOSE:
                raise NotReached(_CHANGED.format(off, _LOOSE.format(self.tolerance)))
            return x

        return checked

    def intervals(
        self, row: Row, directions: Float[np.ndarray, "unit key"] | None = None
    ) -> Float[np.ndarray, "unit 2"]:
        """The smallest and largest value of each weight over the class, or of each sum of weights.

        By linear programs. If a single number of each row is kept, and nothing is dropped, there is
        a closed form.
        """
        row, directions = self._measured(row, directions)
        now = directions @ row
        if not self.nullity:
            return np.stack([now, now], 1)
        bounds = self._closed_form(row, directions)
        if bounds is None:
            smallest = self.smallest(row)
            highest = [smallest(-d) for d in directions]
            # A weight that is 0 in a known member needs no program to find its smallest value. All
            # members that the first programs found are known.
            least = (directions @ np.stack([row, *highest]).T).min(1)
            low = [0.0 if least[i] <= 1e-12 else d @ smallest(d) for i, d in enumerate(directions)]
            high = [d @ x for d, x in zip(directions, highest, strict=True)]
            bounds = np.stack([low, high], 1)
        low, high = np.clip(bounds.T, 0, None)
        # the row itself is a member, whatever a solver's tolerance says
        return np.stack([np.minimum(low, now), np.maximum(high, now)], 1)

    def highest(
        self, row: Row, directions: Float[np.ndarray, "unit key"] | None = None
    ) -> Float[np.ndarray, "unit"]:
        """The upper ends of `intervals` alone, for half of the linear programs or less."""
        row, directions = self._measured(row, directions)
        now = directions @ row
        if not self.nullity:
            return now
        bounds = self._closed_form(row, directions)
        if bounds is None:
            smallest = self.smallest(row)
            high = np.array([d @ smallest(-d) for d in directions])
        else:
            high = bounds[:, 1]
        return np.maximum(high, now)

    def _measured(
        self, row: Row, directions: Float[np.ndarray, "unit key"] | None
    ) -> tuple[Row, Float[np.ndarray, "unit key"]]:
        """A row that is attention, and the sums of its weights that are asked for."""
        row = self._attention(row[None])[0]
        return row, np.eye(len(row)) if directions is None else np.asarray(directions, dtype=float)

    def _closed_form(
        self, row: Row, directions: Float[np.ndarray, "unit key"]
    ) -> Float[np.ndarray, "unit 2"] | None:
        """The intervals of single weights, if a single number of each row is kept."""
        units = (directions.max(1) == 1) & (np.abs(directions).sum(1) == 1)
        whole = np.abs(self._rest).max(initial=0.0) <= _CLOSE
        if self.sums == 1 and self.Q.shape[1] <= 2 and units.all() and whole:
            return two_constraints(self.Q[:, 1:], row)[directions.argmax(1)]
        return None

    def member(self, row: Row, cost: Row) -> Row:
        """The member of the row's class at which the cost is least."""
        row = self._attention(row[None])[0]
        return self._member(row, self.smallest(row)(cost)) if self.nullity else row

    def farthest(self, row: Row, starts: int = 2) -> Row:
        """A member of the class far from the row, by total variation distance.

        The search climbs from the member that overlaps least with the row, and from others.
        """
        row = self._attention(row[None])[0]
        if not self.nullity:
            return row
        return self._member(row, farthest(self.smallest(row), row, lambda x: x - row, starts))

    def _member(self, row: Row, near: Row) -> Row:
        """The member next to what a solver found, checked."""
        return self._kept(row[None], self.polished(row, near)[None])[0]

    def polished(self, row: Row, near: Row) -> Row:
        """The member of the row's class next to a point that a solver left slightly outside.

        What is added is as small as can be, keeps the support and lies in the span of Q there, so
        that a least norm stays the least. Where that would take more from a weight than it has, a
        linear program finds what to add.
        """
        if np.isnan(near).any():
            return near
        best, least = on_support(self.Q, self.Q.T @ row, near)
        return best if least < SUMS / 100 else self._corrected(row, best)

    def _corrected(self, row: Row, near: Row) -> Row:
        """A member of the row's class near a point that misses it by little."""
        n, x = len(row), near
        for _ in range(3):
            missed = self.Q.T @ (row - x)
            # what is missing is the unit of the program: a solver's tolerance is absolute
            unit = float(np.abs(missed).max())
            if unit < 1e-15:
                break
            most = np.append(np.full(n, np.inf), x / unit)  # what is added, and what is taken
            wanted = missed / unit
            program = Program(np.vstack([self.Q, -self.Q]), (0.0, most), (wanted, wanted))
            try:
                moved = program.smallest(np.ones(2 * n))
            except NotReached:
                break
            x = np.maximum(x + unit * (moved[:n] - moved[n:]), 0)
        return x

    # Checks

    def _attention(self, rows: Rows) -> Rows:
        rows = np.asarray(rows, dtype=float)
        if rows.ndim != 2 or rows.shape[1] != len(self.T):
            raise InputError(
                f"A row of attention needs a weight for each of {len(self.T)} keys, "
                f"got {rows.shape}."
            )
        if not np.isfinite(rows).all() or rows.min(initial=0.0) < 0:
            raise InputError("Attention cannot be negative, infinite or missing.")
        return rows

    def _sums_of(self, rows: Rows) -> Float[np.ndarray, "row group"]:
        return np.stack([rows[:, self.group == g].sum(1) for g in np.unique(self.group)], 1)

    def _errors(
        self, rows: Rows, results: Rows
    ) -> tuple[Float[np.ndarray, "row"], Float[np.ndarray, "row"]]:
        """How far the outputs (as a share of the largest value) and the sums of results are off."""
        moved = results - rows
        outputs = np.abs(moved @ self.T).max(1, initial=0.0) / self._scale
        return outputs, np.abs(self._sums_of(moved)).max(1)

    def _fits(self, rows: Rows, results: Rows) -> Bool[np.ndarray, "row"]:
        output, sums = self._errors(rows, results)
        with np.errstate(invalid="ignore"):
            return (output < _CLOSE) & (sums < SUMS) & (results.min(1) >= _BELOW)

    def _kept(self, rows: Rows, results: Rows, attention: bool = True) -> Rows:
        """The results, if they have the output of the rows; as attention, also the sums of the rows
        and no negative weight."""
        output, sums = self._errors(rows, results)
        worst = float(output.max(initial=0.0))
        if np.isnan(worst):
            raise NotReached(f"No answer is certain: {_BEYOND}.")
        if not worst < _CLOSE:
            dropped = max(self._dropped(results - rows), self._dropped(rows))
            loose = dropped > _CLOSE / 10
            reason = _LOOSE.format(self.tolerance) if loose else _BEYOND
            raise NotReached(_CHANGED.format(worst, reason))
        if attention and not (sums.max(initial=0.0) < SUMS and results.min(initial=0.0) >= _BELOW):
            raise NotReached(
                f"The result is not attention (sums are off by {sums.max():.1g}, "
                f"the smallest weight is {results.min():.1g}): {_BEYOND}."
            )
        return results


def _distinct(
    rows: Float[np.ndarray, "key number"],
) -> tuple[Int[np.ndarray, "distinct"], Int[np.ndarray, "key"], Float[np.ndarray, "distinct"]]:
    """Where each distinct row comes first, the index of each row among the distinct ones, and the
    root of how often each occurs."""
    n, r = rows.shape
    # If a sum with uneven weights tells all rows apart, they are distinct. It nearly always does,
    # and is much faster than sorting rows.
    if len(np.unique((rows * np.cos(np.arange(r))).sum(1))) == n:
        return np.arange(n), np.arange(n), np.ones(n)
    _, first, index, counts = np.unique(
        rows, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return first, index.ravel(), np.sqrt(counts)
