"""The pages in a real browser: what they say is shown, charts are drawn, nothing is fetched and nothing fails."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import OFFERED, UNTRAINED

import heed
from heed.report import html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

HOSTILE = "a great film <script>document.title='broken'</script> & \"quotes\" 🎬 شكرا <img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    model, folder = heed.load(), tmp_path_factory.mktemp("pages")
    texts = [*(d.text for d in heed.data.tasks.reviews(39)), HOSTILE]
    found = {
        "audit": html.audit(heed.audit(model, texts[::-1])),
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
    for word in UNTRAINED if name == "audit" else OFFERED:
        assert word in shown
    if name == "audit":
        assert (
            dom.count("<svg") + dom.count("<canvas") >= len(UNTRAINED) - 4
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


def driven(page: Path, profile: Path, script: str) -> Any:
    """What a script finds after a page was shown; the page itself would not run it."""
    source = page.read_text(encoding="utf8")
    assert source.count("; script-src ") == 1
    source = re.sub(r"; script-src [^\"]*", "; script-src 'unsafe-inline'", source, count=1)
    code = f"window.addEventListener('load', async () => {{ const found = await (async () => {{ {script} }})();"
    code += " const pre = document.createElement('pre'); pre.id = 'found'; pre.textContent = JSON.stringify(found);"
    code += " document.body.append(pre); });"
    copy = profile.parent / "driven.html"
    copy.write_text(
        f"<script>{code}</script></body>".join(source.rsplit("</body>", 1)), encoding="utf8"
    )
    done = browse(copy, profile, "--dump-dom")
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
        found.words = [...$("texts").querySelector(".words").querySelectorAll("[data-word]")].map((w) => w.textContent);
        found.safe = [document.title, document.querySelectorAll("#texts script, #texts img").length];
        $("next").click();
        found.second = [text("place"), text("outlook")];
        $("previous").click();
        const word = document.querySelector("#texts [data-word='1']");
        word.click();
        found.word = [text("word"), text("word-effect"), $("word-scores").rows.length, word.className];
        $("word-next").click();
        found.further = text("word");
        const key = new KeyboardEvent("keydown", {key: "ArrowLeft", bubbles: true});
        $("texts").querySelector(".words").dispatchEvent(key);
        found.back = text("word");
        found.heads = [$("heads").children.length, $("heads").querySelectorAll("rect").length];
        found.bands = $("bands").rows.length;
        $("sort").value = "used"; $("sort").dispatchEvent(new Event("change"));
        found.sorted = [...$("document").options].map((o) => Number.parseFloat(o.textContent));
        $("filter").value = "0"; $("filter").dispatchEvent(new Event("change"));
        found.filtered = [...$("document").options].every((o) => o.textContent.includes("negative"));
        document.querySelector("button[data-document]").click();
        found.opened = [text("place"), $("filter").value];
        await new Promise((done) => setTimeout(done, 3000));
        found.charts = document.querySelectorAll("[data-chart] .vega-embed svg, [data-chart] div svg.marks").length;
        found.places = document.querySelectorAll("[data-chart]").length;
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
    assert found["charts"] == found["places"] >= 10


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
    found = heed.audit(heed.load(), texts, ["used", "removes"], ["attention-mean", "lime-exact"])
    page = html.audit(found)
    assert len(page.encode()) < 3e6
    assert page.count('"heads":{') == 200
