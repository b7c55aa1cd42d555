"""What was measured already: rows by a key, on disk as they come in, so that a run that was stopped loses little."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heed.errors import OutputError

Row = dict[str, Any]


class Notebook:
    """Rows by key; without a file they are kept for the time of the run alone.

    about    what all rows have in common (model, data, seed …): part of every key
    """

    def __init__(self, path: Path | None = None, about: Mapping[str, Any] | None = None):
        self.path = path
        self._about = json.dumps(dict(about or {}), sort_keys=True, default=str)
        self._rows: dict[str, Row] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf8").splitlines():
                try:
                    key, row = json.loads(line)
                except ValueError:  # the run was stopped while it wrote this line
                    continue
                self._rows[key] = row

    def key(self, *parts: Any) -> str:
        """A key from whatever says how a row was measured."""
        text = self._about + json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf8", "replace")).hexdigest()[:24]

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Row:
        return dict(self._rows[key])

    def write(self, rows: Mapping[str, Row]) -> None:
        self._rows.update(rows)
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf8") as file:
                file.writelines(json.dumps(item) + "\n" for item in rows.items())
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written ({error}).") from None
