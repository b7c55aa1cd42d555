"""The table of all methods, and the two functions that run them: `explain` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from heed.data.inputs import is_one
from heed.errors import InputError, NotApplicable
from heed.methods.anchors import Anchors as Anchors
from heed.methods.attention import AttentionHead as AttentionHead
from heed.methods.attention import AttentionMax as AttentionMax
from heed.methods.attention import AttentionMean as AttentionMean
from heed.methods.attention import ValueNorm as ValueNorm
from heed.methods.baseline import CHANCE as CHANCE
from heed.methods.baseline import Random as Random
from heed.methods.baseline import WordLength as WordLength
from heed.methods.choice import PATIENCE, Chooser, only_by_name, predicted
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
from heed.methods.flip import Flip as Flip
from heed.methods.gradient import GradientInput as GradientInput
from heed.methods.gradient import GradientL1 as GradientL1
from heed.methods.gradient import GradientL2 as GradientL2
from heed.methods.gradient import GradientMean as GradientMean
from heed.methods.gradient import GradientPaths as GradientPaths
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
from heed.methods.relevance import Relevance as Relevance
from heed.methods.slalom import Slalom as Slalom
from heed.methods.table import ALL
from heed.methods.table import METHODS as METHODS
from heed.methods.table import candidates as candidates
from heed.methods.table import group_of as group_of
from heed.methods.table import make_method as make_method
from heed.methods.table import make_methods as make_methods
from heed.methods.table import reads_attention as reads_attention
from heed.methods.table import reads_below as reads_below
from heed.methods.zeroing import ValueZeroing as ValueZeroing
from heed.models import Model
from heed.models import of as classifier_of
from heed.models.classifier import Classifier
from heed.progress import say
from heed.text import Document

Text = str | Document | tuple[str, str]


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
    settings: Mapping[str, Any] | None = None,
) -> Comparison:
    """Explain one text by several methods.

    Without `methods`, six run, two of each group: attention, gradient, removal (see `DEFAULT`).
    `methods="all"` runs all but those that run only by name. In both cases a method runs if it can
    explain the text within `patience` seconds, by default 30; `left_out` of the result says what
    is missing, and why.

    `settings` are for those of the methods that have them: {"removal": "delete"}.
    """
    model = classifier_of(model)
    if not is_one(text):
        one = "one text (a string, a Document, or a pair in a tuple)"
        raise InputError(f"compare takes {one}, got {type(text).__name__}.")
    (document,) = model.documents(text, keep_all=True).documents
    return compared(model, document, methods, label, unit, seed, patience, settings)


def compared(
    model: Classifier,
    document: Document,
    methods: Sequence[str | Method] | str | None = None,
    label: int | str | None = None,
    unit: UnitKind = "word",
    seed: int = 0,
    patience: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Comparison:
    """The same as `compare`, for a classifier and a document."""
    named = [methods] if isinstance(methods, str | Method) else methods
    if named is not None and not named:
        raise InputError("compare needs at least one method, got none.")
    asked = make_methods(candidates(named), settings or {})
    left_out: dict[str, str] = {}
    by_name = named is not None and list(named) != [ALL]
    for method in asked if by_name else ():  # before the first of them has taken its time
        if reason := method.refusal(model, [document]):
            raise NotApplicable(reason)
    (tokens,) = model.tokens([document])
    refuse_empty([tokens], unit)
    prediction = predicted(model, tokens)
    choice = Chooser(model, prediction, unit, PATIENCE if patience is None else patience)
    if named is None:
        asked, left_out = choice.default(asked)
    elif not by_name:
        asked, left_out = choice.quick(asked)
        left_out |= only_by_name()
    if left_out:
        say(f"Left out: {by_reason(left_out)}.")
    if warning := choice.warning(asked):
        say(warning)
    explanations = [
        m.explain(model, [document], label, unit, seed, prediction.logits)[0] for m in asked
    ]
    return Comparison(tuple(explanations), left_out)
