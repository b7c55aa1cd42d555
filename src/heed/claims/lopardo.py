"""Tests from "Attention Meets Post-hoc Interpretability" (Lopardo, Precioso and Garreau, 2024)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from heed.claims.claim import Claim, ClaimTest, Row, Study
from heed.methods import GradientInput, Lime, LimeExact, Occlusion
from heed.methods.comparison import aligned, rank_agreement
from heed.metrics import kendall, spearman
from heed.models.classifier import CLOSED, GRADIENT


def best_lime(study: Study, samples: int) -> Lime | LimeExact:
    """LIME of the log-odds, without sampling where these have a closed form, with so many samples elsewhere.

    A logit is no function of the predictions: the same may be added to all of them. Log-odds are, and as straight.
    """
    closed = CLOSED in study.model.offers and len(study.model.labels) == 2
    return LimeExact(output="log-odds") if closed else Lime(samples=samples, output="log-odds")


@dataclass(frozen=True)
class AgreesLime(ClaimTest):
    """Rank correlation with the absolute LIME scores, over distinct words.

    LIME is exact where the model has a closed form and two labels.
    """

    claim: ClassVar[Claim] = Claim(
        id="agrees-lime",
        family="agrees",
        sentence="{method} ranks words as LIME does",
        statistic="Kendall τ with |LIME|",
        threshold=0.5,
        source="lopardo2024",
        gated=True,
    )
    cost: ClassVar[str] = "one pass for each sample of LIME; milliseconds where it is exact"
    dear: ClassVar[bool] = True
    against = (Lime, LimeExact)

    samples: int = 2000

    def measure(self, study: Study) -> list[Row]:
        lime = study.explain(best_lime(study, self.samples))
        return [
            {"value": rank_agreement(e, other)}
            for e, other in zip(study.explain(), lime, strict=True)
        ]


@dataclass(frozen=True)
class Signed(ClaimTest):
    """Of a document's top distinct words (a tenth, at least 3), the share that LIME does not score negative.

    LIME is exact where the model has a closed form and two labels.
    """

    claim: ClassVar[Claim] = Claim(
        id="signed",
        family="signed",
        sentence="What {method} points to supports the label",
        statistic="share of top words that LIME does not score negative",
        threshold=0.8,
        source="lopardo2024",
        gated=True,
    )
    cost: ClassVar[str] = "nothing more than agrees-lime"
    dear: ClassVar[bool] = True
    against = (Lime, LimeExact)

    samples: int = 2000

    def measure(self, study: Study) -> list[Row]:
        rows: list[Row] = []
        for pair in zip(
            study.explain(), study.explain(best_lime(study, self.samples)), strict=True
        ):
            scores, lime = aligned(pair)
            top = np.argsort(-scores, kind="stable")[: max(3, round(len(scores) / 10))]
            negative = lime[top] < -1e-9 * np.abs(lime).max()  # rounding errors have no sign
            against = np.abs(lime[lime < 0]).sum() / (np.abs(lime).sum() or 1.0)
            value = 1 - float(negative.mean()) if len(scores) >= 3 and lime.any() else float("nan")
            rows.append({"value": value, "negative_contribution": float(against)})
        return rows


@dataclass(frozen=True)
class Tracks(ClaimTest):
    """Rank correlation of a score with what removal takes of the label's log-odds: minus that of gradient × input.

    Scores are taken as they are, with their signs where they have any; what is left without signs is shown beside it.
    """

    claim: ClassVar[Claim] = Claim(
        id="tracks",
        family="agrees",
        sentence="{method} follows the prediction at least as well as gradients",
        statistic="Spearman with the change on removal, less that of gradient × input",
        threshold=-0.05,
        source="lopardo2024",
        needs=frozenset({GRADIENT}),
        gated=True,
    )
    cost: ClassVar[str] = "a gradient, and as many passes as words"
    against = (GradientInput, Occlusion)

    def measure(self, study: Study) -> list[Row]:
        rows: list[Row] = []
        yardsticks = [
            study.explain(m)
            for m in (GradientInput(output="log-odds"), Occlusion(output="log-odds"))
        ]
        every = zip(study.explain(), *yardsticks, strict=True)
        for explanations in every:
            own, gradient, change = aligned(explanations)
            mine, theirs = spearman(own, change), spearman(gradient, change)
            without = [spearman(np.abs(x), np.abs(change)) for x in (own, gradient)]
            row = {"value": mine - theirs, "spearman": mine, "spearman_gradient": theirs}
            rows.append(
                row | {"spearman_unsigned": without[0], "spearman_gradient_unsigned": without[1]}
            )
        return rows


@dataclass(frozen=True)
class Robust(ClaimTest):
    """Rank correlation of LIME when words are replaced and when they are deleted.

    Sampling noise lowers it: a document counts only where LIME drawn again agrees with itself above the threshold, both
    ways. Where the model has a closed form and two labels, LIME with words replaced is exact.
    """

    claim: ClassVar[Claim] = Claim(
        id="robust",
        family="stable",
        sentence="LIME does not hang on how words are removed",
        statistic="Kendall τ between LIME with words replaced and deleted",
        threshold=0.7,
        source="lopardo2024",
    )
    cost: ClassVar[str] = "four runs of LIME"
    dear: ClassVar[bool] = True

    samples: int = 2000

    def refusal(self, study: Study) -> str:
        missing = {"replace", "delete"} - set(study.model.removals)
        if missing:
            return f"the model has no way to {missing.pop()} words"
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        samples = (
            2 * self.samples if CLOSED in study.model.offers else self.samples
        )  # which cost little there
        replaced = replace(best_lime(study, samples), removal="replace")
        deleted = Lime(samples=samples, removal="delete", output="log-odds")
        pairs = [
            (study.explain(method), study.explain_again(method)) for method in (replaced, deleted)
        ]
        rows: list[Row] = []
        for one, one_again, other, other_again in zip(*pairs[0], *pairs[1], strict=True):
            again = [
                kendall(one.scores, one_again.scores),
                kendall(other.scores, other_again.scores),
            ]
            # draws of their own on both sides: shared ones would agree by chance
            value = kendall(one.scores, other_again.scores)
            telling = min(again) > self.claim.threshold
            rows.append(
                {
                    "value": value if telling else float("nan"),
                    "again": again[0],
                    "again_deleted": again[1],
                }
            )
        return rows
