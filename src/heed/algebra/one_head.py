"""One attention head, fitted to outputs for subsets of units: the model of SLALOM.

Every unit has an importance s and a value v. The output for the units that are kept is a mean of
values, weighted by a softmax:

    F(S) = (c v_0 + Σ_{i in S} e^{s_i} v_i + Σ_{i not in S} b_i v_0) / D(S)
    D(S) =  c     + Σ_{i in S} e^{s_i}     + Σ_{i not in S} b_i

c is the weight of what is always there, and b_i that of what stands in for a removed unit. Neither
is fitted. Only differences between kept and removed units show in outputs, and a common factor of
all weights cancels: so weights have a unit, and a zero, that somebody must choose. v_0 is fitted:
it is the output without any unit.

Any ratio of two sums over units has this form, as long as its e^s come out positive. Outputs
determine 2d + 1 numbers of such a ratio, and these are s, v and v_0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from heed.algebra.ratios import Ratios

Units = Float[np.ndarray, "unit"]
Outputs = Float[np.ndarray, "sample"]
Keep = Bool[np.ndarray, "sample unit"]
Parameters = Float[np.ndarray, "parameter"]

_LEVELS = (0.0, 3.0, -3.0)  # importances to start from
_STEPS = 300  # of the optimiser, at most
_FARTHEST = 4.0  # the longest of its steps: e^s must not overflow on the way
_POLISH = 5  # steps after its end, at most
_STEEPEST = 1e-10  # the largest slope at which it ends, for outputs with a deviation of 1


@dataclass(frozen=True, eq=False)
class OneHead:
    """Importances and values of units, and the output that follows for every choice of units.

    importance   s, the logarithm of a kept unit's weight
    value        v
    empty        v_0, the output without units
    context      c, the weight of what is always there
    filler       b, the weight of what stands in for each removed unit
    """

    importance: Units
    value: Units
    empty: float
    context: float
    filler: Units

    def ratios(self) -> Ratios:
        """The same function, for exact LIME and exact Shapley values."""
        a = np.exp(self.importance)
        return Ratios(
            a=a[None],
            n=(a * self.value)[None],
            b=self.filler[None],
            m=(self.filler * self.empty)[None],
            c=np.array([self.context]),
            n_c=np.array([self.context * self.empty]),
            constant=0.0,
        )

    def __call__(self, keep: Keep) -> Outputs:
        a, moved = np.exp(self.importance), self.value - self.empty
        z = keep.astype(float)
        D = self.context + self.filler.sum() + z @ (a - self.filler)
        return np.asarray(self.empty + z @ (a * moved) / D)

    def shares(self) -> Units:
        """The attention of each unit in the whole document."""
        a = np.exp(self.importance)
        return np.asarray(a / (self.context + a.sum()))

    def scores(self) -> Units:
        """Attention in the whole document × how far the value is from the output without units.

        They add up to the change of F from no unit to all units.
        """
        return self.shares() * (self.value - self.empty)


def fit(keep: Keep, y: Outputs, context: float, filler: Units, ridge: float) -> OneHead:
    """The importances and values with the least squared error.

    ridge   the penalty on the squares of s and of v - v_0, in standard deviations of y. It decides
            where outputs do not: a unit that changes nothing has the importance 0 and the value
            v_0, and the importances of an additive output stay finite.
    """
    d = keep.shape[1]
    mean, spread = float(y.mean()), float(y.std())
    # an output that moves by rounding only leaves nothing to explain
    if np.ptp(y) <= 1e-12 * max(1.0, float(np.abs(y).max())):
        return OneHead(np.zeros(d), np.full(d, mean), mean, context, filler)
    # in standard deviations, so that the penalty and the end of the search mean the same everywhere
    scaled = (y - mean) / spread
    problem = Problem(keep.astype(float), scaled, context, filler, ridge / len(y))
    best = problem.solve()
    s, moved, empty = best[:d], spread * best[d:-1], mean + spread * float(best[-1])
    return OneHead(s, empty + moved, empty, context, filler)


@dataclass(frozen=True, eq=False)
class Problem:
    """Half the mean squared error of a head, with its penalty.

    The parameters are s, then v - v_0, then v_0.
    """

    z: Float[np.ndarray, "sample unit"]
    y: Outputs
    context: float
    filler: Units
    ridge: float

    def attention(self, s: Units) -> Float[np.ndarray, "sample unit"]:
        """The attention on each unit, in each sample."""
        a = np.exp(s)
        D = self.context + self.filler.sum() + self.z @ (a - self.filler)
        return np.asarray(self.z * a / D[:, None])

    def start(self) -> Parameters:
        """All importances alike, at the level that fits best of a few."""
        return min(map(self.alike, _LEVELS), key=self.loss)

    def alike(self, level: float) -> Parameters:
        """All importances at this level, with the values that fit best then: a linear problem."""
        n, d = self.z.shape
        A = np.column_stack([self.attention(np.full(d, level)), np.ones(n)])
        # two units that are always kept together share their value evenly
        penalty = np.diag(np.append(np.full(d, n * max(self.ridge, 1e-9)), 0.0))
        values = np.linalg.solve(A.T @ A + penalty, A.T @ self.y)
        return np.concatenate([np.full(d, level), values])

    def loss(self, parameters: Parameters) -> float:
        d = self.z.shape[1]
        rest = self.attention(parameters[:d]) @ parameters[d:-1] + parameters[-1] - self.y
        return float(rest @ rest / len(rest) + self.ridge * (parameters[:-1] @ parameters[:-1])) / 2

    def gradient(self, parameters: Parameters) -> Parameters:
        n, d = self.z.shape
        w = parameters[d:-1]
        A = self.attention(parameters[:d])
        moved = A @ w  # F - v_0
        rest = moved + parameters[-1] - self.y
        by_value = rest @ A
        # dF/ds_i = A_i (w_i - (F - v_0)): more attention pulls the output to the unit's value
        by_importance = w * by_value - (rest * moved) @ A
        slope = np.concatenate([by_importance, by_value, [rest.sum()]]) / n
        slope[:-1] += self.ridge * parameters[:-1]
        return slope

    def hessian(self, parameters: Parameters) -> Float[np.ndarray, "parameter parameter"]:
        n, d = self.z.shape
        w = parameters[d:-1]
        A = self.attention(parameters[:d])
        moved = A @ w
        rest = moved + parameters[-1] - self.y
        B = A * (w - moved[:, None])  # dF/ds
        J = np.column_stack([B, A, np.ones(n)])
        H = J.T @ J
        # the curvature of F, weighted by the residuals: dA_i/ds_j = A_i (δ_ij - A_j)
        weighted = A * rest[:, None]
        cross = weighted.T @ B
        H[:d, :d] += np.diag(rest @ B) - cross - cross.T
        mixed = np.diag(weighted.sum(0)) - weighted.T @ A
        H[:d, d:-1] += mixed
        H[d:-1, :d] += mixed
        H /= n
        H[np.arange(2 * d), np.arange(2 * d)] += self.ridge
        return H

    def solve(self) -> Parameters:
        """A minimum, by Newton steps within a region that is trusted.

        There may be several. On reviews, two starts end at losses that differ by 3e-4 of them.
        The curvature is exact, not that of Gauss and Newton: where one head does not fit well, it
        alone makes the last steps short enough to say the same after a rounding error.
        """
        from scipy.optimize import minimize

        options = {
            "gtol": _STEEPEST,
            "maxiter": _STEPS,
            "initial_trust_radius": 1.0,
            "max_trust_radius": _FARTHEST,
        }
        found = minimize(
            self.loss,
            self.start(),
            jac=self.gradient,
            hess=self.hessian,
            method="trust-exact",
            options=options,
        )
        return self._polished(np.asarray(found.x))

    def _polished(self, x: Parameters) -> Parameters:
        """A few more steps by the slope alone.

        The search compares losses, which near a minimum differ by less than their rounding. Slopes
        do not: they tell where the minimum is to many digits more.
        """
        slope = self.gradient(x)
        for _ in range(_POLISH):
            try:
                other = x - np.linalg.solve(self.hessian(x), slope)
            except np.linalg.LinAlgError:
                break
            after = self.gradient(other)
            if not np.abs(after).max() < np.abs(slope).max():
                break
            x, slope = other, after
        return x
