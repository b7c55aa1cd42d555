"""How far do the prediction, training, and its own output determine attention?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from jaxtyping import Float

from heed.algebra.programs import ascend
from heed.claims.adversary import Adversary
from heed.claims.claim import Columns, Row, stated
from heed.claims.row_test import Opened, RowTest, described
from heed.claims.study import ClaimTest, Positions, Study, attention_facts
from heed.errors import NotApplicable
from heed.methods import AttentionMean
from heed.methods.problems import Problem
from heed.metrics import jsd, tvd
from heed.models.classifier import Classifier
from heed.models.devices import as_numbers
from heed.models.trace import Trace
from heed.progress import say
from heed.settings import Above, AtLeast, AtMost
from heed.text import Document, Tokens

if TYPE_CHECKING:  # which loads torch
    from torch import Tensor

    from heed.claims.adversary import Forward
    from heed.training.again import Retraining

# How strongly an adversary is rewarded, per document, for attending elsewhere; logarithmic scale.
STRENGTHS = (5e-5, 1.6e-4, 5e-4, 1.6e-3, 5e-3)

STRONGER = (1.6e-2, 5e-2, 5e-1)  # tried only if those do not move predictions by NEAR

NEAR = 0.05  # mean TVD of predictions at which the curve of adversaries is read


@dataclass(frozen=True)
class Exclusive(ClaimTest):
    """For each document, search for very different attention that gives the same prediction.

    Several candidates start from random weights. They follow the gradient of their distance
    (Jensen–Shannon) from the model's attention and from each other; moving the prediction by more
    than 0.01 is penalised. The statistic is the distance of the farthest candidate that moves the
    prediction by at most `epsilon`, divided by the largest possible distance, ln 2. It is 0 if
    there is no such candidate, though a better search might find one.

    Distances compare the classifying row, averaged over heads, as shares of the attention on words.
    `layers` is "last", "all", or numbers as in "0,2": the classifying row of each of these layers
    may change, and their distances are averaged. Special tokens and padding keep their weights;
    with positions="all" only padding does.
    """

    claim = stated("exclusive")
    effort = ("candidates", "steps")

    candidates: Annotated[int, AtLeast(1)] = 5
    steps: Annotated[int, AtLeast(0)] = 500
    learning_rate: float = 0.01
    epsilon: Annotated[float, Above(0), AtMost(1)] = 0.05
    layers: str = "last"
    positions: Positions = "words"

    def __post_init__(self) -> None:
        super().__post_init__()
        AttentionMean(layers=self.layers)  # refuses invalid layers

    def measure(self, study: Study) -> list[Row]:
        few = study.model.tokens(study.documents[:1])
        cheap = self.layers == "last" and study.model.attending(few).cheap
        if not cheap:
            self._announce(study)
        most = 8192 if cheap else max(1, study.model.batch_tokens // self.candidates)
        return study.by_batch(self, lambda tokens: self._batch(study, tokens), most, together=cheap)

    def _batch(self, study: Study, tokens: Sequence[Tokens]) -> list[Row]:
        plain, base, logits = self._opened(study.model, tokens)
        free = [study.free(t, self.positions) for t in tokens]
        adversary = Adversary(base, plain, free)
        noise = [study.rng(self.claim.id, t.document) for t in tokens]
        target = study.model.probabilities(as_numbers(plain.logits))
        distances, moves, labels, _ = adversary.search(
            logits,
            target,
            study.model.exclusive,
            noise,
            self.candidates,
            self.steps,
            self.learning_rate,
        )
        close = moves <= self.epsilon
        # candidates that move the prediction too far count as distance 0: they are never the best
        farthest = np.where(close, distances, 0.0)
        rows = attention_facts(plain, tokens, free, target)
        for b, best in enumerate(farthest.argmax(0)):
            left = int(close[:, b].sum())
            rows[b] = {
                "value": float(farthest[best, b] / np.log(2)),
                "jsd": float(farthest[best, b]),
                "tvd": float(moves[best, b]) if left else None,
                "candidates_left": left,
                "any_left": float(left > 0),
                "adversary_predicted": int(labels[best, b] if left else target[b].argmax()),
            } | rows[b]
        return rows

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
            f"exclusive takes about {minutes:.0f} minutes for {len(tokens)} documents: every step"
            f" is a pass through the whole model (layers={self.layers})."
        )


def _curve(columns: Columns) -> tuple[Float[np.ndarray, "point"], Float[np.ndarray, "point"]]:
    """Mean distances in prediction and attention: first the model itself (0), then adversaries."""
    count = sum(key.startswith("tvd_") for key in columns)
    moved = [0.0, *(float(columns[f"tvd_{k}"].mean()) for k in range(count))]
    away = [0.0, *(float(columns[f"jsd_{k}"].mean()) for k in range(count))]
    return np.array(moved), np.array(away)


def read_off(
    moved: Float[np.ndarray, "point"],
    away: Float[np.ndarray, "point"],
    instead: Float[np.ndarray, "point"] | None = None,
) -> float:
    """The largest distance in attention up to where predictions move by 0.05.

    The curve is interpolated linearly between the best point before 0.05 and the next one after it.
    With `instead`, the values are read from that curve, at the same position.
    """
    values = away if instead is None else instead
    inside = np.flatnonzero(moved <= NEAR)
    best = inside[away[inside].argmax()]
    behind = [i for i in np.flatnonzero(moved > NEAR) if away[i] > away[best]]
    if not behind:
        return float(values[best])
    next_ = min(behind, key=lambda i: moved[i])
    share = (NEAR - moved[best]) / (moved[next_] - moved[best])
    return float(values[best] + share * (values[next_] - values[best]))


def _over_seeds(columns: Columns) -> float:
    """The distance of adversaries ÷ that of other seeds; NaN if seeds make no difference."""
    return read_off(*_curve(columns)) / (float(columns["seeds"].mean()) or float("nan"))


@dataclass(frozen=True)
class ExclusiveModel(ClaimTest):
    """Train adversaries: copies of the model that keep its predictions but attend elsewhere.

    Adversaries of increasing strength give a curve: mean distance in attention (JSD) over mean
    distance in prediction (TVD). It is read where predictions move by 0.05 on average, and divided
    by the distance between models that were only trained from other seeds. If predictions do not
    move that far, stronger adversaries are trained.
    """

    claim = stated("exclusive-model", _over_seeds)
    effort = ("epochs",)

    seeds: Annotated[int, AtLeast(1)] = 8
    epochs: Annotated[int, AtLeast(1)] = 20

    def measure(self, study: Study) -> list[Row]:
        attention = attention_of(study.model, study.documents)
        base = study.model.probabilities(study.model(study.documents))
        distances = seed_distances(study.trainer, study.documents, attention, self.seeds)
        between = np.median(distances, axis=0)
        if not between.any():
            raise NotApplicable(
                "Training again gives the very same attention: there is nothing to compare with."
            )
        rows: list[Row] = [{"seeds": float(distance)} for distance in between]
        reached = 0.0
        for k, strength in enumerate([*STRENGTHS, *STRONGER]):
            if k >= len(STRENGTHS) and reached > NEAR:
                break
            adversary = study.trainer.adversary(strength, epochs=self.epochs)
            moved = np.asarray(tvd(adversary.probabilities(adversary(study.documents)), base))
            reached = max(reached, float(moved.mean()))
            adversarial = attention_of(adversary, study.documents)
            for i, row in enumerate(rows):
                distance = float(jsd(attention[i], adversarial[i]))
                row |= {f"tvd_{k}": float(moved[i]), f"jsd_{k}": distance}
        columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        for i, row in enumerate(rows):
            here = {key: column[i : i + 1] for key, column in columns.items()}
            row["value"] = read_off(*_curve(columns), _curve(here)[1]) / float(between.mean())
        return rows


@dataclass(frozen=True)
class Stable(ClaimTest):
    """Retrain the model from other seeds and measure how far each document's attention moves."""

    claim = stated("stable")

    seeds: Annotated[int, AtLeast(1)] = 8

    def measure(self, study: Study) -> list[Row]:
        attention = attention_of(study.model, study.documents)
        distances = seed_distances(study.trainer, study.documents, attention, self.seeds)
        return [
            {
                "value": float(np.median(distances[:, i]) / np.log(2)),
                "maximum": float(distances[:, i].max() / np.log(2)),
                "max_attention": float(attention[i].max()),
            }
            for i in range(len(attention))
        ]


def seed_distances(
    retraining: Retraining,
    documents: Sequence[Document],
    attention: Sequence[Float[np.ndarray, "word"]],
    seeds: int,
) -> Float[np.ndarray, "seed document"]:
    """JSD between a model's attention and that of models trained from other seeds."""
    distances = []
    for seed in retraining.seeds(seeds):
        retrained = attention_of(retraining.again(seed), documents)
        distances.append([float(jsd(a, b)) for a, b in zip(attention, retrained, strict=True)])
    return np.array(distances)


def attention_of(
    model: Classifier, documents: Sequence[Document]
) -> list[Float[np.ndarray, "word"]]:
    """The attention that is judged: the classifying row on words, mean over heads, as shares."""
    from heed.training.examples import outputs_of

    shares = []
    for tokens, _, attention in outputs_of(model, documents):
        on_words = attention[: len(tokens)][~tokens.special].astype(float)
        shares.append(on_words / (on_words.sum() or 1.0))  # all 0 if no word has any attention
    return shares


@dataclass(frozen=True)
class Identified(RowTest):
    """How far attention can move while its output, the vectors that heads compute, stays the same.

    For each document, linear programs search for the farthest attention with the same output: first
    the one that overlaps least with the model's (averaged over heads), then farther ones while
    there are any. The result is a lower bound on the largest distance. If all rows classify,
    `queries` of them, evenly spread, are used.
    """

    claim = stated("identified")

    queries: Annotated[int, AtLeast(1)] = 16

    def rows(self, study: Study, tokens: Sequence[Tokens], opened: Opened) -> list[Row]:
        return [{"value": self._distance(parts)} | described(parts) for parts in opened[1]]

    def _distance(self, parts: Sequence[Problem]) -> float:
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
            distances.append(_farthest(rows, judged) / float(total))
        return float(np.mean(distances)) if distances else float("nan")


def _farthest(rows: Sequence[tuple[Problem, int]], judged: Float[np.ndarray, "key"]) -> float:
    """The largest TVD found between the sum of these rows and one of rows with the same outputs."""
    solvers = [p.space.smallest(p.rows[i]) if p.space.nullity else None for p, i in rows]

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

    far = ascend(smallest, judged, lambda x: x - judged)
    return float(np.abs(far - judged).sum() / 2)
