"""How far apart the efficient attentions of two rows with the same output are.

By algebra they are one. Problems are random, from flat to very peaked rows, with equal and nearly
equal keys and without, with values of one size and of very different ones. The second row of each
is the farthest from the first that has its output.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from heed.algebra.null_space import VARIANTS, NotReached, Space

PROBLEMS = 2000
SPREADS, SCALES = (0.5, 2, 4, 8, 12, 20, 60), (0, 1, 3)


KINDS = {
    "different": None,
    "many equal": 0.0,
    "many nearly equal (1e-3)": 1e-3,
    "many nearly equal (1e-6)": 1e-6,
}


def drawn(apart: float | None) -> Iterator[tuple[Space, Float[np.ndarray, "key"]]]:
    """Values of 6 to 89 keys, and a row of attention.

    If `apart` is given, about two thirds of the keys are as near to others as that.
    """
    rng = np.random.default_rng(1)
    for _ in range(PROBLEMS):
        n, p = int(rng.integers(6, 90)), int(rng.integers(1, 33))
        spread, scale = float(rng.choice(SPREADS)), float(rng.choice(SCALES))
        distinct = n if apart is None else max(2, n // 3)
        T, sizes = rng.normal(size=(distinct, p)), np.exp(scale * rng.normal(size=p))
        T = (
            T * sizes
            if apart is None
            else (T[rng.integers(0, distinct, n)] + apart * rng.normal(size=(n, p))) * sizes
        )
        scores = spread * rng.normal(size=n)
        row = np.exp(scores - scores.max())
        if (space := Space.of(T)).nullity:
            yield space, row / row.sum()


def run() -> None:
    print("\n### Efficient attention of two rows with the same output\n")
    print(
        "| keys | variant | problems | refused | largest difference of a weight | 99 % below"
        " | outputs apart by |"
    )
    print("|---" * 7 + "|")
    for kind, distance in KINDS.items():
        apart: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        count, off = 0, 0.0
        for space, row in drawn(distance):
            count += 1
            try:
                both = np.stack([row, space.farthest(row)])
            except NotReached:
                continue
            off = max(off, float(np.abs((both[0] - both[1]) @ space.Q).max()))
            for variant in VARIANTS:
                try:
                    one, other = space.efficient(both, variant).rows
                except NotReached:
                    continue
                apart[variant].append(float(np.abs(one - other).max()))
        for variant, found in apart.items():
            most = f"{max(found):.1e} | {np.quantile(found, 0.99):.1e} | {off:.1e}"
            print(f"| {kind} | {variant} | {count:,} | {count - len(found)} | {most} |", flush=True)
