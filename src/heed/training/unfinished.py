"""The state of a training on disk, from which it resumes after an interruption."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from heed.errors import InputError, quoted
from heed.models.folders import UNFINISHED
from heed.progress import say
from heed.randomness import generator
from heed.store import code_of, writing
from heed.text import Document

if TYPE_CHECKING:
    from heed.training.loop import Run

_NUMBERS = ("step", "loss", "seconds", "history", "order", "best")


class Unfinished:
    """A state in a folder: tensors in a safetensors file, whose header holds the numbers.

    identity   what must be the same for the training to resume
    module     the one that trains: if its code has changed, the training begins anew
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], module: str):
        self.path = folder / UNFINISHED
        self.identity = json.dumps(identity, sort_keys=True, default=str)
        self.code = code_of(module)

    @classmethod
    def of(
        cls,
        folder: Path | None,
        module: str,
        recipe: Any,
        seed: int,
        documents: Sequence[Document],
        **start: Any,
    ) -> Unfinished | None:
        """The state of a training in a folder, with what must be the same for it to resume."""
        if folder is None:
            return None
        data = [(d.text, d.pair or "", d.label) for d in documents]
        drawn = int(generator(json.dumps(data)).integers(1 << 53))
        identity = {"recipe": asdict(recipe), "seed": seed, "data": drawn, **start}
        return cls(folder, identity, module)

    def save(self, run: Run) -> None:
        tensors = {f"now.{k}": v for k, v in run.network.state_dict().items()}
        if run.averaged is not None:
            tensors |= {f"averaged.{k}": v for k, v in run.averaged.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in run.weights.items()}
        for i, moments in run.optimizer.state_dict()["state"].items():
            tensors |= {f"moments.{i}.{k}": v for k, v in moments.items()}
        tensors["drawn"] = torch.get_rng_state()
        numbers = {name: getattr(run, name) for name in _NUMBERS}
        header = {"identity": self.identity, "code": self.code, "numbers": json.dumps(numbers)}
        with writing(self.path) as scratch:
            # a clone each, because tied weights share their memory
            copies = {k: v.detach().clone().contiguous() for k, v in tensors.items()}
            safetensors.torch.save_file(copies, scratch, header)

    def restore(self, run: Run) -> Tensor | None:
        """Resume a saved run, if there is one; the state that torch's generator then had."""
        if not self.path.exists():
            return None
        try:
            with safetensors.safe_open(self.path, "pt") as file:
                header = file.metadata()
                names = list(file.keys())
                tensors = {name: file.get_tensor(name) for name in names}
            numbers, saved = json.loads(header["numbers"]), header["identity"]
        except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.path} cannot be read ({quoted(str(error))}): remove it to begin anew."
            ) from None
        if saved != self.identity:
            raise InputError(
                f"{self.path} belongs to a training with other data or settings: remove it to"
                " begin anew, or choose another folder."
            )
        if header.get("code") != self.code:
            say("beginning anew: heed or a library has changed since this training was interrupted")
            return None
        run.network.load_state_dict(_part(tensors, "now."))
        if run.averaged is not None:
            run.averaged.load_state_dict(_part(tensors, "averaged."))
        run.weights = _part(tensors, "best.")
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in _part(tensors, "moments.").items():
            number, name = key.split(".", 1)
            moments.setdefault(int(number), {})[name] = value
        run.optimizer.load_state_dict(run.optimizer.state_dict() | {"state": moments})
        for name in _NUMBERS:
            setattr(run, name, numbers[name])
        say(f"resuming after {run.step:,} steps")
        return tensors["drawn"]


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)
    }
