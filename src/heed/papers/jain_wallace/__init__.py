"""Jain and Wallace (2019), "Attention is not Explanation"."""

from heed.papers.debate import DebateLab
from heed.papers.jain_wallace import experiments
from heed.papers.lab import Experiment, Paper

PAPER = Paper(
    "Attention is not Explanation",
    "jain2019",
    (
        Experiment(
            "accuracy",
            "Accuracy",
            "How good are the classifiers that are examined?",
            experiments.accuracy,
        ),
        Experiment(
            "correlations",
            "Correlations",
            "Does attention rank words as gradients and leave-one-out do?",
            experiments.correlations,
        ),
        Experiment(
            "permutation",
            "Permutations",
            "How far does the output move when attention is shuffled?",
            experiments.permutation,
        ),
        Experiment(
            "adversarial",
            "Adversarial attention",
            "Is there another attention with the same output?",
            experiments.adversarial,
        ),
    ),
    DebateLab,
)
