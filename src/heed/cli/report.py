"""`heed report`: redraw an audit, a ranking or a reproduction from what it measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from heed.cli import options
from heed.cli.options import Format
from heed.cli.outputs import check_outputs, console, emit_audit, say, write
from heed.cli.rank import emit_ranking
from heed.cli.reproduce import emit_reproduction
from heed.cli.root import app
from heed.errors import InputError, OutputError


@app.command()
def report(
    path: Annotated[
        Path,
        typer.Argument(
            help="The .parquet file of an audit or a ranking, or the folder of a reproduction."
        ),
    ],
    format: options.Printed = Format.text,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Write .html, .md, .tex, .json, .csv or .parquet; of a reproduction .html or"
            " .json. May be repeated.",
        ),
    ] = None,
    figures: options.Figures = None,
    verbose: options.Verbose = False,
) -> None:
    """Redraw an audit, a ranking or a reproduction from saved results; needs no model or data.

    heed audit -o rows.parquet; heed report rows.parquet -o audit.html

    heed rank -o ranking.parquet; heed report ranking.parquet -o ranking.html

    heed reproduce lopardo-2024; heed report lopardo-2024
    """
    from heed.audit import Audit
    from heed.rank import Ranking
    from heed.rank.result import is_ranking

    check_outputs(output, figures)
    if (path / "experiments").is_dir():
        if figures is not None:
            raise InputError(
                "Leave out --figures: those of a reproduction are written into its folder."
            )
        _redraw(path, format, output or [])
    elif is_ranking(path):
        if figures is not None:
            raise InputError("Leave out --figures: the charts of a ranking are in its page.")
        emit_ranking(Ranking.load(path), format, output or [])
    else:
        emit_audit(Audit.load(path), format, output or [], figures, verbose)


def _redraw(folder: Path, format: Format, outputs: Sequence[Path]) -> None:
    """Draw a reproduction again: into its folder, or only into the files that were named."""
    from heed.report import reproduction, terminal

    if any(path.suffix not in (".html", ".json") for path in outputs):
        raise OutputError(
            "A reproduction is written as .html or .json; its rows are in the folder already."
        )
    paper, sections = reproduction.load(folder)

    def as_json() -> str:
        rows = []
        for section in sections:
            rows += [asdict(result) for result in section.outcome.results]
        return json.dumps(rows, ensure_ascii=False, indent=1)

    if format == Format.text and not outputs:
        emit_reproduction(folder, paper, sections, None)
    elif format == Format.text:
        console().print(terminal.reproduction(sections))
    else:
        typer.echo(as_json() if format == Format.json else reproduction.html(paper, sections))
    for path in outputs:
        write(as_json() if path.suffix == ".json" else reproduction.html(paper, sections), path)
        say(f"written to {path}")
