"""Tests from "Attention Meets Post-hoc Interpretability" (Lopardo, Precioso and Garreau, 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from heed.diagnose.diagnostic import Claim, Diagnostic, Row, Study
from heed.explain import Lime
from heed.explain.comparison import aligned, rank_agreement


@dataclass(frozen=True)
class AgreesLime(Diagnostic):
    """Rank correlation with the absolute LIME scores, over distinct words."""

    claim: ClassVar[Claim] = Claim(
        id="agrees-lime",
        family="agrees",
        sentence="{explainer} ranks words as LIME does",
        statistic="Kendall τ with |LIME|",
        threshold=0.5,
        source="lopardo2024",
        gated=True,
    )
    against = Lime

    samples: int = 2000

    def measure(self, study: Study) -> list[Row]:
        lime = study.explain(Lime(samples=self.samples))
        return [{"value": rank_agreement(e, other)} for e, other in zip(study.explain(), lime, strict=True)]


@dataclass(frozen=True)
class Signed(Diagnostic):
    """Of a document's top distinct words (a tenth, at least 3), the share that LIME does not score negative."""

    claim: ClassVar[Claim] = Claim(
        id="signed",
        family="signed",
        sentence="What {explainer} points to supports the label",
        statistic="share of top words that LIME does not score negative",
        threshold=0.8,
        source="lopardo2024",
        gated=True,
    )
    against = Lime

    samples: int = 2000

    def measure(self, study: Study) -> list[Row]:
        rows: list[Row] = []
        for pair in zip(study.explain(), study.explain(Lime(samples=self.samples)), strict=True):
            scores, lime = aligned(pair)
            top = np.argsort(-scores, kind="stable")[: max(3, round(len(scores) / 10))]
            negative = lime[top] < 0
            against = np.abs(lime[lime < 0]).sum() / (np.abs(lime).sum() or 1.0)
            value = 1 - float(negative.mean()) if len(scores) >= 3 and lime.any() else float("nan")
            rows.append({"value": value, "negative_contribution": float(against)})
        return rows
