"""`heed audit`: judge what attention is worth on a model and data."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heed.cli import options
from heed.cli.audited import Audited, Loaded
from heed.cli.inputs import read_claims
from heed.cli.options import Format
from heed.cli.outputs import (
    check_outputs,
    console,
    emit_audit,
    resumable,
    say,
    shows_documents,
    status,
)
from heed.cli.root import app
from heed.errors import UnknownName
from heed.store import Store, cache_folder, check_writable, key_of, resumed

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.methods import Method


@app.command()
@options.sharing(Audited)
def audit(
    asked: Audited,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Follow this plan of `heed plan`; what you name beside it, departs from it.",
            show_default="none",
        ),
    ] = None,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            metavar="",
            help="Only say how long it would take, by three documents.",
        ),
    ] = False,
    cache: Annotated[
        Path | None,
        typer.Option(help="Keep rows and trained models in this folder, for later audits."),
    ] = None,
    rerun: Annotated[
        bool, typer.Option("--rerun", metavar="", help="Measure again what the --cache folder has.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Start no new claim after this many minutes; slow ones run last.",
            min=0,
            show_default="no limit",
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with code 1 if this claim is refuted; may be repeated. A claim that could"
            " not be judged is reported but does not fail the run.",
            show_default="none",
        ),
    ] = None,
    format: options.Printed = Format.text,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Write .html (a page), .md (a section for a report or a model card), .tex (a"
            " table), .json or .csv (verdicts) or .parquet (rows); may be repeated.",
        ),
    ] = None,
    figures: options.Figures = None,
    verbose: options.Verbose = False,
) -> None:
    """Test whether attention explains the predictions of a model: claims, evidence, verdicts.

    heed audit --model my-model --data reviews.csv -o audit.html

    heed audit --quick

    heed audit --estimate --model my-model --data reviews.csv

    heed audit --claim used --claim exclusive --set exclusive.steps=200

    heed audit --method attention-mean --method lime --method mine.json

    heed audit --budget 10 --fail-on removes

    heed audit --until-decided --most 2000

    heed plan --data reviews.csv -o plan.json; heed audit --plan plan.json

    Run the same command again to resume an interrupted audit.
    """
    from heed.audit import Plan
    from heed.audit import audit as run

    planned = None if plan is None else Plan.load(plan)
    if planned is not None:
        asked = asked.following(planned)
    asked.check()
    claims = _with_gate(asked.claims(planned), fail_on or ())
    methods = asked.methods(planned)
    check_outputs(output, figures)
    loaded = asked.load(methods)
    if estimate:
        _estimate(asked, claims, methods, loaded)
        return
    page = format == Format.html or shows_documents(output)
    drawn = [asked.data, asked.split, asked.drawn, asked.classes, asked.unit.value]
    about = [loaded.model.revision, asked.seed, [repr(c) for c in claims], *drawn]
    with _store(cache, rerun, about) as store, resumable() if store else nullcontext():
        audited = run(
            loaded.model,
            loaded.dataset,
            claims,
            methods,
            loaded.limit,
            asked.seed,
            examples=200 if page or figures is not None else 0,
            training=loaded.training,
            store=store,
            budget=budget,
            unit=asked.unit.value,
            plan=planned,
            until_decided=asked.until_decided,
        )
        audited.facts["command"] = shlex.join(["heed", *sys.argv[1:]])
        emit_audit(audited, format, output or [], figures, verbose)
    _fail_on(audited, fail_on or ())


def _estimate(
    asked: Audited, claims: list[Any], methods: list[Method] | None, loaded: Loaded
) -> None:
    """Print how long each claim takes."""
    from heed.audit import estimate
    from heed.report import planned

    model, dataset, limit, training = loaded
    with status("measuring on three documents"):
        costs = estimate(
            model, dataset, claims, methods, limit, asked.seed, training, unit=asked.unit.value
        )
    console().print(planned.estimate(costs))


def _with_gate(claims: list[Any], fail_on: Sequence[str]) -> list[Any]:
    """The claims, each of which `fail_on` may name; so may it the gate, which joins them."""
    names = [c.claim.id for c in claims]
    gated = any(c.claim.gated for c in claims)
    if gated and "used" in fail_on and "used" not in names:
        names.append("used")
        claims = claims + read_claims(["used"], None)
    for name in fail_on:
        if name not in names:
            raise UnknownName("claim", name, names, "This audit")
    return claims


def _fail_on(audited: Audit, claims: Sequence[str]) -> None:
    """End with exit code 1 if one of these claims is refuted; say which of them was not judged."""
    refuted = []
    for v in audited.verdicts:
        if v.claim.id not in claims:
            continue
        name = f"{v.claim.id} ({v.method})" if v.claim.of_explanation else v.claim.id
        if v.outcome == "not applicable":
            say(f"{name} (--fail-on) was not judged: {v.reason}")
        if v.outcome == "refuted":
            refuted.append(name)
    if refuted:
        say(f"refuted: {', '.join(refuted)} (--fail-on)")
        raise typer.Exit(1)


@contextmanager
def _store(folder: Path | None, rerun: bool, about: Sequence[Any]) -> Iterator[Store | None]:
    """Where an audit keeps its rows: the user's folder, or one that is removed in the end."""
    if folder is not None:
        check_writable(folder)
        yield Store(folder, rerun)
        return
    try:
        scratch = resumed(cache_folder() / "audits", key_of(*about))
    except OSError:  # a home that cannot be written to
        yield None
        return
    yield Store(scratch)
    shutil.rmtree(scratch, ignore_errors=True)
