"""Audits that add documents until every claim is decided."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import Heard

from heed.audit import Audit, audit, plan
from heed.audit.growing import FIRST, is_open, shuffled, stops
from heed.audit.setup import prepare
from heed.claims import CLAIMS, Verdict, judge
from heed.claims.needed import Used
from heed.claims.study import ClaimTest, Study, grouped
from heed.models.single_layer import SingleLayer
from heed.progress import listening
from heed.report import html, terminal
from heed.text import Document
from tests.test_cli import command, refused
from tests.test_report import printed

DOCUMENTS = [Document(f"the film was good and {'very ' * (i % 9)}bad {i}") for i in range(300)]


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `used` measures on a document, by a rule of the test; and on which it was measured."""
    rule: dict[str, Any] = {"of": lambda text: 0.4 + 0.1 * (len(text) % 3), "measured": Counter()}

    def measure(self: ClaimTest, study: Study) -> list[dict]:
        def batch(tokens: list) -> list[dict]:
            rule["measured"].update(t.document.text for t in tokens)
            return [{"value": rule["of"](t.document.text)} for t in tokens]

        return study.by_batch(self, batch, 8192)

    monkeypatch.setattr(Used, "measure", measure)
    return rule


def test_looks_double_and_never_split_a_group() -> None:
    assert list(stops(range(300))) == [50, 100, 200, 300]
    assert list(stops(range(50))) == [50] and list(stops([0])) == [1]
    groups = [i // 7 for i in range(300)]
    found = list(stops(groups))
    assert found[0] == 56 and found[-1] == 300
    assert all(groups[stop] != groups[stop - 1] for stop in found[:-1])
    assert list(stops([0] * 300)) == [300]


def test_documents_come_in_random_order_with_groups_together(model: SingleLayer) -> None:
    documents = [Document(d.text, cluster=str(i % 40)) for i, d in enumerate(DOCUMENTS)]
    setups = [shuffled(prepare(model, documents, "used", seed=seed)) for seed in (0, 0, 1)]
    orders = [[d.text for d in setup.documents] for setup in setups]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(d.text for d in documents) != orders[0]
    groups = grouped(setups[0].documents)
    assert sum(a != b for a, b in pairwise(groups)) == 39


def test_what_is_clear_is_decided_by_the_first_documents(
    model: SingleLayer, values: dict[str, Any]
) -> None:
    values["of"] = lambda text: 0.6 + 0.1 * (len(text) % 3)
    audited = audit(model, DOCUMENTS, "used", until_decided=True)
    (verdict,) = audited.verdicts
    assert verdict.outcome == "supported" and verdict.interval == "betting"
    assert audited.facts["documents"] == FIRST == len(audited.judged[0].rows) == verdict.n


def test_what_is_close_takes_more_documents_and_each_is_measured_once(
    model: SingleLayer, values: dict[str, Any]
) -> None:
    values["of"] = lambda text: float(int(text.split()[-1]) % 4 == 0)  # 0.25, threshold 0.05
    with listening(heard := Heard()):
        audited = audit(model, DOCUMENTS, "used", until_decided=True)
    n = audited.facts["documents"]
    assert n in (100, 200) and audited.verdicts[0].outcome == "supported"
    assert sum(values["measured"].values()) == n == len(values["measured"])
    assert "50 documents: open are used" in heard.lines
    prepared = shuffled(prepare(model, DOCUMENTS, "used"))
    assert set(values["measured"]) == {d.text for d in prepared.documents[:n]}


def test_what_is_never_decided_takes_all_or_as_many_as_allowed(
    model: SingleLayer, values: dict[str, Any]
) -> None:
    values["of"] = lambda text: 0.05
    for limit, n in ((None, 300), (120, 120)):
        audited = audit(model, DOCUMENTS, "used", limit=limit, until_decided=True)
        assert audited.facts["documents"] == n and audited.verdicts[0].outcome == "undecided"


def test_only_what_documents_can_decide_is_open() -> None:
    bounded = next(t.claim for t in CLAIMS.values() if t.claim.bounds and not t.claim.trains)
    trains = next(t.claim for t in CLAIMS.values() if t.claim.trains)
    assert is_open(Verdict(bounded, "undecided", cause="spans"))
    assert is_open(Verdict(bounded, "undecided", cause="few"))
    assert not is_open(Verdict(bounded, "undecided", cause="operators"))
    assert not is_open(Verdict(bounded, "supported"))
    assert not is_open(Verdict(trains, "undecided", cause="spans"))


def test_a_saved_audit_keeps_its_intervals_and_says_how_it_stopped(
    model: SingleLayer, values: dict[str, Any], tmp_path: Path
) -> None:
    audited = audit(model, DOCUMENTS, "used", until_decided=True)
    audited.save(tmp_path / "rows.parquet")
    again = Audit.load(tmp_path / "rows.parquet")
    assert repr(again.verdicts) == repr(audited.verdicts)
    assert repr(judge(again.evidence)) != repr(again.verdicts)
    said = "50 documents, added until all is decided"
    assert said in " ".join(printed(terminal.audit(again)).split()) and said in html.audit(again)


def test_a_plan_says_that_documents_are_added(model: SingleLayer, values: dict[str, Any]) -> None:
    made = plan(model, DOCUMENTS, "used", limit=200, until_decided=True)
    followed = audit(model, DOCUMENTS, plan=made)
    assert followed.facts["plan"]["departures"] == [] and followed.facts["documents"] == 50
    fixed = audit(model, DOCUMENTS, plan=made, until_decided=False)
    (departure,) = fixed.facts["plan"]["departures"]
    assert "after all documents, which was not planned" in departure


def test_the_command_line_adds_documents(values: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    asked = ("--data", "task:reviews", "--claim", "used", "--until-decided", "--most", "80")
    done = command("audit", *asked, "--format", "json")
    assert json.loads(done.out)["facts"]["documents"] == 50
    assert command("plan", *asked, "-o", path).code == 0
    facts = json.loads(command("audit", "--plan", path, "--format", "json").out)["facts"]
    assert facts["documents"] == 50 and facts["plan"]["departures"] == []


def test_mistakes_get_one_sentence() -> None:
    refused(command("audit", "--until-decided", "--limit", "50"), "--most")
    refused(command("audit", "--most", "50"), "--until-decided")
