"""Classifiers that need a forward pass for every output: full batches with little padding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from heed.errors import InputError
from heed.models.arrays import Ids, Mask
from heed.models.classifier import Classifier, Keep, Logits, Removal
from heed.progress import counter
from heed.text import Tokens

L = TypeVar("L", np.ndarray, torch.Tensor)


class Row(NamedTuple):
    """One input.

    seen     which tokens may be attended to; all, if None
    places   where in the text each token stands; one behind the other, if None
    """

    ids: Int[np.ndarray, "token"]
    types: Int[np.ndarray, "token"]
    seen: Bool[np.ndarray, "token"] | None = None
    places: Int[np.ndarray, "token"] | None = None


class Passes(Classifier):
    """The doors `logits` and `score` for a model that has `outputs`.

    gaps   whether hidden tokens may be left out, as long as the others keep their places
    """

    gaps = False

    @abstractmethod
    def outputs(self, rows: Sequence[Row]) -> Float[np.ndarray, "row label"]:
        """Logits of a few rows in one pass."""

    def logits(self, tokens: Sequence[Tokens]) -> Logits:
        lengths = [len(t) for t in tokens]
        return finite(self.run(lengths, lambda i: Row(tokens[i].ids, tokens[i].types)))

    def perturbed(
        self, tokens: Sequence[Tokens], present: Sequence[Keep], removal: Removal
    ) -> Float[np.ndarray, "row label"]:
        """Rows of all documents share batches."""
        owners = [t for t, rows in zip(tokens, present, strict=True) for _ in rows]
        rows = [row for rows in present for row in rows]
        lengths = [self._length(row, removal) for row in rows]
        return finite(self.run(lengths, lambda i: self._removed(owners[i], rows[i], removal)))

    def _length(self, present: Bool[np.ndarray, "token"], removal: Removal) -> int:
        """How many tokens of a document are read without some of them."""
        if removal == "delete":
            return int(present.sum()) or 1
        return int(present.sum()) if self._leaves_out(present, removal) else len(present)

    def _leaves_out(self, present: Bool[np.ndarray, "token"], removal: Removal) -> bool:
        """Whether hidden tokens are left out; the first may be the one that classifies."""
        return removal == "hide" and self.gaps and bool(present[0])

    def _removed(self, tokens: Tokens, present: Bool[np.ndarray, "token"], removal: Removal) -> Row:
        """A document without some of its tokens."""
        if self._leaves_out(present, removal):
            places = np.flatnonzero(present)
            return Row(tokens.ids[places], tokens.types[places], None, places)
        if removal == "hide":
            return Row(tokens.ids, tokens.types, present)
        if removal == "replace":
            return Row(np.where(present, tokens.ids, self.filler), tokens.types)
        if not present.any():  # something has to be read
            return Row(np.array([self.filler]), tokens.types[:1])
        return Row(tokens.ids[present], tokens.types[present])

    def run(
        self, lengths: Sequence[int], row: Callable[[int], Row]
    ) -> Float[np.ndarray, "row label"]:
        """Logits of many rows, in batches of similar length; rows are made when needed."""
        outputs = np.empty((len(lengths), len(self.labels)))
        with torch.inference_mode(), counter(len(lengths), "forward passes") as bar:
            passes = self.in_batches(lengths, lambda batch: self.outputs([row(i) for i in batch]))
            for batch, logits in passes:
                outputs[batch] = logits
                bar.advance(len(batch))
        return outputs


def finite(logits: L) -> L:
    """The same logits; refused if one is not a number."""
    if not torch.as_tensor(logits).isfinite().all():
        raise InputError(
            "The model's output for a text is not a number; in half precision try --dtype float32."
        )
    return logits


def pad(
    documents: Sequence[Int[np.ndarray, "_"]], length: int | None = None, filler: int = 0
) -> tuple[Ids, Mask]:
    """Ids padded on the right, up to the longest unless a length is given, and which are real."""
    lengths = np.array([len(ids) for ids in documents])
    real = np.arange(length or lengths.max()) < lengths[:, None]
    ids = np.full(real.shape, filler)
    ids[real] = np.concatenate(documents)
    return torch.from_numpy(ids), torch.from_numpy(real)


def attended_to(rows: Sequence[Row], real: Mask) -> Mask:
    """The tokens that may be attended to."""
    mask = real.clone()
    for i, row in enumerate(rows):
        if row.seen is not None:
            mask[i, : len(row.seen)] = torch.from_numpy(row.seen)
    return mask
