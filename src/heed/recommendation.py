"""The method that a ranking recommends for a model, kept for those who explain it later.

`keep` writes the last recommendation for a revision of a model into the cache folder, `kept` reads
it. A file that something else wrote, or that is of an older form, counts as none.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from heed.errors import OutputError
from heed.progress import say
from heed.store import cache_folder, key_of, write_text

_UNKNOWN = "unknown"  # the revision of functions, which heed cannot tell apart


@dataclass(frozen=True)
class Recommendation:
    """What a ranking came to.

    method      its name, as for `--method`
    reason      why, as a clause without a full stop: "its words matter most when they are removed"
    documents   how many documents were ranked
    data        the name of the data
    """

    method: str
    reason: str
    documents: int
    data: str


def keep(revision: str, recommendation: Recommendation) -> None:
    """Keep a recommendation for this revision of a model, in the place of an older one.

    If the cache cannot be written to, a remark says so: the ranking itself is not lost.
    """
    if revision == _UNKNOWN:
        return
    try:
        write_text(_path(revision), json.dumps(asdict(recommendation), ensure_ascii=False))
    except OutputError as error:
        say(f"The recommendation is not kept for `heed explain`: {error}")


def kept(revision: str) -> Recommendation | None:
    """The last recommendation for this revision of a model, if there is one."""
    try:
        return msgspec.json.decode(_path(revision).read_bytes(), type=Recommendation)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _path(revision: str) -> Path:
    # a digest, because a revision may hold any character
    return cache_folder() / "recommendations" / f"{key_of(revision)}.json"
