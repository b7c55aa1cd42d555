"""Explanations that were computed elsewhere, to be judged and shown beside heed's own.

Scores belong to characters of a text: whatever pieces another program cut it into, words of the model get what lies on
their characters.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from heed.data.files import rows_of
from heed.errors import DataError, HeedError, InputError, OutputError
from heed.explain.explanation import Explainer, Explanation, Job, Measured
from heed.models.classifier import Classifier
from heed.text import Document, Span


class Record(NamedTuple):
    """The explanation of one document: pieces of its text, each with a score.

    pieces     the characters of each piece; a word that occurs several times may have several spans
    label      what is explained; None: the label that the model predicts
    revision   of the model that was explained, where it is known
    """

    document: Document
    pieces: tuple[tuple[Span, ...], ...]
    scores: tuple[float, ...]
    label: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Brought(Explainer):
    """Scores of another program, under a name of their own; one record per document.

    `Brought.arrays` takes plain numbers (from captum, say), `Brought.shap` and `Brought.lime` what these packages
    return, `Brought.read` a file.
    """

    name: str  # type: ignore[misc]
    signed: bool = True  # type: ignore[misc]
    records: InitVar[Iterable[Record]] = ()
    digest: str = field(init=False)

    def __post_init__(self, records: Iterable[Record]) -> None:
        if not self.name.strip():
            raise InputError("Explanations that are brought along need a name.")
        kept = {r.document.segments: r for r in records}
        if not kept:
            raise InputError(f"{self.name} holds no explanation.")
        text = json.dumps([[r.document.segments, r.pieces, r.scores, r.label] for r in kept.values()])
        object.__setattr__(self, "_kept", kept)
        object.__setattr__(self, "digest", hashlib.sha256(text.encode("utf8", "replace")).hexdigest()[:16])

    @property
    def documents(self) -> list[Document]:
        """What is explained."""
        return [r.document for r in self._kept.values()]  # type: ignore[attr-defined]

    def together(self) -> bool:
        return any(len(spans) > 1 for r in self._kept.values() for spans in r.pieces)  # type: ignore[attr-defined]

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [self._measured(model, job) for job in jobs]

    def _measured(self, model: Classifier, job: Job) -> Measured:
        document = job.tokens.document
        record: Record | None = self._kept.get(document.segments)  # type: ignore[attr-defined]
        start = " ".join(document.text.split())[:40]
        if record is None:
            raise InputError(f"{self.name} has no explanation of the text that begins with “{start}”.")
        if record.revision not in (None, model.revision):
            raise InputError(f"{self.name} explains another model ({record.revision}, and not {model.revision}).")
        label = model.labels[job.label]
        if record.label not in (None, label):
            raise InputError(
                f"{self.name} explains {record.label!r} for the text that begins with “{start}”, and the model predicts"
                f" {label!r}."
            )
        owners = [np.full(len(text), -1) for text in document.segments]
        for i, unit in enumerate(job.units):
            for a, b in unit.spans:
                owners[unit.segment][a:b] = i
        scores, missed = np.zeros(len(job.units)), 0.0
        for spans, score in zip(record.pieces, record.scores, strict=True):
            owner = np.concatenate([owners[s.segment][s.start : s.end] for s in spans] or [np.zeros(0, dtype=int)])
            shares = np.bincount(owner[owner >= 0], minlength=len(job.units))
            if shares.any():
                scores += score * shares / shares.sum()
            else:
                missed += abs(score)
        share = missed / (sum(map(abs, record.scores)) or 1.0)
        note = f"{share:.0%} of what {self.name} gives lies on pieces that are no words of the model, and is left out."
        return Measured(
            scores, forward_passes=0, facts={"left_out": share} if share else {}, notes=(note,) if share else ()
        )

    # Where they come from

    @classmethod
    def arrays(
        cls,
        name: str,
        texts: Sequence[Any],
        scores: Sequence[Any],
        pieces: Sequence[Sequence[Any]] | None = None,
        label: str | None = None,
        signed: bool | None = None,
    ) -> Brought:
        """Numbers for each piece of each text, as captum gives them after a sum over the embedding.

        pieces   of each text: strings in their order (tokens as a tokenizer spells them; those that the text does not
                 have, such as [CLS], are left out), or (start, end); by default the words between blanks
        label    what is explained, if it is one label for all texts; by default the one that the model predicts
        signed   whether a score says for or against; by default, whether any is negative
        """
        if not len(texts) == len(scores) == (len(texts) if pieces is None else len(pieces)):
            raise InputError(f"{name}: there are {len(texts)} texts, and not as many rows of scores and pieces.")
        records = [
            _record(name, Document.of(text), row, None if pieces is None else pieces[i], label)
            for i, (text, row) in enumerate(zip(texts, scores, strict=True))
        ]
        return cls._of(name, records, signed)

    @classmethod
    def shap(cls, explanation: Any, labels: Sequence[str], name: str = "shap") -> Brought:
        """What a `shap.Explainer` of texts returns, for the label of the largest output; `labels` are the model's."""
        records = []
        for values, pieces, base in zip(explanation.values, explanation.data, explanation.base_values, strict=True):
            scores = np.asarray(values, dtype=float)
            if scores.ndim != 2 or scores.shape[1] != len(labels):
                raise InputError(f"{name}: shap's values must be tokens × {len(labels)} labels, got {scores.shape}.")
            best = int((scores.sum(0) + np.asarray(base)).argmax())
            text = "".join(map(str, pieces))
            records.append(_record(name, Document(text), scores[:, best], [str(p) for p in pieces], labels[best]))
        return cls._of(name, records, True)

    @classmethod
    def lime(cls, explanations: Sequence[Any], name: str = "lime-package") -> Brought:
        """What `lime`'s LimeTextExplainer returns for each text, for the label of the largest probability.

        Of two labels one is enough: the other has the opposite scores.
        """
        records = []
        for e in explanations:
            string, proba = e.domain_mapper.indexed_string, np.asarray(e.predict_proba)
            best = int(proba.argmax())
            if best in e.local_exp:
                sign, found = 1.0, e.local_exp[best]
            elif len(proba) == 2 and 1 - best in e.local_exp:
                sign, found = -1.0, e.local_exp[1 - best]
            else:
                raise InputError(f"{name}: a text has no explanation of the predicted label: pass lime top_labels=1.")
            pieces = [
                tuple(Span(int(at), int(at) + len(string.word(i))) for at in string.string_position(i))
                for i, _ in found
            ]
            scores = tuple(sign * float(weight) for _, weight in found)
            records.append(Record(Document(string.raw_string()), tuple(pieces), scores, str(e.class_names[best])))
        return cls._of(name, records, True)

    @classmethod
    def read(cls, path: Path | str) -> list[Brought]:
        """The explanations of a .json, .jsonl or .parquet file: one, or one for each method that it names.

        A row is what `save_explanations` writes, or has `text`, `scores`, and if need be `pieces` (strings, or
        [start, end]), `pair`, `label`, `id`, `method`.
        """
        path, groups = Path(path), dict[str, list[Record]]()
        for _, place, row in rows_of(path):
            try:
                record = _from_row(path.stem, row)
            except (KeyError, TypeError, ValueError, AttributeError, HeedError) as error:
                raise DataError(f"{place}: this is not an explanation ({_words(error)}).") from None
            groups.setdefault(str(row.get("method") or ""), []).append(record)
        if not groups:
            raise DataError(f"The file '{path}' holds no explanation.")
        if len(groups) == 1:
            return [cls._of(path.stem, next(iter(groups.values())))]
        return [cls._of(f"{path.stem}:{name}" if name else path.stem, records) for name, records in groups.items()]

    @classmethod
    def _of(cls, name: str, records: Sequence[Record], signed: bool | None = None) -> Brought:
        negative = any(score < 0 for r in records for score in r.scores)
        return cls(name, negative if signed is None else signed, records)


def save_explanations(explanations: Sequence[Explanation], path: Path | str) -> None:
    """Write explanations as .json, .jsonl or .parquet: `load_explanations` and `Brought.read` read them.

    A Parquet file has one row for each, with `text`, `method`, `label`, `words` and `scores` for other programs, and
    all of it as JSON in the column `explanation`.
    """
    path = Path(path)
    if path.suffix not in (".json", ".jsonl", ".parquet"):
        raise OutputError(f"Explanations are written as .json, .jsonl or .parquet, got '{path.name}'.")
    try:
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            rows = [
                {"text": e.document.text, "method": e.method, "label": e.label, "words": [u.text for u in e.units]}
                | {"scores": e.scores.tolist(), "explanation": e.to_json()}
                for e in explanations
            ]
            pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
        else:
            lines = [e.to_json() for e in explanations]
            text = "[\n" + ",\n".join(lines) + "\n]\n" if path.suffix == ".json" else "\n".join([*lines, ""])
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
    return Explanation.from_json(row["explanation"]) if "explanation" in row else Explanation.from_dict(row)


def _record(name: str, document: Document, scores: Any, pieces: Sequence[Any] | None, label: str | None) -> Record:
    numbers: Float[np.ndarray, "piece"] = np.asarray(scores, dtype=float)
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise InputError(f"{name}: each piece of a text needs one finite number, got an array of {numbers.shape}.")
    found = _located(document, pieces)
    if len(found) != len(numbers):
        raise InputError(f"{name}: a text has {len(found)} pieces and {len(numbers)} scores.")
    return Record(document, tuple(found), tuple(numbers.tolist()), label)


_MARKS = re.compile(r"^(##|Ġ|▁|Ċ)+|</w>$")  # how tokenizers spell where a word begins, goes on or ends


def _located(document: Document, pieces: Sequence[Any] | None) -> list[tuple[Span, ...]]:
    """Where pieces stand in the text; nowhere for those that it does not have."""
    if pieces is None:
        return [(Span(*m.span(), s),) for s, text in enumerate(document.segments) for m in re.finditer(r"\S+", text)]
    found: list[tuple[Span, ...]] = []
    segment, at = 0, 0
    for piece in pieces:
        if not isinstance(piece, str):
            found.append((Span(*(int(x) for x in piece)),))
            continue
        wanted = _MARKS.sub("", piece.strip())
        spans: tuple[Span, ...] = ()
        for s in range(segment, len(document.segments) if wanted else 0):
            start = _folded(document.segments[s]).find(_folded(wanted), at if s == segment else 0)
            if start >= 0:
                segment, at = s, start + len(wanted)
                spans = (Span(start, at, s),)
                break
        found.append(spans)
    return found


def _folded(text: str) -> str:
    """In small letters, where these are as many."""
    small = text.lower()
    return small if len(small) == len(text) else text


def _from_row(name: str, row: dict[str, Any]) -> Record:
    if "units" in row or "explanation" in row:
        e = _whole(row)
        pieces = tuple(tuple(Span(a, b, u.segment) for a, b in u.spans) for u in e.units)
        return Record(e.document, pieces, tuple(e.scores.tolist()), e.label, e.revision)
    gold = row.get("gold")
    document = Document(row["text"], row.get("pair"), str(row.get("id") or ""), gold if isinstance(gold, int) else None)
    if not isinstance(document.text, str):
        raise InputError("the text must be a string")
    return _record(name, document, row["scores"], row.get("pieces"), row.get("label"))


def _words(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error).removesuffix(".")
