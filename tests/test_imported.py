"""Explanations that come from elsewhere: files, arrays, captum, shap and lime."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import heed
from heed import Imported
from heed.errors import DataError, InputError, OutputError
from heed.methods import Occlusion
from heed.methods.comparison import aligned
from heed.models.single_layer import SingleLayer
from heed.text import Document

TEXTS = [
    "a good film with a bad plot",
    "the music was warm, the plot was slow",
    "It's a GOOD, good film",
]


def scored(model: SingleLayer, imported: Imported, text: str = TEXTS[0]) -> dict[str, float]:
    e = heed.explain(model, text, imported)
    return {u.text: float(s) for u, s in zip(e.units, e.scores, strict=True)}


def test_numbers_for_the_words_between_blanks(model: SingleLayer) -> None:
    found = scored(model, Imported.arrays("mine", [TEXTS[0]], [np.arange(7.0)]))
    assert list(found.values())[1:4] == [1, 2, 3] and found["plot"] == 6
    e = heed.explain(model, TEXTS[0], Imported.arrays("mine", [TEXTS[0]], [np.arange(7.0) - 3]))
    assert (e.method, e.signed, e.forward_passes) == ("mine", True, 1)
    assert not heed.explain(
        model, TEXTS[0], Imported.arrays("mine", [TEXTS[0]], [np.arange(7.0)])
    ).signed


def test_pieces_of_a_word_add_up_and_a_piece_of_two_words_is_shared(model: SingleLayer) -> None:
    pieces = [
        "[CLS]",
        "a",
        "go",
        "##od",
        "film with",
        "a",
        "Ġbad",
        "plot",
        "[SEP]",
    ]  # [SEP] and [CLS]: nowhere
    imported = Imported.arrays("mine", [TEXTS[0]], [[9, 0, 1, 2, 4, 0, -1, 0.5, 9]], [pieces])
    e = heed.explain(model, TEXTS[0], imported)
    by = [(u.text, s) for u, s in zip(e.units, e.scores.tolist(), strict=True)]
    assert dict(by[1:4]) == {"good": 3, "film": 4 * 4 / 8, "with": 4 * 4 / 8}
    assert dict(by[5:]) == {"bad": -1, "plot": 0.5}
    assert e.facts["left_out"] == pytest.approx(18 / 26.5)
    assert "no words of the model" in e.notes[-1]


def test_pieces_by_their_characters_and_pairs(model: SingleLayer) -> None:
    pair = Document("a film", "good plot")
    imported = Imported.arrays("mine", [pair], [[1.0, 2.0]], [[(2, 6, 0), (0, 4, 1)]])
    e = heed.explain(model, pair, imported)
    assert {(u.segment, u.text): s for u, s in zip(e.units, e.scores.tolist(), strict=True)} == {
        (0, "a"): 0,
        (0, "film"): 1,
        (1, "good"): 2,
        (1, "plot"): 0,
    }


def test_a_text_is_found_again_by_its_characters_but_for_blanks_at_its_ends(
    model: SingleLayer,
) -> None:
    imported = Imported.arrays("mine", [f"  {TEXTS[0]}\n"], [np.arange(7.0)])
    assert scored(model, imported)["plot"] == 6
    assert imported.explains(Document(TEXTS[0] + " ")) and not imported.explains(
        Document(TEXTS[0].upper())
    )


def test_pieces_follow_each_other(model: SingleLayer) -> None:
    text = "a café is not a cafe at all"
    spelt = ["<s>", "a", "caf", "e", "is", "not", "a", "cafe", "at", "all", "</s>"]
    found = heed.explain(model, text, Imported.arrays("mine", [text], [np.arange(11.0)], [spelt]))
    assert found.scores.tolist() == [1, 5, 4, 5, 6, 7, 8, 9]
    with pytest.raises(InputError, match="'cafe' does not follow"):
        Imported.arrays("mine", [text], [[1.0, 2.0, 3.0]], [["a", "cafe", "cafe"]])
    unknown = heed.explain(
        model,
        text,
        Imported.arrays("mine", [text], [np.arange(4.0)], [["a", "[UNK]", "is", "not"]]),
    )
    assert unknown.scores.tolist() == [0, 0, 2, 3, 0, 0, 0, 0]  # [UNK] stands for any word


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        ((0, 4), "pair"),
        ((0, 4, 2), "no characters"),
        ((-3, 2, 0), "no characters"),
        ((0, 99, 1), "no characters"),
    ],
)
def test_characters_that_a_text_does_not_have_are_refused(
    piece: tuple[int, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        Imported.arrays("mine", [("a good film", "a bad plot")], [[1.0]], [[piece]])


def test_one_explanation_is_saved_and_swapped_arguments_are_refused(
    model: SingleLayer, tmp_path: Path
) -> None:
    e, path = heed.explain(model, TEXTS[0], "occlusion"), tmp_path / "e.parquet"
    heed.save_explanations(e, path)
    assert [x.to_dict() for x in heed.load_explanations(path)] == [e.to_dict()]
    for swapped in ((path, e), ("e.json", [e]), ([e], None), ([1], path)):
        with pytest.raises(InputError, match="explanations first, and then the name of a file"):
            heed.save_explanations(*swapped)


@pytest.mark.parametrize("score", [np.nan, np.inf, 1e101])
def test_a_score_that_is_no_number_is_named(score: float) -> None:
    with pytest.raises(InputError, match=r"mine: score 2 of 3 is .*: it must be finite"):
        Imported.arrays("mine", ["a good film"], [[0.0, score, 1.0]])


def test_labels_by_name_index_or_capitals_and_both_labels_of_a_text(model: SingleLayer) -> None:
    label = heed.explain(model, TEXTS[0], "occlusion").label
    for own in (label, label.upper(), model.label(label)):
        heed.explain(
            model, TEXTS[0], Imported.arrays("mine", [TEXTS[0]], [np.arange(7.0)], label=own)
        )
    rows = [
        Imported.arrays("x", [TEXTS[0]], [np.full(7, i + 1.0)], label=i)
        for i in range(len(model.labels))
    ]
    both = Imported("mine", True, [r for b in rows for some in b._records().values() for r in some])
    for i, name in enumerate(model.labels):
        assert heed.explain(model, TEXTS[0], both, name).scores[0] == i + 1
    with pytest.raises(InputError, match="twice"):
        Imported.arrays("mine", [TEXTS[0], TEXTS[0]], [np.arange(7.0)] * 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scores": [[1.0, 2.0]]}, "7 pieces but 2 scores"),
        ({"scores": [np.ones((7, 4))]}, "needs one number"),
        ({"scores": [[np.nan] * 7]}, "score 1 of 7 is nan"),
        ({"scores": []}, "1 texts"),
        ({"name": " "}, "name of their own"),
        ({"name": "occlusion"}, "name of their own"),
        ({"texts": [], "scores": []}, "holds no explanation"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Imported.arrays(
            **({"name": "mine", "texts": [TEXTS[0]], "scores": [np.arange(7.0)]} | change)
        )


def test_another_text_label_or_model_is_refused(model: SingleLayer, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="has no explanation of the text that begins with “another"
    ):
        heed.explain(model, "another text", Imported.arrays("mine", [TEXTS[0]], [np.arange(7.0)]))
    label = heed.explain(model, TEXTS[0], "occlusion").label
    (other,) = {*model.labels} - {label}
    with pytest.raises(InputError, match=f"explains '{other}'"):
        heed.explain(
            model, TEXTS[0], Imported.arrays("mine", [TEXTS[0]], [np.arange(7.0)], label=other)
        )
    row = heed.explain(model, TEXTS[0], "occlusion").to_dict() | {"revision": "elsewhere"}
    (tmp_path / "mine.json").write_text(json.dumps([row]), encoding="utf8")
    with pytest.raises(InputError, match="another model"):
        heed.explain(model, TEXTS[0], Imported.read(tmp_path / "mine.json")[0])


# Files


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    "method", ["occlusion", "lime-exact"]
)  # each word for itself, and repeated words together
def test_heeds_own_explanations_come_back_as_they_were(
    model: SingleLayer, ending: str, method: str, tmp_path: Path
) -> None:
    own = heed.explain(model, TEXTS, method)
    path = tmp_path / f"mine{ending}"
    heed.save_explanations(own, path)
    assert [e.to_dict() for e in heed.load_explanations(path)] == [e.to_dict() for e in own]
    (imported,) = Imported.read(path)
    assert imported.name == "mine"
    for e, other in zip(own, heed.explain(model, TEXTS, imported), strict=True):
        assert e.units == other.units and e.label == other.label
        np.testing.assert_allclose(e.scores, other.scores, atol=1e-12)


@pytest.mark.parametrize("ending", [".json", ".parquet"])
def test_a_file_of_plain_rows(model: SingleLayer, ending: str, tmp_path: Path) -> None:
    rows = [
        {"text": t, "scores": [float(i) for i in range(len(t.split()))], "id": str(i)}
        for i, t in enumerate(TEXTS)
    ]
    path = tmp_path / f"mine{ending}"
    if ending == ".json":
        path.write_text(json.dumps(rows), encoding="utf8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    (imported,) = Imported.read(path)
    assert [d.id for d in imported.documents] == ["0", "1", "2"]
    assert scored(model, imported)["plot"] == 6


def test_several_methods_in_one_file(model: SingleLayer, tmp_path: Path) -> None:
    rows = [heed.explain(model, TEXTS[0], m).to_dict() for m in ("occlusion", "gradient-input")]
    (tmp_path / "two.json").write_text(json.dumps(rows), encoding="utf8")
    assert [b.name for b in Imported.read(tmp_path / "two.json")] == [
        "two:occlusion",
        "two:gradient-input",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "[1]",
        "{",
        '{"text": "a film"}',
        '{"text": 5, "scores": [1]}',
        '{"text": "a", "scores": ["x"]}',
    ],
)
def test_a_file_that_holds_something_else_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(text, encoding="utf8")
    with pytest.raises(DataError, match=r"mine\.json"):
        Imported.read(tmp_path / "mine.json")


def test_a_file_called_like_a_method_keeps_its_ending(model: SingleLayer, tmp_path: Path) -> None:
    heed.save_explanations([heed.explain(model, TEXTS[0], "gradient-l2")], tmp_path / "lime.json")
    (imported,) = Imported.read(tmp_path / "lime.json")
    assert imported.name == "lime.json" and not imported.signed
    heed.save_explanations([heed.explain(model, "good", "occlusion")], tmp_path / "one.json")
    (imported,) = Imported.read(tmp_path / "one.json")
    assert imported.signed  # as the file says, whatever its scores


def test_scores_that_are_no_numbers_are_refused(model: SingleLayer, tmp_path: Path) -> None:
    row = heed.explain(model, TEXTS[0], "occlusion").to_dict()
    row["scores"][0] = None
    (tmp_path / "mine.json").write_text(json.dumps([row]), encoding="utf8")
    with pytest.raises(DataError, match=r"mine\.json, entry 1: .*scores"):
        Imported.read(tmp_path / "mine.json")
    row["scores"][0] = float("inf")
    (tmp_path / "mine.json").write_text(json.dumps([row]), encoding="utf8")
    with pytest.raises(DataError, match="finite"):
        Imported.read(tmp_path / "mine.json")


def test_explanations_go_to_files_that_can_be_written(model: SingleLayer, tmp_path: Path) -> None:
    own = [heed.explain(model, TEXTS[0], "occlusion")]
    for path in (tmp_path / "mine.txt", tmp_path / "no-folder" / "mine.json"):
        with pytest.raises(OutputError):
            heed.save_explanations(own, path)
    (tmp_path / "other.jsonl").write_text('{"text": "a film"}', encoding="utf8")
    with pytest.raises(DataError, match=r"other\.jsonl, line 1"):
        heed.load_explanations(tmp_path / "other.jsonl")


# The peers


def test_lime_from_its_package(model: SingleLayer) -> None:
    lime_text = pytest.importorskip("lime.lime_text")
    method = lime_text.LimeTextExplainer(class_names=list(model.labels), random_state=0, bow=True)
    found = [
        method.explain_instance(t, lambda some: model.predict(some), num_samples=200)
        for t in TEXTS[:2]
    ]
    imported = Imported.lime(found)
    for e, text in zip(found, TEXTS, strict=False):
        own = heed.explain(model, text, imported)
        sign = 1 if model.predict([text])[0].argmax() == 1 else -1
        for word, weight in e.as_list():
            (score,) = (
                s for u, s in zip(own.units, own.scores.tolist(), strict=True) if u.text == word
            )
            assert score == pytest.approx(sign * weight)


def test_labels_of_lime_that_do_not_exclude_each_other_have_no_opposite(model: SingleLayer) -> None:
    lime_text = pytest.importorskip("lime.lime_text")
    method = lime_text.LimeTextExplainer(random_state=0)

    def classify(texts: list[str]) -> np.ndarray:
        return np.array([[0.9, 0.8] if "good" in t else [0.5, 0.4] for t in texts])

    found = method.explain_instance(
        TEXTS[0], classify, num_samples=100
    )  # of the second label alone
    assert [r.label for some in Imported.lime([found])._records().values() for r in some] == [1]


def test_shap_from_its_package(model: SingleLayer) -> None:
    shap = pytest.importorskip("shap")
    method = shap.Explainer(
        lambda some: model.predict([str(t) for t in some]), shap.maskers.Text(r"\W+")
    )
    values = method(TEXTS[:2], max_evals=80, silent=True)
    imported = Imported.shap(values)
    for i, text in enumerate(TEXTS[:2]):
        e = heed.explain(model, text, imported)
        label = model.label(e.label)
        np.testing.assert_allclose(e.scores.sum(), values.values[i][:, label].sum(), atol=1e-6)
        whole, nothing = model.predict([text])[0][label], values.base_values[i][label]
        np.testing.assert_allclose(e.scores.sum(), whole - nothing, atol=1e-5)


def test_captum_by_its_arrays(model: SingleLayer) -> None:
    attr = pytest.importorskip("captum.attr")
    (tokens,) = model.tokens([TEXTS[0]])
    e = heed.explain(model, TEXTS[0], "gradient-input", output="logit")
    label = model.label(e.label)
    forward = lambda x: model.trace([tokens], embeddings=x).logits  # noqa: E731
    embedded = model.embeddings([tokens])
    given = attr.InputXGradient(forward).attribute(embedded.requires_grad_(), target=label)
    rows = given.sum(-1)[0, : len(tokens)].detach().numpy()
    imported = Imported.arrays("captum", [TEXTS[0]], [rows], [tokens.spans.tolist()])
    np.testing.assert_allclose(heed.explain(model, TEXTS[0], imported).scores, e.scores, atol=1e-5)


# Audits


def test_what_is_brought_is_judged_beside_our_own(model: SingleLayer, tmp_path: Path) -> None:
    documents = heed.data.tasks.generate("reviews", 40, 3)
    own = heed.explain(model, list(documents), "occlusion", output="probability")
    pieces = [[(s, t, u.segment) for u in e.units for s, t in u.spans] for e in own]
    imported = Imported.arrays("mine", list(documents), [e.scores for e in own], pieces)
    found = heed.audit(
        model,
        documents,
        ["removes", "sensitive", "used"],
        [Occlusion(output="probability"), imported],
        examples=200,
    )
    verdicts = {(v.claim.id, v.method): v for v in found.verdicts}
    assert list(verdicts) == [
        ("used", "occlusion"),
        ("removes", "occlusion"),
        ("removes", "mine"),
        ("sensitive", "occlusion"),
        ("sensitive", "mine"),
    ]
    assert verdicts["removes", "mine"].mean == pytest.approx(verdicts["removes", "occlusion"].mean)
    assert "was imported" in verdicts["sensitive", "mine"].reason
    assert verdicts["removes", "mine"].sentence.startswith("Removing what mine points to")
    assert {e.method for e in found.examples[0].explanations} >= {"occlusion", "mine"}
    first = {e.method: e for e in found.examples[0].explanations}
    np.testing.assert_allclose(*aligned([first["occlusion"], first["mine"]]), atol=1e-12)
    partial = Imported.arrays(
        "partial", list(documents)[:39], [e.scores for e in own][:39], pieces[:39]
    )
    facts = heed.audit(model, documents, ["removes"], partial).facts
    assert facts["documents"] == 39
    assert facts["unfit"] == "1 of 40 documents have no scores in partial"
    with pytest.raises(InputError, match="called occlusion"):
        heed.audit(model, documents, ["removes"], ["occlusion", Occlusion(output="probability")])
