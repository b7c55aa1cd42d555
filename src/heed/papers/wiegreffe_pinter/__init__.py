"""Wiegreffe and Pinter (2019), "Attention is not not Explanation"."""

from heed.papers.debate import DebateLab
from heed.papers.lab import Experiment, Paper
from heed.papers.wiegreffe_pinter import experiments

PAPER = Paper(
    "Attention is not not Explanation",
    "wiegreffe2019",
    (
        Experiment(
            "uniform",
            "Is attention needed?",
            "How much accuracy is lost with uniform weights?",
            experiments.uniform,
        ),
        Experiment(
            "seeds",
            "What varies by itself?",
            "How far does attention move between training seeds?",
            experiments.seeds,
        ),
        Experiment(
            "guides",
            "Attention as a guide",
            "Do these weights help another model?",
            experiments.guides,
        ),
        Experiment(
            "curve",
            "An adversary that is one model",
            "How far can attention move before predictions do?",
            experiments.curve,
        ),
    ),
    DebateLab,
)
