"""Keep: rows, models and files, by a key that says how they were made.

A key holds all that decides a value: settings, documents, model revision, and a digest of the code
that computed it (`code_of`). So a value is never taken for that of another question or of older
code.

    store = Store(folder)                    # or Store(): in memory, for this run alone
    rows = store.rows(key, measure)          # measured now, unless they are there
    model = store.model(key, train, save, load)

Layout of a folder:

    rows/*.jsonl     one line per entry, [key, value]; every process appends to a file of its own
    models/KEY/      one folder per model
    unfinished/KEY/  what an interrupted training needs to resume

Nothing is ever half there: a line that a killed process left is skipped, and files and folders
appear by a rename. Several processes may share a folder; at worst both compute the same value.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from heed.errors import OutputError

M = TypeVar("M")

_SCRATCH = ".writing-"  # how the names of files begin that are not whole yet


def key_of(*parts: Any) -> str:
    """A key from whatever says how a value was made."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf8", "replace")).hexdigest()[:24]


# What code computed a value


def code_of(module: str) -> str:
    """A digest of a module of heed and of all modules of heed that it imports, directly or not.

    Tables that a module reads from its folder count as its code.
    """
    digest = hashlib.sha256()
    for name in sorted(_reached(module)):
        digest.update(name.encode() + b"\0" + _source(name) + _tables(name))
    return digest.hexdigest()[:16]


@cache
def _reached(module: str) -> frozenset[str]:
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _imports(name)
    return frozenset(reached)


@cache
def _imports(module: str) -> tuple[str, ...]:
    """The modules of heed that a module imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    ours = {name for name in names if name.startswith("heed.")}
    return tuple(sorted(name for name in ours if _path(name) is not None))


@cache
def _path(module: str) -> Path | None:
    """The file of a module of heed; None if it is a name that a module exports."""
    stem = Path(__file__).parent.joinpath(*module.split(".")[1:])
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)


@cache
def _source(module: str) -> bytes:
    path = _path(module)
    return b"" if path is None else path.read_bytes()


@cache
def _tables(module: str) -> bytes:
    """The toml files beside a module that reads any."""
    path = _path(module)
    if path is None or b".toml" not in _source(module):
        return b""
    return b"".join(table.read_bytes() for table in sorted(path.parent.glob("*.toml")))


# Files that are whole or not there


def cache_folder() -> Path:
    """Where heed keeps what it can fetch or compute again: HEED_CACHE, by default ~/.cache/heed."""
    if folder := os.environ.get("HEED_CACHE"):
        return Path(folder).expanduser()
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder) / "heed"
    return Path.home() / ".cache" / "heed"


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A scratch file that takes the place of `path` in the end, or leaves it as it was."""
    with cannot_write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_SCRATCH)
        os.close(handle)
        scratch = Path(name)
        try:
            yield scratch
            scratch.chmod(0o644)  # as other files; those of mkstemp are for their owner alone
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)


@contextmanager
def writing_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder whose files move into `folder` in the end."""
    with cannot_write(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder.parent)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{_SCRATCH}{os.getpid()}-"))
        try:
            yield scratch
            for path in scratch.iterdir():
                path.chmod(0o644)
            if not folder.exists():
                # one rename: a process that is killed here leaves the whole folder, or none
                scratch.chmod(0o755)
                scratch.rename(folder)
                return
            for path in scratch.iterdir():
                path.replace(folder / path.name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove the scratch folders that killed processes left."""
    for path in folder.glob(f"{_SCRATCH}*-*"):
        pid = path.name.removeprefix(_SCRATCH).partition("-")[0]
        if pid.isdecimal() and not _alive(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's, and runs
    return True


@contextmanager
def cannot_write(path: Path) -> Iterator[None]:
    """The one place that says that something cannot be written."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error}).") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with writing(path) as scratch:
        scratch.write_text(text, encoding="utf8", errors="replace")


def check_writable(folder: Path) -> None:
    """Refuse a folder that can neither be made nor written to, before work is done for it."""
    nearest = next(p for p in [folder.absolute(), *folder.absolute().parents] if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise OutputError(f"{folder} cannot be written: you may not write to {nearest}.")


# The store


class Store:
    """Values by key: in a folder, or in memory where there is none.

    rerun    compute everything anew, as if nothing were there; models are still kept
    """

    def __init__(self, folder: Path | None = None, rerun: bool = False):
        self.folder = folder
        self._values: dict[str, Any] = {}
        self._models: dict[str, Any] = {}
        self._file = f"{os.getpid()}-{uuid4().hex[:8]}.jsonl"  # no other process appends to it
        if folder is not None and not rerun:
            self._values = _read(folder / "rows")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __getitem__(self, key: str) -> Any:
        return json.loads(self._values[key])

    def put(self, values: Mapping[str, Any]) -> None:
        """Keep several values at once."""
        written = {key: json.dumps(value) for key, value in values.items()}
        self._values.update(written)
        if self.folder is None or not written:
            return
        path = self.folder / "rows" / self._file
        lines = "".join(f'["{key}", {value}]\n' for key, value in written.items())
        with cannot_write(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf8") as file:
                file.write(lines)

    def rows(self, key: str, make: Callable[[], Any]) -> Any:
        """The value of a key, made now unless it is there: anything that JSON can hold."""
        if key not in self:
            self.put({key: make()})
        return self[key]

    def each(
        self, keys: Iterable[str], make: Callable[[list[int]], Iterable[Mapping[int, Any]]]
    ) -> list[Any]:
        """One value per key. `make` gets the indices that are missing, and yields values by index
        as they come in; these are kept at once, so that an interrupted run loses little.
        """
        keys = list(keys)
        missing = [i for i, key in enumerate(keys) if key not in self]
        if missing:
            for part in make(missing):
                self.put({keys[i]: value for i, value in part.items()})
        return [self[key] for key in keys]

    def model(
        self,
        key: str,
        make: Callable[[], M],
        save: Callable[[M, Path], None],
        load: Callable[[Path], M],
    ) -> M:
        """The model of a key, made now unless it is there; `save` writes by `writing_folder`."""
        if key not in self._models:
            folder = None if self.folder is None else self.folder / "models" / key
            if folder is not None and folder.exists():
                self._models[key] = load(folder)
            else:
                self._models[key] = make()
                if folder is not None:
                    save(self._models[key], folder)
        return self._models[key]

    def unfinished(self, key: str) -> Path | None:
        """Where a training of this key keeps what it needs to resume."""
        return None if self.folder is None else self.folder / "unfinished" / key


def _read(folder: Path) -> dict[str, str]:
    """The values of a folder, each as the JSON that it is: most are never read."""
    values: dict[str, str] = {}
    # a value that was computed anew is in a younger file
    for path in sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns):
        for line in path.read_text(encoding="utf8", errors="replace").split("\n"):
            key, separator, value = line[2:].partition('", ')
            # a process that was killed may have left half a line
            if line.startswith('["') and separator and value.endswith("]") and _whole(value[:-1]):
                values[key] = value[:-1]
    return values


def _whole(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
