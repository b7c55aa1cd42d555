"""One explanation: shaded words on a terminal, and as a piece of a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from heed.methods.explanation import OUTSIDE, PADDING, SINK, TEMPLATE
from heed.methods.units import PASSAGES
from heed.report import shading
from heed.report.numbers import number, short
from heed.report.shading import Piece, colours, pieces, shares, word
from heed.report.words import FACTS
from heed.text import counted, printable

_BRIEF = 40  # characters of a passage in a list of the strongest
_BETWEEN = 300  # characters of what lies between passages, or was not read
_PASSAGES = 20  # passages that a terminal lists; of more, the strongest

if TYPE_CHECKING:
    from heed.methods.explanation import Explanation, Special
    from heed.text import Document


def by_document(explanations: Iterable[Explanation]) -> list[list[Explanation]]:
    """Explanations grouped by the document that they explain, in order of appearance."""
    groups: dict[Document, list[Explanation]] = {}
    for e in explanations:
        groups.setdefault(e.document, []).append(e)
    return list(groups.values())


def comparable(explanations: Sequence[Explanation]) -> bool:
    """Whether they can be correlated: several, of one label, over the same kind of units."""
    return len(explanations) > 1 and len({(e.label, e.unit) for e in explanations}) == 1


# Words on a terminal


def legend(explanations: Sequence[Explanation], colours: int) -> Iterator[Text]:
    """One line that says what the colours mean, or the numbers in brackets where there are none."""
    signs = {e.signed for e in explanations}
    if not colours:
        marks = {(1, True): "[+10]", (-1, True): "[-10]", (1, False): "[10]"}
        meanings = [(m, s, signed) for m, s, signed in shading.MEANINGS if signed in signs]
        parts = [f"{marks[sign, signed]} {meaning}" for meaning, sign, signed in meanings]
        yield Text(" · ".join(parts), style="dim")
        return
    line = Text.assemble(("strength", "dim"))
    for meaning, sign, signed in shading.MEANINGS:
        if signed not in signs:
            continue
        line.append(" ")
        for level, step in enumerate(shading.STEPS, 1):
            look = shading.style(sign * step, signed, colours)
            line.append(" ").append(str(level), look)
        line.append(f" {meaning}", "dim")
    yield line


def shaded(explanation: Explanation, colours: int) -> Text:
    """The whole document with its words shaded; of passages, their numbers."""
    share = shares(explanation)
    if explanation.unit in PASSAGES:
        numbers = (
            word(str(i), share[i - 1], explanation.signed, colours)
            for i in range(1, len(share) + 1)
        )
        return Text(" ").join(numbers)
    text = Text()
    for index, segment in enumerate(pieces(explanation)):
        if index:
            text.append(" ‖ ", style="dim")
        for piece, i in segment:
            if i is None:
                text.append(printable(piece))
            else:
                text.append_text(word(piece, share[i], explanation.signed, colours))
    return text


def line(explanation: Explanation, width: int, colours: int) -> Text:
    """The document on one line; if it is too long, its strongest words in reading order."""
    whole = shaded(explanation, colours)
    if whole.cell_len <= width:
        return whole
    share = shares(explanation)
    named = [(piece, i) for piece, i in chain.from_iterable(pieces(explanation)) if i is not None]
    if explanation.unit in PASSAGES:
        named = [(str(i + 1), i) for i in range(len(share))]
    units = [(piece, share[i]) for piece, i in named]
    words = [word(piece, score, explanation.signed, colours) for piece, score in units]
    strongest: set[int] = set()
    best = Text("…")
    for at in sorted(range(len(units)), key=lambda at: -abs(units[at][1])):
        excerpt = _excerpt(words, strongest | {at})
        if excerpt.cell_len > width:
            break
        strongest.add(at)
        best = excerpt
    best.truncate(width, overflow="ellipsis")
    return best


def numbered(explanations: Sequence[Explanation], width: int) -> Iterator[Text]:
    """The passages of a document, one per line, with their numbers."""
    units = explanations[0].units
    listed_units = _strongest_passages(explanations)
    digits = len(str(len(units)))
    for i in listed_units:
        text = Text.assemble((f"{i + 1:>{digits}}  ", "dim"), printable(units[i].text))
        text.truncate(width, overflow="ellipsis")
        yield text
    yield from _left_out(explanations[0], len(listed_units))


def _strongest_passages(explanations: Sequence[Explanation]) -> list[int]:
    """The passages with the largest shares of a method's largest score, in reading order."""
    peaks = np.max([np.abs(shares(e)) for e in explanations], 0)
    return sorted(np.argsort(-peaks, kind="stable")[:_PASSAGES].tolist())


def _left_out(explanation: Explanation, listed_units: int) -> Iterator[Text]:
    """Where to see the passages that a terminal does not list."""
    total = len(explanation.units)
    if listed_units < total:
        yield Text(
            f"the strongest {listed_units} of {counted(total, explanation.unit)}; a page"
            " (-o FILE.html) has all",
            style="dim",
        )


def listed(explanation: Explanation, console: Console, width: int) -> Iterator[Text]:
    """The passages of a document, each with its score before it, and what lies between them.

    Of many passages, only the strongest.
    """
    kept = set(_strongest_passages([explanation]))
    whole = len(kept) == len(explanation.units)
    share, many = shares(explanation), colours(console)
    scores = [number(x, signed=explanation.signed) for x in explanation.scores]
    margin = max(map(len, scores), default=0)
    for index, segment in enumerate(pieces(explanation)):
        if index:
            yield Text("‖", style="dim")
        for piece, i in segment:
            if not piece.strip() or not (whole or i in kept):
                continue
            score, text = "", Text(_brief(piece.strip(), _BETWEEN), style="dim")
            if i is not None:
                look = shading.style(share[i], explanation.signed, many)
                score, text = scores[i], Text(printable(piece), style=look)
            for k, part in enumerate(text.wrap(console, max(10, width - margin - 2))):
                yield Text.assemble((f"{'' if k else score:>{margin}}  ", "dim"), part)
    yield from _left_out(explanation, len(kept))


def _excerpt(words: Sequence[Text], kept: set[int]) -> Text:
    """Some of the words, with dots for those that are left out."""
    text, previous = Text(), -1
    for i in sorted(kept):
        start = previous < 0
        gap = i > previous + 1
        text.append(("… " if start else " … ") if gap else "" if start else " ")
        text.append_text(words[i])
        previous = i
    if previous < len(words) - 1:
        text.append(" …")
    return text


# Intervals on a terminal


def banded(explanation: Explanation, width: int, colours: int) -> Iterator[Text]:
    """The shaded document, line by line, with a faint bar under each word.

    The bar is the word's interval, with a dot for its score; a word's left edge is 0, its right
    edge the largest upper end of all.
    """
    line_, chunk = (Text(), Text()), (Text(), Text())
    for text, pair in _columns(explanation, colours):
        if any(c.isspace() for c in text):  # a line may end here
            if line_[0].cell_len and line_[0].cell_len + chunk[0].cell_len > width:
                yield from _trimmed(line_)
                line_ = (Text(), Text())
            line_ = _joined(line_, chunk)
            chunk = (Text(), Text())
        chunk = _joined(chunk, pair)
        if text.isspace():
            line_ = _joined(line_, chunk)
            chunk = (Text(), Text())
    yield from _trimmed(line_)


def _columns(explanation: Explanation, colours: int) -> Iterator[tuple[str, tuple[Text, Text]]]:
    """Each word and each gap: its characters, how it is drawn, and what stands under it."""
    assert explanation.intervals is not None
    top, share = _top(explanation), shares(explanation)
    for text, i in _flat(explanation):
        if i is None:
            drawn = Text(printable(text))
            yield text, (drawn, Text(" " * drawn.cell_len))
            continue
        drawn = word(text, share[i], explanation.signed, colours)
        low, high = explanation.intervals[i] / top
        score = explanation.scores[i] / top
        bar = "" if np.isnan(low) else _bar(low, high, score, drawn.cell_len)
        yield text, (drawn, Text(bar.ljust(drawn.cell_len), style="dim"))


def _flat(explanation: Explanation) -> Iterator[Piece]:
    """The pieces of all segments; the text between units may be long and is split at blanks."""
    for index, segment in enumerate(pieces(explanation)):
        if index:
            yield " ‖ ", None
        for text, i in segment:
            parts = [text] if i is not None else re.split(r"(\s+)", text)
            yield from ((part, i) for part in parts if part)
    yield " ", None


def _joined(a: tuple[Text, Text], b: tuple[Text, Text]) -> tuple[Text, Text]:
    return a[0].append_text(b[0]), a[1].append_text(b[1])


def _trimmed(lines: tuple[Text, Text]) -> Iterator[Text]:
    """A line and what is under it, if there is anything."""
    for text in lines:
        text.rstrip()
    yield from lines if lines[1].plain else lines[:1]


def _bar(low: float, high: float, score: float, cells: int) -> str:
    def cell(share: float) -> int:
        return min(cells - 1, max(0, int(share * cells)))

    start, end, at = cell(low), cell(high), cell(score)
    return "".join("•" if i == at else "─" if start <= i <= end else " " for i in range(cells))


def _top(explanation: Explanation) -> float:
    """The largest upper end of all intervals."""
    assert explanation.intervals is not None
    ends = explanation.intervals[~np.isnan(explanation.intervals)]
    return float(ends.max(initial=0.0)) or 1.0


def _kept(explanation: Explanation) -> str:
    """What all attention within the intervals has in common."""
    if explanation.settings.get("level") != "prediction":
        return "the same output"
    first_order = explanation.facts.get("first_order")
    return "the same prediction, to first order" if first_order else "the same prediction"


def band_legend(explanation: Explanation) -> str:
    """What the bars under the words mean."""
    assert explanation.intervals is not None
    text = (
        f"Under each word, from 0 (left) to {number(_top(explanation))} (right): • its weight,"
        f" ─ its range over all attention that gives {_kept(explanation)}."
    )
    missing = np.isnan(explanation.intervals).any()
    return f"{text} Words without a bar were not examined." if missing else text


# One explanation on a terminal


def terminal(explanation: Explanation, console: Console, options: ConsoleOptions) -> RenderResult:
    """The method and label, the shaded text, the strongest words with numbers, and the notes."""
    many = colours(console)
    yield Text.assemble(
        (explanation.method, "bold"),
        " for ",
        (printable(explanation.label), "bold"),
        f" {_probability(explanation)} · {provenance(explanation)}",
    )
    if explanation.unit in PASSAGES:
        yield from listed(explanation, console, options.max_width)
    elif explanation.intervals is None:
        # of a very long text, only the strongest words
        yield line(explanation, 12 * options.max_width, many)
    else:
        yield from banded(explanation, options.max_width, many)
        yield Text(band_legend(explanation), style="dim")
    yield from legend([explanation], many)
    if explanation.unit not in PASSAGES:  # which have their scores beside them
        yield Text.assemble(("strongest  ", "dim"), "  ".join(strongest(explanation)))
    if explanation.specials:
        yield Text(printable(around(explanation)))
    if explanation.facts:
        pairs = [f"{name} {value}" for name, value in measured(explanation)]
        yield Text.assemble(("measured   ", "dim"), printable(" · ".join(pairs)))
    for note in explanation.notes:
        yield Text(f"note: {printable(note)}", style="dim")


def _probability(explanation: Explanation) -> str:
    return f"(p = {number(explanation.probabilities[explanation.label])})"


def strongest(explanation: Explanation, n: int = 8) -> Iterator[str]:
    """The words with the largest scores, with what else is known of them: intervals, errors, parts.

    Zeros are listed only if all scores are zero.
    """
    names = _told_apart(explanation)
    scored = max(1, np.count_nonzero(explanation.scores))
    for i in np.argsort(-np.abs(explanation.scores), kind="stable")[: min(n, scored)]:
        errors = explanation.standard_errors
        error = f"±{errors[i]:.1g}" if errors is not None and errors.any() else ""
        if explanation.intervals is not None and not np.isnan(explanation.intervals[i, 0]):
            low, high = explanation.intervals[i]
            error = f" [{number(low)}, {number(high)}]"
        score = number(explanation.scores[i], signed=explanation.signed)
        yield f"{names[i]} {score}{error}{_parts(explanation, int(i))}"


def _parts(explanation: Explanation, i: int) -> str:
    """The other numbers of a word, in brackets."""
    parts = [f"{name} {short(float(x[i]))}" for name, x in explanation.parts.items()]
    return f" ({', '.join(parts)})" if parts else ""


def _told_apart(explanation: Explanation) -> list[str]:
    """The units as a list names them; of those that read the same, which text and which of them."""
    names = [_brief(unit.text) for unit in explanation.units]
    same: dict[str, dict[int, list[int]]] = {}
    for i, unit in enumerate(explanation.units):
        same.setdefault(names[i], {}).setdefault(unit.segment, []).append(i)
    for name, by_text in same.items():
        for segment, indices in by_text.items():
            text = f"text {segment + 1}" if len(by_text) > 1 else ""
            for n, i in enumerate(indices, 1):
                which = ", ".join(filter(None, (text, _ordinal(n) if len(indices) > 1 else "")))
                names[i] = f"{name} ({which})" if which else name
    return names


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{ending}"


def largest(explanation: Explanation) -> str:
    """The score of the largest size."""
    scores = explanation.scores
    peak = float(scores[np.abs(scores).argmax()]) if len(scores) else 0.0
    return number(peak, signed=explanation.signed)


def _brief(text: str, longest: int = _BRIEF) -> str:
    """The beginning of a passage, or a whole word."""
    text = printable(text)
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def around(explanation: Explanation) -> str:
    """What is no part of a unit, with its scores: a sink, the template, and special tokens.

    The sink is a share of all attention, the others are measured without it.
    """
    sinks = [s for s in explanation.specials if s.text.endswith(SINK)]
    others = [s for s in explanation.specials if s not in sinks]
    together = (TEMPLATE, OUTSIDE, PADDING)
    parts = [f"{s.text} {_score(explanation, s)}" for s in others if s.text in together]
    tokens = [f"{s.text} {_score(explanation, s)}" for s in others if s.text not in together]
    if tokens:
        parts.append(f"special tokens: {', '.join(tokens)}")
    rest = " · ".join(parts)
    if not sinks:
        return rest
    named = ", ".join(f"{s.text.removesuffix(SINK)} holds {s.score:.1%}" for s in sinks)
    sink = f"sink: {named} of the attention"
    return f"{sink}; without it: {rest}" if rest else sink


def template_scores(explanations: Sequence[Explanation]) -> str:
    """The score of the template by each method that scores it; empty if none does."""
    scored = [(e, s) for e in explanations for s in e.specials if s.text == TEMPLATE]
    return " · ".join(f"{e.method} {_score(e, s)}" for e, s in scored)


def _score(explanation: Explanation, special: Special) -> str:
    return number(special.score, signed=explanation.signed)


def measured(explanation: Explanation) -> list[tuple[str, str]]:
    """What the method measured besides the scores."""
    return [
        (FACTS.get(name, name.replace("_", " ")), short(value))
        for name, value in explanation.facts.items()
    ]


def provenance(explanation: Explanation) -> str:
    """The model, what of it was explained, how words were removed, and what it took."""
    output = explanation.settings.get("output")
    parts = (
        printable(f"{explanation.model}@{explanation.revision}"),
        f"output: {output}" if output else "",
        f"removal: {explanation.removal}" if explanation.removal else "",
        counted(explanation.forward_passes, "evaluation"),
        f"{explanation.seconds * 1000:.0f} ms",
    )
    return " · ".join(filter(None, parts))


# Pages and notebooks


def html(explanation: Explanation) -> str:
    """One explanation as a piece of a page, with its styles inline; everything shown is escaped."""
    about = escape(f" {_probability(explanation)} · {provenance(explanation)}")
    notes = "".join(f"<li>{escape(printable(note))}</li>" for note in explanation.notes)
    specials = escape(around(explanation))
    small = "opacity:.7;font-size:.85em"
    return (
        '<div style="margin:.6em 0;font-family:system-ui,sans-serif;line-height:1.7">'
        f"<div><b>{escape(explanation.method)}</b> for <b>{escape(explanation.label)}</b>"
        f'<span style="{small}">{about}</span></div>'
        f"{html_text(explanation)}{html_intervals(explanation)}{html_plane(explanation)}"
        + (f'<div style="{small}">{specials}</div>' if specials else "")
        + (f'<ul style="{small};margin:.2em 0">{notes}</ul>' if notes else "")
        + "</div>"
    )


def html_text(explanation: Explanation) -> str:
    """The shaded document alone; a word's score shows if the pointer rests on it."""
    share = shares(explanation)
    style = "white-space:pre-wrap;overflow-wrap:anywhere"
    rows = []
    for segment in pieces(explanation):
        words = "".join(
            escape(text) if i is None else _html_word(explanation, text, i, share[i])
            for text, i in segment
        )
        rows.append(f'<div dir="auto" style="{style}">{words}</div>')
    return "".join(rows)


def _html_word(explanation: Explanation, text: str, i: int, share: float) -> str:
    title = number(explanation.scores[i], signed=explanation.signed) + _parts(explanation, i)
    style = "border-radius:3px;padding:0 2px"
    if explanation.unit in PASSAGES:  # where one ends and the next begins must be seen
        style += ";border-left:2px solid #888;padding-left:4px"
    if abs(share) >= shading.FAINTEST:
        style += f";background-color:{shading.tint(share, explanation.signed)}"
    if explanation.intervals is not None and not np.isnan(explanation.intervals[i, 0]):
        low, high = explanation.intervals[i]
        top = _top(explanation)
        title += f" (between {number(low)} and {number(high)})"
        style += f";padding-bottom:5px;{_stripe(low / top, high / top)}"
    return f'<span title="{title}" style="{style}">{escape(text)}</span>'


def _stripe(low: float, high: float) -> str:
    """A faint stripe under a word, from one share of its width to another."""
    start, end = 100 * min(low, 0.97), 100 * max(high, low + 0.03)
    stops = f"transparent {start:.1f}%,#888 {start:.1f}%,#888 {end:.1f}%,transparent {end:.1f}%"
    return (
        f"background-image:linear-gradient(90deg,{stops});background-size:100% 3px;"
        "background-position:0 100%;background-repeat:no-repeat"
    )


def html_intervals(explanation: Explanation, n: int = 12) -> str:
    """A table of the words with the largest upper ends: attention, efficient attention, range."""
    intervals, raw = explanation.intervals, explanation.raw
    if intervals is None or raw is None or not len(raw):
        return ""
    ends = np.nan_to_num(intervals[:, 1], nan=-1.0)
    widest = np.argsort(-ends, kind="stable")[: min(n, int((ends >= 0).sum()))]
    rows = "".join(_interval_row(explanation, int(i)) for i in widest)
    return (
        '<table style="border-collapse:collapse;font-size:.85em;line-height:1.3;margin:.6em 0;'
        'width:100%;max-width:44em"><caption style="text-align:left;opacity:.75">'
        '<span style="color:#d55e00">○</span> attention &nbsp; '
        f'<span style="color:#0072b2">●</span> {escape(explanation.method)} &nbsp; '
        f"grey: range over all attention that gives {_kept(explanation)}"
        f" (0 to {number(_top(explanation))})</caption><tbody>{rows}</tbody></table>"
    )


def html_plane(explanation: Explanation) -> str:
    """The plane of importances and values, of methods that have both."""
    if not explanation.parts:
        return ""
    from heed.report import charts, plane  # which load altair

    if not plane.drawable(explanation):
        return ""
    return f'<div style="overflow-x:auto">{charts.svg(plane.plane(explanation))}</div>'


def _interval_row(explanation: Explanation, i: int) -> str:
    assert explanation.intervals is not None
    assert explanation.raw is not None
    top, (low, high) = _top(explanation), explanation.intervals[i]
    raw, score = explanation.raw[i], explanation.scores[i]
    left, width = 100 * low / top, max(0.5, 100 * (high - low) / top)
    marks = "".join(
        f'<i style="position:absolute;top:3px;left:calc({100 * max(0.0, x) / top:.1f}% - 5px);'
        f'width:10px;height:10px;box-sizing:border-box;border-radius:50%;{look}"></i>'
        for x, look in ((raw, "border:2px solid #d55e00"), (score, "background:#0072b2"))
    )
    return (
        '<tr><th style="text-align:right;font-weight:400;padding:0 .8em 0 0">'
        f"{escape(_brief(explanation.units[i].text))}</th>"
        '<td style="width:60%;min-width:6em;padding:0">'
        '<div style="position:relative;height:16px;margin:0 6px">'
        f'<i style="position:absolute;top:5px;height:6px;left:{left:.1f}%;width:{width:.1f}%;'
        f'background:rgba(128,128,128,.45)"></i>{marks}</div></td>'
        '<td style="padding:0 0 0 .8em">'
        f"{number(raw)} → {number(score)} [{number(low)}, {number(high)}]</td></tr>"
    )
