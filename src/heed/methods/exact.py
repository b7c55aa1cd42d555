"""Exact methods for the single-layer classifier: LIME and Shapley without sampling, the theorem."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np

from heed.algebra.limits import exact, lime_theorem, relative_error, slope
from heed.methods.method import HeadMethod, Job, Measured
from heed.models.classifier import CLOSED, Classifier, Output
from heed.settings import AtLeast, Below

if TYPE_CHECKING:
    from heed.algebra.ratios import Ratios


@dataclass(frozen=True)
class ClosedForm(HeadMethod):
    """A method that computes with the output as a function of all subsets of words.

    removal   "replace" by the model's filler, or "hide". There is no formula for "delete", which
              moves the other words
    repeats   "together": one unit per distinct word; "apart": one unit per occurrence
    output    what is explained: the log-odds of the label if there are two labels, or its logit
    """

    needs: ClassVar[frozenset[str]] = frozenset({CLOSED})
    sampled: ClassVar[str]  # the method that does the same for any model

    removal: Annotated[Literal["replace", "hide"], "way to remove words in closed form"] = "replace"
    repeats: Annotated[Literal["together", "apart"], "way to treat repeats"] = "together"
    output: Annotated[Literal["logit", "log-odds"], "output in closed form"] | None = field(
        default=None, kw_only=True
    )

    def merges_repeats(self) -> bool:
        return self.repeats == "together"

    def refusal(self, model: Classifier, documents: Sequence[Any]) -> str:
        form = f"{self.name} has a closed form for"
        if CLOSED not in model.offers:
            other = f"{self.sampled} samples and works for any model"
            return f"{form} the single-layer classifier only, and {model.name} is not one: {other}."
        if self.output == "log-odds" and len(model.labels) != 2:
            return f"{form} the log-odds of two labels, and {model.name} has more."
        return super().refusal(model, documents)

    def explained(self, model: Classifier) -> Output:
        # log-odds of more than two labels are no sum of ratios, and have no closed form
        several = self.output is None and len(model.labels) > 2
        return "logit" if several else super().explained(model)

    @abstractmethod
    def solve(self, f: Ratios, job: Job) -> Measured:
        """The scores for one document."""

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        part = model if self.head is None else model.head(self.head)
        odds = self.explained(model) == "log-odds"
        measured = [self.solve(self._function(part, job, odds), job) for job in jobs]
        passes = 2 if odds else 1
        return [replace(m, forward_passes=passes) for m in measured]

    def _function(self, model: Classifier, job: Job, odds: bool) -> Ratios:
        def logit(label: int) -> Ratios:
            return model.ratios(job.tokens, job.groups, len(job.units), label, self.removal)

        return logit(job.label) - logit(1 - job.label) if odds else logit(job.label)


@dataclass(frozen=True)
class LimeExact(ClosedForm):
    """LIME's regression over all subsets at once: the limit of `lime` with more and more samples.

    bandwidth   ν in the weight of a text, as in `lime`
    ridge       the penalty per sample: 1/n corresponds to the default of `lime` with n samples
    """

    name: ClassVar[str] = "lime-exact"
    summary: ClassVar[str] = "LIME with infinitely many samples (single-layer classifier)"
    paper: ClassVar[str] = "ribeiro2016 mardaoui2021 lopardo2024"
    sampled: ClassVar[str] = "lime"

    bandwidth: Annotated[float, AtLeast(0.01)] = 0.25
    ridge: Annotated[float, AtLeast(0), Below(math.inf)] = 0.0

    def solve(self, f: Ratios, job: Job) -> Measured:
        if f.units < 2:
            note = (
                f"LIME cannot compare a single {job.unit} with others, so its score is 0: use"
                " occlusion."
            )
            return Measured(np.zeros(1), facts={"intercept": f.empty()}, notes=(note,))
        fit = exact(f, self.bandwidth, self.ridge).lime
        return Measured(fit.coefficients, facts={"intercept": fit.intercept})


@dataclass(frozen=True)
class ShapleyExact(ClosedForm):
    """Shapley values over all subsets at once.

    They add up to f(document) - f(all words removed), which is checked.
    """

    name: ClassVar[str] = "shapley-exact"
    summary: ClassVar[str] = "Shapley values over all subsets of words (single-layer classifier)"
    paper: ClassVar[str] = "shapley1953 lundberg2017"
    sampled: ClassVar[str] = "shapley"

    def solve(self, f: Ratios, job: Job) -> Measured:
        change = f.whole() - f.empty()
        scores = exact(f).shapley if f.units > 1 else np.array([change])
        gap = float(scores.sum() - change)
        room = 1e-9 * max(1.0, float(np.abs(scores).sum()))
        assert abs(gap) <= room, f"Shapley values off by {gap}"
        return Measured(scores, facts={"change": change, "completeness_gap": gap})


@dataclass(frozen=True)
class LimeTheorem(ClosedForm):
    """Theorem 5.1: LIME is affine in attention.

    A word scores constant · Σ_t (a_t w_t - a_{h,t} w_{h,t}) over its positions t. The theorem's
    constant is 3/2. `facts` say how far its assumptions hold for the document (see `assumptions`),
    the factor that fits exact LIME best (`slope`, of the formula with constant 1), and the errors
    with both factors, relative to the norm of exact LIME.

    constant    the factor
    bandwidth   ν in the weight of a text, for the comparison with exact LIME
    """

    name: ClassVar[str] = "lime-theorem"
    summary: ClassVar[str] = "LIME as the theorem predicts it (single-layer classifier)"
    paper: ClassVar[str] = "lopardo2024"
    sampled: ClassVar[str] = "lime"

    constant: Annotated[float, AtLeast(0)] = 1.5
    bandwidth: Annotated[float, AtLeast(0.01)] = 0.25

    def solve(self, f: Ratios, job: Job) -> Measured:
        plain = lime_theorem(f, 1.0)
        scores = self.constant * plain
        if f.units < 2:
            note = f"The theorem says nothing about a single {job.unit}: use occlusion."
            return Measured(scores, notes=(note,))
        truth = exact(f, self.bandwidth).lime.coefficients
        if not plain.any() or not truth.any():
            return Measured(scores)
        fitted = slope(plain, truth)
        facts = {
            "slope": fitted,
            "error": relative_error(scores, truth),
            "error_with_slope": relative_error(fitted * plain, truth),
            **assumptions(f, job),
        }
        notes = (
            f"Exact LIME is best fitted with the constant {fitted:.2f}, up to "
            f"{facts['error_with_slope']:.0%} of its norm; with {self.constant:g} up to "
            f"{facts['error']:.0%}.",
            f"The theorem assumes words that differ (here {facts['distinct']:.0%} do), attention "
            f"without peaks (the largest g is {facts['spread']:.3g} times the smallest), and that "
            "removing words hardly moves the denominators (here by up to "
            f"{facts['moved']:.0%}).",
        )
        return Measured(scores, facts=facts, notes=notes)


def assumptions(f: Ratios, job: Job) -> dict[str, float]:
    """How far a document meets the assumptions of the theorem.

    distinct   units ÷ tokens, d/T; should be 1
    exponent   ε in T = Tmax^ε; should be well below 1
    spread     largest ÷ smallest g of a unit within a head, kept or replaced
    value      the largest |w| of a unit, kept or replaced
    moved      the largest share by which removing all words moves a denominator; 0 makes the output
               linear
    """
    g = np.concatenate([f.a, f.b], 1)
    low = np.where(g > 0, g, np.inf).min(1)
    value = np.abs(np.concatenate([f.n, f.m], 1)) * len(f.c) / np.where(g > 0, g, np.inf)
    kept, removed = f.c + f.a.sum(1), f.c + f.b.sum(1)
    words = int((job.groups >= 0).sum())
    return {
        "distinct": f.units / words,
        "exponent": float(np.log(words) / np.log(job.tokens.tokenizer.max_tokens)),
        "spread": float((g.max(1) / low).max()),
        "value": float(value.max()),
        "moved": float((np.abs(kept - removed) / np.maximum(kept, removed)).max()),
    }
