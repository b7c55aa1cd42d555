"""The figures of a reproduction, drawn from their rows.

Categories stand in their order of appearance. Series differ by shape, dash or position as well as
by colour. Backgrounds are transparent and inks of middle tone, as in the charts of an audit.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice, product
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
from jaxtyping import Float

from heed.errors import InputError
from heed.report.charts import FILL, INK, LETTERS, chart_of, styled
from heed.report.numbers import cell, short
from heed.report.panels import LETTER, TOTAL, Panel, Row, Span, columns, margin, panels, thinned
from heed.report.shading import AGAINST, FOR
from heed.text import printable

if TYPE_CHECKING:
    from heed.papers.results import Figure

_CELLS = 150  # of a heat map that carry their number
# Colours of Okabe and Ito, which colour-blind readers can tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6b7280")
_SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
)
_DASHES = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [4, 2], [12, 4], [3, 5, 1, 5], [1, 3])
# The outline of a cross on its side.
_SALTIRE = "M-.7,-1L0,-.3L.7,-1L1,-.7L.3,0L1,.7L.7,1L0,.3L-.7,1L-1,.7L-.3,0L-1,-.7Z"
_PALE = "#f3f5f7"
# Wide on the right: letters may be wider where the figure is shown.
_PADDING = {"left": 4, "top": 4, "right": 36, "bottom": 4}
_LEGEND = LETTERS | {"titlePadding": 10, "columnPadding": 26, "symbolOpacity": 1}


def figure(f: Figure) -> alt.LayerChart | alt.ConcatChart:
    """The chart of a figure, without its title; rows that lack a number are left out."""
    if f.kind not in _KINDS:
        raise InputError(f"The figure '{f.name}' is of a kind that heed cannot draw: '{f.kind}'.")
    laid_out = panels(f)
    if not laid_out:
        raise InputError(f"There is nothing to draw for '{f.name}': no row has its numbers.")
    drawn = [_KINDS[f.kind](panel) for panel in laid_out]
    config = {"aria": False, "legend": _LEGEND}  # the page says in words what a figure shows
    if len(drawn) == 1:
        return styled(drawn[0], **config).properties(padding=_PADDING)
    titles = [alt.Title(_lines(panel.title, panel.width)) for panel in laid_out]
    named = [chart.properties(title=t) for chart, t in zip(drawn, titles, strict=True)]
    beside = alt.concat(*named, columns=columns(laid_out), spacing=24)
    return styled(beside, **config).properties(padding=_PADDING)


def titled(f: Figure) -> alt.LayerChart | alt.ConcatChart:
    """The chart of a figure with its title and caption, as it is saved for use elsewhere."""
    title = alt.Title(
        _lines(f.title, 0.85 * TOTAL),
        subtitle=_lines(caption(f), TOTAL) if caption(f) else [],
        fontSize=14,
        subtitleFontSize=12,
        subtitleColor=INK,
        offset=14,
    )
    return figure(f).properties(title=title)


def caption(f: Figure) -> str:
    """What is said below a figure."""
    return " ".join(part for part in (f.caption, thinned(f)) if part)


def _lines(text: str, width: float) -> list[str]:
    return textwrap.wrap(printable(text), max(20, int(width / LETTER))) or [""]


# Axes and legends


def _title(name: str) -> str | None:
    """What an axis is called; some names say nothing."""
    return None if name in ("value", "at", "one", "other") else printable(name)


def _scale(panel: Panel, key: str, column: str) -> dict[str, Any]:
    """Scale and axis of numbers."""
    low, high = panel.spans[key]
    form: dict[str, Any] = {}
    if key == "across" and all(row[key] == int(row[key]) for row in panel.rows):
        places = sorted({row[key] for row in panel.rows})
        form = {"format": ",d"} | ({"values": places} if len(places) <= 6 else {"tickMinStep": 1})
    if max(abs(low), abs(high)) < 1e-3:
        form = {"format": "~e"}
    ticks = 8 if key == "across" and panel.width > 400 else 4
    axis = alt.Axis(title=_title(column), tickCount=ticks, **form)
    return {"scale": alt.Scale(domain=[low, high], nice=True, zero=False), "axis": axis}


def _down(
    panel: Panel, title: str | None = None, grid: bool = True, padding: float = 0.24
) -> alt.Y:
    """The axis of categories, from top to bottom."""
    axis = alt.Axis(
        title=title if panel.labels else None,
        grid=grid,
        gridColor=FILL,
        gridOpacity=0.35,
        **_label_column(panel),
    )
    scale = alt.Scale(type="band", domain=panel.names["down"], padding=padding)
    return alt.Y("down:N", sort=None, scale=scale, axis=axis)


def _label_column(panel: Panel) -> dict[str, Any]:
    """The labels of categories, left of the panel; no line and no ticks beside them."""
    extent = margin(panel) if panel.labels else 0
    room = {"labels": panel.labels, "labelLimit": 0, "labelPadding": 8, "minExtent": extent}
    return room | {"ticks": False, "domain": False}


def _apart(panel: Panel, *channels: str) -> dict[str, Any]:
    """Encodings that tell series apart, with one legend for all of them."""
    if not panel.series:
        return {channel: alt.value(_COLOURS[0]) for channel in channels if channel == "color"}
    steps: dict[str, tuple[Any, Sequence[Any]]] = {
        "color": (alt.Color, _COLOURS),
        "fill": (alt.Fill, _COLOURS),
        "shape": (alt.Shape, _SHAPES),
        "strokeDash": (alt.StrokeDash, _DASHES),
    }
    # none beside lines: the outline of a shape would be dashed as its line is
    outline = 0 if panel.figure.kind == "lines" else 1.5
    legend = _legend(panel.series, printable(panel.figure.colour), symbolStrokeWidth=outline)
    encodings: dict[str, Any] = {}
    for channel in channels:
        make, values = steps[channel]
        scale = alt.Scale(domain=panel.series, range=list(islice(cycle(values), len(panel.series))))
        encodings[channel] = make("series:N", sort=None, scale=scale, legend=legend)
    return encodings


def _beside(panel: Panel) -> dict[str, Any]:
    """Series of one category, one below the other."""
    scale = alt.Scale(domain=panel.series)
    return {"yOffset": alt.YOffset("series:N", sort=None, scale=scale)} if panel.series else {}


def _legend(names: Sequence[str], title: str | None, **more: Any) -> alt.Legend:
    fitting = int(TOTAL / (LETTER * max(map(len, names)) + 50))
    columns = min(max(1, fitting), len(names))
    above: dict[str, Any] = {"titleOrient": "left", "orient": "top", "labelLimit": 0}
    return alt.Legend(title=title, columns=columns, **above, **more)


def _zero(panel: Panel, key: str, **axis: Any) -> list[alt.Chart]:
    """A dashed line at zero, where numbers lie on both sides of it."""
    low, high = panel.spans[key]
    line = chart_of([{"zero": 0.0}]).mark_rule(color=INK, strokeDash=[4, 3], opacity=0.8)
    return [line.encode(**axis)] if low < 0 < high else []


def _row(panel: Panel) -> int:
    """Room for a category, and in it for every series."""
    return 14 + 12 * max(1, len(panel.series))


def _layered(layers: Sequence[alt.Chart], width: float, height: float) -> alt.LayerChart:
    return alt.LayerChart(layer=list(layers)).properties(width=width, height=height)


def _listed(panel: Panel, layers: Sequence[alt.Chart]) -> alt.LayerChart:
    """Layers over categories that stand one below the other."""
    return _layered(layers, panel.width, _row(panel) * len(panel.names["down"]))


def _measured(rows: Sequence[Row]) -> list[Row]:
    """Rows with an interval."""
    return [row for row in rows if row["low"] is not None and row["high"] is not None]


# Kinds


def _dots(panel: Panel) -> alt.LayerChart:
    scale = _scale(panel, "number", panel.figure.x)
    position: dict[str, Any] = {"y": _down(panel)} | _beside(panel)
    bars = chart_of(_measured(panel.rows)).mark_rule(strokeWidth=2.5)
    dots = chart_of(panel.rows).mark_point(filled=True, size=80, opacity=1)
    layers = [
        *_zero(panel, "number", x=alt.X("zero:Q", **scale)),
        bars.encode(x=alt.X("low:Q", **scale), x2="high:Q", **position, **_apart(panel, "color")),
        dots.encode(x=alt.X("number:Q", **scale), **position, **_apart(panel, "color", "shape")),
    ]
    return _listed(panel, layers)


def _points(panel: Panel) -> alt.LayerChart:
    across = _scale(panel, "across", panel.figure.x)
    number = _scale(panel, "number", panel.figure.y)
    size, opacity = (50, 0.75) if len(panel.rows) < 200 else (22, 0.5)
    points = chart_of(panel.rows).mark_point(filled=True, size=size, opacity=opacity)
    x, y = alt.X("across:Q", **across), alt.Y("number:Q", **number)
    layers = [
        *_zero(panel, "across", x=alt.X("zero:Q", **across)),
        *_zero(panel, "number", y=alt.Y("zero:Q", **number)),
        points.encode(x=x, y=y, **_apart(panel, "color", "shape")),
    ]
    return _layered(layers, panel.width, min(320, panel.width))


def _curves(panel: Panel) -> alt.LayerChart:
    number = _scale(panel, "number", panel.figure.y)
    x = alt.X("across:Q", **_scale(panel, "across", panel.figure.x))
    y = alt.Y("number:Q", **number)
    bands = chart_of(_measured(panel.rows)).mark_area(opacity=0.16)
    lines = chart_of(panel.rows).mark_line(strokeWidth=2)
    dots = chart_of(panel.rows).mark_point(filled=True, size=50, opacity=1)
    layers = [
        *_zero(panel, "number", y=alt.Y("zero:Q", **number)),
        bands.encode(x=x, y=alt.Y("low:Q", **number), y2="high:Q", **_apart(panel, "color")),
        lines.encode(x=x, y=y, **_apart(panel, "color", "strokeDash")),
        dots.encode(x=x, y=y, **_apart(panel, "color", "shape")),
    ]
    return _layered(layers, panel.width, min(260, panel.width))


def _bars(panel: Panel) -> alt.LayerChart:
    scale = _scale(panel, "number", panel.figure.y)
    rows = [
        r | {"end": max(r["number"], 0.0), "text": f"{short(r['number'])} {r['series']}".strip()}
        for r in panel.rows
    ]
    base = chart_of(rows).encode(y=_down(panel, grid=False), **_beside(panel))
    texts = base.mark_text(align="left", dx=5, color=INK, fontSize=11)
    layers = [
        base.mark_bar().encode(x=alt.X("number:Q", **scale), **_apart(panel, "color")),
        texts.encode(x=alt.X("end:Q", **scale), text="text:N"),
    ]
    return _listed(panel, layers)


def _boxes(panel: Panel) -> alt.LayerChart:
    scale = _scale(panel, "number", panel.figure.y)
    boxes, outliers = _quartiles(panel.rows)
    position: dict[str, Any] = {"y": _down(panel)} | _beside(panel)
    ink = _apart(panel, "fill", "strokeDash") or {"fill": alt.value(FILL)}
    base = chart_of(boxes).encode(**position)
    bars = base.mark_bar(opacity=0.6, stroke=INK)
    beyond = chart_of(outliers).mark_point(filled=True, size=14, opacity=0.6, color=FILL)
    thick = 0.7 * _row(panel) / max(1, len(panel.series))
    layers = [
        *_zero(panel, "number", x=alt.X("zero:Q", **scale)),
        base.mark_rule(strokeWidth=1.5, color=FILL).encode(x=alt.X("low:Q", **scale), x2="high:Q"),
        bars.encode(x=alt.X("lower:Q", **scale), x2="upper:Q", **ink),
        base.mark_tick(thickness=2.5, size=thick, color=INK).encode(x=alt.X("middle:Q", **scale)),
        beyond.encode(x=alt.X("number:Q", **scale), **position),
        *_marks(panel, scale),
    ]
    return _listed(panel, layers)


def _quartiles(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Tukey's boxes, with whiskers to the last value within 1.5 boxes, and the values beyond."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["down"], row["series"]), []).append(row["number"])
    boxes, outliers = [], []
    for (name, series), values in groups.items():
        lower, middle, upper = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
        reach = 1.5 * (upper - lower)
        inside = [v for v in values if lower - reach <= v <= upper + reach]
        group = {"down": name, "series": series}
        whiskers = {"low": min(inside, default=lower), "high": max(inside, default=upper)}
        boxes.append(group | whiskers | {"lower": lower, "middle": middle, "upper": upper})
        beyond = [v for v in values if not lower - reach <= v <= upper + reach]
        outliers += [group | {"number": v} for v in beyond]
    return boxes, outliers


def _violins(panel: Panel) -> alt.LayerChart:
    """Mirrored densities with their medians; series of one category stand below each other."""
    names, series = panel.names["down"], panel.series or [""]
    half = 0.45 / len(series)
    rows, medians = [], []
    for (i, name), (j, one) in product(enumerate(names), enumerate(series)):
        values = [r["number"] for r in panel.rows if r["down"] == name and r["series"] == one]
        if not values:
            continue
        centre = i + (j + 0.5) / len(series)
        at, density = _density(np.array(values), panel.spans["number"])
        for x, d in zip(at, half * (density / density.max()), strict=True):
            ends = {"from": centre - d, "to": centre + d}
            rows.append({"number": float(x)} | ends | {"series": one, "name": name})
        ends = {"from": centre - half, "to": centre + half}
        medians.append({"number": float(np.median(values))} | ends)
    axis = alt.Axis(
        title=None,
        values=[i + 0.5 for i in range(len(names))],
        labelExpr=f"{json.dumps(names)}[floor(datum.value)]",
        grid=False,
        **_label_column(panel),
    )
    down = alt.Scale(domain=[0, len(names)], reverse=True, nice=False)
    y = alt.Y("from:Q", scale=down, axis=axis)
    x = alt.X("number:Q", **_scale(panel, "number", panel.figure.y))
    areas = chart_of(rows).mark_area(opacity=0.75, stroke=INK, strokeWidth=0.7)
    lines = chart_of(medians).mark_rule(color=INK, strokeWidth=2)
    layers = [
        areas.encode(x=x, y=y, y2="to:Q", detail="name:N", **_apart(panel, "color")),
        lines.encode(x=x, y=y, y2="to:Q"),
    ]
    return _layered(layers, panel.width, 2 * _row(panel) * len(names))


def _density(
    values: Float[np.ndarray, "n"], span: Span
) -> tuple[Float[np.ndarray, "point"], Float[np.ndarray, "point"]]:
    """A smooth density between the smallest and the largest value.

    Gaussian kernels, with Silverman's width.
    """
    # 1.34 is the distance between the quartiles of a normal distribution with a deviation of 1
    quartiles = float(np.subtract(*np.quantile(values, [0.75, 0.25]))) / 1.34
    spread = min(values.std(), quartiles or values.std())
    width = max(0.9 * spread * len(values) ** -0.2, 0.01 * (span[1] - span[0]))
    at = np.linspace(values.min() - width, values.max() + width, 80).clip(*span)
    return at, np.exp(-(((at[:, None] - values) / width) ** 2) / 2).mean(1)


def _marks(panel: Panel, scale: Mapping[str, Any]) -> list[alt.Chart]:
    """Single marks over the boxes, each kind with a shape of its own."""
    if not panel.marks:
        return []
    crosses = iter(("cross", _SALTIRE))
    others = cycle(("triangle-up", "square", "circle", "triangle-down"))
    shapes = []
    for kind in panel.kinds:
        if kind.startswith("theorem"):
            shapes.append(next(crosses, "stroke"))
        else:
            shapes.append("diamond" if kind == "exact" else next(others))
    inks = list(islice(cycle((_COLOURS[1], _COLOURS[2], _COLOURS[0], *_COLOURS[3:])), len(shapes)))
    look: dict[str, Any] = {"sort": None, "legend": _legend(panel.kinds, None)}
    shape = alt.Shape("mark:N", scale=alt.Scale(domain=panel.kinds, range=shapes), **look)
    colour = alt.Color("mark:N", scale=alt.Scale(domain=panel.kinds, range=inks), **look)
    points = chart_of(panel.marks).mark_point(filled=True, size=70, opacity=1)
    return [points.encode(x=alt.X("number:Q", **scale), y=_down(panel), shape=shape, color=colour)]


# Heat maps


def _heat(panel: Panel) -> alt.LayerChart:
    across, down = panel.names["across"], panel.names["down"]
    step = min(56, max(18, panel.width / len(across)))
    row = min(32, max(20, 0.7 * step))
    flat = max(map(len, across)) * LETTER < step
    labels: dict[str, Any] = {
        "labelAngle": 0 if flat else -40,
        "labelAlign": "center" if flat else "right",
    }
    room: dict[str, Any] = {"labelLimit": 0, "labelPadding": 6, "ticks": False, "domain": False}
    axis = alt.Axis(title=_title(panel.figure.x), **labels, **room)
    x = alt.X("across:N", sort=None, scale=alt.Scale(type="band", domain=across), axis=axis)
    y = _down(panel, _title(panel.figure.y), grid=False, padding=0)
    length = max(60, min(160, row * len(down)))
    title = _title(panel.figure.value)
    legend = alt.Legend(title=title, gradientLength=length, gradientThickness=12)
    colour = alt.Color("number:Q", scale=_tones(panel.spans["number"]), legend=legend)
    cells = chart_of(panel.rows).mark_rect().encode(x=x, y=y, color=colour)
    numbers = _cell_numbers(panel, x, y) if len(panel.rows) <= _CELLS and step >= 26 else []
    return _layered([cells, *numbers], step * len(across), row * len(down))


def _tones(span: Span) -> alt.Scale:
    """Orange to blue where numbers have both signs; else from pale to the colour of their sign."""
    blue, orange = ("#{:02x}{:02x}{:02x}".format(*colour) for colour in (FOR, AGAINST))
    low, high = _ends(span)
    if low < 0 < high:
        return alt.Scale(domain=[low, 0, high], range=[orange, _PALE, blue], interpolate="rgb")
    tones = [_PALE, blue] if high > 0 else [orange, _PALE]
    return alt.Scale(domain=[low, high], range=tones, interpolate="rgb")


def _ends(span: Span) -> Span:
    """Where colours are fullest and palest: symmetric about zero, or from zero if it is near."""
    low, high = span
    if low < 0 < high:
        return -max(-low, high), max(-low, high)
    near = 0.5 * max(abs(low), abs(high))
    return (0.0 if 0 <= low <= near else low), (0.0 if -near <= high <= 0 else high)


def _cell_numbers(panel: Panel, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The numbers in their cells, in the ink that stands out."""
    low, high = _ends(panel.spans["number"])
    whole = all(row["number"] == int(row["number"]) for row in panel.rows)
    by_ink: dict[str, list[Row]] = {}
    for row in panel.rows:
        value = row["number"]
        palest = low if high > 0 else high
        share = value / high if low < 0 < high else (value - palest) / (high - low)
        text = short(value) if whole else cell(value)
        by_ink.setdefault(_ink(share), []).append(row | {"text": text})
    return [
        chart_of(rows).mark_text(color=ink, fontSize=10.5).encode(x=x, y=y, text="text:N")
        for ink, rows in by_ink.items()
    ]


def _ink(share: float) -> str:
    """Black or white, whichever stands out more on a cell of this share of the full colour."""
    full = FOR if share > 0 else AGAINST
    cell = [255 - (255 - c) * min(1.0, 0.12 + 0.88 * abs(share)) for c in full]
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in cell]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # WCAG: contrast is (lighter + 0.05) / (darker + 0.05), the same to black and white at the root
    return "#000000" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "#ffffff"


_KINDS: dict[str, Callable[[Panel], alt.LayerChart]] = {
    "dots": _dots,
    "points": _points,
    "lines": _curves,
    "bars": _bars,
    "heat": _heat,
    "boxes": _boxes,
    "violins": _violins,
}
