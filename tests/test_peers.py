"""The same numbers as the libraries that people use today, where both compute the same thing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import heed
from heed.methods import METHODS
from heed.models.single_layer import SingleLayer

TEXT = "the film was slow but the plot is good"


def forward(model: SingleLayer, text: str) -> Callable[[torch.Tensor], torch.Tensor]:
    (tokens,) = model.tokens([text])
    return lambda embeddings: model.trace([tokens] * len(embeddings), embeddings=embeddings).logits


def embeddings(model: SingleLayer, text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the text, and of the text with every word replaced."""
    (tokens,) = model.tokens([text])
    with torch.no_grad():
        both = model.trace([tokens, model.blank(tokens)]).embeddings
    return both[:1].clone(), both[1:].clone()


@pytest.mark.parametrize(
    "options", [{}, {"padding": "attends", "double": False}, {"biases": True, "labels": 3}], ids=str
)
def test_gradients_are_those_of_captum(make: Callable[..., SingleLayer], options: dict) -> None:
    captum = pytest.importorskip("captum.attr")
    model = make(**options)
    at, blank = embeddings(model, TEXT)
    f, n = forward(model, TEXT), len(TEXT.split())

    def words(rows: torch.Tensor) -> np.ndarray:
        return rows[0, 1 : n + 1].detach().double().numpy()

    logit = {"label": 1, "output": "logit"}
    saliency = words(captum.Saliency(f).attribute(at.clone().requires_grad_(), target=1, abs=False))
    for name, reduced in (
        ("gradient-mean", saliency.mean(1)),
        ("gradient-l1", np.abs(saliency).sum(1)),
        ("gradient-l2", np.sqrt((saliency**2).sum(1))),
    ):
        np.testing.assert_allclose(
            heed.explain(model, TEXT, name, **logit).scores, reduced, rtol=0, atol=1e-5
        )
    times = words(captum.InputXGradient(f).attribute(at.clone().requires_grad_(), target=1).sum(-1))
    np.testing.assert_allclose(
        heed.explain(model, TEXT, "gradient-input", **logit).scores, times, rtol=0, atol=1e-5
    )
    for baseline in ("replace", "zero"):
        start = blank.clone()
        if baseline == "zero":
            start[:, 1 : n + 1] = 0
        attributed = captum.IntegratedGradients(f).attribute(
            at, baselines=start, target=1, n_steps=20, method="gausslegendre"
        )
        found = heed.explain(
            model, TEXT, "integrated-gradients", **logit, steps=20, baseline=baseline
        )
        np.testing.assert_allclose(found.scores, words(attributed.sum(-1)), rtol=0, atol=1e-5)


RUNS, SAMPLES = 6, 500


def peer_lime(model: SingleLayer, text: str, bow: bool) -> dict[int, float]:
    """Mean coefficient of the `lime` package by feature number."""
    lime_text = pytest.importorskip("lime.lime_text")
    total: dict[int, float] = {}
    for seed in range(RUNS):
        method = lime_text.LimeTextExplainer(
            class_names=list(model.labels),
            feature_selection="none",
            bow=bow,
            mask_string="zzqx",
            random_state=seed,
        )
        found = method.explain_instance(
            text, model, labels=(1,), num_features=1000, num_samples=SAMPLES
        )
        for feature, weight in found.local_exp[1]:
            total[feature] = total.get(feature, 0.0) + weight / RUNS
    return total


@pytest.mark.parametrize("removal", ["replace", "delete"])
@pytest.mark.parametrize(
    ("text", "padding"),
    [
        ("slow but good", "masked"),
        ("good good film the film was very slow", "masked"),
        (TEXT, "attends"),
    ],
)
def test_lime_is_that_of_the_lime_package(
    make: Callable[..., SingleLayer], removal: str, text: str, padding: str
) -> None:
    """The means of 6 runs each differ by no more than 4.5 standard errors of that difference.

    `lime` replaces position by position (bow=False), and deletes all occurrences of a word together
    (bow=True).
    """
    model = make(padding=padding)
    method = METHODS["lime"](
        samples=SAMPLES,
        output="logit",
        removal=removal,
        repeats="apart" if removal == "replace" else "together",
        sampling="lime",
    )
    runs = [method.explain(model, [text], 1, seed=seed)[0] for seed in range(RUNS)]
    ours = np.mean([r.scores for r in runs], axis=0)
    error = np.sqrt(2 * np.mean([r.standard_errors**2 for r in runs], axis=0) / RUNS)
    theirs = peer_lime(model, text, bow=removal == "delete")
    assert (
        len(theirs)
        == len(ours)
        == (len(text.split()) if removal == "replace" else len(set(text.split())))
    )
    np.testing.assert_array_less(np.abs([theirs[i] for i in range(len(ours))] - ours), 4.5 * error)
    assert error.max() < 0.1 * np.abs(ours).max()  # so that the comparison means something


def test_replacing_and_deleting_differ_by_more_than_sampling(model: SingleLayer) -> None:
    """Or else the test above could not tell one from the other."""
    replaced, deleted = (
        heed.explain(model, TEXT, "lime", label=1, samples=5000, removal=r)
        for r in ("replace", "delete")
    )
    assert (np.abs(replaced.scores - deleted.scores) / replaced.standard_errors).max() > 20


def test_shapley_values_are_those_of_shap(model: SingleLayer) -> None:
    shap = pytest.importorskip("shap")
    text = "the film was slow but good"
    tokens = model.tokens([text])

    def f(keep: np.ndarray) -> np.ndarray:
        return model.score(tokens, [keep.astype(bool)], removal="replace")[0][:, 1]

    method = shap.KernelExplainer(f, np.zeros((1, 6)))
    expected = method.shap_values(np.ones((1, 6)), nsamples=100, silent=True, l1_reg=False)[
        0
    ]  # all 62 subsets
    np.testing.assert_allclose(
        heed.explain(model, text, "shapley", label=1, output="logit").scores,
        expected,
        rtol=0,
        atol=1e-6,
    )
