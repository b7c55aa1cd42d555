"""Claims over a data set: an `Audit` holds the rows, and verdicts are drawn from them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from heed.claims import CLAIMS, ClaimTest, Evidence, Study, Verdict, judge
from heed.claims.agrees import AgreesLime
from heed.claims.claim import GATES, Cause, Outcome, Refusal, Row
from heed.claims.conditions import Finding, findings
from heed.claims.conditions import measure as measure_conditions
from heed.claims.study import NO_TRAINING, best_lime
from heed.data import Dataset
from heed.data.dataset import draw
from heed.data.inputs import is_one
from heed.errors import (
    DataError,
    HeedError,
    InputError,
    NotApplicable,
    OutputError,
    UnknownName,
    quoted,
)
from heed.methods import (
    AttentionMean,
    EfficientAttention,
    Explanation,
    GradientInput,
    Imported,
    Method,
    Occlusion,
    agreement,
    make_method,
    reads_attention,
)
from heed.methods.attention import heads
from heed.models import Model
from heed.models import of as classifier_of
from heed.models.classifier import ATTENTION, Classifier
from heed.progress import bar, say
from heed.settings import plain
from heed.store import Store, writing
from heed.text import Document, counted, printable

SHOWN = (
    AttentionMean(),
    GradientInput(output="probability"),
    Occlusion(output="probability"),
    EfficientAttention(intervals=0),
)
FEW = 5  # documents that are explained for the reader by what takes long and no claim asked for
OPENED = 20  # documents with the most freedom, whose ranges of attention are shown to the reader


class Example(NamedTuple):
    """A document for the reader.

    heads   its attention head by head, where the model shows it
    gold    its label among those of the model, where it is known
    """

    explanations: tuple[Explanation, ...]
    heads: Float[np.ndarray, "head unit"] | None = None
    gold: int | None = None


@dataclass(frozen=True, eq=False)
class Audit:
    """What was measured, of which model, on which documents.

    facts        model, revision, data, number of documents, seed, methods, settings, seconds,
                 version of heed
    evidence     rows per claim and explanation, or why there are none
    conditions   rows per document of what must be so for attention to explain
    examples     documents with their explanations, for the reader
    """

    facts: dict[str, Any]
    evidence: tuple[Evidence, ...]
    conditions: list[Row] = field(default_factory=list)
    examples: tuple[Example, ...] = ()

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return judge(self.evidence)

    @cached_property
    def findings(self) -> list[Finding]:
        """Which conditions for attention to explain hold here."""
        return findings(self.conditions)

    def __repr__(self) -> str:
        counts = Counter(v.outcome for v in self.verdicts)
        outcomes = ", ".join(f"{counts[o]} {o}" for o in get_args(Outcome) if counts[o])
        return f"<Audit of {self.facts['model']} on {self.facts['data']}: {outcomes}>"

    def _repr_html_(self) -> str:
        from heed.report import html

        return html.audit_table(self)

    def agreement(
        self,
    ) -> tuple[list[str], Float[np.ndarray, "method method"], Float[np.ndarray, "method method"]]:
        """Methods, Kendall's τ between them over the documents that have both, and how many have.

        τ is NaN where no document has both.
        """
        names = list(
            dict.fromkeys(e.method for example in self.examples for e in example.explanations)
        )
        total, count = (np.zeros((len(names), len(names))) for _ in range(2))
        for example in self.examples:
            at = [names.index(e.method) for e in example.explanations]
            found = agreement(example.explanations)
            known = np.isfinite(found)
            total[np.ix_(at, at)] += np.where(known, found, 0.0)
            count[np.ix_(at, at)] += known
        return (
            names,
            np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0),
            count,
        )

    def to_dict(self) -> dict[str, Any]:
        """Facts, verdicts and conditions, for other programs."""
        found = [
            {
                "condition": f.condition.id,
                "mean": f.mean,
                "low": f.low,
                "high": f.high,
                "n": f.n,
                "holds": f.holds,
            }
            for f in self.findings
        ]
        verdicts = [v.to_dict() for v in self.verdicts]
        return {"facts": self.facts, "verdicts": verdicts, "conditions": found}

    def save(self, path: Path) -> None:
        """Write rows and facts to one Parquet file, which `Audit.load` reads."""
        rows: list[Row] = [
            {"claim": e.claim.id, "method": e.method} | row for e in self.evidence for row in e.rows
        ]
        rows += [{_CONDITIONS: json.dumps(row)} for row in self.conditions]
        rows += [{_EXAMPLE: json.dumps(_example_to_dict(e))} for e in self.examples]
        columns = list(dict.fromkeys(key for row in rows for key in row)) or ["claim"]
        table = pa.table({c: pa.array([row.get(c) for row in rows]) for c in columns})
        about = {
            "facts": self.facts,
            "claims": [
                {"claim": e.claim.id, "method": e.method, "refusal": e.refusal}
                for e in self.evidence
            ],
        }
        whole = table.replace_schema_metadata({"heed": json.dumps(about)})
        if not path.parent.is_dir():
            raise OutputError(f"{path} cannot be written: there is no folder {path.parent}.")
        with writing(path) as scratch:
            pq.write_table(whole, scratch, compression="zstd")

    @classmethod
    def load(cls, path: Path) -> Audit:
        """The audit that `save` wrote."""
        if not Path(path).is_file():
            raise DataError(
                f"There is no file '{path}': give the .parquet file that an audit wrote."
            )
        try:
            return _read(Path(path))
        except (
            OSError,
            pa.ArrowException,
            msgspec.MsgspecError,
            HeedError,
            KeyError,
            ValueError,
            TypeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise DataError(
                f"{path} does not hold the rows of an audit ({quoted(str(error))})."
            ) from None


# The schema of a saved audit: what stands beside the rows of a Parquet file.


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
    command: str = ""


class _Tested(msgspec.Struct):
    claim: str
    method: str
    refusal: tuple[Cause, str] | None


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
    # a file of its own: pyarrow would take the folders above for columns
    table = pq.ParquetFile(path).read()
    about = msgspec.json.decode((table.schema.metadata or {})[b"heed"], type=_About)
    msgspec.convert(about.facts, _Facts)
    rows = [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()]
    evidence = []
    for tested in about.claims:
        name = (tested.claim, tested.method)
        values = [
            {k: v for k, v in row.items() if k not in ("claim", "method")}
            for row in rows
            if (row.get("claim"), row.get("method")) == name
        ]
        for row in msgspec.convert(values, list[_Numbers]):
            if not isinstance(row.get("value"), float | int):
                raise ValueError("a row has no value")
        refusal = None if tested.refusal is None else Refusal(*tested.refusal)
        one = Evidence(CLAIMS[tested.claim].claim, values, refusal, tested.method)
        one.combined()  # refuses rows that lack the columns of the statistic
        evidence.append(one)
    conditions = [json.loads(row[_CONDITIONS]) for row in rows if _CONDITIONS in row]
    findings(msgspec.convert(conditions, list[_Numbers]))
    examples = [_example(row[_EXAMPLE]) for row in rows if _EXAMPLE in row]
    return Audit(about.facts, tuple(evidence), conditions, tuple(examples))


def _example(text: str) -> Example:
    read = msgspec.json.decode(text, type=_Example)
    explanations = tuple(Explanation.from_dict(e) for e in read.explanations)
    weights = None if read.heads is None else np.array(read.heads, dtype=float)
    return Example(explanations, weights, read.gold)


_CONDITIONS, _EXAMPLE = "conditions", "example"  # columns of the rows that belong to no claim


def _example_to_dict(example: Example) -> dict[str, Any]:
    heads = None if example.heads is None else example.heads.tolist()
    return {
        "explanations": [e.to_dict() for e in example.explanations],
        "heads": heads,
        "gold": example.gold,
    }


def audit(
    model: Model,
    dataset: Any = None,
    claims: Sequence[str | ClaimTest] | str | None = None,
    methods: Sequence[str | Method] | str | Method | None = None,
    limit: int | None = None,
    seed: int = 0,
    examples: int = 0,
    training: Dataset | Sequence[Document] | None = None,
    validation: Sequence[Document] = (),
    store: Store | Path | None = None,
    base: str | Path | None = None,
    budget: float | None = None,
    columns: Mapping[str, str | None] | None = None,
) -> Audit:
    """Test what an explanation (attention, by default) is worth on these documents.

    dataset      a `heed.data.Dataset`, a list of texts, or a table with a column text, and label if
                 labels are known: a pandas DataFrame, a list of dicts, a Hugging Face data set.
                 Blank texts, and those without imported scores, are left out and counted.
                 With imported scores it may be left out: their texts are audited then
    claims       by name, or with settings as in `Exclusive(steps=200)`; by default all
    methods      the methods that are judged, side by side: by name, with settings, or
                 `heed.Imported`; by default attention-mean
    limit        at most this many documents, drawn at random
    examples     explain this many documents for the reader: the page and the saved file show them
    training     documents for the claims that retrain the model; without them these are not judged.
                 Some are held out for validation unless there are `validation` documents
    store        a folder for rows and trained models: run the audit again to resume it
    base         what a transformer was fine-tuned from, for the claims that retrain it
    budget       start no new claim after this many minutes; slow ones run last
    columns      names of the columns of a table: {"text": "body", "label": "stars"}
    """
    began, model = time.perf_counter(), classifier_of(model)
    if is_one(dataset):
        raise InputError("An audit takes a list of documents or a data set, got one text.")
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}.")
    judged = _methods(methods)
    data = _data(model, dataset, judged, columns)
    data, unfit = _explained_only(model, data, judged, limit, seed)
    read = [t for t in model.tokens(data.documents) if t.words]
    texts = [t.document for t in read]
    if not texts:
        raise InputError(
            "An audit needs documents, and none of these has a word that the model can read."
        )
    store = store if isinstance(store, Store) else Store(store)
    if store.folder is not None and model.revision == "unknown":
        raise InputError(
            f"heed cannot tell {model.name} from another function: give it a revision, or audit"
            " without a store."
        )
    first = Study(
        model,
        texts,
        judged[0],
        seed,
        gold=_gold(model, texts, data.labels),
        retraining=_retraining(model, training, validation, store, base),
        store=store,
    )
    studies = [replace(first, method=e) for e in judged]  # which share what they have explained
    chosen = _tests(claims, studies)
    measured: dict[str, list[Evidence]] = {}
    for test in bar(sorted(chosen, key=_turn), "claims", unit="claim"):
        for study in studies if test.claim.of_explanation else studies[:1]:
            spent = budget is not None and time.perf_counter() - began > 60 * budget
            rows, refusal = _measure(test, study, budget if spent else None)
            keyed = [
                {"document": i, "id": printable(d.id)} | row
                for i, (d, row) in enumerate(zip(texts, rows, strict=refusal is None))
            ]
            evidence_of_one = Evidence(test.claim, keyed, refusal, study.method.name)
            measured.setdefault(test.claim.id, []).append(evidence_of_one)
    evidence = [e for d in chosen for e in measured[d.claim.id]]
    facts = {
        "model": model.name,
        "revision": model.revision,
        "data": f"{data.name} ({data.split})" if data.name else counted(len(texts)),
        "documents": len(texts),
        "left_out": data.left_out + len(data.documents) - len(texts),
        "truncated": sum(t.dropped > 0 for t in read),
        "unknown": float(sum(t.unknown.sum() for t in read) / sum(len(t.words) for t in read)),
        "accuracy": _accuracy(model, texts, first.gold),
        "methods": {e.name: plain(e) for e in judged},
        "seed": seed,
        "settings": {d.claim.id: plain(d) for d in chosen},
        "heed": metadata.version("heed"),
        "unfit": unfit,
    }
    conditions = measure_conditions(first)
    spent = budget is not None and time.perf_counter() - began > 60 * budget
    shown = _examples(studies, examples, spent)
    facts["seconds"] = time.perf_counter() - began
    return Audit(facts, tuple(evidence), conditions, shown)


def _methods(given: Sequence[str | Method] | str | Method | None) -> list[Method]:
    """The explanations that are judged, each under a name of its own."""
    given = AttentionMean() if given is None else given
    found = [make_method(e) for e in ([given] if isinstance(given, str | Method) else given)]
    if not found:
        raise InputError("An audit needs an explanation to judge, got none.")
    names = [e.name for e in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"Two of the explanations to be judged are called {name}: leave one out."
            )
    return found


def _data(
    model: Classifier,
    dataset: Any,
    methods: Sequence[Method],
    columns: Mapping[str, str | None] | None,
) -> Dataset:
    """The documents that were given; without any, those that imported scores explain."""
    imported = [m for m in methods if isinstance(m, Imported)]
    if dataset is None and imported:
        return Dataset(imported[0].name, "all", tuple(imported[0].documents), (), "", "not stated")
    data = model.documents(dataset, columns)
    if not data.documents:
        raise InputError("An audit needs documents, got none.")
    return data


def _explained_only(
    model: Classifier, data: Dataset, methods: Sequence[Method], limit: int | None, seed: int
) -> tuple[Dataset, str]:
    """At most `limit` documents, only those that all imported scores explain; and why not all.

    Scores must be there for a document, and be about the label that the model predicts for it.
    """
    imported = [m for m in methods if isinstance(m, Imported)]
    names = " or ".join(m.name for m in imported)
    documents = [d for d in data.documents if all(m.explains(d) for m in imported)]
    reasons = []
    if missing := len(data.documents) - len(documents):
        reasons.append(
            f"{missing:,} of {len(data.documents):,} documents have no scores in {names}"
        )
    if not documents:
        raise DataError(
            f"None of the documents of {data.name or 'the list'} has scores in {names}."
        )
    drawn = documents if limit is None else [documents[i] for i in draw(documents, limit, seed)]
    if imported:
        tokens = model.tokens(drawn)
        refused = {i: why for m in imported for i, why in enumerate(m.unfit(model, tokens)) if why}
        if len(refused) == len(drawn):
            raise DataError(next(iter(refused.values())))
        if refused:
            first = next(iter(refused.values()))
            reasons.append(f"{len(refused):,} of {len(drawn):,} documents, such as: {first}")
        drawn = [d for i, d in enumerate(drawn) if i not in refused]
    for reason in reasons:
        say(f"left out: {reason}")
    return replace(data, documents=tuple(drawn)), "; ".join(reasons)


def _examples(studies: Sequence[Study], count: int, spent: bool) -> tuple[Example, ...]:
    """The first documents, explained by what is judged and by some others.

    LIME takes many evaluations: it is shown for a few documents where no claim has computed it.
    Where the budget was spent, so is all that takes more than one evaluation.
    """
    first = studies[0]
    few = first.documents[:count]
    if not few:
        return ()
    wanted = list(
        dict.fromkeys([*(s.method for s in studies), *SHOWN, best_lime(first, AgreesLime.samples)])
    )
    named = {
        e.name: e for e in reversed(wanted)
    }  # what is judged comes before another of the same name
    columns: list[list[Explanation]] = []
    for method in (e for e in wanted if named[e.name] == e):
        slow = isinstance(method, Occlusion | EfficientAttention)  # but not so slow as LIME
        quick = not spent if slow else method.evaluations(10) <= 1
        some = len(few) if quick or first.has_explained(method) else min(FEW, len(few))
        try:
            column = first.explain_only(method, range(some))
            if method == SHOWN[-1] and not spent:
                most = sorted(range(len(few)), key=lambda i: -column[i].facts["null_space"])[
                    :OPENED
                ]
                opened = first.explain_only(replace(SHOWN[-1], intervals=12), most)
                column = [
                    dict(zip(most, opened, strict=True)).get(i, e) for i, e in enumerate(column)
                ]
            columns.append(column)
        except (
            NotApplicable
        ):  # the model does not offer what it needs, or a text is too long for it
            continue
    shown: list[Float[np.ndarray, "head unit"] | None] = [None] * len(few)
    if ATTENTION in first.model.offers:
        shown = [
            weights.round(6) for weights in heads(first.model, few)
        ]  # which is all that a reader sees
    return tuple(
        Example(tuple(column[i] for column in columns if i < len(column)), shown[i], first.gold[i])
        for i in range(len(few))
    )


def _measure(
    test: ClaimTest, study: Study, spent: float | None
) -> tuple[list[Row], Refusal | None]:
    """Rows, or why there are none; `spent` is the budget in minutes, if it is used up."""
    if refusal := test.refusal(study):
        return [], refusal
    if spent is not None:
        return [], Refusal("budget", f"the budget of {spent:g} minutes was spent")
    try:
        return test.measure(study), None
    except NotApplicable as error:
        return [], Refusal("other", str(error).removesuffix("."))


def _turn(test: ClaimTest) -> tuple[bool, ...]:
    """The order of tests: the gate first, then quick claims; what trains comes last."""
    claim, slow = test.claim, test.claim.slow
    return claim.id != "used", claim.trains, claim.id != "needed", slow, slow and claim.gated


def _tests(
    claims: Sequence[str | ClaimTest] | str | None, studies: Sequence[Study]
) -> list[ClaimTest]:
    """The claims that were asked for, gates first; where some are gated, a gate joins them."""
    study = studies[0]
    wanted = [claims] if isinstance(claims, str) else list(CLAIMS if claims is None else claims)
    found = [_test(c) for c in wanted]
    names = [d.claim.id for d in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"The claim {name} is to be tested twice: leave one out.")
    of_attention = any(reads_attention(s.method.name) for s in studies)
    gated = any(d.claim.gated and (of_attention or not d.claim.of_explanation) for d in found)
    opens = any(
        d.claim.id == "used" or (d.claim.id == "needed" and not d.refusal(study)) for d in found
    )
    if gated and not opens:
        found.append(CLAIMS["used"]())
    return sorted(found, key=lambda d: d.claim.id not in GATES)


def _test(claim: str | ClaimTest) -> ClaimTest:
    if isinstance(claim, ClaimTest):
        return claim
    if claim not in CLAIMS:
        raise UnknownName("claim", claim, CLAIMS)
    return CLAIMS[claim]()


def _gold(
    model: Classifier, documents: Sequence[Document], names: Sequence[str]
) -> list[int | None]:
    """The label of each document among those of the model; all None if the labels differ.

    Labels are matched by name. Where the data have only numbers, or no names, they are indices.
    """
    folded = [name.casefold() for name in model.labels]
    if all(name.isdecimal() for name in names):
        place = {i: i for i in range(len(folded))} if len(names) <= len(folded) else {}
    else:
        place = {
            i: folded.index(n.casefold()) for i, n in enumerate(names) if n.casefold() in folded
        }
    labels = [d.label for d in documents]
    if len(place) < len(names) or any(label not in place for label in labels if label is not None):
        return [None] * len(labels)
    return [None if label is None else place[label] for label in labels]


def _accuracy(
    model: Classifier, documents: Sequence[Document], gold: Sequence[int | None]
) -> float | None:
    """The share of right predictions; None if no label is known."""
    known = [(d, g) for d, g in zip(documents, gold, strict=True) if g is not None]
    if not known:
        return None
    predicted = model([d for d, _ in known]).argmax(1)
    return float(sum(int(p) == g for p, (_, g) in zip(predicted, known, strict=True)) / len(known))


def _retraining(
    model: Classifier,
    training: Dataset | Sequence[Document] | None,
    validation: Sequence[Document],
    store: Store,
    base: str | Path | None,
) -> Any:
    """How the model can be trained again, or why it cannot."""
    if training is None:
        return NO_TRAINING
    facts = getattr(model, "facts", None)
    if facts is None:
        return Refusal(
            "training", "it retrains the model, and heed can do so only for models it trained"
        )
    if "recipe" not in facts:
        return Refusal("training", "it retrains the model, which does not say how it was trained")
    names = training.labels if isinstance(training, Dataset) else model.labels
    if [n.casefold() for n in names] != [n.casefold() for n in model.labels]:
        raise InputError(
            f"The labels of the training data ({', '.join(names)}) are not those of the model"
            f" ({', '.join(model.labels)})."
        )
    from heed.models.network import NetworkClassifier
    from heed.training.again import Retraining

    if isinstance(model, NetworkClassifier):
        return Retraining(model, list(training), list(validation), store)
    from heed.training.again_transformer import TransformerRetraining

    if facts.get("base") and base is None:
        return Refusal(
            "training",
            f"it retrains the model, which was fine-tuned from {facts['base']}: give that with"
            " --base",
        )
    return TransformerRetraining(
        model,  # type: ignore[arg-type]
        list(training),
        list(validation),
        store,
        base=base,
    )
