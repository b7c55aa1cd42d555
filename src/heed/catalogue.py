"""What heed knows, by name: rows of (name, what there is to say of it), without loading torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from heed.data import KNOWN, sources
from heed.diagnose import DIAGNOSTICS
from heed.errors import UnknownName
from heed.explain import METHODS
from heed.models.folders import bundled, facts
from heed.reproduce import PAPERS
from heed.tasks import TASKS


def _default(f: Any) -> str:
    """A setting and what it is if nobody sets it."""
    value = f.default if f.default is not MISSING else f.default_factory()
    return f"{f.name}={'none' if value is None else value}"


def methods() -> list[tuple[str, str]]:
    return [
        (
            name,
            f"{cls.summary}\n"
            + (", ".join(_default(f) for f in sorted(fields(cls), key=lambda f: f.kw_only is True)) or "no settings"),
        )
        for name, cls in METHODS.items()
    ]


def data() -> list[tuple[str, str]]:
    rows = []
    for name, known in KNOWN.items():
        counts = ", ".join(f"{split} {part.rows:,}" for split, part in known.splits.items())
        rows.append((name, f"{known.title}\n{counts}; {sources(name) or 'hub only'}"))
    return rows


def tasks() -> list[tuple[str, str]]:
    return [(f"task:{name}", (make.__doc__ or "").strip().splitlines()[0]) for name, make in TASKS.items()]


def claims() -> list[tuple[str, str]]:
    rows = []
    for name, cls in DIAGNOSTICS.items():
        claim, settings = cls.claim, ", ".join(_default(f) for f in fields(cls))
        about = f"{claim.of('attention')}\n{claim.statistic} {claim.side()} ({claim.source})"
        about += "\ntrains the model again: needs --train" if claim.trains else ""
        rows.append((name, about + (f"\n{settings}" if settings else "")))
    return rows


def models() -> list[tuple[str, str]]:
    rows = []
    for name, folder in bundled().items():
        config = facts(folder)
        test = config.get("test") or {}
        known = f"{config['kind']}, trained on {config['data']['name']}"
        rows.append((name, known + (f", test accuracy {test['accuracy']:.1%}" if test else "")))
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


def bibtex(names: list[str]) -> str:
    """The BibTeX entries behind these methods, claims, data sets and reproductions (all, if there are no names)."""
    keys = {name: cls.paper for name, cls in METHODS.items()}
    keys |= {name: cls.claim.source for name, cls in DIAGNOSTICS.items()}
    keys |= {name: known.cite for name, known in KNOWN.items()}
    keys |= {name: paper.source for name, paper in PAPERS.items()}
    for name in names:
        if name not in keys:
            raise UnknownName("method, claim, data set or paper", name, keys)
    wanted = {key for name in (names or keys) for key in keys[name].split()}
    entries = (Path(__file__).parent / "papers.bib").read_text(encoding="utf8").split("\n\n")
    return "\n\n".join(e.strip() for e in entries if any(f"{{{key}," in e for key in wanted))
