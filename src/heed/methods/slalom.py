"""SLALOM: the output as one attention head would give it, with two numbers for every word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Float

from heed.algebra.limits import Exact, exact
from heed.algebra.one_head import OneHead, fit
from heed.algebra.regression import Words, ridge
from heed.errors import InputError
from heed.methods.explanation import Explanation, Unit
from heed.methods.method import HeadMethod, Job, Keep, Measured
from heed.methods.perturbation import Outputs, Repeating, Samples, all_subsets, uniform_subsets
from heed.models.classifier import Classifier
from heed.settings import Above, Below
from heed.text import counted

_HELD_OUT = 5  # one of so many texts is not fitted
_FEWEST = 5  # held-out texts that can tell how good a fit is
_ROUNDING = 1e-12  # outputs that differ by less than this share of them are equal


@dataclass(frozen=True)
class Slalom(HeadMethod, Repeating):
    """How important each word is, and what it says: the two numbers of an attention head.

    samples   how many texts to evaluate
    ridge     the penalty on the squares of importances, and of values in standard deviations of the
              output. It decides what the outputs leave open

    The output for the text without some words is modelled as a mean of the words' values v,
    weighted by a softmax of their importances s. Both numbers of a word are in `parts`, as
    "importance" and "value". They cannot be told apart by an additive model: "the" may be important
    and say nothing.

    Texts. The number of removed words is uniform, as in LIME. Short texts tell importances, since a
    word weighs much among few; long ones are like the document. Each text is taken once. If all
    subsets fit into `samples`, all are taken.

    What is always there. Special tokens, template and padding attend, too. Their weight cannot be
    told from outputs, since a common factor of all weights cancels. So importances have a zero that
    is chosen. With words hidden or deleted, what is always there has the weight e^0 = 1, and its
    value is the output without words. With words replaced, the filler attends in their place, and
    only how much more a word weighs than its filler can be told: an importance of 0 is that of the
    filler, once for each occurrence. What is always there is then counted as part of the fillers,
    which loses nothing: every output that a constant weight and equal fillers can give is an output
    of fillers alone.

    When it is exact. One head of the single-layer classifier is this model. With words hidden, s
    are its attention logits (relative to what is always there) and v what its values give to the
    output; a word that occurs several times has the sum of their weights, and their mean value.
    With words replaced it is exact too, if the filler weighs about the same at all places:
    then e^s is an affine function of the attention weight. Several heads are a sum of such models,
    and one head only fits them as far as they attend alike. Log-odds of more than two labels, and
    probabilities, are no mean of values: take output=logit.

    Score. A word's attention in the whole document times how far its value is from the output
    without words: e^s (v - v_0) / Σ e^s. It is the linearised score v e^s of the paper, with values
    counted from v_0. The scores add up to how much the words change the fitted output. Neither the
    chosen zero nor the share of what is always there changes them.

    An additive output is the limit of small weights with large values. The penalty stops on the way
    to it, so that scores come out too small, by a sixth for six words.

    How good it is. One of five texts is not fitted. `r2` is the share of the variance of their
    outputs that the fit explains, and `r2_additive` what an additive model explains that was fitted
    to the same texts: how far the model behaves like a single layer.
    """

    name: ClassVar[str] = "slalom"
    summary: ClassVar[str] = "importance and value of words in one attention head that fits outputs"
    only_by_name: ClassVar[bool] = True
    paper: ClassVar[str] = "leemann2025"

    samples: Samples = 2000
    ridge: Annotated[float, Above(0), Below(math.inf)] = 1e-3

    def evaluations(self, units: int) -> int:
        return min(self.samples, 2**units)

    def evaluates_whole(self) -> bool:
        return self.head is None

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        part = model if self.head is None else model.head(self.head)
        # what stands in for removed words depends on how they are removed
        settled = replace(self, removal=part.removal(self.removal))
        return super(Slalom, settled).measure(part, jobs)

    def plan(self, job: Job) -> Keep:
        """The whole document, the one without words, and then other choices in random order."""
        d = len(job.units)
        ends = np.array([[True] * d, [False] * d])
        if d < 30 and 2**d <= self.samples:
            return np.vstack([ends, job.rng.permutation(all_subsets(d)[1:-1])])
        drawn = np.vstack([ends, uniform_subsets(job.rng, self.samples - 2, d, proper=True)])
        # a text that was fitted must not be among those that test the fit
        _, first = np.unique(drawn, axis=0, return_index=True)
        return drawn[np.sort(first)]

    def fit(self, job: Job, keep: Keep, outputs: Outputs) -> Measured:
        held = len(keep) // _HELD_OUT
        fitted = len(keep) - held if held >= _FEWEST else len(keep)
        known, y = keep[:fitted], outputs[:fitted]
        assert self.removal is not None
        outside = always_there(self.removal, job.units)
        head = fit(known, y, *outside, self.ridge)
        facts, notes = {"empty": head.empty}, self._notes(job, len(known))
        unseen, truth = keep[fitted:], outputs[fitted:]
        if len(truth) and np.ptp(truth) > _ROUNDING * max(1.0, float(np.abs(truth).max())):
            additive = ridge(Words(known), y, np.ones(fitted), self.ridge)
            by_words = additive.intercept + unseen @ additive.coefficients
            own, other = explained(truth, head(unseen)), explained(truth, by_words)
            facts |= {"r2": own, "r2_additive": other}
            notes += (
                f"Of {counted(held, 'text')} that were not fitted, one attention head explains"
                f" {own:.0%} of the variance of the output, and an additive model {other:.0%}.",
            )
        parts = {"importance": head.importance, "value": head.value}
        return Measured(head.scores(), facts=facts, notes=notes, parts=parts)

    def _notes(self, job: Job, fitted: int) -> tuple[str, ...]:
        d = len(job.units)
        if fitted > 2 * d:
            return ()
        return (
            f"{counted(fitted, 'text')} cannot tell the two numbers of {counted(d, job.unit)}: the"
            " penalty decides on some of them.",
        )


def always_there(removal: str, units: Sequence[Unit]) -> tuple[float, Float[np.ndarray, "unit"]]:
    """The weight of what is always there, and of what stands in for each unit that is removed."""
    if removal == "replace":
        return 0.0, np.array([float(len(unit.spans)) for unit in units])
    return 1.0, np.zeros(len(units))


def explained(truth: Outputs, predicted: Outputs) -> float:
    """R²: the share of the variance that predictions explain, negative if they add to it."""
    left = np.square(truth - predicted).sum()
    return float(1 - left / np.square(truth - truth.mean()).sum())


def fitted_head(explanation: Explanation) -> OneHead:
    """The attention head that an explanation by `slalom` fitted, as a function of kept units."""
    parts, removal = explanation.parts, explanation.removal
    if (
        explanation.method != Slalom.name
        or removal is None
        or not {"importance", "value"} <= {*parts}
    ):
        raise InputError(f"Only slalom fits an attention head, and this is {explanation.method}.")
    context, filler = always_there(removal, explanation.units)
    empty = explanation.facts["empty"]
    return OneHead(parts["importance"], parts["value"], empty, context, filler)


def implied(explanation: Explanation, bandwidth: float = 0.25, ridge: float = 0.0) -> Exact:
    """Exact LIME and exact Shapley values of the head that `slalom` fitted: what it predicts.

    bandwidth, ridge   as in `lime-exact`
    """
    head = fitted_head(explanation)
    if len(explanation.units) < 2:
        raise InputError("LIME and Shapley values of a head need at least two words, got 1.")
    return exact(head.ratios(), bandwidth, ridge)
