"""Progress and remarks reach whoever listens, and nobody else."""

import io
import sys

import pytest

from heed.progress import Listener, Log, Terminal, bar, counter, for_stderr, listening, say


class Ear(Listener):
    """Notes everything that it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def open(self, label: str, total: int, unit: str, done: int) -> "Ear":
        self.heard.append((label, total, unit, done))
        return self

    def say(self, line: str) -> None:
        self.heard.append(line)

    def update(self, n: int) -> None:
        self.heard.append(n)

    def set_postfix_str(self, text: str) -> None:
        self.heard.append(text)

    def close(self) -> None:
        self.heard.append("closed")


def test_by_default_nobody_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    say("a remark")
    assert list(bar([1, 2], "work")) == [1, 2]
    with counter(3, "work") as count:
        count.advance(3)
    assert capsys.readouterr() == ("", "")


def test_a_listener_hears_bars_and_remarks() -> None:
    ear = Ear()
    with listening(ear):
        assert list(bar("ab", "letters")) == ["a", "b"]
        with counter(10, "steps", "batch", done=4) as count:
            count.advance(6)
            count.note("loss 0.1")
        say("finished")
    say("to nobody")
    letters = [("letters", 2, "doc", 0), 1, 1, "closed"]
    assert ear.heard == [*letters, ("steps", 10, "batch", 4), 6, "loss 0.1", "closed", "finished"]


def test_a_bar_closes_when_the_work_fails() -> None:
    ear = Ear()
    with listening(ear), pytest.raises(ZeroDivisionError):
        [1 / item for item in bar([1, 0], "work")]
    assert ear.heard[-1] == "closed"


def test_a_log_file_gets_remarks_and_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(for_stderr()) is Log
    with listening(for_stderr()):
        list(bar(range(3), "work"))
        say("finished")
    assert sys.stderr.getvalue() == "finished\n"


def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Screen())
    assert type(for_stderr()) is Terminal
