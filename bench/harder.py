"""Harder models of known truth: what made first editions of claims go wrong.

They are built like those of `bench.constructed`: scores and values of words are set by hand.
docs/known-truth.md derives their truth cell by cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from bench.constructed import (
    FILLERS,
    HONEST,
    NOT_APPLICABLE,
    REFUTED,
    SIDES,
    SUPPORTED,
    UNDECIDED,
    WORTH,
    Construction,
    Word,
    build,
    documents_of,
    write,
)
from heed.models.single_layer import Network, SingleLayer
from heed.randomness import generator
from heed.text import Document

Order = Literal["random", "first", "last"]

_GATED = ("agrees-gradient", "agrees-removal", "agrees-lime", "tracks", "signed")
_CLOSED = {"used": REFUTED} | dict.fromkeys(_GATED, NOT_APPLICABLE)
_BLIND = _CLOSED | dict.fromkeys(("removes", "competitive", "plausible"), REFUTED)

# What an audit must find; what is not named here is not determined.
TRUTH: Mapping[str, Mapping[str, str]] = {
    "confident": HONEST,
    "evidence first": HONEST,
    "evidence last": HONEST,
    "repeated words": {c: v for c, v in HONEST.items() if c != "tracks"},
    "blind, evidence first": _BLIND,
    "blind, evidence last": _BLIND,
    "deceptive": {"used": SUPPORTED}
    | dict.fromkeys(("agrees-removal", "agrees-lime", "tracks", "signed"), REFUTED)
    | dict.fromkeys(("removes", "competitive", "plausible"), REFUTED),
    "decorative": _CLOSED | dict.fromkeys(("removes", "plausible"), SUPPORTED),
    "prior only": _CLOSED | {"removes": UNDECIDED},
    "outvoted": dict.fromkeys(("used", "signed", "removes"), SUPPORTED),
}


def _honest(
    name: str, seed: int, n: int, order: Order = "random", louder: float = 1.0
) -> Construction:
    """The model of `bench.constructed.honest`, with documents or outputs that make it harder."""
    rng = generator(seed, name)
    words = {w: Word(float(rng.uniform(0.5, 3)), (WORTH[w],)) for w in WORTH}

    def make(r: np.random.Generator, label: int) -> Document:
        parts = ((SIDES[label], int(r.integers(8, 13))), (FILLERS, int(r.integers(12, 21))))
        return write(r, *parts, label=label, order=order)

    model = build(words, scale=louder * float(rng.uniform(1.5, 2.5)))
    return Construction(name, model, documents_of(seed, name, n, make))


def confident(seed: int = 0, n: int = 100) -> Construction:
    """The honest model, ten times as sure: moving its attention hardly moves a probability."""
    return _honest("confident", seed, n, louder=10.0)


def evidence_first(seed: int = 0, n: int = 100) -> Construction:
    """The honest model, on documents that begin with all their evidence."""
    return _honest("evidence first", seed, n, order="first")


def evidence_last(seed: int = 0, n: int = 100) -> Construction:
    """The honest model, on documents that end with all their evidence."""
    return _honest("evidence last", seed, n, order="last")


def repeated_words(seed: int = 0, n: int = 100) -> Construction:
    """The honest model, on documents in which evidence and fillers occur again and again."""
    rng = generator(seed, "repeated words")
    words = {w: Word(float(rng.uniform(0.5, 3)), (WORTH[w],)) for w in WORTH}

    def make(r: np.random.Generator, label: int) -> Document:
        parts = ((SIDES[label], int(r.integers(10, 16))), (FILLERS[:8], int(r.integers(14, 24))))
        return write(r, *parts, label=label, repeat=True)

    model = build(words, scale=float(rng.uniform(1.5, 2.5)))
    return Construction("repeated words", model, documents_of(seed, "repeated words", n, make))


def _blind(name: str, seed: int, n: int, order: Order) -> Construction:
    """Uniform attention, on documents that begin or end with their evidence.

    All words have the same score, so no order of words is attention's. Whatever breaks ties by
    place takes the evidence first, or last.
    """
    rng = generator(seed, name)
    words = {w: Word(0.0, (WORTH[w],)) for w in WORTH}

    def make(r: np.random.Generator, label: int) -> Document:
        parts = ((SIDES[label], int(r.integers(6, 10))), (FILLERS, int(r.integers(14, 26))))
        return write(r, *parts, label=label, order=order)

    model = build(words, scale=float(rng.uniform(3, 5)), query=0.0)
    return Construction(name, model, documents_of(seed, name, n, make))


def blind_first(seed: int = 0, n: int = 100) -> Construction:
    """Uniform attention; documents begin with their evidence."""
    return _blind("blind, evidence first", seed, n, "first")


def blind_last(seed: int = 0, n: int = 100) -> Construction:
    """Uniform attention; documents end with their evidence."""
    return _blind("blind, evidence last", seed, n, "last")


def deceptive(seed: int = 0, n: int = 100) -> Construction:
    """Evidence gets next to no attention, and such large values that it decides all the same.

    Fillers are attended in different degrees, always more than evidence and more than <unk>. They
    add nothing but their weight: without a filler the evidence counts for more.
    """
    rng = generator(seed, "deceptive")
    words = {w: Word(float(rng.uniform(0, 0.3)), (60 * WORTH[w],)) for w in WORTH}
    words |= {w: Word(float(rng.uniform(3.5, 4.5))) for w in FILLERS}

    def make(r: np.random.Generator, label: int) -> Document:
        parts = ((SIDES[label], int(r.integers(4, 7))), (FILLERS, int(r.integers(16, 29))))
        return write(r, *parts, label=label)

    model = build(words, scale=float(rng.uniform(1.5, 2.5)), unknown=Word(3.0))
    return Construction("deceptive", model, documents_of(seed, "deceptive", n, make))


def decorative(seed: int = 0, n: int = 100) -> Construction:
    """A bag of words with decorative attention: two heads, of which the output reads one.

    That head attends to all words alike. The other attends to evidence, as the honest model does,
    and its output is multiplied by 0.
    """
    rng = generator(seed, "decorative")
    words = {w: Word(float(rng.uniform(0.5, 3)), (WORTH[w],)) for w in WORTH}
    model = build(words, scale=float(rng.uniform(6, 8)))
    network = model.network
    both = Network(replace(network.shape, heads=2)).double()
    both.W_e.data, both.W_p = network.W_e.data, network.W_p
    for name in ("W_q", "W_k", "W_v"):
        getattr(both, name).data = getattr(network, name).data.repeat(2, 1, 1)
    both.W_q.data[0] = 0.0
    both.W_l.data = torch.cat([network.W_l.data, 0 * network.W_l.data], 1)

    def make(r: np.random.Generator, label: int) -> Document:
        parts = ((SIDES[label], int(r.integers(8, 13))), (FILLERS, int(r.integers(12, 21))))
        return write(r, *parts, label=label)

    decorated = SingleLayer(both, model.tokenizer, model.labels)
    return Construction("decorative", decorated, documents_of(seed, "decorative", n, make))


def prior_only(seed: int = 0, n: int = 100) -> Construction:
    """Every word is worth 0: the prediction is the same whatever stands in the document."""
    rng = generator(seed, "prior only")
    words = {w: Word(float(rng.uniform(0, 3))) for w in (*WORTH, *FILLERS)}

    def make(r: np.random.Generator, label: int) -> Document:
        parts = ((SIDES[label], int(r.integers(8, 13))), (FILLERS, int(r.integers(12, 21))))
        return write(r, *parts, label=label)

    return Construction("prior only", build(words, 2.0), documents_of(seed, "prior only", n, make))


def outvoted(seed: int = 0, n: int = 100) -> Construction:
    """Attention is on the few words that decide, against many that speak against the label.

    Chance points to one of the many.
    """
    rng = generator(seed, "outvoted")
    words = {w: Word(float(rng.uniform(2.5, 3)), (WORTH[w],)) for w in WORTH}
    many = (FILLERS[:15], FILLERS[15:])  # against each label
    words |= {w: Word(0.0, (1.0 - 2 * label,)) for label in (0, 1) for w in many[label]}

    def make(r: np.random.Generator, label: int) -> Document:
        parts = ((SIDES[label], int(r.integers(5, 7))), (many[label], 15))
        return write(r, *parts, label=label)

    return Construction("outvoted", build(words, 2.0), documents_of(seed, "outvoted", n, make))


CONSTRUCTIONS: Mapping[str, Callable[[int, int], Construction]] = {
    "confident": confident,
    "evidence first": evidence_first,
    "evidence last": evidence_last,
    "repeated words": repeated_words,
    "blind, evidence first": blind_first,
    "blind, evidence last": blind_last,
    "deceptive": deceptive,
    "decorative": decorative,
    "prior only": prior_only,
    "outvoted": outvoted,
}
