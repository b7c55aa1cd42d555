"""What of an attention row its output determines: the algebra of null spaces, on the rows that are attention.

A row a ≥ 0 with Σ a = 1 multiplies T (one row for each key). Every a' with a'T = aT gives the same output, and those
among them that are attention too form a polytope, the class of a:

    [a] = { a' ≥ 0, Σ a' = 1, a'T = aT }

    effective         a minus its part in the null space of T         neither sums to one nor is it positive
    sum-preserving    a minus its part in the null space of [T, 1]    sums to one, may be negative
    efficient         the member of [a] with the least norm, or with the most entropy: always attention, and the same
                      for all members of the class, because it depends on a through aT alone

Efficient attention is defined here from the properties that Naim and Asher (2024) state of it. Weights may belong to
several sums, one for each head where heads are stacked. Everything is double precision, and every result is checked:
it is attention, and it has the output of the row that it stands for; a result that is not is an error. Where values are
of less precision, that is the output without the directions in which they are nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.errors import InputError, NotApplicable, UnknownName

if TYPE_CHECKING:  # the module is imported where methods are listed
    from torch import Tensor

Variant = Literal["norm", "entropy"]
VARIANTS: tuple[Variant, ...] = ("norm", "entropy")
_CLOSE = 1e-8  # of the largest value: how far the output of a result may be off
_SUMS, _BELOW = 1e-10, -1e-12
_SURE = 5e-19  # what half the square of a norm may have too much: then no weight is off by more than 1e-9
_LAST = 1e-14  # where nothing else is found: then none is off by more than 1.5e-7
_DOUBLE = float(np.finfo(float).eps)
_NARROW = 0.6  # of the rank: null spaces of fewer dimensions are searched themselves
_FEW_DIMENSIONS, _FEW_ROWS = 64, 8  # below which the exact method, row by row, is faster
_CHANGED = "The output would change by {:.1g} of the largest value: {}."
_LOOSE = "the tolerance {:.1g} drops directions that matter, choose a smaller one"
_BEYOND = "the numbers of this row are beyond what double precision allows"
_PATIENCE = 10.0  # seconds for a linear program, which takes milliseconds: some never end
_TABLE = 1 << 25  # numbers that the products of columns may take


def check_variant(variant: str) -> None:
    if variant not in VARIANTS:
        raise UnknownName("variant", str(variant), VARIANTS)


class NotReached(NotApplicable):
    """The numbers of a problem do not allow an answer that keeps what must be kept."""


class Efficient(NamedTuple):
    """Efficient attention of some rows, and how many of them took the slow, exact way."""

    rows: Float[np.ndarray, "row key"]
    fallbacks: int


@dataclass(frozen=True, eq=False)
class Space:
    """What rows of attention multiply, and what that determines of them.

    T           one row of values for each key
    group       the sum that each key's weight belongs to
    tolerance   directions in which T is smaller than so much of its norm count as none
    Q           orthonormal basis of the columns of [T, sums]: the first ones span the sums
    """

    T: Float[np.ndarray, "key value"]
    group: Int[np.ndarray, "key"]
    tolerance: float
    Q: Float[np.ndarray, "key rank"]

    @classmethod
    def of(
        cls,
        T: Float[np.ndarray, "key value"],
        group: Int[np.ndarray, "key"] | None = None,
        tolerance: float | None = None,
        precision: float = _DOUBLE,
    ) -> Space:
        """The space of some values; weights have one sum unless groups are given.

        The tolerance is by default what double precision allows: the larger side of T times the machine's epsilon. In
        values of less precision, directions below the square root of that side times their epsilon, which is what
        rounding adds up to, are left out of T.
        """
        T = np.asarray(T, dtype=float)
        if T.ndim != 2 or not len(T) or not np.isfinite(T).all():
            raise InputError("Values must be a table of finite numbers with a row for each key.")
        group = (
            np.zeros(len(T), dtype=np.int64)
            if group is None
            else np.unique(group, return_inverse=True)[1].ravel()
        )
        rounded = tolerance is None and precision > _DOUBLE
        if tolerance is None:
            tolerance = max(max(T.shape) * _DOUBLE, max(T.shape) ** 0.5 * precision)
        if not 0 <= tolerance < 1:
            raise InputError(
                f"A tolerance is a share of the largest singular value, below 1, got {tolerance}."
            )
        first, place, root = _distinct(
            np.column_stack([group, T])
        )  # so that equal keys are equal in Q, to the bit
        sums = root[:, None] * (group[first, None] == np.unique(group))
        sums /= np.linalg.norm(sums, axis=0)
        values = root[:, None] * T[first]
        apart = values
        for _ in range(2):  # what is left of the sums after the first time is rounding
            apart = apart - sums @ (sums.T @ apart)
        U, S, _ = np.linalg.svd(apart, full_matrices=False)
        U = U[:, tolerance * np.linalg.norm(values, 2) < S]
        Q = (np.linalg.qr(np.hstack([sums, U]))[0] / root[:, None])[place]
        if rounded:  # what is left is exact
            T, tolerance = Q @ (Q.T @ T), max(T.shape) * _DOUBLE
        return cls(T, group, float(tolerance), Q)

    @property
    def sums(self) -> int:
        return len(np.unique(self.group))

    @property
    def nullity(self) -> int:
        """The dimension of the null space of [T, sums]: how many ways there are to move a row and keep its output."""
        return len(self.T) - self.Q.shape[1]

    @cached_property
    def N(self) -> Float[np.ndarray, "key nullity"]:  # noqa: N802
        """Orthonormal basis of that null space."""
        return np.linalg.qr(self.Q, mode="complete")[0][:, self.Q.shape[1] :]

    @cached_property
    def _values(self) -> Float[np.ndarray, "key rank"]:
        """Orthonormal basis of the columns of T alone."""
        U, S, _ = np.linalg.svd(self.T, full_matrices=False)
        return U[:, self.tolerance * S[:1].max(initial=0.0) < S]

    @cached_property
    def _scale(self) -> float:
        """The largest value."""
        return float(np.abs(self.T).max(initial=0.0)) or 1.0

    @cached_property
    def _rest(self) -> Float[np.ndarray, "key value"]:
        """What the tolerance drops of T, as a share of the largest value."""
        return (self.T - self.Q @ (self.Q.T @ self.T)) / self._scale

    def _dropped(self, moved: Float[np.ndarray, "row key"]) -> float:
        """How far the output moves in directions that the tolerance drops."""
        return float(np.abs(moved @ self._rest).max(initial=0.0))

    # Projections

    def effective(self, rows: Float[np.ndarray, "row key"]) -> Float[np.ndarray, "row key"]:
        """Rows without their part in the null space of T: the same output, but not attention."""
        return self._kept(rows, (rows @ self._values) @ self._values.T, attention=False)

    def sum_preserving(self, rows: Float[np.ndarray, "row key"]) -> Float[np.ndarray, "row key"]:
        """Rows without their part in the null space of [T, sums]: the same output and sums, perhaps negative."""
        return self._kept(rows, (rows @ self.Q) @ self.Q.T, attention=False)

    # Efficient attention

    def efficient(self, rows: Float[np.ndarray, "row key"], variant: Variant = "norm") -> Efficient:
        """The member of each row's class with the least norm, or with the most entropy."""
        rows = self._attention(rows)
        if not self.nullity or not len(rows):
            return Efficient(rows, 0)
        found = self._least_norm(rows) if variant == "norm" else self._most_entropy(rows)
        return Efficient(self._kept(rows, found.rows), found.fallbacks)

    def _least_norm(self, rows: Float[np.ndarray, "row key"]) -> Efficient:
        """Equal keys get equal weights, so they are one key here: apart, they mislead the exact method."""
        inner, place, root = self._folded
        folded = (
            rows
            if inner is self
            else np.stack([np.bincount(place, row, len(root)) for row in rows]) / root
        )
        if not inner.nullity:
            return Efficient((folded / root)[:, place], 0)
        coordinates = rows @ self.Q
        found = coordinates @ inner.Q.T
        open_ = np.flatnonzero(found.min(1) < -1e-15)

        def fits(chosen: Int[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
            return self._fits(rows[chosen], (found[chosen] / root)[:, place])

        many = inner.nullity >= _FEW_DIMENSIONS and (
            len(open_) >= _FEW_ROWS or inner.nullity > 1000
        )
        if many:
            found[open_] = least_norm_batch(inner.Q, coordinates[open_])
            open_ = open_[~fits(open_)]
        doubts = np.zeros(len(rows))
        for i in open_:
            found[i], doubts[i] = inner._least_distance(folded[i], coordinates[i])
        if not many:
            doubtful = open_[~fits(open_) | ~(doubts[open_] < _SURE)]
            other = least_norm_batch(inner.Q, coordinates[doubtful])
            better = ~np.isnan(other).any(1)
            found[doubtful[better]], doubts[doubtful[better]] = other[better], 0.0
        found[~(doubts < _LAST)] = np.nan
        return Efficient((np.maximum(found, 0) / root)[:, place], len(open_) if many else 0)

    @cached_property
    def _folded(self) -> tuple[Space, Int[np.ndarray, "key"], Float[np.ndarray, "distinct"]]:
        """The space of distinct keys, the place of each key among them, and the roots of how many each stands for.

        √m times the weight of each of m equal keys is a coordinate there: that keeps norms, and Q orthonormal.
        """
        first, place, root = _distinct(np.round(self.Q, 13) + 0.0)
        if len(first) == len(self.Q):
            return self, place, root
        inner = Space(
            root[:, None] * self.T[first],
            self.group[first],
            self.tolerance,
            root[:, None] * self.Q[first],
        )
        return inner, place, root

    def _least_distance(
        self, row: Float[np.ndarray, "key"], coordinates: Float[np.ndarray, "rank"]
    ) -> tuple[Float[np.ndarray, "key"], float]:
        """The member of the row's class with the least norm, and how much more than that its norm can be (`excess`)."""
        x, mu = self.nearest(coordinates)
        if np.isnan(x).any():
            return x, np.inf
        x = self.polished(row, np.where(mu > 0, 0, x))
        lam, seen = self.Q.T @ (x - mu), x > 0
        # where x is positive it is Qλ: what is missing there is often, but not always, rounding
        nearer = lam + np.linalg.lstsq(self.Q[seen], x[seen] - self.Q[seen] @ lam, rcond=None)[0]
        return x, float(excess(np.stack([x, x]), np.stack([lam, nearer]) @ self.Q.T).min())

    def nearest(
        self, coordinates: Float[np.ndarray, "rank"]
    ) -> tuple[Float[np.ndarray, "key"], Float[np.ndarray, "key"]]:
        """The nearest point to the origin of { x = Qc + Nz ≥ 0 } by non-negative least squares (Lawson and Hanson).

        And its multipliers: μ ≥ 0 with z = N^T μ and, at the nearest point, μ·x = 0. NaN if there is no answer.
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
        return (
            (x - self.N @ (rest[:-1] / rest[-1]), -weights / rest[-1]) if rest[-1] else (lost, lost)
        )

    def _most_entropy(self, rows: Float[np.ndarray, "row key"]) -> Efficient:
        U = self.Q[:, self.sums :]
        masses = np.stack([rows[:, self.group == g].sum(1) for g in np.unique(self.group)], 1)
        found = most_entropy_batch(U, self.group, rows @ U, masses)
        open_ = np.flatnonzero(~(np.abs((found - rows) @ self.Q).max(1) < 1e-14))
        for i in open_:
            found[i] = self._most_entropy_inside(rows[i], found[i])
        return Efficient(found, len(open_))

    def _most_entropy_inside(
        self, row: Float[np.ndarray, "key"], near: Float[np.ndarray, "key"]
    ) -> Float[np.ndarray, "key"]:
        """The same for a row so peaked that its class lies at the boundary: from what was found, or from itself."""
        if near.min() > 0 and (found := self._most_entropy_from(near, row, 50)) is not None:
            return found
        start = row if row.min() > 0 else (row + self._widest(row)) / 2
        if (found := self._most_entropy_from(start, row, 500)) is not None:
            return found
        raise NotReached(
            "The attention of most entropy was not found: the row is too peaked, choose the least norm."
        )

    def _most_entropy_from(
        self, start: Float[np.ndarray, "key"], row: Float[np.ndarray, "key"], steps: int
    ) -> Float[np.ndarray, "key"] | None:
        """Newton's method within the class.

        A step is x (Qλ - log x) for the λ that fits log x best where x has its weight: it leaves the output as it is.
        When x has no divergence from exp(Qλ), which has the most entropy of all with its own output, what is missing of
        the row's output (rounding, or that of the start) is added, until it makes no difference.
        """
        seen, c = start > 0, self.Q.T @ row
        x, Q = start[seen], self.Q[seen]
        for _ in range(steps):
            x = np.maximum(x, 1e-280)
            missing = c - Q.T @ x
            with np.errstate(over="ignore", invalid="ignore"):
                growth, regain = _graded(Q, x, missing)
                divergence = float((x * (np.expm1(np.minimum(growth, 700)) - growth)).sum())
            if divergence < _SURE:
                off = float(np.abs(missing).max())
                if off < 2 * _DOUBLE or (off < _SUMS / 10 and np.abs(x * regain).max() < 5e-10):
                    found = np.zeros_like(row)
                    found[seen] = x
                    return found
                growth = regain
            vanishing = (growth < 0) & (x < 1e-16)  # would hold up all others
            length = min(1.0, 0.99 / max(float(-growth[~vanishing].min()), 1e-300))
            with np.errstate(over="ignore", invalid="ignore"):
                x = x * np.where(
                    vanishing, np.exp(np.clip(length * growth, -50, 0)), 1 + length * growth
                )
            if not np.isfinite(x).all():
                break
        return None

    def _widest(self, row: Float[np.ndarray, "key"]) -> Float[np.ndarray, "key"]:
        """A member of the row's class that has weight wherever any member has."""
        n = len(self.Q)
        # x = y + z with 0 ≤ y ≤ 1, z ≥ 0 and Q^T x = θ c for some θ ≥ 1: the more of y, the wider the support
        most = np.concatenate([np.ones(n), np.full(n + 1, np.inf)])
        least = np.append(np.zeros(2 * n), 1.0)
        program = Program(
            np.vstack([self.Q, self.Q, -(self.Q.T @ row)[None]]), (least, most), (0.0, 0.0)
        )
        found = program.smallest(np.concatenate([-np.ones(n), np.zeros(n + 1)]))
        return np.maximum(found[:n] + found[n : 2 * n], 0) / found[-1]

    # Intervals and adversaries

    def smallest(
        self, row: Float[np.ndarray, "key"]
    ) -> Callable[[Float[np.ndarray, "key"]], Float[np.ndarray, "key"]]:
        """The function that finds where in the class of a row a cost is least.

        Its members are x ≥ 0 with Q^T x = Q^T row, or x = row + Nz ≥ 0: what has fewer dimensions is solved sooner.
        """
        if self.nullity < _NARROW * self.Q.shape[1]:
            steps = Program(np.ascontiguousarray(self.N.T), (-np.inf, np.inf), (-row, np.inf))

            def found(cost: Float[np.ndarray, "key"]) -> Float[np.ndarray, "key"]:
                return row + self.N @ steps.smallest(cost @ self.N)
        else:
            output = self.Q.T @ row
            found = Program(self.Q, (0.0, np.inf), (output, output)).smallest

        def checked(cost: Float[np.ndarray, "key"]) -> Float[np.ndarray, "key"]:
            x = found(cost)
            if (off := self._dropped((x - row)[None])) > _CLOSE:
                raise NotReached(_CHANGED.format(off, _LOOSE.format(self.tolerance)))
            return x

        return checked

    def intervals(
        self, row: Float[np.ndarray, "key"], directions: Float[np.ndarray, "unit key"] | None = None
    ) -> Float[np.ndarray, "unit 2"]:
        """The smallest and largest value over the class of each weight, or of each sum of weights.

        Linear programs, except where one number is kept of each row, and nothing dropped: that has a closed form.
        """
        row = self._attention(row[None])[0]
        directions = np.eye(len(row)) if directions is None else np.asarray(directions, dtype=float)
        now = directions @ row
        if not self.nullity:
            return np.stack([now, now], 1)
        units = (directions.max(1) == 1) & (np.abs(directions).sum(1) == 1)
        whole = np.abs(self._rest).max(initial=0.0) <= _CLOSE
        if self.sums == 1 and self.Q.shape[1] <= 2 and units.all() and whole:
            found = _two_constraints(self.Q[:, 1:], row)[directions.argmax(1)]
        else:
            smallest = self.smallest(row)
            high = [(x, d @ x) for d in directions for x in [smallest(-d)]]
            least = directions @ np.stack([row, *(x for x, _ in high)]).T
            low = [
                0.0 if least[i].min() <= 1e-12 else d @ smallest(d)
                for i, d in enumerate(directions)
            ]
            found = np.stack([low, [most for _, most in high]], 1)
        low, high = np.clip(found.T, 0, None)
        return np.stack([np.minimum(low, now), np.maximum(high, now)], 1)

    def farthest(self, row: Float[np.ndarray, "key"]) -> Float[np.ndarray, "key"]:
        """A member of the class that is as far from the row as can be found, by total variation distance.

        From the member that overlaps least with the row, on to better ones as long as there are any.
        """
        row = self._attention(row[None])[0]
        if not self.nullity:
            return row
        found = ascend(self.smallest(row), row, lambda x: x - row)
        return self._kept(row[None], self.polished(row, found)[None])[0]

    def polished(
        self, row: Float[np.ndarray, "key"], near: Float[np.ndarray, "key"]
    ) -> Float[np.ndarray, "key"]:
        """A member of the row's class without the little that a solver leaves of errors.

        What is added is as small as can be, keeps the support and lies in the span of Q there, so that the least norm
        stays the least. Where that takes more from a weight than it has, a linear program finds what can be added.
        """
        if np.isnan(near).any():
            return near
        best, least = _on_support(self.Q, self.Q.T @ row, near)
        return best if least < _SUMS / 100 else self._corrected(row, best)

    def _corrected(
        self, row: Float[np.ndarray, "key"], near: Float[np.ndarray, "key"]
    ) -> Float[np.ndarray, "key"]:
        """A member of the row's class near a point that misses it by little: how little, is the program's unit."""
        n, found = len(row), near
        for _ in range(3):
            missed = self.Q.T @ (row - found)
            unit = float(np.abs(missed).max())
            if unit < 1e-15:
                break
            most = np.append(np.full(n, np.inf), found / unit)  # what is added, and what is taken
            program = Program(
                np.vstack([self.Q, -self.Q]), (0.0, most), (missed / unit, missed / unit)
            )
            try:
                moved = program.smallest(np.ones(2 * n))
            except NotReached:
                break
            found = np.maximum(found + unit * (moved[:n] - moved[n:]), 0)
        return found

    # Checks

    def _attention(self, rows: Float[np.ndarray, "row key"]) -> Float[np.ndarray, "row key"]:
        rows = np.asarray(rows, dtype=float)
        if rows.ndim != 2 or rows.shape[1] != len(self.T):
            raise InputError(
                f"A row of attention needs a weight for each of {len(self.T)} keys, got {rows.shape}."
            )
        if not np.isfinite(rows).all() or rows.min(initial=0.0) < 0:
            raise InputError("Attention cannot be negative, infinite or missing.")
        return rows

    def _errors(
        self, rows: Float[np.ndarray, "row key"], found: Float[np.ndarray, "row key"]
    ) -> tuple[Float[np.ndarray, "row"], Float[np.ndarray, "row"]]:
        """How far outputs are off, as a share of the largest value, and sums."""
        moved = found - rows
        sums = np.stack([moved[:, self.group == g].sum(1) for g in np.unique(self.group)], 1)
        return np.abs(moved @ self.T).max(1, initial=0.0) / self._scale, np.abs(sums).max(1)

    def _fits(
        self, rows: Float[np.ndarray, "row key"], found: Float[np.ndarray, "row key"]
    ) -> Bool[np.ndarray, "row"]:
        output, sums = self._errors(rows, found)
        with np.errstate(invalid="ignore"):
            return (output < _CLOSE) & (sums < _SUMS) & (found.min(1) >= _BELOW)

    def _kept(
        self,
        rows: Float[np.ndarray, "row key"],
        found: Float[np.ndarray, "row key"],
        attention: bool = True,
    ) -> Float[np.ndarray, "row key"]:
        """The result, if it has the output of the rows (and, as attention, their sums and no negative weight)."""
        output, sums = self._errors(rows, found)
        worst = float(output.max(initial=0.0))
        if np.isnan(worst):
            raise NotReached(f"No answer is certain: {_BEYOND}.")
        if not worst < _CLOSE:
            loose = self._dropped(found - rows) > _CLOSE / 10 or self._dropped(rows) > _CLOSE / 10
            raise NotReached(
                _CHANGED.format(worst, _LOOSE.format(self.tolerance) if loose else _BEYOND)
            )
        if attention and not (sums.max(initial=0.0) < _SUMS and found.min(initial=0.0) >= _BELOW):
            raise NotReached(
                f"The result is not attention (sums are off by {sums.max():.1g}, the smallest weight is "
                f"{found.min():.1g}): {_BEYOND}."
            )
        return found


def _distinct(
    rows: Float[np.ndarray, "key number"],
) -> tuple[Int[np.ndarray, "distinct"], Int[np.ndarray, "key"], Float[np.ndarray, "distinct"]]:
    """Where each distinct row comes first, the place of each row among them, and the roots of how often they come."""
    n, r = rows.shape
    if (
        len(np.unique((rows * np.cos(np.arange(r))).sum(1))) == n
    ):  # a quick look, which is nearly always enough
        return np.arange(n), np.arange(n), np.ones(n)
    _, first, place, counts = np.unique(
        rows, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return first, place.ravel(), np.sqrt(counts)


def _graded(
    Q: Float[np.ndarray, "key rank"],
    x: Float[np.ndarray, "key"],
    missing: Float[np.ndarray, "rank"],
) -> tuple[Float[np.ndarray, "key"], Float[np.ndarray, "key"]]:
    """Qλ - log x for the λ that fits best where x has its weight; and the relative change of x that adds `missing`.

    Rows are sorted and columns pivoted, so that weights of any size count.
    """
    from scipy.linalg import qr, solve_triangular

    root, log = np.sqrt(x), np.log(x)
    order = np.argsort(-root, kind="stable")
    left, R, pivots = qr(root[order, None] * Q[order], mode="economic", pivoting=True)
    rank = int(np.count_nonzero(np.diag(R)))
    left, R, pivots = left[:, :rank], R[:rank, :rank], pivots[:rank]
    regain = np.empty_like(x)
    regain[order] = left @ solve_triangular(R, missing[pivots], trans="T")
    return Q[:, pivots] @ solve_triangular(R, left.T @ (root * log)[order]) - log, regain / root


def _on_support(
    Q: Float[np.ndarray, "key rank"], c: Float[np.ndarray, "rank"], near: Float[np.ndarray, "key"]
) -> tuple[Float[np.ndarray, "key"], float]:
    """x ≥ 0 near a point, with its support and Q^T x = c, and how far it is off: what is added is in the span of Q."""
    found = np.maximum(near, 0)
    best, least = found, np.inf
    for _ in range(10):
        seen = found > 0
        found = found.copy()
        found[seen] += np.linalg.lstsq(Q[seen].T, c - Q.T @ found, rcond=None)[0]
        whole, found = found.min() >= 0, np.maximum(found, 0)
        off = float(np.abs(c - Q.T @ found).max())
        best, least = (found, off) if off < least else (best, least)
        if whole:
            break
    return best, least


def excess(
    x: Float[np.ndarray, "row key"], y: Float[np.ndarray, "row key"]
) -> Float[np.ndarray, "row"]:
    """How much ½|x|² can be above the least of all members of the class of x, at most, for any y in the span of Q.

    With y = Qλ no member has less than λ·Q^T x - ½|max(y, 0)|², the dual problem; written without differences.
    """
    return np.square(x - np.maximum(y, 0)).sum(1) / 2 + (x * np.maximum(-y, 0)).sum(1)


def ascend(
    smallest: Callable[[Float[np.ndarray, "cost"]], Float[np.ndarray, "key"]],
    cost: Float[np.ndarray, "cost"],
    away: Callable[[Float[np.ndarray, "key"]], Float[np.ndarray, "cost"]],
    rounds: int = 30,
) -> Float[np.ndarray, "key"]:
    """The farthest point that a climb by linear programs finds, from where the cost is least.

    `away` says where a point lies, seen from where distances (sums of absolute values) are counted from.
    """
    found = smallest(cost)
    for _ in range(rounds):
        other = smallest(-np.sign(away(found)))
        if np.abs(away(other)).sum() <= np.abs(away(found)).sum() + 1e-9:
            break
        found = other
    return found


def _two_constraints(
    w: Float[np.ndarray, "key one"], row: Float[np.ndarray, "key"]
) -> Float[np.ndarray, "key 2"]:
    """Intervals where Σ x and Σ w x are kept: the other keys must be able to make up the rest of the mean.

    With m and M the smallest and largest w of the other keys and v the mean, x_i lies between the weights at which
    the others would all have to stand at M or at m.
    """
    total = row.sum()
    if not w.shape[1] or total == 0:
        return np.stack([np.zeros_like(row), np.full_like(row, total)], 1)
    w = w[:, 0]
    near = 1e-12 * float(np.ptp(w))  # values that differ by less are equal
    v, order = w @ row / total, np.argsort(w, kind="stable")
    m, M = np.full(len(w), w[order[0]]), np.full(len(w), w[order[-1]])
    m[order[0]], M[order[-1]] = w[order[1]], w[order[-2]]
    high = np.ones_like(w)
    above, below = w - v > near, v - w > near
    high[above] = (v - m[above]) / (w - m)[above]
    high[below] = (M[below] - v) / (M - w)[below]
    low = np.zeros_like(w)
    only = v - M > near  # no other key reaches so far
    low[only] = (v - M[only]) / (w - M)[only]
    only = m - v > near
    low[only] = (m[only] - v) / (m - w)[only]
    return total * np.stack([np.clip(low, 0, 1), np.clip(high, 0, 1)], 1)


Bounds = tuple[Float[np.ndarray, "_"] | float, Float[np.ndarray, "_"] | float]


class Program:
    """Linear programs with the same constraints: one solver that starts from where the last program ended.

    Over all x within bounds for which A^T x is within bounds.
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
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.arange(n + 1) * r
        lp.a_matrix_.index_ = np.tile(np.arange(r), n)
        lp.a_matrix_.value_ = np.ascontiguousarray(A).ravel()
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        self._n, self._done = n, highspy.HighsModelStatus.kOptimal
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
        # primal, for where the last program ended is a corner of this one; where that goes round in circles, or fails,
        # dual, from scratch and less strictly
        for strategy, tolerance in ((4, 1e-10), (1, 1e-9), (1, 1e-8)):
            self._set(primal_feasibility_tolerance=tolerance, dual_feasibility_tolerance=tolerance)
            self._set(simplex_strategy=strategy, time_limit=self._solver.getRunTime() + _PATIENCE)
            self._solver.run()
            if self._solver.getModelStatus() == self._done:
                return np.array(self._solver.getSolution().col_value)
            self._solver.clearSolver()
        raise NotReached(
            "A linear program over the class of a row has no answer that the solver can find."
        )


def _grams(
    Q: Float[Tensor, "key rank"], rows: int
) -> Callable[[Float[Tensor, "row key"]], Float[Tensor, "row rank rank"]]:
    """The function D ↦ Q^T diag(D_i) Q for so many rows at once: if many, one product with the products of columns."""
    import torch

    n, r = Q.shape
    if rows < _FEW_ROWS or n * r * (r + 1) // 2 > _TABLE:
        return lambda D: (
            torch.stack([(Q * d[:, None]).T @ Q for d in D]) if len(D) else Q.new_empty(0, r, r)
        )
    i, j = torch.triu_indices(r, r)
    table = Q[:, i] * Q[:, j]
    place = torch.empty(r, r, dtype=torch.long)
    place[i, j] = place[j, i] = torch.arange(len(i))
    return lambda D: (D @ table)[:, place]


def _factor(G: Float[Tensor, "row rank rank"]) -> Float[Tensor, "row rank rank"]:
    """Cholesky factors, with a little added to the diagonal of matrices that have lost their rank."""
    import torch

    size = G.diagonal(dim1=1, dim2=2).amax(1)[:, None]
    for ridge in (1e-16, 1e-14, 1e-12, 1e-9):
        H = G + torch.diag_embed((ridge * size).expand(-1, G.shape[1]))
        L, bad = torch.linalg.cholesky_ex(H)
        if not bool(bad.any()):
            return L
        G = torch.where((bad > 0)[:, None, None], H, G)
    return torch.where((bad > 0)[:, None, None], torch.eye(G.shape[1], dtype=G.dtype), L)


def _clipped(
    basis: Float[Tensor, "key rank"],
    c: Float[Tensor, "row rank"],
    gram: Callable[[Float[Tensor, "row key"]], Float[Tensor, "row rank rank"]],
    steps: int = 8,
) -> Float[Tensor, "row key"]:
    """x = max(Qλ, 0) with Q^T x = c, where Newton's method on λ finds it in a few steps: for rows that are not peaked.

    Where it does not (what is missing grows, or too few keys are left to make up the output), rows are NaN.
    """
    import torch

    found = c.new_full((len(c), len(basis)), float("nan"))
    rows, lam, before = torch.arange(len(c)), c, c.new_full((len(c),), torch.inf)
    for _ in range(steps):
        x = (lam @ basis.T).clamp(min=0)
        off = c - x @ basis
        missing = off.abs().amax(1)
        done = missing < 1e-14
        found[rows[done]] = x[done]
        on = ~done & (missing < 0.9 * before) & ((x > 0).sum(1) >= basis.shape[1])
        rows, lam, c, x, off, before = (t[on] for t in (rows, lam, c, x, off, missing))
        if not len(rows):
            break
        L, bad = torch.linalg.cholesky_ex(gram((x > 0).to(x.dtype)))
        lam = lam + torch.cholesky_solve(off[:, :, None], L)[:, :, 0]
        rows, lam, c, before = (t[bad == 0] for t in (rows, lam, c, before))
    return found


def least_norm_batch(
    Q: Float[np.ndarray, "key rank"], coordinates: Float[np.ndarray, "row rank"], steps: int = 300
) -> Float[np.ndarray, "row key"]:
    """The points of least norm of { x ≥ 0, Q^T x = c } for many c: an interior-point method for all rows at once.

    Predictor and corrector of Mehrotra for x - Qλ - s = 0, Q^T x = c, x·s = 0, for the rows that Newton's method on
    x = max(Qλ, 0) does not find at once. Rows that are done leave the batch, and those that never are, are NaN.
    """
    import torch

    basis, whole = (
        torch.from_numpy(np.ascontiguousarray(Q)),
        torch.from_numpy(np.ascontiguousarray(coordinates)),
    )
    gram, n = _grams(basis, len(whole)), len(Q)
    found = _clipped(basis, whole, gram)
    rows = found.isnan().any(1).nonzero()[:, 0]
    c = whole[rows]
    x = torch.clamp(c @ basis.T, min=1 / n)
    s, lam = torch.ones_like(x), torch.zeros_like(c)
    for _ in range(steps):
        mu, y = (x * s).mean(1), lam @ basis.T
        off = c - x @ basis
        done = (mu < 1e-22) & (off.abs().amax(1) < 1e-13)
        done &= torch.from_numpy(excess(x.numpy(), y.numpy()) < _SURE)
        if bool(done.any()):
            found[rows[done]] = x[done]
            rows, x, s, lam, c, mu, y, off = (t[~done] for t in (rows, x, s, lam, c, mu, y, off))
        if not len(rows):
            break
        D = x / (x + s)
        state = _State(basis, D, _factor(gram(D)), y + s - x, off, x, s)
        dx, ds, _ = state.step(-x * s)
        a = _length(x, dx, s, ds)
        ahead = ((x + a * dx) * (s + a * ds)).mean(1)
        centre = (ahead / mu).clamp(0, 1) ** 3 * mu
        dx, ds, move = state.step(centre[:, None] - x * s - dx * ds)
        a = _length(x, dx, s, ds)
        short = a[:, 0] < 0.3
        if bool(short.any()):  # pulled to the middle instead, from where the way is free again
            calm = state.step(0.5 * mu[:, None] - x * s)
            dx, ds, move = (
                torch.where(short[:, None], c, d) for c, d in zip(calm, (dx, ds, move), strict=True)
            )
            a = _length(x, dx, s, ds)
        a = 0.9995 * a
        x, s, lam = x + a * dx, s + a * ds, lam + a * move
        broken = ~(x.isfinite().all(1) & s.isfinite().all(1))
        if bool(broken.any()):
            rows, x, s, lam, c = (t[~broken] for t in (rows, x, s, lam, c))
    done = (~found.isnan().any(1)).nonzero()[:, 0]
    found[done] = _settled(basis, whole[done], gram, found[done])
    return found.numpy()


def _settled(
    basis: Float[Tensor, "key rank"],
    c: Float[Tensor, "row rank"],
    gram: Callable[[Float[Tensor, "row key"]], Float[Tensor, "row rank rank"]],
    x: Float[Tensor, "row key"],
) -> Float[Tensor, "row key"]:
    """Rows without what is missing in Q^T x = c, which weights of keys that are nearly equal may hang on."""
    import torch

    seen = (x > 1e-13).to(x.dtype)
    right = torch.cholesky_solve((c - x @ basis)[:, :, None], _factor(gram(seen)))[:, :, 0]
    added = seen * (right @ basis.T)
    much = ~(added.abs().amax(1) < 1e-9)
    x = x + added.masked_fill(much[:, None], 0)
    for i in much.nonzero()[:, 0].tolist():  # few: where the system is nearly singular
        near = (x[i] * seen[i]).numpy()
        x[i] = torch.from_numpy(_on_support(basis.numpy(), c[i].numpy(), near)[0])
    return x


class _State(NamedTuple):
    """Where the method stands: the system of a step is factored once, and solved for several right sides.

    dual   what is missing in x = Qλ + s;  off   in Q^T x = c
    """

    basis: Tensor
    D: Tensor
    L: Tensor
    dual: Tensor
    off: Tensor
    x: Tensor
    s: Tensor

    def step(self, complement: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The direction of x, s and λ that changes x·s by so much."""
        import torch

        g = self.dual + complement / self.x
        right = self.off - (self.D * g) @ self.basis
        move = torch.cholesky_solve(right[:, :, None], self.L)[:, :, 0]
        dx = self.D * (move @ self.basis.T + g)
        return dx, (complement - self.s * dx) / self.x, move


def _length(x: Tensor, dx: Tensor, s: Tensor, ds: Tensor) -> Tensor:
    """How far both may go before one of them becomes negative, at most one step."""
    import torch

    most = torch.ones(len(x), dtype=x.dtype)
    for value, move in ((x, dx), (s, ds)):
        ratio = torch.where(move < 0, -value / move, torch.inf)
        most = torch.minimum(most, ratio.amin(1))
    return most[:, None]


def most_entropy_batch(
    U: Float[np.ndarray, "key rank"],
    group: Int[np.ndarray, "key"],
    target: Float[np.ndarray, "row rank"],
    masses: Float[np.ndarray, "row group"],
    steps: int = 200,
) -> Float[np.ndarray, "row key"]:
    """softmax(Uλ), in every group by itself, with U^T x = target, for many targets: damped Newton on the dual.

    Rows for which it is not found are NaN.
    """
    import torch

    basis, c = (
        torch.from_numpy(np.ascontiguousarray(U)),
        torch.from_numpy(np.ascontiguousarray(target)),
    )
    mass = torch.from_numpy(np.ascontiguousarray(masses))
    kinds = np.unique(group)
    members = [torch.from_numpy(np.flatnonzero(group == g)) for g in kinds]
    place = torch.from_numpy(np.searchsorted(kinds, group))
    gram = _grams(basis, len(c))

    def shares(lam: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
        """x, and the logarithm of what normalises it."""
        score = lam @ basis.T
        tops = torch.stack([score[:, m].logsumexp(1) for m in members], 1)
        return (score - tops[:, place]).exp() * mass[:, place], (tops * mass).sum(1)

    found = torch.full((len(c), len(U)), float("nan"), dtype=c.dtype)
    rows, lam = torch.arange(len(c)), torch.zeros_like(c)
    x, top = shares(lam, mass)
    for _ in range(steps):
        slope = x @ basis - c
        done = (
            slope.abs().amax(1, keepdim=False) < 1e-15
            if slope.shape[1]
            else torch.ones(len(x), dtype=torch.bool)
        )
        if bool(done.any()):
            found[rows[done]] = x[done]
            rows, lam, c, mass, x, top, slope = (
                t[~done] for t in (rows, lam, c, mass, x, top, slope)
            )
        if not len(rows):
            break
        means = torch.stack([x[:, m] @ basis[m] for m in members], 1)  # of each group
        H = gram(x) - torch.einsum(
            "bgr,bgs->brs", means / mass.clamp(min=1e-300)[:, :, None], means
        )
        move = -torch.cholesky_solve(slope[:, :, None], _factor(H))[:, :, 0]
        reach = (move @ basis.T).abs().amax(1)
        move = move * (20 / reach).clamp(max=1)[:, None]  # scores may change by so much in one step
        before, fall = top - (lam * c).sum(1), (slope * move).sum(1)
        size = torch.ones_like(before)
        for _ in range(40):
            trial = lam + size[:, None] * move
            x_new, top_new = shares(trial, mass)
            worse = top_new - (trial * c).sum(
                1
            ) > before + 1e-4 * size * fall + 1e-15 * before.abs().clamp(min=1)
            if not bool(worse.any()):
                break
            size = torch.where(worse, size / 2, size)
        better = (x_new @ basis - c).abs().amax(1) < slope.abs().amax(1)
        near = slope.abs().amax(1) < 1e-11
        stuck = near & ~better  # as far as rounding lets it go
        if bool(stuck.any()):
            found[rows[stuck]] = x[stuck]
        keep = ~stuck
        rows, c, mass, lam, x, top = (t[keep] for t in (rows, c, mass, trial, x_new, top_new))
    return found.numpy()
