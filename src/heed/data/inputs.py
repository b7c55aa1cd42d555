"""From what people hold to documents: texts, lists, tables of pandas, data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import Any

from heed.data.dataset import Dataset
from heed.data.rows import Row
from heed.data.tables import Columns, missing, read_table, without_blank
from heed.errors import InputError, quoted
from heed.text import Document

_ROWS = "rows such as {'text': …, 'label': …}"


def documents(
    value: Any,
    columns: Mapping[str, str | None] | None = None,
    pairs: bool = False,
    keep_all: bool = False,
) -> Dataset:
    """The documents that somebody passed, as a `Dataset`.

    value        a string, a `heed.Document`, a pair of strings in a tuple, a dict such as
                 {"text": …}, or a list of these; a pandas Series; a pandas DataFrame or a Hugging
                 Face data set, with the column text (and label, pair, rationale, spans or id, if
                 they are there); a `Dataset`
    columns      names of the columns where they differ, as in {"text": "body", "label": "stars"}
    pairs        whether the model reads pairs: if not, a tuple is refused, since it may hold a text
                 and its label; `heed.Document(text, pair)` is always a pair
    keep_all     an answer is due for each text: blank ones stay, a missing one is refused, and
                 labels are not read. By default blank and missing texts are left out, and counted
                 in `left_out`
    """
    read = Columns.of(columns)
    if getattr(value, "ndim", None) == 0:  # an array that holds one text
        value = value.item()
    elif _is_row(value, read):
        value = [value.to_dict()]
    if isinstance(value, Dataset):
        return _checked(value, keep_all)
    if is_one(value):
        value = [value]
    if isinstance(value, Set | bytes) or not isinstance(value, Iterable):
        raise InputError(
            "A text must be a string, a heed.Document, or a list or table of these, got"
            f" {type(value).__name__}."
        )
    rows = _rows(value, read)
    items = list(value) if rows is None else rows
    if rows is None and items and isinstance(items[0], Mapping):
        rows = items
    if rows:
        names = _label_names(value, read)
        read = read._replace(label=None) if keep_all else read
        placed = ((i, f"Row {i}", _row(row, i)) for i, row in enumerate(rows, start=1))
        return read_table("", "", placed, read, names, False, keep_all)
    if columns and rows is None:
        raise InputError(f"columns are those of a table, got {type(value).__name__} of texts.")
    texts = [_document(item, i, len(items), pairs, keep_all) for i, item in enumerate(items, 1)]
    return _checked(Dataset("", "all", tuple(texts), (), "", "not stated"), keep_all)


def is_one(value: Any) -> bool:
    """Whether this is one text; a tuple is a pair of texts, unless it holds documents or rows."""
    if isinstance(value, tuple):
        return not value or not all(isinstance(item, Document | Mapping) for item in value)
    return isinstance(value, str | Document | Mapping)


def _checked(dataset: Dataset, keep_all: bool) -> Dataset:
    if keep_all:
        return dataset
    kept = tuple(d for d in dataset.documents if all(text.strip() for text in d.segments))
    blank = len(dataset) - len(kept)
    return without_blank(replace(dataset, documents=kept), blank)


def _document(item: Any, number: int, total: int, pairs: bool, keep_all: bool) -> Document:
    if missing(item):
        if keep_all:
            raise InputError(
                f"Text {number} of {total} is missing: a text must be a string, got {item}."
            )
        return Document("")
    if isinstance(item, tuple | list):
        if len(item) != 2 or not all(isinstance(text, str) for text in item):
            raise InputError(
                f"A text must be a string or a pair of strings, got {quoted(item)}; give texts with"
                f" their labels as {_ROWS}."
            )
        if not pairs:
            raise InputError(
                f"The model reads one text, got the pair {quoted(item)}: give heed.Document(text,"
                f" pair) if it should read both, and {_ROWS} if the second is a label."
            )
    return Document.of(item)


# Tables


def _is_row(value: Any, columns: Columns) -> bool:
    """Whether this is one row of a table of pandas: a Series with the names of the columns."""
    series = hasattr(value, "to_dict") and not hasattr(value, "columns")
    return series and columns.text in getattr(value, "index", ())


def _rows(value: Any, columns: Columns) -> list[Any] | None:
    """The rows of a table of pandas or of `datasets`, known by what they can do; None if it is
    neither.
    """
    if hasattr(value, "columns") and hasattr(value, "to_dict"):
        names = list(value.columns)
        for name in columns:
            if names.count(name) > 1:
                raise InputError(
                    f"The table has {names.count(name)} columns '{name}': rename them."
                )
        records: list[Any] = value.to_dict("records")
        return records
    return list(value) if hasattr(value, "column_names") else None


def _row(row: Any, number: int) -> Row:
    if not isinstance(row, Mapping):
        raise InputError(f"Row {number} must be a dict like the others, got {type(row).__name__}.")
    return dict(row)


def _label_names(value: Any, columns: Columns) -> list[str] | None:
    """The names of the labels, which `datasets` keeps apart from their numbers."""
    features = getattr(value, "features", None)
    label = features.get(columns.label) if isinstance(features, Mapping) else None
    return getattr(label, "names", None)
