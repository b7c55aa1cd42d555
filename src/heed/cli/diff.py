"""`heed diff`: compare two audits, or two rankings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heed.cli import options
from heed.cli.options import Format
from heed.cli.outputs import check_writable, console, say, write
from heed.cli.root import app

_ENDINGS = (".json", ".md", ".html", ".csv")


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="The .parquet file of an audit or a ranking.")],
    new: Annotated[Path, typer.Argument(help="That of a later one.")],
    format: options.Printed = Format.text,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help="Write .json, .md, .html or .csv; may be repeated."),
    ] = None,
    fail_on_change: Annotated[
        bool,
        typer.Option(
            "--fail-on-change",
            metavar="",
            help="Exit with code 1 if a verdict, the recommended method or the best group changed.",
        ),
    ] = False,
) -> None:
    """Compare two audits, or two rankings, document by document: what changed, and by how much.

    heed audit --model before -o old.parquet; heed audit --model after -o new.parquet

    heed diff old.parquet new.parquet -o diff.html

    heed diff old.parquet new.parquet --fail-on-change

    Any other outcome is a change, from undecided to decided too. In a ranking, it is a change if
    another method is recommended, or if one joins or leaves those that are as good as the best.
    """
    for path in output or ():
        check_writable(path, _ENDINGS)
    from heed.rank import diff as compare
    from heed.report import diff as report

    compared = compare(old, new)
    drawn = {
        ".json": report.as_json,
        ".md": report.as_markdown,
        ".html": report.html,
        ".csv": report.as_csv,
    }
    for path in output or ():
        write(drawn[path.suffix](compared), path)
    if format == Format.text:
        console().print(report.terminal(compared))
    else:
        typer.echo(drawn[f".{format.value}"](compared))
    for path in output or ():
        say(f"written to {path}")
    if fail_on_change and compared.changed:
        names = [c if isinstance(c, str) else c.name for c in compared.changed]
        say(f"changed: {', '.join(names)} (--fail-on-change)")
        raise typer.Exit(1)
