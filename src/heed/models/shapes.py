"""The sizes and choices that make up heed's own models, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from heed.settings import Above, AtLeast, Below, check, wrong

Count = Annotated[int, AtLeast(1)]


class Checked:
    """Settings that are checked when they are made; a dataclass."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Shape(Checked):
    """The sizes and choices that make up a single-layer classifier.

    padding="attends" fills every document with <unk> up to max_words, and these attend like any
    token, as in the paper; padding="masked" attends to the document alone.
    """

    vocabulary: Count
    labels: Count
    d_e: Count = 128
    heads: Count = 6
    d_att: Count = 64
    d_out: Count = 64
    max_words: Count = 256
    padding: Literal["masked", "attends"] = "masked"
    position_base: Annotated[float, Above(1), Below(math.inf)] = 10000.0
    biases: bool = False


@dataclass(frozen=True)
class StackShape:
    """The sizes and choices that make up a stack of attention layers (`stacked.py`).

    block     what a layer does with the output of its attention: "attention" passes it on, "skip"
              adds its input and normalises, "relu" and "gelu" do so and then add a feed-forward
              part with that non-linearity
    values    "positive" cuts off what is below zero
    readout   "identity" leaves out the final layer: heads have one value per label, and their mean
              is the output
    """

    vocabulary: Count
    labels: Count
    layers: Count = 1
    width: Count = 128
    heads: Count = 4
    max_words: Count = 128
    block: Literal["attention", "skip", "relu", "gelu"] = "attention"
    values: Literal["free", "positive"] = "free"
    readout: Literal["linear", "identity"] = "linear"
    padding: Literal["masked"] = "masked"

    def __post_init__(self) -> None:
        check(self)
        if self.width % self.heads:
            raise wrong("heads", f"a divisor of the width {self.width}", self.heads)
        if self.readout == "identity" and self.block != "attention":
            raise wrong("readout", "'linear' where a layer does more than attend", self.readout)


@dataclass(frozen=True)
class RecurrentShape:
    """The sizes and choices that make up an encoder with attention (`recurrent.py`).

    width    of the embeddings
    hidden   of the states: half of it for each direction of "lstm", a quarter for each kernel of
             "cnn"
    spread   standard deviation of the embeddings at the start
    """

    vocabulary: Count
    labels: Count
    encoder: Literal["lstm", "cnn", "average"] = "lstm"
    attention: Literal["additive", "dot", "uniform"] = "additive"
    width: Count = 300
    hidden: Count = 256
    max_words: Count = 400
    spread: Annotated[float, Above(0), Below(math.inf)] = 1.0

    def __post_init__(self) -> None:
        check(self)
        if self.hidden % 4:
            raise wrong("hidden", "a multiple of 4", self.hidden)
