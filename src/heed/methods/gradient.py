"""Explanations from the gradient of the output with respect to the embeddings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.errors import InputError, NotApplicable
from heed.methods.method import (
    HeadMethod,
    Job,
    Measured,
    OutputMethod,
    TokenMethod,
    layer_of,
)
from heed.models.classifier import (
    BETWEEN,
    GRADIENT,
    REPLACEABLE,
    At,
    Classifier,
    Gradient,
    output_of,
    select_output,
)
from heed.models.devices import as_numbers, on_cpu
from heed.settings import AtLeast
from heed.text import Tokens

if TYPE_CHECKING:
    from torch import Tensor

Rows = Float[np.ndarray, "row"]

_ROUNDING = 1e-5  # the largest share of the gradient that a mean of 0 may differ from it
_ORTHOGONAL = 1e-3  # the largest cosine that counts as none
_INCOMPLETE = 0.05  # the share of the change of the output that scores may miss without a warning


@dataclass(frozen=True)
class GradientMethod(HeadMethod, TokenMethod):
    """One number per token from its gradient.

    attention   "moves": attention changes with the embeddings; "fixed": it is held constant
    at          the embeddings that the gradient is taken at: "block", those that enter the first
                layer, after positions and norm (the default where the model has them); "lookup",
                those that the tokens look up
    """

    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT})
    paper: ClassVar[str] = "simonyan2014"

    attention: Annotated[Literal["moves", "fixed"], "treatment of attention"] = "moves"
    at: At | None = None

    def refusal(self, model: Classifier, documents: Sequence[Any]) -> str:
        also = {REPLACEABLE} if self.attention == "fixed" else set()
        reason = self.lacks(model, also, " with fixed attention")
        return reason or super().refusal(model, documents)

    @abstractmethod
    def reduce(self, result: Gradient) -> Rows:
        """One number per row."""

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        subject = model if self.head is None else model.head(self.head)
        tokens, labels = [job.tokens for job in jobs], [job.label for job in jobs]
        held = self.attention == "fixed"
        gradients = subject.gradient(tokens, labels, self.explained(model), held, self.at)
        return [self.measured(g) for g in gradients]

    def measured(self, result: Gradient) -> Measured:
        # to hold attention constant, a first pass has to show it
        passes = 1 if self.attention == "moves" else 2
        return Measured(rows=self.reduce(result).astype(float), forward_passes=passes)


@dataclass(frozen=True)
class GradientMean(GradientMethod):
    name: ClassVar[str] = "gradient-mean"
    summary: ClassVar[str] = "mean of the gradient over embedding dimensions"

    def reduce(self, result: Gradient) -> Rows:
        return result.gradient.mean(1)

    def measured(self, result: Gradient) -> Measured:
        measured = super().measured(result)
        assert measured.rows is not None
        # A model that normalises its embeddings does not react when all dimensions move alike. Its
        # mean gradient is 0 but for rounding, and rounding must not be shown as scores.
        rounding = max(_ROUNDING, result.rounding)
        if np.abs(measured.rows).max() > rounding * np.abs(result.gradient).mean(1).max():
            return measured
        note = (
            "The model normalises its embeddings, which makes the mean of the gradient 0: "
            "use another method."
        )
        notes = (note,) if result.gradient.any() else ()
        return replace(measured, rows=np.zeros(len(measured.rows)), notes=notes)


@dataclass(frozen=True)
class GradientL1(GradientMethod):
    name: ClassVar[str] = "gradient-l1"
    summary: ClassVar[str] = "sum of absolute values of the gradient"
    signed: ClassVar[bool] = False

    def reduce(self, result: Gradient) -> Rows:
        return np.abs(result.gradient).sum(1)


@dataclass(frozen=True)
class GradientL2(GradientMethod):
    name: ClassVar[str] = "gradient-l2"
    summary: ClassVar[str] = "Euclidean norm of the gradient"
    signed: ClassVar[bool] = False

    def reduce(self, result: Gradient) -> Rows:
        return np.sqrt(np.square(result.gradient).sum(1))


@dataclass(frozen=True)
class GradientInput(GradientMethod):
    name: ClassVar[str] = "gradient-input"
    summary: ClassVar[str] = "gradient times embedding"
    of_changes: ClassVar[bool] = True
    paper: ClassVar[str] = "shrikumar2017"

    def reduce(self, result: Gradient) -> Rows:
        return times_input(result, self.name)


def times_input(result: Gradient, name: str) -> Rows:
    """Gradient times embedding, for the method of this name; refused where it is always 0."""
    products = (result.gradient * result.embeddings).sum(1)
    lengths = np.linalg.norm(result.gradient, axis=1)
    lengths = lengths * np.linalg.norm(result.embeddings, axis=1)
    # A norm right behind the embeddings makes the output blind to their scale. The gradient is
    # then orthogonal to them, and what is left of the product is rounding.
    largest_cosine = max(_ORTHOGONAL, result.rounding)
    if lengths.any() and np.abs(products).max() < largest_cosine * lengths.max():
        raise NotApplicable(
            f"{name} is 0 on this model but for rounding: the model normalises these"
            " embeddings, so their gradient is orthogonal to them. Use at=block if it has it,"
            " or another method."
        )
    return products


@dataclass(frozen=True)
class GradientPaths(HeadMethod, TokenMethod):
    """Gradient times embedding, split by the way in which a word moves the output.

    A word moves what attention adds up, and it moves the attention. The gradient splits exactly in
    two: what is left of it with attention held constant in all layers (the values, and all that is
    around attention), and the rest, which flows through attention. In the single-layer classifier
    these are the two terms of Theorem 4.1. `raw` has the whole, so `raw` minus the scores is the
    other part.

    path    "attention": what flows through attention; "values": what flows with attention held
    layer   only what flows through the attention of this layer (-1 is the last) and of no other;
            none for all
    at      the embeddings that the gradient is taken at: "block", those that enter the first layer
            (the default where the model has them); "lookup", those that the tokens look up

    The parts of single layers do not add up to what flows through attention: a way through the
    attention of two layers or more belongs to the whole, and to no single layer. The share of
    attention is ‖A‖ / (‖A‖ + ‖V‖), of the gradient's two parts over all tokens: the two may point
    in opposite directions, so neither is a part of the length of their sum.
    """

    name: ClassVar[str] = "gradient-paths"
    summary: ClassVar[str] = "gradient times embedding, through attention or with attention held"
    of_changes: ClassVar[bool] = True
    only_by_name: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT, REPLACEABLE})
    paper: ClassVar[str] = "lopardo2024 shrikumar2017"

    path: Annotated[Literal["attention", "values"], "path"] = "attention"
    layer: int | None = None
    at: At | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layer is not None and self.path == "values":
            raise InputError(
                f"The values path of {self.name} holds the attention of all layers: leave out the"
                " layer."
            )

    def refusal(self, model: Classifier, documents: Sequence[Any]) -> str:
        # attention of an encoder that is not shown cannot be held either
        between = {BETWEEN} if BETWEEN in model.withheld else set()
        return super().refusal(model, documents) or self.lacks(model, between)

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        subject = model if self.head is None else model.head(self.head)
        tokens, labels = [job.tokens for job in jobs], [job.label for job in jobs]
        output = self.explained(model)
        whole = subject.gradient(tokens, labels, output, at=self.at)
        held = subject.gradient(tokens, labels, output, True, self.at)
        if self.layer is None:
            return [self._measured(*parts) for parts in zip(whole, held, whole, strict=True)]
        others = _all_but(self.layer, subject, tokens)
        # in a model of one layer no other is held
        free = subject.gradient(tokens, labels, output, others, self.at) if others else whole
        return [self._measured(*parts) for parts in zip(whole, held, free, strict=True)]

    def _measured(self, whole: Gradient, held: Gradient, free: Gradient) -> Measured:
        """Of a document's gradients: as it is, with attention held, and with some of it free."""
        total = times_input(whole, self.name).astype(float)
        e = whole.embeddings.astype(float)
        through = free.gradient.astype(float) - held.gradient
        all_through = whole.gradient.astype(float) - held.gradient
        lengths = [float(np.linalg.norm(part)) for part in (all_through, held.gradient, through)]
        facts = {
            "through_attention": lengths[0] / (sum(lengths[:2]) or 1.0),
            "sum_attention": float((all_through * e).sum()),
            "sum_values": float((held.gradient * e).sum()),
        }
        if self.layer is not None:
            facts["through_layer"] = lengths[2] / (lengths[0] or 1.0)
        shown = held.gradient if self.path == "values" else through
        # a pass for the whole; one that shows attention and one that holds it; with a layer, one
        # that counts layers, and two more
        passes = 3 if self.layer is None else 6
        rows = (shown * e).sum(1)
        return Measured(rows=rows, raw=total, facts=facts, forward_passes=passes)


def _all_but(layer: int, model: Classifier, tokens: Sequence[Tokens]) -> list[int]:
    """The numbers of all layers of a model but one."""
    import torch

    with torch.no_grad():
        count = len(model.trace(tokens[:1], layers=[0]).attention)
    return [i for i in range(count) if i != layer_of(layer, count)]


@dataclass(frozen=True)
class IntegratedGradients(OutputMethod, TokenMethod):
    """Gradient × (embedding - baseline), integrated along the straight line between the two.

    steps      nodes of the Gauss–Legendre rule
    baseline   where the line starts: "replace" replaces every word, "zero" sets the embeddings of
               words to zero; special tokens stay in both
    at         the embeddings that are moved: "block", those that enter the first layer (the default
               where the model has them); "lookup", those that the tokens look up

    The scores add up to the difference between the outputs at both ends, up to a completeness gap
    that is reported.
    """

    name: ClassVar[str] = "integrated-gradients"
    summary: ClassVar[str] = "gradients integrated from an empty document to the full one"
    of_changes: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT})
    paper: ClassVar[str] = "sundararajan2017"

    steps: Annotated[int, AtLeast(1)] = 50
    baseline: Literal["replace", "zero"] = "replace"
    at: At | None = None

    def evaluations(self, units: int) -> int:
        return 2 * (self.steps + 1)  # forward and backward

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [self._one(model, job) for job in jobs]

    def _one(self, model: Classifier, job: Job) -> Measured:
        import torch

        ends = model.embeddings([job.tokens, model.blank(job.tokens)], self.at)
        end, start = on_cpu(ends)
        if self.baseline == "zero":
            start[torch.from_numpy(np.flatnonzero(~job.tokens.special))] = 0
        nodes, weights = np.polynomial.legendre.leggauss(self.steps)
        # the start is evaluated with the nodes, with weight 0, to know the output there
        shifts = torch.from_numpy(np.concatenate([[0], (nodes + 1) / 2])).to(end.dtype)
        weight = torch.from_numpy(np.concatenate([[0], weights / 2])).to(end.dtype)

        def run(part: list[int]) -> tuple[list[float], Float[Tensor, "token dim"]]:
            points = torch.lerp(start, end, shifts[part, None, None])
            output, gradient = self._gradient(model, job, points)
            return output.tolist(), torch.einsum("n,ntd->td", weight[part], gradient)

        mean, outputs = torch.zeros_like(end), []
        for _, (output, gradient) in model.in_batches([len(end)] * len(shifts), run):
            outputs += output
            mean += gradient
        rows = as_numbers(((end - start) * mean).sum(1))
        assert job.logits is not None
        whole = output_of(job.logits, job.label, self.explained(model), model.exclusive)
        change = float(whole) - outputs[0]
        gap = float(rows.sum() - change)
        summed = "The scores" if self.merge == "sum" else "The scores of the tokens"
        note = f"{summed} sum to the change of the output, {change:+.4g}, to within {abs(gap):.1g}."
        if abs(gap) > _INCOMPLETE * abs(change):
            elsewhere = ", or at=block" if model.place(self.at) != model.gradients_at[0] else ""
            note += f" That is too much to rely on them: take more steps{elsewhere}."
        rows = rows[: len(job.tokens)]  # padding is the same at both ends and scores 0
        facts = {"completeness_gap": gap}
        return Measured(rows=rows, forward_passes=self.steps + 1, facts=facts, notes=(note,))

    def _gradient(
        self, model: Classifier, job: Job, points: Float[Tensor, "step token dim"]
    ) -> tuple[Float[Tensor, "step"], Float[Tensor, "step token dim"]]:
        """The output at each point, and its gradient there."""
        import torch

        with torch.enable_grad():
            points = points.detach().requires_grad_()
            tokens = [job.tokens] * len(points)
            trace = model.trace(tokens, embeddings=points, layers=(), at=self.at)
            labels = torch.tensor([job.label] * len(points))
            outputs = select_output(trace.logits, labels, self.explained(model), model.exclusive)
            (gradient,) = torch.autograd.grad(outputs.sum(), points)
        return outputs.detach(), gradient
