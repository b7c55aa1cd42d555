"""The classifiers of Jain and Wallace (2019): encoder, attention over its states, linear output.

    e_t = W_e[ξ_t]
    h_t = the state of token t          "lstm"     one LSTM from each side, both states
                                        "cnn"      convolutions over 1, 3, 5 and 7 tokens, ReLU
                                        "average"  tanh of a linear map of the token alone
    s_t = w_2·tanh(W_1 h_t + b)  "additive",   w·h_t / √H  "dot",   0  "uniform"
    a   = softmax of s over the words: special tokens are read, and not attended to
    z   = W_o Σ_t a_t h_t + b_o         of two labels one number is learnt; half of it speaks for
                                        each: ∓z/2

Uniform attention is a setting. Weights that come from elsewhere take the place of the softmax, in
training too: with the encoder "average" that is the per-token network by which Wiegreffe and Pinter
(2019) test what weights are worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heed.models.arrays import Attended, Attention, Embeddings, Ids, Mask, Weights
from heed.models.classifier import DIFFERENTIABLE, PROJECTED, Removal
from heed.models.network import AttentionNetwork, Inputs, NetworkClassifier
from heed.models.shapes import RecurrentShape
from heed.models.trace import Trace

KERNELS = (1, 3, 5, 7)
_SPECIAL = 2  # the ids 1 and 2 are <cls> and <sep>


class RecurrentNetwork(AttentionNetwork):
    """The parameters, and the pass."""

    def __init__(self, shape: RecurrentShape, generator: torch.Generator | None = None):
        super().__init__()
        self.shape = shape
        source, H = generator or torch.Generator(), shape.hidden
        # layers draw from torch's generator, which belongs to the user
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (1,), generator=source)))
            self.W_e = nn.Parameter(torch.randn(shape.vocabulary, shape.width) * shape.spread)
            if shape.encoder == "lstm":
                self.onward = nn.LSTM(shape.width, H // 2, batch_first=True)
                self.back = nn.LSTM(shape.width, H // 2, batch_first=True)
            elif shape.encoder == "cnn":
                sizes = (shape.width, H // len(KERNELS))
                parts = [nn.Conv1d(*sizes, k, padding=k // 2) for k in KERNELS]
                self.convolutions = nn.ModuleList(parts)
            else:
                self.token = nn.Linear(shape.width, H)
            if shape.attention == "additive":
                self.W_1 = nn.Linear(H, H // 2)
                self.w_2 = nn.Linear(H // 2, 1, bias=False)
            elif shape.attention == "dot":
                self.w = nn.Linear(H, 1, bias=False)
            self.W_o = nn.Linear(H, 1 if shape.labels == 2 else shape.labels)

    def attends(self) -> list[nn.Parameter]:
        """The parameters of the attention."""
        modules = {"additive": ("W_1", "w_2"), "dot": ("w",), "uniform": ()}[self.shape.attention]
        return [p for name in modules for p in getattr(self, name).parameters()]

    def attended(self, ids: Ids, mask: Mask, weights: Weights | None = None) -> Attended:
        h = self.states(self.embedded(ids), mask)
        a = self.weights(h, words_of(ids, mask)) if weights is None else weights
        return self.read(torch.einsum("bt,bth->bh", a, h)), a

    def states(self, e: Embeddings, real: Mask) -> Float[Tensor, "batch token hidden"]:
        """What the encoder makes of every token."""
        if self.shape.encoder == "average":
            return self.token(e).tanh()
        if self.shape.encoder == "cnn":
            columns = (e * real.unsqueeze(-1)).transpose(1, 2)
            return torch.cat([c(columns) for c in self.convolutions], 1).relu().transpose(1, 2)
        positions, lengths = torch.arange(e.shape[1]), real.sum(1, keepdim=True)
        # the words from the last to the first; padding stays behind
        reversed_order = torch.where(positions < lengths, lengths - 1 - positions, positions)
        reversed_order = reversed_order[..., None]
        back = self.back(e.gather(1, reversed_order.expand_as(e)))[0]
        return torch.cat([self.onward(e)[0], back.gather(1, reversed_order.expand_as(back))], -1)

    def weights(self, h: Float[Tensor, "batch token hidden"], words: Mask) -> Weights:
        """The attention of the model; nothing where there is no word."""
        if self.shape.attention == "uniform":
            return words.to(h.dtype) / words.sum(1, keepdim=True).clamp(min=1)
        if self.shape.attention == "additive":
            scores = self.w_2(self.W_1(h).tanh()).squeeze(-1)
        else:
            scores = self.w(h).squeeze(-1) / self.shape.hidden**0.5
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(~words, lowest).softmax(1) * words

    def read(self, context: Float[Tensor, "*batch hidden"]) -> Float[Tensor, "*batch label"]:
        """Logits from the weighted sum of states."""
        z = self.W_o(context)
        return torch.cat([-z / 2, z / 2], -1) if self.shape.labels == 2 else z

    def to_logits(self) -> Float[Tensor, "head hidden label"]:
        """The matrix of `read`."""
        w = self.W_o.weight
        return (torch.cat([-w / 2, w / 2]) if self.shape.labels == 2 else w).T[None]


def words_of(ids: Ids, real: Mask) -> Mask:
    """Which tokens may be attended to: those that are words."""
    return real & ((ids == 0) | (ids > _SPECIAL))


class Recurrent(NetworkClassifier):
    """The classifier: a `RecurrentNetwork`, a word-level `Tokenizer` and names of the labels."""

    kind, title = "recurrent", "an encoder with attention"
    shape_class, network_class = RecurrentShape, RecurrentNetwork
    network: RecurrentNetwork
    offers = NetworkClassifier.offers | {PROJECTED}
    removals: tuple[Removal, ...] = ("delete", "replace")
    batch_tokens = 8192

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        if self.shape.attention == "uniform":
            self.offers = type(self).offers - {DIFFERENTIABLE}  # weights that depend on nothing

    def traced(
        self, inputs: Inputs, attention: Mapping[int, Attention], layers: Sequence[int] | None
    ) -> Trace:
        ids, real, e = inputs
        h = self.network.states(e, real)
        a = self.network.weights(h, words_of(ids, real))[:, None, None]
        if 0 in attention:
            wanted = attention[0].to(a.dtype)
            a = torch.where(wanted.isnan(), a, wanted)
        logits = self.network.read(torch.einsum("...bkqt,bth->...bh", a, h))
        return Trace(logits, (a,), (h[:, None],), e, real, inputs.row, (self.network.to_logits(),))
