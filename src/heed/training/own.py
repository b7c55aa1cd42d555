"""Training the single-layer classifier and stacks of attention layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from heed.models.network import NetworkClassifier
from heed.models.single_layer import SingleLayer
from heed.models.stacked import Stacked
from heed.text import Document, Tokenizer
from heed.training.examples import Batch, Examples, padded, shuffled_batches, split, word_tokenizer
from heed.training.loop import Run, Training, adamw, averaged, constant, cosine, train
from heed.training.recipes import RECIPES, Recipe
from heed.training.unfinished import Unfinished

_SPECIAL = 2  # the ids 1 and 2 are <cls> and <sep>; 0 is <unk>


def fit(
    documents: Sequence[Document],
    labels: Sequence[str],
    recipe: Recipe = RECIPES["default"],
    seed: int = 0,
    name: str = "single-layer",
    validation: Sequence[Document] | None = None,
    *,
    stack: Mapping[str, Any] | None = None,
    tokenizer: Tokenizer | None = None,
    uniform: bool = False,
    resume: Path | None = None,
) -> Training:
    """Train, validate after each epoch, and keep the best one.

    validation   documents to choose the epoch by; by default a part is held out
    stack        settings of a `StackShape`: a stack of layers, not the single-layer classifier
    tokenizer    in place of that of the documents' words; its ids 0 and 1 are <unk> and <cls>
    uniform      queries are zero and stay so: all tokens are attended to alike
    resume       a folder for the state; if it holds one of the same training, that is resumed
    """
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    learnt, held = split(documents, validation, labels, recipe.validation, rng)
    start = {"stack": dict(stack or {}), "uniform": uniform}
    unfinished = Unfinished.of(resume, __name__, recipe, seed, [*learnt, *held], **start)
    kind: type[NetworkClassifier] = SingleLayer if stack is None else Stacked
    settings = recipe.shape if stack is None else stack
    if tokenizer is None:
        words = settings.get("max_words", kind.shape_class.max_words)
        tokenizer = word_tokenizer(learnt, words, recipe)
    shape = kind.shape_class(vocabulary=len(tokenizer), labels=len(labels), **settings)
    network: Any = kind.network_class(shape, generator)
    network.W_e.data.mul_(recipe.embedding_scale)
    if uniform:
        for parameter in network.queries():
            parameter.data.zero_()
            parameter.requires_grad_(False)
    optimizer = adamw([p for p in network.parameters() if p.requires_grad], recipe)
    examples, checks = (Examples.of(tokenizer, d) for d in (learnt, held))
    steps = recipe.epochs * math.ceil(len(learnt) / recipe.batch)
    run = Run(network, optimizer, averaged(network, recipe.average))
    task = _DroppedWords(recipe, examples, checks, rng, generator)
    schedule = cosine(steps) if recipe.schedule == "cosine" else constant
    train(run, task, recipe.epochs, schedule=schedule, unfinished=unfinished)
    pairs = any(d.pair is not None for d in learnt)
    model = kind(run.kept, tokenizer, labels, name, pairs)
    return Training(model, recipe, run.history, run.best, run.seconds)


@dataclass
class _DroppedWords:
    """Learn labels while some words are dropped: a `Task` of the loop."""

    recipe: Recipe
    examples: Examples
    checks: Examples
    rng: np.random.Generator
    generator: torch.Generator

    def batches(self, epoch: int) -> list[Batch]:
        if epoch == 1:  # words are dropped by what the weights at the start were drawn from
            torch.set_rng_state(self.generator.get_state())
        return shuffled_batches(self.examples.ids, self.recipe.batch, self.rng)

    def loss(self, network: Any, batch: Batch, step: int) -> Float[Tensor, ""]:
        ids, mask = padded(network, [self.examples.ids[i] for i in batch])
        if self.recipe.word_dropout:
            dropped = torch.rand(ids.shape) < self.recipe.word_dropout
            ids = ids.masked_fill(dropped & (ids > _SPECIAL), 0)
        logits, gold = network(ids, mask), self.examples.gold[batch]
        return functional.cross_entropy(logits, gold, label_smoothing=self.recipe.smoothing)

    @torch.no_grad()
    def validate(self, network: Any) -> dict[str, float]:
        correct = 0
        for batch in self.checks.batches():
            ids = [self.checks.ids[i] for i in batch]
            predicted = network(*padded(network, ids)).argmax(1)
            correct += int((predicted == self.checks.gold[batch]).sum())
        return {"accuracy": correct / len(self.checks.ids)}
