"""The weights of an ONNX file, by the names that they have in torch.

Torch's exporter keeps the names of biases, norms and embeddings. The matrices of linear layers it
transposes and calls `onnx::MatMul_123`. But each `MatMul` leads to the `Add` whose other side is
the named bias, so the matrix is the weight of the same layer. A layer without bias is named by its
node (`/model/layers.0/self_attn/q_proj/MatMul`).

Dynamic quantisation writes a matrix as 8-bit numbers, a scale and a zero point, and rounds the
activations while the graph runs (`DynamicQuantizeLinear`, `MatMulInteger`). `Graph.in_float` is the
same graph without that rounding.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heed.errors import CheckpointError, quoted

LARGEST = 2**31  # bytes: what a file in this format can hold by itself
_FLOATS = (np.float16, np.float32, np.float64)
# what tools append to the name of a weight when they store it in another form
_SUFFIX = re.compile(r"_(quantized|dequantized|DequantizeLinear_Output|cast\w*|fp16)$")
_PARAMETER = re.compile(r"[A-Za-z_][\w.]*\.(weight|bias|gamma|beta)")
_DEEPEST = 6  # modules that the exported model may be inside of
_LONGEST_CHAIN = 8  # constants between a weight and where it is used
_ENDLESS = {"Loop", "Scan"}  # no encoder needs them, and they may never end


@dataclass(frozen=True)
class Linear:
    """A product with a constant matrix, as it is in the graph."""

    matrix: np.ndarray  # in x out
    layers: tuple[str, ...]  # what the layer may be called, the surest first
    step: float = 0.0  # how far 8-bit rounding may have moved an entry

    @property
    def name(self) -> str:
        return self.layers[0] if self.layers else "without a name"


class Graph:
    """Constants and linear layers of an ONNX file."""

    def __init__(self, path: Path):
        self.proto = _read(path)
        self.nodes = list(self.proto.graph.node)
        self._made = 0  # bytes of constants that were made of others
        self._source: dict[str, str] = {}  # of constants that were made of other constants
        self._producer: dict[str, Any] = {}
        self._consumers: dict[str, list[Any]] = {}
        self.constants: dict[str, np.ndarray] = self._initializers(path.parent)
        self._most = 8 * sum(value.nbytes for value in self.constants.values()) + 2**26
        for node in self.nodes:
            self._add(node)
        self.tables = dict(self._gathered_tables())
        self.linears = list(self._find_linears())

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Names of what the graph is fed, and its fixed sizes; 0 where any size will do."""
        sizes = {}
        for value in self.proto.graph.input:
            if value.name not in self.constants:
                dims = value.type.tensor_type.shape.dim
                sizes[value.name] = tuple(int(dim.dim_value) for dim in dims)
        return sizes

    @property
    def fixed_length(self) -> int | None:
        """The number of tokens that the graph was exported for, if it takes no other."""
        sizes = self.inputs.get("input_ids", ())
        return sizes[1] if len(sizes) > 1 and sizes[1] else None

    @property
    def input_types(self) -> dict[str, Any]:
        """The kind of number of each input."""
        from onnx import helper

        values = {value.name: value.type.tensor_type for value in self.proto.graph.input}
        return {
            name: helper.tensor_dtype_to_np_dtype(values[name].elem_type) for name in self.inputs
        }

    @property
    def rounds_activations(self) -> bool:
        kinds = {node.op_type for node in self.nodes}
        return bool(kinds & {"DynamicQuantizeLinear", "QuantizeLinear", "DynamicQuantizeMatMul"})

    @property
    def in_half_precision(self) -> bool:
        return any(value.dtype == np.float16 for value in self.constants.values())

    # Constants

    def _initializers(self, folder: Path) -> dict[str, np.ndarray]:
        from onnx import numpy_helper

        constants = {}
        files: dict[Path, int] = {}
        read = 0
        for tensor in self.proto.graph.initializer:
            if file := _external_file(tensor, folder):
                files[file] = file.stat().st_size
                read += _external_length(tensor, files[file])
                # a small file that every tensor reads whole would fill the memory
                if read > 2 * sum(files.values()):
                    raise CheckpointError("The graph reads the weights beside it many times over.")
            constants[tensor.name] = numpy_helper.to_array(tensor, base_dir=str(folder))
        return constants

    def _add(self, node: Any) -> None:
        """Note what a node makes and reads; what it makes of constants is a constant, too."""
        for name in node.output:
            if name and (name in self._producer or name in self.constants):
                raise CheckpointError(f"The graph makes '{quoted(name)}' twice.")
            self._producer[name] = node
        for name in node.input:
            self._consumers.setdefault(name, []).append(node)
        made = self._folded(node)
        if made is None:
            return
        # what only looks at other constants takes no memory
        self._made += 0 if node.op_type in ("Identity", "Transpose") else made.nbytes
        if self._made > self._most:
            raise CheckpointError("The graph unfolds its constants to many times its size.")
        self.constants[node.output[0]] = made
        if node.input:
            self._source[node.output[0]] = node.input[0]

    def _folded(self, node: Any) -> np.ndarray | None:
        from onnx import helper, numpy_helper

        attributes = {a.name: a for a in node.attribute}
        if node.op_type == "Constant" and "value" in attributes:
            return numpy_helper.to_array(attributes["value"].t)
        values = [self.constants.get(name) for name in node.input]
        if not values or any(value is None for value in values):
            return None
        first: Any
        first, *others = values
        if node.op_type == "Identity":
            return first
        if node.op_type == "Transpose":
            order = list(attributes["perm"].ints) if "perm" in attributes else None
            return first.transpose(order)
        if node.op_type == "Cast" and first.dtype in _FLOATS:
            return first.astype(helper.tensor_dtype_to_np_dtype(attributes["to"].i))
        if node.op_type == "DequantizeLinear":
            axis = attributes["axis"].i if "axis" in attributes else 1
            scale, zero = (*others, None)[:2]
            return _dequantised(first, scale, zero, axis)
        return None

    def _gathered_tables(self) -> Iterator[tuple[str, np.ndarray]]:
        """Embeddings of 8 bits: rows are looked up first and made floats afterwards."""
        for node in self.nodes:
            lookup = self._producer.get(node.input[0]) if node.input else None
            if node.op_type != "DequantizeLinear" or lookup is None or lookup.op_type != "Gather":
                continue
            table = self.constants.get(lookup.input[0])
            scale, zero = (self.constants.get(name) for name in (*node.input[1:], "", "")[:2])
            if table is not None and scale is not None and scale.size == 1:
                yield lookup.input[0], _dequantised(table, scale, zero)

    # Linear layers

    def _find_linears(self) -> Iterator[Linear]:
        for node in self.nodes:
            if len(node.input) < 2:
                continue
            matrix = self.constants.get(node.input[1])
            if matrix is None or matrix.ndim != 2:
                continue
            if node.op_type == "MatMul":
                yield Linear(matrix, self._layers(node, node.output[0], node.input[1]))
            elif node.op_type == "Gemm":
                yield self._gemm(node, matrix)
            elif node.op_type == "MatMulInteger":
                yield self._integer(node, matrix)

    def _gemm(self, node: Any, matrix: np.ndarray) -> Linear:
        attributes = {a.name: a for a in node.attribute}
        for name in ("alpha", "beta"):
            if name in attributes and attributes[name].f != 1:
                raise CheckpointError("The graph scales a linear layer, which torch's do not.")
        flipped = "transB" in attributes and attributes["transB"].i == 1
        named = [] if len(node.input) < 3 else self._layer_of_bias(node.input[2])
        layers = (*named, *self._layer_of_weight(node.input[1]), *_scopes(node))
        return Linear(matrix.T if flipped else matrix, layers)

    def _integer(self, node: Any, matrix: np.ndarray) -> Linear:
        scaled = self._scaled(node)
        if scaled is None:
            raise CheckpointError("The graph has an 8-bit product whose scale cannot be found.")
        product, scale = scaled
        zero = self.constants.get(node.input[3]) if len(node.input) > 3 else None
        layers = self._layers(product, product.output[0], node.input[1])
        return Linear(_dequantised(matrix, scale, zero), layers, float(np.abs(scale).max()))

    def _scaled(self, node: Any) -> tuple[Any, np.ndarray] | None:
        """The node that multiplies an 8-bit product by its scales, and the scale of the matrix."""
        for product in self._multiplied(node):
            for name in product.input:
                scales = self._producer.get(name)
                if scales is None or scales.op_type != "Mul":
                    continue
                for part in scales.input:
                    if part in self.constants:
                        return product, self.constants[part]
        return None

    def _multiplied(self, node: Any) -> Iterator[Any]:
        """The products that a whole-number result goes into, behind its cast."""
        for cast in self._consumers.get(node.output[0], []):
            if cast.op_type == "Cast":
                yield from (
                    consumer
                    for consumer in self._consumers.get(cast.output[0], [])
                    if consumer.op_type == "Mul"
                )

    def _layers(self, node: Any, output: str, matrix: str) -> tuple[str, ...]:
        named: list[str] = []
        for consumer in self._consumers.get(output, []):
            if consumer.op_type == "Add":
                for name in consumer.input:
                    named += self._layer_of_bias(name)
        return (*named, *self._layer_of_weight(matrix), *_scopes(node))

    def _layer_of_bias(self, name: str) -> list[str]:
        return [n.removesuffix(".bias") for n in self.names_of(name) if n.endswith(".bias")]

    def _layer_of_weight(self, name: str) -> list[str]:
        return [n.removesuffix(".weight") for n in self.names_of(name) if n.endswith(".weight")]

    def names_of(self, name: str) -> list[str]:
        """What a constant may be called: its name, and those of the constants that it is made of.

        Of all names only those that look like a parameter's.
        """
        names = []
        for _ in range(_LONGEST_CHAIN):
            if name not in self.constants:
                break
            names += [n for n in (name, _SUFFIX.sub("", name)) if _PARAMETER.fullmatch(n)]
            name = self._source.get(name, "")
        return list(dict.fromkeys(names))

    # The same graph without rounded activations

    def in_float(self, weights: Mapping[str, np.ndarray]) -> Any | None:
        """The graph with float products, or None if it rounds in a way that is not known here.

        `weights` holds the matrix (in x out) of each layer by its name in the graph.
        """
        import onnx
        from onnx import helper, numpy_helper

        changed = {}
        matrices = []
        for number, node in enumerate(self.nodes):
            if node.op_type in ("QuantizeLinear", "DynamicQuantizeMatMul"):
                return None
            if node.op_type != "MatMulInteger":
                continue
            left = self._float_of(node.input[0])
            product = next(iter(self._multiplied(node)), None)
            if left is None or product is None:
                return None
            right = self._float_of(node.input[1])
            if right is None:
                layers = self._layers(product, product.output[0], node.input[1])
                matrix = next((weights[name] for name in layers if name in weights), None)
                if matrix is None:
                    return None
                right = f"heed_{number}"
                matrices.append(numpy_helper.from_array(np.ascontiguousarray(matrix), right))
            changed[product.output[0]] = helper.make_node("MatMul", [left, right], product.output)
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        del proto.graph.node[:]
        proto.graph.node.extend(changed.get(_first(n.output), n) for n in self.nodes)
        proto.graph.initializer.extend(matrices)
        return proto

    def _float_of(self, name: str) -> str | None:
        node = self._producer.get(name)
        if node is None or node.op_type != "DynamicQuantizeLinear" or name != node.output[0]:
            return None
        return str(node.input[0])


def weights(
    graph: Graph, shapes: Mapping[str, tuple[int, ...]], turned: Collection[str]
) -> dict[str, np.ndarray]:
    """The graph's weights by the names of torch, as single-precision arrays.

    shapes   what the architecture expects, by name
    turned   those of them that are stored as in x out; linear layers of torch are out x in
    """
    prefix = _prefix(graph, shapes)
    result: dict[str, np.ndarray] = {}
    steps: dict[str, float] = {}
    unexpected = []
    for linear in sorted(graph.linears, key=lambda linear: linear.step):
        names = [f"{layer.removeprefix(prefix)}.weight" for layer in linear.layers]
        name = next((name for name in names if name in shapes), None)
        if name is None:
            unexpected.append(linear.name)
            continue
        matrix = linear.matrix if name in turned else linear.matrix.T
        matrix = matrix.astype(np.float32)
        _check_shape(name, matrix, shapes)
        if name in result:
            _check_same(name, result[name], matrix, linear.step + steps[name])
            continue
        # Plain matrices come first: where a file holds a layer twice, once in 8 bits and once as
        # it was trained, the trained one is taken.
        result[name] = matrix
        steps[name] = linear.step
    for constant, value in (graph.constants | graph.tables).items():
        names = [name.removeprefix(prefix) for name in graph.names_of(constant)]
        name = next((name for name in names if name in shapes), None)
        if name is None:
            # the parts of an 8-bit matrix are no weights of their own
            unexpected += names[:1] if value.dtype in _FLOATS else []
        elif name not in result and value.dtype in _FLOATS:
            _check_shape(name, value, shapes)
            result[name] = value.astype(np.float32)
    if unexpected:
        raise CheckpointError(
            "The file holds weights that its config.json has no place for:"
            f" {quoted(', '.join(sorted(set(unexpected))[:3]))}."
        )
    return result


def matrices(
    graph: Graph, named: Mapping[str, np.ndarray], turned: Collection[str]
) -> dict[str, np.ndarray]:
    """The matrix (in x out) of each layer, by its name in the graph: what `in_float` takes."""
    prefix = _prefix(graph, {name: value.shape for name, value in named.items()})
    result = {}
    for linear in graph.linears:
        for layer in linear.layers:
            name = f"{layer.removeprefix(prefix)}.weight"
            if name in named:
                result[layer] = named[name] if name in turned else named[name].T
    return result


def _read(path: Path) -> Any:
    import onnx
    from google.protobuf.message import DecodeError

    if path.stat().st_size > LARGEST:
        raise CheckpointError(f"{quoted(str(path))} is larger than an ONNX file can be.")
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except DecodeError:
        raise CheckpointError(f"{quoted(str(path))} is not an ONNX file.") from None
    kinds = {node.op_type for node in proto.graph.node}
    if endless := sorted(kinds & _ENDLESS):
        raise CheckpointError(f"The graph has a {endless[0]}, which heed does not run.")
    if not proto.graph.node or not proto.graph.output:
        raise CheckpointError(f"{quoted(str(path))} holds no graph.")
    return proto


def _external_file(tensor: Any, folder: Path) -> Path | None:
    """The file beside the graph that holds a tensor; only files of the same folder are read."""
    from onnx import TensorProto

    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = folder / entries.get("location", "")
    inside = location.resolve().is_relative_to(folder.resolve())
    if not inside or not location.is_file():
        raise CheckpointError(
            f"The file says that the weights of {quoted(tensor.name)} are in"
            f" '{quoted(entries.get('location', ''))}', which is no file of its folder."
        )
    return location


def _external_length(tensor: Any, whole: int) -> int:
    lengths = [int(entry.value) for entry in tensor.external_data if entry.key == "length"]
    return lengths[0] if lengths else whole


def _dequantised(
    value: np.ndarray, scale: Any, zero: np.ndarray | None = None, axis: int = 1
) -> np.ndarray:
    """Floats of 8-bit numbers, with one scale for all or one per entry of an axis."""
    whole = value.astype(np.float32)
    if zero is not None:
        whole -= _along(axis, zero, value.ndim)
    return whole * _along(axis, scale, value.ndim)


def _along(axis: int, values: np.ndarray, rank: int) -> np.ndarray:
    """Values of one axis, shaped so that they spread over the others."""
    sizes = [1] * rank
    if values.size > 1:
        sizes[axis] = values.size
    return values.astype(np.float32).reshape(sizes)


def _scopes(node: Any) -> Iterator[str]:
    """The layer that a node is named after; a second use of it has a number behind its name."""
    parts = node.name.strip("/").split("/")[:-1]
    if parts:
        scope = ".".join(parts)
        yield scope
        yield re.sub(r"_\d+$", "", scope)


def _prefix(graph: Graph, expected: Collection[str]) -> str:
    names = [name for constant in graph.constants for name in graph.names_of(constant)[:1]]
    return common_prefix(names, expected)


def common_prefix(names: Iterable[str], expected: Collection[str]) -> str:
    """What stands before all names because the saved model was a part of another module."""
    seen: Counter[str] = Counter()
    for name in names:
        parts = name.split(".")
        for i in range(min(len(parts), _DEEPEST)):
            if ".".join(parts[i:]) in expected:
                seen["".join(f"{part}." for part in parts[:i])] += 1
                break
    return seen.most_common(1)[0][0] if seen else ""


def _check_shape(name: str, value: np.ndarray, shapes: Mapping[str, tuple[int, ...]]) -> None:
    if value.shape != shapes[name]:
        raise CheckpointError(
            f"The file's {quoted(name)} is {_size(value.shape)}, where its config.json asks for"
            f" {_size(shapes[name])}."
        )


def _check_same(name: str, one: np.ndarray, other: np.ndarray, step: float) -> None:
    if not np.allclose(one, other, rtol=0, atol=step + 1e-6):
        raise CheckpointError(f"The file holds two different matrices for {quoted(name)}.")


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def _first(names: Any) -> str:
    return names[0] if len(names) else ""
