"""Documents, and settings with which every method and claim takes little time."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from heed.claims import ClaimTest
from heed.text import Document, Span
from tests.test_transformer import TEXTS

# long enough to leave attention open; the last two are a pair that differs in a word
LONG = " and ".join(TEXTS[:1] * 2)
DOCUMENTS = [
    Document(LONG, id="long", label=0, rationale=(Span(19, 23),)),
    Document("the plot is very good and not slow", id="pair", label=1),
    Document("the plot is very bad and not slow", id="pair", label=0),
]
QUICK: dict[str, dict[str, Any]] = {
    "lime": {"samples": 30},
    "shapley": {"samples": 40},
    "integrated-gradients": {"steps": 5},
    "anchors": {"samples": 60},
    "slalom": {"samples": 1000},  # half precision is noise, which few samples do not average out
}
EFFORT = {"samples": 30, "steps": 5, "permutations": 5, "orders": 2, "draws": 1, "queries": 2}


MORE = {"robust": {"samples": 2000}}  # with few, two draws have nothing in common


def quick(test: type[ClaimTest]) -> ClaimTest:
    names = {field.name for field in fields(test)}
    effort = EFFORT | MORE.get(test.claim.id, {})
    return test(**{name: value for name, value in effort.items() if name in names})
