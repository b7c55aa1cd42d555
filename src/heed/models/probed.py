"""What a network is found to offer, by running a few short texts when it is loaded.

Which query row classifies (the first, the last, or all of them averaged); whether padding changes
the answer; what the family shows of its attention: the weights, their gradients, and the linear map
that every layer puts behind the weighted values; whether a trace gives the model's own answer;
where gradients can be taken; how words can be removed; whether texts that begin alike can be read
once up to where they part, and hidden tokens left out. What does not hold is not offered, and
`withheld` says why.
"""

from __future__ import annotations

import inspect
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from heed.errors import CheckpointError
from heed.models import classifier as offer
from heed.models import devices, hook, prefix, pretrained, softmax
from heed.models.arrays import Attention, Embeddings, Mask, Rows
from heed.models.classifier import At
from heed.models.devices import as_numbers
from heed.models.hook import Recorder, recording
from heed.models.passes import Passes, Row
from heed.models.trace import Trace

_ATTENTION = frozenset(
    {offer.ATTENTION, offer.REPLACEABLE, offer.BETWEEN, offer.DIFFERENTIABLE, offer.PROJECTED}
)
_PROBED = (7, 5, 12)  # lengths of texts in the probe, the longest last
_ESTIMATED = {"yoso"}  # families whose backward pass is not the derivative of the forward pass
_MARKS = ("bos", "eos", "pad", "sep", "cls")  # tokens that are no words


class Probed(Passes):
    """A classifier that runs a network of Hugging Face's libraries, and finds out about it.

    shares   the length of the longest texts that are read once up to where they part; 0 if none are
    """

    withheld: dict[str, str]
    model: PreTrainedModel
    pretrained_tokenizer: PreTrainedTokenizerBase
    shares = 0
    _row: Literal["first", "last", "mean"]
    _depth = 0  # layers with attention
    _shortest = 1  # tokens that a text must have
    _skippable = False  # whether the last layer can be run again alone
    _first_place = 0  # the position of a text's first token, where positions are given
    _projections: tuple[nn.Module, ...] = ()
    _embedded: int  # ids that have an embedding
    _pad: int
    _near: float  # how far outputs may differ by rounding
    _hooked: bool  # whether the network calls heed's attention function
    _uncached: dict[str, Any]

    @abstractmethod
    def inputs(self, rows: Sequence[Row]) -> tuple[dict[str, Tensor], Mask]:
        """What the model takes, padded on the right and on its device, and which of it is real."""

    @abstractmethod
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

    @abstractmethod
    def _spread(self, logits: Float[Tensor, "batch output"]) -> Float[Tensor, "batch label"]:
        """The logits of all labels, in single precision at least."""

    @abstractmethod
    def _rows(self, inputs: Mapping[str, Tensor]) -> Rows:
        """The row that classifies."""

    def _find_out(self) -> None:
        """Set what the network offers, its notes, and how it can be run and words removed."""
        self.offers, self.withheld = frozenset({offer.GRADIENT}), {}
        self._probe()
        self._shortest = self._find_shortest()
        self.gradients_at = self._find_block()
        if reason := self._lacks_gradients():
            self.offers -= {offer.GRADIENT}
            self.withheld[offer.GRADIENT] = reason
        if self.model.config.is_encoder_decoder:
            self.notes += (
                "The decoder reads the text again: gradients are those through the encoder alone.",
            )
        self.filler, self.removals = self._find_filler()
        self.shares = self._find_shared()
        self.gaps = self._leaves_gaps()

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
        return unscaled is not None and unscaled < pretrained.longest(
            self.model, self.pretrained_tokenizer
        )

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
        if not self.causal or not takes(self.model, "past_key_values"):
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
        if not takes(self.model, "position_ids"):
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


def takes(model: PreTrainedModel, argument: str) -> bool:
    """Whether a network takes an input of this name."""
    return argument in inspect.signature(model.forward).parameters


def _total(logits: Float[Tensor, "batch label"]) -> Float[Tensor, ""]:
    """Any combination of logits, but not their sum: heads may be trained to opposite weights."""
    return (logits * torch.linspace(1, 2, logits.shape[-1], device=logits.device)).sum()


def _ends(tokenizer: PreTrainedTokenizerBase, token: int) -> bool:
    """Whether a token ends texts, by its name."""
    name = str(tokenizer.convert_ids_to_tokens(token)).casefold()
    return re.search("end.?of.?text|eot|eos|</s>", name) is not None
