"""The documents of an audit that are explained for its reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from heed.audit.result import Example
from heed.claims import Study
from heed.claims.agrees import AgreesLime
from heed.claims.yardsticks import lime
from heed.errors import NotApplicable
from heed.methods import (
    AttentionMean,
    EfficientAttention,
    Explanation,
    Flip,
    GradientInput,
    Lime,
    LimeExact,
    Method,
    Occlusion,
)
from heed.methods.attention import heads
from heed.models.classifier import ATTENTION

EFFICIENT = EfficientAttention(intervals=0)
ALWAYS: tuple[Method, ...] = (
    AttentionMean(),
    GradientInput(output="probability"),
    Occlusion(output="probability"),
    EFFICIENT,
)
# What would have to be gone for a wrong prediction to be another: asked of so many documents.
FLIP, WRONG = Flip(samples=200), 20
FEW = 5  # documents that are explained for the reader by what takes long and no claim asked for
OPENED = 20  # documents with the most freedom, whose ranges of attention are shown to the reader


def make_examples(studies: Sequence[Study], count: int, spent: bool) -> tuple[Example, ...]:
    """The first documents, explained by what is judged and by some others.

    LIME takes many evaluations: it explains a few documents only, unless a claim has computed it.
    If the budget was spent, the same holds for all that takes more than one evaluation. Documents
    whose prediction is wrong have their flip sets.
    """
    first = studies[0]
    documents = first.documents[:count]
    if not documents:
        return ()
    columns: list[dict[int, Explanation]] = []
    for method in _methods(studies):
        slow = isinstance(method, Occlusion | EfficientAttention)  # but not so slow as LIME
        quick = not spent if slow else method.evaluations(10) <= 1
        everything = quick or first.has_explained(method)
        explained = len(documents) if everything else min(FEW, len(documents))
        try:
            column = first.explain_only(method, range(explained))
            if method == EFFICIENT and not spent:
                column = _with_intervals(first, column)
        except NotApplicable:  # the model lacks what it needs, or a text is too long for it
            continue
        columns.append(dict(enumerate(column)))
    if not spent:
        columns.append(_flips(first, columns[0]))
    weights: list[Float[np.ndarray, "head unit"] | None] = [None] * len(documents)
    if ATTENTION in first.model.offers:
        # six decimals are all that a reader sees
        tables = heads(first.model, documents, first.unit)
        weights = [of_document.round(6) for of_document in tables]
    examples = []
    for i, gold in enumerate(first.gold[: len(documents)]):
        explanations = tuple(column[i] for column in columns if i in column)
        examples.append(Example(explanations, weights[i], gold))
    return tuple(examples)


def _flips(study: Study, explained: dict[int, Explanation]) -> dict[int, Explanation]:
    """The flip sets of the first documents that are predicted wrongly."""
    wrong = []
    for i, e in explained.items():
        gold = study.gold[i]
        if gold is not None and list(e.probabilities).index(e.label) != gold:
            wrong.append(i)
    try:
        return dict(zip(wrong, study.explain_only(FLIP, wrong[:WRONG]), strict=False))
    except NotApplicable:
        return {}


def _methods(studies: Sequence[Study]) -> list[Method]:
    """What is judged, and the others; of two with one name, the one that is judged."""
    judged = [study.method for study in studies]
    by_name: dict[str, Method] = {}
    for method in (*judged, *ALWAYS, _lime(studies[0])):
        by_name.setdefault(method.name, method)
    return list(by_name.values())


def _lime(study: Study) -> Method:
    """LIME with the samples that claims took in the end; the most, if no claim has computed it."""
    usual = lime(study, AgreesLime.samples)
    if isinstance(usual, LimeExact):
        return usual
    computed = [m for m in study.explained if isinstance(m, Lime) and m.removal == usual.removal]
    return max(computed, key=lambda m: m.samples, default=usual)


def _with_intervals(study: Study, explanations: list[Explanation]) -> list[Explanation]:
    """The same, with the ranges of attention where it has the most freedom."""
    freedom = [e.facts["null_space"] for e in explanations]
    most = sorted(range(len(freedom)), key=lambda i: -freedom[i])[:OPENED]
    opened = study.explain_only(replace(EFFICIENT, intervals=12), most)
    explanations = list(explanations)
    for i, explanation in zip(most, opened, strict=True):
        explanations[i] = explanation
    return explanations
