"""What all methods share: tokens, labels, units, special tokens, seeds, notes and provenance.

A `Method` is a frozen value whose fields are its settings. `explain(model, documents, …)` is its one verb. A method
only says, for a few documents at a time, how it scores them (`measure`).
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

from heed.errors import InputError, NotApplicable, UnknownName
from heed.methods.explanation import Explanation, Special, Unit, UnitKind
from heed.models.classifier import NO_PAIRS, OUTPUTS, Classifier, Output
from heed.progress import bar
from heed.randomness import generator
from heed.text import Tokens

Merge = Literal["sum", "max"]
_CHUNK = 64  # documents measured together


@dataclass(frozen=True, eq=False)
class Job:
    """One document to be scored: its tokens, the units and the unit of each token (-1: none).

    label    the index of the label to explain
    logits   the output for the whole document

    A method that evaluates the whole document itself gets no logits, and -1 for the label that is predicted.
    """

    tokens: Tokens
    label: int
    units: tuple[Unit, ...]
    groups: Int[np.ndarray, "token"]
    rng: np.random.Generator
    logits: Float[np.ndarray, "label"] | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """What a method found for one job: scores by unit, or by row (tokens, then padding that attends).

    raw      by row, what the scores were before the method changed them
    logits   the output for the whole document, from a method that evaluates it itself
    """

    scores: Float[np.ndarray, "unit"] | None = None
    rows: Float[np.ndarray, "row"] | None = None
    standard_errors: Float[np.ndarray, "unit"] | None = None
    forward_passes: int = 1
    facts: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    logits: Float[np.ndarray, "label"] | None = None
    raw: Float[np.ndarray, "row"] | None = None
    intervals: Float[np.ndarray, "unit 2"] | None = None


@dataclass(frozen=True)
class Method(ABC):
    """A method and its settings.

    name         as users type it
    summary      one line for `heed list methods`
    needs        what the model must offer
    longest      how many tokens a document may have
    signed       whether a score says for or against
    on_request   whether it is left out where no method is named
    paper        key of the source in papers.bib, or several with blanks between them
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    longest: ClassVar[float] = math.inf
    signed: ClassVar[bool] = True
    on_request: ClassVar[bool] = False
    paper: ClassVar[str] = ""

    @abstractmethod
    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        """Score a few documents."""

    def together(self) -> bool:
        """Whether repeated words share one unit."""
        return False

    def evaluations(self, units: int) -> int:
        """How many outputs the method asks for, at most, for a document of so many units."""
        return 1

    def evaluates_whole(self) -> bool:
        """Whether the output for the whole document is among those that the method asks for."""
        return False

    def obstacle(self, model: Classifier, documents: Sequence[Any]) -> str:
        """Why the method cannot explain these documents on this model, in one sentence; empty if it can."""
        missing = self.needs - model.offers
        if missing:
            return f"{self.name} needs {' and '.join(sorted(missing))}, which {model.name} does not offer."
        longest = (
            0
            if self.longest == math.inf
            else max((len(t) for t in model.tokens(documents)), default=0)
        )
        if longest > self.longest:
            return f"{self.name} takes texts of at most {self.longest} tokens, got {longest:,}: give it a shorter one."
        return ""

    def explain(
        self,
        model: Classifier,
        documents: Sequence[Any],
        label: int | str | None = None,
        unit: UnitKind = "word",
        seed: int = 0,
    ) -> list[Explanation]:
        """Explain each document for one label, by default the one that the model predicts for it."""
        if why := self.obstacle(model, documents):
            raise NotApplicable(why)
        if unit not in ("word", "token"):
            raise UnknownName("unit", str(unit), ("word", "token"))
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise InputError(f"A seed must be a whole number, got {seed!r}.")
        chosen, seed = None if label is None else model.label(label), int(seed)
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        found: list[Explanation] = []
        for start in bar(range(0, len(documents), _CHUNK), self.name, unit="chunk"):
            began = time.perf_counter()
            tokens = model.tokens(documents[start : start + _CHUNK])
            _refuse_empty(tokens, start, len(documents))
            known = [None] * len(tokens) if self.evaluates_whole() else model.logits(tokens)
            jobs = []
            for t, row in zip(tokens, known, strict=True):
                wanted = chosen if chosen is not None else -1 if row is None else int(row.argmax())
                jobs.append(
                    Job(t, wanted, *units_of(t, unit, self.together()), self._rng(t, seed), row)
                )
            measured = self.measure(model, jobs)
            seconds = (time.perf_counter() - began) / len(jobs)
            for job, m in zip(jobs, measured, strict=True):
                found.append(self._assemble(model, job, m, settings, seed, unit, seconds))
        return found

    def _rng(self, tokens: Tokens, seed: int) -> np.random.Generator:
        """Randomness from (seed, method, text) alone: batches, order and workers cannot change it."""
        return generator(seed, self.name, *tokens.document.segments)

    def _assemble(
        self,
        model: Classifier,
        job: Job,
        measured: Measured,
        settings: dict[str, Any],
        seed: int,
        unit: UnitKind,
        seconds: float,
    ) -> Explanation:
        logits = measured.logits if job.logits is None else job.logits
        assert logits is not None
        label = int(logits.argmax()) if job.label < 0 else job.label
        scores = measured.scores
        specials: tuple[Special, ...] = ()
        if scores is None:
            assert measured.rows is not None
            scores, specials = split_rows(job, measured.rows, settings["merge"])
        return Explanation(
            document=job.tokens.document,
            method=self.name,
            label=model.labels[label],
            unit=unit,
            units=job.units,
            scores=np.asarray(scores, dtype=float),
            specials=specials,
            standard_errors=measured.standard_errors,
            signed=self.signed,
            probabilities={
                name: float(p)
                for name, p in zip(model.labels, model.probabilities(logits), strict=True)
            },
            settings=settings,
            seed=seed,
            model=model.name,
            revision=model.revision,
            removal=model.removal(settings["removal"]) if "removal" in settings else None,
            forward_passes=measured.forward_passes,
            seconds=seconds,
            facts=measured.facts,
            notes=(*model.notes, *_reading_notes(job.tokens, model.pairs), *measured.notes),
            raw=None
            if measured.raw is None
            else split_rows(job, measured.raw, settings["merge"])[0],
            intervals=measured.intervals,
        )


@dataclass(frozen=True)
class TokenMethod(Method):
    """A method that scores tokens; `merge` says how those of a word become its score.

    "sum" adds them up, "max" takes the one with the largest absolute value, with its sign.
    """

    merge: Merge = field(default="sum", kw_only=True)

    def __post_init__(self) -> None:
        if self.merge not in ("sum", "max"):
            raise UnknownName("way to merge tokens", str(self.merge), ("sum", "max"))


def units_of(
    tokens: Tokens, unit: UnitKind = "word", together: bool = False
) -> tuple[tuple[Unit, ...], Int[np.ndarray, "token"]]:
    """The units of a document and the unit of each token (-1 for special tokens)."""
    if unit == "word":
        pieces = [(w.segment, w.start, w.end, w.text, w.form) for w in tokens.words]
        piece_of = tokens.word
    else:
        real = np.flatnonzero(~tokens.special)
        texts = [tokens.text(int(i)) for i in real]
        pieces = [
            (
                int(tokens.segment[i]),
                int(tokens.spans[i, 0]),
                int(tokens.spans[i, 1]),
                text,
                tokens.tokenizer.normalise(text),
            )
            for i, text in zip(real, texts, strict=True)
        ]
        piece_of = np.where(tokens.special, -1, np.cumsum(~tokens.special) - 1)
    if not together:
        return tuple(Unit(text, ((a, b),), s) for s, a, b, text, _ in pieces), piece_of
    index: dict[tuple[int, str], int] = {}
    spans: list[list[tuple[int, int]]] = []
    first: list[tuple[str, int]] = []
    group = np.empty(len(pieces), dtype=np.int64)
    for i, (segment, start, end, text, form) in enumerate(pieces):
        j = index.setdefault((segment, form), len(index))
        if j == len(spans):
            spans.append([])
            first.append((text, segment))
        spans[j].append((start, end))
        group[i] = j
    units = tuple(
        Unit(text, tuple(s), segment) for (text, segment), s in zip(first, spans, strict=True)
    )
    return units, np.where(piece_of < 0, -1, group[piece_of])


def split_rows(
    job: Job, rows: Float[np.ndarray, "row"], merge: Merge
) -> tuple[Float[np.ndarray, "unit"], tuple[Special, ...]]:
    """Scores of tokens merged into units, with special tokens and padding apart."""
    tokens = job.tokens
    scores = np.zeros(len(job.units))
    inside = job.groups >= 0
    own, groups = rows[: len(tokens)][inside], job.groups[inside]
    if merge == "sum":
        np.add.at(scores, groups, own)
    else:
        order = np.argsort(np.abs(own), kind="stable")
        scores[groups[order]] = own[order]  # the last and largest of a unit stays
    specials = [Special(tokens.names[i], float(rows[i])) for i in np.flatnonzero(~inside)]
    if len(rows) > len(tokens):
        specials.append(Special("padding", float(rows[len(tokens) :].sum())))
    return scores, tuple(specials)


def _refuse_empty(tokens: Sequence[Tokens], start: int, total: int) -> None:
    for i, t in enumerate(tokens, start + 1):
        if not t.words:
            which = "The text" if total == 1 else f"Text {i} of {total}"
            blank = not any(segment.strip() for segment in t.document.segments)
            why = "is empty" if blank else "has no word that the model can read"
            raise InputError(f"{which} {why}: there is nothing to explain.")


def _reading_notes(tokens: Tokens, pairs: bool) -> tuple[str, ...]:
    notes = []
    if tokens.document.pair is not None and not pairs:
        notes.append(NO_PAIRS)
    read = len(tokens.words)
    if tokens.dropped:
        in_part = ("", " (one of them in part)", " (two of them in part)")[tokens.cut_short]
        total = read + tokens.dropped
        notes.append(
            f"Only the first {read:,}{in_part} of {total:,} words were read; {tokens.dropped:,} were"
            " cut off."
        )
    elif tokens.cut_short:
        notes.append(
            "The text is longer than the model reads: of its last word only the beginning was read."
        )
    places = np.flatnonzero(tokens.unknown)
    unknown = list(dict.fromkeys(tokens.text(int(i)) for i in places))
    if unknown:
        first = ", ".join(repr(w[:30]) for w in unknown[:5]) + (" …" if len(unknown) > 5 else "")
        many = "1 word is" if len(unknown) == 1 else f"{len(unknown)} words are"
        stand_in = tokens.names[places[0]]
        notes.append(f"{many} unknown to the model, which reads {stand_in} instead: {first}.")
    return tuple(notes)


def check_output(output: Output) -> None:
    if output not in OUTPUTS:
        raise UnknownName("output", str(output), OUTPUTS)


def check_head(method: Method, head: int | None, output: Output) -> None:
    """Heads add up to the logit, and to nothing else."""
    if head is not None and output != "logit":
        raise InputError(
            f"{method.name} explains one head by its part of the logit: leave output at 'logit'."
        )


def check_at_least(method: Method, **least: float) -> None:
    """Refuse numbers that are too small to mean anything, and broken ones where the setting is a whole number."""
    for name, low in least.items():
        value, whole = getattr(method, name), isinstance(getattr(type(method), name), int)
        if (
            isinstance(value, bool)
            or not isinstance(value, int if whole else int | float)
            or not value >= low
        ):
            wanted = f"at least {low:g}" + (" and whole" if whole else "")
            raise InputError(f"The setting {name} of {method.name} must be {wanted}, got {value}.")
