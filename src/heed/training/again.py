"""Training a model again: from another seed, with uniform attention, or to disagree with it.

And training a small network that weighs words by the attention of a model, or by none.
"""

from __future__ import annotations

import copy
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
from heed.models.network import NetworkClassifier
from heed.models.recurrent import Recurrent, RecurrentNetwork
from heed.models.stacked import Stacked
from heed.progress import say
from heed.settings import read as read_settings
from heed.store import Store, code_of, key_of
from heed.text import Document, Tokenizer, Tokens
from heed.training import own
from heed.training import recurrent as recurrent_training
from heed.training.examples import Examples, Guide, Weights, outputs_of, split
from heed.training.goals import Disagree, said_by
from heed.training.loop import Run, adamw, train
from heed.training.recipes import Recipe, RecurrentRecipe, recurrent
from heed.training.unfinished import Unfinished

_PATIENCE = 3  # epochs without a better one, after which an adversary is left as it is


@dataclass(eq=False)
class Retraining:
    """A model and what it was trained on.

    validation   documents by which epochs are chosen; by default a part of the others
    store        where models are kept, so that none is trained twice; by default in memory
    """

    model: NetworkClassifier
    documents: Sequence[Document]
    validation: Sequence[Document] = ()
    store: Store = field(default_factory=Store)
    _guided: dict[tuple[str, int], Guided] = field(default_factory=dict, repr=False)

    @cached_property
    def recipe(self) -> Recipe | RecurrentRecipe:
        """How the model was trained, as its folder says."""
        settings = self._settings()
        if isinstance(self.model, Recurrent):
            return recurrent(settings)
        shape = settings.pop("shape", {})
        return replace(Recipe(), **read_settings("the recipe", Recipe, settings), shape=dict(shape))

    def _settings(self) -> dict[str, Any]:
        recipe = self.model.facts.get("recipe")
        if not isinstance(recipe, Mapping):
            raise NotApplicable(f"{self.model.name} does not say how it was trained.")
        return {key: value for key, value in recipe.items() if key != "name"}

    @cached_property
    def split(self) -> tuple[list[Document], list[Document]]:
        """Documents to train and to validate on, when training starts from the model as it is."""
        rng, share = np.random.default_rng(0), self.recipe.validation
        return split(self.documents, self.validation, self.model.labels, share, rng)

    def seeds(self, count: int) -> list[int]:
        """Seeds other than the model's own."""
        seeds = [s for s in range(1, count + 2) if s != self.model.facts.get("seed")]
        return seeds[:count]

    def again(self, seed: int, uniform: bool = False) -> Classifier:
        """The same recipe from another seed; with `uniform`, all words are attended to alike."""
        settings = {"kind": "uniform" if uniform else "seed", "seed": seed}
        return self._kept(settings, lambda name, folder: self._again(seed, uniform, name, folder))

    def adversary(self, strength: float, seed: int = 0, epochs: int = 20) -> Classifier:
        """A copy that was trained to give the same predictions with another attention."""
        settings = {"kind": "adversary", "strength": strength, "seed": seed, "epochs": epochs}

        def make(name: str, folder: Path | None) -> Classifier:
            learnt, held = self.split
            model = self._copied(name)
            network = self._trainable(model)
            said = said_by(self.model, [*learnt, *held])
            examples, checks = (Examples.of(self.model.tokenizer, d) for d in (learnt, held))
            rng = np.random.default_rng(seed)
            task = Disagree(examples, checks, self.recipe.batch, rng, strength, said)
            run = Run(network, self._optimizer(network))
            unfinished = (
                None if folder is None else Unfinished(folder, settings, type(self).__module__)
            )
            train(run, task, epochs, patience=_PATIENCE, unfinished=unfinished)
            return model

        return self._kept(settings, make)

    def guided(self, name: str, guide: Guide | None, seed: int = 0) -> Guided:
        """A network that weighs tokens by a guide of this name; None: by attention of its own."""
        if (name, seed) not in self._guided:
            learnt, held = self.split
            recipe = self._guided_recipe(guide)
            model, tokenizer = self.model, self.model.tokenizer
            trained = recurrent_training.fit(
                learnt, model.labels, recipe, seed, "guided", held, tokenizer=tokenizer, guide=guide
            )
            self._guided[name, seed] = Guided(guide, tokenizer, trained.model.network)
        return self._guided[name, seed]

    def _guided_recipe(self, guide: Guide | None) -> RecurrentRecipe:
        """Of the recipe only what suits a network that sees every token by itself."""
        settings = asdict(self.recipe) if isinstance(self.recipe, RecurrentRecipe) else {}
        attention = "uniform" if guide else "additive"
        changes = {"encoder": "average", "attention": attention, "hidden": None}
        return RecurrentRecipe(**(settings | changes))

    # What differs between heed's own models and transformers

    def _again(self, seed: int, uniform: bool, name: str, resume: Path | None) -> Classifier:
        data, recipe = (self.documents, self.model.labels), self.recipe
        rest: Any = (seed, name, self.validation)
        shared: dict[str, Any] = {"tokenizer": self.model.tokenizer, "resume": resume}
        if isinstance(recipe, RecurrentRecipe):
            recipe = replace(recipe, attention="uniform") if uniform else recipe
            return recurrent_training.fit(*data, recipe, *rest, **shared).model
        stack = self.model.facts.get("stack") if isinstance(self.model, Stacked) else None
        return own.fit(*data, recipe, *rest, **shared, stack=stack, uniform=uniform).model

    def _copied(self, name: str) -> Any:
        """The model with weights of its own."""
        like = self.model
        network = copy.deepcopy(like.network)
        return type(like)(network, like.tokenizer, like.labels, name, like.pairs)

    def _trainable(self, model: Any) -> torch.nn.Module:
        """The network of a model, as the loop trains it."""
        return model.network

    def _optimizer(self, network: Any) -> torch.optim.Optimizer:
        if isinstance(self.recipe, RecurrentRecipe):
            return recurrent_training.optimizer(network, self.recipe)
        return adamw(network.parameters(), self.recipe)

    def _save(self, model: Any, folder: Path, settings: Mapping[str, Any]) -> None:
        checkpoint.save(model, folder, dict(settings))

    def _load(self, folder: Path, name: str, settings: Mapping[str, Any]) -> Classifier:
        return checkpoint.load(folder)

    # Keeping

    def _kept(
        self, settings: Mapping[str, Any], make: Callable[[str, Path | None], Classifier]
    ) -> Classifier:
        """The model that was made like this before, or a new one.

        `make` gets its name, and the folder in which an interrupted training resumes.
        """
        name = "-".join(str(value) for value in settings.values())
        key = self.key(settings)
        unfinished = self.store.unfinished(key)

        def train_now() -> Classifier:
            say(f"training {name} on {len(self.documents):,} documents")
            return make(name, unfinished)

        def save(model: Classifier, folder: Path) -> None:
            self._save(model, folder, settings)
            self.store.finish(key)

        return self.store.model(
            key, train_now, save, lambda folder: self._load(folder, name, settings)
        )

    def key(self, settings: Mapping[str, Any]) -> str:
        """What a model that is made like this is kept under."""
        code = code_of(type(self).__module__)
        return key_of(dict(settings), self._fingerprint, self.model.revision, code)

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for part in (self.documents, self.validation):
            for d in part:
                digest.update(json.dumps([*d.segments, d.label]).encode("utf8", "replace"))
            digest.update(b"\0")
        return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Guided:
    """A network that sees every token by itself, and weighs tokens as a guide says.

    It tests what attention weights are worth to another model (Wiegreffe and Pinter, 2019).
    """

    guide: Guide | None
    tokenizer: Tokenizer
    network: RecurrentNetwork

    def predicted(self, documents: Sequence[Document]) -> Int[np.ndarray, "document"]:
        """The label of each document."""
        return Examples.of(self.tokenizer, documents, self.guide).logits(self.network).argmax(1)


def guide_by(model: Classifier) -> Guide:
    """The attention of a model: its classifying row, mean over heads, on words alone."""

    def weights(tokens: Sequence[Tokens]) -> Weights:
        outputs = outputs_of(model, [t.document for t in tokens])
        return [_on_words(t, a[: len(t)]) for t, _, a in outputs]

    return weights


def guide_uniform(tokens: Sequence[Tokens]) -> Weights:
    """All words alike."""
    return [_on_words(t, np.ones(len(t))) for t in tokens]


def guide_random(tokens: Sequence[Tokens]) -> Weights:
    """Weights that have nothing to do with the words; the same for a document every time."""
    weights = []
    for t in tokens:
        noise = np.random.default_rng(list(t.ids.tobytes())).standard_normal(len(t))
        weights.append(_on_words(t, np.exp(2 * noise)))  # as peaked as trained ones often are
    return weights


def _on_words(tokens: Tokens, weights: Float[np.ndarray, "token"]) -> Float[np.ndarray, "token"]:
    kept = np.where(tokens.special, 0.0, weights)
    return kept / (kept.sum() or 1.0)
