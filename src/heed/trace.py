"""What one pass through a model showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

if TYPE_CHECKING:  # naming a tensor's type is no reason to load torch
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Trace:
    """What a batch of documents showed on its way through a model: one entry per layer where a field is a tuple.

    logits      the output; a leading `variant` axis appears when attention was replaced by several variants at once
    attention   weights as they were used, after any replacement
    values      what the weights multiply
    embeddings  a leaf of the graph (unless they were passed in): `torch.autograd.grad(logits, embeddings)` works
    tokens      True where a key is a token of the document, False where it is padding
    row         the query row that classifies each document; -1 where all its rows do, averaged

    Keys beyond a document's tokens carry no attention where the model masks padding, and do where it does not.
    """

    logits: Float[Tensor, "*variant batch label"]
    attention: tuple[Float[Tensor, "*variant batch head query key"], ...]
    values: tuple[Float[Tensor, "batch head key dim"], ...]
    embeddings: Float[Tensor, "batch token dim"]
    tokens: Bool[Tensor, "batch key"]
    row: Int[Tensor, "batch"]

    def classifying(self, layer: int = -1) -> Float[np.ndarray, "batch head key"]:
        """The attention of the row that classifies, in one layer (the last by default), of a trace without variants."""
        weights = self.attention[layer].detach()
        index = self.row.clamp(min=0).view(-1, 1, 1, 1).expand(-1, weights.shape[1], 1, weights.shape[3])
        one = weights.gather(2, index).squeeze(2)
        if bool((self.row < 0).any()):
            real = self.tokens[:, None, : weights.shape[2], None]
            mean = (weights * real).sum(2) / real.sum(2)
            one = mean.where((self.row < 0).view(-1, 1, 1), one)
        return one.cpu().numpy()
