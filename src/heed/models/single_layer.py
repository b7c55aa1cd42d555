"""The single-layer multi-head attention classifier of Lopardo, Precioso and Garreau (2024), whole.

A document is <cls> and T tokens ξ_1 … ξ_T. With one query, that of <cls>, and K heads (per head, biases left out):

    e_t = W_e[ξ_t] + W_p(t)                         k_t = W_k e_t,  v_t = W_v e_t,  q = W_q e_0
    g_t = exp(q·k_t / √d_att),  a_t = g_t / Σ_u g_u
    f   = (1/K) Σ_heads W_l Σ_t a_t v_t             one logit per label

<cls> stands at position 0 of every document, so q is a constant of the trained model. Then the score q·k_t/√d_att and
the value w_t = W_l v_t are linear in e_t, and both split into a part of the word and a part of the position. Two
small tables say everything:

    log g_t = S_word[ξ_t] + S_position[t]           [vocabulary, head] and [position, head]
    w_t     = w_word[ξ_t] + w_position[t]           [vocabulary, head, label] and [position, head, label]
    f       = (1/K) Σ_heads Σ_t g_t w_t / Σ_t g_t

`logits` and `score` work on these tables: thousands of perturbed documents cost a few matrix products and no forward
pass. `trace` computes the formulas at the top as they stand.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heed.errors import CheckpointError, HeedError, InputError
from heed.models.classifier import ATTENTION, GRADIENT, HEADS, REPLACEABLE, Classifier, Removal
from heed.models.recipes import Shape
from heed.settings import read as read_settings
from heed.text import Tokenizer, Tokens
from heed.trace import Trace

_ENTRIES = 1 << 21  # floats held at once while scoring: bounds memory however many samples are asked for


class Network(nn.Module):
    """The parameters, in the paper's symbols with heads as an axis, and the pass that training differentiates."""

    def __init__(self, shape: Shape, generator: torch.Generator | None = None):
        super().__init__()
        self.shape = shape
        d, K, C = shape.d_e, shape.heads, shape.labels

        def normal(*size: int, scale: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(*size, generator=generator) * scale)

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
        self.register_buffer("W_p", positions(shape.max_words + 1, d, shape.position_base), persistent=False)
        self.W_p: Tensor

    def folded(self) -> tuple[Float[Tensor, "head dim"], Float[Tensor, "head label dim"]]:
        """u with q·k_t/√d_att = u·e_t (up to a constant that softmax cancels), and W_l W_v with w_t = (W_l W_v) e_t."""
        e_0 = self.W_e[1] + self.W_p[0]
        q = torch.einsum("kad,d->ka", self.W_q, e_0)
        if self.shape.biases:
            q = q + self.b_q
        u = torch.einsum("ka,kad->kd", q, self.W_k) / math.sqrt(self.shape.d_att)
        return u, torch.einsum("cko,kod->kcd", self.W_l, self.W_v)

    def constant(self) -> Float[Tensor, "label"] | None:
        """What the biases add to the logits: Σ_t a_t = 1, so b_v comes through unchanged."""
        if not self.shape.biases:
            return None
        return self.b_l + torch.einsum("cko,ko->c", self.W_l, self.b_v) / self.shape.heads

    def forward(
        self, ids: Int[Tensor, "batch token"], mask: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch label"]:
        u, w = self.folded()
        K, C = self.shape.heads, self.shape.labels
        e = nn.functional.embedding(ids, self.W_e) + self.W_p[: ids.shape[1]]
        both = e @ torch.cat([u, w.reshape(K * C, -1)]).T  # [batch, token, K + K·C]
        scores = both[..., :K].masked_fill(~mask.unsqueeze(-1), float("-inf"))
        a = scores.softmax(1)
        logits = torch.einsum("btk,btkc->bc", a, both[..., K:].unflatten(-1, (K, C))) / K
        constant = self.constant()
        return logits if constant is None else logits + constant


def positions(length: int, dim: int, base: float) -> Float[Tensor, "position dim"]:
    """Sinusoidal position embeddings: sine on even, cosine on odd dimensions."""
    frequency = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :dim].float()


@dataclass(frozen=True, eq=False)
class Tables:
    """The scalar form: log g and w, each a part of the word plus a part of the position (float64)."""

    S_word: Float[np.ndarray, "word head"]
    S_position: Float[np.ndarray, "position head"]
    w_word: Float[np.ndarray, "word head label"]
    w_position: Float[np.ndarray, "position head label"]

    def at(
        self, ids: Int[np.ndarray, "*token"], at: Int[np.ndarray, "*token"]
    ) -> tuple[Float[np.ndarray, "*token head"], Float[np.ndarray, "*token head label"]]:
        return self.S_word[ids] + self.S_position[at], self.w_word[ids] + self.w_position[at]


class SingleLayer(Classifier):
    """The classifier: a `Network`, a word-level `Tokenizer` and the names of the labels."""

    offers = frozenset({ATTENTION, REPLACEABLE, GRADIENT, HEADS})
    removals: tuple[Removal, ...] = ("replace", "delete", "hide")
    filler = 0

    def __init__(self, network: Network, tokenizer: Tokenizer, labels: Sequence[str], name: str = "single-layer"):
        self.network = network.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.labels = tuple(labels)
        self.name = name

    @property
    def shape(self) -> Shape:
        return self.network.shape

    @cached_property
    def revision(self) -> str:  # type: ignore[override]
        digest = hashlib.sha256()
        for key, value in sorted(self.network.state_dict().items()):
            digest.update(key.encode() + value.contiguous().numpy().tobytes())
        return digest.hexdigest()[:12]

    @cached_property
    def tables(self) -> Tables:
        net = self.network
        u, w = (x.double() for x in net.folded())
        e, p = net.W_e.double(), net.W_p.double()
        return Tables(
            (e @ u.T).numpy(),
            (p @ u.T).numpy(),
            torch.einsum("td,kcd->tkc", e, w).numpy(),
            torch.einsum("td,kcd->tkc", p, w).numpy(),
        )

    @cached_property
    def _constant(self) -> Float[np.ndarray, "label"]:
        constant = self.network.constant()
        return np.zeros(len(self.labels)) if constant is None else constant.double().numpy()

    # The four doors

    def logits(self, tokens: Sequence[Tokens]) -> Float[np.ndarray, "batch label"]:
        parts = [np.zeros((0, len(self.labels)))]
        step = max(1, _ENTRIES // (self.shape.heads * (self.shape.max_words + 1) * (1 + len(self.labels))))
        for start in range(0, len(tokens), step):
            parts.append(self._logits([t.ids for t in tokens[start : start + step]]))
        return np.concatenate(parts)

    def _logits(self, documents: Sequence[Int[np.ndarray, "_"]]) -> Float[np.ndarray, "batch label"]:
        """All tokens of all documents in one row, summed by document: no padding is computed."""
        if self.shape.padding == "attends":
            documents = [np.pad(ids, (0, self.shape.max_words + 1 - len(ids))) for ids in documents]
        lengths = np.array([len(ids) for ids in documents])
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        at = np.arange(lengths.sum()) - np.repeat(starts, lengths)
        s, w = self.tables.at(np.concatenate(documents), at)
        g = np.exp(s - np.repeat(np.maximum.reduceat(s, starts), lengths, axis=0))
        ratio = np.add.reduceat(g[:, :, None] * w, starts) / np.add.reduceat(g, starts)[:, :, None]
        return ratio.mean(1) + self._constant

    def score(
        self,
        tokens: Sequence[Tokens],
        keep: Sequence[Bool[np.ndarray, "_ _"]],
        groups: Sequence[Int[np.ndarray, "_"]] | None = None,
        removal: Removal | None = None,
    ) -> list[Float[np.ndarray, "_ label"]]:
        removal = self.removal(removal)
        groups = [t.word for t in tokens] if groups is None else groups
        one = self._score_deleted if removal == "delete" else self._score_in_place
        return [one(t, k, np.asarray(g), removal) for t, k, g in zip(tokens, keep, groups, strict=True)]

    def _score_in_place(
        self, tokens: Tokens, keep: Bool[np.ndarray, "sample unit"], groups: Int[np.ndarray, "token"], removal: Removal
    ) -> Float[np.ndarray, "sample label"]:
        """Per head N/D, where unit j adds (Σg, Σgw) over its positions if kept and the same sums for <unk> if not."""
        ids, at = self._padded(tokens)
        groups = np.concatenate([groups, np.full(len(ids) - len(tokens), -1)])
        s, w = self.tables.at(ids, at)
        s_unk, w_unk = self.tables.at(np.zeros_like(ids), at)
        shift = np.maximum(s, s_unk).max(0)
        units = keep.shape[1]
        kept = _sums(np.exp(s - shift), w, groups, units)
        fixed, kept = kept[-1], kept[:-1]
        removed = np.zeros_like(kept)
        if removal == "replace":
            removed = _sums(np.exp(s_unk - shift), w_unk, groups, units)[:-1]
        K = self.shape.heads
        least = fixed[:K] + np.minimum(kept, removed)[:, :K].sum(0)
        if (least < 1e-200).any() or (removed[:, :K].sum(0) > 1e4 * least).any():
            return self._score_literally(tokens, keep, groups[: len(tokens)], removal)
        # Σ over kept units + Σ over removed ones = all removed + Σ over kept units of the difference: one product
        base, difference = fixed + removed.sum(0), kept - removed
        found = np.empty((len(keep), len(self.labels)))
        step = max(1, _ENTRIES // max(1, units))
        for start in range(0, len(keep), step):
            z = keep[start : start + step].astype(float)
            found[start : start + step] = self._ratio(difference.T @ z.T + base[:, None])
        return found

    def _score_deleted(
        self, tokens: Tokens, keep: Bool[np.ndarray, "sample unit"], groups: Int[np.ndarray, "token"], removal: Removal
    ) -> Float[np.ndarray, "sample label"]:
        """What is left moves up: a table holds (g, gw) of each token at each place it can move to."""
        T = len(tokens)
        token, place = np.tril_indices(T)  # a token only moves forward
        s, w = self.tables.at(tokens.ids[token], place)
        end = np.arange(self.shape.max_words + 1)
        s_pad, w_pad = self.tables.at(np.zeros_like(end), end)
        shift = np.maximum(s.max(0), s_pad.max(0))
        least = float((s[0] - shift).min()) / math.log(2)  # <cls>, which always stays, may be all that is left
        if least < -24:
            return self._score_literally(tokens, keep, groups, removal)
        bag = ExactBag(_terms(np.exp(s - shift), w), bits=44 - least)
        padding = np.cumsum(_terms(np.exp(s_pad - shift), w_pad)[::-1], 0)[::-1]  # from a place to the end
        padding = np.concatenate([padding, np.zeros_like(padding[:1])])
        first = np.arange(T, dtype=np.int32) * np.arange(1, T + 1, dtype=np.int32) // 2  # row of token t at place 0
        found = np.empty((len(keep), len(self.labels)))
        step = max(1, _ENTRIES // (4 * T))
        for start in range(0, len(keep), step):
            part = keep[start : start + step]
            present = np.where(groups >= 0, part[:, groups], True)
            total = bag.sums(first + np.cumsum(present, 1, dtype=np.int32) - 1, present)
            if self.shape.padding == "attends":
                total += padding[present.sum(1)]
            found[start : start + step] = self._ratio(total.T)
        return found

    def _score_literally(
        self, tokens: Tokens, keep: Bool[np.ndarray, "sample unit"], groups: Int[np.ndarray, "token"], removal: Removal
    ) -> Float[np.ndarray, "sample label"]:
        """Each sample on its own scale, for documents in which one word outweighs the rest beyond the reach of sums."""
        T, end = len(tokens), self.shape.max_words + 1
        found = np.empty((len(keep), len(self.labels)))
        step = max(1, _ENTRIES // (end * self.shape.heads * (1 + len(self.labels))))
        for start in range(0, len(keep), step):
            present = np.where(groups >= 0, keep[start : start + step][:, groups], True)
            n = len(present)
            ids, at, there = np.tile(tokens.ids, (n, 1)), np.tile(np.arange(T), (n, 1)), present
            if removal == "replace":
                ids, there = np.where(present, ids, 0), np.ones_like(present)
            elif removal == "delete":
                at = np.maximum(np.cumsum(present, 1) - 1, 0)
            if self.shape.padding == "attends":
                after = np.arange(end) + (present.sum(1) if removal == "delete" else np.full(n, T))[:, None]
                ids = np.concatenate([ids, np.zeros((n, end), dtype=int)], 1)
                at, there = np.concatenate([at, np.minimum(after, end - 1)], 1), np.concatenate([there, after < end], 1)
            s, w = self.tables.at(ids, at)
            s = np.where(there[:, :, None], s, -np.inf)
            g = np.exp(s - s.max(1, keepdims=True))
            ratio = np.einsum("ntk,ntkc->nkc", g, w) / g.sum(1)[:, :, None]
            found[start : start + step] = ratio.mean(1) + self._constant
        return found

    def _ratio(self, sums: Float[np.ndarray, "sum sample"]) -> Float[np.ndarray, "sample label"]:
        """The mean over heads of Σgw / Σg."""
        K, C = self.shape.heads, len(self.labels)
        ratio = sums[K:].reshape(K, C, -1) / sums[:K, None]
        return ratio.sum(0).T / K + self._constant

    def _padded(self, tokens: Tokens) -> tuple[Int[np.ndarray, "token"], Int[np.ndarray, "token"]]:
        ids = tokens.ids
        if self.shape.padding == "attends":
            ids = np.pad(ids, (0, self.shape.max_words + 1 - len(ids)))
        return ids, np.arange(len(ids))

    def trace(
        self,
        tokens: Sequence[Tokens],
        attention: Mapping[int, Float[Tensor, "*variant batch head query key"]] | None = None,
        embeddings: Float[Tensor, "batch token dim"] | None = None,
    ) -> Trace:
        net = self.network
        longest = self.shape.max_words + 1 if self.shape.padding == "attends" else max(len(t) for t in tokens)
        ids, real = pad([t.ids for t in tokens], longest)
        e = embeddings
        if e is None:
            e = net.W_e[ids] + net.W_p[:longest]
            e = e.detach().requires_grad_(torch.is_grad_enabled())
        q = torch.einsum("kad,bd->bka", net.W_q, e[:, 0])
        k = torch.einsum("kad,btd->bkta", net.W_k, e)
        v = torch.einsum("kod,btd->bkto", net.W_v, e)
        if self.shape.biases:
            q, k, v = q + net.b_q, k + net.b_k[:, None], v + net.b_v[:, None]
        if attention is None or 0 not in attention:
            scores = torch.einsum("bka,bkta->bkt", q, k) / math.sqrt(self.shape.d_att)
            if self.shape.padding == "masked":
                scores = scores.masked_fill(~real[:, None], float("-inf"))
            a = scores.softmax(-1).unsqueeze(-2)
        else:
            a = attention[0].to(v.dtype)
        logits = torch.einsum("...bkqt,bkto,cko->...bc", a, v, net.W_l) / self.shape.heads
        if self.shape.biases:
            logits = logits + net.b_l
        return Trace(logits, (a,), (v,), e, real, torch.zeros(len(tokens), dtype=torch.long))

    def head(self, index: int) -> SingleLayer:
        """f is a mean over heads: one head alone, its W_l divided by K, is a classifier, and these add up to f."""
        K = self.shape.heads
        if not 0 <= index < K:
            raise InputError(f"There is no head {index}: the model has heads 0 to {K - 1}.")
        part = Network(replace(self.shape, heads=1))
        state = self.network.state_dict()
        for key in ("W_q", "W_k", "W_v", "b_q", "b_k", "b_v"):
            if key in state:
                state[key] = state[key][index : index + 1]
        state["W_l"] = state["W_l"][:, index : index + 1] / K
        if "b_l" in state:
            state["b_l"] = state["b_l"] / K
        part.to(self.network.W_e.dtype).load_state_dict(state)
        return SingleLayer(part, self.tokenizer, self.labels, f"{self.name} head {index}")

    def describe(self) -> dict[str, object]:
        """What a checkpoint's json says of the model."""
        return {"kind": "single-layer", "labels": list(self.labels), "shape": asdict(self.shape)}

    @classmethod
    def restore(cls, config: Mapping[str, object], state: Mapping[str, Tensor], folder: Path) -> SingleLayer:
        """The model of a checkpoint, from its json, its tensors and its tokenizer."""
        try:
            shape = Shape(**read_settings("the model", Shape, config["shape"]))  # type: ignore[arg-type]
            network = Network(shape)
            network.load_state_dict({key: value.float() for key, value in state.items()})
        except (KeyError, TypeError, RuntimeError, ValueError, HeedError) as error:
            first = str(error).splitlines()[0]
            raise CheckpointError(
                f"The checkpoint {folder} does not fit the single-layer classifier ({first})."
            ) from None
        labels = config.get("labels")
        if not isinstance(labels, list) or len(labels) != shape.labels or not all(isinstance(n, str) for n in labels):
            raise CheckpointError(f"The checkpoint {folder} must name {shape.labels} labels, got {labels!r}.")
        tokenizer = Tokenizer.load(folder / "tokenizer.json", shape.max_words + 1)
        if len(tokenizer) != shape.vocabulary:
            raise CheckpointError(
                f"The tokenizer of {folder} has {len(tokenizer):,} words, and the model {shape.vocabulary:,}."
            )
        return cls(network, tokenizer, labels, str(config.get("name") or folder.name))


def pad(
    documents: Sequence[Int[np.ndarray, "_"]], length: int
) -> tuple[Int[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """Ids padded on the right with <unk> (id 0), and where they are real."""
    lengths = np.array([len(ids) for ids in documents])
    real = np.arange(length) < lengths[:, None]
    ids = np.zeros((len(documents), length), dtype=np.int64)
    ids[real] = np.concatenate(documents)
    return torch.from_numpy(ids), torch.from_numpy(real)


class ExactBag:
    """Sums of chosen rows of a table, for many choices at once, as exact as float64 at the speed of float32.

    Every column is written in slices of 12 bits, as many as give `bits` below its largest entry. Sums of up to 4096
    such integers are exact in float32, for which torch has a fast kernel; the slices of the sums meet in float64.
    """

    def __init__(self, table: Float[np.ndarray, "row column"], bits: float):
        self.count = math.ceil(bits / 12)
        largest = np.maximum(np.abs(table).max(0), np.finfo(float).tiny)
        self.scale = np.exp2(np.ceil(np.log2(largest)))
        rest, slices = table / self.scale / 2, []
        for _ in range(self.count):
            rest = rest * 4096
            slices.append(np.round(rest))
            rest -= slices[-1]
        nothing = np.zeros((1, self.count * table.shape[1]))  # row 0 is what is not there
        self.slices = torch.from_numpy(np.concatenate([nothing, np.concatenate(slices, 1)]).astype(np.float32))

    def sums(
        self, rows: Int[np.ndarray, "sample token"], present: Bool[np.ndarray, "sample token"]
    ) -> Float[np.ndarray, "sample column"]:
        index = torch.from_numpy((rows + 1) * present)
        parts = nn.functional.embedding_bag(index, self.slices, mode="sum").numpy()
        parts = parts.reshape(len(parts), self.count, -1)
        total = parts[:, -1].astype(np.float64)
        for i in reversed(range(self.count - 1)):
            total /= 4096
            total += parts[:, i]
        return total * (self.scale * 2 / 4096)


def _terms(
    g: Float[np.ndarray, "token head"], w: Float[np.ndarray, "token head label"]
) -> Float[np.ndarray, "token sum"]:
    """What each position adds to the sums Σg and Σgw, side by side."""
    return np.concatenate([g, (g[:, :, None] * w).reshape(len(g), -1)], 1)


def _sums(
    g: Float[np.ndarray, "token head"],
    w: Float[np.ndarray, "token head label"],
    groups: Int[np.ndarray, "token"],
    units: int,
) -> Float[np.ndarray, "unit_or_fixed sum"]:
    """Σg and Σgw of each unit, one row per unit and, last, one for what is always present."""
    found = np.zeros((units + 1, g.shape[1] * (1 + w.shape[2])))
    np.add.at(found, groups, _terms(g, w))  # group -1 is the last row
    return found
