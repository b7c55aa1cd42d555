"""Reading and writing models. Weights are safetensors; pickles are never read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from heed.errors import CheckpointError
from heed.models.classifier import Classifier
from heed.models.folders import find, read_config, writing
from heed.models.network import Trained
from heed.models.recurrent import Recurrent
from heed.models.single_layer import SingleLayer
from heed.models.stacked import Stacked

_KINDS: dict[str, type[Trained]] = {cls.kind: cls for cls in (SingleLayer, Stacked, Recurrent)}


def load(model: str | Path | None = None) -> Classifier:
    """A model by the name of a bundled one (the default one if no name is given) or by its folder."""
    folder = find(model)
    config = read_config(folder)
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise CheckpointError(
            f"{folder / 'model.json'} names the kind '{kind}', and heed knows {', '.join(_KINDS)}."
        )
    try:
        state = safetensors.torch.load_file(folder / "model.safetensors")
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"The weights of {folder} cannot be read ({error}).") from None
    return _KINDS[kind].restore(config, state, folder)


def round_to_half(model: Trained) -> None:
    """Round the weights to what half precision can hold."""
    for parameter in model.network.parameters():
        parameter.data = parameter.data.half().float()


def save(
    model: Trained, folder: Path, facts: Mapping[str, Any], half: bool = False, card: str = ""
) -> None:
    """Write a checkpoint; `facts` (data, recipe …) join its json, `card` is its README."""
    with writing(folder) as scratch:
        state = {key: value.contiguous() for key, value in model.network.state_dict().items()}
        if half:
            state = {key: value.to(torch.float16) for key, value in state.items()}
        safetensors.torch.save_file(state, scratch / "model.safetensors")
        config = dict(facts) | model.describe() | {"name": folder.name}
        (scratch / "model.json").write_text(
            json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf8"
        )
        if card:
            (scratch / "README.md").write_text(card, encoding="utf8")
        model.tokenizer.save(scratch / "tokenizer.json")
