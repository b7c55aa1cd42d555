"""Rows of attention and what they multiply, taken from a pass through a model.

A `Problem` holds rows of attention that multiply the same values, as the algebra of
`heed.algebra.null_space` needs them. What counts as their output depends on the level:

    head         what one head puts out: T is its values V
    projected    what one head adds to the layer: T = V W_O, with the same null space if W_O has
                 full rank
    layer        what all heads together add: rows of all heads side by side, T the stacked V W_O,
                 one sum of weights for each head
    prediction   differences of logits: T is their derivative by the weights of the classifying row
                 in the last layer. For models that are linear from there on (single-layer,
                 recurrent) this is the prediction itself, for a transformer to first order
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.algebra.null_space import Space, Variant
from heed.errors import InputError, NotApplicable
from heed.metrics import tvd
from heed.models.classifier import Attending, Classifier
from heed.models.devices import as_numbers
from heed.models.trace import Trace
from heed.settings import AtLeast, Below
from heed.text import Tokens

if TYPE_CHECKING:
    from torch import Tensor

Level = Literal["head", "projected", "layer", "prediction"]

Rows = Float[np.ndarray, "row weight"]
Attention = Float[np.ndarray, "batch head query key"]

# Directions in which values are smaller than this share of their norm count as zero.
Tolerance = Annotated[float, AtLeast(0), Below(1)]


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows of attention of one document that multiply the same values.

    heads     the number of one head, or of all heads that are side by side in a row
    queries   which of the trace's classifying rows these are
    keys      which keys they attend to
    rows      the weights, divided by their sum in each head; heads one after the other
    masses    those sums, below one where only some of the keys are considered
    space     what the rows multiply
    """

    heads: tuple[int, ...]
    queries: Int[np.ndarray, "row"]
    keys: Int[np.ndarray, "key"]
    rows: Rows
    masses: Float[np.ndarray, "row head"]
    space: Space

    def by_head(self, rows: Rows) -> Float[np.ndarray, "head row key"]:
        """Rows with an axis for the heads."""
        return rows.reshape(len(rows), len(self.heads), len(self.keys)).transpose(1, 0, 2)

    def put(self, rows: Rows, into: Float[np.ndarray, "head query key"]) -> None:
        """Write rows into the attention that they came from, scaled back to their masses."""
        for i, head in enumerate(self.heads):
            weights = self.by_head(rows)[i] * self.masses[:, i : i + 1]
            into[head, self.queries[:, None], self.keys] = weights


Parts = Sequence[Sequence[Problem]]  # the problems of each document


def problems(
    trace: Trace,
    tokens: Sequence[Tokens],
    layer: int = -1,
    level: Level = "head",
    head: int | None = None,
    free: Sequence[Bool[np.ndarray, "_"]] | None = None,
    tolerance: float | None = None,
    rows: Float[Tensor, "batch head query key"] | None = None,
    slopes: Float[Tensor, "batch head query key label"] | None = None,
) -> list[list[Problem]]:
    """The problems of each document, from one layer of a trace.

    free     of each document, the tokens whose weights may change; by default all, and padding too
    rows     other rows of the layer than those that classify
    slopes   the values at the level of the prediction

    A key that no head of the layer gives any weight in a row counts as masked, unless it is a word
    between keys that have weight. A document without weight on the considered keys has no problem.
    """
    weights = as_numbers(trace.classifying_rows(layer) if rows is None else rows)
    count = weights.shape[1]
    if head is not None and not 0 <= head < count:
        raise InputError(f"There is no head {head}: the layer has heads 0 to {count - 1}.")
    # rounding moves a sum of weights by no more than the precision of each
    rounding = max(1e-3, _epsilon(trace.attention[layer]))
    if not np.abs(weights[:, :, 0].sum(-1) - 1).max() < rounding:
        raise NotApplicable(
            "The rows of this attention do not sum to one (it has sinks), "
            "so none of it is efficient."
        )
    multiplied = trace.values[layer] if slopes is None else slopes[:, :, 0]
    values, precision = as_numbers(multiplied), _precision(multiplied)
    if level in ("projected", "layer"):
        values = values @ as_numbers(trace.projections[layer])
    heads = range(count) if head is None else [head]
    stacks = [tuple(heads)] if level in ("layer", "prediction") else [(h,) for h in heads]
    by_document = []
    for b, t in enumerate(tokens):
        queries = np.arange(len(t) if weights.shape[2] > 1 else 1)
        document_rows = weights[b][:, queries]
        visible = _visible((document_rows > 0).any(0), t)
        if free is not None:
            visible[:, : len(t)] &= free[b]
            visible[:, len(t) :] = False
        parts = []
        for keys, same in _alike(visible):
            for stack in stacks:
                attention = np.stack([document_rows[h][same][:, keys] for h in stack], 1)
                T = np.concatenate([values[b, h][keys] for h in stack])
                where = stack, queries[same], keys
                parts.append(_problem(*where, attention, T, tolerance, precision))
        by_document.append(parts)
    return by_document


def _visible(weighty: Bool[np.ndarray, "row key"], tokens: Tokens) -> Bool[np.ndarray, "row key"]:
    """The keys that a row may attend to: those with weight, and the words between them.

    A word between them is not masked: its weight is just too small for a floating point number.
    """
    n = weighty.shape[1]
    first, last = weighty.argmax(1), n - 1 - weighty[:, ::-1].argmax(1)
    position = np.arange(n)
    word = np.zeros(n, dtype=bool)
    word[: len(tokens)] = ~tokens.special
    return weighty | (word & (position > first[:, None]) & (position < last[:, None]))


def _precision(values: Tensor) -> float:
    # half precision counts as single: its own rounding would fill the whole space
    return min(_epsilon(values), float(np.finfo(np.float32).eps))


def _epsilon(tensor: Tensor) -> float:
    import torch

    return torch.finfo(tensor.dtype).eps


def _alike(
    visible: Bool[np.ndarray, "row key"],
) -> Iterator[tuple[Int[np.ndarray, "_"], Int[np.ndarray, "_"]]]:
    """Sets of keys, each with the rows that attend to just these.

    That is one set for all rows or, under a causal mask, one for each row.
    """
    patterns, which = np.unique(visible, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        if pattern.any():
            yield np.flatnonzero(pattern), np.flatnonzero(which.ravel() == i)


def _problem(
    stack: tuple[int, ...],
    queries: Int[np.ndarray, "row"],
    keys: Int[np.ndarray, "key"],
    attention: Float[np.ndarray, "row head key"],
    T: Float[np.ndarray, "weight value"],
    tolerance: float | None,
    precision: float,
) -> Problem:
    masses = attention.sum(-1)
    # a head without any weight on these keys gets uniform shares, which its mass of 0 cancels
    uniform = np.full_like(attention, 1 / len(keys))
    weighty = masses[..., None] > 0
    shares = np.divide(attention, masses[..., None], where=weighty, out=uniform)
    if len(stack) > 1 and len(masses) == 1:
        # the output is the sum over heads, each with its mass
        T = T * np.repeat(masses[0], len(keys))[:, None]
    if len(stack) > 1:
        # small values are not rounding then: a head may just have little mass
        precision = np.finfo(float).eps
    space = Space.of(T, np.repeat(np.arange(len(stack)), len(keys)), tolerance, precision)
    return Problem(stack, queries, keys, shares.reshape(len(masses), -1), masses, space)


def opened(
    model: Classifier,
    tokens: Sequence[Tokens],
    level: Level = "head",
    layer: int = -1,
    head: int | None = None,
    free: Sequence[Bool[np.ndarray, "_"]] | None = None,
    tolerance: float | None = None,
) -> tuple[Attending, list[list[Problem]]]:
    """A pass through the model that gives the output for other attention, and its problems."""
    import torch

    attending = model.attending(tokens)
    layers = len(attending.trace.attention)
    if not -layers <= layer < layers:
        raise InputError(f"There is no layer {layer}: the model has layers 0 to {layers - 1}.")
    number = layer % layers
    below = number != layers - 1
    if level == "prediction" and below:
        raise InputError("The level 'prediction' looks at the last layer: leave layer at -1.")
    if attending.linear or below:
        # that the output is kept must show in a pass of the model, not in a formula
        with torch.no_grad():
            trace = model.trace(tokens) if below else attending.trace
        attending = attending._replace(
            trace=trace,
            logits=lambda rows: model.trace(tokens, attention={number: rows}, layers=()).logits,
            cheap=False,
        )
    rows = attending.trace.classifying_rows(layer)
    if rows.shape[2] > 1 and level in ("layer", "prediction"):
        raise NotApplicable(
            f"All rows of {model.name} classify, not one: choose the level 'head' or 'projected'."
        )
    slopes = _slopes(attending, rows, model.exclusive) if level == "prediction" else None
    return attending, problems(
        attending.trace, tokens, layer, level, head, free, tolerance, slopes=slopes
    )


def _slopes(
    attending: Attending, rows: Float[Tensor, "batch head query key"], exclusive: bool
) -> Float[Tensor, "batch head query key label"]:
    """The derivative, by the weights of these rows, of what decides the probabilities.

    With exclusive labels that is the difference of each logit from their mean, without the last,
    which follows from the others. Else it is each logit.
    """
    import torch

    with torch.enable_grad():
        free = rows.clone().requires_grad_()
        logits = attending.logits(free)
        apart = (logits - logits.mean(-1, keepdim=True))[:, :-1] if exclusive else logits
        slopes = [torch.autograd.grad(z, free, retain_graph=True)[0] for z in apart.sum(0)]
    return torch.stack(slopes, -1)


def efficient_rows(parts: Parts, variant: Variant = "norm") -> dict[Problem, Rows]:
    """The efficient attention of the rows of all problems."""
    problems = chain.from_iterable(parts)
    return {p: p.space.efficient(p.rows, variant).rows for p in problems}


def swapped(
    attending: Attending, parts: Parts, rows: Mapping[Problem, Rows], layer: int = -1
) -> Attention:
    """The attention of the rows that classify, with the rows of all problems replaced."""
    attention = as_numbers(attending.trace.classifying_rows(layer)).copy()
    for b, problems_of_document in enumerate(parts):
        for problem in problems_of_document:
            problem.put(rows[problem], attention[b])
    return attention


def movement(
    model: Classifier,
    attending: Attending,
    rows: Float[np.ndarray, "*variant batch head query key"],
    base: Attention | None = None,
) -> tuple[Float[np.ndarray, "*variant batch"], Float[np.ndarray, "*variant batch"]]:
    """How far the prediction moves if the model attends like `rows`, and if its label changes.

    It moves from the prediction with the rows `base`, by default the model's own. The distance is
    total variation, which is the Wasserstein distance if all labels are equally far apart. Without
    exclusive labels it is the largest change of a probability.
    """
    import torch

    unchanged = attending.trace.classifying_rows()
    start = unchanged if base is None else torch.from_numpy(base).to(unchanged.dtype)
    both = (start, torch.from_numpy(rows).to(unchanged.dtype))
    with torch.no_grad():
        before, after = (model.probabilities(as_numbers(attending.logits(r))) for r in both)
    moved = np.asarray(tvd(after, before)) if model.exclusive else np.abs(after - before).max(-1)
    return moved, (after.argmax(-1) != before.argmax(-1)).astype(float)


def openness(parts: Sequence[Problem]) -> dict[str, float]:
    """How much of a document's attention is undetermined, mean over its rows."""
    counts, nullities = [len(p.rows) for p in parts], np.array([p.space.nullity for p in parts])
    return {
        "null_space": float(np.average(nullities, weights=counts)),
        "rows_open": float(np.average(nullities > 0, weights=counts)),
    }
