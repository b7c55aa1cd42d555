"""Training encoders with attention, by the recipe of "Attention is not Explanation" (Jain and Wallace, 2019)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from heed.models.recurrent import Recurrent, RecurrentNetwork
from heed.text import Document, Tokenizer
from heed.training.loop import Classify, Examples, Guide
from heed.training.loop import train as learn
from heed.training.own import Training, card, parts
from heed.training.recipes import RecurrentRecipe
from heed.training.vectors import start_from

DEFAULT = RecurrentRecipe()


def fit(
    documents: Sequence[Document],
    labels: Sequence[str],
    recipe: RecurrentRecipe = DEFAULT,
    seed: int = 0,
    name: str = "recurrent",
    validation: Sequence[Document] | None = None,
    tokenizer: Tokenizer | None = None,
    guide: Guide | None = None,
) -> Training:
    """Train to classify; with a guide, by the attention that it gives and by no other."""
    began = time.perf_counter()
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    train, held = parts(documents, validation, labels, recipe.validation, rng)
    if tokenizer is None:
        texts = (segment for d in train for segment in d.segments)
        tokenizer = Tokenizer.train(
            texts, recipe.max_words + 1, recipe.vocabulary, recipe.min_count
        )
    network = RecurrentNetwork(recipe.shape(len(tokenizer), len(labels)), generator)
    if recipe.vectors == "glove":
        start_from(network.W_e, tokenizer)
    examples, checks = (Examples.of(tokenizer, d, guide) for d in (train, held))
    pairs = any(d.pair is not None for d in train)
    model = Recurrent(network, tokenizer, labels, name, pairs)
    goal, steps = Classify.of(examples, len(labels)), optimizer(network, recipe)
    history, best = learn(network, steps, goal, examples, checks, recipe.batch, rng, recipe.epochs)
    return Training(model, recipe, history, best, time.perf_counter() - began)


def optimizer(network: RecurrentNetwork, recipe: RecurrentRecipe) -> torch.optim.Optimizer:
    """Adam as in the papers; the attention does not decay."""
    attention = network.attends()
    others = [p for p in network.parameters() if all(p is not a for a in attention)]
    groups = [{"params": others, "weight_decay": recipe.weight_decay}]
    if attention:
        groups.append({"params": attention, "weight_decay": 0.0})
    return torch.optim.Adam(groups, lr=recipe.learning_rate, amsgrad=True, fused=True)


def recurrent_card(model: Recurrent, facts: Mapping[str, Any]) -> str:
    shape = model.shape
    encoders = {
        "lstm": "a bidirectional LSTM",
        "cnn": "convolutions",
        "average": "a map of each token alone",
    }
    return card(
        facts,
        model.name,
        f"A classifier for the labels {', '.join(model.labels)}: {encoders[shape.encoder]} under {shape.attention}"
        " attention.",
        f"{shape.vocabulary:,} words of {shape.width} numbers, states of {shape.hidden}; reads {shape.max_words} words",
        "it reads lower-cased words and knows only those of its training data; every other word is `<unk>`.",
    )
