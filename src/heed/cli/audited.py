"""What is audited, as people type it: the options that `heed audit` and `heed plan` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from heed.cli import options
from heed.cli.examined import Examined
from heed.cli.inputs import (
    is_of_claim,
    load_data,
    load_held_out,
    names_of,
    read_claims,
    read_judged,
)
from heed.errors import InputError, quoted

if TYPE_CHECKING:
    from heed.audit import Plan, Training
    from heed.data import Dataset
    from heed.methods import Method
    from heed.models.classifier import Classifier

DOCUMENTS = 200  # of an audit, unless somebody says how many


@dataclass(frozen=True)
class Audited(Examined):
    """Model, documents, claims and methods."""

    limit: Annotated[
        int | None,
        typer.Option(
            help="How many documents, drawn at random.",
            min=1,
            show_default=f"{DOCUMENTS}; 60 with --quick",
        ),
    ] = None
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            metavar="",
            help="Add documents (50, 100, 200, …) until every claim is decided that they can"
            " decide; intervals are valid whenever that is, and wider.",
        ),
    ] = False
    most: Annotated[
        int | None,
        typer.Option(
            help="With --until-decided: add at most so many.", min=1, show_default="all there are"
        ),
    ] = None
    claim: Annotated[
        list[str] | None,
        typer.Option(
            help="A claim of `heed list claims`; repeat it, or separate by commas.",
            show_default="all",
        ),
    ] = None
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            metavar="",
            help="Only the claims behind the headline, on 100 documents.",
        ),
    ] = False
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="The method to judge, or a .json, .jsonl or .parquet file of imported scores;"
            " may be repeated.",
            show_default="attention-mean; lime if the model shows no attention",
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of METHOD as key=value, or of a claim as CLAIM.key=value; repeat it.",
        ),
    ] = None
    train: Annotated[
        bool,
        typer.Option(
            "--train",
            metavar="",
            help="Also test claims that need retraining (about 24 trainings).",
        ),
    ] = False
    base: Annotated[
        str | None,
        typer.Option(
            help="With --train: what the transformer was fine-tuned from, a folder or hub id."
        ),
    ] = None

    def check(self) -> None:
        """Refuse options that do not go together, before anything is loaded."""
        super().check()
        if self.quick and self.claim:
            raise InputError("--quick chooses the claims: leave out --claim.")
        if self.until_decided and self.limit is not None:
            raise InputError("--until-decided adds documents: give --most, and leave out --limit.")
        if self.most is not None and not self.until_decided:
            raise InputError("--most is for --until-decided: add it, or give --limit.")
        if self.base is not None:
            from heed.models.folders import transformer_at

            if not self.train:
                raise InputError(
                    "--base says what a transformer was fine-tuned from, for --train: leave it out."
                )
            transformer_at(self.base)

    @property
    def drawn(self) -> int | None:
        """How many documents to draw; None for all."""
        from heed.audit import QUICK_DOCUMENTS

        if self.until_decided:
            return self.most
        return self.limit or (QUICK_DOCUMENTS if self.quick else DOCUMENTS)

    def following(self, plan: Plan) -> Audited:
        """The same, with model, documents, seed and unit of a plan where nothing was typed."""
        from msgspec import ValidationError, convert

        given = {key: value for key, value in plan.options.items() if key not in _TESTED}
        for key in given:
            if key not in _PLANNED:
                raise InputError(f"The plan has an option that heed lacks: {quoted(key)}.")
        try:
            read = convert(given, Audited)
        except ValidationError as error:
            raise InputError(f"The options of the plan cannot be read ({error}).") from None
        unit = options.Unit(plan.unit)
        read = replace(read, seed=plan.seed, unit=unit, until_decided=plan.until_decided)
        return replace(read, typed=self.typed, **{name: getattr(self, name) for name in self.typed})

    def claims(self, plan: Plan | None = None) -> list[Any]:
        """The claims that are tested, with their settings; those of the plan if none is named."""
        from heed.audit import quick_claims

        names = quick_claims() if self.quick else names_of(self.claim)
        if plan is None:
            return read_claims(names, self.set_)
        planned = {test.claim.id: test for test in plan.tests()}
        return read_claims(names or list(planned), self.set_, planned)

    def methods(self, plan: Plan | None = None) -> list[Method] | None:
        """The methods that are judged, with their settings; None for the default."""
        settings = [pair for pair in self.set_ or () if not is_of_claim(pair)]
        if plan is not None and not self.method:
            if settings:
                raise InputError(
                    f"Name the method that {quoted(settings[0])} is a setting of: add --method."
                )
            return self._imported(plan) or plan.judged()
        if not self.method and not settings:
            return None
        return read_judged(names_of(self.method) or ["attention-mean"], settings)

    def _imported(self, plan: Plan) -> list[Method]:
        """What a plan judges, from the files that it names; nothing if it names none."""
        named, pairs = (plan.options.get(key) or [] for key in ("method", "set_"))
        if not isinstance(named, list) or not isinstance(pairs, list):
            raise InputError("The options of the plan cannot be read: method and set_ are lists.")
        names = names_of(named)
        if not any(Path(name).suffix for name in names):
            return []
        return read_judged(names, [pair for pair in pairs if not is_of_claim(pair)])

    def load(self, methods: Sequence[Method] | None) -> Loaded:
        """The documents and the model."""
        model, dataset, limit = self.subject(methods or (), self.drawn)
        training = _training(model, dataset, self.base) if self.train else None
        return Loaded(model, dataset, limit, training)

    def to_dict(self) -> dict[str, Any]:
        """What was typed, but for how and where the model runs: for a plan."""
        kept = {name: getattr(self, name) for name in (*_PLANNED, *_TESTED) if name in self.typed}
        return kept if self.until_decided else kept | {"limit": self.drawn}


# What a plan keeps of the options: how model and data are found, and the files of imported scores.
# Claims, methods, settings, seed and unit are in the plan itself.
_TESTED = ("method", "set_")
_ELSEWHERE = ("claim", "quick", "seed", "unit", "device", "batch_tokens", "typed", *_TESTED)
_PLANNED = tuple(f.name for f in fields(Audited) if f.name not in _ELSEWHERE)


class Loaded(NamedTuple):
    """What an audit takes: a model, documents, how many to draw of them, and training data."""

    model: Classifier
    dataset: Dataset | None
    limit: int | None
    training: Training | None


def _training(model: Classifier, audited: Dataset | None, base: str | None) -> Training:
    """The documents a model was trained on and validated on; few of them may be audited."""
    from heed import data
    from heed.audit import Training

    facts = getattr(model, "facts", {})
    named = facts.get("data")
    if not isinstance(named, dict) or not isinstance(named.get("name"), str):
        raise InputError(
            f"{model.name} does not name its training data, so that it cannot be trained again."
        )
    name, split, size = named["name"], named.get("split"), named.get("documents")
    if name not in data.KNOWN:
        raise InputError(
            f"{model.name} was trained on {name}, which heed does not know: use"
            " heed.audit(training=…)."
        )
    training = load_data(name, split, None, 0)
    classes = None if training.labels == model.labels else ",".join(model.labels)
    if classes or size != len(training):
        training = load_data(name, split, size, int(facts.get("seed", 0)), None, classes)
    held = None if split == "dev" else load_held_out(name, "dev", 0, classes)
    validation = held.documents if held else ()
    seen = {d.segments for d in [*training, *validation]}
    documents = audited or ()
    if sum(d.segments in seen for d in documents) > 0.1 * len(documents):
        raise InputError(
            "The documents to be audited are those that the model was trained on: choose others by"
            " --data and --split."
        )
    return Training(training, validation, base)
