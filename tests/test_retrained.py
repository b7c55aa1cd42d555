"""Claims that train again: strengths of adversaries, and what each training seed says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bench.constructed import TWIN, WORTH, Word, build, two_minds
from heed.claims import Study
from heed.claims.claim import Evidence
from heed.claims.retrained import ExclusiveModel, Stable, attention_of, read_off, straddle
from heed.metrics import jsd, tvd
from heed.models.single_layer import SingleLayer
from heed.progress import Listener, listening


@pytest.mark.parametrize(
    ("moved", "closely"),
    [
        (lambda x: 10 * x, True),  # 0.05 at 0.005
        (lambda x: 1 - np.exp(-((40 * x) ** 2)), True),
        (lambda x: 0.014 if x < 0.003 else 0.682, False),  # a jump
        (lambda x: 0.04, False),  # never moves far
        (lambda x: 0.3, False),  # always does
    ],
)
def test_strengths_are_bisected_until_two_adversaries_straddle(
    moved: Callable[[float], float], closely: bool
) -> None:
    asked: list[float] = []
    found = straddle(lambda x: (asked.append(x), float(moved(x)))[1], 8)
    assert found.closely == closely and len(asked) <= 8
    below, above = ([x for x in asked if (moved(x) <= 0.05) == side] for side in (True, False))
    assert found.below == max(below, default=None) and found.above == min(above, default=None)
    if closely:
        assert 0.03 <= moved(found.below) <= 0.05 < moved(found.above) <= 0.07
    else:
        assert len(asked) == 8


def test_nothing_is_read_off_a_line_over_a_jump() -> None:
    columns = {
        "tvd_below": np.array([0.01, 0.018]),
        "tvd_above": np.array([0.7, 0.664]),
        "jsd_below": np.array([0.1, 0.3]),
        "jsd_above": np.array([0.5, 0.6]),
        "straddled": np.zeros(2),
    }
    assert read_off(columns) == pytest.approx(0.2)
    near = {"tvd_below": np.array([0.03, 0.05]), "tvd_above": np.array([0.06, 0.06])}
    columns |= near | {"straddled": np.ones(2)}
    # 0.05 is half way between 0.04 and 0.06
    assert read_off(columns) == pytest.approx((0.2 + 0.55) / 2)


@dataclass(frozen=True)
class Trainings:
    """Trainings of `two_minds`, and adversaries whose attention and output move with strength."""

    minds: Any
    jumps: bool

    def seeds(self, count: int) -> list[int]:
        return self.minds.seeds(count)

    def again(self, seed: int) -> SingleLayer:
        return self.minds.again(seed)

    def adversary(self, strength: float, epochs: int) -> SingleLayer:
        far = min(1.0, 100 * strength)
        words = {x: Word(4 * (1 - far), (worth,)) for x, worth in WORTH.items()}
        words |= {TWIN[x]: Word(4 * far, (worth,)) for x, worth in WORTH.items()}
        scale = (0.0 if far > 0.3 else 1.9) if self.jumps else 2 * (1 - far)
        return build(words, scale=scale)


@pytest.mark.parametrize("jumps", [True, False])
def test_an_adversary_is_compared_with_other_seeds(jumps: bool) -> None:
    construction = two_minds(0, 30)
    trainer = Trainings(construction.retraining, jumps)
    study = Study(construction.model, construction.documents)
    study.retraining = trainer  # type: ignore[assignment]
    said: list[str] = []

    class Ear(Listener):
        def say(self, line: str) -> None:
            said.append(line)

    with listening(Ear()):
        rows = ExclusiveModel(seeds=3).measure(study)
    assert bool(said) == jumps == (rows[0]["straddled"] == 0)
    evidence = Evidence(ExclusiveModel.claim, [row | {"id": str(i)} for i, row in enumerate(rows)])
    # by hand: the means over documents, interpolated where predictions move by 0.05
    own = attention_of(study.model, study.documents)
    base = study.model.predict(construction.documents)
    points = []
    for strength in sorted(tried(trainer)):
        other = trainer.adversary(strength, 0)
        apart = np.mean(
            [tvd(a, b) for a, b in zip(other.predict(construction.documents), base, strict=True)]
        )
        pairs = zip(own, attention_of(other, study.documents), strict=True)
        points.append((apart, np.mean([jsd(a, b) for a, b in pairs])))
    below = [p for p in points if p[0] <= 0.05][-1]
    above = next(p for p in points if p[0] > 0.05)
    share = 0 if jumps else (0.05 - below[0]) / (above[0] - below[0])
    between = np.mean(
        [
            np.median(
                [jsd(own[i], attention_of(trainer.again(seed), [d])[0]) for seed in (1, 2, 3)]
            )
            for i, d in enumerate(study.documents)
        ]
    )
    expected = (below[1] + share * (above[1] - below[1])) / between
    assert evidence.combined() == pytest.approx(expected, rel=1e-6)
    assert np.mean([row["value"] for row in rows]) == pytest.approx(expected, rel=1e-6)


def tried(trainer: Trainings) -> list[float]:
    """The strengths that the bisection asks for, as it is a function of how far they move."""
    construction = two_minds(0, 30)
    base, asked = construction.model.predict(construction.documents), []

    def moved(strength: float) -> float:
        asked.append(strength)
        other = trainer.adversary(strength, 0).predict(construction.documents)
        return float(np.mean([tvd(a, b) for a, b in zip(other, base, strict=True)]))

    straddle(moved, 8)
    return asked


def test_every_seed_has_a_column() -> None:
    construction = two_minds(0, 10)
    study = Study(construction.model, construction.documents)
    study.retraining = construction.retraining  # type: ignore[assignment]
    rows = Stable(seeds=4).measure(study)
    own = attention_of(study.model, study.documents)
    for i, (row, document) in enumerate(zip(rows, study.documents, strict=True)):
        assert construction.retraining is not None
        for seed in (1, 2, 3, 4):
            (other,) = attention_of(construction.retraining.again(seed), [document])
            assert row[f"seed_{seed}"] == pytest.approx(jsd(own[i], other) / np.log(2))
        assert row["value"] == np.median([row[f"seed_{seed}"] for seed in (1, 2, 3, 4)])
