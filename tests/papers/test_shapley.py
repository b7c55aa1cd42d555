"""Shapley values against their definition: the mean over all orders in which words can come in."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, permutations

import numpy as np
import pytest

import heed
from heed.explain import METHODS
from heed.models.single_layer import SingleLayer

WORDS = ("the", "film", "was", "slow", "but", "good", "and")
LONG = "film was slow but good and the plot is fresh warm dull"  # twelve words, all different


def outputs(model: SingleLayer, text: str, label: int, removal: str) -> tuple[int, dict[frozenset[int], float]]:
    """The output for every set of distinct words that is kept, from texts that are read anew."""
    words = text.split()
    distinct = list(dict.fromkeys(words))
    d = len(distinct)
    sets = [frozenset(s) for size in range(d + 1) for s in combinations(range(d), size)]
    changed = []
    for kept in sets:
        present = {distinct[i] for i in kept}
        changed.append(" ".join(w if w in present else "zzqx" for w in words if w in present or removal == "replace"))
    return d, dict(zip(sets, model(changed)[:, label].tolist(), strict=True))


def by_orders(d: int, f: dict[frozenset[int], float]) -> np.ndarray:
    """φ_j: what j adds when it comes in, averaged over all d! orders."""
    total = np.zeros(d)
    for order in permutations(range(d)):
        before: frozenset[int] = frozenset()
        for j in order:
            total[j] += f[before | {j}] - f[before]
            before = before | {j}
    return total / math.factorial(d)


def by_subsets(d: int, f: dict[frozenset[int], float]) -> np.ndarray:
    """φ_j = Σ_S |S|!(d-|S|-1)!/d! (f(S ∪ j) - f(S))."""
    total = np.zeros(d)
    for kept, value in f.items():
        for j in set(range(d)) - kept:
            weight = math.factorial(len(kept)) * math.factorial(d - len(kept) - 1) / math.factorial(d)
            total[j] += weight * (f[kept | {j}] - value)
    return total


@pytest.mark.parametrize("removal", ["replace", "delete"])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 7])
def test_the_kernel_is_exact_where_all_subsets_fit(make: Callable[..., SingleLayer], d: int, removal: str) -> None:
    text = " ".join(WORDS[:d])
    for padding in ("masked", "attends"):
        model = make(padding=padding)
        found = heed.explain(model, text, "shapley", label=1, removal=removal)
        expected = by_orders(d, outputs(model, text, 1, removal)[1])
        np.testing.assert_allclose(found.scores, expected, rtol=0, atol=1e-10)
        assert not found.standard_errors.any()
        assert found.forward_passes == 2**d


def test_both_definitions_agree(model: SingleLayer) -> None:
    d, f = outputs(model, "slow but good but slow film", 1, "replace")
    np.testing.assert_allclose(by_orders(d, f), by_subsets(d, f), atol=1e-12)


def test_repeated_words_come_in_together(model: SingleLayer) -> None:
    text = "good slow good film slow good"
    found = heed.explain(model, text, "shapley", label=1)
    d, f = outputs(model, text, 1, "replace")
    assert d == len(found.units) == 3
    np.testing.assert_allclose(found.scores, by_orders(d, f), rtol=0, atol=1e-10)


@pytest.mark.parametrize("estimator", ["kernel", "permutation"])
@pytest.mark.parametrize("removal", ["replace", "delete"])
def test_sampled_values_are_right_within_their_errors(model: SingleLayer, estimator: str, removal: str) -> None:
    """Twelve words, 2,000 of 4,096 subsets: within 4.5 standard errors, which are small beside the largest value."""
    expected = by_subsets(*outputs(model, LONG, 1, removal))
    exact = heed.explain(model, LONG, "shapley", label=1, samples=5000, removal=removal)
    np.testing.assert_allclose(exact.scores, expected, rtol=0, atol=1e-9)
    found = heed.explain(model, LONG, "shapley", label=1, samples=2000, estimator=estimator, removal=removal)
    assert (found.standard_errors > 0).all()
    assert (np.abs(found.scores - expected) < 4.5 * found.standard_errors).all()
    assert found.standard_errors.max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("estimator", ["kernel", "permutation"])
def test_standard_errors_are_honest(model: SingleLayer, estimator: str) -> None:
    """95 % intervals of 150 runs × 8 words cover the value in 88 to 99 % of cases (50 pairs of subsets, 7 of orders).

    With few orders the normal quantile is too small, so that Student's is used.
    """
    text, samples = " ".join(LONG.split()[:8]), 100
    expected = by_subsets(*outputs(model, text, 1, "replace"))
    explainer = METHODS["shapley"](samples=samples, estimator=estimator)
    runs = [explainer.explain(model, [text], 1, seed=seed)[0] for seed in range(150)]
    quantile = {"kernel": 2.02, "permutation": 2.45}[estimator]  # Student's t with 42 and 6 degrees of freedom
    covered = np.array([np.abs(r.scores - expected) < quantile * r.standard_errors for r in runs])
    assert 0.88 <= covered.mean() <= 0.99


@pytest.mark.parametrize("estimator", ["kernel", "permutation"])
@pytest.mark.parametrize("samples", [2, 30, 2000])
def test_values_add_up_to_the_change(any_model: SingleLayer, texts: list, estimator: str, samples: int) -> None:
    """Always, however few the samples: f(document) - f(document without words)."""
    tokens = any_model.tokens(texts)
    change = any_model.logits(tokens)[:, 1] - any_model.logits([any_model.blank(t) for t in tokens])[:, 1]
    found = heed.explain(any_model, texts, "shapley", label=1, samples=samples, estimator=estimator)
    tolerance = 1e-9 if any_model.network.W_e.dtype.itemsize == 8 else 1e-5
    np.testing.assert_allclose([e.scores.sum() for e in found], change, rtol=0, atol=tolerance)


@pytest.mark.parametrize("estimator", ["kernel", "permutation"])
def test_one_word_gets_the_whole_change(model: SingleLayer, estimator: str) -> None:
    found = heed.explain(model, "good good", "shapley", label=1, estimator=estimator)
    full, empty = model(["good good", "zzqx zzqx"])[:, 1]
    assert found.scores == pytest.approx([full - empty], abs=1e-12)
    assert found.forward_passes == 2 and not found.standard_errors.any()


def test_a_word_without_influence_gets_nothing(model: SingleLayer) -> None:
    found = heed.explain(model, "slow zzqx film", "shapley", label=1)  # an unknown word is its own replacement
    assert abs(found.scores[1]) < 1e-10 < np.abs(found.scores[[0, 2]]).min()


def test_occlusion_is_the_change_when_one_occurrence_goes(any_model: SingleLayer) -> None:
    words = ["good", "film", "good", "plot"]
    for removal in ("replace", "delete"):
        without = [" ".join(words[:i] + ["zzqx"] * (removal == "replace") + words[i + 1 :]) for i in range(4)]
        expected = any_model([" ".join(words)])[0, 1] - any_model(without)[:, 1]
        found = heed.explain(any_model, " ".join(words), "occlusion", label=1, removal=removal)
        np.testing.assert_allclose(found.scores, expected, rtol=0, atol=1e-5)
        assert found.forward_passes == 5
