"""heed explains what a text classifier attends to, and audits whether that explains its prediction."""

from heed import data, tasks
from heed.audit import Audit, audit
from heed.errors import HeedError
from heed.explain import Brought, Comparison, Explainer, Explanation, compare, explain
from heed.explain.brought import load_explanations, save_explanations
from heed.models import load
from heed.models.classifier import Classifier
from heed.models.function import Function
from heed.text import Document, Tokens
from heed.trace import Trace

__all__ = [
    "Audit",
    "Brought",
    "Classifier",
    "Comparison",
    "Document",
    "Explainer",
    "Explanation",
    "Function",
    "HeedError",
    "Tokens",
    "Trace",
    "audit",
    "compare",
    "data",
    "explain",
    "load",
    "load_explanations",
    "save_explanations",
    "tasks",
]
