"""What gets a score: words, tokens, and passages: sentences, lines, and spans of a user's own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from heed.methods.explanation import Unit, UnitKind
from heed.methods.sentences import lines, sentences
from heed.text import Document, Span, Tokens, Word

PASSAGES: tuple[UnitKind, ...] = ("sentence", "line", "span")  # units of several words


def units_of(
    tokens: Tokens, unit: UnitKind = "word", merge_repeats: bool = False
) -> tuple[tuple[Unit, ...], Int[np.ndarray, "token"]]:
    """The words (or tokens, or passages) of a document as units, and the unit of each token.

    Special tokens belong to no unit, nor do tokens outside of a user's spans: their entry is -1.
    With `merge_repeats`, all occurrences of a word in the same text form one unit, whatever their
    capitals. Passages stay apart.
    """
    if unit in PASSAGES:
        return _passages(tokens, unit)
    if unit == "word":
        pieces = tokens.words
        piece_of_token = tokens.word
    else:
        pieces = tuple(_token_as_word(tokens, int(i)) for i in np.flatnonzero(~tokens.special))
        piece_of_token = np.where(tokens.special, -1, np.cumsum(~tokens.special) - 1)
    if not merge_repeats:
        return tuple(Unit(p.text, ((p.start, p.end),), p.segment) for p in pieces), piece_of_token
    occurrences: dict[tuple[int, str], list[int]] = {}
    for i, piece in enumerate(pieces):
        occurrences.setdefault((piece.segment, piece.form), []).append(i)
    units = []
    unit_of_piece = np.empty(len(pieces), dtype=np.int64)
    for j, same in enumerate(occurrences.values()):
        first, spans = pieces[same[0]], tuple((pieces[i].start, pieces[i].end) for i in same)
        units.append(Unit(first.text, spans, first.segment))
        unit_of_piece[same] = j
    return tuple(units), np.where(piece_of_token < 0, -1, unit_of_piece[piece_of_token])


def _token_as_word(tokens: Tokens, i: int) -> Word:
    text = tokens.text(i)
    start, end = tokens.spans[i].tolist()
    return Word(int(tokens.segment[i]), start, end, text, tokens.tokenizer.normalise(text))


def _passages(tokens: Tokens, unit: UnitKind) -> tuple[tuple[Unit, ...], Int[np.ndarray, "token"]]:
    """The passages that were read, at least in part, and the passage of each token.

    A token that reaches over the end of a passage belongs where most of its characters are. A token
    of blanks goes with its word.
    """
    passages = passages_of(tokens.document, unit)
    owner = np.full(len(tokens), -1)
    for segment, text in enumerate(tokens.document.segments):
        here = [i for i, passage in enumerate(passages) if passage.segment == segment]
        inside = [passages[i] for i in here]
        starts = [passage.start for passage in inside]
        for t in np.flatnonzero(tokens.segment == segment).tolist():
            start, end = tokens.spans[t].tolist()
            start += len(text[start:end]) - len(text[start:end].lstrip())
            end -= len(text[start:end]) - len(text[start:end].rstrip())
            best = _largest(inside, starts, start, end)
            owner[t] = -1 if best is None else here[best]
    for t in np.flatnonzero((owner < 0) & ~tokens.special).tolist():
        if not tokens.text(t).strip():
            mates = owner[tokens.word == tokens.word[t]]
            owner[t] = next((int(i) for i in mates if i >= 0), -1)
    read, groups = np.unique(owner[owner >= 0], return_inverse=True)
    owner[owner >= 0] = groups
    last = {s: int(tokens.spans[tokens.segment == s, 1].max(initial=0)) for s in (0, 1)}
    cut = bool(tokens.dropped or tokens.cut_short)
    units = []
    for i in read.tolist():
        start, end, segment = passages[i]
        end = min(end, last[segment]) if cut else end
        text = tokens.document.segments[segment][start:end]
        units.append(Unit(text, ((start, end),), segment))
    return tuple(units), owner


def _largest(passages: Sequence[Span], starts: Sequence[int], start: int, end: int) -> int | None:
    """Which of these passages, in order, holds most of the characters; None if none holds any."""
    best, most = None, 0
    # no passage before the last that begins at or before the token can reach it, but for that one
    for i in range(max(0, bisect_right(starts, start) - 1), len(passages)):
        if starts[i] >= end:
            break
        shared = min(end, passages[i].end) - max(start, passages[i].start)
        if shared > most:
            best, most = i, shared
    return best


def passages_of(document: Document, unit: UnitKind) -> list[Span]:
    """The sentences, lines or spans of a document in order, whether the model reads them or not."""
    if unit == "span":
        return sorted(document.spans, key=lambda s: (s.segment, s.start))
    cut = sentences if unit == "sentence" else lines
    return [Span(*part, s) for s, text in enumerate(document.segments) for part in cut(text)]
