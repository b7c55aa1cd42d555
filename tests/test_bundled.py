"""The models that come with heed."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import heed
from heed import data
from heed.methods import METHODS
from heed.models.folders import BUNDLED, DEFAULT, bundled, facts
from heed.models.single_layer import SingleLayer
from heed.text import Tokenizer
from heed.training.card import accuracy

EXACT = ("lime-exact", "lime-theorem", "shapley-exact")  # for the single-layer classifier
SECOND = "transformer-imdb"
GOOD = (
    "A wonderful, moving film with superb acting. I loved every minute of it.",
    "One of the best movies I have ever seen: brilliant script, great cast, beautiful music.",
    "An excellent and charming comedy, highly recommended.",
    "perfect",
)
BAD = (
    "A terrible, boring mess with awful acting. I hated every minute of it.",
    "One of the worst movies I have ever seen: stupid script, poor cast, annoying music.",
    "A dull and lifeless comedy, a complete waste of time.",
    "worst",
)


@pytest.fixture(scope="module")
def model() -> SingleLayer:
    return heed.load()


@pytest.fixture(scope="module")
def folder() -> Path:
    return bundled()[DEFAULT]


def test_it_is_what_is_loaded_without_a_name(model: SingleLayer) -> None:
    assert isinstance(model, SingleLayer)
    assert model.name == DEFAULT
    assert model.labels == ("negative", "positive")
    assert heed.load(DEFAULT).revision == model.revision
    assert heed.load(bundled()[DEFAULT]).revision == model.revision


def test_it_masks_padding(model: SingleLayer) -> None:
    assert model.shape.padding == "masked"


def test_files_are_small_and_safe(folder: Path) -> None:
    files = [p for p in BUNDLED.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert {p.suffix for p in files} <= {".safetensors", ".json", ".md"}
    assert {p.name for p in folder.iterdir()} == {
        "model.safetensors",
        "model.json",
        "tokenizer.json",
        "README.md",
    }
    assert sum(p.stat().st_size for p in folder.iterdir()) < 8_000_000
    assert sum(p.stat().st_size for p in bundled()[SECOND].iterdir()) < 4_000_000


def test_the_card_names_data_recipe_command_accuracy_and_limits(folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf8")
    config = json.loads((folder / "model.json").read_text(encoding="utf8"))
    for row in ("data", "recipe", "command", "seed", "validation accuracy", "test accuracy"):
        assert f"| {row} |" in card
    assert "imdb" in card and "25,000 documents" in card
    assert "`heed train single-layer --data imdb" in card
    assert f"{config['test']['accuracy']:.2%}" in card
    assert "Limits:" in card
    assert not re.search(r"(?<![\w.])/\w", card)  # no path of the machine that trained it
    assert config["command"] in card
    assert config["test"]["accuracy"] >= 0.86
    assert config["test"]["documents"] == 25_000
    assert config["recipe"]["name"] == "default"


def test_the_card_of_the_transformer_names_data_recipe_command_accuracy_and_limits() -> None:
    folder = bundled()[SECOND]
    card = (folder / "README.md").read_text(encoding="utf8")
    config = facts(folder)
    for row in ("data", "recipe", "command", "seed", "validation accuracy", "test accuracy"):
        assert f"| {row} |" in card
    assert (
        "`heed train transformer --scratch 2x128 --data imdb --fp16" in card and "Limits:" in card
    )
    assert f"{config['test']['accuracy']:.2%}" in card and config["command"] in card
    assert not re.search(r"(?<![\w.])/\w", card)
    assert (config["test"]["accuracy"] >= 0.84, config["test"]["documents"]) == (True, 25_000)


def test_the_transformer_is_loaded_by_its_name_and_has_all_methods() -> None:
    model = heed.load(SECOND)
    assert model.name == SECOND and model.labels == ("negative", "positive")
    probabilities = model.predict([*GOOD, *BAD])
    assert (probabilities[: len(GOOD), 1] > 0.5).all() and (
        probabilities[len(GOOD) :, 0] > 0.5
    ).all()
    assert {n for n, cls in METHODS.items() if not cls.needs <= model.offers} == {
        n for n in METHODS if n in EXACT
    }
    assert model.model.dtype == torch.float32


def test_accuracy_of_the_transformer_on_a_sample_of_the_test_set() -> None:
    if data.sources("imdb", "test") is None:
        pytest.skip(
            "the IMDB test set is not on this machine: set HEED_DATA to a folder that has it"
        )
    assert (
        accuracy(heed.load(SECOND), data.load("imdb", "test", limit=400, seed=0).documents) >= 0.82
    )


def test_obvious_reviews_are_told_apart(model: SingleLayer) -> None:
    probabilities = model.predict([*GOOD, *BAD])
    assert (probabilities[: len(GOOD), 1] > 0.9).all()
    assert (probabilities[len(GOOD) :, 0] > 0.9).all()
    assert np.allclose(probabilities.sum(1), 1)


def test_what_decides_is_what_anyone_would_point_to(model: SingleLayer) -> None:
    text = "the selection is great but the service is bad"
    for method in ("lime", "occlusion", "shapley", "gradient-input", "integrated-gradients"):
        scores = {
            w.text: s
            for w, s in zip(
                *_both(heed.explain(model, text, method, label="negative")), strict=True
            )
        }
        ordered = sorted(scores, key=scores.__getitem__)
        assert (ordered[0], ordered[-1]) == ("great", "bad")


def _both(e: heed.Explanation) -> tuple[tuple, list[float]]:
    return e.units, e.scores.tolist()


def test_half_precision_on_disk_is_computed_in_single(model: SingleLayer) -> None:
    assert {str(p.dtype) for p in model.network.parameters()} == {"torch.float32"}


def test_accuracy_on_a_sample_of_the_test_set(model: SingleLayer) -> None:
    if data.sources("imdb", "test") is None:
        pytest.skip(
            "the IMDB test set is not on this machine: set HEED_DATA to a folder that has it"
        )
    sample = data.load("imdb", "test", limit=2000, seed=0)
    assert accuracy(model, sample.documents) >= 0.86


def test_the_tokenizer_of_the_bundled_model_is_the_one_of_the_code() -> None:
    stored = json.loads(heed.load().tokenizer.backend.to_str())
    today = json.loads(Tokenizer.words(["film"], 10).backend.to_str())
    for part in ("normalizer", "pre_tokenizer", "post_processor"):
        assert stored[part] == today[part]
