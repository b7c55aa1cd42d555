"""Methods ranked on the same documents: numbers beside literal ones, the answer, and its files."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import heed
from heed.audit import Audit, audit
from heed.claims.study import digest
from heed.errors import DataError, InputError, NotApplicable, OutputError
from heed.methods import GradientInput, Lime, LimeExact, Occlusion
from heed.models import checkpoint
from heed.models.single_layer import SingleLayer
from heed.rank import Ranking, RankingDiff, diff, rank
from heed.rank.measure import fewer_samples, right_signs
from heed.rank.result import SIGNED
from heed.rank.together import leads, simultaneous
from heed.recommendation import kept
from heed.report import diff as diff_report
from heed.report import ranking as report
from heed.report import standings
from heed.text import Document
from tests.test_cli import command, refused
from tests.test_faithful import Literal, documents, ranked, short

FACTS: dict[str, Any] = {
    "model": "tiny",
    "revision": "1",
    "data": "reviews",
    "documents": 30,
    "left_out": 0,
    "unfit": "",
    "removals": ["delete", "hide"],
    "seed": 0,
    "unit": "word",
    "seconds": 1.0,
    "heed": "0.1.0",
}


@dataclass
class Made:
    """A method of a ranking that is made up: its faithfulness by document, and what it costs."""

    values: np.ndarray
    evaluations: float = 2.0
    signed: bool = True
    signs: float | None = None
    chance: bool = False


def ranking(methods: dict[str, Made], **facts: Any) -> Ranking:
    rows = []
    for name, made in methods.items():
        for i, value in enumerate(made.values.tolist()):
            row = {"method": name, "document": i, "id": "", "text_digest": f"text {i}"}
            row |= {"faithfulness": value, "comprehensiveness_delete": value}
            row |= {"seconds": 0.01, "evaluations": made.evaluations}
            rows.append(row if made.signs is None else row | {"signs": made.signs})
    about = {
        n: {"signed": m.signed, "chance": m.chance, "settings": {}} for n, m in methods.items()
    }
    return Ranking(FACTS | {"documents": len(rows) // len(methods)} | facts, about, rows)


def best_group(values: np.ndarray, groups: np.ndarray, seed: int = 0) -> np.ndarray:
    """The rows that no other one leads."""
    return ~(leads(values, groups, seed, resamples=500) > 0).any(0)


def around(mean: float, n: int = 30, seed: int = 0) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).normal(mean, 0.05, n), 0, 1)


# Intervals and the best group


def test_intervals_are_those_of_a_loop_over_resamples() -> None:
    values = np.random.default_rng(0).normal(size=(3, 12))
    groups = np.array([0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9])
    found = simultaneous(values, groups, seed=5, resamples=500)
    rng = np.random.default_rng(5)
    size = np.bincount(groups)

    def error(rows: np.ndarray, of: list[int], mean: float) -> float:
        """The standard error of a mean of groups: each counts by what it adds to the sum."""
        sums = [sum(rows[groups == g] - mean) for g in of]
        return float(np.sqrt(np.square(sums).sum()) / size[of].sum())

    own = [error(row, list(range(10)), row.mean()) for row in values]
    farthest = []
    for drawn in rng.integers(0, 10, (500, 10)):
        away = []
        for row, whole in zip(values, own, strict=True):
            resample = np.concatenate([row[groups == g] for g in drawn])
            off = resample.mean() - row.mean()
            away.append(abs(off) / max(error(row, list(drawn), resample.mean()), whole / 2))
        farthest.append(max(away))
    reach = np.quantile(farthest, 0.95, method="higher")
    assert found.mean == pytest.approx(values.mean(1))
    assert found.high - found.mean == pytest.approx(reach * np.array(own))
    assert found.mean - found.low == pytest.approx(reach * np.array(own))


def test_the_best_method_is_in_the_best_group_nineteen_times_of_twenty() -> None:
    """Two are best and alike, the others are worse by little or by much."""
    rng = np.random.default_rng(0)
    means = np.array([0.8, 0.8, 0.79, 0.7, 0.3])
    runs, lost, told = 200, 0, 0
    for seed in range(runs):
        document = rng.normal(0, 0.1, 40)  # what a document does to all methods
        values = means[:, None] + document + rng.normal(0, 0.1, (5, 40))
        best = best_group(values, np.arange(40), seed)
        lost += not best[:2].all()
        told += not best[4]
    assert lost <= 0.05 * runs + 8  # two and a half standard errors
    assert told == runs


def test_documents_that_belong_together_count_as_one() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(2, 10))
    once = simultaneous(values, np.arange(10))
    thrice = simultaneous(np.repeat(values, 3, axis=1), np.repeat(np.arange(10), 3))
    assert thrice.low == pytest.approx(once.low) and thrice.high == pytest.approx(once.high)


def test_methods_that_differ_in_one_document_do_not_hide_other_differences() -> None:
    values = np.array([around(0.9), around(0.9), around(0.4, seed=1)])
    values[1, 0] -= 0.2
    assert best_group(values, np.arange(30)).tolist() == [True, True, False]
    assert np.isfinite(simultaneous(np.diff(values, axis=0), np.arange(30)).high).all()


def test_methods_that_are_alike_are_all_best() -> None:
    values = np.repeat(around(0.5)[None], 3, axis=0)
    assert best_group(values, np.arange(30)).all()
    assert best_group(values[:, :1], np.zeros(1, dtype=int)).all()  # one document tells nothing


# What is measured


def test_faithfulness_lies_between_the_worst_and_the_best_of_all_orders(
    model: SingleLayer,
) -> None:
    found = rank(model, short(5), ["gradient-input", "occlusion"])
    assert list(found.methods) == ["gradient-input", "occlusion", "random", "word-length"]
    for name, method in (("gradient-input", GradientInput()), ("occlusion", Occlusion())):
        for document in short(5):
            (row,) = [
                r
                for r in found.rows
                if r["method"] == name and r["text_digest"] == digest(document)
            ]
            (e,) = method.explain(model, [document])
            shares = []
            for kind, keep_top in (("comprehensiveness", False), ("sufficiency", True)):
                for removal in model.removals:
                    one = Literal(model, document, removal)
                    sign = -1 if keep_top else 1
                    every = [sign * one.area(o, keep_top)[0] for o in permutations(range(one.n))]
                    own = sign * one.area(ranked(e.scores), keep_top)[0]
                    share = (own - min(every)) / (max(every) - min(every))
                    assert row[f"{kind}_{removal}"] == pytest.approx(share, abs=1e-6)
                    shares.append(share)
            assert row["faithfulness"] == pytest.approx(np.mean(shares), abs=1e-6)


def test_signs_count_where_lime_is_sure_of_its_own(model: SingleLayer) -> None:
    texts = documents(6)
    for text in texts:
        (lime,) = Lime(samples=200).explain(model, [text])
        (other,) = GradientInput().explain(model, [text])
        theirs: Counter[str] = Counter()  # summed over the occurrences of a word
        for unit, score in zip(other.units, other.scores, strict=True):
            theirs[unit.text] += float(score)
        assert lime.standard_errors is not None
        agree = []
        for unit, score, error in zip(lime.units, lime.scores, lime.standard_errors, strict=True):
            if abs(score) > 2 * error:
                agree.append((np.sign(score) * np.sign(theirs[unit.text]) + 1) / 2)
        assert right_signs(other, lime) == pytest.approx(np.mean(agree))


def test_every_fast_method_is_ranked_and_others_have_a_reason(model: SingleLayer) -> None:
    found = rank(model, [Document(f"{a.text} {b.text}") for a, b in pairwise(documents(9))])
    assert {"lime", "attention-mean", "gradient-input", "random"} <= set(found.methods)
    assert "name" in found.left_out["efficient"] and "rollout" in found.left_out
    assert set(found.methods).isdisjoint(found.left_out)
    assert {s.method for s in found.standings} == set(found.methods)
    for standing in found.standings:
        assert 0 <= standing.low <= standing.faithfulness <= standing.high <= 1
        assert set(standing.parts) == {
            f"{kind}_{removal}"
            for kind in ("comprehensiveness", "sufficiency")
            for removal in model.removals
        }
        assert np.mean(list(standing.parts.values())) == pytest.approx(standing.faithfulness)
    by_name = {s.method: s for s in found.standings}
    assert by_name["attention-mean"].others["stability"] == 1.0
    assert by_name["lime"].others["stability"] < 1.0
    assert "stability" not in by_name["random"].others
    assert by_name["random"].chance and not by_name["lime"].chance
    assert "sensitivity" in by_name["lime"].others
    # exact LIME is the yardstick: all of its signs are right
    assert by_name["lime-exact"].others["signs"] == 1 >= by_name["lime"].others["signs"] > 0.5
    assert by_name["gradient-input"].others["signs"] > 0.5
    assert "plausibility" not in by_name["lime"].others  # nobody marked words


def test_patience_leaves_out_what_takes_long(model: SingleLayer) -> None:
    found = rank(model, documents(4), patience=1e-9)
    assert "name it to run it" in found.left_out["lime"]
    assert not set(found.methods) & {"lime", "shapley"}


def test_the_line_of_cost_is_of_sampled_methods(model: SingleLayer) -> None:
    found = rank(model, documents(8), ["lime", "occlusion"])
    assert [row["curve"] for row in found.curve] == ["lime"] * 3
    texts = [row["evaluations"] for row in found.curve]
    assert texts == sorted(texts) and texts[0] < 100
    assert [m.samples for m in fewer_samples([Lime(samples=800)])] == [25, 100, 400]  # type: ignore[attr-defined]
    assert all(0 <= row["faithfulness"] <= 1 for row in found.curve)


def test_a_method_by_name_that_cannot_run_is_refused(model: SingleLayer) -> None:
    with pytest.raises(NotApplicable, match="rollout"):
        rank(model, documents(3), ["occlusion", "rollout"])
    with pytest.raises(InputError, match="are called occlusion"):
        rank(model, documents(3), ["occlusion", Occlusion()])


def test_the_same_seed_gives_the_same_ranking(model: SingleLayer) -> None:
    one, other = (rank(model, documents(6), ["lime", "random"], seed=3) for _ in range(2))
    timed = ("seconds",)
    for a, b in zip(one.rows, other.rows, strict=True):
        assert {k: v for k, v in a.items() if k not in timed} == pytest.approx(
            {k: v for k, v in b.items() if k not in timed}, nan_ok=True
        )


def test_one_word_texts_cannot_be_ranked(model: SingleLayer) -> None:
    with pytest.raises(InputError, match="Nothing can be ranked"):
        rank(model, ["good", "bad"], ["occlusion"])


# The recommendation


def test_the_cheapest_of_the_best_is_recommended() -> None:
    found = ranking(
        {
            "dear": Made(around(0.9), evaluations=1000),
            "cheap": Made(around(0.9, seed=1), evaluations=2),
            "poor": Made(around(0.3), evaluations=1),
            "random": Made(around(0.2), evaluations=1, chance=True),
        }
    )
    assert found.recommended is not None and found.recommended.method == "cheap"
    assert found.reason.startswith("of the 2 methods at the top, which cannot be told apart, it")
    assert report.sentence(found).startswith("Use cheap: of the 2 methods at the top")


def test_less_data_do_not_favour_a_cheap_method_that_is_worse() -> None:
    """It cannot be told from the best, but it may be far below."""
    good, noisy = around(0.7, 60), np.tile([0.2, 1.0], 30)
    chance = Made(around(0.5, 60, seed=1), chance=True)
    found = ranking({"good": Made(good, 100), "noisy": Made(noisy, 1), "random": chance})
    by_name = {s.method: s for s in found.standings}
    assert by_name["noisy"].best and not by_name["noisy"].informed
    assert found.recommended is not None and found.recommended.method == "good"


def test_documents_of_one_author_are_not_many() -> None:
    found = ranking({"a": Made(around(0.9)), "random": Made(around(0.1), chance=True)})
    for row in found.rows:
        row["group"] = f"author {row['document'] % 2}"
    assert (found.documents, found.independent) == (30, 2)
    assert found.recommended is None and "rests on 2" in found.reason
    assert "2 of them independent" in " ".join(report.about(found))
    text = report.as_markdown(found)
    assert "±" not in text and "●" not in text and "○" not in text


def test_rounding_is_no_difference() -> None:
    values = np.array([np.full(40, 0.5), np.full(40, 0.5) + 2e-16])
    assert best_group(values, np.arange(40)).all()
    one, other = (ranking({"a": Made(row), "b": Made(row - 0.1)}) for row in values)
    compared = diff(one, other)
    assert not any(move.moved for move in compared.moves)


def test_signs_are_praised_only_if_they_are_right() -> None:
    chance = Made(around(0.1), chance=True)
    for signs, says in (
        (0.9, "its signs say what"),
        (0.3, "but only 30% of its signs"),
        (None, ""),
    ):
        found = ranking({"a": Made(around(0.9), signs=signs), "random": chance})
        assert says in found.reason and ("signs" in found.reason) == bool(says)


def test_a_cheap_method_with_wrong_signs_is_passed_over() -> None:
    methods = {
        "cheap": Made(around(0.9), evaluations=2, signs=SIGNED - 0.01),
        "unsigned": Made(around(0.9, seed=1), evaluations=3, signed=False),
        "dear": Made(around(0.9, seed=2), evaluations=1000, signs=SIGNED),
    }
    found = ranking(methods)
    assert found.recommended is not None and found.recommended.method == "dear"
    assert found.reason.endswith("it is the cheapest whose signs can be trusted")
    del methods["dear"]
    found = ranking(methods)  # no signs to be had: those are not asked for
    assert found.recommended is not None and found.recommended.method == "cheap"


def test_nothing_is_recommended_where_chance_is_as_good_or_documents_are_few() -> None:
    methods = {"a": Made(around(0.5)), "random": Made(around(0.5, seed=1), chance=True)}
    found = ranking(methods)
    assert found.recommended is None and found.recommendation is None
    assert report.sentence(found) == (
        "Nothing is recommended: no method can be told from chance on these documents."
    )
    found = ranking({"a": Made(around(0.9, 5)), "random": Made(around(0.1, 5), chance=True)})
    assert found.recommended is None and "rests on 5" in found.reason


def test_the_recommendation_is_kept_for_the_model(
    model: SingleLayer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEED_CACHE", str(tmp_path))
    found = rank(model, documents(40))
    chosen = kept(model.revision)
    assert found.recommended is not None and chosen is not None
    assert chosen.method == found.recommended.method and chosen.documents == found.documents
    # what somebody chose says nothing of all others
    rank(model, documents(40), ["attention-mean"])
    rank(model, documents(40), ["occlusion", "lime-exact"], unit="token")
    assert kept(model.revision) == chosen


# Files and what they show


def test_a_ranking_is_loaded_as_it_was_saved(model: SingleLayer, tmp_path: Path) -> None:
    found = rank(model, documents(8), ["lime", "gradient-input"])
    found.save(tmp_path / "r.parquet")
    again = Ranking.load(tmp_path / "r.parquet")
    assert again.to_dict() == found.to_dict()
    assert repr(again) == repr(found) and "on " in repr(found)
    with pytest.raises(OutputError, match="is saved as"):
        found.save(tmp_path / "r.csv")
    with pytest.raises(OutputError, match="no folder"):
        found.save(tmp_path / "none" / "r.parquet")
    audit(model, documents(4), ["used"]).save(tmp_path / "audit.parquet")
    with pytest.raises(DataError, match="does not hold a ranking"):
        Ranking.load(tmp_path / "audit.parquet")
    with pytest.raises(DataError):
        Audit.load(tmp_path / "r.parquet")
    table = pq.read_table(tmp_path / "r.parquet")
    for key in ("method", "faithfulness", "document"):
        pq.write_table(table.drop_columns([key]), tmp_path / "lacks.parquet")
        with pytest.raises(DataError, match="does not hold a ranking"):
            Ranking.load(tmp_path / "lacks.parquet")


DAMAGE: list[tuple[str, Any]] = [
    ("removals", []),
    ("removals", [1]),
    ("seed", -1),
    ("seed", "x"),
    ("documents", "many"),
    ("seconds", [1]),
    ("revision", None),
]


@pytest.mark.parametrize(("fact", "value"), DAMAGE)
def test_damaged_facts_are_refused(fact: str, value: object, tmp_path: Path) -> None:
    found = ranking({"a": Made(around(0.9))}, **{fact: value})
    found.save(tmp_path / "r.parquet")
    refused(command("report", tmp_path / "r.parquet"), "does not hold a ranking")
    del found.facts[fact]
    found.save(tmp_path / "r.parquet")
    refused(command("report", tmp_path / "r.parquet"), "does not hold a ranking")


@pytest.mark.parametrize("value", [math.inf, "abc"])
@pytest.mark.parametrize("column", ["evaluations", "faithfulness", "signs"])
def test_damaged_rows_are_refused(column: str, value: object, tmp_path: Path) -> None:
    found = ranking({"a": Made(around(0.9))})
    for row in found.rows:
        row[column] = value
    found.save(tmp_path / "r.parquet")
    refused(command("report", tmp_path / "r.parquet"), "does not hold a ranking")


def test_a_document_that_one_method_lacks_is_left_out(tmp_path: Path) -> None:
    found = ranking({"a": Made(around(0.9)), "b": Made(around(0.5))})
    found.rows[0]["faithfulness"] = math.nan
    found.save(tmp_path / "r.parquet")
    assert Ranking.load(tmp_path / "r.parquet").documents == 29
    compared = diff(
        tmp_path / "r.parquet", ranking({"a": Made(around(0.9)), "b": Made(around(0.5))})
    )
    assert isinstance(compared, RankingDiff) and compared.n == 29
    del found.rows[3]
    found.save(tmp_path / "r.parquet")
    refused(command("report", tmp_path / "r.parquet"), "the same documents")


def test_tables_hold_every_method(model: SingleLayer) -> None:
    found = rank(model, documents(8), ["lime", "gradient-input"])
    records = list(csv.DictReader(io.StringIO(report.as_csv(found))))
    assert [r["method"] for r in records] == [s.method for s in found.standings]
    assert [float(r["faithfulness"]) for r in records] == pytest.approx(
        [s.faithfulness for s in found.standings]
    )
    frame = found.to_pandas()
    assert list(frame["method"]) == [s.method for s in found.standings]
    assert list(frame["rank"]) == [1, 2, 3, 4]
    value = json.loads(report.as_json(found))
    assert [s["method"] for s in value["standings"]] == [s.method for s in found.standings]
    assert value["recommended"] is None and "rests on" in value["reason"]
    text = report.as_markdown(found)
    assert all(f"| {s.method}" in text for s in found.standings)
    html = found._repr_html_()
    assert all(s.method in html for s in found.standings)


def test_charts_show_each_method_and_its_cost() -> None:
    found = ranking(
        {
            "a": Made(around(0.9), evaluations=100),
            "b": Made(around(0.6)),
            "random": Made(around(0.2), evaluations=1, chance=True),
        }
    )
    found.curve.append({"curve": "a", "evaluations": 10.0, "faithfulness": 0.7})
    drawn = {key: (wide, narrow) for key, wide, narrow in standings.every(found)}
    for charts in drawn.values():
        for chart in charts:
            svg = chart._repr_svg_()
            for standing in found.standings:
                label = re.search(rf'aria-label="{standing.method}: ([^"]*)"', svg)
                assert label and label[1].startswith(f"{standing.faithfulness:.3f} [")
    assert "a with fewer samples: 0.700, 10 texts" in drawn["cost"][0]._repr_svg_()


HOSTILE = "<script>alert(1)</script>|`=1+1`\x1b[31m\u202e"


def test_names_from_files_are_no_markup() -> None:
    found = ranking(
        {HOSTILE: Made(around(0.9)), "random": Made(around(0.2), chance=True)},
        model=HOSTILE,
        data=HOSTILE,
        command=HOSTILE,
    )
    found.left_out[HOSTILE] = HOSTILE
    compared = diff(found, found)
    for text in (report.html(found), found._repr_html_(), diff_report.html(compared)):
        assert "<script>alert" not in text and "\x1b" not in text and "\u202e" not in text
    for text in (report.as_markdown(found), diff_report.as_markdown(compared)):
        assert "<script>" not in text and "\x1b" not in text
        assert "| =1" not in text


# Two rankings


def test_two_rankings_are_paired_by_document(tmp_path: Path) -> None:
    old = ranking({"a": Made(around(0.9)), "b": Made(around(0.4)), "gone": Made(around(0.1))})
    values = around(0.4) + 0.2 + np.random.default_rng(3).normal(0, 0.001, 30)
    new = ranking({"a": Made(around(0.9)), "b": Made(values), "come": Made(around(0.1))}, seed=4)
    for row in new.rows:  # one document is another one
        if row["document"] == 29:
            row["text_digest"] = "other"
    compared = diff(old, new)
    moves = {m.method: m for m in compared.moves}
    assert (compared.n, compared.only_old, compared.only_new) == (29, 1, 1)
    assert moves["b"].difference == pytest.approx((values - around(0.4))[:29].mean())
    assert moves["b"].moved and not moves["a"].moved and moves["b"].ranks == (2, 2)
    pair = np.array([np.zeros(29), (values - around(0.4))[:29]])
    expected = simultaneous(pair, np.arange(29), 4)
    assert (moves["b"].low, moves["b"].high) == pytest.approx((expected.low[1], expected.high[1]))
    assert moves["gone"].new is None and moves["come"].old is None
    assert compared.recommended == ("a", "a") and compared.changed == ()
    assert compared.notes[0] == "the seed was 0, and is 4"
    assert "the methods are not the same" in compared.notes[1]
    for name, which in (("old", old), ("new", new)):
        which.save(tmp_path / f"{name}.parquet")
    files = diff(tmp_path / "old.parquet", tmp_path / "new.parquet")
    assert diff_report.as_json(files) == diff_report.as_json(compared)
    records = list(csv.DictReader(io.StringIO(diff_report.as_csv(compared))))
    assert [r["method"] for r in records] == ["a", "b", "come", "gone"]


def test_another_best_method_is_a_change(tmp_path: Path, model: SingleLayer) -> None:
    methods = {"a": Made(around(0.9)), "b": Made(around(0.4))}
    old, new = ranking(methods), ranking({"a": methods["b"], "b": methods["a"]})
    compared = diff(old, new)
    assert compared.recommended == ("a", "b")
    assert compared.changed == ("recommendation", "b", "a")
    old.save(tmp_path / "old.parquet")
    new.save(tmp_path / "new.parquet")
    files = tmp_path / "old.parquet", tmp_path / "new.parquet"
    done = command("diff", *files)
    assert done.code == 0 and "Recommended: a → b" in done.out
    done = command("diff", *files, "--fail-on-change")
    assert done.code == 1 and "changed: recommendation, b, a" in done.err
    assert command("diff", files[0], files[0], "--fail-on-change").code == 0
    for ending in ("html", "md", "csv", "json"):
        assert command("diff", *files, "-o", tmp_path / f"d.{ending}").code == 0
        assert "a" in (tmp_path / f"d.{ending}").read_text()
    audit(model, documents(4), ["used"]).save(tmp_path / "audit.parquet")
    refused(command("diff", files[0], tmp_path / "audit.parquet"), "one of each")
    refused(command("diff", files[0], tmp_path / "none.parquet"), "none.parquet")


def test_rankings_of_other_documents_have_no_differences() -> None:
    one, other = ranking({"a": Made(around(0.9))}), ranking({"a": Made(around(0.9))})
    for row in other.rows:
        row["text_digest"] += " of another data set"
    compared = diff(one, other)
    assert isinstance(compared, RankingDiff)
    assert (compared.n, compared.only_old, compared.only_new) == (0, 30, 30)
    assert "There are no differences" in diff_report.as_markdown(compared)


# The command


@pytest.fixture(scope="module")
def tiny(make: Callable[..., SingleLayer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rank") / "tiny"
    checkpoint.save(make(labels=3, double=False), folder, {"data": {"name": "none"}})
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    rows = [["text"], *([d.text] for d in documents(12))]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def test_the_command_ranks_and_writes(tiny: Path, texts: Path, tmp_path: Path) -> None:
    endings = ("html", "md", "json", "csv", "parquet")
    files = [part for e in endings for part in ("-o", tmp_path / f"r.{e}")]
    done = command("rank", "-m", tiny, "-d", texts, "--labels", "none", "-n", 10, *files)
    assert done.code == 0, done.err
    assert "gradient-input" in done.out and "(chance)" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert all((tmp_path / f"r.{e}").is_file() for e in endings)
    page = (tmp_path / "r.html").read_text()
    assert "heed rank" in page and "<script" not in page
    again = command("report", tmp_path / "r.parquet")
    assert again.code == 0 and again.out == done.out
    for ending in endings[:-1]:
        assert command("report", tmp_path / "r.parquet", "-o", tmp_path / f"a.{ending}").code == 0
        assert (tmp_path / f"a.{ending}").read_text() == (tmp_path / f"r.{ending}").read_text()
    as_json = command(
        "rank", "-m", tiny, "-d", texts, "--labels", "none", "-n", 10, "--format", "json"
    )
    assert len(json.loads(as_json.out)["standings"]) == len(
        json.loads((tmp_path / "r.json").read_text())["standings"]
    )


def test_imported_scores_are_ranked_beside_methods(tiny: Path, texts: Path, tmp_path: Path) -> None:
    model = heed.load(tiny)
    mine = heed.explain(model, documents(12), "gradient-input")
    heed.save_explanations(mine, tmp_path / "mine.json")
    done = command(
        "rank",
        "-m",
        tiny,
        "--method",
        "occlusion",
        "--method",
        tmp_path / "mine.json",
        "-o",
        tmp_path / "r.csv",
    )
    assert done.code == 0, done.err
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert {"occlusion", "random", "word-length"} < {row["method"] for row in rows}
    assert len(rows) == 4
    for row in rows:  # what it cost elsewhere is not known
        known = row["method"] in ("occlusion", "random", "word-length")
        assert bool(row["evaluations"]) == bool(row["seconds"]) == known


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--method", "lmie"], "lime"),
        (["--set", "samples=10"], "--method"),
        (["--method", "occlusion", "--set", "samples=10"], "samples"),
        (["-o", "r.txt"], ".html"),
        (["--limit", "0"], "1"),
        (["-d", "none.csv"], "none.csv"),
        (["--method", "rollout"], "rollout"),
        (["--method", "random"], "Name a method to rank"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tiny: Path, words: list[str], says: str) -> None:
    refused(command("rank", "-m", tiny, *words), says)


def test_figures_are_those_of_audits(tiny: Path, tmp_path: Path) -> None:
    ranking({"a": Made(around(0.9))}).save(tmp_path / "r.parquet")
    refused(command("report", tmp_path / "r.parquet", "--figures", tmp_path / "f"), "--figures")


def test_random_scores_are_in_the_middle_and_exact_ones_on_top(model: SingleLayer) -> None:
    """The order of removal that a model itself would choose beats chance on any model."""
    found = rank(model, documents(30), [LimeExact(), Occlusion()])
    by_name = {s.method: s for s in found.standings}
    assert by_name["occlusion"].low > by_name["random"].high
