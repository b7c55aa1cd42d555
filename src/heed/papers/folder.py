"""The folder of a reproduction: what it keeps of finished experiments, and how that is read back.

    experiments/NAME.json    one experiment with its results, figures and example documents
    rows/NAME-TABLE.parquet  what was measured, one row per document or run
    results.json             the results of all experiments in one list

Beside these, `heed.store` keeps trained models and the parts of unfinished experiments. Every file
appears by a rename, so that a process that is killed leaves no half file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from heed.errors import DataError, InputError, quoted
from heed.methods import Explanation
from heed.papers.results import Figure, Outcome, Result, Section, Whole
from heed.store import write_text, writing


class _Facts(TypedDict, total=False):
    paper: str | None
    scale: str | None
    model: str | None
    seed: Whole | None
    seconds: float | None
    heed: str | None


class _File(msgspec.Struct):
    """What a file in `experiments` must hold."""

    name: str
    title: str
    question: str
    facts: _Facts
    results: list[Result]
    figures: list[Figure]
    explanations: list[dict[str, Any]]
    key: str = ""


def write_section(folder: Path, section: Section) -> None:
    """Keep an experiment."""
    outcome = section.outcome
    for table, rows in outcome.rows.items():
        with writing(folder / "rows" / f"{section.name}-{table}.parquet") as scratch:
            pq.write_table(pa.Table.from_pylist(list(rows)), scratch)
    body = {
        "name": section.name,
        "title": section.title,
        "question": section.question,
        "facts": section.facts,
        "results": outcome.results,
        "figures": outcome.figures,
        "explanations": outcome.explanations,
        "key": section.key,
    }
    write_text(_path(folder, section.name), _json(body))


def write_results(folder: Path, sections: Sequence[Section]) -> None:
    """Write the results of all experiments in one list."""
    results = [r for s in sections for r in s.outcome.results]
    write_text(folder / "results.json", _json(results))


def read_section(folder: Path, name: str) -> Section | None:
    """The experiment of this name; None if the folder does not have it."""
    path = _path(folder, name)
    return _read(path) if path.exists() else None


def read_sections(folder: Path, order: Sequence[str] = ()) -> list[Section]:
    """All experiments of a folder: those named in `order` first, in that order."""
    sections = [_read(path) for path in sorted((folder / "experiments").glob("*.json"))]
    position = {name: i for i, name in enumerate(order)}
    return sorted(sections, key=lambda s: (position.get(s.name, len(position)), s.name))


def _path(folder: Path, name: str) -> Path:
    return folder / "experiments" / f"{name}.json"


def _read(path: Path) -> Section:
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        for values in file.explanations:
            Explanation.from_dict(values)
    except (msgspec.ValidationError, InputError) as error:
        raise DataError(
            f"{path} does not hold an experiment of heed ({quoted(str(error))})."
        ) from None
    except (OSError, ValueError, msgspec.DecodeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({quoted(str(error))}).") from None
    outcome = Outcome(file.results, file.figures, {}, file.explanations)
    return Section(file.name, file.title, file.question, outcome, dict(file.facts), file.key)


def _json(value: Any) -> str:
    """The value as JSON, in which NaN and infinity become null."""
    text = msgspec.json.encode(value, enc_hook=_plain)
    return msgspec.json.format(text, indent=1).decode() + "\n"


def _plain(value: Any) -> Any:
    """A number of numpy, or a collection of another kind, as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    return dict(value) if isinstance(value, Mapping) else list(value)
