"""Does an audit find the truth where it is known?

Every construction is judged by what it determines, over many seeds. `python -m bench known-truth`
writes the tables of docs/known-truth.md. As in an audit, rows come from the claims and verdicts
from `judge`; `heed.audit` itself trains models by heed's recipes, and could not be given trainings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tqdm.auto import tqdm

from bench import constructed, harder
from bench.constructed import Construction
from heed.claims import CLAIMS, Evidence, Study, Verdict, judge
from heed.claims.study import collect, controls
from heed.methods import CHANCE

CONSTRUCTIONS = {**constructed.CONSTRUCTIONS, **harder.CONSTRUCTIONS}
TRUTH = {**constructed.TRUTH, **harder.TRUTH}
SEEDS = 20

# Where rows of a claim are all alike, only many of them tell a value that never varies from one
# that is rarely another.
DOCUMENTS = 250
OUTCOMES = ("supported", "refuted", "not applicable", "undecided")
Found = Mapping[tuple[str, str], list[Verdict]]  # (construction, claim): verdicts over seeds


def judged(construction: Construction, seed: int = 0) -> list[Verdict]:
    """Verdicts on all claims of which the truth is known, judged together."""
    study = Study(construction.model, construction.documents, seed=seed)
    if construction.retraining is not None:
        study.retraining = construction.retraining
    chance = [replace(study, method=cls()) for cls in CHANCE]
    evidence: list[Evidence] = []
    for test in (CLAIMS[claim]() for claim in TRUTH[construction.name]):
        own = collect(test, study)
        evidence += [own, *controls(test, chance, [own])]
    return judge(evidence)


def over(seeds: Sequence[int]) -> Found:
    """Verdicts on every cell of the table, over seeds."""
    found: dict[tuple[str, str], list[Verdict]] = {
        (name, claim): [] for name, claims in TRUTH.items() for claim in claims
    }
    for name, make in CONSTRUCTIONS.items():
        for seed in tqdm(seeds, desc=name, leave=False, delay=1):
            for verdict in judged(make(seed, DOCUMENTS), seed):
                found[name, verdict.claim.id].append(verdict)
    return found


def right(found: Found) -> tuple[int, int]:
    """How many verdicts were the truth, and how many there were."""
    good = sum(
        v.outcome == TRUTH[name][claim]
        for (name, claim), verdicts in found.items()
        for v in verdicts
    )
    return good, sum(len(verdicts) for verdicts in found.values())


def confusion(found: Found) -> str:
    """What was expected (rows) against what was found, in Markdown."""
    lines = [f"| truth | {' | '.join(OUTCOMES)} |", "|---" * (len(OUTCOMES) + 1) + "|"]
    for truth in OUTCOMES:
        cells = [
            verdicts for (name, claim), verdicts in found.items() if TRUTH[name][claim] == truth
        ]
        here = Counter(v.outcome for verdicts in cells for v in verdicts)
        lines.append(f"| {truth} | {' | '.join(str(here[outcome]) for outcome in OUTCOMES)} |")
    return "\n".join(lines)


def by_cell(found: Found) -> str:
    """Every cell in Markdown.

    How often the truth was found, what else was, and the range of the statistic.
    """
    lines = [
        "| construction | claim | truth | correct | other verdicts | statistic | threshold |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, claim), verdicts in found.items():
        truth, outcomes = TRUTH[name][claim], Counter(v.outcome for v in verdicts)
        other = ", ".join(f"{k} {outcome}" for outcome, k in outcomes.items() if outcome != truth)
        means = [v.mean for v in verdicts if v.mean is not None and v.outcome != "not applicable"]
        span = f"{min(means):.3g} … {max(means):.3g}" if means else ""
        side = CLAIMS[claim].claim.side()
        lines.append(
            f"| {name} | `{claim}` | {truth} | {outcomes[truth]} of {len(verdicts)}"
            f" | {other} | {span} | {side} |"
        )
    return "\n".join(lines)


def run() -> None:
    found = over(range(SEEDS))
    good, total = right(found)
    print(f"\n{good} of {total} verdicts are correct ({SEEDS} seeds, {DOCUMENTS} documents each)\n")
    print(f"{confusion(found)}\n\n{by_cell(found)}")
