"""The answer of an audit: its sentence rule by rule, its tiles, charts and files."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from heed.audit import Audit
from heed.claims import CLAIMS, Claim, Evidence, Verdict
from heed.claims.claim import FAMILIES, Outcome, Refusal
from heed.claims.faithful import RIVAL
from heed.claims.study import NO_TRAINING
from heed.errors import InputError
from heed.report import charts, exports, forest, html, terminal, words
from heed.report.answer import (
    BEHIND_GATE,
    CAUSAL,
    DETERMINED,
    IDENTIFIED,
    RULES,
    TILES,
    YES,
    answer,
)
from tests.test_report import HOSTILE, check_safe, flat, made, printed, rows

JUDGED = [name for name, cls in CLAIMS.items() if not cls.claim.check]
OUTCOMES: tuple[Outcome, ...] = ("supported", "refuted", "undecided", "not applicable")


def verdict(name: str, outcome: Outcome = YES, **changes: Any) -> Verdict:
    """A verdict with an ordinary number on the side that its outcome asks for."""
    claim = replace(CLAIMS[name].claim, combine=None)
    side = {"supported": 0.1, "refuted": -0.1}.get(outcome, 0.0) * (1 if claim.above else -1)
    at = claim.threshold + side
    numbers: dict[str, Any] = {"mean": at, "low": at - 0.05, "high": at + 0.05, "n": 40}
    if outcome == "not applicable":
        numbers = {"cause": "model", "reason": "needs gradients"}
    return Verdict(claim, outcome, **numbers | changes)


def told(
    *verdicts: Verdict, given: Mapping[str, list[dict[str, Any]]] | None = None, **facts: Any
) -> Audit:
    """An audit that came to these verdicts, whatever its rows say."""
    found = []
    for v in verdicts:
        measured = rows(np.full(40, 0.5)) if v.mean is not None else []
        found.append(Evidence(v.claim, (given or {}).get(v.claim.id, measured), method=v.method))
    audit = made(tuple(found), **facts)
    vars(audit)["verdicts"] = list(verdicts)
    return audit


def sentence(*verdicts: Verdict, **facts: Any) -> str:
    return told(*verdicts, **facts).answer.sentence


OPEN_GATE = verdict("used")


# The sentence


@pytest.mark.parametrize(("matter", "speaks"), list(product(OUTCOMES, OUTCOMES)))
def test_what_an_explanation_finds_follows_from_two_verdicts(
    matter: Outcome, speaks: Outcome
) -> None:
    text = sentence(OPEN_GATE, verdict("removes", matter), verdict("signed", speaks))
    names = {"it": "attention", "words": "words", "why": "", "sign_why": ""}
    assert text == f"On these documents {RULES[matter, speaks].format(**names)}."


def test_the_rules_cover_every_case_and_no_two_say_the_same_of_opposites() -> None:
    assert set(RULES) == set(product(OUTCOMES, OUTCOMES))
    decided = [RULES[pair] for pair in product(OUTCOMES[:2], OUTCOMES[:2])]
    assert len(set(decided)) == 4
    assert all("undecided" in text for pair, text in RULES.items() if pair[0] == "undecided")
    assert set(BEHIND_GATE) == set(OUTCOMES)


def test_the_sentence_of_the_readme() -> None:
    text = sentence(OPEN_GATE, verdict("removes"), verdict("signed", "refuted"))
    assert text == (
        "On these documents attention finds words that matter, but not whether they speak for or"
        " against the label."
    )


@pytest.mark.parametrize("outcome", OUTCOMES[:3])
@pytest.mark.parametrize("name", ["exclusive", "exclusive-model", "identified"])
def test_whether_other_attention_would_do_is_said(name: str, outcome: Outcome) -> None:
    text = sentence(OPEN_GATE, verdict("removes"), verdict(name, outcome))
    rules = IDENTIFIED if name == "identified" else DETERMINED
    assert text.endswith(f"; {rules[outcome].format(why='')}.")


def test_one_way_to_other_attention_is_enough() -> None:
    text = sentence(OPEN_GATE, verdict("exclusive"), verdict("exclusive-model", "refuted"))
    assert DETERMINED["refuted"] in text and DETERMINED["supported"] not in text
    text = sentence(OPEN_GATE, verdict("exclusive"), verdict("identified", "refuted"))
    assert IDENTIFIED["refuted"] in text and DETERMINED["supported"] not in text
    text = sentence(OPEN_GATE, verdict("exclusive"), verdict("identified"))
    assert DETERMINED["supported"] in text and IDENTIFIED["supported"] not in text


@pytest.mark.parametrize("outcome", OUTCOMES[:3])
def test_whether_a_change_of_attention_shows_is_said(outcome: Outcome) -> None:
    text = sentence(OPEN_GATE, verdict("removes"), verdict("efficient-necessary", outcome))
    assert text.endswith(f"; {CAUSAL[outcome].format(why='')}.")


@pytest.mark.parametrize("matter", OUTCOMES)
def test_behind_a_closed_gate_attention_explains_nothing(matter: Outcome) -> None:
    closed = verdict("signed", "not applicable", cause="gate", reason="closed")
    judged = verdict("used", "refuted"), verdict("removes", matter), closed
    layers = {"attention-mean": {"layers": "last"}}
    rest = BEHIND_GATE[matter].format(words="words")
    assert sentence(*judged, methods=layers) == (
        "On these documents the prediction does not depend on where attention in the last layer"
        f" goes, so attention cannot explain it{rest}."
    )
    text = sentence(verdict("needed", "refuted"), verdict("used"), verdict("removes", matter))
    assert "uniform attention does as well" in text and "cannot explain" in text


def test_layers_below_that_carry_the_prediction_are_named() -> None:
    for moved, said in ((0.3, True), (0.01, False)):
        given = {"used": rows(np.full(40, 0.01), all_layers=moved)}
        text = told(verdict("used", "refuted"), given=given).answer.sentence
        assert (" goes, but on the layers below, so attention" in text) == said


def test_choices_have_names() -> None:
    assert words.choice("variant_raw_delete") == "not normalised, words deleted"
    assert words.choice("variant_log_odds") == "log-odds"
    assert words.choice("variant_new_one") == "new one"
    assert words.choice("lower") == "lower bound"


def test_the_gate_does_not_concern_what_reads_no_attention() -> None:
    lime = verdict("removes", method="lime")
    text = sentence(verdict("used", "refuted"), lime, methods={"lime": {}})
    assert text.startswith("On these documents lime finds words that matter")


def test_a_gate_that_is_undecided_or_missing_is_said() -> None:
    depends = "whether the prediction depends on where attention goes"
    assert f"{depends} is undecided" in sentence(verdict("used", "undecided"), verdict("removes"))
    assert f"{depends} was not judged" in sentence(verdict("removes"))
    assert depends not in sentence(OPEN_GATE, verdict("removes"))


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("few", "too few documents"),
        ("operators", "it depends on how words are removed"),
        ("chance", "chance passes as well"),
        ("statistic", "no document shows it"),
    ],
)
def test_undecided_says_why(cause: str, text: str) -> None:
    unclear = verdict("removes", "undecided", cause=cause)
    assert f"undecided whether attention finds words that matter ({text})" in sentence(
        OPEN_GATE, unclear
    )
    spans = replace(unclear, cause="spans")
    assert "(" not in sentence(OPEN_GATE, spans)


def test_too_few_documents_are_said_once() -> None:
    few = [verdict(c, "undecided", cause="few", n=12) for c in ("used", "removes", "signed")]
    assert sentence(*few) == (
        "These 12 documents are too few to say whether attention finds words that matter."
    )


def test_a_model_that_does_not_read_its_words_is_called_one() -> None:
    same = {"removes": rows(np.zeros(40), comprehensiveness=0.0, random=1e-9)}
    judged = OPEN_GATE, verdict("removes", "refuted"), verdict("signed")
    assert told(*judged, given=same).answer.sentence == (
        "On these documents the model's output does not depend on its words, so no words can"
        " explain it."
    )
    other = {"removes": rows(np.zeros(40), comprehensiveness=0.2, random=0.2)}
    assert "does not depend" not in told(*judged, given=other).answer.sentence


def test_an_explanation_that_did_not_need_learning_is_called_one() -> None:
    text = sentence(OPEN_GATE, verdict("removes"), verdict("sensitive", "refuted"))
    assert "attention hardly depends on what the model has learnt" in text


def test_passages_are_called_by_their_name() -> None:
    text = sentence(OPEN_GATE, verdict("removes"), verdict("signed"), unit="sentence")
    assert "finds sentences that matter" in text and "words" not in text


def test_nothing_is_said_of_what_was_not_judged() -> None:
    text = sentence()
    assert text.startswith("On these documents it was not judged whether attention finds words")
    assert made(()).answer.tiles[0].says == "not asked for"


def test_each_further_method_has_a_sentence_of_its_own() -> None:
    audit = told(
        OPEN_GATE,
        verdict("removes"),
        verdict("removes", "refuted", method="lime"),
        verdict("signed", "refuted"),
        verdict("signed", method="lime"),
        methods={"attention-mean": {}, "lime": {}},
    )
    assert list(audit.answer.beside) == ["lime"]
    assert audit.answer.beside["lime"].startswith("lime points to words that speak for the label")
    assert "attention finds words that matter" in audit.answer.sentence


# Tiles


def test_every_family_has_a_tile_and_every_claim_a_place() -> None:
    assert len(TILES) == 8 and set(TILES) | {"stable"} >= set(FAMILIES)
    every = told(*(verdict(name) for name in JUDGED))
    placed = [tile.claim for tile in every.answer.tiles]
    for tile in every.answer.tiles:
        placed += [name for name, _ in tile.others]
    assert sorted(placed) == sorted(JUDGED)


def test_every_claim_has_few_words_for_its_tile() -> None:
    for name, cls in CLAIMS.items():
        if cls.claim.check or name not in {c for family in TILES.values() for c in family}:
            continue
        for outcome in OUTCOMES:
            (tile,) = (t for t in told(verdict(name, outcome)).answer.tiles if t.claim)
            assert 0 < len(tile.says) <= 30, tile


def test_the_first_claim_that_was_judged_leads() -> None:
    tile = told(verdict("needed", "not applicable"), verdict("used", "refuted")).answer.tiles[0]
    assert (tile.family, tile.claim, tile.symbol) == ("needed", "used", "✗")
    assert tile.others == (("needed", "–"),)
    assert (tile.value, tile.threshold) == ("-0.050", "> 0.05")
    assert tile.interval == "-0.050 [-0.100, 0.000]"
    spans = told(verdict("signed", "undecided", cause="spans")).answer.tiles[4]
    assert (spans.symbol, spans.says) == ("~", "undecided: no clear side")
    gone = told(verdict("signed", "not applicable", cause="gate", reason="x")).answer.tiles[4]
    assert (gone.symbol, gone.says, gone.value) == ("–", "gate closed", "")


def test_a_claim_of_another_family_does_not_lead_a_tile() -> None:
    closed = verdict("agrees-removal", "not applicable", cause="gate", reason="x")
    tile = told(closed, verdict("robust")).answer.tiles[3]
    assert (tile.symbol, tile.claim, tile.others) == ("–", "agrees-removal", (("robust", "✓"),))


# What to do next


def test_a_better_method_is_named_where_attention_falls_short() -> None:
    columns = {"comprehensiveness": 0.25, f"{RIVAL}lime": 0.5, f"{RIVAL}occlusion": 0.4}
    columns["value_replace"] = 0.25
    given = {"competitive": rows(np.full(40, 0.25), **columns)}
    short = told(verdict("competitive", "refuted"), given=given)
    assert short.answer.use_instead == (
        "lime, whose words reach 0.500 on the scale from the worst order of removal (0) to the best"
        " (1); attention: 0.250"
    )
    assert told(verdict("competitive"), given=given).answer.use_instead == ""
    older = {
        "competitive": [
            {k: v for k, v in row.items() if k != "value_replace"} for row in given["competitive"]
        ]
    }
    assert told(verdict("competitive", "refuted"), given=older).answer.use_instead == (
        "lime, without whose words the probability falls by 0.500 (attention: 0.250)"
    )
    best = {"competitive": rows(np.full(40, 0.25), **columns | {"comprehensiveness": 0.6})}
    assert told(verdict("competitive", "undecided"), given=best).answer.use_instead == ""
    ranked = {"method": "occlusion", "reason": "it is best", "documents": 60, "data": "sst"}
    text = "occlusion: it is best (ranked on 60 documents of sst)"
    assert told(verdict("competitive"), recommended=ranked).answer.use_instead == text
    ranked["method"] = "attention-mean"
    assert told(verdict("competitive", "refuted"), given=given, recommended=ranked).answer == (
        replace(short.answer, use_instead="")
    )


def test_what_was_not_tested_comes_with_how_to_test_it() -> None:
    def missing(name: str, cause: str, reason: str) -> Verdict:
        return verdict(name, "not applicable", cause=cause, reason=reason)

    audit = told(
        missing("needed", "training", NO_TRAINING.reason),
        missing("stable", "training", NO_TRAINING.reason),
        missing("informative", "training", "it cannot be trained again"),
        missing("plausible", "data", "the documents have no human rationales"),
        missing("tracks", "model", "needs gradients (of the embeddings)"),
        missing("removes", "budget", "the budget of 3 minutes was spent"),
        missing("signed", "gate", "closed"),
        missing("agrees-lime", "method", "lime would be compared with itself"),
        verdict("used"),
    )
    *known, rest = audit.answer.not_tested
    assert {u.how: u.claims for u in known} == {
        "--train": ("needed", "stable"),
        "it cannot be trained again": ("informative",),
        "--data movie_rationales": ("plausible",),
        "needs gradients": ("tracks",),
        "a larger --budget": ("removes",),
    }
    assert rest.how == "leave out --claim" and "edited" in rest.claims
    assert not {"signed", "agrees-lime", "used"} & set(rest.claims)


# Programs


def test_the_answer_is_an_object_a_string_and_json() -> None:
    audit = told(OPEN_GATE, verdict("removes"), verdict("signed", "refuted"))
    assert str(audit.answer) == audit.answer.sentence == answer(audit).sentence
    found = audit.to_dict()["answer"]
    assert json.loads(json.dumps(found)) == found
    assert found["sentence"] == str(audit.answer)
    assert [tile["family"] for tile in found["tiles"]] == list(TILES)
    assert found["tiles"][0]["outcome"] == "supported"
    assert set(found) == {"method", "sentence", "tiles", "beside", "use_instead", "not_tested"}


def test_a_notebook_shows_sentence_tiles_and_table() -> None:
    audit = told(OPEN_GATE, verdict("removes"), verdict("signed", "refuted"), model=HOSTILE)
    shown = audit._repr_html_()
    assert str(audit.answer) in shown and "its words matter" in shown and "✗ signed" in shown
    assert words.verdict_interval(audit.verdicts[0]) in shown
    assert "<script>alert" not in shown


def rich_audit() -> Audit:
    """Verdicts with all that may stand beside them."""
    numbers = {"strictest": 0.19, "ceiling": 0.7, "controls": {"random": 0.02, "word-length": 0.1}}
    parts = {"replace": (0.2, 0.15, 0.25), "delete": (0.01, -0.02, 0.04)}
    removes = verdict("removes", interval="betting", parts=parts, **numbers)
    unclear = verdict("signed", "undecided", cause="spans", wanted=400)
    given = {"signed": rows(np.linspace(0.7, 0.9, 40), plain=0.2, variant_unsigned=0.95)}
    return told(OPEN_GATE, removes, unclear, given=given)


def test_what_stands_beside_a_verdict_is_shown_everywhere() -> None:
    audit = rich_audit()
    page = " ".join(check_safe(html.audit(audit), 1).text.split())
    screens = flat(printed(terminal.audit(audit, verbose=True)))
    for text in (page, screens, flat(exports.to_markdown(audit))):
        for part in ("betting", "0.190", "ceiling 0.700", "0.020", "0.100", "about 400"):
            assert part in text.replace("\\", ""), part
        assert "words deleted 0.010 [-0.020, 0.040]" in text.replace("\\", "")


def test_pandas_gets_verdicts_and_rows() -> None:
    pytest.importorskip("pandas")
    audit = rich_audit()
    table = audit.to_pandas()
    assert list(table["claim"]) == [v.claim.id for v in audit.verdicts]
    assert table.loc[1, "chance random"] == 0.02 and table.loc[1, "delete high"] == 0.04
    measured = audit.to_pandas(rows=True)
    assert len(measured) == sum(len(e.rows) for e in audit.evidence)
    assert {"claim", "method", "document", "value"} <= set(measured.columns)


def test_without_pandas_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="needs pandas: pip install pandas"):
        made().to_pandas()


# Older files


def test_rows_of_another_statistic_are_not_held_against_todays_threshold(tmp_path: Path) -> None:
    old = replace(CLAIMS["removes"].claim, statistic="something else", threshold=-5.0)
    same = Evidence(CLAIMS["used"].claim, rows(np.linspace(0.2, 0.4, 40)))
    made((Evidence(old, rows(np.linspace(0.2, 0.4, 40))), same)).save(tmp_path / "old.parquet")
    audit = Audit.load(tmp_path / "old.parquet")
    removes, used = audit.verdicts
    assert (removes.outcome, removes.mean, used.outcome) == ("not applicable", None, "supported")
    assert "its statistic is another since this was measured" in removes.reason
    assert audit.facts["rejudged"].endswith("removes has another statistic")
    again = next(u for u in audit.answer.not_tested if "removes" in u.claims)
    assert again.how == removes.reason
    check_safe(html.audit(audit), 1)


# Checks


def check_claim() -> Claim:
    claim = CLAIMS["used"].claim
    return replace(claim, id="same", sentence="It is the same", threshold=1e-6, check=True)


def test_checks_have_a_line_with_their_bounds_and_no_verdict() -> None:
    good = Evidence(check_claim(), rows(np.full(40, 1e-9)))
    bad = replace(good, claim=replace(good.claim, sentence="It is not"), rows=rows(np.ones(40)))
    audit = made((good, bad))
    assert not audit.verdicts
    assert [str(c) for c in words.checks(audit)] == [
        "✓ It is the same: 1e-9 ≤ 1e-6",
        "✗ It is not: 1.000 > 1e-6",
    ]
    for text in (
        flat(printed(terminal.audit(audit))),
        " ".join(check_safe(html.audit(audit), 1).text.split()),
        exports.to_markdown(audit),
    ):
        assert "✓ It is the same: 1e-9 ≤ 1e-6" in text


# Charts of all verdicts


def tips(chart: charts.Chart) -> list[str]:
    return re.findall(r'<path aria-label="([^"]*)"', charts.svg(chart))


def test_the_scale_has_the_claims_side_on_the_right_and_halves_of_the_range() -> None:
    above = replace(CLAIMS["used"].claim, threshold=0.25, above=True, bounds=(0.0, 1.0))
    below = replace(above, above=False)
    free = replace(above, bounds=None)
    values = rows(np.linspace(0, 1, 40))
    assert forest.distance(Evidence(above, values), 0.5) == pytest.approx(0.5)
    assert forest.distance(Evidence(below, values), 0.5) == pytest.approx(-0.5)
    assert forest.distance(Evidence(free, values), 0.5) == pytest.approx(1.0)
    nothing = replace(free, threshold=0.0)
    spread = np.linspace(0, 1, 40).std()
    assert forest.distance(Evidence(nothing, values), 0.5) == pytest.approx(0.5 / spread)


@pytest.mark.parametrize("width", [forest.WIDE, forest.NARROW])
def test_the_forest_shows_every_verdict_with_chance_parts_and_ceiling(width: int) -> None:
    audit = rich_audit()
    drawn = charts.svg(forest.forest(audit, width))
    assert all(f"{words.SYMBOLS[v.outcome]} {v.claim.id}" in drawn for v in audit.verdicts)
    found = " · ".join(tips(forest.forest(audit, width)))
    for v in audit.verdicts:
        assert words.verdict_interval(v) in found
    for part in ("word-length, by chance: 0.100", "words replaced: 0.200 [", "ceiling: 0.700"):
        assert part in found
    assert float(re.findall(r'^<svg[^>]* width="(\d+)', drawn)[0]) < (1000, 360)[width < 300]


def test_what_does_not_apply_is_not_in_the_forest() -> None:
    closed = verdict("signed", cause="gate", reason="x")
    audit = told(OPEN_GATE, replace(closed, outcome="not applicable"))
    assert "signed" not in charts.svg(forest.forest(audit))
    with pytest.raises(InputError, match="no claim was judged"):
        forest.forest(told(verdict("signed", "not applicable")))
    assert "forest" not in forest.every(told(verdict("signed", "not applicable")))


def test_choices_that_turn_a_verdict_are_named() -> None:
    audit = rich_audit()
    assert forest.turned(audit) == {
        "removes": ["words deleted"] if CLAIMS["removes"].claim.threshold >= 0 else [],
        "signed": ["all words weigh the same", "unsigned"],
    }
    found = " · ".join(tips(forest.choices(audit)))
    assert "signed, all words weigh the same: 0.200" in found and "turns to refuted" in found
    page = " ".join(check_safe(html.audit(audit), 1).text.split())
    assert "removes is turned by words deleted." in page
    assert "signed is turned by all words weigh the same, unsigned." in page
    with pytest.raises(InputError, match="no other choice turns a verdict"):
        forest.choices(told(OPEN_GATE))


def test_a_choice_is_measured_by_its_own_column() -> None:
    """Not by the ways to remove words, of which the verdict shows the least favourable."""
    values = {"value_replace": 0.3, "value_delete": 0.2, "variant_raw_replace": -0.4}
    measured = [row | values for row in rows(np.full(150, 0.3))]
    audit = told(verdict("removes", mean=0.2, low=0.15, high=0.25), given={"removes": measured})
    assert forest.turned(audit) == {"removes": ["not normalised, words replaced"]}
    found = " · ".join(tips(forest.choices(audit)))
    assert "removes, not normalised, words replaced: -0.400" in found


# One screen


def everything(methods: Sequence[str]) -> Audit:
    """A full audit, with all claims judged for all methods and long remarks."""
    verdicts = []
    for i, name in enumerate(JUDGED):
        outcome = OUTCOMES[i % 3]
        several = methods if CLAIMS[name].claim.of_explanation else methods[:1]
        verdicts += [verdict(name, outcome, method=m, cause="few") for m in several]
    for i, name in enumerate(("used", "removes")):
        verdicts[[v.claim.id for v in verdicts].index(name)] = verdict(name, OUTCOMES[i])
    facts = {"truncated": 78, "unknown": 0.03, "left_out": 3}
    return told(*verdicts, methods={m: {} for m in methods}, **facts)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_full_audit_fits_one_screen(count: int) -> None:
    methods = ["attention-mean", "integrated-gradients", "lime", "x" * 90, "rollout", "a", "b"]
    audit = everything(methods[:count])
    lines = printed(terminal.audit(audit)).splitlines()
    assert len(lines) <= 40 and max(map(cell_len, lines)) <= 80
    shown = flat("\n".join(lines))
    assert audit.answer.sentence in shown
    assert all(text in shown for text in list(audit.answer.beside.values())[:1])
    for tile in audit.answer.tiles:
        assert any(line.startswith(f"{tile.symbol} {tile.family}") for line in lines)
    assert lines[-1].startswith("--verbose")
    if count == 1:  # nothing is left out
        leading = {tile.claim for tile in audit.answer.tiles}
        judged = {v.claim.id for v in audit.verdicts if v.outcome != "not applicable"}
        assert all(any(line.startswith(f"{c} ") for line in lines) for c in judged - leading)


def test_two_methods_stand_side_by_side() -> None:
    methods = {"attention-mean": {}, "lime": {}}
    two = verdict("removes"), verdict("removes", "refuted", method="lime")
    lines = printed(terminal.audit(told(OPEN_GATE, *two, methods=methods))).splitlines()
    (head,) = [line for line in lines if line.startswith("further claims")]
    (line,) = [line for line in lines if line.startswith("removes ")]
    assert head.split()[-2:] == ["attention-mean", "lime"]
    ours, theirs = (words.verdict_interval(v) for v in two)
    assert f"✓ {ours}" in line and line.endswith(f"✗ {theirs}")


# Files


def test_markdown_is_a_section_in_which_nothing_is_markup() -> None:
    audit = told(OPEN_GATE, verdict("removes"), model="a_b*|<i>", command="heed `x` | y")
    text = exports.to_markdown(audit)
    assert text.startswith(f"## {exports.HEADING}\n\n**On these documents attention finds words")
    assert "a\\_b\\*\\|\\<i\\>@" in text and "``heed" not in text.replace("`` heed", "")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in tables}
    assert widths == {6, 8}  # tiles and verdicts
    assert "| `removes` | attention-mean | " in text and "---" in text


BALANCED = re.compile(r"(?<!\\)[{}]")


def test_latex_compiles_by_its_rules() -> None:
    odd = "a_b & c% #1 $x$ {y} ~^ \\z <é> „映“ --x"
    methods = {"attention-mean": {}, odd: {}}
    removes = verdict("removes"), verdict("removes", "refuted", method=odd, mean=-0.5)
    text = exports.to_latex(told(OPEN_GATE, *removes, methods=methods, model=odd))
    assert text.count(r"\begin{") == text.count(r"\end{") == 2 and r"\toprule" in text
    depth = 0
    for brace in BALANCED.findall(text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    (columns,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", text)
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    for line in body:
        assert line.endswith(r" \\") and len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1
    bare = re.sub(r"\\[&%#_${}]|\\[a-zA-Z]+(\{\})?|\$[<>-]\$|\$n\$|^%.*$", "", text, flags=re.M)
    assert not set('%#$_^~<>\\"|') & set(bare.replace("\\\\", "")), bare
    assert "映" not in text and "[U+6620]" in text and "é" in text
    assert "-{}-x" in text and "$-$0.500" in text


def test_csv_has_a_line_for_each_verdict_and_full_numbers() -> None:
    formula = verdict("removes", method="=cmd()", mean=1 / 3)
    audit = told(OPEN_GATE, formula, methods={"=cmd()": {}})
    first, second = csv.DictReader(io.StringIO(exports.to_csv(audit)))
    assert first["claim"] == "used" and float(second["mean"]) == 1 / 3
    assert second["method"] == "'=cmd()" and second["threshold"] == formula.claim.side()


def test_every_kind_of_file_is_written_for_an_audit_that_judged_nothing() -> None:
    for write in exports.WRITERS.values():
        write(made(()))
        write(made((Evidence(CLAIMS["signed"].claim, [], Refusal("model", HOSTILE)),)))


def test_the_answer_needs_no_heavy_libraries() -> None:
    code = "import sys, heed.report.exports; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
