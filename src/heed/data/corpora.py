"""A known data set in the variant that is asked for."""

from __future__ import annotations

from typing import NamedTuple

from heed.data.dataset import Dataset
from heed.data.known import KNOWN, split_of
from heed.data.places import fetch
from heed.data.rows import Row, document
from heed.errors import DataError, InputError

_FINE = ("very negative", "negative", "neutral", "positive", "very positive")


class _Variant(NamedTuple):
    rows: list[Row]
    note: str | None = None
    labels: tuple[str, ...] | None = None  # where they are not those of the table


def load_known(name: str, split: str | None, part: str | None, fine: bool, strip: bool) -> Dataset:
    options = {
        "part": (part is not None, "ag_news"),
        "fine": (fine, "sst"),
        "strip": (not strip, "20news"),
    }
    for option, (used, owner) in options.items():
        if used and name != owner:
            text = f"The option '{option}' is for the data set '{owner}', not for '{name}'."
            raise InputError(text)
    if part not in (None, "description"):
        raise InputError(f"The part must be 'description', got '{part}'.")
    known, split = KNOWN[name], split_of(name, split)
    if part and split == "train":
        split = "train_description"
    rows, source, notes = fetch(name, split)
    variant = _Variant(rows)
    if name == "sst":
        variant = _five_labels(rows) if fine else _two_labels(rows)
    elif name == "20news":
        variant = _stripped(rows) if strip else _whole(rows)
    elif part and split != "train_description":
        variant = _descriptions(rows)
    notes = [*known.notes, *notes, *([variant.note] if variant.note else [])]
    documents = tuple(document(row) for row in variant.rows)
    return Dataset(
        name, split, documents, variant.labels or known.labels, source, known.licence, tuple(notes)
    )


def _five_labels(rows: list[Row]) -> _Variant:
    return _Variant([{**row, "label": row["fine"]} for row in rows], labels=_FINE)


def _two_labels(rows: list[Row]) -> _Variant:
    kept = [row for row in rows if row["label"] is not None]
    return _Variant(kept, f"{len(rows) - len(kept):,} neutral sentences left out")


def _descriptions(rows: list[Row]) -> _Variant:
    if not all("description" in row for row in rows):
        raise DataError(
            "This copy of ag_news has titles and descriptions in one: leave out part='description'."
        )
    return _Variant([{**row, "text": row["description"]} for row in rows])


def _whole(rows: list[Row]) -> _Variant:
    if any(row.get("stripped") for row in rows):
        raise DataError(
            "This copy of 20news comes without headers, footers and quotes: leave out strip=False."
        )
    return _Variant([row for row in rows if row["text"].strip()])


def _stripped(rows: list[Row]) -> _Variant:
    bare = [row if row.get("stripped") else {**row, "text": body(row["text"])} for row in rows]
    kept = [row for row in bare if row["text"].strip()]
    blank = len(rows) - len(kept)
    note = f"headers, footers and quotes removed; {blank:,} messages were blank then: dropped"
    return _Variant(kept, note)


_QUOTE_ANYWHERE = ("writes in", "writes:", "wrote:", "says:", "said:")
_QUOTE_START = ("In article", "Quoted from", "|", ">")


def body(message: str) -> str:
    """A newsgroup message without header, signature and quotes, by the rules of scikit-learn."""
    rest = message.partition("\n\n")[2]
    lines = rest.strip().split("\n")
    # A signature is what follows the last line that is blank or made of hyphens.
    last = max((i for i, line in enumerate(lines) if not line.strip().strip("-")), default=0)
    lines = lines[:last] if last else rest.split("\n")
    return "\n".join(line for line in lines if not _is_quote(line))


def _is_quote(line: str) -> bool:
    return line.startswith(_QUOTE_START) or any(mark in line for mark in _QUOTE_ANYWHERE)
