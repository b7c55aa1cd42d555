"""Rows of measurements: choose some, group them, and take means with their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

Row = dict[str, Any]


class Mean(NamedTuple):
    """A mean, its bootstrap interval, and how many numbers are behind it."""

    ours: float | None
    low: float | None
    high: float | None
    n: int

    def row(self, value: str = "value", **columns: Any) -> Row:
        """A row of a chart: these columns, the mean in the column `value`, and its interval."""
        return columns | {value: self.ours, "low": self.low, "high": self.high}

    @property
    def sign(self) -> int:
        """1 or -1 if the whole interval lies above or below zero; 0 otherwise."""
        return ((self.low or 0.0) > 0) - ((self.high or 0.0) < 0)


class Table(list[Row]):
    """Measured rows, each a dict from column to value.

    table.where(model="BERT").mean("tau")          one mean
    for seed, rows in table.by("seed"): …          groups in order of appearance
    """

    def where(self, **equals: Any) -> Table:
        """The rows in which these columns have these values."""
        return Table(r for r in self if all(r.get(c) == v for c, v in equals.items()))

    def by(self, *columns: str, ordered: bool = False) -> Iterator[tuple[Any, Table]]:
        """Groups of rows, each with its value of the column, or its values of the columns.

        They come in order of appearance or, if `ordered`, of these values.
        """
        groups: dict[Any, list[Row]] = {}
        for row in self:
            values = tuple(row[c] for c in columns)
            groups.setdefault(values if len(columns) > 1 else values[0], []).append(row)
        for values in sorted(groups) if ordered else groups:
            yield values, Table(groups[values])

    def column(self, name: str) -> Float[np.ndarray, "row"]:
        """The numbers of a column; NaN where there is none."""
        return np.array([row[name] for row in self], dtype=float)

    def average(self, column: str) -> float:
        """The plain mean of a column."""
        return float(np.mean(self.column(column)))

    def mean(self, column: str, per: str = "") -> Mean:
        """The mean of a column's finite numbers.

        With `per`, rows that share a value of that column, such as one document in several
        trainings, count as one: as their mean.
        """
        finite = Table(r for r in self if np.isfinite(_number(r[column])))
        if not per:
            return mean_of(finite.column(column))
        return mean_of([group.average(column) for _, group in finite.by(per)])


def mean_of(values: Sequence[float] | Float[np.ndarray, "n"]) -> Mean:
    """The mean of the finite values."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return Mean(None, None, None, 0)
    low, high = percentiles(finite) if len(finite) > 1 else (None, None)
    return Mean(float(finite.mean()), low, high, len(finite))


def percentiles(
    values: Float[np.ndarray, "n"], level: float = 0.95, resamples: int = 10_000
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean.

    The pages of results were written with it. Verdicts rest on `heed.intervals`, which hold what
    they promise for few or lumpy values, too.
    """
    rng = np.random.default_rng(0)
    means = np.empty(resamples)
    step = max(1, (1 << 22) // len(values))  # resamples at a time: bounds memory to 4 M indices
    for start in range(0, resamples, step):
        some = means[start : start + step]
        some[:] = values[rng.integers(0, len(values), (len(some), len(values)))].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _number(value: float | None) -> float:
    return np.nan if value is None else value
