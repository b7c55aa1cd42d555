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
from heed.cli.inputs import (
    Asked,
    column_names,
    is_of_claim,
    load_data,
    load_held_out,
    load_model,
    names_of,
    read_claims,
    read_judged,
)
from heed.cli.options import Format
from heed.cli.outputs import check_outputs, emit_audit, resumable, say
from heed.cli.root import app
from heed.errors import InputError, UnknownName
from heed.store import Store, cache_folder, check_writable, key_of, resumed

if TYPE_CHECKING:
    from heed.audit import Audit
    from heed.data import Dataset
    from heed.models.classifier import Classifier
    from heed.text import Document


@app.command()
def audit(
    model: options.Model = None,
    template: options.Template = None,
    hypothesis: options.Hypothesis = None,
    chat: options.Chat = False,
    calibrate: options.Calibrate = False,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="A data set of `heed list data`, or a csv/jsonl/parquet file.",
            show_default="rotten_tomatoes, or the texts of explanations from a file",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Which part of the data.",
            show_default="test; dev for sst2; train for rotten_tomatoes: all that its package has",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Names of a file's labels in order, as a,b,c; 'none' if it has no labels. With"
            f" --template or --hypothesis: {options.MODEL_LABELS}",
            show_default="from the file",
        ),
    ] = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    pair_column: options.PairColumn = None,
    span_column: options.SpanColumn = None,
    classes: options.Classes = None,
    limit: Annotated[int, typer.Option(help="How many documents, drawn at random.", min=1)] = 200,
    unit: Annotated[
        options.Unit, typer.Option(help="What carries a score, where claims speak of words.")
    ] = options.Unit.word,
    claim: Annotated[
        list[str] | None,
        typer.Option(
            help="A claim of `heed list claims`; repeat it, or separate by commas.",
            show_default="all",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="The method to judge, or a .json, .jsonl or .parquet file of imported scores;"
            " may be repeated.",
            show_default="attention-mean; lime if the model shows no attention",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of METHOD as key=value, or of a claim as CLAIM.key=value; repeat it.",
        ),
    ] = None,
    train: Annotated[
        bool,
        typer.Option(
            "--train",
            metavar="",
            help="Also test claims that need retraining (about 24 trainings).",
        ),
    ] = False,
    base: Annotated[
        str | None,
        typer.Option(
            help="With --train: what the transformer was fine-tuned from, a folder or hub id."
        ),
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    batch_tokens: options.BatchTokens = None,
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
    seed: options.Seed = 0,
    format: options.Printed = Format.text,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Write .html (a page), .parquet (the rows) or .json (the verdicts); may be"
            " repeated.",
        ),
    ] = None,
    figures: options.Figures = None,
) -> None:
    """Test whether attention explains the predictions of a model: claims, evidence, verdicts.

    heed audit --model my-model --data reviews.csv -o audit.html

    heed audit --claim used --claim exclusive --set exclusive.steps=200

    heed audit --method attention-mean --method lime --method mine.json

    heed audit --budget 10 --fail-on removes

    Run the same command again to resume an interrupted audit.
    """
    from heed.audit import audit as run
    from heed.methods import Imported
    from heed.models.devices import check as check_device

    check_device(device, dtype)
    ask = Asked(template, hypothesis, labels, chat, calibrate).checked(model)
    claims = read_claims(names_of(claim), set_)
    names = [c.claim.id for c in claims]
    gated = any(c.claim.gated for c in claims)
    if gated and "used" in (fail_on or ()) and "used" not in names:
        names.append("used")  # the gate, which need not be named to be judged
        claims += read_claims(["used"], None)
    for name in fail_on or ():
        if name not in names:
            raise UnknownName("claim", name, names, "This audit")
    if base is not None:
        from heed.models.folders import transformer_at

        if not train:
            raise InputError(
                "--base says what a transformer was fine-tuned from, for --train: leave it out."
            )
        transformer_at(base)
    settings = [pair for pair in set_ or () if not is_of_claim(pair)]
    judged = None
    if method or settings:
        judged = read_judged(names_of(method) or ["attention-mean"], settings)
    check_outputs(output, figures)
    columns = column_names(text_column, label_column, pair_column, span_column)
    imported = any(isinstance(m, Imported) for m in judged or ())
    if imported and data is None:
        if split or ask.data_labels or classes or columns:
            raise InputError(
                "Leave out --split, --labels, --classes and columns, or name the --data that they"
                " choose from."
            )
        dataset = None
    else:
        # imported scores may lack documents: the library draws from those that they have
        whole = None if imported else limit
        dataset = load_data(data, split, whole, seed, ask.data_labels, classes, columns)
    loaded = load_model(model, ask, device, dtype, batch_tokens)
    training, validation = _training_data(loaded, dataset) if train else (None, ())
    page = format == Format.html or any(path.suffix != ".json" for path in output or ())
    asked = [data, split, limit, classes, unit.value]
    about = [loaded.revision, seed, [repr(c) for c in claims], *asked]
    with _store(cache, rerun, about) as store, resumable() if store else nullcontext():
        audited = run(
            loaded,
            dataset,
            claims,
            judged,
            limit if imported else None,
            seed,
            examples=200 if page or figures is not None else 0,
            training=training,
            validation=validation,
            store=store,
            base=base,
            budget=budget,
            unit=unit.value,
        )
        audited.facts["command"] = shlex.join(["heed", *sys.argv[1:]])
        emit_audit(audited, format, output or [], figures)
    _fail_on(audited, fail_on or ())


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


def _training_data(
    model: Classifier, audited: Dataset | None
) -> tuple[Dataset | None, Sequence[Document]]:
    """The documents a model was trained on and validated on; few of them may be audited."""
    from heed import data

    facts = getattr(model, "facts", {})
    named = facts.get("data")
    if not isinstance(named, dict) or not isinstance(named.get("name"), str):
        raise InputError(
            f"{model.name} does not name its training data, so that it cannot be trained again."
        )
    name, split, size = named["name"], named.get("split"), named.get("documents")
    if name not in data.KNOWN:
        raise InputError(
            f"{model.name} was trained on {name}, which heed does not know: use"
            " heed.audit(training=…)."
        )
    training = load_data(name, split, None, 0)
    classes = None if training.labels == model.labels else ",".join(model.labels)
    if classes or size != len(training):
        training = load_data(name, split, size, int(facts.get("seed", 0)), None, classes)
    held = None if split == "dev" else load_held_out(name, "dev", 0, classes)
    validation = held.documents if held else ()
    seen = {d.segments for d in [*training, *validation]}
    documents = audited or ()
    if sum(d.segments in seen for d in documents) > 0.1 * len(documents):
        raise InputError(
            "The documents to be audited are those that the model was trained on: choose others by"
            " --data and --split."
        )
    return training, validation


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
