"""What the null space of a model's values is like, what it leaves open, and how to miss it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Literal

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Space
from heed.methods.problems import Problem, opened, problems
from heed.metrics import tvd
from heed.models.classifier import Classifier
from heed.models.shapes import RecurrentShape
from heed.papers.naim_asher.lab import EfficientLab, Subject, by_head
from heed.papers.results import Outcome, Results, figure, texts
from heed.papers.table import Row, Table, mean_of
from heed.randomness import generator
from heed.text import Tokenizer, Tokens
from heed.training.recipes import tuning

TOLERANCES = (1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
LENGTHS = (16, 32, 64, 128, 256, 400)
KINDS = ("words", "punctuation", "specials")  # of tokens
ALGEBRA = "True by construction (algebra); checked on every row."
DETERMINED = "The output determines every row"


def by_model(
    lab: EfficientLab, results: Results, rows: Table, subjects: Sequence[Subject] | None = None
) -> Iterator[tuple[Subject, Table]]:
    """Rows of each model in turn; results that are added meanwhile are about that model."""
    for subject in lab.subjects if subjects is None else subjects:
        results.dataset, results.model = subject.data, subject.model
        yield subject, rows.where(dataset=subject.data, model=subject.model)


def title(row: Row) -> str:
    """The model of a row and its data, as charts name them."""
    return f"{row['model']}, {row['dataset']}"


# How large is the null space?


def characterised(lab: EfficientLab) -> Outcome:
    """Rank and null space by architecture, layer, head, length and tolerance."""
    results = Results("characterised")
    rows = lab.every("null spaces", _null_spaces)
    points, heat = [], []
    for subject, model_rows in by_model(lab, results, rows):
        last = model_rows.where(layer=max(r["layer"] for r in model_rows))
        share = Table({"open": float(r["null space"] > 0)} for r in last).mean("open")
        longest, size = max(r["keys"] for r in last), last[0]["values"]
        note = f"Rows of up to {longest} keys, values of {size} dimensions."
        if share.ours == 0:
            note += (
                " No row is longer than the values are wide, so efficient attention is attention"
                " itself."
            )
        results.add("share of classifying rows with a null space", share, note=note)
        results.add("dimension of the null space of [T, 1]", last.mean("null space"))
        points += [
            {"keys": r["keys"], "null space": r["null space"], "model": subject.title} for r in last
        ]
        heat += head_means(model_rows, subject, "null space")
    about = {"what": "architectures", "lengths": LENGTHS, "seed": lab.seed}
    kinds = lab.piece(about, partial(_architectures, lab))
    grouped = kinds.where(architecture="grouped keys")
    sweep = lab.every("tolerances", _tolerances)
    results.add(
        "null space of a row of 128 keys",
        grouped.where(keys=128)[0]["null space"],
        note="Heads that share their values share their null space: the projections onto the null"
        f" spaces of two such heads differ by at most {max(r['apart'] for r in grouped):.1g}.",
        dataset="random weights",
        model="grouped keys",
    )
    lengths = [{key: r[key] for key in ("keys", "null space", "architecture")} for r in kinds]
    tolerances = [
        {"log10 of the tolerance": float(np.log10(r["tolerance"]))}
        | {"null space": r["null space"], "model": title(r)}
        for r in sweep
    ]
    charts = [
        figure("null-space", points),
        figure("layers-and-heads", heat),
        figure("architectures", lengths),
        figure("tolerance", tolerances),
    ]
    return Outcome(results, charts, {"rows": rows, "architectures": kinds, "tolerances": sweep})


def head_means(rows: Table, subject: Subject, column: str) -> list[Row]:
    """The mean of a column for each layer and head, as cells of a heat map."""
    return [
        {"layer": str(layer), "head": str(head), "model": subject.title}
        | {column: group.average(column)}
        for (layer, head), group in rows.by("layer", "head", ordered=True)
    ]


def _null_spaces(lab: EfficientLab, subject: Subject) -> list[Row]:
    import torch

    rows = []
    for batch, tokens in subject.batches(lab.pick(12, 200)):
        with torch.no_grad():
            trace = subject.classifier.trace(tokens)
        for layer in range(len(trace.attention)):
            for i, parts in zip(batch, problems(trace, tokens, layer), strict=True):
                rows += [
                    {
                        "document": i,
                        "layer": layer,
                        "head": p.heads[0],
                        "keys": len(p.keys),
                        "peak": float(p.rows.max(1).mean()),
                        "values": p.space.T.shape[1],
                        "rank": p.space.Q.shape[1],
                        "null space": p.space.nullity,
                    }
                    for p in parts
                ]
    return rows


def _tolerances(lab: EfficientLab, subject: Subject) -> list[Row]:
    # the smallest tolerance keeps values as they are, with their rounding
    parts = [p for _, _, p in subject.problems(lab.pick(4, 40), TOLERANCES[0])]
    rows = []
    for tolerance in TOLERANCES:
        sizes = [Space.of(p.space.T, tolerance=tolerance).nullity for p in parts]
        rows.append({"tolerance": tolerance, "null space": float(np.mean(sizes))})
    return rows


def _architectures(lab: EfficientLab) -> list[Row]:
    """The null space of small models with random weights, which attend in different ways."""
    import torch

    rng = generator(lab.seed, "architectures")
    documents = lab.corpus(lab.names[0]).test.documents[:200]
    words = sorted({w for d in documents for w in d.text.lower().split() if w.isalpha()})
    rows = Table()
    for kind, keys, length, model in _random_models(lab, words):
        tokens = model.tokens([" ".join(rng.choice(words, length)) for _ in range(4)])
        with torch.no_grad():
            trace = model.trace(tokens)
        for parts in problems(trace, tokens):
            rows.append({"architecture": kind, "keys": keys} | _space_of(parts))
    means = []
    for (architecture, keys), group in rows.by("architecture", "keys"):
        row = {"architecture": architecture, "keys": keys, "seen": group[0]["seen"]}
        row |= {"apart": max(r["apart"] for r in group), "null space": group.average("null space")}
        means.append(row)
    return means


def _random_models(
    lab: EfficientLab, words: Sequence[str]
) -> Iterator[tuple[str, int, int, Classifier]]:
    """Kind of attention, number of keys, number of words that fill them, and the model."""
    import torch

    from heed.models.recurrent import Recurrent, RecurrentNetwork
    from heed.models.transformer import Transformer
    from heed.training.transformer import scratch

    corpus = lab.corpus(lab.names[0])
    families = {
        "bert": "two-way",
        "gpt2": "causal",
        "llama": "grouped keys",
        "mistral": "sliding window",
    }
    for (family, kind), keys in product(families.items(), LENGTHS):
        changes = {"family": family, "max_tokens": keys, "vocabulary": 2000, "heads": 4}
        recipe, documents = tuning(True, changes), corpus.test.documents[:200]
        with torch.random.fork_rng():
            torch.manual_seed(lab.seed)
            network, tokenizer = scratch(documents, corpus.classes, recipe, (2, 128))
        # twice as many words as keys: the model cuts them to its length
        yield kind, keys, 2 * keys, Transformer(network, tokenizer, kind)
    attentions: tuple[Literal["additive", "dot"], ...] = ("additive", "dot")
    for attention, keys in product(attentions, LENGTHS):
        word_tokenizer = Tokenizer.words(words, keys + 1)
        shape = RecurrentShape(len(word_tokenizer), 2, "lstm", attention, 32, 32, keys)
        encoder = RecurrentNetwork(shape, torch.Generator().manual_seed(lab.seed))
        yield attention, keys, keys, Recurrent(encoder, word_tokenizer, corpus.classes)


def _space_of(parts: Sequence[Problem]) -> Row:
    """Size of the null space of a document's rows, and the distance of its first two heads'."""
    projections = [p.space.Q @ p.space.Q.T for p in parts[:2]]
    return {
        "null space": float(np.mean([p.space.nullity for p in parts])),
        "seen": len(parts[0].keys),
        "apart": float(np.abs(projections[0] - projections[-1]).max()),
    }


# The older argument: how much of A + LN(T) is attention at all?


def older_argument(lab: EfficientLab) -> Outcome:
    """Steps in the null space against the simplex, and the size of the class."""
    results = Results("older-argument")
    rows = lab.every("steps", _steps)
    about = {"what": "drawn rows", "seed": lab.seed, "n": lab.pick(2, 8)}
    drawn = lab.piece(about, partial(_drawn, lab))
    farthest = texts("metrics")["steps"]["farthest"]
    for _, steps in by_model(lab, results, rows):
        if not steps:
            results.add(farthest, 0.0, note=f"{DETERMINED}: there is no null space.")
            continue
        leaves = "share of null-space steps of a tenth that leave the simplex"
        results.add(leaves, steps.mean("leaves"))
        results.add("largest step inside, as TVD", steps.mean("inside"), note=_steps_note(steps))
        results.add_means(steps, "steps")
    for n, before in ((128, 0.25), (256, 0.6), (400, 0.85)):
        results.add(
            f"TVD to the farthest, {n} keys, 64 dimensions",
            drawn.where(keys=n, values=64, spread=2.0).mean("farthest"),
            note=f"An earlier measurement with other draws gave about {before:g}.",
            dataset="drawn",
            model="softmax of 2 N(0, 1)",
        )
    lines = [
        {"keys": keys, "TVD to the farthest": group.average("farthest")}
        | {"values": f"{values} dimensions", "attention": f"softmax of {spread:g} N(0, 1)"}
        for (keys, values, spread), group in drawn.by("keys", "values", "spread")
    ]
    points = [
        {"largest weight": r["peak"], "TVD to the farthest": r["farthest"], "model": title(r)}
        for r in rows
    ]
    charts = [figure("open-by-length", lines), figure("open-by-peak", points)]
    return Outcome(results, charts, {"rows": rows, "drawn": drawn})


def _steps_note(rows: Table) -> str:
    inside, far = rows.average("inside"), rows.average("farthest")
    few = inside < far / 3
    return (
        f"A random direction leaves the simplex after {inside:.3f}; the farthest attention is"
        f" {far:.3f} away: "
        + ("random steps make no adversary." if few else "here random steps also come far.")
    )


@by_head(6, 60)
def _steps(lab: EfficientLab, document: int, tokens: Tokens, problem: Problem) -> Row:
    rng = generator(lab.seed, "steps", document, problem.heads[0])
    return _open(problem.rows[0], problem.space, rng)


def _open(row: Float[np.ndarray, "key"], space: Space, rng: np.random.Generator) -> Row:
    """Random steps in the null space, and the farthest member of the class."""
    steps = rng.standard_normal((32, space.nullity)) @ space.N.T
    # a step of one is a TVD of one; without a null space there is no step, and nothing to divide
    steps /= np.abs(steps).sum(1, keepdims=True).clip(1e-300) / 2
    inside = np.where(steps < 0, -row / np.where(steps < 0, steps, -1), np.inf).min(1)
    inside = np.where(np.isfinite(inside), inside, 0.0)
    far = space.farthest(row, starts=1)
    distance = float(tvd(row, far))
    return {
        "keys": len(row),
        "peak": float(row.max()),
        "values": space.T.shape[1],
        "null space": space.nullity,
        "leaves": float((inside < 0.1).mean()),
        "inside": float(inside.mean()),
        "farthest": distance,
        "diameter": max(distance, float(tvd(far, space.farthest(far, starts=1)))),
    }


def _drawn(lab: EfficientLab) -> list[Row]:
    rows = []
    for n, p, spread in product(LENGTHS[1:], (16, 64), (0.5, 2.0, 5.0)):
        for k in range(lab.pick(2, 8)):
            rng = generator(lab.seed, "drawn", n, p, str(spread), k)
            space = Space.of(rng.standard_normal((n, p)))
            row = np.exp(spread * rng.standard_normal(n))
            rows.append({"spread": spread} | _open(row / row.sum(), space, rng) | {"values": p})
    return rows


# A distribution, and the smallest one


def distribution(lab: EfficientLab) -> Outcome:
    """Efficient attention is attention; effective attention is not."""
    results = Results("distribution")
    rows = lab.every("distribution", _distribution)
    boxes = []
    for subject, model_rows in by_model(lab, results, rows):
        worst = max(max(r["sum error"], -r["smallest"]) for r in model_rows)
        metric = "efficient: largest violation (sum − 1, or a negative weight)"
        results.add(metric, worst, n=len(model_rows), note=ALGEBRA)
        results.add_means(model_rows, "effective")
        open_rows = [r for r in model_rows if r["null space"]]
        boxes += [{"model": subject.title, "negative mass": r["negative"]} for r in open_rows]
    return Outcome(results, [figure("negative-mass", boxes)] if boxes else [], {"rows": rows})


@by_head(12, 200, open_only=False)
def _distribution(lab: EfficientLab, document: int, tokens: Tokens, problem: Problem) -> Row:
    space = problem.space
    x, effective = space.efficient(problem.rows).rows[0], space.effective(problem.rows)[0]
    return {
        "null space": space.nullity,
        "sum error": float(abs(x.sum() - 1)),
        "smallest": float(x.min()),
        "negative": float(np.maximum(-effective, 0).sum()),
        "effective sum": float(abs(effective.sum() - 1)),
    }


def minimal(lab: EfficientLab) -> Outcome:
    """No member of the class is smaller; what was dropped."""
    results = Results("minimal")
    rows = lab.every("minimal", _minimal)
    for _, model_rows in by_model(lab, results, rows):
        if not model_rows:
            results.add("norm dropped", 0.0, note=f"{DETERMINED}: nothing is dropped.")
            continue
        results.add(
            "members of the class with a smaller norm, of those that were drawn",
            float(sum(r["smaller"] for r in model_rows)),
            n=sum(r["drawn"] for r in model_rows),
            note=ALGEBRA + _shortfall(model_rows),
        )
        ratios = model_rows.column("efficient norm") / model_rows.column("norm")
        results.add("norm of efficient attention ÷ norm of attention", mean_of(ratios))
        moved = "weight that changed its place (TVD)"
        results.add(moved, model_rows.mean("dropped"), note=_lost_weight(model_rows))
    norms = (("norm", "attention"), ("efficient norm", "efficient"), ("other norm", "others"))
    boxes = [{"whose": w, "norm": r[key], "model": title(r)} for r in rows for key, w in norms]
    return Outcome(results, [figure("norms", boxes)] if rows else [], {"rows": rows})


def _shortfall(rows: Table) -> str:
    """How much smaller some members are: by rounding, where the class is nearly a point."""
    most = max(r["shortfall"] for r in rows)
    if most <= 1e-12:
        return ""
    cause = "which is rounding" if most < 1e-8 else "so the smallest was missed"
    return f" Smaller norms are smaller by at most {most:.1g}, {cause}."


def _lost_weight(rows: Table) -> str:
    """Which tokens lost weight."""
    total = sum(r["lost"] for r in rows) or 1.0
    parts = [f"{sum(r[f'lost {kind}'] for r in rows) / total:.0%} {kind}" for kind in KINDS]
    return f"The weight that was taken away lay on: {', '.join(parts)}."


@by_head(6, 60)
def _minimal(lab: EfficientLab, document: int, tokens: Tokens, problem: Problem) -> Row:
    row, space = problem.rows[0], problem.space
    x = space.efficient(problem.rows).rows[0]
    rng = generator(lab.seed, "members", document, problem.heads[0])
    smallest = space.smallest(row)
    drawn = [space.polished(row, smallest(rng.random(len(row)))) for _ in range(4)]
    corners = np.stack([row, *drawn])
    members = np.vstack([corners, rng.dirichlet(np.ones(len(corners)), 20) @ corners])
    norms, efficient_norm = np.linalg.norm(members, axis=1), float(np.linalg.norm(x))
    lost = np.maximum(row - x, 0)
    kinds = np.array(_kinds(problem.keys, tokens))
    return {
        "norm": float(norms[0]),
        "efficient norm": efficient_norm,
        "other norm": float(np.median(norms[1:])),
        "drawn": len(members),
        # norms that differ by less are equal up to rounding
        "smaller": int((norms < efficient_norm - 1e-12).sum()),
        "dropped": float(tvd(row, x)),
        "shortfall": max(0.0, efficient_norm - float(norms.min())),
        "lost": float(lost.sum()),
        **{f"lost {kind}": float(lost[kinds == kind].sum()) for kind in KINDS},
    }


def _kinds(keys: Iterable[int], tokens: Tokens) -> list[str]:
    """Of which kind the token of each key is; keys beyond the tokens are padding."""
    special, kinds = tokens.special, []
    for key in keys:
        if key >= len(tokens) or special[key]:
            kinds.append("specials")
        else:
            is_word = any(c.isalnum() for c in tokens.names[key])
            kinds.append("words" if is_word else "punctuation")
    return kinds


# Failing on purpose


def failing(lab: EfficientLab) -> Outcome:
    """Wrong decompositions beside the right one."""
    results = Results("failing")
    rows = lab.every("failing", _failing)
    ways = [way for way, _ in rows.by("way")]
    heat: list[Row] = []
    for subject, model_rows in by_model(lab, results, rows):
        for way in ways:
            wide = Table(r for r in model_rows.where(way=way) if r["null space"])
            if wide:
                error = wide.mean("error")
                results.add(f"output error, {way}", error, note=_lost_output(way, wide))
                # an error of 0 has no logarithm; below 1e-17 all is rounding
                digits = float(-np.log10(max(error.ours or 0.0, 1e-17)))
                heat.append({"way": way, "model": subject.title, "digits kept": digits})
    return Outcome(results, [figure("failing", heat)] if heat else [], {"rows": rows})


def _lost_output(way: str, rows: Table) -> str:
    worst = max(r["error"] for r in rows)
    if way == "the right one":
        return "As a share of the norm of the output."
    if worst > 1e-6:
        return f"The output is off by up to {worst:.2g} of its norm."
    return "Nothing is lost on these rows."


def _failing(lab: EfficientLab, subject: Subject) -> list[Row]:
    rows: list[Row] = []
    model = subject.classifier
    every = model.tokens(subject.documents[: lab.pick(12, 120)])
    longest = max(every, key=len)
    for i, tokens in enumerate(every):
        if tokens is longest:
            continue
        attending, parts = opened(model, [tokens, longest] if not model.even else [tokens])
        values = attending.trace.values[-1].detach().double().cpu().numpy()[0]
        for p in parts[0]:
            a, beside = p.rows[0], values[p.heads[0]]
            T, padded = beside[p.keys], np.zeros(len(beside))
            padded[p.keys] = a
            kept = p.space.sum_preserving(p.rows)[0]
            clipped = np.maximum(kept, 0)
            ways = {
                "the right one": p.space.efficient(p.rows).rows[0],
                "clipped and renormalised": clipped / clipped.sum(),
            }
            if len(beside) > len(p.keys):
                mixed = Space.of(beside).sum_preserving(padded[None])[0]
                ways["decomposed with padding"] = mixed[p.keys]
            for tolerance in (0.01, 0.1):
                Q = Space.of(T, tolerance=tolerance).Q
                ways[f"tolerance {tolerance:g}"] = Q @ (Q.T @ a)
            size = float(np.linalg.norm(a @ T)) or 1.0
            rows += [
                {"document": i, "head": p.heads[0], "null space": p.space.nullity, "way": way}
                | {"error": float(np.linalg.norm((x - a) @ T) / size)}
                for way, x in ways.items()
            ]
    return rows
