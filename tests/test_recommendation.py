"""What a ranking recommends is found again, for that revision of the model alone."""

from pathlib import Path

import pytest
from conftest import Heard

from heed import recommendation
from heed.progress import listening
from heed.recommendation import Recommendation, keep, kept

BEST = Recommendation("lime", "its words matter most when removed", 200, "rotten_tomatoes (train)")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_last_recommendation_of_a_revision_counts() -> None:
    assert kept("abc") is None
    keep("abc", BEST)
    keep("../../other/revision", Recommendation("occlusion", "“so” \x1b", 3, "x"))
    assert kept("abc") == BEST
    assert kept("../../other/revision") == Recommendation("occlusion", "“so” \x1b", 3, "x")
    keep("abc", Recommendation("shapley", "it is stable", 30, "mine.csv"))
    assert kept("abc") == Recommendation("shapley", "it is stable", 30, "mine.csv")
    assert kept("abcd") is None
    keep("abc", Recommendation("shapley", "it is stable", 30, "caf\udce9.csv"))  # a file's name
    assert kept("abc") == Recommendation("shapley", "it is stable", 30, "caf?.csv")


def test_functions_without_a_revision_share_no_recommendation() -> None:
    keep("unknown", BEST)
    assert kept("unknown") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"method": 3}', b"\xff\xfe", b"null"])
def test_a_file_of_another_form_is_none(content: bytes) -> None:
    keep("abc", BEST)
    recommendation._path("abc").write_bytes(content)
    assert kept("abc") is None


def test_a_cache_that_cannot_be_written_to_is_remarked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "file"))
    heard = Heard()
    with listening(heard):
        keep("abc", BEST)
    (line,) = heard.lines
    assert line.startswith("The recommendation is not kept") and kept("abc") is None
