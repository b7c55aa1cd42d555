"""Explanations from the gradient of the output with respect to the embeddings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.errors import UnknownName
from heed.explain.explanation import Job, Measured, TokenMethod, check_at_least, check_head, check_output
from heed.models.classifier import GRADIENT, Classifier, Gradient, Output, select_output

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class GradientExplainer(TokenMethod):
    """One number per token from its gradient; `head` looks at what a single attention head contributes."""

    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT})
    paper: ClassVar[str] = "simonyan2014"

    output: Output = "logit"
    head: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_output(self.output)
        check_head(self, self.head, self.output)

    @abstractmethod
    def reduce(self, found: Gradient) -> Float[np.ndarray, "row"]:
        """One number per row."""

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        subject = model if self.head is None else model.head(self.head)
        gradients = subject.gradient([job.tokens for job in jobs], [job.label for job in jobs], self.output)
        return [Measured(rows=self.reduce(g).astype(float)) for g in gradients]


@dataclass(frozen=True)
class GradientMean(GradientExplainer):
    name: ClassVar[str] = "gradient-mean"
    summary: ClassVar[str] = "gradient of the output, mean over embedding dimensions"

    def reduce(self, found: Gradient) -> Float[np.ndarray, "row"]:
        return found.gradient.mean(1)


@dataclass(frozen=True)
class GradientL1(GradientExplainer):
    name: ClassVar[str] = "gradient-l1"
    summary: ClassVar[str] = "gradient of the output, sum of absolute values"
    signed: ClassVar[bool] = False

    def reduce(self, found: Gradient) -> Float[np.ndarray, "row"]:
        return np.abs(found.gradient).sum(1)


@dataclass(frozen=True)
class GradientL2(GradientExplainer):
    name: ClassVar[str] = "gradient-l2"
    summary: ClassVar[str] = "gradient of the output, Euclidean norm"
    signed: ClassVar[bool] = False

    def reduce(self, found: Gradient) -> Float[np.ndarray, "row"]:
        return np.sqrt(np.square(found.gradient).sum(1))


@dataclass(frozen=True)
class GradientInput(GradientExplainer):
    name: ClassVar[str] = "gradient-input"
    summary: ClassVar[str] = "gradient times embedding"
    paper: ClassVar[str] = "shrikumar2017"

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

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [self._one(model, job) for job in jobs]

    def _one(self, model: Classifier, job: Job) -> Measured:
        import torch

        with torch.no_grad():
            ends = model.trace([job.tokens, model.blank(job.tokens)])
        end, start = ends.embeddings[0], ends.embeddings[1].clone()
        if self.baseline == "zero":
            start[torch.from_numpy(np.flatnonzero(~job.tokens.special))] = 0
        nodes, weights = np.polynomial.legendre.leggauss(self.steps)
        mean = torch.zeros_like(end)
        step = max(1, 20_000 // len(end))
        for i in range(0, self.steps, step):
            part = torch.from_numpy((nodes[i : i + step] + 1) / 2).to(end.dtype)[:, None, None]
            share = torch.from_numpy(weights[i : i + step] / 2).to(end.dtype)
            mean += torch.einsum("n,ntd->td", share, self._gradient(model, job, start + part * (end - start)))
        rows = ((end - start) * mean).sum(1).double().numpy()
        with torch.no_grad():
            both = model.trace([job.tokens] * 2, embeddings=torch.stack([end, start]))
        f_end, f_start = select_output(
            both.logits, torch.tensor([job.label] * 2), self.output, model.exclusive
        ).tolist()
        gap = float(rows.sum() - (f_end - f_start))
        summed = "The scores" if self.merge == "sum" else "The scores of the tokens"
        note = f"{summed} sum to the change of the output, {f_end - f_start:+.4g}, up to {abs(gap):.1g}."
        rows = rows[ends.tokens[0].numpy()]  # padding is the same at both ends and scores 0
        return Measured(rows=rows, forward_passes=self.steps + 2, facts={"completeness_gap": gap}, notes=(note,))

    def _gradient(
        self, model: Classifier, job: Job, at: Float[Tensor, "step token dim"]
    ) -> Float[Tensor, "step token dim"]:
        import torch

        with torch.enable_grad():
            points = at.detach().requires_grad_()
            trace = model.trace([job.tokens] * len(points), embeddings=points)
            labels = torch.tensor([job.label] * len(points))
            total = select_output(trace.logits, labels, self.output, model.exclusive).sum()
        (gradient,) = torch.autograd.grad(total, points)
        return gradient
