"""Any Hugging Face sequence classifier behind the four doors.

Passes run in eval mode, without cache, on batches of similar length padded on the right. Without a
trace they use the model's own fast attention; `trace` records through `hook.py`. A small probe
finds out when a model is loaded: which query row classifies (the first, the last, or all of them
averaged), whether padding changes the answer (then only documents of equal length share a batch),
and what the family shows of its attention: the weights, their gradients, and the linear map that
every layer puts behind the weighted values.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import tokenizers
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from heed.errors import CheckpointError, InputError, NotApplicable, quoted
from heed.models import classifier as offer
from heed.models import folders, hook
from heed.models.arrays import Attention, Embeddings, Mask, Rows
from heed.models.classifier import At, Attending
from heed.models.hook import Recorder, recording
from heed.models.network import fingerprint, redraw_weights
from heed.models.passes import Passes, Row, attended_to, pad
from heed.models.trace import Trace
from heed.text import Tokenizer, Tokens

_LONGEST = 4096  # tokens read by models that set no limit
_MOST_LAYERS = 1000  # more would be built for hours before the weights turned out not to fit


class Transformer(Passes):
    """A sequence classifier and its tokenizer.

    The model that is passed in is left alone: heed works on a view, modules of its own over the
    same weights. Training the model further, in place, shows in the view; its revision is that of
    the weights when it was first asked for.
    """

    batch_tokens = 2048  # on few cores larger batches are slower
    facts: Mapping[str, Any] = MappingProxyType({})  # how heed trained it, if it did

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str):
        family = f"The family {model.config.model_type} of {quoted(name)}"
        with folders.reading(f"{family} is not one that heed can run"):
            self._set_up(model, tokenizer, name)

    def _set_up(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str
    ) -> None:
        self.name = name
        if not getattr(tokenizer, "is_fast", False):
            raise CheckpointError(
                f"The tokenizer of {name} has no fast version, which heed needs to find words in"
                " the text."
            )
        _check_classifies(model, name)
        self.model = model = _view(model)
        self.pretrained_tokenizer = tokenizer
        table: Any = hook.lookup(model).weight
        self._embedded = len(table)  # a tokenizer may have more ids, if tokens were added to it
        self.notes = _set_padding(model, tokenizer, self._embedded)
        self._pad = int(model.config.pad_token_id)
        types = "token_type_ids"
        self._typed = types in tokenizer.model_input_names and _takes(model, types)
        self._uncached = {"use_cache": False} if _takes(model, "use_cache") else {}
        backend = tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self.tokenizer = Tokenizer(backend, longest(model, tokenizer), tokenizer.unk_token_id)
        self.labels = _labels(model)
        if model.config.num_labels == 1:
            self.notes += (
                "The model has one logit: half of it is shown for its label, and minus half for"
                " the other.",
            )
        # one logit is spread over two labels that exclude each other
        several = model.config.problem_type == "multi_label_classification"
        self.exclusive = not several or model.config.num_labels == 1
        # a decoder looks for its last token by its id: padding cannot stand in for a word
        candidates = (tokenizer.mask_token_id, tokenizer.unk_token_id)
        usable = [i for i in candidates if i is not None and i != self._pad]
        fillers = [i for i in usable if i < self._embedded]
        self.filler = int(fillers[0]) if fillers else self._pad
        self.removals = ("replace", "delete", "hide") if fillers else ("hide", "delete")
        with quiet():
            self._hooked = hook.install(model)
        self._depth = 0
        self._skippable = False
        self._projections: tuple[nn.Module, ...] = ()
        attention = {offer.ATTENTION, offer.REPLACEABLE} if self._hooked else {offer.ATTENTION}
        if model.config.is_encoder_decoder:
            attention = set()
        self.offers = frozenset({offer.GRADIENT, *attention})
        self._row, self.even = self._probe()
        self.gradients_at = self._find_block()
        with suppress(InputError):  # an added token without an embedding: other texts can be read
            self([folders.ODD_TEXT])

    @cached_property
    def revision(self) -> str:  # type: ignore[override]
        state = self.model.state_dict()
        return fingerprint({key: value.float() for key, value in state.items()})

    # The four doors

    def trace(
        self,
        tokens: Sequence[Tokens],
        attention: Mapping[int, Attention] | None = None,
        embeddings: Embeddings | None = None,
        layers: Sequence[int] | None = None,
        at: At | None = None,
    ) -> Trace:
        if attention and not self._hooked:
            raise NotApplicable(
                f"The attention of {self.name} can be read but not replaced: its family has its own"
                " code for it."
            )
        inputs, real = self.inputs([Row(t.ids, t.types) for t in tokens])
        if any(w.ndim > 4 for w in (attention or {}).values()):
            return self._variants(inputs, real, attention or {}, embeddings, at)
        return self._recorded(inputs, real, attention or {}, embeddings, layers, at)[0]

    def attending(self, tokens: Sequence[Tokens]) -> Attending:
        """Only the row that classifies goes through the last layer again: all else is known."""
        inputs, real = self.inputs([Row(t.ids, t.types) for t in tokens])
        if not self._skippable or self._row == "mean":
            return super().attending(tokens)
        with torch.no_grad():
            trace, recorder = self._recorded(inputs, real, {}, None, [-1], None)
        below, *others = recorder.below if isinstance(recorder.below, tuple) else (recorder.below,)
        index = trace.row.view(-1, 1, 1).expand(-1, 1, below.shape[2])
        state = below.gather(1, index)
        alone = {key: value.gather(1, trace.row[:, None]) for key, value in inputs.items()}

        def logits(rows: Attention) -> Float[Tensor, "*variant batch label"]:
            many = rows.shape[:-4]
            n = many.numel()
            given: Any = state.repeat(n, 1, 1)
            if isinstance(recorder.below, tuple):
                given = (given, *others)
            repeated = {key: value.repeat(n, 1) for key, value in alone.items()}
            with recording(Recorder({0: rows}, given=given, seen=trace.values[-1])):
                output = self.model(**repeated, **self._uncached)
            return self._spread(output.logits).unflatten(0, (*many, len(tokens)))

        with torch.no_grad():
            again = logits(trace.classifying_rows())
        same = torch.allclose(again, trace.logits, rtol=1e-3, atol=1e-4)
        return Attending(trace, logits) if same else super().attending(tokens)

    def randomised(self, seed: int) -> Transformer:
        config = copy.deepcopy(self.model.config)
        with quiet(), torch.random.fork_rng(devices=[]):
            attention = {"attn_implementation": hook.before(config)}
            network = AutoModelForSequenceClassification.from_config(config, **attention)
        network.load_state_dict(self.model.state_dict())
        redraw_weights(network, seed)
        name = f"{self.name}, weights drawn anew"
        return Transformer(network, self.pretrained_tokenizer, name)

    def embeddings(self, tokens: Sequence[Tokens], at: At | None = None) -> Embeddings:
        """Without a whole pass: what comes behind the embeddings is not run."""
        inputs, _ = self.inputs([Row(t.ids, t.types) for t in tokens])
        recorder = Recorder(layers=frozenset(), at=self.place(at), brief=True)
        with torch.no_grad(), recording(recorder), suppress(hook.Reached):
            self.model(**inputs, **self._uncached)
        assert recorder.looked_up is not None
        return recorder.looked_up

    def _recorded(
        self,
        inputs: dict[str, Tensor],
        real: Mask,
        attention: Mapping[int, Attention],
        embeddings: Embeddings | None,
        layers: Sequence[int] | None,
        at: At | None,
    ) -> tuple[Trace, Recorder]:
        """What a pass shows, and what recorded it."""
        wanted = None if layers is None else frozenset(layer % self._depth for layer in layers)
        rows = self._rows(inputs)
        with recording(Recorder(attention, embeddings, rows, wanted, self.place(at))) as recorder:
            extra = {} if self._hooked or recorder.lean else {"output_attentions": True}
            output = self.model(**inputs, **self._uncached, **extra)
        passed = recorder.passed
        weights = tuple(layer.weights for layer in passed)
        if not self._hooked and not recorder.lean:
            weights = tuple(output.attentions)
        assert recorder.looked_up is not None
        trace = Trace(
            self._spread(output.logits),
            weights,
            tuple(layer.values for layer in passed),
            recorder.looked_up,
            real,
            rows,
            tuple(
                hook.by_head(module, layer.values.shape[1])
                for module, layer in zip(self._projections, passed, strict=False)
            ),
            tuple(layer.queries for layer in passed),
            tuple(layer.keys for layer in passed),
            tuple(s[0] if isinstance(s, tuple) else s for s in recorder.states),
        )
        return trace, recorder

    def _variants(
        self,
        inputs: dict[str, Tensor],
        real: Mask,
        attention: Mapping[int, Attention],
        embeddings: Embeddings | None,
        at: At | None,
    ) -> Trace:
        """Many replacements for the same documents, a few at a time; only logits are kept."""
        count = max(w.shape[0] for w in attention.values() if w.ndim > 4)
        step = max(1, self.batch_tokens // real.numel())
        parts = []
        for start in range(0, count, step):
            n = min(step, count - start)
            replaced = {}
            for layer, w in attention.items():
                part = w[start : start + n] if w.ndim > 4 else w.expand(n, *w.shape)
                replaced[layer] = part.flatten(0, 1)
            repeated = {key: value.repeat(n, 1) for key, value in inputs.items()}
            states = None if embeddings is None else embeddings.repeat(n, 1, 1)
            trace, _ = self._recorded(repeated, real.repeat(n, 1), replaced, states, (), at)
            parts.append(trace.logits.unflatten(0, (n, -1)))
        looked_up = trace.embeddings[: len(real)]
        return Trace(torch.cat(parts), (), (), looked_up, real, self._rows(inputs))

    # Passes

    def outputs(self, rows: Sequence[Row]) -> Float[np.ndarray, "row label"]:
        inputs, _ = self.inputs(rows)
        return self._spread(self.model(**inputs, **self._uncached).logits).double().numpy()

    def inputs(self, rows: Sequence[Row]) -> tuple[dict[str, Tensor], Mask]:
        """What the model takes, padded on the right, and which of it is real."""
        if not all(len(row.ids) for row in rows):
            raise InputError(f"A text without a single token cannot be read by {self.name}.")
        ids, real = pad([row.ids for row in rows], filler=self._pad)
        if ids.max() >= self._embedded:
            token = self.tokenizer.backend.id_to_token(int(ids.max()))
            raise InputError(
                f"The token '{quoted(token)}' of the tokenizer has no embedding in {self.name}: it"
                " was added, and the model was never resized."
            )
        inputs = {"input_ids": ids, "attention_mask": attended_to(rows, real).long()}
        if self._typed:
            inputs["token_type_ids"], _ = pad([row.types for row in rows])
        return inputs, real

    def _spread(self, logits: Float[Tensor, "batch output"]) -> Float[Tensor, "batch label"]:
        """Half of a single logit is for its label, half against the other: both are explained."""
        return torch.cat([-logits / 2, logits / 2], -1) if logits.shape[-1] == 1 else logits

    def _rows(self, inputs: Mapping[str, Tensor]) -> Rows:
        """The row that classifies; decoders take the last one whose id is not that of padding."""
        ids = inputs["input_ids"]
        if self._row == "last":
            return (torch.arange(ids.shape[1]) * (ids != self._pad)).argmax(1)
        return torch.full((len(ids),), -1 if self._row == "mean" else 0)

    # Probe

    def _probe(self) -> tuple[Literal["first", "last", "mean"], bool]:
        """Which query row classifies, and whether padding changes the answer; sets `offers`."""
        rows = [self._probe_row(7), self._probe_row(4)]
        together = self.run([len(row.ids) for row in rows], rows.__getitem__)
        alone = self.run([len(rows[1].ids)], lambda _: rows[1])
        if not np.isfinite(together).all():
            raise CheckpointError(f"The outputs of {self.name} are not finite numbers.")
        even = bool(np.abs(together[1:] - alone).max() > 1e-3 * max(1, np.abs(together).max()))
        inputs, _ = self.inputs(rows[:1])
        options = {} if self._hooked else {"output_attentions": offer.ATTENTION in self.offers}
        options["output_hidden_states"] = True
        recorder = Recorder()
        watching = hook.watching(self.model, recorder)
        with torch.enable_grad(), recording(recorder), watching as maps:
            output = self.model(**inputs, **self._uncached, **options)
        self._skippable = self._hooked and hook.make_skippable(self.model, recorder)
        last = recorder.passed[-1].outputs if recorder.passed else output.hidden_states[-1]
        # any combination of logits, but not their sum: heads may be trained to opposite weights
        total = (output.logits * torch.linspace(1, 2, output.logits.shape[-1])).sum()
        if offer.ATTENTION in self.offers:
            weights = [layer.weights for layer in recorder.passed]
            weights = weights if self._hooked else output.attentions
            self._look(total, weights, maps, len(rows[0].ids))
        (gradient,) = torch.autograd.grad(total, last, allow_unused=True)
        if gradient is None:  # what the family shows of its states is a copy (XLNet)
            summary = getattr(self.model.config, "summary_type", "")
            return "last" if summary == "last" else "first", even
        moved = gradient.abs().flatten(2).sum(2)[0] > 0
        if not moved.any():
            self.notes += (
                "Which row of attention classifies could not be found out: all are averaged.",
            )
        if int(moved.sum()) != 1:
            return "mean", even
        if not moved[0]:
            return "last", even
        if self._hooked:
            hook.keep_first_row(recorder, maps)
        return "first", even

    def _probe_row(self, length: int, shift: int = 0) -> Row:
        """A text of so many tokens, which the model has embeddings of; others with a `shift`."""
        most = min(len(self.tokenizer), self._embedded)  # added tokens may have no embedding
        ids = [i for i in range(max(0, most - 8), most) if i != self._pad][-7:]
        ends = [self.model.config.eos_token_id] if self.model.config.is_encoder_decoder else []
        tokens = np.append(np.resize(np.roll(ids, shift), length), ends).astype(np.int64)
        return Row(tokens, np.zeros_like(tokens))

    def _find_block(self) -> tuple[At, ...]:
        """Where gradients can be taken: at the block, if words reach the output through it alone.

        The block ends where embeddings enter the first layer.
        """
        inputs, real = self.inputs([self._probe_row(5)] * 3)

        def run() -> None:
            with torch.no_grad():
                self.model(**inputs, **self._uncached)

        entrance = hook.find_entrance(self.model, run, *inputs["input_ids"].shape)
        if entrance is None:
            return ("lookup",)
        entrance.install()
        others, _ = self.inputs([self._probe_row(5, shift=3)] * 3)
        with torch.no_grad():
            self.gradients_at = ("block", "lookup")
            trace, _ = self._recorded(inputs, real, {}, None, (), "block")
            again, _ = self._recorded(others, real, {}, trace.embeddings, (), "block")
        # other words with the embeddings of the first: the same, unless words take another way
        scale = trace.logits.abs().max().clamp(min=1)
        same = (trace.logits - again.logits).abs().max() < 1e-4 * scale
        return ("block", "lookup") if same else ("lookup",)

    def _look(
        self, total: Float[Tensor, ""], weights: Sequence[Tensor], maps: hook.Maps, length: int
    ) -> None:
        """What one pass shows of attention: between all tokens, in the graph, with known maps."""
        if not weights or any(w is None for w in weights):
            self.offers -= {offer.ATTENTION, offer.REPLACEABLE}
            return
        self._depth = len(weights)
        if any(w.shape[-2:] != (length, length) for w in weights):
            return
        self.offers |= {offer.BETWEEN}
        if all(w.requires_grad for w in weights):
            gradients = torch.autograd.grad(total, weights, retain_graph=True, allow_unused=True)
            if all(gradient is not None for gradient in gradients):
                self.offers |= {offer.DIFFERENTIABLE}
        fed = [maps.fed.get(layer, []) for layer in range(len(weights))]
        if all(len(modules) == 1 for modules in fed):  # an adapter beside the map would be a second
            self._projections = tuple(modules[0] for modules in fed)
            self.offers |= {offer.PROJECTED}


def load(model: str | Path) -> Transformer:
    """A sequence classifier by its folder or hub id; safetensors only, no code of others."""
    network, tokenizer, missing = read(model)
    if missing:
        raise CheckpointError(
            f"The model {quoted(str(model))} is not a trained classifier: it lacks"
            f" {quoted(', '.join(missing[:3]))}."
        )
    classifier = Transformer(network, tokenizer, _name(model))
    if (Path(model) / folders.FACTS).is_file():
        classifier.facts = folders.facts(Path(model))
    return classifier


def wrap(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Transformer:
    """A model and its tokenizer as a user holds them."""
    if not any(cls.__name__.endswith("ForSequenceClassification") for cls in type(model).__mro__):
        raise InputError(f"heed explains sequence classifiers, got {type(model).__name__}.")
    name = model.config.name_or_path or model.config.model_type
    return Transformer(model, tokenizer, _name(name))


def read(
    model: str | Path, **options: Any
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[str]]:
    """A network in single precision, its tokenizer, and names of weights that the files lack."""
    safe: dict[str, Any] = {"trust_remote_code": False}
    name = quoted(str(model))
    with folders.reading(f"The model {name} cannot be loaded"), quiet():
        config = AutoConfig.from_pretrained(model, **safe)
        if getattr(config, "num_hidden_layers", 0) > _MOST_LAYERS:
            raise ValueError(f"its config.json names {config.num_hidden_layers} layers")
        tokenizer = AutoTokenizer.from_pretrained(model, **safe)
        safe |= {"use_safetensors": True, "output_loading_info": True, "dtype": torch.float32}
        load_network = AutoModelForSequenceClassification.from_pretrained
        network, info = load_network(model, **safe, **options)
        vocabulary = int(getattr(network.config, "vocab_size", 0))
    if 10 * len(tokenizer) < vocabulary:  # the library makes one up where files lack
        raise CheckpointError(
            f"The model {name} comes without its tokenizer: put its files beside the weights."
        )
    return network, tokenizer, sorted(info["missing_keys"])


def _name(model: str | Path) -> str:
    """A folder goes by its last part, a hub id as it is."""
    return Path(model).absolute().name if Path(model).exists() else str(model)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and reports of `transformers`: heed says what matters in them."""
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _view(model: PreTrainedModel) -> PreTrainedModel:
    """Modules and configuration of its own over the same weights, in eval mode."""
    kinds = {(p.device.type, p.dtype) for p in model.parameters()}
    if not kinds <= {("cpu", torch.float32), ("cpu", torch.float64)}:
        raise InputError("heed computes on the CPU in single precision: pass model.float().cpu().")
    shared: dict[int, Any] = {id(b): b for b in model.buffers()}
    for parameter in model.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.data, requires_grad=False)
    return copy.deepcopy(model, shared).eval()


def _takes(model: PreTrainedModel, argument: str) -> bool:
    return argument in inspect.signature(model.forward).parameters


def _check_classifies(model: PreTrainedModel, name: str) -> None:
    """Refuse a head whose output is a number and no label.

    The library takes a single output for a number to be predicted, unless the model says otherwise.
    """
    kind = model.config.problem_type
    if kind == "regression" or (kind is None and model.config.num_labels == 1):
        raise CheckpointError(
            f"The model {quoted(name)} predicts a number, not a label: if its one output is the"
            " logit of a label, set problem_type to multi_label_classification in its config."
        )


def _set_padding(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, embedded: int
) -> tuple[str, ...]:
    """Every batch needs a padding id; decoders often come without one."""
    named = model.config.pad_token_id
    if named is not None and 0 <= named < embedded:
        return ()
    candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id)
    fallback = next((i for i in candidates if i is not None and 0 <= i < embedded), 0)
    model.config.pad_token_id = fallback
    return (f"The model names no padding token: token {fallback} is used for it.",)


def longest(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens that the model reads: the tokenizer's limit, else the number of positions."""
    positions = getattr(model.config, "max_position_embeddings", None) or -1
    if positions < 1:  # no limit
        positions = _LONGEST
    for name, module in model.named_modules():
        placed = name.endswith("position_embeddings") and isinstance(module, nn.Embedding)
        if placed and module.padding_idx is not None:
            # positions are counted from behind that of padding
            positions = min(positions, module.num_embeddings - module.padding_idx - 1)
    return int(min(tokenizer.model_max_length, positions, _LONGEST))


def _labels(model: PreTrainedModel) -> tuple[str, ...]:
    names = tuple(str(model.config.id2label[i]) for i in range(model.config.num_labels))
    if len(set(names)) < len(names):
        names = tuple(f"{name} ({i})" for i, name in enumerate(names))
    return (f"not {names[0]}", names[0]) if len(names) == 1 else names
