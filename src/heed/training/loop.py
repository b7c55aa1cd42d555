"""The one loop that trains every network of heed.

A `Task` gives the batches of an epoch, the loss of each, and what the epoch achieved on validation
documents. The loop steps, averages the weights, keeps the best epoch, and saves its state, from
which a training that was interrupted resumes to the same weights, bit for bit.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel

from heed.progress import counter, say
from heed.training.examples import Batch
from heed.training.unfinished import Unfinished

_SAVE_EVERY = 120.0  # seconds


class Task(Protocol):
    """What a network learns.

    rng   draws the order of the documents, and whatever else an epoch draws at its start
    """

    rng: np.random.Generator

    def batches(self, epoch: int) -> list[Batch]:
        """The documents of each step of an epoch. Torch's generator may be seeded here."""

    def loss(self, network: Any, batch: Batch, step: int) -> Float[Tensor, ""]:
        """What is to become small."""

    def validate(self, network: Any) -> dict[str, float]:
        """What the epoch achieved. The first number is judged; larger is better."""


@dataclass(frozen=True)
class Training:
    """A trained model and how it came about: one row of `history` per epoch."""

    model: Any
    recipe: Any
    history: list[dict[str, float]]
    best: int
    seconds: float


@dataclass
class Run:
    """A network in training: what it takes to resume, and what has come of it so far.

    averaged   the running mean of the weights, which is validated and kept; None: the weights
    order      the state of the task's generator when the epoch began
    best       the number of the best epoch so far, and `weights` are its weights
    """

    network: nn.Module
    optimizer: torch.optim.Optimizer
    averaged: AveragedModel | None = None
    step: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    order: Mapping[str, Any] = field(default_factory=dict)
    best: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)

    @property
    def kept(self) -> nn.Module:
        """The network whose weights are validated and kept."""
        return self.network if self.averaged is None else self.averaged.module


def averaged(network: nn.Module, decay: float) -> AveragedModel | None:
    """A running mean of the weights of a network; none, if the decay is 0."""
    if not decay:
        return None

    @torch.no_grad()
    def average(means: Any, weights: Any, updates: Tensor | int) -> None:
        step = int(updates)
        # at first the mean follows faster than the decay says, away from the random start
        torch._foreach_lerp_(means, weights, 1 - min(decay, step / (step + 10)))

    mean = AveragedModel(network, multi_avg_fn=average)
    mean.n_averaged += 1  # the weights at the start count; else the first step would replace them
    return mean


def cosine(steps: int, warmup: float = 0.0) -> Callable[[int], float]:
    """The share of the learning rate at each step: up over the warm-up, then down to zero."""
    warm = warmup * steps

    def share(step: int) -> float:
        if step < warm:
            return (step + 1) / (warm + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm)))

    return share


def constant(step: int) -> float:
    return 1.0


def adamw(parameters: Any, recipe: Any) -> torch.optim.Optimizer:
    """The optimizer of a recipe."""
    rate, decay = recipe.learning_rate, recipe.weight_decay
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)


def train(
    run: Run,
    task: Task,
    epochs: int,
    *,
    schedule: Callable[[int], float] = constant,
    clip: float | None = None,
    patience: int | None = None,
    unfinished: Unfinished | None = None,
) -> None:
    """Learn epoch by epoch, and leave the weights of the best epoch in `run.kept`.

    schedule     the share of the learning rate at each step
    clip         the largest norm of a gradient
    patience     stop after so many epochs that were not better than the best
    unfinished   where the state is kept; if it holds one of the same training, that is resumed
    """
    for group in run.optimizer.param_groups:
        for parameter in group["params"]:
            parameter.requires_grad_()
    run.order = task.rng.bit_generator.state
    # networks draw their dropout from torch's generator, which belongs to the user
    with _deferred_interrupt() as interrupt, torch.random.fork_rng(devices=[]):
        drawn = None if unfinished is None else unfinished.restore(run)
        scheduler = LambdaLR(run.optimizer, schedule)
        if run.step:  # the first one has noted the learning rate, without which none can go on
            scheduler = LambdaLR(run.optimizer, schedule, last_epoch=run.step - 1)
        saved = time.monotonic()
        while len(run.history) < epochs and not _spent(run, patience):
            epoch = len(run.history) + 1
            run.network.train()
            task.rng.bit_generator.state = run.order
            if drawn is not None:
                torch.set_rng_state(drawn)
            batches = task.batches(epoch)
            done = run.step - (epoch - 1) * len(batches)
            if drawn is not None and done:  # what the epoch began with is drawn already
                torch.set_rng_state(drawn)
            drawn = None
            with counter(len(batches), f"epoch {epoch}/{epochs}", "batch", done) as bar:
                for batch in batches[done:]:
                    _learn(run, task, batch, scheduler, clip)
                    bar.advance()
                    bar.note(f"loss {run.loss / (run.step - (epoch - 1) * len(batches)):.3f}")
                    late = time.monotonic() - saved > _SAVE_EVERY
                    if unfinished is not None and (interrupt.is_set() or late):
                        unfinished.save(run)
                        saved = time.monotonic()
                    if interrupt.is_set():
                        raise KeyboardInterrupt
            _close_epoch(run, task, len(batches))
            if unfinished is not None:
                unfinished.save(run)
                saved = time.monotonic()
            if interrupt.is_set():
                raise KeyboardInterrupt
    run.kept.load_state_dict(run.weights)
    run.kept.eval().requires_grad_(False)


def _learn(run: Run, task: Task, batch: Batch, scheduler: LambdaLR, clip: float | None) -> None:
    began = time.perf_counter()
    loss = task.loss(run.network, batch, run.step)
    run.optimizer.zero_grad()
    loss.backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(run.network.parameters(), clip)
    run.optimizer.step()
    scheduler.step()
    if run.averaged is not None:
        run.averaged.update_parameters(run.network)
    run.step += 1
    run.loss += loss.item()
    run.seconds += time.perf_counter() - began


def _close_epoch(run: Run, task: Task, batches: int) -> None:
    """Measure what the epoch achieved, and keep the weights if they are the best so far."""
    began = time.perf_counter()
    epoch = len(run.history) + 1
    achieved = task.validate(run.kept.eval())
    judged = next(iter(achieved))
    if not run.weights or achieved[judged] > run.history[run.best - 1][judged]:
        run.best = epoch
        run.weights = {key: value.clone() for key, value in run.kept.state_dict().items()}
    run.history.append({"epoch": epoch, "loss": run.loss / batches} | achieved)
    run.loss, run.order = 0.0, task.rng.bit_generator.state
    run.seconds += time.perf_counter() - began
    numbers = "  ".join(f"{key} {value:.4f}" for key, value in achieved.items())
    say(f"epoch {epoch:>2}  loss {run.history[-1]['loss']:.4f}  validation {numbers}")


def _spent(run: Run, patience: int | None) -> bool:
    return patience is not None and len(run.history) - run.best >= patience


@contextmanager
def _deferred_interrupt() -> Iterator[threading.Event]:
    """Ctrl-C waits for the step in hand, so that no half of it is saved; a second one does not."""
    interrupt = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if interrupt.is_set():
            raise KeyboardInterrupt
        interrupt.set()

    if threading.current_thread() is not threading.main_thread():  # which alone hears of signals
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
