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

from heed.methods import Comparison
from heed.methods.units import PASSAGES
from heed.report.audit_terminal import audit as audit
from heed.report.comparison import margin, side_by_side, table
from heed.report.explanation import by_document, comparable, shaded
from heed.report.numbers import number
from heed.report.results import MANY, named, ours, published, remarks, shared
from heed.report.shading import colours
from heed.text import printable

if TYPE_CHECKING:
    from heed.methods import Explanation
    from heed.papers.results import Result, Section

_EXCERPT = 300  # characters of a document that is too long for its line


def explanations(
    explanations: Sequence[Explanation],
    agreement: bool = False,
    remarks: Sequence[str] = (),
    hint: str = "",
) -> RenderableType:
    """One block per document: a single explanation in full, several side by side.

    agreement   whether to show how far several methods agree
    remarks     sentences for the end
    hint        what else can be asked for
    """
    groups = by_document(explanations)
    parts: list[RenderableType] = []
    for i, group in enumerate(groups):
        if i:
            parts += [Text(""), Rule(style="dim"), Text("")]
        parts.append(group[0] if len(group) == 1 else _Block(group, agreement))
    parts += [Text(printable(remark)) for remark in remarks]
    if hint:
        parts.append(Text(hint, style="dim"))
    return Group(*parts)


@dataclass(frozen=True)
class _Indented:
    """Text set in from the left; rich's own padding would leave blanks at the end of every line."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.text.wrap(console, max(10, options.max_width - 4)):
            line.rstrip()
            yield Text("    ").append_text(line)


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
    agreement: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._title()
        first, room = self.explanations[0], options.max_width - margin(self.explanations)
        wide = shaded(first, colours(console)).cell_len > room
        if wide and first.unit not in PASSAGES:
            yield Text(_shortened(first), style="dim")
        yield Text("")
        yield from side_by_side(self.explanations, console, options)
        if self.agreement and comparable(self.explanations):
            yield Text("")
            yield table(Comparison(tuple(self.explanations)), options.max_width)
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
