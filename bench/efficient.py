"""Efficient attention and intervals of weights for a transformer of MiniLM's size.

Efficient attention of all rows of all heads is computed batched, beside one non-negative least
squares problem for each row (of which some are timed). Intervals of weights are computed by linear
programs that start from the last one's corner, beside scipy's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import linprog

import heed
from bench.single_layer import review
from bench.transformer import minilm
from heed.methods.problems import Problem, problems
from heed.models.classifier import Classifier
from heed.models.transformer import Transformer

LENGTHS = (256, 400)
EVERY = 32  # of the rows, one in so many is solved alone


def models() -> Iterator[tuple[str, Classifier]]:
    """Models of MiniLM's size with random weights, and a trained one if HEED_BENCH_MODEL names it.

    Attention is flat in the first of the random ones; the second has larger queries.
    """
    network, tokenizer = minilm()
    yield "random weights", Transformer(network, tokenizer, "flat")
    for name, weights in network.named_parameters():
        if "query" in name:
            weights.data.mul_(12)
    yield "random weights, queries × 12", Transformer(network, tokenizer, "sharp")
    if name := os.environ.get("HEED_BENCH_MODEL"):
        yield name, heed.load(name)


def rows_of(model: Classifier, length: int) -> list[Problem]:
    """All rows of a text of so many tokens, or as many as the model reads.

    They come layer by layer and head by head.
    """
    words = review(2 * length).split()
    texts = [" ".join(words[:n]) for n in range(length // 2, len(words))]
    tokens = [t for t in model.tokens(texts) if len(t) <= length][-1:]
    with torch.no_grad():
        trace = model.trace(tokens)
    return [
        p
        for layer, own in enumerate(trace.attention)
        for p in problems(trace, tokens, layer, rows=own)[0]
    ]


def all_rows(model: Classifier, name: str) -> None:
    print(f"\n### Efficient attention of every row of every head ({name})\n")
    print(
        "| keys | rows | largest weight | batched, a row | alone, a row | times faster"
        " | fell back | difference |"
    )
    print("|---" * 8 + "|")
    for length in LENGTHS:
        parts = rows_of(model, length)
        if len(parts[0].keys) < length:  # more than the model reads
            continue
        began = time.perf_counter()
        found = [p.space.efficient(p.rows) for p in parts]
        batched = time.perf_counter() - began
        alone, worst, solved = 0.0, 0.0, 0
        for p, x in zip(parts, found, strict=True):
            if not p.space.nullity:
                continue
            _ = p.space.N  # shared by all rows of a head, as the decomposition is
            for i in range(int(p.heads[0]) % EVERY, len(p.rows), EVERY):
                began = time.perf_counter()
                one, _ = p.space.nearest(p.rows[i] @ p.space.Q)
                alone += time.perf_counter() - began
                worst = max(worst, float(np.abs(one - x.rows[i]).max()))
                solved += 1
        rows, slow = sum(len(p.rows) for p in parts), sum(x.fallbacks for x in found)
        ours, theirs = 1000 * batched / rows, 1000 * alone / solved
        peak = np.mean([p.rows.max(1).mean() for p in parts])
        times = f"{ours:.2f} ms | {theirs:.2f} ms | {theirs / ours:.1f} ×"
        print(
            f"| {len(parts[0].keys)} | {rows:,} | {peak:.2f} | {times} | {slow} | {worst:.0e} |",
            flush=True,
        )


def intervals(parts: Sequence[Problem]) -> None:
    """Smallest and largest value of the largest weights of a row, by scipy's programs and by ours.

    "programs" solves what scipy solves, one by one; "intervals" leaves out the smallest values that
    must be 0. The first row of several heads is taken, since some are harder than others.
    """
    print(
        "\n### Intervals of 40 weights over the attention with the same output:"
        " a program of scipy's, and ours\n"
    )
    print(
        "| head | keys | scipy | programs | times faster | intervals | times faster"
        " | largest difference |"
    )
    print("|---" * 8 + "|")
    for i, p in list(enumerate(parts))[:: max(1, len(parts) // 6)]:
        row, space = p.rows[0], p.space
        directions = np.eye(len(row))[np.argsort(-row)[:40]]
        took = [time.perf_counter()]
        smallest = space.smallest(row)
        ours = [[d @ smallest(sign * d) for d in directions] for sign in (1, -1)]
        took.append(time.perf_counter())
        found = space.intervals(row, directions)
        took.append(time.perf_counter())
        theirs = [[sign * _scipys(sign * d, space.Q, row) for d in directions] for sign in (1, -1)]
        took.append(time.perf_counter())
        programs, whole, scipys = np.diff(took) * 1000 / 80
        worst = max(np.abs(np.subtract(ours, theirs)).max(), np.abs(found.T - theirs).max())
        print(
            f"| {i + 1} | {len(row)} | {scipys:.2f} ms"
            f" | {programs:.2f} ms | {scipys / programs:.1f} ×"
            f" | {whole:.2f} ms | {scipys / whole:.1f} × | {worst:.0e} |",
            flush=True,
        )


def _scipys(
    cost: Float[np.ndarray, "key"], Q: Float[np.ndarray, "key rank"], row: Float[np.ndarray, "key"]
) -> float:
    return float(linprog(cost, A_eq=Q.T, b_eq=Q.T @ row, bounds=(0, None), method="highs").fun)


def run() -> None:
    for name, found in models():
        all_rows(found, name)
        intervals(rows_of(found, 128))
        intervals(rows_of(found, 256))
