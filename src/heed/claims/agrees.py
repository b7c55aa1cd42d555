"""Does an explanation rank words as gradients, removal and LIME do?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from heed.claims.claim import Claim, Row
from heed.claims.study import ClaimTest, Study, best_lime
from heed.methods import (
    GradientInput,
    Lime,
    LimeExact,
    Occlusion,
)
from heed.methods.comparison import aligned, rank_agreement
from heed.metrics import (
    spearman,
)
from heed.models.classifier import (
    GRADIENT,
)


@dataclass(frozen=True)
class AgreesGradient(ClaimTest):
    """Rank correlation with |gradient × input|, and, as a yardstick, between that and leave-one-out."""

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
    cost: ClassVar[str] = "a gradient, and as many passes as words (for the yardstick)"
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
    """Rank correlation with the change of the predicted probability when each word alone is removed."""

    claim: ClassVar[Claim] = Claim(
        id="agrees-removal",
        family="agrees",
        sentence="{method} ranks words as their removal does",
        statistic="Kendall τ with |leave-one-out|",
        threshold=0.5,
        source="jain2019",
        gated=True,
    )
    cost: ClassVar[str] = "as many passes as words"
    against = (Occlusion,)

    def measure(self, study: Study) -> list[Row]:
        removal = study.explain(Occlusion(output="probability"))
        return [
            {"value": rank_agreement(e, r)} for e, r in zip(study.explain(), removal, strict=True)
        ]


@dataclass(frozen=True)
class AgreesLime(ClaimTest):
    """Rank correlation with the absolute LIME scores, over distinct words.

    LIME is exact where the model has a closed form and two labels.
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
    cost: ClassVar[str] = "one pass for each sample of LIME; milliseconds where it is exact"
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
    """Rank correlation of a score with what removal takes of the label's log-odds: minus that of gradient × input.

    Scores are taken as they are, with their signs where they have any; what is left without signs is shown beside it.
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
    cost: ClassVar[str] = "a gradient, and as many passes as words"
    against = (GradientInput, Occlusion)

    def measure(self, study: Study) -> list[Row]:
        rows: list[Row] = []
        yardsticks = [
            study.explain(m)
            for m in (GradientInput(output="log-odds"), Occlusion(output="log-odds"))
        ]
        every = zip(study.explain(), *yardsticks, strict=True)
        for explanations in every:
            own, gradient, change = aligned(explanations)
            mine, theirs = spearman(own, change), spearman(gradient, change)
            without = [spearman(np.abs(x), np.abs(change)) for x in (own, gradient)]
            row = {"value": mine - theirs, "spearman": mine, "spearman_gradient": theirs}
            rows.append(
                row | {"spearman_unsigned": without[0], "spearman_gradient_unsigned": without[1]}
            )
        return rows
