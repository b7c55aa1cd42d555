"""Ways through a network, against slow literal versions: paths of gradients, zeroed values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import heed
from heed.errors import InputError, NotApplicable
from heed.models.classifier import BETWEEN, output_slope
from heed.models.constant import Constants
from heed.models.recurrent import Recurrent, RecurrentNetwork
from heed.models.shapes import RecurrentShape
from heed.models.single_layer import SingleLayer
from heed.models.transformer import Transformer
from heed.text import Tokenizer
from tests.papers.test_gradients import VARIANTS, parts, relative
from tests.test_transformer import FAMILIES as ALL_FAMILIES
from tests.test_transformer import OUTSIDE, TEXTS, WORDS, network, tokenizer

FAMILIES = ["bert", "llama", "deberta"]  # first row, last row with shared keys, its own attention
TEXT = TEXTS[0]
each_family = pytest.mark.parametrize("family", FAMILIES)


@cache
def model(family: str, depth: int = 2) -> Transformer:
    """In double precision, formulas agree to the last digits."""
    built = network(family, initializer_range=0.3, num_hidden_layers=depth)
    return Transformer(built.double(), tokenizer(), family)


def by_token(m: Any, method: str, text: Any = TEXT, **settings: Any) -> np.ndarray:
    """One score for each token, special ones included, in the order of the tokens."""
    asked = {"label": 1, "output": "logit"} | settings
    e = heed.explain(m, text, method, unit="token", **asked)
    (tokens,) = m.tokens([text])
    words, specials = iter(e.scores), iter(e.specials)
    return np.array([next(specials).score if s else next(words) for s in tokens.special])


# Gradients through attention and values


def terms(model: SingleLayer, ids: list[int], label: int) -> tuple[np.ndarray, np.ndarray]:
    """e_t times the two terms of Theorem 4.1, with what the query of <cls> adds to the second."""
    e, heads = parts(model, ids)
    values, attention = np.zeros(len(e)), np.zeros(len(e))
    K, root = model.shape.heads, math.sqrt(model.shape.d_att)
    for a, q, k, v, W_q, W_k, W_v, W_l in heads:
        w = W_l[label]
        mean = sum(a[s] * v[s] for s in range(len(e)))
        for t in range(len(e)):
            values[t] += e[t] @ (a[t] * W_v.T @ w) / K
            attention[t] += e[t] @ (a[t] / root * (w @ (v[t] - mean)) * (W_k.T @ q)) / K
            attention[0] += e[0] @ (a[t] / root * (w @ (v[t] - mean)) * (W_q.T @ k[t])) / K
    return values, attention


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_the_two_paths_of_one_layer_are_the_two_terms_of_the_theorem(
    make: Callable[..., SingleLayer], texts: list, options: dict
) -> None:
    m = make(**options)
    for text in texts[:2]:
        (tokens,) = m.tokens([text])
        word = ~tokens.special
        asked = {"label": 1, "output": "logit"}
        for path, rows in zip(
            ("values", "attention"), terms(m, tokens.ids.tolist(), 1), strict=True
        ):
            found = heed.explain(m, text, "gradient-paths", path=path, **asked)
            assert relative(found.scores, rows[: len(tokens)][word]) < 1e-11
            assert found.facts[f"sum_{path}"] == pytest.approx(rows.sum(), rel=1e-9)


@pytest.mark.parametrize(
    ("family", "at"),
    [("bert", "block"), ("bert", "lookup"), ("llama", "lookup"), ("deberta", "block")],
)
def test_the_paths_add_up_to_the_gradient_times_the_input(family: str, at: str) -> None:
    m = model(family)
    whole = by_token(m, "gradient-input", at=at)
    through, held = (by_token(m, "gradient-paths", path=p, at=at) for p in ("attention", "values"))
    assert relative(through + held, whole) < 1e-12
    fixed = by_token(m, "gradient-input", attention="fixed", at=at)
    np.testing.assert_allclose(held, fixed, rtol=1e-12)
    assert np.abs(through).max() > 1e-3 * np.abs(whole).max()
    e = heed.explain(m, TEXT, "gradient-paths", at=at, merge="sum")
    whole_words = heed.explain(m, TEXT, "gradient-input", at=at)
    assert relative(e.raw, whole_words.scores) < 1e-12
    assert 0 < e.facts["through_attention"] < 1
    total = whole_words.scores.sum() + sum(s.score for s in whole_words.specials)
    assert e.facts["sum_attention"] + e.facts["sum_values"] == pytest.approx(total)


def literal_gradient(m: Transformer, held: list[int]) -> np.ndarray:
    """The gradient of a logit with recorded weights put back as constants in some layers."""
    tokens = m.tokens([TEXT])
    own = m.trace(tokens).attention
    trace = m.trace(tokens, attention={i: own[i].detach() for i in held})
    (gradient,) = torch.autograd.grad(trace.logits[0, 1], trace.embeddings)
    return gradient[0].numpy()


@each_family
def test_a_single_layer_is_what_flows_with_attention_held_in_all_others(family: str) -> None:
    m = model(family, 3)
    (e,) = m.embeddings(m.tokens([TEXT])).numpy()
    none = literal_gradient(m, [0, 1, 2])
    for layer in (0, 1, -1):
        others = [i for i in range(3) if i != layer % 3]
        expected = ((literal_gradient(m, others) - none) * e).sum(1)
        found = by_token(m, "gradient-paths", layer=layer)
        # some families take the softmax in single precision
        largest = np.abs(by_token(m, "gradient-input")).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * largest)


def test_single_layers_leave_out_ways_through_the_attention_of_several() -> None:
    """By inclusion and exclusion, such ways are what the layers lack."""
    m = model("bert", 2)
    (e,) = m.embeddings(m.tokens([TEXT])).numpy()
    through, first, last = (by_token(m, "gradient-paths", layer=n) for n in (None, 0, 1))
    gradients = {held: literal_gradient(m, list(held)) for held in [(), (0,), (1,), (0, 1)]}
    both = gradients[()] - gradients[0,] - gradients[1,] + gradients[0, 1]
    assert relative(through - first - last, (both * e).sum(1)) < 1e-9
    assert np.abs(both).max() > 1e-3 * np.abs(gradients[()]).max()


def test_the_only_layer_is_all_attention(any_model: SingleLayer) -> None:
    for layer in (0, -1):
        whole, one = (
            by_token(any_model, "gradient-paths", "good film", layer=n) for n in (None, layer)
        )
        np.testing.assert_allclose(one, whole, rtol=1e-5)


def test_heads_have_paths_of_their_own(any_model: SingleLayer) -> None:
    heads = [by_token(any_model, "gradient-paths", "good film", head=i) for i in range(3)]
    whole = by_token(any_model, "gradient-paths", "good film")
    np.testing.assert_allclose(sum(heads), whole, rtol=1e-4, atol=1e-6)


def test_paths_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="There is no layer 2: the model has layers 0 to 1"):
        heed.explain(model("bert"), TEXT, "gradient-paths", layer=2)
    with pytest.raises(InputError, match="leave out the layer"):
        heed.explain(model("bert"), TEXT, "gradient-paths", layer=1, path="values")
    withheld = Transformer(network("bert"), tokenizer(), "withheld")
    withheld.withheld = {BETWEEN: "its tokens also meet elsewhere"}
    withheld.offers -= {BETWEEN}
    with pytest.raises(NotApplicable, match="which withheld does not offer: its tokens also"):
        heed.explain(withheld, TEXT, "gradient-paths")


# Zeroed values

# the linear maps that make values, by family, and where their output has tokens
MAPS = {"bert": "attention.self.value", "llama": "self_attn.v_proj", "deberta": "value_proj"}


def with_zeroed_values(m: Transformer, token: int, layers: list[int]) -> float:
    """A logit when what the maps of values make of one token is zero, bias included."""
    maps = [v for name, v in m.model.named_modules() if name.endswith(MAPS[m.name])]
    assert len(maps) == 2

    def zero(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        output[:, token] = 0
        return output

    handles = [maps[layer].register_forward_hook(zero) for layer in layers]
    try:
        with torch.no_grad():
            return float(m.trace(m.tokens([TEXT])).logits[0, 1])
    finally:
        for handle in handles:
            handle.remove()


@each_family
@pytest.mark.parametrize(("layers", "chosen"), [("last", [1]), ("all", [0, 1]), ("0", [0])])
def test_value_zeroing_is_a_pass_for_each_token_with_its_values_at_zero(
    family: str, layers: str, chosen: list[int]
) -> None:
    m = model(family)
    (tokens,) = m.tokens([TEXT])
    whole = float(m.trace([tokens]).logits[0, 1].detach())
    expected = [whole - with_zeroed_values(m, t, chosen) for t in range(len(tokens))]
    found = by_token(m, "value-zeroing", layers=layers)
    # some families take the softmax in single precision
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_value_zeroing_where_one_row_classifies_or_all(pooling: str) -> None:
    built = network("modernbert", classifier_pooling=pooling, initializer_range=0.2)
    m = Transformer(built, tokenizer(), pooling)
    tokens = m.tokens([TEXT])
    trace = m.trace(tokens)
    expected = []
    for token in range(len(tokens[0])):
        weights = trace.attention[-1].detach().clone()
        weights[..., token] = 0
        moved = m.trace(tokens, attention={len(trace.attention) - 1: weights}).logits
        expected.append(float(trace.logits[0, 1] - moved[0, 1]))
    np.testing.assert_allclose(by_token(m, "value-zeroing"), expected, atol=1e-5)


def test_value_zeroing_of_one_layer_takes_away_what_a_token_adds(any_model: SingleLayer) -> None:
    """The output is a sum over keys, so the scores are its terms: all but the last bias."""
    (tokens,) = any_model.tokens(["the film was good"])
    trace = any_model.trace([tokens])
    a, v, w = trace.attention[0][0, :, 0], trace.values[0][0], trace.projections[0]
    terms = torch.einsum("ht,hto,ho->t", a, v, w[:, :, 1]).detach().numpy()
    for layers in ("last", "all", "0"):
        found = by_token(any_model, "value-zeroing", "the film was good", layers=layers)
        np.testing.assert_allclose(found, terms[: len(tokens)], rtol=1e-4, atol=1e-6)
    e = heed.explain(any_model, "the film was good", "value-zeroing", label=1, output="logit")
    padding = sum(s.score for s in e.specials if s.text == "padding")
    assert padding == pytest.approx(terms[len(tokens) :].sum(), abs=1e-5)


def test_a_token_that_nobody_reads_scores_nothing_by_value_zeroing() -> None:
    """In a causal model only the last row classifies: a window hides the first tokens from it."""
    m = Transformer(network("mistral"), tokenizer(), "mistral")
    found = by_token(m, "value-zeroing")
    assert not found[:-4].any() and found[-4:].all()


# Relevance


def rms(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """x / √(mean x² + ε) with a constant denominator."""
    root = (x.detach() ** 2).mean(-1, keepdim=True).add(norm.variance_epsilon).sqrt()
    return x / root * norm.weight


def centred(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """The same, of what is left without the mean, and with a bias."""
    x = x - x.mean(-1, keepdim=True)
    root = (x.detach() ** 2).mean(-1, keepdim=True).add(norm.eps).sqrt()
    return x / root * norm.weight + norm.bias


def by_factor(x: torch.Tensor, function: Any) -> torch.Tensor:
    """x · (f(x) / x) with a constant factor."""
    return x * (function(x) / x).detach()


def attended(x: torch.Tensor, weights: torch.Tensor, value: Any, projection: Any) -> torch.Tensor:
    """What attention makes of the values, with constant weights; heads may share values."""
    heads = len(weights)
    v = value(x).unflatten(-1, (-1, projection.in_features // heads))
    v = v.repeat_interleave(heads // v.shape[1], 1)
    return projection(torch.einsum("hqk,khd->qhd", weights.detach(), v).flatten(1))


def llama(m: Transformer, rule: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings, and a logit that is computed from them layer by layer."""
    trace = m.trace(m.tokens([TEXT]))
    e = x = trace.embeddings[0].detach().requires_grad_()
    for layer, weights in zip(m.model.model.layers, trace.attention, strict=True):
        attention, mlp = layer.self_attn, layer.mlp
        given = rms(x, layer.input_layernorm)
        x = x + attended(given, weights[0], attention.v_proj, attention.o_proj)
        given = rms(x, layer.post_attention_layernorm)
        gate, up = mlp.gate_proj(given), mlp.up_proj(given)
        silu = torch.nn.functional.silu
        product = silu(gate).detach() * up
        if rule == "half":
            product = (product + by_factor(gate, silu) * up.detach()) / 2
        x = x + mlp.down_proj(product)
    return e, m.model.score(rms(x, m.model.model.norm))[-1, 1]


def bert(m: Transformer, rule: str) -> tuple[torch.Tensor, torch.Tensor]:
    trace = m.trace(m.tokens([TEXT]))
    e = x = trace.embeddings[0].detach().requires_grad_()
    for layer, weights in zip(m.model.bert.encoder.layer, trace.attention, strict=True):
        after = layer.attention.output
        added = attended(x, weights[0], layer.attention.self.value, after.dense)
        x = centred(x + added, after.LayerNorm)
        inner = by_factor(layer.intermediate.dense(x), torch.nn.functional.gelu)
        x = centred(x + layer.output.dense(inner), layer.output.LayerNorm)
    pooled = by_factor(m.model.bert.pooler.dense(x[0]), torch.tanh)
    return e, m.model.classifier(pooled)[1]


def with_biases(family: str, double: bool = True) -> Transformer:
    """Biases start at zero, where no test would see them."""
    built = network(family, initializer_range=0.3)
    generator = torch.Generator().manual_seed(1)
    for name, value in built.named_parameters():
        if name.endswith("bias"):
            value.data.copy_(torch.randn(value.shape, generator=generator) / 4)
    return Transformer(built.double() if double else built, tokenizer(), family)


@pytest.mark.parametrize("rule", ["held", "half"])
@pytest.mark.parametrize("literal", [llama, bert])
def test_relevance_is_the_gradient_of_a_network_with_constant_factors(
    literal: Callable[..., tuple[torch.Tensor, torch.Tensor]], rule: str
) -> None:
    m = with_biases(literal.__name__)
    e, logit = literal(m, rule)
    (gradient,) = torch.autograd.grad(logit, e)
    expected = (gradient * e).sum(1).detach().numpy()
    found = by_token(m, "relevance", rule=rule)
    # some families take the softmax in single precision
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def everything(e: Any) -> float:
    return float(e.scores.sum() + sum(s.score for s in e.specials) + e.facts["biases"])


@pytest.mark.parametrize("family", [*ALL_FAMILIES, *OUTSIDE])
def test_relevance_and_biases_add_up_to_the_output_of_any_family(family: str) -> None:
    m = with_biases(family, double=False)
    logit = float(m([TEXT])[0, 2])
    for rule in ("held", "half"):
        e = heed.explain(m, TEXT, "relevance", label=2, output="logit", rule=rule)
        assert everything(e) == pytest.approx(logit, rel=1e-4, abs=1e-4)
        assert e.facts["conservation_error"] * abs(logit) < 1e-4


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3", "gemma2"])
def test_without_biases_relevance_alone_adds_up(family: str) -> None:
    m = Transformer(network(family), tokenizer(), family)
    logit = float(m([TEXT])[0, 1])
    for at in ("block", "lookup"):
        e = heed.explain(m, TEXT, "relevance", label=1, output="logit", at=at)
        assert e.facts["biases"] == 0
        assert everything(e) == pytest.approx(logit, rel=1e-4)


def test_positions_are_a_bias_of_the_words_that_are_looked_up() -> None:
    m = with_biases("bert")
    asked = {"label": 1, "output": "logit"}
    block, lookup = (
        heed.explain(m, TEXT, "relevance", at=at, **asked) for at in ("block", "lookup")
    )
    assert everything(block) == pytest.approx(everything(lookup), rel=1e-9)
    assert block.facts["biases"] != pytest.approx(lookup.facts["biases"], rel=1e-3)


def activated(name: str) -> Transformer:
    return Transformer(network("llama", hidden_act=name), tokenizer(), name)


@pytest.mark.parametrize("rule", ["held", "half"])
@pytest.mark.parametrize("written_out", ["gelu_new", "gelu_fast", "gelu_accurate"])
def test_an_activation_that_is_written_out_is_one_activation(written_out: str, rule: str) -> None:
    fused = by_token(activated("gelu_pytorch_tanh"), "relevance", rule=rule)
    found = by_token(activated(written_out), "relevance", rule=rule)
    np.testing.assert_allclose(found, fused, rtol=0, atol=1e-4 * np.abs(fused).max())
    gates = [by_token(activated("gelu_new"), "relevance", rule=r) for r in ("held", "half")]
    assert np.abs(gates[0] - gates[1]).max() > 1e-2 * np.abs(fused).max()


@pytest.mark.parametrize("name", ["quick_gelu", "relu2", "mish", "tanh", "laplace"])
def test_relevance_with_other_activations(name: str) -> None:
    m = activated(name)
    asked = {"label": 1, "output": "logit"}
    e = heed.explain(m, TEXT, "relevance", **asked)
    assert everything(e) == pytest.approx(float(m([TEXT])[0, 1]), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("output", ["log-odds", "probability"])
def test_relevance_of_other_outputs_follows_their_slopes(output: str) -> None:
    m = with_biases("bert")
    by_logit = [by_token(m, "relevance", label=c) for c in range(3)]
    slope = output_slope(m([TEXT])[0].astype(float), 1, output)
    expected = sum(s * rows for s, rows in zip(slope, by_logit, strict=True))
    np.testing.assert_allclose(by_token(m, "relevance", output=output), expected, rtol=1e-6)


def test_relevance_of_one_layer_is_what_flows_with_attention_held(any_model: SingleLayer) -> None:
    text = "the film was good"
    found, held = (
        by_token(any_model, name, text, **more)
        for name, more in (("relevance", {}), ("gradient-input", {"attention": "fixed"}))
    )
    np.testing.assert_allclose(found, held, rtol=1e-4, atol=1e-6)


def test_a_pass_with_constants_changes_no_value_and_no_later_pass() -> None:
    m = with_biases("bert", double=False)
    tokens = m.tokens([TEXT])
    plain = m.trace(tokens, layers=())
    with Constants("half"):
        constant = m.trace(tokens, layers=())
    assert torch.equal(plain.logits, constant.logits)
    (before,) = m.gradient(tokens, [1])
    heed.explain(m, TEXT, "relevance")
    (later,) = m.gradient(tokens, [1])
    np.testing.assert_array_equal(before.gradient, later.gradient)


def test_relevance_refuses_what_it_cannot_hold_constant() -> None:
    words = Tokenizer.words(WORDS, 41)
    shape = RecurrentShape(len(words), labels=2, width=12, hidden=16, max_words=40)
    m = Recurrent(RecurrentNetwork(shape), words, ("negative", "positive"))
    with pytest.raises(NotApplicable, match="relevance does not add up to the output of recurrent"):
        heed.explain(m, "the film was good", "relevance")
