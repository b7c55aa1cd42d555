"""The value of a ranking, what it comes to, and the Parquet file that keeps it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float, Int
from rich.console import Console, ConsoleOptions, RenderResult

from heed.claims.claim import FEWEST, Row, grouped
from heed.claims.study import TEXT
from heed.data.rows import read_parquet
from heed.errors import DataError, HeedError, InputError, OutputError, quoted
from heed.rank.together import leads, simultaneous
from heed.recommendation import Recommendation
from heed.store import writing
from heed.text import counted

SIGNED = 0.8  # the share of right signs from which a method's signs are taken at their word
NEAR = 0.05  # how far below the best, on average, a method may be that is recommended for its cost
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
    informed       whether it is better than every chance method, beyond chance
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
    informed: bool
    chance: bool
    signed: bool

    @property
    def trusted(self) -> bool:
        """Whether its signs say what speaks against the label: most agree with those of LIME."""
        return self.signed and self.others.get("signs", 0.0) >= SIGNED

    @property
    def cost(self) -> float:
        """Evaluations for one document; those of scores computed elsewhere are not known."""
        return self.others.get("evaluations", math.inf)

    @property
    def margin(self) -> float:
        """Half the width of the interval, which 0 and 1 may have cut on one side."""
        return max(self.faithfulness - self.low, self.high - self.faithfulness)


class _Method(msgspec.Struct):
    signed: bool
    chance: bool
    settings: dict[str, Any]


_Count = Annotated[int, msgspec.Meta(ge=0)]
_Ways = Annotated[list[str], msgspec.Meta(min_length=1)]


class _Facts(msgspec.Struct):
    model: str
    revision: str
    data: str
    documents: _Count
    left_out: _Count
    unfit: str
    removals: _Ways
    seed: _Count
    unit: str
    heed: str
    seconds: Annotated[float, msgspec.Meta(ge=0)]
    command: str | None = None


class _About(msgspec.Struct):
    facts: _Facts
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
        least = leads(values, groups, self.facts["seed"])
        chance = [i for i, name in enumerate(names) if self.methods[name]["chance"]]
        standings = [
            Standing(
                name,
                float(intervals.mean[i]),
                max(0.0, float(intervals.low[i])),  # no order is worse than the worst
                min(1.0, float(intervals.high[i])),
                self._means(name, self._parts),
                self._means(name, OTHERS),
                not (least[:, i] > 0).any(),
                all(least[i, c] > 0 for c in chance if c != i),
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

    @property
    def independent(self) -> int:
        """How many of these there are if those that share an id or a text count as one."""
        return int(self._values(PRIMARY)[1].max(initial=-1)) + 1

    @property
    def decides(self) -> bool:
        """Whether there are enough documents to say which methods are better."""
        return self.independent >= FEWEST

    @cached_property
    def recommended(self) -> Standing | None:
        """The method to use; None if there are too few documents, or none is better than chance.

        Of the methods that cannot be told from the best, that are near it and better than chance,
        it is the one that takes the fewest evaluations; of those whose signs can be trusted, if
        there are any.
        """
        group = self._group
        trusted = [s for s in group if s.trusted]
        return min(trusted or group, key=lambda s: (s.cost, -s.faithfulness), default=None)

    @property
    def _group(self) -> list[Standing]:
        """The methods that may be recommended."""
        if not self.decides:
            return []
        best = self.standings[0].faithfulness
        return [
            s
            for s in self.standings
            if s.best and s.informed and not s.chance and s.faithfulness >= best - NEAR
        ]

    @property
    def reason(self) -> str:
        """Why it is recommended, or why nothing is, as a clause."""
        if not self.decides:
            return f"a ranking needs {FEWEST} documents, and rests on {self.independent}"
        chosen, group = self.recommended, self._group
        if chosen is None:
            return "no method can be told from chance on these documents"
        others = sum(not s.chance for s in self.standings) - 1
        if not others:
            why = "it is better than chance, and no other method was ranked"
        elif len(group) == 1:
            why = f"of {others + 1} methods it alone is at the top, beyond chance"
        else:
            why = f"of the {len(group)} methods at the top, which cannot be told apart, it is the"
            if chosen.cost > min(s.cost for s in group):
                return f"{why} cheapest whose signs can be trusted"
            why += " cheapest"
        if chosen.trusted:
            return f"{why}, and its signs say what speaks against the label"
        if chosen.signed and "signs" in chosen.others:
            return f"{why}, but only {chosen.others['signs']:.0%} of its signs are those of LIME"
        return why

    @property
    def recommendation(self) -> Recommendation | None:
        """The method to use, as `heed explain` tells it later."""
        if self.recommended is None:
            return None
        name, data = self.recommended.method, str(self.facts["data"])
        return Recommendation(name, self.reason, self.independent, data)

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
    OverflowError,
)


def is_ranking(path: Path) -> bool:
    """Whether a Parquet file holds a ranking, and no audit."""
    try:
        return KEY.encode() in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def _read(path: Path) -> Ranking:
    table = read_parquet(path, _MOST_ROWS)
    raw = msgspec.json.decode((table.schema.metadata or {})[KEY.encode()])
    about = msgspec.convert(raw, _About)
    rows: list[Row] = []
    curve: list[Row] = []
    for cells in table.to_pylist():
        row = {key: value for key, value in cells.items() if value is not None}
        for key, value in row.items():
            if (key in _TEXTS) != isinstance(value, str):
                raise ValueError(f"{key} is {'a text' if isinstance(value, str) else 'no text'}")
            if isinstance(value, float) and math.isinf(value):
                raise ValueError(f"{key} is infinite")
        if "curve" in row:
            curve.append({key: row[key] for key in ("curve", "evaluations", "faithfulness")})
        else:
            rows.append(row)
    methods = {name: msgspec.structs.asdict(m) for name, m in about.methods.items()}
    ranking = Ranking(raw["facts"], methods, rows, curve, about.left_out)
    documents = [[row["document"] for row in rows if row["method"] == name] for name in methods]
    if not methods or any(of != documents[0] for of in documents):
        raise ValueError("its methods are not ranked on the same documents")
    if not ranking.documents:
        raise ValueError("it has no documents")
    _ = ranking.standings, ranking.reason  # what is wrong in it shows here
    return ranking


_TEXTS = ("method", "curve", "id", "group", TEXT)  # columns that are no numbers
