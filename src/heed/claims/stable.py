"""Does LIME depend on how words are removed?"""

from __future__ import annotations

from dataclasses import dataclass

from heed.claims.claim import Refusal, Row, stated
from heed.claims.study import ClaimTest, Study, best_lime
from heed.methods import Lime, Method
from heed.metrics import kendall
from heed.models.classifier import CLOSED, Removal


@dataclass(frozen=True)
class Robust(ClaimTest):
    """Rank correlation between LIME with words replaced and LIME with words deleted.

    Sampling noise lowers it. So a document counts only if two runs of LIME with different samples
    agree above the threshold, for both kinds of removal. If the model has a closed form and two
    labels, LIME with words replaced is computed exactly.
    """

    claim = stated("robust")

    samples: int = 2000

    def refusal(self, study: Study) -> Refusal | None:
        missing = {"replace", "delete"} - set(study.model.removals)
        if missing:
            return Refusal("model", f"the model has no way to {missing.pop()} words")
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        # samples are cheap for models with a closed form
        samples = 2 * self.samples if CLOSED in study.model.offers else self.samples
        replaced: Method = best_lime(study, samples)  # exact LIME replaces words
        if isinstance(replaced, Lime):
            replaced = self._lime(study, samples, "replace")
        deleted = self._lime(study, samples, "delete")
        runs = []
        for method in (replaced, deleted):
            runs += [study.explain(method), study.explain_again(method)]
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

    def _lime(self, study: Study, samples: int, removal: Removal) -> Lime:
        # the model's own way to remove words goes by None, so that claims share explanations
        way = None if removal == study.model.removals[0] else removal
        return Lime(samples=samples, removal=way, output="log-odds")
