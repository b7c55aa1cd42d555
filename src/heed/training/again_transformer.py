"""Training a transformer again: from another seed, with uniform attention, or to disagree with it."""

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
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heed.errors import NotApplicable
from heed.models.classifier import Classifier
from heed.models.hook import Recorder, recording
from heed.models.passes import Row
from heed.models.transformer import Transformer
from heed.progress import say
from heed.training import loop as learning
from heed.training import transformer as tuning
from heed.training.again import Retraining
from heed.training.recipes import Tuning
from heed.training.recipes import tuning as tuning_recipe


class UniformTransformer(Transformer):
    """A transformer that attends to everything alike, in every layer."""

    def outputs(self, rows: Sequence[Any]) -> Float[np.ndarray, "row label"]:
        with recording(Recorder(uniform=True)):
            return super().outputs(rows)


class Tunable(nn.Module):
    """A transformer as the loop in `learning.py` trains it: ids in, logits and the classifying row out."""

    def __init__(self, subject: Transformer):
        super().__init__()
        self.subject = subject
        self.inner = subject.model
        self.shape = SimpleNamespace(labels=len(subject.labels), padding="masked")

    def attended(
        self,
        ids: Int[Tensor, "batch token"],
        real: Bool[Tensor, "batch token"],
        weights: Float[Tensor, "batch token"] | None = None,
    ) -> tuple[Float[Tensor, "batch label"], Float[Tensor, "batch token"]]:
        lengths = real.sum(1).tolist()
        rows = [
            Row(i[:n].numpy(), np.zeros(n, dtype=np.int64))
            for i, n in zip(ids, lengths, strict=True)
        ]
        inputs, _ = self.subject.inputs(rows)
        with recording(Recorder(learning=True)) as recorder:
            logits = self.subject._spread(self.inner(**inputs, **self.subject._uncached).logits)
        own, row = recorder.weights[-1].mean(1), self.subject._rows(inputs)
        if bool((row < 0).any()):
            return logits, (own * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return logits, own[torch.arange(len(own)), row]


@dataclass(eq=False)
class Retuning(Retraining):
    """A transformer that heed trained and what it was trained on; `base` is what it was fine-tuned from."""

    model: Transformer  # type: ignore[assignment]
    base: str | Path | None = None

    @cached_property
    def recipe(self) -> Tuning:  # type: ignore[override]
        known = self.model.facts.get("recipe")
        if not isinstance(known, Mapping):
            raise NotApplicable(f"{self.model.name} does not say how it was trained.")
        if self.model.pairs and any(d.pair is not None for d in self.documents):
            raise NotApplicable("Transformers of pairs are not trained again.")
        own = {key: value for key, value in known.items() if key != "name"}
        return tuning_recipe(self.model.facts.get("base") is None, own)

    def again(self, seed: int, uniform: bool = False) -> Classifier:  # type: ignore[override]
        settings = {"kind": "uniform" if uniform else "seed", "seed": seed}
        name, key = self.place(settings)
        if key not in self._kept:
            say(f"training {name} on {len(self.documents):,} documents")
            config = self.model.model.config
            size = (getattr(config, "num_hidden_layers", 2), getattr(config, "hidden_size", 128))
            done = tuning.tune(
                self.documents,
                self.model.labels,
                self.recipe,
                self.base,
                size,
                seed,
                name,
                self.validation,
                None
                if self.folder is None
                else self.folder / key,  # a training that was stopped goes on
                uniform,
                self.model.pretrained_tokenizer,
            )
            kind = UniformTransformer if uniform else Transformer
            self._kept[key] = kind(done.network, done.tokenizer, name)
        return self._kept[key]

    def adversary(self, strength: float, seed: int = 0, epochs: int = 20) -> Classifier:  # type: ignore[override]
        settings = {"kind": "adversary", "strength": strength, "seed": seed, "epochs": epochs}
        name, key = self.place(settings)
        if key not in self._kept:
            own = copy.deepcopy(self.model.model)
            subject = Transformer(
                own, self.model.pretrained_tokenizer, name
            )  # sees the weights as they move
            path = None if self.folder is None else self.folder / f"{key}.safetensors"
            if path is not None and path.exists():
                subject.model.load_state_dict(safetensors.torch.load_file(path))
            else:
                say(f"training {name} on {len(self.documents):,} documents")
                self._disagree(subject, strength, seed, epochs)
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    state = {
                        k: v.contiguous().clone() for k, v in subject.model.state_dict().items()
                    }
                    safetensors.torch.save_file(state, path.with_suffix(".part"))
                    path.with_suffix(".part").replace(path)
            subject.model.eval().requires_grad_(False)
            self._kept[key] = subject
        return self._kept[key]

    def _disagree(self, subject: Transformer, strength: float, seed: int, epochs: int) -> None:
        train, held = self.split
        goal = learning.Disagree.of(self.model, [*train, *held], strength)
        examples, checks = (learning.Examples.of(self.model.tokenizer, d) for d in (train, held))
        network, rng = Tunable(subject), np.random.default_rng(seed)
        optimizer = torch.optim.AdamW(
            network.parameters(),
            lr=self.recipe.learning_rate,
            weight_decay=self.recipe.weight_decay,
            fused=True,
        )
        learning.train(
            network,
            optimizer,
            goal,
            examples,
            checks,
            self.recipe.batch,
            rng,
            epochs,
            patience=3,
        )
