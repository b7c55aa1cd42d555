"""Prompts: a template around the texts of a document, and the words that stand for its labels.

What needs no torch is here. The whole prompt is tokenised as one string, so its ids are those that
the same prompt has anywhere else. Tokens of the template are context: they belong to no word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from heed.errors import InputError, quoted
from heed.text import SPECIAL, TEMPLATE, Document, Placed, Tokenizer, Tokens, first_few

_GAPS = ("text", "pair")
_GAP = re.compile(r"\{(text|pair)\}")

# Words by label, or names, or both in a string: "negative=bad|awful,positive".
Labels = Mapping[str, str | Sequence[str]] | Sequence[str] | str


class Filled(NamedTuple):
    """A prompt, and the characters [start, end) of it that each text of the document takes."""

    prompt: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Template:
    """A text with the gaps {text} and perhaps {pair}; other braces mean nothing."""

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InputError(f"A template is a string with {{text}} in it, got {self.text!r}.")
        for gap in _GAPS:
            count = self.text.count(f"{{{gap}}}")
            if count > 1:
                raise InputError(f"A template may have {{{gap}}} once, got it {count} times.")
        if "{text}" not in self.text:
            raise InputError(
                f"The template '{quoted(self.text)}' has no {{text}}, where the text is put."
            )

    @property
    def pairs(self) -> bool:
        """Whether it takes pairs of texts."""
        return "{pair}" in self.text

    def others(self) -> list[str]:
        """What looks like a gap and is none, such as a misspelt one."""
        return [name for name in re.findall(r"\{\w+\}", self.text) if name[1:-1] not in _GAPS]

    def fill(self, document: Document) -> Filled:
        """The prompt of a document. What the texts hold is never read as a gap."""
        if self.pairs and document.pair is None:
            raise InputError("The template has a {pair}: give pairs of texts.")
        if not self.pairs and document.pair is not None:
            raise InputError("The template has no {pair}, so a second text cannot be read.")
        prompt, spans = "", [(0, 0)] * len(document.segments)
        # the gaps stand at the odd places
        for i, part in enumerate(_GAP.split(self.text)):
            if i % 2 == 0:
                prompt += part
                continue
            segment = _GAPS.index(part)
            start = len(prompt)
            prompt += document.segments[segment]
            spans[segment] = (start, len(prompt))
        return Filled(prompt, tuple(spans))

    def as_chat(self, tokenizer: Any, system: str | None = None) -> Template:
        """The template as the message of a user, in the form that the model was trained on."""
        messages = [{"role": "user", "content": self.text}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        if not getattr(tokenizer, "chat_template", None):
            raise InputError("The tokenizer has no chat template: leave out chat.")
        try:
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # noqa: BLE001 - a chat template is a program, and may do anything
            raise InputError(
                f"The chat template of the tokenizer cannot be used ({quoted(str(error))})."
            ) from None
        return Template(text)


@dataclass(frozen=True)
class Prompt:
    """How texts become prompts, and what follows them becomes a label.

    template    the text around the document's texts
    words       by label, the words that stand for it
    chat        whether the template is a chat, which has the model's special tokens in it
    calibrate   whether the log-probabilities that follow an empty text are subtracted
    """

    template: Template
    words: Mapping[str, tuple[str, ...]]
    chat: bool = False
    calibrate: bool = False


class PromptTokenizer(Tokenizer):
    """Documents to `Tokens` of the whole prompt. If it is too long, the texts are cut."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        max_tokens: int,
        unknown: int | None,
        template: Template,
        marked: bool,
    ):
        super().__init__(backend, max_tokens, unknown)
        self.template = template
        self.marked = marked  # whether the tokenizer puts its special tokens around the prompt
        # an end that the tokenizer puts behind the prompt would be asked in its place
        added = backend.encode("a", add_special_tokens=marked).special_tokens_mask[::-1]
        self._ends = added.index(0) if 0 in added else 0
        taken = len(self.encode([self.empty])[0])
        if taken >= max_tokens:
            raise InputError(
                f"The template has {taken:,} tokens, and the model reads {max_tokens:,}: there"
                " is no room for a text."
            )

    @property
    def empty(self) -> Document:
        """A document that leaves the template alone."""
        return Document("", "" if self.template.pairs else None)

    def encode(self, documents: Sequence[Document]) -> list[tokenizers.Encoding]:
        prompts = [self.template.fill(document).prompt for document in documents]
        encodings = self.backend.encode_batch(prompts, add_special_tokens=self.marked)
        for encoding in encodings if self._ends else ():
            encoding.truncate(len(encoding) - self._ends)
        return encodings

    def place(self, document: Document, encoding: tokenizers.Encoding) -> Placed:
        offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        added = np.array(encoding.special_tokens_mask, dtype=bool)
        word = np.array([-1 if w is None else w for w in encoding.word_ids], dtype=np.int64)
        segment = np.where(added, SPECIAL, TEMPLATE)
        spans = np.zeros_like(offsets)
        filled = self.template.fill(document)
        for number, (start, end) in enumerate(filled.spans):
            within = (offsets[:, 0] >= start) & (offsets[:, 1] <= end) & (offsets[:, 0] < end)
            clipped = offsets.clip(start, end)
            # a token over the border is the text's if it holds more of it than blanks
            over = ~within & (clipped[:, 0] < clipped[:, 1])
            for i in np.flatnonzero(over):
                within[i] = not filled.prompt[slice(*clipped[i])].isspace()
            within &= ~added & (word >= 0)
            segment[within] = number
            spans[within] = clipped[within] - start
        word[segment < 0] = -1
        return Placed(segment, word, spans)

    def remarks(self, tokens: Tokens) -> list[str]:
        remarks, straddling = super().remarks(tokens), self._straddling(tokens.document)
        if len(straddling) == 1:
            remarks.append(
                f"The token {first_few(straddling)} holds a part of the template: removing its word"
                " removes that part, too."
            )
        elif straddling:
            remarks.append(
                f"The tokens {first_few(straddling)} hold parts of the template: removing their"
                " words removes these parts, too."
            )
        return remarks

    def _straddling(self, document: Document) -> list[str]:
        """The tokens that are read and hold letters of the text and of the template."""
        (encoding,) = self.encode([document])
        segment, _, spans = self.place(document, encoding)
        filled = self.template.fill(document)
        over: dict[str, None] = {}
        for i in np.flatnonzero((segment >= 0) & self._read(segment)):
            start, end = encoding.offsets[i]
            first = filled.spans[segment[i]][0]
            a, b = (spans[i] + first).tolist()
            # blanks of the template are often the first character of a token
            if (filled.prompt[start:a] + filled.prompt[b:end]).strip():
                over[repr(filled.prompt[start:end])] = None
        return list(over)

    def ids(self, word: str) -> list[int]:
        """The prompt of an empty document, with a word behind it."""
        prompt = self.template.fill(self.empty).prompt + word
        # no special tokens behind the word
        ids: list[int] = self.backend.encode(prompt, add_special_tokens=False).ids
        return ids

    def continuation(self, word: str) -> tuple[int, ...]:
        """The tokens of a word behind the prompt."""
        prompt, both = self.ids(""), self.ids(word)
        if both[: len(prompt)] == prompt:
            return tuple(both[len(prompt) :])
        # the word would change the tokens of the prompt, so it is read by itself
        return tuple(self.backend.encode(word, add_special_tokens=False).ids)


def label_words(labels: Labels, template: Template) -> dict[str, tuple[str, ...]]:
    """The words of each label, as they follow the prompt.

    Those of a mapping are taken as they are. Where only names are given, a name is the word of its
    label. A string holds names, or names with words: "negative=bad|awful,positive". Such words get
    a blank before them, unless the prompt ends in one.
    """
    if isinstance(labels, Mapping):
        words = [(name, _listed(given)) for name, given in labels.items()]
    else:
        given = (
            typed_labels(labels) if isinstance(labels, str) else [(name, [name]) for name in labels]
        )
        words = [(name, [spaced(w, template) for w in listed]) for name, listed in given]
    names = [name for name, _ in words]
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        raise InputError(f"At least two labels of different names are needed, got {labels!r}.")
    owners: dict[str, str] = {}
    for name, listed in words:
        for word in listed:
            if word in owners:
                other = f"and for '{quoted(owners[word])}'" if owners[word] != name else "twice"
                raise InputError(f"The word '{quoted(word)}' stands for '{quoted(name)}' {other}.")
            owners[word] = name
        if not listed or not all(word.strip() for word in listed):
            raise InputError(f"The label '{quoted(name)}' needs a word that is not empty.")
    return {name: tuple(listed) for name, listed in words}


def _listed(words: Any) -> list[str]:
    listed = [words] if isinstance(words, str) else words
    if not isinstance(listed, list | tuple) or not all(isinstance(word, str) for word in listed):
        raise InputError(f"A label has a word or a list of words, got {words!r}.")
    return list(listed)


def typed_labels(labels: str) -> list[tuple[str, list[str]]]:
    """Labels as people type them, each with its words: "negative=bad|awful,positive"."""
    typed = []
    for label in labels.split(","):
        name, equals, words = label.partition("=")
        listed = [word.rstrip() for word in words.split("|")] if equals else [name.strip()]
        typed.append((name.strip(), listed))
    return typed


def spaced(word: str, template: Template) -> str:
    """A word as it follows the prompt: behind a blank, unless there is one already."""
    ends_in_blank = template.text[-1:].isspace()
    return word if ends_in_blank or word[:1].isspace() else f" {word}"
