"""What a network is trained for: right labels, or to disagree with the attention of another model.

A network shows its attention by `attended`: logits, and one weight per token, the mean over heads
of the row that classifies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from heed.metrics import auc
from heed.models.arrays import Weights
from heed.models.classifier import Classifier
from heed.text import Document
from heed.training.examples import Batch, Examples, in_rows, outputs_of, shuffled_batches

_TINY = 1e-30  # weights below it count as it: their logarithms stay finite
Said = dict[bytes, tuple[Float[np.ndarray, "label"], Float[np.ndarray, "token"]]]


@dataclass
class Goal:
    """Documents to learn from and to validate on: a `Task` of the loop but for its loss."""

    examples: Examples
    checks: Examples
    batch: int
    rng: np.random.Generator

    def batches(self, epoch: int) -> list[Batch]:
        batches = shuffled_batches(self.examples.ids, self.batch, self.rng)
        torch.manual_seed(int(self.rng.integers(1 << 62)))  # of the dropout in this epoch
        return batches


class Classify(Goal):
    """Right labels. Of two labels both weigh alike, however rare one of them is."""

    def loss(self, network: Any, batch: Batch, step: int) -> Float[Tensor, ""]:
        logits, _ = self.examples.run(network, batch)
        labels = self.examples.gold
        if logits.shape[1] > 2:
            return functional.cross_entropy(logits, labels[batch])
        positive = int((labels == 1).sum())
        weight = torch.tensor((len(labels) - positive) / max(1, positive))
        return functional.binary_cross_entropy_with_logits(
            logits[:, 1] - logits[:, 0], labels[batch].to(logits.dtype), pos_weight=weight
        )

    def validate(self, network: Any) -> dict[str, float]:
        logits, gold = self.checks.logits(network), self.checks.gold.numpy()
        correct = float((logits.argmax(1) == gold).mean())
        area = auc(logits[:, 1] - logits[:, 0], gold == 1) if logits.shape[1] == 2 else float("nan")
        return {"auc": area, "accuracy": correct} if np.isfinite(area) else {"accuracy": correct}


@dataclass
class Disagree(Goal):
    """The predictions of another model with an attention as different as possible.

    What becomes small is the mean of TVD - strength · KL. Attention is that on words, as shares of
    it: looking away from all of them alike is no disagreement.

    said   the outputs and the attention of the other model, by the ids of a document
    """

    strength: float
    said: Said

    def terms(
        self, network: Any, examples: Examples, batch: Sequence[int] | Batch
    ) -> tuple[Float[Tensor, "document"], Float[Tensor, "document"]]:
        """TVD of the outputs and KL(its attention ‖ the other's) of each document."""
        outputs, weights = zip(*[self.said[examples.ids[i].tobytes()] for i in batch], strict=True)
        logits, attention = examples.run(network, batch)
        length = attention.shape[1]
        words = in_rows([examples.words[i].astype(float) for i in batch], length)
        ours = _shares(attention * words)
        theirs = _shares(in_rows(list(weights), length) * words)
        target = torch.from_numpy(np.array(outputs)).to(logits.dtype)
        distance = 0.5 * (logits.softmax(1) - target).abs().sum(1)
        ratio = ours.clamp(min=_TINY).log() - theirs.clamp(min=_TINY).log()
        return distance, (ours * ratio).sum(1)

    def loss(self, network: Any, batch: Batch, step: int) -> Float[Tensor, ""]:
        distance, divergence = self.terms(network, self.examples, batch)
        return (distance - self.strength * divergence).mean()

    @torch.no_grad()
    def validate(self, network: Any) -> dict[str, float]:
        terms = [self.terms(network, self.checks, batch) for batch in self.checks.batches()]
        distance, divergence = (torch.cat(part).mean().item() for part in zip(*terms, strict=True))
        return {"worth": self.strength * divergence - distance, "tvd": distance, "kl": divergence}


def said_by(model: Classifier, documents: Sequence[Document]) -> Said:
    """The outputs and the attention of a model, by the ids of each document."""
    outputs = outputs_of(model, documents)
    return {tokens.ids.tobytes(): (p, weights) for tokens, p, weights in outputs}


def _shares(weights: Weights) -> Weights:
    return weights / weights.sum(1, keepdim=True).clamp(min=_TINY)
