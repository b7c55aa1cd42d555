"""What one method says about one document, with all that is needed to compute it again."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float
from rich.console import Console, ConsoleOptions, RenderResult

from heed.errors import InputError, quoted
from heed.text import Document, Span

UnitKind = Literal["word", "token", "sentence", "line", "span"]

# What `Special` calls tokens that share a score, and what stands behind the name of a sink.
TEMPLATE, OUTSIDE, PADDING = "template", "outside spans", "padding"
SINK = " (sink)"


@dataclass(frozen=True)
class Unit:
    """A word, a token or a passage with one score; a word that occurs several times may have
    several spans.

    spans     characters [start, end) of each occurrence
    segment   0, or 1 in the second text of a pair
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    segment: int = 0


@dataclass(frozen=True)
class Special:
    """The score of a special token, or of a whole template, or of all padding together.

    That of a sink is its share of all attention; the others are measured without it.
    """

    text: str
    score: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """What one method says about one document and one label, and how it was computed.

    scores           one per unit; if `signed`, positive scores speak for the label
    specials         scores of special tokens, template and padding, apart from the words
    standard_errors  uncertainty of each score due to sampling, for sampled methods
    probabilities    the model's prediction for the document
    removal          how words were removed, for methods that remove words
    forward_passes   how many outputs of the model it rests on, one of them for the whole document;
                     the methods of a comparison share that one
    seconds          how long the method took, without an output that others had asked for
    facts            numbers that belong to the method, such as an intercept or a completeness gap
    notes            sentences that a reader should know
    raw              the scores before the method changed them, for methods that modify attention or
                     show a part of a whole
    intervals        smallest and largest possible score of each unit, given the output; NaN where
                     it was not computed
    parts            other numbers of each unit, by name: what its score is made of
    """

    document: Document
    method: str
    label: str
    unit: UnitKind
    units: tuple[Unit, ...]
    scores: Float[np.ndarray, "unit"]
    specials: tuple[Special, ...]
    standard_errors: Float[np.ndarray, "unit"] | None
    signed: bool
    probabilities: dict[str, float]
    settings: dict[str, Any]
    seed: int
    model: str
    revision: str
    removal: str | None
    forward_passes: int
    seconds: float
    facts: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    raw: Float[np.ndarray, "unit"] | None = None
    intervals: Float[np.ndarray, "unit 2"] | None = None
    parts: dict[str, Float[np.ndarray, "unit"]] = field(default_factory=dict)

    def top(self, n: int = 10) -> list[tuple[str, float]]:
        """The n units with the largest scores, by absolute value."""
        order = np.argsort(-np.abs(self.scores), kind="stable")[:n]
        return [(self.units[i].text, float(self.scores[i])) for i in order]

    def to_dict(self) -> dict[str, Any]:
        """Plain values that json can hold; `from_dict` reads them back."""
        values = msgspec.to_builtins(self, enc_hook=lambda array: array.tolist())
        if self.intervals is not None:
            bounds = values["intervals"]
            values["intervals"] = [None if math.isnan(low) else [low, high] for low, high in bounds]
        for key, value in self.settings.items():
            if value in (math.inf, -math.inf):  # json has no number for it
                values["settings"][key] = str(value)
        # there and back, so that tuples are the lists that a file would hold
        return dict(json.loads(json.dumps(values)))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Explanation:
        """The explanation that `to_dict` wrote."""
        try:
            return _read(msgspec.convert(values, _Record))
        except (msgspec.MsgspecError, ValueError, InputError) as error:
            raise _not_an_explanation(error) from None

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        """The explanation that `to_json` wrote."""
        try:
            return _read(msgspec.json.decode(text, type=_Record))
        except (msgspec.MsgspecError, ValueError, InputError) as error:
            raise _not_an_explanation(error) from None

    def _repr_html_(self) -> str:
        from heed.report import explanation

        return explanation.html(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from heed.report import explanation

        yield from explanation.terminal(self, console, options)

    def __repr__(self) -> str:
        sign = "+" if self.signed else ""
        words = ", ".join(f"{text} {score:{sign}.3g}" for text, score in self.top(4))
        return f"<Explanation {self.method} of {self.label!r}: {words}>"


# Reading back

_INFINITE = {"inf": math.inf, "-inf": -math.inf}
LARGEST = 1e100  # sums and squares of larger numbers would overflow
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """An explanation as it stands in a file."""

    document: Document
    method: str
    label: str
    unit: UnitKind
    units: tuple[Unit, ...]
    scores: list[float]
    specials: tuple[Special, ...]
    standard_errors: list[float] | None
    signed: bool
    probabilities: dict[str, float]
    settings: dict[str, str | float | int | bool | None]
    seed: int
    model: str
    revision: str
    removal: str | None
    forward_passes: Count
    seconds: float
    facts: dict[str, float]
    notes: tuple[str, ...]
    raw: list[float] | None = None
    intervals: list[tuple[float, float] | None] | None = None
    parts: dict[str, list[float]] = {}


def _check(record: _Record) -> None:
    """Refuse a record whose parts do not fit together, with a ValueError or an InputError."""
    names = ("scores", "standard_errors", "raw", "intervals")
    by_name = {name: getattr(record, name) for name in names} | record.parts
    for name, values in by_name.items():
        if values is not None and len(values) != len(record.units):
            raise ValueError(f"it has {len(record.units)} units and {len(values)} {name}")
    if record.label not in record.probabilities:
        raise ValueError(f"there is no probability of the label {record.label}")
    bounds = [bound for bound in record.intervals or () if bound is not None]
    numbers = [
        *record.scores,
        *(record.standard_errors or ()),
        *(record.raw or ()),
        *chain.from_iterable(bounds),
        *chain.from_iterable(record.parts.values()),
        *(special.score for special in record.specials),
        *record.probabilities.values(),
        *record.facts.values(),
        *(value for value in record.settings.values() if isinstance(value, float)),
        record.seconds,
    ]
    if not all(abs(number) <= LARGEST for number in numbers):
        raise ValueError(f"all numbers must be finite, and at most {LARGEST:g}")
    for unit in record.units:
        if not unit.spans:
            raise ValueError("a unit stands nowhere in the text")
        for start, end in unit.spans:
            check_span(record.document, Span(start, end, unit.segment))
    msgspec.json.encode(record)  # refuses halves of characters, which no file could hold


def _read(record: _Record) -> Explanation:
    """The explanation of a record."""
    _check(record)
    intervals = None
    if record.intervals is not None:
        pairs = [bound or (math.nan, math.nan) for bound in record.intervals]
        intervals = np.array(pairs, dtype=float).reshape(-1, 2)
    values = msgspec.structs.asdict(record) | {"intervals": intervals}
    for name in ("scores", "standard_errors", "raw"):
        if values[name] is not None:
            values[name] = np.array(values[name], dtype=float)
    values["parts"] = {name: np.array(part, dtype=float) for name, part in record.parts.items()}
    for key, value in record.settings.items():
        if isinstance(value, str):
            record.settings[key] = _INFINITE.get(value, value)
    return Explanation(**values)


def _not_an_explanation(error: Exception) -> InputError:
    return InputError(f"This is not an explanation that heed wrote ({quoted(str(error))}).")


def check_span(document: Document, span: Span) -> None:
    """Refuse characters that the text does not have."""
    texts = document.segments
    inside = 0 <= span.segment < len(texts)
    if not inside or not 0 <= span.start <= span.end <= len(texts[span.segment]):
        raise InputError(f"there are no characters {document.named(span)} in the text")
