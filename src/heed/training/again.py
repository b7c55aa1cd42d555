"""Training a model again: from another seed, with uniform attention, with weights of others, or to disagree with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from heed.errors import NotApplicable
from heed.models import checkpoint
from heed.models.classifier import Classifier
from heed.models.network import Trained
from heed.models.recurrent import Recurrent
from heed.models.stacked import Stacked
from heed.progress import say
from heed.settings import read as read_settings
from heed.text import Document, Tokens
from heed.training import loop as learning
from heed.training import own as training
from heed.training import recurrent as recurrent_training
from heed.training.recipes import Recipe, RecurrentRecipe, recurrent


@dataclass(eq=False)
class Retraining:
    """A model and what it was trained on.

    validation   documents by which epochs are chosen; a part of the others, if there are none
    folder       where models are kept, so that none is trained twice; without it they are kept in memory
    """

    model: Trained
    documents: Sequence[Document]
    validation: Sequence[Document] = ()
    folder: Path | None = None
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)
    _guided: dict[tuple[str, int], Guided] = field(default_factory=dict, repr=False)

    @cached_property
    def recipe(self) -> Recipe | RecurrentRecipe:
        """How the model was trained, as its checkpoint says."""
        known = self.model.facts.get("recipe")
        if not isinstance(known, Mapping):
            raise NotApplicable(f"{self.model.name} does not say how it was trained.")
        own = {key: value for key, value in known.items() if key != "name"}
        if isinstance(self.model, Recurrent):
            return recurrent(own)
        shape = own.pop("shape", {})
        return replace(Recipe(), **read_settings("the recipe", Recipe, own), shape=dict(shape))

    @cached_property
    def split(self) -> tuple[list[Document], list[Document]]:
        """Documents to train on and to validate on, for a training that starts from the model as it is."""
        rng = np.random.default_rng(0)
        return training.parts(
            self.documents, self.validation, self.model.labels, self.recipe.validation, rng
        )

    def seeds(self, count: int) -> list[int]:
        """Seeds other than the model's own."""
        return [seed for seed in range(1, count + 2) if seed != self.model.facts.get("seed")][
            :count
        ]

    def again(self, seed: int, uniform: bool = False) -> Trained:
        """The same recipe from another seed; with `uniform`, with all words attended to alike."""
        kind = "uniform" if uniform else "seed"
        return self._once(
            {"kind": kind, "seed": seed}, lambda name: self._again(seed, uniform, name)
        )

    def _again(self, seed: int, uniform: bool, name: str) -> Trained:
        shared: dict[str, Any] = {"validation": self.validation, "tokenizer": self.model.tokenizer}
        if isinstance(self.recipe, RecurrentRecipe):
            settings = asdict(self.recipe) | ({"attention": "uniform"} if uniform else {})
            done = recurrent_training.fit(
                self.documents, self.model.labels, RecurrentRecipe(**settings), seed, name, **shared
            )
        else:
            stack = self.model.facts.get("stack") if isinstance(self.model, Stacked) else None
            done = training.fit(
                self.documents,
                self.model.labels,
                self.recipe,
                seed,
                name,
                **shared,
                stack=stack,
                uniform=uniform,
            )
        return done.model

    def adversary(self, strength: float, seed: int = 0, epochs: int = 20) -> Trained:
        """A copy that was trained to give the same predictions with another attention."""
        settings = {"kind": "adversary", "strength": strength, "seed": seed, "epochs": epochs}
        return self._once(settings, lambda name: self._adversary(strength, seed, epochs, name))

    def _adversary(self, strength: float, seed: int, epochs: int, name: str) -> Trained:
        train, held = self.split
        return learning.disagree(
            self.model,
            train,
            held,
            strength,
            self._optimizer,
            self.recipe.batch,
            seed,
            name,
            epochs=epochs,
        )

    def guided(self, name: str, guide: learning.Guide | None, seed: int = 0) -> Guided:
        """A network that weighs tokens by a guide of this name, or by additive attention of its own if it is None."""
        if (name, seed) not in self._guided:
            train, held = self.split
            self._guided[name, seed] = Guided(
                self.model.tokenizer,
                train,
                self.model.labels,
                held,
                guide,
                seed,
                self._guide_recipe(guide),
            )
        return self._guided[name, seed]

    def _guide_recipe(self, guide: learning.Guide | None) -> RecurrentRecipe:
        """Of the recipe only what suits a network that sees every token by itself."""
        own = {
            "encoder": "average",
            "attention": "uniform" if guide else "additive",
            "hidden": None,
        }
        known = asdict(self.recipe) if isinstance(self.recipe, RecurrentRecipe) else {}
        return RecurrentRecipe(**(known | own))

    def _optimizer(self, network: Any) -> torch.optim.Optimizer:
        if isinstance(self.recipe, RecurrentRecipe):
            return recurrent_training.optimizer(network, self.recipe)
        return torch.optim.AdamW(
            network.parameters(),
            lr=self.recipe.learning_rate,
            weight_decay=self.recipe.weight_decay,
            fused=True,
        )

    def place(self, settings: Mapping[str, Any]) -> tuple[str, str]:
        """A name for a model that is made like this, and one that no other has."""
        about = {"model": self.model.revision, "data": self._fingerprint} | dict(settings)
        key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        name = "-".join(str(v) for v in settings.values())
        return name, f"{name}-{key}"

    def _once(self, settings: Mapping[str, Any], make: Callable[[str], Any]) -> Any:
        """The model that was made like this before, or a new one."""
        name, key = self.place(settings)
        if key not in self._kept:
            folder = None if self.folder is None else self.folder / key
            if folder is not None and (folder / "model.json").exists():
                self._kept[key] = checkpoint.load(folder)
            else:
                say(f"training {name} on {len(self.documents):,} documents")
                self._kept[key] = make(name)
                if folder is not None:
                    checkpoint.save(self._kept[key], folder, dict(settings))
        return self._kept[key]

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for d in [*self.documents, *self.validation]:
            digest.update(json.dumps([*d.segments, d.label]).encode("utf8", "replace"))
        return digest.hexdigest()[:16]


class Guided:
    """A network that sees every token by itself, and weighs tokens as it is told (Wiegreffe and Pinter, 2019)."""

    def __init__(
        self,
        tokenizer: Any,
        documents: Sequence[Document],
        labels: Sequence[str],
        validation: Sequence[Document],
        guide: learning.Guide | None,
        seed: int,
        recipe: RecurrentRecipe,
    ):
        self.guide, self.tokenizer = guide, tokenizer
        done = recurrent_training.fit(
            documents, labels, recipe, seed, "guided", validation, tokenizer=tokenizer, guide=guide
        )
        self.network, self.labels = done.model.network, tuple(labels)

    def predicted(self, documents: Sequence[Document]) -> Int[np.ndarray, "document"]:
        return learning.logits_of(
            self.network, learning.Examples.of(self.tokenizer, documents, self.guide)
        ).argmax(1)


def guide_by(model: Classifier) -> learning.Guide:
    """The attention of a model: its classifying row, mean over heads, without what lies on special tokens."""

    def weights(tokens: Sequence[Tokens]) -> learning.Weights:
        found = learning.outputs_of(model, [t.document for t in tokens])
        return [_on_words(t, a[: len(t)]) for t, _, a in found]

    return weights


def guide_uniform(tokens: Sequence[Tokens]) -> learning.Weights:
    """All words alike."""
    return [_on_words(t, np.ones(len(t))) for t in tokens]


def guide_random(tokens: Sequence[Tokens]) -> learning.Weights:
    """Weights that have nothing to do with the words: as peaked as trained ones often are, and the same every time."""
    return [
        _on_words(
            t, np.exp(np.random.default_rng(list(t.ids.tobytes())).standard_normal(len(t)) * 2)
        )
        for t in tokens
    ]


def _on_words(tokens: Tokens, weights: Float[np.ndarray, "token"]) -> Float[np.ndarray, "token"]:
    kept = np.where(tokens.special, 0.0, weights)
    return kept / (kept.sum() or 1.0)
