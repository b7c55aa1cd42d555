"""A `Dataset` of documents, and ways to take a part of it: by class, by length, by number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import overload

import numpy as np
from jaxtyping import Int

from heed.errors import InputError, UnknownName
from heed.text import Document


@dataclass(frozen=True, repr=False)
class Dataset(Sequence[Document]):
    """Documents with their labels' names, and where they come from.

    `source` and `licence` are for reports; `notes` say what a reader of results must know, and
    `left_out` how many blank texts are not among the documents.
    """

    name: str
    split: str
    documents: tuple[Document, ...]
    labels: tuple[str, ...]
    source: str
    licence: str
    notes: tuple[str, ...] = ()
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.documents)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Document | Dataset:
        if isinstance(index, slice):
            return replace(self, documents=self.documents[index])
        return self.documents[index]

    def __repr__(self) -> str:
        labels = ", ".join(self.labels) if len(self.labels) <= 5 else f"{len(self.labels)} labels"
        size = f"{len(self):,} documents"
        return f"Dataset({self.name} {self.split}, {size}: {labels or 'no labels'})"

    @property
    def texts(self) -> list[str] | list[tuple[str, str]]:
        """The texts alone; pairs of texts where the data set has pairs."""
        pairs = [(d.text, d.pair) for d in self.documents if d.pair is not None]
        return pairs or [d.text for d in self.documents]

    @property
    def gold(self) -> Int[np.ndarray, "document"]:
        """The index of each document's label."""
        labels = [d.label for d in self.documents if d.label is not None]
        if len(labels) < len(self):
            raise InputError(f"The data set {self.name} has documents without a label.")
        return np.array(labels, dtype=np.int64)

    def hold_out(self, fraction: float, seed: int = 0) -> tuple[Dataset, Dataset]:
        """The rest and a random part, in their old order; those that share an id stay together."""
        size = round(fraction * len(self)) if 0 < fraction < 1 else 0
        held = set(draw(self.documents, size, seed))
        if not 0 < len(held) < len(self):
            share = f"{fraction} of {len(self)} documents"
            raise InputError(f"Cannot hold out {share}; give a share between 0 and 1.")
        rest = tuple(d for i, d in enumerate(self.documents) if i not in held)
        part = tuple(d for i, d in enumerate(self.documents) if i in held)
        notes = (*self.notes, f"held out: {fraction:g} of {self.split}, seed {seed}")
        return (
            replace(self, split=f"{self.split}:rest", documents=rest, notes=notes),
            replace(self, split=f"{self.split}:held-out", documents=part, notes=notes),
        )


def sample(dataset: Dataset, number: int, seed: int) -> Dataset:
    """At most so many documents, in random order."""
    drawn = draw(dataset.documents, number, seed)
    return replace(dataset, documents=tuple(dataset.documents[i] for i in drawn))


def of_classes(dataset: Dataset, wanted: Sequence[str]) -> Dataset:
    """Only the documents with these labels, which are numbered anew."""
    wanted = [wanted] if isinstance(wanted, str) else wanted
    folded = {name.casefold(): i for i, name in enumerate(dataset.labels)}
    for name in wanted:
        if name.casefold() not in folded:
            raise UnknownName("label", name, dataset.labels)
    old = [folded[name.casefold()] for name in wanted]
    if len(set(old)) < max(2, len(old)):
        raise InputError("Give at least two different classes.")
    new = {index: i for i, index in enumerate(old)}
    documents = tuple(replace(d, label=new[d.label]) for d in dataset if d.label in new)
    return replace(dataset, documents=documents, labels=tuple(dataset.labels[i] for i in old))


def of_lengths(dataset: Dataset, least: int, most: float) -> Dataset:
    """Only the documents with so many words; those that share an id stay or go together."""
    fits = [least <= sum(len(s.split()) for s in d.segments) <= most for d in dataset]
    groups = [group for group in _together(dataset.documents) if all(fits[i] for i in group)]
    kept = tuple(dataset.documents[i] for i in sorted(chain.from_iterable(groups)))
    note = f"{len(dataset) - len(kept):,} documents outside the length limits left out"
    return replace(dataset, documents=kept, notes=(*dataset.notes, note))


def draw(documents: Sequence[Document], size: int, seed: int) -> list[int]:
    """Indices of at most `size` documents in random order, those that share an id together.

    As long as no group has to be passed over for its size, a smaller draw is the beginning of a
    larger one.
    """
    if seed < 0:
        raise InputError(f"The seed must not be negative, got {seed}.")
    groups = _together(documents)
    drawn: list[int] = []
    for g in np.random.default_rng(seed).permutation(len(groups)):
        if len(drawn) == size:
            break
        if len(drawn) + len(groups[g]) <= size:
            drawn += groups[g]
    if size and documents and not drawn:
        raise InputError(
            "Documents that share an id are drawn together, and every id has more than"
            f" {size:,} of them: raise the limit, or give each document an id of its own."
        )
    return drawn


def _together(documents: Sequence[Document]) -> list[list[int]]:
    """Indices of documents, those that share an id in one group."""
    groups: dict[str | int, list[int]] = {}
    for i, d in enumerate(documents):
        groups.setdefault(d.id or i, []).append(i)
    return list(groups.values())
