"""Randomness that depends on its key alone, not on order, batches or the number of workers."""

from __future__ import annotations

import hashlib
import json

import numpy as np


def generator(*key: str | int) -> np.random.Generator:
    """A generator of its own for each key, such as (seed, method, text)."""
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest, "big")))
