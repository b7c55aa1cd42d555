"""Explanations and audits as pages: one file each, without the network.

Only shaded documents are marked with `Markup`, since `explanation` has escaped them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from heed.methods import METHODS, group_of
from heed.methods import agreement as agreement_of
from heed.report import explanation as parts
from heed.report.audit_page import audit as audit
from heed.report.explanation import by_document, comparable
from heed.report.numbers import cell, number
from heed.report.page import pairs, scripted
from heed.report.page import render as render
from heed.report.shading import AGAINST, FOR, legend, rgba
from heed.report.words import recommended

if TYPE_CHECKING:
    from heed.methods import Explanation
    from heed.recommendation import Recommendation

_LABELS = 6  # labels whose probability is shown
_STRONGEST = 5  # words that are listed below a text


def explanations(
    explanations: Sequence[Explanation],
    agreement: bool = False,
    title: str = "Explanations",
    best: Recommendation | None = None,
) -> str:
    """A page of documents, each shown once, with a switch for the method that shades its words.

    Without scripts, and on paper, each method has its own copy of the text.

    agreement   whether to show how far the methods agree
    best        the method that a ranking recommends for the model
    """
    groups = by_document(explanations)
    documents = [document(i, group, agreement, best) for i, group in enumerate(groups, 1)]
    shown = [e.method for e in explanations]
    return render(
        "page.html.j2",
        title=title,
        documents=documents,
        legend=legend(),
        unfolded=True,
        best=recommended(best, shown) if best else "",
        **scripted("switch.js"),
    )


# Documents


def document(
    index: int,
    group: list[Explanation],
    agreement: bool = True,
    best: Recommendation | None = None,
) -> dict[str, Any]:
    """A document with everything that explains it, for the template."""
    first = group[0]
    labels = list(first.probabilities)
    label = first.document.label
    gold = labels[label] if label is not None and label < len(labels) else None
    matrix = _matrix(group, agreement_of(group)) if agreement and comparable(group) else None
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
        "model": f"{first.model}@{first.revision}",
        "methods": [_method(e, shared, best) for e in group],
        "agreement": matrix,
    }


def _bars(explanation: Explanation) -> list[dict[str, Any]]:
    """The most probable labels."""
    ranked = sorted(explanation.probabilities.items(), key=lambda item: -item[1])[:_LABELS]
    return [{"label": label, "width": f"{100 * p:.1f}", "text": number(p)} for label, p in ranked]


def _method(
    explanation: Explanation, shared: Sequence[str], best: Recommendation | None
) -> dict[str, Any]:
    known = METHODS.get(explanation.method)
    settings = explanation.settings | {"unit": explanation.unit, "seed": explanation.seed}
    return {
        "name": explanation.method,
        "group": group_of(explanation.method),
        "summary": "scores of another program" if known is None else known.summary,
        "best": best is not None and best.method == explanation.method,
        "label": explanation.label,
        "text": Markup(
            parts.html_text(explanation)
            + parts.html_intervals(explanation)
            + parts.html_plane(explanation)
        ),
        "signed": explanation.signed,
        "strongest": list(parts.strongest(explanation, _STRONGEST)),
        "around": parts.around(explanation),
        "provenance": parts.provenance(explanation),
        "settings": pairs(settings),
        "facts": parts.measured(explanation),
        "notes": [note for note in explanation.notes if note not in shared],
    }


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
