"""Does attention carry information that another model can use?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Int

from heed.claims.claim import Columns, Row, stated
from heed.claims.study import ClaimTest, Study
from heed.metrics import f1
from heed.settings import AtLeast


def _f1(columns: Columns, name: str) -> float:
    """F1 of the second of two labels, or the mean over more labels; averaged over seeds."""
    gold, labels = columns["gold"].astype(int), int(columns["labels"][0])
    predictions = [column for key, column in columns.items() if key.startswith(f"{name}_")]
    return float(np.mean([f1_of(column.astype(int), gold, labels) for column in predictions]))


def f1_of(predicted: Int[np.ndarray, "n"], gold: Int[np.ndarray, "n"], labels: int) -> float:
    """F1 of label 1 if there are two labels, else the mean over labels that occur."""
    each = [f1(predicted == c, gold == c) for c in ([1] if labels == 2 else range(labels))]
    return float(np.nanmean(each)) if np.isfinite(each).any() else 0.0


def _gain(columns: Columns) -> float:
    return _f1(columns, "guided") - _f1(columns, "uniform")


@dataclass(frozen=True)
class Informative(ClaimTest):
    """Train a network that sees each word alone, with its words weighted by the model's attention.

    Its F1 is compared with that of uniform weights. Random weights serve as a control: they should
    not help. The interval is for other documents and other training seeds.
    """

    claim = stated("informative", _gain)

    seeds: Annotated[int, AtLeast(1)] = 3

    def measure(self, study: Study) -> list[Row]:
        from heed.training.again import guide_by, guide_random, guide_uniform

        guides = {
            "guided": guide_by(study.model),
            "uniform": guide_uniform,
            "random": guide_random,
        }
        predictions = {}
        for name, guide in guides.items():
            models = [study.trainer.guided(name, guide, seed) for seed in range(self.seeds)]
            predictions[name] = np.array([model.predicted(study.documents) for model in models])
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
            for seed in range(self.seeds):
                labels = {name: int(p[seed, i]) for name, p in predictions.items()}
                row |= {f"{name}_{seed}": label for name, label in labels.items()}
                gain = float(labels["guided"] == gold) - float(labels["uniform"] == gold)
                row[f"seed_{seed}"] = gain
            rows.append(row)
        return rows
