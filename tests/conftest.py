"""Small random models and documents for every test.

Shapes and types are checked while the tests run.
"""

from __future__ import annotations

from jaxtyping import install_import_hook

# before heed is imported for the first time
install_import_hook(
    [
        "heed.text",
        "heed.metrics",
        "heed.models.single_layer",
        "heed.models.recurrent",
        "heed.models.scalar_form",
        "heed.algebra.ratios",
        "heed.algebra.subsets",
        "heed.algebra.limits",
        "heed.algebra.null_space",
        "heed.algebra.programs",
        "heed.algebra.systems",
        "heed.algebra.least_norm",
        "heed.algebra.entropy",
        "heed.algebra.orders",
    ],
    "beartype.beartype",
)

from collections.abc import Callable  # noqa: E402
from dataclasses import replace  # noqa: E402
from functools import cache  # noqa: E402

import hypothesis  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from heed.claims import CLAIMS  # noqa: E402
from heed.methods import METHODS  # noqa: E402
from heed.models.single_layer import Network, Shape, SingleLayer  # noqa: E402
from heed.progress import Listener  # noqa: E402
from heed.text import Document, Tokenizer  # noqa: E402

torch.set_num_threads(1)
hypothesis.settings.register_profile("heed", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("heed")

WORDS = (
    *(
        "the",
        "a",
        "and",
        "but",
        "is",
        "was",
        "it",
        "'s",
        "n't",
        "do",
        "not",
        "very",
        "film",
        "plot",
        "actor",
        "scene",
    ),
    *(
        "ending",
        "music",
        "good",
        "bad",
        "fine",
        "great",
        "awful",
        "dull",
        "fresh",
        "warm",
        "cold",
        "slow",
        "quick",
    ),
    *(",", ".", "!", "?"),
)

# repeats, unknown words, contractions, capitals, one word,
# pairs (with words that occur on both sides)
TEXTS: tuple[str | tuple[str, str], ...] = (
    "the film is good and the plot is great",
    "It's not bad , but the zyzzyva ending was very very slow !",
    "awful",
    "Don't. The MUSIC was fine; the music was qwertz!!!",
    ("the plot is fresh", "the plot is dull and cold"),
    ("good", "was the scene good or was the xylem bad ?"),
)

# the methods that a model with one query row can be explained by
OFFERED = [name for name, cls in METHODS.items() if cls.needs <= SingleLayer.offers]

# those of them that `--all` runs
COMPARED = [name for name in OFFERED if not METHODS[name].only_by_name]

# those that run where nobody names any: it has one layer, so value-norm stands in for rollout
SIX = ["attention-mean", "value-norm", "gradient-input", "integrated-gradients"]
SIX += ["occlusion", "lime"]

# the claims that train no model
UNTRAINED = {name: cls for name, cls in CLAIMS.items() if not cls.claim.trains}


# Files that take longest are handed out first: else one process waits for the other at the end.
SLOWEST = (
    "test_cli",
    "test_known_truth",
    "test_transformer",
    "test_laws",
    "test_report",
    "test_reproduction",
    "test_audit",
    "test_devices",
    "test_naim_asher",
    "test_data",
    "test_efficient_paper",
    "test_rank",
    "test_convert",
    "test_docs",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: i for i, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(SLOWEST)))


class Heard(Listener):
    """Remembers what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


LABELS = ("negative", "positive", "neutral")


@cache
def build(
    padding: str = "masked",
    biases: bool = False,
    labels: int = 2,
    double: bool = True,
    seed: int = 0,
) -> SingleLayer:
    tokenizer = Tokenizer.words(WORDS, 41)
    shape = Shape(
        len(tokenizer),
        labels,
        d_e=16,
        heads=3,
        d_att=8,
        d_out=8,
        max_words=40,
        padding=padding,
        biases=biases,
    )
    generator = torch.Generator().manual_seed(seed)
    network = Network(shape, generator)
    for name, value in network.named_parameters():
        if name.startswith("b_"):  # they start at zero, where no test would see them
            value.data.copy_(torch.randn(value.shape, generator=generator))
    network.W_q.data.mul_(2)  # attention that is far from uniform
    if double:
        network.double()
    return SingleLayer(network, tokenizer, LABELS[:labels], f"tiny-{padding}", pairs=True)


def log_odds(logits: np.ndarray, label: int) -> np.ndarray:
    """log p/(1-p), what methods explain where nobody says what: z_c - log Σ_{k≠c} exp z_k."""
    others = [np.exp(logits[..., k]) for k in range(logits.shape[-1]) if k != label]
    return logits[..., label] - np.log(sum(others))


@pytest.fixture(scope="session")
def make() -> Callable[..., SingleLayer]:
    """make(padding=, biases=, labels=, double=, seed=): a tiny random model."""
    return build


@pytest.fixture(scope="session")
def model() -> SingleLayer:
    """The plain one: float64, padding masked, two labels, no biases."""
    return build()


@pytest.fixture(
    scope="session",
    params=[
        {},
        {"double": False},
        {"padding": "attends"},
        {"biases": True},
        {"padding": "attends", "biases": True, "labels": 3},
        {"padding": "attends", "double": False, "labels": 3},
    ],
    ids=lambda options: "-".join(str(v) for v in options.values()) or "plain",
)
def any_model(request: pytest.FixtureRequest) -> SingleLayer:
    """Every variant of the tiny model."""
    return build(**request.param)


@pytest.fixture(scope="session")
def texts() -> list[str | tuple[str, str]]:
    return list(TEXTS)


@pytest.fixture(scope="session")
def constant_model() -> SingleLayer:
    """All documents get the same logits, which are not zero: values are nothing but biases."""
    like = build(biases=True)
    network = Network(replace(like.shape))
    network.load_state_dict(like.network.state_dict())
    network.W_v.data.zero_()
    return SingleLayer(network.double(), like.tokenizer, like.labels, "constant", pairs=True)


@pytest.fixture(scope="session")
def long_text() -> str:
    """Longer than the tiny models read."""
    return " ".join(WORDS[i % len(WORDS)] for i in range(0, 300, 7))


@pytest.fixture(scope="session")
def document() -> Callable[[str | tuple[str, str]], Document]:
    return Document.of
