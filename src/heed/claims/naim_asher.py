"""Tests of "On Explaining with Attention Matrices" (Naim and Asher, 2024), by efficient attention as heed defines it.

That efficient attention gives the same output, and is shared by all attention that does, is algebra: these claims can
fail where the algebra is not that of the model, and they measure how far the rest of attention may move. That the
output moves with efficient attention, and how far the output determines attention at all, is experience.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import Variant, check_variant
from heed.algebra.programs import ascend
from heed.claims.claim import Claim, ClaimTest, Row, Study
from heed.errors import InputError, NotApplicable, UnknownName
from heed.methods.problems import (
    Level,
    Problem,
    check_space,
    efficient_rows,
    movement,
    opened,
    openness,
    swapped,
)
from heed.metrics import tvd
from heed.models.classifier import PROJECTED, REPLACEABLE, Attending, Classifier
from heed.text import Tokens

_LEAST = 1e-7  # what single precision makes of no movement: nothing is divided by less
Opened = tuple[Attending, list[list[Problem]]]


def ratio(above: str, below: str) -> Callable[[Mapping[str, np.ndarray]], float]:
    """The quotient of the means of two columns."""
    return lambda columns: float(columns[above].mean() / max(columns[below].mean(), _LEAST))


def described(parts: Sequence[Problem]) -> Row:
    """How much is open in a document."""
    if not parts:  # no word has any weight
        return {"keys": 0, "null_space": 0.0, "rows_open": 0.0}
    return {"keys": max(len(p.keys) for p in parts)} | openness(parts)


@dataclass(frozen=True)
class OfRows(ClaimTest):
    """A test of the rows that classify, in the last layer.

    level       what counts as their output: that of each "head", or "layer" or "prediction"
    positions   "words": special tokens and padding keep their weights, and distances are those of shares on words
    tolerance   directions in which the values are smaller than this share of their norm count as none
    """

    open_only: ClassVar[bool] = (
        False  # whether it needs documents with more than one attention for their output
    )

    level: Level = "head"
    positions: Literal["words", "all"] = "words"
    tolerance: float | None = None

    def __post_init__(self) -> None:
        check_space(self.level, self.tolerance)
        if self.positions not in ("words", "all"):
            raise UnknownName("choice of positions", str(self.positions), ("words", "all"))

    @abstractmethod
    def rows(self, study: Study, tokens: Sequence[Tokens], found: Opened) -> list[Row]:
        """The rows of a few documents."""

    def refusal(self, study: Study) -> str:
        if why := super().refusal(study):
            return why
        if self.level in ("projected", "layer") and PROJECTED not in study.model.offers:
            return f"needs {PROJECTED}, which the model does not offer"
        longest = sorted(study.model.tokens(study.documents), key=len)[-8:]
        try:
            found = [self._opened(study, [t])[1][0] for t in longest]
        except NotApplicable as error:
            return str(error)[0].lower() + str(error)[1:].rstrip(".")
        some = [part for parts in found for part in parts]
        if self.open_only and not any(part.space.nullity for part in some):
            size = some[0].space.T.shape[1] if some else 0
            return (
                f"the output determines attention even in the longest of these documents ({len(longest[-1])} tokens, "
                f"{size} numbers of output): there is no other attention to compare with"
            )
        return ""

    def measure(self, study: Study) -> list[Row]:
        return study.by_batch(
            self,
            lambda tokens: self.rows(study, tokens, self._opened(study, tokens)),
            most=study.model.batch_tokens,
        )

    def _opened(self, study: Study, tokens: Sequence[Tokens]) -> Opened:
        return opened(
            study.model,
            tokens,
            self.level,
            words=self.positions == "words",
            tolerance=self.tolerance,
        )


@dataclass(frozen=True)
class Identified(OfRows):
    """How far attention can go while its output stays what it is: the vectors that heads put out, not the prediction.

    For every document the farthest attention with the same output is looked for by linear programs: first the one that
    overlaps least with the mean over heads that is judged, then on to farther ones as long as there are any. What they
    find is a lower bound of the largest distance. Where all rows classify, some of them, evenly spread, are looked at.
    """

    claim: ClassVar[Claim] = Claim(
        id="identified",
        family="determined",
        sentence="The output determines attention",
        statistic="TVD to the farthest attention with the same output",
        threshold=0.1,
        above=False,
        source="brunner2020 naim2024",
        needs=frozenset({REPLACEABLE}),
    )
    cost: ClassVar[str] = (
        "a pass, and least squares and linear programs for each head: up to a second for a long document"
    )
    dear: ClassVar[bool] = True

    queries: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(queries=1)

    def rows(self, study: Study, tokens: Sequence[Tokens], found: Opened) -> list[Row]:
        return [{"value": self._distance(parts)} | described(parts) for parts in found[1]]

    def _distance(self, parts: Sequence[Problem]) -> float:
        every = sorted({int(q) for p in parts for q in p.queries})
        if not every:
            return float("nan")
        chosen = [
            every[i] for i in np.unique(np.linspace(0, len(every) - 1, self.queries).astype(int))
        ]
        distances = []
        for q in chosen:
            some = [(p, int(np.flatnonzero(p.queries == q)[0])) for p in parts if q in p.queries]
            judged = np.sum([p.by_head(p.rows)[:, i].T @ p.masses[i] for p, i in some], 0)
            total = np.sum([p.masses[i].sum() for p, i in some])
            if total == 0:
                continue
            distances.append(_farthest(some, judged) / float(total))
        return float(np.mean(distances)) if distances else float("nan")


def _farthest(rows: Sequence[tuple[Problem, int]], judged: Float[np.ndarray, "key"]) -> float:
    """The largest TVD that is found between the sum of some heads' rows and that of other rows with their outputs."""
    each = [p.space.smallest(p.rows[i]) if p.space.nullity else None for p, i in rows]

    def smallest(cost: Float[np.ndarray, "key"]) -> Float[np.ndarray, "key"]:
        """Where all heads together cost least."""
        total = np.zeros_like(judged)
        for (p, i), cheapest in zip(rows, each, strict=True):
            row = p.rows[i]
            if cheapest is not None:
                row = p.space.polished(
                    row, cheapest(np.concatenate([cost * m for m in p.masses[i]]))
                )
            total += p.by_head(row[None])[:, 0].T @ p.masses[i]
        return total

    far = ascend(smallest, judged, lambda x: x - judged)
    return float(np.abs(far - judged).sum() / 2)


@dataclass(frozen=True)
class EfficientSufficient(OfRows):
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
class EfficientNecessary(OfRows):
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
class EfficientShared(OfRows):
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
    dear: ClassVar[bool] = True
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
