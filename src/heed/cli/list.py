"""`heed list`: what heed knows, by name."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from heed.cli.outputs import console
from heed.cli.root import app
from heed.errors import UnknownName


@app.command("list")
def list_(
    what: Annotated[
        str | None,
        typer.Argument(
            help="methods, data, tasks, claims, models or reproductions.", show_default="all"
        ),
    ] = None,
) -> None:
    """List methods, data sets, generated tasks, claims, bundled models and papers to reproduce.

    heed list methods
    """
    from heed.catalogue import LISTS

    if what is not None and what not in LISTS:
        raise UnknownName("list", what, LISTS)
    screen = console()
    for kind in [what] if what else LISTS:
        screen.print(Text(kind, style="bold"))
        rows = LISTS[kind]()
        width = max(len(name) for name, _ in rows) + 2
        for name, about in rows:
            for i, line in enumerate(Text(about).wrap(screen, screen.width - width)):
                line.rstrip()
                screen.print(Text(f"{name if i == 0 else '':<{width}}").append_text(line))
        if what is None:
            screen.print()
