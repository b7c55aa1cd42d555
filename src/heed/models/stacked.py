"""A stack of attention layers with as much or as little around the attention as one likes.

    x_t   = W_e[ξ_t] + W_p(t)                       ξ_0 is <cls>, whose row the output is read from
    heads   q, k, v = W_q x, W_k x, W_v x;  a = softmax(q·k / √d);  their Σ a v side by side
    layer   "attention"  x ← W_o heads              "skip"  x ← norm(x + W_o heads)
            "relu", "gelu"  as "skip", and then  x ← norm(x + W_2 act(W_1 x))

The last layer of "attention" has no W_o: the final layer W_l reads the heads. With one such layer
this is the single-layer classifier up to its sizes. What the layers around attention do to
explanations is measured on these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heed.models.arrays import Attended, Attention, Embeddings, Ids, Mask, Weights
from heed.models.classifier import BETWEEN, Removal
from heed.models.network import AttentionNetwork, Inputs, NetworkClassifier
from heed.models.shapes import StackShape
from heed.models.single_layer import positions
from heed.models.trace import Trace


class StackNetwork(AttentionNetwork):
    """The parameters, and the pass."""

    def __init__(self, shape: StackShape, generator: torch.Generator | None = None):
        super().__init__()
        self.shape = shape
        d = shape.width
        source = generator or torch.Generator()

        def normal(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*size, generator=source) * size[-1] ** -0.5)

        self.W_e = nn.Parameter(torch.randn(shape.vocabulary, d, generator=source))
        inner = shape.heads * shape.labels if shape.readout == "identity" else d
        for i in range(shape.layers):
            last = i == shape.layers - 1
            setattr(self, f"W_q{i}", normal(d, d))
            setattr(self, f"W_k{i}", normal(d, d))
            setattr(self, f"W_v{i}", normal(inner if last else d, d))
            if not (last and shape.block == "attention"):
                setattr(self, f"W_o{i}", normal(d, d))
            if shape.block != "attention":
                setattr(self, f"norm_a{i}", nn.LayerNorm(d))
            if shape.block in ("relu", "gelu"):
                setattr(self, f"W_1{i}", normal(4 * d, d))
                setattr(self, f"W_2{i}", normal(d, 4 * d))
                setattr(self, f"norm_b{i}", nn.LayerNorm(d))
        if shape.readout == "linear":
            self.W_l = normal(shape.labels, d)
        self.register_buffer("W_p", positions(shape.max_words + 1, d, 10000.0), persistent=False)

    def forward(self, ids: Ids, mask: Mask) -> Float[Tensor, "batch label"]:
        return self.passed(self.embedded(ids), mask)

    def queries(self) -> list[nn.Parameter]:
        """What has to be zero for all tokens to be attended to alike."""
        return [getattr(self, f"W_q{i}") for i in range(self.shape.layers)]

    def attended(self, ids: Ids, mask: Mask, weights: Weights | None = None) -> Attended:
        record: list[tuple[Tensor, ...]] = []
        replaced = {}
        if weights is not None:
            every_head = weights[:, None, None].expand(-1, self.shape.heads, -1, -1)
            replaced = {self.shape.layers - 1: every_head}
        logits = self.passed(self.embedded(ids), mask, replaced, record)
        return logits, record[-1][0][:, :, 0].mean(1)

    def passed(
        self,
        x: Embeddings,
        mask: Mask,
        replaced: Mapping[int, Attention] | None = None,
        record: list[tuple[Tensor, ...]] | None = None,
    ) -> Float[Tensor, "batch label"]:
        """Logits from embeddings.

        With a record, attention is computed openly and written down layer by layer. Of the last
        layer only the row of <cls> is read, so that a pass without a record computes no other.
        """
        for i in range(self.shape.layers):
            last = i == self.shape.layers - 1
            rows = x[:, :1] if last and record is None else x
            q, k, v = self._heads(i, rows, x)
            if record is None:
                heads = functional.scaled_dot_product_attention(q, k, v, mask[:, None, None])
            else:
                scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
                weights = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)
                if replaced and i in replaced:
                    weights = _replaced(weights, replaced[i])
                heads = weights @ v
            x = self._around(i, rows, heads.transpose(1, 2).flatten(2))
            if record is not None:
                record.append((weights, v, q, k, x))
        cls = x[:, 0]
        if self.shape.readout == "identity":
            return cls.unflatten(1, (self.shape.heads, self.shape.labels)).mean(1)
        return cls @ self.W_l.T

    def _heads(self, i: int, rows: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = (rows @ self._w("q", i).T, x @ self._w("k", i).T, x @ self._w("v", i).T)
        q, k, v = (p.unflatten(2, (self.shape.heads, -1)).transpose(1, 2) for p in parts)
        return q, k, v.relu() if self.shape.values == "positive" else v

    def _around(self, i: int, rows: Tensor, heads: Tensor) -> Tensor:
        """What a layer makes of the output of its attention."""
        block = self.shape.block
        if block == "attention" and i == self.shape.layers - 1:
            return heads
        put_out = heads @ self._w("o", i).T
        if block == "attention":
            return put_out
        x = getattr(self, f"norm_a{i}")(rows + put_out)
        if block == "skip":
            return x
        inner = functional.relu if block == "relu" else functional.gelu
        return getattr(self, f"norm_b{i}")(x + inner(x @ self._w("1", i).T) @ self._w("2", i).T)

    def _w(self, name: str, layer: int) -> Tensor:
        return getattr(self, f"W_{name}{layer}")


def _replaced(weights: Tensor, wanted: Tensor) -> Tensor:
    """NaN leaves the model's own weight; a single query row replaces that of <cls>."""
    wanted = wanted.to(weights.dtype)
    if wanted.shape[2] == 1 and weights.shape[2] > 1:
        wanted = torch.cat([wanted, torch.full_like(weights[:, :, 1:], torch.nan)], 2)
    return torch.where(wanted.isnan(), weights, wanted)


class Stacked(NetworkClassifier):
    """The classifier: a `StackNetwork`, a `Tokenizer` and the names of the labels."""

    kind, title = "stacked", "a stack of layers"
    shape_class, network_class = StackShape, StackNetwork
    network: StackNetwork
    offers = NetworkClassifier.offers | {BETWEEN}
    removals: tuple[Removal, ...] = ("replace", "delete", "hide")
    batch_tokens = 4096

    def traced(
        self, inputs: Inputs, attention: Mapping[int, Attention], layers: Sequence[int] | None
    ) -> Trace:
        _, real, e = inputs
        variants = max((len(w) for w in attention.values() if w.ndim > 4), default=0)
        if variants:
            logits = []
            for i in range(variants):
                replaced = {k: w[i] if w.ndim > 4 else w for k, w in attention.items()}
                logits.append(self.network.passed(e, real, replaced, []))
            return Trace(torch.stack(logits), (), (), e, real, inputs.row)
        if layers is not None and not len(layers) and not attention:
            return Trace(self.network.passed(e, real), (), (), e, real, inputs.row)
        record: list[tuple[Tensor, ...]] = []
        output = self.network.passed(e, real, attention, record)
        weights, values, queries, keys, states = (tuple(part) for part in zip(*record, strict=True))
        return Trace(output, weights, values, e, real, inputs.row, (), queries, keys, states)
