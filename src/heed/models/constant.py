"""A pass in which factors are constants, so that its gradient adds up to the output.

Where a network multiplies two things that both depend on the words, one of them is held constant:
weights of attention, the denominators of norms, gates. An activation is its input times a factor,
act(x) = x · (act(x)/x), and the factor is held. What is left is a sum of products with constants.
Its gradient times the embeddings, plus what biases add, is the output.

A torch function mode sees to that, by function and not by family. Values stay what they are, bit
for bit: only gradients differ. Nothing has to be restored, and modes belong to their thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from heed.models.devices import as_numbers

Rule = Literal["held", "half"]
Kind = Literal["activated", "gate"]  # what an activation put out; a factor that makes one


class Constants(TorchFunctionMode):
    """Holds factors constant while a pass runs, and notes what is added on the way.

    rule     of the product of an activation with something else: "held" holds the activation,
             "half" gives half of the gradient to each factor
    added    biases, and all else that is added and does not depend on the embeddings
    """

    def __init__(self, rule: Rule = "held"):
        super().__init__()
        self.rule = rule
        self.added: list[Tensor] = []
        # by id; a tensor that is kept is not freed, so that no other gets its id
        self._kinds: dict[int, tuple[Tensor, Kind]] = {}

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        named = named or {}
        handle = _HANDLES.get(function)
        if handle is None or not torch.is_grad_enabled():
            return function(*arguments, **named)
        return handle(self, function, *arguments, **named)

    # What is added

    def noted(self, value: Any, like: Tensor) -> Any:
        """A constant that is added, as a leaf of the graph, so that its gradient says what it adds.

        What depends on the embeddings, and what is no number, stays as it is.
        """
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = torch.tensor(float(value), dtype=like.dtype, device=like.device)
        if not isinstance(value, Tensor) or value.requires_grad or not value.is_floating_point():
            return value
        leaf = value.detach().requires_grad_()
        self.added.append(leaf)
        return leaf

    def add(self, function: Any, *parts: Any, **named: Any) -> Any:
        """A sum, or one or the other by place."""
        moving = [part for part in parts if depends(part)]
        if not moving:
            return function(*parts, **named)
        # what is written into stays the tensor that it is
        kept = 1 if function in _IN_PLACE else 0
        noted = [self.noted(part, moving[0]) for part in parts[kept:]]
        output = function(*parts[:kept], *noted, **named)
        return self._carry(output, moving[0]) if len(moving) == 1 else output

    def join(self, function: Any, tensors: Sequence[Tensor], *more: Any, **named: Any) -> Any:
        if any(map(depends, tensors)):
            tensors = [self.noted(tensor, tensor) for tensor in tensors]
        return function(tensors, *more, **named)

    def project(
        self,
        function: Any,
        input: Tensor,
        weight: Tensor,
        bias: Any = None,
        *more: Any,
        **named: Any,
    ) -> Any:
        """A linear map or a convolution."""
        if depends(input) and bias is not None:
            bias = self.noted(bias, input)
        return function(input, weight, bias, *more, **named)

    def project_onto(self, function: Any, input: Any, *factors: Any, **named: Any) -> Any:
        """A linear map that is written with its bias first."""
        moving = [factor for factor in (*factors, *named.values()) if depends(factor)]
        if moving:
            input = self.noted(input, moving[0])
        return function(input, *factors, **named)

    # What is held

    def hold(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """A statistic, or a gate that is not 0 at 0."""
        return function(*arguments, **named).detach()

    def logarithm(self, function: Any, input: Tensor, *more: Any, **named: Any) -> Tensor:
        """log Σ exp z: a mean of all z with constant weights p, plus their entropy.

        The gradient of the sum is p, so it need not be changed. The entropy is noted as added.
        """
        output = function(input, *more, **named)
        if not depends(input):
            return output
        z = input.detach()
        # the derivative in the direction of z itself is p · z, along whichever axis
        linear = torch.func.jvp(lambda x: function(x, *more, **named), (z,), (z,))[1]
        entropy = self.noted(output.detach() - linear, output)
        return output + (entropy - entropy.detach())

    def attend(
        self, function: Any, query: Tensor, key: Tensor, value: Tensor, *more: Any, **named: Any
    ) -> Tensor:
        """Fused attention: without a gradient of queries and keys, weights are constants."""
        return function(query.detach(), key.detach(), value, *more, **named)

    def norm(
        self,
        function: Any,
        input: Tensor,
        normalized_shape: Sequence[int],
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """A layer norm with a constant denominator; the mean is linear, and moves."""
        output = function(input, normalized_shape, weight, bias, eps)
        axes = tuple(range(-len(normalized_shape), 0))
        centred = input - input.mean(axes, keepdim=True)
        linear = self._scaled(centred, axes, weight, eps)
        if bias is not None and depends(input):
            linear = linear + self.noted(bias, input)
        return _with_slope(output, linear)

    def norm_by_square(
        self,
        function: Any,
        input: Tensor,
        normalized_shape: Sequence[int],
        weight: Any = None,
        eps: float | None = None,
    ) -> Tensor:
        """A norm by the root of the mean square."""
        output = function(input, normalized_shape, weight, eps)
        axes = tuple(range(-len(normalized_shape), 0))
        small = torch.finfo(input.dtype).eps if eps is None else eps
        return _with_slope(output, self._scaled(input, axes, weight, small))

    def _scaled(self, given: Tensor, axes: tuple[int, ...], weight: Any, eps: float) -> Tensor:
        """Divided by the root of the mean square, which is a constant."""
        denominator = (given.detach().square().mean(axes, keepdim=True) + eps).sqrt()
        scaled = given / denominator
        return scaled if weight is None else scaled * weight

    def activate(self, function: Any, input: Tensor, *more: Any, **named: Any) -> Any:
        """A function that is 0 at 0, as its input times a constant factor."""
        if not depends(input):
            return function(input, *more, **named)
        # on a copy, because some of them write into what they are given
        output = function(input.detach().clone(), *more, **named)
        kind: Kind = "gate" if function in _GATES else "activated"
        return self._marked(_with_factor(output, input), kind)

    def square(self, function: Any, input: Any) -> Any:
        return _with_factor(function(input), input)

    def power(self, function: Any, input: Any, exponent: Any) -> Any:
        output = function(input, exponent)
        if not depends(input) or not isinstance(exponent, int | float):
            return output
        # roots, and what is below the line, are statistics
        return _with_factor(output, input) if exponent >= 1 else output.detach()

    def divide(self, function: Any, input: Any, other: Any, **named: Any) -> Any:
        held = other.detach() if isinstance(other, Tensor) else other
        return self._carry(function(input, held, **named), input)

    def multiply(self, function: Any, input: Any, other: Any, **named: Any) -> Any:
        if not (depends(input) and depends(other)):
            output = function(input, other, **named)
            return self._carry(output, input if depends(input) else other)
        output = function(input.detach(), other.detach(), **named)
        # an activation that is written out, such as x · (1 + tanh …): its gate is always held
        if self._which(input, other, "gate"):
            return self._marked(self._held(output, input, other, "gate"), "activated")
        if self.rule == "held" and self._which(input, other, "activated"):
            return self._held(output, input, other, "activated")
        return _with_slope(output, (input.detach() * other + input * other.detach()) / 2)

    def _which(self, left: Tensor, right: Tensor, kind: Kind) -> bool:
        """Whether one of two factors is of a kind, and the other is not."""
        return (self._kind(left) == kind) != (self._kind(right) == kind)

    def _held(self, output: Tensor, left: Tensor, right: Tensor, kind: Kind) -> Tensor:
        """A product with the factor of that kind as a constant."""
        if self._kind(left) == kind:
            return _with_slope(output, left.detach() * right)
        return _with_slope(output, left * right.detach())

    # What becomes of activations until they are multiplied

    def carry(self, function: Any, given: Any, *more: Any, **named: Any) -> Any:
        return self._carry(function(given, *more, **named), given)

    def _kind(self, tensor: Any) -> Kind | None:
        _, kind = self._kinds.get(id(tensor), (None, None))
        return kind

    def _marked(self, output: Tensor, kind: Kind) -> Tensor:
        self._kinds[id(output)] = output, kind
        return output

    def _carry(self, output: Any, given: Any) -> Any:
        kind = self._kind(given)
        return output if kind is None else self._marked(output, kind)


def depends(value: Any) -> bool:
    """Whether it depends on the embeddings."""
    return isinstance(value, Tensor) and value.requires_grad


def adds(added: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> float:
    """What constants add to the output that these are the gradients of."""
    total = 0.0
    for constant, gradient in zip(added, gradients, strict=True):
        if gradient is not None:
            # a mask adds infinity where nothing comes through, and 0 times that is no number
            parts = torch.where(gradient == 0, 0.0, constant.detach() * gradient)
            total += float(as_numbers(parts).sum())
    return total


def _with_slope(value: Tensor, linear: Float[Tensor, "*any"]) -> Tensor:
    """A value, bit for bit, with the gradient of something that equals it but for rounding."""
    return value.detach() + (linear - linear.detach()).to(value.dtype)


def _with_factor(value: Tensor, given: Tensor) -> Tensor:
    """A value with the gradient of what it was made of, times a constant factor."""
    value, x = value.detach(), given.detach()
    # where the input is 0, so is the value: nothing comes from there
    factor = torch.where(x == 0, 0.0, value / torch.where(x == 0, 1.0, x))
    return _with_slope(value, given * factor)


def _named(*names: str) -> set[Any]:
    """The functions that go by these names, in all places where torch has them."""
    places = (torch, Tensor, functional, torch.special, torch.linalg)
    return {getattr(place, name) for place in places for name in names if hasattr(place, name)}


_IN_PLACE = _named("add_", "__iadd__", "sub_", "__isub__")
_GATES = _named("tanh", "erf", "tanh_")
_TABLE: dict[Callable[..., Any], set[Any]] = {
    Constants.add: _named(
        *("add", "add_", "__add__", "__radd__", "__iadd__"),
        *("sub", "sub_", "__sub__", "__rsub__", "__isub__", "rsub", "subtract", "where"),
    ),
    Constants.join: _named("cat", "concat", "stack", "hstack", "vstack"),
    Constants.project: _named("linear", "conv1d", "conv2d"),
    Constants.project_onto: _named("addmm", "baddbmm"),
    Constants.attend: {functional.scaled_dot_product_attention},
    Constants.norm: _named("layer_norm"),
    Constants.norm_by_square: _named("rms_norm"),
    Constants.hold: _named(
        *("softmax", "sigmoid", "sigmoid_", "sqrt", "rsqrt", "std", "var", "norm", "vector_norm"),
        *("reciprocal", "__rtruediv__", "__rdiv__", "hardsigmoid"),
    ),
    Constants.logarithm: _named("logsumexp", "log_softmax"),
    Constants.activate: _GATES
    | _named(
        *("gelu", "relu", "relu_", "silu", "relu6", "leaky_relu", "elu", "selu", "celu", "mish"),
        *("hardswish", "hardtanh", "softsign", "tanhshrink", "normalize"),
    ),
    Constants.power: _named("pow", "__pow__"),
    Constants.square: _named("square"),
    Constants.divide: _named("div", "divide", "true_divide", "__truediv__", "__div__"),
    Constants.multiply: _named("mul", "multiply", "__mul__", "__rmul__"),
    Constants.carry: _named(
        *("to", "type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "dropout"),
    ),
}
_HANDLES = {function: handle for handle, functions in _TABLE.items() for function in functions}
