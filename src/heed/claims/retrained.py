"""How far does training determine attention? From other seeds, and against the model itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from jaxtyping import Float

from heed.claims.claim import Columns, Row, stated
from heed.claims.study import ClaimTest, Study
from heed.errors import NotApplicable
from heed.metrics import jsd, tvd
from heed.models.classifier import Classifier
from heed.progress import say
from heed.settings import AtLeast
from heed.text import Document

if TYPE_CHECKING:
    from heed.training.again import Retraining

NEAR = 0.05  # mean TVD of predictions at which adversaries are compared
CLOSE = 0.02  # how far from that two adversaries between which a line is drawn may be
FIRST = 5e-4  # how strongly the first adversary is rewarded, per document, for attending elsewhere

Distances = Float[np.ndarray, "document"]


class Straddled(NamedTuple):
    """Two adversaries on both sides of a mean TVD of 0.05, by their strength; None: there is none.

    closely   whether both are within 0.02 of it
    """

    below: float | None
    above: float | None
    closely: bool


def straddle(moved: Callable[[float], float], trainings: int) -> Straddled:
    """Bisect the strength of adversaries until two of them straddle a mean TVD of 0.05 closely.

    moved       the mean TVD of the adversary of a strength; each call is a training
    trainings   the most calls

    Strengths are bisected on a logarithmic scale, between the strongest that stays below and the
    weakest above. Until there are both, steps are of a factor of ten.
    """
    below, above = None, None
    distance = {True: np.inf, False: np.inf}  # from 0.05, below it and above
    strength = FIRST
    for _ in range(trainings):
        tvd_ = moved(strength)
        stays = tvd_ <= NEAR
        below, above = (strength, above) if stays else (below, strength)
        distance[stays] = abs(tvd_ - NEAR)
        if max(distance.values()) <= CLOSE:
            return Straddled(below, above, True)
        if below is None:
            strength /= 10
        elif above is None:
            strength *= 10
        else:
            strength = float(np.sqrt(below * above))
    return Straddled(below, above, False)


def read_off(columns: Columns) -> float:
    """The mean distance in attention where predictions move by 0.05.

    It is interpolated linearly between two adversaries that straddle 0.05 closely. Over a jump no
    line is drawn: then it is the distance of the last adversary below.
    """
    tvds, distances = (
        [float(columns[f"{what}_{side}"].mean()) for side in ("below", "above")]
        for what in ("tvd", "jsd")
    )
    if not columns["straddled"][0]:
        return distances[0]
    # in a resample both may lie on one side
    share = np.clip((NEAR - tvds[0]) / ((tvds[1] - tvds[0]) or np.nan), 0, 1)
    return float(distances[0] + np.nan_to_num(share) * (distances[1] - distances[0]))


def _over_seeds(columns: Columns) -> float:
    """The distance of adversaries ÷ that of other seeds; NaN if seeds make no difference."""
    return read_off(columns) / (_between(columns) or float("nan"))


def _between(columns: Columns) -> float:
    """The mean over documents of the median distance over seeds."""
    seeds = [column for name, column in columns.items() if name.startswith("seed_")]
    return float(np.median(seeds, axis=0).mean())


@dataclass(frozen=True)
class ExclusiveModel(ClaimTest):
    """Train adversaries: copies of the model that keep its predictions but attend elsewhere.

    The stronger an adversary is rewarded for attending elsewhere, the farther its predictions move.
    The strength is bisected until two adversaries straddle a mean TVD of predictions of 0.05, each
    within 0.02. The mean distance of their attention (JSD), interpolated there, is divided by the
    distance between models that were only trained from other seeds (the median over seeds).

    Predictions may jump from below 0.05 to far above, or stay below however strong the adversary
    is. After `trainings` adversaries the strongest below counts as it is, and the column
    `straddled` is 0: what lies between was not found. The interval is for other documents and other
    training seeds; of each adversary there is one training.
    """

    claim = stated("exclusive-model", _over_seeds)
    effort = ("epochs", "trainings")

    seeds: Annotated[int, AtLeast(1)] = 8
    epochs: Annotated[int, AtLeast(1)] = 20
    trainings: Annotated[int, AtLeast(1)] = 8

    def measure(self, study: Study) -> list[Row]:
        attention = attention_of(study.model, study.documents)
        distances = seed_distances(study.trainer, study.documents, attention, self.seeds)
        if not np.median(distances, axis=0).any():
            raise NotApplicable(
                "Training again gives the very same attention: there is nothing to compare with."
            )
        columns = self._adversaries(study, attention)
        seeds = study.trainer.seeds(self.seeds)
        columns |= {f"seed_{seed}": d for seed, d in zip(seeds, distances, strict=True)}
        rows: list[Row] = [
            {name: float(column[i]) for name, column in columns.items()}
            for i in range(len(attention))
        ]
        # of each document its own distance, read off where the mean over documents is
        between = _between(columns)
        for i, row in enumerate(rows):
            own = {name: columns[name][i : i + 1] for name in ("jsd_below", "jsd_above")}
            row["value"] = read_off({**columns, **own}) / between
        return rows

    def _adversaries(
        self, study: Study, attention: Sequence[Float[np.ndarray, "word"]]
    ) -> dict[str, Distances]:
        """How far predictions and attention move in each document, with two adversaries."""
        base = study.model.probabilities(study.model(study.documents))
        still = np.zeros(len(attention))
        # by strength, distances of predictions and of attention; the model itself moves nothing
        found: dict[float | None, tuple[Distances, Distances]] = {None: (still, still)}

        def moved(strength: float) -> float:
            adversary = study.trainer.adversary(strength, epochs=self.epochs)
            pairs = zip(attention, attention_of(adversary, study.documents), strict=True)
            predictions = adversary.probabilities(adversary(study.documents))
            apart = np.asarray(tvd(predictions, base))
            found[strength] = apart, np.array([float(jsd(a, b)) for a, b in pairs])
            return float(apart.mean())

        below, above, closely = straddle(moved, self.trainings)
        if not closely:
            nearest = [f"{found[end][0].mean():.3f}" for end in (below, above) if end is not None]
            say(
                "exclusive-model: no two adversaries straddle a mean TVD of 0.05 within 0.02 (the"
                f" nearest: {' and '.join(nearest)}). The strongest below 0.05 counts as it is."
            )
        columns = {"straddled": still + closely, "trainings": still + len(found) - 1}
        for side, strength in (("below", below), ("above", above)):
            columns[f"tvd_{side}"], columns[f"jsd_{side}"] = found[strength]
        return columns


@dataclass(frozen=True)
class Stable(ClaimTest):
    """Retrain the model from other seeds and measure how far each document's attention moves.

    The statistic takes the median over seeds in each document, so that one training that failed
    does not count, and the mean over documents. Its interval is for other documents and other
    seeds: seeds contribute the spread of their means over documents, and as a median varies by up
    to π/2 as much as a mean (in variance, for a normal distribution), that much more.
    """

    claim = stated("stable")

    seeds: Annotated[int, AtLeast(1)] = 8

    def measure(self, study: Study) -> list[Row]:
        attention = attention_of(study.model, study.documents)
        distances = seed_distances(study.trainer, study.documents, attention, self.seeds)
        distances /= np.log(2)
        seeds = study.trainer.seeds(self.seeds)
        rows: list[Row] = []
        for i, weights in enumerate(attention):
            row: Row = {
                "value": float(np.median(distances[:, i])),
                "maximum": float(distances[:, i].max()),
                "max_attention": float(weights.max()),
            }
            by_seed = zip(seeds, distances[:, i], strict=True)
            rows.append(row | {f"seed_{seed}": float(distance) for seed, distance in by_seed})
        return rows


def seed_distances(
    retraining: Retraining,
    documents: Sequence[Document],
    attention: Sequence[Float[np.ndarray, "word"]],
    seeds: int,
) -> Float[np.ndarray, "seed document"]:
    """JSD between a model's attention and that of models trained from other seeds."""
    distances = []
    for seed in retraining.seeds(seeds):
        retrained = attention_of(retraining.again(seed), documents)
        distances.append([float(jsd(a, b)) for a, b in zip(attention, retrained, strict=True)])
    return np.array(distances)


def attention_of(
    model: Classifier, documents: Sequence[Document]
) -> list[Float[np.ndarray, "word"]]:
    """The attention that is judged: the classifying row on words, mean over heads, as shares."""
    from heed.training.examples import outputs_of

    shares = []
    for tokens, _, attention in outputs_of(model, documents):
        on_words = attention[: len(tokens)][~tokens.special].astype(float)
        shares.append(on_words / (on_words.sum() or 1.0))  # all 0 if no word has any attention
    return shares
