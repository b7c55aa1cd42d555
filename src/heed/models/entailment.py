"""Zero-shot classification: a model of entailment reads the text with a hypothesis for each label.

The logit of a label is the model's logit for entailment of its hypothesis; where labels do not
exclude each other, it is that minus the one for contradiction. A hypothesis is context: it belongs
to no word and is never removed. Since the text is read once for each label, no attention is *the*
attention of the text: it is not offered. Gradients are those through all readings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import tokenizers
import torch
from jaxtyping import Float
from torch import Tensor, nn

from heed.errors import InputError, NotApplicable
from heed.models import classifier as offer
from heed.models import pretrained
from heed.models.arrays import Attention, Embeddings
from heed.models.classifier import At
from heed.models.passes import Passes, Row
from heed.models.trace import Trace
from heed.models.transformer import Transformer
from heed.store import key_of
from heed.text import TEMPLATE, Document, Placed, Tokenizer, Tokens

_ATTENTION = frozenset(
    {offer.ATTENTION, offer.REPLACEABLE, offer.BETWEEN, offer.DIFFERENTIABLE, offer.PROJECTED}
)


class PremiseTokenizer(Tokenizer):
    """Texts as the model reads them before a hypothesis, which always has room."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        max_tokens: int,
        unknown: int | None,
        hypotheses: Sequence[str],
    ):
        super().__init__(backend, max_tokens, unknown)
        self.hypotheses = [self._hypothesis(text) for text in hypotheses]
        longest = max(range(len(hypotheses)), key=lambda i: len(self.hypotheses[i].ids))
        self._longest = hypotheses[longest]
        self._behind = len(self.hypotheses[longest].ids)
        if len(self.backend.encode("", self._longest)) >= max_tokens:
            raise InputError("The hypothesis is longer than the model reads: shorten it.")

    def _hypothesis(self, text: str) -> Row:
        """All that stands behind the text."""
        encoding = self.backend.encode("", text)
        behind = slice(encoding.sequence_ids.index(1), None)
        ids, types = encoding.ids[behind], encoding.type_ids[behind]
        return Row(np.array(ids, dtype=np.int64), np.array(types, dtype=np.int64))

    def encode(self, documents: Sequence[Document]) -> list[tokenizers.Encoding]:
        if any(document.pair is not None for document in documents):
            raise InputError("The second text of a pair is the hypothesis: give single texts.")
        return self.backend.encode_batch([(d.text, self._longest) for d in documents])

    def place(self, document: Document, encoding: tokenizers.Encoding) -> Placed:
        segment, word, spans = super().place(document, encoding)
        behind = slice(encoding.sequence_ids.index(1), None)
        segment[behind], word[behind], spans[behind] = TEMPLATE, -1, 0
        return Placed(segment, word, spans)

    def tokens(self, document: Document, encoding: tokenizers.Encoding) -> Tokens:
        """Without the hypothesis, which is another one for each label."""
        whole = super().tokens(document, encoding)
        before = slice(len(whole) - self._behind)
        return replace(
            whole,
            ids=whole.ids[before],
            spans=whole.spans[before],
            segment=whole.segment[before],
            word=whole.word[before],
            types=whole.types[before],
            names=whole.names[before],
        )


class Entailed(Passes):
    """Labels by entailment.

    judge           the model of entailment
    hypotheses      by label
    entailment      the judge's label for it
    contradiction   the judge's label for it, where labels do not exclude each other
    """

    pairs = False

    def __init__(
        self,
        judge: Transformer,
        hypotheses: Mapping[str, str],
        entailment: int,
        contradiction: int | None = None,
    ):
        self.judge = judge
        self.hypotheses = dict(hypotheses)
        self.entailment = entailment
        self.contradiction = contradiction
        self.name = judge.name
        self.labels = tuple(hypotheses)
        self.exclusive = contradiction is None
        self.removals, self.filler = judge.removals, judge.filler
        self.gradients_at, self.causal, self.even = judge.gradients_at, judge.causal, judge.even
        self.rounding, self.runs = judge.rounding, judge.runs
        self.batch_tokens = max(1, judge.batch_tokens // (2 * len(hypotheses)))
        listed = "; ".join(f"{label}: {text!r}" for label, text in hypotheses.items())
        self.notes = (*judge.notes, f"The hypotheses are {listed}.")
        # readings of one text differ in length, so they need padding to share a trace
        gradients = offer.GRADIENT in judge.offers and not judge.even
        self.offers = frozenset({offer.GRADIENT} if gradients else ())
        self.withheld = dict.fromkeys(sorted(_ATTENTION), "it reads the text once for each label")
        self.tokenizer = self._reader = PremiseTokenizer(
            pretrained.backend(judge.pretrained_tokenizer),
            judge.tokenizer.max_tokens,
            judge.pretrained_tokenizer.unk_token_id,
            list(hypotheses.values()),
        )

    @cached_property
    def revision(self) -> str:  # type: ignore[override]
        """Other hypotheses are another classifier."""
        about = [list(self.hypotheses.items()), self.entailment, self.contradiction]
        return key_of(self.judge.revision, *about)[:12]

    def randomised(self, seed: int) -> Entailed:
        judge = self.judge.randomised(seed)
        return Entailed(judge, self.hypotheses, self.entailment, self.contradiction)

    # Passes: each row becomes one for each label

    def outputs(self, rows: Sequence[Row]) -> Float[np.ndarray, "row label"]:
        return self.run([len(row.ids) for row in rows], rows.__getitem__)

    def run(
        self, lengths: Sequence[int], row: Callable[[int], Row]
    ) -> Float[np.ndarray, "row label"]:
        hypotheses = self._reader.hypotheses
        each = len(hypotheses)
        whole = [length + len(h.ids) for length in lengths for h in hypotheses]
        judged = self.judge.run(whole, lambda i: _joined(row(i // each), hypotheses[i % each]))
        by_label = torch.from_numpy(judged).unflatten(0, (len(lengths), each))
        return self._entailment(by_label).numpy()

    def _entailment(
        self, judged: Float[Tensor, "*batch label judged"]
    ) -> Float[Tensor, "*batch label"]:
        """The logits of the labels from what the judge says of their hypotheses."""
        logits = judged[..., self.entailment]
        return logits if self.contradiction is None else logits - judged[..., self.contradiction]

    def trace(
        self,
        tokens: Sequence[Tokens],
        attention: Mapping[int, Attention] | None = None,
        embeddings: Embeddings | None = None,
        layers: Sequence[int] | None = None,
        at: At | None = None,
    ) -> Trace:
        """Embeddings are those of the text, which all readings share."""
        if attention:
            raise NotApplicable(f"Other attention needs {self.lacks({offer.REPLACEABLE})}.")
        hypotheses = self._reader.hypotheses
        readings = [_with_hypothesis(t, h) for t in tokens for h in hypotheses]
        own = self.judge.embeddings(readings, at)
        width = max(len(t) for t in tokens)
        if embeddings is None:
            embeddings = own[:: len(hypotheses), :width].clone()
            embeddings.requires_grad_(torch.is_grad_enabled())
        lengths = torch.tensor([len(t) for t in tokens])
        real = torch.arange(own.shape[1]) < lengths[:, None]
        # the text's embeddings in every reading, and behind them the hypothesis's own
        wide = nn.functional.pad(
            embeddings.to(own.dtype).to(own.device), (0, 0, 0, own.shape[1] - width)
        )
        of_text = real.repeat_interleave(len(hypotheses), 0)[..., None].to(own.device)
        mixed = torch.where(of_text, wide.repeat_interleave(len(hypotheses), 0), own)
        judged = self.judge.trace(readings, embeddings=mixed, layers=(), at=at).logits
        logits = self._entailment(judged.unflatten(0, (len(tokens), len(hypotheses))))
        rows = torch.zeros(len(tokens), dtype=torch.long)
        return Trace(logits, (), (), embeddings, real[:, :width], rows)


def _joined(row: Row, hypothesis: Row) -> Row:
    """A text, perhaps without some of its words, and a hypothesis behind it."""
    seen = row.seen
    if seen is not None:
        seen = np.append(seen, np.ones(len(hypothesis.ids), dtype=bool))
    ids, types = np.append(row.ids, hypothesis.ids), np.append(row.types, hypothesis.types)
    return Row(ids, types, seen)


def _with_hypothesis(tokens: Tokens, hypothesis: Row) -> Tokens:
    """The tokens of one reading."""
    more = len(hypothesis.ids)
    return replace(
        tokens,
        ids=np.append(tokens.ids, hypothesis.ids),
        types=np.append(tokens.types, hypothesis.types),
        spans=np.append(tokens.spans, np.zeros((more, 2), dtype=np.int64), 0),
        segment=np.append(tokens.segment, np.full(more, TEMPLATE)),
        word=np.append(tokens.word, np.full(more, -1)),
        names=(*tokens.names, *("",) * more),
    )
