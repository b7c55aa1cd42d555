"""What heed's own models share: a network, a word-level tokenizer, names of labels, a folder."""

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

from heed.errors import CheckpointError, InputError, quoted
from heed.models.classifier import Classifier
from heed.models.folders import ODD_TEXT, reading
from heed.settings import read as read_settings
from heed.text import Tokenizer

_MOST_WORDS = 1_000_000  # more than any document has; positions take memory for each


def redraw_weights(network: nn.Module, seed: int) -> None:
    """Draw every tensor of weights anew, around the mean that it had and as widely spread."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            spread = weights.std() if weights.numel() > 1 else weights.abs().mean()
            noise = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
            weights.copy_(weights.mean() + spread * noise)


def round_to_fp16(network: nn.Module) -> None:
    """Round the weights to what half precision can hold, so that storing it loses nothing more."""
    for parameter in network.parameters():
        parameter.data.copy_(parameter.data.half())


class NetworkClassifier(Classifier):
    """A classifier of heed's own: a network that has a `shape`.

    kind            its name in a `model.json`
    title           its name in sentences
    shape_class     what holds its sizes
    network_class   what is made of them
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    shape_class: ClassVar[type]
    network_class: ClassVar[type[nn.Module]]
    network: Any
    filler = 0
    facts: Mapping[str, Any] = MappingProxyType({})  # how it was trained, as its folder says

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
        network = copy.deepcopy(self.network)
        redraw_weights(network, seed)
        return type(self)(
            network, self.tokenizer, self.labels, f"{self.name}, weights drawn anew", self.pairs
        )

    def to_dict(self) -> dict[str, object]:
        """What a `model.json` says of the model."""
        return {
            "kind": self.kind,
            "labels": list(self.labels),
            "pairs": self.pairs,
            "shape": asdict(self.shape),
        }

    @classmethod
    def restore(cls, config: Mapping[str, Any], state: Mapping[str, Tensor], folder: Path) -> Self:
        """The model of a folder, from its json, its tensors and its tokenizer.

        The caller stands at the door: it makes one sentence of whatever goes wrong in here.
        """
        name = quoted(str(folder))
        with reading(f"The checkpoint {name} does not fit {cls.title}"):
            try:
                sizes = read_settings("the model", cls.shape_class, config["shape"])
                shape = cls.shape_class(**sizes)
            except InputError as error:
                raise ValueError(str(error)) from None
            _check_sizes(sizes, state)
            network = cls.network_class(shape)
            network.load_state_dict({key: value.float() for key, value in state.items()})
        if not all(bool(p.isfinite().all()) for p in network.parameters()):
            raise CheckpointError(f"The weights of {name} are not all finite numbers.")
        labels = config["labels"]
        if len(labels) != shape.labels:
            raise CheckpointError(
                f"The checkpoint {name} must name {shape.labels} labels, got {quoted(labels)}."
            )
        if len(set(labels)) < len(labels):
            raise CheckpointError(f"The checkpoint {name} gives two labels the same name.")
        tokenizer = Tokenizer.load(folder / "tokenizer.json", shape.max_words + 1)
        if len(tokenizer) != shape.vocabulary:
            raise CheckpointError(
                f"The tokenizer of {name} has {len(tokenizer):,} words,"
                f" and the model {shape.vocabulary:,}."
            )
        model = cls(
            network, tokenizer, labels, config.get("name") or folder.name, bool(config.get("pairs"))
        )
        model.facts = config
        model([ODD_TEXT])  # a tokenizer that lacks something fails only when it is used
        return model


def _check_sizes(sizes: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Refuse sizes that no tensor has, before a network of that size fills the memory."""
    largest = max((size for tensor in state.values() for size in tensor.shape), default=0)
    for name, size in sizes.items():
        limit = _MOST_WORDS if name == "max_words" else largest
        if isinstance(size, int) and size > limit:
            raise ValueError(f"{name} is {size}, and at most {limit} fits the weights")
