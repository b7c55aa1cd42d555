"""How long an audit takes, measured on three of its documents."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from heed.audit.measure import measure, turn
from heed.audit.setup import Setup, Training, prepare
from heed.claims import ClaimTest
from heed.claims.study import controls
from heed.data import Dataset
from heed.methods import Method
from heed.methods.explanation import UnitKind
from heed.models import Model
from heed.progress import Listener, counter, heard, listening, roughly, say
from heed.settings import plain
from heed.store import key_of
from heed.text import Document, counted

LONG = 20.0  # seconds after which somebody who waits is told beforehand
WORTH = 30  # with fewer documents, measuring three beforehand is no small part of the work
NAMED = 3  # claims whose time is said by name


class Cost(NamedTuple):
    """What a claim takes on all documents, in seconds; None if it retrains the model."""

    claim: str
    seconds: float | None


def estimate(
    model: Model,
    dataset: Any = None,
    claims: Sequence[str | ClaimTest] | str | None = None,
    methods: Sequence[str | Method] | str | Method | None = None,
    limit: int | None = None,
    seed: int = 0,
    training: Training | Dataset | Sequence[Document] | None = None,
    columns: Mapping[str, str | None] | None = None,
    unit: UnitKind = "word",
) -> list[Cost]:
    """How long each claim of an audit takes, in the order in which they run.

    It is measured on three documents. What claims share counts where it is computed first.
    """
    setup = prepare(model, dataset, claims, methods, limit, seed, training, None, columns, unit)
    return costs_of(setup)


def in_turn(setup: Setup, foretell: bool = True) -> Iterator[ClaimTest]:
    """The claims in the order in which they are measured, with progress by what each takes.

    With `foretell`, somebody who waits for an audit that takes long is told beforehand.
    """
    tests = sorted(setup.tests, key=turn)
    shares = [1] * len(tests)
    unit, costs = "claim", []
    if foretell and heard() and len(setup.documents) >= WORTH:
        costs = _kept(setup)
        if _total(costs) > LONG:
            say(sentence(costs, len(setup.documents)))
            unit, shares = "%", _shares(costs)
    with counter(sum(shares), "claims", unit=unit) as progress:
        for test, share in zip(tests, shares, strict=True):
            progress.note(test.claim.id)
            yield test
            progress.advance(share)


def sentence(costs: Sequence[Cost], documents: int) -> str:
    """What an audit of so many documents takes, and which claims take most of it."""
    known = sorted((c for c in costs if c.seconds), key=lambda c: -(c.seconds or 0.0))
    most = ", ".join(f"{c.claim} {roughly(c.seconds or 0.0)}" for c in known[:NAMED])
    total = roughly(_total(costs))
    text = f"{counted(documents)} take about {total} ({most}), measured on three of them."
    if trained := [c.claim for c in costs if c.seconds is None]:
        text += f" Training again takes longer: {', '.join(trained)}."
    return text


def _total(costs: Sequence[Cost]) -> float:
    return sum(c.seconds or 0.0 for c in costs)


def _shares(costs: Sequence[Cost]) -> list[int]:
    """Whole per cents that add up to 100; what is not known has the share of the largest."""
    most = max(c.seconds or 0.0 for c in costs)
    ends = np.cumsum([most if c.seconds is None else c.seconds for c in costs])
    # differences of rounded sums, so that rounding errors do not add up
    return np.diff(np.round(100 * ends / ends[-1]), prepend=0).astype(int).tolist()


def _kept(setup: Setup) -> list[Cost]:
    """The costs, measured once: a resumed audit has its rows already, and would look free."""
    first = setup.first
    about = [(test.claim.id, plain(test)) for test in setup.tests]
    methods = [(study.method.name, plain(study.method)) for study in setup.studies]
    texts = [d.segments for d in setup.documents]
    key = key_of("cost", first.model.revision, about, methods, texts, first.seed, first.unit)
    rows = first.store.rows(key, lambda: costs_of(setup))
    return [Cost(*row) for row in rows]


def costs_of(setup: Setup) -> list[Cost]:
    """The costs, from the middle document first, and then from a short and a long one.

    With a store, their rows are kept for the audit.
    """
    lengths = np.array([len(t) for t in setup.tokens], dtype=float)
    order = np.argsort(lengths, kind="stable")
    # the middles of three equal parts: their mean is near that of all, also of what grows faster
    short, middle, long = (int(order[int(len(order) * share)]) for share in (1 / 6, 1 / 2, 5 / 6))
    others = sorted({short, long} - {middle}) or [middle]
    with listening(Listener()):  # bars of three documents tell nothing
        one = _seconds(setup.only([middle]))
        two = _seconds(setup.only(others))
    tests = sorted(setup.tests, key=turn)
    tokens = lengths[middle], lengths[others].sum(), lengths.sum()
    of_one, of_two, of_all = map(float, tokens)
    costs = []
    for test, a, b in zip(tests, one, two, strict=True):
        if a is None or b is None:
            costs.append(Cost(test.claim.id, None))
        else:
            costs.append(Cost(test.claim.id, _scaled(a, b, of_one, of_two, of_all)))
    return costs


def _scaled(one: float, two: float, of_one: float, of_two: float, of_all: float) -> float:
    """Seconds for all tokens, from those for the tokens of one document and of two others.

    A claim takes some time once, and some for each token: two equations, two unknowns.
    """
    rate = (two - one) / (of_two - of_one) if of_two > of_one else 0.0
    once = one - rate * of_one
    if rate <= 0 or once < 0:  # noise, or imports in the first measurement
        return two / of_two * of_all
    return once + rate * of_all


def _seconds(setup: Setup) -> list[float | None]:
    """Seconds of each claim in turn; None where it would retrain the model."""
    seconds: list[float | None] = []
    for test in sorted(setup.tests, key=turn):
        refused = test.refusal(setup.first) is not None
        if test.claim.trains and not refused:
            seconds.append(None)
            continue
        began = time.perf_counter()
        judged = [measure(test, study, None) for study in setup.studies_of(test)]
        controls(test, setup.chance, judged)
        seconds.append(time.perf_counter() - began)
    return seconds
