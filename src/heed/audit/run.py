"""An audit from its arguments: what is judged on which documents, claim after claim."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

from heed.audit.examples import make_examples
from heed.audit.result import Audit
from heed.claims import CLAIMS, ClaimTest, Evidence, Study
from heed.claims.claim import GATES, Refusal, Row
from heed.claims.conditions import measure as measure_conditions
from heed.claims.study import NO_TRAINING
from heed.data import Dataset
from heed.data.dataset import draw
from heed.data.inputs import is_one
from heed.errors import DataError, InputError, NotApplicable, UnknownName, quoted
from heed.methods import AttentionMean, Imported, Method, make_method, reads_attention
from heed.methods.explanation import UnitKind
from heed.methods.units import units_of
from heed.models import Model
from heed.models import of as classifier_of
from heed.models.classifier import ATTENTION, Classifier
from heed.progress import bar, say
from heed.settings import plain
from heed.store import Store
from heed.text import Document, counted


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
    unit: UnitKind = "word",
) -> Audit:
    """Test what an explanation (attention, by default) is worth on these documents.

    dataset      a `heed.data.Dataset`, a list of texts, or a table with a column text, and label if
                 labels are known: a pandas DataFrame, a list of dicts, a Hugging Face data set.
                 Blank texts, and those without imported scores, are left out and counted.
                 With imported scores it may be left out: their texts are audited then
    claims       by name, or with settings as in `Exclusive(steps=200)`; by default all
    methods      the methods that are judged, side by side: by name, with settings, or
                 `heed.Imported`; by default attention-mean, or lime if the model shows no attention
    limit        at most this many documents, drawn at random
    examples     explain this many documents for the reader: the page and the saved file show them
    training     documents for the claims that retrain the model; without them these are not judged.
                 Some are held out for validation unless there are `validation` documents
    store        a folder for rows and trained models: run the audit again to resume it. What
                 methods and claims of your own measure is not kept
    base         what a transformer was fine-tuned from, for the claims that retrain it
    budget       start no new claim after this many minutes; slow ones run last
    columns      names of the columns of a table: {"text": "body", "label": "stars"}
    unit         what gets a score: "word", "token", "sentence", "line", or "span" for the spans of
                 the documents (a column spans). Where claims speak of words, these are meant.
                 Claims that rank them leave out documents with fewer than three
    """
    began, model = time.perf_counter(), classifier_of(model)

    def spent() -> bool:
        return budget is not None and time.perf_counter() - began > 60 * budget

    if is_one(dataset):
        raise InputError(
            "An audit takes a list of documents or a data set, got one text; for a file, pass"
            " heed.data.load(FILE)."
        )
    if unit not in get_args(UnitKind):
        raise UnknownName("unit", str(unit), get_args(UnitKind))
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}.")
    judged = _methods(model, methods)
    imported = [m for m in judged if isinstance(m, Imported)]
    if dataset is None and imported:
        scored = tuple(imported[0].documents)
        data = Dataset(imported[0].name, "all", scored, (), "", "not stated")
    else:
        data = model.documents(dataset, columns)
        if not data.documents:
            raise InputError("An audit needs documents, got none.")
    data, unfit = _explained_only(model, data, imported, limit, seed)
    tokens = [t for t in model.tokens(data.documents) if units_of(t, unit)[0]]
    documents = [t.document for t in tokens]
    if not documents:
        raise InputError(
            f"An audit needs documents, and none of these has a {unit} that the model can read."
        )
    store = store if isinstance(store, Store) else Store(store)
    if store.folder is not None and model.revision == "unknown":
        raise InputError(
            f"heed cannot tell {model.name} from another function: give it a revision, or audit"
            " without a store."
        )
    gold = _gold(model, documents, data.labels)
    retraining = _retraining(model, training, validation, store, base)
    first = Study(model, documents, judged[0], seed, gold, retraining, store, unit)
    studies = [replace(first, method=e) for e in judged]  # which share what they have explained
    tests = _tests(claims, studies)
    if not any(test.claim.of_explanation for test in tests):
        _check_settings(first)
    measured: dict[str, list[Evidence]] = {}
    for test in bar(sorted(tests, key=_turn), "claims", unit="claim"):
        measured[test.claim.id] = [
            _measure(test, study, budget if spent() else None)
            for study in (studies if test.claim.of_explanation else studies[:1])
        ]
    evidence = [e for test in tests for e in measured[test.claim.id]]
    words = sum(len(t.words) for t in tokens)
    facts = {
        "model": model.name,
        "revision": model.revision,
        "data": f"{data.name} ({data.split})" if data.name else counted(len(documents)),
        "documents": len(documents),
        "left_out": data.left_out + len(data.documents) - len(documents),
        "truncated": sum(t.dropped > 0 for t in tokens),
        "unknown": float(sum(t.unknown.sum() for t in tokens) / words),
        "accuracy": _accuracy(model, documents, gold),
        "methods": {method.name: plain(method) for method in judged},
        "seed": seed,
        "unit": unit,
        "settings": {test.claim.id: plain(test) for test in tests},
        "heed": metadata.version("heed"),
        "unfit": unfit,
        "runs": model.runs,
    }
    conditions = measure_conditions(first)
    explained = make_examples(studies, examples, spent())
    facts["seconds"] = time.perf_counter() - began
    return Audit(facts, tuple(evidence), conditions, explained)


# What is judged, on which documents


def _methods(
    model: Classifier, methods: Sequence[str | Method] | str | Method | None
) -> list[Method]:
    """The explanations that are judged, each under a name of its own."""
    if methods is None and ATTENTION not in model.offers:
        say(f"{model.name} shows no attention: lime is judged.")
        methods = "lime"
    methods = AttentionMean() if methods is None else methods
    judged = [make_method(m) for m in ([methods] if isinstance(methods, str | Method) else methods)]
    if not judged:
        raise InputError("An audit needs an explanation to judge, got none.")
    for name in _repeated([method.name for method in judged]):
        raise InputError(f"Two of the explanations to be judged are called {name}: leave one out.")
    return judged


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name in names if names.count(name) > 1]


def _explained_only(
    model: Classifier, data: Dataset, imported: Sequence[Imported], limit: int | None, seed: int
) -> tuple[Dataset, str]:
    """At most `limit` documents, only those that all imported scores explain; and why not all.

    Scores must be there for a document, and be about the label that the model predicts for it.
    """
    names = " or ".join(m.name for m in imported)
    documents = [d for d in data.documents if all(m.explains(d) for m in imported)]
    if not documents:
        name = data.name or "the list"
        raise DataError(f"None of the documents of {name} has scores in {names}.")
    reasons = []
    total = len(data.documents)
    if missing := total - len(documents):
        reasons.append(f"{missing:,} of {total:,} documents have no scores in {names}")
    drawn = documents if limit is None else [documents[i] for i in draw(documents, limit, seed)]
    refused: dict[int, str] = {}
    tokens = model.tokens(drawn) if imported else []
    for method in imported:
        refused |= {i: why for i, why in enumerate(method.unfit(model, tokens)) if why}
    if refused:
        why = next(iter(refused.values()))
        if len(refused) == len(drawn):
            raise DataError(why)
        reasons.append(f"{len(refused):,} of {len(drawn):,} documents, such as: {why}")
        drawn = [d for i, d in enumerate(drawn) if i not in refused]
    for reason in reasons:
        say(f"left out: {reason}")
    return replace(data, documents=tuple(drawn)), "; ".join(reasons)


def _check_settings(study: Study) -> None:
    """Refuse a method whose settings do not fit the model, where no claim would find out."""
    quick = study.method.evaluations(10) <= 1
    if quick and not study.method.refusal(study.model, study.documents[:1]):
        study.method.explain(study.model, study.documents[:1])


# Claims


def _tests(
    claims: Sequence[str | ClaimTest] | str | None, studies: Sequence[Study]
) -> list[ClaimTest]:
    """The claims that were asked for, gates first; where some are gated, a gate joins them."""
    wanted = [claims] if isinstance(claims, str) else list(CLAIMS if claims is None else claims)
    tests = [_test(claim) for claim in wanted]
    for name in _repeated([test.claim.id for test in tests]):
        raise InputError(f"The claim {name} is to be tested twice: leave one out.")
    of_attention = any(reads_attention(s.method.name) for s in studies)
    gated = any(t.claim.gated and (of_attention or not t.claim.of_explanation) for t in tests)
    if gated and not any(_is_gate(test, studies[0]) for test in tests):
        tests.append(CLAIMS["used"]())
        gated_names = ", ".join(t.claim.id for t in tests if t.claim.gated)
        say(f"The claim used is tested too: whether {gated_names} can be judged depends on it.")
    return sorted(tests, key=lambda test: test.claim.id not in GATES)


def _is_gate(test: ClaimTest, study: Study) -> bool:
    """Whether the test says if the task needs attention, and can be run."""
    return test.claim.id == "used" or (test.claim.id == "needed" and not test.refusal(study))


def _test(claim: str | ClaimTest) -> ClaimTest:
    if isinstance(claim, ClaimTest):
        return claim
    if claim not in CLAIMS:
        raise UnknownName("claim", claim, CLAIMS)
    return CLAIMS[claim]()


def _turn(test: ClaimTest) -> tuple[bool, ...]:
    """The order of tests: the gate first, then quick claims; what trains comes last."""
    claim, slow = test.claim, test.claim.slow
    return claim.id != "used", claim.trains, claim.id != "needed", slow, slow and claim.gated


def _measure(test: ClaimTest, study: Study, spent: float | None) -> Evidence:
    """Rows, or why there are none; `spent` is the budget in minutes, if it is used up."""
    rows, refusal = [], test.refusal(study)
    if refusal is None and spent is not None:
        refusal = Refusal("budget", f"the budget of {spent:g} minutes was spent")
    if refusal is None:
        try:
            rows = test.measure(study)
        except NotApplicable as error:
            refusal = Refusal("other", str(error).removesuffix("."))
    keyed: list[Row] = [
        {"document": i} | ids | row
        for i, (ids, row) in enumerate(zip(study.ids, rows, strict=refusal is None))
    ]
    if test.claim.ranks and keyed:
        for row, rankable in zip(keyed, study.rankable, strict=True):
            row["value"] = row["value"] if rankable else float("nan")
    return Evidence(test.claim, keyed, refusal, study.method.name)


# The model


def _gold(
    model: Classifier, documents: Sequence[Document], names: Sequence[str]
) -> list[int | None]:
    """The label of each document among those of the model; all None if the labels differ.

    Labels are matched by name. Where the data have only numbers, or no names, they are indices.
    """
    folded = [name.casefold() for name in model.labels]
    theirs = [name.casefold() for name in names] or list(map(str, range(len(folded))))
    ours = folded
    if not set(theirs) <= set(folded) and all(name.isdecimal() for name in theirs):
        ours = list(map(str, range(len(folded))))
    indices = {i: ours.index(name) for i, name in enumerate(theirs) if name in ours}
    labels = [d.label for d in documents]
    if len(indices) < len(names) or not set(labels) - {None} <= indices.keys():
        listed = ", ".join(names or map(str, sorted({i for i in labels if i is not None})))
        say(
            f"The labels of the data ({quoted(listed)}) are not those of the model"
            f" ({quoted(', '.join(model.labels))}): no accuracy is given."
        )
        return [None] * len(labels)
    return [None if label is None else indices[label] for label in labels]


def _accuracy(
    model: Classifier, documents: Sequence[Document], gold: Sequence[int | None]
) -> float | None:
    """The share of right predictions; None if no label is known."""
    labels = [label for label in gold if label is not None]
    if not labels:
        return None
    labelled = [d for d, label in zip(documents, gold, strict=True) if label is not None]
    predicted = model.logits(model.tokens(labelled)).argmax(1).tolist()
    return sum(p == label for p, label in zip(predicted, labels, strict=True)) / len(labels)


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
    documents = list(training), list(validation)
    return TransformerRetraining(model, *documents, store, base=base)  # type: ignore[arg-type]
