"""Training: planted words are learnt, the seed decides everything, recipes are what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from heed.errors import InputError
from heed.text import Document
from heed.training.card import accuracy
from heed.training.own import fit
from heed.training.recipes import RECIPES, change

FILLER = [f"w{i}" for i in range(40)]
PLANTED = (["sour", "bitter"], ["sweet", "mellow"], ["salty", "briny"])
SMALL = change(
    RECIPES["default"],
    {
        "epochs": 5,
        "batch": 16,
        "learning_rate": 0.02,
        "d_e": 16,
        "heads": 2,
        "d_att": 8,
        "d_out": 8,
        "max_words": 20,
    },
)


def planted(count: int, seed: int, labels: int = 2, pairs: bool = False) -> list[Document]:
    """One planted word among filler gives the label away; in a pair it may stand on either side."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        words = [str(w) for w in rng.choice(FILLER, 10)]
        words[rng.integers(10)] = str(rng.choice(PLANTED[i % labels]))
        text, pair = (
            (" ".join(words[:5]), " ".join(words[5:])) if pairs else (" ".join(words), None)
        )
        found.append(Document(text, pair, label=i % labels))
    return found


NAMES = ("bad", "good", "odd")


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("pairs", [False, True])
def test_planted_words_are_learnt(labels: int, pairs: bool) -> None:
    done = fit(planted(400, 0, labels, pairs), NAMES[:labels], SMALL, name="planted")
    assert accuracy(done.model, planted(300, 1, labels, pairs)) > 0.95
    assert done.model.labels == NAMES[:labels] and done.model.name == "planted"
    assert [row["epoch"] for row in done.history] == [1, 2, 3, 4, 5]


def test_the_paper_recipe_trains_with_padding_that_attends() -> None:
    recipe = change(
        RECIPES["paper"],
        {"epochs": 6, "learning_rate": 0.01, "d_e": 16, "heads": 2, "max_words": 12},
    )
    done = fit(planted(400, 0), ("bad", "good"), recipe)
    assert done.model.shape.padding == "attends"
    assert accuracy(done.model, planted(300, 1)) > 0.95


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    documents = planted(100, 0)
    recipe = replace(SMALL, epochs=2)
    once, again, other = (fit(documents, ("bad", "good"), recipe, seed=s).model for s in (1, 1, 2))
    for key, value in once.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[key])
    assert once.revision == again.revision != other.revision


def test_training_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    fit(planted(40, 0), ("bad", "good"), replace(SMALL, epochs=1))
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_the_best_epoch_is_kept() -> None:
    """Steps much too large spoil a model that was good; kept are the weights of the best epoch."""
    held = planted(100, 7)
    recipe = replace(
        SMALL, epochs=6, learning_rate=1.0, average=0.0, schedule="constant", word_dropout=0.0
    )
    done = fit(planted(200, 0), ("bad", "good"), recipe, validation=held)
    accuracies = [row["accuracy"] for row in done.history]
    assert done.best == int(np.argmax(accuracies)) + 1
    assert accuracy(done.model, held) == pytest.approx(max(accuracies))


def test_documents_for_validation_are_not_trained_on() -> None:
    held = [Document(f"only here {d.text}", label=d.label) for d in planted(20, 7)]
    model = fit(planted(100, 0), ("bad", "good"), replace(SMALL, epochs=1), validation=held).model
    assert "only" not in model.tokenizer.backend.get_vocab()


def test_the_vocabulary_follows_the_recipe() -> None:
    model = fit(
        planted(100, 0), ("bad", "good"), change(SMALL, {"epochs": 1, "vocabulary": 7})
    ).model
    assert len(model.tokenizer) == model.shape.vocabulary == 10
    rare = [*planted(60, 0), Document("hapax legomenon", label=0)]
    model = fit(rare, ("bad", "good"), change(SMALL, {"epochs": 1, "min_count": 2})).model
    assert "hapax" not in model.tokenizer.backend.get_vocab()


# Recipes


def test_the_paper_recipe_is_that_of_the_paper() -> None:
    paper = RECIPES["paper"]
    assert (paper.learning_rate, paper.batch, paper.epochs, paper.schedule) == (
        1e-4,
        16,
        10,
        "constant",
    )
    assert (paper.word_dropout, paper.smoothing, paper.average, paper.embedding_scale) == (
        0,
        0,
        0,
        1,
    )
    assert paper.shape == {"max_words": 256, "padding": "attends"}
    assert paper.validation == 0.2  # 20k / 5k
    model = fit(planted(20, 0), ("bad", "good"), change(paper, {"epochs": 1})).model
    shape = model.shape
    assert (shape.d_e, shape.heads, shape.d_att, shape.d_out, shape.biases) == (
        128,
        6,
        64,
        64,
        False,
    )
    assert model.tokenizer.max_tokens == 257


def test_settings_of_a_recipe_and_of_its_shape_are_changed_together() -> None:
    changed = change(
        RECIPES["default"],
        {"epochs": "3", "heads": "2", "padding": "attends", "vocabulary": "none"},
    )
    assert (changed.epochs, changed.vocabulary) == (3, None)
    assert changed.shape == RECIPES["default"].shape | {"heads": 2, "padding": "attends"}
    assert "heads" not in RECIPES["default"].shape  # the recipe itself is untouched
    assert change(RECIPES["paper"], {}) == RECIPES["paper"]


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 3},
        {"labels": 3},
        {"shape": {}},
        {"epochs": "many"},
        {"epochs": 2.5},
        {"padding": "none"},
    ],
    ids=str,
)
def test_a_setting_that_does_not_exist_or_fit_is_refused(changes: dict) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        change(RECIPES["default"], changes)


# Data that cannot be trained on


@pytest.mark.parametrize(
    "documents",
    [
        [],
        planted(9, 0),
        [replace(d, label=0) for d in planted(50, 0)],
        [replace(d, label=None) for d in planted(50, 0)],
    ],
    ids=["none", "few", "one label", "no labels"],
)
def test_too_little_data_is_refused(documents: list[Document]) -> None:
    with pytest.raises(InputError, match="at least 10 documents and two labels"):
        fit(documents, ("bad", "good"), SMALL)


def test_documents_without_a_label_are_left_out() -> None:
    documents = planted(40, 0)
    extra = [Document("unlabelled words here")] * 20
    once = fit(documents, ("bad", "good"), replace(SMALL, epochs=1)).model
    again = fit(documents + extra, ("bad", "good"), replace(SMALL, epochs=1)).model
    assert once.revision == again.revision


def test_a_label_beyond_the_names_is_refused() -> None:
    with pytest.raises(InputError):
        fit(planted(60, 0, labels=3), ("bad", "good"), replace(SMALL, epochs=1))
