"""Explanations and audits as pages: one file each, without scripts and without the network.

Jinja escapes every text; only what this module marks with `Markup` is taken as it is: shaded documents, which
`drawing` has escaped already, and charts, which vega has.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from heed.explain import agreement as agreement_of
from heed.explain import drawing
from heed.report import SYMBOLS, by_document, comparable, extras, interval

if TYPE_CHECKING:
    from jinja2 import Environment

    from heed.audit import Audit
    from heed.diagnose import Evidence, Verdict
    from heed.explain import Explanation

_LABELS = 6  # labels whose probability is shown


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
    return render("page.html.j2", title=title, documents=documents, legend=legend(), unfolded=True, audit=None)


def audit(audit: Audit) -> str:
    """A page of verdicts with the evidence for each, and some documents with their explanations."""
    claims = [_claim(audit, e, v) for e, v in zip(audit.evidence, audit.verdicts, strict=True)]
    content = {
        "facts": list(_facts(audit)),
        "claims": claims,
        "closing": [line.partition(": ")[::2] for line in audit.closing()],
        "level": f"{audit.verdicts[0].level:.1%}" if audit.verdicts else "95.0%",
    }
    documents = [document(i, list(group), None) for i, group in enumerate(audit.examples, 1)]
    title = f"Audit of {audit.facts['model']} on {audit.facts['data']}"
    return render("page.html.j2", title=title, documents=documents, legend=legend(), unfolded=False, audit=content)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    settings = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return Environment(loader=PackageLoader("heed", "report"), finalize=_clean, **settings)  # type: ignore[arg-type]


def _clean(value: Any) -> Any:
    """Plain strings without control and direction characters; `Markup` stays as it is."""
    return drawing.printable(value) if type(value) is str else value


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
    if facts.get("truncated"):
        yield "cut off", f"{facts['truncated']:,} documents were longer than the model reads"
    if facts.get("unknown"):
        yield "unknown words", f"{facts['unknown']:.1%}"
    if facts.get("accuracy") is not None:
        yield "accuracy", f"{facts['accuracy']:.3f}"
    yield "explanation judged", facts["explainer"]
    yield "seed", str(facts["seed"])
    yield "measured in", f"{facts['seconds']:.1f} s"
    yield "heed version", str(facts["heed"])


def _claim(audit: Audit, evidence: Evidence, verdict: Verdict) -> dict[str, Any]:
    claim = verdict.claim
    settings = audit.facts.get("settings", {}).get(claim.id, {})
    return {
        "id": claim.id,
        "anchor": _anchor(claim.id),
        "sentence": audit.sentence(verdict),
        "statistic": claim.statistic,
        "mean": interval(verdict),
        "asked": claim.side(),
        "n": f"{verdict.n:,}",
        "outcome": verdict.outcome,
        "symbol": SYMBOLS[verdict.outcome],
        "kind": verdict.outcome.replace(" ", "-"),
        "reason": verdict.reason,
        "source": claim.source,
        "about": _about(claim.id),
        "extras": extras(evidence),
        "settings": _pairs(settings),
        "chart": _chart(evidence, verdict),
    }


def _anchor(name: str) -> str:
    """A name for links within the page; different claims have different ones."""
    return "claim-" + re.sub(r"[^a-z0-9-]", lambda c: f"_{ord(c[0]):x}_", name)


def _about(name: str) -> str:
    """How a claim is measured: what its diagnostic says of itself."""
    from heed.diagnose import DIAGNOSTICS

    return " ".join((inspect.getdoc(DIAGNOSTICS[name]) or "").split()) if name in DIAGNOSTICS else ""


def _chart(evidence: Evidence, verdict: Verdict) -> str:
    from markupsafe import Markup

    from heed.report import charts

    if not len(evidence.values):
        return ""
    return Markup(charts.svg(charts.claim(evidence, verdict), _anchor(evidence.claim.id)))


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
        "agreement": _matrix(group, agreement) if agreement is not None and len(group) > 1 else None,
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
        "settings": _pairs(explanation.settings | {"unit": explanation.unit, "seed": explanation.seed}),
        "facts": [(name.replace("_", " "), f"{value:.4g}") for name, value in explanation.facts.items()],
        "notes": [note for note in explanation.notes if note not in shared],
    }


def _pairs(settings: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, "by default" if value is None else str(value)) for name, value in settings.items()]


def _matrix(group: Sequence[Explanation], agreement: Float[np.ndarray, "method method"]) -> dict[str, Any]:
    """The lower half of the matrix; columns are lettered, because there may be a dozen of them."""
    named = [(_letter(i), e.method) for i, e in enumerate(group)]
    cells = [[_cell(t) for t in row[:i]] for i, row in enumerate(agreement)]
    return {"columns": named[:-1], "rows": [(*name, row) for name, row in zip(named, cells, strict=True)]}


def _letter(index: int) -> str:
    return (_letter(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)


def _cell(tau: float) -> tuple[str, str]:
    """A correlation and the ground it stands on: blue for the same order, orange for the reverse."""
    if np.isnan(tau):
        return "–", "transparent"
    return f"{tau:.2f}", _rgba(drawing.FOR if tau > 0 else drawing.AGAINST, 0.6 * min(1.0, abs(tau)))


def legend() -> list[tuple[str, list[str]]]:
    """What the colours mean, with a few steps of each."""
    words = ((drawing.FOR, "for the label"), (drawing.AGAINST, "against it"), (drawing.UNSIGNED, "important (no sign)"))
    return [(text, [_rgba(colour, share) for share in (0.15, 0.4, 0.7, 1.0)]) for colour, text in words]


def _rgba(colour: tuple[int, int, int], alpha: float) -> str:
    return f"rgba({colour[0]},{colour[1]},{colour[2]},{alpha:.2f})"
