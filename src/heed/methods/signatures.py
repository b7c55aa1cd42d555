"""Why attention and other explanations part on the single-layer classifier: three signatures of a document.

final layer    w_t = W_l v_t has both signs, or sizes that differ much: the last layer distorts what attention points to
like <unk>     a word has attention, but what it adds is what <unk> would add in its place, so that LIME cannot see it
heads          the gradients of the heads rank words differently, and their sum hides that
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from heed.algebra.limits import exact
from heed.methods.explanation import Unit
from heed.methods.method import units_of
from heed.metrics import kendall
from heed.models.classifier import Classifier
from heed.text import Tokens

if TYPE_CHECKING:  # which loads torch
    from heed.algebra.ratios import Ratios

LOW = 0.3  # a rank correlation below it is called low


@dataclass(frozen=True, eq=False)
class Signature:
    """What a document shows of the three.

    tau          τ(attention, |gradient × input|) over words
    against      share of the attention on words whose w speaks against the label
    spread       standard deviation of log |w| over words
    like_unk     words among the top tenth of attention (at least 3) that hardly show in LIME, for this reason
    heads        mean of τ between the gradients × input of every two heads; NaN where there is one
    """

    units: tuple[Unit, ...]
    tau: float
    against: float
    spread: float
    like_unk: tuple[int, ...]
    heads: float

    def final_layer_note(self) -> str:
        """One sentence on the last layer, where attention and gradient part and it has a share in that."""
        if not self.tau < LOW or (self.against < 0.25 and self.spread < 1):
            return ""
        return (
            f"Attention and gradient rank words differently (τ = {self.tau:.2f}): the last layer weighs what attention"
            f" collects, {self.against:.0%} of it against the label, with weights that differ"
            f" {np.exp(self.spread):.1f}-fold."
        )

    def like_unk_note(self) -> str:
        if not self.like_unk:
            return ""
        words = ", ".join(repr(self.units[i].text[:30]) for i in self.like_unk[:3])
        return f"{words}: much attention, but <unk> would add the same in its place, so that LIME cannot see it."

    def heads_note(self) -> str:
        if not self.heads < LOW:
            return ""
        return f"The heads disagree: the mean τ between the gradients of two heads is {self.heads:.2f}."


def signature(model: Classifier, tokens: Tokens, label: int, heads: bool = True) -> Signature:
    """The signature of one document, on a model with a closed form; `heads=False` leaves out that of the heads."""
    units, groups = units_of(tokens, "word", True)
    f = model.ratios(tokens, groups, len(units), label)
    attention = (f.a / (f.c + f.a.sum(1))[:, None]).mean(0)
    adds = (f.n / (f.c + f.a.sum(1))[:, None]).sum(0)
    w = np.divide(adds, attention, out=np.zeros_like(adds), where=attention > 0)
    known = np.abs(w) > 1e-12
    spread = float(np.log(np.abs(w[known])).std()) if known.sum() > 1 else 0.0
    return Signature(
        units,
        kendall(attention, np.abs(_gradient_input(model, tokens, label, groups, len(units)))),
        float(attention[w < 0].sum() / attention.sum()),
        spread,
        _like_unk(f, attention, adds),
        _between_heads(model, tokens, label, groups, len(units), len(f.c))
        if heads
        else float("nan"),
    )


def _like_unk(
    f: Ratios, attention: Float[np.ndarray, "unit"], adds: Float[np.ndarray, "unit"]
) -> tuple[int, ...]:
    """Top words for which what <unk> adds in their place is nearly the same, and which LIME itself leaves at 0."""
    top = np.argsort(-attention, kind="stable")[: max(3, round(len(attention) / 10))]
    D, N = f.c + f.a.sum(1), f.n_c + f.n.sum(1)
    differs = np.abs(
        ((N / D)[:, None] - (N[:, None] - f.n + f.m) / (D[:, None] - f.a + f.b)).sum(0)
    )
    alike = [
        int(i)
        for i in top
        if differs[i] <= 0.1 * differs.max() and differs[i] <= 0.25 * abs(adds[i])
    ]
    if not alike or f.units < 2:
        return ()
    lime = np.abs(exact(f).lime.coefficients)
    return tuple(i for i in alike if lime[i] <= 0.1 * lime.max())


def _gradient_input(
    model: Classifier, tokens: Tokens, label: int, groups: Int[np.ndarray, "token"], units: int
) -> Float[np.ndarray, "unit"]:
    (found,) = model.gradient([tokens], [label])
    rows = (found.gradient * found.embeddings).sum(1)[: len(tokens)]
    total = np.zeros(units)
    np.add.at(total, groups[groups >= 0], rows[groups >= 0])
    return total


def _between_heads(
    model: Classifier,
    tokens: Tokens,
    label: int,
    groups: Int[np.ndarray, "token"],
    units: int,
    heads: int,
) -> float:
    if heads < 2 or units < 2:
        return float("nan")
    scores = np.array(
        [_gradient_input(model.head(h), tokens, label, groups, units) for h in range(heads)]
    )
    order = np.sign(np.round(scores[:, :, None] - scores[:, None], 12)).reshape(heads, -1)
    size = np.sqrt(np.square(order).sum(1))
    if not size.all():
        return float("nan")
    tau = (order @ order.T) / np.outer(size, size)
    return float(tau[np.triu_indices(heads, 1)].mean())
