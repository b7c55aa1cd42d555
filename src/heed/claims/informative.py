"""Does attention carry information that another model can use?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Int

from heed.claims.claim import Claim, Row
from heed.claims.study import ClaimTest, Study
from heed.metrics import f1
from heed.models.classifier import ATTENTION
from heed.settings import AtLeast


@dataclass(frozen=True)
class Informative(ClaimTest):
    """Train a network that sees each word alone, with its words weighted by the model's attention.

    Its F1 is compared with that of uniform weights. Random weights serve as a control: they should
    not help.
    """

    claim: ClassVar[Claim] = Claim(
        id="informative",
        family="informative",
        sentence="Attention carries token information to another model",
        statistic="F1 with attention as weights minus F1 with uniform ones",
        threshold=0.0,
        source="wiegreffe2019",
        needs=frozenset({ATTENTION}),
        trains=True,
        labelled=True,
        combine=lambda rows: _f1(rows, "guided") - _f1(rows, "uniform"),
        per_document="share of right predictions with attention as weights minus with uniform ones",
    )
    cost: ClassVar[str] = "trains a small model for each seed and each kind of weights"

    seeds: Annotated[int, AtLeast(1)] = 3

    def measure(self, study: Study) -> list[Row]:
        from heed.training import again as r

        guides = {
            "guided": r.guide_by(study.model),
            "uniform": r.guide_uniform,
            "random": r.guide_random,
        }
        predictions = {
            name: np.array(
                [
                    study.trainer.guided(name, guide, s).predicted(study.documents)
                    for s in range(self.seeds)
                ]
            )
            for name, guide in guides.items()
        }
        rows: list[Row] = []
        for i, gold in enumerate(study.gold):
            if gold is None:
                rows.append({"value": float("nan")})
                continue
            right = {name: float((p[:, i] == gold).mean()) for name, p in predictions.items()}
            row: Row = {
                "value": right["guided"] - right["uniform"],
                "gold": gold,
                "labels": len(study.model.labels),
            }
            rows.append(
                row
                | {
                    f"{name}_{s}": int(p[s, i])
                    for name, p in predictions.items()
                    for s in range(self.seeds)
                }
            )
        return rows


def _f1(rows: Mapping[str, np.ndarray], name: str) -> float:
    """F1 of the second of two labels, or the mean over more labels; averaged over seeds."""
    gold, labels = rows["gold"], int(rows["labels"][0])
    scores = [
        f1_of(column.astype(int), gold.astype(int), labels)
        for key, column in rows.items()
        if key.startswith(f"{name}_")
    ]
    return float(np.mean(scores))


def f1_of(predicted: Int[np.ndarray, "n"], gold: Int[np.ndarray, "n"], labels: int) -> float:
    """F1 of label 1 if there are two labels, else the mean over labels that occur."""
    each = [f1(predicted == c, gold == c) for c in ([1] if labels == 2 else range(labels))]
    return float(np.nanmean(each)) if np.isfinite(each).any() else 0.0
