"""Explanations that read the attention of the row that classifies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from heed.errors import InputError
from heed.explain.explanation import Explainer, Job, Measured
from heed.models.classifier import ATTENTION, Classifier


@dataclass(frozen=True)
class Attention(Explainer):
    """Weights of the classifying row in one layer (the last by default), reduced over heads; they have no sign."""

    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION})
    signed: ClassVar[bool] = False
    paper: ClassVar[str] = "bahdanau2015"

    layer: int = -1

    @abstractmethod
    def reduce(self, heads: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "key"]:
        """One weight per key."""

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        import torch

        found: list[Measured] = [Measured()] * len(jobs)
        for batch in model.batches([job.tokens for job in jobs]):
            with torch.no_grad():
                trace = model.trace([jobs[i].tokens for i in batch])
            layers = len(trace.attention)
            if not -layers <= self.layer < layers:
                raise InputError(f"There is no layer {self.layer}: the model has layers 0 to {layers - 1}.")
            for i, heads in zip(batch, trace.classifying(self.layer), strict=True):
                found[i] = self._measured(heads.astype(float), len(jobs[i].tokens))
        return found

    def _measured(self, heads: Float[np.ndarray, "head key"], tokens: int) -> Measured:
        padding = float(heads[:, tokens:].sum() / len(heads))
        if padding == 0:
            return Measured(rows=self.reduce(heads[:, :tokens]))
        note = f"{padding:.0%} of the attention lies on padding, which this model does not mask."
        return Measured(rows=self.reduce(heads), facts={"padding_attention": padding}, notes=(note,))


@dataclass(frozen=True)
class AttentionMean(Attention):
    name: ClassVar[str] = "attention-mean"
    summary: ClassVar[str] = "attention of the classifying row, mean over heads"

    def reduce(self, heads: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "key"]:
        return heads.mean(0)


@dataclass(frozen=True)
class AttentionMax(Attention):
    name: ClassVar[str] = "attention-max"
    summary: ClassVar[str] = "attention of the classifying row, maximum over heads"

    def reduce(self, heads: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "key"]:
        return heads.max(0)


@dataclass(frozen=True)
class AttentionHead(Attention):
    name: ClassVar[str] = "attention-head"
    summary: ClassVar[str] = "attention of the classifying row in one head"

    head: int = 0

    def reduce(self, heads: Float[np.ndarray, "head key"]) -> Float[np.ndarray, "key"]:
        if not 0 <= self.head < len(heads):
            raise InputError(f"There is no head {self.head}: the layer has heads 0 to {len(heads) - 1}.")
        return heads[self.head]
