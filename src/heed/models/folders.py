"""Models on disk: a folder with `model.safetensors`, `model.json` and `tokenizer.json`. What needs no torch is here."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from heed.errors import CheckpointError, OutputError

BUNDLED = Path(__file__).parent / "bundled"
DEFAULT = "single-layer-imdb"
PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}


def bundled() -> dict[str, Path]:
    """The models that come with heed, by name."""
    return {path.parent.name: path.parent for path in sorted(BUNDLED.glob("*/model.json"))}


def find(model: str | Path | None) -> Path:
    """The folder of a model: a bundled one by its name (the default one if no name is given), or any other."""
    known = bundled()
    return known[str(model or DEFAULT)] if str(model or DEFAULT) in known else Path(model or DEFAULT).expanduser()


def is_transformer(model: str | Path | None) -> bool:
    """Whether this is a Hugging Face model: a folder with its config.json, or an ORG/NAME that is no path."""
    if model is None or str(model) in bundled():
        return False
    folder = Path(model).expanduser()
    if folder.exists():
        return (folder / "config.json").is_file() and not (folder / "model.json").exists()
    return re.fullmatch(r"[\w.-]+/[\w.-]+", str(model)) is not None and not folder.parent.exists()


def read_config(folder: Path) -> dict[str, Any]:
    """The json of a checkpoint, after checking that the folder is one."""
    if folder.suffix in PICKLES and folder.is_file():
        raise CheckpointError(f"{folder} is a pickle, which can run any code when read: convert it to safetensors.")
    if not folder.exists():
        raise CheckpointError(f"There is no model '{folder}': give a folder, or one of {', '.join(bundled())}.")
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file: give the folder that holds model.json and model.safetensors.")
    if not (folder / "model.safetensors").is_file():
        pickled = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
        if pickled:
            raise CheckpointError(
                f"{folder} holds only pickled weights ({pickled[0]}), which can run any code when read:"
                " convert them to safetensors."
            )
        raise CheckpointError(f"The folder {folder} has no model.safetensors: it is not a model of heed.")
    try:
        config = json.loads((folder / "model.json").read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / 'model.json'} cannot be read ({error}).") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{folder / 'model.json'} must hold a json object.")
    return config


def check_free(folder: Path) -> None:
    """Refuse a folder that a checkpoint cannot be written to, before hours are spent on training."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "model.json").exists():
        raise OutputError(f"{folder} holds other files: give a new folder, or one that holds a model of heed.")
    nearest = next(p for p in [folder.absolute(), *folder.absolute().parents] if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise OutputError(f"{folder} cannot be written: {nearest} is not a folder that you may write to.")
