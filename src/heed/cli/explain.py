"""`heed explain`: explain a prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from heed.cli import options
from heed.cli.inputs import Asked, load_model, names_of, read_methods, read_spans, read_text
from heed.cli.options import Format
from heed.cli.outputs import check_writable, console, say, write
from heed.cli.root import app
from heed.errors import InputError, OutputError
from heed.store import cannot_write

if TYPE_CHECKING:
    from heed.methods import Explanation
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
    calibrate: options.Calibrate = False,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method of `heed list methods`; repeat it, or separate by commas.",
            show_default="all quick ones",
        ),
    ] = None,
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
    Without --method, heed runs all quick methods.

    heed explain "a fine film" --method lime --set samples=5000

    heed explain --file review.txt --unit sentence

    heed explain "a fine film" --span 0-6 --span 7-11

    heed explain "a fine film" -m smollm2 --template "{text} It was" --labels bad,good
    """
    from heed.methods import METHODS, quick_methods
    from heed.methods.comparison import by_reason
    from heed.models.devices import check as check_device
    from heed.text import Document

    check_device(device, dtype)
    named = names_of(method) or [n for n, cls in METHODS.items() if not cls.only_by_name]
    methods = read_methods(named, set_)
    ask = Asked(template, hypothesis, labels, chat, calibrate).checked(model)
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
    left_out: dict[str, str] = {}
    if method is None:
        methods, left_out = quick_methods(loaded, document, scored, methods=methods)
    explanations = [m.explain(loaded, [document], label, scored, seed)[0] for m in methods]
    if form == Format.json:
        values = [e.to_dict() for e in explanations]
        write(json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False), output)
    elif form == Format.html:
        from heed.report import html

        write(html.explanations(explanations), output)
    else:
        _print_explanations(explanations, output)
    if left_out:
        say(f"Left out: {by_reason(left_out)}.")
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


def _print_explanations(explanations: list[Explanation], output: Path | None) -> None:
    from heed.report import terminal

    if output is None:
        console().print(terminal.explanations(explanations))
        return
    with cannot_write(output), output.open("w", encoding="utf8") as file:
        Console(file=file, width=80, highlight=False).print(terminal.explanations(explanations))
