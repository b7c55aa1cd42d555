"""Texts cut into sentences and lines, by rules alone.

A sentence ends at a stop that is followed by a blank, unless the stop belongs to an abbreviation,
an initial or the number of a list, or a small letter follows. Blank lines and <br /> always end
one, a single line break does not: text may be wrapped. Where a text has no capitals at all, small
letters may begin a sentence.

The work grows with the length of the text alone: no pattern runs over the same blanks or stops
twice, and what stands before a stop is read no further back than the longest abbreviation needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PARAGRAPHS = re.compile(r"(?i)<br ?/?>|\n[^\S\n]*(?=\n)")
_LINES = re.compile(r"(?i)<br ?/?>|[\n\r\x0b\x0c\x85\u2028\u2029]")
_CLOSING = "\"'”’»)\\]}"
# stops with the quotes and brackets that close behind them; those of Chinese and Japanese come
# without a group, since they need no blank behind them
_STOP = re.compile(rf"([.!?…؟।]+)[{_CLOSING}]*|[。！？]+[{_CLOSING}」』）]*")
_OPENING = "\"'“‘«([{„¿¡-–—•* "
_BEFORE_WORD = re.compile(r"[\s\"'“‘«(\[{„]")
_LOOK_BACK = 40  # characters: longer than any abbreviation
_VISIBLE = re.compile(r"\w")
_I_SAID = re.compile(r"I (?:said|ask|asked|say|thought|replied|answered|cried|shouted)\b")
_BLANKS = re.compile(r"\s*")
_ACRONYM = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")  # as in U.S. and a.m., without the last stop


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations behind which a sentence goes on, those that may end one, and those of a number.
_GOES_ON = _words(
    """
    mr mrs ms mx dr prof st mt ft rev fr gen col lt sgt capt cmdr maj adm hon gov sen rep pres
    messrs mme mlle e.g i.e eg ie cf vs viz resp approx ca al
    """
)
_MAY_END = _words("etc inc ltd co corp bros jr sr ph.d m.d b.a m.a esq dept univ assn")
_OF_NUMBER = _words(
    """
    no nos nr fig figs eq eqs sec vol vols pp p ch art pt par
    jan feb mar apr jun jul aug sep sept oct nov dec
    """
)
# Words that seldom follow an abbreviation within a sentence, and often begin one.
_BEGINS = _words(
    """
    the a an this that these those it its he she they we you i there here but and so yet however
    in on at if when while although because after before as my our their his her what who why how
    not no yes then
    """
)


def sentences(text: str) -> list[tuple[int, int]]:
    """The characters [start, end) of each sentence, without the blanks around it."""
    cased = any(c.isupper() for c in text)
    found: list[tuple[int, int]] = []
    for start, end in _between(_PARAGRAPHS, text):
        at = start
        for stop in _STOP.finditer(text, start, end):
            if stop.end() < end and _ends(text, at, stop, cased):
                found.append((at, stop.end()))
                at = _BLANKS.match(text, stop.end()).end()  # type: ignore[union-attr]
        found.append((at, end))
    return _with_words(text, found)


def lines(text: str) -> list[tuple[int, int]]:
    """The characters [start, end) of each line that is not blank; <br /> ends a line, too."""
    return list(_between(_LINES, text))


def _between(separator: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """What lies between separators, without the blanks around it."""
    at = 0
    for match in [*separator.finditer(text), None]:
        end = len(text) if match is None else match.start()
        part = text[at:end]
        if part.strip():
            start = at + len(part) - len(part.lstrip())
            yield start, start + len(part.strip())
        at = end if match is None else match.end()


def _ends(text: str, start: int, stop: re.Match[str], cased: bool) -> bool:
    """Whether a sentence that began at `start` ends at this stop, which is not the last."""
    mark, rest = stop[1], text[stop.end() : stop.end() + 100].lstrip()
    quoted = stop[0][-1] in _CLOSING
    if mark is None:  # Chinese or Japanese
        return True
    if not text[stop.end()].isspace():  # as in 3.50
        return False
    following = rest.lstrip(_OPENING)
    if (cased and following[:1].islower()) or (quoted and _I_SAID.match(following)):
        return False
    if mark != ".":
        return True
    before = text[max(start, stop.start() - _LOOK_BACK) : stop.start()]
    word = _BEFORE_WORD.split(before)[-1]
    if not word:  # a stop that stands alone, as in tokenised text
        return True
    first = stop.start() - len(word) == start
    if first and ((word.isdecimal() and len(word) < 4) or len(word) == 1):
        return False  # the number of a list: "1. Open the box."
    folded, next_word = word.lower(), re.match(r"\w*", following)
    begins = next_word is not None and next_word[0].lower() in _BEGINS
    if folded in _GOES_ON:
        return False
    if folded in _OF_NUMBER:
        return not following[:1].isdecimal()
    if folded in _MAY_END or _ACRONYM.fullmatch(word):
        return begins or folded in ("etc", "a.m", "p.m")
    initial = len(word) == 1 and word.isupper() and word != "I"
    return begins or not initial


def _with_words(text: str, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same, with what holds no letter or digit joined to what stands before or behind it."""
    joined: list[tuple[int, int]] = []
    last_bare = False
    for start, end in found:
        bare = not _VISIBLE.search(text, start, end)
        if joined and (bare or last_bare):
            joined[-1] = (joined[-1][0], end)
            last_bare = last_bare and bare
        else:
            joined.append((start, end))
            last_bare = bare
    return joined
