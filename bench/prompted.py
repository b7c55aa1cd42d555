"""A prompted language model, with and without sharing what its prompts begin with.

A Llama of 6 layers of width 384 with random weights, which change no cost. The template is as long
as the text and stands before it, so that half of every prompt never changes.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import heed
from bench.single_layer import review
from bench.timing import interleave, ratios
from bench.transformer import minilm
from heed.models.language_model import Prompted

WORDS = (20, 50, 100)  # of the text, and of the template
SAMPLES = 60
ROUNDS = 5


def model(words: int) -> Prompted:
    """A language model that is asked by a template of so many words."""
    _, tokenizer = minilm()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        num_key_value_heads=4,
        intermediate_size=1024,
        max_position_embeddings=1024,
    )
    torch.manual_seed(0)
    tokenizer.model_max_length = 1024
    template = f"{review(words)} {{text}}"
    return heed.prompted(LlamaForCausalLM(config), tokenizer, template, ["good", "bad"])


def explained(
    asked: Prompted, shares: int, text: str, method: str, removal: str
) -> heed.Explanation:
    """An explanation whose passes share beginnings of at most so many tokens."""
    before, asked.shares = asked.shares, shares
    settings = {"samples": SAMPLES, "sampling": "lime"} if method == "lime" else {}
    try:
        return heed.explain(asked, text, method, removal=removal, **settings)
    finally:
        asked.shares = before


def run() -> None:
    """Time of a method without sharing ÷ with it, and how far its scores differ."""
    print("\n## Prompts that share their beginning: time without ÷ time with\n")
    print("| words | method | removal | median | middle half | scores differ by |")
    print("|---|---|---|---|---|---|")
    for words in WORDS:
        asked = model(words)
        text = review(3 * words).split()[-words:]
        for method in ("lime", "occlusion"):
            for removal in ("hide", "delete"):
                go = partial(explained, asked, text=" ".join(text), method=method, removal=removal)
                timed = {"whole": partial(go, 0), "shared": partial(go, asked.shares)}
                timings = interleave(timed, ROUNDS)
                one, other = (np.array(timed[name]().scores) for name in timed)
                apart = np.abs(one - other).max() / np.abs(one).max()
                shown = ratios(timings["whole"], timings["shared"])
                print(f"| {words} | {method} | {removal} | {shown} | {apart:.0e} |", flush=True)
