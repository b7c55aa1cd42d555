"""What both papers of the debate share: their data as they cut them, and their models, trained when needed."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from heed import data
from heed.data import Dataset, tasks
from heed.errors import DataError, InputError, UnknownName
from heed.papers.lab import Lab
from heed.papers.results import Row
from heed.store import Store
from heed.training.recipes import GLOVE, RecurrentRecipe, recurrent

if TYPE_CHECKING:  # which load torch
    from heed.models.recurrent import Recurrent
    from heed.training.again import Retraining

# How the papers cut each set, and what heed calls the two classes; the second is the positive one.
CUTS: dict[str, dict[str, Any]] = {
    "sst": {},
    "20news": {"classes": ("rec.sport.baseball", "rec.sport.hockey"), "max_words": 500},
    "ag_news": {"classes": ("World", "Business"), "part": "description"},
    "imdb": {"max_words": 400},
}
MIN_COUNTS = {"sst": 1, "20news": 2, "ag_news": 5, "imdb": 10}
MAX_WORDS = {"sst": 100, "20news": 500, "ag_news": 200, "imdb": 400}
MODELS = (("lstm", "additive"), ("average", "additive"), ("cnn", "additive"), ("lstm", "dot"))
NAMES = {"lstm": "BiLSTM", "average": "average", "cnn": "CNN"}
_QUICK: dict[str, Any] = {
    "epochs": 3,
    "width": 32,
    "hidden": 32,
    "learning_rate": 5e-3,
    "min_count": 1,
}  # for few documents


@dataclass(frozen=True)
class Corpus:
    """A data set as the papers use it."""

    name: str
    train: Dataset
    dev: Dataset
    test: Dataset

    @property
    def classes(self) -> tuple[str, ...]:
        return self.test.labels

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the documents and their parts."""
        parts = [
            [(d.segments, d.label) for d in part] for part in (self.train, self.dev, self.test)
        ]
        return hashlib.sha256(json.dumps(parts).encode("utf8", "replace")).hexdigest()[:16]


@dataclass(eq=False)
class DebateLab(Lab):
    """One run of a reproduction; `sets` are the data sets that it looks at (all, by default)."""

    sets: Sequence[str] = ()
    _corpora: dict[tuple[str, int | None], Corpus] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.model is not None:
            raise InputError("This reproduction trains its own models: leave out --model.")

    def choose(self, sets: Sequence[str]) -> None:
        for name in sets:
            if name not in CUTS:
                raise UnknownName("data set of this paper", name, CUTS)
        self.sets = tuple(sets)

    @property
    def examined(self) -> str:
        return "the papers' models, trained here, on " + ", ".join(
            self.corpus(name).name for name in self.names
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The data sets of this run: those that were asked for, or all; a smoke test looks at one."""
        if self.sets:
            return tuple(self.sets)
        if self.scale == "full":
            return tuple(CUTS)
        return ("sst",) if data.sources("sst", "train") else ("generated",)

    @property
    def pretrained(self) -> bool:
        """Whether embeddings start from vectors of words, as in the papers: from GloVe's, where they are installed."""
        return self.scale == "full" and importlib.util.find_spec(GLOVE) is not None

    def seeds(self, name: str, encoder: str, attention: str) -> list[int]:
        """Training seeds of a model: three for the one that the papers are about."""
        several = (encoder, attention) == MODELS[0] and name != "imdb" and self.scale == "full"
        return [self.seed + i for i in range(3 if several else 1)]

    def corpus(self, name: str, limit: int | None = None) -> Corpus:
        """The parts of a set; `limit` cuts the training part to so many documents."""
        if (name, limit) not in self._corpora:
            self._corpora[name, limit] = self._load(name, limit)
        return self._corpora[name, limit]

    def _load(self, name: str, limit: int | None) -> Corpus:
        if name == "generated" or (self.scale == "smoke" and not data.sources(name, "train")):
            train, dev, test = (
                tasks.generate("reviews", n, self.seed + i) for i, n in enumerate((400, 100, 120))
            )
            return Corpus("generated", train, dev, test)
        if data.sources(name, "train") is None:
            raise DataError(
                f"The full reproduction needs {name}: set HEED_DATA, or run it with --scale smoke."
            )
        cut = CUTS[name]
        train, test = (
            data.load(name, split, limit=10**9, seed=self.seed, **cut)
            for split in ("train", "test")
        )
        if "dev" in data.KNOWN[name].splits:
            dev = data.load(name, "dev", limit=10**9, seed=self.seed, **cut)
        else:
            train, dev = train.hold_out(0.2, self.seed)
        if name == "imdb":
            test = test[: len(test) // 5]  # as in the paper
        if self.scale == "smoke":
            train, dev, test = train[:400], dev[:100], test[:120]
        return Corpus(name, train[:limit], dev[: max(200, limit // 5)] if limit else dev, test)

    def recipe(
        self, name: str, encoder: str = "lstm", attention: str = "additive"
    ) -> RecurrentRecipe:
        vectors = "glove" if self.pretrained else "random"
        known: dict[str, Any] = {
            "vectors": vectors,
            "min_count": MIN_COUNTS.get(name, 1),
            "max_words": MAX_WORDS.get(name, 100),
        }
        quick = _QUICK if self.scale == "smoke" else {}
        return recurrent({"encoder": encoder, "attention": attention} | known | quick)

    def base(
        self,
        name: str,
        encoder: str = "lstm",
        attention: str = "additive",
        limit: int | None = None,
        seed: int | None = None,
    ) -> Recurrent:
        """A model of the papers, trained on one of their sets."""
        from heed.training.recurrent import fit

        corpus, recipe = self.corpus(name, limit), self.recipe(name, encoder, attention)
        seed = self.seed if seed is None else seed
        called = f"{corpus.name}-{encoder}-{attention}-{seed}" + (f"-{limit}" if limit else "")
        asked = {"seed": seed, "recipe": recipe.to_dict(), "documents": corpus.fingerprint}
        return self.stored(
            called,
            corpus.train,
            asked,
            lambda: fit(
                corpus.train.documents,
                corpus.classes,
                recipe,
                seed,
                called,
                corpus.dev.documents,
            ),
        )

    def measured(
        self,
        what: str,
        name: str,
        measure: Callable[[], list[Row]],
        limit: int | None = None,
        **settings: Any,
    ) -> list[Row]:
        """Rows of a piece of work on a data set, kept under all that has a say in them."""
        corpus, recipe = self.corpus(name, limit), self.recipe(name).to_dict()
        about = {
            "what": what,
            "data": corpus.name,
            **settings,
            "limit": limit,
            "documents": corpus.fingerprint,
        }
        return self.piece(about | {"recipe": recipe}, measure)

    def retraining(self, name: str, limit: int | None = None) -> Retraining:
        """The BiLSTM with additive attention, and all that can be trained from it."""
        from heed.training.again import Retraining

        corpus = self.corpus(name, limit)
        return Retraining(
            self.base(name, limit=limit),
            corpus.train.documents,
            corpus.dev.documents,
            Store(self.folder),
        )


def called(encoder: str, attention: str) -> str:
    return f"{NAMES[encoder]} + {attention}"
