"""Anchors: rules that keep a prediction in place (Ribeiro, Singh and Guestrin 2018).

A rule is a set of words. Its texts keep these words and lose every other word with probability 1/2,
independently. Its precision is the share of its texts that get the label. Its coverage is the share
of all texts, with every word lost with probability 1/2, that keep its words: 2⁻ᵏ for any k words.
So the rule of largest coverage is a shortest one, and coverage needs no samples.

If all 2ᵈ texts fit into `samples`, every rule is evaluated and the best is known for certain. Else
rules grow word by word in a beam. The best rules of each size are found by KL-LUCB (Kaufmann and
Kalyanakrishnan 2013). A text drawn for a rule that happens to keep one word more is a fair draw for
the longer rule as well, so one set of draws serves all rules that extend it.

The search is adaptive, and its estimates flatter the rule that it picks. So the reported precision
comes from texts drawn anew for that rule alone, with an exact (Clopper-Pearson) interval.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Annotated, ClassVar, Literal, TypeVar

import numpy as np
from jaxtyping import Float, Int

from heed.methods.events import Event, Held, event_of, named
from heed.methods.method import Job, Keep, Measured, Method
from heed.methods.perturbation import all_subsets
from heed.models.classifier import Classifier, Removal
from heed.settings import AtLeast, AtMost
from heed.text import counted

T = TypeVar("T")
_ENTRIES = 1 << 27  # words of texts held at once for documents that are searched side by side

Rates = Float[np.ndarray, "rule"]
Counts = Int[np.ndarray, "rule"]

# A search asks for texts (rows of words that are present) and is told which of them got the label.
Search = Generator[Keep, Held, T]


@dataclass(frozen=True)
class Anchors(Method):
    """The fewest words that, when kept, keep the label while other words are removed at random.

    A word of the rule scores what the precision loses when it is removed and the rest of the rule
    stays, at least one text in all that were drawn. Other words score 0.

    removal     "replace" by the model's filler, "delete" or "hide"; None takes the model's default
    repeats     "together": one unit per distinct word; "apart": one unit per occurrence
    precision   the precision that a rule must reach
    delta       1 - delta is the confidence of the interval
    beam        how many rules of each size are extended
    tolerance   how far a rule of the beam may fall behind one that was left out
    batch       how many texts to draw for a rule at a time
    most        the largest number of words of a rule
    samples     how many texts to evaluate; a quarter for the interval, a quarter for the scores
    """

    name: ClassVar[str] = "anchors"
    summary: ClassVar[str] = "fewest words that keep the label while others are removed"
    signed: ClassVar[bool] = False
    paper: ClassVar[str] = "ribeiro2018 kaufmann2013"

    removal: Annotated[Removal, "way to remove words"] | None = None
    repeats: Annotated[Literal["together", "apart"], "way to treat repeats"] = "together"
    precision: Annotated[float, AtLeast(0), AtMost(1)] = 0.95
    delta: Annotated[float, AtLeast(1e-9), AtMost(0.5)] = 0.05
    beam: Annotated[int, AtLeast(1)] = 3
    tolerance: Annotated[float, AtLeast(0)] = 0.1
    batch: Annotated[int, AtLeast(1)] = 50
    most: Annotated[int, AtLeast(1)] = 6
    samples: Annotated[int, AtLeast(2), AtMost(1_000_000)] = 4000

    def evaluations(self, units: int) -> int:
        return min(self.samples, 2**units)  # no more texts differ

    def merges_repeats(self) -> bool:
        return self.repeats == "together"

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        """Documents are searched side by side: one call of `score` serves what all ask for next."""
        results: list[Measured] = []
        side: list[tuple[Job, Event]] = []
        size = 0
        for job in jobs:
            size += self.samples * len(job.units)
            if side and size > _ENTRIES:
                results += self._side_by_side(model, side)
                side, size = [], self.samples * len(job.units)
            assert job.logits is not None
            side.append((job, event_of(model, job.label, job.logits)))
        return results + self._side_by_side(model, side)

    def _side_by_side(self, model: Classifier, side: list[tuple[Job, Event]]) -> list[Measured]:
        searches = [self._explained(job, event) for job, event in side]
        results: dict[int, Measured] = {}
        requests = {i: next(search) for i, search in enumerate(searches)}
        while requests:
            jobs = [side[i][0] for i in requests]
            tokens, groups = [job.tokens for job in jobs], [job.groups for job in jobs]
            logits = model.score(tokens, list(requests.values()), groups, self.removal)
            for i, rows in zip(list(requests), logits, strict=True):
                try:
                    requests[i] = searches[i].send(side[i][1].held(rows))
                except StopIteration as done:
                    results[i] = done.value
                    del requests[i]
        return [results[i] for i in range(len(side))]

    def _explained(self, job: Job, event: Event) -> Search[Measured]:
        d = len(job.units)
        if d <= 20 and 2**d <= self.samples:
            rule = yield from self._best_of_all(d, event.predicted)
        else:
            search = _Search(self, job.rng, d)
            best = yield from search.run()
            drawn = self.samples // 2 - search.left
            rule = yield from self._checked(job.rng, d, sorted(best.rule), drawn)
        scores, errors = np.zeros(d), np.zeros(d)
        scores[list(rule.words)], errors[list(rule.words)] = rule.losses, rule.errors
        facts = {
            "precision": rule.precision,
            "precision_low": rule.low,
            "precision_high": rule.high,
            "coverage": 0.5 ** len(rule.words),
            "words": float(len(rule.words)),
        }
        notes = tuple(self._notes(job, event, rule))
        return Measured(scores, None, errors, rule.evaluations, facts, notes)

    def _best_of_all(self, d: int, whole: bool) -> Search[_Rule]:
        """The shortest rule that is precise enough, and the most precise rule of that size.

        If none is precise enough, the most precise one, and the shortest of those. `whole` says
        whether the whole document gets the label: that is known, and not asked for again.
        """
        keep = all_subsets(d)  # rules and texts are their numbers; the last one has all words
        held = np.append((yield keep[:-1]), whole)
        size = keep.sum(1)
        precision = sums_over_supersets(held) / 2.0 ** (d - size)
        allowed = size <= self.most
        enough = allowed & (precision >= self.precision)
        order = np.lexsort((-precision, size) if enough.any() else (size, -precision))
        best = int(order[(enough if enough.any() else allowed)[order]][0])
        words = tuple(np.flatnonzero(keep[best]).tolist())
        # Half of the texts of the shorter rule keep the word, so p' = (p + p without it) / 2.
        # Solved for the loss, p - p without it = 2 (p - p').
        losses = np.array([2 * (precision[best] - precision[best - (1 << w)]) for w in words])
        p, errors = float(precision[best]), np.zeros(len(words))
        return _Rule(words, p, p, p, np.maximum(losses, 0), errors, len(keep) - 1, exact=True)

    def _checked(
        self, rng: np.random.Generator, d: int, words: Sequence[int], drawn: int
    ) -> Search[_Rule]:
        """A rule on texts of its own: its precision, and the loss without each of its words.

        The losses are measured on the same texts, so that they are less noisy. `drawn` texts were
        evaluated before.
        """
        n = max(1, self.samples // 4)
        rows = draw(rng, n, d, words)
        few = max(1, n // max(1, len(words)))
        parts = [rows]
        for w in words:
            parts.append(rows[:few].copy())
            parts[-1][:, w] = False
        held = yield np.vstack(parts)
        hits, without = held[:n], held[n:].reshape(len(words), few)
        change = hits[:few].astype(float) - without
        low, high = clopper_pearson(int(hits.sum()), n, self.delta)
        errors = change.std(1) / math.sqrt(few)
        losses = np.maximum(change.mean(1), 1 / n) if words else np.zeros(0)
        precision, evaluations = float(hits.mean()), drawn + len(held)
        return _Rule(tuple(words), precision, low, high, losses, errors, evaluations)

    def _notes(self, job: Job, event: Event, rule: _Rule) -> Iterator[str]:
        names = " and ".join(named(job, w) for w in rule.words) or f"no {job.unit} is needed"
        lose = (f"lose {job.unit}s", "keep it and lose others", "keep them and lose others")
        texts = f"the texts that {lose[min(len(rule.words), 2)]} at random"
        # rounded down, and the upper end up, so that no rule looks better than it is
        rates = rule.precision, rule.low, rule.high + 0.0009999
        share, low, high = (math.floor(1000 * rate + 1e-9) / 10 for rate in rates)
        interval = f"{100 * (1 - self.delta):.4g} % interval: {low} to {high} %"
        sure = "exact" if rule.exact else interval
        yield f"Rule: {names} → {event.name} in {share} % of {texts} ({sure})."
        wanted = f"a precision of {100 * self.precision:.4g} %"
        if rule.high < self.precision:
            units = counted(self.most, job.unit)
            yield f"No rule of at most {units} was found that reaches {wanted}."
        elif rule.low < self.precision:
            unsure = "samples do not tell for sure whether the rule"
            yield f"{self.samples:,} {unsure} reaches {wanted}."
        if not event.predicted:
            about = f"the rule is about texts that lost some {job.unit}s"
            yield f"The whole text does not get this label: {about}."


@dataclass(frozen=True, eq=False)
class _Rule:
    """A rule: its precision with an interval, and what the precision loses without each word."""

    words: tuple[int, ...]
    precision: float
    low: float
    high: float
    losses: Float[np.ndarray, "word"]
    errors: Float[np.ndarray, "word"]
    evaluations: int
    exact: bool = False


# Search


@dataclass(eq=False)
class _Candidate:
    """A rule in the search: how many of its texts were seen, and how many of these got the label.

    The texts of the rule that it extends count where they keep the word that it adds.
    """

    rule: tuple[int, ...]
    n: int = 0
    hits: int = 0
    parent: _Candidate | None = None
    drawn: list[tuple[Keep, Held]] = field(default_factory=list)

    def add(self, keep: Keep, held: Held) -> None:
        self.drawn.append((keep, held))
        self.n += len(held)
        self.hits += int(held.sum())

    def texts(self) -> tuple[Keep, Held]:
        parts = list(self.drawn)
        if self.parent:
            keep, held = self.parent.texts()
            inside = keep[:, self.rule[-1]]
            parts.append((keep[inside], held[inside]))
        return np.vstack([keep for keep, _ in parts]), np.concatenate([held for _, held in parts])

    def extensions(self) -> Iterator[_Candidate]:
        keep, held = self.texts()
        n, hits = keep.sum(0).tolist(), keep[held].sum(0).tolist()
        for w in range(keep.shape[1]):
            if w not in self.rule:
                yield _Candidate((*self.rule, w), n[w], hits[w], self)


class _Search:
    """Beam search for a short rule that is precise enough, with half of the samples."""

    def __init__(self, settings: Anchors, rng: np.random.Generator, d: int):
        self.settings = settings
        self.rng = rng
        self.d = d
        self.left = settings.samples // 2

    def run(self) -> Search[_Candidate]:
        """The first rule that seems precise enough.

        If samples or sizes run out before, a longer rule is taken only if it is surely better.
        """
        rules, seen, rivals = [_Candidate(())], list[_Candidate](), 0
        yield from self._sample(rules, max(1, self.left // 4))
        for _ in range(self.settings.most + 1):
            rivals += len(rules)
            beam = yield from self._beam(rules)
            for candidate in beam:
                if (yield from self._is_precise(candidate, len(rules))):
                    return candidate
            seen += beam
            # rules of the same words are one rule: that of the best in the beam
            extended = chain.from_iterable(c.extensions() for c in reversed(beam))
            rules = list({frozenset(c.rule): c for c in extended}.values())
            if not rules or self.left < self.settings.batch:
                break
        low, _ = self._bounds(seen, math.log(rivals / self.settings.delta))
        best = seen[0]
        for candidate, at_least in zip(seen, low, strict=True):
            best = candidate if at_least > best.hits / best.n else best
        return best

    def _beam(self, rules: list[_Candidate]) -> Search[list[_Candidate]]:
        """The most precise rules, best first, by KL-LUCB.

        It draws for the two rules that are most likely to change places. It ends when no change
        could win more than the tolerance, or after a quarter of the samples that are left.
        """
        last = self.left - self.left // 4
        for t in count(1):
            order = np.argsort([-c.hits / max(1, c.n) for c in rules], kind="stable")
            inside, outside = order[: self.settings.beam], order[self.settings.beam :]
            if not len(outside):
                break
            low, high = self._bounds(rules, exploration_rate(t, len(rules), self.settings.delta))
            weak, strong = inside[low[inside].argmin()], outside[high[outside].argmax()]
            settled = high[strong] - low[weak] < self.settings.tolerance
            if settled or self.left - 2 * self.settings.batch < last:
                break
            yield from self._sample([rules[weak], rules[strong]], self.settings.batch)
        return [rules[i] for i in inside]

    def _is_precise(self, candidate: _Candidate, rivals: int) -> Search[bool]:
        """Draw until the lower bound reaches the wanted precision.

        The level of the bound allows for all rivals.
        """
        last = self.left // 2
        while candidate.hits >= self.settings.precision * candidate.n:
            low, _ = self._bounds([candidate], math.log(rivals / self.settings.delta))
            if low[0] >= self.settings.precision:
                return True
            if self.left - self.settings.batch < last:
                return False
            yield from self._sample([candidate], self.settings.batch)
        return False

    def _sample(self, rules: Sequence[_Candidate], n: int) -> Search[None]:
        keep = [draw(self.rng, n, self.d, c.rule) for c in rules]
        held = yield np.vstack(keep)
        self.left -= len(held)
        for candidate, k, h in zip(rules, keep, np.split(held, len(rules)), strict=True):
            candidate.add(k, h)

    def _bounds(self, rules: Sequence[_Candidate], level: float) -> tuple[Rates, Rates]:
        return kl_bounds(np.array([c.hits for c in rules]), np.array([c.n for c in rules]), level)


def draw(rng: np.random.Generator, n: int, d: int, rule: Sequence[int]) -> Keep:
    """Texts of a rule: its words stay, every other one with probability 1/2."""
    keep = rng.integers(0, 2, (n, d), dtype=np.uint8).astype(bool)
    keep[:, list(rule)] = True
    return keep


# Bounds


def exploration_rate(t: int, rules: int, delta: float) -> float:
    """The level of the bounds in round t of KL-LUCB: β(t, δ) of Theorem 1 of its paper."""
    level = math.log(405.5 * rules * t**1.1 / delta)
    return level + math.log(level)


def kl_bounds(hits: Counts, n: Counts, level: float) -> tuple[Rates, Rates]:
    """The smallest and largest q with n kl(hits/n, q) <= level; kl is the Bernoulli divergence."""
    p = np.where(n > 0, hits / np.maximum(n, 1), 0.5)
    return _least(p, n, level), 1 - _least(1 - p, n, level)


def _least(p: Rates, n: Counts, level: float) -> Rates:
    """The smallest q, by bisection: the divergence falls as q rises to p."""
    low, high = np.zeros(len(p)), p.copy()
    for _ in range(40):
        q = (low + high) / 2
        near = n * (_entropy(p, q) + _entropy(1 - p, 1 - q)) <= level
        low, high = np.where(near, low, q), np.where(near, q, high)
    return low


def _entropy(p: Rates, q: Rates) -> Rates:
    """p log(p/q), 0 where p is."""
    return p * np.log(np.maximum(p, 1e-300) / np.maximum(q, 1e-300))


def clopper_pearson(hits: int, n: int, delta: float) -> tuple[float, float]:
    """The interval that holds the probability of a hit with confidence of at least 1 - delta."""
    from scipy.special import betaincinv  # slow to load

    low = betaincinv(hits, n - hits + 1, delta / 2) if hits else 0.0
    high = betaincinv(hits + 1, n - hits, 1 - delta / 2) if hits < n else 1.0
    return float(low), float(high)


def sums_over_supersets(values: Held) -> Float[np.ndarray, "subset"]:
    """For each set, in the bits of its index, the sum of the values of all sets that hold it."""
    sums, step = values.astype(float), 1
    while step < len(sums):
        halves = sums.reshape(-1, 2, step)  # without and with one thing
        halves[:, 0] += halves[:, 1]
        step *= 2
    return sums
