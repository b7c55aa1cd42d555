"""What heed's own models share: a network, a word-level tokenizer, names of labels, a folder."""

from __future__ import annotations

import copy
import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from heed.errors import CheckpointError, InputError, quoted
from heed.models import classifier as offer
from heed.models.arrays import Attended, Attention, Embeddings, Ids, Mask, Rows, Weights
from heed.models.classifier import At, Attending, Classifier
from heed.models.devices import as_numbers
from heed.models.folders import ODD_TEXT, reading
from heed.models.passes import Passes, Row, attended_to, pad
from heed.models.trace import Trace
from heed.settings import read as read_settings
from heed.text import Tokenizer, Tokens

_MOST_WORDS = 1_000_000  # more than any document has; positions take memory for each


def fingerprint(state: Mapping[str, Tensor], single: bool = False) -> str:
    """What provenance says of the weights of a model, as they are or in `single` precision."""
    digest = hashlib.sha256()
    for key in sorted(state):
        value = state[key].detach().cpu()  # one at a time: all in single precision may not fit
        value = value.float() if single else value
        digest.update(key.encode() + value.contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


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


class AttentionNetwork(nn.Module):
    """A network of heed's own: embeddings `W_e` of words, and perhaps `W_p` of positions."""

    shape: Any
    W_e: nn.Parameter
    W_p: Tensor

    def embedded(self, ids: Ids) -> Embeddings:
        """What the tokens look up."""
        words = nn.functional.embedding(ids, self.W_e)
        return words + self.W_p[: ids.shape[1]] if hasattr(self, "W_p") else words

    def attended(self, ids: Ids, mask: Mask, weights: Weights | None = None) -> Attended:
        """Logits, and the classifying attention, mean over heads: its own, unless it is given."""
        raise NotImplementedError

    def forward(self, ids: Ids, mask: Mask) -> Float[Tensor, "batch label"]:
        return self.attended(ids, mask)[0]


class Inputs(NamedTuple):
    """Documents as a network reads them: ids, which of them are no padding, and embeddings."""

    ids: Ids
    real: Mask
    embeddings: Embeddings

    @property
    def row(self) -> Rows:
        """<cls>, whose row classifies, comes first."""
        return torch.zeros(len(self.ids), dtype=torch.long)


class NetworkClassifier(Passes):
    """A classifier of heed's own: a network that has a `shape`.

    kind            its name in a `model.json`
    title           its name in sentences
    shape_class     what holds its sizes
    network_class   what is made of them
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    shape_class: ClassVar[Any]
    network_class: ClassVar[type[AttentionNetwork]]
    network: Any
    offers = frozenset({offer.ATTENTION, offer.REPLACEABLE, offer.GRADIENT, offer.DIFFERENTIABLE})
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
        return fingerprint(self.network.state_dict())

    def outputs(self, rows: Sequence[Row]) -> Float[np.ndarray, "row label"]:
        ids, real = pad([r.ids for r in rows])
        return as_numbers(self.network(ids, attended_to(rows, real)))

    def trace(
        self,
        tokens: Sequence[Tokens],
        attention: Mapping[int, Attention] | None = None,
        embeddings: Embeddings | None = None,
        layers: Sequence[int] | None = None,
        at: At | None = None,
    ) -> Trace:
        self.place(at)
        ids, real = pad([t.ids for t in tokens], max(self.width(t) for t in tokens))
        if embeddings is None:
            embeddings = self.embeddings(tokens, at).requires_grad_(torch.is_grad_enabled())
        return self.traced(Inputs(ids, real, embeddings), attention or {}, layers)

    def embeddings(self, tokens: Sequence[Tokens], at: At | None = None) -> Embeddings:
        """They are looked up, without a pass."""
        self.place(at)
        ids, _ = pad([t.ids for t in tokens], max(self.width(t) for t in tokens))
        return self.network.embedded(ids).detach()

    @abstractmethod
    def traced(
        self, inputs: Inputs, attention: Mapping[int, Attention], layers: Sequence[int] | None
    ) -> Trace:
        """What one pass through the network shows."""

    def attending(self, tokens: Sequence[Tokens]) -> Attending:
        """With projected values, the output is linear in the one attention: a sum over keys."""
        if offer.PROJECTED not in self.offers:
            return super().attending(tokens)
        with torch.no_grad():
            trace = self.trace(tokens)
            (values,), (projection,) = trace.values, trace.projections
            # what each key would add to the logits if it had all the attention
            worth = torch.einsum("bkto,koc->bktc", values, projection)
            constant = trace.logits - torch.einsum("bkqt,bktc->bc", trace.attention[0], worth)
        return Attending(
            trace,
            lambda rows: torch.einsum("...bkqt,bktc->...bc", rows, worth) + constant,
            linear=True,
        )

    def randomised(self, seed: int) -> Classifier:
        network = copy.deepcopy(self.network)
        redraw_weights(network, seed)
        name = f"{self.name}, weights drawn anew"
        return type(self)(network, self.tokenizer, self.labels, name, self.pairs)

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
        """The model of a folder; the caller makes one sentence of whatever goes wrong in here."""
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
        title, pairs = config.get("name") or folder.name, bool(config.get("pairs"))
        model = cls(network, tokenizer, labels, title, pairs)
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
