"""Explanations that were computed elsewhere, to be judged and shown beside heed's own.

Scores belong to characters of a text: whatever pieces another program cut it into, words of the model get what lies on
their characters.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from heed.data.files import rows_of
from heed.errors import DataError, HeedError, InputError, OutputError
from heed.methods.explanation import Explanation
from heed.methods.method import Job, Measured, Method
from heed.models.classifier import Classifier
from heed.text import Document, Span, Tokens


class Record(NamedTuple):
    """The explanation of one document: pieces of its text, each with a score.

    pieces     the characters of each piece; a word that occurs several times may have several spans
    label      what is explained, by name or index; None: the label that the model predicts
    revision   of the model that was explained, where it is known
    """

    document: Document
    pieces: tuple[tuple[Span, ...], ...]
    scores: tuple[float, ...]
    label: str | int | None = None
    revision: str | None = None


Key = tuple[str, ...]


@dataclass(frozen=True)
class Imported(Method):
    """Scores of another program, under a name of their own.

    `Imported.arrays` takes plain numbers (from captum, say), `Imported.shap` and `Imported.lime` what these packages
    return, `Imported.read` a file. Texts are found again by their characters, but for blanks at both ends.
    """

    name: str  # type: ignore[misc]
    signed: bool = True  # type: ignore[misc]
    records: InitVar[Iterable[Record]] = ()
    digest: str = field(init=False)

    def __post_init__(self, records: Iterable[Record]) -> None:
        from heed.methods import METHODS

        if not self.name.strip() or self.name in METHODS:
            raise InputError(
                f"Explanations that are imported along need a name of their own, got '{self.name}'."
            )
        kept: dict[Key, list[Record]] = {}
        for record in records:
            others = kept.setdefault(_key(record.document), [])
            if any(other.label == record.label for other in others):
                raise InputError(
                    f"{self.name} explains the text that begins with “{_start(record.document)}” twice."
                )
            others.append(record)
        if not kept:
            raise InputError(f"{self.name} holds no explanation.")
        text = json.dumps(
            [
                [r.document.segments, r.pieces, r.scores, r.label]
                for some in kept.values()
                for r in some
            ]
        )
        object.__setattr__(self, "_kept", kept)
        object.__setattr__(
            self, "digest", hashlib.sha256(text.encode("utf8", "replace")).hexdigest()[:16]
        )

    @property
    def documents(self) -> list[Document]:
        """What is explained."""
        return [some[0].document for some in self._records().values()]

    def explains(self, document: Document) -> bool:
        """Whether there is an explanation of this text, for some label."""
        return _key(document) in self._records()

    def unfit(self, model: Classifier, tokens: Sequence[Tokens]) -> list[str]:
        """For each document why it cannot be explained, or nothing."""
        found = []
        for t, row in zip(tokens, model.logits(tokens), strict=True):
            try:
                self._record(model, t.document, int(row.argmax()))
                found.append("")
            except InputError as error:
                found.append(str(error))
        return found

    def merges_repeats(self) -> bool:
        return any(
            len(spans) > 1 for some in self._records().values() for r in some for spans in r.pieces
        )

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [
            self._measured(job, self._record(model, job.tokens.document, job.label)) for job in jobs
        ]

    def _records(self) -> dict[Key, list[Record]]:
        return self._kept  # type: ignore[attr-defined]

    def _record(self, model: Classifier, document: Document, label: int) -> Record:
        """The explanation of a label of a text."""
        some = self._records().get(_key(document), [])
        if not some:
            raise InputError(
                f"{self.name} has no explanation of the text that begins with “{_start(document)}”."
            )
        for record in some:
            if record.revision not in (None, model.revision):
                raise InputError(
                    f"{self.name} explains another model ({record.revision}, and not {model.revision})."
                )
            if record.label is None or _index(model, record.label) == label:
                return record
        raise InputError(
            f"{self.name} explains {' and '.join(repr(r.label) for r in some)} for the text that begins with"
            f" “{_start(document)}”, and the model predicts {model.labels[label]!r}."
        )

    def _measured(self, job: Job, record: Record) -> Measured:
        segments = job.tokens.document.segments
        shift = [
            _blank(text) - _blank(own)
            for text, own in zip(segments, record.document.segments, strict=True)
        ]
        owners = [np.full(len(text), -1) for text in segments]
        for i, unit in enumerate(job.units):
            for a, b in unit.spans:
                owners[unit.segment][a:b] = i
        scores, missed = np.zeros(len(job.units)), 0.0
        for spans, score in zip(record.pieces, record.scores, strict=True):
            moved = [
                (s.segment, max(0, s.start + shift[s.segment]), s.end + shift[s.segment])
                for s in spans
            ]
            owner = np.concatenate(
                [owners[s][a:b] for s, a, b in moved] or [np.zeros(0, dtype=int)]
            )
            shares = np.bincount(owner[owner >= 0], minlength=len(job.units))
            if shares.any():
                scores += score * shares / shares.sum()
            else:
                missed += abs(score)
        share = missed / (sum(map(abs, record.scores)) or 1.0)
        note = f"{share:.0%} of what {self.name} gives lies on pieces that are no words of the model, and is left out."
        return Measured(
            scores,
            forward_passes=0,
            facts={"left_out": share} if share else {},
            notes=(note,) if share else (),
        )

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
        """Numbers for each piece of each text, as captum gives them after a sum over the embedding.

        pieces   of each text: strings in their order, as a tokenizer spells them ([CLS], <s> and the like are left
                 out), or (start, end), in pairs of texts (start, end, 0 or 1); by default the words between blanks
        label    what is explained, if it is one label for all texts; by default the one that the model predicts
        signed   whether a score says for or against; by default, whether any is negative
        """
        if not len(texts) == len(scores) == (len(texts) if pieces is None else len(pieces)):
            raise InputError(
                f"{name}: there are {len(texts)} texts, and not as many rows of scores and pieces."
            )
        records = [
            _record(name, Document.of(text), row, None if pieces is None else pieces[i], label)
            for i, (text, row) in enumerate(zip(texts, scores, strict=True))
        ]
        return cls._of(name, records, signed)

    @classmethod
    def shap(cls, explanation: Any, name: str = "shap-package") -> Imported:
        """What a `shap.Explainer` of texts returns, with values for every label of the model, in its order."""
        records = []
        for values, pieces in zip(explanation.values, explanation.data, strict=True):
            scores = np.asarray(values, dtype=float)
            if scores.ndim != 2:
                raise InputError(
                    f"{name}: shap's values must be tokens × labels, got {scores.shape}."
                )
            ends = list(accumulate(len(str(p)) for p in pieces))
            spans = [(end - len(str(p)), end) for p, end in zip(pieces, ends, strict=True)]
            document = Document("".join(map(str, pieces)))
            records += [
                _record(name, document, scores[:, k], spans, k) for k in range(scores.shape[1])
            ]
        return cls._of(name, records, True)

    @classmethod
    def lime(cls, explanations: Sequence[Any], name: str = "lime-package") -> Imported:
        """What `lime`'s LimeTextExplainer returns for each text, its labels being those of the model, in their order.

        Of two labels that exclude each other one is enough: the other has the opposite scores.
        """
        records = []
        for e in explanations:
            string, proba = e.domain_mapper.indexed_string, np.asarray(e.predict_proba, dtype=float)
            found = {
                int(label): [(i, float(w)) for i, w in weights]
                for label, weights in e.local_exp.items()
            }
            if len(found) == 1 and len(proba) == 2 and np.isclose(proba.sum(), 1):
                ((label, weights),) = found.items()
                found[1 - label] = [(i, -w) for i, w in weights]
            for label, weights in found.items():
                pieces = tuple(
                    tuple(
                        Span(int(at), int(at) + len(string.word(i)))
                        for at in string.string_position(i)
                    )
                    for i, _ in weights
                )
                scores = tuple(w for _, w in weights)
                records.append(Record(Document(string.raw_string()), pieces, scores, label))
        return cls._of(name, records, True)

    @classmethod
    def read(cls, path: Path | str) -> list[Imported]:
        """The explanations of a .json, .jsonl or .parquet file: one, or one for each method that it names.

        A row is what `save_explanations` writes, or has `text`, `scores`, and if need be `pieces` (strings, or
        [start, end]), `pair`, `label`, `id`, `gold`, `signed`, `method`. They are called after the file.
        """
        from heed.methods import METHODS

        path = Path(path)
        groups: dict[str, list[Record]] = {}
        signed: dict[str, bool | None] = {}
        for _, place, row in rows_of(path):
            try:
                method, record, sign = _from_row(path.stem, row)
            except (KeyError, TypeError, ValueError, AttributeError, HeedError) as error:
                raise DataError(f"{place}: this is not an explanation ({_words(error)}).") from None
            groups.setdefault(method, []).append(record)
            signed[method] = sign
        if not groups:
            raise DataError(f"The file '{path}' holds no explanation.")
        stem = path.name if path.stem in METHODS else path.stem
        names = {m: f"{stem}:{m}" if m and len(groups) > 1 else stem for m in groups}
        return [cls._of(names[m], records, signed[m]) for m, records in groups.items()]

    @classmethod
    def _of(cls, name: str, records: Sequence[Record], signed: bool | None = None) -> Imported:
        negative = any(score < 0 for r in records for score in r.scores)
        return cls(name, negative if signed is None else signed, records)


# Files


def save_explanations(explanations: Sequence[Explanation], path: Path | str) -> None:
    """Write explanations as .json, .jsonl or .parquet: `load_explanations` and `Imported.read` read them.

    A Parquet file has one row for each, with `text`, `method`, `label`, `words` and `scores` for other programs, and
    all of it as JSON in the column `explanation`.
    """
    path = Path(path)
    if path.suffix not in (".json", ".jsonl", ".parquet"):
        raise OutputError(
            f"Explanations are written as .json, .jsonl or .parquet, got '{path.name}'."
        )
    try:
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            rows = [
                {
                    "text": e.document.text,
                    "method": e.method,
                    "label": e.label,
                    "words": [u.text for u in e.units],
                }
                | {"scores": e.scores.tolist(), "explanation": e.to_json()}
                for e in explanations
            ]
            pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
        else:
            lines = [e.to_json() for e in explanations]
            text = (
                "[\n" + ",\n".join(lines) + "\n]\n"
                if path.suffix == ".json"
                else "\n".join([*lines, ""])
            )
            path.write_text(text, encoding="utf8")
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror}).") from None


def load_explanations(path: Path | str) -> list[Explanation]:
    """The explanations that `save_explanations` or `heed explain -o` wrote."""
    found = []
    for _, place, row in rows_of(Path(path)):
        try:
            found.append(_whole(row))
        except InputError as error:
            raise DataError(f"{place}: {_words(error)}.") from None
    return found


def _whole(row: dict[str, Any]) -> Explanation:
    return (
        Explanation.from_json(row["explanation"])
        if "explanation" in row
        else Explanation.from_dict(row)
    )


def _from_row(name: str, row: dict[str, Any]) -> tuple[str, Record, bool | None]:
    """The method that a row names, what it says of its document, and whether scores have signs, if it says so."""
    if "units" in row or "explanation" in row:
        e = _whole(row)
        pieces = tuple(tuple(Span(a, b, u.segment) for a, b in u.spans) for u in e.units)
        for spans in pieces:
            for span in spans:
                _check(e.document, span)
        return (
            e.method,
            Record(e.document, pieces, tuple(e.scores.tolist()), e.label, e.revision),
            e.signed,
        )
    gold, own = row.get("gold"), row.get("id")
    label = gold if isinstance(gold, int) and not isinstance(gold, bool) else None
    document = Document(row["text"], row.get("pair"), "" if own is None else str(own), label)
    if not all(isinstance(text, str) for text in document.segments):
        raise InputError("the text must be a string")
    sign = row.get("signed")
    record = _record(name, document, row["scores"], row.get("pieces"), row.get("label"))
    return str(row.get("method") or ""), record, sign if isinstance(sign, bool) else None


def _words(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error).removesuffix(".")


# Where scores belong


def _key(document: Document) -> Key:
    return tuple(text.strip() for text in document.segments)


def _blank(text: str) -> int:
    """How many blanks it begins with."""
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
    name: str,
    document: Document,
    scores: Any,
    pieces: Sequence[Any] | None,
    label: str | int | None,
) -> Record:
    numbers: Float[np.ndarray, "piece"] = np.asarray(scores, dtype=float)
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise InputError(
            f"{name}: each piece of a text needs one finite number, got an array of {numbers.shape}."
        )
    try:
        found = list(_located(document, pieces))
    except InputError as error:
        raise InputError(f"{name}: {error}.") from None
    if len(found) != len(numbers):
        raise InputError(f"{name}: a text has {len(found)} pieces and {len(numbers)} scores.")
    return Record(document, tuple(found), tuple(numbers.tolist()), label)


_MARKS = re.compile(
    r"^(##|Ġ|▁|Ċ)+|</w>$"
)  # how tokenizers spell where a word begins, goes on or ends
_SPECIAL = re.compile(r"\[\w+\]|<[^<>]*>|")  # tokens that stand for no characters, or for any


def _located(document: Document, pieces: Sequence[Any] | None) -> Iterator[tuple[Span, ...]]:
    """Where pieces stand in the text; nowhere for special tokens.

    Strings must follow each other with nothing but blanks between them, unless a special token stands for more.
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
        found = _next(folded, segment, at, wanted, loose) if wanted else None
        if found is None and not _SPECIAL.fullmatch(piece.strip()) and wanted:
            raise InputError(
                f"the piece {piece!r} does not follow where it should in the text; give (start, end)"
            )
        loose = found is None
        if found is not None:
            segment, at = found.segment, found.end
        yield () if found is None else (found,)


def _next(texts: Sequence[str], segment: int, at: int, wanted: str, loose: bool) -> Span | None:
    """The place of a piece right behind the last one, or, after a special token, the next that there is."""
    for s in range(segment, len(texts)):
        start = at if s == segment else 0
        here = start + _blank(texts[s][start:])
        if texts[s].startswith(wanted, here):
            return Span(here, here + len(wanted), s)
        if loose and (ahead := texts[s].find(wanted, start)) >= 0:
            return Span(ahead, ahead + len(wanted), s)
        if not loose and here < len(texts[s]):
            return None
    return None


def _given(document: Document, piece: Sequence[Any]) -> tuple[Span, ...]:
    """A piece that is told by its characters; none where they are none."""
    start, end, *segment = (int(x) for x in piece)
    if start == end:
        return ()
    if not segment and document.pair is not None:
        raise InputError("pieces of a pair of texts are (start, end, 0 or 1)")
    span = Span(start, end, *segment)
    _check(document, span)
    return (span,)


def _check(document: Document, span: Span) -> None:
    texts = document.segments
    if not 0 <= span.segment < len(texts) or not 0 <= span.start <= span.end <= len(
        texts[span.segment]
    ):
        raise InputError(f"there are no characters {tuple(span)} in the text")


def _folded(text: str) -> str:
    """In small letters without accents, character by character, so that places stay what they are."""
    return "".join(_plain(c) for c in text)


def _plain(character: str) -> str:
    small = unicodedata.normalize("NFD", character.lower())[:1]
    return small or character
