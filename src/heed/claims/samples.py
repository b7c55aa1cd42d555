"""Rows of evidence as samples, of which intervals can be computed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from heed.claims.claim import LOWER, UPPER, Claim, Columns, Evidence, Row, numbers_of
from heed.intervals import Sample
from heed.models.classifier import REMOVALS

Name = tuple[str, int]  # of a group
_SEED = re.compile(r"seed_(\d+)")
_OF_SEED = re.compile(r".*_(\d+)")


def numbered(evidence: Iterable[Evidence]) -> dict[Name, int]:
    """A number for each group of documents that some evidence has rows of."""
    names = (group_of(row, i) for e in evidence for i, row in enumerate(e.rows))
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def group_of(row: Row, place: int) -> Name:
    """What tells whether two rows belong together: their group or id, else their document."""
    name = row.get("group") or row.get("id") or ""
    return (str(name), -1) if name else ("", int(row.get("document", place)))


def samples_of(evidence: Evidence, number: dict[Name, int]) -> dict[str, Sample]:
    """A sample for each part of a claim, of the documents that have it.

    Parts are the ways to remove words, or the lower and the upper bound; for most claims there is
    one, "".
    """
    samples = {}
    for part, column in _columns(evidence).items():
        places = [i for i, row in enumerate(evidence.rows) if _is_finite(row.get(column))]
        if places:
            groups = [number[group_of(evidence.rows[i], i)] for i in places]
            rows = [evidence.rows[i] for i in places]
            samples[part] = _sample(evidence.claim, rows, column, np.array(groups))
    return samples


def _columns(evidence: Evidence) -> dict[str, str]:
    """The parts of a claim, and the column that holds the value of each."""
    named = {column for row in evidence.rows for column in row}
    if evidence.claim.operators:
        columns: dict[str, str] = {removal: f"value_{removal}" for removal in REMOVALS}
        offered = {part: column for part, column in columns.items() if column in named}
        return offered or {"": "value"}
    if evidence.claim.bracket:
        return {LOWER: "value"} | ({UPPER: "upper"} if "upper" in named else {})
    return {"": "value"}


def _sample(
    claim: Claim, rows: Sequence[Row], column: str, groups: Int[np.ndarray, "row"]
) -> Sample:
    values = np.array([row[column] for row in rows], dtype=float)
    seeds = [name for name in rows[0] if _SEED.fullmatch(name)] if column == "value" else []
    combine = claim.combine
    if combine is None:
        over = np.array([[row[name] for row in rows] for name in seeds], dtype=float)
        by_seed = over.mean(1) if seeds else None
        # a median over seeds in each row differs from their mean
        median = bool(seeds) and not np.allclose(over.mean(0), values)
        return Sample(values, groups, claim.bounds, None, by_seed, median)
    columns = numbers_of(rows)

    def statistic(drawn: Int[np.ndarray, "drawn"]) -> float:
        return combine({name: numbers[drawn] for name, numbers in columns.items()})

    every = {_SEED.fullmatch(name)[1] for name in seeds}  # type: ignore[index]
    each = [combine(_of_one_seed(columns, every, seed)) for seed in sorted(every)]
    if not each:
        return Sample(values, groups, None, statistic)
    median = not np.isclose(combine(columns), np.mean(each))
    return Sample(values, groups, None, statistic, np.array(each), bool(median))


def _of_one_seed(columns: Columns, seeds: set[str], seed: str) -> Columns:
    """The columns without those of other seeds, whose names end in their number."""
    other = seeds - {seed}
    ends = {name: match[1] for name in columns if (match := _OF_SEED.fullmatch(name))}
    return {name: numbers for name, numbers in columns.items() if ends.get(name) not in other}


def _is_finite(value: Any) -> bool:
    return value is not None and math.isfinite(value)
