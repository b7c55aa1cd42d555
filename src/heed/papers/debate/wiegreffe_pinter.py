"""Wiegreffe and Pinter (2019), "Attention is not not Explanation": its four tests of the claims of the other paper."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from heed.claims.determined import NEAR, STRENGTHS, STRONGER, attention_of, read_off, seed_distances
from heed.claims.informative import f1_of
from heed.metrics import jsd, tvd
from heed.papers.debate import published
from heed.papers.debate.jain_wallace import BINS, adversaries, bin_of
from heed.papers.debate.lab import Corpus, DebateLab
from heed.papers.results import Figure, Outcome, Result, Row, mean_of

if TYPE_CHECKING:  # which loads torch
    from heed.models.recurrent import Recurrent
    from heed.training.examples import Guide

MODEL = "BiLSTM + additive"
GUIDE_STRENGTH = 5e-2  # of the adversary whose attention is a guide: at the paper's .001 ours attends as the base does


def _limit(lab: DebateLab, name: str) -> int | None:
    """Long reviews are trained on in part: many models are trained here."""
    return 5000 if name == "imdb" and lab.scale == "full" else None


def _seeds(lab: DebateLab, name: str) -> int:
    return lab.pick(2, 3 if name == "imdb" else 8)


def _strengths(lab: DebateLab, name: str) -> tuple[float, ...]:
    return (
        (5e-4, 5e-3, 5e-2)
        if name == "imdb" or lab.scale == "smoke"
        else (*STRENGTHS, *STRONGER[:2])
    )


def _cut(lab: DebateLab, name: str) -> str:
    """What was left out to keep the time within bounds."""
    limit = _limit(lab, name)
    return (
        f"Trained on {limit:,} reviews, {_seeds(lab, name)} seeds, one run of each adversary."
        if limit
        else ""
    )


def _f1(model: Recurrent, corpus: Corpus) -> float:
    return f1_of(model(corpus.test.documents).argmax(1), corpus.test.gold, len(corpus.classes))


def uniform(lab: DebateLab) -> Outcome:
    """Trained with attention and with all words weighed alike."""
    results: list[Result] = []
    every: list[Row] = []
    for name in lab.names:
        limit = _limit(lab, name)
        corpus = lab.corpus(name, limit)
        rows = lab.measured("uniform", name, partial(_uniform, lab, name), _limit(lab, name))
        every += [{"dataset": corpus.name} | row for row in rows]
        for kind in ("trained", "uniform"):
            values = [r["F1"] for r in rows if r["attention"] == kind]
            results.append(
                Result(
                    "uniform",
                    corpus.name,
                    MODEL,
                    f"F1, {kind} attention, mean of seeds",
                    **mean_of(values),
                )
            )
        lost = [a["F1"] - b["F1"] for a, b in zip(rows[::2], rows[1::2], strict=True)]
        note = "Attention hardly matters for this task, so that it says little for or against attention."
        found = mean_of(lost)
        small = found["ours"] is not None and found["ours"] < 0.01
        results.append(
            Result("uniform", corpus.name, MODEL, "F1 lost", note=note if small else "", **found)
        )
    shown = [
        {
            "attention": r.metric.split(", ")[1],
            "F1": r.ours,
            "low": r.low,
            "high": r.high,
            "dataset": r.dataset,
        }
        for r in results
        if r.metric.startswith("F1, ")
    ]
    figure = Figure(
        "uniform", "F1 of models with and without attention, mean over training seeds", "dots", shown,
        x="F1", y="attention", panel="dataset" if len(lab.names) > 1 else "",
    )  # fmt: skip
    return Outcome(results, [figure], {"seeds": every})


def _uniform(lab: DebateLab, name: str) -> list[Row]:
    corpus, again = lab.corpus(name, _limit(lab, name)), lab.retraining(name, _limit(lab, name))
    return [
        {"seed": seed, "attention": kind, "F1": _f1(again.again(seed, kind == "uniform"), corpus)}  # type: ignore[arg-type]
        for seed in range(1, min(3, _seeds(lab, name)) + 1)
        for kind in ("trained", "uniform")
    ]


def seeds(lab: DebateLab) -> Outcome:
    """How far attention moves from one training to another, beside how far an adversary moves it."""
    results: list[Result] = []
    every: list[Row] = []
    for name in lab.names:
        corpus = lab.corpus(name, _limit(lab, name))
        rows = lab.measured("seeds", name, partial(_seed_rows, lab, name), _limit(lab, name))
        every += [
            {"dataset": corpus.name, "class": corpus.classes[r["predicted"]]} | r for r in rows
        ]
        count = _seeds(lab, name)
        shown = {
            "median": f"JSD to {count} other seeds, median",
            "maximum": f"JSD to {count} other seeds, maximum",
            "adversary": "ε-max JSD of the adversary per document",
            "percentile": "share of seeds that are nearer than the adversary",
            "harm": "TVD of the adversary's output",
        }
        for key, metric in shown.items():
            found = mean_of([np.nan if r[key] is None else r[key] for r in rows])
            most = key == "percentile" and np.median([r[key] for r in rows]) == 1
            note = (
                "For most documents no training comes as far as the adversary does."
                if most
                else _cut(lab, name)
            )
            results.append(Result("seeds", corpus.name, MODEL, metric, note=note, **found))
        lost = _f1_lost(rows, len(corpus.classes))
        results.append(
            Result(
                "seeds",
                corpus.name,
                MODEL,
                "F1 lost with the adversary's attention",
                lost,
                n=len(rows),
            )
        )
    data = [
        {"largest weight": BINS[bin_of(r["max_attention"])], "JSD": r[key], "between": what}
        | {"dataset and prediction": f"{r['dataset']}: {r['class']}"}
        for r in sorted(every, key=lambda r: r["max_attention"])
        for key, what in (
            ("median", "base and other seeds, median"),
            ("adversary", "base and adversary"),
        )
    ]
    figure = Figure(
        "seeds", "Distance of attention between trainings, and to the adversary", "violins", data,
        x="largest weight", y="JSD", colour="between", panel="dataset and prediction",
        caption="The line is the median over documents.",
    )  # fmt: skip
    return Outcome(results, [figure], {"documents": every})


def _f1_lost(rows: Sequence[Row], labels: int) -> float:
    """How much worse the predictions are, were the attention of each document that of its adversary."""
    gold, own, theirs = (
        np.array([r[key] for r in rows]) for key in ("gold", "predicted", "adversary_predicted")
    )
    return f1_of(own, gold, labels) - f1_of(theirs, gold, labels)


def _seed_rows(lab: DebateLab, name: str) -> list[Row]:
    limit = _limit(lab, name)
    documents, again = lab.corpus(name, limit).test.documents, lab.retraining(name, limit)
    own = attention_of(again.model, documents)
    distances = seed_distances(again, documents, own, _seeds(lab, name))
    adversary = adversaries(lab, name, limit)
    predicted, gold = again.model(documents).argmax(1), lab.corpus(name, limit).test.gold
    return [
        {
            "document": i,
            "predicted": int(predicted[i]),
            "max_attention": float(own[i].max()),
            "median": float(np.median(distances[:, i])),
            "maximum": float(distances[:, i].max()),
            "adversary": adversary[i]["jsd"],
            "percentile": float((distances[:, i] < adversary[i]["jsd"]).mean()),
            "harm": adversary[i]["tvd"],
            "gold": int(gold[i]),
            "adversary_predicted": adversary[i]["adversary_predicted"],
        }
        for i in range(len(documents))
    ]


def curve(lab: DebateLab) -> Outcome:
    """One model trained to disagree everywhere: how far can attention go before predictions do?"""
    results: list[Result] = []
    every: list[Row] = []
    for name in lab.names:
        corpus = lab.corpus(name, _limit(lab, name))
        rows = lab.measured("curve", name, partial(_curve_rows, lab, name), _limit(lab, name))
        every += [{"dataset": corpus.name} | row for row in rows]
        trained = [r for r in rows if r["kind"] == "adversary, one model"]
        strengths = sorted({r["λ"] for r in trained})
        means = [
            [float(np.mean([r[key] for r in trained if r["λ"] == s])) for s in strengths]
            for key in ("TVD", "JSD")
        ]
        at = read_off(np.array([0.0, *means[0]]), np.array([0.0, *means[1]]))
        between = float(np.median([r["JSD"] for r in rows if r["kind"] == "another seed"]))
        bound = (
            ""
            if max(means[0]) > NEAR
            else f"At least: no adversary moved predictions by more than {max(means[0]):.3f}."
        )
        results += [
            Result(
                "curve",
                corpus.name,
                MODEL,
                "JSD of a consistent adversary where mean TVD is .05",
                at,
                note=bound,
            ),
            Result(
                "curve",
                corpus.name,
                MODEL,
                "… ÷ median JSD between seeds",
                at / between,
                note=_reading(at / between),
            ),
        ]
        for s, away, moved in zip(strengths, means[1], means[0], strict=True):
            lost = [r["F1 lost"] for r in trained if r["λ"] == s]
            note = f"mean TVD {moved:.3f}; F1 lost {np.mean(lost):.3f}"
            results.append(
                Result(
                    "curve",
                    corpus.name,
                    MODEL,
                    f"JSD of the adversary, λ = {s:.2g}",
                    away,
                    n=len(lost),
                    note=note,
                )
            )
    figure = Figure(
        "curve", "What it costs to attend elsewhere", "points", every, x="TVD", y="JSD", colour="kind",
        panel="dataset" if len(lab.names) > 1 else "",
        caption="TVD: mean distance of predictions from the base model's. JSD: mean distance of attention.",
    )  # fmt: skip
    return Outcome(results, [figure], {"models": every})


def _reading(ratio: float) -> str:
    if ratio <= 1:
        return "No farther than trainings from other seeds come by themselves: attention is not arbitrary."
    if ratio < 2:
        return "Farther than other seeds, but less than twice as far: attention is not arbitrary."
    return "Far beyond what other seeds give: attention can be exchanged, even by one model for all documents."


def _curve_rows(lab: DebateLab, name: str) -> list[Row]:
    limit = _limit(lab, name)
    corpus, again = lab.corpus(name, limit), lab.retraining(name, limit)
    documents = corpus.test.documents
    base, own = (
        again.model.probabilities(again.model(documents)),
        attention_of(again.model, documents),
    )
    before = _f1(again.model, corpus)  # type: ignore[arg-type]

    def row(kind: str, model: Recurrent, strength: float | None, seed: int) -> Row:
        moved = float(np.mean(tvd(model.probabilities(model(documents)), base)))
        away = float(
            np.mean([jsd(a, b) for a, b in zip(own, attention_of(model, documents), strict=True)])
        )
        lost = before - _f1(model, corpus)
        return {
            "kind": kind,
            "λ": strength,
            "seed": seed,
            "TVD": moved,
            "JSD": away,
            "F1 lost": lost,
        }

    epochs, runs = lab.pick(3, 20), lab.pick(1, 3 if name != "imdb" else 1)
    rows = [
        row("adversary, one model", again.adversary(s, seed, epochs), s, seed)  # type: ignore[arg-type]
        for s in _strengths(lab, name)
        for seed in range(runs)
    ]
    rows += [row("another seed", again.again(s), None, s) for s in range(1, _seeds(lab, name) + 1)]  # type: ignore[arg-type]
    rows.append(row("uniform attention", again.again(1, uniform=True), None, 1))  # type: ignore[arg-type]
    single = adversaries(lab, name, limit)
    rows.append(
        {
            "kind": "adversary, document by document",
            "λ": None,
            "seed": 0,
            "TVD": float(np.mean([r["tvd"] or 0.0 for r in single])),
            "JSD": float(np.mean([r["jsd"] for r in single])),
            "F1 lost": _f1_lost(
                [
                    {
                        "gold": int(g),
                        "predicted": r["predicted"],
                        "adversary_predicted": r["adversary_predicted"],
                    }
                    for g, r in zip(corpus.test.gold, single, strict=True)
                ],
                len(corpus.classes),
            ),
        }
    )
    return rows


def guides(lab: DebateLab) -> Outcome:
    """Do weights help a network that sees every token by itself?"""
    results: list[Result] = []
    every: list[Row] = []
    for name in lab.names:
        corpus = lab.corpus(name, _limit(lab, name))
        rows = lab.measured("guides", name, partial(_guide_rows, lab, name), _limit(lab, name))
        every += [{"dataset": corpus.name} | row for row in rows]
        for weights in dict.fromkeys(r["weights"] for r in rows):
            values = [r["F1"] for r in rows if r["weights"] == weights]
            theirs = published.GUIDES.get(weights) if corpus.name == "sst" else None
            results.append(
                Result(
                    "guides", corpus.name, "per-token network", f"F1, weights: {weights}", published=theirs,
                    **mean_of(values),
                )
            )  # fmt: skip
    figure = Figure(
        "guides", "F1 of a network that sees each token by itself, by the weights that it is given", "dots",
        [
            {"weights": r.metric.removeprefix("F1, weights: "), "F1": r.ours, "low": r.low, "high": r.high}
            | {"dataset": r.dataset}
            for r in results
        ],
        x="F1", y="weights", panel="dataset" if len(lab.names) > 1 else "",
    )  # fmt: skip
    return Outcome(results, [figure], {"seeds": every})


def _guide_rows(lab: DebateLab, name: str) -> list[Row]:
    from heed.training import again as r

    limit = _limit(lab, name)
    corpus, again = lab.corpus(name, limit), lab.retraining(name, limit)
    test = corpus.test.documents
    made: dict[str, Guide | None] = {
        "uniform": r.guide_uniform,
        "its own": None,
        "base model": r.guide_by(again.model),
        "adversary": r.guide_by(again.adversary(GUIDE_STRENGTH, 0, lab.pick(3, 20))),
        "random": r.guide_random,
    }
    return [
        {
            "weights": weights,
            "seed": seed,
            "F1": f1_of(
                again.guided(weights, guide, seed).predicted(test),
                corpus.test.gold,
                len(corpus.classes),
            ),
        }
        for weights, guide in made.items()
        for seed in range(lab.pick(1, 3))
    ]
