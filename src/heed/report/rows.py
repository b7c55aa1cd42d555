"""What users see: explanations, audits and reproductions on a terminal, as pages and as charts.

Everything is drawn from explanations, measured rows and results; no model is needed.
Here are the words that terminal and page share.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heed.claims import Evidence, Verdict
    from heed.methods import Explanation
    from heed.papers.results import Result
    from heed.text import Document

MANY = 14  # results of an experiment, and remarks on them, that are shown without being asked for
SYMBOLS = {"supported": "✓", "refuted": "✗", "undecided": "~", "not applicable": "–"}

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
_KEYS = (
    "document",
    "id",
    "value",
    "jsd",
    "predicted",
    "adversary_predicted",
    "gold",
    "labels",
)  # names, and what says nothing as a mean


def number(value: float | None, digits: int | None = None) -> str:
    """Three decimals, a fourth where these would all be zero, unless told; none for large numbers."""
    if value is None or math.isnan(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = _digits(value) if digits is None else digits
    return f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0: no minus before zero


def _digits(value: float) -> int:
    return 3 if abs(value) >= 0.0005 or abs(value) < 0.00005 else 4


def interval(verdict: Verdict) -> str:
    """The mean with its interval, which one document does not tell, or a dash where nothing was measured."""
    if verdict.mean is None or verdict.n < 2:
        return number(verdict.mean)
    digits = _digits(verdict.mean)
    return f"{number(verdict.mean)} [{number(verdict.low, digits)}, {number(verdict.high, digits)}]"


def shown(value: float | None, whole: bool = True) -> str:
    """A number with the digits that matter: 12,345 or 0.512 or 1e-13; whole numbers have no decimals unless asked."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 1e9 or 0 < size < 0.0005:
        digits, _, power = f"{value:.2g}".partition("e")
        return f"{digits}e{int(power)}" if power else digits
    if size >= 1000 or (whole and value == int(value)):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 100 else f"{value:.3f}"


def ours(result: Result) -> str:
    """Our number with its interval, where it has one."""
    if result.ours is None or result.low is None or result.high is None:
        return shown(result.ours)
    return f"{shown(result.ours, False)} [{shown(result.low, False)}, {shown(result.high, False)}]"


def published(result: Result) -> str:
    """The published number as it was printed, or the paper's words; nothing where there is none."""
    value = result.published
    return "" if value is None else value if isinstance(value, str) else f"{value:g}"


def alike(results: Sequence[Result]) -> dict[str, str]:
    """The model and the data that all results have in common."""
    models, sets = {r.model for r in results}, {r.dataset for r in results}
    return ({"model": models.pop()} if len(models) == 1 else {}) | (
        {"data": sets.pop()} if len(sets) == 1 else {}
    )


def named(result: Result, results: Sequence[Result]) -> str:
    """The metric, with model and data where those of other results differ."""
    known = alike(results)
    parts = {"metric": result.metric, "model": result.model, "data": result.dataset}
    return " · ".join(text for name, text in parts.items() if name not in known)


def remarks(results: Sequence[Result]) -> list[tuple[str, str]]:
    """What is said of results, each once, and of which."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.note:
            found.setdefault(result.note, []).append(result)
    return [
        (note, named(own[0], results) + (f", and {len(own) - 1} more" if len(own) > 1 else ""))
        for note, own in found.items()
    ]


def lasted(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def extras(evidence: Evidence) -> list[tuple[str, str]]:
    """The means of the further columns, and how many documents had no statistic."""
    present = {key for row in evidence.rows for key, value in row.items() if _is_extra(key, value)}
    columns = [c for c in _COLUMNS if c in present] + sorted(present - set(_COLUMNS))
    found = [
        (_COLUMNS.get(c, c.replace("_", " ")), number(evidence.mean(c), _places(evidence, c)))
        for c in columns
    ]
    missing = len(evidence.rows) - len(evidence.values)
    return found + ([("documents without this statistic", f"{missing:,}")] if missing else [])


def _places(evidence: Evidence, column: str) -> int | None:
    """Decimals of the mean of a column: one, if it counts something."""
    values = [row[column] for row in evidence.rows if row.get(column) is not None]
    return 1 if all(float(v).is_integer() for v in values) and max(values) > 1 else None


def _is_extra(key: str, value: object) -> bool:
    one_of_many = re.search(r"_\d+$", key) is not None  # of several seeds or strengths
    return (
        key not in _KEYS
        and not one_of_many
        and isinstance(value, Real)
        and not isinstance(value, bool)
    )


def by_document(explanations: Iterable[Explanation]) -> list[list[Explanation]]:
    """Explanations grouped by the document that they explain, in order of appearance."""
    groups: dict[Document, list[Explanation]] = {}
    for e in explanations:
        groups.setdefault(e.document, []).append(e)
    return list(groups.values())


def comparable(explanations: list[Explanation]) -> bool:
    """Whether it means something to correlate them: several, of the same label, over the same kind of units."""
    return len(explanations) > 1 and len({(e.label, e.unit) for e in explanations}) == 1
