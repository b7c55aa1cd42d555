"""Models behind the four doors of `heed.models.classifier.Classifier`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from heed.errors import InputError
from heed.models.classifier import Classifier
from heed.models.function import Function

Model = Classifier | Callable[[list[Any]], Any]  # what users may pass as a model


def of(model: Model) -> Classifier:
    """The classifier that a user passed, or the one that a plain function from texts to probabilities makes."""
    if isinstance(model, Classifier):
        return model
    if callable(model):
        return Function(model)
    raise InputError(
        f"A model is what heed.load returns or a function from a list of texts to probabilities, got "
        f"{type(model).__name__}."
    )


def load(model: str | Path | None = None) -> Classifier:
    """A model by the name of a bundled one (the default one if no name is given), by its folder, or by its hub id."""
    from heed.models import folders

    if folders.is_transformer(model):
        from heed.models import transformer

        return transformer.load(str(model))
    folders.read_config(folders.find(model))  # refuse before torch is loaded
    from heed.models import checkpoint

    return checkpoint.load(model)
