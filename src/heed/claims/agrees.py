"""Does an explanation rank words as gradients, removal and LIME do?

The statistic is Kendall's τ, weighted by the yardstick's scores: a text has few words that matter,
and no order among the others is right or wrong. The plain τ stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from heed.claims.claim import FEWEST, Evidence, Refusal, Row, stated
from heed.claims.study import ClaimTest, Study
from heed.claims.tested import statistic
from heed.claims.yardsticks import (
    FIRST_SAMPLES,
    lime,
    reliable_lime,
    restored,
    top_size,
    weighted_agreement,
)
from heed.methods import Explanation, GradientInput, Lime, LimeExact, Occlusion, Random, WordLength
from heed.methods.comparison import aligned
from heed.methods.perturbation import Samples
from heed.metrics import kendall, spearman, top_weights, weighted_kendall

GRADIENT, REMOVAL = GradientInput(output="probability"), Occlusion(output="probability")


@dataclass(frozen=True)
class AgreesGradient(ClaimTest):
    """Rank correlation of the scores with |gradient × input|, weighted by the latter.

    The ceiling is what leave-one-out reaches. Gradients of the label's probability and of its
    log-odds rank words alike: within a text, one is a multiple of the other.
    """

    claim = stated("agrees-gradient")
    against = (GradientInput,)

    def measure(self, study: Study) -> list[Row]:
        return [
            compared(judged, gradient) | {"ceiling": weighted_agreement(removal, gradient)}
            for judged, gradient, removal in study.beside(GRADIENT, REMOVAL)
        ]


@dataclass(frozen=True)
class AgreesRemoval(ClaimTest):
    """Rank correlation of the scores with leave-one-out, weighted by the latter.

    Leave-one-out is the change of the predicted probability when one word is removed; the same with
    the change of the log-odds stands beside it. The ceiling is what LIME reaches. Where LIME is not
    exact it would take many times as long as the claim: there it has 250 samples, on at most 20
    documents, and its noise makes the ceiling a little too low.
    """

    claim = stated("agrees-removal")
    against = (Occlusion,)

    def measure(self, study: Study) -> list[Row]:
        other = lime(study, FIRST_SAMPLES)
        some = range(len(study.documents)) if isinstance(other, LimeExact) else study.probed
        limes = dict(zip(some, study.explain_only(other, some), strict=True))
        rows: list[Row] = []
        for i, (judged, removal) in enumerate(study.beside(REMOVAL)):
            by_odds = replace(removal, scores=log_odds_changes(removal))
            row = compared(judged, removal)
            row["variant_log_odds"] = weighted_agreement(judged, by_odds)
            row["ceiling"] = weighted_agreement(limes[i], removal) if i in limes else math.nan
            rows.append(row)
        return rows


@dataclass(frozen=True)
class AgreesLime(ClaimTest):
    """Rank correlation of the scores with absolute LIME scores, weighted by the latter.

    samples   how many texts LIME may evaluate

    Words are distinct. LIME is exact if the model has a closed form and two labels. Else it takes
    as many samples as two draws of it need to agree well (weighted τ above .8), and values are
    corrected for the noise that is left. The ceiling is what leave-one-out reaches.
    """

    claim = stated("agrees-lime")
    against = (Lime, LimeExact)

    samples: Samples = 4000

    def measure(self, study: Study) -> list[Row]:
        yardstick = reliable_lime(study, self.samples)
        rows: list[Row] = []
        for judged, scores, removal in study.beside(yardstick.method, REMOVAL):
            row = compared(judged, scores) | {"ceiling": weighted_agreement(removal, scores)}
            row["reliability"] = yardstick.reliability
            rows.append(row if isinstance(yardstick.method, LimeExact) else corrected(row))
        return rows

    def unfit(self, rows: Sequence[Row]) -> Refusal | None:
        if not rows or rows[0]["reliability"] > 0:
            return None
        return Refusal(
            "yardstick",
            f"two draws of LIME with {self.samples:,} samples have nothing in common (τ"
            f" {rows[0]['reliability']:.2f}): set samples higher",
        )


def compared(judged: Explanation, yardstick: Explanation) -> Row:
    """Weighted τ of absolute scores, and beside it other ways to say how far rankings agree.

    plain             Kendall's τ-b, in which all words count alike
    top_k             the share of the top tenth of words (at least 3) that both have in common
    variant_spearman  Spearman's ρ
    """
    x, y = (np.abs(scores) for scores in aligned([judged, yardstick]))
    k = top_size(len(x))
    common = float(top_weights(x, k) @ top_weights(y, k)) / k if k < len(x) else math.nan
    return {
        "value": weighted_kendall(x, y),
        "plain": kendall(x, y),
        "top_k": common,
        "variant_spearman": spearman(x, y),
    }


def corrected(row: Row) -> Row:
    """The row with what noise in the yardstick takes from agreement put back.

    Without any agreement between draws there is nothing to put back.
    """
    if row["reliability"] <= 0:
        return row | {"value": math.nan, "ceiling": math.nan, "uncorrected": row["value"]}
    restorable = {key: restored(row[key], row["reliability"]) for key in ("value", "ceiling")}
    return row | restorable | {"uncorrected": row["value"]}


def log_odds_changes(removal: Explanation) -> Float[np.ndarray, "unit"]:
    """Changes of the log-odds log p/(1-p) from changes of the probability p; NaN if p saturates."""
    before = removal.probabilities[removal.label]
    p = np.append(before, before - removal.scores)
    # beyond, 1 - p has lost most of its digits
    if min(p.min(), 1 - p.max()) < 1e-12:
        return np.full(len(removal.scores), math.nan)
    odds = np.log(p) - np.log1p(-p)
    return odds[0] - odds[1:]


@dataclass(frozen=True)
class Tracks(ClaimTest):
    """Rank correlation of the scores with leave-one-out, minus that of gradient × input.

    Leave-one-out is the drop in the label's log-odds when one word is removed. Scores keep their
    signs, if they have any; the correlations of absolute values are reported beside them. The claim
    says nothing where gradient × input itself follows the prediction no better than chance: random
    scores, or the length of words.
    """

    claim = stated("tracks")
    against = (GradientInput, Occlusion)

    def measure(self, study: Study) -> list[Row]:
        rows: list[Row] = []
        others = GradientInput(output="log-odds"), Occlusion(output="log-odds")
        for explanations in study.beside(*others, Random(), WordLength()):
            scores, gradient, change, random, length = aligned(explanations)
            rho, rho_gradient = follows(scores, change), follows(gradient, change)
            rows.append(
                {
                    "value": rho - rho_gradient,
                    "spearman": rho,
                    "spearman_gradient": rho_gradient,
                    "spearman_random": follows(random, change),
                    "spearman_length": follows(length, change),
                    "spearman_unsigned": follows(np.abs(scores), np.abs(change)),
                    "spearman_gradient_unsigned": follows(np.abs(gradient), np.abs(change)),
                }
            )
        return rows

    def unfit(self, rows: Sequence[Row]) -> Refusal | None:
        for column, name in (("random", "random scores"), ("length", "the length of words")):
            chance = f"spearman_{column}"
            beyond = [
                row | {"value": row["spearman_gradient"] - row[chance]}
                for row in rows
                if math.isfinite(row["value"])
            ]
            evidence = Evidence(self.claim, beyond)
            # fewer documents decide nothing, in one way or the other
            if not beyond or evidence.independent < FEWEST:
                return None
            difference, (low, high) = statistic(evidence, 0.95)
            if low > 0:
                continue
            own = np.mean([row["spearman_gradient"] for row in beyond])
            theirs = np.mean([row[chance] for row in beyond])
            return Refusal(
                "yardstick",
                "gradient × input, the yardstick, does not follow the prediction better than"
                f" {name} do here (Spearman {own:.2f} and {theirs:.2f}, difference"
                f" {difference:.2f} [{low:.2f}, {high:.2f}])",
            )
        return None


def follows(scores: Float[np.ndarray, "unit"], change: Float[np.ndarray, "unit"]) -> float:
    """Spearman's ρ with the change; 0 if the scores rank no word before another."""
    rho = spearman(scores, change)
    return 0.0 if math.isnan(rho) and not math.isnan(spearman(change, change)) else rho
