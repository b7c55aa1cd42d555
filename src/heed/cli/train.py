"""`heed train`: train one of heed's own models, or a transformer."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from heed.cli import options
from heed.cli.inputs import TrainingData, column_names, load_training_data, read_settings
from heed.cli.outputs import resumable, say, status
from heed.cli.root import app
from heed.errors import InputError

train_app = typer.Typer(
    help="""Train one of heed's own models.

    heed train single-layer --data imdb -o my-model
    """,
    no_args_is_help=True,
)
app.add_typer(train_app, name="train")


class Target(NamedTuple):
    """The folder of a model to train, its seed, and whether it is stored in half precision."""

    folder: Path
    seed: int
    fp16: bool


@train_app.command("single-layer")
def train_single_layer(
    output: options.OutputFolder,
    data: options.Data = "imdb",
    split: options.Split = "train",
    labels: options.Labels = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    pair_column: options.PairColumn = None,
    classes: options.Classes = None,
    test_data: options.TestData = None,
    limit: options.Limit = None,
    recipe: Annotated[
        str, typer.Option(help="'default', or 'paper' for Lopardo, Precioso and Garreau (2024).")
    ] = "default",
    set_: options.Settings = None,
    seed: options.Seed = 0,
    fp16: options.Fp16 = False,
) -> None:
    """Train the single-layer attention classifier and measure it on the test set.

    Run the same command again to resume an interrupted training.

    heed train single-layer --data imdb -o my-model
    """
    from heed.models.folders import check_free
    from heed.training import recipes

    settings = recipes.change(recipes.find(recipe), read_settings(set_))
    check_free(output)
    columns = column_names(text_column, label_column, pair_column)
    documents = load_training_data(data, split, limit, seed, labels, test_data, classes, columns)
    _train_own("single-layer", recipe, settings, documents, Target(output, seed, fp16))


@train_app.command("recurrent")
def train_recurrent(
    output: options.OutputFolder,
    encoder: Annotated[
        str, typer.Option(metavar="lstm|cnn|average", help="What reads the words.")
    ] = "lstm",
    attention: Annotated[
        str,
        typer.Option(
            metavar="additive|dot|uniform", help="How words are weighed; 'uniform': all alike."
        ),
    ] = "additive",
    data: options.Data = "sst",
    split: options.Split = "train",
    labels: options.Labels = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    pair_column: options.PairColumn = None,
    classes: options.Classes = None,
    test_data: options.TestData = None,
    limit: options.Limit = None,
    set_: options.Settings = None,
    seed: options.Seed = 0,
    fp16: options.Fp16 = False,
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

    settings = recipes.recurrent({"encoder": encoder, "attention": attention} | read_settings(set_))
    check_free(output)
    columns = column_names(text_column, label_column, pair_column)
    documents = load_training_data(data, split, limit, seed, labels, test_data, classes, columns)
    _train_own("recurrent", "recurrent", settings, documents, Target(output, seed, fp16))


@train_app.command("transformer")
def train_transformer(
    output: options.OutputFolder,
    base: Annotated[
        str | None,
        typer.Option(
            help="The model to train further: a folder, or ORG/NAME on the Hugging Face hub."
        ),
    ] = None,
    scratch: Annotated[
        str | None, typer.Option(help="Or the size of a new one, as LAYERSxWIDTH.", metavar="SIZE")
    ] = None,
    data: options.Data = "sst",
    split: options.Split = "train",
    labels: options.Labels = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    pair_column: options.PairColumn = None,
    classes: options.Classes = None,
    test_data: options.TestData = None,
    limit: options.Limit = None,
    set_: options.Settings = None,
    seed: options.Seed = 0,
    fp16: options.Fp16 = False,
) -> None:
    """Train a transformer and measure it on the test set.

    Run the same command again to resume an interrupted training.

    heed train transformer --base ORG/NAME --data sst -o my-model

    heed train transformer --scratch 2x128 --data imdb -o my-model

    Settings: epochs, batch, learning_rate, weight_decay, warmup, max_tokens, word_dropout,
    smoothing, average, validation; from scratch also family, vocabulary, heads, dropout.
    """
    from heed.models import folders
    from heed.training import recipes

    if (base is None) == (scratch is None):
        raise InputError(
            "Give either --base, a model to train further, or --scratch, the size of a new one."
        )
    settings = recipes.tuning(base is None, read_settings(set_))
    size = recipes.size(scratch) if scratch else (0, 0)
    recipes.check_heads(size, settings)
    source = None if base is None else folders.transformer_at(base)
    folders.check_free(output)
    columns = column_names(text_column, label_column, pair_column)
    documents = load_training_data(data, split, limit, seed, labels, test_data, classes, columns)
    with status("loading torch and transformers"):
        from heed.training import transformer

    target = Target(output, seed, fp16)
    done = _fit(transformer.fit, settings, documents, target, base=source, size=size)
    recipe = {"name": "fine-tuned" if base else "scratch"}
    recipe |= done.recipe.to_dict(scratch=base is None)
    facts = _facts(done, done.network, recipe, documents, target)
    facts["base"] = source.absolute().name if isinstance(source, Path) else source
    transformer.save(done, output, facts, fp16)
    _say_trained(output, facts)


def _train_own(
    kind: str, recipe: str, settings: Any, documents: TrainingData, target: Target
) -> None:
    """Train a model of heed's own of this kind, by a recipe of this name, and write its folder."""
    with status("loading torch"):
        from heed.models import checkpoint
        from heed.training import card, own, recurrent

    kinds: dict[str, tuple[Callable[..., Any], Callable[..., str]]] = {
        "single-layer": (own.fit, card.single_layer_card),
        "recurrent": (recurrent.fit, card.recurrent_card),
    }
    fit, describe = kinds[kind]
    done = _fit(fit, settings, documents, target)
    recipe_facts = {"name": recipe} | done.recipe.to_dict()
    facts = _facts(done, done.model.network, recipe_facts, documents, target)
    checkpoint.save(done.model, target.folder, facts, target.fp16, describe(done.model, facts))
    _say_trained(target.folder, facts)


def _fit(
    fit: Callable[..., Any], settings: Any, documents: TrainingData, target: Target, **start: Any
) -> Any:
    training, validation, _ = documents
    given = (training.documents, training.labels, settings, target.seed, target.folder.name)
    with resumable():
        return fit(*given, validation, resume=target.folder, **start)


def _facts(
    done: Any, network: Any, recipe: dict[str, Any], documents: TrainingData, target: Target
) -> dict[str, Any]:
    """How a model came about and how good it is, for its folder."""
    from heed.models.network import round_to_fp16
    from heed.training.card import facts

    if target.fp16:
        round_to_fp16(network)  # so that what is measured is what is stored
    command = shlex.join(["heed", *sys.argv[1:]])
    with status("measuring on the test set"):
        return facts(done, documents.training, documents.tested, recipe, target.seed, command)


def _say_trained(output: Path, facts: dict[str, Any]) -> None:
    best, test = facts["history"][facts["best_epoch"] - 1]["accuracy"], facts["test"]
    on_test = "" if test is None else f" · test accuracy {test['accuracy']:.4f}"
    say(f"{output}: best epoch {facts['best_epoch']}, validation accuracy {best:.4f}{on_test}")
