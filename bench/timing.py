"""Timing on a noisy machine: candidates take turns, and medians are compared."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Timing:
    """Seconds of one candidate over all rounds."""

    name: str
    seconds: list[float]

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def spread(self) -> str:
        low, high = np.quantile(self.seconds, [0.25, 0.75])
        return f"{1000 * low:.3g}–{1000 * high:.3g} ms"


def interleave(
    candidates: dict[str, Callable[[], object]], rounds: int, warm: bool = True
) -> dict[str, Timing]:
    """Run every candidate in turn, round after round.

    A slow moment of the machine then hits all of them.
    """
    if warm:
        for run in candidates.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    return {name: Timing(name, values) for name, values in seconds.items()}


def table(title: str, timings: dict[str, Timing], yardstick: str) -> None:
    """Print medians, middle halves, and how many times faster each is than the yardstick."""
    print(f"\n### {title}\n")
    print(f"| | median | middle half | {yardstick} ÷ this |")
    print("|---|---|---|---|")
    for timing in timings.values():
        ratio = timings[yardstick].median / timing.median
        print(f"| {timing.name} | {1000 * timing.median:.4g} ms | {timing.spread} | {ratio:.3g} |")


def ratios(one: Timing, other: Timing) -> str:
    """The median of one ÷ other over the rounds, and its middle half, as two cells of a table."""
    found = np.array(one.seconds) / np.array(other.seconds)
    low, high = np.quantile(found, [0.25, 0.75])
    return f"{np.median(found):.2f} × | {low:.2f}–{high:.2f} ×"
