"""Models behind the four doors of `heed.models.classifier.Classifier`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heed.models.classifier import Classifier


def load(model: str | Path | None = None) -> Classifier:
    """A model by the name of a bundled one (the default one if no name is given), by its folder, or by its hub id."""
    from heed.models import folders

    if folders.is_transformer(model):
        from heed.models import transformer

        return transformer.load(str(model))
    folders.read_config(folders.find(model))  # refuse before torch is loaded
    from heed.models import checkpoint

    return checkpoint.load(model)
