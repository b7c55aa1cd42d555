"""All methods, by name."""

from __future__ import annotations

from typing import Any

from heed.errors import InputError, UnknownName
from heed.methods import (
    anchors,
    attention,
    baseline,
    efficient,
    exact,
    gradient,
    perturbation,
    propagation,
)
from heed.methods.method import Method
from heed.models.classifier import ATTENTION
from heed.settings import read as read_settings

METHODS: dict[str, type[Method]] = {
    cls.name: cls
    for cls in (
        attention.AttentionMean,
        attention.AttentionMax,
        attention.AttentionHead,
        attention.ValueNorm,
        efficient.EfficientAttention,
        efficient.EffectiveAttention,
        propagation.Rollout,
        propagation.Flow,
        propagation.AttentionGradient,
        gradient.GradientMean,
        gradient.GradientL1,
        gradient.GradientL2,
        gradient.GradientInput,
        gradient.IntegratedGradients,
        perturbation.Occlusion,
        perturbation.Lime,
        exact.LimeExact,
        exact.LimeTheorem,
        perturbation.Shapley,
        exact.ShapleyExact,
        anchors.Anchors,
        baseline.Random,
    )
}


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


def reads_attention(name: str) -> bool:
    """Whether a method is built on attention weights."""
    return name in METHODS and ATTENTION in METHODS[name].needs
