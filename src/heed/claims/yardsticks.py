"""What claims compare explanations with, and how far noise in it can be trusted.

LIME samples texts. With few samples two draws of it rank words differently, and nothing could agree
with both. So claims that use it as a yardstick take as many samples as two draws need to agree
well, and correct for the noise that is left: with less agreement, the correction is too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from heed.claims.study import Study
from heed.methods import Explanation, Lime, LimeExact, Method
from heed.methods.comparison import aligned
from heed.metrics import weighted_kendall
from heed.models.classifier import CLOSED, Removal

RELIABLE = 0.8  # what two draws of a sampled yardstick must reach (weighted τ)
FIRST_SAMPLES = 250  # how many samples they begin with


def top_size(units: int) -> int:
    """How many units claims take for the top of a ranking: a tenth, at least 3."""
    return max(3, round(units / 10))


@dataclass(frozen=True)
class Yardstick:
    """What explanations are compared with, and how well two draws of it agree.

    reliability   Kendall's τ between two draws, weighted by the scores of one: 1 without sampling
    """

    method: Lime | LimeExact
    reliability: float = 1.0


def lime(study: Study, samples: int, removal: Removal | None = None) -> Lime | LimeExact:
    """LIME of the log-odds: exact if they have a closed form, else with this many samples.

    Log-odds and not logits: adding the same number to all logits changes them, but not the
    prediction. Log-odds follow from the prediction, and are linear where logits are.
    """
    closed = CLOSED in study.model.offers and len(study.model.labels) == 2
    if closed and removal in (None, "replace"):  # exact LIME replaces words
        return LimeExact(output="log-odds")
    # the model's own way to remove words goes by None, so that claims share explanations
    way = None if removal == study.model.removals[0] else removal
    return Lime(samples=samples, removal=way, output="log-odds")


def best_lime(study: Study, most: int) -> Lime | LimeExact:
    """LIME with little noise, with at most so many samples (see `reliable_lime`)."""
    return reliable_lime(study, most).method


def reliable_lime(study: Study, most: int, removal: Removal | None = None) -> Yardstick:
    """LIME with as many samples as it takes, up to `most`, until two draws of it agree.

    They agree if Kendall's τ between them, weighted, is above .8 in the mean over the first
    documents of the study, up to 20 with different texts. All claims that ask for it share its
    draws. Exact LIME agrees with itself.
    """
    samples = min(FIRST_SAMPLES, most)
    while True:
        method = lime(study, samples, removal)
        if isinstance(method, LimeExact):
            return Yardstick(method)
        agreement = reliability(study, method, weighted_agreement)
        if agreement > RELIABLE or samples >= most:
            return Yardstick(method, agreement)
        samples = min(most, _more(samples, agreement))


def reliability(
    study: Study, method: Method, agreement: Callable[[Explanation, Explanation], float]
) -> float:
    """How well two draws agree, over the first documents; 1 if no document ranks any word."""
    pairs = zip(
        study.explain_only(method, study.probed),
        study.explain_only(method, study.probed, repetition=1),
        strict=True,
    )
    taus = np.array([agreement(again, one) for one, again in pairs])
    taus = taus[np.isfinite(taus)]
    return float(taus.mean()) if len(taus) else 1.0


def weighted_agreement(judged: Explanation, yardstick: Explanation) -> float:
    """Kendall's τ between absolute scores, weighted by the yardstick's (`weighted_kendall`)."""
    x, y = aligned([judged, yardstick])
    return weighted_kendall(np.abs(x), np.abs(y))


def restored(tau: float, *reliabilities: float) -> float:
    """Kendall's τ with what noise takes from it put back.

    Noise takes the factor √r from the correlation with anything, if r is the correlation between
    two draws. For τ that would put back too much. So τ is turned into the correlation that it has
    for normal variables, sin(πτ/2), corrected, and turned back.

    reliabilities   τ between two draws, of each side that has noise; above 0
    """
    rho = correlation(tau) / math.sqrt(math.prod(map(correlation, reliabilities)))
    return float(np.arcsin(np.clip(rho, -1, 1)) * 2 / math.pi)


def correlation(tau: float) -> float:
    """The correlation of two normal variables whose Kendall's τ this is (Greiner's relation)."""
    return math.sin(math.pi * tau / 2)


def _more(samples: int, agreement: float) -> int:
    """How many samples to try next: half as many again, or more if they are surely needed.

    The variance of noise falls as 1/samples. A correlation of r between two draws comes from noise
    of variance (1 - r) / r, in units of the signal. Noise lowers τ more than a correlation, so at
    least as many samples are needed.
    """
    allowed = (1 - RELIABLE) / RELIABLE
    needed = samples * (1 - agreement) / max(agreement, 1e-9) / allowed
    return math.ceil(max(1.5 * samples, needed))
