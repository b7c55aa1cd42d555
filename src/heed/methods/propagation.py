"""Methods that follow attention from the classifying row through all layers to the tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.methods.method import BatchMethod, Job, Measured
from heed.models.classifier import (
    ATTENTION,
    BETWEEN,
    DIFFERENTIABLE,
    Classifier,
    Output,
    select_output,
)
from heed.models.devices import as_numbers
from heed.settings import AtLeast, Below

_ONE = 2**30  # how many units of capacity 1 is; scipy needs whole numbers of 32 bits

Mass = Float[np.ndarray, "token"]  # how much starts or arrives at each token
Edges = Float[np.ndarray, "query key"]  # of one layer


@dataclass(frozen=True)
class AttentionGraph(BatchMethod):
    """Attention as a graph: in each layer, weighted edges between tokens.

    residual   the share of the skip connection: a layer is (1 - residual) A + residual I
    heads      how the heads become one A: "mean" or "max"

    Rows sum to 1. If all rows classify, each counts the same.
    """

    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, BETWEEN})
    signed: ClassVar[bool] = False
    paper: ClassVar[str] = "abnar2020"

    residual: Annotated[float, AtLeast(0), Below(1)] = 0.5
    heads: Annotated[Literal["mean", "max"], "way to combine heads"] = "mean"

    @abstractmethod
    def follow(self, start: Mass, layers: Sequence[Edges]) -> Mass:
        """What arrives at each token of what starts in the rows above the last layer."""

    def measure_batch(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        import torch

        with torch.no_grad():
            trace = model.trace([job.tokens for job in jobs])
        results = []
        for row, (job, start) in enumerate(zip(jobs, trace.pooling(), strict=True)):
            real = slice(len(job.tokens))
            weights = [as_numbers(w[row, :, real, real]) for w in trace.attention]
            layers = [self._edges(w) for w in weights]
            results.append(Measured(rows=self.follow(start[real], layers)))
        return results

    def _edges(self, weights: Float[np.ndarray, "head query key"]) -> Edges:
        attention = weights.mean(0) if self.heads == "mean" else weights.max(0)
        mixed = (1 - self.residual) * attention + self.residual * np.eye(len(attention))
        return mixed / mixed.sum(1, keepdims=True)


@dataclass(frozen=True)
class Rollout(AttentionGraph):
    name: ClassVar[str] = "rollout"
    summary: ClassVar[str] = "attention multiplied through all layers"

    def follow(self, start: Mass, layers: Sequence[Edges]) -> Mass:
        for edges in reversed(layers):
            start = start @ edges
        return start


@dataclass(frozen=True)
class Flow(AttentionGraph):
    """The maximum flow to each token if edges are pipes of these widths.

    The flow that starts is 1, so no token gets more.
    """

    name: ClassVar[str] = "flow"
    summary: ClassVar[str] = "maximum flow through the attention of all layers"
    longest: ClassVar[float] = 128

    def follow(self, start: Mass, layers: Sequence[Edges]) -> Mass:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow

        n = len(start)
        tokens = np.arange(n)
        # rows in which nothing starts would be dead ends
        top = np.where(start[:, None] > 0, layers[-1], 0)
        lower = [edges.ravel() for edges in reversed(layers[:-1])]
        # scipy needs whole numbers; rounding down takes at most 2^-30 from each edge
        width = np.floor(np.concatenate([start, top.ravel(), *lower]) * _ONE).astype(np.int32)
        # node 0 is where everything starts; then the tokens, level by level
        above, below = [np.zeros(n, dtype=int)], [1 + tokens]
        for level in range(len(layers)):
            above.append(np.repeat(1 + level * n + tokens, n))
            below.append(np.tile(1 + (level + 1) * n + tokens, n))
        size = 1 + (len(layers) + 1) * n
        ends = np.concatenate(below), np.concatenate(above)
        graph = csr_array((width, ends), shape=(size, size))
        graph.eliminate_zeros()
        # the flow from a token up to the start is the same as the way down, and found faster
        return np.array([maximum_flow(graph, size - n + j, 0).flow_value / _ONE for j in tokens])


@dataclass(frozen=True)
class AttentionGradient(BatchMethod):
    """Attention times its gradient, positive parts only, mean over heads, through all layers.

    From R = I, each layer makes R + Ā R with Ā = mean over heads of max(0, ∇A ⊙ A). The scores are
    the classifying row of R - I, or the mean of all rows if all classify. The gradient moves single
    weights, not whole rows, so even values that are the same for all tokens count.

    output   what the gradient is taken of: logit, log-odds or probability of the label
    """

    name: ClassVar[str] = "attention-gradient"
    summary: ClassVar[str] = "positive part of attention times its gradient, through all layers"
    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, DIFFERENTIABLE})
    signed: ClassVar[bool] = False
    paper: ClassVar[str] = "chefer2021"

    output: Output = "logit"

    def refusal(self, model: Classifier, documents: Sequence[Any]) -> str:
        # a model of one layer has nothing between layers; others must not withhold it
        between = {BETWEEN} if BETWEEN in model.withheld else set()
        return super().refusal(model, documents) or self.lacks(model, between)

    def measure_batch(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        import torch

        with torch.enable_grad():
            trace = model.trace([job.tokens for job in jobs])
            labels = torch.tensor([job.label for job in jobs])
            total = select_output(trace.logits, labels, self.output, model.exclusive).sum()
            gradients = torch.autograd.grad(total, trace.attention)
        layers = [
            np.maximum(as_numbers(weights) * as_numbers(gradient), 0).mean(1)
            for weights, gradient in zip(trace.attention, gradients, strict=True)
        ]
        results = []
        for row, (job, start) in enumerate(zip(jobs, trace.pooling(), strict=True)):
            wide = slice(model.width(job.tokens))
            relevance = start = start[wide]
            for a in reversed(layers):
                relevance = relevance + relevance[: a.shape[1]] @ a[row, wide, wide]
            results.append(Measured(rows=relevance - start))
        return results
