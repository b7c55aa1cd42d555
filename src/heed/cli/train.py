"""`heed train`: train one of heed's own models, or a transformer."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heed.cli.inputs import (
    column_names,
    load_training_data,
    read_settings,
)
from heed.cli.options import (
    ClassesOption,
    DataOption,
    Fp16Option,
    LabelColumnOption,
    LabelsOption,
    LimitOption,
    OutputFolder,
    PairColumnOption,
    SeedOption,
    SetOption,
    SplitOption,
    TestDataOption,
    TextColumnOption,
)
from heed.cli.outputs import resumable, say, status
from heed.cli.root import app
from heed.errors import InputError

if TYPE_CHECKING:
    from heed.data import Dataset


train_app = typer.Typer(
    help="""Train one of heed's own models.

    heed train single-layer --data imdb -o my-model
    """,
    no_args_is_help=True,
)
app.add_typer(train_app, name="train")


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

    Run the same command again to resume an interrupted training.

    heed train single-layer --data imdb -o my-model
    """
    from heed.models.folders import check_free
    from heed.training import recipes

    chosen = recipes.change(recipes.find(recipe), read_settings(set_))
    check_free(output)
    columns = column_names(text_column, label_column, pair_column)
    training, validation, tested = load_training_data(
        data, split, limit, seed, labels, test_data, classes, columns
    )
    with status("loading torch"):
        from heed.models import checkpoint
        from heed.models.network import round_to_fp16
        from heed.training.card import single_layer_card
        from heed.training.own import fit

    with resumable():
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
    """Train an encoder with attention, as in "Attention is not Explanation", and measure it.

    Run the same command again to resume an interrupted training.

    heed train recurrent --data sst -o my-model

    heed train recurrent --encoder average --attention uniform --data sst -o my-model

    Settings: epochs, batch, learning_rate, weight_decay, vocabulary, min_count, max_words, width,
    hidden, spread, vectors (random or glove), validation.
    """
    from heed.models.folders import check_free
    from heed.training import recipes

    chosen = recipes.recurrent({"encoder": encoder, "attention": attention} | read_settings(set_))
    check_free(output)
    columns = column_names(text_column, label_column, pair_column)
    training, validation, tested = load_training_data(
        data, split, limit, seed, labels, test_data, classes, columns
    )
    with status("loading torch"):
        from heed.models import checkpoint
        from heed.models.network import round_to_fp16
        from heed.training.card import recurrent_card
        from heed.training.recurrent import fit

    with resumable():
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
    """Train a transformer and measure it on the test set.

    Run the same command again to resume an interrupted training.

    heed train transformer --base ORG/NAME --data sst -o my-model

    heed train transformer --scratch 2x128 --data imdb -o my-model

    Settings: epochs, batch, learning_rate, weight_decay, warmup, max_tokens, word_dropout,
    smoothing, average, validation; from scratch also family, vocabulary, heads, dropout.
    """
    from heed.models import folders
    from heed.models.folders import check_free
    from heed.training import recipes

    if (base is None) == (scratch is None):
        raise InputError(
            "Give either --base, a model to train further, or --scratch, the size of a new one."
        )
    chosen = recipes.tuning(base is None, read_settings(set_))
    size = recipes.size(scratch) if scratch else (0, 0)
    recipes.check_heads(size, chosen)
    source = None if base is None else folders.transformer_at(base)
    check_free(output)
    columns = column_names(text_column, label_column, pair_column)
    training, validation, tested = load_training_data(
        data, split, limit, seed, labels, test_data, classes, columns
    )
    with status("loading torch and transformers"):
        from heed.models.network import round_to_fp16
        from heed.training import transformer

    with resumable():
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

    with status("measuring on the test set"):
        return facts(done, training, test, recipe, seed, shlex.join(["heed", *sys.argv[1:]]))


def _say_trained(output: Path, facts: dict[str, Any]) -> None:
    best = facts["history"][facts["best_epoch"] - 1]["accuracy"]
    shown = "" if facts["test"] is None else f" · test accuracy {facts['test']['accuracy']:.4f}"
    say(f"{output}: best epoch {facts['best_epoch']}, validation accuracy {best:.4f}{shown}")
