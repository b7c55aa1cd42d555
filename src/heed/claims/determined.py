"""How far do the prediction, training, and its own output determine attention?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from jaxtyping import Float

from heed.algebra.programs import NotReached, farthest
from heed.claims.adversary import STARTS, Adversary
from heed.claims.claim import Row, stated
from heed.claims.row_test import Opened, RowTest, described
from heed.claims.study import ClaimTest, Positions, Study, attention_facts
from heed.methods import AttentionMean
from heed.methods.problems import Problem
from heed.models.classifier import Classifier
from heed.models.devices import as_numbers
from heed.models.trace import Trace
from heed.progress import say
from heed.settings import Above, AtLeast, AtMost
from heed.text import Tokens

if TYPE_CHECKING:  # which loads torch
    from torch import Tensor

    from heed.claims.adversary import Forward

GROWTH = 0.01  # of the mean over documents, below which a search has found what there is


@dataclass(frozen=True)
class Exclusive(ClaimTest):
    """For each document, search for very different attention that gives the same prediction.

    Several candidates follow the gradient of their distance (Jensen–Shannon) from the model's
    attention and from each other; moving the prediction too far is penalised. The statistic is the
    distance of the farthest candidate that moves the prediction by at most `epsilon`, divided by
    the largest possible distance, ln 2. It is 0 if there is no such candidate, though a better
    search might find one.

    A search from one kind of start ends at what is near. The first candidates start from random
    weights, and may move the prediction by 0.01. Then come rounds of as many more, with larger
    steps: they start near uniform weights, on one or two words, near the model's own weights, on
    the words that matter least, and at random, and may move it by 0.8 `epsilon`. The farthest of
    all counts. Rounds go on until the mean over documents grows by less than 0.01, or for `rounds`
    rounds: then the column `cut` says that more of them might have found more.

    Distances compare the classifying row, averaged over heads, as shares of the attention on words.
    `layers` is "last", "all", or numbers as in "0,2": the classifying row of each of these layers
    may change, and their distances are averaged. Special tokens and padding keep their weights;
    with positions="all" only padding does.
    """

    claim = stated("exclusive")
    effort = ("candidates", "steps", "rounds")

    candidates: Annotated[int, AtLeast(1)] = 5
    steps: Annotated[int, AtLeast(0)] = 500
    rounds: Annotated[int, AtLeast(0)] = 6
    learning_rate: float = 0.01
    epsilon: Annotated[float, Above(0), AtMost(1)] = 0.05
    layers: str = "last"
    positions: Positions = "words"

    def __post_init__(self) -> None:
        super().__post_init__()
        AttentionMean(layers=self.layers)  # refuses invalid layers

    def measure(self, study: Study) -> list[Row]:
        rows, grown = self._round(study, 0), np.inf
        for k in range(1, self.rounds + 1):
            farther = [_farther(a, b) for a, b in zip(rows, self._round(study, k), strict=True)]
            grown = _mean(farther) - _mean(rows)
            rows = farther
            if grown < GROWTH:
                break
        return [row | {"cut": float(grown >= GROWTH)} for row in rows]

    def _round(self, study: Study, number: int) -> list[Row]:
        """The farthest that one round of candidates reaches in each document."""
        few = study.model.tokens(study.documents[:1])
        cheap = self.layers == "last" and study.model.attending(few).cheap
        if not cheap and not number:
            self._announce(study)
        return study.by_batch(
            # how many rounds may come does not change what one of them finds
            replace(self, rounds=0),
            lambda tokens: self._batch(study, tokens, number),
            most=8192 if cheap else max(1, study.model.batch_tokens // self.candidates),
            together=cheap,
            part=f"round {number}",
        )

    def _batch(self, study: Study, tokens: Sequence[Tokens], number: int = 0) -> list[Row]:
        plain, base, logits = self._opened(study.model, tokens)
        free = [study.free(t, self.positions) for t in tokens]
        adversary = Adversary(base, plain, free)
        repeated = (str(number),) if number else ()
        noise = [study.rng(self.claim.id, t.document, *repeated) for t in tokens]
        target = study.model.probabilities(as_numbers(plain.logits))
        distances, moves, labels, _ = adversary.search(
            logits,
            target,
            study.model.exclusive,
            noise,
            self.candidates,
            self.steps,
            **self._manner(number),
        )
        close = moves <= self.epsilon
        # candidates that move the prediction too far count as distance 0: they are never the best
        farthest = np.where(close, distances, 0.0)
        rows = attention_facts(plain, tokens, free, target)
        for b, best in enumerate(farthest.argmax(0)):
            left = int(close[:, b].sum())
            nearest = float(distances[close[:, b], b].min()) if left else 0.0
            rows[b] = {
                "value": float(farthest[best, b] / np.log(2)),
                "jsd": float(farthest[best, b]),
                "tvd": float(moves[best, b]) if left else None,
                "candidates": self.candidates,
                "candidates_left": left,
                "any_left": float(left > 0),
                "spread": float(farthest[best, b] - nearest) / np.log(2),
                "adversary_predicted": int(labels[best, b] if left else target[b].argmax()),
            } | rows[b]
        return rows

    def _manner(self, number: int) -> dict[str, Any]:
        """How a round searches: the first one with care, the further ones boldly.

        At the first learning rate, 500 steps end well before the farthest attention. Larger steps
        get there, and a later round may lose some candidates on the way.
        """
        if not number:
            return {"learning_rate": self.learning_rate}
        return {
            "learning_rate": 10 * self.learning_rate,
            "slack": 0.8 * self.epsilon,
            "starts": STARTS,
        }

    def _opened(
        self, model: Classifier, tokens: Sequence[Tokens]
    ) -> tuple[Trace, list[Tensor], Forward]:
        """A forward pass, the rows that may change, and the logits as a function of them."""
        import torch

        if self.layers == "last":
            plain, logits, *_ = model.attending(tokens)
            return plain, [plain.classifying_rows()], lambda rows: logits(rows[0])
        with torch.no_grad():
            plain = model.trace(tokens)
        layers = AttentionMean(layers=self.layers).layers_of(len(plain.attention))

        def logits_of(rows: Sequence[Tensor]) -> Tensor:
            attention = dict(zip(layers, rows, strict=True))
            return model.trace(tokens, attention=attention, layers=()).logits

        return plain, [plain.classifying_rows(i) for i in layers], logits_of

    def _announce(self, study: Study) -> None:
        """Say how long the search takes: each step runs the whole model forward and backward."""
        tokens = study.model.tokens(study.documents)
        few = tokens[: max(1, len(tokens) // 50)]
        began = time.perf_counter()
        replace(self, steps=1)._batch(study, few)
        minutes = (time.perf_counter() - began) * self.steps * len(tokens) / len(few) / 60
        say(
            f"exclusive takes about {minutes:.0f} minutes for {len(tokens)} documents, and as much"
            f" again for each of up to {self.rounds} further rounds: every step is a pass through"
            f" the whole model (layers={self.layers})."
        )


def _mean(rows: Sequence[Row]) -> float:
    return float(np.mean([row["value"] for row in rows]))


def _farther(one: Row, other: Row) -> Row:
    """The row of the farther candidate, with what both rounds together know."""
    far, near = (one, other) if one["value"] >= other["value"] else (other, one)
    both = ("candidates", "candidates_left")
    # the nearest candidate that was left lies this far below the farthest
    nearest = min(
        row["value"] - row["spread"] for row in (one, other) if row["any_left"] or row is far
    )
    return far | {key: far[key] + near[key] for key in both} | {"spread": far["value"] - nearest}


@dataclass(frozen=True)
class Identified(RowTest):
    """How far attention can move while its output, the vectors that heads compute, stays the same.

    For each document, linear programs search for the farthest attention with the same output: first
    the one that overlaps least with the model's (averaged over heads), then farther ones while
    there are any, from two starts. What they find is a lower bound on the largest distance. The
    upper bound adds up how far each weight by itself can rise: TVD is Σ_j max(0, a'_j − a_j), and
    no a'_j is above the upper end of its interval. That takes a linear program for each key and
    head, so it is done only if the claim can still be supported: if the mean of the lower bounds is
    below the threshold. Otherwise the upper bound is 1, or 0 where nothing is left open.

    If all rows classify, `queries` of them, evenly spread, are used.
    """

    claim = stated("identified")

    queries: Annotated[int, AtLeast(1)] = 16

    def measure(self, study: Study) -> list[Row]:
        rows = super().measure(study)
        values = np.array([row["value"] for row in rows])
        measured = np.isfinite(values)
        bounds = np.array([float(row["rows_open"] > 0) for row in rows])
        if measured.any() and values[measured].mean() < self.claim.threshold:
            bounds = np.array([row["upper"] for row in self._bounds(study)])
        for row, bound in zip(rows, bounds, strict=True):
            # rounding may leave the sum of intervals a little below what was found
            row["upper"] = float(np.maximum(np.minimum(bound, 1.0), row["value"]))
        return rows

    def rows(self, study: Study, tokens: Sequence[Tokens], opened: Opened) -> list[Row]:
        return [{"value": self._mean(parts, _farthest)} | described(parts) for parts in opened[1]]

    def _bounds(self, study: Study) -> list[Row]:
        def measure(tokens: list[Tokens]) -> list[Row]:
            return [{"upper": self._bound(parts)} for parts in self._opened(study, tokens)[1]]

        return study.by_batch(self, measure, study.model.batch_tokens, part="upper")

    def _bound(self, parts: Sequence[Problem]) -> float:
        try:
            return self._mean(parts, _farthest_possible)
        except NotReached:  # a program without an answer bounds nothing
            return 1.0

    def _mean(self, parts: Sequence[Problem], distance: Distance) -> float:
        """The mean distance over the queries that are used, as a share of what may move."""
        queries = sorted(set().union(*(p.queries.tolist() for p in parts)))
        if not queries:
            return float("nan")
        # evenly spread; `unique` drops repeats where there are fewer queries than wanted
        indices = np.unique(np.linspace(0, len(queries) - 1, self.queries).astype(int))
        distances = []
        for q in (queries[i] for i in indices):
            rows = [(p, int(np.flatnonzero(p.queries == q)[0])) for p in parts if q in p.queries]
            judged = np.sum([p.by_head(p.rows)[:, i].T @ p.masses[i] for p, i in rows], 0)
            total = np.sum([p.masses[i].sum() for p, i in rows])
            if total == 0:
                continue
            distances.append(distance(rows, judged) / float(total))
        return float(np.mean(distances)) if distances else float("nan")


# From rows of problems that are judged together, and their sum, to a distance from that sum.
Distance = Callable[[Sequence[tuple[Problem, int]], Float[np.ndarray, "key"]], float]


def _farthest(rows: Sequence[tuple[Problem, int]], judged: Float[np.ndarray, "key"]) -> float:
    """The largest TVD found between the sum of these rows and one of rows with the same outputs."""
    solvers = [p.space.smallest(p.rows[i]) if p.space.nullity else None for p, i in rows]
    if not any(solvers):
        return 0.0

    def smallest(cost: Float[np.ndarray, "key"]) -> Float[np.ndarray, "key"]:
        """The sum of rows at which the total cost over heads is least."""
        total = np.zeros_like(judged)
        for (p, i), cheapest in zip(rows, solvers, strict=True):
            row = p.rows[i]
            if cheapest is not None:
                row = p.space.polished(
                    row, cheapest(np.concatenate([cost * m for m in p.masses[i]]))
                )
            total += p.by_head(row[None])[:, 0].T @ p.masses[i]
        return total

    far = farthest(smallest, judged, lambda x: x - judged)
    return float(np.abs(far - judged).sum() / 2)


def _farthest_possible(
    rows: Sequence[tuple[Problem, int]], judged: Float[np.ndarray, "key"]
) -> float:
    """No sum of rows with the same outputs is farther than this: an upper bound on the TVD."""
    highest = np.zeros_like(judged)
    for p, i in rows:
        row, masses = p.rows[i], p.masses[i]
        if len(p.heads) == 1:
            highest += masses[0] * p.space.highest(row)
        else:
            # heads side by side: the programs look for the largest sum over heads, key by key
            highest += p.space.highest(row, np.hstack([m * np.eye(len(p.keys)) for m in masses]))
    return float(np.maximum(highest - judged, 0).sum())
