"""Models behind the four doors of `heed.models.classifier.Classifier`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from heed.errors import InputError
from heed.models.classifier import Classifier
from heed.models.function import Function

# What users may pass as a model; the last of these is a pair of a transformer and its tokenizer.
Model = Classifier | Callable[[list[Any]], Any] | tuple[Any, Any]


def of(model: Model) -> Classifier:
    """The classifier that a user passed, or that heed makes of a plain function from texts to
    probabilities, of a transformer and its tokenizer, or of a pipeline of `transformers`.
    """
    if isinstance(model, Classifier):
        return model
    both = (getattr(model, "model", None), getattr(model, "tokenizer", None))
    if isinstance(model, tuple):
        both = model
    if len(both) == 2 and hasattr(both[0], "config") and hasattr(both[1], "model_max_length"):
        from heed.models import transformer

        return transformer.wrap(*both)
    if len(both) == 2 and hasattr(both[1], "config") and hasattr(both[0], "model_max_length"):
        raise InputError("Got (tokenizer, model): swap them, as in (model, tokenizer).")
    if hasattr(model, "config") and hasattr(model, "forward"):
        raise InputError("A transformer needs its tokenizer: pass both, as in (model, tokenizer).")
    if callable(model):
        return Function(model)
    raise InputError(
        "A model is what heed.load returns, a pair (model, tokenizer) of transformers, or a"
        f" function from a list of texts to probabilities, got {type(model).__name__}."
    )


def load(model: str | Path | None = None) -> Classifier:
    """A model by its folder, by its hub id, or by the name of a bundled or installed public one.

    Without a name it is the default one.
    """
    from heed.models import folders

    if folders.is_transformer(model):
        from heed.models import transformer

        return transformer.load(folders.transformer_at(str(model)))
    folders.read_config(folders.find(model))  # refuse before torch is loaded
    from heed.models import checkpoint

    return checkpoint.load(model)
