"""Papers run again: every experiment with a name, its results beside the published figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import metadata

from heed.errors import UnknownName
from heed.papers import debate, lopardo, naim_asher
from heed.papers.lab import Lab, Paper
from heed.papers.results import Figure, Outcome, Result, Section, Store
from heed.progress import say

__all__ = ["PAPERS", "Figure", "Lab", "Outcome", "Paper", "Result", "Section", "Store", "run"]

PAPERS: dict[str, Paper] = {
    "lopardo-2024": lopardo.PAPER,
    "jain-wallace-2019": debate.JAIN_WALLACE,
    "wiegreffe-pinter-2019": debate.WIEGREFFE_PINTER,
    "naim-asher-2024": naim_asher.PAPER,
}


def run(
    paper: str, lab: Lab, experiments: Sequence[str] = (), again: bool = False
) -> list[Section]:
    """Run experiments (all, by default) that the lab's folder does not have yet; all that it has then."""
    if paper not in PAPERS:
        raise UnknownName("paper", paper, PAPERS)
    known = {e.name: e for e in PAPERS[paper].experiments}
    for name in experiments:
        if name not in known:
            raise UnknownName("experiment", name, known)
    store, lab.again = Store(lab.folder), again
    for name in experiments or known:
        facts = {"paper": paper, "scale": lab.scale, "model": lab.examined, "seed": lab.seed}
        if not again and store.has(name, facts):
            say(f"{name}: done before")
            continue
        say(f"{name} …")
        began = time.perf_counter()
        outcome = known[name].run(lab)
        more = {"seconds": round(time.perf_counter() - began, 1), "heed": metadata.version("heed")}
        store.write(Section(name, known[name].title, known[name].question, outcome, facts | more))
        store.write_results(store.sections(list(known)))
    return store.sections(list(known))
