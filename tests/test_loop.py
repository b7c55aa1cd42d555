"""The one loop of training: averages, schedules, interruptions, and what is kept of it."""

from __future__ import annotations

import copy
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import heed
from heed.errors import InputError
from heed.store import Store
from heed.training import loop, own, recurrent, transformer, unfinished
from heed.training.again import Retraining
from heed.training.again_transformer import TransformerRetraining
from heed.training.recipes import RECIPES, Recipe, change, tuning
from heed.training.recipes import recurrent as recurrent_recipe
from tests.test_training import NAMES, SMALL, planted

QUICK = replace(SMALL, epochs=3)
ENCODER = recurrent_recipe({"encoder": "cnn", "epochs": 3, "batch": 16, "width": 8, "hidden": 8})
STACK = {"layers": 2, "width": 16, "heads": 2, "max_words": 20, "block": "gelu"}
TUNING = tuning(
    True, {"epochs": 2, "batch": 16, "learning_rate": 0.003, "heads": 2, "max_tokens": 24}
)
DOCUMENTS = planted(88, 0)  # 79 to train on: five steps an epoch


# What torch computes is what the formulas say


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.33])
@pytest.mark.parametrize("steps", [1, 7, 100])
def test_the_learning_rate_rises_and_falls_along_a_cosine(steps: int, warmup: float) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, loop.cosine(steps, warmup))
    warm = warmup * steps
    for step in range(steps):
        share = 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm)))
        if step < warm:
            share = (step + 1) / (warm + 1)
        assert optimizer.param_groups[0]["lr"] == 0.3 * share
        optimizer.step()
        scheduler.step()


def test_the_mean_of_the_weights_follows_the_formula() -> None:
    """mean ← d·mean + (1 - d)·weights, with d = min(decay, step / (step + 10)), from the start."""
    network = torch.nn.Linear(3, 2)
    mean = loop.averaged(network, 0.6)
    assert mean is not None and loop.averaged(network, 0.0) is None
    expected = {key: value.double() for key, value in network.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 40):
        for parameter in network.parameters():
            parameter.data += torch.randn(parameter.shape, generator=generator)
        mean.update_parameters(network)
        decay = min(0.6, step / (step + 10))
        for key, value in network.state_dict().items():
            expected[key] = decay * expected[key] + (1 - decay) * value.double()
    for key, value in mean.module.state_dict().items():
        torch.testing.assert_close(value.double(), expected[key], rtol=1e-5, atol=1e-6)


def old_weights(recipe: Recipe) -> dict[str, torch.Tensor]:
    """A training of the single-layer classifier written out: what the loop did before torch did."""
    import numpy as np

    from heed.models.shapes import Shape
    from heed.models.single_layer import Network
    from heed.text import Tokenizer
    from heed.training.examples import Examples, padded, shuffled_batches, split

    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    learnt, _ = split(DOCUMENTS, None, NAMES[:2], recipe.validation, rng)
    tokenizer = Tokenizer.train((d.text for d in learnt), 21, recipe.vocabulary, recipe.min_count)
    network = Network(Shape(len(tokenizer), 2, **recipe.shape), generator)
    network.W_e.data.mul_(recipe.embedding_scale)
    mean = copy.deepcopy(network)
    examples = Examples.of(tokenizer, learnt)
    optimizer = torch.optim.AdamW(
        network.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )
    step, steps = 0, recipe.epochs * math.ceil(len(learnt) / recipe.batch)
    for _ in range(recipe.epochs):
        for batch in shuffled_batches(examples.ids, recipe.batch, rng):
            share = 0.5 * (1 + math.cos(math.pi * step / steps))
            optimizer.param_groups[0]["lr"] = recipe.learning_rate * share
            ids, mask = padded(network, [examples.ids[i] for i in batch])
            drop = torch.rand(ids.shape, generator=generator) < recipe.word_dropout
            logits = network(ids.masked_fill(drop & (ids > 2), 0), mask)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(
                logits, examples.gold[batch], label_smoothing=recipe.smoothing
            ).backward()
            optimizer.step()
            step += 1
            decay = min(recipe.average, step / (step + 10))
            with torch.no_grad():
                for old, new in zip(mean.parameters(), network.parameters(), strict=True):
                    old.lerp_(new, 1 - decay)
    return mean.state_dict()


def test_a_training_that_is_written_out_gives_the_same_weights() -> None:
    recipe = replace(QUICK, epochs=1)
    trained = own.fit(DOCUMENTS, NAMES[:2], recipe).model.network.state_dict()
    for key, value in old_weights(recipe).items():
        torch.testing.assert_close(trained[key], value, rtol=1e-6, atol=1e-7)


# Interruptions


def train_own(folder: Path | None) -> Any:
    return own.fit(DOCUMENTS, NAMES[:2], QUICK, resume=folder).model.network


def train_stack(folder: Path | None) -> Any:
    recipe = replace(QUICK, average=0.0, schedule="constant")
    return own.fit(DOCUMENTS, NAMES[:2], recipe, stack=STACK, resume=folder).model.network


def train_uniform(folder: Path | None) -> Any:
    return own.fit(DOCUMENTS, NAMES[:2], QUICK, uniform=True, resume=folder).model.network


def train_recurrent(folder: Path | None) -> Any:
    return recurrent.fit(DOCUMENTS, NAMES[:2], ENCODER, resume=folder).model.network


def train_adversary(folder: Path | None) -> Any:
    """Of a transformer, which draws its dropout from torch's generator."""
    trained = transformer.fit(DOCUMENTS, NAMES[:2], replace(TUNING, epochs=1), size=(1, 16))
    trained.model.facts = {"recipe": TUNING.to_dict(scratch=True), "base": None}
    again = TransformerRetraining(trained.model, DOCUMENTS, store=Store(folder))
    return again.adversary(1.0, epochs=3).model  # type: ignore[attr-defined]


def interrupt(patch: pytest.MonkeyPatch, where: str, at: int) -> None:
    """Ctrl-C, when a function of the loop has been called so many times."""
    calls, function = [], getattr(loop, where)

    def interrupted(*arguments: Any) -> Any:
        calls.append(where)
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGINT)
        return function(*arguments)

    patch.setattr(loop, where, interrupted)


@pytest.mark.parametrize(("where", "at"), [("_learn", 3), ("_learn", 10), ("_close_epoch", 2)])
@pytest.mark.parametrize("train", [train_own, train_stack, train_uniform, train_recurrent])
def test_every_training_resumes_to_the_same_weights(
    train: Callable[[Path | None], Any], where: str, at: int, tmp_path: Path
) -> None:
    whole = train(None).state_dict()
    state = torch.random.get_rng_state()
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, where, at)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path)
    resumed = train(tmp_path).state_dict()
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items())
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize(("where", "at"), [("_learn", 8), ("_learn", 12), ("_close_epoch", 3)])
def test_an_adversary_resumes_to_the_same_weights(where: str, at: int, tmp_path: Path) -> None:
    """The first five steps are those of the model that is disagreed with."""
    whole = train_adversary(None).state_dict()
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, where, at)
        with pytest.raises(KeyboardInterrupt):
            train_adversary(tmp_path)
    assert len(list((tmp_path / "unfinished").iterdir())) == 1
    resumed = train_adversary(tmp_path).state_dict()
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items())
    assert not list((tmp_path / "unfinished").iterdir())  # a finished training leaves no state


def test_a_state_of_another_training_is_refused(tmp_path: Path) -> None:
    train_own(tmp_path)
    with pytest.raises(InputError, match="other data or settings"):
        train_stack(tmp_path)
    with pytest.raises(InputError, match="other data or settings"):
        train_recurrent(tmp_path)


def test_a_training_begins_anew_when_its_code_has_changed(tmp_path: Path) -> None:
    said: list[str] = []
    whole = train_own(None).state_dict()
    train_own(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unfinished, "code_of", lambda module: f"mended {module}")
        patch.setattr(unfinished, "say", said.append)
        again = train_own(tmp_path).state_dict()
    assert len(said) == 1 and said[0].startswith("beginning anew: heed or a library has changed")
    assert all(torch.equal(value, again[key]) for key, value in whole.items())


def test_patience_ends_a_training(tmp_path: Path) -> None:
    """An adversary of strength 0 has nothing to gain: after the best epoch come three more."""
    base = own.fit(DOCUMENTS, NAMES[:2], QUICK)
    base.model.facts = {"recipe": QUICK.to_dict()}
    again = Retraining(base.model, DOCUMENTS, store=Store(tmp_path))
    epochs: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "say", epochs.append)
        again.adversary(0.0, epochs=40)
    assert 4 <= len(epochs) < 40


# What is kept


def test_models_are_kept_in_the_store(tmp_path: Path) -> None:
    base = own.fit(DOCUMENTS, NAMES[:2], QUICK).model
    base.facts = {"recipe": QUICK.to_dict(), "seed": 0}
    first = Retraining(base, DOCUMENTS, store=Store(tmp_path)).again(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own, "fit", lambda *_, **__: pytest.fail("trained again"))
        second = Retraining(base, DOCUMENTS, store=Store(tmp_path)).again(1)
        assert second.revision == first.revision
        with pytest.raises(pytest.fail.Exception):  # other documents are another training
            Retraining(base, DOCUMENTS[:-1], store=Store(tmp_path)).again(1)
        with pytest.raises(pytest.fail.Exception):
            Retraining(base, DOCUMENTS[:-4], DOCUMENTS[-4:], Store(tmp_path)).again(1)


def test_a_model_of_uniform_attention_comes_back_from_the_store_as_one(tmp_path: Path) -> None:
    trained = transformer.fit(DOCUMENTS, NAMES[:2], replace(TUNING, epochs=1), size=(1, 16))
    trained.model.facts = {"recipe": TUNING.to_dict(scratch=True), "base": None}
    once, again = (
        TransformerRetraining(trained.model, DOCUMENTS, store=Store(tmp_path)).again(
            2, uniform=True
        )
        for _ in range(2)
    )
    assert type(once) is type(again) and (once(DOCUMENTS) == again(DOCUMENTS)).all()


# The command line


@pytest.mark.parametrize("kind", ["single-layer", "recurrent", "transformer"])
def test_the_command_line_trains_what_python_trains(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very same weights, to the rounding of the file: no argument is taken for another."""
    from tests.test_cli import command

    monkeypatch.chdir(tmp_path)
    data = heed.data.tasks.generate("planted", 60, 0)
    given = (data.documents, data.labels)
    words = ["--data", "task:planted", "--limit", 60, "-o", "m", "--set", "epochs=1"]
    if kind == "single-layer":
        model = own.fit(*given, change(RECIPES["default"], {"epochs": 1})).model
    elif kind == "recurrent":
        model = recurrent.fit(*given, recurrent_recipe({"epochs": 1})).model
    else:
        words += ["--scratch", "1x16"]
        model = transformer.fit(*given, tuning(True, {"epochs": 1}), size=(1, 16)).model
    assert command("train", kind, *words).code == 0
    assert heed.load("m").revision == model.revision
