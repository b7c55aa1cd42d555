"""Tell somebody who waits: progress bars and remarks, through one context variable.

Code that computes calls `bar` and `say` and never learns who listens. By default nobody does. The
command line listens with `listening(Terminal())`; so does a Python user who wants bars:

    with heed.show_progress():
        heed.audit(model, reviews)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Listener:
    """Who is told. This one hears everything and shows nothing."""

    def open(self, label: str, total: int, unit: str, done: int) -> Any:
        """Show a bar; what is returned has `update(n)`, `set_postfix_str(text)` and `close()`."""
        return None

    def say(self, line: str) -> None:
        """Show a remark of one line."""


class Log(Listener):
    """Remarks without bars: for a log file, where the frames of a bar are noise."""

    def say(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class Terminal(Log):
    """Bars for what takes more than a second, and remarks above them."""

    def open(self, label: str, total: int, unit: str, done: int) -> Any:
        from tqdm.auto import tqdm

        return tqdm(desc=label, total=total, unit=unit, initial=done, leave=False, delay=1)

    def say(self, line: str) -> None:
        from tqdm.auto import tqdm

        tqdm.write(line, file=sys.stderr)


_NOBODY = Listener()
_listener: ContextVar[Listener] = ContextVar("heed_progress", default=_NOBODY)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell this listener, as long as the context lasts."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def show_progress() -> Iterator[None]:
    """Show progress bars and remarks on standard error, as long as the context lasts."""
    with listening(Terminal()):
        yield


def for_stderr() -> Listener:
    """Bars and remarks if standard error is a terminal; remarks alone if it is a file or a pipe."""
    return Terminal() if sys.stderr.isatty() else Log()


def say(line: str) -> None:
    """A remark for somebody who waits."""
    _listener.get().say(line)


def heard() -> bool:
    """Whether anybody listens."""
    return _listener.get() is not _NOBODY


def roughly(seconds: float) -> str:
    """How long something takes, for somebody who waits: "40 s", "3 min", "2.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Bar(Generic[T]):
    """Progress over items, or by `advance` where there are none to go through."""

    def __init__(self, items: Iterable[T], label: str, total: int, unit: str, done: int):
        self._items = items
        self._bar = _listener.get().open(label, total, unit, done)

    def advance(self, n: int = 1) -> None:
        if self._bar is not None:
            self._bar.update(n)

    def note(self, text: str) -> None:
        """A word behind the bar, such as the loss so far."""
        if self._bar is not None:
            self._bar.set_postfix_str(text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def __iter__(self) -> Iterator[T]:
        with self:
            for item in self._items:
                yield item
                self.advance()

    def __enter__(self) -> Bar[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def bar(items: Sequence[T], label: str, unit: str = "doc") -> Bar[T]:
    """Progress over items: `for document in bar(documents, "lime")`."""
    return Bar(items, label, len(items), unit, 0)


def counter(total: int, label: str, unit: str = "doc", done: int = 0) -> Bar[int]:
    """Progress by number: `with counter(n, "lime") as b: b.advance(64)`.

    `done` counts what an earlier run did.
    """
    return Bar((), label, total, unit, done)
