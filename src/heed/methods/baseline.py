"""Random scores: the baseline that every method must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from heed.methods.method import Job, Measured, Method
from heed.models.classifier import Classifier


@dataclass(frozen=True)
class Random(Method):
    """Independent normal scores."""

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "random scores, the baseline"

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [Measured(job.rng.standard_normal(len(job.units)), forward_passes=0) for job in jobs]
