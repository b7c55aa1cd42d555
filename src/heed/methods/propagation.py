"""Explanations that follow attention from the row that classifies through all layers down to the tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.errors import InputError, UnknownName
from heed.methods.method import Job, Measured, TokenMethod, check_at_least, check_output
from heed.models.classifier import (
    ATTENTION,
    BETWEEN,
    DIFFERENTIABLE,
    Classifier,
    Output,
    select_output,
)

_ONE = 2**30  # capacities are whole numbers of this part of 1; scipy wants them in 32 bits


@dataclass(frozen=True)
class AttentionGraph(TokenMethod):
    """Layers as weighted edges between tokens: the mean or maximum of the heads A, and a skip connection.

    Each layer is (1 - residual) A + residual I, with rows that sum to 1. Where all rows classify, each counts the same.
    """

    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, BETWEEN})
    signed: ClassVar[bool] = False
    paper: ClassVar[str] = "abnar2020"

    residual: float = 0.5
    heads: Literal["mean", "max"] = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, residual=0)
        if not self.residual < 1:
            raise InputError(
                f"The setting residual of {self.name} must be below 1, got {self.residual}."
            )
        if self.heads not in ("mean", "max"):
            raise UnknownName("way to combine heads", str(self.heads), ("mean", "max"))

    @abstractmethod
    def follow(
        self, start: Float[np.ndarray, "token"], layers: Sequence[Float[np.ndarray, "token token"]]
    ) -> Float[np.ndarray, "token"]:
        """What arrives at each token of what starts in the rows above the last layer."""

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        import torch

        found: list[Measured] = [Measured()] * len(jobs)
        for batch in model.batches([job.tokens for job in jobs]):
            with torch.no_grad():
                trace = model.trace([jobs[i].tokens for i in batch])
            for place, (i, start) in enumerate(zip(batch, trace.pooling(), strict=True)):
                real = slice(len(jobs[i].tokens))
                layers = [
                    self._edges(w[place, :, real, real].double().cpu().numpy())
                    for w in trace.attention
                ]
                found[i] = Measured(rows=self.follow(start[real], layers))
        return found

    def _edges(
        self, weights: Float[np.ndarray, "head query key"]
    ) -> Float[np.ndarray, "query key"]:
        together = weights.mean(0) if self.heads == "mean" else weights.max(0)
        mixed = (1 - self.residual) * together + self.residual * np.eye(len(together))
        return mixed / mixed.sum(1, keepdims=True)


@dataclass(frozen=True)
class Rollout(AttentionGraph):
    name: ClassVar[str] = "rollout"
    summary: ClassVar[str] = "attention multiplied through all layers"

    def follow(
        self, start: Float[np.ndarray, "token"], layers: Sequence[Float[np.ndarray, "token token"]]
    ) -> Float[np.ndarray, "token"]:
        for edges in reversed(layers):
            start = start @ edges
        return start


@dataclass(frozen=True)
class Flow(AttentionGraph):
    """The maximum flow to each token when edges are pipes of these widths; what starts is 1, so no token gets more.

    Widths are rounded down to multiples of 2^-30, which takes less than that from each edge of the narrowest cut.
    """

    name: ClassVar[str] = "flow"
    summary: ClassVar[str] = "maximum flow through the attention of all layers"
    longest: ClassVar[float] = 128

    def follow(
        self, start: Float[np.ndarray, "token"], layers: Sequence[Float[np.ndarray, "token token"]]
    ) -> Float[np.ndarray, "token"]:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow

        n = len(start)
        tokens = np.arange(n)
        top = np.where(
            start[:, None] > 0, layers[-1], 0
        )  # rows in which nothing starts would be dead ends
        width = np.concatenate(
            [start, top.ravel(), *(edges.ravel() for edges in reversed(layers[:-1]))]
        )
        width = np.floor(width * _ONE).astype(np.int32)
        above, below = (
            [np.zeros(n, dtype=int)],
            [1 + tokens],
        )  # node 0 is where all starts; then level by level
        for level in range(len(layers)):
            above.append(np.repeat(1 + level * n + tokens, n))
            below.append(np.tile(1 + (level + 1) * n + tokens, n))
        size = 1 + (len(layers) + 1) * n
        graph = csr_array(
            (width, (np.concatenate(below), np.concatenate(above))), shape=(size, size)
        )
        graph.eliminate_zeros()
        # as much flows from a token up to the start as the other way round, and that is found faster
        return np.array([maximum_flow(graph, size - n + j, 0).flow_value / _ONE for j in tokens])


@dataclass(frozen=True)
class AttentionGradient(TokenMethod):
    """Attention times its gradient, positive parts alone, mean over heads, collected through all layers.

    From R = I, each layer makes R + Ā R with Ā = mean over heads of max(0, ∇A ⊙ A); the scores are the classifying row
    of R - I (the mean of all rows where all classify). The gradient moves single weights, not whole rows, so even
    values that are the same for all tokens count.
    """

    name: ClassVar[str] = "attention-gradient"
    summary: ClassVar[str] = "attention times its gradient, positive parts, through all layers"
    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, DIFFERENTIABLE})
    signed: ClassVar[bool] = False
    paper: ClassVar[str] = "chefer2021"

    output: Output = "logit"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_output(self.output)

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        import torch

        found: list[Measured] = [Measured()] * len(jobs)
        for batch in model.batches([job.tokens for job in jobs]):
            with torch.enable_grad():
                trace = model.trace([jobs[i].tokens for i in batch])
                labels = torch.tensor([jobs[i].label for i in batch])
                total = select_output(trace.logits, labels, self.output, model.exclusive).sum()
                gradients = torch.autograd.grad(total, trace.attention)
            layers = [
                (weights.detach() * gradient).clamp(min=0).double().mean(1).cpu().numpy()
                for weights, gradient in zip(trace.attention, gradients, strict=True)
            ]
            for place, (i, start) in enumerate(zip(batch, trace.pooling(), strict=True)):
                wide = slice(model.width(jobs[i].tokens))
                row = start = start[wide]
                for a in reversed(layers):
                    row = row + row[: a.shape[1]] @ a[place, wide, wide]
                found[i] = Measured(rows=row - start)
        return found
