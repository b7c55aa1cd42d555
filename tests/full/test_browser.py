"""The pages in a real browser: all is shown, nothing is fetched and nothing fails."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import OFFERED, UNTRAINED

import heed
from heed.audit import Audit, Example
from heed.claims import CLAIMS, Evidence
from heed.recommendation import Recommendation
from heed.report import html
from heed.report.numbers import number

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

HOSTILE = (
    "a great film <script>document.title='broken'</script> & \"quotes\" 🎬 شكرا"
    " <img src=x onerror=alert(1)>"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    model, folder = heed.load(), tmp_path_factory.mktemp("pages")
    texts = [*(d.text for d in heed.data.tasks.reviews(39)), HOSTILE]
    found = {
        "audit": html.audit(heed.audit(model, texts[::-1], examples=200)),
        "explanation": html.explanations([heed.explain(model, HOSTILE, m) for m in OFFERED]),
    }
    for name, page in found.items():
        (folder / f"{name}.html").write_text(page, encoding="utf8")
    return {name: folder / f"{name}.html" for name in found}


def browse(page: Path, profile: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page in a new browser that has no network."""
    assert CHROMIUM
    fixed = [
        *(
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
        ),
        *(
            f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=10000",
        ),
        *("--enable-logging=stderr", "--log-level=0", "--hide-scrollbars"),
    ]
    done = subprocess.run(
        [CHROMIUM, *fixed, *options, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("name", ["audit", "explanation"])
def test_a_page_is_shown_without_errors(pages: dict[str, Path], name: str, tmp_path: Path) -> None:
    done = browse(pages[name], tmp_path / "profile", "--dump-dom")
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    dom = done.stdout
    assert "<title>broken" not in dom.partition("</head>")[0]
    shown = re.sub(r"<(script|style)\b.*?</\1>|<[^>]+>", "", dom, flags=re.DOTALL)
    assert "&lt;script&gt;document.title='broken'&lt;/script&gt;" in shown
    assert "شكرا" in shown and "🎬" in shown
    judged = [n for n, test in UNTRAINED.items() if not test.claim.check]
    for word in judged if name == "audit" else OFFERED:
        assert word in shown
    if name == "audit":
        assert (
            dom.count("<svg") + dom.count("<canvas") >= len(judged) - 4
        )  # without marks, pairs and null spaces
        assert any(outcome in shown for outcome in ("supported", "refuted"))
    assert "NaN" not in shown and "undefined" not in shown and "[object" not in shown


def test_the_check_for_errors_would_see_one(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text(
        "<!doctype html><title>x</title><script>nothing.at.all()</script>", encoding="utf8"
    )
    done = browse(page, tmp_path / "profile", "--dump-dom")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("size", ["1200,2000", "400,2000"], ids=["wide", "telephone"])
@pytest.mark.parametrize("name", ["audit", "explanation"])
def test_a_page_is_not_blank(pages: dict[str, Path], name: str, size: str, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    shot = tmp_path / "shot.png"
    browse(pages[name], tmp_path / "profile", f"--window-size={size}", f"--screenshot={shot}")
    picture = image.open(shot).convert("RGB")
    assert f"{picture.width},{picture.height}" == size
    colours = picture.getcolors(maxcolors=1 << 24)
    ground = max(n for n, _ in colours)
    assert len(colours) > 50  # text, shades, charts
    assert 0.3 < ground / (picture.width * picture.height) < 0.99


def driven(page: Path, profile: Path, script: str, *options: str) -> Any:
    """What a script finds after a page was shown; the page itself would not run it."""
    source = page.read_text(encoding="utf8")
    assert source.count("; script-src ") == 1
    source = re.sub(r"; script-src [^\"]*", "; script-src 'unsafe-inline'", source, count=1)
    code = f"""
        window.addEventListener("load", async () => {{
          const found = await (async () => {{ {script} }})();
          const pre = document.createElement("pre");
          pre.id = "found";
          pre.textContent = JSON.stringify(found);
          document.body.append(pre);
        }});
    """
    copy = profile.parent / "driven.html"
    copy.write_text(
        f"<script>{code}</script></body>".join(source.rsplit("</body>", 1)), encoding="utf8"
    )
    done = browse(copy, profile, "--dump-dom", *options)
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line], done.stderr
    (found,) = re.findall(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    return json.loads(unescape(found))


def test_documents_can_be_leafed_through(pages: dict[str, Path], tmp_path: Path) -> None:
    found = driven(
        pages["audit"],
        tmp_path / "profile",
        """
        const $ = (id) => document.getElementById(id), text = (id) => $(id).textContent, found = {};
        found.documents = $("document").options.length;
        found.first = text("texts");
        const spans = $("texts").querySelector(".words").querySelectorAll("[data-word]");
        found.words = [...spans].map((w) => w.textContent);
        const unsafe = document.querySelectorAll("#texts script, #texts img").length;
        found.safe = [document.title, unsafe];
        $("next").click();
        found.second = [text("place"), text("outlook")];
        $("previous").click();
        const word = document.querySelector("#texts [data-word='1']");
        word.click();
        const rows = $("word-scores").rows.length;
        found.word = [text("word"), text("word-effect"), rows, word.className];
        $("word-next").click();
        found.further = text("word");
        const key = new KeyboardEvent("keydown", {key: "ArrowLeft", bubbles: true});
        $("texts").querySelector(".words").dispatchEvent(key);
        found.back = text("word");
        found.heads = [$("heads").children.length, $("heads").querySelectorAll("rect").length];
        found.bands = $("bands").rows.length;
        const by = [...$("sort").options].find((o) => o.textContent.startsWith("by used,"));
        $("sort").value = by.value; $("sort").dispatchEvent(new Event("change"));
        found.sorted = [...$("document").options].map((o) => Number.parseFloat(o.textContent));
        $("filter").value = "0"; $("filter").dispatchEvent(new Event("change"));
        const titles = [...$("document").options].map((o) => o.textContent);
        found.filtered = titles.every((title) => title.includes("negative"));
        document.querySelector("button[data-document]").click();
        found.opened = [text("place"), $("filter").value];
        const visible = (svg) => svg.getClientRects().length > 0;
        found.answer = [text("answer"), document.querySelectorAll(".tile").length];
        const all = [...document.querySelectorAll("section.claim figure.chart")];
        const figures = all.filter((f) => f.getClientRects().length > 0);
        found.charts = figures.map((f) => [...f.querySelectorAll("svg")].filter(visible).length);
        const bar = figures[0].querySelector(".role-mark [aria-label]"), tip = $("tip");
        found.tips = [tip.hidden];
        bar.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
        found.tips.push(tip.textContent, tip.hidden);
        figures[0].dispatchEvent(new PointerEvent("pointerleave"));
        found.tips.push(tip.hidden);
        const arrow = (key) => figures[0].dispatchEvent(new KeyboardEvent("keydown", {key}));
        figures[0].focus();
        found.focused = document.activeElement === figures[0];
        arrow("ArrowRight"); arrow("ArrowRight");
        found.tips.push(tip.textContent);
        arrow("Escape");
        found.tips.push(tip.hidden);
        return found;
        """,
    )
    assert found["documents"] == 40
    assert "<script>document.title='broken'</script>" in found["first"] and "شكرا" in found["first"]
    assert found["words"] == [u.text for u in heed.explain(heed.load(), HOSTILE, "occlusion").units]
    assert found["safe"][0].startswith("Audit of") and found["safe"][1] == 0
    assert found["second"][0] == "2 of 40" and "Document 2" in found["second"][1]
    word, effect, rows, chosen = found["word"]
    assert (word, chosen) == ("great", "chosen") and rows >= 5
    assert re.search(r"probability of \w+ goes from 0\.\d{3} to 0\.\d{3}.*head by head: ", effect)
    assert found["further"] == "film" and found["back"] == "great"
    heads, bars = found["heads"]
    assert heads == heed.load().shape.heads and bars % heads == 0 and bars > heads  # type: ignore[attr-defined]
    assert found["bands"] == 12
    assert found["sorted"] == sorted(found["sorted"], reverse=True) and len(found["sorted"]) == 40
    assert found["filtered"] and found["opened"][1] == "all"
    assert len(found["charts"]) >= 5 and set(found["charts"]) == {1}  # for this width
    assert found["answer"][0].endswith(".") and found["answer"][1] == 8
    before, pointed, hidden, left, further, closed = found["tips"]
    assert before and left and closed and not hidden and found["focused"]
    assert re.fullmatch(r"\d+ documents? from [-.\de]+ to [-.\de]+", pointed)
    assert further != pointed and " from " in further


SHOWN = """
    const shown = (all) => [...all].filter((part) => part.getClientRects().length > 0);
    const names = () => shown(document.querySelectorAll(".method")).map((m) => m.dataset.name);
"""


def test_an_explanation_is_shown_once_with_a_switch_for_the_method(
    pages: dict[str, Path], tmp_path: Path
) -> None:
    found = driven(
        pages["explanation"],
        tmp_path / "profile",
        SHOWN
        + """
        const found = {first: names()};
        const tabs = [...document.querySelectorAll("[role=tab]")];
        found.tabs = tabs.map((tab) => tab.textContent);
        found.groups = [...document.querySelectorAll(".switch .group > span")];
        found.groups = found.groups.map((group) => group.textContent);
        tabs[3].click();
        found.clicked = names();
        const press = (key) =>
          document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
        tabs[3].focus();
        press("ArrowRight");
        found.right = [names(), document.activeElement.textContent];
        press("End"); press("ArrowRight");
        found.around = [names(), document.activeElement.textContent];
        press("ArrowLeft");
        found.back = names();
        press("Home"); press("x");
        found.home = names();
        found.selected = tabs.map((tab) => tab.getAttribute("aria-selected"));
        found.reached = tabs.filter((tab) => tab.tabIndex === 0).length;
        const panel = document.getElementById(tabs[0].getAttribute("aria-controls"));
        found.panel = [panel.dataset.name, panel.getAttribute("aria-labelledby") === tabs[0].id];
        found.safe = [document.title, document.querySelectorAll("article script, img").length];
        return found;
        """,
    )
    assert found["tabs"] == OFFERED and found["first"] == found["home"] == OFFERED[:1]
    assert found["groups"] == ["attention", "gradient", "removal", "chance"]
    assert found["clicked"] == [OFFERED[3]]
    assert found["right"] == [[OFFERED[4]], OFFERED[4]]
    assert found["around"] == [[OFFERED[0]], OFFERED[0]] and found["back"] == [OFFERED[-1]]
    assert found["selected"] == ["true"] + ["false"] * (len(OFFERED) - 1)
    assert found["reached"] == 1 and found["panel"] == [OFFERED[0], True]
    assert found["safe"] == ["Explanations", 0]


def test_without_scripts_and_on_paper_each_method_has_its_own_text(
    pages: dict[str, Path], tmp_path: Path
) -> None:
    source = pages["explanation"].read_text(encoding="utf8")
    silent = re.sub(r"(?s)<script>.*?</script>", "", source)
    printed = source.replace("@media print", "@media all")
    assert silent != source != printed
    for name, page in (("silent", silent), ("printed", printed)):
        path = tmp_path / f"{name}.html"
        path.write_text(page, encoding="utf8")
        asked = f"{SHOWN} return [names(), shown(document.querySelectorAll('.switch')).length];"
        (tmp_path / name).mkdir()
        assert driven(path, tmp_path / name / "profile", asked) == [OFFERED, 0]


def test_the_page_opens_with_the_method_that_is_recommended(tmp_path: Path) -> None:
    methods = ["attention-mean", "occlusion", "lime"]
    explanations = [heed.explain(heed.load(), HOSTILE, m) for m in methods]
    best = Recommendation("occlusion", "<b>its</b> words matter most", 30, "<i>data</i>")
    page = tmp_path / "page.html"
    page.write_text(html.explanations(explanations, best=best), encoding="utf8")
    asked = f"{SHOWN} return [names(), document.querySelector('.best').textContent];"
    shown, sentence = driven(page, tmp_path / "profile", asked)
    assert shown == ["occlusion"]
    assert sentence == (
        "On this model trust occlusion: <b>its</b> words matter most (ranked on 30 documents of"
        " <i>data</i>)."
    )


NAMES = (
    "\"]'><img src=x onerror=document.title='broken'>",
    "</script><script>document.title='broken'</script>",
    "a\\\"b]'c#d.e\u202e\x00",
)


def hostile_audit() -> Audit:
    """Documents whose ids, labels and methods are markup, quotes and brackets."""
    texts = [f"a {word} film" for word in ("great", "dull", "slow", "fine")] * 10
    imported = []
    for name in NAMES:
        scores = [
            replace(e, method=name, label=NAMES[0], probabilities={NAMES[0]: 0.9, NAMES[1]: 0.1})
            for e in (heed.explain(heed.load(), text, "occlusion") for text in texts[:4])
        ]
        imported.append(
            [
                replace(e, document=replace(e.document, id=f"{i} {name}"))
                for i, e in enumerate(scores)
            ]
        )
    rows = [{"document": i, "id": name, "value": i / 40} for i in range(40) for name in NAMES[:1]]
    claim = CLAIMS["tracks"].claim
    facts = {
        "model": NAMES[0],
        "revision": NAMES[1],
        "data": NAMES[2],
        "documents": 40,
        "seed": 0,
        "accuracy": None,
        "methods": {name: {} for name in NAMES},
        "seconds": 1.0,
        "heed": "0",
    }
    return Audit(
        facts,
        tuple(Evidence(claim, rows, method=name) for name in NAMES),
        examples=tuple(Example(group) for group in zip(*imported, strict=True)),
    )


def test_names_of_any_kind_neither_stop_the_script_nor_run(tmp_path: Path) -> None:
    page = tmp_path / "hostile.html"
    page.write_text(html.audit(hostile_audit()), encoding="utf8")
    untouched = browse(page, tmp_path / "plain", "--dump-dom")
    assert not [line for line in untouched.stderr.splitlines() if "CONSOLE" in line]
    assert "<title>broken" not in untouched.stdout
    found = driven(
        page,
        tmp_path / "profile",
        """
        const $ = (id) => document.getElementById(id), found = {};
        $("sort").value = "1"; $("sort").dispatchEvent(new Event("change"));
        found.sorted = $("document").options.length;
        $("filter").value = "0"; $("filter").dispatchEvent(new Event("change"));
        found.filtered = $("document").options.length;
        document.querySelector("#texts [data-word]").click();
        found.rows = $("word-scores").rows.length;
        document.querySelector("button[data-document]").click();
        found.injected = document.querySelectorAll("img, #reader script").length;
        found.title = document.title;
        found.charts = document.querySelectorAll("figure.chart svg").length;
        return found;
        """,
    )
    assert found["sorted"] == found["filtered"] == 4 and found["rows"] == len(NAMES)
    assert found["injected"] == 0 and found["title"].startswith("Audit of")
    # wide and narrow ones, also of all claims together, and the agreement
    assert found["charts"] == 2 * (len(NAMES) + 1) + 1


def test_the_page_writes_numbers_as_all_else_does(tmp_path: Path) -> None:
    script = resources.files("heed.report").joinpath("templates", "audit.js").read_text("utf8")
    (function,) = re.findall(r"  const number = \(x\) => \{.*?\n  \};\n", script, re.DOTALL)
    rng = np.random.default_rng(0)
    values = [0, -0.25, 1, 99.5, 150.26, 1234.6, 1e9, 2.5e12, 0.0005, 0.0004, 1e-4, 9.4e-5, 1e-13]
    values += list((rng.choice([-1, 1], 300) * 10 ** rng.uniform(-12, 12, 300)).round(15))
    page = tmp_path / "numbers.html"
    page.write_text(
        f"<!doctype html><pre id=out></pre><script>{function}\n"
        f"document.getElementById('out').textContent = {json.dumps(values)}.map(number).join('|');"
        "</script>",
        encoding="utf8",
    )
    done = browse(page, tmp_path / "profile", "--dump-dom")
    (texts,) = re.findall(r'<pre id="out">(.*?)</pre>', done.stdout)
    assert texts.split("|") == [number(v) for v in values]


def test_a_telephone_shows_narrow_charts(pages: dict[str, Path], tmp_path: Path) -> None:
    found = driven(
        pages["audit"],
        tmp_path / "profile",
        """
        const figures = [...document.querySelectorAll("figure.chart")];
        const shown = figures.filter((f) => f.getClientRects().length > 0);
        const charts = [...document.querySelectorAll("figure.chart svg")];
        const visible = charts.filter((svg) => svg.getClientRects().length > 0);
        const fits = visible.every((svg) => svg.getBoundingClientRect().right <= innerWidth);
        const tips = (svg) =>
          [...svg.querySelectorAll(".role-mark [aria-label]")].map((m) => m.ariaLabel).join();
        const label = (f) => [...f.querySelectorAll("svg")].map(tips);
        const pairs = [...document.querySelectorAll("figure.chart:not(.small-chart)")].map(label);
        return {fits, visible: visible.length, same: pairs.every(([a, b]) => a === b),
                figures: shown.length};
        """,
        "--window-size=500,2000",
    )
    assert found["fits"] and found["same"] and found["visible"] == found["figures"] >= 6


def test_a_script_that_is_not_the_pages_own_does_not_run(
    pages: dict[str, Path], tmp_path: Path
) -> None:
    source = pages["audit"].read_text(encoding="utf8")
    other = tmp_path / "other.html"
    other.write_text(
        "<script>document.title='broken'</script></body>".join(source.rsplit("</body>", 1)),
        encoding="utf8",
    )
    done = browse(other, tmp_path / "profile", "--dump-dom")
    assert "<title>Audit of" in done.stdout


def test_a_page_of_long_documents_stays_below_3_mb() -> None:
    words = list(heed.load().tokenizer.backend.get_vocab())[:400]  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, 250)) for _ in range(200)]
    methods = ["attention-mean", "lime-exact"]
    found = heed.audit(heed.load(), texts, ["used", "removes"], methods, examples=200)
    page = html.audit(found)
    assert len(page.encode()) < 3e6
    assert page.count('"heads":{') == 200
