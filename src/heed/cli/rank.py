"""`heed rank`: which method should explain a model."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heed.cli import options
from heed.cli.examined import Examined
from heed.cli.inputs import names_of, read_judged
from heed.cli.options import Format
from heed.cli.outputs import check_writable, console, resumable, say, write
from heed.cli.root import app
from heed.errors import InputError
from heed.store import check_writable as check_folder

if TYPE_CHECKING:
    from heed.methods import Method
    from heed.rank import Ranking

ENDINGS = (".html", ".md", ".json", ".csv", ".parquet")


@dataclass(frozen=True)
class Ranked(Examined):
    """Model, documents and methods."""

    limit: Annotated[
        int,
        typer.Option("--limit", "-n", help="At most so many documents, drawn at random.", min=1),
    ] = 60
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method of `heed list methods`, or a .json, .jsonl or .parquet file of imported"
            " scores; repeat it, or separate by commas.",
            show_default="all that are fast enough",
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of a --method, as key=value; may be repeated."),
    ] = None

    def methods(self) -> list[Method] | None:
        """The methods that were named, with their settings; None for all."""
        if not self.method:
            if self.set_:
                raise InputError("Name the methods that --set is for: add --method.")
            return None
        return read_judged(names_of(self.method), self.set_ or [])


@app.command()
@options.sharing(Ranked)
def rank(
    asked: Ranked,
    patience: Annotated[
        float,
        typer.Option(
            help="Leave out methods that would take more seconds than this on all documents,"
            " unless they are named.",
            min=0,
        ),
    ] = 120.0,
    cache: Annotated[
        Path | None, typer.Option(help="Keep explanations in this folder, for later rankings.")
    ] = None,
    format: options.Printed = Format.text,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Write .html (a page), .md (a section for a report), .json or .csv (means) or"
            " .parquet (rows); may be repeated.",
        ),
    ] = None,
) -> None:
    """Find the method that explains a model best: all methods on the same documents.

    heed rank --model my-model --data reviews.csv -o ranking.html

    heed rank --method lime,occlusion,attention-mean --limit 200

    heed rank --method lime --method mine.json --data reviews.csv

    Methods are compared by how much the words matter that they put first.

    `heed explain` and `heed audit` then name the best one, unless you name --method here.
    """
    from heed.rank import rank as run

    asked.check()
    methods = asked.methods()
    for path in output or ():
        check_writable(path, ENDINGS)
    if cache is not None:
        check_folder(cache)
    model, dataset, limit = asked.subject(methods or (), asked.limit)
    with resumable():
        ranking = run(
            model,
            dataset,
            methods,
            limit,
            asked.seed,
            store=cache,
            unit=asked.unit.value,
            patience=patience,
        )
    ranking.facts["command"] = shlex.join(["heed", *sys.argv[1:]])
    emit_ranking(ranking, format, output or [])


def emit_ranking(ranking: Ranking, format: Format, outputs: list[Path]) -> None:
    """Write files, and print the ranking."""
    from heed.report import ranking as report

    drawn = {
        ".html": report.html,
        ".md": report.as_markdown,
        ".json": report.as_json,
        ".csv": report.as_csv,
    }
    for path in outputs:  # before anything is printed: the reader may have gone
        check_writable(path, ENDINGS)
    for path in outputs:
        if path.suffix == ".parquet":
            ranking.save(path)
        else:
            write(drawn[path.suffix](ranking), path)
    if format == Format.text:
        console().print(report.terminal(ranking))
    else:
        typer.echo(drawn[f".{format.value}"](ranking))
    for path in outputs:
        say(f"written to {path}")
