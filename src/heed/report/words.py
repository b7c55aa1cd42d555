"""An audit in words: a summary by family of claims, and plain names for the columns of the rows."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib import resources
from numbers import Real
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from heed.claims import CLAIMS
from heed.claims.claim import FAMILIES
from heed.claims.conditions import LEVEL
from heed.claims.faithful import RIVAL
from heed.methods import METHODS
from heed.report.numbers import interval, number
from heed.settings import plain
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.claims import Evidence, Verdict
    from heed.claims.conditions import Finding
    from heed.recommendation import Recommendation

SYMBOLS = {"supported": "✓", "refuted": "✗", "undecided": "~", "not applicable": "–"}
CONDITIONS = "Conditions for attention to explain"

# The answer for a family whose judged claims share an outcome.
_ANSWERS = {"supported": "yes", "refuted": "no", "undecided": "undecided"}
# True of every model, by how efficient attention is defined.
# Beyond this share, attention that a test does not move is worth a sentence.
_MOST_HELD = 0.5
_HOLDS = {True: "yes", False: "no", None: "undecided"}
# Longer tables: causes, headings, caveats, conditions, and the columns of rows.
_TABLES = tomllib.loads(resources.files("heed.report").joinpath("words.toml").read_text("utf8"))
GROUPS = _TABLES["groups"]  # what methods rest on, and what they show
FACTS = _TABLES["facts"]  # plain names for what a method measures besides scores


def recommended(best: Recommendation, shown: Sequence[str]) -> str:
    """Which method to trust on a model that was ranked, in a sentence."""
    how = "" if best.method in shown else f"; --method {best.method} shows it"
    return (
        f"On this model trust {best.method}: {best.reason} (ranked on {counted(best.documents)} of"
        f" {best.data}){how}."
    )


class Check(NamedTuple):
    """What is true by algebra: the largest deviation, and the bound that rounding keeps."""

    sentence: str
    largest: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.largest <= self.bound

    def __str__(self) -> str:
        sign, mark = ("≤", "✓") if self.holds else (">", "✗")
        return f"{mark} {self.sentence}: {number(self.largest)} {sign} {number(self.bound)}"


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
    if verdict.outcome != "not applicable":
        return verdict.outcome
    return str(_TABLES["causes"].get(verdict.cause, verdict.outcome))


def beside(verdict: Verdict) -> list[tuple[str, str]]:
    """What stands beside a verdict: its interval's kind, and what its numbers compare with."""
    v, side = verdict, ">" if verdict.claim.above else "<"
    if v.mean is None:
        return []
    found = [("interval", f"{v.interval}, {v.level:.1%}")]
    if v.strictest is not None:
        found.append(("strictest threshold", f"{side} {number(v.strictest)}"))
    if v.ceiling is not None:
        found.append(("ceiling", number(v.ceiling)))
    if v.controls:
        means = (f"{printable(name)} {number(mean)}" for name, mean in v.controls.items())
        found.append(("chance", ", ".join(means)))
    found += [(choice(name), interval(*numbers)) for name, numbers in v.parts.items()]
    if v.wanted is not None:
        found.append(("documents that would decide", f"about {v.wanted:,}"))
    return found


def choice(name: str) -> str:
    """Another way to measure a statistic, in words: a removal, a bound, or a variant's column."""
    texts = _TABLES["choices"]
    what, _, operator = name.removeprefix("variant_").rpartition("_")
    if what and operator in texts:  # a variant under one way to remove words
        return printable(f"{texts.get(what, what.replace('_', ' '))}, {texts[operator]}")
    plain = name.removeprefix("variant_")
    return printable(texts.get(plain, plain.replace("_", " ")))


def checks(audit: Audit) -> list[Check]:
    """What is true by algebra, with the largest deviation that was found, and its bound."""
    found = []
    for e in audit.evidence:
        if e.claim.check and len(e.values):
            largest = float(np.abs(e.values).max())
            found.append(Check(e.claim.sentence_about(e.method), largest, e.claim.threshold))
    return found


def changed(audit: Audit) -> str:
    """The settings that are not the default ones, and whether they favour a claim; or ""."""
    given = audit.facts.get("settings", {})
    parts, favoured = [], []
    for name, values in (*given.items(), *audit.facts["methods"].items()):
        cls = CLAIMS.get(name) or METHODS.get(name)
        defaults = plain(cls()) if cls else {}
        for key, default in defaults.items():
            value = values.get(key, default)
            if value == default:
                continue
            parts.append(
                f"{name}.{key}={value} (default: {'none' if default is None else default})"
            )
            is_number = isinstance(value, Real)
            if key in getattr(cls, "effort", ()) and is_number and value < default:
                favoured.append(name)
    text = f"Changed settings: {', '.join(parts)}." if parts else ""
    for name in dict.fromkeys(favoured):
        text += f" A smaller search finds fewer counterexamples, which favours the claim {name}."
    return printable(text)


# Summary


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
    judged = [v for v in verdicts if v.outcome in _ANSWERS]
    answers = {_ANSWERS[v.outcome] for v in judged}
    if not answers:
        return "not judged"
    if len(answers) > 1:
        return "in part"
    answer = answers.pop()
    return answer if len(judged) == len(verdicts) else f"{answer}, as far as tested"


def summary(audit: Audit) -> dict[str, str]:
    """One text per family of claims, after the conditions; never one yes or no for all families.

    It repeats no number of the table of verdicts.
    """
    texts = {CONDITIONS: _conditions(audit.findings)} if audit.findings else {}
    for family in FAMILIES:
        verdicts = [v for v in audit.verdicts if v.claim.family == family]
        if verdicts:
            evidence = [e for e in audit.judged if e.claim.family == family]
            texts[family.capitalize()] = " ".join(_family(verdicts, evidence))
    return texts


def _family(verdicts: Sequence[Verdict], evidence: Sequence[Evidence]) -> Iterator[str]:
    """The sentences on one family: the answer, the claims by outcome, and what to keep in mind."""
    answer = _answer(verdicts)
    yield f"{answer}."
    outcomes = {v.outcome for v in verdicts}
    for outcome, heading in _TABLES["headings"].items():
        same = [v for v in verdicts if v.outcome == outcome]
        if same:
            start = "" if heading.lower() == answer else f"{heading}: "
            yield f"{start}{'; '.join(_sentences(same))}."
    yield from filter(None, map(_best, evidence))
    yield from _held(evidence)
    if any(o in _ANSWERS for o in outcomes):
        yield _TABLES["caveats"][verdicts[0].claim.family]


def _sentences(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The claims in quotes, those with the same reason together, the reason after them."""
    by_reason: dict[str, list[str]] = {}
    for v in verdicts:
        by_reason.setdefault(v.reason, []).append(f"“{v.sentence}”")
    for reason, sentences in by_reason.items():
        yield ", ".join(sentences) + (f": {reason}" if reason else "")


def falls_of(evidence: Evidence) -> dict[str, float]:
    """The comprehensiveness of each compared method, on average: 0 worst order, 1 best."""
    own = evidence.mean("comprehensiveness")
    falls = {} if own is None else {printable(evidence.method): own}
    for column in evidence.rows[0] if evidence.rows else ():
        if column.startswith(RIVAL) and (mean := evidence.mean(column)) is not None:
            falls[printable(column.removeprefix(RIVAL))] = mean
    return falls


def is_scaled(evidence: Evidence) -> bool:
    """Whether comprehensiveness has the scale of the document; older files hold falls instead."""
    return any(column.startswith("value_") for column in evidence.rows[0])


def _best(evidence: Evidence) -> str:
    """Which of the compared explanations names the words whose removal matters most."""
    own = evidence.mean("comprehensiveness")
    if evidence.claim.id != "competitive" or not len(evidence.values) or own is None:
        return ""
    falls = falls_of(evidence)
    best = max(falls, key=falls.__getitem__)
    if not falls[best] > max(0.0, min(falls.values())):  # no effect, or the same effect of all
        return ""
    ranked = sorted(falls, key=lambda name: (-falls[name], name))
    others = [f"{name} {number(falls[name])}" for name in ranked if name != best]
    scale = " on the scale from the worst order (0) to the best (1)" if is_scaled(evidence) else ""
    return (
        f"Removing the words of {best} lowers the probability most: {number(falls[best])}{scale}"
        f" ({', '.join(others)})."
    )


def _held(evidence: Sequence[Evidence]) -> Iterator[str]:
    """How much of the attention the tests of a family cannot move, where that is most of it."""
    means = {e.claim.id: e.mean("held_attention") or 0.0 for e in evidence}
    most = {claim: mean for claim, mean in means.items() if mean > _MOST_HELD}
    if most:
        yield (
            f"{max(most.values()):.0%} of the attention lies on special tokens, template and"
            f" padding, and stays as it is ({', '.join(most)})."
        )


def _conditions(findings: Sequence[Finding]) -> str:
    parts = []
    for f in findings:
        words = _TABLES["conditions"][f.condition.id]
        several = f.independent > 1
        text = interval(f.mean, f.low if several else None, f.high if several else None)
        side = f"{'>' if f.condition.above else '<'} {f.condition.threshold:g}"
        measured = f"{words['statistic']}: {text}, threshold {side}"
        parts.append(f"{words['title']}: {_HOLDS[f.holds]} ({measured}).")
    parts.append(f"Intervals are at {LEVEL:.1%}.")
    return " ".join(parts) + " Attention need not explain even if all conditions hold."


# Columns


def extras(evidence: Evidence) -> list[tuple[str, str]]:
    """The means of the further columns, and how many documents have no statistic."""
    present = {key for row in evidence.rows for key, value in row.items() if _is_extra(key, value)}
    names = _TABLES["columns"]
    columns = [c for c in names if c in present] + sorted(present - set(names))
    means = [
        (names.get(c, c.replace("_", " ")), number(evidence.mean(c), _decimals(evidence, c)))
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
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    # values under each way to remove words, and under other choices, have a place of their own
    elsewhere = key.startswith(("value_", "variant_"))
    return is_number and key not in _TABLES["without_mean"] and not one_of_many and not elsewhere
