"""Claims over a data set: `audit` measures rows, and an `Audit` draws verdicts from them."""

from heed.audit.result import Audit, Example
from heed.audit.run import audit

__all__ = ["Audit", "Example", "audit"]
