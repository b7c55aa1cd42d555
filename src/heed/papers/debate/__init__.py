"""The debate of 2019: "Attention is not Explanation", and "Attention is not not Explanation"."""

from heed.papers.debate import jain_wallace, wiegreffe_pinter
from heed.papers.debate.lab import DebateLab
from heed.papers.lab import Experiment, Paper

JAIN_WALLACE = Paper(
    "Attention is not Explanation",
    "jain2019",
    tuple(
        Experiment(*row)
        for row in (
            ("accuracy", "Accuracy", "Are these real classifiers?", jain_wallace.accuracy),
            (
                "correlations",
                "Correlations",
                "Does attention rank words as gradients and leave-one-out do?",
                jain_wallace.correlations,
            ),
            (
                "permutation",
                "Permutations",
                "How far does the output move when attention is shuffled?",
                jain_wallace.permutation,
            ),
            (
                "adversarial",
                "Adversarial attention",
                "Is there another attention with the same output?",
                jain_wallace.adversarial,
            ),
        )
    ),
    DebateLab,
)

WIEGREFFE_PINTER = Paper(
    "Attention is not not Explanation",
    "wiegreffe2019",
    tuple(
        Experiment(*row)
        for row in (
            (
                "uniform",
                "Is attention needed?",
                "What is lost with uniform weights?",
                wiegreffe_pinter.uniform,
            ),
            (
                "seeds",
                "What varies by itself?",
                "How far does attention move between seeds?",
                wiegreffe_pinter.seeds,
            ),
            (
                "guides",
                "Attention as a guide",
                "Do these weights help another model?",
                wiegreffe_pinter.guides,
            ),
            (
                "curve",
                "An adversary that is one model",
                "How far can attention go before predictions do?",
                wiegreffe_pinter.curve,
            ),
        )
    ),
    DebateLab,
)
