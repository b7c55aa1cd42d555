"""What heed knows, by name: rows of (name, what there is to say of it), without loading torch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from heed.claims import CLAIMS
from heed.data import KNOWN, sources
from heed.data.tasks import TASKS
from heed.methods import METHODS
from heed.models import public
from heed.models.folders import bundled, facts
from heed.papers import PAPERS
from heed.report.bibliography import authors
from heed.settings import allowed


def _default(f: Any) -> str:
    """A setting and what it is if nobody sets it."""
    value = f.default if f.default is not MISSING else f.default_factory()
    return f"{f.name}={'none' if value is None else value}"


def methods() -> list[tuple[str, str]]:
    rows = []
    for name, cls in METHODS.items():
        own_first = sorted(fields(cls), key=lambda f: f.kw_only is True)
        settings = ", ".join(map(_default, own_first)) or "no settings"
        rows.append((name, f"{cls.summary}\n{settings}"))
    return rows


def settings_of(cls: type) -> list[tuple[str, str]]:
    """The settings of a method or a claim: the default, what it means, and what it may be."""
    meanings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        # lines of a docstring such as "samples     how many texts to evaluate"
        for key, text in _MEANING.findall(inspect.cleandoc(base.__doc__ or "")):
            meanings[key] = " ".join(text.split())
    rows = []
    for f in fields(cls):
        meaning = meanings.get(f.name, "")
        rows.append((_default(f), f"{meaning}\n({allowed(cls, f.name)})".strip()))
    return rows


def details(kind: str, name: str) -> list[tuple[str, str]]:
    """A method or a claim, and then its settings."""
    cls = OWNERS[kind][name]
    about = dict(LISTS[kind]())[name]
    if fields(cls):
        about = about.rpartition("\n")[0]  # without the line of settings
    if kind == "claims":
        about += f"\n{' '.join((inspect.getdoc(cls) or '').split())}"
    return [(name, about), *settings_of(cls)]


_MEANING = re.compile(r"^(\w+) {2,}(\S.*(?:\n {3,}\S.*)*)", re.MULTILINE)


def data() -> list[tuple[str, str]]:
    rows = []
    for name, dataset in KNOWN.items():
        by_origin: dict[str, list[str]] = {}
        for split, part in dataset.splits.items():
            local = sources(name, split)
            if local or part.hub:
                size = part.rows if local else part.hub_rows or part.rows
                by_origin.setdefault(local or "hub", []).append(f"{split} {size:,}")
        splits = "; ".join(f"{origin}: {', '.join(s)}" for origin, s in by_origin.items())
        rows.append((name, f"{dataset.title}\n{splits}"))
    return rows


def tasks() -> list[tuple[str, str]]:
    docs = {name: make.__doc__ or "" for name, make in TASKS.items()}
    return [(f"task:{name}", doc.strip().splitlines()[0]) for name, doc in docs.items()]


def claims() -> list[tuple[str, str]]:
    rows = []
    for name, cls in CLAIMS.items():
        claim = cls.claim
        training = "training data (--train)" if claim.trains else ""
        needs = [*sorted(claim.needs), "labels" if claim.labelled else "", claim.asks, training]
        needed = ", ".join(filter(None, needs))
        lines = [
            claim.sentence_about("attention"),
            f"{claim.statistic} {claim.side()} ({authors(claim.source)})",
            f"needs {needed}" if needed else "",
            f"cost: {claim.cost}",
            ", ".join(map(_default, fields(cls))),
        ]
        rows.append((name, "\n".join(filter(None, lines))))
    return rows


def models() -> list[tuple[str, str]]:
    rows = []
    for name, folder in bundled().items():
        config = facts(folder)
        test = config.get("test") or {}
        accuracy = f", test accuracy {test['accuracy']:.1%}" if test else ""
        rows.append((name, f"{config['kind']}, trained on {config['data']['name']}{accuracy}"))
    for name, checkpoint in public.checkpoints().items():
        installed = "installed" if public.is_installed(name) else f"heed models get {name}"
        rows.append((name, f"{checkpoint.title}\npublic, {installed}"))
    return rows


def reproductions() -> list[tuple[str, str]]:
    rows = []
    for name, paper in PAPERS.items():
        questions = [f"{e.name}: {e.question}" for e in paper.experiments]
        rows.append((name, "\n".join([paper.title, *questions])))
    return rows


# What has settings.
OWNERS: dict[str, dict[str, type]] = {"methods": {**METHODS}, "claims": {**CLAIMS}}

LISTS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "methods": methods,
    "data": data,
    "tasks": tasks,
    "claims": claims,
    "models": models,
    "reproductions": reproductions,
}
