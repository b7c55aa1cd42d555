"""All methods, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from heed.errors import InputError, UnknownName
from heed.methods import (
    anchors,
    attention,
    baseline,
    efficient,
    exact,
    flip,
    gradient,
    perturbation,
    propagation,
    relevance,
    slalom,
    zeroing,
)
from heed.methods.method import Method
from heed.models.classifier import ATTENTION, GRADIENT
from heed.settings import read as read_settings

METHODS: dict[str, type[Method]] = {
    cls.name: cls
    for cls in (
        attention.AttentionMean,
        attention.AttentionMax,
        attention.AttentionHead,
        attention.ValueNorm,
        zeroing.ValueZeroing,
        efficient.EfficientAttention,
        efficient.EffectiveAttention,
        propagation.Rollout,
        propagation.Flow,
        propagation.AttentionGradient,
        gradient.GradientMean,
        gradient.GradientL1,
        gradient.GradientL2,
        gradient.GradientInput,
        gradient.GradientPaths,
        gradient.IntegratedGradients,
        relevance.Relevance,
        perturbation.Occlusion,
        perturbation.Lime,
        exact.LimeExact,
        exact.LimeTheorem,
        perturbation.Shapley,
        exact.ShapleyExact,
        slalom.Slalom,
        anchors.Anchors,
        flip.Flip,
        baseline.Random,
        baseline.WordLength,
    )
}

# Where nobody names a method, the first two of each group that can explain the text (`choice`).
# Attention: its mean is what people show; rollout follows it through all layers, of which the last
# may show little; value-norm stands in where there is one layer, or where rollout ends at the first
# tokens. Gradient: times the input, which takes one pass; integrated, which adds up to the change
# of the output and says how nearly. Removal: of one word alone, where nothing is sampled; and of
# words together with others, which is LIME.
DEFAULT: dict[str, tuple[str, ...]] = {
    "attention": ("attention-mean", "rollout", "value-norm", "attention-max"),
    "gradient": ("gradient-input", "integrated-gradients", "gradient-l2"),
    "removal": ("occlusion", "lime", "shapley"),
}
ALL = "all"  # stands for all methods but those that run only by name


def make_method(name: str | Method, settings: dict[str, Any] | None = None) -> Method:
    """A method by its name, with other settings if given: numbers, or strings such as "2000"."""
    if isinstance(name, Method):
        if settings:
            raise InputError("Give settings to the method itself, not beside it.")
        return name
    if not isinstance(name, str):
        raise InputError(f"A method is a name or a method such as Lime(samples=500), got {name!r}.")
    if name not in METHODS:
        raise UnknownName("method", name, METHODS)
    return METHODS[name](**read_settings(name, METHODS[name], settings or {}))


def make_methods(names: Sequence[str | Method], settings: Mapping[str, Any]) -> list[Method]:
    """Methods by their names, each with those of the settings that it has.

    A setting that none of them has is refused. Methods that are given stay as they are.
    """
    classes = {}
    for name in names:
        if isinstance(name, str):
            if name not in METHODS:
                raise UnknownName("method", name, METHODS)
            classes[name] = {f.name for f in fields(METHODS[name])}
    allowed = set().union(*classes.values())
    for key in settings:
        if key not in allowed:
            raise UnknownName("setting", key, sorted(allowed))
    methods = []
    for name in names:
        had = classes[name] if isinstance(name, str) else ()
        methods.append(make_method(name, {k: v for k, v in settings.items() if k in had}))
    return methods


def unasked() -> list[str]:
    """The names of all methods that run without being named."""
    return [name for name, cls in METHODS.items() if not cls.only_by_name]


def candidates(names: Sequence[str | Method] | None) -> Sequence[str | Method]:
    """The methods that these names may come to: of nobody's naming any, "all", or some."""
    if names is None:
        return [name for group in DEFAULT.values() for name in group]
    return unasked() if list(names) == [ALL] else names


def group_of(name: str) -> str:
    """What a method rests on: attention, gradient, removal or chance; or it was imported."""
    if name not in METHODS:
        return "imported"
    needs = METHODS[name].needs
    if ATTENTION in needs:
        return "attention"
    if GRADIENT in needs:
        return "gradient"
    removes = "removal" in {f.name for f in fields(METHODS[name])}
    return "removal" if removes else "chance"


def reads_attention(name: str) -> bool:
    """Whether a method is built on attention weights."""
    return name in METHODS and ATTENTION in METHODS[name].needs


def reads_below(name: str, settings: dict[str, Any] | None = None) -> bool:
    """Whether a method reads attention of other layers than the last; by default as it is set."""
    return reads_attention(name) and make_method(name, settings or {}).layers_read() != "last"
