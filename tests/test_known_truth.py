"""Models whose truth is known by construction: an audit must find it.

Each is a single-layer classifier with one head set by hand: a word has a score s (its attention is proportional to
e^s) and a worth w (what it adds to the logit of "positive", and takes from "negative"). Positions play no part.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

import heed
from heed.models.recipes import Shape
from heed.models.single_layer import Network, SingleLayer
from heed.text import Tokenizer

FOR, AGAINST = [f"for{i}" for i in range(12)], [f"against{i}" for i in range(12)]
FILLERS, SEPARATORS = [f"filler{i}" for i in range(30)], [f"sep{i}" for i in range(8)]
WORDS = [*FOR, *AGAINST, *FILLERS, *SEPARATORS]
CLAIMS = ["used", "agrees-gradient", "agrees-removal", "agrees-lime", "tracks", "signed", "removes", "robust"]
Score = Callable[[str], tuple[float, float]]


def build(score: Score, scale: float, unknown: tuple[float, float] = (0.0, 0.0), query: float = 1.0) -> SingleLayer:
    """A classifier in which each word has the given (score, worth); <cls> has neither."""
    tokenizer = Tokenizer.words(WORDS, 65)
    network = Network(Shape(len(tokenizer), 2, d_e=3, heads=1, d_att=1, d_out=1, max_words=64))
    network.W_p.zero_()
    e = torch.zeros(len(tokenizer), 3)  # (score, worth, is <cls>)
    e[0, :2] = torch.tensor(unknown)
    e[1, 2] = 1.0
    for i, word in enumerate(WORDS, 3):
        e[i, :2] = torch.tensor(score(word))
    network.W_e.data = e
    network.W_q.data = torch.tensor([[[0.0, 0.0, query]]])
    network.W_k.data = torch.tensor([[[1.0, 0.0, 0.0]]])
    network.W_v.data = torch.tensor([[[0.0, 1.0, 0.0]]])
    network.W_l.data = torch.tensor([[[-scale]], [[scale]]], dtype=torch.float32)
    return SingleLayer(network.double(), tokenizer, ("negative", "positive"))


def write(rng: np.random.Generator, *parts: tuple[Sequence[str], int]) -> str:
    """A document of so many distinct words of each kind, in random order."""
    words = [w for kind, n in parts for w in rng.choice(list(kind), n, replace=False)]
    return " ".join(rng.permutation(words))


def documents(seed: int, make: Callable[[np.random.Generator], str], n: int = 60) -> list[str]:
    rng = np.random.default_rng(seed)
    return [make(rng) for _ in range(n)]


def honest(seed: int) -> tuple[SingleLayer, list[str]]:
    """Evidence is worth +1 (or -1), attended in different degrees; everything else is worth 0 at score 0."""
    rng = np.random.default_rng(seed)
    degree = {w: float(s) for w, s in zip([*FOR, *AGAINST], rng.uniform(0.5, 3, 24), strict=True)}
    model = build(lambda w: (degree.get(w, 0.0), 1.0 if w in FOR else -1.0 if w in AGAINST else 0.0), scale=2)
    texts = documents(seed, lambda r: write(r, (FOR if r.random() < 0.5 else AGAINST, 10), (FILLERS, 12)))
    return model, texts


def flat(seed: int) -> tuple[SingleLayer, list[str]]:
    """The query is zero, so attention is uniform, and values carry everything."""
    model = build(lambda w: (1.0, 1.0 if w in FOR else -1.0 if w in AGAINST else 0.0), scale=4, query=0.0)
    return model, documents(seed, lambda r: write(r, (FOR, int(r.integers(1, 9))), (AGAINST, 4), (FILLERS, 12)))


def distracted(seed: int) -> tuple[SingleLayer, list[str]]:
    """Attention goes to separators worth nothing; evidence is barely attended; <unk> is just like a separator."""

    def score(word: str) -> tuple[float, float]:
        if word in SEPARATORS:
            return 4.0, 0.0
        return 0.0, 1.0 if word in FOR else -1.0 if word in AGAINST else 0.0

    model = build(score, scale=8, unknown=(4.0, 0.0))
    parts = ((FILLERS, 6), (SEPARATORS, 6))
    return model, documents(seed, lambda r: write(r, (FOR if r.random() < 0.5 else AGAINST, 12), *parts))


def two_sided(seed: int) -> tuple[SingleLayer, list[str]]:
    """Evidence for and against is attended alike, far above the rest; the majority decides."""
    rng = np.random.default_rng(seed)
    degree = {w: float(s) for w, s in zip([*FOR, *AGAINST], rng.uniform(2.5, 3.5, 24), strict=True)}
    model = build(lambda w: (degree.get(w, 0.0), 1.0 if w in FOR else -1.0 if w in AGAINST else 0.0), scale=4)

    def make(r: np.random.Generator) -> str:
        majority, minority = (FOR, AGAINST) if r.random() < 0.5 else (AGAINST, FOR)
        return write(r, (majority, 6), (minority, 5), (FILLERS, 12))

    return model, documents(seed, make)


EXPECTED = {
    honest: dict.fromkeys(CLAIMS[:-1], "supported"),  # LIME deletes fillers to no effect, and noise orders them
    flat: {"used": "refuted"} | dict.fromkeys(CLAIMS[1:6], "not applicable"),
    distracted: {"used": "supported"}
    | dict.fromkeys(("agrees-removal", "agrees-lime", "tracks", "removes"), "refuted"),
    two_sided: {"used": "supported", "signed": "refuted", "tracks": "refuted"},
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("make", EXPECTED, ids=lambda make: make.__name__)
def test_an_audit_finds_the_truth(make: Callable[[int], tuple[SingleLayer, list[str]]], seed: int) -> None:
    model, texts = make(seed)
    audit = heed.audit(model, texts, examples=0)
    outcomes = {v.claim.id: v.outcome for v in audit.verdicts}
    expected = EXPECTED[make]
    assert {claim: outcomes[claim] for claim in expected} == expected, audit.to_dict()["verdicts"]
