"""What the claims about removal share: the scale of each document, and areas put on it.

An area is put on a scale from 0, the worst order in which words could be removed, to 1, the best
one. Both are searched for once, for all claims and methods; a ranking that beats the search becomes
the best order itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from heed.algebra import orders as algebra
from heed.claims.claim import Row
from heed.claims.study import FEWEST_UNITS, ClaimTest, Study
from heed.methods import Explanation
from heed.methods.removing import Areas, Kind, Removing, by_occurrence
from heed.models.classifier import Removal
from heed.randomness import generator
from heed.settings import AtLeast, AtMost

Pair = Float[np.ndarray, "2"]  # in the probability of the label, and in its log-odds

# Shorter ranges of log-odds than these are rounding, in single and in half precision.
_ROUNDING, _HALF = 1e-5, 0.05


@dataclass(frozen=True)
class RemovalTest(ClaimTest):
    """A claim about orders in which words are removed, under each way to remove them.

    orders       random orders that a ranking is compared with, and that break its ties
    width        how many sets of words the search for the best and the worst order goes on with
    candidates   words that each of these tries to add
    exact        all orders are tried of texts with at most so many words
    removal      only this way to remove words; by default each that the model has
    """

    effort = ("width", "candidates")

    orders: Annotated[int, AtLeast(1)] = field(default=4, kw_only=True)
    width: Annotated[int, AtLeast(1)] = field(default=5, kw_only=True)
    candidates: Annotated[int, AtLeast(1)] = field(default=1, kw_only=True)
    exact: Annotated[int, AtLeast(0), AtMost(16)] = field(default=11, kw_only=True)
    removal: Annotated[Removal, "way to remove words"] | None = field(default=None, kw_only=True)

    def removals(self, study: Study) -> tuple[Removal, ...]:
        """The ways to remove words that are measured, the model's default first."""
        model = study.model
        return model.removals if self.removal is None else (model.removal(self.removal),)

    def needed_to_pass(self, study: Study) -> ClaimTest:
        """A claim holds only if it holds under each way to remove words."""
        return replace(self, removal=self.removals(study)[0])


class Scale(NamedTuple):
    """What the areas of a document lie between, and what those of random orders are."""

    low: Pair
    high: Pair
    random: Pair


def removing(study: Study) -> Removing:
    """The outputs without some words that any claim asked for."""
    return study.shared("removing", lambda: Removing(study.model, study.documents, study.unit))


def scales(study: Study, test: RemovalTest, kind: Kind, removal: Removal) -> list[Scale]:
    """The scale of each document: the same for all claims and methods."""
    about = (kind, removal, test.orders, test.width, test.candidates, test.exact)

    def make() -> list[Scale]:
        stored = study.by_document(
            __name__, about, lambda indices: _ends(study, test, kind, removal, indices)
        )
        return [Scale(*map(np.array, values)) for values in stored]

    return study.shared(" ".join(map(str, about)), make)


def _ends(
    study: Study, test: RemovalTest, kind: Kind, removal: Removal, indices: list[int]
) -> list[list[list[float]]]:
    """The scales of some documents, as lists."""
    shared = removing(study)
    found = shared.search(
        kind,
        removal,
        indices,
        lambda n: algebra.search(n, test.width, test.candidates, test.exact),
    )
    keys = {i: tie_keys(study, test, i) for i in indices}
    drawn = {i: algebra.tied_orders(np.zeros(k.shape[1]), k) for i, k in keys.items()}
    random = shared.areas(kind, removal, drawn)
    ends = []
    for i in indices:
        together = np.concatenate([found[i], random[i]])
        parts = together.min(0), together.max(0), random[i].mean(0)
        ends.append([part.tolist() for part in parts])
    return ends


def tie_keys(study: Study, test: RemovalTest, index: int) -> Float[np.ndarray, "order unit"]:
    """The random orders of a document, which break the ties of all rankings alike.

    So the area of constant scores is that of random orders.
    """
    rng = generator(study.seed, "orders", *study.documents[index].segments)
    return algebra.random_keys(rng, test.orders, len(removing(study).units[index]))


def areas(
    study: Study,
    test: RemovalTest,
    kind: Kind,
    removal: Removal,
    explanations: Mapping[int, Explanation],
) -> dict[int, Areas]:
    """The areas of rankings, one for each order of their ties."""
    shared = removing(study)
    ranked = {}
    for i, e in explanations.items():
        scores = by_occurrence(e, shared.units[i])
        ranked[i] = algebra.tied_orders(scores, tie_keys(study, test, i))
    return shared.areas(kind, removal, ranked)


class Forms(NamedTuple):
    """A difference of two areas: as a share of the scale, unscaled, and as a share in log-odds."""

    value: float
    raw: float
    log_odds: float


def difference(
    study: Study,
    index: int,
    scale: Scale,
    one: Areas,
    other: Pair,
    *seen: Areas,
) -> Forms:
    """The mean area of some orders minus another area, on the scale of a document.

    seen   areas of further orders, which may lie beyond the scale and then stretch it

    It has no value where all orders are the same but for rounding, or where there are too few words
    for an order to mean anything.
    """
    low, high = stretched(scale, one, *seen)
    gap = one.mean(0) - other
    raw = float(gap[0])
    if not measurable(study, index, low, high):
        return Forms(float("nan"), raw, float("nan"))
    value, log_odds = gap / (high - low)
    return Forms(float(value), raw, float(log_odds))


def stretched(scale: Scale, *seen: Areas) -> tuple[Pair, Pair]:
    """The ends of a scale that these areas, too, lie on."""
    low = np.min([scale.low, *(areas.min(0) for areas in seen)], axis=0)
    high = np.max([scale.high, *(areas.max(0) for areas in seen)], axis=0)
    return low, high


def measurable(study: Study, index: int, low: Pair, high: Pair) -> bool:
    """Whether the ends of a scale differ by more than rounding, and words can be ranked."""
    shared = removing(study)
    least = np.array([shared.rounding, _HALF if study.model.half else _ROUNDING])
    return len(shared.units[index]) >= FEWEST_UNITS and bool((high - low > least).all())


def columns(forms: Mapping[Removal, Forms]) -> Row:
    """The value under each way to remove words, the first of them as `value`, and variants."""
    row: Row = {"value": next(iter(forms.values())).value}
    row |= {f"value_{removal}": f.value for removal, f in forms.items()}
    row |= {f"variant_raw_{removal}": f.raw for removal, f in forms.items()}
    row |= {f"variant_log_odds_{removal}": f.log_odds for removal, f in forms.items()}
    return row


# Choices that are made on one half of the documents, and judged on the other


def halves(study: Study) -> Bool[np.ndarray, "document"]:
    """One half of the documents: those that share an id or a text are in the same half.

    Which it is depends on the texts and the seed, not on the order of the documents.
    """
    texts: dict[str, set[str]] = {}
    names = []
    for i, (ids, document) in enumerate(zip(study.ids, study.documents, strict=True)):
        # a document without an id is a group by itself, unless it shares its text
        name = str(ids.get("group") or ids.get("id") or f"document {i + 1}")
        names.append(name)
        texts.setdefault(name, set()).add(" ".join(document.segments))
    drawn = {
        name: generator(study.seed, "half", *sorted(parts)).random()
        for name, parts in texts.items()
    }
    ranked = sorted(drawn, key=drawn.__getitem__)
    first = set(ranked[: len(ranked) // 2])
    return np.array([name in first for name in names])


def best_elsewhere(
    values: Mapping[str, Sequence[float]], half: Bool[np.ndarray, "document"]
) -> list[str]:
    """For each document, the name with the largest mean on the half that it is not in.

    The mean over the documents that a choice was made on would flatter what was chosen.
    """
    names = list(values)
    table = np.array([values[name] for name in names], dtype=float)
    chosen = {}
    for side in (False, True):
        others = table[:, half != side]
        # documents that some name has no value for would compare different documents
        others = others[:, np.isfinite(others).all(0)]
        chosen[side] = names[int(others.mean(1).argmax())] if others.size else names[0]
    return [chosen[bool(side)] for side in half]
