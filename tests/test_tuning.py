"""Training transformers: words are learnt, interruptions change nothing, the folder is a model."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from test_training import NAMES, planted
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import heed
from heed.errors import InputError
from heed.models.folders import UNFINISHED
from heed.models.network import round_to_fp16
from heed.text import Document
from heed.training import loop, recipes, transformer
from heed.training.card import accuracy
from tests.test_loop import interrupt

SMALL = recipes.tuning(
    True,
    {
        "epochs": 5,
        "batch": 16,
        "learning_rate": 0.003,
        "heads": 2,
        "max_tokens": 24,
        "average": 0.9,
        "word_dropout": 0.1,
    },
)
FACTS = {
    "data": {"name": "planted", "split": "train", "documents": 400, "source": "generated"},
    "recipe": {"name": "scratch"},
    "command": "heed train",
    "seed": 0,
    "history": [{"epoch": 1, "loss": 0.1, "accuracy": 0.9}],
    "best_epoch": 1,
    "test": None,
    "seconds": 1,
    "base": None,
}


def weights(tuned: transformer.TrainedTransformer) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in tuned.network.state_dict().items()}


@pytest.mark.parametrize(("labels", "pairs"), [(2, False), (3, True)])
def test_planted_words_are_learnt_from_scratch(labels: int, pairs: bool) -> None:
    recipe = replace(SMALL, epochs=8)
    done = transformer.fit(
        planted(400, 0, labels, pairs), NAMES[:labels], recipe, size=(1, 16), name="planted"
    )
    assert accuracy(done.model, planted(300, 1, labels, pairs)) > 0.95
    assert done.model.labels == NAMES[:labels] and done.model.name == "planted"
    assert [row["epoch"] for row in done.history] == list(range(1, 9))
    assert done.history[done.best - 1]["accuracy"] == max(row["accuracy"] for row in done.history)


def test_word_pieces_are_those_of_the_texts_alone() -> None:
    """Frequent words are pieces of their own, rarer ones several, inner ones marked ##."""
    texts = ["the naïve showing of it<br />"] * 30 + ["shows, showed; shown?", "日本 the 😀x"]
    once, again = (transformer._wordpiece(texts, 200) for _ in range(2))
    assert once.to_str() == again.to_str()
    assert once.encode("The naive showing").tokens == ["[CLS]", "the", "naive", "showing", "[SEP]"]
    tokens = once.encode("showthe", "日").tokens
    assert "".join(t.removeprefix("##") for t in tokens) == "[CLS]showthe[SEP]日[SEP]" and tokens[
        2
    ].startswith("##")
    assert "<" not in once.get_vocab() and "[UNK]" in once.encode("Ω").tokens


def test_the_seed_decides_everything() -> None:
    documents, recipe = planted(64, 0), replace(SMALL, epochs=1)
    once, again, other = (
        weights(transformer.fit(documents, NAMES[:2], recipe, size=(1, 16), seed=seed))
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(once[key], again[key]) for key in once)
    assert any(not torch.equal(once[key], other[key]) for key in once)


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize(
    ("where", "at"), [("_learn", 3), ("_learn", 9), ("_close_epoch", 2), ("_close_epoch", 3)]
)
def test_an_interrupted_training_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, at: int, average: float
) -> None:
    """Ctrl-C within a step, at the end of an epoch, while it is validated; then the same again."""
    documents = planted(88, 0)  # 79 to train on: five steps an epoch
    recipe = replace(SMALL, epochs=3, average=average, dropout=0.2)
    whole = transformer.fit(documents, NAMES[:2], recipe, size=(1, 16))

    interrupt(monkeypatch, where, at)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        transformer.fit(documents, NAMES[:2], recipe, size=(1, 16), resume=tmp_path)
    assert signal.getsignal(signal.SIGINT) is handler
    with safe_open(tmp_path / UNFINISHED, "pt") as file:
        assert f'"step": {at if where == "_learn" else 5 * at}' in file.metadata()["numbers"]
    monkeypatch.undo()
    rest = transformer.fit(documents, NAMES[:2], recipe, size=(1, 16), resume=tmp_path)
    assert all(torch.equal(value, weights(rest)[key]) for key, value in weights(whole).items())
    assert rest.history == whole.history and rest.best == whole.best


def test_a_state_that_was_saved_before_its_validation_is_validated(tmp_path: Path) -> None:
    documents, recipe = planted(88, 0), replace(SMALL, epochs=1)
    whole = transformer.fit(documents, NAMES[:2], recipe, size=(1, 16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_SAVE_EVERY", -1.0)  # after every step
        patch.setattr(loop, "_close_epoch", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            transformer.fit(documents, NAMES[:2], recipe, size=(1, 16), resume=tmp_path)
    rest = transformer.fit(documents, NAMES[:2], recipe, size=(1, 16), resume=tmp_path)
    assert rest.history == whole.history
    assert all(torch.equal(value, weights(rest)[key]) for key, value in weights(whole).items())


def test_a_folder_holds_the_newest_model_alone(tmp_path: Path) -> None:
    from heed.models import checkpoint
    from heed.training.own import fit

    folder = tmp_path / "m"
    single = fit(planted(60, 0), NAMES[:2], replace(recipes.RECIPES["default"], epochs=1)).model
    tuned = transformer.fit(
        planted(60, 0), NAMES[:2], replace(SMALL, epochs=1), size=(1, 16), resume=folder
    )
    checkpoint.save(single, folder, {})
    assert {p.name for p in folder.iterdir()} == {
        "model.json",
        "model.safetensors",
        "tokenizer.json",
    }
    transformer.save(tuned, folder, FACTS)
    assert not (folder / "model.json").exists()
    assert heed.load(folder).offers >= {"attention", "gradients"}


def test_a_state_of_another_training_is_refused(tmp_path: Path) -> None:
    documents, recipe = planted(40, 0), replace(SMALL, epochs=1)
    transformer.fit(documents, NAMES[:2], recipe, size=(1, 16), resume=tmp_path)
    with pytest.raises(InputError, match="other data or settings"):
        transformer.fit(documents, NAMES[:2], recipe, size=(1, 16), seed=1, resume=tmp_path)
    with pytest.raises(InputError, match="other data or settings"):
        transformer.fit(documents[:-1], NAMES[:2], recipe, size=(1, 16), resume=tmp_path)
    (tmp_path / UNFINISHED).write_bytes(b"nonsense")
    with pytest.raises(InputError, match="begin anew"):
        transformer.fit(documents, NAMES[:2], recipe, size=(1, 16), resume=tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned") / "planted"
    done = transformer.fit(
        planted(400, 0, 3),
        NAMES,
        replace(SMALL, epochs=8),
        size=(1, 16),
        name="planted",
        resume=folder,
    )
    round_to_fp16(done.network)
    transformer.save(done, folder, FACTS, fp16=True)
    return folder


def test_the_folder_is_a_model_for_heed_and_for_transformers(folder: Path) -> None:
    assert not (folder / UNFINISHED).exists()
    model = heed.load(folder)
    assert model.labels == NAMES and accuracy(model, planted(300, 1, 3)) > 0.95
    assert model.tokenizer.max_tokens == 24
    theirs = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = planted(1, 3)[0].text
    with torch.no_grad():
        expected = theirs(**tokenizer(text, return_tensors="pt")).logits.numpy()
    np.testing.assert_allclose(model([text]), expected, atol=1e-5)
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert all(file.get_slice(key).get_dtype() == "F16" for key in file.keys())  # noqa: SIM118
    card = (folder / "README.md").read_text(encoding="utf8")
    assert "trained from scratch" in card and "Limits:" in card and "reads 24 tokens" in card


def test_a_model_of_pairs_reads_its_segments_when_it_comes_from_a_folder(tmp_path: Path) -> None:
    pairs = planted(60, 0, 3, pairs=True)
    recipe = replace(SMALL, epochs=1)
    done = transformer.fit(pairs, NAMES, recipe, size=(1, 16), name="planted")
    transformer.save(done, tmp_path / "pairs", FACTS)
    again = heed.load(tmp_path / "pairs")
    np.testing.assert_allclose(again(pairs), done.model(pairs), atol=1e-6)


def test_a_model_is_trained_further_with_a_head_of_another_size(folder: Path) -> None:
    before = (folder / "model.safetensors").read_bytes()
    recipe = replace(SMALL, epochs=2, average=0.0, word_dropout=0.0)
    done = transformer.fit(planted(400, 0), NAMES[:2], recipe, base=folder)
    assert done.model.labels == NAMES[:2]
    assert accuracy(done.model, planted(300, 1)) > 0.95
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_model_without_padding_token_is_trained_further(tmp_path: Path) -> None:
    from test_transformer import network, tokenizer

    network("gpt2").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    done = transformer.fit(
        planted(60, 0), NAMES[:2], replace(SMALL, epochs=1, average=0.0), base=tmp_path
    )
    transformer.save(done, tmp_path / "out", FACTS | {"base": "gpt2"})
    text = planted(1, 3)[0].text
    np.testing.assert_allclose(heed.load(tmp_path / "out")([text]), done.model([text]), atol=1e-5)


@pytest.mark.parametrize("bad", ["2", "x", "2x", "0x128", "2x128x3", "axb"])
def test_sizes_that_are_none_are_refused(bad: str) -> None:
    with pytest.raises(InputError, match="2x128"):
        recipes.size(bad)
    assert recipes.size("2x128") == (2, 128)


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 0},
        {"learning_rate": 0},
        {"warmup": 1},
        {"heads": 0},
        {"max_tokens": 2},
        {"validation": 0},
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        recipes.tuning(False, changes)


def test_heads_must_share_the_width() -> None:
    with pytest.raises(InputError, match="width 15"):
        transformer.fit(
            [Document("a b", label=i % 2) for i in range(20)], NAMES[:2], SMALL, size=(1, 15)
        )
