"""Two audits side by side, paired by document; and a build that fails where a verdict changes."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heed.audit import Audit, Diff, audit, diff
from heed.claims import CLAIMS, Evidence
from heed.claims.study import TEXT
from heed.errors import DataError, InputError
from heed.intervals import Sample, estimate
from heed.models.single_layer import SingleLayer
from heed.report import diff as report
from heed.report.numbers import number
from heed.text import Document
from tests.test_cli import command, refused
from tests.test_report import printed

FACTS: dict[str, Any] = {
    "model": "tiny",
    "revision": "1",
    "data": "reviews",
    "documents": 60,
    "seed": 0,
    "methods": {"attention-mean": {}},
    "seconds": 1.0,
    "heed": "0.1.0",
    "accuracy": None,
    "settings": {},
}


def measured(
    values: np.ndarray,
    claim: str = "used",
    first: int = 0,
    method: str = "attention-mean",
    **more: Any,
) -> Evidence:
    """Rows with these values, of documents that are numbered from `first`."""
    rows = []
    for i, value in enumerate(values.tolist(), first):
        rows.append({"document": i, "id": "", TEXT: f"text {i}", "value": value} | more)
    return Evidence(CLAIMS[claim].claim, rows, None, method)


def audited(*evidence: Evidence, **facts: Any) -> Audit:
    methods = {e.method: {} for e in evidence}
    return Audit(FACTS | {"methods": methods} | facts, evidence)


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(0).normal(0.2, 0.1, 60)


def interval(values: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    return estimate([Sample(values, groups)], groups.max() + 1)[0][0].ends(0.95)


# Pairs


def test_the_difference_is_that_of_the_same_documents(values: np.ndarray) -> None:
    noise = np.random.default_rng(1).normal(-0.01, 0.001, 60)
    other = measured((values + noise)[::-1])
    for row, i in zip(other.rows, range(59, -1, -1), strict=True):  # in another order
        row[TEXT] = f"text {i}"
    (change,) = diff(audited(measured(values)), audited(other)).changes
    assert change.n == 60 and (change.only_old, change.only_new) == (0, 0)
    assert change.difference == pytest.approx(noise.mean())
    assert (change.low, change.high) == pytest.approx(interval(noise, np.arange(60)))
    # far narrower than the intervals of the two means, which overlap
    old, new = change.old, change.new
    assert old and new and old.low < new.high and change.moved and not change.changed


def test_documents_of_one_audit_alone_are_counted(values: np.ndarray) -> None:
    old, new = values.copy(), values.copy()
    old[:3] = np.nan
    (change,) = diff(audited(measured(old)), audited(measured(new, first=10))).changes
    assert (change.n, change.only_old, change.only_new) == (50, 7, 10)
    assert not change.moved or change.difference != 0
    (apart,) = diff(audited(measured(old)), audited(measured(new, first=100))).changes
    assert (apart.n, apart.only_old, apart.only_new) == (0, 57, 60)
    assert apart.difference is None and not apart.moved


def test_texts_that_occur_twice_are_paired_in_order(values: np.ndarray) -> None:
    twice = measured(values)
    for row in twice.rows[1::2]:
        row[TEXT] = f"text {row['document'] - 1}"
    (change,) = diff(audited(twice), audited(twice)).changes
    assert len(twice.rows) == 60 == change.n and change.difference == 0


def test_groups_are_drawn_together(values: np.ndarray) -> None:
    noise = np.repeat(np.random.default_rng(1).normal(0, 0.1, 6), 10)
    old, new = measured(values), measured(values + noise)
    for row in (*old.rows, *new.rows):
        row["group"] = f"author {row['document'] // 10}"
    (change,) = diff(audited(old), audited(new)).changes
    assert change.n == 6
    groups = np.arange(60) // 10
    assert (change.low, change.high) == pytest.approx(interval(noise, groups))


def test_intervals_hold_together(values: np.ndarray) -> None:
    claims = ("used", "exclusive", "identified")
    both = audited(*(measured(values, claim) for claim in claims))
    found = diff(both, both)
    assert found.level == pytest.approx(1 - 0.05 / 3) and not found.changed


def test_a_statistic_that_is_no_mean_is_compared_as_it_is_judged(values: np.ndarray) -> None:
    claims = [name for name, test in CLAIMS.items() if test.claim.combine is not None]
    if "competitive" not in claims:
        pytest.skip("all statistics are means")
    rival = {"comprehensiveness_of_lime": 0.5}
    old = measured(values, "competitive", **rival)
    new = measured(values + 0.1, "competitive", **rival)
    (change,) = diff(audited(old), audited(new)).changes
    assert change.difference == pytest.approx(0.1 / 0.5)
    assert change.low is not None and change.high is not None
    assert change.low <= change.difference <= change.high


def test_audits_of_earlier_versions_are_paired_by_id(values: np.ndarray) -> None:
    old = measured(values)
    for row in old.rows:
        row["id"] = row.pop(TEXT)
    new = measured(values + 1)
    for row in new.rows:
        row["id"] = row[TEXT]
    (change,) = diff(audited(old), audited(new)).changes
    assert change.n == 60 and change.difference == pytest.approx(1)
    for row in old.rows:
        row["id"] = ""
    with pytest.raises(DataError, match="measure again"):
        diff(audited(old), audited(new))


def test_two_audits_of_one_method_each_are_compared_whatever_it_is(values: np.ndarray) -> None:
    old, new = (measured(values, "removes", method=m) for m in ("attention-mean", "lime"))
    (change,) = diff(audited(old), audited(new)).changes
    assert change.name == "removes of attention-mean → lime" and change.difference == 0
    changes = diff(audited(old, new), audited(new)).changes
    assert [c.name for c in changes] == ["removes of attention-mean", "removes of lime"]
    assert changes[0].new is None and not changes[0].changed and changes[1].difference == 0


# Verdicts and what is said of them


@pytest.fixture
def changed(values: np.ndarray) -> Diff:
    old = audited(measured(values), measured(values, "removes"), measured(values, "robust"))
    new = audited(
        measured(values - 0.15), measured(values + 0.02, "removes"), revision="2", heed="0.2.0"
    )
    new.facts["settings"] = {"used": {"permutations": 9}}
    old.facts["settings"] = {"used": {"permutations": 100}}
    return diff(old, new)


def test_any_other_outcome_is_a_change(changed: Diff) -> None:
    (used,) = changed.changed
    assert used.old and used.new
    assert (used.old.outcome, used.new.outcome) == ("supported", "undecided")
    assert repr(changed) == "<Diff of two audits: 1 of 2 verdicts changed>"
    assert changed.notes == (
        "the version of heed was 0.1.0, and is 0.2.0",
        "used.permutations was 100, and is 9",
    )


def test_the_table_fits_in_80_columns(changed: Diff) -> None:
    text = printed(report.terminal(changed))
    assert max(map(len, text.splitlines())) <= 80
    for words in (
        "tiny@1 on reviews, 60 documents",
        "tiny@2",
        "1 of 2 verdicts changed",
        "used: supported → undecided",
        "Only in the old audit: robust",
        "permutations was 100, and is 9",
    ):
        assert words in " ".join(text.split())
    (line,) = [line for line in text.splitlines() if line.startswith("used ")]
    old, new = (number(v.mean) for v in (changed.changes[0].old, changed.changes[0].new) if v)
    assert line.split()[1:6] == ["✓", old, "~", new, "-0.150"]


def test_long_names_are_cut_and_not_the_numbers(values: np.ndarray) -> None:
    name = "an-explanation-with-a-very-long-name-from-another-program"
    old = measured(values, "removes", method=name)
    text = printed(report.terminal(diff(audited(old), audited(old))))
    assert max(map(len, text.splitlines())) <= 80 and "removes of an-expl" in text and "60" in text


def test_files_say_the_same(changed: Diff) -> None:
    told = json.loads(report.as_json(changed))
    assert [c["changed"] for c in told["changes"]] == [True, False, False]
    rows = list(csv.DictReader(io.StringIO(report.as_csv(changed))))
    assert [row["claim"] for row in rows] == ["used", "removes", "robust"]
    assert float(rows[0]["difference"]) == told["changes"][0]["difference"]
    assert rows[2]["new"] == "" and rows[0]["changed"] == "1"
    markdown = report.as_markdown(changed)
    assert "| **used** | ✓ 0." in markdown and "1 of 2 verdicts changed" in markdown
    page = report.html(changed)
    assert "1 of 2 verdicts changed" in page and "<strong>used</strong>" in page
    assert "<script" not in page and "http" not in page.split("<main>")[1]
    assert "<th>used</th>" in changed._repr_html_()


def test_names_of_others_are_escaped_everywhere(values: np.ndarray) -> None:
    name = "<b>|me\x1b[31m"
    old = measured(values, "removes", method=name)
    found = diff(audited(old), audited(old))
    for text in (report.html(found), report.html_table(found)):
        assert "<b>" not in text and "\x1b" not in text
    assert "\x1b" not in printed(report.terminal(found))
    assert "\\<b\\>\\|me" in report.as_markdown(found)


# Real audits


@pytest.fixture(scope="module")
def files(model: SingleLayer, make: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Audits of two models on texts of which most are the same."""
    folder = tmp_path_factory.mktemp("audits")
    texts = [f"the film was {'very ' * (i % 7)}good and the plot {i} is bad" for i in range(40)]
    paths = []
    for seed, part in ((0, texts[:36]), (1, texts[4:])):
        paths.append(folder / f"{seed}.parquet")
        documents = [Document(text) for text in part]
        audit(make(seed=seed), documents, ["used", "agrees-removal"]).save(paths[-1])
    return paths


def test_audits_and_their_files_compare_alike(files: list[Path]) -> None:
    from_files = diff(*files)
    from_values = diff(*map(Audit.load, files))
    assert from_files.to_dict() == from_values.to_dict()
    assert [c.n for c in from_files.changes] == [32, 32]
    assert all((c.only_old, c.only_new) == (4, 4) for c in from_files.changes)
    assert not diff(files[0], str(files[0])).changed


def test_what_is_no_audit_is_refused(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Give two audits"):
        diff(files[0], 3)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="There is no file"):
        diff(files[0], tmp_path / "none.parquet")


def test_the_command_line_compares_writes_and_fails(files: list[Path], tmp_path: Path) -> None:
    outputs = [tmp_path / f"diff{ending}" for ending in (".json", ".md", ".html", ".csv")]
    options = [word for path in outputs for word in ("-o", path)]
    done = command("diff", *files, *options)
    assert done.code == 0 and "verdicts changed" in done.out
    assert all(path.stat().st_size > 100 and str(path) in done.err for path in outputs)
    assert json.loads(command("diff", *files, "--format", "json").out)["changes"]
    expected = int(bool(diff(*files).changed))
    assert command("diff", *files, "--fail-on-change").code == expected
    same = command("diff", files[0], files[0], "--fail-on-change")
    assert same.code == 0 and "0 of 2 verdicts changed" in same.out


def test_a_change_ends_with_code_1(values: np.ndarray, tmp_path: Path) -> None:
    paths = [tmp_path / "old.parquet", tmp_path / "new.parquet"]
    for path, shift in zip(paths, (0, -0.15), strict=True):
        audited(measured(values + shift)).save(path)
    done = command("diff", *paths, "--fail-on-change")
    assert done.code == 1 and "changed: used (--fail-on-change)" in done.err


def test_mistakes_get_one_sentence(files: list[Path], tmp_path: Path) -> None:
    refused(command("diff", files[0], tmp_path / "none.parquet"), "none.parquet")
    refused(command("diff", *files, "-o", "diff.pdf"), ".csv")
    refused(command("diff", files[0]), "'new'")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(files[0].read_bytes()[:-9])
    refused(command("diff", files[0], broken), "broken.parquet")


def test_an_older_threshold_is_said(values: np.ndarray, tmp_path: Path) -> None:
    claim = replace(CLAIMS["used"].claim, threshold=0.5)
    old = audited(replace(measured(values), claim=claim))
    old.save(tmp_path / "old.parquet")
    found = diff(tmp_path / "old.parquet", audited(measured(values)))
    assert "had > 0.5" in found.notes[0] and not found.changed
