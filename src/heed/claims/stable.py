"""Does LIME depend on how words are removed?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heed.claims.claim import Refusal, Row, stated
from heed.claims.study import ClaimTest, Study
from heed.claims.yardsticks import reliability, reliable_lime, restored
from heed.methods import Explanation, LimeExact
from heed.methods.perturbation import Samples
from heed.metrics import kendall

LEAST = 0.5  # agreement of two draws below which too much would have to be put back


@dataclass(frozen=True)
class Robust(ClaimTest):
    """Rank correlation between LIME with words replaced and LIME with words deleted.

    samples   how many texts LIME may evaluate, for each way

    Sampling noise lowers it. What it takes is put back, by how well two draws agree on the first
    documents, for both ways to remove words. If the model has a closed form and two labels, LIME
    with words replaced is computed exactly.
    """

    claim = stated("robust")

    samples: Samples = 4000

    def refusal(self, study: Study) -> Refusal | None:
        missing = {"replace", "delete"} - set(study.model.removals)
        if missing:
            return Refusal("model", f"the model has no way to {missing.pop()} words")
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        limes = [reliable_lime(study, self.samples, way).method for way in ("replace", "delete")]
        agreement = [
            1.0 if isinstance(one, LimeExact) else reliability(study, one, plain_agreement)
            for one in limes
        ]
        # different samples on both sides: shared ones would raise the agreement by chance
        pairs = zip(study.explain(limes[0]), study.explain_again(limes[1]), strict=True)
        rows: list[Row] = []
        for one, other in pairs:
            tau = plain_agreement(one, other)
            value = restored(tau, *agreement) if min(agreement) > 0 else math.nan
            noise = dict(zip(("again", "again_deleted"), agreement, strict=True))
            rows.append({"value": value, "uncorrected": tau} | noise)
        return rows

    def unfit(self, rows: Sequence[Row]) -> Refusal | None:
        least = min((min(row["again"], row["again_deleted"]) for row in rows), default=1.0)
        if least > LEAST:
            return None
        return Refusal(
            "yardstick",
            f"two draws of LIME with {self.samples:,} samples hardly agree (τ {least:.2f}): set"
            " samples higher",
        )


def plain_agreement(one: Explanation, other: Explanation) -> float:
    """Kendall's τ of scores with their signs."""
    return kendall(one.scores, other.scores)
