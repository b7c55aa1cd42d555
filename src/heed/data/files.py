"""Files of a user's own: every row is read and checked, and a refusal names its line.

The number is that of the line which the row begins at, counted from 1 with the header: a cell of a csv file may hold
line ends. In Parquet, which has no lines, it is that of the row, in a JSON list that of the entry. It is also the id of
a row that has none, behind a # where it is the id of another.
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import os
import re
import reprlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO, cast

from heed.data.dataset import Dataset
from heed.data.rows import Row, spans
from heed.errors import DataError, quoted
from heed.text import Document, Span


class Columns(NamedTuple):
    """The names of the columns to read; None: do not read it."""

    text: str = "text"
    label: str | None = "label"
    pair: str | None = "pair"
    rationale: str | None = "rationale"

    def required(self) -> list[str]:
        """All but those that are read if they are there: pair and rationale under their usual names."""
        renamed = [
            c for c, usual in ((self.pair, "pair"), (self.rationale, "rationale")) if c != usual
        ]
        return [c for c in (self.text, self.label, *renamed) if c is not None]


def load_file(path: Path, columns: Columns, names: Sequence[str] | None) -> Dataset:
    documents: list[Document] = []
    numbers: list[int] = []
    labels: list[tuple[str, int | str]] = []
    for number, place, row in rows_of(path):
        document = _document(place, row, columns)
        numbers.append(number)
        if documents and (document.pair is None) != (documents[0].pair is None):
            raise DataError(f"{place}: either every row has a pair or none has.")
        if columns.label is not None:
            labels.append((place, _label(place, row[columns.label])))
        documents.append(document)
    if not documents:
        raise DataError(f"The file '{path}' has no rows.")
    taken, known = {d.id for d in documents}, tuple(names or ())
    ids = [
        d.id or (f"#{n}" if str(n) in taken else str(n))
        for d, n in zip(documents, numbers, strict=True)
    ]
    documents = [replace(d, id=name) for d, name in zip(documents, ids, strict=True)]
    if columns.label is not None:
        indices, known = _numbered(labels, known)
        documents = [replace(d, label=i) for d, i in zip(documents, indices, strict=True)]
    return Dataset(path.name, "all", tuple(documents), known, str(path), "not stated")


# From a file to rows


def rows_of(path: Path) -> Iterator[tuple[int, str, Row]]:
    """The rows of a table, each with its number and the words for where it stands."""
    kind, packing = _kind(path)
    try:
        if kind == ".parquet":
            for number, row in enumerate(_parquet(path), start=1):
                yield number, f"{path.name}, row {number}", row
            return
        with _open(path, packing) as file:
            yield from (
                _table(path.name, file, kind) if kind in _SEPARATOR else _json(path.name, file)
            )
    except UnicodeDecodeError:
        raise DataError(f"The file '{path}' is not UTF-8 text.") from None
    except RecursionError:
        raise DataError(f"The file '{path}' is nested too deeply to be read.") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = quoted(str(getattr(error, "strerror", None) or error))
        raise DataError(f"The file '{path}' cannot be read ({reason}).") from None


def _kind(path: Path) -> tuple[str, str]:
    """How the file's name ends: its kind, and how it is packed, if it is."""
    if os.path.isdir(path):  # unlike `Path.is_dir`, no error where a folder above may not be read
        raise DataError(f"'{path}' is a folder, not a file.")
    if not os.path.isfile(path):
        raise DataError(f"There is no file '{path}'.")
    endings = [ending.lower() for ending in path.suffixes]
    packing = endings.pop() if endings and endings[-1] in (".xz", ".gz") else ""
    kind = endings[-1] if endings else ""
    if kind not in (*_SEPARATOR, ".jsonl", ".ndjson", ".json", ".parquet") or (
        packing and kind == ".parquet"
    ):
        raise DataError(f"The file '{path}' must end in .csv, .tsv, .jsonl or .parquet.")
    return kind, packing


def _open(path: Path, packing: str) -> TextIO:
    if packing == ".xz":
        return lzma.open(path, "rt", encoding="utf-8-sig", newline="")
    if packing == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
    return path.open(encoding="utf-8-sig", newline="")


def _parquet(path: Path) -> list[Row]:
    import pyarrow.parquet  # here: slow to import

    with path.open("rb") as file:
        try:
            return cast(list[Row], pyarrow.parquet.ParquetFile(file).read().to_pylist())
        except (pyarrow.ArrowException, ValueError, OverflowError):
            raise DataError(f"The file '{path}' is not Parquet, or is damaged.") from None


_SEPARATOR = {".csv": ",", ".tsv": "\t"}


def _table(name: str, file: TextIO, kind: str) -> Iterator[tuple[int, str, Row]]:
    limit = csv.field_size_limit(
        2**30
    )  # the module's own, 131,072 characters, is shorter than some documents
    reader = csv.reader(file, delimiter=_SEPARATOR[kind], strict=True)
    header: list[str] = []
    line = 1
    try:
        for cells in reader:
            if not header:
                header = _header(f"{name}, line {line}", cells, kind)
            elif cells:
                if len(cells) != len(header):
                    raise DataError(
                        f"{name}, line {line}: {len(cells)} fields, but the header has {len(header)}."
                    )
                yield line, f"{name}, line {line}", dict(zip(header, cells, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{name}, line {line}: {error}.") from None
    finally:
        csv.field_size_limit(limit)


def _header(place: str, cells: list[str], kind: str) -> list[str]:
    if len(cells) == 1 and any(separator in cells[0] for separator in ",;\t"):
        separator = {".csv": "commas", ".tsv": "tabs"}[kind]
        raise DataError(
            f"{place}: the columns must be separated by {separator}, got the header {_short(cells[0])!r}."
        )
    return cells


def _json(name: str, file: TextIO) -> Iterator[tuple[int, str, Row]]:
    """One object on each line, or one list of objects."""
    before, first = 0, file.readline()
    while first and not first.strip():
        before, first = before + 1, file.readline()
    if first.lstrip().startswith("["):
        try:
            whole = json.loads(first + file.read())
        except ValueError as error:
            raise DataError(f"{name}: not JSON ({error}).") from None
        for number, row in enumerate(whole, start=1):
            place = f"{name}, entry {number}"
            if not isinstance(row, dict):
                raise DataError(f"{place}: must be a JSON object, got {type(row).__name__}.")
            yield number, place, row
        return
    for number, line in enumerate(chain([first], file), start=before + 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{name}, line {number}: not JSON ({error}); every line must be an object."
            ) from None
        if not isinstance(row, dict):
            raise DataError(
                f"{name}, line {number}: must be a JSON object, got {type(row).__name__}."
            )
        yield number, f"{name}, line {number}", row


# From a row to a document


def _document(place: str, row: Row, columns: Columns) -> Document:
    """The document of a row, without its label."""
    for column in columns.required():
        if column not in row:
            there = _short(", ".join(map(str, row)))
            hint = (
                " Texts without labels are read by --labels none."
                if column == columns.label
                else ""
            )
            raise DataError(
                f"{place}: there is no column '{column}'; the columns are {there}.{hint}"
            )
    text = _text(place, row, columns.text)
    pair = _text(place, row, columns.pair) if columns.pair and columns.pair in row else None
    rationale = _rationale(place, text, row.get(columns.rationale)) if columns.rationale else ()
    name = row.get("id")
    missing = name is None or name != name  # a NaN, which pandas writes for what is missing
    return Document(text, pair, "" if missing else str(name), rationale=rationale)


def _text(place: str, row: Row, column: str) -> str:
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise DataError(
            f"{place}: the column '{column}' must hold a text, got {reprlib.repr(value)}."
        )
    return value


def _rationale(place: str, text: str, value: Any) -> tuple[Span, ...]:
    if value is None or value == "":
        return ()
    try:
        ranges = [
            (start, end) for start, end in (json.loads(value) if isinstance(value, str) else value)
        ]
        good = all(
            type(start) is int and type(end) is int and 0 <= start < end for start, end in ranges
        )
    except (ValueError, TypeError):
        good = False
    if not good:
        got = reprlib.repr(value)
        raise DataError(
            f"{place}: a rationale must be a list of [start, end), like [[0, 2], [5, 6]], got {got}."
        )
    last, words = max((end for _, end in ranges), default=0), len(text.split())
    if last > words:
        raise DataError(f"{place}: the rationale ends at word {last}, but the text has {words}.")
    return spans(text, ranges)


def _short(text: str) -> str:
    """In one line, and not longer than a sentence bears: a file without a header has a text in its place."""
    text = " ".join(text.split())
    return text if len(text) <= 200 else f"{text[:199]}…"


# From labels to numbers


def _label(place: str, value: Any) -> int | str:
    """A whole number or a name: 1.0 is 1, and JSON's true and false are names, as they are in a csv file."""
    if (
        value is None or value == "" or value != value
    ):  # the last is a NaN, which pandas writes for what is missing
        raise DataError(f"{place}: the label is missing.")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int | str):
        raise DataError(
            f"{place}: a label must be a whole number or a name, got {reprlib.repr(value)}."
        )
    return value


def _numbered(
    labels: list[tuple[str, int | str]], names: tuple[str, ...]
) -> tuple[list[int], tuple[str, ...]]:
    """Labels as numbers, with their names: numbers stay, names are sorted unless their order is given."""
    for place, value in labels:
        if type(value) is not type(labels[0][1]):
            raise DataError(f"{place}: labels must be all numbers or all names.")
    written = [(place, str(value)) for place, value in labels]
    values = {value for _, value in written}
    if values <= set(names):  # asked first: the names may be digits themselves, as in 1 to 5 stars
        return _by_name(written, names)
    if all(_WHOLE.fullmatch(value) for value in values):
        return _by_number(
            [(place, int(value.partition(".")[0])) for place, value in written], names
        )
    if not names and all(_DECIMAL.fullmatch(value) for value in values):
        place, value = next(
            (place, value) for place, value in written if not _WHOLE.fullmatch(value)
        )
        raise DataError(f"{place}: a label must be a whole number or a name, got {value}.")
    return _by_name(written, names or tuple(sorted(values)))


_WHOLE = re.compile(r"-?[0-9]+(\.0*)?")
_DECIMAL = re.compile(r"-?[0-9]*\.?[0-9]+")


def _by_name(
    labels: list[tuple[str, str]], names: tuple[str, ...]
) -> tuple[list[int], tuple[str, ...]]:
    index = {name: i for i, name in enumerate(names)}
    for place, value in labels:
        if value not in index:
            raise DataError(
                f"{place}: the label '{_short(value)}' is none of {_short(', '.join(names))}."
            )
    return [index[value] for _, value in labels], names


def _by_number(
    labels: list[tuple[str, int]], names: tuple[str, ...]
) -> tuple[list[int], tuple[str, ...]]:
    count = len(names) or len({number for _, number in labels})
    for place, number in labels:
        if not 0 <= number < count:
            hint = (
                ""
                if names
                else f" as there are {count} different ones; if some do not occur, name all by `labels`"
            )
            raise DataError(
                f"{place}: the label {number} is out of range, it must be from 0 to {count - 1}{hint}."
            )
    return [number for _, number in labels], names or tuple(map(str, range(count)))
