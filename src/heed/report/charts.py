"""The charts of an audit: one per claim (where the documents lie, their mean with its interval, and what was asked),
and how far the explanations agree.

Nothing depends on colour alone: the mean is a diamond, the threshold a dashed line, and both are
labelled. Grounds are transparent and inks of middle tone, so that a page may show a chart on white and on black.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from jaxtyping import Float

from heed.errors import InputError, OutputError
from heed.report.rows import interval
from heed.text import printable

if TYPE_CHECKING:
    import altair as alt

    from heed.audit import Audit
    from heed.claims import Evidence, Verdict

COLOURS = {
    "supported": "#0072b2",
    "refuted": "#c45500",
    "undecided": "#6b7280",
    "not applicable": "#6b7280",
}
Align = Literal["left", "center", "right"]
Chart = TypeVar("Chart", "alt.LayerChart", "alt.ConcatChart")
WIDTH, HEIGHT, NARROW = 680, 180, 270  # of a chart's area; its width on telephones
ENDINGS = (".svg", ".png", ".pdf")
_IDS = re.compile(
    r'(\bid="|\burl\(#|href="#)([^")]*)'
)  # where an SVG names its parts, or calls them
_ASKED, _LABEL, _MEAN, _BARS = 9, 30, 46, 62  # heights, from the top, of labels, mean and bars
_LETTER = 7.6  # width of a character of a bold label in a wide font
INK, FILL = "#6b7280", "#9aa5b1"
_AXIS = dict.fromkeys(("labelColor", "titleColor", "domainColor", "tickColor"), INK) | {
    "grid": False, "titleFontWeight": "normal", "labelFontSize": 12, "titleFontSize": 12,
}  # fmt: skip


def claim(evidence: Evidence, verdict: Verdict, width: int = WIDTH) -> alt.LayerChart:
    """The distribution of the statistic over documents, with its mean, interval and threshold."""
    import altair as alt

    values = evidence.values
    if not len(values):
        reason = verdict.reason or "no document has this statistic"
        raise InputError(f"There is nothing to draw for '{evidence.claim.id}': {reason}.")
    about = evidence.claim
    edges = _edges(values, float(values.mean()) if about.per_document else about.threshold)
    domain = float(edges[0]), float(edges[-1])
    x = alt.Scale(domain=list(domain), nice=False, zero=False)
    bars = _histogram(values, edges, about.per_document or about.statistic, x, width)
    layers = [
        _side(verdict, domain, x),
        bars,
        *_threshold(verdict, domain, x),
        *_mean(verdict, domain, x, width),
    ]
    if about.per_document:  # the statistic is not on the axis of the documents
        layers = [bars, *_words(verdict, width)]
    return styled(alt.LayerChart(layer=layers).properties(width=width, height=HEIGHT))


def agreement(
    names: Sequence[str],
    matrix: Float[np.ndarray, "method method"],
    counts: Float[np.ndarray, "method method"],
) -> alt.LayerChart:
    """Kendall's τ between explanations, each pair once: blue for the same order of words, orange for the reverse.

    `counts` are the documents behind each.
    """
    import altair as alt

    shown = [printable(name) for name in names]
    rows = [
        {
            "one": shown[i],
            "other": shown[j],
            "τ": float(matrix[i, j]),
            "text": f"{matrix[i, j]:.2f}",
        }
        | {"documents": int(counts[i, j])}
        for i in range(len(shown))
        for j in range(i)
        if np.isfinite(matrix[i, j])
    ]
    if not rows:
        raise InputError("There is nothing to draw: no two explanations can be compared.")
    axis: dict[str, Any] = {
        "title": None,
        "labelLimit": 0,
        "ticks": False,
        "domain": False,
        "labelPadding": 6,
    }
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("other:N", sort=shown[:-1], axis=alt.Axis(orient="bottom", labelAngle=-35, **axis)),
        y=alt.Y("one:N", sort=shown[1:], axis=alt.Axis(**axis)),
        tooltip=["one:N", "other:N", alt.Tooltip("τ:Q", format=".2f"), "documents:Q"],
    )
    scale = alt.Scale(domain=[-1, 0, 1], range=["#e69f00", "#ffffff", "#56b4e9"], interpolate="rgb")
    cells = base.mark_rect(stroke=FILL, strokeWidth=0.5).encode(
        color=alt.Color("τ:Q", scale=scale, legend=None)
    )
    numbers = base.mark_text(fontSize=12, color="#1c2128").encode(text="text:N")
    size = 56 * (len(shown) - 1)
    return styled(
        alt.LayerChart(layer=[cells, numbers]).properties(
            width=max(120, size), height=max(40, size // 2)
        )
    )


def every(audit: Audit, width: int = WIDTH) -> dict[str, alt.LayerChart]:
    """All charts of an audit by name: those of its claims that have numbers, and `agreement`."""
    judged = zip(audit.evidence, audit.verdicts, strict=True)
    found = {key_of(v): claim(e, v, width) for e, v in judged if len(e.values)}
    names, matrix, counts = audit.agreement()
    if np.isfinite(matrix[np.tril_indices(len(names), -1)]).any():
        found["agreement"] = agreement(names, matrix, counts)
    return found


def key_of(verdict: Verdict) -> str:
    """A name for a verdict that no other of its audit has."""
    return (
        f"{verdict.claim.id}-{verdict.method}" if verdict.claim.of_explanation else verdict.claim.id
    )


def save_all(audit: Audit, folder: Path) -> int:
    """Write every chart of an audit as SVG, PNG and PDF; the number of charts."""
    charts = every(audit)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written ({error.strerror}).") from None
    taken: set[str] = set()
    for name, chart in charts.items():
        plain = re.sub(r"[^\w.-]", "_", name)
        while plain in taken:
            plain += "_"
        taken.add(plain)
        for ending in ENDINGS:
            save(chart, folder / f"{plain}{ending}")
    return len(charts)


def styled(chart: Chart, **config: Any) -> Chart:
    """The chart in the style that all of them share."""
    return (
        chart.properties(padding=4)
        .configure(font="system-ui, sans-serif", background="transparent", **config)
        .configure_view(stroke=None)
        .configure_axis(**_AXIS)
        .configure_title(color=INK, fontSize=12, fontWeight=600, anchor="start")
    )


def svg(chart: alt.TopLevelMixin, key: str = "") -> str:
    """The chart as SVG for a page with other charts: its ids begin with `key`, by default a digest."""
    import vl_convert

    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", vl_convert.vegalite_to_svg(chart.to_dict()))
    # vega counts ids through the life of the process: here they are counted through the chart
    place = {
        name: str(i) for i, name in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]*)"', text)))
    }
    text = _IDS.sub(lambda m: m[1] + place.get(m[2], m[2]), text)
    prefix = key or "c" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return _IDS.sub(rf"\1{prefix}-\2", text)


def save(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write the chart on white ground; the ending says what it becomes: svg, png or pdf."""
    import vl_convert

    spec = chart.to_dict()
    spec["config"] = spec.get("config", {}) | {"background": "white"}
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise InputError(
            f"A chart must be saved as {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, got '{path.name}'."
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


def _edges(values: Float[np.ndarray, "document"], threshold: float) -> Float[np.ndarray, "edge"]:
    """Edges of bars of nearly equal width; the threshold is one of them, so that no bar lies on both sides of it.

    On both sides bars end where values do, unless that would leave less than half a bar.
    """
    low, high = min(values.min(), threshold), max(values.max(), threshold)
    width = (high - low) / np.clip(2 * np.sqrt(len(values)), 20, 40) or max(abs(high), 1e-3) / 20

    def side(reach: float) -> Float[np.ndarray, "edge"]:
        return np.linspace(
            0, reach if reach > width / 2 else width, max(1, round(reach / width)) + 1
        )

    below, above = side(threshold - low), side(high - threshold)
    edges = np.concatenate([threshold - below[::-1], threshold + above[1:]])
    return np.concatenate(
        [[min(edges[0], low)], edges[1:-1], [max(edges[-1], high)]]
    )  # in spite of rounding


def _data(rows: list[dict[str, Any]]) -> alt.InlineData:
    import altair as alt

    return alt.InlineData(values=rows)


def _side(verdict: Verdict, domain: tuple[float, float], x: alt.Scale) -> alt.Chart:
    """The claim's side of the threshold, lightly shaded."""
    import altair as alt

    edge = domain[1] if verdict.claim.above else domain[0]
    base = alt.Chart(_data([{"from": verdict.claim.threshold, "to": edge}]))
    return base.mark_rect(color=COLOURS["supported"], opacity=0.1).encode(
        x=alt.X("from:Q", scale=x), x2="to:Q"
    )


def _histogram(
    values: Float[np.ndarray, "document"],
    edges: Float[np.ndarray, "edge"],
    statistic: str,
    x: alt.Scale,
    width: int,
) -> alt.Chart:
    import altair as alt

    counts, _ = np.histogram(values, bins=edges)
    rows = [
        {"from": float(a), "to": float(b), "documents": int(c)}
        for c, a, b in zip(counts, edges[:-1], edges[1:], strict=True)
        if c
    ]
    most = int(counts.max())
    y = alt.Y(
        "documents:Q",
        scale=alt.Scale(domain=[0, most], range=[HEIGHT, _BARS]),
        axis=alt.Axis(title="documents", values=_counts(most), format="d", titleAnchor="start"),
    )
    marks = alt.Chart(_data(rows)).mark_bar(color=FILL, binSpacing=1)
    # vl_convert aborts the whole process on a control character, hence `printable`
    axis = alt.Axis(
        title=_lines(f"{printable(statistic)}, per document", width), tickCount=width // 80
    )
    tips = [
        alt.Tooltip("documents:Q"),
        alt.Tooltip("from:Q", format=".3~g"),
        alt.Tooltip("to:Q", format=".3~g"),
    ]
    return marks.encode(
        x=alt.X("from:Q", scale=x, bin="binned", axis=axis), x2="to:Q", y=y, tooltip=tips
    )


def _counts(most: int) -> list[int]:
    """Round numbers from 0 to `most`, four or so."""
    step = next(
        s
        for power in range(12)
        for s in (10**power, 2 * 10**power, 5 * 10**power)
        if most // s <= 4
    )
    return list(range(0, most + 1, step))


def _threshold(verdict: Verdict, domain: tuple[float, float], x: alt.Scale) -> list[alt.Chart]:
    import altair as alt

    above, at = verdict.claim.above, verdict.claim.threshold
    text = f"asked: {verdict.claim.side()} →" if above else f"← asked: {verdict.claim.side()}"
    room = (domain[1] - at if above else at - domain[0]) / (domain[1] - domain[0])
    inside = room > 0.25  # else the label stands on the other side of the line
    align = "left" if above == inside else "right"
    label: dict[str, Any] = {
        "color": INK,
        "align": align,
        "dx": 6 if align == "left" else -6,
        "fontSize": 12,
    }
    base = alt.Chart(_data([{"at": at, "text": text}])).encode(x=alt.X("at:Q", scale=x))
    return [
        base.mark_rule(color=INK, strokeDash=[5, 4], strokeWidth=1.5),
        base.mark_text(**label).encode(y=alt.value(_ASKED), text="text:N"),
    ]


def _lines(text: str, width: int) -> list[str]:
    """A text in lines that are no wider than a chart."""
    return wrap(text, int(width / _LETTER))


def _words(verdict: Verdict, width: int) -> list[alt.Chart]:
    """The statistic and what was asked of it, in words alone."""
    import altair as alt

    lines: list[tuple[int, str, dict[str, Any]]] = [
        (_ASKED, f"asked: {verdict.claim.side()}", {"color": INK})
    ]
    if verdict.mean is not None:
        look = {"color": COLOURS[verdict.outcome], "fontWeight": "bold"}
        whole = f"{printable(verdict.claim.statistic)}: {interval(verdict)}"
        lines.append(
            (
                _LABEL,
                whole if len(whole) * _LETTER <= width else f"found: {interval(verdict)}",
                look,
            )
        )
    return [
        alt.Chart(_data([{"text": text}]))
        .mark_text(align="left", fontSize=12, **look)
        .encode(x=alt.value(4), y=alt.value(y), text="text:N")
        for y, text, look in lines
    ]


def _mean(
    verdict: Verdict, domain: tuple[float, float], x: alt.Scale, width: int
) -> list[alt.Chart]:
    import altair as alt

    numbers = np.array([verdict.mean, verdict.low, verdict.high], dtype=float)  # None becomes NaN
    if verdict.mean is None or not np.isfinite(numbers).all():
        return []
    colour = COLOURS[verdict.outcome]
    text = f"mean {interval(verdict)}"
    place, line = (
        (v - domain[0]) / (domain[1] - domain[0]) for v in (verdict.mean, verdict.claim.threshold)
    )
    align = _beside(place, line, _LETTER * len(text) / width)
    row = {"mean": verdict.mean, "low": verdict.low, "high": verdict.high, "text": text}
    base = alt.Chart(_data([row])).encode(y=alt.value(_MEAN))
    at = alt.X("mean:Q", scale=x)
    label = base.mark_text(color=colour, align=align, fontSize=12, fontWeight="bold")
    return [
        base.mark_rule(color=colour, strokeWidth=3).encode(x=alt.X("low:Q", scale=x), x2="high:Q"),
        base.mark_point(color=colour, shape="diamond", size=110, filled=True, opacity=1).encode(
            x=at
        ),
        label.encode(x=at, y=alt.value(_LABEL), text="text:N"),
    ]


def _beside(place: float, line: float, wide: float) -> Align:
    """How a label of this width hangs on its place: within the chart, and off the line if there is room.

    All are shares of the chart's width.
    """
    starts: dict[Align, float] = {"center": place - wide / 2, "left": place, "right": place - wide}
    fits = [a for a, start in starts.items() if start >= 0 and start + wide <= 1]
    free = [a for a in fits if not starts[a] <= line <= starts[a] + wide]
    return (free or fits or ["center"])[0]
