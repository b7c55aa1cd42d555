"""What an audit takes, said before it runs: by three documents."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import UNTRAINED, Heard

from heed.audit import Cost, audit, estimate
from heed.audit.cost import _scaled, _shares, sentence
from heed.claims.needed import Used
from heed.models.single_layer import SingleLayer
from heed.progress import listening
from heed.report import planned
from heed.text import Document
from tests.test_cli import command
from tests.test_report import printed

TEXTS = [f"the film was good and {'very ' * (i % 10)}bad {i}" for i in range(40)]


class Clock:
    """Time that passes by the tokens that a claim reads, and by nothing else."""

    def __init__(self, once: float, per_token: float):
        self.now, self.once, self.per_token = 0.0, once, per_token

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Under which `used` takes 7 s, and 2 s for each token; all else takes no time."""
    clock = Clock(7.0, 2.0)
    real = Used.measure

    def measure(self: Used, study: Any) -> Any:
        tokens = study.model.tokens(study.documents)
        clock.now += clock.once + clock.per_token * sum(map(len, tokens))
        return real(self, study)

    monkeypatch.setattr(Used, "measure", measure)
    monkeypatch.setattr(sys.modules["heed.audit.cost"], "time", SimpleNamespace(perf_counter=clock))
    return clock


def test_what_takes_time_once_and_per_token_is_told_apart(model: SingleLayer, clock: Clock) -> None:
    expected = 7 + 2 * sum(map(len, model.tokens([Document(t) for t in TEXTS])))
    (found,) = estimate(model, TEXTS, "used")
    assert found.claim == "used" and found.seconds == pytest.approx(expected)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_documents_have_an_estimate_too(model: SingleLayer, clock: Clock, n: int) -> None:
    tokens = [len(t) for t in model.tokens([Document(t) for t in TEXTS[:n]])]
    (found,) = estimate(model, TEXTS[:n], "used")
    assert found.seconds is not None and found.seconds >= 2 * sum(tokens)


def test_noise_never_gives_less_than_no_time() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1000):
        one, two, of_one, of_two, more = rng.exponential(1, 5)
        assert 0 <= _scaled(one, two, of_one, of_two, of_one + of_two + more) < np.inf


def test_shares_are_whole_per_cents_of_all() -> None:
    costs = [Cost("a", 1.0), Cost("b", 1.0), Cost("c", 1.0), Cost("d", 0.0)]
    assert _shares(costs) == [33, 34, 33, 0]
    assert sum(_shares([*costs, Cost("e", None)])) == 100
    assert sum(_shares([Cost(str(i), x) for i, x in enumerate(np.arange(37.0))])) == 100


def test_claims_that_retrain_are_not_estimated(model: SingleLayer) -> None:
    costs = [Cost("used", 30.0), Cost("removes", 300.0), Cost("needed", None)]
    text = sentence(costs, 200)
    assert "200 documents take about 6 min (removes 5 min, used 30 s)" in text and "needed" in text
    table = printed(planned.estimate(costs))
    assert "trains again" in table and "91%" in table and max(map(len, table.splitlines())) <= 80


def test_a_long_audit_is_announced_in_one_line_and_a_short_one_is_not(
    model: SingleLayer, clock: Clock
) -> None:
    with listening(heard := Heard()):
        audit(model, TEXTS, "used")
    (line,) = heard.lines
    assert line.startswith("40 documents take about") and "used" in line
    clock.once, clock.per_token = 0.1, 0.0
    with listening(heard := Heard()):
        audit(model, TEXTS, "used")
    assert not heard.lines


def test_nobody_who_does_not_listen_pays_for_an_estimate(
    model: SingleLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["heed.audit.cost"]
    monkeypatch.setattr(module, "costs_of", lambda setup: pytest.fail("it was estimated"))
    audit(model, TEXTS, "used")
    with listening(Heard()):
        audit(model, TEXTS[:10], "used")


def test_a_resumed_audit_says_the_same(model: SingleLayer, clock: Clock, tmp_path: Any) -> None:
    lines = []
    for _ in range(2):
        with listening(heard := Heard()):
            audit(model, TEXTS, "used", store=tmp_path)
        lines.append(heard.lines)
    assert lines[0] == lines[1] != []


def test_an_estimate_changes_no_result(model: SingleLayer) -> None:
    claims = [name for name, test in UNTRAINED.items() if not test.claim.slow]
    plain = audit(model, TEXTS, claims)
    with listening(Heard()):
        estimated = audit(model, TEXTS, claims)
    for one, other in zip(plain.evidence, estimated.evidence, strict=True):
        np.testing.assert_allclose(other.values, one.values, atol=1e-9)


def test_the_command_line_only_estimates() -> None:
    done = command("audit", "--estimate", "--claim", "used,removes", "--limit", "6")
    assert done.code == 0 and "removes" in done.out and "together" in done.out
    assert "verdict" not in done.out
