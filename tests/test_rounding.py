"""What half precision rounds away is noted (with real models in `apart/in_half_precision.py`)."""

from __future__ import annotations

import numpy as np
import pytest

from heed.methods.rounding import FEW, rounded_away, rounding_of
from heed.models.classifier import OUTPUTS, output_of
from heed.models.single_layer import SingleLayer


class Half:
    """What the rule reads of a model."""

    def __init__(self, rounding: float, exclusive: bool):
        self.rounding, self.exclusive = rounding, exclusive


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("output", OUTPUTS)
def test_a_unit_is_what_the_output_moves_when_every_logit_is_off_by_one(
    output: str, exclusive: bool
) -> None:
    """One logit after the other, in the direction that adds up."""
    logits, label = np.array([-3.0, 0.5, 2.0]), 2
    for rounding in (2**-7, 2**-10):
        moved = 0.0
        for k, z in enumerate(logits):
            tiny = 1e-6 * abs(z)
            bumped = logits.copy()
            bumped[k] += tiny
            outputs = [output_of(x, label, output, exclusive) for x in (logits, bumped)]  # type: ignore[arg-type]
            moved += abs(outputs[1] - outputs[0]) / tiny * rounding * abs(z)
        unit = rounding_of(Half(rounding, exclusive), logits, label, output)  # type: ignore[arg-type]
        assert unit == pytest.approx(moved, rel=1e-3)


def test_the_note_comes_with_scores_of_eight_units_or_less() -> None:
    assert rounded_away(np.array([FEW * 0.1001, 0.0]), 0.1) == ""
    note = rounded_away(np.array([0.3, -FEW * 0.0999]), 0.1)
    assert "rounds the output to about 0.1, and the largest score is 0.8: use --dtype" in note
    assert rounded_away(np.zeros(0), 0.1)


def test_models_in_single_precision_are_not_half(model: SingleLayer) -> None:
    assert not model.half and model.rounding == np.finfo(np.float32).eps
