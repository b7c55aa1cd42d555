"""Training transformers: a given one further, or a small one from scratch with a tokenizer of its own.

All randomness of a step comes from the seed and the step's number, so that a training that was interrupted goes on
from its last saved state to the same weights, bit for bit, as if nothing had happened.
"""

from __future__ import annotations

import copy
import json
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import tokenizers
import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from heed.errors import InputError, NotApplicable, OutputError
from heed.models import transformer
from heed.models.folders import FACTS, PARTIAL, UNFINISHED, writing
from heed.models.hook import Recorder, install, recording
from heed.models.passes import Row
from heed.models.transformer import Transformer
from heed.progress import counter, say
from heed.randomness import generator
from heed.text import Document, Tokens
from heed.training import recipes
from heed.training.own import card, parts, shuffled_batches
from heed.training.recipes import Tuning

_SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
_SAVE_EVERY = 120.0  # seconds


@dataclass(frozen=True)
class Tuned:
    """A trained transformer and how it came about: one row of `history` per epoch."""

    model: Transformer
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    recipe: Tuning
    history: list[dict[str, float]]
    best: int
    seconds: float


def tune(
    documents: Sequence[Document],
    labels: Sequence[str],
    recipe: Tuning,
    base: str | Path | None = None,
    size: tuple[int, int] = (2, 128),
    seed: int = 0,
    name: str = "transformer",
    validation: Sequence[Document] | None = None,
    resume: Path | None = None,
    uniform: bool = False,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Tuned:
    """Train the model `base`, or one of `size` (layers, width) from scratch, and keep the best epoch.

    The state of the training is kept in the folder `resume`; if it holds one of the same training, that goes on. With
    `uniform`, all layers attend to everything alike; the trained model then has to be run in `hook.recording` with a
    recorder that says so. A model from scratch reads by the given tokenizer, or by one made from the documents.
    """
    train, held = parts(
        documents, validation, labels, recipe.validation, np.random.default_rng(seed)
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if base is None:
            network, tokenizer = scratch(train, labels, recipe, size, tokenizer)
        else:
            network, tokenizer = _pretrained(base, labels, recipe)
    run = _Run(network, tokenizer, name, recipe, train, held, seed)
    state = (
        None if resume is None else _State(resume, _identity(recipe, base, size, seed, train, held))
    )
    if state is not None and state.restore(run):
        say(f"resuming after {run.step:,} of {run.steps:,} steps")
    if uniform and not install(network):
        raise NotApplicable(
            f"The attention of {name} cannot be replaced: its family has its own code for it."
        )
    with recording(Recorder(uniform=True)) if uniform else nullcontext():
        _train(run, state)
    run.averaged.load_state_dict(run.best)
    chosen = int(np.argmax([row["accuracy"] for row in run.history])) + 1
    return Tuned(run.subject, run.averaged, tokenizer, recipe, run.history, chosen, run.seconds)


def _train(run: _Run, state: _State | None) -> None:
    saved = time.monotonic()
    with _deferred_interrupt() as interrupt:
        for epoch in range(len(run.history) + 1, run.recipe.epochs + 1):
            done = run.step - (epoch - 1) * run.per_epoch
            label = f"epoch {epoch}/{run.recipe.epochs}"
            shown = counter(run.per_epoch, label, "batch", done)
            for batch in run.order(epoch)[done:]:
                run.learn(batch)
                shown.advance()
                shown.note(f"loss {run.loss / (run.step - (epoch - 1) * run.per_epoch):.3f}")
                if state is not None and (
                    interrupt.asked or time.monotonic() - saved > _SAVE_EVERY
                ):
                    state.save(run)
                    saved = time.monotonic()
                if interrupt.asked:
                    raise KeyboardInterrupt
            shown.close()
            row = run.validate(epoch)
            if state is not None:
                state.save(run)
                saved = time.monotonic()
            say(
                f"epoch {epoch:>2}  loss {row['loss']:.4f}  validation accuracy {row['accuracy']:.4f}"
            )
            if interrupt.asked:
                raise KeyboardInterrupt


@dataclass
class _Interrupt:
    asked: bool = False


@contextmanager
def _deferred_interrupt() -> Iterator[_Interrupt]:
    """Ctrl-C waits for the step in hand, so that no half of it is saved; pressed twice it does not wait."""
    interrupt = _Interrupt()

    def ask(number: int, frame: Any) -> None:
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.asked = True

    if threading.current_thread() is not threading.main_thread():  # which alone hears of signals
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


def save(tuned: Tuned, folder: Path, facts: Mapping[str, Any], half: bool = False) -> None:
    """Write a model as Hugging Face's libraries read it; `facts` (data, recipe …) are heed's own file."""
    with writing(folder) as scratch, transformer.quiet():
        (copy.deepcopy(tuned.network).half() if half else tuned.network).save_pretrained(scratch)
        tuned.tokenizer.save_pretrained(scratch)
        (scratch / FACTS).write_text(
            json.dumps(dict(facts), indent=1, ensure_ascii=False) + "\n", encoding="utf8"
        )
        (scratch / "README.md").write_text(tuned_card(tuned, facts), encoding="utf8")


def tuned_card(tuned: Tuned, facts: Mapping[str, Any]) -> str:
    config = tuned.network.config
    heads, layers = (
        getattr(config, "num_attention_heads", "?"),
        getattr(config, "num_hidden_layers", "?"),
    )
    millions = sum(p.numel() for p in tuned.network.parameters()) / 1e6
    base = facts["base"]
    return card(
        facts,
        tuned.model.name,
        f"A {config.model_type} classifier for the labels {', '.join(tuned.model.labels)},"
        f" {f'fine-tuned from {base}' if base else 'trained from scratch'}.",
        f"{layers} layer{'s' * (layers != 1)}, {heads} heads, {millions:.1f} million weights,"
        f" {len(tuned.tokenizer):,} word pieces; reads {tuned.model.tokenizer.max_tokens} tokens",
        "it reads the beginning of a long text and was trained on nothing but the data above"
        + (
            " and what its base had seen."
            if base
            else ": words that are rare there mean little to it."
        ),
    )


def round_to_half(tuned: Tuned) -> None:
    """Round the weights to what half precision can hold."""
    for parameter in tuned.network.parameters():
        parameter.data.copy_(parameter.data.half())


# The model to train


def _pretrained(
    base: str | Path, labels: Sequence[str], recipe: Tuning
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model by folder or id, with a new head unless it has one of the same size."""
    network, tokenizer, _ = transformer.read(
        base,
        ignore_mismatched_sizes=True,
        problem_type="single_label_classification",
        **_names(labels),
    )
    tokenizer.model_max_length = min(recipe.max_tokens, transformer.longest(network, tokenizer))
    return network, tokenizer


def scratch(
    documents: Sequence[Document],
    labels: Sequence[str],
    recipe: Tuning,
    size: tuple[int, int],
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model of so many layers and such a width, and a WordPiece tokenizer of the documents (or a given one)."""
    layers, width = size
    recipes.check_heads(size, recipe)
    if tokenizer is None:
        backend = _wordpiece(
            (segment for d in documents for segment in d.segments), recipe.vocabulary
        )
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend, model_max_length=recipe.max_tokens, **_SPECIAL
        )
        typed = ["token_type_ids"] if recipe.family == "bert" else []
        tokenizer.model_input_names = ["input_ids", *typed, "attention_mask"]
    options = _OPTIONS[recipe.family](recipe) | {
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


# What each family calls its own. Dropout of attention doubles the time of a step on a CPU: dropped words do its work.
_OPTIONS: dict[str, Callable[[Tuning], dict[str, Any]]] = {
    "bert": lambda r: {
        "max_position_embeddings": r.max_tokens,
        "hidden_dropout_prob": r.dropout,
        "attention_probs_dropout_prob": 0.0,
    },
    "roberta": lambda r: {  # its positions begin behind the id of padding
        "max_position_embeddings": r.max_tokens + 2,
        "type_vocab_size": 1,
        "hidden_dropout_prob": r.dropout,
        "attention_probs_dropout_prob": 0.0,
    },
    "gpt2": lambda r: {
        "n_positions": r.max_tokens,
        "resid_pdrop": r.dropout,
        "embd_pdrop": r.dropout,
        "attn_pdrop": 0.0,
        "summary_first_dropout": r.dropout,
    },
    "llama": lambda r: {
        "max_position_embeddings": r.max_tokens,
        "num_key_value_heads": r.heads // 2,
    },
    "mistral": lambda r: {
        "max_position_embeddings": r.max_tokens,
        "num_key_value_heads": r.heads // 2,
        "sliding_window": max(2, r.max_tokens // 4),
    },
}


def _names(labels: Sequence[str]) -> dict[str, Any]:
    return {
        "id2label": dict(enumerate(labels)),
        "label2id": {name: i for i, name in enumerate(labels)},
    }


def _wordpiece(texts: Iterable[str], size: int) -> tokenizers.Tokenizer:
    """A WordPiece tokenizer; the same texts give the same one, which the library's own trainer does not promise."""
    n = tokenizers.normalizers
    normalizer = n.Sequence([n.Replace(tokenizers.Regex(r"(?i)<br ?/?>"), " "), n.BertNormalizer()])
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    pieces = _pieces(
        (w for t in texts for w, _ in splitter.pre_tokenize_str(normalizer.normalize_str(t))), size
    )
    vocabulary = {piece: i for i, piece in enumerate([*_SPECIAL.values(), *pieces])}
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(vocabulary, unk_token=_SPECIAL["unk_token"])
    )
    backend.normalizer, backend.pre_tokenizer = normalizer, splitter
    backend.decoder = tokenizers.decoders.WordPiece()
    cls, sep = _SPECIAL["cls_token"], _SPECIAL["sep_token"]
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    return backend


def _pieces(words: Iterable[str], size: int) -> list[str]:
    """Word pieces by merging frequent pairs.

    A character inside a word is another symbol than the same one at its beginning. While pairs are merged it is
    written as one of a private range of Unicode, because the library numbers pieces with a prefix in random order.
    """
    counts = Counter(words)
    inner = {
        c: chr(0xF0000 + i)
        for i, c in enumerate(sorted({c for w in counts for c in w}))
        if i < 0xFFFE
    }
    outer = {symbol: c for c, symbol in inner.items()}
    written = {
        w[0] + "".join(inner.get(c, "") for c in w[1:]): n for w, n in sorted(counts.items())
    }
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size - len(_SPECIAL), show_progress=False)
    backend.train_from_iterator((" ".join([w] * n) for w, n in written.items()), trainer)
    merged = backend.get_vocab()
    plain = [
        "".join(outer.get(c, c) for c in piece) for piece in sorted(merged, key=merged.__getitem__)
    ]
    starts = [piece[0] not in outer for piece in sorted(merged, key=merged.__getitem__)]
    return [piece if start else f"##{piece}" for piece, start in zip(plain, starts, strict=True)]


# The loop


class _Run:
    """A network in training: its optimiser and schedule, the running mean of its weights, the best so far."""

    def __init__(
        self,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        recipe: Tuning,
        train: Sequence[Document],
        held: Sequence[Document],
        seed: int,
    ):
        self.network, self.recipe, self.seed = network, recipe, seed
        self.averaged = copy.deepcopy(network) if recipe.average else network
        self.subject = Transformer(self.averaged, tokenizer, name)  # sees the weights as they move
        self.train, self.held = self.subject.tokens(train), self.subject.tokens(held)
        self.gold = torch.tensor([d.label for d in train])
        plain = [p for p in network.parameters() if p.ndim < 2]  # biases and norms are not decayed
        matrices = [p for p in network.parameters() if p.ndim >= 2]
        groups: list[dict[str, Any]] = [
            {"params": matrices},
            {"params": plain, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
        )
        self.per_epoch = math.ceil(len(train) / recipe.batch)
        self.steps = recipe.epochs * self.per_epoch
        self.step, self.loss, self.seconds = 0, 0.0, 0.0
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Tensor] = {}

    def order(self, epoch: int) -> list[Int[np.ndarray, "_"]]:
        return shuffled_batches(
            [t.ids for t in self.train], self.recipe.batch, generator(self.seed, "order", epoch)
        )

    def learn(self, batch: Int[np.ndarray, "_"]) -> None:
        began, recipe = time.perf_counter(), self.recipe
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.learning_rate * self._share()
        rng = generator(self.seed, "step", self.step)
        tokens = [self.train[i] for i in batch]
        inputs, _ = self.subject.inputs([Row(self._drop_words(t, rng), t.types) for t in tokens])
        with torch.random.fork_rng():
            torch.manual_seed(int(rng.integers(1 << 62)))
            logits = self.network.train()(**inputs).logits
        loss = nn.functional.cross_entropy(
            logits, self.gold[batch], label_smoothing=recipe.smoothing
        )
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        self.loss += loss.item()
        if recipe.average:
            decay = min(recipe.average, self.step / (self.step + 10))
            with torch.no_grad():
                torch._foreach_lerp_(
                    list(self.averaged.parameters()), list(self.network.parameters()), 1 - decay
                )
        self.seconds += time.perf_counter() - began

    def _share(self) -> float:
        """Of the learning rate: up over the warm-up, then a cosine down to zero."""
        warm = self.recipe.warmup * self.steps
        if self.step < warm:
            return (self.step + 1) / (warm + 1)
        return 0.5 * (1 + math.cos(math.pi * (self.step - warm) / max(1.0, self.steps - warm)))

    def _drop_words(self, tokens: Tokens, rng: np.random.Generator) -> Int[np.ndarray, "token"]:
        dropped = ~tokens.special & (rng.random(len(tokens)) < self.recipe.word_dropout)
        return np.where(dropped, self.subject.filler, tokens.ids)

    def validate(self, epoch: int) -> dict[str, float]:
        """Close an epoch: measure, and keep the weights if they are the best so far."""
        began = time.perf_counter()
        gold = np.array([t.document.label for t in self.held])
        correct = float((self.subject.logits(self.held).argmax(1) == gold).mean())
        if correct > max((r["accuracy"] for r in self.history), default=-1.0):
            self.best = {key: value.clone() for key, value in self.averaged.state_dict().items()}
        self.history.append(
            {"epoch": epoch, "loss": self.loss / self.per_epoch, "accuracy": correct}
        )
        self.loss = 0.0
        self.seconds += time.perf_counter() - began
        return self.history[-1]


# Going on after an interruption


def _identity(
    recipe: Tuning,
    base: str | Path | None,
    size: tuple[int, int],
    seed: int,
    train: Sequence[Document],
    held: Sequence[Document],
) -> dict[str, Any]:
    """What must be the same for a training to go on."""
    data = [(d.text, d.pair or "", d.label) for d in (*train, *held)]
    start = {"size": list(size)} if base is None else {"base": str(base)}
    return {
        "recipe": asdict(recipe),
        "seed": seed,
        "data": int(generator(json.dumps(data)).integers(1 << 53)),
        **start,
    }


class _State:
    """A training's state on disk: tensors in a safetensors file, whose header holds the numbers."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]):
        self.path, self.identity = folder / UNFINISHED, json.dumps(identity, sort_keys=True)

    def save(self, run: _Run) -> None:
        tensors = {f"now.{k}": v for k, v in run.network.state_dict().items()}
        if run.recipe.average:
            tensors |= {f"averaged.{k}": v for k, v in run.averaged.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in run.best.items()}
        for i, moments in run.optimizer.state_dict()["state"].items():
            tensors |= {f"moments.{i}.{k}": v for k, v in moments.items()}
        numbers = {
            "step": run.step,
            "loss": run.loss,
            "seconds": run.seconds,
            "history": run.history,
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self.path.with_name(PARTIAL)
            header = {"identity": self.identity, "numbers": json.dumps(numbers)}
            # a clone each, because tied weights share their memory
            safetensors.torch.save_file(
                {k: v.detach().clone().contiguous() for k, v in tensors.items()}, scratch, header
            )
            scratch.replace(self.path)
        except OSError as error:
            raise OutputError(
                f"The state of the training cannot be written to {self.path} ({error})."
            ) from None

    def restore(self, run: _Run) -> bool:
        """Put a run where the saved one stopped; False if there is none."""
        if not self.path.exists():
            return False
        try:
            with safetensors.safe_open(self.path, "pt") as file:
                header = file.metadata()
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - a file is no dict
            numbers, identity = json.loads(header["numbers"]), header["identity"]
        except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.path} cannot be read ({error}): remove it to begin anew."
            ) from None
        if identity != self.identity:
            raise InputError(
                f"{self.path} belongs to a training with other data or settings: remove it to begin anew, or choose"
                " another folder."
            )

        def part(prefix: str) -> dict[str, Tensor]:
            return {
                key.removeprefix(prefix): value
                for key, value in tensors.items()
                if key.startswith(prefix)
            }

        run.network.load_state_dict(part("now."))
        if run.recipe.average:
            run.averaged.load_state_dict(part("averaged."))
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in part("moments.").items():
            number, name = key.split(".", 1)
            moments.setdefault(int(number), {})[name] = value
        run.optimizer.load_state_dict(run.optimizer.state_dict() | {"state": moments})
        run.best = part("best.")
        run.step, run.loss, run.seconds, run.history = (
            numbers[k] for k in ("step", "loss", "seconds", "history")
        )
        return True
