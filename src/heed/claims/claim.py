"""Claims, the evidence for them, and verdicts.

A `Claim` states in advance what is asserted, by which statistic, and at which threshold. All of
them are in claims.toml. `judge` turns rows into verdicts. It needs no model and treats all claims
alike:

    supported       the whole bootstrap interval of the mean is on the claim's side of the threshold
    refuted         the whole interval is on the other side
    undecided       the interval spans the threshold, or there are fewer than 30 documents
    not applicable  the claim was not judged; a `Refusal` says why

Documents that share an id or a text count as one. Intervals are widened for the number of claims
that are judged together (Bonferroni).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from heed.methods import reads_attention
from heed.metrics import bootstrap, bootstrap_mean

Row = dict[str, Any]
Columns = Mapping[str, Float[np.ndarray, "document"]]  # rows, column by column

FEWEST = 30  # documents that a verdict needs

# What must not be refuted for the gated claims to apply: the first of these that could be run.
GATES = ("needed", "used")

Outcome = Literal["supported", "refuted", "undecided", "not applicable"]
Cause = Literal["budget", "training", "model", "data", "method", "gate", "other"]


class Refusal(NamedTuple):
    """Why a claim was not judged.

    cause    "budget" (time ran out), "training" (the claim retrains models, which was not requested
             or is impossible), "model" or "data" (they lack what the claim needs), "method" (this
             claim cannot judge it), "gate" (the task does not need attention), or "other"
    reason   the same in words
    """

    cause: Cause
    reason: str


@dataclass(frozen=True)
class Claim:
    """What is asserted, and when it counts as true.

    id, family   names
    sentence     the assertion in plain words; {method} stands for the method that is judged
    statistic    what is averaged over documents
    threshold    the claim holds above it, or below it if `above` is False
    source       keys of the papers in papers.bib
    needs        what the model must offer
    gated        not applicable to attention if the prediction does not depend on attention
    trains       testing it retrains models
    labelled     documents must have labels
    asks         what else documents must have, in words
    cost         what the test costs per document, in words, in passes through the model
    slow         whether it takes much longer than others: a time budget goes to quick claims first
    ranks        whether it ranks words, of which a document must then have a few
    combine      computes the statistic from the columns of rows, if it is not the mean of `value`
    per_document what `value` means if `combine` is given
    """

    id: str
    family: str
    sentence: str
    statistic: str
    threshold: float
    source: str = ""
    above: bool = True
    needs: frozenset[str] = frozenset()
    gated: bool = False
    trains: bool = False
    labelled: bool = False
    asks: str = ""
    cost: str = ""
    slow: bool = False
    ranks: bool = False
    combine: Callable[[Columns], float] | None = field(default=None, compare=False, repr=False)
    per_document: str = ""

    @property
    def of_explanation(self) -> bool:
        """Whether the claim judges an explanation rather than the model."""
        return "{method}" in self.sentence

    def sentence_about(self, method: str) -> str:
        """The sentence, with the name of the method that is judged."""
        text = self.sentence.format(method="attention" if method == "attention-mean" else method)
        return text[0].upper() + text[1:]

    def __repr__(self) -> str:
        return f"<Claim {self.id}: {self.sentence_about('attention')} ({self.side()})>"

    def side(self) -> str:
        return f"{'>' if self.above else '<'} {self.threshold:g}"


_TABLES = tomllib.loads(resources.files("heed.claims").joinpath("claims.toml").read_text("utf8"))

_families = dict.fromkeys(table["family"] for table in _TABLES.values())
FAMILIES = tuple(family for family in _families if family != "condition")


def stated(name: str, combine: Callable[[Columns], float] | None = None) -> Claim:
    """The claim that claims.toml states under this name."""
    table = _TABLES[name]
    needs = frozenset(table.get("needs", ()))
    return Claim(name, **table | {"needs": needs}, combine=combine)


@dataclass(frozen=True)
class Verdict:
    """The outcome for a claim: the mean of its statistic, and its interval at `level`.

    n is the number of documents; those that share an id or a text count as one.
    """

    claim: Claim
    outcome: Outcome
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    level: float = 0.95
    reason: str = ""
    method: str = "attention-mean"
    cause: Cause | None = None

    def __repr__(self) -> str:
        judged = f" of {self.method}" if self.claim.of_explanation else ""
        numbers = self.reason
        if self.mean is not None:
            numbers = f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}], n {self.n}"
        claimed = f"{self.claim.id}{judged} ({self.claim.side()})"
        return f"<Verdict on {claimed}: {self.outcome}, {numbers}>"

    @property
    def sentence(self) -> str:
        """The claim in plain words, with the name of the method that is judged."""
        return self.claim.sentence_about(self.method)

    def to_dict(self) -> dict[str, Any]:
        judged = {
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
        why = {"cause": self.cause, "reason": self.reason}
        return judged | numbers | {"threshold": self.claim.side()} | why


@dataclass(frozen=True)
class Evidence:
    """The rows measured for one claim, or the reason why there are none."""

    claim: Claim
    rows: list[Row]
    refusal: Refusal | None = None
    method: str = "attention-mean"

    @property
    def reason(self) -> str:
        """Why there are no rows; empty if there are some."""
        return "" if self.refusal is None else self.refusal.reason

    @property
    def measured(self) -> list[Row]:
        """The rows of documents that have the statistic."""
        return [row for row in self.rows if math.isfinite(row["value"])]

    @property
    def values(self) -> Float[np.ndarray, "document"]:
        return np.array([row["value"] for row in self.measured], dtype=float)

    def statistic(self, level: float) -> tuple[float, tuple[float, float]]:
        """The statistic of the claim, and its bootstrap interval over documents.

        Documents that share an id are resampled together.
        """
        combine, values, groups = self.claim.combine, self.values, self.groups
        if combine is None:
            return float(values.mean()), bootstrap_mean(values, level, groups=groups)
        return self.combined(), bootstrap(self._columns(), combine, level, groups=groups)

    @property
    def groups(self) -> Int[np.ndarray, "document"] | None:
        """The group of each document that has the statistic; those that share an id are a group.

        None if no two documents share an id. A row may name another group than that of its id.
        """
        return grouped([row.get("group") or row.get("id", "") for row in self.measured])

    @property
    def independent(self) -> int:
        """How many documents have the statistic; those that share an id count as one."""
        return len(self.values) if self.groups is None else int(self.groups.max()) + 1

    def combined(self) -> float:
        """The statistic; NaN without documents."""
        if not len(self.values):
            return float("nan")
        if self.claim.combine is None:
            return float(self.values.mean())
        return self.claim.combine(self._columns())

    def _columns(self) -> Columns:
        """The numeric columns of the rows that have the statistic."""
        rows = self.measured
        numeric = [key for key, value in rows[0].items() if _is_number(value)]
        return {key: np.array([row[key] for row in rows], dtype=float) for key in numeric}

    def mean(self, column: str) -> float | None:
        """The mean of another column of the rows; None if it has no values."""
        values = np.array(
            [row[column] for row in self.rows if row.get(column) is not None], dtype=float
        )
        values = values[~np.isnan(values)]
        return float(values.mean()) if len(values) else None


def grouped(ids: Sequence[str]) -> Int[np.ndarray, "document"] | None:
    """The group number of each document: documents with the same id share a group.

    A document without an id is a group by itself. None if every group has one document.
    """
    names = [(id_, 0) if id_ else ("", i) for i, id_ in enumerate(ids)]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return None if len(number) == len(names) else np.array([number[name] for name in names])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def judge(evidence: Sequence[Evidence]) -> list[Verdict]:
    """Judge claims together; the gate applies only to explanations made of attention."""
    # Bonferroni: the error of 5 % is divided among the claims that were measured
    level = 1 - 0.05 / max(1, sum(e.refusal is None for e in evidence))
    verdicts = [_judge(e, level) for e in evidence]
    by_id = {v.claim.id: v for v in verdicts}
    could_run = [v for name in GATES if (v := by_id.get(name)) and v.outcome != "not applicable"]
    gate = could_run[0] if could_run else None
    if gate is None or gate.outcome != "refuted":
        return verdicts
    why = (
        "the task does not need attention"
        if gate.claim.id == "needed"
        else "the prediction hardly depends on attention"
    )
    reason = f"{why} ('{gate.claim.id}' is refuted), so this would be a bad testbed"

    def closed(v: Verdict) -> bool:
        of_attention = reads_attention(v.method) or not v.claim.of_explanation
        return v.claim.gated and of_attention and v.outcome != "not applicable"

    return [
        replace(v, outcome="not applicable", cause="gate", reason=reason) if closed(v) else v
        for v in verdicts
    ]


def _judge(evidence: Evidence, level: float) -> Verdict:
    claim, values = evidence.claim, evidence.values
    undecided = Verdict(claim, "undecided", level=level, method=evidence.method)
    if evidence.refusal:
        cause, reason = evidence.refusal
        return replace(undecided, outcome="not applicable", cause=cause, reason=reason)
    if not len(values):
        return replace(undecided, reason="no document has this statistic")
    mean, (low, high) = evidence.statistic(level)
    if not np.isfinite([mean, low, high]).all():
        return replace(undecided, reason="the documents do not have this statistic")
    undecided = replace(undecided, mean=mean, low=low, high=high, n=evidence.independent)
    if evidence.independent < FEWEST:
        which = " (those that share an id or a text count as one)" if len(values) >= FEWEST else ""
        return replace(undecided, reason=f"fewer than {FEWEST} documents{which}")
    above, below = low > claim.threshold, high < claim.threshold
    if above or below:
        return replace(undecided, outcome="supported" if above == claim.above else "refuted")
    return replace(undecided, reason="the interval spans the threshold")
