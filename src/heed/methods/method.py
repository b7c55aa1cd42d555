"""What all methods share: tokens, labels, units, special tokens, seeds, notes and provenance.

A `Method` is a frozen value; its fields are its settings. Call `explain(model, documents, …)` on
it. A new method only implements `measure`, which scores a few documents at a time.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.errors import InputError, NotApplicable, UnknownName
from heed.methods.explanation import (
    OUTSIDE,
    PADDING,
    SINK,
    TEMPLATE,
    Explanation,
    Special,
    Unit,
    UnitKind,
)
from heed.methods.rounding import rounded_away, rounding_of
from heed.methods.units import PASSAGES, passages_of, units_of
from heed.models.classifier import NO_PAIRS, Classifier, Logits, Output
from heed.progress import bar
from heed.randomness import generator
from heed.settings import check
from heed.text import Tokens, counted

Merge = Literal["sum", "max"]
Scores = Float[np.ndarray, "unit"]
Keep = Bool[np.ndarray, "sample unit"]  # which words each text keeps
_CHUNK = 64  # documents measured together


@dataclass(frozen=True, eq=False)
class Job:
    """One document to score.

    label    index of the label to explain; -1 for the predicted label where `logits` is None
    units    what gets a score: words, tokens or passages
    groups   the unit of each token, -1 for special tokens and those outside of all units
    rng      randomness for this document alone
    logits   the output for the whole document; None if the method evaluates it itself
    unit     what the units are
    """

    tokens: Tokens
    label: int
    units: tuple[Unit, ...]
    groups: Int[np.ndarray, "token"]
    rng: np.random.Generator
    logits: Float[np.ndarray, "label"] | None = None
    unit: UnitKind = "word"


@dataclass(frozen=True, eq=False)
class Measured:
    """What a method measured for one document: either `scores` or `rows`.

    scores           one per unit
    rows             one per token, then one per padding position that the model attends to
    standard_errors  one per unit, for sampled methods
    forward_passes   how many outputs `measure` asked the model for
    facts, notes     numbers and sentences that belong to the explanation
    logits           the output for the whole document, from a method that evaluates it itself
    raw              by row, the scores before the method changed them
    intervals        smallest and largest score of each unit
    sink             a special token, or one of a template, that is shown by itself
    parts            other numbers of each unit, by name
    """

    scores: Scores | None = None
    rows: Float[np.ndarray, "row"] | None = None
    standard_errors: Scores | None = None
    forward_passes: int = 1
    facts: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    logits: Float[np.ndarray, "label"] | None = None
    raw: Float[np.ndarray, "row"] | None = None
    intervals: Float[np.ndarray, "unit 2"] | None = None
    sink: int | None = None
    parts: dict[str, Scores] = field(default_factory=dict)


@dataclass(frozen=True)
class Method(ABC):
    """A method and its settings.

    name           what users type
    summary        one line for `heed list methods`
    needs          what the model must offer
    longest        the largest number of tokens that a document may have
    signed         whether the sign of a score says "for the label" or "against it"
    only_by_name   run it only if the user names it, never as one of "all methods"
    paper          key of the source in papers.bib, or several keys separated by blanks

    Scores do not depend on which documents share a batch, nor on their order. Two runs differ by at
    most 1e-5 of the largest score; for methods that explain an output, of the largest logit if that
    is larger. Their scores measure how the output changes, and a change cannot be known better than
    the rounding of the output itself.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    longest: ClassVar[float] = math.inf
    signed: ClassVar[bool] = True
    only_by_name: ClassVar[bool] = False
    paper: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check(self, self.name)

    @abstractmethod
    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        """Score a few documents."""

    def merges_repeats(self) -> bool:
        """Whether all occurrences of a word form one unit with one score."""
        return False

    def evaluations(self, units: int) -> int:
        """The largest number of different outputs that a document of so many units takes."""
        return 1

    def evaluates_whole(self) -> bool:
        """Whether `measure` itself evaluates the whole document, so that nobody else has to."""
        return False

    def layers_read(self) -> str:
        """The layers whose attention it reads: "last", "all", or numbers such as "0,2,-1".

        A method that reads none is compared with the attention of the last layer.
        """
        return "last"

    def refusal(self, model: Classifier, documents: Sequence[Any]) -> str:
        """Why the method cannot explain these documents on this model, in a sentence; or ""."""
        if reason := self.lacks(model, self.needs):
            return reason
        if self.longest == math.inf:
            return ""
        longest = max((len(tokens) for tokens in model.tokens(documents)), default=0)
        if longest <= self.longest:
            return ""
        return (
            f"{self.name} takes texts of at most {self.longest} tokens, got {longest:,}: "
            "give it a shorter one."
        )

    def lacks(self, model: Classifier, needs: Set[str], settings: str = "") -> str:
        """What the model does not offer of these needs, in a sentence; or "".

        settings   those that need it, in words, such as " with fixed attention"
        """
        missing = model.lacks(needs)
        return f"{self.name}{settings} needs {missing}." if missing else ""

    def explain(
        self,
        model: Classifier,
        documents: Sequence[Any],
        label: int | str | None = None,
        unit: UnitKind = "word",
        seed: int = 0,
        logits: Logits | None = None,
    ) -> list[Explanation]:
        """Explain each document for one label, by default the label that the model predicts.

        logits   what the model says of the whole documents, if somebody has asked it already
        """
        if reason := self.refusal(model, documents):
            raise NotApplicable(reason)
        if unit not in get_args(UnitKind):
            raise UnknownName("unit", str(unit), get_args(UnitKind))
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise InputError(f"A seed must be a whole number, got {seed!r}.")
        index, seed = None if label is None else model.label(label), int(seed)
        explanations: list[Explanation] = []
        for start in bar(range(0, len(documents), _CHUNK), self.name, unit="chunk"):
            began = time.perf_counter()
            tokens = model.tokens(documents[start : start + _CHUNK])
            refuse_empty(tokens, unit, start, len(documents))
            known = None if logits is None else logits[start : start + _CHUNK]
            jobs = self._jobs(model, tokens, index, unit, seed, known)
            measured = self.measure(model, jobs)
            seconds = (time.perf_counter() - began) / len(jobs)
            for job, m in zip(jobs, measured, strict=True):
                explanations.append(self._assemble(model, job, m, unit, seed, seconds))
        return explanations

    def _jobs(
        self,
        model: Classifier,
        tokens: list[Tokens],
        label: int | None,
        unit: UnitKind,
        seed: int,
        known: Logits | None,
    ) -> list[Job]:
        """One job per document, with the output for the whole document unless `measure` gets it."""
        whole: Any = [None] * len(tokens)
        if not self.evaluates_whole():
            whole = model.logits(tokens) if known is None else known
        jobs = []
        for t, logits in zip(tokens, whole, strict=True):
            predicted = -1 if logits is None else int(logits.argmax())
            units, groups = units_of(t, unit, self.merges_repeats())
            wanted = predicted if label is None else label
            # randomness from (seed, method, text) alone: batches and order cannot change it
            rng = generator(seed, self.name, *t.document.segments)
            jobs.append(Job(t, wanted, units, groups, rng, logits, unit))
        return jobs

    def _assemble(
        self,
        model: Classifier,
        job: Job,
        measured: Measured,
        unit: UnitKind,
        seed: int,
        seconds: float,
    ) -> Explanation:
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        if "at" in settings:
            settings["at"] = model.place(settings["at"])
        if isinstance(self, OutputMethod):
            settings["output"] = self.explained(model)
        logits = measured.logits if job.logits is None else job.logits
        assert logits is not None
        label = int(logits.argmax()) if job.label < 0 else job.label
        scores, raw = measured.scores, None
        specials: tuple[Special, ...] = ()
        if scores is None:
            assert measured.rows is not None
            scores, specials = split_rows(job, measured.rows, settings["merge"], measured.sink)
        if measured.raw is not None:
            raw, _ = split_rows(job, measured.raw, settings["merge"])
        notes = _notes(job, model, measured)
        if model.half and isinstance(self, OutputMethod) and self.of_changes:
            rounding = rounding_of(model, logits, label, self.explained(model))
            notes += tuple(filter(None, [rounded_away(np.asarray(scores), rounding)]))
        probabilities = model.probabilities(logits).tolist()
        # the output for the whole document is one more, unless `measure` asked for it
        passes = measured.forward_passes + (not self.evaluates_whole())
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
            probabilities=dict(zip(model.labels, probabilities, strict=True)),
            settings=settings,
            seed=seed,
            model=model.name,
            revision=model.revision,
            removal=model.removal(settings["removal"]) if "removal" in settings else None,
            forward_passes=passes,
            seconds=seconds,
            facts=measured.facts,
            notes=notes,
            raw=raw,
            intervals=measured.intervals,
            parts=measured.parts,
        )


@dataclass(frozen=True)
class OutputMethod(Method):
    """A method that explains an output of the model.

    output   what is explained: log-odds, logit or probability of the label; by default log-odds,
             which move if and only if the prediction does
    """

    # whether scores are changes of the output, and so no better known than the output is
    of_changes: ClassVar[bool] = False

    output: Output | None = field(default=None, kw_only=True)

    def explained(self, model: Classifier) -> Output:
        """What is explained, where nobody said what."""
        return self.output or "log-odds"


@dataclass(frozen=True)
class HeadMethod(OutputMethod):
    """A method that can explain one attention head of the single-layer classifier.

    head   explain only what this attention head contributes to the logit
    """

    head: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head is not None and self.output not in (None, "logit"):
            raise InputError(
                f"{self.name} explains one head by its part of the logit: leave out the output."
            )

    def explained(self, model: Classifier) -> Output:
        return super().explained(model) if self.head is None else "logit"


@dataclass(frozen=True)
class TokenMethod(Method):
    """A method that scores tokens.

    merge   how the scores of a word's tokens become its score: "sum" adds them up, "max" takes the
            one with the largest absolute value, with its sign
    """

    merge: Annotated[Merge, "way to merge tokens"] = field(default="sum", kw_only=True)


@dataclass(frozen=True)
class BatchMethod(TokenMethod):
    """A method that scores the tokens of all documents of a batch at once."""

    @abstractmethod
    def measure_batch(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        """Score documents that one pass through the model can hold."""

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        tokens = [job.tokens for job in jobs]
        return model.each(tokens, lambda batch: self.measure_batch(model, [jobs[i] for i in batch]))


def layer_of(number: int, count: int) -> int:
    """The layer with this number, where -1 is the last, of a model that has so many."""
    if not -count <= number < count:
        layers = "one layer, 0" if count == 1 else f"layers 0 to {count - 1}"
        raise InputError(f"There is no layer {number}: the model has {layers}.")
    return number % count


def split_rows(
    job: Job, rows: Float[np.ndarray, "row"], merge: Merge, sink: int | None = None
) -> tuple[Scores, tuple[Special, ...]]:
    """Scores of tokens merged into units; special tokens, template, padding and a sink apart."""
    tokens = job.tokens
    scores = np.zeros(len(job.units))
    inside = job.groups >= 0
    token_scores, groups = rows[: len(tokens)][inside], job.groups[inside]
    if merge == "sum":
        np.add.at(scores, groups, token_scores)
    else:
        # written in ascending order of size, so that the largest of a unit is written last
        order = np.argsort(np.abs(token_scores), kind="stable")
        scores[groups[order]] = token_scores[order]
    outside = ~inside & ~tokens.special
    template = tokens.template
    if sink is not None:
        template[sink] = False
    specials = [
        Special(f"{tokens.names[i]}{SINK}" if i == sink else tokens.names[i], float(rows[i]))
        for i in np.flatnonzero(~inside & ~outside & ~template)
    ]
    for name, together in ((TEMPLATE, template), (OUTSIDE, outside)):
        if together.any():
            specials.append(Special(name, float(rows[: len(tokens)][together].sum())))
    if len(rows) > len(tokens):
        specials.append(Special(PADDING, float(rows[len(tokens) :].sum())))
    return scores, tuple(specials)


def refuse_empty(
    tokens: Sequence[Tokens], unit: UnitKind = "word", start: int = 0, total: int = 1
) -> None:
    """Refuse texts without units; these are `total` texts from number `start` on."""
    for i, t in enumerate(tokens, start + 1):
        if t.words and (unit != "span" or units_of(t, unit)[0]):
            continue
        which = "The text" if total == 1 else f"Text {i} of {total}"
        if t.words:
            wanted = "heed.Document(text, spans=…), or data with a column 'spans'"
            raise InputError(f"{which} has no span that the model reads: give {wanted}.")
        blank = not any(segment.strip() for segment in t.document.segments)
        why = "is empty" if blank else "has no word that the model can read"
        raise InputError(f"{which} {why}: there is nothing to explain.")


def _notes(job: Job, model: Classifier, measured: Measured) -> tuple[str, ...]:
    """What a reader should know; first of all, if most of the text was not read."""
    tokens = job.tokens
    cut = _cut_note(job)
    first, later = (cut, ()) if tokens.dropped > len(tokens.words) else ((), cut)
    unpaired = (NO_PAIRS,) if tokens.document.pair is not None and not model.pairs else ()
    reading = (*unpaired, *later, *_unknown_note(tokens), *tokens.tokenizer.remarks(tokens))
    return (*first, *model.notes, *reading, *measured.notes)


def _cut_note(job: Job) -> tuple[str, ...]:
    """How much of a long text was read, counted in what gets a score."""
    tokens, noun = job.tokens, "word"
    read, dropped, in_part = len(tokens.words), tokens.dropped, tokens.cut_short
    if (dropped or in_part) and job.unit in PASSAGES:
        whole = {(s.segment, s.start): s.end for s in passages_of(tokens.document, job.unit)}
        ends = [(whole[u.segment, u.spans[0][0]], u.spans[0][1]) for u in job.units]
        short, unread = sum(end > last for end, last in ends), len(whole) - len(ends)
        # spans may all lie in what was read: then words tell how much was not
        if short or unread:
            noun, read, dropped, in_part = job.unit, len(ends), unread, short
    if dropped:
        parts = ("", " (one of them in part)", " (two of them in part)")[in_part]
        return (
            f"Only the first {read:,}{parts} of {counted(read + dropped, noun)} were read;"
            f" {dropped:,} were cut off.",
        )
    if in_part:
        return (
            f"The text is longer than the model reads: of its last {noun} only the beginning was"
            " read.",
        )
    return ()


def _unknown_note(tokens: Tokens) -> tuple[str, ...]:
    positions = np.flatnonzero(tokens.unknown)
    unknown = list(dict.fromkeys(tokens.text(int(i)) for i in positions))
    if unknown:
        first = ", ".join(repr(w[:30]) for w in unknown[:5]) + (" …" if len(unknown) > 5 else "")
        many = "1 word is" if len(unknown) == 1 else f"{len(unknown)} words are"
        stand_in = tokens.names[positions[0]]
        return (f"{many} unknown to the model, which reads {stand_in} instead: {first}.",)
    return ()
