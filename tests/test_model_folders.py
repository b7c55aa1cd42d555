"""Broken model folders: whatever is wrong with one, heed says so in one sentence or runs it."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import heed
from heed.errors import CheckpointError, HeedError, InputError
from heed.models import checkpoint
from heed.models.folders import ODD_TEXT
from heed.models.single_layer import SingleLayer
from tests.test_transformer import TEXTS, network, tokenizer

JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    7,
    2**31,
    10**25,
    0.5,
    float("nan"),
    "",
    "x",
    "relu",
    "0",
    [],
    [1],
    {},
    {"a": 1},
    "😀" * 500,
    [[]],
)


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folders") / "transformer"
    network("bert").save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    facts = {"recipe": {"name": "scratch", "epochs": 2}, "seed": 0, "data": {"name": "sst"}}
    (folder / "training.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture(scope="module")
def own(make: Callable[..., SingleLayer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folders") / "single-layer"
    facts = {"recipe": {"name": "default", "epochs": 2}, "seed": 0, "data": {"name": "sst"}}
    checkpoint.save(make(double=False), folder, facts)
    return folder


# Mutations, each drawn from a seed


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key of a JSON value."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    if isinstance(value, list):
        keys = list(range(len(value)))
    inner = [place for key in keys for place in places(value[key])]
    return [(value, key) for key in keys] + inner


def mutate_json(path: Path, rng: np.random.Generator) -> None:
    """Other values, missing values, a value too many; of a large vocabulary only few are drawn."""
    value = json.loads(path.read_text(encoding="utf8"))
    everywhere = places(value)
    near = [p for p in everywhere if len(p[0]) < 40]
    for _ in range(rng.integers(1, 4)):
        container, key = near[rng.integers(len(near))]
        choice = rng.integers(4)
        if choice == 0 and isinstance(container, dict):
            container.pop(key, None)
        elif choice == 1 and isinstance(container, dict):
            other, other_key = everywhere[rng.integers(len(everywhere))]
            container[key] = copy.deepcopy(other[other_key]) if other_key in other else None
        else:
            container[key] = JUNK[rng.integers(len(JUNK))]
    path.write_text(json.dumps(value), encoding="utf8")


def mutate_weights(path: Path, rng: np.random.Generator) -> None:
    """A tensor that is missing, of another shape or type, renamed, or not finite."""
    state = load_file(path)
    name = sorted(state)[rng.integers(len(state))]
    tensor = state.pop(name)
    changed = {
        0: dict,
        1: lambda: {name: tensor.flatten()[:-1].clone()},
        2: lambda: {name: torch.full_like(tensor, float("nan"))},
        3: lambda: {name: torch.full_like(tensor, 3e38)},
        4: lambda: {name: tensor.to(torch.int8)},
        5: lambda: {f"{name}.x": tensor},
        6: lambda: {name: torch.zeros(())},
        7: lambda: {name: tensor.unsqueeze(0).contiguous()},
    }[int(rng.integers(8))]()
    save_file(state | changed, path, {"format": "pt"})


def mutate_bytes(path: Path, rng: np.random.Generator) -> None:
    """Cut off, overwritten in places, empty, missing, or a folder."""
    content = bytearray(path.read_bytes())
    choice = rng.integers(5)
    path.unlink()
    if choice == 0:
        path.write_bytes(content[: rng.integers(len(content))])
    elif choice == 1:
        for _ in range(rng.integers(1, 20)):
            content[rng.integers(min(len(content), 2000))] = rng.integers(256)
        path.write_bytes(content)
    elif choice == 2:
        path.write_bytes(b"")
    elif choice == 3:
        path.mkdir()


def mutate(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    paths = sorted(folder.iterdir())
    path = paths[rng.integers(len(paths))]
    if rng.random() < 0.3:
        mutate_bytes(path, rng)
    elif path.suffix == ".json":
        mutate_json(path, rng)
    elif path.suffix == ".safetensors":
        mutate_weights(path, rng)


def answers_or_refuses(folder: Path) -> bool:
    """Whether the folder was refused; anything but an answer or a sentence is a failure."""
    try:
        model = heed.load(folder)
        for text in (TEXTS[0], TEXTS[1], ODD_TEXT, ("good", "bad")):
            assert np.isfinite(model([text])).all()
        heed.explain(model, TEXTS[0], "occlusion")
    except HeedError as error:
        message = str(error)
        assert message.endswith((".", "?")) and "\n" not in message, message
        assert len(message) < 700, message
        return True
    return False


def check(whole: Path, tmp_path: Path, seeds: range) -> None:
    refused = 0
    for seed in seeds:
        folder = tmp_path / str(seed)
        shutil.copytree(whole, folder)
        mutate(folder, seed)
        try:
            refused += answers_or_refuses(folder)
        except Exception as error:
            raise AssertionError(f"the mutation with seed {seed} gave {error!r}") from error
        shutil.rmtree(folder)
    assert len(seeds) / 4 < refused < len(seeds)  # many are broken, and not all


def test_broken_folders_of_hugging_face_are_refused_in_a_sentence(
    hugging_face: Path, tmp_path: Path
) -> None:
    check(hugging_face, tmp_path, range(50))


def test_broken_folders_of_heed_are_refused_in_a_sentence(own: Path, tmp_path: Path) -> None:
    check(own, tmp_path, range(50))


@pytest.mark.full
@pytest.mark.parametrize("part", range(5))
def test_many_broken_folders(hugging_face: Path, own: Path, tmp_path: Path, part: int) -> None:
    seeds = range(1000 + 100 * part, 1100 + 100 * part)
    check(hugging_face, tmp_path, seeds)
    check(own, tmp_path, seeds)


# Models that are something else than they seem


@pytest.mark.parametrize(
    "options",
    [
        {"num_labels": 1},
        {"num_labels": 1, "problem_type": "regression"},
        {"problem_type": "regression"},
    ],
    ids=["one output", "a regression", "several numbers"],
)
def test_a_regression_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    network("bert", **options).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="predicts a number, not a label"):
        heed.load(tmp_path)


def test_tokens_without_an_embedding_are_refused_where_a_text_has_them() -> None:
    larger = copy.deepcopy(tokenizer())
    larger.add_tokens([f"newword{i}" for i in range(9)])
    model = heed.models.transformer.Transformer(network("bert"), larger, "bert")
    like = heed.models.transformer.Transformer(network("bert"), tokenizer(), "bert")
    np.testing.assert_array_equal(model(TEXTS), like(TEXTS))
    with pytest.raises(InputError, match=r"'newword8' .* has no embedding in bert"):
        model([TEXTS[0], "a newword8 film"])


def test_padding_that_was_added_to_the_tokenizer_alone_is_not_used() -> None:
    larger = copy.deepcopy(tokenizer())
    larger.add_special_tokens({"pad_token": "[ADDED]"})
    model = heed.models.transformer.Transformer(
        network("llama", pad_token_id=None), larger, "llama"
    )
    np.testing.assert_allclose(model(TEXTS)[1:2], model(TEXTS[1:2]), atol=1e-4)


@pytest.mark.parametrize(
    ("key", "value"),
    [("recipe", 3), ("data", {"name": 3}), ("data", "sst"), ("seed", "x"), ("base", ["a"])],
)
def test_a_training_file_that_says_nothing_of_use_is_refused(
    hugging_face: Path, tmp_path: Path, key: str, value: object
) -> None:
    shutil.copytree(hugging_face, tmp_path / "m")
    path = tmp_path / "m" / "training.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(CheckpointError, match=rf"training\.json cannot be read .*{key}"):
        heed.load(tmp_path / "m")


# A process that is killed

_KILLED = """
import sys, time
from pathlib import Path
from heed.models.folders import writing
with writing(Path(sys.argv[1])) as scratch:
    (scratch / "model.json").write_text("{}")
    print("writing", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_process_was_writing_is_removed(
    make: Callable[..., SingleLayer], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    checkpoint.save(make(double=False), tmp_path / "other", {})
    alive = [p.name for p in tmp_path.iterdir() if p.name.startswith(".writing-")]
    assert len(alive) == 1  # what a living process writes is left alone
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    checkpoint.save(make(double=False), folder, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "other"]
