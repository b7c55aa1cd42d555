"""Texts as Markdown, and cells of CSV files, in which nothing is taken for markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from heed.text import printable


def md(text: str) -> str:
    """Text in which nothing is markup."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", printable(text))


def code(text: str) -> str:
    """Text as code, whatever it holds; a table cannot hold a bar."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def md_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def plain_cell(value: Any) -> Any:
    """A cell; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
