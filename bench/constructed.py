"""Models whose truth is known by construction, and the documents that they are about.

An audit must find it.

Each is a single-layer classifier with one head whose weights are set by hand. A word has a score s
and a value v: its attention is proportional to e^s, and the logits of "positive" and "negative" are
±scale times Σ_t a_t w_t, where the worth w is the first number of v. <cls> has score and value 0;
positions play no part. What a recipe leaves open (degrees of attention, numbers of words, their
order) is drawn from a seed. `TRUTH` says what must be found, and docs/known-truth.md derives it
cell by cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch

from heed.models.shapes import Shape
from heed.models.single_layer import Network, SingleLayer
from heed.randomness import generator
from heed.text import Document, Span, Tokenizer

LABELS = ("negative", "positive")
# All words are of one length: it says nothing about what a word counts.
FOR, AGAINST = [f"for{i:02}" for i in range(12)], [f"not{i:02}" for i in range(12)]
FILLERS, SEPARATORS = [f"any{i:02}" for i in range(30)], [f"sep{i:02}" for i in range(8)]
TWIN = {word: f"{word}twin" for word in (*FOR, *AGAINST)}
WORDS = [*FOR, *AGAINST, *FILLERS, *SEPARATORS, *TWIN.values()]
SIDES = (AGAINST, FOR)  # by label
WORTH = dict.fromkeys(AGAINST, -1.0) | dict.fromkeys(FOR, 1.0)
WIDE = 48  # numbers of a value in `short_and_full`: more than a document there has words

SUPPORTED, REFUTED, NOT_APPLICABLE = "supported", "refuted", "not applicable"
UNDECIDED = "undecided"
_GATED = ("agrees-gradient", "agrees-removal", "agrees-lime", "tracks", "signed")
HONEST = dict.fromkeys(
    ("used", *_GATED, "removes", "competitive", "sensitive", "plausible"), SUPPORTED
) | {"signed": UNDECIDED}  # no word speaks against the label, so that chance passes as well

# What an audit must find; what is not named here is not determined.
TRUTH: Mapping[str, Mapping[str, str]] = {
    "honest": HONEST | {"exclusive": REFUTED},
    "flat": {"used": REFUTED, "plausible": REFUTED} | dict.fromkeys(_GATED, NOT_APPLICABLE),
    "distracted": {"used": SUPPORTED}
    | dict.fromkeys(("agrees-removal", "agrees-lime", "tracks", "removes", "plausible"), REFUTED),
    "two-sided": {"used": SUPPORTED, "tracks": REFUTED, "signed": REFUTED},
    "key word": dict.fromkeys(
        ("used", "agrees-gradient", "agrees-removal", "agrees-lime", "removes", "plausible"),
        SUPPORTED,
    ),
    "two minds": {"stable": REFUTED},
    "long and thin": {"identified": REFUTED, "efficient-necessary": SUPPORTED},
    "short and full": {"identified": SUPPORTED}
    | dict.fromkeys(("efficient-necessary", "efficient-near"), NOT_APPLICABLE),
}


class Word(NamedTuple):
    """What a model makes of a word.

    Attention is proportional to e^score; the first number of its value counts.
    """

    score: float = 0.0
    value: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, eq=False)
class Construction:
    """A model, documents, and the other trainings of the model, where the truth is about these."""

    name: str
    model: SingleLayer
    documents: list[Document]
    retraining: Minds | None = None


@dataclass(frozen=True)
class Minds:
    """Trainings that are known beforehand, in the place of `heed.training.again.Retraining`.

    A model for each seed.

    The seed of the model that is judged is 0.
    """

    train: Callable[[int], SingleLayer]
    _kept: dict[int, SingleLayer] = field(default_factory=dict, repr=False, compare=False)

    def seeds(self, count: int) -> list[int]:
        """Seeds other than the model's own."""
        return list(range(1, count + 1))

    def again(self, seed: int) -> SingleLayer:
        """What training from that seed gives."""
        if seed not in self._kept:
            self._kept[seed] = self.train(seed)
        return self._kept[seed]


def build(
    words: Mapping[str, Word], scale: float, unknown: Word | None = None, query: float = 1.0
) -> SingleLayer:
    """The classifier in which words have these scores and values, and others none.

    Scores are multiplied by `query`.
    """
    tokenizer = Tokenizer.words(WORDS, 257)
    width = max(len(word.value) for word in words.values())
    shape = Shape(
        len(tokenizer), len(LABELS), d_e=width + 2, heads=1, d_att=1, d_out=width, max_words=256
    )
    network = Network(shape)
    network.W_p.zero_()
    e = torch.zeros(shape.vocabulary, shape.d_e)  # score, 1 for <cls>, value
    e[1, 1] = 1.0
    known = [unknown or Word(), Word(), Word(), *(words.get(word, Word()) for word in WORDS)]
    for i, word in enumerate(known):
        e[i, 0] = word.score
        e[i, 2 : 2 + len(word.value)] = torch.tensor(word.value)
    network.W_e.data = e
    for weights in (network.W_q, network.W_k, network.W_v, network.W_l):
        weights.data.zero_()
    network.W_q.data[0, 0, 1] = query
    network.W_k.data[0, 0, 0] = 1.0
    network.W_v.data[0, :, 2:] = torch.eye(width)
    network.W_l.data[:, 0, 0] = torch.tensor([-scale, scale])
    return SingleLayer(network.double(), tokenizer, LABELS)


def write(
    rng: np.random.Generator,
    *parts: tuple[Sequence[str], int],
    label: int | None = None,
    repeat: bool = False,
    order: Literal["random", "first", "last"] = "random",
) -> Document:
    """So many words of each kind (distinct ones, unless they may repeat) in random order.

    The evidence for the label, if there is one, is marked as the reason for it. It may come "first"
    or "last" instead.
    """
    drawn = [w for kind, n in parts for w in rng.choice(kind, n, replace=repeat)]
    words = [str(w) for w in rng.permutation(drawn)]
    if order != "random":
        words.sort(key=lambda w: (w in WORTH) == (order == "last"))
    ends = np.cumsum([len(w) + 1 for w in words]) - 1
    because = SIDES[label] if label is not None else []
    spans = (
        Span(int(end) - len(w), int(end))
        for w, end in zip(words, ends, strict=True)
        if w in because
    )
    return Document(" ".join(words), label=label, rationale=tuple(spans))


def honest(seed: int = 0, n: int = 100) -> Construction:
    """Attention is on what counts, as far as it counts.

    A document has evidence of one side only. Evidence is worth ±1 and attended in different
    degrees, s > 0; fillers and <unk> are worth 0 at s = 0. Then |gradient × input|, the change on
    removal and LIME rise with s, and are equal for all fillers, which come last: all of them have
    attention's order. No word speaks against the label. Weights drawn anew give words other scores,
    whose order has nothing to do with this one. Yet attention is not exclusive: one word of
    evidence and one filler, weighed as all evidence and all fillers were, give the same output.
    """
    rng = generator(seed, "honest")
    words = {w: Word(float(rng.uniform(0.5, 3)), (WORTH[w],)) for w in WORTH}

    def make(r: np.random.Generator, label: int) -> Document:
        parts = ((SIDES[label], int(r.integers(8, 13))), (FILLERS, int(r.integers(12, 21))))
        return write(r, *parts, label=label)

    return Construction(
        "honest",
        build(words, scale=float(rng.uniform(1.5, 2.5))),
        documents_of(seed, "honest", n, make),
    )


def flat(seed: int = 0, n: int = 100) -> Construction:
    """The query is 0, so attention is uniform, whatever the scores: values carry everything.

    Shuffling equal weights changes nothing, so attention is not used and the gate closes. Equal
    scores rank no word before another: their average precision is the share of marked words.
    """
    rng = generator(seed, "flat")
    words = {w: Word(float(rng.uniform(0, 3)), (WORTH[w],)) for w in WORTH}

    def make(r: np.random.Generator, label: int) -> Document:
        more, less = int(r.integers(5, 9)), int(r.integers(2, 5))
        return write(
            r,
            (SIDES[label], more),
            (SIDES[1 - label], less),
            (FILLERS, int(r.integers(14, 26))),
            label=label,
        )

    return Construction(
        "flat",
        build(words, scale=float(rng.uniform(3, 5)), query=0.0),
        documents_of(seed, "flat", n, make),
    )


def distracted(seed: int = 0, n: int = 100) -> Construction:
    """Most attention is on separators, which are worth nothing.

    Evidence (s = 0) is attended no more than fillers.

    <unk> is attended and worth just what a separator is: replacing one changes nothing, while
    replacing evidence or a filler adds to what distracts. So removal and LIME put separators last,
    where attention puts them first, and the first words that attention removes do nothing.
    Shuffled, attention falls on evidence, and the prediction moves.
    """
    rng = generator(seed, "distracted")
    separator = Word(float(rng.uniform(3.5, 4.5)))
    words = {w: Word(0.0, (WORTH[w],)) for w in WORTH} | dict.fromkeys(SEPARATORS, separator)

    def make(r: np.random.Generator, label: int) -> Document:
        parts = ((FILLERS, int(r.integers(6, 13))), (SEPARATORS, int(r.integers(6, 9))))
        return write(r, (SIDES[label], int(r.integers(8, 13))), *parts, label=label)

    model = build(words, scale=float(rng.uniform(7, 9)), unknown=separator)
    return Construction("distracted", model, documents_of(seed, "distracted", n, make))


def two_sided(seed: int = 0, n: int = 100) -> Construction:
    """Evidence for and against is attended alike (2.9 < s < 3.1), far above the rest (s = 0).

    One word more decides.

    The label is that of the majority: 5e^2.9 > 4e^3.1. The top 3 words are evidence, of either side
    as it comes, so that some 4 in 9 of them speak against the label. Attention has no sign, and
    cannot follow a change that has one; gradients can.
    """
    rng = generator(seed, "two-sided")
    words = {w: Word(float(rng.uniform(2.9, 3.1)), (WORTH[w],)) for w in WORTH}

    def make(r: np.random.Generator, label: int) -> Document:
        more = int(r.integers(4, 6))
        parts = ((SIDES[label], more), (SIDES[1 - label], more - 1))
        return write(r, *parts, (FILLERS, int(r.integers(14, 25))), label=label)

    return Construction(
        "two-sided",
        build(words, scale=float(rng.uniform(3, 5))),
        documents_of(seed, "two-sided", n, make),
    )


def key_word(seed: int = 0, n: int = 100) -> Construction:
    """One word of 25 to 30 is evidence and has nine tenths of the attention (s > 5.4).

    The fillers share the rest evenly (s = 0), and each is worth a little, for or against. Attention
    has found the only word that matters, and ranks no other before another.
    """
    rng = generator(seed, "key word")
    words = {w: Word(float(rng.uniform(5.4, 5.8)), (WORTH[w],)) for w in WORTH}
    words |= {w: Word(0.0, (float(rng.normal(0, 0.01)),)) for w in FILLERS}

    def make(r: np.random.Generator, label: int) -> Document:
        return write(r, (SIDES[label], 1), (FILLERS, int(r.integers(24, 30))), label=label)

    return Construction(
        "key word",
        build(words, scale=float(rng.uniform(1.5, 2.5))),
        documents_of(seed, "key word", n, make),
    )


def two_minds(seed: int = 0, n: int = 100) -> Construction:
    """Evidence comes in pairs (x, x′) that never part.

    A training attends to one of both (s = 4); a coin says to which.

    Either choice gives the same sums Σ e^s and Σ e^s w in every document, so all trainings make the
    very same predictions, and no data could tell them apart. Two of them differ in every other
    pair: half of the attention moves.
    """

    def train(mind: int) -> SingleLayer:
        rng = generator(seed, "two minds", mind)
        attended = {x: bool(rng.integers(2)) for x in WORTH}
        first = {x: Word(4.0 * attended[x], (worth,)) for x, worth in WORTH.items()}
        second = {TWIN[x]: Word(4.0 * (not attended[x]), (worth,)) for x, worth in WORTH.items()}
        return build(first | second, scale=2)

    def make(r: np.random.Generator, label: int) -> Document:
        chosen = [str(x) for x in r.choice(SIDES[label], int(r.integers(4, 7)), replace=False)]
        both = [*chosen, *(TWIN[x] for x in chosen)]
        return write(r, (both, len(both)), (FILLERS, int(r.integers(12, 25))), label=label)

    minds = Minds(train)
    return Construction(
        "two minds", minds.again(0), documents_of(seed, "two minds", n, make), minds
    )


def long_and_thin(seed: int = 0, n: int = 100) -> Construction:
    """A value is one number, documents have 150 to 250 words, attention is diffuse (0 < s < 1).

    With a word for and a word against the label, one row that looks at these two alone gives any
    output in between: it shares at most 2e/150 with attention, so that its distance is at least
    0.96.
    """
    rng = generator(seed, "long and thin")
    words = {w: Word(float(rng.uniform(0, 1)), (WORTH.get(w, 0.0),)) for w in (*WORTH, *FILLERS)}

    def make(r: np.random.Generator, label: int) -> Document:
        evidence, length = r.integers(20, 51, 2), int(r.integers(150, 251))
        parts = (
            (FOR, int(evidence[0])),
            (AGAINST, int(evidence[1])),
            (FILLERS, length - int(evidence.sum())),
        )
        return write(r, *parts, repeat=True)

    model = build(words, scale=float(rng.uniform(1.5, 2.5)))
    return Construction("long and thin", model, documents_of(seed, "long and thin", n, make))


def short_and_full(seed: int = 0, n: int = 100) -> Construction:
    """A value has 48 numbers, drawn at random, and a document 20 to 40 words, all different.

    The values of a document are then linearly independent, and a row of attention is all that gives
    its output.
    """
    rng = generator(seed, "short and full")
    known = (*WORTH, *FILLERS)
    words = {
        w: Word(float(rng.uniform(0, 2)), tuple(rng.standard_normal(WIDE).tolist())) for w in known
    }

    def make(r: np.random.Generator, label: int) -> Document:
        return write(r, (known, int(r.integers(20, 41))))

    model = build(words, scale=float(rng.uniform(1.5, 2.5)))
    return Construction("short and full", model, documents_of(seed, "short and full", n, make))


CONSTRUCTIONS: Mapping[str, Callable[[int, int], Construction]] = {
    "honest": honest,
    "flat": flat,
    "distracted": distracted,
    "two-sided": two_sided,
    "key word": key_word,
    "two minds": two_minds,
    "long and thin": long_and_thin,
    "short and full": short_and_full,
}


def documents_of(
    seed: int, name: str, n: int, make: Callable[[np.random.Generator, int], Document]
) -> list[Document]:
    """Documents, each from its own randomness, with labels as they come."""
    found = []
    for i in range(n):
        rng = generator(seed, name, "document", i)
        found.append(make(rng, int(rng.integers(len(LABELS)))))
    return found
