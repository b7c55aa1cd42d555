"""Does removing what an explanation points to matter, and does it depend on what was learnt?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.claims.claim import Claim, Refusal, Row
from heed.claims.study import ClaimTest, Study, best_lime
from heed.methods import Explanation, GradientInput, Imported, Method, Occlusion
from heed.methods.comparison import aligned
from heed.methods.method import units_of
from heed.metrics import spearman
from heed.models.classifier import GRADIENT, Removal

SHARES = np.arange(1, 11) / 20  # 5 %, 10 %, … 50 % of the words


RIVAL = "comprehensiveness_of_"  # and then the name of another explanation


@dataclass(frozen=True)
class Removes(ClaimTest):
    """Comprehensiveness: how far the predicted probability falls when the top 5 % … 50 % of words are removed.

    What is judged is its excess over that of random words, the mean of several random orders. Sufficiency, how far it
    falls when only these words are kept, is shown beside it.
    """

    claim: ClassVar[Claim] = Claim(
        id="removes",
        family="faithful",
        sentence="Removing what {method} points to matters more than removing random words",
        statistic="comprehensiveness minus that of random words",
        threshold=0.02,
        source="deyoung2020",
    )
    cost: ClassVar[str] = (
        "10 passes for each of 21 orders of the words, and as many the other way round"
    )
    slow: ClassVar[bool] = True

    orders: int = 20
    removal: Removal | None = None

    def __post_init__(self) -> None:
        self.at_least(orders=1)

    def measure(self, study: Study) -> list[Row]:
        def row(_: int, e: Explanation) -> Row:
            rng = study.rng(self.claim.id, e.document)
            ranks = [ranking(e), *(rng.permutation(len(e.units)) for _ in range(self.orders))]
            falls, rests = falls_of(study, e, ranks, self.removal)
            top, random = float(falls[0]), float(falls[1:].mean())
            return {
                "value": top - random, "comprehensiveness": top, "random": random,
                "sufficiency": float(rests[0]), "random_sufficiency": float(rests[1:].mean()),
            }  # fmt: skip

        return study.by_explanation(self, row)


@dataclass(frozen=True)
class Competitive(ClaimTest):
    """Comprehensiveness beside that of other explanations: gradient × input, occlusion, LIME (exact where it can be).

    The statistic is the mean of the one divided by the largest mean of the others.
    """

    claim: ClassVar[Claim] = Claim(
        id="competitive",
        family="faithful",
        sentence="Removing what {method} points to matters nearly as much as what the best explanation points to",
        statistic="comprehensiveness ÷ that of the best explanation",
        threshold=0.8,
        source="deyoung2020",
        combine=lambda columns: _share_of_best(columns),
        per_document="comprehensiveness",
    )
    cost: ClassVar[str] = "those of gradient × input, occlusion and LIME, and 20 passes for each"
    slow: ClassVar[bool] = True

    samples: int = 1000
    removal: Removal | None = None

    def measure(self, study: Study) -> list[Row]:
        rivals: list[Method] = [Occlusion(output="probability"), best_lime(study, self.samples)]
        if GRADIENT in study.model.offers:
            rivals.insert(0, GradientInput(output="probability"))
        rivals = [r for r in rivals if r.name != study.method.name]
        others = {r.name: study.explain(r) for r in rivals}

        def row(i: int, e: Explanation) -> Row:
            rivalling = {
                f"{RIVAL}{name}": self._area(study, found[i]) for name, found in others.items()
            }
            own = self._area(study, e)
            return {"value": own, "comprehensiveness": own} | rivalling

        return study.by_explanation(self, row)

    def _area(self, study: Study, explanation: Explanation) -> float:
        return float(falls_of(study, explanation, [ranking(explanation)], self.removal)[0][0])


def _share_of_best(columns: Mapping[str, np.ndarray]) -> float:
    best = max(float(column.mean()) for name, column in columns.items() if name.startswith(RIVAL))
    return float(columns["value"].mean()) / best if best > 1e-9 else float("nan")


def ranking(explanation: Explanation) -> Int[np.ndarray, "unit"]:
    """The place of every unit in the order of scores, from what speaks most for the label."""
    return np.argsort(np.argsort(-explanation.scores, kind="stable"))


def falls_of(
    study: Study,
    explanation: Explanation,
    ranks: Sequence[Int[np.ndarray, "unit"]],
    removal: Removal | None,
) -> tuple[Float[np.ndarray, "ranking"], Float[np.ndarray, "ranking"]]:
    """How far the label's probability falls, on average over shares: without the top words, and with them alone."""
    (tokens,) = study.model.tokens([explanation.document])
    together = any(len(u.spans) > 1 for u in explanation.units)
    _, groups = units_of(tokens, explanation.unit, together)
    without = [kept_after_removal(r) for r in ranks]
    n = len(explanation.units)
    keep = np.concatenate([np.ones((1, n), dtype=bool), *without, *(~k for k in without)])
    logits = study.model.score([tokens], [keep], [groups], removal)[0]
    probability = study.model.probabilities(logits)[:, study.model.label(explanation.label)]
    falls = (probability[0] - probability[1:]).reshape(2, len(ranks), len(SHARES)).mean(-1)
    return falls[0], falls[1]


def kept_after_removal(rank: Int[np.ndarray, "unit"]) -> Bool[np.ndarray, "share unit"]:
    """Which units stay when the first 5 % … 50 % of a ranking are removed (at least one)."""
    cut = np.maximum(1, np.ceil(SHARES * len(rank) - 1e-9)).astype(int)
    return rank[None, :] >= cut[:, None]


@dataclass(frozen=True)
class Sensitive(ClaimTest):
    """The same explanation of the same model with all its weights drawn anew, around their means and as widely spread.

    Explanations of both are for the label that the trained model predicts; absolute values are ranked.
    """

    claim: ClassVar[Claim] = Claim(
        id="sensitive",
        family="faithful",
        sentence="{method} depends on what the model has learnt",
        statistic="Spearman ρ with the explanation of the model with random weights",
        threshold=0.5,
        above=False,
        source="adebayo2018",
    )
    cost: ClassVar[str] = "that of the explanation for each draw of weights"

    draws: int = 3

    def __post_init__(self) -> None:
        self.at_least(draws=1)

    def refusal(self, study: Study) -> Refusal | None:
        if isinstance(study.method, Imported):
            return Refusal(
                "method",
                f"{study.method.name} was imported: there are no scores of a model with random weights",
            )
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        own = study.explain()
        found = np.full((self.draws, len(own)), np.nan)
        for draw in range(self.draws):
            random = study.model.randomised(study.seed + draw)
            for label in dict.fromkeys(e.label for e in own):
                places = [i for i, e in enumerate(own) if e.label == label]
                others = study.method.explain(
                    random,
                    [own[i].document for i in places],
                    label,
                    seed=study.seed,
                )
                for i, other in zip(places, others, strict=True):
                    found[draw, i] = spearman(*(np.abs(x) for x in aligned([own[i], other])))
        return [
            {"value": float(np.mean(column)), "largest": float(np.max(column))}
            for column in found.T
        ]
