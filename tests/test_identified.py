"""How far attention can move while its output stays: what is found, and what is possible."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import heed
from heed.algebra.null_space import Space
from heed.claims import Study
from heed.claims.determined import Identified
from heed.methods.problems import opened
from heed.models.single_layer import SingleLayer
from heed.text import Document
from tests.conftest import build
from tests.test_naim_asher import LONG, constructed, texts
from tests.test_transformer import model as transformer

WORDS = [f"word{i}" for i in range(300)]


def farthest(T: np.ndarray, row: np.ndarray) -> float:
    """The largest TVD to a row with the same output, over all signs that differences can have."""
    B = np.hstack([T, np.ones((len(T), 1))])
    best = 0.0
    for signs in product((-1.0, 1.0), repeat=len(row)):
        cost = np.array(signs)
        found = linprog(-cost, A_eq=B.T, b_eq=B.T @ row, bounds=(0, None), method="highs")
        best = max(best, (-found.fun - cost @ row) / 2)
    return best


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("numbers", [1, 2, 3])
def test_the_farthest_row_lies_between_what_is_found_and_what_intervals_allow(
    numbers: int, uniform: bool
) -> None:
    rng = np.random.default_rng(numbers)
    for _ in range(3):
        T = rng.standard_normal((7, numbers))
        row = np.full(7, 1 / 7) if uniform else rng.dirichlet(np.ones(7))
        space, exact = Space.of(T), farthest(T, row)
        found = np.abs(space.farthest(row) - row).sum() / 2
        bound = np.maximum(space.highest(row) - row, 0).sum()
        assert exact > 0.05 and 0.7 * exact < found <= exact + 1e-9 and exact <= bound + 1e-9


def test_the_upper_ends_are_those_of_the_intervals() -> None:
    rng = np.random.default_rng(0)
    for n, numbers in ((6, 1), (12, 3), (30, 20), (5, 8)):
        space, row = Space.of(rng.standard_normal((n, numbers))), rng.dirichlet(np.ones(n))
        some = rng.random((4, n))
        for directions in (None, some):
            np.testing.assert_allclose(
                space.highest(row, directions), space.intervals(row, directions)[:, 1], atol=1e-9
            )


def flat(rank: int, width: int) -> SingleLayer:
    """Attention that is exactly uniform, over values of some rank."""
    model = constructed(rank, width, WORDS)
    model.network.W_q.data.zero_()
    return model


def test_uniform_attention_is_not_identified_for_being_uniform() -> None:
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice(WORDS, 60, replace=False)) for _ in range(32)]
    (evidence,) = (found := heed.audit(flat(5, 32), documents, ["identified"], examples=0)).evidence
    assert min(evidence.values) > 0.4
    assert found.verdicts[0].outcome == "refuted"


def test_where_little_is_open_the_bound_is_that_of_the_intervals() -> None:
    """Against plain linear programs, key by key, over all heads."""
    model, documents = build(), texts(3, 12)
    # few more words than numbers of output, so that little can move
    study = Study(model, [Document(text) for text in documents])
    rows = Identified().measure(study)
    assert 0 < np.mean([row["value"] for row in rows]) < 0.1
    for row, text in zip(rows, documents, strict=True):
        (tokens,) = model.tokens([text])
        (parts,) = opened(model, [tokens], free=[~tokens.special])[1]
        highest, judged, total = 0.0, 0.0, 0.0
        for part in parts:
            B = np.hstack([part.space.T, np.ones((len(part.keys), 1))])
            mass, own = part.masses[0, 0], part.rows[0]
            high = []
            for unit in np.eye(len(own)):
                found = linprog(-unit, A_eq=B.T, b_eq=B.T @ own, bounds=(0, None), method="highs")
                high.append(-found.fun)
            highest, judged = highest + mass * np.array(high), judged + mass * own
            total += mass
        bound = np.maximum(highest - judged, 0).sum() / total
        assert row["upper"] == pytest.approx(min(1.0, bound), abs=1e-6)
        assert row["value"] <= row["upper"]


@pytest.mark.parametrize("level", ["head", "layer"])
def test_what_is_found_is_never_above_the_bound(level: str) -> None:
    for model in (build(), transformer("bert"), transformer("gpt2")):
        documents = [Document(text) for text in (*texts(3, 12), "the film is good", LONG)]
        claim = Identified(level=level)  # type: ignore[arg-type]
        for row in claim.measure(Study(model, documents)):
            assert row["value"] <= row["upper"] <= 1
            assert (row["upper"] == 0) == (row["rows_open"] == 0)


def test_the_bound_is_not_worked_out_where_it_cannot_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    highest = Space.highest
    monkeypatch.setattr(Space, "highest", lambda *a: (asked.append(1), highest(*a))[1])
    (row,) = Identified().measure(Study(flat(5, 32), [Document(" ".join(WORDS[:60]))]))
    assert not asked and row["upper"] == 1 and row["value"] > 0.4


def test_rows_of_all_rows_classify_models_have_bounds_too() -> None:
    from tests.test_naim_asher import MODELS

    model = MODELS["all rows classify"]()
    with torch.no_grad():
        (row,) = Identified(queries=3).measure(Study(model, [Document(LONG)]))
    assert 0 < row["value"] <= row["upper"] <= 1
