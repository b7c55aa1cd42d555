"""The value of an audit, and the Parquet file that keeps it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from heed.audit.answer import Answer
from heed.claims import CLAIMS, Check, Evidence, Verdict, checks, judge
from heed.claims.claim import Claim, Outcome, Refusal, Row
from heed.claims.conditions import Finding, findings
from heed.data.rows import read_parquet
from heed.errors import DataError, HeedError, InputError, OutputError, quoted
from heed.methods import Explanation, Flip, agreement
from heed.progress import say
from heed.recommendation import Recommendation
from heed.store import writing


class Example(NamedTuple):
    """A document for the reader.

    heads   its attention head by head, where the model shows it
    gold    its label among those of the model, where it is known
    """

    explanations: tuple[Explanation, ...]
    heads: Float[np.ndarray, "head unit"] | None = None
    gold: int | None = None

    def to_json(self) -> str:
        values = {
            "explanations": [e.to_dict() for e in self.explanations],
            "heads": None if self.heads is None else self.heads.tolist(),
            "gold": self.gold,
        }
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> Example:
        """The example that `to_json` wrote."""
        values = msgspec.json.decode(text, type=_Example)
        explanations = tuple(Explanation.from_dict(e) for e in values.explanations)
        heads = None if values.heads is None else np.array(values.heads, dtype=float)
        return cls(explanations, heads, values.gold)


@dataclass(frozen=True, eq=False)
class Audit:
    """What was measured, of which model, on which documents.

    facts        model, revision, data, number of documents, unit, seed, methods, settings, seconds,
                 version of heed
    evidence     rows per claim and explanation, or why there are none; those of chance methods too
    conditions   rows per document of what must be so for attention to explain
    examples     documents with their explanations, for the reader
    """

    facts: dict[str, Any]
    evidence: tuple[Evidence, ...]
    conditions: list[Row] = field(default_factory=list)
    examples: tuple[Example, ...] = ()

    @cached_property
    def verdicts(self) -> list[Verdict]:
        planned = (self.facts.get("plan") or {}).get("pairs")
        pairs = planned and [(claim, method) for claim, method in planned]
        return judge(self.evidence, pairs, any_time=self.facts.get("until_decided", False))

    @cached_property
    def checks(self) -> list[Check]:
        """What is true by algebra, held against bounds for rounding."""
        return checks(self.evidence)

    @property
    def judged(self) -> tuple[Evidence, ...]:
        """The evidence behind each verdict, in the order of `verdicts`."""
        return tuple(e for e in self.evidence if e.judged)

    @cached_property
    def findings(self) -> list[Finding]:
        """Which conditions for attention to explain hold here."""
        return findings(self.conditions)

    @property
    def example_methods(self) -> list[str]:
        """The methods that explain the examples, in order of appearance."""
        explanations = [e for example in self.examples for e in example.explanations]
        return list(dict.fromkeys(e.method for e in explanations))

    def __repr__(self) -> str:
        counts = Counter(v.outcome for v in self.verdicts)
        outcomes = ", ".join(f"{counts[o]} {o}" for o in get_args(Outcome) if counts[o])
        return f"<Audit of {self.facts['model']} on {self.facts['data']}: {outcomes}>"

    @cached_property
    def answer(self) -> Answer:
        """What the audit comes to: one sentence, a tile for each family, and what to do next."""
        from heed.report.answer import answer

        return answer(self)

    def _repr_html_(self) -> str:
        from heed.report.audit_page import notebook

        return notebook(self)

    def agreement(
        self,
    ) -> tuple[list[str], Float[np.ndarray, "method method"], Float[np.ndarray, "method method"]]:
        """Methods, Kendall's τ between them over the documents that have both, and how many have.

        τ is NaN where no document has both. Flip sets are left out: they rank no words.
        """
        names = [name for name in self.example_methods if name != Flip.name]
        total, count = (np.zeros((len(names), len(names))) for _ in range(2))
        for example in self.examples:
            ranked = [e for e in example.explanations if e.method in names]
            indices = [names.index(e.method) for e in ranked]
            taus = agreement(ranked)
            defined = np.isfinite(taus)
            total[np.ix_(indices, indices)] += np.where(defined, taus, 0.0)
            count[np.ix_(indices, indices)] += defined
        mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        return names, mean, count

    def to_dict(self) -> dict[str, Any]:
        """Facts, verdicts and conditions, for other programs."""
        numbers = ("mean", "low", "high", "n", "holds")
        conditions = [
            {"condition": f.condition.id} | {name: getattr(f, name) for name in numbers}
            for f in self.findings
        ]
        verdicts = [v.to_dict() for v in self.verdicts]
        answer = self.answer.to_dict()
        return {
            "facts": self.facts,
            "answer": answer,
            "verdicts": verdicts,
            "conditions": conditions,
        }

    def records(self) -> list[dict[str, Any]]:
        """One flat record for each verdict: what is nested gets a column for each of its parts."""
        records = []
        for v in self.verdicts:
            record = {"claim": v.claim.id, "family": v.claim.family} | v.to_dict()
            record["statistic"] = v.claim.statistic
            parts = {
                name: dict(zip(("mean", "low", "high"), p, strict=True))
                for name, p in v.parts.items()
            }
            nested = {"chance": v.controls} | parts
            for key in ("parts", "controls"):
                record.pop(key, None)
            for name, values in nested.items():
                record |= {f"{name} {key}": value for key, value in values.items()}
            records.append(record)
        return records

    def to_pandas(self, rows: bool = False) -> Any:
        """The verdicts as a pandas DataFrame; if `rows`, what was measured on each document."""
        try:
            import pandas
        except ImportError:
            raise InputError("Audit.to_pandas() needs pandas: pip install pandas.") from None
        if not rows:
            return pandas.DataFrame(self.records())
        measured = []
        for e in self.evidence:
            name = {"claim": e.claim.id, "method": e.method, "control": e.control}
            measured += [name | row for row in e.rows]
        return pandas.DataFrame(measured)

    def save(self, path: Path | str) -> None:
        """Write rows and facts to one .parquet file, which `Audit.load` and `heed report` read."""
        path = Path(path)
        if path.suffix != ".parquet":
            raise OutputError(
                f"An audit is saved as .parquet, got '{path.name}': `heed report` turns that file"
                " into a page."
            )
        rows: list[Row] = []
        claims = []
        for e in self.evidence:
            name = {"claim": e.claim.id, "method": e.method}
            rows += [name | row for row in e.rows]
            about_it = {"refusal": e.refusal, "stated": _stated(e.claim), "control": e.control}
            claims.append(name | about_it)
        rows += [{_CONDITIONS: json.dumps(row)} for row in self.conditions]
        rows += [{_EXAMPLE: example.to_json()} for example in self.examples]
        columns = list(dict.fromkeys(key for row in rows for key in row)) or ["claim"]
        about = json.dumps({"facts": self.facts, "claims": claims})
        arrays = {c: pa.array([row.get(c) for row in rows]) for c in columns}
        table = pa.table(arrays, metadata={"heed": about})
        if not path.parent.is_dir():
            raise OutputError(f"{path} cannot be written: there is no folder {path.parent}.")
        with writing(path) as scratch:
            pq.write_table(table, scratch, compression="zstd")

    @classmethod
    def load(cls, path: Path | str) -> Audit:
        """The audit that `save` wrote."""
        if Path(path).is_dir():
            raise DataError(
                f"{path} is neither an audit (.parquet) nor the folder of a reproduction."
            )
        if Path(path).is_file() and Path(path).suffix == ".json":
            raise DataError(f"{path} does not hold the rows of an audit: give its .parquet file.")
        if not Path(path).is_file():
            raise DataError(
                f"There is no file '{path}': give the .parquet file that an audit wrote."
            )
        try:
            return _read(Path(path))
        except _UNREADABLE as error:
            reason = quoted(str(error)) or type(error).__name__
            raise DataError(f"{path} does not hold the rows of an audit ({reason}).") from None


# What libraries and our own checks raise on a file that is not an audit, or is damaged.
_UNREADABLE = (
    OSError,
    pa.ArrowException,
    msgspec.MsgspecError,
    HeedError,
    KeyError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    MemoryError,
)
_MOST_ROWS = 5_000_000  # more than all claims and methods have on any known data set
_CONDITIONS, _EXAMPLE = "conditions", "example"  # columns of the rows that belong to no claim


# The schema of a saved audit: what stands beside the rows of a Parquet file.


class _Followed(msgspec.Struct):
    """The plan that an audit followed, how it departed from it, and what the plan judges."""

    hash: str
    departures: list[str]
    pairs: list[tuple[str, str]]


class _Facts(msgspec.Struct):
    model: str
    revision: str
    data: str
    documents: Annotated[int, msgspec.Meta(ge=1)]
    seed: int
    methods: dict[str, dict[str, Any]]
    seconds: float
    heed: str
    accuracy: float | None
    settings: dict[str, dict[str, Any]] = {}
    left_out: int = 0
    truncated: int = 0
    unknown: float = 0.0
    unfit: str = ""
    unit: str = "word"
    runs: str = ""
    rejudged: str = ""
    command: str = ""
    clusters: int = 0
    plan: _Followed | None = None
    recommended: Recommendation | None = None
    until_decided: bool = False


class _Stated(msgspec.Struct):
    """What a claim asserted when it was measured; judged it is as it is stated today."""

    threshold: float
    above: bool
    sentence: str
    statistic: str


class _Tested(msgspec.Struct):
    claim: str
    method: str
    refusal: Refusal | None
    stated: _Stated | None = None
    control: bool = False


class _About(msgspec.Struct):
    facts: dict[str, Any]
    claims: list[_Tested]


class _Example(msgspec.Struct):
    explanations: list[dict[str, Any]]
    heads: list[list[float]] | None
    gold: int | None


_Numbers = dict[str, float | int | bool | str | None]


def _read(path: Path) -> Audit:
    """The audit of a Parquet file; whatever is wrong with it is an error of a library, or ours."""
    table = read_parquet(path, _MOST_ROWS)
    about = msgspec.json.decode((table.schema.metadata or {})[b"heed"], type=_About)
    msgspec.convert(about.facts, _Facts)
    by_claim: dict[tuple[Any, Any], list[Row]] = {}
    conditions, examples = [], []
    for cells in table.to_pylist():
        row = {key: value for key, value in cells.items() if value is not None}
        if _CONDITIONS in row:
            conditions.append(json.loads(row[_CONDITIONS]))
        if _EXAMPLE in row:
            examples.append(Example.from_json(row[_EXAMPLE]))
        name = (row.pop("claim", None), row.pop("method", None))
        by_claim.setdefault(name, []).append(row)
    evidence = [_evidence(t, by_claim.get((t.claim, t.method), [])) for t in about.claims]
    if changes := dict.fromkeys(filter(None, map(_change, about.claims))):
        about.facts["rejudged"] = f"by the claims as they are today: {', '.join(changes)}"
        say(f"The audit is judged {about.facts['rejudged']}.")
    findings(msgspec.convert(conditions, list[_Numbers]))
    return Audit(about.facts, tuple(evidence), conditions, tuple(examples))


def _stated(claim: Claim) -> dict[str, Any]:
    return {name: getattr(claim, name) for name in _Stated.__struct_fields__}


def _change(tested: _Tested) -> str:
    """How a claim differs from what it was when it was measured; empty if it does not."""
    claim = CLAIMS[tested.claim].claim
    if tested.stated is None or msgspec.structs.asdict(tested.stated) == _stated(claim):
        return ""
    before = replace(claim, **msgspec.structs.asdict(tested.stated))
    if before.statistic != claim.statistic:
        return f"{claim.id} has another statistic"
    if before.side() == claim.side():
        return f"{claim.id} is worded differently"
    return f"{claim.id} has the threshold {claim.side()}, and had {before.side()}"


def _evidence(tested: _Tested, rows: list[Row]) -> Evidence:
    for row in msgspec.convert(rows, list[_Numbers]):
        if not isinstance(row.get("value"), float | int):
            raise ValueError("a row has no value")
    claim, refusal = CLAIMS[tested.claim].claim, tested.refusal
    if refusal is None and tested.stated and tested.stated.statistic != claim.statistic:
        # numbers of another statistic must not be held against today's threshold
        refusal = Refusal("other", "its statistic is another since this was measured")
        return Evidence(claim, rows, refusal, tested.method, tested.control)
    evidence = Evidence(claim, rows, refusal, tested.method, tested.control)
    evidence.combined()  # refuses rows that lack the columns of the statistic
    return evidence
