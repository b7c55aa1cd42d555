"""The same numbers as captum, `lime` and shap on the same transformers.

These packages run them without heed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest
import torch
from test_transformer import network as large
from test_transformer import tokenizer

import heed
from heed.models.transformer import Transformer
from heed.text import Tokens

FAMILIES = ["bert", "roberta", "modernbert", "gpt2", "llama"]  # first row, mean of all, last row
TEXT = "the unbelievable film was very good but the plot is slow"
SHORT = "the film was slow but good"  # every word is one token
LABEL = 1


network = partial(large, initializer_range=0.2)  # with larger weights gradients vanish


@cache
def model(family: str) -> Transformer:
    reader = copy.deepcopy(tokenizer())
    reader.model_input_names = ["input_ids", "attention_mask"]
    return Transformer(network(family), reader, family)


def close(ours: np.ndarray, theirs: np.ndarray, scale: float | None = None) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * (scale or np.abs(theirs).max()))


def plain(family: str) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.nn.Module]:
    """Logits from ids, as anyone would compute them, and the layer that looks up the embeddings."""
    net = network(family).eval()
    return (
        lambda ids: net(input_ids=ids, attention_mask=torch.ones_like(ids)).logits,
        net.get_input_embeddings(),
    )


def read(m: Transformer, text: str) -> tuple[Tokens, torch.Tensor, torch.Tensor]:
    (tokens,) = m.tokens([text])
    return tokens, torch.from_numpy(tokens.ids)[None], torch.from_numpy(m.blank(tokens).ids)[None]


def by_word(tokens: Tokens, rows: np.ndarray) -> np.ndarray:
    return np.array([rows[tokens.word == w].sum() for w in range(len(tokens.words))])


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_captum(family: str) -> None:
    captum = pytest.importorskip("captum.attr")
    m = model(family)
    f, lookup = plain(family)
    tokens, ids, blank = read(m, TEXT)
    times = captum.LayerGradientXActivation(f, lookup).attribute(ids, target=LABEL)
    times = times[0].detach().double().numpy()
    at = {"label": LABEL, "at": "lookup", "output": "logit"}
    if family == "modernbert":  # where a norm makes the product 0 but for rounding
        assert np.abs(times.sum(1)).max() < 1e-3 * np.abs(times).sum(1).max()
    else:
        scores = heed.explain(m, TEXT, "gradient-input", **at).scores
        close(scores, by_word(tokens, times.sum(1)), np.abs(times).sum(1).max())
    gradient = times / lookup(ids)[0].detach().double().numpy()
    normalised = family != "llama"  # there the mean of the gradient is 0
    for name, reduced in (
        *([] if normalised else [("gradient-mean", gradient.mean(1))]),
        ("gradient-l1", np.abs(gradient).sum(1)),
        ("gradient-l2", np.sqrt((gradient**2).sum(1))),
    ):
        close(heed.explain(m, TEXT, name, **at).scores, by_word(tokens, reduced))
    integrated = captum.LayerIntegratedGradients(f, lookup).attribute(
        ids, baselines=blank, target=LABEL, n_steps=20, method="gausslegendre"
    )
    found = heed.explain(m, TEXT, "integrated-gradients", steps=20, **at)
    close(found.scores, by_word(tokens, integrated[0].sum(-1).detach().double().numpy()))


def test_a_mean_gradient_that_is_but_rounding_is_zero_and_says_why() -> None:
    for family, expected in (
        ("bert", True),
        ("modernbert", True),
        ("gpt2", True),
        ("llama", False),
    ):
        found = heed.explain(model(family), TEXT, "gradient-mean", at="lookup")
        assert (
            (not found.scores.any())
            == expected
            == any("normalises its embeddings" in n for n in found.notes)
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_occlusion_is_that_of_captum(family: str) -> None:
    captum = pytest.importorskip("captum.attr")
    m = model(family)
    f, _ = plain(family)
    tokens, ids, blank = read(m, TEXT)
    groups = np.where(
        tokens.word < 0, len(tokens.words), tokens.word
    )  # special tokens: a feature that stays as it is
    with torch.no_grad():
        ablated = captum.FeatureAblation(f).attribute(
            ids, baselines=blank, target=LABEL, feature_mask=torch.from_numpy(groups)[None]
        )
    first = [int(np.flatnonzero(tokens.word == w)[0]) for w in range(len(tokens.words))]
    found = heed.explain(m, TEXT, "occlusion", label=LABEL, output="logit").scores
    close(found, ablated[0].double().numpy()[first])


def predict(family: str, texts: list[str]) -> np.ndarray:
    """Logits from strings, padded and masked by the tokenizer."""
    inputs = tokenizer()(list(texts), padding=True, return_tensors="pt")
    inputs = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    with torch.no_grad():
        return network(family).eval()(**inputs).logits.double().numpy()


@pytest.mark.parametrize("removal", ["replace", "delete"])
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_lime_is_that_of_the_lime_package(family: str, removal: str) -> None:
    """The means of 4 runs each differ by no more than 4.5 standard errors of that difference."""
    lime_text = pytest.importorskip("lime.lime_text")
    text, runs, samples = "good film the film was very slow", 4, 400
    m, theirs = model(family), np.zeros(7 if removal == "replace" else 6)
    for seed in range(runs):
        package = lime_text.LimeTextExplainer(
            feature_selection="none",
            bow=removal == "delete",
            mask_string="[MASK]",
            random_state=seed,
        )
        found = package.explain_instance(
            text,
            lambda t: predict(family, t),
            labels=(LABEL,),
            num_features=99,
            num_samples=samples,
        )
        for feature, weight in found.local_exp[LABEL]:
            theirs[feature] += weight / runs
    settings = {
        "samples": samples,
        "removal": removal,
        "repeats": "apart" if removal == "replace" else "together",
    }
    settings |= {"sampling": "lime", "output": "logit"}
    ours = [
        heed.explain(m, text, "lime", label=LABEL, seed=seed, **settings) for seed in range(runs)
    ]
    mean = np.mean([r.scores for r in ours], axis=0)
    error = np.sqrt(2 * np.mean([r.standard_errors**2 for r in ours], axis=0) / runs)
    np.testing.assert_array_less(np.abs(theirs - mean), 4.5 * error)
    assert error.max() < 0.2 * np.abs(mean).max()  # so that the comparison means something


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_shapley_values_are_those_of_shap(family: str) -> None:
    shap = pytest.importorskip("shap")
    words = SHORT.split()

    def f(keep: np.ndarray) -> np.ndarray:
        texts = [
            " ".join(w if k else "[MASK]" for w, k in zip(words, row, strict=True)) for row in keep
        ]
        return predict(family, texts)[:, LABEL]

    method = shap.KernelExplainer(f, np.zeros((1, len(words))))
    every = method.shap_values(np.ones((1, len(words))), nsamples=100, silent=True, l1_reg=False)[0]
    asked = {"label": LABEL, "repeats": "apart", "output": "logit"}
    close(heed.explain(model(family), SHORT, "shapley", **asked).scores, every)


def test_sampled_shapley_values_agree_with_the_permutations_of_shap() -> None:
    """Within 4.5 standard errors of heed's; shap's own are of the same kind and number."""
    shap = pytest.importorskip("shap")
    text = "the film was slow but the plot is good and it was great"
    words = text.split()

    def f(keep: np.ndarray) -> np.ndarray:
        texts = [
            " ".join(w if k else "[MASK]" for w, k in zip(words, row, strict=True)) for row in keep
        ]
        return predict("bert", texts)[:, LABEL]

    masker = shap.maskers.Independent(np.zeros((1, len(words))))
    theirs = shap.PermutationExplainer(f, masker, seed=0)(
        np.ones((1, len(words))), max_evals=160 * len(words), silent=True
    )
    options = {
        "label": LABEL,
        "output": "logit",
        "repeats": "apart",
        "estimator": "permutation",
        "samples": 160 * len(words),
    }
    ours = heed.explain(model("bert"), text, "shapley", **options)
    assert ours.standard_errors is not None
    np.testing.assert_array_less(
        np.abs(theirs.values[0] - ours.scores), 4.5 * np.sqrt(2) * ours.standard_errors
    )
    assert ours.standard_errors.max() < 0.2 * np.abs(ours.scores).max()
