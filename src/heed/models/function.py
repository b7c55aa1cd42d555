"""Any function from texts to outputs behind the doors that need no more: `logits` and `score`.

The function is called with a list of strings (or of pairs of strings, for documents that are
pairs) and answers with one row per text. heed finds the words by its own rules and builds each
perturbed text itself: a deleted word leaves one blank between its neighbours, a replaced one leaves
`replacement`; neighbours that both stay keep what stands between them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from heed.errors import InputError, NotApplicable, UnknownName
from heed.models.classifier import Classifier, Keep, Logits, Removal
from heed.models.trace import Trace
from heed.text import Tokenizer, Tokens

Input = str | tuple[str, str]
_TINY = 1e-12  # probabilities below it count as it: their logarithms stay finite


class Function(Classifier):
    """A function `texts -> outputs` as a classifier, for the methods that only remove words.

    labels        their names in the order of the columns; "0", "1", … if not given
    output        "probability", or "logit" for scores that a softmax (a sigmoid, if not exclusive)
                  makes probabilities
    exclusive     whether the probabilities of a text sum to 1, or each label has its own
    replacement   what stands in for a word removed by "replace"
    batch         how many texts the function gets at once
    revision      what provenance says of its version, which heed cannot know

    One column (or a plain list) of outputs is that of the second of two labels, where labels
    exclude each other. Probabilities become logits by their logarithm (log-odds, if not exclusive),
    so that they come back unchanged.
    """

    offers = frozenset()
    removals: tuple[Removal, ...] = ("delete", "replace")
    filler = 0

    def __init__(
        self,
        function: Callable[[list[Any]], Any],
        labels: Sequence[str] | None = None,
        *,
        name: str | None = None,
        output: Literal["probability", "logit"] = "probability",
        exclusive: bool = True,
        replacement: str = "[UNK]",
        batch: int = 256,
        revision: str = "unknown",
    ):
        if not callable(function):
            raise InputError(
                "A function from a list of texts to outputs is needed, got"
                f" {type(function).__name__}."
            )
        if output not in ("probability", "logit"):
            raise UnknownName("output of a function", str(output), ("probability", "logit"))
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise InputError(f"batch must be a whole number of at least 1, got {batch!r}.")
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.output = output
        self.exclusive = exclusive
        self.replacement = replacement
        self.batch = batch
        self.revision = revision
        self.tokenizer = Tokenizer.plain(sys.maxsize)
        if labels is not None:
            self.labels = _names(labels)

    @cached_property
    def labels(self) -> tuple[str, ...]:  # type: ignore[override]
        """Numbers in place of names: one call tells how many, if none was made before."""
        for example in ("text", ("text", "text")):
            try:
                values = self.function([example])
            except Exception:  # noqa: BLE001 - whatever a function of pairs does with a single text
                continue
            return _numbers(self._logits(values, 1).shape[1])
        raise InputError(
            f"The labels of {self.name} are not known: name them, as in"
            " Function(f, labels=['no', 'yes'])."
        )

    # The doors

    def logits(self, tokens: Sequence[Tokens]) -> Logits:
        return self._run([_input(t.document.segments) for t in tokens])

    def perturbed(
        self, tokens: Sequence[Tokens], present: Sequence[Keep], removal: Removal
    ) -> Float[np.ndarray, "row label"]:
        """Equal texts, of whichever documents, are evaluated once."""
        texts: list[Input] = []
        for t, rows in zip(tokens, present, strict=True):
            texts += self._texts(t, rows, removal)
        return self._run(texts)

    def trace(self, *arguments: Any, **named: Any) -> Trace:
        raise NotApplicable(
            f"{self.name} is a plain function: heed sees its outputs, not what happens inside."
        )

    # Texts in, logits out

    def _texts(self, tokens: Tokens, present: Keep, removal: Removal) -> list[Input]:
        """The document with only some tokens present, for each row."""
        build = _replaced if removal == "replace" else _deleted
        segments = []
        for index, text in enumerate(tokens.document.segments):
            here = np.flatnonzero(tokens.segment == index)
            spans, rows = tokens.spans[here].tolist(), present[:, here].tolist()
            segments.append([build(text, spans, row, self.replacement) for row in rows])
        return [_input(parts) for parts in zip(*segments, strict=True)]

    def _run(self, inputs: Sequence[Input]) -> Float[np.ndarray, "row label"]:
        outputs: dict[Input, Float[np.ndarray, "label"]] = {}
        for kind in (str, tuple):
            distinct = [i for i in dict.fromkeys(inputs) if isinstance(i, kind)]
            for start in range(0, len(distinct), self.batch):
                part = distinct[start : start + self.batch]
                logits = self._logits(self.function(list(part)), len(part))
                outputs.update(zip(part, logits, strict=True))
        return np.array([outputs[i] for i in inputs])

    def _logits(self, values: Any, n: int) -> Float[np.ndarray, "row label"]:
        """The function's answer to n texts, checked, as logits."""
        rows = self._rows(values, n)
        if self.output == "logit":
            return rows
        if rows.min() < -1e-6 or rows.max() > 1 + 1e-6:
            raise InputError(
                f"{self.name} must return probabilities, got {rows.min():.3g} to {rows.max():.3g}: "
                "scores are given by Function(f, output='logit')."
            )
        if not self.exclusive:
            p = np.clip(rows, _TINY, 1 - _TINY)
            return np.log(p) - np.log1p(-p)
        worst = rows.sum(1)[np.abs(rows.sum(1) - 1).argmax()]
        if abs(worst - 1) > 1e-3:
            raise InputError(
                f"The probabilities that {self.name} returns for a text must sum to 1, got"
                f" {worst:.4g}: if labels do not exclude each other, use"
                " Function(f, exclusive=False)."
            )
        return np.log(np.clip(rows, _TINY, 1))

    def _rows(self, values: Any, n: int) -> Float[np.ndarray, "row label"]:
        try:
            rows = np.asarray(values, dtype=float)
        except (TypeError, ValueError, RuntimeError) as error:
            why = " ".join(str(error).split())[:100]
            raise InputError(
                f"{self.name} must return an array of numbers, one row per text ({why})."
            ) from None
        if rows.ndim not in (1, 2) or len(rows) != n or rows.size == 0:
            raise InputError(
                f"{self.name} must return one row per text and one column per label, got the shape"
                f" {rows.shape} for {n} text{'s' * (n != 1)}."
            )
        if not np.isfinite(rows).all():
            raise InputError(
                f"{self.name} must return finite numbers, got {rows[~np.isfinite(rows)][0]}."
            )
        rows = rows.reshape(n, -1)
        if rows.shape[1] == 1 and self.exclusive:  # it speaks for the second of two labels
            other = 1 - rows if self.output == "probability" else np.zeros_like(rows)
            rows = np.hstack([other, rows])
        if "labels" not in self.__dict__:
            self.labels = _numbers(rows.shape[1])
        if rows.shape[1] != len(self.labels):
            raise InputError(
                f"{self.name} must return one column for each of its {len(self.labels)} labels, got"
                f" {rows.shape[1]}."
            )
        return rows


def _names(labels: Sequence[str]) -> tuple[str, ...]:
    names = (labels,) if isinstance(labels, str) else tuple(labels)
    if not names or not all(isinstance(n, str) for n in names) or len(set(names)) < len(names):
        raise InputError(f"Labels must be different names, got {labels!r}.")
    return names


def _numbers(n: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(n))


def _input(segments: Sequence[str]) -> Input:
    return segments[0] if len(segments) == 1 else (segments[0], segments[1])


def _deleted(text: str, spans: list[list[int]], present: list[bool], _: str) -> str:
    """The words that are present. Neighbours keep what stands between them; a gap is a blank."""
    parts: list[str] = []
    last = -1
    for i, (start, end) in enumerate(spans):
        if present[i]:
            before = spans[i - 1][1] if i else 0
            parts.append(text[before:start] if last == i - 1 else " " if parts else "")
            parts.append(text[start:end])
            last = i
    if spans and present[-1]:
        parts.append(text[spans[-1][1] :])
    return "".join(parts)


def _replaced(text: str, spans: list[list[int]], present: list[bool], replacement: str) -> str:
    parts, at = [], 0
    for (start, end), here in zip(spans, present, strict=True):
        parts += [text[at:start], text[start:end] if here else replacement]
        at = end
    return "".join([*parts, text[at:]])
