"""Does what an explanation points to support the label?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool

from heed.claims.claim import Row, stated
from heed.claims.study import ClaimTest, Study
from heed.claims.yardsticks import best_lime, top_size
from heed.methods import Explanation, Lime, LimeExact
from heed.methods.comparison import aligned
from heed.methods.perturbation import Samples
from heed.metrics import top_weights


@dataclass(frozen=True)
class Signed(ClaimTest):
    """The share of a document's top words (a tenth, at least 3) that LIME does not score negative.

    samples   how many texts LIME may evaluate

    Only words count whose LIME score is known to differ from 0: by more than twice its standard
    error. A document without such words at the top has no share. Words are distinct. LIME is exact
    if the model has a closed form and two labels; else it takes as many samples as two draws of it
    need to agree well (weighted τ above .8).
    """

    claim = stated("signed")
    against = (Lime, LimeExact)

    samples: Samples = 4000

    def measure(self, study: Study) -> list[Row]:
        rows: list[Row] = []
        for judged, other in study.beside(best_lime(study, self.samples)):
            sure = replace(other, scores=np.where(beyond_noise(other), other.scores, 0.0))
            scores, lime, surely = aligned([judged, other, sure])
            top = top_weights(scores, top_size(len(scores)))
            known, negative = float(top @ (surely != 0)), float(top @ (surely < 0))
            against = np.abs(lime[lime < 0]).sum() / (np.abs(lime).sum() or 1.0)
            rows.append(
                {
                    "value": 1 - negative / known if known else math.nan,
                    "known": known / top.sum(),
                    "negative_contribution": float(against),
                }
            )
        return rows


def beyond_noise(lime: Explanation) -> Bool[np.ndarray, "unit"]:
    """Which scores differ from 0 by more than twice their standard error, and than rounding."""
    size = np.abs(lime.scores)
    noise = 2 * (0.0 if lime.standard_errors is None else lime.standard_errors)
    return size > np.maximum(noise, 1e-9 * size.max())
