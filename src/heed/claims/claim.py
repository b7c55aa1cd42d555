"""Claims, the evidence for them, and verdicts.

A `Claim` states in advance what is asserted, by which statistic, and at which threshold. All of
them are in claims.toml. `judge` turns rows into verdicts:

    supported       the whole interval of the statistic is on the claim's side of the threshold, and
                    chance methods do not pass as well
    refuted         the whole interval is on the other side
    undecided       the interval spans the threshold, there are too few documents, or chance passes
    not applicable  the claim was not judged; a `Refusal` says why

Documents that share an id or a text count as one. `heed.intervals` has the kinds of intervals, and
how the claims of an audit are tested together.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from heed.intervals import Ends, Kind

Row = dict[str, Any]
Columns = Mapping[str, Float[np.ndarray, "document"]]  # rows, column by column

FEWEST = 30  # documents that a verdict needs

LOWER, UPPER = "lower", "upper"  # the parts of a claim whose rows bracket the truth

# What must not be refuted for the gated claims to apply: the first of these that could be run.
GATES = ("needed", "used")

Outcome = Literal["supported", "refuted", "undecided", "not applicable"]
Undecided = Literal["few", "spans", "statistic", "operators", "chance"]
NotJudged = Literal["budget", "training", "model", "data", "method", "gate", "yardstick", "other"]
Cause = NotJudged | Undecided


class Refusal(NamedTuple):
    """Why a claim was not judged.

    cause    "budget" (time ran out), "training" (the claim retrains models, which was not requested
             or is impossible), "model" or "data" (they lack what the claim needs), "method" (this
             claim cannot judge it), "gate" (the task does not need attention), "yardstick" (what it
             compares with is no better than chance), or "other"
    reason   the same in words
    """

    cause: NotJudged
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
    bounds       between which numbers `value` lies; None if it has no bounds
    check        true by algebra: held against a rounding bound, `threshold`, and not judged
    operators    rows have a value for each way to remove words that the model has, in the columns
                 `value_replace`, `value_delete` and `value_hide`; a verdict must hold for each
    bracket      rows have a lower bound in `value` and an upper bound in `upper`: a claim "below"
                 is supported by the upper bound and refuted by the lower one
    chance       not supported if chance methods (random scores, word length) pass as well
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
    bounds: Ends | None = None
    check: bool = False
    operators: bool = False
    bracket: bool = False
    chance: bool = True

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
    table = dict(_TABLES[name])
    table["needs"] = frozenset(table.get("needs", ()))
    if "bounds" in table:
        table["bounds"] = tuple(map(float, table["bounds"]))
    return Claim(name, **table, combine=combine)


@dataclass(frozen=True)
class Verdict:
    """The outcome for a claim: the mean of its statistic, and its interval at `level`.

    n          how many documents were measured; those that share an id or a text count as one
    cause      in one word why it is not applicable, or why it is undecided: "few" documents, the
               interval "spans" the threshold, no document has the "statistic", the "operators" that
               remove words disagree, or "chance" passes as well; `reason` says it in a sentence
    interval   how the interval was computed
    parts      mean and interval for each way to remove words, or of the lower and the upper bound;
               empty if there is only one
    strictest  the strictest threshold for which the claim would still be supported
    ceiling    what the best yardsticks reach among themselves
    controls   the mean that each chance method reaches
    wanted     about how many documents would decide it, if the interval spans the threshold
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
    interval: Kind = "studentised"
    parts: dict[str, tuple[float, float, float]] = field(default_factory=dict, hash=False)
    strictest: float | None = None
    ceiling: float | None = None
    controls: dict[str, float] = field(default_factory=dict, hash=False)
    wanted: int | None = None

    def __repr__(self) -> str:
        judged = f" of {self.method}" if self.claim.of_explanation else ""
        numbers = self.reason
        if self.mean is not None:
            ends = "" if self.low is None else f" [{self.low:.3g}, {self.high:.3g}]"
            numbers = f"{self.mean:.3g}{ends}, n {self.n}"
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
        more = {
            "interval": self.interval,
            "parts": self.parts,
            "strictest": self.strictest,
            "ceiling": self.ceiling,
            "controls": self.controls,
            "wanted": self.wanted,
        }
        why = {"cause": self.cause, "reason": self.reason}
        return judged | numbers | {"threshold": self.claim.side()} | more | why


@dataclass(frozen=True)
class Evidence:
    """The rows measured for one claim, or the reason why there is no verdict on them.

    refusal   why there is none: mostly before anything was measured, so that there are no rows
    control   rows of a chance method, measured beside those that are judged: it gets no verdict
    """

    claim: Claim
    rows: list[Row]
    refusal: Refusal | None = None
    method: str = "attention-mean"
    control: bool = False

    @property
    def judged(self) -> bool:
        """Whether it gets a verdict: it is neither a control nor a check."""
        return not self.control and not self.claim.check

    @property
    def reason(self) -> str:
        """Why there is no verdict; empty if there is one."""
        return "" if self.refusal is None else self.refusal.reason

    @property
    def measured(self) -> list[Row]:
        """The rows of documents that have the statistic."""
        return [row for row in self.rows if math.isfinite(row["value"])]

    @property
    def values(self) -> Float[np.ndarray, "document"]:
        return np.array([row["value"] for row in self.measured], dtype=float)

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
        return self.claim.combine(numbers_of(self.measured))

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


def numbers_of(rows: Sequence[Row]) -> Columns:
    """The numeric columns of rows."""
    numeric = [
        key
        for key, value in rows[0].items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return {key: np.array([row[key] for row in rows], dtype=float) for key in numeric}
