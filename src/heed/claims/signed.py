"""Does what an explanation points to support the label?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heed.claims.claim import Row, stated
from heed.claims.study import ClaimTest, Study, best_lime
from heed.methods import Lime, LimeExact
from heed.methods.comparison import aligned


@dataclass(frozen=True)
class Signed(ClaimTest):
    """The share of a document's top words (a tenth, at least 3) that LIME does not score negative.

    Words are distinct. LIME is computed exactly if the model has a closed form and two labels.
    """

    claim = stated("signed")
    against = (Lime, LimeExact)

    samples: int = 2000

    def measure(self, study: Study) -> list[Row]:
        rows: list[Row] = []
        for pair in study.beside(best_lime(study, self.samples)):
            scores, lime = aligned(pair)
            top = np.argsort(-scores, kind="stable")[: max(3, round(len(scores) / 10))]
            # a score this close to 0 may be negative by a rounding error only
            negative = lime[top] < -1e-9 * np.abs(lime).max()
            against = np.abs(lime[lime < 0]).sum() / (np.abs(lime).sum() or 1.0)
            value = 1 - float(negative.mean()) if len(scores) >= 3 and lime.any() else float("nan")
            rows.append({"value": value, "negative_contribution": float(against)})
        return rows
