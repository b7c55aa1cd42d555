"""Explanations, audits and reproductions on a terminal: in 80 columns, with or without colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.rule import Rule
from rich.text import Text

from heed.methods import Comparison, agreement
from heed.methods.units import PASSAGES
from heed.report.comparison import margin, side_by_side
from heed.report.explanation import by_document, comparable, shaded
from heed.report.numbers import number
from heed.report.results import MANY, named, ours, published, remarks, shared
from heed.report.shading import colours
from heed.report.words import SYMBOLS, changed, lines, outcome, reasons, verdict_interval
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.claims import Verdict
    from heed.methods import Explanation
    from heed.papers.results import Result, Section

# Blue and orange as in explanations: colour-blind readers can tell them apart, on any background.
STYLES = {
    "supported": "bold rgb(0,140,210)",
    "refuted": "bold rgb(213,94,0)",
    "undecided": "bold",
    "not applicable": "dim",
}
_EXCERPT = 300  # characters of a document that is too long for its line


def audit(audit: Audit) -> RenderableType:
    """An audit as a table of claims and verdicts, and a summary by family of claims."""
    widths = _widths(audit.verdicts)
    parts: list[RenderableType] = [
        *_head(audit),
        Text(""),
        _row(_TITLES, widths, ("dim", "dim", "dim")),
        Rule(style="dim"),
    ]
    for verdict, position in zip(audit.verdicts, _places(audit.verdicts), strict=True):
        if position == "first":
            parts.append(Text(printable(verdict.claim.id), style="bold"))
        name = "bold" if position == "only" else ""
        parts.append(_row(_cells(verdict, position), widths, (name, "", STYLES[verdict.outcome])))
    parts.append(Rule(style="dim"))
    if text := changed(audit):
        parts.append(Text(text))
    parts += [Text(""), *_summary(audit), Text(""), _reading(audit)]
    return Group(*parts)


def explanations(explanations: Sequence[Explanation]) -> RenderableType:
    """One block per document: a single explanation in full, several side by side."""
    groups = by_document(explanations)
    parts: list[RenderableType] = []
    for i, group in enumerate(groups):
        if i:
            parts += [Text(""), Rule(style="dim"), Text("")]
        parts.append(group[0] if len(group) == 1 else _Block(group))
    return Group(*parts)


@dataclass(frozen=True)
class _Indented:
    """Text set in from the left; rich's own padding would leave blanks at the end of every line."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.text.wrap(console, max(10, options.max_width - 4)):
            line.rstrip()
            yield Text("    ").append_text(line)


# Audits

_TITLES = ("claim", "mean [interval]", "threshold", "n", "verdict")
_WIDE = 80  # columns of the table at most: long names of explanations are cut


def _head(audit: Audit) -> Iterator[RenderableType]:
    facts = audit.facts
    model = printable(f"{facts['model']}@{facts['revision']}")
    data = printable(str(facts["data"]))
    yield Text.assemble(("Audit of ", "dim"), (model, "bold"), (" on ", "dim"), (data, "bold"))
    parts = [counted(facts["documents"])]
    if facts.get("left_out"):
        unread = f"no {facts.get('unit', 'word')} that the model can read"
        parts.append(f"{facts['left_out']:,} left out (blank, or {unread})")
    if facts.get("unfit"):
        parts.append(f"left out: {printable(facts['unfit'])}")
    if facts.get("rejudged"):
        parts.append(f"judged {printable(facts['rejudged'])}")
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
    """One line per family; then why claims are undecided or were not judged, each reason once."""
    yield Text("Summary", style="bold")
    for family, text in lines(audit).items():
        yield Text.assemble((f"{family}: ", "bold"), text)
    for reason, claims in reasons(audit).items():
        yield Text(f"{', '.join(claims)}: {printable(reason)}", style="dim")


def _reading(audit: Audit) -> Text:
    from heed.claims.claim import FEWEST

    level = audit.verdicts[0].level if audit.verdicts else 0.95
    together = ", wide enough for all claims together" if level > 0.95 else ""
    return Text(
        f"Intervals are {level:.1%} bootstrap intervals{together}. A"
        " claim is supported if its whole interval lies on its side of the threshold, and refuted"
        " if the whole interval lies on the other side. Otherwise, or with fewer than"
        f" {FEWEST} documents, it is undecided. Documents that share an id or a text count as one.",
        style="dim",
    )


# Reproductions


def reproduction(sections: Sequence[Section]) -> RenderableType:
    """What each experiment found, beside what was published."""
    parts: list[RenderableType] = []
    for section in sections:
        results = section.outcome.results
        names = [section.name, *shared(results).values()]
        about = "".join(f" · {printable(name)}" for name in names)
        title = Text.assemble((printable(section.title), "bold"), (about, "dim"))
        parts += [title, Text(printable(section.question), style="dim"), _Results(results)]
        notes = remarks(results)
        parts += [_Indented(Text(printable(note), style="italic")) for note, _ in notes[:MANY]]
        if left := len(notes[MANY:]):
            parts.append(_Indented(Text(f"and {left} more remarks", style="dim")))
        parts.append(Text(""))
    return Group(*parts)


@dataclass(frozen=True)
class _Results:
    """A table of results; drawn late, because only the console knows how much room a metric has."""

    results: Sequence[Result]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.results:
            return
        results = self._excerpt()
        rows = [(named(r, self.results), ours(r), published(r)) for r in results]
        rows.insert(0, ("", "ours [interval]", "published" if any(row[2] for row in rows) else ""))
        numbers, words = (max(cell_len(row[i]) for row in rows) for i in (1, 2))
        words = min(words, max(9, options.max_width // 4))
        widths = (max(10, options.max_width - numbers - words - 4), numbers, max(1, words))
        for i, row in enumerate(rows):
            yield from self._lines(row, widths, console, "dim" if i == 0 else "")
        if left := len(self.results) - len(results):
            yield Text(f"and {left} more", style="dim")

    def _excerpt(self) -> Sequence[Result]:
        """All of a few results; of many, those that have a published figure."""
        if len(self.results) <= MANY:
            return self.results
        return [r for r in self.results if r.published is not None] or self.results[:MANY]

    def _lines(
        self, row: Sequence[str], widths: Sequence[int], console: Console, style: str
    ) -> Iterator[Text]:
        texts = map(Text, map(printable, row))
        cells = [text.wrap(console, width) for text, width in zip(texts, widths, strict=True)]
        for line in zip_longest(*cells, fillvalue=Text("")):
            plain = [piece.plain.rstrip() for piece in line]
            text = "  ".join(map(set_cell_size, plain, widths))
            yield Text(text.rstrip(), style=style)


# Explanations


@dataclass(frozen=True)
class _Block:
    """Several explanations of one document; drawn late, because the console knows its width."""

    explanations: list[Explanation]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._title()
        first, room = self.explanations[0], options.max_width - margin(self.explanations)
        wide = shaded(first, colours(console)).cell_len > room
        if wide and first.unit not in PASSAGES:
            yield Text(_shortened(first), style="dim")
        yield Text("")
        if comparable(self.explanations):
            yield Comparison(tuple(self.explanations), agreement(self.explanations))
        else:
            yield from side_by_side(self.explanations, console, options)
        for note in dict.fromkeys(note for e in self.explanations for note in e.notes):
            makers = [e.method for e in self.explanations if note in e.notes]
            maker = "note" if len(makers) == len(self.explanations) else ", ".join(makers)
            yield Text(f"{printable(maker)}: {printable(note)}", style="dim")

    def _title(self) -> Text:
        first = self.explanations[0]
        labels = dict.fromkeys(e.label for e in self.explanations)
        explained = ", ".join(
            f"{printable(label)} (p = {number(first.probabilities[label])})" for label in labels
        )
        name = f"{printable(first.document.id)}: " if first.document.id else ""
        return Text.assemble(
            (name, "bold"),
            "explained for ",
            (explained, "bold"),
            (f" · {printable(first.model)}@{printable(first.revision)}", "dim"),
        )


def _shortened(explanation: Explanation) -> str:
    text = " ‖ ".join(printable(segment) for segment in explanation.document.segments)
    return text if len(text) <= _EXCERPT else text[:_EXCERPT].rsplit(" ", 1)[0] + " …"
