"""What the two papers of 2019 share: their data, and their models, trained when needed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from heed import data
from heed.claims import Study
from heed.claims.determined import Exclusive
from heed.claims.needed import Used
from heed.data import Dataset, tasks
from heed.errors import DataError, InputError, UnknownName
from heed.papers.lab import Lab, fingerprint
from heed.papers.table import Row, Table
from heed.store import key_of
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
MAIN = "BiLSTM + additive"  # the model that both papers are about
MODELS = {  # encoder and attention
    MAIN: ("lstm", "additive"),
    "average + additive": ("average", "additive"),
    "CNN + additive": ("cnn", "additive"),
    "BiLSTM + dot": ("lstm", "dot"),
}
BINS = ("0 to .25", ".25 to .5", ".5 to .75", ".75 to 1")  # of the largest weight
# training on few documents
_QUICK: dict[str, Any] = {
    "epochs": 3, "width": 32, "hidden": 32, "learning_rate": 5e-3, "min_count": 1,
}  # fmt: skip


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
        return fingerprint(self.train, self.dev, self.test)


@dataclass(eq=False)
class DebateLab(Lab):
    """One run of a reproduction.

    sets   the data sets of this run; by default all
    most   how many training documents of a data set are used at full scale, where not all are
    """

    sets: Sequence[str] = ()
    most: ClassVar[Mapping[str, int]] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model is not None:
            raise InputError("This reproduction trains its own models: leave out --model.")

    def choose(self, sets: Sequence[str]) -> None:
        for name in sets:
            if name not in CUTS:
                raise UnknownName("data set of this paper", name, CUTS)
        self.sets = tuple(sets)

    @property
    def examined(self) -> str:
        sets = ", ".join(self.corpus(name).name for name in self.names)
        return f"the papers' models, trained here, on {sets}"

    @cached_property
    def fingerprint(self) -> str:
        return key_of([self.corpus(name).fingerprint for name in self.names])

    @property
    def names(self) -> tuple[str, ...]:
        """The data sets of this run: as chosen, or all; a smoke test looks at one."""
        if self.sets:
            return tuple(self.sets)
        if self.scale == "full":
            return tuple(CUTS)
        return ("sst",) if data.sources("sst", "train") else ("generated",)

    @property
    def panel(self) -> str:
        """The column by which figures have panels: data sets, where there are several."""
        return "dataset" if len(self.names) > 1 else ""

    @property
    def pretrained(self) -> bool:
        """Whether embeddings start from GloVe's vectors, which a package may provide."""
        return self.scale == "full" and importlib.util.find_spec(GLOVE) is not None

    def seeds(self, name: str, model: str) -> list[int]:
        """Training seeds of a model: three for the one that the papers are about."""
        several = model == MAIN and name != "imdb" and self.scale == "full"
        return [self.seed + i for i in range(3 if several else 1)]

    def corpus(self, name: str) -> Corpus:
        """The parts of a data set."""
        return self.once(self._load, name)

    def limit(self, name: str) -> int | None:
        """To how many documents the training part is cut; None: it is whole."""
        return self.most.get(name) if self.scale == "full" else None

    def _load(self, name: str) -> Corpus:
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
        limit = self.limit(name)
        return Corpus(name, train[:limit], dev[: max(200, limit // 5)] if limit else dev, test)

    def recipe(
        self, name: str, encoder: str = "lstm", attention: str = "additive"
    ) -> RecurrentRecipe:
        changes: dict[str, Any] = {
            "encoder": encoder,
            "attention": attention,
            "vectors": "glove" if self.pretrained else "random",
            "min_count": MIN_COUNTS.get(name, 1),
            "max_words": MAX_WORDS.get(name, 100),
        }
        return recurrent(changes | (_QUICK if self.scale == "smoke" else {}))

    def base(
        self,
        name: str,
        encoder: str = "lstm",
        attention: str = "additive",
        seed: int | None = None,
    ) -> Recurrent:
        """A model of the papers, trained on one of their sets."""
        from heed.training.recurrent import fit

        corpus, recipe = self.corpus(name), self.recipe(name, encoder, attention)
        seed = self.seed if seed is None else seed
        limit = self.limit(name)
        model = f"{corpus.name}-{encoder}-{attention}-{seed}" + (f"-{limit}" if limit else "")
        parts = (corpus.train.documents, corpus.classes, recipe, seed, model, corpus.dev.documents)
        settings = {"seed": seed, "recipe": recipe.to_dict(), "documents": corpus.fingerprint}
        code = "heed.training.recurrent"
        return self.trained(model, corpus.train, settings, lambda: fit(*parts), code)

    def measured(
        self, what: str, name: str, measure: Callable[[], list[Row]], **settings: Any
    ) -> Table:
        """Rows measured on a data set, from the store or now."""
        corpus = self.corpus(name)
        about = {"what": what, "data": corpus.name, "documents": corpus.fingerprint, **settings}
        return self.piece(about | {"recipe": self.recipe(name).to_dict()}, measure)

    def tested(self, what: str, name: str, test: Exclusive | Used) -> Table:
        """What the test of a claim measures on each test document of the main model."""

        def measure() -> list[Row]:
            documents = self.corpus(name).test.documents
            return test.measure(Study(self.base(name), documents, seed=self.seed))

        return self.measured(what, name, measure, **asdict(test))

    def adversaries(self, name: str) -> Table:
        """For each test document, the farthest attention that gives the same output."""
        return self.tested("adversarial", name, Exclusive(steps=self.pick(100, 500), rounds=0))

    def retraining(self, name: str) -> Retraining:
        """The BiLSTM with additive attention, and all that can be trained from it."""
        from heed.training.again import Retraining

        train, dev = self.corpus(name).train, self.corpus(name).dev
        return Retraining(self.base(name), train.documents, dev.documents, self.store)


@dataclass(eq=False)
class CutLab(DebateLab):
    """For papers that train many models: they learn from a part of the long reviews."""

    most = {"imdb": 5000}


def bin_of(largest: float) -> int:
    """In which of the four `BINS` a largest weight lies."""
    return min(3, int(4 * largest))
