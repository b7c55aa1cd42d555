"""Does an explanation rank words as gradients, removal and LIME do?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heed.claims.claim import Row, stated
from heed.claims.study import ClaimTest, Study, best_lime
from heed.methods import GradientInput, Lime, LimeExact, Occlusion
from heed.methods.comparison import aligned, rank_agreement
from heed.metrics import spearman


@dataclass(frozen=True)
class AgreesGradient(ClaimTest):
    """Rank correlation of the scores with |gradient × input|.

    The correlation between |gradient × input| and leave-one-out is reported for comparison.
    """

    claim = stated("agrees-gradient")
    against = (GradientInput,)

    def measure(self, study: Study) -> list[Row]:
        others = GradientInput(output="probability"), Occlusion(output="probability")
        return [
            {"value": rank_agreement(e, gradient), "gradient_removal": rank_agreement(gradient, r)}
            for e, gradient, r in study.beside(*others)
        ]


@dataclass(frozen=True)
class AgreesRemoval(ClaimTest):
    """Rank correlation of the scores with leave-one-out.

    Leave-one-out is the change of the predicted probability when one word is removed.
    """

    claim = stated("agrees-removal")
    against = (Occlusion,)

    def measure(self, study: Study) -> list[Row]:
        removal = Occlusion(output="probability")
        return [{"value": rank_agreement(*pair)} for pair in study.beside(removal)]


@dataclass(frozen=True)
class AgreesLime(ClaimTest):
    """Rank correlation of the scores with absolute LIME scores, over distinct words.

    LIME is computed exactly if the model has a closed form and two labels.
    """

    claim = stated("agrees-lime")
    against = (Lime, LimeExact)

    samples: int = 2000

    def measure(self, study: Study) -> list[Row]:
        lime = best_lime(study, self.samples)
        return [{"value": rank_agreement(*pair)} for pair in study.beside(lime)]


@dataclass(frozen=True)
class Tracks(ClaimTest):
    """Rank correlation of the scores with leave-one-out, minus that of gradient × input.

    Leave-one-out is the drop in the label's log-odds when one word is removed. Scores keep their
    signs, if they have any; the correlations of absolute values are reported beside them.
    """

    claim = stated("tracks")
    against = (GradientInput, Occlusion)

    def measure(self, study: Study) -> list[Row]:
        rows: list[Row] = []
        others = GradientInput(output="log-odds"), Occlusion(output="log-odds")
        for explanations in study.beside(*others):
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
