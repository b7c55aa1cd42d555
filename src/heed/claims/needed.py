"""Does the model need attention, and does its prediction depend on where attention goes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.claims.claim import Row, stated
from heed.claims.study import ClaimTest, Positions, Study, attention_facts
from heed.methods import AttentionMean
from heed.models.classifier import Attending, Classifier, output_of
from heed.models.devices import as_numbers
from heed.settings import AtLeast
from heed.text import Tokens

if TYPE_CHECKING:  # which loads torch
    from torch import Tensor

CERTAIN = 0.95  # a probability above which changes of log-odds count


@dataclass(frozen=True)
class Needed(ClaimTest):
    """Retrain the model with attention and with uniform weights, from the same seeds.

    The statistic is the accuracy that is lost with uniform weights. Its interval is for other
    documents and other training seeds.
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
            # 1 if it is right with this seed, else 0
            right = [(labels[:, i] == gold).astype(float) for labels in (learnt, uniform)]
            lost = right[0] - right[1]
            value = float("nan") if gold is None else float(lost.mean())
            shares = {"correct": float(right[0].mean()), "correct_uniform": float(right[1].mean())}
            by_seed = {f"seed_{seed}": float(x) for seed, x in zip(seeds, lost, strict=True)}
            rows.append({"value": value} | shares | by_seed)
        return rows


@dataclass(frozen=True)
class Used(ClaimTest):
    """Shuffle attention over words and see how far the prediction moves.

    What is shuffled is what the judged method reads: by default the classifying row of the last
    layer, all heads in the same way, `permutations` times. The median over permutations counts.

    The column `all_layers` shuffles the words' keys in all layers at once, in all rows and heads in
    the same way, `everywhere` times (0: not at all): a deep model may read its words in a layer
    below, and then shuffling the last one moves nothing. A row moves weight only among the words
    that it sees, so causal models stay causal. It is the statistic for methods that follow
    attention through all layers, and takes a whole pass each time.

    Special tokens and padding keep their weights; with positions="all" only padding does.

    layers   "judged": those that the method under audit reads; else "last", "all", or numbers such
             as "0,2": the classifying rows of these layers
    """

    claim = stated("used")

    permutations: Annotated[int, AtLeast(1)] = 100
    everywhere: Annotated[int, AtLeast(0)] = 20
    layers: str = "judged"
    positions: Positions = "words"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers != "judged":
            AttentionMean(layers=self.layers)  # refuses invalid layers

    def measure(self, study: Study) -> list[Row]:
        layers = study.method.layers_read() if self.layers == "judged" else self.layers
        resolved = replace(self, layers=layers)
        return study.by_batch(
            resolved,
            lambda tokens: resolved._batch(study, tokens),
            most=1_000_000 // self.permutations,
        )

    def _batch(self, study: Study, tokens: Sequence[Tokens]) -> list[Row]:
        import torch

        model = study.model
        free = [study.free(t, self.positions) for t in tokens]
        with torch.no_grad():
            attending = model.attending(tokens)
            last = self._last(study, tokens, attending, free)
            plain = attending.trace
            layers = AttentionMean(layers=self.layers).layers_of(len(plain.attention))
            deep = len(plain.attention) > 1
            needed = deep and (self.everywhere > 0 or self.layers == "all")
            everywhere = self._all_layers(study, tokens, free) if needed else last
            if layers == [len(plain.attention) - 1]:
                judged = last
            elif self.layers == "all":
                judged = everywhere
            else:
                judged = self._some_layers(study, tokens, free, layers)
        before = model.probabilities(as_numbers(plain.logits))
        rows = attention_facts(plain, tokens, free, before)
        for b, row in enumerate(rows):
            row |= {"value": float(judged.moved[b]), "plain": float(judged.plain[b])}
            row |= {"saturated": float(last.saturated[b]), "last_layer": float(last.moved[b])}
            if needed or not deep:
                row["all_layers"] = float(everywhere.moved[b])
        return rows

    def _last(
        self, study: Study, tokens: Sequence[Tokens], attending: Attending, free: Sequence[Free]
    ) -> Moved:
        """The classifying row of the last layer."""
        plain, logits, *_ = attending
        weights = plain.classifying_rows()
        shuffled = weights.expand(self.permutations, *weights.shape).clone()
        for b, t in enumerate(tokens):
            rng = study.rng(self.claim.id, t.document)
            keys = np.flatnonzero(free[b])
            orders = rng.permuted(np.tile(keys, (self.permutations, 1)), axis=1)
            _shuffle(shuffled[:, b], keys, orders)
        return Moved.of(study.model, as_numbers(plain.logits), as_numbers(logits(shuffled)))

    def _some_layers(
        self,
        study: Study,
        tokens: Sequence[Tokens],
        free: Sequence[Free],
        layers: Sequence[int],
    ) -> Moved:
        """The classifying rows of these layers, all in the same way."""
        trace = study.model.trace(tokens, layers=layers)
        rows = {i: trace.classifying_rows(i) for i in layers}
        rngs = [study.rng(self.claim.id, t.document, "rows") for t in tokens]
        after = []
        for _ in range(max(1, self.everywhere)):
            shuffled = {i: weights.clone() for i, weights in rows.items()}
            for b, rng in enumerate(rngs):
                keys = np.flatnonzero(free[b])
                order = rng.permutation(keys)[None]
                for weights in shuffled.values():
                    _shuffle(weights[None, b], keys, order)
            logits = study.model.trace(tokens, attention=shuffled, layers=()).logits
            after.append(as_numbers(logits))
        return Moved.of(study.model, as_numbers(trace.logits), np.stack(after))

    def _all_layers(self, study: Study, tokens: Sequence[Tokens], free: Sequence[Free]) -> Moved:
        """All rows of all layers."""
        import torch

        trace = study.model.trace(tokens)
        rngs = [study.rng(self.claim.id, t.document, "everywhere") for t in tokens]
        may_move = np.zeros((len(tokens), trace.tokens.shape[1]), dtype=bool)
        for b, f in enumerate(free):
            may_move[b, : len(f)] = f
        after = []
        for _ in range(max(1, self.everywhere)):
            turns = np.zeros(may_move.shape)
            for b, rng in enumerate(rngs):
                turns[b, free[b].nonzero()[0]] = rng.random(int(free[b].sum()))
            attention = {
                i: shuffled_keys(weights, torch.from_numpy(may_move), torch.from_numpy(turns))
                for i, weights in enumerate(trace.attention)
            }
            logits = study.model.trace(tokens, attention=attention, layers=()).logits
            after.append(as_numbers(logits))
        return Moved.of(study.model, as_numbers(trace.logits), np.stack(after))


Free = Bool[np.ndarray, "_"]  # the tokens of a document whose weights may change


def _shuffle(
    weights: Float[Tensor, "variant head query key"],
    keys: Int[np.ndarray, "word"],
    orders: Int[np.ndarray, "variant word"],
) -> None:
    """Give each of these keys the weight of another, in place: one order for each variant."""
    import torch

    wanted = torch.from_numpy(orders)[:, None, None].expand(-1, *weights.shape[1:3], -1)
    weights[..., torch.from_numpy(keys)] = weights.gather(3, wanted)


def shuffled_keys(
    weights: Float[Tensor, "batch head query key"],
    may_move: Bool[Tensor, "batch key"],
    turns: Float[Tensor, "batch key"],
) -> Float[Tensor, "batch head query key"]:
    """All rows with their weights moved in the same way: the order of `turns` is the permutation.

    A row gives the weights of the words that it sees, in the order of their turns, to the same
    words in the order of the text. What no head sees is masked, and is no word's to give or take.
    """
    import torch

    seen = (weights > 0).any(1) & may_move.to(weights.device)[:, None]
    position = torch.arange(weights.shape[-1], device=weights.device, dtype=torch.float32)
    # ranks instead of random numbers: some devices have no double precision
    turns = turns.argsort(dim=-1).argsort(dim=-1).float().to(weights.device)[:, None]
    # keys that stay come last on both sides, in the same order: they keep their weights
    giving = torch.where(seen, turns, torch.inf).argsort(dim=-1, stable=True)
    taking = torch.where(seen, position, torch.inf).argsort(dim=-1, stable=True)
    giving, taking = (x[:, None].expand_as(weights) for x in (giving, taking))
    return torch.zeros_like(weights).scatter(3, taking, weights.gather(3, giving))


@dataclass(frozen=True)
class Moved:
    """How far the prediction of each document moves: the median over permutations.

    moved       as the claim counts it
    plain       total variation distance; without exclusive labels, the largest change of one
    saturated   whether the prediction was so certain that its log-odds count

    Where the top label has a probability p above 0.95, little of it can be lost: the slope of
    p = σ(z) is p (1 − p) < 0.05, a fifth of the 1/4 that it is at p = ½. A confident model would
    seem to ignore its attention just because it is confident. There the move is |σ(δ) − ½|, where δ
    is the change of the log-odds z = log p / (1 − p). That is the distance which the same change
    would make at probability ½: with two labels, TVD = ½ (|σ(0 + δ) − ½| + |½ − σ(0 + δ)|). With
    more labels, p is that of the top label against all others taken together; while these keep
    their proportions, TVD is the change of p. Without exclusive labels each label is a question of
    its own with the answers p and 1 − p: that of the top label counts so where either is above
    0.95, all others by the change of their probability, and the largest is the move.
    """

    moved: Float[np.ndarray, "batch"]
    plain: Float[np.ndarray, "batch"]
    saturated: Bool[np.ndarray, "batch"]

    @classmethod
    def of(
        cls,
        model: Classifier,
        before: Float[np.ndarray, "batch label"],
        after: Float[np.ndarray, "variant batch label"],
    ) -> Moved:
        """From the logits with the model's own attention, and with its permutations."""
        was, now = model.probabilities(before), model.probabilities(after)
        apart = np.abs(now - was)
        plain = apart.sum(-1) / 2 if model.exclusive else apart.max(-1)
        moved, saturated = plain.copy(), np.zeros(len(before), dtype=bool)
        for b, top in enumerate(was.argmax(1)):
            p = was[b, top]
            saturated[b] = (p if model.exclusive else max(p, 1 - p)) > CERTAIN
            if not saturated[b]:
                continue
            z, own = (
                output_of(logits, int(top), "log-odds", model.exclusive)
                for logits in (after[:, b], before[b])
            )
            moved[:, b] = np.abs(1 / (1 + np.exp(own - z)) - 0.5)
            if not model.exclusive:
                others = np.delete(apart[:, b], top, -1).max(-1, initial=0.0)
                moved[:, b] = np.maximum(moved[:, b], others)
        return cls(np.median(moved, 0), np.median(plain, 0), saturated)
