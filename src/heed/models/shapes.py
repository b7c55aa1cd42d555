"""The sizes and choices that make up heed's own models, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from heed.errors import InputError


def check(name: str, value: Any, good: bool, wanted: str) -> None:
    if not good:
        raise InputError(f"The setting {name} must be {wanted}, got {value}.")


@dataclass(frozen=True)
class Shape:
    """The sizes and choices that make up a single-layer classifier.

    padding="attends" fills every document with <unk> up to max_words, and these attend like any token, as in the paper;
    padding="masked" attends to the document alone.
    """

    vocabulary: int
    labels: int
    d_e: int = 128
    heads: int = 6
    d_att: int = 64
    d_out: int = 64
    max_words: int = 256
    padding: Literal["masked", "attends"] = "masked"
    position_base: float = 10000.0
    biases: bool = False

    def __post_init__(self) -> None:
        for name in ("vocabulary", "labels", "d_e", "heads", "d_att", "d_out", "max_words"):
            check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        check("position_base", self.position_base, 1 < self.position_base < math.inf, "above 1")


@dataclass(frozen=True)
class StackShape:
    """The sizes and choices that make up a stack of attention layers (`stacked.py`).

    block     what a layer does with the output of its attention: "attention" passes it on, "skip" adds its input and
              normalises, "relu" and "gelu" do so and then add a feed-forward part with that non-linearity
    values    "positive" cuts off what is below zero
    readout   "identity" leaves out the final layer: heads have one value per label, and their mean is the output
    """

    vocabulary: int
    labels: int
    layers: int = 1
    width: int = 128
    heads: int = 4
    max_words: int = 128
    block: Literal["attention", "skip", "relu", "gelu"] = "attention"
    values: Literal["free", "positive"] = "free"
    readout: Literal["linear", "identity"] = "linear"
    padding: Literal["masked"] = "masked"

    def __post_init__(self) -> None:
        for name in ("vocabulary", "labels", "layers", "width", "heads", "max_words"):
            check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        check(
            "heads",
            self.heads,
            self.width % self.heads == 0,
            f"a divisor of the width {self.width}",
        )
        good = self.readout == "linear" or self.block == "attention"
        check("readout", self.readout, good, "'linear' where a layer does more than attend")


@dataclass(frozen=True)
class RecurrentShape:
    """The sizes and choices that make up an encoder with attention (`recurrent.py`).

    width    of the embeddings
    hidden   of the states: half of it for each direction of "lstm", a quarter for each kernel of "cnn"
    spread   standard deviation of the embeddings at the start
    """

    vocabulary: int
    labels: int
    encoder: Literal["lstm", "cnn", "average"] = "lstm"
    attention: Literal["additive", "dot", "uniform"] = "additive"
    width: int = 300
    hidden: int = 256
    max_words: int = 400
    spread: float = 1.0

    def __post_init__(self) -> None:
        for name in ("vocabulary", "labels", "width", "hidden", "max_words"):
            check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        check("hidden", self.hidden, self.hidden % 4 == 0, "a multiple of 4")
        check("spread", self.spread, 0 < self.spread < math.inf, "above 0")
