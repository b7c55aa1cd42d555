"""What an audit will test, written down before anything is measured."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import msgspec

from heed.audit.setup import Setup, Training, prepare
from heed.claims import CLAIMS, ClaimTest, Evidence
from heed.data import Dataset
from heed.errors import DataError, HeedError, InputError, OutputError, quoted
from heed.methods import METHODS, Method, make_method
from heed.methods.explanation import Count, UnitKind
from heed.models import Model
from heed.settings import plain, read
from heed.store import write_text
from heed.text import Document, counted

Setting = str | float | int | bool | None
Settings = dict[str, Setting]
Pair = tuple[str, str]  # a claim and a method, by their names


class PlannedClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a claim will be measured, and when it holds."""

    statistic: str
    threshold: float
    above: bool
    settings: Settings

    @property
    def side(self) -> str:
        return f"{'>' if self.above else '<'} {self.threshold:g}"


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Claims, methods, model and documents of an audit, fixed before anything is measured.

    limit           how many documents are drawn; None: all of them
    documents       how many can be audited: `until_decided` may need fewer
    digest          of these documents, in any order
    training        digest of the documents by which the model is retrained; empty: it is not
    heed            the version that wrote the plan
    options         how the command line finds model and data
    """

    model: str
    revision: str
    data: str
    documents: Annotated[int, msgspec.Meta(ge=1, lt=2**53)]
    digest: str
    claims: dict[str, PlannedClaim]
    methods: dict[str, Settings]
    seed: Count
    unit: UnitKind
    heed: str
    limit: Annotated[int, msgspec.Meta(ge=1, lt=2**53)] | None = None
    until_decided: bool = False
    training: str = ""
    options: dict[str, Setting | list[str]] = {}

    @property
    def hash(self) -> str:
        """The SHA-256 of the plan: of its JSON with sorted keys and no blanks."""
        return hashlib.sha256(_canonical(msgspec.to_builtins(self))).hexdigest()

    @property
    def pairs(self) -> list[Pair]:
        """What will be judged: claims of each method, and claims about the model once."""
        first = next(iter(self.methods))
        pairs = []
        for name in self.claims:
            of_explanation = CLAIMS[name].claim.of_explanation
            pairs += [(name, m) for m in self.methods] if of_explanation else [(name, first)]
        return pairs

    def tests(self) -> list[ClaimTest]:
        """The claims, with their settings."""
        return [
            CLAIMS[name](**read(f"the claim {name}", CLAIMS[name], planned.settings))
            for name, planned in self.claims.items()
        ]

    def judged(self) -> list[Method]:
        """The methods, with their settings; imported scores are not in a plan."""
        for name in self.methods:
            if name not in METHODS:
                raise InputError(
                    f"The plan judges {quoted(name)}, which is not a method of heed: pass it beside"
                    " the plan, with methods=[…], or --method FILE for imported scores."
                )
        return [make_method(name, settings) for name, settings in self.methods.items()]

    def to_json(self) -> str:
        """The plan as `save` writes it."""
        return json.dumps(msgspec.to_builtins(self), ensure_ascii=False, indent=1)

    def save(self, path: Path | str) -> None:
        """Write the plan to a .json file, which `Plan.load` and `heed audit --plan` read."""
        path = Path(path)
        if path.suffix != ".json":
            raise OutputError(f"A plan is saved as .json, got '{path.name}'.")
        write_text(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: Path | str) -> Plan:
        """The plan that `save` wrote."""
        path = Path(path)
        if not path.is_file():
            raise DataError(f"There is no plan '{path}': write one with `heed plan -o {path}`.")
        try:
            plan = msgspec.json.decode(path.read_bytes(), type=cls)
            plan._check()
        except (OSError, msgspec.MsgspecError, HeedError, ValueError, RecursionError) as error:
            reason = quoted(str(error).removesuffix("."))
            raise DataError(f"{path} does not hold a plan of an audit ({reason}).") from None
        return plan

    def _check(self) -> None:
        """Refuse a plan that no audit could follow."""
        if not self.claims or not self.methods:
            raise ValueError("it tests no claim" if not self.claims else "it judges no method")
        for name in self.claims:
            if name not in CLAIMS:
                version = metadata.version("heed")
                raise ValueError(f"heed {version} has no claim '{quoted(name)}'")
        if not all(math.isfinite(claim.threshold) for claim in self.claims.values()):
            raise ValueError("a threshold is not a finite number")
        self.tests()
        for name, settings in self.methods.items():
            if name in METHODS:
                make_method(name, settings)
        self.hash  # noqa: B018  refuses halves of characters, which no file could hold


def _canonical(values: Any) -> bytes:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf8")


# From what will be measured to a plan


def plan(
    model: Model,
    dataset: Any = None,
    claims: Sequence[str | ClaimTest] | str | None = None,
    methods: Sequence[str | Method] | str | Method | None = None,
    limit: int | None = None,
    seed: int = 0,
    training: Training | Dataset | Sequence[Document] | None = None,
    columns: Mapping[str, str | None] | None = None,
    unit: UnitKind = "word",
    until_decided: bool = False,
) -> Plan:
    """Fix what an audit will test, before anything is measured.

    The arguments are those of `heed.audit`, which takes the result as `plan=`. It then says that it
    went as planned, or lists how it departs from the plan.

        plan = heed.plan(model, reviews, ["used", "removes"], limit=200)
        plan.save("plan.json")
        heed.audit(model, reviews, plan="plan.json")
    """
    setup = prepare(model, dataset, claims, methods, limit, seed, training, None, columns, unit)
    if setup.model.revision == "unknown":
        raise InputError(
            f"heed cannot tell {setup.model.name} from another function: give it a revision, so"
            " that the plan can name it."
        )
    return plan_of(setup, training, until_decided)


def plan_of(
    setup: Setup,
    training: Training | Dataset | Sequence[Document] | None,
    until_decided: bool,
) -> Plan:
    """The plan of which this would be the execution."""
    data = setup.data
    return Plan(
        model=setup.model.name,
        revision=setup.model.revision,
        data=f"{data.name} ({data.split})" if data.name else counted(len(setup.documents)),
        documents=len(setup.documents),
        digest=_digest(setup.documents, data.labels),
        claims={test.claim.id: _planned(test) for test in setup.tests},
        methods={study.method.name: _settings(study.method) for study in setup.studies},
        seed=setup.first.seed,
        unit=setup.first.unit,
        heed=metadata.version("heed"),
        limit=setup.limit,
        until_decided=until_decided,
        training=_digest_of_training(training),
    )


def _planned(test: ClaimTest) -> PlannedClaim:
    claim = test.claim
    return PlannedClaim(claim.statistic, float(claim.threshold), claim.above, _settings(test))


def _settings(owner: Method | ClaimTest) -> Settings:
    """Settings as JSON gives them back."""
    return {
        key: value if isinstance(value, Setting) else str(value)
        for key, value in plain(owner).items()
    }


def _digest(documents: Iterable[Document], labels: Sequence[str]) -> str:
    """Of documents in any order, with all that people say about them."""
    each = sorted(hashlib.sha256(_escaped(asdict(d))).hexdigest() for d in documents)
    return hashlib.sha256(_escaped([list(labels), each])).hexdigest()


def _escaped(values: Any) -> bytes:
    """JSON in which every character is ASCII: halves of characters, too."""
    return json.dumps(values, sort_keys=True).encode()


def _digest_of_training(training: Training | Dataset | Sequence[Document] | None) -> str:
    if training is None:
        return ""
    given = training if isinstance(training, Training) else Training(training)
    documents = [Document.of(d) for d in (*given.documents, *given.validation)]
    return _digest(documents, [str(given.base or "")])


# How an audit departs from its plan


def departures(planned: Plan, done: Plan, evidence: Sequence[Evidence]) -> list[str]:
    """In words, how what was done differs from what was planned; empty if it does not."""
    return [
        *_of_subject(planned, done),
        *_of_claims(planned, done),
        *_of_methods(planned, done),
        *_of_budget(evidence),
    ]


def _of_subject(planned: Plan, done: Plan) -> Iterator[str]:
    """Model, documents and what else is said once."""
    if done.revision != planned.revision:
        yield f"the model is {_model(done)}, planned {_model(planned)}"
    if done.documents != planned.documents:
        yield f"the documents are {done.documents:,}, planned {planned.documents:,}"
    elif done.digest != planned.digest:
        same = done.data == planned.data
        yield f"the documents are others{'' if same else f': {done.data}, planned {planned.data}'}"
    if done.training != planned.training:
        yield _of_training(planned, done)
    for name in ("seed", "unit", "heed"):
        ours, theirs = getattr(done, name), getattr(planned, name)
        if ours != theirs:
            called = "version of heed" if name == "heed" else name
            yield f"the {called} is {ours}, planned {theirs}"
    if done.until_decided != planned.until_decided:
        stopped = "when every claim was decided" if done.until_decided else "after all documents"
        yield f"the audit stopped {stopped}, which was not planned"


def _model(plan: Plan) -> str:
    return f"{plan.model}@{plan.revision}"


def _of_training(planned: Plan, done: Plan) -> str:
    if not done.training:
        return "the model was not retrained, as planned"
    if not planned.training:
        return "the model was retrained, which was not planned"
    return "the model was retrained on other documents"


def _of_claims(planned: Plan, done: Plan) -> Iterator[str]:
    for name in planned.claims:
        if name not in done.claims:
            yield f"the claim {name} was left out"
    for name, ours in done.claims.items():
        theirs = planned.claims.get(name)
        if theirs is None:
            yield f"the claim {name} was added"
            continue
        if ours.side != theirs.side:
            yield f"{name} holds for {ours.side} in heed {done.heed}, planned {theirs.side}"
        if ours.statistic != theirs.statistic:
            yield f"{name} has the statistic “{ours.statistic}”, planned “{theirs.statistic}”"
        yield from _of_settings(name, ours.settings, theirs.settings)


def _of_methods(planned: Plan, done: Plan) -> Iterator[str]:
    yield from (f"the method {m} was left out" for m in planned.methods if m not in done.methods)
    for name, ours in done.methods.items():
        if name not in planned.methods:
            yield f"the method {name} was added"
        else:
            yield from _of_settings(name, ours, planned.methods[name])


def _of_settings(name: str, ours: Settings, theirs: Settings) -> Iterator[str]:
    for key in dict.fromkeys((*theirs, *ours)):
        if key == "digest" and ours.get(key) != theirs.get(key):
            yield f"{name} has other scores"
        elif ours.get(key) != theirs.get(key):
            yield f"{name}.{key} is {ours.get(key)}, planned {theirs.get(key)}"


def _of_budget(evidence: Sequence[Evidence]) -> Iterator[str]:
    """Claims for which no time was left."""
    for e in evidence:
        if e.refusal is not None and e.refusal.cause == "budget":
            name = f"{e.claim.id} of {e.method}" if e.claim.of_explanation else e.claim.id
            yield f"{name} was not measured: {e.reason}"
