"""An audit: claim after claim, measured on its documents."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from heed.audit.cost import in_turn
from heed.audit.examples import make_examples
from heed.audit.growing import until_decided as grow
from heed.audit.measure import measure
from heed.audit.plan import Plan, departures, plan_of
from heed.audit.result import Audit
from heed.audit.setup import Setup, Training, prepare
from heed.claims import ClaimTest, Evidence
from heed.claims.conditions import measure as measure_conditions
from heed.claims.study import controls
from heed.data import Dataset
from heed.methods import Method
from heed.methods.explanation import UnitKind
from heed.models import Model
from heed.models.classifier import Classifier
from heed.recommendation import kept
from heed.settings import plain
from heed.store import Store
from heed.text import Document, counted


def audit(
    model: Model,
    dataset: Any = None,
    claims: Sequence[str | ClaimTest] | str | None = None,
    methods: Sequence[str | Method] | str | Method | None = None,
    limit: int | None = None,
    seed: int | None = None,
    examples: int = 0,
    training: Training | Dataset | Sequence[Document] | None = None,
    store: Store | Path | None = None,
    budget: float | None = None,
    columns: Mapping[str, str | None] | None = None,
    unit: UnitKind | None = None,
    plan: Plan | Path | str | None = None,
    until_decided: bool | None = None,
) -> Audit:
    """Test what an explanation (attention, by default) is worth on these documents.

    dataset      a `heed.data.Dataset`, a list of texts, or a table with a column text, and label if
                 labels are known: a pandas DataFrame, a list of dicts, a Hugging Face data set.
                 Blank texts, and those without imported scores, are left out and counted.
                 With imported scores it may be left out: their texts are audited then
    claims       by name, or with settings as in `Exclusive(steps=200)`; by default all. "quick" are
                 those behind the headline, on 100 documents
    methods      the methods that are judged, side by side: by name, with settings, or
                 `heed.Imported`; by default attention-mean, or lime if the model shows no attention
    limit        at most this many documents, drawn at random
    examples     explain this many documents for the reader: the page and the saved file show them
    training     documents for the claims that retrain the model; without them these are not judged.
                 `heed.Training` adds documents to validate on, and what a transformer was
                 fine-tuned from
    store        a folder for rows and trained models: run the audit again to resume it. What
                 methods and claims of your own measure is not kept
    budget       start no new claim after this many minutes; slow ones run last
    columns      names of the columns of a table: {"text": "body", "label": "stars"}. Documents with
                 the same value of {"cluster": "author"} are drawn together, and count as one
    unit         what gets a score: "word", "token", "sentence", "line", or "span" for the spans of
                 the documents (a column spans). Where claims speak of words, these are meant.
                 Claims that rank them leave out documents with fewer than three. By default "word"
    plan         what `heed.plan` or `heed plan` wrote before: it stands for claims, methods, limit,
                 seed and unit that are not given. The audit says how it departs from the plan
    until_decided   add documents, in random order, until every claim is decided that they can
                 decide, or `limit` is reached. Its intervals are valid whenever it stops, and wider
    """
    began = time.perf_counter()
    planned = Plan.load(plan) if isinstance(plan, Path | str) else plan
    if planned is not None:
        claims = planned.tests() if claims is None else claims
        methods = planned.judged() if methods is None else methods
        limit = planned.limit if limit is None else limit
        seed = planned.seed if seed is None else seed
        unit = unit or planned.unit
        until_decided = planned.until_decided if until_decided is None else until_decided

    def spent() -> bool:
        return budget is not None and time.perf_counter() - began > 60 * budget

    def measured(setup: Setup) -> list[Evidence]:
        by_claim: dict[str, list[Evidence]] = {}
        for test in in_turn(setup, foretell=not until_decided):
            judged = [
                measure(test, study, budget if spent() else None)
                for study in setup.studies_of(test)
            ]
            by_claim[test.claim.id] = judged + controls(test, setup.chance, judged)
        return [e for test in setup.tests for e in by_claim[test.claim.id]]

    setup = prepare(
        model,
        dataset,
        claims,
        methods,
        limit,
        seed or 0,
        training,
        store,
        columns,
        unit or "word",
    )
    done = None if planned is None else plan_of(setup, training, bool(until_decided))
    if until_decided:
        pairs = None if planned is None else planned.pairs
        setup, evidence = grow(setup, measured, spent, pairs)
    else:
        evidence = measured(setup)
    facts = _facts(setup)
    facts["until_decided"] = bool(until_decided)
    if planned is not None and done is not None:
        facts["plan"] = {
            "hash": planned.hash,
            "departures": departures(planned, done, evidence),
            "pairs": planned.pairs,
        }
    conditions = measure_conditions(setup.first)
    explained = make_examples(setup.studies, examples, spent())
    facts["seconds"] = time.perf_counter() - began
    return Audit(facts, tuple(evidence), conditions, explained)


def _facts(setup: Setup) -> dict[str, Any]:
    """What was measured, of which model, on which documents."""
    model, data, tokens = setup.model, setup.data, setup.tokens
    words = sum(len(t.words) for t in tokens)
    best = kept(model.revision)
    return {
        "model": model.name,
        "revision": model.revision,
        "data": f"{data.name} ({data.split})" if data.name else counted(len(tokens)),
        "documents": len(tokens),
        "left_out": setup.left_out,
        "truncated": sum(t.dropped > 0 for t in tokens),
        "unknown": float(sum(t.unknown.sum() for t in tokens) / words),
        "accuracy": _accuracy(model, setup.documents, setup.first.gold),
        "methods": {study.method.name: plain(study.method) for study in setup.studies},
        "seed": setup.first.seed,
        "unit": setup.first.unit,
        "settings": {test.claim.id: plain(test) for test in setup.tests},
        "heed": metadata.version("heed"),
        "unfit": setup.unfit,
        "runs": model.runs,
        "clusters": _clusters(setup.documents),
        "recommended": None if best is None else asdict(best),
    }


def _clusters(documents: Sequence[Document]) -> int:
    """How many clusters the documents form, or 0; a document without one counts by itself."""
    if not any(d.cluster for d in documents):
        return 0
    return len({(d.cluster, "" if d.cluster else i) for i, d in enumerate(documents)})


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
