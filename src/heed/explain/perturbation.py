"""Explanations that remove words and watch the output.

Each method plans which words to keep (`plan`, rows of True and False) and turns the outputs into scores (`fit`). The
evaluations in between go through the model's `score`, many documents at once.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from heed.errors import InputError, UnknownName
from heed.explain.explanation import Explainer, Job, Measured, check_at_least, check_head, check_output
from heed.models.classifier import REMOVALS, Classifier, Output, Removal, output_of

_ENTRIES = 1 << 21  # numbers held at once while fitting: bounds memory however many samples are asked for


@dataclass(frozen=True)
class Perturbation(Explainer):
    """What the outputs say when words are removed.

    removal   "replace" by the model's filler, "delete" or "hide"; None takes the model's default
    output    what is explained: logit, log-odds or probability of the label
    """

    removal: Removal | None = None
    output: Output = "logit"

    def __post_init__(self) -> None:
        check_output(self.output)
        check_removal(self.removal)

    @abstractmethod
    def plan(self, job: Job) -> Bool[np.ndarray, "sample unit"]:
        """The choices of words to evaluate; the whole document first saves an evaluation."""

    @abstractmethod
    def fit(self, job: Job, keep: Bool[np.ndarray, "sample unit"], outputs: Float[np.ndarray, "sample"]) -> Measured:
        """Scores from the outputs of these choices."""

    def evaluates_whole(self) -> bool:
        return True

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        found: list[Measured] = []
        waiting: list[tuple[Job, Bool[np.ndarray, "sample unit"]]] = []
        size = 0
        for job in jobs:
            keep = self.plan(job)
            waiting.append((job, keep))
            size += keep.size
            if size > 8 * _ENTRIES:
                found += self._evaluate(model, waiting)
                waiting, size = [], 0
        return found + self._evaluate(model, waiting)

    def _evaluate(
        self, model: Classifier, planned: Sequence[tuple[Job, Bool[np.ndarray, "sample unit"]]]
    ) -> list[Measured]:
        if not planned:
            return []
        jobs = [job for job, _ in planned]
        asked = [k if k[0].all() else np.vstack([np.ones_like(k[:1]), k]) for _, k in planned]
        logits = model.score([job.tokens for job in jobs], asked, [job.groups for job in jobs], self.removal)
        found = []
        for (job, keep), rows in zip(planned, logits, strict=True):
            label = int(rows[0].argmax()) if job.label < 0 else job.label
            outputs = output_of(rows[-len(keep) :], label, self.output, model.exclusive)
            found.append(replace(self.fit(job, keep, outputs), logits=rows[0]))
        return found


@dataclass(frozen=True)
class Occlusion(Perturbation):
    """The output minus the output without the word, each occurrence alone."""

    name: ClassVar[str] = "occlusion"
    summary: ClassVar[str] = "change of the output when one word is removed"
    paper: ClassVar[str] = "zeiler2014"

    def evaluations(self, units: int) -> int:
        return units + 1

    def plan(self, job: Job) -> Bool[np.ndarray, "sample unit"]:
        d = len(job.units)
        return np.vstack([np.ones((1, d), dtype=bool), ~np.eye(d, dtype=bool)])

    def fit(self, job: Job, keep: Bool[np.ndarray, "sample unit"], outputs: Float[np.ndarray, "sample"]) -> Measured:
        return Measured(outputs[0] - outputs[1:], forward_passes=len(keep))


@dataclass(frozen=True)
class Repeating(Perturbation):
    """Methods for which repeated words are one unit (`repeats="together"`) unless asked otherwise (`"apart"`)."""

    repeats: Literal["together", "apart"] = "together"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_repeats(self.repeats)

    def together(self) -> bool:
        return self.repeats == "together"


@dataclass(frozen=True)
class Lime(Repeating):
    """Ridge regression of the output on which words are present, near the document.

    Sample 0 is the document; every other one removes s words, s uniform on 1..d, the words uniform given s. Its
    weight is exp(-δ²/2ν²) with δ = 1 - √(1 - s/d) and ν the bandwidth. These are the samples, the kernel and the
    regression of the `lime` package (with feature_selection="none"). `words` keeps the words with the largest scores
    and fits them anew; all others score 0. `head` explains what a single attention head contributes.
    """

    name: ClassVar[str] = "lime"
    summary: ClassVar[str] = "local linear fit to documents with random words removed"
    paper: ClassVar[str] = "ribeiro2016"

    samples: int = 1000
    bandwidth: float = 0.25
    ridge: float = 1.0
    sampling: Literal["lime"] = "lime"
    words: int | None = None
    head: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, samples=2, bandwidth=1e-3, ridge=0)
        if self.words is not None and (isinstance(self.words, bool) or int(self.words) != self.words or self.words < 1):
            raise InputError(f"The setting words of lime must be at least 1 and whole, got {self.words}.")
        check_samples(self, self.samples)
        check_head(self, self.head, self.output)
        if math.isinf(self.ridge):
            raise InputError("The setting ridge of lime must be finite.")
        if self.sampling != "lime":
            raise UnknownName("sampling", str(self.sampling), ("lime",))

    def evaluations(self, units: int) -> int:
        return self.samples

    def evaluates_whole(self) -> bool:
        return self.head is None

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return super().measure(model if self.head is None else model.head(self.head), jobs)

    def plan(self, job: Job) -> Bool[np.ndarray, "sample unit"]:
        d = len(job.units)
        keep = ~uniform_subsets(job.rng, self.samples, d)
        keep[0] = True
        return keep

    def fit(self, job: Job, keep: Bool[np.ndarray, "sample unit"], outputs: Float[np.ndarray, "sample"]) -> Measured:
        share = 1 - keep.sum(1) / keep.shape[1]
        weights = np.exp(-((1 - np.sqrt(1 - share)) ** 2) / (2 * self.bandwidth**2))
        fitted = ridge(keep, outputs, weights, self.ridge)
        scores, errors = fitted.coefficients, fitted.standard_errors
        if self.words is not None and self.words < len(scores):
            chosen = np.sort(np.argsort(-np.abs(scores), kind="stable")[: self.words])
            fitted = ridge(keep[:, chosen], outputs, weights, self.ridge)
            scores, errors = np.zeros(len(scores)), np.zeros(len(errors))
            scores[chosen], errors[chosen] = fitted.coefficients, fitted.standard_errors
        facts = {"intercept": fitted.intercept, "r2": fitted.r2}
        return Measured(scores, None, errors, len(keep), facts, self._notes(len(job.units)))

    def _notes(self, d: int) -> tuple[str, ...]:
        if d == 1 and self.ridge > 0:
            return ("With a single word the ridge pulls LIME's score towards 0: occlusion says more.",)
        if self.samples < 2 * d:
            return (f"{self.samples:,} samples are few for {d:,} words: the standard errors are too small.",)
        return ()


@dataclass(frozen=True)
class Shapley(Repeating):
    """Shapley values: a word's mean contribution over all orders in which words could come in.

    estimator="kernel" solves the weighted least squares whose solution they are, over pairs of complementary subsets;
    "permutation" averages over random orders and their reverses. Where all subsets fit into `samples` the kernel is
    exact. Both add up to the output of the document minus that of the document without words.
    """

    name: ClassVar[str] = "shapley"
    summary: ClassVar[str] = "mean contribution of a word over all orders of adding words"
    paper: ClassVar[str] = "lundberg2017"

    samples: int = 2000
    estimator: Literal["kernel", "permutation"] = "kernel"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, samples=2)
        check_samples(self, self.samples)
        if self.estimator not in ("kernel", "permutation"):
            raise UnknownName("estimator", str(self.estimator), ("kernel", "permutation"))

    def evaluations(self, units: int) -> int:
        least = 4 * units if self.estimator == "kernel" else 10 * units
        return 2 + min(max(self.samples, least), 2**units if units < 30 else self.samples + least)

    def plan(self, job: Job) -> Bool[np.ndarray, "sample unit"]:
        """The document, the document without words, and then the estimator's choices."""
        d = len(job.units)
        ends = np.array([[True] * d, [False] * d])
        if d == 1:
            return ends
        rows = self._orders(job.rng, d) if self.estimator == "permutation" else self._subsets(job.rng, d)
        return np.vstack([ends, rows])

    def fit(self, job: Job, keep: Bool[np.ndarray, "sample unit"], outputs: Float[np.ndarray, "sample"]) -> Measured:
        d, change = len(job.units), outputs[0] - outputs[1]
        if d == 1:
            return Measured(np.array([change]), None, np.zeros(1), 2)
        solve = self._fit_orders if self.estimator == "permutation" else self._fit_subsets
        scores, errors = solve(keep[2:], outputs[2:], outputs[0], outputs[1])
        more = len(keep) > self.samples + 2
        note = f"{len(job.units):,} words need more than {self.samples:,} samples: {len(keep):,} were taken."
        return Measured(scores, None, errors, len(keep), {"change": float(change)}, (note,) if more else ())

    def _exact(self, d: int) -> bool:
        return d <= 30 and 2**d - 2 <= self.samples

    def _subsets(self, rng: np.random.Generator, d: int) -> Bool[np.ndarray, "sample unit"]:
        """All subsets if there are few enough; else sizes by the Shapley kernel, each subset beside its complement."""
        if self._exact(d):
            return (np.arange(1, 2**d - 1)[:, None] >> np.arange(d) & 1).astype(bool)
        sizes = np.arange(1, d)
        kernel = 1 / (sizes * (d - sizes))
        pairs = max(self.samples // 2, 2 * d)  # with fewer the regression fits its own noise, and hides it
        drawn = rng.choice(sizes, pairs, p=kernel / kernel.sum())
        half = random_subsets(rng, drawn, d)
        return np.stack([half, ~half], 1).reshape(-1, d)

    def _fit_subsets(
        self, keep: Bool[np.ndarray, "sample unit"], y: Float[np.ndarray, "sample"], full: float, empty: float
    ) -> tuple[Float[np.ndarray, "unit"], Float[np.ndarray, "unit"]]:
        """Least squares of y - f(empty) on keep under Σφ = f(full) - f(empty), by a Lagrange multiplier."""
        d = keep.shape[1]
        exact, y = self._exact(d), y - empty
        size = keep.sum(1)
        weights = (
            np.array([1 / (math.comb(d, s) * s * (d - s)) for s in range(1, d)])[size - 1] if exact else np.ones(len(y))
        )
        gram, moment = np.zeros((d, d)), np.zeros(d)
        for rows in _slices(keep):
            z = keep[rows].astype(float)
            zw = z * weights[rows, None]
            gram += zw.T @ z
            moment += zw.T @ y[rows]
        if not exact:
            gram += np.eye(d) * 1e-10 * np.trace(gram) / d
        inverse = np.linalg.inv(gram)
        ones = inverse.sum(1)
        scores = inverse @ moment
        scores += ones * (full - empty - scores.sum()) / ones.sum()
        if exact:
            return scores, np.zeros(d)
        project = inverse - np.outer(ones, ones) / ones.sum()
        variance = np.zeros(d)
        for rows in _slices(keep, even=True):
            z = keep[rows].astype(float)
            influence = (z * (y[rows] - z @ scores)[:, None]).reshape(-1, 2, d).sum(1)  # a pair is one draw
            variance += np.square(influence @ project).sum(0)
        pairs = len(keep) / 2
        return scores, np.sqrt(variance * pairs / max(pairs - d, 1))

    def _orders(self, rng: np.random.Generator, d: int) -> Bool[np.ndarray, "sample unit"]:
        """For each random order the first 1 … d-1 words, and the same for the reversed order."""
        pairs = max(5, self.samples // (2 * (d - 1)))  # with fewer the standard errors mean little
        rank = rng.permuted(np.tile(np.arange(d), (pairs, 1)), axis=1)
        both = np.stack([rank, d - 1 - rank], 1)  # [pair, direction, unit]
        return (both[:, :, None, :] < np.arange(1, d)[:, None]).reshape(-1, d)

    def _fit_orders(
        self, keep: Bool[np.ndarray, "sample unit"], y: Float[np.ndarray, "sample"], full: float, empty: float
    ) -> tuple[Float[np.ndarray, "unit"], Float[np.ndarray, "unit"]]:
        d = keep.shape[1]
        steps = y.reshape(-1, d - 1)
        steps = np.hstack([np.full((len(steps), 1), empty), steps, np.full((len(steps), 1), full)])
        came_in = (
            d - 1 - keep.reshape(-1, d - 1, d).sum(1)
        )  # a word that is in k of the d-1 prefixes came in at place d-1-k
        gains = np.take_along_axis(np.diff(steps, axis=1), came_in, 1)
        by_pair = gains.reshape(-1, 2, d).mean(1)
        return by_pair.mean(0), by_pair.std(0, ddof=1) / math.sqrt(len(by_pair))


def check_removal(removal: Removal | None) -> None:
    if removal not in (None, *REMOVALS):
        raise UnknownName("way to remove words", str(removal), REMOVALS)


def check_repeats(repeats: str) -> None:
    if repeats not in ("together", "apart"):
        raise UnknownName("way to treat repeats", str(repeats), ("together", "apart"))


def check_samples(explainer: Explainer, samples: int, most: int = 10_000_000) -> None:
    if samples > most:
        raise InputError(f"The setting samples of {explainer.name} must be at most {most:,}, got {samples:,}.")


@dataclass(frozen=True, eq=False)
class Ridge:
    """A fitted weighted ridge regression."""

    coefficients: Float[np.ndarray, "unit"]
    intercept: float
    standard_errors: Float[np.ndarray, "unit"]
    r2: float


def ridge(
    keep: Bool[np.ndarray, "sample unit"],
    y: Float[np.ndarray, "sample"],
    weights: Float[np.ndarray, "sample"],
    penalty: float,
) -> Ridge:
    """Weighted ridge regression of y on keep with a free intercept, with standard errors.

    The products of columns are summed in single precision, which is fast; the solution is then corrected by its
    gradient in double precision until it is exact.
    """
    d, total = keep.shape[1], weights.sum()
    y_mean = weights @ y / total
    if np.ptp(y) <= 1e-12 * max(1.0, float(np.abs(y).max())):  # rounding errors are not to be explained
        return Ridge(np.zeros(d), float(y_mean), np.zeros(d), 1.0)
    y = y - y_mean
    gram, moment, mean = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for rows in _slices(keep):
        z, w = keep[rows].astype(np.float32), weights[rows].astype(np.float32)
        gram += (z * w[:, None]).T @ z
        moment += (w * y[rows].astype(np.float32)) @ z
        mean += w @ z
    mean /= total
    # a word that every weighted sample keeps (or none) leaves nothing to fit: a trace of a ridge leaves it at zero
    trace = max(penalty, 1e-7 * np.trace(gram) / d)
    inverse = np.linalg.inv(gram - total * np.outer(mean, mean) + np.eye(d) * trace)
    slope, rest = inverse @ moment, y
    for _ in range(5):
        gradient, mean, rest = _gradient(keep, y, weights, slope)
        step = inverse @ (gradient - penalty * slope)
        slope = slope + step
        if np.abs(step).max() <= 1e-5 * np.abs(slope).max():  # what is left is smaller by the same factor again
            break
    errors = _standard_errors(keep, weights, mean, rest, inverse)
    spread = float(weights @ y**2)
    r2 = 1 - float(weights @ rest**2) / spread if spread > 0 else 1.0
    return Ridge(slope, float(y_mean - mean @ slope), errors, r2)


def _gradient(
    keep: Bool[np.ndarray, "sample unit"],
    y: Float[np.ndarray, "sample"],
    weights: Float[np.ndarray, "sample"],
    slope: Float[np.ndarray, "unit"],
) -> tuple[Float[np.ndarray, "unit"], Float[np.ndarray, "unit"], Float[np.ndarray, "sample"]]:
    """Σ w r (z - z̄), z̄ and the residuals r of the fit with the best intercept for this slope."""
    product, mean, fitted = np.zeros(len(slope)), np.zeros(len(slope)), np.empty(len(y))
    for rows in _slices(keep):
        z = keep[rows].astype(float)
        fitted[rows] = z @ slope
        both = np.stack([weights[rows] * (y[rows] - fitted[rows]), weights[rows]]) @ z
        product += both[0]
        mean += both[1]
    total, rest = weights.sum(), y - fitted
    level = weights @ rest
    return product - mean * level / total, mean / total, rest - level / total


def _standard_errors(
    keep: Bool[np.ndarray, "sample unit"],
    weights: Float[np.ndarray, "sample"],
    mean: Float[np.ndarray, "unit"],
    rest: Float[np.ndarray, "sample"],
    inverse: Float[np.ndarray, "unit unit"],
) -> Float[np.ndarray, "unit"]:
    """How far other samples would have moved the coefficients; unequal variances are allowed for (HC2).

    Row 0 is the document itself, the same in every run, and adds nothing. Samples are independent, so that some of them
    (at least 10 per unit, and 500) stand for all.
    """
    used = slice(1, max(500, 10 * keep.shape[1]) + 1)
    z = keep[used].astype(np.float32) - mean.astype(np.float32)
    influence = z @ inverse.astype(np.float32)
    leverage = np.clip(weights[used] * np.einsum("ij,ij->i", influence, z), 0, 0.99)
    variance = ((weights[used] * rest[used]) ** 2 / (1 - leverage)) @ np.square(influence)
    return np.sqrt(variance * (len(keep) - 1) / len(z))


def uniform_subsets(rng: np.random.Generator, n: int, d: int) -> Bool[np.ndarray, "sample unit"]:
    """Random subsets of d things: the size uniform on 1 … d, the subset uniform given its size.

    Taking each thing with the same probability p, p uniform on [0, 1], makes the size uniform on 0 … d; empty subsets
    are drawn again. p is a multiple of 2⁻¹⁶, with half the weight at 0 and 1, which is exact to 1e-6.
    """
    drawn = np.empty((n, d), dtype=bool)
    for rows in _slices(drawn):
        drawn[rows] = _bernoulli_subsets(rng, len(drawn[rows]), d)
    while len(empty := np.flatnonzero(~drawn.any(1))):
        drawn[empty] = _bernoulli_subsets(rng, len(empty), d)
    return drawn


def _bernoulli_subsets(rng: np.random.Generator, n: int, d: int) -> Bool[np.ndarray, "sample unit"]:
    share = rng.integers(0, 1 << 16, n) + rng.integers(0, 2, n)  # of 2¹⁶, both ends included
    words = rng.integers(0, 1 << 64, -(-n * d // 4), dtype=np.uint64)
    keys = words.view(np.uint16)[: n * d].reshape(n, d)
    # key < share, where the share may be 2¹⁶: key <= share - 1, and nothing where the share is 0
    chosen = keys <= (np.maximum(share, 1) - 1).astype(np.uint16)[:, None]
    chosen[share == 0] = False
    return chosen


def random_subsets(
    rng: np.random.Generator, sizes: Int[np.ndarray, "sample"], d: int
) -> Bool[np.ndarray, "sample unit"]:
    """One uniformly random subset of d things for each size: those whose random keys are the smallest."""
    drawn = np.empty((len(sizes), d), dtype=bool)
    for rows in _slices(drawn):
        keys = rng.integers(0, 1 << 32, (len(sizes[rows]), d), dtype=np.uint32)
        ordered = np.sort(keys, axis=1)
        last = ordered[np.arange(len(keys)), np.maximum(sizes[rows] - 1, 0)]
        drawn[rows] = (keys <= last[:, None]) & (sizes[rows] > 0)[:, None]
    return drawn


def _slices(rows: Bool[np.ndarray, "sample unit"], even: bool = False) -> Iterator[slice]:
    """Stretches of rows that hold a bounded number of entries."""
    step = max(2, _ENTRIES // max(1, rows.shape[1]))
    step -= step % 2 if even else 0
    for start in range(0, len(rows), step):
        yield slice(start, start + step)
