"""An audit in words: a summary by family of claims, and plain names for the columns of the rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import TYPE_CHECKING

from heed.claims.claim import FAMILIES
from heed.claims.conditions import LEVEL
from heed.claims.faithful import RIVAL
from heed.report.numbers import interval, number
from heed.text import printable

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.claims import Evidence, Verdict
    from heed.claims.conditions import Finding

SYMBOLS = {"supported": "✓", "refuted": "✗", "undecided": "~", "not applicable": "–"}
CONDITIONS = "Conditions for attention to explain"

# Why a claim was not judged, in the words of a table.
CAUSES = {
    "budget": "out of time",
    "training": "needs --train",
    "model": "model lacks it",
    "data": "data lack it",
    "method": "same method",
    "gate": "gate closed",
    "other": "not applicable",
}

# The answer for a family whose judged claims share an outcome, and the heading of such claims.
_ANSWERS = {"supported": "yes", "refuted": "no", "undecided": "undecided"}
_HEADINGS = {
    "supported": "Holds",
    "refuted": "Does not hold",
    "undecided": "Undecided",
    "not applicable": "Not judged",
}

# What a reader must keep in mind about each family.
_CAVEATS = {
    "needed": "If a model does not need attention, tests of attention say little, for or against.",
    "determined": "Other attention may give the same prediction; this one can still describe what"
    " the model did.",
    "causal": "Efficient attention is heed's own definition: it suffices and is shared by algebra.",
    "agrees": "Two explanations can agree and both be wrong.",
    "signed": "LIME takes a word's sign from its removal, which is one way to define it.",
    "informative": "What helps another model shows where information is, not how this one uses it.",
    "faithful": "Texts without some of their words are unlike the texts the model was trained on.",
    "plausible": "The words that people mark need not be the words that the model used.",
    "stable": "The claims on attention above use LIME as a yardstick.",
}

# What each condition asks, and the number that answers.
_CONDITIONS = {
    "one-signed": (
        "Values of one sign",
        "share of attention on words that count against the label",
    ),
    "peaked": ("Attention on few words", "share of the words that hold half of the attention"),
    "context": (
        "Attention must choose among words",
        "change of the prediction if all words get the same attention",
    ),
}

# Columns that claims keep beside their statistic, in plain words; others are shown by their names.
_COLUMNS = {
    "correct": "accuracy with attention",
    "correct_uniform": "accuracy with uniform weights",
    "tvd": "change of the prediction (TVD)",
    "candidates_left": "candidates that left the prediction as it is",
    "any_left": "share of documents where at least one did",
    "maximum": "largest distance over training seeds (JSD / ln 2)",
    "seeds": "median distance between training seeds (JSD)",
    "max_attention": "largest attention on one word",
    "special_attention": "attention on special tokens",
    "padding_attention": "attention on padding",
    "gradient_removal": "yardstick: τ between gradient × input and leave-one-out",
    "comprehensiveness": "fall of the probability, words that are pointed to",
    "random": "fall of the probability, random words",
    "spearman": "rank correlation with the change on removal",
    "spearman_gradient": "the same for gradient × input",
    "spearman_unsigned": "rank correlation of absolute values",
    "spearman_gradient_unsigned": "the same for gradient × input",
    "again": "yardstick: τ between two draws of LIME with words replaced",
    "again_deleted": "yardstick: τ between two draws of LIME with words deleted",
    "sufficiency": "fall of the probability, only words that are pointed to",
    "random_sufficiency": "fall of the probability, only random words",
    "largest": "largest correlation over draws",
    "average_precision": "average precision",
    "marked": "share of words that people marked",
    "hit": "share of edited words that are pointed to",
    "edited": "share of words that were edited",
    "keys": "keys that a row looks at",
    "null_space": "dimension of the null space, mean over rows",
    "rows_open": "share of rows with a null space",
    "label_changed": "share of labels that changed",
    "tvd_from_attention": "TVD between attention and efficient attention",
    "determined": "change of the prediction, determined steps",
    "null": "change of the prediction, steps in the null space",
    "distance": "TVD between attention and the farthest one",
    "efficient_distance": "TVD between their efficient attentions",
    "negative_contribution": "share of LIME's weight that speaks against the label",
}
# Keys of a row, and columns whose mean says nothing.
_KEYS = (
    "document",
    "id",
    "value",
    "jsd",
    "predicted",
    "adversary_predicted",
    "gold",
    "labels",
)


def verdict_interval(verdict: Verdict) -> str:
    """The mean of a verdict with its interval; one document has no interval."""
    if verdict.n < 2:
        return number(verdict.mean)
    return interval(verdict.mean, verdict.low, verdict.high)


def verdict_key(verdict: Verdict) -> str:
    """A name for a verdict that no other of its audit has."""
    claim = verdict.claim
    return f"{claim.id}-{verdict.method}" if claim.of_explanation else claim.id


def outcome(verdict: Verdict) -> str:
    """The outcome of a verdict; where it was not judged, why."""
    return verdict.outcome if verdict.cause is None else CAUSES[verdict.cause]


# Summary


def lines(audit: Audit) -> dict[str, str]:
    """The summary in one line per family: the answer, and the claims behind it by name."""
    answers = {True: "yes", False: "no", None: "undecided"}
    texts = {}
    if audit.findings:
        asked = [(_CONDITIONS[f.condition.id][0], answers[f.holds]) for f in audit.findings]
        texts["Conditions"] = " · ".join(f"{title.lower()}: {answer}" for title, answer in asked)
    for family in FAMILIES:
        verdicts = [v for v in audit.verdicts if v.claim.family == family]
        if verdicts:
            named = (f"{SYMBOLS[v.outcome]} {_called(v, verdicts)}" for v in verdicts)
            texts[family.capitalize()] = f"{_answer(verdicts)} ({', '.join(named)})"
    return texts


def reasons(audit: Audit) -> dict[str, list[str]]:
    """Why claims are undecided or were not judged: the claims by their reason."""
    by_reason: dict[str, list[str]] = {}
    for v in audit.verdicts:
        if v.reason:
            by_reason.setdefault(v.reason, []).append(_called(v, audit.verdicts))
    return by_reason


def _called(verdict: Verdict, verdicts: Sequence[Verdict]) -> str:
    """The name of a claim, with the method where several are judged."""
    several = len({v.method for v in verdicts if v.claim == verdict.claim}) > 1
    return printable(f"{verdict.claim.id} of {verdict.method}" if several else verdict.claim.id)


def _answer(verdicts: Sequence[Verdict]) -> str:
    """The answer for a family: that of its judged claims if they share one."""
    answers = {_ANSWERS[v.outcome] for v in verdicts if v.outcome in _ANSWERS}
    if not answers:
        return "not judged"
    return answers.pop() if len(answers) == 1 else "in part"


def summary(audit: Audit) -> dict[str, str]:
    """One text per family of claims, after the conditions; never one yes or no for all families.

    It repeats no number of the table of verdicts.
    """
    texts = {CONDITIONS: _conditions(audit.findings)} if audit.findings else {}
    for family in FAMILIES:
        verdicts = [v for v in audit.verdicts if v.claim.family == family]
        if verdicts:
            evidence = [e for e in audit.evidence if e.claim.family == family]
            texts[family.capitalize()] = " ".join(_family(verdicts, evidence))
    return texts


def _family(verdicts: Sequence[Verdict], evidence: Sequence[Evidence]) -> Iterator[str]:
    """The sentences on one family: the answer, the claims by outcome, and what to keep in mind."""
    by_outcome = {o: [v for v in verdicts if v.outcome == o] for o in _HEADINGS}
    outcomes = [o for o, same in by_outcome.items() if same]
    yield f"{_answer(verdicts)}."
    for outcome in outcomes:
        heading = f"{_HEADINGS[outcome]}: " if len(outcomes) > 1 else ""
        yield f"{heading}{'; '.join(_sentences(by_outcome[outcome]))}."
    yield from filter(None, map(_best, evidence))
    if any(o in _ANSWERS for o in outcomes):
        yield _CAVEATS[verdicts[0].claim.family]


def _sentences(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The claims in quotes, those with the same reason together, the reason after them."""
    by_reason: dict[str, list[str]] = {}
    for v in verdicts:
        by_reason.setdefault(v.reason, []).append(f"“{v.sentence}”")
    for reason, sentences in by_reason.items():
        yield ", ".join(sentences) + (f": {reason}" if reason else "")


def _best(evidence: Evidence) -> str:
    """Which of the compared explanations lowers the probability most if its words are removed."""
    if evidence.claim.id != "competitive" or not len(evidence.values):
        return ""
    judged = printable(evidence.method)
    falls = {judged: float(evidence.values.mean())}
    for column in evidence.rows[0]:
        if column.startswith(RIVAL) and (mean := evidence.mean(column)) is not None:
            falls[column.removeprefix(RIVAL)] = mean
    best = max(falls, key=falls.__getitem__)
    if not falls[best] > max(0.0, min(falls.values())):  # no effect, or the same effect of all
        return ""
    ranked = sorted(falls, key=lambda name: (-falls[name], name))
    others = [f"{name} {number(falls[name])}" for name in ranked if name != best]
    return (
        f"Removing the words of {best} lowers the probability most, by {number(falls[best])} on"
        f" average ({', '.join(others)})."
    )


def _conditions(findings: Sequence[Finding]) -> str:
    answers = {True: "yes", False: "no", None: "undecided"}
    parts = []
    for f in findings:
        title, statistic = _CONDITIONS[f.condition.id]
        several = f.independent > 1
        text = interval(f.mean, f.low if several else None, f.high if several else None)
        side = f"{'>' if f.condition.above else '<'} {f.condition.threshold:g}"
        parts.append(f"{title}: {answers[f.holds]} ({statistic}: {text}, threshold {side}).")
    return (
        " ".join(parts) + f" Intervals are at {LEVEL:.1%}. Attention need not explain even if all"
        " conditions hold."
    )


# Columns


def extras(evidence: Evidence) -> list[tuple[str, str]]:
    """The means of the further columns, and how many documents have no statistic."""
    present = {key for row in evidence.rows for key, value in row.items() if _is_extra(key, value)}
    columns = [c for c in _COLUMNS if c in present] + sorted(present - set(_COLUMNS))
    means = [
        (_COLUMNS.get(c, c.replace("_", " ")), number(evidence.mean(c), _decimals(evidence, c)))
        for c in columns
    ]
    missing = len(evidence.rows) - len(evidence.values)
    return means + ([("documents without this statistic", f"{missing:,}")] if missing else [])


def _decimals(evidence: Evidence, column: str) -> int:
    """Decimals of the mean of a column: one, if it counts something."""
    values = [row[column] for row in evidence.rows if row.get(column) is not None]
    counts = all(float(v).is_integer() for v in values) and max(values) > 1
    return 1 if counts else 3


def _is_extra(key: str, value: object) -> bool:
    one_of_many = re.search(r"_\d+$", key) is not None  # of several seeds or strengths
    return (
        key not in _KEYS
        and not one_of_many
        and isinstance(value, Real)
        and not isinstance(value, bool)
    )
