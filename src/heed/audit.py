"""Diagnostics over a data set: an `Audit` holds the rows; verdicts and the closing words are drawn from them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from heed.data import Dataset
from heed.diagnose import DIAGNOSTICS, Diagnostic, Evidence, Study, Verdict, judge
from heed.diagnose.diagnostic import FAMILIES, Row
from heed.diagnose.notebook import Notebook
from heed.errors import DataError, HeedError, InputError, NotApplicable, OutputError, UnknownName
from heed.explain import Explainer, Explanation, method, reads_attention
from heed.explain.drawing import printable
from heed.models import Model
from heed.models import of as classifier_of
from heed.models.classifier import Classifier
from heed.text import Document

SHOWN = ("attention-mean", "gradient-input", "lime")  # methods that illustrate an audit


@dataclass(frozen=True, eq=False)
class Audit:
    """What was measured, of which model, on which documents.

    facts      model, revision, data, number of documents, seed, explainer, settings, seconds, version of heed
    evidence   rows per claim, or why there are none
    examples   a few documents with their explanations, for the reader
    """

    facts: dict[str, Any]
    evidence: tuple[Evidence, ...]
    examples: tuple[tuple[Explanation, ...], ...] = ()

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return judge(self.evidence, self.facts["explainer"])

    def sentence(self, verdict: Verdict) -> str:
        """The claim in plain words, for the explainer that was judged."""
        return verdict.claim.of(self.facts["explainer"])

    def closing(self) -> list[str]:
        """One sentence per family of claims; never one yes or no for all of them."""
        families = [[v for v in self.verdicts if v.claim.family == family] for family in FAMILIES]
        return [_closing(members, self.facts["explainer"]) for members in families if members]

    def to_dict(self) -> dict[str, Any]:
        """Facts, verdicts and closing words, for other programs."""
        verdicts = [v.to_dict() | {"sentence": self.sentence(v)} for v in self.verdicts]
        return {"facts": self.facts, "verdicts": verdicts, "closing": self.closing()}

    def save(self, path: Path) -> None:
        """Write the rows as Parquet, with facts and examples beside them in the file; `Audit.load` reads it."""
        rows = [{"claim": e.claim.id} | row for e in self.evidence for row in e.rows]
        columns = list(dict.fromkeys(key for row in rows for key in row)) or ["claim"]
        table = pa.table({c: pa.array([row.get(c) for row in rows]) for c in columns})
        about = {
            "facts": self.facts,
            "claims": {e.claim.id: e.reason for e in self.evidence},
            "examples": [[x.to_dict() for x in group] for group in self.examples],
        }
        try:
            pq.write_table(table.replace_schema_metadata({"heed": json.dumps(about)}), path)
        except OSError as error:
            raise OutputError(f"{path} cannot be written ({error}).") from None

    @classmethod
    def load(cls, path: Path) -> Audit:
        """The audit that `save` wrote."""
        if not Path(path).is_file():
            raise DataError(f"There is no file '{path}': give the .parquet file that an audit wrote.")
        try:
            table = pq.read_table(path)
            about = json.loads(table.schema.metadata[b"heed"])
            rows = table.to_pylist()
            evidence = [
                Evidence(
                    DIAGNOSTICS[name].claim,
                    [
                        {k: v for k, v in row.items() if k != "claim" and v is not None}
                        for row in rows
                        if row["claim"] == name
                    ],
                    reason,
                )
                for name, reason in about["claims"].items()
            ]
            examples = tuple(tuple(Explanation.from_dict(x) for x in group) for group in about["examples"])
            _check_facts(about["facts"])
            if not all("value" in row for e in evidence for row in e.rows):
                raise ValueError("a row has no value")
            for e in evidence:
                e.combined()
        except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError, AttributeError, HeedError) as error:
            raise DataError(f"{path} does not hold the rows of an audit ({type(error).__name__}).") from None
        return cls(about["facts"], tuple(evidence), examples)


def audit(
    model: Model,
    documents: Dataset | Sequence[Any],
    claims: Sequence[str | Diagnostic] | str | None = None,
    explainer: str | Explainer = "attention-mean",
    seed: int = 0,
    examples: int = 5,
    progress: bool = False,
    training: Dataset | Sequence[Document] | None = None,
    validation: Sequence[Document] = (),
    folder: Path | None = None,
    say: Callable[[str], None] | None = None,
    base: str | Path | None = None,
    budget: float | None = None,
) -> Audit:
    """Test what an explanation (attention, by default) is worth on these documents.

    training     documents for the claims that train the model again, which are left out without them; a part of these
                 is held out where there are no `validation` documents
    folder       rows and trained models are kept there as they come in: an audit that was stopped goes on from them
    say          where remarks go that a person who waits would want to read
    base         what a transformer was fine-tuned from, for the claims that train it again
    budget       minutes after which no further claim is begun
    """
    began, model = time.perf_counter(), classifier_of(model)
    if isinstance(documents, str | Document):
        raise InputError("An audit takes a list of documents or a data set, got one text.")
    data = documents if isinstance(documents, Dataset) else None
    texts = [Document.of(d) for d in documents]
    if not texts:
        raise InputError("An audit needs documents, got none.")
    read = [t for t in model.tokens(texts) if t.words]
    given, texts = len(texts), [t.document for t in read]
    if not texts:
        raise InputError("An audit needs documents, and none of these has a word that the model can read.")
    judged = method(explainer)
    if folder is not None and model.revision == "unknown":
        raise InputError(
            f"heed cannot tell {model.name} from another function: give it a revision, or leave out the folder."
        )
    about = {"model": model.revision, "name": model.name, "seed": seed, "heed": metadata.version("heed")}
    study = Study(
        model,
        texts,
        judged,
        seed,
        progress,
        gold=_gold(model, texts, data.labels if data else ()),
        lessons=_lessons(model, training, validation, folder, progress, base),
        say=say or (lambda line: None),
        notebook=Notebook(None if folder is None else folder / "rows.jsonl", about),
    )
    diagnostics = _diagnostics(claims, study)
    evidence = []
    for diagnostic in diagnostics:
        spent = budget is not None and time.perf_counter() - began > 60 * budget
        rows, reason = ([], f"the budget of {budget:g} minutes was spent") if spent else _measure(diagnostic, study)
        keyed = [
            {"document": i, "id": printable(d.id)} | row
            for i, (d, row) in enumerate(zip(texts, rows, strict=not reason))
        ]
        evidence.append(Evidence(diagnostic.claim, keyed, reason))
    shown = [study.explainer, *(method(m) for m in SHOWN if m != study.explainer.name)]
    few = texts[:examples]
    columns = [m.explain(model, few, seed=seed) for m in shown if not m.obstacle(model, few)] if few else []
    facts = {
        "model": model.name,
        "revision": model.revision,
        "data": f"{data.name} ({data.split})" if data else f"{len(texts)} documents",
        "documents": len(texts),
        "left_out": given - len(texts),
        "truncated": sum(t.dropped > 0 for t in read),
        "unknown": float(sum(t.unknown.sum() for t in read) / sum(len(t.words) for t in read)),
        "accuracy": _accuracy(model, texts, study.gold),
        "explainer": study.explainer.name,
        "seed": seed,
        "settings": {d.claim.id: {f.name: getattr(d, f.name) for f in fields(d)} for d in diagnostics},
        "seconds": time.perf_counter() - began,
        "heed": metadata.version("heed"),
    }
    return Audit(facts, tuple(evidence), tuple(zip(*columns, strict=True)))


def _check_facts(facts: dict[str, Any]) -> None:
    """Refuse facts that a report could not print."""
    kinds = {"model": str, "revision": str, "data": str, "documents": int, "explainer": str, "seed": int}
    for name, kind in (kinds | {"seconds": float, "heed": str}).items():
        if not isinstance(facts[name], kind):
            raise TypeError(f"{name} is {facts[name]!r}")
    if not isinstance(facts["accuracy"], float | None):
        raise TypeError(f"accuracy is {facts['accuracy']!r}")


def _measure(diagnostic: Diagnostic, study: Study) -> tuple[list[Row], str]:
    """Rows, or why there are none: the claim, or the explanation that is judged, asks for what the model lacks."""
    reason = diagnostic.refusal(study)
    if reason:
        return [], reason
    try:
        return diagnostic.measure(study), ""
    except NotApplicable as error:
        return [], str(error).removesuffix(".")


_WORDS = {
    "supported": "holds",
    "refuted": "does not hold",
    "undecided": "is undecided",
    "not applicable": "does not apply",
}


def _closing(members: Sequence[Verdict], explainer: str) -> str:
    """What is to be said of one family of claims; a reason that several share is given once."""
    parts = []
    for i, v in enumerate(members):
        text = f"“{v.claim.of(explainer)}” {_WORDS[v.outcome]}"
        if v.mean is not None:
            mean = f"{v.mean:,.0f}" if abs(v.mean) >= 1000 else f"{v.mean:.3f}"
            text += f" ({v.claim.statistic} {mean}, {v.claim.side()} was asked)"
        if v.reason and all(v.reason != later.reason for later in members[i + 1 :]):
            text += f": {v.reason}"
        parts.append(text)
    return f"{members[0].claim.family.capitalize()}: {'; '.join(parts)}."


def _diagnostics(claims: Sequence[str | Diagnostic] | str | None, study: Study) -> list[Diagnostic]:
    """The diagnostics that were asked for; where they include gated ones, the one that opens the gate joins them.

    If none are named, those that train models are left out where nothing can be trained.
    """
    able = [n for n, cls in DIAGNOSTICS.items() if not (cls.claim.trains and isinstance(study.lessons, str))]
    wanted = [claims] if isinstance(claims, str) else list(able if claims is None else claims)
    found = [_diagnostic(c) for c in wanted]
    of_attention = reads_attention(study.explainer.name)
    gated = any(d.claim.gated and (of_attention or "{explainer}" not in d.claim.sentence) for d in found)
    opens = any(d.claim.id == "used" or (d.claim.id == "needed" and not d.refusal(study)) for d in found)
    if gated and not opens:
        found.insert(0, DIAGNOSTICS["used"]())
    return found


def _diagnostic(claim: str | Diagnostic) -> Diagnostic:
    if isinstance(claim, Diagnostic):
        return claim
    if claim not in DIAGNOSTICS:
        raise UnknownName("claim", claim, DIAGNOSTICS)
    return DIAGNOSTICS[claim]()


def _gold(model: Classifier, documents: Sequence[Document], names: Sequence[str]) -> list[int | None]:
    """The label of each document among those of the model; None for all if the data's labels are not the model's.

    Labels are matched by their names. Where the data have only numbers, or no names, they are the model's indices.
    """
    folded = [name.casefold() for name in model.labels]
    if all(name.isdecimal() for name in names):
        place = {i: i for i in range(len(folded))} if len(names) <= len(folded) else {}
    else:
        place = {i: folded.index(n.casefold()) for i, n in enumerate(names) if n.casefold() in folded}
    labels = [d.label for d in documents]
    if len(place) < len(names) or any(label not in place for label in labels if label is not None):
        return [None] * len(labels)
    return [None if label is None else place[label] for label in labels]


def _accuracy(model: Classifier, documents: Sequence[Document], gold: Sequence[int | None]) -> float | None:
    """The share of right predictions; None if no label is known."""
    known = [(d, g) for d, g in zip(documents, gold, strict=True) if g is not None]
    if not known:
        return None
    predicted = model([d for d, _ in known]).argmax(1)
    return float(sum(int(p) == g for p, (_, g) in zip(predicted, known, strict=True)) / len(known))


def _lessons(
    model: Classifier,
    training: Dataset | Sequence[Document] | None,
    validation: Sequence[Document],
    folder: Path | None,
    progress: bool,
    base: str | Path | None,
) -> Any:
    """How the model can be trained again, or why it cannot."""
    if training is None:
        return "it trains models again, and no training data were given (--train)"
    facts = getattr(model, "facts", None)
    if facts is None:
        return "it trains models again, which heed does for its own and for transformers that it trained"
    if "recipe" not in facts:
        return "it trains models again, and the model does not say how it was trained"
    names = training.labels if isinstance(training, Dataset) else model.labels
    if [n.casefold() for n in names] != [n.casefold() for n in model.labels]:
        raise InputError(
            f"The labels of the training data ({', '.join(names)}) are not those of the model"
            f" ({', '.join(model.labels)})."
        )
    where = None if folder is None else folder / "models"
    from heed.models.retraining import Retraining
    from heed.models.trained import Trained

    if isinstance(model, Trained):
        return Retraining(model, list(training), list(validation), where, progress)
    from heed.models.retuning import Retuning

    if facts.get("base") and base is None:
        return f"it trains models again, and the model was fine-tuned from {facts['base']}: name that with --base"
    return Retuning(model, list(training), list(validation), where, progress, base=base)  # type: ignore[arg-type]
