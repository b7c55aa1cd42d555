"""The single-layer classifier as two small tables, for outputs of very many perturbed documents.

<cls> stands at position 0 of every document, so its query q is a constant of the trained model.
Then the score q·k_t/√d_att and the value w_t = W_l v_t are linear in the embedding e_t, and both
split into a part of the word and a part of the position:

    log g_t = S_word[ξ_t] + S_position[t]           [word, head] and [position, head]
    w_t     = w_word[ξ_t] + w_position[t]           [word, head, label] and [position, head, label]
    f       = (1/K) Σ_heads Σ_t g_t w_t / Σ_t g_t

A perturbed document only exchanges some of the pairs (g_t, g_t w_t) that are summed. Word 0 is
<unk>, and pads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped

from heed.algebra.ratios import Ratios
from heed.models.classifier import Logits, Removal

# floats held at once while scoring: this bounds memory, however many samples are asked for
_ENTRIES = 1 << 21

Keep = Bool[np.ndarray, "sample unit"]
Ids = Int[np.ndarray, "token"]
Scores = Float[np.ndarray, "sample label"]


class OneRow(NamedTuple):
    """The tokens of documents one behind the other: ids, and the length and start of each."""

    ids: Ids
    lengths: Int[np.ndarray, "document"]
    starts: Int[np.ndarray, "document"]

    @property
    def at(self) -> Ids:
        """The position of each token in its document."""
        return np.arange(len(self.ids)) - self.spread(self.starts)

    def spread(
        self, values: Shaped[np.ndarray, "document *rest"]
    ) -> Shaped[np.ndarray, "token *rest"]:
        """What belongs to a document, for each of its tokens."""
        return np.repeat(values, self.lengths, axis=0)

    def sums(self, values: Float[np.ndarray, "token *rest"]) -> Float[np.ndarray, "document *rest"]:
        return np.add.reduceat(values, self.starts)

    def exp(self, s: Float[np.ndarray, "token head"]) -> Float[np.ndarray, "token head"]:
        """e^s, scaled so that the largest of a document is 1: that cancels in ratios."""
        return np.exp(s - self.spread(np.maximum.reduceat(s, self.starts)))


@dataclass(frozen=True, eq=False)
class ScalarForm:
    """The tables, in double precision.

    constant          what biases add to the logits
    padding_attends   whether padding up to the last position attends
    filler            the word that stands in for one that is replaced
    """

    S_word: Float[np.ndarray, "word head"]
    S_position: Float[np.ndarray, "position head"]
    w_word: Float[np.ndarray, "word head label"]
    w_position: Float[np.ndarray, "position head label"]
    constant: Float[np.ndarray, "label"]
    padding_attends: bool
    filler: int = 0

    @property
    def heads(self) -> int:
        return self.S_word.shape[1]

    @property
    def labels(self) -> int:
        return self.w_word.shape[2]

    @property
    def length(self) -> int:
        """The number of positions."""
        return len(self.S_position)

    def at(
        self, ids: Int[np.ndarray, "*token"], at: Int[np.ndarray, "*token"]
    ) -> tuple[Float[np.ndarray, "*token head"], Float[np.ndarray, "*token head label"]]:
        """log g and w of words at positions."""
        return self.S_word[ids] + self.S_position[at], self.w_word[ids] + self.w_position[at]

    def padded(self, ids: Ids) -> Int[np.ndarray, "key"]:
        return np.pad(ids, (0, self.length - len(ids))) if self.padding_attends else ids

    def in_one_row(self, documents: Sequence[Int[np.ndarray, "_"]]) -> OneRow:
        padded = [self.padded(ids) for ids in documents]
        lengths = np.array([len(ids) for ids in padded])
        return OneRow(np.concatenate(padded), lengths, np.cumsum(lengths) - lengths)

    def logits(self, documents: Sequence[Int[np.ndarray, "_"]]) -> Logits:
        """Outputs of whole documents, all their tokens in one row and summed by document."""
        parts = [np.zeros((0, self.labels))]
        step = max(1, _ENTRIES // (self.heads * self.length * (1 + self.labels)))
        for start in range(0, len(documents), step):
            parts.append(self._logits(documents[start : start + step]))
        return np.concatenate(parts)

    def _logits(self, documents: Sequence[Int[np.ndarray, "_"]]) -> Logits:
        row = self.in_one_row(documents)
        s, w = self.at(row.ids, row.at)
        g = row.exp(s)
        ratio = row.sums(g[:, :, None] * w) / row.sums(g)[:, :, None]
        return ratio.mean(1) + self.constant

    def score(self, ids: Ids, keep: Keep, groups: Ids, removal: Removal) -> Scores:
        """Outputs of one document for each choice of units; `groups` has the unit of each token."""
        if removal == "delete":
            return self._deleted(ids, keep, groups)
        return self._in_place(ids, keep, groups, removal)

    def _in_place(self, ids: Ids, keep: Keep, groups: Ids, removal: Removal) -> Scores:
        """Per head N/D, the sums Σgw and Σg over all positions.

        Unit j adds the sums over its positions if it is kept, and those of <unk> there if not.
        """
        units, K = keep.shape[1], self.heads
        kept, removed, fixed = self._parts(ids, groups, units, removal)
        # The difference below cancels. The smallest Σg that a sample can have must neither
        # underflow nor be so much smaller than what is subtracted that digits are lost.
        least = fixed[:K] + np.minimum(kept, removed)[:, :K].sum(0)
        if (least < 1e-200).any() or (removed[:, :K].sum(0) > 1e4 * least).any():
            return self._literally(ids, keep, groups, removal)
        # Σ over kept units + Σ over removed ones
        # = all removed + Σ over kept units of the difference: one matrix product for all samples
        base, difference = fixed + removed.sum(0), kept - removed
        outputs = np.empty((len(keep), self.labels))
        step = max(1, _ENTRIES // max(1, units))
        for start in range(0, len(keep), step):
            z = keep[start : start + step].astype(float)
            outputs[start : start + step] = self._ratio(difference.T @ z.T + base[:, None])
        return outputs

    def _parts(
        self, ids: Ids, groups: Ids, units: int, removal: Removal
    ) -> tuple[
        Float[np.ndarray, "unit sum"], Float[np.ndarray, "unit sum"], Float[np.ndarray, "sum"]
    ]:
        """Σg and Σgw of every unit, kept and removed, and of what is always there."""
        padded = self.padded(ids)
        owner = np.concatenate([groups, np.full(len(padded) - len(ids), -1)])
        at = np.arange(len(padded))
        s, w = self.at(padded, at)
        s_unk, w_unk = self.at(np.full_like(padded, self.filler), at)
        shift = np.maximum(s, s_unk).max(0)  # the largest exponent is 0, and cancels in the ratio
        kept = _sums(np.exp(s - shift), w, owner, units)
        removed = np.zeros_like(kept)
        if removal == "replace":
            removed = _sums(np.exp(s_unk - shift), w_unk, owner, units)
        return kept[:-1], removed[:-1], kept[-1]

    def ratios(self, ids: Ids, groups: Ids, units: int, label: int, removal: Removal) -> Ratios:
        """The output for one label as a function of the units that are kept, removed in place."""
        K = self.heads
        kept, removed, fixed = (p.T for p in self._parts(ids, groups, units, removal))
        columns = K + np.arange(K) * self.labels + label
        n, m, n_c = (p[columns] / K for p in (kept, removed, fixed))
        return Ratios(kept[:K], n, removed[:K], m, fixed[:K], n_c, float(self.constant[label]))

    def _deleted(self, ids: Ids, keep: Keep, groups: Ids) -> Scores:
        """What is left moves up: a table holds (g, gw) of each token at each place it can take."""
        T = len(ids)
        token, position = np.tril_indices(T)  # a token only moves forward
        s, w = self.at(ids[token], position)
        end = np.arange(self.length)
        s_pad, w_pad = self.at(np.zeros_like(end), end)
        shift = np.maximum(s.max(0), s_pad.max(0)) if self.padding_attends else s.max(0)
        # <cls> always stays, and may be all that is left. Its g lies so many bits below the largest
        # entry, and sums must be exact below that; more than 24 bits would take too many slices.
        least = float((s[0] - shift).min()) / math.log(2)
        if least < -24:
            return self._literally(ids, keep, groups, "delete")
        bag = ExactBag(_terms(np.exp(s - shift), w), bits=44 - least)
        del s, w  # large for a long document
        # the row of the table that holds token t at position 0
        first = np.arange(T, dtype=np.int32) * np.arange(1, T + 1, dtype=np.int32) // 2
        outputs = np.empty((len(keep), self.labels))
        step = max(1, _ENTRIES // (4 * T))
        for start in range(0, len(keep), step):
            present = _present(keep[start : start + step], groups)
            total = bag.sums(first + np.cumsum(present, 1, dtype=np.int32) - 1, present)
            if self.padding_attends:
                # the sums over padding from each position to the end
                after = np.cumsum(_terms(np.exp(s_pad - shift), w_pad)[::-1], 0)[::-1]
                total += np.concatenate([after, np.zeros_like(after[:1])])[present.sum(1)]
            outputs[start : start + step] = self._ratio(total.T)
        return outputs

    def _literally(self, ids: Ids, keep: Keep, groups: Ids, removal: Removal) -> Scores:
        """Each sample on its own scale: sums that share one lose the rest where one word outweighs
        it by more than double precision holds.
        """
        outputs = np.empty((len(keep), self.labels))
        step = max(1, _ENTRIES // (self.length * self.heads * (1 + self.labels)))
        for start in range(0, len(keep), step):
            present = _present(keep[start : start + step], groups)
            words, there = np.tile(ids, (len(present), 1)), present
            at = np.tile(np.arange(len(ids)), (len(present), 1))
            if removal == "replace":
                words, there = np.where(present, words, self.filler), np.ones_like(present)
            elif removal == "delete":
                at = np.maximum(np.cumsum(present, 1) - 1, 0)
            if self.padding_attends:
                length = present.sum(1) if removal == "delete" else np.full(len(present), len(ids))
                after = np.arange(self.length) + length[:, None]
                words = np.concatenate([words, np.zeros_like(after)], 1)
                at = np.concatenate([at, np.minimum(after, self.length - 1)], 1)
                there = np.concatenate([there, after < self.length], 1)
            s, w = self.at(words, at)
            s = np.where(there[:, :, None], s, -np.inf)
            g = np.exp(s - s.max(1, keepdims=True))
            ratio = np.einsum("ntk,ntkc->nkc", g, w) / g.sum(1)[:, :, None]
            outputs[start : start + step] = ratio.mean(1) + self.constant
        return outputs

    def _ratio(self, sums: Float[np.ndarray, "sum sample"]) -> Scores:
        """The mean over heads of Σgw / Σg."""
        K = self.heads
        ratio = sums[K:].reshape(K, self.labels, -1) / sums[:K, None]
        return ratio.sum(0).T / K + self.constant


def _present(keep: Keep, groups: Ids) -> Bool[np.ndarray, "sample token"]:
    return np.where(groups >= 0, keep[:, groups], True)


class ExactBag:
    """Sums of rows of a table, for many choices, as exact as float64 at the speed of float32.

    Every column is written in slices of 12 bits, as many as give `bits` below its largest entry.
    Sums of up to 4096 such integers are exact in float32, for which torch has a fast kernel; the
    slices of the sums meet in float64.
    """

    def __init__(self, table: Float[np.ndarray, "row column"], bits: float):
        count = math.ceil(bits / 12)
        largest = np.maximum(np.abs(table).max(0), np.finfo(float).tiny)
        self.scale = np.exp2(np.ceil(np.log2(largest)))
        # row 0 stands for what is not there
        slices = np.zeros((len(table) + 1, count, table.shape[1]), dtype=np.float32)
        rest = table / (2 * self.scale)  # at most 1/2, so that a slice is at most 2048
        for i in range(count):
            rest *= 4096
            whole = np.round(rest)
            slices[1:, i] = whole
            rest -= whole
        self.count, self.slices = count, torch.from_numpy(slices.reshape(len(slices), -1))

    def sums(
        self, rows: Int[np.ndarray, "sample token"], present: Bool[np.ndarray, "sample token"]
    ) -> Float[np.ndarray, "sample column"]:
        index = torch.from_numpy((rows + 1) * present)
        parts = torch.nn.functional.embedding_bag(index, self.slices, mode="sum").numpy()
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
    sums = np.zeros((units + 1, g.shape[1] * (1 + w.shape[2])))
    np.add.at(sums, groups, _terms(g, w))  # group -1 is the last row
    return sums
