"""Explanations as people meet them: settings and refusals, what json holds, pages and terminals,
comparisons."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace
from html import escape, unescape
from typing import Any

import numpy as np
import pytest
from conftest import COMPARED, OFFERED, SIX, Heard
from rich.cells import cell_len
from rich.console import Console

import heed
from heed.errors import InputError, NotApplicable, UnknownName
from heed.methods import METHODS, Comparison, Explanation, group_of, make_method
from heed.methods.choice import Prediction
from heed.models.single_layer import SingleLayer
from heed.progress import listening
from heed.report.comparison import table
from heed.text import Document, Span

NASTY = "<script>alert(1)</script> & \"x\" 'y'"


# Settings and refusals


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        (
            "lime",
            {"samples": "500", "bandwidth": "0.5", "ridge": "2"},
            {"samples": 500, "bandwidth": 0.5, "ridge": 2.0},
        ),
        ("lime", {"samples": 500.0, "bandwidth": 1}, {"samples": 500, "bandwidth": 1.0}),
        (
            "lime",
            {"removal": "delete", "repeats": "apart", "head": "2"},
            {"removal": "delete", "repeats": "apart", "head": 2},
        ),
        ("lime", {"removal": "none", "head": None}, {"removal": None, "head": None}),
        ("lime", {"output": "log-odds"}, {"output": "log-odds"}),
        ("shapley", {"estimator": "permutation"}, {"estimator": "permutation"}),
        (
            "integrated-gradients",
            {"steps": "9", "baseline": "zero"},
            {"steps": 9, "baseline": "zero"},
        ),
        ("attention-head", {"head": "1", "layers": "0,-1"}, {"head": 1, "layers": "0,-1"}),
        ("attention-mean", {"layers": 2}, {"layers": "2"}),
        (
            "rollout",
            {"residual": "0", "heads": "max", "merge": "max"},
            {"residual": 0.0, "heads": "max", "merge": "max"},
        ),
        (
            "attention-gradient",
            {"output": "probability", "merge": "sum"},
            {"output": "probability", "merge": "sum"},
        ),
    ],
)
def test_settings_are_read_from_strings(name: str, given: dict, expected: dict) -> None:
    chosen = make_method(name, given)
    assert chosen == METHODS[name](**expected)
    for key, value in expected.items():
        assert type(getattr(chosen, key)) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("lyme", {}, "no method 'lyme': did you mean 'lime'"),
        ("Lime", {}, "did you mean 'lime'"),
        ("gradient", {}, "did you mean 'gradient-"),
        ("xxxxxxxxx", {}, "no method 'xxxxxxxxx'"),
        ("", {}, "no method ''"),
        ("lime", {"sample": 3}, "lime has no setting 'sample': did you mean 'samples'"),
        ("random", {"samples": 3}, "no settings"),
        ("lime", {"samples": "many"}, "samples of lime must be a whole number, got 'many'"),
        ("lime", {"samples": "2.5"}, "must be a whole number"),
        ("lime", {"samples": True}, "must be a whole number"),
        ("lime", {"samples": None}, "must be a whole number"),
        ("lime", {"samples": [3]}, "must be a whole number"),
        ("lime", {"samples": "1e400"}, "must be a whole number"),
        ("lime", {"samples": "1"}, "samples of lime must be at least 2"),
        ("lime", {"samples": "inf"}, "samples of lime must be"),
        ("lime", {"bandwidth": "0"}, "bandwidth of lime must be at least"),
        ("lime", {"bandwidth": "nan"}, "bandwidth of lime must be"),
        ("lime", {"bandwidth": "wide"}, "must be a number"),
        ("lime", {"ridge": "-1"}, "ridge of lime must be at least 0"),
        ("lime", {"ridge": "inf"}, "ridge of lime must be"),
        ("lime", {"removal": "eat"}, "removal of lime must be"),
        ("lime", {"output": "loss"}, "output of lime must be"),
        ("lime", {"repeats": "maybe"}, "repeats of lime must be"),
        ("lime", {"head": "first"}, "head of lime must be a whole number or none"),
        ("shapley", {"samples": 1}, "at least 2"),
        ("shapley", {"estimator": "guess"}, "estimator of shapley must be"),
        ("integrated-gradients", {"steps": 0}, "at least 1"),
        ("integrated-gradients", {"baseline": "mean"}, "baseline of integrated-gradients must be"),
        (
            "attention-mean",
            {"layers": "first"},
            "layers of attention-mean must be 'last', 'all' or numbers",
        ),
        (
            "attention-mean",
            {"layers": "1,"},
            "layers of attention-mean must be 'last', 'all' or numbers",
        ),
        (
            "attention-mean",
            {"layers": ""},
            "layers of attention-mean must be 'last', 'all' or numbers",
        ),
        ("attention-mean", {"layers": 1.5}, "layers of attention-mean must be text"),
        (
            "attention-mean",
            {"layer": "1"},
            "attention-mean has no setting 'layer': did you mean 'layers'",
        ),
        ("value-norm", {"merge": "mean"}, "merge of value-norm must be 'sum' or 'max'"),
        ("rollout", {"residual": "1"}, "residual of rollout must be below 1"),
        ("flow", {"residual": "-0.1"}, "residual of flow must be at least 0"),
        ("flow", {"residual": "nan"}, "residual of flow must be"),
        ("rollout", {"heads": "min"}, "heads of rollout must be"),
        ("lime", {"merge": "max"}, "lime has no setting 'merge'"),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_used_gets_one_sentence(
    name: str, given: dict, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        make_method(name, given)
    message = str(caught.value)
    assert words in message
    assert "\n" not in message and len(message) < 300


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("lime", {"samples": 1}),
        ("lime", {"samples": 2.5}),
        ("lime", {"samples": "500"}),
        ("lime", {"output": "loss"}),
        ("lime", {"repeats": "maybe"}),
        ("lime", {"ridge": float("inf")}),
        ("lime", {"bandwidth": float("nan")}),
        ("shapley", {"samples": 2.5}),
        ("integrated-gradients", {"steps": 2.5}),
        ("integrated-gradients", {"baseline": "mean"}),
        ("gradient-l1", {"output": "loss"}),
        ("gradient-l1", {"merge": "mean"}),
        ("integrated-gradients", {"merge": "mean"}),
        ("attention-mean", {"layers": -1}),
        ("attention-gradient", {"output": "loss"}),
        ("rollout", {"heads": "min"}),
    ],
    ids=str,
)
def test_an_method_refuses_such_settings_itself(
    model: SingleLayer, name: str, settings: dict
) -> None:
    with pytest.raises(InputError):
        METHODS[name](**settings).explain(model, ["good film"])


def test_an_method_may_be_given_instead_of_a_name(model: SingleLayer) -> None:
    lime = METHODS["lime"](samples=30)
    one, other = (
        heed.explain(model, "good film", lime),
        heed.explain(model, "good film", "lime", samples=30),
    )
    assert (one.scores == other.scores).all() and one.settings == other.settings
    with pytest.raises(InputError, match="settings"):
        heed.explain(model, "good film", lime, samples=40)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("attention-head", {"head": 3}),
        ("attention-head", {"head": -1}),
        ("attention-mean", {"layers": 1}),
        ("value-norm", {"layers": "0,-2"}),
        ("gradient-l2", {"head": 3}),
        ("lime", {"head": 7}),
    ],
)
def test_a_head_or_layer_that_does_not_exist_is_refused(
    model: SingleLayer, name: str, settings: dict
) -> None:
    with pytest.raises(InputError, match=r"There is no (head|layer)"):
        heed.explain(model, "good film", name, **settings)


@pytest.mark.parametrize(
    ("label", "words"),
    [("positiv", "did you mean 'positive'"), (2, "no label 2"), ("9", "no label 9")],
)
def test_a_label_that_does_not_exist_is_refused(model: SingleLayer, label: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        heed.explain(model, "good film", "occlusion", label=label)


def test_a_unit_that_does_not_exist_is_refused(model: SingleLayer) -> None:
    with pytest.raises(UnknownName, match="did you mean 'word'"):
        heed.explain(model, "good film", "occlusion", unit="words")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "text", [None, 3, 2.5, ("a", "b", "c"), ("a", 2), [None], [3], ["fine", 2.5]], ids=str
)
def test_a_text_of_the_wrong_type_is_refused(model: SingleLayer, text: Any) -> None:
    with pytest.raises(InputError, match="must be a string"):
        heed.explain(model, text, "occlusion")


def test_an_empty_text_in_a_list_is_named(model: SingleLayer) -> None:
    with pytest.raises(InputError, match="Text 2 of 3 is empty"):
        heed.explain(model, ["good", " ", "film"], "occlusion")
    with pytest.raises(InputError, match="Text 69 of 70 is empty"):
        heed.explain(model, ["good"] * 68 + ["", "good"], "occlusion")
    with pytest.raises(InputError, match="The text is empty"):
        heed.explain(model, "", "occlusion")


def test_a_list_gives_a_list_and_a_text_one_explanation(model: SingleLayer) -> None:
    with pytest.raises(InputError, match="no text to explain"):
        heed.explain(model, [], "occlusion")
    one = heed.explain(model, {"text": "good film", "id": "7"}, "occlusion")
    assert one.document == Document("good film", id="7")
    assert isinstance(heed.explain(model, ["good"], "occlusion"), list)
    assert heed.explain(model, ("good", "film"), "occlusion").document == Document("good", "film")
    document = Document("good film", id="7", label=1, rationale=(Span(0, 4),))
    assert heed.explain(model, document, "occlusion").document is document
    assert [e.document.text for e in heed.explain(model, iter(["good", "film"]), "occlusion")] == [
        "good",
        "film",
    ]


def test_numbers_of_numpy_are_numbers(model: SingleLayer) -> None:
    e = heed.explain(
        model, "good film", "lime", label=np.int64(1), seed=np.int64(3), samples=np.int64(50)
    )
    plain = heed.explain(model, "good film", "lime", label=1, seed=3, samples=50)
    assert (e.scores == plain.scores).all()
    json.loads(e.to_json())


# Units, top, json


def test_top_is_ordered_by_absolute_score(model: SingleLayer) -> None:
    e = heed.explain(model, "the film was slow but good", "occlusion")
    scores = [abs(s) for _, s in e.top()]
    assert scores == sorted(scores, reverse=True) and len(scores) == 6
    assert e.top(2) == e.top()[:2]
    assert e.top(1)[0][0] in repr(e)
    unsigned = heed.explain(model, "good film", "attention-mean")
    assert "+" not in repr(unsigned) and "+" in repr(replace(e, scores=np.abs(e.scores)))


def test_json_keeps_gold_label_rationale_and_any_character(model: SingleLayer) -> None:
    document = Document(
        f"{NASTY} 😀 שלום good \x1b[31m \u2028", "film", "id/7", 1, (Span(0, 3), Span(1, 2, 1))
    )
    e = heed.explain(model, document, "lime", samples=20)
    again = Explanation.from_json(e.to_json())
    assert again.document == document
    assert all(isinstance(span, Span) for span in again.document.rationale)
    assert again.to_json() == e.to_json()


def test_json_is_json_even_for_settings_without_bound(model: SingleLayer) -> None:
    e = heed.explain(model, "good film", "lime", samples=20, bandwidth="inf")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not json")

    json.loads(e.to_json(), parse_constant=refuse)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"document": 3}', '{"method": "lime"}']
)
def test_json_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not an explanation"):
        Explanation.from_json(text)


def test_json_with_too_much_is_refused(model: SingleLayer) -> None:
    values = heed.explain(model, "good", "occlusion").to_dict()
    with pytest.raises(InputError, match="not an explanation"):
        Explanation.from_dict(values | {"surprise": 1})


# Pages


@pytest.fixture
def nasty_model(model: SingleLayer) -> SingleLayer:
    """Names that came from somewhere else: markup and terminal codes in labels and in the model's
    name."""
    labels = ("<img src=x onerror=alert(2)>\x1b[35m", "<b>\x1b[2J")
    return SingleLayer(
        model.network, model.tokenizer, labels, "<i>model\x1b]0;owned\x07", pairs=True
    )


@pytest.mark.parametrize("name", OFFERED)
def test_a_page_escapes_all_text(nasty_model: SingleLayer, name: str) -> None:
    html = heed.explain(nasty_model, (NASTY, f"zyzzyva {NASTY}"), name)._repr_html_()
    drawn = {
        "efficient": {"table", "caption", "tbody", "tr", "th", "td", "i"},
        "slalom": {"svg", "g", "path", "line", "text"},
    }
    allowed = {"div", "span", "b", "ul", "li"} | drawn.get(name, set())
    assert set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", html)) <= allowed
    assert not any(
        re.search(r"\son\w+", tag) for tag in re.findall(r"<[^>]*>", html)
    )  # no handler slips into a tag
    assert "&lt;img src=x onerror" in html or "&lt;b&gt;" in html  # the label
    text = unescape(re.sub(r"<[^>]*>", "", html))
    assert text.count(NASTY) == 2


def test_a_page_shows_every_character_of_the_text(model: SingleLayer) -> None:
    text = 'The  film\n was <b>good</b> & "slow" , n’t 😀 .'
    shown = heed.explain(model, text, "occlusion")._repr_html_()
    body = re.search(r'<div dir="auto"[^>]*>(.*?)</div>', shown, re.S)
    assert body and unescape(re.sub(r"<[^>]*>", "", body[1])) == text


def test_a_page_of_a_comparison_escapes_all_text(nasty_model: SingleLayer) -> None:
    html = heed.compare(nasty_model, NASTY)._repr_html_()
    assert set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", html)) <= {
        "div",
        "span",
        "b",
        "ul",
        "li",
        "table",
        "caption",
        "tr",
        "th",
        "td",
    }


# Terminals

LONG_WORDS = "good " * 30 + "x" * 200 + " slow"
HOSTILE = "good \x1b[31mred\x1b[0m \x07 \x9b31m film \u202eslow \r\n bad\tplot \x1b]0;owned\x07"


def shown(what: object, colour: bool, width: int = 80) -> str:
    file = io.StringIO()
    system = "truecolor" if colour else None
    Console(
        file=file, width=width, force_terminal=colour, color_system=system, no_color=not colour
    ).print(what)
    return file.getvalue()


def plain(text: str) -> str:
    """Without the colour codes that rich writes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize(
    "text",
    [LONG_WORDS, HOSTILE, ("good film", "slow plot " * 20), "😀 好 " * 40, "شكرا good " * 30],
    ids=range(5),
)
def test_no_line_is_wider_than_the_terminal(model: SingleLayer, text: Any, colour: bool) -> None:
    for name in OFFERED:
        for line in plain(shown(heed.explain(model, text, name), colour)).splitlines():
            assert cell_len(line.rstrip()) <= 80
    for width in (80, 60):
        for line in plain(shown(heed.compare(model, text, "all"), colour, width)).splitlines():
            assert cell_len(line.rstrip()) <= width


@pytest.mark.parametrize("colour", [False, True])
def test_text_cannot_steer_the_terminal(model: SingleLayer, colour: bool) -> None:
    for what in (
        *(heed.explain(model, HOSTILE, name) for name in OFFERED),
        heed.compare(model, HOSTILE),
    ):
        out = shown(what, colour)
        assert "\x1b[31m" not in out and "\x1b]" not in out
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", plain(out) if colour else out)


@pytest.mark.parametrize("colour", [False, True])
def test_names_of_labels_and_models_cannot_steer_the_terminal(
    nasty_model: SingleLayer, colour: bool
) -> None:
    for label in (0, 1):
        out = shown(heed.explain(nasty_model, "good film", "occlusion", label=label), colour)
        assert (
            "\x1b[35m" not in out
            and "\x1b[2J" not in out
            and "\x1b]" not in out
            and "\x07" not in out
        )


def test_markup_of_rich_in_a_text_is_only_text(model: SingleLayer) -> None:
    out = shown(
        heed.explain(model, "good [bold red]film[/] [link=http://x]slow[/link]", "attention-mean"),
        True,
    )
    assert "[bold red]" in re.sub(r"\[\d+\]", "", plain(out)) and "\x1b]8" not in out


def test_without_colour_strong_words_carry_their_score_in_tenths(model: SingleLayer) -> None:
    e = heed.explain(model, "the film was slow but good", "occlusion")
    out = shown(e, False)
    (strongest, score) = e.top(1)[0]
    assert f"{strongest}[{'+' if score > 0 else '-'}10]" in out
    assert "\x1b" not in out


def test_a_terminal_shows_method_label_notes_and_special_tokens(model: SingleLayer) -> None:
    out = " ".join(
        shown(
            heed.explain(model, "good zyzzyva", "gradient-input", label="negative"), False
        ).split()
    )
    for words in (
        "gradient-input for negative (p =",
        "special tokens: <cls>",
        "note: 1 word is unknown",
        "'zyzzyva'",
        "2 evaluations",
    ):
        assert words in out


# Comparisons


def test_a_comparison_has_two_methods_of_each_group_or_all(model: SingleLayer) -> None:
    text = "the film was slow but the plot is good"
    six = heed.compare(model, text)
    assert six.methods == SIX and not six.left_out
    assert [group_of(name) for name in SIX] == ["attention"] * 2 + ["gradient"] * 2 + [
        "removal"
    ] * 2
    c = heed.compare(model, text, "all")
    assert c.methods == heed.compare(model, text, ["all"]).methods == COMPARED
    assert set(c.methods) | set(c.left_out) == set(METHODS)
    np.testing.assert_array_equal(np.diag(c.agreement), 1)
    np.testing.assert_array_equal(c.agreement, c.agreement.T)
    assert len({e.label for e in c.explanations}) == 1
    again = Comparison.from_dict(json.loads(json.dumps(c.to_dict())))
    np.testing.assert_array_equal(again.agreement, c.agreement)
    assert [e.to_dict() for e in again.explanations] == [e.to_dict() for e in c.explanations]


def test_agreement_is_kendalls_tau_over_distinct_words(model: SingleLayer) -> None:
    from scipy.stats import kendalltau

    text = "good film good plot slow Good end"
    c = heed.compare(model, text, ["occlusion", "shapley", "attention-mean"])
    occlusion, shapley, attention = (e.scores for e in c.explanations)
    places = [[0, 2, 5], [1], [3], [4], [6]]
    summed = np.array([occlusion[p].sum() for p in places])
    weights = np.array([attention[p].sum() for p in places])
    assert c.agreement[0, 1] == pytest.approx(kendalltau(summed, shapley).statistic)
    assert c.agreement[0, 2] == pytest.approx(
        kendalltau(np.abs(occlusion), attention).statistic
    )  # as without shapley
    assert c.agreement[1, 2] == pytest.approx(kendalltau(np.abs(shapley), weights).statistic)


@pytest.mark.parametrize(
    "text",
    [
        "don't don’t",
        "Film film FILM",
        "straße STRASSE",
        "İx i̇x",
        "ΟΔΟΣ οδος οδοσ",
        ("good", "good film"),
        "good",
        "ǅ ǆ Ǆ",
    ],
)
def test_any_text_can_be_compared(model: SingleLayer, text: Any) -> None:
    """Methods that take repeats together and methods that do not must mean the same words."""
    c = heed.compare(model, text, "all")
    assert c.agreement.shape == (len(COMPARED), len(COMPARED))
    assert shown(c, False) and c._repr_html_()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_matrix_that_is_too_wide_is_drawn_in_parts(model: SingleLayer, width: int) -> None:
    c = heed.compare(model, "the film was slow but the plot is good", "all")
    lines = shown(table(c, width), False, width).splitlines()
    n = len(c.methods)
    assert all(len(line.rstrip()) <= width for line in lines)
    assert {name for line in lines[1:] for name in line.split() if len(name) > 5} == set(
        COMPARED
    ) - {"lime", "flip"}
    cells = [
        cell for line in lines for cell in line.split() if re.fullmatch(r"-?\d?\.\d\d|–", cell)
    ]
    assert len(cells) == n * (n - 1) / 2
    blocks = [line for line in lines if line.startswith("and with ")]
    assert bool(blocks) == (width < 200)  # each has a heading that names its columns
    for block in blocks:
        heads = lines[lines.index(block) + 1].split()
        assert [heads[0], heads[-1]] == [block.split()[2], block.split()[-1]]


def test_a_comparison_of_one_word_has_no_agreement_to_report(model: SingleLayer) -> None:
    c = heed.compare(model, "good", ["occlusion", "lime"])
    assert np.isnan(c.agreement[0, 1])
    assert "nan" not in c._repr_html_() and "nan" not in shown(c, False) + shown(table(c), False)


def test_a_comparison_shows_the_methods_that_it_left_out_and_why(model: SingleLayer) -> None:
    explanations = tuple(heed.explain(model, "the film was slow", m) for m in ("occlusion", "lime"))
    reasons = {
        "flow": "flow needs <attention>.",
        "anchors": "it would take about 90 s.",
        "rollout": "rollout needs <attention>.",
    }
    c = Comparison(explanations, reasons)
    line = "Left out: flow, rollout: needs <attention> · anchors: it would take about 90 s."
    assert shown(c, False).splitlines()[-1] == line
    assert f"<div>{escape(line)}</div>" in c._repr_html_()
    nothing = Comparison(explanations)
    assert "Left out" not in shown(nothing, False) + nothing._repr_html_()
    assert (
        repr(nothing) == f"<Comparison of 2 methods for {explanations[0].label!r}: occlusion, lime>"
    )


def test_negative_agreement_is_written_with_its_sign(model: SingleLayer) -> None:
    one, other = heed.explain(model, ["the film was slow"] * 2, "occlusion")
    object.__setattr__(other, "scores", -one.scores)
    c = Comparison((one, other))
    assert c.agreement[0, 1] == pytest.approx(-1)
    assert "-1.00" in shown(table(c), False)


def test_methods_that_the_model_does_not_offer_are_left_out_of_a_comparison(
    model: SingleLayer,
) -> None:
    bare = SingleLayer(model.network, model.tokenizer, model.labels)
    bare.offers = frozenset()  # type: ignore[misc]
    able = [n for n, m in METHODS.items() if not m.needs and not m.only_by_name]
    assert heed.compare(bare, "good film", "all").methods == able
    assert heed.compare(bare, "good film").methods == ["occlusion", "lime"]


# Too few samples, outputs that do not change, heads


def test_a_comparison_leaves_out_slow_methods_and_says_so(model: SingleLayer) -> None:
    text, heard = "the film was slow", Heard()
    with listening(heard):
        quick = heed.compare(model, text, "all", patience=0)
    slow = {"lime", "shapley", "anchors", "occlusion", "integrated-gradients"}
    assert set(quick.left_out) >= slow and not slow & set(quick.methods)
    assert "attention-mean" in quick.methods
    assert all("it would take about" in quick.left_out[name] for name in slow)
    (line,) = heard.lines
    assert set(re.findall(r"[\w-]+(?=[,:])", line)) >= slow | {"rollout", "flow"}
    by_name = "value-zeroing, efficient, effective, gradient-paths, relevance, slalom, word-length"
    assert line.endswith(f"{by_name}: run only if you name them.")
    assert quick.left_out["efficient"] == "run only if you name them"
    again = Comparison.from_dict(json.loads(json.dumps(quick.to_dict())))
    assert again.left_out == quick.left_out
    patient = heed.compare(model, text, "all", patience=math.inf)
    assert slow <= set(patient.methods)
    assert heed.compare(model, text, ["lime"], patience=0).methods == ["lime"]  # named


def test_what_a_model_does_not_offer_is_left_out_in_one_line(model: SingleLayer) -> None:
    bare, heard = SingleLayer(model.network, model.tokenizer, model.labels), Heard()
    bare.offers = frozenset()  # type: ignore[misc]
    with listening(heard):
        comparison = heed.compare(bare, "good film", "all")
    assert "does not offer" in comparison.left_out["attention-mean"]
    (line,) = heard.lines
    same = "attention-mean, attention-max, attention-head: needs attention, which single-layer does"
    assert line.startswith(f"Left out: {same} not offer · ")


def slow(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Models seem to take so long for an output."""

    def measured(model: Any, tokens: Any) -> Prediction:
        return Prediction(tokens, model.logits([tokens]), seconds)

    monkeypatch.setattr("heed.methods.predicted", measured)


def test_few_words_have_few_subsets_so_that_lime_is_quick(
    model: SingleLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes long is decided by the number of different texts, not by the setting `samples`."""
    slow(monkeypatch, 1.0)
    few = heed.compare(model, "a fine film", "all", patience=30)
    assert set(few.methods) >= {"lime", "shapley", "anchors", "occlusion"}
    many = heed.compare(model, "the film was slow but the plot is good", "all", patience=30)
    assert set(many.left_out) >= {"lime", "shapley", "anchors"}


def test_where_a_group_has_too_few_quick_methods_the_slow_ones_are_named(
    model: SingleLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(monkeypatch, 0.2)
    c = heed.compare(model, "the film was slow but the plot is good")
    assert c.methods == [name for name in SIX if name != "lime"]
    assert c.left_out == {
        "lime": "it would take about 51 s; name it to run it",
        "shapley": "it would take about 51 s; name it to run it",
    }


def test_what_takes_long_is_announced(model: SingleLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch, 0.5)
    for text, methods, sentence in (
        ("the film was slow", ["lime"], None),  # 16 texts
        ("the film was slow but good", "lime", "This will take about 32 s."),
        (
            "the film was slow but good",
            ["attention-mean", "lime", "occlusion", "integrated-gradients"],
            "This will take about 86 s (integrated-gradients 51 s, lime 32 s).",
        ),
    ):
        heard = Heard()
        with listening(heard):
            heed.compare(model, text, methods)
        assert heard.lines == ([] if sentence is None else [sentence])


def test_methods_that_cannot_run_are_refused_before_others_take_their_time(
    model: SingleLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SingleLayer, "score", None)  # which lime would call
    with pytest.raises(NotApplicable, match="rollout needs"):
        heed.compare(model, "good film", ["lime", "rollout"])


def test_the_methods_of_a_comparison_share_one_prediction(
    model: SingleLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`random` asks the model for nothing else; each says how many outputs it rests on."""
    names = ["random", "attention-mean", "gradient-input", "anchors"]
    asked, logits = [], SingleLayer.logits
    monkeypatch.setattr("heed.methods.choice._TRIAL", 0.0)  # no pass to measure the time
    monkeypatch.setattr(SingleLayer, "logits", lambda *args: asked.append(1) or logits(*args))
    alone = [heed.explain(model, "the film was slow", name) for name in names]
    apart = len(asked)
    together = heed.compare(model, "the film was slow", names).explanations
    assert len(asked) - apart == apart - (len(names) - 1)
    for one, other in zip(alone, together, strict=True):
        assert one.to_dict() | {"seconds": 0} == other.to_dict() | {"seconds": 0}
    assert together[0].forward_passes == 1


def test_settings_of_a_comparison_go_to_the_methods_that_have_them(model: SingleLayer) -> None:
    c = heed.compare(model, "the film was slow", settings={"removal": "delete", "steps": 5})
    assert {e.method for e in c.explanations if e.removal == "delete"} == {"occlusion", "lime"}
    assert [e.settings["steps"] for e in c.explanations if "steps" in e.settings] == [5]
    with pytest.raises(UnknownName, match="'stepz': did you mean 'steps'"):
        heed.compare(model, "the film was slow", settings={"stepz": 5})
    with pytest.raises(UnknownName, match="'steps'"):
        heed.compare(model, "the film was slow", ["lime"], settings={"steps": 5})


def test_lime_of_an_output_that_does_not_change_is_zero(model: SingleLayer) -> None:
    e = heed.explain(model, "qqq zzz xxx", "lime")  # unknown words: replacing them changes nothing
    assert not e.scores.any() and not e.standard_errors.any()


def test_few_samples_are_told_or_raised(model: SingleLayer) -> None:
    text = " ".join(f"w{i}" for i in range(30))
    assert any(
        "few for 30 words" in note for note in heed.explain(model, text, "lime", samples=40).notes
    )
    for estimator, least in (("kernel", 4 * 30 + 2), ("permutation", 10 * 2 * 29 + 2)):
        e = heed.explain(model, text, "shapley", samples=20, estimator=estimator)
        assert 0.9 * least < e.forward_passes <= least  # equal subsets are evaluated once
        assert any("need more than 20 samples" in note for note in e.notes)


@pytest.mark.parametrize("name", ["lime", "gradient-input"])
def test_a_head_has_a_part_of_the_logit_only(name: str) -> None:
    with pytest.raises(InputError, match="part of the logit"):
        make_method(name, {"head": 0, "output": "probability"})


def test_pairs_on_a_model_without_pairs_are_noted(model: SingleLayer) -> None:
    pair = Document("good film", "bad film")
    without = SingleLayer(model.network, model.tokenizer, model.labels)
    assert any("not trained on pairs" in note for note in heed.explain(without, pair).notes)
    assert not any("not trained on pairs" in note for note in heed.explain(model, pair).notes)


@pytest.mark.parametrize("wrong", [None, ["lime"], METHODS["lime"], 3])
def test_a_method_that_is_none_is_refused(model: SingleLayer, wrong: Any) -> None:
    with pytest.raises(InputError, match="A method is a name"):
        heed.explain(model, "good film", wrong)


@pytest.mark.parametrize("seed", [None, "x", 1.7, True])
def test_a_seed_that_is_no_number_is_refused(model: SingleLayer, seed: Any) -> None:
    with pytest.raises(InputError, match="seed must be a whole number"):
        heed.explain(model, "good film", seed=seed)


def test_compare_takes_one_text_and_some_methods(model: SingleLayer) -> None:
    with pytest.raises(InputError, match="one text"):
        heed.compare(model, ["good film", "bad film"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one method"):
        heed.compare(model, "good film", [])
    for empty in ("", "\u200b"):
        with pytest.raises(InputError, match="nothing to explain"):
            heed.compare(model, empty)
    assert heed.compare(model, "good film", "lime").methods == ["lime"]


def test_settings_without_bound_come_back_as_numbers(model: SingleLayer) -> None:
    e = heed.explain(model, "good film", "lime", samples=20, bandwidth="inf")
    assert Explanation.from_json(e.to_json()).settings["bandwidth"] == float("inf")


@pytest.mark.parametrize(
    "change", [{"scores": [1.0]}, {"probabilities": {"negative": "x"}}, {"label": "nobody"}]
)
def test_doctored_explanations_are_refused(model: SingleLayer, change: dict) -> None:
    values = heed.explain(model, "good film", "occlusion").to_dict()
    with pytest.raises(InputError, match="not an explanation"):
        Explanation.from_dict(values | change)


# Chance


def test_word_length_counts_characters(model: SingleLayer) -> None:
    text = "a great film , truly unforgettable"
    e = heed.explain(model, text, "word-length")
    assert e.scores.tolist() == [len(u.text) for u in e.units] == [1, 5, 4, 1, 5, 13]
    assert not e.signed and e.forward_passes == 1  # of the document itself
