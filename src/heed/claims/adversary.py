"""Search for different attention that gives the same prediction (Jain and Wallace, 2019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.models.classifier import select_output
from heed.models.devices import as_numbers
from heed.models.trace import Trace

if TYPE_CHECKING:  # which loads torch
    from torch import Tensor

    Forward = Callable[[Sequence[Tensor]], Tensor]  # rows of some layers to logits


class Candidates(NamedTuple):
    """The result of a search.

    distances   how far each candidate is from the model's attention (JSD)
    moves       how far it moves the prediction
    labels      the label that the model predicts with it
    rows        its attention rows, layer by layer
    """

    distances: Float[np.ndarray, "candidate batch"]
    moves: Float[np.ndarray, "candidate batch"]
    labels: Int[np.ndarray, "candidate batch"]
    rows: list[Float[Tensor, "candidate batch head query key"]]


# Where candidates start: what their logits are, and the standard deviation of the noise on top.
#   spread   near uniform weights
#   random   weights that have nothing to do with the words, a few of them large
#   peaked   nearly all weight on one or two words
#   own      near the model's own weights
#   idle     on words that matter least: more weight there moves the prediction least
Start = Literal["spread", "random", "peaked", "own", "idle"]
_NOISE: dict[Start, float] = {"spread": 0.3, "random": 3.0, "peaked": 9.0, "own": 1.0, "idle": 1.0}
STARTS: tuple[Start, ...] = ("idle", "random", "spread", "own", "peaked")

_IDLE = 6.0  # how far apart the logits of the words that matter least and most are


@dataclass(frozen=True)
class Adversary:
    """Replaces rows of attention by different weights.

    base        the model's own rows, layer by layer, on the CPU, where the search is
    plain       the forward pass that they come from
    free        of each document, the tokens whose weights may change
    """

    base: Sequence[Float[Tensor, "batch head query key"]]
    plain: Trace
    free: Sequence[Bool[np.ndarray, "_"]]

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
        starts: Sequence[Start] = ("random",),
    ) -> Candidates:
        """Find weights as far from the model's own as possible that keep the prediction.

        Candidates start in these ways, one after the other. Each document has its own noise and its
        own terms in the loss, so its result does not depend on the other documents of the batch.
        """
        import torch

        wanted = torch.from_numpy(target)
        kinds = [starts[i % len(starts)] for i in range(candidates)]
        slopes = self._slopes(logits, wanted, exclusive) if "idle" in kinds else self.base
        free = [
            self._start(rows, slope, noise, kinds).requires_grad_()
            for rows, slope in zip(self.base, slopes, strict=True)
        ]
        base_attention = [self._judged(rows) for rows in self.base]
        # AMSGrad remembers the largest second moment: after the penalty has given a large gradient,
        # steps stay small, and a candidate is less likely to jump far over the bound again.
        optimizer = torch.optim.Adam(free, lr=learning_rate, amsgrad=True)

        def measured() -> tuple[Tensor, Tensor, Tensor, Tensor]:
            rows = [self._rows(x, base) for x, base in zip(free, self.base, strict=True)]
            output = logits(rows).cpu().double()
            moved = output.softmax(-1) if exclusive else output.sigmoid()
            change = (moved - wanted).abs()
            judged = [self._judged(r) for r in rows]
            pairs = zip(judged, base_attention, strict=True)
            far = torch.stack([_jsd(attention, base) for attention, base in pairs]).mean(0)
            # every pair occurs twice among all ordered pairs
            apart = torch.stack([_jsd(j[:, None], j[None]).sum((0, 1)) / 2 for j in judged]).mean(0)
            return far, change.sum(-1) / 2 if exclusive else change.amax(-1), apart, moved

        for _ in range(steps):
            far, moves, apart, _ = measured()
            # Moves below `slack` cost nothing. `apart` is divided by the number of ordered pairs so
            # that its weight does not grow with the number of candidates.
            ordered_pairs = max(1, candidates * (candidates - 1))
            loss = (penalty * (moves - slack).relu() - far).sum() - apart.sum() / ordered_pairs
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            far, moves, _, outputs = measured()
            rows = [self._rows(x, base) for x, base in zip(free, self.base, strict=True)]
        labels = outputs.argmax(-1).numpy()
        return Candidates(as_numbers(far), as_numbers(moves), labels, rows)

    def _start(
        self,
        rows: Float[Tensor, "batch head query key"],
        slopes: Float[Tensor, "batch head query key"],
        noise: Sequence[np.random.Generator],
        kinds: Sequence[Start],
    ) -> Float[Tensor, "candidate batch head query key"]:
        """Logits to start from: those of each kind of start, and normal noise on top."""
        import torch

        started = torch.zeros(len(kinds), *rows.shape)
        for b, rng in enumerate(noise):
            keys = np.flatnonzero(self.free[b])
            real = min(rows.shape[2], len(self.free[b])) if rows.shape[2] > 1 else 1
            shape = (len(kinds), rows.shape[1], real, len(keys))
            drawn = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
            own, slope = (x[b, :, :real, keys].float() for x in (rows, slopes))
            for k, kind in enumerate(kinds):
                started[k, b, :, :real, keys] = _NOISE[kind] * drawn[k] + _centre(kind, own, slope)
        return started

    def _slopes(
        self, logits: Forward, target: Float[Tensor, "batch label"], exclusive: bool
    ) -> list[Float[Tensor, "batch head query key"]]:
        """How fast more weight on each key moves the top label's log-odds, layer by layer."""
        import torch

        with torch.enable_grad():
            rows = [base.clone().requires_grad_() for base in self.base]
            output = logits(rows)
            odds = select_output(output, target.argmax(-1), "log-odds", exclusive)
            return list(torch.autograd.grad(odds.sum(), rows))

    @cached_property
    def _free(self) -> Bool[Tensor, "batch 1 1 key"]:
        """Which keys may change their weights."""
        import torch

        free = torch.zeros(len(self.free), self.base[0].shape[-1], dtype=torch.bool)
        for b, may_change in enumerate(self.free):
            free[b, : len(may_change)] = torch.from_numpy(may_change)
        return free[:, None, None]

    def _rows(
        self,
        x: Float[Tensor, "candidate batch head query key"],
        base: Float[Tensor, "batch head query key"],
    ) -> Float[Tensor, "candidate batch head query key"]:
        """Attention rows from logits x; only the free keys change."""
        # The softmax redistributes exactly the mass that the model puts on the free keys, so rows
        # keep their sums and the other keys their weights. -1e30 rather than -inf: a row without
        # free keys would otherwise become NaN.
        mass = (base * self._free).sum(-1, keepdim=True)
        return x.masked_fill(~self._free, -1e30).softmax(-1) * mass + base * ~self._free

    def _judged(
        self, rows: Float[Tensor, "*candidate batch head query key"]
    ) -> Float[Tensor, "*candidate batch key"]:
        """The attention that is judged, as shares of the mass on the free keys.

        It is the mean over heads and over the classifying rows.
        """
        if rows.shape[-2] == 1:
            row = rows.squeeze(-2).mean(-2)
        else:
            real = self.plain.tokens[:, None, : rows.shape[-2], None]
            row = (rows.masked_fill(~real, 0).sum(-2) / real.sum(-2)).mean(-2)
        row = row * self._free[:, 0, 0]
        # a document may have no mass on its free keys: 0 / 1e-30 is 0, where 0 / 0 would be NaN
        return row / row.sum(-1, keepdim=True).clamp(min=1e-30)


def _centre(
    kind: Start, own: Float[Tensor, "head query key"], slopes: Float[Tensor, "head query key"]
) -> Float[Tensor, "head query key"]:
    """The logits that candidates of a kind lie around."""
    if kind == "own":
        # a weight of 0 has the logit -∞, from which no step leads away
        return own.clamp(min=1e-6).log()
    if kind == "idle" and own.shape[-1]:
        return _idle(own, slopes)
    return own * 0


def _idle(
    own: Float[Tensor, "head query key"], slopes: Float[Tensor, "head query key"]
) -> Float[Tensor, "head query key"]:
    """Logits that fall with how much a word matters.

    Weights keep their sum, so a word moves the output by how far its slope is from the mean slope
    under the model's own weights. All weight on a word with just that slope moves nothing, to first
    order.
    """
    mean = (own * slopes).sum(-1, keepdim=True) / own.sum(-1, keepdim=True).clamp(min=1e-30)
    apart = (slopes - mean).abs()
    return -_IDLE * apart / apart.amax(-1, keepdim=True).clamp(min=1e-30)


def _jsd(
    p: Float[Tensor, "*#batch key"], q: Float[Tensor, "*#batch key"]
) -> Float[Tensor, "*batch"]:
    """Jensen–Shannon divergence in nats, differentiable."""
    middle = (p + q) / 2

    def against_middle(x: Tensor) -> Tensor:
        # log 0 is -inf and its gradient NaN; clamped, 0 · log 0 is 0 and its gradient finite
        tiny = 1e-30
        return (x * (x.clamp(min=tiny).log() - middle.clamp(min=tiny).log())).sum(-1)

    return (against_middle(p) + against_middle(q)) / 2
