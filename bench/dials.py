"""Operating curves: how verdicts change while the truth moves through the threshold.

Each dial is a construction with one number that moves the statistic of one claim from well below
its threshold to well above. At every setting, the mean over many documents stands for the true
statistic, and audits of a hundred documents are judged over seeds. `python -m bench dials` writes
the table of docs/known-truth.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tqdm.auto import tqdm

from bench.constructed import (
    FILLERS,
    SEPARATORS,
    SIDES,
    WORTH,
    Construction,
    Word,
    build,
    documents_of,
    write,
)
from heed.claims import CLAIMS, Evidence, Study, judge
from heed.randomness import generator
from heed.text import Document

SEEDS = 20
DOCUMENTS = 100
MANY = 1000  # documents whose mean stands for the true statistic

Make = Callable[[float, int, int], Construction]  # of the dial, a seed, and how many documents


@dataclass(frozen=True)
class Dial:
    """A construction with a dial, the claim that it is for, and the settings of the dial."""

    claim: str
    about: str
    make: Make
    settings: Sequence[float]


def _model(dial: float, seed: int, name: str) -> np.random.Generator:
    """The same randomness at every setting of a dial: only the dial moves the statistic."""
    return generator(seed, "dial", name)


def louder(dial: float, seed: int, n: int) -> Construction:
    """The honest model with a scale: how far the prediction moves when attention is shuffled."""
    rng = _model(dial, seed, "louder")
    words = {w: Word(float(rng.uniform(0.5, 3)), (WORTH[w],)) for w in WORTH}
    return Construction("louder", build(words, dial), documents_of(seed, "louder", n, _usual))


def turned(dial: float, seed: int, n: int) -> Construction:
    """Evidence is worth e^(-dial · score): from 1 on, the less attention, the more it counts.

    Documents are nearly all evidence. Else pairs of evidence and fillers, which attention has in
    the right order, would keep the weighted τ above its threshold.
    """
    rng = _model(dial, seed, "turned")
    words = {}
    for w, worth in WORTH.items():
        score, noise = float(rng.uniform(0.5, 2.5)), float(rng.normal(0, 0.1))
        words[w] = Word(score, (worth * float(np.exp(noise - dial * score)),))

    def make(r: np.random.Generator, label: int) -> Document:
        return write(r, (SIDES[label], int(r.integers(10, 13))), (FILLERS, 3), label=label)

    return Construction("turned", build(words, 1.0), documents_of(seed, "turned", n, make))


def mixed(dial: float, seed: int, n: int) -> Construction:
    """A share of the evidence speaks for the other side, attended like the rest."""
    rng = _model(dial, seed, "mixed")
    words = {w: Word(float(rng.uniform(2.9, 3.1)), (WORTH[w],)) for w in WORTH}

    def make(r: np.random.Generator, label: int) -> Document:
        against = int(r.binomial(9, dial))
        against = min(against, 4)  # the label stays that of the majority
        parts = ((SIDES[label], 9 - against), (SIDES[1 - label], against))
        return write(r, *parts, (FILLERS, int(r.integers(12, 21))), label=label)

    return Construction("mixed", build(words, 3.0), documents_of(seed, "mixed", n, make))


def drawn_off(dial: float, seed: int, n: int) -> Construction:
    """Separators, worth nothing, get a score of their own among those of the evidence."""
    rng = _model(dial, seed, "drawn off")
    words = {w: Word(float(rng.uniform(0.5, 3)), (WORTH[w],)) for w in WORTH}
    words |= {w: Word(dial + float(rng.uniform(-1, 1))) for w in SEPARATORS}

    def make(r: np.random.Generator, label: int) -> Document:
        parts = ((FILLERS, int(r.integers(6, 13))), (SEPARATORS, int(r.integers(6, 9))))
        return write(r, (SIDES[label], int(r.integers(8, 13))), *parts, label=label)

    return Construction("drawn off", build(words, 2.0), documents_of(seed, "drawn off", n, make))


def wider(dial: float, seed: int, n: int) -> Construction:
    """Values of so many random numbers: the more, the less attention is left open."""
    rng = _model(dial, seed, "wider")
    known = (*WORTH, *FILLERS)
    values = rng.standard_normal((len(known), 40))
    words = {}
    for w, value in zip(known, values, strict=True):
        words[w] = Word(float(rng.uniform(0, 2)), tuple(value[: int(dial)].tolist()))

    def make(r: np.random.Generator, label: int) -> Document:
        return write(r, (known, int(r.integers(20, 41))))

    return Construction("wider", build(words, 2.0), documents_of(seed, "wider", n, make))


def _usual(r: np.random.Generator, label: int) -> Document:
    parts = ((SIDES[label], int(r.integers(8, 13))), (FILLERS, int(r.integers(12, 21))))
    return write(r, *parts, label=label)


_TURNED = (-0.4, -0.2, 0.0, 0.1, 0.2, 0.4, 0.8)
_DRAWN = (-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)

DIALS = (
    Dial("used", "scale of the output", louder, (0.1, 0.2, 0.22, 0.24, 0.26, 0.3, 0.5, 2.0)),
    Dial("agrees-gradient", "how worth falls with attention", turned, _TURNED),
    Dial("agrees-removal", "how worth falls with attention", turned, _TURNED),
    Dial("agrees-lime", "how worth falls with attention", turned, _TURNED),
    Dial("signed", "share of evidence against", mixed, (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)),
    Dial("removes", "score of separators", drawn_off, _DRAWN),
    Dial("suffices", "score of separators", drawn_off, _DRAWN),
    Dial("competitive", "score of separators", drawn_off, _DRAWN),
    Dial("plausible", "score of separators", drawn_off, _DRAWN),
    Dial("identified", "numbers of a value", wider, (4, 10, 16, 20, 24, 28, 32, 38)),
)


def curve(
    dial: Dial, seeds: int = SEEDS, many: int = MANY
) -> list[tuple[float, float, Counter[str]]]:
    """At each setting: the true statistic, and how often each outcome was found."""
    test = CLAIMS[dial.claim]()
    points = []
    for setting in tqdm(dial.settings, desc=dial.claim, leave=False, delay=1):
        truths, outcomes = [], Counter[str]()
        for seed in range(seeds):
            # every seed is a model of its own; its truth is the mean over further documents
            whole = dial.make(setting, seed, DOCUMENTS + many // seeds)
            study = Study(whole.model, whole.documents, seed=seed)
            rows = test.measure(study)
            truths += [row["value"] for row in rows]
            keyed = [{"document": i} | row for i, row in enumerate(rows[:DOCUMENTS])]
            (verdict,) = judge([Evidence(test.claim, keyed)])
            outcomes[verdict.outcome] += 1
        points.append((setting, float(np.nanmean(truths)), outcomes))
    return points


def run() -> None:
    print(
        "\n| claim | dial | setting | true statistic | threshold"
        " | supported | undecided | refuted |"
    )
    print("|---" * 8 + "|")
    for dial in DIALS:
        side = CLAIMS[dial.claim].claim.side()
        for setting, truth, outcomes in curve(dial):
            counts = " | ".join(str(outcomes[k]) for k in ("supported", "undecided", "refuted"))
            print(
                f"| `{dial.claim}` | {dial.about} | {setting:g} | {truth:.3f} | {side} | {counts} |"
            )
