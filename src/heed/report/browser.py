"""The documents in the page of an audit: their words and scores, small enough for a file of 3 MB.

Scores are kept as shares of the largest of the document, in two bytes, or in one byte if there are
many documents. Nothing here is markup: the page's own script makes text of it.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from heed.report.words import verdict_key
from heed.text import harmless, printable

if TYPE_CHECKING:
    from heed.audit import Audit, Example
    from heed.methods import Explanation

Place = tuple[int, int, int]  # of a word: segment, start, end
Kind = type[np.int8] | type[np.int16]


def content(audit: Audit, room: int) -> dict[str, Any]:
    """Documents with their explanations, as plain values, in so many bytes at most.

    If there is too little room for all, scores become coarser first; then heads are left out, then
    documents.
    """
    if not audit.examples:
        return {"methods": [], "labels": [], "documents": [], "claims": [], "removal": None}
    methods = list(
        dict.fromkeys(e.method for example in audit.examples for e in example.explanations)
    )
    first = {e.method: e for example in reversed(audit.examples) for e in example.explanations}
    for kind in (np.int16, np.int8):
        documents = [
            _document(i, example, methods, kind) for i, example in enumerate(audit.examples)
        ]
        if sum(map(_size, documents)) <= room:
            break
    return {
        "methods": [
            {
                "name": printable(name),
                "signed": first[name].signed,
                "judged": name in audit.facts["methods"],
                "output": str(first[name].settings.get("output", "")),
            }
            for name in methods
        ],
        "labels": [printable(label) for label in audit.examples[0].explanations[0].probabilities],
        "removal": methods.index("occlusion") if "occlusion" in methods else None,
        "documents": _fitting(documents, room),
        "claims": [
            {
                "number": i,
                "name": printable(verdict_key(audit.verdicts[i])),
                "values": _values(e.rows, len(audit.examples)),
            }
            for i, e in enumerate(audit.evidence)
            if len(e.values)
        ],
    }


def _fitting(documents: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    sizes, heads = (
        np.array([_size(part) for part in parts])
        for parts in (documents, [d["heads"] for d in documents])
    )
    heads -= _size(None)  # which stands in their place
    if sizes.sum() > room:
        with_heads = np.cumsum(sizes) + (sizes - heads).sum() - np.cumsum(sizes - heads) <= room
        documents = [
            d if kept else d | {"heads": None}
            for d, kept in zip(documents, with_heads, strict=True)
        ]
        sizes = np.where(with_heads, sizes, sizes - heads)
    return [d for d, end in zip(documents, np.cumsum(sizes), strict=True) if end <= room]


def _size(value: Any) -> int:
    return (
        len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf8", "replace"))
        + 1
    )


def _values(rows: list[dict[str, Any]], count: int) -> list[float | None]:
    """The statistic of each document that is shown."""
    values: list[float | None] = [None] * count
    for row in rows:
        if row["document"] < count and np.isfinite(row["value"]):
            values[row["document"]] = float(f"{row['value']:.4g}")
    return values


def _document(index: int, example: Example, methods: list[str], kind: Kind) -> dict[str, Any]:
    finest = max(example.explanations, key=lambda e: len(e.units))
    document = finest.document
    places = sorted((u.segment, start, end) for u in finest.units for start, end in u.spans)
    return {
        "index": index,
        "id": printable(document.id),
        "segments": [harmless(segment) for segment in document.segments],
        "units": [_gaps(places, s) for s in range(len(document.segments))],
        "probabilities": [float(f"{p:.4g}") for p in finest.probabilities.values()],
        "label": list(finest.probabilities).index(finest.label),
        "gold": example.gold,
        "scores": {
            methods.index(e.method): _packed(_on(e, places), kind) for e in example.explanations
        },
        "heads": None
        if example.heads is None
        else {"count": len(example.heads)} | _packed(example.heads, kind),
        "bands": next((_bands(e) for e in example.explanations if e.raw is not None), None),
        "notes": list(
            dict.fromkeys(printable(note) for e in example.explanations for note in e.notes)
        ),
    }


def _gaps(places: list[Place], segment: int) -> list[int]:
    """The words of a segment: the characters between each and the one before, and its length."""
    gaps, at = [], 0
    for s, start, end in places:
        if s == segment:
            gaps += [start - at, end - start]
            at = end
    return gaps


def _on(explanation: Explanation, places: list[Place]) -> Float[np.ndarray, "word"]:
    """Scores of the words at these places; repeated words may share one score."""
    units = {(u.segment, start): i for i, u in enumerate(explanation.units) for start, _ in u.spans}
    return np.array([explanation.scores[units[s, start]] for s, start, _ in places], dtype=float)


def _packed(numbers: Float[np.ndarray, "*any"], kind: Kind) -> dict[str, Any]:
    largest = float(np.abs(numbers).max(initial=0.0))
    shares = np.round(np.iinfo(kind).max * numbers / (largest or 1.0)).astype(
        np.dtype(kind).newbyteorder("<")
    )
    packed = base64.b64encode(shares.tobytes()).decode()
    return {"largest": float(f"{largest:.5g}"), "bytes": shares.itemsize, "shares": packed}


def _bands(explanation: Explanation) -> dict[str, Any]:
    """Attention, its efficient form and its range, if computed, for the twelve largest words."""
    raw, scores = explanation.raw, explanation.scores
    assert raw is not None
    intervals = (
        np.full((len(raw), 2), np.nan) if explanation.intervals is None else explanation.intervals
    )
    ends = np.nanmax(np.column_stack([raw, scores, intervals]), axis=1, initial=0.0)
    ends[np.isnan(intervals[:, 0])] -= (
        2 * (~np.isnan(intervals)).any()
    )  # those that were looked at come first
    rows = []
    for i in np.argsort(-ends, kind="stable")[:12]:
        numbers = [float(f"{x:.4g}") for x in (raw[i], scores[i])]
        rows.append(
            [int(i), *numbers, *(None if np.isnan(x) else float(f"{x:.4g}") for x in intervals[i])]
        )
    return {"name": printable(explanation.method), "rows": rows}
