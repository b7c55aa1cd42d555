"""What heed knows, by name: rows of (name, what there is to say of it), without loading torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any

from heed.audit import Audit
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


def diagnostics() -> list[tuple[str, str]]:
    rows = []
    for name, cls in DIAGNOSTICS.items():
        claim, settings = cls.claim, ", ".join(_default(f) for f in fields(cls))
        needs = [*sorted(claim.needs), *(["labels"] if claim.labelled else []), *([cls.asks] if cls.asks else [])]
        needs += ["training data (--train)"] if claim.trains else []
        lines = [claim.of("attention"), f"{claim.statistic} {claim.side()} ({authors(claim.source)})"]
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
    "diagnostics": diagnostics,
    "models": models,
    "reproductions": reproductions,
}


def bibtex(names: Sequence[str]) -> str:
    """The BibTeX entries behind methods, claims, data sets, reproductions and saved audits (all, without names)."""
    keys = {name: cls.paper for name, cls in METHODS.items()}
    keys |= {name: cls.claim.source for name, cls in DIAGNOSTICS.items()}
    keys |= {name: known.cite for name, known in KNOWN.items()}
    keys |= {name: paper.source for name, paper in PAPERS.items()}
    files = {name: cited(Audit.load(Path(name))) for name in names if name.endswith(".parquet")}
    chosen = [used for name in names for used in files.get(name, [name])] if names else list(keys)
    for name in chosen:
        if name not in keys:
            raise UnknownName("method, claim, data set or paper", name, keys)
    wanted = {key for name in chosen for key in keys[name].split()}
    return "\n\n".join(entry for key, entry in _papers().items() if key in wanted)


def authors(source: str) -> str:
    """Who wrote the papers with these keys, and when, as one cites them in a sentence; other keys as they are."""
    papers = _papers()
    return "; ".join(
        f"{_names(papers[key])} {_field(papers[key], 'year')}" if key in papers else key for key in source.split()
    )


def _names(entry: str) -> str:
    """Family names; of more than three authors the first."""
    family = [name.partition(",")[0] for name in _field(entry, "author").split(" and ")]
    if len(family) > 3:
        return f"{family[0]} et al."
    return " and ".join([", ".join(family[:-1]), family[-1]] if family[1:] else family)


def _field(entry: str, name: str) -> str:
    found = re.search(rf"^ *{name} = {{(.*)}},?$", entry, re.MULTILINE)
    assert found, f"{name} is missing in {entry}"
    return found[1]


@cache
def _papers() -> dict[str, str]:
    """BibTeX entries by their keys."""
    entries = (Path(__file__).parent / "papers.bib").read_text(encoding="utf8").split("\n\n")
    return {entry.strip().partition("{")[2].partition(",")[0]: entry.strip() for entry in entries}


def cited(audit: Audit) -> list[str]:
    """What an audit rests on, by name: its claims, its data, and methods that it judges and shows."""
    shown = [e.method for example in audit.examples[:1] for e in example.explanations]
    claims = [e.claim.id for e in audit.evidence]
    named = [*claims, str(audit.facts["data"]).split(" ")[0], *audit.facts["explainers"], *shown]
    return [name for name in dict.fromkeys(named) if name in METHODS or name in DIAGNOSTICS or name in KNOWN]
