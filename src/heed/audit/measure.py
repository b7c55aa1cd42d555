"""The rows of one claim, and in which order claims are measured."""

from __future__ import annotations

from heed.claims import ClaimTest, Evidence, Study
from heed.claims.claim import Refusal
from heed.claims.study import collect


def turn(test: ClaimTest) -> tuple[bool, ...]:
    """The order of tests: the gate first, then quick claims; what trains comes last."""
    claim, slow = test.claim, test.claim.slow
    return claim.id != "used", claim.trains, claim.id != "needed", slow, slow and claim.gated


def measure(test: ClaimTest, study: Study, spent: float | None) -> Evidence:
    """Rows, or why there are none; `spent` is the budget in minutes, if it is used up."""
    if spent is None:
        return collect(test, study)
    budget = Refusal("budget", f"the budget of {spent:g} minutes was spent")
    return Evidence(test.claim, [], test.refusal(study) or budget, study.method.name)
