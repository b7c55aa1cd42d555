"""What an audit examines, and the test of one claim on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, cast

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from heed.claims.claim import Claim, Evidence, Refusal, Row
from heed.errors import NotApplicable
from heed.methods import AttentionMean, Explanation, Method
from heed.methods.explanation import UnitKind
from heed.methods.units import units_of
from heed.models.classifier import Classifier
from heed.models.trace import Trace
from heed.progress import counter
from heed.randomness import generator
from heed.settings import check
from heed.store import Store, code_of, key_of
from heed.text import Document, Tokens, printable

if TYPE_CHECKING:  # which loads torch
    from heed.training.again import Retraining

T = TypeVar("T")

# The attention that a test may change: that of words alone, or that of special tokens too.
Positions = Annotated[Literal["words", "all"], "choice of positions"]

TEXT = "text_digest"  # the column of rows by which two audits find their common documents
CHUNK = 64  # documents whose explanations or rows are stored together
PROBED = 20  # documents on which noise is measured
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
    # by method and repetition, the explanation of each document that was explained so far
    _explanations: dict[tuple[Method, int], dict[int, Explanation]] = field(
        default_factory=dict, repr=False
    )
    _shared: dict[tuple[str, int], Any] = field(default_factory=dict, repr=False)

    def only(self, indices: Sequence[int]) -> Study:
        """The same study of some of its documents, of which nothing has been explained yet."""
        documents = [self.documents[i] for i in indices]
        gold = [self.gold[i] for i in indices] if self.gold else ()
        return replace(self, documents=documents, gold=gold, _explanations={}, _shared={})

    @cached_property
    def ids(self) -> list[Row]:
        """How rows name each document: by its id, by the id of its group if that is another, and by
        a digest of its text.
        """
        groups = grouped(self.documents)
        sizes = Counter(groups)
        group_ids: dict[int, str] = {}
        for i, (group, document) in enumerate(zip(groups, self.documents, strict=True)):
            unnamed = "" if sizes[group] == 1 else f"document {i + 1}"
            group_ids.setdefault(group, document.id or unnamed)
        rows: list[Row] = []
        for group, document in zip(groups, self.documents, strict=True):
            other = {} if group_ids[group] == document.id else {"group": group_ids[group]}
            named = {"id": document.id} | other | {TEXT: digest(document)}
            rows.append({key: printable(name) for key, name in named.items()})
        return rows

    @cached_property
    def rankable(self) -> list[bool]:
        """Whether each document has enough units for a ranking of them to mean anything."""
        tokens = self.model.tokens(self.documents)
        return [len(units_of(t, self.unit)[0]) >= FEWEST_UNITS for t in tokens]

    @cached_property
    def probed(self) -> list[int]:
        """The documents on which the noise of a sampled method is measured.

        The first with different texts, which stay the same when documents are added.
        """
        first: dict[tuple[str, ...], int] = {}
        for i, document in enumerate(self.documents):
            if self.rankable[i]:
                first.setdefault(document.segments, i)
        return list(first.values())[:PROBED]

    @property
    def trainer(self) -> Retraining:
        """Retrains the model; claims that need it are refused if there is none."""
        assert not isinstance(self.retraining, Refusal)
        return self.retraining

    def explain(self, method: Method | None = None) -> list[Explanation]:
        """Explain the predicted labels of all documents, by the method under audit or another."""
        return self._drawn(method or self.method, range(len(self.documents)))

    def explain_again(self, method: Method) -> list[Explanation]:
        """The same with different random samples."""
        return self._drawn(method, range(len(self.documents)), repetition=1)

    def explain_only(
        self, method: Method, indices: Sequence[int], repetition: int = 0
    ) -> list[Explanation]:
        """Explain only the documents with these indices."""
        return self._drawn(method, indices, repetition)

    def beside(self, *methods: Method) -> Iterator[tuple[Explanation, ...]]:
        """The explanation of each document by the method under audit, and then by these."""
        return zip(self.explain(), *map(self.explain, methods), strict=True)

    @property
    def explained(self) -> list[Method]:
        """The methods by which all documents were explained so far, in order."""
        return list(dict.fromkeys(m for m, _ in self._explanations if self.has_explained(m)))

    def has_explained(self, method: Method) -> bool:
        """Whether all documents have been explained by this method already."""
        return len(self._explanations.get((method, 0), ())) == len(self.documents)

    def _drawn(
        self, method: Method, indices: Sequence[int], repetition: int = 0
    ) -> list[Explanation]:
        """Explanations of these documents; those that there are already are not made again."""
        known = self._explanations.setdefault((method, repetition), {})
        missing = [i for i in indices if i not in known]
        if missing:
            made = self._explained(method, missing, repetition)
            known |= zip(missing, made, strict=True)
        return [known[i] for i in indices]

    def _explained(
        self, method: Method, indices: Sequence[int], repetition: int
    ) -> list[Explanation]:
        """Explain some documents; with a store on disk, a chunk at a time."""
        seed = self.seed + repetition
        store = self._store(method)
        wanted = [self.documents[i] for i in indices]
        if store.folder is None:
            return method.explain(self.model, wanted, unit=self.unit, seed=seed)
        about = (method.name, asdict(method), repetition, self.unit)
        keys = [self._key("heed.methods", *about, asdict(d)) for d in wanted]

        def missing(absent: list[int]) -> Iterator[Mapping[int, Any]]:
            for chunk in _chunks(absent):
                documents = [wanted[i] for i in chunk]
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
        part: str = "",
    ) -> list[Row]:
        """One row per document, measured in batches of at most `most` tokens.

        With `together`, a batch may exceed the model's own limit. Where a test measures documents
        more than once, `part` names what is measured.
        """
        tokens = self.model.tokens(self.documents)
        about = (type(test).__module__, test.claim.id, asdict(test), part)
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
        self, test: ClaimTest, measure: Callable[[list[int]], list[Row]]
    ) -> list[Row]:
        """One row per document, measured on its explanation by the method under audit.

        `measure` gets the indices of some documents at a time.
        """
        about = (type(test).__module__, test.claim.id, asdict(test), type(self.method).__name__)
        keys = [
            self._key(
                *(*about, e.method, e.settings, e.label, e.unit),
                *(e.scores.tolist(), asdict(e.document)),
            )
            for e in self.explain()
        ]

        def missing(indices: list[int]) -> Iterator[Mapping[int, Row]]:
            with counter(len(indices), test.claim.id) as progress:
                for chunk in _chunks(indices):
                    yield dict(zip(chunk, measure(chunk), strict=True))
                    progress.advance(len(chunk))

        return self._store(test).each(keys, missing)

    def by_document(
        self, module: str, about: tuple[Any, ...], measure: Callable[[list[int]], list[Any]]
    ) -> list[Any]:
        """A value for each document, which no explanation plays a part in.

        Claims that ask for the same one, on any method, share it.

        module   whose code computes it
        about    what else decides it; it may be anything that JSON can hold
        """
        keys = [self._key(module, *about, self.unit, asdict(d)) for d in self.documents]

        def missing(indices: list[int]) -> Iterator[Mapping[int, Any]]:
            with counter(len(indices), " ".join(map(str, about[:2]))) as progress:
                for chunk in _chunks(indices):
                    yield dict(zip(chunk, measure(chunk), strict=True))
                    progress.advance(len(chunk))

        return self.store.each(keys, missing)

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """What claims use together as long as the audit runs, made when it is first asked for."""
        key = name, len(self.documents)  # there may be more of them later
        if key not in self._shared:
            self._shared[key] = make()
        return cast(T, self._shared[key])

    def free(self, tokens: Tokens, positions: Positions = "words") -> Bool[np.ndarray, "token"]:
        """The tokens whose attention a test may change: those of units, or special ones too."""
        if positions == "all":
            return np.ones(len(tokens), dtype=bool)
        return units_of(tokens, self.unit)[1] >= 0

    def rng(self, claim: str, document: Document, *about: str) -> np.random.Generator:
        """A random generator that depends only on seed, claim, text and what else is given."""
        return generator(self.seed, claim, *document.segments, *about)


def digest(document: Document) -> str:
    """What tells a text, or a pair of texts, from others."""
    return key_of(document.segments)


def grouped(documents: Sequence[Document]) -> list[int]:
    """The number of each document's group: those that share an id, a text or a cluster are one."""
    first: dict[Any, int] = {}
    edges = []
    for i, d in enumerate(documents):
        # in three places, so that an id is not taken for a cluster of the same name
        names = ((d.segments, "", ""), ("", d.id or i, ""), ("", "", d.cluster or i))
        edges += [(i, first.setdefault(name, i)) for name in names]
    n = len(documents)
    linked = coo_array((np.ones(len(edges)), np.transpose(edges)), (n, n))
    return connected_components(linked)[1].tolist()


@dataclass(frozen=True)
class ClaimTest(ABC):
    """The test of one claim: its fields are settings, and `measure` gives one row per document.

    A row holds `value`, the statistic of the document (NaN if it has none), and further columns.

    claim        what is asserted; a subclass takes it from claims.toml with `stated`
    against      the methods that it compares with: it cannot judge these
    effort       settings of a search for counterexamples: with smaller ones it finds fewer
    controlled   whether chance methods are measured beside the explanation that it judges
    """

    claim: ClassVar[Claim]
    controlled: ClassVar[bool] = True
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

    def needed_to_pass(self, study: Study) -> ClaimTest:
        """A cheaper test that supports the claim wherever this one does; by default this one."""
        return self

    def unfit(self, rows: Sequence[Row]) -> Refusal | None:
        """Why a verdict on these rows would mean nothing; None if it means something."""
        return None


def collect(test: ClaimTest, study: Study, control: bool = False) -> Evidence:
    """The rows of a claim, or the reason why there is no verdict on it.

    control   whether the method is not judged, but shows what chance reaches
    """
    rows, refusal = [], test.refusal(study)
    if refusal is None:
        try:
            rows = test.measure(study)
        except NotApplicable as error:
            refusal = Refusal("other", str(error).removesuffix("."))
    keyed: list[Row] = [
        {"document": i} | ids | row
        for i, (ids, row) in enumerate(zip(study.ids, rows, strict=refusal is None))
    ]
    if test.claim.ranks and keyed:
        for row, rankable in zip(keyed, study.rankable, strict=True):
            row["value"] = row["value"] if rankable else float("nan")
    refusal = refusal or test.unfit(keyed)
    return Evidence(test.claim, keyed, refusal, study.method.name, control)


def controls(
    test: ClaimTest, chance: Sequence[Study], judged: Sequence[Evidence]
) -> list[Evidence]:
    """What chance methods reach on a claim, beside explanations on which there is a verdict."""
    nothing_to_judge = all(e.refusal for e in judged)
    if nothing_to_judge or not test.claim.of_explanation or not test.controlled:
        return []
    measured = [_control(test, study) for study in chance]
    return [e for e in measured if not e.refusal]


def _control(test: ClaimTest, study: Study) -> Evidence:
    """What a chance method reaches: by the whole test only if it might pass."""
    part = test.needed_to_pass(study)
    evidence = collect(part, study, control=True)
    distance = evidence.combined() - test.claim.threshold
    might_pass = distance > 0 if test.claim.above else distance < 0
    return collect(test, study, control=True) if might_pass and part != test else evidence


def _chunks(indices: list[int]) -> Iterator[list[int]]:
    yield from (indices[start : start + CHUNK] for start in range(0, len(indices), CHUNK))


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
