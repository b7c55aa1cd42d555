"""What comes out: remarks, files and what is printed; refused before any work is done for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

from heed import store
from heed.cli.options import Format
from heed.errors import OutputError

if TYPE_CHECKING:
    from heed.audit import Audit


# What an audit can be written as.
AUDIT_ENDINGS = (".html", ".md", ".tex", ".json", ".csv", ".parquet")


def console() -> Console:
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 80
    return Console(highlight=False, width=width)


def say(text: str) -> None:
    """A remark to the person at the terminal, apart from the output."""
    from heed.text import printable

    Console(stderr=True, highlight=False).print(Text(printable(text)), soft_wrap=True)


def status(text: str) -> Any:
    """A spinner for the person at the terminal, and nothing in a log."""
    return Console(stderr=True).status(f"{text} …") if sys.stderr.isatty() else nullcontext()


@contextmanager
def resumable() -> Iterator[None]:
    """Say that nothing is lost when somebody interrupts what takes long."""
    try:
        yield
    except KeyboardInterrupt:
        say("stopped: run the same command again to resume")
        raise


def check_writable(path: Path | None, endings: Sequence[str] | None = None) -> None:
    """Refuse an output before any work is done for it."""
    if path is None:
        return
    if endings and path.suffix not in endings:
        named = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
        raise OutputError(f"{path} must end in {named}.")
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        why = "it is a folder" if path.is_dir() else f"there is no folder {folder}"
        raise OutputError(f"{path} cannot be written: {why}.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise OutputError(f"{path} cannot be written: permission denied.")


def check_outputs(paths: Sequence[Path] | None, figures: Path | None) -> None:
    """Refuse the files and the folder of charts of an audit before any work is done for them."""
    for path in paths or ():
        check_writable(path, AUDIT_ENDINGS)
    if figures is not None:
        store.check_writable(figures)


def shows_documents(paths: Sequence[Path] | None) -> bool:
    """Whether one of the files of an audit shows documents with their explanations."""
    return any(path.suffix in (".html", ".parquet") for path in paths or ())


def write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text)
        return
    with store.cannot_write(output):
        output.write_text(text + "\n", encoding="utf8", errors="replace")


def emit_audit(
    audit: Audit,
    format: Format,
    outputs: Sequence[Path],
    figures: Path | None,
    verbose: bool = False,
) -> None:
    """Write files and charts, and print the audit."""
    from heed.report import audit_page, exports, terminal

    writers = exports.WRITERS | {".html": audit_page.audit}
    for path in outputs:  # before anything is printed: the reader may have gone
        if path.suffix == ".parquet":
            audit.save(path)
        else:
            write(writers[path.suffix](audit), path)
    if figures is not None:
        from heed.report import charts, forest

        with status("drawing"):
            written = charts.save_all(forest.every(audit), figures)
    if format == Format.text:
        console().print(terminal.audit(audit, verbose))
    else:
        typer.echo(writers[f".{format}"](audit))
    for path in outputs:
        say(f"written to {path}")
    if figures is not None:
        say(f"{written} charts written to {figures}, each as SVG, PNG and PDF")
