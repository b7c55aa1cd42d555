"""Claims, the evidence for them, and verdicts.

A `Claim` says beforehand what is asserted, by which statistic it is judged and at which threshold. A `ClaimTest`
measures one row per document. `judge` turns rows into a `Verdict`, needs no model, and treats all claims alike:

    the bootstrap interval of the mean lies wholly on the claim's side of the threshold    supported
    wholly on the other side                                                              refuted
    across it, or fewer than 30 documents (those that share an id count as one)           undecided
    the model or the data lack what is needed, or the gate is closed                      not applicable

Intervals are widened for the number of claims that are judged together (Bonferroni).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

from heed.claims.notebook import Notebook
from heed.errors import InputError
from heed.methods import AttentionMean, Explanation, Method, reads_attention
from heed.metrics import bootstrap, bootstrap_mean
from heed.models.classifier import Classifier, batches
from heed.progress import bar, counter
from heed.randomness import generator
from heed.text import Document, Tokens

if TYPE_CHECKING:  # which loads torch
    from heed.training.again import Retraining

Outcome = Literal["supported", "refuted", "undecided", "not applicable"]
Row = dict[str, Any]

FEWEST = 30
GATES = (
    "needed",
    "used",
)  # what must not be refuted for some claims to apply: the first that could be run
CHUNK = 64  # documents that are explained before what was found is written down
FAMILIES = (
    "needed",
    "determined",
    "causal",
    "agrees",
    "signed",
    "informative",
    "faithful",
    "plausible",
    "stable",
)


@dataclass(frozen=True)
class Claim:
    """What is asserted, and when it counts as true.

    id, family   names
    sentence     the assertion in plain words, with {method} for what is judged
    statistic    what is averaged over documents
    threshold    the claim holds above it, or below it if `above` is False
    needs        what the model must offer
    gated        not applicable to attention where the prediction does not depend on it
    trains       models are trained again for it
    labelled     documents must have labels
    combine      the statistic as a function of columns of rows, where it is not the mean of `value`
    per_document what `value` is then
    source       key of the paper in papers.bib
    """

    id: str
    family: str
    sentence: str
    statistic: str
    threshold: float
    source: str
    above: bool = True
    needs: frozenset[str] = frozenset()
    gated: bool = False
    trains: bool = False
    labelled: bool = False
    combine: Callable[[Mapping[str, np.ndarray]], float] | None = field(
        default=None, compare=False, repr=False
    )
    per_document: str = ""

    @property
    def of_explanation(self) -> bool:
        """Whether an explanation is judged, and not the model."""
        return "{method}" in self.sentence

    def of(self, method: str) -> str:
        """The sentence, for the explanation that is judged."""
        text = self.sentence.format(method="attention" if method == "attention-mean" else method)
        return text[0].upper() + text[1:]

    def side(self) -> str:
        return f"{'>' if self.above else '<'} {self.threshold:g}"


@dataclass(frozen=True)
class Verdict:
    """A claim judged: the mean of its statistic, the interval at `level`, and the number of documents behind it."""

    claim: Claim
    outcome: Outcome
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    level: float = 0.95
    reason: str = ""
    method: str = "attention-mean"

    @property
    def sentence(self) -> str:
        """The claim in plain words, for the explanation that is judged."""
        return self.claim.of(self.method)

    def to_dict(self) -> dict[str, Any]:
        own = {
            "claim": self.claim.id,
            "method": self.method,
            "sentence": self.sentence,
            "outcome": self.outcome,
        }
        numbers = {
            "mean": self.mean,
            "low": self.low,
            "high": self.high,
            "n": self.n,
            "level": self.level,
        }
        return own | numbers | {"threshold": self.claim.side(), "reason": self.reason}


@dataclass(eq=False)
class Study:
    """A model, documents and the explanation under audit; explanations that several claims need are computed once.

    gold       the label of every document among those of the model, where it is known
    lessons    how the model can be trained again, or why it cannot
    notebook   rows that were measured before
    """

    model: Classifier
    documents: Sequence[Document]
    method: Method = field(default_factory=AttentionMean)
    seed: int = 0
    gold: Sequence[int | None] = ()
    lessons: Retraining | str = "it trains models again, and no training data were given"
    notebook: Notebook = field(default_factory=Notebook, repr=False)
    _explanations: dict[Method, list[Explanation]] = field(default_factory=dict, repr=False)

    @property
    def retraining(self) -> Retraining:
        """The model's training, to be done again; there is one where no claim that needs it was refused."""
        assert not isinstance(self.lessons, str)
        return self.lessons

    def explain(self, method: Method | None = None) -> list[Explanation]:
        """Explanations of all documents for their predicted labels, by the method under audit or another one."""
        method = method or self.method
        if method not in self._explanations:
            self._explanations[method] = self._explained(method)
        return self._explanations[method]

    def explain_again(self, method: Method) -> list[Explanation]:
        """The same with draws of their own."""
        return self._explained(method, again=1)

    def explained(self, method: Method) -> bool:
        """Whether some claim has asked for these explanations already."""
        return method in self._explanations

    def explain_some(self, method: Method, places: Sequence[int]) -> list[Explanation]:
        """Explanations of the documents at these places alone."""
        if self.explained(method) or len(places) == len(self.documents):
            found = self.explain(method)
            return [found[i] for i in places]
        chosen = [self.documents[i] for i in places]
        return method.explain(self.model, chosen, seed=self.seed)

    def _explained(self, method: Method, again: int = 0) -> list[Explanation]:
        """Explanations, some documents at a time where there is a file to keep them in."""
        keys = [
            self.notebook.key(method.name, asdict(method), asdict(d), again) for d in self.documents
        ]
        open_ = [i for i, key in enumerate(keys) if key not in self.notebook]
        seed = self.seed + again
        if self.notebook.path is None:
            return method.explain(self.model, self.documents, seed=seed)
        for start in range(0, len(open_), CHUNK):
            part = open_[start : start + CHUNK]
            found = method.explain(self.model, [self.documents[i] for i in part], seed=seed)
            self.notebook.write({keys[i]: e.to_dict() for i, e in zip(part, found, strict=True)})
        return [Explanation.from_dict(self.notebook[key]) for key in keys]

    def by_batch(
        self,
        test: ClaimTest,
        measure: Callable[[list[Tokens]], list[Row]],
        most: int,
        together: bool = False,
    ) -> list[Row]:
        """Rows of all documents, measured in batches of at most so many tokens; those of an earlier run are not again.

        With `together`, a batch may hold more than the model's own limit.
        """
        tokens = self.model.tokens(self.documents)
        keys = [self.notebook.key(test.claim.id, asdict(test), t.document.segments) for t in tokens]
        open_ = [i for i, key in enumerate(keys) if key not in self.notebook]
        waiting = [tokens[i] for i in open_]
        limit = most if together else min(most, self.model.batch_tokens)
        found = batches([self.model.width(t) for t in waiting], limit, self.model.even)
        with counter(len(waiting), test.claim.id) as shown:
            for batch in found:
                rows = measure([waiting[i] for i in batch])
                self.notebook.write(
                    {keys[open_[i]]: row for i, row in zip(batch, rows, strict=True)}
                )
                shown.advance(len(batch))
        return [self.notebook[key] for key in keys]

    def by_explanation(
        self, test: ClaimTest, measure: Callable[[int, Explanation], Row]
    ) -> list[Row]:
        """Rows of all documents from the explanations that are judged, one by one; those of an earlier run are kept."""
        explained = self.explain()
        about = test.claim.id, asdict(test)
        keys = [
            self.notebook.key(*about, e.method, e.label, e.scores.tolist(), asdict(e.document))
            for e in explained
        ]
        for i, explanation in enumerate(bar(explained, test.claim.id)):
            if keys[i] not in self.notebook:
                self.notebook.write({keys[i]: measure(i, explanation)})
        return [self.notebook[key] for key in keys]

    def rng(self, claim: str, document: Document) -> np.random.Generator:
        """Randomness from (seed, claim, text) alone."""
        return generator(self.seed, claim, *document.segments)


@dataclass(frozen=True)
class ClaimTest(ABC):
    """The test of one claim: its fields are settings, `measure` gives one row per document.

    A row holds `value`, the statistic of the document (NaN where it has none), and whatever else is worth keeping.
    """

    claim: ClassVar[Claim]
    cost: ClassVar[str]  # in passes of the model for each document, in words
    dear: ClassVar[bool] = (
        False  # whether it takes much longer than others, which a budget is then spent on first
    )
    asks: ClassVar[str] = ""  # what documents must have
    against: ClassVar[tuple[type[Method], ...]] = ()  # the explanations that serve as the yardstick

    @abstractmethod
    def measure(self, study: Study) -> list[Row]:
        """One row per document."""

    def at_least(self, **least: int) -> None:
        """Refuse settings that are too small."""
        for name, bound in least.items():
            if getattr(self, name) < bound:
                given = getattr(self, name)
                raise InputError(
                    f"The setting {name} of the claim {self.claim.id} must be at least {bound}, got {given}."
                )

    def refusal(self, study: Study) -> str:
        """Why this claim cannot be tested here, or nothing."""
        missing = self.claim.needs - study.model.offers
        if missing:
            return f"needs {' and '.join(sorted(missing))}, which the model does not offer"
        if self.claim.trains and isinstance(study.lessons, str):
            return study.lessons
        if self.claim.labelled and all(label is None for label in study.gold):
            return "the documents have no labels that the model knows"
        if isinstance(study.method, self.against):
            return f"{study.method.name} would be compared with itself"
        return ""


@dataclass(frozen=True)
class Evidence:
    """All that was measured for one claim: rows, or the reason why there are none."""

    claim: Claim
    rows: list[Row]
    reason: str = ""
    method: str = "attention-mean"

    @property
    def values(self) -> Float[np.ndarray, "document"]:
        found = np.array([row["value"] for row in self.rows], dtype=float)
        return found[np.isfinite(found)]

    def statistic(self, level: float) -> tuple[float, tuple[float, float]]:
        """The statistic of the claim, and its bootstrap interval over documents; those of one id are drawn together."""
        combine, values, groups = self.claim.combine, self.values, self.groups
        if combine is None:
            return float(values.mean()), bootstrap_mean(values, level, groups=groups)
        return self.combined(), bootstrap(self._columns(), combine, level, groups=groups)

    @property
    def groups(self) -> Int[np.ndarray, "document"] | None:
        """Which of the documents with the statistic belong together, because they share an id; None if none do."""
        return grouped([row.get("id", "") for row in self.rows if np.isfinite(row["value"])])

    @property
    def independent(self) -> int:
        """How many documents have the statistic, those that belong together counted as one."""
        return len(self.values) if self.groups is None else int(self.groups.max()) + 1

    def combined(self) -> float:
        """The statistic; NaN without documents."""
        if not len(self.values):
            return float("nan")
        return (
            float(self.values.mean())
            if self.claim.combine is None
            else self.claim.combine(self._columns())
        )

    def _columns(self) -> dict[str, Float[np.ndarray, "document"]]:
        """The numbers of rows that have the statistic, column by column."""
        kept = [row for row in self.rows if np.isfinite(row["value"])]
        return {
            key: np.array([row[key] for row in kept], dtype=float)
            for key in kept[0]
            if _is_number(kept[0][key])
        }

    def mean(self, column: str) -> float | None:
        """The mean of a further column of the rows."""
        found = np.array(
            [row[column] for row in self.rows if row.get(column) is not None], dtype=float
        )
        found = found[~np.isnan(found)]
        return float(found.mean()) if len(found) else None


def grouped(ids: Sequence[str]) -> Int[np.ndarray, "document"] | None:
    """The number of each document's group: all with the same id, or a document by itself; None if all are that."""
    names = [(id_, 0) if id_ else ("", i) for i, id_ in enumerate(ids)]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return None if len(place) == len(names) else np.array([place[name] for name in names])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def judge(evidence: Sequence[Evidence]) -> list[Verdict]:
    """Verdicts on claims that are judged together; the gate is for explanations that are attention."""
    level = 1 - 0.05 / max(1, sum(not e.reason for e in evidence))
    found = [_judge(e, level) for e in evidence]
    by_id = {v.claim.id: v for v in found}
    could_run = [v for name in GATES if (v := by_id.get(name)) and v.outcome != "not applicable"]
    gate = could_run[0] if could_run else None
    if gate is None or gate.outcome != "refuted":
        return found
    why = (
        "the task does not need attention"
        if gate.claim.id == "needed"
        else "the prediction hardly depends on attention"
    )
    reason = f"{why} ('{gate.claim.id}' is refuted), so this would be a bad testbed"

    def closed(v: Verdict) -> bool:
        of_attention = reads_attention(v.method) or not v.claim.of_explanation
        return v.claim.gated and of_attention and v.outcome != "not applicable"

    return [replace(v, outcome="not applicable", reason=reason) if closed(v) else v for v in found]


def _judge(evidence: Evidence, level: float) -> Verdict:
    claim, values = evidence.claim, evidence.values
    undecided = Verdict(claim, "undecided", level=level, method=evidence.method)
    if evidence.reason:
        return replace(undecided, outcome="not applicable", reason=evidence.reason)
    if not len(values):
        return replace(undecided, reason="no document has this statistic")
    mean, (low, high) = evidence.statistic(level)
    if not np.isfinite([mean, low, high]).all():
        return replace(undecided, reason="the documents do not have this statistic")
    undecided = replace(undecided, mean=mean, low=low, high=high, n=len(values))
    if evidence.independent < FEWEST:
        which = " (those that share an id count as one)" if len(values) >= FEWEST else ""
        return replace(undecided, reason=f"fewer than {FEWEST} documents{which}")
    above, below = low > claim.threshold, high < claim.threshold
    if above or below:
        return replace(undecided, outcome="supported" if above == claim.above else "refuted")
    return replace(undecided, reason="the interval spans the threshold")
