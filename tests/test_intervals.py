"""Intervals and tests of many claims, against versions written out slowly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heed.intervals import (
    Betting,
    Crossed,
    Interval,
    Sample,
    Studentised,
    betting_sequence,
    estimate,
    step_down,
)
from heed.intervals.betting import stakes


def sample(values: Sequence[float], groups: Sequence[int] | None = None, **more: object) -> Sample:
    numbers = np.arange(len(values)) if groups is None else np.array(groups)
    return Sample(np.array(values, dtype=float), numbers, **more)  # type: ignore[arg-type]


def interval_of(s: Sample, **more: object) -> Interval:
    return estimate([s], int(s.groups.max()) + 1, **more)[0][0]  # type: ignore[arg-type]


def drawn_groups(groups: int, resamples: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, groups, (resamples, groups))


# Studentised


def literal_bootstrap_t(
    values: np.ndarray, groups: np.ndarray, level: float, resamples: int
) -> tuple[float, float]:
    """Draw groups, take the mean of their rows, and its error around this mean; over and over."""
    members = [np.flatnonzero(groups == g) for g in range(groups.max() + 1)]

    def error(drawn: Sequence[int], mean: float) -> float:
        squares = sum((values[members[g]].sum() - mean * len(members[g])) ** 2 for g in drawn)
        return math.sqrt(squares) / sum(len(members[g]) for g in drawn)

    mean = values.mean()
    strays = []
    for drawn in drawn_groups(len(members), resamples):
        of_draw = np.concatenate([values[members[g]] for g in drawn]).mean()
        strays.append((of_draw - mean) / error(drawn, of_draw))
    strays.sort()
    k = math.floor((1 - level) / 2 * (resamples + 1))
    own = error(range(len(members)), mean)
    return mean - strays[-k] * own, mean - strays[k - 1] * own


@pytest.mark.parametrize("kind", ["alone", "groups"])
@pytest.mark.parametrize("level", [0.9, 0.98])
def test_the_studentised_interval_is_the_loop(kind: str, level: float) -> None:
    rng = np.random.default_rng(3)
    groups = np.arange(40) if kind == "alone" else np.sort(rng.integers(0, 18, 40))
    groups = np.unique(groups, return_inverse=True)[1]
    values = rng.exponential(size=40)
    found = interval_of(sample(values, groups), resamples=500)
    assert found.kind == "studentised" and found.point == pytest.approx(values.mean())
    assert found.ends(level) == pytest.approx(literal_bootstrap_t(values, groups, level, 500))


def test_resamples_are_drawn_in_stretches_and_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    s = sample(np.random.default_rng(1).normal(size=30))
    whole = interval_of(s, resamples=301).ends(0.9)
    monkeypatch.setattr("heed.intervals.studentised._BLOCK", 100)
    assert interval_of(s, resamples=301).ends(0.9) == pytest.approx(whole, abs=1e-12)


def test_a_statistic_of_its_own_is_exact_on_each_resample() -> None:
    """A ratio of means, whose influence is known, against the loop."""
    rng = np.random.default_rng(4)
    a, b = rng.exponential(size=25), 1 + rng.exponential(size=25)
    ratio: Callable[[np.ndarray], float] = lambda rows: float(a[rows].sum() / b[rows].sum())  # noqa: E731
    found = interval_of(sample(a, statistic=ratio), resamples=400)
    point = a.sum() / b.sum()
    everyone = list(range(25))
    pulls = np.array(
        [24 * (point - ratio(np.array([j for j in everyone if j != i]))) for i in everyone]
    )
    pulls -= pulls.mean()
    strays = []
    for drawn in drawn_groups(25, 400):
        own = pulls[drawn]
        error = math.sqrt(sum((own - own.mean()) ** 2)) / 25
        strays.append((ratio(drawn) - point) / error)
    error = math.sqrt(sum(pulls**2)) / 25
    assert isinstance(found, Studentised) and found.point == pytest.approx(point)
    assert found.error == pytest.approx(error)
    # leaving out one document is nearly a derivative
    linear = (a - point * b) / b.mean()
    assert found.error == pytest.approx(math.sqrt((linear**2).sum()) / 25, rel=0.1)
    strays.sort()
    expected = point - strays[-20] * error, point - strays[19] * error
    assert found.ends(1 - 40 / 401) == pytest.approx(expected)


def test_equal_values_are_a_point_and_infinite_strays_have_no_end() -> None:
    same = interval_of(sample([0.1 + 1e-17] * 50))
    assert same.ends(0.99) == pytest.approx((0.1, 0.1), abs=1e-15)
    assert (same.p(0.1), same.p(0.2)) == (1.0, 0.0)
    rare = interval_of(sample([1.0] + [0.0] * 29))  # a third of the resamples has no 1
    assert rare.ends(0.95)[1] == math.inf
    bounded = Studentised(rare.point, rare.error, rare.strays, (0.0, 1.0))  # type: ignore[attr-defined]
    assert bounded.ends(0.95)[1] == 1.0


def test_two_samples_share_their_resamples() -> None:
    """What is measured on the same documents hangs together as the documents do."""
    rng = np.random.default_rng(5)
    values = rng.exponential(size=60)
    same, opposite, other = estimate(
        [sample(values), sample(-values), sample(rng.exponential(size=60))], 60
    )[1]
    together = estimate([sample(values), sample(values)], 60)[1]
    np.testing.assert_array_equal(*together)
    assert stats.spearmanr(same, opposite).statistic > 0.95
    assert abs(stats.spearmanr(same, other).statistic) < 0.05
    for p in (same, opposite, other):
        assert stats.kstest(p, "uniform").pvalue > 0.01


# Betting


def literal_capital(
    values: Sequence[float],
    sizes: Sequence[int],
    bounds: tuple[float, float],
    mean: float,
    sign: int,
) -> float:
    """Play every stake by itself, group after group, and take the mean of the purses."""
    low, high = bounds
    most = (mean - low if sign > 0 else high - mean) * max(sizes)
    purses = []
    for stake in stakes(len(values)):
        purse = 1.0
        for total, size in zip(values, sizes, strict=True):
            purse *= 1 + sign * stake * (total - mean * size) / most
        purses.append(purse)
    return sum(purses) / len(purses)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0)])
def test_the_betting_interval_is_where_no_bettor_is_rich(bounds: tuple[float, float]) -> None:
    rng = np.random.default_rng(6)
    values = rng.uniform(bounds[0], bounds[1], 45)
    groups = np.sort(rng.integers(0, 30, 45))
    groups = np.unique(groups, return_inverse=True)[1]
    found = interval_of(sample(values, groups, bounds=bounds))
    assert found.kind == "betting"
    totals = [values[groups == g].sum() for g in range(groups.max() + 1)]
    sizes = [int((groups == g).sum()) for g in range(groups.max() + 1)]
    for error in (0.05, 0.0025):
        low, high = found.ends(1 - error)
        rich = []
        grid = np.linspace(*bounds, 801)[1:-1]
        for mean in grid:
            capital = max(literal_capital(totals, sizes, bounds, mean, sign) for sign in (1, -1))
            rich.append(capital >= 2 / error)
            if mean in (grid[100], grid[400]):
                assert found.p(mean) == pytest.approx(min(1.0, 2 / capital))
        step = grid[1] - grid[0]
        kept = grid[~np.array(rich)]
        assert abs(kept[0] - low) <= step and abs(kept[-1] - high) <= step
        assert (np.diff(np.flatnonzero(~np.array(rich))) == 1).all()  # an interval, without holes


def test_rows_in_another_order_give_the_same_interval() -> None:
    values = np.random.default_rng(7).beta(1, 3, 50)
    one, other = (interval_of(sample(v, bounds=(0.0, 1.0))) for v in (values, np.sort(values)))
    assert one.ends(0.95) == pytest.approx(other.ends(0.95), abs=1e-12)


def test_nothing_seen_leaves_what_could_be_missed() -> None:
    """All of n documents are 0: a share m of ones is missed with probability (1 − m)ⁿ."""
    n = 200
    s = sample([0.0] * n, bounds=(0.0, 1.0))
    low, high = interval_of(s).ends(0.95)
    exact = 1 - 0.025 ** (1 / n)
    assert low == 0.0 and exact < high < 1.6 * exact
    assert interval_of(s).p(0.05) < 0.001 and interval_of(s).p(0.0) == 1.0


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=40),
    st.floats(0.01, 0.99),
    st.sampled_from([0.5, 0.95, 0.9975]),
)
@settings(max_examples=60, deadline=None)
def test_p_values_and_intervals_agree(values: list[float], threshold: float, level: float) -> None:
    for s in (sample(values, bounds=(0.0, 1.0)), sample(values)):
        for more in ({}, {"by_seed": np.array([0.2, 0.3, 0.6])}):
            crossed = Sample(s.values, s.groups, s.bounds, None, **more)
            found = interval_of(crossed, resamples=99)
            low, high = found.ends(level)
            assert low <= found.point <= high
            if min(abs(threshold - low), abs(threshold - high)) > 1e-6:
                assert (found.p(threshold) <= 1 - level) == (not low <= threshold <= high)


def test_a_betting_sequence_holds_at_all_times_at_once() -> None:
    """Someone looks after every document, and stops as soon as the truth is left out."""
    rng, truth, missed = np.random.default_rng(8), 0.1, 0
    for _ in range(200):
        values = (rng.random(120) < 0.2) * rng.random(120)  # the mean is 0.1
        ends = [
            betting_sequence(sample(values[:n], bounds=(0.0, 1.0)), 0.9) for n in range(5, 121, 5)
        ]
        missed += any(not low <= truth <= high for low, high in ends)
        widths = [high - low for low, high in ends]
        assert widths[-1] < widths[0]
    assert missed / 200 <= 0.1
    fixed = interval_of(sample(values, bounds=(0.0, 1.0))).ends(0.9)
    assert fixed[1] - fixed[0] <= widths[-1]


# Crossed


def test_seeds_and_documents_each_add_their_part() -> None:
    rng = np.random.default_rng(9)
    table = rng.normal(0.5, 0.1, (4, 1)) + rng.normal(0, 0.3, (4, 150))
    values = table.mean(0)
    found = interval_of(Sample(values, np.arange(150), by_seed=table.mean(1)))
    assert isinstance(found, Crossed) and found.seeds == 4
    by_seed = [float(np.mean(row)) for row in table]
    mean = sum(by_seed) / 4
    variance = sum((x - mean) ** 2 for x in by_seed) / 3 / 4
    of_seeds = stats.t.ppf(0.975, 3) * math.sqrt(variance)
    alone = interval_of(Sample(values, np.arange(150)))
    low, high = alone.ends(0.95)
    expected = (
        mean - math.sqrt((mean - low) ** 2 + of_seeds**2),
        mean + math.sqrt((high - mean) ** 2 + of_seeds**2),
    )
    assert found.ends(0.95) == pytest.approx(expected)
    # a median varies more
    median = Sample(values, np.arange(150), by_seed=table.mean(1), median=True)
    assert interval_of(median).error == pytest.approx(found.error * math.sqrt(math.pi / 2))  # type: ignore[attr-defined]


def test_one_seed_says_nothing_and_equal_seeds_say_all() -> None:
    values = np.random.default_rng(10).normal(size=150)
    one = interval_of(Sample(values, np.arange(150), by_seed=np.array([values.mean()])))
    assert one.ends(0.95) == (-math.inf, math.inf) and one.p(5.0) == 1.0
    equal = interval_of(Sample(values, np.arange(150), by_seed=np.full(3, values.mean())))
    assert equal.ends(0.95) == pytest.approx(interval_of(Sample(values, np.arange(150))).ends(0.95))


# How many documents


def test_documents_that_would_decide() -> None:
    values = np.random.default_rng(11).normal(0.53, 0.3, 100)
    found = interval_of(sample(values))
    low, _ = found.ends(0.95)
    expected = 100 * ((values.mean() - low) / (values.mean() - 0.5)) ** 2
    wanted = found.wanted(0.5, 0.95, 100)
    assert low < 0.5 and wanted == math.ceil(expected) > 100
    assert found.wanted(values.mean(), 0.95, 100) is None
    # so many of the same documents do decide
    again = interval_of(sample(np.tile(values, math.ceil(wanted / 100))))
    assert again.ends(0.95)[0] > 0.5
    # seeds that differ too much cannot be outweighed by documents
    seeds = Sample(values, np.arange(100), by_seed=np.array([0.3, 0.5, 0.8]))
    assert interval_of(seeds).wanted(0.5, 0.95, 100) is None
    close = Sample(values, np.arange(100), by_seed=values.mean() + np.array([-0.001, 0, 0.001]))
    assert interval_of(close).wanted(0.5, 0.95, 100) > wanted  # type: ignore[operator]


# Many claims together


def literal_step_down(
    p: Sequence[float], together: np.ndarray, unmeasured: int
) -> list[tuple[bool, float]]:
    """Compare the smallest p-value with the 5 % quantile of the smallest among those left."""
    left, result = set(range(len(p))), {}
    resamples = together.shape[1]
    others = np.random.default_rng(0).random(resamples)
    while left:
        smallest = []
        for b in range(resamples):
            among = [together[i, b] for i in left]
            if unmeasured:
                among.append(1 - (1 - others[b]) ** (1 / unmeasured))
            smallest.append(min(among))
        smallest.sort()
        critical = smallest[math.floor(0.05 * (resamples + 1)) - 1]
        critical = min(0.05, max(critical, 0.05 / (len(left) + unmeasured)))
        first = min(left, key=lambda i: (p[i], i))
        if p[first] > critical:
            return [result.get(i, (False, 1 - critical)) for i in range(len(p))]
        result[first] = (True, 1 - critical)
        left.remove(first)
    return [result[i] for i in range(len(p))]


@pytest.mark.parametrize("unmeasured", [0, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_step_down_is_the_loop(unmeasured: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(1, 200))
    normal = common + rng.normal(size=(6, 200))
    together = 2 * stats.norm.sf(np.abs(normal) / math.sqrt(2))
    p = np.sort(rng.random(6)) ** 5
    rng.shuffle(p)
    decided, levels = step_down(p, together, unmeasured)
    expected = literal_step_down(p.tolist(), together, unmeasured)
    assert decided.tolist() == [d for d, _ in expected]
    assert levels == pytest.approx([level for _, level in expected])


def test_one_claim_has_five_percent_copies_cost_nothing_and_others_do() -> None:
    uniform = np.random.default_rng(12).random((20, 10_000))
    alone = step_down(np.array([0.04]), uniform[:1])
    assert alone[0].all() and alone[1].tolist() == [0.95]
    copies = step_down(np.full(20, 0.04), np.repeat(uniform[:1], 20, 0))
    assert copies[0].all()
    apart = step_down(np.full(20, 0.04), uniform)
    assert not apart[0].any() and apart[1][0] == pytest.approx(0.95 ** (1 / 20), abs=5e-4)
    planned = step_down(np.array([0.04]), uniform[:1], unmeasured=19)
    assert not planned[0].any() and planned[1][0] == pytest.approx(0.95 ** (1 / 20), abs=5e-4)
    # without resamples errors add up; what is decided leaves more to the others (Holm)
    decided, levels = step_down(np.array([0.02, 0.001, 0.6]), None)
    assert decided.tolist() == [True, True, False]
    assert levels == pytest.approx([1 - 0.05 / 2, 1 - 0.05 / 3, 0.95])


def test_the_chance_of_any_false_decision_is_five_percent() -> None:
    """Correlated claims whose truths are all at the threshold."""
    rng, wrong, times = np.random.default_rng(13), 0, 150
    for _ in range(times):
        common = rng.normal(size=(1, 120))
        values = 0.7 * common + rng.exponential(size=(8, 120)) - 1
        found, together = estimate([sample(v) for v in values], 120, resamples=1999)
        decided, _ = step_down(np.array([i.p(0.0) for i in found]), together)
        wrong += decided.any()
    assert wrong / times <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / times)


def test_intervals_widen_with_the_level() -> None:
    values = np.random.default_rng(14).beta(2, 5, 150)
    table = np.stack([values, values + 0.01, values - 0.02])
    for s in (
        sample(values),
        sample(values[:50], bounds=(0.0, 1.0)),
        Sample(values, np.arange(150), (0.0, 1.0), by_seed=table.mean(1)),
    ):
        widths = [high - low for low, high in map(interval_of(s).ends, (0.8, 0.95, 0.99, 0.998))]
        assert all(a < b for a, b in pairwise(widths))


def test_bettors_know_values_by_their_groups() -> None:
    """Ten copies of a document say no more than one."""
    values = np.random.default_rng(15).beta(2, 5, 40)
    once = interval_of(sample(values, bounds=(0.0, 1.0)))
    copies = sample(np.repeat(values, 10), np.repeat(np.arange(40), 10), bounds=(0.0, 1.0))
    assert isinstance(once, Betting)
    assert interval_of(copies).ends(0.95) == pytest.approx(once.ends(0.95))
