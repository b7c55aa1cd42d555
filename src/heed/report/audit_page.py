"""The page of an audit: the answer first, then charts, tables, documents and evidence.

It is one file and loads nothing. Only what this module marks with `Markup` is not escaped: charts,
which vega has escaped, and the script with the data that it reads (`inert`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from heed.audit.answer import Answer
from heed.report import browser
from heed.report.answer import answer
from heed.report.bibliography import authors, bibtex, cited
from heed.report.numbers import cell, duration, number
from heed.report.page import inert, pairs, render, scripted
from heed.report.planned import drawn, followed
from heed.report.shading import legend
from heed.report.words import (
    SYMBOLS,
    beside,
    changed,
    checks,
    extras,
    outcome,
    summary,
    verdict_interval,
    verdict_key,
)
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.audit import Audit

_LARGEST = 2_830_000  # bytes of charts, script and documents in a page


def audit(audit: Audit) -> str:
    """A page with the answer, the verdicts and their evidence, and a browser for the documents.

    Its script is in the file; by its digest, a browser runs this script and no other.
    """
    from heed.report.forest import turned

    pictures = _pictures(audit)
    script = scripted("audit.js")
    room = _LARGEST - sum(len(text.encode()) for text in (script["script"], *pictures.values()))
    content = browser.content(audit, room)
    facts, names = audit.facts, cited(audit)
    claims = [
        _claim(audit, index, content, pictures.get(verdict_key(verdict), Markup()))
        for index, verdict in enumerate(audit.verdicts)
    ]
    return render(
        "audit.html.j2",
        title=f"Audit of {facts['model']} on {facts['data']}",
        answer=answer(audit),
        brief=list(_brief(audit)),
        facts=list(_facts(audit)),
        claims=claims,
        judged=[c for c in claims if not c["folded"]],
        folded=[c for c in claims if c["folded"]],
        checks=[str(check) for check in checks(audit)],
        forest=pictures.get("forest"),
        choices=pictures.get("choices"),
        varied=list(turned(audit).items()),
        summary=list(summary(audit).items()),
        unit=facts.get("unit", "word"),
        documents=len(audit.examples),
        shown=len(content["documents"]),
        legend=legend(),
        agreement=_agreement(audit, pictures.get("agreement", Markup())),
        command=facts.get("command"),
        provenance=list(_provenance(audit)),
        bibtex=Markup("{}").format(bibtex(names) if names else ""),  # which keeps its line ends
        content=inert(content),
        **script,
    )


def _pictures(audit: Audit) -> dict[str, Markup]:
    """Every chart as SVG, by name: one for wide windows and one for telephones."""
    from heed.report import charts, forest

    wide, narrow = forest.every(audit), forest.every(audit, narrow=True)
    pictures = {}
    for i, name in enumerate(wide):
        drawn = [charts.svg(wide[name], f"wide-{i}")]
        if name != "agreement":  # which is small enough for both
            drawn.append(charts.svg(narrow[name], f"narrow-{i}"))
        pictures[name] = Markup("".join(f"<div>{svg}</div>" for svg in drawn))
    return pictures


# What was audited


def _brief(audit: Audit) -> Iterator[str]:
    """The audit in the few words that stand above its answer."""
    facts = audit.facts
    yield counted(facts["documents"])
    if facts.get("accuracy") is not None:
        yield f"accuracy {number(facts['accuracy'])}"
    yield f"judged: {', '.join(facts['methods'])}"
    if text := followed(audit, short=True):
        yield text


def _facts(audit: Audit) -> Iterator[tuple[str, str]]:
    facts = audit.facts
    yield from ((name, facts[name]) for name in ("model", "revision", "data"))
    if facts.get("runs"):
        yield "the model ran", facts["runs"]
    yield "documents", drawn(facts)
    if text := followed(audit):
        yield "plan", text
    if facts.get("left_out"):
        unread = f"without a {facts.get('unit', 'word')} that the model can read"
        yield "left out", f"{facts['left_out']:,} blank, or {unread}"
    if facts.get("unfit"):
        yield "not explained", facts["unfit"]
    if facts.get("rejudged"):
        yield "verdicts", f"judged {facts['rejudged']}"
    if facts.get("truncated"):
        yield "cut off", f"{counted(facts['truncated'])} longer than the model reads"
    if facts.get("unknown"):
        yield "unknown words", f"{facts['unknown']:.1%}"
    if facts.get("accuracy") is not None:
        yield "accuracy", number(facts["accuracy"])
    if (unit := facts.get("unit", "word")) != "word":
        yield "scored", f"{unit}s: they are meant where claims speak of words"
    judged = "judged" if len(facts["methods"]) > 1 else "explanation judged"
    yield judged, ", ".join(facts["methods"])
    if text := changed(audit):
        yield "settings", text
    yield "seed", str(facts["seed"])
    yield "measured in", duration(facts["seconds"])
    yield "heed version", str(facts["heed"])


def _provenance(audit: Audit) -> Iterator[tuple[str, str]]:
    facts = audit.facts
    yield "model", f"{facts['model']} (revision {facts['revision']})"
    yield "data", f"{facts['data']}, {counted(facts['documents'])}"
    for name, settings in facts["methods"].items():
        texts = [f"{key} = {value}" for key, value in pairs(settings)]
        yield f"explanation {name}", ", ".join(texts) or "no settings"
    yield "seed", str(facts["seed"])
    yield "heed version", str(facts["heed"])


def _agreement(audit: Audit, chart: Markup) -> dict[str, Any] | None:
    if not chart:
        return None
    names, matrix, counts = audit.agreement()
    lower = zip(*np.tril_indices(len(names), -1), strict=True)
    known = [(i, j) for i, j in lower if np.isfinite(matrix[i, j])]
    texts = [f"{names[i]} and {names[j]} {cell(matrix[i, j])}" for i, j in known]
    behind = sorted({int(counts[pair]) for pair in known})
    documents = " to ".join(f"{n:,}" for n in dict.fromkeys((behind[0], behind[-1])))
    return {"chart": chart, "words": f"Kendall's τ: {', '.join(texts)}", "documents": documents}


# Claims


def _claim(audit: Audit, index: int, content: dict[str, Any], chart: Markup) -> dict[str, Any]:
    """A verdict with its evidence, for the template."""
    verdict = audit.verdicts[index]
    claim = verdict.claim
    several = claim.of_explanation and len(audit.facts["methods"]) > 1
    return {
        "verdict": verdict,
        "method": verdict.method if several else "",
        "anchor": _anchor(verdict_key(verdict)),
        "mean": verdict_interval(verdict),
        "beside": beside(verdict),
        "outcome": outcome(verdict),
        "symbol": SYMBOLS[verdict.outcome],
        "kind": kind(verdict.outcome),
        "folded": verdict.outcome == "not applicable",
        "source": authors(claim.source),
        "about": _about(claim.id),
        "extras": extras(audit.judged[index]),
        "settings": pairs(audit.facts.get("settings", {}).get(claim.id, {})),
        "chart": chart,
        "extremes": _extremes(index, content),
    }


def kind(outcome: str) -> str:
    """The class of an outcome in a page."""
    return outcome.replace(" ", "-")


def _extremes(index: int, content: dict[str, Any]) -> list[tuple[str, int]]:
    """Documents on the page with the smallest, the middle and the largest statistic of a claim."""
    indices = {d["index"] for d in content["documents"]}
    values: list[float | None] = next(
        (c["values"] for c in content["claims"] if c["number"] == index), []
    )
    ranked = sorted((v, i) for i, v in enumerate(values) if v is not None and i in indices)
    if len({v for v, _ in ranked}) < 3:
        return []
    ranks = {"smallest": 0, "middle": len(ranked) // 2, "largest": -1}
    return [(name, ranked[rank][1]) for name, rank in ranks.items()]


def _anchor(name: str) -> str:
    """A name for links within the page; different claims have different ones."""
    return "claim-" + re.sub(r"[^a-z0-9-]", lambda c: f"_{ord(c[0]):x}_", name)


def _about(name: str) -> str:
    """How a claim is measured: what its test says of itself."""
    from heed.claims import CLAIMS

    text = (inspect.getdoc(CLAIMS[name]) or "") if name in CLAIMS else ""
    return " ".join(text.replace("`", "").split())


# Notebooks


def notebook(audit: Audit) -> str:
    """The answer, its tiles and the verdicts that were judged, for a notebook."""
    found = answer(audit)
    titles = ("claim", "explanation", "mean [interval]", "threshold", "n", "verdict")
    rows = [
        (v.claim.id, v.method, verdict_interval(v), v.claim.side(), f"{v.n:,}", _badge(v.outcome))
        for v in audit.verdicts
        if v.outcome != "not applicable"
    ]
    return (
        f"<p><strong>{_escaped(found.sentence)}</strong></p>{_tiles(found)}"
        f"{_next(found)}<details><summary>{_escaped(repr(audit))}</summary>"
        f"{_table(titles, rows)}</details>"
    )


def _badge(outcome: str) -> str:
    return f"{SYMBOLS[outcome]} {outcome}"


def _tiles(found: Answer) -> str:
    rows = [(f"{t.symbol} {t.family}", t.says, t.value, t.threshold, t.claim) for t in found.tiles]
    return _table(("", "answer", "statistic", "holds if", "claim"), rows)


def _next(found: Answer) -> str:
    """What to do next, in paragraphs."""
    texts = [f"Use instead: {found.use_instead}."] if found.use_instead else []
    texts += [f"Not tested: {', '.join(u.claims)} ({u.how})" for u in found.not_tested]
    return "".join(f"<p>{_escaped(text)}</p>" for text in texts)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = ""
    for row in rows:
        cells = "".join(f"<td>{_escaped(text)}</td>" for text in row)
        body += f"<tr>{cells}</tr>"
    return f"<table><tr>{head}</tr>{body}</table>"


def _escaped(text: str) -> str:
    return escape(printable(text))
