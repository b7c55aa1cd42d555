"""Orders of the words of a text, and the search for the best and the worst one.

An order is judged by the sets of words that come first in it: 5 %, 10 % … 50 % of all words. A
model says what each set is worth (how far its removal moves the output, for example). The area of
an order is the mean worth of its sets. It lies between those of the worst and of the best order,
which depend on the model and the text alone, so that areas of different texts can be compared once
they are scaled to run from 0 (the worst order) to 1 (the best one).

A search is a generator: it yields sets as rows of True and False, gets what each is worth, and
returns the nested sets of the orders that it found, the best first. Whoever runs it evaluates the
sets of many searches at once. A worth has two columns: the first is what areas add up; the second,
which may be on another scale, says which words are worth trying first.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

SHARES = np.arange(1, 11) / 20  # 5 %, 10 %, … 50 % of the words
# Worths of single words are measured again when sets differ from what they predict by one in
# log-odds (0.5 becomes 0.73), but no more than three times.
_MOVED, _RENEWALS = 1.0, 3

Sets = Bool[np.ndarray, "_ _"]  # a row for each set, a column for each word
Worth = Float[np.ndarray, "_ 2"]
Chains = Bool[np.ndarray, "chain size unit"]
Search = Generator[Sets, Worth, Chains]


class Grid(NamedTuple):
    """The sizes of the sets by which an order of n words is judged.

    Short texts have fewer sizes than shares.

    sizes     ascending
    weights   the share of the shares that fall on each size
    """

    sizes: Int[np.ndarray, "size"]
    weights: Float[np.ndarray, "size"]


def cuts(n: int) -> Int[np.ndarray, "share"]:
    """How many of n words are 5 %, 10 %, … 50 % of them: rounded up, and at least one."""
    # the share times the length may lie a rounding error above a whole number
    return np.maximum(1, np.ceil(SHARES * n - 1e-9)).astype(int)


def grid(n: int) -> Grid:
    sizes, counts = np.unique(cuts(n), return_counts=True)
    return Grid(sizes, counts / counts.sum())


# Orders


def random_keys(rng: np.random.Generator, orders: int, n: int) -> Float[np.ndarray, "order unit"]:
    """Random numbers that order n words, or those among them that have the same score.

    Every second order is the first one backwards: what comes early in one comes late in the other,
    so that their mean varies less than that of two independent orders.
    """
    keys = rng.random((-(-orders // 2), n))
    return np.stack([keys, -keys], 1).reshape(-1, n)[:orders]


def tied_orders(
    scores: Float[np.ndarray, "unit"], keys: Float[np.ndarray, "order unit"]
) -> Int[np.ndarray, "order unit"]:
    """Orders by falling score, one for each row of keys, which decide between equal scores.

    With constant scores the orders are random ones, those of the keys alone.
    """
    ranks = tie_ranks(scores)
    return np.stack([np.lexsort((key, -ranks)) for key in keys])


def tie_ranks(scores: Float[np.ndarray, "unit"]) -> Int[np.ndarray, "unit"]:
    """Ranks from 0 for the lowest score; scores that differ by rounding errors only share one."""
    ranks = np.zeros(len(scores), dtype=int)
    ascending = np.argsort(scores, kind="stable")
    x = scores[ascending]
    # single precision rounds a score by 1e-7 of itself; a difference of outputs is rounded by 1e-9
    # of the largest
    rounding = 1e-6 * np.abs(x[1:]) + 1e-9 * np.abs(x).max(initial=0)
    ranks[ascending[1:]] = np.cumsum(np.diff(x) > rounding)
    return ranks


def first(
    orders: Int[np.ndarray, "order unit"], sizes: Int[np.ndarray, "size"]
) -> Bool[np.ndarray, "order size unit"]:
    """The sets of words that come first in each order, by size."""
    position = np.argsort(orders, axis=1)
    return position[:, None, :] < sizes[None, :, None]


# The search


def search(n: int, width: int, candidates: int, exact: int) -> Search:
    """Good orders of n words: all orders if there are at most `exact` words, else some of them."""
    return every_order(n) if n <= exact else beam(n, width, candidates)


def every_order(n: int) -> Search:
    """The best of all orders, from the worth of every set of a size on the grid.

    The best order that begins with the set S has the area w|S| · worth(S), plus that of the best
    order that begins with one of the sets S without one word.
    """
    sizes, weights = grid(n)
    assert (np.diff(sizes, prepend=0) == 1).all()  # sizes skip none if there are 20 words or fewer
    number = np.arange(2**n)
    member = (number[:, None] >> np.arange(n) & 1).astype(bool)
    size = member.sum(1)
    asked = np.flatnonzero((size >= 1) & (size <= sizes[-1]))
    worth = np.zeros(2**n)
    worth[asked] = (yield member[asked])[:, 0]
    area, last = np.zeros(2**n), np.zeros(2**n, dtype=int)
    for k, weight in zip(sizes, weights, strict=True):
        sets = np.flatnonzero(size == k)
        before = sets[:, None] ^ (1 << np.arange(n))
        areas = np.where(member[sets], area[before], -np.inf)
        last[sets] = areas.argmax(1)
        area[sets] = weight * worth[sets] + areas.max(1)
    largest = np.flatnonzero(size == sizes[-1])
    at = int(largest[area[largest].argmax()])
    chain = []
    while at:
        chain.append(member[at])
        at ^= 1 << int(last[at])
    return np.stack(chain[::-1])[None]


class _State(NamedTuple):
    """Nested sets up to some size.

    area       the part of the area that they make
    chain      the sets
    log_odds   the worth of the last one, in the second column
    """

    area: float
    chain: tuple[Bool[np.ndarray, "unit"], ...]
    log_odds: float

    def last(self, n: int) -> Bool[np.ndarray, "unit"]:
        return self.chain[-1] if self.chain else np.zeros(n, dtype=bool)


def beam(n: int, width: int, candidates: int) -> Search:
    """Good orders of n words by beam search: from each size to the next, the `width` best stay.

    A set grows by the words that are worth most: where it needs m more, by the best m - 1 of those
    that it lacks, and by one of the `candidates` after them. So the area of the best order is at
    least the one that is found.

    What a word is worth is measured by itself at first. Words that count only when others are gone
    are missed by that. So it is measured again, beside the best set, when the worths of single
    words no longer predict what sets are worth.
    """
    sizes, weights = grid(n)
    alone = (yield np.eye(n, dtype=bool))[:, 1].copy()
    states = [_State(0.0, (), 0.0)]
    error, renewals = 0.0, 0
    for size, weight in zip(sizes, weights, strict=True):
        if error > _MOVED and renewals < _RENEWALS:
            best = states[0].last(n)
            others = np.flatnonzero(~best)
            alone[others] = (yield best | np.eye(n, dtype=bool)[others])[:, 1] - states[0].log_odds
            error, renewals = 0.0, renewals + 1
        grown = _grown(states, np.argsort(-alone, kind="stable"), int(size), candidates)
        worth = yield np.stack([state.last(n) for state in grown])
        measured = [
            _State(state.area + float(weight * w), state.chain, float(log_odds))
            for state, (w, log_odds) in zip(grown, worth, strict=True)
        ]
        before = {state.last(n).tobytes(): state.log_odds for state in states}
        states = sorted(measured, key=lambda state: -state.area)[:width]
        best, *earlier = states[0].chain[::-1]
        smaller = earlier[0] if earlier else np.zeros(n, dtype=bool)
        gain = states[0].log_odds - before[smaller.tobytes()]
        error += abs(gain - float(alone[best & ~smaller].sum()))
    return np.stack([np.stack(state.chain) for state in states])


def _grown(
    states: Sequence[_State], ranked: Int[np.ndarray, "unit"], size: int, candidates: int
) -> list[_State]:
    """The sets of this size that are tried; of two ways to a set, the one with the larger area."""
    n = len(ranked)
    grown: dict[bytes, _State] = {}
    for state in states:
        here = state.last(n)
        left, more = ranked[~here[ranked]], size - int(here.sum())
        # the worth of single words is known: all of them are candidates for the first place
        choices = n if size == 1 else candidates
        for last in left[more - 1 : more - 1 + choices]:
            larger = here.copy()
            larger[left[: more - 1]] = True
            larger[last] = True
            key = larger.tobytes()
            if key not in grown or grown[key].area < state.area:
                grown[key] = state._replace(chain=(*state.chain, larger))
    return list(grown.values())
