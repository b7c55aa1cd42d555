"""`heed cite`: the papers behind what was used."""

from __future__ import annotations

from typing import Annotated

import typer

from heed.cli.root import app


@app.command()
def cite(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Methods, claims, data sets, papers, or the .parquet file of an audit.",
            show_default="all",
        ),
    ] = None,
) -> None:
    """Print the BibTeX of the papers behind methods, claims, data sets and audits.

    heed cite lime used

    heed cite audit.parquet
    """
    from heed.report.bibliography import bibtex

    typer.echo(bibtex(names or []))
