"""From evidence to verdicts: needs no model, and treats all claims alike.

The gate is tested first, at 5 %. All others that were planned, claims × methods, are a family that
is tested together at 5 %. What was planned but not measured stays in it: the size of a family is
fixed by the plan, not by what turned out to apply.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heed.claims.claim import GATES, Claim, Evidence, Verdict
from heed.claims.tested import Tested, with_intervals
from heed.intervals import ERROR, Crossed, Interval, step_down
from heed.methods import reads_attention

Pair = tuple[str, str]  # a claim and a method
_CLOSED = {
    "needed": "the task does not need attention",
    "used": "the prediction hardly depends on attention",
}


def judge(
    evidence: Sequence[Evidence],
    planned: Collection[str | Pair] | None = None,
    any_time: bool = False,
) -> list[Verdict]:
    """One verdict for all evidence that is judged, in order.

    planned    the methods that were planned, or pairs of a claim and a method; all else forms a
               family of its own, so that to add it changes no verdict on these. By default all
    any_time   use intervals that stay valid if documents are added until claims are decided

    The gate applies only to explanations made of attention.
    """
    judged = [e for e in evidence if e.judged]
    gates = [_gate(e, judged) for e in judged]
    inside = [planned is None or _is_planned(e, planned) for e in judged]
    families = [[i for i, own in enumerate(inside) if own == first] for first in (True, False)]
    missing = _missing(judged, planned or ())
    tests: dict[int, Tested] = {}
    for family in families:
        made = with_intervals([judged[i] for i in family], any_time)
        tests |= dict(zip(family, made, strict=True))
    decisions: dict[int, _Decision] = {}
    for family in families:
        decisions |= _together({i: tests[i] for i in family if i in gates}, any_time)
    closing = {i for i, d in decisions.items() if d.decided and tests[i].side == "refuted"}
    closed = {i for i, g in enumerate(gates) if g in closing and _closes(judged[i])}
    for family, unmeasured in zip(families, (missing, 0), strict=True):
        rest = {i: tests[i] for i in family if i not in gates}
        decisions |= _together(rest, any_time, closed, unmeasured)
    controls = with_intervals([e for e in evidence if e.control and not e.claim.check], any_time)
    verdicts = []
    for i, e in enumerate(judged):
        beside = [c for c in controls if c.claim.id == e.claim.id and c.evidence.method != e.method]
        verdict = _verdict(tests[i], decisions[i], beside)
        if i in closed and verdict.outcome != "not applicable":
            gate = judged[gates[i] or 0].claim.id
            reason = f"{_CLOSED[gate]} ('{gate}' is refuted), so this would be a bad testbed"
            verdict = replace(verdict, outcome="not applicable", cause="gate", reason=reason)
        verdicts.append(verdict)
    return verdicts


def _is_planned(evidence: Evidence, planned: Collection[str | Pair]) -> bool:
    claim, method = evidence.claim, evidence.method
    if claim.of_explanation:
        return method in planned or (claim.id, method) in planned
    names = {pair[0] for pair in planned if not isinstance(pair, str)}
    return claim.id in names or not names  # a claim about the model has no method


def _missing(judged: Sequence[Evidence], planned: Collection[str | Pair]) -> int:
    """How many planned pairs there is no evidence for, not even a refusal."""
    pairs = {pair for pair in planned if not isinstance(pair, str)}
    there = {(e.claim.id, e.method) for e in judged}
    of_model = {e.claim.id for e in judged if not e.claim.of_explanation}
    return sum(pair not in there and pair[0] not in of_model for pair in pairs)


def _gate(evidence: Evidence, judged: Sequence[Evidence]) -> int | None:
    """The place of the gate for this evidence: the first of `GATES` that could be run."""
    for name in GATES:
        for i, e in enumerate(judged):
            own = not e.claim.of_explanation or e.method == evidence.method
            if e.claim.id == name and e.refusal is None and own:
                return i
    return None


def _closes(evidence: Evidence) -> bool:
    """Whether a gate that is refuted closes this claim."""
    of_attention = reads_attention(evidence.method) or not evidence.claim.of_explanation
    return evidence.claim.gated and of_attention


@dataclass(frozen=True)
class _Decision:
    """Whether a claim was decided, and the level at which it was or was not."""

    decided: bool
    level: float


def _together(
    family: dict[int, Tested], any_time: bool, closed: Collection[int] = (), missing: int = 0
) -> dict[int, _Decision]:
    """Test a family. Closed claims stay in it undecided; `missing` ones have no evidence at all."""
    measured = [i for i, test in family.items() if test.has_statistic]
    p = np.array([1.0 if i in closed else family[i].p for i in measured])
    chance = None if any_time or not measured else np.stack([family[i].chance for i in measured])
    decided, levels = step_down(p, chance, len(family) - len(measured) + missing)
    decisions = {
        i: _Decision(bool(d), float(level))
        for i, d, level in zip(measured, decided, levels, strict=True)
    }
    # what was not measured shows the level of those that were not decided
    last = min((d.level for d in decisions.values()), default=1 - ERROR)
    return decisions | {i: _Decision(False, last) for i in family if i not in decisions}


def _verdict(test: Tested, decision: _Decision, controls: Sequence[Tested]) -> Verdict:
    evidence, level = test.evidence, decision.level
    undecided = Verdict(test.claim, "undecided", level=level, method=evidence.method)
    if evidence.refusal:
        cause, reason = evidence.refusal
        return replace(undecided, outcome="not applicable", cause=cause, reason=reason)
    if not test.intervals:
        return replace(undecided, cause="statistic", reason="no document has this statistic")
    if not test.has_statistic:
        reason = "the documents do not have this statistic"
        return replace(undecided, cause="statistic", reason=reason)
    undecided = _numbered(undecided, test, controls)
    if few := test.few:
        return replace(undecided, cause="few", reason=few)
    if undecided.low is None:
        return replace(undecided, cause="spans", reason="the interval has no end")
    if not decision.decided:
        return _undecided(undecided, test)
    assert test.side is not None
    if test.side == "refuted" or not test.claim.chance:
        return replace(undecided, outcome=test.side)
    for control in controls:
        if control.has_statistic and control.passes(level):
            mean = control.intervals[control.shown(level)].point
            reason = f"chance passes as well: {control.evidence.method} reaches {mean:.3g}"
            return replace(undecided, cause="chance", reason=reason)
    return replace(undecided, outcome=test.side)


def _numbered(verdict: Verdict, test: Tested, controls: Sequence[Tested]) -> Verdict:
    """The verdict with its numbers."""
    level = verdict.level
    shown = test.shown(level)
    interval = test.intervals[shown]
    parts = {part: (i.point, *i.ends(level)) for part, i in test.intervals.items()}
    low, high = interval.ends(level)
    if test.claim.bracket and test.side is None:  # the truth lies between both bounds
        low = min(part[1] for part in parts.values())
        high = max(part[2] for part in parts.values())
    chance = {c.evidence.method: c.intervals[c.shown(level)] for c in controls if c.has_statistic}
    numbered = replace(
        verdict,
        mean=interval.point,
        n=test.samples[shown].independent,
        interval=interval.kind,
        ceiling=test.evidence.mean("ceiling"),
        controls={method: i.point for method, i in chance.items()},
    )
    if not np.isfinite([low, high, *(end for part in parts.values() for end in part)]).all():
        return numbered  # too few documents for an interval
    return replace(
        numbered,
        low=low,
        high=high,
        parts=parts if len(parts) > 1 else {},
        strictest=low if test.claim.above else high,
    )


def _undecided(verdict: Verdict, test: Tested) -> Verdict:
    """Why a claim with enough documents is not decided."""
    claim, level = test.claim, verdict.level
    if test.disagrees(level):
        means = ", ".join(f"{part} {i.point:.3g}" for part, i in test.intervals.items())
        reason = f"it depends on how words are removed: {means}"
        return replace(verdict, cause="operators", reason=reason)
    if test.side is None and len(test.intervals) > 1:
        what = "lower and upper bound" if claim.bracket else "ways to remove words"
        reason = f"{what} lie on both sides of the threshold"
        return replace(verdict, cause="spans", reason=reason)
    interval = _slowest(test)
    reason = "the interval spans the threshold"
    if isinstance(interval, Crossed) and interval.mostly_seeds(level):
        reason += f": {interval.seeds} training seeds say too little"
    wanted = interval.wanted(claim.threshold, level, verdict.n)
    return replace(verdict, cause="spans", reason=reason, wanted=wanted)


def _slowest(test: Tested) -> Interval:
    """The interval that is decided last."""
    deciding = [test.intervals[part] for part in test.deciding]
    return max(deciding, key=lambda interval: interval.p(test.claim.threshold))


@dataclass(frozen=True)
class Check:
    """What is true by algebra, held against a bound for rounding.

    largest   the largest value of any document; None if there was none
    holds     whether it is within the bound; None if there was none
    reason    why nothing was measured
    """

    claim: Claim
    largest: float | None
    bound: float
    n: int
    holds: bool | None
    method: str = "attention-mean"
    reason: str = ""


def checks(evidence: Sequence[Evidence]) -> list[Check]:
    """What became of the checks, which are in no family and get no verdict."""
    found = []
    for e in evidence:
        if not e.claim.check or e.control:
            continue
        largest = float(e.values.max()) if len(e.values) else None
        holds = None if largest is None else largest <= e.claim.threshold
        reason = e.reason or ("" if len(e.values) else "no document has this statistic")
        found.append(
            Check(e.claim, largest, e.claim.threshold, e.independent, holds, e.method, reason)
        )
    return found
