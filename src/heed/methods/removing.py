"""What a model says of texts without some of their words, and what orders of removal are worth.

Rankings of the same words, random orders and searches ask for many of the same sets. Each set is
evaluated once, and what is asked for many texts at a time is evaluated together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from heed.algebra.orders import Chains, Search, first, grid
from heed.methods.explanation import Explanation, Unit, UnitKind
from heed.methods.method import Keep
from heed.methods.units import units_of
from heed.models.classifier import Classifier, Removal, output_of
from heed.text import Document

# What a set of words is judged by: the fall of the output without it, or with nothing but it.
Kind = Literal["comprehensiveness", "sufficiency"]

# The probability of the label, and its log-odds: of texts, and of the areas of orders.
Outputs = Float[np.ndarray, "_ 2"]
Areas = Float[np.ndarray, "order 2"]

_MOST = 3_000_000  # sets that are remembered: bounds memory to about a gigabyte
# Outputs that differ by less are equal but for rounding: in single and in half precision.
_ROUNDING, _HALF = 1e-6, 4e-3


class Removing:
    """A model and documents, and all outputs without some of their words that were asked for.

    Words (or other units) are occurrences: of a word that occurs twice, each can be removed. The
    label is the one that the model predicts for the whole document.

    evaluated   how many texts were evaluated, by way of removal
    """

    def __init__(self, model: Classifier, documents: Sequence[Document], unit: UnitKind = "word"):
        self.model = model
        self.tokens = model.tokens(documents)
        both = [units_of(tokens, unit) for tokens in self.tokens]
        self.units: list[tuple[Unit, ...]] = [units for units, _ in both]
        self.groups = [groups for _, groups in both]
        logits = model.logits(self.tokens)
        self.labels = [int(label) for label in logits.argmax(1)]
        self.evaluated: dict[Removal, int] = defaultdict(int)
        self._whole = [self._outputs(i, z[None])[0] for i, z in enumerate(logits)]
        self._known: dict[tuple[Removal, int], dict[bytes, tuple[float, float]]] = {}

    @property
    def rounding(self) -> float:
        """Probabilities that differ by less may be equal but for rounding."""
        return _HALF if self.model.half else _ROUNDING

    def whole(self, i: int) -> Float[np.ndarray, "2"]:
        """The outputs for a whole document."""
        return self._whole[i]

    def outputs(self, removal: Removal, asked: Mapping[int, Keep]) -> dict[int, Outputs]:
        """The outputs of documents (by index) for choices of words that stay."""
        keys = {i: [row.tobytes() for row in np.packbits(kept, 1)] for i, kept in asked.items()}
        self._evaluate(removal, asked, keys)
        return {
            i: np.array([self._known[removal, i][key] for key in keys[i]]).reshape(-1, 2)
            for i in asked
        }

    def _evaluate(
        self, removal: Removal, asked: Mapping[int, Keep], keys: Mapping[int, list[bytes]]
    ) -> None:
        """Evaluate what is not known yet, in one call."""
        if sum(map(len, self._known.values())) > _MOST:
            self._known.clear()
        new: dict[int, dict[bytes, int]] = {}
        for i, kept in asked.items():
            if (removal, i) not in self._known:
                whole = np.packbits(np.ones((1, kept.shape[1]), dtype=bool), 1)[0].tobytes()
                probability, log_odds = self._whole[i].tolist()
                self._known[removal, i] = {whole: (probability, log_odds)}
            known = self._known[removal, i]
            missing = {key: row for row, key in enumerate(keys[i]) if key not in known}
            if missing:
                new[i] = missing
        if not new:
            return
        self.evaluated[removal] += sum(map(len, new.values()))
        logits = self.model.score(
            [self.tokens[i] for i in new],
            [asked[i][list(rows.values())] for i, rows in new.items()],
            [self.groups[i] for i in new],
            removal,
        )
        for (i, rows), z in zip(new.items(), logits, strict=True):
            pairs = map(tuple, self._outputs(i, z).tolist())
            self._known[removal, i].update(zip(rows, pairs, strict=True))

    def _outputs(self, i: int, logits: Float[np.ndarray, "_ label"]) -> Outputs:
        label, exclusive = self.labels[i], self.model.exclusive
        probability = self.model.probabilities(logits)[:, label]
        return np.stack([probability, output_of(logits, label, "log-odds", exclusive)], 1)

    # Worths and areas

    def worth(self, kind: Kind, removal: Removal, sets: Mapping[int, Keep]) -> dict[int, Outputs]:
        """How far the outputs fall without these sets of words; or with nothing but them, negated.

        So more is better for both kinds.
        """
        if kind == "comprehensiveness":
            outputs = self.outputs(removal, {i: ~chosen for i, chosen in sets.items()})
            return {i: self._whole[i] - y for i, y in outputs.items()}
        outputs = self.outputs(removal, sets)
        return {i: y - self._whole[i] for i, y in outputs.items()}

    def areas(
        self, kind: Kind, removal: Removal, orders: Mapping[int, Int[np.ndarray, "order unit"]]
    ) -> dict[int, Areas]:
        """The areas of orders of each document's words."""
        chains = {i: first(o, grid(o.shape[1]).sizes) for i, o in orders.items()}
        return self.areas_of(kind, removal, chains)

    def areas_of(
        self, kind: Kind, removal: Removal, chains: Mapping[int, Chains]
    ) -> dict[int, Areas]:
        """The areas of orders that are given by their sets."""
        flat = {i: c.reshape(-1, c.shape[-1]) for i, c in chains.items()}
        worths = self.worth(kind, removal, flat)
        areas = {}
        for i, c in chains.items():
            by_size = worths[i].reshape(*c.shape[:2], 2)
            areas[i] = np.einsum("osy,s->oy", by_size, grid(c.shape[-1]).weights)
        return areas

    def search(
        self, kind: Kind, removal: Removal, indices: Sequence[int], make: Callable[[int], Search]
    ) -> dict[int, Areas]:
        """The areas of the orders that searches for the best and for the worst order end with.

        `make` gives the search for a number of words. All searches take their steps together.
        """
        searches = {(i, sign): make(len(self.units[i])) for i in indices for sign in (1, -1)}
        asked = {key: next(search) for key, search in searches.items()}
        ended: dict[int, list[Chains]] = {i: [] for i in indices}
        while asked:
            together = {i: [sets for (j, _), sets in asked.items() if j == i] for i, _ in asked}
            worths = self.worth(kind, removal, {i: np.vstack(s) for i, s in together.items()})
            asked = self._stepped(searches, asked, worths, ended)
        chains = {i: np.concatenate(found) for i, found in ended.items()}
        return self.areas_of(kind, removal, chains)

    def _stepped(
        self,
        searches: Mapping[tuple[int, int], Search],
        asked: Mapping[tuple[int, int], Keep],
        worths: Mapping[int, Outputs],
        ended: Mapping[int, list[Chains]],
    ) -> dict[tuple[int, int], Keep]:
        """What the searches ask for next; the orders of those that end are put to the others."""
        left = dict(worths)
        following = {}
        for (i, sign), sets in asked.items():
            own, left[i] = left[i][: len(sets)], left[i][len(sets) :]
            try:
                following[i, sign] = searches[i, sign].send(sign * own)
            except StopIteration as end:
                ended[i].append(end.value)
        return following


def by_occurrence(explanation: Explanation, units: Sequence[Unit]) -> Float[np.ndarray, "unit"]:
    """A score for each occurrence of a word: that of a repeated word is split evenly.

    So all methods remove occurrences, and a word that a method scores as one does not go at once.
    """
    at = {(unit.segment, unit.spans[0][0]): i for i, unit in enumerate(units)}
    scores = np.zeros(len(units))
    for unit, score in zip(explanation.units, explanation.scores, strict=True):
        for start, _ in unit.spans:
            scores[at[unit.segment, start]] = score / len(unit.spans)
    return scores
