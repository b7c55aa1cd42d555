"""Models on disk. What needs no torch is here.

A folder holds `model.safetensors` and `tokenizer.json`; beside them a single-layer model has `model.json`, and a
transformer has what Hugging Face's libraries read (`config.json` …), with heed's `training.json` if heed trained it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heed.errors import CheckpointError, OutputError

BUNDLED = Path(__file__).parent / "bundled"
DEFAULT = "single-layer-imdb"
FACTS = "training.json"  # how a transformer was trained
UNFINISHED = "unfinished.safetensors"  # the state of a training that may go on
PARTIAL = "unfinished.part"  # that state while it is being written
OURS = ("model.json", FACTS, UNFINISHED, PARTIAL)  # a folder that holds one of these is heed's
# all that heed writes to a model's folder
WRITTEN = (
    *OURS,
    "config.json",
    "README.md",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)
PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}


def bundled() -> dict[str, Path]:
    """The models that come with heed, by name."""
    return {path.parent.name: path.parent for path in sorted(BUNDLED.glob("*/model.safetensors"))}


def find(model: str | Path | None) -> Path:
    """The folder of a model: a bundled one by its name (the default one if no name is given), or any other."""
    known = bundled()
    return (
        known[str(model or DEFAULT)]
        if str(model or DEFAULT) in known
        else Path(model or DEFAULT).expanduser()
    )


def is_transformer(model: str | Path | None) -> bool:
    """Whether this is a Hugging Face model: a folder with its config.json, or an ORG/NAME that is no path."""
    folder = find(model)
    if folder.exists():
        return (folder / "config.json").is_file() and not (folder / "model.json").exists()
    return re.fullmatch(r"[\w.-]+/[\w.-]+", str(model)) is not None and not folder.parent.exists()


def transformer_at(model: str) -> Path | str:
    """The folder or hub id of a Hugging Face model; anything else is refused before a network is asked."""
    folder = find(model)
    if not is_transformer(model):
        if folder.exists():
            raise CheckpointError(
                f"{model} is not a Hugging Face model: it has no config.json of its own."
            )
        read_config(folder)
    return folder if folder.exists() else model


def read_config(folder: Path) -> dict[str, Any]:
    """The json of a checkpoint, after checking that the folder is one."""
    if folder.suffix in PICKLES and folder.is_file():
        raise CheckpointError(
            f"{folder} is a pickle, which can run any code when read: convert it to safetensors."
        )
    if not folder.exists():
        raise CheckpointError(
            f"There is no model '{folder}': give a folder, one of {', '.join(bundled())}, or ORG/NAME as on the Hugging"
            " Face hub."
        )
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} is a file: give the folder that holds model.json and model.safetensors."
        )
    if not (folder / "model.safetensors").is_file():
        pickled = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
        if pickled:
            raise CheckpointError(
                f"{folder} holds only pickled weights ({pickled[0]}), which can run any code when read:"
                " convert them to safetensors."
            )
        raise CheckpointError(
            f"The folder {folder} has no model.safetensors: it is not a model of heed."
        )
    try:
        config = json.loads((folder / "model.json").read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / 'model.json'} cannot be read ({error}).") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{folder / 'model.json'} must hold a json object.")
    return config


def facts(folder: Path) -> dict[str, Any]:
    """How a model that heed trained came about: kind, data, recipe, accuracy."""
    if (folder / "model.json").exists():
        return read_config(folder)
    return {"kind": "transformer"} | json.loads((folder / FACTS).read_text(encoding="utf8"))


def check_free(folder: Path) -> None:
    """Refuse a folder that a checkpoint cannot be written to, before hours are spent on training."""
    if (
        folder.is_dir()
        and any(folder.iterdir())
        and not any((folder / name).exists() for name in OURS)
    ):
        raise OutputError(
            f"{folder} holds other files: give a new folder, or one that holds a model of heed."
        )
    check_writable(folder)


def check_writable(folder: Path) -> None:
    """Refuse a folder that can neither be made nor written to."""
    nearest = next(p for p in [folder.absolute(), *folder.absolute().parents] if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise OutputError(
            f"{folder} cannot be written: {nearest} is not a folder that you may write to."
        )


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """A scratch folder whose files move into `folder` in the end, so that a full disk leaves an older model whole."""
    check_free(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".writing-"))
    except OSError as error:
        raise OutputError(f"The model cannot be written to {folder} ({error}).") from None
    try:
        yield scratch
        folder.mkdir(exist_ok=True)
        new = list(scratch.iterdir())
        for path in new:
            path.chmod(0o644)  # safetensors writes files that only their owner may read
            path.replace(folder / path.name)
        for name in set(WRITTEN) - {
            path.name for path in new
        }:  # of an older model, perhaps of another kind
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"The model cannot be written to {folder} ({error}).") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
