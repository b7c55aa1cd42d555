"""Results of a reproduction in words: our number, the published one, and what results share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heed.report.numbers import interval, short

if TYPE_CHECKING:
    from heed.papers.results import Result

MANY = 14  # results of an experiment, and remarks on them, that are shown unfolded


def ours(result: Result) -> str:
    """Our number with its interval, if it has one; a whole number without one has no decimals."""
    if result.low is not None and result.high is not None:
        return interval(result.ours, result.low, result.high)
    return short(result.ours)


def published(result: Result) -> str:
    """The published number as it was printed, or the paper's words; nothing if there is none."""
    value = result.published
    return "" if value is None else value if isinstance(value, str) else f"{value:g}"


def shared(results: Sequence[Result]) -> dict[str, str]:
    """The model and the data that all results have in common."""
    models = {r.model for r in results}
    datasets = {r.dataset for r in results}
    common = {"model": models, "data": datasets}
    return {name: values.pop() for name, values in common.items() if len(values) == 1}


def named(result: Result, results: Sequence[Result]) -> str:
    """The metric, with model and data if those of other results differ."""
    parts = {"metric": result.metric, "model": result.model, "data": result.dataset}
    return " · ".join(text for name, text in parts.items() if name not in shared(results))


def remarks(results: Sequence[Result]) -> list[tuple[str, str]]:
    """Each remark once, with the results that it is about."""
    by_note: dict[str, list[Result]] = {}
    for result in results:
        if result.note:
            by_note.setdefault(result.note, []).append(result)
    return [(note, _about(noted, results)) for note, noted in by_note.items()]


def _about(noted: Sequence[Result], results: Sequence[Result]) -> str:
    more = f", and {len(noted) - 1} more" if len(noted) > 1 else ""
    return named(noted[0], results) + more
