"""Distances, rank correlations and intervals against loops written out."""

from itertools import combinations, permutations
from math import isnan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from heed.metrics import kendall, spearman, top_weights, tvd

LEVELS = st.integers(-3, 3)  # few different values: many ties
RANKED = st.lists(st.tuples(LEVELS, LEVELS), min_size=2, max_size=12)


def brute_force(x: np.ndarray, y: np.ndarray) -> float:
    """τ-b by looking at every pair."""
    agree = disagree = tied_x = tied_y = 0
    for i, j in combinations(range(len(x)), 2):
        dx, dy = x[i] - x[j], y[i] - y[j]
        agree += dx * dy > 0
        disagree += dx * dy < 0
        tied_x += dx == 0
        tied_y += dy == 0
    pairs = len(x) * (len(x) - 1) / 2
    return (agree - disagree) / sqrt((pairs - tied_x) * (pairs - tied_y))


# Total variation distance


def test_tvd_is_half_the_absolute_difference() -> None:
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])
    assert tvd(p, q) == pytest.approx(0.4)
    assert tvd(p, p) == 0
    assert tvd(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 1


def test_tvd_of_many_against_one() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(4), (5, 3)), rng.dirichlet(np.ones(4), 3)
    found = np.asarray(tvd(p, q))
    assert found.shape == (5, 3)
    assert np.allclose(
        found, [[sum(abs(a - b)) / 2 for a, b in zip(row, q, strict=True)] for row in p]
    )
    assert np.allclose(found, tvd(q, p))
    assert (found >= 0).all() and (found <= 1).all()


# Kendall's tau


@given(RANKED)
def test_kendall_with_ties(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, dtype=float).T
    found = kendall(x, y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert isnan(found)
        return
    assert found == pytest.approx(brute_force(x, y), abs=1e-12)
    assert found == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
    assert found == pytest.approx(kendall(y, x), abs=1e-12)
    assert found == pytest.approx(-kendall(-x, y), abs=1e-12)


def test_kendall_of_the_same_and_of_the_reversed_order() -> None:
    x = np.array([0.3, -1.0, 7.5, 2.0])
    assert kendall(x, np.exp(x)) == pytest.approx(1)
    assert kendall(x, -x) == pytest.approx(-1)


def test_kendall_of_random_numbers_is_that_of_scipy() -> None:
    rng = np.random.default_rng(1)
    for scale in (1e-12, 1.0, 1e12):
        x, y = rng.normal(size=200) * scale, rng.normal(size=200)
        assert kendall(x, y) == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)


def test_rounding_errors_are_ties() -> None:
    x, y = np.array([1.0, 0.3, 0.3, -2.0]), np.array([3.0, 1.0, 2.0, 0.0])
    noisy = x * (1 + np.array([0, 1e-15, -1e-15, 0]))
    assert noisy[1] != noisy[2]
    assert kendall(noisy, y) == kendall(x, y) == pytest.approx(brute_force(x, y))
    assert isnan(kendall(np.array([1.0, 1 + 1e-15, 1 - 1e-15]), np.arange(3.0)))


def test_small_differences_that_are_real_are_no_ties() -> None:
    x = np.array([1.0, 1.0 + 1e-7, 1.0 - 1e-7])
    assert kendall(x, np.array([2.0, 3.0, 1.0])) == pytest.approx(1)


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_to_rank(n: int) -> None:
    assert isnan(kendall(np.ones(n), np.ones(n)))


def test_all_zeros_have_no_order() -> None:
    assert isnan(kendall(np.zeros(5), np.arange(5.0)))


# The top k


@given(st.lists(LEVELS, min_size=1, max_size=6), st.integers(-1, 7))
def test_the_top_is_that_of_all_orders_of_ties(values: list[int], k: int) -> None:
    """Every order in which equal scores can stand is tried, and the first k are counted."""
    scores = np.array(values, dtype=float)
    counts, tried = np.zeros(len(values)), 0
    for order in permutations(range(len(values))):
        ranked = sorted(order, key=lambda i: -values[i])  # stable: keeps the order of ties
        counts[ranked[: max(0, k)]] += 1
        tried += 1
    found = top_weights(scores, k)
    np.testing.assert_allclose(found, counts / tried, atol=1e-12)
    assert found.sum() == pytest.approx(min(max(0, k), len(values)))


def test_constant_scores_have_no_top_and_rounding_errors_make_none() -> None:
    assert top_weights(np.full(10, 0.3), 3).tolist() == pytest.approx([0.3] * 10)
    almost = 0.3 + 1e-13 * np.arange(10)
    assert top_weights(almost, 3).tolist() == pytest.approx([0.3] * 10)
    assert top_weights(np.array([5.0, 1.0, 1.0, 0.0]), 2).tolist() == [1.0, 0.5, 0.5, 0.0]


# Spearman's ρ


@given(RANKED)
def test_spearman_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    x, y = (np.array(v, dtype=float) for v in zip(*pairs, strict=True))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert isnan(spearman(x, y))
    else:
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_rounding_errors_have_no_rank() -> None:
    x = np.array([1.0, 1.0 + 1e-12, 2.0, 3.0])
    assert spearman(x, np.array([2.0, 1.0, 3.0, 4.0])) == spearman(
        np.round(x, 6), np.array([2.0, 1.0, 3.0, 4.0])
    )
