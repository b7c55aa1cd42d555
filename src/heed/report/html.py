"""Explanations and audits as pages: one file each, without the network.

Jinja escapes every text. Only what this module marks with `Markup` is taken as it is: shaded
documents, which `explanation` has escaped; charts, which vega has; and the script of an audit with
the data that it reads (`_inert`).
"""

from __future__ import annotations

import inspect
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from heed.methods import agreement as agreement_of
from heed.report import browser
from heed.report import explanation as parts
from heed.report.bibliography import authors, bibtex, cited
from heed.report.explanation import by_document, comparable
from heed.report.numbers import cell, duration, number
from heed.report.shading import AGAINST, FOR, legend, rgba
from heed.report.words import (
    SYMBOLS,
    changed,
    extras,
    outcome,
    summary,
    verdict_interval,
    verdict_key,
)
from heed.text import counted, printable

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.methods import Explanation

_LABELS = 6  # labels whose probability is shown
_LARGEST = 2_850_000  # bytes of charts, script and documents in an audit's page


def explanations(
    explanations: Sequence[Explanation],
    agreement: Float[np.ndarray, "method method"] | None = None,
    title: str = "Explanations",
) -> str:
    """A page of documents, each shaded by its methods, and how far the methods agree.

    `agreement` is computed if it is not given; it can be given for one document only.
    """
    groups = by_document(explanations)
    given = agreement if len(groups) == 1 else None
    documents = [document(i, group, given) for i, group in enumerate(groups, 1)]
    return render("page.html.j2", title=title, documents=documents, legend=legend(), unfolded=True)


def audit(audit: Audit) -> str:
    """A page of verdicts with their evidence, and a browser for the documents.

    Its script is in the file; by its digest, a browser runs this script and no other.
    """
    pictures = _pictures(audit)
    script = resources.files("heed.report").joinpath("templates", "audit.js").read_text("utf8")
    room = _LARGEST - sum(len(text.encode()) for text in (script, *pictures.values()))
    content = browser.content(audit, room)
    level = audit.verdicts[0].level if audit.verdicts else 0.95
    facts, names = audit.facts, cited(audit)
    entries = Markup("{}").format(bibtex(names) if names else "")  # which keeps its line ends
    return render(
        "audit.html.j2",
        title=f"Audit of {facts['model']} on {facts['data']}",
        facts=list(_facts(audit)),
        claims=[
            _claim(audit, index, content, pictures.get(verdict_key(verdict), Markup()))
            for index, verdict in enumerate(audit.verdicts)
        ],
        summary=list(summary(audit).items()),
        unit=facts.get("unit", "word"),
        documents=len(audit.examples),
        shown=len(content["documents"]),
        legend=legend(),
        agreement=_agreement(audit, pictures.get("agreement", Markup())),
        level=f"{level:.1%}",
        judged=sum(not e.reason for e in audit.evidence),
        command=facts.get("command"),
        provenance=list(_provenance(audit)),
        bibtex=entries,
        content=_inert(content),
        script=Markup(script),
        digest=Markup(b64encode(sha256(script.encode()).digest()).decode()),
    )


def audit_table(audit: Audit) -> str:
    """The verdicts of an audit as a table, for a notebook."""
    titles = ("claim", "explanation", "mean [interval]", "threshold", "n", "verdict")
    rows = [
        (v.claim.id, v.method, verdict_interval(v), v.claim.side(), f"{v.n:,}", outcome(v))
        for v in audit.verdicts
    ]
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = ""
    for row in rows:
        cells = "".join(f"<td>{escape(printable(text))}</td>" for text in row)
        body += f"<tr>{cells}</tr>"
    return f"<p>{escape(printable(repr(audit)))}</p><table><tr>{head}</tr>{body}</table>"


def _pictures(audit: Audit) -> dict[str, Markup]:
    """Every chart as SVG, by name: one for wide windows and one for telephones."""
    from heed.report import charts

    wide, narrow = charts.every(audit), charts.every(audit, charts.NARROW)
    pictures = {}
    for i, name in enumerate(wide):
        drawn = [charts.svg(wide[name], f"wide-{i}")]
        if name != "agreement":  # which is small enough for both
            drawn.append(charts.svg(narrow[name], f"narrow-{i}"))
        pictures[name] = Markup("".join(f"<div>{svg}</div>" for svg in drawn))
    return pictures


def _inert(value: Any) -> Markup:
    """JSON that cannot end the element which holds it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("heed", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _clean(value: Any) -> Any:
    """Plain strings without control and direction characters; `Markup` stays as it is."""
    return printable(value) if type(value) is str else value


def render(template: str, **values: Any) -> str:
    """A page from its template."""
    return _environment().get_template(template).render(values)


# Audits


def _facts(audit: Audit) -> Iterator[tuple[str, str]]:
    facts = audit.facts
    yield from ((name, facts[name]) for name in ("model", "revision", "data"))
    if facts.get("runs"):
        yield "the model ran", facts["runs"]
    yield "documents", f"{facts['documents']:,}"
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
        pairs = [f"{key} = {value}" for key, value in _pairs(settings)]
        yield f"explanation {name}", ", ".join(pairs) or "no settings"
    yield "seed", str(facts["seed"])
    yield "heed version", str(facts["heed"])


def _agreement(audit: Audit, chart: Markup) -> dict[str, Any] | None:
    if not chart:
        return None
    names, matrix, counts = audit.agreement()
    lower = zip(*np.tril_indices(len(names), -1), strict=True)
    pairs = [(i, j) for i, j in lower if np.isfinite(matrix[i, j])]
    texts = [f"{names[i]} and {names[j]} {cell(matrix[i, j])}" for i, j in pairs]
    behind = sorted({int(counts[pair]) for pair in pairs})
    documents = " to ".join(f"{n:,}" for n in dict.fromkeys((behind[0], behind[-1])))
    return {"chart": chart, "words": f"Kendall's τ: {', '.join(texts)}", "documents": documents}


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
        "outcome": outcome(verdict),
        "symbol": SYMBOLS[verdict.outcome],
        "kind": verdict.outcome.replace(" ", "-"),
        "source": authors(claim.source),
        "about": _about(claim.id),
        "extras": extras(audit.evidence[index]),
        "settings": _pairs(audit.facts.get("settings", {}).get(claim.id, {})),
        "chart": chart,
        "extremes": _extremes(index, content),
    }


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


# Documents


def document(
    index: int, group: list[Explanation], agreement: Float[np.ndarray, "method method"] | None
) -> dict[str, Any]:
    """A document with everything that explains it, for the template."""
    first = group[0]
    labels = list(first.probabilities)
    label = first.document.label
    gold = labels[label] if label is not None and label < len(labels) else None
    if agreement is None and comparable(group):
        agreement = agreement_of(group)
    shared = [note for note in first.notes if all(note in e.notes for e in group)]
    matrix = None if agreement is None or len(group) < 2 else _matrix(group, agreement)
    return {
        "index": index,
        "id": first.document.id,
        "gold": gold,
        "wrong": gold is not None and first.probabilities[gold] < max(first.probabilities.values()),
        "probabilities": _bars(first),
        "more": max(0, len(labels) - _LABELS),
        "explained": list(dict.fromkeys(e.label for e in group)),
        "notes": shared,
        "methods": [_method(e, shared) for e in group],
        "agreement": matrix,
    }


def _bars(explanation: Explanation) -> list[dict[str, Any]]:
    """The most probable labels."""
    ranked = sorted(explanation.probabilities.items(), key=lambda item: -item[1])[:_LABELS]
    return [{"label": label, "width": f"{100 * p:.1f}", "text": number(p)} for label, p in ranked]


def _method(explanation: Explanation, shared: Sequence[str]) -> dict[str, Any]:
    settings = explanation.settings | {"unit": explanation.unit, "seed": explanation.seed}
    return {
        "name": explanation.method,
        "label": explanation.label,
        "text": Markup(parts.html_text(explanation) + parts.html_intervals(explanation)),
        "signed": explanation.signed,
        "strongest": list(parts.strongest(explanation)),
        "around": parts.around(explanation),
        "provenance": parts.provenance(explanation),
        "settings": _pairs(settings),
        "facts": parts.measured(explanation),
        "notes": [note for note in explanation.notes if note not in shared],
    }


def _pairs(settings: dict[str, Any]) -> list[tuple[str, str]]:
    texts = {name: "by default" if v is None else str(v) for name, v in settings.items()}
    return list(texts.items())


def _matrix(
    group: Sequence[Explanation], agreement: Float[np.ndarray, "method method"]
) -> dict[str, Any]:
    """The lower half of the matrix; columns are lettered, because there may be a dozen of them."""
    names = [(_letter(i), e.method) for i, e in enumerate(group)]
    rows = []
    for i, taus in enumerate(agreement):
        rows.append((*names[i], [_cell(tau) for tau in taus[:i]]))
    return {"columns": names[:-1], "rows": rows}


def _letter(index: int) -> str:
    return (_letter(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)


def _cell(tau: float) -> tuple[str, str]:
    """A correlation and its background: blue for the same order, orange for the reverse."""
    if np.isnan(tau):
        return "–", "transparent"
    return cell(tau), rgba(FOR if tau > 0 else AGAINST, 0.6 * min(1.0, abs(tau)))
