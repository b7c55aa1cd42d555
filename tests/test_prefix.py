"""Texts that begin alike are read once up to where they part, with the same answers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import heed
from bench import small
from heed.models import prefix
from heed.models.passes import Row
from heed.models.transformer import Transformer
from tests.test_prompted import LABELS, LONGER, OTHERS, TEXT, network, tokenizer

TEMPLATE = "it is a film and the plot is good but it is not very great . Review: {text} :"
FAMILIES = ["llama", "gpt2", "gemma2", "cohere", "granite"]


def scores(m: Any, removal: Any, shares: int, texts: list[str], stays: int = 0) -> list[Any]:
    """Outputs without some words, but with the first `stays`, and with so many tokens shared."""
    tokens = m.tokens(texts)
    rng = np.random.default_rng(0)
    keep = [rng.random((30, len(t.words))) < 0.8 for t in tokens]
    for rows in keep:
        rows[:, :stays] = True
    before, m.shares = m.shares, shares
    try:
        return m.score(tokens, keep, removal=removal)
    finally:
        m.shares = before


@pytest.mark.parametrize("labels", [LABELS, LONGER], ids=["one", "longer"])
@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_that_share_a_beginning_get_the_same_answers(family: str, labels: Any) -> None:
    m = heed.prompted(network(family), tokenizer(), TEMPLATE, labels)
    assert m.shares == m.tokenizer.max_tokens
    for removal in m.removals:
        parts = scores(m, removal, m.shares, [TEXT, *OTHERS])
        whole = scores(m, removal, 0, [TEXT, *OTHERS])
        for part, one in zip(parts, whole, strict=True):
            np.testing.assert_allclose(part, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "opt", "bloom", "falcon"])
def test_causal_classifiers_share_beginnings_too(family: str) -> None:
    m = Transformer(small.network(family), small.tokenizer(), family)
    assert m.shares
    text = "the film was very good , but the plot is not and it is slow and it is great ."
    with counted(m) as tokens:
        parts = scores(m, "replace", m.shares, [text], stays=9)
    with counted(m) as all_tokens:
        whole = scores(m, "replace", 0, [text], stays=9)
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-4, atol=1e-5)
    assert sum(tokens) < 0.7 * sum(all_tokens)


def test_what_is_not_causal_shares_nothing() -> None:
    assert Transformer(small.network("bert"), small.tokenizer(), "bert").shares == 0


def test_texts_that_do_not_fit_into_a_window_share_nothing_unless_that_was_checked() -> None:
    unchecked = small.network("mistral", sliding_window=70)
    assert Transformer(unchecked, small.tokenizer(), "mistral").shares == 70
    checked = small.network("mistral", sliding_window=16)
    assert Transformer(checked, small.tokenizer(), "mistral").shares == 96


@pytest.mark.parametrize(("off", "shares"), [(1e-3, True), (6e-3, False)])
def test_half_precision_shares_only_what_differs_by_rounding(off: float, shares: bool) -> None:
    half = copy.deepcopy(network()).to(torch.float16)
    m = heed.prompted(half, tokenizer(), TEMPLATE, LABELS)
    outputs = m.outputs

    def changed(rows: Any) -> Any:
        """As if a cache were off by a share of the largest logit."""
        answers = outputs(rows)
        return answers + off * np.abs(answers).max() * bool(m.shares)

    m.outputs, m.shares = changed, 0
    assert bool(m._find_shared()) == shares


class counted:  # noqa: N801 - used as a function
    """The numbers of tokens of the passes meanwhile."""

    def __init__(self, m: Any):
        self.model = m.model
        self.tokens: list[int] = []

    def __enter__(self) -> list[int]:
        def look(_: Any, __: Any, named: dict[str, Any]) -> None:
            self.tokens.append(named["input_ids"].numel())

        self.handle = self.model.register_forward_pre_hook(look, with_kwargs=True)
        return self.tokens

    def __exit__(self, *_: object) -> None:
        self.handle.remove()


def test_the_template_and_the_words_before_the_first_removed_one_are_read_once() -> None:
    m = heed.prompted(network(), tokenizer(), TEMPLATE, LABELS)
    (t,) = m.tokens([TEXT])
    template = int((t.word == 0).argmax())
    words = len(t.words)
    keep = np.ones((8, words), dtype=bool)
    keep[np.arange(8), words - 1 - np.arange(8) % 3] = False  # one of the last three
    with counted(m) as tokens:
        m.score([t], [keep], removal="hide")
    first = int((t.word == words - 3).argmax())
    assert first > template
    # three texts differ: their common beginning once, and the rest of each
    assert sorted(tokens) == sorted([first, 3 * (len(t) - first)])


def test_a_beginning_goes_on_from_the_last_one() -> None:
    m = heed.prompted(network(), tokenizer(), TEMPLATE, LABELS)
    ids = m.tokens([TEXT])[0].ids

    def rows(length: int, left_out: int) -> list[Row]:
        """A text, and the same without one of its tokens."""
        types = np.zeros(length, dtype=np.int64)
        without = np.delete(ids, left_out)[:length]
        assert without[left_out] != ids[left_out]
        return [Row(ids[:length], types), Row(without, types)]

    with torch.inference_mode(), prefix.remembered(), counted(m) as tokens:
        m.outputs(rows(20, 15))
        m.outputs(rows(24, 18))
        m.outputs(rows(24, 15))
    assert tokens == [15, 2 * 5, 3, 2 * 6, 2 * 9]


def test_a_beginning_of_other_types_is_another_beginning() -> None:
    ids = np.arange(8)
    types = np.zeros(8, dtype=np.int64)
    read = []

    def go_on(beginning: prefix.Beginning, row: Row) -> prefix.Beginning:
        read.append((len(beginning), len(row.ids)))
        return prefix.Beginning(row, ())

    with prefix.remembered():
        for kinds in (types, np.where(ids < 3, 0, 1), np.where(ids < 3, 0, 1)):
            prefix.begin([Row(ids, kinds)] * 5, go_on)
    assert read == [(0, 7), (3, 7)]


def test_positions_that_depend_on_the_length_share_nothing() -> None:
    """What a beginning leaves is other keys in a longer text."""
    m = heed.prompted(network("phi3"), tokenizer(), TEMPLATE, LABELS)
    assert prefix.unscaled(m.model.config) == 32 < m.tokenizer.max_tokens
    assert m.shares == 0
    short = heed.prompted(network("phi3"), tokenizer(), TEMPLATE, LABELS)
    short.model.config.rope_parameters["original_max_position_embeddings"] = 96
    assert short._find_shared() == 96


def test_rows_share_what_all_of_them_see() -> None:
    ids = np.arange(6)
    types = np.zeros(6, dtype=np.int64)
    other = np.where(ids == 4, 9, ids)
    seen = ids != 2
    assert prefix.shared([Row(ids, types), Row(ids, types)]) == 5  # something has to be read
    assert prefix.shared([Row(ids, types), Row(other, types)]) == 4
    assert prefix.shared([Row(ids, types), Row(ids, types, seen)]) == 2
    assert prefix.shared([Row(ids, types), Row(ids, 1 - types)]) == 0
    assert prefix.shared([Row(ids, types), Row(ids[:2], types[:2])]) == 1
