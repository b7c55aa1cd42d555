"""What the experiments of a reproduction share: the scale, the documents, and models that are trained when needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from tqdm.auto import tqdm

from heed import data, tasks
from heed.data import Dataset
from heed.errors import DataError, InputError
from heed.models import load
from heed.models.classifier import CLOSED, Classifier
from heed.models.folders import read_config
from heed.models.recipes import RECIPES, Recipe, change
from heed.reproduce.results import Outcome
from heed.text import Document, Tokenizer

if TYPE_CHECKING:  # which load torch
    from heed.models.single_layer import SingleLayer

Scale = Literal["smoke", "full"]
_QUICK = {"epochs": 8, "batch": 32, "learning_rate": 5e-3, "average": 0.0, "word_dropout": 0.0}  # for few documents


@dataclass(eq=False)
class Lab:
    """One run of a reproduction.

    scale    "smoke" takes minutes on the bundled model and works without any data; "full" is the real thing
    folder   where results go; models that are trained on the way are kept in its folder `models`
    model    the single-layer model that is examined, in place of one that is trained here
    seed     of everything that is drawn
    """

    scale: Scale
    folder: Path
    model: str | None = None
    seed: int = 0
    progress: bool = False
    _models: dict[str, Classifier] = field(default_factory=dict, repr=False)
    _data: dict[tuple[str, str], Dataset] = field(default_factory=dict, repr=False)

    def pick(self, smoke: int, full: int) -> int:
        """A number that depends on the scale."""
        return smoke if self.scale == "smoke" else full

    # Documents

    def documents(self, n: int, split: str = "test", longest: int | None = None) -> Dataset:
        """The first n reviews of a shuffled IMDB split; where IMDB is not there, a smoke test takes what is."""
        found = self._reviews(split)
        chosen = [d for d in found if longest is None or len(d.text.split()) <= longest]
        return Dataset(
            found.name, found.split, tuple(chosen[:n]), found.labels, found.source, found.licence, found.notes
        )

    def _reviews(self, split: str) -> Dataset:
        if ("reviews", split) not in self._data:
            self._data["reviews", split] = self._find_reviews(split)
        return self._data["reviews", split]

    def _find_reviews(self, split: str) -> Dataset:
        if data.sources("imdb", split) is not None:
            return data.load("imdb", split, limit=25_000, seed=self.seed)
        if self.scale == "full":
            raise DataError("The full reproduction needs IMDB: set HEED_DATA, or run it with --scale smoke.")
        if data.sources("rotten_tomatoes", split) is not None:
            return data.load("rotten_tomatoes", split, limit=2000, seed=self.seed)
        return tasks.generate("reviews", 2000, self.seed + (split == "train"))

    # Models

    @property
    def examined(self) -> str:
        """Which model that is, as a user would say it."""
        trained = "the paper's recipe, trained here"
        return self.model or ("single-layer-imdb" if self.scale == "smoke" else trained)

    @property
    def name(self) -> str:
        """The name of the model that is examined."""
        return self.main.name

    @property
    def main(self) -> SingleLayer:
        """The model that is examined: the one that was named, the bundled one, or the paper's, trained here."""
        if self.model is None and self.scale == "full":
            return self.paper(0)
        name = self.model or "single-layer-imdb"
        if name not in self._models:
            self._models[name] = load(name)
        if CLOSED not in self._models[name].offers:
            raise InputError(f"This reproduction examines single-layer classifiers, and {name} is not one.")
        return cast("SingleLayer", self._models[name])

    def paper(self, seed: int) -> SingleLayer:
        """The paper's model, trained on IMDB by the paper's recipe (in a smoke test: shortly, on few documents)."""
        return cast("SingleLayer", self.train(f"paper-{seed}", {}, seed, RECIPES["paper"]))

    def train(
        self,
        name: str,
        changes: Mapping[str, object],
        seed: int,
        recipe: Recipe = RECIPES["default"],
        data: Dataset | None = None,
        stack: Mapping[str, object] | None = None,
        tokenizer: Callable[[Sequence[Document]], Tokenizer] | None = None,
    ) -> Any:
        """A model of this name trained with some settings changed, or the one that was trained before.

        It is a single-layer classifier, or a stack of layers (`stack`). Documents are the reviews unless `data` is
        given; a smoke test trains on few of them, for few epochs. `tokenizer` makes one from the documents.
        """
        from heed.models import checkpoint
        from heed.models.training import fit

        folder = self.folder / "models" / f"{self.scale}-{name}"
        if str(folder) in self._models:
            return self._models[str(folder)]
        data = self.documents(self.pick(1500, 25_000), "train") if data is None else data
        chosen = change(recipe, dict(changes) | (_QUICK if self.scale == "smoke" else {}))
        trained_on = {"name": data.name, "documents": len(data)}
        asked = {"seed": seed, "recipe": chosen.to_dict(), "trained_on": trained_on, "stack": dict(stack or {})}
        if not (folder / "model.json").exists() or not _same(read_config(folder), asked):
            self.say(f"training {name} on {len(data):,} documents")
            done = fit(
                data.documents,
                data.labels,
                chosen,
                seed,
                name,
                progress=self.progress,
                stack=stack,
                tokenizer=tokenizer(data.documents) if tokenizer else None,
            )
            checkpoint.save(done.model, folder, asked | {"history": done.history, "best_epoch": done.best})
        self._models[str(folder)] = checkpoint.load(folder)
        return self._models[str(folder)]

    def say(self, line: str) -> None:
        if self.progress:
            tqdm.write(line, file=sys.stderr)


def _same(config: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether a checkpoint was trained as asked, as far as JSON tells."""
    return all(config.get(key) == json.loads(json.dumps(value)) for key, value in asked.items())


@dataclass(frozen=True)
class Experiment:
    """One experiment: what it asks, and the function that answers."""

    name: str
    title: str
    question: str
    run: Callable[[Lab], Outcome]


@dataclass(frozen=True)
class Paper:
    """A paper: its title, its key in papers.bib, and the experiments in the order in which they are read."""

    title: str
    source: str
    experiments: tuple[Experiment, ...]
