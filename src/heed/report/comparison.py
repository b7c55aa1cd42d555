"""Explanations of one document side by side: on a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from heed.methods.comparison import by_reason
from heed.methods.units import PASSAGES
from heed.report.explanation import html as explanation_html
from heed.report.explanation import legend, line, numbered, template_scores
from heed.report.numbers import cell
from heed.report.shading import colours
from heed.text import printable

if TYPE_CHECKING:
    from heed.methods import Comparison, Explanation


def terminal(comparison: Comparison, console: Console, options: ConsoleOptions) -> RenderResult:
    """One line per method, how far they agree, and which methods were left out."""
    yield from side_by_side(comparison.explanations, console, options)
    if len(comparison.explanations) > 1:
        yield Text("")
        yield table(comparison, options.max_width)
    if comparison.left_out:
        yield Text("")
        yield Text(f"Left out: {printable(by_reason(comparison.left_out))}.", style="dim")


def table(comparison: Comparison, width: int = 80) -> Group:
    """The matrix of agreement, for a terminal: as many columns beside each other as it is wide."""
    letters = [chr(ord("a") + i) for i in range(len(comparison.methods))]
    names = [f"{letter} {name}" for letter, name in zip(letters, comparison.methods, strict=True)]
    columns = max(1, (width - max(len(name) for name in names)) // 5 - 1)
    parts: list[Text | Table] = [Text("Kendall's τ between methods", style="bold")]
    for start in range(0, len(names) - 1, columns):
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
    """One line per explanation, the method's name and the shaded document, and a legend.

    Passages have numbers, which stand for them in the lines.
    """
    if explanations[0].unit in PASSAGES:
        yield from numbered(explanations[0], options.max_width)
        yield Text("")
    width = max(len(e.method) for e in explanations) + 2
    for e in explanations:
        text = line(e, options.max_width - width, colours(console))
        yield Text.assemble(f"{printable(e.method):<{width}}", text)
    yield from legend(explanations, colours(console))
    if scores := template_scores(explanations):
        yield Text(f"template: {printable(scores)}", style="dim")


def html(comparison: Comparison) -> str:
    """The explanations, their agreement and the methods left out, for a notebook."""
    rows = "".join(explanation_html(e) for e in comparison.explanations)
    head = "".join(f"<th>{escape(m)}</th>" for m in comparison.methods)
    body = ""
    for method, taus in zip(comparison.methods, comparison.agreement, strict=True):
        cells = "".join(f"<td>{cell(tau)}</td>" for tau in taus)
        body += f"<tr><th>{escape(method)}</th>{cells}</tr>"
    table = f"<table><caption>Kendall's τ</caption><tr><th></th>{head}</tr>{body}</table>"
    left_out = escape(by_reason(comparison.left_out))
    return rows + table + (f"<div>Left out: {left_out}.</div>" if left_out else "")
