"""`heed plan`: write down what an audit will test, before anything is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heed.cli import options
from heed.cli.audited import Audited
from heed.cli.outputs import check_writable, console, say
from heed.cli.root import app


@app.command()
@options.sharing(Audited)
def plan(
    asked: Audited,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The .json file to write.", show_default="standard output"
        ),
    ] = None,
) -> None:
    """Write down what an audit will test, and when each claim holds, before it is measured.

    A plan names claims, thresholds, methods, settings and seed, and has digests of the model and of
    the documents. Its hash identifies it: publish it, or commit the file, before you run the audit.

    heed plan --model my-model --data reviews.csv -o plan.json

    heed audit --plan plan.json -o audit.html

    The report then says that the audit went as planned, or lists how it departs from the plan.
    """
    from msgspec.structs import replace

    from heed.audit import plan as make_plan
    from heed.report import planned

    asked.check()
    claims, methods = asked.claims(), asked.methods()
    check_writable(output, (".json",))
    loaded = asked.load(methods)
    made = make_plan(
        loaded.model,
        loaded.dataset,
        claims,
        methods,
        loaded.limit,
        asked.seed,
        loaded.training,
        unit=asked.unit.value,
        until_decided=asked.until_decided,
    )
    made = replace(made, options=asked.to_dict())
    if output is None:
        typer.echo(made.to_json())
        say(f"plan {made.hash}")
        return
    made.save(output)
    console().print(planned.terminal(made))
    say(f"written to {output}")
