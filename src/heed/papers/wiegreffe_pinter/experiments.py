"""The four tests of Wiegreffe and Pinter (2019)."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from heed.claims.informative import f1_of
from heed.claims.retrained import NEAR, attention_of, seed_distances
from heed.metrics import jsd, tvd
from heed.papers.debate import BINS, MAIN, Corpus, DebateLab, bin_of
from heed.papers.results import Outcome, Results, figure, texts
from heed.papers.table import Row, Table, mean_of

if TYPE_CHECKING:  # which loads torch
    from heed.training.examples import Guide

# How strongly an adversary is rewarded, per document, for attending elsewhere; logarithmic scale.
STRENGTHS = (5e-5, 1.6e-4, 5e-4, 1.6e-3, 5e-3)

STRONGER = (1.6e-2, 5e-2, 5e-1)

# Of the adversary whose attention is a guide: at the paper's .001 ours attends as the base does.
GUIDE_STRENGTH = 5e-2


def _seeds(lab: DebateLab, name: str) -> int:
    return lab.pick(2, 3 if name == "imdb" else 8)


def _strengths(lab: DebateLab, name: str) -> tuple[float, ...]:
    few = name == "imdb" or lab.scale == "smoke"
    return (5e-4, 5e-3, 5e-2) if few else (*STRENGTHS, *STRONGER[:2])


def _cut(lab: DebateLab, name: str) -> str:
    """What was left out to keep the time within bounds."""
    limit = lab.limit(name)
    if not limit:
        return ""
    return f"Trained on {limit:,} reviews, {_seeds(lab, name)} seeds, one run of each adversary."


def _measured(lab: DebateLab, what: str, name: str, measure: Any) -> Table:
    rows = lab.measured(what, name, partial(measure, lab, name))
    return Table({"dataset": lab.corpus(name).name} | row for row in rows)


def _f1(model: Any, corpus: Corpus) -> float:
    return f1_of(model(corpus.test.documents).argmax(1), corpus.test.gold, len(corpus.classes))


def uniform(lab: DebateLab) -> Outcome:
    """Trained with attention, and with all words weighed alike."""
    results = Results("uniform", model=MAIN)
    trainings = Table()
    dots: list[Row] = []
    for name in lab.names:
        rows = _measured(lab, "uniform", name, _uniform)
        trainings += rows
        results.dataset = rows[0]["dataset"]
        for kind, group in rows.by("attention"):
            attention, mean = f"{kind} attention", group.mean("F1")
            results.add(f"F1, {attention}, mean of seeds", mean)
            dots.append(mean.row("F1", attention=attention, dataset=results.dataset))
        trained, flat = (rows.where(attention=kind).column("F1") for kind in ("trained", "uniform"))
        lost = mean_of(trained - flat)
        small = lost.ours is not None and lost.ours < 0.01
        note = "Attention hardly matters for this task, so the task says little about attention."
        results.add("F1 lost", lost, note=note if small else "")
    return Outcome(results, [figure("uniform", dots, panel=lab.panel)], {"seeds": trainings})


def _uniform(lab: DebateLab, name: str) -> list[Row]:
    corpus, retraining = lab.corpus(name), lab.retraining(name)
    rows: list[Row] = []
    for seed, kind in product(range(1, min(3, _seeds(lab, name)) + 1), ("trained", "uniform")):
        f1 = _f1(retraining.again(seed, kind == "uniform"), corpus)
        rows.append({"seed": seed, "attention": kind, "F1": f1})
    return rows


def seeds(lab: DebateLab) -> Outcome:
    """How far attention moves from one training to another, and how far an adversary moves it."""
    results = Results("seeds", model=MAIN)
    documents: list[Row] = []
    for name in lab.names:
        corpus, count = lab.corpus(name), _seeds(lab, name)
        rows = _measured(lab, "seeds", name, _seed_rows)
        documents += [r | {"class": corpus.classes[r["predicted"]]} for r in rows]
        results.dataset = corpus.name
        for key, metric in texts("metrics")["seeds"].items():
            note = _cut(lab, name)
            if key == "percentile" and np.median(rows.column(key)) == 1:
                note = "For most documents, no other training moves as far as the adversary."
            results.add(metric.format(seeds=count), rows.mean(key), note=note)
        lost = _f1_lost(rows, len(corpus.classes))
        results.add("F1 lost with the adversary's attention", lost, n=len(rows))
    distances = [
        {"largest weight": BINS[bin_of(r["max_attention"])], "JSD": r[key], "between": what}
        | {"dataset and prediction": f"{r['dataset']}: {r['class']}"}
        for r in sorted(documents, key=lambda r: r["max_attention"])
        for key, what in (
            ("median", "base and other seeds, median"),
            ("adversary", "base and adversary"),
        )
    ]
    return Outcome(results, [figure("seeds", distances)], {"documents": documents})


def _f1_lost(rows: Table, labels: int) -> float:
    """How much worse the predictions are with the attention of each document's adversary."""
    columns = ("gold", "predicted", "adversary_predicted")
    gold, before, after = (np.array([r[key] for r in rows]) for key in columns)
    return f1_of(before, gold, labels) - f1_of(after, gold, labels)


def _seed_rows(lab: DebateLab, name: str) -> list[Row]:
    test, retraining = lab.corpus(name).test, lab.retraining(name)
    attention = attention_of(retraining.model, test.documents)
    distances = seed_distances(retraining, test.documents, attention, _seeds(lab, name))
    predicted = retraining.model(test.documents).argmax(1)
    return [
        {
            "document": i,
            "predicted": int(predicted[i]),
            "max_attention": float(attention[i].max()),
            "median": float(np.median(distances[:, i])),
            "maximum": float(distances[:, i].max()),
            "adversary": adversary["jsd"],
            "percentile": float((distances[:, i] < adversary["jsd"]).mean()),
            "harm": adversary["tvd"],
            "gold": int(test.gold[i]),
            "adversary_predicted": adversary["adversary_predicted"],
        }
        for i, adversary in enumerate(lab.adversaries(name))
    ]


def curve(lab: DebateLab) -> Outcome:
    """One model trained to disagree: how far can attention go before predictions do?"""
    results = Results("curve", model=MAIN)
    models = Table()
    for name in lab.names:
        rows = _measured(lab, "curve", name, _curve_rows)
        models += rows
        results.dataset = rows[0]["dataset"]
        trained = rows.where(kind="adversary, one model")
        strengths = list(trained.by("λ", ordered=True))
        moves = [group.average("TVD") for _, group in strengths]
        distances = [group.average("JSD") for _, group in strengths]
        at = read_off(np.array([0.0, *moves]), np.array([0.0, *distances]))
        between = float(np.median(rows.where(kind="another seed").column("JSD")))
        bound = f"A lower bound: no adversary moved predictions by more than {max(moves):.3f}."
        metric = "JSD of a consistent adversary where mean TVD is .05"
        results.add(metric, at, note="" if max(moves) > NEAR else bound)
        results.add("… ÷ median JSD between seeds", at / between, note=_reading(at / between))
        for (strength, group), moved, distance in zip(strengths, moves, distances, strict=True):
            note = f"mean TVD {moved:.3f}; F1 lost {group.average('F1 lost'):.3f}"
            metric = f"JSD of the adversary, λ = {strength:.2g}"
            results.add(metric, distance, n=len(group), note=note)
    return Outcome(results, [figure("curve", models, panel=lab.panel)], {"models": models})


def read_off(
    moved: Float[np.ndarray, "point"],
    away: Float[np.ndarray, "point"],
    instead: Float[np.ndarray, "point"] | None = None,
) -> float:
    """The largest distance in attention up to where predictions move by 0.05.

    The curve is interpolated linearly between the best point before 0.05 and the next one after it.
    With `instead`, the values are read from that curve, at the same position.
    """
    values = away if instead is None else instead
    inside = np.flatnonzero(moved <= NEAR)
    best = inside[away[inside].argmax()]
    behind = [i for i in np.flatnonzero(moved > NEAR) if away[i] > away[best]]
    if not behind:
        return float(values[best])
    next_ = min(behind, key=lambda i: moved[i])
    share = (NEAR - moved[best]) / (moved[next_] - moved[best])
    return float(values[best] + share * (values[next_] - values[best]))


def _reading(ratio: float) -> str:
    if ratio <= 1:
        return "No farther than training from other seeds moves it: attention is not arbitrary."
    if ratio < 2:
        return "Farther than other seeds, but less than twice as far: attention is not arbitrary."
    return (
        "Much farther than other seeds: even one model for all documents can use different"
        " attention."
    )


def _curve_rows(lab: DebateLab, name: str) -> list[Row]:
    corpus, retraining = lab.corpus(name), lab.retraining(name)
    base, documents = retraining.model, corpus.test.documents
    predictions, attention = base.probabilities(base(documents)), attention_of(base, documents)
    f1 = _f1(base, corpus)

    def row(kind: str, model: Any, strength: float | None, seed: int) -> Row:
        pairs = zip(attention, attention_of(model, documents), strict=True)
        return {
            "kind": kind,
            "λ": strength,
            "seed": seed,
            "TVD": float(np.mean(tvd(model.probabilities(model(documents)), predictions))),
            "JSD": float(np.mean([jsd(a, b) for a, b in pairs])),
            "F1 lost": f1 - _f1(model, corpus),
        }

    epochs, runs = lab.pick(3, 20), lab.pick(1, 3 if name != "imdb" else 1)
    rows = []
    for strength, seed in product(_strengths(lab, name), range(runs)):
        adversary = retraining.adversary(strength, seed, epochs)
        rows.append(row("adversary, one model", adversary, strength, seed))
    for seed in range(1, _seeds(lab, name) + 1):
        rows.append(row("another seed", retraining.again(seed), None, seed))
    rows.append(row("uniform attention", retraining.again(1, uniform=True), None, 1))
    single = lab.adversaries(name)
    golden = Table(r | {"gold": int(g)} for g, r in zip(corpus.test.gold, single, strict=True))
    rows.append(
        {
            "kind": "adversary, document by document",
            "λ": None,
            "seed": 0,
            "TVD": float(np.mean([r["tvd"] or 0.0 for r in single])),
            "JSD": single.average("jsd"),
            "F1 lost": _f1_lost(golden, len(corpus.classes)),
        }
    )
    return rows


def guides(lab: DebateLab) -> Outcome:
    """Do weights help a network that sees every token by itself?"""
    results = Results("guides", model="per-token network")
    published = texts("published")["wiegreffe-pinter-2019"]["guides"]
    networks = Table()
    dots: list[Row] = []
    for name in lab.names:
        rows = _measured(lab, "guides", name, _guide_rows)
        networks += rows
        results.dataset = rows[0]["dataset"]
        for weights, group in rows.by("weights"):
            theirs = published.get(weights) if results.dataset == "sst" else None
            mean = group.mean("F1")
            results.add(f"F1, weights: {weights}", mean, published=theirs)
            dots.append(mean.row("F1", weights=weights, dataset=results.dataset))
    return Outcome(results, [figure("guides", dots, panel=lab.panel)], {"seeds": networks})


def _guide_rows(lab: DebateLab, name: str) -> list[Row]:
    from heed.training.again import guide_by, guide_random, guide_uniform

    corpus, retraining = lab.corpus(name), lab.retraining(name)
    adversary = retraining.adversary(GUIDE_STRENGTH, 0, lab.pick(3, 20))
    by_name: dict[str, Guide | None] = {
        "uniform": guide_uniform,
        "its own": None,
        "base model": guide_by(retraining.model),
        "adversary": guide_by(adversary),
        "random": guide_random,
    }
    rows: list[Row] = []
    for (weights, guide), seed in product(by_name.items(), range(lab.pick(1, 3))):
        predicted = retraining.guided(weights, guide, seed).predicted(corpus.test.documents)
        f1 = f1_of(predicted, corpus.test.gold, len(corpus.classes))
        rows.append({"weights": weights, "seed": seed, "F1": f1})
    return rows
