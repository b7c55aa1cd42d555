"""Several explanations of one document side by side, and how far they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.console import Console, ConsoleOptions, RenderResult

from heed.methods.explanation import Explanation
from heed.metrics import kendall


@dataclass(frozen=True, eq=False)
class Comparison:
    """Explanations of one document, and the matrix of Kendall's τ between them (see `agreement`)."""

    explanations: tuple[Explanation, ...]
    agreement: Float[np.ndarray, "method method"]

    @property
    def methods(self) -> list[str]:
        return [e.method for e in self.explanations]

    def to_dict(self) -> dict[str, Any]:
        matrix = [[None if np.isnan(t) else float(t) for t in row] for row in self.agreement]
        return {"explanations": [e.to_dict() for e in self.explanations], "agreement": matrix}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Comparison:
        """The comparison that `to_dict` wrote."""
        matrix = [[np.nan if t is None else t for t in row] for row in values["agreement"]]
        return cls(
            tuple(Explanation.from_dict(e) for e in values["explanations"]),
            np.array(matrix, dtype=float),
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from heed.report import comparison

        yield from comparison.terminal(self, console, options)

    def _repr_html_(self) -> str:
        from heed.report import comparison

        return comparison.html(self)


def agreement(explanations: Sequence[Explanation]) -> Float[np.ndarray, "method method"]:
    """Kendall's τ-b between every two methods; where repeated words share a score in one of them, over distinct words.

    Two signed methods are compared with their signs; where either has none, absolute values are compared.
    """
    matrix = np.eye(len(explanations))
    for i, a in enumerate(explanations):
        for j, b in enumerate(explanations[:i]):
            x, y = aligned([a, b])
            tau = kendall(x, y) if a.signed and b.signed else kendall(np.abs(x), np.abs(y))
            matrix[i, j] = matrix[j, i] = tau
    return matrix


def rank_agreement(a: Explanation, b: Explanation) -> float:
    """Kendall's τ-b between the absolute scores of two explanations of one document."""
    x, y = aligned([a, b])
    return kendall(np.abs(x), np.abs(y))


def aligned(explanations: Sequence[Explanation]) -> list[Float[np.ndarray, "unit"]]:
    """Scores of several explanations of one document over the units of the coarsest, summed over occurrences."""
    coarsest = min(explanations, key=lambda e: len(e.units))
    place = {(u.segment, start): i for i, u in enumerate(coarsest.units) for start, _ in u.spans}
    found = []
    for e in explanations:
        total = np.zeros(len(coarsest.units))
        np.add.at(total, [place[u.segment, u.spans[0][0]] for u in e.units], e.scores)
        found.append(total)
    return found
