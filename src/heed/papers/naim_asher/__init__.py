"""Naim and Asher (2024), "On Explaining with Attention Matrices".

There is no public code of the paper. What it calls efficient attention is here what
`heed.algebra.null_space` builds from the properties that it states. Each result says whether it is
true by construction.
"""

from heed.papers.lab import Experiment, Paper
from heed.papers.naim_asher import causal, spaces
from heed.papers.naim_asher.lab import EfficientLab

PAPER = Paper(
    "On Explaining with Attention Matrices",
    "naim2024",
    tuple(
        Experiment(*row)
        for row in (
            (
                "characterised",
                "The null space",
                "How much of attention does the output leave open?",
                spaces.characterised,
            ),
            (
                "sufficient",
                "Sufficient",
                "Does the prediction stay when efficient attention takes the place of attention?",
                causal.sufficient,
            ),
            (
                "near",
                "Near the original?",
                "How far is efficient attention from attention itself?",
                causal.near,
            ),
            (
                "shared",
                "Shared by adversaries",
                "Do attentions with the same output share their efficient attention?",
                causal.shared,
            ),
            (
                "necessary",
                "Necessary and causal",
                "Does the prediction move with efficient attention, and with nothing else?",
                causal.necessary,
            ),
            (
                "minimal",
                "Minimal",
                "Is any attention with the same output smaller, and what was dropped?",
                spaces.minimal,
            ),
            (
                "distribution",
                "A distribution",
                "Is efficient attention attention, and is effective attention?",
                spaces.distribution,
            ),
            (
                "older-argument",
                "The older argument",
                "How much of what has the same output is attention at all?",
                spaces.family_of_rows,
            ),
            (
                "context",
                "Where context matters",
                "Does a shift matter more where attention is needed?",
                causal.context,
            ),
            ("failing", "Failing on purpose", "What do wrong decompositions lose?", spaces.failing),
            (
                "heads",
                "Head by head",
                "Which heads carry the prediction, and does attention show it?",
                causal.heads,
            ),
            (
                "beyond",
                "Beyond the prediction",
                "Do the layers behind a swap stay as they were?",
                causal.beyond,
            ),
        )
    ),
    EfficientLab,
)
