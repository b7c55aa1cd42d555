"""The bundled single-layer classifier.

LIME beside the `lime` package, gradients of a batch, memory.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from lime.lime_text import LimeTextExplainer

import heed
from bench.timing import interleave, table
from heed.models.classifier import Classifier, softmax
from heed.models.single_layer import SingleLayer

SAMPLES = 5000


def review(words: int) -> str:
    """Real one-sentence reviews one after another, up to a number of words.

    Generated ones, if there are no real ones on this machine.
    """
    known = heed.data.sources("rotten_tomatoes")
    data = (
        heed.data.load("rotten_tomatoes", limit=60)
        if known
        else heed.data.tasks.generate("reviews", 60)
    )
    text = " ".join(d.text for d in data)
    return " ".join([w for w in text.split() if w.isalpha()][:words])


def forward(model: SingleLayer, texts: Sequence[str]) -> np.ndarray:
    """Probabilities by plain forward passes, batch by batch.

    Any PyTorch classifier computes them so.
    """
    tokens = model.tokens(texts)
    found = []
    with torch.no_grad():
        for start in range(0, len(tokens), 64):
            found.append(model.trace(tokens[start : start + 64]).logits.numpy())
    return softmax(np.concatenate(found))


def lime(model: SingleLayer) -> None:
    """One LIME explanation end to end, default settings of both, 5,000 samples."""
    for words in (20, 100, 250):
        text = review(words)
        tokens = model.tokens([text]) * 64

        def floor(tokens: list = tokens) -> None:
            with torch.no_grad():
                for _ in range(-(-SAMPLES // 64)):
                    model.trace(tokens)

        peer = LimeTextExplainer(class_names=list(model.labels))
        explain = partial(heed.explain, model, text, "lime", samples=SAMPLES)
        package = partial(peer.explain_instance, text, num_samples=SAMPLES)
        slow = interleave(
            {
                "lime, plain forward passes": partial(package, partial(forward, model)),
                "lime, heed's fast model.predict": partial(package, model.predict),
                "the bare forward passes": floor,
            },
            rounds=3,
            warm=False,
        )
        fast = interleave(
            {"heed, replace": explain, "heed, delete": partial(explain, removal="delete")},
            rounds=15,
        )
        units = len(heed.explain(model, text, "occlusion").units)
        table(
            f"LIME, {SAMPLES:,} samples, {units} words", slow | fast, "lime, plain forward passes"
        )
        ratio = slow["lime, heed's fast model.predict"].median / fast["heed, replace"].median
        print(f"\nagainst lime on heed's own fast model.predict: {ratio:.0f} times faster")


def gradients(model: SingleLayer) -> None:
    """Gradients of 64 documents: the closed form beside autograd, in one backward pass or 64."""
    texts = [review(100)] * 64
    tokens, labels = model.tokens(texts), [1] * 64

    def one_by_one() -> None:
        for t in tokens:
            Classifier.gradient(model, [t], [1])

    candidates = {
        "autograd, one by one": one_by_one,
        "autograd, one backward pass": lambda: Classifier.gradient(model, tokens, labels),
        "closed form": lambda: model.gradient(tokens, labels),
    }
    table(
        "Gradients of 64 documents of 100 words",
        interleave(candidates, rounds=7),
        "autograd, one backward pass",
    )


def exact(model: SingleLayer) -> None:
    """Exact LIME and Shapley values beside one run of the `lime` package with 5,000 samples."""
    for words in (100, 250):
        text = distinct_words(words)
        peer = LimeTextExplainer(class_names=list(model.labels))
        package = partial(peer.explain_instance, text, num_samples=SAMPLES)
        slow = interleave(
            {
                "lime, plain forward passes": partial(package, partial(forward, model)),
                "lime, heed's fast model.predict": partial(package, model.predict),
            },
            rounds=3,
            warm=False,
        )
        fast = interleave(
            {
                name: partial(heed.explain, model, text, name)
                for name in ("lime-exact", "shapley-exact", "lime-theorem")
            },
            rounds=15,
        )
        table(f"Exact values, {words} distinct words", slow | fast, "lime, plain forward passes")


def distinct_words(count: int) -> str:
    """A text of so many different words."""
    words = list(dict.fromkeys(w.lower() for w in review(20 * count).split()))[:count]
    assert len(words) == count
    return " ".join(words)


def memory() -> None:
    """Peak memory of a whole process that explains one review with more and more samples."""
    print(
        "\n### Memory of LIME as samples grow (100 words)\n\n"
        "| samples | peak of the process |\n|---|---|"
    )
    for samples in (1_000, 10_000, 100_000):
        script = (
            "import sys, heed; model = heed.load();"
            f"heed.explain(model, sys.argv[1], 'lime', samples={samples});"
            "print(next(line.split()[1] for line in open('/proc/self/status')"
            " if line.startswith('VmHWM')))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, review(100)], capture_output=True, text=True, check=True
        )
        print(f"| {samples:,} | {int(done.stdout) // 1024} MB |")


def run() -> None:
    model = heed.load()
    assert isinstance(model, SingleLayer)
    lime(model)
    exact(model)
    gradients(model)
    memory()
