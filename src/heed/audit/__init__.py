"""Claims over a data set: `audit` measures rows, and an `Audit` draws verdicts from them."""

from heed.audit.cost import Cost, estimate
from heed.audit.diff import Change, Diff, diff
from heed.audit.plan import Plan, plan
from heed.audit.result import Audit, Example
from heed.audit.run import audit
from heed.audit.setup import QUICK_DOCUMENTS, Training, quick_claims

__all__ = [
    "QUICK_DOCUMENTS",
    "Audit",
    "Change",
    "Cost",
    "Diff",
    "Example",
    "Plan",
    "Training",
    "audit",
    "diff",
    "estimate",
    "plan",
    "quick_claims",
]
