"""Two numbers of each word on one plane: how important it is, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np

from heed.errors import InputError
from heed.report.charts import COLOURS, INK, Chart, chart_of, styled
from heed.report.numbers import number
from heed.text import printable

if TYPE_CHECKING:
    from heed.methods.explanation import Explanation

ACROSS, UP = "importance", "value"  # what the parts of an explanation are called
_WIDTH, _HEIGHT = 640, 380
_LETTER, _LINE = 6.8, 13.0  # width and height of a label's letters
_GAP = 9.0  # between a dot and its label
_LONGEST = 24  # letters of a label
_SMALLEST, _LARGEST = 14.0, 130.0  # areas of dots
_DOT = 3.0  # half the width of what a label must not cover of a dot
_MARGIN = 0.05  # share of the span that stays free at both ends

Row = dict[str, Any]  # what the chart holds of a word


class Box(NamedTuple):
    """A rectangle on the chart, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)


def drawable(explanation: Explanation) -> bool:
    """Whether an explanation has the two numbers of each word."""
    return {ACROSS, UP} <= {*explanation.parts}


def plane(explanation: Explanation) -> Chart:
    """Each word at its importance and its value; the size of a dot is that of its score.

    Words above the dashed line speak for the label, words below it against it. The strongest words
    are named, as far as there is room.
    """
    if not drawable(explanation):
        reason = f"{explanation.method} has no importance and value of each word"
        raise InputError(f"There is nothing to draw: {reason}.")
    empty = explanation.facts["empty"]
    domains = [
        _domain(explanation.parts[ACROSS]),
        _domain(np.append(explanation.parts[UP], empty)),
    ]
    rows = _rows(explanation)
    x = _axis(alt.X, ACROSS, _importance(explanation), domains[0])
    y = _axis(alt.Y, UP, _value(explanation), domains[1])
    areas = alt.Scale(domain=[0, 1], range=[_SMALLEST, _LARGEST])
    size = alt.Size("share:Q", legend=None, scale=areas)
    colour = alt.Color("colour:N", scale=None, legend=None)
    dots = chart_of(rows).mark_circle(opacity=0.75)
    layers = [
        *_line(empty, y),
        dots.encode(x=x, y=y, size=size, color=colour, description="tip:N"),
        *_labels(rows, x, y, domains),
    ]
    chart = alt.LayerChart(layer=layers).properties(width=_WIDTH, height=_HEIGHT)
    return Chart(styled(chart))


def _rows(explanation: Explanation) -> list[Row]:
    """A row for each word, those with the largest scores first."""
    scores = explanation.scores
    peak = float(np.abs(scores).max(initial=0.0)) or 1.0
    rows = []
    for i in np.argsort(-np.abs(scores), kind="stable"):
        importance, value = (float(explanation.parts[name][i]) for name in (ACROSS, UP))
        name = _brief(explanation.units[i].text)
        tip = f"{name}: importance {number(importance)}, value {number(value, signed=True)}"
        rows.append(
            {
                "name": name,
                ACROSS: importance,
                UP: value,
                "share": abs(float(scores[i])) / peak,
                "colour": COLOURS["supported" if scores[i] >= 0 else "refuted"],
                "tip": f"{tip}, score {number(scores[i], signed=True)}",
            }
        )
    return rows


def _brief(text: str) -> str:
    # vl_convert aborts the whole process on a control character, hence `printable`
    text = printable(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"


def _domain(values: Any) -> tuple[float, float]:
    low, high = float(np.min(values)), float(np.max(values))
    margin = _MARGIN * (high - low) or 1.0
    return low - margin, high + margin


def _axis(channel: Any, name: str, title: str, domain: tuple[float, float]) -> Any:
    scale = alt.Scale(domain=list(domain), nice=False, zero=False)
    return channel(f"{name}:Q", scale=scale, axis=alt.Axis(title=title, tickCount=7))


def _importance(explanation: Explanation) -> str:
    replaced = explanation.removal == "replace"
    zero = "that of the filler" if replaced else "that of all that is always there"
    return f"importance (logarithm of a weight; 0 is {zero})"


def _value(explanation: Explanation) -> str:
    output = explanation.settings.get("output", "output")
    return f"value ({output} of {_brief(explanation.label)})"


def _line(empty: float, y: Any) -> list[alt.Chart]:
    """The output without words, which separates the two signs."""
    base = chart_of([{UP: empty, "text": "output without words"}]).encode(y=y)
    label = base.mark_text(align="right", baseline="bottom", dy=-4, color=INK, fontSize=10)
    return [
        base.mark_rule(color=INK, strokeDash=[5, 4], strokeWidth=1.2, aria=False),
        label.encode(x=alt.value(_WIDTH), text="text:N"),
    ]


def _labels(rows: list[Row], x: Any, y: Any, domains: list[tuple[float, float]]) -> list[alt.Chart]:
    """The names of words, the strongest first, where they meet no other name and no dot."""
    places = [_place(row, domains) for row in rows]
    taken = [Box(at - _DOT, height - _DOT, at + _DOT, height + _DOT) for at, height in places]
    right: list[Row] = []
    left: list[Row] = []
    for row, (at, height) in zip(rows, places, strict=True):
        width = _LETTER * len(row["name"])
        for side, start in ((right, at + _GAP), (left, at - _GAP - width)):
            box = Box(start, height - _LINE / 2, start + width, height + _LINE / 2)
            inside = box.left >= 0 and box.right <= _WIDTH
            if inside and not any(box.meets(other) for other in taken):
                taken.append(box)
                side.append(row)
                break
    looks: list[tuple[list[Row], dict[str, Any]]] = [
        (right, {"align": "left", "dx": _GAP}),
        (left, {"align": "right", "dx": -_GAP}),
    ]
    return [
        chart_of(named)
        .mark_text(fontSize=11, color=INK, baseline="middle", aria=False, **look)
        .encode(x=x, y=y, text="name:N")
        for named, look in looks
        if named
    ]


def _place(row: Row, domains: list[tuple[float, float]]) -> tuple[float, float]:
    """Where a word stands, in pixels from the left and from the top."""
    across, up = (
        (row[name] - low) / (high - low)
        for name, (low, high) in zip((ACROSS, UP), domains, strict=True)
    )
    return across * _WIDTH, (1 - up) * _HEIGHT
