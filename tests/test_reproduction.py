"""Reproductions of papers: what they leave in their folder, and how that is drawn."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from test_cli import command as heed
from test_cli import refused
from test_report import HOSTILE, check_safe, explanation, flat, printed

from heed import data
from heed.data import Dataset
from heed.errors import DataError, InputError
from heed.papers import PAPERS, Figure, Lab, Outcome, Paper, Result, Section, run
from heed.papers.folder import read_sections, write_section
from heed.papers.lab import Experiment
from heed.report import charts, figures, reproduction, terminal
from heed.report.numbers import duration, short
from heed.report.panels import POINTS, panels
from heed.report.results import ours, published

FIELDS = {
    "experiment",
    "dataset",
    "model",
    "metric",
    "ours",
    "low",
    "high",
    "n",
    "published",
    "note",
}
METHODS = ("attention", "lime", "gradient × input")
MODELS = ("paper-0", "paper-1")


def dots(panel: bool = True) -> Figure:
    rows = [
        {
            "method": m,
            "value": 0.1 * i - 0.1,
            "low": 0.1 * i - 0.2,
            "high": 0.1 * i,
            "model": model,
            "panel.of[x]": p,
        }
        for i, m in enumerate(METHODS)
        for model in MODELS
        for p in ("within: documents", "over documents")
    ]
    return Figure(
        "dots",
        "Dots",
        "dots",
        rows,
        "value",
        "method",
        colour="model",
        panel="panel.of[x]" if panel else "",
    )


def points(n: int = 60) -> Figure:
    rows = [{"T": i, "τ": np.sin(i), "model": MODELS[i % 2]} for i in range(n)]
    return Figure("points", "Points", "points", rows, "T", "τ", colour="model")


def lines() -> Figure:
    rows = [
        {"layers": n, "value": n / 8, "low": n / 8 - 0.1, "high": n / 8 + 0.1, "block": b}
        for n in (1, 2, 4)
        for b in ("skip", "gelu")
    ]
    return Figure("lines", "Lines", "lines", rows, "layers", "value", colour="block")


def bars() -> Figure:
    rows = [{"word": w, "count": i - 1.5} for i, w in enumerate(("the", "film", "good"))]
    return Figure("bars", "Bars", "bars", rows, "word", "count")


def heat(low: float = -1.0) -> Figure:
    rows = [
        {"one": a, "other": b, "tau": max(low, np.cos(len(a + b)))}
        for a in METHODS
        for b in METHODS
    ]
    return Figure("heat", "Heat", "heat", rows, "one", "other", value="tau")


def boxes() -> Figure:
    rows = [
        {"word": w, "score": s / 10 + i}
        for i, w in enumerate(("great", "bad"))
        for s in (0, 1, 2, 3, 30)
    ]
    marks = [
        {"x": w, "y": i + 0.2, "mark": mark}
        for mark in ("theorem, 3/2", "theorem, 1", "exact")
        for i, w in enumerate(("great", "bad"))
    ]
    return Figure(
        "boxes", "Boxes", "boxes", rows, "word", "score", marks=marks, caption="Two words."
    )


ALL: dict[str, tuple[Callable[[], Figure], tuple[str, ...]]] = {
    "dots": (dots, (*METHODS, *MODELS, "within: documents", "over documents")),
    "points": (points, (*MODELS, "T", "τ")),
    "lines": (lines, ("skip", "gelu", "layers", "block")),
    "bars": (bars, ("the", "film", "good", "-1.500", "count")),
    "heat": (heat, (*METHODS, "tau")),
    "boxes": (boxes, ("great", "bad", "score", "theorem, 3/2", "theorem, 1", "exact")),
}


def results(name: str = "first") -> list[Result]:
    common = (name, "reviews", "single-layer-imdb")
    return [
        Result(
            *common, "Kendall τ of <unk> | all", 0.5, 0.4, 0.6, 40, 0.602, "It is near the paper's."
        ),
        Result(
            *common,
            "error of the closed form",
            1e-13,
            n=40,
            published="none",
            note="It is near the paper's.",
        ),
        Result(*common, "words", 3.0, n=1),
        Result(*common, "nothing"),
    ]


def section(name: str = "first", every: bool = True) -> Section:
    drawn = [make() for make, _ in ALL.values()] if every else []
    shaded = [explanation().to_dict(), explanation(method="attention-mean", signed=False).to_dict()]
    facts = {
        "paper": "fake-2020",
        "scale": "smoke",
        "model": None,
        "seed": 0,
        "seconds": 12.34,
        "heed": "0.1",
    }
    outcome = Outcome(results(name), drawn, {"documents": [{"document": 0, "tau": 0.5}]}, shaded)
    return Section(name, f"The {name} one", "Does it hold?", outcome, facts)


class Counted:
    """An experiment that counts how often it is run."""

    def __init__(self, name: str):
        self.name, self.times = name, 0

    def __call__(self, lab: Lab) -> Outcome:
        self.times += 1
        rows = {"runs": [{"times": self.times}]}
        return Outcome([replace(r, n=self.times) for r in results(self.name)], [bars()], rows)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counted]:
    """A paper of two experiments; the first by its place is the last by its name."""
    monkeypatch.delenv("HEED_DATA", raising=False)  # few reviews are enough, and read at once
    runs = {name: Counted(name) for name in ("second", "first")}
    experiments = tuple(Experiment(n, f"The {n} one", "Does it hold?", r) for n, r in runs.items())
    monkeypatch.setitem(PAPERS, "fake-2020", Paper("A fake paper", "lopardo2024", experiments))
    return runs


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts(svg: str) -> str:
    return " ".join(re.findall(r">([^<>]+)<", svg))


# Figures


@pytest.mark.parametrize("kind", ALL)
def test_a_figure_names_its_categories_series_and_axes(kind: str) -> None:
    make, names = ALL[kind]
    drawn = texts(charts.svg(figures.figure(make())))
    for name in names:
        assert name.replace("-1.5", "−1.5") in drawn.replace("-1.5", "−1.5")


@pytest.mark.parametrize("kind", ALL)
def test_a_saved_figure_has_its_title(kind: str, tmp_path: Path) -> None:
    f = ALL[kind][0]()
    for ending in ("svg", "png"):
        charts.save(figures.titled(f), tmp_path / f"figure.{ending}")
    assert f.title in (tmp_path / "figure.svg").read_text(encoding="utf8")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ALL)
def test_hostile_names_and_texts_are_drawn_as_text(kind: str) -> None:
    f = ALL[kind][0]()
    nasty = f"{HOSTILE}</svg><script>\x07\u202e\u2028"

    def spoil(row: dict) -> dict:
        return {
            f"{k}{nasty}" if k not in ("low", "high") else k: f"{v}{nasty}"
            if isinstance(v, str)
            else v
            for k, v in row.items()
        }

    columns = {
        c: f"{getattr(f, c)}{nasty}"
        for c in ("x", "y", "value", "colour", "panel")
        if getattr(f, c)
    }
    marks = [m | {"x": f"{m['x']}{nasty}", "mark": f"{m['mark']}{nasty}"} for m in f.marks]
    spoilt = replace(
        f, data=[spoil(r) for r in f.data], marks=marks, title=nasty, caption=nasty, **columns
    )
    for chart in (figures.figure(spoilt), figures.titled(spoilt)):
        svg = charts.svg(chart)
        assert "<script" not in svg and "<img" not in svg and "&lt;" in svg
        assert not set("\x1b\x00\x07\u202e") & set(svg)
        assert svg.count("</svg>") == 1


@pytest.mark.parametrize("kind", ALL)
def test_rows_without_a_number_are_left_out(kind: str) -> None:
    f = ALL[kind][0]()
    (number,) = [f.value] if f.value else [f.x] if kind == "dots" else [f.y]
    holes = [
        r | {number: hole}
        for r, hole in zip(f.data, (None, float("nan"), float("inf"), "x"), strict=False)
    ]
    assert charts.svg(figures.figure(replace(f, data=[*f.data, *holes]))) == charts.svg(
        figures.figure(f)
    )
    empty = replace(f, data=holes)
    assert not panels(empty)
    with pytest.raises(InputError, match="nothing to draw"):
        figures.figure(empty)


def test_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(InputError, match="'pie'"):
        figures.figure(replace(bars(), kind="pie"))  # type: ignore[arg-type]


def test_categories_stand_in_the_order_of_the_rows() -> None:
    (panel,) = panels(
        replace(bars(), data=[{"word": w, "count": 1.0} for w in ("zebra", "ape", "mole", "ape")])
    )
    assert panel.names["down"] == ["zebra", "ape", "mole"]


def test_a_matrix_has_its_names_in_one_order() -> None:
    rows = [
        {"one": a, "other": b, "tau": 0.5}
        for a, b in (("b", "a"), ("a", "b"), ("a", "a"), ("b", "b"))
    ]
    (panel,) = panels(replace(heat(), data=rows))
    assert panel.names["across"] == panel.names["down"] == ["a", "b"]


def test_few_whole_numbers_are_the_ticks() -> None:
    ticks = re.findall(
        r">(\d)<", charts.svg(figures.figure(replace(lines(), data=lines().data[:4])))
    )
    assert ticks.count("1") == ticks.count("2") == 1


def test_long_names_stay_apart() -> None:
    long = "x" * 100
    (panel,) = panels(replace(bars(), data=[{"word": long + end, "count": 1.0} for end in "ab"]))
    one, two = panel.names["down"]
    assert one != two and max(len(one), len(two)) < 70


def test_panels_of_like_quantities_share_an_axis_and_others_do_not() -> None:
    def spans(factor: float) -> list[tuple[float, float]]:
        rows = [
            {"m": m, "v": v * (factor if p == "b" else 1), "p": p}
            for p in "ab"
            for m, v in (("x", 0), ("y", 1))
        ]
        return [
            p.spans["number"] for p in panels(Figure("f", "F", "dots", rows, "v", "m", panel="p"))
        ]

    assert spans(2.0) == [(0, 2), (0, 2)]
    assert spans(100.0) == [(0, 1), (0, 100)]


def test_series_differ_by_more_than_colour() -> None:
    drawn = json.dumps(figures.figure(lines()).to_dict())
    assert '"shape"' in drawn and '"strokeDash"' in drawn
    assert '"shape"' in json.dumps(figures.figure(dots()).to_dict())


def test_heat_maps_have_two_colours_for_two_signs_and_numbers_in_few_cells() -> None:
    def ends(f: Figure) -> int:
        (cells, *_) = figures.figure(f).to_dict()["layer"]
        return len(cells["encoding"]["color"]["scale"]["range"])

    assert ends(heat()) == 3
    assert ends(heat(low=0.0)) == 2
    assert "1.00" in texts(
        charts.svg(figures.figure(replace(heat(), data=[{"one": "a", "other": "b", "tau": 1.004}])))
    )
    of_two = [
        {"one": "a", "other": "b", "tau": x, "of": of}
        for x, of in ((0.0, "nothing"), (9.0, "something"))
    ]
    assert {p.spans["number"] for p in panels(replace(heat(), data=of_two, panel="of"))} == {
        (0.0, 9.0)
    }
    many = [
        {"one": f"w{i}", "other": f"v{j}", "tau": i / j} for i in range(1, 15) for j in range(1, 15)
    ]
    assert len(figures.figure(replace(heat(), data=many)).to_dict()["layer"]) == 1


def test_a_large_scatter_is_thinned_and_says_so() -> None:
    f = points(2 * POINTS)
    assert [len(p.rows) for p in panels(f)] == [POINTS]
    assert figures.caption(f) == "One in 2 of the 6,000 points is drawn."
    assert figures.caption(points()) == ""


def test_one_number_and_one_category_are_enough() -> None:
    for make, _ in ALL.values():
        assert "<svg" in charts.svg(figures.figure(replace(make(), data=make().data[:1])))


# Numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1234, "0.123"),
        (-0.5, "-0.500"),
        (1e-13, "1e-13"),
        (-3.42e-7, "-3.4e-7"),
        (0.0, "0"),
        (3.0, "3"),
        (12345.6, "12,346"),
        (471.23, "471.2"),
        (2.5e12, "2.5e12"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_numbers_have_the_digits_that_matter(value: float | None, text: str) -> None:
    assert short(value) == text


def test_our_number_and_the_published_one() -> None:
    first, second, third, none = results()
    assert (ours(first), published(first)) == ("0.500 [0.400, 0.600]", "0.602")
    assert (ours(second), published(second)) == ("1e-13", "none")
    assert (ours(third), published(third)) == ("3", "")
    assert ours(none) == "–"
    assert ours(replace(first, ours=1.0, high=1.0)) == "1.000 [0.400, 1.000]"
    assert [duration(s) for s in (1.25, 240, 9000)] == ["1.2 s", "4 min", "2.5 h"]


# The folder


def test_sections_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = section()
    write_section(tmp_path, written)
    (read,) = read_sections(tmp_path)
    assert (read.name, read.title, read.question, read.facts) == (
        written.name,
        written.title,
        written.question,
        written.facts,
    )
    assert read.outcome.results == written.outcome.results
    assert [f.name for f in read.outcome.figures] == list(ALL)
    assert charts.svg(figures.figure(read.outcome.figures[0])) == charts.svg(figures.figure(dots()))
    assert (tmp_path / "rows" / "first-documents.parquet").exists()


def test_numbers_of_numpy_and_nan_are_plain_in_the_file(tmp_path: Path) -> None:
    odd = Result(
        "e",
        "d",
        "m",
        "x",
        np.float32(0.5),
        float("nan"),
        float("inf"),
        np.int64(7),
        np.float64(0.25),
    )  # type: ignore[arg-type]
    rows = [{"a": np.int32(1), "b": np.bool_(True), "c": np.float64("nan")}]
    outcome = Outcome([odd], [replace(bars(), data=rows)])
    write_section(tmp_path, replace(section(), outcome=outcome))
    (read,) = read_sections(tmp_path)
    assert read.outcome.results == [Result("e", "d", "m", "x", 0.5, None, None, 7, 0.25)]
    assert read.outcome.figures[0].data == [{"a": 1, "b": True, "c": None}]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"facts": {}}', '{"facts": {}, "results": [{"x": 1}]}']
)
def test_a_file_that_is_no_experiment_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "first.json").write_text(content)
    with pytest.raises(DataError, match=r"first\.json"):
        read_sections(tmp_path)


def test_experiments_that_are_done_are_not_run_again_unless_asked(
    tmp_path: Path, fake: dict[str, Counted]
) -> None:
    lab = Lab("smoke", tmp_path)
    (only,) = run("fake-2020", lab, ["first"])
    assert only.name == "first" and (fake["first"].times, fake["second"].times) == (1, 0)
    both = run("fake-2020", lab)
    assert [s.name for s in both] == ["second", "first"]
    assert (fake["first"].times, fake["second"].times) == (1, 1)
    run("fake-2020", lab, ["first"], rerun=True)
    assert (fake["first"].times, fake["second"].times) == (2, 1)
    run("fake-2020", replace(lab, seed=1), ["second"])
    assert fake["second"].times == 2


def test_a_change_of_code_documents_or_seed_asks_for_another_run(
    tmp_path: Path, fake: dict[str, Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    def times(lab: Lab) -> int:
        run("fake-2020", lab, ["first"])
        return fake["first"].times

    assert times(Lab("smoke", tmp_path)) == times(Lab("smoke", tmp_path)) == 1
    with monkeypatch.context() as patch:
        patch.setattr("heed.papers.code_of", lambda module: "mended")
        assert times(Lab("smoke", tmp_path)) == times(Lab("smoke", tmp_path)) == 2
    with monkeypatch.context() as patch:
        patch.setattr(Lab, "fingerprint", "other documents")
        assert times(Lab("smoke", tmp_path)) == times(Lab("smoke", tmp_path)) == 3
    assert times(Lab("smoke", tmp_path, seed=1)) == 4
    listed = json.loads((tmp_path / "results.json").read_text(encoding="utf8"))
    assert {r["n"] for r in listed} == {4}


def test_every_document_that_an_experiment_reads_is_in_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out: list[str] = []

    def load(name: str, split: str, limit: int, seed: int = 0) -> Dataset:
        whole = data.tasks.generate("reviews", 12, seed=len(name) + len(split))
        return whole[1:] if f"{name} {split}" in left_out else whole

    def keys() -> tuple[str, str]:
        lab = Lab("full", tmp_path)
        return lab.read_by("depth"), lab.read_by("other-data")

    monkeypatch.setattr(data, "load", load)
    monkeypatch.setattr(data, "sources", lambda name, split: "folder")
    before = keys()
    for part in ("imdb train", "imdb test"):
        left_out[:] = [part]
        assert all(old != new for old, new in zip(before, keys(), strict=True))
    for name in ("sst", "ag_news", "sick"):
        for split in ("train", "test"):
            left_out[:] = [f"{name} {split}"]
            depth, other = keys()
            assert depth == before[0] and other != before[1]


def mutated(rng: np.random.Generator, text: bytes) -> bytes:
    """One file, broken: bytes changed, or a value of its JSON exchanged or taken away."""
    if rng.random() < 0.3:
        at = int(rng.integers(len(text)))
        wrong = bytes(rng.integers(0, 256, int(rng.integers(0, 4)), dtype=np.uint8))
        return text[:at] + wrong + text[at + int(rng.integers(0, 200)) :]
    body = json.loads(text)
    spots: list[tuple[Any, Any]] = []
    waiting = [body]
    while waiting:
        value = waiting.pop()
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            spots.append((value, key))
            if isinstance(part, dict | list):
                waiting.append(part)
    holder, key = spots[int(rng.integers(len(spots)))]
    wrong_values = [
        None,
        True,
        -1,
        0.5,
        1e300,
        10**400,
        "",
        HOSTILE,
        "x" * 5000,
        [],
        {},
        [[1]],
        {"a": [None]},
        [holder],
        json.loads("[" * 50 + "]" * 50),
    ]
    choice = int(rng.integers(len(wrong_values) + 1))
    if choice == len(wrong_values):
        del holder[key]
    else:
        holder[key] = json.loads(json.dumps(wrong_values[choice]))
    return json.dumps(body).encode()


def check_mutations(folder: Path, seed: int, cases: int) -> None:
    """A broken file is drawn as it is, or refused in one short sentence."""
    write_section(folder, section(every=False))
    write_section(folder, section("second"))
    path = folder / "experiments" / "second.json"
    whole = path.read_bytes()
    for case in range(cases):
        path.write_bytes(mutated(np.random.default_rng((seed, case)), whole))
        try:
            paper, sections = reproduction.load(folder)
        except DataError as error:
            said = str(error)
            assert str(path) in said and len(said) < len(str(path)) + 300 and "\n" not in said
            continue
        printed(terminal.reproduction(sections))
        if case % 10 == 0:  # drawing takes long
            reproduction.html(paper, sections)
        else:
            for f in sections[-1].outcome.figures:
                panels(f)


def test_broken_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    check_mutations(tmp_path, 0, 100)


@pytest.mark.full
def test_many_broken_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    check_mutations(tmp_path, 1, 1000)


def check_killed(folder: Path, names: tuple[str, ...], moments: list[float]) -> None:
    """A run that is killed again and again leaves a folder from which the next run goes on."""
    words = ["reproduce", "jain-wallace-2019", "-o", str(folder / "killed")]
    words += [word for name in names for word in ("--experiment", name)]
    environment = {k: v for k, v in os.environ.items() if k != "HEED_DATA"}
    environment["HEED_CACHE"] = str(folder / "cache")
    command = [sys.executable, "-m", "heed.cli", *words]
    for moment in moments:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        process.kill()
        process.wait()
        for path in (folder / "killed").rglob("*.json"):
            if not any(part.startswith(".writing-") for part in path.parts):
                json.loads(path.read_text(encoding="utf8"))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    command[command.index(str(folder / "killed"))] = str(folder / "whole")
    whole = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert whole.returncode == 0, whole.stderr
    resumed, fresh = (
        json.loads((folder / name / "results.json").read_text(encoding="utf8"))
        for name in ("killed", "whole")
    )
    assert resumed == fresh


def test_a_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    check_killed(tmp_path, ("permutation",), [5.0, 7.0])


@pytest.mark.full
def test_a_run_that_was_killed_many_times_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    check_killed(tmp_path, ("accuracy", "permutation"), (4 + 12 * rng.random(12)).tolist())


def test_results_are_one_list_with_these_fields(tmp_path: Path, fake: dict[str, Counted]) -> None:
    run("fake-2020", Lab("smoke", tmp_path))
    listed = json.loads((tmp_path / "results.json").read_text(encoding="utf8"))
    assert [r["experiment"] for r in listed] == ["second"] * 4 + ["first"] * 4
    assert all(set(r) == FIELDS for r in listed)
    assert listed[0]["ours"] == 0.5 and listed[3]["ours"] is None


# Pages and files


def test_the_page_holds_everything(fake: dict[str, Counted]) -> None:
    source = reproduction.html("fake-2020", [section("second"), section("first")])
    page = check_safe(source)
    text = " ".join(page.text.split())
    for word in (
        "A fake paper",
        "smoke",
        "The first one",
        "Does it hold?",
        "It is near the paper's.",
        "Two words.",
    ):
        assert word in text
    for word in (
        "0.500 [0.400, 0.600]",
        "0.602",
        "1e-13",
        "Kendall τ of <unk> | all",
        "run in 12.3 s",
        "fine",
    ):
        assert word in text
    assert source.count("<svg") == 2 * len(ALL)
    assert text.count("It is near the paper's.") == 2
    assert "how far the methods agree" in text


def test_pages_are_deterministic_and_need_no_published_figures(fake: dict[str, Counted]) -> None:
    bare = section(every=False)
    bare = replace(bare, outcome=Outcome(bare.outcome.results[2:]))
    page = reproduction.html("fake-2020", [bare])
    assert page == reproduction.html("fake-2020", [bare])
    assert "None of these results has a published figure" in page
    check_safe(page)
    check_safe(reproduction.html("a paper that nobody knows", [section()]))


def test_many_results_are_folded_away(fake: dict[str, Counted]) -> None:
    outcome = Outcome([replace(results()[2], metric=f"metric {i}") for i in range(40)])
    page = reproduction.html("fake-2020", [replace(section(), outcome=outcome)])
    assert "40 results" in check_safe(page).text
    assert "<details>" in page


def test_many_remarks_are_folded_away(fake: dict[str, Counted]) -> None:
    noted = [replace(results()[2], metric=f"metric {i}", note=f"Remark {i}.") for i in range(15)]
    many, few = (replace(section(every=False), outcome=Outcome(noted[:n])) for n in (15, 14))
    page = reproduction.html("fake-2020", [many])
    folded = page.partition("<summary>15 remarks</summary>")[2].partition("</details>")[0]
    assert "Remark 0." in folded and "Remark 14." in folded
    assert "<details>" not in reproduction.html("fake-2020", [few])
    drawn = flat(printed(terminal.reproduction([many])))
    assert "Remark 13. and 1 more remarks" in drawn and "Remark 14." not in drawn
    assert "more remarks" not in printed(terminal.reproduction([few]))


def test_experiments_that_were_run_differently_say_so(fake: dict[str, Counted]) -> None:
    other = section("second", every=False)
    other = replace(other, facts={**other.facts, "scale": "full"})
    text = flat(check_safe(reproduction.html("fake-2020", [section(every=False), other])).text)
    assert "smoke, full" in text
    assert "scale full" in text


def test_hostile_results_are_shown_as_text(tmp_path: Path) -> None:
    nasty = Result(HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1.0, published=HOSTILE, note=HOSTILE)
    bad = replace(bars(), name="../../<b>", title=HOSTILE, caption=HOSTILE)
    facts = {"paper": HOSTILE, "scale": HOSTILE, "seconds": 1.0, "heed": HOSTILE}
    hostile = Section("../../<script>", HOSTILE, HOSTILE, Outcome([nasty], [bad]), facts)
    check_safe(reproduction.html(HOSTILE, [hostile]))
    folder = tmp_path / "deep" / "folder"
    reproduction.write(folder, HOSTILE, [hostile])
    written = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert len(written) == 5 and all(folder in path.parents for path in written)
    out = printed(terminal.reproduction([hostile]))
    assert not set("\x1b\x00") & set(out)


def test_figures_and_tables_are_written(tmp_path: Path, fake: dict[str, Counted]) -> None:
    reproduction.write(tmp_path, "fake-2020", [section()])
    for kind in ALL:
        assert "<svg" in (tmp_path / "figures" / f"first-{kind}.svg").read_text(encoding="utf8")
        assert (tmp_path / "figures" / f"first-{kind}.png").read_bytes().startswith(b"\x89PNG")
    rows = list(
        csv.DictReader(io.StringIO((tmp_path / "tables" / "first.csv").read_text(encoding="utf8")))
    )
    assert set(rows[0]) == FIELDS
    assert [row["ours"] for row in rows] == ["0.5", "1e-13", "3.0", ""]
    table = (tmp_path / "tables" / "first.md").read_text(encoding="utf8").splitlines()
    assert len(table) == 6 and "| 0.500 [0.400, 0.600] | 40 | 0.602 |" in table[2]
    assert "&lt;unk&gt; \\| all" in table[2]
    check_safe((tmp_path / "report.html").read_text(encoding="utf8"))


# The terminal


def test_results_fit_80_columns() -> None:
    long = replace(
        results()[0],
        metric="a metric whose name goes on and on " * 4,
        published="stated in many words " * 3,
    )
    drawn = printed(
        terminal.reproduction([replace(section(), outcome=Outcome([long, *results()]))])
    )
    assert all(cell_len(line) <= 80 for line in drawn.splitlines())
    words = flat(drawn)
    for word in (
        "The first one",
        "Does it hold?",
        "0.500 [0.400, 0.600]",
        "0.602",
        "1e-13",
        "It is near the paper's.",
    ):
        assert word in words


def test_of_many_results_those_with_a_published_figure_are_printed() -> None:
    many = [replace(results()[2], metric=f"metric {i}") for i in range(40)]
    drawn = flat(
        printed(terminal.reproduction([replace(section(), outcome=Outcome([*many, results()[0]]))]))
    )
    assert "metric 7" not in drawn and "0.602" in drawn and "and 40 more" in drawn
    only = flat(printed(terminal.reproduction([replace(section(), outcome=Outcome(many))])))
    assert "metric 13" in only and "and 26 more" in only


def test_models_and_data_are_named_where_they_differ() -> None:
    first, *_ = results()
    drawn = flat(
        printed(
            terminal.reproduction(
                [replace(section(), outcome=Outcome([first, replace(first, model="b")]))]
            )
        )
    )
    assert "first · reviews Does" in drawn
    assert (
        "all · single-layer-imdb" in drawn
        and "all · b" in drawn
        and "all · single-layer-imdb · reviews" not in drawn
    )


# The command line


def test_a_paper_is_run_printed_and_written(here: Path, fake: dict[str, Counted]) -> None:
    done = heed("reproduce", "fake-2020", "--experiment", "first")
    assert done.code == 0, done
    assert "The first one" in done.out and "0.602" in done.out
    assert "first …" in done.err and "fake-2020/report.html" in done.err
    folder = here / "fake-2020"
    assert {p.name for p in folder.iterdir()} == {
        "experiments",
        "figures",
        "report.html",
        "results.json",
        "rows",
        "tables",
    }
    again = heed("reproduce", "fake-2020", "-o", "fake-2020", "--experiment", "second")
    assert "The second one" in again.out and "The first one" not in again.out
    assert (fake["first"].times, fake["second"].times) == (1, 1)
    assert "The first one" in (folder / "report.html").read_text(encoding="utf8")
    assert "done before" in heed("reproduce", "fake-2020").err
    heed("reproduce", "fake-2020", "--rerun")
    assert (fake["first"].times, fake["second"].times) == (2, 2)


def test_a_report_draws_a_folder_again(here: Path, fake: dict[str, Counted]) -> None:
    done = heed("reproduce", "fake-2020")
    folder = here / "fake-2020"
    page = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    again = heed("report", "fake-2020")
    assert (again.code, again.out) == (0, done.out)
    assert (folder / "report.html").read_bytes() == page
    (folder / "report.html").unlink()
    assert heed("report", "fake-2020", "-o", "page.html", "-o", "list.json").code == 0
    assert Path("page.html").read_bytes().strip() == page.strip()
    assert json.loads(Path("list.json").read_text()) == json.loads(
        (folder / "results.json").read_text()
    )
    assert not (folder / "report.html").exists()
    assert (
        json.loads(heed("report", "fake-2020", "--format", "json").out)[0]["experiment"] == "second"
    )
    assert heed("report", "fake-2020", "--format", "html").out.startswith("<!doctype html>")


REFUSALS: list[tuple[list[str], list[str]]] = [
    (["reproduce", "lopardo"], ["'lopardo'", "did you mean 'lopardo-2024'?"]),
    (["reproduce", "lopardo-2024", "--experiment", "tlk"], ["'tlk'", "did you mean 'talk'?"]),
    (["reproduce", "lopardo-2024", "--scale", "ful"], ["'ful'", "did you mean 'full'?"]),
    (["reproduce", "lopardo-2024", "-o", "file.txt"], ["file.txt", "cannot be written"]),
    (["reproduce", "lopardo-2024", "-o", "file.txt/folder"], ["file.txt", "cannot be written"]),
    (["reproduce", "lopardo-2024", "--model", "missing"], ["no model 'missing'"]),
    (
        ["reproduce", "lopardo-2024", "--model", "transformer-imdb"],
        ["transformer-imdb", "single-layer"],
    ),
    (["report", "hollow"], ["hollow", "no experiments"]),
    (["report", "broken"], ["first.json", "cannot be read"]),
    (["report", "broken", "-o", "x.parquet"], [".html or .json"]),
    (["cite", "lopardo-2023"], ["did you mean 'lopardo-2024'?"]),
]


@pytest.mark.parametrize(
    ("words", "says"), REFUSALS, ids=[" ".join(words) for words, _ in REFUSALS]
)
def test_one_sentence_and_exit_code_2(here: Path, words: list[str], says: list[str]) -> None:
    Path("file.txt").write_text("x")
    for name in ("hollow", "broken"):
        Path(name, "experiments").mkdir(parents=True)
    Path("broken/experiments/first.json").write_text("{")
    before = sorted(Path().rglob("*"))
    refused(heed(*words), *says)
    assert sorted(Path().rglob("*")) == before


def test_refusing_listing_and_drawing_do_not_load_torch(tmp_path: Path) -> None:
    write_section(tmp_path, section())
    commands: list[list[Any]] = [
        ["reproduce", "--help"],
        ["list", "reproductions"],
        ["cite", "lopardo-2024"],
        ["report", str(tmp_path)],
        *(words for words, _ in REFUSALS if words[0] == "reproduce" and "-o" not in words),
    ]
    script = (
        "import sys, heed.cli\n"
        "from heed.errors import HeedError\n"
        f"for words in {commands!r}:\n"
        "    try:\n"
        "        heed.cli.app(words)\n"
        "    except (HeedError, SystemExit):\n"
        "        pass\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").exists()


def test_papers_and_experiments_are_listed_cited_and_taught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = heed("list", "reproductions").out
    cited = heed("cite", *PAPERS).out
    monkeypatch.setenv("COLUMNS", "80")
    shown = heed("reproduce", "--help").out
    assert "heed reproduce lopardo-2024 --experiment talk" in shown
    for name, paper in PAPERS.items():
        assert re.search(rf"^{name} ", listed, re.MULTILINE)
        assert f"{{{paper.source}," in cited
        for experiment in paper.experiments:
            assert f"{experiment.name}: " in listed
            assert experiment.name in shown
    assert all(cell_len(line) <= 80 for text in (listed, shown) for line in text.splitlines())
