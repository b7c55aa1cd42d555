"""Explanations beside each other and beside the model, over many documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from heed.algebra.limits import exact
from heed.claims.signatures import signature
from heed.methods import (
    Anchors,
    AttentionMax,
    AttentionMean,
    Explanation,
    GradientInput,
    GradientL1,
    GradientL2,
    GradientMean,
    Lime,
    LimeExact,
    Method,
    Occlusion,
    ShapleyExact,
)
from heed.methods.comparison import agreement, aligned
from heed.methods.method import units_of
from heed.methods.perturbation import uniform_subsets
from heed.metrics import kendall, spearman
from heed.papers.lab import Lab
from heed.papers.lopardo.theorems import form, predicted
from heed.papers.results import Figure, Outcome, Result, Row, mean_of
from heed.progress import bar
from heed.randomness import generator

if TYPE_CHECKING:  # which load torch
    from heed.models.classifier import Classifier
    from heed.models.single_layer import SingleLayer
    from heed.text import Document, Tokens

SENTENCE = "attention based explanations are popular but questionable"


def seven(samples: int) -> tuple[Method, ...]:
    """The methods that the paper puts side by side."""
    gradients = (GradientMean(), GradientL1(), GradientL2(), GradientInput())
    return (AttentionMean(), AttentionMax(), *gradients, Lime(samples=samples))


def side_by_side(lab: Lab) -> Outcome:
    """The paper's sentence by its seven methods, and by the exact ones."""
    model = lab.main
    label = model.labels.index("positive") if "positive" in model.labels else len(model.labels) - 1
    methods = (*seven(lab.pick(1000, 5000)), LimeExact(), ShapleyExact())
    found = [m.explain(model, [SENTENCE], label, seed=lab.seed)[0] for m in methods]
    by_method = {
        e.method: {u.text: s for u, s in zip(e.units, e.scores, strict=True)} for e in found
    }
    published = {
        ("attention-max", "questionable"): 0.32,
        ("lime", "questionable"): -1.01,
        ("gradient-input", "questionable"): -3.33,
        ("attention-max", "popular"): 0.72,
        ("lime", "popular"): 0.24,
    }
    common: dict[str, Any] = {
        "experiment": "side-by-side",
        "dataset": "one sentence",
        "model": lab.name,
        "n": 1,
    }
    logits = model([SENTENCE])[0]
    results = [
        Result(metric=f"logit of {name}", ours=float(value), published=p, **common)
        for name, value, p in zip(model.labels, logits, (-0.64, 0.58), strict=False)
    ]
    for (method, word), value in published.items():
        results.append(
            Result(
                metric=f"{method} of “{word}”",
                ours=float(by_method[method][word]),
                published=value,
                **common,
            )
        )
    lime, attention = by_method["lime-exact"], by_method["attention-max"]
    unsigned = [
        w for w in lime if lime[w] < 0 and attention[w] >= np.median(list(attention.values()))
    ]
    results.append(
        Result(
            metric="words of at least median attention with a negative exact LIME score",
            ours=float(len(unsigned)),
            published="“questionable” is one",
            note=f"Attention cannot say that a word speaks against the label; here {_list(unsigned)}."
            " The authors' weights are lost: their pattern can be reproduced, not their numbers.",
            **common,
        )
    )
    heat = [
        {
            "method": e.method,
            "word": f"{i + 1} {u.text}",
            "score": float(s / (np.abs(e.scores).max() or 1.0)),
        }
        for e in found
        for i, (u, s) in enumerate(zip(e.units, e.scores, strict=True))
    ]
    figure = Figure(
        "scores",
        "Seven explanations of one sentence, and two exact ones",
        "heat",
        heat,
        "word",
        "method",
        value="score",
        caption=f"Scores relative to the largest of their method, for the label {model.labels[label]}.",
    )
    return Outcome(results, [figure], explanations=[e.to_dict() for e in found])


def _list(words: Sequence[str]) -> str:
    return ", ".join(f"“{w}”" for w in words) if words else "none does"


def correlations(lab: Lab) -> Outcome:
    """Kendall's τ between every two methods: per document, then the mean over documents."""
    data = lab.documents(lab.pick(40, 1000))
    methods = (*seven(lab.pick(1000, 2000)), LimeExact(), ShapleyExact(), Occlusion())
    rows: list[Row] = []
    names = [m.name for m in methods]
    for model in _models(lab):
        explanations = [m.explain(model, data.documents, seed=lab.seed) for m in methods]
        for i, group in enumerate(zip(*explanations, strict=True)):
            tau = agreement(group)
            rows += [
                {
                    "model": model.name,
                    "document": i,
                    "one": names[a],
                    "other": names[b],
                    "tau": float(tau[a, b]),
                }
                for a in range(len(names))
                for b in range(a)
            ]
    results, heat = [], []
    examined = sorted({r["model"] for r in rows})
    for a, one in enumerate(names):
        for other in names[:a]:
            own = [r for r in rows if r["one"] == one and r["other"] == other]
            means = [mean_of([r["tau"] for r in own if r["model"] == m]) for m in examined]
            for model_name, stats in zip(examined, means, strict=True):
                metric = f"Kendall τ, {one} and {other}, mean over documents"
                results.append(Result("correlations", data.name, model_name, metric, **stats))
            value = float(np.mean([m["ours"] for m in means if m["ours"] is not None] or [np.nan]))
            heat += [
                {"one": one, "other": other, "tau": value},
                {"one": other, "other": one, "tau": value},
            ]
    heat += [{"one": n, "other": n, "tau": 1.0} for n in names]
    figure = Figure(
        "matrix",
        "Agreement of methods",
        "heat",
        heat,
        "one",
        "other",
        value="tau",
        caption=f"Mean Kendall τ over {len(data):,} documents and {len(examined)} model(s). Where one of two methods"
        " has no sign, absolute scores are compared.",
    )
    return Outcome(results, [figure], {"pairs": rows})


def _models(lab: Lab) -> list[SingleLayer]:
    """The model that is examined, and where it is the paper's, two more training seeds of it."""
    if lab.scale == "smoke" or lab.model is not None:
        return [lab.main]
    return [lab.paper(seed) for seed in range(3)]


def against_the_model(lab: Lab) -> Outcome:
    """Which explanation follows the prediction: sums of scores over documents, and single scores within documents.

    Within documents the units of all methods are distinct words, and a word is removed at all its places.
    """
    data = lab.documents(lab.pick(60, 1000))
    methods = (*seven(lab.pick(1000, 2000)), LimeExact(), ShapleyExact())
    rows: list[Row] = []
    for model in _models(lab):
        label = len(model.labels) - 1
        tokens = model.tokens(data.documents)
        logits = model.logits(tokens)[:, label]
        forms = [form(model, t, label) for t in tokens]
        changes = [f.whole() - f(~np.eye(f.units, dtype=bool)) for f in forms]
        units = LimeExact().explain(model, data.documents, label)
        for method in methods:
            explanations = method.explain(model, data.documents, label, seed=lab.seed)
            for i, (e, change) in enumerate(zip(explanations, changes, strict=True)):
                score = aligned([e, units[i]])[0]
                rows.append(
                    {
                        "model": model.name,
                        "method": method.name,
                        "document": i,
                        "sum": float(e.scores.sum()),
                        "output": float(logits[i]),
                        "within": spearman(score, change),
                        "within_absolute": spearman(np.abs(score), np.abs(change)),
                    }
                )
    return Outcome(*_against_summary(rows, data.name), rows={"documents": rows})


_WITHIN = {
    "within": "Spearman within documents: score and change on removal",
    "within_absolute": "the same of absolute values",
}


def _against_summary(rows: Sequence[Row], dataset: str) -> tuple[list[Result], list[Figure]]:
    results: list[Result] = []
    dots: list[Row] = []
    names = list(dict.fromkeys(r["method"] for r in rows))
    for model in sorted({r["model"] for r in rows}):
        by = {n: [r for r in rows if r["model"] == model and r["method"] == n] for n in names}
        for name in names:
            over = _bootstrap_spearman(
                [r["sum"] for r in by[name]], [r["output"] for r in by[name]]
            )
            stats = {"Spearman over documents: sum of scores and output": over} | {
                metric: mean_of([r[key] for r in by[name]]) for key, metric in _WITHIN.items()
            }
            for metric, found in stats.items():
                results.append(
                    Result("against-the-model", dataset, model, f"{metric}, {name}", **found)
                )
                dot = {
                    "method": name,
                    "value": found["ours"],
                    "low": found["low"],
                    "high": found["high"],
                }
                dots.append(dot | {"panel": metric, "model": model})
        results += _paired(by, dataset, model)
    title = "Which explanation follows the prediction?"
    return results, [
        Figure("follow", title, "dots", dots, "value", "method", colour="model", panel="panel")
    ]


def _paired(by: Mapping[str, Sequence[Row]], dataset: str, model: str) -> list[Result]:
    """Gradient × input less attention, document by document, with signs and without."""
    results = []
    for key in _WITHIN:
        pairs = zip(by["gradient-input"], by["attention-mean"], strict=True)
        found = mean_of([g[key] - a[key] for g, a in pairs])
        low, high = found["low"] or 0.0, found["high"] or 0.0
        verdict = "better" if low > 0 else "worse" if high < 0 else "neither better nor worse"
        how = "with signs" if key == "within" else "without signs"
        results.append(
            Result(
                "against-the-model",
                dataset,
                model,
                f"within documents: gradient × input less attention, paired, {how}",
                published="gradients follow it better",
                note=f"Gradients follow the prediction {verdict} than attention {how}.",
                **found,
            )
        )
    return results


def _bootstrap_spearman(
    x: Sequence[float], y: Sequence[float], resamples: int = 500
) -> dict[str, Any]:
    """Spearman over documents with a percentile interval over resampled documents."""
    a, b = np.array(x), np.array(y)
    rng = np.random.default_rng(0)
    drawn = [spearman(a[i], b[i]) for i in rng.integers(0, len(a), (resamples, len(a)))]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return {"ours": spearman(a, b), "low": float(low), "high": float(high), "n": len(a)}


def signs(lab: Lab) -> Outcome:
    """How much of what attention points to speaks against the label."""
    model, data = lab.main, lab.documents(lab.pick(60, 2000))
    attention = AttentionMean().explain(model, data.documents)
    rows: list[Row] = []
    for method in (LimeExact(), ShapleyExact()):
        exactly = method.explain(model, data.documents)
        for i, pair in enumerate(zip(attention, exactly, strict=True)):
            points, score = aligned(pair)
            if len(points) < 10 or not score.any():
                continue
            top = np.argsort(-points, kind="stable")[: max(3, round(len(points) / 10))]
            rows.append(
                {
                    "document": i,
                    "method": method.name,
                    "top_negative": float((score[top] < -1e-9 * np.abs(score).max()).mean()),
                    "negative": float(-score[score < 0].sum() / np.abs(score).sum()),
                }
            )
    results = []
    for name in ("lime-exact", "shapley-exact"):
        own = [r for r in rows if r["method"] == name]
        for key, metric in (
            ("top_negative", "share of the top tenth of attention with a negative score"),
            ("negative", "share of the absolute contribution that is negative"),
        ):
            stats = mean_of([r[key] for r in own])
            note = ""
            if key == "top_negative" and stats["ours"] is not None:
                note = f"{stats['ours']:.0%} of the words that attention points to speak against the label."
            results.append(
                Result(
                    "signs",
                    data.name,
                    lab.name,
                    f"{metric}, {name}",
                    published="attention cannot show them",
                    note=note,
                    **stats,
                )
            )
    histogram = [{"share": r["top_negative"], "method": r["method"]} for r in rows]
    figure = Figure(
        "shares",
        "Top attention words that speak against the label",
        "boxes",
        histogram,
        "method",
        "share",
    )
    return Outcome(results, [figure], {"documents": rows})


def signatures(lab: Lab) -> Outcome:
    """Why attention and other explanations part: the last layer, values like <unk>, and heads that disagree."""
    data = lab.documents(lab.pick(40, 1000))
    rows: list[Row] = []
    for model in _models(lab):
        tokens, labels = predicted(model, data.documents)
        every = list(zip(tokens, labels.tolist(), strict=True))
        for i, (t, label) in enumerate(bar(every, "signatures")):
            found = signature(model, t, label)
            if len(found.units) < 10:
                continue
            rows.append(
                {
                    "model": model.name,
                    "document": i,
                    "tau": found.tau,
                    "against": found.against,
                    "spread": found.spread,
                    "like_unk": len(found.like_unk),
                    "heads": found.heads,
                    "final_layer": found.final_layer_distorts,
                    "heads_disagree": found.heads_disagree,
                }
            )
    results = []
    for model_name in sorted({r["model"] for r in rows}):
        own = [r for r in rows if r["model"] == model_name]
        common = ("signatures", data.name, model_name)
        low = [r for r in own if r["tau"] < 0.3]
        results += [
            Result(
                *common,
                "τ(attention, gradient × input), mean over documents",
                **mean_of([r["tau"] for r in own]),
            ),
            Result(
                *common,
                "(a) share of documents that carry the signature of the last layer",
                note=f"{len(low):,} of {len(own):,} documents have τ below 0.3.",
                **mean_of([float(r["final_layer"]) for r in own]),
            ),
            Result(
                *common,
                "(a) Spearman of τ with the share of attention on values against the label",
                ours=spearman(
                    np.array([r["tau"] for r in own]), np.array([r["against"] for r in own])
                ),
                n=len(own),
            ),
            Result(
                *common,
                "(a) Spearman of τ with the spread of log |w|",
                ours=spearman(
                    np.array([r["tau"] for r in own]), np.array([r["spread"] for r in own])
                ),
                n=len(own),
            ),
            Result(
                *common,
                "(b) share of documents with a top attention word like <unk>",
                **mean_of([float(r["like_unk"] > 0) for r in own]),
            ),
            Result(
                *common,
                "(c) mean τ between the gradients of two heads",
                **mean_of([r["heads"] for r in own]),
            ),
            Result(
                *common,
                "(c) share of documents whose heads disagree (τ below 0.3)",
                **mean_of([float(r["heads_disagree"]) for r in own]),
            ),
        ]
    points = [
        {"share against the label": r["against"], "τ": r["tau"], "model": r["model"]} for r in rows
    ]
    figure = Figure(
        "last-layer",
        "Attention and gradient part where values have both signs",
        "points",
        points,
        "share against the label",
        "τ",
        colour="model",
        caption="Each point is a document: the share of attention on words whose value speaks against the label, and"
        " Kendall's τ between attention and gradient × input.",
    )
    return Outcome(results, [figure], {"documents": rows})


def when(lab: Lab) -> Outcome:
    """What makes attention agree with exact LIME: a regression over documents and models."""
    data = lab.documents(lab.pick(60, 1000))
    features = ("against", "spread", "peaked", "distinct", "gap")
    rows: list[Row] = []
    for model in _models(lab):
        tokens, labels = predicted(model, data.documents)
        uniform = _uniform(model, tokens)
        whole = model.logits(tokens)
        for i, (t, label) in enumerate(zip(tokens, labels.tolist(), strict=True)):
            f = form(model, t, label)
            if f.units < 10:
                continue
            attention = np.maximum((f.a / (f.c + f.a.sum(1))[:, None]).mean(0), 1e-300)
            adds = (f.n / (f.c + f.a.sum(1))[:, None]).sum(0)
            w = adds / attention
            truth = exact(f).lime.coefficients
            p = attention / attention.sum()
            rows.append(
                {
                    "model": model.name,
                    "document": i,
                    "tau": kendall(attention, np.abs(truth)),
                    "against": float(attention[w < 0].sum() / attention.sum()),
                    "spread": float(np.log(np.abs(w) + 1e-12).std()),
                    "peaked": float(1 + (p * np.log(p)).sum() / np.log(f.units)),
                    "distinct": f.units / len(t.words),
                    "gap": float(abs(whole[i, label] - uniform[i, label])),
                    "orders": kendall(attention, np.abs(adds)),
                }
            )
    names = {
        "against": "sign balance of w (share of attention against the label)",
        "spread": "spread of log |w|",
        "peaked": "peakedness of attention (1 - relative entropy)",
        "distinct": "distinct share d/T",
        "gap": "change of the output under uniform attention",
    }
    effects, r2 = _regression(rows, features)
    examined = ", ".join(sorted({r["model"] for r in rows}))
    results = [
        Result(
            "when",
            data.name,
            examined,
            f"effect on τ(attention, |exact LIME|) of one standard deviation of: {names[key]}",
            **effects[key],
        )
        for key in features
    ]
    results.append(
        Result(
            "when",
            data.name,
            examined,
            "R² of that regression",
            ours=r2,
            n=len(rows),
            note="Over documents and models.",
        )
    )
    same = [r for r in rows if np.isfinite(r["orders"]) and np.isfinite(r["tau"])]
    one_sign = [r for r in rows if min(r["against"], 1 - r["against"]) == 0]
    results += [
        Result(
            "when",
            data.name,
            lab.name,
            "Spearman over documents of τ(α, |αw|) and τ(attention, |LIME|)",
            spearman(np.array([r["orders"] for r in same]), np.array([r["tau"] for r in same])),
            n=len(same),
            published="open question of the paper",
            note="τ(α, |αw|), how far values keep the order of attention, is"
            f" {np.mean([r['orders'] for r in same]):.2f} on average; {len(one_sign)} of {len(rows)}"
            " documents have values of one sign.",
        )
    ]
    results += _ordering_law(lab)
    figure = Figure(
        "effects",
        "What makes attention agree with LIME",
        "dots",
        [
            {"of": names[k], "effect": v["ours"], "low": v["low"], "high": v["high"]}
            for k, v in effects.items()
        ],
        "effect",
        "of",
        caption="Change of Kendall's τ per standard deviation, all five together, with bootstrap intervals.",
    )
    return Outcome(results, [figure], {"documents": rows})


def _uniform(model: SingleLayer, tokens: Sequence[Tokens]) -> Float[np.ndarray, "document label"]:
    """Outputs with attention frozen to uniform over the document."""
    import torch

    found = np.empty((len(tokens), len(model.labels)))
    for batch in model.batches(tokens):
        with torch.no_grad():
            trace = model.trace([tokens[i] for i in batch])
            weights = trace.attention[0].clone()
            for place, i in enumerate(batch):
                n = model.width(tokens[i])
                weights[place] = 0
                weights[place, :, :, :n] = 1 / n
            found[batch] = (
                model.trace([tokens[i] for i in batch], attention={0: weights})
                .logits.double()
                .numpy()
            )
    return found


def _regression(
    rows: Sequence[Row], features: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], float]:
    """Standardised least squares of τ on the features, with intervals over resampled documents."""
    good = [r for r in rows if np.isfinite(r["tau"])]
    y = np.array([r["tau"] for r in good])
    x = np.array([[r[k] for k in features] for r in good])
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
    full = np.column_stack([np.ones(len(x)), x])

    def solve(index: np.ndarray) -> np.ndarray:
        return np.linalg.lstsq(full[index], y[index], rcond=None)[0]

    slopes = solve(np.arange(len(y)))
    rng = np.random.default_rng(0)
    of = {
        d: [i for i, r in enumerate(good) if r["document"] == d]
        for d in {r["document"] for r in good}
    }
    documents = list(of.values())  # a document goes with the rows of all models
    drawn = np.array(
        [
            solve(
                np.concatenate(
                    [documents[k] for k in rng.integers(0, len(documents), len(documents))]
                )
            )
            for _ in range(1000)
        ]
    )
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    rest = y - full @ slopes
    effects = {
        k: {"ours": float(slopes[i]), "low": float(low[i]), "high": float(high[i]), "n": len(y)}
        for i, k in enumerate(features, 1)
    }
    return effects, float(1 - rest.var() / y.var())


def _ordering_law(lab: Lab) -> list[Result]:
    """Does attention order words as exact LIME does where w has one sign and does not reorder α? Generated documents.

    One head, 20 words, <unk> worth nothing and attended like the average word.
    """
    from heed.algebra.ratios import Ratios

    rng = generator(lab.seed, "ordering")
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "one sign, falling with attention": lambda w: np.sort(np.abs(w))[::-1],
        "one sign, in any order": np.abs,
        "both signs": lambda w: w,
    }
    results = []
    for kind, make in kinds.items():
        taus = []
        for _ in range(lab.pick(50, 500)):
            g = np.sort(np.exp(rng.normal(size=20)))[::-1]
            w = make(rng.normal(size=20))
            ones = np.ones((1, 20))
            f = Ratios(
                g[None], (g * w)[None], ones, 0 * ones, np.array([20.0]), np.array([0.0]), 0.0
            )
            taus.append(kendall(g, np.abs(exact(f).lime.coefficients)))
        metric = f"τ(attention, |exact LIME|) where w has {kind}"
        note = "Contributions αw then have the order of attention; LIME also counts what a word takes from the others."
        note = note if kind.endswith("attention") else ""
        results.append(Result("when", "generated", "none", metric, note=note, **mean_of(taus)))
    return results


def anchors(lab: Lab) -> Outcome:
    """How far anchors and attention point to the same words; how precise attention's top words are as a rule."""
    model, data = lab.main, lab.documents(lab.pick(6, 200), longest=150)
    rules = Anchors().explain(model, data.documents, seed=lab.seed)
    others = {
        m.name: m.explain(model, data.documents, seed=lab.seed)
        for m in (AttentionMean(), GradientInput(), LimeExact())
    }
    rows: list[Row] = []
    for i, rule in enumerate(rules):
        words = rule.scores > 0
        k = int(words.sum())
        if not 0 < k < len(words):
            continue
        row: Row = {"document": i, "words": k, "precision": rule.facts["precision"]}
        for name, explanations in others.items():
            score = aligned([explanations[i], rule])[0]
            top = np.zeros(len(score), dtype=bool)
            top[np.argsort(-score, kind="stable")[:k]] = True
            row[f"overlap {name}"] = float((top & words).sum() / k)
            row[f"precision {name}"] = _precision(model, data.documents[i], rule, top, lab.seed)
        row["chance"] = k / len(words)
        rows.append(row)
    results = [
        Result(
            "anchors",
            data.name,
            lab.name,
            "precision of the anchor",
            **mean_of([r["precision"] for r in rows]),
        ),
        Result(
            "anchors",
            data.name,
            lab.name,
            "words of an anchor",
            **mean_of([r["words"] for r in rows]),
        ),
        Result(
            "anchors",
            data.name,
            lab.name,
            "overlap by chance",
            **mean_of([r["chance"] for r in rows]),
        ),
    ]
    dots = []
    for name in others:
        for key, metric in (
            ("overlap", "share of the anchor's words among as many top words of"),
            ("precision", "precision of the rule made of as many top words of"),
        ):
            stats = mean_of([r[f"{key} {name}"] for r in rows])
            results.append(
                Result(
                    "anchors",
                    data.name,
                    lab.name,
                    f"{metric} {name}",
                    published="named as future work",
                    **stats,
                )
            )
            dots.append(
                {
                    "method": name,
                    "value": stats["ours"],
                    "low": stats["low"],
                    "high": stats["high"],
                    "metric": key,
                }
            )
    figure = Figure(
        "anchors", "Anchors meet attention", "dots", dots, "value", "method", panel="metric"
    )
    return Outcome(results, [figure], {"documents": rows})


def _precision(
    model: Classifier,
    document: Document,
    rule: Explanation,
    kept: Bool[np.ndarray, "unit"],
    seed: int,
    n: int = 1000,
) -> float:
    """Share of texts that keep these words and lose others by halves, which keep the label."""
    (tokens,) = model.tokens([document])
    units, groups = units_of(tokens, "word", True)
    keep = generator(seed, "rule", *document.segments).random((n, len(units))) < 0.5
    keep[:, kept] = True
    (logits,) = model.score([tokens], [keep], [groups])
    return float((logits.argmax(1) == model.labels.index(rule.label)).mean())


def talk(lab: Lab) -> Outcome:
    """The figures of the talk: attention of <cls> head by head, and how LIME samples."""
    import torch

    model = lab.main
    (tokens,) = model.tokens([SENTENCE])
    with torch.no_grad():
        heads = model.trace([tokens]).classifying()[0][:, : len(tokens)]
    words = [f"{i} {tokens.text(i)}" for i in range(len(tokens))]
    rows = [
        {"word": word, "head": f"head {h}", "attention": float(a)}
        for h, row in enumerate(heads)
        for word, a in zip(words, row, strict=True)
    ]
    small = "the movie was slow but good"
    (job,) = model.tokens([small])
    units, groups = units_of(job, "word", True)
    rng = generator(lab.seed, "talk")
    keep = ~uniform_subsets(rng, 12, len(units))
    keep[0] = True
    (logits,) = model.score([job], [keep], [groups])
    label = len(model.labels) - 1
    drawn = [
        {
            "sample": f"{i:>2}: {logits[i, label]:+.2f}",
            "word": f"{j + 1} {u.text}",
            "kept": float(keep[i, j]),
        }
        for i in range(len(keep))
        for j, u in enumerate(units)
    ]
    figures = [
        Figure(
            "cls-row",
            "The attention of <cls>, head by head",
            "heat",
            rows,
            "word",
            "head",
            value="attention",
        ),
        Figure(
            "sampling",
            "How LIME samples a small sentence",
            "heat",
            drawn,
            "word",
            "sample",
            value="kept",
            caption=f"Dark words are kept; beside each sample the output for {model.labels[label]}.",
        ),
    ]
    results = [
        Result(
            "talk",
            "one sentence",
            lab.name,
            "largest attention of <cls> on one token, mean over heads",
            ours=float(heads.max(1).mean()),
            n=len(heads),
        )
    ]
    return Outcome(results, figures)
