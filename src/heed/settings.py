"""Settings of a method, a claim or a recipe: fields of a dataclass, limited by their annotations.

    @dataclass(frozen=True)
    class Recipe:
        epochs: Annotated[int, AtLeast(1)] = 4
        dropout: Annotated[float, AtLeast(0), Below(1)] = 0.1
        hidden: Annotated[int, AtLeast(1)] | None = None
        schedule: Literal["constant", "cosine"] = "cosine"
        merge: Annotated[Literal["sum", "max"], "way to merge tokens"] = "sum"

        def __post_init__(self) -> None:
            settings.check(self)

`check` refuses a value of the wrong type, a number beyond a limit, and a word that is not among
those of a `Literal`; a string in the annotation says what these words are. `check(self, "lime")`
names the owner in the sentence. What annotations cannot say (one setting depends on another) raises
`wrong(...)`. `read` converts what people type (`samples=2000`) before the dataclass is made.
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from heed.errors import InputError, UnknownName, quoted


@dataclass(frozen=True)
class Limit:
    """What a number must keep to."""

    bound: float
    words: ClassVar[str]
    compare: ClassVar[Callable[[Any, Any], bool]]

    def holds(self, value: Any) -> bool:
        return bool(type(self).compare(value, self.bound))

    def __str__(self) -> str:
        if self.bound == math.inf:
            return "finite"
        whole = isinstance(self.bound, int)
        return f"{self.words} {self.bound:,}" if whole else f"{self.words} {self.bound:g}"


class AtLeast(Limit):
    words, compare = "at least", operator.ge


class Above(Limit):
    words, compare = "above", operator.gt


class AtMost(Limit):
    words, compare = "at most", operator.le


class Below(Limit):
    words, compare = "below", operator.lt  # `Below(math.inf)` means finite


def check(settings: Any, owner: str = "") -> None:
    """Refuse settings that their annotations do not allow."""
    cls: type = type(settings)
    for key, (options, notes) in _annotations(cls).items():
        value = getattr(settings, key)
        if not any(_fits(value, option) for option in options):
            words = [word for o in options if get_origin(o) is Literal for word in get_args(o)]
            if words and all(get_origin(o) is Literal or o is types.NoneType for o in options):
                kind = next((note for note in notes if isinstance(note, str)), key)
                raise UnknownName(kind, str(value), words)
            raise wrong(key, " or ".join(map(_wanted, options)), value, owner)
        if isinstance(value, Real) and not isinstance(value, bool):
            for limit in notes:
                if isinstance(limit, Limit) and not limit.holds(value):
                    raise wrong(key, str(limit), value, owner)


def wrong(key: str, wanted: str, value: Any, owner: str = "") -> InputError:
    """The error to raise for a setting that cannot be used."""
    name = f"{key} of {owner}" if owner else key
    return InputError(f"The setting {name} must be {wanted}, got {quoted(value)}.")


def read(owner: str, cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values for the fields of a dataclass; strings are converted to what each field holds."""
    names = [f.name for f in fields(cls)]
    subject = owner.replace("the claim", "The claim", 1)
    for key in given:
        if not names:
            raise InputError(f"{subject} has no settings, got '{quoted(key)}'.")
        if key not in names:
            raise UnknownName("setting", key, names, subject)
    annotations = _annotations(cls)
    return {key: _converted(owner, key, value, annotations[key][0]) for key, value in given.items()}


def allowed(cls: type, key: str) -> str:
    """What a field of a dataclass may hold, in words."""
    options, notes = _annotations(cls)[key]
    limits = [str(note) for note in notes if isinstance(note, Limit)]
    return ", ".join([" or ".join(map(_wanted, options)), *limits])


def plain(owner: Any) -> dict[str, Any]:
    """The settings of a dataclass as values that JSON can hold."""
    values = {f.name: getattr(owner, f.name) for f in fields(owner)}
    return {
        key: str(value) if value in (math.inf, -math.inf) else value
        for key, value in values.items()
    }


@lru_cache
def _annotations(cls: type) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """For each field, the types that it may have, and what its annotation says beside them."""
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: _taken_apart(hints[f.name]) for f in fields(cls)}


def _taken_apart(hint: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        options, earlier = _taken_apart(inner)
        return options, (*earlier, *notes)
    if get_origin(hint) in (Union, types.UnionType):
        parts = [_taken_apart(option) for option in get_args(hint)]
        options = tuple(option for part, _ in parts for option in part)
        return options, tuple(note for _, part in parts for note in part)
    return (hint,), ()


def _fits(value: Any, option: Any) -> bool:
    if get_origin(option) is Literal:
        return value in get_args(option)
    if option in (int, float):
        kind = Integral if option is int else Real
        return isinstance(value, kind) and not isinstance(value, bool)
    if option in (bool, str, types.NoneType):
        return isinstance(value, option)
    return True  # tables, tuples and the like, which their owner checks


def _converted(owner: str, key: str, value: Any, options: tuple[Any, ...]) -> Any:
    for option in options:
        if option is types.NoneType and value in (None, "none"):
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
    raise wrong(key, " or ".join(map(_wanted, options)), repr(value), owner)


def _wanted(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(repr(option) for option in get_args(hint))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(
        hint, "none"
    )
