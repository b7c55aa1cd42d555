"""Attention sinks: tokens that take most of the attention and add next to nothing.

The weights of a row sum to one, so a head that looks for nothing in a text must put its weight
somewhere: in a causal model on the first token, which every row sees, in others often on a special
token. Such weight says nothing about words, and through many layers it swallows all the rest.

Only what is no word's token is set apart. A word's token may be a sink, too, but whether it is one
cannot be told from its weight. A word that is set apart would be left without a score, and every
ranking of words needs one: 0 would say that attention found it worthless. So the word keeps its
weight, and a note says how much that is. Claims do the same: they hold the attention on all tokens
that are no word's, and may change that on words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float

from heed.methods.method import BatchMethod
from heed.models.classifier import Classifier
from heed.text import Tokens

Sink = Annotated[Literal["apart", "kept"], "treatment of sinks"]

_MOST = 0.5  # the share of attention above which a token may be a sink


def sink_of(weights: Float[np.ndarray, "key"], tokens: Tokens, causal: bool) -> int | None:
    """The position of a document's sink; None if it has none.

    It is a token that is no word's: the first of a causal model, or else one that has more than
    half of the attention. `weights` say how much attention each key gets.
    """
    if causal and tokens.special[0]:
        return 0
    outside = np.where(tokens.special, weights[: len(tokens)], 0.0)
    most = int(outside.argmax())
    return most if outside[most] > _MOST * weights.sum() else None


@dataclass(frozen=True)
class SinkMethod(BatchMethod):
    """A method that reads attention, some of which may lie on a sink.

    sink   "apart": scores are shares of the attention that is not on the sink, if there is one;
           "kept": the sink is a token like others. A sink is a token that is no word's: the first
           of a causal model, or else one that has more than half of the attention

    So scores of documents with and without a sink are shares of different wholes: where the share
    of a special token passes one half, those of the words jump to twice as much. The fact
    `sink_attention` is the sink's share. Scores times (1 - sink_attention) are the weights as they
    were, but for rollout and flow, which take the sink out of every layer.
    """

    sink: Sink = field(default="apart", kw_only=True)

    def sink_in(
        self, weights: Float[np.ndarray, "key"], tokens: Tokens, model: Classifier
    ) -> int | None:
        """The position of the sink that is set apart, if there is one."""
        return sink_of(weights, tokens, model.causal) if self.sink == "apart" else None

    def notes_on(
        self,
        weights: Float[np.ndarray, "key"],
        sink: int | None,
        tokens: Tokens,
        model: Classifier,
    ) -> tuple[str, ...]:
        """What a reader should know of the sink, or of a first word that may be one."""
        shares = weights / (weights.sum() or 1.0)
        if sink is not None:
            what = "the first token, " if model.causal and sink == 0 else ""
            name = tokens.names[sink]
            share = f"{shares[sink]:.0%} of the attention lies on {what}{name},"
            return (f"{share} a sink: it is shown apart.",)
        alone = self.sink == "kept" or len(tokens) == 1
        if alone or not model.causal or shares[0] <= _MOST:
            return ()
        first = f"{shares[0]:.0%} of the attention lies on the first token, '{tokens.text(0)}'."
        return (f"{first} It may be a sink, but it counts as a word, which it belongs to.",)


def without(rows: Float[np.ndarray, "key"], sink: int) -> Float[np.ndarray, "key"]:
    """What is left without the sink, scaled up to the same sum; all 0 if nothing is left."""
    rest = rows.copy()
    rest[sink] = 0
    return rest * (rows.sum() / (rest.sum() or 1.0))
