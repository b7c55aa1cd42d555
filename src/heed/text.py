"""Documents, and what a tokenizer makes of them.

A `Document` is one text or a pair of texts. A `Tokenizer` turns it into `Tokens`: ids with the
characters and the words that they come from. Words are keyed by (segment, word), so the third word
of the first text and the third of the second stay apart. Any Hugging Face fast tokenizer fits:
`Tokenizer` wraps a `tokenizers.Tokenizer`, and our own word-level tokenizer is one as well.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, pairwise
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from jaxtyping import Bool, Int

from heed.errors import CheckpointError, InputError, quoted

Ids = Int[np.ndarray, "token"]
Mask = Bool[np.ndarray, "token"]
UNKNOWN, CLS, SEP = "<unk>", "<cls>", "<sep>"
SPECIAL, TEMPLATE = -1, -2  # segments of tokens that come from no text of the document

# A word is a run of letters, marks and digits, with English contractions split off (do|n't, it|'s),
# so that raw and pre-tokenised text give the same tokens. A run of one symbol (..., !!!, an emoji)
# is a token too. Blanks and control characters separate.
_LETTER = r"[\p{L}\p{M}\p{N}_]"
_TOKEN = (
    rf"{_LETTER}+(?=n't(?!{_LETTER}))|n't(?!{_LETTER})|'(?:s|m|d|re|ve|ll)(?!{_LETTER})"
    rf"|{_LETTER}+|([^\s\p{{C}}\p{{L}}\p{{M}}\p{{N}}_])\1*"
)


class Span(NamedTuple):
    """Characters [start, end) of one segment of a document."""

    start: int
    end: int
    segment: int = 0


@dataclass(frozen=True)
class Document:
    """One text, or a pair of texts, to be classified.

    `label` is the index of the gold label, if known; `rationale` marks the characters that people
    gave as its reason; `spans` are parts of the text that a user wants to score, each as a whole.
    Documents of one `cluster` (an author, a conversation) are not independent: statistics draw them
    together, and count them as one.
    """

    text: str
    pair: str | None = None
    id: str = ""
    label: int | None = None
    rationale: tuple[Span, ...] = ()
    spans: Any = ()  # a tuple of `Span`, made of whatever is given; of nothing, if it is None
    cluster: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", _spans(self.spans))
        for what, marked in (("rationale", self.rationale), ("span", self.spans)):
            for span in marked:
                if not self._has(*span):
                    raise InputError(
                        f"A {what} marks characters that the text lacks: {self.named(span)}."
                    )
        for one, other in pairwise(sorted(self.spans, key=lambda s: (s.segment, s.start))):
            if one.segment == other.segment and other.start < one.end:
                both = f"{self.named(one)} and {self.named(other)}"
                raise InputError(f"Spans must not overlap: {both} do.")

    def _has(self, start: int, end: int, segment: int) -> bool:
        texts = self.segments
        return 0 <= segment < len(texts) and 0 <= start < end <= len(texts[segment])

    def named(self, span: Span) -> str:
        """Characters as a sentence names them, with their text if there may be two."""
        characters = f"{span.start}-{span.end}"
        if self.pair is None and span.segment == 0:
            return characters
        which = {0: "the first text", 1: "the second text"}
        return f"{characters} of {which.get(span.segment, f'text {span.segment + 1}')}"

    @property
    def segments(self) -> tuple[str, ...]:
        return (self.text,) if self.pair is None else (self.text, self.pair)

    @classmethod
    def of(cls, value: Document | str | Sequence[str]) -> Document:
        """A document from what a user may pass: a string, a pair of strings, or a document."""
        if isinstance(value, Document):
            return value
        if isinstance(value, str):
            return cls(value)
        two = isinstance(value, Sequence) and len(value) == 2
        if two and all(isinstance(v, str) for v in value):
            return cls(value[0], value[1])
        kind = type(value).__name__
        raise InputError(f"A text must be a string or a pair of strings, got {kind}.")


def _spans(given: Any) -> tuple[Span, ...]:
    if given is None:
        return ()
    if not isinstance(given, Iterable):
        raise InputError(f"Spans are a list of (start, end), got {quoted(given)}.")
    return tuple(map(_span, given))


def _span(given: Any) -> Span:
    """A span as a user may write it: (start, end), or (start, end, 0 or 1) in a pair of texts."""
    listed = isinstance(given, (Sequence, np.ndarray)) and len(given) in (2, 3)
    if listed and all(isinstance(i, Integral) and not isinstance(i, bool) for i in given):
        return Span(*map(int, given))
    raise InputError(f"A span is (start, end) or (start, end, 0 or 1), got {quoted(given)}.")


class Word(NamedTuple):
    """A word of a document: where it stands, and the form in which the tokenizer reads it."""

    segment: int
    start: int
    end: int
    text: str
    form: str


@dataclass(frozen=True, eq=False)
class Tokens:
    """What a tokenizer made of one document, without padding.

    ids        the vocabulary ids that the model reads
    spans      characters [start, end) of each token within its segment; (0, 0) for special tokens
    segment    0 or 1, the text a token comes from; SPECIAL or TEMPLATE for those around the texts
    word       index into `words`; -1 for tokens around the texts
    types      the type of each token, by which models of pairs tell the two texts apart
    names      the tokens as the vocabulary spells them
    dropped    number of words cut off because the document is longer than the model reads
    cut_short  number of words of which only the beginning was read, for the same reason
    """

    document: Document
    ids: Int[np.ndarray, "token"]
    spans: Int[np.ndarray, "token 2"]
    segment: Int[np.ndarray, "token"]
    word: Int[np.ndarray, "token"]
    types: Int[np.ndarray, "token"]
    names: tuple[str, ...]
    dropped: int
    cut_short: int
    tokenizer: Tokenizer

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def special(self) -> Bool[np.ndarray, "token"]:
        """Tokens that are no part of a word: special ones, and those of a template."""
        return self.word < 0

    @property
    def template(self) -> Bool[np.ndarray, "token"]:
        """Tokens of the template that the texts stand in."""
        return self.segment == TEMPLATE

    @property
    def unknown(self) -> Bool[np.ndarray, "token"]:
        """Tokens that the vocabulary does not have."""
        return (self.ids == self.tokenizer.unknown) & ~self.special

    def text(self, token: int) -> str:
        """The characters of a token, or its name if it is special."""
        if self.word[token] < 0:
            return self.names[token]
        start, end = self.spans[token]
        return self.document.segments[self.segment[token]][start:end] or self.names[token]

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """The words that were read, in order."""
        inside = self.word >= 0
        first = np.flatnonzero((np.diff(self.word, prepend=-1) != 0) & inside)
        last = np.flatnonzero((np.diff(self.word, append=-1) != 0) & inside)
        begin, end = self.spans[first, 0], self.spans[last, 1]
        spans = np.stack([self.segment[first], begin, end], 1).tolist()
        return tuple(self._word(*span) for span in spans)

    def _word(self, segment: int, start: int, end: int) -> Word:
        text = self.document.segments[segment][start:end]
        # Byte-level tokenizers count the blank before a word as part of it.
        start += len(text) - len(text.lstrip())
        text = text.strip()
        return Word(segment, start, start + len(text), text, self.tokenizer.normalise(text))


class Placed(NamedTuple):
    """Where tokens stand: the segment, the tokenizer's word (or -1), and the characters of each."""

    segment: Ids
    word: Ids
    spans: Int[np.ndarray, "token 2"]


class Tokenizer:
    """Documents to `Tokens`, by a `tokenizers.Tokenizer`, cut to what the model reads."""

    def __init__(self, backend: tokenizers.Tokenizer, max_tokens: int, unknown: int | None = None):
        self.backend = backend
        self.max_tokens = max_tokens
        self.unknown = -1 if unknown is None else unknown
        backend.no_padding()
        self._mends = _needs_mending(backend)
        # `_read` cuts: the library would make every combination of the rests of a long pair.
        backend.no_truncation()

    def __call__(self, documents: Iterable[Document]) -> list[Tokens]:
        documents = list(documents)
        try:
            encodings = self.encode(documents)
        except TypeError:  # half of a surrogate pair, as from a file of another encoding
            raise InputError(
                "A text holds characters that are not Unicode: decode it as UTF-8 first."
            ) from None
        return [self.tokens(d, e) for d, e in zip(documents, encodings, strict=True)]

    def encode(self, documents: Sequence[Document]) -> list[tokenizers.Encoding]:
        """What the library makes of documents."""
        texts = [d.text if d.pair is None else (d.text, d.pair) for d in documents]
        return self.backend.encode_batch(texts)

    def place(self, document: Document, encoding: tokenizers.Encoding) -> Placed:
        """Where the tokens of a document stand in its texts."""
        segment, word = _filled(encoding.sequence_ids), _filled(encoding.word_ids)
        segment[word < 0] = SPECIAL
        spans = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        spans[word < 0] = 0
        return Placed(segment, word, spans)

    def tokens(self, document: Document, encoding: tokenizers.Encoding) -> Tokens:
        """What is read of a document."""
        segment, word, spans = self.place(document, encoding)
        read = self._read(segment)
        key = np.where(word < 0, -1, word * 2 + segment)
        starts = (key >= 0) & (np.diff(key, prepend=-1) != 0)
        if self._mends:
            key, starts = _mended(document, segment, spans, key, starts)
        every = np.where(key < 0, -1, np.cumsum(starts) - 1)
        number = every[read]
        kept = np.unique(number[number >= 0])
        return Tokens(
            document=document,
            ids=np.array(encoding.ids, dtype=np.int64)[read],
            spans=spans[read],
            segment=segment[read],
            word=np.where(number < 0, -1, np.searchsorted(kept, number)),
            types=np.array(encoding.type_ids, dtype=np.int64)[read],
            names=tuple(compress(encoding.tokens, read)),
            dropped=int(starts.sum()) - len(kept),
            cut_short=len(np.intersect1d(number[number >= 0], every[~read])),
            tokenizer=self,
        )

    def _read(self, segment: Int[np.ndarray, "token"]) -> Bool[np.ndarray, "token"]:
        """Which tokens fit: those around the texts, and the beginning of each text.

        The longer text is cut first.
        """
        read = np.ones(len(segment), dtype=bool)
        if len(segment) <= self.max_tokens:
            return read
        room = max(0, self.max_tokens - int((segment < 0).sum()))
        texts = [np.flatnonzero(segment == s) for s in (0, 1)]
        short, long = sorted(texts, key=len)
        fits = min(len(short), room // 2)
        read[short[fits:]] = False
        read[long[room - fits :]] = False
        return read

    @cached_property
    def digest(self) -> str:
        """Another one for a tokenizer that may read a text otherwise."""
        about = f"{type(self).__name__} {self.max_tokens} {self.unknown} {self.backend.to_str()}"
        return hashlib.sha256(about.encode("utf8", "replace")).hexdigest()[:16]

    @cached_property
    def _marks(self) -> frozenset[int]:
        """The special tokens that a text may spell."""
        added = self.backend.get_added_tokens_decoder()
        return frozenset(i for i, token in added.items() if token.special)

    def remarks(self, tokens: Tokens) -> list[str]:
        """What a user should know of how a document was read, in sentences."""
        marks = np.isin(tokens.ids, list(self._marks)) & (tokens.segment >= 0)
        spelled = [tokens.names[i] for i in np.flatnonzero(marks) if _spells(tokens, int(i))]
        if not spelled:
            return []
        return [f"The text holds special tokens of the model: {first_few(spelled)}."]

    def normalise(self, word: str) -> str:
        """The form of a word that decides whether two words are the same to the model."""
        normalizer = self.backend.normalizer
        return normalizer.normalize_str(word) if normalizer else word

    def __len__(self) -> int:
        return self.backend.get_vocab_size()

    def save(self, path: Path) -> None:
        self.backend.save(str(path), pretty=False)

    @classmethod
    def load(cls, path: Path, max_tokens: int) -> Tokenizer:
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 - the library raises nothing more special
            raise CheckpointError(f"The tokenizer {path} cannot be read ({error}).") from None
        return cls(backend, max_tokens, backend.token_to_id(UNKNOWN))

    @classmethod
    def words(cls, vocabulary: Sequence[str], max_tokens: int) -> Tokenizer:
        """A word-level, lower-casing tokenizer: `<cls> text`, or `<cls> text <sep> pair`."""
        names = [UNKNOWN, CLS, SEP, *vocabulary]
        numbered = {name: i for i, name in enumerate(names)}
        backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbered, unk_token=UNKNOWN))
        backend.normalizer = _normalizer()
        backend.pre_tokenizer = _splitter()
        backend.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{CLS} $A", pair=f"{CLS} $A {SEP} $B", special_tokens=[(CLS, 1), (SEP, 2)]
        )
        return cls(backend, max_tokens, 0)

    @classmethod
    def plain(cls, max_tokens: int) -> Tokenizer:
        """Words as they are written, without a vocabulary, for models that read the text itself."""
        backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({UNKNOWN: 0}, unk_token=UNKNOWN))
        backend.pre_tokenizer = _splitter()
        return cls(backend, max_tokens)

    @classmethod
    def train(
        cls, texts: Iterable[str], max_tokens: int, size: int | None = None, min_count: int = 1
    ) -> Tokenizer:
        """The tokenizer of the `size` most frequent words that occur at least `min_count` times."""
        normalizer, splitter = _normalizer(), _splitter()
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(w for w, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls.words([w for w, n in ranked[:size] if n >= min_count], max_tokens)


def _spells(tokens: Tokens, token: int) -> bool:
    """Whether the text has the very characters of a token: not where it stands for others."""
    start, end = tokens.spans[token]
    return tokens.document.segments[tokens.segment[token]][start:end].strip() == tokens.names[token]


def _needs_mending(backend: tokenizers.Tokenizer) -> bool:
    """Whether a tokenizer may take several words for one, or blanks for a word."""
    return backend.encode("a  b\n\nc", add_special_tokens=False).word_ids != [0, 1, 2]


def _mended(
    document: Document, segment: Ids, spans: Int[np.ndarray, "token 2"], key: Ids, starts: Mask
) -> tuple[Ids, Mask]:
    """Words that reach over no blank, and blanks that are no words.

    Tokenizers of whole texts (Llama's) give all tokens one number. Byte-level ones make tokens of
    line breaks and runs of blanks, which go with the word behind them, or at the end of a text with
    the one before.
    """
    key, starts = key.copy(), starts.copy()
    for number, text in enumerate(document.segments):
        here = np.flatnonzero((segment == number) & (key >= 0)).tolist()
        pieces = [text[a:b] for a, b in spans[here].tolist()]
        filled = [i for i, piece in zip(here, pieces, strict=True) if piece.strip()]
        if not filled:
            key[here], starts[here] = -1, False
        before, begun = "", -1
        for i, piece in zip(here, pieces, strict=True):
            a = int(spans[i, 0])
            # Tokens of one character, which stand for its bytes, share its place.
            behind = a > begun and text[a - 1 : a].isspace()
            apart = bool(starts[i]) or not piece.strip() or piece[:1].isspace() or behind
            first = i == here[0] or (apart and bool(before.strip()))
            starts[i] = first and bool(filled) and i <= filled[-1]
            before, begun = piece, a
    return key, starts


def _normalizer() -> tokenizers.normalizers.Normalizer:
    n = tokenizers.normalizers
    line_breaks = n.Replace(tokenizers.Regex(r"(?i)<br ?/?>"), " ")
    return n.Sequence([line_breaks, n.Replace("’", "'"), n.Lowercase()])


def _splitter() -> tokenizers.pre_tokenizers.PreTokenizer:
    return tokenizers.pre_tokenizers.Split(tokenizers.Regex(_TOKEN), "removed", invert=True)


def _filled(values: list[int | None]) -> Int[np.ndarray, "token"]:
    return np.array([-1 if v is None else v for v in values], dtype=np.int64)


# Text that is safe to show

_JOINERS = "\u200c\u200d"  # which shape letters and emoji, and steer nothing


def printable(text: str) -> str:
    """Text in one line that cannot steer a terminal: as `harmless`, with single blanks."""
    return harmless(re.sub(r"\s+", " ", text))


def harmless(text: str) -> str:
    """Text of the same length, with a dot for each control and direction character; blanks stay."""
    unseen = ("Cc", "Cf", "Cs")
    return "".join(
        c if unicodedata.category(c) not in unseen or c in _JOINERS or c.isspace() else "·"
        for c in text
    )


def first_few(texts: Iterable[str], most: int = 5) -> str:
    """The first few of some texts, each once."""
    distinct = list(dict.fromkeys(texts))
    return ", ".join(harmless(t[:30]) for t in distinct[:most]) + " …" * (len(distinct) > most)


def counted(n: int, noun: str = "document") -> str:
    """A number with its noun: 1 document, 2 documents."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
