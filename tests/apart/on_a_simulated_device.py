"""Everything that needs no training, on a device that is not the CPU: the same numbers come out.

`tests/test_devices.py` runs this file in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import heed
from heed.methods import METHODS, make_method
from heed.models import devices
from heed.models.transformer import Transformer
from tests.apart.settings import DOCUMENTS, QUICK, quick
from tests.conftest import UNTRAINED
from tests.simulated_device import DEVICE, simulated
from tests.test_transformer import TEXTS, network, tokenizer


@cache
def model(family: str, there: bool) -> Transformer:
    net = network(family)
    return Transformer(net.to(DEVICE) if there else net, tokenizer(), family)


def explained(family: str, name: str, there: bool) -> Any:
    with simulated() if there else nullcontext():
        return make_method(name, QUICK.get(name, {})).explain(model(family, there), TEXTS[:2])


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_gives_the_numbers_of_the_cpu(name: str, family: str) -> None:
    if make_method(name).refusal(model(family, there=False), TEXTS[:2]):
        return  # what a model offers is compared below
    both = (explained(family, name, there) for there in (False, True))
    for one, other in zip(*both, strict=True):
        largest = max(1e-3, np.abs(one.scores).max())
        np.testing.assert_allclose(other.scores, one.scores, atol=1e-3 * largest)
        assert other.label == one.label


@cache
def audited(family: str, there: bool) -> Any:
    with simulated() if there else nullcontext():
        claims = [quick(test) for test in UNTRAINED.values()]
        return heed.audit(model(family, there), DOCUMENTS, claims)


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize("claim", UNTRAINED)
def test_a_claim_measures_what_it_does_on_the_cpu(claim: str, family: str) -> None:
    here, there = (
        next(e for e in audited(family, there).evidence if e.claim.id == claim)
        for there in (False, True)
    )
    assert here.refusal == there.refusal
    assert len(here.rows) == len(there.rows)
    # fused attention on the CPU rounds otherwise, which may swap two words that score the same
    for one, other in zip(here.rows, there.rows, strict=True):
        for key, value in one.items():
            assert other[key] == pytest.approx(value, abs=0.02, nan_ok=True), key


@pytest.fixture
def device() -> Iterator[None]:
    with simulated():
        yield


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("family", ["bert", "llama", "deberta"])
def test_what_a_trace_shows_is_on_the_device(family: str) -> None:
    here, there = (model(family, there) for there in (False, True))
    assert (there.offers, there.withheld, there.gradients_at) == (
        here.offers,
        here.withheld,
        here.gradients_at,
    )
    trace = there.trace(there.tokens(TEXTS))
    assert {w.device for w in (*trace.attention, *trace.values, trace.logits)} == {DEVICE}
    assert trace.classifying_rows().device.type == "cpu"
    expected = here.trace(here.tokens(TEXTS))
    np.testing.assert_allclose(trace.classifying(), expected.classifying(), atol=1e-5)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("where", ["cpu", "sim"])
@pytest.mark.parametrize("family", ["bert", "llama", "deberta"])
def test_attention_and_embeddings_may_come_from_anywhere(family: str, where: str) -> None:
    here, there = (model(family, there) for there in (False, True))
    tokens = here.tokens(TEXTS)
    own = here.trace(tokens)
    other = {1: own.classifying_rows().flip(-1)}
    wanted = here.trace(tokens, attention=other).logits.detach()
    moved = {1: other[1].to(where)}
    got = there.trace(tokens, attention=moved).logits.detach()
    np.testing.assert_allclose(got.cpu(), wanted, atol=1e-4)
    embeddings = own.embeddings.detach().flip(-1)
    wanted = here.trace(tokens, embeddings=embeddings).logits.detach()
    got = there.trace(tokens, embeddings=embeddings.to(where)).logits.detach()
    np.testing.assert_allclose(got.cpu(), wanted, atol=1e-4)


@pytest.mark.parametrize(
    "name", ["attention-mean", "efficient", "attention-gradient", "gradient-input", "occlusion"]
)
def test_attention_at_a_softmax_is_seen_and_replaced_on_the_device(name: str) -> None:
    both = (explained("deberta", name, there) for there in (False, True))
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(other.scores, one.scores, atol=1e-3 * np.abs(one.scores).max())


@pytest.mark.usefixtures("device")
def test_models_that_are_handed_in_stay_where_they_are() -> None:
    net = network("bert").to(DEVICE)
    explanation = heed.explain((net, tokenizer()), TEXTS[0], "attention-mean")
    assert {p.device for p in net.parameters()} == {DEVICE}
    assert "The model ran on sim:0, in float32." in explanation.notes
    assert explanation.revision == model("bert", there=False).revision


@pytest.mark.usefixtures("device")
def test_a_model_of_a_folder_is_loaded_to_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network("bert").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    monkeypatch.setattr(devices, "choose", lambda name: DEVICE)
    loaded = heed.load(tmp_path, device="cuda")
    assert loaded.trace(loaded.tokens(TEXTS)).logits.device == DEVICE  # type: ignore[attr-defined]


@pytest.mark.usefixtures("device")
def test_the_device_refuses_what_accelerators_refuse() -> None:
    there, here = torch.ones(3, device=DEVICE), torch.ones(3)
    with pytest.raises(RuntimeError, match="one device"):
        there + here
    with pytest.raises(RuntimeError, match="one device"):
        torch.cat([there, here])
    with pytest.raises(RuntimeError, match="one device"):
        here[torch.zeros(1, dtype=torch.long, device=DEVICE)]
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    with pytest.raises(TypeError, match="numpy"):
        np.asarray(there)
    with pytest.raises(TypeError, match="float64"):
        there.double()
    assert (there + torch.tensor(1.0)).tolist() == [2, 2, 2]
    assert there[torch.tensor([0, 1])].device == DEVICE
    assert (there.cpu() + here).tolist() == [2, 2, 2]
