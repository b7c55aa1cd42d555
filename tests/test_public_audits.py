"""The page of audits of public models, and the texts that they read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import heed
from bench import public_models
from heed.audit import Audit
from heed.claims import Verdict
from heed.claims.agrees import Tracks
from heed.claims.faithful import Removes
from heed.claims.stable import Robust
from heed.models.single_layer import SingleLayer
from heed.report.numbers import number
from tests.test_faithful import documents

CLAIMS = ["used", "agrees-removal", "tracks", Removes(orders=2), "competitive", Robust(samples=50)]


@pytest.fixture
def page(model: SingleLayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two audits of six, and a page with words of a person before and after the verdicts."""
    audits, results = tmp_path / "out", tmp_path / "results"
    audits.mkdir(), results.mkdir()
    audit = heed.audit(model, documents(35), CLAIMS, examples=3)
    for name in ("minilm-sst", "prompt-guard"):
        audit.facts["command"] = f"heed audit --model {name}"
        audit.save(audits / f"{name}.parquet")
    monkeypatch.setattr(public_models, "OUT", audits)
    monkeypatch.setattr(public_models, "RESULTS", results)
    readme = results / "README.md"
    readme.write_text("# Title\n\nBefore.\n\n## Verdicts\n\nstale\n\n## Learnt\n\nAfter.\n", "utf8")
    public_models.write_page()
    return readme


def test_the_page_shows_every_verdict_and_keeps_what_people_wrote(page: Path) -> None:
    text = page.read_text("utf8")
    assert text.startswith("# Title\n\nBefore.\n\n## Verdicts\n")
    assert text.endswith("## Learnt\n\nAfter.\n") and "stale" not in text
    header = next(line for line in text.splitlines() if line.startswith("| claim |"))
    assert header == "| claim |  | holds if | minilm-sst | prompt-guard |"
    audit = Audit.load(page.parent / "minilm-sst.parquet")
    for verdict in audit.verdicts:
        (row,) = [s for s in text.splitlines() if s.startswith(f"| `{verdict.claim.id}` |")]
        assert row.count(number(verdict.mean, decimals=2)) >= 2  # both models are the same one
    assert "heed audit --model prompt-guard" in text
    (random,) = [s for s in text.splitlines() if "random words" in s and s.startswith("| fall")]
    rows = next(e for e in audit.evidence if e.claim.id == "removes").rows
    mean = number(sum(row["random"] for row in rows) / len(rows), decimals=2)
    assert random.endswith(f"| {mean} | {mean} |")


def test_a_claim_behind_a_closed_gate_is_shown_without_a_verdict() -> None:
    judged = Verdict(Tracks.claim, "refuted", -0.154, -0.2, -0.1, 200)
    closed = replace(judged, outcome="not applicable", cause="gate", reason="closed")
    lacking = Verdict(Tracks.claim, "not applicable", cause="model", reason="needs gradients")
    assert [public_models.cell(v) for v in (judged, closed, lacking, None)] == [
        "✗ -0.15",
        "(-0.15)",
        "–",
        "–",
    ]


def test_what_is_committed_holds_no_texts(page: Path) -> None:
    texts = [d.text for d in documents(35)]
    for file in page.parent.iterdir():
        content = file.read_bytes().decode("utf8", errors="ignore")
        assert not any(text in content for text in texts), file.name
    assert not Audit.load(page.parent / "minilm-sst.parquet").examples
    assert json.loads((page.parent / "minilm-sst.json").read_text("utf8"))["verdicts"]


def test_questions_are_whole_sentences() -> None:
    text = "I have a card. Does anyone know what it does? >Who said so? Write to a@b.c, will you?"
    assert public_models.QUESTION.findall(text) == ["Does anyone know what it does?"]
