"""What heed knows, by name: rows of (name, what there is to say of it), without loading torch."""

from __future__ import annotations

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


def _default(f: Any) -> str:
    """A setting and what it is if nobody sets it."""
    value = f.default if f.default is not MISSING else f.default_factory()
    return f"{f.name}={'none' if value is None else value}"


def methods() -> list[tuple[str, str]]:
    return [
        (
            name,
            f"{cls.summary}\n"
            + (
                ", ".join(_default(f) for f in sorted(fields(cls), key=lambda f: f.kw_only is True))
                or "no settings"
            ),
        )
        for name, cls in METHODS.items()
    ]


def data() -> list[tuple[str, str]]:
    rows = []
    for name, known in KNOWN.items():
        places: dict[str, list[str]] = {}
        for split, part in known.splits.items():
            local = sources(name, split)
            if local or part.hub:
                rows_there = part.rows if local else part.hub_rows or part.rows
                places.setdefault(local or "hub", []).append(f"{split} {rows_there:,}")
        splits = "; ".join(f"{place}: {', '.join(parts)}" for place, parts in places.items())
        rows.append((name, f"{known.title}\n{splits}"))
    return rows


def tasks() -> list[tuple[str, str]]:
    return [
        (f"task:{name}", (make.__doc__ or "").strip().splitlines()[0])
        for name, make in TASKS.items()
    ]


def claims() -> list[tuple[str, str]]:
    rows = []
    for name, cls in CLAIMS.items():
        claim, settings = cls.claim, ", ".join(_default(f) for f in fields(cls))
        needs = [
            *sorted(claim.needs),
            *(["labels"] if claim.labelled else []),
            *([cls.asks] if cls.asks else []),
        ]
        needs += ["training data (--train)"] if claim.trains else []
        lines = [
            claim.of("attention"),
            f"{claim.statistic} {claim.side()} ({authors(claim.source)})",
        ]
        lines += [f"needs {', '.join(needs)}"] if needs else []
        lines += [f"cost: {cls.cost}"] + ([settings] if settings else [])
        rows.append((name, "\n".join(lines)))
    return rows


def models() -> list[tuple[str, str]]:
    rows = []
    for name, folder in bundled().items():
        config = facts(folder)
        test = config.get("test") or {}
        known = f"{config['kind']}, trained on {config['data']['name']}"
        rows.append((name, known + (f", test accuracy {test['accuracy']:.1%}" if test else "")))
    for name, checkpoint in public.checkpoints().items():
        installed = "installed" if public.is_installed(name) else f"heed models get {name}"
        rows.append((name, f"{checkpoint.title}\npublic, {installed}"))
    return rows


def reproductions() -> list[tuple[str, str]]:
    return [
        (name, "\n".join([paper.title, *(f"{e.name}: {e.question}" for e in paper.experiments)]))
        for name, paper in PAPERS.items()
    ]


LISTS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "methods": methods,
    "data": data,
    "tasks": tasks,
    "claims": claims,
    "models": models,
    "reproductions": reproductions,
}
