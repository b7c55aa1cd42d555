"""When can attention explain at all? Three conditions, reported beside the verdicts on claims.

Attention weighs values. It ranks words by their contributions only if the values have the same
sign. If attention is spread over all words, it points at none. If spreading it evenly changes
nothing, nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from heed.claims.claim import FEWEST, Claim, Evidence, Row, stated
from heed.claims.study import Study
from heed.claims.tested import statistic
from heed.methods.units import units_of
from heed.metrics import tvd
from heed.models.classifier import REPLACEABLE, select_output
from heed.models.devices import as_numbers
from heed.text import Tokens

CONDITIONS = (stated("one-signed"), stated("peaked"), stated("context"))

# Bonferroni: the error of 5 % is divided among the conditions
LEVEL = 1 - 0.05 / len(CONDITIONS)


@dataclass(frozen=True)
class Finding:
    """A condition, and the mean of its statistic over n documents, with an interval.

    The interval is widened for the number of conditions (Bonferroni). `independent` counts
    documents that share an id as one.
    """

    condition: Claim
    mean: float
    low: float
    high: float
    n: int
    independent: int

    @property
    def holds(self) -> bool | None:
        """None if the interval spans the threshold, or there are too few documents."""
        at, above = self.condition.threshold, self.condition.above
        if self.independent < FEWEST or not (self.low > at or self.high < at):
            return None
        return (self.low > at) == above


def findings(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Each condition with its mean and interval, from the rows of `measure`."""
    measured = []
    for condition in CONDITIONS:
        evidence = Evidence(condition, [{**row, "value": row[condition.id]} for row in rows])
        n = len(evidence.values)
        if n:
            mean, (low, high) = statistic(evidence, LEVEL)
            measured.append(Finding(condition, mean, low, high, n, evidence.independent))
    return measured


def measure(study: Study) -> list[Row]:
    """One row per document; no rows if the model's attention cannot be replaced.

    A value speaks against the label if more attention on its word would lower the label's log-odds.
    This is a first-order approximation, exact if the output is linear in attention.
    """
    if REPLACEABLE not in study.model.offers:
        return []
    tokens = study.model.tokens(study.documents)
    rows = study.model.each(tokens, lambda batch: _batch(study, [tokens[i] for i in batch]))
    return [ids | row for ids, row in zip(study.ids, rows, strict=True)]


def _batch(study: Study, tokens: Sequence[Tokens]) -> list[Row]:
    import torch

    plain, logits, *_ = study.model.attending(tokens)
    weights = plain.classifying_rows().clone().requires_grad_()
    even = weights.detach().clone()
    for b, t in enumerate(tokens):
        words = torch.from_numpy(np.flatnonzero(study.free(t)))
        even[b][..., words] = even[b][..., words].mean(-1, keepdim=True)
    with torch.enable_grad():
        output = logits(weights)
        predicted = output.detach().argmax(-1)
        odds = select_output(output, predicted, "log-odds", study.model.exclusive)
        (slopes,) = torch.autograd.grad(odds.sum(), weights)
    with torch.no_grad():
        moved = logits(even)
        adds = plain.pooled(weights.detach() * slopes).sum(1).numpy()
    before, after = (study.model.probabilities(as_numbers(z)) for z in (output, moved))
    change = (
        np.asarray(tvd(after, before)) if study.model.exclusive else np.abs(after - before).max(-1)
    )
    attention = plain.classifying().mean(1)
    return [
        _row(units_of(t, study.unit)[1], attention[b], adds[b]) | {"context": float(change[b])}
        for b, t in enumerate(tokens)
    ]


def _row(
    groups: Int[np.ndarray, "token"],
    attention: Float[np.ndarray, "key"],
    adds: Float[np.ndarray, "key"],
) -> Row:
    """Two conditions from the unit of each token, and what attention each key gets and adds."""
    inside = np.flatnonzero(groups >= 0)
    groups, attention, adds = groups[inside], attention[inside].astype(float), adds[inside]
    of_words = np.bincount(groups, attention)
    mass = float(attention.sum())
    # with three words or fewer, "peaked" is at least 1/3: above its threshold for any attention
    if len(of_words) < 4 or mass <= 0:
        return {"one-signed": float("nan"), "peaked": float("nan")}
    held = np.cumsum(np.sort(of_words)[::-1])
    return {
        "one-signed": float(attention[adds < 0].sum() / mass),
        "peaked": float((np.searchsorted(held, mass / 2) + 1) / len(of_words)),
    }
