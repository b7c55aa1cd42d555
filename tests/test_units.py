"""Units beyond words: sentences, lines and spans, in methods, claims, files and pages."""

from __future__ import annotations

import json
import re
from io import StringIO
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import OFFERED, UNTRAINED, log_odds
from rich.console import Console
from test_transformer import network, tokenizer

import heed
from heed import data
from heed.audit import Audit
from heed.claims import CLAIMS, Study
from heed.claims.plausible import marked
from heed.errors import DataError, InputError, UnknownName
from heed.methods import METHODS
from heed.methods.imported import load_explanations, save_explanations
from heed.methods.sentences import lines, sentences
from heed.methods.units import units_of
from heed.models.single_layer import SingleLayer
from heed.models.transformer import Transformer
from heed.report import html
from heed.text import Document, Span

PASSAGES = ("sentence", "line", "span")

# Sentences


@pytest.mark.parametrize(
    "parts",
    [
        ["This film is great.", "But the ending is dull!"],
        ["Dr. Smith paid $3.50 for v1.2.", "He left at 5 p.m.", "The end."],
        ['"Really?" he asked.', '"Yes."', "She left."],
        ['"Was that it?" I asked.', "It was."],
        ["Wait... what?", "No...", "Yes.", "It is… odd.", "But…", "Fine."],
        ["a fine film .", "the plot is thin .", "i left"],  # no capitals: small letters may begin
        ["See Fig. 3 and No. 5.", "No.", "Not me."],
        ["George W. Bush spoke.", "So am I.", "Yahoo! is a firm."],
        ["The U.S. Army came.", "He lives in the U.S.", "The end."],
        ["Bought from Acme Inc. in May.", "Sold to Acme Inc.", "The end."],
        ["1. Open the box.", "2. Close it."],
        ["He said (it was fine.)", "Then he left.", "(See p. 4.)", "Done."],
        ["Visit example.com.", "It's 3 a.m. and dark.", "J. R. R. Tolkien wrote, e.g. this."],
        ["今天很好。", "我喜欢！", "真的吗？", "是的"],
        ["¿Cómo?", "¡Bien!", "Él vino."],
        ["Apples, pears, etc.", "They cost 1.000,50 in all."],
        ["What?!", "“No way.”", "[Laughs.]", "Ok"],
        ["Hello"],
    ],
)
def test_a_text_is_cut_into_its_sentences(parts: list[str]) -> None:
    text = " ".join(parts)
    assert [text[a:b] for a, b in sentences(text)] == parts
    wrapped = "  " + "\n ".join(parts) + " \n"
    assert [wrapped[a:b] for a, b in sentences(wrapped)] == parts


def test_paragraphs_end_a_sentence_and_wrapped_lines_do_not() -> None:
    text = "One line\nwrapped here\n\nNo stop before this<br /><br />The end"
    found = [text[a:b] for a, b in sentences(text)]
    assert found == ["One line\nwrapped here", "No stop before this", "The end"]


def test_what_holds_no_word_is_no_sentence() -> None:
    text = "Great. *** !!! Bad.\n\n---\n\nFine."
    assert [text[a:b] for a, b in sentences(text)] == ["Great. *** !!!", "Bad.\n\n---", "Fine."]
    assert sentences("  \n ") == [] and sentences("") == []


def test_lines_are_those_that_are_not_blank() -> None:
    text = "a b\n\n  c d \r\n\te<br />f\u2028g\n"
    assert [text[a:b] for a, b in lines(text)] == ["a b", "c d", "e", "f", "g"]


LONG = 200_000


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a" + " " * LONG + "b", 1),
        ("." * LONG + "x", 1),
        ("." * LONG + ")" * LONG + "x", 1),
        ("Mr. " * (LONG // 4), 1),
        ("B. " * (LONG // 3), 1),
        ("! " * (LONG // 2), 1),
        ("A" * LONG + '". B', 2),
        ("A" * LONG + "'. B" * 9, 10),
        ("a\n" + " " * LONG + "b", 1),
        ("a" + "\n " * (LONG // 2) + "b", 2),
        ("a" + " " * LONG + "<br />" + " " * LONG + "b", 2),
        ("Yes." + " " * LONG + "No.", 2),
        ("Yes. " * (LONG // 5), LONG // 5),
    ],
    ids=lambda value: f"{value[:6]!r}" if isinstance(value, str) else str(value),
)
def test_long_runs_take_work_in_proportion(text: str, parts: int) -> None:
    """Where work grew with the square of the length, this test would not come to an end."""
    found = sentences(text)
    assert len(found) == parts
    visible = [i for pair in found for i in pair]
    assert visible == sorted(visible) and visible[-1] == len(text.rstrip())
    blank_free = re.sub(r"\s|<br />", "", text)
    for spans in (found, lines(text)):
        assert re.sub(r"\s", "", "".join(text[a:b] for a, b in spans)) == blank_free


# Units

TEXT = "The film was slow. But the plot is good!\nVery good music, not bad."
SPANS = (Span(0, 8), Span(27, 39), Span(41, 57))


def document(**named: Any) -> Document:
    return Document(TEXT, spans=SPANS, **named)


def texts_of(e: heed.Explanation) -> list[str]:
    return [u.text for u in e.units]


@pytest.mark.parametrize("name", OFFERED)
def test_every_method_scores_passages(model: SingleLayer, name: str) -> None:
    settings = {"anchors": {"samples": 400}}.get(name, {})
    for unit, expected in (
        ("sentence", ["The film was slow.", "But the plot is good!", "Very good music, not bad."]),
        ("line", ["The film was slow. But the plot is good!", "Very good music, not bad."]),
        ("span", ["The film", "plot is good", "Very good music,"]),
    ):
        e = heed.explain(model, document(), name, unit=unit, **settings)
        assert texts_of(e) == expected and e.unit == unit and np.isfinite(e.scores).all()
        assert all(TEXT[slice(*u.spans[0])] == u.text for u in e.units)
        assert heed.Explanation.from_json(e.to_json()).to_dict() == e.to_dict()


@pytest.mark.parametrize("removal", ["replace", "delete"])
def test_shapley_values_of_sentences_are_their_mean_contributions(
    model: SingleLayer, removal: str
) -> None:
    """From the texts without some of their sentences, read anew."""
    parts = [TEXT[a:b] for a, b in sentences(TEXT)]

    def output(kept: frozenset[int]) -> float:
        gone = (lambda s: " ".join("zzqx" for _ in model.tokens([s])[0].words), lambda s: "")
        drop = gone[removal == "delete"]
        whole = " ".join(p if i in kept else drop(p) for i, p in enumerate(parts))
        return float(log_odds(model([whole]), 1)[0])

    f = {frozenset(s): output(frozenset(s)) for n in range(4) for s in combinations(range(3), n)}
    expected = [
        sum((f[kept | {j}] - f[kept]) / (3 * comb(2, len(kept))) for kept in f if j not in kept)
        for j in range(3)
    ]
    e = heed.explain(model, TEXT, "shapley", label=1, unit="sentence", removal=removal)
    np.testing.assert_allclose(e.scores, expected, atol=1e-9)
    assert e.notes == ()


def test_attention_of_a_passage_is_that_of_its_tokens(model: SingleLayer) -> None:
    tokens = heed.explain(model, document(), "attention-mean", unit="token")
    for unit in PASSAGES:
        e = heed.explain(model, document(), "attention-mean", unit=unit)
        for u, score in zip(e.units, e.scores, strict=True):
            (start, end), *_ = u.spans
            inside = [start <= t.spans[0][0] and t.spans[0][1] <= end for t in tokens.units]
            assert score == pytest.approx(tokens.scores[inside].sum())
        outside = {s.text: s.score for s in e.specials}.get("outside spans", 0.0)
        assert e.scores.sum() + outside == pytest.approx(tokens.scores.sum())
        assert (outside > 0) == (unit == "span")


def test_what_lies_outside_of_spans_is_never_removed(model: SingleLayer) -> None:
    (tokens,) = model.tokens([document()])
    units, groups = units_of(tokens, "span")
    assert [u.text for u in units] == ["The film", "plot is good", "Very good music,"]
    blank = {w.text for w, g in zip(tokens.words, groups[tokens.word >= 0], strict=True) if g < 0}
    assert blank == {"was", "slow", ".", "But", "the", "!", "not", "bad"}
    (none,) = model.score([tokens], [np.zeros((1, 3), dtype=bool)], [groups], "replace")
    text = "zzqx zzqx was slow. But the zzqx zzqx zzqx! zzqx zzqx zzqx zzqx not bad."
    np.testing.assert_allclose(none, model([text]), atol=1e-12)


def test_a_token_on_the_border_goes_where_most_of_it_is(model: SingleLayer) -> None:
    text = "good awful film"  # awful: characters 5 to 10
    for cut, owner in ((7, 1), (8, 0)):
        spans = (Span(0, cut), Span(cut, len(text)))
        (tokens,) = model.tokens([Document(text, spans=spans)])
        assert units_of(tokens, "span")[1].tolist() == [-1, 0, owner, 1]


def test_passages_keep_the_two_texts_of_a_pair_apart(model: SingleLayer) -> None:
    pair = Document("Good plot. Bad film", "Slow. Bad film", spans=(Span(0, 5, 1), Span(0, 9, 0)))
    (tokens,) = model.tokens([pair])
    units, _ = units_of(tokens, "sentence")
    assert [(u.text, u.segment) for u in units] == [
        ("Good plot.", 0),
        ("Bad film", 0),
        ("Slow.", 1),
        ("Bad film", 1),
    ]
    units, groups = units_of(tokens, "span")
    assert [(u.text, u.segment) for u in units] == [("Good plot", 0), ("Slow.", 1)]
    assert groups[tokens.segment == 1].tolist() == [1, 1, -1, -1]


def test_sub_words_and_blanks_go_with_their_passage() -> None:
    m = Transformer(network("bert"), tokenizer(), "bert")
    text = "the unbelievable film. Surprisingly slow plot"
    e = heed.explain(m, text, "attention-mean", unit="sentence", sink="kept")
    words = heed.explain(m, text, "attention-mean", sink="kept")
    np.testing.assert_allclose(
        e.scores, [words.scores[:4].sum(), words.scores[4:].sum()], atol=1e-6
    )


def test_a_passage_that_is_cut_off_ends_where_reading_ends(model: SingleLayer) -> None:
    text = "good film . " + "the plot is bad " * 20 + ". very slow ."
    e = heed.explain(model, text, "occlusion", unit="sentence")
    (tokens,) = model.tokens([text])
    assert len(e.units) == 2 and tokens.dropped
    assert e.units[1].spans[0][1] == tokens.words[-1].end < len(text)


def test_equal_sentences_stay_apart(model: SingleLayer) -> None:
    e = heed.explain(model, "Good film. Bad plot. Good film.", "lime", unit="sentence")
    assert texts_of(e) == ["Good film.", "Bad plot.", "Good film."]


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        ((Span(0, 4), Span(3, 8)), "must not overlap: 0-4 and 3-8 do"),
        ((Span(0, 99),), "lacks"),
        ((Span(3, 3),), "lacks"),
        ((Span(0, 3, 1),), "lacks"),
        (((0, 4, 0, 1),), r"A span is \(start, end\)"),
        ((("a", "b"),), r"A span is \(start, end\)"),
        ((5,), r"A span is \(start, end\)"),
        (((False, True),), r"A span is \(start, end\)"),
        (((0, 4.0),), r"A span is \(start, end\)"),
        ((0, 4), r"A span is \(start, end\)"),
        (5, r"Spans are a list of \(start, end\), got 5\."),
    ],
)
def test_spans_that_cannot_be_are_refused(spans: tuple[Span, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Document("good film", spans=spans)


def test_spans_may_be_plain_pairs() -> None:
    assert Document("good film", spans=((0, 4), [5, 9])).spans == (Span(0, 4), Span(5, 9))
    assert Document("good film", spans=None).spans == ()
    for given in (np.array([[0, 4]]), [(np.int64(0), np.int32(4))]):
        (span,) = Document("good film", spans=given).spans
        assert span == Span(0, 4) and {type(i) for i in span} == {int}


def test_texts_without_spans_and_unknown_units_are_refused(model: SingleLayer) -> None:
    with pytest.raises(InputError, match="no span that the model reads"):
        heed.explain(model, "good film", "lime", unit="span")
    with pytest.raises(InputError, match=r"Text 2 of 2 has no span"):
        heed.explain(model, [document(), Document("good")], "lime", unit="span")
    with pytest.raises(UnknownName, match="sentence"):
        heed.explain(model, "good film", "lime", unit="sentences")
    with pytest.raises(InputError, match="none of these has a span"):
        heed.audit(model, ["good film", "bad"], ["removes"], unit="span")


def test_notes_speak_of_the_unit(model: SingleLayer) -> None:
    e = heed.explain(model, TEXT, "lime", unit="sentence")
    assert e.notes == ("All 8 subsets of sentences were evaluated: nothing was sampled.",)
    (note, *_) = heed.explain(model, "good film", "lime", unit="line").notes
    assert "With a single line" in note


def test_imported_scores_are_shared_out_among_passages(model: SingleLayer) -> None:
    pieces = TEXT.replace("\n", " ").split(" ")
    scores = list(range(1, len(pieces) + 1))
    imported = heed.Imported.arrays("mine", [TEXT], [scores])
    e = heed.explain(model, TEXT, imported, unit="sentence")
    first, second = 4, 9  # words of the first sentence, and of the first two
    expected = [sum(scores[:first]), sum(scores[first:second]), sum(scores[second:])]
    np.testing.assert_allclose(e.scores, expected)


def test_explanations_of_passages_survive_files(model: SingleLayer, tmp_path: Path) -> None:
    made = [heed.explain(model, document(id="a"), "lime", unit=unit) for unit in PASSAGES]
    for ending in ("json", "jsonl", "parquet"):
        path = tmp_path / f"made.{ending}"
        save_explanations(made, path)
        read = load_explanations(path)
        assert [e.to_dict() for e in read] == [e.to_dict() for e in made]
        assert read[2].document.spans == SPANS


# Data


def test_spans_are_read_from_tables_and_files(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "good film", "label": "pos", "spans": [[0, 4], [5, 9]]},
        {"text": "bad plot", "label": "neg", "spans": []},
    ]
    read = data.documents(rows)
    assert read[0].spans == (Span(0, 4), Span(5, 9)) and read[1].spans == ()
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf8")
    assert data.load(path)[0].spans == (Span(0, 4), Span(5, 9))
    path = tmp_path / "rows.csv"
    path.write_text('text,label,parts\ngood film,pos,"[[0, 4]]"\nbad plot,neg,\n', encoding="utf8")
    assert data.load(path, columns={"spans": "parts"})[0].spans == (Span(0, 4),)
    pairs = [{"text": "a b", "pair": "c d", "spans": [[0, 1], [2, 3, 1]]}]
    assert data.documents(pairs)[0].spans == (Span(0, 1), Span(2, 3, 1))


@pytest.mark.parametrize("spans", [[[0]], [["a", "b"]], "x", [[0, 4, "PER"]], 3, [[0, 4, 2]]])
def test_spans_that_are_none_are_refused_where_they_stand(spans: Any) -> None:
    rows = [{"text": "good film", "spans": spans}]
    with pytest.raises(DataError, match=r"Row 1: spans must be a list of \[start, end\)"):
        data.documents(rows)
    assert data.documents(rows, {"spans": None})[0].spans == ()


def test_overlapping_spans_of_a_table_are_refused_where_they_stand() -> None:
    with pytest.raises(DataError, match="Row 1: spans must not overlap"):
        data.documents([{"text": "good film", "spans": [[0, 4], [2, 6]]}])


# Claims

REVIEWS = [
    "The film was slow. But the plot is good! Very good music, not bad. The end.",
    "Good plot. Bad film. A very quick scene. The actor was cold.",
    "Dull. Awful ending. The music was fine, but the plot is not. Great actor!",
    "One sentence only",
    "Two are few. Good film.",
]


def reviews() -> list[Document]:
    made = []
    for i, text in enumerate(REVIEWS):
        first = sentences(text)[0]
        spans = tuple(Span(*s) for s in sentences(text)[:-1]) or (Span(0, 3),)
        made.append(Document(text, None, str(i), i % 2, (Span(*first),), spans))
    return made


CHEAP: dict[str, dict[str, Any]] = {
    "exclusive": {"steps": 3, "candidates": 2},
    "used": {"permutations": 5},
    "agrees-lime": {"samples": 30},
    "signed": {"samples": 30},
    "robust": {"samples": 30},
    "competitive": {"samples": 30},
    "removes": {"orders": 3},
    "suffices": {"orders": 3},
}


@pytest.mark.parametrize("unit", ["sentence", "span", "token"])
def test_every_claim_is_tested_on_other_units(model: SingleLayer, unit: Any) -> None:
    claims = [CLAIMS[name](**CHEAP.get(name, {})) for name in UNTRAINED]
    found = heed.audit(model, reviews(), claims, ["attention-mean", "lime"], unit=unit, examples=5)
    assert found.facts["unit"] == unit
    for evidence in found.evidence:
        if evidence.refusal is None:
            assert len(evidence.rows) == len(REVIEWS)
            if evidence.claim.ranks and unit != "token":
                assert all(np.isnan(row["value"]) for row in evidence.rows[3:])
    ranked = {e.claim.id for e in found.evidence if e.claim.ranks and len(e.values)}
    assert {"agrees-removal", "removes", "sensitive", "plausible"} <= ranked


def test_removal_of_sentences_is_what_is_measured(model: SingleLayer) -> None:
    """Comprehensiveness of four sentences: one for shares up to a quarter, two up to a half."""
    text = REVIEWS[0]
    study = Study(model, [Document(text)], METHODS["occlusion"](), unit="sentence")
    (row,) = CLAIMS["removes"](orders=1, removal="delete").measure(study)  # type: ignore[call-arg]
    (e,) = study.explain()
    order = np.argsort(-e.scores, kind="stable")
    parts = [text[a:b] for a, b in sentences(text)]

    def without(gone: set[int]) -> str:
        return " ".join(p for i, p in enumerate(parts) if i not in gone)

    kept = [without(set(order[: max(1, -(-4 * k // 20))].tolist())) for k in range(1, 11)]
    label = model.label(e.label)
    falls = model.predict([text])[0, label] - model.predict(kept)[:, label]
    assert row["comprehensiveness"] == pytest.approx(falls.mean(), abs=1e-9)


def test_attention_outside_of_spans_stays(model: SingleLayer) -> None:
    (tokens,) = model.tokens([document()])
    free = Study(model, [document()], unit="span").free(tokens)
    np.testing.assert_array_equal(free, units_of(tokens, "span")[1] >= 0)
    assert 0 < free.sum() < (~tokens.special).sum()


def test_passages_are_marked_if_people_marked_a_part_of_them(model: SingleLayer) -> None:
    text = "Good plot. Bad film. The end."
    marks = Document(text, rationale=(Span(5, 9), Span(11, 14)))
    e = heed.explain(model, marks, "lime", unit="sentence")
    assert marked(e).tolist() == [True, True, False]


def test_a_sentence_is_edited_if_one_of_its_words_is(model: SingleLayer) -> None:
    one = Document("The film was good. The plot is dull. Slow scene. A warm actor.", None, "a", 1)
    two = Document("The film was bad. The plot is dull. Slow scene. A warm actor.", None, "a", 0)
    study = Study(model, [one, two], METHODS["lime"](), unit="sentence")
    rows = CLAIMS["edited"]().measure(study)
    assert [row["edited"] for row in rows] == [0.25, 0.25]


def test_an_audit_of_sentences_survives_its_file_and_resumes(
    model: SingleLayer, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"claims": ["removes", "used"], "examples": 3}
    one = heed.audit(model, reviews(), **settings, unit="sentence", store=tmp_path / "store")
    words = heed.audit(model, reviews(), **settings, store=tmp_path / "store")
    again = heed.audit(model, reviews(), **settings, unit="sentence", store=tmp_path / "store")
    rows = [str(x.evidence[1].rows) for x in (one, again, words)]  # NaN is not itself
    assert rows[0] == rows[1] != rows[2]
    one.save(tmp_path / "audit.parquet")
    read = Audit.load(tmp_path / "audit.parquet")
    assert read.facts["unit"] == "sentence"
    assert read.examples[0].explanations[0].unit == "sentence"
    heads = read.examples[0].heads
    assert heads is not None and heads.shape[1] == 4


def test_what_was_cut_off_is_counted_in_what_gets_a_score(model: SingleLayer) -> None:
    text = "The film was good. " * 400
    limit = model.tokenizer.max_tokens
    e = heed.explain(model, text, "random", unit="sentence")
    read = len(e.units)
    assert limit // 5 <= read < 400
    in_part = r"( \(one of them in part\))?"
    told = rf"Only the first {read}{in_part} of 400 sentences were read; {400 - read} were cut off."
    assert re.fullmatch(told, e.notes[0])
    inside = heed.explain(model, Document(text, spans=[(0, 8)]), "random", unit="span")
    assert re.match(r"Only the first \d+ of 2,000 words were read", inside.notes[0])


def test_the_error_for_a_span_names_its_characters_and_in_pairs_its_text() -> None:
    with pytest.raises(InputError, match=r"that the text lacks: 26-99\.$"):
        Document("a film", spans=[(26, 99)])
    with pytest.raises(InputError, match=r"that the text lacks: 26-99 of the second text\.$"):
        Document("a film", "a plot", spans=[(26, 99, 1)])


# What a reader sees


def printed(value: Any, width: int = 80) -> str:
    console = Console(width=width, record=True, file=StringIO(), highlight=False)
    console.print(value)
    return console.export_text()


def test_a_terminal_lists_passages_with_their_scores(model: SingleLayer) -> None:
    e = heed.explain(model, TEXT, "occlusion", unit="sentence")
    text = printed(e)
    for unit, score in zip(e.units, e.scores, strict=True):
        assert f"{score:+.3f}  {unit.text}" in text
    assert "strongest" not in text
    spans = printed(heed.explain(model, document(), "occlusion", unit="span"))
    assert "The film\n" in spans and "        was slow. But the\n" in spans


def test_a_comparison_numbers_the_passages(model: SingleLayer) -> None:
    c = heed.compare(model, TEXT, ["lime", "attention-mean"], unit="sentence")
    text = printed(c)
    assert "1  The film was slow." in text and "3  Very good music, not bad." in text
    (line,) = [part for part in text.splitlines() if part.startswith("lime")]
    _, largest, *passages = line.split()
    (lime, _) = c.explanations
    assert float(largest) == pytest.approx(lime.top(1)[0][1], abs=5e-4)
    assert passages[0][0] == "1" and len(passages) == 3


@pytest.mark.parametrize("several", [False, True])
def test_of_many_passages_a_terminal_lists_the_strongest(model: SingleLayer, several: bool) -> None:
    text = "\n".join([*(f"film{i}" for i in range(22)), "good", "bad", "slow"])
    methods = ["occlusion", "attention-mean"] if several else ["occlusion"]
    c = heed.compare(model, text, methods, unit="line")
    (e, *_) = c.explanations
    out = printed(c if several else e)
    start = r"(?m)^ *\d+  " if several else r"(?m)^ *[+-]?\d\.\d+  "
    assert len(e.units) == 25 and len(re.findall(start, out)) == 20
    (strongest, _) = e.top(1)[0]
    assert re.search(rf"{start}{strongest}\n", out)
    assert "the strongest 20 of 25 lines; a page (-o FILE.html) has all" in out
    assert e._repr_html_().count(">film") == 22


def test_pages_show_where_a_passage_begins(model: SingleLayer) -> None:
    passages = heed.explain(model, TEXT, "occlusion", unit="sentence")
    words = heed.explain(model, TEXT, "occlusion")
    assert passages._repr_html_().count("border-left") == 3
    assert "border-left:2px" not in words._repr_html_()
    page = html.audit(heed.audit(model, reviews(), ["removes"], unit="sentence", examples=3))
    assert '"passages":true' in page.replace(" ", "") and "Choose a sentence" in page
    assert "sentences: they are meant where claims speak of words" in page
