"""Half precision on the CPU beside single precision, with the same (rounded) weights.

`tests/test_devices.py` runs this file in a process of its own, with the environment variable that
keeps oneDNN from instructions that some machines advertise and do not have.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import heed
from heed.methods import METHODS, make_method
from heed.models.transformer import Transformer
from tests.apart.settings import DOCUMENTS, QUICK, quick
from tests.conftest import UNTRAINED
from tests.test_transformer import TEXTS, network, tokenizer

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# How far scores may be off, as a share of the largest. A change of the output is known only to the
# rounding of the output: 2⁻⁸ of it in bfloat16, which is more of a small change.
NEAR = {"bfloat16": 0.03, "float16": 0.01}
CHANGES = {"bfloat16": 0.15, "float16": 0.03}
OF_CHANGES = {"occlusion", "lime", "shapley", "slalom", "integrated-gradients"}
OF_CHANGES |= {"gradient-input", "gradient-mean", "gradient-paths", "value-zeroing", "relevance"}
# zeroed in one layer alone, values change the output by little more than its rounding
SETTINGS = QUICK | {"value-zeroing": {"layers": "all"}}
REFUSED = {"efficient-sufficient", "efficient-necessary", "null-step"}
COMPARED = {"used", "identified", "efficient-shared"}


@cache
def model(family: str, dtype: str, single: bool = False) -> Transformer:
    """Weights of a usual size: much larger ones make small roundings large."""
    rounded = network(family, initializer_range=0.2).to(HALF[dtype])
    return Transformer(rounded.float() if single else rounded, tokenizer(), family)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("family", ["bert", "llama", "deberta", "gpt2", "modernbert"])
def test_half_precision_is_offered_the_same(family: str, dtype: str) -> None:
    half, single = model(family, dtype), model(family, dtype, single=True)
    for name in ("offers", "withheld", "removals", "gradients_at", "even", "causal", "_row"):
        assert getattr(half, name) == getattr(single, name), name
    assert half.attending(half.tokens(TEXTS)).cheap
    trace = half.trace(half.tokens(TEXTS))
    assert {w.dtype for w in trace.values} == {HALF[dtype]}
    assert trace.logits.dtype == torch.float32


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_close_to_single_precision(name: str, family: str, dtype: str) -> None:
    half, single = model(family, dtype), model(family, dtype, single=True)
    method = make_method(name, SETTINGS.get(name, {}))
    if reason := method.refusal(single, TEXTS[:2]):
        assert method.refusal(half, TEXTS[:2]) == reason
        return
    both = zip(method.explain(single, TEXTS[:2]), method.explain(half, TEXTS[:2]), strict=True)
    near = (CHANGES if name in OF_CHANGES else NEAR)[dtype]
    for one, other in both:
        # a special token may count for more than all words
        largest = max(1e-3, np.abs([*one.scores, *(s.score for s in one.specials)]).max())
        np.testing.assert_allclose(other.scores, one.scores, atol=near * largest)
        assert one.label == other.label
        assert f"The model ran on the CPU, in {dtype}." in other.notes


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_claims_are_measured_in_half_precision(family: str) -> None:
    claims = [quick(test) for test in UNTRAINED.values()]
    half, single = (
        heed.audit(model(family, "bfloat16", single), DOCUMENTS, claims).evidence
        for single in (False, True)
    )
    for one, other in zip(single, half, strict=True):
        if one.claim.id in REFUSED and one.refusal is None:
            assert other.refusal is not None and "--dtype float32" in other.refusal.reason
            continue
        assert one.refusal == other.refusal
        if one.claim.id in COMPARED:  # the others rank words
            values = [[row["value"] for row in evidence.rows] for evidence in (one, other)]
            np.testing.assert_allclose(values[1], values[0], atol=0.05, err_msg=one.claim.id)


def saturated(dtype: str, single: bool = False) -> Transformer:
    """Large logits, which hardly react to single words: effects of 0.01 beside logits of 10."""
    sure = network("bert", initializer_range=0.2)
    with torch.no_grad():
        sure.classifier.weight.mul_(0.01)
        sure.classifier.bias.copy_(torch.tensor([-9.0, 11.0, 2.0]))
    rounded = sure.to(HALF[dtype])
    return Transformer(rounded.float() if single else rounded, tokenizer(), "saturated")


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", METHODS)
def test_effects_that_are_rounded_away_are_noted(name: str, dtype: str) -> None:
    half = saturated(dtype)
    method = make_method(name, SETTINGS.get(name, {}))
    if method.refusal(half, TEXTS[:1]):
        return
    (e,) = method.explain(half, TEXTS[:1])
    (usual,) = method.explain(model("bert", dtype), TEXTS[:1])
    (exact,) = method.explain(saturated(dtype, single=True), TEXTS[:1])
    noted = [any("Half precision rounds" in note for note in x.notes) for x in (e, usual, exact)]
    changes = name in OF_CHANGES - {"gradient-mean"}
    assert noted == [changes, False, False]


def test_such_effects_are_off_by_as_much_as_they_are() -> None:
    found, true = (
        heed.explain(saturated("bfloat16", single), TEXTS[0], "occlusion").scores
        for single in (False, True)
    )
    assert np.abs(found - true).max() > 0.5 * np.abs(true).max()
