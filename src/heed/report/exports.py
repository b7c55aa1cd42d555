"""An audit to take along: a section for a report or a model card, a table for LaTeX, plain tables.

Markdown and LaTeX are for people: numbers are written as everywhere. JSON and CSV are for programs,
and hold them in full.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

from heed.audit.answer import Answer, Tile
from heed.report.answer import answer
from heed.report.markup import code, md, md_table, plain_cell
from heed.report.numbers import number
from heed.report.planned import followed
from heed.report.words import (
    SYMBOLS,
    beside,
    changed,
    checks,
    outcome,
    summary,
    verdict_interval,
)
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.claims import Verdict

HEADING = "Evaluation: does attention explain?"


def to_json(audit: Audit) -> str:
    """Facts, answer, verdicts and summary."""
    values = audit.to_dict() | {"summary": summary(audit)}
    return json.dumps(values, ensure_ascii=False, indent=1)


# CSV


def to_csv(audit: Audit) -> str:
    """One line for each verdict."""
    records = audit.records()
    columns = list(dict.fromkeys(key for record in records for key in record))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(plain_cell, columns))
    writer.writerows([plain_cell(record.get(c)) for c in columns] for record in records)
    return file.getvalue().removesuffix("\n")


# Markdown


def to_markdown(audit: Audit) -> str:
    """A section for a report or a model card: the answer, its tiles, and what was judged."""
    found = answer(audit)
    parts = [
        f"## {HEADING}",
        f"**{md(found.sentence)}**",
        *map(md, found.beside.values()),
        md_table(("", "family", "answer", "statistic", "holds if"), map(_md_tile, found.tiles)),
        *(md(text) for text in _next(found)),
        "### Verdicts",
        md_table(_TITLES, map(_md_verdict, _judged(audit))),
        *(f"Checks, true by algebra: {md(str(check))}." for check in checks(audit)),
        "✓ supported: the whole interval lies on the claim's side of the threshold; ✗ refuted: on"
        " the other side; ~ undecided; – not tested, or not applicable. Thresholds were fixed"
        " before anything was measured, and the intervals hold for all verdicts together at 95 %.",
        md(" · ".join(_about(audit))),
    ]
    if text := changed(audit):
        parts.append(md(text))
    if command := audit.facts.get("command"):
        parts.append(f"Made by {code(printable(command))}.")
    return "\n\n".join(parts)


_TITLES = ("claim", "explanation", "mean [interval]", "holds if", "n", "verdict", "beside it")


def _judged(audit: Audit) -> list[Verdict]:
    return [v for v in audit.verdicts if v.outcome != "not applicable"]


def _next(found: Answer) -> Iterator[str]:
    if found.use_instead:
        yield f"Use instead: {found.use_instead}."
    if found.not_tested:
        texts = (f"{', '.join(u.claims)} ({u.how})" for u in found.not_tested)
        yield f"Not tested: {'; '.join(texts)}."


def _about(audit: Audit) -> Iterator[str]:
    """What was audited, in a line."""
    facts = audit.facts
    yield f"{facts['model']}@{facts['revision']}"
    yield str(facts["data"])
    yield counted(facts["documents"])
    if facts.get("accuracy") is not None:
        yield f"accuracy {number(facts['accuracy'])}"
    yield f"judged: {', '.join(facts['methods'])}"
    if text := followed(audit):
        yield text
    yield f"seed {facts['seed']}"
    yield f"heed {facts['heed']}"


def _md_tile(tile: Tile) -> tuple[str, ...]:
    return tile.symbol, tile.family, md(tile.says), tile.value, md(tile.threshold)


def _md_verdict(v: Verdict) -> tuple[str, ...]:
    texts = " · ".join(f"{name} {value}" for name, value in beside(v))
    verdict = f"{SYMBOLS[v.outcome]} {outcome(v)}"
    numbers = md(verdict_interval(v)), md(v.claim.side()), f"{v.n:,}"
    method = md(v.method) if v.claim.of_explanation else ""
    return code(printable(v.claim.id)), method, *numbers, verdict, md(texts)


# LaTeX


def to_latex(audit: Audit) -> str:
    """A table of what was judged, with a caption; it needs the package booktabs."""
    found = answer(audit)
    several = len(audit.facts["methods"]) > 1
    titles = [
        "Claim",
        *(["Method"] if several else []),
        "Mean",
        "Interval",
        "Holds if",
        "$n$",
        "Verdict",
    ]
    rows = [_tex_verdict(v, several) for v in _judged(audit)]
    caption = " ".join([found.sentence, *_next(found)])
    about = ", ".join(_about(audit))
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_tex(caption)} ({_tex(about)}.)}}",
        r"\label{tab:attention-audit}",
        r"\small",
        rf"\begin{{tabular}}{{l{'l' if several else ''}rcrrl}}",
        r"\toprule",
        " & ".join(titles) + r" \\",
        r"\midrule",
        *(" & ".join(cells) + r" \\" for cells in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _tex_verdict(v: Verdict, several: bool) -> list[str]:
    method = [_tex(v.method if v.claim.of_explanation else "")] if several else []
    mean, _, ends = verdict_interval(v).partition(" ")
    side = f"${'>' if v.claim.above else '<'}$ {_tex_number(v.claim.side()[2:])}"
    numbers = [_tex_number(mean), _tex_number(ends), side, _tex(f"{v.n:,}")]
    return [rf"\texttt{{{_tex(v.claim.id)}}}", *method, *numbers, _tex(outcome(v))]


# What LaTeX reads otherwise, or has no letter for in its default fonts.
_TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "τ": r"$\tau$",
    "ρ": r"$\rho$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "·": r"$\cdot$",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "−": "$-$",
    "…": r"\ldots{}",
    "“": "``",
    "”": "''",
    "’": "'",
}


def _tex(text: str) -> str:
    letters = "".join(map(_tex_letter, unicodedata.normalize("NFC", printable(text))))
    return re.sub("-(?=-)", "-{}", letters)  # else two hyphens make a dash


def _tex_number(text: str) -> str:
    """Numbers, with minus signs in the place of hyphens."""
    return re.sub(r"-(?=[\d.])", "$-$", _tex(text))


def _tex_letter(letter: str) -> str:
    """A letter for any LaTeX: Latin letters stay, others become what they are composed of."""
    if letter in _TEX:
        return _TEX[letter]
    if letter.isascii() or (letter.isalpha() and "\u00c0" <= letter <= "\u017f"):
        return letter
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return "".join(_TEX.get(c, c) for c in plain) or f"[U+{ord(letter):04X}]"


WRITERS = {".json": to_json, ".csv": to_csv, ".md": to_markdown, ".tex": to_latex}
