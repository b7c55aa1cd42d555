"""`heed.entailed`: labels as hypotheses. What needs no torch is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heed.errors import InputError, quoted
from heed.models.template import typed_labels

if TYPE_CHECKING:  # which loads torch
    from heed.models.entailment import Entailed

HYPOTHESIS = "This text is about {}."


def entailed(
    model: Any,
    labels: Mapping[str, str] | Sequence[str] | str,
    hypothesis: str = HYPOTHESIS,
    tokenizer: Any = None,
    *,
    entailment: str | int | None = None,
    several: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    batch_tokens: int | None = None,
) -> Entailed:
    """A model of entailment as a classifier of any labels: does the text entail the hypothesis?

    model        a classifier of pairs (text, hypothesis) that has a label for entailment: a name,
                 a folder, what heed.load returns, or a model of `transformers`
    labels       their names; with other words for the hypothesis, by name: {"sport": "a match"}
    hypothesis   a sentence with {} where the label stands
    tokenizer    its tokenizer, if the model is one of `transformers`
    entailment   the name or index of that label, if it is not called entailment
    several      whether a text may have any number of the labels: then entailment is weighed
                 against contradiction, for each label by itself
    device, dtype, batch_tokens   as in heed.load, for a model that is named
    """
    phrases = _phrases(labels)
    if not isinstance(hypothesis, str) or hypothesis.count("{}") != 1:
        raise InputError(
            f"A hypothesis is a sentence with one {{}} for the label, got {hypothesis!r}."
        )
    hypotheses = {name: hypothesis.replace("{}", phrase) for name, phrase in phrases.items()}
    if len(set(hypotheses.values())) < len(hypotheses):
        raise InputError("Two labels have the same hypothesis: give them other words.")
    from heed import models
    from heed.models.entailment import Entailed
    from heed.models.transformer import Transformer

    if isinstance(model, str | Path):
        judge: Any = models.load(model, device, dtype, batch_tokens)
    else:
        judge = models.of(model if tokenizer is None else (model, tokenizer))
    if not isinstance(judge, Transformer):
        raise InputError("Entailment is judged by a transformer: a name, a folder, or a model.")
    names = [name.casefold() for name in judge.labels]
    if entailment is None:
        if not any(name.startswith("entail") for name in names):
            raise InputError(
                f"{judge.name} has no label for entailment, only"
                f" {quoted(', '.join(judge.labels))}: name it by entailment=… (--entailment)."
            )
        index = next(i for i, name in enumerate(names) if name.startswith("entail"))
    else:
        index = judge.label(entailment)
    return Entailed(judge, hypotheses, index, _against(names, index) if several else None)


def _phrases(labels: Mapping[str, str] | Sequence[str] | str) -> dict[str, str]:
    """What stands in the hypothesis for each label."""
    if isinstance(labels, str):
        pairs = [(name, "|".join(words)) for name, words in typed_labels(labels)]
    elif isinstance(labels, Mapping):
        pairs = list(labels.items())
    else:
        pairs = [(name, name) for name in labels]
    phrases = dict(pairs)
    if not all(isinstance(p, str) and p.strip() for pair in pairs for p in pair):
        raise InputError(f"Labels are names or phrases that are not empty, got {labels!r}.")
    if len(phrases) < 2 or len(phrases) < len(pairs):
        raise InputError(f"At least two labels of different names are needed, got {labels!r}.")
    return phrases


def _against(names: Sequence[str], entailment: int) -> int:
    """The label that says the opposite of entailment."""
    for i, name in enumerate(names):
        if name.startswith("contra"):
            return i
    if len(names) == 2:
        return 1 - entailment
    raise InputError("Labels that do not exclude each other need a label for contradiction.")
