"""Real data: `load(name or file)` gives a `Dataset`.

A known name is looked for in the folder that the environment variable `HEED_DATA` names, in an
installed package, in the cache (`HEED_CACHE`, else `~/.cache/heed`), and last on the Hugging Face
hub. `KNOWN` says what each set is.

A file (.csv, .tsv, .jsonl, .parquet; also .xz and .gz of the first three) needs the columns text
and label; pair, rationale and id are read if they are there, and clusters if their column is named.
The columns of a csv or tsv file are
separated by commas, semicolons or tabs, as its header shows. A rationale is a list of [start, end)
over `text.split()`, in a csv file written as JSON. Cells of a csv file are text, also those that
hold a number; in the other formats a text must be a string. A label is a whole number (1.0 is one)
or a name (true and false are names). Rows with a blank text are left out and counted.

`documents(value)` reads what is in memory already: texts, lists, tables of pandas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from heed.data.corpora import load_known
from heed.data.dataset import Dataset, of_classes, of_lengths, sample
from heed.data.files import load_file
from heed.data.inputs import documents
from heed.data.known import KNOWN, Known, Part, split_of
from heed.data.places import find
from heed.data.tables import Columns
from heed.errors import DataError, InputError, UnknownName

__all__ = ["KNOWN", "Dataset", "Known", "Part", "documents", "load", "sources"]


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
    columns: Mapping[str, str | None] | None = None,
    labels: Sequence[str] | None = None,
) -> Dataset:
    """A known data set, or a file of your own.

    split       train, dev or test (val and validation are dev); None is the default of the table.
                Not for files
    limit       at most so many documents, drawn after a shuffle by `seed`; without it the order is
                that of the file. Documents that share an id (the pairs of imdb_counterfactual) are
                drawn together
    classes     only these labels, numbered in the order given: ("World", "Business")
    max_words, min_words   length limits, counted over `text.split()` of both texts of a pair
                together
    part        "description": the news without their titles (ag_news)
    fine        the five labels instead of two without the neutral sentences (sst)
    strip       False keeps headers, footers and quoted lines (20news)
    columns     names of the columns of a file, where they are not text, label, pair, rationale and
                id: {"text": "body", "label": "stars"}; None: do not read it
    labels      names of the labels of a file, in order; its labels are such names, or their numbers
                0, 1, … By default the names are those that occur, sorted
    """
    if limit is not None and limit < 1:
        raise InputError(f"The limit must be at least 1, got {limit}.")
    path = Path(name)
    if isinstance(name, str) and name in KNOWN:
        if labels is not None or columns:
            raise InputError(f"Column and label names are for files; '{name}' has its own.")
        dataset = load_known(name, split, part, fine, strip)
    elif name == path.name and not path.suffix:
        raise UnknownName("data set", name, KNOWN)
    else:
        if split is not None or part is not None or fine or not strip:
            raise InputError(
                "Leave out split, part, fine and strip: they are for known data sets, not for"
                f" '{path}'."
            )
        dataset = load_file(path, Columns.of(columns), labels)
    if classes is not None:
        dataset = of_classes(dataset, classes)
    if min_words or max_words is not None:
        dataset = of_lengths(dataset, min_words or 0, math.inf if max_words is None else max_words)
    if limit is not None:
        dataset = sample(dataset, limit, seed)
    if not dataset.documents:
        raise DataError(
            f"No document of {name} is left after the limits on classes, words and number."
        )
    return dataset


def sources(name: str, split: str | None = None) -> str | None:
    """Where a known data set comes from here: folder, package, cache; None if only from the hub."""
    file = find(name, split_of(name, split))
    return file[0] if file else None
