"""Training the single-layer classifier and stacks of attention layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from heed.models.shapes import Shape, StackShape
from heed.models.single_layer import Network, SingleLayer
from heed.models.stacked import Stacked, StackNetwork
from heed.text import Document, Tokenizer
from heed.training.examples import Examples, padded, shuffled_batches, split
from heed.training.loop import Run, Training, averaged, constant, cosine, train
from heed.training.recipes import RECIPES, Recipe
from heed.training.unfinished import Unfinished, identity

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
    unfinished = None
    if resume is not None:
        start = {"stack": dict(stack or {}), "uniform": uniform}
        unfinished = Unfinished(resume, identity(recipe, seed, learnt, held, **start))
    if tokenizer is None:
        default = Shape.max_words if stack is None else StackShape.max_words
        words = (recipe.shape if stack is None else stack).get("max_words", default)
        texts = (segment for d in learnt for segment in d.segments)
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
    optimizer = torch.optim.AdamW(
        [p for p in network.parameters() if p.requires_grad],
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        fused=True,
    )
    examples, checks = (Examples.of(tokenizer, d) for d in (learnt, held))
    steps = recipe.epochs * math.ceil(len(learnt) / recipe.batch)
    run = Run(network, optimizer, averaged(network, recipe.average))
    train(
        run,
        _DroppedWords(recipe, examples, checks, rng, generator),
        recipe.epochs,
        schedule=cosine(steps) if recipe.schedule == "cosine" else constant,
        unfinished=unfinished,
    )
    pairs = any(d.pair is not None for d in learnt)
    kind = SingleLayer if stack is None else Stacked
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

    def batches(self, epoch: int) -> list[Int[np.ndarray, "_"]]:
        if epoch == 1:  # words are dropped by what the weights at the start were drawn from
            torch.set_rng_state(self.generator.get_state())
        return shuffled_batches(self.examples.ids, self.recipe.batch, self.rng)

    def loss(self, network: Any, batch: Int[np.ndarray, "_"], step: int) -> Float[Tensor, ""]:
        ids, mask = padded(network, [self.examples.ids[i] for i in batch])
        if self.recipe.word_dropout:
            dropped = torch.rand(ids.shape) < self.recipe.word_dropout
            ids = ids.masked_fill(dropped & (ids > _SPECIAL), 0)
        return functional.cross_entropy(
            network(ids, mask), self.examples.gold[batch], label_smoothing=self.recipe.smoothing
        )

    @torch.no_grad()
    def validate(self, network: Any) -> dict[str, float]:
        correct = 0
        for batch in self.checks.batches():
            ids = [self.checks.ids[i] for i in batch]
            predicted = network(*padded(network, ids)).argmax(1)
            correct += int((predicted == self.checks.gold[batch]).sum())
        return {"accuracy": correct / len(self.checks.ids)}
