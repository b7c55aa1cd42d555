"""Efficient attention in running models: methods, claims, and what swapping it does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import heed
from heed.algebra.null_space import NotReached
from heed.claims import CLAIMS
from heed.claims.causal import EfficientShared, EfficientSufficient
from heed.claims.claim import Claim
from heed.claims.determined import Identified
from heed.errors import InputError, NotApplicable, UnknownName
from heed.methods import EffectiveAttention, EfficientAttention, Explanation
from heed.methods.problems import Level, efficient_rows, movement, opened, problems, swapped
from heed.models.classifier import Classifier
from heed.models.shapes import Shape
from heed.models.single_layer import Network, SingleLayer
from heed.models.transformer import Transformer
from heed.report.explanation import band_legend, banded
from heed.text import Tokenizer
from tests.conftest import TEXTS, WORDS, build
from tests.test_recurrent import build as recurrent
from tests.test_transformer import model as transformer
from tests.test_transformer import network, tokenizer

SOME = [w for w in WORDS if w.isalpha()]
LONG = " ".join(SOME + SOME[::-1][:12])
EFFICIENT = ["identified", "efficient-sufficient", "null-step", "efficient-shared"]
EFFICIENT += ["efficient-necessary", "efficient-near"]

MODELS: dict[str, Callable[[], Classifier]] = {
    "single-layer": build,
    "padding attends": lambda: build(padding="attends", labels=3),
    "recurrent": lambda: recurrent(3, encoder="cnn", attention="additive"),
    "bert": lambda: transformer("bert"),
    "gpt2": lambda: transformer("gpt2"),
    "grouped keys": lambda: transformer("llama"),
    "all rows classify": lambda: Transformer(
        network("modernbert", classifier_pooling="mean", local_attention=64), tokenizer(), "mean"
    ),
}
each_model = pytest.mark.parametrize("kind", MODELS)


@each_model
@pytest.mark.parametrize("variant", ["norm", "entropy"])
@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("level", get_args(Level))
def test_swapping_it_leaves_the_output(kind: str, level: Any, words: bool, variant: Any) -> None:
    model = MODELS[kind]()
    tokens = model.tokens([LONG, *TEXTS])
    free = [~t.special for t in tokens] if words else None
    try:
        attending, parts = opened(model, tokens, level, free=free)
    except NotApplicable:
        assert kind == "all rows classify" and level in ("layer", "prediction")
        return
    assert max(p.space.nullity for p in parts[0]) > 0
    rows = swapped(attending, parts, efficient_rows(parts, variant))
    own = attending.trace.classifying_rows()
    assert np.abs(rows - own.double().numpy()).max() > 1e-3  # it is another attention
    np.testing.assert_allclose(rows.sum(-1), own.sum(-1), atol=1e-5)
    moved, _ = movement(model, attending, rows)
    first_order = level == "prediction" and isinstance(model, Transformer)
    if not first_order:
        assert moved.max() < (1e-9 if own.dtype == torch.float64 else 1e-4)
    if words:
        for b, t in enumerate(tokens):
            fixed = np.flatnonzero(t.special)
            np.testing.assert_array_equal(rows[b][..., fixed], own[b][..., fixed])


def test_at_the_level_of_the_prediction_a_transformer_keeps_it_to_first_order() -> None:
    model = transformer("bert")
    tokens = model.tokens([LONG])
    attending, (parts,) = opened(model, tokens, "prediction")
    (part,) = parts
    own = attending.trace.classifying_rows()
    step = part.space.efficient(part.rows).rows - part.rows
    moves = []
    for size in (0.05, 0.025):
        rows = swapped(attending, [parts], {part: part.rows + size * step})
        with torch.no_grad():
            change = attending.logits(torch.from_numpy(rows).to(own)) - attending.logits(own)
        moves.append(float((change - change.mean(-1, keepdim=True)).abs().max()))
    assert moves[1] < 0.35 * moves[0]  # quadratic: a quarter


def test_all_rows_of_all_layers_can_be_swapped_at_once() -> None:
    for family in ("bert", "gpt2"):
        model = transformer(family)
        tokens = model.tokens([LONG, TEXTS[1], "awful"])
        with torch.no_grad():
            trace = model.trace(tokens)
        attention, fewest = {}, []
        for layer, own in enumerate(trace.attention):
            new = own.double().numpy().copy()
            new[:] = np.nan
            for b, some in enumerate(problems(trace, tokens, layer, rows=own)):
                for part in some:
                    part.put(part.space.efficient(part.rows).rows, new[b])
                    fewest.append((len(part.keys), part.space.nullity))
            attention[layer] = torch.from_numpy(new).to(own.dtype)
        with torch.no_grad():
            after = model.trace(tokens, attention=attention).logits
        np.testing.assert_allclose(after, trace.logits, atol=2e-3)
        assert {n for n, nullity in fewest if nullity == 0} and max(
            nullity for _, nullity in fewest
        ) > 20
        if (
            family == "gpt2"
        ):  # every row has its own keys, and those of its first rows are determined
            assert {n for n, _ in fewest} >= set(range(1, 30))
            assert all(nullity == max(0, n - 9) for n, nullity in fewest)


@each_model
def test_an_explanation_carries_raw_attention_intervals_and_facts(kind: str) -> None:
    model = MODELS[kind]()
    e = heed.explain(model, LONG, "efficient")
    plain = heed.explain(model, LONG, "attention-mean", sink="kept")
    assert e.raw is not None
    np.testing.assert_allclose(e.raw, plain.scores, atol=1e-6)
    total = e.scores.sum() + sum(s.score for s in e.specials)
    np.testing.assert_allclose(total, 1, atol=1e-5)
    assert (
        e.facts["rows_open"] > 0
        and e.facts["null_space"] > 0
        and 0 < e.facts["tvd_from_attention"] < 1
    )
    again = Explanation.from_json(e.to_json())
    np.testing.assert_array_equal(again.raw, e.raw)
    if kind == "all rows classify":
        assert e.intervals is None
        return
    assert e.intervals is not None
    np.testing.assert_array_equal(again.intervals, e.intervals)
    low, high = e.intervals.T
    for scores in (e.scores, e.raw):
        assert (low <= scores + 1e-6).all() and (scores <= high + 1e-6).all()
    most = heed.explain(model, LONG, "efficient", variant="entropy")
    np.testing.assert_allclose(most.intervals, e.intervals, atol=1e-6)
    assert heed.explain(model, LONG, "efficient", intervals=0).intervals is None
    few = heed.explain(model, LONG, "efficient", intervals=3)
    looked = ~np.isnan(few.intervals[:, 0])
    assert (
        looked.sum() == 3
        and np.maximum(e.raw, e.scores)[looked].min() >= np.maximum(e.raw, e.scores)[~looked].max()
    )
    np.testing.assert_allclose(few.intervals[looked], e.intervals[looked], atol=1e-6)
    np.testing.assert_array_equal(Explanation.from_json(few.to_json()).intervals, few.intervals)
    assert any("not for the other" in note for note in few.notes)


def test_intervals_of_words_are_linear_programs_over_all_heads() -> None:
    """At the level of the layer, heads make up for each other.

    A word of several tokens is their sum.
    """
    model = transformer("bert")
    text = "the film was good but a wonderful masterpiece is very slow and music it warm"
    e = heed.explain(model, text, "efficient", level="layer")
    tokens = model.tokens([text])
    _, ((part,),) = opened(model, tokens, "layer")
    B = np.hstack([part.space.T, np.repeat(np.eye(4), len(part.keys), 0)])
    assert e.intervals is not None
    for unit in (0, 6, 7):
        cost = np.tile((tokens[0].word == unit) / 4.0, 4)
        for sign, bound in zip((1, -1), e.intervals[unit], strict=True):
            found = linprog(
                sign * cost, A_eq=B.T, b_eq=B.T @ part.rows[0], bounds=(0, None), method="highs"
            )
            np.testing.assert_allclose(sign * found.fun, bound, atol=1e-7)


def test_short_texts_are_identified_and_say_so() -> None:
    e = heed.explain(build(), "the film is good", "efficient")
    plain = heed.explain(build(), "the film is good", "attention-mean")
    np.testing.assert_allclose(e.scores, plain.scores, atol=1e-12)
    assert any("already identified" in note and "5 weights, 8 numbers" in note for note in e.notes)
    assert e.intervals is not None
    np.testing.assert_allclose(e.intervals[:, 0], e.intervals[:, 1], atol=1e-12)
    few = heed.explain(build(), "the film is good", "efficient", intervals=1)
    np.testing.assert_array_equal(few.intervals, e.intervals)  # which cost nothing
    assert not any("not for the other" in note for note in few.notes)


def test_what_has_no_interval_says_why() -> None:
    for change in ({"aggregate": "max"}, {"merge": "max"}):
        e = heed.explain(build(), LONG, "efficient", **change)
        assert e.intervals is None and any(
            "no intervals of largest weights" in note for note in e.notes
        )
    assert not any(
        "no intervals" in note
        for note in heed.explain(build(), LONG, "efficient", intervals=0).notes
    )


def test_negative_weights_of_effective_attention_are_counted() -> None:
    e = heed.explain(build(), LONG, "effective")
    below = e.scores[e.scores < -1e-9]
    assert len(below) and any(
        note.startswith(f"{len(below)} of {len(e.scores)} weights") for note in e.notes
    )


def test_one_head_and_the_largest_of_heads() -> None:
    model = build()
    each = [heed.explain(model, LONG, "efficient", head=h) for h in range(3)]
    mean = heed.explain(model, LONG, "efficient")
    np.testing.assert_allclose(np.mean([e.scores for e in each], 0), mean.scores, atol=1e-12)
    np.testing.assert_allclose(np.mean([e.intervals for e in each], 0), mean.intervals, atol=1e-7)
    largest = heed.explain(model, LONG, "efficient", aggregate="max")
    np.testing.assert_allclose(np.max([e.scores for e in each], 0), largest.scores, atol=1e-12)
    assert largest.intervals is None


def test_what_cannot_be_had_is_refused_in_a_sentence() -> None:
    for settings, words in (
        ({"level": "corpus"}, "level"),
        ({"head": 7}, "There is no head 7"),
        ({"layer": 4}, "There is no layer 4"),
        ({"head": 0, "level": "layer"}, "leave out head"),
        ({"tolerance": 3.0}, "tolerance"),
        ({"variant": "flat"}, "variant"),
        ({"aggregate": "sum"}, "aggregate"),
    ):
        with pytest.raises(InputError, match=words):
            heed.explain(build(), LONG, "efficient", **settings)
    with pytest.raises(InputError, match="leave layer"):
        heed.explain(transformer("bert"), LONG, "efficient", level="prediction", layer=0)
    assert heed.explain(
        transformer("bert"), LONG, "efficient", level="prediction", layer=1, intervals=0
    ).scores.any()
    with pytest.raises(NotApplicable, match="does not offer"):
        heed.explain(transformer("xlnet"), LONG, "efficient", level="layer")
    tokens = build().tokens([LONG])
    with torch.no_grad():
        trace = build().trace(tokens)
    with pytest.raises(NotApplicable, match="sum to one"):
        problems(replace(trace, attention=(0.9 * trace.attention[0],)), tokens)
    assert "efficient" not in heed.compare(build(), LONG, "all").methods  # on request


@pytest.mark.parametrize("layer", [-1, 0])
@pytest.mark.parametrize("kind", ["single-layer", "recurrent"])
def test_a_linear_model_keeps_its_prediction_whatever_its_layer_is_called(
    kind: str, layer: int
) -> None:
    model = MODELS[kind]()
    e = heed.explain(model, LONG, "efficient", level="prediction", layer=layer)
    assert e.facts["first_order"] == 0 and e.facts["prediction_moved"] < 1e-6
    assert not any("not linear" in note for note in e.notes)
    assert "that gives the same prediction." in band_legend(e)


@pytest.mark.parametrize("layer", [-1, 1])
def test_a_transformer_says_that_its_prediction_is_kept_to_first_order(layer: int) -> None:
    e = heed.explain(
        transformer("bert"), LONG, "efficient", level="prediction", layer=layer, intervals=2
    )
    assert e.facts["first_order"] == 1
    assert any("Behind this layer the model is not linear" in note for note in e.notes)
    assert "that gives the same prediction, to first order." in band_legend(e)
    assert "Words without a bar were not examined." in band_legend(e)


@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize("width", [30, 80])
def test_a_band_lies_under_every_word_however_long_the_text(times: int, width: int) -> None:
    text = " ".join([LONG] * times)
    e = heed.explain(build(), text, "efficient")
    assert e.intervals is not None
    lines = [line.plain for line in banded(e, width, colours=0)]
    assert max(map(len, lines)) <= width and all(line and line == line.rstrip() for line in lines)
    under = [i for i, line in enumerate(lines) if not line.strip(" •─")]
    words = [line for i, line in enumerate(lines) if i not in under]
    assert (
        re.sub(r"\[\d+\]", "", " ".join(words)).split() == text.split()
    )  # also those that are not read
    dots = [(i - 1, place) for i in under for place, c in enumerate(lines[i]) if c == "•"]
    assert len(dots) == int(np.isfinite(e.intervals[:, 0]).sum()) > 0
    assert all(not lines[line][place : place + 1].isspace() for line, place in dots)


@pytest.mark.parametrize("level", ["head", "prediction"])
def test_every_pass_is_counted(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, passes = build(), []
    trace = model.trace
    monkeypatch.setattr(
        model, "trace", lambda *args, **options: (passes.append(1), trace(*args, **options))[1]
    )
    e = heed.explain(model, LONG, "efficient", level=level)
    assert e.forward_passes == len(passes) + 1  # and the prediction


def texts(n: int, words: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(SOME, words)) for _ in range(n)]


def up_to_rounding(claim: Claim, rows: Sequence[dict[str, Any]]) -> bool:
    """Whether a check is within its bound, or within what rounding alone does to the model."""
    largest = max(row["value"] for row in rows)
    rounding = max(row.get("rounding", 0.0) for row in rows)
    return bool(largest <= max(claim.threshold, 5 * rounding))


@pytest.mark.parametrize("kind", ["single-layer", "recurrent", "bert"])
def test_the_claims_hold_where_attention_is_open(kind: str) -> None:
    audit = heed.audit(MODELS[kind](), texts(32, 36), claims=EFFICIENT, examples=0)
    found = {v.claim.id: v for v in audit.verdicts}
    assert list(found) == ["identified", "efficient-necessary", "efficient-near"]
    assert found["efficient-necessary"].outcome == "supported", found
    for evidence in audit.evidence:
        if evidence.claim.check:
            assert up_to_rounding(evidence.claim, evidence.rows)


def test_short_documents_have_nothing_to_compare_with() -> None:
    audit = heed.audit(build(), texts(120, 6), claims=EFFICIENT, examples=0)
    outcomes = {v.claim.id: (v.outcome, v.reason) for v in audit.verdicts}
    assert outcomes["identified"][0] == "supported"
    for claim in ("efficient-necessary", "efficient-near"):
        assert (
            outcomes[claim][0] == "not applicable" and "determines attention" in outcomes[claim][1]
        )


def test_the_distance_to_the_farthest_attention_is_that_of_a_linear_program() -> None:
    model = recurrent(2, encoder="average", attention="additive")
    texts_ = texts(3, 30)
    test = CLAIMS["identified"](level="prediction")  # type: ignore[call-arg]
    audit = heed.audit(model, texts_, claims=[test], examples=0)
    rows = audit.evidence[0].rows
    for text, row in zip(texts_, rows, strict=True):
        (tokens,) = model.tokens([text])
        with torch.no_grad():
            trace = model.trace([tokens])
        a = trace.classifying()[0, 0][~tokens.special]
        worth = (trace.values[0] @ trace.projections[0])[0, 0, :, 1].numpy()[~tokens.special]
        B = np.stack([worth, np.ones_like(worth)])
        found = linprog(a, A_eq=B, b_eq=B @ a, bounds=(0, None), method="highs")
        np.testing.assert_allclose(row["value"], np.abs(found.x - a).sum() / 2, atol=1e-6)


def constructed(
    rank: int, d_out: int, words: Sequence[str], precision: torch.dtype = torch.float64
) -> SingleLayer:
    """Diffuse attention over values of some rank."""
    tokens = Tokenizer.words(words, 201)
    model_ = Network(
        Shape(len(tokens), 2, d_e=d_out, heads=1, d_att=4, d_out=d_out, max_words=200),
        torch.Generator().manual_seed(0),
    ).double()
    model_.W_p.zero_()
    rng = torch.Generator().manual_seed(1)
    one, other = (torch.randn(d_out, rank, generator=rng, dtype=torch.float64) for _ in range(2))
    model_.W_v.data = (one @ other.T)[None] / rank**0.5
    return SingleLayer(model_.to(precision), tokens, ("negative", "positive"))


@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
@pytest.mark.parametrize(("rank", "count"), [(1, 20), (1, 150), (5, 60)])
def test_rounding_of_a_model_is_no_output(rank: int, count: int, precision: torch.dtype) -> None:
    words = [f"word{i}" for i in range(300)]
    model = constructed(rank, 32, words, precision)
    text = " ".join(words[:count])
    tokens = model.tokens([text])
    ((part,),) = opened(model, tokens, free=[~tokens[0].special])[1]
    assert part.space.nullity == count - rank - 1
    found = heed.explain(model, text, "efficient")
    assert (
        found.intervals is not None
        and np.nanmean(found.intervals[:, 1] - found.intervals[:, 0]) > 0.05
    )
    assert found.facts["prediction_moved"] < 1e-5 and not any(
        "already identified" in n for n in found.notes
    )


def test_a_tolerance_that_drops_output_is_refused_by_every_claim() -> None:
    words = [f"word{i}" for i in range(300)]
    model = constructed(32, 32, words)
    text = " ".join(words[:150])
    for method in (EfficientAttention(tolerance=0.3), EffectiveAttention(tolerance=0.3)):
        with pytest.raises(NotReached, match=r"tolerance 0\.3 drops directions"):
            method.explain(model, [text])
    for claim in (
        Identified(tolerance=0.3),
        EfficientSufficient(tolerance=0.3),
        EfficientShared(tolerance=0.3),
    ):
        (evidence,) = heed.audit(model, [text] * 3, [claim], examples=0).evidence
        assert not evidence.rows and "drops directions" in evidence.reason, evidence
    for tolerance in (2.0, -0.1, float("nan")):
        with pytest.raises(InputError, match="tolerance"):
            Identified(tolerance=tolerance)
    with pytest.raises(UnknownName, match="variant"):
        EfficientShared(variant="foo")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="level"):
        EfficientShared(level="foo")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [0, 1])
def test_models_whose_truth_is_known(seed: int) -> None:
    words = [f"word{i}" for i in range(300)]
    rng = np.random.default_rng(seed)
    long_and_thin = [" ".join(rng.choice(words, 150)) for _ in range(40)]
    # distances of 0: with fewer documents, none could be ruled out for others
    short_and_full = [" ".join(rng.choice(words, 20, replace=False)) for _ in range(120)]
    for model, documents, outcome in (
        (constructed(1, 32, words), long_and_thin, "refuted"),
        (constructed(32, 32, words), short_and_full, "supported"),
    ):
        (verdict,) = heed.audit(model, documents, claims=["identified"], examples=0).verdicts
        assert verdict.outcome == outcome, verdict


def test_labels_that_do_not_exclude_each_other_are_kept_one_by_one() -> None:
    model = Transformer(
        network("bert", problem_type="multi_label_classification"), tokenizer(), "several"
    )
    attending, ((part,),) = opened(model, model.tokens([LONG]), "prediction")
    assert part.space.T.shape[1] == 3
    own, step = attending.trace.classifying_rows(), part.space.efficient(part.rows).rows - part.rows
    changes = []
    for size in (0.05, 0.025):
        rows = swapped(attending, [[part]], {part: part.rows + size * step})
        with torch.no_grad():
            changes.append(
                float(
                    (attending.logits(torch.from_numpy(rows).to(own)) - attending.logits(own))
                    .abs()
                    .max()
                )
            )
    assert changes[1] < 0.35 * changes[0]


def test_a_text_whose_words_have_no_attention_has_no_statistic() -> None:
    model = build(double=False)
    blind = SingleLayer(Network(model.shape), model.tokenizer, model.labels, "blind")
    blind.network.load_state_dict(model.network.state_dict())
    blind.network.W_k.data.zero_()
    blind.network.W_k.data[:, :, 0] = 400.0  # <cls> alone is seen: its embedding differs there
    blind.network.W_e.data[:, 0] = 0.0
    blind.network.W_e.data[1, 0] = 1.0
    blind.network.W_p.zero_()
    blind.network.W_q.data.zero_()
    blind.network.W_q.data[:, :, 0] = 400.0
    audit = heed.audit(blind, texts(3, 8), claims=EFFICIENT, examples=0)
    values = {e.claim.id: [row["value"] for row in e.rows] for e in audit.evidence if not e.reason}
    assert np.isnan(values["identified"]).all() and values["efficient-sufficient"] == [0.0] * 3


def test_words_whose_weight_is_too_small_for_a_number_are_not_masked() -> None:
    model = build()
    tokens = model.tokens([LONG])
    with torch.no_grad():
        trace = model.trace(tokens)
    rows = trace.attention[0].clone()
    rows[..., 5:20] = 0
    rows /= rows.sum(-1, keepdim=True)
    (parts,) = problems(replace(trace, attention=(rows,)), tokens)
    assert {len(p.keys) for p in parts} == {len(tokens[0])}


def test_settings_are_values() -> None:
    assert (
        EfficientAttention(variant="entropy")
        == EfficientAttention(variant="entropy")
        != EfficientAttention()
    )
