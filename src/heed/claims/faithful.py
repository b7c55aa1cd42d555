"""Do the words an explanation points to matter, and does it depend on what the model learnt?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Bool

from heed.claims.claim import Refusal, Row, stated
from heed.claims.removal import (
    Forms,
    RemovalTest,
    areas,
    best_elsewhere,
    columns,
    difference,
    halves,
    removing,
    scales,
    stretched,
)
from heed.claims.study import ClaimTest, Study
from heed.claims.yardsticks import best_lime
from heed.errors import NotApplicable
from heed.methods import Explanation, GradientInput, Imported, Method, Occlusion
from heed.methods.comparison import aligned
from heed.methods.perturbation import Samples
from heed.methods.removing import Areas, Kind
from heed.methods.soft import soft_areas
from heed.metrics import spearman
from heed.models.classifier import GRADIENT, Removal
from heed.settings import AtLeast

RIVAL = "comprehensiveness_of_"  # followed by the name of another method
_OWN = ""  # the name under which the method that is judged stands beside its rivals


@dataclass(frozen=True)
class _BesideRandom(RemovalTest):
    """The area of a ranking minus that of random orders, on the scale of the document.

    soft   draws of the soft variant, in which words fade by their score; none with 0
    """

    kind: ClassVar[Kind]

    soft: Annotated[int, AtLeast(0)] = 2

    def needed_to_pass(self, study: Study) -> ClaimTest:
        return replace(self, removal=self.removals(study)[0], soft=0)

    def measure(self, study: Study) -> list[Row]:
        yardsticks = _applicable(study, _cheap(study))
        rows = study.by_explanation(self, lambda indices: self._rows(study, indices, yardsticks))
        # the best yardstick is chosen on the other half, so that choosing does not flatter it
        of = {m.name: [row.pop(f"of_{m.name}") for row in rows] for m in yardsticks}
        for i, name in enumerate(best_elsewhere(of, halves(study))):
            rows[i]["ceiling"] = of[name][i]
        return rows

    def _rows(
        self, study: Study, indices: Sequence[int], yardsticks: Sequence[Method]
    ) -> list[Row]:
        explanations = {i: study.explain()[i] for i in indices}
        forms: dict[int, dict[Removal, Forms]] = {i: {} for i in indices}
        for removal in self.removals(study):
            scale = scales(study, self, self.kind, removal)
            own = areas(study, self, self.kind, removal, explanations)
            for i in indices:
                forms[i][removal] = difference(study, i, scale[i], own[i], scale[i].random)
        fades = soft_areas(
            removing(study), self.kind, explanations, self.soft, (study.seed, self.claim.id)
        )
        rows = []
        for i in indices:
            beside = self._unscaled(study, explanations[i], i) | self._of(study, yardsticks, i)
            rows.append(columns(forms[i]) | beside | fades[i])
        return rows

    def _of(self, study: Study, yardsticks: Sequence[Method], i: int) -> Row:
        """What the statistic is for other methods, under the first way to remove words."""
        removal = self.removals(study)[0]
        scale = scales(study, self, self.kind, removal)[i]
        row: Row = {}
        for method in yardsticks:
            area = areas(study, self, self.kind, removal, {i: study.explain(method)[i]})[i]
            row[f"of_{method.name}"] = difference(study, i, scale, area, scale.random).value
        return row

    def _unscaled(self, study: Study, explanation: Explanation, i: int) -> Row:
        """How far the probability falls: by the ranking, at random, at best and at worst."""
        removal = self.removals(study)[0]
        scale = scales(study, self, self.kind, removal)[i]
        own = areas(study, self, self.kind, removal, {i: explanation})[i]
        low, high = stretched(scale, own)
        comprehensive = self.kind == "comprehensiveness"
        worths = {
            self.kind: own[:, 0].mean(),
            "random" if comprehensive else "random_sufficiency": scale.random[0],
            "best": high[0],
            "worst": low[0],
        }
        # sufficiency is a fall, too: small where what is kept is worth much
        sign = 1 if comprehensive else -1
        return {name: sign * float(worth) for name, worth in worths.items()}


@dataclass(frozen=True)
class Removes(_BesideRandom):
    """Comprehensiveness, minus that of random orders of the words.

    Comprehensiveness is how far the predicted probability falls when the top 5 %, 10 %, … 50 % of
    words are removed, on average. It is put on a scale from the worst order of the words (0) to the
    best one (1), found by search; the best order that is found is a lower bound. Equal scores are
    put into several random orders. Without the scale it is reported beside it.
    """

    claim = stated("removes")
    kind = "comprehensiveness"


@dataclass(frozen=True)
class Suffices(_BesideRandom):
    """Sufficiency, beside that of random orders of the words.

    Sufficiency is how little the predicted probability falls when only the top 5 %, 10 %, … 50 % of
    words are kept, on average. It is put on a scale from the worst order of the words (0) to the
    best one (1), as comprehensiveness is.
    """

    claim = stated("suffices")
    kind = "sufficiency"


@dataclass(frozen=True)
class Competitive(RemovalTest):
    """Comprehensiveness minus that of the best of gradient × input, occlusion and LIME.

    Comprehensiveness is put on a scale from the worst order of the words (0) to the best one (1).
    Which of the others is best is decided on one half of the documents, and the comparison is made
    on the other half, both ways. LIME is computed exactly if the model has a closed form and two
    labels, and else takes as many samples as two draws of it need to agree well; the score of a
    repeated word is split evenly among its occurrences.

    samples   how many texts LIME may evaluate
    """

    claim = stated("competitive")

    samples: Samples = 4000

    def measure(self, study: Study) -> list[Row]:
        lime = best_lime(study, self.samples)
        # a method is no rival of itself, whatever its settings; one of the same name may be another
        others = [m for m in (*_cheap(study), lime) if type(m) is not type(study.method)]
        rivals = _applicable(study, others)
        measured = study.by_explanation(self, lambda indices: self._rows(study, indices, rivals))
        names, half = [rival.name for rival in rivals], halves(study)
        forms: list[dict[Removal, Forms]] = [{} for _ in measured]
        for removal in self.removals(study):
            of = {name: [Forms(*row[removal][name]) for row in measured] for name in names}
            chosen = best_elsewhere({name: [f.value for f in of[name]] for name in names}, half)
            for i, (row, name) in enumerate(zip(measured, chosen, strict=True)):
                gap = np.subtract(row[removal][_OWN], of[name][i])
                forms[i][removal] = Forms(*gap.tolist())
        first = self.removals(study)[0]
        scaled = {n: [row[first][n][0] for row in measured] for n in (_OWN, *names)}
        rows = [columns(of_document) for of_document in forms]
        for i, ceiling in enumerate(_ceiling(scaled, names, half)):
            rows[i] |= {"ceiling": ceiling, "comprehensiveness": scaled[_OWN][i]}
            rows[i] |= {f"{RIVAL}{name}": scaled[name][i] for name in names}
        return rows

    def _rows(self, study: Study, indices: Sequence[int], rivals: Sequence[Method]) -> list[Row]:
        """For each way to remove words, the areas of all methods on the scale that they share."""
        rows: list[Row] = [{} for _ in indices]
        methods = {_OWN: study.method} | {rival.name: rival for rival in rivals}
        for removal in self.removals(study):
            scale = scales(study, self, "comprehensiveness", removal)
            measured: dict[str, Mapping[int, Areas]] = {}
            for name, method in methods.items():
                explanations = {i: study.explain(method)[i] for i in indices}
                measured[name] = areas(study, self, "comprehensiveness", removal, explanations)
            for row, i in zip(rows, indices, strict=True):
                here = {name: of[i] for name, of in measured.items()}
                worst, _ = stretched(scale[i], *here.values())
                row[removal] = {
                    name: difference(study, i, scale[i], area, worst, *here.values())
                    for name, area in here.items()
                }
        return rows


def _ceiling(
    scaled: Mapping[str, Sequence[float]], names: Sequence[str], half: Bool[np.ndarray, "document"]
) -> list[float]:
    """What the statistic would be for the best rival, judged beside the best of the others."""
    if len(names) < 2:
        return [float("nan")] * len(half)
    best = best_elsewhere({name: scaled[name] for name in names}, half)
    gaps = [0.0] * len(half)
    for name in dict.fromkeys(best):
        others = best_elsewhere({n: scaled[n] for n in names if n != name}, half)
        for i in (i for i, chosen in enumerate(best) if chosen == name):
            gaps[i] = scaled[name][i] - scaled[others[i]][i]
    return gaps


def _cheap(study: Study) -> list[Method]:
    """Methods to compare with that take little more than one pass per word."""
    occlusion = Occlusion(output="probability")
    if GRADIENT not in study.model.offers:
        return [occlusion]
    return [GradientInput(output="probability"), occlusion]


def _applicable(study: Study, methods: Sequence[Method]) -> list[Method]:
    """Those of the methods that explain these documents."""
    able = []
    for method in methods:
        with suppress(NotApplicable):  # a gradient that is orthogonal to its input, for example
            study.explain(method)
            able.append(method)
    return able


@dataclass(frozen=True)
class Sensitive(ClaimTest):
    """Explain the same model with random weights, and compare the explanations.

    All weights are redrawn with the same mean and spread. Both explanations are for the label that
    the trained model predicts; absolute scores are ranked. Chance methods are not measured beside
    it: they know no weights, so that their correlation is 1 whatever the model.
    """

    claim = stated("sensitive")
    controlled = False

    draws: Annotated[int, AtLeast(1)] = 3

    def refusal(self, study: Study) -> Refusal | None:
        if isinstance(study.method, Imported):
            why = "was imported: there are no scores of a model with random weights"
            return Refusal("method", f"{study.method.name} {why}")
        return super().refusal(study)

    def measure(self, study: Study) -> list[Row]:
        explanations = study.explain()
        correlations = np.full((self.draws, len(explanations)), np.nan)
        for draw in range(self.draws):
            random = study.model.randomised(study.seed + draw)
            for label in dict.fromkeys(e.label for e in explanations):
                indices = [i for i, e in enumerate(explanations) if e.label == label]
                documents = [explanations[i].document for i in indices]
                others = study.method.explain(random, documents, label, study.unit, study.seed)
                for i, other in zip(indices, others, strict=True):
                    pair = aligned([explanations[i], other])
                    correlations[draw, i] = spearman(*(np.abs(scores) for scores in pair))
        return [
            {"value": float(np.mean(column)), "largest": float(np.max(column))}
            for column in correlations.T
        ]
