"""Families with attention code of their own, seen at the softmax, and those that do not fit."""

from __future__ import annotations

import copy
import threading
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import heed
from bench import small
from bench.families import TEXTS, examine
from heed.errors import InputError, NotApplicable
from heed.models import classifier as offer
from heed.models import hook, softmax
from heed.models.passes import Row
from heed.models.transformer import Transformer

ALL = {offer.ATTENTION, offer.REPLACEABLE, offer.BETWEEN, offer.DIFFERENTIABLE, offer.PROJECTED}
OFFERED = {
    "deberta": ALL,
    "deberta-v2": ALL,
    "mpnet": ALL,
    "falcon": ALL,
    "big_bird": ALL,
    "xlnet": ALL - {offer.PROJECTED},
    "convbert": ALL - {offer.PROJECTED, offer.BETWEEN},
    "bart": ALL - {offer.BETWEEN},
    "t5": ALL - {offer.BETWEEN},
    "funnel": set(),
    "longformer": set(),
}


@cache
def model(family: str) -> Transformer:
    return Transformer(small.network(family), small.tokenizer(), family)


@pytest.mark.parametrize("family", OFFERED)
def test_all_that_a_family_offers_holds(family: str) -> None:
    examined = examine(family)
    assert not examined.refusal and not examined.broken
    assert examined.model is not None
    assert examined.model.offers - {offer.GRADIENT} == OFFERED[family]


@pytest.mark.parametrize("family", ["deberta", "deberta-v2", "mpnet", "big_bird", "convbert"])
def test_a_trace_that_replaces_nothing_is_bit_for_bit_a_plain_pass(family: str) -> None:
    m, network = model(family), small.network(family)
    inputs, _ = m.inputs([row(m, TEXTS[0])])
    with torch.no_grad():
        expected = network(**inputs).logits
        assert torch.equal(m.model(**inputs).logits, expected)
        assert torch.equal(m.trace(m.tokens(TEXTS[:1])).logits, expected)


def row(m: Transformer, text: str) -> Row:
    (tokens,) = m.tokens([text])
    return Row(tokens.ids, tokens.types)


def weights_like(m: Transformer, tokens: Any) -> dict[int, torch.Tensor]:
    """Random weights over the real tokens, for all layers."""
    generator = torch.Generator().manual_seed(1)
    replaced = {}
    for layer, own in enumerate(m.trace(tokens).attention):
        drawn = torch.rand(own.shape, generator=generator) * (own.detach() > 0)
        replaced[layer] = drawn / drawn.sum(-1, keepdim=True).clamp(min=1e-9)
    return replaced


def mixed(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The values of each head under its weights, heads side by side."""
    heads = values.unflatten(-1, (weights.shape[1], -1)).transpose(1, 2)
    return (weights @ heads).transpose(1, 2).flatten(2)


def test_deberta_under_given_attention_is_a_literal_reimplementation() -> None:
    m, network = model("deberta-v2"), small.network("deberta-v2")
    tokens = m.tokens(TEXTS)
    inputs, real = m.inputs([row(m, text) for text in TEXTS])
    replaced = weights_like(m, tokens)
    with torch.no_grad():
        x = network.deberta.embeddings(
            inputs["input_ids"], inputs["token_type_ids"], mask=inputs["attention_mask"]
        )
        for layer, weights in replaced.items():
            block = network.deberta.encoder.layer[layer]
            inside, behind = block.attention.self, block.attention.output
            y = mixed(inside.value_proj(x), weights)
            y = behind.LayerNorm(behind.dense(y) + x)
            z = functional.gelu(block.intermediate.dense(y))
            x = block.output.LayerNorm(block.output.dense(z) + y)
        pooled = functional.gelu(network.pooler.dense(x[:, 0]))
        expected = network.classifier(pooled)
    found = m.trace(tokens, replaced).logits.detach()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert real.sum() < real.numel()  # some of it is padding


def test_mpnet_under_given_attention_is_a_literal_reimplementation() -> None:
    m, network = model("mpnet"), small.network("mpnet")
    tokens = m.tokens(TEXTS)
    inputs, _ = m.inputs([row(m, text) for text in TEXTS])
    replaced = weights_like(m, tokens)
    with torch.no_grad():
        x = network.mpnet.embeddings(inputs["input_ids"])
        for layer, weights in replaced.items():
            block = network.mpnet.encoder.layer[layer]
            y = block.attention.attn.o(mixed(block.attention.attn.v(x), weights))
            y = block.attention.LayerNorm(y + x)
            z = functional.gelu(block.intermediate.dense(y))
            x = block.output.LayerNorm(block.output.dense(z) + y)
        head = network.classifier
        expected = head.out_proj(torch.tanh(head.dense(x[:, 0])))
    found = m.trace(tokens, replaced).logits.detach()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["deberta", "deberta-v2", "mpnet", "xlnet"])
def test_weights_are_those_that_the_family_shows(family: str) -> None:
    m = model(family)
    inputs, _ = m.inputs([row(m, TEXTS[0])])
    with torch.no_grad():
        expected = small.network(family)(**inputs, output_attentions=True).attentions
    trace = m.trace(m.tokens(TEXTS[:1]))
    assert len(expected) == len(trace.attention) == 3
    for ours, theirs in zip(trace.attention, expected, strict=True):
        torch.testing.assert_close(ours.detach(), theirs, rtol=1e-5, atol=1e-6)


def test_threads_see_their_own_recorders() -> None:
    m = model("deberta-v2")
    tokens = m.tokens(TEXTS)
    expected = m(TEXTS)
    flipped = {0: m.trace(tokens).attention[0].detach().flip(-1)}
    other = m.trace(tokens, flipped).logits.detach()
    wrong: list[float] = []

    def read() -> None:
        wrong.extend(float(np.abs(m(TEXTS) - expected).max()) for _ in range(10))

    def replace() -> None:
        for _ in range(10):
            found = m.trace(tokens, flipped).logits.detach()
            wrong.append(float((found - other).abs().max()))

    threads = [threading.Thread(target=f) for f in (read, replace, read, replace)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 40 and max(wrong) == 0


@pytest.mark.parametrize("family", ["deberta-v2", "xlnet", "bart", "big_bird"])
def test_a_view_of_a_view_sees_the_same(family: str) -> None:
    m = model(family)
    again = Transformer(m.model, m.pretrained_tokenizer, "again")
    tokens = m.tokens(TEXTS[:1])
    assert again.offers == m.offers
    for a, b in zip(m.trace(tokens).attention, again.trace(tokens).attention, strict=True):
        assert torch.equal(a, b)


def test_the_model_that_is_handed_in_is_left_alone() -> None:
    theirs = small.network("big_bird")
    heed.explain((theirs, small.tokenizer()), TEXTS[0], "rollout")
    assert theirs.bert.attention_type == "block_sparse"
    assert not any("forward" in vars(module) for module in theirs.modules())


def test_a_big_bird_reads_long_texts_sparsely_whatever_it_read_before() -> None:
    long = " ".join(TEXTS)
    m = Transformer(small.network("big_bird"), small.tokenizer(), "big_bird")
    inputs, _ = m.inputs([row(m, long)])
    fresh = small.network("big_bird")
    with torch.no_grad():
        expected = fresh(**inputs).logits.numpy()
    assert fresh.bert.attention_type == "block_sparse"
    short = m(TEXTS[:1])
    np.testing.assert_allclose(m([long]), expected, atol=1e-5)
    np.testing.assert_allclose(m([TEXTS[0], long]), np.concatenate([short, expected]), atol=1e-5)
    with pytest.raises(NotApplicable, match="give it a shorter text"):
        heed.explain(m, long, "attention-mean")
    assert np.isfinite(heed.explain(m, long, "gradient-input").scores).all()


def test_falcon_attends_to_nothing_that_follows_under_both_attentions() -> None:
    for implementation in ("sdpa", "eager"):
        network = small.network("falcon")
        network.set_attn_implementation(implementation)
        m = Transformer(network, small.tokenizer(), "falcon")
        trace = m.trace(m.tokens(TEXTS))
        np.testing.assert_allclose(trace.logits.detach().numpy(), m(TEXTS), atol=1e-4)
        for weights in trace.attention:
            assert not weights.triu(1).any()


def test_a_layer_that_asks_for_its_attention_twice_is_one_layer() -> None:
    m = Transformer(small.network("diffllama"), small.tokenizer(), "diffllama")
    tokens = m.tokens(TEXTS[:1])
    trace = m.trace(tokens)
    assert len(trace.attention) == 3
    # each call multiplies one half of the values
    assert trace.values[0].shape[-1] == 2 * m.model.config.head_dim
    assert [len(w) for w in m.trace(tokens, layers=[-1]).attention] == [1, 1, 1]


@pytest.mark.parametrize("family", ["bart", "t5", "mvp"])
def test_a_decoder_shows_its_attention_over_the_text(family: str) -> None:
    m = model(family)
    tokens = m.tokens(TEXTS[:1])
    trace = m.trace(tokens)
    inputs, _ = m.inputs([row(m, TEXTS[0])])
    network = small.network(family)
    network.set_attn_implementation("eager")
    with torch.no_grad():
        expected = network(**inputs, output_attentions=True).cross_attentions
    assert len(trace.attention) == 3
    for ours, theirs in zip(trace.attention, expected, strict=True):
        torch.testing.assert_close(ours.detach(), theirs, rtol=1e-4, atol=1e-5)
    assert trace.row.tolist() == [len(tokens[0]) - 1]  # the end of the text
    assert np.isfinite(heed.explain(m, TEXTS[0], "attention-mean").scores).all()
    for name in ("rollout", "flow", "attention-gradient"):
        with pytest.raises(NotApplicable, match="its decoder attends to the text"):
            heed.explain(m, TEXTS[0], name)


@pytest.mark.parametrize("family", ["jamba", "minimax"])
def test_attention_is_not_followed_through_layers_without_it(family: str) -> None:
    m = model(family)
    for name in ("rollout", "flow", "attention-gradient"):
        with pytest.raises(NotApplicable, match="tokens also meet outside of attention"):
            heed.explain(m, TEXTS[0], name)
    assert np.isfinite(heed.explain(m, TEXTS[0], "attention-mean").scores).all()


def test_funnel_pads_nothing_and_says_how_much_it_needs() -> None:
    m = model("funnel")
    assert m.even and "delete" not in m.removals
    with pytest.raises(InputError, match="at least 5 tokens"):
        m(["bad"])
    with pytest.raises(NotApplicable, match="not one weight for each pair of tokens"):
        heed.explain(m, TEXTS[0], "attention-mean")


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("fnet", "no softmax over tokens"),
        ("lilt", "more than one attention"),
        ("canine", "not one weight for each pair"),
        ("perceiver", "not one weight for each pair"),
    ],
)
def test_families_that_do_not_fit_say_why(family: str, reason: str) -> None:
    m = model(family)
    with pytest.raises(
        NotApplicable, match=f"attention, which {family} does not offer: .*{reason}"
    ):
        heed.explain(m, TEXTS[0], "attention-mean")
    with pytest.raises(NotApplicable, match=reason):
        m.trace(m.tokens(TEXTS[:1]), {0: torch.ones(1, 1, 1, 1)})
    assert np.isfinite(heed.explain(m, TEXTS[0], "occlusion").scores).all()


def test_what_cannot_see_a_mask_does_not_hide_words() -> None:
    assert model("fnet").removals == ("replace", "delete")


def test_a_reformer_has_no_gradients_and_says_that_its_answers_change() -> None:
    m = model("reformer")
    with pytest.raises(NotApplicable, match="none outside of training"):
        heed.explain(m, TEXTS[0], "gradient-input")
    assert any("from pass to pass" in note for note in m.notes)


class Converting(nn.Module):
    """Attention whose weights go through conversions on their way to the values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = functional.softmax(x @ x.transpose(1, 2), dim=-1, dtype=torch.float64)
        weights = functional.dropout(weights.to(x.dtype).type_as(x), 0.1, self.training)
        return torch.bmm(weights, x)


def test_weights_are_followed_through_conversions() -> None:
    module, x = Converting().eval(), torch.randn(6, 5, 4)
    (attention,) = softmax.find(module, lambda: module(x))
    assert attention.module is module and attention.shape == (6, 5, 5)
    plain = module(x)
    softmax.install([attention], batch=3)
    even = torch.full((3, 2, 5, 5), 0.2)
    with hook.recording(hook.Recorder()) as recorder:
        assert torch.equal(module(x), plain)
    with hook.recording(hook.Recorder({0: even})):
        replaced = module(x)
    torch.testing.assert_close(replaced, x.mean(1, keepdim=True).expand_as(x))
    (layer,) = recorder.passed
    assert layer.weights.shape == (3, 2, 5, 5) and layer.values.shape == (3, 2, 5, 4)
    with hook.recording(hook.Recorder(uniform=True)):
        torch.testing.assert_close(module(x), replaced)


def decoder(**names: str | None) -> Any:
    """The tokenizer with other special tokens."""
    tokenizer = copy.deepcopy(small.tokenizer())
    for name, value in names.items():
        setattr(tokenizer, f"{name}_token", value)
    return tokenizer


def test_a_mark_never_stands_in_for_a_word() -> None:
    """SmolLM2 and GPT-2 have one token for unknown words and for the end of a text."""
    marks = {"mask": None, "unk": "[SEP]", "cls": None, "sep": None, "bos": "[SEP]", "eos": "[SEP]"}
    causal = Transformer(small.network("llama"), decoder(**marks), "llama")
    assert causal.removals == ("delete", "hide")
    assert any("they are deleted" in note for note in causal.notes)
    notes = heed.explain(causal, TEXTS[0], "occlusion").notes
    assert any("they are deleted" in note for note in notes)
    both = Transformer(small.network("bert"), decoder(**marks), "bert")
    assert both.removals == ("hide", "delete")
    assert any("they are hidden from attention" in note for note in both.notes)
    for unknown in ("[CLS]", "[SEP]", "[PAD]"):
        m = Transformer(small.network("bert"), decoder(mask=None, unk=unknown), "bert")
        assert "replace" not in m.removals


def test_an_end_of_text_is_known_by_its_name() -> None:
    tokenizer = decoder(mask=None)
    tokenizer.add_special_tokens({"unk_token": "<|endoftext|>"})
    network = small.network("llama", vocab_size=len(tokenizer))
    assert Transformer(network, tokenizer, "llama").removals == ("delete", "hide")


def test_a_mask_or_an_unknown_token_stands_in_for_a_word() -> None:
    usual = model("deberta-v2")
    assert usual.filler == 4 and usual.removals[0] == "replace"
    assert not any("stand in for a word" in note for note in usual.notes)
    unmasked = Transformer(small.network("llama"), decoder(mask=None), "llama")
    assert unmasked.filler == 1 and unmasked.removals[0] == "replace"
