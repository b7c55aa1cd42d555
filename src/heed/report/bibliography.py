"""The papers behind methods, claims, data sets, reproductions and audits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from heed.audit import Audit
from heed.claims import CLAIMS
from heed.data import KNOWN
from heed.errors import UnknownName
from heed.methods import METHODS
from heed.papers import PAPERS


def bibtex(names: Sequence[str]) -> str:
    """BibTeX entries of methods, claims, data sets, papers and saved audits; all by default."""
    keys = {name: cls.paper for name, cls in METHODS.items()}
    keys |= {name: cls.claim.source for name, cls in CLAIMS.items()}
    keys |= {name: dataset.cite for name, dataset in KNOWN.items()}
    keys |= {name: paper.source for name, paper in PAPERS.items()}
    files = {name: cited(Audit.load(Path(name))) for name in names if name.endswith(".parquet")}
    wanted = [used for name in names for used in files.get(name, [name])] if names else list(keys)
    for name in wanted:
        if name not in keys:
            raise UnknownName("method, claim, data set or paper", name, keys)
    papers = {key for name in wanted for key in keys[name].split()}
    return "\n\n".join(entry for key, entry in _papers().items() if key in papers)


def authors(source: str) -> str:
    """Authors and year of the papers with these keys; unknown keys stay as they are."""
    papers = _papers()
    return "; ".join(
        f"{_names(papers[key])} {_field(papers[key], 'year')}" if key in papers else key
        for key in source.split()
    )


def _names(entry: str) -> str:
    """Family names; of more than three authors the first."""
    family = [name.partition(",")[0] for name in _field(entry, "author").split(" and ")]
    if len(family) > 3:
        return f"{family[0]} et al."
    return " and ".join([", ".join(family[:-1]), family[-1]] if family[1:] else family)


def _field(entry: str, name: str) -> str:
    match = re.search(rf"^ *{name} = {{(.*)}},?$", entry, re.MULTILINE)
    assert match, f"{name} is missing in {entry}"
    return match[1]


@cache
def _papers() -> dict[str, str]:
    """BibTeX entries by their keys."""
    entries = (Path(__file__).parent.parent / "papers.bib").read_text(encoding="utf8").split("\n\n")
    return {entry.strip().partition("{")[2].partition(",")[0]: entry.strip() for entry in entries}


def cited(audit: Audit) -> list[str]:
    """Names of what an audit uses: claims, data, and the methods that it judges and shows."""
    methods = [e.method for example in audit.examples[:1] for e in example.explanations]
    claims = [e.claim.id for e in audit.evidence]
    named = [*claims, str(audit.facts["data"]).split(" ")[0], *audit.facts["methods"], *methods]
    citable = {*METHODS, *CLAIMS, *KNOWN}
    return [name for name in dict.fromkeys(named) if name in citable]
