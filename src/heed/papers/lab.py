"""What the experiments of a reproduction share: the scale, the documents, and models that are trained when needed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from heed import data
from heed.data import Dataset, tasks
from heed.errors import DataError, InputError, OutputError
from heed.models import load
from heed.models.classifier import CLOSED, Classifier
from heed.models.folders import read_config
from heed.papers.results import Outcome, Row
from heed.progress import say
from heed.text import Document, Tokenizer
from heed.training.recipes import RECIPES, Recipe, change

if TYPE_CHECKING:  # which load torch
    from heed.models.single_layer import SingleLayer
    from heed.training.loop import Training

Scale = Literal["smoke", "full"]
_QUICK = {
    "epochs": 8,
    "batch": 32,
    "learning_rate": 5e-3,
    "average": 0.0,
    "word_dropout": 0.0,
}  # for few documents


@dataclass(eq=False)
class Lab:
    """One run of a reproduction.

    scale    "smoke" takes minutes on the bundled model and works without any data; "full" is the real thing
    folder   where results go; models that are trained on the way are kept in its folder `models`
    model    the single-layer model that is examined, in place of one that is trained here
    seed     of everything that is drawn
    again    measure pieces again that are there; trained models are kept
    """

    scale: Scale
    folder: Path
    model: str | None = None
    seed: int = 0
    again: bool = False
    _models: dict[str, Classifier] = field(default_factory=dict, repr=False)
    _data: dict[tuple[str, str], Dataset] = field(default_factory=dict, repr=False)

    def choose(self, sets: Sequence[str]) -> None:
        """Look only at some of the data sets of a paper that has several."""
        if sets:
            raise InputError("This paper has no choice of data sets: leave out --data.")

    def pick(self, smoke: int, full: int) -> int:
        """A number that depends on the scale."""
        return smoke if self.scale == "smoke" else full

    # Documents

    def documents(self, n: int, split: str = "test", longest: int | None = None) -> Dataset:
        """The first n reviews of a shuffled IMDB split; where IMDB is not there, a smoke test takes what is."""
        found = self._reviews(split)
        chosen = [d for d in found if longest is None or len(d.text.split()) <= longest]
        return Dataset(
            found.name,
            found.split,
            tuple(chosen[:n]),
            found.labels,
            found.source,
            found.licence,
            found.notes,
        )

    def _reviews(self, split: str) -> Dataset:
        if ("reviews", split) not in self._data:
            self._data["reviews", split] = self._find_reviews(split)
        return self._data["reviews", split]

    def _find_reviews(self, split: str) -> Dataset:
        if data.sources("imdb", split) is not None:
            return data.load("imdb", split, limit=25_000, seed=self.seed)
        if self.scale == "full":
            raise DataError(
                "The full reproduction needs IMDB: set HEED_DATA, or run it with --scale smoke."
            )
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
            raise InputError(
                f"This reproduction examines single-layer classifiers, and {name} is not one."
            )
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
        from heed.training.own import fit

        data = self.documents(self.pick(1500, 25_000), "train") if data is None else data
        chosen = change(recipe, dict(changes) | (_QUICK if self.scale == "smoke" else {}))
        asked = {"seed": seed, "recipe": chosen.to_dict(), "stack": dict(stack or {})}

        def make() -> Training:
            return fit(
                data.documents,
                data.labels,
                chosen,
                seed,
                name,
                stack=stack,
                tokenizer=tokenizer(data.documents) if tokenizer else None,
            )

        return self.stored(name, data, asked, make)

    def stored(
        self, name: str, data: Dataset, asked: Mapping[str, Any], make: Callable[[], Training]
    ) -> Any:
        """A model of this name that was trained as asked, from the folder or made now."""
        from heed.models import checkpoint

        folder = self.folder / "models" / f"{self.scale}-{name}"
        if str(folder) not in self._models:
            asked = {"trained_on": {"name": data.name, "documents": len(data)}} | dict(asked)
            if not (folder / "model.json").exists() or not _same(read_config(folder), asked):
                say(f"training {name} on {len(data):,} documents")
                done = make()
                checkpoint.save(
                    done.model, folder, asked | {"history": done.history, "best_epoch": done.best}
                )
            self._models[str(folder)] = checkpoint.load(folder)
        return self._models[str(folder)]

    def piece(self, settings: Mapping[str, Any], measure: Callable[[], list[Row]]) -> list[Row]:
        """Rows that were measured like this before, or now: an experiment that was stopped goes on from its pieces."""
        known = {"scale": self.scale, "seed": self.seed, "heed": metadata.version("heed")}
        about = json.dumps(known | dict(settings), sort_keys=True)
        path = self.folder / "pieces" / f"{hashlib.sha256(about.encode()).hexdigest()[:20]}.parquet"
        if self.again or not path.exists():
            shown = [
                str(settings[key])
                for key in ("what", "data", "encoder", "attention")
                if key in settings
            ]
            say(f"  {', '.join(shown)}")
            table = pa.Table.from_pylist(measure()).replace_schema_metadata({"heed": about})
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(table, path.with_suffix(".part"))
                path.with_suffix(".part").replace(path)
            except OSError as error:
                raise OutputError(f"{path} cannot be written ({error}).") from None
        try:
            return pq.read_table(path).to_pylist()
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(
                f"{path} cannot be read ({error}): delete it, and it is measured again."
            ) from None


def _same(config: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether a checkpoint was trained as asked, as far as JSON tells."""
    return all(config.get(key) == json.loads(json.dumps(value)) for key, value in asked.items())


@dataclass(frozen=True)
class Experiment:
    """One experiment: what it asks, and the function that answers."""

    name: str
    title: str
    question: str
    run: Callable[[Any], Outcome]


@dataclass(frozen=True)
class Paper:
    """A paper: its title, its key in papers.bib, the experiments in the order in which they are read, and their lab."""

    title: str
    source: str
    experiments: tuple[Experiment, ...]
    lab: Callable[..., Lab] = Lab
