"""Training a transformer again: from another seed, with uniform attention, or against it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float
from torch import nn

from heed.errors import NotApplicable
from heed.models.arrays import Attended, Ids, Mask, Weights
from heed.models.classifier import Classifier
from heed.models.folders import reading, writing
from heed.models.hook import Recorder, recording
from heed.models.passes import Row
from heed.models.sources import identity
from heed.models.transformer import Transformer
from heed.training import transformer
from heed.training.again import Retraining
from heed.training.recipes import Tuning
from heed.training.recipes import tuning as tuning_recipe

_WEIGHTS = "model.safetensors"


class UniformTransformer(Transformer):
    """A transformer that attends to everything alike, in every layer."""

    def outputs(self, rows: Sequence[Any]) -> Float[np.ndarray, "row label"]:
        with recording(Recorder(uniform=True)):
            return super().outputs(rows)


class TrainableTransformer(nn.Module):
    """A transformer as goals run it: ids in, logits and the classifying row of attention out."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model
        self.network = model.model
        self.shape = SimpleNamespace(labels=len(model.labels), padding="masked")

    def attended(self, ids: Ids, real: Mask, weights: Weights | None = None) -> Attended:
        documents = [row[mask].numpy() for row, mask in zip(ids, real, strict=True)]
        inputs, _ = self.model.inputs([Row(d, np.zeros_like(d)) for d in documents])
        with recording(Recorder(learning=True)) as recorder:
            logits = self.model._spread(self.network(**inputs, **self.model._uncached).logits)
        attention, row = recorder.passed[-1].weights.mean(1), self.model._rows(inputs)
        if bool((row < 0).any()):
            return logits, (attention * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return logits, attention[torch.arange(len(attention)), row]


@dataclass(eq=False)
class TransformerRetraining(Retraining):
    """A transformer that heed trained and what it was trained on.

    base   what it was fine-tuned from, if it was
    """

    model: Transformer  # type: ignore[assignment]
    base: str | Path | None = None

    @cached_property
    def recipe(self) -> Tuning:  # type: ignore[override]
        settings = self._settings()
        if self.model.pairs and any(d.pair is not None for d in self.documents):
            raise NotApplicable("Transformers of pairs are not trained again.")
        return tuning_recipe(self.model.facts.get("base") is None, settings)

    def key(self, settings: Mapping[str, Any]) -> str:
        return super().key({**settings, "base": identity(self.base)})

    def _again(self, seed: int, uniform: bool, name: str, resume: Path | None) -> Classifier:
        config = self.model.model.config
        size = (getattr(config, "num_hidden_layers", 2), getattr(config, "hidden_size", 128))
        start: dict[str, Any] = {"base": self.base, "size": size, "uniform": uniform}
        start |= {"tokenizer": self.model.pretrained_tokenizer, "resume": resume}
        trained = transformer.fit(
            self.documents, self.model.labels, self.recipe, seed, name, self.validation, **start
        )
        kind = UniformTransformer if uniform else Transformer
        return kind(trained.network, trained.tokenizer, name)

    def _copied(self, name: str) -> Transformer:
        return Transformer(self._network(), self.model.pretrained_tokenizer, name)

    def _network(self) -> Any:
        """Weights of its own to learn, which is done on the CPU in single precision."""
        return copy.deepcopy(self.model.model).cpu().float()

    def _trainable(self, model: Any) -> nn.Module:
        return TrainableTransformer(model)

    def _save(self, model: Any, folder: Path, settings: Mapping[str, Any]) -> None:
        """The weights alone: all else is that of the model."""
        state = model.model.state_dict()
        with writing(folder) as scratch:
            # a clone each, because tied weights share their memory
            copies = {key: value.contiguous().clone() for key, value in state.items()}
            safetensors.torch.save_file(copies, scratch / _WEIGHTS)

    def _load(self, folder: Path, name: str, settings: Mapping[str, Any]) -> Classifier:
        network = self._network()
        with reading(f"The model {folder} cannot be loaded"):
            network.load_state_dict(safetensors.torch.load_file(folder / _WEIGHTS))
        kind = UniformTransformer if settings["kind"] == "uniform" else Transformer
        return kind(network, self.model.pretrained_tokenizer, name)
