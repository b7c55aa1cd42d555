"""What all pages share: Jinja escapes every text, and only `Markup` is taken as it is."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from heed.text import printable


def render(template: str, **values: Any) -> str:
    """A page from its template."""
    return _environment().get_template(template).render(values)


def scripted(name: str) -> dict[str, Markup]:
    """A script of a page, and its digest: by it, a browser runs this script and no other."""
    script = resources.files("heed.report").joinpath("templates", name).read_text("utf8")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return {"script": Markup(script), "digest": Markup(digest)}


def inert(value: Any) -> Markup:
    """JSON that cannot end the element which holds it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def pairs(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """Settings by name, as they are shown."""
    texts = {name: "by default" if v is None else str(v) for name, v in settings.items()}
    return list(texts.items())


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("heed", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _clean(value: Any) -> Any:
    """Plain strings without control and direction characters; `Markup` stays as it is."""
    return printable(value) if type(value) is str else value
