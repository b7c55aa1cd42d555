"""One attention function for every transformer.

`transformers` lets a program register an attention function and a mask function under a name. Ours,
"heed", look at a context variable. Without a recorder they are the model's own default, bit for
bit. With one they are the family's eager attention, so that soft caps, sinks, grouped keys and
scaling stay the model's business, and they write down what passed: weights, values, queries and
keys, layer by layer. Where other weights were asked for, these multiply the values instead. Nothing
has to be restored afterwards, and threads do not see each other's recorders.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.pytorch_utils import Conv1D

from heed.models.arrays import Attention, Embeddings, Rows
from heed.models.classifier import At
from heed.models.devices import slack

NAME = "heed"
_DEFAULT = "heed_default_attention"  # where a config keeps what the model used before
_FIRST = "heed_first_row"  # marks an attention of which only the first row has a say
_BESIDE = "heed_beside"  # marks an attention that is not shown, because it is not over the text


class Layer(NamedTuple):
    """What passed through one attention; empty tensors where it was not to be written down."""

    module: nn.Module
    queries: Float[Tensor, "batch head query dim"]
    keys: Float[Tensor, "batch group key dim"]
    values: Float[Tensor, "batch head key dim"]
    weights: Float[Tensor, "batch head query key"]
    outputs: Float[Tensor, "batch query head dim"]


@dataclass
class Recorder:
    """What to replace in a pass, and what the pass showed.

    attention    weights by layer; NaN leaves the model's own weight where it is; with a single
                 query row they replace that of `row` (all rows where it is -1)
    embeddings   used in place of the model's own
    at           which embeddings are meant: what the ids look up, or what enters the first layer
    brief        stop at these embeddings, by raising `Reached`
    layers       those to write down (all, if None)
    passed       the layers so far
    states       what each layer put out, if all are written down and layers are modules in a list
    below        what the layer before the last put out; if it is `given`, neither that nor those
                 before it are run
    seen         the values of the last layer; if given, only the row that classifies is run, with
                 `attention` of layer 0, which may have a leading axis of variants
    uniform      attend to everything that may be attended to alike, and write nothing down
    learning     leave the embeddings in the graph, for a pass that is learnt from
    asked        the queries that attention was asked with last
    """

    attention: Mapping[int, Attention] = field(default_factory=dict)
    embeddings: Embeddings | None = None
    row: Rows | None = None
    layers: frozenset[int] | None = None
    at: At = "lookup"
    brief: bool = False
    uniform: bool = False
    learning: bool = False
    given: Any = None
    seen: Float[Tensor, "batch head key dim"] | None = None
    looked_up: Embeddings | None = None
    below: Any = None
    states: list[Any] = field(default_factory=list)
    passed: list[Layer] = field(default_factory=list)
    asked: Tensor | None = None

    @property
    def lean(self) -> bool:
        """Whether it looks at the embeddings alone: then attention is the model's own default."""
        return self.layers == frozenset() and not self.attention and not self.uniform

    def skip(self, module: nn.Module, query: Tensor) -> bool:
        """Whether the next layer need neither be written down nor replaced; if so, note that."""
        number = len(self.passed)  # layers are counted by calls
        if self.layers is None or number in self.layers or number in self.attention:
            return False
        nothing = query.new_empty(*query.shape[:2], 0, 0)
        self.passed.append(Layer(module, nothing, nothing, nothing, nothing, nothing))
        return True

    def join(self, values: Tensor, outputs: Tensor) -> None:
        """Note that the last layer has more values, which its weights multiply as well."""
        layer = self.passed[-1]
        self.passed[-1] = layer._replace(
            values=torch.cat([layer.values, values], -1),
            outputs=torch.cat([layer.outputs, outputs], -1),
        )

    def used(
        self, weights: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        """The weights that the next layer goes on with: its own, or those that replace them."""
        wanted = self.attention.get(len(self.passed))
        if wanted is None:
            return weights
        wanted = wanted.to(weights)
        left = wanted.isnan()
        if wanted.shape[2] == 1 and self.row is not None:
            replaced = torch.arange(weights.shape[2]) == self.row[:, None]
            kept = ~(replaced | (self.row < 0)[:, None])[:, None, :, None]
            left = left | kept.to(weights.device)
        return torch.where(left, weights, wanted)

    def elsewhere(
        self, values: Float[Tensor, "batch head key dim"]
    ) -> Float[Tensor, "many query head dim"]:
        """What the classifying row gets from values that are known, one variant after another."""
        rows = self.attention[0].to(values)
        return torch.einsum("...bhqt,bhtd->...bqhd", rows, values).flatten(0, -4).contiguous()


class Reached(Exception):
    """The embeddings are written down, and nothing else was wanted."""


_recorder: ContextVar[Recorder | None] = ContextVar("heed_recorder", default=None)


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


@contextmanager
def unrecorded() -> Iterator[None]:
    """A pass that belongs to no trace, in the middle of one that does."""
    token = _recorder.set(None)
    try:
        yield
    finally:
        _recorder.reset(token)


def runs_one_row() -> bool:
    """Whether only the row that classifies is run, from what is known of the layers below."""
    recorder = _recorder.get()
    return recorder is not None and recorder.given is not None


@dataclass
class Maps:
    """The linear maps of a pass.

    fed      those fed with what attention put out, by layer
    called   all, each with the number of layers before it
    """

    fed: dict[int, list[nn.Module]] = field(default_factory=dict)
    called: list[tuple[int, nn.Module]] = field(default_factory=list)


@contextmanager
def watching(model: PreTrainedModel, recorder: Recorder) -> Iterator[Maps]:
    """The linear maps in the pass that is recorded meanwhile."""
    maps = Maps()

    def look(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        maps.called.append((len(recorder.passed), module))
        if recorder.passed and inputs and isinstance(inputs[0], Tensor):
            given, put_out = inputs[0].flatten(), recorder.passed[-1].outputs.flatten()
            alike = (given.dtype, given.device) == (put_out.dtype, put_out.device)
            # compared by value, because some families copy it on the way
            same = alike and torch.equal(given, put_out)
            if same and _is_linear(module, inputs[0], output):
                maps.fed.setdefault(len(recorder.passed) - 1, []).append(module)

    linear = [m for m in model.modules() if isinstance(m, nn.Linear | Conv1D)]
    handles = [m.register_forward_hook(look) for m in linear]
    try:
        yield maps
    finally:
        for handle in handles:
            handle.remove()


def _is_linear(module: Any, given: Tensor, output: Any) -> bool:
    """Whether a module is its matrix; quantised maps are not, nor are some with an adapter."""
    weight, bias = module.weight, module.bias
    if type(module) in (nn.Linear, Conv1D):
        return True
    if not isinstance(output, Tensor) or weight.shape != (output.shape[-1], given.shape[-1]):
        return False
    if weight.dtype != given.dtype or weight.device != given.device:
        return False
    near = slack(weight.dtype)
    linear = nn.functional.linear(given, weight, bias)
    return torch.allclose(output, linear, rtol=near, atol=near / 10)


def mixes_otherwise(model: PreTrainedModel, recorder: Recorder) -> bool:
    """Whether tokens also meet outside of the attention that was recorded.

    That is in convolutions, or in layers of a list that have no such attention.
    """
    attention = {layer.module for layer in recorder.passed}
    for layers in model.modules():
        if isinstance(layers, nn.Conv1d | nn.Conv2d) and max(layers.kernel_size) > 1:
            return True
        if isinstance(layers, nn.ModuleList):
            attending = [not attention.isdisjoint(layer.modules()) for layer in layers]
            if any(attending) and not all(attending):
                return True
    return False


def make_skippable(model: PreTrainedModel, recorder: Recorder) -> bool:
    """Let recorders see and give what layers put out; False if the layers are in no list."""
    attention = [layer.module for layer in recorder.passed]
    for layers in model.modules():
        if not isinstance(layers, nn.ModuleList) or not len(layers) == len(attention) > 1:
            continue
        if all(a in layer.modules() for layer, a in zip(layers, attention, strict=True)):
            for layer in layers:
                forward = layer.forward
                # a view of a view has it already
                if not (isinstance(forward, partial) and forward.func is _given_or_run):
                    layer.forward = partial(_given_or_run, forward, layer is layers[-1])
            return True
    return False


def _given_or_run(forward: Callable[..., Any], last: bool, *arguments: Any, **named: Any) -> Any:
    recorder = _recorder.get()
    if recorder is not None and recorder.given is not None and not last:
        return recorder.given
    output = forward(*arguments, **named)
    if recorder is not None and not (recorder.lean or recorder.uniform or recorder.learning):
        recorder.below = recorder.below if last else output
        if recorder.layers is None:
            recorder.states.append(output)
    return output


def by_head(module: nn.Module, heads: int) -> Float[Tensor, "head dim out"]:
    """The matrix of a linear map, one part for each head that feeds it."""
    weight: Any = module.weight
    return (weight if isinstance(module, Conv1D) else weight.T).unflatten(0, (heads, -1))


def install(model: PreTrainedModel) -> bool:
    """Switch a model to heed's attention for good; False if its family has code of its own."""
    default = model.config._attn_implementation or "eager"
    if default != NAME:
        setattr(model.config, _DEFAULT, default)
    model.set_attn_implementation(NAME)
    turned = model.config.model_type == "xlnet"  # which looks up its tokens as [token, batch]
    if (table := lookup(model)) is not None:
        table.register_forward_hook(partial(_look_up, turned=turned))
    keep_sparse(model)
    return model.config._attn_implementation == NAME


def keep_sparse(model: PreTrainedModel) -> None:
    """Let every text be read with the attention that its length asks for.

    A BigBird that reads a short text turns to full attention, and stays with it for good.
    """
    switching: Any = next((m for m in model.modules() if _is_sparse(m)), None)
    if switching is None:
        return
    sparse = [_Switched.of(m) for m in model.modules() if _is_sparse(m)]
    switching.set_attention_type("original_full")
    full = [_Switched.of(s.module) for s in sparse]
    blocks = 5 + 2 * model.config.num_random_blocks
    most = blocks * model.config.block_size  # tokens that are read with full attention
    switching.forward = partial(_switched, switching.forward, full, sparse, most)


def switches(model: PreTrainedModel) -> bool:
    """Whether texts are read with another attention if they are long."""
    forwards = [vars(module).get("forward") for module in model.modules()]
    return any(isinstance(f, partial) and f.func is _switched for f in forwards)


_switching = threading.RLock()  # a module cannot be of two kinds at a time


class _Switched(NamedTuple):
    """A module with two kinds of attention, as it is with one of them."""

    module: Any
    kind: str
    attention: nn.Module | None

    @classmethod
    def of(cls, module: Any) -> _Switched:
        return cls(module, module.attention_type, getattr(module, "self", None))

    def restore(self) -> None:
        self.module.attention_type = self.kind
        if self.attention is not None:
            self.module.self = self.attention


def _is_sparse(module: Any) -> bool:
    kind = getattr(module, "attention_type", "")
    return kind == "block_sparse" and hasattr(module, "set_attention_type")


def _switched(
    forward: Callable[..., Any],
    full: list[_Switched],
    sparse: list[_Switched],
    most: int,
    *arguments: Any,
    **named: Any,
) -> Any:
    ids = arguments[0] if arguments else named["input_ids"]
    with _switching:
        for switched in full if ids.shape[1] <= most else sparse:
            switched.restore()
        return forward(*arguments, **named)


def before(config: Any) -> str:
    """The implementation of attention that a model had before."""
    return getattr(config, _DEFAULT, "eager")


def lookup(model: PreTrainedModel) -> nn.Module | None:
    """What looks up the embeddings of a text, if anything does.

    Where there is a decoder, it is that of the encoder.
    """
    reader = model.get_encoder() if model.config.is_encoder_decoder else model
    try:
        table = reader.get_input_embeddings()
    except NotImplementedError:
        return None
    return table if isinstance(table, nn.Module) else None


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """The registered attention function."""
    recorder = attention_recorder()
    inputs = (module, query, key, value, attention_mask)
    if recorder is None:
        return _default(*inputs, **options)
    if recorder.seen is not None:
        return recorder.elsewhere(recorder.seen), None
    if recorder.uniform:
        return _uniform(query, key, value, attention_mask)
    # some families ask twice with the same queries and keys, for one half of the values each
    again = query is recorder.asked
    recorder.asked = query
    beside = getattr(module, _BESIDE, False)
    skipped = not (beside or again) and recorder.skip(module, query)
    if beside or skipped or (again and not recorder.passed[-1].weights.numel()):
        quick = before(module.config) == "sdpa"
        return (ALL_ATTENTION_FUNCTIONS["sdpa"] if quick else _eager(module))(*inputs, **options)
    repeated = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
    if again:
        output = (recorder.passed[-1].weights @ repeated).transpose(1, 2).contiguous()
        recorder.join(repeated, output)
        return output, None
    output, own = _eager(module)(*inputs, **options)
    weights = recorder.used(own)
    if weights is not own:
        output = (weights @ repeated).transpose(1, 2).contiguous()
    recorder.passed.append(Layer(module, query, key, repeated, weights, output))
    return output, weights


def _default(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """What the model used before; for the first row alone where nobody reads the others."""
    default = before(module.config)
    run = _eager(module) if default == "eager" else ALL_ATTENTION_FUNCTIONS[default]
    if default != "sdpa" or not getattr(module, _FIRST, False):
        return run(module, query, key, value, mask, **options)
    mask = None if mask is None else mask[:, :, :1]
    output, weights = run(module, query[:, :, :1], key, value, mask, **options)
    return nn.functional.pad(output, (0, 0, 0, 0, 0, query.shape[2] - 1)), weights


def _eager(module: nn.Module) -> Callable[..., Any]:
    """The eager attention of a family, from the file of its class or of one it derives from."""
    name = "eager_attention_forward"
    files = [sys.modules[cls.__module__] for cls in type(module).__mro__]
    return next(getattr(file, name) for file in files if hasattr(file, name))


def set_beside(modules: Iterable[nn.Module]) -> None:
    """Leave these out of what recorders see of attention."""
    for module in modules:
        setattr(module, _BESIDE, True)


def keep_first_row(recorder: Recorder, maps: Maps) -> None:
    """Compute only the first row from the last attention on, unless layers share their modules."""
    *earlier, last = (layer.module for layer in recorder.passed)
    if last in earlier:
        return
    setattr(last, _FIRST, True)
    depth = len(recorder.passed)
    elsewhere = {module for layers, module in maps.called if layers < depth}
    for layers, module in maps.called:
        # a forward of its own, such as one of accelerate that brings weights in, has to be run
        if type(module) is not nn.Linear or "forward" in vars(module):
            continue
        if layers == depth and module not in elsewhere:
            module.forward = partial(_first_row_of_map, module)  # type: ignore[method-assign]


def _first_row_of_map(module: nn.Linear, states: Tensor) -> Tensor:
    if states.ndim != 3 or attention_recorder() is not None:
        return nn.functional.linear(states, module.weight, module.bias)
    row = nn.functional.linear(states[:, :1], module.weight, module.bias)
    return nn.functional.pad(row, (0, 0, 0, states.shape[1] - 1))


def _uniform(
    query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The mean of all values that a row may look at."""
    weights = query.new_ones(len(query), 1, query.shape[2], key.shape[2])
    if attention_mask is not None:
        weights = weights * (attention_mask[..., : key.shape[2]] > torch.finfo(query.dtype).min / 2)
    weights = weights / weights.sum(-1, keepdim=True)
    repeated = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
    return (weights @ repeated).transpose(1, 2).contiguous(), None


def mask(*arguments: Any, **options: Any) -> Tensor | None:
    """The registered mask function: additive for eager attention, the default's own otherwise."""
    default = before(options.get("config"))
    if attention_recorder() is not None or default == "eager":
        return eager_mask(*arguments, **options)
    return ALL_MASK_ATTENTION_FUNCTIONS[default](*arguments, **options)


def attention_recorder() -> Recorder | None:
    recorder = _recorder.get()
    return None if recorder is None or recorder.lean else recorder


@dataclass
class Entrance:
    """Where embeddings enter the first layer: an argument of a module.

    argument   its position, or its name
    turned     whether it is [token, batch, dim]
    """

    module: nn.Module
    argument: int | str
    turned: bool

    def install(self) -> None:
        self.module.register_forward_pre_hook(self._enter, with_kwargs=True)

    def _enter(
        self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if isinstance(self.argument, str):
            return inputs, named | {self.argument: self._used(named[self.argument])}
        before, after = inputs[: self.argument], inputs[self.argument + 1 :]
        return (*before, self._used(inputs[self.argument]), *after), named

    def _used(self, embeddings: Tensor) -> Tensor:
        return _embed(embeddings, self.turned, "block")


def find_entrance(
    model: nn.Module, run: Callable[[], Any], batch: int, length: int
) -> Entrance | None:
    """Where embeddings enter the first layer, seen in a pass over `batch` texts of `length` tokens.

    Layers stand in a list. The first one that is called, or the outermost module around it that is
    handed an embedding for each token, is where they enter.
    """
    layers = [m for holder in model.modules() if isinstance(holder, nn.ModuleList) for m in holder]
    around: list[Entrance | None] = []  # the modules that are running, with what they were handed
    entrances: list[Entrance] = []

    def enter(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        arguments: list[tuple[int | str, Any]] = [*enumerate(inputs), *named.items()]
        handed = [
            Entrance(module, argument, value.shape[0] == length)
            for argument, value in arguments
            if isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3
            if value.shape[:2] in ((batch, length), (length, batch))
        ]
        around.append(handed[0] if handed else None)
        if module in layers and not entrances:
            entrances.extend(entrance for entrance in around if entrance is not None)

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        around.pop()

    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return entrances[0] if entrances else None


def _look_up(module: nn.Module, inputs: Any, output: Any, turned: bool) -> Any:
    if isinstance(output, tuple):  # some families put a scale beside the embeddings
        return _embed(output[0], turned, "lookup"), *output[1:]
    return _embed(output, turned, "lookup")


def _embed(output: Tensor, turned: bool, at: At) -> Tensor:
    """The embeddings that a pass goes on with; a recorder that means these notes them."""
    recorder = _recorder.get()
    if recorder is None or recorder.at != at or recorder.uniform or recorder.learning:
        return output
    if recorder.looked_up is not None:  # GPT-2 looks up segments in the same table, after the ids
        return output
    if recorder.embeddings is not None:
        recorder.looked_up = recorder.embeddings
    else:
        embeddings = output.transpose(0, 1) if turned else output
        recorder.looked_up = embeddings.detach().requires_grad_(torch.is_grad_enabled())
    if recorder.brief:
        raise Reached
    # a clone, because some families write into it, and a leaf of the graph must not be written to
    used = recorder.looked_up.clone() if recorder.looked_up.requires_grad else recorder.looked_up
    used = used.to(output)
    return used.transpose(0, 1) if turned else used


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, mask)
