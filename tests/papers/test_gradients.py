"""Gradients against the closed form of Lopardo, Precioso and Garreau (2024), integrated gradients
against a loop."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from conftest import log_odds

import heed
from heed.models.classifier import Classifier, output_of, softmax
from heed.models.single_layer import SingleLayer

VARIANTS = [
    {},
    {"padding": "attends"},
    {"biases": True},
    {"padding": "attends", "biases": True, "labels": 3},
]


def parts(model: SingleLayer, ids: list[int]) -> tuple[np.ndarray, list[tuple[np.ndarray, ...]]]:
    """Embeddings, and per head (a, q, k, v, W_q, W_k, W_v, W_l), all float64."""
    net = {key: value.double().numpy() for key, value in model.network.state_dict().items()}
    shape = model.shape
    if shape.padding == "attends":
        ids = ids + [0] * (shape.max_words + 1 - len(ids))
    e = net["W_e"][ids] + model.network.W_p.double().numpy()[: len(ids)]
    found = []
    for i in range(shape.heads):
        b_q, b_k, b_v = (net[b][i] if shape.biases else 0.0 for b in ("b_q", "b_k", "b_v"))
        q = net["W_q"][i] @ e[0] + b_q
        k = np.array([net["W_k"][i] @ row + b_k for row in e])
        v = np.array([net["W_v"][i] @ row + b_v for row in e])
        g = np.array([math.exp(q @ row / math.sqrt(shape.d_att)) for row in k])
        found.append(
            (g / g.sum(), q, k, v, net["W_q"][i], net["W_k"][i], net["W_v"][i], net["W_l"][:, i])
        )
    return e, found


def closed_form(model: SingleLayer, ids: list[int], label: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings and ∇_{e_t} f, t = 0 … T; row 0 (<cls>) also moves the query."""
    e, heads = parts(model, ids)
    K, root = model.shape.heads, math.sqrt(model.shape.d_att)
    gradient = np.zeros_like(e)
    for a, q, k, v, W_q, W_k, W_v, W_l in heads:
        w = W_l[label]
        mean = sum(a[s] * v[s] for s in range(len(e)))
        for t in range(len(e)):
            gradient[t] += (a[t] * W_v.T @ w + a[t] / root * (w @ (v[t] - mean)) * (W_k.T @ q)) / K
        for s in range(len(e)):
            gradient[0] += a[s] / root * (w @ (v[s] - mean)) * (W_q.T @ k[s]) / K
    return e, gradient


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_gradient_is_the_closed_form(
    make: Callable[..., SingleLayer], texts: list, options: dict
) -> None:
    model = make(**options)
    tokens = model.tokens(texts)
    for label in range(len(model.labels)):
        for t, found in zip(tokens, model.gradient(tokens, [label] * len(tokens)), strict=True):
            e, expected = closed_form(model, t.ids.tolist(), label)
            assert found.gradient.shape == expected.shape
            assert relative(found.embeddings, e) < 1e-14
            assert relative(found.gradient, expected) < 1e-12


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_gradient_of_each_head_is_the_closed_form_of_that_head(
    make: Callable[..., SingleLayer], texts: list, options: dict
) -> None:
    model = make(**options)
    (tokens,) = model.tokens(texts[1:2])
    total = 0.0
    for i in range(3):
        head = model.head(i)
        (found,) = head.gradient([tokens], [1])
        _, expected = closed_form(head, tokens.ids.tolist(), 1)
        assert relative(found.gradient, expected) < 1e-12
        total = total + found.gradient
    assert relative(total, closed_form(model, tokens.ids.tolist(), 1)[1]) < 1e-12


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_gradient_methods_reduce_the_closed_form(
    make: Callable[..., SingleLayer], texts: list, options: dict
) -> None:
    model = make(**options)
    reduced = {
        "gradient-mean": lambda e, g: g.mean(1),
        "gradient-l1": lambda e, g: np.abs(g).sum(1),
        "gradient-l2": lambda e, g: np.sqrt((g**2).sum(1)),
        "gradient-input": lambda e, g: (e * g).sum(1),
    }
    for text in texts:
        (tokens,) = model.tokens([text])
        n, word = len(tokens), ~tokens.special
        for name, reduce in reduced.items():
            for head in (None, 1):
                subject = model if head is None else model.head(head)
                rows = reduce(*closed_form(subject, tokens.ids.tolist(), 1))
                found = heed.explain(model, text, name, label=1, head=head, output="logit")
                apart = [*rows[:n][~word], *([rows[n:].sum()] if len(rows) > n else [])]
                assert relative(found.scores, rows[:n][word]) < 1e-11
                assert (
                    relative(np.array([s.score for s in found.specials]), np.array(apart)) < 1e-11
                )


def test_gradient_times_input_has_the_form_of_the_theorem(model: SingleLayer, texts: list) -> None:
    """G×I = (1/K) Σ_i a_t { W_l v_t + (q·k_t/√d_att) W_l (v_t - v̄) } for words."""
    (tokens,) = model.tokens(texts[:1])
    e, heads = parts(model, tokens.ids.tolist())
    expected = np.zeros(len(e))
    for a, q, k, v, *_, W_l in heads:
        mean = a @ v
        for t in range(len(e)):
            expected[t] += (
                a[t] * (W_l[1] @ v[t] + q @ k[t] / math.sqrt(8) * (W_l[1] @ (v[t] - mean))) / 3
            )
    found = heed.explain(model, texts[0], "gradient-input", label=1, output="logit")
    assert relative(found.scores, expected[1:]) < 1e-12


@pytest.mark.parametrize("output", ["probability", "log-odds"])
def test_gradient_of_other_outputs_follows_the_chain_rule(
    make: Callable[..., SingleLayer], texts: list, output: str
) -> None:
    model = make(labels=3)
    (tokens,) = model.tokens(texts[:1])
    by_logit = np.array([closed_form(model, tokens.ids.tolist(), c)[1] for c in range(3)])
    p = softmax(model.logits([tokens])[0])
    if output == "probability":
        chain = p[1] * (np.eye(3)[1] - p)
    else:  # log p/(1-p) = z_1 - log(e^z_0 + e^z_2)
        chain = np.array([-p[0] / (p[0] + p[2]), 1, -p[2] / (p[0] + p[2])])
    (found,) = model.gradient([tokens], [1], output)
    assert relative(found.gradient, np.einsum("c,ctd->td", chain, by_logit)) < 1e-12


@pytest.mark.parametrize("padding", ["masked", "attends"])
def test_one_backward_pass_serves_a_batch_and_equals_one_by_one(
    make: Callable[..., SingleLayer], texts: list, padding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(padding=padding)
    tokens = (model.tokens(texts) * 11)[:64]
    labels = [i % 2 for i in range(64)]
    alone = [
        Classifier.gradient(model, [t], [label])[0] for t, label in zip(tokens, labels, strict=True)
    ]
    closed = model.gradient(tokens, labels)
    calls = []
    backward = torch.autograd.grad
    monkeypatch.setattr(
        torch.autograd, "grad", lambda *args, **kw: calls.append(1) or backward(*args, **kw)
    )
    together = Classifier.gradient(model, tokens, labels)
    assert len(calls) == 1
    for one, other, third in zip(together, alone, closed, strict=True):
        assert relative(one.gradient, other.gradient) < 1e-12
        assert relative(third.gradient, other.gradient) < 1e-12


# Integrated gradients


def integrated(
    model: SingleLayer, text: str, label: int, steps: int, zero: bool, output: str
) -> np.ndarray:
    """Σ_n ω_n (e - e') · ∇f(e' + x_n (e - e')), one point and one backward pass at a time."""
    (tokens,) = model.tokens([text])
    end = model.trace([tokens]).embeddings.detach()
    start = end.clone()
    for t in range(len(tokens)):
        if tokens.word[t] >= 0:
            start[0, t] = 0 if zero else model.network.W_e[0] + model.network.W_p[t]
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    rows = np.zeros(end.shape[1])
    for x, omega in zip((nodes + 1) / 2, weights / 2, strict=True):
        at = (start + x * (end - start)).requires_grad_()
        z = model.trace([tokens], embeddings=at).logits[0]
        others = torch.cat([z[:label], z[label + 1 :]])
        y = {
            "logit": z[label],
            "probability": z.softmax(-1)[label],
            "log-odds": z[label] - others.logsumexp(0),
        }[output]
        (gradient,) = torch.autograd.grad(y, at)
        rows += omega * ((end - start) * gradient)[0].sum(-1).numpy()
    return rows[: len(tokens)][~tokens.special]


@pytest.mark.parametrize("baseline", ["replace", "zero"])
@pytest.mark.parametrize("padding", ["masked", "attends"])
def test_integrated_gradients_are_the_loop(
    make: Callable[..., SingleLayer], texts: list, padding: str, baseline: str
) -> None:
    model = make(padding=padding, labels=3)
    for output in ("logit", "probability", "log-odds"):
        found = heed.explain(
            model,
            texts[1],
            "integrated-gradients",
            label=1,
            steps=7,
            baseline=baseline,
            output=output,
        )
        expected = integrated(model, texts[1], 1, 7, baseline == "zero", output)
        assert relative(found.scores, expected) < 1e-11


@pytest.mark.parametrize("padding", ["masked", "attends"])
@pytest.mark.parametrize("output", ["logit", "probability", "log-odds"])
def test_integrated_gradients_add_up_to_the_change(
    make: Callable[..., SingleLayer], texts: list, padding: str, output: str
) -> None:
    """The integrand is smooth: 50 Gauss–Legendre nodes leave only rounding."""
    model = make(padding=padding, labels=3)
    tokens = model.tokens(texts)
    full, empty = model.logits(tokens), model.logits([model.blank(t) for t in tokens])
    change = output_of(full, 1, output) - output_of(empty, 1, output)
    found = heed.explain(model, texts, "integrated-gradients", label=1, output=output)
    for e, expected in zip(found, change, strict=True):
        assert abs(e.scores.sum() + sum(s.score for s in e.specials) - expected) < 1e-9
        assert abs(e.facts["completeness_gap"]) < 1e-9
        assert all(s.score == 0 for s in e.specials)  # special tokens stay as they are


def test_few_steps_leave_a_gap_that_is_reported(model: SingleLayer, texts: list) -> None:
    e = heed.explain(model, texts[0], "integrated-gradients", label=1, steps=1)
    full, empty = model([texts[0]]), model.logits([model.blank(model.tokens([texts[0]])[0])])
    change = float(log_odds(full, 1)[0] - log_odds(empty, 1)[0])
    assert e.facts["completeness_gap"] == pytest.approx(e.scores.sum() - change, abs=1e-12)
    assert abs(e.facts["completeness_gap"]) > 1e-6


def test_steps_in_several_batches_are_the_same(
    make: Callable[..., SingleLayer], texts: list
) -> None:
    model = make(padding="attends")  # 41 rows a step: 600 steps need more than one batch
    many = heed.explain(model, texts[0], "integrated-gradients", label=1, steps=600)
    few = heed.explain(model, texts[0], "integrated-gradients", label=1, steps=50)
    assert relative(many.scores, few.scores) < 1e-9


def test_a_word_that_the_model_does_not_know_gets_nothing_from_the_replace_baseline(
    model: SingleLayer,
) -> None:
    e = heed.explain(model, "the zyzzyva film", "integrated-gradients", label=1)
    assert e.scores[1] == 0 and e.scores[0] != 0
