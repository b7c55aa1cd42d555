"""From the rows of a table to a `Dataset`: texts, labels, pairs and rationales, checked row by row.

A refusal says where the row stands. A row that has no id gets its number as id, behind a # where
that is the id of another row. A row whose text is blank is left out and counted.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from heed.data.dataset import Dataset
from heed.data.rows import Row, spans
from heed.errors import DataError, InputError, UnknownName, quoted
from heed.progress import say
from heed.text import Document, Span, counted


class Columns(NamedTuple):
    """The names of the columns to read; None: do not read it."""

    text: str | None = "text"
    label: str | None = "label"
    pair: str | None = "pair"
    rationale: str | None = "rationale"
    id: str | None = "id"
    spans: str | None = "spans"
    cluster: str | None = None  # only where it is named

    @classmethod
    def of(cls, names: Mapping[str, str | None] | None) -> Columns:
        """Columns of which some are named: {"text": "body", "label": "stars"}."""
        for key in names or ():
            if key not in cls._fields:
                raise UnknownName("column that heed reads", key, cls._fields)
        given = dict(names or {})
        read = [name for name in given.values() if name is not None]
        if len(set(read)) < len(read):
            raise DataError(f"One column cannot be read as two: {quoted(', '.join(read))}.")
        # a column that is named for something else is not what its own name says
        usual = {key: None if name in read else name for key, name in cls()._asdict().items()}
        columns = cls(**usual | given)
        if columns.text is None:
            raise DataError("The column of the texts must be read: name it.")
        return columns


def read_table(
    name: str,
    source: str,
    rows: Iterable[tuple[int, str, Row]],
    columns: Columns,
    names: Sequence[str] | None = None,
    labelled: bool = True,
    keep_blank: bool = False,
) -> Dataset:
    """The documents of a table; each row comes with its number, and words for where it stands.

    names        of the labels in order; by default those that occur, sorted
    labelled     whether the column of labels must be there, and all labels must occur
    keep_blank   keep blank texts, and refuse a row that has none
    """
    documents: list[Document] = []
    numbers: list[int] = []
    labels: list[tuple[str, int | str]] = []
    blank = 0
    for number, where, row in rows:
        # what the first row lacks, the table lacks
        table = name if name and not documents and not blank else where
        try:
            _check_columns(row, columns, labelled)
        except DataError as error:
            raise DataError(f"{table}: {error}") from None
        try:
            document = _document(row, columns, keep_blank)
            if document is None:
                blank += 1
                continue
            if documents and (document.pair is None) != (documents[0].pair is None):
                raise DataError("either every row has a pair or none has.")
            if columns.label is not None and columns.label in row:
                labels.append((where, _label(row[columns.label])))
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        documents.append(document)
        numbers.append(number)
    if not documents:
        rest = " but those with blank texts" if blank else ""
        raise DataError(f"{name or 'The table'} has no rows{rest}.")
    if labels and len(labels) < len(documents):
        raise DataError(f"{name or 'The table'}: either every row has a label or none has.")
    ids = _ids([d.id for d in documents], numbers)
    documents = [replace(d, id=id) for d, id in zip(documents, ids, strict=True)]
    label_names = tuple(names or ())
    if labels:
        indices, label_names = _numbered(labels, label_names, labelled)
        documents = [replace(d, label=i) for d, i in zip(documents, indices, strict=True)]
    dataset = Dataset(name, "all", tuple(documents), label_names, source, "not stated")
    return without_blank(dataset, blank)


def without_blank(dataset: Dataset, blank: int) -> Dataset:
    """The same data set, which says that so many blank texts were left out of it."""
    if not blank:
        return dataset
    note = f"{counted(blank, 'blank text')} left out"
    say(f"{dataset.name}: {note}" if dataset.name else note)
    return replace(dataset, notes=(*dataset.notes, note), left_out=dataset.left_out + blank)


def missing(value: Any) -> bool:
    """Whether a cell holds nothing: None, or the NaN or NA that pandas writes in its place."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _ids(given: Sequence[str], numbers: Sequence[int]) -> list[str]:
    taken = set(given)
    return [
        id or (f"#{number}" if str(number) in taken else str(number))
        for id, number in zip(given, numbers, strict=True)
    ]


# From a row to a document. A refusal does not say which row it is: `read_table` adds that.


def _document(row: Row, columns: Columns, keep_blank: bool) -> Document | None:
    """The document of a row, without its label; None if a text of it is blank."""
    read = [c for c in (columns.text, columns.pair) if c is not None and c in row]
    texts = [_text(row, column, keep_blank) for column in read]
    if not keep_blank and not all(text.strip() for text in texts):
        return None
    rationale = _rationale(texts[0], row.get(columns.rationale or ""))
    marked = _spans(row.get(columns.spans or ""))
    name, cluster = (_name(row.get(column or "")) for column in (columns.id, columns.cluster))
    pair = texts[1] if len(texts) > 1 else None
    try:
        return Document(texts[0], pair, name, None, rationale, marked, cluster)
    except InputError as error:
        message = str(error)
        raise DataError(message[0].lower() + message[1:]) from None


def _name(value: Any) -> str:
    """What a cell calls a document, or the cluster that it belongs to; empty if it is empty."""
    return "" if missing(value) else str(value)


# The options of the command line that name columns
_OPTIONS = {
    "text": "--text-column",
    "label": "--label-column",
    "pair": "--pair-column",
    "spans": "--span-column",
    "cluster": "--cluster",
}


def _check_columns(row: Row, columns: Columns, labelled: bool) -> None:
    """Refuse a row without a column that it must have: the texts, and whatever has another name."""
    required = {"text"} | ({"label"} if labelled else set())
    for key, column, usual in zip(Columns._fields, columns, Columns(), strict=True):
        if column is None or column in row or (column == usual and key not in required):
            continue
        hint = f" Say which one it is by columns={{'{key}': …}}"
        if key in _OPTIONS:
            hint += f" or {_OPTIONS[key]}"
        hint += "; --labels none reads texts without labels." if key == "label" else "."
        there = quoted(", ".join(map(str, row)))
        raise DataError(f"there is no column '{column}'; the columns are {there}.{hint}")


def _text(row: Row, column: str, keep_blank: bool) -> str:
    value = row[column]
    if missing(value) and not keep_blank:
        return ""
    if not isinstance(value, str):
        raise DataError(f"the column '{column}' must hold a text, got {reprlib.repr(value)}.")
    return value


def _spans(value: Any) -> tuple[Span, ...]:
    """Parts of a text that are scored as wholes, by their characters."""
    ranges = _ranges(value)
    good = all(len(r) in (2, 3) and _is_range(*r[:2]) for r in ranges or ())
    if ranges is None or not good or not all(r[2] in (0, 1) for r in ranges if len(r) == 3):
        raise DataError(
            "spans must be a list of [start, end) in characters, like [[0, 12], [13, 40]], in pairs"
            f" of texts [start, end, 0 or 1], got {reprlib.repr(value)}; to read no spans, pass"
            " columns={'spans': None} or --span-column none."
        )
    return tuple(Span(*map(int, r)) for r in ranges)


def _ranges(value: Any) -> list[list[Any]] | None:
    """A list of lists, as it is or as JSON; None if it is something else."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if missing(value) or value == "":
        return []
    try:
        return [list(r) for r in (json.loads(value) if isinstance(value, str) else value)]
    except (ValueError, TypeError):
        return None


def _rationale(text: str, value: Any) -> tuple[Span, ...]:
    ranges = _ranges(value)
    if ranges is None or not all(len(r) == 2 and _is_range(*r) for r in ranges):
        raise DataError(
            "a rationale must be a list of [start, end), like [[0, 2], [5, 6]],"
            f" got {reprlib.repr(value)}."
        )
    last, words = max((r[1] for r in ranges), default=0), len(text.split())
    if last > words:
        raise DataError(f"the rationale ends at word {last}, but the text has {words}.")
    return spans(text, ranges)


def _is_range(start: Any, end: Any) -> bool:
    whole = all(isinstance(i, Integral) and not isinstance(i, bool) for i in (start, end))
    return whole and 0 <= start < end


# From labels to numbers


def _label(value: Any) -> int | str:
    """A whole number or a name: 1.0 is 1, and JSON's true and false are names, as in a csv file."""
    value = value.item() if isinstance(value, np.generic) else value
    if missing(value) or value == "":
        raise DataError("the label is missing.")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int | str):
        raise DataError(f"a label must be a whole number or a name, got {reprlib.repr(value)}.")
    return value


def _numbered(
    labels: list[tuple[str, int | str]], names: tuple[str, ...], all_occur: bool
) -> tuple[list[int], tuple[str, ...]]:
    """Labels as numbers, with their names, which are sorted unless their order is given.

    Numbers stay as they are; if `all_occur` and they are not 0, 1, 2, …, they are names.
    """
    for where, value in labels:
        if type(value) is not type(labels[0][1]):
            raise DataError(f"{where}: labels must be all numbers or all names.")
    written = [(where, str(value)) for where, value in labels]
    values = {value for _, value in written}
    if values <= set(names):  # asked first: the names may be digits themselves, as in 1 to 5 stars
        return _by_name(written, names)
    if all(_WHOLE.fullmatch(value) for value in values):
        whole = [(where, int(value.partition(".")[0])) for where, value in written]
        numbers = sorted({number for _, number in whole})
        if names or not all_occur or numbers == list(range(len(numbers))):
            return _by_number(whole, names)
        # such as 1 to 5 stars: not indices, but names
        as_names = [(where, str(number)) for where, number in whole]
        return _by_name(as_names, tuple(map(str, numbers)))
    if not names and all(_DECIMAL.fullmatch(value) for value in values):
        where, value = next(
            (where, value) for where, value in written if not _WHOLE.fullmatch(value)
        )
        raise DataError(f"{where}: a label must be a whole number or a name, got {value}.")
    return _by_name(written, names or tuple(sorted(values)))


_WHOLE = re.compile(r"-?[0-9]+(\.0*)?")
_DECIMAL = re.compile(r"-?[0-9]*\.?[0-9]+")


def _by_name(
    labels: list[tuple[str, str]], names: tuple[str, ...]
) -> tuple[list[int], tuple[str, ...]]:
    index = {name: i for i, name in enumerate(names)}
    for where, value in labels:
        if value not in index:
            raise DataError(
                f"{where}: the label '{quoted(value)}' is not one of {quoted(', '.join(names))}."
            )
    return [index[value] for _, value in labels], names


def _by_number(
    labels: list[tuple[str, int]], names: tuple[str, ...]
) -> tuple[list[int], tuple[str, ...]]:
    numbers = [number for _, number in labels]
    count = len(names) or max(numbers) + 1
    for where, number in labels:
        if not 0 <= number < count:
            raise DataError(
                f"{where}: the label {number} is out of range, it must be from 0 to {count - 1}."
            )
    return numbers, names or tuple(map(str, range(count)))
