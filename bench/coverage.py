"""Do the intervals of verdicts hold what they promise?

Rows are drawn from distributions whose truth is known, each like the rows of one claim.
`python -m bench coverage` writes the tables of docs/known-truth.md: how often the intervals of
`heed.intervals` contain the truth, and how often a family of claims has any false decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float
from scipy.stats import norm
from scipy.stats import t as student
from tqdm.auto import tqdm

from heed.claims import Claim, Evidence, judge
from heed.intervals import RESAMPLES, Interval, Sample
from heed.intervals.studentised import _weights, strays
from heed.intervals.together import bets, interval
from heed.randomness import generator

SIZES = (30, 60, 100, 200)
FAMILY = 20
LEVELS = (0.95, 1 - 0.05 / FAMILY)  # one claim alone, and the strictest of a family
REPETITIONS = 2000
_CHUNK = 100  # samples that share their resamples

Rng = np.random.Generator
Columns = dict[str, Float[np.ndarray, "row"]]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one sample: a value each, or one for each training seed, or columns to combine."""

    values: Float[np.ndarray, "row"]
    seeds: Float[np.ndarray, "seed row"] | None = None
    columns: Columns | None = None


@dataclass(frozen=True)
class Case:
    """Rows like those of a claim, whose true statistic is known.

    like     the claim
    about    what the rows are like, in words
    truth    the true statistic
    draw     rows of one sample
    of       the statistic as a function of sums of columns, if it is not the mean of values
    one      the same for one training seed
    bounds   of the values
    """

    like: str
    about: str
    truth: float
    draw: Callable[[Rng, int], Rows]
    bounds: tuple[float, float] | None = (-1.0, 1.0)
    of: Callable[[Columns], np.ndarray] | None = None
    one: Callable[[Columns, int], float] | None = None


def values(draw: Callable[[Rng, int], np.ndarray]) -> Callable[[Rng, int], Rows]:
    return lambda rng, n: Rows(draw(rng, n))


def thirds(rng: Rng, n: int) -> Rows:
    """Right or wrong, with attention less without: it rarely matters, in one to three seeds.

    Gained in 6 % of the documents, lost in 4.5 %.
    """
    sign = rng.choice([1.0, -1.0, 0.0], n, p=[0.06, 0.045, 0.895])
    often = rng.integers(1, 4, n)
    seeds = rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1).T  # in which seeds it matters
    table = sign * (seeds < often)
    return Rows(table.mean(0), table)


def unlike_seeds(count: int) -> Callable[[Rng, int], Rows]:
    """The same, but how much is gained depends on the training seed as well."""

    def draw(rng: Rng, n: int) -> Rows:
        shift = rng.normal(0, 0.03, (count, 1)).clip(-0.1, 0.1)
        document = rng.random(n)  # the same documents are easy in all seeds
        gained, lost = document < 0.21 + shift / 2, document > 1 - (0.2 - shift / 2)
        table = gained.astype(float) - lost
        return Rows(table.mean(0), table)

    return draw


def distances(count: int, median: bool) -> Callable[[Rng, int], Rows]:
    """How far attention moves: it depends on the document, the training seed, and both."""

    def draw(rng: Rng, n: int) -> Rows:
        logits = -1.2 + rng.normal(size=n) + 0.4 * rng.normal(size=(count, 1))
        table = 1 / (1 + np.exp(-logits - 0.7 * rng.normal(size=(count, n))))
        return Rows(np.median(table, axis=0) if median else table.mean(0), table)

    return draw


def over_seeds(count: int) -> Callable[[Rng, int], Rows]:
    """The distance of an adversary, and of each other training seed: half as far in the middle."""

    def draw(rng: Rng, n: int) -> Rows:
        document = rng.beta(2, 6, n)
        shift = np.exp(0.2 * rng.normal(size=(count, 1)))
        table = document * shift * rng.beta(8, 8, (count, n))
        adversary = 2 * document * rng.beta(8, 8, n)
        columns = {"adversary": adversary} | {f"seed_{k}": row for k, row in enumerate(table)}
        return Rows(adversary, table, columns)

    return draw


def ratio(sums: Columns) -> np.ndarray:
    between = np.median([x for name, x in sums.items() if name.startswith("seed")], axis=0)
    return np.asarray(sums["adversary"] / between)


def ratio_of_one(sums: Columns, seed: int) -> float:
    return float(sums["adversary"] / sums[f"seed_{seed}"])


def guided(rng: Rng, n: int) -> Rows:
    """Predictions of two kinds of models, equally good on average, of three seeds each."""
    gold = rng.random(n) < 0.5
    hard = rng.beta(1, 3, n)  # how likely each document is to be wrong
    columns: Columns = {"gold": gold.astype(float)}
    right = []
    for name in ("guided", "uniform"):
        for seed in range(3):
            wrong = rng.random(n) < hard * np.exp(0.1 * rng.normal())
            predicted = gold ^ wrong
            columns[f"{name}_{seed}"] = predicted.astype(float)
            columns[f"{name}_both_{seed}"] = (predicted & gold).astype(float)
            right.append(~wrong)
    table = np.array(right[:3], dtype=float) - np.array(right[3:], dtype=float)
    return Rows(table.mean(0), table, columns)


def f1_gain(sums: Columns) -> np.ndarray:
    return np.mean([f1_gain_of_one(sums, seed) for seed in range(3)], axis=0)


def f1_gain_of_one(sums: Columns, seed: int) -> float:
    guided, uniform = (
        2 * sums[f"{name}_both_{seed}"] / np.maximum(1, sums[f"{name}_{seed}"] + sums["gold"])
        for name in ("guided", "uniform")
    )
    return guided - uniform  # type: ignore[return-value]


def beta(a: float, b: float) -> Callable[[Rng, int], np.ndarray]:
    return lambda rng, n: rng.beta(a, b, n)


def one_in_ten(rng: Rng, n: int) -> np.ndarray:
    return (rng.random(n) < 0.1) * rng.random(n)


def three_words(rng: Rng, n: int) -> np.ndarray:
    return rng.binomial(3, 0.8, n) / 3


def correlations(rng: Rng, n: int) -> np.ndarray:
    return 2 * (rng.beta(4, 4, n) - rng.beta(4.2, 3.8, n))


def areas(rng: Rng, n: int) -> np.ndarray:
    return rng.beta(3, 2, n) - rng.beta(2, 2, n)


def often_zero(rng: Rng, n: int) -> np.ndarray:
    """Four documents in ten have the same area for both explanations."""
    return (rng.random(n) < 0.6) * (rng.beta(1, 2, n) - rng.random(n))


SHARE = (0.0, 1.0)
RIVALLED = ("3 seeds that differ", "distances, mean of 3 seeds")
CASES = (
    Case("used", "TVD, skewed", 0.05, values(beta(0.5, 9.5)), SHARE),
    Case("used", "TVD, one document in ten moves", 0.05, values(one_in_ten), SHARE),
    Case("used", "skewed, without bounds", 0.5, values(lambda r, n: r.gamma(1, 0.5, n)), None),
    Case("identified", "TVD, near 0 or near 1", 0.1, values(beta(0.1, 0.9)), SHARE),
    Case("agrees-removal", "τ, spread", 0.5, values(lambda r, n: 2 * r.beta(6, 2, n) - 1)),
    Case("tracks", "difference of correlations", -0.05, values(correlations), (-2.0, 2.0)),
    Case("signed", "shares of three words", 0.8, values(three_words), SHARE),
    Case("removes", "difference of areas", 0.1, values(areas)),
    Case("competitive", "paired difference, often 0", -0.1, values(often_zero)),
    Case("plausible", "precision less chance", 0.1, values(lambda r, n: r.beta(1, 3, n) - 0.15)),
    Case("needed", "rarely anything but 0, 3 seeds", 0.01, thirds),
    Case("needed", "3 seeds that differ", 0.01, unlike_seeds(3)),
    Case("stable", "distances, mean of 3 seeds", 0.2856, distances(3, False), SHARE),
    Case("stable", "distances, median of 8 seeds", 0.2715, distances(8, True), SHARE),
    Case("exclusive-model", "ratio, 3 seeds", 2.0, over_seeds(3), None, ratio, ratio_of_one),
    Case("exclusive-model", "ratio, 8 seeds", 2.0, over_seeds(8), None, ratio, ratio_of_one),
    Case("informative", "difference of F1, 3 seeds", 0.0, guided, None, f1_gain, f1_gain_of_one),
)


@dataclass(frozen=True)
class Found:
    """What became of a case with so many rows.

    kind      of its intervals
    covered   how often the interval of each level holds the truth
    """

    case: Case
    n: int
    kind: str
    covered: tuple[float, ...]


def sample_of(case: Case, rows: Rows) -> Sample:
    """The sample that a claim would make of these rows."""
    n = len(rows.values)
    if case.of is None:
        if rows.seeds is None:
            return Sample(rows.values, np.arange(n), case.bounds)
        median = not np.allclose(rows.seeds.mean(0), rows.values)
        return Sample(rows.values, np.arange(n), case.bounds, None, rows.seeds.mean(1), median)
    assert case.one is not None
    assert rows.columns is not None
    assert rows.seeds is not None
    columns, of = rows.columns, case.of
    whole = {name: x.sum() for name, x in columns.items()}
    each = np.array([case.one(whole, seed) for seed in range(len(rows.seeds))])

    def statistic(drawn: np.ndarray) -> float:
        return float(of({name: x[drawn].sum() for name, x in columns.items()}))

    median = not np.isclose(float(of(whole)), each.mean())
    return Sample(rows.values, np.arange(n), None, statistic, each, bool(median))


@cache
def weights(n: int) -> Float[np.ndarray, "resample row"]:
    """How often each row is in each resample: those that `heed.intervals` draws."""
    return np.concatenate(list(_weights(n, RESAMPLES, 0)))


def strays_of_sums(case: Case, rows: Rows) -> tuple[float, Float[np.ndarray, "resample"]]:
    """`heed.intervals.studentised.strays`, quickly, for a statistic of sums of columns."""
    assert case.of is not None
    assert rows.columns is not None
    n, of, columns = len(rows.values), case.of, rows.columns
    point = float(of({name: x.sum() for name, x in columns.items()}))
    without = of({name: x.sum() - x for name, x in columns.items()})
    pulls = (n - 1) * (point - without)
    pulls -= pulls.mean()
    drawn = weights(n)
    names = list(columns)
    sums = drawn @ np.stack([*columns.values(), pulls, pulls**2], axis=1)
    off = of(dict(zip(names, sums.T, strict=False))) - point
    errors = np.sqrt(np.maximum(sums[:, -1] - sums[:, -2] ** 2 / n, 0)) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.sqrt((pulls**2).sum()) / n), np.where(off == 0, 0.0, off / errors)


def intervals_of(case: Case, drawn: Sequence[Rows]) -> Iterator[Interval]:
    """The intervals of some samples with equally many rows; they share their resamples."""
    samples = [sample_of(case, rows) for rows in drawn]
    if case.of is not None:
        for sample, rows in zip(samples, drawn, strict=True):
            yield interval(sample, *strays_of_sums(case, rows))
        return
    # bets need no resamples
    resampled = [i for i, sample in enumerate(samples) if not bets(sample)]
    none = (0.0, np.empty(0))
    parts = dict.fromkeys(range(len(samples)), none)
    if resampled:
        errors, far = strays([samples[i] for i in resampled], len(samples[0].values))
        parts |= dict(zip(resampled, zip(errors.tolist(), far, strict=True), strict=True))
    yield from (interval(sample, *parts[i]) for i, sample in enumerate(samples))


def simulate(
    case: Case, n: int, repetitions: int = REPETITIONS, seed: int = 0, rival: Rival | None = None
) -> Found:
    """Draw many samples of n rows, and count how often their intervals hold the truth."""
    rng = generator(seed, case.like, case.about, n)
    held, kinds = np.zeros(len(LEVELS)), set()
    holds = _holds if rival is None else rival
    for start in range(0, repetitions, _CHUNK):
        drawn = [case.draw(rng, n) for _ in range(min(_CHUNK, repetitions - start))]
        for rows, own in zip(drawn, intervals_of(case, drawn), strict=True):
            kinds.add(own.kind)
            for i, level in enumerate(LEVELS):
                held[i] += holds(case, rows, own, level)
    return Found(case, n, "/".join(sorted(kinds)), tuple((held / repetitions).tolist()))


def _holds(case: Case, rows: Rows, own: Interval, level: float) -> bool:
    """Whether the interval holds the truth."""
    if own.kind != "crossed":
        return own.p(case.truth) > 1 - level  # which is quicker to have than the ends
    low, high = own.ends(level)
    return low <= case.truth <= high


# What else could be done for few training seeds, and why it is not

Rival = Callable[[Case, Rows, Interval, float], bool]


def satterthwaite(case: Case, rows: Rows, own: Interval, level: float) -> bool:
    """One t quantile for the two-way variance, at Satterthwaite's degrees of freedom."""
    table = rows.seeds
    assert table is not None
    seeds, n = table.shape
    mean = table.mean()
    of_seeds = n * table.mean(1).var(ddof=1)
    of_documents = seeds * table.mean(0).var(ddof=1)
    rest = table - table.mean(0) - table.mean(1)[:, None] + mean
    both = (rest**2).sum() / ((seeds - 1) * (n - 1))
    squares = max(of_seeds + of_documents - both, 1e-30)
    freedom = squares**2 / (
        of_seeds**2 / (seeds - 1)
        + of_documents**2 / (n - 1)
        + both**2 / ((seeds - 1) * (n - 1))
        + 1e-60
    )
    reach = student.ppf((1 + level) / 2, max(1.0, freedom)) * math.sqrt(squares / (seeds * n))
    return bool(abs(own.point - case.truth) <= reach)


def resampled_seeds(case: Case, rows: Rows, own: Interval, level: float) -> bool:
    """Percentiles over resamples of seeds and documents: three seeds have ten different draws."""
    table = rows.seeds
    assert table is not None
    seeds, n = table.shape
    rng = np.random.default_rng(0)
    chosen = rng.multinomial(seeds, np.full(seeds, 1 / seeds), 2000)
    means = (chosen @ table * weights(n)[:2000]).sum(1) / (seeds * n)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return bool(low <= case.truth <= high)


RIVALS: tuple[tuple[str, Rival], ...] = (
    ("one quantile (Satterthwaite)", satterthwaite),
    ("seeds resampled", resampled_seeds),
)


# Families


def family(rng: Rng, n: int) -> list[Evidence]:
    """Rows of twenty claims on the same documents, all true exactly at their thresholds.

    Half of them have continuous values, the others are lumpy; all depend on the document.
    """
    document = rng.normal(size=n)
    evidence = []
    for k in range(FAMILY):
        mixed = 0.7 * document + math.sqrt(1 - 0.7**2) * rng.normal(size=n)
        share = norm.cdf(mixed)  # uniform
        rows = share**4 if k % 2 else (share > 0.9) * (share - 0.9) * 10  # means 0.2 and 0.05
        claim = Claim(f"c{k}", "used", "It is", "mean", 0.2 if k % 2 else 0.05, bounds=(0.0, 1.0))
        own = [{"document": i, "value": float(v)} for i, v in enumerate(rows)]
        evidence.append(Evidence(claim, own))
    return evidence


def false_decisions(n: int, repetitions: int, seed: int = 0) -> float:
    """How often a family has any verdict but undecided, all of which are wrong."""
    rng = generator(seed, "family", n)
    wrong = 0
    for _ in tqdm(range(repetitions), desc=f"family, n = {n}", leave=False, delay=1):
        wrong += any(v.outcome != "undecided" for v in judge(family(rng, n)))
    return wrong / repetitions


# Tables


def simulated(repetitions: int = REPETITIONS, seed: int = 0) -> Iterator[Found]:
    """All cases at all sizes."""
    for case in tqdm(CASES, desc="coverage", leave=False, delay=1):
        for n in SIZES:
            yield simulate(case, n, repetitions, seed)


def short(found: Found) -> list[str]:
    """Where intervals cover less than they promise, less one point."""
    return [
        f"{found.case.like}, {found.case.about}, n = {found.n}: {covered:.1%} of {level:.2%}"
        for covered, level in zip(found.covered, LEVELS, strict=True)
        if covered < level - 0.01
    ]


def table(rows: Sequence[tuple[str, str, Sequence[Found]]]) -> str:
    """Coverage at all levels and sizes, in Markdown."""
    sizes = " | ".join(f"{100 * level:.4g} %, n = {n}" for level in LEVELS for n in SIZES)
    lines = [f"| claim | rows | {sizes} |", "|---" * (2 + len(LEVELS) * len(SIZES)) + "|"]
    for like, about, found in rows:
        shares = [f"{f.covered[i]:.1%}" for i in range(len(LEVELS)) for f in found]
        lines.append(f"| `{like}` | {about} | {' | '.join(shares)} |")
    return "\n".join(lines)


def run() -> None:
    found = list(simulated())
    by_case = [(c.like, c.about, [f for f in found if f.case == c]) for c in CASES]
    print(f"\nHow often the interval contains the truth ({REPETITIONS:,} repetitions)\n")
    print(table(by_case))
    print("\nShort of the promise by more than a point:", [x for f in found for x in short(f)])
    seeded = [c for c in CASES if c.of is None and c.about in RIVALLED]
    rivals = [
        (c.like, f"{c.about}: {name}", [simulate(c, n, rival=rival) for n in SIZES])
        for c in seeded
        for name, rival in RIVALS
    ]
    print("\nThe same with other intervals over training seeds\n")
    print(table(rivals))
    print("\nFamilies of 20 claims with any false decision:")
    for n in (60, 120):
        print(f"n = {n}: {false_decisions(n, 400):.1%} (promised: at most 5 %)")
