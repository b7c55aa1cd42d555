"""One loop that trains our own networks: to classify, with weights of others, or to disagree with another model.

A `Goal` says what is minimised over a batch, and what an epoch is judged by. A network shows its attention by
`attended`: logits, and one weight per token, the mean over heads of the row that classifies.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from heed.metrics import auc
from heed.models.classifier import Classifier
from heed.models.network import Trained
from heed.progress import bar, say
from heed.text import Document, Tokenizer, Tokens
from heed.training.own import padded, shuffled_batches

Weights = list[Float[np.ndarray, "token"]]
Guide = Callable[[Sequence[Tokens]], Weights]
_DOCUMENTS = 256  # in a batch that is not learnt from


@dataclass(frozen=True)
class Examples:
    """Documents as ids, with their labels, which tokens are words, and attention weights where these are given."""

    ids: list[Int[np.ndarray, "token"]]
    gold: Int[Tensor, "document"]
    words: list[Bool[np.ndarray, "token"]]
    weights: Weights | None = None

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, documents: Sequence[Document], guide: Guide | None = None
    ) -> Examples:
        tokens = tokenizer(documents)
        gold = torch.tensor([-1 if d.label is None else d.label for d in documents])
        return cls(
            [t.ids for t in tokens],
            gold,
            [~t.special for t in tokens],
            guide(tokens) if guide else None,
        )

    def run(
        self, network: Any, places: Sequence[int] | Int[np.ndarray, "_"]
    ) -> tuple[Float[Tensor, "document label"], Float[Tensor, "document token"]]:
        """Logits and attention of some documents; the attention is what was given, if it was."""
        ids, real = padded(network, [self.ids[i] for i in places])
        weights = (
            None
            if self.weights is None
            else in_rows([self.weights[i] for i in places], ids.shape[1])
        )
        return network.attended(ids, real, weights)

    def batches(self) -> list[list[int]]:
        """All documents, in batches of similar length."""
        order = sorted(range(len(self.ids)), key=lambda i: len(self.ids[i]))
        return [order[start : start + _DOCUMENTS] for start in range(0, len(order), _DOCUMENTS)]


def in_rows(weights: Weights, length: int) -> Float[Tensor, "document token"]:
    found = np.zeros((len(weights), length), dtype=np.float32)
    for i, w in enumerate(weights):
        found[i, : len(w)] = w
    return torch.from_numpy(found)


class Goal(Protocol):
    """What training is for."""

    def loss(
        self, network: Any, examples: Examples, places: Int[np.ndarray, "_"]
    ) -> Float[Tensor, ""]:
        """The mean over some documents of what is to become small."""

    def worth(self, network: Any, examples: Examples) -> dict[str, float]:
        """What an epoch achieved on validation documents; the first number is judged, and the larger the better."""


@dataclass(frozen=True)
class Classify:
    """Right labels. Two labels: both weigh alike, however rare one of them is."""

    positive_weight: float = 1.0

    @classmethod
    def of(cls, examples: Examples, labels: int) -> Classify:
        positive = int((examples.gold == 1).sum())
        return cls((len(examples.gold) - positive) / max(1, positive) if labels == 2 else 1.0)

    def loss(
        self, network: Any, examples: Examples, places: Int[np.ndarray, "_"]
    ) -> Float[Tensor, ""]:
        logits, _ = examples.run(network, places)
        gold = examples.gold[places]
        if logits.shape[1] > 2:
            return functional.cross_entropy(logits, gold)
        weight = torch.tensor(self.positive_weight)
        return functional.binary_cross_entropy_with_logits(
            logits[:, 1] - logits[:, 0], gold.to(logits.dtype), pos_weight=weight
        )

    def worth(self, network: Any, examples: Examples) -> dict[str, float]:
        logits, gold = logits_of(network, examples), examples.gold.numpy()
        correct = float((logits.argmax(1) == gold).mean())
        area = auc(logits[:, 1] - logits[:, 0], gold == 1) if logits.shape[1] == 2 else float("nan")
        return {"auc": area, "accuracy": correct} if np.isfinite(area) else {"accuracy": correct}


@dataclass(frozen=True)
class Disagree:
    """The predictions of another model with an attention as different as possible: mean TVD - strength · KL.

    Attention is that on words, as shares of it: looking away from all of them alike is no disagreement.

    outputs, attention   what the other model says of each document, by its ids
    """

    strength: float
    outputs: dict[bytes, Float[np.ndarray, "label"]]
    attention: dict[bytes, Float[np.ndarray, "token"]]

    @classmethod
    def of(cls, model: Classifier, documents: Sequence[Document], strength: float) -> Disagree:
        outputs, attention = {}, {}
        for tokens, p, a in outputs_of(model, documents):
            key = tokens.ids.tobytes()
            outputs[key], attention[key] = p, a
        return cls(strength, outputs, attention)

    def terms(
        self, network: Any, examples: Examples, places: Sequence[int] | Int[np.ndarray, "_"]
    ) -> tuple[Float[Tensor, "document"], Float[Tensor, "document"]]:
        """TVD and KL(own ‖ other) of some documents."""
        keys = [examples.ids[i].tobytes() for i in places]
        logits, own = examples.run(network, places)
        words = in_rows([examples.words[i].astype(float) for i in places], own.shape[1])
        own, theirs = (
            _shares(a * words)
            for a in (own, in_rows([self.attention[k] for k in keys], own.shape[1]))
        )
        target = torch.from_numpy(np.array([self.outputs[k] for k in keys])).to(logits.dtype)
        distance = 0.5 * (logits.softmax(1) - target).abs().sum(1)
        tiny = 1e-30
        ratio = own.clamp(min=tiny).log() - theirs.clamp(min=tiny).log()
        return distance, (own * ratio).sum(1)

    def loss(
        self, network: Any, examples: Examples, places: Int[np.ndarray, "_"]
    ) -> Float[Tensor, ""]:
        distance, divergence = self.terms(network, examples, places)
        return (distance - self.strength * divergence).mean()

    @torch.no_grad()
    def worth(self, network: Any, examples: Examples) -> dict[str, float]:
        found = [self.terms(network, examples, places) for places in examples.batches()]
        distance, divergence = (torch.cat(part).mean().item() for part in zip(*found, strict=True))
        return {"worth": self.strength * divergence - distance, "tvd": distance, "kl": divergence}


def _shares(weights: Float[Tensor, "document token"]) -> Float[Tensor, "document token"]:
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-30)


@torch.no_grad()
def logits_of(network: Any, examples: Examples) -> Float[np.ndarray, "document label"]:
    found = np.empty((len(examples.ids), network.shape.labels))
    for places in examples.batches():
        found[places] = examples.run(network, places)[0].numpy()
    return found


def outputs_of(
    model: Classifier, documents: Sequence[Document]
) -> list[tuple[Tokens, Float[np.ndarray, "label"], Float[np.ndarray, "token"]]]:
    """Tokens, probabilities and attention of each document."""
    tokens = model.tokens(documents)
    found: list[tuple[Tokens, np.ndarray, np.ndarray]] = [None] * len(tokens)  # type: ignore[list-item]
    for batch in model.batches(tokens):
        with torch.no_grad():
            trace = model.trace([tokens[i] for i in batch], layers=[-1])
        weights, p = trace.classifying().mean(1), model.probabilities(trace.logits.double().numpy())
        for place, i in enumerate(batch):
            found[i] = (tokens[i], p[place], weights[place, : len(tokens[i])])
    return found


def disagree(
    base: Trained,
    documents: Sequence[Document],
    validation: Sequence[Document],
    strength: float,
    optimizer: Callable[[Any], torch.optim.Optimizer],
    batch: int,
    seed: int = 0,
    name: str = "adversary",
    epochs: int = 20,
    patience: int = 3,
) -> Trained:
    """A copy of a model, trained further to give its predictions with an attention as different as possible."""
    goal = Disagree.of(base, [*documents, *validation], strength)
    examples, checks = (Examples.of(base.tokenizer, d) for d in (documents, validation))
    model = type(base)(copy.deepcopy(base.network), base.tokenizer, base.labels, name, base.pairs)
    rng = np.random.default_rng(seed)
    train(
        model.network,
        optimizer(model.network),
        goal,
        examples,
        checks,
        batch,
        rng,
        epochs,
        patience,
    )
    return model


def train(
    network: Any,
    optimizer: torch.optim.Optimizer,
    goal: Goal,
    examples: Examples,
    checks: Examples,
    batch: int,
    rng: np.random.Generator,
    epochs: int,
    patience: int | None = None,
) -> tuple[list[dict[str, float]], int]:
    """Learn epoch by epoch, and keep the best; stop early after so many epochs that did not improve.

    One row per epoch, and the number of the best.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.requires_grad_()
    history: list[dict[str, float]] = []
    best: dict[str, Tensor] = {}
    chosen, highest = 0, -np.inf
    for epoch in range(1, epochs + 1):
        batches = shuffled_batches(examples.ids, batch, rng)
        losses = []
        with torch.random.fork_rng(
            devices=[]
        ):  # dropout draws from torch's generator, which belongs to the user
            torch.manual_seed(int(rng.integers(1 << 62)))
            network.train()
            for places in bar(batches, f"epoch {epoch}/{epochs}", unit="batch"):
                loss = goal.loss(network, examples, places)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        worth = goal.worth(network.eval(), checks)
        history.append({"epoch": epoch, "loss": float(np.mean(losses))} | worth)
        judged = next(iter(worth.values()))
        if judged > highest or not best:
            best, chosen, highest = copy.deepcopy(network.state_dict()), epoch, judged
        numbers = (f"{key} {value:.4f}" for key, value in history[-1].items() if key != "epoch")
        say(f"epoch {epoch:>2}  {'  '.join(numbers)}")
        if patience is not None and epoch - chosen >= patience:
            break
    network.load_state_dict(best)
    network.eval().requires_grad_(False)
    return history, chosen
