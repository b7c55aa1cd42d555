"""Word vectors to start from: known words get theirs, others stay as they are."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import heed
from heed.errors import DataError
from heed.text import Tokenizer
from heed.training import recipes, vectors
from heed.training.recipes import RecurrentRecipe
from heed.training.recurrent import fit


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the same form with three words."""
    folder = tmp_path / "little_vectors"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    pq.write_table(
        pa.table({"index": ["film", "good", "zebra"]}), folder / "data" / "glove_6B_index.parquet"
    )
    np.save(
        folder / "data" / "glove_6B_50d_emb.npy", np.arange(150, dtype=np.float32).reshape(3, 50)
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    monkeypatch.setattr(recipes, "GLOVE", "little_vectors")
    return folder


def test_known_words_start_from_their_vectors(package: Path) -> None:
    tokenizer = Tokenizer.words(["a", "film", "good"], 10)
    table = torch.full((len(tokenizer), 50), -1.0)
    assert vectors.start_from(table, tokenizer) == 2
    rows = {word: table[i].tolist() for word, i in tokenizer.backend.get_vocab().items()}
    assert rows["film"] == list(range(50)) and rows["good"] == list(range(50, 100))
    assert set(rows["a"]) == set(rows["<unk>"]) == {-1.0}
    nothing = torch.zeros(4, 50)
    assert vectors.start_from(nothing, Tokenizer.words(["x"], 10)) == 0 and not nothing.any()


def test_training_starts_from_them(package: Path) -> None:
    recipe = RecurrentRecipe(
        vectors="glove", encoder="average", epochs=1, learning_rate=1e-6, hidden=8
    )
    done = fit(list(heed.data.tasks.generate("reviews", 40, 0)), ("negative", "positive"), recipe)
    place = done.model.tokenizer.backend.token_to_id("film")
    np.testing.assert_allclose(done.model.network.W_e[place].numpy(), np.arange(50), atol=1e-3)


def test_what_is_missing_or_broken_is_told(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "data" / "glove_6B_50d_emb.npy").write_bytes(b"broken")
    with pytest.raises(DataError, match="cannot be read"):
        vectors.glove()
    monkeypatch.setattr(recipes, "GLOVE", "no_such_package_of_vectors")
    with pytest.raises(DataError, match="pip install"):
        vectors.glove()
