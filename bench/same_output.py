"""How far apart the efficient attentions of two rows with the same output are: by algebra they are one.

Random problems, from flat to very peaked rows, with and without equal keys, with values of one size and of very
different ones. The second row of each is the farthest from the first that has its output.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from heed.efficient import VARIANTS, NotReached, Space

PROBLEMS = 4000
SPREADS, SCALES = (0.5, 2, 4, 8, 12, 20, 60), (0, 1, 3)


def drawn(equal: bool) -> Iterator[tuple[Space, Float[np.ndarray, "key"]]]:
    """Values of 6 to 89 keys, of which about two thirds are repeated if asked for, and a row of attention."""
    rng = np.random.default_rng(1)
    for _ in range(PROBLEMS):
        n, p = int(rng.integers(6, 90)), int(rng.integers(1, 33))
        spread, scale = float(rng.choice(SPREADS)), float(rng.choice(SCALES))
        distinct = max(2, n // 3) if equal else n
        T = rng.normal(size=(distinct, p)) * np.exp(scale * rng.normal(size=p))
        T = T[rng.integers(0, distinct, n)] if equal else T
        scores = spread * rng.normal(size=n)
        row = np.exp(scores - scores.max())
        if (space := Space.of(T)).nullity:
            yield space, row / row.sum()


def run() -> None:
    print("\n### Efficient attention of two rows with the same output\n")
    print("| keys | variant | problems | refused | largest difference of a weight | 99.9 % below |")
    print("|---" * 6 + "|")
    for equal in (False, True):
        apart: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        count = 0
        for space, row in drawn(equal):
            count += 1
            try:
                both = np.stack([row, space.farthest(row)])
            except NotReached:
                continue
            for variant in VARIANTS:
                try:
                    one, other = space.efficient(both, variant).rows
                except NotReached:
                    continue
                apart[variant].append(float(np.abs(one - other).max()))
        for variant, found in apart.items():
            most = f"{max(found):.1e} | {np.quantile(found, 0.999):.1e}"
            kind = "many equal" if equal else "different"
            print(f"| {kind} | {variant} | {count:,} | {count - len(found)} | {most} |", flush=True)
