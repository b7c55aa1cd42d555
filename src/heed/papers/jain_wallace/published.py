"""Figures of the paper, to compare with."""

from __future__ import annotations

# F1 and AUC of the BiLSTM with additive attention
F1 = {"sst": 0.784, "imdb": 0.896, "ag_news": 0.958, "20news": 0.917}
AUC = {"sst": 0.902, "imdb": 0.960, "ag_news": 0.990, "20news": 0.978}

# Kendall's τ of attention with gradients and with leave-one-out, by predicted class
TAU_GRADIENT = {
    "sst": (0.343, 0.364),
    "imdb": (0.442, 0.432),
    "ag_news": (0.358, 0.419),
    "20news": (0.066, 0.210),
}
TAU_REMOVAL = {
    "sst": (0.272, 0.323),
    "imdb": (0.341, 0.341),
    "ag_news": (0.302, 0.430),
    "20news": (0.064, 0.195),
}

# … of the other models, both classes: gradients, leave-one-out
TAU_OTHERS = {
    "average + additive": {
        "sst": (0.606, 0.623), "imdb": (0.675, 0.576),
        "ag_news": (0.770, 0.507), "20news": (0.772, 0.721),
    },
    "CNN + additive": {
        "sst": (0.477, 0.352), "imdb": (0.452, 0.295),
        "ag_news": (0.491, 0.360), "20news": (0.446, 0.322),
    },
    "BiLSTM + dot": {
        "sst": (0.073, 0.064), "imdb": (0.122, 0.092),
        "ag_news": (0.305, 0.175), "20news": (0.132, 0.067),
    },
}  # fmt: skip
# … of gradients with leave-one-out
TAU_YARDSTICK = {"sst": 0.656, "imdb": 0.517, "ag_news": 0.612, "20news": 0.534}

# ε-max JSD by predicted class
ADVERSARY = {
    "sst": (0.480, 0.493),
    "imdb": (0.578, 0.567),
    "ag_news": (0.623, 0.641),
    "20news": (0.612, 0.378),
}

# median change of the output over permutations, predicted class 0, by the largest weight:
# 0–.25, .25–.5, .5–.75, .75–1
PERMUTATION = {
    "sst": (0.027, 0.047, 0.079, 0.107),
    "ag_news": (0.002, 0.013, 0.072, 0.623),
    "20news": (0.002, 0.021, 0.065, 0.281),
}
