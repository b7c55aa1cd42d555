"""The algebra of efficient attention, against slow and literal solutions of the same problems."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from heed.algebra.entropy import most_entropy_batch, most_entropy_from
from heed.algebra.least_norm import excess, least_norm_batch
from heed.algebra.null_space import NotReached, Space, Variant
from heed.errors import InputError


def softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def drawn(
    n: int,
    p: int,
    rank: int,
    spread: float,
    seed: int = 0,
    rows: int = 3,
    bias: float = 0.0,
    last: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Values of some rank (their last direction of size `last`) and rows of attention, from
    diffuse to peaked."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(n, rank)), rng.normal(size=(rank, p))
    left[:, -1:] *= last
    return left @ right + bias, softmax(spread * rng.normal(size=(rows, n)))


def least_norm_by_supports(T: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Try every support: the least norm with the output kept and zeros elsewhere, if it is not
    negative."""
    n, best = len(row), row
    B = np.hstack([T, np.ones((n, 1))])
    for size in range(1, n + 1):
        for support in combinations(range(n), size):
            some = list(support)
            x = np.zeros(n)
            x[some] = np.linalg.lstsq(B[some].T, B.T @ row, rcond=None)[0]
            fits = np.abs(B.T @ (x - row)).max() < 1e-10 and x.min() >= -1e-12
            if fits and np.linalg.norm(x) < np.linalg.norm(best) - 1e-13:
                best = x
    return best


def program(T: np.ndarray, row: np.ndarray, cost: np.ndarray) -> float:
    B = np.hstack([T, np.ones((len(row), 1))])
    strict = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(
        cost, A_eq=B.T, b_eq=B.T @ row, bounds=(0, None), method="highs", options=strict
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spread", [0.3, 1.5, 4.0])
@pytest.mark.parametrize(("n", "p", "rank"), [(5, 1, 1), (7, 2, 2), (8, 6, 3), (6, 9, 4)])
def test_least_norm_is_the_best_of_all_supports(
    n: int, p: int, rank: int, spread: float, seed: int
) -> None:
    T, rows = drawn(n, p, rank, spread, seed)
    found = Space.of(T, tolerance=1e-10).efficient(rows).rows
    for row, x in zip(rows, found, strict=True):
        np.testing.assert_allclose(x, least_norm_by_supports(T, row), atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("n", "p", "rank"), [(6, 2, 2), (9, 3, 2), (12, 5, 5)])
def test_both_variants_against_a_general_solver(n: int, p: int, rank: int, seed: int) -> None:
    T, rows = drawn(n, p, rank, 1.0, seed)
    B = np.hstack([T, np.ones((n, 1))])
    kept = np.linalg.svd(B)[0][:, : rank + 1]  # without the directions that are none
    space = Space.of(T, tolerance=1e-10)
    goals = {
        "norm": (lambda x: x @ x / 2, lambda x: x),
        "entropy": (
            lambda x: x @ np.log(np.maximum(x, 1e-300)),
            lambda x: np.log(np.maximum(x, 1e-300)) + 1,
        ),
    }
    for variant, (goal, slope) in goals.items():
        for row, x in zip(rows, space.efficient(rows, variant).rows, strict=True):  # type: ignore[arg-type]
            best = minimize(
                goal,
                row,
                jac=slope,
                bounds=[(0, 1)] * n,
                method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
                constraints={
                    "type": "eq",
                    "fun": lambda y, row=row: kept.T @ (y - row),
                    "jac": lambda y: kept.T,
                },
            )
            assert goal(x) <= best.fun + 1e-9
            np.testing.assert_allclose(x, best.x, atol=2e-4)


@pytest.mark.parametrize("spread", [0.5, 2.0, 6.0])
@pytest.mark.parametrize(("n", "p"), [(40, 10), (90, 20), (150, 30)])
def test_most_entropy_is_a_softmax_of_the_values(n: int, p: int, spread: float) -> None:
    T, rows = drawn(n, p, p, spread, rows=5)
    for x in Space.of(T).efficient(rows, "entropy").rows:
        seen = x > 1e-200
        B = np.hstack([T, np.ones((n, 1))])[seen]
        weights = x[
            seen
        ]  # in the fit of log x, small weights count as little as they do in the output
        fit = np.linalg.lstsq(B * weights[:, None], np.log(x[seen]) * weights, rcond=None)[0]
        np.testing.assert_allclose(weights * np.exp(B @ fit - np.log(x[seen])), weights, atol=1e-9)


@pytest.mark.parametrize("spread", [0.3, 2.0, 5.0, 12.0])
@pytest.mark.parametrize(("n", "p"), [(90, 12), (160, 32), (300, 64)])
def test_many_rows_at_once_are_the_rows_one_by_one(n: int, p: int, spread: float) -> None:
    """Those that the method for many rows does not finish are told apart, and solved one by one."""
    T, rows = drawn(n, p, p, spread, rows=24)
    space = Space.of(T)
    found = least_norm_batch(space.Q, rows @ space.Q)
    one_by_one = np.stack([space._least_distance(row, row @ space.Q)[0] for row in rows])
    done = ~np.isnan(found).any(1)
    assert done.mean() > 0.9
    np.testing.assert_allclose(np.maximum(found[done], 0), one_by_one[done], atol=1e-11)
    whole = space.efficient(rows)
    np.testing.assert_allclose(whole.rows, one_by_one, atol=1e-11)
    assert whole.fallbacks <= (~done).sum()


def test_few_steps_do_not_pass_for_an_answer() -> None:
    T, rows = drawn(200, 32, 32, 8.0, rows=10)
    space = Space.of(T)
    assert np.isnan(least_norm_batch(space.Q, rows @ space.Q, steps=3)).all()


@pytest.mark.parametrize("spread", [0.5, 2.0, 3.0])
def test_rows_that_are_not_peaked_are_found_before_the_first_step(spread: float) -> None:
    """By Newton's method; both methods give the one answer."""
    T, rows = drawn(200, 32, 32, spread, rows=40)
    space = Space.of(T)
    found = least_norm_batch(space.Q, rows @ space.Q, steps=0)
    done = ~np.isnan(found).any(1)
    assert done.mean() > (0.9 if spread < 3 else 0.2)
    one_by_one = np.stack([space._least_distance(row, row @ space.Q)[0] for row in rows[done]])
    np.testing.assert_allclose(found[done], one_by_one, atol=1e-12)


shapes = st.tuples(st.integers(2, 30), st.integers(1, 12), st.integers(1, 12))


@settings(max_examples=150)
@given(
    shapes,
    st.floats(0.01, 12),
    st.sampled_from([0.0, 3.0, 100.0]),
    st.sampled_from([1.0, 1e-3, 1e-9, 1e-15, 0.0]),
    st.integers(0, 10**6),
)
def test_what_must_hold_holds(
    shape: tuple, spread: float, bias: float, last: float, seed: int
) -> None:
    n, p, rank = shape
    T, rows = drawn(n, p, min(rank, n, p), spread, seed, bias=bias, last=last)
    space = Space.of(T)
    scale = np.abs(T).max()
    preserved = space.sum_preserving(rows)
    assert np.abs(preserved.sum(1) - 1).max() < 1e-9
    for variant in ("norm", "entropy"):
        x = space.efficient(rows, variant).rows  # type: ignore[arg-type]
        assert x.min() >= -1e-12 and np.abs(x.sum(1) - 1).max() < 1e-10
        assert np.abs((x - rows) @ T).max() <= 1e-8 * scale  # values may all be zero
    least = space.efficient(rows).rows
    assert (np.linalg.norm(least, axis=1) <= np.linalg.norm(rows, axis=1) + 1e-12).all()
    inside = preserved.min(1) >= 0
    np.testing.assert_allclose(least[inside], preserved[inside], atol=1e-12)
    assert (np.abs(least[~inside] - preserved[~inside]).max(1) > 0).all()
    if not space.nullity:
        np.testing.assert_array_equal(least, rows)


@settings(max_examples=60)
@given(
    st.tuples(st.integers(6, 60), st.integers(1, 20)),
    st.sampled_from([0.1, 1.0, 4.0, 12.0, 60.0]),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 3.0]),
    st.integers(0, 10**6),
)
def test_rows_with_the_same_output_share_it(
    shape: tuple, spread: float, equal: bool, scales: float, seed: int
) -> None:
    """From flat to peaked rows, with and without equal keys, with values of one size and of very
    different ones."""
    n, p = shape
    rng = np.random.default_rng(seed)
    T = rng.normal(size=(n, p)) * np.exp(scales * rng.normal(size=p))
    T = T[rng.integers(0, max(2, n // 3), n)] if equal else T
    space = Space.of(T)
    row = softmax(spread * rng.normal(size=n))
    other = space.farthest(row)
    for variant in ("norm", "entropy"):
        one, two = space.efficient(np.stack([row, other]), variant).rows  # type: ignore[arg-type]
        np.testing.assert_allclose(one, two, atol=1e-9)
        np.testing.assert_allclose(space.efficient(row[None], variant).rows[0], one, atol=1e-9)  # type: ignore[arg-type]
    assert not space.nullity or spread > 4 or np.abs(row - other).max() > 0


def test_the_rank_of_a_known_space() -> None:
    T, _ = drawn(20, 8, 5, 1.0)
    space = Space.of(T)
    assert space.nullity == 20 - 6
    assert Space.of(np.ones((20, 3))).nullity == 19  # a constant is in the sums already
    assert Space.of(np.zeros((20, 3))).nullity == 19
    assert Space.of(1e-30 * T).nullity == Space.of(1e30 * T).nullity == 14
    np.testing.assert_allclose(space.N.T @ np.hstack([T, np.ones((20, 1))]), 0, atol=1e-12)
    near, _ = drawn(20, 8, 5, 1.0, last=1e-7)
    assert Space.of(near).nullity == 14 and Space.of(near, tolerance=1e-5).nullity == 15


def test_effective_attention_is_not_attention() -> None:
    T, rows = drawn(30, 4, 4, 2.0)
    effective = Space.of(T).effective(rows)
    np.testing.assert_allclose(effective @ T, rows @ T, atol=1e-12)
    np.testing.assert_allclose(effective, rows @ T @ np.linalg.pinv(T), atol=1e-12)
    assert np.abs(effective.sum(1) - 1).max() > 1e-3 and effective.min() < 0


@pytest.mark.parametrize("spread", [0.5, 2.0, 5.0])
@pytest.mark.parametrize(("n", "p"), [(6, 1), (12, 1), (12, 3), (25, 6), (25, 20), (10, 0)])
def test_intervals_and_the_farthest_row_against_plain_linear_programs(
    n: int, p: int, spread: float
) -> None:
    T, rows = drawn(n, p, p, spread) if p else (np.ones((n, 1)), drawn(n, 1, 1, spread)[1])
    space = Space.of(T)
    for row in rows:
        for i, (low, high) in enumerate(space.intervals(row)):
            unit = np.eye(n)[i]
            np.testing.assert_allclose(
                [low, high], [program(T, row, unit), -program(T, row, -unit)], atol=1e-8
            )
        some = np.zeros((1, n))
        some[0, [0, 2, 4]] = 1
        low, high = space.intervals(row, some)[0]
        np.testing.assert_allclose(
            [low, high], [program(T, row, some[0]), -program(T, row, -some[0])], atol=1e-8
        )
        np.testing.assert_allclose(space.smallest(row)(row) @ row, program(T, row, row), atol=1e-8)
        assert (
            np.abs(space.farthest(row) - row).sum()
            >= np.abs(space.smallest(row)(row) - row).sum() - 1e-9
        )


def test_the_interval_of_one_number_has_a_closed_form_at_its_edges() -> None:
    w = np.array([[3.0], [1.0], [1.0], [0.0]])
    for row in (
        [0.9, 0.05, 0.05, 0.0],
        [0.0, 0.5, 0.5, 0.0],
        [0.0, 0.0, 0.0, 1.0],
        [0.25, 0.25, 0.25, 0.25],
    ):
        found = Space.of(w).intervals(np.array(row))
        for i, (low, high) in enumerate(found):
            unit = np.eye(4)[i]
            expected = [program(w, np.array(row), unit), -program(w, np.array(row), -unit)]
            np.testing.assert_allclose([low, high], expected, atol=1e-9)


@settings(max_examples=60)
@given(st.integers(2, 12), st.integers(0, 10**6))
def test_equal_and_extreme_values_in_the_closed_form(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = rng.choice([0.0, 0.0, 1.05, 0.244, -1.05], (n, 1))
    row = rng.dirichlet(np.ones(n)) * (rng.random(n) < 0.5)
    if rng.random() < 0.5:
        row = np.where(w[:, 0] == w.min(), row, 0)  # all weight at one end
    row = row / row.sum() if row.sum() else np.eye(n)[0]
    for i, (low, high) in enumerate(Space.of(w).intervals(row)):
        unit = np.eye(n)[i]
        np.testing.assert_allclose(
            [low, high], [program(w, row, unit), -program(w, row, -unit)], atol=1e-7
        )


def test_a_mixture_of_weights_is_no_single_weight() -> None:
    w, row = np.array([[3.0], [1.0], [2.0], [0.0]]), np.array([0.1, 0.3, 0.2, 0.4])
    some = np.array([[0.6, 0.8, 0.0, 0.0]])
    low, high = Space.of(w).intervals(row, some)[0]
    np.testing.assert_allclose(
        [low, high], [program(w, row, some[0]), -program(w, row, -some[0])], atol=1e-8
    )


@pytest.mark.parametrize("spread", [5.0, 20.0, 100.0])
@pytest.mark.parametrize("n", [12, 40, 90])
def test_equal_keys_and_peaked_rows_are_solved(n: int, spread: float) -> None:
    rng = np.random.default_rng(0)
    T = rng.normal(size=(6, 8))[rng.integers(0, 6, n)]  # the same few words again and again
    rows = softmax(spread * rng.normal(size=(40, n)))
    space = Space.of(T)
    for variant in ("norm", "entropy"):
        x = space.efficient(rows, variant).rows  # type: ignore[arg-type]
        for key in np.unique(T[:, 0]):  # equal keys get equal weights
            same = x[:, T[:, 0] == key]
            np.testing.assert_allclose(
                same, np.broadcast_to(same.mean(1, keepdims=True), same.shape), atol=1e-10
            )


@pytest.mark.parametrize("spread", [8.0, 20.0, 60.0])
@pytest.mark.parametrize(("n", "p"), [(30, 8), (60, 8), (60, 32), (90, 32)])
@pytest.mark.parametrize("scales", [0.0, 1.0])
def test_the_least_norm_is_the_least_where_keys_are_equal(
    n: int, p: int, spread: float, scales: float
) -> None:
    """More different keys than the output has directions: the exact method alone stops too soon on
    some of these."""
    rng = np.random.default_rng(26)
    for _ in range(6):
        T = rng.normal(size=(n // 3, p)) * np.exp(scales * rng.normal(size=p))
        T = T[rng.integers(0, n // 3, n)]
        row = softmax(spread * rng.normal(size=(1, n)))[0]
        space = Space.of(T)
        (x,) = space.efficient(row[None]).rows
        assert (
            x @ space.smallest(row)(x) >= x @ x - 1e-8
        )  # no member of the class lies further down the slope of the norm
        (shared,) = space.efficient(space.farthest(row)[None]).rows
        np.testing.assert_allclose(shared, x, atol=1e-9)
        for key in np.unique(T[:, 0]):
            assert np.ptp(x[T[:, 0] == key]) < 1e-12


def test_the_excess_of_a_norm_is_never_underestimated() -> None:
    T, rows = drawn(20, 6, 6, 4.0, rows=10)
    space, rng = Space.of(T), np.random.default_rng(3)
    least = space.efficient(rows).rows
    above = (np.square(rows).sum(1) - np.square(least).sum(1)) / 2
    for y in (
        rng.normal(size=(200, 10, space.Q.shape[1])) * 10.0 ** rng.uniform(-3, 2, (200, 1, 1))
    ) @ space.Q.T:
        assert (excess(rows, y) >= above - 1e-12).all()
        assert (excess(least, y) >= 0).all()
    inside = (sure := space.sum_preserving(rows)).min(1) > 0  # there it is its own multiplier
    np.testing.assert_allclose(excess(sure[inside], sure[inside]), 0, atol=1e-20)


def test_a_least_norm_that_is_not_certain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    T, rows = drawn(20, 6, 6, 6.0)
    space = Space.of(T)
    open_ = rows[(rows @ space.Q @ space.Q.T).min(1) < 0]
    assert len(open_) and space.efficient(open_).rows.min() >= 0
    monkeypatch.setattr(
        "heed.algebra.null_space.least_norm_batch", lambda Q, c: np.full((len(c), len(Q)), np.nan)
    )
    space.efficient(open_)
    # a member of the class, but not the least; nothing is known of multipliers, or something wrong
    monkeypatch.setattr(Space, "polished", lambda self, row, near: row)
    for weights in (np.zeros(20), np.ones(20)):
        monkeypatch.setattr("scipy.optimize.nnls", lambda A, b, maxiter, w=weights: (w, 0.0))
        for row in open_:
            with pytest.raises(NotReached):
                space.efficient(row[None])


@pytest.mark.parametrize("too_much", [0.0, 1.0])
def test_many_rows_are_done_when_their_norm_is_certain_to_be_the_least(
    too_much: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    T, rows = drawn(200, 32, 32, 8.0, rows=10)
    space = Space.of(T)
    monkeypatch.setattr("heed.algebra.least_norm.excess", lambda x, y: np.full(len(x), too_much))
    assert (
        np.isnan(least_norm_batch(space.Q, rows @ space.Q)).all(1).tolist() == [too_much > 0] * 10
    )


def test_equal_keys_are_equal_in_the_basis_to_the_bit() -> None:
    """However small the directions that tell others apart: else equal keys would be taken for
    different ones."""
    rng = np.random.default_rng(0)
    keys = (rng.normal(size=(27, 26)) * np.exp(3 * rng.normal(size=26)))[rng.integers(0, 27, 83)]
    for precision in (1e-7, 1e-16):
        Q = Space.of(keys, precision=precision).Q
        assert len(np.unique(Q, axis=0)) == len(np.unique(keys, axis=0))
        np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 4.0, 8.0])
def test_what_a_solver_leaves_of_errors_is_taken_away(spread: float) -> None:
    T, (row,) = drawn(120, 40, 40, spread, rows=1)
    space = Space.of(T)
    best = space.efficient(row[None]).rows[0]
    rng = np.random.default_rng(1)
    off = np.where(best > 0, best + 1e-9 * rng.normal(size=len(best)), -1e-11)
    found = space.polished(row, off)
    B = np.hstack([T, np.ones((120, 1))])
    assert np.abs(B.T @ (off - row)).max() > 1e-9  # which would be refused
    assert np.abs(B.T @ (found - row)).max() < 1e-12 and found.min() >= 0
    np.testing.assert_allclose(found, best, atol=1e-6)
    assert np.isnan(space.polished(row, np.full(120, np.nan))).all()  # no answer stays none


def test_errors_are_taken_away_from_rows_whose_weights_are_smaller_than_the_correction() -> None:
    T, rows = drawn(111, 64, 64, 8.0, rows=10)
    space, rng = Space.of(T), np.random.default_rng(2)
    for row in rows:
        found = space.polished(row, row + np.where(row > 1e-9, 1e-9 * rng.normal(size=len(row)), 0))
        assert np.abs(space.Q.T @ (found - row)).max() < 1e-12 and found.min() >= 0


def test_the_farthest_row_is_farther_than_the_one_that_overlaps_least() -> None:
    T, rows = drawn(70, 64, 64, 1.0, rows=4)
    space = Space.of(T)
    gained = []
    for row in rows:
        plain = space.smallest(row)(row)
        gained.append(np.abs(space.farthest(row) - row).sum() - np.abs(plain - row).sum())
    assert min(gained) >= -1e-9 and max(gained) > 0.01


def test_where_the_space_is_trivial_everything_is_the_row() -> None:
    T, rows = drawn(8, 20, 8, 1.0)
    space = Space.of(T)
    assert space.nullity == 0
    np.testing.assert_array_equal(space.efficient(rows).rows, rows)
    np.testing.assert_array_equal(space.farthest(rows[0]), rows[0])
    np.testing.assert_allclose(space.intervals(rows[0]), np.stack([rows[0], rows[0]], 1))


def test_stacked_heads_keep_a_sum_each() -> None:
    T, _ = drawn(24, 3, 3, 1.0)
    rng = np.random.default_rng(1)
    row = np.concatenate([softmax(rng.normal(size=12)), softmax(3 * rng.normal(size=12))])
    space = Space.of(T, np.repeat([0, 1], 12))
    assert space.nullity == 24 - 5
    B = np.hstack([T, np.repeat(np.eye(2), 12, 0)])
    for variant in ("norm", "entropy"):
        x = space.efficient(row[None], variant).rows[0]  # type: ignore[arg-type]
        np.testing.assert_allclose(B.T @ x, B.T @ row, atol=1e-9)
        assert x.min() >= 0
    best = minimize(
        lambda x: x @ x / 2,
        row,
        jac=lambda x: x,
        bounds=[(0, 1)] * 24,
        method="SLSQP",
        options={"ftol": 1e-15},
        constraints={"type": "eq", "fun": lambda x: B.T @ (x - row), "jac": lambda x: B.T},
    )
    np.testing.assert_allclose(space.efficient(row[None]).rows[0], best.x, atol=1e-5)


def test_a_class_on_the_boundary_has_its_entropy_there() -> None:
    T = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1], [5, 5]])
    row = np.array(
        [[0.1, 0.2, 0.3, 0.4, 0.0]]
    )  # the last key cannot take part: the others lie on an edge of the hull
    for variant in ("norm", "entropy"):
        x = Space.of(T).efficient(row, variant).rows[0]  # type: ignore[arg-type]
        np.testing.assert_allclose(x, [0.15, 0.15, 0.35, 0.35, 0], atol=1e-9)


@pytest.mark.parametrize("spread", [2.0, 8.0, 20.0])
def test_most_entropy_within_the_class_is_that_of_the_dual(spread: float) -> None:
    """Two ways to the same row; the first is for those that are too peaked for the second."""
    for seed in range(20):
        T, rows = drawn(36, 7, 7, spread, seed, rows=4)
        space = Space.of(T)
        dual = most_entropy_batch(
            space.Q[:, 1:], space.group, rows @ space.Q[:, 1:], np.ones((4, 1))
        )
        for row, x in zip(rows, dual, strict=True):
            inside = most_entropy_from(space.Q, row, row, 500)
            assert inside is not None and np.abs(space.Q.T @ (inside - row)).max() < 1e-12
            if not np.isnan(x).any():
                np.testing.assert_allclose(inside, x, atol=1e-9)


def test_a_row_that_only_newtons_method_within_the_class_can_do() -> None:
    """Keys that vanish on the way and are needed in the end: it used to stop far from the end,
    without a word."""
    found = 0
    for seed in (57, 105, 110, 196, 393, 408):
        T, (row,) = drawn(36, 7, 7, 20.0, seed, rows=1)
        space = Space.of(T)
        dual = most_entropy_batch(
            space.Q[:, 1:], space.group, row[None] @ space.Q[:, 1:], np.ones((1, 1))
        )
        if space._fits(row[None], dual)[0]:
            continue
        found += 1
        x = space.efficient(row[None], "entropy").rows[0]
        some = x > 1e-12  # nearly all that the output knows of
        rest = (
            minimize(  # no member of the class on these keys has more entropy, says another solver
                lambda y: y @ np.log(np.maximum(y, 1e-300)),
                x[some],
                jac=lambda y: np.log(np.maximum(y, 1e-300)) + 1,
                bounds=[(0, 1)] * int(some.sum()),
                method="SLSQP",
                options={"ftol": 1e-15, "maxiter": 200},
                constraints={
                    "type": "eq",
                    "fun": lambda y, Q=space.Q[some], c=space.Q[some].T @ x[some]: Q.T @ y - c,
                },
            )
        )
        assert rest.fun >= x[some] @ np.log(x[some]) - 1e-9
    assert found


@pytest.mark.parametrize("apart", [1e-2, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12])
@pytest.mark.parametrize("variant", ["norm", "entropy"])
def test_nearly_equal_keys_get_the_right_weights_or_none(apart: float, variant: Variant) -> None:
    """Keys at 0, e and 1: of all attention with this output that of (.7, .3, 0) has both the least
    norm and, for small e, the most entropy to first order. Rounding of the output counts 1/e
    times."""
    T = np.array([[0.0], [apart], [1.0]])
    space, found = Space.of(T), []
    for row in ([0.7, 0.3, 0.0], [1 - 0.3 * apart, 0.0, 0.3 * apart]):
        try:
            found.append(space.efficient(np.array([row]), variant).rows[0])
        except NotReached:
            assert apart <= (1e-7 if variant == "entropy" else 1e-9)
            continue
        (x,) = found[-1:]
        assert abs(x[1] + x[2] / apart - 0.3) < 1e-9 + 4e-16 / apart  # the output
        if variant == "norm":  # by hand: the least of (1 - y - z)² + y² + z² with y e + z = .3 e
            np.testing.assert_allclose(x, [0.7, 0.3, 0], atol=1e-9 + 4e-16 / apart)
    if len(found) == 2:
        np.testing.assert_allclose(found[0], found[1], atol=1e-9 + 4e-16 / apart)


def test_a_linear_program_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heed.algebra.programs._PATIENCE", 0.2)
    with pytest.raises(NotReached):
        Space.of(np.array([[0.0], [1e-9], [1.0]])).efficient(np.array([[0.7, 0.3, 0.0]]), "entropy")


def test_sums_may_have_any_names_and_rows_may_be_none() -> None:
    T, _ = drawn(6, 1, 1, 1.0)
    T[3:] = T[:3]
    row = np.full((1, 6), 1 / 3)
    plain = Space.of(T, np.array([0, 0, 0, 1, 1, 1])).efficient(row).rows
    for names in (np.array([2**53 + 1] * 3 + [2**53] * 3), np.array([7] * 3 + [-5] * 3)):
        np.testing.assert_allclose(Space.of(T, names).efficient(row).rows, plain, atol=1e-12)
    for variant in ("norm", "entropy"):
        assert Space.of(T).efficient(np.empty((0, 6)), variant).rows.shape == (0, 6)  # type: ignore[arg-type]


def test_a_loose_tolerance_is_an_error_and_not_a_wrong_answer() -> None:
    T, rows = drawn(30, 6, 6, 2.0, last=1e-3)
    with pytest.raises(NotReached, match="smaller one"):
        Space.of(T, tolerance=0.05).efficient(rows)
    with pytest.raises(NotReached):
        Space.of(T, tolerance=0.05).effective(rows)
    T, rows = drawn(30, 2, 2, 2.0, last=1e-3)
    with pytest.raises(
        NotReached, match="smaller one"
    ):  # one number is kept, and another one dropped
        Space.of(T, tolerance=0.05).intervals(rows[0])


def test_what_is_not_attention_is_refused() -> None:
    T, rows = drawn(6, 2, 2, 1.0)
    space = Space.of(T)
    for bad in (-rows, rows * np.nan, rows[:, :4]):
        with pytest.raises(InputError):
            space.efficient(bad)
    with pytest.raises(InputError):
        Space.of(T, tolerance=2.0)
    with pytest.raises(InputError):
        Space.of(T * np.inf)
