"""Flip sets: the fewest words whose removal turns a prediction (Martens and Provost 2014).

The question of people who face a wrong decision: what would have to be gone for it to be another?
A flip set is the answer in terms of the words that are there. Minimal edits (Ross et al. 2021) may
also put in other words, which takes a language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from heed.methods.events import event_of, named
from heed.methods.method import Job, Measured, Method
from heed.models.classifier import REMOVALS, Classifier, Removal, output_of
from heed.settings import AtLeast, AtMost
from heed.text import counted

EXACT = 12  # units of which all subsets are tried, if need be
_EVERY_WAY = 8  # units up to which every way of removing words is tried
_NAMED = 8  # words that a sentence names

Removed = Bool[np.ndarray, "set unit"]  # the units that are removed, a row for each text


@dataclass(frozen=True)
class Flip(Method):
    """The fewest words whose removal turns the prediction: they score 1, all others 0.

    removal   "replace" by the model's filler, "delete" or "hide"; None takes the model's default
    repeats   "apart": one unit per occurrence; "together": one unit per distinct word
    samples   how many texts to evaluate, if there are more than 12 words

    If the label to explain is not the predicted one, the prediction must turn into that label.

    Up to 12 words, subsets are tried by size, so that no smaller one turns the prediction. Of
    several of that size it is the one after which the prediction is farthest from what it was.

    Of more words, all single ones are tried, and all pairs if that takes at most half of the
    samples. Then words are removed one by one, each time the one that brings the prediction
    nearest to turning; where samples run short, in the order of the last such step. In the end
    every word is put back that is not needed. The size of this set is an upper bound on the fewest
    words that do. The fact `least` is a lower bound: one more than the largest size of which all
    sets were tried.

    Up to 8 words, the facts name the size under the model's other ways to remove words, too.
    """

    name: ClassVar[str] = "flip"
    summary: ClassVar[str] = "fewest words whose removal turns the prediction"
    signed: ClassVar[bool] = False
    paper: ClassVar[str] = "martens2014 ross2021"

    removal: Annotated[Removal, "way to remove words"] | None = None
    repeats: Annotated[Literal["apart", "together"], "way to treat repeats"] = "apart"
    samples: Annotated[int, AtLeast(2), AtMost(1_000_000)] = 2000

    def merges_repeats(self) -> bool:
        return self.repeats == "together"

    def evaluations(self, units: int) -> int:
        if units > EXACT:
            return 1 + self._most(units)
        ways = len(REMOVALS) if units <= _EVERY_WAY else 1
        return 1 + ways * (2**units - 1)

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [self._one(model, job) for job in jobs]

    def _one(self, model: Classifier, job: Job) -> Measured:
        d = len(job.units)
        texts = _Texts(model, job, model.removal(self.removal))
        found = smallest(texts) if d <= EXACT else self._greedy(texts)
        # what an empty set scores: there is none
        scores = np.zeros(d) if found.removed is None else found.removed.astype(float)
        facts = {"size": float(scores.sum()), "least": float(found.least)}
        if found.removed is not None:
            (after,) = texts.logits(found.removed[None])
            facts["probability_after"] = float(model.probabilities(after)[job.label])
        count = texts.count
        for way in model.removals if d <= _EVERY_WAY else ():
            if way != texts.removal:
                others = _Texts(model, job, way)
                other = smallest(others).removed
                facts[f"size_{way}"] = 0.0 if other is None else float(other.sum())
                count += others.count
        note = _sentence(texts, found)
        return Measured(scores, forward_passes=count, facts=facts, notes=(note,))

    def _most(self, units: int) -> int:
        """How many texts a greedy search may evaluate: enough to look at each word three times."""
        return max(self.samples, 3 * units)

    def _greedy(self, texts: _Texts) -> _Found:
        d, every = texts.units, np.eye(texts.units, dtype=bool)
        turned, left = texts.without(every)
        if turned.any():
            return _Found(every[_nearest(turned, left)], 1)
        best, least, order = every[left.argmin()], 2, np.argsort(left, kind="stable")
        if d * (d - 1) // 2 <= self._most(d) // 2 - d:
            pairs = subsets_of(d, 2)
            turned, left = texts.without(pairs)
            if turned.any():
                return _Found(pairs[_nearest(turned, left)], 2)
            best, least = pairs[left.argmin()], 3
        while len(rest := order[~best[order]]):
            # after this look, enough texts must be left to remove the others in one order
            if texts.count + len(rest) + d > self._most(d):
                rows = best | np.cumsum(every[rest], 0, dtype=bool)
                turned, _ = texts.without(rows)
                if turned.any():
                    return self._pruned(texts, rows[turned.argmax()], least)
                break
            rows = best | every[rest]
            turned, left = texts.without(rows)
            if turned.any():
                return self._pruned(texts, rows[_nearest(turned, left)], least)
            best, order = rows[left.argmin()], rest[np.argsort(left, kind="stable")]
        return _Found(None, least)

    def _pruned(self, texts: _Texts, removed: Bool[np.ndarray, "unit"], least: int) -> _Found:
        """The set without words that it does not need, as far as the samples go."""
        while texts.count + removed.sum() <= self._most(texts.units):
            rows = removed & ~np.eye(len(removed), dtype=bool)[removed]
            turned, left = texts.without(rows)
            if not turned.any():
                return _Found(removed, least)
            removed = rows[_nearest(turned, left)]
        return _Found(removed, least, pruned=False)


class _Found(NamedTuple):
    """A set of units that turns the prediction, if one was found.

    least    no set of fewer units does
    pruned   whether no unit can be put back
    """

    removed: Bool[np.ndarray, "unit"] | None
    least: int
    pruned: bool = True


class _Texts:
    """A document without some of its units; each such text is evaluated once."""

    def __init__(self, model: Classifier, job: Job, removal: Removal):
        assert job.logits is not None
        self.model = model
        self.job = job
        self.removal = removal
        self.units = len(job.units)
        self.event = event_of(model, job.label, job.logits)
        self.known: dict[bytes, Float[np.ndarray, "label"]] = {}

    @property
    def count(self) -> int:
        """How many texts were evaluated."""
        return len(self.known)

    def without(self, removed: Removed) -> tuple[Bool[np.ndarray, "set"], Float[np.ndarray, "set"]]:
        """Which removals turn the prediction, and how far each is from that: less is nearer."""
        logits = self.logits(removed)
        odds = output_of(logits, self.event.label, "log-odds", self.event.exclusive)
        # where the label has to come about, or does not hold in the first place, odds must rise
        falls = self.event.predicted and self.event.present
        return self.event.held(logits) != self.event.predicted, odds if falls else -odds

    def logits(self, removed: Removed) -> Float[np.ndarray, "set label"]:
        keys = [row.tobytes() for row in removed]
        new = [i for i, key in enumerate(keys) if key not in self.known]
        if new:
            tokens, groups = [self.job.tokens], [self.job.groups]
            (rows,) = self.model.score(tokens, [~removed[new]], groups, self.removal)
            self.known |= {keys[i]: row for i, row in zip(new, rows, strict=True)}
        return np.stack([self.known[key] for key in keys])

    def outcome(self, logits: Float[np.ndarray, "label"]) -> str:
        """The predicted label; without exclusive labels, whether it is the explained one."""
        if self.event.exclusive:
            return self.model.labels[int(logits.argmax())]
        name = self.model.labels[self.job.label]
        return name if logits[self.job.label] > 0 else f"not {name}"


def smallest(texts: _Texts) -> _Found:
    """The smallest set that turns the prediction, by trying all: size by size."""
    for size in range(1, texts.units + 1):
        rows = subsets_of(texts.units, size)
        turned, left = texts.without(rows)
        if turned.any():
            return _Found(rows[_nearest(turned, left)], size)
    return _Found(None, texts.units + 1)


def subsets_of(units: int, size: int) -> Removed:
    """All subsets of a size."""
    chosen = np.array(list(combinations(range(units), size)), dtype=int).reshape(-1, size)
    rows = np.zeros((len(chosen), units), dtype=bool)
    np.put_along_axis(rows, chosen, True, 1)
    return rows


def _nearest(turned: Bool[np.ndarray, "set"], left: Float[np.ndarray, "set"]) -> int:
    """Of the removals that turn the prediction, the one that moves it farthest."""
    return int(np.where(turned, left, np.inf).argmin())


def _sentence(texts: _Texts, found: _Found) -> str:
    """What was found, in plain words."""
    job, noun, d = texts.job, texts.job.unit, texts.units
    assert job.logits is not None
    if found.removed is None:
        before = texts.outcome(job.logits)
        if d <= EXACT:
            tried = f"all {2**d - 1:,} were tried" if d > 1 else "there is one"
            return f"No removal of {noun}s turns the prediction from {before}: {tried}."
        fewer = f"none of fewer than {counted(found.least, noun)} does"
        return f"No removal that was tried turns the prediction from {before}; {fewer}."
    (after,) = texts.logits(found.removed[None])
    words = [named(job, int(i)) for i in np.flatnonzero(found.removed)]
    listed, size = words[:_NAMED], len(words)
    if size > _NAMED:
        listed.append(f"{size - _NAMED} more")
    ends = " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)
    label = texts.model.labels[job.label]
    p, q = (float(texts.model.probabilities(z)[job.label]) for z in (job.logits, after))
    turned = f"from {texts.outcome(job.logits)} to {texts.outcome(after)}"
    return (
        f"Removing {ends} turns the prediction {turned} (probability of {label}: {p:.3f} →"
        f" {q:.3f}){_bound(size, found, noun)}."
    )


def _bound(size: int, found: _Found, noun: str) -> str:
    """What is known of smaller sets."""
    if size == 1:
        return ""
    if found.least == size:
        return f"; no single {noun} does" if size == 2 else f"; no fewer {noun}s do"
    few = f"{found.least}" if found.least == size - 1 else f"{found.least} to {size - 1}"
    needed = "" if found.pruned else ", and some of these may not be needed"
    return f"; {few} other {noun}s may do{needed}"
