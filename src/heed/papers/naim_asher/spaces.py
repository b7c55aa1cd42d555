"""What the null space of a model's values is like, what it leaves open, and how to miss it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Space
from heed.methods.problems import Problem, opened, problems
from heed.metrics import tvd
from heed.models.shapes import RecurrentShape
from heed.papers.naim_asher.lab import EfficientLab, Subject
from heed.papers.results import Figure, Outcome, Results
from heed.papers.table import Row, Table, mean_of
from heed.randomness import generator
from heed.text import Tokenizer
from heed.training.recipes import tuning

TOLERANCES = (1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
LENGTHS = (16, 32, 64, 128, 256, 400)
ALGEBRA = "True by construction: it is algebra, and was checked on every row."


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
    for subject, own in by_model(lab, results, rows):
        last = own.where(layer=max(r["layer"] for r in own))
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
        heat += by_head(own, subject, "null space")
    kinds = lab.piece(
        {"what": "architectures", "lengths": LENGTHS, "seed": lab.seed},
        partial(_architectures, lab),
    )
    grouped = kinds.where(architecture="grouped keys")
    sweep = lab.every("tolerances", _tolerances)
    results.add(
        "null space of a row of 128 keys",
        grouped.where(keys=128)[0]["null space"],
        note="Heads that share their values share their null space: the projections on the null"
        f" spaces of two such heads differ by {max(r['apart'] for r in grouped):.1g} at most.",
        dataset="random weights",
        model="grouped keys",
    )
    figures = [
        Figure(
            "null-space",
            "Dimension of the null space against the length of the row",
            "points",
            points,
            x="keys",
            y="null space",
            colour="model",
            caption="One point for each document and head, last layer. Below the width of the"
            " values there is none.",
        ),
        Figure(
            "layers-and-heads",
            "Mean dimension of the null space, layer by layer and head by head",
            "heat",
            heat,
            x="head",
            y="layer",
            value="null space",
            panel="model",
        ),
        Figure(
            "architectures",
            "Null space of the last row by kind of attention",
            "lines",
            [{key: r[key] for key in ("keys", "null space", "architecture")} for r in kinds],
            x="keys",
            y="null space",
            colour="architecture",
            caption="Random weights, values of 32 dimensions. A sliding window keeps rows short; a"
            " causal mask leaves the null space of the last row as it is; how weights are made"
            " (additive, dot) does not matter.",
        ),
        Figure(
            "tolerance",
            "Dimension of the null space against the tolerance",
            "lines",
            [
                {"log10 of the tolerance": float(np.log10(r["tolerance"]))}
                | {"null space": r["null space"], "model": title(r)}
                for r in sweep
            ],
            x="log10 of the tolerance",
            y="null space",
            colour="model",
            caption="Mean over documents and heads. Where the curve is flat, the rank does not"
            " depend on the choice.",
        ),
    ]
    tables = {"rows": rows, "architectures": kinds, "tolerances": sweep}
    return Outcome(results, figures, tables)


def by_head(rows: Table, subject: Subject, column: str) -> list[Row]:
    """The mean of a column for each layer and head, as a heat map has it."""
    return [
        {"layer": str(layer), "head": str(head), "model": subject.title}
        | {column: own.average(column)}
        for (layer, head), own in sorted(rows.by("layer", "head"), key=lambda group: group[0])
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
    """Small models with random weights, which attend in different ways."""
    import torch

    from heed.models.recurrent import Recurrent, RecurrentNetwork
    from heed.models.transformer import Transformer
    from heed.training.transformer import scratch

    rng = generator(lab.seed, "architectures")
    corpus = lab.corpus(lab.names[0], lab.limit(lab.names[0]))
    words = sorted(
        {w for d in corpus.test.documents[:200] for w in d.text.lower().split() if w.isalpha()}
    )
    kinds = {
        "bert": "two-way",
        "gpt2": "causal",
        "llama": "grouped keys",
        "mistral": "sliding window",
    }
    rows: list[Row] = []
    for family, kind in kinds.items():
        for keys in LENGTHS:
            recipe = tuning(
                True, {"family": family, "max_tokens": keys, "vocabulary": 2000, "heads": 4}
            )
            with torch.random.fork_rng():
                torch.manual_seed(lab.seed)
                network, tokenizer = scratch(
                    corpus.test.documents[:200], corpus.classes, recipe, (2, 128)
                )
            model = Transformer(network, tokenizer, kind)
            tokens = model.tokens(
                [" ".join(rng.choice(words, 2 * keys)) for _ in range(4)]
            )  # cut to so many keys
            with torch.no_grad():
                trace = model.trace(tokens)
            rows += [
                {"architecture": kind, "keys": keys} | _space_of(parts)
                for parts in problems(trace, tokens)
            ]
    for attention in ("additive", "dot"):
        for keys in LENGTHS:
            tokens_of = Tokenizer.words(words, keys + 1)
            shape = RecurrentShape(len(tokens_of), 2, "lstm", attention, 32, 32, keys)
            encoder = Recurrent(
                RecurrentNetwork(shape, torch.Generator().manual_seed(lab.seed)),
                tokens_of,
                corpus.classes,
            )
            tokens = encoder.tokens([" ".join(rng.choice(words, keys)) for _ in range(4)])
            with torch.no_grad():
                trace = encoder.trace(tokens)
            rows += [
                {"architecture": attention, "keys": keys} | _space_of(parts)
                for parts in problems(trace, tokens)
            ]
    means = []
    for (architecture, keys), own in Table(rows).by("architecture", "keys"):
        sizes = {"seen": own[0]["seen"], "apart": max(r["apart"] for r in own)}
        means.append(
            {"architecture": architecture, "keys": keys}
            | sizes
            | {"null space": own.average("null space")}
        )
    return means


def _space_of(parts: Sequence[Problem]) -> Row:
    """Size of the null space of a document's rows, and the distance of its first two heads'."""
    projections = [p.space.Q @ p.space.Q.T for p in parts[:2]]
    return {
        "null space": float(np.mean([p.space.nullity for p in parts])),
        "seen": len(parts[0].keys),
        "apart": float(np.abs(projections[0] - projections[-1]).max()),
    }


# The older argument: how much of A + LN(T) is attention at all?


def family_of_rows(lab: EfficientLab) -> Outcome:
    """Steps in the null space against the simplex, and the size of the class."""
    results = Results("older-argument")
    rows = lab.every("steps", _steps)
    drawn = lab.piece(
        {"what": "drawn rows", "seed": lab.seed, "n": lab.pick(2, 8)}, partial(_drawn, lab)
    )
    farthest = "TVD to the farthest attention with the same output"
    for _, own in by_model(lab, results, rows):
        if not own:
            results.add(farthest, 0.0, note="Every row is determined: there is no null space.")
            continue
        leaves = "share of null-space steps of a tenth that leave the simplex"
        results.add(leaves, own.mean("leaves"))
        results.add("largest step inside, as TVD", own.mean("inside"), note=_steps_note(own))
        diameter = "largest TVD found between two attentions with the same output"
        results.add(diameter, own.mean("diameter"))
        results.add(farthest, own.mean("farthest"))
    for n, before in ((128, 0.25), (256, 0.6), (400, 0.85)):
        results.add(
            f"TVD to the farthest, {n} keys, 64 dimensions",
            drawn.where(keys=n, values=64, spread=2.0).mean("farthest"),
            note=f"About {before:g} was measured before, with other draws.",
            dataset="drawn",
            model="softmax of 2 N(0, 1)",
        )
    lines = [
        {"keys": keys, "TVD to the farthest": own.average("farthest")}
        | {"values": f"{values} dimensions", "attention": f"softmax of {spread:g} N(0, 1)"}
        for (keys, values, spread), own in drawn.by("keys", "values", "spread")
    ]
    figures = [
        Figure(
            "open-by-length",
            "How far the farthest attention with the same output is",
            "lines",
            lines,
            x="keys",
            y="TVD to the farthest",
            colour="values",
            panel="attention",
            caption="Drawn values and rows: the longer the row, the narrower the values and the"
            " flatter the attention, the more is open.",
        ),
        Figure(
            "open-by-peak",
            "The same in trained models, against the largest weight",
            "points",
            [
                {"largest weight": r["peak"], "TVD to the farthest": r["farthest"]}
                | {"model": title(r)}
                for r in rows
            ],
            x="largest weight",
            y="TVD to the farthest",
            colour="model",
        ),
    ]
    return Outcome(results, figures, {"rows": rows, "drawn": drawn})


def _steps_note(rows: Table) -> str:
    inside, far = rows.average("inside"), rows.average("farthest")
    few = inside < far / 3
    return (
        f"A random direction ends at the simplex after {inside:.3f}, where the farthest attention"
        f" is {far:.3f} away: "
        + ("random steps are no adversary." if few else "here random steps come far, too.")
    )


def _steps(lab: EfficientLab, subject: Subject) -> list[Row]:
    rows = []
    for i, _, p in subject.problems(lab.pick(6, 60)):
        if p.space.nullity:
            rng = generator(lab.seed, "steps", i, p.heads[0])
            rows.append({"document": i, "head": p.heads[0]} | _open(p.rows[0], p.space, rng))
    return rows


def _open(row: Float[np.ndarray, "key"], space: Space, rng: np.random.Generator) -> Row:
    """Random steps in the null space, and the farthest member of the class."""
    steps = rng.standard_normal((32, space.nullity)) @ space.N.T
    # a step of one is a TVD of one; without a null space there is no step, and nothing to divide
    steps /= np.abs(steps).sum(1, keepdims=True).clip(1e-300) / 2
    inside = np.where(steps < 0, -row / np.where(steps < 0, steps, -1), np.inf).min(1)
    inside = np.where(np.isfinite(inside), inside, 0.0)
    far = space.farthest(row)
    distance = float(tvd(row, far))
    return {
        "keys": len(row),
        "peak": float(row.max()),
        "values": space.T.shape[1],
        "null space": space.nullity,
        "leaves": float((inside < 0.1).mean()),
        "inside": float(inside.mean()),
        "farthest": distance,
        "diameter": max(distance, float(tvd(far, space.farthest(far)))),
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
    for subject, own in by_model(lab, results, rows):
        worst = max(max(r["sum error"], -r["smallest"]) for r in own)
        metric = "efficient: largest violation (sum − 1, or a negative weight)"
        results.add(metric, worst, n=len(own), note=ALGEBRA)
        results.add("effective: negative mass", own.mean("negative"))
        results.add("effective: |sum of the row − 1|", own.mean("effective sum"))
        boxes += [
            {"model": subject.title, "negative mass": r["negative"]} for r in own if r["null space"]
        ]
    figure = Figure(
        "negative-mass",
        "Negative mass of effective attention, row by row",
        "boxes",
        boxes,
        x="model",
        y="negative mass",
        caption="Rows with a null space. Efficient attention has none.",
    )
    return Outcome(results, [figure] if boxes else [], {"rows": rows})


def _distribution(lab: EfficientLab, subject: Subject) -> list[Row]:
    rows = []
    for i, _, p in subject.problems(lab.pick(12, 200)):
        x, effective = p.space.efficient(p.rows).rows[0], p.space.effective(p.rows)[0]
        rows.append(
            {
                "document": i,
                "head": p.heads[0],
                "null space": p.space.nullity,
                "sum error": float(abs(x.sum() - 1)),
                "smallest": float(x.min()),
                "negative": float(np.maximum(-effective, 0).sum()),
                "effective sum": float(abs(effective.sum() - 1)),
            }
        )
    return rows


def minimal(lab: EfficientLab) -> Outcome:
    """No member of the class is smaller; what was dropped."""
    results = Results("minimal")
    rows = lab.every("minimal", _minimal)
    for _, own in by_model(lab, results, rows):
        if not own:
            results.add("norm dropped", 0.0, note="Every row is determined: nothing is.")
            continue
        results.add(
            "members of the class with a smaller norm, of those that were drawn",
            float(sum(r["smaller"] for r in own)),
            n=sum(r["drawn"] for r in own),
            note=ALGEBRA + _by(own),
        )
        ratios = own.column("efficient norm") / own.column("norm")
        results.add("norm of efficient attention ÷ norm of attention", mean_of(ratios))
        results.add("weight that changed its place (TVD)", own.mean("dropped"), note=_whose(own))
    norms = (("norm", "attention"), ("efficient norm", "efficient"), ("other norm", "others"))
    figure = Figure(
        "norms",
        "Norm of a row, of its efficient attention and of other members of its class",
        "boxes",
        [{"whose": w, "norm": r[key], "model": title(r)} for r in rows for key, w in norms],
        x="whose",
        y="norm",
        panel="model",
    )
    return Outcome(results, [figure] if rows else [], {"rows": rows})


def _by(rows: Table) -> str:
    """By how much members were smaller all the same: by rounding, in a class of nearly a point."""
    most = max(r["shortfall"] for r in rows)
    if most <= 1e-12:
        return ""
    rounding = most < 1e-8
    return f" Norms that are smaller are so by {most:.1g} at most" + (
        ", which is rounding." if rounding else ": there, the least was missed."
    )


def _whose(rows: Table) -> str:
    """Which tokens lost weight."""
    total = sum(r["lost"] for r in rows) or 1.0
    parts = [
        f"{sum(r[f'lost {kind}'] for r in rows) / total:.0%} {kind}"
        for kind in ("words", "punctuation", "specials")
    ]
    return f"Of the weight that was taken away, it lay on: {', '.join(parts)}."


def _minimal(lab: EfficientLab, subject: Subject) -> list[Row]:
    rows = []
    for i, t, p in subject.problems(lab.pick(6, 60)):
        if p.space.nullity:
            rows.append(
                {"document": i, "head": p.heads[0]} | _smallest(p, t.names, t.special, lab.seed, i)
            )
    return rows


def _smallest(
    problem: Problem, names: Sequence[str], special: np.ndarray, seed: int, document: int
) -> Row:
    row, space = problem.rows[0], problem.space
    x = space.efficient(problem.rows).rows[0]
    rng = generator(seed, "members", document, problem.heads[0])
    smallest = space.smallest(row)
    drawn = [space.polished(row, smallest(rng.random(len(row)))) for _ in range(4)]
    corners = np.stack([row, *drawn])
    members = np.vstack([corners, rng.dirichlet(np.ones(len(corners)), 20) @ corners])
    norms, own = np.linalg.norm(members, axis=1), float(np.linalg.norm(x))
    lost = np.maximum(row - x, 0)
    kinds = np.array([_kind(k, names, special) for k in problem.keys])
    by_kind = {
        f"lost {kind}": float(lost[kinds == kind].sum())
        for kind in ("words", "punctuation", "specials")
    }
    return {
        "norm": float(norms[0]),
        "efficient norm": own,
        "other norm": float(np.median(norms[1:])),
        "drawn": len(members),
        "smaller": int((norms < own - 1e-12).sum()),
        "dropped": float(tvd(row, x)),
        "shortfall": max(0.0, own - float(norms.min())),
        "lost": float(lost.sum()),
        **by_kind,
    }


def _kind(key: int, names: Sequence[str], special: np.ndarray) -> str:
    if key >= len(special) or special[key]:
        return "specials"
    return "words" if any(c.isalnum() for c in names[key]) else "punctuation"


# Failing on purpose


def failing(lab: EfficientLab) -> Outcome:
    """Wrong decompositions beside the right one."""
    results = Results("failing")
    rows = lab.every("failing", _failing)
    ways = [way for way, _ in rows.by("way")]
    heat: list[Row] = []
    for subject, own in by_model(lab, results, rows):
        for way in ways:
            wide = Table(r for r in own.where(way=way) if r["null space"])
            if wide:
                error = wide.mean("error")
                results.add(f"output error, {way}", error, note=_lost(way, wide))
                digits = float(-np.log10(max(error.ours or 0.0, 1e-17)))
                heat.append({"way": way, "model": subject.title, "digits kept": digits})
    figure = Figure(
        "failing",
        "What is lost of a head's output",
        "heat",
        heat,
        x="way",
        y="model",
        value="digits kept",
        caption="−log10 of ‖xT − aT‖ ÷ ‖aT‖, the mean over rows with a null space. Rounding leaves"
        " about 16, and fewer where some directions of a model's values are nothing but its own"
        " rounding.",
    )
    return Outcome(results, [figure] if heat else [], {"rows": rows})


def _lost(way: str, rows: Table) -> str:
    worst = max(r["error"] for r in rows)
    if way == "the right one":
        return "Of the norm of the output."
    if worst > 1e-6:
        return f"The output is lost: up to {worst:.2g} of its norm."
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
        trace = attending.trace
        values = trace.values[-1].detach().double().cpu().numpy()[0]
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
                ways["decomposed with padding"] = Space.of(beside).sum_preserving(padded[None])[0][
                    p.keys
                ]
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
