"""Explanations of one document side by side: on a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from heed.methods import group_of
from heed.methods.comparison import by_reason
from heed.methods.units import PASSAGES
from heed.report import shading
from heed.report.explanation import html as explanation_html
from heed.report.explanation import largest, legend, line, numbered, template_scores
from heed.report.numbers import cell
from heed.report.shading import colours
from heed.report.words import GROUPS
from heed.text import printable

if TYPE_CHECKING:
    from heed.methods import Comparison, Explanation


def terminal(comparison: Comparison, console: Console, options: ConsoleOptions) -> RenderResult:
    """One line per method, and which methods were left out."""
    yield from side_by_side(comparison.explanations, console, options)
    if comparison.left_out:
        yield Text("")
        yield Text(f"Left out: {printable(by_reason(comparison.left_out))}.", style="dim")


def table(comparison: Comparison, width: int = 80) -> Group:
    """The matrix of agreement, for a terminal: as many columns beside each other as it is wide.

    The others follow in blocks of their own, each below the letters of its columns.
    """
    letters = [chr(ord("a") + i) for i in range(len(comparison.methods))]
    names = [f"{letter} {name}" for letter, name in zip(letters, comparison.methods, strict=True)]
    columns = max(1, (width - max(len(name) for name in names)) // 5 - 1)
    parts: list[Text | Table] = [Text("Kendall's τ between methods", style="bold")]
    for start in range(0, len(names) - 1, columns):
        if start:
            last = letters[min(start + columns, len(names) - 1) - 1]
            block = letters[start] if last == letters[start] else f"{letters[start]} to {last}"
            parts += [Text(""), Text(f"and with {block}", style="bold")]
        table = Table(box=None, padding=(0, 0, 0, 1))
        table.add_column("", no_wrap=True)
        for letter in letters[:-1][start : start + columns]:
            table.add_column(letter, justify="right")
        for i in range(start + bool(start), len(names)):
            taus = comparison.agreement[i, start : min(i, start + columns)]
            table.add_row(names[i], *(cell(t).replace("0.", ".") for t in taus))
        parts.append(table)
    return Group(*parts)


def side_by_side(
    explanations: Sequence[Explanation], console: Console, options: ConsoleOptions
) -> RenderResult:
    """One line per explanation, by groups of methods, and a legend.

    A line has the method's name, its largest score and the shaded document. Passages have numbers,
    which stand for them in the lines.
    """
    if explanations[0].unit in PASSAGES:
        yield from numbered(explanations, options.max_width)
        yield Text("")
    many = colours(console)
    names, peaks = [printable(e.method) for e in explanations], [*map(largest, explanations)]
    headings = _headings(explanations)
    for e, name, peak, heading in zip(explanations, names, peaks, headings, strict=True):
        if heading:
            yield Text(heading, style="dim")
        start = f"{name:<{max(map(len, names))}}  {peak:>{max(map(len, peaks))}}  "
        yield Text.assemble(start, line(e, options.max_width - len(start), many))
    yield from legend(explanations, many)
    yield Text(_scale(explanations, many), style="dim")
    if scores := template_scores(explanations):
        yield Text(f"template: {printable(scores)}", style="dim")


def margin(explanations: Sequence[Explanation]) -> int:
    """How much of a line stands before the document."""
    names = max(len(printable(e.method)) for e in explanations)
    return names + max(len(largest(e)) for e in explanations) + 4


def _headings(explanations: Sequence[Explanation]) -> list[str]:
    """What stands above each explanation: the group that begins there.

    Nothing, where methods of a group do not stand together, or none has company.
    """
    groups = [group_of(e.method) for e in explanations]
    starts = [i == 0 or groups[i - 1] != group for i, group in enumerate(groups)]
    if sum(starts) > len(set(groups)) or sum(starts) in (1, len(groups)):
        return [""] * len(groups)
    return [
        f"{group} · {GROUPS[group]}" if first else ""
        for group, first in zip(groups, starts, strict=True)
    ]


def _scale(explanations: Sequence[Explanation], colours: int) -> str:
    """What the numbers of the lines mean, and which output they explain."""
    tenths = shading.TENTHS if colours <= 16 else ""
    outputs = dict.fromkeys(e.settings["output"] for e in explanations if e.settings.get("output"))
    output = f" · output: {' and '.join(map(str, outputs))}" if outputs else ""
    return f"first in each row: its largest score{tenths}{output}"


def html(comparison: Comparison) -> str:
    """The explanations and the methods left out, for a notebook."""
    rows = "".join(explanation_html(e) for e in comparison.explanations)
    left_out = escape(printable(by_reason(comparison.left_out)))
    return rows + (f"<div>Left out: {left_out}.</div>" if left_out else "")
