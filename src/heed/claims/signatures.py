"""Why attention and other methods disagree on the single-layer classifier: three signs to look for.

final layer   The last layer turns what attention collects at a word, v_t, into w_t = W_l v_t. Where
              w_t has both signs, or sizes that differ much, attention points to words that the last
              layer counts against the label or hardly counts at all.
like <unk>    A word has much attention, but <unk> in its place would add the same to the output.
              LIME replaces words by <unk>, so it cannot see this word.
heads         The gradients of single heads rank words differently. Their sum hides that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from heed.algebra.limits import exact
from heed.methods.explanation import Unit
from heed.methods.units import units_of
from heed.metrics import kendall
from heed.models.classifier import Classifier
from heed.text import Tokens

if TYPE_CHECKING:  # which loads torch
    from heed.algebra.ratios import Ratios

LOW = 0.3  # a rank correlation below it is called low


@dataclass(frozen=True, eq=False)
class Signature:
    """What the three signs say of one document.

    units      the distinct words of the document
    tau        Kendall's τ between attention and |gradient × input| over words
    against    share of the attention on words that count against the label (w < 0)
    spread     standard deviation of log |w| over words
    like_unk   indices of words with much attention (top tenth, at least 3) that LIME cannot see
               because <unk> would add the same
    heads      mean τ between gradient × input of every two heads; NaN if there is one head
    """

    units: tuple[Unit, ...]
    tau: float
    against: float
    spread: float
    like_unk: tuple[int, ...]
    heads: float

    @property
    def final_layer_distorts(self) -> bool:
        """Whether attention and gradient disagree and the last layer explains why."""
        return self.tau < LOW and (self.against >= 0.25 or self.spread >= 1)

    @property
    def heads_disagree(self) -> bool:
        return self.heads < LOW


def signature(model: Classifier, tokens: Tokens, label: int) -> Signature:
    """Measure the three signs on one document, for a model with a closed form."""
    units, groups = units_of(tokens, "word", merge_repeats=True)
    f = model.ratios(tokens, groups, len(units), label)
    attention = (f.a / (f.c + f.a.sum(1))[:, None]).mean(0)
    adds = (f.n / (f.c + f.a.sum(1))[:, None]).sum(0)
    w = np.divide(adds, attention, out=np.zeros_like(adds), where=attention > 0)
    # words that add nothing have no logarithm
    nonzero = np.abs(w) > 1e-12
    spread = float(np.log(np.abs(w[nonzero])).std()) if nonzero.sum() > 1 else 0.0
    gradient = _gradient_input(model, tokens, label, groups, len(units))
    return Signature(
        units,
        kendall(attention, np.abs(gradient)),
        float(attention[w < 0].sum() / attention.sum()),
        spread,
        _like_unk(f, attention, adds),
        _between_heads(model, tokens, label, groups, len(units), len(f.c)),
    )


def _like_unk(
    f: Ratios, attention: Float[np.ndarray, "unit"], adds: Float[np.ndarray, "unit"]
) -> tuple[int, ...]:
    """Words with much attention for which <unk> adds nearly the same and LIME's score is near 0."""
    top = np.argsort(-attention, kind="stable")[: max(3, round(len(attention) / 10))]
    D, N = f.c + f.a.sum(1), f.n_c + f.n.sum(1)
    replaced = (N[:, None] - f.n + f.m) / (D[:, None] - f.a + f.b)
    differs = np.abs(((N / D)[:, None] - replaced).sum(0))
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
    """Gradient × input of each word, summed over its occurrences."""
    (result,) = model.gradient([tokens], [label])
    rows = (result.gradient * result.embeddings).sum(1)[: len(tokens)]
    scores = np.zeros(units)
    np.add.at(scores, groups[groups >= 0], rows[groups >= 0])
    return scores


def _between_heads(
    model: Classifier,
    tokens: Tokens,
    label: int,
    groups: Int[np.ndarray, "token"],
    units: int,
    heads: int,
) -> float:
    """The mean of Kendall's τ over all pairs of heads."""
    if heads < 2 or units < 2:
        return float("nan")
    scores = np.array(
        [_gradient_input(model.head(h), tokens, label, groups, units) for h in range(heads)]
    )
    # τ-b of all pairs of heads at once: the cosine between signs of differences between words.
    # Differences below 1e-12 are rounding, and count as ties.
    order = np.sign(np.round(scores[:, :, None] - scores[:, None], 12)).reshape(heads, -1)
    size = np.sqrt(np.square(order).sum(1))
    if not size.all():
        return float("nan")
    tau = (order @ order.T) / np.outer(size, size)
    return float(tau[np.triu_indices(heads, 1)].mean())
