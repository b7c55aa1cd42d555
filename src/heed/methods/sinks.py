"""Attention sinks: tokens that take most of the attention and add next to nothing.

The weights of a row sum to one, so a head that looks for nothing in a text must put its weight
somewhere: in a causal model on the first token, which every row sees, in others often on a special
token. Such weight says nothing about words, and through many layers it swallows all the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Bool, Float

from heed.methods.method import BatchMethod
from heed.models.classifier import Classifier
from heed.text import Tokens

Sink = Annotated[Literal["apart", "kept"], "treatment of sinks"]

_MOST = 0.5  # the share of attention above which a token that is no word is a sink


def sink_of(weights: Float[np.ndarray, "key"], tokens: Tokens, causal: bool) -> int | None:
    """The position of a document's sink; None if it has none.

    It is the first token of a causal model, or else a token that is no word and has more than half
    of the attention. `weights` say how much attention each key gets.
    """
    if causal:
        return 0 if first_is_sink(tokens) else None
    outside = np.where(tokens.special, weights[: len(tokens)], 0.0)
    most = int(outside.argmax())
    return most if outside[most] > _MOST * weights.sum() else None


def first_is_sink(tokens: Tokens) -> bool:
    """Whether the first token of a causal model can be told from the words: others must be left."""
    return bool(tokens.special[0] or not tokens.special[1:].all())


def held(tokens: Tokens, causal: bool, sink: Sink) -> Bool[np.ndarray, "token"]:
    """The tokens whose attention is not that of words: special ones, and a sink among the words."""
    fixed = tokens.special.copy()
    if causal and sink == "apart" and first_is_sink(tokens):
        fixed[0] = True
    return fixed


@dataclass(frozen=True)
class SinkMethod(BatchMethod):
    """A method that reads attention, some of which may lie on a sink.

    sink   "apart": scores are shares of the attention that is not on the sink, if there is one;
           "kept": the sink is a token like others. A sink is the first token of a causal model, or
           else a token that is no word and has more than half of the attention
    """

    sink: Sink = field(default="apart", kw_only=True)

    def sink_in(
        self, weights: Float[np.ndarray, "key"], tokens: Tokens, model: Classifier
    ) -> int | None:
        """The position of the sink that is set apart, if there is one."""
        return sink_of(weights, tokens, model.causal) if self.sink == "apart" else None


def without(rows: Float[np.ndarray, "key"], sink: int) -> Float[np.ndarray, "key"]:
    """What is left without the sink, scaled up to the same sum; all 0 if nothing is left."""
    rest = rows.copy()
    rest[sink] = 0
    return rest * (rows.sum() / (rest.sum() or 1.0))


def sink_note(share: float, sink: int, tokens: Tokens, causal: bool) -> str:
    """What a reader should know of a sink with this share of the attention."""
    name = tokens.text(sink)
    if tokens.special[sink]:
        what, but = f"the first token, {name}," if causal else name, ""
    else:
        what, but = f"the first token, '{name}',", ", although it is a word's"
    return f"{share:.0%} of the attention lies on {what} a sink: it is shown apart{but}."
