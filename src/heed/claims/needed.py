"""Does the model need attention, and does its prediction depend on where attention goes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from jaxtyping import Bool, Float

from heed.claims.claim import Row, stated
from heed.claims.study import ClaimTest, Positions, Study, attention_facts
from heed.metrics import tvd
from heed.models.devices import as_numbers
from heed.settings import AtLeast
from heed.text import Tokens

if TYPE_CHECKING:  # which loads torch
    from torch import Tensor


@dataclass(frozen=True)
class Needed(ClaimTest):
    """Retrain the model with attention and with uniform weights, from the same seeds.

    The statistic is the accuracy that is lost with uniform weights.
    """

    claim = stated("needed")

    seeds: Annotated[int, AtLeast(3)] = 3

    def measure(self, study: Study) -> list[Row]:
        again, seeds = study.trainer, study.trainer.seeds(self.seeds)
        learnt, uniform = (
            np.array([again.again(seed, flat)(study.documents).argmax(1) for seed in seeds])
            for flat in (False, True)
        )
        rows: list[Row] = []
        for i, gold in enumerate(study.gold):
            shares = [float((labels[:, i] == gold).mean()) for labels in (learnt, uniform)]
            value = float("nan") if gold is None else shares[0] - shares[1]
            rows.append({"value": value, "correct": shares[0], "correct_uniform": shares[1]})
        return rows


@dataclass(frozen=True)
class Used(ClaimTest):
    """Shuffle the attention of the classifying row over words and see how far the prediction moves.

    All heads of the last layer are shuffled in the same way. Special tokens and padding keep their
    weights; with positions="all" only padding does.
    """

    claim = stated("used")

    permutations: Annotated[int, AtLeast(1)] = 100
    positions: Positions = "words"

    def measure(self, study: Study) -> list[Row]:
        return study.by_batch(
            self, lambda tokens: self._batch(study, tokens), most=1_000_000 // self.permutations
        )

    def _batch(self, study: Study, tokens: Sequence[Tokens]) -> list[Row]:
        import torch

        with torch.no_grad():
            plain, logits, *_ = study.model.attending(tokens)
            weights = plain.classifying_rows()
            shuffled = weights.expand(self.permutations, *weights.shape).clone()
            free = [study.free(t, self.positions) for t in tokens]
            for b, t in enumerate(tokens):
                self._shuffle(shuffled[:, b], free[b], study.rng(self.claim.id, t.document))
            moved = logits(shuffled)
        before, after = (study.model.probabilities(as_numbers(z)) for z in (plain.logits, moved))
        moves = tvd(after, before) if study.model.exclusive else np.abs(after - before).max(-1)
        distance = np.median(moves, axis=0)
        return [
            {"value": float(distance[b])} | facts
            for b, facts in enumerate(attention_facts(plain, tokens, free, before))
        ]

    def _shuffle(
        self,
        weights: Float[Tensor, "variant head query key"],
        free: Bool[np.ndarray, "token"],
        rng: np.random.Generator,
    ) -> None:
        import torch

        keys = np.flatnonzero(free)
        orders = torch.from_numpy(rng.permuted(np.tile(keys, (self.permutations, 1)), axis=1))
        taken = weights.gather(3, orders[:, None, None].expand(-1, *weights.shape[1:3], -1))
        weights[..., torch.from_numpy(keys)] = taken
