"""The table of all methods, and the two functions that run them: `explain` and `compare`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

from heed.data.inputs import is_one
from heed.errors import InputError
from heed.methods.anchors import Anchors as Anchors
from heed.methods.attention import AttentionHead as AttentionHead
from heed.methods.attention import AttentionMax as AttentionMax
from heed.methods.attention import AttentionMean as AttentionMean
from heed.methods.attention import ValueNorm as ValueNorm
from heed.methods.baseline import Random as Random
from heed.methods.comparison import Comparison as Comparison
from heed.methods.comparison import agreement as agreement
from heed.methods.comparison import by_reason
from heed.methods.efficient import EffectiveAttention as EffectiveAttention
from heed.methods.efficient import EfficientAttention as EfficientAttention
from heed.methods.exact import LimeExact as LimeExact
from heed.methods.exact import LimeTheorem as LimeTheorem
from heed.methods.exact import ShapleyExact as ShapleyExact
from heed.methods.explanation import Explanation as Explanation
from heed.methods.explanation import UnitKind
from heed.methods.gradient import GradientInput as GradientInput
from heed.methods.gradient import GradientL1 as GradientL1
from heed.methods.gradient import GradientL2 as GradientL2
from heed.methods.gradient import GradientMean as GradientMean
from heed.methods.gradient import IntegratedGradients as IntegratedGradients
from heed.methods.imported import Imported as Imported
from heed.methods.method import Method as Method
from heed.methods.method import refuse_empty
from heed.methods.perturbation import Lime as Lime
from heed.methods.perturbation import Occlusion as Occlusion
from heed.methods.perturbation import Shapley as Shapley
from heed.methods.propagation import AttentionGradient as AttentionGradient
from heed.methods.propagation import Flow as Flow
from heed.methods.propagation import Rollout as Rollout
from heed.methods.table import METHODS as METHODS
from heed.methods.table import make_method as make_method
from heed.methods.table import reads_attention as reads_attention
from heed.methods.units import units_of
from heed.models import Model
from heed.models import of as classifier_of
from heed.models.classifier import Classifier
from heed.progress import say
from heed.text import Document, Tokens

Text = str | Document | tuple[str, str]
PATIENCE = 30.0  # seconds that a method may take that nobody asked for by its name


@overload
def explain(model: Model, text: Text, *args: Any, **settings: Any) -> Explanation: ...
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
    if not documents:
        raise InputError("There is no text to explain.")
    explanations = method.explain(model, documents, label, unit, seed)
    return explanations[0] if is_one(text) else explanations


def compare(
    model: Model,
    text: Text,
    methods: Sequence[str | Method] | str | None = None,
    label: int | str | None = None,
    unit: UnitKind = "word",
    seed: int = 0,
    patience: float | None = None,
) -> Comparison:
    """Explain one text by several methods, and say how far they agree.

    Without `methods`, all run that can explain the text within `patience` seconds each, by default
    30 (see `quick_methods`). The others are in `left_out` of the result, with the reason.
    """
    model = classifier_of(model)
    if not is_one(text):
        one = "one text (a string, a Document, or a pair in a tuple)"
        raise InputError(f"compare takes {one}, got {type(text).__name__}.")
    documents = model.documents(text, keep_all=True).documents
    left_out: dict[str, str] = {}
    if methods is None:
        to_run, left_out = quick_methods(model, documents[0], unit, patience)
    else:
        named = [methods] if isinstance(methods, str) else methods
        to_run = [make_method(m) for m in named]
        if not to_run:
            raise InputError("compare needs at least one method, got none.")
    explanations = [m.explain(model, documents, label, unit, seed)[0] for m in to_run]
    if left_out:
        say(f"Left out: {by_reason(left_out)}.")
    return Comparison(tuple(explanations), agreement(explanations), left_out)


def quick_methods(
    model: Classifier,
    text: Text,
    unit: UnitKind = "word",
    patience: float | None = None,
    methods: Iterable[Method] | None = None,
) -> tuple[list[Method], dict[str, str]]:
    """The methods that can explain a text within `patience` seconds each, and why others cannot.

    The default is 30 seconds, and all methods except those that run only by name.
    """
    patience = PATIENCE if patience is None else patience
    if methods is None:
        methods = [make_method(name) for name, cls in METHODS.items() if not cls.only_by_name]
    (tokens,) = model.tokens([text])
    refuse_empty([tokens], unit)
    seconds = _seconds_per_output(model, tokens)
    quick, left_out = [], {}
    for method in methods:
        units, _ = units_of(tokens, unit, method.merges_repeats())
        evaluations = method.evaluations(len(units))
        if reason := method.refusal(model, [text]):
            left_out[method.name] = reason
        elif evaluations > 1 and (expected := seconds * evaluations) > patience:
            left_out[method.name] = f"it would take about {expected:.0f} s; name it to run it."
        else:
            quick.append(method)
    for name, cls in METHODS.items():
        if cls.only_by_name:
            left_out[name] = "run only if you name them"
    return quick, left_out


def _seconds_per_output(model: Classifier, tokens: Tokens) -> float:
    """How long the model takes for one output: the best of four, since the first may be slow."""
    seconds = math.inf
    for _ in range(4):
        began = time.perf_counter()
        model.logits([tokens])
        seconds = min(seconds, time.perf_counter() - began)
    return seconds
