"""Texts that begin alike are read once up to where they part.

In a causal model no token depends on those behind it. What a beginning leaves for the tokens that
follow is its keys and values, so that texts without some of their words can go on from there: from
the end of the template at least, and from the first removed word at best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from heed.models.passes import Row

_LEAST = 0.2  # of a batch's tokens must be saved; below that, two passes are slower than one
# how a config names the number of tokens that some layers look back
_WINDOWS = ("sliding_window", "window_size", "attention_window", "attention_chunk_size")

KeysValues = tuple[Float[Tensor, "batch group token dim"], Float[Tensor, "batch group token dim"]]


@dataclass(frozen=True, eq=False)
class Beginning:
    """The first tokens of a text, and the keys and values that each layer made of them."""

    ids: Int[np.ndarray, "token"]
    layers: tuple[KeysValues, ...]

    @classmethod
    def of(cls, ids: Int[np.ndarray, "token"], cache: DynamicCache) -> Beginning:
        return cls(ids, tuple((layer.keys, layer.values) for layer in cache.layers))

    def __len__(self) -> int:
        return len(self.ids)

    def cut(self, length: int) -> Beginning:
        """Its first tokens: they are what they would be without the others."""
        layers = tuple((k[:, :, :length], v[:, :, :length]) for k, v in self.layers)
        return Beginning(self.ids[:length], layers)

    def before(self, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        """Inputs of a model without these tokens, which it finds in a cache."""
        batch = len(inputs["input_ids"])
        rest: dict[str, Any] = {
            # the mask speaks of the tokens in the cache, too
            name: tensor if name == "attention_mask" else tensor[:, len(self) :]
            for name, tensor in inputs.items()
        }
        layers = [
            (k.expand(batch, -1, -1, -1), v.expand(batch, -1, -1, -1)) for k, v in self.layers
        ]
        return rest | {"past_key_values": DynamicCache(layers), "use_cache": True}


NOTHING = Beginning(np.empty(0, dtype=np.int64), ())

# the beginning that was read last; kept for the passes of one call, while no weight can change
_last: ContextVar[Beginning] = ContextVar("heed_beginning", default=NOTHING)


@contextmanager
def remembered() -> Iterator[None]:
    """Keep a beginning from pass to pass."""
    token = _last.set(NOTHING)
    try:
        yield
    finally:
        _last.reset(token)


def begin(rows: Sequence[Row], go_on: Callable[[Beginning, Row], Beginning]) -> Beginning:
    """What all of these rows begin with, read unless it is known; NOTHING if it is too little.

    go_on   reads a row that starts with a beginning
    """
    length = shared(rows)
    last = _last.get()
    row = Row(rows[0].ids[:length], rows[0].types[:length])
    known = _alike(row.ids, last.ids)
    saved = len(rows) * length - (length - known)
    if saved < _LEAST * sum(len(row.ids) for row in rows):
        return NOTHING
    if known < length:
        last = go_on(last.cut(known), row)
        _last.set(last)
    return last.cut(length)


def shared(rows: Sequence[Row]) -> int:
    """With how many tokens all rows begin. They see all of them, and each goes on behind them."""
    shortest = min(len(row.ids) for row in rows) - 1
    first = rows[0]
    alike = np.ones(shortest, dtype=bool)
    for row in rows:
        alike &= (row.ids[:shortest] == first.ids[:shortest]) & (
            row.types[:shortest] == first.types[:shortest]
        )
        if row.seen is not None:
            alike &= row.seen[:shortest]
    return shortest if alike.all() else int(alike.argmin())


def _alike(a: Int[np.ndarray, "_"], b: Int[np.ndarray, "_"]) -> int:
    """How many numbers two arrays have in common at the beginning."""
    length = min(len(a), len(b))
    same = a[:length] == b[:length]
    return length if same.all() else int(same.argmin())


def window(config: Any) -> int | None:
    """How many tokens a layer looks back at most, if it does not look back to the beginning."""
    named = [getattr(config, name, None) for name in _WINDOWS]
    return min((n for n in named if isinstance(n, int) and n > 0), default=None)
