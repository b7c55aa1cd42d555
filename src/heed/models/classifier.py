"""The four doors: all that heed asks of a model.

logits     the output for whole documents
score      the output when only some of the words are present, for many choices of words at once
trace      what a pass showed, or would show if attention or embeddings were these;
           differentiable in both
gradient   of the output with respect to the embeddings

Methods and claims call these four and nothing else, so batching, padding, removal and memory are
settled here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.data import Dataset, documents
from heed.data.inputs import is_one
from heed.errors import InputError, NotApplicable, OutOfMemory, UnknownName
from heed.models import devices
from heed.models.devices import as_numbers
from heed.models.trace import Trace
from heed.progress import say
from heed.text import Tokenizer, Tokens

if TYPE_CHECKING:  # methods are listed and checked without loading torch
    from torch import Tensor

    from heed.algebra.ratios import Ratios
    from heed.models.arrays import Attention, Embeddings

T = TypeVar("T")
Logits = Float[np.ndarray, "batch label"]
Keep = Bool[np.ndarray, "_ _"]  # a row for each choice of words, a column for each word
Groups = Int[np.ndarray, "_"]  # the column that each token follows
ColumnNames = Mapping[str, str | None]  # the names of a table's columns, by what they hold
Output = Literal["logit", "log-odds", "probability"]
Removal = Literal["replace", "hide", "delete"]
At = Literal["block", "lookup"]  # where gradients are taken: what enters the first layer, or words
REMOVALS: tuple[Removal, ...] = ("replace", "hide", "delete")
OUTPUTS: tuple[Output, ...] = ("logit", "log-odds", "probability")

NO_PAIRS = "The model was not trained on pairs: its output for two texts means little."

# What a model may offer and a method may need.
ATTENTION, REPLACEABLE, GRADIENT = "attention", "replaceable attention", "gradients"
BETWEEN = "attention between all tokens"  # not only that of the row that classifies
DIFFERENTIABLE = "gradients of attention"
PROJECTED = "projected values"  # what a layer makes of the values that attention adds up
CLOSED = "a closed form"  # outputs as sums of ratios of sums over words


class Gradient(NamedTuple):
    """Embeddings of one document (and of padding that attends), and the gradient of its output.

    rounding   the relative precision in which the model computed them
    """

    embeddings: Float[np.ndarray, "row dim"]
    gradient: Float[np.ndarray, "row dim"]
    rounding: float = float(np.finfo(np.float32).eps)


class Attending(NamedTuple):
    """Documents as a model reads them, and what it would say if its last layer attended elsewhere.

    trace     the pass as it is
    logits    what the model would output if the classifying row attended like this; a function of
              the rows, and differentiable in them
    cheap     whether that takes less than a whole pass
    linear    whether it is a sum over keys, plus what does not depend on attention
    """

    trace: Trace
    logits: Callable[[Attention], Float[Tensor, "*variant batch label"]]
    cheap: bool = True
    linear: bool = False


class Classifier(ABC):
    """A text classifier.

    name, revision   what provenance says of the model
    labels           their names, in the order of the logits
    offers           which it has of ATTENTION, REPLACEABLE, GRADIENT, BETWEEN, DIFFERENTIABLE,
                     PROJECTED, CLOSED
    withheld         why it does not offer something, in words, by what it does not offer
    removals         the ways in which it can remove a word, the default first
    filler           the id that stands in for a word removed by "replace"
    gradients_at     where embeddings can be read and replaced, the default first: "lookup" is what
                     the tokens look up, "block" what enters the first layer
    pairs            whether it was trained on pairs of texts
    exclusive        whether a document has one label (softmax) or any number of them (a sigmoid
                     for each)
    notes            what a user of the model should know
    batch_tokens     how many tokens a batch may hold; halved when one does not fit into memory
    even             whether only documents of equal length may share a batch
    causal           whether a token attends only to itself and to those before it
    rounding         the relative precision of its numbers: the spacing at 1
    runs             where and in what precision, if not on the CPU in single precision
    """

    name: str
    revision: str
    labels: tuple[str, ...]
    offers: frozenset[str]
    withheld: Mapping[str, str] = MappingProxyType({})
    removals: tuple[Removal, ...]
    filler: int
    gradients_at: tuple[At, ...] = ("lookup",)
    pairs: bool = True
    exclusive: bool = True
    notes: tuple[str, ...] = ()
    batch_tokens: int = 20_000
    even: bool = False
    causal: bool = False
    rounding: float = float(np.finfo(np.float32).eps)
    runs: str = ""
    tokenizer: Tokenizer

    @property
    def half(self) -> bool:
        """Whether it computes in half precision."""
        return self.rounding > 1e-4

    # The four doors

    @abstractmethod
    def logits(self, tokens: Sequence[Tokens]) -> Logits:
        """The output for each document."""

    def score(
        self,
        tokens: Sequence[Tokens],
        keep: Sequence[Keep],
        groups: Sequence[Groups] | None = None,
        removal: Removal | None = None,
    ) -> list[Float[np.ndarray, "_ label"]]:
        """The output of each document for each row of its `keep` (True = present).

        `groups` says which column of `keep` each token follows (-1: always present); by default the
        columns are words. Equal rows of a document are evaluated once.
        """
        removal = self.removal(removal)
        rows: list[Keep] = []
        indices: list[Int[np.ndarray, "_"]] = []
        count = 0
        for k, g in zip(keep, [t.word for t in tokens] if groups is None else groups, strict=True):
            distinct, index = distinct_rows(k)
            rows.append(np.where(g >= 0, distinct[:, g], True))
            indices.append(count + index)
            count += len(distinct)
        outputs = self.perturbed(tokens, rows, removal)
        return [outputs[index] for index in indices]

    def perturbed(
        self, tokens: Sequence[Tokens], present: Sequence[Keep], removal: Removal
    ) -> Float[np.ndarray, "row label"]:
        """What `score` rests on, unless a model overrides that: outputs with some tokens removed.

        One row for each row of `present`, which has a column for each token, document by document.
        """
        raise NotImplementedError

    @abstractmethod
    def trace(
        self,
        tokens: Sequence[Tokens],
        attention: Mapping[int, Attention] | None = None,
        embeddings: Embeddings | None = None,
        layers: Sequence[int] | None = None,
        at: At | None = None,
    ) -> Trace:
        """What one pass shows.

        With `attention` (by layer) or `embeddings` it is what the pass would show if they were
        these; `at` says which embeddings are meant. With `layers`, attention and values of the
        others may be left out (empty), where that saves time and memory.
        """

    def attending(self, tokens: Sequence[Tokens]) -> Attending:
        """A trace that can be asked again and again with other attention in the last layer.

        Models override it where what lies below that layer need not be computed again.
        """
        import torch

        with torch.no_grad():
            trace = self.trace(tokens, layers=[-1])
        last = len(trace.attention) - 1
        return Attending(
            trace,
            lambda rows: self.trace(tokens, attention={last: rows}, layers=()).logits,
            cheap=False,
        )

    def embeddings(self, tokens: Sequence[Tokens], at: At | None = None) -> Embeddings:
        """The embeddings of the tokens, where gradients are taken."""
        import torch

        with torch.no_grad():
            return self.trace(tokens, layers=(), at=at).embeddings

    def gradient(
        self,
        tokens: Sequence[Tokens],
        labels: Sequence[int],
        output: Output = "logit",
        held: bool | Collection[int] = False,
        at: At | None = None,
    ) -> list[Gradient]:
        """The gradient of each document's output for its label.

        One backward pass per batch, not per document. With `held`, attention stays as it is while
        the embeddings move: in all layers, or in those with these numbers. `at` says which
        embeddings are meant.
        """
        import torch

        def run(batch: list[int]) -> list[Gradient]:
            documents = [tokens[i] for i in batch]
            attention = None
            if held:
                with torch.no_grad():
                    own = enumerate(self.trace(documents).attention)
                attention = {layer: w for layer, w in own if held is True or layer in held}
            with torch.enable_grad():
                trace = self.trace(documents, attention=attention, layers=(), at=at)
                indices = torch.tensor([labels[i] for i in batch])
                total = select_output(trace.logits, indices, output, self.exclusive).sum()
                (gradient,) = torch.autograd.grad(total, trace.embeddings)
            rounding = torch.finfo(gradient.dtype).eps
            embeddings, slopes = as_numbers(trace.embeddings), as_numbers(gradient)
            return [
                Gradient(e[: self.width(t)], g[: self.width(t)], rounding)
                for e, g, t in zip(embeddings, slopes, documents, strict=True)
            ]

        return self.each(tokens, run)

    def ratios(
        self, tokens: Tokens, groups: Groups, units: int, label: int, removal: Removal = "replace"
    ) -> Ratios:
        """The output for a label in closed form, as a function of the units that are kept."""
        raise NotApplicable(
            f"The output of {self.name} has no closed form: it is not the single-layer classifier."
        )

    def head(self, index: int) -> Classifier:
        """What one attention head contributes to the output, as a classifier of its own."""
        raise NotApplicable(
            f"The heads of {self.name} do not add up to its output, so none can be explained alone."
        )

    def randomised(self, seed: int) -> Classifier:
        """The same model with weights that have learnt nothing."""
        raise NotApplicable(f"The weights of {self.name} cannot be drawn anew.")

    def width(self, tokens: Tokens) -> int:
        """How many keys a pass holds for a document, padding that attends included."""
        return len(tokens)

    def batches(self, tokens: Sequence[Tokens]) -> Iterator[list[int]]:
        """Indices of documents that may share a trace."""
        return batches([self.width(t) for t in tokens], self.batch_tokens, self.even)

    def each(self, tokens: Sequence[Tokens], run: Callable[[list[int]], Sequence[T]]) -> list[T]:
        """What `run` gives for each document, from indices of documents that may share a trace."""
        results: list[Any] = [None] * len(tokens)
        for batch, measured in self.in_batches([self.width(t) for t in tokens], run):
            for i, result in zip(batch, measured, strict=True):
                results[i] = result
        return results

    def in_batches(
        self,
        lengths: Sequence[int],
        run: Callable[[list[int]], T],
        limit: int | None = None,
        learns: bool = True,
    ) -> Iterator[tuple[list[int], T]]:
        """Run documents of these lengths, in batches of at most `limit` tokens.

        Gives the indices of each batch, and what came of it. A batch that does not fit into memory
        is run again in halves, and the model remembers the size, unless it `learns` nothing from
        lengths that are not in tokens.
        """
        limit = limit or self.batch_tokens
        waiting = deque(batches(lengths, limit, self.even))
        while waiting:
            batch = waiting.popleft()
            results = _attempt(run, batch)
            if results:
                yield batch, results[0]
                continue
            longest = max(lengths[i] for i in batch)
            if len(batch) == 1:
                raise OutOfMemory(
                    f"A text of {longest:,} tokens does not fit into memory: use another --device,"
                    " half precision (--dtype bfloat16), or shorter texts."
                )
            limit = len(batch) * longest // 2
            if learns:
                self.batch_tokens = min(self.batch_tokens, limit)
            left = [*batch, *chain.from_iterable(waiting)]
            smaller = batches([lengths[i] for i in left], limit, self.even)
            waiting = deque([left[position] for position in part] for part in smaller)

    # Conveniences on top

    def documents(
        self, texts: Any, columns: ColumnNames | None = None, keep_all: bool = False
    ) -> Dataset:
        """What somebody passed to be read by this model, as `heed.data.documents` takes it."""
        dataset = documents(texts, columns, self.pairs, keep_all)
        if not self.pairs and any(d.pair is not None for d in dataset.documents):
            say(NO_PAIRS)
        return dataset

    def tokens(self, texts: Sequence[Any]) -> list[Tokens]:
        texts = list(texts) if isinstance(texts, tuple) else texts
        return self.tokenizer(documents(texts, pairs=True, keep_all=True).documents)

    def __call__(self, texts: Any, columns: ColumnNames | None = None) -> Logits:
        """Logits for a list or table of texts, as `heed.data.documents` takes it."""
        if is_one(texts):
            raise InputError("A model takes a list of texts, got one text: put it into a list.")
        return self.logits(self.tokens(self.documents(texts, columns, keep_all=True).documents))

    def predict(self, texts: Any, columns: ColumnNames | None = None) -> Logits:
        """Probabilities for a list or table of texts, as `heed.data.documents` takes it."""
        return self.probabilities(self(texts, columns))

    def probabilities(
        self, logits: Float[np.ndarray, "*batch label"]
    ) -> Float[np.ndarray, "*batch label"]:
        return softmax(logits) if self.exclusive else 1 / (1 + np.exp(-logits))

    def label(self, label: int | str) -> int:
        """The index of a label given by its name or its index."""
        if isinstance(label, str):
            folded = [name.casefold() for name in self.labels]
            for name, names in ((label, list(self.labels)), (label.casefold(), folded)):
                if name in names:
                    return names.index(name)
            if not label.isdecimal():
                raise UnknownName("label", label, self.labels)
        elif isinstance(label, bool) or not isinstance(label, int | np.integer):
            raise InputError(f"A label is a name or an index, got {label!r}.")
        index = int(label)
        if not 0 <= index < len(self.labels):
            raise InputError(
                f"There is no label {label}: the model has {len(self.labels)},"
                f" {', '.join(self.labels)}."
            )
        return index

    def blank(self, tokens: Tokens) -> Tokens:
        """The same document with every word replaced."""
        return replace(tokens, ids=np.where(tokens.special, tokens.ids, self.filler))

    def lacks(self, needs: Set[str]) -> str:
        """What it does not offer of these needs, and why: "attention, which X does not offer"."""
        missing = sorted(needs - self.offers)
        reasons = [self.withheld[need] for need in missing if need in self.withheld]
        why = f": {reasons[0]}" if reasons else ""
        return f"{' and '.join(missing)}, which {self.name} does not offer{why}" if missing else ""

    def removal(self, removal: Removal | None) -> Removal:
        """The way of removing words that will be used."""
        if removal is None:
            return self.removals[0]
        if removal not in self.removals:
            raise UnknownName("way to remove words", removal, self.removals)
        return removal

    def place(self, at: At | None) -> At:
        """Where gradients will be taken."""
        if not self.gradients_at:
            raise NotApplicable(f"A trace needs {self.lacks({GRADIENT})}.")
        if at is None:
            return self.gradients_at[0]
        if at not in self.gradients_at:
            raise InputError(
                f"The model {self.name} has no embeddings at '{at}': use"
                f" {' or '.join(self.gradients_at)}."
            )
        return at


def distinct_rows(rows: Keep) -> tuple[Keep, Int[np.ndarray, "_"]]:
    """Each different row once, and which of them each row is."""
    # rows as strings of bits are compared at once, which is many times faster than by column
    packed = np.packbits(np.pad(rows, ((0, 0), (0, 1))), axis=1)
    strings = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, which = np.unique(strings, return_index=True, return_inverse=True)
    return rows[first], which


def softmax(logits: Float[np.ndarray, "*batch label"]) -> Float[np.ndarray, "*batch label"]:
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def output_of(
    logits: Float[np.ndarray, "*batch label"], label: int, output: Output, exclusive: bool = True
) -> Float[np.ndarray, "*batch"]:
    """The explained quantity: a logit, a probability, or the log-odds log p/(1-p) of a label."""
    if output == "logit" or (output == "log-odds" and not exclusive):
        return logits[..., label]
    if not exclusive:
        return 1 / (1 + np.exp(-logits[..., label]))
    if output == "probability":
        return softmax(logits)[..., label]
    others = np.delete(logits, label, -1)
    top = others.max(-1)
    return logits[..., label] - top - np.log(np.exp(others - top[..., None]).sum(-1))


def output_slope(
    logits: Float[np.ndarray, "label"], label: int, output: Output, exclusive: bool = True
) -> Float[np.ndarray, "label"]:
    """The derivative of `output_of` with respect to the logits."""
    unit = np.eye(len(logits))[label]
    if output == "logit" or (output == "log-odds" and not exclusive):
        return unit
    if not exclusive:
        p = output_of(logits, label, output, exclusive)
        return unit * p * (1 - p)
    if output == "probability":
        p = softmax(logits)
        return p[label] * (unit - p)
    others = np.where(unit > 0, -np.inf, logits)
    return unit - softmax(others)


def select_output(
    logits: Float[Tensor, "*batch label"],
    labels: Int[Tensor, "batch"],
    output: Output,
    exclusive: bool = True,
) -> Float[Tensor, "*batch"]:
    """`output_of` for one label per document, differentiable."""
    index = labels.to(logits.device).expand(logits.shape[:-1]).unsqueeze(-1)
    selected = logits.gather(-1, index).squeeze(-1)
    if output == "logit" or (output == "log-odds" and not exclusive):
        return selected
    if not exclusive:
        return selected.sigmoid()
    if output == "probability":
        return (selected - logits.logsumexp(-1)).exp()
    return selected - logits.scatter(-1, index, float("-inf")).logsumexp(-1)


def _attempt(run: Callable[[list[int]], T], batch: list[int]) -> tuple[T, ...]:
    """What a batch gives; nothing if it does not fit into memory."""
    try:
        return (run(batch),)
    except (RuntimeError, OutOfMemory) as error:
        if not devices.is_out_of_memory(error):
            raise
    # only here, because the error holds on to all that the pass has filled the memory with
    devices.release_memory()
    return ()


def batches(lengths: Sequence[int], tokens: int, even: bool = False) -> Iterator[list[int]]:
    """Indices of documents in batches of similar (or `even`: equal) length.

    A batch is padded to no more than so many tokens. If it holds a quarter of these, it ends where
    documents become much longer, so that little of it is padding.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batch:
            padded, shortest = (len(batch) + 1) * lengths[i], lengths[batch[0]]
            much_longer = 4 * padded > tokens and lengths[i] > 1.2 * shortest + 2
            if padded > tokens or much_longer or (even and lengths[i] != shortest):
                yield batch
                batch = []
        batch.append(i)
    if batch:
        yield batch
