"""The value of a ranking, what it comes to, and the Parquet file that keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float, Int
from rich.console import Console, ConsoleOptions, RenderResult

from heed.claims.claim import FEWEST, Row, grouped
from heed.data.rows import read_parquet
from heed.errors import DataError, HeedError, InputError, OutputError, quoted
from heed.rank.together import best_group, simultaneous
from heed.recommendation import Recommendation
from heed.store import writing
from heed.text import counted

SIGNED = 0.8  # the share of right signs from which a method's signs are taken at their word
PRIMARY = "faithfulness"  # what methods are ranked by


class Standing(NamedTuple):
    """What a method reached, as means over documents.

    faithfulness   the mean of comprehensiveness and sufficiency over all ways to remove words, from
                   0 (as the worst order of the words) to 1 (as the best); with the ends of an
                   interval that holds for all methods together
    parts          the same for each kind and way to remove words
    others         share of right signs, stability over seeds, sensitivity to the weights and
                   plausibility, where they were measured; seconds and evaluations per document
    best           whether it cannot be told from the best method
    chance         whether it is a chance method, which knows nothing of the model
    signed         whether the sign of its scores means something
    """

    method: str
    faithfulness: float
    low: float
    high: float
    parts: Mapping[str, float]
    others: Mapping[str, float]
    best: bool
    chance: bool
    signed: bool

    @property
    def margin(self) -> float:
        """Half the width of the interval, which 0 and 1 may have cut on one side."""
        return max(self.faithfulness - self.low, self.high - self.faithfulness)


class _Method(msgspec.Struct):
    signed: bool
    chance: bool
    settings: dict[str, Any]


class _About(msgspec.Struct):
    facts: dict[str, Any]
    methods: dict[str, _Method]
    left_out: dict[str, str]


OTHERS = ("signs", "stability", "sensitivity", "plausibility", "seconds", "evaluations")


@dataclass(frozen=True, eq=False)
class Ranking:
    """Methods side by side on the same documents.

    facts      model, revision, data, documents, seed, unit, seconds, version of heed
    methods    by name whether scores are signed, whether it is a chance method, and its settings
    rows       a row for each method and document
    curve      faithfulness of sampled methods with fewer samples, and their evaluations
    left_out   the methods that did not run, each with the reason
    """

    facts: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    rows: list[Row]
    curve: list[Row] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @cached_property
    def standings(self) -> list[Standing]:
        """The methods, the most faithful first; chance methods stand where they end up."""
        names = list(self.methods)
        values, groups = self._values(PRIMARY)
        intervals = simultaneous(values, groups, self.facts["seed"])
        best = best_group(values, groups, self.facts["seed"])
        standings = [
            Standing(
                name,
                float(intervals.mean[i]),
                max(0.0, float(intervals.low[i])),  # no order is worse than the worst
                min(1.0, float(intervals.high[i])),
                self._means(name, self._parts),
                self._means(name, OTHERS),
                bool(best[i]),
                self.methods[name]["chance"],
                self.methods[name]["signed"],
            )
            for i, name in enumerate(names)
        ]
        return sorted(standings, key=lambda s: -s.faithfulness)

    @property
    def documents(self) -> int:
        """How many documents the ranking rests on."""
        return self._values(PRIMARY)[0].shape[1]

    @cached_property
    def recommended(self) -> Standing | None:
        """The method to use: of those that cannot be told from the best, signed ones before others,
        and then the cheapest. None if chance cannot be told from the best either.
        """
        group = [s for s in self.standings if s.best]
        if self.documents < FEWEST or any(s.chance for s in group):
            return None
        trusted = [s for s in group if s.signed and s.others.get("signs", 1.0) >= SIGNED]
        return min(trusted or group, key=lambda s: (s.others["evaluations"], s.others["seconds"]))

    @property
    def reason(self) -> str:
        """Why it is recommended, or why nothing is, as a clause."""
        if self.documents < FEWEST:
            return f"a ranking needs {FEWEST} documents, and rests on {self.documents}"
        chosen = self.recommended
        if chosen is None:
            return "no method can be told from chance on these documents"
        evaluations = [s.others["evaluations"] for s in self.standings if s.best]
        signs = ", and its signs say what speaks against the label" if chosen.signed else ""
        if len(evaluations) == 1:
            return f"its words matter more than those of all other methods, beyond chance{signs}"
        why = "it takes the fewest evaluations"
        if chosen.others["evaluations"] > min(evaluations):
            why, signs = "it is the cheapest whose signs can be trusted", ""
        return (
            f"no other method is better beyond chance, and of the {len(evaluations)} that are as"
            f" good {why}{signs}"
        )

    @property
    def recommendation(self) -> Recommendation | None:
        """The method to use, as `heed explain` tells it later."""
        if self.recommended is None:
            return None
        name, data = self.recommended.method, str(self.facts["data"])
        return Recommendation(name, self.reason, self.documents, data)

    def __repr__(self) -> str:
        about = f"{counted(len(self.methods), 'method')} on {self.facts['data']}"
        chosen = self.recommended.method if self.recommended else "nothing"
        return f"<Ranking of {about} for {self.facts['model']}: {chosen} recommended>"

    def _repr_html_(self) -> str:
        from heed.report import ranking

        return ranking.html_table(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from heed.report import ranking

        yield ranking.terminal(self)

    # Numbers

    def column(self, name: str, method: str) -> Float[np.ndarray, "document"]:
        """A column of the rows of a method; NaN where a document has none."""
        values = [row.get(name) for row in self.rows if row["method"] == method]
        return np.array([np.nan if v is None else v for v in values], dtype=float)

    @property
    def _parts(self) -> list[str]:
        kinds = ("comprehensiveness_", "sufficiency_")
        found = dict.fromkeys(key for row in self.rows for key in row if key.startswith(kinds))
        return list(found)

    def _means(self, method: str, names: Any) -> dict[str, float]:
        means = {}
        for name in names:
            values = self.column(name, method)
            if np.isfinite(values).any():
                means[name] = float(np.nanmean(values))
        return means

    def _values(
        self, name: str
    ) -> tuple[Float[np.ndarray, "method document"], Int[np.ndarray, "document"]]:
        """A column of all methods, for the documents that have it, and the groups of these."""
        values = np.array([self.column(name, method) for method in self.methods])
        known = np.isfinite(values).all(0)
        first = next(iter(self.methods))
        ids = [row.get("group") or row.get("id", "") for row in self.rows if row["method"] == first]
        kept = [id_ for id_, fine in zip(ids, known, strict=True) if fine]
        groups = grouped(kept)
        return values[:, known], np.arange(len(kept)) if groups is None else groups

    # Files

    def records(self) -> list[Row]:
        """One flat row for each method, the most faithful first."""
        return [
            {"rank": i, **{k: v for k, v in s._asdict().items() if k not in ("parts", "others")}}
            | {**s.parts, **s.others}
            for i, s in enumerate(self.standings, 1)
        ]

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise InputError("Ranking.to_pandas() needs pandas: pip install pandas.") from None
        return pandas.DataFrame(self.records())

    def to_dict(self) -> dict[str, Any]:
        """Facts, standings and the recommendation, for other programs."""
        standings = [s._asdict() for s in self.standings]
        chosen = None if self.recommended is None else self.recommended.method
        return {
            "facts": self.facts,
            "recommended": chosen,
            "reason": self.reason,
            "standings": standings,
            "curve": self.curve,
            "left_out": self.left_out,
        }

    def save(self, path: Path | str) -> None:
        """Write rows and facts to a .parquet file, which `Ranking.load` and `heed report` read."""
        path = Path(path)
        if path.suffix != ".parquet":
            raise OutputError(f"A ranking is saved as .parquet, got '{path.name}'.")
        if not path.parent.is_dir():
            raise OutputError(f"{path} cannot be written: there is no folder {path.parent}.")
        rows = [*self.rows, *self.curve]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        about = {"facts": self.facts, "methods": self.methods, "left_out": self.left_out}
        arrays = {c: pa.array([row.get(c) for row in rows]) for c in columns}
        table = pa.table(arrays, metadata={KEY: json.dumps(about)})
        with writing(path) as scratch:
            pq.write_table(table, scratch, compression="zstd")

    @classmethod
    def load(cls, path: Path | str) -> Ranking:
        """The ranking that `save` wrote."""
        if not Path(path).is_file():
            raise DataError(f"There is no file '{path}': give the .parquet file of a ranking.")
        try:
            return _read(Path(path))
        except _UNREADABLE as error:
            reason = quoted(str(error)) or type(error).__name__
            raise DataError(f"{path} does not hold a ranking ({reason}).") from None


KEY = "heed_ranking"  # beside the rows of a ranking
_MOST_ROWS = 5_000_000
_UNREADABLE = (
    OSError,
    pa.ArrowException,
    msgspec.MsgspecError,
    HeedError,
    KeyError,
    ValueError,
    TypeError,
    IndexError,
)


def is_ranking(path: Path) -> bool:
    """Whether a Parquet file holds a ranking, and no audit."""
    try:
        return KEY.encode() in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def _read(path: Path) -> Ranking:
    table = read_parquet(path, _MOST_ROWS)
    about = msgspec.json.decode((table.schema.metadata or {})[KEY.encode()], type=_About)
    rows: list[Row] = []
    curve: list[Row] = []
    for cells in table.to_pylist():
        row = {key: value for key, value in cells.items() if value is not None}
        if "curve" in row:
            curve.append({key: row[key] for key in ("curve", "evaluations", "faithfulness")})
        else:
            rows.append(row)
    methods = {name: msgspec.structs.asdict(m) for name, m in about.methods.items()}
    ranking = Ranking(about.facts, methods, rows, curve, about.left_out)
    if not methods or not ranking.documents:
        raise ValueError("it has no methods or no documents")
    return ranking
