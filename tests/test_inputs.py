"""What people hold is read as documents: texts, lists, tables, data sets; the rest is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
import tokenizers

import heed
from heed.data import Dataset, documents
from heed.errors import DataError, HeedError, InputError
from heed.methods.method import _unknown_note
from heed.models.classifier import NO_PAIRS
from heed.models.single_layer import SingleLayer
from heed.progress import Listener, listening
from heed.text import Document, Span, Tokenizer
from tests.test_cli import command as run

TEXTS = ["good film", "bad plot", "the music was fine"]


class Remarks(list[str], Listener):
    def say(self, line: str) -> None:
        self.append(line)


class HubSet:
    """Stands in for a data set of `datasets`: names of columns, and rows one after the other."""

    def __init__(self, rows: list[dict[str, Any]], names: list[str] | None = None):
        self.rows = rows
        self.column_names = list(rows[0])
        self.features = {"text": SimpleNamespace(), "label": SimpleNamespace(names=names)}

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


@pytest.fixture
def single(model: SingleLayer) -> SingleLayer:
    """A model that never saw pairs."""
    return SingleLayer(model.network, model.tokenizer, model.labels)


ROWS: list[dict[str, Any]] = [{"text": t, "label": i % 2} for i, t in enumerate(TEXTS)]


@pytest.mark.parametrize(
    "value",
    [
        TEXTS,
        np.array(TEXTS),
        iter(TEXTS),
        [Document(t) for t in TEXTS],
        tuple(Document(t) for t in TEXTS),
        pandas.Series(TEXTS, index=[7, 8, 9], name="body"),
        pandas.DataFrame({"label": [0, 1, 0], "text": TEXTS}),
        ROWS,
        tuple(ROWS),
        HubSet(ROWS),
        Dataset("mine", "test", tuple(Document(t) for t in TEXTS), (), "", ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_holds_texts_is_read_alike(single: SingleLayer, value: Any) -> None:
    explanations = heed.explain(single, value, "occlusion")
    assert isinstance(explanations, list)
    assert [e.document.text for e in explanations] == TEXTS


@pytest.mark.parametrize(
    "table", [pandas.DataFrame(ROWS), ROWS, HubSet(ROWS)], ids=["DataFrame", "dicts", "hub"]
)
def test_models_and_audits_take_tables(single: SingleLayer, table: Any) -> None:
    np.testing.assert_array_equal(single(table), single(TEXTS))
    np.testing.assert_array_equal(single.predict(table), single.predict(TEXTS))
    found = heed.audit(single, table, ["used"], examples=0)
    right = single(TEXTS).argmax(1) == [0, 1, 0]
    assert found.facts["documents"] == 3 and found.facts["accuracy"] == pytest.approx(right.mean())
    assert [row["id"] for row in found.evidence[0].rows] == ["1", "2", "3"]


def test_columns_of_other_names(single: SingleLayer) -> None:
    names = [single.labels[int(i)] for i in single(TEXTS).argmax(1)]
    frame = pandas.DataFrame({"body": TEXTS, "stars": names, "text ": "x"})
    columns = {"text": "body", "label": "stars"}
    assert heed.audit(single, frame, ["used"], examples=0, columns=columns).facts["accuracy"] == 1
    explanations = heed.explain(single, frame, "occlusion", columns=columns)
    assert [e.document.text for e in explanations] == TEXTS
    np.testing.assert_array_equal(single.predict(frame, columns), single.predict(TEXTS))
    for call in (heed.explain, heed.audit, lambda model, table: model.predict(table)):
        with pytest.raises(DataError, match="no column 'text'; the columns are body, stars"):
            call(single, frame)
    with pytest.raises(DataError, match="no column 'mark'"):
        heed.audit(single, frame, columns=columns | {"label": "mark"})
    with pytest.raises(InputError, match="columns are those of a table"):
        heed.explain(single, TEXTS, columns=columns)


def test_a_column_is_read_once() -> None:
    with pytest.raises(DataError, match="One column cannot be read as two: body, body"):
        documents([{"body": "a b"}], columns={"text": "body", "label": "body"})
    with pytest.raises(DataError, match=r"^The table: either every row has a label or none has"):
        documents([{"text": "good", "label": "x"}, {"text": "bad"}])
    rows = [{"pair": "good film", "id": "x"}, {"pair": "bad film", "id": "y"}]
    read = documents(rows, columns={"text": "pair", "label": "id"})
    assert [(d.text, d.pair, d.label, d.id) for d in read] == [
        ("good film", None, 0, "1"),
        ("bad film", None, 1, "2"),
    ]


@pytest.mark.parametrize("columns", [{}, {"text": "body"}], ids=["text", "body"])
def test_a_row_of_a_table_is_one_text(single: SingleLayer, columns: dict[str, str]) -> None:
    table = pandas.DataFrame({columns.get("text", "text"): TEXTS, "label": "x"})
    (read,) = documents(table.iloc[1], columns)
    assert (read.text, read.label) == (TEXTS[1], 0)
    assert [d.text for d in documents(np.array(TEXTS[1]))] == [TEXTS[1]]
    if not columns:
        (explanation,) = heed.explain(single, table.iloc[1], "occlusion")
        assert explanation.document.text == TEXTS[1]


def test_all_columns_of_a_table() -> None:
    rows = [
        {"id": 7, "text": "good film", "pair": "bad plot", "label": "b", "rationale": [[0, 1]]},
        {"id": None, "text": "fine", "pair": "slow", "label": "a", "rationale": None},
    ]
    expected = (
        Document("good film", "bad plot", "7", 1, (Span(0, 4),)),
        Document("fine", "slow", "2", 0),
    )
    frame = pandas.DataFrame(rows).astype({"id": "Int64"})
    for table in (rows, frame, HubSet(rows)):
        dataset = documents(table)
        assert dataset.documents == expected and dataset.labels == ("a", "b")


@pytest.mark.parametrize(
    ("labels", "names", "gold"),
    [
        ([1, 1, 1], ("0", "1"), [1, 1, 1]),
        ([np.int64(0), np.int64(2), np.int64(0)], ("0", "1", "2"), [0, 2, 0]),
        ([1.0, 0.0, 1.0], ("0", "1"), [1, 0, 1]),
        ([np.True_, np.False_, np.True_], ("false", "true"), [1, 0, 1]),
        (["pos", "neg", "pos"], ("neg", "pos"), [1, 0, 1]),
    ],
)
def test_labels_are_numbers_or_names(labels: Any, names: tuple[str, ...], gold: list[int]) -> None:
    for table in (
        pandas.DataFrame({"text": TEXTS, "label": labels}),
        [{"text": t, "label": y} for t, y in zip(TEXTS, labels, strict=True)],
    ):
        dataset = documents(table)
        assert dataset.labels == names and dataset.gold.tolist() == gold


def test_label_names_of_a_hub_set(single: SingleLayer) -> None:
    swapped = HubSet(ROWS, names=list(reversed(single.labels)))
    assert documents(swapped).labels == tuple(reversed(single.labels))
    wrong = single(TEXTS).argmax(1) == [1, 0, 1]
    found = heed.audit(single, swapped, ["used"], examples=0)
    assert found.facts["accuracy"] == pytest.approx(wrong.mean())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"text": TEXTS}, "Row 1: the column 'text' must hold a text"),
        ({TEXTS[0]}, "must be a string, a heed.Document, or a list or table of these, got set"),
        (b"good film", "got bytes"),
        (3, "got int"),
        (None, "got NoneType"),
        ([b"good"], "must be a string or a pair of strings, got bytes"),
        ([3], "must be a string or a pair of strings, got int"),
        ([("good film", 1)], "give texts with their labels as rows such as"),
        ([("good film", "positive")], "heed.Document(text, pair) if it should read both"),
        (("good film", "positive"), "heed.Document(text, pair) if it should read both"),
        ([{"text": "good"}, "bad"], "Row 2 must be a dict like the others, got str"),
        ([{"body": "good"}], "Row 1: there is no column 'text'"),
        ([{"text": 3}], "Row 1: the column 'text' must hold a text, got 3"),
        (pandas.DataFrame([["a", "b"]], columns=["text", "text"]), "has 2 columns 'text': rename"),
        (np.array(3), "got int"),
        (np.array([["good"], ["bad"]]), "must be a string or a pair of strings, got ndarray"),
    ],
    ids=str,
)
def test_everything_else_is_refused(single: SingleLayer, value: Any, message: str) -> None:
    for call in (heed.explain, heed.audit):
        with pytest.raises(HeedError) as caught:
            call(single, value)
        said = str(caught.value)
        assert message in said or (call is heed.audit and "got one text" in said)
        assert "\n" not in said and len(said) < 400


def test_labels_of_a_table_are_checked_where_they_are_read(single: SingleLayer) -> None:
    frame = pandas.DataFrame({"text": TEXTS, "label": [0, None, 1]})
    assert len(heed.explain(single, frame, "occlusion")) == 3
    assert len(single.predict(frame)) == 3
    with pytest.raises(DataError, match="Row 2: the label is missing"):
        heed.audit(single, frame)
    with pytest.raises(DataError, match="either every row has a label or none has"):
        documents([{"text": "a", "label": 0}, {"text": "b"}])


def test_a_tuple_is_a_pair_where_the_model_may_read_pairs(model: SingleLayer) -> None:
    pair = ("good film", "bad plot")
    assert heed.explain(model, pair, "occlusion").document == Document(*pair)
    assert [e.document for e in heed.explain(model, [pair, "fine"], "occlusion")] == [
        Document(*pair),
        Document("fine"),
    ]

    def function(texts: list[Any]) -> list[list[float]]:
        return [[0.2, 0.8] if isinstance(text, tuple) else [0.8, 0.2] for text in texts]

    assert heed.explain(function, pair, "occlusion").label == "1"
    assert heed.compare(model, pair, ["occlusion"]).explanations[0].document == Document(*pair)


def test_one_text_is_not_a_list(model: SingleLayer) -> None:
    for text in ("good film", Document("good film"), ("good film", "bad plot")):
        with pytest.raises(InputError, match="put it into a list"):
            model(text)
        with pytest.raises(InputError, match="got one text"):
            heed.audit(model, text)
    for several in (TEXTS, pandas.Series(TEXTS), pandas.DataFrame({"text": TEXTS})):
        with pytest.raises(InputError, match="compare takes one text"):
            heed.compare(model, several)


BLANK: list[Any] = ["good film", "", " \n", None, float("nan"), "bad plot"]


@pytest.mark.parametrize(
    "wrap",
    [
        list,
        pandas.Series,
        lambda texts: pandas.DataFrame({"text": texts}),
        lambda texts: pandas.DataFrame({"text": pandas.array(texts, dtype="string")}),
        lambda texts: [{"text": text} for text in texts],
    ],
    ids=["list", "Series", "DataFrame", "NA", "dicts"],
)
def test_blank_texts_are_left_out_and_counted(
    single: SingleLayer, wrap: Callable[[list[Any]], Any]
) -> None:
    remarks = Remarks()
    with listening(remarks):
        found = heed.audit(single, wrap(BLANK), ["used"], examples=0)
    assert (found.facts["documents"], found.facts["left_out"]) == (2, 4)
    assert "4 blank texts left out" in remarks
    for i in range(1, 5):
        with pytest.raises(HeedError, match=r"^(Text 2 of 3|Row 2)"):
            heed.explain(single, wrap(["good film", BLANK[i], "bad plot"]), "occlusion")


def test_blank_texts_of_a_file_count_in_an_audit(single: SingleLayer, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text;label\ngood film;1\n ;0\nbad plot;0\n")
    found = heed.audit(single, heed.data.load(path), ["used"], examples=0)
    assert (found.facts["documents"], found.facts["left_out"]) == (2, 1)
    blank = Dataset("mine", "all", (Document("good"), Document(" ")), (), "", "")
    assert heed.audit(single, blank, ["used"], examples=0).facts["left_out"] == 1


def test_a_blank_text_still_has_a_prediction(single: SingleLayer) -> None:
    assert single.predict(["good", ""]).shape == (2, 2)
    with pytest.raises(InputError, match="Text 2 of 2 is missing"):
        single.predict(["good", None])


def test_pairs_for_a_model_that_never_saw_pairs_are_remarked(
    model: SingleLayer, single: SingleLayer
) -> None:
    pair = Document("good film", "bad plot")
    for classifier, expected in ((single, [NO_PAIRS]), (model, [])):
        for call in (
            lambda m: heed.explain(m, pair, "occlusion"),
            lambda m: heed.compare(m, pair, ["occlusion", "random"]),
            lambda m: heed.audit(m, [pair, pair], ["used"], examples=0),
            lambda m: m.predict([pair]),
        ):
            remarks = Remarks()
            with listening(remarks):
                call(classifier)
            assert remarks == expected


def test_the_note_on_unknown_words_names_the_token_of_the_model() -> None:
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "good": 1}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    (tokens,) = Tokenizer(backend, 10, unknown=0)([Document("good zyzzyva film")])
    assert _unknown_note(tokens) == (
        "2 words are unknown to the model, which reads [UNK] instead: 'zyzzyva', 'film'.",
    )


# The command line


def test_columns_are_named_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "my reviews.csv"
    rows = "".join(f"{i};the film was {'good' if i % 2 else 'bad'};{i % 2}\n" for i in range(20))
    path.write_text(f"nr;body;stars\n{rows}20; ;1\n")
    words = ("audit", "--data", str(path), "--claim", "used")
    columns = ("--text-column", "body", "--label-column", "stars")
    done = run(*words, *columns)
    assert done.code == 0 and "20 documents · 1 left out" in done.out and "accuracy" in done.out
    refused = run(*words)
    assert refused.code == 2 and "--text-column" in refused.err and refused.err.count("\n") == 1
    refused = run("audit", "--data", "task:reviews", *columns)
    assert refused.code == 2 and "task:reviews is generated" in refused.err
    model = ("train", "single-layer", "--data", str(path), "-o", str(tmp_path / "model"))
    sizes = ("--set", "epochs=1", "--set", "d_e=8", "--set", "heads=1")
    assert run(*model, *columns, *sizes).code == 0
    refused = run(*model, "--pair-column", "answer", *columns)
    assert refused.code == 2 and "there is no column 'answer'" in refused.err
