"""Where a model runs, in what precision, and how its numbers come back. Loads torch when needed.

A model's passes run on its device and in its precision. What they show is turned into numbers by
`as_numbers` and `on_cpu`: everything that follows is computed on the CPU.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from heed.errors import InputError, OutOfMemory, UnknownName, quoted

if TYPE_CHECKING:  # which loads torch
    import torch
    from torch import Tensor, nn

VARIABLE = "HEED_DEVICE"  # the environment variable that stands for a device that nobody named
DTYPES = ("auto", "float32", "bfloat16", "float16")
CPU_TOKENS = 2048  # on few cores larger batches are slower
_MOST_TOKENS = 16_384  # larger batches make no accelerator faster
_FEWEST_TOKENS = 256
_LONG = 512  # tokens of a text that is counted with


# What people ask for


def check(device: str, dtype: str = "auto") -> None:
    """Refuse names that no machine knows."""
    name = _named(device)
    if re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name) is None:
        source = _source(device)
        raise InputError(
            f"There is no device '{quoted(name)}'{source}: use auto, cpu, cuda, cuda:1 or mps."
        )
    if dtype not in DTYPES:
        raise UnknownName("precision", str(dtype), DTYPES)


def check_batch_tokens(batch_tokens: int | None) -> None:
    """Refuse what is no size of a batch."""
    if batch_tokens is None:
        return
    if isinstance(batch_tokens, bool) or not isinstance(batch_tokens, int):
        raise InputError(f"batch_tokens must be a whole number, got {batch_tokens!r}.")
    if batch_tokens < 1:
        raise InputError(f"batch_tokens must be at least 1, got {batch_tokens}.")


def choose(device: str = "auto") -> torch.device:
    """The device of this name; "auto" is what `HEED_DEVICE` names, else the best there is."""
    import torch

    check(device)
    name = _named(device)
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if cuda else "mps" if mps else "cpu"
    kind, _, index = name.partition(":")
    has_it = {"cpu": True, "mps": mps, "cuda": cuda}[kind]
    if not has_it or (index and int(index) >= torch.cuda.device_count()):
        raise InputError(
            f"PyTorch finds no device {name} here{_source(device)}: use another one, or auto."
        )
    return torch.device(name)


def precision(dtype: str, device: torch.device) -> torch.dtype | str:
    """What to load weights as; "auto" is single precision on the CPU, and else the file's own."""
    import torch

    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    chosen: torch.dtype = getattr(torch, dtype)
    return chosen


def _named(device: str) -> str:
    return (os.environ.get(VARIABLE) or "auto") if device == "auto" else str(device)


def _source(device: str) -> str:
    """Where the name of a device comes from, if nobody gave it."""
    return f" (from {VARIABLE})" if _named(device) != device else ""


# Models


def input_device(model: Any, table: nn.Module | None) -> torch.device:
    """Where a model wants its inputs: where the table is that looks them up."""
    import torch

    weights = (model if table is None else table).parameters()
    device = next((p.device for p in weights), torch.device("cpu"))
    if device.type != "meta":
        return device
    # weights that are not in memory are brought in by hooks of accelerate
    hooks = [*accelerate_hooks(table), *accelerate_hooks(model)]
    places = [getattr(hook, "execution_device", None) for hook in hooks]
    return torch.device(next((place for place in places if place is not None), "cpu"))


def accelerate_hooks(module: Any) -> tuple[Any, ...]:
    """What accelerate runs around the passes of a module, to move its weights and inputs."""
    hook = getattr(module, "_hf_hook", None)
    return () if hook is None else tuple(getattr(hook, "hooks", [hook]))


def dtypes(model: nn.Module) -> list[str]:
    """The precisions of a model's weights other than single, by name."""
    names = {str(p.dtype).removeprefix("torch.") for p in model.parameters()}
    return sorted(names - {"float32"})


def described(model: nn.Module, inputs: torch.device) -> str:
    """Where and in what precision a model runs; "" for single precision on the CPU."""
    devices = {str(p.device) for p in model.parameters() if not p.is_meta} | {str(inputs)}
    others = sorted(devices - {"cpu"})
    precisions = dtypes(model)
    if not (others or precisions):
        return ""
    where = " and ".join(sorted(devices)) if others else "the CPU"
    return f"on {where}, in {' and '.join(precisions or ['float32'])}"


def slack(dtype: torch.dtype) -> float:
    """How far outputs may differ by rounding alone, as a share of the largest."""
    import torch

    return {torch.bfloat16: 5e-2, torch.float16: 1e-2}.get(dtype, 1e-3)


def shared_slack(dtype: torch.dtype) -> float:
    """The same for texts that go on from a shared beginning, which are explained by differences."""
    import torch

    return {torch.bfloat16: 1e-2, torch.float16: 2e-3}.get(dtype, 1e-5)


# Numbers


def on_cpu(tensor: Tensor) -> Tensor:
    """A tensor on the CPU, in single precision at least: half is too coarse to add up in."""
    tensor = tensor.cpu()
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def as_numbers(tensor: Tensor) -> np.ndarray:
    """A tensor as an array in double precision."""
    # moved first, because not every device knows double precision
    return tensor.detach().cpu().double().numpy()


# Memory


def batch_tokens(model: Any, longest: int) -> int:
    """How many tokens a batch may hold at first, from the memory that is free."""
    kinds = {p.device for p in model.parameters() if not p.is_meta}
    free = [_free_memory(device) for device in kinds if device.type != "cpu"]
    known = [bytes_ for bytes_ in free if bytes_ is not None]
    config = model.config
    layers, width = (getattr(config, name, 0) for name in ("num_hidden_layers", "hidden_size"))
    if not known or not layers or not width:
        return CPU_TOKENS
    heads = getattr(config, "num_attention_heads", 1)
    # what a layer keeps of a token for the way back: about 16 states of its width (queries, keys,
    # values, norms, twice four in between), and 4 weights for each head and token of its text
    numbers = layers * (16 * width + 4 * heads * min(longest, _LONG))
    half = min(known) // 2  # the rest is for what libraries need, and for fragments
    return int(np.clip(half // (4 * numbers), _FEWEST_TOKENS, _MOST_TOKENS))


def _free_memory(device: torch.device) -> int | None:
    """Bytes that are free on a device; None if it does not say."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a pass failed because its batch was too large."""
    import torch

    if isinstance(error, OutOfMemory | torch.OutOfMemoryError):
        return True
    # the words of MPS, of older versions for CUDA, and of the CPU
    words = ("out of memory", "can't allocate memory")
    return isinstance(error, RuntimeError) and any(w in str(error).casefold() for w in words)


def release_memory() -> None:
    """Give back what a failed pass has left in the caches of devices."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
