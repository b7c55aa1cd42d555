"""The adversary of "Attention is not Explanation".

Many documents at once beside one after another.
"""

from __future__ import annotations

import numpy as np
import torch

import heed
from bench.timing import interleave, table
from bench.transformer import minilm
from heed.claims import Study
from heed.claims.determined import Exclusive
from heed.models.classifier import Classifier
from heed.models.recurrent import Recurrent, RecurrentNetwork
from heed.models.transformer import Transformer
from heed.text import Document, Tokenizer
from heed.training.recipes import RecurrentRecipe

STEPS = 50  # of 500: the cost of a step is what differs


def documents(n: int) -> list[Document]:
    """Real one-sentence reviews, or generated ones."""
    known = heed.data.sources("rotten_tomatoes")
    data = (
        heed.data.load("rotten_tomatoes", limit=n)
        if known
        else heed.data.tasks.generate("reviews", n)
    )
    return list(data)


def encoder(texts: list[Document]) -> Recurrent:
    """The papers' BiLSTM with random weights: they change no cost."""
    tokenizer = Tokenizer.train((d.text for d in texts), 401)
    network = RecurrentNetwork(
        RecurrentRecipe().shape(len(tokenizer), 2), torch.Generator().manual_seed(0)
    )
    return Recurrent(network, tokenizer, ("negative", "positive"), "BiLSTM")


def literal(model: Classifier, document: Document) -> None:
    """One document, where every step is a whole pass with other attention.

    The paper's experiment is usually written so.
    """
    (tokens,) = model.tokens([document])
    with torch.no_grad():
        plain = model.trace([tokens])
    last, rows = len(plain.attention) - 1, plain.classifying_rows()
    noise = np.random.default_rng(0).standard_normal((5, *rows.shape), dtype=np.float32)
    free = (3 * torch.from_numpy(noise)).requires_grad_()
    optimizer = torch.optim.Adam([free], lr=0.01, amsgrad=True)
    target = plain.logits.softmax(-1)
    for _ in range(STEPS):
        other = free.softmax(-1)
        moved = (
            (model.trace([tokens], attention={last: other}, layers=()).logits.softmax(-1) - target)
            .abs()
            .sum(-1)
        )
        middle = (other + rows) / 2
        far = (
            (other * (other / middle).log()).sum(-1)
            + (rows * (rows / middle).log()).nan_to_num().sum(-1)
        ) / 2
        loss = (500 * (moved / 2 - 0.01).relu()).sum() - far.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def run() -> None:
    texts, test = documents(200), Exclusive(steps=STEPS)
    few = texts[:10]
    for name, model in (
        ("BiLSTM", encoder(texts)),
        ("transformer of MiniLM's size", Transformer(*minilm(), "MiniLM")),
    ):

        def at_once(model: Classifier = model) -> None:
            test.measure(Study(model, texts))

        def one_by_one(model: Classifier = model) -> None:
            for d in few:
                test.measure(Study(model, [d]))

        def whole_passes(model: Classifier = model) -> None:
            for d in few[:3]:
                literal(model, d)

        candidates = {
            "at once": at_once,
            "one by one": one_by_one,
            "one by one, whole passes": whole_passes,
        }
        found = interleave(candidates, rounds=3)
        table(
            f"{STEPS} steps of an adversary for 200, 10 and 3 documents, {name}", found, "at once"
        )
        each = {
            key: found[key].median / n
            for key, n in (
                ("at once", len(texts)),
                ("one by one", 10),
                ("one by one, whole passes", 3),
            )
        }
        for key in ("one by one", "one by one, whole passes"):
            print(f"\nper document, {key}: {each[key] / each['at once']:.0f} times slower")
