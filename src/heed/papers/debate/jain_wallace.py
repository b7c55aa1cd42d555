"""Jain and Wallace (2019), "Attention is not Explanation": its three experiments on its four models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np

from heed.claims import Study
from heed.claims.determined import Exclusive
from heed.claims.informative import f1_of
from heed.claims.needed import Used
from heed.methods import AttentionMean, GradientInput, Occlusion
from heed.methods.comparison import aligned
from heed.metrics import auc
from heed.papers.debate import published
from heed.papers.debate.lab import MODELS, Corpus, DebateLab, called
from heed.papers.results import Figure, Outcome, Result, Row, mean_by_document, mean_of

BINS = ("0 to .25", ".25 to .5", ".5 to .75", ".75 to 1")
_SHARE = "Share of documents in which the correlation is significant by itself."
_NEAR_F1, _NEAR = 0.03, 0.08  # F1 and other figures within this of the published ones need no word


def accuracy(lab: DebateLab) -> Outcome:
    """F1 and AUC on the test sets."""
    results: list[Result] = []
    rows: list[Row] = []
    for name in lab.names:
        corpus = lab.corpus(name)
        for encoder, attention in MODELS:
            own: list[Row] = [
                {"dataset": corpus.name, "model": called(encoder, attention), "seed": seed} | row
                for seed in lab.seeds(name, encoder, attention)
                for row in lab.measured(
                    "accuracy",
                    name,
                    partial(_accuracy, lab, name, encoder, attention, seed),
                    encoder=encoder,
                    attention=attention,
                    training=seed,
                )
            ]
            rows += own
            main = (encoder, attention) == MODELS[0]
            for metric, table in (("F1", published.F1), ("AUC", published.AUC)):
                theirs = table.get(corpus.name) if main else None
                values = [row[metric] for row in own]
                mean = float(np.mean(values))
                note = _difference(mean, theirs, _NEAR_F1 if metric == "F1" else _NEAR)
                if main and metric == "F1":
                    note = f"{note} {_set_up(lab, corpus)}".strip()
                results.append(
                    Result(
                        "accuracy",
                        corpus.name,
                        called(encoder, attention),
                        metric,
                        mean,
                        n=len(corpus.test),
                        published=theirs,
                        note=_over_seeds(values, note),
                    )
                )
    bars: list[Row] = [
        {"dataset": r.dataset, "model": r.model, "F1": r.ours} for r in results if r.metric == "F1"
    ]
    figure = Figure(
        "f1", "F1 on the test sets", "bars", bars, x="model", y="F1", panel="dataset" if len(lab.names) > 1 else "",
        caption="Means over training seeds, where there are several.",
    )  # fmt: skip
    return Outcome(results, [figure], {"models": rows})


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


def _over_seeds(values: Sequence[float], note: str) -> str:
    """The note, behind how far the values of several training seeds lie apart."""
    if len(values) < 2:
        return note
    return f"{len(values)} training seeds: {min(values):.3f} to {max(values):.3f}. {note}".strip()


def _set_up(lab: DebateLab, corpus: Corpus) -> str:
    """What differs from the paper in all that is measured."""
    if lab.scale == "smoke":
        return f"A small model, trained shortly on {len(corpus.train):,} documents: a smoke test, not a reproduction."
    start = "from GloVe's vectors of 50 numbers" if lab.pretrained else "at random"
    part = f" There are {len(corpus.train):,} training documents, a part of the paper's."
    return f"Embeddings start {start}, the paper's from fastText's of 300.{part if corpus.name == 'ag_news' else ''}"


def correlations(lab: DebateLab) -> Outcome:
    """Kendall's τ of attention with gradients (attention held fixed) and with leave-one-out."""
    results: list[Result] = []
    every: list[Row] = []
    for name in lab.names:
        corpus = lab.corpus(name)
        for encoder, attention in MODELS:
            rows = [
                row | {"seed": seed}
                for seed in lab.seeds(name, encoder, attention)
                for row in lab.measured(
                    "correlations",
                    name,
                    partial(_correlations, lab, name, encoder, attention, seed),
                    encoder=encoder,
                    attention=attention,
                    training=seed,
                )
            ]
            model = called(encoder, attention)
            every += [{"dataset": corpus.name, "model": model} | row for row in rows]
            results += _taus(rows, corpus, model, main=(encoder, attention) == MODELS[0])
    shown = [
        {"dataset": r["dataset"], "model": r["model"], "τ": r[key], "with": what}
        for r in every
        for key, what in (("gradient", "gradients"), ("removal", "leave-one-out"))
        if np.isfinite(r[key])
    ]
    figure = Figure(
        "tau",
        "Kendall's τ of attention with gradients and with leave-one-out, over documents",
        "violins",
        shown,
        x="model",
        y="τ",
        colour="with",
        panel="dataset" if len(lab.names) > 1 else "",
        caption="The line is the median.",
    )
    return Outcome(results, [figure], {"documents": every})


def _correlations(lab: DebateLab, name: str, encoder: str, attention: str, seed: int) -> list[Row]:
    from scipy import stats

    corpus, model = lab.corpus(name), lab.base(name, encoder, attention, seed=seed)
    documents = corpus.test.documents[: lab.pick(40, 500 if name == "imdb" else 10**9)]
    study = Study(model, documents, seed=lab.seed)
    weights = study.explain(AttentionMean())
    gradients = study.explain(GradientInput(output="probability", attention="fixed"))
    removals = study.explain(Occlusion(output="probability", removal="delete"))
    rows: list[Row] = []
    for i, explanations in enumerate(zip(weights, gradients, removals, strict=True)):
        a, g, r = (np.abs(scores) for scores in aligned(explanations))
        if len(a) < 2:
            continue
        taus = {"gradient": (a, g), "removal": (a, r), "gradient_removal": (g, r)}
        found = {key: stats.kendalltau(*pair) for key, pair in taus.items()}
        row: Row = {"document": i, "predicted": model.label(explanations[0].label), "words": len(a)}
        row |= {key: float(t.statistic) for key, t in found.items()}
        rows.append(row | {f"{key}_p": float(t.pvalue) for key, t in found.items()})
    return rows


def _taus(rows: Sequence[Row], corpus: Corpus, model: str, main: bool) -> list[Result]:
    """Means with their intervals, by predicted class for the main model, and how often they are significant."""
    results: list[Result] = []
    names = {"gradient": "τ(attention, gradient)", "removal": "τ(attention, leave-one-out)"}
    for k, (key, metric) in enumerate(names.items()):
        if main:
            table = published.TAU_GRADIENT if key == "gradient" else published.TAU_REMOVAL
            for c, label in enumerate(corpus.classes):
                part = [r for r in rows if r["predicted"] == c]
                theirs = table[corpus.name][c] if corpus.name in table else None
                results += _tau(
                    part, key, f"{metric}, predicted {label}", corpus.name, model, theirs
                )
        else:
            both = published.TAU_OTHERS.get(model, {}).get(corpus.name)
            results += _tau(rows, key, metric, corpus.name, model, both[k] if both else None)
    yardstick = published.TAU_YARDSTICK.get(corpus.name) if main else None
    metric = "τ(gradient, leave-one-out), the yardstick"
    return [*results, *_tau(rows, "gradient_removal", metric, corpus.name, model, yardstick)]


def _tau(
    rows: Sequence[Row], key: str, metric: str, dataset: str, model: str, theirs: float | None
) -> list[Result]:
    mean = mean_by_document(rows, key)
    note = _difference(mean["ours"], theirs) if rows else "No document was predicted so."
    by_seed = [
        float(np.nanmean([r[key] for r in rows if r["seed"] == s]))
        for s in sorted({r["seed"] for r in rows})
    ]
    note = _over_seeds(by_seed, note)
    significant = [{"document": r["document"], "p": float(r[f"{key}_p"] <= 0.05)} for r in rows]
    return [
        Result("correlations", dataset, model, metric, published=theirs, note=note, **mean),
        Result(
            "correlations",
            dataset,
            model,
            f"{metric}: p ≤ .05",
            note=_SHARE if rows else note,
            **mean_by_document(significant, "p"),
        ),
    ]


def permutation(lab: DebateLab) -> Outcome:
    """The median change of the output over 100 permutations of attention, by the largest weight."""
    results: list[Result] = []
    every: list[Row] = []
    for name in lab.names:
        corpus = lab.corpus(name)
        test = Used(permutations=lab.pick(50, 100))
        rows = lab.measured(
            "permutation", name, partial(_measured, lab, name, test), **asdict(test)
        )
        every += [
            {"dataset": corpus.name, "class": corpus.classes[r["predicted"]]} | r for r in rows
        ]
        for c, label in enumerate(corpus.classes):
            for k, place in enumerate(BINS):
                part = [
                    r["value"]
                    for r in rows
                    if r["predicted"] == c and bin_of(r["max_attention"]) == k
                ]
                theirs = (
                    published.PERMUTATION[corpus.name][k]
                    if c == 0 and corpus.name in published.PERMUTATION
                    else None
                )
                middle = float(np.median(part)) if part else None
                metric = f"median change of the output, predicted {label}, largest weight {place}"
                note = (
                    _difference(middle, theirs)
                    if part
                    else "No document has its largest weight there."
                )
                results.append(
                    Result(
                        "permutation",
                        corpus.name,
                        "BiLSTM + additive",
                        metric,
                        middle,
                        n=len(part),
                        published=theirs,
                        note=note,
                    )
                )
    shown = [
        {"largest weight": BINS[bin_of(r["max_attention"])], "change of the output": r["value"]}
        | {"predicted": r["class"], "dataset": r["dataset"]}
        for r in sorted(every, key=lambda r: bin_of(r["max_attention"]))
    ]
    figure = Figure(
        "permutation",
        "How far shuffled attention moves the output",
        "boxes",
        shown,
        x="largest weight",
        y="change of the output",
        colour="predicted" if len(lab.names) == 1 else "",
        panel="dataset" if len(lab.names) > 1 else "",
    )
    return Outcome(results, [figure], {"documents": every})


def bin_of(largest: float) -> int:
    return min(3, int(4 * largest))


def _measured(lab: DebateLab, name: str, test: Used | Exclusive) -> list[Row]:
    documents = lab.corpus(name).test.documents
    return test.measure(Study(lab.base(name), documents, seed=lab.seed))


def adversarial(lab: DebateLab) -> Outcome:
    """The farthest attention that leaves the output within .05, document by document."""
    results: list[Result] = []
    every: list[Row] = []
    for name in lab.names:
        corpus = lab.corpus(name)
        rows = adversaries(lab, name)
        every += [
            {"dataset": corpus.name, "class": corpus.classes[r["predicted"]]} | r for r in rows
        ]
        for c, label in enumerate(corpus.classes):
            part = [r["jsd"] for r in rows if r["predicted"] == c]
            theirs = (
                published.ADVERSARY[corpus.name][c] if corpus.name in published.ADVERSARY else None
            )
            metric = f"ε-max JSD, predicted {label}"
            mean = mean_of(part)
            note = _difference(mean["ours"], theirs)
            results.append(
                Result(
                    "adversarial",
                    corpus.name,
                    "BiLSTM + additive",
                    metric,
                    published=theirs,
                    note=note,
                    **mean,
                )
            )
    results[0] = replace(
        results[0], note=f"The largest possible value is ln 2 = 0.693. {results[0].note}".strip()
    )
    shown = [
        {
            "data and prediction": f"{r['dataset']}: {r['class']}",
            "ε-max JSD": r["jsd"],
            "largest weight": place,
        }
        for r in every
        for place in ("up to .25" if r["max_attention"] <= 0.25 else "above .25",)
    ]
    figure = Figure(
        "adversarial",
        "Distance of the farthest attention with the same output",
        "violins",
        shown,
        x="data and prediction",
        y="ε-max JSD",
        colour="largest weight",
        caption="The line is the median. ln 2 = 0.693 is the largest possible distance.",
    )
    return Outcome(results, [figure], {"documents": every})


def adversaries(lab: DebateLab, name: str, limit: int | None = None) -> list[Row]:
    """Rows of the per-document adversary on the BiLSTM with additive attention."""
    test = Exclusive(steps=lab.pick(100, 500))

    def measure() -> list[Row]:
        documents = lab.corpus(name, limit).test.documents
        return test.measure(Study(lab.base(name, limit=limit), documents, seed=lab.seed))

    return lab.measured("adversarial", name, measure, limit, **asdict(test))
