"""Models on disk. What needs no torch is here.

A folder holds `model.safetensors` and `tokenizer.json`. Beside them, heed's own models have a
`model.json`; a transformer has what Hugging Face's libraries read (`config.json` …), and heed's
`training.json` if heed trained it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from heed.errors import CheckpointError, HeedError, OutputError, UnknownName, nearest, quoted
from heed.models import public
from heed.store import check_writable, is_scratch, put_back, writing_folder

BUNDLED = Path(__file__).parent / "bundled"
DEFAULT = "single-layer-imdb"
FACTS = "training.json"  # how a transformer was trained
UNFINISHED = "unfinished.safetensors"  # the state of a training that may go on
CONVERTED = "conversion.json"  # what a transformer was converted from
OURS = ("model.json", FACTS, UNFINISHED, CONVERTED)  # a folder that holds one of these is heed's
# all that heed writes to a model's folder
WRITTEN = {*OURS, "config.json", "README.md", "tokenizer.json"}
WRITTEN |= {"tokenizer_config.json", "special_tokens_map.json"}
# read by every model that is loaded: a tokenizer without an unknown token fails on words like these
ODD_TEXT = "a word that nobody knows: \ue000qzxv\ue001"
PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}


class TrainingData(msgspec.Struct):
    """What a model was trained on: a data set, one of its splits, and how many of its documents."""

    name: str | None = None
    split: str | None = None
    documents: int | None = None


class TrainingFile(msgspec.Struct):
    """What heed reads of a `training.json`; it may hold more."""

    recipe: dict[str, Any] | None = None
    data: TrainingData | None = None
    seed: int | None = None
    base: str | None = None
    stack: dict[str, Any] | None = None


class ModelFile(TrainingFile, kw_only=True):
    """What heed reads of a `model.json`; it may hold more."""

    kind: Any = None  # refused later, with the names of the kinds that there are
    labels: list[str]
    shape: dict[str, Any]
    pairs: bool = False
    name: str | None = None


@contextmanager
def reading(subject: str) -> Iterator[None]:
    """The door through which models are read: whatever goes wrong behind it is one sentence.

    A broken file makes the libraries raise anything: KeyError, TypeError, ZeroDivisionError, and
    for a panic in their Rust code an exception that does not even derive from Exception.
    """
    try:
        yield
    except HeedError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        why = quoted(str(error)) or type(error).__name__
        raise CheckpointError(f"{subject} ({why}).") from None


def bundled() -> dict[str, Path]:
    """The models that come with heed, by name."""
    return {path.parent.name: path.parent for path in sorted(BUNDLED.glob("*/model.safetensors"))}


def find(model: str | Path | None) -> Path:
    """The folder of a model: that of a bundled or public one by its name, or any other.

    Without a name it is that of the default one. A path is never taken for a public name: write
    ./NAME for a folder that is called like one.
    """
    if isinstance(model, str) and model in public.checkpoints():
        return public.installed_folder(model)
    name = str(model or DEFAULT)
    return bundled().get(name) or put_back(Path(name).expanduser())


def is_transformer(model: str | Path | None) -> bool:
    """Whether this is a Hugging Face model: a folder with a config.json, or ORG/NAME, no path."""
    folder = find(model)
    if folder.exists():
        return (folder / "config.json").is_file() and not (folder / "model.json").exists()
    return re.fullmatch(r"[\w.-]+/[\w.-]+", str(model)) is not None and not folder.parent.exists()


def transformer_at(model: str) -> Path | str:
    """The folder or hub id of a Hugging Face model; all else is refused before the hub is asked."""
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
        names = [*bundled(), *public.checkpoints()]
        # a folder of one's own may have any name: only a slip of the keys is taken for another
        slip = folder.name == str(folder) and nearest(folder.name, names, cutoff=0.75)
        if slip and slip != folder.name:
            raise UnknownName("model", folder.name, names)
        raise CheckpointError(
            f"There is no model '{quoted(str(folder))}': give a folder, one of"
            f" {', '.join(bundled())}, one of `heed models`, or ORG/NAME as on the Hugging Face"
            " hub."
        )
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} is a file: give the folder that holds model.json and model.safetensors."
        )
    if not (folder / "model.safetensors").is_file():
        pickled = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
        if pickled:
            raise CheckpointError(
                f"{folder} holds only pickled weights ({pickled[0]}), which can run any code when"
                " read: convert them to safetensors."
            )
        raise CheckpointError(
            f"The folder {folder} has no model.safetensors: it is not a model of heed; one of"
            " transformers has a config.json, too."
        )
    return _read_json(folder / "model.json", ModelFile)


def facts(folder: Path) -> dict[str, Any]:
    """How a model that heed trained came about: kind, data, recipe, accuracy."""
    if (folder / "model.json").exists():
        return read_config(folder)
    return {"kind": "transformer"} | _read_json(folder / FACTS, TrainingFile)


def _read_json(path: Path, schema: type[msgspec.Struct]) -> dict[str, Any]:
    """A JSON object that has what the schema asks for; what else it holds is left as it is."""
    with reading(f"{quoted(str(path))} cannot be read"):
        # Python's own reader: that of msgspec refuses NaN, which a loss may be
        config = json.loads(path.read_text(encoding="utf8"))
        msgspec.convert(config, schema)
    return config


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    text = json.dumps(values, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf8")


def check_free(folder: Path) -> None:
    """Refuse a folder that no model can be written to, before hours are spent on training."""
    put_back(folder)
    if folder.resolve() == Path.cwd():
        raise OutputError(
            f"{folder} is the folder that you are in, which is replaced: give another."
        )
    holds_files = folder.is_dir() and not all(map(is_scratch, folder.iterdir()))
    if holds_files and not any((folder / name).exists() for name in OURS):
        raise OutputError(
            f"{folder} holds other files: give a new folder, or one that holds a model of heed."
        )
    check_writable(folder)


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """A scratch folder that takes the place of `folder` in the end.

    So a full disk or a kill leaves an older model whole. Files that heed did not write stay.
    """
    check_free(folder)
    with writing_folder(folder, stays=lambda name: name not in WRITTEN) as scratch:
        yield scratch
