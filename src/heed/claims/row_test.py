"""The base of claims about the output of attention: classifying rows and their null spaces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from heed.claims.claim import Refusal, Row
from heed.claims.study import ClaimTest, Positions, Study
from heed.errors import NotApplicable
from heed.methods.problems import Level, Problem, Tolerance, opened, openness
from heed.models.classifier import PROJECTED, Attending
from heed.text import Tokens

Opened = tuple[Attending, list[list[Problem]]]


@dataclass(frozen=True)
class RowTest(ClaimTest):
    """A test of the classifying rows in the last layer.

    level       what counts as the output: that of each "head", or "layer" or "prediction"
    positions   "words": special tokens and padding keep their weights, and distances compare the
                shares of attention on words; "all": only padding does
    tolerance   a direction counts as null if the values in it are below this share of their norm
    """

    # whether it needs documents whose output allows more than one attention
    open_only: ClassVar[bool] = False

    level: Level = "head"
    positions: Positions = "words"
    tolerance: Tolerance | None = None

    @abstractmethod
    def rows(self, study: Study, tokens: Sequence[Tokens], opened: Opened) -> list[Row]:
        """The rows of a few documents."""

    def refusal(self, study: Study) -> Refusal | None:
        if refusal := super().refusal(study):
            return refusal
        projected = {PROJECTED} if self.level in ("projected", "layer") else set()
        if missing := study.model.lacks(projected):
            return Refusal("model", f"needs {missing}")
        longest = sorted(study.model.tokens(study.documents), key=len)[-8:]
        problems: list[Problem] = []
        try:
            for tokens in longest:
                problems += self._opened(study, [tokens])[1][0]
        except NotApplicable as error:
            return Refusal("model", str(error)[0].lower() + str(error)[1:].rstrip("."))
        if self.open_only and not any(p.space.nullity for p in problems):
            size = problems[0].space.T.shape[1] if problems else 0
            return Refusal(
                "data",
                "the output determines attention even in the longest of these documents"
                f" ({len(longest[-1])} tokens, {size} numbers of output): there is no other"
                " attention to compare with",
            )
        return None

    def measure(self, study: Study) -> list[Row]:
        return study.by_batch(
            self,
            lambda tokens: self.rows(study, tokens, self._opened(study, tokens)),
            most=study.model.batch_tokens,
        )

    def _opened(self, study: Study, tokens: Sequence[Tokens]) -> Opened:
        free = [study.free(t, self.positions) for t in tokens]
        return opened(study.model, tokens, self.level, free=free, tolerance=self.tolerance)


def described(parts: Sequence[Problem]) -> Row:
    """How far the output leaves attention undetermined in a document."""
    if not parts:  # no word has any weight
        return {"keys": 0, "held_attention": 1.0, "null_space": 0.0, "rows_open": 0.0}
    held = 1 - float(np.concatenate([p.masses.ravel() for p in parts]).mean())
    row = {"keys": max(len(p.keys) for p in parts), "held_attention": held}
    return row | openness(parts)
