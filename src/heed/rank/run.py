"""A ranking from its arguments: which methods, on which documents, measured by what."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from heed import recommendation
from heed.audit.setup import Setup, prepare
from heed.claims import Study
from heed.claims.faithful import Removes
from heed.errors import InputError, NotApplicable
from heed.methods import CHANCE, METHODS, Method, make_method
from heed.methods.choice import Chooser, Prediction, only_by_name, predicted
from heed.methods.explanation import UnitKind
from heed.models import Model
from heed.models import of as classifier_of
from heed.progress import bar, roughly, say
from heed.rank import measure
from heed.rank.result import Ranking
from heed.settings import plain
from heed.store import Store
from heed.text import counted

DOCUMENTS = 60
PATIENCE = 120.0  # seconds that a method may take on all documents, unless it was named
_LONG = 20.0  # seconds from which somebody who waits wants to know how long


def rank(
    model: Model,
    dataset: Any = None,
    methods: Sequence[str | Method] | str | Method | None = None,
    limit: int | None = DOCUMENTS,
    seed: int = 0,
    store: Store | Path | None = None,
    columns: Mapping[str, str | None] | None = None,
    unit: UnitKind = "word",
    patience: float = PATIENCE,
) -> Ranking:
    """Which method should explain this model on this data?

    dataset    as `heed.audit` takes it
    methods    by name, with settings, or `heed.Imported`; by default all that explain these
               documents within `patience` seconds each
    limit      at most this many documents, drawn at random
    store      a folder for rows: rank again to resume
    columns    names of the columns of a table: {"text": "body", "label": "stars"}
    unit       what gets a score: "word", "token", "sentence", "line" or "span"

    Methods are compared by how much their top words matter, under every way to remove words that
    the model has, from 0 (the worst order of the words) to 1 (the best). Random scores and word
    length are ranked beside them. The recommendation is kept for `heed explain`, unless somebody
    named the methods, or the unit is not a word.
    """
    began = time.perf_counter()
    model = classifier_of(model)
    named = [methods] if isinstance(methods, str | Method) else methods
    given = None if named is None else [make_method(m) for m in named]
    setup = prepare(
        model, dataset, [Removes()], given or "random", limit, seed, None, store, columns, unit
    )
    study = setup.first
    prediction = predicted(model, _typical(setup))
    chosen, left_out = _chosen(study, prediction, given, patience)
    _warn(study, prediction, chosen)
    able = _explained(study, chosen, left_out, by_name=given is not None)
    line = _affordable(study, prediction, able, patience)
    measured, curve = measure.faithful(study, able, line)
    further = {
        "signs": measure.signs,
        "stability": measure.stability,
        "sensitivity": measure.sensitivity,
        "plausibility": measure.plausibility,
    }
    others = {name: of(study, able) for name, of in further.items()}
    columns_of = measured.columns | others | measure.cost(study, able)
    rows = measure.Measured(columns_of).rows(study, list(able))
    if not any(np.isfinite(row["faithfulness"]) for row in rows):
        raise InputError(
            "Nothing can be ranked: all documents have fewer than three words, or their removal"
            " changes nothing."
        )
    about = {
        name: {"signed": m.signed, "chance": isinstance(m, CHANCE), "settings": plain(m)}
        for name, m in able.items()
    }
    facts = _facts(setup) | {"seconds": time.perf_counter() - began}
    ranking = Ranking(facts, about, rows, curve, left_out)
    # what is named, by its settings too, is the choice of somebody: it says nothing of all others
    general = given is None and unit == "word"
    if general and (found := ranking.recommendation) is not None:
        recommendation.keep(model.revision, found)
    return ranking


def _facts(setup: Setup) -> dict[str, Any]:
    model, data = setup.model, setup.data
    return {
        "model": model.name,
        "revision": model.revision,
        "data": f"{data.name} ({data.split})" if data.name else counted(len(setup.documents)),
        "documents": len(setup.documents),
        "left_out": setup.left_out,
        "unfit": setup.unfit,
        "removals": list(model.removals),
        "seed": setup.first.seed,
        "unit": setup.first.unit,
        "heed": metadata.version("heed"),
    }


def _typical(setup: Setup) -> Any:
    """The document of middle length, on which time is measured."""
    ordered = sorted(setup.tokens, key=len)
    return ordered[len(ordered) // 2]


def _chosen(
    study: Study, prediction: Prediction, given: Sequence[Method] | None, patience: float
) -> tuple[list[Method], dict[str, str]]:
    """The methods that are ranked, chance methods last, and why others are not."""
    if given is not None and all(isinstance(m, CHANCE) for m in given):
        raise InputError("Name a method to rank: random and word-length are ranked beside it.")
    named = {m.name for m in given or ()}
    chance = [cls() for cls in CHANCE if cls.name not in named]
    if given is not None:
        for method in given:  # before the first of them has taken its time
            if reason := method.refusal(study.model, study.documents):
                raise NotApplicable(reason)
        return [*given, *chance], {}
    every = [cls() for cls in METHODS.values() if not cls.only_by_name and cls not in CHANCE]
    left_out = {n: why for n, why in only_by_name().items() if n not in [m.name for m in chance]}
    able = []
    chooser = Chooser(study.model, prediction, study.unit)
    for method in every:
        expected = chooser.seconds(method) * len(study.documents)
        if reason := method.refusal(study.model, study.documents):
            left_out[method.name] = reason
        elif expected > patience:
            left_out[method.name] = f"it would take about {roughly(expected)}; name it to run it"
        else:
            able.append(method)
    return [*able, *chance], left_out


def _explained(
    study: Study, methods: Sequence[Method], left_out: dict[str, str], by_name: bool
) -> dict[str, Method]:
    """Explain all documents; what cannot is left out, unless it was named."""
    able = {}
    for method in bar(methods, "methods", unit="method"):
        try:
            study.explain(method)
        except NotApplicable as error:
            if by_name:
                raise
            left_out[method.name] = str(error)
        else:
            able[method.name] = method
    return able


def _affordable(
    study: Study, prediction: Prediction, able: Mapping[str, Method], patience: float
) -> list[Method]:
    """Sampled methods with fewer samples, if all of them together take no longer than one may."""
    fewer = measure.fewer_samples(list(able.values()))
    chooser = Chooser(study.model, prediction, study.unit)
    expected = sum(map(chooser.seconds, fewer)) * len(study.documents)
    return fewer if expected <= patience else []


def _warn(study: Study, prediction: Prediction, methods: Sequence[Method]) -> None:
    """Say how long it will take, if that is long."""
    expected = prediction.seconds * measure.passes(study, methods) * len(study.documents)
    if expected > _LONG:
        documents = counted(len(study.documents))
        say(f"Ranking {len(methods)} methods on {documents} takes about {roughly(expected)}.")
