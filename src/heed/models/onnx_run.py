"""Run an ONNX model in a process of its own: `python onnx_run.py MODEL INPUTS OUTPUTS MEMORY`.

A graph from elsewhere may ask for any amount of memory, loop for ever, or bring the runtime down.
Here that ends a process that nobody misses. INPUTS is an .npz file with entries `NUMBER/NAME`, one
number per text; OUTPUTS becomes one with an entry of logits per number.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def _limit_memory(most: int) -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _session(model: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Fusions change the order of additions; the plain graph is what torch computes.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _run(model: str, inputs: str, outputs: str) -> None:
    session = _session(model)
    texts: dict[str, dict[str, np.ndarray]] = {}
    with np.load(inputs, allow_pickle=False) as stored:
        for key in stored.files:
            number, _, name = key.partition("/")
            texts.setdefault(number, {})[name] = stored[key]
    names = [output.name for output in session.get_outputs()]
    wanted = "logits" if "logits" in names else names[0]
    logits = {number: session.run([wanted], feed)[0] for number, feed in texts.items()}
    arrays: dict[str, Any] = {number: np.asarray(value) for number, value in logits.items()}
    np.savez(outputs, **arrays)


if __name__ == "__main__":
    model_file, inputs_file, outputs_file, memory = sys.argv[1:]
    _limit_memory(int(memory))
    try:
        _run(model_file, inputs_file, outputs_file)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent makes a sentence of it
        sys.stderr.write(" ".join(str(error).split())[:500] or type(error).__name__)
        sys.exit(1)
