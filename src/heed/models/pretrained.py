"""Networks and tokenizers of Hugging Face's libraries, from a folder or the hub.

Weights are safetensors, and no code of others runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging import ERROR
from pathlib import Path
from typing import Any

import tokenizers
import torch
from huggingface_hub import constants as hub
from huggingface_hub import get_session
from huggingface_hub.utils import logging as hub_logging
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from heed.errors import CheckpointError, InputError, quoted
from heed.models import devices, folders

CAUSAL = ("ForCausalLM", "LMHeadModel")  # how the names of language models' classes end
_LONGEST = 4096  # tokens read by models that set no limit
_MOST_LAYERS = 1000  # more would be built for hours before the weights turned out not to fit


def placed(
    model: str | Path, device: str, dtype: str, kind: Any = AutoModelForSequenceClassification
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[str]]:
    """As `read`, with the network on a device and in a precision that people name."""
    place = devices.choose(device)
    network, tokenizer, missing = read(model, devices.precision(dtype, place), kind)
    return _moved(network, place, model), tokenizer, missing


def _moved(network: PreTrainedModel, device: torch.device, name: str | Path) -> PreTrainedModel:
    """A network on its device."""
    try:
        return network.to(device)
    except RuntimeError as error:
        if not devices.is_out_of_memory(error):
            raise
    raise InputError(
        f"The model {quoted(str(name))} does not fit into the memory of {device}: use another"
        " --device, or half precision (--dtype bfloat16)."
    )


def read(
    model: str | Path,
    dtype: torch.dtype | str = torch.float32,
    kind: Any = AutoModelForSequenceClassification,
    **options: Any,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[str]]:
    """A network on the CPU, its tokenizer, and names of weights that the files lack."""
    safe: dict[str, Any] = {"trust_remote_code": False}
    name = quoted(str(model))
    with folders.reading(f"The model {name} cannot be loaded"), quiet():
        if not Path(model).exists() and not _hub_answers():
            safe["local_files_only"] = True  # what was downloaded before can still be read
        try:
            config = AutoConfig.from_pretrained(model, **safe)
        except OSError as error:
            if "connect to" not in str(error):
                raise
            raise CheckpointError(
                f"There is no folder {name}, and the Hugging Face hub could not be reached."
            ) from None
        if getattr(config, "num_hidden_layers", 0) > _MOST_LAYERS:
            raise ValueError(f"its config.json names {config.num_hidden_layers} layers")
        tokenizer = AutoTokenizer.from_pretrained(model, **safe)
        safe |= {"use_safetensors": True, "output_loading_info": True, "dtype": dtype}
        network, info = kind.from_pretrained(model, **safe, **options)
        vocabulary = int(getattr(network.config, "vocab_size", 0))
    if 10 * len(tokenizer) < vocabulary:  # the library makes one up where files lack
        raise CheckpointError(
            f"The model {name} comes without its tokenizer: put its files beside the weights."
        )
    return network, tokenizer, sorted(info["missing_keys"])


def _hub_answers() -> bool:
    """Whether the hub can be reached, asked once: its own library tries for half a minute."""
    with suppress(Exception):
        get_session().head(hub.ENDPOINT, timeout=5)
        return True
    return False


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and reports of `transformers`: heed says what matters in them."""
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    hub_level = hub_logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    hub_logging.set_verbosity(ERROR)  # it tells of every attempt to reach the hub
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hub_logging.set_verbosity(hub_level)
        if bars:
            logging.enable_progress_bar()


def name_of(model: str | Path) -> str:
    """A folder goes by its last part, a hub id as it is."""
    return Path(model).absolute().name if Path(model).exists() else str(model)


def is_causal(config: Any) -> bool:
    """Whether a model was saved as a language model, which goes on with a text."""
    return any(str(name).endswith(CAUSAL) for name in config.architectures or ())


def check_fast(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Refuse a tokenizer that does not say which characters its tokens come from."""
    if not getattr(tokenizer, "is_fast", False):
        raise CheckpointError(
            f"The tokenizer of {name} has no fast version, which heed needs to find words in the"
            " text."
        )


def backend(tokenizer: PreTrainedTokenizerBase) -> tokenizers.Tokenizer:
    """A copy of what a fast tokenizer runs."""
    return tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())


def longest(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens that the model reads: the tokenizer's limit, else the number of positions."""
    positions = getattr(model.config, "max_position_embeddings", None) or -1
    if positions < 1:  # no limit
        positions = _LONGEST
    for name, module in model.named_modules():
        placed = name.endswith("position_embeddings") and isinstance(module, nn.Embedding)
        if placed and module.padding_idx is not None:
            # positions are counted from behind that of padding
            positions = min(positions, module.num_embeddings - module.padding_idx - 1)
    return int(min(tokenizer.model_max_length, positions, _LONGEST))
