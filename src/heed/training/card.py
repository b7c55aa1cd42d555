"""The README of a trained model: data, recipe, command, accuracy, limits."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heed.data import Dataset
from heed.models.classifier import Classifier
from heed.text import Document

if TYPE_CHECKING:  # which load torch
    from heed.models.recurrent import Recurrent
    from heed.models.single_layer import SingleLayer
    from heed.training.loop import Training
    from heed.training.transformer import TrainedTransformer


def accuracy(model: Classifier, documents: Sequence[Document]) -> float:
    """Share of documents whose predicted label is the gold one."""
    gold = np.array([d.label for d in documents])
    return float((model(documents).argmax(1) == gold).mean())


def facts(
    done: Training,
    data: Dataset,
    test: Dataset | None,
    recipe: Mapping[str, Any],
    seed: int,
    command: str,
) -> dict[str, Any]:
    """How a model came about and how good it is, for its folder and its card."""
    tested: dict[str, Any] | None = None
    if test is not None:
        tested = {"data": test.name, "split": test.split, "documents": len(test)}
        tested["accuracy"] = accuracy(done.model, test.documents)
    source = {"name": data.name, "split": data.split, "documents": len(data), "source": data.source}
    return {
        "data": source,
        "recipe": dict(recipe),
        "command": command,
        "seed": seed,
        "history": done.history,
        "best_epoch": done.best,
        "test": tested,
        "seconds": round(done.seconds),
    }


def card(facts: Mapping[str, Any], name: str, about: str, shape: str, limits: str) -> str:
    """The model card of a checkpoint: data, recipe, command, accuracy, limits."""
    data, test = facts["data"], facts["test"]
    recipe = ", ".join(f"{k} {v}" for k, v in facts["recipe"].items() if k not in ("name", "shape"))
    best = facts["history"][facts["best_epoch"] - 1]["accuracy"]
    epochs = f"epoch {facts['best_epoch']} of {len(facts['history'])}"
    measured = "–"
    if test:
        other = f" of {test['data']}" if test["data"] != data["name"] else ""
        measured = (
            f"{test['accuracy']:.2%} on {test['documents']:,} documents of the {test['split']}"
            f" split{other}"
        )
    text = (
        f"Limits: {limits} Texts unlike its training data get predictions of unknown worth. It is"
        " meant for explaining and auditing, not for decisions about people."
    )
    return f"""# {name}

{about}

| | |
|---|---|
| data | {data["name"]}, {data["split"]} split, {data["documents"]:,} documents ({data["source"]}) |
| recipe | {facts["recipe"]["name"]}: {recipe} |
| shape | {shape} |
| seed | {facts["seed"]} |
| command | `{facts["command"]}` |
| validation accuracy | {best:.2%} ({epochs}) |
| test accuracy | {measured} |

{textwrap.fill(text, 100)}
"""


def single_layer_card(model: SingleLayer, facts: Mapping[str, Any]) -> str:
    shape = model.shape
    return card(
        facts,
        model.name,
        f"A single-layer, {shape.heads}-head attention classifier for the labels"
        f" {', '.join(model.labels)}.",
        f"{shape.vocabulary:,} words, d_e {shape.d_e}, d_att {shape.d_att}, d_out {shape.d_out};"
        f" reads {shape.max_words} words, padding {shape.padding}",
        "it reads lower-cased words and knows only those of its training data; every other word is"
        " `<unk>`. It has no layers above its attention, so that it cannot compose words (negation"
        " is learnt only as far as single words give it away).",
    )


def recurrent_card(model: Recurrent, facts: Mapping[str, Any]) -> str:
    shape = model.shape
    encoders = {
        "lstm": "a bidirectional LSTM",
        "cnn": "convolutions",
        "average": "a map of each token alone",
    }
    return card(
        facts,
        model.name,
        f"A classifier for the labels {', '.join(model.labels)}: {encoders[shape.encoder]} under"
        f" {shape.attention} attention.",
        f"{shape.vocabulary:,} words of {shape.width} numbers, states of {shape.hidden}; reads"
        f" {shape.max_words} words",
        "it reads lower-cased words and knows only those of its training data; every other word is"
        " `<unk>`.",
    )


def transformer_card(trained: TrainedTransformer, facts: Mapping[str, Any]) -> str:
    config = trained.network.config
    heads = getattr(config, "num_attention_heads", "?")
    layers = getattr(config, "num_hidden_layers", "?")
    millions = sum(p.numel() for p in trained.network.parameters()) / 1e6
    base = facts["base"]
    made, limits = "trained from scratch", ": words that are rare there mean little to it."
    if base:
        made, limits = f"fine-tuned from {base}", " and what its base had seen."
    return card(
        facts,
        trained.model.name,
        f"A {config.model_type} classifier for the labels {', '.join(trained.model.labels)},"
        f" {made}.",
        f"{layers} layer{'s' * (layers != 1)}, {heads} heads, {millions:.1f} million weights,"
        f" {len(trained.tokenizer):,} word pieces; reads {trained.model.tokenizer.max_tokens}"
        " tokens",
        "it reads the beginning of a long text and was trained on nothing but the data above"
        + limits,
    )
