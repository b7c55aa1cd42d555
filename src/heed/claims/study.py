"""What an audit examines, and the test of one claim on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from heed.claims.claim import Claim, Refusal, Row
from heed.methods import AttentionMean, Explanation, Lime, LimeExact, Method
from heed.methods.explanation import UnitKind
from heed.methods.units import units_of
from heed.models.classifier import CLOSED, Classifier
from heed.models.trace import Trace
from heed.progress import bar, counter
from heed.randomness import generator
from heed.settings import check
from heed.store import Store, code_of, key_of
from heed.text import Document, Tokens, printable

if TYPE_CHECKING:  # which loads torch
    from heed.training.again import Retraining

# The attention that a test may change: that of words alone, or that of special tokens too.
Positions = Annotated[Literal["words", "all"], "choice of positions"]

CHUNK = 64  # documents that are explained before their explanations are stored
FEWEST_UNITS = 3  # with fewer, a ranking is right or wrong by chance
NO_TRAINING = Refusal("training", "only with --train, which retrains the model")


@dataclass(eq=False)
class Study:
    """A model, documents, and the method under audit; what several claims need is computed once.

    gold         the index of each document's true label among the model's; None if unknown
    retraining   how to retrain the model, or why that is impossible
    store        explanations and rows that were computed before
    unit         what gets a score: words, tokens or passages
    """

    model: Classifier
    documents: Sequence[Document]
    method: Method = field(default_factory=AttentionMean)
    seed: int = 0
    gold: Sequence[int | None] = ()
    retraining: Retraining | Refusal = NO_TRAINING
    store: Store = field(default_factory=Store, repr=False)
    unit: UnitKind = "word"
    _explanations: dict[Method, list[Explanation]] = field(default_factory=dict, repr=False)

    @cached_property
    def ids(self) -> list[Row]:
        """How rows name each document: by its id, and by the id of its group if that is another.

        Documents that share an id or a text are a group: they count as one.
        """
        names = [(document.segments, document.id or i) for i, document in enumerate(self.documents)]
        first: dict[Any, int] = {}
        edges = [(i, first.setdefault(name, i)) for i, both in enumerate(names) for name in both]
        linked = coo_array((np.ones(len(edges)), np.transpose(edges)), (len(names), len(names)))
        groups = connected_components(linked)[1].tolist()
        sizes = Counter(groups)
        group_ids: dict[int, str] = {}
        for i, (group, document) in enumerate(zip(groups, self.documents, strict=True)):
            unnamed = "" if sizes[group] == 1 else f"document {i + 1}"
            group_ids.setdefault(group, document.id or unnamed)
        rows: list[Row] = []
        for group, document in zip(groups, self.documents, strict=True):
            other = {} if group_ids[group] == document.id else {"group": group_ids[group]}
            rows.append({key: printable(id) for key, id in ({"id": document.id} | other).items()})
        return rows

    @cached_property
    def rankable(self) -> list[bool]:
        """Whether each document has enough units for a ranking of them to mean anything."""
        tokens = self.model.tokens(self.documents)
        return [len(units_of(t, self.unit)[0]) >= FEWEST_UNITS for t in tokens]

    @property
    def trainer(self) -> Retraining:
        """Retrains the model; claims that need it are refused if there is none."""
        assert not isinstance(self.retraining, Refusal)
        return self.retraining

    def explain(self, method: Method | None = None) -> list[Explanation]:
        """Explain the predicted labels of all documents, by the method under audit or another."""
        method = method or self.method
        if method not in self._explanations:
            self._explanations[method] = self._explained(method)
        return self._explanations[method]

    def explain_again(self, method: Method) -> list[Explanation]:
        """The same with different random samples."""
        return self._explained(method, repetition=1)

    def beside(self, *methods: Method) -> Iterator[tuple[Explanation, ...]]:
        """The explanation of each document by the method under audit, and then by these."""
        return zip(self.explain(), *map(self.explain, methods), strict=True)

    @property
    def explained(self) -> list[Method]:
        """The methods that claims have computed, in order."""
        return list(self._explanations)

    def has_explained(self, method: Method) -> bool:
        """Whether a claim has already computed these explanations."""
        return method in self._explanations

    def explain_only(self, method: Method, indices: Sequence[int]) -> list[Explanation]:
        """Explain only the documents with these indices."""
        if self.has_explained(method) or len(indices) == len(self.documents):
            explanations = self.explain(method)
            return [explanations[i] for i in indices]
        documents = [self.documents[i] for i in indices]
        return method.explain(self.model, documents, unit=self.unit, seed=self.seed)

    def _explained(self, method: Method, repetition: int = 0) -> list[Explanation]:
        """Explain all documents; with a store on disk, a chunk at a time."""
        seed = self.seed + repetition
        store = self._store(method)
        if store.folder is None:
            return method.explain(self.model, self.documents, unit=self.unit, seed=seed)
        about = (method.name, asdict(method), repetition, self.unit)
        keys = [self._key("heed.methods", *about, asdict(d)) for d in self.documents]

        def missing(indices: list[int]) -> Iterator[Mapping[int, Any]]:
            for start in range(0, len(indices), CHUNK):
                chunk = indices[start : start + CHUNK]
                documents = [self.documents[i] for i in chunk]
                explanations = method.explain(self.model, documents, unit=self.unit, seed=seed)
                yield {i: e.to_dict() for i, e in zip(chunk, explanations, strict=True)}

        return [Explanation.from_dict(values) for values in store.each(keys, missing)]

    def _store(self, measures: Method | ClaimTest) -> Store:
        """Where values are kept. What a user's own class measures is not: no key can tell when its
        code, and all that this code reads, has changed.
        """
        return self.store if type(measures).__module__.startswith("heed.") else Store()

    def _key(self, module: str, *parts: Any) -> str:
        """A key from all that a value depends on: model, seed, a module's code, and these parts."""
        code = "" if self.store.folder is None else code_of(module)
        return key_of(*self._about_model, self.seed, code, *parts)

    @cached_property
    def _about_model(self) -> tuple[str, ...]:
        """What says which model it is: its weights and name; on disk, its code and tokenizer too.

        A revision alone does not say how a model is run, or how it reads a text.
        """
        model = self.model
        if self.store.folder is None:
            return model.revision, model.name
        code = code_of(type(model).__module__)
        return model.revision, model.name, code, model.tokenizer.digest

    def by_batch(
        self,
        test: ClaimTest,
        measure: Callable[[list[Tokens]], list[Row]],
        most: int,
        together: bool = False,
    ) -> list[Row]:
        """One row per document, measured in batches of at most `most` tokens.

        With `together`, a batch may exceed the model's own limit.
        """
        tokens = self.model.tokens(self.documents)
        about = (type(test).__module__, test.claim.id, asdict(test))
        keys = [self._key(*about, self.unit, t.document.segments, t.document.spans) for t in tokens]
        limit = most if together else min(most, self.model.batch_tokens)

        def missing(indices: list[int]) -> Iterator[Mapping[int, Row]]:
            widths = [self.model.width(tokens[i]) for i in indices]

            def run(batch: list[int]) -> dict[int, Row]:
                measured = [indices[position] for position in batch]
                return dict(zip(measured, measure([tokens[i] for i in measured]), strict=True))

            with counter(len(indices), test.claim.id) as progress:
                for _, rows in self.model.in_batches(widths, run, limit):
                    yield rows
                    progress.advance(len(rows))

        return self._store(test).each(keys, missing)

    def by_explanation(
        self, test: ClaimTest, measure: Callable[[int, Explanation], Row]
    ) -> list[Row]:
        """One row per document, measured on its explanation by the method under audit."""
        explanations = self.explain()
        about = (type(test).__module__, test.claim.id, asdict(test), type(self.method).__name__)
        keys = [
            self._key(
                *(*about, e.method, e.settings, e.label, e.unit),
                *(e.scores.tolist(), asdict(e.document)),
            )
            for e in explanations
        ]

        def missing(indices: list[int]) -> Iterator[Mapping[int, Row]]:
            for i in bar(indices, test.claim.id):
                yield {i: measure(i, explanations[i])}

        return self._store(test).each(keys, missing)

    def free(self, tokens: Tokens, positions: Positions = "words") -> Bool[np.ndarray, "token"]:
        """The tokens whose attention a test may change: those of units, or special ones too."""
        if positions == "all":
            return np.ones(len(tokens), dtype=bool)
        return units_of(tokens, self.unit)[1] >= 0

    def rng(self, claim: str, document: Document) -> np.random.Generator:
        """A random generator that depends only on seed, claim and text."""
        return generator(self.seed, claim, *document.segments)


@dataclass(frozen=True)
class ClaimTest(ABC):
    """The test of one claim: its fields are settings, and `measure` gives one row per document.

    A row holds `value`, the statistic of the document (NaN if it has none), and further columns.

    claim     what is asserted; a subclass takes it from claims.toml with `stated`
    against   the methods that it compares with: it cannot judge these
    effort    settings of a search for counterexamples: with smaller ones it finds fewer
    """

    claim: ClassVar[Claim]
    effort: ClassVar[tuple[str, ...]] = ()
    against: ClassVar[tuple[type[Method], ...]] = ()

    def __post_init__(self) -> None:
        check(self, f"the claim {self.claim.id}")

    @abstractmethod
    def measure(self, study: Study) -> list[Row]:
        """One row per document."""

    def refusal(self, study: Study) -> Refusal | None:
        """Why this claim cannot be tested on this study; None if it can."""
        if missing := study.model.lacks(self.claim.needs):
            return Refusal("model", f"needs {missing}")
        if self.claim.trains and isinstance(study.retraining, Refusal):
            return study.retraining
        if self.claim.labelled and all(label is None for label in study.gold):
            return Refusal("data", "the documents have no labels that the model knows")
        if isinstance(study.method, self.against):
            return Refusal("method", f"{study.method.name} would be compared with itself")
        return None


def attention_facts(
    trace: Trace,
    tokens: Sequence[Tokens],
    free: Sequence[Bool[np.ndarray, "_"]],
    probabilities: Float[np.ndarray, "batch label"],
) -> list[Row]:
    """Columns for each row: the predicted label, and where the attention that is judged lies."""
    attention = trace.classifying().mean(1)
    rows: list[Row] = []
    for b, (t, may_change) in enumerate(zip(tokens, free, strict=True)):
        on_tokens, on_padding = attention[b, : len(t)], attention[b, len(t) :]
        rows.append(
            {
                "predicted": int(probabilities[b].argmax()),
                "max_attention": float(on_tokens[may_change & ~t.special].max(initial=0)),
                "special_attention": float(on_tokens[t.special].sum()),
                "padding_attention": float(on_padding.sum()),
                "held_attention": float(on_tokens[~may_change].sum() + on_padding.sum()),
            }
        )
    return rows


def best_lime(study: Study, samples: int) -> Lime | LimeExact:
    """LIME of the log-odds: exact if they have a closed form, else with this many samples.

    Log-odds and not logits: adding the same number to all logits changes them, but not the
    prediction. Log-odds follow from the prediction, and are linear where logits are.
    """
    closed = CLOSED in study.model.offers and len(study.model.labels) == 2
    return LimeExact(output="log-odds") if closed else Lime(samples=samples, output="log-odds")
