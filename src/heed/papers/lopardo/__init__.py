"""Lopardo, Precioso and Garreau (2024), "Attention Meets Post-hoc Interpretability"."""

from heed.papers.lab import Paper
from heed.papers.lopardo import comparisons, theorems, variants
from heed.papers.lopardo.histogram import histogram

PAPER = Paper.named(
    "lopardo-2024",
    {
        "accuracy": variants.accuracy,
        "side-by-side": comparisons.side_by_side,
        "gradient-theorem": theorems.gradient_theorem,
        "lime-theorem": theorems.lime_theorem,
        "correlations": comparisons.correlations,
        "against-the-model": comparisons.against_the_model,
        "signs": comparisons.signs,
        "signatures": comparisons.signatures,
        "when": comparisons.when,
        "reach": theorems.reach,
        "replacement": theorems.replacement,
        "no-final-layer": variants.no_final_layer,
        "depth": variants.depth,
        "other-data": variants.other_data,
        "tokenizer": variants.tokenizer,
        "anchors": comparisons.anchors,
        "histogram": histogram,
        "talk": comparisons.talk,
        "lemmas": theorems.lemmas,
    },
)
