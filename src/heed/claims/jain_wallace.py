"""Tests of "Attention is not Explanation" (Jain and Wallace, 2019)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.claims.claim import Claim, ClaimTest, Row, Study
from heed.errors import InputError
from heed.methods import AttentionMean, GradientInput, Occlusion
from heed.methods.comparison import rank_agreement
from heed.metrics import tvd
from heed.models.classifier import GRADIENT, REPLACEABLE, Classifier
from heed.models.trace import Trace
from heed.progress import say
from heed.text import Tokens

if TYPE_CHECKING:
    from torch import Tensor

    Forward = Callable[[Sequence[Tensor]], Tensor]  # rows of some layers to logits


@dataclass(frozen=True)
class Used(ClaimTest):
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
    cost: ClassVar[str] = "a pass, and the last layer once for each permutation"

    permutations: int = 100
    positions: Literal["words", "all"] = "words"

    def __post_init__(self) -> None:
        self.at_least(permutations=1)

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
            for b, t in enumerate(tokens):
                self._shuffle(shuffled[:, b], t, study.rng(self.claim.id, t.document))
            moved = logits(shuffled)
        before, after = (
            study.model.probabilities(z.double().numpy()) for z in (plain.logits, moved)
        )
        moves = tvd(after, before) if study.model.exclusive else np.abs(after - before).max(-1)
        distance = np.median(moves, axis=0)
        return [
            {"value": float(distance[b])} | shown
            for b, shown in enumerate(_shown(plain, tokens, before))
        ]

    def _shuffle(
        self,
        weights: Float[Tensor, "variant head query key"],
        tokens: Tokens,
        rng: np.random.Generator,
    ) -> None:
        import torch

        places = (
            np.flatnonzero(~tokens.special) if self.positions == "words" else np.arange(len(tokens))
        )
        orders = torch.from_numpy(rng.permuted(np.tile(places, (self.permutations, 1)), axis=1))
        taken = weights.gather(3, orders[:, None, None].expand(-1, *weights.shape[1:3], -1))
        weights[..., torch.from_numpy(places)] = taken


def _shown(
    trace: Trace, tokens: Sequence[Tokens], probabilities: Float[np.ndarray, "batch label"]
) -> list[Row]:
    """What goes with every row: the predicted label, and where the attention that is judged lies."""
    attention = trace.classifying().mean(1)
    return [
        {
            "predicted": int(probabilities[b].argmax()),
            "max_attention": float(attention[b, : len(t)][~t.special].max()),
            "special_attention": float(attention[b, : len(t)][t.special].sum()),
            "padding_attention": float(attention[b, len(t) :].sum()),
        }
        for b, t in enumerate(tokens)
    ]


@dataclass(frozen=True)
class Exclusive(ClaimTest):
    """Look for an attention as different as possible that leaves the prediction as it is, document by document.

    Several candidates start from random weights and follow the gradient of their distance (Jensen–Shannon) from the
    model's attention and from each other; moving the prediction by more than 0.01 is punished. The statistic is the
    distance of the farthest candidate whose prediction moved by at most `epsilon`, as a share of the largest possible
    one, ln 2; 0 where there is no such candidate, though a better search might find one. Distances are those of the
    mean over heads of the classifying row, as shares of what lies on words.
    `layers` is "last", "all", or numbers as in "0,2": then the classifying row of each of these is free, and the mean
    of their distances counts. Special tokens and padding keep their weights (positions="all": only padding does).
    """

    claim: ClassVar[Claim] = Claim(
        id="exclusive",
        family="determined",
        sentence="No very different attention gives this prediction, document by document",
        statistic="largest distance of an attention with the same prediction (JSD / ln 2)",
        threshold=0.5,
        above=False,
        source="jain2019",
        needs=frozenset({REPLACEABLE}),
        gated=True,
    )
    cost: ClassVar[str] = (
        "a pass, and the last layer forth and back at each step, for all candidates at once"
    )
    dear: ClassVar[bool] = True

    candidates: int = 5
    steps: int = 500
    learning_rate: float = 0.01
    epsilon: float = 0.05
    layers: str = "last"
    positions: Literal["words", "all"] = "words"

    def __post_init__(self) -> None:
        self.at_least(candidates=1, steps=0)
        if not 0 < self.epsilon <= 1:
            raise InputError(
                f"The setting epsilon of the claim exclusive must be above 0 and at most 1, got {self.epsilon}."
            )
        AttentionMean(layers=self.layers)  # refuses what is no choice of layers

    def measure(self, study: Study) -> list[Row]:
        few = study.model.tokens(study.documents[:1])
        cheap = self.layers == "last" and study.model.attending(few).cheap
        if not cheap:
            self._announce(study)
        most = 8192 if cheap else max(1, study.model.batch_tokens // self.candidates)
        return study.by_batch(self, lambda tokens: self._batch(study, tokens), most, together=cheap)

    def _batch(self, study: Study, tokens: Sequence[Tokens]) -> list[Row]:
        plain, base, logits = self._opened(study.model, tokens)
        adversary = Adversary(base, plain, tokens, self.positions)
        noise = [study.rng(self.claim.id, t.document) for t in tokens]
        target = study.model.probabilities(plain.logits.double().numpy())
        distances, moves, labels, _ = adversary.search(
            logits,
            target,
            study.model.exclusive,
            noise,
            self.candidates,
            self.steps,
            self.learning_rate,
        )
        close = moves <= self.epsilon
        farthest = np.where(close, distances, 0.0)
        best = farthest.argmax(0)
        return [
            {
                "value": float(farthest[best[b], b] / np.log(2)),
                "jsd": float(farthest[best[b], b]),
                "tvd": float(moves[best[b], b]) if close[:, b].any() else None,
                "candidates_left": int(close[:, b].sum()),
                "any_left": float(close[:, b].any()),
                "adversary_predicted": int(
                    labels[best[b], b] if close[:, b].any() else target[b].argmax()
                ),
            }
            | shown
            for b, shown in enumerate(_shown(plain, tokens, target))
        ]

    def _opened(
        self, model: Classifier, tokens: Sequence[Tokens]
    ) -> tuple[Trace, list[Tensor], Forward]:
        """A pass, the rows that may change, and the output as a function of them."""
        import torch

        if self.layers == "last":
            plain, logits, *_ = model.attending(tokens)
            return plain, [plain.classifying_rows()], lambda rows: logits(rows[0])
        with torch.no_grad():
            plain = model.trace(tokens)
        chosen = AttentionMean(layers=self.layers).layers_of(len(plain.attention))
        return (
            plain,
            [plain.classifying_rows(i) for i in chosen],
            lambda rows: (
                model.trace(
                    tokens, attention=dict(zip(chosen, rows, strict=True)), layers=()
                ).logits
            ),
        )

    def _announce(self, study: Study) -> None:
        """Say how long it will take: every step is a pass forth and back through the whole model."""
        tokens = study.model.tokens(study.documents)
        few = tokens[: max(1, len(tokens) // 50)]
        began = time.perf_counter()
        replace(self, steps=1)._batch(study, few)
        minutes = (time.perf_counter() - began) * self.steps * len(tokens) / len(few) / 60
        say(
            f"exclusive takes about {minutes:.0f} minutes for {len(tokens)} documents: every step is a pass through the"
            f" whole model (layers={self.layers})."
        )


class Candidates(NamedTuple):
    """What a search ended with: how far the candidates are from the model's attention, how far they move the
    prediction, the label that they lead to, and their rows, layer by layer."""

    distances: Float[np.ndarray, "candidate batch"]
    moves: Float[np.ndarray, "candidate batch"]
    labels: Int[np.ndarray, "candidate batch"]
    rows: list[Float[Tensor, "candidate batch head query key"]]


@dataclass(frozen=True)
class Adversary:
    """Other weights in the place of some rows of attention.

    base        the rows, layer by layer, as the model has them
    plain       the pass that they come from
    positions   whether special tokens are free too
    """

    base: Sequence[Float[Tensor, "batch head query key"]]
    plain: Trace
    tokens: Sequence[Tokens]
    positions: Literal["words", "all"] = "words"

    def search(
        self,
        logits: Forward,
        target: Float[np.ndarray, "batch label"],
        exclusive: bool,
        noise: Sequence[np.random.Generator],
        candidates: int = 5,
        steps: int = 500,
        learning_rate: float = 0.01,
        slack: float = 0.01,
        penalty: float = 500.0,
    ) -> Candidates:
        """Other weights, as far away as the search comes.

        Every document has its own noise and its own terms in the sum that is minimised, so that what is found for it
        does not depend on the others.
        """
        import torch

        wanted = torch.from_numpy(target)
        free = [self._start(rows, noise, candidates).requires_grad_() for rows in self.base]
        own = [self._judged(rows) for rows in self.base]
        optimizer = torch.optim.Adam(free, lr=learning_rate, amsgrad=True)

        def measured() -> tuple[Tensor, Tensor, Tensor, Tensor]:
            rows = [self._rows(x, base) for x, base in zip(free, self.base, strict=True)]
            output = logits(rows).double()
            moved = output.softmax(-1) if exclusive else output.sigmoid()
            change = (moved - wanted).abs()
            judged = [self._judged(r) for r in rows]
            far = torch.stack([_jsd(j, o) for j, o in zip(judged, own, strict=True)]).mean(0)
            apart = torch.stack([_jsd(j[:, None], j[None]).sum((0, 1)) / 2 for j in judged]).mean(0)
            return far, change.sum(-1) / 2 if exclusive else change.amax(-1), apart, moved

        for _ in range(steps):
            far, moves, apart, _ = measured()
            loss = (penalty * (moves - slack).relu() - far).sum() - apart.sum() / max(
                1, candidates * (candidates - 1)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            far, moves, _, outputs = measured()
            rows = [self._rows(x, base) for x, base in zip(free, self.base, strict=True)]
        return Candidates(far.double().numpy(), moves.numpy(), outputs.argmax(-1).numpy(), rows)

    def _start(
        self,
        rows: Float[Tensor, "batch head query key"],
        noise: Sequence[np.random.Generator],
        candidates: int,
    ) -> Float[Tensor, "candidate batch head query key"]:
        """Uniform weights on a logarithmic scale, with noise three times as wide as a standard normal."""
        import torch

        started = torch.zeros(candidates, *rows.shape)
        for b, rng in enumerate(noise):
            places = self._places(self.tokens[b])
            real = min(rows.shape[2], len(self.tokens[b])) if rows.shape[2] > 1 else 1
            drawn = rng.standard_normal(
                (candidates, rows.shape[1], real, len(places)), dtype=np.float32
            )
            started[:, b, :, :real, places] = 3 * torch.from_numpy(drawn)
        return started

    def _places(self, tokens: Tokens) -> Int[np.ndarray, "_"]:
        return (
            np.flatnonzero(~tokens.special) if self.positions == "words" else np.arange(len(tokens))
        )

    @cached_property
    def _free(self) -> Bool[Tensor, "batch 1 1 key"]:
        """Which keys may change their weights."""
        import torch

        free = torch.zeros(len(self.tokens), self.base[0].shape[-1], dtype=torch.bool)
        for b, t in enumerate(self.tokens):
            free[b, torch.from_numpy(self._places(t))] = True
        return free[:, None, None]

    def _rows(
        self,
        x: Float[Tensor, "candidate batch head query key"],
        base: Float[Tensor, "batch head query key"],
    ) -> Float[Tensor, "candidate batch head query key"]:
        """Weights from free numbers: what lay on the free keys is shared out anew."""
        mass = (base * self._free).sum(-1, keepdim=True)
        return x.masked_fill(~self._free, -1e30).softmax(-1) * mass + base * ~self._free

    def _judged(
        self, rows: Float[Tensor, "*candidate batch head query key"]
    ) -> Float[Tensor, "*candidate batch key"]:
        """The attention that is judged: mean over heads and over the rows that classify, as shares on the free keys."""
        if rows.shape[-2] == 1:
            row = rows.squeeze(-2).mean(-2)
        else:
            real = self.plain.tokens[:, None, : rows.shape[-2], None]
            row = (rows.masked_fill(~real, 0).sum(-2) / real.sum(-2)).mean(-2)
        row = row * self._free[:, 0, 0]
        return row / row.sum(-1, keepdim=True).clamp(min=1e-30)


def _jsd(
    p: Float[Tensor, "*#batch key"], q: Float[Tensor, "*#batch key"]
) -> Float[Tensor, "*batch"]:
    """Jensen–Shannon divergence in nats, differentiable."""
    middle = (p + q) / 2

    def against_middle(x: Tensor) -> Tensor:
        tiny = 1e-30
        return (x * (x.clamp(min=tiny).log() - middle.clamp(min=tiny).log())).sum(-1)

    return (against_middle(p) + against_middle(q)) / 2


@dataclass(frozen=True)
class AgreesGradient(ClaimTest):
    """Rank correlation with |gradient × input|, and, as a yardstick, between that and leave-one-out."""

    claim: ClassVar[Claim] = Claim(
        id="agrees-gradient",
        family="agrees",
        sentence="{method} ranks words as the gradient does",
        statistic="Kendall τ with |gradient × input|",
        threshold=0.5,
        source="jain2019",
        needs=frozenset({GRADIENT}),
        gated=True,
    )
    cost: ClassVar[str] = "a gradient, and as many passes as words (for the yardstick)"
    against = (GradientInput,)

    def measure(self, study: Study) -> list[Row]:
        gradient = study.explain(GradientInput(output="probability"))
        removal = study.explain(Occlusion(output="probability"))
        return [
            {"value": rank_agreement(e, g), "gradient_removal": rank_agreement(g, r)}
            for e, g, r in zip(study.explain(), gradient, removal, strict=True)
        ]


@dataclass(frozen=True)
class AgreesRemoval(ClaimTest):
    """Rank correlation with the change of the predicted probability when each word alone is removed."""

    claim: ClassVar[Claim] = Claim(
        id="agrees-removal",
        family="agrees",
        sentence="{method} ranks words as their removal does",
        statistic="Kendall τ with |leave-one-out|",
        threshold=0.5,
        source="jain2019",
        gated=True,
    )
    cost: ClassVar[str] = "as many passes as words"
    against = (Occlusion,)

    def measure(self, study: Study) -> list[Row]:
        removal = study.explain(Occlusion(output="probability"))
        return [
            {"value": rank_agreement(e, r)} for e, r in zip(study.explain(), removal, strict=True)
        ]
