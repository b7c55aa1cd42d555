"""How words are shaded: the text cut at its units, and the colours of their scores.

Blue counts for the label, orange against it (a pair that colour-blind readers can tell apart);
purple is for methods without a sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.text import Text

from heed.text import printable

if TYPE_CHECKING:
    from heed.methods.explanation import Explanation

Colour = tuple[int, int, int]
Piece = tuple[str, int | None]  # characters, and the index of their unit

# Colours of words for the label, against it, of methods without a sign, and below zero in these.
FOR: Colour = (0, 114, 178)
AGAINST: Colour = (213, 94, 0)
_TINTS = {"for": FOR, "against": AGAINST, "unsigned": (130, 90, 170), "below": (120, 120, 120)}

# Shares of the largest score from which a word stands out more.
STEPS = (0.2, 0.5, 0.8)

# Inks of one luminance, 0.18: on black and on white the contrast is the same (4.6), and so is that
# of white ink on them. A terminal does not say which ground it has.
_INKS = {"for": "#007cc0", "against": "#c45400", "unsigned": "#8e63ba", "below": "#777777"}
# The same for terminals with 16 colours: blocks, with an ink that can be read on them.
_BLOCKS = {
    "for": "bright_white on blue",
    "against": "black on yellow",
    "unsigned": "bright_white on magenta",
    "below": "bold",
}

FAINTEST = 0.05  # words with a smaller share of the largest score are not shaded on a page

# What the colours mean; the sign of a share, and whether the method has signs.
MEANINGS = (
    ("for the label", 1, True),
    ("against it", -1, True),
    ("important (no sign)", 1, False),
)


def pieces(explanation: Explanation) -> list[list[Piece]]:
    """Per segment, the text cut at the units; the index is None between units."""
    return [_cut(explanation, s, text) for s, text in enumerate(explanation.document.segments)]


def _cut(explanation: Explanation, segment: int, text: str) -> list[Piece]:
    spans = sorted(
        (start, end, i)
        for i, unit in enumerate(explanation.units)
        if unit.segment == segment
        for start, end in unit.spans
    )
    parts: list[Piece] = []
    at = 0
    for start, end, i in spans:
        if start > at:
            parts.append((text[at:start], None))
        parts.append((text[start:end], i))
        at = end
    if at < len(text):
        parts.append((text[at:], None))
    return parts


def shares(explanation: Explanation) -> list[float]:
    """Scores relative to the largest."""
    largest = float(np.abs(explanation.scores).max(initial=0.0)) or 1.0
    return [float(score) / largest for score in explanation.scores]


def _kind(share: float, signed: bool) -> str:
    if signed:
        return "for" if share > 0 else "against"
    return "unsigned" if share > 0 else "below"


# Pages


def tint(share: float, signed: bool) -> str:
    """The background of a word on a page.

    The colour is translucent, so that the page's ink stands out on it whether the page is light or
    dark.
    """
    return rgba(_TINTS[_kind(share, signed)], 0.75 * min(1.0, 0.12 + 0.88 * abs(share)))


def rgba(colour: Colour, alpha: float) -> str:
    red, green, blue = colour
    return f"rgba({red},{green},{blue},{alpha:.2f})"


def legend() -> list[tuple[str, list[str]]]:
    """What the colours mean, with a few tints of each."""
    steps = (0.15, 0.4, 0.7, 1.0)
    return [
        (meaning, [tint(sign * share, signed) for share in steps])
        for meaning, sign, signed in MEANINGS
    ]


# Terminals

TENTHS = ", which is [10]"  # what `word` writes behind words, in a legend


def colours(console: Console) -> int:
    """How many colours a terminal has: 0, 16, or 256 for all that have more."""
    if console.color_system is None or console.no_color:
        return 0
    return 16 if console.color_system in ("standard", "windows") else 256


def style(share: float, signed: bool, colours: int) -> str:
    """How a word looks: plain, in bold colour, on a block of colour, and bold on such a block.

    Each step stands out more than the one before, on dark and on light grounds.
    """
    level = sum(abs(share) >= step for step in STEPS)
    kind = _kind(share, signed)
    if not colours or not level:
        return ""
    if colours == 16:
        return ("bold", _BLOCKS[kind], _BLOCKS[kind])[level - 1]
    ink = _INKS[kind]
    return (f"bold {ink}", f"#ffffff on {ink}", f"bold underline #ffffff on {ink}")[level - 1]


def word(text: str, share: float, signed: bool, colours: int) -> Text:
    """One shaded word; with few colours or none it also carries its score in tenths: great[+9]."""
    text = printable(text)
    tenths = round(abs(share) * 10)
    if colours <= 16 and tenths >= 3:
        sign = "-" if share < 0 else "+" if signed else ""
        text = f"{text}[{sign}{tenths}]"
    return Text(text, style=style(share, signed, colours))
