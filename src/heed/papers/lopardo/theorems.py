"""The paper's theorems and lemmas, held against exact values on real documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from heed.algebra.limits import exact, mixture_moments, ratio_bound, relative_error, slope
from heed.algebra.limits import lime_theorem as theorem
from heed.data import Dataset
from heed.methods import Lime
from heed.methods.method import units_of
from heed.metrics import kendall
from heed.models.classifier import Classifier
from heed.papers.lab import Lab
from heed.papers.results import Figure, Outcome, Result, Row, mean_of
from heed.progress import bar
from heed.text import Document, Tokens

if TYPE_CHECKING:  # which load torch
    from heed.algebra.ratios import Ratios
    from heed.models.single_layer import SingleLayer


def form(model: SingleLayer, tokens: Tokens, label: int) -> Ratios:
    """The output as a function of the distinct words that are kept."""
    units, groups = units_of(tokens, "word", True)
    return model.ratios(tokens, groups, len(units), label)


def predicted(
    model: Classifier, documents: Sequence[Document]
) -> tuple[list[Tokens], Int[np.ndarray, "document"]]:
    """Tokens and predicted labels."""
    tokens = model.tokens(documents)
    return tokens, model.logits(tokens).argmax(1)


def pearson(x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]) -> float:
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


# The gradient


def gradient_theorem(lab: Lab) -> Outcome:
    """Closed form and autograd, in double precision; and the <cls> row as the theorem prints it."""
    model = _double(lab.main)
    data = lab.documents(lab.pick(60, 25_000))
    rows: list[Row] = []
    for start in bar(range(0, len(data), 64), "gradients", unit="chunk"):
        tokens, labels = predicted(model, data.documents[start : start + 64])
        ours = model.gradient(tokens, labels.tolist())
        theirs = Classifier.gradient(model, tokens, labels.tolist())
        for i, (t, label, a, b) in enumerate(zip(tokens, labels, ours, theirs, strict=True), start):
            words = b.gradient[1:]
            printed = _printed_cls(model, t, int(label))
            rows.append(
                {
                    "document": i,
                    "error": _norm(a.gradient - b.gradient) / _norm(b.gradient),
                    "error_words": _norm(a.gradient[1:] - words) / _norm(words),
                    "error_cls_as_printed": _norm(printed - b.gradient[0]) / _norm(b.gradient[0]),
                }
            )
    worst = max(r["error"] for r in rows)
    common: dict[str, Any] = {
        "experiment": "gradient-theorem",
        "dataset": data.name,
        "model": lab.name,
        "n": len(rows),
    }
    cls = mean_of([r["error_cls_as_printed"] for r in rows])
    return Outcome(
        [
            Result(
                metric="largest ‖closed form - autograd‖ ÷ ‖autograd‖",
                ours=worst,
                published="equal up to rounding",
                note=("The theorem holds: with" if worst < 1e-10 else "With")
                + f" the <cls> term, the closed form is autograd's gradient up to {worst:.1g} of its norm.",
                **common,
            ),
            Result(
                metric="error of the <cls> row as the theorem prints it, relative",
                **(common | cls),
                published="the authors' <cls> row differs",
                note="The printed theorem keeps the query fixed, but <cls> is the query: without that term its row is"
                f" off by {cls['ours']:.0%} of its norm. For words the theorem is complete.",
            ),
        ],
        rows={"documents": rows},
    )


def _double(model: SingleLayer) -> SingleLayer:
    from heed.models.single_layer import Network, SingleLayer

    network = Network(model.shape)
    network.load_state_dict(model.network.state_dict())
    return SingleLayer(network.double(), model.tokenizer, model.labels, model.name, model.pairs)


def _printed_cls(model: SingleLayer, tokens: Tokens, label: int) -> Float[np.ndarray, "dim"]:
    """The gradient formula of words, for <cls>."""
    import torch

    trace = model.trace([tokens])
    net = model.network
    a, v = (x[0].detach().double() for x in (trace.attention[0][..., 0, :], trace.values[0]))
    w = torch.einsum("kto,ko->kt", v, net.W_l[label])
    centred = w[:, 0] - (a * w).sum(1)
    u, P = net.folded(torch.float64)
    return (
        (a[:, 0, None] * P[:, label]).sum(0) + ((a[:, 0] * centred)[:, None] * u).sum(0)
    ).numpy() / len(u)


def _norm(x: Float[np.ndarray, "*shape"]) -> float:
    return float(np.sqrt(np.square(x).sum()))


# LIME


def lime_theorem(lab: Lab) -> Outcome:
    """Five runs of LIME on one review beside the theorem with two constants and the exact value; then many reviews."""
    model, runs = lab.main, 5
    data = lab.documents(lab.pick(100, 1000))
    document = _like(model, data.documents, 99, 71)
    (tokens,), (label,) = predicted(model, [document])
    units, _ = units_of(tokens, "word", True)
    samples = lab.pick(1000, 5000)
    limes = np.array(
        [
            Lime(samples=samples, sampling="lime")
            .explain(model, [document], int(label), seed=lab.seed + i)[0]
            .scores
            for i in range(runs)
        ]
    )
    f = form(model, tokens, int(label))
    truth, plain = exact(f).lime.coefficients, theorem(f, 1.0)
    mean = limes.mean(0)
    top = np.argsort(-np.abs(mean), kind="stable")[:10]
    common: dict[str, Any] = {"experiment": "lime-theorem", "dataset": data.name, "model": lab.name}
    one = common | {"n": 1}
    d, T = f.units, len(tokens.words)
    results = [
        Result(
            metric="Pearson, mean of five LIME runs and the theorem",
            ours=pearson(mean, plain),
            published=0.968,
            note=f"One review with T = {T} and d = {d} (the paper's: T = 99, d = 71); {samples:,} samples a run.",
            **one,
        ),
        Result(metric="Kendall τ, the same", ours=kendall(mean, plain), published=0.602, **one),
        Result(
            metric="Kendall τ over the ten largest LIME scores",
            ours=kendall(mean[top], plain[top]),
            published=0.911,
            **one,
        ),
        Result(
            metric="Pearson, mean of five LIME runs and exact LIME",
            ours=pearson(mean, truth),
            note="What sampling noise leaves of a perfect agreement.",
            **one,
        ),
        Result(
            metric="factor that fits exact LIME best",
            ours=slope(plain, truth),
            published="3/2",
            note="The theorem's constant for this review.",
            **one,
        ),
    ]
    rows = _per_document(model, data)
    results += _summary(rows, common)
    shown = np.argsort(-np.abs(truth), kind="stable")[:15]
    boxes = [
        {"word": units[j].text, "score": float(run[j]), "run": i}
        for j in shown
        for i, run in enumerate(limes)
    ]
    marks = [
        {"x": units[j].text, "y": float(value[j]), "mark": name}
        for name, value in (("theorem, 3/2", 1.5 * plain), ("theorem, 1", plain), ("exact", truth))
        for j in shown
    ]
    figures = [
        Figure(
            "boxes",
            f"LIME for one review: {runs} runs, the theorem, and the exact value",
            "boxes",
            boxes,
            "word",
            "score",
            marks=marks,
            caption=f"The 15 words with the largest scores of {d}. Boxes are {runs} runs of {samples:,} samples.",
        ),
        Figure(
            "slopes",
            "The factor that fits exact LIME best, by document",
            "points",
            [{"T": r["T"], "fitted factor": r["slope"], "entropy": r["entropy"]} for r in rows],
            "T",
            "fitted factor",
            caption="The theorem has 3/2 for all; where removing words moves no denominator the factor is 1.",
        ),
    ]
    return Outcome(
        results,
        figures,
        {
            "documents": rows,
            "runs": [dict(zip("01234", run, strict=True)) for run in limes.T.tolist()],
        },
    )


def _like(model: Classifier, documents: Sequence[Document], length: int, distinct: int) -> Document:
    """The document whose numbers of words and of distinct words are nearest to these."""

    def distance(document: Document) -> float:
        (tokens,) = model.tokens([document])
        units, _ = units_of(tokens, "word", True)
        return (
            abs(len(tokens.words) - length)
            + abs(len(units) - distinct)
            + 1000 * (tokens.dropped > 0)
        )

    return min(documents, key=distance)


def _per_document(model: SingleLayer, data: Dataset) -> list[Row]:
    """How the theorem does on every document of at least ten distinct words."""
    tokens, labels = predicted(model, data.documents)
    rows: list[Row] = []
    pairs = list(zip(tokens, labels.tolist(), strict=True))
    for i, (t, label) in enumerate(bar(pairs, "exact LIME")):
        f = form(model, t, label)
        if f.units < 10:
            continue
        truth, plain = exact(f).lime.coefficients, theorem(f, 1.0)
        attention, value = _by_unit(f)
        fitted = slope(plain, truth)
        if not np.isfinite(fitted) or not truth.any():
            continue
        rows.append(
            {
                "document": i,
                "T": len(t.words),
                "distinct": f.units / len(t.words),
                "entropy": _entropy(f),
                "slope": fitted,
                "pearson": pearson(plain, truth),
                "kendall": kendall(plain, truth),
                "error": relative_error(1.5 * plain, truth),
                "error_one": relative_error(plain, truth),
                "error_fitted": relative_error(fitted * plain, truth),
                "r2_attention": pearson(attention, truth) ** 2,
                "r2_weighted": pearson(value, truth) ** 2,
            }
        )
    return rows


def _by_unit(f: Ratios) -> tuple[Float[np.ndarray, "unit"], Float[np.ndarray, "unit"]]:
    """Attention of each unit, mean over heads; and attention weighted by the last layer, Σ a w."""
    D = (f.c + f.a.sum(1))[:, None]
    return (f.a / D).mean(0), (f.n / D).sum(0)


def _entropy(f: Ratios) -> float:
    """Entropy of attention over the units, mean over heads, relative to its maximum."""
    p = f.a / f.a.sum(1, keepdims=True)
    return float(-(p * np.log(np.where(p > 0, p, 1))).sum(1).mean() / np.log(f.units))


def _summary(rows: Sequence[Row], common: dict[str, Any]) -> list[Result]:
    slopes = np.array([r["slope"] for r in rows])
    low, middle, high = np.quantile(slopes, [0.05, 0.5, 0.95])
    found = {
        key: mean_of([r[key] for r in rows])
        for key in ("slope", "pearson", "kendall", "error", "error_one", "error_fitted")
    }

    def result(metric: str, key: str, note: str = "", published: str | None = None) -> Result:
        return Result(metric=metric, note=note, published=published, **(common | found[key]))

    nearer = "1" if found["error_one"]["ours"] < found["error"]["ours"] else "3/2"
    return [
        result("Pearson, theorem and exact LIME, mean over documents", "pearson"),
        result("Kendall τ, theorem and exact LIME, mean over documents", "kendall"),
        result(
            "factor that fits exact LIME best, mean over documents",
            "slope",
            f"Median {middle:.2f}, nine tenths of the documents from {low:.2f} to {high:.2f}. Where removing words"
            " hardly moves the denominators it must be 1.",
            "3/2",
        ),
        result("error with the constant 3/2, ‖theorem - LIME‖ ÷ ‖LIME‖", "error"),
        result(
            "error with the constant 1, the same",
            "error_one",
            f"Of the two, {nearer} is nearer here.",
        ),
        result(
            "error with the factor fitted to each document, the same",
            "error_fitted",
            "The theorem's shape, whatever its constant: LIME is affine in attention up to this error.",
        ),
    ]


def reach(lab: Lab) -> Outcome:
    """Error and factor of the theorem against length, repetition, positions and peakedness; and what R² says."""
    data = lab.documents(lab.pick(100, 1000))
    rows = _per_document(lab.main, data)
    common: dict[str, Any] = {"experiment": "reach", "dataset": data.name, "model": lab.name}
    curves: list[Row] = []
    names = {
        "T": "words T",
        "distinct": "distinct share d/T",
        "entropy": "entropy of attention ÷ its maximum",
    }
    for key, name in names.items():
        curves += _curve(rows, key, name)
    positions, tmax = _positions(lab, data)
    curves += positions
    results = [
        Result(
            metric=f"Spearman of |factor - 1| with {name}",
            ours=_spearman([r[key] for r in rows], [abs(r["slope"] - 1) for r in rows]),
            n=len(rows),
            note="Negative would mean: the larger it is, the nearer the factor comes to 1."
            if key == "T"
            else "",
            **common,
        )
        for key, name in names.items()
    ]
    for key, name in (
        ("r2_attention", "attention α"),
        ("r2_weighted", "attention times value, α·w"),
    ):
        results.append(
            Result(
                metric=f"R² of exact LIME on {name}, per document",
                note="1 would mean that LIME is affine in it, document by document.",
                **(common | mean_of([r[key] for r in rows])),
            )
        )
    results += tmax
    figures = [
        Figure(
            "curves",
            "Where the theorem reaches",
            "lines",
            curves,
            "at",
            "value",
            colour="quantity",
            panel="against",
            caption="Means over tenths of the documents, with intervals. The error is that with the fitted factor,"
            " relative to the norm of exact LIME.",
        )
    ]
    return Outcome(results, figures, {"documents": rows})


def _curve(rows: Sequence[Row], key: str, name: str) -> list[Row]:
    """Mean factor and error over tenths of the documents ordered by a quantity."""
    order = sorted(rows, key=lambda r: r[key])
    found = []
    for part in np.array_split(np.arange(len(order)), min(10, max(1, len(order) // 5))):
        for quantity, column in (("factor", "slope"), ("error", "error_fitted")):
            stats = mean_of([order[i][column] for i in part])
            at = float(np.mean([order[i][key] for i in part]))
            found.append(
                {
                    "against": name,
                    "at": at,
                    "quantity": quantity,
                    "value": stats["ours"],
                    "low": stats["low"],
                    "high": stats["high"],
                }
            )
    return found


def _positions(lab: Lab, data: Dataset) -> tuple[list[Row], list[Result]]:
    """The same weights with more positions for padding that attends: d stays, Tmax grows."""
    curve: list[Row] = []
    results: list[Result] = []
    short = Dataset(
        data.name,
        data.split,
        tuple(d for d in data if len(d.text.split()) <= 120)[: lab.pick(20, 200)],
        data.labels,
        data.source,
        data.licence,
    )
    if not len(short):
        return [], []
    least = lab.main.shape.max_words
    for positions in (least, 2 * least, 4 * least, 8 * least):
        rows = _per_document(_stretched(lab.main, positions), short)
        if not rows:
            return [], []
        for quantity, column in (("factor", "slope"), ("error", "error_fitted")):
            stats = mean_of([r[column] for r in rows])
            curve.append(
                {
                    "against": "positions Tmax, padding attends",
                    "at": positions,
                    "quantity": quantity,
                    "value": stats["ours"],
                    "low": stats["low"],
                    "high": stats["high"],
                }
            )
            if quantity == "factor" and positions in (least, 8 * least):
                results.append(
                    Result(
                        "reach",
                        data.name,
                        lab.name,
                        f"factor that fits best with {positions:,} positions, padding attending",
                        note="The theorem's own regime, d small beside Tmax, is approached from the left to the right"
                        " here."
                        if positions > least
                        else "",
                        **stats,
                    )
                )
    return curve, results


def _stretched(model: SingleLayer, positions: int) -> SingleLayer:
    """The same weights, with unmasked padding up to so many positions."""
    from heed.models.single_layer import Network, SingleLayer

    network = Network(replace(model.shape, max_words=positions, padding="attends"))
    network.load_state_dict(model.network.state_dict())
    return SingleLayer(network, model.tokenizer, model.labels, model.name, model.pairs)


def _spearman(x: Sequence[float], y: Sequence[float]) -> float:
    from scipy import stats

    return float(stats.spearmanr(x, y).statistic)


# What stands in for a word


def replacement(lab: Lab) -> Outcome:
    """Exact LIME and the theorem when a removed word becomes <unk>, the mean word, a frequent word, or nothing."""
    data = lab.documents(lab.pick(40, 500))
    fillers = _fillers(lab.main)
    tokens, labels = predicted(lab.main, data.documents)
    rows: list[Row] = []
    pairs = list(zip(tokens, labels.tolist(), strict=True))
    for i, (t, label) in enumerate(bar(pairs, "replacements")):
        if len(units_of(t, "word", True)[0]) < 10:
            continue
        forms = {name: form(model, t, label) for name, model in fillers.items()}
        limes = {name: exact(f).lime.coefficients for name, f in forms.items()}
        drawn = {
            name: Lime(samples=1000).explain(model, [t.document], label, seed=lab.seed)[0].scores
            for name, model in fillers.items()
        }
        for name in fillers:
            plain = theorem(forms[name], 1.0)
            rows.append(
                {
                    "document": i,
                    "replacement": name,
                    "kendall": kendall(limes["<unk>"], limes[name]),
                    "kendall_sampled": kendall(drawn["<unk>"], drawn[name]),
                    "pearson": pearson(limes["<unk>"], limes[name]),
                    "theorem": pearson(plain, limes[name]),
                    "slope": slope(plain, limes[name]),
                }
            )
    common: dict[str, Any] = {"experiment": "replacement", "dataset": data.name, "model": lab.name}
    results, dots = [], []
    for name in fillers:
        own = [r for r in rows if r["replacement"] == name]
        sampled = mean_of([r["kendall_sampled"] for r in own])
        against, fits = mean_of([r["kendall"] for r in own]), mean_of([r["theorem"] for r in own])
        if name != "<unk>":
            note = "1 would mean that it does not matter what stands in for a removed word."
            results.append(
                Result(
                    metric=f"Kendall τ of exact LIME, <unk> and {name}",
                    note=note,
                    **(common | against),
                )
            )
            results.append(
                Result(metric=f"Kendall τ of sampled LIME, <unk> and {name}", **(common | sampled))
            )
        results.append(
            Result(
                metric=f"Pearson of theorem and exact LIME, {name}",
                published="stated to break the theorem" if name != "<unk>" else None,
                **(common | fits),
            )
        )
        for metric, stats in (
            ("LIME, beside <unk>: τ", against),
            ("theorem and LIME: Pearson", fits),
        ):
            dots.append(
                {
                    "replacement": name,
                    "metric": metric,
                    "value": stats["ours"],
                    "low": stats["low"],
                    "high": stats["high"],
                }
            )
    figure = Figure(
        "replacements",
        "What a removed word becomes",
        "dots",
        dots,
        "value",
        "replacement",
        colour="metric",
    )
    return Outcome(results, [figure], {"documents": rows})


def _fillers(model: SingleLayer) -> dict[str, SingleLayer]:
    """The same model with other words standing in for removed ones."""
    import torch

    from heed.models.single_layer import Network, SingleLayer

    W_e = model.network.W_e
    extra = {"mean word": W_e[3:].mean(0), "zero": torch.zeros_like(W_e[0])}
    known = model.tokenizer.backend
    frequent = next((w for w in ("the", "a", "is") if known.token_to_id(w) is not None), None)
    found = {"<unk>": model}
    for name, row in extra.items():
        network = Network(replace(model.shape, vocabulary=model.shape.vocabulary + 1))
        state = model.network.state_dict() | {"W_e": torch.cat([W_e, row[None]])}
        network.load_state_dict(state)
        other = SingleLayer(network, model.tokenizer, model.labels, model.name, model.pairs)
        other.filler = model.shape.vocabulary
        found[name] = other
    if frequent is not None:
        other = SingleLayer(model.network, model.tokenizer, model.labels, model.name, model.pairs)
        other.filler = known.token_to_id(frequent) or 0
        found[f'"{frequent}"'] = other
    return found


# Lemmas


def lemmas(lab: Lab) -> Outcome:
    """Moments of the random denominator and the bound on the mean of a ratio, by enumeration of all subsets."""
    rng = np.random.default_rng(lab.seed)
    moments, held = 0.0, []
    for _ in range(lab.pick(5, 50)):
        n = 9
        a, b = rng.normal(size=(2, n)) + 2
        x, y = rng.uniform(-1, 1, (2, n)) * 2 / n, rng.uniform(0.2, 3, (2, n))
        for s in range(1, n):
            z = np.array(
                [[i not in removed for i in range(n)] for removed in combinations(range(1, n), s)]
            )
            if not len(z):
                continue
            H = np.where(z, a, b).sum(1)
            found = mixture_moments(a, b, s, kept=0)
            moments = max(moments, abs(found.mean - H.mean()), abs(found.variance - H.var()))
            X, Y = (np.where(z, v[0], v[1]).sum(1) for v in (x, y))
            gap = abs((X / Y).mean() - X.mean() / Y.mean())
            held.append(gap / ratio_bound(2.0, 0.2, n, float(Y.var())) if Y.var() > 0 else 0.0)
    common: dict[str, Any] = {"experiment": "lemmas", "dataset": "generated", "model": "none"}
    return Outcome(
        [
            Result(
                metric="largest error of mean and variance of H_S",
                ours=moments,
                n=len(held),
                note="Closed forms beside the enumeration of all subsets of a size.",
                **common,
            ),
            Result(
                metric="largest |E[X/Y] - E[X]/E[Y]| ÷ its bound",
                ours=max(held),
                n=len(held),
                published="at most 1",
                note=f"The bound {'holds' if max(held) <= 1 else 'does not hold'} in {len(held)} cases.",
                **common,
            ),
        ]
    )
