"""The reproduction of "On Explaining with Attention Matrices" at its small scale, without data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from heed.algebra.null_space import Efficient, NotReached, Space, Variant
from heed.papers import Outcome
from heed.papers.naim_asher import causal
from heed.papers.naim_asher.causal import wasserstein
from heed.papers.naim_asher.lab import EfficientLab
from tests.test_lopardo import check

NAIM = "naim-asher-2024"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EfficientLab]:
    """Few documents, small models: some of them trained here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEED_DATA", raising=False)
        patch.setenv("HEED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield EfficientLab("smoke", tmp_path_factory.mktemp("naim"))


def outcome(lab: EfficientLab, name: str) -> Outcome:
    return check(lab, name, NAIM)


def rows(lab: EfficientLab, table: str) -> list[dict[str, Any]]:
    return pq.read_table(lab.folder / "rows" / f"{table}.parquet").to_pylist()


def of(found: Outcome, metric: str) -> dict[str, float]:
    return {
        r.model: r.ours for r in found.results if r.metric.startswith(metric) and r.ours is not None
    }


def test_the_models_are_those_of_the_paper_and_documents_are_long(lab: EfficientLab) -> None:
    assert [s.model for s in lab.subjects] == ["single-layer", "BiLSTM", "BERT", "RoBERTa", "GPT-2"]
    assert all(len(d.text.split()) >= 150 for s in lab.subjects for d in s.documents)


def test_the_null_space_is_there(lab: EfficientLab) -> None:
    found = outcome(lab, "characterised")
    assert min(of(found, "share of classifying rows").values()) > 0
    kinds = rows(lab, "characterised-architectures")
    sliding, causal = (
        {r["keys"]: r["null space"] for r in kinds if r["architecture"] == kind}
        for kind in ("sliding window", "causal")
    )
    assert causal[400] == 400 - 33 and sliding[400] == 100 - 33 and causal[16] == 0
    rising = [
        r["null space"] for r in rows(lab, "characterised-tolerances") if r["model"] == "BERT"
    ]
    assert rising == sorted(rising)


def test_swapping_and_shifting_do_what_algebra_says(lab: EfficientLab) -> None:
    swapped = outcome(lab, "sufficient")
    assert max(of(swapped, "Wasserstein distance").values()) < 1e-4
    what = {r["swapped"] for r in rows(lab, "sufficient-documents")}
    assert what == {"the row that classifies", "all rows of all layers"}
    moved = outcome(lab, "necessary")
    for model, ratio in of(moved, "determined ÷ null").items():
        assert ratio > 100, model
    near = outcome(lab, "near")
    assert max(of(near, "TVD between").values()) > 0.01  # on long inputs it is another attention
    apart = outcome(lab, "shared")
    raw = of(apart, "TVD between attention and adversary, linear program")
    for variant in ("least norm", "most entropy"):
        both = of(apart, f"TVD between their efficient attentions ({variant}), linear program")
        assert all(both[model] < 1e-6 * raw[model] for model in raw)
    assert "BiLSTM" in of(apart, "TVD between attention and adversary, search")


@pytest.mark.parametrize(
    "name", ["minimal", "distribution", "older-argument", "failing", "heads", "beyond", "context"]
)
def test_every_other_experiment_runs_and_says_something(lab: EfficientLab, name: str) -> None:
    found = outcome(lab, name)
    if name == "minimal":
        assert set(of(found, "members of the class with a smaller norm").values()) == {0.0}
        assert max(of(found, "norm of efficient").values()) <= 1
    if name == "distribution":
        assert max(of(found, "efficient: largest violation").values()) < 1e-9
        assert max(of(found, "effective: negative mass").values()) > 0
    if name == "failing":
        right, wrong = of(found, "output error, the right one"), of(found, "output error, clipped")
        assert max(right.values()) < 1e-7 and max(wrong.values()) > 1e-4
    if name == "heads":
        assert min(of(found, "ranking of heads by ablation").values()) > 0.999
    if name == "context":
        (told,) = [r for r in found.results if "determined step" in r.metric]
        assert (
            told.note.startswith("Uniform attention, trained again, costs")
            and told.ours is not None
            and told.ours > 0
        )
    if name == "older-argument":
        far = [r for r in found.results if "TVD" in r.metric]
        assert far and all(r.ours is not None and -1e-9 <= r.ours <= 1 + 1e-9 for r in far)
    if name == "beyond":
        states = "relative change of later layers' hidden states, first layer"
        assert max(of(found, f"{states} efficient").values()) < 1e-4
        assert min(of(found, f"{states} uniform").values()) > 1e-3
        assert max(of(found, "… of later layers' values, first layer efficient").values()) < 1e-4


@pytest.mark.parametrize("experiment", ["_swap", "_swap_all", "_near", "_shifts", "_heads"])
def test_a_document_without_an_answer_is_left_out(
    lab: EfficientLab, experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bert = next(s for s in lab.subjects if s.model == "BERT")
    solve, longest = (
        Space.efficient,
        max(len(t) for t in bert.classifier.tokens(bert.documents[:3])),
    )

    def efficient(space: Space, rows: np.ndarray, variant: Variant = "norm") -> Efficient:
        if len(space.T) == longest:
            raise NotReached("Too peaked.")
        return solve(space, rows, variant)

    whole = getattr(causal, experiment)(lab, bert)
    monkeypatch.setattr(Space, "efficient", efficient)
    some = getattr(causal, experiment)(lab, bert)
    lengths = [len(t) for t in bert.classifier.tokens(bert.documents[:12])]
    assert {lengths[r["document"]] for r in whole} - {lengths[r["document"]] for r in some} == {
        longest
    }


def test_documents_that_are_left_out_are_counted(lab: EfficientLab) -> None:
    subject = lab.subjects[0]
    assert "2 documents are left out" in causal._left(
        subject, 3, [{"document": 1}, {"document": 1}]
    )
    assert causal._left(subject, 2, [{"document": 0}, {"document": 1}]) == ""


def test_the_distance_over_places_is_that_of_scipy() -> None:
    from scipy.stats import wasserstein_distance

    rng = np.random.default_rng(0)
    a, b = rng.dirichlet(np.ones(9)), rng.dirichlet(np.ones(9))
    places = np.linspace(0, 1, 9)
    np.testing.assert_allclose(wasserstein(a, b), wasserstein_distance(places, places, a, b))


def test_pieces_and_models_are_kept(lab: EfficientLab, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome(lab, "near")
    monkeypatch.setattr(
        "heed.training.transformer.fit", lambda *a, **k: pytest.fail("trained again")
    )
    monkeypatch.setattr("heed.training.recurrent.fit", lambda *a, **k: pytest.fail("trained again"))
    kept = sorted((lab.folder / "rows").glob("*.jsonl"))
    again = EfficientLab("smoke", lab.folder)
    assert [s.classifier.revision for s in again.subjects] == [
        s.classifier.revision for s in lab.subjects
    ]
    (lab.folder / "experiments" / "near.json").unlink()
    outcome(again, "near")
    assert sorted((lab.folder / "rows").glob("*.jsonl")) == kept
