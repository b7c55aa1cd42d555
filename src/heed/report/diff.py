"""Two audits or two rankings side by side: on a terminal, as a page, as Markdown, as numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from heed.audit import Diff
from heed.report.html import render
from heed.report.markup import md, plain_cell
from heed.report.numbers import cell, interval, number
from heed.report.words import SYMBOLS
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.audit import Change
    from heed.claims import Verdict
    from heed.rank import Move, RankingDiff, Standing

_WIDE = 80


@dataclass(frozen=True)
class _Table:
    """What stands side by side.

    rows       for each claim or method whether it changed, and its cells, the number of documents
               or a place last
    subjects   what was measured
    changes    what changed, the count first
    remarks    how to read the table, and what else differs
    records    the same in numbers
    """

    title: str
    titles: tuple[str, ...]
    rows: list[tuple[bool, tuple[str, ...]]]
    subjects: list[str]
    changes: list[str]
    remarks: list[str]
    records: list[dict[str, Any]]


def _table(diff: Diff | RankingDiff) -> _Table:
    return _of_audits(diff) if isinstance(diff, Diff) else _of_rankings(diff)


# As which people take it


def terminal(diff: Diff | RankingDiff) -> RenderableType:
    """A table of 80 columns; what changed stands out."""
    table = _table(diff)
    widths = [
        max(map(cell_len, column))
        for column in zip(table.titles, *(cells for _, cells in table.rows), strict=True)
    ]
    # long names of methods give way; the gaps are of two
    widths[0] = min(widths[0], _WIDE - sum(widths[1:]) - 2 * len(widths[1:]))
    lines: list[RenderableType] = [Text(_line(table.titles, widths), style="dim")]
    lines.append(Rule(style="dim"))
    for changed, cells in table.rows:
        lines.append(Text(_line(cells, widths), style="bold" if changed else ""))
    about = [Text(printable(line)) for line in table.subjects]
    beneath = [Text(line, style="dim") for line in table.remarks]
    return Group(*about, Text(""), *lines, Rule(style="dim"), *map(Text, table.changes), *beneath)


def _line(cells: Sequence[str], widths: list[int]) -> str:
    name, *others = cells
    if cell_len(name) > widths[0]:
        name = set_cell_size(name, widths[0] - 1) + "…"
    text = "  ".join(map(set_cell_size, (name, *others[:-1]), widths[:-1]))
    return f"{text}  {others[-1]:>{widths[-1]}}"


def as_json(diff: Diff | RankingDiff) -> str:
    return json.dumps(diff.to_dict(), ensure_ascii=False, indent=1)


def as_csv(diff: Diff | RankingDiff) -> str:
    """One row for each claim and method."""
    records = _table(diff).records
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(records[0] if records else ())
    writer.writerows(map(plain_cell, record.values()) for record in records)
    return file.getvalue().removesuffix("\n")


def as_markdown(diff: Diff | RankingDiff) -> str:
    table = _table(diff)
    lines = [f"- {md(line)}" for line in table.subjects]
    lines += ["", *(f"{md(line)}  " for line in table.changes), ""]
    between = ["---"] * (len(table.titles) - 1)
    lines += [f"| {' | '.join(table.titles)} |", f"|{'|'.join(between)}|--:|"]
    for changed, cells in table.rows:
        text = " | ".join(map(md, cells))
        lines.append(f"| **{text.replace(' | ', '** | ', 1)} |" if changed else f"| {text} |")
    return "\n".join([*lines, "", *map(md, table.remarks)])


def html(diff: Diff | RankingDiff) -> str:
    """A page: one file, without scripts."""
    table = _table(diff)
    return render(
        "diff.html.j2",
        title=table.title,
        subjects=table.subjects,
        changes=table.changes,
        titles=table.titles,
        rows=table.rows,
        remarks=table.remarks,
    )


def html_table(diff: Diff | RankingDiff) -> str:
    """The table alone, for a notebook."""
    table = _table(diff)
    head = "".join(f"<th>{title}</th>" for title in table.titles)
    body = ""
    for changed, cells in table.rows:
        tag = "th" if changed else "td"
        body += f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in cells)}</tr>"
    return f"<p>{escape(repr(diff))}</p><table><tr>{head}</tr>{body}</table>"


def _subjects(diff: Diff | RankingDiff) -> list[str]:
    """What was audited or ranked."""
    return [
        f"{which}: {facts['model']}@{facts['revision']} on {facts['data']},"
        f" {counted(facts['documents'])}"
        for which, facts in (("old", diff.old), ("new", diff.new))
    ]


def _moved(difference: float | None, low: float | None, high: float | None) -> str:
    if difference is None:
        return "–"
    return f"{'+' if difference > 0 else ''}{interval(difference, low, high)}"


# Audits


def _of_audits(diff: Diff) -> _Table:
    return _Table(
        "Two audits compared",
        ("claim", "old", "new", "difference [interval]", "n"),
        [(change.changed, _cells(change)) for change in diff.changes],
        _subjects(diff),
        _verdicts(diff),
        list(_remarks(diff)),
        list(map(_record, diff.changes)),
    )


def _cells(change: Change) -> tuple[str, ...]:
    moved = _moved(change.difference, change.low, change.high) if change.n > 1 else "–"
    n = f"{change.n:,}" if change.n else "–"
    return printable(change.name), _verdict(change.old), _verdict(change.new), moved, n


def _verdict(verdict: Verdict | None) -> str:
    """A verdict in one cell: its symbol, and the mean."""
    return "" if verdict is None else f"{SYMBOLS[verdict.outcome]} {number(verdict.mean)}"


def _record(change: Change) -> dict[str, Any]:
    record: dict[str, Any] = {"claim": change.claim.id}
    for which, v in (("old", change.old), ("new", change.new)):
        named = ("", "", "") if v is None else (v.method, v.outcome, v.mean)
        record |= zip((f"{which}_method", which, f"{which}_mean"), named, strict=True)
    names = ("difference", "low", "high", *_ONLY, "n")
    return record | {k: getattr(change, k) for k in names} | {"changed": int(change.changed)}


def _verdicts(diff: Diff) -> list[str]:
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


def _remarks(diff: Diff) -> Iterator[str]:
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


# Rankings


def _of_rankings(diff: RankingDiff) -> _Table:
    return _Table(
        "Two rankings compared",
        ("method", "old", "new", "difference [interval]", "place"),
        [(move.changed, _places(move)) for move in diff.moves],
        _subjects(diff),
        _standings(diff),
        list(_comments(diff)),
        list(map(_row, diff.moves)),
    )


def _places(move: Move) -> tuple[str, ...]:
    one, other = ("–" if rank is None else str(rank) for rank in move.ranks)
    place = one if one == other else f"{one} → {other}"
    moved = _moved(move.difference, move.low, move.high)
    return printable(move.method), _standing(move.old), _standing(move.new), moved, place


def _standing(standing: Standing | None) -> str:
    if standing is None:
        return ""
    return f"{'●' if standing.best else '○'} {cell(standing.faithfulness)}"


def _row(move: Move) -> dict[str, Any]:
    record: dict[str, Any] = {"method": move.method}
    for which, s, rank in zip(("old", "new"), (move.old, move.new), move.ranks, strict=True):
        best = "" if s is None else int(s.best)
        faithfulness = "" if s is None else s.faithfulness
        record |= {f"{which}_rank": rank, f"{which}_best": best, f"{which}_mean": faithfulness}
    names = ("difference", "low", "high")
    return record | {k: getattr(move, k) for k in names} | {"changed": int(move.changed)}


def _standings(diff: RankingDiff) -> list[str]:
    """What is recommended now, which methods joined or left the best, and which others moved."""
    one, other = (printable(name or "nothing") for name in diff.recommended)
    same = one == other
    lines = [f"Recommended: {one}, as before" if same else f"Recommended: {one} → {other}"]
    for which, joined in (("Now among the best", True), ("No longer among the best", False)):
        names = [m.method for m in diff.moves if m.changed and m.new and m.new.best == joined]
        if names:
            lines.append(f"{which}: {printable(', '.join(names))}")
    if moved := [m.method for m in diff.moves if m.moved and not m.changed]:
        lines.append(f"More or less faithful beyond chance: {printable(', '.join(moved))}")
    return lines


def _comments(diff: RankingDiff) -> Iterator[str]:
    if diff.only_old or diff.only_new:
        yield (
            f"Documents in one ranking only: {diff.only_old:,} in the old one, {diff.only_new:,} in"
            " the new one."
        )
    for which, name in (("old", "new"), ("new", "old")):
        if alone := [m.method for m in diff.moves if getattr(m, name) is None]:
            yield printable(f"Only in the {which} ranking: {', '.join(alone)}.")
    yield "●: cannot be told from the best."
    if diff.n < 2:
        yield "There are no differences: the rankings do not share two documents."
    else:
        yield (
            f"Differences of faithfulness are over the {counted(diff.n)} of both rankings, with"
            " 95 % intervals that hold for all methods together."
        )
    if diff.notes:
        yield printable(f"Also: {'; '.join(diff.notes)}.")
