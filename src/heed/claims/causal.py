"""Does efficient attention, the part that its output determines, cause the prediction?

Two of these claims follow from algebra: efficient attention gives the same output, and all
attention with this output has the same efficient attention. They fail only if the algebra does not
describe the model. How far the output moves with efficient attention is an experiment (Naim and
Asher, 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Variant
from heed.claims.claim import Columns, Refusal, Row, stated
from heed.claims.row_test import Opened, RowTest, described
from heed.claims.study import Study
from heed.methods.problems import Problem, efficient_rows, movement, swapped
from heed.metrics import tvd
from heed.models.classifier import Classifier
from heed.settings import Above, AtLeast
from heed.text import Tokens

# Rounding error of single precision: a movement this small means none, so no ratio divides by less.
_LEAST = 1e-7


def ratio(above: str, below: str) -> Callable[[Columns], float]:
    """The quotient of the means of two columns."""
    return lambda columns: float(columns[above].mean() / max(columns[below].mean(), _LEAST))


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
class EfficientSufficient(RowTest):
    """Replace the classifying rows by efficient attention in the running model.

    If no row has a null space, efficient attention is attention itself and nothing changes.
    """

    claim = stated("efficient-sufficient")

    variant: Variant = "norm"

    def refusal(self, study: Study) -> Refusal | None:
        return _too_coarse(study) or super().refusal(study)

    def rows(self, study: Study, tokens: Sequence[Tokens], opened: Opened) -> list[Row]:
        attending, parts = opened
        efficient = efficient_rows(parts, self.variant)
        moved, changed = movement(study.model, attending, swapped(attending, parts, efficient))
        rows: list[Row] = []
        for b, problems in enumerate(parts):
            distances = [np.mean(tvd(p.by_head(p.rows), p.by_head(efficient[p]))) for p in problems]
            row = {
                "value": float(moved[b]),
                "label_changed": float(changed[b]),
                "tvd_from_attention": float(np.mean(distances or [0.0])),
            }
            rows.append(row | described(problems))
        return rows


@dataclass(frozen=True)
class EfficientNecessary(RowTest):
    """Move efficient attention by a random step, once outside its null space and once inside.

    Outside, the step changes the output of attention; inside, it does not. Both steps have the same
    length and keep the sums of rows; weights may become negative. Only heads with a null space are
    moved.
    """

    claim = stated("efficient-necessary", ratio("determined", "null"))
    open_only = True

    step: Annotated[float, Above(0)] = 0.1
    draws: Annotated[int, AtLeast(1)] = 8

    def refusal(self, study: Study) -> Refusal | None:
        return _too_coarse(study) or super().refusal(study)

    def rows(self, study: Study, tokens: Sequence[Tokens], opened: Opened) -> list[Row]:
        parts = opened[1]
        noise: dict[Problem, np.random.Generator] = {}
        for problems, t in zip(parts, tokens, strict=True):
            noise |= dict.fromkeys(problems, study.rng(self.claim.id, t.document))
        efficient = efficient_rows(parts)
        determined, null = (
            shifted(study.model, opened, efficient, self.step, null, noise, self.draws)
            for null in (False, True)
        )
        rows: list[Row] = []
        for b, problems in enumerate(parts):
            moved = {"determined": float(determined[b]), "null": float(null[b])}
            is_open = any(p.space.nullity for p in problems)
            value = moved["determined"] if is_open else float("nan")
            rows.append({"value": value} | moved | described(problems))
        return rows


def shifted(
    model: Classifier,
    opened: Opened,
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
            p: x + size * direction(p, null, noise[p]) if p.space.nullity else x
            for p, x in efficient.items()
        }
        for _ in range(draws)
    ]
    rows = np.stack([swapped(attending, parts, x) for x in steps])
    return movement(model, attending, rows, swapped(attending, parts, efficient))[0].mean(0)


def direction(
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


@dataclass(frozen=True)
class EfficientShared(RowTest):
    """Compare the efficient attention of a row and of the farthest row with the same output.

    Linear programs find the farthest row. At most 16 rows per head, evenly spread, are compared.
    """

    claim = stated("efficient-shared", ratio("efficient_distance", "distance"))
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
            # at most 16 rows, evenly spread: each costs a linear program
            sample = p.rows[np.unique(np.linspace(0, len(p.rows) - 1, 16).astype(int))]
            far = np.stack([p.space.farthest(row) for row in sample])
            raw.append(np.mean(tvd(p.by_head(sample), p.by_head(far))))
            before, after = (p.space.efficient(x, self.variant).rows for x in (sample, far))
            shared.append(np.mean(tvd(p.by_head(before), p.by_head(after))))
        distance = float(np.mean(raw)) if raw else float("nan")
        return {
            "value": distance,
            "distance": distance,
            "efficient_distance": float(np.mean(shared)) if shared else float("nan"),
        }
