"""Does the part of attention that its output determines, efficient attention, cause the prediction?

That efficient attention gives the same output, and that all attention with this output shares it, is
algebra: these claims fail only where the algebra is not that of the model. How far the output moves with
efficient attention is an experiment (Naim and Asher, 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Variant, check_variant
from heed.claims.claim import Claim, Row
from heed.claims.row_test import Opened, RowTest, described
from heed.claims.study import Study
from heed.errors import InputError
from heed.methods.problems import (
    Problem,
    efficient_rows,
    movement,
    swapped,
)
from heed.metrics import (
    tvd,
)
from heed.models.classifier import (
    REPLACEABLE,
    Classifier,
)
from heed.text import Tokens

_LEAST = 1e-7  # what single precision makes of no movement: nothing is divided by less


def ratio(above: str, below: str) -> Callable[[Mapping[str, np.ndarray]], float]:
    """The quotient of the means of two columns."""
    return lambda columns: float(columns[above].mean() / max(columns[below].mean(), _LEAST))


@dataclass(frozen=True)
class EfficientSufficient(RowTest):
    """Put efficient attention into the running model in the place of the rows that classify.

    Where no row has a null space, efficient attention is attention itself, and nothing changes.
    """

    claim: ClassVar[Claim] = Claim(
        id="efficient-sufficient",
        family="causal",
        sentence="Efficient attention alone gives the prediction",
        statistic="Wasserstein distance of the output after the swap",
        threshold=0.01,
        above=False,
        source="naim2024",
        needs=frozenset({REPLACEABLE}),
    )
    cost: ClassVar[str] = "a pass, and the last layer once more"

    variant: Variant = "norm"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_variant(self.variant)

    def rows(self, study: Study, tokens: Sequence[Tokens], found: Opened) -> list[Row]:
        attending, parts = found
        efficient = efficient_rows(parts, self.variant)
        moved, changed = movement(study.model, attending, swapped(attending, parts, efficient))
        return [
            {
                "value": float(moved[b]),
                "label_changed": float(changed[b]),
                "tvd_from_attention": float(
                    np.mean(
                        [np.mean(tvd(p.by_head(p.rows), p.by_head(efficient[p]))) for p in some]
                        or [0.0]
                    )
                ),
            }
            | described(some)
            for b, some in enumerate(parts)
        ]


@dataclass(frozen=True)
class EfficientNecessary(RowTest):
    """Move efficient attention by a step that its output determines, and by one of the same length that it does not.

    Directions are drawn at random; both keep the sums of rows, and neither asks whether a weight becomes negative. Only
    heads with a null space are moved.
    """

    claim: ClassVar[Claim] = Claim(
        id="efficient-necessary",
        family="causal",
        sentence="Changing efficient attention changes the prediction, and changing the rest does not",
        statistic="movement of the output by a determined step ÷ by one in the null space",
        threshold=10,
        source="naim2024",
        needs=frozenset({REPLACEABLE}),
        combine=ratio("determined", "null"),
        per_document="movement of the output by a determined step",
    )
    cost: ClassVar[str] = "a pass, and the last layer once for each draw"
    open_only = True

    step: float = 0.1
    draws: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(draws=1)
        if not self.step > 0:
            raise InputError(
                f"The setting step of the claim {self.claim.id} must be above 0, got {self.step}."
            )

    def rows(self, study: Study, tokens: Sequence[Tokens], found: Opened) -> list[Row]:
        parts = found[1]
        rngs = [study.rng(self.claim.id, t.document) for t in tokens]
        noise = {p: rng for some, rng in zip(parts, rngs, strict=True) for p in some}
        efficient = efficient_rows(parts)
        determined, null = (
            shifted(study.model, found, efficient, self.step, null, noise, self.draws)
            for null in (False, True)
        )
        return [
            {
                "value": float(determined[b])
                if any(p.space.nullity for p in some)
                else float("nan"),
                "determined": float(determined[b]),
                "null": float(null[b]),
            }
            | described(some)
            for b, some in enumerate(parts)
        ]


def shifted(
    model: Classifier,
    found: Opened,
    efficient: Mapping[Problem, Float[np.ndarray, "row weight"]],
    size: float,
    null: bool,
    noise: Mapping[Problem, np.random.Generator],
    draws: int,
) -> Float[np.ndarray, "batch"]:
    """How far the output moves, in the mean over draws, by random steps from the efficient attention of open heads."""
    attending, parts = found
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
    """A random direction of length one for each row, in the null space or the determined one; 0 if that has none."""
    space = part.space
    basis = space.N if null else space.Q[:, space.sums :]
    if space.Q.shape[1] == space.sums:
        return np.zeros_like(part.rows)
    drawn = rng.standard_normal((len(part.rows), basis.shape[1])) @ basis.T
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@dataclass(frozen=True)
class EfficientShared(RowTest):
    """The farthest attention with the same output: is its efficient attention the same?"""

    claim: ClassVar[Claim] = Claim(
        id="efficient-shared",
        family="causal",
        sentence="All attention with the same output shares its efficient attention",
        statistic="distance between efficient attentions ÷ between the attentions themselves",
        threshold=0.05,
        above=False,
        source="naim2024",
        needs=frozenset({REPLACEABLE}),
        combine=ratio("efficient_distance", "distance"),
        per_document="distance from attention to the farthest one with the same output",
    )
    cost: ClassVar[str] = (
        "a pass, and linear programs for each head: up to a second for a long document"
    )
    slow: ClassVar[bool] = True
    open_only = True

    variant: Variant = "norm"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_variant(self.variant)

    def rows(self, study: Study, tokens: Sequence[Tokens], found: Opened) -> list[Row]:
        return [
            self._row([p for p in some if p.space.nullity]) | described(some) for some in found[1]
        ]

    def _row(self, parts: Sequence[Problem]) -> Row:
        raw, shared = [], []
        for p in parts:
            some = p.rows[np.unique(np.linspace(0, len(p.rows) - 1, 16).astype(int))]
            far = np.stack([p.space.farthest(row) for row in some])
            raw.append(np.mean(tvd(p.by_head(some), p.by_head(far))))
            own, theirs = (p.space.efficient(x, self.variant).rows for x in (some, far))
            shared.append(np.mean(tvd(p.by_head(own), p.by_head(theirs))))
        distance = float(np.mean(raw)) if raw else float("nan")
        return {
            "value": distance,
            "distance": distance,
            "efficient_distance": float(np.mean(shared)) if shared else float("nan"),
        }
