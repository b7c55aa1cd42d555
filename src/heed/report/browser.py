"""The documents in the page of an audit: their words and scores, small enough for a file of 3 MB.

Scores are kept as shares of the largest of the document, in two bytes, or in one byte if there are
many documents. Nothing here is markup: the page's own script makes text of it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from heed.methods.table import reads_attention
from heed.methods.units import PASSAGES
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
        nothing: dict[str, Any] = {"methods": [], "labels": [], "documents": [], "claims": []}
        return nothing | {"removal": None, "passages": False}
    names = audit.example_methods
    for kind in (np.int16, np.int8):
        documents = [_document(i, example, names, kind) for i, example in enumerate(audit.examples)]
        if sum(map(_size, documents)) <= room:
            break
    claims = []
    for i, (e, verdict) in enumerate(zip(audit.judged, audit.verdicts, strict=True)):
        if len(e.values):
            values = _values(e.rows, len(audit.examples))
            claims.append({"number": i, "name": printable(verdict_key(verdict)), "values": values})
    return {
        "methods": list(_methods(audit)),
        "labels": [printable(label) for label in audit.examples[0].explanations[0].probabilities],
        "removal": names.index("occlusion") if "occlusion" in names else None,
        "passages": audit.examples[0].explanations[0].unit in PASSAGES,
        "documents": _fitting(documents, room),
        "claims": claims,
    }


def _methods(audit: Audit) -> Iterator[dict[str, Any]]:
    first = {e.method: e for example in reversed(audit.examples) for e in example.explanations}
    for name in audit.example_methods:
        yield {
            "name": printable(name),
            "signed": first[name].signed,
            "judged": name in audit.facts["methods"],
            "output": str(first[name].settings.get("output", "")),
        }


def _fitting(documents: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    sizes = np.array([_size(d) for d in documents])
    # without its heads, a document holds a null in their place
    bare = sizes - np.array([_size(d["heads"]) for d in documents]) + _size(None)
    if sizes.sum() > room:
        # the first documents keep their heads, as long as those after them fit without theirs
        with_heads = np.cumsum(sizes) + bare.sum() - np.cumsum(bare) <= room
        pairs = zip(documents, with_heads, strict=True)
        documents = [d if kept else d | {"heads": None} for d, kept in pairs]
        sizes = np.where(with_heads, sizes, bare)
    return [d for d, end in zip(documents, np.cumsum(sizes), strict=True) if end <= room]


def _size(value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf8", "replace")) + 1  # a comma follows


def _values(rows: list[dict[str, Any]], count: int) -> list[float | None]:
    """The statistic of each document that is shown."""
    values: list[float | None] = [None] * count
    for row in rows:
        if row["document"] < count and np.isfinite(row["value"]):
            values[row["document"]] = float(f"{row['value']:.4g}")
    return values


def _document(index: int, example: Example, methods: list[str], kind: Kind) -> dict[str, Any]:
    finest = max(example.explanations, key=lambda e: len(e.units))
    document, heads = finest.document, example.heads
    places = sorted((u.segment, start, end) for u in finest.units for start, end in u.spans)
    notes = [printable(note) for e in example.explanations for note in e.notes]
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
        "heads": None if heads is None else {"count": len(heads)} | _packed(heads, kind),
        "bands": next((_bands(e) for e in example.explanations if _modifies_attention(e)), None),
        "notes": list(dict.fromkeys(notes)),
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
    steps = np.round(np.iinfo(kind).max * numbers / (largest or 1.0))
    shares = steps.astype(np.dtype(kind).newbyteorder("<"))  # the page's script reads this order
    packed = base64.b64encode(shares.tobytes()).decode()
    return {"largest": float(f"{largest:.5g}"), "bytes": shares.itemsize, "shares": packed}


def _modifies_attention(explanation: Explanation) -> bool:
    """Whether it shows other attention in the place of the model's own."""
    return explanation.raw is not None and reads_attention(explanation.method)


def _bands(explanation: Explanation) -> dict[str, Any]:
    """Attention, its efficient form and its range, if computed, for the twelve largest words."""
    raw, scores = explanation.raw, explanation.scores
    assert raw is not None
    intervals = explanation.intervals
    if intervals is None:
        intervals = np.full((len(raw), 2), np.nan)
    ends = np.nanmax(np.column_stack([raw, scores, intervals]), axis=1, initial=0.0)
    # attention is at most 1: two less puts those that were not looked at behind all others
    ends[np.isnan(intervals[:, 0])] -= 2 * (~np.isnan(intervals)).any()
    rows = []
    for i in np.argsort(-ends, kind="stable")[:12]:
        numbers = [
            None if np.isnan(x) else float(f"{x:.4g}") for x in (raw[i], scores[i], *intervals[i])
        ]
        rows.append([int(i), *numbers])
    return {"name": printable(explanation.method), "rows": rows}
