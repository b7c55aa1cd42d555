"""Tests of "Attention is not Explanation" (Jain and Wallace, 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.diagnose.diagnostic import Claim, Diagnostic, Row, Study
from heed.explain import GradientInput, Occlusion
from heed.explain.comparison import rank_agreement
from heed.metrics import tvd
from heed.models.classifier import GRADIENT, REPLACEABLE
from heed.text import Tokens

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Used(Diagnostic):
    """Shuffle the attention of the classifying row among its words and see how far the prediction moves.

    All heads of the last layer are shuffled alike. Special tokens and padding keep their weights; positions="all"
    lets the weights of special tokens move too.
    """

    claim: ClassVar[Claim] = Claim(
        id="used",
        family="needed",
        sentence="The prediction depends on where attention goes",
        statistic="median TVD over permutations of attention",
        threshold=0.05,
        source="jain2019",
        needs=frozenset({REPLACEABLE}),
    )

    permutations: int = 100
    positions: Literal["words", "all"] = "words"

    def measure(self, study: Study) -> list[Row]:
        tokens = study.model.tokens(study.documents)
        rows: list[Row] = [{}] * len(tokens)
        for batch in study.model.batches(tokens, most=1_000_000 // self.permutations):
            for i, row in zip(batch, self._batch(study, [tokens[i] for i in batch]), strict=True):
                rows[i] = row
        return rows

    def _batch(self, study: Study, tokens: Sequence[Tokens]) -> list[Row]:
        import torch

        with torch.no_grad():
            plain = study.model.trace(tokens, layers=[-1])
            last = len(plain.attention) - 1
            weights = plain.classifying_rows()
            shuffled = weights.expand(self.permutations, *weights.shape).clone()
            for b, t in enumerate(tokens):
                self._shuffle(shuffled[:, b], t, study.rng(self.claim.id, t.document))
            moved = study.model.trace(tokens, attention={last: shuffled})
        before, after = (study.model.probabilities(t.logits.double().numpy()) for t in (plain, moved))
        moves = tvd(after, before) if study.model.exclusive else np.abs(after - before).max(-1)
        distance = np.median(moves, axis=0)
        classifying = plain.classifying().mean(1)
        return [
            {
                "value": float(distance[b]),
                "max_attention": float(classifying[b, : len(t)][~t.special].max()),
                "special_attention": float(classifying[b, : len(t)][t.special].sum()),
                "padding_attention": float(classifying[b, len(t) :].sum()),
            }
            for b, t in enumerate(tokens)
        ]

    def _shuffle(
        self, weights: Float[Tensor, "variant head query key"], tokens: Tokens, rng: np.random.Generator
    ) -> None:
        import torch

        places = np.flatnonzero(~tokens.special) if self.positions == "words" else np.arange(len(tokens))
        orders = torch.from_numpy(rng.permuted(np.tile(places, (self.permutations, 1)), axis=1))
        taken = weights.gather(3, orders[:, None, None].expand(-1, *weights.shape[1:3], -1))
        weights[..., torch.from_numpy(places)] = taken


@dataclass(frozen=True)
class AgreesGradient(Diagnostic):
    """Rank correlation with |gradient × input|, and, as a yardstick, between that and leave-one-out."""

    claim: ClassVar[Claim] = Claim(
        id="agrees-gradient",
        family="agrees",
        sentence="{explainer} ranks words as the gradient does",
        statistic="Kendall τ with |gradient × input|",
        threshold=0.5,
        source="jain2019",
        needs=frozenset({GRADIENT}),
        gated=True,
    )
    against = (GradientInput,)

    def measure(self, study: Study) -> list[Row]:
        gradient = study.explain(GradientInput(output="probability"))
        removal = study.explain(Occlusion(output="probability"))
        return [
            {"value": rank_agreement(e, g), "gradient_removal": rank_agreement(g, r)}
            for e, g, r in zip(study.explain(), gradient, removal, strict=True)
        ]


@dataclass(frozen=True)
class AgreesRemoval(Diagnostic):
    """Rank correlation with the change of the predicted probability when each word alone is removed."""

    claim: ClassVar[Claim] = Claim(
        id="agrees-removal",
        family="agrees",
        sentence="{explainer} ranks words as their removal does",
        statistic="Kendall τ with |leave-one-out|",
        threshold=0.5,
        source="jain2019",
        gated=True,
    )
    against = (Occlusion,)

    def measure(self, study: Study) -> list[Row]:
        removal = study.explain(Occlusion(output="probability"))
        return [{"value": rank_agreement(e, r)} for e, r in zip(study.explain(), removal, strict=True)]
