"""Two charts of a ranking: how faithful each method is, and what that costs.

Filled circles stand for the group that cannot be told from the best, open ones for the others, and
crosses for chance, so that nothing depends on colour alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import altair as alt

from heed.report.charts import COLOURS, FILL, INK, Chart, chart_of, styled
from heed.report.numbers import cell, number
from heed.text import printable

if TYPE_CHECKING:
    from heed.rank import Ranking, Standing

WIDE, NARROW = 600, 190  # of a chart's area
_ROW = 24  # height of a row
_TALL = 320  # of the chart of cost
_LETTER = 7.2  # width of a character of a label, in a wide font
_GAP = 15  # between labels, from top to top
_CROSS = "M-.8,-.8L.8,.8M.8,-.8L-.8,.8"
_KINDS: dict[str, dict[str, Any]] = {
    "best": {"shape": "circle", "fill": COLOURS["supported"], "stroke": COLOURS["supported"]},
    "other": {"shape": "circle", "fill": "white", "stroke": INK},
    "chance": {"shape": _CROSS, "stroke": INK},
}


def every(ranking: Ranking) -> Iterator[tuple[str, Chart, Chart]]:
    """Each chart by its name: one for wide windows, and one for telephones."""
    for key, draw in (("methods", forest), ("cost", cost)):
        yield key, draw(ranking), draw(ranking, NARROW)


def forest(ranking: Ranking, width: int = WIDE) -> Chart:
    """Faithfulness of each method with its interval, the best on top."""
    standings = ranking.standings
    rows = [
        {
            "row": i + 0.5,
            "at": s.faithfulness,
            # few documents have no interval
            "low": s.low if ranking.decides else s.faithfulness,
            "high": s.high if ranking.decides else s.faithfulness,
            "kind": _kind(s),
            "tip": _tip(s),
            "text": faithful(ranking, s),
        }
        for i, s in enumerate(standings)
    ]
    names = [printable(s.method) for s in standings]
    down = alt.Axis(
        title=None,
        values=[i + 0.5 for i in range(len(rows))],
        labelExpr=f"{json.dumps(names)}[floor(datum.value)]",
        labelLimit=0,
        labelPadding=10,
        labelOverlap=False,
        minExtent=_LETTER * max(map(len, names)) + 10,
        ticks=False,
        domain=False,
    )
    title = "faithfulness: 0 as the worst order of the words, 1 as the best"
    across = alt.Axis(title=title if width >= WIDE else "faithfulness", tickCount=5)
    scale = alt.Scale(domain=[0, 1])
    x, start = (alt.X(f"{end}:Q", scale=scale, axis=across) for end in ("at", "low"))
    y_scale = alt.Scale(domain=[0, len(rows)], reverse=True, nice=False)
    y = alt.Y("row:Q", scale=y_scale, axis=down)
    layers = []
    for kind, look in _KINDS.items():
        if not (of := [row for row in rows if row["kind"] == kind]):
            continue
        rule = chart_of(of).mark_rule(color=look["stroke"], strokeWidth=3, opacity=0.7, aria=False)
        layers.append(rule.encode(x=start, x2="high:Q", y=y))
        layers.append(_points(of, look).encode(x=x, y=y, description="tip:N"))
    if width >= WIDE:
        text = chart_of(rows).mark_text(align="left", fontSize=12, color=INK, aria=False)
        layers.append(text.encode(x=alt.value(width + 12), y=y, text="text:N"))
    chart = alt.LayerChart(layer=layers).properties(width=width, height=_ROW * len(rows))
    right = 4 if width < WIDE else 104
    return Chart(
        styled(chart).properties(padding={"left": 4, "top": 4, "right": right, "bottom": 4})
    )


def cost(ranking: Ranking, width: int = WIDE) -> Chart:
    """Faithfulness against evaluations of the model; lines are methods with fewer samples."""
    rows = [
        {
            "cost": max(1.0, s.others["evaluations"]),
            "at": s.faithfulness,
            "kind": _kind(s),
            "name": printable(s.method),
            "chosen": ranking.recommended is not None and s.method == ranking.recommended.method,
            "tip": f"{_tip(s)}, {number(s.others['evaluations'], decimals=0)} texts a document",
        }
        for s in ranking.standings
        if "evaluations" in s.others
    ]
    lines = list(_lines(ranking))
    costs = [row["cost"] for row in [*rows, *lines]]
    top = 10 ** math.ceil(math.log10(max(10.0, 1.15 * max(costs))))
    x_scale = alt.Scale(type="log", domain=[0.8, top], nice=False)
    title = "texts that the model reads for one document (logarithmic)"
    ticks = [10**i for i in range(round(math.log10(top)) + 1)]
    across = alt.Axis(
        title=title if width >= WIDE else "texts for one document", values=ticks, format=",d"
    )
    x = alt.X("cost:Q", scale=x_scale, axis=across)
    low = min(row["at"] for row in [*rows, *lines])
    heights = math.floor(10 * max(0.0, low - 0.02)) / 10, 1.0
    y_scale = alt.Scale(domain=list(heights), nice=False)
    y_axis = alt.Axis(
        title="faithfulness", tickCount=5, grid=True, gridColor=FILL, gridOpacity=0.25
    )
    y = alt.Y("at:Q", scale=y_scale, axis=y_axis)
    layers: list[alt.Chart] = []
    if lines:
        path = chart_of(lines).mark_line(color=INK, strokeWidth=1.5, opacity=0.8, aria=False)
        layers.append(path.encode(x=x, y=y, detail="name:N"))
        dots = chart_of([line for line in lines if line["tip"]])
        layers.append(
            dots.mark_point(shape="circle", fill=INK, stroke=INK, size=18, opacity=1).encode(
                x=x, y=y, description="tip:N"
            )
        )
    for kind, look in _KINDS.items():
        if of := [row for row in rows if row["kind"] == kind]:
            layers.append(_points(of, look).encode(x=x, y=y, description="tip:N"))
    placed = _labels(rows, width, (math.log10(0.8), math.log10(top)), heights)
    for align in ("left", "right"):
        if of := [row for row in placed if row["align"] == align]:
            text = chart_of(of).mark_text(
                align=align, dx=9 if align == "left" else -9, fontSize=12, color=INK, aria=False
            )
            layers.append(text.encode(x=x, y=alt.Y("label:Q", scale=y_scale), text="name:N"))
    chart = alt.LayerChart(layer=layers).properties(width=width, height=_TALL)
    return Chart(styled(chart))


def faithful(ranking: Ranking, standing: Standing) -> str:
    """Faithfulness, with half the width of its interval if there are enough documents for one."""
    mean = cell(standing.faithfulness)
    return f"{mean} ± {cell(standing.margin)}" if ranking.decides else mean


def _kind(standing: Standing) -> str:
    return "chance" if standing.chance else "best" if standing.best else "other"


def _tip(standing: Standing) -> str:
    known = f"{number(standing.faithfulness)} [{number(standing.low)}, {number(standing.high)}]"
    more = {"best": ", not told from the best", "chance": ", knows nothing of the model"}
    return f"{printable(standing.method)}: {known}{more.get(_kind(standing), '')}"


def _points(rows: list[dict[str, Any]], look: dict[str, Any]) -> alt.Chart:
    size = 42 if look["shape"] == _CROSS else 70
    return chart_of(rows).mark_point(size=size, strokeWidth=1.6, opacity=1, **look)


def _lines(ranking: Ranking) -> Iterator[dict[str, Any]]:
    """The points of each line; the last is the method itself, which has a mark already."""
    by_name = {s.method: s for s in ranking.standings}
    for name, points in groupby(ranking.curve, key=lambda row: row["curve"]):
        own = by_name.get(name)
        if own is None or "evaluations" not in own.others:
            continue
        shown = printable(name)
        for row in sorted(points, key=lambda row: float(row["evaluations"])):
            at, texts = float(row["faithfulness"]), float(row["evaluations"])
            tip = f"{shown} with fewer samples: {number(at)}, {texts:,.0f} texts a document"
            yield {"name": shown, "cost": max(1.0, texts), "at": at, "tip": tip}
        own_cost = max(1.0, own.others["evaluations"])
        yield {"name": shown, "cost": own_cost, "at": own.faithfulness, "tip": ""}


def _labels(
    rows: list[dict[str, Any]], width: int, ends: tuple[float, float], heights: tuple[float, float]
) -> list[dict[str, Any]]:
    """Where names stand: beside their points, moved up or down until they are apart.

    The recommended method has the first place. A name that would end up more than two rows away is
    left out: the other chart and the table have it.
    """
    low, high = heights
    span = ends[1] - ends[0]
    placed: list[tuple[float, float, float]] = []  # from, to and height in pixels
    shown = []
    for row in sorted(rows, key=lambda row: (not row["chosen"], -row["at"])):
        x = width * (math.log10(row["cost"]) - ends[0]) / span
        long = _LETTER * len(row["name"]) + 9
        align = "left" if x + long <= width else "right"
        start, end = (x, x + long) if align == "left" else (x - long, x)
        y = wanted = _TALL * (1 - (row["at"] - low) / (high - low))
        for _, _, other in sorted(placed, key=lambda p: p[2]):
            if abs(other - y) < _GAP and any(
                a < end and start < b for a, b, h in placed if h == other
            ):
                y = other + _GAP
        if start >= 0 and y - wanted <= 2 * _GAP and y <= _TALL:
            placed.append((start, end, y))
            shown.append(row | {"align": align, "label": low + (1 - y / _TALL) * (high - low)})
    return shown
