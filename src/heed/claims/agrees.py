"""Does an explanation rank words as gradients, removal and LIME do?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from heed.claims.claim import Claim, Row
from heed.claims.study import ClaimTest, Study, best_lime
from heed.methods import GradientInput, Lime, LimeExact, Occlusion
from heed.methods.comparison import aligned, rank_agreement
from heed.metrics import spearman
from heed.models.classifier import GRADIENT


@dataclass(frozen=True)
class AgreesGradient(ClaimTest):
    """Rank correlation of the scores with |gradient × input|.

    The correlation between |gradient × input| and leave-one-out is reported for comparison.
    """

    claim: ClassVar[Claim] = Claim(
        id="agrees-gradient",
        family="agrees",
        sentence="{method} ranks words as the gradient does",
        statistic="Kendall τ with |gradient × input|",
        threshold=0.5,
        source="jain2019",
        needs=frozenset({GRADIENT}),
        gated=True,
    )
    cost: ClassVar[str] = "one gradient, and one forward pass per word (for the comparison)"
    against = (GradientInput,)

    def measure(self, study: Study) -> list[Row]:
        gradient = study.explain(GradientInput(output="probability"))
        removal = study.explain(Occlusion(output="probability"))
        return [
            {"value": rank_agreement(e, g), "gradient_removal": rank_agreement(g, r)}
            for e, g, r in zip(study.explain(), gradient, removal, strict=True)
        ]


@dataclass(frozen=True)
class AgreesRemoval(ClaimTest):
    """Rank correlation of the scores with leave-one-out.

    Leave-one-out is the change of the predicted probability when one word is removed.
    """

    claim: ClassVar[Claim] = Claim(
        id="agrees-removal",
        family="agrees",
        sentence="{method} ranks words as their removal does",
        statistic="Kendall τ with |leave-one-out|",
        threshold=0.5,
        source="jain2019",
        gated=True,
    )
    cost: ClassVar[str] = "one forward pass per word"
    against = (Occlusion,)

    def measure(self, study: Study) -> list[Row]:
        removal = study.explain(Occlusion(output="probability"))
        return [
            {"value": rank_agreement(e, r)} for e, r in zip(study.explain(), removal, strict=True)
        ]


@dataclass(frozen=True)
class AgreesLime(ClaimTest):
    """Rank correlation of the scores with absolute LIME scores, over distinct words.

    LIME is computed exactly if the model has a closed form and two labels.
    """

    claim: ClassVar[Claim] = Claim(
        id="agrees-lime",
        family="agrees",
        sentence="{method} ranks words as LIME does",
        statistic="Kendall τ with |LIME|",
        threshold=0.5,
        source="lopardo2024",
        gated=True,
    )
    cost: ClassVar[str] = "one forward pass per LIME sample; milliseconds if LIME is exact"
    slow: ClassVar[bool] = True
    against = (Lime, LimeExact)

    samples: int = 2000

    def measure(self, study: Study) -> list[Row]:
        lime = study.explain(best_lime(study, self.samples))
        return [
            {"value": rank_agreement(e, other)}
            for e, other in zip(study.explain(), lime, strict=True)
        ]


@dataclass(frozen=True)
class Tracks(ClaimTest):
    """Rank correlation of the scores with leave-one-out, minus that of gradient × input.

    Leave-one-out is the drop in the label's log-odds when one word is removed. Scores keep their
    signs, if they have any; the correlations of absolute values are reported beside them.
    """

    claim: ClassVar[Claim] = Claim(
        id="tracks",
        family="agrees",
        sentence="{method} follows the prediction at least as well as gradients",
        statistic="Spearman with the change on removal, less that of gradient × input",
        threshold=-0.05,
        source="lopardo2024",
        needs=frozenset({GRADIENT}),
        gated=True,
    )
    cost: ClassVar[str] = "one gradient, and one forward pass per word"
    against = (GradientInput, Occlusion)

    def measure(self, study: Study) -> list[Row]:
        rows: list[Row] = []
        yardsticks = [
            study.explain(m)
            for m in (GradientInput(output="log-odds"), Occlusion(output="log-odds"))
        ]
        for explanations in zip(study.explain(), *yardsticks, strict=True):
            scores, gradient, change = aligned(explanations)
            rho, rho_gradient = spearman(scores, change), spearman(gradient, change)
            rows.append(
                {
                    "value": rho - rho_gradient,
                    "spearman": rho,
                    "spearman_gradient": rho_gradient,
                    "spearman_unsigned": spearman(np.abs(scores), np.abs(change)),
                    "spearman_gradient_unsigned": spearman(np.abs(gradient), np.abs(change)),
                }
            )
        return rows
