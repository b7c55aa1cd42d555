"""The pages in a real browser: what they say is shown, charts are drawn, nothing is fetched and nothing fails."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import OFFERED, UNTRAINED

import heed
from heed.report import html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [pytest.mark.full, pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")]

HOSTILE = "a great film <script>document.title='broken'</script> & \"quotes\" 🎬 شكرا <img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    model, folder = heed.load(), tmp_path_factory.mktemp("pages")
    texts = [*(d.text for d in heed.tasks.reviews(39)), HOSTILE]
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
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
        *(f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=10000"),
        *("--enable-logging=stderr", "--log-level=0", "--hide-scrollbars"),
    ]
    done = subprocess.run(
        [CHROMIUM, *fixed, *options, page.as_uri()], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("name", ["audit", "explanation"])
def test_a_page_is_shown_without_errors(pages: dict[str, Path], name: str, tmp_path: Path) -> None:
    done = browse(pages[name], tmp_path / "profile", "--dump-dom")
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    dom = done.stdout
    assert "<title>broken" not in dom
    shown = re.sub(r"<(script|style)\b.*?</\1>|<[^>]+>", "", dom, flags=re.DOTALL)
    assert "&lt;script&gt;document.title='broken'&lt;/script&gt;" in shown
    assert "شكرا" in shown and "🎬" in shown
    for word in UNTRAINED if name == "audit" else OFFERED:
        assert word in shown
    if name == "audit":
        assert dom.count("<svg") + dom.count("<canvas") >= len(UNTRAINED) - 4  # without marks, pairs and null spaces
        assert any(outcome in shown for outcome in ("supported", "refuted"))
    assert "NaN" not in shown and "undefined" not in shown and "[object" not in shown


def test_the_check_for_errors_would_see_one(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<!doctype html><title>x</title><script>nothing.at.all()</script>", encoding="utf8")
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
