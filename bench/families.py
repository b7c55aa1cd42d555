"""What heed offers on every family of the installed `transformers`, and whether it holds.

Each family is built small, with random weights. What it offers is checked against its own code and
against finite differences. The table goes into docs/models.md.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from bench import small
from heed import methods
from heed.errors import HeedError, NotApplicable
from heed.models import classifier as offer
from heed.models.passes import Row
from heed.models.pretrained import quiet
from heed.models.transformer import Transformer

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
TEXTS = [
    "the film was very good , but the plot is not",
    "bad bad bad film",
    "great great film and a very slow story .",
    "it is good and it is bad and it is slow and it is great .",
]
CHEAP: dict[str, dict[str, Any]] = {
    "lime": {"samples": 40},
    "shapley": {"samples": 40},
    "anchors": {"samples": 100},
    "integrated-gradients": {"steps": 8},
}
STEPS = (3e-3, 1e-3, 3e-4)  # how far finite differences go
WITHIN = 2e-3  # of the largest logit


@dataclass
class Family:
    """A family, what it offers, and what of that does not hold."""

    name: str
    model: Transformer | None = None
    refusal: str = ""
    broken: list[str] = field(default_factory=list)


def examine(name: str) -> Family:
    """Build a family, load it with heed, and check all that it offers."""
    family = Family(name)
    with quiet():
        network = small.network(name)
        try:
            family.model = Transformer(network, small.tokenizer(), name)
        except HeedError as error:
            family.refusal = str(error)
            return family
        checks = (plain, hidden, read, replaced, row, gradients, projected, explained)
        for check in checks:
            try:
                family.broken += check(family.model)
            except Exception as error:  # noqa: BLE001
                told = f"{type(error).__name__}: {error}".splitlines()[0]
                family.broken.append(f"{check.__name__}: {told[:100]}")
    return family


def near(a: Tensor, b: Tensor, within: float = WITHIN) -> bool:
    scale = max(1.0, float(b.abs().max()))
    return bool((a - b).abs().max() <= within * scale)


def traced(model: Transformer) -> Iterator[tuple[list[Any], Any]]:
    """The texts in batches that may share a trace, and their traces."""
    tokens = model.tokens(TEXTS)
    for batch in model.batches(tokens):
        documents = [tokens[i] for i in batch]
        with torch.no_grad():
            yield documents, model.trace(documents)


def plain(model: Transformer) -> list[str]:
    """Logits are those of the network itself, one text at a time."""
    if any("changes from pass to pass" in note for note in model.notes):
        return []
    network = small.network(model.name)
    logits = []
    texts = [" ".join(TEXTS), *TEXTS]  # the longest first: a BigBird reads all like its first short
    for tokens in model.tokens(texts):
        inputs = {"input_ids": torch.from_numpy(tokens.ids)[None]}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if model._typed:
            inputs["token_type_ids"] = torch.from_numpy(tokens.types)[None]
        with torch.no_grad():
            logits.append(network(**inputs).logits[0])
    same = near(torch.from_numpy(model(texts)).float(), torch.stack(logits))
    return [] if same else ["plain: other logits than the network's"]


def hidden(model: Transformer) -> list[str]:
    """Where hidden tokens are left out, outputs are those of whole texts with a mask."""
    if not model.gaps:
        return []
    tokens = model.tokens([" ".join(TEXTS), *TEXTS])
    rng = np.random.default_rng(0)
    present = [rng.random((6, len(t))) < rng.random((6, 1)) for t in tokens]
    for rows in present:
        rows[:, 0] = True  # the first token stays, which may be the one that classifies
    left_out = model.perturbed(tokens, present, "hide")
    whole = [
        Row(t.ids, t.types, seen) for t, rows in zip(tokens, present, strict=True) for seen in rows
    ]
    masked = model.run([len(row.ids) for row in whole], whole.__getitem__)
    same = near(torch.from_numpy(left_out), torch.from_numpy(masked), 1e-4)
    return [] if same else ["hidden: other logits without the hidden tokens"]


def read(model: Transformer) -> list[str]:
    """Traces give the same logits; weights are shares, none of them on padding or on the future."""
    if offer.ATTENTION not in model.offers:
        return []
    broken = []
    for documents, trace in traced(model):
        if not near(trace.logits, torch.from_numpy(model.logits(documents)).float()):
            broken.append("read: other logits")
        pairs = trace.tokens[:, None, :, None] & trace.tokens[:, None, None, :]
        for weights in trace.attention:
            if weights.shape[-2:] != pairs.shape[-2:]:
                return ["read: not tokens × tokens"]
            rows = trace.tokens[:, None, :, None]
            if weights.masked_fill(~rows | pairs, 0).abs().max() > 1e-6:
                broken.append("read: weight on padding")
            total = weights.sum(-1).masked_select(trace.tokens[:, None])
            # a sink beside the tokens may take some
            sinks = model.model.config.model_type == "gpt_oss"
            if weights.min() < 0 or total.max() > 1.001 or (total.min() < 0.999 and not sinks):
                broken.append("read: not shares")
    layers = getattr(model.model.config, "num_hidden_layers", 3)
    mixed = offer.BETWEEN not in model.offers
    if len(trace.attention) != layers and not mixed:
        broken.append(f"read: {len(trace.attention)} layers of {layers}")
    return broken


def replaced(model: Transformer) -> list[str]:
    """Own weights change nothing, others arrive, and their gradient is right."""
    if offer.REPLACEABLE not in model.offers:
        return []
    broken = []
    generator = torch.Generator().manual_seed(0)
    for documents, trace in traced(model):
        own = dict(enumerate(trace.attention))
        if not near(model.trace(documents, own).logits, trace.logits):
            broken.append("replaced: own weights change the answer")
        for layer, weights in own.items():
            nothing = model.trace(documents, {layer: torch.full_like(weights, torch.nan)})
            if not torch.equal(nothing.logits, trace.logits):
                broken.append("replaced: not bit for bit if nothing is replaced")
            even = trace.tokens[:, None, None, :] * torch.ones_like(weights)
            even = even / even.sum(-1, keepdim=True)
            other = model.trace(documents, {layer: even})
            if not torch.equal(other.attention[layer], even):
                broken.append("replaced: other weights do not arrive")
            direction = torch.randn(weights.shape, generator=generator)
            direction = direction.masked_fill(weights == 0, 0)
            direction /= direction.norm()
            broken += slope(
                "replaced",
                lambda w, layer=layer, documents=documents: (
                    model.trace(documents, {layer: w}).logits
                ),
                even,
                direction,
            )
    return broken


def slope(
    name: str, logits: Callable[[Tensor], Tensor], at: Tensor, direction: Tensor
) -> list[str]:
    """Whether the gradient along a direction is what a finite difference says."""
    leaf = at.clone().requires_grad_()
    with torch.enable_grad():
        output = logits(leaf)
        combined = (output * torch.linspace(1, 2, output.shape[-1])).sum()
        (gradient,) = torch.autograd.grad(combined, leaf)
    by_gradient = float((gradient * direction).sum())
    weights = torch.linspace(1, 2, output.shape[-1])
    differences = []
    for step in STEPS:
        with torch.no_grad():
            ends = [logits(at + sign * step * direction) for sign in (1, -1)]
        difference = float(((ends[0] - ends[1]).double() * weights).sum()) / (2 * step)
        allowed = 0.05 * abs(difference) + 2e-2 * max(1.0, float(output.detach().abs().max()))
        # a step may cross a kink or a choice of experts: a shorter one does not
        if abs(by_gradient - difference) <= allowed:
            return []
        differences.append(f"{difference:.3g}")
    return [f"{name}: slope {by_gradient:.3g}, by differences {' or '.join(differences)}"]


def row(model: Transformer) -> list[str]:
    """Only the row that classifies has a say in the last layer."""
    if offer.DIFFERENTIABLE not in model.offers:
        return []
    broken = []
    tokens = model.tokens(TEXTS)
    for batch in model.batches(tokens):
        with torch.enable_grad():
            trace = model.trace([tokens[i] for i in batch])
            total = (trace.logits * torch.linspace(1, 2, trace.logits.shape[-1])).sum()
            gradients = torch.autograd.grad(total, trace.attention)
        if any(not bool(g.abs().max() > 0) for g in gradients):
            broken.append("row: a layer has no say")
        moved = gradients[-1].abs().sum((1, 3)) > 0
        for i in range(len(batch)):
            rows = np.flatnonzero(moved[i].numpy()).tolist()
            if trace.row[i] >= 0 and rows != [int(trace.row[i])]:
                broken.append(f"row: {rows} have a say, not {int(trace.row[i])}")
    return broken


def gradients(model: Transformer) -> list[str]:
    """Gradients at the block and at the look-up are what finite differences say."""
    if offer.GRADIENT not in model.offers:
        return []
    broken = []
    generator = torch.Generator().manual_seed(0)
    tokens = model.tokens(TEXTS)
    documents = [tokens[i] for i in next(model.batches(tokens))]
    for at in model.gradients_at:
        embeddings = model.embeddings(documents, at)
        direction = torch.randn(embeddings.shape, generator=generator)
        direction /= direction.norm()
        broken += slope(
            f"gradients at {at}",
            lambda e, at=at: model.trace(documents, embeddings=e, layers=(), at=at).logits,
            embeddings,
            direction,
        )
    return broken


def projected(model: Transformer) -> list[str]:
    """Weights times values times projections are what the layer's linear map puts out."""
    if offer.PROJECTED not in model.offers:
        return []
    broken = []
    tokens = model.tokens(TEXTS)[:1]
    put_out: list[Tensor] = []
    maps: list[Any] = list(dict.fromkeys(model._projections))
    handles = [m.register_forward_hook(lambda m, given, out: put_out.append(out)) for m in maps]
    with torch.no_grad():
        trace = model.trace(tokens)
    for handle in handles:
        handle.remove()
    for layer, output in enumerate(put_out):
        made = torch.einsum(
            "bhqk,bhkd,hdo->bqo",
            trace.attention[layer],
            trace.values[layer],
            trace.projections[layer],
        )
        bias = getattr(model._projections[layer], "bias", None)
        made = made if bias is None else made + bias
        if not near(made.flatten(), output.flatten()):
            broken.append("projected: not what the map puts out")
    return broken if len(put_out) == len(trace.attention) else ["projected: other maps were run"]


def explained(model: Transformer) -> list[str]:
    """Every method explains, or refuses with a sentence."""
    broken = []
    for name, kind in methods.METHODS.items():
        try:
            (explanation,) = kind(**CHEAP.get(name, {})).explain(model, TEXTS[:1])
        except NotApplicable:
            continue
        except HeedError as error:
            broken.append(f"{name}: {error}")
            continue
        if not np.isfinite(explanation.scores).all():
            broken.append(f"{name}: not finite")
    return broken


def table(families: list[Family]) -> Iterator[str]:
    """The rows of the page."""
    heads = ("family", "read", "replace", "∇ attention", "projected", "∇ words at", "mixed lengths")
    yield f"| {' | '.join((*heads, 'not offered, and why'))} |"
    yield "|---" * (len(heads) + 1) + "|"
    for family in families:
        yield f"| {' | '.join(_cells(family))} |"


def _cells(family: Family) -> list[str]:
    model = family.model
    if model is None:
        return [family.name, *["–"] * 6, family.refusal]
    offers = (offer.ATTENTION, offer.REPLACEABLE, offer.DIFFERENTIABLE, offer.PROJECTED)
    cells = [family.name, *("yes" if o in model.offers else "–" for o in offers)]
    places = ", ".join(model.gradients_at) if offer.GRADIENT in model.offers else "–"
    cells += [places, "–" if model.even else "yes"]
    reasons: dict[str, list[str]] = {}
    for what, why in model.withheld.items():
        reasons.setdefault(why, []).append(what)
    parts = []
    for why, what in reasons.items():
        everything = offer.ATTENTION in what
        parts.append(f"{'attention' if everything else ' and '.join(sorted(what))}: {why}")
    return [*cells, "; ".join(parts + [f"BROKEN {b}" for b in family.broken])]


def page(families: list[Family]) -> str:
    """The section of the page."""
    held = [f for f in families if f.model is not None and not f.broken]
    left = ", ".join(f"{name} ({why})" for name, why in sorted(small.LEFT_OUT.items()))
    count = {
        o: sum(f.model is not None and o in f.model.offers for f in families)
        for o in (offer.ATTENTION, offer.REPLACEABLE, offer.DIFFERENTIABLE, offer.PROJECTED)
    }
    lines = [
        "## Families",
        "",
        "Made by `python -m bench families` with transformers"
        f" {transformers.__version__}: each of {len(families)}",
        "families is built small, with random weights, and all that heed offers on it is checked.",
        "Logits are compared with those of the network itself, replaced attention and gradients",
        "with finite differences, projected values with what the layer's own map puts out. Every",
        "method runs, or refuses with a sentence.",
        "",
        f"{len(held)} of {len(families)} pass all that they offer. Attention can be read in"
        f" {count[offer.ATTENTION]} and replaced in {count[offer.REPLACEABLE]};",
        f"it has gradients in {count[offer.DIFFERENTIABLE]}, and projected values in"
        f" {count[offer.PROJECTED]}.",
        "",
        "- *read*: attention between the tokens of the text. An encoder with a decoder shows that",
        "  of the decoder over the text.",
        "- *∇ words at*: where gradients with respect to words can be taken, the default first.",
        "- *mixed lengths*: whether texts of different lengths share a batch. Where padding",
        "  changes the answer, only texts of equal length do.",
        "",
        *table(families),
        "",
        f"Left out: {left}.",
        "",
    ]
    return "\n".join(lines)


def write(section: str) -> None:
    """Put the section into the page, in place of the one that is there."""
    text = PAGE.read_text(encoding="utf8") if PAGE.exists() else "# Models\n\n"
    pattern = re.compile(r"^## Families\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if pattern.search(text):
        text = pattern.sub(lambda _: section, text)
    else:
        text = f"{text.rstrip()}\n\n{section}"
    PAGE.write_text(text, encoding="utf8")


def run() -> None:
    began = time.perf_counter()
    families = []
    for name in small.FAMILIES:
        families.append(examine(name))
        broken = families[-1].broken or [families[-1].refusal]
        print(f"{name:22} {'; '.join(broken) or 'holds'}", flush=True)
    write(page(families))
    held = sum(f.model is not None and not f.broken for f in families)
    print(f"{held} of {len(families)} pass, in {time.perf_counter() - began:.0f} s")
