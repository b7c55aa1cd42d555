"""Where gradients are taken: at what the words look up, or at what enters the first layer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from test_transformer import (
    FAMILIES,
    OUTSIDE,
    TEXTS,
    Transformer,
    inputs,
    model,
    network,
    tokenizer,
)

import heed
from heed.errors import InputError, NotApplicable
from heed.models.classifier import Classifier

BLOCKS = {"bert": "bert.encoder", "llama": "model.layers.0", "deberta": "deberta.encoder"}


def gradient_by_hand(family: str, text: str) -> tuple[np.ndarray, np.ndarray]:
    """What enters the first layer of the plain model, and the gradient of its first logit there."""
    plain = network(family).eval()
    entered = []

    def keep(module: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        entered.append(given[0].detach().requires_grad_())
        return (entered[0], *given[1:])

    plain.get_submodule(BLOCKS[family]).register_forward_pre_hook(keep)
    logits = plain(**inputs(model(family), text)).logits
    (gradient,) = torch.autograd.grad(logits[0, 0], entered[0])
    return entered[0][0].detach().numpy(), gradient[0].numpy()


@pytest.mark.parametrize("family", BLOCKS)
def test_the_gradient_at_the_block_is_that_of_a_hook_on_the_plain_model(family: str) -> None:
    m = model(family)
    tokens = m.tokens(TEXTS)
    for t, result in zip(tokens, m.gradient(tokens, [0] * len(tokens), at="block"), strict=True):
        embeddings, gradient = gradient_by_hand(family, t.document.text)
        np.testing.assert_allclose(result.embeddings, embeddings, atol=1e-5)
        np.testing.assert_allclose(result.gradient, gradient, atol=1e-4 * np.abs(gradient).max())


@pytest.mark.parametrize("family", [*FAMILIES, *OUTSIDE])
def test_families_have_a_block_through_which_all_words_pass(family: str) -> None:
    m = model(family)
    assert m.gradients_at == ("block", "lookup")
    one, other = m.tokens(["the film was good", "a plot is bad"])
    given = m.embeddings([one], "block")
    with torch.no_grad():
        same = m.trace([other], embeddings=given, layers=(), at="block").logits
    np.testing.assert_allclose(same.numpy(), m.logits([one]), atol=1e-4)


def test_a_family_whose_layers_are_no_modules_has_the_look_up_alone() -> None:
    sizes = {"vocab_size": len(tokenizer()), "emb_dim": 32, "n_layers": 2, "n_heads": 4}
    config = transformers.XLMConfig(**sizes, pad_index=0, num_labels=3, max_position_embeddings=64)
    m = Transformer(transformers.XLMForSequenceClassification(config), tokenizer(), "xlm")
    assert m.gradients_at == ("lookup",)
    with pytest.raises(InputError, match="no embeddings at 'block'"):
        heed.explain(m, TEXTS[0], "gradient-l1", at="block")


@pytest.mark.parametrize("family", ["deberta", "modernbert"])
def test_gradient_times_input_is_refused_where_a_norm_follows_the_look_up(family: str) -> None:
    # as DeBERTa v3 does, without positions before the norm
    more = {"position_biased_input": False} if family == "deberta" else {}
    m = Transformer(network(family, **more), tokenizer(), family)
    with pytest.raises(NotApplicable, match="orthogonal"):
        heed.explain(m, TEXTS, "gradient-input", at="lookup")
    explanation = heed.explain(m, TEXTS[0], "gradient-input")
    assert explanation.settings["at"] == "block" and np.abs(explanation.scores).max() > 0


def test_a_model_that_says_the_same_of_everything_has_scores_of_zero() -> None:
    constant = network("bert")
    torch.nn.init.zeros_(constant.classifier.weight)
    m = Transformer(constant, tokenizer(), "constant")
    assert not heed.explain(m, TEXTS[0], "gradient-input", at="lookup").scores.any()


@pytest.mark.parametrize("at", ["block", "lookup"])
def test_integrated_gradients_add_up_wherever_they_are_taken(at: str) -> None:
    m = heed.load("transformer-imdb")
    text = "a fine film with a dull plot"
    e = heed.explain(m, text, "integrated-gradients", at=at, output="logit")
    (tokens,) = m.tokens([text])
    label = m.label(e.label)
    change = m.logits([tokens])[0, label] - m.logits([m.blank(tokens)])[0, label]
    total = e.scores.sum() + sum(special.score for special in e.specials)
    assert total == pytest.approx(change, abs=1e-3)
    assert e.settings["at"] == at


def test_scores_that_do_not_add_up_say_so() -> None:
    m = heed.load("transformer-imdb")
    e = heed.explain(
        m, "a fine film", "integrated-gradients", steps=1, at="lookup", baseline="zero"
    )
    assert any("too much to rely on" in note for note in e.notes)


def test_gradients_at_the_block_follow_removal_better() -> None:
    m = heed.load("transformer-imdb")
    texts = [d.text for d in heed.tasks.reviews(20).documents]
    removal = heed.explain(m, texts, "occlusion", output="log-odds")
    correlations = {}
    for at in ("block", "lookup"):
        gradient = heed.explain(m, texts, "gradient-input", output="log-odds", at=at)
        pairs = zip(gradient, removal, strict=True)
        correlations[at] = np.mean([np.corrcoef(a.scores, b.scores)[0, 1] for a, b in pairs])
    assert correlations["block"] > correlations["lookup"] + 0.05


def test_heeds_own_models_have_the_place_of_the_paper() -> None:
    m = heed.load()
    assert m.gradients_at == ("lookup",)
    tokens = m.tokens(["a fine film"])
    (closed,) = m.gradient(tokens, [0])
    (autograd,) = Classifier.gradient(m, tokens, [0], at="lookup")
    np.testing.assert_allclose(closed.gradient, autograd.gradient, atol=1e-4)
    with pytest.raises(InputError, match="no embeddings at 'block'"):
        m.gradient(tokens, [0], at="block")
