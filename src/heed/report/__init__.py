"""What users see: explanations and audits on a terminal, as pages and as charts.

Everything is drawn from explanations and measured rows; no model is needed.
Here are the words that terminal and page share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heed.diagnose import Evidence, Verdict
    from heed.explain import Explanation
    from heed.text import Document

SYMBOLS = {"supported": "✓", "refuted": "✗", "undecided": "~", "not applicable": "–"}

# Columns that diagnostics keep beside their statistic, in plain words; others are shown by their names.
_COLUMNS = {
    "max_attention": "largest attention on one word",
    "special_attention": "attention on special tokens",
    "padding_attention": "attention on padding",
    "gradient_removal": "yardstick: τ between gradient × input and leave-one-out",
    "comprehensiveness": "fall of the probability, words that are pointed to",
    "random": "fall of the probability, random words",
    "spearman": "rank correlation with the change on removal",
    "spearman_gradient": "the same for gradient × input",
    "again": "yardstick: τ between two draws of LIME with words replaced",
    "negative_contribution": "share of LIME's weight that speaks against the label",
}
_KEYS = ("document", "id", "value")


def number(value: float | None) -> str:
    """Three decimals, a fourth where these would all be zero."""
    if value is None or math.isnan(value):
        return "–"
    digits = 3 if abs(value) >= 0.0005 or abs(value) < 0.00005 else 4
    return f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0: no minus before zero


def interval(verdict: Verdict) -> str:
    """The mean with its interval, or a dash where nothing was measured."""
    if verdict.mean is None:
        return "–"
    return f"{number(verdict.mean)} [{number(verdict.low)}, {number(verdict.high)}]"


def extras(evidence: Evidence) -> list[tuple[str, str]]:
    """The means of the further columns, and how many documents had no statistic."""
    columns = dict.fromkeys(key for row in evidence.rows for key, value in row.items() if _is_extra(key, value))
    found = [(_COLUMNS.get(c, c.replace("_", " ")), number(evidence.mean(c))) for c in columns]
    missing = len(evidence.rows) - len(evidence.values)
    return found + ([("documents without this statistic", f"{missing:,}")] if missing else [])


def _is_extra(key: str, value: object) -> bool:
    return key not in _KEYS and isinstance(value, Real) and not isinstance(value, bool)


def by_document(explanations: Iterable[Explanation]) -> list[list[Explanation]]:
    """Explanations grouped by the document that they explain, in order of appearance."""
    groups: dict[Document, list[Explanation]] = {}
    for e in explanations:
        groups.setdefault(e.document, []).append(e)
    return list(groups.values())


def comparable(explanations: list[Explanation]) -> bool:
    """Whether it means something to correlate them: several, of the same label, over the same kind of units."""
    return len(explanations) > 1 and len({(e.label, e.unit) for e in explanations}) == 1
