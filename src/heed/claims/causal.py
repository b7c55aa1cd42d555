"""Does efficient attention, the part that its output determines, cause the prediction?

Three things follow from algebra: efficient attention gives the same output, all attention with this
output has the same efficient attention, and a step that the output does not see moves nothing.
These are checks: they fail only if the algebra does not describe the model. How far the output
moves with efficient attention, and how near that is to attention itself, are experiments (Naim and
Asher, 2024).

What a check sees is rounding. In single precision each weight a_j is off by up to ε a_j, ε = 6e-8.
That moves the output o = Σ a_j v_j of a head by up to ε Σ a_j |v_j|, and summing n keys adds about
√n ε |o|. What follows magnifies relative errors of o by some κ, and a probability p moves by
p (1 - p) ≤ 1/4 of what its log-odds do. So what holds exactly shows about κ ε √n / 4: with n = 100
keys, a bound of 1e-6 is passed where κ is beyond 7, as in models with large weights. The column
`rounding` measures it: how far the prediction moves if each weight moves by its own rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Variant
from heed.claims.claim import Refusal, Row, stated
from heed.claims.row_test import Opened, RowTest, described
from heed.claims.study import Study
from heed.methods.problems import Problem, efficient_rows, movement, swapped
from heed.methods.units import units_of
from heed.metrics import kendall, tvd
from heed.models.classifier import Attending
from heed.models.devices import as_numbers
from heed.settings import Above, AtLeast
from heed.text import Tokens

# Rows of a head that checks by linear programs look at, where all rows classify.
_SAMPLE = 16
_WAYS = 4  # in which weights are rounded to see what rounding does


def _too_coarse(study: Study) -> Refusal | None:
    """In half precision, attention that is put back moves the output by rounding alone."""
    if not study.model.half:
        return None
    return Refusal(
        "model",
        "needs single precision (--dtype float32): rounding in half precision moves predictions as"
        " far as what it measures",
    )


@dataclass(frozen=True)
class OutputTest(RowTest):
    """A test that puts other attention into the running model, and looks at the output."""

    def refusal(self, study: Study) -> Refusal | None:
        return _too_coarse(study) or super().refusal(study)


@dataclass(frozen=True)
class EfficientSufficient(OutputTest):
    """Replace the classifying rows by efficient attention in the running model.

    If no row has a null space, efficient attention is attention itself and nothing changes.
    """

    claim = stated("efficient-sufficient")

    variant: Variant = "norm"

    def rows(self, study: Study, tokens: Sequence[Tokens], opened: Opened) -> list[Row]:
        attending, parts = opened
        efficient = efficient_rows(parts, self.variant)
        moved, changed = movement(study.model, attending, swapped(attending, parts, efficient))
        rounding = _rounding(study, tokens, attending)
        rows: list[Row] = []
        for b, problems in enumerate(parts):
            distances = [np.mean(tvd(p.by_head(p.rows), p.by_head(efficient[p]))) for p in problems]
            row = {
                "value": float(moved[b]),
                "rounding": float(rounding[b]),
                "label_changed": float(changed[b]),
                "tvd_from_attention": float(np.mean(distances or [0.0])),
            }
            rows.append(row | described(problems))
        return rows


@dataclass(frozen=True)
class EfficientShared(RowTest):
    """Compare the efficient attention of a row and of the farthest row with the same output.

    Linear programs find the farthest row. At most 16 rows per head, evenly spread, are compared;
    the largest distance between two efficient attentions counts.
    """

    claim = stated("efficient-shared")
    open_only = True

    variant: Variant = "norm"

    def rows(self, study: Study, tokens: Sequence[Tokens], opened: Opened) -> list[Row]:
        return [
            self._row([p for p in problems if p.space.nullity]) | described(problems)
            for problems in opened[1]
        ]

    def _row(self, parts: Sequence[Problem]) -> Row:
        raw, shared = [], []
        for p in parts:
            sample = p.rows[_sample(p)]
            far = np.stack([p.space.farthest(row) for row in sample])
            raw.append(np.mean(tvd(p.by_head(sample), p.by_head(far))))
            before, after = (p.space.efficient(x, self.variant).rows for x in (sample, far))
            shared.append(np.max(tvd(p.by_head(before), p.by_head(after))))
        return {
            "value": float(np.max(shared)) if shared else float("nan"),
            "distance": float(np.mean(raw)) if raw else float("nan"),
        }


@dataclass(frozen=True)
class NullStep(OutputTest):
    """Move attention by a step that its output does not see, and look at the prediction.

    The step leads towards another attention with the same output, the one where a random cost is
    least. It has the length `step`, or ends there if that is nearer. So all of it is attention. The
    farthest that the prediction moves over the draws counts.
    """

    claim = stated("null-step")
    open_only = True

    step: Annotated[float, Above(0)] = 0.1
    draws: Annotated[int, AtLeast(1)] = 4

    def rows(self, study: Study, tokens: Sequence[Tokens], opened: Opened) -> list[Row]:
        attending, parts = opened
        noise = _noise(self, study, tokens, parts)
        steps = [{p: self._stepped(p, rng) for p, rng in noise.items()} for _ in range(self.draws)]
        rows = np.stack([swapped(attending, parts, step) for step in steps])
        moved, _ = movement(study.model, attending, rows)
        rounding = _rounding(study, tokens, attending)
        return [
            {"value": float(moved[:, b].max()) if _is_open(problems) else float("nan")}
            | {"rounding": float(rounding[b])}
            | _lengths([[_taken(p, step[p]) for p in problems] for step in steps], problems)
            | described(problems)
            for b, problems in enumerate(parts)
        ]

    def _stepped(self, part: Problem, rng: np.random.Generator) -> Float[np.ndarray, "row weight"]:
        """Rows after the step; of many rows, only some take it."""
        rows = part.rows.copy()
        if part.space.nullity:
            for i in _sample(part):
                cost = np.asarray(rng.standard_normal(rows.shape[1]))
                step = part.space.member(rows[i], cost) - rows[i]
                length = float(np.linalg.norm(step))
                rows[i] += step * min(1.0, self.step / max(length, _NOTHING))
        return rows


@dataclass(frozen=True)
class EfficientNecessary(OutputTest):
    """Move efficient attention by a step that its output sees, and look at the prediction.

    Each head takes weight from all words alike and puts it on one, drawn at random: from attention
    a to a + t (b − a), where b is that word alone. Then efficient attention of the result takes the
    place of that of a. Both are attention: no weight is negative, and sums are kept. The part of
    the step that the output determines, its projection on the columns of T less their mean, has the
    length `step`; where even t = 1 is shorter, the step is as long as it can be. The mean over the
    draws counts. Only heads with a null space are moved.
    """

    claim = stated("efficient-necessary")
    open_only = True

    step: Annotated[float, Above(0)] = 0.1
    draws: Annotated[int, AtLeast(1)] = 8

    def rows(self, study: Study, tokens: Sequence[Tokens], opened: Opened) -> list[Row]:
        attending, parts = opened
        noise = _noise(self, study, tokens, parts)
        steps = [{p: self._stepped(p, rng) for p, rng in noise.items()} for _ in range(self.draws)]
        base, moved_rows = efficient_rows(parts), []
        for step in steps:
            efficient = {p: p.space.efficient(rows).rows for p, rows in step.items()}
            moved_rows.append(swapped(attending, parts, efficient))
        moved, _ = movement(
            study.model, attending, np.stack(moved_rows), swapped(attending, parts, base)
        )
        return [
            {"value": float(moved[:, b].mean()) if _is_open(problems) else float("nan")}
            | _lengths([[_seen(p, step[p] - p.rows) for p in problems] for step in steps], problems)
            | described(problems)
            for b, problems in enumerate(parts)
        ]

    def _stepped(self, part: Problem, rng: np.random.Generator) -> Float[np.ndarray, "row weight"]:
        """Attention that gives what it gave, and a little more of it to one word in each head."""
        if not part.space.nullity:
            return part.rows
        count, keys = len(part.rows), len(part.keys)
        ends = np.zeros((count, len(part.heads), keys))
        chosen = rng.integers(keys, size=(count, len(part.heads), 1))
        np.put_along_axis(ends, chosen, 1.0, 2)
        whole = ends.reshape(count, -1) - part.rows
        lengths = np.linalg.norm(_seen(part, whole), axis=1, keepdims=True)
        return part.rows + whole * np.minimum(1.0, self.step / np.maximum(lengths, _NOTHING))


_NOTHING = 1e-300  # instead of a length of 0, which cannot divide


def _rounding(
    study: Study, tokens: Sequence[Tokens], attending: Attending
) -> Float[np.ndarray, "batch"]:
    """How far predictions move if each weight moves by its own rounding, up or down at random."""
    import torch

    own = attending.trace.classifying_rows()
    rows = np.repeat(as_numbers(own)[None], _WAYS, 0)
    for b, t in enumerate(tokens):
        shape = (_WAYS, own.shape[1], min(own.shape[2], len(t)), len(t))
        ways = study.rng("rounding", t.document).choice([-1.0, 1.0], shape)
        rows[:, b, :, : shape[2], : len(t)] *= 1 + torch.finfo(own.dtype).eps * ways
    return movement(study.model, attending, rows)[0].max(0)


def _seen(part: Problem, steps: Float[np.ndarray, "row weight"]) -> Float[np.ndarray, "row weight"]:
    """The part of steps that the output determines."""
    # the first columns of Q span the sums of rows, which steps keep
    basis = part.space.Q[:, part.space.sums :]
    return (steps @ basis) @ basis.T


def _sample(part: Problem) -> list[int]:
    """At most 16 rows, evenly spread: each costs linear programs."""
    return sorted({int(i) for i in np.linspace(0, len(part.rows) - 1, _SAMPLE)})


def _taken(part: Problem, rows: Float[np.ndarray, "row weight"]) -> Float[np.ndarray, "row weight"]:
    """The steps to these rows, of those rows that take one."""
    return (rows - part.rows)[_sample(part)]


def _is_open(parts: Sequence[Problem]) -> bool:
    return any(p.space.nullity for p in parts)


def _noise(
    test: RowTest, study: Study, tokens: Sequence[Tokens], parts: Sequence[Sequence[Problem]]
) -> dict[Problem, np.random.Generator]:
    """The random generator of each problem: those of a document share one."""
    noise: dict[Problem, np.random.Generator] = {}
    for problems, t in zip(parts, tokens, strict=True):
        noise |= dict.fromkeys(problems, study.rng(test.claim.id, t.document))
    return noise


def _lengths(
    steps: Sequence[Sequence[Float[np.ndarray, "row weight"]]], parts: Sequence[Problem]
) -> Row:
    """The mean length of the steps that were taken, head by head."""
    taken = [
        np.linalg.norm(moved, axis=1)
        for draw in steps
        for moved, p in zip(draw, parts, strict=True)
        if p.space.nullity
    ]
    return {"length": float(np.concatenate(taken).mean()) if taken else float("nan")}


@dataclass(frozen=True)
class EfficientNear(RowTest):
    """Compare the order in which attention and efficient attention put the words of a document.

    Kendall's τ between their weights, mean over heads and over the rows that classify. A word of
    several tokens has the sum of their weights. Only documents whose output leaves some of
    attention open count: in the others both are the same.
    """

    claim = stated("efficient-near")
    open_only = True

    variant: Variant = "norm"

    def rows(self, study: Study, tokens: Sequence[Tokens], opened: Opened) -> list[Row]:
        attending, parts = opened
        raw = {p: p.rows for problems in parts for p in problems}
        both = [
            swapped(attending, parts, rows) for rows in (raw, efficient_rows(parts, self.variant))
        ]
        rows: list[Row] = []
        for b, (t, problems) in enumerate(zip(tokens, parts, strict=True)):
            own, efficient = (self._of_words(study, attention[b], t) for attention in both)
            value = kendall(own, efficient) if _is_open(problems) else float("nan")
            distance = np.abs(own - efficient).sum() / (own.sum() + efficient.sum() or 1.0)
            row = {"value": value, "tvd_from_attention": float(distance)}
            rows.append(row | described(problems))
        return rows

    def _of_words(
        self, study: Study, attention: Float[np.ndarray, "head query key"], tokens: Tokens
    ) -> Float[np.ndarray, "unit"]:
        """The weight of each unit."""
        units, groups = units_of(tokens, study.unit)
        # of rows that all classify, those beyond the document are padding
        weights = attention[:, : len(tokens)].mean((0, 1))[: len(tokens)]
        inside = groups >= 0
        return np.bincount(groups[inside], weights[inside], len(units))
