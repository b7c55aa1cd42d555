"""Attention as far as its output determines it: `efficient` and `effective`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Efficient, Variant
from heed.errors import InputError, NotApplicable
from heed.methods.method import Job, Measured, TokenMethod, split_rows
from heed.methods.problems import (
    Level,
    Problem,
    Tolerance,
    as_numbers,
    movement,
    opened,
    openness,
    swapped,
)
from heed.metrics import tvd
from heed.models.classifier import ATTENTION, PROJECTED, REPLACEABLE, Classifier
from heed.settings import AtLeast


@dataclass(frozen=True)
class Determined(TokenMethod):
    """The part of attention that the output determines, in one layer.

    level       what counts as the output (see `heed.methods.problems`)
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

    def refusal(self, model: Classifier, documents: Sequence[Any]) -> str:
        if self.level in ("projected", "layer") and PROJECTED not in model.offers:
            return (
                f"{self.name} at the level {self.level!r} needs {PROJECTED}, "
                f"which {model.name} does not offer."
            )
        return super().refusal(model, documents)

    @abstractmethod
    def solve(self, problem: Problem) -> Efficient:
        """The rows to show instead of attention."""

    def bounds(
        self, job: Job, parts: Sequence[Problem], scores: Float[np.ndarray, "unit"]
    ) -> Float[np.ndarray, "unit 2"] | None:
        """The range of each unit's score over all attention with the same output, if wanted."""
        return None

    def without_bounds(self, parts: Sequence[Problem]) -> str:
        """Why there are no ranges although they are wanted, or an empty string."""
        return ""

    def remarks(self, scores: Float[np.ndarray, "unit"]) -> tuple[str, ...]:
        """Notes about the scores."""
        return ()

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        results: list[Measured] = [Measured()] * len(jobs)
        for batch in model.batches([job.tokens for job in jobs]):
            tokens = [jobs[i].tokens for i in batch]
            attending, parts = opened(
                model, tokens, self.level, self.layer, self.head, tolerance=self.tolerance
            )
            raw = as_numbers(attending.trace.classifying_rows(self.layer))
            solved = [{p: self.solve(p) for p in problems} for problems in parts]
            rows = {p: x.rows for by_problem in solved for p, x in by_problem.items()}
            new = swapped(attending, parts, rows, self.layer)
            moved, _ = movement(model, attending, new, raw)
            layers = len(attending.trace.attention)
            below = self.layer % layers != layers - 1
            # one pass to read attention, one with it put back and one with other rows; one more to
            # read a lower layer, one for the gradient of the prediction
            passes = 3 + below + (self.level == "prediction")
            for b, i in enumerate(batch):
                results[i] = self._measured(
                    jobs[i], solved[b], raw[b], new[b], moved[b], attending.linear, passes
                )
        return results

    def _measured(
        self,
        job: Job,
        solved: Mapping[Problem, Efficient],
        raw: Float[np.ndarray, "head query key"],
        new: Float[np.ndarray, "head query key"],
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
        facts = openness(parts) | {
            "tvd_from_attention": float(np.concatenate(apart).mean()),
            "effective_negative_mass": float(np.concatenate(negative).mean()),
            "prediction_moved": float(moved),
            "fallbacks": float(sum(x.fallbacks for x in solved.values())),
        }
        after, before = self._aggregated(new, job), self._aggregated(raw, job)
        scores_after, scores_before = (split_rows(job, x, self.merge)[0] for x in (after, before))
        intervals = self.bounds(job, parts, np.maximum(scores_after, scores_before))
        notes = self.remarks(scores_after)
        if self.level == "prediction":
            facts["first_order"] = float(not linear)
        if not facts["rows_open"]:
            notes += (_trivial(parts),) if facts["tvd_from_attention"] < 1e-9 else ()
        elif self.level == "prediction":
            notes += tuple(_prediction_notes(intervals, moved, linear))
        if reason := self.without_bounds(parts):
            notes += (reason,)
        if intervals is not None and (left := int(np.isnan(intervals[:, 0]).sum())):
            notes += (
                "Intervals were computed for the words with the largest weights, "
                f"not for the other {left:,}.",
            )
        return Measured(
            rows=after,
            raw=before,
            intervals=intervals,
            forward_passes=passes,
            facts=facts,
            notes=notes,
        )

    def _aggregated(
        self, rows: Float[np.ndarray, "head query key"], job: Job
    ) -> Float[np.ndarray, "key"]:
        """One weight for each key; the weights of padding, if it has any, behind the tokens."""
        heads = rows if self.head is None else rows[self.head : self.head + 1]
        each = heads[:, : len(job.tokens)].mean(1) if rows.shape[1] > 1 else heads[:, 0]
        weights = each.mean(0) if self.aggregate == "mean" else each.max(0)
        return weights if weights[len(job.tokens) :].any() else weights[: len(job.tokens)]


def _trivial(parts: Sequence[Problem]) -> str:
    T = max((p.space.T for p in parts), key=len)
    return (
        "Attention is already identified: no other attention has this output "
        f"({len(T)} weights, {T.shape[1]} numbers of output)."
    )


def _prediction_notes(
    intervals: Float[np.ndarray, "unit 2"] | None, moved: float, linear: bool
) -> Iterator[str]:
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
        self, job: Job, parts: Sequence[Problem], scores: Float[np.ndarray, "unit"]
    ) -> Float[np.ndarray, "unit 2"] | None:
        if not self.intervals or self.without_bounds(parts):
            return None
        heads = [h for p in parts for h in p.heads]
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
        return intervals

    def without_bounds(self, parts: Sequence[Problem]) -> str:
        heads = [h for p in parts for h in p.heads]
        single = all(len(p.rows) == 1 for p in parts) and len(set(heads)) == len(heads)
        if not self.intervals or (single and self.aggregate == "mean" and self.merge == "sum"):
            return ""
        reason = "largest weights (aggregate or merge is max)"
        if not single:
            reason = "several rows that classify"
        return (
            f"There are no intervals of {reason}: "
            "only means over heads and sums over tokens have them."
        )


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

    def remarks(self, scores: Float[np.ndarray, "unit"]) -> tuple[str, ...]:
        below = scores[scores < -1e-9]
        if not len(below):
            return ()
        return (
            f"{len(below)} of {len(scores)} weights are negative, by {-below.sum():.2g} together "
            "(marked with a minus where it is shown, or grey): "
            "effective attention is no attention.",
        )
