"""What the null space of a model's values is like: its size, what it leaves open, and how not to compute it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Space
from heed.methods.problems import Problem, opened, problems
from heed.metrics import tvd
from heed.models.shapes import RecurrentShape
from heed.papers.naim_asher.lab import EfficientLab, Subject
from heed.papers.results import Figure, Outcome, Result, Row, mean_of
from heed.randomness import generator
from heed.text import Tokenizer
from heed.training.recipes import tuning

TOLERANCES = (1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
LENGTHS = (16, 32, 64, 128, 256, 400)
ALGEBRA = "True by construction: it is algebra, and was checked on every row."


def by_model(lab: EfficientLab, rows: Sequence[Row]) -> list[tuple[Subject, list[Row]]]:
    """Rows of each model in turn."""
    return [
        (s, [r for r in rows if (r["dataset"], r["model"]) == (s.data, s.model)])
        for s in lab.subjects
    ]


def _whose_row(row: Row) -> str:
    return f"{row['model']}, {row['dataset']}"


# How large is the null space?


def characterised(lab: EfficientLab) -> Outcome:
    """Rank and null space by architecture, layer, head, length and tolerance."""
    rows = [
        r for s in lab.subjects for r in lab.rows("null spaces", s, partial(_null_spaces, lab, s))
    ]
    results = []
    for s, own in by_model(lab, rows):
        last = [r for r in own if r["layer"] == max(x["layer"] for x in own)]
        share = mean_of([float(r["null space"] > 0) for r in last])
        longest, size = max(r["keys"] for r in last), last[0]["values"]
        note = f"Rows of up to {longest} keys, values of {size} dimensions."
        if share["ours"] == 0:
            note += " No row is longer than the values are wide, so efficient attention is attention itself."
        results.append(
            Result(
                "characterised",
                s.data,
                s.model,
                "share of classifying rows with a null space",
                note=note,
                **share,
            )
        )
        results.append(
            Result(
                "characterised", s.data, s.model, "dimension of the null space of [T, 1]",
                **mean_of([r["null space"] for r in last]),
            )
        )  # fmt: skip
    kinds = lab.piece(
        {"what": "architectures", "lengths": LENGTHS, "seed": lab.seed},
        partial(_architectures, lab),
    )
    shared = max(r["apart"] for r in kinds if r["architecture"] == "grouped keys")
    sweep = [
        r for s in lab.subjects for r in lab.rows("tolerances", s, partial(_tolerances, lab, s))
    ]
    results.append(
        Result(
            "characterised", "random weights", "grouped keys", "null space of a row of 128 keys",
            next(r["null space"] for r in kinds if (r["architecture"], r["keys"]) == ("grouped keys", 128)),
            note="Heads that share their values share their null space: the projections on the null spaces of two such "
            f"heads differ by {shared:.1g} at most.",
        )
    )  # fmt: skip
    figures = [
        Figure(
            "null-space", "Dimension of the null space against the length of the row", "points",
            [
                {"keys": r["keys"], "null space": r["null space"], "model": _whose_row(r)}
                for _, own in by_model(lab, rows)
                for r in own
                if r["layer"] == max(x["layer"] for x in own)
            ],
            x="keys", y="null space", colour="model",
            caption="One point for each document and head, last layer. Below the width of the values there is none.",
        ),
        Figure(
            "layers-and-heads", "Mean dimension of the null space, layer by layer and head by head", "heat",
            [
                {"layer": str(layer), "head": str(head), "model": f"{s.model}, {s.data}"}
                | {"null space": _mean_of_head(own, layer, head)}
                for s, own in by_model(lab, rows)
                for layer, head in sorted({(r["layer"], r["head"]) for r in own})
            ],
            x="head", y="layer", value="null space", panel="model",
        ),
        Figure(
            "architectures", "Null space of the last row by kind of attention", "lines",
            [{"keys": r["keys"], "null space": r["null space"], "architecture": r["architecture"]} for r in kinds],
            x="keys", y="null space", colour="architecture",
            caption="Random weights, values of 32 dimensions. A sliding window keeps rows short; a causal mask leaves "
            "the null space of the last row as it is; how weights are made (additive, dot) does not matter.",
        ),
        Figure(
            "tolerance", "Dimension of the null space against the tolerance", "lines",
            [
                {"log10 of the tolerance": float(np.log10(r["tolerance"])), "null space": r["null space"]}
                | {"model": _whose_row(r)}
                for r in sweep
            ],
            x="log10 of the tolerance", y="null space", colour="model",
            caption="Mean over documents and heads. Where the curve is flat, the rank does not depend on the choice.",
        ),
    ]  # fmt: skip
    return Outcome(results, figures, {"rows": rows, "architectures": kinds, "tolerances": sweep})


def _mean_of_head(rows: Sequence[Row], layer: int, head: int) -> float:
    return float(
        np.mean([r["null space"] for r in rows if (r["layer"], r["head"]) == (layer, head)])
    )


def _null_spaces(lab: EfficientLab, subject: Subject) -> list[Row]:
    import torch

    rows = []
    for batch, tokens in subject.batches(lab.pick(12, 200)):
        with torch.no_grad():
            trace = subject.classifier.trace(tokens)
        for layer in range(len(trace.attention)):
            for i, parts in zip(batch, problems(trace, tokens, layer), strict=True):
                for p in parts:
                    peak = float(p.rows.max(1).mean())
                    rows.append(
                        {
                            "document": i,
                            "layer": layer,
                            "head": p.heads[0],
                            "keys": len(p.keys),
                            "peak": peak,
                        }
                        | {
                            "values": p.space.T.shape[1],
                            "rank": p.space.Q.shape[1],
                            "null space": p.space.nullity,
                        }
                    )
    return rows


def _tolerances(lab: EfficientLab, subject: Subject) -> list[Row]:
    rows = []
    for _, _, p in subject.problems(
        lab.pick(4, 40), TOLERANCES[0]
    ):  # values as they are, with their rounding
        rows += [
            {"tolerance": t, "null space": Space.of(p.space.T, tolerance=t).nullity}
            for t in TOLERANCES
        ]
    return [
        {
            "tolerance": t,
            "null space": float(np.mean([r["null space"] for r in rows if r["tolerance"] == t])),
        }
        for t in TOLERANCES
    ]


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
    for family, shown in kinds.items():
        for keys in LENGTHS:
            recipe = tuning(
                True, {"family": family, "max_tokens": keys, "vocabulary": 2000, "heads": 4}
            )
            with torch.random.fork_rng():
                torch.manual_seed(lab.seed)
                network, tokenizer = scratch(
                    corpus.test.documents[:200], corpus.classes, recipe, (2, 128)
                )
            model = Transformer(network, tokenizer, shown)
            tokens = model.tokens(
                [" ".join(rng.choice(words, 2 * keys)) for _ in range(4)]
            )  # cut to so many keys
            with torch.no_grad():
                trace = model.trace(tokens)
            rows += [
                {"architecture": shown, "keys": keys} | _space_of(parts)
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
    for shown in (*kinds.values(), "additive", "dot"):
        for keys in LENGTHS:
            own = [r for r in rows if (r["architecture"], r["keys"]) == (shown, keys)]
            means.append(
                {
                    "architecture": shown,
                    "keys": keys,
                    "seen": own[0]["seen"],
                    "apart": max(r["apart"] for r in own),
                }
                | {"null space": float(np.mean([r["null space"] for r in own]))}
            )
    return means


def _space_of(parts: Sequence[Problem]) -> Row:
    """Size of the null space of a document's rows, and how far those of its first two heads are apart."""
    projections = [p.space.Q @ p.space.Q.T for p in parts[:2]]
    return {
        "null space": float(np.mean([p.space.nullity for p in parts])),
        "seen": len(parts[0].keys),
        "apart": float(np.abs(projections[0] - projections[-1]).max()),
    }


# The older argument: how much of A + LN(T) is attention at all?


def family_of_rows(lab: EfficientLab) -> Outcome:
    """Steps in the null space against the simplex, and the size of the class."""
    rows = [r for s in lab.subjects for r in lab.rows("steps", s, partial(_steps, lab, s))]
    drawn = lab.piece(
        {"what": "drawn rows", "seed": lab.seed, "n": lab.pick(2, 8)}, partial(_drawn, lab)
    )
    results = []
    for s, own in by_model(lab, rows):
        if not own:
            results.append(
                Result("older-argument", s.data, s.model, "TVD to the farthest attention with the same output", 0.0,
                       n=0, note="Every row is determined: there is no null space.")
            )  # fmt: skip
            continue
        results += [
            Result("older-argument", s.data, s.model, "share of null-space steps of a tenth that leave the simplex",
                   **mean_of([r["leaves"] for r in own])),
            Result("older-argument", s.data, s.model, "largest step inside, as TVD",
                   **mean_of([r["inside"] for r in own]),
                   note=_steps_note(own)),
            Result("older-argument", s.data, s.model, "largest TVD found between two attentions with the same output",
                   **mean_of([r["diameter"] for r in own])),
            Result("older-argument", s.data, s.model, "TVD to the farthest attention with the same output",
                   **mean_of([r["farthest"] for r in own])),
        ]  # fmt: skip
    for n, low in ((128, 0.25), (256, 0.6), (400, 0.85)):
        far = [
            r["farthest"] for r in drawn if (r["keys"], r["values"], r["spread"]) == (n, 64, 2.0)
        ]
        results.append(
            Result("older-argument", "drawn", "softmax of 2 N(0, 1)", f"TVD to the farthest, {n} keys, 64 dimensions",
                   **mean_of(far), note=f"About {low:g} was measured before, with other draws.")
        )  # fmt: skip
    shown = [
        {"keys": n, "TVD to the farthest": float(np.mean([r["farthest"] for r in own])), "values": f"{p} dimensions",
         "attention": f"softmax of {spread:g} N(0, 1)"}
        for n in sorted({r["keys"] for r in drawn}) for p in sorted({r["values"] for r in drawn})
        for spread in sorted({r["spread"] for r in drawn})
        if (own := [r for r in drawn if (r["keys"], r["values"], r["spread"]) == (n, p, spread)])
    ]  # fmt: skip
    figures = [
        Figure(
            "open-by-length", "How far the farthest attention with the same output is", "lines", shown,
            x="keys", y="TVD to the farthest", colour="values", panel="attention",
            caption="Drawn values and rows: the longer the row, the narrower the values and the flatter the "
            "attention, the more is open.",
        ),
        Figure(
            "open-by-peak", "The same in trained models, against the largest weight", "points",
            [
                {"largest weight": r["peak"], "TVD to the farthest": r["farthest"], "model": _whose_row(r)}
                for r in rows
            ],
            x="largest weight", y="TVD to the farthest", colour="model",
        ),
    ]  # fmt: skip
    return Outcome(results, figures, {"rows": rows, "drawn": drawn})


def _steps_note(rows: Sequence[Row]) -> str:
    inside, far = (float(np.mean([r[key] for r in rows])) for key in ("inside", "farthest"))
    return (
        f"A random direction ends at the simplex after {inside:.3f}, where the farthest attention is {far:.3f} away: "
        + (
            "random steps are no adversary."
            if inside < far / 3
            else "here random steps come far, too."
        )
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
    steps /= np.abs(steps).sum(1, keepdims=True).clip(1e-300) / 2  # a step of one is a TVD of one
    inside = np.where(steps < 0, -row / np.where(steps < 0, steps, -1), np.inf).min(1)
    inside = np.where(
        np.isfinite(inside), inside, 0.0
    )  # where there is no null space, there is no step
    far = space.farthest(row)
    return {
        "keys": len(row), "peak": float(row.max()), "values": space.T.shape[1], "null space": space.nullity,
        "leaves": float((inside < 0.1).mean()), "inside": float(inside.mean()),
        "farthest": float(tvd(row, far)), "diameter": max(float(tvd(row, far)), float(tvd(far, space.farthest(far)))),
    }  # fmt: skip


def _drawn(lab: EfficientLab) -> list[Row]:
    rows = []
    for n in LENGTHS[1:]:
        for p in (16, 64):
            for spread in (0.5, 2.0, 5.0):
                for k in range(lab.pick(2, 8)):
                    rng = generator(lab.seed, "drawn", n, p, str(spread), k)
                    space = Space.of(rng.standard_normal((n, p)))
                    row = np.exp(spread * rng.standard_normal(n))
                    rows.append(
                        {"spread": spread} | _open(row / row.sum(), space, rng) | {"values": p}
                    )
    return rows


# A distribution, and the smallest one


def distribution(lab: EfficientLab) -> Outcome:
    """Efficient attention is attention; effective attention is not."""
    rows = [
        r for s in lab.subjects for r in lab.rows("distribution", s, partial(_distribution, lab, s))
    ]
    results, shown = [], []
    for s, own in by_model(lab, rows):
        open_ = [r for r in own if r["null space"]]
        worst = max(max(r["sum error"], -r["smallest"]) for r in own)
        results += [
            Result("distribution", s.data, s.model, "efficient: largest violation (sum − 1, or a negative weight)",
                   worst, n=len(own), note=ALGEBRA),
            Result("distribution", s.data, s.model, "effective: negative mass",
                   **mean_of([r["negative"] for r in own])),
            Result("distribution", s.data, s.model, "effective: |sum of the row − 1|",
                   **mean_of([r["effective sum"] for r in own])),
        ]  # fmt: skip
        shown += [{"model": f"{s.model}, {s.data}", "negative mass": r["negative"]} for r in open_]
    figure = Figure(
        "negative-mass", "Negative mass of effective attention, row by row", "boxes", shown,
        x="model", y="negative mass", caption="Rows with a null space. Efficient attention has none.",
    )  # fmt: skip
    return Outcome(results, [figure] if shown else [], {"rows": rows})


def _distribution(lab: EfficientLab, subject: Subject) -> list[Row]:
    rows = []
    for i, _, p in subject.problems(lab.pick(12, 200)):
        x, effective = p.space.efficient(p.rows).rows[0], p.space.effective(p.rows)[0]
        rows.append(
            {"document": i, "head": p.heads[0], "null space": p.space.nullity}
            | {"sum error": float(abs(x.sum() - 1)), "smallest": float(x.min())}
            | {"negative": float(np.maximum(-effective, 0).sum())}
            | {"effective sum": float(abs(effective.sum() - 1))}
        )
    return rows


def minimal(lab: EfficientLab) -> Outcome:
    """No member of the class is smaller; what was dropped."""
    rows = [r for s in lab.subjects for r in lab.rows("minimal", s, partial(_minimal, lab, s))]
    results = []
    for s, own in by_model(lab, rows):
        if not own:
            results.append(
                Result(
                    "minimal",
                    s.data,
                    s.model,
                    "norm dropped",
                    0.0,
                    note="Every row is determined: nothing is.",
                )
            )
            continue
        smaller = sum(r["smaller"] for r in own)
        results += [
            Result("minimal", s.data, s.model, "members of the class with a smaller norm, of those that were drawn",
                   float(smaller), n=sum(r["drawn"] for r in own), note=ALGEBRA + _by(own)),
            Result("minimal", s.data, s.model, "norm of efficient attention ÷ norm of attention",
                   **mean_of([r["efficient norm"] / r["norm"] for r in own])),
            Result("minimal", s.data, s.model, "weight that changed its place (TVD)",
                   **mean_of([r["dropped"] for r in own]), note=_whose(own)),
        ]  # fmt: skip
    figure = Figure(
        "norms", "Norm of a row, of its efficient attention and of other members of its class", "boxes",
        [
            {"whose": whose, "norm": r[key], "model": _whose_row(r)}
            for r in rows
            for key, whose in (("norm", "attention"), ("efficient norm", "efficient"), ("other norm", "others"))
        ],
        x="whose", y="norm", panel="model",
    )  # fmt: skip
    return Outcome(results, [figure] if rows else [], {"rows": rows})


def _by(rows: Sequence[Row]) -> str:
    """By how much members were smaller all the same: by rounding, where the class is nearly a point."""
    most = max(r["shortfall"] for r in rows)
    if most <= 1e-12:
        return ""
    return f" Norms that are smaller are so by {most:.1g} at most" + (
        ", which is rounding." if most < 1e-8 else ": there, the least was missed."
    )


def _whose(rows: Sequence[Row]) -> str:
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
    kind = [
        "specials"
        if k >= len(special) or special[k]
        else "words"
        if any(c.isalnum() for c in names[k])
        else "punctuation"
        for k in problem.keys
    ]
    by_kind = {
        f"lost {name}": float(lost[[k == name for k in kind]].sum())
        for name in ("words", "punctuation", "specials")
    }
    return {
        "norm": float(norms[0]), "efficient norm": own, "other norm": float(np.median(norms[1:])),
        "drawn": len(members), "smaller": int((norms < own - 1e-12).sum()), "dropped": float(tvd(row, x)),
        "shortfall": max(0.0, own - float(norms.min())),
        "lost": float(lost.sum()), **by_kind,
    }  # fmt: skip


# Failing on purpose


def failing(lab: EfficientLab) -> Outcome:
    """Wrong decompositions beside the right one."""
    rows = [r for s in lab.subjects for r in lab.rows("failing", s, partial(_failing, lab, s))]
    ways = list(dict.fromkeys(r["way"] for r in rows))
    results = []
    for s, own in by_model(lab, rows):
        for way in ways:
            some = [r for r in own if r["way"] == way and r["null space"]]
            if some:
                results.append(
                    Result("failing", s.data, s.model, f"output error, {way}", **mean_of([r["error"] for r in some]),
                           note=_lost(way, some))
                )  # fmt: skip
    shown = [
        {"way": r.metric.removeprefix("output error, "), "model": f"{r.model}, {r.dataset}"}
        | {"digits kept": float(-np.log10(max(r.ours or 0.0, 1e-17)))}
        for r in results
    ]
    figure = Figure(
        "failing", "What is lost of a head's output", "heat", shown, x="way", y="model", value="digits kept",
        caption="−log10 of ‖xT − aT‖ ÷ ‖aT‖, the mean over rows with a null space. Rounding leaves about 16, and "
        "fewer where some directions of a model's values are nothing but its own rounding.",
    )  # fmt: skip
    return Outcome(results, [figure] if shown else [], {"rows": rows})


def _lost(way: str, rows: Sequence[Row]) -> str:
    worst = max(r["error"] for r in rows)
    if way == "the right one":
        return "Of the norm of the output."
    return (
        f"The output is lost: up to {worst:.2g} of its norm."
        if worst > 1e-6
        else "Nothing is lost on these rows."
    )


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
            found = {
                "the right one": p.space.efficient(p.rows).rows[0],
                "clipped and renormalised": clipped / clipped.sum(),
            }
            if len(beside) > len(p.keys):
                found["decomposed with padding"] = Space.of(beside).sum_preserving(padded[None])[0][
                    p.keys
                ]
            for tolerance in (0.01, 0.1):
                Q = Space.of(T, tolerance=tolerance).Q
                found[f"tolerance {tolerance:g}"] = Q @ (Q.T @ a)
            size = float(np.linalg.norm(a @ T)) or 1.0
            rows += [
                {"document": i, "head": p.heads[0], "null space": p.space.nullity, "way": way}
                | {"error": float(np.linalg.norm((x - a) @ T) / size)}
                for way, x in found.items()
            ]
    return rows
