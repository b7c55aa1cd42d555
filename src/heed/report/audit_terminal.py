"""An audit on a terminal: the answer on one screen of 40 lines, or all that is known of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import shorten
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.rule import Rule
from rich.text import Text

from heed.audit.answer import Answer
from heed.report.answer import answer
from heed.report.numbers import number
from heed.report.planned import drawn, followed
from heed.report.words import (
    SYMBOLS,
    beside,
    changed,
    checks,
    outcome,
    reasons,
    summary,
    verdict_interval,
)
from heed.text import printable

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.claims import Verdict

# Blue and orange as in explanations: colour-blind readers can tell them apart, on any background.
STYLES = {
    "supported": "bold rgb(0,140,210)",
    "refuted": "bold rgb(213,94,0)",
    "undecided": "bold",
    "not applicable": "dim",
}
MOST = 40  # lines of the answer, in as many columns as `_WIDE`
_REMARK = 120  # characters of what is said of an older file
_WIDE = 80  # columns of a table at most: long names of explanations are cut
_FITTING = 2  # methods whose sentences fit on the screen, and whose intervals into a line


def audit(audit: Audit, verbose: bool = False) -> RenderableType:
    """The answer of an audit, on one screen; or, if `verbose`, everything in words and numbers."""
    return _in_full(audit) if verbose else _Screen(audit)


# One screen


@dataclass(frozen=True)
class _Screen:
    """The answer in 40 lines; drawn late, because the console knows how long its lines are.

    The table of verdicts gets the lines that are left, and says how many it leaves out.
    """

    audit: Audit

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDE)
        found = answer(self.audit)
        above = [
            *_wrapped(_head(self.audit), console, width),
            Text(""),
            *_wrapped(islice(_sentences(found), _FITTING), console, width),
            Text(""),
            *_tiles(found),
        ]
        if follows := _wrapped(_next(found), console, width):
            above += [Text(""), *follows]
        below = _wrapped(_checks(self.audit), console, width)
        more = Text("--verbose: every number and reason; -o audit.html: the page", style="dim")
        table = _others(self.audit, found)
        room = MOST - len(above) - len(below) - 2
        if len(table) > room:
            left = len(table) - max(1, room - 1)
            table = [*table[: max(1, room - 1)], Text(f"and {left} more", style="dim")]
        yield from (*above, Text(""), *table, *below, more)


def _wrapped(texts: Iterator[Text], console: Console, width: int) -> list[Text]:
    """The lines of some texts, without blanks at their ends."""
    lines: list[Text] = []
    for text in texts:
        lines += text.wrap(console, width)
    for line in lines:
        line.rstrip()
    return lines


def _head(audit: Audit) -> Iterator[Text]:
    facts = audit.facts
    model = printable(f"{facts['model']}@{facts['revision']}")
    data = printable(str(facts["data"]))
    yield Text.assemble(("Audit of ", "dim"), (model, "bold"), (" on ", "dim"), (data, "bold"))
    parts = [drawn(facts)]
    if facts.get("left_out"):
        unread = f"no {facts.get('unit', 'word')} that the model can read"
        parts.append(f"{facts['left_out']:,} left out (blank, or {unread})")
    if facts.get("unfit"):
        parts.append(f"left out: {printable(facts['unfit'])}")
    if facts.get("rejudged"):
        parts.append(shorten(f"judged {printable(facts['rejudged'])}", _REMARK, placeholder=" …"))
    if facts.get("accuracy") is not None:
        parts.append(f"accuracy {number(facts['accuracy'])}")
    if facts.get("truncated"):
        parts.append(f"{facts['truncated']:,} longer than the model reads")
    if facts.get("unknown"):
        parts.append(f"{facts['unknown']:.1%} unknown words")
    if facts.get("unit", "word") != "word":
        parts.append(f"{printable(facts['unit'])}s are meant where claims speak of words")
    parts += [f"judged: {', '.join(map(printable, facts['methods']))}", f"seed {facts['seed']}"]
    yield Text(" · ".join(parts))
    if text := followed(audit, short=True):
        yield Text(text[0].upper() + text[1:])


def _sentences(found: Answer) -> Iterator[Text]:
    yield Text(printable(found.sentence), style="bold")
    yield from (Text(printable(sentence)) for sentence in found.beside.values())


def _tiles(found: Answer) -> list[Text]:
    """One line for each family."""
    family = max(len(tile.family) for tile in found.tiles)
    says = max(len(tile.says) for tile in found.tiles)
    side = max(len(tile.threshold) for tile in found.tiles)
    lines = []
    for tile in found.tiles:
        style = STYLES[tile.outcome]
        name, text = f"{tile.family:{family}}", f"{tile.says:{says}}"
        line = Text.assemble((f"{tile.symbol} ", style), f"{name}  ", (text, style))
        line.append(f"  {tile.threshold:{side}}  {tile.interval}")
        line.rstrip()
        line.truncate(_WIDE)
        lines.append(line)
    return lines


def _next(found: Answer) -> Iterator[Text]:
    if found.use_instead:
        yield Text.assemble(("Use instead: ", "bold"), printable(found.use_instead), ".")
    if found.not_tested:
        texts = (f"{', '.join(u.claims)}: {u.how}" for u in found.not_tested)
        yield Text.assemble(("Not tested: ", "bold"), printable(" · ".join(texts)))


def _checks(audit: Audit) -> Iterator[Text]:
    if found := checks(audit):
        yield Text(f"Checks: {' · '.join(map(str, found))}", style="dim")


# The table of what was judged


def _others(audit: Audit, found: Answer) -> list[Text]:
    """One line for each claim that was judged and stands in no tile, methods side by side.

    Where there are several methods, the tiles have the numbers of the first alone.
    """
    methods = list(audit.facts["methods"])
    shown = {tile.claim for tile in found.tiles}
    by_claim: dict[str, list[Verdict]] = {}
    for v in audit.verdicts:
        told = v.claim.id in shown and not (v.claim.of_explanation and len(methods) > 1)
        if v.outcome != "not applicable" and not told:
            by_claim.setdefault(v.claim.id, []).append(v)
    return _side_by_side(methods, by_claim) if by_claim else []


def _side_by_side(methods: Sequence[str], by_claim: Mapping[str, Sequence[Verdict]]) -> list[Text]:
    short = len(methods) > _FITTING
    cells = {(v.claim.id, v.method): _number(v, short) for vs in by_claim.values() for v in vs}
    name = max(cell_len(printable(claim)) for claim in [*by_claim, _FURTHER])
    side = max(cell_len(vs[0].claim.side()) for vs in by_claim.values())
    wide = max([cell_len(text) for text, _ in cells.values()] + [8])
    # a column more takes two blanks before it
    shown = methods[: max(1, (_WIDE - name - side - 2) // (wide + 2))]
    titles = [printable(m) for m in shown] if len(methods) > 1 else ["mean [interval]"]
    head = f"{_FURTHER:{name}}  {'if':{side}}"
    head += "".join(f"  {_fitted(title, wide)}" for title in titles)
    lines = [Text(head.rstrip(), style="dim")]
    for claim, verdicts in by_claim.items():
        line = Text(f"{set_cell_size(printable(claim), name)}  {verdicts[0].claim.side():{side}}")
        of_model = not verdicts[0].claim.of_explanation
        for method in shown[:1] if of_model else shown:
            key = (claim, verdicts[0].method if of_model else method)
            text, style = cells.get(key, ("–", "dim"))
            line.append("  ").append(_fitted(text, wide), style=style)
        line.rstrip()
        lines.append(line)
    if left := len(methods) - len(shown):
        lines.append(Text(f"and {left} more methods", style="dim"))
    return lines


def _number(verdict: Verdict, short: bool) -> tuple[str, str]:
    """The mark and the statistic of a verdict; the interval, too, where there is room."""
    text = number(verdict.mean) if short else verdict_interval(verdict)
    return f"{SYMBOLS[verdict.outcome]} {text}", STYLES[verdict.outcome]


def _fitted(text: str, width: int) -> str:
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)


_FURTHER = "further claims"

# All that is known

_TITLES = ("claim", "mean [interval]", "threshold", "n", "verdict")


def _in_full(audit: Audit) -> RenderableType:
    """The answer, a table of all claims with what stands beside each, and the summary in words."""
    found = answer(audit)
    widths = _widths(audit.verdicts)
    parts: list[RenderableType] = [
        *_head(audit),
        Text(""),
        *_sentences(found),
        Text(""),
        *_tiles(found),
        Text(""),
        *_next(found),
        Text(""),
        _row(_TITLES, widths, ("dim", "dim", "dim")),
        Rule(style="dim"),
    ]
    for verdict, position in zip(audit.verdicts, _places(audit.verdicts), strict=True):
        if position == "first":
            parts.append(Text(printable(verdict.claim.id), style="bold"))
        name = "bold" if position == "only" else ""
        parts.append(_row(_cells(verdict, position), widths, (name, "", STYLES[verdict.outcome])))
        if texts := [f"{name} {value}" for name, value in beside(verdict)]:
            parts.append(Text(f"    {' · '.join(texts)}", style="dim"))
    parts += [Rule(style="dim"), *_checks(audit)]
    if text := changed(audit):
        parts.append(Text(text))
    parts += [Text(""), *_summary(audit), Text(""), _reading(audit)]
    return Group(*parts)


def _cells(verdict: Verdict, position: str) -> tuple[str, ...]:
    """The cells of one line; several judged explanations stand below the name of the claim."""
    claim = verdict.claim
    name = printable(claim.id) if position == "only" else f"  {printable(verdict.method)}"
    return name, verdict_interval(verdict), claim.side(), f"{verdict.n:,}", _verdict(verdict)


def _verdict(verdict: Verdict) -> str:
    return f"{SYMBOLS[verdict.outcome]} {outcome(verdict)}"


def _places(verdicts: Sequence[Verdict]) -> list[str]:
    """The place of a verdict among those on the same claim."""
    claims = [None, *(v.claim for v in verdicts), None]
    among = zip(claims[:-2], claims[1:-1], claims[2:], strict=True)
    return [
        "further" if c == before else "first" if c == after else "only"
        for before, c, after in among
    ]


def _widths(verdicts: Sequence[Verdict]) -> list[int]:
    """Of name, mean, threshold (with the gap after it, which its title fills), n and verdict."""
    cells = list(map(_cells, verdicts, _places(verdicts)))
    name, mean, threshold, n, verdict = (
        max(map(cell_len, column)) for column in zip(_TITLES, *cells, strict=True)
    )
    threshold = max([threshold, *(len(row[2]) + 2 for row in cells)])
    n = max(n, 2)
    return [min(name, _WIDE - mean - threshold - n - verdict - 6), mean, threshold, n, verdict]


def _row(cells: Sequence[str], widths: Sequence[int], styles: tuple[str, str, str]) -> Text:
    """One line of the table; styles of the name, the numbers and the verdict."""
    name, mean, threshold, n, verdict = cells
    if cell_len(name) > widths[0]:
        name = set_cell_size(name, widths[0] - 1) + "…"
    numbers = f"  {mean:{widths[1]}}  {threshold:{widths[2]}}{n:>{widths[3]}}  "
    return Text.assemble(
        *zip((set_cell_size(name, widths[0]), numbers, verdict), styles, strict=True)
    )


def _summary(audit: Audit) -> Iterator[RenderableType]:
    """One paragraph per family, then why claims are undecided or were not judged, each once."""
    yield Text("Summary", style="bold")
    for family, text in summary(audit).items():
        yield Text.assemble((f"{family}: ", "bold"), printable(text))
    for reason, claims in reasons(audit).items():
        yield Text(f"{', '.join(claims)}: {printable(reason)}", style="dim")


def _reading(audit: Audit) -> Text:
    return Text(
        "Intervals are over documents, and wide enough that all verdicts hold together at 95 %. A"
        " claim is supported if its whole interval lies on its side of the threshold, and refuted"
        " if the whole interval lies on the other side. Otherwise it is undecided, and the reason"
        " stands beside it. Documents that share an id or a text count as one.",
        style="dim",
    )
