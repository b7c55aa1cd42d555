"""Explain what a text classifier attends to, and audit whether that explains its prediction."""

from importlib import metadata

from heed import data
from heed.audit import Audit, Plan, Training, audit, plan
from heed.data import tasks
from heed.errors import HeedError
from heed.methods import Comparison, Explanation, Imported, Method, compare, explain
from heed.methods.imported import load_explanations, save_explanations
from heed.models import load
from heed.models.classifier import Classifier
from heed.models.entailed import entailed
from heed.models.function import Function
from heed.models.prompted import prompted
from heed.models.trace import Trace
from heed.progress import show_progress
from heed.rank import Ranking, diff, rank
from heed.text import Document, Tokens

__version__ = metadata.version("heed")

__all__ = [
    "Audit",
    "Classifier",
    "Comparison",
    "Document",
    "Explanation",
    "Function",
    "HeedError",
    "Imported",
    "Method",
    "Plan",
    "Ranking",
    "Tokens",
    "Trace",
    "Training",
    "audit",
    "compare",
    "data",
    "diff",
    "entailed",
    "explain",
    "load",
    "load_explanations",
    "plan",
    "prompted",
    "rank",
    "save_explanations",
    "show_progress",
    "tasks",
]
