"""The experiments of Jain and Wallace (2019) on their four models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from heed.claims import Study
from heed.claims.informative import f1_of
from heed.claims.needed import Used
from heed.methods import AttentionMean, GradientInput, Occlusion
from heed.methods.comparison import aligned
from heed.metrics import auc
from heed.papers.debate import BINS, MAIN, MODELS, Corpus, DebateLab, bin_of
from heed.papers.results import Outcome, Results, figure, texts
from heed.papers.table import Row, Table, mean_of

PUBLISHED = texts("published")["jain-wallace-2019"]
_SHARE = "Share of documents whose correlation is significant on its own."
_NEAR_F1, _NEAR = 0.03, 0.08  # F1 and other figures within this of the published ones need no note


def _published(table: str, corpus: Corpus, k: int | None = None) -> float | None:
    """The paper's number for a data set, or the k-th of several; None if there is none."""
    numbers = PUBLISHED[table].get(corpus.name)
    return numbers if numbers is None or k is None else numbers[k]


def accuracy(lab: DebateLab) -> Outcome:
    """F1 and AUC on the test sets."""
    results = Results("accuracy")
    models = _on_every_model(lab, "accuracy", _accuracy)
    for corpus, model, rows in _by_model(lab, models):
        results.dataset, results.model = corpus.name, model
        for metric, near in (("F1", _NEAR_F1), ("AUC", _NEAR)):
            theirs = _published(metric.lower(), corpus) if model == MAIN else None
            mean = rows.average(metric)
            note = _difference(mean, theirs, near)
            if model == MAIN and metric == "F1":
                note = f"{note} {_set_up(lab, corpus)}".strip()
            note = _over_seeds(rows.column(metric), note)
            results.add(metric, mean, n=len(corpus.test), published=theirs, note=note)
    f1s = [r for r in results if r.metric == "F1"]
    bars = [{"dataset": r.dataset, "model": r.model, "F1": r.ours} for r in f1s]
    return Outcome(results, [figure("f1", bars, panel=lab.panel)], {"models": models})


def _on_every_model(lab: DebateLab, what: str, measure: Callable[..., list[Row]]) -> Table:
    """Rows of every model on every data set, for all of its training seeds."""
    rows = Table()
    for name, (model, (encoder, attention)) in product(lab.names, MODELS.items()):
        columns = {"dataset": lab.corpus(name).name, "model": model}
        for seed in lab.seeds(name, model):
            settings = {"encoder": encoder, "attention": attention, "training": seed}
            measured = lab.measured(
                what, name, partial(measure, lab, name, encoder, attention, seed), **settings
            )
            rows += [columns | {"seed": seed} | row for row in measured]
    return rows


def _by_model(lab: DebateLab, rows: Table) -> Iterator[tuple[Corpus, str, Table]]:
    for name in lab.names:
        corpus = lab.corpus(name)
        for model, model_rows in rows.where(dataset=corpus.name).by("model"):
            yield corpus, model, model_rows


def _accuracy(lab: DebateLab, name: str, encoder: str, attention: str, seed: int) -> list[Row]:
    corpus, model = lab.corpus(name), lab.base(name, encoder, attention, seed=seed)
    logits, gold = model(corpus.test.documents), corpus.test.gold
    return [
        {
            "F1": f1_of(logits.argmax(1), gold, len(corpus.classes)),
            "AUC": auc(logits[:, 1] - logits[:, 0], gold == 1),
            "accuracy": float((logits.argmax(1) == gold).mean()),
        }
    ]


def _difference(ours: float | None, theirs: float | None, near: float = _NEAR) -> str:
    """By how much the numbers differ, where they do; why they may, `_set_up` says."""
    if ours is None or theirs is None or abs(ours - theirs) <= near:
        return ""
    return f"{ours - theirs:+.3f} from the published figure."


def _over_seeds(values: Sequence[float] | np.ndarray, note: str) -> str:
    """The note, after how far the values of several training seeds lie apart."""
    if len(values) < 2:
        return note
    return f"{len(values)} training seeds: {min(values):.3f} to {max(values):.3f}. {note}".strip()


def _set_up(lab: DebateLab, corpus: Corpus) -> str:
    """What differs from the paper in all that is measured."""
    documents = f"{len(corpus.train):,}"
    if lab.scale == "smoke":
        return (
            f"A smoke test, not a reproduction: a small model, trained briefly on {documents}"
            " documents."
        )
    start = "from 50-dimensional GloVe vectors" if lab.pretrained else "at random"
    note = f"Embeddings start {start}, the paper's from 300-dimensional fastText vectors."
    if corpus.name == "ag_news":
        note += f" There are {documents} training documents, a part of the paper's."
    return note


def correlations(lab: DebateLab) -> Outcome:
    """Kendall's τ of attention with gradients (attention held fixed) and with leave-one-out."""
    results = Results("correlations")
    documents = _on_every_model(lab, "correlations", _correlations)
    for corpus, model, rows in _by_model(lab, documents):
        results.dataset, results.model = corpus.name, model
        _add_taus(results, rows, corpus)
    taus = [
        {"dataset": r["dataset"], "model": r["model"], "τ": r[key], "with": what}
        for r in documents
        for key, what in (("gradient", "gradients"), ("removal", "leave-one-out"))
        if np.isfinite(r[key])
    ]
    return Outcome(results, [figure("tau", taus, panel=lab.panel)], {"documents": documents})


def _correlations(lab: DebateLab, name: str, encoder: str, attention: str, seed: int) -> list[Row]:
    from scipy import stats

    corpus, model = lab.corpus(name), lab.base(name, encoder, attention, seed=seed)
    documents = corpus.test.documents[: lab.pick(40, 500 if name == "imdb" else 10**9)]
    study = Study(model, documents, seed=lab.seed)
    weights = study.explain(AttentionMean(sink="kept"))
    gradients = study.explain(GradientInput(output="probability", attention="fixed"))
    removals = study.explain(Occlusion(output="probability", removal="delete"))
    rows: list[Row] = []
    for i, explanations in enumerate(zip(weights, gradients, removals, strict=True)):
        a, g, r = (np.abs(scores) for scores in aligned(explanations))
        if len(a) < 2:
            continue
        pairs = {"gradient": (a, g), "removal": (a, r), "gradient_removal": (g, r)}
        taus = {key: stats.kendalltau(*pair) for key, pair in pairs.items()}
        row: Row = {"document": i, "predicted": model.label(explanations[0].label), "words": len(a)}
        row |= {key: float(tau.statistic) for key, tau in taus.items()}
        rows.append(row | {f"{key}_p": float(tau.pvalue) for key, tau in taus.items()})
    return rows


def _add_taus(results: Results, rows: Table, corpus: Corpus) -> None:
    """Means with their intervals, and how often they are significant.

    Those of the main model are taken by predicted class.
    """
    main = results.model == MAIN
    names = {"gradient": "τ(attention, gradient)", "removal": "τ(attention, leave-one-out)"}
    for k, (key, metric) in enumerate(names.items()):
        if main:
            for c, label in enumerate(corpus.classes):
                theirs = _published(f"tau_{key}", corpus, c)
                predicted = rows.where(predicted=c)
                _add_tau(results, predicted, key, f"{metric}, predicted {label}", theirs)
        else:
            both = PUBLISHED["tau_others"].get(results.model, {}).get(corpus.name)
            _add_tau(results, rows, key, metric, both[k] if both else None)
    yardstick = _published("tau_yardstick", corpus) if main else None
    metric = "τ(gradient, leave-one-out), the yardstick"
    _add_tau(results, rows, "gradient_removal", metric, yardstick)


def _add_tau(results: Results, rows: Table, key: str, metric: str, theirs: float | None) -> None:
    mean = rows.mean(key, per="document")
    note = _difference(mean.ours, theirs) if rows else "No document was predicted so."
    by_seed = [float(np.nanmean(group.column(key))) for _, group in rows.by("seed")]
    note = _over_seeds(by_seed, note)
    results.add(metric, mean, published=theirs, note=note)
    p_values = Table({"document": r["document"], "p": float(r[f"{key}_p"] <= 0.05)} for r in rows)
    share = p_values.mean("p", per="document")
    results.add(f"{metric}: p ≤ .05", share, note=_SHARE if rows else note)


def permutation(lab: DebateLab) -> Outcome:
    """The median change of the output over 100 permutations of attention, by the largest weight."""
    results = Results("permutation", model=MAIN)
    documents: list[Row] = []
    for name in lab.names:
        corpus = lab.corpus(name)
        tested = lab.tested("permutation", name, Used(permutations=lab.pick(50, 100)))
        # the paper's distance is that of probabilities, however certain they are
        measured = Table(r | {"value": r["plain"]} for r in tested)
        rows = Table(r | {"bin": bin_of(r["max_attention"])} for r in measured)
        documents += _labelled(measured, corpus)
        results.dataset = corpus.name
        for (c, label), (k, weights) in product(enumerate(corpus.classes), enumerate(BINS)):
            part = rows.where(predicted=c, bin=k).column("value")
            theirs = _published("permutation", corpus, k) if c == 0 else None
            middle = float(np.median(part)) if len(part) else None
            none = "No document has its largest weight there."
            results.add(
                f"median change of the output, predicted {label}, largest weight {weights}",
                middle,
                n=len(part),
                published=theirs,
                note=_difference(middle, theirs) if len(part) else none,
            )
    boxes = [
        {"largest weight": BINS[bin_of(r["max_attention"])], "change of the output": r["value"]}
        | {"predicted": r["class"], "dataset": r["dataset"]}
        for r in sorted(documents, key=lambda r: bin_of(r["max_attention"]))
    ]
    colour = "" if lab.panel else "predicted"
    chart = figure("permutation", boxes, colour=colour, panel=lab.panel)
    return Outcome(results, [chart], {"documents": documents})


def _labelled(rows: Sequence[Row], corpus: Corpus) -> list[Row]:
    """Rows with the name of their data set and of the class that was predicted."""
    return [{"dataset": corpus.name, "class": corpus.classes[r["predicted"]]} | r for r in rows]


def adversarial(lab: DebateLab) -> Outcome:
    """The farthest attention that leaves the output within .05, document by document."""
    results = Results("adversarial", model=MAIN)
    documents: list[Row] = []
    for name in lab.names:
        corpus, rows = lab.corpus(name), lab.adversaries(name)
        documents += _labelled(rows, corpus)
        for c, label in enumerate(corpus.classes):
            theirs = _published("adversary", corpus, c)
            mean = mean_of(rows.where(predicted=c).column("jsd"))
            results.add(
                f"ε-max JSD, predicted {label}",
                mean,
                published=theirs,
                note=_difference(mean.ours, theirs),
                dataset=corpus.name,
            )
    limit = "The largest possible value is ln 2 = 0.693."
    results[0] = replace(results[0], note=f"{limit} {results[0].note}".strip())
    distances = [
        {
            "data and prediction": f"{r['dataset']}: {r['class']}",
            "ε-max JSD": r["jsd"],
            "largest weight": "up to .25" if r["max_attention"] <= 0.25 else "above .25",
        }
        for r in documents
    ]
    return Outcome(results, [figure("adversarial", distances)], {"documents": documents})
