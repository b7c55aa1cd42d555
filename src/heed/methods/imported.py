"""Scores that another program computed, to be judged and shown beside heed's own.

Another program may split a text into other pieces than the model does. So each score belongs to
characters of the text, and a word of the model gets the scores on its characters.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from heed.data.files import rows_of
from heed.errors import DataError, InputError, OutputError, quoted
from heed.methods.explanation import LARGEST, Explanation, check_span
from heed.methods.method import Job, Measured, Method
from heed.methods.table import METHODS
from heed.methods.units import PASSAGES
from heed.models.classifier import Classifier
from heed.text import Document, Span, Tokens


class Record(NamedTuple):
    """The imported explanation of one document: pieces of its text, each with a score.

    pieces     the characters of each piece; a word that occurs several times may have several spans
    label      the explained label, by name or index; None for the label that the model predicts
    revision   of the explained model, if known
    """

    document: Document
    pieces: tuple[tuple[Span, ...], ...]
    scores: tuple[float, ...]
    label: str | int | None = None
    revision: str | None = None


Key = tuple[str, ...]  # the texts of a document, without blanks at both ends
Label = str | int | None


@dataclass(frozen=True)
class Imported(Method):
    """Scores of another program, under a name of their own.

    `Imported.arrays` takes plain numbers (from captum, for example), `Imported.shap` and
    `Imported.lime` take what these packages return, `Imported.read` reads a file. The text to
    explain must be the imported one, up to blanks at both ends.
    """

    name: str  # type: ignore[misc]
    signed: bool = True  # type: ignore[misc]
    records: InitVar[Iterable[Record]] = ()
    digest: str = field(init=False)

    def __post_init__(self, records: Iterable[Record]) -> None:
        if not self.name.strip() or self.name in METHODS:
            name = quoted(self.name)
            raise InputError(f"Imported explanations need a name of their own, got '{name}'.")
        by_text: dict[Key, list[Record]] = {}
        for record in records:
            others = by_text.setdefault(_key(record.document), [])
            if any(other.label == record.label for other in others):
                start = _start(record.document)
                raise InputError(f"{self.name} explains the text that begins with “{start}” twice.")
            others.append(record)
        if not by_text:
            raise InputError(f"{self.name} holds no explanation.")
        explained = chain.from_iterable(by_text.values())
        text = json.dumps([[r.document.segments, r.pieces, r.scores, r.label] for r in explained])
        digest = hashlib.sha256(text.encode("utf8", "replace")).hexdigest()[:16]
        object.__setattr__(self, "_by_text", by_text)
        object.__setattr__(self, "digest", digest)

    @property
    def documents(self) -> list[Document]:
        """The explained documents."""
        return [records[0].document for records in self._records().values()]

    def explains(self, document: Document) -> bool:
        """Whether there is an explanation of this text, for any label."""
        return _key(document) in self._records()

    def unfit(self, model: Classifier, tokens: Sequence[Tokens]) -> list[str]:
        """For each document why it cannot be explained, or an empty string."""
        reasons = []
        for t, logits in zip(tokens, model.logits(tokens), strict=True):
            try:
                self._record(model, t.document, int(logits.argmax()))
                reasons.append("")
            except InputError as error:
                reasons.append(str(error))
        return reasons

    def merges_repeats(self) -> bool:
        records = chain.from_iterable(self._records().values())
        pieces = chain.from_iterable(record.pieces for record in records)
        return any(len(spans) > 1 for spans in pieces)

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        records = [self._record(model, job.tokens.document, job.label) for job in jobs]
        return [self._measured(job, record) for job, record in zip(jobs, records, strict=True)]

    def _records(self) -> dict[Key, list[Record]]:
        return self._by_text  # type: ignore[attr-defined]

    def _record(self, model: Classifier, document: Document, label: int) -> Record:
        """The imported explanation of a text for a label."""
        records = self._records().get(_key(document), [])
        text = f"the text that begins with “{_start(document)}”"
        if not records:
            raise InputError(f"{self.name} has no explanation of {text}.")
        for record in records:
            if record.revision not in (None, model.revision):
                models = f"{quoted(record.revision)}, not {model.revision}"
                raise InputError(f"{self.name} explains another model ({models}).")
            if record.label is None or _index(model, record.label) == label:
                return record
        labels = quoted(" and ".join(repr(r.label) for r in records))
        predicted = f"and the model predicts {model.labels[label]!r}"
        raise InputError(f"{self.name} explains {labels} for {text}, {predicted}.")

    def _measured(self, job: Job, record: Record) -> Measured:
        """Each score split among the words on its characters, in proportion to these."""
        segments, imported = job.tokens.document.segments, record.document.segments
        # the text to explain and the imported one may begin with different blanks
        shift = [_blanks(a) - _blanks(b) for a, b in zip(segments, imported, strict=True)]
        unit_of = [np.full(len(text), -1) for text in segments]  # for each character
        for i, unit in enumerate(job.units):
            for start, end in unit.spans:
                unit_of[unit.segment][start:end] = i
        scores, missed = np.zeros(len(job.units)), 0.0
        for spans, score in zip(record.pieces, record.scores, strict=True):
            characters = np.zeros(len(job.units), dtype=int)
            for start, end, segment in spans:
                begin = max(0, start + shift[segment])
                covered = unit_of[segment][begin : end + shift[segment]]
                characters += np.bincount(covered[covered >= 0], minlength=len(job.units))
            if characters.any():
                scores += score * characters / characters.sum()
            else:
                missed += abs(score)
        if not missed:
            return Measured(scores, forward_passes=0)
        share = missed / sum(map(abs, record.scores))
        note = (
            f"{share:.0%} of the scores of {self.name} lie on pieces that are no {job.unit}s of "
            f"the {'text' if job.unit in PASSAGES else 'model'}, and are left out."
        )
        return Measured(scores, forward_passes=0, facts={"left_out": share}, notes=(note,))

    # Where they come from

    @classmethod
    def arrays(
        cls,
        name: str,
        texts: Sequence[Any],
        scores: Sequence[Any],
        pieces: Sequence[Sequence[Any]] | None = None,
        label: str | int | None = None,
        signed: bool | None = None,
    ) -> Imported:
        """One number per piece of each text, such as captum's attributions summed over embeddings.

        pieces   how each text was split: strings in order, as a tokenizer spells them (special
                 tokens such as [CLS] get no words), or character ranges (start, end), in pairs of
                 texts (start, end, 0 or 1); by default the words between blanks
        label    the explained label, if it is the same for all texts; by default the predicted one
        signed   whether the sign says for or against the label; by default whether any is negative
        """
        split: Sequence[Sequence[Any] | None] = [None] * len(texts) if pieces is None else pieces
        if not len(texts) == len(scores) == len(split):
            raise InputError(
                f"{name}: there are {len(texts)} texts, and not as many rows of scores and pieces."
            )
        records = []
        for text, row, parts in zip(texts, scores, split, strict=True):
            records.append(_record(name, Document.of(text), row, parts, label))
        return cls._from_records(name, records, signed)

    @classmethod
    def shap(cls, explanation: Any, name: str = "shap-package") -> Imported:
        """What a `shap.Explainer` of texts returns: values for all labels, in the model's order."""
        records = []
        for values, pieces in zip(explanation.values, explanation.data, strict=True):
            scores = np.asarray(values, dtype=float)
            if scores.ndim != 2:
                wanted = "shap's values must be tokens × labels"
                raise InputError(f"{name}: {wanted}, got {scores.shape}.")
            strings = [str(piece) for piece in pieces]
            ends = accumulate(map(len, strings), initial=0)
            document, spans = Document("".join(strings)), list(pairwise(ends))
            for k in range(scores.shape[1]):
                records.append(_record(name, document, scores[:, k], spans, k))
        return cls._from_records(name, records, True)

    @classmethod
    def lime(cls, explanations: Sequence[Any], name: str = "lime-package") -> Imported:
        """What lime's LimeTextExplainer returns for each text; labels are in the model's order.

        One of two exclusive labels is enough: the other one has the opposite scores.
        """
        records = []
        for e in explanations:
            string, proba = e.domain_mapper.indexed_string, np.asarray(e.predict_proba, dtype=float)
            by_label = {
                int(label): [(i, float(w)) for i, w in weights]
                for label, weights in e.local_exp.items()
            }
            if len(by_label) == 1 and len(proba) == 2 and np.isclose(proba.sum(), 1):
                ((label, weights),) = by_label.items()
                by_label[1 - label] = [(i, -w) for i, w in weights]
            document = Document(string.raw_string())
            for label, weights in by_label.items():
                pieces = tuple(_lime_spans(string, i) for i, _ in weights)
                records.append(Record(document, pieces, tuple(w for _, w in weights), label))
        return cls._from_records(name, records, True)

    @classmethod
    def read(cls, path: Path | str) -> list[Imported]:
        """The explanations in a .json, .jsonl or .parquet file, one `Imported` per method in it.

        A row is what `save_explanations` writes, or has `text` and `scores`, and where needed
        `pieces` (strings, or [start, end]), `pair`, `label`, `id`, `gold`, `signed` and `method`.
        The file's name becomes the name of the method.
        """
        path = Path(path)
        groups: dict[str, list[Record]] = {}
        signed: dict[str, bool | None] = {}
        for _, where, row in rows_of(path):
            try:
                method, record, sign = _from_row(path.stem, row)
            except (msgspec.MsgspecError, UnicodeError) as error:
                reason = quoted(str(error))
                raise DataError(f"{where}: this is not an explanation ({reason}).") from None
            except InputError as error:
                reason = str(error).removeprefix(f"{path.stem}: ")
                raise DataError(f"{where}: {reason}") from None
            groups.setdefault(method, []).append(record)
            signed[method] = sign
        if not groups:
            raise DataError(f"The file '{path}' holds no explanation.")
        stem = path.name if path.stem in METHODS else path.stem
        names = {m: f"{stem}:{m}" if m and len(groups) > 1 else stem for m in groups}
        try:
            return [cls._from_records(names[m], groups[m], signed[m]) for m in groups]
        except InputError as error:
            raise DataError(f"{path.name}: {error}") from None

    @classmethod
    def _from_records(cls, name: str, records: Sequence[Record], signed: bool | None) -> Imported:
        negative = any(min(record.scores, default=0.0) < 0 for record in records)
        return cls(name, negative if signed is None else signed, records)


# Files


def save_explanations(explanations: Explanation | Sequence[Explanation], path: Path | str) -> None:
    """Write one or several explanations to a .json, .jsonl or .parquet file.

    `load_explanations` and `Imported.read` read it. A Parquet file has one row per explanation: the
    columns `text`, `method`, `label`, `words` and `scores` are for other programs, and the column
    `explanation` holds everything as JSON.
    """
    explanations = [explanations] if isinstance(explanations, Explanation) else explanations
    only = isinstance(explanations, Sequence) and all(
        isinstance(e, Explanation) for e in explanations
    )
    if not only or not isinstance(path, str | Path):
        raise InputError("save_explanations takes explanations first, and then the name of a file.")
    path = Path(path)
    if path.suffix not in (".json", ".jsonl", ".parquet"):
        wanted = "Explanations are written as .json, .jsonl or .parquet"
        raise OutputError(f"{wanted}, got '{path.name}'.")
    try:
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            rows = [_parquet_row(e) for e in explanations]
            pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
        else:
            lines = [e.to_json() for e in explanations]
            text = "\n".join([*lines, ""])
            if path.suffix == ".json":
                text = "[\n" + ",\n".join(lines) + "\n]\n"
            path.write_text(text, encoding="utf8")
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror}).") from None


def _parquet_row(e: Explanation) -> dict[str, Any]:
    return {
        "text": e.document.text,
        "method": e.method,
        "label": e.label,
        "words": [unit.text for unit in e.units],
        "scores": e.scores.tolist(),
        "explanation": e.to_json(),
    }


def load_explanations(path: Path | str) -> list[Explanation]:
    """The explanations that `save_explanations` or `heed explain -o` wrote."""
    explanations = []
    for _, where, row in rows_of(Path(path)):
        try:
            explanations.append(_explanation(row))
        except InputError as error:
            raise DataError(f"{where}: {error}") from None
    return explanations


def _explanation(row: dict[str, Any]) -> Explanation:
    """The explanation of a row: the row itself, or, in Parquet, the JSON in one of its columns."""
    if "explanation" not in row:
        return Explanation.from_dict(row)
    if not isinstance(row["explanation"], str):
        raise InputError("The column 'explanation' must hold JSON.")
    return Explanation.from_json(row["explanation"])


class _PlainRow(msgspec.Struct):
    """A row that another program wrote; other columns are ignored."""

    text: str
    scores: list[float]
    pieces: list[str | Annotated[list[int], msgspec.Meta(min_length=2, max_length=3)]] | None = None
    pair: str | None = None
    label: str | int | None = None
    id: str | int | float | None = None
    gold: str | int | float | None = None
    signed: bool | None = None
    method: str | None = None


def _from_row(name: str, row: dict[str, Any]) -> tuple[str, Record, bool | None]:
    """The method that a row names, its record, and whether its scores have signs, if it says so."""
    if "units" in row or "explanation" in row:
        e = _explanation(row)
        pieces = []
        for unit in e.units:
            pieces.append(tuple(Span(start, end, unit.segment) for start, end in unit.spans))
        record = Record(e.document, tuple(pieces), tuple(e.scores.tolist()), e.label, e.revision)
        return e.method, record, e.signed
    plain = msgspec.convert(row, _PlainRow)
    msgspec.json.encode(plain)  # refuses halves of characters, which no tokenizer can read
    gold = plain.gold if isinstance(plain.gold, int) else None
    document = Document(plain.text, plain.pair, "" if plain.id is None else str(plain.id), gold)
    record = _record(name, document, plain.scores, plain.pieces, plain.label)
    return plain.method or "", record, plain.signed


# Where scores belong


def _key(document: Document) -> Key:
    return tuple(text.strip() for text in document.segments)


def _blanks(text: str) -> int:
    """How many blanks a text begins with."""
    return len(text) - len(text.lstrip())


def _start(document: Document) -> str:
    return " ".join(document.text.split())[:40]


def _index(model: Classifier, label: str | int) -> int:
    """The label of the model, whatever its capitals."""
    folded = [name.casefold() for name in model.labels]
    if isinstance(label, str) and label.casefold() in folded:
        return folded.index(label.casefold())
    return model.label(label)


def _record(
    name: str, document: Document, scores: Any, pieces: Sequence[Any] | None, label: Label
) -> Record:
    """The record of one text, checked."""
    numbers: Float[np.ndarray, "piece"] = np.asarray(scores, dtype=float)
    if numbers.ndim != 1:
        raise InputError(
            f"{name}: each piece of a text needs one number, got an array of {numbers.shape}."
        )
    for i, score in enumerate(numbers.tolist(), start=1):
        if not abs(score) <= LARGEST:
            raise InputError(
                f"{name}: score {i} of {len(numbers)} is {score:g}: it must be finite, and at most"
                f" {LARGEST:g}."
            )
    try:
        located = list(_located(document, pieces))
    except InputError as error:
        raise InputError(f"{name}: {error}.") from None
    if len(located) != len(numbers):
        raise InputError(f"{name}: {len(located)} pieces but {len(numbers)} scores.")
    return Record(document, tuple(located), tuple(numbers.tolist()), label)


# how tokenizers spell where a word begins, goes on or ends
_MARKS = re.compile(r"^(##|Ġ|▁|Ċ)+|</w>$")
_SPECIAL = re.compile(r"\[\w+\]|<[^<>]*>|")  # tokens that stand for no characters, or for any


def _located(document: Document, pieces: Sequence[Any] | None) -> Iterator[tuple[Span, ...]]:
    """Where pieces stand in the text; special tokens stand nowhere.

    Strings must follow each other with nothing but blanks between them. After a special token,
    which may stand for any characters, some may be skipped.
    """
    if pieces is None:
        for s, text in enumerate(document.segments):
            yield from ((Span(*m.span(), s),) for m in re.finditer(r"\S+", text))
        return
    folded = [_folded(text) for text in document.segments]
    segment, at, loose = 0, 0, False
    for piece in pieces:
        if not isinstance(piece, str):
            yield _given(document, piece)
            continue
        wanted = _folded(_MARKS.sub("", piece.strip()))
        span = _next(folded, segment, at, wanted, loose) if wanted else None
        if span is None and not _SPECIAL.fullmatch(piece.strip()) and wanted:
            problem = "does not follow where it should in the text; give (start, end)"
            raise InputError(f"the piece {quoted(repr(piece))} {problem}")
        loose = span is None
        if span is not None:
            segment, at = span.segment, span.end
        yield () if span is None else (span,)


def _next(texts: Sequence[str], segment: int, at: int, wanted: str, loose: bool) -> Span | None:
    """Where a piece stands: right behind the last one or, if `loose`, at its next occurrence."""
    for s in range(segment, len(texts)):
        start = at if s == segment else 0
        here = start + _blanks(texts[s][start:])
        if texts[s].startswith(wanted, here):
            return Span(here, here + len(wanted), s)
        if loose and (ahead := texts[s].find(wanted, start)) >= 0:
            return Span(ahead, ahead + len(wanted), s)
        if not loose and here < len(texts[s]):
            return None
    return None


def _given(document: Document, piece: Sequence[Any]) -> tuple[Span, ...]:
    """A piece that is given by its characters; nothing if it has none."""
    try:
        start, end, *segment = (int(x) for x in piece)
        span = Span(start, end, *segment)
    except (TypeError, ValueError):
        raise InputError(
            f"a piece is a string, (start, end) or (start, end, 0 or 1), got {quoted(piece)}"
        ) from None
    if start == end:
        return ()
    if not segment and document.pair is not None:
        raise InputError("pieces of a pair of texts are (start, end, 0 or 1)")
    check_span(document, span)
    return (span,)


def _lime_spans(string: Any, word: int) -> tuple[Span, ...]:
    """Where a word stands in an indexed string of lime."""
    starts = [int(start) for start in string.string_position(word)]
    return tuple(Span(start, start + len(string.word(word))) for start in starts)


def _folded(text: str) -> str:
    """In small letters without accents, character by character, so that no character moves."""
    small = [unicodedata.normalize("NFD", character.lower())[:1] for character in text]
    return "".join(small)
