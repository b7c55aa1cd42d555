"""Training our own models: the loop that follows a recipe."""

from __future__ import annotations

import copy
import math
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from heed.data import Dataset
from heed.errors import InputError
from heed.models.classifier import Classifier
from heed.models.shapes import Shape, StackShape
from heed.models.single_layer import Network, SingleLayer, pad
from heed.models.stacked import Stacked, StackNetwork
from heed.progress import bar, say
from heed.text import Document, Tokenizer
from heed.training.recipes import RECIPES, Recipe


@dataclass(frozen=True)
class Training:
    """A trained model and how it came about: one row of `history` per epoch."""

    model: Any
    recipe: Any
    history: list[dict[str, float]]
    best: int
    seconds: float


def fit(
    documents: Sequence[Document],
    labels: Sequence[str],
    recipe: Recipe = RECIPES["default"],
    seed: int = 0,
    name: str = "single-layer",
    validation: Sequence[Document] | None = None,
    stack: Mapping[str, Any] | None = None,
    tokenizer: Tokenizer | None = None,
    uniform: bool = False,
) -> Training:
    """Train, validate after each epoch (on a part held out, if no documents are given), and keep the best epoch.

    With `stack`, settings of a `StackShape`, the model is a stack of layers instead of the single-layer classifier. A
    tokenizer may be given in place of that of the documents' words; its ids 0 and 1 are <unk> and <cls>. With
    `uniform`, queries are zero and stay so: all tokens are attended to alike.
    """
    began = time.perf_counter()
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    train, held = parts(documents, validation, labels, recipe.validation, rng)
    words = (stack or recipe.shape).get(
        "max_words", (Shape if stack is None else StackShape).max_words
    )
    if tokenizer is None:
        texts = (segment for d in train for segment in d.segments)
        tokenizer = Tokenizer.train(texts, words + 1, recipe.vocabulary, recipe.min_count)
    sizes: dict[str, Any] = {"vocabulary": len(tokenizer), "labels": len(labels)}
    network: Network | StackNetwork
    if stack is None:
        network = Network(Shape(**sizes, **recipe.shape), generator)
    else:
        network = StackNetwork(StackShape(**sizes, **stack), generator)
    network.W_e.data.mul_(recipe.embedding_scale)
    if uniform:
        for parameter in network.queries():
            parameter.data.zero_()
            parameter.requires_grad_(False)

    run = _Run(network, recipe, math.ceil(len(train) / recipe.batch), generator)
    examples, checks = _Examples.of(tokenizer, train), _Examples.of(tokenizer, held)
    history: list[dict[str, float]] = []
    best: dict[str, Tensor] = {}
    for epoch in range(1, recipe.epochs + 1):
        batches = shuffled_batches(examples.ids, recipe.batch, rng)
        shown = bar(batches, f"epoch {epoch}/{recipe.epochs}", unit="batch")
        loss = float(np.mean([run.step(examples, batch) for batch in shown]))
        correct = _accuracy(run.averaged, checks)
        if correct > max((row["accuracy"] for row in history), default=-1.0):
            best = copy.deepcopy(run.averaged.state_dict())
        history.append({"epoch": epoch, "loss": loss, "accuracy": correct})
        say(f"epoch {epoch:>2}  loss {loss:.4f}  validation accuracy {correct:.4f}")
    network.load_state_dict(best)
    chosen = int(np.argmax([row["accuracy"] for row in history])) + 1
    pairs = any(d.pair is not None for d in train)
    model: SingleLayer | Stacked
    if isinstance(network, Network):
        model = SingleLayer(network, tokenizer, labels, name, pairs)
    else:
        model = Stacked(network, tokenizer, labels, name, pairs)
    return Training(model, recipe, history, chosen, time.perf_counter() - began)


def parts(
    documents: Sequence[Document],
    validation: Sequence[Document] | None,
    labels: Sequence[str],
    share: float,
    rng: np.random.Generator,
) -> tuple[list[Document], list[Document]]:
    """Documents to train on and to validate on (a share of the former if none are given), those without a label left
    out."""
    if len(set(labels)) < len(labels):
        raise InputError("Two labels have the same name.")
    known = [d for d in documents if d.label is not None]
    given = [d for d in validation or () if d.label is not None]
    for d in [*known, *given]:
        if not 0 <= (d.label or 0) < len(labels):
            raise InputError(
                f"A document has the label {d.label}, and there are only {len(labels)} labels."
            )
    if len({d.label for d in known}) < 2 or len(known) < 10:
        raise InputError(
            f"Training needs at least 10 documents and two labels, got {len(known)} documents."
        )
    shuffled = [known[i] for i in rng.permutation(len(known))]
    cut = 0 if given else max(1, round(len(known) * share))
    return shuffled[cut:], shuffled[:cut] + given


@dataclass(frozen=True)
class _Examples:
    """Documents as ids, and their labels."""

    ids: list[Int[np.ndarray, "_"]]
    gold: Int[Tensor, "document"]

    @classmethod
    def of(cls, tokenizer: Tokenizer, documents: Sequence[Document]) -> _Examples:
        return cls(
            [t.ids for t in tokenizer(documents)], torch.tensor([d.label for d in documents])
        )


class _Run:
    """A network in training: the optimiser, its schedule, and the running mean of the weights."""

    def __init__(
        self,
        network: Network | StackNetwork,
        recipe: Recipe,
        batches: int,
        generator: torch.Generator,
    ):
        self.network, self.recipe, self.generator = network, recipe, generator
        self.averaged = copy.deepcopy(network) if recipe.average else network
        self.optimizer = torch.optim.AdamW(
            network.parameters(),
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        self.steps, self.done = recipe.epochs * batches, 0

    def step(self, examples: _Examples, batch: Int[np.ndarray, "_"]) -> float:
        """Learn from one batch; the loss."""
        recipe = self.recipe
        if recipe.schedule == "cosine":
            share = 0.5 * (1 + math.cos(math.pi * self.done / self.steps))
            self.optimizer.param_groups[0]["lr"] = recipe.learning_rate * share
        ids, mask = padded(self.network, [examples.ids[i] for i in batch])
        if recipe.word_dropout:
            drop = torch.rand(ids.shape, generator=self.generator) < recipe.word_dropout
            ids = ids.masked_fill(drop & (ids > 2), 0)
        loss = nn.functional.cross_entropy(
            self.network(ids, mask), examples.gold[batch], label_smoothing=recipe.smoothing
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.done += 1
        if recipe.average:
            decay = min(recipe.average, self.done / (self.done + 10))
            with torch.no_grad():
                torch._foreach_lerp_(
                    list(self.averaged.parameters()), list(self.network.parameters()), 1 - decay
                )
        return loss.item()


def accuracy(model: Classifier, documents: Sequence[Document]) -> float:
    """Share of documents whose predicted label is the gold one."""
    gold = np.array([d.label for d in documents])
    return float((model(documents).argmax(1) == gold).mean())


def facts(
    done: Any,
    data: Dataset,
    test: Dataset | None,
    recipe: Mapping[str, Any],
    seed: int,
    command: str,
) -> dict[str, Any]:
    """How a model came about and how good it is, for its folder and its card."""
    measured = None if test is None else accuracy(done.model, test.documents)
    return {
        "data": {
            "name": data.name,
            "split": data.split,
            "documents": len(data),
            "source": data.source,
        },
        "recipe": dict(recipe),
        "command": command,
        "seed": seed,
        "history": done.history,
        "best_epoch": done.best,
        "test": None
        if test is None
        else {"data": test.name, "split": test.split, "documents": len(test), "accuracy": measured},
        "seconds": round(done.seconds),
    }


def card(facts: Mapping[str, Any], name: str, about: str, shape: str, limits: str) -> str:
    """The model card of a checkpoint: data, recipe, command, accuracy, limits."""
    data, test = facts["data"], facts["test"]
    recipe = ", ".join(f"{k} {v}" for k, v in facts["recipe"].items() if k not in ("name", "shape"))
    best = facts["history"][facts["best_epoch"] - 1]
    measured = "–"
    if test:
        other = f" of {test['data']}" if test["data"] != data["name"] else ""
        measured = f"{test['accuracy']:.2%} on {test['documents']:,} documents of the {test['split']} split{other}"
    text = (
        f"Limits: {limits} Texts unlike its training data get predictions of unknown worth. It is meant for explaining"
        " and auditing, not for decisions about people."
    )
    return f"""# {name}

{about}

| | |
|---|---|
| data | {data["name"]}, {data["split"]} split, {data["documents"]:,} documents ({data["source"]}) |
| recipe | {facts["recipe"]["name"]}: {recipe} |
| shape | {shape} |
| seed | {facts["seed"]} |
| command | `{facts["command"]}` |
| validation accuracy | {best["accuracy"]:.2%} (epoch {facts["best_epoch"]} of {len(facts["history"])}) |
| test accuracy | {measured} |

{textwrap.fill(text, 120)}
"""


def single_layer_card(model: SingleLayer | Stacked, facts: Mapping[str, Any]) -> str:
    shape = model.shape
    assert isinstance(shape, Shape)
    return card(
        facts,
        model.name,
        f"A single-layer, {shape.heads}-head attention classifier for the labels {', '.join(model.labels)}.",
        f"{shape.vocabulary:,} words, d_e {shape.d_e}, d_att {shape.d_att}, d_out {shape.d_out}; reads"
        f" {shape.max_words} words, padding {shape.padding}",
        "it reads lower-cased words and knows only those of its training data; every other word is `<unk>`. It has no"
        " layers above its attention, so that it cannot compose words (negation is learnt only as far as single words"
        " give it away).",
    )


def padded(network: Any, documents: Sequence[Int[np.ndarray, "_"]]) -> tuple[Tensor, Tensor]:
    """Documents as a network reads them: padded to the longest, or to all that it reads where padding attends."""
    if getattr(network.shape, "padding", "masked") == "masked":
        return pad(documents, max(len(ids) for ids in documents))
    ids, mask = pad(documents, network.shape.max_words + 1)
    return ids, torch.ones_like(mask)


def shuffled_batches(
    documents: Sequence[Int[np.ndarray, "_"]], size: int, rng: np.random.Generator
) -> list[Int[np.ndarray, "_"]]:
    """Random batches of documents of similar length: shuffle, sort within stretches, shuffle the batches."""
    order = rng.permutation(len(documents))
    found = []
    for start in range(0, len(order), 50 * size):
        stretch = sorted(order[start : start + 50 * size], key=lambda i: len(documents[i]))
        found += [np.array(stretch[i : i + size]) for i in range(0, len(stretch), size)]
    return [found[i] for i in rng.permutation(len(found))]


@torch.no_grad()
def _accuracy(network: Network | StackNetwork, examples: _Examples) -> float:
    order = sorted(range(len(examples.ids)), key=lambda i: len(examples.ids[i]))
    correct = 0
    for start in range(0, len(order), 256):
        batch = order[start : start + 256]
        predicted = network(*padded(network, [examples.ids[i] for i in batch])).argmax(1)
        correct += int((predicted == examples.gold[batch]).sum())
    return correct / len(order)
