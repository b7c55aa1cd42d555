"""Two audits, document by document: which verdicts changed, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from heed.audit.result import Audit
from heed.claims import Evidence, Verdict
from heed.claims.claim import Claim, Row, grouped
from heed.claims.study import TEXT
from heed.errors import DataError, InputError
from heed.intervals import Sample, estimate

_OLD, _NEW = "old:", "new:"  # before the names of columns that stand side by side


@dataclass(frozen=True)
class Change:
    """One claim in two audits.

    old, new     the verdicts; None where an audit did not test it
    difference   of the statistic, new minus old, over the documents that both audits measured
    low, high    its interval
    n            how many documents both measured; those that share an id or a text count as one
    only_old, only_new   how many documents only one of the two measured
    """

    claim: Claim
    old: Verdict | None
    new: Verdict | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    only_old: int = 0
    only_new: int = 0

    @property
    def changed(self) -> bool:
        """Whether both audits have a verdict, and another one."""
        return (
            self.old is not None and self.new is not None and self.old.outcome != self.new.outcome
        )

    @property
    def moved(self) -> bool:
        """Whether the statistic is different beyond chance: the interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    @property
    def name(self) -> str:
        """The claim, with the method where it judges one: "removes of lime", "removes of a → b"."""
        methods = dict.fromkeys(v.method for v in (self.old, self.new) if v is not None)
        about = f" of {' → '.join(methods)}" if self.claim.of_explanation else ""
        return self.claim.id + about

    def to_dict(self) -> dict[str, Any]:
        def of(verdict: Verdict | None) -> dict[str, Any] | None:
            return None if verdict is None else verdict.to_dict()

        numbers = ("difference", "low", "high", "n", "only_old", "only_new", "changed", "moved")
        return {
            "claim": self.claim.id,
            "old": of(self.old),
            "new": of(self.new),
            **{name: getattr(self, name) for name in numbers},
        }


@dataclass(frozen=True, eq=False)
class Diff:
    """What changed from one audit to another.

    old, new   what was audited: the facts of the two audits
    changes    one for each claim and method
    level      of the intervals: all of them hold together at 95 %
    notes      what else differs between the audits, in words
    """

    old: dict[str, Any]
    new: dict[str, Any]
    changes: tuple[Change, ...]
    level: float
    notes: tuple[str, ...]

    @property
    def changed(self) -> tuple[Change, ...]:
        """The claims whose verdict is another one."""
        return tuple(change for change in self.changes if change.changed)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for other programs."""
        return {
            "old": self.old,
            "new": self.new,
            "level": self.level,
            "notes": list(self.notes),
            "changes": [change.to_dict() for change in self.changes],
        }

    def __repr__(self) -> str:
        both = sum(c.old is not None and c.new is not None for c in self.changes)
        return f"<Diff of two audits: {len(self.changed)} of {both} verdicts changed>"

    def _repr_html_(self) -> str:
        from heed.report import diff

        return diff.html_table(self)


def diff(old: Audit | Path | str, new: Audit | Path | str) -> Diff:
    """Compare two audits, document by document.

    old, new   audits, or the .parquet files that they saved

    Documents are the same if their texts are. The difference of each claim has an interval over the
    documents that both audits measured, wide enough for all claims together (Bonferroni).

        before = heed.audit(model, reviews)
        after = heed.audit(retrained, reviews)
        heed.diff(before, after).changed
    """
    audits = []
    for given in (old, new):
        if not isinstance(given, Audit | Path | str):
            kind = type(given).__name__
            raise InputError(
                f"Give two audits or two rankings, or the .parquet files of two, got {kind}."
            )
        audits.append(given if isinstance(given, Audit) else Audit.load(given))
    before, after = audits
    pairs = list(_pairs(before, after))
    compared = sum(one is not None and other is not None for one, other in pairs)
    level = 1 - 0.05 / max(1, compared)
    changes = tuple(_change(one, other, level) for one, other in pairs)
    return Diff(before.facts, after.facts, changes, level, tuple(_notes(before, after)))


# Which claims stand side by side

Judged = tuple[Verdict, Evidence]


def _pairs(old: Audit, new: Audit) -> Iterator[tuple[Judged | None, Judged | None]]:
    """The verdicts on the same claim and method, in the order of the audits.

    If each audit judges one method, these are compared, whatever they are.
    """
    alone = len(old.facts["methods"]) == len(new.facts["methods"]) == 1

    def keyed(audit: Audit) -> dict[tuple[str, str], Judged]:
        judged = zip(audit.verdicts, audit.judged, strict=True)
        by_key = {}
        for v, e in judged:
            by_key[v.claim.id, v.method if v.claim.of_explanation and not alone else ""] = (v, e)
        return by_key

    before, after = keyed(old), keyed(new)
    for key in dict.fromkeys((*before, *after)):
        yield before.get(key), after.get(key)


def _change(old: Judged | None, new: Judged | None, level: float) -> Change:
    """One claim in both audits."""
    one, other = (None if judged is None else judged[0] for judged in (old, new))
    claim = (one or other).claim  # type: ignore[union-attr]
    if old is None or new is None:
        return Change(claim, one, other)
    before, after = by_document(old[1].measured, new[1].measured)
    shared = [key for key in before if key in after]
    only_old, only_new = len(before) - len(shared), len(after) - len(shared)
    if not shared:
        return Change(claim, one, other, only_old=only_old, only_new=only_new)
    rows = [(before[key], after[key]) for key in shared]
    groups = grouped([row.get("group") or row.get("id", "") for row, _ in rows])
    n = len(rows) if groups is None else int(groups.max()) + 1
    sample = _difference(claim, rows, np.arange(n) if groups is None else groups)
    (interval,), _ = estimate([sample], n)
    mean, bounds = interval.point, interval.ends(level)
    if not np.isfinite([mean, *bounds]).all():
        return Change(claim, one, other, n=n, only_old=only_old, only_new=only_new)
    return Change(claim, one, other, mean, *bounds, n, only_old, only_new)


def _difference(
    claim: Claim, rows: Sequence[tuple[Row, Row]], groups: Int[np.ndarray, "document"]
) -> Sample:
    """The difference of a claim's statistic between rows of the same documents."""
    values = np.array([b["value"] - a["value"] for a, b in rows], dtype=float)
    if claim.combine is None:
        sample = Sample(values, groups)
        if claim.bounds is None or not sample.lumpy:
            return sample
        # where few documents changed at all, only bounds tell what others may do
        reach = claim.bounds[1] - claim.bounds[0]
        return replace(sample, bounds=(-reach, reach))
    columns = _side_by_side(rows)
    return Sample(
        values,
        groups,
        statistic=lambda drawn: _of_both(claim, {k: x[drawn] for k, x in columns.items()}),
    )


def _side_by_side(rows: Sequence[tuple[Row, Row]]) -> dict[str, Float[np.ndarray, "document"]]:
    """The numeric columns of both audits, under names that say whose they are."""
    columns = {}
    for prefix, of_one in zip((_OLD, _NEW), zip(*rows, strict=True), strict=True):
        for key in of_one[0]:
            values = [row.get(key) for row in of_one]
            if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
                columns[prefix + key] = np.array(values, dtype=float)
    return columns


def _of_both(claim: Claim, columns: Mapping[str, Float[np.ndarray, "document"]]) -> float:
    """The statistic of the new audit minus that of the old one."""
    assert claim.combine is not None
    old, new = (
        {k.removeprefix(prefix): x for k, x in columns.items() if k.startswith(prefix)}
        for prefix in (_OLD, _NEW)
    )
    return claim.combine(new) - claim.combine(old)


# Which documents are the same


def by_document(old: Sequence[Row], new: Sequence[Row]) -> Iterator[dict[Hashable, Row]]:
    """The rows of each by text; by id in files of earlier versions."""
    every = (*old, *new)
    name = TEXT if all(TEXT in row for row in every) else "id"
    if not all(row.get(name) for row in every):
        raise DataError(
            "These files do not name their documents, so that they cannot be paired: measure"
            " again with this version of heed."
        )
    for rows in (old, new):
        # documents of the same text are numbered
        seen: Counter[str] = Counter()
        by_key: dict[Hashable, Row] = {}
        for row in rows:
            seen[row[name]] += 1
            by_key[row[name], seen[row[name]]] = row
        yield by_key


# What else differs


def _notes(old: Audit, new: Audit) -> Iterator[str]:
    """What a reader must know before the verdicts are compared."""
    yield from facts_apart(old.facts, new.facts)
    for which, audit in (("old", old), ("new", new)):
        if audit.facts.get("rejudged"):
            yield f"the {which} audit is judged {audit.facts['rejudged']}"
    for kind in ("settings", "methods"):
        yield from settings_apart(*(audit.facts.get(kind, {}) for audit in (old, new)))


def facts_apart(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """How something was measured, where that is not the same."""
    for name, called in (("heed", "version of heed"), ("unit", "unit"), ("seed", "seed")):
        one, other = old.get(name), new.get(name)
        if one != other:
            yield f"the {called} was {one}, and is {other}"


def settings_apart(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Settings of the same claim or method that are not the same."""
    for name, settings in old.items():
        for key, value in settings.items():
            other = new.get(name, {}).get(key, value)
            if other != value:
                yield f"{name}.{key} was {value}, and is {other}"
