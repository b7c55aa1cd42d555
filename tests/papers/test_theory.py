"""Closed forms against brute force over all subsets, and against the model's own passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import torch
from conftest import build

import heed
from heed.algebra.limits import (
    exact,
    kernel,
    lime_limit,
    lime_theorem,
    mixture_moments,
    ratio_bound,
    slope,
)
from heed.algebra.ratios import Ratios
from heed.algebra.subsets import reciprocal, size_moments, size_sums
from heed.errors import NotApplicable
from heed.methods.perturbation import controls
from heed.methods.units import units_of
from heed.models.classifier import OUTPUTS, Classifier, output_of, output_slope
from heed.models.single_layer import SingleLayer
from tests.slow_limits import alphas, by_size, lime_limit_wide, lime_moments, sigmas


def ratios(d: int, heads: int = 3, sigma: float = 1.0, seed: int = 0) -> Ratios:
    """Log-normal attention scores and normal values."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(sigma * rng.normal(size=(2, heads, d)))
    c = np.exp(sigma * rng.normal(size=heads))
    n, m = a * rng.normal(size=(heads, d)), b * rng.normal(size=(heads, d))
    return Ratios(a, n, b, m, c, c * rng.normal(size=heads), 0.7)


def subsets(f: Ratios) -> tuple[np.ndarray, np.ndarray]:
    keep = np.array(list(product([True, False], repeat=f.units)))
    return keep, f(keep)


def regression(
    keep: np.ndarray, y: np.ndarray, nu: float, ridge: float
) -> tuple[np.ndarray, float]:
    """LIME over all subsets with at least one word removed, s uniform."""
    d = keep.shape[1]
    s = d - keep.sum(1)
    w = np.array(
        [
            math.exp(-((1 - math.sqrt(1 - k / d)) ** 2) / (2 * nu**2)) / d / math.comb(d, k)
            for k in s
        ]
    )
    w[s == 0] = 0
    x = np.column_stack([np.ones(len(keep)), keep])
    penalty = np.diag([0.0] + [ridge] * d)
    solution = np.linalg.solve(x.T @ (w[:, None] * x) + penalty, x.T @ (w * y))
    return solution[1:], float(solution[0])


def shapley(f: Ratios) -> np.ndarray:
    d = f.units
    found = np.zeros(d)
    for j in range(d):
        others = [k for k in range(d) if k != j]
        for size in range(d):
            for kept in combinations(others, size):
                z = np.zeros(d, dtype=bool)
                z[list(kept)] = True
                without = float(f(z))
                z[j] = True
                found[j] += (float(f(z)) - without) / (d * math.comb(d - 1, size))
    return found


# Quadrature


@pytest.mark.parametrize("octaves", [1, 3, 6, 10, 20, 40])
def test_few_exponentials_make_one_over_d(octaves: int) -> None:
    u, weight = reciprocal(octaves)
    D = np.exp(np.random.default_rng(0).uniform(0, octaves * np.log(2), 5000))
    terms = weight * np.exp(-u * D[:, None]) * D[:, None]
    assert np.abs(terms.sum(1) - 1).max() < 3e-13
    assert np.abs(terms).sum(1).max() < 1e3  # little is cancelled
    assert len(u) < 12 * (octaves + 1)


@pytest.mark.parametrize("n", [1, 2, 5, 11])
def test_moments_of_sizes_are_those_of_legendre_polynomials(n: int) -> None:
    weights = np.random.default_rng(n).normal(size=(2, n + 1))
    found = size_moments(weights, n + 1)
    for order in range(n + 1):
        p = np.polynomial.legendre.Legendre.basis(order, domain=[0, 1])
        t = np.linspace(0.05, 0.95, n + 1)
        bernstein = np.array(
            [[math.comb(n, s) * x**s * (1 - x) ** (n - s) for s in range(n + 1)] for x in t]
        )
        b = np.linalg.solve(bernstein, p(t))
        np.testing.assert_allclose(found[:, order], weights @ b, atol=1e-6 * np.abs(b).max())


# Expectations by size


@pytest.mark.parametrize("sigma", [0.3, 2.0, 5.0])
@pytest.mark.parametrize("d", [2, 3, 8])
def test_expectations_by_size_are_means_over_subsets(d: int, sigma: float) -> None:
    f = ratios(d, sigma=sigma)
    keep, y = subsets(f)
    table = by_size(f)
    for j in range(d):
        for s in range(d):
            others = d - 1 - (keep.sum(1) - keep[:, j]) == s
            assert table.kept[s, j] == pytest.approx(y[others & keep[:, j]].mean(), abs=1e-11)
            assert table.removed[s, j] == pytest.approx(y[others & ~keep[:, j]].mean(), abs=1e-11)
    for s in range(d + 1):
        assert table.all()[s] == pytest.approx(y[d - keep.sum(1) == s].mean(), abs=1e-11)


@pytest.mark.parametrize(("d", "sigma"), [(30, 1.0), (60, 3.0), (100, 1.0), (250, 1.0), (250, 3.0)])
def test_sums_over_sizes_are_those_of_the_table(d: int, sigma: float) -> None:
    f = ratios(d, heads=1, sigma=sigma, seed=d)
    rng = np.random.default_rng(0)
    smooth = np.stack([kernel(d, nu)[:d] * (d - np.arange(d)) / d**2 for nu in (0.1, 0.25, np.inf)])
    weights = np.vstack(
        [
            smooth,
            kernel(d, 0.25)[:d] / d,
            np.full(d, 1 / d),
            np.cos(rng.normal() * np.arange(d) / d) / d,
        ]
    )
    found, table = size_sums(f, weights), by_size(f)
    np.testing.assert_allclose(found.kept, weights @ table.kept, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.removed, weights @ table.removed, rtol=0, atol=1e-10)


@pytest.mark.parametrize("nu", [0.25, math.inf])
@pytest.mark.parametrize("d", [150, 250])
def test_peaked_attention_and_values_that_cancel_are_still_exact(d: int, nu: float) -> None:
    """Cases in which few nodes are not enough, and in which the sum of all values does not tell."""
    rng = np.random.default_rng(0)
    a, b, w = np.full((1, d), 50.0), np.full((1, d), 1e-3), rng.normal(size=d)
    a[:, :2] = 1
    cancel = np.zeros(d)
    cancel[:2] = 1, -1
    for values in (w, cancel):
        f = Ratios(a, a * values, b, b * 0, np.array([0.01]), np.array([0.0]), 0.0)
        table, found = by_size(f), exact(f, nu)
        whole, kept = lime_moments(table, f.whole(), nu)
        expected = lime_limit(whole, kept, nu).coefficients
        np.testing.assert_allclose(found.lime.coefficients, expected, rtol=0, atol=1e-10)
        shapley_values = (table.kept - table.removed).mean(0)
        np.testing.assert_allclose(found.shapley, shapley_values, rtol=0, atol=1e-10)


@pytest.mark.parametrize("smallest", [1e-6, 1e-12, 1e-30])
def test_very_peaked_attention_is_exact(smallest: float) -> None:
    f = replace(ratios(6, sigma=2.0), c=np.full(3, smallest), n_c=np.full(3, smallest))
    f = replace(f, b=np.zeros_like(f.b), m=np.zeros_like(f.m))
    coefficients, _ = regression(*subsets(f), 0.25, 0.0)
    np.testing.assert_allclose(exact(f).lime.coefficients, coefficients, rtol=0, atol=1e-9)


def test_attention_of_nothing_is_refused() -> None:
    f = ratios(4)
    gone = replace(f, b=0 * f.b, m=0 * f.m, c=0 * f.c, n_c=0 * f.n_c)
    with pytest.raises(heed.errors.InputError, match="too peaked"):
        exact(gone)


def test_a_kernel_that_is_too_narrow_is_refused_and_others_are_exact() -> None:
    f = ratios(2)
    with pytest.raises(heed.errors.InputError, match="too narrow"):
        exact(f, 0.05)
    empty, one, other = (
        float(f(np.array(z))) for z in ([False, False], [True, False], [False, True])
    )
    for nu in (0.2, 1.0):  # three subsets, three unknowns: the fit goes through all of them
        np.testing.assert_allclose(
            exact(f, nu).lime.coefficients, [one - empty, other - empty], rtol=1e-6
        )


def test_the_table_of_250_words_is_right_at_both_ends() -> None:
    f = ratios(250, heads=1, sigma=2.0)
    table = by_size(f)
    assert np.isfinite(table.kept).all() and np.isfinite(table.removed).all()
    z = np.ones(250, dtype=bool)
    np.testing.assert_allclose(table.kept[0], f.whole(), atol=1e-11)
    np.testing.assert_allclose(table.removed[-1], f.empty(), atol=1e-11)
    for j in (0, 17, 249):
        z[j] = False
        assert table.removed[0, j] == pytest.approx(float(f(z)), abs=1e-11)
        assert table.kept[-1, j] == pytest.approx(float(f(~z)), abs=1e-11)
        z[j] = True
    without_two = np.array(
        [[k not in (3, other) for k in range(250)] for other in range(250) if other != 3]
    )
    assert table.removed[1, 3] == pytest.approx(f(without_two).mean(), abs=1e-11)


# LIME and Shapley values


@pytest.mark.parametrize("sigma", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("nu", [0.1, 0.25, math.inf])
@pytest.mark.parametrize(("d", "ridge"), [(2, 0.01), (5, 0.01), (11, 0.0), (11, 0.002)])
def test_exact_lime_is_the_regression_over_all_subsets(
    d: int, ridge: float, nu: float, sigma: float
) -> None:
    f = ratios(d, sigma=sigma, seed=d)
    coefficients, intercept = regression(*subsets(f), nu, ridge)
    found = exact(f, nu, ridge).lime
    tolerance = 1e-10 * max(1.0, np.abs(coefficients).max())
    np.testing.assert_allclose(found.coefficients, coefficients, rtol=0, atol=tolerance)
    assert found.intercept == pytest.approx(intercept, abs=tolerance)


@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_exact_lime_and_shapley_values_of_fourteen_words(sigma: float) -> None:
    f = ratios(14, heads=2, sigma=sigma)
    coefficients, _ = regression(*subsets(f), 0.25, 0.0)
    found = exact(f)
    np.testing.assert_allclose(found.lime.coefficients, coefficients, rtol=0, atol=1e-10)
    keep, y = subsets(f)
    size = keep.sum(1)
    for j in range(14):
        order = np.array([1 / (14 * math.comb(13, s)) if s < 14 else 0.0 for s in range(15)])
        with_j = order[size[keep[:, j]] - 1] @ y[keep[:, j]]
        without = order[size[~keep[:, j]]] @ y[~keep[:, j]]
        assert found.shapley[j] == pytest.approx(with_j - without, abs=1e-10)


@pytest.mark.parametrize("d", [2, 4, 7])
def test_exact_shapley_values_are_the_definition(d: int) -> None:
    f = ratios(d, sigma=2.0)
    np.testing.assert_allclose(exact(f).shapley, shapley(f), rtol=0, atol=1e-10)


@pytest.mark.parametrize("d", [3, 50, 250])
@pytest.mark.parametrize("sigma", [0.5, 4.0])
def test_exact_shapley_values_add_up(d: int, sigma: float) -> None:
    f = ratios(d, sigma=sigma)
    assert exact(f).shapley.sum() == pytest.approx(f.whole() - f.empty(), abs=1e-9)


@pytest.mark.parametrize("nu", [0.1, 0.25, 3.0, math.inf])
def test_the_two_forms_of_the_limit_are_one(nu: float) -> None:
    f = ratios(9, sigma=2.0)
    keep, y = subsets(f)
    d, s = 9, 9 - keep.sum(1)
    w = np.array([kernel(d, nu)[k] / d / math.comb(d, k) if k else 0.0 for k in s])
    whole, kept = float(w @ y), keep.T @ (w * y)
    np.testing.assert_allclose(
        alphas(d, nu), [w.sum(), w @ keep[:, 0], w @ (keep[:, 0] & keep[:, 1])], rtol=0, atol=1e-14
    )
    c, one, two, three = sigmas(d, nu)
    known = (one * whole + two * kept + three * (kept.sum() - kept)) / c
    np.testing.assert_allclose(lime_limit(whole, kept, nu).coefficients, known, rtol=0, atol=1e-10)
    np.testing.assert_allclose(known, regression(keep, y, nu, 0)[0], rtol=0, atol=1e-10)
    moments = lime_moments(by_size(f), f.whole(), nu)
    assert moments[0] == pytest.approx(whole, abs=1e-12)
    np.testing.assert_allclose(moments[1], kept, rtol=0, atol=1e-12)


def test_the_limit_of_a_fit_on_some_words() -> None:
    f = ratios(8, sigma=1.0)
    keep, y = subsets(f)
    d, s = 8, 8 - keep.sum(1)
    w = np.array([kernel(d, 0.25)[k] / d / math.comb(d, k) if k else 0.0 for k in s])
    chosen = [0, 3, 5]
    x = np.column_stack([np.ones(len(keep)), keep[:, chosen]])
    expected = np.linalg.solve(
        x.T @ (w[:, None] * x) + np.diag([0, 0.01, 0.01, 0.01]), x.T @ (w * y)
    )
    found = lime_limit(float(w @ y), keep[:, chosen].T @ (w * y), 0.25, 0.01, d=8)
    np.testing.assert_allclose([found.intercept, *found.coefficients], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("d", [2, 3, 10])
def test_the_limit_of_a_wide_kernel(d: int) -> None:
    f = ratios(d, sigma=1.5)
    np.testing.assert_allclose(
        lime_limit_wide(by_size(f)), regression(*subsets(f), math.inf, 0)[0], atol=1e-10
    )


@pytest.mark.parametrize("d", [3, 5, 40])
@pytest.mark.parametrize("nu", [0.01, 0.25, math.inf])
def test_controls_are_orthogonal_to_what_is_fitted(d: int, nu: float) -> None:
    phi, psi = controls(d, nu)
    s = np.arange(1, d + 1)
    W, share = kernel(d, nu)[1:] / d, s / d
    assert phi.shape[1] == min(4, d - 2) or nu == 0.01
    size = np.abs(phi[1:]).max(0, initial=1.0) * W.sum()
    assert np.all(np.abs(W @ phi[1:]) < 1e-9 * size) and np.all(
        np.abs((W * share) @ phi[1:]) < 1e-9 * size
    )
    assert abs(W @ (psi[1:] * share * (1 - share))) < 1e-12


# The single-layer classifier


def form(
    model: Classifier, text: str, label: int = 1, removal: str = "replace"
) -> tuple[Ratios, tuple[str, ...]]:
    (tokens,) = model.tokens([text])
    units, groups = units_of(tokens, "word", True)
    return model.ratios(tokens, groups, len(units), label, removal), tuple(u.text for u in units)  # type: ignore[arg-type]


TEXT = "the film is good and the plot is not very great but fine"


@pytest.mark.parametrize("removal", ["replace", "hide"])
def test_ratios_are_the_output_of_perturbed_documents(any_model: SingleLayer, removal: str) -> None:
    (tokens,) = any_model.tokens([TEXT])
    units, groups = units_of(tokens, "word", True)
    keep = np.random.default_rng(0).random((50, len(units))) < 0.5
    (expected,) = any_model.score([tokens], [keep], [groups], removal)  # type: ignore[arg-type]
    for label in range(len(any_model.labels)):
        f = any_model.ratios(tokens, groups, len(units), label, removal)  # type: ignore[arg-type]
        np.testing.assert_allclose(f(keep), expected[:, label], rtol=0, atol=1e-9)


def test_the_theorem_is_what_the_paper_says(any_model: SingleLayer) -> None:
    """Literally, from the traces of the document and of its blank."""
    (tokens,) = any_model.tokens([TEXT])
    blank = any_model.blank(tokens)
    W_l = any_model.network.W_l[1].double().numpy()
    parts = []
    for t in (tokens, blank):
        trace = any_model.trace([t])
        a, v = (
            x[0].detach().double().numpy() for x in (trace.attention[0][..., 0, :], trace.values[0])
        )
        if any_model.shape.biases:
            v = (
                v - any_model.network.b_v[:, None].double().numpy()
            )  # the same for all words: it cancels
        parts.append(np.einsum("kt,kto,ko->t", a, v, W_l) / any_model.shape.heads)
    found, units = form(any_model, TEXT)[0], form(any_model, TEXT)[1]
    expected = [
        1.5
        * sum(
            (parts[0] - parts[1])[i] for i in range(len(tokens)) if tokens.text(i).lower() == unit
        )
        for unit in units
    ]
    np.testing.assert_allclose(lime_theorem(found), expected, atol=1e-6)


def test_the_slope_of_the_theorem_tends_to_one_under_its_assumptions() -> None:
    """Not to 3/2: if removing words hardly moves the denominators, the output is linear in the
    words."""
    errors = []
    for positions, words in ((256, 16), (1024, 32), (4096, 64)):
        rng = np.random.default_rng(words)
        g, h, pad = (np.exp(rng.uniform(-1, 1, n)) for n in (words, words, positions - words))
        w, w_h, w_pad = rng.normal(size=words), np.full(words, 0.1), np.full(positions - words, 0.1)
        f = Ratios(
            g[None],
            (g * w)[None],
            h[None],
            (h * w_h)[None],
            np.array([pad.sum()]),
            np.array([pad @ w_pad]),
            0.0,
        )
        truth, plain = exact(f).lime.coefficients, lime_theorem(f, 1.0)
        errors.append(abs(slope(plain, truth) - 1))
    assert errors[0] < 0.06 and errors[2] < 0.02 and errors[2] < errors[0]


def test_exact_methods_are_what_sampled_ones_tend_to(model: SingleLayer) -> None:
    text = TEXT + " and the music was dull , the scene was cold and the actor slow"
    lime, sampled = (
        heed.explain(model, text, "lime-exact", ridge=1 / 200_000),
        heed.explain(model, text, "lime", samples=200_000, sampling="lime"),
    )
    assert sampled.standard_errors is not None
    assert np.all(np.abs(lime.scores - sampled.scores) < 5 * sampled.standard_errors + 1e-4)
    exactly, estimate = (
        heed.explain(model, text, "shapley-exact"),
        heed.explain(model, text, "shapley", samples=100_000),
    )
    assert estimate.standard_errors is not None
    assert np.all(np.abs(exactly.scores - estimate.scores) < 5 * estimate.standard_errors)


def test_log_odds_of_two_labels_have_a_closed_form_too(model: SingleLayer) -> None:
    for name in ("lime-exact", "shapley-exact", "lime-theorem"):
        own, other = (
            heed.explain(model, TEXT, name, label=label, output="logit").scores for label in (1, 0)
        )
        odds = heed.explain(model, TEXT, name, label=1)
        np.testing.assert_allclose(odds.scores, own - other, atol=1e-9)
        assert odds.settings["output"] == "log-odds"
    few = "the plot is good but slow"  # every subset of which is asked for once
    sampled = heed.explain(model, few, "lime", label=1, output="log-odds", samples=2000)
    exactly = heed.explain(model, few, "lime-exact", label=1, output="log-odds", ridge=1 / 2000)
    np.testing.assert_allclose(
        exactly.scores, sampled.scores, atol=0.02 * np.abs(sampled.scores).max()
    )
    with pytest.raises(NotApplicable, match="two labels"):
        heed.explain(build(labels=3), TEXT, "lime-exact", output="log-odds")
    several = heed.explain(build(labels=3), TEXT, "lime-exact")
    logits = heed.explain(build(labels=3), TEXT, "lime-exact", output="logit")
    assert several.settings["output"] == "logit"
    np.testing.assert_array_equal(several.scores, logits.scores)


@pytest.mark.parametrize("options", [{}, {"padding": "attends", "biases": True}], ids=str)
def test_exact_log_odds_are_those_of_every_subset(options: dict) -> None:
    """Of probabilities, for all 2^d texts that can be made of six words."""
    model, text = build(**options), "the plot is good but slow"
    words = text.split()
    keep = np.array(list(product([True, False], repeat=6)))
    texts = [" ".join(w if k else "zzqx" for w, k in zip(words, row, strict=True)) for row in keep]
    p = model.predict(texts)[:, 1]
    y = dict(zip(map(tuple, keep.tolist()), np.log(p / (1 - p)).tolist(), strict=True))
    shapley = np.zeros(6)
    for row, value in y.items():
        for j in (j for j in range(6) if not row[j]):
            size = sum(row)
            gain = y[(*row[:j], True, *row[j + 1 :])] - value
            shapley[j] += gain / (6 * math.comb(5, size))
    found = heed.explain(model, text, "shapley-exact", label=1).scores
    np.testing.assert_allclose(found, shapley, atol=1e-9)
    removed = 6 - keep.sum(1)
    weights = np.array(
        [
            math.exp(-((1 - math.sqrt(1 - s / 6)) ** 2) / (2 * 0.25**2)) / math.comb(6, s)
            if s
            else 0.0
            for s in removed
        ]
    )
    design = np.column_stack([np.ones(len(keep)), keep])
    root = np.sqrt(weights)[:, None]
    values = np.array([y[tuple(row)] for row in keep.tolist()])
    fitted = np.linalg.lstsq(root * design, root[:, 0] * values, rcond=None)[0]
    found = heed.explain(model, text, "lime-exact", label=1)
    np.testing.assert_allclose(found.scores, fitted[1:], atol=1e-9)
    assert found.facts["intercept"] == pytest.approx(fitted[0], abs=1e-9)


def test_heads_add_up(model: SingleLayer) -> None:
    for name in ("lime-exact", "shapley-exact", "lime-theorem"):
        parts = [
            heed.explain(model, TEXT, name, label=1, head=h).scores
            for h in range(model.shape.heads)
        ]
        whole = heed.explain(model, TEXT, name, label=1, output="logit").scores
        np.testing.assert_allclose(np.sum(parts, 0), whole, atol=1e-10)


def test_a_single_word_has_no_lime_but_a_shapley_value(model: SingleLayer) -> None:
    assert heed.explain(model, "awful", "lime-exact").scores.tolist() == [0.0]
    assert heed.explain(model, "awful", "lime-exact").notes
    occluded = heed.explain(model, "awful", "occlusion").scores
    np.testing.assert_allclose(
        heed.explain(model, "awful", "shapley-exact").scores, occluded, atol=1e-10
    )
    assert len(heed.explain(model, "awful", "lime-theorem").scores) == 1


def test_the_theorem_reports_its_assumptions_and_its_slope(model: SingleLayer) -> None:
    found = heed.explain(model, TEXT, "lime-theorem")
    truth = heed.explain(model, TEXT, "lime-exact").scores
    plain = heed.explain(model, TEXT, "lime-theorem", constant=1.0).scores
    assert found.facts["slope"] == pytest.approx((plain @ truth) / (plain @ plain))
    assert found.facts["error"] == pytest.approx(
        np.linalg.norm(found.scores - truth) / np.linalg.norm(truth)
    )
    assert found.facts["error_with_slope"] <= found.facts["error"]
    assert found.facts["distinct"] == pytest.approx(len(set(TEXT.split())) / len(TEXT.split()))
    assert found.facts["exponent"] == pytest.approx(math.log(len(TEXT.split())) / math.log(41))
    assert found.facts["spread"] > 1 and found.facts["value"] > 0 and 0 < found.facts["moved"] < 1
    assert len(found.notes) == 2


# Gradients


@pytest.mark.parametrize("output", OUTPUTS)
def test_closed_gradients_are_those_of_autograd(
    make: Callable[..., SingleLayer], texts: list[str], output: str
) -> None:
    for options in ({}, {"padding": "attends"}, {"biases": True, "labels": 3}):
        model = make(**options)  # type: ignore[arg-type]
        tokens = model.tokens(texts)
        for label in range(len(model.labels)):
            ours = model.gradient(tokens, [label] * len(tokens), output)  # type: ignore[arg-type]
            theirs = Classifier.gradient(model, tokens, [label] * len(tokens), output)  # type: ignore[arg-type]
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a.embeddings, b.embeddings, atol=1e-14)
                scale = np.sqrt(np.square(b.gradient).sum())
                assert np.sqrt(np.square(a.gradient - b.gradient).sum()) <= 1e-12 * scale


def test_closed_gradients_of_single_precision_weights_are_those_in_double_precision(
    make: Callable[..., SingleLayer], texts: list[str]
) -> None:
    single, double = make(double=False), make(double=False)
    network = type(single.network)(single.shape)
    network.load_state_dict(single.network.state_dict())
    double = SingleLayer(network.double(), single.tokenizer, single.labels)
    tokens = single.tokens(texts)
    for a, b in zip(
        single.gradient(tokens, [0] * len(tokens)),
        Classifier.gradient(double, tokens, [0] * len(tokens)),
        strict=True,
    ):
        assert np.sqrt(np.square(a.gradient - b.gradient).sum()) <= 1e-12 * np.sqrt(
            np.square(b.gradient).sum()
        )


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("output", OUTPUTS)
def test_slopes_of_outputs_are_their_differences(output: str, exclusive: bool) -> None:
    logits = np.array([0.3, -1.2, 2.0])
    for label in range(3):
        found = output_slope(logits, label, output, exclusive)  # type: ignore[arg-type]
        for c in range(3):
            step = 1e-6 * np.eye(3)[c]
            up, down = (output_of(logits + d, label, output, exclusive) for d in (step, -step))  # type: ignore[arg-type]
            assert found[c] == pytest.approx((up - down) / 2e-6, abs=1e-8)


# Lemmas


@pytest.mark.parametrize("kept", [None, 2])
def test_moments_of_mixtures_by_enumeration(kept: int | None) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 7))
    free = [i for i in range(7) if i != kept]
    for s in range(len(free) + 1):
        values = []
        for removed in combinations(free, s):
            z = np.ones(7, dtype=bool)
            z[list(removed)] = False
            values.append(np.where(z, a, b).sum())
        found = mixture_moments(a, b, s, kept)
        assert found.mean == pytest.approx(np.mean(values), abs=1e-12)
        assert found.variance == pytest.approx(np.var(values), abs=1e-12)


def test_the_ratio_bound_holds_by_enumeration() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        n = 8
        x = rng.uniform(-1, 1, (2, n)) * 3 / n  # |X| ≤ 3
        y = rng.uniform(0.2, 3, (2, n))  # Y ≥ 0.2 n
        for s in range(1, n):
            z = np.array(
                [[i not in removed for i in range(n)] for removed in combinations(range(n), s)]
            )
            X, Y = (np.where(z, v[0], v[1]).sum(1) for v in (x, y))
            gap = abs((X / Y).mean() - X.mean() / Y.mean())
            assert gap <= ratio_bound(3.0, 0.2, n, float(Y.var())) + 1e-15


def test_torch_is_in_double_precision_here(model: SingleLayer) -> None:
    assert model.network.W_e.dtype == torch.float64  # the tolerances above rest on it
