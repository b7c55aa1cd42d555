"""A real language model that is prompted: SmolLM2-135M, if it is installed or can be downloaded."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import heed
from heed.errors import DataError
from heed.models import install, public

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.full

TEMPLATE = "Review: {text}\nSentiment:"
LABELS = {"negative": " negative", "positive": " positive"}
GOOD = ["a fine film with great actors", "I loved every minute of it", "a warm and funny story"]
BAD = ["the plot is dull and the acting is awful", "a waste of time", "boring, slow and badly made"]


@cache
def folder() -> Path:
    if not public.is_installed("smollm2"):
        pytest.importorskip("gguf", reason="the extra convert is not installed")
        try:
            install.install("smollm2")
        except DataError as error:
            pytest.skip(f"smollm2 cannot be downloaded ({error})")
    return public.folder_of("smollm2")


@cache
def model(calibrate: bool = False) -> Any:
    folder()
    return heed.prompted("smollm2", template=TEMPLATE, labels=LABELS, calibrate=calibrate)


def test_logits_are_those_of_the_language_model() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder())
    network = transformers.AutoModelForCausalLM.from_pretrained(folder(), dtype=torch.float32)
    words = [tokenizer(word).input_ids for word in LABELS.values()]
    for text, row in zip(GOOD + BAD, model()(GOOD + BAD), strict=True):
        inputs = tokenizer(TEMPLATE.replace("{text}", text), return_tensors="pt")
        with torch.no_grad():
            following = network(**inputs).logits[0, -1]
        np.testing.assert_allclose(row, [following[word[0]] for word in words], rtol=1e-5)


def test_most_reviews_are_told_apart() -> None:
    positive = model(calibrate=True).predict(GOOD + BAD)[:, 1]
    assert positive[:3].min() > positive[3:].max()


def test_passes_that_share_a_beginning_give_the_same_scores() -> None:
    m = model()
    assert m.shares == m.tokenizer.max_tokens
    explained = heed.explain(m, BAD[0], "occlusion").scores
    before, m.shares = m.shares, 0
    try:
        whole = heed.explain(m, BAD[0], "occlusion").scores
    finally:
        m.shares = before
    np.testing.assert_allclose(explained, whole, rtol=1e-4, atol=1e-4)


def test_a_chat_is_asked_by_the_models_own_template() -> None:
    folder()
    m = heed.prompted(
        "smollm2",
        template="Is this review positive or negative?\n{text}",
        labels="negative=Negative,positive=Positive",
        chat=True,
    )
    (tokens,) = m.tokens(GOOD[:1])
    text = m.pretrained_tokenizer.decode(tokens.ids)
    assert text.startswith("<|im_start|>system") and text.endswith("<|im_start|>assistant\n")
    assert [w.text for w in tokens.words] == GOOD[0].split()
