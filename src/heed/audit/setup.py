"""What an audit measures, from its arguments: documents, the methods judged, and the claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from heed.claims import CLAIMS, ClaimTest, Study
from heed.claims.claim import GATES, Refusal
from heed.claims.study import NO_TRAINING
from heed.data import Dataset
from heed.data.dataset import draw
from heed.data.inputs import is_one
from heed.errors import DataError, InputError, UnknownName, quoted
from heed.methods import CHANCE, AttentionMean, Imported, Method, make_method, reads_attention
from heed.methods.explanation import UnitKind
from heed.methods.units import units_of
from heed.models import Model
from heed.models import of as classifier_of
from heed.models.classifier import ATTENTION, Classifier
from heed.progress import say
from heed.store import Store
from heed.text import Document, Tokens

# The families of claims that the headline rests on, and how many documents give a first answer.
HEADLINE = ("needed", "determined", "causal", "signed", "faithful")
QUICK_DOCUMENTS = 100  # with fewer, intervals are wide, since resampling is not trusted


def quick_claims() -> list[str]:
    """The claims behind the headline that need no training."""
    return [
        name
        for name, test in CLAIMS.items()
        if test.claim.family in HEADLINE and not test.claim.trains
    ]


@dataclass(frozen=True)
class Training:
    """What a model was trained on, for the claims that retrain it.

    validation   documents by which epochs are chosen; by default some of the others are held out
    base         what a transformer was fine-tuned from: a folder or a hub id
    """

    documents: Dataset | Sequence[Document]
    validation: Sequence[Document] = ()
    base: str | Path | None = None


@dataclass(frozen=True)
class Setup:
    """What an audit is about to measure.

    data       where the documents come from
    studies    one per judged method; they share their documents and what they have explained
    tests      the claims, gates first
    limit      at most so many documents were drawn; None: all
    left_out   how many texts are blank, or have no unit that the model can read
    unfit      why imported scores do not explain some documents; empty if they explain all
    """

    data: Dataset
    studies: list[Study]
    tests: list[ClaimTest]
    limit: int | None
    left_out: int
    unfit: str

    @property
    def first(self) -> Study:
        """The study of the first method, which also serves claims about the model."""
        return self.studies[0]

    @property
    def model(self) -> Classifier:
        return self.first.model

    @property
    def documents(self) -> Sequence[Document]:
        return self.first.documents

    @property
    def tokens(self) -> list[Tokens]:
        return self.model.tokens(self.documents)

    def only(self, indices: Sequence[int]) -> Setup:
        """The same claims and methods on some of the documents."""
        first = self.first.only(indices)
        return replace(self, studies=[replace(first, method=s.method) for s in self.studies])

    def first_documents(self, number: int) -> Setup:
        """The same with the first documents alone, of which what is explained is remembered."""
        studies = [
            replace(s, documents=s.documents[:number], gold=s.gold[:number]) for s in self.studies
        ]
        return replace(self, studies=studies)

    def studies_of(self, test: ClaimTest) -> list[Study]:
        """The studies on which a claim is measured: one, unless it judges an explanation."""
        return self.studies if test.claim.of_explanation else self.studies[:1]

    @cached_property
    def chance(self) -> list[Study]:
        """The chance methods that nobody asked to judge: they show what passes without a model."""
        judged = [study.method for study in self.studies]
        names = {method.name for method in judged}  # imported scores may have any name
        return [replace(self.first, method=cls()) for cls in CHANCE if cls.name not in names]


def prepare(
    model: Model,
    dataset: Any = None,
    claims: Sequence[str | ClaimTest] | str | None = None,
    methods: Sequence[str | Method] | str | Method | None = None,
    limit: int | None = None,
    seed: int = 0,
    training: Training | Dataset | Sequence[Document] | None = None,
    store: Store | Path | None = None,
    columns: Mapping[str, str | None] | None = None,
    unit: UnitKind = "word",
) -> Setup:
    """Check the arguments of an audit, and draw its documents; `heed.audit` says what they mean."""
    model = classifier_of(model)
    if claims == "quick":
        claims, limit = quick_claims(), limit or QUICK_DOCUMENTS
    if is_one(dataset):
        raise InputError(
            "An audit takes a list of documents or a data set, got one text; for a file, pass"
            " heed.data.load(FILE)."
        )
    if unit not in get_args(UnitKind):
        raise UnknownName("unit", str(unit), get_args(UnitKind))
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}.")
    judged = _methods(model, methods)
    imported = [m for m in judged if isinstance(m, Imported)]
    data = _data(model, dataset, imported, columns)
    data, unfit = _explained_only(model, data, imported, limit, seed)
    readable = [bool(units_of(t, unit)[0]) for t in model.tokens(data.documents)]
    documents = [d for d, fits in zip(data.documents, readable, strict=True) if fits]
    if not documents:
        raise InputError(
            f"An audit needs documents, and none of these has a {unit} that the model can read."
        )
    store = store if isinstance(store, Store) else Store(store)
    if store.folder is not None and model.revision == "unknown":
        raise InputError(
            f"heed cannot tell {model.name} from another function: give it a revision, or audit"
            " without a store."
        )
    gold = _gold(model, documents, data.labels)
    retraining = _retraining(model, training, store)
    first = Study(model, documents, judged[0], seed, gold, retraining, store, unit)
    studies = [replace(first, method=e) for e in judged]  # which share what they have explained
    tests = _tests(claims, studies)
    if not any(test.claim.of_explanation for test in tests):
        _check_settings(first)
    left_out = data.left_out + len(data.documents) - len(documents)
    return Setup(data, studies, tests, limit, left_out, unfit)


# What is judged, on which documents


def _methods(
    model: Classifier, methods: Sequence[str | Method] | str | Method | None
) -> list[Method]:
    """The explanations that are judged, each under a name of its own."""
    if methods is None and ATTENTION not in model.offers:
        say(f"{model.name} shows no attention: lime is judged.")
        methods = "lime"
    methods = AttentionMean() if methods is None else methods
    judged = [make_method(m) for m in ([methods] if isinstance(methods, str | Method) else methods)]
    if not judged:
        raise InputError("An audit needs an explanation to judge, got none.")
    for name in _repeated([method.name for method in judged]):
        raise InputError(f"Two of the explanations to be judged are called {name}: leave one out.")
    return judged


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name in names if names.count(name) > 1]


def _data(
    model: Classifier,
    dataset: Any,
    imported: Sequence[Imported],
    columns: Mapping[str, str | None] | None,
) -> Dataset:
    """The documents that were given; by default those that have imported scores."""
    if dataset is None and imported:
        scored = tuple(imported[0].documents)
        return Dataset(imported[0].name, "all", scored, (), "", "not stated")
    data = model.documents(dataset, columns)
    if not data.documents:
        raise InputError("An audit needs documents, got none.")
    return data


def _explained_only(
    model: Classifier, data: Dataset, imported: Sequence[Imported], limit: int | None, seed: int
) -> tuple[Dataset, str]:
    """At most `limit` documents, only those that all imported scores explain; and why not all.

    Scores must be there for a document, and be about the label that the model predicts for it.
    """
    names = " or ".join(m.name for m in imported)
    documents = [d for d in data.documents if all(m.explains(d) for m in imported)]
    if not documents:
        name = data.name or "the list"
        raise DataError(f"None of the documents of {name} has scores in {names}.")
    reasons = []
    total = len(data.documents)
    if missing := total - len(documents):
        reasons.append(f"{missing:,} of {total:,} documents have no scores in {names}")
    drawn = documents if limit is None else [documents[i] for i in draw(documents, limit, seed)]
    refused: dict[int, str] = {}
    tokens = model.tokens(drawn) if imported else []
    for method in imported:
        refused |= {i: why for i, why in enumerate(method.unfit(model, tokens)) if why}
    if refused:
        why = next(iter(refused.values()))
        if len(refused) == len(drawn):
            raise DataError(why)
        reasons.append(f"{len(refused):,} of {len(drawn):,} documents, such as: {why}")
        drawn = [d for i, d in enumerate(drawn) if i not in refused]
    for reason in reasons:
        say(f"left out: {reason}")
    return replace(data, documents=tuple(drawn)), "; ".join(reasons)


def _check_settings(study: Study) -> None:
    """Refuse a method whose settings do not fit the model, where no claim would find out."""
    quick = study.method.evaluations(10) <= 1
    if quick and not study.method.refusal(study.model, study.documents[:1]):
        study.method.explain(study.model, study.documents[:1])


# Claims


def _tests(
    claims: Sequence[str | ClaimTest] | str | None, studies: Sequence[Study]
) -> list[ClaimTest]:
    """The claims that were asked for, gates first; where some are gated, a gate joins them."""
    wanted = [claims] if isinstance(claims, str) else list(CLAIMS if claims is None else claims)
    tests = [_test(claim) for claim in wanted]
    for name in _repeated([test.claim.id for test in tests]):
        raise InputError(f"The claim {name} is to be tested twice: leave one out.")
    of_attention = any(reads_attention(s.method.name) for s in studies)
    gated = any(t.claim.gated and (of_attention or not t.claim.of_explanation) for t in tests)
    if gated and not any(_is_gate(test, studies[0]) for test in tests):
        tests.append(CLAIMS["used"]())
        gated_names = ", ".join(t.claim.id for t in tests if t.claim.gated)
        say(f"The claim used is tested too: whether {gated_names} can be judged depends on it.")
    return sorted(tests, key=lambda test: test.claim.id not in GATES)


def _is_gate(test: ClaimTest, study: Study) -> bool:
    """Whether the test says if the task needs attention, and can be run."""
    return test.claim.id == "used" or (test.claim.id == "needed" and not test.refusal(study))


def _test(claim: str | ClaimTest) -> ClaimTest:
    if isinstance(claim, ClaimTest):
        return claim
    if claim not in CLAIMS:
        raise UnknownName("claim", claim, CLAIMS)
    return CLAIMS[claim]()


# The model


def _gold(
    model: Classifier, documents: Sequence[Document], names: Sequence[str]
) -> list[int | None]:
    """The label of each document among those of the model; all None if the labels differ.

    Labels are matched by name. Where the data have only numbers, or no names, they are indices.
    """
    folded = [name.casefold() for name in model.labels]
    theirs = [name.casefold() for name in names] or list(map(str, range(len(folded))))
    ours = folded
    if not set(theirs) <= set(folded) and all(name.isdecimal() for name in theirs):
        ours = list(map(str, range(len(folded))))
    indices = {i: ours.index(name) for i, name in enumerate(theirs) if name in ours}
    labels = [d.label for d in documents]
    if len(indices) < len(names) or not set(labels) - {None} <= indices.keys():
        listed = ", ".join(names or map(str, sorted({i for i in labels if i is not None})))
        say(
            f"The labels of the data ({quoted(listed)}) are not those of the model"
            f" ({quoted(', '.join(model.labels))}): no accuracy is given."
        )
        return [None] * len(labels)
    return [None if label is None else indices[label] for label in labels]


def _retraining(
    model: Classifier,
    training: Training | Dataset | Sequence[Document] | None,
    store: Store,
) -> Any:
    """How the model can be trained again, or why it cannot."""
    if training is None:
        return NO_TRAINING
    facts = getattr(model, "facts", None)
    if facts is None:
        return Refusal(
            "training", "it retrains the model, and heed can do so only for models it trained"
        )
    if "recipe" not in facts:
        return Refusal("training", "it retrains the model, which does not say how it was trained")
    given = training if isinstance(training, Training) else Training(training)
    names = given.documents.labels if isinstance(given.documents, Dataset) else model.labels
    if [n.casefold() for n in names] != [n.casefold() for n in model.labels]:
        raise InputError(
            f"The labels of the training data ({', '.join(names)}) are not those of the model"
            f" ({', '.join(model.labels)})."
        )
    from heed.models.network import NetworkClassifier
    from heed.training.again import Retraining

    if isinstance(model, NetworkClassifier):
        return Retraining(model, list(given.documents), list(given.validation), store)
    from heed.training.again_transformer import TransformerRetraining

    if facts.get("base") and given.base is None:
        return Refusal(
            "training",
            f"it retrains the model, which was fine-tuned from {facts['base']}: give that with"
            " --base",
        )
    documents = list(given.documents), list(given.validation)
    return TransformerRetraining(model, *documents, store, base=given.base)  # type: ignore[arg-type]
