"""Two charts of the verdicts on one scale: all of them, and the choices on which they depend.

The scale is the distance of a statistic from its threshold, in halves of the range that the
statistic can have. At 0 it is at the threshold, and right of 0 the claim holds, whether it asks for
more or for less. A statistic without a range is measured by its threshold instead. Nothing depends
on colour alone: the names carry ✓, ✗ or ~, and the marks have shapes of their own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import altair as alt

from heed.claims.claim import Outcome, Row
from heed.claims.tested import statistic
from heed.errors import InputError
from heed.report import charts
from heed.report.charts import COLOURS, FILL, INK, Align, Chart, chart_of, styled
from heed.report.numbers import interval, number
from heed.report.words import SYMBOLS, choice, verdict_interval
from heed.text import printable

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.claims import Evidence, Verdict

WIDE, NARROW = 600, 180  # of a chart's area
_ROW = 24  # height of a row
_FARTHEST = 1.15  # what lies beyond is drawn at the edge: its numbers are beside it
_LETTER = 6.9  # width of a character of a label, in a wide font
_AXIS = "distance from the threshold, in halves of the statistic's range"
_AXIS_SHORT = "distance from the threshold"
_POINTS = {"supported": "circle", "refuted": "square", "undecided": "diamond"}
_SMALL = {"chance": "cross", "choice": "triangle-up", "ceiling": "stroke"}


Small = tuple[str, float, str]  # a small mark: its kind, its distance, and what it says


@dataclass(frozen=True)
class Line:
    """A row of a chart: a verdict, or what it would be under another choice.

    at, low, high  distances of the mean and of the ends of its interval
    numbers        the mean as it is written, and its threshold
    tip            the same with the interval and the name
    marks          what stands beside the mean
    """

    name: str
    outcome: Outcome
    at: float
    low: float
    high: float
    numbers: str
    tip: str
    marks: tuple[Small, ...] = ()


def forest(audit: Audit, width: int = WIDE) -> Chart:
    """All claims that were judged, each with its interval, on one scale."""
    lines = list(_verdicts(audit))
    if not lines:
        raise InputError("There is nothing to draw: no claim was judged.")
    return Chart(_drawn(lines, width))


def choices(audit: Audit, width: int = WIDE) -> Chart:
    """Verdicts that a choice turns, and below each what it would be under other choices."""
    lines = list(_choices(audit))
    if not lines:
        raise InputError("There is nothing to draw: no other choice turns a verdict.")
    return Chart(_drawn(lines, width))


def every(audit: Audit, narrow: bool = False) -> dict[str, Chart]:
    """All charts of an audit by name: `forest` and `choices`, those of its claims, and `agreement`.

    A chart that has nothing to show is left out.
    """
    width = NARROW if narrow else WIDE
    drawn = {}
    if lines := list(_verdicts(audit)):
        drawn["forest"] = Chart(_drawn(lines, width))
    if lines := list(_choices(audit)):
        drawn["choices"] = Chart(_drawn(lines, width))
    return drawn | charts.every(audit, charts.NARROW if narrow else charts.WIDTH)


def turned(audit: Audit) -> dict[str, list[str]]:
    """The choices that would turn a verdict, by the claim.

    Claims that were measured under other choices and keep their verdict under all have none.
    """
    found: dict[str, list[str]] = {}
    for e, v in _judged(audit):
        if others := list(_under_choices(e, v)):
            names = [name for name, _, outcome in others if outcome != v.outcome]
            found[_name(audit, v)] = names
    return found


def distance(evidence: Evidence, value: float) -> float:
    """How far a value is on the claim's side of the threshold, in halves of its range."""
    claim = evidence.claim
    gap = value - claim.threshold if claim.above else claim.threshold - value
    return gap / _scale(evidence)


def _scale(evidence: Evidence) -> float:
    claim = evidence.claim
    if claim.bounds is not None:
        low, high = claim.bounds
        return (high - low) / 2
    if claim.threshold:
        return abs(claim.threshold)
    return float(evidence.values.std()) or 1.0


# Rows


def _judged(audit: Audit) -> Iterator[tuple[Evidence, Verdict]]:
    """The verdicts that have numbers, with their evidence; not those that do not apply."""
    for e, v in zip(audit.judged, audit.verdicts, strict=True):
        ends = (v.mean, v.low, v.high)
        if v.outcome != "not applicable" and all(x is not None and math.isfinite(x) for x in ends):
            yield e, v


def _name(audit: Audit, verdict: Verdict) -> str:
    several = verdict.claim.of_explanation and len(audit.facts["methods"]) > 1
    return printable(f"{verdict.claim.id} · {verdict.method}" if several else verdict.claim.id)


def _verdicts(audit: Audit) -> Iterator[Line]:
    for e, v in _judged(audit):
        yield _line(_name(audit, v), e, v, tuple(_marks(e, v)))


def _line(name: str, e: Evidence, v: Verdict, marks: tuple[Small, ...] = ()) -> Line:
    mean, low, high = (float("nan") if x is None else x for x in (v.mean, v.low, v.high))
    numbers = f"{number(v.mean)} ({v.claim.side()})"
    tip = f"{name}: {verdict_interval(v)}, {v.claim.side()}: {v.outcome}"
    at, *ends = (distance(e, x) for x in (mean, low, high))
    return Line(name, v.outcome, at, min(ends), max(ends), numbers, tip, marks)


def _marks(e: Evidence, v: Verdict) -> Iterator[Small]:
    for name, mean in v.controls.items():
        yield "chance", distance(e, mean), f"{printable(name)}, by chance: {number(mean)}"
    for name, numbers in v.parts.items():
        yield "choice", distance(e, numbers[0]), f"{choice(name)}: {interval(*numbers)}"
    if v.ceiling is not None:
        yield "ceiling", distance(e, v.ceiling), f"ceiling: {number(v.ceiling)}"


def _choices(audit: Audit) -> Iterator[Line]:
    """Each verdict that some choice turns, and below it all choices."""
    for e, v in _judged(audit):
        others = list(_under_choices(e, v))
        if all(outcome == v.outcome for _, _, outcome in others):
            continue
        yield _line(_name(audit, v), e, v)
        for name, numbers, outcome in others:
            at, *ends = (distance(e, x) for x in numbers)
            turns = "" if outcome == v.outcome else f": turns to {outcome}"
            yield Line(
                f"· {name}",
                outcome,
                at,
                min(ends),
                max(ends),
                f"{number(numbers[0])}{' turns' if turns else ''}",
                f"{v.claim.id}, {name}: {interval(*numbers)}{turns}",
            )


def _under_choices(
    e: Evidence, v: Verdict
) -> Iterator[tuple[str, tuple[float, float, float], Outcome]]:
    """The name of each other choice, its mean and interval, and what the verdict would be."""
    if not v.claim.bracket:
        for name, numbers in v.parts.items():
            yield choice(name), numbers, _side(v, numbers)
    if v.claim.combine is not None or not e.rows:
        return
    for column in e.rows[0]:
        if column == "plain" or column.startswith("variant_"):
            other = replace(e, rows=[_instead(row, column) for row in e.rows])
            if len(other.values) > 1:
                mean, (low, high) = statistic(other, v.level)
                yield choice(column), (mean, low, high), _side(v, (mean, low, high))


def _instead(row: Row, column: str) -> Row:
    """A row with another column as its statistic, without ways to remove words and bounds."""
    kept = {k: x for k, x in row.items() if not k.startswith("value_") and k != "upper"}
    return kept | {"value": row.get(column, math.nan)}


def _side(v: Verdict, numbers: tuple[float, float, float]) -> Outcome:
    """What an interval says of the claim."""
    _, low, high = numbers
    if v.cause == "few" or not (low > v.claim.threshold or high < v.claim.threshold):
        return "undecided"
    return "supported" if (low > v.claim.threshold) == v.claim.above else "refuted"


# Drawing


def _drawn(lines: Sequence[Line], width: int) -> alt.LayerChart:
    """Rows from top to bottom; their names are the labels of the axis on the left."""
    reach = _reach(lines)
    scale = alt.Scale(domain=[-reach, reach], nice=False)
    title = _AXIS if width >= WIDE else _AXIS_SHORT
    step = 0.5 if reach >= 0.5 else 0.2
    ticks = [i * step for i in range(-2, 3) if abs(i * step) <= reach]
    across = alt.Axis(title=title, values=ticks, format=".1~f")
    names = [f"{SYMBOLS[line.outcome]} {line.name}" for line in lines]
    down = alt.Axis(
        title=None,
        values=[i + 0.5 for i in range(len(lines))],
        labelExpr=f"{json.dumps(names)}[floor(datum.value)]",
        labelLimit=0,
        minExtent=_LETTER * max(map(len, names)) + 10,
        labelPadding=10,
        labelOverlap=False,
        ticks=False,
        domain=False,
    )
    y_scale = alt.Scale(domain=[0, len(lines)], reverse=True, nice=False)
    x = alt.X("at:Q", scale=scale, axis=across)
    y = alt.Y("row:Q", scale=y_scale, axis=down)
    layers = [
        _ground(reach, x),
        *_stripes(len(lines), y),
        chart_of([{"at": 0.0}])
        .mark_rule(color=INK, strokeDash=[5, 4], strokeWidth=1.5, aria=False)
        .encode(x=x),
        *_sides(x),
        *_points(lines, reach, x, y),
    ]
    if width >= WIDE:
        layers += _numbers(lines, width, y)
    height = _ROW * len(lines)
    chart = styled(alt.LayerChart(layer=layers).properties(width=width, height=height))
    right = 4
    if width >= WIDE:
        right += int(_LETTER * max(len(line.numbers) for line in lines)) + 8
    return chart.properties(padding={"left": 4, "top": 22, "right": right, "bottom": 4})


def _reach(lines: Iterable[Line]) -> float:
    """How far the axis goes to both sides: a little farther than what is drawn."""
    ends: list[float] = []
    for line in lines:
        ends += [abs(line.low), abs(line.high), *(abs(at) for _, at, _ in line.marks)]
    return min(_FARTHEST, max(0.25, 1.06 * max(ends, default=1.0)))


def _ground(reach: float, x: alt.X) -> alt.Chart:
    """The claim's side, lightly shaded."""
    base = chart_of([{"at": 0.0, "to": reach}])
    shade = base.mark_rect(color=COLOURS["supported"], opacity=0.07, aria=False)
    return shade.encode(x=x, x2="to:Q")


def _sides(x: alt.X) -> list[alt.Chart]:
    """What it means to be left and right of the threshold, above the rows."""
    sides: dict[str, tuple[Align, int]] = {"← does not hold": ("right", -8), "holds →": ("left", 8)}
    layers = []
    for text, (align, dx) in sides.items():
        mark = chart_of([{"at": 0.0, "text": text}]).mark_text(
            align=align, dx=dx, fontSize=12, color=INK, aria=False
        )
        layers.append(mark.encode(x=x, y=alt.value(-10), text="text:N"))
    return layers


def _stripes(rows: int, y: alt.Y) -> list[alt.Chart]:
    """A hairline below each row."""
    lines = chart_of([{"row": i} for i in range(1, rows)])
    if rows < 2:
        return []
    rule = lines.mark_rule(color=FILL, opacity=0.3, strokeWidth=0.7, aria=False)
    return [rule.encode(y=y)]


def _points(lines: Sequence[Line], reach: float, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Intervals, small marks and means, in this order: means lie on top."""

    def within(value: float) -> float:
        return min(reach, max(-reach, value))

    small: dict[str, list[dict[str, Any]]] = {}
    bars: dict[Outcome, list[dict[str, Any]]] = {}
    means: dict[Outcome, list[dict[str, Any]]] = {}
    for i, line in enumerate(lines):
        row = {"row": i + 0.5}
        bar = {"at": within(line.low), "high": within(line.high)}
        bars.setdefault(line.outcome, []).append(row | bar)
        means.setdefault(line.outcome, []).append(row | {"at": within(line.at), "tip": line.tip})
        for kind, at, tip in line.marks:
            small.setdefault(kind, []).append(row | {"at": within(at), "tip": tip})
    layers = []
    for outcome, rows in bars.items():
        mark = chart_of(rows).mark_rule(color=COLOURS[outcome], strokeWidth=3, aria=False)
        layers.append(mark.encode(x=x, x2="high:Q", y=y))
    for kind, rows in small.items():
        layers.append(_small(kind, rows).encode(x=x, y=y, description="tip:N"))
    for outcome, rows in means.items():
        point = chart_of(rows).mark_point(
            shape=_POINTS[outcome], color=COLOURS[outcome], size=85, filled=True, opacity=1
        )
        layers.append(point.encode(x=x, y=y, description="tip:N"))
    return layers


def _small(kind: str, rows: list[dict[str, Any]]) -> alt.Chart:
    """Marks that stand beside a verdict: chance, one way to measure, the ceiling."""
    if kind == "ceiling":
        return chart_of(rows).mark_tick(color=INK, thickness=2, size=13, opacity=0.9)
    if kind == "chance":  # a cross on its side, thin
        outline = "M-.8,-.8L.8,.8M.8,-.8L-.8,.8"
        return chart_of(rows).mark_point(shape=outline, stroke=INK, size=42, strokeWidth=1.6)
    return chart_of(rows).mark_point(
        shape="triangle-up", stroke=INK, fill="white", size=34, strokeWidth=1.2, opacity=1
    )


def _numbers(lines: Sequence[Line], width: int, y: alt.Y) -> list[alt.Chart]:
    """Means and thresholds, right of the chart."""
    rows = [{"row": i + 0.5, "text": line.numbers} for i, line in enumerate(lines)]
    text = chart_of(rows).mark_text(align="left", fontSize=12, color=INK, aria=False)
    return [text.encode(x=alt.value(width + 10), y=y, text="text:N")]
