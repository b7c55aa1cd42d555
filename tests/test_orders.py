"""Orders of words, their areas, and the search for the best one, beside loops over all orders."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

from heed.algebra.orders import (
    Search,
    beam,
    cuts,
    every_order,
    first,
    grid,
    random_keys,
    search,
    tied_orders,
)

Worths = dict[frozenset[int], float]


def every_worth(n: int, seed: int) -> Worths:
    """A worth for every set of words, with nothing that orders could rely on."""
    rng = np.random.default_rng(seed)
    sets = [frozenset(np.flatnonzero([m >> i & 1 for i in range(n)]).tolist()) for m in range(2**n)]
    return dict(zip(sets, rng.normal(size=2**n).tolist(), strict=True))


def area(order: tuple[int, ...], worths: Worths) -> float:
    """The mean over 5 %, 10 %, … 50 % of the words, as it is written down."""
    n = len(order)
    sizes = [max(1, -(-k * n // 20)) for k in range(1, 11)]
    return float(np.mean([worths[frozenset(order[:size])] for size in sizes]))


def run(searching: Search, worths: Worths) -> tuple[np.ndarray, int]:
    """What a search returns, and how many different sets it asked for."""
    asked: set[frozenset[int]] = set()
    sets = next(searching)
    while True:
        named = [frozenset(np.flatnonzero(row).tolist()) for row in sets]
        asked |= set(named)
        worth = np.array([worths[name] for name in named])
        try:
            sets = searching.send(np.stack([worth, worth], 1))
        except StopIteration as end:
            return end.value, len(asked)


def area_of(chain: np.ndarray, worths: Worths) -> float:
    sets = [frozenset(np.flatnonzero(row).tolist()) for row in chain]
    assert all(small < large for small, large in pairwise(sets))
    assert [len(s) for s in sets] == grid(chain.shape[1]).sizes.tolist()
    weights = grid(chain.shape[1]).weights
    return float(sum(w * worths[s] for w, s in zip(weights, sets, strict=True)))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_the_exact_search_finds_the_best_of_all_orders(n: int) -> None:
    for seed in range(5):
        worths = every_worth(n, seed)
        areas = [area(order, worths) for order in permutations(range(n))]
        for sign in (1, -1):
            signed = {s: sign * w for s, w in worths.items()}
            chains, _ = run(every_order(n), signed)
            assert sign * area_of(chains[0], signed) == pytest.approx(
                max(areas) if sign > 0 else min(areas), abs=1e-12
            )


@pytest.mark.parametrize("n", [3, 6, 9, 12])
def test_a_beam_never_beats_all_orders_and_finds_additive_worths(n: int) -> None:
    worths = every_worth(n, 1)
    (best,), _ = run(every_order(n), worths)
    chains, asked = run(beam(n, 5, 2), worths)
    assert 1 <= len(chains) <= 5 and asked < 2**n - 1
    found = [area_of(chain, worths) for chain in chains]
    assert found == sorted(found, reverse=True)
    assert found[0] <= area_of(best, worths) + 1e-12
    single = np.random.default_rng(2).normal(size=n)
    additive = {s: float(sum(single[i] for i in s)) for s in worths}
    chains, _ = run(beam(n, 5, 2), additive)
    expected = area(tuple(np.argsort(-single).tolist()), additive)
    assert area_of(chains[0], additive) == pytest.approx(expected)


def test_a_word_that_counts_only_when_others_are_gone_is_found() -> None:
    """By itself the last word is worst of all; behind the first two, where all words count more, it
    is the best. What single words are worth is measured again as soon as it predicts no more.
    """
    n = 14
    worths = {}
    for s in every_worth(n, 0):
        others, opened = len(s & set(range(2, 13))), {0, 1} <= s
        worth_of_last = 10 if opened else -1
        worths[s] = 3.0 * len(s & {0, 1}) + others * (0.8 if opened else 0.01)
        worths[s] += worth_of_last * (13 in s)
    (chain, *_), asked = run(beam(n, 5, 2), worths)
    sets = [set(np.flatnonzero(row).tolist()) for row in chain]
    assert sets[1] == {0, 1} and 13 not in sets[2] and 13 in sets[4]
    assert asked < 120


def test_long_texts_grow_by_several_words_at_a_time() -> None:
    n = 60
    single = np.random.default_rng(3).normal(size=n)
    searching = beam(n, 3, 4)
    sets = next(searching)
    try:
        while True:
            worth = sets @ single
            sets = searching.send(np.stack([worth, worth], 1))
    except StopIteration as end:
        chain = end.value[0]
    assert chain.sum(1).tolist() == list(range(3, 31, 3))
    best = np.argsort(-single)
    assert all(set(np.flatnonzero(row)) == set(best[: row.sum()]) for row in chain)


def test_short_texts_are_searched_exactly() -> None:
    for n, exact in ((5, True), (11, True), (12, False)):
        asked = len(next(search(n, 5, 2, 11)))
        assert (asked > n) == exact


@pytest.mark.parametrize("n", [1, 2, 19, 20, 21, 100, 300])
def test_shares_of_words_are_rounded_up_and_at_least_one(n: int) -> None:
    assert cuts(n).tolist() == [max(1, -(-k * n // 20)) for k in range(1, 11)]
    sizes, weights = grid(n)
    assert weights.sum() == pytest.approx(1)
    assert [list(cuts(n)).count(size) / 10 for size in sizes] == pytest.approx(weights.tolist())
    order = np.random.default_rng(n).permutation(n)
    (chosen,) = first(order[None], sizes)
    assert [set(np.flatnonzero(row)) for row in chosen] == [set(order[:size]) for size in sizes]


def test_equal_scores_are_put_into_random_orders() -> None:
    keys = random_keys(np.random.default_rng(0), 5, 6)
    assert keys.shape == (5, 6)
    np.testing.assert_array_equal(np.argsort(keys[0]), np.argsort(keys[1])[::-1])
    constant = tied_orders(np.zeros(6), keys)
    np.testing.assert_array_equal(constant, np.argsort(keys, axis=1))
    # rounding errors order nothing, in single precision or behind a much larger score
    np.testing.assert_array_equal(tied_orders(0.1 + 1e-9 * np.arange(6), keys), constant)
    behind = tied_orders(np.array([1.0, 1e-16, 0.0, -1e-16, 2e-16, 3e-16]), keys)
    np.testing.assert_array_equal(behind, tied_orders(np.eye(6)[0], keys))
    some = tied_orders(np.array([1.0, 3.0, 1.0, 2.0, 1.0, 0.0]), keys)
    assert (some[:, :2] == [1, 3]).all() and (some[:, 5] == 5).all()
    assert {tuple(order[2:5]) for order in some.tolist()} > {tuple(some[0, 2:5].tolist())}
    distinct = tied_orders(np.array([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]), keys)
    assert (distinct == [3, 4, 5, 0, 2, 1]).all()
