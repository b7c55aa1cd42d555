"""Efficient attention in the running model: checks of algebra, and what is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import heed
from heed.claims import CLAIMS, Evidence, Study, judge
from heed.claims.causal import EfficientNear, EfficientNecessary, NullStep
from heed.methods.problems import opened
from heed.models.classifier import Attending
from heed.models.single_layer import SingleLayer
from heed.text import Document
from tests.conftest import build
from tests.test_naim_asher import LONG, MODELS, constructed, texts, up_to_rounding

CHECKS = [name for name, cls in CLAIMS.items() if cls.claim.check]
WORDS = [f"word{i}" for i in range(300)]


class Watched(SingleLayer):
    """Remembers the attention that it is asked about."""

    asked: list[np.ndarray]

    def attending(self, tokens: Any) -> Attending:
        attending = super().attending(tokens)
        # not linear, so that what is put in goes through `logits`
        return attending._replace(logits=self._logits(attending), linear=False)

    def _logits(self, attending: Attending) -> Any:
        self.asked = []

        def logits(rows: torch.Tensor) -> torch.Tensor:
            self.asked.append(rows.detach().double().numpy().copy())
            return attending.logits(rows)

        return logits


def watched(model: SingleLayer) -> Watched:
    return Watched(model.network, model.tokenizer, model.labels)


def test_what_is_true_by_algebra_is_checked() -> None:
    assert CHECKS == ["efficient-sufficient", "null-step", "efficient-shared"]


@pytest.mark.parametrize("kind", ["single-layer", "recurrent", "bert", "gpt2", "grouped keys"])
@pytest.mark.parametrize("claim", CHECKS)
def test_checks_hold_up_to_rounding(kind: str, claim: str) -> None:
    test = CLAIMS[claim]()
    documents = [Document(text) for text in [LONG, *texts(4, 36)]]
    rows = test.measure(Study(MODELS[kind](), documents))
    assert all(row["rows_open"] == 1 for row in rows)
    assert up_to_rounding(test.claim, rows)


@pytest.mark.parametrize("claim", [NullStep(draws=2), EfficientNecessary(draws=3)])
def test_steps_stay_attention(claim: NullStep | EfficientNecessary) -> None:
    model = watched(build())
    (row,) = claim.measure(Study(model, [Document(LONG)]))
    (tokens,) = model.tokens([LONG])
    own = model.attending([tokens]).trace.classifying_rows().double().numpy()
    model.attending([tokens])
    claim.measure(Study(model, [Document(LONG)]))
    changed = [rows for rows in model.asked if rows.ndim == 5]
    assert changed
    for rows in changed:
        assert rows.min() >= 0
        np.testing.assert_allclose(rows.sum(-1), own[None].sum(-1).repeat(len(rows), 0), atol=1e-9)
    assert np.abs(np.concatenate(changed) - own).max() > 1e-3
    assert 0 < row["length"] <= 0.1 + 1e-9


def test_a_null_step_has_its_length_and_moves_nothing() -> None:
    model = watched(constructed(1, 32, WORDS))
    text = " ".join(WORDS[:80])
    (tokens,) = model.tokens([text])
    (row,) = NullStep(draws=1).measure(Study(model, [Document(text)]))
    before, after, *_ = (rows.reshape(-1, len(tokens)) for rows in model.asked)
    mass = before[0, ~tokens.special].sum()
    assert np.linalg.norm(after - before) == pytest.approx(0.1 * mass)
    assert row["length"] == pytest.approx(0.1)
    assert row["value"] < 1e-12


def test_a_determined_step_against_its_formula() -> None:
    """The output after the step is that of a + t (b − a): efficient attention keeps it."""
    model = build()
    (tokens,) = model.tokens([LONG])
    document = tokens.document
    study = Study(model, [document])
    (found,) = EfficientNecessary(draws=3).measure(study)
    attending, (parts,) = opened(model, [tokens], free=[~tokens.special])
    rng = study.rng("efficient-necessary", document)
    own = attending.trace.classifying_rows().double()
    moved, lengths = [], []
    for _ in range(3):
        rows = own.clone()
        for part in parts:
            a, n = part.rows[0], len(part.keys)
            b = np.zeros(n)
            b[rng.integers(n, size=(1, 1, 1)).item()] = 1
            centred = part.space.T - part.space.T.mean(0)
            coefficients = np.linalg.lstsq(centred, b - a, rcond=None)[0]
            length = np.linalg.norm(centred @ coefficients)
            t = min(1, 0.1 / length)
            lengths.append(t * length)
            x = (a + t * (b - a)) * part.masses[0, 0]
            rows[0, part.heads[0], 0, part.keys] = torch.from_numpy(x)
        with torch.no_grad():
            p, q = (model.probabilities(attending.logits(r.to(own)).numpy()) for r in (own, rows))
        moved.append(np.abs(p - q).sum() / 2)
    assert found["value"] == pytest.approx(np.mean(moved), abs=1e-9)
    assert found["length"] == pytest.approx(np.mean(lengths))


@pytest.mark.parametrize("values", ["alike", "unread"])
def test_where_no_attention_changes_the_prediction_it_is_not_necessary(values: str) -> None:
    """All values are the same, or the classifier does not read them."""
    model = constructed(5, 32, WORDS)
    if values == "alike":
        model.network.W_v.data.zero_()
    else:
        model.network.W_l.data.zero_()
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice(WORDS, 60)) for _ in range(32)]
    found = heed.audit(model, documents, ["efficient-necessary"], examples=0)
    (verdict,), (evidence,) = found.verdicts, found.judged
    assert verdict.outcome == "undecided" and verdict.mean < 1e-12
    # that no other document moves by much can be told from some thousand that do not
    rows = [{"value": row["value"]} for row in evidence.rows * 40]
    (verdict,) = judge([Evidence(evidence.claim, rows)])
    assert verdict.outcome == "refuted" and verdict.high < 0.005


def test_how_near_attention_is_to_its_efficient_form() -> None:
    model = build()
    documents = texts(6, 36)
    rows = EfficientNear(positions="all").measure(Study(model, list(map(Document, documents))))
    raw = heed.explain(model, documents, "attention-mean", sink="kept")
    efficient = heed.explain(model, documents, "efficient", intervals=0)
    for row, one, two in zip(rows, raw, efficient, strict=True):
        # weights that are 0 up to rounding are equal
        both = (np.round(e.scores, 12) for e in (one, two))
        assert row["value"] == pytest.approx(stats.kendalltau(*both).statistic, abs=1e-3)
        assert row["tvd_from_attention"] > 0


def test_what_leaves_nothing_open_has_no_nearness_and_no_step() -> None:
    documents = [Document(text) for text in ("the film is good", LONG)]
    for claim in (EfficientNear(), EfficientNecessary(draws=2), NullStep(draws=2)):
        short, long = claim.measure(Study(build(), documents))
        assert np.isnan(short["value"]) and np.isfinite(long["value"])
