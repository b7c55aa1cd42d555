"""Shapley values against their definition: the mean over all orders in which words can come in."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, permutations

import numpy as np
import pytest
from conftest import log_odds

import heed
from heed.methods import METHODS, Shapley
from heed.models.single_layer import SingleLayer

WORDS = ("the", "film", "was", "slow", "but", "good", "and")
LONG = "film was slow but good and the plot is fresh warm dull"  # twelve words, all different


def outputs(
    model: SingleLayer, text: str, label: int, removal: str
) -> tuple[int, dict[frozenset[int], float]]:
    """The output for every set of distinct words that is kept, from texts that are read anew."""
    words = text.split()
    distinct = list(dict.fromkeys(words))
    d = len(distinct)
    sets = [frozenset(s) for size in range(d + 1) for s in combinations(range(d), size)]
    changed = []
    for kept in sets:
        present = {distinct[i] for i in kept}
        changed.append(
            " ".join(
                w if w in present else "zzqx" for w in words if w in present or removal == "replace"
            )
        )
    return d, dict(zip(sets, log_odds(model(changed), label).tolist(), strict=True))


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
            weight = (
                math.factorial(len(kept)) * math.factorial(d - len(kept) - 1) / math.factorial(d)
            )
            total[j] += weight * (f[kept | {j}] - value)
    return total


@pytest.mark.parametrize("removal", ["replace", "delete"])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 7])
def test_the_kernel_is_exact_where_all_subsets_fit(
    make: Callable[..., SingleLayer], d: int, removal: str
) -> None:
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
def test_sampled_values_are_right_within_their_errors(
    model: SingleLayer, estimator: str, removal: str
) -> None:
    """Twelve words, 2,000 of 4,096 subsets: within 4.5 standard errors, which are small beside the
    largest value."""
    expected = by_subsets(*outputs(model, LONG, 1, removal))
    exact = heed.explain(model, LONG, "shapley", label=1, samples=5000, removal=removal)
    np.testing.assert_allclose(exact.scores, expected, rtol=0, atol=1e-9)
    found = heed.explain(
        model, LONG, "shapley", label=1, samples=2000, estimator=estimator, removal=removal
    )
    assert (found.standard_errors > 0).all()
    assert (np.abs(found.scores - expected) < 4.5 * found.standard_errors).all()
    assert found.standard_errors.max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("estimator", "samples", "most"),
    [("kernel", 100, 0.99), ("permutation", 2000, 0.99), ("permutation", 100, 1.0)],
)
def test_standard_errors_are_honest(
    model: SingleLayer, estimator: str, samples: int, most: float
) -> None:
    """95 % intervals of 150 runs × 8 words cover the value in 90 to 99 % of cases; ten orders lean
    to caution."""
    text = " ".join(LONG.split()[:8])
    expected = by_subsets(*outputs(model, text, 1, "replace"))
    method = METHODS["shapley"](samples=samples, estimator=estimator)
    runs = [method.explain(model, [text], 1, seed=seed)[0] for seed in range(150)]
    covered = np.array([np.abs(r.scores - expected) < 1.96 * r.standard_errors for r in runs])
    assert 0.90 <= covered.mean() <= most, covered.mean()


def places_of(keep: np.ndarray, d: int) -> np.ndarray:
    """When each word comes in, order by order."""
    places = np.empty((len(keep) // (d - 1), d), dtype=int)
    for k, prefixes in enumerate(keep.reshape(-1, d - 1, d)):
        before = np.zeros(d, dtype=bool)
        for place, now in enumerate([*prefixes, np.ones(d, dtype=bool)]):
            (word,) = np.flatnonzero(now & ~before)
            places[k, word], before = place, now
    return places


@pytest.mark.parametrize("d", [2, 3, 7, 20, 41])
def test_ten_orders_bring_each_word_in_at_ten_depths(d: int) -> None:
    """Each order once forwards and once backwards; the depths, counted from both ends, are shared
    out equally."""
    method = Shapley(samples=2 * 30 * (d - 1), estimator="permutation")
    places = places_of(method._orders(np.random.default_rng(0), d), d)
    assert len(places) == 60 and (np.sort(places, 1) == np.arange(d)).all()
    np.testing.assert_array_equal(places[1::2], d - 1 - places[::2])
    depths = min(10, d // 2)
    if d % (2 * depths) == 0:
        depth = np.minimum(places, d - 1 - places)[::2] * 2 * depths // d
        for square in depth[: 30 // depths * depths].reshape(-1, depths, d):
            assert (np.sort(square, 0) == np.arange(depths)[:, None]).all()


def test_all_orders_are_as_likely() -> None:
    """24,000 orders of four words: how often each comes up is as chance has it (χ² with 23 degrees
    of freedom)."""
    method = Shapley(samples=2 * 24_000 * 3, estimator="permutation")
    places = places_of(method._orders(np.random.default_rng(1), 4), 4)[::2]
    counts = np.unique(places, axis=0, return_counts=True)[1]
    assert len(counts) == 24 and ((counts - 1000) ** 2 / 1000).sum() < 60


@pytest.mark.parametrize(("d", "pairs"), [(7, 10), (7, 35), (24, 12), (24, 25)])
def test_standard_errors_of_orders_are_the_spread_of_gains(d: int, pairs: int) -> None:
    """Word by word in loops: the whole spread, and beside it that within depths where there are
    several squares."""
    rng, depths = np.random.default_rng(2), min(10, d // 2)
    method = Shapley(samples=2 * pairs * (d - 1), estimator="permutation")
    keep, y = method._orders(rng, d), rng.normal(size=2 * pairs * (d - 1))
    ends = np.array([[True] * d, [False] * d])
    scores, errors = method._fit_orders(np.vstack([ends, keep]), np.append([1.5, -0.5], y))
    places = places_of(keep, d)
    steps = np.hstack(
        [np.full((2 * pairs, 1), -0.5), y.reshape(2 * pairs, d - 1), np.full((2 * pairs, 1), 1.5)]
    )
    for word in range(d):
        gains = [
            steps[k, places[k, word] + 1] - steps[k, places[k, word]] for k in range(2 * pairs)
        ]
        variance = np.var(gains, ddof=1) / len(gains)
        if pairs >= 2 * depths:
            depth = [min(places[2 * k, word], d - 1 - places[2 * k, word]) for k in range(pairs)]
            means = [(gains[2 * k] + gains[2 * k + 1]) / 2 for k in np.argsort(depth)]
            within = sum(
                np.sum((part - part.mean()) ** 2)
                for part in np.array_split(np.array(means), depths)
            )
            whole = 2 * depths - 1
            variance = (whole * variance + within / pairs) / (whole + pairs - depths)
        assert scores[word] == pytest.approx(np.mean(gains), abs=1e-12)
        assert errors[word] == pytest.approx(np.sqrt(variance), rel=1e-12)


@pytest.mark.parametrize("estimator", ["kernel", "permutation"])
@pytest.mark.parametrize("samples", [2, 30, 2000])
def test_values_add_up_to_the_change(
    any_model: SingleLayer, texts: list, estimator: str, samples: int
) -> None:
    """Always, however few the samples: f(document) - f(document without words)."""
    tokens = any_model.tokens(texts)
    full, empty = any_model.logits(tokens), any_model.logits([any_model.blank(t) for t in tokens])
    change = log_odds(full, 1) - log_odds(empty, 1)
    found = heed.explain(any_model, texts, "shapley", label=1, samples=samples, estimator=estimator)
    tolerance = 1e-9 if any_model.network.W_e.dtype.itemsize == 8 else 1e-5
    np.testing.assert_allclose([e.scores.sum() for e in found], change, rtol=0, atol=tolerance)


@pytest.mark.parametrize("estimator", ["kernel", "permutation"])
def test_one_word_gets_the_whole_change(model: SingleLayer, estimator: str) -> None:
    found = heed.explain(model, "good good", "shapley", label=1, estimator=estimator)
    full, empty = log_odds(model(["good good", "zzqx zzqx"]), 1)
    assert found.scores == pytest.approx([full - empty], abs=1e-12)
    assert found.forward_passes == 2 and not found.standard_errors.any()


def test_a_word_without_influence_gets_nothing(model: SingleLayer) -> None:
    found = heed.explain(
        model, "slow zzqx film", "shapley", label=1
    )  # an unknown word is its own replacement
    assert abs(found.scores[1]) < 1e-10 < np.abs(found.scores[[0, 2]]).min()


def test_occlusion_is_the_change_when_one_occurrence_goes(any_model: SingleLayer) -> None:
    words = ["good", "film", "good", "plot"]
    for removal in ("replace", "delete"):
        without = [
            " ".join(words[:i] + ["zzqx"] * (removal == "replace") + words[i + 1 :])
            for i in range(4)
        ]
        full, rest = any_model([" ".join(words)]), any_model(without)
        expected = log_odds(full, 1) - log_odds(rest, 1)
        found = heed.explain(any_model, " ".join(words), "occlusion", label=1, removal=removal)
        np.testing.assert_allclose(found.scores, expected, rtol=0, atol=1e-5)
        assert found.forward_passes == 5
