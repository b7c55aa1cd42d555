"""Does an explanation match what people mark or edit?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import compress

import numpy as np
from jaxtyping import Bool

from heed.claims.claim import Refusal, Row, stated
from heed.claims.study import ClaimTest, Study
from heed.claims.yardsticks import top_size
from heed.methods import Explanation
from heed.metrics import average_precision, chance_precision, top_weights
from heed.text import Document, Span, Tokenizer, Word


@dataclass(frozen=True)
class Plausible(ClaimTest):
    """Average precision with which the scores rank the words that people marked as the reason.

    The average precision of a random order is subtracted, which lies above the share of marked
    words. Equal scores stand in random order, and the mean over their orders counts. A word, or
    another unit, counts as marked if it shares a character with what people marked.
    """

    claim = stated("plausible")

    def refusal(self, study: Study) -> Refusal | None:
        if not any(d.rationale for d in study.documents):
            return Refusal("data", "the documents have no human rationales")
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        rows = []
        for e in study.explain():
            gold = marked(e)
            precision = chance = share = math.nan
            if 0 < gold.sum() < len(gold):
                precision = average_precision(e.scores, gold)
                chance = chance_precision(len(gold), int(gold.sum()))
            if len(gold):
                share = float(gold.mean())
            row = {"average_precision": precision, "chance": chance, "marked": share}
            rows.append({"value": precision - chance} | row)
        return rows


def marked(explanation: Explanation) -> Bool[np.ndarray, "unit"]:
    """Which units touch what people marked."""
    return touched(explanation, explanation.document.rationale)


def touched(explanation: Explanation, spans: Sequence[Span]) -> Bool[np.ndarray, "unit"]:
    """Which units share a character with one of these spans."""
    shares = np.zeros(len(explanation.units), dtype=bool)
    for span in spans:
        for i, unit in enumerate(explanation.units):
            if unit.segment == span.segment:
                shares[i] |= any(a < span.end and span.start < b for a, b in unit.spans)
    return shares


@dataclass(frozen=True)
class Edited(ClaimTest):
    """How many of the words that a person edited to change the label are in the top tenth?

    Two documents with the same id and different labels are a pair; the words in which they differ
    are the edit. The top tenth is at least 3 words. The share that random words would hit is
    subtracted.
    """

    claim = stated("edited")

    def refusal(self, study: Study) -> Refusal | None:
        if not any(partner is not None for partner in partners(study.documents)):
            return Refusal(
                "data",
                "the documents do not come in pairs that differ in a small edit"
                " (the same id, another label)",
            )
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        rows = []
        # no limit on length: the other text is compared in full, even where the model would cut it
        whole = Tokenizer(study.model.tokenizer.backend, 10**9)
        tokens = study.model.tokens(study.documents)
        triples = zip(study.explain(), tokens, partners(study.documents), strict=True)
        for e, read, partner in triples:
            gold = np.zeros(len(e.units), dtype=bool)
            if partner is not None:
                gold = edited(e, read.words, [word.text for word in whole([partner])[0].words])
            n = top_size(len(gold))
            row = {"value": float("nan"), "hit": float("nan"), "edited": float(gold.mean())}
            if 0 < gold.sum() < len(gold) and n < len(gold):
                hit = float(top_weights(e.scores, n) @ gold / gold.sum())
                row |= {"value": hit - n / len(gold), "hit": hit}
            rows.append(row)
        return rows


def partners(documents: Sequence[Document]) -> list[Document | None]:
    """The other document of each document's pair; None if there is no pair."""
    by_id: dict[str, list[Document]] = {}
    for d in documents:
        by_id.setdefault(d.id, []).append(d)

    def other(d: Document) -> Document | None:
        differing = [o for o in by_id[d.id] if o.label != d.label]
        return differing[0] if d.id and len(by_id[d.id]) == 2 and differing else None

    return [other(d) for d in documents]


def edited(
    explanation: Explanation, words: Sequence[Word], others: Sequence[str]
) -> Bool[np.ndarray, "unit"]:
    """Which units hold words that are missing from the other text, by an alignment of both."""
    kept = np.zeros(len(words), dtype=bool)
    theirs = [other.casefold() for other in others]
    matcher = SequenceMatcher(None, [w.text.casefold() for w in words], theirs, autojunk=False)
    for block in matcher.get_matching_blocks():
        kept[block.a : block.a + block.size] = True
    changed = [Span(w.start, w.end, w.segment) for w in compress(words, ~kept)]
    return touched(explanation, changed)
