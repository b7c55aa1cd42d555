"""Any Hugging Face sequence classifier behind the four doors.

Passes run in eval mode, without cache, on batches of similar length padded on the right. Without a
trace they use the model's own fast attention; `trace` records through `hook.py`, or through
`softmax.py` where a family has code of its own. What a family offers is found out when a model is
loaded (`probed.py`).

Of an encoder with a decoder, attention is that of the decoder over the text, layer by layer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heed.errors import CheckpointError, InputError, NotApplicable, quoted
from heed.models import classifier as offer
from heed.models import devices, folders, hook, prefix, pretrained
from heed.models.arrays import Attention, Embeddings, Mask, Rows
from heed.models.classifier import At, Attending
from heed.models.devices import as_numbers
from heed.models.hook import Recorder, recording
from heed.models.network import fingerprint, redraw_weights
from heed.models.passes import Row, attended_to, finite, pad
from heed.models.prefix import Beginning
from heed.models.probed import Probed, takes
from heed.models.trace import Trace
from heed.text import Tokenizer, Tokens


class Transformer(Probed):
    """A sequence classifier and its tokenizer.

    The model that is passed in is left alone: heed works on a view, modules of its own over the
    same weights. Training the model further, in place, shows in the view; its revision is that of
    the weights when it was first asked for.
    """

    facts: Mapping[str, Any] = MappingProxyType({})  # how heed trained it, if it did

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str):
        family = f"The family {model.config.model_type} of {quoted(name)}"
        with folders.reading(f"{family} is not one that heed can run"):
            self._set_up(model, tokenizer, name)

    def _set_up(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str
    ) -> None:
        self.name = name
        pretrained.check_fast(tokenizer, name)
        self.pretrained_tokenizer = tokenizer
        self.model = model = self.opened(model)
        _check_classifies(model, name)
        table: Any = hook.lookup(model)
        self._device = devices.input_device(model, table)
        # a tokenizer may have more ids, if tokens were added to it
        self._embedded = len(tokenizer) if table is None else len(table.weight)
        self.runs = devices.described(model, self._device)
        self.notes = (f"The model ran {self.runs}.",) if self.runs else ()
        self.notes += _set_padding(model, tokenizer, self._embedded)
        self._pad = int(model.config.pad_token_id)
        types = "token_type_ids"
        self._typed = types in tokenizer.model_input_names and takes(model, types)
        self._uncached = {"use_cache": False} if takes(model, "use_cache") else {}
        self.tokenizer = self.reader(pretrained.longest(model, tokenizer))
        self.batch_tokens = devices.batch_tokens(model, self.tokenizer.max_tokens)
        self.rounding = torch.finfo(model.dtype).eps
        self._near = devices.slack(model.dtype)
        self.labels = _labels(model)
        if model.config.num_labels == 1:
            self.notes += (
                "The model has one logit: half of it is shown for its label, and minus half for"
                " the other.",
            )
        # one logit is spread over two labels that exclude each other
        several = model.config.problem_type == "multi_label_classification"
        self.exclusive = not several or model.config.num_labels == 1
        with pretrained.quiet():
            self._hooked = hook.install(model)
        self._find_out()
        with suppress(InputError):  # an added token without an embedding: other texts can be read
            self([folders.ODD_TEXT])

    def opened(self, model: PreTrainedModel) -> PreTrainedModel:
        """The network that heed works on, which answers with logits of labels."""
        return _view(model)

    def reader(self, longest: int) -> Tokenizer:
        """What makes tokens of documents, at most so many."""
        tokenizer = self.pretrained_tokenizer
        return Tokenizer(pretrained.backend(tokenizer), longest, tokenizer.unk_token_id)

    def like(self, network: PreTrainedModel, name: str) -> Transformer:
        """Another network in the place of this one."""
        return Transformer(network, self.pretrained_tokenizer, name)

    @cached_property
    def revision(self) -> str:  # type: ignore[override]
        digest = fingerprint(_weights(self.model), single=True)
        # the same weights in another precision give other values
        return "-".join([digest, *devices.dtypes(self.model)])

    # The four doors

    def trace(
        self,
        tokens: Sequence[Tokens],
        attention: Mapping[int, Attention] | None = None,
        embeddings: Embeddings | None = None,
        layers: Sequence[int] | None = None,
        at: At | None = None,
    ) -> Trace:
        if attention and (missing := self.lacks({offer.REPLACEABLE})):
            raise NotApplicable(f"A trace with other attention needs {missing}.")
        inputs, real = self.inputs([Row(t.ids, t.types) for t in tokens])
        if any(w.ndim > 4 for w in (attention or {}).values()):
            return self._variants(inputs, real, attention or {}, embeddings, at)
        trace, _ = self._recorded(inputs, real, attention or {}, embeddings, layers, at)
        finite(trace.logits)
        return trace

    def attending(self, tokens: Sequence[Tokens]) -> Attending:
        """Only the row that classifies goes through the last layer again: all else is known."""
        inputs, real = self.inputs([Row(t.ids, t.types) for t in tokens])
        if not self._skippable or self._row == "mean":
            return super().attending(tokens)
        with torch.no_grad():
            trace, recorder = self._recorded(inputs, real, {}, None, [-1], None)
        finite(trace.logits)
        several = isinstance(recorder.below, tuple | list)
        below, *others = recorder.below if several else (recorder.below,)
        if not isinstance(below, Tensor) or below.shape[:2] != real.shape:
            return super().attending(tokens)
        index = trace.row.view(-1, 1, 1).expand(-1, 1, below.shape[2])
        state = below.gather(1, index.to(below.device))
        row = trace.row[:, None].to(self._device)
        alone = {key: value.gather(1, row) for key, value in inputs.items()}

        def logits(rows: Attention) -> Float[Tensor, "*variant batch label"]:
            variants = rows.reshape(-1, *rows.shape[-4:])

            def run(part: list[int]) -> Float[Tensor, "variant batch label"]:
                given: Any = state.repeat(len(part), 1, 1)
                if several:
                    given = type(recorder.below)((given, *others))
                repeated = {key: value.repeat(len(part), 1) for key, value in alone.items()}
                these = {0: variants[part[0] : part[-1] + 1]}
                known: dict[str, Any] = {"given": given, "seen": trace.values[-1]}
                if recorder.beside is not None:
                    known["beside"] = recorder.beside.repeat(len(part), 1)
                with recording(Recorder(these, **known)):
                    output = self.model(**repeated, **self._uncached)
                return self._spread(output.logits).unflatten(0, (len(part), len(tokens)))

            # one row of each document is little: all variants at once, if memory allows
            lengths = [len(tokens)] * len(variants)
            together = self.in_batches(lengths, run, limit=sum(lengths), learns=False)
            outputs = [z for _, z in together]
            return torch.cat(outputs).reshape(*rows.shape[:-4], len(tokens), -1)

        # a layer that needs more than one row may do anything: then whole passes are run
        with torch.no_grad(), suppress(Exception):
            again = logits(trace.classifying_rows())
            if torch.allclose(again, trace.logits, rtol=self._near, atol=self._near / 10):
                return Attending(trace, logits)
        return super().attending(tokens)

    def randomised(self, seed: int) -> Transformer:
        if not all(p.is_floating_point() for p in self.model.parameters()):
            raise NotApplicable(
                f"The weights of {self.name} are quantised: none can be drawn anew."
            )
        config = copy.deepcopy(self.model.config)
        with pretrained.quiet(), torch.random.fork_rng(devices=[]):
            single = {"attn_implementation": hook.before(config), "dtype": torch.float32}
            network = type(self.model)._from_config(config, **single)
        network.load_state_dict(_weights(self.model))
        redraw_weights(network, seed)
        network.to(self._device, self.model.dtype)
        return self.like(network, f"{self.name}, weights drawn anew")

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
        if offer.ATTENTION not in self.offers:
            wanted = frozenset()
        rows = self._rows(inputs)
        with recording(Recorder(attention, embeddings, rows, wanted, self.place(at))) as recorder:
            output = self.model(**inputs, **self._uncached)
        passed = recorder.passed
        if not recorder.lean:
            self._check_pairs(recorder, real.shape[1])
        assert recorder.looked_up is not None
        trace = Trace(
            self._spread(output.logits),
            tuple(layer.weights for layer in passed),
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

    def _check_pairs(self, recorder: Recorder, length: int) -> None:
        """Refuse a pass that did not show a weight for each pair of tokens in every layer."""
        weights = [layer.weights for layer in recorder.passed if layer.weights.numel()]
        square = all(w.shape[-2:] == (length, length) for w in weights)
        if len(recorder.passed) != self._depth or not square:
            raise NotApplicable(
                f"In a text of {length} tokens, the attention of {self.name} is not one weight for"
                " each pair of tokens: give it a shorter text."
            )

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

        def run(part: list[int]) -> Trace:
            n = len(part)
            replaced = {}
            for layer, w in attention.items():
                these = w[part[0] : part[-1] + 1] if w.ndim > 4 else w.expand(n, *w.shape)
                replaced[layer] = these.flatten(0, 1)
            repeated = {key: value.repeat(n, 1) for key, value in inputs.items()}
            states = None if embeddings is None else embeddings.repeat(n, 1, 1)
            return self._recorded(repeated, real.repeat(n, 1), replaced, states, (), at)[0]

        traces = [trace for _, trace in self.in_batches([real.numel()] * count, run)]
        logits = torch.cat([trace.logits.unflatten(0, (-1, len(real))) for trace in traces])
        looked_up = traces[0].embeddings[: len(real)]
        return Trace(logits, (), (), looked_up, real, self._rows(inputs))

    # Passes

    def outputs(self, rows: Sequence[Row]) -> Float[np.ndarray, "row label"]:
        inputs: dict[str, Any] = self.inputs(rows)[0]
        beginning = prefix.NOTHING
        if max(len(row.ids) for row in rows) <= self.shares:
            beginning = prefix.begin(rows, self._go_on)
        inputs = beginning.before(inputs) if len(beginning) else inputs | self._uncached
        return as_numbers(self._spread(self.model(**inputs).logits))

    def _go_on(self, beginning: Beginning, row: Row) -> Beginning:
        """Read a row that starts with a beginning."""
        inputs = beginning.before(self.inputs([row])[0])
        self.model(**inputs)
        return Beginning.of(row, inputs["past_key_values"])

    def run(
        self, lengths: Sequence[int], row: Callable[[int], Row]
    ) -> Float[np.ndarray, "row label"]:
        """Texts that begin alike are read once up to where they part, where that is exact."""
        with prefix.remembered():
            return super().run(lengths, row)

    def inputs(self, rows: Sequence[Row]) -> tuple[dict[str, Tensor], Mask]:
        """What the model takes, padded on the right and on its device, and which of it is real."""
        if not all(len(row.ids) for row in rows):
            raise InputError(f"A text without a single token cannot be read by {self.name}.")
        if min(len(row.ids) for row in rows) < self._shortest:
            raise InputError(f"{self.name} reads texts of at least {self._shortest} tokens.")
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
        if any(row.places is not None for row in rows):
            inputs["position_ids"], _ = pad([self._first_place + _places(row) for row in rows])
        return {name: value.to(self._device) for name, value in inputs.items()}, real

    def _spread(self, logits: Float[Tensor, "batch output"]) -> Float[Tensor, "batch label"]:
        """The logits of all labels, in single precision at least.

        Half of a single logit is for its label, half against the other: both are explained.
        """
        logits = logits.float() if logits.dtype.itemsize < 4 else logits
        return torch.cat([-logits / 2, logits / 2], -1) if logits.shape[-1] == 1 else logits

    def _rows(self, inputs: Mapping[str, Tensor]) -> Rows:
        """The row that classifies.

        Decoders take the last one whose id is not that of padding; behind an encoder, the last that
        ends a text.
        """
        ids = inputs["input_ids"].cpu()
        if self._row == "last":
            ends = self.model.config.eos_token_id
            counted = ids == ends if self.model.config.is_encoder_decoder else ids != self._pad
            return (torch.arange(ids.shape[1]) * counted).argmax(1)
        return torch.full((len(ids),), -1 if self._row == "mean" else 0)


def _places(row: Row) -> Int[np.ndarray, "token"]:
    return np.arange(len(row.ids)) if row.places is None else row.places


def load(model: str | Path, device: str = "cpu", dtype: str = "auto") -> Transformer:
    """A sequence classifier by its folder or hub id; safetensors only, no code of others."""
    network, tokenizer, missing = pretrained.placed(model, device, dtype)
    if missing and pretrained.is_causal(network.config):
        raise CheckpointError(
            f"{quoted(pretrained.name_of(model))} is a language model: say how to ask it for a"
            " label, by --template and --labels, or by heed.prompted."
        )
    if missing:
        raise CheckpointError(
            f"The model {quoted(str(model))} is not a trained classifier: it lacks"
            f" {quoted(', '.join(missing[:3]))}."
        )
    classifier = Transformer(network, tokenizer, pretrained.name_of(model))
    if (Path(model) / folders.FACTS).is_file():
        classifier.facts = folders.facts(Path(model))
    return classifier


def wrap(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Transformer:
    """A model and its tokenizer as a user holds them; it stays where and as it is."""
    if hasattr(model, "get_base_model"):  # of PEFT, whose adapters are inside of the base
        model = model.get_base_model()
    if not any(cls.__name__.endswith("ForSequenceClassification") for cls in type(model).__mro__):
        kind = type(model).__name__
        causal = kind.endswith(pretrained.CAUSAL)
        asked = ": ask a language model by heed.prompted" if causal else ""
        raise InputError(f"heed explains sequence classifiers, got {kind}{asked}.")
    name = model.config.name_or_path or model.config.model_type
    return Transformer(model, tokenizer, pretrained.name_of(name))


def _view(model: PreTrainedModel) -> PreTrainedModel:
    """Modules and configuration of its own over the same weights, in eval mode."""
    shared: dict[int, Any] = {id(b): b for b in model.buffers()}
    for parameter in model.parameters():
        frozen = nn.Parameter(parameter.data, requires_grad=False)
        # those of a class of their own are quantised, and know more than their data
        own_class = type(parameter) is not nn.Parameter and issubclass(
            type(parameter), nn.Parameter
        )
        shared[id(parameter)] = parameter if own_class else frozen
    for module in model.modules():
        for accelerate_hook in devices.accelerate_hooks(module):
            # where it keeps the weights that it brings in for each pass
            kept = getattr(accelerate_hook, "weights_map", None)
            if kept is not None:
                shared[id(kept)] = kept
    return copy.deepcopy(model, shared).eval()


def _weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """All weights by name, also those that accelerate keeps out of memory."""
    if not any(p.is_meta for p in model.parameters()):
        return model.state_dict()
    from accelerate.utils.modeling import get_state_dict_offloaded_model

    return get_state_dict_offloaded_model(model)


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


def _labels(model: PreTrainedModel) -> tuple[str, ...]:
    names = tuple(str(model.config.id2label[i]) for i in range(model.config.num_labels))
    if len(set(names)) < len(names):
        names = tuple(f"{name} ({i})" for i, name in enumerate(names))
    return (f"not {names[0]}", names[0]) if len(names) == 1 else names
