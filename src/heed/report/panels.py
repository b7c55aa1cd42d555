"""From the rows of a figure to its panels: what stands on which axis, in which order and room.

Columns get plain names of our own and their texts are made printable, because altair reads much
into a column's name, and vl_convert aborts the whole process on a control character.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from heed.text import printable

if TYPE_CHECKING:
    from heed.papers.results import Figure

Row = dict[str, Any]
Span = tuple[float, float]

TOTAL = 840  # width of a figure with its labels
LETTER = 7.3  # width of a character in a wide font
POINTS = 3000  # that are drawn of a scatter; of more, every second, third …
_LONGEST = 60  # characters of a label


@dataclass(frozen=True)
class Panel:
    """One chart of a figure, with what was decided for all of its charts together.

    rows      with columns down and across (names or numbers), number, low, high and series
    marks     single marks over the rows, with columns down, number and mark
    names     categories in order of appearance, by the axis on which they stand
    spans     from where to where the axes of numbers reach
    series    in order of appearance; none where there is only one
    kinds     of marks, in order of appearance
    labels    whether categories are written beside the rows
    """

    figure: Figure
    title: str
    rows: list[Row]
    marks: list[Row]
    names: Mapping[str, list[str]]
    spans: Mapping[str, Span]
    series: list[str]
    kinds: list[str]
    width: int = TOTAL
    labels: bool = True


def panels(f: Figure) -> list[Panel]:
    """The panels of a figure; none where no row has its numbers."""
    rows = _tidy(f)
    if not rows:
        return []
    marks = _tidy_marks(f, rows)
    titles = distinct(r["panel"] for r in rows)
    by_panel = [[r for r in rows if r["panel"] == title] for title in titles]
    over = [[m for m in marks if m["panel"] in (title, "")] for title in titles]
    spans = _spans(f, by_panel, over)
    series = distinct(r["series"] for r in rows) if f.colour else []
    kinds = distinct(m["mark"] for m in marks)
    charts = []
    for title, inside, above, span in zip(titles, by_panel, over, spans, strict=True):
        names = _categories(f, inside)
        charts.append(Panel(f, title, inside, above, names, span, series, kinds))
    return _laid_out(charts)


def columns(panels: Sequence[Panel]) -> int:
    """Two panels stand side by side, unless each has long labels of its own."""
    return 1 if len(panels) == 1 or (not _alike(panels) and max(map(margin, panels)) > 220) else 2


def margin(panel: Panel) -> float:
    """Room for the labels on the left."""
    return 20 + LETTER * max((len(name) for name in panel.names.get("down", ())), default=4)


def thinned(f: Figure) -> str:
    """A sentence that says which part of a scatter is drawn; empty where all of it is."""
    step = _step(f)
    return f"One in {step} of the {len(f.data):,} points is drawn." if step > 1 else ""


def distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


# Columns


def _categories(f: Figure, rows: Sequence[Row]) -> dict[str, list[str]]:
    """Categories in order of appearance; both axes share the order if they share the names."""
    categories = {axis: distinct(row[axis] for row in rows) for axis in _names(f)}
    if f.kind == "heat" and set(categories["across"]) == set(categories["down"]):
        categories["across"] = categories["down"]
    return categories


def _names(f: Figure) -> dict[str, str]:
    """Columns of categories by axis: most stand down the page, where one can read them."""
    if f.kind == "heat":
        return {"across": f.x, "down": f.y}
    if f.kind in ("points", "lines"):
        return {}
    return {"down": f.y if f.kind == "dots" else f.x}


def _numbers(f: Figure) -> dict[str, str]:
    """Which columns hold the numbers that a row must have."""
    if f.kind in ("points", "lines"):
        return {"across": f.x, "number": f.y}
    return {"number": {"dots": f.x, "heat": f.value}.get(f.kind, f.y)}


def _tidy(f: Figure) -> list[Row]:
    """Rows with columns of our own: numbers that are finite, and texts that can be drawn."""
    numbers, names = _numbers(f), _names(f)
    data = [row for row in f.data if all(_finite(row.get(c)) is not None for c in numbers.values())]
    texts = {axis: _labels(row.get(c) for row in data) for axis, c in names.items()}
    rows = []
    for row in data[:: _step(f)]:
        tidy: Row = {key: _finite(row.get(column)) for key, column in numbers.items()}
        tidy |= {axis: texts[axis][_text(row.get(column))] for axis, column in names.items()}
        tidy |= {key: _finite(row.get(key)) for key in ("low", "high")}
        rows.append(tidy | {"series": _short(row.get(f.colour)), "panel": _short(row.get(f.panel))})
    return rows


def _tidy_marks(f: Figure, rows: Sequence[Row]) -> list[Row]:
    """Marks at categories that the rows have."""
    present = {row["down"] for row in rows} if f.kind == "boxes" else set()
    marks = [
        {"down": _short(m.get("x")), "number": _finite(m.get("y"))}
        | {"mark": _short(m.get("mark")), "panel": _short(m.get(f.panel))}
        for m in f.marks
    ]
    return [m for m in marks if m["down"] in present and m["number"] is not None]


def _step(f: Figure) -> int:
    return max(1, math.ceil(len(f.data) / POINTS)) if f.kind == "points" else 1


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, Real) and math.isfinite(value) else None


def _text(value: object) -> str:
    return "" if value is None else printable(str(value))


def _short(value: object) -> str:
    text = _text(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _labels(values: Iterable[object]) -> dict[str, str]:
    """A label of its own for each category, cut where it is long."""
    labels: dict[str, str] = {}
    for text in distinct(map(_text, values)):
        label, again = _short(text), 1
        while label in labels.values():
            again += 1
            label = f"{_short(text)} ({again})"
        labels[text] = label
    return labels


# Room


def _spans(
    f: Figure, panels: Sequence[list[Row]], marks: Sequence[list[Row]]
) -> list[dict[str, Span]]:
    """The span of each panel's axes: one for all, unless that would squeeze one of the panels."""
    by_panel: list[dict[str, Span]] = [{} for _ in panels]
    for axis in _numbers(f):
        every = [[*rows, *over] for rows, over in zip(panels, marks, strict=True)]
        single = [_span(f, axis, rows) for rows in every]
        whole = _span(f, axis, [row for rows in every for row in rows])
        least = 0.4 * (whole[1] - whole[0])
        together = f.kind == "heat" or all(high - low >= least for low, high in single)
        for spans, span in zip(by_panel, single, strict=True):
            spans[axis] = whole if together else span
    return by_panel


def _span(f: Figure, axis: str, rows: Sequence[Row]) -> Span:
    with_intervals = axis == "number" and f.kind in ("dots", "lines")
    keys = ("number", "low", "high") if with_intervals else (axis,)
    values = [row[key] for row in rows for key in keys if row.get(key) is not None]
    if f.kind == "bars":
        values.append(0.0)
    low, high = min(values), max(values)
    # a single number gets half of its size on both sides: an axis must have a length
    margin = 0.0 if low < high else 0.5 * (abs(low) or 1)
    return low - margin, high + margin


def _laid_out(panels: list[Panel]) -> list[Panel]:
    """The panels with their widths; the right one of two repeats no labels of the left one."""
    in_row, alike = columns(panels), _alike(panels)
    labelled = 1 if alike else in_row
    room = TOTAL - labelled * max(map(margin, panels)) - 40 * (in_row - 1)
    width = max(200, int(room / in_row))
    return [
        replace(p, width=width, labels=not (alike and p.names and i % in_row))
        for i, p in enumerate(panels)
    ]


def _alike(panels: Sequence[Panel]) -> bool:
    return all(p.names.get("down") == panels[0].names.get("down") for p in panels)
