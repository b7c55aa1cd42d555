"""Lopardo, Precioso and Garreau (2024), "Attention Meets Post-hoc Interpretability"."""

from heed.papers.lab import Experiment, Paper
from heed.papers.lopardo import comparisons, theorems, variants
from heed.papers.lopardo.histogram import histogram

PAPER = Paper(
    "Attention Meets Post-hoc Interpretability: A Mathematical Perspective",
    "lopardo2024",
    tuple(
        Experiment(*row)
        for row in (
            ("accuracy", "Accuracy", "Is the simple model a real classifier?", variants.accuracy),
            (
                "side-by-side",
                "Side by side",
                "What do seven explanations say of one sentence?",
                comparisons.side_by_side,
            ),
            (
                "gradient-theorem",
                "The gradient theorem",
                "Is the closed form the gradient of autograd?",
                theorems.gradient_theorem,
            ),
            (
                "lime-theorem",
                "The LIME theorem",
                "Is LIME affine in attention, and is its factor 3/2?",
                theorems.lime_theorem,
            ),
            (
                "correlations",
                "Correlations",
                "How far do methods agree, two by two?",
                comparisons.correlations,
            ),
            (
                "against-the-model",
                "Against the model",
                "Which explanation follows the prediction?",
                comparisons.against_the_model,
            ),
            (
                "signs",
                "Signs",
                "How much of what attention points to speaks against the label?",
                comparisons.signs,
            ),
            (
                "signatures",
                "Three signatures",
                "Why do attention and other explanations part?",
                comparisons.signatures,
            ),
            (
                "when",
                "When does attention explain?",
                "What makes attention agree with exact LIME?",
                comparisons.when,
            ),
            (
                "reach",
                "Reach of the theorem",
                "How do length, repetition, positions and peaks change its error and its factor?",
                theorems.reach,
            ),
            (
                "replacement",
                "Choice of replacement",
                "What if a removed word becomes something other than <unk>?",
                theorems.replacement,
            ),
            (
                "no-final-layer",
                "No final layer",
                "Does attention explain better without a last layer?",
                variants.no_final_layer,
            ),
            (
                "depth",
                "Depth and non-linearity",
                "What do more layers, skip connections and feed-forward parts do to the agreement?",
                variants.depth,
            ),
            (
                "other-data",
                "Other data",
                "Is it the same on sentences, news, pairs and questions?",
                variants.other_data,
            ),
            (
                "tokenizer",
                "Tokenizer",
                "Do words drawn as wholes and token by token give the same LIME?",
                variants.tokenizer,
            ),
            (
                "anchors",
                "Anchors meet attention",
                "Do anchors and attention point to the same words?",
                comparisons.anchors,
            ),
            (
                "histogram",
                "Counting letters",
                "Can equally good solutions have telling and empty attention?",
                histogram,
            ),
            (
                "talk",
                "Figures of the talk",
                "What do attention and LIME's samples look like?",
                comparisons.talk,
            ),
            ("lemmas", "Lemmas", "Do the lemmas behind the theorem hold?", theorems.lemmas),
        )
    ),
)
