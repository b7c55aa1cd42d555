"""Does an explanation depend on what the model has learnt (Adebayo et al., 2018), and on what decides its label?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import ClassVar

import numpy as np
from jaxtyping import Bool

from heed.claims.claim import Claim, ClaimTest, Row, Study
from heed.methods import Explanation, Imported
from heed.methods.comparison import aligned
from heed.metrics import spearman
from heed.text import Document, Tokenizer


@dataclass(frozen=True)
class Sensitive(ClaimTest):
    """The same explanation of the same model with all its weights drawn anew, around their means and as widely spread.

    Explanations of both are for the label that the trained model predicts; absolute values are ranked.
    """

    claim: ClassVar[Claim] = Claim(
        id="sensitive",
        family="faithful",
        sentence="{method} depends on what the model has learnt",
        statistic="Spearman ρ with the explanation of the model with random weights",
        threshold=0.5,
        above=False,
        source="adebayo2018",
    )
    cost: ClassVar[str] = "that of the explanation for each draw of weights"

    draws: int = 3

    def __post_init__(self) -> None:
        self.at_least(draws=1)

    def refusal(self, study: Study) -> str:
        if isinstance(study.method, Imported):
            return f"{study.method.name} was computed elsewhere, and not of a model with random weights"
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        own = study.explain()
        found = np.full((self.draws, len(own)), np.nan)
        for draw in range(self.draws):
            random = study.model.randomised(study.seed + draw)
            for label in dict.fromkeys(e.label for e in own):
                places = [i for i, e in enumerate(own) if e.label == label]
                others = study.method.explain(
                    random,
                    [own[i].document for i in places],
                    label,
                    seed=study.seed,
                )
                for i, other in zip(places, others, strict=True):
                    found[draw, i] = spearman(*(np.abs(x) for x in aligned([own[i], other])))
        return [
            {"value": float(np.mean(column)), "largest": float(np.max(column))}
            for column in found.T
        ]


@dataclass(frozen=True)
class Edited(ClaimTest):
    """Words whose change, by a person's hand, turned the label: how many of them are among the top tenth?

    Documents with the same id and different labels are a pair; the words in which they differ are the edit. Random
    words would hit a tenth of them. The top tenth are at least 3 words.
    """

    claim: ClassVar[Claim] = Claim(
        id="edited",
        family="plausible",
        sentence="{method} points at the words whose edit turns the label",
        statistic="share of edited words in the top tenth minus that of random words",
        threshold=0.1,
        source="kaushik2020",
    )
    cost: ClassVar[str] = "that of the explanation alone"
    asks: ClassVar[str] = (
        "pairs of documents that differ in a small edit (imdb_counterfactual has them)"
    )

    def refusal(self, study: Study) -> str:
        if not any(partner is not None for partner in partners(study.documents)):
            return "the documents do not come in pairs that differ in a small edit (the same id, another label)"
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        rows = []
        whole = Tokenizer(
            study.model.tokenizer.backend, 10**9
        )  # of the other text also what the model would not read
        for e, partner in zip(study.explain(), partners(study.documents), strict=True):
            gold = np.zeros(len(e.units), dtype=bool)
            if partner is not None:
                gold = edited(e, [word.text for word in whole([partner])[0].words])
            n = max(3, round(len(gold) / 10))
            if not 0 < gold.sum() < len(gold) or n >= len(gold):
                rows.append(
                    {"value": float("nan"), "hit": float("nan"), "edited": float(gold.mean())}
                )
                continue
            hit = float(gold[np.argsort(-e.scores, kind="stable")[:n]].sum() / gold.sum())
            rows.append({"value": hit - n / len(gold), "hit": hit, "edited": float(gold.mean())})
        return rows


def partners(documents: Sequence[Document]) -> list[Document | None]:
    """For each document the other one of its pair."""
    by: dict[str, list[Document]] = {}
    for d in documents:
        by.setdefault(d.id, []).append(d)

    def other(d: Document) -> Document | None:
        found = [o for o in by[d.id] if o.label != d.label]
        return found[0] if d.id and len(by[d.id]) == 2 and found else None

    return [other(d) for d in documents]


def edited(explanation: Explanation, others: Sequence[str]) -> Bool[np.ndarray, "unit"]:
    """Which units are not among the words of the other text, when both are laid beside each other."""
    places = sorted(
        (u.segment, start, i) for i, u in enumerate(explanation.units) for start, _ in u.spans
    )
    own = [explanation.units[i].text.casefold() for _, _, i in places]
    kept = np.zeros(len(own), dtype=bool)
    matcher = SequenceMatcher(None, own, [w.casefold() for w in others], autojunk=False)
    for block in matcher.get_matching_blocks():
        kept[block.a : block.a + block.size] = True
    found = np.zeros(len(explanation.units), dtype=bool)
    for (_, _, i), stays in zip(places, kept, strict=True):
        found[i] |= not stays
    return found
