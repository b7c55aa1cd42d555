"""Every error that heed raises on purpose.

HeedError
├── InputError        a text, label, setting or option that cannot be used
│   ├── UnknownName   a method, data set, claim or label that does not exist (the nearest is named)
│   └── OutOfMemory   a text that is too long for the memory of the device
├── DataError         a data file or data set that cannot be found or read
├── CheckpointError   a model folder that is missing, broken or unsafe to read
├── OutputError       a file that cannot be written
└── NotApplicable     the model does not offer what the method or the claim needs

The message is one sentence that says what was wrong and what to do; the command line prints it and
exits with 2.
"""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 200  # characters of somebody's input that a sentence may quote


def quoted(value: object) -> str:
    """Somebody's input as a sentence may show it: in one line, and cut where it is long."""
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def nearest(name: str, names: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Which of these names somebody may have meant; None if all are too different."""
    folded = {n.casefold(): n for n in names}
    near = get_close_matches(name.casefold(), list(folded), n=1, cutoff=cutoff)
    return folded[near[0]] if near else None


class HeedError(Exception):
    """The root of all errors that heed raises on purpose."""


class InputError(HeedError):
    """A text, label, setting or option that cannot be used."""


class UnknownName(InputError):
    """A name that does not exist; the message names the nearest one that does.

    owner   what lacks it, in words: "The claim used has no setting …"
    """

    def __init__(self, kind: str, name: str, names: Iterable[str], owner: str = ""):
        existing = list(names)
        if near := nearest(name, existing):
            hint = f"did you mean '{near}'?"
        elif len(existing) <= 12:
            hint = "known are " + ", ".join(f"'{n}'" for n in existing) + "."
        else:
            hint = f"there are {len(existing)}, see `heed list`."
        lacks = f"{owner} has no" if owner else "There is no"
        super().__init__(f"{lacks} {kind} '{quoted(name)}': {hint}")


class OutOfMemory(InputError):
    """A text that is too long for the memory of the device."""


class DataError(HeedError):
    """A data file or data set that cannot be found or read."""


class CheckpointError(HeedError):
    """A model folder that is missing, broken or unsafe to read."""


class OutputError(HeedError):
    """A file that cannot be written."""


class NotApplicable(HeedError):
    """The model does not offer what the method or the claim needs."""
