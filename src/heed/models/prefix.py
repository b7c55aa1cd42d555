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
from jaxtyping import Float
from torch import Tensor
from transformers import DynamicCache

from heed.models.passes import Row

_LEAST = 0.2  # of a batch's tokens must be saved; below that, two passes are slower than one
# how a config names the number of tokens that some layers look back
_WINDOWS = (
    "sliding_window",
    "window_size",
    "attention_window",
    "attention_chunk_size",
    "local_attention",
    "attention_window_size",
)
_SCALED_BY_LENGTH = ("longrope", "dynamic")
_TRAINED = "original_max_position_embeddings"

KeysValues = tuple[Float[Tensor, "batch group token dim"], Float[Tensor, "batch group token dim"]]


@dataclass(frozen=True, eq=False)
class Beginning:
    """The first tokens of a text, and the keys and values that each layer made of them."""

    row: Row
    layers: tuple[KeysValues, ...]

    @classmethod
    def of(cls, row: Row, cache: DynamicCache) -> Beginning:
        return cls(row, tuple((layer.keys, layer.values) for layer in cache.layers))

    def __len__(self) -> int:
        return len(self.row.ids)

    def cut(self, length: int) -> Beginning:
        """Its first tokens: they are what they would be without the others."""
        layers = tuple((k[:, :, :length], v[:, :, :length]) for k, v in self.layers)
        return Beginning(_first(self.row, length), layers)

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


_NO_TOKENS = np.empty(0, dtype=np.int64)
NOTHING = Beginning(Row(_NO_TOKENS, _NO_TOKENS), ())

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
    row = _first(rows[0], length)
    known = _alike([row, last.row], min(length, len(last)))
    saved = len(rows) * length - (length - known)
    if saved < _LEAST * sum(len(row.ids) for row in rows):
        return NOTHING
    if known < length:
        last = go_on(last.cut(known), row)
        _last.set(last)
    return last.cut(length)


def shared(rows: Sequence[Row]) -> int:
    """With how many tokens all rows begin. They see all of them, and each goes on behind them."""
    return _alike(rows, min(len(row.ids) for row in rows) - 1)


def _alike(rows: Sequence[Row], most: int) -> int:
    """How many tokens rows have in common at the beginning, and see; at most so many."""
    first = rows[0]
    alike = np.ones(most, dtype=bool)
    for row in rows:
        alike &= (row.ids[:most] == first.ids[:most]) & (row.types[:most] == first.types[:most])
        if row.seen is not None:
            alike &= row.seen[:most]
    return most if alike.all() else int(alike.argmin())


def _first(row: Row, length: int) -> Row:
    """The first tokens of a row, all of them seen."""
    return Row(row.ids[:length], row.types[:length])


def window(config: Any) -> int | None:
    """How many tokens a layer looks back at most, if it does not look back to the beginning."""
    named = [getattr(config.get_text_config(), name, None) for name in _WINDOWS]
    return min((n for n in named if isinstance(n, int) and n > 0), default=None)


def unscaled(config: Any) -> int | None:
    """Up to how many tokens rotary positions are the same in texts of all lengths, if not always.

    Some kinds turn by other angles where the longest text of a batch is longer than that.
    """
    text = config.get_text_config()
    named = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    # by kind of layer, where kinds have other parameters
    each = [named, *(value for value in named.values() if isinstance(value, Mapping))]
    limits = []
    for parameters in each:
        if parameters.get("rope_type", parameters.get("type")) in _SCALED_BY_LENGTH:
            trained = parameters.get(_TRAINED) or getattr(text, _TRAINED, None)
            limits.append(int(trained or text.max_position_embeddings))
    return min(limits, default=None)
