"""Everything that needs no training, on a device that is not the CPU: the same numbers come out.

`tests/test_devices.py` runs this file in a process of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import heed
from bench import small
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
    assert here.refusal is None and there.refusal is None
    assert len(here.rows) == len(there.rows)
    for one, other in zip(here.rows, there.rows, strict=True):
        for key, value in one.items():
            if isinstance(value, float):
                # fused attention on the CPU rounds otherwise
                value = pytest.approx(value, abs=1e-3 + 0.02 * abs(value), nan_ok=True)
            assert other[key] == value, key


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


def spread(family: str) -> Any:
    """The last layer and what follows it on the device, the rest on the CPU."""
    net = network(family)
    base = net.base_model
    layers = base.encoder.layer if family == "bert" else base.layers
    ends = (base.pooler, net.classifier) if family == "bert" else (base.norm, net.score)
    for part in (layers[-1], *ends):
        part.to(DEVICE)
        part.register_forward_pre_hook(_move, with_kwargs=True)
    return net


def _move(module: Any, inputs: Any, named: Any) -> Any:
    """As accelerate does: what a module is given comes to where its weights are."""
    return pytree.tree_map(
        lambda x: x.to(DEVICE) if isinstance(x, torch.Tensor) else x, (inputs, named)
    )


SPREAD = ["attention-mean", "value-norm", "rollout", "attention-gradient", "efficient"]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_a_model_may_be_spread_over_devices(family: str) -> None:
    here, there = model(family, there=False), Transformer(spread(family), tokenizer(), family)
    assert (there.offers, there.withheld) == (here.offers, here.withheld)
    assert there.runs == "on cpu and sim:0, in float32"
    devices_of = [w.device.type for w in there.trace(there.tokens(TEXTS)).attention]
    assert devices_of == ["cpu", "sim"]
    for name in [*SPREAD, "gradient-input", "integrated-gradients", "lime"]:
        method = make_method(name, QUICK.get(name, {}))
        (one,), (other,) = (method.explain(m, TEXTS[:1]) for m in (here, there))
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


@cache
def asked(kind: str, there: bool) -> Any:
    """A language model that is prompted, or a model of entailment."""
    from tests import test_entailed, test_prompted

    net = test_entailed.network() if kind == "entailed" else test_prompted.network()
    net = copy.deepcopy(net).to(DEVICE) if there else net
    if kind == "entailed":
        judged = {"entailment": 2, "tokenizer": small.tokenizer()}
        return heed.entailed(net, test_entailed.LABELS, test_entailed.HYPOTHESIS, **judged)
    labels = test_prompted.LONGER if kind == "longer" else test_prompted.LABELS
    template = "the film is good and the plot is not very great : {text} ."
    return heed.prompted(net, test_prompted.tokenizer(), template, labels, calibrate=True)


@pytest.mark.parametrize("kind", ["prompted", "longer", "entailed"])
def test_a_model_that_is_asked_gives_the_numbers_of_the_cpu(kind: str) -> None:
    for name in ("attention-mean", "attention-gradient", "gradient-input", "occlusion"):
        if make_method(name).refusal(asked(kind, there=False), TEXTS[:1]):
            continue
        one = heed.explain(asked(kind, there=False), TEXTS[0], name)
        with simulated():
            other = heed.explain(asked(kind, there=True), TEXTS[0], name)
        largest = max(1e-3, np.abs(one.scores).max())
        np.testing.assert_allclose(other.scores, one.scores, atol=1e-3 * largest)
    if kind != "entailed":
        assert asked(kind, there=True).shares == asked(kind, there=False).shares > 0
