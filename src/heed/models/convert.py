"""Weights of other formats, as a Hugging Face folder with safetensors.

ONNX files of torch's exporter, GGUF files, and state dicts (.bin, .pt) that hold nothing but
tensors. Every weight of the architecture must be in the file, and no other. The logits of an ONNX
file are compared with those of the folder. Nothing is written unless all of this holds.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.pytorch_utils import Conv1D

from heed.errors import CheckpointError, InputError, quoted
from heed.models import comparing, folders, onnx_graph, pretrained, sources, transformer
from heed.models.folders import CONVERTED
from heed.models.onnx_graph import Graph
from heed.models.pretrained import CAUSAL, is_causal
from heed.models.sources import Check, Conversion, Source
from heed.text import Document

_LARGEST_COUNT = 1000  # layers, experts and the like: more would be built for hours
_MOST_LABELS = 100_000
_COUNTS = re.compile(r"layer|expert|block|stage|depth")
# nothing of these decides about the architecture, and some would run or fetch something
_UNREAD = ("auto_map", "_name_or_path", "dtype", "torch_dtype", "quantization_config")
_CLASSIFIER = "ForSequenceClassification"  # how the names of classes end
# what families call their special tokens
_USUAL = {
    "unk_token": ("[UNK]", "<unk>"),
    "sep_token": ("[SEP]", "</s>"),
    "pad_token": ("[PAD]", "<pad>"),
    "cls_token": ("[CLS]", "<s>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def convert(
    source: Source,
    folder: Path,
    documents: Sequence[Document] = (),
    tolerance: float | None = None,
    fp16: bool = False,
) -> Conversion:
    """Write a Hugging Face folder that has the weights of a file.

    documents   texts to compare logits on; by default a few that come with heed
    tolerance   the largest difference of logits; above it nothing is written. A file that rounds
                its activations is measured without the rounding
    fp16        store weights in half precision
    """
    sources.check_installed(source)
    folders.check_free(folder)
    subject = f"{quoted(str(source.weights))} cannot be converted"
    documents = documents or sources.built_in(paired=source.format != "GGUF")
    with folders.reading(subject), pretrained.quiet(), folders.writing(folder) as scratch:
        if source.format == "GGUF":
            network, check = _convert_gguf(source, scratch, documents, fp16)
        else:
            network, check = _convert_tensors(source, scratch, documents, tolerance, fp16)
        facts = {
            "source": source.weights.name,
            "sha256": sources.digest(source.weights),
            "format": source.format,
            "check": asdict(check),
            **(source.facts or {}),
        }
        (scratch / CONVERTED).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf8")
        for path in source.copied:
            shutil.copyfile(path, scratch / path.name)
        size = sum(path.stat().st_size for path in scratch.iterdir())
    classifies = not is_causal(network.config)
    labels = tuple(str(network.config.id2label[i]) for i in range(network.config.num_labels))
    return Conversion(
        folder,
        source.format,
        type(network).__name__,
        labels if classifies else (),
        sum(p.numel() for p in network.parameters()),
        size,
        check,
    )


# ONNX files and state dicts: an architecture from elsewhere, and tensors by name


def _convert_tensors(
    source: Source,
    scratch: Path,
    documents: Sequence[Document],
    tolerance: float | None,
    fp16: bool,
) -> tuple[PreTrainedModel, Check]:
    config = _config(source)
    empty = _empty(config)
    shapes = {name: tuple(value.shape) for name, value in empty.state_dict().items()}
    graph = None
    if source.format == "ONNX":
        graph = Graph(source.weights)
        comparing.check_inputs(graph)
        arrays = onnx_graph.weights(graph, shapes, _turned(empty))
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
    else:
        tensors = _state_dict(source.weights, shapes)
    network = _filled(config, empty, tensors)
    tokenizer = _tokenizer(source, network, graph)
    _save(network, tokenizer, scratch, fp16)
    if graph is None:
        return network, comparing.check_reloaded(network, tokenizer, scratch, documents, fp16)
    if is_causal(config):
        raise CheckpointError("heed converts language models from GGUF files and state dicts only.")
    classifier = transformer.load(scratch)
    _check_tokens(source, classifier, documents)
    if tolerance is None:
        tolerance = comparing.tolerance(fp16 or graph.in_half_precision)
    check = comparing.check_onnx(
        source.weights, graph, classifier, documents, tolerance, _turned(empty)
    )
    return network, check


def _config(source: Source) -> PreTrainedConfig:
    """The architecture, after checking that building it cannot take all time or memory."""
    if source.config is None:
        raise InputError(
            f"There is no config.json beside {quoted(str(source.weights))}: name the architecture"
            " with --config FILE."
        )
    given = {key: value for key, value in source.config.items() if key not in _UNREAD}
    family = given.pop("model_type", None)
    if family not in CONFIG_MAPPING:
        raise CheckpointError(
            f"The config.json names the family '{quoted(family)}', which transformers does not"
            " have."
        )
    _check_counts(given)
    if source.labels:
        given["id2label"] = dict(enumerate(source.labels))
        given["label2id"] = {name: i for i, name in enumerate(source.labels)}
        given.pop("num_labels", None)
    config = CONFIG_MAPPING[family].from_dict(given)
    names: list[str] = config.architectures or []
    if any(not name.endswith((_CLASSIFIER, *CAUSAL)) for name in names):
        raise CheckpointError(
            f"The config.json is of a {quoted(names[0])}: heed reads sequence classifiers and"
            " causal language models."
        )
    return config


def _check_counts(config: Mapping[str, Any]) -> None:
    for key, value in config.items():
        if isinstance(value, Mapping):
            _check_counts(value)
        elif isinstance(value, int):
            most = _MOST_LABELS if key == "num_labels" else _LARGEST_COUNT
            if (key == "num_labels" or _COUNTS.search(key)) and value > most:
                raise CheckpointError(f"The config.json sets {quoted(key)} to {quoted(value)}.")


def _auto(config: PreTrainedConfig) -> Any:
    return AutoModelForCausalLM if is_causal(config) else AutoModelForSequenceClassification


def _empty(config: PreTrainedConfig) -> PreTrainedModel:
    """The architecture with shapes alone: a config that asks for terabytes costs nothing yet."""
    with torch.device("meta"):
        return _auto(config).from_config(config)


def _turned(network: PreTrainedModel) -> set[str]:
    """Matrices that are stored as in x out, as those of GPT-2 are."""
    return {f"{n}.weight" for n, module in network.named_modules() if isinstance(module, Conv1D)}


def _filled(
    config: PreTrainedConfig, empty: PreTrainedModel, tensors: Mapping[str, Tensor]
) -> PreTrainedModel:
    """The architecture with these weights: none missing, none left over."""
    wanted = sum(p.numel() for p in empty.parameters())
    given = sum(value.numel() for value in tensors.values())
    if wanted > given:
        lacking = sorted(set(empty.state_dict()) - set(tensors))
        raise CheckpointError(
            f"The config.json describes {wanted:,} weights, and the file holds {given:,} of them"
            f" (it lacks {quoted(', '.join(lacking[:3]))})."
        )
    network, info = type(empty).from_pretrained(
        None,
        config=config,
        state_dict=dict(tensors),
        dtype=torch.float32,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    _check_complete(info)
    return network.eval()


def _check_complete(info: Mapping[str, Any]) -> None:
    for key, words in (
        ("mismatched_keys", "weights of another shape than its config.json asks for"),
        ("unexpected_keys", "weights that its config.json has no place for"),
    ):
        if info[key]:
            names = sorted(name if isinstance(name, str) else str(name[0]) for name in info[key])
            raise CheckpointError(f"The file holds {words}: {quoted(', '.join(names[:3]))}.")
    if info["missing_keys"]:
        names = sorted(info["missing_keys"])
        raise CheckpointError(f"The file lacks weights: {quoted(', '.join(names[:3]))}.")


# State dicts


def _state_dict(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The tensors of a pickle that holds nothing else; code in it is never run."""
    _check_archive(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if "weights_only" in str(error) or "Unsupported" in str(error):
            raise CheckpointError(
                f"{quoted(str(path))} holds more than tensors, and reading it could run any code:"
                " save the state_dict alone."
            ) from None
        raise
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content:
        raise CheckpointError(f"{quoted(str(path))} holds no state dict.")
    tensors = {}
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise CheckpointError(f"The entry {quoted(name)} of the state dict is not a tensor.")
        _check_stored(name, value)
        tensors[name] = value
    prefix = onnx_graph.common_prefix(tensors, shapes)
    # positions were saved as buffers by older versions of the library
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if not name.endswith("embeddings.position_ids")
    }


def _check_archive(path: Path) -> None:
    """Torch stores tensors as they are: what is compressed may unfold to any size."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
            raise CheckpointError(f"{quoted(str(path))} unfolds to more than its size.")


def _check_stored(name: str, value: Tensor) -> None:
    """A tensor may name any shape over a few stored numbers."""
    plain = value.layout == torch.strided and value.device.type == "cpu"
    if not plain or value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise CheckpointError(f"The tensor {quoted(name)} is larger than what is stored of it.")
    if not value.is_floating_point() and value.dtype not in (torch.bool, torch.int64):
        raise CheckpointError(f"The tensor {quoted(name)} does not hold floating point numbers.")


# GGUF


def _convert_gguf(
    source: Source, scratch: Path, documents: Sequence[Document], fp16: bool
) -> tuple[PreTrainedModel, Check]:
    with tempfile.TemporaryDirectory() as alone:
        # in a folder of its own, where the library finds nothing else to read
        link = Path(alone) / "model.gguf"
        link.symlink_to(source.weights.absolute())
        elements = _gguf_elements(source.weights)
        options = {"gguf_file": link.name, "trust_remote_code": False}
        config = AutoConfig.from_pretrained(alone, **options)
        config.architectures = [CAUSAL[0]]
        _check_counts(config.to_dict())
        empty = _empty(config)
        if (wanted := sum(p.numel() for p in empty.parameters())) > elements:
            raise CheckpointError(
                f"The file describes {wanted:,} weights and holds {elements:,} of them."
            )
        with redirect_stderr(StringIO()):  # a bar that the library's own switch leaves on
            loaded, info = AutoModelForCausalLM.from_pretrained(
                alone, **options, dtype=torch.float32, output_loading_info=True
            )
        _check_complete(info)
        tokenizer = AutoTokenizer.from_pretrained(alone, **options)
    if source.max_tokens:
        tokenizer.model_max_length = source.max_tokens
    # a network of its own: the library refuses to save one that it read from a quantised file
    network = _filled(config, empty, loaded.state_dict())
    _save(network, tokenizer, scratch, fp16)
    return network, comparing.check_reloaded(loaded, tokenizer, scratch, documents, fp16)


def _gguf_elements(path: Path) -> int:
    """How many weights a GGUF file holds, after a look at how many layers it speaks of."""
    from gguf import GGUFReader

    reader = GGUFReader(path)
    for name, field in reader.fields.items():
        if name.endswith(".block_count") and int(field.parts[-1][0]) > len(reader.tensors):
            raise CheckpointError("The file describes more layers than it has tensors.")
    return sum(int(tensor.n_elements) for tensor in reader.tensors)


# Tokenizers


def _tokenizer(
    source: Source, network: PreTrainedModel, graph: Graph | None
) -> PreTrainedTokenizerBase:
    """The tokenizer, read from its tokenizer.json alone where there is one.

    Padding and truncation that are written into that file are taken out: heed pads and cuts itself.
    """
    path = source.tokenizer
    if path is None:
        raise InputError(
            f"There is no tokenizer beside {quoted(str(source.weights))}: name its folder with"
            " --tokenizer."
        )
    file = path if path.is_file() else path / "tokenizer.json"
    longest = [_positions(network.config), source.max_tokens, graph and graph.fixed_length]
    if not file.is_file():
        slow = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        if not slow.is_fast:
            raise CheckpointError("The tokenizer has no tokenizer.json, which heed needs.")
        backend, settings = slow.backend_tokenizer, slow.special_tokens_map
        longest.append(slow.model_max_length)
    else:
        stored = sources.read_json(file)
        beside = file.parent / "tokenizer_config.json"
        settings = sources.read_json(beside) if beside.is_file() else {}
        longest += [(stored.get("truncation") or {}).get("max_length")]
        longest += [settings.get("model_max_length")]
        backend = tokenizers.Tokenizer.from_file(str(file))
    backend.no_padding()
    backend.no_truncation()
    typed = ["token_type_ids"] if _reads_types(network, graph) else []
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=min(n for n in longest if isinstance(n, int | float) and n > 0),
        # as an argument: what is set afterwards is not saved
        model_input_names=["input_ids", *typed, "attention_mask"],
        **_special_tokens(backend, settings),
    )
    if isinstance(settings.get("chat_template"), str):
        tokenizer.chat_template = settings["chat_template"]
    return tokenizer


def _special_tokens(backend: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by their role: as the settings name them, else by their usual names."""
    tokens = {}
    for role in ("bos_token", "eos_token", *_USUAL):
        named = settings.get(role)
        content = named.get("content") if isinstance(named, dict) else named
        candidates = _USUAL.get(role, ()) if content is None else (content,)
        for token in candidates:
            if isinstance(token, str) and backend.token_to_id(token) is not None:
                tokens[role] = token
                break
    return tokens


def _reads_types(network: PreTrainedModel, graph: Graph | None) -> bool:
    takes = "token_type_ids" in inspect.signature(network.forward).parameters
    several = (getattr(network.config, "type_vocab_size", None) or 0) > 1
    return takes and several and (graph is None or "token_type_ids" in graph.inputs)


def _positions(config: PreTrainedConfig) -> int | None:
    return getattr(config, "max_position_embeddings", None)


def _check_tokens(
    source: Source, classifier: transformer.Transformer, documents: Sequence[Document]
) -> None:
    """The folder's tokenizer must cut texts as the file's does."""
    file = source.tokenizer
    file = file / "tokenizer.json" if file is not None and file.is_dir() else file
    if file is None or not file.is_file():
        return
    backend = tokenizers.Tokenizer.from_file(str(file))
    backend.no_padding()
    backend.no_truncation()
    for document in documents:
        ids = backend.encode(document.text, document.pair).ids
        tokens = classifier.tokenizer([document])[0]
        if len(ids) <= classifier.tokenizer.max_tokens and ids != tokens.ids.tolist():
            raise CheckpointError("The tokenizer changed on its way to the folder.")


def _save(
    network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, scratch: Path, fp16: bool
) -> None:
    network.config.architectures = [type(network).__name__]
    stored = copy.deepcopy(network).half() if fp16 else network
    stored.save_pretrained(scratch, max_shard_size="1000GB")
    tokenizer.save_pretrained(scratch)
