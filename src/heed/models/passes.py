"""Classifiers that need a forward pass for every output: full batches with little padding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from heed.models.classifier import Classifier, Removal, batches, presence
from heed.progress import counter
from heed.text import Tokens


class Row(NamedTuple):
    """One input: ids, segments, and which tokens may be attended to (all, if None)."""

    ids: Int[np.ndarray, "token"]
    types: Int[np.ndarray, "token"]
    seen: Bool[np.ndarray, "token"] | None = None


class Passes(Classifier):
    """The doors `logits` and `score` for a model that has `outputs`."""

    @abstractmethod
    def outputs(self, rows: Sequence[Row]) -> Float[np.ndarray, "row label"]:
        """Logits of a few rows in one pass."""

    def logits(self, tokens: Sequence[Tokens]) -> Float[np.ndarray, "batch label"]:
        return self.run([len(t) for t in tokens], lambda i: Row(tokens[i].ids, tokens[i].types))

    def score(
        self,
        tokens: Sequence[Tokens],
        keep: Sequence[Bool[np.ndarray, "_ _"]],
        groups: Sequence[Int[np.ndarray, "_"]] | None = None,
        removal: Removal | None = None,
    ) -> list[Float[np.ndarray, "_ label"]]:
        """Rows of all documents share batches; equal rows of a document are evaluated once."""
        removal = self.removal(removal)
        rows, indices = presence(tokens, keep, groups)
        owners = [t for t, p in zip(tokens, rows, strict=True) for _ in p]
        present = [row for p in rows for row in p]
        lengths = (
            [int(row.sum()) or 1 for row in present]
            if removal == "delete"
            else [len(row) for row in present]
        )
        outputs = self.run(lengths, lambda i: self._removed(owners[i], present[i], removal))
        return [outputs[index] for index in indices]

    def _removed(self, tokens: Tokens, present: Bool[np.ndarray, "token"], removal: Removal) -> Row:
        """A document without some of its tokens."""
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
            for batch in batches(lengths, self.batch_tokens, self.even):
                outputs[batch] = self.outputs([row(i) for i in batch])
                bar.advance(len(batch))
        return outputs
