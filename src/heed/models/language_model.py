"""A causal language model with words for labels is a sequence classifier.

Its last matrix is the rows of the label words: the logit of a label is the language model's own
logit of the label's token behind the prompt. The output embedding is run for that one row only, by
the model's own code, so that scales and soft caps stay the model's business.

A label may have several words: their probabilities are added up. A word may have several tokens:
those behind the first are read from the keys and values that the prompt left, and log-probabilities
of tokens are added up. Attention and embeddings are those of the prompt.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from heed.errors import CheckpointError, InputError, quoted
from heed.models import folders, hook, prefix, pretrained
from heed.models.arrays import Mask, Rows
from heed.models.devices import as_numbers
from heed.models.passes import Row, pad
from heed.models.sources import read_json
from heed.models.template import Prompt, PromptTokenizer
from heed.models.transformer import Transformer
from heed.store import key_of
from heed.text import Document, Tokenizer

_PLAIN = "It is what it is."  # a text behind which a prompt is tried
_LITTLE = 0.05  # a share of the next token's probability below which a prompt asks badly


class Forward(Protocol):
    def __call__(self, **inputs: Any) -> Any: ...


@dataclass(frozen=True)
class Completions:
    """The tokens that may follow a prompt, and the labels that they stand for.

    words        the tokens of each word
    owners       the label of each word
    normalised   whether logits become log-probabilities, which can be added up over tokens
    """

    words: tuple[tuple[int, ...], ...]
    owners: tuple[int, ...]
    normalised: bool

    @classmethod
    def of(cls, prompt: Prompt, tokenizer: PromptTokenizer) -> Completions:
        """The tokens of a prompt's label words."""
        tokens: dict[tuple[int, ...], str] = {}
        owners = []
        for label, (name, words) in enumerate(prompt.words.items()):
            for word in words:
                ids = tokenizer.continuation(word)
                if not ids or tokenizer.unknown in ids:
                    raise InputError(f"The tokenizer does not know the word '{quoted(word)}'.")
                if ids in tokens:
                    raise InputError(
                        f"The words '{quoted(tokens[ids])}' and '{quoted(word)}' are the same to"
                        f" the tokenizer: give '{quoted(name)}' another."
                    )
                tokens[ids] = word
                owners.append(label)
        longer = any(len(ids) > 1 for ids in tokens)
        return cls(tuple(tokens), tuple(owners), longer or prompt.calibrate)

    @property
    def longer(self) -> list[int]:
        """The words of several tokens."""
        return [i for i, word in enumerate(self.words) if len(word) > 1]

    def first(self, following: Float[Tensor, "batch vocabulary"]) -> Float[Tensor, "batch word"]:
        """What the token that follows the prompt says of each word's first token."""
        if self.normalised:
            following = log_probabilities(following)
        return _columns(following, [word[0] for word in self.words])

    def by_label(self, words: Float[Tensor, "batch word"]) -> Float[Tensor, "batch label"]:
        """Logits of words as logits of labels."""
        listed: dict[int, list[int]] = {}
        for word, label in enumerate(self.owners):
            listed.setdefault(label, []).append(word)
        return torch.stack([_columns(words, i).logsumexp(1) for i in listed.values()], 1)


def _columns(table: Float[Tensor, "row _"], numbers: Sequence[int]) -> Float[Tensor, "row _"]:
    return table[:, torch.tensor(numbers, device=table.device)]


def log_probabilities(logits: Float[Tensor, "*batch token"]) -> Float[Tensor, "*batch token"]:
    """In single precision at least: half is too coarse to add them up in."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


class Prompted(Transformer):
    """A causal language model that a prompt asks for a label."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        prompt: Prompt,
    ):
        pretrained.check_fast(tokenizer, name)
        self.prompt = prompt
        self.pretrained_tokenizer = tokenizer
        self._offset: Tensor | None = None
        self._prompts = self._tokenizer(sys.maxsize)
        self.completions = Completions.of(prompt, self._prompts)
        super().__init__(model, tokenizer, name)
        self.pairs = prompt.template.pairs
        words = "; ".join(
            f"{label}: {', '.join(map(repr, words))}" for label, words in prompt.words.items()
        )
        self.notes += (f"The prompt is {prompt.template.text!r}. Its answers are {words}.",)
        self.notes += (self._share_of_answers(),)
        if self.completions.longer:
            self._check_longer()
            self.notes += (
                "Some labels have several tokens: attention is that from which the first is"
                " predicted.",
            )
        if prompt.calibrate:
            blank = self.tokenizer([self._prompts.empty])
            if not len(blank[0]):
                raise InputError(
                    "Calibration reads the template with an empty text, which has no token here:"
                    " add words to the template."
                )
            self._offset = torch.from_numpy(self.logits(blank))
            offsets = zip(self.labels, self._offset[0].tolist(), strict=True)
            listed = ", ".join(f"{label} {offset:.3g}" for label, offset in offsets)
            self.notes += (
                f"Calibrated: log-probabilities behind an empty text were subtracted ({listed}).",
            )

    def _share_of_answers(self) -> str:
        """How much of what the model would say next the answers hold, behind a plain text.

        Probabilities of labels are shares among the answers. A prompt that does not ask for them
        gives such shares all the same.
        """
        (tokens,) = self.tokenizer([Document(_PLAIN, _PLAIN if self.pairs else None)])
        ids = torch.from_numpy(tokens.ids)[None].to(self._device)
        last = torch.arange(ids.shape[1], device=ids.device)[None] == ids.shape[1] - 1
        forward = self.model.forward.args[0]  # that of the language model
        with torch.no_grad(), _asking(last):
            following = forward(input_ids=ids, use_cache=False).logits[0, -1]
        probabilities = np.exp(as_numbers(log_probabilities(following)))
        share = probabilities[sorted({word[0] for word in self.completions.words})].sum()
        likeliest = int(probabilities.argmax())
        said = self.pretrained_tokenizer.decode([likeliest])
        few = " That is little: ask so that they are what follows." if share < _LITTLE else ""
        return (
            f"Probabilities are shares among the answers. Behind the plain text {_PLAIN!r}, the"
            f" answers hold {share:.2g} of the next token's probability; the likeliest token is"
            f" {said!r} ({probabilities[likeliest]:.2g}).{few}"
        )

    @cached_property
    def revision(self) -> str:  # type: ignore[override]
        """Another prompt is another classifier."""
        prompt = self.prompt
        words = [[label, *words] for label, words in prompt.words.items()]
        about = [prompt.template.text, words, prompt.chat, prompt.calibrate]
        return key_of(super().revision, *about)[:12]

    def like(self, network: PreTrainedModel, name: str) -> Prompted:
        return Prompted(network, self.pretrained_tokenizer, name, self.prompt)

    def reader(self, longest: int) -> Tokenizer:
        # behind the prompt, all tokens of a word but the last are read
        behind = max(len(word) for word in self.completions.words) - 1
        return self._tokenizer(longest - behind)

    def _tokenizer(self, longest: int) -> PromptTokenizer:
        backend = pretrained.backend(self.pretrained_tokenizer)
        unknown = self.pretrained_tokenizer.unk_token_id
        marked = not self.prompt.chat
        return PromptTokenizer(backend, longest, unknown, self.prompt.template, marked)

    def opened(self, model: PreTrainedModel) -> PreTrainedModel:
        """A view of the language model whose logits are those of the labels."""
        model = super().opened(model)
        config, tokenizer = model.config, self.pretrained_tokenizer
        config.id2label = dict(enumerate(self.prompt.words))
        config.label2id = {name: i for i, name in enumerate(self.prompt.words)}
        config.problem_type = "single_label_classification"
        # any token will do: padding is masked, and `classified` says which row is asked
        candidates = (config.pad_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
        config.pad_token_id = next(i for i in candidates if i is not None and i >= 0)
        head = model.get_output_embeddings()
        if isinstance(head, nn.Module):
            head.register_forward_pre_hook(_take_classified)
        positioned = "position_ids" in inspect.signature(model.forward).parameters
        model.forward = partial(_answer, model.forward, self.completions, positioned)
        return model

    def inputs(self, rows: Sequence[Row]) -> tuple[dict[str, Tensor], Mask]:
        """The last token of the prompt is asked for what follows."""
        inputs, real = super().inputs(rows)
        last = torch.tensor([len(row.ids) - 1 for row in rows])
        classified = torch.arange(real.shape[1]) == last[:, None]
        return inputs | {"classified": classified.to(self._device)}, real

    def _rows(self, inputs: Mapping[str, Tensor]) -> Rows:
        return inputs["classified"].cpu().long().argmax(1)

    def _spread(self, logits: Float[Tensor, "batch label"]) -> Float[Tensor, "batch label"]:
        logits = super()._spread(logits)
        if self._offset is None:
            return logits
        # rounded first, because not every device knows double precision
        return logits - self._offset.to(logits.dtype).to(logits.device)

    def needs_even_batches(self) -> bool:
        """The tokens of a word follow the padding of a prompt, which takes room in a window."""
        window = prefix.window(self.model.config)
        short = window is not None and window < pretrained.longest(
            self.model, self.pretrained_tokenizer
        )
        return (bool(self.completions.longer) and short) or super().needs_even_batches()

    def _check_longer(self) -> None:
        """Refuse labels of several tokens where reading on from a prompt changes what it says.

        Families that count positions by what is seen go on elsewhere behind a hidden word: there,
        words cannot be hidden.
        """
        row = self._probe_row(7)
        if not self._reads_on(row._replace(seen=np.arange(len(row.ids)) != 3)):
            self.removals = tuple(way for way in self.removals if way != "hide")
        if not self._reads_on(row) or not self.removals:
            raise CheckpointError(
                f"The family {self.model.config.model_type} cannot read on behind a prompt: give"
                " words of one token each."
            )

    def _reads_on(self, row: Row) -> bool:
        """Whether the answer is that of one pass for each word, over the prompt and the word."""
        forward = self.model.forward.args[0]  # that of the language model
        seen = np.ones(len(row.ids), dtype=bool) if row.seen is None else row.seen
        summed = []
        for word in self.completions.words:
            more = np.ones(len(word) - 1, dtype=bool)
            ids, types = np.append(row.ids, word[:-1]), np.append(row.types, np.zeros_like(more))
            inputs, _ = super().inputs([Row(ids, types, np.append(seen, more))])
            with torch.no_grad():
                following = forward(**inputs, use_cache=False).logits[0]
            behind = log_probabilities(following)[len(row.ids) - 1 :].cpu()
            summed.append(behind.gather(1, torch.tensor(word)[:, None]).sum())
        literal = self.completions.by_label(torch.stack(summed)[None])
        return self._close(self._together([row]), literal)


# The forward pass of the view

# which token of each text is asked; where nothing is set, all of them are
_classified: ContextVar[Mask | None] = ContextVar("heed_classified", default=None)


@contextmanager
def _asking(classified: Mask | None) -> Iterator[None]:
    token = _classified.set(classified)
    try:
        yield
    finally:
        _classified.reset(token)


def _take_classified(head: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Let the output embedding compute one row of each text, not a vocabulary for each token."""
    classified = _classified.get()
    states, *others = inputs
    if classified is None or states.shape[:2] != classified.shape:
        return None
    return states[classified][:, None], *others


def _answer(
    forward: Forward,
    completions: Completions,
    positioned: bool,
    *,
    classified: Mask,
    attention_mask: Tensor,
    past_key_values: Any = None,
    **inputs: Any,
) -> Any:
    """The language model's output, with logits of labels in place of those of tokens."""
    recorder, cache, rest = hook.current(), past_key_values, None
    if recorder is not None and recorder.given is not None:
        # of the prompt, one row is run: what follows a first token reads the others, and is known
        rest = recorder.beside
    elif completions.longer and cache is None:
        cache = DynamicCache()
    inputs |= {"use_cache": cache is not None, "past_key_values": cache}
    with _asking(classified):
        output = forward(attention_mask=attention_mask, **inputs)
    # a family may not run its output embedding as a module: then all rows are there
    whole = output.logits.shape[:2] == classified.shape
    words = completions.first(output.logits[classified] if whole else output.logits[:, 0])
    if completions.longer:
        if rest is None:
            read_on = _Continuation(completions, cache, classified, attention_mask, positioned)
            rest = read_on.log_probabilities(forward)
        if recorder is not None:
            recorder.beside = rest
        longer = torch.tensor(completions.longer, device=words.device)
        words = words.index_add(1, longer, rest.to(words.dtype))
    output.logits = completions.by_label(words)
    return output


@dataclass(frozen=True)
class _Continuation:
    """What follows a prompt and the first token of a word.

    cache        keys and values of the prompt
    positioned   whether the family takes positions; else it counts them itself
    """

    completions: Completions
    cache: Any
    classified: Mask
    attention_mask: Tensor
    positioned: bool

    def log_probabilities(self, forward: Forward) -> Float[Tensor, "batch longer"]:
        """Of all tokens but the first, added up, for every word of several tokens."""
        words = [np.array(self.completions.words[i]) for i in self.completions.longer]
        device = self.attention_mask.device
        read, real = (t.to(device) for t in pad([word[:-1] for word in words]))
        predicted = pad([word[1:] for word in words])[0].to(device)
        batch, count = len(self.classified), len(words)
        mask = self.attention_mask.repeat_interleave(count, 0)
        more = real.repeat(batch, 1)
        inputs: dict[str, Any] = {
            "input_ids": read.repeat(batch, 1),
            "attention_mask": torch.cat([mask, more.to(mask.dtype)], 1),
            "past_key_values": repeated(self.cache, count),
            "use_cache": True,
        }
        if self.positioned:
            inputs["position_ids"] = self._positions(count, read.shape[1])
        with hook.unrecorded(), _asking(None):
            following = log_probabilities(forward(**inputs).logits)
        taken = following.gather(2, predicted.repeat(batch, 1)[..., None]).squeeze(2)
        return (taken * more).sum(1).unflatten(0, (batch, count))

    def _positions(self, count: int, length: int) -> Tensor:
        """They go on behind the last token of each prompt, whatever padding follows it."""
        before = self.attention_mask.shape[1] - self.classified.shape[1]
        last = before + self.classified.long().argmax(1).repeat_interleave(count)
        return last[:, None] + 1 + torch.arange(length, device=last.device)


def repeated(cache: Any, count: int) -> DynamicCache:
    """Keys and values of each text, so many times."""
    layers = [(layer.keys, layer.values) for layer in cache.layers]
    return DynamicCache([tuple(t.repeat_interleave(count, 0) for t in layer) for layer in layers])


def _refuse_classifier(model: str, folder: Path) -> None:
    """Say what a model is that has labels of its own."""
    config = folder / "config.json"
    made_for = read_json(config).get("architectures") if config.is_file() else None
    if any(str(name).endswith("ForSequenceClassification") for name in made_for or ()):
        raise CheckpointError(
            f"{quoted(model)} is a classifier with labels of its own, not a language model: leave"
            " out the template."
        )


def load(model: str, device: str, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal language model by its folder, hub id or public name."""
    place = folders.transformer_at(model)
    _refuse_classifier(model, Path(place))
    network, tokenizer, missing = pretrained.placed(place, device, dtype, AutoModelForCausalLM)
    if missing:
        raise CheckpointError(
            f"The model {quoted(model)} is not a causal language model: it lacks"
            f" {quoted(', '.join(missing[:3]))}."
        )
    return network, tokenizer
