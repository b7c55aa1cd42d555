"""What heed's own models share: a network, a word-level tokenizer, names of the labels, and how a checkpoint holds
them."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from heed.errors import CheckpointError, HeedError
from heed.models.classifier import Classifier
from heed.settings import read as read_settings
from heed.text import Tokenizer


def redrawn(network: nn.Module, seed: int) -> Any:
    """A network with every tensor of weights drawn anew, around the mean that it had and as widely spread."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            spread = weights.std() if weights.numel() > 1 else weights.abs().mean()
            noise = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
            weights.copy_(weights.mean() + spread * noise)
    return network


class Trained(Classifier):
    """A classifier made of a network that says its `shape`.

    kind            its name in a checkpoint's json
    called          its name in sentences
    shaped, made    the classes of the shape and of the network that is made from one
    """

    kind: ClassVar[str]
    called: ClassVar[str]
    shaped: ClassVar[type]
    made: ClassVar[type[nn.Module]]
    network: Any
    filler = 0
    facts: Mapping[str, Any] = MappingProxyType({})  # what its checkpoint says of its training

    def __init__(
        self,
        network: nn.Module,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        name: str = "",
        pairs: bool = False,
    ):
        self.network = network.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.labels = tuple(labels)
        self.name = name or self.kind
        self.pairs = pairs

    @property
    def shape(self) -> Any:
        return self.network.shape

    @cached_property
    def revision(self) -> str:  # type: ignore[override]
        digest = hashlib.sha256()
        for key, value in sorted(self.network.state_dict().items()):
            digest.update(key.encode() + value.contiguous().numpy().tobytes())
        return digest.hexdigest()[:12]

    def randomised(self, seed: int) -> Classifier:
        network = redrawn(copy.deepcopy(self.network), seed)
        return type(self)(
            network, self.tokenizer, self.labels, f"{self.name}, weights drawn anew", self.pairs
        )

    def describe(self) -> dict[str, object]:
        """What a checkpoint's json says of the model."""
        own = {"kind": self.kind, "labels": list(self.labels), "pairs": self.pairs}
        return own | {"shape": asdict(self.shape)}

    @classmethod
    def restore(cls, config: Mapping[str, Any], state: Mapping[str, Tensor], folder: Path) -> Self:
        """The model of a checkpoint, from its json, its tensors and its tokenizer."""
        try:
            shape = cls.shaped(**read_settings("the model", cls.shaped, config["shape"]))
            network = cls.made(shape)
            network.load_state_dict({key: value.float() for key, value in state.items()})
        except (KeyError, TypeError, RuntimeError, ValueError, HeedError) as error:
            why = " ".join(str(error).split())[:300]
            raise CheckpointError(
                f"The checkpoint {folder} does not fit {cls.called} ({why})."
            ) from None
        if not all(bool(p.isfinite().all()) for p in network.parameters()):
            raise CheckpointError(f"The weights of {folder} are not all finite numbers.")
        labels = config.get("labels")
        if (
            not isinstance(labels, list)
            or len(labels) != shape.labels
            or not all(isinstance(n, str) for n in labels)
        ):
            raise CheckpointError(
                f"The checkpoint {folder} must name {shape.labels} labels, got {labels!r}."
            )
        if len(set(labels)) < len(labels):
            raise CheckpointError(f"The checkpoint {folder} gives two labels the same name.")
        tokenizer = Tokenizer.load(folder / "tokenizer.json", shape.max_words + 1)
        if len(tokenizer) != shape.vocabulary:
            raise CheckpointError(
                f"The tokenizer of {folder} has {len(tokenizer):,} words, and the model {shape.vocabulary:,}."
            )
        named = str(config.get("name") or folder.name)
        found = cls(network, tokenizer, labels, named, config.get("pairs") is True)
        found.facts = config
        return found
