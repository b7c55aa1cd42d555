"""Files of a user's own: each kind gives its rows, and a refusal names the line.

The number is that of the line at which the row begins, counted from 1 with the header: a cell of a
csv file may hold line ends. In Parquet, which has no lines, it is that of the row, in a JSON list
that of the entry.
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TextIO, cast

from heed.data.dataset import Dataset
from heed.data.rows import Row, read_parquet
from heed.data.tables import Columns, read_table
from heed.errors import DataError, quoted


def load_file(path: Path, columns: Columns, names: Sequence[str] | None) -> Dataset:
    return read_table(path.name, str(path), rows_of(path), columns, names)


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
    import pyarrow  # here: slow to import

    with path.open("rb") as file:
        try:
            return cast(list[Row], read_parquet(file).to_pylist())
        except (DataError, MemoryError) as error:
            reason = quoted(str(error)) or "it is too large"
            raise DataError(f"The file '{path}' cannot be read ({reason}).") from None
        except (pyarrow.ArrowException, ValueError, OverflowError):
            raise DataError(f"The file '{path}' is not Parquet, or is damaged.") from None


_SEPARATOR = {".csv": ",", ".tsv": "\t"}


def _table(name: str, file: TextIO, kind: str) -> Iterator[tuple[int, str, Row]]:
    # The limit of the module, 131,072 characters, is shorter than some documents.
    limit = csv.field_size_limit(2**30)
    before = _header_lines(file)
    separator = _separator(before[-1], kind)
    reader = csv.reader(chain(before, file), delimiter=separator, strict=True)
    header: list[str] = []
    line = 1
    try:
        for cells in reader:
            if not header:
                header = cells
            elif cells:
                if len(cells) != len(header):
                    raise DataError(
                        f"{name}, line {line}: {len(cells)} fields, but the header has"
                        f" {len(header)}."
                    )
                yield line, f"{name}, line {line}", dict(zip(header, cells, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{name}, line {line}: {error}.") from None
    finally:
        csv.field_size_limit(limit)


def _header_lines(file: TextIO) -> list[str]:
    """Blank lines, if the file begins with some, and the line of the header."""
    lines = [file.readline()]
    while lines[-1] and not lines[-1].strip():
        lines.append(file.readline())
    return lines


def _separator(header: str, kind: str) -> str:
    """What separates columns: commas, semicolons or tabs, whichever the header has most of."""
    bare = re.sub(r'"[^"]*"', "", header)
    usual = _SEPARATOR[kind]
    return max((usual, ",", ";", "\t"), key=bare.count)


def _json(name: str, file: TextIO) -> Iterator[tuple[int, str, Row]]:
    """One object on each line, or one list of objects."""
    before = _header_lines(file)
    first = before[-1]
    if first.lstrip().startswith("["):
        try:
            whole = json.loads(first + file.read())
        except ValueError as error:
            raise DataError(f"{name}: not JSON ({error}).") from None
        for number, row in enumerate(whole, start=1):
            where = f"{name}, entry {number}"
            yield number, where, _object(where, row)
        return
    for number, line in enumerate(chain(before, file), start=1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{where}: not JSON ({error}); every line must be an object.") from None
        yield number, where, _object(where, row)


def _object(where: str, value: Any) -> Row:
    if not isinstance(value, dict):
        raise DataError(f"{where}: must be a JSON object, got {type(value).__name__}.")
    return value
