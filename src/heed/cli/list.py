"""`heed list`: what heed knows, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from heed.cli.outputs import console
from heed.cli.root import app
from heed.errors import InputError, UnknownName


@app.command("list")
def list_(
    what: Annotated[
        str | None,
        typer.Argument(
            help="methods, data, tasks, claims, models or reproductions.", show_default="all"
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="A method or a claim: show its settings.", show_default=False),
    ] = None,
) -> None:
    """List methods, data sets, generated tasks, claims, bundled models and papers to reproduce.

    heed list methods

    heed list methods lime
    """
    from heed.catalogue import LISTS, OWNERS, details

    if what is not None and what not in LISTS:
        raise UnknownName("list", what, LISTS)
    screen = console()
    if what is not None and name is not None:
        if what not in OWNERS:
            raise InputError(f"Only methods and claims have settings to list: leave out '{name}'.")
        if name not in OWNERS[what]:
            raise UnknownName(what.removesuffix("s"), name, OWNERS[what])
        _print(screen, details(what, name))
        return
    for kind in [what] if what else LISTS:
        screen.print(Text(kind, style="bold"))
        _print(screen, LISTS[kind]())
        if what is None:
            screen.print()


def _print(screen: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Names, and beside them what there is to say of each."""
    width = max(len(name) for name, _ in rows) + 2
    for name, about in rows:
        for i, line in enumerate(Text(about).wrap(screen, screen.width - width)):
            line.rstrip()
            screen.print(Text(f"{name if i == 0 else '':<{width}}").append_text(line))
