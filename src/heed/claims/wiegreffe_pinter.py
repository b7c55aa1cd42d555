"""Tests of "Attention is not not Explanation" (Wiegreffe and Pinter, 2019). All of them train models again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float, Int

from heed.claims.claim import Claim, ClaimTest, Row, Study
from heed.errors import NotApplicable
from heed.metrics import f1, jsd, tvd
from heed.models.classifier import ATTENTION, DIFFERENTIABLE, REPLACEABLE, Classifier
from heed.text import Document, Tokens

if TYPE_CHECKING:  # which load torch
    from heed.training.again import Retraining

STRENGTHS = (5e-5, 1.6e-4, 5e-4, 1.6e-3, 5e-3)  # per document, on a logarithmic scale
STRONGER = (1.6e-2, 5e-2, 5e-1)  # where those do not move predictions
NEAR = 0.05  # mean TVD at which the curve of adversaries is read


@dataclass(frozen=True)
class Needed(ClaimTest):
    """Train with attention and with all words weighed alike, from the same seeds: how much accuracy is lost?"""

    claim: ClassVar[Claim] = Claim(
        id="needed",
        family="needed",
        sentence="A model with attention frozen to uniform does worse",
        statistic="accuracy with attention minus accuracy with uniform weights",
        threshold=0.01,
        source="wiegreffe2019",
        needs=frozenset({ATTENTION, REPLACEABLE}),
        trains=True,
        labelled=True,
    )
    cost: ClassVar[str] = (
        "trains the model again for each seed, with its own attention and with uniform attention"
    )

    seeds: int = 3

    def __post_init__(self) -> None:
        self.at_least(seeds=3)

    def measure(self, study: Study) -> list[Row]:
        again, seeds = study.retraining, study.retraining.seeds(self.seeds)
        own, uniform = (
            np.array([again.again(seed, flat)(study.documents).argmax(1) for seed in seeds])
            for flat in (False, True)
        )
        rows: list[Row] = []
        for i, gold in enumerate(study.gold):
            shares = [float((found[:, i] == gold).mean()) for found in (own, uniform)]
            value = float("nan") if gold is None else shares[0] - shares[1]
            rows.append({"value": value, "correct": shares[0], "correct_uniform": shares[1]})
        return rows


@dataclass(frozen=True)
class Stable(ClaimTest):
    """Train again from other seeds: how far does the attention of the same document move?"""

    claim: ClassVar[Claim] = Claim(
        id="stable",
        family="determined",
        sentence="Training again gives the same attention",
        statistic="median distance of attention over training seeds (JSD / ln 2)",
        threshold=0.25,
        above=False,
        source="wiegreffe2019",
        needs=frozenset({ATTENTION}),
        trains=True,
    )
    cost: ClassVar[str] = "trains the model again for each seed"

    seeds: int = 8

    def __post_init__(self) -> None:
        self.at_least(seeds=1)

    def measure(self, study: Study) -> list[Row]:
        own = attention_of(study.model, study.documents)
        distances = seed_distances(study.retraining, study.documents, own, self.seeds)
        return [
            {
                "value": float(np.median(distances[:, i]) / np.log(2)),
                "maximum": float(distances[:, i].max() / np.log(2)),
                "max_attention": float(own[i].max()),
            }
            for i in range(len(own))
        ]


@dataclass(frozen=True)
class Informative(ClaimTest):
    """Weigh the words of a network that sees each by itself as attention does: is it better than all words alike?

    Random weights, as a control, ought not to be.
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
    cost: ClassVar[str] = "trains a small model for each seed and choice of weights"

    seeds: int = 3

    def __post_init__(self) -> None:
        self.at_least(seeds=1)

    def measure(self, study: Study) -> list[Row]:
        from heed.training import again as r

        guides = {
            "guided": r.guide_by(study.model),
            "uniform": r.guide_uniform,
            "random": r.guide_random,
        }
        found = {
            name: np.array(
                [
                    study.retraining.guided(name, guide, s).predicted(study.documents)
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
            right = {name: float((p[:, i] == gold).mean()) for name, p in found.items()}
            row: Row = {
                "value": right["guided"] - right["uniform"],
                "gold": gold,
                "labels": len(study.model.labels),
            }
            rows.append(
                row
                | {
                    f"{name}_{s}": int(p[s, i])
                    for name, p in found.items()
                    for s in range(self.seeds)
                }
            )
        return rows


@dataclass(frozen=True)
class ExclusiveModel(ClaimTest):
    """Train copies of the model to keep its predictions while attending elsewhere, more and more strongly.

    Their mean distances in prediction (TVD) and attention (JSD) make a curve; it is read where the prediction moves by
    0.05 on average, and compared with the distance between models that were only trained from other seeds. The curve
    goes on to stronger adversaries until predictions move that far.
    """

    claim: ClassVar[Claim] = Claim(
        id="exclusive-model",
        family="determined",
        sentence="No one trained model gives the same predictions with very different attention",
        statistic="distance of an adversary's attention ÷ that between training seeds",
        threshold=2.0,
        above=False,
        source="wiegreffe2019",
        needs=frozenset({ATTENTION, REPLACEABLE, DIFFERENTIABLE}),
        trains=True,
        gated=True,
        combine=lambda rows: (
            read_off(*_curve(rows)) / (float(rows["seeds"].mean()) or float("nan"))
        ),
    )
    cost: ClassVar[str] = "trains the model again for each seed, and adversaries of six strengths"

    seeds: int = 8
    epochs: int = 20

    def __post_init__(self) -> None:
        self.at_least(seeds=1, epochs=1)

    def measure(self, study: Study) -> list[Row]:
        own = attention_of(study.model, study.documents)
        base = study.model.probabilities(study.model(study.documents))
        between = np.median(
            seed_distances(study.retraining, study.documents, own, self.seeds), axis=0
        )
        if not between.any():
            raise NotApplicable(
                "Training again gives the very same attention: there is nothing to compare with."
            )
        rows: list[Row] = [{"seeds": float(between[i])} for i in range(len(own))]
        reached = 0.0
        for k, strength in enumerate([*STRENGTHS, *STRONGER]):
            if k >= len(STRENGTHS) and reached > NEAR:
                break
            adversary = study.retraining.adversary(strength, epochs=self.epochs)
            moved = np.asarray(tvd(adversary.probabilities(adversary(study.documents)), base))
            reached = max(reached, float(moved.mean()))
            theirs = attention_of(adversary, study.documents)
            for i, row in enumerate(rows):
                row |= {f"tvd_{k}": float(moved[i]), f"jsd_{k}": float(jsd(own[i], theirs[i]))}
        columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        for i, row in enumerate(rows):
            here = {key: column[i : i + 1] for key, column in columns.items()}
            row["value"] = read_off(*_curve(columns), _curve(here)[1]) / float(between.mean())
        return rows


def attention_of(
    model: Classifier, documents: Sequence[Document]
) -> list[Float[np.ndarray, "word"]]:
    """The attention that is judged: of the classifying row, mean over heads, on words, as shares."""
    from heed.training.examples import outputs_of

    return [_shares(t, a) for t, _, a in outputs_of(model, documents)]


def _shares(tokens: Tokens, attention: Float[np.ndarray, "key"]) -> Float[np.ndarray, "word"]:
    on_words = attention[: len(tokens)][~tokens.special].astype(float)
    return on_words / (on_words.sum() or 1.0)


def seed_distances(
    retraining: Retraining,
    documents: Sequence[Document],
    own: Sequence[Float[np.ndarray, "word"]],
    seeds: int,
) -> Float[np.ndarray, "seed document"]:
    """JSD between a model's attention and that of models trained from other seeds."""
    found = []
    for seed in retraining.seeds(seeds):
        theirs = attention_of(retraining.again(seed), documents)
        found.append([float(jsd(a, b)) for a, b in zip(own, theirs, strict=True)])
    return np.array(found)


def _curve(
    rows: Mapping[str, np.ndarray],
) -> tuple[Float[np.ndarray, "point"], Float[np.ndarray, "point"]]:
    """Mean distances in prediction and in attention, from the model itself on to ever stronger adversaries."""
    count = sum(key.startswith("tvd_") for key in rows)
    moved = [0.0, *(float(rows[f"tvd_{k}"].mean()) for k in range(count))]
    away = [0.0, *(float(rows[f"jsd_{k}"].mean()) for k in range(count))]
    return np.array(moved), np.array(away)


def read_off(
    moved: Float[np.ndarray, "point"],
    away: Float[np.ndarray, "point"],
    instead: Float[np.ndarray, "point"] | None = None,
) -> float:
    """The largest distance of attention on the curve up to where predictions move by 0.05.

    Between the last point before that and the first behind it the curve is a straight line. With `instead`, the same
    place of another curve is read.
    """
    shown = away if instead is None else instead
    inside = np.flatnonzero(moved <= NEAR)
    best = inside[away[inside].argmax()]
    behind = [i for i in np.flatnonzero(moved > NEAR) if away[i] > away[best]]
    if not behind:
        return float(shown[best])
    next_ = min(behind, key=lambda i: moved[i])
    share = (NEAR - moved[best]) / (moved[next_] - moved[best])
    return float(shown[best] + share * (shown[next_] - shown[best]))


def _f1(rows: Mapping[str, np.ndarray], name: str) -> float:
    """F1 of the second of two labels, or the mean over labels where there are more; mean over seeds."""
    gold, labels = rows["gold"], int(rows["labels"][0])
    scores = [
        f1_of(column.astype(int), gold.astype(int), labels)
        for key, column in rows.items()
        if key.startswith(f"{name}_")
    ]
    return float(np.mean(scores))


def f1_of(predicted: Int[np.ndarray, "n"], gold: Int[np.ndarray, "n"], labels: int) -> float:
    """F1 of the label 1 where there are two, else the mean over labels that occur."""
    each = [f1(predicted == c, gold == c) for c in ([1] if labels == 2 else range(labels))]
    return float(np.nanmean(each)) if np.isfinite(each).any() else 0.0
