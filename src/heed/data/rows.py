"""Rows: what every source of data gives, how the cache keeps them, and what becomes of them."""

from __future__ import annotations

import hashlib
import json
import lzma
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from heed.errors import DataError, OutputError
from heed.store import writing
from heed.text import Document, Span

if TYPE_CHECKING:  # slow to import
    import pyarrow as pa

_MOST_CELLS = 100_000_000  # of a table, each of which becomes an object of Python
_MOST_BYTES = 2**31
# The keys are text, label and id; pair and rationale where a data set has them.
Row = dict[str, Any]


def document(row: Row) -> Document:
    ranges = row.get("rationale") or ()
    return Document(
        row["text"], row.get("pair"), str(row["id"]), row["label"], spans(row["text"], ranges)
    )


def spans(text: str, ranges: Sequence[Sequence[int]]) -> tuple[Span, ...]:
    """Characters of ranges over `text.split()`; ranges that meet or overlap become one.

    Ranges without a word are left out: the test part of movie_rationales has some.
    """
    if not ranges:
        return ()
    words = [m.span() for m in re.finditer(r"\S+", text)]
    merged: list[list[int]] = []
    for start, end in sorted((start, end) for start, end in ranges if start < end):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return tuple(Span(words[start][0], words[end - 1][1]) for start, end in merged)


def read_parquet(file: BinaryIO | Path, most_rows: int = 50_000_000) -> pa.Table:
    """The table of a Parquet file, which is refused if it is too large for memory.

    A small file may stand for any number of rows: they are counted before they are read, and
    measured while they are.
    """
    import pyarrow as pa  # here: slow to import
    import pyarrow.parquet as pq

    # a file of its own: pyarrow would take the folders above for columns
    opened = pq.ParquetFile(file)
    rows, columns = opened.metadata.num_rows, opened.metadata.num_columns
    if rows > most_rows or rows * columns > _MOST_CELLS:
        raise DataError(f"it is too large: {rows:,} rows with {columns:,} columns")
    batches, size = [], 0
    for batch in opened.iter_batches(1000):
        size += batch.nbytes
        if size > _MOST_BYTES:
            raise DataError(f"it is too large: more than {_MOST_BYTES:,} bytes when unpacked")
        batches.append(batch)
    return pa.Table.from_batches(batches, opened.schema_arrow)


def read_xz(path: Path, sha256: str | None = None) -> list[Row]:
    """The rows of a .jsonl.xz file, whose checksum must be `sha256` if that is known."""
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise DataError(f"The file {path} cannot be read ({error.strerror}).") from None
    if sha256 and hashlib.sha256(packed).hexdigest() != sha256:
        raise DataError(
            f"The file {path} is not the one that heed knows (its SHA-256 differs): replace or"
            " remove it."
        )
    try:
        return [json.loads(line) for line in lzma.decompress(packed).decode().split("\n") if line]
    except (lzma.LZMAError, ValueError) as error:
        raise DataError(f"The file {path} is damaged ({error}): remove it.") from None


def write_xz(path: Path, rows: Sequence[Row]) -> None:
    packed = lzma.compress(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(), preset=2
    )
    try:
        with writing(path) as scratch:
            scratch.write_bytes(packed)
    except OutputError as error:
        raise OutputError(f"{str(error).removesuffix('.')}; set HEED_CACHE.") from None
