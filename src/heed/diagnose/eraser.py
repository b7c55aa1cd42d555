"""Tests of faithfulness by removal, in the manner of ERASER (DeYoung and others, 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from heed.diagnose.diagnostic import Claim, Diagnostic, Row, Study
from heed.explain.explanation import units_of
from heed.models.classifier import Removal

SHARES = np.arange(1, 11) / 20  # 5 %, 10 %, … 50 % of the words


@dataclass(frozen=True)
class Removes(Diagnostic):
    """Comprehensiveness: how far the predicted probability falls when the top 5 % … 50 % of words are removed.

    What is judged is its excess over that of random words, the mean of several random orders.
    """

    claim: ClassVar[Claim] = Claim(
        id="removes",
        family="faithful",
        sentence="Removing what {explainer} points to matters more than removing random words",
        statistic="comprehensiveness minus that of random words",
        threshold=0.02,
        source="deyoung2020",
    )

    orders: int = 20
    removal: Removal | None = None

    def measure(self, study: Study) -> list[Row]:
        rows: list[Row] = []
        explanations = study.explain()
        tokens = study.model.tokens(study.documents)
        for t, e in zip(tokens, explanations, strict=True):
            n, rng = len(e.units), study.rng(self.claim.id, t.document)
            ranks = [
                np.argsort(np.argsort(-e.scores, kind="stable")),
                *(rng.permutation(n) for _ in range(self.orders)),
            ]
            keep = np.concatenate([np.ones((1, n), dtype=bool), *(kept_after_removal(r) for r in ranks)])
            _, groups = units_of(t, "word", study.explainer.together())
            logits = study.model.score([t], [keep], [groups], self.removal)[0]
            probability = study.model.probabilities(logits)[:, study.model.label(e.label)]
            falls = (probability[0] - probability[1:]).reshape(len(ranks), len(SHARES)).mean(1)
            top, random = float(falls[0]), float(falls[1:].mean())
            rows.append({"value": top - random, "comprehensiveness": top, "random": random})
        return rows


def kept_after_removal(rank: Int[np.ndarray, "unit"]) -> Bool[np.ndarray, "share unit"]:
    """Which units stay when the first 5 % … 50 % of a ranking are removed (at least one)."""
    cut = np.maximum(1, np.ceil(SHARES * len(rank) - 1e-9)).astype(int)
    return rank[None, :] >= cut[:, None]
