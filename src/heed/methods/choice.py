"""Which methods explain a text where nobody named any, and how long methods will take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heed.methods.explanation import UnitKind
from heed.methods.method import Method
from heed.methods.propagation import Rollout
from heed.methods.table import DEFAULT, METHODS
from heed.methods.units import units_of
from heed.models.classifier import Classifier, Logits
from heed.progress import roughly
from heed.text import Tokens

PATIENCE = 30.0  # seconds that a method may take that nobody asked for by its name
_PER_GROUP = 2  # methods of each group by default
_LONG = 10.0  # seconds from which somebody who waits wants to know how long
_FEW = 8  # texts in the batch that is measured
_TRIAL = 1.0  # seconds that measuring may take, but for the first pass


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says of one text, and how long it takes for one output.

    logits    of the whole text; methods that explain it together share them
    seconds   for one of many outputs
    """

    tokens: Tokens
    logits: Logits
    seconds: float


def predicted(model: Classifier, tokens: Tokens) -> Prediction:
    """Ask the model, and measure a few passes more, since the first may be slow."""
    began = time.perf_counter()
    logits = model.logits([tokens])
    seconds, spent = time.perf_counter() - began, 0.0
    # of many texts at once each takes less than one by itself
    for size in (1, 1, _FEW):
        if spent + size * seconds > _TRIAL:
            break
        began = time.perf_counter()
        model.logits([tokens] * size)
        took = time.perf_counter() - began
        seconds, spent = min(seconds, took / size), spent + took
    return Prediction(tokens, logits, seconds)


@dataclass(frozen=True)
class Chooser:
    """Says which methods can explain a text, within `patience` seconds each, and why others not."""

    model: Classifier
    prediction: Prediction
    unit: UnitKind = "word"
    patience: float = PATIENCE

    def quick(self, methods: Iterable[Method]) -> tuple[list[Method], dict[str, str]]:
        """Those of these methods that can; the reasons of the others, by name."""
        able, reasons = [], {}
        for method in methods:
            if reason := self.reason_against(method):
                reasons[method.name] = reason
            else:
                able.append(method)
        return able, reasons

    def default(self, methods: Sequence[Method]) -> tuple[list[Method], dict[str, str]]:
        """The first two of each group that can; of a group that lacks some, the reasons."""
        by_name = {method.name: method for method in methods}
        chosen: list[Method] = []
        left_out: dict[str, str] = {}
        for names in DEFAULT.values():
            able, reasons = self.quick(by_name[name] for name in names if self._fits(by_name[name]))
            chosen += able[:_PER_GROUP]
            if len(able) < _PER_GROUP:
                left_out |= reasons
        return chosen, left_out

    def reason_against(self, method: Method) -> str:
        """Why a method cannot explain the text, or would take too long; else ""."""
        if reason := method.refusal(self.model, [self.prediction.tokens.document]):
            return reason
        expected = self.seconds(method)
        if expected <= self.patience:
            return ""
        return f"it would take about {roughly(expected)}; name it to run it"

    def seconds(self, method: Method) -> float:
        """How long a method will take at most; nothing, if it asks for one output."""
        units, _ = units_of(self.prediction.tokens, self.unit, method.merges_repeats())
        evaluations = method.evaluations(len(units))
        return self.prediction.seconds * evaluations if evaluations > 1 else 0.0

    def warning(self, methods: Sequence[Method]) -> str:
        """How long these methods will take, in a sentence, if that is long; else ""."""
        expected = {method.name: self.seconds(method) for method in methods}
        total = sum(expected.values())
        if total < _LONG:
            return ""
        slowest = sorted(expected, key=lambda name: -expected[name])
        named = [f"{n} {roughly(expected[n])}" for n in slowest if expected[n] > total / 10]
        parts = f" ({', '.join(named)})" if len(methods) > 1 else ""
        return f"This will take about {roughly(total)}{parts}."

    def _fits(self, method: Method) -> bool:
        # in a causal model rollout ends at the first tokens, whatever they are
        return not (isinstance(method, Rollout) and self.model.causal)


def only_by_name() -> dict[str, str]:
    """Methods that are never run unasked, with the reason."""
    return {n: "run only if you name them" for n, cls in METHODS.items() if cls.only_by_name}
