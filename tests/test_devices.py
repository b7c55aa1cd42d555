"""Where a model runs, in what precision, and in how large batches.

There is no accelerator here. What has to run on one runs on a simulated device, and half precision
on the CPU, each in a process of its own.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import heed
from heed.claims import CLAIMS
from heed.errors import InputError, OutOfMemory, UnknownName
from heed.methods import METHODS
from heed.models import devices
from heed.models.transformer import Transformer
from heed.progress import listening
from tests.apart.settings import QUICK, quick
from tests.conftest import Heard
from tests.test_cli import command, refused
from tests.test_transformer import TEXTS, network, tokenizer

APART = Path(__file__).parent / "apart"


@pytest.mark.parametrize("file", ["on_a_simulated_device.py", "in_half_precision.py"])
def test_in_a_process_of_its_own(file: str) -> None:
    """Torch is told of the device before its first backward pass, and of instructions to avoid."""
    # this kind of machine advertises matrix instructions that it does not have
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(APART / file)]
    folder = Path(__file__).parent.parent
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]


# What people ask for


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that is stored in half precision."""
    network("bert").to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    return tmp_path


def accelerators(monkeypatch: pytest.MonkeyPatch, cuda: int, mps: bool) -> None:
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(2, True, "cuda"), (0, True, "mps"), (0, False, "cpu")]
)
def test_auto_is_the_best_device_that_there_is(
    cuda: int, mps: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerators(monkeypatch, cuda, mps)
    assert devices.choose() == torch.device(expected)
    assert devices.choose("cpu") == torch.device("cpu")
    monkeypatch.setenv(devices.VARIABLE, "cpu")
    assert devices.choose() == torch.device("cpu")


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerators(monkeypatch, 2, False)
    assert devices.choose("cuda:1") == torch.device("cuda:1")
    for name in ("cuda:2", "mps"):
        with pytest.raises(InputError, match=f"no device {name}"):
            heed.load(device=name)
    for name in ("gpu", "cuda:", "cuda:x", "cpu:0", ""):
        with pytest.raises(InputError, match="use auto, cpu, cuda"):
            heed.load(device=name)
    with pytest.raises(UnknownName, match="did you mean 'float16'"):
        heed.load(dtype="float17")
    with pytest.raises(InputError, match="batch_tokens must be at least 1"):
        heed.load(batch_tokens=0)
    monkeypatch.setenv(devices.VARIABLE, "tpu")
    with pytest.raises(InputError, match=r"'tpu' \(from HEED_DEVICE\)"):
        heed.load()


def test_the_precision_is_the_files_own_on_an_accelerator_and_single_on_the_cpu() -> None:
    assert devices.precision("auto", torch.device("cuda")) == "auto"
    assert devices.precision("auto", torch.device("cpu")) == torch.float32
    assert devices.precision("float16", torch.device("cpu")) == torch.float16


def test_a_model_is_loaded_in_the_precision_that_was_asked_for(folder: Path) -> None:
    single = heed.load(folder)
    assert isinstance(single, Transformer)
    assert single.model.dtype == torch.float32 and not single.half
    half = heed.load(folder, dtype="float16", batch_tokens=100)
    assert isinstance(half, Transformer)
    assert half.model.dtype == torch.float16 and half.half
    assert (half.batch_tokens, single.batch_tokens) == (100, devices.CPU_TOKENS)
    assert half.revision.endswith("-float16"), "the store tells precisions apart"
    assert "-" not in single.revision
    assert "The model ran on the CPU, in float16." in half.notes
    assert not any("ran on" in note for note in single.notes)


def test_models_of_heeds_own_say_that_they_run_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accelerators(monkeypatch, 1, False)
    for options in ({"device": "cuda"}, {"dtype": "bfloat16"}):
        heard = Heard()
        with listening(heard):
            heed.load(**options)
        assert heard.lines == [
            "single-layer-imdb is a model of heed's own, which runs on the CPU in float32."
        ]
    silence = Heard()
    with listening(silence):
        heed.load()
        heed.load(device="cpu", dtype="float32")
    assert silence.lines == []


# Models that are handed in


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_a_model_in_half_precision_stays_as_it_is(family: str) -> None:
    """Float16, because bfloat16 needs a process of its own."""
    theirs = network(family, initializer_range=0.2).to(torch.float16)
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    explanation = heed.explain((theirs, tokenizer()), TEXTS[0], "gradient-input")
    assert "The model ran on the CPU, in float16." in explanation.notes
    assert all(p.requires_grad and p.dtype == torch.float16 for p in theirs.parameters())
    assert all(torch.equal(before[name], value) for name, value in theirs.state_dict().items())


def test_weights_of_a_class_of_their_own_are_shared_as_they_are() -> None:
    """Those of quantised models know more than their data."""

    class Packed(nn.Parameter):
        pass

    theirs = network("bert")
    packed = Packed(theirs.classifier.weight.data, requires_grad=False)
    theirs.classifier.weight = packed
    ours = Transformer(theirs, tokenizer(), "bert")
    assert ours.model.classifier.weight is packed
    np.testing.assert_allclose(ours(TEXTS), Transformer(network("bert"), tokenizer(), "")(TEXTS))


OFFLOADED = ["attention-mean", "efficient", "attention-gradient", "gradient-input", "occlusion"]


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_a_model_whose_weights_accelerate_brings_in_is_explained_like_any_other(
    family: str,
) -> None:
    accelerate = pytest.importorskip("accelerate")
    plain = Transformer(network(family), tokenizer(), family)
    theirs = accelerate.cpu_offload(network(family), execution_device=torch.device("cpu"))
    assert all(p.is_meta for p in theirs.parameters())
    ours = Transformer(theirs, tokenizer(), family)
    assert all(p.is_meta for p in theirs.parameters())
    assert (ours.offers, ours.revision) == (plain.offers, plain.revision)
    kept = theirs.get_input_embeddings()._hf_hook.weights_map
    assert ours.model.get_input_embeddings()._hf_hook.weights_map is kept, "no second copy"
    for name in OFFLOADED:
        expected, got = (heed.explain(m, TEXTS[0], name).scores for m in (plain, ours))
        np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())
    drawn = [m.randomised(1)(TEXTS) for m in (plain, ours)]
    np.testing.assert_allclose(drawn[1], drawn[0], atol=1e-4)


def test_a_model_that_is_spread_over_devices_is_explained_like_any_other(tmp_path: Path) -> None:
    """One layer in memory, one on disk: each in its own place, as with a device_map."""
    accelerate = pytest.importorskip("accelerate")
    places = {"bert.embeddings": "cpu", "bert.encoder.layer.0": "cpu"}
    places |= {"bert.encoder.layer.1": "disk", "bert.pooler": "cpu", "classifier": "cpu"}
    spread = accelerate.dispatch_model(
        network("bert"), places, main_device="cpu", offload_dir=tmp_path, force_hooks=True
    )
    plain, ours = (Transformer(m, tokenizer(), "bert") for m in (network("bert"), spread))
    assert ours.offers == plain.offers
    for name in OFFLOADED:
        expected, got = (heed.explain(m, TEXTS[0], name).scores for m in (plain, ours))
        np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())


class Adapted(nn.Module):
    """A linear map with an adapter of low rank beside it, as PEFT puts it in its place."""

    def __init__(self, base: nn.Linear, rank: int = 2):
        super().__init__()
        self.base_layer = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.up(self.down(x))


def adapted(merged: bool) -> Any:
    """A BERT with adapters at queries and outputs of attention; `merged` into the maps."""
    net = network("bert")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for layer in net.bert.encoder.layer:
            for owner, name in ((layer.attention.self, "query"), (layer.attention.output, "dense")):
                adapter = Adapted(getattr(owner, name))
                if merged:
                    with torch.no_grad():
                        adapter.base_layer.weight += adapter.up.weight @ adapter.down.weight
                else:
                    setattr(owner, name, adapter)
    return net


def test_a_model_with_adapters_is_explained_like_one_they_are_merged_into() -> None:
    ours, merged = (Transformer(adapted(m), tokenizer(), "bert") for m in (False, True))
    assert "projected values" in merged.offers - ours.offers
    for name in ["attention-mean", "rollout", "gradient-input", "occlusion", "efficient"]:
        expected, got = (heed.explain(m, TEXTS[0], name).scores for m in (merged, ours))
        np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())


def test_a_model_of_peft_is_explained_like_one_its_adapters_are_merged_into() -> None:
    peft = pytest.importorskip("peft")
    options = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        theirs = peft.get_peft_model(network("bert"), options)
        for name, weight in theirs.named_parameters():
            if "lora_B" in name:  # which starts at 0, where no test would see it
                nn.init.normal_(weight, std=0.1)
    merged = copy.deepcopy(theirs).merge_and_unload()
    pair = [("the film", "the plot is bad")]
    for name in ("attention-mean", "value-norm", "gradient-input", "occlusion"):
        expected, got = (
            heed.explain((m, tokenizer()), [TEXTS[0], *pair], name) for m in (merged, theirs)
        )
        for one, other in zip(expected, got, strict=True):
            largest = np.abs(one.scores).max()
            np.testing.assert_allclose(other.scores, one.scores, atol=1e-4 * largest)
    assert any(p.requires_grad for p in theirs.parameters())


# Memory


@cache
def bert() -> Transformer:
    return Transformer(network("bert", initializer_range=0.2), tokenizer(), "bert")


def cramped(most: int, error: type[Exception] = torch.OutOfMemoryError) -> Transformer:
    """A BERT on a device that holds so many tokens at a time."""
    model = copy.copy(bert())
    network_of_all, limited = model.model, copy.copy(model.model)

    def forward(**inputs: Any) -> Any:
        if inputs["input_ids"].numel() > most:
            raise error("MPS backend out of memory")
        return network_of_all(**inputs)

    limited.forward = forward
    model.model = limited
    return model


def explained_by(name: str) -> bool:
    return METHODS[name].needs <= cramped(10**9).offers


@pytest.mark.parametrize("name", [*filter(explained_by, METHODS)])
def test_batches_are_halved_until_they_fit(name: str) -> None:
    """MPS has no error of its own for it."""
    roomy, small = (
        cramped(10**9),
        cramped(40, RuntimeError if name == "lime" else torch.OutOfMemoryError),
    )
    texts = [*TEXTS, TEXTS[0]]
    settings = QUICK.get(name, {})
    expected, got = (heed.explain(m, texts, name, **settings) for m in (roomy, small))
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_allclose(
            other.scores, one.scores, atol=1e-5 * max(1e-6, np.abs(one.scores).max())
        )
    # what is halved is more than 40 tokens
    assert 20 <= small.batch_tokens < 100 < roomy.batch_tokens == devices.CPU_TOKENS


def test_claims_go_on_with_smaller_batches() -> None:
    tests = [quick(CLAIMS[name]) for name in ("used", "exclusive", "removes", "agrees-gradient")]
    roomy, small = cramped(10**9), cramped(40)
    expected, got = (heed.audit(m, TEXTS, tests).evidence for m in (roomy, small))
    for one, other in zip(expected, got, strict=True):
        values = [[row["value"] for row in evidence.rows] for evidence in (one, other)]
        np.testing.assert_allclose(values[1], values[0], atol=1e-4)


def test_the_size_that_fits_is_remembered() -> None:
    model = cramped(40)
    model(TEXTS)
    calls: list[int] = []
    forward = model.model.forward

    def counted(**inputs: Any) -> Any:
        calls.append(inputs["input_ids"].numel())
        return forward(**inputs)

    model.model.forward = counted
    model(TEXTS)
    assert max(calls) <= 40


def test_rows_that_do_not_fit_say_nothing_of_the_tokens_that_do() -> None:
    """Other attention in the last layer takes one row of each document, not its tokens."""
    model = cramped(10**9)
    tokens = model.tokens(TEXTS[:2])
    attending = model.attending(tokens)
    assert attending.cheap
    rows = attending.trace.classifying_rows()
    many = rows.expand(20, *rows.shape)
    with torch.no_grad():
        expected = attending.logits(many)
        model.model = cramped(8).model  # four variants of two documents
        got = attending.logits(many)
    torch.testing.assert_close(got, expected)
    assert model.batch_tokens == devices.CPU_TOKENS


def test_a_text_that_does_not_fit_alone_is_refused_in_one_sentence() -> None:
    with pytest.raises(OutOfMemory, match=r"A text of 17 tokens does not fit into memory: use"):
        cramped(12)(TEXTS)
    with pytest.raises(OutOfMemory):
        heed.explain(cramped(12), TEXTS, "integrated-gradients")


def test_other_errors_of_a_pass_are_not_hidden() -> None:
    model = cramped(10**9)

    def broken(**inputs: Any) -> Any:
        raise RuntimeError("a device-side assert")

    model.model.forward = broken
    with pytest.raises(RuntimeError, match="assert"):
        model(TEXTS)


def test_batches_start_from_the_memory_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(num_hidden_layers=12, hidden_size=768, num_attention_heads=12)
    weight = SimpleNamespace(device=torch.device("cuda"), is_meta=False)
    model = SimpleNamespace(config=config, parameters=lambda: [weight])
    sizes = []
    for gigabytes in (0.1, 8, 16, 1000):
        free = int(gigabytes * 2**30)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 2**40))
        sizes.append(devices.batch_tokens(model, 512))
    # for each token 12 layers of 16 · 768 + 4 · 12 · 512 numbers of 4 bytes, in half of the memory
    assert sizes[1] == 2**33 // 2 // (12 * (16 * 768 + 4 * 12 * 512) * 4)
    assert sizes[0] == 256 and sizes[3] == 16_384 and sizes[0] < sizes[1] < sizes[2] < sizes[3]
    weight.device = torch.device("cpu")
    assert devices.batch_tokens(model, 512) == devices.CPU_TOKENS


# The command line


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--device", "gpu"], "There is no device 'gpu': use auto, cpu, cuda, cuda:1 or mps."),
        (["--device", "cuda:3"], "PyTorch finds no device cuda:3 here: use another one, or auto."),
        (["--dtype", "float8"], "There is no precision 'float8': did you mean 'float32'?"),
        (["--batch-tokens", "0"], "it must be 1 or more"),
    ],
)
@pytest.mark.parametrize("verb", ["explain", "audit"])
def test_what_no_machine_or_this_one_lacks_is_one_sentence(
    verb: str, options: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerators(monkeypatch, 2, False)
    text = ["a fine film"] if verb == "explain" else ["--data", "task:reviews", "--limit", "5"]
    refused(command(verb, *text, *options), sentence)


def test_the_environment_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerators(monkeypatch, 0, False)
    monkeypatch.setenv(devices.VARIABLE, "cuda")
    with pytest.raises(InputError, match=r"finds no device cuda here \(from HEED_DEVICE\): use"):
        devices.choose()
    # the bundled model never uses it
    done = command("explain", "a fine film", "--method", "occlusion")
    assert done.code == 0 and "occlusion for" in done.out and "CPU" not in done.err
    done = command("explain", "a fine film", "--device", "cpu", "--method", "random")
    assert done.code == 0


def test_the_command_line_loads_a_model_as_it_is_told(folder: Path) -> None:
    options = ["--model", folder, "--device", "cpu", "--dtype", "float16", "--batch-tokens", "64"]
    done = command("explain", "a good film", "--method", "occlusion", "--format", "json", *options)
    assert done.code == 0, done.err
    (explanation,) = done.explanations
    assert "The model ran on the CPU, in float16." in explanation["notes"]
    assert explanation["revision"].endswith("-float16")
    used = ["--data", "task:reviews", "--limit", "12", "--claim", "used", "--format", "json"]
    audited = command("audit", *used, *options)
    assert audited.code == 0, audited.err
    assert json.loads(audited.out)["facts"]["runs"] == "on the CPU, in float16"
