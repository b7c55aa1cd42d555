"""What a reproduction leaves behind: results beside published figures, figures as data, and a row for every document.

Everything that is shown is drawn from these, without a model: `results.json` holds the results of all experiments, and
`experiments/NAME.json` one experiment with its figures, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from heed.errors import DataError, OutputError
from heed.metrics import bootstrap_mean

Row = dict[str, Any]
Kind = Literal["dots", "points", "lines", "bars", "heat", "boxes", "violins"]


@dataclass(frozen=True)
class Result:
    """One number of ours, with its interval, beside what was published.

    n            how many documents (or runs) are behind it
    published    the paper's number, or its statement in words; None where there is none
    note         a plain sentence: what the number says, and under which conditions
    """

    experiment: str
    dataset: str
    model: str
    metric: str
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    published: float | str | None = None
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A chart as data: which columns of `data` go where.

    dots     a mean and its interval for each category: x is a number, y a category, with columns low and high
    points   a scatter of x and y
    lines    curves of y over x, with bands where there are columns low and high
    bars     a number y for each category x
    heat     a number `value` for each pair of categories x and y
    violins  the density of y for each category x
    boxes    the distribution of y for each category x; `marks` are single marks over it, with columns x, y and mark

    `colour` names a column that tells series apart, and `panel` one that makes a chart of its own for each value.
    """

    name: str
    title: str
    kind: Kind
    data: Sequence[Row]
    x: str
    y: str
    value: str = ""
    colour: str = ""
    panel: str = ""
    marks: Sequence[Row] = ()
    caption: str = ""


@dataclass(frozen=True)
class Outcome:
    """What one experiment found.

    results        in the order in which a reader should meet them
    figures        drawn beside them
    rows           tables of one row per document (or run), by name: kept, not shown
    explanations   documents shown with their explanations
    """

    results: Sequence[Result]
    figures: Sequence[Figure] = ()
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    explanations: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Section:
    """An experiment as it is shown: its name and question, what it found, and how it was run."""

    name: str
    title: str
    question: str
    outcome: Outcome
    facts: Mapping[str, Any]


def mean_of(values: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """Mean, bootstrap interval and number of the finite values, as keywords for a `Result`."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return {"ours": None, "low": None, "high": None, "n": 0}
    low, high = bootstrap_mean(finite) if len(finite) > 1 else (None, None)
    return {"ours": float(finite.mean()), "low": low, "high": high, "n": len(finite)}


def mean_by_document(rows: Sequence[Row], key: str) -> dict[str, Any]:
    """The same over documents: the rows of one document, of several trainings say, count as their mean."""
    by: dict[Any, list[float]] = {}
    for row in rows:
        if math.isfinite(row[key]):
            by.setdefault(row["document"], []).append(row[key])
    return mean_of([float(np.mean(values)) for values in by.values()])


class Store:
    """The folder of a reproduction."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)

    def has(self, name: str, facts: Mapping[str, Any]) -> bool:
        """Whether an experiment was run like this already."""
        path = self._path(name)
        return path.exists() and all(
            self._read(path)["facts"].get(key) == value for key, value in facts.items()
        )

    def write(self, section: Section) -> None:
        """Keep an experiment, and the results of all that are there."""
        outcome = section.outcome
        try:
            for part in ("experiments", "rows"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
            for table, rows in outcome.rows.items():
                pq.write_table(
                    pa.Table.from_pylist(list(rows)),
                    self.folder / "rows" / f"{section.name}-{table}.parquet",
                )
            body = {
                "name": section.name,
                "title": section.title,
                "question": section.question,
                "facts": dict(section.facts),
                "results": [asdict(r) for r in outcome.results],
                "figures": [asdict(f) for f in outcome.figures],
                "explanations": list(outcome.explanations),
            }
            scratch = self._path(section.name).with_suffix(".part")
            scratch.write_text(_json(body), encoding="utf8")
            scratch.replace(self._path(section.name))
        except OSError as error:
            raise OutputError(f"{self.folder} cannot be written ({error}).") from None

    def sections(self, order: Sequence[str] = ()) -> list[Section]:
        """All experiments that are there, in this order."""
        found = [
            self._section(path) for path in sorted((self.folder / "experiments").glob("*.json"))
        ]
        place = {name: i for i, name in enumerate(order)}
        return sorted(found, key=lambda s: (place.get(s.name, len(place)), s.name))

    def write_results(self, sections: Sequence[Section]) -> None:
        """The results of all experiments in one list."""
        rows = [asdict(r) for s in sections for r in s.outcome.results]
        try:
            (self.folder / "results.json").write_text(_json(rows), encoding="utf8")
        except OSError as error:
            raise OutputError(f"{self.folder} cannot be written ({error}).") from None

    def _path(self, name: str) -> Path:
        return self.folder / "experiments" / f"{name}.json"

    def _section(self, path: Path) -> Section:
        body = self._read(path)
        try:
            outcome = Outcome(
                [Result(**r) for r in body["results"]],
                [Figure(**f) for f in body["figures"]],
                {},
                body["explanations"],
            )
            return Section(body["name"], body["title"], body["question"], outcome, body["facts"])
        except (KeyError, TypeError) as error:
            raise DataError(f"{path} does not hold an experiment of heed ({error}).") from None

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            body = json.loads(path.read_text(encoding="utf8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read ({error}).") from None
        if not isinstance(body, dict) or "facts" not in body:
            raise DataError(f"{path} does not hold an experiment of heed.")
        return body


def _json(value: Any) -> str:
    return json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Numbers as JSON has them: NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
