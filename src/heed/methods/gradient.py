"""Explanations from the gradient of the output with respect to the embeddings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.errors import UnknownName
from heed.methods.method import Job, Measured, TokenMethod, check_at_least, check_head, check_output
from heed.methods.signatures import signature
from heed.models.classifier import (
    CLOSED,
    GRADIENT,
    REPLACEABLE,
    Classifier,
    Gradient,
    Output,
    output_of,
    select_output,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class GradientMethod(TokenMethod):
    """One number per token from its gradient.

    `head` looks at what a single attention head contributes; attention="fixed" leaves out that attention itself moves
    with the embeddings.
    """

    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT})
    paper: ClassVar[str] = "simonyan2014"

    output: Output = "logit"
    head: int | None = None
    attention: Literal["moves", "fixed"] = "moves"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_output(self.output)
        check_head(self, self.head, self.output)
        if self.attention not in ("moves", "fixed"):
            raise UnknownName("treatment of attention", str(self.attention), ("moves", "fixed"))

    def obstacle(self, model: Classifier, documents: Sequence[Any]) -> str:
        if self.attention == "fixed" and REPLACEABLE not in model.offers:
            return f"{self.name} with fixed attention needs {REPLACEABLE}, which {model.name} does not offer."
        return super().obstacle(model, documents)

    @abstractmethod
    def reduce(self, found: Gradient) -> Float[np.ndarray, "row"]:
        """One number per row."""

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        subject = model if self.head is None else model.head(self.head)
        tokens, labels = [job.tokens for job in jobs], [job.label for job in jobs]
        gradients = subject.gradient(tokens, labels, self.output, self.attention == "fixed")
        return [self.measured(g) for g in gradients]

    def measured(self, found: Gradient) -> Measured:
        return Measured(rows=self.reduce(found).astype(float))


@dataclass(frozen=True)
class GradientMean(GradientMethod):
    name: ClassVar[str] = "gradient-mean"
    summary: ClassVar[str] = "gradient of the output, mean over embedding dimensions"

    def reduce(self, found: Gradient) -> Float[np.ndarray, "row"]:
        return found.gradient.mean(1)

    def measured(self, found: Gradient) -> Measured:
        """A model that normalises its embeddings does not react when all dimensions move alike: what is left is
        rounding."""
        rows = self.reduce(found).astype(float)
        if np.abs(rows).max() > 1e-5 * np.abs(found.gradient).mean(1).max():
            return Measured(rows=rows)
        note = "The model normalises its embeddings, which makes the mean of the gradient 0: another method says more."
        return Measured(rows=np.zeros(len(rows)), notes=(note,) if found.gradient.any() else ())


@dataclass(frozen=True)
class GradientL1(GradientMethod):
    name: ClassVar[str] = "gradient-l1"
    summary: ClassVar[str] = "gradient of the output, sum of absolute values"
    signed: ClassVar[bool] = False

    def reduce(self, found: Gradient) -> Float[np.ndarray, "row"]:
        return np.abs(found.gradient).sum(1)


@dataclass(frozen=True)
class GradientL2(GradientMethod):
    name: ClassVar[str] = "gradient-l2"
    summary: ClassVar[str] = "gradient of the output, Euclidean norm"
    signed: ClassVar[bool] = False

    def reduce(self, found: Gradient) -> Float[np.ndarray, "row"]:
        return np.sqrt(np.square(found.gradient).sum(1))


@dataclass(frozen=True)
class GradientInput(GradientMethod):
    name: ClassVar[str] = "gradient-input"
    summary: ClassVar[str] = "gradient times embedding"
    paper: ClassVar[str] = "shrikumar2017"

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        found = super().measure(model, jobs)
        if CLOSED not in model.offers or self.head is not None:
            return found
        notes = [signature(model, job.tokens, job.label).heads_note() for job in jobs]
        return [
            replace(m, notes=(*m.notes, note)) if note else m
            for m, note in zip(found, notes, strict=True)
        ]

    def reduce(self, found: Gradient) -> Float[np.ndarray, "row"]:
        return (found.gradient * found.embeddings).sum(1)


@dataclass(frozen=True)
class IntegratedGradients(TokenMethod):
    """Gradient × (embedding - baseline), integrated along the straight line between them (Gauss–Legendre).

    The baseline is the document with every word replaced, or with zero embeddings; special tokens stay. The scores
    add up to the difference of the outputs at both ends, up to the completeness gap, which is reported.
    """

    name: ClassVar[str] = "integrated-gradients"
    summary: ClassVar[str] = "gradients integrated from a document without words to the document"
    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT})
    paper: ClassVar[str] = "sundararajan2017"

    steps: int = 50
    baseline: Literal["replace", "zero"] = "replace"
    output: Output = "logit"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_output(self.output)
        check_at_least(self, steps=1)
        if self.baseline not in ("replace", "zero"):
            raise UnknownName("baseline", str(self.baseline), ("replace", "zero"))

    def evaluations(self, units: int) -> int:
        return 2 * self.steps  # forth and back

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [self._one(model, job) for job in jobs]

    def _one(self, model: Classifier, job: Job) -> Measured:
        import torch

        end, start = model.embeddings([job.tokens, model.blank(job.tokens)])
        if self.baseline == "zero":
            start[torch.from_numpy(np.flatnonzero(~job.tokens.special))] = 0
        nodes, weights = np.polynomial.legendre.leggauss(self.steps)
        # the start goes with the nodes, for the output there
        places = torch.from_numpy(np.concatenate([[0], (nodes + 1) / 2])).to(end.dtype)
        shares = torch.from_numpy(np.concatenate([[0], weights / 2])).to(end.dtype)
        mean, outputs = torch.zeros_like(end), []
        for part in torch.arange(len(places)).split(max(1, model.batch_tokens // len(end))):
            points = torch.lerp(start, end, places[part, None, None])
            output, gradient = self._gradient(model, job, points)
            outputs += output.tolist()
            mean += torch.einsum("n,ntd->td", shares[part], gradient)
        rows = ((end - start) * mean).sum(1).double().numpy()
        assert job.logits is not None
        change = float(output_of(job.logits, job.label, self.output, model.exclusive)) - outputs[0]
        gap = float(rows.sum() - change)
        summed = "The scores" if self.merge == "sum" else "The scores of the tokens"
        note = f"{summed} sum to the change of the output, {change:+.4g}, up to {abs(gap):.1g}."
        rows = rows[: len(job.tokens)]  # padding is the same at both ends and scores 0
        return Measured(
            rows=rows, forward_passes=self.steps + 2, facts={"completeness_gap": gap}, notes=(note,)
        )

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
