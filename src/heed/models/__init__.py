"""Models behind the four doors of `heed.models.classifier.Classifier`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from heed.errors import InputError
from heed.models.classifier import Classifier
from heed.models.function import Function
from heed.progress import say

# What users may pass as a model; the last of these is a pair of a transformer and its tokenizer.
Model = Classifier | Callable[[list[Any]], Any] | tuple[Any, Any]


def of(model: Model) -> Classifier:
    """The classifier that a user passed, or that heed makes of a plain function from texts to
    probabilities, of a transformer and its tokenizer, or of a pipeline of `transformers`.
    """
    if isinstance(model, Classifier):
        return model
    both = (getattr(model, "model", None), getattr(model, "tokenizer", None))
    if isinstance(model, tuple):
        both = model
    if len(both) == 2 and hasattr(both[0], "config") and hasattr(both[1], "model_max_length"):
        from heed.models import transformer

        return transformer.wrap(*both)
    if len(both) == 2 and hasattr(both[1], "config") and hasattr(both[0], "model_max_length"):
        raise InputError("Got (tokenizer, model): swap them, as in (model, tokenizer).")
    if hasattr(model, "config") and hasattr(model, "forward"):
        raise InputError("A transformer needs its tokenizer: pass both, as in (model, tokenizer).")
    if callable(model):
        return Function(model)
    raise InputError(
        "A model is what heed.load returns, a pair (model, tokenizer) of transformers, or a"
        f" function from a list of texts to probabilities, got {type(model).__name__}."
    )


def load(
    model: Model | str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    batch_tokens: int | None = None,
) -> Classifier:
    """A model by its folder, by its hub id, or by the name of a bundled or installed public one.

    Without a name it is the default one. A model that is handed in (see `of`) stays where and as it
    is.

    device         where a transformer runs: "cpu", "cuda", "cuda:1", "mps"; "auto" is what the
                   environment variable HEED_DEVICE names, else cuda or mps if there is one
    dtype          its precision: "float32", "bfloat16", "float16"; "auto" is float32 on the CPU,
                   and elsewhere what the file has
    batch_tokens   how many tokens a batch may hold at first; by default as many as fit
    """
    from heed.models import devices, folders, public

    devices.check(device, dtype)
    devices.check_batch_tokens(batch_tokens)
    loaded: Classifier
    if not isinstance(model, str | Path | None):
        if (device, dtype) != ("auto", "auto"):
            raise InputError("A model that is handed in stays where and as it is: move it before.")
        loaded = of(model)
    elif folders.is_transformer(model):
        from heed.models import transformer

        loaded = transformer.load(folders.transformer_at(str(model)), device, dtype)
        if isinstance(model, str) and model in public.checkpoints():
            loaded.pairs = public.checkpoints()[model].pairs
    else:
        folders.read_config(folders.find(model))  # refuse before torch is loaded
        from heed.models import checkpoint

        # what the environment names is for models that can run there
        elsewhere = device != "auto" and devices.choose(device).type != "cpu"
        loaded = checkpoint.load(model)
        if elsewhere or dtype not in ("auto", "float32"):
            say(f"{loaded.name} is a model of heed's own, which runs on the CPU in float32.")
    loaded.batch_tokens = batch_tokens or loaded.batch_tokens
    return loaded
