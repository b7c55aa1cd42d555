"""Papers run again: every experiment by name, its results beside the published figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import metadata

from heed.errors import UnknownName
from heed.papers import jain_wallace, lopardo, naim_asher, wiegreffe_pinter
from heed.papers.folder import read_section, read_sections, write_results, write_section
from heed.papers.lab import Lab, Paper
from heed.papers.results import Figure, Outcome, Result, Section
from heed.progress import say
from heed.store import Store, code_of, key_of

__all__ = ["PAPERS", "Figure", "Lab", "Outcome", "Paper", "Result", "Section", "run"]

PAPERS: dict[str, Paper] = {
    "lopardo-2024": lopardo.PAPER,
    "jain-wallace-2019": jain_wallace.PAPER,
    "wiegreffe-pinter-2019": wiegreffe_pinter.PAPER,
    "naim-asher-2024": naim_asher.PAPER,
}


def run(
    paper: str, lab: Lab, experiments: Sequence[str] = (), rerun: bool = False
) -> list[Section]:
    """Run experiments (all, by default), and return all that the lab's folder then holds.

    An experiment that the folder holds is not run again, if settings, documents, model and code
    are the same. With `rerun` it is; models that were trained are kept.
    """
    if paper not in PAPERS:
        raise UnknownName("paper", paper, PAPERS)
    by_name = {e.name: e for e in PAPERS[paper].experiments}
    for name in experiments:
        if name not in by_name:
            raise UnknownName("experiment", name, by_name)
    lab.store = Store(lab.folder, rerun)
    facts = {"paper": paper, "scale": lab.scale, "model": lab.examined, "seed": lab.seed}
    for name in experiments or by_name:
        experiment = by_name[name]
        key = key_of(name, facts, lab.read_by(name), code_of(experiment.run.__module__))
        before = None if rerun else read_section(lab.folder, name)
        if before is not None and before.key == key:
            say(f"{name}: done before")
            continue
        say(f"{name} …")
        began = time.perf_counter()
        outcome = experiment.run(lab)
        more = {"seconds": round(time.perf_counter() - began, 1), "heed": metadata.version("heed")}
        section = Section(name, experiment.title, experiment.question, outcome, facts | more, key)
        write_section(lab.folder, section)
        write_results(lab.folder, read_sections(lab.folder, list(by_name)))
    sections = read_sections(lab.folder, list(by_name))
    write_results(lab.folder, sections)  # a process may have been killed just before it did
    return sections
