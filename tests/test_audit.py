"""Verdicts from rows, and what an audit keeps of itself.

Each statistic is compared with a slow version written out.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from conftest import UNTRAINED, Heard
from scipy.stats import spearmanr

import heed
from heed.audit import Audit, Example, audit
from heed.audit.examples import FEW, OPENED
from heed.claims import CLAIMS, Claim, ClaimTest, Evidence, Study, judge
from heed.claims.agrees import AgreesLime, Tracks
from heed.claims.claim import FAMILIES, Refusal, Row
from heed.claims.determined import Exclusive
from heed.claims.faithful import Removes
from heed.claims.needed import Used
from heed.claims.removal import tie_keys
from heed.claims.signed import Signed
from heed.claims.stable import Robust
from heed.claims.study import CHUNK
from heed.claims.yardsticks import FIRST_SAMPLES
from heed.data import Dataset
from heed.errors import DataError, InputError, OutputError, UnknownName
from heed.methods import (
    AttentionMax,
    AttentionMean,
    EfficientAttention,
    Lime,
    LimeExact,
    Method,
    make_method,
)
from heed.methods.comparison import rank_agreement
from heed.methods.method import Job, Measured
from heed.methods.removing import Removing, by_occurrence
from heed.models.classifier import CLOSED, Classifier
from heed.models.single_layer import SingleLayer
from heed.progress import listening
from heed.report import html, terminal
from heed.report.words import summary
from heed.text import Document, Tokenizer, Tokens
from tests.test_report import printed

UNREADABLE = "qqqq"  # in no vocabulary

LONG = (
    "the film is good , the plot is fresh and the music was warm ; but the ending was slow , "
    "the actor dull , a scene awful and cold ! "
    "do not miss it : very quick , very fine , great zyzzyva ?"
)


@pytest.fixture(scope="module")
def documents(texts: list) -> list[Document]:
    return [Document.of(t) for t in [*texts, LONG]]


# Verdicts


def claim(**changes: Any) -> Claim:
    plain = Claim("a", "agrees", "{method} is right", "τ", 0.5, "jain2019")
    return replace(plain, **changes)


def evidence(values: Sequence[float], reason: str = "", **changes: Any) -> Evidence:
    rows = [{"document": i, "id": f"d{i}", "value": v} for i, v in enumerate(values)]
    refusal = Refusal("model", reason) if reason else None
    return Evidence(claim(**changes), rows, refusal)


def around(centre: float, n: int = 40) -> list[float]:
    return list(centre + np.linspace(-0.01, 0.01, n))


@pytest.mark.parametrize(
    ("values", "above", "outcome"),
    [
        (around(0.6), True, "supported"),
        (around(0.4), True, "refuted"),
        (around(0.5), True, "undecided"),
        (around(0.4), False, "supported"),
        (around(0.6), False, "refuted"),
        (around(0.5), False, "undecided"),
        (around(0.6, 29), True, "undecided"),
        (around(0.6, 30), True, "supported"),
        ([0.5] * 40, True, "undecided"),
        ([0.5] * 40, False, "undecided"),
        ([], True, "undecided"),
        ([math.nan] * 40, True, "undecided"),
        ([*around(0.6, 30), *[math.nan] * 9], True, "supported"),
        ([*around(0.6, 29), *[math.nan] * 9], True, "undecided"),
    ],
)
def test_one_claim(values: list[float], above: bool, outcome: str) -> None:
    (found,) = judge([evidence(values, above=above)])
    known = [v for v in values if not math.isnan(v)]
    assert found.outcome == outcome
    assert found.n == len(known)
    assert found.mean == (pytest.approx(np.mean(known)) if known else None)
    assert bool(found.reason) == (outcome == "undecided")
    assert found.to_dict()["threshold"] == ("> 0.5" if above else "< 0.5")


def test_reasons_of_the_undecided() -> None:
    spans, few, none = judge(
        [evidence(around(0.5)), evidence(around(0.6, 5)), evidence([math.nan])]
    )
    assert "spans the threshold" in spans.reason
    assert "fewer than 30" in few.reason
    assert "no document" in none.reason


def test_documents_that_share_an_id_are_not_independent() -> None:
    values = np.repeat(np.random.default_rng(2).normal(0.6, 0.3, 40), 2)
    apart, pairs, same = (
        replace(found, rows=[row | {"id": name(i)} for i, row in enumerate(found.rows)])
        for found, name in (
            (evidence(list(values)), n) for n in (str, lambda i: str(i // 2), lambda i: "reviews")
        )
    )
    assert apart.groups is None and (apart.independent, pairs.independent, same.independent) == (
        80,
        40,
        1,
    )
    narrow, wide, none = (judge([found])[0] for found in (apart, pairs, same))
    assert narrow == judge([evidence(list(values))])[0]
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(2**0.5, rel=0.1)  # type: ignore[operator]
    assert (wide.n, narrow.n) == (40, 80) and wide.mean == narrow.mean
    assert none.outcome == "undecided" and "share an id or a text count as one" in none.reason


def test_copies_of_a_text_are_not_independent(model: SingleLayer) -> None:
    copies = audit(model, ["the film is good and the plot is great"] * 40, ["used", "removes"])
    assert {(v.outcome, v.n) for v in copies.verdicts} == {("undecided", 1)}
    assert {f.independent for f in copies.findings} == {1}
    documents = [
        Document("good film", "bad plot", id="a"),
        Document("good film"),
        Document("good film"),
        Document("bad film", id="b"),
        Document("bad plot", id="b"),
        Document("bad plot", id="c"),
        Document("great film", "bad plot", id="a"),
        Document("great film"),
    ]
    study = Study(model, documents)
    groups = [row.get("group", row["id"]) for row in study.ids]
    assert groups == ["a", "document 2", "document 2", "b", "b", "b", "a", ""]
    assert [row["id"] for row in study.ids] == [d.id for d in documents]


def test_evidence_that_could_not_be_had_is_not_applicable_with_its_reason() -> None:
    (found,) = judge([evidence([], reason="needs a recipe")])
    assert (found.outcome, found.reason, found.mean, found.n) == (
        "not applicable",
        "needs a recipe",
        None,
        0,
    )


GATED = {"id": "agrees-lime", "gated": True}


@pytest.mark.parametrize("gate", ["used", "needed"])
@pytest.mark.parametrize(("centre", "closed"), [(0.4, True), (0.5, False), (0.6, False)])
def test_the_gate(gate: str, centre: float, closed: bool) -> None:
    rows = [
        evidence(around(centre), id=gate),
        evidence(around(0.6), **GATED),
        evidence(around(0.6), id="removes"),
    ]
    first, gated, free = judge(rows)
    assert free.outcome == "supported"
    assert first.outcome == ("refuted" if closed else "undecided" if centre == 0.5 else "supported")
    assert gated.outcome == ("not applicable" if closed else "supported")
    assert (gate in gated.reason) == closed
    assert gated.mean == pytest.approx(0.6)  # what was measured stays visible


def test_the_gate_stands_in_any_order_and_keeps_an_older_reason() -> None:
    gated, refused, gate = judge(
        [
            evidence(around(0.6), **GATED),
            evidence([], reason="no gradients", id="agrees-gradient", gated=True),
            evidence(around(0.1), id="used"),
        ]
    )
    assert gate.outcome == "refuted"
    assert (gated.outcome, refused.outcome) == ("not applicable", "not applicable")
    assert "used" in gated.reason and refused.reason == "no gradients"


@pytest.mark.parametrize(("needed", "closed"), [(0.6, False), (0.5, False), (0.1, True)])
def test_needed_comes_before_used(needed: float, closed: bool) -> None:
    rows = [
        evidence(around(0.1), id="used"),
        evidence(around(needed), id="needed"),
        evidence(around(0.6), **GATED),
    ]
    assert (judge(rows)[2].outcome == "not applicable") == closed


def test_where_needed_cannot_be_run_used_is_the_gate() -> None:
    refused = evidence([], reason="needs a recipe", id="needed")
    _, used, gated = judge(
        [refused, evidence(around(0.1), id="used"), evidence(around(0.6), **GATED)]
    )
    assert used.outcome == "refuted"
    assert gated.outcome == "not applicable"


def test_too_few_documents_do_not_close_the_gate() -> None:
    used, gated = judge([evidence(around(0.1, 20), id="used"), evidence(around(0.6), **GATED)])
    assert (used.outcome, gated.outcome) == ("undecided", "supported")


def test_values_that_are_not_finite_are_left_out_and_further_columns_are_averaged() -> None:
    rows = [
        {"value": 1.0, "x": 2.0},
        {"value": math.inf, "x": None},
        {"value": math.nan},
        {"value": 3.0, "x": 4.0},
    ]
    found = Evidence(claim(), rows)
    assert found.values.tolist() == [1.0, 3.0]
    assert found.mean("x") == 3.0
    assert found.mean("y") is None


def test_thresholds_are_those_that_were_fixed_beforehand() -> None:
    found = {name: (c.claim.threshold, c.claim.above, c.claim.gated) for name, c in CLAIMS.items()}
    assert found == {
        "needed": (0.01, True, False),
        "used": (0.05, True, False),
        "exclusive": (0.5, False, True),
        "identified": (0.1, False, False),
        "efficient-sufficient": (1e-6, False, False),
        "null-step": (1e-6, False, False),
        "efficient-shared": (1e-8, False, False),
        "efficient-necessary": (0.005, True, False),
        "efficient-near": (0.8, True, False),
        "exclusive-model": (2.0, False, True),
        "stable": (0.25, False, False),
        "informative": (0.0, True, False),
        "agrees-gradient": (0.5, True, True),
        "agrees-removal": (0.5, True, True),
        "agrees-lime": (0.5, True, True),
        "tracks": (-0.05, True, True),
        "signed": (0.8, True, True),
        "removes": (0.1, True, False),
        "suffices": (0.1, True, False),
        "competitive": (-0.1, True, False),
        "sensitive": (0.5, False, False),
        "plausible": (0.1, True, False),
        "edited": (0.1, True, False),
        "robust": (0.7, True, False),
    }
    assert " ".join(FAMILIES) == (
        "needed determined causal agrees signed informative faithful plausible stable"
    )


def test_every_claim_needs_what_some_model_offers() -> None:
    """A misspelt need in claims.toml would keep its claim from ever being judged."""
    needs = frozenset().union(*(cls.claim.needs for cls in CLAIMS.values()))
    assert needs <= SingleLayer.offers


# Statistics against slow versions


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def literal_pass(
    model: SingleLayer, tokens: Tokens
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Attention [head, key] of one document, and the probabilities that any other would give."""
    net, shape = model.network, model.shape
    ids = [int(i) for i in tokens.ids]
    if shape.padding == "attends":
        ids += [0] * (shape.max_words + 1 - len(ids))
    e = [(net.W_e[i] + net.W_p[t]).numpy() for t, i in enumerate(ids)]
    attention, values = [], []
    for k in range(shape.heads):
        q, b_k, b_v = net.W_q[k].numpy() @ e[0], 0.0, 0.0
        if shape.biases:
            q, b_k, b_v = q + net.b_q[k].numpy(), net.b_k[k].numpy(), net.b_v[k].numpy()
        keys = [net.W_k[k].numpy() @ x + b_k for x in e]
        attention.append(softmax(np.array([q @ key for key in keys]) / math.sqrt(shape.d_att)))
        values.append([net.W_v[k].numpy() @ x + b_v for x in e])

    def predict(weights: np.ndarray) -> np.ndarray:
        logits = np.zeros(shape.labels)
        for k in range(shape.heads):
            context = sum(w * v for w, v in zip(weights[k], values[k], strict=True))
            logits += net.W_l[:, k].numpy() @ context / shape.heads
        return softmax(logits + (net.b_l.numpy() if shape.biases else 0.0))

    return np.array(attention), predict


@pytest.mark.parametrize("positions", ["words", "all"])
def test_used_is_the_loop_over_permutations(
    any_model: SingleLayer, documents: list, positions: str
) -> None:
    model = any_model
    test = Used(permutations=7, positions=positions)  # type: ignore[arg-type]
    study = Study(model, documents, seed=3)
    tolerance = 1e-9 if model.network.W_e.dtype.itemsize == 8 else 1e-4
    for row, tokens in zip(test.measure(study), model.tokens(documents), strict=True):
        attention, predict = literal_pass(model, tokens)
        places = [t for t in range(len(tokens)) if positions == "all" or tokens.word[t] >= 0]
        orders = study.rng("used", tokens.document).permuted(np.tile(places, (7, 1)), axis=1)
        plain, distances = predict(attention), []
        for order in orders:
            moved = attention.copy()
            for place, source in zip(places, order, strict=True):
                moved[:, place] = attention[:, source]  # all heads alike
            distances.append(np.abs(predict(moved) - plain).sum() / 2)
        assert row["value"] == pytest.approx(np.median(distances), abs=tolerance)
        mean, special = attention.mean(0), [t for t in range(len(tokens)) if tokens.word[t] < 0]
        assert row["special_attention"] == pytest.approx(mean[special].sum(), abs=tolerance)
        assert row["padding_attention"] == pytest.approx(mean[len(tokens) :].sum(), abs=tolerance)
        assert row["max_attention"] == pytest.approx(
            max(mean[t] for t in range(len(tokens)) if t not in special), abs=tolerance
        )


def test_one_word_has_nothing_to_permute_unless_special_tokens_move(model: SingleLayer) -> None:
    one, pair = Study(model, [Document("awful")]), Study(model, [Document("awful", "")])
    assert Used().measure(one)[0]["value"] == pytest.approx(0, abs=1e-12)
    assert Used().measure(pair)[0]["value"] == pytest.approx(0, abs=1e-12)
    assert Used(positions="all").measure(pair)[0]["value"] > 0


def removed(document: Document, words: Sequence[Any], gone: Sequence[int]) -> tuple[str, ...]:
    """The document with some words overwritten by nonsense, which the model reads as <unk>."""
    found = []
    for s, segment in enumerate(document.segments):
        for i in sorted(gone, reverse=True):
            if words[i].segment == s:
                segment = f"{segment[: words[i].start]} {UNREADABLE} {segment[words[i].end :]}"
        found.append(segment)
    return tuple(found)


def as_text(segments: tuple[str, ...]) -> Any:
    return segments[0] if len(segments) == 1 else segments


def test_removes_is_the_loop_over_texts_with_nonsense_words(
    model: SingleLayer, documents: list
) -> None:
    study = Study(model, documents, seed=1)
    for row, tokens in zip(Removes(orders=3).measure(study), model.tokens(documents), strict=True):
        document, words = tokens.document, tokens.words
        n, attention = len(words), heed.explain(model, document, "attention-mean").scores
        probabilities = model.predict([document])[0]
        label = int(probabilities.argmax())
        keys = tie_keys(study, Removes(orders=3), documents.index(document))
        first = sorted(range(n), key=lambda i: -attention[i])
        orders = [first] + [list(np.argsort(key)) for key in keys]
        areas = []
        for order in orders:
            cuts = [max(1, -(-k * n // 20)) for k in range(1, 11)]  # 5 %, 10 % … 50 %, rounded up
            texts = [as_text(removed(document, words, order[:cut])) for cut in cuts]
            areas.append(np.mean([probabilities[label] - p[label] for p in model.predict(texts)]))
        assert row["comprehensiveness"] == pytest.approx(areas[0], abs=1e-9)
        assert row["random"] == pytest.approx(np.mean(areas[1:]), abs=1e-9)
        difference = areas[0] - np.mean(areas[1:])
        assert row["variant_raw_replace"] == pytest.approx(difference, abs=1e-9)
        if n >= 3 and row["best"] - row["worst"] > 1e-6:
            scaled = difference / (row["best"] - row["worst"])
            assert row["value"] == row["value_replace"] == pytest.approx(scaled, abs=1e-9)


def by_word(e: heed.Explanation, tokens: Tokens) -> dict[tuple[int, str], float]:
    """Scores summed over the occurrences of each distinct word."""
    total: dict[tuple[int, str], float] = {}
    for unit, score in zip(e.units, e.scores, strict=True):
        key = (unit.segment, tokens.tokenizer.normalise(unit.text))
        total[key] = total.get(key, 0.0) + score
    return total


def tau_b(x: Sequence[float], y: Sequence[float]) -> float:
    """Over all pairs, with differences that are mere rounding taken as ties."""
    s = tx = ty = 0
    for i in range(len(x)):
        for j in range(i):
            a, b = (
                0 if abs(u[i] - u[j]) < 1e-9 * max(map(abs, u)) else np.sign(u[i] - u[j])
                for u in (x, y)
            )
            s, tx, ty = s + a * b, tx + abs(a), ty + abs(b)
    return s / math.sqrt(tx * ty) if tx and ty else math.nan


def weighted_tau(x: Sequence[float], y: Sequence[float]) -> float:
    """Over all pairs, each weighted by the larger y, with rounding taken as ties."""
    above = below = 0.0
    for i in range(len(x)):
        for j in range(i):
            a, b = (
                0 if abs(u[i] - u[j]) < 1e-9 * max(map(abs, u)) else np.sign(u[i] - u[j])
                for u in (x, y)
            )
            above, below = above + max(y[i], y[j]) * a * b, below + max(y[i], y[j]) * abs(b)
    return above / below if below else math.nan


@pytest.mark.parametrize("name", ["attention-mean", "gradient-input"])
@pytest.mark.parametrize("closed", [True, False])
def test_agreement_with_lime_is_tau_over_distinct_words(
    model: SingleLayer, documents: list, name: str, closed: bool
) -> None:
    if not closed:
        model = SingleLayer(model.network, model.tokenizer, model.labels)
        model.offers = model.offers - {CLOSED}  # type: ignore[misc]
    lime_method = {"method": "lime-exact"} if closed else {"method": "lime", "samples": 200}
    lime_method["output"] = "log-odds"
    study = Study(model, documents, make_method(name), seed=2)
    rows = AgreesLime(samples=200).measure(study)
    for row, tokens in zip(rows, model.tokens(documents), strict=True):
        judged = by_word(heed.explain(model, tokens.document, name, seed=2), tokens)
        lime = by_word(heed.explain(model, tokens.document, seed=2, **lime_method), tokens)
        pair = [abs(judged[w]) for w in lime], [abs(v) for v in lime.values()]
        assert row["plain"] == pytest.approx(tau_b(*pair), abs=1e-9, nan_ok=True)
        expected = weighted_tau(*pair)
        assert row.get("uncorrected", row["value"]) == pytest.approx(expected, nan_ok=True)


def test_signed_is_the_share_of_top_words_that_lime_does_not_score_negative(
    model: SingleLayer, documents: list
) -> None:
    many = Document(
        " ".join(f"word{i}" for i in range(24)) + " the film is good but the plot is bad and slow"
    )
    for row, tokens in zip(
        Signed(samples=300).measure(Study(model, [*documents, many])),
        model.tokens([*documents, many]),
        strict=True,
    ):
        attention = by_word(heed.explain(model, tokens.document, "attention-mean"), tokens)
        lime = by_word(
            heed.explain(model, tokens.document, "lime-exact", output="log-odds"), tokens
        )
        lime = {
            w: 0.0 if abs(v) < 1e-9 * max(map(abs, lime.values())) else v for w, v in lime.items()
        }
        top = sorted(attention, key=lambda w: -attention[w])[: max(3, round(len(attention) / 10))]
        known = [lime[w] for w in top if lime[w]]
        expected = sum(score > 0 for score in known) / len(known) if known else math.nan
        assert row["value"] == pytest.approx(expected, nan_ok=True)
        against = sum(-v for v in lime.values() if v < 0) / (
            sum(abs(v) for v in lime.values()) or 1.0
        )
        assert row["negative_contribution"] == pytest.approx(against)


def test_agreement_with_removal_and_with_the_gradient(model: SingleLayer, documents: list) -> None:
    by_gradient, by_removal = (
        CLAIMS[name]().measure(Study(model, documents))
        for name in ("agrees-gradient", "agrees-removal")
    )
    for i, tokens in enumerate(model.tokens(documents)):
        document, words = tokens.document, tokens.words
        attention = heed.explain(model, document, "attention-mean").scores
        gradient = np.abs(
            heed.explain(model, document, "gradient-input", output="probability").scores
        )
        plain = model.predict([document])[0]
        without = model.predict([as_text(removed(document, words, [j])) for j in range(len(words))])
        removal = np.abs(plain.max() - without[:, plain.argmax()])
        for row, yardstick in ((by_gradient[i], gradient), (by_removal[i], removal)):
            expected = weighted_tau(attention, yardstick)
            assert row["value"] == pytest.approx(expected, abs=1e-9, nan_ok=True)
            expected = tau_b(attention, yardstick)
            assert row["plain"] == pytest.approx(expected, abs=1e-9, nan_ok=True)
        expected = weighted_tau(removal, gradient)
        assert by_gradient[i]["ceiling"] == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_tracking_is_by_the_change_of_log_odds(model: SingleLayer, documents: list) -> None:
    rows = Tracks().measure(Study(model, documents))
    for row, tokens in zip(rows, model.tokens(documents), strict=True):
        document, words = tokens.document, tokens.words
        if len(words) < 3:
            continue
        p = model.predict(
            [document, *(as_text(removed(document, words, [j])) for j in range(len(words)))]
        )
        odds = np.log(p[:, p[0].argmax()]) - np.log(p[:, p[0].argmin()])
        scores = [
            heed.explain(model, document, name, **settings).scores
            for name, settings in (
                ("attention-mean", {}),
                ("gradient-input", {"output": "log-odds"}),
            )
        ]
        mine, theirs = (spearmanr(x, odds[0] - odds[1:]).statistic for x in scores)
        assert row["value"] == pytest.approx(mine - theirs, abs=1e-6, nan_ok=True)


# What must not matter, and what must


def values(found: Audit, name: str) -> dict[str, float]:
    (chosen,) = [e for e in found.evidence if e.claim.id == name and not e.control]
    # the first documents decide how much noise is corrected for
    column = "uncorrected" if name == "robust" else "value"
    return {row["id"]: row[column] for row in chosen.rows}


@pytest.fixture(scope="module")
def named(documents: list) -> list[Document]:
    return [replace(d, id=f"n{i}", label=i % 2) for i, d in enumerate(documents)]


@pytest.fixture(scope="module")
def whole(model: SingleLayer, named: list) -> Audit:
    return audit(model, named, seed=5, examples=2)


@pytest.mark.parametrize(
    "name", [n for n in UNTRAINED if n not in ("plausible", "edited")]
)  # of marks and of pairs
def test_order_and_company_of_documents_change_nothing(
    model: SingleLayer, named: list, whole: Audit, name: str
) -> None:
    test: str | ClaimTest = name
    expected = values(whole, name)
    if name == "robust":  # as many samples for each document: how many, all decide together
        test = Robust(samples=FIRST_SAMPLES)
        expected = values(audit(model, named, [test], seed=5, examples=0), name)
    backwards = values(audit(model, named[::-1], [test], seed=5, examples=0), name)
    assert backwards == pytest.approx(expected, abs=1e-5, nan_ok=True)
    # the rival is chosen by other documents, and a search ends when all of them gain little more
    if name in ("competitive", "exclusive"):
        return
    alone = {}
    for d in named:  # a document that leaves nothing open has no value, and alone not even a row
        alone |= {d.id: math.nan} | values(audit(model, [d], [test], seed=5, examples=0), name)
    assert backwards == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert alone == pytest.approx(expected, abs=1e-9, nan_ok=True)


COPIES = 11


def test_more_documents_than_are_measured_together(
    model: SingleLayer, whole: Audit, named: list
) -> None:
    many = [replace(d, id=f"{d.id}/{i}") for i in range(COPIES) for d in named]
    assert len(many) > CHUNK
    found = audit(model, many, seed=5, examples=0)
    for name in UNTRAINED:
        expected, got = values(whole, name), values(found, name)
        assert len(got) == (len(many) if expected else 0)
        # thousands of steps in single precision magnify rounding, which differs by batch
        near = 2e-3 if name == "exclusive" else 1e-9
        assert got == pytest.approx(
            {f"{k}/{i}": v for i in range(COPIES) for k, v in expected.items()},
            abs=near,
            nan_ok=True,
        )


def test_the_same_audit_twice_is_the_same(model: SingleLayer, named: list, whole: Audit) -> None:
    again = audit(model, named, seed=5, examples=2)
    for a, b in zip(whole.evidence, again.evidence, strict=True):
        assert a.claim == b.claim and a.reason == b.reason
        np.testing.assert_equal(a.rows, b.rows)
    assert [v.to_dict() for v in whole.verdicts] == [v.to_dict() for v in again.verdicts]
    assert whole.facts | {"seconds": 0} == again.facts | {"seconds": 0}


def test_another_seed_moves_what_is_drawn_and_nothing_else(
    model: SingleLayer, named: list, whole: Audit
) -> None:
    other = audit(model, named, seed=6, examples=0)
    for name in ("used", "agrees-lime", "removes"):
        assert values(other, name) != values(whole, name)
    for name in ("agrees-gradient", "agrees-removal"):
        np.testing.assert_equal(values(other, name), values(whole, name))


def test_subset_of_claims_and_settings(model: SingleLayer, named: list, whole: Audit) -> None:
    found = audit(model, named, ["removes", Used(permutations=11)], seed=5)
    assert [v.claim.id for v in found.verdicts] == ["used", "removes"]
    # the gate is tested first, and the other claim is alone in its family
    assert [v.level for v in found.verdicts] == pytest.approx([0.95, 0.95])
    settings = {"permutations": 11, "everywhere": 20, "layers": "judged", "positions": "words"}
    assert found.facts["settings"]["used"] == settings
    # a text of two words has nothing to rank
    assert values(found, "removes") == pytest.approx(values(whole, "removes"), nan_ok=True)


def test_another_method_is_judged(model: SingleLayer, named: list) -> None:
    found = audit(model, named, methods=Lime(samples=200), examples=1)
    assert list(found.facts["methods"]) == ["lime"]
    shown = ["lime", "attention-mean", "gradient-input", "occlusion", "efficient", "lime-exact"]
    assert [e.method for e in found.examples[0].explanations if e.method != "flip"] == shown
    sentences = [v.sentence for v in found.verdicts]
    assert "Lime ranks words as the gradient does" in sentences
    assert not any("{" in s or "attention ranks" in s.lower() for s in sentences)
    for claim in ("agrees-lime", "signed"):
        (verdict,) = [v for v in found.verdicts if v.claim.id == claim]
        assert (verdict.outcome, verdict.reason) == (
            "not applicable",
            "lime would be compared with itself",
        )


def test_a_claim_is_tested_once(model: SingleLayer, named: list) -> None:
    with pytest.raises(InputError, match="tested twice"):
        audit(model, named, ["removes", "removes"])


def test_agreement_is_the_mean_over_documents_that_both_explain(whole: Audit) -> None:
    names, matrix, counts = whole.agreement()
    i, j = names.index("lime-exact"), names.index("attention-mean")
    taus = []
    for example in whole.examples:
        by = {e.method: e for e in example.explanations}
        taus.append(rank_agreement(by["attention-mean"], by["lime-exact"]))
    assert matrix[i, j] == pytest.approx(np.mean(taus)) and counts[i, j] == len(taus)
    some = replace(whole, examples=(whole.examples[0], Example(whole.examples[1].explanations[:2])))
    assert some.agreement()[2][i, j] == 1 and some.agreement()[1][i, j] == pytest.approx(taus[0])


@pytest.mark.parametrize("labels", [("Positive", "negative"), ("sport", "politics")])
def test_gold_labels_of_examples_are_those_of_the_model(
    model: SingleLayer, labels: tuple[str, ...]
) -> None:
    documents = tuple(
        Document(t, label=i % 2) for i, t in enumerate(["good film", "bad plot", "slow music"])
    )
    found = audit(
        model, Dataset("mine", "all", documents, labels, "", ""), ["removes"], examples=200
    )
    known = {"Positive": 1, "negative": 0}
    assert [e.gold for e in found.examples] == [known.get(labels[d.label or 0]) for d in documents]


def test_words_that_stand_in_both_texts_of_a_pair_are_removed_apart(model: SingleLayer) -> None:
    """Three distinct words over two texts, two of them at the same characters."""
    pair = Document("good good", "good film")
    e = heed.explain(model, pair, "lime-exact")
    shared = Removing(model, [pair])
    (units,) = shared.units
    first, second, film = e.scores
    np.testing.assert_array_equal(by_occurrence(e, units), [first / 2, first / 2, second, film])
    # of four words, one is removed for shares up to a quarter, and two for those up to a half
    areas = shared.areas("comprehensiveness", "replace", {0: np.array([[2, 0, 1, 3]])})[0]
    kept = np.array([[True] * 4, [True, True, False, True], [False, True, False, True]])
    (logits,) = model.score(model.tokens([pair]), [kept])
    p = model.probabilities(logits)[:, model.label(e.label)]
    assert areas[0, 0] == pytest.approx((5 * (p[0] - p[1]) + 5 * (p[0] - p[2])) / 10)


def test_the_gate_joins_claims_that_it_guards(model: SingleLayer, named: list) -> None:
    def ids(claims: list[str], method: str = "attention-mean") -> list[str]:
        return [v.claim.id for v in audit(model, named, claims, method, examples=0).verdicts]

    assert ids(["signed"]) == ["used", "signed"]
    assert ids(["signed", "used"]) == ["used", "signed"]  # before any budget is spent
    assert ids(["removes"]) == ["removes"]
    assert ids(["agrees-removal"], "gradient-l2") == [
        "agrees-removal"
    ]  # the gate is about attention


def test_the_gate_is_for_attention_alone() -> None:
    flat = Evidence(CLAIMS["used"].claim, [{"value": 0.0}] * 250)
    high = Evidence(CLAIMS["agrees-removal"].claim, [{"value": 0.9}] * 250)
    assert [v.outcome for v in judge([flat, high])] == ["refuted", "not applicable"]
    assert [v.outcome for v in judge([flat, replace(high, method="rollout")])] == [
        "refuted",
        "not applicable",
    ]
    assert [v.outcome for v in judge([flat, replace(high, method="gradient-l2")])] == [
        "refuted",
        "supported",
    ]


def test_an_audit_says_what_was_cut_off_and_unknown(model: SingleLayer) -> None:
    texts = ["good film", "good qqq", "good " * (model.shape.max_words + 5)]
    facts = audit(model, texts, ["removes"], examples=0).facts
    assert facts["truncated"] == 1
    assert facts["unknown"] == pytest.approx(1 / (4 + model.shape.max_words))


@pytest.mark.parametrize(
    "documents", ["a fine film", Document("a fine film")], ids=["text", "document"]
)
def test_one_text_is_not_a_list_of_documents(model: SingleLayer, documents: Any) -> None:
    with pytest.raises(InputError, match=r"one text; for a file, pass heed.data.load\(FILE\)"):
        audit(model, documents)


def test_settings_of_the_method_reach_it(model: SingleLayer, named: list) -> None:
    mean, largest = (
        audit(model, named, ["removes"], e, examples=0) for e in ("attention-mean", AttentionMax())
    )
    assert values(mean, "removes") != values(largest, "removes")
    with pytest.raises(UnknownName, match="lime"):
        audit(model, named, methods="lim")
    with pytest.raises(UnknownName, match="used"):
        audit(model, named, ["usd"])


# Facts


def test_rows_of_a_claim_that_takes_long_are_kept(
    model: SingleLayer, named: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = ["removes", "competitive", "robust"]
    one = audit(model, named, claims, examples=0, store=tmp_path)

    def asked(*_: Any) -> Any:
        raise AssertionError("it was measured before")

    monkeypatch.setattr(SingleLayer, "score", asked)
    monkeypatch.setattr(LimeExact, "explain", asked)
    two = audit(model, named, claims, examples=0, store=tmp_path)
    assert all(
        values(one, name) == pytest.approx(values(two, name), nan_ok=True) for name in claims
    )


SIGN = {"is": 1.0}


@dataclass(frozen=True)
class OwnMethod(Method):
    name = "own"
    summary = "the number of the word"

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [Measured(SIGN["is"] * np.arange(len(job.units), dtype=float)) for job in jobs]


@dataclass(frozen=True)
class OwnClaim(Removes):
    def measure(self, study: Study) -> list[Row]:
        return study.by_explanation(self, lambda indices: [{"value": SIGN["is"]} for _ in indices])


@pytest.mark.parametrize(
    ("claim", "method"), [("removes", OwnMethod()), (OwnClaim(), "attention-mean")]
)
def test_what_own_classes_measure_is_measured_anew(
    model: SingleLayer,
    named: list,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    claim: Any,
    method: Any,
) -> None:
    measured = []
    for sign in (1.0, -1.0):
        monkeypatch.setitem(SIGN, "is", sign)
        measured.append(values(audit(model, named, [claim], method, store=tmp_path), "removes"))
    assert measured[0] != measured[1]


def test_a_statistic_that_cannot_be_computed_is_none() -> None:
    def constant(texts: list[str]) -> list[list[float]]:
        return [[0.4, 0.6]] * len(texts)

    (verdict,) = audit(
        constant, [f"a film {i}" for i in range(35)], ["competitive"], "occlusion"
    ).verdicts
    assert (
        verdict.outcome == "undecided"
        and verdict.mean is None
        and "no document has this statistic" in verdict.reason
    )


def test_what_is_added_to_all_logits_changes_nothing(model: SingleLayer, named: list) -> None:
    """It leaves the predictions as they are."""
    network = deepcopy(model.network)
    added = torch.randn(
        network.W_l.shape[1:], generator=torch.Generator().manual_seed(0), dtype=network.W_l.dtype
    )
    network.W_l.data += 3 * added
    same_model = SingleLayer(network, model.tokenizer, model.labels)
    np.testing.assert_allclose(same_model.predict(named), model.predict(named), atol=1e-6)
    claims = [
        name for name in UNTRAINED if name not in ("sensitive", "plausible", "edited")
    ]  # which draws weights
    claims = [name for name in claims if not name.startswith(("identified", "efficient", "null"))]
    one, two = (audit(m, named, claims, examples=0) for m in (model, same_model))
    for name in claims:
        first, second = values(one, name), values(two, name)
        assert list(first.values()) == pytest.approx(
            list(second.values()), abs=2e-3, nan_ok=True
        ), name
    for first, second in zip(one.conditions, two.conditions, strict=True):
        assert first == pytest.approx(second, abs=1e-4, nan_ok=True)


def test_facts(model: SingleLayer, named: list, whole: Audit) -> None:
    facts = whole.facts
    right = [int(p) == d.label for p, d in zip(model(named).argmax(1), named, strict=True)]
    assert facts["accuracy"] == pytest.approx(np.mean(right))
    assert (facts["model"], facts["revision"]) == (model.name, model.revision)
    assert (facts["documents"], facts["left_out"], facts["seed"]) == (len(named), 0, 5)
    assert list(facts["methods"]) == ["attention-mean"]
    assert facts["data"] == f"{len(named)} documents"
    assert set(facts["settings"]) == set(CLAIMS)
    assert facts["seconds"] > 0 and facts["heed"]
    assert len(whole.examples) == 2
    shown = ["attention-mean", "gradient-input", "occlusion", "efficient", "lime-exact"]
    assert [e.method for e in whole.examples[0].explanations if e.method != "flip"] == shown
    heads = [
        heed.explain(model, named[0], "attention-head", head=h).scores
        for h in range(model.shape.heads)
    ]
    np.testing.assert_allclose(whole.examples[0].heads, heads, atol=1e-6)


@pytest.mark.parametrize(
    ("labels", "gold", "accuracy"),
    [
        (("negative", "positive"), "index", 1.0),
        (("Positive", "NEGATIVE"), "swapped", 1.0),  # by name, whatever their order
        (("0", "1"), "index", 1.0),
        (("bad", "good"), "index", None),
        (("negative", "neutral", "positive"), "index", None),
        (("0", "1", "2"), "index", None),
        (("1", "2"), "index", None),
        ((), "none", None),
    ],
)
def test_accuracy_goes_by_the_names_of_labels(
    model: SingleLayer, labels: tuple[str, ...], gold: str, accuracy: float | None
) -> None:
    texts = ["good film", "bad plot", "the music was warm", "it is slow"]
    predicted = [int(i) for i in model(texts).argmax(1)]
    mapped = {"index": predicted, "swapped": [1 - i for i in predicted], "none": [None] * 4}[gold]
    documents = tuple(Document(t, id=t, label=g) for t, g in zip(texts, mapped, strict=True))
    heard = Heard()
    with listening(heard):
        found = audit(model, Dataset("mine", "all", documents, labels, "", ""), ["removes"])
    assert found.facts["accuracy"] == accuracy
    assert found.facts["data"] == "mine (all)"
    differ = f"The labels of the data ({', '.join(labels)}) are not those of the model"
    said = any(line.startswith(differ) for line in heard.lines)
    assert said == (accuracy is None and gold != "none")


def test_labels_that_are_numbers_go_by_name_first() -> None:
    model = Counting()
    model.labels = ("1", "2")
    documents = [Document("good", label=1), Document("bad", label=0)]
    data = Dataset("mine", "all", tuple(documents), ("1", "2"), "", "")
    assert audit(model, data, "removes", "occlusion").facts["accuracy"] == 1.0


def test_documents_without_words_are_left_out_and_counted(model: SingleLayer) -> None:
    found = audit(
        model, ["", "a good film", " \x00 ", Document("bad plot", id="b")], ["used"], examples=4
    )
    assert (found.facts["documents"], found.facts["left_out"]) == (2, 2)
    assert [row["id"] for row in found.evidence[0].rows] == ["", "b"]
    assert [e.explanations[0].document.text for e in found.examples] == ["a good film", "bad plot"]


def test_intervals_are_shown_of_the_documents_that_leave_most_open() -> None:
    texts = [d.text for d in heed.data.tasks.reviews(60)]
    long = " ".join(texts)
    found = audit(heed.load(), [*texts[:OPENED], long], "used", examples=200)
    shown = [
        next(e for e in x.explanations if e.method == "efficient").intervals is not None
        for x in found.examples
    ]
    assert shown[-1] and sum(shown) == OPENED


@pytest.mark.parametrize("method", [AttentionMean(), EfficientAttention(intervals=12)])
def test_an_example_holds_explanations_of_its_own_document(method: Method) -> None:
    texts = [d.text for d in heed.data.tasks.reviews(60)]
    growing = [
        " ".join(texts[:n]) for n in (1, 2, 8, 3, 16)
    ]  # of which ever more is open, but for one
    found = audit(heed.load(), growing, "used", method, examples=200)
    for text, example in zip(growing, found.examples, strict=True):
        assert {e.document.text for e in example.explanations} == {text}


@pytest.mark.parametrize("documents", [[], ["", "  "]])
def test_nothing_to_audit_is_refused(model: SingleLayer, documents: list) -> None:
    with pytest.raises(InputError, match="needs documents"):
        audit(model, documents)


def test_the_summary_has_one_text_per_family(whole: Audit) -> None:
    texts = summary(whole)
    assert list(texts) == [
        *(
            "Conditions for attention to explain",
            "Needed",
            "Determined",
            "Causal",
            "Agrees",
            "Signed",
            "Informative",
            "Faithful",
            "Plausible",
            "Stable",
        )
    ]
    for verdict in whole.verdicts:
        assert sum(f"“{verdict.sentence}”" in text for text in texts.values()) == 1
    assert all(text.endswith(".") and not text.endswith("..") for text in texts.values())


def test_a_reason_that_a_family_shares_is_said_once() -> None:
    rows = [
        evidence(around(0.01), id="used", family="needed", threshold=0.05),
        *(
            evidence(around(0.6), id=f"agrees-{i}", gated=True, sentence=f"{i} agrees")
            for i in range(3)
        ),
    ]
    texts = summary(Audit({"methods": {"attention-mean": {}}}, tuple(rows)))
    assert list(texts) == ["Needed", "Agrees"]
    assert texts["Needed"].startswith("no.")
    assert texts["Agrees"].startswith("not judged.")
    assert all(f"“{i} agrees”" in texts["Agrees"] for i in range(3))
    assert texts["Agrees"].count("bad testbed") == 1


# On disk


def same(a: Audit, b: Audit) -> None:
    assert a.facts == b.facts
    assert [v.to_dict() for v in a.verdicts] == [v.to_dict() for v in b.verdicts]
    assert a.to_dict() == b.to_dict()
    for x, y in zip(a.evidence, b.evidence, strict=True):
        assert (x.claim, x.reason, len(x.rows)) == (y.claim, y.reason, len(y.rows))
        for row, read in zip(x.rows, y.rows, strict=True):
            np.testing.assert_equal({k: v for k, v in row.items() if v is not None}, read)
    np.testing.assert_equal(a.conditions, b.conditions)
    for one, other in zip(a.examples, b.examples, strict=True):
        assert [e.to_dict() for e in one.explanations] == [e.to_dict() for e in other.explanations]
        assert (one.heads is None) == (other.heads is None)
        if one.heads is not None:
            np.testing.assert_array_equal(one.heads, other.heads)


def test_an_audit_is_read_back_as_it_was(whole: Audit, tmp_path: Path) -> None:
    assert any(math.isnan(row["value"]) for e in whole.evidence for row in e.rows)
    whole.save(tmp_path / "rows.parquet")
    same(whole, Audit.load(tmp_path / "rows.parquet"))
    table = pq.read_table(tmp_path / "rows.parquet")
    assert {"claim", "document", "id", "value"} <= set(table.column_names)
    rows = sum(len(e.rows) for e in whole.evidence)
    assert table.num_rows == rows + len(whole.conditions) + len(whole.examples)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threshold": 0.07}, "used has the threshold > 0.05, and had > 0.07"),
        ({"above": False}, "used has the threshold > 0.05, and had < 0.05"),
        ({"sentence": "Attention is nice."}, "used is worded differently"),
    ],
)
def test_an_audit_that_is_judged_by_other_claims_says_so(
    whole: Audit, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    used = next(e for e in whole.evidence if e.claim.id == "used")
    old = replace(used, claim=replace(used.claim, **change))
    replace(whole, evidence=(old,)).save(tmp_path / "rows.parquet")
    read = Audit.load(tmp_path / "rows.parquet")
    assert read.verdicts[0].claim == used.claim
    assert read.facts["rejudged"] == f"by the claims as they are today: {said}"
    assert said in " ".join(printed(terminal.audit(read)).split())
    assert escape(said) in html.audit(read)


@pytest.mark.parametrize("ids", ["d", None], ids=["named", "none"])
@pytest.mark.parametrize("kind", ["some", "nan", "no-rows", "nothing"])
def test_odd_rows_are_read_back(ids: str | None, kind: str, tmp_path: Path) -> None:
    def rows(n: int, **more: float) -> list[dict[str, Any]]:
        return [
            {"document": i, "id": ids, "value": math.nan if kind == "nan" else i / n} | more
            for i in range(n)
        ]

    found = {
        "some": (
            Evidence(CLAIMS["used"].claim, rows(40, extra=1.5)),
            Evidence(CLAIMS["signed"].claim, []),
        ),
        "nan": (Evidence(CLAIMS["used"].claim, rows(40)),),
        "no-rows": (Evidence(CLAIMS["used"].claim, [], Refusal("model", "needs more")),),
        "nothing": (),
    }[kind]
    facts = {
        "model": "ü🎬",
        "revision": "1",
        "data": "d",
        "documents": 40,
        "seed": 0,
        "seconds": 1.5,
        "heed": "0",
    }
    made = Audit(facts | {"methods": {"attention-mean": {}}, "accuracy": None}, found)
    made.save(tmp_path / "rows.parquet")
    same(made, Audit.load(tmp_path / "rows.parquet"))


def test_rows_of_chance_methods_are_kept_and_get_no_verdict(whole: Audit, tmp_path: Path) -> None:
    removes = next(e for e in whole.judged if e.claim.id == "removes")
    chance = replace(removes, method="guess", control=True)
    made = replace(whole, evidence=(chance, *whole.evidence))
    made.save(tmp_path / "rows.parquet")
    read = Audit.load(tmp_path / "rows.parquet")
    assert [e.control for e in read.evidence] == [True, *(e.control for e in whole.evidence)]
    assert len(read.judged) == len(read.verdicts) == len(whole.verdicts)
    # a file of an earlier version does not know of controls
    table = pq.read_table(tmp_path / "rows.parquet")
    about = json.loads(table.schema.metadata[b"heed"])
    for stated in about["claims"]:
        del stated["control"]
    older = table.replace_schema_metadata({"heed": json.dumps(about)})
    pq.write_table(older, tmp_path / "older.parquet")
    assert not any(e.control for e in Audit.load(tmp_path / "older.parquet").evidence)


def test_files_that_hold_no_audit_are_refused(whole: Audit, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        Audit.load(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="neither an audit"):
        Audit.load(tmp_path)
    (tmp_path / "text.parquet").write_text("claim,value\n")
    pq.write_table(pa.table({"claim": ["used"]}), tmp_path / "plain.parquet")
    table = pa.table({"claim": ["used"]})
    for i, about in enumerate(
        [b"{", b"[]", b"{}", b'{"facts": {}, "claims": [{"claim": "nope"}]}']
    ):
        pq.write_table(table.replace_schema_metadata({"heed": about}), tmp_path / f"{i}.parquet")
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(DataError, match="does not hold"):
            Audit.load(path)


def test_verdicts_are_shown_in_short(whole: Audit) -> None:
    for v in whole.verdicts:
        assert repr(v).startswith(f"<Verdict on {v.claim.id}") and v.outcome in repr(v)
        assert "{" not in repr(v) + repr(v.claim) and len(repr(v)) < 300


def test_a_model_without_attention_is_judged_by_lime() -> None:
    heard = Heard()
    with listening(heard):
        found = audit(Counting(), ["good film", "bad plot"], "removes")
    assert list(found.facts["methods"]) == ["lime"]
    assert "counting shows no attention: lime is judged." in heard.lines


def test_a_small_file_that_stands_for_millions_of_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"value": pa.nulls(6_000_000, pa.float64())}), path)
    assert path.stat().st_size < 20_000
    with pytest.raises(DataError, match=r"too large: 6,000,000 rows with 1 columns"):
        Audit.load(path)


def test_a_place_that_cannot_be_written_is_refused(whole: Audit, tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        whole.save(tmp_path / "no" / "rows.parquet")
    with pytest.raises(OutputError, match=r"saved as \.parquet, got 'rows\.html'"):
        whole.save(tmp_path / "rows.html")


def test_the_name_of_a_file_may_be_a_string(whole: Audit, tmp_path: Path) -> None:
    path = str(tmp_path / "rows.parquet")
    whole.save(path)
    assert Audit.load(path).to_dict() == whole.to_dict()


# A model that offers nothing


class Counting(Classifier):
    """Counts good and bad words; it has logits and scores, and no attention, trace or gradient."""

    name, revision, labels = "counting", "1", ("negative", "positive")
    offers: frozenset[str] = frozenset()
    removals = ("replace",)
    filler = 0
    worth: Mapping[str, float] = {
        "good": 1,
        "great": 2,
        "fine": 1,
        "bad": -1.5,
        "awful": -2,
        "slow": -0.5,
    }

    def __init__(self) -> None:
        self.tokenizer = Tokenizer.words(["the", "film", "plot", "is", "and", "a", *self.worth], 64)
        self.weights = np.zeros(len(self.tokenizer))
        for word, value in self.worth.items():
            self.weights[self.tokenizer.backend.token_to_id(word)] = value

    def logits(self, tokens: Sequence[Tokens]) -> np.ndarray:
        total = np.array([self.weights[t.ids].sum() for t in tokens])
        return np.stack([-total, total], 1)

    def score(
        self, tokens: Any, keep: Any, groups: Any = None, removal: Any = None
    ) -> list[np.ndarray]:
        found = []
        for i, (t, k) in enumerate(zip(tokens, keep, strict=True)):
            group = t.word if groups is None else groups[i]
            present = np.where(group >= 0, k[:, group], True)
            total = (self.weights[t.ids] * present).sum(1)
            found.append(np.stack([-total, total], 1))
        return found

    def trace(self, tokens: Any, attention: Any = None, embeddings: Any = None) -> Any:
        raise AssertionError("nobody may ask for what is not offered")


@pytest.fixture(scope="module")
def reviews() -> list[str]:
    rng = np.random.default_rng(0)
    words = ["the", "film", "plot", "is", "and", "a", *Counting.worth]
    return [" ".join(rng.permutation(words)[:9]) for _ in range(40)]


def test_attention_claims_do_not_apply_to_a_model_without_attention(reviews: list) -> None:
    found = audit(Counting(), reviews, methods="attention-mean", examples=200)
    judged = [name for name, cls in CLAIMS.items() if not cls.claim.check]
    assert {v.claim.id: v.outcome for v in found.verdicts} == dict.fromkeys(
        judged, "not applicable"
    )
    for verdict in found.verdicts:
        missing: tuple[str, ...] = ("attention", "gradients", "no training data")
        missing = {
            "robust": ("delete words",),
            "plausible": ("rationales",),
            "edited": ("pairs",),
        }.get(verdict.claim.id, missing)
        assert any(word in verdict.reason for word in missing)
    assert [e.method for e in found.examples[0].explanations] == ["occlusion", "lime"]
    assert found.examples[0].heads is None and not found.conditions
    assert all(not text.endswith("..") for text in summary(found).values())


def test_perturbation_claims_are_put_to_occlusion_on_any_model(
    reviews: list, tmp_path: Path
) -> None:
    found = audit(Counting(), reviews, methods="occlusion")
    outcomes = {v.claim.id: v.outcome for v in found.verdicts}
    assert outcomes == {
        "needed": "not applicable",
        "used": "not applicable",
        "exclusive": "not applicable",
        "exclusive-model": "not applicable",
        "stable": "not applicable",
        "identified": "not applicable",
        "efficient-necessary": "not applicable",
        "efficient-near": "not applicable",
        "agrees-gradient": "not applicable",
        "agrees-removal": "not applicable",  # occlusion with itself
        "agrees-lime": "supported",
        "tracks": "not applicable",
        "signed": outcomes["signed"],
        "informative": "not applicable",
        "removes": "supported",
        "suffices": "supported",
        "competitive": "undecided",  # differences of 0 in 40 documents: too few to rule out others
        "sensitive": "not applicable",
        "plausible": "not applicable",
        "edited": "not applicable",
        "robust": outcomes["robust"],
    }
    assert outcomes["signed"] != "not applicable"
    found.save(tmp_path / "rows.parquet")
    same(found, Audit.load(tmp_path / "rows.parquet"))


def test_what_takes_long_has_its_turn_last_and_stands_in_its_place(
    model: SingleLayer, named: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []
    measure = sys.modules["heed.audit.run"].measure

    def spy(test: ClaimTest, *arguments: Any) -> Any:
        turns.append(test.claim.id)
        return measure(test, *arguments)

    monkeypatch.setattr(sys.modules["heed.audit.run"], "measure", spy)
    asked = ["exclusive", "removes", "agrees-removal", "used", "needed"]
    found = audit(model, named, asked, examples=0)
    assert turns == ["used", "agrees-removal", "removes", "exclusive", "needed"]
    assert [e.claim.id for e in found.judged] == [
        "used",
        "needed",
        "exclusive",
        "removes",
        "agrees-removal",
    ]


def test_a_spent_budget_leaves_only_a_few_slow_explanations_to_the_reader(
    model: SingleLayer, named: list
) -> None:
    documents = (named * 3)[: 2 * FEW]
    found = audit(model, documents, "used", budget=0, examples=200)
    shown = [{e.method for e in example.explanations} for example in found.examples]
    assert all("attention-mean" in methods for methods in shown) and len(shown) == 2 * FEW
    assert [("efficient" in m, "occlusion" in m) for m in shown] == [
        (i < FEW, i < FEW) for i in range(2 * FEW)
    ]


@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 1.5])
def test_an_adversary_needs_some_room(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon"):
        Exclusive(epsilon=epsilon)


def test_the_summary_names_what_does_most_and_the_caveats() -> None:
    rows = [
        {
            "value": -0.3,
            "value_replace": -0.3,
            "comprehensiveness": 0.2,
            "comprehensiveness_of_lime": 0.5,
            "comprehensiveness_of_occlusion": 0.4,
        }
    ] * 250
    claim = CLAIMS["competitive"].claim

    def told(rows: list, reason: str = "") -> str:
        evidence = Evidence(claim, rows, Refusal("budget", reason) if reason else None)
        return summary(Audit({"methods": {"attention-mean": {}}}, (evidence,)))["Faithful"]

    text = told(rows)
    assert text.startswith(
        "no. Does not hold: “Removing what attention points to matters nearly as much"
    )
    assert (
        "Removing the words of lime lowers the probability most: 0.500 on the scale from the worst"
        " order (0) to the best (1) (occlusion 0.400, attention-mean 0.200)." in text
    )
    older = [{k: x for k, x in row.items() if k != "value_replace"} for row in rows]
    assert "most: 0.500 (occlusion 0.400, attention-mean 0.200)." in told(older)
    assert text.endswith("are unlike the texts the model was trained on.")
    for nothing in (-0.1, 0.2):  # nothing does anything, or all the same
        assert "reaches" not in told([dict.fromkeys(rows[0], nothing)] * 250)
    assert told([], "no time").startswith("not judged. “Removing")
    assert told([], "no time").endswith("”: no time.")


def test_an_audit_is_short_where_it_is_printed(whole: Audit) -> None:
    assert repr(whole).startswith(f"<Audit of {whole.facts['model']} on {whole.facts['data']}: ")
    assert len(
        repr(whole)
    ) < 200 and f"{sum(v.outcome == 'undecided' for v in whole.verdicts)} undecided" in repr(whole)
    page = whole._repr_html_()
    assert (
        all(v.claim.id in page and v.outcome in page for v in whole.verdicts) and len(page) < 20_000
    )


def test_wrong_predictions_have_their_flip_sets(model: SingleLayer, named: list[Document]) -> None:
    right = model(named).argmax(1).tolist()
    texts = [
        replace(d, label=p if i % 2 else 1 - p)
        for i, (d, p) in enumerate(zip(named, right, strict=True))
    ]
    found = audit(
        model, Dataset("mine", "all", tuple(texts), model.labels, "", ""), ["used"], examples=200
    )
    for example in found.examples:
        e = example.explanations[0]
        wrong = list(e.probabilities).index(e.label) != example.gold
        flips = [e for e in example.explanations if e.method == "flip"]
        assert bool(flips) == wrong
        for flip in flips:
            (own,) = heed.explain(model, [flip.document], "flip", samples=200)
            np.testing.assert_array_equal(flip.scores, own.scores)
    names, matrix, _ = found.agreement()
    assert "flip" in found.example_methods and "flip" not in names
    assert matrix.shape == (len(names), len(names))
