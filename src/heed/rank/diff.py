"""Two rankings, document by document: which methods rose or fell, and by how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from heed.audit import Audit, Diff
from heed.audit.diff import by_document, facts_apart, settings_apart
from heed.audit.diff import diff as diff_audits
from heed.claims.claim import Row, grouped
from heed.errors import InputError
from heed.rank.result import PRIMARY, Ranking, Standing, is_ranking
from heed.rank.together import ROUNDING, simultaneous


@dataclass(frozen=True)
class Move:
    """One method in two rankings.

    old, new     where it stood; None where a ranking did not have it
    ranks        its places, from 1; None where a ranking did not have it
    difference   of its faithfulness, new minus old, over the documents that both rankings measured
    low, high    its interval; those of all methods hold together
    """

    method: str
    old: Standing | None
    new: Standing | None
    ranks: tuple[int | None, int | None]
    difference: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def changed(self) -> bool:
        """Whether it joined or left the group that cannot be told from the best."""
        return self.old is not None and self.new is not None and self.old.best != self.new.best

    @property
    def moved(self) -> bool:
        """Whether it is more or less faithful beyond chance: the interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def to_dict(self) -> dict[str, Any]:
        old, new = (None if s is None else s._asdict() for s in (self.old, self.new))
        names = ("method", "ranks", "difference", "low", "high", "changed", "moved")
        return {"old": old, "new": new} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class RankingDiff:
    """What changed from one ranking to another.

    old, new       what was ranked: the facts of the two rankings
    recommended    the method that each recommends; None for none
    moves          one for each method, in the order of the new ranking
    n              how many documents both measured; those that share an id or a text count as one
    only_old, only_new   how many documents only one of the two measured
    notes          what else differs between the rankings, in words
    """

    old: dict[str, Any]
    new: dict[str, Any]
    recommended: tuple[str | None, str | None]
    moves: tuple[Move, ...]
    n: int
    only_old: int
    only_new: int
    notes: tuple[str, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """What changed: the recommendation, and methods that joined or left the best group."""
        names = [move.method for move in self.moves if move.changed]
        one, other = self.recommended
        return tuple(["recommendation", *names] if one != other else names)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for other programs."""
        names = ("old", "new", "recommended", "n", "only_old", "only_new")
        return {name: getattr(self, name) for name in names} | {
            "notes": list(self.notes),
            "changed": list(self.changed),
            "moves": [move.to_dict() for move in self.moves],
        }

    def __repr__(self) -> str:
        return f"<Diff of two rankings: {', '.join(self.changed) or 'nothing'} changed>"

    def _repr_html_(self) -> str:
        from heed.report import diff

        return diff.html_table(self)


Compared = Audit | Ranking | Path | str


def diff(old: Compared, new: Compared) -> Diff | RankingDiff:
    """Compare two audits or two rankings, document by document.

    old, new   audits or rankings, or the .parquet files that they saved

    Documents are the same if their texts are. Intervals are over the documents that both measured,
    and wide enough for all claims, or all methods, together.

        before = heed.audit(model, reviews)
        after = heed.audit(retrained, reviews)
        heed.diff(before, after).changed
    """
    one, other = (_ranking(given) for given in (old, new))
    if one is None and other is None:
        return diff_audits(old, new)  # type: ignore[arg-type]
    if one is None or other is None:
        given = old if one is None else new
        if isinstance(given, Path | str):
            Audit.load(given)  # which says what is wrong with a file that holds neither
        raise InputError("Give two audits or two rankings, got one of each.")
    return _diff(one, other)


def _ranking(given: Compared) -> Ranking | None:
    """The ranking that this is, or that this file holds."""
    if isinstance(given, Path | str):
        return Ranking.load(given) if is_ranking(Path(given)) else None
    return given if isinstance(given, Ranking) else None


def _diff(old: Ranking, new: Ranking) -> RankingDiff:
    shared = [name for name in new.methods if name in old.methods]
    before, after = ({s.method: s for s in r.standings} for r in (old, new))
    places = [{name: i for i, name in enumerate(of, 1)} for of in (before, after)]
    changes, counts = _changes(old, new, shared) if shared else ({}, (0, 0, 0))
    moves = tuple(
        Move(
            name,
            before.get(name),
            after.get(name),
            (places[0].get(name), places[1].get(name)),
            *changes.get(name, ()),
        )
        for name in dict.fromkeys((*after, *before))
    )
    chosen = tuple(None if r.recommended is None else r.recommended.method for r in (old, new))
    notes = tuple(_notes(old, new))
    return RankingDiff(old.facts, new.facts, (chosen[0], chosen[1]), moves, *counts, notes)


def _changes(
    old: Ranking, new: Ranking, methods: list[str]
) -> tuple[dict[str, tuple[float, float, float]], tuple[int, int, int]]:
    """By method the difference with its interval; and how many documents are in both, or in one."""
    pairs = [tuple(by_document(_measured(old, m), _measured(new, m))) for m in methods]
    before, after = ({k for of in pairs for k in of[side]} for side in (0, 1))
    shared = [k for k in pairs[0][0] if all(k in of for pair in pairs for of in pair)]
    only = len(before - after), len(after - before)
    if not shared:
        return {}, (0, *only)
    values = np.array([[b[k][PRIMARY] - a[k][PRIMARY] for k in shared] for a, b in pairs])
    values[np.abs(values) < ROUNDING] = 0.0
    groups = _groups([pairs[0][0][k] for k in shared])
    found = simultaneous(values, groups, new.facts["seed"])
    n = int(groups.max()) + 1
    numbers = zip(*(column.tolist() for column in found), strict=True)
    return dict(zip(methods, numbers, strict=True)) if n > 1 else {}, (n, *only)


def _measured(ranking: Ranking, method: str) -> list[Row]:
    rows = [row for row in ranking.rows if row["method"] == method]
    return [row for row in rows if np.isfinite(row.get(PRIMARY, np.nan))]


def _groups(rows: list[Row]) -> Int[np.ndarray, "document"]:
    groups = grouped([row.get("group") or row.get("id", "") for row in rows])
    return np.arange(len(rows)) if groups is None else groups


def _notes(old: Ranking, new: Ranking) -> Iterator[str]:
    """What a reader must know before methods are compared."""
    yield from facts_apart(old.facts, new.facts)
    one, other = (", ".join(r.facts["removals"]) for r in (old, new))
    if one != other:
        yield f"words were removed by {one}, and are by {other}"
    if set(old.methods) != set(new.methods):
        yield (
            "the methods are not the same, and places, the best group and, a little, the scale"
            " depend on them"
        )
    before, after = ({n: m["settings"] for n, m in r.methods.items()} for r in (old, new))
    yield from settings_apart(before, after)
