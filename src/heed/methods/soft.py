"""Soft comprehensiveness and sufficiency (Zhao and Aletras 2023): words fade instead of going.

Each number of a word's embedding is kept with the probability q that its score says (sufficiency)
or does not say (comprehensiveness: 1 - q), and is set to 0 otherwise. With p the probability of the
label, p_0 that of the text whose words are all set to 0, and p' that of the faded text,

    soft sufficiency        1 - (p - p')/(p - p_0)
    soft comprehensiveness  (p - p')/(p - p_0)

with falls below 0 taken for 0, and results above 1 for 1. More is better for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from heed.methods.explanation import Explanation
from heed.methods.removing import Kind, Removing, by_occurrence
from heed.models.classifier import GRADIENT
from heed.models.devices import as_numbers
from heed.randomness import generator

if TYPE_CHECKING:
    from heed.text import Tokens

Shares = Float[np.ndarray, "unit"]

LEAST = 0.01  # a smaller fall when all words are set to 0 is too small to divide by


def soft_areas(
    shared: Removing,
    kind: Kind,
    explanations: Mapping[int, Explanation],
    draws: int,
    seed: tuple[int, str],
) -> dict[int, dict[str, float]]:
    """The mean over some draws, of the scores (`soft`) and of the same in random order.

    Nothing without draws, or where the model does not let its embeddings be changed.
    """
    if not draws or GRADIENT not in shared.model.offers:
        return {i: {} for i in explanations}
    rows: list[tuple[int, Shares, np.random.Generator]] = []
    for i, e in explanations.items():
        rng = generator(*seed, "soft", *e.document.segments)
        kept = kept_shares(by_occurrence(e, shared.units[i]))
        at_random = rng.permutation(kept)
        if kind == "comprehensiveness":
            kept, at_random = 1 - kept, 1 - at_random
        rows.append((i, np.zeros(len(kept)), rng))
        rows += [(i, shares, rng) for shares in (kept, at_random) for _ in range(draws)]
    probabilities = faded(shared, rows).reshape(len(explanations), 1 + 2 * draws)
    results = {}
    for i, (zero, *others) in zip(explanations, probabilities, strict=True):
        whole = shared.whole(i)[0]
        own, at_random = np.reshape(others, (2, draws))
        results[i] = {
            "soft": soft_value(kind, whole, zero, own),
            "soft_random": soft_value(kind, whole, zero, at_random),
        }
    return results


def soft_value(kind: Kind, whole: float, zero: float, faded: Float[np.ndarray, "draw"]) -> float:
    """Soft comprehensiveness or sufficiency, from probabilities of the label."""
    if whole - zero < LEAST:
        return float("nan")
    fall = np.clip((whole - faded) / (whole - zero), 0, 1)
    return float((fall if kind == "comprehensiveness" else 1 - fall).mean())


def kept_shares(scores: Float[np.ndarray, "unit"]) -> Shares:
    """Scores from 0 for the lowest to 1 for the highest; all one half if they are equal."""
    low, high = scores.min(), scores.max()
    if high - low <= 1e-9 * np.abs(scores).max():
        return np.full(len(scores), 0.5)
    return (scores - low) / (high - low)


def faded(
    shared: Removing, rows: list[tuple[int, Shares, np.random.Generator]]
) -> Float[np.ndarray, "row"]:
    """The probability of the label, with each number of a word's embedding kept that often."""
    import torch

    model = shared.model
    masks = []
    for i, shares, rng in rows:
        groups = shared.groups[i]
        # special tokens belong to no word, and stay
        kept = np.where(groups < 0, 1.0, shares[groups])
        masks.append((kept, int(rng.integers(2**63))))

    def run(batch: list[int]) -> list[float]:
        tokens: list[Tokens] = [shared.tokens[rows[row][0]] for row in batch]
        with torch.no_grad():
            embeddings = model.embeddings(tokens).clone()
            for b, row in enumerate(batch):
                kept, seed = masks[row]
                drawn = np.random.default_rng(seed).random((len(kept), embeddings.shape[-1]))
                mask = torch.from_numpy(drawn < kept[:, None])
                embeddings[b, : len(kept)] *= mask.to(embeddings)
            logits = as_numbers(model.trace(tokens, embeddings=embeddings, layers=()).logits)
        probabilities = model.probabilities(logits)
        return [
            float(p[shared.labels[rows[row][0]]])
            for row, p in zip(batch, probabilities, strict=True)
        ]

    return np.array(model.each([shared.tokens[i] for i, _, _ in rows], run))
