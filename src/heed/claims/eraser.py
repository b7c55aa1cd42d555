"""Tests from ERASER (DeYoung et al., 2020): does removing what an explanation points to matter, and do people agree?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.claims.claim import Claim, ClaimTest, Row, Study
from heed.claims.lopardo import best_lime
from heed.methods import Explanation, GradientInput, Method, Occlusion
from heed.methods.method import units_of
from heed.metrics import average_precision
from heed.models.classifier import GRADIENT, Removal

SHARES = np.arange(1, 11) / 20  # 5 %, 10 %, … 50 % of the words


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
    dear: ClassVar[bool] = True

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
    dear: ClassVar[bool] = True

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


RIVAL = "comprehensiveness_of_"  # and then the name of another explanation


def _share_of_best(columns: Mapping[str, np.ndarray]) -> float:
    best = max(float(column.mean()) for name, column in columns.items() if name.startswith(RIVAL))
    return float(columns["value"].mean()) / best if best > 1e-9 else float("nan")


@dataclass(frozen=True)
class Plausible(ClaimTest):
    """The words that people marked as the reason for the label, against the order of scores."""

    claim: ClassVar[Claim] = Claim(
        id="plausible",
        family="plausible",
        sentence="{method} matches what people mark",
        statistic="average precision for human rationales minus the share of marked words",
        threshold=0.1,
        source="deyoung2020",
    )
    cost: ClassVar[str] = "that of the explanation alone"
    asks: ClassVar[str] = "human rationales"

    def refusal(self, study: Study) -> str:
        if not any(d.rationale for d in study.documents):
            return "the documents have no human rationales"
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        rows = []
        for e in study.explain():
            gold = marked(e)
            found = (
                average_precision(np.round(e.scores, 12), gold)
                if 0 < gold.sum() < len(gold)
                else float("nan")
            )
            share = float(gold.mean()) if len(gold) else float("nan")
            rows.append({"value": found - share, "average_precision": found, "marked": share})
        return rows


def marked(explanation: Explanation) -> Bool[np.ndarray, "unit"]:
    """Which units touch what people marked."""
    spans = [(s.segment, s.start, s.end) for s in explanation.document.rationale]
    return np.array(
        [
            any(
                s == u.segment and start < b and a < end
                for s, a, b in spans
                for start, end in u.spans
            )
            for u in explanation.units
        ],
        dtype=bool,
    )


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
