"""Two audits side by side: on a terminal, as a page, as Markdown and as a table of numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from heed.report.html import render
from heed.report.markup import md
from heed.report.numbers import interval, number
from heed.report.words import SYMBOLS
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.audit import Change, Diff
    from heed.claims import Verdict

TITLES = ("claim", "old", "new", "difference [interval]", "n")
_WIDE = 80


def terminal(diff: Diff) -> RenderableType:
    """The two audits as a table of 80 columns; claims whose verdict changed stand out."""
    rows = [_cells(change) for change in diff.changes]
    widths = [max(map(cell_len, column)) for column in zip(TITLES, *rows, strict=True)]
    # long names of methods give way; the gaps are four times two
    widths[0] = min(widths[0], _WIDE - sum(widths[1:]) - 8)
    lines: list[RenderableType] = [Text(_line(TITLES, widths), style="dim"), Rule(style="dim")]
    for change, row in zip(diff.changes, rows, strict=True):
        lines.append(Text(_line(row, widths), style="bold" if change.changed else ""))
    about = [Text(printable(line)) for line in subjects(diff)]
    beneath = [Text(line, style="dim") for line in remarks(diff)]
    return Group(*about, Text(""), *lines, Rule(style="dim"), *map(Text, changes(diff)), *beneath)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    name, *others = cells
    if cell_len(name) > widths[0]:
        name = set_cell_size(name, widths[0] - 1) + "…"
    text = "  ".join(map(set_cell_size, (name, *others[:-1]), widths[:-1]))
    return f"{text}  {others[-1]:>{widths[-1]}}"


def _cells(change: Change) -> tuple[str, ...]:
    moved = interval(change.difference, change.low, change.high) if change.n > 1 else "–"
    if change.difference is not None and change.difference > 0 and change.n > 1:
        moved = f"+{moved}"
    n = f"{change.n:,}" if change.n else "–"
    return printable(change.name), verdict(change.old), verdict(change.new), moved, n


def verdict(verdict: Verdict | None) -> str:
    """A verdict in one cell: its symbol, and the mean."""
    return "" if verdict is None else f"{SYMBOLS[verdict.outcome]} {number(verdict.mean)}"


# In words


def subjects(diff: Diff) -> list[str]:
    """What was audited."""
    return [
        f"{which}: {facts['model']}@{facts['revision']} on {facts['data']},"
        f" {counted(facts['documents'])}"
        for which, facts in (("old", diff.old), ("new", diff.new))
    ]


def changes(diff: Diff) -> list[str]:
    """Which verdicts changed, and in what other claims the numbers moved."""
    both = [c for c in diff.changes if c.old is not None and c.new is not None]
    lines = [f"{len(diff.changed)} of {counted(len(both), 'verdict')} changed"]
    lines += [
        f"{printable(c.name)}: {c.old.outcome} → {c.new.outcome}"
        for c in diff.changed
        if c.old is not None and c.new is not None
    ]
    if moved := [printable(c.name) for c in both if c.moved and not c.changed]:
        lines.append(f"The same verdict, but another mean beyond chance: {', '.join(moved)}")
    return lines


def remarks(diff: Diff) -> Iterator[str]:
    """How to read the table, and what else differs."""
    compared = [c for c in diff.changes if c.n]
    old, new = (max((getattr(c, name) for c in compared), default=0) for name in _ONLY)
    if old or new:
        yield f"Documents in one audit only: up to {old:,} in the old one, {new:,} in the new one."
    for which, name in (("old", "new"), ("new", "old")):
        if alone := [printable(c.name) for c in diff.changes if getattr(c, name) is None]:
            yield f"Only in the {which} audit: {', '.join(alone)}."
    yield (
        f"Differences are means over the documents of both audits, with {diff.level:.1%} bootstrap"
        " intervals, wide enough for all claims together."
    )
    if diff.notes:
        yield printable(f"Also: {'; '.join(diff.notes)}.")


_ONLY = ("only_old", "only_new")


# Files


def as_json(diff: Diff) -> str:
    return json.dumps(diff.to_dict(), ensure_ascii=False, indent=1)


def as_csv(diff: Diff) -> str:
    """One row for each claim and method."""
    out = io.StringIO()
    columns = ("claim", "old_method", "old", "old_mean", "new_method", "new", "new_mean")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*columns, "difference", "low", "high", *_ONLY, "n", "changed"])
    for c in diff.changes:
        verdicts: list[Any] = []
        for v in (c.old, c.new):
            verdicts += ["", "", ""] if v is None else [v.method, v.outcome, v.mean]
        numbers = [c.difference, c.low, c.high, c.only_old, c.only_new, c.n, int(c.changed)]
        writer.writerow([c.claim.id, *verdicts, *numbers])
    return out.getvalue().removesuffix("\n")


def as_markdown(diff: Diff) -> str:
    lines = [f"- {md(line)}" for line in subjects(diff)]
    lines += ["", *(f"{md(line)}  " for line in changes(diff)), ""]
    lines += [f"| {' | '.join(TITLES)} |", "|---|---|---|---|--:|"]
    for change in diff.changes:
        cells = " | ".join(map(md, _cells(change)))
        lines.append(
            f"| **{cells.replace(' | ', '** | ', 1)} |" if change.changed else f"| {cells} |"
        )
    return "\n".join([*lines, "", *map(md, remarks(diff))])


def html(diff: Diff) -> str:
    """A page: one file, without scripts."""
    rows = [(change.changed, _cells(change)) for change in diff.changes]
    return render(
        "diff.html.j2",
        title="Two audits compared",
        subjects=subjects(diff),
        changes=changes(diff),
        titles=TITLES,
        rows=rows,
        remarks=list(remarks(diff)),
    )


def html_table(diff: Diff) -> str:
    """The table alone, for a notebook."""
    head = "".join(f"<th>{title}</th>" for title in TITLES)
    body = ""
    for change in diff.changes:
        tag = "th" if change.changed else "td"
        cells = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in _cells(change))
        body += f"<tr>{cells}</tr>"
    return f"<p>{escape(repr(diff))}</p><table><tr>{head}</tr>{body}</table>"
