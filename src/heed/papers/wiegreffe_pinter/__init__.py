"""Wiegreffe and Pinter (2019), "Attention is not not Explanation"."""

from heed.papers.debate import CutLab
from heed.papers.lab import Paper
from heed.papers.wiegreffe_pinter.experiments import curve, guides, seeds, uniform

PAPER = Paper.named(
    "wiegreffe-pinter-2019",
    {"uniform": uniform, "seeds": seeds, "guides": guides, "curve": curve},
    CutLab,
)
