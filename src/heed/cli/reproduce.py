"""`heed reproduce`: run the experiments of a paper again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from typer.core import TyperCommand

from heed.cli import options
from heed.cli.outputs import console, resumable, say, status
from heed.cli.root import app
from heed.errors import InputError, OutputError, UnknownName

if TYPE_CHECKING:
    from heed.papers import Section


class _WithExperiments(TyperCommand):
    """Help that ends with the experiments of every paper, looked up only when somebody asks."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from heed.papers import PAPERS

        self.epilog = "\n\n".join(
            f"Experiments of {name}: {', '.join(e.name for e in paper.experiments)}."
            for name, paper in PAPERS.items()
        )
        super().format_help(ctx, formatter)


@app.command(cls=_WithExperiments)
def reproduce(
    paper: Annotated[
        str, typer.Argument(help="A paper of `heed list reproductions`.", show_default=False)
    ],
    experiment: Annotated[
        list[str] | None,
        typer.Option(help="One of its experiments; may be repeated.", show_default="all"),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            metavar="smoke|full",
            help="'smoke' takes minutes and needs no data; 'full' takes hours and needs the data"
            " sets.",
        ),
    ] = "smoke",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="For lopardo-2024: the single-layer model to examine, a bundled one or a folder.",
            show_default="bundled; full: trained by the paper's recipe",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            "-d",
            help="For all papers but lopardo-2024: sst, 20news, ag_news or imdb; may be repeated.",
            show_default="all; smoke: one",
        ),
    ] = None,
    seed: options.Seed = 0,
    rerun: Annotated[
        bool, typer.Option("--rerun", metavar="", help="Re-run finished experiments.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The folder to write.", show_default="PAPER"),
    ] = None,
) -> None:
    """Run the experiments of a paper again: our numbers beside the published ones.

    heed reproduce lopardo-2024

    heed reproduce lopardo-2024 --experiment talk --experiment lemmas -o talk

    heed reproduce jain-wallace-2019 --data sst --scale full

    The folder gets a page, tables, figures and results.json. Run the same command again to resume.
    `heed report FOLDER` redraws everything from saved results.
    """
    from heed.papers import PAPERS, run
    from heed.papers.lab import Scale

    if scale not in get_args(Scale):
        raise UnknownName("scale", scale, get_args(Scale))
    if paper not in PAPERS:
        raise UnknownName("paper", paper, PAPERS)
    folder = output or Path(paper)
    _check_reproducible(folder, model)
    with resumable():
        lab = PAPERS[paper].lab(cast("Scale", scale), folder, model, seed)
        lab.choose(data or ())
        sections = run(paper, lab, experiment or (), rerun)
    emit_reproduction(folder, paper, sections, experiment)


def _check_reproducible(folder: Path, model: str | None) -> None:
    """Refuse a folder that cannot be written, and a model that is none, before torch is loaded."""
    from heed.models import folders
    from heed.store import check_writable

    check_writable(folder)
    if (
        folder.is_dir()
        and any(folder.iterdir())
        and not any((folder / part).is_dir() for part in ("experiments", "models"))
    ):
        raise OutputError(
            f"{folder} holds other files: give a new folder, or that of an earlier run."
        )
    if model is not None and folders.is_transformer(model):
        raise InputError(
            f"A reproduction examines single-layer classifiers, and {model} is a transformer."
        )
    folders.read_config(folders.find(model))


def emit_reproduction(
    folder: Path, paper: str, sections: Sequence[Section], names: Sequence[str] | None
) -> None:
    """Write page, figures and tables, and print the results of the named experiments, or of all."""
    from heed.report import reproduction, terminal

    with status("drawing"):
        reproduction.write(folder, paper, sections)
    console().print(terminal.reproduction([s for s in sections if not names or s.name in names]))
    say(f"written to {folder / 'report.html'}, with figures, tables and results.json beside it")
