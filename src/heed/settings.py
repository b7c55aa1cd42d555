"""Settings of a method or a recipe, as people type them: `samples=2000`."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from heed.errors import InputError, UnknownName


def read(owner: str, cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values for the fields of a dataclass, converted to what each field holds: strings are read as numbers."""
    known = [f.name for f in fields(cls)]
    for key in given:
        if not known:
            raise InputError(f"{owner} has no settings, got '{key}'.")
        if key not in known:
            raise UnknownName(f"setting of {owner}", key, known)
    hints = _hints(cls)
    return {key: _converted(owner, key, value, hints[key]) for key, value in given.items()}


def plain(owner: Any) -> dict[str, Any]:
    """The settings of a dataclass as values that json can hold."""
    found = {f.name: getattr(owner, f.name) for f in fields(owner)}
    return {
        key: str(value) if value in (math.inf, -math.inf) else value for key, value in found.items()
    }


@lru_cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _converted(owner: str, key: str, value: Any, hint: Any) -> Any:
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in options:
        if option is type(None) and value in (None, "none"):
            return None
        if get_origin(option) is Literal and value in get_args(option):
            return value
        if option is bool and str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        if option is str and isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
        if option in (int, float) and not isinstance(value, bool):
            try:
                number = float(value)
                exact = option(number)
            except (TypeError, ValueError, OverflowError):
                continue
            if exact == number:
                return exact
    raise InputError(
        f"The setting {key} of {owner} must be {' or '.join(map(_wanted, options))}, got {value!r}."
    )


def _wanted(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(repr(option) for option in get_args(hint))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(
        hint, "none"
    )
