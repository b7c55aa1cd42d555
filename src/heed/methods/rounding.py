"""Whether scores that are changes of the output stand out from its rounding."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from heed.models.classifier import Classifier, Output, output_slope

FEW = 8  # units of rounding that a largest score should exceed


def rounding_of(
    model: Classifier, logits: Float[np.ndarray, "label"], label: int, output: Output
) -> float:
    """To how much a model knows an output y: one unit of rounding.

    It knows a logit z_k to ε|z_k|, where ε is the spacing of its numbers at 1: 2⁻⁷ in bfloat16,
    2⁻¹⁰ in float16. So it knows the output, to first order, to Σ_k |∂y/∂z_k| ε |z_k|.
    """
    slope = output_slope(logits, label, output, model.exclusive)
    return float(model.rounding * (np.abs(slope) @ np.abs(logits)))


def rounded_away(scores: Float[np.ndarray, "unit"], unit: float) -> str:
    """A note if no score exceeds eight units of rounding of the output; else "".

    A score is the difference of two outputs, each of which is known to one unit at best. Where the
    largest score is eight units or less, it is known to one part in eight at best, and the others
    to less. The passes in between round as well, so the true error is larger.
    """
    largest = float(np.abs(scores).max(initial=0.0))
    if largest > FEW * unit:
        return ""
    return (
        f"Half precision rounds the output to about {unit:.1g}, and the largest score is"
        f" {largest:.2g}: use --dtype float32 to see effects that small."
    )
