"""Explanations that read the attention of the row that classifies, in one layer or several."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from heed.errors import InputError
from heed.methods.method import Job, Measured, TokenMethod, units_of
from heed.methods.signatures import signature
from heed.models.classifier import ATTENTION, CLOSED, PROJECTED, Classifier
from heed.models.trace import Trace
from heed.text import Tokens


@dataclass(frozen=True)
class LayerMethod(TokenMethod):
    """A method that looks at some layers: the "last", "all", or those with these numbers, as in "0,2,-1"."""

    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION})
    signed: ClassVar[bool] = False

    layers: str = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.layers, str) or not re.fullmatch(
            r"last|all|-?\d+(\s*,\s*-?\d+)*", self.layers
        ):
            wanted = "'last', 'all' or numbers such as '0,2,-1'"
            raise InputError(
                f"The setting layers of {self.name} must be {wanted}, got {self.layers!r}."
            )

    def wanted(self) -> list[int] | None:
        """The layers as they were asked for, -1 for the last; None for all."""
        if self.layers == "all":
            return None
        return [-1] if self.layers == "last" else [int(n) for n in self.layers.split(",")]

    def chosen(self, count: int) -> list[int]:
        """The layers of a model that has so many, each once."""
        numbers = self.wanted()
        if numbers is None:
            return list(range(count))
        for n in numbers:
            if not -count <= n < count:
                raise InputError(f"There is no layer {n}: the model has layers 0 to {count - 1}.")
        return sorted({n % count for n in numbers})

    @abstractmethod
    def read(self, trace: Trace, tokens: Sequence[Tokens]) -> list[Measured]:
        """The scores of the documents of a trace."""

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        import torch

        found: list[Measured] = [Measured()] * len(jobs)
        for batch in model.batches([job.tokens for job in jobs]):
            tokens = [jobs[i].tokens for i in batch]
            with torch.no_grad():
                trace = model.trace(tokens, layers=self.wanted())
            for i, measured in zip(batch, self.read(trace, tokens), strict=True):
                found[i] = measured
        return found


@dataclass(frozen=True)
class Attention(LayerMethod):
    """Weights of the classifying row, reduced over layers and heads; they have no sign."""

    paper: ClassVar[str] = "bahdanau2015"

    @abstractmethod
    def reduce(self, layers: list[Float[np.ndarray, "head key"]]) -> Float[np.ndarray, "key"]:
        """One weight per key."""

    def read(self, trace: Trace, tokens: Sequence[Tokens]) -> list[Measured]:
        layers = [trace.classifying(i).astype(float) for i in self.chosen(len(trace.attention))]
        return [
            self._measured([heads[place] for heads in layers], len(t))
            for place, t in enumerate(tokens)
        ]

    def _measured(self, layers: list[Float[np.ndarray, "head key"]], tokens: int) -> Measured:
        padding = float(np.concatenate(layers)[:, tokens:].sum(1).mean())
        if padding == 0:
            return Measured(rows=self.reduce(layers)[:tokens])
        note = f"{padding:.0%} of the attention lies on padding, which this model does not mask."
        return Measured(
            rows=self.reduce(layers), facts={"padding_attention": padding}, notes=(note,)
        )


@dataclass(frozen=True)
class AttentionMean(Attention):
    name: ClassVar[str] = "attention-mean"
    summary: ClassVar[str] = "attention of the classifying row, mean over heads and layers"

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        found = super().measure(model, jobs)
        if CLOSED not in model.offers:
            return found
        shown = [signature(model, job.tokens, job.label, heads=False) for job in jobs]
        return [
            replace(
                m,
                notes=(
                    *m.notes,
                    *(note for note in (s.final_layer_note(), s.like_unk_note()) if note),
                ),
            )
            for m, s in zip(found, shown, strict=True)
        ]

    def reduce(self, layers: list[Float[np.ndarray, "head key"]]) -> Float[np.ndarray, "key"]:
        return np.concatenate(layers).mean(0)


@dataclass(frozen=True)
class AttentionMax(Attention):
    name: ClassVar[str] = "attention-max"
    summary: ClassVar[str] = "attention of the classifying row, maximum over heads and layers"

    def reduce(self, layers: list[Float[np.ndarray, "head key"]]) -> Float[np.ndarray, "key"]:
        return np.concatenate(layers).max(0)


@dataclass(frozen=True)
class AttentionHead(Attention):
    name: ClassVar[str] = "attention-head"
    summary: ClassVar[str] = "attention of the classifying row in one head, mean over layers"

    head: int = 0

    def reduce(self, layers: list[Float[np.ndarray, "head key"]]) -> Float[np.ndarray, "key"]:
        heads = min(len(layer) for layer in layers)
        if not 0 <= self.head < heads:
            raise InputError(f"There is no head {self.head}: the layer has heads 0 to {heads - 1}.")
        return np.mean([layer[self.head] for layer in layers], 0)


def heads(model: Classifier, documents: Sequence[Any]) -> list[Float[np.ndarray, "head unit"]]:
    """The attention of the classifying row of the last layer, head by head, on the words of each document."""
    import torch

    tokens = model.tokens(documents)
    found: list[Float[np.ndarray, "head unit"]] = [np.zeros((0, 0))] * len(tokens)
    for batch in model.batches(tokens):
        with torch.no_grad():
            weights = model.trace([tokens[i] for i in batch], layers=[-1]).classifying()
        for i, rows in zip(batch, weights, strict=True):
            units, groups = units_of(tokens[i])
            found[i] = np.zeros((len(rows), len(units)))
            np.add.at(found[i].T, groups[groups >= 0], rows[:, : len(groups)].T[groups >= 0])
    return found


@dataclass(frozen=True)
class ValueNorm(LayerMethod):
    """How long the vector is that a token's values add to the classifying row: ‖Σ_heads a_ij v_j W_O‖₂.

    The mean over layers; where all rows classify, the mean of their norms. What is added is the output of the layer's
    attention, and in the single-layer classifier the logits themselves.
    """

    name: ClassVar[str] = "value-norm"
    summary: ClassVar[str] = "length of what attention adds for each token, mean over layers"
    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, PROJECTED})
    paper: ClassVar[str] = "kobayashi2020"

    def read(self, trace: Trace, tokens: Sequence[Tokens]) -> list[Measured]:
        layers = [self._norms(trace, i) for i in self.chosen(len(trace.attention))]
        norms = np.mean(layers, 0)
        return [
            Measured(rows=n if n[len(t) :].any() else n[: len(t)])
            for n, t in zip(norms, tokens, strict=True)
        ]

    def _norms(self, trace: Trace, layer: int) -> Float[np.ndarray, "batch key"]:
        """‖Σ_h a_h u_h‖² = Σ_hg a_h a_g u_h·u_g, which needs no vector for each pair of tokens."""
        import torch

        weights = trace.classifying_rows(layer).double()
        u = torch.einsum(
            "bhkd,hdo->bkho", trace.values[layer].double(), trace.projections[layer].double()
        )
        products = u @ u.transpose(2, 3)
        squares = (torch.einsum("bhqk,bkhg->bgqk", weights, products) * weights).sum(
            1, keepdim=True
        )
        return trace.pooled(squares.clamp(min=0).sqrt()).squeeze(1).cpu().numpy()
