"""Do the words an explanation points to matter, and does it depend on what the model learnt?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.claims.claim import Columns, Refusal, Row, stated
from heed.claims.study import ClaimTest, Study, best_lime
from heed.methods import Explanation, GradientInput, Imported, Method, Occlusion
from heed.methods.comparison import aligned
from heed.methods.units import units_of
from heed.metrics import spearman
from heed.models.classifier import GRADIENT, Removal
from heed.settings import AtLeast

SHARES = np.arange(1, 11) / 20  # 5 %, 10 %, … 50 % of the words


RIVAL = "comprehensiveness_of_"  # followed by the name of another method


@dataclass(frozen=True)
class Removes(ClaimTest):
    """Comprehensiveness, minus that of random words (the mean over several random orders).

    Comprehensiveness is how far the predicted probability falls when the top 5 %, 10 %, … 50 % of
    words are removed, on average. Sufficiency, how far it falls when only these words are kept, is
    reported beside it.
    """

    claim = stated("removes")

    orders: Annotated[int, AtLeast(1)] = 20
    removal: Removal | None = None

    def measure(self, study: Study) -> list[Row]:
        def row(_: int, e: Explanation) -> Row:
            rng = study.rng(self.claim.id, e.document)
            ranks = [ranking(e), *(rng.permutation(len(e.units)) for _ in range(self.orders))]
            without = np.stack([kept_after_removal(rank) for rank in ranks])
            # first the falls without the top words, then those with only the top words
            kept = np.concatenate([without, ~without])
            falls, rests = falls_of(study, e, kept, self.removal).reshape(2, -1)
            top, random = float(falls[0]), float(falls[1:].mean())
            return {
                "value": top - random,
                "comprehensiveness": top,
                "random": random,
                "sufficiency": float(rests[0]),
                "random_sufficiency": float(rests[1:].mean()),
            }

        return study.by_explanation(self, row)


def _share_of_best(columns: Columns) -> float:
    best = max(float(column.mean()) for name, column in columns.items() if name.startswith(RIVAL))
    # if even the best explanation removes nothing but rounding errors, the ratio means nothing
    return float(columns["value"].mean()) / best if best > 1e-9 else float("nan")


@dataclass(frozen=True)
class Competitive(ClaimTest):
    """Comprehensiveness, compared with that of gradient × input, occlusion and LIME.

    The statistic is the mean over documents, divided by the largest mean of the other methods. LIME
    is computed exactly if the model has a closed form and two labels.
    """

    claim = stated("competitive", _share_of_best)

    samples: int = 1000
    removal: Removal | None = None

    def measure(self, study: Study) -> list[Row]:
        rivals: list[Method] = [Occlusion(output="probability"), best_lime(study, self.samples)]
        if GRADIENT in study.model.offers:
            rivals.insert(0, GradientInput(output="probability"))
        # a method is no rival of itself, whatever its settings; one of the same name may be another
        rivals = [r for r in rivals if type(r) is not type(study.method)]
        others = {r.name: study.explain(r) for r in rivals}

        def row(i: int, e: Explanation) -> Row:
            area = self._area(study, e)
            columns = {"value": area, "comprehensiveness": area}
            for name, explanations in others.items():
                columns[f"{RIVAL}{name}"] = self._area(study, explanations[i])
            return columns

        return study.by_explanation(self, row)

    def _area(self, study: Study, explanation: Explanation) -> float:
        without = kept_after_removal(ranking(explanation))
        return float(falls_of(study, explanation, without[None], self.removal)[0])


def ranking(explanation: Explanation) -> Int[np.ndarray, "unit"]:
    """The rank of each unit by score: 0 for the highest."""
    return np.argsort(np.argsort(-explanation.scores, kind="stable"))


def falls_of(
    study: Study,
    explanation: Explanation,
    kept: Bool[np.ndarray, "ranking share unit"],
    removal: Removal | None,
) -> Float[np.ndarray, "ranking"]:
    """How far the label's probability falls if only these units are kept, mean over shares."""
    (tokens,) = study.model.tokens([explanation.document])
    together = any(len(u.spans) > 1 for u in explanation.units)
    _, groups = units_of(tokens, explanation.unit, together)
    whole = np.ones((1, kept.shape[-1]), dtype=bool)
    rows = np.concatenate([whole, kept.reshape(-1, kept.shape[-1])])
    logits = study.model.score([tokens], [rows], [groups], removal)[0]
    probability = study.model.probabilities(logits)[:, study.model.label(explanation.label)]
    return (probability[0] - probability[1:]).reshape(kept.shape[:2]).mean(-1)


def kept_after_removal(rank: Int[np.ndarray, "unit"]) -> Bool[np.ndarray, "share unit"]:
    """Which units stay when the first 5 %, 10 %, … 50 % of a ranking (at least one) are removed."""
    # the share times the length may lie a rounding error above a whole number
    cut = np.maximum(1, np.ceil(SHARES * len(rank) - 1e-9)).astype(int)
    return rank[None, :] >= cut[:, None]


@dataclass(frozen=True)
class Sensitive(ClaimTest):
    """Explain the same model with random weights, and compare the explanations.

    All weights are redrawn with the same mean and spread. Both explanations are for the label that
    the trained model predicts; absolute scores are ranked.
    """

    claim = stated("sensitive")

    draws: Annotated[int, AtLeast(1)] = 3

    def refusal(self, study: Study) -> Refusal | None:
        if isinstance(study.method, Imported):
            why = "was imported: there are no scores of a model with random weights"
            return Refusal("method", f"{study.method.name} {why}")
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        explanations = study.explain()
        correlations = np.full((self.draws, len(explanations)), np.nan)
        for draw in range(self.draws):
            random = study.model.randomised(study.seed + draw)
            for label in dict.fromkeys(e.label for e in explanations):
                indices = [i for i, e in enumerate(explanations) if e.label == label]
                documents = [explanations[i].document for i in indices]
                others = study.method.explain(random, documents, label, study.unit, study.seed)
                for i, other in zip(indices, others, strict=True):
                    pair = aligned([explanations[i], other])
                    correlations[draw, i] = spearman(*(np.abs(scores) for scores in pair))
        return [
            {"value": float(np.mean(column)), "largest": float(np.max(column))}
            for column in correlations.T
        ]
