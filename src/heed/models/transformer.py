"""Any Hugging Face sequence classifier behind the four doors.

Passes run in eval mode, without cache, on batches of similar length padded on the right. Without a
trace they use the model's own fast attention; `trace` records through `hook.py`, or through
`softmax.py` where a family has code of its own. A small probe finds out when a model is loaded:
which query row classifies (the first, the last, or all of them averaged), whether padding changes
the answer (then only documents of equal length share a batch), and what the family shows of its
attention: the weights, their gradients, and the linear map that every layer puts behind the
weighted values. It also checks that a trace gives the model's own answer. What does not hold is not
offered, and `withheld` says why.

Of an encoder with a decoder, attention is that of the decoder over the text, layer by layer.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from logging import ERROR
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import tokenizers
import torch
from huggingface_hub import constants as hub
from huggingface_hub import get_session
from huggingface_hub.utils import logging as hub_logging
from jaxtyping import Float, Int
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
from heed.models import devices, folders, hook, prefix, softmax
from heed.models.arrays import Attention, Embeddings, Mask, Rows
from heed.models.classifier import At, Attending
from heed.models.devices import as_numbers
from heed.models.hook import Recorder, recording
from heed.models.network import fingerprint, redraw_weights
from heed.models.passes import Passes, Row, attended_to, finite, pad
from heed.models.prefix import Beginning
from heed.models.trace import Trace
from heed.text import Tokenizer, Tokens

_ATTENTION = frozenset(
    {offer.ATTENTION, offer.REPLACEABLE, offer.BETWEEN, offer.DIFFERENTIABLE, offer.PROJECTED}
)
_PROBED = (7, 5, 12)  # lengths of texts in the probe, the longest last
_ESTIMATED = {"yoso"}  # families whose backward pass is not the derivative of the forward pass
_MARKS = ("bos", "eos", "pad", "sep", "cls")  # tokens that are no words
CAUSAL = ("ForCausalLM", "LMHeadModel")  # how the names of language models' classes end
_LONGEST = 4096  # tokens read by models that set no limit
_MOST_LAYERS = 1000  # more would be built for hours before the weights turned out not to fit


class Transformer(Passes):
    """A sequence classifier and its tokenizer.

    The model that is passed in is left alone: heed works on a view, modules of its own over the
    same weights. Training the model further, in place, shows in the view; its revision is that of
    the weights when it was first asked for.

    shares   the length of the longest texts that are read once up to where they part; 0 if none are
    """

    withheld: dict[str, str]
    facts: Mapping[str, Any] = MappingProxyType({})  # how heed trained it, if it did
    _first_place = 0  # the position of a text's first token, where positions are given

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str):
        family = f"The family {model.config.model_type} of {quoted(name)}"
        with folders.reading(f"{family} is not one that heed can run"):
            self._set_up(model, tokenizer, name)

    def _set_up(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str
    ) -> None:
        self.name = name
        check_fast(tokenizer, name)
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
        self._typed = types in tokenizer.model_input_names and _takes(model, types)
        self._uncached = {"use_cache": False} if _takes(model, "use_cache") else {}
        self.tokenizer = self.reader(longest(model, tokenizer))
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
        with quiet():
            self._hooked = hook.install(model)
        self._depth, self._shortest, self.shares = 0, 1, 0
        self._skippable = False
        self._projections: tuple[nn.Module, ...] = ()
        self.offers, self.withheld = frozenset({offer.GRADIENT}), {}
        self._probe()
        self._shortest = self._find_shortest()
        self.gradients_at = self._find_block()
        if reason := self._lacks_gradients():
            self.offers -= {offer.GRADIENT}
            self.withheld[offer.GRADIENT] = reason
        if model.config.is_encoder_decoder:
            self.notes += (
                "The decoder reads the text again: gradients are those through the encoder alone.",
            )
        self.filler, self.removals = self._find_filler()
        self.shares = self._find_shared()
        self.gaps = self._leaves_gaps()
        with suppress(InputError):  # an added token without an embedding: other texts can be read
            self([folders.ODD_TEXT])

    def opened(self, model: PreTrainedModel) -> PreTrainedModel:
        """The network that heed works on, which answers with logits of labels."""
        return _view(model)

    def reader(self, longest: int) -> Tokenizer:
        """What makes tokens of documents, at most so many."""
        tokenizer = self.pretrained_tokenizer
        return Tokenizer(backend(tokenizer), longest, tokenizer.unk_token_id)

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
        with quiet(), torch.random.fork_rng(devices=[]):
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

    # Probe

    def _probe(self) -> None:
        """Find out whether padding changes the answer, which row classifies, and what to offer."""
        longest = self.tokenizer.max_tokens - 1  # an encoder's text gets an end
        rows = [self._probe_row(min(n, longest)) for n in _PROBED]
        together = self._together(rows)
        alone = np.concatenate([self._together([row]) for row in rows])
        if not np.isfinite(alone).all():
            raise CheckpointError(f"The outputs of {self.name} are not finite numbers.")
        # the last is the longest, which was not padded
        if not self._close(alone[-1], together[-1]) and not self._close(
            self._together(rows[-1:]), alone[-1:]
        ):
            self.notes += ("The model's answer to the same text changes from pass to pass.",)
        self.even = not self._close(together, alone) or self.needs_even_batches()
        inputs, _ = self.inputs(rows[:1])
        reason = "it cannot be recorded in this family"
        with suppress(Exception):  # the code of a family may do anything: the rest still works
            reason = self._find_attention()
            if not reason:
                self._row = self._look(inputs)
                reason = self._verify(rows)
        if reason:
            self.offers -= _ATTENTION
            self.withheld = dict.fromkeys(sorted(_ATTENTION), reason)
            self._skippable, self._projections = False, ()
            self._row = self._find_row(inputs)

    def needs_even_batches(self) -> bool:
        """Whether padding changes answers to texts that are longer than those of the probe."""
        return hook.switches(self.model) or self._scaled_by_length()

    def _scaled_by_length(self) -> bool:
        """Whether positions depend on the length of the longest text in a batch."""
        unscaled = prefix.unscaled(self.model.config)
        return unscaled is not None and unscaled < longest(self.model, self.pretrained_tokenizer)

    def _together(self, rows: Sequence[Row]) -> Float[np.ndarray, "row label"]:
        return self.run([len(row.ids) for row in rows], rows.__getitem__)

    def _find_shortest(self) -> int:
        """The fewest tokens that the model can read; some families pool them, and fail on few."""
        for length in range(2, min(_PROBED)):
            with suppress(Exception):
                self._together([self._probe_row(length)])
                return 1 if length == 2 else length
        return min(_PROBED)

    def _close(self, a: Any, b: Any, near: float | None = None) -> bool:
        """Whether outputs are the same but for rounding, which is more in half precision."""
        a, b = (as_numbers(torch.as_tensor(x)) for x in (a, b))
        scale = max(1.0, float(np.abs(b).max()))
        return bool(np.abs(a - b).max() <= (near or self._near) * scale)

    def _find_attention(self) -> str:
        """Let recorders see attention; if that cannot be, why."""
        inputs, _ = self.inputs([self._probe_row(7)] * 2)
        batch, length = inputs["input_ids"].shape

        def run() -> None:
            with torch.no_grad():
                self.model(**inputs, **self._uncached)

        with recording(Recorder()) as recorder:
            run()
        attentions = [softmax.Attention.of(p.module, p.weights) for p in recorder.passed]
        attentions = attentions or softmax.find(self.model, run)
        if self.model.config.is_encoder_decoder:
            encoder = set(self.model.get_encoder().modules())
            # a decoder looks back at itself, and at all of the text
            over = [a for a in attentions if a.module not in encoder and not a.causal]
            hook.set_beside({a.module for a in attentions} - {a.module for a in over})
            attentions = over
        self.causal = bool(attentions) and all(a.causal for a in attentions)
        if not attentions:
            return "its family has no softmax over tokens"
        if any(a.shape[-2:] != (length, length) for a in attentions):
            return "its attention is not one weight for each pair of tokens"
        if not recorder.passed:
            if len({(a.module, a.run) for a in attentions}) < len(attentions):
                return "its layers have more than one attention each"
            softmax.install(attentions, batch)
        return ""

    def _look(self, inputs: dict[str, Tensor]) -> Literal["first", "last", "mean"]:
        """What one pass shows of attention: its layers, its maps, and the row that classifies."""
        recorder = Recorder()
        watching = hook.watching(self.model, recorder)
        with torch.enable_grad(), recording(recorder), watching as maps:
            output = self.model(**inputs, **self._uncached)
        self._depth = len(recorder.passed)
        self.offers |= {offer.ATTENTION, offer.REPLACEABLE}
        decoder = bool(self.model.config.is_encoder_decoder)
        self._skippable = not decoder and hook.make_skippable(self.model, recorder)
        if decoder:
            self.withheld[offer.BETWEEN] = (
                "its decoder attends to the text, which attends to itself in the encoder"
            )
        elif hook.mixes_otherwise(self.model, recorder):
            self.withheld[offer.BETWEEN] = "its tokens also meet outside of attention"
        else:
            self.offers |= {offer.BETWEEN}
        fed = [maps.fed.get(layer, []) for layer in range(self._depth)]
        if all(len(modules) == 1 for modules in fed):  # an adapter beside the map would be a second
            self._projections = tuple(modules[0] for modules in fed)
            self.offers |= {offer.PROJECTED}
        else:
            self.withheld[offer.PROJECTED] = "no single linear map follows its attention"
        weights = [layer.weights for layer in recorder.passed]
        gradients = torch.autograd.grad(_total(output.logits), weights, allow_unused=True)
        if any(gradient is None for gradient in gradients):
            self.withheld[offer.DIFFERENTIABLE] = "its output does not depend on all of them"
            return self._find_row(inputs)
        self.offers |= {offer.DIFFERENTIABLE}
        row = self._classifying(gradients[-1].abs().sum((1, 3))[0])
        if row == "first" and self._hooked:
            hook.keep_first_row(recorder, maps)
        return row

    def _find_row(self, inputs: dict[str, Tensor]) -> Literal["first", "last", "mean"]:
        """Which row classifies, where attention does not show it."""
        with torch.enable_grad(), recording(Recorder(layers=frozenset())):
            output = self.model(**inputs, **self._uncached, output_hidden_states=True)
        last = getattr(output, "hidden_states", None)
        length = inputs["input_ids"].shape[1]
        if not last or not last[-1].requires_grad or last[-1].shape[1] != length:
            return "mean"
        (gradient,) = torch.autograd.grad(_total(output.logits), last[-1], allow_unused=True)
        return "mean" if gradient is None else self._classifying(gradient.abs().sum(2)[0])

    def _classifying(self, moved: Float[Tensor, "row"]) -> Literal["first", "last", "mean"]:
        """Which row classifies, by how much the output moves with each."""
        if not moved.any():
            self.notes += (
                "Which row of attention classifies could not be found out: all are averaged.",
            )
        if int((moved > 0).sum()) != 1:
            return "mean"
        return "first" if moved[0] else "last"

    def _verify(self, rows: Sequence[Row]) -> str:
        """Whether traces give the model's answer; if not, why.

        Two batches of other lengths, one of them padded unless padding changes the answer. In one
        all layers get their own weights again, in the other the last attends to everything alike:
        where that does not arrive, weights cannot be replaced.
        """
        for batch in ([rows[0]] * 2 if self.even else rows, [self._probe_row(5)] * 3):
            inputs, real = self.inputs(batch)
            last = self._depth - 1
            with torch.no_grad():
                plain = self._spread(self.model(**inputs, **self._uncached).logits)
                trace, _ = self._recorded(inputs, real, {}, None, None, None)
                if not self._close(trace.logits, plain):
                    if self.even or batch is not rows:
                        return "its answer changes when its attention is written out"
                    # only with padding: windows without a token are not numbers in some families
                    self.even = True
                    return self._verify(rows)
                weights = dict(enumerate(trace.attention))
                if batch[0] is rows[0]:
                    other, recorder = self._recorded(inputs, real, weights, None, None, None)
                    arrived = self._close(other.logits, plain)
                else:
                    even = torch.full_like(weights[last], 1 / real.shape[1])
                    other, recorder = self._recorded(inputs, real, {last: even}, None, None, None)
                    layer = recorder.passed[last]
                    weighted = even.to(layer.values), layer.values
                    literal = torch.einsum("bhqk,bhkd->bqhd", *weighted)
                    arrived = self._close(layer.outputs, literal)
            # rows of padding may hold anything
            kept, seen = ([w.nan_to_num() for w in t.attention[:last]] for t in (trace, other))
            below = all(self._close(a, b) for a, b in zip(seen, kept, strict=True))
            if not (arrived and below):
                self.offers -= {offer.REPLACEABLE}
                self.withheld[offer.REPLACEABLE] = "other weights than its own do not arrive"
        return ""

    def _find_filler(self) -> tuple[int, tuple[offer.Removal, ...]]:
        """What stands in for a word, and the ways to remove one, the usual first."""
        tokenizer, config = self.pretrained_tokenizer, self.model.config
        named = [getattr(tokenizer, f"{kind}_token_id") for kind in _MARKS]
        named += [getattr(config, f"{kind}_token_id", None) for kind in _MARKS]
        marks = {i for ids in named for i in (ids if isinstance(ids, list) else [ids])}
        marks |= {self._pad}
        candidates = (tokenizer.mask_token_id, tokenizer.unk_token_id)
        usable = [i for i in candidates if i is not None and i < self._embedded]
        # a mark in place of a word would end the text, or start another
        fillers = [int(i) for i in usable if i not in marks and not _ends(tokenizer, i)]
        row = self._probe_row(7)
        hidden = row._replace(seen=np.arange(len(row.ids)) != 3)
        before, after = self._together([row]), self._together([hidden])
        # some families see no mask, and some cannot read what is left of a text
        ways = {"replace", "delete", "hide"} if fillers else {"delete", "hide"}
        ways -= set() if not np.array_equal(before, after) else {"hide"}
        ways -= {"delete"} if self._shortest > 1 else set()
        if fillers:
            usual: list[offer.Removal] = ["replace", "delete", "hide"]
            return fillers[0], tuple(way for way in usual if way in ways)
        order: list[offer.Removal] = ["delete", "hide"] if self.causal else ["hide", "delete"]
        removals = tuple(way for way in order if way in ways)
        how = {"hide": "hidden from attention", "delete": "deleted"}[removals[0]]
        self.notes += (
            "The tokenizer has no token that can stand in for a word: to remove words, they are"
            f" {how}.",
        )
        return self._pad, removals

    def _find_shared(self) -> int:
        """Up to how many tokens texts that begin alike may be read once up to where they part.

        None, unless the answers then are the same: with padding, with a token that is hidden, and
        in a text longer than a window if it is short. Else texts must fit into the window.
        """
        if not self.causal or not _takes(self.model, "past_key_values"):
            return 0
        if self._scaled_by_length():  # the keys of a beginning change with what follows
            return 0
        window, most = prefix.window(self.model.config), self.tokenizer.max_tokens
        length = min(most, 24 if window is None or window > 64 else window + 24)
        rows = [self._probe_row(n) for n in (length, length, length - 3)]
        seen = np.arange(length) != length - 5
        rows[1] = rows[1]._replace(seen=seen)
        with suppress(Exception):  # the code of a family may do anything
            plain = self._together(rows)
            self.shares = most
            if self._close(self._together(rows), plain, devices.shared_slack(self.model.dtype)):
                return most if window is None or window < length else window
        return 0

    def _leaves_gaps(self) -> bool:
        """Whether a text without its hidden tokens gives the answer of the text that hides them.

        That is so where nobody reads a hidden token, and the others can be told their places. It
        takes half the time where half of a text is hidden.
        """
        ruled_out = self.shares or self.even or "hide" not in self.removals
        # layers that look back only some tokens count those that are there
        windowed = prefix.window(self.model.config) is not None
        if ruled_out or windowed or self.lacks({offer.ATTENTION}):
            return False
        if not _takes(self.model, "position_ids"):
            return False
        length = min(self.tokenizer.max_tokens - 1, max(_PROBED))
        row = self._probe_row(length)
        hidden = [(3,), (length - 1,), range(2, length - 1)]
        seen = [~np.isin(np.arange(length), h) for h in hidden]
        rows = [row._replace(seen=s) for s in seen]
        left = [np.flatnonzero(s) for s in seen]
        gaps = [Row(row.ids[i], row.types[i], None, i) for i in left]
        near = devices.shared_slack(self.model.dtype)
        # some families count places from behind the id of padding
        for first_place in (0, self._pad + 1):
            self._first_place = first_place
            with suppress(Exception):  # the code of a family may do anything
                if self._close(self._together(gaps), self._together(rows), near):
                    return True
        return False

    def _probe_row(self, length: int, shift: int = 0) -> Row:
        """A text of so many tokens, which the model has embeddings of; others with a `shift`."""
        most = min(len(self.tokenizer), self._embedded)  # added tokens may have no embedding
        ids = [i for i in range(max(0, most - 8), most) if i != self._pad][-7:]
        ends = [self.model.config.eos_token_id] if self.model.config.is_encoder_decoder else []
        tokens = np.append(np.resize(np.roll(ids, shift), length), ends).astype(np.int64)
        return Row(tokens, np.zeros_like(tokens))

    def _lacks_gradients(self) -> str:
        """Why gradients are not offered; "" if they are."""
        if not self.gradients_at:
            return "its family does not look up tokens in a table"
        if self.model.config.model_type in _ESTIMATED:
            return "its family estimates its gradients"
        inputs, real = self.inputs([self._probe_row(7)])
        with torch.enable_grad(), suppress(Exception):
            trace, _ = self._recorded(inputs, real, {}, None, (), None)
            torch.autograd.grad(_total(trace.logits), trace.embeddings)
            return ""
        return "its family has none outside of training"

    def _find_block(self) -> tuple[At, ...]:
        """Where gradients can be taken: at the block, if words reach the output through it alone.

        The block ends where embeddings enter the first layer.
        """
        inputs, real = self.inputs([self._probe_row(5)] * 3)

        def run() -> None:
            with torch.no_grad():
                self.model(**inputs, **self._uncached)

        entrance = hook.find_entrance(self.model, run, *inputs["input_ids"].shape)
        looked_up: tuple[At, ...] = ("lookup",) if hook.lookup(self.model) is not None else ()
        if entrance is None:
            return looked_up
        entrance.install()
        others, _ = self.inputs([self._probe_row(5, shift=3)] * 3)
        with torch.no_grad():
            self.gradients_at = ("block", "lookup")
            trace, _ = self._recorded(inputs, real, {}, None, (), "block")
            again, _ = self._recorded(others, real, {}, trace.embeddings, (), "block")
        # other words with the embeddings of the first: the same, unless words take another way
        scale = trace.logits.abs().max().clamp(min=1)
        same = (trace.logits - again.logits).abs().max() < self._near / 10 * scale
        return ("block", *looked_up) if same else looked_up


def _places(row: Row) -> Int[np.ndarray, "token"]:
    return np.arange(len(row.ids)) if row.places is None else row.places


def _total(logits: Float[Tensor, "batch label"]) -> Float[Tensor, ""]:
    """Any combination of logits, but not their sum: heads may be trained to opposite weights."""
    return (logits * torch.linspace(1, 2, logits.shape[-1], device=logits.device)).sum()


def _ends(tokenizer: PreTrainedTokenizerBase, token: int) -> bool:
    """Whether a token ends texts, by its name."""
    name = str(tokenizer.convert_ids_to_tokens(token)).casefold()
    return re.search("end.?of.?text|eot|eos|</s>", name) is not None


def check_fast(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Refuse a tokenizer that does not say which characters its tokens come from."""
    if not getattr(tokenizer, "is_fast", False):
        raise CheckpointError(
            f"The tokenizer of {name} has no fast version, which heed needs to find words in the"
            " text."
        )


def backend(tokenizer: PreTrainedTokenizerBase) -> tokenizers.Tokenizer:
    """A copy of what a fast tokenizer runs."""
    return tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())


def load(model: str | Path, device: str = "cpu", dtype: str = "auto") -> Transformer:
    """A sequence classifier by its folder or hub id; safetensors only, no code of others."""
    network, tokenizer, missing = placed(model, device, dtype)
    if missing and is_causal(network.config):
        raise CheckpointError(
            f"{quoted(name_of(model))} is a language model: say how to ask it for a label, by"
            " --template and --labels, or by heed.prompted."
        )
    if missing:
        raise CheckpointError(
            f"The model {quoted(str(model))} is not a trained classifier: it lacks"
            f" {quoted(', '.join(missing[:3]))}."
        )
    classifier = Transformer(network, tokenizer, name_of(model))
    if (Path(model) / folders.FACTS).is_file():
        classifier.facts = folders.facts(Path(model))
    return classifier


def placed(
    model: str | Path, device: str, dtype: str, kind: Any = AutoModelForSequenceClassification
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[str]]:
    """As `read`, with the network on a device and in a precision that people name."""
    place = devices.choose(device)
    network, tokenizer, missing = read(model, devices.precision(dtype, place), kind)
    return _moved(network, place, model), tokenizer, missing


def _moved(network: PreTrainedModel, device: torch.device, name: str | Path) -> PreTrainedModel:
    """A network on its device."""
    try:
        return network.to(device)
    except RuntimeError as error:
        if not devices.is_out_of_memory(error):
            raise
    raise InputError(
        f"The model {quoted(str(name))} does not fit into the memory of {device}: use another"
        " --device, or half precision (--dtype bfloat16)."
    )


def wrap(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Transformer:
    """A model and its tokenizer as a user holds them; it stays where and as it is."""
    if hasattr(model, "get_base_model"):  # of PEFT, whose adapters are inside of the base
        model = model.get_base_model()
    if not any(cls.__name__.endswith("ForSequenceClassification") for cls in type(model).__mro__):
        kind = type(model).__name__
        asked = ": ask a language model by heed.prompted" if kind.endswith(CAUSAL) else ""
        raise InputError(f"heed explains sequence classifiers, got {kind}{asked}.")
    name = model.config.name_or_path or model.config.model_type
    return Transformer(model, tokenizer, name_of(name))


def is_causal(config: Any) -> bool:
    """Whether a model was saved as a language model, which goes on with a text."""
    return any(str(name).endswith(CAUSAL) for name in config.architectures or ())


def read(
    model: str | Path,
    dtype: torch.dtype | str = torch.float32,
    kind: Any = AutoModelForSequenceClassification,
    **options: Any,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[str]]:
    """A network on the CPU, its tokenizer, and names of weights that the files lack."""
    safe: dict[str, Any] = {"trust_remote_code": False}
    name = quoted(str(model))
    with folders.reading(f"The model {name} cannot be loaded"), quiet():
        if not Path(model).exists() and not _hub_answers():
            safe["local_files_only"] = True  # what was downloaded before can still be read
        try:
            config = AutoConfig.from_pretrained(model, **safe)
        except OSError as error:
            if "connect to" not in str(error):
                raise
            raise CheckpointError(
                f"There is no folder {name}, and the Hugging Face hub could not be reached."
            ) from None
        if getattr(config, "num_hidden_layers", 0) > _MOST_LAYERS:
            raise ValueError(f"its config.json names {config.num_hidden_layers} layers")
        tokenizer = AutoTokenizer.from_pretrained(model, **safe)
        safe |= {"use_safetensors": True, "output_loading_info": True, "dtype": dtype}
        network, info = kind.from_pretrained(model, **safe, **options)
        vocabulary = int(getattr(network.config, "vocab_size", 0))
    if 10 * len(tokenizer) < vocabulary:  # the library makes one up where files lack
        raise CheckpointError(
            f"The model {name} comes without its tokenizer: put its files beside the weights."
        )
    return network, tokenizer, sorted(info["missing_keys"])


def _hub_answers() -> bool:
    """Whether the hub can be reached, asked once: its own library tries for half a minute."""
    with suppress(Exception):
        get_session().head(hub.ENDPOINT, timeout=5)
        return True
    return False


def name_of(model: str | Path) -> str:
    """A folder goes by its last part, a hub id as it is."""
    return Path(model).absolute().name if Path(model).exists() else str(model)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and reports of `transformers`: heed says what matters in them."""
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    hub_level = hub_logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    hub_logging.set_verbosity(ERROR)  # it tells of every attempt to reach the hub
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hub_logging.set_verbosity(hub_level)
        if bars:
            logging.enable_progress_bar()


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
