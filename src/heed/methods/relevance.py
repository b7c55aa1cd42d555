"""Relevance: a backward pass that loses nothing on its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from heed.errors import NotApplicable
from heed.methods.method import Job, Measured, OutputMethod, TokenMethod
from heed.models.classifier import GRADIENT, At, Classifier, output_slope
from heed.models.devices import as_numbers

_LOST = 0.01  # the share of all relevance that may be lost without a refusal
_ROUNDINGS = 16  # or so many roundings of the model's numbers, in half precision


@dataclass(frozen=True)
class Relevance(OutputMethod, TokenMethod):
    """Gradient times embedding of a pass in which factors are constants, so that scores add up.

    rule   of gates, the product of an activation with something else: "held" holds the activation
           constant, "half" gives half of the relevance to each factor
    at     the embeddings that get relevance: "block", those that enter the first layer (the default
           where the model has them); "lookup", those that the tokens look up

    Weights of attention, denominators of norms and factors of activations (act(x) is x times
    act(x)/x) are constants in the backward pass. The scores of all tokens, plus what biases add,
    are then the output: for a logit and for the log-odds of two labels, the output itself; else the
    logits, weighted by the slopes of the output. Of two factors of which neither is an activation,
    each gets half. A sigmoid is not 0 at 0, and is held. Where the sum misses the output, the model
    has functions that cannot be held, and the method refuses.
    """

    name: ClassVar[str] = "relevance"
    summary: ClassVar[str] = (
        "gradient times embedding with attention, norms and gates held constant"
    )
    of_changes: ClassVar[bool] = True
    only_by_name: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT})
    paper: ClassVar[str] = "ali2022 achtibat2024"

    rule: Annotated[Literal["held", "half"], "rule for gates"] = "held"
    at: At | None = None

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        # one text at a time, because the texts of a batch share their biases
        return [self._alone(model, job) for job in jobs]

    def _alone(self, model: Classifier, job: Job) -> Measured:
        return model.each([job.tokens], lambda _: [self._one(model, job)])[0]

    def _one(self, model: Classifier, job: Job) -> Measured:
        import torch

        from heed.models.constant import Constants, adds

        constants = Constants(self.rule)
        with torch.enable_grad(), constants:
            trace = model.trace([job.tokens], layers=(), at=self.at)
        logits = as_numbers(trace.logits)[0]
        slope = output_slope(logits, job.label, self.explained(model), model.exclusive)
        with torch.enable_grad():
            total = (trace.logits[0] * torch.as_tensor(slope).to(trace.logits)).sum()
            leaves = [trace.embeddings, *constants.added]
            gradient, *others = torch.autograd.grad(total, leaves, allow_unused=True)
        rows = (as_numbers(trace.embeddings[0]) * as_numbers(gradient[0])).sum(1)
        biases, output = adds(constants.added, others), float(logits @ slope)
        lost = abs(float(rows.sum()) + biases - output)
        # beside what comes and goes, and not beside a sum that may be near 0
        all_relevance = float(np.abs(rows).sum()) + abs(biases) + abs(output)
        if lost > max(_LOST, _ROUNDINGS * model.rounding) * all_relevance:
            raise NotApplicable(
                f"{self.name} does not add up to the output of {model.name}: the model has"
                " functions whose factors cannot be held constant."
            )
        error = lost / (abs(output) or 1.0)
        facts = {"biases": biases, "conservation_error": error}
        summed = "The scores" if self.merge == "sum" else "The scores of the tokens"
        note = f"{summed} sum to {rows.sum():+.4g}; with what biases add, {biases:+.4g}, to"
        note += f" {output:+.4g}, {self._sum_of(model)}, to within {lost:.1g}."
        return Measured(rows=rows[: model.width(job.tokens)], facts=facts, notes=(note,))

    def _sum_of(self, model: Classifier) -> str:
        """What scores and biases add up to, in words."""
        explained = self.explained(model)
        linear = explained == "log-odds" and (len(model.labels) == 2 or not model.exclusive)
        return "the output" if explained == "logit" or linear else "the logits times their slopes"
