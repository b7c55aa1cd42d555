"""A stack of attention layers against a literal pass, and behind the doors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import heed
from heed.errors import CheckpointError, InputError
from heed.methods import METHODS
from heed.models import checkpoint
from heed.models.shapes import StackShape
from heed.models.stacked import Stacked, StackNetwork
from heed.text import Tokenizer
from heed.training.own import fit
from heed.training.recipes import Recipe
from tests.conftest import TEXTS, WORDS

SHAPES = [
    {"layers": 1},
    {"layers": 1, "readout": "identity"},
    {"layers": 1, "readout": "identity", "values": "positive"},
    {"layers": 2, "block": "attention"},
    {"layers": 2, "block": "skip"},
    {"layers": 3, "block": "relu"},
    {"layers": 2, "block": "gelu", "values": "positive"},
]


def build(**options: object) -> Stacked:
    tokenizer = Tokenizer.words(WORDS, 41)
    shape = StackShape(len(tokenizer), 2, width=16, heads=4, max_words=40, **options)  # type: ignore[arg-type]
    network = StackNetwork(shape, torch.Generator().manual_seed(0)).double()
    for name, p in network.named_parameters():
        if name.startswith(("W_q", "W_k")):
            p.data.mul_(2)
        if name.startswith("norm"):
            p.data.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    return Stacked(network, tokenizer, ("negative", "positive"), "stack", pairs=True)


@pytest.fixture(params=SHAPES, ids=lambda o: "-".join(str(v) for v in o.values()))
def stack(request: pytest.FixtureRequest) -> Stacked:
    return build(**request.param)


def literal(model: Stacked, ids: np.ndarray) -> np.ndarray:
    """One document, token by token."""
    net, shape = model.network, model.shape
    p = {k: v.detach().numpy() for k, v in net.state_dict().items()}
    x = [p["W_e"][i] + net.W_p[t].numpy() for t, i in enumerate(ids)]

    def norm(v: np.ndarray, name: str) -> np.ndarray:
        return (v - v.mean()) / np.sqrt(v.var() + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]

    for layer in range(shape.layers):
        q, k, v = ([p[f"W_{name}{layer}"] @ row for row in x] for name in "qkv")
        if shape.values == "positive":
            v = [np.maximum(row, 0) for row in v]
        size, values = shape.width // shape.heads, len(v[0]) // shape.heads
        after = []
        for t in range(len(x)):
            heads = []
            for h in range(shape.heads):
                at = slice(h * size, (h + 1) * size)
                score = np.array([q[t][at] @ row[at] / math.sqrt(size) for row in k])
                a = np.exp(score - score.max())
                a /= a.sum()
                heads.append(
                    sum(w * row[h * values : (h + 1) * values] for w, row in zip(a, v, strict=True))
                )
            out = np.concatenate(heads)
            if f"W_o{layer}" in p:
                out = p[f"W_o{layer}"] @ out
            if shape.block != "attention":
                out = norm(x[t] + out, f"norm_a{layer}")
            if shape.block in ("relu", "gelu"):
                inner = p[f"W_1{layer}"] @ out
                if shape.block == "relu":
                    inner = np.maximum(inner, 0)
                else:
                    inner = np.array([z * 0.5 * (1 + math.erf(z / math.sqrt(2))) for z in inner])
                out = norm(out + p[f"W_2{layer}"] @ inner, f"norm_b{layer}")
            after.append(out)
        x = after
    if shape.readout == "identity":
        return x[0].reshape(shape.heads, shape.labels).mean(0)
    return p["W_l"] @ x[0]


def test_the_pass_is_the_formulas(stack: Stacked) -> None:
    tokens = stack.tokens(TEXTS)
    expected = np.array([literal(stack, t.ids) for t in tokens])
    np.testing.assert_allclose(stack.logits(tokens), expected, atol=1e-10)
    np.testing.assert_allclose(stack.trace(tokens).logits.detach().numpy(), expected, atol=1e-10)
    np.testing.assert_allclose(
        stack.trace(tokens, layers=()).logits.detach().numpy(), expected, atol=1e-10
    )


def test_attention_sums_to_one_and_leaves_padding_out(stack: Stacked) -> None:
    tokens = stack.tokens(TEXTS[:2])
    trace = stack.trace(tokens)
    assert len(trace.attention) == stack.shape.layers
    for weights in trace.attention:
        np.testing.assert_allclose(weights.detach().sum(-1).numpy(), 1, atol=1e-12)
    short = min(range(2), key=lambda i: len(tokens[i]))
    assert not trace.classifying()[short][:, len(tokens[short]) :].any()


def test_replaced_attention_and_embeddings_arrive(stack: Stacked) -> None:
    tokens = stack.tokens(TEXTS[:2])
    plain = stack.trace(tokens)
    for layer, own in enumerate(plain.attention):
        weights = own.detach()
        for same in (weights, torch.full_like(weights, math.nan), weights[:, :, :1]):
            found = stack.trace(tokens, attention={layer: same}).logits
            np.testing.assert_allclose(
                found.detach().numpy(), plain.logits.detach().numpy(), atol=1e-10
            )
        other = weights.flip(-1).requires_grad_()
        moved = stack.trace(tokens, attention={layer: other})
        assert (moved.logits - plain.logits).abs().max() > 1e-6
        (gradient,) = torch.autograd.grad(moved.logits.sum(), other)
        assert gradient.abs().max() > 0
        variants = torch.stack([weights, weights.flip(-1)])
        together = stack.trace(tokens, attention={layer: variants}).logits.detach()
        np.testing.assert_allclose(together[0].numpy(), plain.logits.detach().numpy(), atol=1e-10)
        np.testing.assert_allclose(together[1].numpy(), moved.logits.detach().numpy(), atol=1e-10)
    again = stack.trace(tokens, embeddings=plain.embeddings.detach())
    np.testing.assert_allclose(
        again.logits.detach().numpy(), plain.logits.detach().numpy(), atol=1e-12
    )


@pytest.mark.parametrize("removal", ["replace", "delete", "hide"])
def test_scores_are_the_outputs_of_other_documents(stack: Stacked, removal: str) -> None:
    (tokens,) = stack.tokens([TEXTS[0]])
    keep = np.random.default_rng(0).random((20, len(tokens.words))) < 0.5
    (found,) = stack.score([tokens], [keep], removal=removal)  # type: ignore[arg-type]
    for row, logits in zip(keep, found, strict=True):
        present = np.where(tokens.word >= 0, row[tokens.word], True)
        if removal == "replace":
            expected = literal(stack, np.where(present, tokens.ids, 0))
        elif removal == "delete":
            expected = literal(stack, tokens.ids[present])
        else:
            continue
        np.testing.assert_allclose(logits, expected, atol=1e-10)


def test_every_method_that_a_stack_offers_explains_it(stack: Stacked) -> None:
    for name, cls in METHODS.items():
        if cls.needs <= stack.offers:
            settings = {"samples": 200} if name in ("lime", "shapley", "anchors") else {}
            found = heed.explain(stack, TEXTS[0], name, **settings)
            assert np.isfinite(found.scores).all(), name


def test_exact_methods_say_that_they_are_for_another_model() -> None:
    for name, sampled in (
        ("lime-exact", "lime"),
        ("shapley-exact", "shapley"),
        ("lime-theorem", "lime"),
    ):
        with pytest.raises(
            heed.errors.NotApplicable, match=f"single-layer classifier only.*{sampled} samples"
        ):
            heed.explain(build(), TEXTS[0], name)


def test_a_stack_is_trained_written_and_read(tmp_path: Path) -> None:
    data = heed.data.tasks.generate("planted", 400)
    settings = {"word_dropout": 0.0, "min_count": 1, "average": 0.0, "embedding_scale": 1.0}
    recipe = Recipe(epochs=6, batch=16, learning_rate=3e-3, **settings)  # type: ignore[arg-type]
    done = fit(
        data.documents,
        data.labels,
        recipe,
        stack={"layers": 2, "block": "gelu", "width": 32, "max_words": 40},
    )
    assert isinstance(done.model, Stacked)
    assert (done.model(data.documents).argmax(1) == data.gold).mean() > 0.9
    checkpoint.save(done.model, tmp_path / "stack", {})
    again = heed.load(tmp_path / "stack")
    assert again.revision == done.model.revision
    np.testing.assert_allclose(again(data.texts[:5]), done.model(data.texts[:5]), atol=1e-6)


def test_shapes_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="heads"):
        StackShape(10, 2, width=10, heads=4)
    with pytest.raises(InputError, match="readout"):
        StackShape(10, 2, block="skip", readout="identity")
    checkpoint.save(build(), tmp_path / "stack", {})
    config = (tmp_path / "stack" / "model.json").read_text().replace('"layers": 1', '"layers": 2')
    (tmp_path / "stack" / "model.json").write_text(config)
    with pytest.raises(CheckpointError, match="stack of layers"):
        heed.load(tmp_path / "stack")
