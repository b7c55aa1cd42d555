"""Layers, rollout, flow, value norms and attention gradients, against slow literal versions on
tiny transformers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from test_transformer import FAMILIES, TEXTS, Transformer, network, tokenizer

import heed
from heed.errors import InputError, NotApplicable
from heed.methods import METHODS, Flow, Rollout
from heed.models.classifier import CLOSED
from heed.models.single_layer import SingleLayer
from heed.models.trace import Trace

# one row that classifies (the first or the last), all rows, and keys that several heads share
KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {},
    "gpt2": {},
    "llama": {},
    "modernbert": {"classifier_pooling": "mean"},
}
each_kind = pytest.mark.parametrize("family", KINDS)
TEXT = TEXTS[0]


@cache
def model(family: str, double: bool = True) -> Transformer:
    """In double precision, formulas agree to the last digits."""
    plain = network(family, **KINDS.get(family, {}))
    return Transformer(plain.double() if double else plain, tokenizer(), family)


def scores(m: Any, text: Any, name: str, **settings: Any) -> np.ndarray:
    """One score for each token, special ones included, in the order of the tokens."""
    if any(f.name == "sink" for f in fields(METHODS[name])):
        settings = {"sink": "kept"} | settings
    e = heed.explain(m, text, name, unit="token", **settings)
    (tokens,) = m.tokens([text])
    words, specials = iter(e.scores), iter(e.specials)
    return np.array(
        [next(specials).score if special else next(words) for special in tokens.special]
    )


def traced(m: Any, text: str = TEXT) -> tuple[Trace, list[int]]:
    """A trace of one document, and the query rows that classify it."""
    trace = m.trace(m.tokens([text]))
    row = int(trace.row[0])
    return trace, list(range(trace.tokens.shape[1])) if row < 0 else [row]


def attention(trace: Trace) -> np.ndarray:
    return np.stack([w[0].detach().numpy() for w in trace.attention])  # [layer, head, query, key]


def test_the_kinds_differ() -> None:
    assert [
        int(model(f).trace(model(f).tokens([TEXT])).row[0])
        for f in ("bert", "roberta", "modernbert")
    ] == [
        0,
        0,
        -1,
    ]
    for family in ("gpt2", "llama"):
        trace, rows = traced(model(family))
        assert rows == [trace.tokens.shape[1] - 1]


# Layers


@each_kind
@pytest.mark.parametrize(
    ("layers", "chosen"),
    [("last", [-1]), ("all", [0, 1]), ("0", [0]), ("0,-1", [0, -1]), ("0, 0, -1", [0, -1])],
)
def test_attention_of_chosen_layers(family: str, layers: str, chosen: list[int]) -> None:
    m = model(family)
    trace, rows = traced(m)
    weights = attention(trace)
    if layers == "all":
        chosen = list(range(len(weights)))
    n, heads = weights.shape[3], weights.shape[1]
    mean, largest, second = np.zeros(n), np.zeros(n), np.zeros(n)
    for j in range(n):
        seen = {
            (a, h): np.mean([weights[a, h, i, j] for i in rows])
            for a in chosen
            for h in range(heads)
        }
        mean[j] = sum(seen.values()) / len(seen)
        largest[j] = max(seen.values())
        second[j] = sum(seen[a, 1] for a in chosen) / len(chosen)
    np.testing.assert_allclose(scores(m, TEXT, "attention-mean", layers=layers), mean, atol=1e-6)
    np.testing.assert_allclose(scores(m, TEXT, "attention-max", layers=layers), largest, atol=1e-6)
    np.testing.assert_allclose(
        scores(m, TEXT, "attention-head", layers=layers, head=1), second, atol=1e-6
    )


@pytest.mark.parametrize("name", ["attention-mean", "value-norm"])
@pytest.mark.parametrize("layers", ["2", "-3", "0,5"])
def test_layers_that_do_not_exist_are_refused(name: str, layers: str) -> None:
    with pytest.raises(InputError, match=r"There is no layer .*: the model has layers 0 to 1"):
        heed.explain(model("bert"), TEXT, name, layers=layers)


# Rollout and flow


def edges(weights: np.ndarray, residual: float, heads: str) -> list[np.ndarray]:
    """The layers as graphs, entry by entry."""
    n, found = weights.shape[3], []
    for layer in weights:
        mixed = np.zeros((n, n))
        for i, j in product(range(n), range(n)):
            over = [layer[h, i, j] for h in range(len(layer))]
            own = sum(over) / len(over) if heads == "mean" else max(over)
            mixed[i, j] = (1 - residual) * own + residual * (i == j)
        found.append(mixed / mixed.sum(1, keepdims=True))
    return found


@each_kind
@pytest.mark.parametrize(("residual", "heads"), [(0.5, "mean"), (0.2, "max"), (0.0, "mean")])
def test_rollout_is_the_product_of_all_layers(family: str, residual: float, heads: str) -> None:
    m = model(family)
    trace, rows = traced(m)
    layers = edges(attention(trace), residual, heads)
    rolled = np.eye(len(layers[0]))
    for layer in layers:  # from the first to the last, as the paper has it
        rolled = layer @ rolled
    found = scores(m, TEXT, "rollout", residual=residual, heads=heads)
    np.testing.assert_allclose(found, rolled[rows].mean(0), atol=1e-12)
    assert found.sum() == pytest.approx(1, abs=1e-9)


def by_linear_program(start: np.ndarray, layers: list[np.ndarray], token: int) -> float:
    """The maximum flow to a token: as much as can leave, with pipes that hold and nothing lost on
    the way."""
    n, depth = len(start), len(layers)
    widths = {("from", (0, k)): start[k] for k in range(n)}
    for level, layer in enumerate(layers[::-1]):
        widths |= {
            ((level, q), (level + 1, k)): layer[q, k] for q, k in product(range(n), range(n))
        }
    pipes = list(widths)
    kept = [
        (level, k) for level in range(depth + 1) for k in range(n) if (level, k) != (depth, token)
    ]
    balance = np.zeros((len(kept), len(pipes)))
    place = {node: i for i, node in enumerate(kept)}
    for column, (a, b) in enumerate(pipes):
        for node, sign in ((a, -1), (b, 1)):
            if node in place:
                balance[place[node], column] += sign
    leaving = [-float(a == "from") for a, _ in pipes]
    solved = linprog(
        leaving, A_eq=balance, b_eq=np.zeros(len(kept)), bounds=[(0, widths[p]) for p in pipes]
    )
    return -solved.fun


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_flow_is_the_maximum_of_the_linear_program(depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 5
    weights = rng.dirichlet(
        np.full(n, 0.15 if seed % 2 else 0.6), (depth, n)
    )  # peaked, so that it gets narrow
    weights = np.where(rng.random(weights.shape) < 0.3, 0, weights)
    start = np.eye(n)[seed % n] if seed < 4 else np.full(n, 1 / n)
    found = Flow().follow(start, list(weights))
    np.testing.assert_allclose(
        found, [by_linear_program(start, list(weights), j) for j in range(n)], atol=1e-7
    )
    assert (found <= 1).all() and (found > 0).any()
    if depth == 1:  # each row passes what both of its pipes hold
        np.testing.assert_allclose(found, np.minimum(start[:, None], weights[0]).sum(0), atol=1e-7)


@each_kind
def test_flow_of_a_transformer(family: str) -> None:
    m = model(family)
    trace, rows = traced(m, "the film was unbelievable")
    layers = edges(attention(trace), 0.5, "mean")
    start = np.isin(np.arange(len(layers[0])), rows) / len(rows)
    expected = [by_linear_program(start, layers, j) for j in range(len(start))]
    found = scores(m, "the film was unbelievable", "flow")
    np.testing.assert_allclose(found, expected, atol=1e-7)
    rolled = scores(m, "the film was unbelievable", "rollout")
    assert (found <= 1).all() and (
        found >= rolled - 1e-7
    ).all()  # what rollout sends is one of the flows


def test_a_layer_that_hides_everything_but_itself_is_the_identity() -> None:
    one = np.eye(4)
    for method in (Flow(), Rollout()):
        np.testing.assert_allclose(method.follow(one[2], [one] * 3), one[2])


# Value norms


@pytest.mark.parametrize("family", FAMILIES)
def test_projected_values_add_up_to_the_output_of_attention(family: str) -> None:
    m = model(family)
    put_out: list[tuple[torch.nn.Module, torch.Tensor]] = []
    handles = [
        p.register_forward_hook(lambda p, _, out: put_out.append((p, out)))
        for p in set(m._projections)
    ]
    trace = m.trace(m.tokens(TEXTS[:1] if m.even else TEXTS))
    for handle in handles:
        handle.remove()
    assert len(put_out) == len(trace.projections) == len(trace.attention)
    for (module, out), a, v, w in zip(
        put_out, trace.attention, trace.values, trace.projections, strict=True
    ):
        bias = 0 if module.bias is None else module.bias
        summed = torch.einsum("bhqk,bhkd,hdo->bqo", a, v, w) + bias
        real = trace.tokens
        np.testing.assert_allclose(
            summed[real].detach().numpy(), out[real].detach().numpy(), rtol=1e-8, atol=1e-8
        )


@each_kind
@pytest.mark.parametrize("layers", ["last", "all", "0"])
def test_value_norm_is_the_length_of_what_a_token_adds(family: str, layers: str) -> None:
    m = model(family)
    trace, rows = traced(m)
    n, count = trace.tokens.shape[1], len(trace.attention)
    chosen = {"last": [count - 1], "all": list(range(count)), "0": [0]}[layers]
    expected = np.zeros(n)
    for layer, i, j in product(chosen, rows, range(n)):
        a, v, w = trace.attention[layer][0], trace.values[layer][0], trace.projections[layer]
        added = sum(a[h, i, j] * (v[h, j] @ w[h]) for h in range(len(a)))
        expected[j] += float(added.detach().norm()) / len(rows) / len(chosen)
    np.testing.assert_allclose(scores(m, TEXT, "value-norm", layers=layers), expected, rtol=1e-5)


def test_value_norms_of_the_single_layer_classifier_are_parts_of_its_logits(
    any_model: SingleLayer,
) -> None:
    (tokens,) = any_model.tokens(["the film was good"])
    trace = any_model.trace([tokens])
    a, v, w = trace.attention[0][0, :, 0], trace.values[0][0], trace.projections[0]
    added = torch.einsum("ht,hto,hoc->tc", a, v, w).detach()
    bias = any_model.network.b_l if any_model.shape.biases else 0
    np.testing.assert_allclose(
        (added.sum(0) + bias).numpy(), trace.logits[0].detach().numpy(), atol=1e-5
    )
    found = scores(any_model, "the film was good", "value-norm")
    np.testing.assert_allclose(found, added.norm(dim=1)[: len(tokens)].numpy(), rtol=1e-5)


# Attention gradients


def collected(weights: np.ndarray, gradients: np.ndarray, rows: list[int]) -> np.ndarray:
    """The rule, matrix by matrix: R starts as the identity and gets Ā R in every layer."""
    relevance = np.eye(weights.shape[-1])
    for a, g in zip(weights, gradients, strict=True):
        relevance = relevance + np.maximum(a * g, 0).mean(0) @ relevance
    return (relevance - np.eye(len(relevance)))[rows].mean(0)


@each_kind
@pytest.mark.parametrize("output", ["logit", "log-odds", "probability"])
def test_attention_gradient_is_the_rule_with_gradients_of_replaced_attention(
    family: str, output: Any
) -> None:
    m = model(family)
    tokens = m.tokens([TEXT])
    trace, rows = traced(m)
    gradients = []
    for layer, own in enumerate(trace.attention):
        leaf = own.detach().requires_grad_()
        z = m.trace(tokens, attention={layer: leaf}).logits[0]
        p = z.softmax(0)[1]
        explained = {"logit": z[1], "probability": p, "log-odds": (p / (1 - p)).log()}[output]
        gradients.append(torch.autograd.grad(explained, leaf)[0][0].numpy())
    expected = collected(attention(trace), np.stack(gradients), rows)
    found = scores(m, TEXT, "attention-gradient", label=1, output=output)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
    assert (found >= 0).all() and found.max() > 0


def test_gradients_of_attention_are_differences() -> None:
    m = model("bert")
    tokens = m.tokens([TEXT])
    trace = m.trace(tokens)
    gradients = torch.autograd.grad(trace.logits[0, 1], trace.attention)
    for layer, h, i, j in [(0, 1, 3, 5), (1, 2, 0, 4), (0, 3, 0, 0)]:
        moved = [trace.attention[layer].detach().clone() for _ in range(2)]
        for weights, step in zip(moved, (1e-6, -1e-6), strict=True):
            weights[0, h, i, j] += step
        up, down = (
            float(m.trace(tokens, attention={layer: w}).logits[0, 1].detach()) for w in moved
        )
        assert float(gradients[layer][0, h, i, j]) == pytest.approx(
            (up - down) / 2e-6, rel=1e-4, abs=1e-6
        )


def test_attention_gradient_outside_the_interface() -> None:
    m = Transformer(network("deberta").double(), tokenizer(), "deberta")
    trace, rows = traced(m)
    gradients = torch.autograd.grad(trace.logits[0, 2], trace.attention)
    expected = collected(attention(trace), np.stack([g[0].numpy() for g in gradients]), rows)
    found = scores(m, TEXT, "attention-gradient", label=2, output="logit")
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert expected.max() > 0


def test_attention_gradient_of_one_layer_is_its_row(any_model: SingleLayer) -> None:
    (tokens,) = any_model.tokens(["the film was good"])
    trace = any_model.trace([tokens])
    a, v, w = (
        x[0].detach() for x in (trace.attention[0][:, :, 0], trace.values[0], trace.projections)
    )
    for label in (0, 1):
        expected = [
            np.mean([max(0, float(a[h, t] * (v[h, t] @ w[h, :, label]))) for h in range(len(a))])
            for t in range(len(tokens))
        ]
        asked = {"label": label, "output": "logit"}
        found = scores(any_model, "the film was good", "attention-gradient", **asked)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


@each_kind
def test_an_output_that_nothing_moves_has_no_attention_gradient(family: str) -> None:
    plain = network(family, **KINDS[family]).double()
    head = plain.classifier if hasattr(plain, "classifier") else plain.score
    for last in (head, getattr(head, "out_proj", head)):
        if hasattr(last, "weight"):
            last.weight.data.zero_()
    e = heed.explain(Transformer(plain, tokenizer(), "constant"), TEXT, "attention-gradient")
    assert not e.scores.any() and not any(s.score for s in e.specials)


# Laws


@each_kind
@pytest.mark.parametrize("name", [n for n, c in METHODS.items() if c.needs - {"gradients", CLOSED}])
def test_longer_neighbours_change_nothing(family: str, name: str) -> None:
    m = model(family, double=False)  # in double precision, windows without a token are not numbers
    settings = {"layers": "all"} if "layers" in METHODS[name].__dataclass_fields__ else {}
    for text, e in zip(TEXTS, heed.explain(m, TEXTS, name, **settings), strict=True):
        alone = heed.explain(m, text, name, **settings)
        # a part is known to the rounding of the whole
        whole = () if alone.raw is None else alone.raw
        scale = np.abs([*alone.scores, *(s.score for s in alone.specials), *whole]).max()
        np.testing.assert_allclose(e.scores, alone.scores, atol=1e-4 * scale)
        names, alone_names = ([s.text for s in x.specials] for x in (e, alone))
        assert names == alone_names
        assert [s.removesuffix(" (sink)") for s in names] == ["[CLS]", "[SEP]"]
        assert any("sink" in s for s in names) == ("sink_attention" in e.facts)
        np.testing.assert_allclose(
            [s.score for s in e.specials], [s.score for s in alone.specials], atol=1e-4 * scale
        )


@pytest.mark.parametrize(
    "name", [n for n, c in METHODS.items() if "merge" in c.__dataclass_fields__]
)
def test_tokens_are_merged_into_words(name: str) -> None:
    m = model("bert")
    text = "surprisingly slow , the unbelievable film"
    pieces = heed.explain(m, text, name, unit="token")
    (tokens,) = m.tokens([text])
    owner = tokens.word[~tokens.special]
    assert max(np.bincount(owner)) > 1
    summed, largest = (heed.explain(m, text, name, merge=merge) for merge in ("sum", "max"))
    for word in range(len(tokens.words)):
        own = pieces.scores[owner == word]
        assert summed.scores[word] == pytest.approx(sum(own), rel=1e-6, abs=1e-12)
        assert largest.scores[word] == pytest.approx(max(own, key=abs), rel=1e-6)
    assert summed.specials == largest.specials
    assert (largest.settings["merge"], summed.settings["merge"]) == ("max", "sum")
    np.testing.assert_array_equal(
        heed.explain(m, text, name, unit="token", merge="max").scores, pieces.scores
    )


def test_merging_by_the_largest_keeps_the_sign() -> None:
    m = model("bert")
    pieces, words = (
        heed.explain(m, TEXT, "gradient-input", unit=u, merge="max") for u in ("token", "word")
    )
    assert (words.scores < 0).any() and set(words.scores) <= set(pieces.scores)


def test_one_query_row_is_not_attention_between_tokens(make: Callable[..., SingleLayer]) -> None:
    for name in ("rollout", "flow"):
        with pytest.raises(
            NotApplicable,
            match=f"{name} needs attention between all tokens, which tiny-masked does",
        ):
            heed.explain(make(), "good film", name)


# Long texts


@pytest.fixture(scope="module")
def reader() -> Transformer:
    """A model that reads more than flow takes."""
    words = copy.deepcopy(tokenizer())
    words.model_max_length = 200
    return Transformer(network("bert", max_position_embeddings=256), words, "reader")


def test_flow_refuses_long_texts_in_one_sentence(reader: Transformer) -> None:
    assert np.isfinite(heed.explain(reader, "good film " * 63, "flow").scores).all()
    refusal = "flow takes texts of at most 128 tokens, got 130: give it a shorter one."
    with pytest.raises(NotApplicable) as caught:
        heed.explain(reader, ["good film", "good film " * 64], "flow")
    assert str(caught.value) == refusal == Flow().refusal(reader, ["good film " * 64])
    assert not Flow().refusal(reader, ["good film"])


def test_a_comparison_leaves_out_what_refuses_the_text(reader: Transformer) -> None:
    short, long = (
        set(
            heed.compare(
                reader,
                "good film " * n,
                "all",
            ).methods
        )
        for n in (2, 64)
    )
    assert short == {
        n for n, c in METHODS.items() if CLOSED not in c.needs and not c.only_by_name
    } and short - long == {"flow"}
    with pytest.raises(NotApplicable, match="at most 128 tokens"):
        heed.compare(reader, "good film " * 64, ["flow", "rollout"])


def test_an_audit_of_flow_says_that_texts_are_too_long(reader: Transformer) -> None:
    found = heed.audit(reader, ["good film " * 64] * 2, ["agrees-gradient"], "flow")
    (verdict,) = [v for v in found.verdicts if v.claim.id == "agrees-gradient"]
    assert verdict.outcome == "not applicable" and "at most 128 tokens" in verdict.reason


def test_the_command_line_says_what_it_leaves_out(
    reader: Transformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from heed.cli import app
    from heed.progress import for_stderr, listening

    folder = tmp_path / "reader"
    reader.model.save_pretrained(folder)
    words = copy.deepcopy(tokenizer())
    words.model_max_length = 200
    words.save_pretrained(folder)
    settings = ["samples=20", "steps=2", "layers=all", "merge=max"]
    options = [x for s in settings for x in ("--set", s)]
    with listening(for_stderr()):
        asked = ["explain", "good film " * 64, "--all", "--model", str(folder), *options]
        app(asked, standalone_mode=False)
    done = capsys.readouterr()
    assert "Left out" in done.err and "takes texts of at most 128 tokens" in done.err
    assert "rollout" in done.out and "flow " not in done.out
