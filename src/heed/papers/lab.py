"""What experiments share: the scale, the documents, and models that are trained when needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from heed import data
from heed.data import Dataset, tasks
from heed.errors import DataError, InputError
from heed.models import load
from heed.models.classifier import CLOSED
from heed.papers.results import Outcome, texts
from heed.papers.table import Row, Table
from heed.progress import say
from heed.store import Store, code_of, key_of
from heed.text import Document, Tokenizer
from heed.training.recipes import RECIPES, Recipe, change

if TYPE_CHECKING:  # which load torch
    from heed.models.single_layer import SingleLayer
    from heed.training.loop import Training

Scale = Literal["smoke", "full"]
OTHER_DATA = ("sst", "ag_news", "sick")  # which the experiment of that name reads at full scale
# training on few documents
_QUICK = {"epochs": 8, "batch": 32, "learning_rate": 5e-3, "average": 0.0, "word_dropout": 0.0}


@dataclass(eq=False)
class Lab:
    """One run of a reproduction.

    scale    "smoke" takes minutes on the bundled model and works without any data; "full" is the
             real thing
    folder   where results go, and models that are trained on the way
    model    the single-layer model to examine, instead of one that is trained here
    seed     of all random draws
    """

    scale: Scale
    folder: Path
    model: str | None = None
    seed: int = 0
    store: Store = field(init=False, repr=False)
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.store = Store(self.folder)

    def choose(self, sets: Sequence[str]) -> None:
        """Look only at some of the data sets of a paper that has several."""
        if sets:
            raise InputError("This paper has no choice of data sets: leave out --data.")

    def once(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """What a function returns, called once with these arguments in this run."""
        key = (make.__name__, *arguments)
        if key not in self._kept:
            self._kept[key] = make(*arguments)
        return self._kept[key]

    def pick(self, smoke: int, full: int) -> int:
        """A number that depends on the scale."""
        return smoke if self.scale == "smoke" else full

    # Documents

    def documents(self, n: int, split: str = "test", longest: int | None = None) -> Dataset:
        """The first n reviews of a shuffled IMDB split, or, in a smoke test, of what is there."""
        reviews = self.once(self._reviews, split)
        short = [d for d in reviews if longest is None or len(d.text.split()) <= longest]
        return replace(reviews, documents=tuple(short[:n]))

    def _reviews(self, split: str) -> Dataset:
        if data.sources("imdb", split) is not None:
            return data.load("imdb", split, limit=25_000, seed=self.seed)
        if self.scale == "full":
            raise DataError(
                "The full reproduction needs IMDB: set HEED_DATA, or run it with --scale smoke."
            )
        if data.sources("rotten_tomatoes", split) is not None:
            return data.load("rotten_tomatoes", split, limit=2000, seed=self.seed)
        return tasks.generate("reviews", 2000, self.seed + (split == "train"))

    def parts(self, name: str) -> tuple[Dataset, Dataset]:
        """The documents of another data set to train on and to test on."""
        train = self.once(data.load, name, "train", 30_000, self.seed)
        return train, self.once(data.load, name, "test", 3000, self.seed)

    # Models

    @property
    def examined(self) -> str:
        """Which model that is, as a user would say it."""
        trained = "the paper's recipe, trained here"
        return self.model or ("single-layer-imdb" if self.scale == "smoke" else trained)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the reviews, and with the weights of a model that is not trained here."""
        trained_here = self.model is None and self.scale == "full"
        revision = None if trained_here else self.main.revision
        reviews = [self.once(self._reviews, split) for split in ("train", "test")]
        return key_of(fingerprint(*reviews), revision)

    def read_by(self, experiment: str) -> str:
        """Changes with all documents that an experiment reads, and with the weights."""
        if experiment != "other-data" or self.scale == "smoke":
            return self.fingerprint
        parts = [part for name in OTHER_DATA for part in self.parts(name)]
        return key_of(self.fingerprint, fingerprint(*parts))

    @property
    def name(self) -> str:
        """The name of the model that is examined."""
        return self.main.name

    @property
    def main(self) -> SingleLayer:
        """The model that is examined: as named, the bundled one, or the paper's, trained here."""
        if self.model is None and self.scale == "full":
            return self.paper(0)
        name = self.model or "single-layer-imdb"
        model = self.once(load, name)
        if CLOSED not in model.offers:
            raise InputError(
                f"This reproduction examines single-layer classifiers, and {name} is not one."
            )
        return cast("SingleLayer", model)

    def paper(self, seed: int) -> SingleLayer:
        """The paper's model, trained by its recipe (in a smoke test: briefly, on few documents)."""
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
        """A model trained with some settings changed, from the store if it is there.

        It is a single-layer classifier, or a stack of layers (`stack`). It learns from `data`, by
        default the reviews; a smoke test trains on few of them, for few epochs. `tokenizer` makes a
        tokenizer from the documents.
        """
        from heed.training.own import fit

        data = self.documents(self.pick(1500, 25_000), "train") if data is None else data
        recipe = change(recipe, dict(changes) | (_QUICK if self.scale == "smoke" else {}))
        settings = {"seed": seed, "recipe": recipe.to_dict(), "stack": dict(stack or {})}

        def make() -> Training:
            made = tokenizer(data.documents) if tokenizer else None
            return fit(data.documents, data.labels, recipe, seed, name, stack=stack, tokenizer=made)

        return self.trained(name, data, settings, make)

    def trained(
        self,
        name: str,
        data: Dataset,
        settings: Mapping[str, Any],
        make: Callable[[], Training],
        trainer: str = "heed.training.own",
    ) -> Any:
        """A model from the store, or trained now by `make`.

        It is kept under the settings, the documents, and the code of the module `trainer`.
        """
        from heed.models import checkpoint

        def train() -> Any:
            say(f"training {name} on {len(data):,} documents")
            done = make()
            done.model.facts = {
                "trained_on": {"name": data.name, "documents": len(data)},
                **settings,
                "history": done.history,
                "best_epoch": done.best,
            }
            return done.model

        def save(model: Any, folder: Path) -> None:
            checkpoint.save(model, folder, model.facts)

        key = self.key(name, fingerprint(data), settings, code_of(trainer))
        model = self.store.model(key, train, save, checkpoint.load)
        model.name = f"{self.scale}-{name}"
        return model

    def key(self, name: str, *parts: Any) -> str:
        """The key of a model, which is the name of its folder."""
        return f"{self.scale}-{name}-{key_of(*parts)[:8]}"

    def piece(self, settings: Mapping[str, Any], measure: Callable[[], Sequence[Row]]) -> Table:
        """Rows from the store, or measured now.

        They are kept under the settings and the code of `measure`: an interrupted experiment
        resumes from its pieces, unless its code has changed.
        """
        key = key_of("piece", self.scale, self.seed, settings, code_of(_module(measure)))

        def make() -> list[Row]:
            names = ("what", "data", "encoder", "attention")
            say(f"  {', '.join(str(settings[name]) for name in names if name in settings)}")
            return list(measure())

        return Table(self.store.rows(key, make))


def _module(function: Callable[..., Any]) -> str:
    return _module(function.func) if isinstance(function, partial) else function.__module__


def fingerprint(*parts: Dataset) -> str:
    """Changes with the documents and their labels."""
    return key_of([[(d.segments, d.label) for d in part] for part in parts])


@dataclass(frozen=True)
class Experiment:
    """One experiment: what it asks, and the function that answers."""

    name: str
    title: str
    question: str
    run: Callable[[Any], Outcome]


@dataclass(frozen=True)
class Paper:
    """A paper.

    source        its key in papers.bib
    experiments   in the order in which they are read
    lab           what they run in
    """

    title: str
    source: str
    experiments: tuple[Experiment, ...]
    lab: Callable[..., Lab] = Lab

    @classmethod
    def named(
        cls, name: str, runs: Mapping[str, Callable[[Any], Outcome]], lab: Callable[..., Lab] = Lab
    ) -> Paper:
        """The paper of this name in papers.toml, with a function for each of its experiments."""
        about = texts("papers")[name]
        experiments = []
        for key, run in runs.items():
            title, question = about["experiments"][key]
            experiments.append(Experiment(key, title, question, run))
        return cls(about["title"], about["source"], tuple(experiments), lab)
