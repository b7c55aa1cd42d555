"""Whether a converted folder computes what the file does that it was made of."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from heed.errors import CheckpointError, quoted
from heed.models import onnx_graph, transformer
from heed.models.onnx_graph import Graph
from heed.models.passes import Row
from heed.models.pretrained import CAUSAL
from heed.models.sources import Check
from heed.text import Document

LEAST_EQUAL = 0.75  # labels that must be the same where a file's rounding cannot be undone
_SECONDS = 900  # for onnxruntime, on all texts
_MEMORY = 2**33  # bytes, for onnxruntime beside six times the file


def tolerance(half: bool) -> float:
    """The largest difference of logits, by whether the file or the folder is in half precision."""
    return 1e-2 if half else 1e-3


def check_reloaded(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    scratch: Path,
    documents: Sequence[Document],
    fp16: bool,
) -> Check:
    """The folder must give the logits of the network in memory; there is no other reference."""
    if type(network).__name__.endswith(CAUSAL):
        again: Any = AutoModelForCausalLM.from_pretrained(scratch, dtype=torch.float32).eval()
        read = AutoTokenizer.from_pretrained(scratch)
    else:
        classifier = transformer.load(scratch)
        again, read = classifier.model, classifier.pretrained_tokenizer
    pairs = []
    for document in documents:
        texts = document.segments if read.sep_token else (" ".join(document.segments),)
        ours = read(*texts, return_tensors="pt", truncation=True)
        theirs = tokenizer(*texts, return_tensors="pt", truncation=True)
        with torch.no_grad():
            pairs.append((_last(again(**ours).logits), _last(network(**theirs).logits)))
    check = _compared("the file as transformers loads it", pairs, tolerance(fp16))
    _check_within(check.difference, check)
    return check


def _last(logits: Tensor) -> np.ndarray:
    """One row of logits per text; of language models that of the last token."""
    return (logits[0, -1] if logits.ndim == 3 else logits[0]).double().numpy()


def check_onnx(
    path: Path,
    graph: Graph,
    classifier: transformer.Transformer,
    documents: Sequence[Document],
    tolerance: float,
    turned: set[str],
) -> Check:
    inputs, ours = [], []
    for tokens in classifier.tokenizer(documents):
        given, _ = classifier.inputs([Row(tokens.ids, tokens.types)])
        given = _stretched(given, classifier, graph.fixed_length)
        inputs.append(_fed(given, graph))
        with torch.no_grad():
            ours.append(_last(classifier.model(**given).logits))
    theirs = _run_onnx(path, inputs)
    check = _compared("onnxruntime", list(zip(ours, theirs, strict=True)), tolerance)
    if not graph.rounds_activations:
        _check_within(check.difference, check)
        return check
    check = replace(check, rounded=True)
    named = {name: value.numpy() for name, value in classifier.model.state_dict().items()}
    proto = graph.in_float(onnx_graph.matrices(graph, named, turned))
    if proto is None:
        if check.same_labels < LEAST_EQUAL:
            raise CheckpointError(
                f"Only {check.same_labels:.0%} of the labels are those of onnxruntime."
            )
        return check
    with tempfile.TemporaryDirectory() as scratch:
        unrounded = Path(scratch) / "model.onnx"
        unrounded.write_bytes(proto.SerializeToString())
        plain = _run_onnx(unrounded, inputs)
    exact = _compared("onnxruntime", list(zip(ours, plain, strict=True)), tolerance)
    _check_within(exact.difference, check)
    return replace(check, unrounded_difference=exact.difference)


def _compared(
    against: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]], tolerance: float
) -> Check:
    differences = []
    same = []
    for ours, theirs in pairs:
        if ours.shape != theirs.shape:
            raise CheckpointError(
                f"The config.json describes {ours.size} labels, and the file's output has"
                f" {theirs.size}."
            )
        differences.append(float(np.abs(ours - theirs).max()))
        alone = ours.size == 1
        same.append(
            bool(((ours > 0) == (theirs > 0)) if alone else ours.argmax() == theirs.argmax())
        )
    # NaN is never within a tolerance; max() would pass over it
    return Check(against, len(pairs), float(np.max(differences)), float(np.mean(same)), tolerance)


def _check_within(difference: float, check: Check) -> None:
    if not difference <= check.tolerance:
        raise CheckpointError(
            f"The logits of the folder differ by {difference:.2g} from {check.against}, and"
            f" {check.tolerance:g} is allowed: the config.json may be that of another model."
        )


def check_inputs(graph: Graph) -> None:
    known = {"input_ids", "attention_mask", "token_type_ids", "position_ids"}
    others = sorted(set(graph.inputs) - known)
    if others or "input_ids" not in graph.inputs:
        wrong = f"asks for {others[0]}" if others else "does not ask for input_ids"
        raise CheckpointError(f"The graph {quoted(wrong)}: it is not a text classifier's.")


def _stretched(
    given: Mapping[str, Tensor], classifier: transformer.Transformer, length: int | None
) -> dict[str, Tensor]:
    """Padded to the length that the file takes."""
    if length is None:
        return dict(given)
    room = length - given["input_ids"].shape[1]
    padding = int(classifier.model.config.pad_token_id)
    return {
        name: nn.functional.pad(value, (0, room), value=padding if name == "input_ids" else 0)
        for name, value in given.items()
    }


def _fed(given: Mapping[str, Tensor], graph: Graph) -> dict[str, np.ndarray]:
    """What the graph asks for, in its own types; BERT without types has all of them zero."""
    values = {name: value.numpy() for name, value in given.items()}
    shape = values["input_ids"].shape
    values.setdefault("token_type_ids", np.zeros(shape, np.int64))
    values["position_ids"] = np.arange(shape[1])[None]
    return {name: values[name].astype(graph.input_types[name]) for name in graph.inputs}


def _run_onnx(path: Path, inputs: Iterable[Mapping[str, np.ndarray]]) -> list[np.ndarray]:
    """Logits by onnxruntime, in a process of its own that may fail without harm."""
    given = {
        f"{number}/{name}": value
        for number, feed in enumerate(inputs)
        for name, value in feed.items()
    }
    memory = _MEMORY + 6 * path.stat().st_size
    script = Path(__file__).with_name("onnx_run.py")
    with tempfile.TemporaryDirectory() as scratch:
        stored, result = Path(scratch) / "inputs.npz", Path(scratch) / "logits.npz"
        np.savez(stored, **given)  # type: ignore[arg-type]
        # -P: modules of this folder must not stand in for those of the standard library
        files = [str(file) for file in (script, path.absolute(), stored, result)]
        command = [sys.executable, "-P", *files, str(memory)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise CheckpointError("onnxruntime was not done with the file in time.") from None
        if done.returncode or not result.is_file():
            why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise CheckpointError(f"onnxruntime does not run the file ({quoted(why[0])}).")
        with np.load(result, allow_pickle=False) as logits:
            rows = [logits[str(number)] for number in range(len(logits.files))]
    return [row[0].astype(np.float64) for row in rows]
