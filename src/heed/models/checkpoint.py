"""Reading and writing heed's own models. Weights are safetensors; pickles are never read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from heed.errors import CheckpointError, quoted
from heed.models.folders import find, read_config, reading, write_json, writing
from heed.models.network import NetworkClassifier
from heed.models.recurrent import Recurrent
from heed.models.single_layer import SingleLayer
from heed.models.stacked import Stacked

_KINDS: dict[str, type[NetworkClassifier]] = {
    cls.kind: cls for cls in (SingleLayer, Stacked, Recurrent)
}


def load(model: str | Path | None = None) -> NetworkClassifier:
    """A model by its folder, or by the name of a bundled one (by default the default one)."""
    folder = find(model)
    config = read_config(folder)
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise CheckpointError(
            f"{quoted(str(folder / 'model.json'))} names the kind '{quoted(kind)}', and heed knows"
            f" {', '.join(_KINDS)}."
        )
    with reading(f"The weights of {quoted(str(folder))} cannot be read"):
        state = safetensors.torch.load_file(folder / "model.safetensors")
    with reading(f"The model {quoted(str(folder))} cannot be loaded"):
        return _KINDS[kind].restore(config, state, folder)


def save(
    model: NetworkClassifier,
    folder: Path,
    facts: Mapping[str, Any],
    fp16: bool = False,
    card: str = "",
) -> None:
    """Write a model; `facts` (data, recipe …) join its `model.json`, `card` is its README."""
    with writing(folder) as scratch:
        state = {key: value.contiguous() for key, value in model.network.state_dict().items()}
        if fp16:
            state = {key: value.to(torch.float16) for key, value in state.items()}
        safetensors.torch.save_file(state, scratch / "model.safetensors")
        config = dict(facts) | model.to_dict() | {"name": folder.name}
        write_json(scratch / "model.json", config)
        if card:
            (scratch / "README.md").write_text(card, encoding="utf8")
        model.tokenizer.save(scratch / "tokenizer.json")
