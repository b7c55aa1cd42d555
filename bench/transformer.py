"""A transformer of MiniLM's size.

Every perturbation method is timed beside the bare forward passes, `lime`, captum and shap. The
floor of a method is the forward passes that it needs, and nothing else: the same perturbed inputs,
already tokenised, in batches of the size that proved best. Weights are random: they change no cost.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from captum.attr import FeatureAblation, KernelShap, LayerIntegratedGradients, Lime
from lime.lime_text import LimeTextExplainer

import heed
from bench.single_layer import review
from bench.timing import interleave, ratios, table
from heed.methods import METHODS
from heed.models.transformer import Transformer
from heed.text import Document
from heed.training.recipes import Tuning
from heed.training.transformer import scratch

LENGTHS = (20, 100, 250)
SAMPLES = {
    20: 300,
    100: 100,
    250: 40,
}  # enough to measure; Shapley values take 4 for each distinct word at least
ROUNDS = 7
REMOVALS = ("replace", "delete")


def minilm() -> tuple[Any, Any]:
    """6 layers of width 384, random weights, 12 heads, and a tokenizer of its own."""
    texts = [Document(review(20_000), label=0)]
    torch.manual_seed(0)
    return scratch(texts, ("negative", "positive"), Tuning(heads=12, max_tokens=512), (6, 384))


@contextmanager
def captured(model: Transformer) -> Iterator[list[dict[str, torch.Tensor]]]:
    """The inputs of every forward pass meanwhile."""
    found: list[dict[str, torch.Tensor]] = []
    handle = model.model.register_forward_pre_hook(
        lambda _, args, kwargs: found.append(kwargs), with_kwargs=True
    )
    try:
        yield found
    finally:
        handle.remove()


def floor(peers: Peers, run: Callable[[], object]) -> Callable[[], None]:
    """The forward passes of a run, by the network as it was before heed saw it."""
    with captured(peers.model) as batches:
        run()

    def passes() -> None:
        with torch.inference_mode():
            for batch in batches:
                peers.network(**batch)

    return passes


def batch_sizes(peers: Peers) -> None:
    """Which number of tokens per batch is best for the bare forward passes, and what heed uses."""
    model = peers.model
    print(f"\n### Tokens per batch: heed uses {model.batch_tokens:,}\n")
    print("| words | " + " | ".join(f"{n:,}" for n in (1024, 2048, 4096)) + " |\n|---|---|---|---|")
    used = model.batch_tokens
    for words in LENGTHS:
        candidates = {}
        for tokens in (1024, 2048, 4096):
            model.batch_tokens = tokens
            run = partial(
                heed.explain, model, review(words), "lime", samples=max(64, 8192 // words)
            )
            candidates[str(tokens)] = floor(peers, run)
        model.batch_tokens = used
        timings = interleave(candidates, 3)
        best = min(t.median for t in timings.values())
        print(
            f"| {words} | "
            + " | ".join(f"{t.median / best:.2f} ×" for t in timings.values())
            + " |"
        )


def perturbation(peers: Peers) -> None:
    """heed against its floor, both ways of removing words."""
    print("\n### Cost of a method ÷ its bare forward passes\n")
    print("| words | method | removal | passes | median | middle half |\n|---|---|---|---|---|---|")
    for words in LENGTHS:
        text = review(words)
        for method, settings in (
            ("lime", {"samples": SAMPLES[words], "sampling": "lime"}),
            ("occlusion", {}),
            ("shapley", {"samples": SAMPLES[words]}),
        ):
            if method == "shapley" and words == 250:
                # of few distinct words, which takes fewer evaluations
                text = " ".join([review(50)] * 5)
            for removal in REMOVALS:
                run = partial(heed.explain, peers.model, text, method, removal=removal, **settings)
                timings = interleave({"heed": run, "floor": floor(peers, run)}, ROUNDS)
                passes = run().forward_passes
                shown = ratios(timings["heed"], timings["floor"])
                print(f"| {words} | {method} | {removal} | {passes:,} | {shown} |", flush=True)


class Peers:
    """The same network as users of the other packages call it."""

    def __init__(self, network: Any, tokenizer: Any, model: Transformer):
        self.network, self.tokenizer, self.model = network.eval(), tokenizer, model

    def predict(self, texts: list[str], batch: int = 32) -> np.ndarray:
        found = []
        with torch.inference_mode():
            for start in range(0, len(texts), batch):
                inputs = self.tokenizer(
                    texts[start : start + batch], padding=True, truncation=True, return_tensors="pt"
                )
                found.append(self.network(**inputs).logits.softmax(-1))
        return torch.cat(found).numpy()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return self.network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[:, 1]

    def differentiable(self, ids: torch.Tensor) -> torch.Tensor:
        return self.network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[:, 1]

    def inputs(self, text: str) -> dict[str, torch.Tensor]:
        """Ids, what replaces them, and the word of each.

        Special tokens are features of their own.
        """
        (tokens,) = self.model.tokens([text])
        blank = self.model.blank(tokens)
        mask = np.where(
            tokens.word < 0, len(tokens.words) + np.cumsum(tokens.special) - 1, tokens.word
        )
        as_row = [torch.from_numpy(x)[None] for x in (tokens.ids, blank.ids, mask)]
        return dict(zip(("inputs", "baselines", "feature_mask"), as_row, strict=True))


def fastest(runs: dict[int, Callable[[], object]]) -> int:
    """The batch size that is fastest for a peer, by two runs each."""
    timings = interleave({str(size): run for size, run in runs.items()}, 1)
    return int(min(timings.values(), key=lambda t: t.median).name)


def choosing(peers: Peers, text: str, samples: int) -> float:
    """Seconds that it takes to choose six words and to fit them anew."""
    kept: dict[str, Any] = {}

    @dataclass(frozen=True)
    class Kept(METHODS["lime"]):  # type: ignore[misc,valid-type]
        def fit(self, job: Any, keep: Any, outputs: Any) -> Any:
            kept.update(job=job, keep=keep, outputs=outputs)
            return super().fit(job, keep, outputs)

    heed.explain(peers.model, text, Kept(samples=samples, sampling="lime", removal="delete"))
    few, all_ = (
        METHODS["lime"](samples=samples, sampling="lime", words=count) for count in (6, None)
    )
    timings = interleave({"few": partial(few.fit, **kept), "all": partial(all_.fit, **kept)}, 31)
    return timings["few"].median - timings["all"].median


def beside_lime(peers: Peers) -> None:
    """LIME by deletion, as the `lime` package does it; and what choosing six words costs."""
    for words in LENGTHS:
        # with few samples, lengths differ more within a batch
        text, samples = review(words), max(300, 3 * SAMPLES[words])
        package = LimeTextExplainer(class_names=["negative", "positive"])
        alike = {"samples": samples, "sampling": "lime", "removal": "delete", "repeats": "together"}
        ours = partial(heed.explain, peers.model, text, "lime", **alike)

        def theirs(
            count: int,
            batch: int = 32,
            text: str = text,
            samples: int = samples,
            package: Any = package,
        ) -> None:
            predict = partial(peers.predict, batch=batch)
            package.explain_instance(text, predict, num_features=count, num_samples=samples)

        best = fastest({b: partial(theirs, 1000, b) for b in (16, 32, 64)})
        candidates = {
            f"lime, batches of {best}": partial(theirs, 1000, best),
            "lime, 6 words": partial(theirs, 6, best),
            "heed": ours,
            "the bare forward passes": floor(peers, ours),
        }
        timings = interleave(candidates, ROUNDS)
        table(f"LIME by deletion, {samples} samples, {words} words", timings, "heed")
        share = choosing(peers, text, samples) / timings["heed"].median
        print(f"\nchoosing six words adds {share:.2%} to heed's time", flush=True)


def beside_captum(peers: Peers) -> None:
    """Replacing words: captum at several numbers of perturbations per call."""
    for words in LENGTHS:
        text, samples = review(words), SAMPLES[words]
        inputs = peers.inputs(text)
        replaced = partial(heed.explain, peers.model, text, removal="replace", repeats="apart")
        alone = {
            "occlusion": partial(heed.explain, peers.model, text, "occlusion", removal="replace"),
            "lime": partial(replaced, method="lime", samples=samples, sampling="lime"),
        }
        for method, ours in alone.items():
            peer = FeatureAblation(peers.forward) if method == "occlusion" else Lime(peers.forward)
            more = {} if method == "occlusion" else {"n_samples": samples}
            calls = {
                b: partial(peer.attribute, **inputs, **more, perturbations_per_eval=b)
                for b in (8, 16, 32, 64)
                if b * words <= 8192
            }
            best = fastest(calls)
            candidates = {f"captum, {best} per call": calls[best], "heed": ours}
            table(
                f"{method} by replacement beside captum, {words} words",
                interleave(candidates, ROUNDS),
                "heed",
            )
    inputs = peers.inputs(review(20))
    kernel = partial(KernelShap(peers.forward).attribute, **inputs, n_samples=300)
    calls = {b: partial(kernel, perturbations_per_eval=b) for b in (16, 32, 64)}
    best = fastest(calls)
    ours = partial(
        heed.explain,
        peers.model,
        review(20),
        "shapley",
        samples=300,
        removal="replace",
        repeats="apart",
    )
    candidates = {f"captum KernelShap, {best} per call": calls[best], "heed": ours}
    table(
        "Shapley values by replacement beside captum, 300 samples, 20 words",
        interleave(candidates, ROUNDS),
        "heed",
    )


def gradients(peers: Peers) -> None:
    """Integrated gradients, 50 steps: heed and captum beside 50 forward passes."""
    print("\n### Integrated gradients (50 steps) ÷ 50 bare forward passes\n")
    print("| words | | median | middle half |\n|---|---|---|---|")
    for words in LENGTHS:
        text = review(words)
        ours = partial(heed.explain, peers.model, text, "integrated-gradients")
        inputs = peers.inputs(text)
        inputs.pop("feature_mask")
        layer = LayerIntegratedGradients(
            peers.differentiable, peers.network.bert.embeddings.word_embeddings
        )
        ids, step = inputs["inputs"], max(1, peers.model.batch_tokens // inputs["inputs"].shape[1])

        def passes(ids: torch.Tensor = ids, step: int = step) -> None:
            for start in range(0, 50, step):
                peers.forward(ids.expand(min(step, 50 - start), -1))

        candidates = {"heed": ours, "floor": passes}
        for size in (16, 50):
            candidates[f"captum, {size} steps per call"] = partial(
                layer.attribute, **inputs, n_steps=50, internal_batch_size=size
            )
        timings = interleave(candidates, ROUNDS)
        for name in (n for n in timings if n != "floor"):
            print(f"| {words} | {name} | {ratios(timings[name], timings['floor'])} |", flush=True)


def across_documents(model: Transformer) -> None:
    """Occlusion of 32 short documents: in one call, and one by one."""
    text = review(32 * 12).split()
    documents = [" ".join(text[i : i + 12]) for i in range(0, len(text), 12)]

    def one_by_one() -> None:
        for d in documents:
            heed.explain(model, d, "occlusion")

    candidates = {
        "one by one": one_by_one,
        "as a list": lambda: heed.explain(model, documents, "occlusion"),
    }
    table("Occlusion of 32 documents of 12 words", interleave(candidates, ROUNDS), "one by one")


_MODEL = """
import sys, time
import numpy as np, torch, heed, {package}
from bench.transformer import Peers, minilm
from heed.models.transformer import Transformer
network, tokenizer = minilm()
peers = Peers(network, tokenizer, Transformer(network, tokenizer, "minilm"))
text = sys.argv[1]
def status(name):
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
open("/proc/self/clear_refs", "w").write("5")  # the peak is counted from here
before = status("VmRSS")
began = time.perf_counter()
{run}
print(time.perf_counter() - began, (status("VmHWM") - before) / 1024)
"""
_SHAP = (
    "shap.Explainer(lambda t: peers.predict(list(t)), shap.maskers.Text(tokenizer))"
    "([text], max_evals=500, silent=True)"
)
_LAYER = (
    "captum.attr.LayerIntegratedGradients("
    "peers.differentiable, peers.network.bert.embeddings.word_embeddings)"
)
_INPUTS = "given = peers.inputs(text); given.pop('feature_mask');"


def alone(package: str, run: str, text: str) -> tuple[float, float]:
    """Seconds and further memory (MB) of a first explanation, after imports.

    It runs in a process of its own.
    """
    script = _MODEL.format(package=package, run=run)
    done = subprocess.run(
        [sys.executable, "-c", script, text], capture_output=True, text=True, check=True
    )
    seconds, memory = done.stdout.split()[-2:]
    return float(seconds), float(memory)


def first_explanations() -> None:
    """The first Shapley values after imports, 500 evaluations; the shortest of three."""
    print(
        "\n### First explanation after imports, 20 words, 500 evaluations\n\n"
        "| | seconds |\n|---|---|"
    )
    runs = {
        "heed": ("heed", "heed.explain(peers.model, text, 'shapley', samples=500)"),
        "shap": ("shap", _SHAP),
    }
    found = {name: min(alone(*run, review(20))[0] for _ in range(3)) for name, run in runs.items()}
    for name, seconds in found.items():
        print(f"| {name} | {seconds:.2f} |")
    print(f"\nheed is {found['shap'] / found['heed']:.1f} times sooner")


def memory() -> None:
    """What one explanation of 250 words adds to the peak memory of a process."""
    print("\n### Memory that one explanation of 250 words adds\n\n| | MB |\n|---|---|")
    heed_runs = {
        m: f"heed.explain(peers.model, text, '{m}')" for m in ("integrated-gradients", "occlusion")
    }
    heed_runs["lime"] = "heed.explain(peers.model, text, 'lime', samples=200)"
    runs = {f"heed, {m}": ("heed", run) for m, run in heed_runs.items()} | {
        "captum, integrated gradients": (
            "captum.attr",
            f"{_INPUTS} {_LAYER}.attribute(**given, n_steps=50)",
        ),
        "captum, integrated gradients, 8 steps per call": (
            "captum.attr",
            f"{_INPUTS} {_LAYER}.attribute(**given, n_steps=50, internal_batch_size=8)",
        ),
        "captum, occlusion, 32 per call": (
            "captum.attr",
            "captum.attr.FeatureAblation(peers.forward)"
            ".attribute(**peers.inputs(text), perturbations_per_eval=32)",
        ),
        "lime, batches of 32": (
            "lime.lime_text",
            "lime.lime_text.LimeTextExplainer()"
            ".explain_instance(text, peers.predict, num_samples=200)",
        ),
    }
    for name, run in runs.items():
        print(f"| {name} | {alone(*run, review(250))[1]:.0f} |", flush=True)


def run() -> None:
    network, tokenizer = minilm()
    model = Transformer(network, tokenizer, "minilm")
    peers = Peers(network, tokenizer, model)
    perturbation(peers)
    gradients(peers)
    beside_lime(peers)
    beside_captum(peers)
    first_explanations()
    memory()
    across_documents(model)
    batch_sizes(peers)
