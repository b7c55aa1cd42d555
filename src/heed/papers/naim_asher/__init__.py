"""Naim and Asher (2024), "On Explaining with Attention Matrices".

There is no public code of the paper. Efficient attention is here what `heed.algebra.null_space`
builds from the properties that the paper states. Each result says whether it is true by
construction.
"""

from heed.papers.lab import Paper
from heed.papers.naim_asher import causal, spaces
from heed.papers.naim_asher.lab import EfficientLab

PAPER = Paper.named(
    "naim-asher-2024",
    {
        "characterised": spaces.characterised,
        "sufficient": causal.sufficient,
        "near": causal.near,
        "shared": causal.shared,
        "necessary": causal.necessary,
        "minimal": spaces.minimal,
        "distribution": spaces.distribution,
        "older-argument": spaces.older_argument,
        "context": causal.context,
        "failing": spaces.failing,
        "heads": causal.heads,
        "beyond": causal.beyond,
    },
    EfficientLab,
)
