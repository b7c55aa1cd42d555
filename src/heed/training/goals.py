"""What a network is trained for: right labels, or to disagree with the attention of another model.

A network shows its attention by `attended`: logits, and one weight per token, the mean over heads
of the row that classifies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from heed.metrics import auc
from heed.models.classifier import Classifier
from heed.text import Document
from heed.training.examples import Examples, in_rows, outputs_of, shuffled_batches

_TINY = 1e-30  # weights below it count as it: their logarithms stay finite


class Goal(Protocol):
    """What training is for."""

    def loss(
        self, network: Any, examples: Examples, batch: Int[np.ndarray, "_"]
    ) -> Float[Tensor, ""]:
        """The mean over a batch of what is to become small."""

    def validate(self, network: Any, examples: Examples) -> dict[str, float]:
        """What an epoch achieved. The first number is judged; larger is better."""


@dataclass(frozen=True)
class Classify:
    """Right labels. Of two labels both weigh alike, however rare one of them is."""

    positive_weight: float = 1.0

    @classmethod
    def of(cls, examples: Examples, labels: int) -> Classify:
        positive = int((examples.gold == 1).sum())
        return cls((len(examples.gold) - positive) / max(1, positive) if labels == 2 else 1.0)

    def loss(
        self, network: Any, examples: Examples, batch: Int[np.ndarray, "_"]
    ) -> Float[Tensor, ""]:
        logits, _ = examples.run(network, batch)
        gold = examples.gold[batch]
        if logits.shape[1] > 2:
            return functional.cross_entropy(logits, gold)
        weight = torch.tensor(self.positive_weight)
        return functional.binary_cross_entropy_with_logits(
            logits[:, 1] - logits[:, 0], gold.to(logits.dtype), pos_weight=weight
        )

    def validate(self, network: Any, examples: Examples) -> dict[str, float]:
        logits, gold = examples.logits(network), examples.gold.numpy()
        correct = float((logits.argmax(1) == gold).mean())
        area = auc(logits[:, 1] - logits[:, 0], gold == 1) if logits.shape[1] == 2 else float("nan")
        return {"auc": area, "accuracy": correct} if np.isfinite(area) else {"accuracy": correct}


@dataclass(frozen=True)
class Disagree:
    """The predictions of another model with an attention as different as possible.

    What becomes small is the mean of TVD - strength · KL. Attention is that on words, as shares of
    it: looking away from all of them alike is no disagreement.

    outputs, attention   what the other model says of each document, by its ids
    """

    strength: float
    outputs: dict[bytes, Float[np.ndarray, "label"]]
    attention: dict[bytes, Float[np.ndarray, "token"]]

    @classmethod
    def of(cls, model: Classifier, documents: Sequence[Document], strength: float) -> Disagree:
        outputs, attention = {}, {}
        for tokens, probabilities, weights in outputs_of(model, documents):
            key = tokens.ids.tobytes()
            outputs[key], attention[key] = probabilities, weights
        return cls(strength, outputs, attention)

    def terms(
        self, network: Any, examples: Examples, batch: Sequence[int] | Int[np.ndarray, "_"]
    ) -> tuple[Float[Tensor, "document"], Float[Tensor, "document"]]:
        """TVD of the outputs and KL(its attention ‖ the other's) of each document."""
        keys = [examples.ids[i].tobytes() for i in batch]
        logits, attention = examples.run(network, batch)
        length = attention.shape[1]
        words = in_rows([examples.words[i].astype(float) for i in batch], length)
        ours = _shares(attention * words)
        theirs = _shares(in_rows([self.attention[k] for k in keys], length) * words)
        target = torch.from_numpy(np.array([self.outputs[k] for k in keys])).to(logits.dtype)
        distance = 0.5 * (logits.softmax(1) - target).abs().sum(1)
        ratio = ours.clamp(min=_TINY).log() - theirs.clamp(min=_TINY).log()
        return distance, (ours * ratio).sum(1)

    def loss(
        self, network: Any, examples: Examples, batch: Int[np.ndarray, "_"]
    ) -> Float[Tensor, ""]:
        distance, divergence = self.terms(network, examples, batch)
        return (distance - self.strength * divergence).mean()

    @torch.no_grad()
    def validate(self, network: Any, examples: Examples) -> dict[str, float]:
        terms = [self.terms(network, examples, batch) for batch in examples.batches()]
        distance, divergence = (torch.cat(part).mean().item() for part in zip(*terms, strict=True))
        return {"worth": self.strength * divergence - distance, "tvd": distance, "kl": divergence}


def _shares(weights: Float[Tensor, "document token"]) -> Float[Tensor, "document token"]:
    return weights / weights.sum(1, keepdim=True).clamp(min=_TINY)


@dataclass
class GoalTask:
    """A goal, and documents to reach it on: a `Task` of the loop."""

    goal: Goal
    examples: Examples
    checks: Examples
    batch: int
    rng: np.random.Generator

    def batches(self, epoch: int) -> list[Int[np.ndarray, "_"]]:
        batches = shuffled_batches(self.examples.ids, self.batch, self.rng)
        torch.manual_seed(int(self.rng.integers(1 << 62)))  # of the dropout in this epoch
        return batches

    def loss(self, network: Any, batch: Int[np.ndarray, "_"], step: int) -> Float[Tensor, ""]:
        return self.goal.loss(network, self.examples, batch)

    def validate(self, network: Any) -> dict[str, float]:
        return self.goal.validate(network, self.checks)
