"""Training our own models: the loop that follows a recipe."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn
from tqdm.auto import tqdm

from heed.errors import InputError
from heed.models.recipes import RECIPES, Recipe, Shape
from heed.models.single_layer import Network, SingleLayer, pad
from heed.text import Document, Tokenizer


@dataclass(frozen=True)
class Training:
    """A trained model and how it came about: one row of `history` per epoch."""

    model: SingleLayer
    recipe: Recipe
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
    progress: bool = False,
) -> Training:
    """Train, validate after each epoch (on a part held out, if no documents are given), and keep the best epoch."""
    began = time.perf_counter()
    documents = [d for d in documents if d.label is not None]
    beyond = [
        d.label for d in [*documents, *(validation or ())] if d.label is not None and not 0 <= d.label < len(labels)
    ]
    if beyond:
        raise InputError(f"A document has the label {beyond[0]}, and there are only {len(labels)} labels.")
    if len({d.label for d in documents}) < 2 or len(documents) < 10:
        raise InputError(f"Training needs at least 10 documents and two labels, got {len(documents)} documents.")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(documents))
    cut = 0 if validation else max(1, round(len(documents) * recipe.validation))
    held, rest = [documents[i] for i in order[:cut]], [documents[i] for i in order[cut:]]
    held += [d for d in validation or () if d.label is not None]

    words = recipe.shape.get("max_words", Shape.max_words)
    texts = (segment for d in rest for segment in d.segments)
    tokenizer = Tokenizer.train(texts, words + 1, recipe.vocabulary, recipe.min_count)
    shape = Shape(vocabulary=len(tokenizer), labels=len(labels), **recipe.shape)
    generator = torch.Generator().manual_seed(seed)
    network = Network(shape, generator)
    network.W_e.data.mul_(recipe.embedding_scale)
    averaged = copy.deepcopy(network) if recipe.average else network

    optimizer = torch.optim.AdamW(
        network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )
    train, train_y = _ids(tokenizer, rest), torch.tensor([d.label for d in rest])
    valid, valid_y = _ids(tokenizer, held), torch.tensor([d.label for d in held])
    steps = recipe.epochs * math.ceil(len(train) / recipe.batch)
    step, history = 0, []
    best: tuple[float, dict[str, torch.Tensor]] = (-1.0, {})
    for epoch in range(recipe.epochs):
        batches = _batches(train, recipe.batch, rng)
        bar = tqdm(batches, desc=f"epoch {epoch + 1}/{recipe.epochs}", disable=not progress, leave=False, unit="batch")
        losses = []
        for batch in bar:
            if recipe.schedule == "cosine":
                optimizer.param_groups[0]["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
            ids, mask = _pad(network, [train[i] for i in batch])
            if recipe.word_dropout:
                drop = torch.rand(ids.shape, generator=generator) < recipe.word_dropout
                ids = ids.masked_fill(drop & (ids > 2), 0)
            loss = nn.functional.cross_entropy(network(ids, mask), train_y[batch], label_smoothing=recipe.smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if recipe.average:
                _average(averaged, network, min(recipe.average, step / (step + 10)))
            losses.append(loss.item())
        correct = _accuracy(averaged, valid, valid_y)
        history.append({"epoch": epoch + 1, "loss": float(np.mean(losses)), "accuracy": correct})
        if progress:
            tqdm.write(f"epoch {epoch + 1:>2}  loss {history[-1]['loss']:.4f}  validation accuracy {correct:.4f}")
        if correct > best[0]:
            best = (correct, copy.deepcopy(averaged.state_dict()))
    network.load_state_dict(best[1])
    chosen = max(range(len(history)), key=lambda i: history[i]["accuracy"])
    return Training(
        SingleLayer(network, tokenizer, labels, name), recipe, history, chosen + 1, time.perf_counter() - began
    )


def accuracy(model: SingleLayer, documents: Sequence[Document]) -> float:
    """Share of documents whose predicted label is the gold one."""
    gold = np.array([d.label for d in documents])
    return float((model(documents).argmax(1) == gold).mean())


def card(model: SingleLayer, facts: Mapping[str, Any]) -> str:
    """The model card of a checkpoint: data, recipe, command, accuracy, limits."""
    data, shape, test = facts["data"], model.shape, facts["test"]
    recipe = ", ".join(f"{k} {v}" for k, v in facts["recipe"].items() if k not in ("name", "shape"))
    best = facts["history"][facts["best_epoch"] - 1]
    measured = (
        f"{test['accuracy']:.2%} on {test['documents']:,} documents of the {test['split']} split" if test else "–"
    )
    sizes = f"{shape.vocabulary:,} words, d_e {shape.d_e}, d_att {shape.d_att}, d_out {shape.d_out}"
    return f"""# {model.name}

A single-layer, {shape.heads}-head attention classifier for the labels {", ".join(model.labels)}.

| | |
|---|---|
| data | {data["name"]}, {data["split"]} split, {data["documents"]:,} documents ({data["source"]}) |
| recipe | {facts["recipe"]["name"]}: {recipe} |
| shape | {sizes}; reads {shape.max_words} words, padding {shape.padding} |
| seed | {facts["seed"]} |
| command | `{facts["command"]}` |
| validation accuracy | {best["accuracy"]:.2%} (epoch {facts["best_epoch"]} of {len(facts["history"])}) |
| test accuracy | {measured} |

Limits: it reads lower-cased words and knows only those of its training data; every other word is `<unk>`. It has no
layers above its attention, so that it cannot compose words (negation is learnt only as far as single words give it
away). Texts unlike its training data get predictions of unknown worth. It is meant for explaining and auditing, not
for decisions about people.
"""


def _ids(tokenizer: Tokenizer, documents: Sequence[Document]) -> list[Int[np.ndarray, "_"]]:
    return [t.ids for t in tokenizer(documents)]


def _pad(network: Network, documents: Sequence[Int[np.ndarray, "_"]]) -> tuple[torch.Tensor, torch.Tensor]:
    if network.shape.padding == "masked":
        return pad(documents, max(len(ids) for ids in documents))
    ids, mask = pad(documents, network.shape.max_words + 1)
    return ids, torch.ones_like(mask)


def _batches(
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
def _average(averaged: Network, network: Network, decay: float) -> None:
    torch._foreach_lerp_(list(averaged.parameters()), list(network.parameters()), 1 - decay)


@torch.no_grad()
def _accuracy(network: Network, documents: Sequence[Int[np.ndarray, "_"]], gold: torch.Tensor) -> float:
    order = sorted(range(len(documents)), key=lambda i: len(documents[i]))
    correct = 0
    for start in range(0, len(order), 256):
        batch = order[start : start + 256]
        predicted = network(*_pad(network, [documents[i] for i in batch])).argmax(1)
        correct += int((predicted == gold[batch]).sum())
    return correct / len(documents)
