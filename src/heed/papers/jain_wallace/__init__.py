"""Jain and Wallace (2019), "Attention is not Explanation"."""

from heed.papers.debate import DebateLab
from heed.papers.jain_wallace.experiments import accuracy, adversarial, correlations, permutation
from heed.papers.lab import Paper

PAPER = Paper.named(
    "jain-wallace-2019",
    {
        "accuracy": accuracy,
        "correlations": correlations,
        "permutation": permutation,
        "adversarial": adversarial,
    },
    DebateLab,
)
