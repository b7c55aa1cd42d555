"""Options and arguments that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    pass


class Format(StrEnum):
    text = "text"
    json = "json"
    html = "html"


class UnitChoice(StrEnum):
    word = "word"
    token = "token"


ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A bundled model, one of `heed models`, a folder, or ORG/NAME on the Hugging Face"
        " hub.",
        show_default="bundled",
    ),
]
FiguresOption = Annotated[
    Path | None,
    typer.Option(
        help="Write every chart into this folder, as SVG, PNG and PDF.", show_default="none"
    ),
]
SeedOption = Annotated[int, typer.Option(help="The same seed gives the same result.", min=0)]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="A setting, as key=value; may be repeated.")
]
TextColumnOption = Annotated[
    str | None,
    typer.Option("--text-column", help="The column of a file's texts.", show_default="text"),
]
LabelColumnOption = Annotated[
    str | None,
    typer.Option("--label-column", help="The column of a file's labels.", show_default="label"),
]
PairColumnOption = Annotated[
    str | None,
    typer.Option(
        "--pair-column", help="The column of a file's second texts.", show_default="pair, if any"
    ),
]

# Of `heed train`
OutputFolder = Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")]
DataOption = Annotated[
    str,
    typer.Option(
        "--data",
        "-d",
        help="A data set of `heed list data`, a generated one as task:NAME, or a file.",
    ),
]
SplitOption = Annotated[str, typer.Option(help="The part to train on.")]
LabelsOption = Annotated[
    str | None,
    typer.Option(help="Names of a file's labels in order, as a,b,c.", show_default="from the file"),
]
ClassesOption = Annotated[
    str | None, typer.Option(help="Only documents with these labels, as a,b.", show_default="all")
]
TestDataOption = Annotated[
    str | None,
    typer.Option(
        "--test-data",
        help="Measure on the test part of another data set.",
        show_default="the test part of the data",
    ),
]
Fp16Option = Annotated[
    bool, typer.Option("--fp16", help="Store weights in half precision: half the size.")
]
LimitOption = Annotated[int | None, typer.Option(help="Train on so many documents.", min=10)]
