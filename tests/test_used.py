"""Does the prediction depend on where attention goes? In which layers, and if it is certain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import heed
from bench.constructed import Construction, honest
from heed.claims import CLAIMS, Study
from heed.claims.needed import Moved, Used, shuffled_keys
from heed.errors import InputError
from heed.methods import (
    AttentionGradient,
    AttentionMean,
    EfficientAttention,
    Flow,
    Lime,
    Method,
    Rollout,
    ValueNorm,
    reads_below,
)
from heed.models.shapes import StackShape
from heed.models.single_layer import SingleLayer
from heed.models.stacked import Stacked, StackNetwork
from heed.text import Document, Tokenizer
from tests.conftest import TEXTS
from tests.test_stacked import build as stacked
from tests.test_transformer import model as transformer

DOCUMENTS = [Document.of(text) for text in TEXTS]


def louder(construction: Construction, times: float) -> SingleLayer:
    """The same model with its output scaled up."""
    quiet = construction.model
    network = type(quiet.network)(quiet.shape).double()
    network.load_state_dict(quiet.network.state_dict())
    network.W_p.copy_(quiet.network.W_p)
    network.W_l.data *= times
    return SingleLayer(network, quiet.tokenizer, quiet.labels, "loud")


def reads_words_first(words: list[str]) -> Stacked:
    """Two layers: the first finds the key words, the second looks at all tokens alike.

    After the first layer every token holds the mean of the key words' values. So it does not matter
    where the second layer looks.
    """
    tokenizer = Tokenizer.words(words, 41)
    shape = StackShape(
        len(tokenizer), 2, layers=2, width=4, heads=1, max_words=40, block="attention"
    )
    network = StackNetwork(shape).double()
    network.W_p.zero_()
    for parameter in network.parameters():
        parameter.data.zero_()
    network.W_e.data[:, 0] = 1.0  # what asks: the same in every token
    for i, word in enumerate(words):
        if word.startswith("key"):
            network.W_e.data[3 + i, 1] = 1.0  # what is looked for
            network.W_e.data[3 + i, 2] = 1.0 if i % 2 else -1.0  # what it says
    network.W_q0.data[1, 0] = 6.0
    network.W_k0.data[1, 1] = 2.0
    for name in ("W_v0", "W_o0", "W_v1"):
        getattr(network, name).data.copy_(torch.eye(4))
    network.W_l.data[:, 2] = torch.tensor([-3.0, 3.0])
    return Stacked(network, tokenizer, ("negative", "positive"), "first layer")


WORDS = [f"filler{i}" for i in range(20)] + [f"key{i}" for i in range(8)]


def planted(n: int) -> list[Document]:
    rng = np.random.default_rng(0)
    documents = []
    for _ in range(n):
        fillers, key = rng.choice(WORDS[:20], 9, replace=False), rng.choice(WORDS[20:])
        documents.append(Document(" ".join(rng.permutation([*fillers, key]))))
    return documents


# Certain predictions


def test_a_confident_honest_model_uses_its_attention() -> None:
    construction = honest(0, 100)
    for times in (0.3, 10.0):
        model = louder(construction, times)
        (verdict,) = heed.audit(model, construction.documents, ["used"], examples=0).verdicts
        assert verdict.outcome == "supported", verdict
        rows = Used().measure(Study(model, construction.documents))
        assert {row["saturated"] for row in rows} == {float(times == 10)}
        for row in rows:
            # without logits far apart, nothing is new
            assert (row["plain"] == row["value"]) == (times == 0.3)
    assert max(row["plain"] for row in rows) < 1e-3 < 0.3 < min(row["value"] for row in rows)


def test_how_far_predictions_move_against_its_words() -> None:
    """Label by label and permutation by permutation, with log-odds written out."""
    rng = np.random.default_rng(0)
    for exclusive in (True, False):
        model = transformer("bert") if exclusive else several()
        labels = len(model.labels)
        before = 4 * rng.standard_normal((12, labels))
        after = before + rng.standard_normal((7, 12, labels))
        found = Moved.of(model, before, after)
        certain = 0
        for b in range(12):
            moves, plain = [], []
            for variant in after[:, b]:
                p, q = (model.probabilities(z) for z in (before[b], variant))
                distance = abs(p - q).sum() / 2 if exclusive else abs(p - q).max()
                plain.append(distance)
                top = int(p.argmax())
                if p[top] > 0.95 or (not exclusive and p[top] < 0.05):
                    certain += 1
                    change = np.log(q[top] / (1 - q[top])) - np.log(p[top] / (1 - p[top]))
                    distance = abs(1 / (1 + np.exp(-change)) - 0.5)
                    if not exclusive:
                        rest = [abs(p[c] - q[c]) for c in range(labels) if c != top]
                        distance = max([distance, *rest])
                moves.append(distance)
            assert found.moved[b] == pytest.approx(np.median(moves), abs=1e-9)
            assert found.plain[b] == pytest.approx(np.median(plain), abs=1e-9)
        assert 0 < certain < 84 and certain == 7 * found.saturated.sum()


def several() -> heed.models.transformer.Transformer:
    from tests.test_transformer import Transformer, network, tokenizer

    raw = network("bert", problem_type="multi_label_classification")
    return Transformer(raw, tokenizer(), "several")


def test_the_distance_at_probability_one_half_is_that_of_the_same_change_of_log_odds() -> None:
    """The derivation: move the log-odds of two labels by δ, from ½."""
    for change in (-3.0, -0.2, 0.0, 1.0):
        before, after = np.array([0.0, 0.0]), np.array([0.0, change])
        p, q = (np.exp(z) / np.exp(z).sum() for z in (before, after))
        distance = np.abs(p - q).sum() / 2
        own = np.array([[0.0, 6.0]])
        moved = Moved.of(honest(0, 1).model, own, own[None] + [0.0, change])
        assert moved.saturated.all() and moved.moved[0] == pytest.approx(distance)


# Layers


def test_words_that_the_first_layer_reads_are_seen_in_all_layers_only() -> None:
    model, documents = reads_words_first(WORDS), planted(40)
    rows = Used().measure(Study(model, documents))
    assert max(row["value"] for row in rows) < 1e-9
    assert [row["value"] for row in rows] == [row["last_layer"] for row in rows]
    assert np.mean([row["all_layers"] for row in rows]) > 0.3
    below = Used().measure(Study(model, documents, Rollout()))
    assert [row["value"] for row in below] == [row["all_layers"] for row in rows]
    # the classifying row of the first layer is one of eleven that the second reads
    first = Used().measure(Study(model, documents, AttentionMean(layers="0")))
    assert 0 < np.mean([row["value"] for row in first]) < 0.2


def test_some_layers_are_shuffled_row_by_row() -> None:
    """Every permutation by itself, put into a pass by hand."""
    model = stacked(layers=2, block="relu")
    study = Study(model, DOCUMENTS[:3], AttentionMean(layers="0,1"))
    rows = Used(everywhere=5).measure(study)
    for row, document in zip(rows, DOCUMENTS, strict=False):
        (tokens,) = model.tokens([document])
        with torch.no_grad():
            plain = model.trace([tokens])
        rng = study.rng("used", document, "rows")
        words, after = np.flatnonzero(~tokens.special), []
        for _ in range(5):
            order = rng.permutation(words)
            attention = {}
            for i in (0, 1):
                own = plain.attention[i][:, :, :1].clone()
                own[..., words] = own[..., order]
                attention[i] = own
            after.append(model.trace([tokens], attention).logits.detach().numpy())
        moved = Moved.of(model, plain.logits.numpy(), np.stack(after)).moved[0]
        assert row["value"] == pytest.approx(moved, abs=1e-12)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_all_rows_are_shuffled_alike(family: str) -> None:
    """Row by row: a row gives what it sees, in the order of the turns, to the words in order."""
    model = transformer(family)
    tokens = model.tokens(TEXTS[:2])
    with torch.no_grad():
        trace = model.trace(tokens)
    rng = np.random.default_rng(0)
    free = np.zeros(trace.tokens.shape, dtype=bool)
    for b, t in enumerate(tokens):
        free[b, : len(t)] = ~t.special
    turns = rng.random(free.shape)
    for weights in trace.attention:
        found = shuffled_keys(weights, torch.from_numpy(free), torch.from_numpy(turns)).numpy()
        for b, t in enumerate(tokens):
            for q in range(len(t)):
                own = weights[b, :, q].numpy()
                seen = [k for k in range(len(t)) if free[b, k] and own[:, k].max() > 0]
                assert len(seen) == (free[b, : q + 1].sum() if family == "gpt2" else free[b].sum())
                expected = own.copy()
                for place, giver in zip(seen, sorted(seen, key=lambda k: turns[b, k]), strict=True):
                    expected[:, place] = own[:, giver]
                np.testing.assert_array_equal(found[b, :, q], expected)


def test_one_layer_is_all_layers(model: SingleLayer) -> None:
    for row in Used(permutations=5).measure(Study(model, DOCUMENTS[:2])):
        assert row["value"] == row["last_layer"] == row["all_layers"]


def test_shuffling_everywhere_can_be_left_out() -> None:
    model = stacked(layers=2, block="relu")
    for row in Used(permutations=5, everywhere=0).measure(Study(model, DOCUMENTS[:2])):
        assert "all_layers" not in row


@pytest.mark.parametrize(
    ("method", "layers"),
    [
        (AttentionMean(), "last"),
        (AttentionMean(layers="all"), "all"),
        (ValueNorm(layers="0,-1"), "0,-1"),
        (EfficientAttention(), "last"),
        (EfficientAttention(layer=2), "2"),
        (Rollout(), "all"),
        (Flow(), "all"),
        (AttentionGradient(), "all"),
        (Lime(), "last"),
    ],
)
def test_methods_say_which_layers_they_read(method: Method, layers: str) -> None:
    from heed.settings import plain

    assert method.layers_read() == layers
    assert reads_below(method.name, plain(method)) == (layers != "last")


def test_layers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="layers"):
        Used(layers="top")
    assert CLAIMS["used"] is Used and replace(Used(), layers="0").layers == "0"
