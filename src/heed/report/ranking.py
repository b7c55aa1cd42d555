"""A ranking of methods: on a terminal, as a page, as Markdown and as tables of numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from heed.report.markup import md, md_table, plain_cell
from heed.report.numbers import cell, duration, number
from heed.report.page import pairs, render
from heed.report.standings import faithful
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.rank import Ranking, Standing

BEST, BELOW = "●", "○"  # of the group that cannot be told from the best, or below it
_WIDE = 80


def sentence(ranking: Ranking) -> str:
    """What to use, and why; or why nothing is recommended."""
    chosen = ranking.recommended
    if chosen is None:
        return f"Nothing is recommended: {ranking.reason}."
    return f"Use {chosen.method}: {ranking.reason}."


# Columns


@dataclass(frozen=True)
class Column:
    """A number of each method.

    key      its name in `Standing.others`, or the beginning of that of parts, whose mean is shown
    title    its name in tables
    says     what it means
    rank     which columns give way first where there is no room for all: the last ones
    """

    key: str
    title: str
    says: str
    rank: int

    def text(self, standing: Standing) -> str:
        known = [v for k, v in standing.parts.items() if k.startswith(self.key)]
        value = sum(known) / len(known) if known else standing.others.get(self.key)
        if value is None:
            return "–"
        if self.key == "seconds":
            return "<0.01" if value < 0.01 else number(value, decimals=2)
        return number(value, decimals=0) if self.key == "evaluations" else cell(value)


COLUMNS = (
    Column(
        "comprehensiveness",
        "removed",
        "how much the output falls when the top words are removed, 0 to 1 as in faithful",
        7,
    ),
    Column("sufficiency", "kept", "how much of the output the top words alone keep, 0 to 1", 6),
    Column("signs", "signs", "share of words with the sign of LIME, where LIME is sure", 2),
    Column(
        "stability",
        "seeds",
        "Kendall's τ between two runs with different seeds, on the first 20 documents",
        3,
    ),
    Column(
        "sensitivity",
        "untrained",
        "Spearman's ρ with the explanation of the same model with random weights, on the first 20"
        " documents: near 0 is good",
        4,
    ),
    Column(
        "plausibility",
        "people",
        "average precision against what people marked, above that of a random order",
        0,
    ),
    Column("evaluations", "texts", "texts that the model reads for one document", 1),
    Column("seconds", "seconds", "seconds for one document", 5),
)
FAITHFUL = (
    "how much the top words matter, over removing and keeping 5 to 50 % of the words by"
    " {removals}: 0 is the worst order of the words, 1 the best"
)


def columns(ranking: Ranking) -> list[Column]:
    """The columns that some method has a number for."""
    return [c for c in COLUMNS if any(c.text(s) != "–" for s in ranking.standings)]


def _mark(ranking: Ranking, standing: Standing) -> str:
    if not ranking.decides:
        return " "
    return BEST if standing.best else BELOW


def name(standing: Standing) -> str:
    return f"{standing.method} (chance)" if standing.chance else standing.method


def legend(ranking: Ranking, shown: Sequence[Column]) -> Iterator[tuple[str, str]]:
    """What each column means."""
    together = ""
    if ranking.decides:
        yield BEST, "cannot be told from the best method"
        together = "; ± holds for all methods together"
    yield "faithful", FAITHFUL.format(removals=_listed(ranking.facts["removals"])) + together
    for column in shown:
        yield column.title, column.says


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def about(ranking: Ranking) -> Iterator[str]:
    """What the ranking rests on."""
    facts = ranking.facts
    yield counted(ranking.documents)
    if ranking.independent < ranking.documents:
        yield f"{ranking.independent:,} of them independent"
    if (missing := facts["documents"] - ranking.documents) > 0:
        yield f"{missing:,} more not ranked (too few words, or their removal changes nothing)"
    if facts.get("left_out"):
        yield f"{facts['left_out']:,} left out (blank, or no {facts['unit']} that the model reads)"
    if facts.get("unfit"):
        yield f"left out: {facts['unfit']}"
    if facts["unit"] != "word":
        yield f"scored: {facts['unit']}s"
    yield f"seed {facts['seed']}"
    yield duration(facts["seconds"])


def left_out(ranking: Ranking) -> Iterator[str]:
    """Methods that did not run, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for method, reason in ranking.left_out.items():
        # refusals begin with the method that they speak of
        reason = reason.removeprefix(f"{method} ").removesuffix(".")
        by_reason.setdefault(reason, []).append(method)
    for reason, methods in by_reason.items():
        yield f"{', '.join(methods)}: {reason}"


# Terminal


def terminal(ranking: Ranking) -> _Screen:
    """The recommendation and a table; wide terminals show more columns."""
    return _Screen(ranking)


@dataclass(frozen=True)
class _Screen:
    ranking: Ranking

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        ranking, facts = self.ranking, self.ranking.facts
        wide = max(_WIDE, options.max_width)
        rows = [
            [
                f"{_mark(ranking, s)} {printable(name(s))}",
                faithful(ranking, s),
                *(c.text(s) for c in COLUMNS),
            ]
            for s in ranking.standings
        ]
        titles = ["  method", "faithful", *(c.title for c in COLUMNS)]
        widths = [max(map(cell_len, column)) for column in zip(titles, *rows, strict=True)]
        widths[0] = min(widths[0], 32)
        kept = self._fitting(widths, wide)
        shown = [COLUMNS[i - 2] for i in kept[2:]]
        model = printable(f"{facts['model']}@{facts['revision']}")
        yield Text.assemble(
            ("Ranking of methods for ", "dim"),
            (model, "bold"),
            (" on ", "dim"),
            (printable(str(facts["data"])), "bold"),
        )
        yield Text(printable(" · ".join(about(ranking))))
        yield Text("")
        yield Text(printable(sentence(ranking)), style="bold")
        yield Text("")
        yield _line(titles, widths, kept, "dim")
        for standing, row in zip(ranking.standings, rows, strict=True):
            yield _line(row, widths, kept, self._style(standing))
        yield Text("")
        for title, says in legend(ranking, shown):
            yield Text(f"{title}: {says}", style="dim")
        for text in left_out(ranking):
            yield Text(printable(f"Left out: {text}"), style="dim")

    def _style(self, standing: Standing) -> str:
        if standing.chance:
            return "dim"
        chosen = self.ranking.recommended
        return "bold rgb(0,140,210)" if chosen and standing.method == chosen.method else ""

    def _fitting(self, widths: Sequence[int], wide: int) -> list[int]:
        """Which columns there is room for: the name and `faithful`, then by their ranks."""
        known = columns(self.ranking)
        kept, used = [0, 1], widths[0] + 2 + widths[1]
        for i in sorted(range(len(COLUMNS)), key=lambda i: COLUMNS[i].rank):
            needed = widths[i + 2] + 2
            if COLUMNS[i] in known and used + needed <= wide:
                kept.append(i + 2)
                used += needed
        return sorted(kept)


def _line(cells: Sequence[str], widths: Sequence[int], kept: Sequence[int], style: str) -> Text:
    first, *others = kept
    text = cells[first]
    if cell_len(text) > widths[first]:
        text = set_cell_size(text, widths[first] - 1) + "…"
    text = set_cell_size(text, widths[first])
    return Text(text + "".join(f"  {cells[i]:>{widths[i]}}" for i in others), style=style)


# Files


def as_json(ranking: Ranking) -> str:
    return json.dumps(ranking.to_dict(), ensure_ascii=False, indent=1)


def as_csv(ranking: Ranking) -> str:
    """One line for each method, with numbers in full."""
    records = ranking.records()
    titles = list(dict.fromkeys(key for record in records for key in record))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows([plain_cell(record.get(title)) for title in titles] for record in records)
    return file.getvalue().removesuffix("\n")


def as_markdown(ranking: Ranking) -> str:
    """The recommendation and the table, for a report or a model card."""
    shown = columns(ranking)
    titles = ("", "method", "faithful", *(c.title for c in shown))
    rows = [
        (_mark(ranking, s), md(name(s)), faithful(ranking, s), *(c.text(s) for c in shown))
        for s in ranking.standings
    ]
    facts = ranking.facts
    subject = f"{facts['model']}@{facts['revision']} · {facts['data']}"
    parts = [
        "## Which explanation to use",
        f"**{md(sentence(ranking))}**",
        md_table(titles, rows),
        "\n".join(f"- {md(title)}: {md(says)}" for title, says in legend(ranking, shown)),
        md(" · ".join([subject, *about(ranking), f"heed {facts['heed']}"])),
    ]
    return "\n\n".join(parts)


def html(ranking: Ranking) -> str:
    """A page: one file, without scripts."""
    from heed.report import charts, standings

    shown = columns(ranking)
    facts = ranking.facts
    pictures = {}
    for key, chart, narrow in standings.every(ranking):
        drawn = charts.svg(chart, f"wide-{key}"), charts.svg(narrow, f"narrow-{key}")
        pictures[key] = Markup("".join(f"<div>{svg}</div>" for svg in drawn))
    return render(
        "ranking.html.j2",
        title=f"Which explanation to use for {facts['model']} on {facts['data']}",
        sentence=sentence(ranking),
        chosen=None if ranking.recommended is None else ranking.recommended.method,
        about=list(about(ranking)),
        pictures=pictures,
        titles=[c.title for c in shown],
        rows=[
            (s, _mark(ranking, s), faithful(ranking, s), [c.text(s) for c in shown])
            for s in ranking.standings
        ],
        legend=list(legend(ranking, shown)),
        parts=_parts(ranking),
        left_out=list(left_out(ranking)),
        settings=[
            (method, ", ".join(f"{k} = {v}" for k, v in pairs(facts["settings"])) or "no settings")
            for method, facts in ranking.methods.items()
        ],
        provenance=[
            ("model", f"{facts['model']} (revision {facts['revision']})"),
            ("data", f"{facts['data']}, {counted(facts['documents'])}"),
            ("seed", str(facts["seed"])),
            ("heed version", str(facts["heed"])),
        ],
        command=facts.get("command"),
    )


def _parts(ranking: Ranking) -> tuple[list[str], list[list[str]]]:
    """Faithfulness by kind and way to remove words: titles, and a row for each method."""
    keys = list(dict.fromkeys(key for s in ranking.standings for key in s.parts))
    named = {"comprehensiveness": "removed", "sufficiency": "kept"}
    titles = []
    for key in keys:
        kind, _, removal = key.partition("_")
        titles.append(f"{named[kind]}, {removal}")
    return titles, [
        [name(s), *(cell(s.parts.get(key, float("nan"))) for key in keys)]
        for s in ranking.standings
    ]


def html_table(ranking: Ranking) -> str:
    """The recommendation and the table, for a notebook."""
    shown = columns(ranking)
    titles = ("", "method", "faithful", *(c.title for c in shown))
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = ""
    for s in ranking.standings:
        cells = (_mark(ranking, s), name(s), faithful(ranking, s), *(c.text(s) for c in shown))
        body += f"<tr>{''.join(f'<td>{escape(printable(text))}</td>' for text in cells)}</tr>"
    said = escape(printable(sentence(ranking)))
    return f"<p><strong>{said}</strong></p><table><tr>{head}</tr>{body}</table>"
