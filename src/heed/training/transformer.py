"""Training transformers: a given one further, or a small one from scratch.

All randomness of a step comes from the seed and the step's number.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from heed.errors import NotApplicable
from heed.models import pretrained
from heed.models.folders import FACTS, write_json, writing
from heed.models.hook import Recorder, install, recording
from heed.models.passes import Row
from heed.models.sources import identity
from heed.models.transformer import Transformer
from heed.randomness import generator
from heed.text import Document, Tokens
from heed.training import recipes
from heed.training.card import transformer_card
from heed.training.examples import Batch, shuffled_batches, split
from heed.training.loop import Run, Training, adamw, averaged, cosine, train
from heed.training.recipes import Tuning
from heed.training.unfinished import Unfinished

_SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
_CLIP = 1.0  # the largest norm of a gradient


@dataclass(frozen=True)
class TrainedTransformer(Training):
    """A training whose `model` is a view of a network of Hugging Face's libraries."""

    model: Transformer
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def fit(
    documents: Sequence[Document],
    labels: Sequence[str],
    recipe: Tuning,
    seed: int = 0,
    name: str = "transformer",
    validation: Sequence[Document] | None = None,
    *,
    base: str | Path | None = None,
    size: tuple[int, int] = (2, 128),
    tokenizer: PreTrainedTokenizerBase | None = None,
    uniform: bool = False,
    resume: Path | None = None,
) -> TrainedTransformer:
    """Train the model `base`, or one of `size` (layers, width) from scratch; keep the best epoch.

    tokenizer   of a model from scratch, in place of one that is made from the documents
    uniform     all layers attend to everything alike; the trained model then has to be run in
                `hook.recording` with a recorder that says so
    resume      a folder for the state; if it holds one of the same training, that is resumed
    """
    rng = np.random.default_rng(seed)
    learnt, held = split(documents, validation, labels, recipe.validation, rng)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if base is None:
            network, tokenizer = scratch(learnt, labels, recipe, size, tokenizer)
        else:
            network, tokenizer = _pretrained(base, labels, recipe)
    start: dict[str, Any] = {"size": list(size)} if base is None else {"base": identity(base)}
    start["uniform"] = uniform
    unfinished = Unfinished.of(resume, __name__, recipe, seed, [*learnt, *held], **start)
    run = Run(network, _optimizer(network, recipe), averaged(network, recipe.average))
    model = Transformer(run.kept, tokenizer, name)
    if uniform and not install(network):
        raise NotApplicable(
            f"{name} cannot be trained with uniform attention: its family has attention code of"
            " its own."
        )
    steps = recipe.epochs * math.ceil(len(learnt) / recipe.batch)
    with recording(Recorder(uniform=True)) if uniform else nullcontext():
        task = _MaskedTokens(recipe, seed, model, learnt, held, rng)
        options: dict[str, Any] = {"schedule": cosine(steps, recipe.warmup), "clip": _CLIP}
        train(run, task, recipe.epochs, **options, unfinished=unfinished)
    progress = (run.history, run.best, run.seconds)
    return TrainedTransformer(model, recipe, *progress, run.kept, tokenizer)


def _optimizer(network: PreTrainedModel, recipe: Tuning) -> torch.optim.Optimizer:
    """AdamW; biases and norms are not decayed."""
    groups: list[dict[str, Any]] = [
        {"params": [p for p in network.parameters() if p.ndim >= 2]},
        {"params": [p for p in network.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return adamw(groups, recipe)


class _MaskedTokens:
    """Learn labels while some tokens are masked: a `Task` of the loop.

    `model` is a view of the network that is kept, and sees its weights as they move.
    """

    def __init__(
        self,
        recipe: Tuning,
        seed: int,
        model: Transformer,
        learnt: Sequence[Document],
        held: Sequence[Document],
        rng: np.random.Generator,
    ):
        self.recipe, self.seed, self.model, self.rng = recipe, seed, model, rng
        self.learnt, self.held = model.tokens(learnt), model.tokens(held)
        self.gold = torch.tensor([d.label for d in learnt])

    def batches(self, epoch: int) -> list[Batch]:
        ids = [t.ids for t in self.learnt]
        return shuffled_batches(ids, self.recipe.batch, generator(self.seed, "order", epoch))

    def loss(self, network: Any, batch: Batch, step: int) -> Float[Tensor, ""]:
        rng = generator(self.seed, "step", step)
        rows = [Row(self._mask(self.learnt[i], rng), self.learnt[i].types) for i in batch]
        inputs, _ = self.model.inputs(rows)
        torch.manual_seed(int(rng.integers(1 << 62)))
        logits, gold = network(**inputs).logits, self.gold[batch]
        return functional.cross_entropy(logits, gold, label_smoothing=self.recipe.smoothing)

    def _mask(self, tokens: Tokens, rng: np.random.Generator) -> Int[np.ndarray, "token"]:
        masked = ~tokens.special & (rng.random(len(tokens)) < self.recipe.word_dropout)
        return np.where(masked, self.model.filler, tokens.ids)

    def validate(self, network: Any) -> dict[str, float]:
        gold = np.array([t.document.label for t in self.held])
        return {"accuracy": float((self.model.logits(self.held).argmax(1) == gold).mean())}


def save(
    trained: TrainedTransformer, folder: Path, facts: Mapping[str, Any], fp16: bool = False
) -> None:
    """Write a model as Hugging Face's libraries read it; `facts` (data, recipe …) are heed's."""
    network = copy.deepcopy(trained.network).half() if fp16 else trained.network
    with writing(folder) as scratch, pretrained.quiet():
        network.save_pretrained(scratch)
        trained.tokenizer.save_pretrained(scratch)
        write_json(scratch / FACTS, facts)
        (scratch / "README.md").write_text(transformer_card(trained, facts), encoding="utf8")


# The model to train


def _pretrained(
    base: str | Path, labels: Sequence[str], recipe: Tuning
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model by folder or id, with a new head unless it has one of the same size."""
    network, tokenizer, _ = pretrained.read(
        base,
        ignore_mismatched_sizes=True,
        problem_type="single_label_classification",
        **_names(labels),
    )
    tokenizer.model_max_length = min(recipe.max_tokens, pretrained.longest(network, tokenizer))
    return network, tokenizer


def scratch(
    documents: Sequence[Document],
    labels: Sequence[str],
    recipe: Tuning,
    size: tuple[int, int],
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model of `size` (layers, width), and the tokenizer of word pieces of the documents, or that
    which is given.
    """
    layers, width = size
    recipes.check_heads(size, recipe)
    if tokenizer is None:
        texts = (segment for d in documents for segment in d.segments)
        backend = _wordpiece(texts, recipe.vocabulary)
        typed = ["token_type_ids"] if recipe.family == "bert" else []
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend,
            model_max_length=recipe.max_tokens,
            # set here, it is saved with the tokenizer: pairs read back keep their segments
            model_input_names=["input_ids", *typed, "attention_mask"],
            **_SPECIAL,
        )
    options = _family_options(recipe) | {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": recipe.heads,
        "initializer_range": 0.05,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
    }
    if recipe.family != "gpt2":
        options["intermediate_size"] = 4 * width
    config = AutoConfig.for_model(recipe.family, **options, **_names(labels))
    return AutoModelForSequenceClassification.from_config(config), tokenizer


def _family_options(recipe: Tuning) -> dict[str, Any]:
    """What each family calls its own.

    There is no dropout of attention, which doubles the time of a step on a CPU: masked tokens do
    its work.
    """
    positions = {"max_position_embeddings": recipe.max_tokens}
    dropout = {"hidden_dropout_prob": recipe.dropout, "attention_probs_dropout_prob": 0.0}
    shared_keys = {"num_key_value_heads": recipe.heads // 2}
    options: dict[str, dict[str, Any]] = {
        "bert": positions | dropout,
        # its positions begin behind the id of padding
        "roberta": {"max_position_embeddings": recipe.max_tokens + 2, "type_vocab_size": 1}
        | dropout,
        "gpt2": {
            "n_positions": recipe.max_tokens,
            "resid_pdrop": recipe.dropout,
            "embd_pdrop": recipe.dropout,
            "attn_pdrop": 0.0,
            "summary_first_dropout": recipe.dropout,
        },
        "llama": positions | shared_keys,
        "mistral": positions | shared_keys | {"sliding_window": max(2, recipe.max_tokens // 4)},
    }
    return options[recipe.family]


def _names(labels: Sequence[str]) -> dict[str, Any]:
    numbers = {name: i for i, name in enumerate(labels)}
    return {"id2label": dict(enumerate(labels)), "label2id": numbers}


def _wordpiece(texts: Iterable[str], size: int) -> tokenizers.Tokenizer:
    """A WordPiece tokenizer. Unlike the library's own trainer, the same texts give the same one."""
    n = tokenizers.normalizers
    normalizer = n.Sequence([n.Replace(tokenizers.Regex(r"(?i)<br ?/?>"), " "), n.BertNormalizer()])
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    for text in texts:
        words.update(w for w, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    pieces = _pieces(words, size)
    vocabulary = {piece: i for i, piece in enumerate([*_SPECIAL.values(), *pieces])}
    model = tokenizers.models.WordPiece(vocabulary, unk_token=_SPECIAL["unk_token"])
    backend = tokenizers.Tokenizer(model)
    backend.normalizer, backend.pre_tokenizer = normalizer, splitter
    backend.decoder = tokenizers.decoders.WordPiece()
    cls, sep = _SPECIAL["cls_token"], _SPECIAL["sep_token"]
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    return backend


def _pieces(words: Mapping[str, int], size: int) -> list[str]:
    """Word pieces by merging frequent pairs, from words and how often they occur.

    A character inside a word is another symbol than the same one at its beginning. While pairs are
    merged it is written as one of a private range of Unicode, because the library numbers pieces
    with a prefix in random order.
    """
    characters = sorted(set("".join(words)))[:0xFFFE]
    inner = {c: chr(0xF0000 + i) for i, c in enumerate(characters)}
    outer = {symbol: c for c, symbol in inner.items()}
    written = {}
    for word, count in sorted(words.items()):
        written[word[0] + "".join(inner.get(c, "") for c in word[1:])] = count
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size - len(_SPECIAL), show_progress=False)
    backend.train_from_iterator((" ".join([w] * n) for w, n in written.items()), trainer)
    merged = backend.get_vocab()
    pieces = []
    for piece in sorted(merged, key=merged.__getitem__):
        prefix = "##" if piece[0] in outer else ""
        pieces.append(prefix + "".join(outer.get(c, c) for c in piece))
    return pieces
