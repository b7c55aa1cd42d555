"""How good is sampling?

Errors of LIME and Shapley values against exact ones, and how often intervals cover these.
`python -m bench sampling` takes the bundled single-layer classifier, whose exact values are known,
and the bundled transformer, for which one long run stands in for them. A further transformer can be
named: HEED_BENCH_MODEL=FOLDER.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

import heed
from heed.methods import Lime, LimeExact, Shapley, ShapleyExact
from heed.models.classifier import Classifier
from heed.text import Document

SIZES = (500, 1000, 2000, 5000)
WORDS = 100  # distinct words of a review at most: all sizes are measured on the same reviews
LONG = 20_000  # samples that stand in for the truth where there is no exact value
CACHE = Path("out/bench")
HEAD = (
    "| evaluations | pooled | median review | middle half | error of lime's | error of pairs |\n"
    + 6 * "|---"
    + "|"
)


def documents(n: int, low: int = 20, high: int = 200, wanted: str = "imdb") -> list[Document]:
    """Real test reviews of a middle length: of the wanted data where they are there."""
    there = heed.data.sources(wanted, "test") is not None
    name, split = (wanted, "test") if there else ("rotten_tomatoes", None)
    found = heed.data.load(
        name, split, seed=1, min_words=low if there else 10, max_words=high, limit=n
    )
    print(f"\n{len(found):,} reviews of {name}, up to {high} words")
    return list(found.documents)


def short(model: Classifier, texts: list[Document], n: int) -> list[Document]:
    """The first n with so few distinct words."""
    return [t for t in texts if len(LimeExact().explain(model, [t])[0].units) <= WORDS][:n]


def rms(errors: list[np.ndarray]) -> float:
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def lime_errors(
    model: Classifier, texts: list[Document], sizes: tuple[int, ...] = SIZES, runs: int = 2
) -> None:
    """The error of both designs at equal numbers of evaluations.

    The ridge, which shrinks both, is in the truth.
    """
    print(
        "\n### LIME: error of complementary pairs with controls"
        " ÷ error of the `lime` package's design\n"
    )
    print(HEAD)
    curve: dict[str, list[float]] = {"lime": [], "pairs": []}
    for n in sizes:
        errors: dict[str, list[np.ndarray]] = {"lime": [], "pairs": []}
        for text in tqdm(texts, f"{n}", leave=False):
            (truth,) = LimeExact(ridge=1 / n).explain(model, [text])
            for design, found in errors.items():
                for seed in range(runs):
                    (e,) = Lime(samples=n, sampling=design).explain(model, [text], seed=seed)  # type: ignore[arg-type]
                    found.append(e.scores - truth.scores)
        _line(n, errors, runs)
        for design, found in errors.items():
            curve[design].append(rms(found))
    wanted = curve["lime"][-1]
    needed = np.exp(np.interp(-np.log(wanted), -np.log(curve["pairs"]), np.log(sizes)))
    print(
        f"\n{needed:,.0f} evaluations by pairs give the error"
        f" that lime's design has with {sizes[-1]:,}"
    )


def _line(n: int, errors: dict[str, list[np.ndarray]], runs: int) -> None:
    ratios = [
        rms(errors["pairs"][i : i + runs]) / rms(errors["lime"][i : i + runs])
        for i in range(0, len(errors["lime"]), runs)
    ]
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    theirs, ours = rms(errors["lime"]), rms(errors["pairs"])
    print(
        f"| {n:,} | {ours / theirs:.2f} | {middle:.2f} | {low:.2f}–{high:.2f}"
        f" | {theirs:.2g} | {ours:.2g} |",
        flush=True,
    )


def shapley_errors(model: Classifier, texts: list[Document]) -> None:
    print(
        "\n### Shapley values: error by estimator\n\n"
        "| evaluations | kernel | permutation |\n|---|---|---|"
    )
    for n in SIZES:
        errors: dict[str, list[np.ndarray]] = {"kernel": [], "permutation": []}
        for text in tqdm(texts, f"{n}", leave=False):
            (truth,) = ShapleyExact().explain(model, [text])
            if 10 * len(truth.units) > n:
                continue
            for estimator, found in errors.items():
                (e,) = Shapley(samples=n, estimator=estimator).explain(model, [text])  # type: ignore[arg-type]
                found.append(e.scores - truth.scores)
        print(
            f"| {n:,} | {rms(errors['kernel']):.2g} | {rms(errors['permutation']):.2g} |",
            flush=True,
        )


def coverage(model: Classifier, texts: list[Document]) -> None:
    """How often the 95 % interval of a word holds its exact value."""
    print(
        "\n### Coverage of 95 % intervals\n\n"
        "| method | evaluations | words | covered |\n|---|---|---|---|"
    )
    for n in (500, 1000, 2000):
        methods = {
            "lime, pairs": (Lime(samples=n, sampling="pairs"), LimeExact(ridge=1 / n)),
            "lime, lime's design": (Lime(samples=n, sampling="lime"), LimeExact(ridge=1 / n)),
            "shapley, kernel": (Shapley(samples=n), ShapleyExact()),
            "shapley, permutation": (Shapley(samples=n, estimator="permutation"), ShapleyExact()),
        }
        for name, (sampled, exact) in methods.items():
            held: list[np.ndarray] = []
            for text in texts:
                (truth,) = exact.explain(model, [text])
                if 5 * len(truth.units) > n or 2 ** len(truth.units) <= n:
                    continue
                (e,) = sampled.explain(model, [text], seed=1)
                held.append(np.abs(e.scores - truth.scores) <= 1.96 * e.standard_errors)
            every = np.concatenate(held)
            print(f"| {name} | {n:,} | {len(every):,} | {every.mean():.1%} |", flush=True)


def truth_of(model: Classifier, text: Document) -> np.ndarray:
    """A long run, kept for the next time."""
    key = hashlib.sha256(f"{model.revision} {LONG} {text.text}".encode()).hexdigest()[:16]
    path = CACHE / f"{key}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        (found,) = Lime(samples=LONG, sampling="pairs", ridge=0).explain(model, [text], seed=99)
        np.save(path, found.scores)
    return np.load(path)


def beside_a_long_run(
    model: Classifier, texts: list[Document], sizes: tuple[int, ...] = (250, 500, 1000)
) -> None:
    """The same for a model without exact values."""
    print(
        f"\n### LIME on {model.name}, beside {LONG:,} samples:"
        " error of pairs ÷ error of lime's design\n"
    )
    print(HEAD)
    truths = [truth_of(model, text) for text in tqdm(texts, "long runs", leave=False)]
    for n in sizes:
        errors: dict[str, list[np.ndarray]] = {"lime": [], "pairs": []}
        for text, truth in zip(texts, truths, strict=True):
            if 5 * len(truth) > n:
                continue
            for design, found in errors.items():
                (e,) = Lime(samples=n, sampling=design, ridge=0).explain(model, [text], seed=1)  # type: ignore[arg-type]
                found.append(e.scores - truth)
        if errors["lime"]:
            _line(n, errors, 1)


def run() -> None:
    model = heed.load()
    some = documents(200)
    few = short(model, some, 100)
    print(f"\n{len(few)} of them with up to {WORDS} distinct words")
    lime_errors(model, few)
    shapley_errors(model, few)
    coverage(model, some)
    beside_a_long_run(heed.load("transformer-imdb"), documents(20, 20, 60))
    # a larger one: sentences, or the long runs take hours
    if name := os.environ.get("HEED_BENCH_MODEL"):
        beside_a_long_run(heed.load(name), documents(20, 15, 25, "sst"))
