"""Explanations of the single-layer classifier without sampling: limits, theorem, and how well they agree."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from heed.algebra.limits import exact, lime_theorem, relative_error, slope
from heed.errors import InputError, UnknownName
from heed.methods.method import Job, Measured, Method, check_at_least
from heed.methods.perturbation import check_repeats
from heed.models.classifier import CLOSED, Classifier

if TYPE_CHECKING:
    from heed.algebra.ratios import Ratios


@dataclass(frozen=True)
class ClosedForm(Method):
    """A method that computes with the output as a function of all subsets of words.

    removal   "replace" by the model's filler, or "hide": deleting moves the other words, for which there is no formula
    repeats   whether repeated words are one unit ("together") or not ("apart")
    head      explain what a single attention head contributes
    output    what is explained: the logit of the label or, where there are two, its log-odds
    """

    needs: ClassVar[frozenset[str]] = frozenset({CLOSED})
    sampled: ClassVar[str]  # the method that does the same for any model

    removal: Literal["replace", "hide"] = "replace"
    repeats: Literal["together", "apart"] = "together"
    head: int | None = None
    output: Literal["logit", "log-odds"] = "logit"

    def __post_init__(self) -> None:
        if self.output not in ("logit", "log-odds"):
            raise UnknownName("output in closed form", str(self.output), ("logit", "log-odds"))
        if self.removal not in ("replace", "hide"):
            raise UnknownName(
                "way to remove words in closed form", str(self.removal), ("replace", "hide")
            )
        check_repeats(self.repeats)

    def merges_repeats(self) -> bool:
        return self.repeats == "together"

    def refusal(self, model: Classifier, documents: Sequence[Any]) -> str:
        if CLOSED not in model.offers:
            return (
                f"{self.name} has a closed form for the single-layer classifier alone, and {model.name} is not one: "
                f"{self.sampled} samples and works for any model."
            )
        if self.output == "log-odds" and len(model.labels) != 2:
            return f"{self.name} has a closed form for the log-odds of two labels, and {model.name} has more."
        return super().refusal(model, documents)

    @abstractmethod
    def solve(self, f: Ratios, job: Job) -> Measured:
        """The scores for one document."""

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        part = model if self.head is None else model.head(self.head)
        passes = 1 if self.output == "logit" else 2
        measured = [self.solve(self._function(part, job), job) for job in jobs]
        return [replace(m, forward_passes=passes) for m in measured]

    def _function(self, model: Classifier, job: Job) -> Ratios:
        def logit(label: int) -> Ratios:
            return model.ratios(job.tokens, job.groups, len(job.units), label, self.removal)

        if self.output == "logit":
            return logit(job.label)
        return logit(job.label) - logit(1 - job.label)


@dataclass(frozen=True)
class LimeExact(ClosedForm):
    """LIME's regression over all subsets at once: what `lime` tends to with more and more samples.

    `ridge` is the penalty per sample, so that 1/n is what `lime` has with n samples; by default there is none.
    """

    name: ClassVar[str] = "lime-exact"
    summary: ClassVar[str] = "LIME with infinitely many samples (single-layer classifier)"
    paper: ClassVar[str] = "ribeiro2016 mardaoui2021 lopardo2024"
    sampled: ClassVar[str] = "lime"

    bandwidth: float = 0.25
    ridge: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, bandwidth=0.01, ridge=0)
        if self.ridge == float("inf"):
            raise InputError("The setting ridge of lime-exact must be finite.")

    def solve(self, f: Ratios, job: Job) -> Measured:
        if f.units < 2:
            note = "LIME has nothing to compare a single word with: its score is 0, and occlusion says more."
            return Measured(np.zeros(1), facts={"intercept": f.empty()}, notes=(note,))
        fit = exact(f, self.bandwidth, self.ridge).lime
        return Measured(fit.coefficients, facts={"intercept": fit.intercept})


@dataclass(frozen=True)
class ShapleyExact(ClosedForm):
    """Shapley values over all subsets at once; they add up to f(document) - f(all removed), and that is checked."""

    name: ClassVar[str] = "shapley-exact"
    summary: ClassVar[str] = "Shapley values over all subsets of words (single-layer classifier)"
    paper: ClassVar[str] = "shapley1953 lundberg2017"
    sampled: ClassVar[str] = "shapley"

    def solve(self, f: Ratios, job: Job) -> Measured:
        change = f.whole() - f.empty()
        scores = exact(f).shapley if f.units > 1 else np.array([change])
        gap = float(scores.sum() - change)
        assert abs(gap) <= 1e-9 * max(1.0, float(np.abs(scores).sum())), (
            f"Shapley values off by {gap}"
        )
        return Measured(scores, facts={"change": change, "completeness_gap": gap})


@dataclass(frozen=True)
class LimeTheorem(ClosedForm):
    """Theorem 5.1: LIME is affine in attention, constant · Σ_t (a_t w_t - a_{h,t} w_{h,t}) over a word's positions.

    The theorem has the constant 3/2. `facts` tell how far its assumptions hold for the document (bounds of g and |w|,
    number of words against the positions of the model), the factor that fits exact LIME best (`slope`, of the formula
    with constant 1), and the errors with both factors, relative to the norm of exact LIME.
    """

    name: ClassVar[str] = "lime-theorem"
    summary: ClassVar[str] = (
        "LIME as the theorem has it: attention weighted by the last layer (single-layer classifier)"
    )
    paper: ClassVar[str] = "lopardo2024"
    sampled: ClassVar[str] = "lime"

    constant: float = 1.5
    bandwidth: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, constant=0, bandwidth=0.01)

    def solve(self, f: Ratios, job: Job) -> Measured:
        plain = lime_theorem(f, 1.0)
        scores = self.constant * plain
        if f.units < 2:
            return Measured(
                scores, notes=("The theorem says nothing of a single word: occlusion says more.",)
            )
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
            f"Exact LIME is best fitted with the constant {fitted:.2f}, up to {facts['error_with_slope']:.0%} of its "
            f"norm; with {self.constant:g} up to {facts['error']:.0%}.",
            f"The theorem assumes words that differ (here {facts['distinct']:.0%} do), attention without peaks (the "
            f"largest g is {facts['spread']:.3g} times the smallest), and that removing words hardly moves the "
            f"denominators (here by up to {facts['moved']:.0%}).",
        )
        return Measured(scores, facts=facts, notes=notes)


def assumptions(f: Ratios, job: Job) -> dict[str, float]:
    """How a document meets what the theorem assumes.

    distinct      units ÷ tokens, d/T, which should be 1
    exponent      ε in T = Tmax^ε, which should be well below 1
    spread        largest ÷ smallest g of a unit within a head, kept or replaced
    value         the largest |w| of a unit, kept or replaced
    moved         by how much of it removing all words moves a denominator, at most: 0 makes the output linear
    """
    g = np.concatenate([f.a, f.b], 1)
    low = np.where(g > 0, g, np.inf).min(1)
    value = np.abs(np.concatenate([f.n, f.m], 1)) * len(f.c) / np.where(g > 0, g, np.inf)
    own, other = f.c + f.a.sum(1), f.c + f.b.sum(1)
    words = int((job.groups >= 0).sum())
    return {
        "distinct": f.units / words,
        "exponent": float(np.log(words) / np.log(job.tokens.tokenizer.max_tokens)),
        "spread": float((g.max(1) / low).max()),
        "value": float(value.max()),
        "moved": float((np.abs(own - other) / np.maximum(own, other)).max()),
    }
