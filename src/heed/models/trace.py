"""What one pass through a model showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.models.devices import as_numbers, on_cpu

if TYPE_CHECKING:  # naming a tensor's type is no reason to load torch
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Trace:
    """What a batch of documents showed on its way through a model.

    Where a field is a tuple, it has one entry per layer.

    logits      the output; a leading `variant` axis appears when attention was replaced by several
                variants at once
    attention   weights as they were used, after any replacement (a transformer does not keep those
                of variants); empty in layers that were not asked for
    values      what the weights multiply
    projections what each head's sum of weighted values is multiplied by before the heads are added
                up; may be unknown
    embeddings  a leaf of the graph (unless they were passed in), so that
                `torch.autograd.grad(logits, embeddings)` works
    tokens      True where a key is a token of the document, False where it is padding
    row         the query row that classifies each document; -1 where all its rows do, averaged
    queries, keys   what the weights were made of, where the model shows them
    states      what each layer put out (its hidden states), where the model has layers and shows it

    Keys beyond a document's tokens carry no attention where the model masks padding, and do where
    it does not.

    `tokens` and `row` are on the CPU. All other tensors are where the model computed them, in its
    precision; logits are in single precision at least. What methods of a trace give is on the CPU.
    """

    logits: Float[Tensor, "*variant batch label"]
    attention: tuple[Float[Tensor, "*variant batch head query key"], ...]
    values: tuple[Float[Tensor, "batch head key dim"], ...]
    embeddings: Float[Tensor, "batch token dim"]
    tokens: Bool[Tensor, "batch key"]
    row: Int[Tensor, "batch"]
    projections: tuple[Float[Tensor, "head dim out"], ...] = ()
    queries: tuple[Float[Tensor, "batch head query dim"], ...] = ()
    keys: tuple[Float[Tensor, "batch group key dim"], ...] = ()
    states: tuple[Float[Tensor, "batch token dim"], ...] = ()

    def classifying_rows(self, layer: int = -1) -> Float[Tensor, "batch head query key"]:
        """The rows that classify, in the form that replaces them: one per document, or all."""
        weights = self.attention[layer].detach()
        if weights.shape[2] == 1 or bool((self.row < 0).any()):
            return on_cpu(weights)
        index = self.row.view(-1, 1, 1, 1).expand(-1, weights.shape[1], 1, weights.shape[3])
        return on_cpu(weights.gather(2, index.to(weights.device)))

    def classifying(self, layer: int = -1) -> Float[np.ndarray, "batch head key"]:
        """The attention of the row that classifies, in one layer, of a trace without variants."""
        return self.pooled(self.classifying_rows(layer)).numpy()

    def pooled(
        self, rows: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head key"]:
        """One row of each document: the mean over its tokens where there are several."""
        if rows.shape[2] == 1:
            return rows.squeeze(2)
        real = self.tokens[:, None, : rows.shape[2], None]
        return rows.masked_fill(~real, 0).sum(2) / real.sum(2)

    def pooling(self) -> Float[np.ndarray, "batch token"]:
        """How much each row counts: the one that classifies all, or all of them the same."""
        real = as_numbers(self.tokens)
        row = self.row.numpy()[:, None]
        return np.where(row < 0, real / real.sum(1, keepdims=True), np.arange(real.shape[1]) == row)
