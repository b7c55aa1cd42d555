"""An output as a sum of ratios of sums over units, for exact LIME and exact Shapley values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float


@dataclass(frozen=True, eq=False)
class Ratios:
    """One output as a function of the units that are kept: constant + Σ_heads N/D.

    A unit adds (a, n) to a head's D and N if it is kept, and (b, m) if it is removed. c and n_c are
    always there. D is positive, on a scale of each head's own. N includes the factor 1/K of the
    mean over K heads.
    """

    a: Float[np.ndarray, "head unit"]
    n: Float[np.ndarray, "head unit"]
    b: Float[np.ndarray, "head unit"]
    m: Float[np.ndarray, "head unit"]
    c: Float[np.ndarray, "head"]
    n_c: Float[np.ndarray, "head"]
    constant: float

    @property
    def units(self) -> int:
        return self.a.shape[1]

    def __sub__(self, other: Ratios) -> Ratios:
        """How much more than another output of the same document."""
        n, m, n_c = self.n - other.n, self.m - other.m, self.n_c - other.n_c
        return replace(self, n=n, m=m, n_c=n_c, constant=self.constant - other.constant)

    def __call__(self, keep: Bool[np.ndarray, "*sample unit"]) -> Float[np.ndarray, "*sample"]:
        """The output for these choices of units."""
        z = keep[..., None, :]
        D = self.c + np.where(z, self.a, self.b).sum(-1)
        return np.asarray(
            self.constant + ((self.n_c + np.where(z, self.n, self.m).sum(-1)) / D).sum(-1)
        )

    def whole(self) -> float:
        """The output of the document."""
        return float(self(np.ones(self.units, dtype=bool)))

    def empty(self) -> float:
        """The output when every unit is removed."""
        return float(self(np.zeros(self.units, dtype=bool)))
