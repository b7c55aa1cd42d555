"""Distances, rank correlations and intervals against loops written out."""

from itertools import combinations
from math import isnan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from heed.metrics import bootstrap, bootstrap_mean, kendall, spearman, tvd

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


# Bootstrap


@pytest.mark.parametrize("seed", [0, 7])
def test_bootstrap_is_the_loop(seed: int) -> None:
    values = np.random.default_rng(3).exponential(size=40)
    rng = np.random.default_rng(seed)
    means = []
    for _ in range(500):
        drawn = rng.integers(0, len(values), len(values))
        means.append(sum(values[i] for i in drawn) / len(values))
    low, high = bootstrap_mean(values, 0.9, 500, seed)
    assert (low, high) == pytest.approx(
        (np.quantile(means, 0.05), np.quantile(means, 0.95)), abs=1e-12
    )


def test_bootstrap_in_several_stretches_is_the_loop() -> None:
    values = np.random.default_rng(4).normal(
        size=1 << 19
    )  # so long that only 8 resamples are drawn at a time
    rng = np.random.default_rng(0)
    means = [values[rng.integers(0, len(values), len(values))].mean() for _ in range(20)]
    assert bootstrap_mean(values, 0.5, 20) == pytest.approx(
        tuple(np.quantile(means, [0.25, 0.75])), abs=1e-12
    )


def test_bootstrap_is_the_same_twice_and_widens_with_the_level() -> None:
    values = np.random.default_rng(5).normal(size=50)
    narrow, wide = bootstrap_mean(values, 0.9), bootstrap_mean(values, 0.99)
    assert bootstrap_mean(values, 0.9) == narrow
    assert wide[0] < narrow[0] < values.mean() < narrow[1] < wide[1]


def test_bootstrap_of_equal_values_is_a_point() -> None:
    assert bootstrap_mean(np.full(30, 0.25)) == pytest.approx((0.25, 0.25))
    assert bootstrap_mean(np.array([2.0])) == pytest.approx((2.0, 2.0))


def test_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(6)
    inside = 0
    for _ in range(400):
        low, high = bootstrap_mean(rng.normal(1.0, 2.0, 60), 0.9, 1000)
        inside += low < 1.0 < high
    assert 0.84 <= inside / 400 <= 0.94  # the percentile interval is a little narrow


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


def test_rows_of_a_group_are_drawn_together() -> None:
    rng = np.random.default_rng(0)
    groups = np.array([0, 1, 0, 2, 2, 2, 3, 1])
    values, other = rng.normal(size=8), rng.normal(size=8)
    drawn = np.random.default_rng(5).integers(0, 4, (300, 4))
    rows = [np.concatenate([np.flatnonzero(groups == g) for g in some]) for some in drawn]
    expected = np.quantile([values[r].mean() for r in rows], [0.05, 0.95])
    assert bootstrap_mean(values, 0.9, 300, 5, groups) == pytest.approx(tuple(expected), abs=1e-12)
    rng, ratios = np.random.default_rng(5), []
    for _ in range(300):
        rows = np.concatenate([np.flatnonzero(groups == g) for g in rng.integers(0, 4, 4)])
        ratios.append(values[rows].sum() / np.square(other[rows]).sum())
    found = bootstrap(
        {"a": values, "b": other},
        lambda c: float(c["a"].sum() / np.square(c["b"]).sum()),
        0.9,
        300,
        5,
        groups,
    )
    assert found == pytest.approx(tuple(np.quantile(ratios, [0.05, 0.95])), abs=1e-12)


@pytest.mark.parametrize("together", [True, False])
def test_pairs_that_are_alike_need_wider_intervals(together: bool) -> None:
    """Every value twice: 40 pairs say as much as 40 values.

    Intervals that do not know that miss the mean.
    """
    rng, hits = np.random.default_rng(1), 0
    for seed in range(300):
        values = np.repeat(rng.normal(size=40), 2)
        low, high = bootstrap_mean(
            values, 0.95, 1000, seed, np.repeat(np.arange(40), 2) if together else None
        )
        hits += low < 0 < high
    assert hits / 300 > 0.9 if together else hits / 300 < 0.88


def test_a_statistic_that_no_draw_has_has_no_interval(recwarn: pytest.WarningsRecorder) -> None:
    assert np.isnan(bootstrap({"x": np.ones(5)}, lambda c: float("nan"), resamples=20)).all()
    assert not recwarn.list
