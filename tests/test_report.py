"""Terminal, pages and charts, drawn from audits and explanations that are written by hand."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from importlib import resources
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from heed.audit import Audit, Example
from heed.claims import CLAIMS, Claim, Evidence, Verdict
from heed.claims.claim import Refusal
from heed.errors import InputError
from heed.methods.explanation import Explanation, Special, Unit
from heed.report import browser, charts, html, terminal, words
from heed.report.bibliography import authors
from heed.report.explanation import by_document
from heed.report.numbers import cell, interval, number, short
from heed.report.shading import STEPS, style, tint
from heed.report.words import extras, verdict_interval
from heed.text import Document, counted, harmless

HOSTILE = (
    "</style></title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    '<a href="javascript:alert(3)">x</a>&amp;\x1b[31m\x00'
)
CONDITIONS = [{"one-signed": 0.1 + i / 1000, "peaked": 0.4, "context": 0.05} for i in range(40)]
VOID = {"meta", "br", "img", "link", "input", "hr"}


def explanation(
    text: str = "a fine film , a fine cast",
    method: str = "lime",
    signed: bool = True,
    **changes: object,
) -> Explanation:
    words = [(m.group(), m.span()) for m in re.finditer(r"\S+", text)]
    scores = np.cos(np.arange(len(words)))
    plain = Explanation(
        document=Document(text, id="review-7", label=1),
        method=method,
        label="negative",
        unit="word",
        units=tuple(Unit(word, (span,)) for word, span in words),
        scores=scores if signed else np.abs(scores),
        specials=(Special("<cls>", 0.25),),
        standard_errors=None,
        signed=signed,
        probabilities={"negative": 0.75, "positive": 0.25},
        settings={"samples": 1000, "removal": None},
        seed=0,
        model="a-model",
        revision="abc123",
        removal="replace",
        forward_passes=1000,
        seconds=0.5,
        facts={"intercept": 0.125},
        notes=("Only the first 7 words were read.",),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def rows(values: np.ndarray, **extra: float) -> list[dict[str, object]]:
    return [{"document": i, "id": f"d{i}", "value": float(v)} | extra for i, v in enumerate(values)]


def evidence(centre: dict[str, float] | None = None, n: int = 120) -> tuple[Evidence, ...]:
    """Rows for every claim: around the given centre, or on the claim's side."""
    spread = np.linspace(-0.01, 0.01, n)
    found = []
    for name, cls in CLAIMS.items():
        if cls.claim.combine:  # whose statistic is not the mean of its rows
            continue
        away = 0.1 if cls.claim.above else -0.1
        found.append(
            Evidence(cls.claim, rows((centre or {}).get(name, cls.claim.threshold + away) + spread))
        )
    return tuple(found)


def made(
    found: tuple[Evidence, ...] | None = None,
    examples: tuple[tuple[Explanation, ...], ...] = (),
    **facts: object,
) -> Audit:
    about = {
        "model": "a-model",
        "revision": "abc123",
        "data": "sst (test)",
        "documents": 40,
        "left_out": 0,
        "accuracy": 0.875,
        "methods": {"attention-mean": {"merge": "sum"}},
        "seed": 0,
        "settings": {"used": {"permutations": 100}},
        "seconds": 12.34,
        "heed": "0.1",
    }
    shown = tuple(Example(group, np.full((2, len(group[0].units)), 0.1)) for group in examples)
    return Audit(about | facts, evidence() if found is None else found, CONDITIONS, shown)


def mixed() -> Audit:
    """One verdict of each kind."""
    found = list(evidence({"agrees-removal": 0.5, "signed": 0.1}))
    found[1] = Evidence(
        found[1].claim, [], Refusal("model", "needs gradient, which the model does not offer")
    )
    pair = (explanation(), explanation(method="attention-mean", signed=False))
    return made(tuple(found), (pair, (explanation("another text"),)))


def printed(drawing: RenderableType, colour: bool = False, width: int = 80) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
    )
    console.print(drawing)
    return console.file.getvalue()  # type: ignore[attr-defined]


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def flat(text: str) -> str:
    return " ".join(plain(text).split())


class Page(HTMLParser):
    """What a browser would find: tags in balance, attributes, ids, text."""

    def __init__(self, source: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data
        elif self.open[-1] == "script":
            self.scripts.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, key, value in self.attributes if key == name]


def check_safe(source: str, scripts: int = 0) -> Page:
    """A page that loads nothing, and runs no script but its own, which may read data."""
    page = Page(source)
    assert not page.open
    data = ("script", "type", "application/json") in page.attributes
    programs = page.scripts[data:]
    assert len(programs) == scripts
    assert not page.tags & {
        "img",
        "link",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "image",
        "foreignobject",
    }
    assert not [
        key
        for _, key, _ in page.attributes
        if key.startswith("on") or key in ("src", "srcset", "action", "background")
    ]
    assert all(value.startswith("#") for tag, key, value in page.attributes if key.endswith("href"))
    assert not re.search(
        r"https?://|@import|url\((?!#)", re.sub(r"(?s)<script.*?</script>", "", source)
    )
    assert re.sub(r"(?s)<script.*?</script>", "", source).count("</style>") == 1
    (policy,) = (
        v
        for tag, key, v in page.attributes
        if (tag, key) == ("meta", "content") and "default-src" in v
    )
    assert policy.startswith("default-src 'none'") and "connect-src" not in policy
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    assert allowed == [b64encode(sha256(code.encode()).digest()).decode() for code in programs]
    assert ("script-src" in policy) == bool(scripts) and "unsafe" not in policy.partition(
        "script-src"
    )[2]
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in page.values("href")} <= set(ids)
    assert ("html", "lang", "en") in page.attributes
    return page


# Pages


def test_an_audit_page_holds_everything() -> None:
    audit = mixed()
    page = check_safe(html.audit(audit), 1)
    text = " ".join(page.text.split())
    for verdict in audit.verdicts:
        assert verdict.claim.id in text
        assert verdict.sentence in text
        assert authors(verdict.claim.source) in text
        assert verdict.reason in text
        assert f"claim-{words.verdict_key(verdict)}" in page.values("id")
    assert {v.outcome for v in audit.verdicts} == {
        "supported",
        "refuted",
        "undecided",
        "not applicable",
    }
    for badge in ("✓ supported", "✗ refuted", "~ undecided", "– not applicable"):
        assert badge in text
    for family, sentences in words.summary(audit).items():
        assert f"{family}: {sentences}" in text
    for fact in (
        "a-model",
        "abc123",
        "sst (test)",
        "0.875",
        "12.3 s",
        "permutations = 100",
        f"{audit.verdicts[2].level:.1%}",
        "merge = sum",
    ):
        assert fact in text
    shown = json.loads(page.scripts[0])["documents"]
    assert [d["segments"][0] for d in shown] == ["a fine film , a fine cast", "another text"]
    assert {d["id"] for d in shown} == {"review-7"}


def test_an_explanations_page_shows_every_method_and_how_they_agree() -> None:
    three = [
        explanation(),
        explanation(method="occlusion"),
        explanation(method="attention-mean", signed=False),
    ]
    page = html.explanations(three, agreement=True, title="A title")
    text = " ".join(check_safe(page, 1).text.split())
    for part in (
        "A title",
        "lime",
        "occlusion",
        "attention-mean",
        "Kendall's τ",
        "<cls> +0.25",
        "samples = 1000",
        "0.750",
        "seed = 0",
    ):
        assert part in text
    assert "gold label positive, so the prediction is wrong" in text
    assert "intercept = 0.125" in text and "a-model@abc123" in text
    assert (
        text.count("Only the first 7 words were read.") == 1
    )  # a note of all methods is a note of the document
    assert "1.00" in text  # τ of lime and occlusion, which are the same here
    assert "Kendall" not in html.explanations(three)


def test_labels_or_units_that_differ_are_not_correlated() -> None:
    pair = [explanation(), explanation(label="positive")]
    assert "how far the methods agree" not in html.explanations(pair, agreement=True)
    assert "Kendall" not in printed(terminal.explanations(pair, agreement=True))


def test_many_labels_are_cut_short() -> None:
    many = explanation(probabilities={"negative": 0.5} | {f"other-{i}": 0.01 for i in range(50)})
    assert "and 45 more" in html.explanations([many])


@pytest.mark.parametrize("field", ["model", "revision", "label", "method", "removal"])
def test_names_are_escaped(field: str) -> None:
    hostile = {field: HOSTILE}
    if field == "label":
        hostile["probabilities"] = {HOSTILE: 0.9, "other": 0.1}  # type: ignore[assignment]
    page = check_safe(
        html.explanations([explanation(**hostile), explanation(**hostile)], title=HOSTILE), 1
    )
    assert "alert(1)" in page.text


def test_texts_notes_settings_and_ids_are_escaped() -> None:
    hostile = explanation(
        HOSTILE,
        notes=(HOSTILE,),
        facts={HOSTILE: 1.0},
        settings={HOSTILE: HOSTILE},
        specials=(Special(HOSTILE, 1.0),),
    )
    hostile = replace(hostile, document=replace(hostile.document, id=HOSTILE))
    assert HOSTILE.replace("\x1b", "")[:40] in check_safe(html.explanations([hostile]), 1).text
    page = check_safe(html.audit(made(examples=((hostile, hostile),))), 1)
    (document,) = json.loads(page.scripts[0])["documents"]
    assert document["segments"] == [harmless(HOSTILE)]  # which the script shows as text


def test_facts_reasons_claims_and_columns_are_escaped() -> None:
    claim = Claim(HOSTILE, "agrees", HOSTILE.replace("{", ""), HOSTILE, 0.5, HOSTILE)
    found = (
        Evidence(claim, rows(np.linspace(0, 1, 40), **{HOSTILE: 1.0})),
        Evidence(replace(claim, id="other"), [], Refusal("model", HOSTILE)),
    )
    audit = made(
        found,
        model=HOSTILE,
        revision=HOSTILE,
        data=HOSTILE,
        methods={HOSTILE: {HOSTILE: HOSTILE}},
        heed=HOSTILE,
        settings={HOSTILE: {HOSTILE: HOSTILE}},
    )
    assert "alert(1)" in check_safe(html.audit(audit), 1).text


def test_a_page_with_little_room_gives_up_precision_then_heads_then_documents() -> None:
    group = (explanation("word " * 50), explanation("word " * 50, "attention-mean", signed=False))
    audit = made(examples=(group,) * 20)

    def kept(room: int) -> tuple[int, int, int]:
        found = browser.content(audit, room)["documents"]
        size = len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode())
        assert size <= room + 2
        heads = sum(d["heads"] is not None for d in found)
        return (
            len(found),
            heads,
            max((p["bytes"] for d in found for p in d["scores"].values()), default=0),
        )

    every = [kept(room) for room in range(0, 40_000, 250)]
    assert every[0] == (0, 0, 0) and every[-1] == (20, 20, 2)
    assert sorted(set(every)) == list(dict.fromkeys(every))  # more room, never less of anything
    assert (20, 20, 1) in every and any(20 > heads > 0 for _, heads, _ in every)
    assert all(documents == 20 or heads == 0 for documents, heads, _ in every)
    assert all(heads == 20 or size < 2 for _, heads, size in every)


def test_pages_are_deterministic() -> None:
    assert html.audit(mixed()) == html.audit(mixed())
    pair = [explanation(), explanation(method="occlusion")]
    assert html.explanations(pair) == html.explanations(pair)


def test_nothing_measured_and_nothing_to_show() -> None:
    for audit in (made(()), made(tuple(Evidence(e.claim, []) for e in evidence()))):
        check_safe(html.audit(audit), 1)
        for verbose in (False, True):
            out = printed(terminal.audit(audit, verbose))
            assert max(map(cell_len, out.splitlines())) <= 80
    assert "no document has this statistic" in html.audit(
        made(tuple(Evidence(e.claim, []) for e in evidence()))
    )
    check_safe(html.explanations([]), 1)
    assert printed(terminal.explanations([])).strip() == ""


# Charts


@pytest.mark.parametrize("above", [True, False])
def test_a_chart_shows_threshold_mean_and_axes(above: bool) -> None:
    claim = replace(CLAIMS["used"].claim, threshold=0.35, above=above)
    found = Evidence(claim, rows(np.linspace(0.1, 0.3, 50)))
    drawn = charts.svg(charts.claim(found, made((found,)).verdicts[0]))
    assert ("threshold: &gt; 0.35 →" if above else "← threshold: &lt; 0.35") in drawn
    assert "mean 0.200 [" in drawn and "per document" in drawn and ">documents<" in drawn
    assert "stroke-dasharray" in drawn and "http" not in drawn and "<script" not in drawn


@pytest.mark.parametrize("values", [[0.5], [0.5] * 40, [0.0, 1e6], [-1e-9, 1e-9], [0.7] * 3])
def test_every_document_is_in_the_chart(values: list[float]) -> None:
    found = Evidence(CLAIMS["agrees-lime"].claim, rows(np.array(values)))
    spec = charts.claim(found, made((found,)).verdicts[0]).to_dict()
    bars = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "bar")
    data = bars["data"].get("values") or spec["datasets"][bars["data"]["name"]]
    assert sum(row["documents"] for row in data) == len(values)
    assert all(
        row["to"] <= 0.5 + 1e-9 or row["from"] >= 0.5 - 1e-9 for row in data
    )  # no bar lies on both sides


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_infinite_values_are_left_out_of_the_chart() -> None:
    some = Evidence(CLAIMS["used"].claim, rows(np.array([0.1, 0.2, np.inf] * 20)))
    none = Evidence(CLAIMS["signed"].claim, rows(np.full(40, np.inf)))
    assert "inf" not in charts.svg(charts.claim(some, made((some,)).verdicts[0]))
    page = html.audit(made((some, none)))
    assert page.count('<figure class="chart"') == 1 and page.count('<figure class="chart ') == 1


def test_ids_of_charts_do_not_collide() -> None:
    import altair as alt

    clipped = (
        alt.Chart(alt.InlineData(values=[{"x": 1}, {"x": 2}])).mark_bar(clip=True).encode(x="x:Q")
    )
    drawn = charts.svg(clipped, "one") + charts.svg(clipped, "two")  # type: ignore[arg-type]
    ids = re.findall(r'\bid="([^"]+)"', drawn)
    assert len(ids) == len(set(ids)) > 0
    assert set(re.findall(r"url\(#([^)]+)\)", drawn)) == set(ids)


def test_charts_are_saved(tmp_path: Path) -> None:
    found = evidence()[0]
    chart = charts.claim(found, made((found,)).verdicts[0])
    charts.save(chart, tmp_path / "used.svg")
    charts.save(chart, tmp_path / "used.png")
    assert (tmp_path / "used.svg").read_text(encoding="utf-8").startswith("<svg xmlns=")
    assert (tmp_path / "used.png").read_bytes().startswith(b"\x89PNG")
    charts.save(chart, tmp_path / "used.pdf")
    assert (tmp_path / "used.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(InputError, match=r"\.png or \.pdf"):
        charts.save(chart, tmp_path / "used.gif")


def test_a_chart_of_nothing_is_refused_with_the_reason() -> None:
    found = Evidence(
        CLAIMS["used"].claim, [], Refusal("model", "needs attention that can be replaced")
    )
    with pytest.raises(InputError, match="needs attention that can be replaced"):
        charts.claim(found, made((found,)).verdicts[0])


# Terminal


@pytest.mark.parametrize("colour", [True, False])
def test_an_audit_fits_80_columns(colour: bool) -> None:
    audit = mixed()
    long = replace(
        audit, facts=audit.facts | {"model": "organisation/" + "model" * 30, "left_out": 3}
    )
    for each, verbose in product((audit, long), (False, True)):
        out = printed(terminal.audit(each, verbose), colour)
        assert max(map(cell_len, plain(out).splitlines())) <= 80
        assert ("\x1b[" in out) == colour


def test_a_long_name_of_an_explanation_is_cut_to_fit() -> None:
    claim, names = CLAIMS["tracks"].claim, ("attention-mean", "integrated-gradients", "映画" * 20)
    values = rows(np.linspace(-1.1, -0.9, 1000))
    audit = made(
        tuple(Evidence(claim, values, method=name) for name in names),
        methods={name: {} for name in names},
    )
    assert max(map(cell_len, printed(terminal.audit(audit)).splitlines())) <= 80
    out = printed(terminal.audit(audit, verbose=True)).splitlines()
    assert max(map(cell_len, out)) <= 80
    assert any(line.split()[:2] == ["integrated-gradients", "-1.000"] for line in out)
    assert any(
        line.startswith("  映画映画") and "…" in line and "✗ refuted" in line for line in out
    )


def test_an_audit_says_everything_in_words() -> None:
    audit = mixed()
    out = flat(printed(terminal.audit(audit, verbose=True)))
    for verdict in audit.verdicts:
        assert verdict.claim.id in out and verdict.reason in out
        assert verdict.sentence in " ".join(words.summary(audit).values())
    for badge in ("✓ supported", "✗ refuted", "~ undecided", "– model lacks it"):
        assert badge in out
    for family, text in words.summary(audit).items():
        assert flat(f"{family}: {text}") in out
    assert (
        "a-model@abc123" in out
        and "accuracy 0.875" in out
        and "> 0.05" in out
        and "40 documents" in out
    )


@pytest.mark.parametrize("colour", [True, False])
def test_explanations_fit_80_columns(colour: bool) -> None:
    text = "word " * 200
    methods = ("attention-mean", "integrated-gradients", "lime", "shapley")
    many = [explanation(t, m) for t in (text, "short 映画 text", "x" * 300) for m in methods]
    both = [*many, explanation("alone")]
    assert "Kendall" not in printed(terminal.explanations(both))
    out = plain(printed(terminal.explanations(both, agreement=True), colour))
    assert max(map(cell_len, out.splitlines())) <= 80
    assert out.count("explained for negative (p = 0.750)") == 3
    assert out.count("Kendall's τ") == 3
    assert "lime for negative" in out  # one explanation alone is shown in full


def test_nothing_can_steer_the_terminal() -> None:
    bad = "\x1b]0;title\x07[red]x[/red]\u202e"
    hostile = explanation(
        f"{bad} text", label=bad, probabilities={bad: 1.0}, model=bad, revision=bad, notes=(bad,)
    )
    hostile = replace(hostile, document=replace(hostile.document, id=bad))
    audit = made(
        (Evidence(CLAIMS["used"].claim, [], Refusal("model", bad)),),
        model=bad,
        data=bad,
        methods={bad: {}},
    )
    in_full = terminal.audit(audit, verbose=True)
    for drawing in (terminal.explanations([hostile, hostile]), terminal.audit(audit), in_full):
        out = printed(drawing)
        assert not set("\x1b\x07\u202e") & set(out)
        assert "[red]" in out


def test_the_terminal_starts_without_heavy_libraries() -> None:
    heavy = {"torch", "altair", "jinja2", "vl_convert"}
    code = f"import sys, heed.report.terminal; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# What they share


def test_extras_in_plain_words() -> None:
    claim = CLAIMS["agrees-gradient"].claim
    found = Evidence(
        claim,
        [
            *rows(np.array([0.5, 0.7]), plain=0.25, new_column=2.0),
            {"value": float("nan"), "flag": True},
        ],
    )
    assert extras(found) == [
        ("plain Kendall τ, in which all words count alike", "0.250"),
        ("new column", "2.0"),
        ("documents without this statistic", "1"),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1234, "0.123"),
        (-0.5, "-0.500"),
        (0.0002, "0.0002"),
        (-1e-9, "-1e-9"),
        (1e-13, "1e-13"),
        (471.23, "471.2"),
        (12345.6, "12,346"),
        (2.5e12, "2.5e12"),
        (0.0, "0.000"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("low", "mean", "high", "n", "text"),
    [
        (0.1, 0.25, 0.5, 200, "0.250 [0.100, 0.500]"),
        (0.0, 0.0001, 0.0007, 200, "0.0001 [0.0000, 0.0007]"),
        (9e3, 1e4, 2e4, 30, "10,000 [9,000, 20,000]"),
        (0.25, 0.25, 0.25, 1, "0.250"),
        (None, None, None, 0, "–"),
    ],
)
def test_intervals_have_the_digits_of_their_mean(
    low: float | None, mean: float | None, high: float | None, n: int, text: str
) -> None:
    verdict = Verdict(CLAIMS["used"].claim, "undecided", mean, low, high, n, 0.95)
    assert verdict_interval(verdict) == text


def test_bars_end_where_values_do() -> None:
    values = np.array([0.0, 0.01, 0.3, 0.9])
    edges = charts._edges(values, 0.1)
    assert edges[0] == 0 and edges[-1] == 0.9 and np.isclose(edges, 0.1).any()
    assert np.histogram(values, edges)[0].sum() == 4
    assert charts._edges(values, 1.5)[-1] > 1.5 and charts._edges(values, -1.0)[0] < -1


@pytest.mark.parametrize(
    ("values", "threshold"),
    [
        ([1 / 3] * 13 + [2 / 3] * 20 + [1.0] * 7, 0.8),
        ([0.0] * 30 + [0.7], 0.05),
        ([0.31, 0.5, 0.7001], 0.7),
        ([0.5] * 4, 0.5),
        (list(np.linspace(-0.9, 0.9, 50)), 0.1),
    ],
)
def test_no_bar_is_a_hairline(values: list[float], threshold: float) -> None:
    edges = charts._edges(np.array(values), threshold)
    wide = np.diff(edges)
    assert wide.min() > 0.5 * wide.max() and np.isclose(edges, threshold, atol=1e-12).any()
    assert edges[0] <= min(values) and edges[-1] >= max(values)
    assert np.histogram(values, edges)[0].sum() == len(values)


@pytest.mark.parametrize("n", [40, 120])  # intervals reach beyond all values, or lie among them
def test_charts_for_telephones_are_narrow_and_say_the_same(n: int) -> None:
    audit = replace(mixed(), evidence=evidence(n=n))
    wide, narrow = charts.every(audit), charts.every(audit, charts.NARROW)
    assert list(wide) == list(narrow)
    for key, chart in narrow.items():
        if key != "agreement":
            assert chart.to_dict()["width"] == charts.NARROW
            drawn = charts.svg(chart)
            assert max(map(int, re.findall(r'^<svg[^>]* width="(\d+)', drawn))) < 360


def test_directions_of_writing_cannot_be_turned_by_a_document() -> None:
    example = Example((explanation("a \u202efine film"),))
    page = html.audit(replace(mixed(), examples=(example,)))
    assert "\u202e" not in page and "a ·fine film" in page


@pytest.mark.parametrize(
    ("most", "ticks"),
    [(1, [0, 1]), (2, [0, 1, 2]), (7, [0, 2, 4, 6]), (200, [0, 50, 100, 150, 200])],
)
def test_documents_are_counted_in_whole_numbers(most: int, ticks: list[int]) -> None:
    assert charts._counts(most) == ticks


def test_explanations_are_grouped_by_document() -> None:
    first, second = explanation("one"), explanation("two")
    assert by_document([first, second, first]) == [[first, first], [second]]


def test_words_can_be_read_on_their_tints_on_light_and_dark_pages() -> None:
    def light(colour: Sequence[float]) -> float:
        parts = [
            c / 12.92 if c <= 0.04 else ((c + 0.055) / 1.055) ** 2.4
            for c in (x / 255 for x in colour)
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    def page(name: str) -> list[list[int]]:
        found = re.findall(rf"--{name}: #(\w+);", _source("base.html.j2"))
        return [
            [int(c * (6 // len(h)), 16) for c in re.findall("." * (len(h) // 3), h)] for h in found
        ]

    assert len(page("ground")) == 2  # light and dark
    for ground, ink in zip(page("ground"), page("ink"), strict=True):
        for share in (-1.0, -0.5, 0.05, 0.3, 0.6, 1.0):
            for signed in (True, False):
                *colour, alpha = map(float, re.findall(r"[\d.]+", tint(share, signed)))
                mixed = [g + (c - g) * alpha for c, g in zip(colour, ground, strict=True)]
                one, other = sorted((light(mixed), light(ink)))
                assert (other + 0.05) / (one + 0.05) > 4.5, (share, signed, ground)


def test_the_script_of_a_page_tints_words_as_all_else_does() -> None:
    script = _source("audit.js")
    colours = {
        name: re.sub(" ", "", rgb)
        for name, rgb in re.findall(r"(\w+): \[(\d+, \d+, \d+)\]", script)
    }
    found = re.search(
        r"\(([\d.]+) \* Math\.min\(1, ([\d.]+) \+ ([\d.]+) \* Math\.abs\(share\)\)\)", script
    )
    assert found is not None
    most, least, slope = map(float, found.groups())
    for share, signed, name in (
        (1.0, True, "for"),
        (-0.5, True, "against"),
        (0.3, False, "unsigned"),
        (-0.1, False, "below"),
    ):
        alpha = most * min(1.0, least + slope * abs(share))
        assert tint(share, signed) == f"rgba({colours[name]},{alpha:.2f})"


def _source(name: str) -> str:
    return resources.files("heed.report").joinpath("templates", name).read_text(encoding="utf8")


@pytest.mark.parametrize(
    ("mean", "line", "align"),
    [
        (0.5, 0.9, "center"),
        (0.5, 0.55, "right"),
        (0.5, 0.45, "left"),
        (0.05, 0.9, "left"),
        (0.95, 0.1, "right"),
    ],
)
def test_the_label_of_a_mean_keeps_off_the_line_and_within_the_chart(
    mean: float, line: float, align: str
) -> None:
    assert charts._beside(mean, line, 0.3) == align


def test_a_label_that_finds_no_free_place_stays_within_the_chart() -> None:
    assert charts._beside(0.1, 0.2, 0.3) == "left"
    assert charts._beside(0.1, 0.2, 2.0) == "center"


def test_numbers_and_their_nouns() -> None:
    assert [counted(n) for n in (0, 1, 2, 1200)] == [
        "0 documents",
        "1 document",
        "2 documents",
        "1,200 documents",
    ]
    found = replace(
        made().evidence[0], rows=[{"value": 0.5, "keys": 5, "share": 1.0, "correct": 1}] * 3
    )
    assert dict(extras(found)) == {
        "keys that a row looks at": "5.0",
        "share": "1.000",
        "accuracy with attention": "1.000",
    }


def test_sources_are_cited_by_names() -> None:
    assert authors("brunner2020 naim2024") == "Brunner et al. 2020; Naim and Asher 2024"
    assert authors("lang1995") == "Lang 1995"
    assert authors("lopardo2024") == "Lopardo, Precioso and Garreau 2024"
    assert authors("somebody2030") == "somebody2030"


# One number, one way to write it


def extreme() -> Audit:
    """Verdicts over tiny, ordinary and large numbers."""
    centres = (1e-13, 0.0001, 0.00012, 0.3, -0.25, 471.23, 12345.6, 2.5e12)
    stated = [cls.claim for cls in CLAIMS.values()]
    tests = [claim for claim in stated if not claim.combine and not claim.check]
    spread = np.linspace(-0.01, 0.01, 40)
    return made(
        tuple(
            Evidence(claim, rows(centre * (1 + spread)))
            for claim, centre in zip(tests, centres, strict=False)
        )
    )


def test_a_verdict_shows_one_number_wherever_it_appears() -> None:
    audit = extreme()
    table = flat(printed(terminal.audit(audit, verbose=True)))
    screen = flat(printed(terminal.audit(audit)))
    page = " ".join(Page(html.audit(audit)).text.split())
    notebook = audit._repr_html_()
    assert len(audit.verdicts) == 8
    for e, v in zip(audit.evidence, audit.verdicts, strict=True):
        text = verdict_interval(v)
        assert text.startswith(f"{number(v.mean)} [")
        assert f"{text} {v.claim.side()}" in table
        assert text in page
        if v.outcome != "not applicable":  # what does not apply is not on the first screen
            assert text in notebook and text in screen
        assert f"mean {text}" in charts.svg(charts.claim(e, v))
    assert "0.000 " not in table


def test_the_summary_repeats_no_number_of_the_table() -> None:
    for audit in (mixed(), extreme()):
        texts = words.summary(audit)
        told = " ".join(text for title, text in texts.items() if title != words.CONDITIONS)
        for v in audit.verdicts:
            if v.mean is not None:
                assert number(v.mean) not in told and v.claim.side() not in told


def test_a_summary_answers_family_by_family() -> None:
    texts = words.summary(mixed())
    assert texts["Signed"].startswith("no. Does not hold: “What attention points to")
    assert texts["Agrees"].startswith("in part. Holds: ")
    assert "Undecided: “Attention ranks words as their removal does”: " in texts["Agrees"]
    assert texts[words.CONDITIONS].startswith("Values of one sign: yes (share of attention on ")


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ({"used": 0.5}, "yes"),
        ({"used": 0.5, "needed": None}, "yes, as far as tested"),
        ({"efficient-near": 0.5, "efficient-necessary": None}, "no, as far as tested"),
    ],
)
def test_an_answer_says_what_it_rests_on(values: dict[str, float | None], answer: str) -> None:
    judged = []
    for name, value in values.items():
        claim = replace(CLAIMS[name].claim, combine=None)
        refusal = Refusal("training", "only with --train") if value is None else None
        spread = np.linspace(-0.01, 0.01, 40)
        judged.append(Evidence(claim, rows((value or 0.0) + spread) * (not refusal), refusal))
    *_, text = words.summary(made(tuple(judged))).values()
    assert text.startswith(f"{answer}. ")


def test_changed_settings_are_shown_and_a_smaller_search_is_called_one() -> None:
    weak = made(settings={"exclusive": {"steps": 20, "candidates": 5}})
    strong = made(settings={"exclusive": {"steps": 600}}, methods={"lime": {"samples": 50}})
    text = "exclusive.steps=20 (default: 500)"
    assert text in flat(printed(terminal.audit(weak, verbose=True)))
    assert text in flat(html.audit(weak))
    assert words.changed(strong) == (
        "Changed settings: exclusive.steps=600 (default: 500), lime.samples=50 (default: 1000)."
    )
    favours = "A smaller search finds fewer counterexamples, which favours the claim exclusive."
    assert favours in words.changed(weak)
    assert words.changed(made()) == ""


def test_numbers_of_matrices_and_whole_numbers() -> None:
    assert [cell(x) for x in (0.416, -0.001, float("nan"), 1.0)] == ["0.42", "0.00", "–", "1.00"]
    assert [short(x) for x in (3.0, 0.5, 1200.0, None)] == ["3", "0.500", "1,200", "–"]
    assert [number(x, signed=True) for x in (0.5, -0.5, 0.0)] == ["+0.500", "-0.500", "0.000"]
    assert interval(0.00014, 6.7e-5, 0.00022) == "0.00014 [0.00007, 0.00022]"


# Words on dark and on light terminals


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", ["#000000", "#ffffff"])
@pytest.mark.parametrize(("sign", "signed"), [(1, True), (-1, True), (1, False), (-1, False)])
def test_stronger_words_stand_out_more_on_any_ground(ground: str, sign: int, signed: bool) -> None:
    from rich.style import Style

    loudness = []
    for share in (0.0, 0.1, *STEPS, 1.0):
        look = Style.parse(style(sign * share, signed, 256))
        ink = look.color.get_truecolor().hex if look.color else None
        block = look.bgcolor.get_truecolor().hex if look.bgcolor else None
        if ink:
            assert contrast(ink, block or ground) > 4.4
        if block:
            assert contrast(block, ground) > 4.4
        loudness.append((block is not None, bool(look.bold), ink is not None))
    assert loudness[0] == loudness[1] == (False, False, False)  # weak words are left plain
    assert loudness == sorted(loudness) and len(set(loudness)) == len(STEPS) + 1


def on_terminal(drawing: RenderableType, system: str) -> str:
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=system)  # type: ignore[arg-type]
    console.print(drawing)
    return file.getvalue()


def test_signs_survive_16_colours() -> None:
    both = explanation("fine awful", scores=np.array([1.0, -0.9]))
    out = on_terminal(both, "standard")
    assert "fine[+10]" in plain(out) and "awful[-9]" in plain(out)
    (good,) = re.findall(r"\x1b\[([\d;]+)mfine\[", out)
    (bad,) = re.findall(r"\x1b\[([\d;]+)mawful\[", out)
    assert good != bad and not re.search("[34]8;", good + bad)


@pytest.mark.parametrize("system", ["standard", "256", "truecolor"])
def test_colours_have_a_legend_of_one_line(system: str) -> None:
    pair = [explanation(), explanation(method="attention-mean", signed=False)]
    for drawing in (pair[0], pair[1], terminal.explanations(pair)):
        lines = plain(on_terminal(drawing, system)).splitlines()
        (legend,) = [line for line in lines if line.startswith("strength ")]
        assert cell_len(legend) <= 80
        assert ("for the label" in legend) == (drawing is not pair[1])
        assert ("no sign" in legend) == (drawing is not pair[0])
    assert "strength" not in printed(pair[0])
    legend = "[+10] for the label · [-10] against it · [10] important (no sign)"
    assert legend in printed(terminal.explanations(pair)).splitlines()


def test_a_sink_stands_apart_from_what_is_measured_without_it() -> None:
    sink, template = Special("Review (sink)", 0.495), Special("template", 0.658)
    e = explanation(signed=False, specials=(sink, Special("</s>", 0.01), template))
    told = (
        "sink: Review holds 49.5% of the attention; without it: template 0.658 · special tokens:"
        " </s> 0.010"
    )
    assert told in flat(printed(e))
    assert told in " ".join(check_safe(html.explanations([e]), 1).text.split())
    assert "template 0.658 · special tokens: &lt;/s&gt; 0.010" in e._repr_html_()
    alone = flat(printed(replace(e, specials=(template,))))
    assert " template 0.658 " in alone and "special tokens" not in alone


def test_a_comparison_shows_what_each_method_gives_the_template() -> None:
    template = (Special("template", 0.658),)
    e = explanation(method="rollout", signed=False, specials=template)
    both = [explanation(), e, explanation(method="attention-max", signed=False, specials=template)]
    out = printed(terminal.explanations(both)).splitlines()
    assert "template: rollout 0.658 · attention-max 0.658" in out
    assert "template" not in printed(terminal.explanations(both[:1] * 2))


@pytest.mark.parametrize("system", [None, "standard", "256"])
def test_a_comparison_says_what_ten_means_and_what_is_explained(system: str | None) -> None:
    signed = explanation("fine awful", scores=np.array([0.9, -1.2]), settings={"output": "logit"})
    both = [signed, explanation("fine awful", method="attention-mean", signed=False)]
    drawing = terminal.explanations(both)
    lines = plain(on_terminal(drawing, system) if system else printed(drawing)).splitlines()
    (lime,) = [line for line in lines if line.startswith("lime ")]
    (attention,) = [line for line in lines if line.startswith("attention-mean ")]
    assert lime.split()[1] == "-1.200" and attention.split()[1] == "1.000"
    tenths = "" if system == "256" else ", which is [10]"
    assert f"first in each row: its largest score{tenths} · output: logit" in lines
    assert ("awful[-10]" in lime) == (system != "256")


def test_words_that_read_the_same_are_told_apart() -> None:
    e = explanation("a fine film , a plot", scores=np.array([5.0, 1, 2, 0, 4, 3]))
    assert "strongest a (1st) +5.000 a (2nd) +4.000 plot +3.000 film" in flat(printed(e))
    pair = replace(
        e,
        document=Document("a film", "a fine a"),
        units=(
            *(Unit("a", ((0, 1),)), Unit("film", ((2, 6),)), Unit("a", ((0, 1),), 1)),
            *(Unit("fine", ((2, 6),), 1), Unit("a", ((7, 8),), 1)),
        ),
        scores=np.array([5.0, 1, 4, 2, 3]),
    )
    told = "strongest a (text 1) +5.000 a (text 2, 1st) +4.000 a (text 2, 2nd) +3.000 fine +2.000"
    assert told in flat(printed(pair))


# Charts for files and notebooks


def test_long_names_of_charts_are_shortened_and_stay_different(tmp_path: Path) -> None:
    claim = CLAIMS["tracks"].claim
    names = ["映画" * 200 + end for end in "abc"] + ["Case", "case"]
    values = rows(np.linspace(-1.1, -0.9, 40))
    audit = made(
        tuple(Evidence(claim, values, method=name) for name in names),
        methods={name: {} for name in names},
    )
    assert charts.save_all(charts.every(audit), tmp_path) == len(names)
    files = [path.name for path in tmp_path.glob("*.svg")]
    assert len({name.casefold() for name in files}) == len(names)
    assert all(len(name.encode()) <= 255 for name in files)


def test_a_notebook_shows_a_chart_without_the_network() -> None:
    found = evidence()[0]
    chart = charts.claim(found, made((found,)).verdicts[0])
    shows = {name for name in dir(chart) if name.startswith("_repr_")}
    assert shows == {"_repr_svg_"}
    assert chart._repr_svg_().startswith("<svg xmlns=") and "<script" not in chart._repr_svg_()


def test_every_mark_of_a_chart_says_what_it_stands_for() -> None:
    found = Evidence(CLAIMS["used"].claim, rows(np.linspace(0.1, 0.3, 50)))
    drawn = charts.svg(charts.claim(found, made((found,)).verdicts[0]))
    tips = re.findall(r'<path aria-label="([^"]*)"', drawn)
    assert sum(int(n) for tip in tips for n in re.findall(r"^(\d+) documents? from", tip)) == 50
    assert sum(tip.startswith("mean 0.200 [") for tip in tips) == 1


def test_an_audit_page_is_drawn_without_the_programs_of_vega() -> None:
    page = html.audit(mixed())
    assert "vega" not in page.lower() and len(page.encode()) < 400_000


@pytest.mark.parametrize("name", ["a\"b'c", "<b>x</b>", "x]", "a\\b", "\u202ex", "__proto__"])
def test_names_are_looked_up_by_number(name: str) -> None:
    claim = CLAIMS["tracks"].claim
    found = (Evidence(claim, rows(np.linspace(0, 1, 40)), method=name),)
    page = check_safe(
        html.audit(made(found, ((explanation(method=name),),), methods={name: {}})), 1
    )
    assert [c["number"] for c in json.loads(page.scripts[0])["claims"]] == [0]
    assert not page.values("data-chart") and not page.values("data-claim")
