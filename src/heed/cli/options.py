"""Options and arguments that several verbs share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

HIDDEN = "hidden"  # in the metadata of a field that is no option


def sharing(shared: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that takes the fields of a dataclass as options, before those of its own.

    Its first argument gets them all; `typed` names those that somebody typed.

        @app.command()
        @sharing(Audited)
        def plan(asked: Audited, output: OutputFile = None) -> None: ...
    """
    hints = get_type_hints(shared, include_extras=True)
    ours = [_parameter(f, hints) for f in fields(shared) if HIDDEN not in f.metadata]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        context = inspect.Parameter("context", _KIND, annotation=typer.Context)
        parameters = [context, *ours, *own]

        @wraps(command)
        def run(context: typer.Context, **given: Any) -> None:
            names = [p.name for p in ours]
            typed = frozenset(name for name in names if _is_typed(context, name))
            values = {name: given.pop(name) for name in names}
            command(shared(**values, typed=typed), **given)

        # what typer reads the options from
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _parameter(option: Field[Any], hints: dict[str, Any]) -> inspect.Parameter:
    name = option.name
    return inspect.Parameter(name, _KIND, default=option.default, annotation=hints[name])


def _is_typed(context: typer.Context, name: str) -> bool:
    """Whether somebody typed an option, rather than left it at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


class Format(StrEnum):
    text = "text"
    json = "json"
    html = "html"


class Unit(StrEnum):
    word = "word"
    token = "token"
    sentence = "sentence"
    line = "line"
    span = "span"


Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A bundled model, one of `heed models`, a folder, or ORG/NAME on the Hugging Face"
        " hub.",
        show_default="bundled",
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        help="Ask a language model by this prompt, as 'Review: {text}\\nSentiment:'; \\n is a line"
        " break, {pair} a second text.",
        show_default="none",
    ),
]
Hypothesis = Annotated[
    str | None,
    typer.Option(
        help="Ask a model of entailment whether a text entails this, as 'This text is about {}.'",
        show_default="none",
    ),
]
Chat = Annotated[
    bool,
    typer.Option("--chat", metavar="", help="Make the template the user's message in a chat."),
]
System = Annotated[
    str | None,
    typer.Option("--system", help="With --chat: the system message.", show_default="none"),
]
Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        metavar="",
        help="Subtract what the language model says of each label behind an empty text.",
    ),
]
Entailment = Annotated[
    str | None,
    typer.Option(
        "--entailment",
        help="With --hypothesis: the model's label that means entailment, by name or index.",
        show_default="the one called so",
    ),
]
Several = Annotated[
    bool,
    typer.Option(
        "--several", metavar="", help="With --hypothesis: a text may have any number of labels."
    ),
]
MODEL_LABELS = (
    "the model's labels, as negative,positive; or with the words that stand for them, as"
    " negative=bad|awful,positive=good."
)
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="cuda|mps|cpu|auto",
        help="Where a transformer runs; cuda:1 is the second GPU. 'auto' is what HEED_DEVICE names,"
        " else cuda or mps if there is one.",
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="float32|bfloat16|float16|auto",
        help="The precision of a transformer; 'auto' is float32 on the CPU, elsewhere what the file"
        " has.",
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        help="How many tokens a batch may hold; halved when memory runs out.",
        min=1,
        show_default="what fits",
    ),
]
Figures = Annotated[
    Path | None,
    typer.Option(
        help="Write every chart into this folder, as SVG, PNG and PDF.", show_default="none"
    ),
]
Printed = Annotated[Format, typer.Option(help="What to print.")]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", metavar="", help="Print every number and reason, beyond the 40 lines."
    ),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", min=0)]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A setting, as key=value; may be repeated.")
]
TextColumn = Annotated[
    str | None,
    typer.Option("--text-column", help="The column of a file's texts.", show_default="text"),
]
LabelColumn = Annotated[
    str | None,
    typer.Option("--label-column", help="The column of a file's labels.", show_default="label"),
]
PairColumn = Annotated[
    str | None,
    typer.Option(
        "--pair-column", help="The column of a file's second texts.", show_default="pair, if any"
    ),
]
SpanColumn = Annotated[
    str | None,
    typer.Option(
        "--span-column",
        help="The column of a file's spans, for --unit span; 'none' reads none.",
        show_default="spans, if any",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="A column of the file, such as author: documents with the same value belong together"
        " in intervals, and count as one.",
        metavar="COLUMN",
        show_default="none",
    ),
]

# Of `heed train`
OutputFolder = Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")]
Data = Annotated[
    str,
    typer.Option(
        "--data",
        "-d",
        help="A data set of `heed list data`, a generated one as task:NAME, or a file.",
    ),
]
Split = Annotated[str, typer.Option(help="The part to train on.")]
Labels = Annotated[
    str | None,
    typer.Option(help="Names of a file's labels in order, as a,b,c.", show_default="from the file"),
]
Classes = Annotated[
    str | None, typer.Option(help="Only documents with these labels, as a,b.", show_default="all")
]
TestData = Annotated[
    str | None,
    typer.Option(
        "--test-data",
        help="Measure on the test part of another data set.",
        show_default="the test part of the data",
    ),
]
Fp16 = Annotated[
    bool, typer.Option("--fp16", metavar="", help="Store weights in half precision: half the size.")
]
Limit = Annotated[int | None, typer.Option(help="Train on so many documents.", min=10)]
