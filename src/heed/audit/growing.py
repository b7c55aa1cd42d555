"""Audits that add documents until every claim is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from heed.audit.setup import Setup
from heed.claims import Evidence, Verdict, judge
from heed.claims.study import grouped
from heed.progress import say
from heed.randomness import generator
from heed.text import counted

FIRST = 50  # documents before the first look; then twice as many, and so on

Pairs = Sequence[tuple[str, str]]
Measure = Callable[[Setup], list[Evidence]]


def until_decided(
    setup: Setup, measure: Measure, spent: Callable[[], bool], planned: Pairs | None
) -> tuple[Setup, list[Evidence]]:
    """Measure more and more of the documents, until no claim is open that they could decide.

    Intervals are valid at all times, so that it does no harm to look again and again. Claims that
    have no bounds, or retrain the model, have no such intervals and are not waited for.
    """
    setup = shuffled(setup)
    part = setup
    evidence: list[Evidence] = []
    verdicts: list[Verdict] = []
    for stop in stops(grouped(setup.documents)):
        further = setup.first_documents(stop)
        rows = measure(further)
        if spent() and evidence:  # for some claims there was no time: what was there before stands
            break
        part, evidence, verdicts = further, rows, judge(rows, planned, any_time=True)
        waiting = [v for v in verdicts if is_open(v)]
        if not waiting or spent():
            break
        say(f"{counted(stop)}: open are {_named(waiting)}")
    _say_never(verdicts)
    return part, evidence


def shuffled(setup: Setup) -> Setup:
    """The documents in random order, those that count as one next to each other."""
    groups = grouped(setup.documents)
    order = generator(setup.first.seed, "until decided").permutation(max(groups) + 1)
    place = {int(group): i for i, group in enumerate(order)}
    return setup.only(sorted(range(len(groups)), key=lambda i: place[groups[i]]))


def stops(groups: Sequence[int]) -> Iterator[int]:
    """After how many documents to look: 50, 100, 200, … and all, never within a group."""
    look = FIRST
    for i in range(1, len(groups)):
        if i >= look and groups[i] != groups[i - 1]:
            yield i
            look = 2 * i
    yield len(groups)


def is_open(verdict: Verdict) -> bool:
    """Whether more documents may decide the claim."""
    waits = verdict.outcome == "undecided" and verdict.cause in ("few", "spans", "statistic")
    return waits and not _never(verdict)


def _never(verdict: Verdict) -> bool:
    """Whether no number of documents gives the claim an interval that is valid at all times."""
    claim = verdict.claim
    return claim.bounds is None or claim.combine is not None or claim.trains


def _say_never(verdicts: Sequence[Verdict]) -> None:
    left = [v for v in verdicts if v.outcome == "undecided" and _never(v)]
    if left:
        say(f"left open: {_named(left)}, which no number of documents decides in this way")


def _named(verdicts: Sequence[Verdict]) -> str:
    names = (
        f"{v.claim.id} of {v.method}" if v.claim.of_explanation else v.claim.id for v in verdicts
    )
    return ", ".join(names)
