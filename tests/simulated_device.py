"""A device that does not exist, for tests: `sim:0`.

Its tensors compute on the CPU, and behave like those of an accelerator where that matters: they say
that they are elsewhere, refuse to be mixed with tensors of the CPU (but for single numbers, and the
indices of a look-up), have no numpy, and know no double precision, like Apple's.

Importing this module registers the device with torch, for the rest of the process and before the
first backward pass: import it in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("sim")
DEVICE = torch.device("sim:0")

# the operations that take things from one device to another
_TRANSFERS = {"aten::to", "aten::_to_copy", "aten::copy_", "aten::_local_scalar_dense"}
# those whose indices may be on the CPU
_INDEXED = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}


class Simulated(torch.Tensor):
    """A tensor of the device; `raw` is the tensor of the CPU that it stands for."""

    raw: torch.Tensor

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> Simulated:
        if raw.dtype == torch.float64:
            raise TypeError("sim:0 has no float64")
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.shape,
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=DEVICE,
            requires_grad=raw.requires_grad,
        )
        tensor.raw = raw.detach()
        return tensor

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        return _run(function, arguments, named or {})

    def numpy(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError("can't convert a tensor of sim:0 to numpy: use Tensor.cpu() first")

    __array__ = numpy

    def tolist(self) -> Any:
        return self.raw.tolist()

    def data_ptr(self) -> int:
        return self.raw.data_ptr()

    def __repr__(self) -> str:
        return f"Simulated({self.raw})"


class _Mode(TorchDispatchMode):
    """So that functions that make tensors can be asked for some of the device."""

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        return _run(function, arguments, named or {})


class _Factories(TorchFunctionMode):
    """The functions that copy numbers of Python straight to a device, which no operation shows."""

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        named = dict(named or {})
        device = named.get("device")
        if function in (torch.tensor, torch.as_tensor) and device is not None:
            return function(*arguments, **(named | {"device": "cpu"})).to(device)
        return function(*arguments, **named)


@contextmanager
def simulated() -> Iterator[torch.device]:
    """The device, for as long as it exists."""
    with _Mode(), _Factories():
        yield DEVICE


def _run(function: Any, arguments: Any, named: dict[str, Any]) -> Any:
    leaves = pytree.tree_leaves((arguments, named))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    asked = [x.type for x in leaves if isinstance(x, torch.device)]
    on_device = any(isinstance(x, Simulated) for x in tensors)
    if not on_device and DEVICE.type not in asked:
        return function(*arguments, **named)
    name = function._schema.name
    if name not in _TRANSFERS:
        _refuse_mixture(name, arguments, tensors)
    if asked:
        on_device = DEVICE.type in asked
    # tensors made in inference mode cannot stand for others
    with torch.inference_mode(False), torch.no_grad():
        output = function(*pytree.tree_map(_raw, arguments), **pytree.tree_map(_raw, named))
        if function._schema.is_mutable:  # the tensor that was written to, not another around it
            return named["out"] if "out" in named else arguments[0]
        return pytree.tree_map(_wrapped, output) if on_device else output


def _refuse_mixture(name: str, arguments: Any, tensors: list[torch.Tensor]) -> None:
    """As CUDA does: numbers of the CPU may meet tensors of a device, and nothing else."""
    if name in _INDEXED and isinstance(arguments[0], Simulated):
        tensors = [x for x in arguments if isinstance(x, torch.Tensor)]
    elsewhere = [x for x in tensors if not isinstance(x, Simulated) and x.dim() > 0]
    if elsewhere and any(isinstance(x, Simulated) for x in tensors):
        raise RuntimeError(f"Expected all tensors to be on one device, got sim:0 and cpu: {name}")


def _raw(value: Any) -> Any:
    if isinstance(value, Simulated):
        return value.raw
    is_device = isinstance(value, torch.device) and value.type == DEVICE.type
    return torch.device("cpu") if is_device else value


def _wrapped(value: Any) -> Any:
    plain = isinstance(value, torch.Tensor) and not isinstance(value, Simulated)
    return Simulated(value) if plain else value
