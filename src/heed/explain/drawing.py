"""How an explanation looks: shaded words for a terminal and for a page.

Blue speaks for the label, orange against it (a pair that colour-blind readers can tell apart); purple is for methods
without a sign. Without colour, the strong words carry their score in tenths of the largest: great[+9] bad[-7].
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

if TYPE_CHECKING:
    from heed.explain.explanation import Explanation

FOR, AGAINST, UNSIGNED = (0, 114, 178), (213, 94, 0), (130, 90, 170)
_JOINERS = "\u200c\u200d"


def pieces(explanation: Explanation) -> list[list[tuple[str, float | None]]]:
    """Per segment, the text cut at the units: (characters, score relative to the largest), None between units."""
    largest = float(np.abs(explanation.scores).max(initial=0.0)) or 1.0
    found = []
    for index, text in enumerate(explanation.document.segments):
        spans = sorted(
            (start, end, float(score) / largest)
            for unit, score in zip(explanation.units, explanation.scores, strict=True)
            if unit.segment == index
            for start, end in unit.spans
        )
        cut: list[tuple[str, float | None]] = []
        at = 0
        for start, end, share in spans:
            if start > at:
                cut.append((text[at:start], None))
            cut.append((text[start:end], share))
            at = end
        if at < len(text):
            cut.append((text[at:], None))
        found.append(cut)
    return found


def shade(share: float, signed: bool) -> tuple[str, str]:
    """Background and ink of a word: the colour mixed with white by its share, and the ink that stands out on it."""
    colour = (FOR if share > 0 else AGAINST) if signed else UNSIGNED
    mixed = [round(255 - (255 - c) * min(1.0, 0.12 + 0.88 * abs(share))) for c in colour]
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in mixed]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    ink = "#000000" if (luminance + 0.05) ** 2 > 0.0525 else "#ffffff"  # the one of larger contrast (WCAG)
    return "#{:02x}{:02x}{:02x}".format(*mixed), ink


def printable(text: str) -> str:
    """Text that cannot steer a terminal: blanks folded, control and direction characters shown as a dot."""
    folded = re.sub(r"\s+", " ", text)
    return "".join(c if unicodedata.category(c) not in ("Cc", "Cf", "Cs") or c in _JOINERS else "·" for c in folded)


# Terminal


def word(text: str, share: float, signed: bool, colour: bool) -> Text:
    """One shaded word."""
    text = printable(text)
    if not colour:
        tenths = round(abs(share) * 10)
        sign = ("+" if share > 0 else "-") if signed else ""
        return Text(f"{text}[{sign}{tenths}]" if tenths >= 3 else text)
    if abs(share) < 0.05:
        return Text(text)
    ground, ink = shade(share, signed)
    return Text(text, style=f"{ink} on {ground}")


def shaded(explanation: Explanation, colour: bool) -> Text:
    """The whole document with its words shaded."""
    text = Text()
    for index, segment in enumerate(pieces(explanation)):
        if index:
            text.append(" ‖ ", style="dim")
        for piece, share in segment:
            text.append_text(
                Text(printable(piece)) if share is None else word(piece, share, explanation.signed, colour)
            )
    return text


def line(explanation: Explanation, width: int, colour: bool) -> Text:
    """The document on one line; where it is too long, its strongest words in reading order."""
    whole = shaded(explanation, colour)
    if whole.cell_len <= width:
        return whole
    words = [(piece, share) for segment in pieces(explanation) for piece, share in segment if share is not None]
    chosen: set[int] = set()
    best = Text("…")
    for i in sorted(range(len(words)), key=lambda i: -abs(words[i][1])):
        excerpt = _excerpt(words, chosen | {i}, explanation.signed, colour)
        if excerpt.cell_len > width:
            break
        chosen.add(i)
        best = excerpt
    best.truncate(width, overflow="ellipsis")
    return best


def _excerpt(words: list[tuple[str, float]], chosen: set[int], signed: bool, colour: bool) -> Text:
    text, previous = Text(), -1
    for i in sorted(chosen):
        text.append(" " if i == previous + 1 and previous >= 0 else (" … " if previous >= 0 else "… " if i else ""))
        text.append_text(word(*words[i], signed, colour))
        previous = i
    if previous < len(words) - 1:
        text.append(" …")
    return text


def terminal(explanation: Explanation, console: Console, options: ConsoleOptions) -> RenderResult:
    """One explanation in full: what was asked, the shaded text, the strongest words with numbers, the notes."""
    colour = has_colour(console)
    yield Text.assemble(
        (explanation.method, "bold"), " for ", (printable(explanation.label), "bold"),
        f" (p = {explanation.probabilities[explanation.label]:.3f}) · {provenance(explanation)}",
    )  # fmt: skip
    yield line(explanation, 12 * options.max_width, colour)  # of a very long text the strongest words
    yield Text.assemble(("strongest  ", "dim"), "  ".join(strongest(explanation)))
    if explanation.specials:
        apart = "  ".join(f"{printable(s.text)} {s.score:+.3g}" for s in explanation.specials)
        yield Text.assemble(("apart      ", "dim"), apart)
    for note in explanation.notes:
        yield Text(f"note: {printable(note)}", style="dim")


def has_colour(console: Console) -> bool:
    return console.color_system is not None and not console.no_color


def strongest(explanation: Explanation, n: int = 8) -> Iterator[str]:
    """The largest scores in words, with their standard errors where there are any; zeros only if all are."""
    scored = max(1, np.count_nonzero(explanation.scores))
    for i in np.argsort(-np.abs(explanation.scores), kind="stable")[: min(n, scored)]:
        errors = explanation.standard_errors
        error = f"±{errors[i]:.1g}" if errors is not None and errors.any() else ""
        sign = "+" if explanation.signed else ""
        yield f"{printable(explanation.units[i].text)} {explanation.scores[i]:{sign}.3g}{error}"


def provenance(explanation: Explanation) -> str:
    parts = [printable(f"{explanation.model}@{explanation.revision}")]
    if explanation.removal:
        parts.append(f"removal: {explanation.removal}")
    many = f"{explanation.forward_passes:,} evaluation" + ("s" if explanation.forward_passes != 1 else "")
    parts += [many, f"{explanation.seconds * 1000:.0f} ms"]
    return " · ".join(parts)


# Page


def html(explanation: Explanation) -> str:
    """One explanation as a piece of a page, with its styles inline; everything shown is escaped."""
    facts = escape(f" (p = {explanation.probabilities[explanation.label]:.3f}) · {provenance(explanation)}")
    notes = "".join(f"<li>{escape(printable(note))}</li>" for note in explanation.notes)
    apart = ", ".join(f"{s.text} {s.score:+.3g}" for s in explanation.specials)
    return (
        '<div style="margin:.6em 0;font-family:system-ui,sans-serif;line-height:1.7">'
        f"<div><b>{escape(explanation.method)}</b> for <b>{escape(explanation.label)}</b>"
        f'<span style="opacity:.7;font-size:.85em">{facts}</span></div>'
        f"{html_text(explanation)}"
        + (f'<div style="opacity:.7;font-size:.85em">apart: {escape(apart)}</div>' if apart else "")
        + (f'<ul style="opacity:.7;font-size:.85em;margin:.2em 0">{notes}</ul>' if notes else "")
        + "</div>"
    )


def html_text(explanation: Explanation) -> str:
    """The shaded document alone; a word's exact score shows when the pointer rests on it."""
    largest = float(np.abs(explanation.scores).max(initial=0.0))
    rows = []
    for segment in pieces(explanation):
        cut = []
        for piece, share in segment:
            if share is None:
                cut.append(escape(piece))
                continue
            style = "border-radius:3px;padding:0 2px"
            if abs(share) >= 0.05:
                ground, ink = shade(share, explanation.signed)
                style += f";background:{ground};color:{ink}"
            cut.append(f'<span title="{share * largest:+.4g}" style="{style}">{escape(piece)}</span>')
        rows.append(f'<div dir="auto" style="white-space:pre-wrap;overflow-wrap:anywhere">{"".join(cut)}</div>')
    return "".join(rows)
