"""Does LIME depend on how words are removed?"""

from __future__ import annotations

from dataclasses import dataclass

from heed.claims.claim import Refusal, Row, stated
from heed.claims.study import ClaimTest, Study
from heed.claims.yardsticks import reliable_lime
from heed.methods.perturbation import Samples
from heed.metrics import kendall


@dataclass(frozen=True)
class Robust(ClaimTest):
    """Rank correlation between LIME with words replaced and LIME with words deleted.

    samples   how many texts LIME may evaluate, for each of four runs

    Sampling noise lowers it. So LIME takes as many samples as two draws of it need to agree
    (weighted τ above .95), and a document counts only if two draws agree above the threshold, for
    both kinds of removal. If the model has a closed form and two labels, LIME with words replaced
    is computed exactly.
    """

    claim = stated("robust")

    samples: Samples = 4000

    def refusal(self, study: Study) -> Refusal | None:
        missing = {"replace", "delete"} - set(study.model.removals)
        if missing:
            return Refusal("model", f"the model has no way to {missing.pop()} words")
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        runs = []
        for way in ("replace", "delete"):
            lime = reliable_lime(study, self.samples, way).method
            runs += [study.explain(lime), study.explain_again(lime)]
        rows: list[Row] = []
        for one, one_again, other, other_again in zip(*runs, strict=True):
            again = kendall(one.scores, one_again.scores)
            again_deleted = kendall(other.scores, other_again.scores)
            value = float("nan")
            if min(again, again_deleted) > self.claim.threshold:
                # different samples on both sides: shared ones would raise the agreement by chance
                value = kendall(one.scores, other_again.scores)
            rows.append({"value": value, "again": again, "again_deleted": again_deleted})
        return rows
