"""What an experiment found: results beside published figures, and figures as data.

Tables, charts and pages are drawn from these alone, without a model.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal

from msgspec import Meta

from heed.papers.table import Mean, Row, Table

Kind = Literal["dots", "points", "lines", "bars", "heat", "boxes", "violins"]
# Integers beyond this are no measurements, and Python refuses to write very long ones.
Whole = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Cell = Whole | float | str | bool | None


@cache
def texts(name: str) -> dict[str, Any]:
    """One of the data files of this package: papers, metrics, figures, published."""
    path = resources.files("heed.papers").joinpath(f"{name}.toml")
    return tomllib.loads(path.read_text("utf8"))


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
    n: Whole = 0
    published: float | str | None = None
    note: str = ""


class Results(list[Result]):
    """Results of an experiment, most of them about one data set and one model."""

    def __init__(self, experiment: str, dataset: str = "", model: str = ""):
        super().__init__()
        self.experiment, self.dataset, self.model = experiment, dataset, model

    def add(
        self,
        metric: str,
        ours: Mean | float | None = None,
        *,
        n: int = 0,
        published: float | str | None = None,
        note: str = "",
        dataset: str = "",
        model: str = "",
    ) -> None:
        """Add a result: a mean with its interval and number, or a single number."""
        mean = ours if isinstance(ours, Mean) else Mean(ours, None, None, n)
        about = (self.experiment, dataset or self.dataset, model or self.model, metric)
        self.append(Result(*about, mean.ours, mean.low, mean.high, mean.n, published, note))

    def add_means(self, rows: Table, group: str, per: str = "") -> None:
        """Add the mean of each column that has a name in this group of metrics.toml."""
        for column, metric in texts("metrics")[group].items():
            self.add(metric, rows.mean(column, per))


@dataclass(frozen=True)
class Figure:
    """A chart as data: which columns of `data` go where.

    dots     a mean and its interval for each category: x is a number, y a category, with columns
             low and high
    points   a scatter of x and y
    lines    curves of y over x, with bands where there are columns low and high
    bars     a number y for each category x
    heat     a number `value` for each pair of categories x and y
    violins  the density of y for each category x
    boxes    the distribution of y for each category x; `marks` are single marks over it, with
             columns x, y and mark

    `colour` names a column that tells series apart, and `panel` one that makes a chart of its own
    for each value.
    """

    name: str
    title: str
    kind: Kind
    data: Sequence[Mapping[str, Cell]]
    x: str
    y: str
    value: str = ""
    colour: str = ""
    panel: str = ""
    marks: Sequence[Mapping[str, Cell]] = ()
    caption: str = ""


def figure(
    name: str,
    data: Sequence[Mapping[str, Cell]],
    values: Mapping[str, object] | None = None,
    **changes: Any,
) -> Figure:
    """A chart of `data` as figures.toml describes it.

    values    what stands in the braces of its title and caption
    changes   fields that depend on the run, in place of those in the file
    """
    described = texts("figures")[name] | changes
    for key in ("title", "caption"):
        if values and key in described:
            described[key] = described[key].format(**values)
    return Figure(name, data=data, **described)


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
    """An experiment as it is shown: its name and question, what it found, and how it was run.

    key   says how it was made, with a digest of the code; another key asks for another run
    """

    name: str
    title: str
    question: str
    outcome: Outcome
    facts: Mapping[str, Any]
    key: str = ""
