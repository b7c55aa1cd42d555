"""Attention as far as its output determines it: `efficient` and `effective`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Efficient, Variant
from heed.errors import InputError, NotApplicable
from heed.methods import problems
from heed.methods.method import BatchMethod, Job, Measured, Scores, split_rows
from heed.methods.problems import Level, Problem, Tolerance
from heed.metrics import tvd
from heed.models.classifier import ATTENTION, PROJECTED, REPLACEABLE, Classifier
from heed.models.devices import as_numbers
from heed.settings import AtLeast

Attention = Float[np.ndarray, "head query key"]
Intervals = Float[np.ndarray, "unit 2"]


@dataclass(frozen=True)
class Determined(BatchMethod):
    """The part of attention that the output determines, in one layer.

    level       what counts as the output (see `heed.methods.problems`)
    layer       the number of the layer; -1 is the last
    head        the number of one head; None for all
    aggregate   how the weights of the heads become one: "mean" or "max"
    tolerance   directions in which the values are smaller than this share of their norm count as
                zero; by default those that are rounding: at the levels "head" and "projected" in
                the model's precision, else in double precision
    """

    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, REPLACEABLE})
    signed: ClassVar[bool] = False
    only_by_name: ClassVar[bool] = True

    level: Level = "head"
    layer: int = -1
    head: int | None = None
    aggregate: Annotated[Literal["mean", "max"], "way to combine heads"] = "mean"
    tolerance: Tolerance | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head is not None and self.level in ("layer", "prediction"):
            raise InputError(
                f"At the level {self.level!r} all heads are looked at together: leave out head."
            )

    def layers_read(self) -> str:
        return "last" if self.layer == -1 else str(self.layer)

    def refusal(self, model: Classifier, documents: Sequence[Any]) -> str:
        also = {PROJECTED} if self.level in ("projected", "layer") else set()
        reason = self.lacks(model, also, f" at the level {self.level!r}")
        return reason or super().refusal(model, documents)

    @abstractmethod
    def solve(self, problem: Problem) -> Efficient:
        """The rows to show instead of attention."""

    def bounds(
        self, job: Job, parts: Sequence[Problem], scores: Scores
    ) -> tuple[Intervals | None, str]:
        """The range of each unit's score over all attention with the same output, if wanted.

        Where it is wanted but not known, the second value says why.
        """
        return None, ""

    def remarks(self, scores: Scores) -> tuple[str, ...]:
        """Notes about the scores."""
        return ()

    def measure_batch(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        tokens = [job.tokens for job in jobs]
        attending, parts = problems.opened(
            model, tokens, self.level, self.layer, self.head, tolerance=self.tolerance
        )
        raw = as_numbers(attending.trace.classifying_rows(self.layer))
        solved: list[dict[Problem, Efficient]] = []
        rows: dict[Problem, problems.Rows] = {}
        for document in parts:
            solutions = {problem: self.solve(problem) for problem in document}
            rows |= {problem: solution.rows for problem, solution in solutions.items()}
            solved.append(solutions)
        new = problems.swapped(attending, parts, rows, self.layer)
        moved, _ = problems.movement(model, attending, new, raw)
        layers = len(attending.trace.attention)
        below = self.layer % layers != layers - 1
        # one pass to read attention, one with it put back and one with other rows; one more to read
        # a lower layer, one for the gradient of the prediction
        passes = 3 + below + (self.level == "prediction")
        results = []
        for b, job in enumerate(jobs):
            attention = solved[b], raw[b], new[b]
            moves = float(moved[b]), attending.linear
            results.append(self._measured(job, *attention, *moves, passes))
        return results

    def _measured(
        self,
        job: Job,
        solved: Mapping[Problem, Efficient],
        raw: Attention,
        new: Attention,
        moved: float,
        linear: bool,
        passes: int,
    ) -> Measured:
        parts = list(solved)
        if not parts:
            raise NotApplicable("No token of the text has any attention in this layer.")
        apart = [np.ravel(tvd(p.by_head(p.rows), p.by_head(x.rows))) for p, x in solved.items()]
        negative = [
            p.by_head(np.maximum(-p.space.effective(p.rows), 0)).sum(-1).ravel() for p in parts
        ]
        facts = problems.openness(parts) | {
            "tvd_from_attention": float(np.concatenate(apart).mean()),
            "effective_negative_mass": float(np.concatenate(negative).mean()),
            "prediction_moved": moved,
            "fallbacks": float(sum(x.fallbacks for x in solved.values())),
        }
        after, before = self._aggregated(new, job), self._aggregated(raw, job)
        scores_after, scores_before = (split_rows(job, x, self.merge)[0] for x in (after, before))
        intervals, reason = self.bounds(job, parts, np.maximum(scores_after, scores_before))
        notes = self.remarks(scores_after)
        if self.level == "prediction":
            facts["first_order"] = float(not linear)
        if not facts["rows_open"]:
            notes += (_trivial(parts),) if facts["tvd_from_attention"] < 1e-9 else ()
        elif self.level == "prediction":
            notes += tuple(_prediction_notes(intervals, moved, linear))
        if reason:
            notes += (reason,)
        if intervals is not None and (left := int(np.isnan(intervals[:, 0]).sum())):
            largest = "Intervals were computed for the words with the largest weights"
            notes += (f"{largest}, not for the other {left:,}.",)
        return Measured(
            rows=after,
            raw=before,
            intervals=intervals,
            forward_passes=passes,
            facts=facts,
            notes=notes,
        )

    def _aggregated(self, rows: Attention, job: Job) -> Float[np.ndarray, "key"]:
        """One weight for each key; the weights of padding, if it has any, behind the tokens."""
        heads = rows if self.head is None else rows[self.head : self.head + 1]
        by_head = heads[:, : len(job.tokens)].mean(1) if rows.shape[1] > 1 else heads[:, 0]
        weights = by_head.mean(0) if self.aggregate == "mean" else by_head.max(0)
        return weights if weights[len(job.tokens) :].any() else weights[: len(job.tokens)]


def _trivial(parts: Sequence[Problem]) -> str:
    T = max((p.space.T for p in parts), key=len)
    return (
        "Attention is already identified: no other attention has this output "
        f"({len(T)} weights, {T.shape[1]} numbers of output)."
    )


def _prediction_notes(intervals: Intervals | None, moved: float, linear: bool) -> Iterator[str]:
    """What a reader should know about the level of the prediction."""
    if intervals is not None:
        width = float(np.nanmean(intervals[:, 1] - intervals[:, 0]))
        if width > 0.1:
            yield (
                "The prediction alone determines little of attention: the weight of a word can lie "
                f"anywhere in an interval of {width:.2f} on average."
            )
    if not linear:
        yield (
            "Behind this layer the model is not linear, so its prediction is kept to first order "
            f"only: with these weights in place it moves by {moved:.2g}."
        )


@dataclass(frozen=True)
class EfficientAttention(Determined):
    """One canonical attention among all that give the same output: the flattest.

    variant     the least "norm", or the most "entropy"
    intervals   for how many words, those with the largest weights, to compute the smallest and
                largest weight over all attention with the same output. These are linear programs,
                for one head or the mean of heads, if one row classifies
    """

    name: ClassVar[str] = "efficient"
    summary: ClassVar[str] = "one canonical attention per output, with the range of each weight"
    paper: ClassVar[str] = "naim2024"

    variant: Variant = "norm"
    intervals: Annotated[int, AtLeast(0)] = 60

    def solve(self, problem: Problem) -> Efficient:
        return problem.space.efficient(problem.rows, self.variant)

    def bounds(
        self, job: Job, parts: Sequence[Problem], scores: Scores
    ) -> tuple[Intervals | None, str]:
        if not self.intervals:
            return None, ""
        heads = list(chain.from_iterable(part.heads for part in parts))
        none = "There are no intervals of {}: only means over heads and sums over tokens have them."
        if len(set(heads)) < len(heads) or any(len(part.rows) > 1 for part in parts):
            return None, none.format("several rows that classify")
        if self.aggregate == "max" or self.merge == "max":
            return None, none.format("largest weights (aggregate or merge is max)")
        # where nothing is undetermined, ranges are points and need no linear program
        undetermined = any(p.space.nullity for p in parts)
        limit = self.intervals if undetermined else len(scores)
        words = np.sort(np.argsort(-scores, kind="stable")[:limit])
        bounds = np.zeros((len(words), 2))
        for part in parts:
            inside = part.keys < len(job.tokens)
            unit = np.full(len(part.keys), -1)
            unit[inside] = job.groups[part.keys[inside]]
            member = (unit == words[:, None]) / 1.0
            if len(part.heads) == 1:
                bounds += part.space.intervals(part.rows[0], member) * part.masses[0] / len(heads)
            else:
                stacked = np.hstack([member * mass for mass in part.masses[0]])
                bounds += part.space.intervals(part.rows[0], stacked) / len(heads)
        intervals = np.full((len(job.units), 2), np.nan)
        intervals[words] = bounds
        return intervals, ""


@dataclass(frozen=True)
class EffectiveAttention(Determined):
    """Attention minus its part in the null space of the values.

    It need not sum to one, and weights may be negative.
    """

    name: ClassVar[str] = "effective"
    summary: ClassVar[str] = "attention minus what cannot affect the output; may be negative"
    paper: ClassVar[str] = "brunner2020"

    def solve(self, problem: Problem) -> Efficient:
        return Efficient(problem.space.effective(problem.rows), 0)

    def remarks(self, scores: Scores) -> tuple[str, ...]:
        below = scores[scores < -1e-9]
        if not len(below):
            return ()
        return (
            f"{len(below)} of {len(scores)} weights are negative, by {-below.sum():.2g} together "
            "(marked with a minus where it is shown, or grey): "
            "effective attention is no attention.",
        )
