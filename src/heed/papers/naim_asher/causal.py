"""What efficient attention does in running models: swapped in, shifted, shared by adversaries, head by head."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Variant
from heed.claims.adversary import Adversary
from heed.claims.causal import direction, shifted
from heed.methods.problems import Problem, efficient_rows, movement, opened, problems, swapped
from heed.metrics import spearman, tvd
from heed.models.classifier import Attending
from heed.papers.naim_asher.lab import EfficientLab, Subject
from heed.papers.naim_asher.spaces import ALGEBRA, by_model
from heed.papers.results import Figure, Outcome, Result, Row, mean_of
from heed.randomness import generator
from heed.text import Tokens

if TYPE_CHECKING:
    from torch import Tensor

SIZES = (0.003, 0.01, 0.03, 0.1, 0.3)
CLASSIFYING, ALL = "the row that classifies", "all rows of all layers"
_NEAR = 0.01
_PUT: tuple[tuple[str, Variant], ...] = (
    (CLASSIFYING, "norm"),
    (CLASSIFYING, "entropy"),
    (ALL, "norm"),
)


def wasserstein(
    a: Float[np.ndarray, "*row key"], b: Float[np.ndarray, "*row key"]
) -> Float[np.ndarray, "*row"]:
    """The Wasserstein distance between distributions over places, the first being at 0 and the last at 1."""
    return np.abs(np.cumsum(a - b, -1))[..., :-1].sum(-1) / max(1, a.shape[-1] - 1)


# Sufficient


def sufficient(lab: EfficientLab) -> Outcome:
    """Efficient attention in the place of attention, in the running model."""
    rows = [r for s in lab.subjects for r in lab.rows("swap", s, partial(_swap, lab, s))]
    whole = [r for s in lab.subjects if s.stacked for r in _whole(lab, s)]
    rows += [
        {
            k: r[k]
            for k in ("dataset", "model", "document", "moved", "changed", "swapped", "variant")
        }
        for r in whole
        if r["layer"] == 0 and r["head"] == 0
    ]
    results = []
    for s, own in by_model(lab, rows):
        for what, variant in _PUT:
            some = [r for r in own if r["swapped"] == what and r["variant"] == variant]
            if not some:
                continue
            put = f"{what} swapped" + (" for that of most entropy" if variant == "entropy" else "")
            found = mean_of([r["moved"] for r in some])
            note = _verdict(found["ours"]) + _left(s, _swaps(lab)[what, variant], some)
            results.append(
                Result("sufficient", s.data, s.model, f"Wasserstein distance of the output, {put}",
                       published="< 0.01", note=note, **found)
            )  # fmt: skip
            results.append(
                Result("sufficient", s.data, s.model, f"labels that changed, {put}",
                       **mean_of([r["changed"] for r in some]))
            )  # fmt: skip
    figure = Figure(
        "sufficient", "How far the output moves when efficient attention is put in", "boxes",
        [
            {"model": f"{r['model']}, {r['dataset']}", "log10 of the distance": float(np.log10(max(r["moved"], 1e-12)))}
            | {"swapped": r["swapped"]}
            for r in rows if r["variant"] == "norm"
        ],
        x="model", y="log10 of the distance", panel="swapped",
        caption="The paper asks for less than −2. What is left is rounding.",
    )  # fmt: skip
    return Outcome(results, [figure], {"documents": rows})


def _verdict(distance: float | None) -> str:
    if distance is None:
        return ""
    return (
        "Holds; algebra, as far as the model's own rounding lets it."
        if distance < _NEAR
        else "Does not hold."
    )


def _left(subject: Subject, asked: int, rows: Sequence[Row]) -> str:
    """How many of the documents have no rows."""
    left = min(len(subject.documents), asked) - len({r["document"] for r in rows})
    return (
        f" {left} documents are left out: double precision is not enough for their rows."
        if left
        else ""
    )


def _swaps(lab: EfficientLab) -> dict[tuple[str, Variant], int]:
    """Documents in which attention is swapped: all of them, or some where that takes long."""
    return dict(zip(_PUT, (lab.pick(12, 10**9), lab.pick(12, 500), lab.pick(3, 24)), strict=True))


def _swap(lab: EfficientLab, subject: Subject) -> list[Row]:
    asked = [(variant, n) for (what, variant), n in _swaps(lab).items() if what == CLASSIFYING]
    return [
        r for variant, n in asked for r in subject.reached(n, partial(_swap_of, subject, variant))
    ]


def _swap_of(
    subject: Subject, variant: Variant, batch: Sequence[int], tokens: Sequence[Tokens]
) -> list[Row]:
    attending, parts = opened(subject.classifier, tokens)
    new = swapped(attending, parts, efficient_rows(parts, variant))
    moved, changed = movement(subject.classifier, attending, new)
    return [
        {
            "document": i,
            "swapped": CLASSIFYING,
            "variant": variant,
            "moved": float(m),
            "changed": float(c),
        }
        for i, m, c in zip(batch, moved, changed, strict=True)
    ]


def _whole(lab: EfficientLab, subject: Subject) -> list[Row]:
    """All rows of all layers: one row of results for each document, layer and head."""
    return lab.rows("swap all", subject, partial(_swap_all, lab, subject))


def _swap_all(lab: EfficientLab, subject: Subject) -> list[Row]:
    return subject.reached(_swaps(lab)[ALL, "norm"], partial(_swap_all_of, subject))


def _swap_all_of(subject: Subject, batch: Sequence[int], tokens: Sequence[Tokens]) -> list[Row]:
    import torch

    model = subject.classifier
    with torch.no_grad():
        trace = model.trace(tokens)
    attention: dict[int, Tensor] = {}
    heads: list[Row] = []
    for layer, own in enumerate(trace.attention):
        new = np.full(own.shape, np.nan)
        for b, some in enumerate(problems(trace, tokens, layer, rows=own)):
            far: dict[int, list[tuple[float, float, int]]] = {}
            for p in some:
                x = p.space.efficient(p.rows).rows
                p.put(x, new[b])
                both = zip(np.ravel(tvd(p.rows, x)), np.ravel(wasserstein(p.rows, x)), strict=True)
                far.setdefault(p.heads[0], []).extend((t, w, p.space.nullity > 0) for t, w in both)
            heads += [
                {"document": batch[b], "layer": layer, "head": h, "keys": len(tokens[b])}
                | dict(zip(("TVD", "Wasserstein", "open"), map(float, np.mean(v, 0)), strict=True))
                for h, v in far.items()
            ]
        attention[layer] = torch.from_numpy(new).to(own.dtype)
    with torch.no_grad():
        after = model.probabilities(
            model.trace(tokens, attention=attention, layers=()).logits.double().numpy()
        )
    before = model.probabilities(trace.logits.detach().double().numpy())
    place = {i: b for b, i in enumerate(batch)}
    for r in heads:
        b = place[r["document"]]
        r |= {
            "moved": float(tvd(after[b], before[b])),
            "changed": float(after[b].argmax() != before[b].argmax()),
        }
    return [r | {"swapped": ALL, "variant": "norm"} for r in heads]


# Near the original?


def near(lab: EfficientLab) -> Outcome:
    """How far efficient attention is from attention, layer by layer and head by head."""
    rows: list[Row] = []
    for s in lab.subjects:
        rows += _whole(lab, s) if s.stacked else lab.rows("near", s, partial(_near, lab, s))
    results = []
    for s, own in by_model(lab, rows):
        swaps = own if s.stacked else lab.rows("swap", s, partial(_swap, lab, s))
        moved = float(np.mean([r["moved"] for r in swaps if r["variant"] == "norm"]))
        for metric in ("TVD", "Wasserstein"):
            found = mean_of([r[metric] for r in own])
            small = found["ours"] is not None and found["ours"] < _NEAR
            note = f"The output moves by {moved:.1g}; attention itself by this."
            note += "" if small or moved >= _NEAR else " “Below 0.01” is true of the output alone."
            note += _left(s, _swaps(lab)[ALL, "norm"] if s.stacked else _nears(lab), own)
            results.append(
                Result("near", s.data, s.model, f"{metric} between attention and efficient attention",
                       note=note, **found)
            )  # fmt: skip
    figures = [
        Figure(
            f"near-{metric.lower()}", f"{metric} between attention and efficient attention", "heat",
            [
                {"layer": str(layer), "head": str(head), "model": f"{s.model}, {s.data}"}
                | {metric: float(np.mean([r[metric] for r in own if (r["layer"], r["head"]) == (layer, head)]))}
                for s, own in by_model(lab, rows)
                for layer, head in sorted({(r["layer"], r["head"]) for r in own})
            ],
            x="head", y="layer", value=metric, panel="model",
            caption="Mean over documents"
            + (" (and over rows, in transformers)." if metric == "TVD" else "; places run from 0 to 1."),
        )
        for metric in ("TVD", "Wasserstein")
    ]  # fmt: skip
    return Outcome(results, figures, {"heads": rows})


def _nears(lab: EfficientLab) -> int:
    return lab.pick(12, 500)


def _near(lab: EfficientLab, subject: Subject) -> list[Row]:
    return subject.reached(_nears(lab), partial(_near_of, subject))


def _near_of(subject: Subject, batch: Sequence[int], tokens: Sequence[Tokens]) -> list[Row]:
    rows = []
    for i, some in zip(batch, opened(subject.classifier, tokens)[1], strict=True):
        for p in some:
            x = p.space.efficient(p.rows).rows
            rows.append(
                {"document": i, "layer": 0, "head": p.heads[0], "keys": len(p.keys)}
                | {
                    "TVD": float(np.mean(tvd(p.rows, x))),
                    "Wasserstein": float(wasserstein(p.rows, x).mean()),
                }
                | {"open": float(p.space.nullity > 0)}
            )
    return rows


# Adversaries share it


def shared(lab: EfficientLab) -> Outcome:
    """Attention with the same output: how far apart raw and efficient attention are."""
    rows = [
        r for s in lab.subjects for r in lab.rows("adversaries", s, partial(_adversaries, lab, s))
    ]
    rows += [
        r
        for s in lab.subjects
        if s.model == "BiLSTM"
        for r in lab.rows("searched adversaries", s, partial(_searched, lab, s))
    ]
    results, shown = [], []
    for s, own in by_model(lab, rows):
        for kind in ("linear program", "search"):
            some = [r for r in own if r["adversary"] == kind]
            if not some:
                continue
            exact = kind == "linear program"
            for key, (what, short) in _BETWEEN.items():
                if key not in some[0]:
                    continue
                found = mean_of([r[key] for r in some])
                algebra = "" if key == "raw" else ALGEBRA if exact else _SEARCH
                results.append(
                    Result(
                        "shared",
                        s.data,
                        s.model,
                        f"TVD between {what}, {kind}",
                        note=algebra,
                        **found,
                    )
                )
                shown.append(
                    {"distance between": short, "TVD": found["ours"]}
                    | {
                        "low": found["low"],
                        "high": found["high"],
                        "model": f"{s.model}, {s.data}: {kind}",
                    }
                )
    figure = Figure(
        "shared", "Attention and its adversary, and the efficient attention of both", "dots", shown,
        x="TVD", y="distance between", panel="model",
        caption="Linear program: the same output of each head. Search: the same prediction within .01, by the "
        "optimiser of Jain and Wallace, and efficient attention at the level of the prediction.",
    )  # fmt: skip
    return Outcome(results, [figure] if shown else [], {"rows": rows})


_BETWEEN = {
    "raw": ("attention and adversary", "attention"),
    "efficient": ("their efficient attentions (least norm)", "efficient, least norm"),
    "entropy": ("their efficient attentions (most entropy)", "efficient, most entropy"),
}
_SEARCH = "Not exactly nil: the search keeps the prediction within .01, not exactly."


def _adversaries(lab: EfficientLab, subject: Subject) -> list[Row]:
    rows = []
    for i, _, p in subject.problems(lab.pick(6, 60)):
        if not p.space.nullity:
            continue
        both = np.stack([p.rows[0], p.space.farthest(p.rows[0])])
        row = {
            "document": i,
            "head": p.heads[0],
            "adversary": "linear program",
            "raw": _apart(both),
        }
        for key, variant in (("efficient", "norm"), ("entropy", "entropy")):
            row[key] = _apart(p.space.efficient(both, variant).rows)  # type: ignore[arg-type]
        rows.append(row)
    return rows


def _apart(rows: Float[np.ndarray, "two key"]) -> float:
    return float(tvd(rows[0], rows[1]))


def _searched(lab: EfficientLab, subject: Subject) -> list[Row]:
    """The adversary of Jain and Wallace, and efficient attention at the level of the prediction."""
    model, rows = subject.classifier, []
    for batch, tokens in subject.batches(lab.pick(6, 200)):
        attending, parts = opened(model, tokens, "prediction", words=True)
        base = [attending.trace.classifying_rows()]
        target = model.probabilities(attending.trace.logits.detach().double().numpy())
        adversary = Adversary(base, attending.trace, tokens)
        noise = [generator(lab.seed, "search", i) for i in batch]
        found = adversary.search(
            partial(_first, model.attending(tokens)),
            target,
            True,
            noise,
            steps=lab.pick(60, 500),
            penalty=5000.0,
        )
        for b, (i, some) in enumerate(zip(batch, parts, strict=True)):
            close = np.flatnonzero(found.moves[:, b] <= 0.01)
            if not len(close) or not some or not some[0].space.nullity:
                continue
            p = some[0]
            best = close[found.distances[close, b].argmax()]
            other = found.rows[0][best, b, 0, 0].double().numpy()[p.keys]
            both = np.stack([p.rows[0], other / other.sum()])
            # one row keeps its output exactly, the other its own: each has its class
            efficient = np.concatenate([p.space.efficient(row[None]).rows for row in both])
            rows.append(
                {
                    "document": i,
                    "adversary": "search",
                    "raw": _apart(both),
                    "efficient": _apart(efficient),
                }
                | {"moved": float(found.moves[best, b])}
            )
    return rows


def _first(attending: Attending, rows: Sequence[Tensor]) -> Tensor:
    return attending.logits(rows[0])


# Necessary


def necessary(lab: EfficientLab) -> Outcome:
    """Shifts of efficient attention: by steps that the output determines, and by steps that it does not."""
    rows = [
        r
        for s in lab.subjects
        for r in lab.rows("shifts", s, partial(_shifts, lab, s), sizes=SIZES)
    ]
    results = []
    for s, own in by_model(lab, rows):
        if not own:
            results.append(
                Result("necessary", s.data, s.model, "rows with a null space", 0.0, note=_NONE)
            )
            continue
        for size in (0.01, 0.1):
            some = [r for r in own if r["size"] == size]
            for kind in ("determined", "null"):
                results.append(
                    Result("necessary", s.data, s.model, f"movement of the output, {kind} step of {size:g}",
                           **mean_of([r[kind] for r in some]))
                )  # fmt: skip
        some = [r for r in own if r["size"] == 0.1]
        ratio = float(
            np.mean([r["determined"] for r in some])
            / max(np.mean([r["null"] for r in some]), 1e-12)
        )
        results.append(
            Result("necessary", s.data, s.model, "determined ÷ null, steps of 0.1", ratio, n=len(some),
                   note="That null steps do nothing is algebra; that the others do is experience.")
        )  # fmt: skip
    shown = [
        {"log10 of the step": float(np.log10(size)), "step": kind, "model": f"{s.model}, {s.data}"}
        | {
            "log10 of the movement": float(
                np.log10(max(1e-10, np.mean([r[kind] for r in own if r["size"] == size])))
            )
        }
        for s, own in by_model(lab, rows)
        if own
        for size in SIZES
        for kind in ("determined", "null")
    ]
    figure = Figure(
        "dose", "How the output moves with the dose", "lines", shown, x="log10 of the step", y="log10 of the movement",
        colour="step", panel="model",
        caption="Steps of the same length from efficient attention, in the determined space and in the null space.",
    )  # fmt: skip
    return Outcome(results, [figure] if shown else [], {"documents": rows})


_NONE = "Every row is determined: there is no step that the output does not see."


def _shifts(lab: EfficientLab, subject: Subject) -> list[Row]:
    return subject.reached(lab.pick(6, 200), partial(_shifts_of, subject, lab.seed))


def _shifts_of(
    subject: Subject, seed: int, batch: Sequence[int], tokens: Sequence[Tokens]
) -> list[Row]:
    found = opened(subject.classifier, tokens)
    parts, rows = found[1], []
    open_ = [b for b, some in enumerate(parts) if any(p.space.nullity for p in some)]
    efficient = efficient_rows(parts)
    for size in SIZES if open_ else ():
        means = {}
        for kind in ("determined", "null"):
            noise = {
                p: generator(seed, kind, i, p.heads[0])
                for i, some in zip(batch, parts, strict=True)
                for p in some
            }
            means[kind] = shifted(
                subject.classifier, found, efficient, size, kind == "null", noise, draws=4
            )
        rows += [
            {"document": batch[b], "size": size}
            | {kind: float(moved[b]) for kind, moved in means.items()}
            for b in open_
        ]
    return rows


# Where context matters


def context(lab: EfficientLab) -> Outcome:
    """What is lost with uniform attention, beside what a shift of efficient attention does."""
    rows: list[Row] = []
    for s in lab.subjects:
        if s.model != "BiLSTM":
            continue
        trained = lab.rows("uniform", s, partial(_uniform, lab, s))[0]
        shifts = lab.rows("shifts everywhere", s, partial(_moves, lab, s))
        rows.append(
            {
                "dataset": s.data,
                "model": s.model,
                "accuracy": trained["accuracy"],
                "uniform": trained["uniform"],
            }
            | {
                "lost": trained["accuracy"] - trained["uniform"],
                "moved": float(np.mean([r["moved"] for r in shifts])),
            }
        )
    results = []
    order = {
        key: ", ".join(r["dataset"] for r in sorted(rows, key=lambda r: -r[key]))
        for key in ("lost", "moved")
    }
    together = (
        f" From most to least, by accuracy lost: {order['lost']}; by movement: {order['moved']}."
    )
    for r in rows:
        note = f"Uniform attention, trained again, costs {r['lost']:.3f} of the accuracy."
        results += [
            Result("context", r["dataset"], r["model"], "accuracy", r["accuracy"]),
            Result(
                "context",
                r["dataset"],
                r["model"],
                "accuracy with attention frozen to uniform",
                r["uniform"],
            ),
            Result(
                "context",
                r["dataset"],
                r["model"],
                "movement of the output by a determined step of 0.1",
                r["moved"],
                note=note + (together if len(rows) > 1 else ""),
            ),
        ]
    figure = Figure(
        "context", "What attention is worth, and what a shift of it does", "points", rows, x="lost", y="moved",
        colour="dataset", caption="lost: accuracy with attention minus accuracy with uniform weights, trained again.",
    )  # fmt: skip
    return Outcome(results, [figure], {"sets": rows})


def _uniform(lab: EfficientLab, subject: Subject) -> list[Row]:
    name = lab.name_of(subject)
    flat: Any = lab.retraining(name, lab.limit(name)).again(1, uniform=True)
    gold = np.array([d.label for d in subject.documents])
    return [
        {
            "accuracy": float((subject.classifier(subject.documents).argmax(1) == gold).mean()),
            "uniform": float((flat(subject.documents).argmax(1) == gold).mean()),
        }
    ]


def _moves(lab: EfficientLab, subject: Subject) -> list[Row]:
    """A step in the space of the values, also of rows that have no null space."""
    rows = []
    for batch, tokens in subject.batches(lab.pick(12, 200)):
        attending, parts = opened(subject.classifier, tokens)
        noise = {
            p: generator(lab.seed, "inside", i, p.heads[0])
            for i, some in zip(batch, parts, strict=True)
            for p in some
        }
        put = swapped(
            attending,
            parts,
            {p: p.rows + 0.1 * direction(p, False, rng) for p, rng in noise.items()},
        )
        moved, _ = movement(subject.classifier, attending, put)
        rows += [{"document": i, "moved": float(m)} for i, m in zip(batch, moved, strict=True)]
    return rows


# Head by head


def heads(lab: EfficientLab) -> Outcome:
    """Which heads carry the prediction, and whether their attention shows it."""
    subjects = [s for s in lab.subjects if s.model != "BiLSTM"]
    rows = [r for s in subjects for r in lab.rows("heads", s, partial(_heads, lab, s))]
    results, shown = [], []
    for s in subjects:
        own = [r for r in rows if (r["dataset"], r["model"]) == (s.data, s.model)]
        each = {
            key: [
                float(np.mean([r[key] for r in own if r["head"] == h]))
                for h in sorted({r["head"] for r in own})
            ]
            for key in ("ablated", "ablated efficient", "peaked", "peaked efficient")
        }
        shown += [
            {"head": str(h), "movement": moved, "model": f"{s.model}, {s.data}"}
            for h, moved in enumerate(each["ablated"])
        ]
        order = spearman(np.array(each["ablated"]), np.array(each["ablated efficient"]))
        note = "Algebra: what a head puts out is the same, so is what its loss does." + _left(
            s, _headed(lab), own
        )
        results.append(
            Result("heads", s.data, s.model, "ranking of heads by ablation: attention beside efficient (ρ)", order,
                   n=len(each["ablated"]), note=note)
        )  # fmt: skip
        for key, what in (("peaked", "attention"), ("peaked efficient", "efficient attention")):
            results.append(
                Result("heads", s.data, s.model, f"ρ of a head's importance with how far its {what} is from uniform",
                       spearman(np.array(each["ablated"]), np.array(each[key])), n=len(each["ablated"]),
                       note="" if len(each["ablated"]) > 8 else f"Of {len(each['ablated'])} heads: that says little.")
            )  # fmt: skip
    figure = Figure(
        "heads", "How far the output moves when one head attends to everything alike", "bars", shown,
        x="head", y="movement", panel="model", caption="Mean over documents; last layer.",
    )  # fmt: skip
    return Outcome(results, [figure], {"heads": rows})


def _headed(lab: EfficientLab) -> int:
    return lab.pick(6, 200)


def _heads(lab: EfficientLab, subject: Subject) -> list[Row]:
    return subject.reached(_headed(lab), partial(_heads_of, subject))


def _heads_of(subject: Subject, batch: Sequence[int], tokens: Sequence[Tokens]) -> list[Row]:
    rows = []
    attending, parts = opened(subject.classifier, tokens)
    efficient = efficient_rows(parts)
    base = swapped(attending, parts, efficient)
    for head in sorted({p.heads[0] for some in parts for p in some}):
        raw = {p: p.rows for p in efficient}
        put = [
            swapped(
                attending,
                parts,
                {p: _uniform_like(p) if p.heads[0] == head else x for p, x in own.items()},
            )
            for own in (raw, efficient)
        ]
        plain, _ = movement(subject.classifier, attending, put[0])
        new, _ = movement(subject.classifier, attending, put[1], base)
        for b, i in enumerate(batch):
            (p,) = [p for p in parts[b] if p.heads[0] == head][:1]
            flat = _uniform_like(p)
            rows.append(
                {
                    "document": i,
                    "head": head,
                    "ablated": float(plain[b]),
                    "ablated efficient": float(new[b]),
                }
                | {"peaked": float(np.mean(tvd(p.rows, flat)))}
                | {"peaked efficient": float(np.mean(tvd(efficient[p], flat)))}
            )
    return rows


def _uniform_like(problem: Problem) -> Float[np.ndarray, "row weight"]:
    return np.full_like(problem.rows, 1 / len(problem.keys))


# Beyond the prediction


def beyond(lab: EfficientLab) -> Outcome:
    """What swapping the first layer does to everything behind it."""
    subjects = [s for s in lab.subjects if s.stacked]
    rows = [r for s in subjects for r in lab.rows("states beyond", s, partial(_beyond, lab, s))]
    results = []
    for s in subjects:
        own = [r for r in rows if (r["dataset"], r["model"]) == (s.data, s.model)]
        for put in ("efficient", "uniform"):
            some = [r for r in own if r["put in"] == put]
            note = (
                "Algebra: a layer's output is kept, so is all that follows."
                if put == "efficient"
                else "Control."
            )
            results.append(
                Result("beyond", s.data, s.model, f"relative change of later layers' hidden states, first layer {put}",
                       note=note, **mean_of([r["states"] for r in some]))
            )  # fmt: skip
            results.append(
                Result("beyond", s.data, s.model, f"… of later layers' values, first layer {put}",
                       **mean_of([r["values"] for r in some]))
            )  # fmt: skip
            results.append(
                Result("beyond", s.data, s.model, f"… of later layers' attention (TVD), first layer {put}",
                       **mean_of([r["attention"] for r in some]))
            )  # fmt: skip
    figure = Figure(
        "beyond", "Change of later layers' hidden states when the first layer attends otherwise", "boxes",
        [
            {"put in": f"{r['put in']}, layer {r['layer']}", "model": f"{r['model']}, {r['dataset']}"}
            | {"log10 of the change": float(np.log10(max(r["states"], 1e-12)))}
            for r in rows
        ],
        x="put in", y="log10 of the change", panel="model",
        caption="Hidden states of a layer: what it puts out, for every token; change by norm.",
    )  # fmt: skip
    return Outcome(results, [figure] if rows else [], {"documents": rows})


def _beyond(lab: EfficientLab, subject: Subject) -> list[Row]:
    import torch

    model, rows = subject.classifier, []
    for batch, tokens in subject.batches(lab.pick(2, 16)):
        with torch.no_grad():
            trace = model.trace(tokens)
        own = trace.attention[0]
        new = {kind: np.full(own.shape, np.nan) for kind in ("efficient", "uniform")}
        for b, some in enumerate(problems(trace, tokens, 0, rows=own)):
            for p in some:
                p.put(p.space.efficient(p.rows).rows, new["efficient"][b])
                p.put(_uniform_like(p), new["uniform"][b])
        for kind, put in new.items():
            with torch.no_grad():
                after = model.trace(tokens, attention={0: torch.from_numpy(put).to(own.dtype)})
            for b, (i, t) in enumerate(zip(batch, tokens, strict=True)):
                real = slice(len(t))
                for layer in range(1, len(trace.values)):
                    before, then = (
                        x.attention[layer][b, :, real].double().numpy() for x in (trace, after)
                    )
                    rows.append(
                        {"document": i, "put in": kind, "layer": layer}
                        | {"states": _changed(*(x.states[layer][b, real] for x in (trace, after)))}
                        | {
                            "values": _changed(
                                *(x.values[layer][b, :, real] for x in (trace, after))
                            )
                        }
                        | {"attention": float(np.mean(tvd(before, then)))}
                    )
    return rows


def _changed(was: Float[Tensor, "..."], now: Float[Tensor, "..."]) -> float:
    """By how much of its norm something changed."""
    return float((now.double() - was.double()).norm() / was.double().norm())
