"""The three signatures, on models that are made to have them or not."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

import heed
from heed.claims.signatures import Signature, signature
from heed.methods.units import units_of
from heed.metrics import kendall
from heed.models.single_layer import Network, Shape, SingleLayer
from heed.text import Tokenizer

WORDS = [f"w{i:02}" for i in range(24)]
TEXT = " ".join(WORDS)


def made(g: np.ndarray, w: np.ndarray, unk: tuple[float, float] = (0.0, 0.0)) -> SingleLayer:
    """One head; each word has the score log g and the value w. `unk` is (score, value) of <unk>."""
    tokenizer = Tokenizer.words(WORDS, 41)
    shape = Shape(len(tokenizer), 2, d_e=3, heads=1, d_att=1, d_out=1, max_words=40)
    network = Network(shape).double()
    for p in network.parameters():
        p.data.zero_()
    network.W_p.zero_()
    network.W_e.data[1, 2] = 1  # <cls> asks
    network.W_e.data[3:, 0] = torch.from_numpy(np.log(g))
    network.W_e.data[3:, 1] = torch.from_numpy(w)
    network.W_e.data[0, :2] = torch.tensor(unk)
    network.W_q.data[0, 0, 2] = 1
    network.W_k.data[0, 0, 0] = 1
    network.W_v.data[0, 0, 1] = 1
    network.W_l.data[1, 0, 0] = 1
    return SingleLayer(network, tokenizer, ("no", "yes"))


def measured(model: SingleLayer, label: int = 1) -> Signature:
    (tokens,) = model.tokens([TEXT])
    return signature(model, tokens, label)


def test_the_last_layer_shows_where_values_have_both_signs() -> None:
    rng = np.random.default_rng(0)
    g = np.exp(0.2 * rng.normal(size=24))
    mixed = measured(made(g, rng.normal(size=24) * np.exp(rng.normal(size=24))))
    assert mixed.tau < 0.3 and mixed.against > 0.25 and mixed.spread > 0.5
    assert mixed.final_layer_distorts
    honest = measured(made(g, np.ones(24)))
    assert honest.against == 0 and honest.spread == pytest.approx(0, abs=1e-9)
    assert not honest.final_layer_distorts


def test_words_like_unk_are_named() -> None:
    g, w = np.ones(24), np.linspace(1, 2, 24)
    g[3], w[3] = 6.0, 0.5  # much attention, and <unk> is the same
    found = measured(made(g, w, unk=(np.log(6.0), 0.5)))
    assert found.like_unk == (3,)
    assert found.units[3].text == "w03"
    assert measured(made(g, w)).like_unk == ()


def test_disagreement_of_heads_is_the_mean_of_all_pairs(model: SingleLayer) -> None:
    text = "the film is good and the plot is not very great but fine"
    (tokens,) = model.tokens([text])
    units, groups = units_of(tokens, "word", True)
    scores = []
    for h in range(3):
        (g,) = model.head(h).gradient([tokens], [1])
        rows = (g.gradient * g.embeddings).sum(1)
        scores.append(np.array([rows[groups == j].sum() for j in range(len(units))]))
    expected = np.mean([kendall(a, b) for a, b in combinations(scores, 2)])
    assert signature(model, tokens, 1).heads == pytest.approx(expected)
    assert np.isnan(signature(model.head(0), tokens, 1).heads)


def test_methods_do_not_measure_signatures_for_a_note() -> None:
    rng = np.random.default_rng(0)
    g = np.exp(0.2 * rng.normal(size=24))
    model = made(g, rng.normal(size=24) * np.exp(rng.normal(size=24)))
    assert signature(model, model.tokens([TEXT])[0], 1).final_layer_distorts
    for name in ("attention-mean", "gradient-input"):
        assert not heed.explain(model, TEXT, name, label=1).notes


def test_heads_that_disagree_are_found(model: SingleLayer) -> None:
    (tokens,) = model.tokens(["the film is good and the plot is not very great but fine"])
    measured = signature(model, tokens, 1)
    assert measured.heads_disagree == (measured.heads < 0.3)
