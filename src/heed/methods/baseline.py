"""Chance: scores that know nothing of the model, which every method must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from heed.methods.method import Job, Measured, Method
from heed.models.classifier import Classifier


@dataclass(frozen=True)
class Random(Method):
    """Independent normal scores."""

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "random scores, the baseline"

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [Measured(job.rng.standard_normal(len(job.units)), forward_passes=0) for job in jobs]


@dataclass(frozen=True)
class WordLength(Method):
    """The number of characters of each word: long words are often the ones with content."""

    name: ClassVar[str] = "word-length"
    summary: ClassVar[str] = "number of characters of each word, a baseline that knows no model"
    signed: ClassVar[bool] = False
    only_by_name: ClassVar[bool] = True

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        measured = []
        for job in jobs:
            lengths = np.array([len(unit.text) for unit in job.units], dtype=float)
            measured.append(Measured(lengths, forward_passes=0))
        return measured


CHANCE: tuple[type[Method], ...] = (Random, WordLength)
