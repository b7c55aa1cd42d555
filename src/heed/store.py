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
appear by a rename. Several processes, also of several machines, may share a folder; at worst both
compute the same value.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from heed.errors import OutputError

M = TypeVar("M")

_SCRATCH = ".writing-"  # how the names of files begin that are not whole yet
_HOST = re.sub(r"\W", "", platform.node())
_OWNED = re.compile(r".+-(\w*)-([0-9]{1,9})-\w+")  # names that end in HOST-PID-ANYTHING
_DAY = 24 * 60 * 60.0
_ATTEMPTS = 20  # to make a file in a folder that other processes make and remove
_LIBRARIES = ("torch", "numpy", "transformers", "tokenizers")  # whose versions may change a value


def key_of(*parts: Any) -> str:
    """A key from whatever says how a value was made."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf8", "replace")).hexdigest()[:24]


# What code computed a value


def code_of(module: str) -> str:
    """A digest of a module of heed and of all modules of heed that it imports, directly or not.

    Tables that a module reads from its folder count as its code, and so do the versions of the
    libraries that compute. How a value is shown does not: `heed.report` is left out.
    """
    digest = hashlib.sha256(json.dumps(_versions()).encode())
    for name in sorted(_reached(module)):
        digest.update(name.encode() + b"\0" + _source(name) + _tables(name))
    return digest.hexdigest()[:16]


@cache
def _versions() -> list[str]:
    return [metadata.version(name) for name in _LIBRARIES]


@cache
def _reached(module: str) -> frozenset[str]:
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        # values import the report to show themselves, and are computed without it
        shows = name.startswith("heed.report") and not module.startswith("heed.report")
        if name not in reached and not shows:
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
    """The toml files beside a module that reads any, but for that of the known data sets: keys hold
    the documents themselves.
    """
    path = _path(module)
    if path is None or b".toml" not in _source(module) or module.startswith("heed.data"):
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
        handle, name = _scratch(path.parent, tempfile.mkstemp)
        os.close(handle)
        scratch = Path(name)
        try:
            yield scratch
            scratch.chmod(0o644)  # as other files; those of mkstemp are for their owner alone
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)


@contextmanager
def writing_folder(
    folder: Path, stays: Callable[[str], bool] = lambda name: False
) -> Iterator[Path]:
    """A scratch folder that takes the place of `folder` in the end, or leaves it as it was.

    stays   whether a file or folder of this name in the old folder is to be in the new one, too
    """
    with cannot_write(folder):
        folder = folder.resolve()
        scratch = Path(_scratch(folder.parent, tempfile.mkdtemp))
        try:
            yield scratch
            for path in scratch.iterdir():
                path.chmod(0o644)
            scratch.chmod(0o755)
            for path in folder.iterdir() if folder.exists() else ():
                if stays(path.name) and not is_scratch(path):
                    _copy(path, scratch / path.name)
            _replace(folder, scratch)
        finally:
            put_back(folder)
            shutil.rmtree(scratch, ignore_errors=True)


def _scratch(parent: Path, make: Callable[..., M]) -> M:
    """A scratch file or folder, whose name says which process of which machine it belongs to."""
    prefix = f"{_SCRATCH}{_HOST}-{os.getpid()}-"
    for attempt in range(_ATTEMPTS):
        try:
            parent.mkdir(parents=True, exist_ok=True)
            sweep(parent)
            return make(dir=parent, prefix=prefix)
        except (FileExistsError, FileNotFoundError):
            # another process may remove the parent while it is empty: then mkdir, which has just
            # seen it, finds no folder there, or make finds none
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _copy(path: Path, target: Path) -> None:
    if target.exists():  # written anew
        return
    if path.is_dir() and not path.is_symlink():
        shutil.copytree(path, target, symlinks=True)
    else:
        shutil.copy2(path, target, follow_symlinks=False)


def _replace(folder: Path, scratch: Path) -> None:
    """Two renames: the old folder aside, the new one in. A process that is killed in between leaves
    no folder, but the whole old one aside, and `put_back` puts it back.
    """
    aside = _aside(folder)
    while not _renamed(scratch, folder):
        with suppress(FileNotFoundError):  # another process has just moved it
            if not _renamed(folder, aside):
                _discard(aside, scratch)  # left by a process that was killed before it could
    _discard(aside, scratch)


def put_back(folder: Path) -> Path:
    """The same folder; if a process was killed while it replaced it, the old one is there again."""
    aside = _aside(folder)
    if not folder.exists() and aside.exists():
        with suppress(OSError):  # another process was faster
            aside.rename(folder)
    return folder


def _aside(folder: Path) -> Path:
    folder = folder.resolve()
    return folder.parent / f".replaced-{folder.name}"


def _renamed(folder: Path, target: Path) -> bool:
    """Rename a folder, unless there is a target that is not empty."""
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _discard(aside: Path, scratch: Path) -> None:
    doomed = scratch.with_name(f"{scratch.name}_old")  # so that no half of it is ever put back
    with suppress(FileNotFoundError):
        aside.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def is_scratch(path: Path) -> bool:
    """Whether something is being written to this file or folder, or was by a killed process."""
    return path.name.startswith(_SCRATCH)


def sweep(folder: Path) -> None:
    """Remove what killed processes of this machine were writing, and scratch of another day."""
    for path in folder.glob(f"{_SCRATCH}*"):
        if _OWNED.fullmatch(path.name) and (_abandoned(path) or _age(path) > _DAY):
            _remove(path)


def _abandoned(path: Path) -> bool:
    """Whether the process that a name ends in has ended; of another machine, a day is waited."""
    owner = _OWNED.fullmatch(path.name)
    if owner is None or owner[1] != _HOST:
        return _age(path) > _DAY
    return not _alive(int(owner[2]))


def _age(path: Path) -> float:
    """Seconds since a file or folder was changed; 0 if it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink() if path.is_file() else shutil.rmtree(path)


def resumed(parent: Path, key: str) -> Path:
    """A folder for this process alone: what a killed one left under this key, or a new one.

    Those that nobody has come back to for a month are removed.
    """
    folder = parent / f"{key}-{_HOST}-{os.getpid()}-0"
    for path in filter(_abandoned, parent.glob("*")):
        if path.name.startswith(f"{key}-"):
            with suppress(OSError):  # another process was faster, or there are two
                path.rename(folder)
        elif _age(path) > 30 * _DAY:
            _remove(path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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

    def finish(self, key: str) -> None:
        """Remove what a training of this key needed to resume, but not what another one writes."""
        if folder := self.unfinished(key):
            for path in folder.glob("*"):
                if not is_scratch(path):
                    path.unlink(missing_ok=True)
            with suppress(OSError):  # not empty, or not there
                folder.rmdir()


def _read(folder: Path) -> dict[str, str]:
    """The values of a folder, each as the JSON that it is: most are never read."""
    values: dict[str, str] = {}
    files = [path for path in folder.glob("*.jsonl") if path.is_file()]
    # a value that was computed anew is in a younger file
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):
        for line in path.read_text(encoding="utf8", errors="replace").split("\n"):
            key, separator, value = line[2:].partition('", ')
            # a process that was killed may have left half a line
            if line.startswith('["') and separator and value.endswith("]") and _whole(value[:-1]):
                values[key] = value[:-1]
    return values


def _whole(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
