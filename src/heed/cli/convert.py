"""`heed convert`: make a model folder of ONNX, GGUF or PyTorch files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heed.cli import options
from heed.cli.inputs import column_names, load_data
from heed.cli.outputs import say, status
from heed.cli.root import app
from heed.errors import InputError

if TYPE_CHECKING:
    from heed.models.sources import Check, Conversion
    from heed.text import Document


@app.command()
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            help="An .onnx, .gguf, .bin or .pt file, or a folder with one.", show_default=False
        ),
    ],
    output: options.OutputFolder,
    config: Annotated[
        Path | None,
        typer.Option(help="The architecture.", show_default="config.json beside the weights"),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="The tokenizer's folder or tokenizer.json.", show_default="beside the weights"
        ),
    ] = None,
    labels: options.Labels = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="Compare logits on these texts: a data set of `heed list data`, or a file.",
            show_default="31 texts and pairs",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Compare on at most so many texts.", min=1)] = 100,
    text_column: options.TextColumn = None,
    pair_column: options.PairColumn = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="The largest difference of logits.", show_default="0.001, in half precision 0.01"
        ),
    ] = None,
    fp16: options.Fp16 = False,
) -> None:
    r"""Convert ONNX, GGUF and PyTorch weights to a folder that heed loads.

    heed convert model.onnx -o my-model

    Nothing is written unless every weight fits the architecture and, for ONNX, the logits are
    those of onnxruntime. Needs pip install 'heed\[convert]'.
    """
    from heed.models import folders, sources

    if tolerance is not None and not tolerance > 0:
        raise InputError(f"The tolerance must be above 0, got {tolerance:g}.")
    names = [name.strip() for name in labels.split(",")] if labels else []
    if len(set(names)) < len(names) or not all(names):
        raise InputError(f"Names of labels must differ and not be empty, got '{labels}'.")
    files = sources.find(source, config, tokenizer, names)
    sources.check_installed(files)
    folders.check_free(output)
    documents = _documents(data, limit, column_names(text_column, None, pair_column))
    with status("converting"):
        from heed.models.convert import convert as run

        conversion = run(files, output, documents, tolerance, fp16)
    say_converted(conversion)


def _documents(data: str | None, limit: int, columns: dict[str, str | None]) -> list[Document]:
    from heed.data import KNOWN

    if data is None:
        if columns:
            raise InputError("Name the columns of a file with --data FILE.")
        return []
    unlabelled = data not in KNOWN and not data.startswith("task:")
    labels = "none" if unlabelled else None
    return list(load_data(data, None, limit, 0, labels, None, columns).documents)


def say_converted(conversion: Conversion) -> None:
    named = f", labels {', '.join(conversion.labels)}" if conversion.labels else ""
    millions = conversion.parameters / 1e6
    say(
        f"{conversion.folder}: {conversion.kind}, {millions:.1f} million weights,"
        f" {conversion.bytes / 1e6:.0f} MB{named}"
    )
    say(_checked(conversion.check))


def _checked(check: Check) -> str:
    where = f"{check.against} on {check.texts} texts"
    if not check.rounded:
        return (
            f"logits differ by at most {check.difference:.2g} from {where}"
            f" (allowed: {check.tolerance:g})"
        )
    rounded = (
        f"the file rounds its activations to 8 bits: logits differ by at most"
        f" {check.difference:.2g} from {where}, {check.same_labels:.1%} of the labels are the same"
    )
    if check.unrounded_difference is None:
        return rounded
    return f"{rounded}; without the rounding by {check.unrounded_difference:.2g}"
