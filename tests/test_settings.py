"""Limits on settings, which stand in the annotations of a dataclass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from heed import settings
from heed.claims import CLAIMS
from heed.errors import InputError, UnknownName
from heed.methods import METHODS
from heed.settings import Above, AtLeast, AtMost, Below, check, read

Count = Annotated[int, AtLeast(1)]


@dataclass(frozen=True)
class Base:
    samples: Count = 1000

    def __post_init__(self) -> None:
        check(self, "lime")


@dataclass(frozen=True)
class Example(Base):
    words: Count | None = None
    share: Annotated[float, AtLeast(0), Below(1)] = 0.5
    epsilon: Annotated[float, Above(0), AtMost(1)] = 1.0
    rate: Annotated[float, Above(0), Below(math.inf)] = 0.1
    layers: Literal["all", "last"] | Count = "all"
    merge: Annotated[Literal["sum", "max"], "way to merge tokens"] = "sum"
    fast: bool = False
    title: str = ""


@pytest.mark.parametrize(
    "given",
    [
        {"samples": 1},
        {"samples": np.int64(5)},
        {"words": 3},
        {"words": None},
        {"share": 0},
        {"epsilon": 1},
        {"layers": "last"},
        {"layers": 2},
        {"merge": "max"},
        {"fast": True},
    ],
)
def test_what_the_annotations_allow(given: dict[str, Any]) -> None:
    assert all(getattr(Example(**given), key) == value for key, value in given.items())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"samples": 0}, "The setting samples of lime must be at least 1, got 0."),
        ({"samples": 2.5}, "The setting samples of lime must be a whole number, got 2.5."),
        ({"samples": True}, "The setting samples of lime must be a whole number, got True."),
        ({"samples": None}, "The setting samples of lime must be a whole number, got None."),
        ({"words": 0}, "The setting words of lime must be at least 1, got 0."),
        ({"share": 1}, "The setting share of lime must be below 1, got 1."),
        ({"share": math.nan}, "The setting share of lime must be at least 0, got nan."),
        ({"epsilon": 0.0}, "The setting epsilon of lime must be above 0, got 0.0."),
        ({"epsilon": 2.0}, "The setting epsilon of lime must be at most 1, got 2.0."),
        ({"rate": math.inf}, "The setting rate of lime must be finite, got inf."),
        ({"rate": "x" * 300}, f"The setting rate of lime must be a number, got {'x' * 199}…."),
        (
            {"layers": "first"},
            "The setting layers of lime must be 'all' or 'last' or a whole number",
        ),
        ({"layers": 0}, "The setting layers of lime must be at least 1, got 0."),
        ({"merge": "summ"}, "There is no way to merge tokens 'summ': did you mean 'sum'?"),
        ({"fast": 1}, "The setting fast of lime must be true or false, got 1."),
        ({"title": 1}, "The setting title of lime must be text, got 1."),
    ],
)
def test_what_they_refuse(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Example(**given)
    assert str(caught.value).startswith(message)


def test_a_choice_is_named_after_its_field_where_nothing_else_is_said() -> None:
    @dataclass(frozen=True)
    class Choice:
        schedule: Literal["constant", "cosine"] = "cosine"

    with pytest.raises(UnknownName, match="There is no schedule 'linear'"):
        check(Choice("linear"))  # type: ignore[arg-type]


def test_limits_do_not_change_how_settings_are_read() -> None:
    typed = {"samples": "2e3", "words": "none", "layers": "3", "share": "0.25", "fast": "true"}
    expected = {"samples": 2000, "words": None, "layers": 3, "share": 0.25, "fast": True}
    assert read("lime", Example, typed) == expected
    with pytest.raises(InputError, match="samples of lime must be a whole number"):
        read("lime", Example, {"samples": "2.5"})
    with pytest.raises(InputError, match=r"samples of lime .*, got 'x{198}…\.$"):
        read("lime", Example, {"samples": "x" * 300})


@pytest.mark.parametrize("cls", [*METHODS.values(), *CLAIMS.values()], ids=lambda cls: cls.__name__)
def test_every_method_and_claim_is_limited_by_annotations_that_can_be_read(cls: type) -> None:
    """A name in an annotation that is not imported shows only here."""
    settings.check(cls())
    with pytest.raises((InputError, UnknownName)):
        settings.read("it", cls, {"no_such_setting": 1})
