"""What is examined, as people type it: a model and documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from heed.cli import options
from heed.cli.inputs import Asked, column_names, load_data, load_model
from heed.errors import InputError

if TYPE_CHECKING:
    from heed.data import Dataset
    from heed.methods import Method
    from heed.models.classifier import Classifier

# What is examined if nobody names data: new to the bundled models, and long enough that the output
# leaves attention open, so that no family of claims is empty for want of words.
REVIEWS = "imdb_held_out"


@dataclass(frozen=True)
class Examined:
    """A model, how it is asked and where it runs, and the documents.

    typed   the names of the options that somebody typed
    """

    model: options.Model = None
    template: options.Template = None
    hypothesis: options.Hypothesis = None
    chat: options.Chat = False
    system: options.System = None
    calibrate: options.Calibrate = False
    entailment: options.Entailment = None
    several: options.Several = False
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="A data set of `heed list data`, or a csv/jsonl/parquet file.",
            show_default=f"{REVIEWS}, or the texts of explanations from a file",
        ),
    ] = None
    split: Annotated[
        str | None,
        typer.Option(
            help="Which part of the data.",
            show_default="test; dev for sst2, train for rotten_tomatoes",
        ),
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(
            help="Names of a file's labels in order, as a,b,c; 'none' if it has no labels. With"
            f" --template or --hypothesis: {options.MODEL_LABELS}",
            show_default="from the file",
        ),
    ] = None
    text_column: options.TextColumn = None
    label_column: options.LabelColumn = None
    pair_column: options.PairColumn = None
    span_column: options.SpanColumn = None
    cluster: options.Cluster = None
    classes: options.Classes = None
    unit: Annotated[
        options.Unit, typer.Option(help="What carries a score, where claims speak of words.")
    ] = options.Unit.word
    device: options.Device = "auto"
    dtype: options.Dtype = "auto"
    batch_tokens: options.BatchTokens = None
    seed: options.Seed = 0
    typed: frozenset[str] = field(default=frozenset(), metadata={options.HIDDEN: True})

    def check(self) -> None:
        """Refuse options that do not go together, before anything is loaded."""
        from heed.models.devices import check as check_device

        check_device(self.device, self.dtype)

    @property
    def ask(self) -> Asked:
        """How the model is asked for a label."""
        asked = Asked(
            self.template,
            self.hypothesis,
            self.labels,
            self.chat,
            self.system,
            self.calibrate,
            self.entailment,
            self.several,
        )
        return asked.checked(self.model)

    @property
    def columns(self) -> dict[str, str | None]:
        return column_names(
            self.text_column, self.label_column, self.pair_column, self.span_column, self.cluster
        )

    def subject(self, methods: Sequence[Method], limit: int | None) -> Subject:
        """The model, the documents, and how many of them are still to be drawn at random."""
        from heed.methods import Imported

        imported = any(isinstance(m, Imported) for m in methods)
        dataset = None
        if imported and self.data is None:
            if self.split or self.ask.data_labels or self.classes or self.columns:
                raise InputError(
                    "Leave out --split, --labels, --classes and columns, or name the --data that"
                    " they choose from."
                )
        else:
            labels = self.ask.data_labels
            # imported scores may lack documents: the library draws from those that they have
            drawn = self.data, self.split, None if imported else limit, self.seed
            dataset = load_data(*drawn, labels, self.classes, self.columns, REVIEWS)
        model = load_model(self.model, self.ask, self.device, self.dtype, self.batch_tokens)
        return Subject(model, dataset, limit if imported else None)


class Subject(NamedTuple):
    """A model, documents, and how many to draw of them."""

    model: Classifier
    dataset: Dataset | None
    limit: int | None
