"""Explanations beside each other and beside the model, over many documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from heed import methods
from heed.algebra.limits import exact
from heed.claims.signatures import LOW, signature
from heed.methods import AttentionMean, Explanation, LimeExact, Method, ShapleyExact
from heed.methods.comparison import agreement, aligned
from heed.methods.perturbation import uniform_subsets
from heed.methods.units import units_of
from heed.metrics import kendall, spearman
from heed.papers.lab import Lab
from heed.papers.lopardo.theorems import by_unit, form, long_documents
from heed.papers.results import Outcome, Results, figure, texts
from heed.papers.table import Mean, Row, Table, mean_of
from heed.randomness import generator

if TYPE_CHECKING:  # which load torch
    from heed.models.classifier import Classifier
    from heed.models.single_layer import SingleLayer
    from heed.text import Document, Tokens

SENTENCE = "attention based explanations are popular but questionable"
BETTER = {1: "better", 0: "neither better nor worse", -1: "worse"}  # by the sign of a difference


def nine(samples: int) -> tuple[Method, ...]:
    """The seven methods that the paper puts side by side, and exact LIME and Shapley values."""
    attention = ("attention-mean", "attention-max")
    gradients = ("gradient-mean", "gradient-l1", "gradient-l2", "gradient-input")
    return (
        *(methods.make_method(name, {"sink": "kept"}) for name in attention),
        *(methods.make_method(name, {"output": "logit"}) for name in gradients),
        methods.Lime(samples=samples, output="logit"),
        LimeExact(output="logit"),
        ShapleyExact(output="logit"),
    )


def side_by_side(lab: Lab) -> Outcome:
    """The paper's sentence by its seven methods, and by the exact ones."""
    model = lab.main
    results = Results("side-by-side", "one sentence", lab.name)
    label = model.labels.index("positive") if "positive" in model.labels else len(model.labels) - 1
    explanations = [
        m.explain(model, [SENTENCE], label, seed=lab.seed)[0] for m in nine(lab.pick(1000, 5000))
    ]
    by_method = {e.method: dict(zip(_words(e), e.scores, strict=True)) for e in explanations}
    published = texts("published")["lopardo-2024"]
    logits = model([SENTENCE])[0]
    for name, logit, theirs in zip(
        model.labels, logits, published["logits"].values(), strict=False
    ):
        results.add(f"logit of {name}", float(logit), n=1, published=theirs)
    for word, scores in published["scores"].items():
        for method, theirs in scores.items():
            score = float(by_method[method][word])
            results.add(f"{method} of “{word}”", score, n=1, published=theirs)
    lime, attention = by_method["lime-exact"], by_method["attention-max"]
    median = np.median(list(attention.values()))
    unsigned = [word for word in lime if lime[word] < 0 and attention[word] >= median]
    examples = ", ".join(f"“{word}”" for word in unsigned) or "none"
    results.add(
        "words of at least median attention with a negative exact LIME score",
        float(len(unsigned)),
        n=1,
        published="“questionable” is one",
        note=f"Attention cannot show that a word counts against the label. Such words here:"
        f" {examples}. The authors' weights are lost, so we can reproduce their pattern but not"
        " their numbers.",
    )
    heat: list[Row] = []
    for e in explanations:
        largest = np.abs(e.scores).max() or 1.0
        for i, (word, score) in enumerate(zip(_words(e), e.scores, strict=True), 1):
            cell = {"method": e.method, "word": f"{i} {word}", "score": float(score / largest)}
            heat.append(cell)
    chart = figure("scores", heat, {"label": model.labels[label]})
    return Outcome(results, [chart], explanations=[e.to_dict() for e in explanations])


def _words(explanation: Explanation) -> list[str]:
    return [unit.text for unit in explanation.units]


def correlations(lab: Lab) -> Outcome:
    """Kendall's τ between every two methods: per document, then the mean over documents."""
    data = lab.documents(lab.pick(40, 1000))
    results = Results("correlations", data.name)
    compared = (*nine(lab.pick(1000, 2000)), methods.Occlusion(output="logit"))
    names = [m.name for m in compared]
    pairs = [(a, b) for a in range(len(names)) for b in range(a)]
    models = models_of(lab)
    rows = Table()
    for model in models:
        explanations = [m.explain(model, data.documents, seed=lab.seed) for m in compared]
        for i, group in enumerate(zip(*explanations, strict=True)):
            tau = agreement(group)
            rows += [
                {"model": model.name, "document": i, "one": names[a], "other": names[b]}
                | {"tau": float(tau[a, b])}
                for a, b in pairs
            ]
    heat: list[Row] = []
    for (one, other), pair in rows.by("one", "other"):
        means = {name: taus.mean("tau") for name, taus in pair.by("model", ordered=True)}
        for model_name, mean in means.items():
            metric = f"Kendall τ, {one} and {other}, mean over documents"
            results.add(metric, mean, model=model_name)
        value = float(np.mean([m.ours for m in means.values() if m.ours is not None] or [np.nan]))
        heat.append({"one": one, "other": other, "tau": value})
        heat.append({"one": other, "other": one, "tau": value})
    heat += [{"one": name, "other": name, "tau": 1.0} for name in names]
    chart = figure("matrix", heat, {"documents": len(data), "models": len(models)})
    return Outcome(results, [chart], {"pairs": rows})


def models_of(lab: Lab) -> list[SingleLayer]:
    """The model that is examined, and where it is the paper's, two more training seeds of it."""
    if lab.scale == "smoke" or lab.model is not None:
        return [lab.main]
    return [lab.paper(seed) for seed in range(3)]


def against_the_model(lab: Lab) -> Outcome:
    """Which explanation follows the prediction, over documents and within documents.

    Over documents, the sum of the scores is compared with the output. Within documents, the units
    of all methods are distinct words, and removing a word removes all its occurrences.
    """
    data = lab.documents(lab.pick(60, 1000))
    rows = Table()
    for model in models_of(lab):
        label = len(model.labels) - 1
        tokens = model.tokens(data.documents)
        logits = model.logits(tokens)[:, label]
        forms = [form(model, t, label) for t in tokens]
        changes = [f.whole() - f(~np.eye(f.units, dtype=bool)) for f in forms]
        units = LimeExact(output="logit").explain(model, data.documents, label)
        for method in nine(lab.pick(1000, 2000)):
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
    results = Results("against-the-model", data.name)
    dots: list[Row] = []
    for model_name, by_method in rows.by("model", ordered=True):
        results.model = model_name
        for name, scores in by_method.by("method"):
            means = {_OVER: _bootstrap_spearman(scores.column("sum"), scores.column("output"))}
            within = texts("metrics")["within"]
            means |= {metric: scores.mean(key) for key, metric in within.items()}
            for metric, mean in means.items():
                results.add(f"{metric}, {name}", mean)
                dots.append(mean.row(method=name, panel=metric, model=model_name))
        _add_differences(results, by_method)
    return Outcome(results, [figure("follow", dots)], {"documents": rows})


_OVER = "Spearman over documents: sum of scores and output"


def _add_differences(results: Results, rows: Table) -> None:
    """Gradient × input minus attention, document by document, with signs and without."""
    for key, how in (("within", "with signs"), ("within_absolute", "without signs")):
        gradient, attention = (
            rows.where(method=name).column(key) for name in ("gradient-input", "attention-mean")
        )
        more = mean_of(gradient - attention)
        results.add(
            f"within documents: gradient × input less attention, paired, {how}",
            more,
            published="gradients follow it better",
            note=f"Gradients follow the prediction {BETTER[more.sign]} than attention {how}.",
        )


def _bootstrap_spearman(
    x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"], resamples: int = 500
) -> Mean:
    """Spearman over documents with a percentile interval over resampled documents."""
    rng = np.random.default_rng(0)
    drawn = [spearman(x[i], y[i]) for i in rng.integers(0, len(x), (resamples, len(x)))]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Mean(spearman(x, y), float(low), float(high), len(x))


def signs(lab: Lab) -> Outcome:
    """How many of the words that attention points to count against the label."""
    model, data = lab.main, lab.documents(lab.pick(60, 2000))
    results = Results("signs", data.name, lab.name)
    attention = AttentionMean(sink="kept").explain(model, data.documents)
    rows = Table()
    for method in (LimeExact(output="logit"), ShapleyExact(output="logit")):
        signed = method.explain(model, data.documents)
        for i, pair in enumerate(zip(attention, signed, strict=True)):
            weights, score = aligned(pair)
            if len(weights) < 10 or not score.any():
                continue
            top = np.argsort(-weights, kind="stable")[: max(3, round(len(weights) / 10))]
            size = np.abs(score)
            rows.append(
                {
                    "document": i,
                    "method": method.name,
                    # what is below a billionth of the largest score is rounding
                    "top_negative": float((score[top] < -1e-9 * size.max()).mean()),
                    "negative": float(-score[score < 0].sum() / size.sum()),
                }
            )
    hidden = "attention cannot show them"
    for name, scores in rows.by("method"):
        top_negative = scores.mean("top_negative")
        results.add(
            f"share of the top tenth of attention with a negative score, {name}",
            top_negative,
            published=hidden,
            note=f"{top_negative.ours:.0%} of the words that attention points to count against the"
            " label.",
        )
        metric = f"share of the absolute contribution that is negative, {name}"
        results.add(metric, scores.mean("negative"), published=hidden)
    boxes = [{"share": r["top_negative"], "method": r["method"]} for r in rows]
    return Outcome(results, [figure("shares", boxes)], {"documents": rows})


def signatures(lab: Lab) -> Outcome:
    """Why attention and other explanations differ: last layer, values like <unk>, heads."""
    data = lab.documents(lab.pick(40, 1000))
    results = Results("signatures", data.name)
    rows = Table()
    for model in models_of(lab):
        for i, tokens, label in long_documents(model, data, "signatures"):
            causes = signature(model, tokens, label)
            rows.append(
                {
                    "model": model.name,
                    "document": i,
                    "tau": causes.tau,
                    "against": causes.against,
                    "spread": causes.spread,
                    "like_unk": len(causes.like_unk),
                    "any_like_unk": bool(causes.like_unk),
                    "heads": causes.heads,
                    "final_layer": causes.final_layer_distorts,
                    "heads_disagree": causes.heads_disagree,
                }
            )
    for model_name, documents in rows.by("model", ordered=True):
        results.model = model_name
        tau, n = documents.column("tau"), len(documents)
        metric = "τ(attention, gradient × input), mean over documents"
        results.add(metric, documents.mean("tau"))
        results.add(
            "(a) share of documents that carry the signature of the last layer",
            documents.mean("final_layer"),
            note=f"{(tau < LOW).sum():,} of {n:,} documents have τ below {LOW}.",
        )
        for key, what in (
            ("against", "the share of attention on values against the label"),
            ("spread", "the spread of log |w|"),
        ):
            order = spearman(tau, documents.column(key))
            results.add(f"(a) Spearman of τ with {what}", order, n=n)
        results.add_means(documents, "signatures")
    points = [
        {"share against the label": r["against"], "τ": r["tau"], "model": r["model"]} for r in rows
    ]
    return Outcome(results, [figure("last-layer", points)], {"documents": rows})


def when(lab: Lab) -> Outcome:
    """What makes attention agree with exact LIME: a regression over documents and models."""
    data = lab.documents(lab.pick(60, 1000))
    rows = Table()
    for model in models_of(lab):
        tokens = model.tokens(data.documents)
        whole, uniform = model.logits(tokens), _uniform(model, tokens)
        for i, t, label in long_documents(model, data, "agreement"):
            f = form(model, t, label)
            attention, contribution = by_unit(f)
            attention = np.maximum(attention, 1e-300)  # none is 0, because w divides by it
            w = contribution / attention
            truth = exact(f).lime.coefficients
            p = attention / attention.sum()
            rows.append(
                {
                    "model": model.name,
                    "document": i,
                    "tau": kendall(attention, np.abs(truth)),
                    "against": float(attention[w < 0].sum() / attention.sum()),
                    # a word that adds nothing has no logarithm
                    "spread": float(np.log(np.abs(w) + 1e-12).std()),
                    "peaked": float(1 + (p * np.log(p)).sum() / np.log(f.units)),
                    "distinct": f.units / len(t.words),
                    "gap": float(abs(whole[i, label] - uniform[i, label])),
                    "orders": kendall(attention, np.abs(contribution)),
                }
            )
    features = texts("metrics")["features"]
    effects, r2 = _regression(rows, list(features))
    results = Results("when", data.name, ", ".join(sorted({r["model"] for r in rows})))
    effect_of = "effect on τ(attention, |exact LIME|) of one standard deviation of"
    for key, effect in effects.items():
        results.add(f"{effect_of}: {features[key]}", effect)
    results.add("R² of that regression", r2, n=len(rows), note="Over documents and models.")
    both = Table(r for r in rows if np.isfinite(r["orders"]) and np.isfinite(r["tau"]))
    one_sign = [r for r in rows if min(r["against"], 1 - r["against"]) == 0]
    results.add(
        "Spearman over documents of τ(α, |αw|) and τ(attention, |LIME|)",
        spearman(both.column("orders"), both.column("tau")),
        n=len(both),
        published="open question of the paper",
        note="τ(α, |αw|) measures how far the values keep the order of attention. It averages"
        f" {both.average('orders'):.2f}. {len(one_sign)} of {len(rows)} documents have values of"
        " one sign.",
        model=lab.name,
    )
    _add_ordering_law(results, lab)
    dots = [effect.row("effect", of=features[key]) for key, effect in effects.items()]
    return Outcome(results, [figure("effects", dots)], {"documents": rows})


def _uniform(model: SingleLayer, tokens: Sequence[Tokens]) -> Float[np.ndarray, "document label"]:
    """Outputs with attention frozen to uniform over the document."""
    import torch

    logits = np.empty((len(tokens), len(model.labels)))
    for batch in model.batches(tokens):
        documents = [tokens[i] for i in batch]
        with torch.no_grad():
            weights = torch.zeros_like(model.trace(documents).attention[0])
            for b, t in enumerate(documents):
                n = model.width(t)
                weights[b, :, :, :n] = 1 / n
            logits[batch] = model.trace(documents, attention={0: weights}).logits.double().numpy()
    return logits


def _regression(rows: Sequence[Row], features: Sequence[str]) -> tuple[dict[str, Mean], float]:
    """Standardised least squares of τ on the features, with intervals over resampled documents."""
    finite = Table(r for r in rows if np.isfinite(r["tau"]))
    y = finite.column("tau")
    x = np.column_stack([finite.column(key) for key in features])
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
    full = np.column_stack([np.ones(len(x)), x])

    def solve(index: np.ndarray) -> np.ndarray:
        return np.linalg.lstsq(full[index], y[index], rcond=None)[0]

    slopes = solve(np.arange(len(y)))
    rng = np.random.default_rng(0)
    # a document is drawn with its rows of all models
    numbered = Table({"row": i, "document": r["document"]} for i, r in enumerate(finite))
    by_document = numbered.by("document", ordered=True)
    documents = [group.column("row").astype(int) for _, group in by_document]
    drawn = []
    for _ in range(1000):
        picks = rng.integers(0, len(documents), len(documents))
        drawn.append(solve(np.concatenate([documents[k] for k in picks])))
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    rest = y - full @ slopes
    effects = {
        key: Mean(float(slopes[i]), float(low[i]), float(high[i]), len(y))
        for i, key in enumerate(features, 1)
    }
    return effects, float(1 - rest.var() / y.var())


def _add_ordering_law(results: Results, lab: Lab) -> None:
    """Does attention order words as exact LIME does where w has one sign and does not reorder α?

    Generated documents: one head, 20 words, <unk> worth nothing and attended like the average word.
    """
    from heed.algebra.ratios import Ratios

    rng = generator(lab.seed, "ordering")
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "one sign, falling with attention": lambda w: np.sort(np.abs(w))[::-1],
        "one sign, in any order": np.abs,
        "both signs": lambda w: w,
    }
    note = (
        "Contributions αw then have the order of attention, but LIME also counts what a word takes"
        " from the others."
    )
    ones = np.ones((1, 20))
    for kind, make in kinds.items():
        taus = []
        for _ in range(lab.pick(50, 500)):
            g = np.sort(np.exp(rng.normal(size=20)))[::-1]
            w = make(rng.normal(size=20))
            f = Ratios(
                g[None], (g * w)[None], ones, 0 * ones, np.array([20.0]), np.array([0.0]), 0.0
            )
            taus.append(kendall(g, np.abs(exact(f).lime.coefficients)))
        results.add(
            f"τ(attention, |exact LIME|) where w has {kind}",
            mean_of(taus),
            note=note if kind.endswith("attention") else "",
            dataset="generated",
            model="none",
        )


def anchors(lab: Lab) -> Outcome:
    """How far anchors and attention point to the same words, and hold as rules."""
    model, data = lab.main, lab.documents(lab.pick(6, 200), longest=150)
    results = Results("anchors", data.name, lab.name)
    rules = methods.Anchors().explain(model, data.documents, seed=lab.seed)
    others = {
        m.name: m.explain(model, data.documents, seed=lab.seed)
        for m in (
            AttentionMean(sink="kept"),
            methods.GradientInput(output="logit"),
            LimeExact(output="logit"),
        )
    }
    rows = Table()
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
        rows.append(row | {"chance": k / len(words)})
    results.add_means(rows, "anchors")
    top_words = texts("metrics")["top_words"]
    dots = []
    for name, (key, metric) in product(others, top_words.items()):
        mean = rows.mean(f"{key} {name}")
        results.add(f"{metric} {name}", mean, published="named as future work")
        dots.append(mean.row(method=name, metric=key))
    return Outcome(results, [figure("anchors", dots)], {"documents": rows})


def _precision(
    model: Classifier,
    document: Document,
    rule: Explanation,
    kept: Bool[np.ndarray, "unit"],
    seed: int,
    n: int = 1000,
) -> float:
    """How often the label stays when these words are kept and each other one with chance 1/2."""
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
    weights: list[Row] = [
        {"word": f"{i} {tokens.text(i)}", "head": f"head {h}", "attention": float(weight)}
        for h, row in enumerate(heads)
        for i, weight in enumerate(row)
    ]
    (small,) = model.tokens(["the movie was slow but good"])
    units, groups = units_of(small, "word", True)
    keep = ~uniform_subsets(generator(lab.seed, "talk"), 12, len(units))
    keep[0] = True
    (logits,) = model.score([small], [keep], [groups])
    label = len(model.labels) - 1
    samples: list[Row] = [
        {"sample": f"{i:>2}: {logits[i, label]:+.2f}", "word": f"{j + 1} {u.text}"}
        | {"kept": float(keep[i, j])}
        for i in range(len(keep))
        for j, u in enumerate(units)
    ]
    charts = [
        figure("cls-row", weights),
        figure("sampling", samples, {"label": model.labels[label]}),
    ]
    results = Results("talk", "one sentence", lab.name)
    largest = float(heads.max(1).mean())
    results.add("largest attention of <cls> on one token, mean over heads", largest, n=len(heads))
    return Outcome(results, charts)
