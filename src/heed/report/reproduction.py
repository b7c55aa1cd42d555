"""A reproduction as a page, as tables and as figures, all drawn from the folder that it left."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from html import escape
from pathlib import Path
from typing import Any

from markupsafe import Markup

from heed.errors import DataError, OutputError
from heed.methods import Explanation
from heed.papers import PAPERS
from heed.papers.folder import read_sections
from heed.papers.results import Figure, Result, Section
from heed.report import charts, figures
from heed.report import html as pages
from heed.report.explanation import by_document
from heed.report.numbers import duration
from heed.report.panels import panels
from heed.report.results import MANY, named, ours, published, remarks, shared
from heed.report.shading import legend
from heed.text import printable

_FACTS = {"scale": "scale", "model": "model", "seed": "seed", "heed": "heed version"}


def load(folder: Path) -> tuple[str, list[Section]]:
    """The name of the paper, and the experiments that a folder holds, in the order of the paper."""
    sections = read_sections(folder)
    if not sections:
        raise DataError(f"The folder {folder} holds no experiments of a reproduction.")
    paper = str(sections[0].facts.get("paper"))
    order = [e.name for e in PAPERS[paper].experiments] if paper in PAPERS else []
    return paper, read_sections(folder, order)


def html(paper: str, sections: Sequence[Section]) -> str:
    """A page of everything that was found, beside what was published."""
    name = f"“{PAPERS[paper].title}”" if paper in PAPERS else paper
    differ = [key for key in _FACTS if len(_values(sections, key)) > 1]
    return pages.render(
        "reproduction.html.j2",
        title=f"Reproduction of {name}",
        paper=paper,
        facts=list(_facts(sections)),
        overview=[row for s in sections for row in _overview(s)],
        sections=[_section(s, differ) for s in sections],
        many=MANY,
        legend=legend(),
    )


def write(folder: Path, paper: str, sections: Sequence[Section]) -> None:
    """The page, and each figure and table as files of their own."""
    try:
        for part in ("figures", "tables"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "report.html").write_text(html(paper, sections), encoding="utf8")
        for section in sections:
            name, results = _slug(section.name), section.outcome.results
            _write_csv(folder / "tables" / f"{name}.csv", results)
            markdown = folder / "tables" / f"{name}.md"
            markdown.write_text(_markdown(results), encoding="utf8")
            for f in section.outcome.figures:
                _write_figure(folder / "figures" / f"{name}-{_slug(f.name)}", f)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written ({error}).") from None


# The page


def _values(sections: Sequence[Section], key: str) -> list[str]:
    """A fact as it stands for all sections; several where they were run differently."""
    return list(dict.fromkeys(_text(s.facts.get(key)) for s in sections))


def _text(value: object) -> str:
    return "–" if value is None else str(value)


def _facts(sections: Sequence[Section]) -> Iterator[tuple[str, str]]:
    for key, name in _FACTS.items():
        yield name, ", ".join(_values(sections, key))
    yield "experiments", str(len(sections))
    yield "run in", duration(sum(s.facts.get("seconds") or 0.0 for s in sections))


def _overview(section: Section) -> Iterator[dict[str, Any]]:
    results = section.outcome.results
    for result in results:
        if result.published is not None:
            where = {"experiment": section.title, "anchor": _anchor(section.name)}
            yield _row(result) | where | {"metric": named(result, results)}


def _section(section: Section, differ: Sequence[str]) -> dict[str, Any]:
    outcome, facts = section.outcome, section.facts
    common = shared(outcome.results)
    groups = by_document(Explanation.from_dict(dict(e)) for e in outcome.explanations)
    run = [f"run in {duration(facts['seconds'])}"] if facts.get("seconds") is not None else []
    return {
        "name": section.name,
        "anchor": _anchor(section.name),
        "title": section.title,
        "question": section.question,
        "notes": remarks(outcome.results),
        "results": [_row(r) for r in outcome.results],
        "shared": list(common.items()),
        "columns": [name for name in ("model", "data") if name not in common],
        "figures": [_figure(section.name, f) for f in outcome.figures],
        "documents": [pages.document(i, group) for i, group in enumerate(groups, 1)],
        "run": run + [f"{_FACTS[key]} {_text(facts.get(key))}" for key in differ],
    }


def _row(result: Result) -> dict[str, str]:
    return {
        "metric": result.metric,
        "model": result.model,
        "data": result.dataset,
        "ours": ours(result),
        "published": published(result),
        "n": f"{result.n:,}" if result.n else "–",
    }


def _figure(section: str, f: Figure) -> dict[str, str]:
    key = f"{_anchor(section)}-{_slug(f.name)}"
    chart = Markup(charts.svg(figures.figure(f), key)) if panels(f) else ""
    return {"title": f.title, "caption": figures.caption(f), "chart": chart}


def _anchor(name: str) -> str:
    return f"experiment-{_slug(name)}"


def _slug(name: str) -> str:
    """A name for files and links: nothing in it leads to another folder."""
    return re.sub(r"[^A-Za-z0-9_-]", lambda c: f"_{ord(c[0]):x}_", name)


# Files


def _write_csv(path: Path, results: Sequence[Result]) -> None:
    with path.open("w", encoding="utf8", newline="") as file:
        table = csv.DictWriter(file, [f.name for f in fields(Result)], lineterminator="\n")
        table.writeheader()
        table.writerows(asdict(r) for r in results)


def _markdown(results: Sequence[Result]) -> str:
    head = ("metric", "model", "data", "ours [interval]", "n", "published")
    keys = ("metric", "model", "data", "ours", "n", "published")
    lines = [head, ("---",) * len(head)]
    for row in map(_row, results):
        lines.append(tuple(_cell(row[key]) for key in keys))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return escape(printable(text), quote=False).replace("|", "\\|")


def _write_figure(path: Path, f: Figure) -> None:
    if not panels(f):
        return
    chart = figures.titled(f)
    for ending in (".svg", ".png"):
        charts.save(chart, path.with_suffix(ending))
