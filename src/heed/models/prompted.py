"""`heed.prompted`: a language model as a classifier. What needs no torch is here."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from heed.errors import InputError
from heed.models import devices, folders
from heed.models.template import Labels, Prompt, Template, label_words
from heed.progress import say

if TYPE_CHECKING:  # which loads torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from heed.models.language_model import Prompted

TEMPLATE = "Review: {text}\nSentiment:"
LABELS = MappingProxyType({"negative": " negative", "positive": " positive"})


def prompted(
    model: PreTrainedModel | str | Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
    template: str = TEMPLATE,
    labels: Labels = LABELS,
    *,
    chat: bool = False,
    system: str | None = None,
    calibrate: bool = False,
    device: str = "auto",
    dtype: str = "auto",
    batch_tokens: int | None = None,
) -> Prompted:
    """A causal language model as a classifier: what follows a prompt is the label.

    model       a language model of `transformers`, a folder, ORG/NAME on the Hugging Face hub, or
                one of `heed models`
    tokenizer   its tokenizer, if the model is one of `transformers`
    template    the prompt, with {text} where the text stands, and {pair} for a second text
    labels      by name, the word or words that stand for a label, as they follow the prompt:
                {"bad": " negative", "good": [" positive", " great"]}. Or names that are the words
                themselves, as a list, or as on the command line: "bad=negative|awful,good"
    chat        make the template the message of a user, by the tokenizer's chat template
    system      the system message of the chat
    calibrate   subtract the log-probabilities of the labels behind a prompt with an empty text
    device, dtype, batch_tokens   as in heed.load, for a model that is named
    """
    devices.check_batch_tokens(batch_tokens)
    layout = Template(template)
    if others := layout.others():
        say(f"{', '.join(others)} in the template stands as it is: gaps are {{text}} and {{pair}}.")
    if system is not None and not chat:
        raise InputError("A system message belongs to a chat: add chat=True.")
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise InputError("A model that is named brings its tokenizer: leave it out.")
        devices.check(device, dtype)
        folders.transformer_at(str(model))  # refuse before torch is loaded
    elif tokenizer is None or not hasattr(model, "config"):
        raise InputError(
            "A language model is a name, a folder, or a model of transformers and its tokenizer:"
            " prompted(model, tokenizer, …)."
        )
    if not chat:
        label_words(labels, layout)
    from heed.models import language_model, pretrained

    if isinstance(model, str | Path):
        name = str(model)
        network, reader = language_model.load(name, device, dtype)
    else:
        # adapters of PEFT are inside of the base
        network = model.get_base_model() if hasattr(model, "get_base_model") else model
        reader = tokenizer
        if not any(cls.__name__.endswith(pretrained.CAUSAL) for cls in type(network).__mro__):
            kind = type(network).__name__
            raise InputError(f"heed prompts causal language models, got {kind}.")
        name = model.config.name_or_path or model.config.model_type
    layout = layout.as_chat(reader, system) if chat else layout
    prompt = Prompt(layout, label_words(labels, layout), chat, calibrate)
    asked = language_model.Prompted(network, reader, pretrained.name_of(name), prompt)
    asked.batch_tokens = batch_tokens or asked.batch_tokens
    return asked
