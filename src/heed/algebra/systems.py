"""Systems Q^T diag(D) Q y = c for one Q and many D at once: made and factored in batches.

Also the shapes that all solvers of this folder share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:  # the module is imported where methods are listed
    from torch import Tensor

Row = Float[np.ndarray, "key"]  # weights of one row of attention
Rows = Float[np.ndarray, "row key"]
Basis = Float[np.ndarray, "key rank"]  # orthonormal columns

FEW_ROWS = 8  # below which rows are handled one by one: that is faster
_TABLE = 1 << 25  # numbers that the table of products of columns may hold


def grams(
    Q: Float[Tensor, "key rank"], rows: int
) -> Callable[[Float[Tensor, "row key"]], Float[Tensor, "row rank rank"]]:
    """The function D ↦ Q^T diag(D_i) Q, for about so many rows D_i at once."""
    import torch

    n, r = Q.shape
    if rows < FEW_ROWS or n * r * (r + 1) // 2 > _TABLE:
        return lambda D: (
            torch.stack([(Q * d[:, None]).T @ Q for d in D]) if len(D) else Q.new_empty(0, r, r)
        )
    # entry (i, j) is Σ_k D_k Q_ki Q_kj: with a table of the products of columns, all entries of all
    # rows are one matrix product
    i, j = torch.triu_indices(r, r)
    products = Q[:, i] * Q[:, j]
    column = torch.empty(r, r, dtype=torch.long)
    column[i, j] = column[j, i] = torch.arange(len(i))
    return lambda D: (D @ products)[:, column]


def factor(G: Float[Tensor, "row rank rank"]) -> Float[Tensor, "row rank rank"]:
    """Cholesky factors; a little is added to the diagonal of matrices that have lost their rank."""
    import torch

    size = G.diagonal(dim1=1, dim2=2).amax(1)[:, None]
    # as little as possible first; only the matrices that still fail get more
    for ridge in (1e-16, 1e-14, 1e-12, 1e-9):
        H = G + torch.diag_embed((ridge * size).expand(-1, G.shape[1]))
        L, bad = torch.linalg.cholesky_ex(H)
        if not bool(bad.any()):
            return L
        G = torch.where((bad > 0)[:, None, None], H, G)
    # no factor at all: any direction will do, since the caller checks what comes out
    return torch.where((bad > 0)[:, None, None], torch.eye(G.shape[1], dtype=G.dtype), L)
