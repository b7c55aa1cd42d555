"""The tensors that models pass around, named by what they hold."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

Ids = Int[Tensor, "batch token"]
Mask = Bool[Tensor, "batch token"]
Weights = Float[Tensor, "batch token"]
Embeddings = Float[Tensor, "batch token dim"]
Attention = Float[Tensor, "*variant batch head query key"]
Attended = tuple[Float[Tensor, "batch label"], Weights]  # logits, and attention
Rows = Int[Tensor, "batch"]  # the query row of each document
