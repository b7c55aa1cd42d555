"""Explanations and audits as pages: one file each, without the network.

Jinja escapes every text; only what this module marks with `Markup` is taken as it is: shaded documents, which
`drawing` has escaped already, charts, which vega has, and the scripts of an audit with what they read (`_inert`).
"""

from __future__ import annotations

import inspect
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from heed.methods import agreement as agreement_of
from heed.report import drawing
from heed.report.bibliography import authors, bibtex, cited
from heed.report.rows import SYMBOLS, by_document, comparable, extras, interval, lasted
from heed.text import counted, printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from heed.audit import Audit
    from heed.claims import Evidence, Verdict
    from heed.methods import Explanation

_LABELS = 6  # labels whose probability is shown
_LARGEST = 2_850_000  # bytes of an audit's page, apart from its words


def explanations(
    explanations: Sequence[Explanation],
    agreement: Float[np.ndarray, "method method"] | None = None,
    title: str = "Explanations",
) -> str:
    """A page of documents, each shaded by every method that explains it, and how far the methods agree.

    `agreement` is computed where it is not given; it can be given for one document only.
    """
    groups = by_document(explanations)
    given = agreement if len(groups) == 1 else None
    documents = [document(i, group, given) for i, group in enumerate(groups, 1)]
    return render("page.html.j2", title=title, documents=documents, legend=legend(), unfolded=True)


def audit(audit: Audit) -> str:
    """A page of verdicts with the evidence for each, and the documents with their explanations, to be leafed through.

    Its scripts are in the file, and by their digests the only ones that a browser will run.
    """
    from markupsafe import Markup

    from heed.report import browser, charts

    drawn = charts.every(audit)
    pictures = {name: charts.svg(chart, _anchor(name)) for name, chart in drawn.items()}
    narrow = charts.every(audit, charts.NARROW)
    specs = _inert({n: {"wide": drawn[n].to_dict(), "narrow": narrow[n].to_dict()} for n in drawn})
    scripts = [
        _library(),
        resources.files("heed.report").joinpath("templates", "audit.js").read_text(encoding="utf8"),
    ]
    room = _LARGEST - sum(len(text.encode()) for text in (*scripts, *pictures.values(), specs))
    content = browser.content(audit, room)
    level = audit.verdicts[0].level if audit.verdicts else 0.95
    facts = audit.facts
    return render(
        "audit.html.j2",
        title=f"Audit of {facts['model']} on {facts['data']}",
        facts=list(_facts(audit)),
        claims=[
            _claim(audit, e, v, content, pictures.get(charts.key_of(v), ""))
            for e, v in zip(audit.evidence, audit.verdicts, strict=True)
        ],
        closing=[line.partition(": ")[::2] for line in audit.closing()],
        documents=len(audit.examples),
        shown=len(content["documents"]),
        legend=legend(),
        agreement=_agreement(audit, pictures.get("agreement", "")),
        level=f"{level:.1%}",
        judged=sum(not e.reason for e in audit.evidence),
        command=facts.get("command"),
        provenance=list(_provenance(audit)),
        bibtex=Markup("{}").format(
            bibtex(used) if (used := cited(audit)) else ""
        ),  # with its line ends
        scripts={
            "digests": [
                Markup(b64encode(sha256(text.encode()).digest()).decode()) for text in scripts
            ],
            "content": _inert(content),
            "charts": specs,
            "library": Markup(scripts[0]),
            "own": Markup(scripts[1]),
        },
    )


@cache
def _library() -> str:
    """The programs that draw charts, for a script in a page."""
    import vl_convert

    found = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    return re.sub(
        r"</(?=script)|<(?=!--)", lambda m: m[0].replace("<", "\\x3c"), found, flags=re.IGNORECASE
    )


def _inert(value: Any) -> Markup:
    """JSON that cannot end the element which holds it."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(
        text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

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
    yield "model", facts["model"]
    yield "revision", facts["revision"]
    yield "data", facts["data"]
    yield "documents", f"{facts['documents']:,}"
    if facts.get("left_out"):
        yield "left out", f"{facts['left_out']:,} without a word that the model can read"
    if facts.get("unfit"):
        yield "not explained", facts["unfit"]
    if facts.get("truncated"):
        yield "cut off", f"{counted(facts['truncated'])} longer than the model reads"
    if facts.get("unknown"):
        yield "unknown words", f"{facts['unknown']:.1%}"
    if facts.get("accuracy") is not None:
        yield "accuracy", f"{facts['accuracy']:.3f}"
    yield (
        "judged" if len(facts["methods"]) > 1 else "explanation judged",
        ", ".join(facts["methods"]),
    )
    yield "seed", str(facts["seed"])
    yield "measured in", lasted(facts["seconds"])
    yield "heed version", str(facts["heed"])


def _provenance(audit: Audit) -> Iterator[tuple[str, str]]:
    facts = audit.facts
    yield "model", f"{facts['model']} (revision {facts['revision']})"
    yield "data", f"{facts['data']}, {counted(facts['documents'])}"
    for name, settings in facts["methods"].items():
        shown = [f"{key} = {value}" for key, value in _pairs(settings)]
        yield f"explanation {name}", ", ".join(shown) or "no settings"
    yield "seed", str(facts["seed"])
    yield "heed version", str(facts["heed"])


def _agreement(audit: Audit, chart: str) -> dict[str, Any] | None:
    from markupsafe import Markup

    if not chart:
        return None
    names, matrix, counts = audit.agreement()
    known = [(i, j) for i in range(len(names)) for j in range(i) if np.isfinite(matrix[i, j])]
    pairs = [f"{names[i]} and {names[j]} {matrix[i, j]:.2f}" for i, j in known]
    behind = sorted({int(counts[pair]) for pair in known})
    documents = " to ".join(f"{n:,}" for n in dict.fromkeys((behind[0], behind[-1])))
    return {
        "chart": Markup(chart),
        "words": f"Kendall's τ: {', '.join(pairs)}",
        "documents": documents,
    }


def _claim(
    audit: Audit, evidence: Evidence, verdict: Verdict, content: dict[str, Any], chart: str
) -> dict[str, Any]:
    from markupsafe import Markup

    from heed.report import charts

    claim, key = verdict.claim, charts.key_of(verdict)
    settings = audit.facts.get("settings", {}).get(claim.id, {})
    several = claim.of_explanation and len(audit.facts["methods"]) > 1
    return {
        "id": claim.id,
        "key": key,
        "method": verdict.method if several else "",
        "anchor": _anchor(key),
        "sentence": verdict.sentence,
        "statistic": claim.statistic,
        "mean": interval(verdict),
        "asked": claim.side(),
        "averaged": claim.combine is None,
        "n": f"{verdict.n:,}",
        "outcome": verdict.outcome,
        "symbol": SYMBOLS[verdict.outcome],
        "kind": verdict.outcome.replace(" ", "-"),
        "reason": verdict.reason,
        "source": authors(claim.source),
        "about": _about(claim.id),
        "extras": extras(evidence),
        "settings": _pairs(settings),
        "chart": Markup(chart),
        "extremes": _extremes(key, content),
    }


def _extremes(key: str, content: dict[str, Any]) -> list[tuple[str, int]]:
    """Documents that the page can show, with the smallest, the middle and the largest statistic."""
    shown = {d["index"] for d in content["documents"]}
    values = [v for c in content["claims"] if c["key"] == key for v in c["values"]]
    ranked = sorted((v, i) for i, v in enumerate(values) if v is not None and i in shown)
    if len({v for v, _ in ranked}) < 3:
        return []
    return [
        (name, ranked[at][1])
        for name, at in (("smallest", 0), ("middle", len(ranked) // 2), ("largest", -1))
    ]


def _anchor(name: str) -> str:
    """A name for links within the page; different claims have different ones."""
    return "claim-" + re.sub(r"[^a-z0-9-]", lambda c: f"_{ord(c[0]):x}_", name)


def _about(name: str) -> str:
    """How a claim is measured: what its test says of itself."""
    from heed.claims import CLAIMS

    told = (inspect.getdoc(CLAIMS[name]) or "") if name in CLAIMS else ""
    return " ".join(told.replace("`", "").split())


# Documents


def document(
    index: int, group: list[Explanation], agreement: Float[np.ndarray, "method method"] | None
) -> dict[str, Any]:
    """A document with everything that explains it, for the template."""
    first = group[0]
    labels = list(first.probabilities)
    gold = _gold(first)
    if agreement is None and comparable(group):
        agreement = agreement_of(group)
    shared = [note for note in first.notes if all(note in e.notes for e in group)]
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
        "agreement": _matrix(group, agreement)
        if agreement is not None and len(group) > 1
        else None,
    }


def _gold(explanation: Explanation) -> str | None:
    index, labels = explanation.document.label, list(explanation.probabilities)
    return labels[index] if index is not None and index < len(labels) else None


def _bars(explanation: Explanation) -> list[dict[str, Any]]:
    """The most probable labels."""
    ranked = sorted(explanation.probabilities.items(), key=lambda item: -item[1])[:_LABELS]
    return [{"label": label, "width": f"{100 * p:.1f}", "text": f"{p:.3f}"} for label, p in ranked]


def _method(explanation: Explanation, shared: Sequence[str]) -> dict[str, Any]:
    from markupsafe import Markup

    return {
        "name": explanation.method,
        "label": explanation.label,
        "text": Markup(drawing.html_text(explanation) + drawing.html_intervals(explanation)),
        "signed": explanation.signed,
        "strongest": list(drawing.strongest(explanation)),
        "specials": [
            f"{s.text} {s.score:+.3g}" if explanation.signed else f"{s.text} {s.score:.3g}"
            for s in explanation.specials
        ],
        "provenance": drawing.provenance(explanation),
        "settings": _pairs(
            explanation.settings | {"unit": explanation.unit, "seed": explanation.seed}
        ),
        "facts": [
            (name.replace("_", " "), f"{value:.4g}") for name, value in explanation.facts.items()
        ],
        "notes": [note for note in explanation.notes if note not in shared],
    }


def _pairs(settings: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, "by default" if value is None else str(value)) for name, value in settings.items()
    ]


def _matrix(
    group: Sequence[Explanation], agreement: Float[np.ndarray, "method method"]
) -> dict[str, Any]:
    """The lower half of the matrix; columns are lettered, because there may be a dozen of them."""
    named = [(_letter(i), e.method) for i, e in enumerate(group)]
    cells = [[_cell(t) for t in row[:i]] for i, row in enumerate(agreement)]
    return {
        "columns": named[:-1],
        "rows": [(*name, row) for name, row in zip(named, cells, strict=True)],
    }


def _letter(index: int) -> str:
    return (_letter(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)


def _cell(tau: float) -> tuple[str, str]:
    """A correlation and the ground it stands on: blue for the same order, orange for the reverse."""
    if np.isnan(tau):
        return "–", "transparent"
    return f"{tau:.2f}", drawing.rgba(
        drawing.FOR if tau > 0 else drawing.AGAINST, 0.6 * min(1.0, abs(tau))
    )


def legend() -> list[tuple[str, list[str]]]:
    """What the colours mean, with a few steps of each."""
    kinds = (
        ("for the label", 1, True),
        ("against it", -1, True),
        ("important (no sign)", 1, False),
    )
    steps = (0.15, 0.4, 0.7, 1.0)
    return [
        (text, [drawing.tint(sign * share, signed) for share in steps])
        for text, sign, signed in kinds
    ]
