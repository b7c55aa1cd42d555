"""Several explanations of one document side by side, and how far they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from heed.explain import drawing
from heed.explain.explanation import Explanation
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
        return cls(tuple(Explanation.from_dict(e) for e in values["explanations"]), np.array(matrix, dtype=float))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from side_by_side(self.explanations, console, options)
        if len(self.explanations) > 1:
            yield Text("")
            yield self.table(options.max_width)

    def table(self, width: int = 80) -> Group:
        """The matrix of agreement, for a terminal: as many columns beside each other as it is wide."""
        letters = [chr(ord("a") + i) for i in range(len(self.methods))]
        names = [f"{letter} {name}" for letter, name in zip(letters, self.methods, strict=True)]
        beside = max(1, (width - max(len(name) for name in names)) // 5 - 1)
        parts: list[Text | Table] = [Text("Kendall's τ between methods", style="bold")]
        for start in range(0, len(names) - 1, beside):
            table = Table(box=None, padding=(0, 0, 0, 1))
            table.add_column("", no_wrap=True)
            for letter in letters[:-1][start : start + beside]:
                table.add_column(letter, justify="right")
            for i in range(start + bool(start), len(names)):
                taus = self.agreement[i, start : min(i, start + beside)]
                table.add_row(names[i], *(f"{t:.2f}".replace("0.", ".").replace("nan", "–") for t in taus))
            parts.append(table)
        return Group(*parts)

    def _repr_html_(self) -> str:
        rows = "".join(drawing.html(e) for e in self.explanations)
        head = "".join(f"<th>{escape(m)}</th>" for m in self.methods)
        body = "".join(
            f"<tr><th>{escape(m)}</th>"
            + "".join(f"<td>{'–' if np.isnan(t) else f'{t:.2f}'}</td>" for t in row)
            + "</tr>"
            for m, row in zip(self.methods, self.agreement, strict=True)
        )
        return f"{rows}<table><caption>Kendall's τ</caption><tr><th></th>{head}</tr>{body}</table>"


def side_by_side(explanations: Sequence[Explanation], console: Console, options: ConsoleOptions) -> RenderResult:
    """One line per explanation: the method's name and the shaded document."""
    width = max(len(e.method) for e in explanations) + 2
    for e in explanations:
        text = drawing.line(e, options.max_width - width, drawing.has_colour(console))
        yield Text.assemble(f"{drawing.printable(e.method):<{width}}", text)


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
