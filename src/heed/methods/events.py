"""What becomes of a label when words are removed: what anchors and flip sets share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from heed.methods.method import Job
from heed.models.classifier import Classifier

Held = Bool[np.ndarray, "sample"]  # which texts got the label


class Event(NamedTuple):
    """That a text gets a label or, without exclusive labels, stays on its side of one half.

    predicted   whether it is so for the whole document
    """

    label: int
    name: str
    predicted: bool
    exclusive: bool
    present: bool

    def held(self, logits: Float[np.ndarray, "sample label"]) -> Held:
        if self.exclusive:
            return logits.argmax(1) == self.label
        return (logits[:, self.label] > 0) == self.present


def event_of(model: Classifier, label: int, whole: Float[np.ndarray, "label"]) -> Event:
    name, present = model.labels[label], bool(whole[label] > 0)
    if model.exclusive:
        return Event(label, name, int(whole.argmax()) == label, True, True)
    return Event(label, name if present else f"not {name}", True, False, present)


def named(job: Job, index: int) -> str:
    """A unit in a sentence; of a pair, with the text that it is in."""
    unit = job.units[index]
    text = unit.text if len(unit.text) <= 30 else unit.text[:29] + "…"
    which = "" if job.tokens.document.pair is None else f" (text {unit.segment + 1})"
    return f"“{text}”{which}"
