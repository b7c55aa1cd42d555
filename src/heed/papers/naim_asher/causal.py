"""What efficient attention does in running models: swapped in, shifted, shared by adversaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Variant
from heed.claims.adversary import Adversary
from heed.methods.problems import Problem, efficient_rows, movement, opened, problems, swapped
from heed.metrics import spearman, tvd
from heed.models.classifier import Attending, Classifier
from heed.papers.naim_asher.lab import Batch, EfficientLab, Subject, by_batch, by_head
from heed.papers.naim_asher.spaces import ALGEBRA, DETERMINED, by_model, head_means, title
from heed.papers.results import Outcome, Results, figure, texts
from heed.papers.table import Row, Table
from heed.randomness import generator
from heed.text import Tokens

if TYPE_CHECKING:
    from torch import Tensor

SIZES = (0.003, 0.01, 0.03, 0.1, 0.3)
STEPS = ("determined", "null")  # kinds of step: that the output sees, and that it does not
CLASSIFYING, ALL = "the row that classifies", "all rows of all layers"
THRESHOLD = 0.01  # the paper's, for distances that count as small
# Documents that are measured in a smoke test and at full scale.
_WHOLE, _NEAR, _HEADS = (3, 24), (12, 500), (6, 200)


def wasserstein(
    a: Float[np.ndarray, "*row key"], b: Float[np.ndarray, "*row key"]
) -> Float[np.ndarray, "*row"]:
    """The Wasserstein distance between distributions over positions from 0 to 1."""
    return np.abs(np.cumsum(a - b, -1))[..., :-1].sum(-1) / max(1, a.shape[-1] - 1)


# Sufficient


def sufficient(lab: EfficientLab) -> Outcome:
    """Efficient attention in place of attention, in the running model."""
    results = Results("sufficient")
    columns = ("dataset", "model", "document", "moved", "changed", "swapped", "variant")
    rows = lab.every("swap", _swap)
    for r in lab.every("swap all", _swap_all, _stacked(lab)).where(layer=0, head=0):
        rows.append({column: r[column] for column in columns})
    for subject, swaps in by_model(lab, results, rows):
        for (what, variant), group in swaps.by("swapped", "variant"):
            put = f"{what} swapped" + (" for that of most entropy" if variant == "entropy" else "")
            moved = group.mean("moved")
            n = lab.pick(*_WHOLE) if what == ALL else lab.pick(*_SWAPS[variant])
            note = _verdict(moved.ours) + _left(subject, n, group)
            metric = f"Wasserstein distance of the output, {put}"
            results.add(metric, moved, published="< 0.01", note=note)
            results.add(f"labels that changed, {put}", group.mean("changed"))
    boxes = [
        {"model": title(r), "swapped": r["swapped"]}
        | {"log10 of the distance": _log10(r["moved"], 1e-12)}
        for r in rows.where(variant="norm")
    ]
    return Outcome(results, [figure("sufficient", boxes)], {"documents": rows})


def _stacked(lab: EfficientLab) -> list[Subject]:
    return [s for s in lab.subjects if s.stacked]


def _log10(value: float, least: float) -> float:
    """For a chart: numbers below `least` are rounding, and nothing has no logarithm."""
    return float(np.log10(max(value, least)))


def _verdict(distance: float | None) -> str:
    if distance is None:
        return ""
    holds = "Holds by algebra, up to the model's own rounding."
    return holds if distance < THRESHOLD else "Does not hold."


def _left(subject: Subject, n: int, rows: Sequence[Row]) -> str:
    """How many of the first n documents have no rows."""
    left = min(len(subject.documents), n) - len({r["document"] for r in rows})
    note = f" {left} documents are left out: double precision is not enough for their rows."
    return note if left else ""


# How many documents are swapped: all, or fewer where that takes long.
_SWAPS: dict[Variant, tuple[int, int]] = {"norm": (12, 10**9), "entropy": (12, 500)}


def _swap(lab: EfficientLab, subject: Subject) -> list[Row]:
    rows: list[Row] = []
    for variant, n in _SWAPS.items():
        rows += subject.reached(lab.pick(*n), partial(_swap_of, subject, variant))
    return rows


def _swap_of(subject: Subject, variant: Variant, batch: Batch) -> list[Row]:
    attending, parts = opened(subject.classifier, batch.tokens)
    new = swapped(attending, parts, efficient_rows(parts, variant))
    moved, changed = movement(subject.classifier, attending, new)
    return [
        {"document": i, "moved": float(m), "changed": float(c)}
        | {"swapped": CLASSIFYING, "variant": variant}
        for i, m, c in zip(batch.documents, moved, changed, strict=True)
    ]


@by_batch(*_WHOLE)
def _swap_all(lab: EfficientLab, subject: Subject, batch: Batch) -> list[Row]:
    """All rows of all layers: one row of results for each document, layer and head."""
    import torch

    model, tokens = subject.classifier, batch.tokens
    with torch.no_grad():
        trace = model.trace(tokens)
    attention: dict[int, Tensor] = {}
    rows: list[Row] = []
    for layer, weights in enumerate(trace.attention):
        new = np.full(weights.shape, np.nan)
        for b, parts in enumerate(problems(trace, tokens, layer, rows=weights)):
            far: dict[int, list[tuple[float, float, int]]] = {}
            for p in parts:
                x = p.space.efficient(p.rows).rows
                p.put(x, new[b])
                both = zip(np.ravel(tvd(p.rows, x)), np.ravel(wasserstein(p.rows, x)), strict=True)
                far.setdefault(p.heads[0], []).extend((t, w, p.space.nullity > 0) for t, w in both)
            for head, distances in far.items():
                apart, moved, free = map(float, np.mean(distances, 0))
                rows.append(
                    {"batch": b, "document": batch.documents[b], "layer": layer, "head": head}
                    | {"keys": len(tokens[b]), "TVD": apart, "Wasserstein": moved, "open": free}
                )
        attention[layer] = torch.from_numpy(new).to(weights.dtype)
    with torch.no_grad():
        logits = model.trace(tokens, attention=attention, layers=()).logits
    after = model.probabilities(logits.double().numpy())
    before = model.probabilities(trace.logits.detach().double().numpy())
    for row in rows:
        b = row.pop("batch")
        row["moved"] = float(tvd(after[b], before[b]))
        row["changed"] = float(after[b].argmax() != before[b].argmax())
    return [row | {"swapped": ALL, "variant": "norm"} for row in rows]


# Near the original?


def near(lab: EfficientLab) -> Outcome:
    """How far efficient attention is from attention, layer by layer and head by head."""
    results = Results("near")
    rows = Table()
    heat: dict[str, list[Row]] = {"TVD": [], "Wasserstein": []}
    for subject in lab.subjects:
        what, measure = ("swap all", _swap_all) if subject.stacked else ("near", _near)
        rows += lab.every(what, measure, [subject])
    for subject, distances in by_model(lab, results, rows):
        swaps = distances if subject.stacked else lab.every("swap", _swap, [subject])
        moved = swaps.where(variant="norm").average("moved")
        n = lab.pick(*(_WHOLE if subject.stacked else _NEAR))
        for metric in heat:
            mean = distances.mean(metric)
            small = mean.ours is not None and mean.ours < THRESHOLD
            note = f"The output moves by {moved:.1g}; attention itself moves by this distance."
            if not small and moved < THRESHOLD:
                note += " Only for the output is it below 0.01."
            note += _left(subject, n, distances)
            results.add(f"{metric} between attention and efficient attention", mean, note=note)
            heat[metric] += head_means(distances, subject, metric)
    charts = [figure(f"near-{metric.lower()}", cells) for metric, cells in heat.items()]
    return Outcome(results, charts, {"heads": rows})


@by_batch(*_NEAR)
def _near(lab: EfficientLab, subject: Subject, batch: Batch) -> list[Row]:
    rows = []
    _, by_document = opened(subject.classifier, batch.tokens)
    for i, parts in zip(batch.documents, by_document, strict=True):
        for p in parts:
            x = p.space.efficient(p.rows).rows
            rows.append(
                {
                    "document": i,
                    "layer": 0,
                    "head": p.heads[0],
                    "keys": len(p.keys),
                    "TVD": float(np.mean(tvd(p.rows, x))),
                    "Wasserstein": float(wasserstein(p.rows, x).mean()),
                    "open": float(p.space.nullity > 0),
                }
            )
    return rows


# Adversaries share it


def shared(lab: EfficientLab) -> Outcome:
    """Attention with the same output: how far apart raw and efficient attention are."""
    results = Results("shared")
    recurrent = [s for s in lab.subjects if s.model == "BiLSTM"]
    rows = lab.every("adversaries", _adversaries)
    rows += lab.every("searched adversaries", _searched, recurrent)
    dots = []
    for subject, adversaries in by_model(lab, results, rows):
        for kind, pairs in adversaries.by("adversary"):
            for key, what in texts("metrics")["between"].items():
                if key not in pairs[0]:
                    continue
                mean = pairs.mean(key)
                algebra = ALGEBRA if kind == "linear program" else _SEARCH
                note = "" if key == "raw" else algebra
                results.add(f"TVD between {what}, {kind}", mean, note=note)
                panel = f"{subject.title}: {kind}"
                dots.append(mean.row("TVD", model=panel) | {"distance between": _SHORT[key]})
    return Outcome(results, [figure("shared", dots)] if dots else [], {"rows": rows})


_SHORT = {
    "raw": "attention",
    "efficient": "efficient, least norm",
    "entropy": "efficient, most entropy",
}
_SEARCH = "Not exactly 0, because the search keeps the prediction only within .01."


@by_head(6, 60)
def _adversaries(lab: EfficientLab, document: int, tokens: Tokens, problem: Problem) -> Row:
    row, space = problem.rows[0], problem.space
    both = np.stack([row, space.farthest(row, starts=1)])
    return {
        "adversary": "linear program",
        "raw": _apart(both),
        "efficient": _apart(space.efficient(both, "norm").rows),
        "entropy": _apart(space.efficient(both, "entropy").rows),
    }


def _apart(rows: Float[np.ndarray, "two key"]) -> float:
    return float(tvd(rows[0], rows[1]))


def _searched(lab: EfficientLab, subject: Subject) -> list[Row]:
    """The adversary of Jain and Wallace, and efficient attention at the level of the prediction."""
    model, rows = subject.classifier, []
    for batch, tokens in subject.batches(lab.pick(6, 200)):
        words = [~t.special for t in tokens]
        attending, parts = opened(model, tokens, "prediction", free=words)
        base = [attending.trace.classifying_rows()]
        target = model.probabilities(attending.trace.logits.detach().double().numpy())
        noise = [generator(lab.seed, "search", i) for i in batch]
        candidates = Adversary(base, attending.trace, words).search(
            partial(_first, model.attending(tokens)),
            target,
            True,
            noise,
            steps=lab.pick(60, 500),
            penalty=5000.0,
        )
        for b, (i, problem) in enumerate(zip(batch, parts, strict=True)):
            close = np.flatnonzero(candidates.moves[:, b] <= 0.01)
            if not len(close) or not problem or not problem[0].space.nullity:
                continue
            p = problem[0]
            best = close[candidates.distances[close, b].argmax()]
            other = candidates.rows[0][best, b, 0, 0].double().numpy()[p.keys]
            both = np.stack([p.rows[0], other / other.sum()])
            # one row keeps its output exactly, the other its own: each has its class
            efficient = np.concatenate([p.space.efficient(row[None]).rows for row in both])
            rows.append(
                {
                    "document": i,
                    "adversary": "search",
                    "raw": _apart(both),
                    "efficient": _apart(efficient),
                    "moved": float(candidates.moves[best, b]),
                }
            )
    return rows


def _first(attending: Attending, rows: Sequence[Tensor]) -> Tensor:
    return attending.logits(rows[0])


# Necessary


def necessary(lab: EfficientLab) -> Outcome:
    """Shifts of efficient attention by steps that the output sees, and by steps it does not."""
    results = Results("necessary")
    rows = lab.every("shifts", _shifts, sizes=SIZES)
    lines: list[Row] = []
    for subject, shifts in by_model(lab, results, rows):
        if not shifts:
            note = f"{DETERMINED}: there is no step that the output does not see."
            results.add("rows with a null space", 0.0, note=note)
            continue
        for size, kind in product((0.01, 0.1), STEPS):
            metric = f"movement of the output, {kind} step of {size:g}"
            results.add(metric, shifts.where(size=size).mean(kind))
        tenths = shifts.where(size=0.1)
        results.add(
            "determined ÷ null, steps of 0.1",
            # a movement of 0 cannot divide
            tenths.average("determined") / max(tenths.average("null"), 1e-12),
            n=len(tenths),
            note="Algebra says that null steps do nothing; that the others do is measured.",
        )
        lines += [
            {"log10 of the step": float(np.log10(size)), "step": kind, "model": subject.title}
            | {"log10 of the movement": _log10(shifts.where(size=size).average(kind), 1e-10)}
            for size, kind in product(SIZES, STEPS)
        ]
    return Outcome(results, [figure("dose", lines)] if lines else [], {"documents": rows})


@by_batch(6, 200)
def _shifts(lab: EfficientLab, subject: Subject, batch: Batch) -> list[Row]:
    attending, parts = opened(subject.classifier, batch.tokens)
    rows: list[Row] = []
    wide = [b for b, problem in enumerate(parts) if any(p.space.nullity for p in problem)]
    efficient = efficient_rows(parts)
    for size in SIZES if wide else ():
        moves = {}
        for kind in STEPS:
            noise = _noise(lab.seed, kind, batch.documents, parts)
            model, null = subject.classifier, kind == "null"
            moves[kind] = _shifted(model, (attending, parts), efficient, size, null, noise, draws=4)
        for b in wide:
            means = {kind: float(moved[b]) for kind, moved in moves.items()}
            rows.append({"document": batch.documents[b], "size": size} | means)
    return rows


def _shifted(
    model: Classifier,
    opened: tuple[Attending, Sequence[Sequence[Problem]]],
    efficient: Mapping[Problem, Float[np.ndarray, "row weight"]],
    size: float,
    null: bool,
    noise: Mapping[Problem, np.random.Generator],
    draws: int,
) -> Float[np.ndarray, "batch"]:
    """How far random steps from efficient attention move the output, as the mean over draws.

    Only heads with a null space are moved.
    """
    attending, parts = opened
    steps = [
        {
            p: x + size * _direction(p, null, noise[p]) if p.space.nullity else x
            for p, x in efficient.items()
        }
        for _ in range(draws)
    ]
    rows = np.stack([swapped(attending, parts, x) for x in steps])
    return movement(model, attending, rows, swapped(attending, parts, efficient))[0].mean(0)


def _direction(
    part: Problem, null: bool, rng: np.random.Generator
) -> Float[np.ndarray, "row weight"]:
    """A random unit vector for each row, inside the null space or orthogonal to it.

    It is 0 if the output determines nothing but the sums of rows.
    """
    space = part.space
    # the first columns of Q span the sums of rows, which must stay
    basis = space.N if null else space.Q[:, space.sums :]
    if space.Q.shape[1] == space.sums:
        return np.zeros_like(part.rows)
    drawn = rng.standard_normal((len(part.rows), basis.shape[1])) @ basis.T
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _noise(
    seed: int, kind: str, batch: Sequence[int], parts: Sequence[Sequence[Problem]]
) -> dict[Problem, np.random.Generator]:
    """A generator of its own for every row of every document."""
    return {
        p: generator(seed, kind, i, p.heads[0])
        for i, problem in zip(batch, parts, strict=True)
        for p in problem
    }


# Where context matters


def context(lab: EfficientLab) -> Outcome:
    """What is lost with uniform attention, beside what a shift of efficient attention does."""
    results = Results("context")
    rows: list[Row] = []
    for subject in lab.subjects:
        if subject.model != "BiLSTM":
            continue
        trained = lab.every("uniform", _uniform, [subject])[0]
        shifts = lab.every("shifts everywhere", _moves, [subject])
        lost = trained["accuracy"] - trained["uniform"]
        rows.append(trained | {"lost": lost, "moved": shifts.average("moved")})
    order = {
        key: ", ".join(r["dataset"] for r in sorted(rows, key=lambda r: -r[key]))
        for key in ("lost", "moved")
    }
    together = (
        f" From most to least, by accuracy lost: {order['lost']}; by movement: {order['moved']}."
    )
    for r in rows:
        results.dataset, results.model = r["dataset"], r["model"]
        note = f"Uniform attention, trained again, costs {r['lost']:.3f} of the accuracy."
        note += together if len(rows) > 1 else ""
        results.add("accuracy", r["accuracy"])
        results.add("accuracy with attention frozen to uniform", r["uniform"])
        results.add("movement of the output by a determined step of 0.1", r["moved"], note=note)
    return Outcome(results, [figure("context", rows)], {"sets": rows})


def _uniform(lab: EfficientLab, subject: Subject) -> list[Row]:
    flat: Any = lab.retraining(subject.name).again(1, uniform=True)
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
        noise = _noise(lab.seed, "inside", batch, parts)
        steps = {p: p.rows + 0.1 * _direction(p, False, rng) for p, rng in noise.items()}
        moved, _ = movement(subject.classifier, attending, swapped(attending, parts, steps))
        rows += [{"document": i, "moved": float(m)} for i, m in zip(batch, moved, strict=True)]
    return rows


# Head by head


def heads(lab: EfficientLab) -> Outcome:
    """Which heads carry the prediction, and whether their attention shows it."""
    results = Results("heads")
    subjects = [s for s in lab.subjects if s.model != "BiLSTM"]
    rows = lab.every("heads", _heads, subjects)
    bars: list[Row] = []
    for subject, model_rows in by_model(lab, results, rows, subjects):
        groups = [group for _, group in model_rows.by("head", ordered=True)]
        columns = ("ablated", "ablated efficient", "peaked", "peaked efficient")
        each = {key: np.array([group.average(key) for group in groups]) for key in columns}
        bars += [
            {"head": str(head), "movement": float(moved), "model": subject.title}
            for head, moved in enumerate(each["ablated"])
        ]
        note = "By algebra: a head's output is the same, and so is the effect of losing it."
        results.add(
            "ranking of heads by ablation: attention beside efficient (ρ)",
            spearman(each["ablated"], each["ablated efficient"]),
            n=len(groups),
            note=note + _left(subject, lab.pick(*_HEADS), model_rows),
        )
        few = f"With only {len(groups)} heads, this says little." if len(groups) <= 8 else ""
        for key, what in (("peaked", "attention"), ("peaked efficient", "efficient attention")):
            metric = f"ρ of a head's importance with how far its {what} is from uniform"
            order = spearman(each["ablated"], each[key])
            results.add(metric, order, n=len(groups), note=few)
    return Outcome(results, [figure("heads", bars)], {"heads": rows})


@by_batch(*_HEADS)
def _heads(lab: EfficientLab, subject: Subject, batch: Batch) -> list[Row]:
    rows = []
    model = subject.classifier
    attending, parts = opened(model, batch.tokens)
    efficient = efficient_rows(parts)
    raw = {p: p.rows for p in efficient}
    base = swapped(attending, parts, efficient)
    for head in sorted({p.heads[0] for problem in parts for p in problem}):
        plain, _ = movement(model, attending, swapped(attending, parts, _flattened(raw, head)))
        flat_efficient = swapped(attending, parts, _flattened(efficient, head))
        new, _ = movement(model, attending, flat_efficient, base)
        for b, i in enumerate(batch.documents):
            p = next(p for p in parts[b] if p.heads[0] == head)
            flat = _uniform_like(p)
            rows.append(
                {
                    "document": i,
                    "head": head,
                    "ablated": float(plain[b]),
                    "ablated efficient": float(new[b]),
                    "peaked": float(np.mean(tvd(p.rows, flat))),
                    "peaked efficient": float(np.mean(tvd(efficient[p], flat))),
                }
            )
    return rows


def _flattened(
    rows: dict[Problem, Float[np.ndarray, "row weight"]], head: int
) -> dict[Problem, Float[np.ndarray, "row weight"]]:
    """Rows in which one head attends to everything alike."""
    return {p: _uniform_like(p) if p.heads[0] == head else x for p, x in rows.items()}


def _uniform_like(problem: Problem) -> Float[np.ndarray, "row weight"]:
    return np.full_like(problem.rows, 1 / len(problem.keys))


# Beyond the prediction


def beyond(lab: EfficientLab) -> Outcome:
    """What swapping the first layer does to everything behind it."""
    results = Results("beyond")
    subjects = _stacked(lab)
    rows = lab.every("states beyond", _beyond, subjects)
    algebra = "By algebra: the layer's output stays the same, and so does all that follows."
    for _, model_rows in by_model(lab, results, rows, subjects):
        for kind, swaps in model_rows.by("put in"):
            layer = f"first layer {kind}"
            results.add(
                f"relative change of later layers' hidden states, {layer}",
                swaps.mean("states"),
                note=algebra if kind == "efficient" else "Control.",
            )
            results.add(f"… of later layers' values, {layer}", swaps.mean("values"))
            results.add(f"… of later layers' attention (TVD), {layer}", swaps.mean("attention"))
    boxes = [
        {"put in": f"{r['put in']}, layer {r['layer']}", "model": title(r)}
        | {"log10 of the change": _log10(r["states"], 1e-12)}
        for r in rows
    ]
    return Outcome(results, [figure("beyond", boxes)] if rows else [], {"documents": rows})


def _beyond(lab: EfficientLab, subject: Subject) -> list[Row]:
    import torch

    model, rows = subject.classifier, []
    for batch, tokens in subject.batches(lab.pick(2, 16)):
        with torch.no_grad():
            trace = model.trace(tokens)
        weights = trace.attention[0]
        new = {kind: np.full(weights.shape, np.nan) for kind in ("efficient", "uniform")}
        for b, parts in enumerate(problems(trace, tokens, 0, rows=weights)):
            for p in parts:
                p.put(p.space.efficient(p.rows).rows, new["efficient"][b])
                p.put(_uniform_like(p), new["uniform"][b])
        for kind, attention in new.items():
            put = {0: torch.from_numpy(attention).to(weights.dtype)}
            with torch.no_grad():
                both = (trace, model.trace(tokens, attention=put))
            for b, (i, t) in enumerate(zip(batch, tokens, strict=True)):
                real = slice(len(t))
                for layer in range(1, len(trace.values)):
                    before, after = (x.attention[layer][b, :, real].double().numpy() for x in both)
                    states = [x.states[layer][b, real] for x in both]
                    values = [x.values[layer][b, :, real] for x in both]
                    rows.append(
                        {
                            "document": i,
                            "put in": kind,
                            "layer": layer,
                            "states": _changed(*states),
                            "values": _changed(*values),
                            "attention": float(np.mean(tvd(before, after))),
                        }
                    )
    return rows


def _changed(was: Float[Tensor, "..."], now: Float[Tensor, "..."]) -> float:
    """By how much of its norm something changed."""
    return float((now.double() - was.double()).norm() / was.double().norm())
