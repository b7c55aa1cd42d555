"""The experiments of the debate of 2019 at their small scale, on a machine without data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from heed.errors import DataError, InputError, UnknownName
from heed.methods import AttentionMean, GradientInput, Occlusion
from heed.papers import PAPERS, run
from heed.papers.debate import CUTS, DebateLab
from heed.papers.jain_wallace import experiments as jain_wallace
from tests.test_lopardo import check

JAIN, WIEGREFFE = "jain-wallace-2019", "wiegreffe-pinter-2019"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebateLab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEED_DATA", raising=False)
        patch.setenv("HEED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield DebateLab("smoke", tmp_path_factory.mktemp("reproduction"))


@pytest.mark.parametrize("name", [e.name for e in PAPERS[JAIN].experiments])
def test_attention_is_not_explanation(lab: DebateLab, name: str) -> None:
    outcome = check(lab, name, JAIN)
    assert {r.dataset for r in outcome.results} == {"generated"}
    assert all(
        r.published is None for r in outcome.results
    )  # there are no published figures for generated data


@pytest.mark.parametrize("name", [e.name for e in PAPERS[WIEGREFFE].experiments])
def test_attention_is_not_not_explanation(lab: DebateLab, name: str) -> None:
    check(lab, name, WIEGREFFE)


def test_several_trainings_make_one_bar(lab: DebateLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jain_wallace, "MODELS", {"average": ("average", "additive")})
    monkeypatch.setattr(lab, "seeds", lambda *names: [0, 1])
    outcome = jain_wallace.accuracy(lab)
    found = [row["F1"] for row in outcome.rows["models"]]
    assert len(found) == 2
    assert [bar["F1"] for bar in outcome.figures[0].data] == [pytest.approx(np.mean(found))]
    assert f"2 training seeds: {min(found):.3f} to {max(found):.3f}." in outcome.results[0].note


def test_a_figure_that_is_far_from_the_published_one_says_by_how_much() -> None:
    assert jain_wallace._difference(0.826, 0.784, 0.03) == "+0.042 from the published figure."
    assert jain_wallace._difference(0.826, 0.8, 0.03) == jain_wallace._difference(None, 0.8) == ""


def test_correlations_are_those_of_the_explanations(lab: DebateLab) -> None:
    """Attention held fixed, words deleted one by one: against passes made by hand."""
    outcome = check(lab, "correlations", JAIN)
    model = lab.base("generated")
    rows = (
        [r for r in outcome.rows["documents"] if r["model"] == "BiLSTM + additive"]
        if outcome.rows
        else []
    )
    rows = rows or lab.measured(
        "correlations", "generated", list, encoder="lstm", attention="additive", training=0
    )
    for row in rows[:5]:
        document = lab.corpus("generated").test[row["document"]]
        (tokens,) = model.tokens([document])
        p = model.predict([document])[0]
        assert row["predicted"] == p.argmax()
        words = np.flatnonzero(~tokens.special)
        without = []
        for t in words:
            network_input = np.delete(tokens.ids, t)
            import torch

            z = model.network(
                torch.from_numpy(network_input)[None],
                torch.ones(1, len(network_input), dtype=torch.bool),
            )
            without.append(abs(p[p.argmax()] - z.double().softmax(-1)[0, p.argmax()].item()))
        attention = AttentionMean().explain(model, [document])[0].scores
        gradient = (
            GradientInput(output="probability", attention="fixed")
            .explain(model, [document])[0]
            .scores
        )
        removal = (
            Occlusion(output="probability", removal="delete").explain(model, [document])[0].scores
        )
        np.testing.assert_allclose(np.abs(removal), without, atol=1e-6)
        assert row["removal"] == pytest.approx(
            stats.kendalltau(attention, np.abs(removal)).statistic, abs=1e-6
        )
        assert row["gradient"] == pytest.approx(
            stats.kendalltau(attention, np.abs(gradient)).statistic, abs=1e-6
        )


def test_pieces_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def measure() -> list[dict]:
        calls.append(1)
        return [{"a": 1.5}, {"a": None}, {"a": float("nan")}]

    def piece(**settings: str) -> int:
        """How often it has been measured then, by a new process."""
        rows = DebateLab("smoke", tmp_path).piece(settings, measure)
        assert list(rows[:2]) == [{"a": 1.5}, {"a": None}] and np.isnan(rows[2]["a"])
        return len(calls)

    assert piece(what="x", data="sst") == piece(what="x", data="sst") == 1
    assert piece(what="x", data="imdb") == 2
    monkeypatch.setattr("heed.papers.lab.code_of", lambda module: "other code")
    assert piece(what="x", data="sst") == piece(what="x", data="sst") == 3
    (rows, *_) = (tmp_path / "rows").glob("*.jsonl")
    rows.write_bytes(b"broken")  # what is left is measured again
    assert piece(what="x", data="sst") >= 3


def test_what_cannot_be_had_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="leave out --model"):
        DebateLab("smoke", tmp_path, "transformer-imdb")
    with pytest.raises(UnknownName):
        DebateLab("smoke", tmp_path).choose(["mimic"])
    monkeypatch.delenv("HEED_DATA", raising=False)
    monkeypatch.setenv("HEED_CACHE", str(tmp_path))
    full = DebateLab("full", tmp_path)
    full.choose(["20news"])
    with pytest.raises(DataError, match="needs 20news"):
        run(JAIN, full, ["accuracy"])


def test_published_figures_are_fractions_for_known_data() -> None:
    published = jain_wallace.PUBLISHED
    for table in ("f1", "auc", "tau_yardstick"):
        numbers = published[table]
        assert set(numbers) == set(CUTS) and all(0 < v < 1 for v in numbers.values())
    for pairs in (
        published["tau_gradient"],
        published["tau_removal"],
        published["adversary"],
        *published["tau_others"].values(),
    ):
        assert set(pairs) == set(CUTS) and all(len(v) == 2 for v in pairs.values())
