"""A fresh machine: clone, `make demo`, look at what it made, `make demo` again. Needs PyPI."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone of the repository"),
    pytest.mark.skipif(
        shutil.which("git") is None or shutil.which("make") is None, reason="git or make is missing"
    ),
]


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of someone who knows nothing of our data, with a home of their own."""
    unwanted = ("HEED_", "PYTHON", "VIRTUAL_ENV", "PYTEST", "COV_", "MAKE", "MFLAGS")
    found = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    path = os.pathsep.join(p for p in found["PATH"].split(os.pathsep) if ".venv" not in p)
    home = str(tmp_path_factory.mktemp("home"))
    return found | {
        "PATH": path,
        "HF_HUB_OFFLINE": "1",
        "HEED_CACHE": f"{home}/cache",
        "XDG_CACHE_HOME": f"{home}/xdg",
    }


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone") / "heed"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    assert not (folder / ".venv").exists()
    return folder


def demo(clone: Path, surroundings: dict[str, str]) -> str:
    done = subprocess.run(
        ["make", "demo"], cwd=clone, env=surroundings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    said = [
        line for line in done.stderr.splitlines() if line.startswith("written to ")
    ]  # and not what pip has to say
    return "\n".join([done.stdout, *said])


@pytest.fixture(scope="module")
def first(clone: Path, surroundings: dict[str, str]) -> str:
    return demo(clone, surroundings)


def test_the_demo_explains_a_review_and_audits_the_model(clone: Path, first: str) -> None:
    assert "selection" in first and "lime" in first
    assert "Audit of single-layer-imdb" in first and "imdb_held_out" in first
    assert "written to out/explanation.html" in first and "written to out/audit.html" in first
    for name in ("explanation.html", "audit.html"):
        page = (clone / "out" / name).read_text(encoding="utf8")
        assert page.lower().startswith("<!doctype html")
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert (clone / "out" / "audit.parquet").stat().st_size > 1000


def test_no_distribution_for_a_gpu_was_installed(
    clone: Path, first: str, surroundings: dict[str, str]
) -> None:
    done = subprocess.run(
        [clone / ".venv/bin/python", "-m", "pip", "list", "--format", "json"],
        env=surroundings,
        capture_output=True,
        text=True,
        check=True,
    )
    names = {row["name"].lower(): row["version"] for row in json.loads(done.stdout)}
    assert not [name for name in names if name.startswith(("nvidia", "triton", "cuda"))]
    assert names["torch"].startswith("2.13.0")


def test_a_second_run_installs_nothing_and_shows_the_same(
    clone: Path, first: str, surroundings: dict[str, str]
) -> None:
    before = sorted(p.name for p in (clone / ".venv/lib").glob("python*/site-packages/*"))
    page = (clone / "out" / "audit.html").read_text(encoding="utf8")
    again = demo(clone, surroundings)
    assert sorted(p.name for p in (clone / ".venv/lib").glob("python*/site-packages/*")) == before
    assert "pip install" not in again
    assert _lasting(again.partition("heed audit")[2]) == _lasting(first.partition("heed audit")[2])
    assert _lasting((clone / "out" / "audit.html").read_text(encoding="utf8")) == _lasting(page)


def _lasting(text: str) -> str:
    """What does not depend on how long anything took."""
    return re.sub(r"\d[\d,.]*\s*(ms|s|min|h)\b", "", text)
