"""Methods that follow attention from the classifying row through all layers to the tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.methods.method import BatchMethod, Job, Measured, OutputMethod
from heed.methods.sinks import SinkMethod, without
from heed.models.classifier import (
    ATTENTION,
    BETWEEN,
    DIFFERENTIABLE,
    Classifier,
    select_output,
)
from heed.models.devices import as_numbers
from heed.settings import AtLeast, Below

_DEEP = 6  # layers of a causal model beyond which rollout ends at the first tokens
_ONE = 2**30  # how many units of capacity 1 is; scipy needs whole numbers of 32 bits

_FIRST_TOKENS = (
    "In deep causal models rollout gives nearly all weight to the first tokens that are left: do"
    " not read it as importance."
)

Mass = Float[np.ndarray, "token"]  # how much starts or arrives at each token
Edges = Float[np.ndarray, "query key"]  # of one layer


@dataclass(frozen=True)
class AttentionGraph(SinkMethod):
    """Attention as a graph: in each layer, weighted edges between tokens.

    residual   the share of the skip connection: a layer is (1 - residual) A + residual I
    heads      how the heads become one A: "mean" or "max"

    Rows sum to 1. If all rows classify, each counts the same.

    A sink s is taken out layer by layer, or nothing else would be left after many: before the skip
    connection is added, A_ij becomes A_ij Σ_k A_ik / Σ_{k≠s} A_ik for j ≠ s, and A_is becomes 0. A
    row with all its weight on the sink passes on what it has: A_i becomes e_i. Whether a token is a
    sink, and with which share, is told by the classifying row, mean over layers and heads. Other
    rows of a causal model see fewer tokens, so their mean favours the first in any case.
    """

    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, BETWEEN})
    signed: ClassVar[bool] = False
    paper: ClassVar[str] = "abnar2020"

    residual: Annotated[float, AtLeast(0), Below(1)] = 0.5
    heads: Annotated[Literal["mean", "max"], "way to combine heads"] = "mean"

    @abstractmethod
    def follow(self, start: Mass, layers: Sequence[Edges]) -> Mass:
        """What arrives at each token of what starts in the rows above the last layer."""

    def apart(self, rows: Mass, sink: int) -> Mass:
        """What is shown of the other tokens. The sink kept some, if its row classifies."""
        return rows

    def measure_batch(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        import torch

        with torch.no_grad():
            trace = model.trace([job.tokens for job in jobs])
        results = []
        for row, (job, start) in enumerate(zip(jobs, trace.pooling(), strict=True)):
            real = slice(len(job.tokens))
            weights = [as_numbers(w[row, :, real, real]) for w in trace.attention]
            seen = np.mean([start[real] @ w.mean(0) for w in weights], 0)
            sink = self.sink_in(seen, job.tokens, model)
            notes = self.notes_on(seen, sink, job.tokens, model)
            if notes:
                notes = (f"{notes[0]} The share is the classifying row's, mean over all layers.",)
            rows = self.follow(start[real], [self._edges(w, sink) for w in weights])
            caveats = self.caveats(model.causal, len(weights))
            if sink is None:
                results.append(Measured(rows=rows, notes=(*notes, *caveats)))
                continue
            share = float(seen[sink] / seen.sum())
            rows = self.apart(rows, sink)
            rows[sink] = share
            facts = {"sink_attention": share}
            notes = (*notes, *caveats)
            results.append(Measured(rows=rows, facts=facts, notes=notes, sink=sink))
        return results

    def layers_read(self) -> str:
        return "all"

    def caveats(self, causal: bool, layers: int) -> tuple[str, ...]:
        """What a reader should know of the method on such a model."""
        return ()

    def _edges(self, weights: Float[np.ndarray, "head query key"], sink: int | None) -> Edges:
        attention = weights.mean(0) if self.heads == "mean" else weights.max(0)
        if sink is not None:
            attention = _without_key(attention, sink)
        mixed = (1 - self.residual) * attention + self.residual * np.eye(len(attention))
        return mixed / mixed.sum(1, keepdims=True)


def _without_key(attention: Edges, sink: int) -> Edges:
    """Rows of the same sums without this key; those that have no other point to themselves."""
    sums = attention.sum(1, keepdims=True)
    rest = attention.copy()
    rest[:, sink] = 0
    left = rest.sum(1, keepdims=True)
    return np.where(left > 0, rest / np.where(left > 0, left, 1), np.eye(len(rest))) * sums


@dataclass(frozen=True)
class Rollout(AttentionGraph):
    name: ClassVar[str] = "rollout"
    summary: ClassVar[str] = "attention multiplied through all layers"

    def apart(self, rows: Mass, sink: int) -> Mass:
        return without(rows, sink)

    def caveats(self, causal: bool, layers: int) -> tuple[str, ...]:
        # every layer moves weight backwards, and none moves it forwards
        return (_FIRST_TOKENS,) if causal and layers > _DEEP else ()

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
class AttentionGradient(OutputMethod, BatchMethod):
    """Attention times its gradient, positive parts only, mean over heads, through all layers.

    From R = I, each layer makes R + Ā R with Ā = mean over heads of max(0, ∇A ⊙ A). The scores are
    the classifying row of R - I, or the mean of all rows if all classify. The gradient moves single
    weights, not whole rows, so even values that are the same for all tokens count.
    """

    name: ClassVar[str] = "attention-gradient"
    summary: ClassVar[str] = "positive part of attention times its gradient, through all layers"
    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, DIFFERENTIABLE})
    signed: ClassVar[bool] = False
    paper: ClassVar[str] = "chefer2021"

    def layers_read(self) -> str:
        return "all"

    def refusal(self, model: Classifier, documents: Sequence[Any]) -> str:
        # a model of one layer has nothing between layers; others must not withhold it
        between = {BETWEEN} if BETWEEN in model.withheld else set()
        return super().refusal(model, documents) or self.lacks(model, between)

    def measure_batch(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        import torch

        with torch.enable_grad():
            trace = model.trace([job.tokens for job in jobs])
            labels = torch.tensor([job.label for job in jobs])
            output = self.explained(model)
            total = select_output(trace.logits, labels, output, model.exclusive).sum()
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
