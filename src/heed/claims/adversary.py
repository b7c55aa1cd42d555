"""Search for other attention that leaves the prediction as it is (Jain and Wallace, 2019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.models.trace import Trace
from heed.text import Tokens

if TYPE_CHECKING:  # which loads torch
    from torch import Tensor

    Forward = Callable[[Sequence[Tensor]], Tensor]  # rows of some layers to logits


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
