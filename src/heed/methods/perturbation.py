"""Methods that remove words and watch the output.

Each method plans which words to keep (`plan`, rows of True and False) and turns the outputs into
scores (`fit`). In between, the model's `score` evaluates many documents at once.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

from heed.algebra.limits import kernel
from heed.algebra.regression import ENTRIES, Controlled, Ridge, Words, enlarged, ridge, slices
from heed.methods.method import HeadMethod, Job, Keep, Measured, OutputMethod, Scores
from heed.models.classifier import Classifier, Removal, distinct_rows, output_of
from heed.settings import AtLeast, AtMost, Below

# How many texts a sampling method may evaluate.
Samples = Annotated[int, AtLeast(2), AtMost(10_000_000)]
Outputs = Float[np.ndarray, "sample"]


@dataclass(frozen=True)
class Perturbation(OutputMethod):
    """Scores from outputs for texts without some of their words.

    removal   "replace" by the model's filler, "delete" or "hide"; None takes the model's default
    """

    of_changes: ClassVar[bool] = True

    removal: Annotated[Removal, "way to remove words"] | None = None

    @abstractmethod
    def plan(self, job: Job) -> Keep:
        """The choices of words to evaluate; the whole document must come first, or is added."""

    @abstractmethod
    def fit(self, job: Job, keep: Keep, outputs: Outputs) -> Measured:
        """Scores from the outputs of these choices."""

    def evaluates_whole(self) -> bool:
        return True

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        results: list[Measured] = []
        waiting: list[tuple[Job, Keep]] = []
        size = 0
        for job in jobs:
            keep = self.plan(job)
            waiting.append((job, keep))
            size += keep.size
            if size > 8 * ENTRIES:
                results += self._evaluate(model, waiting)
                waiting, size = [], 0
        return results + self._evaluate(model, waiting)

    def _evaluate(self, model: Classifier, planned: Sequence[tuple[Job, Keep]]) -> list[Measured]:
        if not planned:
            return []
        jobs = [job for job, _ in planned]
        # the output for the whole document is needed, too: it tells label and probabilities
        texts = [k if k[0].all() else np.vstack([np.ones_like(k[:1]), k]) for _, k in planned]
        # texts that were drawn twice are evaluated, and counted, once
        unique = [distinct_rows(k) for k in texts]
        tokens, groups = [job.tokens for job in jobs], [job.groups for job in jobs]
        logits = model.score(tokens, [distinct for distinct, _ in unique], groups, self.removal)
        results = []
        for (job, keep), evaluated, (_, index) in zip(planned, logits, unique, strict=True):
            rows = evaluated[index]
            label = int(rows[0].argmax()) if job.label < 0 else job.label
            outputs = output_of(rows[-len(keep) :], label, self.explained(model), model.exclusive)
            measured = self.fit(job, keep, outputs)
            results.append(replace(measured, logits=rows[0], forward_passes=len(evaluated)))
        return results


@dataclass(frozen=True)
class Occlusion(Perturbation):
    """The output minus the output without the word; each occurrence is removed alone."""

    name: ClassVar[str] = "occlusion"
    summary: ClassVar[str] = "change of the output when one word is removed"
    paper: ClassVar[str] = "zeiler2014"

    def evaluations(self, units: int) -> int:
        return units + 1

    def plan(self, job: Job) -> Keep:
        d = len(job.units)
        return np.vstack([np.ones((1, d), dtype=bool), ~np.eye(d, dtype=bool)])

    def fit(self, job: Job, keep: Keep, outputs: Outputs) -> Measured:
        return Measured(outputs[0] - outputs[1:])


@dataclass(frozen=True)
class Repeating(Perturbation):
    """Methods that give all occurrences of a word one score.

    repeats   "together": one unit per distinct word; "apart": one unit per occurrence
    """

    repeats: Annotated[Literal["together", "apart"], "way to treat repeats"] = "together"

    def merges_repeats(self) -> bool:
        return self.repeats == "together"


@dataclass(frozen=True)
class Lime(HeadMethod, Repeating):
    """Ridge regression of the output on which words are present, near the document.

    samples     how many texts to evaluate
    bandwidth   ν in the weight of a text, exp(-δ²/2ν²) with δ = 1 - √(1 - s/d) for s of d words
                removed
    ridge       the penalty
    sampling    "lime": independent texts; "pairs": each with its complement; "auto": either
    words       keep only this many words with the largest scores, and fit them again; others get 0

    To draw a text, s is drawn uniformly from 1 … d, then s words. "lime" draws independent texts,
    and is the algorithm of the `lime` package with feature_selection="none". "pairs" evaluates each
    subset of words and its complement, and adds control variates to the regression: the same limit
    with less noise. If all subsets fit into `samples`, each is taken once: the result is the limit
    of many samples, where the penalty vanishes, and depends neither on `samples` nor on `ridge`.
    "auto" is "pairs" if there are at least 5 samples per word.
    """

    name: ClassVar[str] = "lime"
    summary: ClassVar[str] = "linear fit to outputs for the text with random words removed"
    paper: ClassVar[str] = "ribeiro2016"

    samples: Samples = 1000
    bandwidth: Annotated[float, AtLeast(0.01)] = 0.25
    ridge: Annotated[float, AtLeast(0), Below(math.inf)] = 1.0
    sampling: Literal["auto", "pairs", "lime"] = "auto"
    words: Annotated[int, AtLeast(1)] | None = None

    def evaluations(self, units: int) -> int:
        return min(self.samples, 2**units)  # no more texts differ

    def evaluates_whole(self) -> bool:
        return self.head is None

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return super().measure(model if self.head is None else model.head(self.head), jobs)

    def plan(self, job: Job) -> Keep:
        d = len(job.units)
        if self._scheme(d) == "every":
            return ~all_subsets(d)  # the whole document first
        keep = np.ones((self.samples, d), dtype=bool)
        if self._scheme(d) == "lime":
            keep[1:] = ~uniform_subsets(job.rng, self.samples - 1, d)
            return keep
        keep[1] = False
        pairs = (self.samples - 2) // 2
        half = uniform_subsets(job.rng, pairs, d, proper=True)
        keep[2 : 2 + 2 * pairs : 2], keep[3 : 2 + 2 * pairs : 2] = half, ~half
        return keep[: 2 + 2 * pairs]

    def _scheme(self, d: int) -> Literal["every", "pairs", "lime"]:
        """Which texts are taken: every subset of words, random pairs, or independent ones."""
        if self.sampling != "lime" and 1 < d < 30 and 2**d <= self.samples:
            return "every"
        if self.sampling == "lime" or (self.sampling == "auto" and self.samples < 5 * d):
            return "lime"
        return "pairs" if d > 2 and self.samples > 3 else "lime"

    def fit(self, job: Job, keep: Keep, outputs: Outputs) -> Measured:
        d = keep.shape[1]
        words = np.arange(d)
        fitted = self._fit(keep, outputs, words)
        if self.words is not None and self.words < d:
            order = np.argsort(-np.abs(fitted.coefficients), kind="stable")
            words = np.sort(order[: self.words])
            fitted = self._fit(keep, outputs, words)
        scores, errors = np.zeros((2, d))
        scores[words], errors[words] = fitted.coefficients, fitted.standard_errors
        facts = {"intercept": fitted.intercept, "r2": fitted.r2}
        return Measured(scores, None, errors, facts=facts, notes=self._notes(job))

    def _fit(self, keep: Keep, y: Outputs, words: Int[np.ndarray, "word"]) -> Ridge:
        d = keep.shape[1]
        pi, removed = kernel(d, self.bandwidth), d - keep.sum(1)
        if self._scheme(d) == "every":
            # every subset once: weights make up for how many subsets of a size there are
            subsets = np.array([math.comb(d, s) for s in range(d + 1)])
            weights = (pi / subsets)[removed[1:]]
            fitted = ridge(Words(keep[1:, words]), y[1:], weights, 0.0)
            return replace(fitted, standard_errors=np.zeros(len(words)))
        if self._scheme(d) == "lime":
            return ridge(Words(keep[:, words]), y, pi[removed], self.ridge)
        # The document has no weight in the limit, and the empty one stands for its share of the
        # sizes 1 … d. The weights sum to that of as many independent samples, so that the ridge
        # means the same.
        keep, y, removed = keep[1:], y[1:], removed[1:]
        weights = pi[removed] * self.samples * (d - 1) / (d * (len(keep) - 1))
        weights[0] = self.samples * pi[d] / d
        phi, psi = controls(d, self.bandwidth)
        share = 1 - np.arange(1, d + 1) / d
        # the mean square of a psi column, per sample
        square = float(pi[1:] / d @ (psi[1:] ** 2 * share * (1 - share)))
        # for the columns of words, of phi and of psi
        penalty = np.repeat([self.ridge, 0.0, d * square], [len(words), phi.shape[1], d - 1])
        design = Controlled(keep, words, removed, phi, psi)
        return ridge(design, y, weights, penalty, reported=len(words), pairs=True)

    def _notes(self, job: Job) -> tuple[str, ...]:
        d, unit = len(job.units), job.unit
        if d == 1 and self.ridge > 0:
            return (f"With a single {unit} the ridge pulls LIME's score towards 0: use occlusion.",)
        if self._scheme(d) == "every":
            return (f"All {2**d:,} subsets of {unit}s were evaluated: nothing was sampled.",)
        few = f"{self.samples:,} samples are few for {d:,} {unit}s"
        return (f"{few}: the standard errors are too small.",) if self.samples < 2 * d else ()


@dataclass(frozen=True)
class Shapley(Repeating):
    """Shapley values: a word's mean contribution over all orders of adding words.

    samples     how many texts to evaluate; few samples for many words are raised
    estimator   "kernel" solves the weighted least squares problem whose solution they are, over
                pairs of complementary subsets; "permutation" averages over random orders and their
                reverses

    If all subsets fit into `samples`, the kernel is exact. Both add up to the output for the
    document minus the output for the document without words.
    """

    name: ClassVar[str] = "shapley"
    summary: ClassVar[str] = "mean contribution of a word over all orders of adding words"
    paper: ClassVar[str] = "lundberg2017"

    samples: Samples = 2000
    estimator: Literal["kernel", "permutation"] = "kernel"

    def evaluations(self, units: int) -> int:
        least = 4 * units if self.estimator == "kernel" else 20 * units
        return min(2 + max(self.samples, least), 2**units)  # no more texts differ

    def plan(self, job: Job) -> Keep:
        """The document, the document without words, and then the estimator's choices."""
        d = len(job.units)
        ends = np.array([[True] * d, [False] * d])
        if d == 1:
            return ends
        draw = self._orders if self.estimator == "permutation" else self._subsets
        return np.vstack([ends, draw(job.rng, d)])

    def fit(self, job: Job, keep: Keep, outputs: Outputs) -> Measured:
        d, change = len(job.units), outputs[0] - outputs[1]
        if d == 1:
            return Measured(np.array([change]), None, np.zeros(1))
        solve = self._fit_orders if self.estimator == "permutation" else self._fit_subsets
        scores, errors = solve(keep, outputs)
        many = f"{d:,} {job.unit}s need more than {self.samples:,} samples"
        note = f"{many}: {len(keep):,} were taken."
        notes = (note,) if len(keep) > self.samples + 2 else ()
        return Measured(scores, None, errors, facts={"change": float(change)}, notes=notes)

    def _exact(self, d: int) -> bool:
        return d <= 30 and 2**d - 2 <= self.samples

    def _subsets(self, rng: np.random.Generator, d: int) -> Keep:
        """All subsets if they fit; else random ones, each beside its complement.

        Their sizes are drawn by the Shapley kernel.
        """
        if self._exact(d):
            return all_subsets(d)[1:-1]
        sizes = np.arange(1, d)
        kernel = 1 / (sizes * (d - sizes))
        # with fewer pairs the regression would fit its own noise, and hide it
        pairs = max(self.samples // 2, 2 * d)
        half = random_subsets(rng, rng.choice(sizes, pairs, p=kernel / kernel.sum()), d)
        return np.stack([half, ~half], 1).reshape(-1, d)

    def _fit_subsets(self, keep: Keep, outputs: Outputs) -> tuple[Scores, Scores]:
        """Least squares of y - f(empty) on keep under the constraint Σφ = f(full) - f(empty).

        The constraint is a Lagrange multiplier.
        """
        d, (full, empty) = keep.shape[1], outputs[:2]
        exact, keep, y = self._exact(d), keep[2:], outputs[2:] - empty
        # random subsets are drawn by the Shapley kernel, so only all subsets need weights
        weights = np.ones(len(y))
        if exact:
            by_size = [1 / (math.comb(d, s) * s * (d - s)) for s in range(1, d)]
            weights = np.array(by_size)[keep.sum(1) - 1]
        gram, moment = np.zeros((d, d)), np.zeros(d)
        for rows in slices(keep.shape):
            z = keep[rows].astype(float)
            zw = z * weights[rows, None]
            gram += zw.T @ z
            moment += zw.T @ y[rows]
        if not exact:
            # samples may not tell two words apart: a tiny ridge splits their score evenly
            gram += np.eye(d) * 1e-10 * np.trace(gram) / d
        inverse = np.linalg.inv(gram)
        ones = inverse.sum(1)
        scores = inverse @ moment
        scores += ones * (full - empty - scores.sum()) / ones.sum()
        if exact:
            return scores, np.zeros(d)
        project = inverse - np.outer(ones, ones) / ones.sum()
        variance = np.zeros(d)
        for rows in slices(keep.shape):
            z = keep[rows].astype(float)
            influence = z @ project
            leverage = np.clip(np.einsum("ij,ij->i", influence, z), 0, 0.99).reshape(-1, 2)
            cross = np.einsum("ij,ij->i", influence[::2], z[1::2])
            # a pair is one draw
            rest = enlarged((y[rows] - z @ scores).reshape(-1, 2), 1 - leverage, -cross)
            variance += np.square((influence * rest.reshape(-1, 1)).reshape(-1, 2, d).sum(1)).sum(0)
        return scores, np.sqrt(variance)

    def _orders(self, rng: np.random.Generator, d: int) -> Keep:
        """For each random order the first 1 … d-1 words, and the same for the reversed order.

        Orders differ most in how early a word comes. So ten orders together (a Latin square) bring
        each word in once at each of ten depths, counted from both ends. Few words have fewer
        depths.
        """
        pairs, depths = max(10, self.samples // (2 * (d - 1))), _depths(d)
        squares = np.tile(np.arange(d) * depths // d, (-(-pairs // depths), 1))
        drawn = rng.permuted(squares, axis=1).repeat(depths, 0)[:pairs] + np.arange(pairs)[:, None]
        # the rank of a word from outside to inside: 0 and 1 are the ends, 2 and 3 next to them
        inwards = (drawn % depths + rng.random((pairs, d))).argsort(1).argsort(1)
        swap = np.take_along_axis(rng.integers(0, 2, (pairs, d // 2 + 1)), inwards // 2, 1)
        rank = np.where((inwards + swap) % 2, d - 1 - inwards // 2, inwards // 2)
        both = np.stack([rank, d - 1 - rank], 1)  # [pair, direction, unit]
        return (both[:, :, None, :] < np.arange(1, d)[:, None]).reshape(-1, d)

    def _fit_orders(self, keep: Keep, outputs: Outputs) -> tuple[Scores, Scores]:
        """The mean gain of each word, and its standard error.

        One square tells the spread of the gains as a whole. Several squares tell the spread within
        a depth, which is less, since words come in equally often at every depth. The more squares
        there are, the more that counts.
        """
        d, (full, empty) = keep.shape[1], outputs[:2]
        by_order = outputs[2:].reshape(-1, d - 1)
        # the outputs on the way from no word to all words
        steps = np.pad(by_order, ((0, 0), (1, 1)), constant_values=((0, 0), (empty, full)))
        # a word that is in k of the d-1 prefixes came in at position d-1-k
        position = d - 1 - keep[2:].reshape(-1, d - 1, d).sum(1)
        gains = np.take_along_axis(np.diff(steps, axis=1), position, 1)
        by_pair = gains.reshape(-1, 2, d).mean(1)
        depth = np.minimum(position, d - 1 - position)[::2]
        depths, variance = _depths(d), gains.var(0, ddof=1) / len(gains)
        if (free := len(by_pair) - depths) >= depths:
            by_depth = np.array_split(np.take_along_axis(by_pair, depth.argsort(0), 0), depths)
            within = sum(part.var(0) * len(part) for part in by_depth) / (free * len(by_pair))
            whole = 2 * depths - 1  # the differences that the gains of one square tell
            variance = (whole * variance + free * within) / (whole + free)
        return gains.mean(0), np.sqrt(variance)


def _depths(d: int) -> int:
    return min(10, d // 2)


def controls(
    d: int, bandwidth: float
) -> tuple[Float[np.ndarray, "size function"], Float[np.ndarray, "size"]]:
    """Functions φ and ψ of the number s = 0 … d of removed words: control variates for LIME.

    Take all subsets with their weights W(s) = π(s)/d, s ≥ 1. The columns φ(s) and
    ψ(s)(z_j - m_s), m_s = 1 - s/d, are orthogonal to 1 and to every z_k, so they do not change the
    coefficients of these: ΣWφ = ΣWφs = 0 and ΣWψ m_s(1-m_s) = 0. φ are polynomials of degree 2 to
    5, ψ is linear.
    """
    s, W = np.arange(d + 1), np.where(np.arange(d + 1) > 0, kernel(d, bandwidth), 0) / d
    share = s / d
    root = np.sqrt(W)
    powers = np.vander(2 * share - 1, min(6, d), increasing=True)
    triangle = np.linalg.qr(root[:, None] * powers).R
    # a narrow kernel sees only a few sizes, on which high powers are not independent
    count = max(2, int((np.abs(np.diag(triangle)) > 1e-7 * abs(triangle[0, 0])).sum()))
    phi = np.linalg.solve(triangle[:count, :count].T, powers[:, :count].T).T[:, 2:]
    spread = W * share * (1 - share)
    return phi / np.abs(phi).max(0, initial=1e-300), share - (spread @ share) / spread.sum()


def all_subsets(d: int) -> Keep:
    """Every subset of d things: bit j of its number says whether it has thing j."""
    return (np.arange(2**d)[:, None] >> np.arange(d) & 1).astype(bool)


def uniform_subsets(rng: np.random.Generator, n: int, d: int, proper: bool = False) -> Keep:
    """Random subsets of d things: the size uniform on 1 … d, the subset uniform given its size.

    With `proper`, the size is uniform on 1 … d - 1.
    """
    # Taking each thing with the same probability p, p uniform on [0, 1], makes the size uniform on
    # 0 … d. Subsets of a size that is not wanted are drawn again.
    drawn = np.empty((n, d), dtype=bool)
    for rows in slices(drawn.shape):
        drawn[rows] = _bernoulli_subsets(rng, len(drawn[rows]), d)
    while len(again := np.flatnonzero(~drawn.any(1) | (proper & drawn.all(1)))):
        drawn[again] = _bernoulli_subsets(rng, len(again), d)
    return drawn


def _bernoulli_subsets(rng: np.random.Generator, n: int, d: int) -> Keep:
    # p is a multiple of 2⁻¹⁶, with half the weight at 0 and 1: the size is uniform to 1e-6
    share = rng.integers(0, 1 << 16, n) + rng.integers(0, 2, n)  # of 2¹⁶, both ends included
    words = rng.integers(0, 1 << 64, -(-n * d // 4), dtype=np.uint64)
    keys = words.view(np.uint16)[: n * d].reshape(n, d)
    # key < share, where the share may be 2¹⁶: key <= share - 1, and nothing where the share is 0
    taken = keys <= (np.maximum(share, 1) - 1).astype(np.uint16)[:, None]
    taken[share == 0] = False
    return taken


def random_subsets(rng: np.random.Generator, sizes: Int[np.ndarray, "sample"], d: int) -> Keep:
    """One random subset of d things for each size: the things with the smallest random keys."""
    drawn = np.empty((len(sizes), d), dtype=bool)
    for rows in slices(drawn.shape):
        keys = rng.integers(0, 1 << 32, (len(sizes[rows]), d), dtype=np.uint32)
        ordered = np.sort(keys, axis=1)
        last = ordered[np.arange(len(keys)), np.maximum(sizes[rows] - 1, 0)]
        drawn[rows] = (keys <= last[:, None]) & (sizes[rows] > 0)[:, None]
    return drawn
