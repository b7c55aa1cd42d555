"""Documents as a network in training reads them: split, in batches, with labels and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heed.errors import InputError
from heed.models.arrays import Attended, Ids, Mask
from heed.models.classifier import Classifier
from heed.models.devices import as_numbers
from heed.models.passes import pad
from heed.text import Document, Tokenizer, Tokens

Batch = Int[np.ndarray, "_"]  # the indices of the documents in a batch
Weights = list[Float[np.ndarray, "token"]]
Guide = Callable[[Sequence[Tokens]], Weights]  # gives the attention weights of documents
_DOCUMENTS = 256  # in a batch that is not learnt from
_STRETCH = 50  # batches among which documents are sorted by length


def split(
    documents: Sequence[Document],
    validation: Sequence[Document] | None,
    labels: Sequence[str],
    share: float,
    rng: np.random.Generator,
) -> tuple[list[Document], list[Document]]:
    """Documents to train on and to validate on; those without a label are left out.

    Where no documents are given for validation, a share of the others is held out.
    """
    if len(set(labels)) < len(labels):
        raise InputError("Two labels have the same name.")
    labelled = [d for d in documents if d.label is not None]
    given = [d for d in validation or () if d.label is not None]
    for d in [*labelled, *given]:
        if not 0 <= (d.label or 0) < len(labels):
            raise InputError(
                f"A document has the label {d.label}, and there are only {len(labels)} labels."
            )
    if len({d.label for d in labelled}) < 2 or len(labelled) < 10:
        raise InputError(
            f"Training needs at least 10 documents and two labels, got {len(labelled)} documents."
        )
    shuffled = [labelled[i] for i in rng.permutation(len(labelled))]
    cut = 0 if given else max(1, round(len(labelled) * share))
    return shuffled[cut:], shuffled[:cut] + given


def word_tokenizer(documents: Sequence[Document], max_words: int, recipe: Any) -> Tokenizer:
    """The tokenizer of the words of documents, as many of them as a recipe says."""
    texts = (segment for d in documents for segment in d.segments)
    return Tokenizer.train(texts, max_words + 1, recipe.vocabulary, recipe.min_count)


@dataclass(frozen=True)
class Examples:
    """Documents as ids, with labels, which tokens are words, and attention weights if given."""

    ids: list[Int[np.ndarray, "token"]]
    gold: Int[Tensor, "document"]
    words: list[Bool[np.ndarray, "token"]]
    weights: Weights | None = None

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, documents: Sequence[Document], guide: Guide | None = None
    ) -> Examples:
        tokens = tokenizer(documents)
        return cls(
            ids=[t.ids for t in tokens],
            gold=torch.tensor([-1 if d.label is None else d.label for d in documents]),
            words=[~t.special for t in tokens],
            weights=guide(tokens) if guide else None,
        )

    def run(self, network: Any, batch: Sequence[int] | Batch) -> Attended:
        """Logits and attention of a batch; the attention is what was given, if it was."""
        ids, real = padded(network, [self.ids[i] for i in batch])
        weights = None
        if self.weights is not None:
            weights = in_rows([self.weights[i] for i in batch], ids.shape[1])
        return network.attended(ids, real, weights)

    def batches(self) -> list[list[int]]:
        """All documents, in batches of similar length."""
        order = sorted(range(len(self.ids)), key=lambda i: len(self.ids[i]))
        return [order[start : start + _DOCUMENTS] for start in range(0, len(order), _DOCUMENTS)]

    @torch.no_grad()
    def logits(self, network: Any) -> Float[np.ndarray, "document label"]:
        """The logits of all documents."""
        logits = np.empty((len(self.ids), network.shape.labels))
        for batch in self.batches():
            logits[batch] = self.run(network, batch)[0].numpy()
        return logits


def in_rows(weights: Weights, length: int) -> Float[Tensor, "document token"]:
    """Weights of documents, one row each, zero behind their end."""
    rows = np.zeros((len(weights), length), dtype=np.float32)
    for i, w in enumerate(weights):
        rows[i, : len(w)] = w
    return torch.from_numpy(rows)


def padded(network: Any, documents: Sequence[Int[np.ndarray, "_"]]) -> tuple[Ids, Mask]:
    """Ids padded to the longest document, or to all that is read where padding attends."""
    if getattr(network.shape, "padding", "masked") == "masked":
        return pad(documents)
    ids, mask = pad(documents, network.shape.max_words + 1)
    return ids, torch.ones_like(mask)


def shuffled_batches(
    documents: Sequence[Int[np.ndarray, "_"]], size: int, rng: np.random.Generator
) -> list[Batch]:
    """Random batches of documents of similar length, so that little of them is padding.

    Documents are shuffled, sorted by length within stretches, and the batches shuffled again.
    """
    order = rng.permutation(len(documents))
    batches: list[Batch] = []
    for start in range(0, len(order), _STRETCH * size):
        stretch = order[start : start + _STRETCH * size]
        by_length = sorted(stretch, key=lambda i: len(documents[i]))
        batches += [np.array(by_length[i : i + size]) for i in range(0, len(by_length), size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def outputs_of(
    model: Classifier, documents: Sequence[Document]
) -> list[tuple[Tokens, Float[np.ndarray, "label"], Float[np.ndarray, "token"]]]:
    """Tokens, probabilities and attention (classifying row, mean over heads) of each document."""
    tokens = model.tokens(documents)

    def run(batch: list[int]) -> list[tuple[Tokens, Any, Any]]:
        documents_of_batch = [tokens[i] for i in batch]
        with torch.no_grad():
            trace = model.trace(documents_of_batch, layers=[-1])
        weights = trace.classifying().mean(1)
        probabilities = model.probabilities(as_numbers(trace.logits))
        return [
            (t, probabilities[row], weights[row, : len(t)])
            for row, t in enumerate(documents_of_batch)
        ]

    return model.each(tokens, run)
