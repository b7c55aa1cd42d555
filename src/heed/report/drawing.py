"""How an explanation looks: shaded words for a terminal and for a page.

Blue speaks for the label, orange against it (a pair that colour-blind readers can tell apart); purple is for methods
without a sign. Without colour, the strong words carry their score in tenths of the largest: great[+9] bad[-7].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.methods.explanation import Explanation

FOR, AGAINST, UNSIGNED, BELOW = (0, 114, 178), (213, 94, 0), (130, 90, 170), (120, 120, 120)


def cut(explanation: Explanation) -> list[list[tuple[str, int | None]]]:
    """Per segment, the text cut at the units: (characters, index of the unit), None between units."""
    found = []
    for index, text in enumerate(explanation.document.segments):
        spans = sorted(
            (start, end, i)
            for i, unit in enumerate(explanation.units)
            if unit.segment == index
            for start, end in unit.spans
        )
        parts: list[tuple[str, int | None]] = []
        at = 0
        for start, end, i in spans:
            if start > at:
                parts.append((text[at:start], None))
            parts.append((text[start:end], i))
            at = end
        if at < len(text):
            parts.append((text[at:], None))
        found.append(parts)
    return found


def shares(explanation: Explanation) -> list[float]:
    """Scores relative to the largest."""
    largest = float(np.abs(explanation.scores).max(initial=0.0)) or 1.0
    return [float(score) / largest for score in explanation.scores]


def pieces(explanation: Explanation) -> list[list[tuple[str, float | None]]]:
    """Per segment, the text cut at the units: (characters, score relative to the largest), None between units."""
    share = shares(explanation)
    return [
        [(text, None if i is None else share[i]) for text, i in segment]
        for segment in cut(explanation)
    ]


def _colour(share: float, signed: bool) -> tuple[int, int, int]:
    return (FOR if share > 0 else AGAINST) if signed else UNSIGNED if share > 0 else BELOW


def shade(share: float, signed: bool) -> tuple[str, str]:
    """Background and ink of a word: the colour mixed with white by its share, and the ink that stands out on it."""
    mixed = [
        round(255 - (255 - c) * min(1.0, 0.12 + 0.88 * abs(share))) for c in _colour(share, signed)
    ]
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in mixed]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    ink = (
        "#000000" if (luminance + 0.05) ** 2 > 0.0525 else "#ffffff"
    )  # the one of larger contrast (WCAG)
    return "#{:02x}{:02x}{:02x}".format(*mixed), ink


def tint(share: float, signed: bool) -> str:
    """The same for pages: the colour laid thinly over any ground, light or dark, so that its ink stands out."""
    return rgba(_colour(share, signed), 0.75 * min(1.0, 0.12 + 0.88 * abs(share)))


def rgba(colour: tuple[int, int, int], alpha: float) -> str:
    return "rgba({},{},{},{:.2f})".format(*colour, alpha)


# Terminal


def word(text: str, share: float, signed: bool, colour: bool) -> Text:
    """One shaded word."""
    text = printable(text)
    if not colour:
        tenths = round(abs(share) * 10)
        sign = "-" if share < 0 else "+" if signed else ""
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
                Text(printable(piece))
                if share is None
                else word(piece, share, explanation.signed, colour)
            )
    return text


def line(explanation: Explanation, width: int, colour: bool) -> Text:
    """The document on one line; where it is too long, its strongest words in reading order."""
    whole = shaded(explanation, colour)
    if whole.cell_len <= width:
        return whole
    words = [
        (piece, share)
        for segment in pieces(explanation)
        for piece, share in segment
        if share is not None
    ]
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
        text.append(
            " "
            if i == previous + 1 and previous >= 0
            else (" … " if previous >= 0 else "… " if i else "")
        )
        text.append_text(word(*words[i], signed, colour))
        previous = i
    if previous < len(words) - 1:
        text.append(" …")
    return text


def banded(explanation: Explanation, width: int, colour: bool) -> Iterator[Text]:
    """The shaded document, line by line, with a faint band under each word: its interval, and a dot for its score.

    A word's left edge is 0, its right edge the largest upper end of all.
    """
    assert explanation.intervals is not None
    top, share = _top(explanation), shares(explanation)
    line_, chunk = (Text(), Text()), (Text(), Text())
    for number, segment in enumerate(cut(explanation)):
        last = number == len(explanation.document.segments) - 1
        for text, i in [
            *([(" ‖ ", None)] if number else []),
            *_split(segment),
            *([(" ", None)] if last else []),
        ]:
            if i is not None:
                drawn = word(text, share[i], explanation.signed, colour)
                low, high = explanation.intervals[i] / top
                looked = not np.isnan(low)
                band = (
                    _band(low, high, explanation.scores[i] / top, drawn.cell_len) if looked else ""
                )
                under = Text(band.ljust(drawn.cell_len), style="dim")
            else:
                drawn = Text(printable(text))
                under = Text(" " * drawn.cell_len)
            if any(c.isspace() for c in text):  # a line may end here
                if line_[0].cell_len and line_[0].cell_len + chunk[0].cell_len > width:
                    yield from _trimmed(line_)
                    line_ = (Text(), Text())
                line_ = (line_[0].append_text(chunk[0]), line_[1].append_text(chunk[1]))
                chunk = (Text(), Text())
            chunk = (chunk[0].append_text(drawn), chunk[1].append_text(under))
            if i is None and text.isspace():
                line_, chunk = (
                    (line_[0].append_text(chunk[0]), line_[1].append_text(chunk[1])),
                    (Text(), Text()),
                )
    yield from _trimmed(line_)


def _split(parts: list[tuple[str, int | None]]) -> Iterator[tuple[str, int | None]]:
    """The same with what lies between units, which may be all that was not read, split at blanks."""
    for text, i in parts:
        yield from (
            [(text, i)]
            if i is not None
            else [(piece, None) for piece in re.split(r"(\s+)", text) if piece]
        )


def _trimmed(lines: tuple[Text, Text]) -> Iterator[Text]:
    """A line and what is under it, if there is anything."""
    for text in lines:
        text.rstrip()
    yield from lines if lines[1].plain else lines[:1]


def _band(low: float, high: float, score: float, cells: int) -> str:
    def cell(share: float) -> int:
        return min(cells - 1, max(0, int(share * cells)))

    start, end, at = cell(low), cell(high), cell(score)
    return "".join("•" if i == at else "─" if start <= i <= end else " " for i in range(cells))


def _top(explanation: Explanation) -> float:
    """The largest upper end of all intervals."""
    assert explanation.intervals is not None
    ends = explanation.intervals[~np.isnan(explanation.intervals)]
    return float(ends.max(initial=0.0)) or 1.0


def _shared(explanation: Explanation) -> str:
    """What all attention within the intervals has in common."""
    if explanation.settings.get("level") != "prediction":
        return "the same output"
    return (
        "the same prediction, to first order,"
        if explanation.facts.get("first_order")
        else "the same prediction"
    )


def band_legend(explanation: Explanation) -> str:
    assert explanation.intervals is not None
    top = _top(explanation)
    return (
        f"Under each word, from 0 on its left to {top:.2g} on its right: • its weight, and between which weights "
        f"all attention with {_shared(explanation)} lies."
        + (
            " Where there is nothing, nobody looked."
            if np.isnan(explanation.intervals).any()
            else ""
        )
    )


def terminal(explanation: Explanation, console: Console, options: ConsoleOptions) -> RenderResult:
    """One explanation in full: what was asked, the shaded text, the strongest words with numbers, the notes."""
    colour = has_colour(console)
    yield Text.assemble(
        (explanation.method, "bold"), " for ", (printable(explanation.label), "bold"),
        f" (p = {explanation.probabilities[explanation.label]:.3f}) · {provenance(explanation)}",
    )  # fmt: skip
    if explanation.intervals is None:
        yield line(
            explanation, 12 * options.max_width, colour
        )  # of a very long text the strongest words
    else:
        yield from banded(explanation, options.max_width, colour)
        yield Text(band_legend(explanation), style="dim")
    yield Text.assemble(("strongest  ", "dim"), "  ".join(strongest(explanation)))
    if explanation.specials:
        apart = "  ".join(f"{printable(s.text)} {s.score:+.3g}" for s in explanation.specials)
        yield Text.assemble(("apart      ", "dim"), apart)
    if explanation.facts:
        known = " · ".join(
            f"{name.replace('_', ' ')} {value:.3g}" for name, value in explanation.facts.items()
        )
        yield Text.assemble(("measured   ", "dim"), printable(known))
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
        if explanation.intervals is not None and not np.isnan(explanation.intervals[i, 0]):
            error = " [{:.2g}, {:.2g}]".format(*explanation.intervals[i])
        sign = "+" if explanation.signed else ""
        yield f"{printable(explanation.units[i].text)} {explanation.scores[i]:{sign}.3g}{error}"


def provenance(explanation: Explanation) -> str:
    parts = [printable(f"{explanation.model}@{explanation.revision}")]
    if explanation.removal:
        parts.append(f"removal: {explanation.removal}")
    many = counted(explanation.forward_passes, "evaluation")
    parts += [many, f"{explanation.seconds * 1000:.0f} ms"]
    return " · ".join(parts)


# Page


def html(explanation: Explanation) -> str:
    """One explanation as a piece of a page, with its styles inline; everything shown is escaped."""
    facts = escape(
        f" (p = {explanation.probabilities[explanation.label]:.3f}) · {provenance(explanation)}"
    )
    notes = "".join(f"<li>{escape(printable(note))}</li>" for note in explanation.notes)
    apart = ", ".join(f"{s.text} {s.score:+.3g}" for s in explanation.specials)
    return (
        '<div style="margin:.6em 0;font-family:system-ui,sans-serif;line-height:1.7">'
        f"<div><b>{escape(explanation.method)}</b> for <b>{escape(explanation.label)}</b>"
        f'<span style="opacity:.7;font-size:.85em">{facts}</span></div>'
        f"{html_text(explanation)}{html_intervals(explanation)}"
        + (f'<div style="opacity:.7;font-size:.85em">apart: {escape(apart)}</div>' if apart else "")
        + (f'<ul style="opacity:.7;font-size:.85em;margin:.2em 0">{notes}</ul>' if notes else "")
        + "</div>"
    )


def html_text(explanation: Explanation) -> str:
    """The shaded document alone; a word's exact score shows when the pointer rests on it."""
    share, rows = shares(explanation), []
    top = 1.0 if explanation.intervals is None else _top(explanation)
    for segment in cut(explanation):
        drawn = []
        for text, i in segment:
            if i is None:
                drawn.append(escape(text))
                continue
            style, title = "border-radius:3px;padding:0 2px", f"{explanation.scores[i]:+.4g}"
            if abs(share[i]) >= 0.05:
                style += f";background-color:{tint(share[i], explanation.signed)}"
            if explanation.intervals is not None and not np.isnan(explanation.intervals[i, 0]):
                low, high = explanation.intervals[i]
                title += f" (between {low:.3g} and {high:.3g})"
                style += f";padding-bottom:5px;{_stripe(low / top, high / top)}"
            drawn.append(f'<span title="{title}" style="{style}">{escape(text)}</span>')
        rows.append(
            f'<div dir="auto" style="white-space:pre-wrap;overflow-wrap:anywhere">{"".join(drawn)}</div>'
        )
    return "".join(rows)


def _stripe(low: float, high: float) -> str:
    """A faint stripe under a word, from one share of its width to another."""
    a, b = 100 * min(low, 0.97), 100 * max(high, low + 0.03)
    stops = f"transparent {a:.1f}%,#888 {a:.1f}%,#888 {b:.1f}%,transparent {b:.1f}%"
    return (
        f"background-image:linear-gradient(90deg,{stops});background-size:100% 3px;background-position:0 100%;"
        + ("background-repeat:no-repeat")
    )


def html_intervals(explanation: Explanation, n: int = 12) -> str:
    """The words with the largest upper ends: what attention is, what is made of it, and between what it may lie."""
    intervals, raw = explanation.intervals, explanation.raw
    if intervals is None or raw is None or not len(raw):
        return ""
    top, rows, ends = _top(explanation), [], np.nan_to_num(intervals[:, 1], nan=-1.0)
    for i in np.argsort(-ends, kind="stable")[: min(n, int((ends >= 0).sum()))]:
        low, high = intervals[i]
        left, width = 100 * low / top, max(0.5, 100 * (high - low) / top)
        marks = "".join(
            f'<i style="position:absolute;top:{y}px;left:calc({100 * max(0.0, x) / top:.1f}% - 5px);width:10px;'
            f'height:10px;box-sizing:border-box;border-radius:50%;{look}"></i>'
            for x, y, look in (
                (raw[i], 3, "border:2px solid #d55e00"),
                (explanation.scores[i], 3, "background:#0072b2"),
            )
        )
        rows.append(
            f'<tr><th style="text-align:right;font-weight:400;padding:0 .8em 0 0">'
            f"{escape(printable(explanation.units[i].text))}</th>"
            '<td style="width:100%;padding:0"><div style="position:relative;height:16px;margin:0 6px">'
            f'<i style="position:absolute;top:5px;height:6px;left:{left:.1f}%;width:{width:.1f}%;'
            f'background:rgba(128,128,128,.45)"></i>{marks}</div></td>'
            f'<td style="white-space:nowrap;padding:0 0 0 .8em">{raw[i]:.3f} → {explanation.scores[i]:.3f} '
            f"[{low:.3f}, {high:.3f}]</td></tr>"
        )
    return (
        '<table style="border-collapse:collapse;font-size:.85em;line-height:1.3;margin:.6em 0;width:100%;'
        'max-width:44em"><caption style="text-align:left;opacity:.75">'
        '<span style="color:#d55e00">○</span> attention &nbsp; <span style="color:#0072b2">●</span> '
        f"{escape(explanation.method)} &nbsp; grey: where attention with {_shared(explanation)} can lie"
        f" (0 to {top:.2g})"
        f"</caption><tbody>{''.join(rows)}</tbody></table>"
    )
