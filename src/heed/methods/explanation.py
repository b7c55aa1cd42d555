"""What one method says of one document, with all that is needed to obtain it again."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from rich.console import Console, ConsoleOptions, RenderResult

from heed.errors import InputError
from heed.text import Document, Span

UnitKind = Literal["word", "token"]


@dataclass(frozen=True)
class Unit:
    """A word or token that carries one score; a word that occurs several times may have several spans."""

    text: str
    spans: tuple[tuple[int, int], ...]
    segment: int = 0


@dataclass(frozen=True)
class Special:
    """The score of a special token, or of all padding together: kept apart from the words."""

    text: str
    score: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """What one method says of one document and one label, with all that is needed to obtain it again.

    scores           one per unit, positive for the label where the method is signed
    standard_errors  how far sampling may have moved each score, for sampled methods
    probabilities    the model's prediction for the document
    forward_passes   how often the model's output was asked for, however it was computed
    facts            numbers that belong to the method, such as an intercept or a completeness gap
    raw              the scores before the method changed them, for methods that make something of attention
    intervals        how small and how large each score could be, the output being what it is; NaN where nobody looked
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

    def top(self, n: int = 10) -> list[tuple[str, float]]:
        """The n units with the largest scores, by absolute value."""
        order = np.argsort(-np.abs(self.scores), kind="stable")[:n]
        return [(self.units[i].text, float(self.scores[i])) for i in order]

    def to_dict(self) -> dict[str, Any]:
        """Plain values that json can hold; `from_dict` reads them back."""
        document = {"text": self.document.text, "pair": self.document.pair, "id": self.document.id}
        document["label"] = self.document.label  # type: ignore[assignment]
        document["rationale"] = [list(span) for span in self.document.rationale]  # type: ignore[assignment]
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return own | {
            "document": document,
            "units": [
                {"text": u.text, "spans": [list(s) for s in u.spans], "segment": u.segment}
                for u in self.units
            ],
            "scores": self.scores.tolist(),
            "specials": [{"text": s.text, "score": s.score} for s in self.specials],
            **{
                name: None if (x := getattr(self, name)) is None else x.tolist()
                for name in ("standard_errors", "raw")
            },
            "intervals": None
            if self.intervals is None
            else [
                None if math.isnan(low) else [low, high] for low, high in self.intervals.tolist()
            ],
            "settings": {
                k: str(v) if v in (math.inf, -math.inf) else v for k, v in self.settings.items()
            },
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Explanation:
        """The explanation that `to_dict` wrote."""
        try:
            document = dict(values["document"])
            document["rationale"] = tuple(Span(*span) for span in document["rationale"])
            read = {
                "document": Document(**document),
                "units": tuple(
                    Unit(u["text"], tuple((a, b) for a, b in u["spans"]), u["segment"])
                    for u in values["units"]
                ),
                "scores": np.array(values["scores"], dtype=float),
                "specials": tuple(Special(**s) for s in values["specials"]),
                **{
                    name: None if (x := values.get(name)) is None else np.array(x, dtype=float)
                    for name in ("standard_errors", "raw")
                },
                "intervals": None
                if (x := values.get("intervals")) is None
                else np.array(
                    [(np.nan, np.nan) if pair is None else pair for pair in x], dtype=float
                ).reshape(-1, 2),
                "settings": {
                    k: float(v) if v in ("inf", "-inf") else v
                    for k, v in values["settings"].items()
                },
                "probabilities": {str(k): float(v) for k, v in values["probabilities"].items()},
                "notes": tuple(str(note) for note in values["notes"]),
            }
            found = cls(**(values | read))
            found.probabilities[found.label]
            every = (found.scores, found.standard_errors, found.raw, found.intervals)
            beside = [x for x in every if x is not None]
            if any(len(x) != len(found.units) for x in beside):
                raise ValueError("units and scores differ in number")
            if not np.isfinite(found.scores).all():
                raise ValueError("scores must be finite numbers")
            return found
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"This is not an explanation that heed wrote ({type(error).__name__}: {error})."
            ) from None

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        try:
            values = json.loads(text)
        except ValueError as error:
            raise InputError(f"This is not an explanation that heed wrote ({error}).") from None
        return cls.from_dict(values)

    def _repr_html_(self) -> str:
        from heed.report import explanation

        return explanation.html(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from heed.report import explanation

        yield from explanation.terminal(self, console, options)

    def __repr__(self) -> str:
        words = ", ".join(f"{text} {score:+.3g}" for text, score in self.top(4))
        return f"<Explanation {self.method} of {self.label!r}: {words}>"
