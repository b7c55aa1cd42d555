"""Explanations by what the output determines of attention: `efficient` and `effective`.

What counts as the output is the level:

    head         what one head puts out: T is its values V
    projected    what it adds to the layer: T = V W_O, which has the same null space where W_O has full rank
    layer        what all heads together add: their rows stacked, T the stacked V W_O, one sum for each head
    prediction   differences of logits: their derivatives by the weights of the classifying row in the last layer. For
                 models that are linear from there on (single-layer, recurrent) that is the prediction itself; for a
                 transformer it is the prediction to first order
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.algebra.null_space import Efficient, Space, Variant, check_variant
from heed.errors import InputError, NotApplicable, UnknownName
from heed.methods.method import Job, Measured, TokenMethod, check_at_least, split_rows
from heed.metrics import tvd
from heed.models.classifier import ATTENTION, PROJECTED, REPLACEABLE, Attending, Classifier
from heed.models.trace import Trace
from heed.text import Tokens

if TYPE_CHECKING:
    from torch import Tensor

Level = Literal["head", "projected", "layer", "prediction"]
_INTERVALS = 60  # words whose intervals are looked for
LEVELS: tuple[Level, ...] = ("head", "projected", "layer", "prediction")


def check_space(level: str, tolerance: float | None) -> None:
    if level not in LEVELS:
        raise UnknownName("level", str(level), LEVELS)
    if tolerance is not None and not 0 <= tolerance < 1:
        raise InputError(f"The setting tolerance must be at least 0 and below 1, got {tolerance}.")


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows of attention of one document that multiply the same values.

    heads     one, or all that are stacked
    queries   which rows of the trace's classifying rows these are
    keys      which keys they look at
    rows      the weights, as shares that sum to one in each head; heads one after the other
    masses    what the rows summed to before, if only some of the keys are looked at
    """

    heads: tuple[int, ...]
    queries: Int[np.ndarray, "row"]
    keys: Int[np.ndarray, "key"]
    rows: Float[np.ndarray, "row weight"]
    masses: Float[np.ndarray, "row head"]
    space: Space

    def by_head(self, rows: Float[np.ndarray, "row weight"]) -> Float[np.ndarray, "head row key"]:
        """Rows with the heads on an axis of their own."""
        return rows.reshape(len(rows), len(self.heads), len(self.keys)).transpose(1, 0, 2)

    def put(
        self, rows: Float[np.ndarray, "row weight"], into: Float[np.ndarray, "head query key"]
    ) -> None:
        """Write rows where they belong, with the masses that they had."""
        for place, head in enumerate(self.heads):
            shares = self.by_head(rows)[place] * self.masses[:, place : place + 1]
            into[head, self.queries[:, None], self.keys] = shares


def problems(
    trace: Trace,
    tokens: Sequence[Tokens],
    layer: int = -1,
    level: Level = "head",
    head: int | None = None,
    words: bool = False,
    tolerance: float | None = None,
    rows: Float[Tensor, "batch head query key"] | None = None,
    slopes: Float[Tensor, "batch head query key label"] | None = None,
) -> list[list[Problem]]:
    """For each document the rows that classify it (or other `rows` of the layer) with the space of what they multiply.

    With `words`, only the weights of words are free. Keys to which no head of the layer gives any weight in a row are
    taken for masked, unless they are words between keys that have some. `slopes` are the values at the level of the
    prediction. A document whose free keys have no weight at all has no problem.
    """
    weights = _numbers(trace.classifying_rows(layer) if rows is None else rows)
    count = weights.shape[1]
    if head is not None and not 0 <= head < count:
        raise InputError(f"There is no head {head}: the layer has heads 0 to {count - 1}.")
    if not np.abs(weights[:, :, 0].sum(-1) - 1).max() < 1e-3:
        raise NotApplicable(
            "The rows of this attention do not sum to one (it has sinks), so none of it is efficient."
        )
    multiplied = trace.values[layer] if slopes is None else slopes[:, :, 0]
    values, precision = _numbers(multiplied), _precision(multiplied)
    if level in ("projected", "layer"):
        values = values @ _numbers(trace.projections[layer])
    heads = range(count) if head is None else [head]
    stacks = [tuple(heads)] if level in ("layer", "prediction") else [(h,) for h in heads]
    found = []
    for b, t in enumerate(tokens):
        queries = np.arange(len(t) if weights.shape[2] > 1 else 1)
        own = weights[b][:, queries]
        seen = _visible((own > 0).any(0), t)
        if words:
            seen[:, : len(t)] &= ~t.special
            seen[:, len(t) :] = False
        found.append(
            [
                _problem(stack, own, values[b], queries[same], keys, same, tolerance, precision)
                for keys, same in _alike(seen)
                for stack in stacks
            ]
        )
    return found


def _visible(seen: Bool[np.ndarray, "row key"], tokens: Tokens) -> Bool[np.ndarray, "row key"]:
    """Keys that a row may look at: those with weight, and words between them whose weight is too small for a number."""
    first, last = seen.argmax(1), seen.shape[1] - 1 - seen[:, ::-1].argmax(1)
    places = np.arange(seen.shape[1])
    word = np.zeros(seen.shape[1], dtype=bool)
    word[: len(tokens)] = ~tokens.special
    return seen | (word & (places > first[:, None]) & (places < last[:, None]))


def _precision(values: Tensor) -> float:
    """To what share of themselves numbers are known; half precision counts as single: its rounding fills all space."""
    import torch

    return min(torch.finfo(values.dtype).eps, torch.finfo(torch.float32).eps)


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()


def _alike(
    seen: Bool[np.ndarray, "row key"],
) -> Iterator[tuple[Int[np.ndarray, "_"], Int[np.ndarray, "_"]]]:
    """Keys, and the rows that look at just these: all rows, or, under a causal mask, each by itself."""
    patterns, which = np.unique(seen, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        if pattern.any():
            yield np.flatnonzero(pattern), np.flatnonzero(which.ravel() == i)


def _problem(
    stack: tuple[int, ...],
    weights: Float[np.ndarray, "head row key"],
    values: Float[np.ndarray, "head key value"],
    queries: Int[np.ndarray, "row"],
    keys: Int[np.ndarray, "key"],
    same: Int[np.ndarray, "row"],
    tolerance: float | None,
    precision: float,
) -> Problem:
    looked = np.stack([weights[h][same][:, keys] for h in stack], 1)
    masses = looked.sum(-1)
    shares = np.divide(
        looked,
        masses[..., None],
        where=masses[..., None] > 0,
        out=np.full_like(looked, 1 / len(keys)),
    )
    T = np.concatenate([values[h][keys] for h in stack])
    if (
        len(stack) > 1 and len(masses) == 1
    ):  # what is kept is the sum over heads, each with its mass
        T = T * np.repeat(masses[0], len(keys))[:, None]
    if len(stack) > 1:  # small is not rounding then: a head may have little mass
        precision = np.finfo(float).eps
    space = Space.of(T, np.repeat(np.arange(len(stack)), len(keys)), tolerance, precision)
    return Problem(stack, queries, keys, shares.reshape(len(same), -1), masses, space)


def opened(
    model: Classifier,
    tokens: Sequence[Tokens],
    level: Level = "head",
    layer: int = -1,
    head: int | None = None,
    words: bool = False,
    tolerance: float | None = None,
) -> tuple[Attending, list[list[Problem]]]:
    """A pass through the model that can be asked for its output with other attention, and the problems of its rows."""
    import torch

    attending = model.attending(tokens)
    layers = len(attending.trace.attention)
    if not -layers <= layer < layers:
        raise InputError(f"There is no layer {layer}: the model has layers 0 to {layers - 1}.")
    place = layer % layers
    below = place != layers - 1
    if level == "prediction" and below:
        raise InputError("The level 'prediction' looks at the last layer: leave layer at -1.")
    if attending.linear or below:  # what is kept is to be seen in a pass, and not in a sum
        with torch.no_grad():
            trace = model.trace(tokens) if below else attending.trace
        attending = attending._replace(
            trace=trace,
            logits=lambda rows: model.trace(tokens, attention={place: rows}, layers=()).logits,
            cheap=False,
        )
    rows = attending.trace.classifying_rows(layer)
    if rows.shape[2] > 1 and level in ("layer", "prediction"):
        raise NotApplicable(
            f"All rows of {model.name} classify, not one: choose the level 'head' or 'projected'."
        )
    slopes = _slopes(attending, rows, model.exclusive) if level == "prediction" else None
    return attending, problems(
        attending.trace, tokens, layer, level, head, words, tolerance, slopes=slopes
    )


def _slopes(
    attending: Attending, rows: Float[Tensor, "batch head query key"], exclusive: bool
) -> Float[Tensor, "batch head query key label"]:
    """The derivative of what decides the probabilities by the weights of some rows.

    Differences of logits (from their mean; all but the last), or each logit where labels do not exclude each other.
    """
    import torch

    with torch.enable_grad():
        free = rows.clone().requires_grad_()
        logits = attending.logits(free)
        apart = (logits - logits.mean(-1, keepdim=True))[:, :-1] if exclusive else logits
        found = [torch.autograd.grad(z, free, retain_graph=True)[0] for z in apart.sum(0)]
    return torch.stack(found, -1)


def efficient_rows(
    parts: Sequence[Sequence[Problem]], variant: Variant = "norm"
) -> dict[Problem, Float[np.ndarray, "row weight"]]:
    """The efficient attention of all rows."""
    return {p: p.space.efficient(p.rows, variant).rows for some in parts for p in some}


def swapped(
    attending: Attending,
    parts: Sequence[Sequence[Problem]],
    rows: Mapping[Problem, Float[np.ndarray, "row weight"]],
    layer: int = -1,
) -> Float[np.ndarray, "batch head query key"]:
    """The rows that classify, with others in the place of those of the problems of each document."""
    new = _numbers(attending.trace.classifying_rows(layer)).copy()
    for b, some in enumerate(parts):
        for part in some:
            part.put(rows[part], new[b])
    return new


def movement(
    model: Classifier,
    attending: Attending,
    rows: Float[np.ndarray, "*variant batch head query key"],
    base: Float[np.ndarray, "batch head query key"] | None = None,
) -> tuple[Float[np.ndarray, "*variant batch"], Float[np.ndarray, "*variant batch"]]:
    """How far the output of the running model moves from that with the rows `base` (its own), and if its label does.

    The Wasserstein distance between distributions over labels, no label being nearer to another than to a third, is
    their total variation distance; where labels do not exclude each other, it is the largest change of a probability.
    """
    import torch

    own = attending.trace.classifying_rows()
    both = (own if base is None else torch.from_numpy(base).to(own), torch.from_numpy(rows).to(own))
    with torch.no_grad():
        before, after = (model.probabilities(_numbers(attending.logits(r))) for r in both)
    moved = np.asarray(tvd(after, before)) if model.exclusive else np.abs(after - before).max(-1)
    return moved, (after.argmax(-1) != before.argmax(-1)).astype(float)


def openness(parts: Sequence[Problem]) -> dict[str, float]:
    """How much is open in a document, in the mean over its rows."""
    counts, nullities = [len(p.rows) for p in parts], np.array([p.space.nullity for p in parts])
    return {
        "null_space": float(np.average(nullities, weights=counts)),
        "rows_open": float(np.average(nullities > 0, weights=counts)),
    }


@dataclass(frozen=True)
class Determined(TokenMethod):
    """The part of attention that the output determines, in one layer.

    level       what counts as the output (see above)
    head        one head, or all
    aggregate   how the heads become one weight: their "mean" or "max"
    tolerance   directions in which the values are smaller than this share of their norm count as none; by default those
                that are rounding: at the levels "head" and "projected" in the model's own precision, else in double
    """

    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION, REPLACEABLE})
    signed: ClassVar[bool] = False
    only_by_name: ClassVar[bool] = True

    level: Level = "head"
    layer: int = -1
    head: int | None = None
    aggregate: Literal["mean", "max"] = "mean"
    tolerance: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_space(self.level, self.tolerance)
        if self.aggregate not in ("mean", "max"):
            raise UnknownName("way to combine heads", str(self.aggregate), ("mean", "max"))
        if self.head is not None and self.level in ("layer", "prediction"):
            raise InputError(
                f"At the level {self.level!r} all heads are looked at together: leave out head."
            )

    def refusal(self, model: Classifier, documents: Sequence[Any]) -> str:
        if self.level in ("projected", "layer") and PROJECTED not in model.offers:
            return f"{self.name} at the level {self.level!r} needs {PROJECTED}, which {model.name} does not offer."
        return super().refusal(model, documents)

    @abstractmethod
    def solve(self, problem: Problem) -> Efficient:
        """What is shown in the place of rows."""

    def bounds(
        self, job: Job, parts: Sequence[Problem], scores: Float[np.ndarray, "unit"]
    ) -> Float[np.ndarray, "unit 2"] | None:
        """The interval of units' scores over all attention with the same output, where it is asked for."""
        return None

    def without_bounds(self, parts: Sequence[Problem]) -> str:
        """Why there are no intervals though they are asked for, or nothing."""
        return ""

    def remarks(self, scores: Float[np.ndarray, "unit"]) -> tuple[str, ...]:
        return ()

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        found: list[Measured] = [Measured()] * len(jobs)
        for batch in model.batches([job.tokens for job in jobs]):
            tokens = [jobs[i].tokens for i in batch]
            attending, parts = opened(
                model, tokens, self.level, self.layer, self.head, tolerance=self.tolerance
            )
            raw = _numbers(attending.trace.classifying_rows(self.layer))
            solved = [{p: self.solve(p) for p in some} for some in parts]
            new = swapped(
                attending,
                parts,
                {p: x.rows for some in solved for p, x in some.items()},
                self.layer,
            )
            moved, _ = movement(model, attending, new, raw)
            below = (
                self.layer % len(attending.trace.attention) != len(attending.trace.attention) - 1
            )
            passes = (
                3 + below + (self.level == "prediction")
            )  # as it is, twice, and with other rows; and a gradient
            for b, i in enumerate(batch):
                found[i] = self._measured(
                    jobs[i], solved[b], raw[b], new[b], moved[b], attending.linear, passes
                )
        return found

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
        shown, before = self._aggregated(new, job), self._aggregated(raw, job)
        scores = np.maximum(*(split_rows(job, x, self.merge)[0] for x in (shown, before)))
        intervals = self.bounds(job, parts, scores)
        notes = self.remarks(split_rows(job, shown, self.merge)[0])
        if self.level == "prediction":
            facts["first_order"] = float(not linear)
        if not facts["rows_open"]:
            notes += (_trivial(parts),) if facts["tvd_from_attention"] < 1e-9 else ()
        elif self.level == "prediction":
            notes += tuple(_of_prediction(intervals, moved, linear))
        if why := self.without_bounds(parts):
            notes += (why,)
        if intervals is not None and (left := int(np.isnan(intervals[:, 0]).sum())):
            notes += (
                f"Intervals were looked for where weights are largest, and not for the other {left:,}.",
            )
        return Measured(
            rows=shown,
            raw=before,
            intervals=intervals,
            forward_passes=passes,
            facts=facts,
            notes=notes,
        )

    def _aggregated(
        self, rows: Float[np.ndarray, "head query key"], job: Job
    ) -> Float[np.ndarray, "key"]:
        """One weight for each key; those of padding, where it is attended to, behind those of the tokens."""
        heads = rows if self.head is None else rows[self.head : self.head + 1]
        each = heads[:, : len(job.tokens)].mean(1) if rows.shape[1] > 1 else heads[:, 0]
        found = each.mean(0) if self.aggregate == "mean" else each.max(0)
        return found if found[len(job.tokens) :].any() else found[: len(job.tokens)]


def _trivial(parts: Sequence[Problem]) -> str:
    T = max((p.space.T for p in parts), key=len)
    return (
        "Attention is already identified: no other attention has this output "
        f"({len(T)} weights, {T.shape[1]} numbers of output)."
    )


def _of_prediction(
    intervals: Float[np.ndarray, "unit 2"] | None, moved: float, linear: bool
) -> Iterator[str]:
    """What should be known of the level of the prediction."""
    if (
        intervals is not None
        and (width := float(np.nanmean(intervals[:, 1] - intervals[:, 0]))) > 0.1
    ):
        yield (
            "The prediction alone determines little of attention: the weight of a word can lie anywhere in an interval "
            f"of {width:.2f} on average."
        )
    if not linear:
        yield (
            "Behind this layer the model is not linear, so its prediction is kept to first order only: with these "
            f"weights in place it moves by {moved:.2g}."
        )


@dataclass(frozen=True)
class EfficientAttention(Determined):
    """The one attention that stands for all that have the same output: the flattest of them.

    variant     the least "norm", or the most "entropy"
    intervals   for how many words, those with the largest weights, to look for the smallest and largest weight over all
                of them: linear programs, for the mean of heads (or one of them) where one row classifies
    """

    name: ClassVar[str] = "efficient"
    summary: ClassVar[str] = (
        "the attention that its output determines, with an interval for each word"
    )
    paper: ClassVar[str] = "naim2024"

    variant: Variant = "norm"
    intervals: int = _INTERVALS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, intervals=0)
        check_variant(self.variant)

    def solve(self, problem: Problem) -> Efficient:
        return problem.space.efficient(problem.rows, self.variant)

    def bounds(
        self, job: Job, parts: Sequence[Problem], scores: Float[np.ndarray, "unit"]
    ) -> Float[np.ndarray, "unit 2"] | None:
        if not self.intervals or self.without_bounds(parts):
            return None
        heads = [h for p in parts for h in p.heads]
        many = (
            self.intervals if any(p.space.nullity for p in parts) else len(scores)
        )  # else they cost nothing
        chosen = np.sort(np.argsort(-scores, kind="stable")[:many])
        bounds = np.zeros((len(chosen), 2))
        for part in parts:
            inside = part.keys < len(job.tokens)
            unit = np.full(len(part.keys), -1)
            unit[inside] = job.groups[part.keys[inside]]
            member = (unit == chosen[:, None]) / 1.0
            if len(part.heads) == 1:
                bounds += part.space.intervals(part.rows[0], member) * part.masses[0] / len(heads)
            else:
                stacked = np.hstack([member * mass for mass in part.masses[0]])
                bounds += part.space.intervals(part.rows[0], stacked) / len(heads)
        found = np.full((len(job.units), 2), np.nan)
        found[chosen] = bounds
        return found

    def without_bounds(self, parts: Sequence[Problem]) -> str:
        heads = [h for p in parts for h in p.heads]
        single = all(len(p.rows) == 1 for p in parts) and len(set(heads)) == len(heads)
        if not self.intervals or (single and self.aggregate == "mean" and self.merge == "sum"):
            return ""
        of = (
            "several rows that classify"
            if not single
            else "largest weights (aggregate or merge is max)"
        )
        return (
            f"There are no intervals of {of}: only means over heads and sums over tokens have them."
        )


@dataclass(frozen=True)
class EffectiveAttention(Determined):
    """Attention without its part in the null space of the values: it neither sums to one nor is it positive."""

    name: ClassVar[str] = "effective"
    summary: ClassVar[str] = "attention without what cannot show in the output; may be negative"
    paper: ClassVar[str] = "brunner2020"

    def solve(self, problem: Problem) -> Efficient:
        return Efficient(problem.space.effective(problem.rows), 0)

    def remarks(self, scores: Float[np.ndarray, "unit"]) -> tuple[str, ...]:
        below = scores[scores < -1e-9]
        if not len(below):
            return ()
        many = f"{len(below)} of {len(scores)} weights are negative, by {-below.sum():.2g} together"
        return (
            f"{many} (marked with a minus where it is shown, or grey): effective attention is no attention.",
        )
