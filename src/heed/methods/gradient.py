"""Explanations from the gradient of the output with respect to the embeddings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.methods.method import Job, Measured, TokenMethod, check_head
from heed.models.classifier import (
    GRADIENT,
    REPLACEABLE,
    Classifier,
    Gradient,
    Output,
    output_of,
    select_output,
)
from heed.settings import AtLeast

if TYPE_CHECKING:
    from torch import Tensor

Rows = Float[np.ndarray, "row"]


@dataclass(frozen=True)
class GradientMethod(TokenMethod):
    """One number per token from its gradient.

    output      what the gradient is taken of: logit, log-odds or probability of the label
    head        explain only what this attention head contributes
    attention   "moves": attention changes with the embeddings; "fixed": it is held constant
    """

    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT})
    paper: ClassVar[str] = "simonyan2014"

    output: Output = "logit"
    head: int | None = None
    attention: Annotated[Literal["moves", "fixed"], "treatment of attention"] = "moves"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_head(self, self.head, self.output)

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
        gradients = subject.gradient(tokens, labels, self.output, self.attention == "fixed")
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
        if np.abs(measured.rows).max() > 1e-5 * np.abs(result.gradient).mean(1).max():
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
    paper: ClassVar[str] = "shrikumar2017"

    def reduce(self, result: Gradient) -> Rows:
        return (result.gradient * result.embeddings).sum(1)


@dataclass(frozen=True)
class IntegratedGradients(TokenMethod):
    """Gradient × (embedding - baseline), integrated along the straight line between the two.

    steps      nodes of the Gauss–Legendre rule
    baseline   where the line starts: "replace" replaces every word, "zero" sets the embeddings of
               words to zero; special tokens stay in both
    output     what the gradient is taken of: logit, log-odds or probability of the label

    The scores add up to the difference between the outputs at both ends, up to a completeness gap
    that is reported.
    """

    name: ClassVar[str] = "integrated-gradients"
    summary: ClassVar[str] = "gradients integrated from an empty document to the full one"
    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT})
    paper: ClassVar[str] = "sundararajan2017"

    steps: Annotated[int, AtLeast(1)] = 50
    baseline: Literal["replace", "zero"] = "replace"
    output: Output = "logit"

    def evaluations(self, units: int) -> int:
        return 2 * (self.steps + 1)  # forward and backward

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [self._one(model, job) for job in jobs]

    def _one(self, model: Classifier, job: Job) -> Measured:
        import torch

        end, start = model.embeddings([job.tokens, model.blank(job.tokens)])
        if self.baseline == "zero":
            start[torch.from_numpy(np.flatnonzero(~job.tokens.special))] = 0
        nodes, weights = np.polynomial.legendre.leggauss(self.steps)
        # the start is evaluated with the nodes, with weight 0, to know the output there
        shifts = torch.from_numpy(np.concatenate([[0], (nodes + 1) / 2])).to(end.dtype)
        weight = torch.from_numpy(np.concatenate([[0], weights / 2])).to(end.dtype)
        mean, outputs = torch.zeros_like(end), []
        for part in torch.arange(len(shifts)).split(max(1, model.batch_tokens // len(end))):
            points = torch.lerp(start, end, shifts[part, None, None])
            output, gradient = self._gradient(model, job, points)
            outputs += output.tolist()
            mean += torch.einsum("n,ntd->td", weight[part], gradient)
        rows = ((end - start) * mean).sum(1).double().numpy()
        assert job.logits is not None
        change = float(output_of(job.logits, job.label, self.output, model.exclusive)) - outputs[0]
        gap = float(rows.sum() - change)
        summed = "The scores" if self.merge == "sum" else "The scores of the tokens"
        note = f"{summed} sum to the change of the output, {change:+.4g}, to within {abs(gap):.1g}."
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
            trace = model.trace([job.tokens] * len(points), embeddings=points, layers=())
            labels = torch.tensor([job.label] * len(points))
            outputs = select_output(trace.logits, labels, self.output, model.exclusive)
            (gradient,) = torch.autograd.grad(outputs.sum(), points)
        return outputs.detach(), gradient
