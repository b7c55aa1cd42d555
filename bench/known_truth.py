"""Does an audit find the truth where it is known? Every construction, judged by what it determines, over many seeds.

`python -m bench known-truth` writes the tables of docs/known-truth.md. As in an audit, rows come from the diagnostics
and verdicts from `judge`; `heed.audit` itself trains models by heed's recipes, and could not be given trainings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tqdm.auto import tqdm

from heed.diagnose import DIAGNOSTICS, Evidence, Study, Verdict, judge
from heed.models.constructed import CONSTRUCTIONS, TRUTH, Construction

SEEDS = 20
OUTCOMES = ("supported", "refuted", "not applicable", "undecided")
Counts = dict[tuple[str, str], Counter[str]]  # (construction, claim): how often each outcome was found


def judged(construction: Construction, seed: int = 0) -> list[Verdict]:
    """Verdicts on all claims of which the truth is known, judged together."""
    study = Study(construction.model, construction.documents, seed=seed)
    if construction.lessons is not None:
        study.lessons = construction.lessons
    evidence = []
    for claim in construction.truth:
        diagnostic = DIAGNOSTICS[claim]()
        reason = diagnostic.refusal(study)
        evidence.append(Evidence(diagnostic.claim, [] if reason else diagnostic.measure(study), reason))
    return judge(evidence)


def count(seeds: Iterable[int], documents: int = 100) -> Counts:
    """How often every cell of the table came out how, over seeds."""
    found: Counts = {(name, claim): Counter() for name, cells in TRUTH.items() for claim in cells}
    for name, make in CONSTRUCTIONS.items():
        for seed in tqdm(list(seeds), desc=name, leave=False, delay=1):
            for verdict in judged(make(seed, documents), seed):
                found[name, verdict.claim.id][verdict.outcome] += 1
    return found


def right(found: Mapping[tuple[str, str], Counter[str]]) -> tuple[int, int]:
    """How many verdicts were the truth, and how many there were."""
    good = sum(counter[TRUTH[name][claim]] for (name, claim), counter in found.items())
    return good, sum(counter.total() for counter in found.values())


def confusion(found: Mapping[tuple[str, str], Counter[str]]) -> str:
    """What was expected (rows) against what was found, in Markdown."""
    lines = [f"| truth | {' | '.join(OUTCOMES)} |", "|---" * (len(OUTCOMES) + 1) + "|"]
    for truth in OUTCOMES[:-1]:
        here = Counter[str]()
        for (name, claim), counter in found.items():
            if TRUTH[name][claim] == truth:
                here += counter
        lines.append(f"| {truth} | {' | '.join(str(here[outcome]) for outcome in OUTCOMES)} |")
    return "\n".join(lines)


def cells(found: Mapping[tuple[str, str], Counter[str]]) -> str:
    """Every cell: the truth, and how often it was found, in Markdown; what else was found is named."""
    lines = ["| construction | claim | truth | found | else |", "|---|---|---|---|---|"]
    for (name, claim), counter in found.items():
        truth = TRUTH[name][claim]
        other = ", ".join(f"{k} {outcome}" for outcome, k in counter.items() if outcome != truth)
        lines.append(f"| {name} | `{claim}` | {truth} | {counter[truth]} of {counter.total()} | {other} |")
    return "\n".join(lines)


def run() -> None:
    found = count(range(SEEDS))
    good, total = right(found)
    print(f"\n{good} of {total} verdicts are the truth ({SEEDS} seeds, 100 documents each)\n")
    print(f"{confusion(found)}\n\n{cells(found)}")
