"""Attention of families that have code of their own for it, seen at its softmax.

Such code differs from family to family, and yet it all ends in a softmax over keys and a product of
the weights with the values. While a pass is recorded, a torch function mode watches the modules in
which that happens. It hands the weights to the recorder, lets the module go on with what the
recorder says, and notes the values when they are multiplied. Fused attention is written out first.
Nothing else is touched: without a recorder no mode is active, and modes belong to their thread.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from heed.models.hook import Layer, Recorder, attention_recorder

_SOFTMAX = {torch.softmax, functional.softmax, Tensor.softmax}
_PRODUCTS = {torch.matmul, torch.bmm, torch.einsum, Tensor.matmul, Tensor.bmm, Tensor.__matmul__}
# what may lie between the softmax and the product, and leaves the weights what they are
_CARRIED = {Tensor.to, Tensor.type, Tensor.type_as, Tensor.float, Tensor.half, Tensor.bfloat16}
_CARRIED |= {Tensor.contiguous, torch.dropout, functional.dropout}


class Product(NamedTuple):
    """Where the axes of a product of weights and values are, in letters of `einsum`.

    b, h, q, k and d stand for batch, head, query, key and what is left of the values.
    """

    values: str
    output: str

    @classmethod
    def of(cls, equation: str) -> Product:
        """Of an `einsum` with the weights first."""
        inputs, output = equation.replace(" ", "").split("->")
        weights, values = inputs.split(",")
        names = dict(zip(weights, "bhqk", strict=True))
        return cls(
            "".join(names.get(letter, "d") for letter in values),
            "".join(names.get(letter, "d") for letter in output),
        )


_PLAIN = Product("bhkd", "bhqd")


class Watch(TorchFunctionMode):
    """Follows weights from a softmax over the last axis to the product with the values."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: Tensor | None = None  # what came out of the last softmax

    def softmaxed(self, weights: Tensor, scores: Tensor) -> Tensor:
        """What the module is given as the softmax of the scores."""
        return weights

    def multiplied(self, product: Product, values: Tensor, output: Tensor) -> Tensor:
        """What the module is given as the product of the last weights and these values."""
        return output

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        named = named or {}
        if function is functional.scaled_dot_product_attention:
            return self._written_out(*arguments, **named)
        output = function(*arguments, **named)
        if function in _SOFTMAX:
            axis = named["dim"] if "dim" in named else arguments[1]
            if output.ndim not in (3, 4) or axis % output.ndim != output.ndim - 1:
                return output
            self.weights = self.softmaxed(output, arguments[0])
            return self.weights
        if self.weights is None:
            return output
        if function in _CARRIED and self._are_weights(arguments[0]):
            self.weights = output
        if function in _PRODUCTS:
            equation, left, right = _operands(arguments)
            if self._are_weights(left):
                product = Product.of(equation) if equation else _PLAIN
                output = self.multiplied(product, right, output)
                self.weights = None
        return output

    def _are_weights(self, tensor: Any) -> bool:
        assert self.weights is not None
        if not isinstance(tensor, Tensor) or tensor.numel() != self.weights.numel():
            return False
        # views have other shapes, and the same memory
        return tensor.data_ptr() == self.weights.data_ptr()

    def _written_out(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Fused attention as a softmax and a product; heed runs models without dropout."""
        if enable_gqa:
            key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
            value = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
        scores = query @ key.transpose(-1, -2) * (scale or 1 / math.sqrt(query.shape[-1]))
        if is_causal:
            attn_mask = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        # a row that may look at nothing has no weights; the fused code gives it zeros as well
        self.weights = self.softmaxed(scores.softmax(-1).nan_to_num(0), scores)
        output = self.multiplied(_PLAIN, value, self.weights @ value)
        self.weights = None
        return output


def _operands(arguments: Any) -> tuple[str, Any, Any]:
    """The equation of a product, if it has one, and what is multiplied."""
    if not isinstance(arguments[0], str):
        return "", arguments[0], arguments[1]
    operands = arguments[1] if isinstance(arguments[1], list | tuple) else arguments[1:]
    return (arguments[0], *operands) if len(operands) == 2 else ("", None, None)


class Attention(NamedTuple):
    """An attention of a pass.

    module   where the softmax and the product are
    shape    that of the weights
    causal   whether no row looks at what follows it
    run      which of the module's runs it was
    """

    module: nn.Module
    shape: torch.Size
    causal: bool
    run: int = 0

    @classmethod
    def of(cls, module: nn.Module, weights: Tensor, run: int = 0) -> Attention:
        return cls(module, weights.shape, not weights.triu(1).any(), run)


class _Finder(Watch):
    """Notes every attention, and the innermost module that runs all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[tuple[nn.Module, int]] = []
        self.around: list[tuple[nn.Module, int]] = []  # what ran when the softmax was taken
        self.runs: Counter[nn.Module] = Counter()
        self.attentions: list[Attention] = []

    def enter(self, module: nn.Module, inputs: Any) -> None:
        self.runs[module] += 1
        self.running.append((module, self.runs[module]))

    def leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.running.pop()

    def softmaxed(self, weights: Tensor, scores: Tensor) -> Tensor:
        self.around = list(self.running)
        return weights

    def multiplied(self, product: Product, values: Tensor, output: Tensor) -> Tensor:
        assert self.weights is not None
        module, run = [a for a, b in zip(self.around, self.running, strict=False) if a == b][-1]
        self.attentions.append(Attention.of(module, self.weights, run))
        return output


def find(model: nn.Module, run: Callable[[], Any]) -> list[Attention]:
    """Every softmax of a pass that is multiplied with something, in order."""
    finder = _Finder()
    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(finder.enter))
        handles.append(module.register_forward_hook(finder.leave, always_call=True))
    try:
        with finder:
            run()
    finally:
        for handle in handles:
            handle.remove()
    return finder.attentions


class _Recording(Watch):
    """Hands the weights of a module to a recorder."""

    def __init__(self, recorder: Recorder, module: nn.Module, heads: int) -> None:
        super().__init__()
        self.recorder, self.module, self.heads = recorder, module, heads
        self.used: Tensor | None = None

    def softmaxed(self, weights: Tensor, scores: Tensor) -> Tensor:
        recorder = self.recorder
        by_head = weights if weights.ndim == 4 else weights.unflatten(0, (-1, self.heads))
        self.used = None
        if recorder.seen is not None:
            return weights
        if recorder.uniform:
            return _even(scores).to(weights.dtype)
        if recorder.skip(self.module, by_head):
            return weights
        self.used = recorder.used(by_head)
        return self.used.reshape(weights.shape)

    def multiplied(self, product: Product, values: Tensor, output: Tensor) -> Tensor:
        recorder = self.recorder
        if recorder.seen is not None:
            row = recorder.elsewhere(recorder.seen)
            return torch.einsum(f"bqhd->{product.output}", row).reshape(output.shape)
        if self.used is None:
            return output
        nothing = self.used.new_empty(*self.used.shape[:2], 0, 0)
        values = torch.einsum(f"{product.values}->bhkd", self._by_head(values))
        outputs = torch.einsum(f"{product.output}->bqhd", self._by_head(output)).contiguous()
        values = values.expand(-1, self.heads, -1, -1)  # heads may share theirs
        recorder.passed.append(Layer(self.module, nothing, nothing, values, self.used, outputs))
        return output

    def _by_head(self, tensor: Tensor) -> Tensor:
        return tensor if tensor.ndim == 4 else tensor.unflatten(0, (-1, self.heads))


def _even(scores: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch key"]:
    """The same weight for all keys that a row may look at."""
    # families mask with a number far below any score: the lowest there is, -1e30, or infinity
    lowest = -min(1e20, torch.finfo(scores.dtype).max / 2)
    weights = (scores > lowest).to(scores.dtype)
    return weights / weights.sum(-1, keepdim=True).clamp(min=1)


def install(attentions: list[Attention], batch: int) -> None:
    """Let recorders see and replace these, which were found in a pass over so many texts."""
    for module in dict.fromkeys(attention.module for attention in attentions):
        shape = next(a.shape for a in attentions if a.module is module)
        heads = shape[1] if len(shape) == 4 else shape[0] // batch
        forward = module.forward
        # a view of a view has it already
        if not (isinstance(forward, partial) and forward.func is _watched):
            module.forward = partial(_watched, forward, module, heads)


def _watched(
    forward: Callable[..., Any], module: nn.Module, heads: int, *arguments: Any, **named: Any
) -> Any:
    recorder = attention_recorder()
    if recorder is None:
        return forward(*arguments, **named)
    with _Recording(recorder, module, heads):
        return forward(*arguments, **named)
