"""Several explanations of one document side by side, and how far they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.console import Console, ConsoleOptions, RenderResult

from heed.methods.explanation import Explanation
from heed.metrics import kendall


@dataclass(frozen=True, eq=False)
class Comparison:
    """Explanations of one document by several methods.

    left_out    the methods that did not run although nobody named others, each with the reason
    """

    explanations: tuple[Explanation, ...]
    left_out: dict[str, str] = field(default_factory=dict)

    @cached_property
    def agreement(self) -> Float[np.ndarray, "method method"]:
        """Kendall's τ between every two methods (see the function `agreement`)."""
        return agreement(self.explanations)

    @property
    def methods(self) -> list[str]:
        return [e.method for e in self.explanations]

    def __repr__(self) -> str:
        label = self.explanations[0].label
        return (
            f"<Comparison of {len(self.methods)} methods for {label!r}: {', '.join(self.methods)}>"
        )

    def to_dict(self) -> dict[str, Any]:
        explanations = [e.to_dict() for e in self.explanations]
        return {"explanations": explanations, "left_out": self.left_out}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Comparison:
        """The comparison that `to_dict` wrote."""
        explanations = tuple(Explanation.from_dict(e) for e in values["explanations"])
        return cls(explanations, values.get("left_out", {}))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from heed.report import comparison

        yield from comparison.terminal(self, console, options)

    def _repr_html_(self) -> str:
        from heed.report import comparison

        return comparison.html(self)


def by_reason(left_out: Mapping[str, str]) -> str:
    """The methods that were left out, in one line: those with the same reason together."""
    names: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        # some reasons are sentences that begin with the method's name
        names.setdefault(reason.removeprefix(f"{name} ").rstrip("."), []).append(name)
    return " · ".join(f"{', '.join(same)}: {reason}" for reason, same in names.items())


def agreement(explanations: Sequence[Explanation]) -> Float[np.ndarray, "method method"]:
    """Kendall's τ-b between the scores of every two methods.

    Where one of the two gives all occurrences of a word one score, the other's scores are summed
    over them. Two signed methods are compared with their signs, others by absolute values.
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
    """Scores of several explanations of one document over the same units: the coarsest ones.

    Scores of units that are one unit there are summed.
    """
    coarsest = min(explanations, key=lambda e: len(e.units))
    unit_at: dict[tuple[int, int], int] = {}
    for i, unit in enumerate(coarsest.units):
        unit_at |= {(unit.segment, start): i for start, _ in unit.spans}
    totals = []
    for e in explanations:
        total = np.zeros(len(coarsest.units))
        np.add.at(total, [unit_at[u.segment, u.spans[0][0]] for u in e.units], e.scores)
        totals.append(total)
    return totals
