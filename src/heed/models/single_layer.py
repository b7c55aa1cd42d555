"""The single-layer multi-head attention classifier of Lopardo, Precioso and Garreau (2024), whole.

A document is <cls> and T tokens ξ_1 … ξ_T. With one query, that of <cls>, and K heads (per head,
biases left out):

    e_t = W_e[ξ_t] + W_p(t)                         k_t = W_k e_t,  v_t = W_v e_t,  q = W_q e_0
    g_t = exp(q·k_t / √d_att),  a_t = g_t / Σ_u g_u
    f   = (1/K) Σ_heads W_l Σ_t a_t v_t             one logit per label

`trace` computes these formulas as they stand. `logits` and `score` use the scalar form
(`scalar_form.py`), in which thousands of perturbed documents cost a few matrix products and no
forward pass. `gradient` is the closed form of the gradient, of which the scalar form gives all but
the directions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from heed.algebra.ratios import Ratios
from heed.errors import InputError
from heed.models import classifier as offer
from heed.models.arrays import Attended, Attention, Ids, Mask, Weights
from heed.models.classifier import At, Gradient, Groups, Keep, Logits, Output, Removal, output_slope
from heed.models.network import AttentionNetwork, Inputs, NetworkClassifier
from heed.models.scalar_form import ScalarForm
from heed.models.shapes import Shape
from heed.models.trace import Trace
from heed.text import Tokens


class Network(AttentionNetwork):
    """The parameters, in the paper's symbols with heads as an axis, and the pass for training."""

    def __init__(self, shape: Shape, generator: torch.Generator | None = None):
        super().__init__()
        self.shape = shape
        d, K, C = shape.d_e, shape.heads, shape.labels

        source = generator or torch.Generator()  # never torch's own, which belongs to the user

        def normal(*size: int, scale: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(*size, generator=source) * scale)

        self.W_e = normal(shape.vocabulary, d, scale=1.0)
        self.W_q = normal(K, shape.d_att, d, scale=d**-0.5)
        self.W_k = normal(K, shape.d_att, d, scale=d**-0.5)
        self.W_v = normal(K, shape.d_out, d, scale=d**-0.5)
        self.W_l = normal(C, K, shape.d_out, scale=shape.d_out**-0.5)
        if shape.biases:
            self.b_q = nn.Parameter(torch.zeros(K, shape.d_att))
            self.b_k = nn.Parameter(torch.zeros(K, shape.d_att))
            self.b_v = nn.Parameter(torch.zeros(K, shape.d_out))
            self.b_l = nn.Parameter(torch.zeros(C))
        table = positions(shape.max_words + 1, d, shape.position_base)
        self.register_buffer("W_p", table, persistent=False)

    def folded(
        self, dtype: torch.dtype | None = None
    ) -> tuple[Float[Tensor, "head dim"], Float[Tensor, "head label dim"]]:
        """What scores and values are linear in.

        u with q·k_t/√d_att = u·e_t, up to a constant that softmax cancels; and W_l W_v with
        w_t = (W_l W_v) e_t.
        """
        maps = (self.W_q, self.W_k, self.W_v, self.W_l)
        W_q, W_k, W_v, W_l = (x.to(dtype or x.dtype) for x in maps)
        q = torch.einsum("kad,d->ka", W_q, self.W_e[1].to(W_q.dtype) + self.W_p[0])
        if self.shape.biases:
            q = q + self.b_q
        u = torch.einsum("ka,kad->kd", q, W_k) / math.sqrt(self.shape.d_att)
        return u, torch.einsum("cko,kod->kcd", W_l, W_v)

    def constant(self, dtype: torch.dtype | None = None) -> Float[Tensor, "label"] | None:
        """What the biases add to the logits: Σ_t a_t = 1, so b_v comes through unchanged."""
        if not self.shape.biases:
            return None
        W_l, b_v = (x.to(dtype or x.dtype) for x in (self.W_l, self.b_v))
        return self.b_l + torch.einsum("cko,ko->c", W_l, b_v) / self.shape.heads

    def queries(self) -> list[nn.Parameter]:
        """What has to be zero for all tokens to be attended to alike."""
        return [self.W_q, self.b_q] if self.shape.biases else [self.W_q]

    def attended(self, ids: Ids, mask: Mask, weights: Weights | None = None) -> Attended:
        u, w = self.folded()
        K, C = self.shape.heads, self.shape.labels
        # scores and values in one product: [batch, token, K + K·C]
        both = self.embedded(ids) @ torch.cat([u, w.reshape(K * C, -1)]).T
        scores = both[..., :K].masked_fill(~mask.unsqueeze(-1), float("-inf"))
        a = scores.softmax(1) if weights is None else weights.unsqueeze(-1).expand_as(scores)
        logits = torch.einsum("btk,btkc->bc", a, both[..., K:].unflatten(-1, (K, C))) / K
        constant = self.constant()
        return logits if constant is None else logits + constant, a.mean(-1)


def positions(length: int, dim: int, base: float) -> Float[Tensor, "position dim"]:
    """Sinusoidal position embeddings: sine on even, cosine on odd dimensions."""
    frequency = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :dim].float()


class Directions(NamedTuple):
    """Where gradients point, in double precision; see `SingleLayer.gradient`.

    values   W_v^T W_l^T / K of each head and label
    keys     W_k^T q / (K √d_att) of each head
    cls      W_k^T W_q / (K √d_att), by head and dimension of the sum Σ_s a_s (w_s - w̄) e_s
    W_p      the positions
    """

    values: Float[np.ndarray, "head label dim"]
    keys: Float[np.ndarray, "head dim"]
    cls: Float[np.ndarray, "head_dim dim"]
    W_p: Float[np.ndarray, "position dim"]


class SingleLayer(NetworkClassifier):
    """The classifier: a `Network`, a word-level `Tokenizer` and the names of the labels."""

    kind, title = "single-layer", "the single-layer classifier"
    shape_class, network_class = Shape, Network
    network: Network
    offers = NetworkClassifier.offers | {offer.PROJECTED, offer.CLOSED}
    removals: tuple[Removal, ...] = ("replace", "delete", "hide")

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self._heads: dict[int, SingleLayer] = {}

    @cached_property
    def scalars(self) -> ScalarForm:
        """The same function by two small tables."""
        net, constant = self.network, self.network.constant(torch.float64)
        u, w = net.folded(torch.float64)
        e, p = net.W_e.double(), net.W_p.double()
        return ScalarForm(
            S_word=(e @ u.T).numpy(),
            S_position=(p @ u.T).numpy(),
            w_word=torch.einsum("td,kcd->tkc", e, w).numpy(),
            w_position=torch.einsum("td,kcd->tkc", p, w).numpy(),
            constant=np.zeros(len(self.labels)) if constant is None else constant.numpy(),
            padding_attends=self.shape.padding == "attends",
            filler=self.filler,
        )

    def width(self, tokens: Tokens) -> int:
        return self.shape.max_words + 1 if self.shape.padding == "attends" else len(tokens)

    # The four doors

    def logits(self, tokens: Sequence[Tokens]) -> Logits:
        return self.scalars.logits([t.ids for t in tokens])

    def score(
        self,
        tokens: Sequence[Tokens],
        keep: Sequence[Keep],
        groups: Sequence[Groups] | None = None,
        removal: Removal | None = None,
    ) -> list[Float[np.ndarray, "_ label"]]:
        removal = self.removal(removal)
        groups = [t.word for t in tokens] if groups is None else groups
        documents = zip(tokens, keep, groups, strict=True)
        return [self.scalars.score(t.ids, k, np.asarray(g), removal) for t, k, g in documents]

    def traced(
        self, inputs: Inputs, attention: Mapping[int, Attention], layers: Sequence[int] | None
    ) -> Trace:
        net, e = self.network, inputs.embeddings
        q = torch.einsum("kad,bd->bka", net.W_q, e[:, 0])
        k = torch.einsum("kad,btd->bkta", net.W_k, e)
        v = torch.einsum("kod,btd->bkto", net.W_v, e)
        if self.shape.biases:
            q, k, v = q + net.b_q, k + net.b_k[:, None], v + net.b_v[:, None]
        if 0 not in attention:
            scores = torch.einsum("bka,bkta->bkt", q, k) / math.sqrt(self.shape.d_att)
            if self.shape.padding == "masked":
                scores = scores.masked_fill(~inputs.real[:, None], float("-inf"))
            a = scores.softmax(-1).unsqueeze(-2)
        else:
            a = attention[0].to(v.dtype)
        logits = torch.einsum("...bkqt,bkto,cko->...bc", a, v, net.W_l) / self.shape.heads
        if self.shape.biases:
            logits = logits + net.b_l
        to_logits = net.W_l.permute(1, 2, 0) / self.shape.heads
        return Trace(logits, (a,), (v,), e, inputs.real, inputs.row, (to_logits,))

    def gradient(
        self,
        tokens: Sequence[Tokens],
        labels: Sequence[int],
        output: Output = "logit",
        held: bool | Collection[int] = False,
        at: At | None = None,
    ) -> list[Gradient]:
        """The gradient in closed form, in double precision.

        With w_t = W_l v_t and w̄ = Σ_t a_t w_t, per head:

        ∇_{e_t} f = (1/K) Σ_heads a_t W_v^T W_l^T + a_t (w_t - w̄) W_k^T q / √d_att

        and for <cls>, whose query moves as well, W_q^T Σ_s a_s (w_s - w̄) k_s / √d_att on top.
        Where attention is held, only the first term is left.
        """
        self.place(at)
        gradients: list[Gradient] = []
        step = max(1, self.batch_tokens // (self.shape.max_words + 1))
        for start in range(0, len(tokens), step):
            documents = tokens[start : start + step]
            rows = zip(self.logits(documents), labels[start : start + step], strict=True)
            slopes = np.array([output_slope(z, c, output, self.exclusive) for z, c in rows])
            gradients += self._gradients(documents, slopes, bool(held))
        return gradients

    def _gradients(
        self, tokens: Sequence[Tokens], slopes: Float[np.ndarray, "batch label"], held: bool
    ) -> list[Gradient]:
        """Those of a few documents, all their tokens in one row."""
        directions, K = self._directions, self.shape.heads
        row = self.scalars.in_one_row([t.ids for t in tokens])
        ids, lengths, starts = row
        s, w = self.scalars.at(ids, row.at)
        g = row.exp(s)
        a = g / row.spread(row.sums(g))
        value = np.einsum("tkc,tc->tk", w, row.spread(slopes))
        moved = a * (value - row.spread(row.sums(a * value)))  # a_t (w_t - w̄)
        both = a if held else np.hstack([a, moved])
        steered = np.einsum("bc,kcd->bkd", slopes, directions.values)
        e, gradient = (np.empty((len(ids), self.shape.d_e)) for _ in range(2))
        words = self.network.W_e.numpy()
        drawn = np.empty((len(tokens), K * self.shape.d_e))
        for i, (start, n) in enumerate(zip(starts, lengths, strict=True)):
            here = slice(start, start + n)
            np.add(words[ids[here]], directions.W_p[:n], out=e[here])
            to = steered[i] if held else np.vstack([steered[i], directions.keys])
            np.matmul(both[here], to, out=gradient[here])
            drawn[i] = (moved[here].T @ e[here]).ravel()
        if not held:  # Σ_s a_s (w_s - w̄) = 0, so the bias of the keys does not show
            gradient[starts] += drawn @ directions.cls
        parts = [slice(i, i + n) for i, n in zip(starts, lengths, strict=True)]
        return [Gradient(e[part], gradient[part]) for part in parts]

    @cached_property
    def _directions(self) -> Directions:
        net, K = self.network, self.shape.heads
        u, w = (x.numpy() for x in net.folded(torch.float64))
        query = torch.einsum("kad,kae->ked", net.W_q.double(), net.W_k.double())
        query = query / math.sqrt(self.shape.d_att)
        return Directions(w / K, u / K, query.flatten(0, 1).numpy() / K, net.W_p.double().numpy())

    def ratios(
        self, tokens: Tokens, groups: Groups, units: int, label: int, removal: Removal = "replace"
    ) -> Ratios:
        return self.scalars.ratios(tokens.ids, groups, units, label, removal)

    def head(self, index: int) -> SingleLayer:
        """One head alone, as a classifier: with W_l divided by K, heads add up to f."""
        K = self.shape.heads
        if not 0 <= index < K:
            raise InputError(f"There is no head {index}: the model has heads 0 to {K - 1}.")
        if index in self._heads:
            return self._heads[index]
        part = Network(replace(self.shape, heads=1))
        state = self.network.state_dict()
        for key in ("W_q", "W_k", "W_v", "b_q", "b_k", "b_v"):
            if key in state:
                state[key] = state[key][index : index + 1]
        state["W_l"] = state["W_l"][:, index : index + 1] / K
        if "b_l" in state:
            state["b_l"] = state["b_l"] / K
        part.to(self.network.W_e.dtype).load_state_dict(state)
        name = f"{self.name} head {index}"
        self._heads[index] = SingleLayer(part, self.tokenizer, self.labels, name, self.pairs)
        return self._heads[index]
