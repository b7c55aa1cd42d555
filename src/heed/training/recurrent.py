"""Training encoders with attention, by the recipe of Jain and Wallace (2019)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from heed.models.recurrent import Recurrent, RecurrentNetwork
from heed.text import Document, Tokenizer
from heed.training.examples import Examples, Guide, split, word_tokenizer
from heed.training.goals import Classify
from heed.training.loop import Run, Training, train
from heed.training.recipes import RecurrentRecipe
from heed.training.unfinished import Unfinished
from heed.training.vectors import start_from

DEFAULT = RecurrentRecipe()


def fit(
    documents: Sequence[Document],
    labels: Sequence[str],
    recipe: RecurrentRecipe = DEFAULT,
    seed: int = 0,
    name: str = "recurrent",
    validation: Sequence[Document] | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    guide: Guide | None = None,
    resume: Path | None = None,
) -> Training:
    """Train to classify, and keep the best epoch.

    tokenizer   in place of that of the documents' words
    guide       gives the attention by which tokens are weighed, in place of the network's own
    resume      a folder for the state; if it holds one of the same training, that is resumed
    """
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    learnt, held = split(documents, validation, labels, recipe.validation, rng)
    unfinished = Unfinished.of(resume, __name__, recipe, seed, [*learnt, *held])
    if tokenizer is None:
        tokenizer = word_tokenizer(learnt, recipe.max_words, recipe)
    network = RecurrentNetwork(recipe.shape(len(tokenizer), len(labels)), generator)
    if recipe.vectors == "glove":
        start_from(network.W_e, tokenizer)
    examples, checks = (Examples.of(tokenizer, d, guide) for d in (learnt, held))
    run = Run(network, optimizer(network, recipe))
    task = Classify(examples, checks, recipe.batch, rng)
    train(run, task, recipe.epochs, unfinished=unfinished)
    pairs = any(d.pair is not None for d in learnt)
    model = Recurrent(network, tokenizer, labels, name, pairs)
    return Training(model, recipe, run.history, run.best, run.seconds)


def optimizer(network: RecurrentNetwork, recipe: RecurrentRecipe) -> torch.optim.Optimizer:
    """Adam as in the papers; the attention does not decay."""
    attention = network.attends()
    others = [p for p in network.parameters() if all(p is not a for a in attention)]
    groups = [{"params": others, "weight_decay": recipe.weight_decay}]
    if attention:
        groups.append({"params": attention, "weight_decay": 0.0})
    return torch.optim.Adam(groups, lr=recipe.learning_rate, amsgrad=True, fused=True)
