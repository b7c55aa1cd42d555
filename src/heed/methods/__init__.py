"""All methods, in one table, and the two ways to ask for them: `explain` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from heed.data.inputs import is_one
from heed.errors import InputError, UnknownName
from heed.methods.anchors import Anchors
from heed.methods.attention import AttentionHead, AttentionMax, AttentionMean, ValueNorm
from heed.methods.baseline import Random
from heed.methods.comparison import Comparison, agreement
from heed.methods.efficient import EffectiveAttention, EfficientAttention
from heed.methods.exact import LimeExact, LimeTheorem, ShapleyExact
from heed.methods.explanation import Explanation, UnitKind
from heed.methods.gradient import (
    GradientInput,
    GradientL1,
    GradientL2,
    GradientMean,
    IntegratedGradients,
)
from heed.methods.imported import Imported
from heed.methods.method import Method
from heed.methods.perturbation import Lime, Occlusion, Shapley
from heed.methods.propagation import AttentionGradient, Flow, Rollout
from heed.models import Model
from heed.models import of as classifier_of
from heed.models.classifier import ATTENTION
from heed.settings import read as read_settings
from heed.text import Document

__all__ = [
    "METHODS",
    "Anchors",
    "AttentionGradient",
    "AttentionHead",
    "AttentionMax",
    "AttentionMean",
    "Comparison",
    "EffectiveAttention",
    "EfficientAttention",
    "Explanation",
    "Flow",
    "GradientInput",
    "GradientL1",
    "GradientL2",
    "GradientMean",
    "Imported",
    "IntegratedGradients",
    "Lime",
    "LimeExact",
    "LimeTheorem",
    "Method",
    "Occlusion",
    "Random",
    "Rollout",
    "Shapley",
    "ShapleyExact",
    "ValueNorm",
    "agreement",
    "compare",
    "explain",
    "make_method",
    "reads_attention",
]

METHODS: dict[str, type[Method]] = {
    cls.name: cls
    for cls in (
        AttentionMean,
        AttentionMax,
        AttentionHead,
        ValueNorm,
        EfficientAttention,
        EffectiveAttention,
        Rollout,
        Flow,
        AttentionGradient,
        GradientMean,
        GradientL1,
        GradientL2,
        GradientInput,
        IntegratedGradients,
        Occlusion,
        Lime,
        LimeExact,
        LimeTheorem,
        Shapley,
        ShapleyExact,
        Anchors,
        Random,
    )
}


def make_method(name: str | Method, settings: dict[str, Any] | None = None) -> Method:
    """A method by its name, with some settings changed; a setting may be a string."""
    if isinstance(name, Method):
        if settings:
            raise InputError("Give settings to the method itself, not beside it.")
        return name
    if not isinstance(name, str):
        raise InputError(
            f"A method is a name or an method such as Lime(samples=500), got {name!r}."
        )
    if name not in METHODS:
        raise UnknownName("method", name, METHODS)
    return METHODS[name](**read_settings(name, METHODS[name], settings or {}))


def reads_attention(name: str) -> bool:
    """Whether a method is built on attention weights."""
    return name in METHODS and ATTENTION in METHODS[name].needs


@overload
def explain(
    model: Model, text: str | Document | tuple[str, str], *args: Any, **settings: Any
) -> Explanation: ...
@overload
def explain(
    model: Model, text: Sequence[Any], *args: Any, **settings: Any
) -> list[Explanation]: ...
def explain(
    model: Model,
    text: Any,
    method: str | Method = "lime",
    label: int | str | None = None,
    unit: UnitKind = "word",
    seed: int = 0,
    columns: Mapping[str, str | None] | None = None,
    **settings: Any,
) -> Explanation | list[Explanation]:
    """Explain one text, or each of a list of texts, by one method.

    A model is what `heed.load` returns, or any function from a list of texts to probabilities (see
    `heed.Function`). A text is a string, a `Document`, or for a model of pairs two strings in a
    tuple. A list of texts, a pandas Series, or a table with a column text (a DataFrame, a list of
    dicts) gives a list of explanations; `columns={"text": "body"}` names another column. A blank
    text in it is refused, since there are as many explanations as texts.

    `label` is a name or an index, by default the predicted label of each text. Settings of the
    method are keyword arguments: `samples=5000`.
    """
    model, method = classifier_of(model), make_method(method, settings)
    documents = model.documents(text, columns, keep_all=True).documents
    explanations = method.explain(model, documents, label, unit, seed)
    return explanations[0] if is_one(text) else explanations


def compare(
    model: Model,
    text: str | Document | tuple[str, str],
    methods: Sequence[str | Method] | str | None = None,
    label: int | str | None = None,
    unit: UnitKind = "word",
    seed: int = 0,
) -> Comparison:
    """Explain one text by several methods, and measure how they agree.

    By default these are all that can explain it, but for those that must be asked for by name.
    """
    model = classifier_of(model)
    if not is_one(text):
        raise InputError(
            "compare takes one text (a string, a Document, or a pair in a tuple), got"
            f" {type(text).__name__}."
        )
    documents = model.documents(text, keep_all=True).documents
    chosen = [
        make_method(m)
        for m in (
            METHODS if methods is None else [methods] if isinstance(methods, str) else methods
        )
    ]
    if not chosen:
        raise InputError("compare needs at least one method, got none.")
    if methods is None:
        chosen = [m for m in chosen if not m.on_request and not m.obstacle(model, documents)]
    found = [m.explain(model, documents, label, unit, seed)[0] for m in chosen]
    return Comparison(tuple(found), agreement(found))
