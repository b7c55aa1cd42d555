"""Explanations that read the attention of the row that classifies, in one layer or several."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from heed.errors import InputError
from heed.methods.explanation import UnitKind
from heed.methods.method import BatchMethod, Job, Measured, TokenMethod, layer_of
from heed.methods.sinks import SinkMethod, without
from heed.methods.units import units_of
from heed.models.classifier import ATTENTION, PROJECTED, Classifier
from heed.models.trace import Trace
from heed.settings import wrong
from heed.text import Tokens

Heads = Float[np.ndarray, "head key"]
Keys = Float[np.ndarray, "key"]


@dataclass(frozen=True)
class LayerSetting(TokenMethod):
    """A method that is about some layers.

    layers   "last", "all", or numbers such as "0,2,-1"
    """

    layers: str = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"last|all|-?\d+(\s*,\s*-?\d+)*", self.layers):
            allowed = "'last', 'all' or numbers such as '0,2,-1'"
            raise wrong("layers", allowed, self.layers, self.name)

    def layers_read(self) -> str:
        return self.layers

    def layer_numbers(self) -> list[int] | None:
        """The numbers of the layers as the setting has them, -1 for the last; None for all."""
        if self.layers == "all":
            return None
        return [-1] if self.layers == "last" else [int(n) for n in self.layers.split(",")]

    def layers_of(self, count: int) -> list[int]:
        """The layers to read of a model that has so many, each once."""
        numbers = self.layer_numbers()
        if numbers is None:
            return list(range(count))
        return sorted({layer_of(n, count) for n in numbers})


@dataclass(frozen=True)
class LayerMethod(LayerSetting, BatchMethod):
    """A method that reads some layers."""

    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION})
    signed: ClassVar[bool] = False

    @abstractmethod
    def read(self, model: Classifier, trace: Trace, tokens: Sequence[Tokens]) -> list[Measured]:
        """The scores of the documents of a trace."""

    def measure_batch(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        import torch

        tokens = [job.tokens for job in jobs]
        with torch.no_grad():
            trace = model.trace(tokens, layers=self.layer_numbers())
        return self.read(model, trace, tokens)


@dataclass(frozen=True)
class Attention(SinkMethod, LayerMethod):
    """Attention weights of the classifying row, reduced over layers and heads. No sign."""

    paper: ClassVar[str] = "bahdanau2015"

    @abstractmethod
    def reduce(self, layers: list[Heads]) -> Keys:
        """One weight per key."""

    def read(self, model: Classifier, trace: Trace, tokens: Sequence[Tokens]) -> list[Measured]:
        layers = [trace.classifying(i).astype(float) for i in self.layers_of(len(trace.attention))]
        results = []
        for row, t in enumerate(tokens):
            results.append(self._measured(model, [heads[row] for heads in layers], t))
        return results

    def _measured(self, model: Classifier, layers: list[Heads], tokens: Tokens) -> Measured:
        rows, n = self.reduce(layers), len(tokens)
        facts: dict[str, float] = {}
        sink = self.sink_in(rows, tokens, model)
        notes = [*self.notes_on(rows, sink, tokens, model)]
        if sink is not None:
            share = float(rows[sink] / rows.sum())
            rows = without(rows, sink)
            rows[sink] = facts["sink_attention"] = share
        padding = float(np.concatenate(layers)[:, n:].sum(1).mean())
        if padding:
            facts["padding_attention"] = padding
            notes.append(
                f"{padding:.0%} of the attention lies on padding, which this model does not mask."
            )
        rows = rows if padding else rows[:n]
        return Measured(rows=rows, facts=facts, notes=tuple(notes), sink=sink)


@dataclass(frozen=True)
class AttentionMean(Attention):
    name: ClassVar[str] = "attention-mean"
    summary: ClassVar[str] = "attention weights, mean over heads"

    def reduce(self, layers: list[Heads]) -> Keys:
        return np.concatenate(layers).mean(0)


@dataclass(frozen=True)
class AttentionMax(Attention):
    name: ClassVar[str] = "attention-max"
    summary: ClassVar[str] = "attention weights, maximum over heads"

    def reduce(self, layers: list[Heads]) -> Keys:
        return np.concatenate(layers).max(0)


@dataclass(frozen=True)
class AttentionHead(Attention):
    """Attention of one head.

    head     its number; in several layers, the mean of the heads with this number
    """

    name: ClassVar[str] = "attention-head"
    summary: ClassVar[str] = "attention weights of one head"

    head: int = 0

    def reduce(self, layers: list[Heads]) -> Keys:
        heads = min(len(layer) for layer in layers)
        if not 0 <= self.head < heads:
            raise InputError(f"There is no head {self.head}: the layer has heads 0 to {heads - 1}.")
        return np.mean([layer[self.head] for layer in layers], 0)


def heads(
    model: Classifier, documents: Sequence[Any], unit: UnitKind = "word"
) -> list[Float[np.ndarray, "head unit"]]:
    """For each document, attention of the classifying row in the last layer: heads × units."""
    import torch

    tokens = model.tokens(documents)

    def run(batch: list[int]) -> list[Float[np.ndarray, "head key"]]:
        with torch.no_grad():
            return list(model.trace([tokens[i] for i in batch], layers=[-1]).classifying())

    tables = []
    for t, rows in zip(tokens, model.each(tokens, run), strict=True):
        units, groups = units_of(t, unit)
        table = np.zeros((len(rows), len(units)))
        np.add.at(table.T, groups[groups >= 0], rows[:, : len(groups)].T[groups >= 0])
        tables.append(table)
    return tables


@dataclass(frozen=True)
class ValueNorm(LayerMethod):
    """Length of the vector that attention adds to the classifying row for a token.

    ‖Σ_heads a_ij v_j W_O‖₂, mean over layers. If all rows classify, the mean over rows. In the
    single-layer classifier the vector is added to the logits.
    """

    name: ClassVar[str] = "value-norm"
    summary: ClassVar[str] = "length of the vector that attention adds for each token"
    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, PROJECTED})
    paper: ClassVar[str] = "kobayashi2020"

    def read(self, model: Classifier, trace: Trace, tokens: Sequence[Tokens]) -> list[Measured]:
        layers = [self._norms(trace, i) for i in self.layers_of(len(trace.attention))]
        norms = np.mean(layers, 0)
        return [
            Measured(rows=n if n[len(t) :].any() else n[: len(t)])
            for n, t in zip(norms, tokens, strict=True)
        ]

    def _norms(self, trace: Trace, layer: int) -> Float[np.ndarray, "batch key"]:
        import torch

        # ‖Σ_h a_h u_h‖² = Σ_hg a_h a_g u_h·u_g: products of heads instead of a vector per pair of
        # tokens, which would not fit into memory
        weights = trace.classifying_rows(layer).double()
        values, projections = (
            part[layer].cpu().double() for part in (trace.values, trace.projections)
        )
        u = torch.einsum("bhkd,hdo->bkho", values, projections)
        products = u @ u.transpose(2, 3)
        by_head = torch.einsum("bhqk,bkhg->bgqk", weights, products) * weights
        # rounding may leave the square of a tiny norm below 0
        squares = by_head.sum(1, keepdim=True).clamp(min=0)
        return trace.pooled(squares.sqrt()).squeeze(1).numpy()
