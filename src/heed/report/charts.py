"""The charts of an audit: the documents of each claim, and how far the explanations agree.

The chart of a claim shows how its documents spread, their mean with its interval, and the
threshold. Nothing depends on colour alone: the mean is a diamond, the threshold a dashed line, and
both are labelled. Backgrounds are transparent and inks of middle tone, so that a page can show a
chart on white and on black. Each mark says in its `aria-label` what it stands for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import altair as alt
import numpy as np
import vl_convert
from jaxtyping import Float

from heed.errors import InputError, OutputError
from heed.report.numbers import cell, number
from heed.report.words import verdict_interval, verdict_key
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.claims import Evidence, Verdict

COLOURS = {
    "supported": "#0072b2",
    "refuted": "#c45500",
    "undecided": "#6b7280",
    "not applicable": "#6b7280",
}
Align = Literal["left", "center", "right"]
Altair = TypeVar("Altair", alt.LayerChart, alt.ConcatChart)
WIDTH, HEIGHT, NARROW = 680, 180, 270  # of a chart's area; its width on telephones
ENDINGS = (".svg", ".png", ".pdf")
# Where an SVG names its parts, or calls them.
_IDS = re.compile(r'(\bid="|\burl\(#|href="#)([^")]*)')
_TOP, _LABEL, _MEAN, _BARS = 9, 30, 46, 62  # heights, from the top, of labels, mean and bars
_LONGEST = 120  # bytes of a file's name without its ending
_LETTER = 7.6  # width of a character of a bold label in a wide font
INK, FILL = "#6b7280", "#9aa5b1"
# How axes and legends are written.
LETTERS: dict[str, Any] = {
    "labelColor": INK,
    "titleColor": INK,
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
}
_AXIS = LETTERS | {"domainColor": INK, "tickColor": INK, "grid": False}


@dataclass(frozen=True, eq=False)
class Chart:
    """A chart that a notebook shows without the network; `altair` is its description, to change."""

    altair: alt.LayerChart

    def to_dict(self) -> dict[str, Any]:
        """The chart in Vega-Lite."""
        return self.altair.to_dict()

    def _repr_svg_(self) -> str:
        return str(vl_convert.vegalite_to_svg(self.to_dict()))


def claim(evidence: Evidence, verdict: Verdict, width: int = WIDTH) -> Chart:
    """The distribution of the statistic over documents, with its mean, interval and threshold."""
    values = evidence.values
    if not len(values):
        reason = verdict.reason or "no document has this statistic"
        raise InputError(f"There is nothing to draw for '{evidence.claim.id}': {reason}.")
    asserted = evidence.claim
    if asserted.per_document:
        edges = _edges(values, float(values.mean()))
    else:
        edges = _edges(values, asserted.threshold, verdict.low, verdict.high)
    domain = float(edges[0]), float(edges[-1])
    bars = _histogram(values, edges, asserted.per_document or asserted.statistic, width)
    if asserted.per_document:  # the statistic is not on the axis of the documents
        layers = [bars, *_words(verdict, width)]
    else:
        over = [*_threshold(verdict, domain), *_mean(verdict, domain, width)]
        layers = [_side(verdict, domain), bars, *over]
    return Chart(styled(alt.LayerChart(layer=layers).properties(width=width, height=HEIGHT)))


def agreement(
    names: Sequence[str],
    matrix: Float[np.ndarray, "method method"],
    counts: Float[np.ndarray, "method method"],
) -> Chart:
    """Kendall's τ between explanations, each pair once, and the documents behind each.

    Blue stands for the same order of words, orange for the reverse.
    """
    names = [printable(name) for name in names]
    rows = [
        _pair(names[i], names[j], float(matrix[i, j]), int(counts[i, j]))
        for i, j in zip(*np.tril_indices(len(names), -1), strict=True)
        if np.isfinite(matrix[i, j])
    ]
    if not rows:
        raise InputError("There is nothing to draw: no two explanations can be compared.")
    axis: dict[str, Any] = dict.fromkeys(("ticks", "domain"), False)
    axis |= {"title": None, "labelLimit": 0, "labelPadding": 6}
    across = alt.Axis(orient="bottom", labelAngle=-35, **axis)
    base = chart_of(rows).encode(
        x=alt.X("other:N", sort=names[:-1], axis=across),
        y=alt.Y("one:N", sort=names[1:], axis=alt.Axis(**axis)),
    )
    scale = alt.Scale(domain=[-1, 0, 1], range=["#e69f00", "#ffffff", "#56b4e9"], interpolate="rgb")
    cells = base.mark_rect(stroke=FILL, strokeWidth=0.5).encode(
        color=alt.Color("τ:Q", scale=scale, legend=None), description="tip:N"
    )
    numbers = base.mark_text(fontSize=12, color="#1c2128", aria=False).encode(text="text:N")
    size = 56 * (len(names) - 1)
    chart = alt.LayerChart(layer=[cells, numbers])
    return Chart(styled(chart.properties(width=max(120, size), height=max(40, size // 2))))


def _pair(one: str, other: str, tau: float, documents: int) -> dict[str, Any]:
    tip = f"{one} and {other}: τ = {cell(tau)} over {counted(documents)}"
    return {"one": one, "other": other, "τ": tau, "text": cell(tau), "tip": tip}


def every(audit: Audit, width: int = WIDTH) -> dict[str, Chart]:
    """The charts of claims that have numbers, by name, and `agreement`."""
    judged = zip(audit.judged, audit.verdicts, strict=True)
    charts = {verdict_key(v): claim(e, v, width) for e, v in judged if len(e.values)}
    names, matrix, counts = audit.agreement()
    if np.isfinite(matrix[np.tril_indices(len(names), -1)]).any():
        charts["agreement"] = agreement(names, matrix, counts)
    return charts


def save_all(charts: Mapping[str, Chart], folder: Path) -> int:
    """Write charts by their names, each as SVG, PNG and PDF; the number of charts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written ({error.strerror}).") from None
    for name, chart in zip(_file_names(list(charts)), charts.values(), strict=True):
        for ending in ENDINGS:
            save(chart, folder / f"{name}{ending}")
    return len(charts)


def _file_names(names: Sequence[str]) -> list[str]:
    """A file name for each name: safe, short enough for any file system, and different from others.

    A name that is cut, or that another has after case is ignored, gets a number at its end.
    """
    files: list[str] = []
    taken: set[str] = set()
    for name in names:
        safe = re.sub(r"[^\w.-]", "_", name)
        stem = safe.encode()[:_LONGEST].decode(errors="ignore")
        file, again = stem, 1
        while file.casefold() in taken:
            again += 1
            file = f"{stem}_{again}"
        files.append(file)
        taken.add(file.casefold())
    return files


def styled(chart: Altair, **config: Any) -> Altair:
    """The chart in the style that all of them share."""
    return (
        chart.properties(padding=4)
        .configure(font="system-ui, sans-serif", background="transparent", **config)
        .configure_view(stroke=None)
        .configure_axis(**_AXIS)
        .configure_title(color=INK, fontSize=12, fontWeight=600, anchor="start")
    )


def svg(chart: Chart | alt.TopLevelMixin, key: str = "") -> str:
    """The chart as SVG for a page with others: its ids begin with `key`, by default a digest."""
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", vl_convert.vegalite_to_svg(chart.to_dict()))
    # vega counts ids through the life of the process: here they are counted through the chart
    ids = dict.fromkeys(re.findall(r'\bid="([^"]*)"', text))
    numbering = {name: str(i) for i, name in enumerate(ids)}
    text = _IDS.sub(lambda m: m[1] + numbering.get(m[2], m[2]), text)
    prefix = key or "c" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return _IDS.sub(rf"\1{prefix}-\2", text)


def save(chart: Chart | alt.TopLevelMixin, path: Path) -> None:
    """Write the chart on white ground; the ending says what it becomes: svg, png or pdf."""
    spec = chart.to_dict()
    spec["config"] = spec.get("config", {}) | {"background": "white"}
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise InputError(
            f"A chart must be saved as {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]},"
            f" got '{path.name}'."
        )
    try:
        if path.suffix == ".svg":
            path.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
        elif path.suffix == ".png":
            path.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
        else:
            path.write_bytes(vl_convert.vegalite_to_pdf(spec))
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror}).") from None


# Layers


def _edges(
    values: Float[np.ndarray, "document"], threshold: float, *others: float | None
) -> Float[np.ndarray, "edge"]:
    """Edges of bars of nearly equal width; no bar lies on both sides of the threshold.

    On both sides bars end where values do, or the `others` that must be inside, unless that would
    leave less than half a bar.
    """
    inside = [threshold, *(x for x in others if x is not None)]
    low, high = min(values.min(), *inside), max(values.max(), *inside)
    width = (high - low) / np.clip(2 * np.sqrt(len(values)), 20, 40) or max(abs(high), 1e-3) / 20

    def side(reach: float) -> Float[np.ndarray, "edge"]:
        end = reach if reach > width / 2 else width
        return np.linspace(0, end, max(1, round(reach / width)) + 1)

    below, above = side(threshold - low), side(high - threshold)
    edges = np.concatenate([threshold - below[::-1], threshold + above[1:]])
    # rounding may leave the first or last value just outside: the outer edges are moved to it
    return np.concatenate([[min(edges[0], low)], edges[1:-1], [max(edges[-1], high)]])


def chart_of(rows: list[dict[str, Any]]) -> alt.Chart:
    """A chart that holds its rows, still without marks."""
    return alt.Chart(alt.InlineData(values=rows))


def _across(column: str, domain: tuple[float, float], **more: Any) -> alt.X:
    """The axis of the statistic, which all layers share."""
    return alt.X(column, scale=alt.Scale(domain=list(domain), nice=False, zero=False), **more)


def _side(verdict: Verdict, domain: tuple[float, float]) -> alt.Chart:
    """The claim's side of the threshold, lightly shaded."""
    edge = domain[1] if verdict.claim.above else domain[0]
    base = chart_of([{"from": verdict.claim.threshold, "to": edge}])
    shade = base.mark_rect(color=COLOURS["supported"], opacity=0.1, aria=False)
    return shade.encode(x=_across("from:Q", domain), x2="to:Q")


def _histogram(
    values: Float[np.ndarray, "document"],
    edges: Float[np.ndarray, "edge"],
    statistic: str,
    width: int,
) -> alt.Chart:
    counts, _ = np.histogram(values, bins=edges)
    rows = [
        _histogram_bar(int(count), float(low), float(high))
        for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True)
        if count
    ]
    most = int(counts.max())
    scale = alt.Scale(domain=[0, most], range=[HEIGHT, _BARS])
    axis = alt.Axis(title="documents", values=_counts(most), format="d", titleAnchor="start")
    y = alt.Y("documents:Q", scale=scale, axis=axis)
    marks = chart_of(rows).mark_bar(color=FILL, binSpacing=1)
    # vl_convert aborts the whole process on a control character, hence `printable`
    title = wrap(f"{printable(statistic)}, per document", int(width / _LETTER))
    axis = alt.Axis(title=title, tickCount=width // 80)
    across = _across("from:Q", (float(edges[0]), float(edges[-1])), bin="binned", axis=axis)
    return marks.encode(x=across, x2="to:Q", y=y, description="tip:N")


def _histogram_bar(documents: int, low: float, high: float) -> dict[str, Any]:
    tip = f"{counted(documents)} from {number(low)} to {number(high)}"
    return {"from": low, "to": high, "documents": documents, "tip": tip}


def _counts(most: int) -> list[int]:
    """Round numbers from 0 to `most`, four or so."""
    steps = (digit * 10**power for power in range(12) for digit in (1, 2, 5))
    step = next(step for step in steps if most // step <= 4)
    return list(range(0, most + 1, step))


def _threshold(verdict: Verdict, domain: tuple[float, float]) -> list[alt.Chart]:
    above, at = verdict.claim.above, verdict.claim.threshold
    text = f"threshold: {verdict.claim.side()}"
    text = f"{text} →" if above else f"← {text}"
    room = (domain[1] - at if above else at - domain[0]) / (domain[1] - domain[0])
    inside = room > 0.25  # else the label stands on the other side of the line
    align: Align = "left" if above == inside else "right"
    dx = 6 if align == "left" else -6
    base = chart_of([{"at": at, "text": text}]).encode(x=_across("at:Q", domain))
    label = base.mark_text(aria=False, color=INK, align=align, dx=dx, fontSize=12)
    return [
        base.mark_rule(color=INK, strokeDash=[5, 4], strokeWidth=1.5, aria=False),
        label.encode(y=alt.value(_TOP), text="text:N"),
    ]


def _words(verdict: Verdict, width: int) -> list[alt.Chart]:
    """The statistic and its threshold, in words alone."""
    layers = [_line(f"threshold: {verdict.claim.side()}", _TOP, color=INK)]
    if verdict.mean is not None:
        name = printable(verdict.claim.statistic)
        value = verdict_interval(verdict)
        fits = len(f"{name}: {value}") * _LETTER <= width
        text = f"{name if fits else 'value'}: {value}"
        layers.append(_line(text, _LABEL, color=COLOURS[verdict.outcome], fontWeight="bold"))
    return layers


def _line(text: str, y: int, **look: Any) -> alt.Chart:
    mark = chart_of([{"text": text}]).mark_text(align="left", fontSize=12, aria=False, **look)
    return mark.encode(x=alt.value(4), y=alt.value(y), text="text:N")


def _mean(verdict: Verdict, domain: tuple[float, float], width: int) -> list[alt.Chart]:
    numbers = np.array([verdict.mean, verdict.low, verdict.high], dtype=float)  # None becomes NaN
    if verdict.mean is None or not np.isfinite(numbers).all():
        return []
    colour = COLOURS[verdict.outcome]
    text = f"mean {verdict_interval(verdict)}"
    span = domain[1] - domain[0]
    mean = (verdict.mean - domain[0]) / span
    line = (verdict.claim.threshold - domain[0]) / span
    align = _beside(mean, line, _LETTER * len(text) / width)
    row = {"mean": verdict.mean, "low": verdict.low, "high": verdict.high, "text": text}
    base = chart_of([row]).encode(y=alt.value(_MEAN))
    at = _across("mean:Q", domain)
    label = base.mark_text(color=colour, align=align, fontSize=12, fontWeight="bold", aria=False)
    rule = base.mark_rule(color=colour, strokeWidth=3, aria=False)
    point = base.mark_point(color=colour, shape="diamond", size=110, filled=True, opacity=1)
    return [
        rule.encode(x=_across("low:Q", domain), x2="high:Q"),
        point.encode(x=at, description="text:N"),
        label.encode(x=at, y=alt.value(_LABEL), text="text:N"),
    ]


def _beside(at: float, line: float, wide: float) -> Align:
    """How to align a label of this width: within the chart, and off the line if there is room.

    All are shares of the chart's width.
    """
    starts: dict[Align, float] = {"center": at - wide / 2, "left": at, "right": at - wide}
    fits = [a for a, start in starts.items() if start >= 0 and start + wide <= 1]
    free = [a for a in fits if not starts[a] <= line <= starts[a] + wide]
    return (free or fits or ["center"])[0]
