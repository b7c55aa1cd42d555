"""`heed explain`: explain a prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from heed.cli import options
from heed.cli.inputs import (
    Asked,
    load_model,
    names_of,
    read_methods,
    read_settings,
    read_spans,
    read_text,
)
from heed.cli.options import Format
from heed.cli.outputs import check_writable, console, say, write
from heed.cli.root import app
from heed.errors import InputError, OutputError
from heed.recommendation import Recommendation, kept
from heed.store import cannot_write

if TYPE_CHECKING:
    from heed.methods import Comparison
    from heed.methods.explanation import UnitKind


@app.command()
def explain(
    text: Annotated[
        str | None,
        typer.Argument(help="The text; '-' or nothing reads standard input.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the text from a file instead.")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="The second text, for a model of pairs.")] = None,
    model: options.Model = None,
    template: options.Template = None,
    hypothesis: options.Hypothesis = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help=f"With --template or --hypothesis: {options.MODEL_LABELS}",
            show_default="those of the model",
        ),
    ] = None,
    chat: options.Chat = False,
    system: options.System = None,
    calibrate: options.Calibrate = False,
    entailment: options.Entailment = None,
    several: options.Several = False,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method of `heed list methods`; repeat it, or separate by commas.",
            show_default="six, of three groups",
        ),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", metavar="", help="Run all methods that are quick enough.")
    ] = False,
    agreement: Annotated[
        bool, typer.Option("--agreement", metavar="", help="Show how far the methods agree.")
    ] = False,
    set_: options.Settings = None,
    label: Annotated[
        str | None,
        typer.Option(help="Explain this label (name or index).", show_default="the predicted one"),
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    batch_tokens: options.BatchTokens = None,
    unit: Annotated[
        options.Unit | None,
        typer.Option(help="What carries a score.", show_default="word, or span with --span"),
    ] = None,
    span: Annotated[
        list[str] | None,
        typer.Option(
            help="Characters that get one score, as 0-10 (the end is not one of them); 1:0-10 in"
            " the second text of a pair. May be repeated.",
            show_default="none",
        ),
    ] = None,
    seed: options.Seed = 0,
    format: Annotated[
        Format | None,
        typer.Option(help="How to write it.", show_default="by the ending of --output, else text"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file (.html, .json, .txt).")
    ] = None,
) -> None:
    """Explain a prediction: methods side by side, words shaded by their score.

    Blue words speak for the label, orange ones against it. Purple marks methods without a sign.
    Without --method, heed runs six: two that read attention, two that use gradients, two that
    remove words.

    heed explain "a fine film" --method lime --set samples=5000

    heed explain --file review.txt --unit sentence

    heed explain "a fine film" --span 0-6 --span 7-11

    heed explain "a fine film" -m smollm2 --template "{text} It was" --labels bad,good
    """
    from heed.methods import compared
    from heed.models.devices import check as check_device
    from heed.text import Document

    check_device(device, dtype)
    if all_ and method:
        raise InputError("--all runs all quick methods: leave out --method.")
    names = ["all"] if all_ else names_of(method) or None
    read_methods(names, set_)  # refuse before the model is loaded
    ask = Asked(template, hypothesis, labels, chat, system, calibrate, entailment, several).checked(
        model
    )
    if labels is not None and not ask.asks:
        raise InputError("--labels says what to ask a model for: add --template or --hypothesis.")
    form = _format(format, output)
    check_writable(output)
    scored = _unit(unit, span)
    document = Document(read_text(text, file), pair, spans=read_spans(span))
    if not all(segment.strip() for segment in document.segments):
        raise InputError("The text is empty: there is nothing to explain.")
    ask.check_fits(document, label)
    loaded = load_model(model, ask, device, dtype, batch_tokens)
    settings = read_settings(set_)
    found = compared(loaded, document, names, label, scored, seed, settings=settings)
    best = kept(loaded.revision)
    if form == Format.json:
        values = [e.to_dict() for e in found.explanations]
        write(json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False), output)
    elif form == Format.html:
        from heed.report import html

        write(html.explanations(found.explanations, agreement=agreement, best=best), output)
    else:
        hint = "" if all_ or method or agreement else _HINT
        _print(found, agreement, best, hint, output)
    if output is not None:
        say(f"written to {output}")


def _unit(unit: options.Unit | None, spans: list[str] | None) -> UnitKind:
    """What carries a score: spans if there are any, else words unless somebody says otherwise."""
    if spans and unit not in (None, options.Unit.span):
        raise InputError(f"--span goes with --unit span, not with --unit {unit}.")
    if unit == options.Unit.span and not spans:
        raise InputError("--unit span needs spans: add --span, as in --span 0-10.")
    if spans:
        return "span"
    return "word" if unit is None else unit.value


def _format(format: Format | None, output: Path | None) -> Format:
    formats = {".html": Format.html, ".json": Format.json, ".txt": Format.text}
    if output is None:
        return format or Format.text
    of_file = formats.get(output.suffix.lower(), format)
    if of_file is None:
        raise OutputError(f"{output} must end in {', '.join(formats)}, or choose with --format.")
    if format not in (None, of_file):
        raise OutputError(f"{output} is not the name of a file for --format {format}.")
    return of_file


_HINT = "--all runs all quick methods, --agreement compares them, --method NAME chooses."


def _print(
    found: Comparison,
    agreement: bool,
    best: Recommendation | None,
    hint: str,
    output: Path | None,
) -> None:
    from heed.report import terminal
    from heed.report.words import recommended

    remarks = [recommended(best, found.methods)] if best else []
    if output is None:
        console().print(terminal.explanations(found.explanations, agreement, remarks, hint))
        return
    with cannot_write(output), output.open("w", encoding="utf8") as file:
        screen = Console(file=file, width=80, highlight=False)
        screen.print(terminal.explanations(found.explanations, agreement, remarks))
