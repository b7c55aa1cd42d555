"""Claims that compare rankings: ties, words that do not matter, chance, and noise in the yardstick.

Each formula has a slow, literal version beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

import heed
from bench.constructed import FILLERS, SIDES, WORTH, Word, key_word, write
from bench.constructed import build as built
from heed.audit import Audit
from heed.claims import CLAIMS, Evidence, Study, Verdict, judge
from heed.claims.agrees import AgreesLime, AgreesRemoval, Tracks, corrected
from heed.claims.plausible import marked
from heed.claims.signed import Signed
from heed.claims.stable import Robust, plain_agreement
from heed.claims.study import PROBED, collect
from heed.claims.yardsticks import RELIABLE, reliability, reliable_lime, weighted_agreement
from heed.methods import AttentionMean, Lime, LimeExact, Method, Occlusion, Random
from heed.methods.method import Job, Measured
from heed.metrics import average_precision, chance_precision, kendall, weighted_kendall
from heed.models.classifier import CLOSED, Classifier
from heed.models.single_layer import SingleLayer
from heed.report import html, terminal
from heed.text import Document, Span
from tests.test_report import printed

LEVELS = st.integers(0, 3)  # few different values: many ties
RANKED = st.lists(st.tuples(LEVELS, LEVELS), min_size=2, max_size=7)


@dataclass(frozen=True)
class Constant(Method):
    """Every word is as important as any other."""

    name: ClassVar[str] = "constant"
    signed: ClassVar[bool] = False

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [Measured(np.full(len(job.units), 0.25), forward_passes=0) for job in jobs]


@dataclass(frozen=True)
class ByPlace(Method):
    """The first word is the most important one, and so on."""

    name: ClassVar[str] = "by-place"

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [Measured(-np.arange(len(job.units), dtype=float)) for job in jobs]


def sampled(model: SingleLayer) -> SingleLayer:
    """The same model, for which LIME must sample."""
    other = SingleLayer(model.network, model.tokenizer, model.labels)
    other.offers = model.offers - {CLOSED}  # type: ignore[misc]
    return other


def short_posts(n: int, seed: int = 0) -> list[Document]:
    """Texts of 6 to 12 words, of which 2 count, and 1 to 3 are marked at random."""
    rng = np.random.default_rng(seed)
    documents = []
    for i in range(n):
        parts = ((list(WORTH), 2), (FILLERS, int(rng.integers(4, 11))))
        chosen = write(rng, *parts).text.split()
        ends = np.cumsum([len(w) + 1 for w in chosen]) - 1
        because = sorted(rng.choice(len(chosen), int(rng.integers(1, 4)), replace=False).tolist())
        spans = tuple(Span(int(ends[j]) - len(chosen[j]), int(ends[j])) for j in because)
        documents.append(Document(" ".join(chosen), id=f"post {i}", rationale=spans))
    return documents


def evidence_model(seed: int = 0) -> SingleLayer:
    """Words for and against the label, attended in different degrees; fillers count for nothing."""
    rng = np.random.default_rng(seed)
    return built({w: Word(float(rng.uniform(0.5, 3)), (WORTH[w],)) for w in WORTH}, scale=2.0)


def judged(
    name: str, model: SingleLayer, documents: Sequence[Document], method: Method
) -> tuple[Verdict, Evidence]:
    """The verdict on one claim alone, and its rows."""
    evidence = collect(CLAIMS[name](), Study(model, documents, method))
    return judge([evidence])[0], evidence


def backwards(document: Document) -> Document:
    """The words in reverse order, with the same ones marked."""
    words, text = document.text.split(), document.text
    because = {text[s.start : s.end] for s in document.rationale}
    turned = words[::-1]
    ends = np.cumsum([len(w) + 1 for w in turned]) - 1
    spans = (
        Span(int(e) - len(w), int(e)) for w, e in zip(turned, ends, strict=True) if w in because
    )
    return replace(document, text=" ".join(turned), rationale=tuple(spans))


# Average precision, and what chance reaches


def orders_of_ties(scores: Sequence[float]) -> list[tuple[int, ...]]:
    """All ways to rank from the highest score down."""
    everything = permutations(range(len(scores)))
    return [o for o in everything if all(scores[a] >= scores[b] for a, b in pairwise(o))]


def precision_of(order: Sequence[int], positive: Sequence[bool]) -> float:
    """At each positive, the share of positives so far; on average."""
    hits, shares = 0, []
    for rank, i in enumerate(order, 1):
        if positive[i]:
            hits += 1
            shares.append(hits / rank)
    return float(np.mean(shares))


@pytest.mark.parametrize("n", range(1, 8))
def test_chance_precision_is_the_mean_over_all_orders(n: int) -> None:
    for count in range(1, n + 1):
        positive = [i < count for i in range(n)]
        mean = np.mean([precision_of(order, positive) for order in permutations(range(n))])
        assert chance_precision(n, count) == pytest.approx(mean)
        assert average_precision(np.ones(n), np.array(positive)) == pytest.approx(mean)
    assert math.isnan(chance_precision(n, 0))


@given(st.lists(st.tuples(LEVELS, st.booleans()), min_size=1, max_size=6))
def test_average_precision_is_the_mean_over_orders_of_ties(pairs: list[tuple[int, bool]]) -> None:
    scores, positive = zip(*pairs, strict=True)
    found = average_precision(np.array(scores, dtype=float), np.array(positive))
    if not any(positive):
        assert math.isnan(found)
        return
    mean = np.mean([precision_of(order, positive) for order in orders_of_ties(scores)])
    assert found == pytest.approx(mean)


def test_average_precision_without_ties_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        n = int(rng.integers(2, 30))
        scores, gold = rng.permutation(n).astype(float), rng.random(n) < 0.4
        if gold.any():
            expected = average_precision_score(gold, scores)
            assert average_precision(scores, gold) == pytest.approx(expected)


def test_random_scores_are_not_plausible_on_short_posts() -> None:
    verdict, _ = judged("plausible", evidence_model(), short_posts(300), Random())
    assert verdict.outcome == "refuted" and abs(verdict.mean or 1) < 0.04, verdict


def test_constant_scores_match_no_marks() -> None:
    texts = short_posts(40)
    rows = CLAIMS["plausible"]().measure(Study(evidence_model(), texts, Constant()))
    assert [row["value"] for row in rows] == pytest.approx([0.0] * 40, abs=1e-12)


def test_plausible_is_average_precision_beyond_chance() -> None:
    study = Study(evidence_model(), short_posts(20), ByPlace())
    for row, e in zip(CLAIMS["plausible"]().measure(study), study.explain(), strict=True):
        gold = marked(e)
        by_chance = chance_precision(len(gold), int(gold.sum()))
        expected = average_precision_score(gold, e.scores) - by_chance
        assert row["value"] == pytest.approx(expected) and row["chance"] == by_chance


# Weighted rank agreement


def literal_weighted_kendall(x: Sequence[float], y: Sequence[float]) -> float:
    """Pair by pair, as in the docstring."""
    above = below = 0.0
    for i, j in combinations(range(len(x)), 2):
        weight = max(y[i], y[j])
        above += weight * np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])
        below += weight * abs(np.sign(y[i] - y[j]))
    return above / below if below else math.nan


@given(RANKED)
def test_weighted_kendall_is_the_sum_over_pairs(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, dtype=float).T
    found = weighted_kendall(x, y)
    assert found == pytest.approx(literal_weighted_kendall(x, y), nan_ok=True)
    if math.isfinite(found):
        assert -1 <= found <= 1
        assert weighted_kendall(y, y) == pytest.approx(1)
        assert weighted_kendall(-y, y) == pytest.approx(-1)


@given(RANKED)
def test_ties_count_as_the_mean_over_their_orders(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, dtype=float).T
    found = weighted_kendall(x, y)
    if math.isfinite(found):
        strict = [-np.argsort(np.array(order)) for order in orders_of_ties(list(x))]
        each = [literal_weighted_kendall(ranks, y) for ranks in strict]
        assert found == pytest.approx(np.mean(each))


def test_long_texts_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 40, 300).astype(float), np.abs(rng.standard_cauchy(300)).round(1)
    whole = weighted_kendall(x, y)
    monkeypatch.setattr("heed.metrics._PAIRS", 1000)
    assert weighted_kendall(x, y) == pytest.approx(whole)
    assert whole == pytest.approx(literal_weighted_kendall(x, y))


def test_rounding_errors_have_no_order() -> None:
    x, y = np.array([1.0, 0.3, 0.3, 0.1]), np.array([3.0, 1.0, 1.0, 0.0])
    noisy = 1 + 1e-14 * np.array([1.0, -1.0, 2.0, 0.0])
    assert weighted_kendall(x * noisy, y * noisy[::-1]) == weighted_kendall(x, y) == 1
    assert weighted_kendall(noisy, y) == 0
    assert math.isnan(weighted_kendall(x, noisy))


AGREES = ("agrees-gradient", "agrees-removal", "agrees-lime")


def test_one_key_word_is_enough_to_agree() -> None:
    """Attention of .9 on the only word that matters, among 30 of which no two are alike."""
    construction = key_word(0, 30)
    for name in AGREES:
        verdict, evidence = judged(
            name, construction.model, construction.documents, AttentionMean()
        )
        assert verdict.outcome == "supported", verdict
        assert (evidence.mean("plain") or 1.0) < 0.5  # all words counted alike
    for e in Study(construction.model, construction.documents).explain():
        assert e.scores.max() > 0.85


@pytest.mark.parametrize("name", AGREES)
def test_scores_without_an_order_agree_with_nothing(name: str) -> None:
    construction = key_word(0, 5)
    study = Study(construction.model, construction.documents, Constant())
    assert [row["value"] for row in CLAIMS[name]().measure(study)] == [0.0] * 5


def test_agreement_by_other_statistics_stands_beside() -> None:
    construction = key_word(1, 6)
    study = Study(construction.model, construction.documents, ByPlace())
    removal, lime = (
        study.explain(m) for m in (Occlusion(output="probability"), LimeExact(output="log-odds"))
    )
    odds = study.explain(Occlusion(output="log-odds"))
    for i, row in enumerate(AgreesRemoval().measure(study)):
        x, y, z, w = (np.abs(e[i].scores) for e in (study.explain(), removal, lime, odds))
        k = max(3, round(len(x) / 10))
        common = {*np.argsort(-x)[:k].tolist()} & {*np.argsort(-y)[:k].tolist()}
        assert row["value"] == pytest.approx(literal_weighted_kendall(x, y))
        assert row["plain"] == pytest.approx(kendall(x, y))
        assert row["top_k"] == pytest.approx(len(common) / k)
        assert row["ceiling"] == pytest.approx(literal_weighted_kendall(z, y))
        assert row["variant_log_odds"] == pytest.approx(literal_weighted_kendall(x, w))


def test_where_lime_samples_the_ceiling_of_removal_is_that_of_a_few_documents() -> None:
    study = Study(sampled(evidence_model()), short_posts(PROBED + 5))
    rows = AgreesRemoval().measure(study)
    assert [math.isfinite(row["ceiling"]) for row in rows] == [True] * PROBED + [False] * 5


# The top of a ranking


def literal_signed(scores: Sequence[float], lime: Sequence[float], noise: Sequence[float]) -> float:
    """Word by word, without ties."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    top = order[: max(3, round(len(scores) / 10))]
    known = [
        i for i in top if abs(lime[i]) > 2 * noise[i] and abs(lime[i]) > 1e-9 * max(map(abs, lime))
    ]
    return sum(lime[i] > 0 for i in known) / len(known) if known else math.nan


@pytest.mark.parametrize("exact", [True, False])
def test_signed_counts_words_that_stand_out_of_noise(exact: bool) -> None:
    model = evidence_model()
    study = Study(model if exact else sampled(model), short_posts(30), ByPlace())
    test = Signed(samples=60)
    rows = test.measure(study)
    lime = study.explain(
        LimeExact(output="log-odds") if exact else Lime(samples=60, output="log-odds")
    )
    values = []
    for row, e, other in zip(rows, study.explain(), lime, strict=True):
        noise = np.zeros(len(e.scores)) if exact else other.standard_errors
        values.append(literal_signed(e.scores, other.scores, noise))
        assert row["value"] == pytest.approx(values[-1], nan_ok=True)
    assert len(set(values)) > 2
    if not exact:  # some of the words that count are below the noise, in some documents all
        assert min(row["known"] for row in rows) < 1


def test_words_that_do_not_matter_have_no_sign() -> None:
    """Nothing but fillers, which are worth nothing: no share, and not one of 1."""
    document = Document(" ".join(FILLERS[:9]))
    (row,) = Signed().measure(Study(evidence_model(), [document], ByPlace()))
    assert math.isnan(row["value"]) and row["known"] == 0


@pytest.mark.parametrize("name", ["signed", "agrees-lime", "plausible"])
@pytest.mark.parametrize("first", [True, False])
def test_equal_scores_are_judged_alike_backwards(name: str, first: bool) -> None:
    """Evidence at the beginning of a text is no merit of scores that are all the same."""
    rng = np.random.default_rng(4)
    texts = []
    for i in range(30):
        kinds = [(SIDES[i % 2], 4), (SIDES[1 - i % 2], 3), (FILLERS, 12)]
        parts = [write(rng, kind).text for kind in (kinds if first else kinds[::-1])]
        words = " ".join(parts).split()
        because = words[:4] if first else words[-4:]
        texts.append(spanned(words, because))
    turned = [backwards(d) for d in texts]
    (one, rows), (other, rows_backwards) = (
        judged(name, evidence_model(), d, Constant()) for d in (texts, turned)
    )
    assert one.outcome == other.outcome
    np.testing.assert_allclose(rows.values, rows_backwards.values, atol=1e-9)


def spanned(words: Sequence[str], because: Sequence[str]) -> Document:
    ends = np.cumsum([len(w) + 1 for w in words]) - 1
    spans = (
        Span(int(e) - len(w), int(e)) for w, e in zip(words, ends, strict=True) if w in because
    )
    return Document(" ".join(words), rationale=tuple(spans))


def test_equal_scores_point_at_edits_by_chance_alone() -> None:
    """The edit comes first, or last: scores that are all the same cannot know."""
    rest = " ".join(FILLERS[:11])
    for one, two in (
        (f"for00 {rest}", f"not00 {rest}"),
        (f"{rest} for00", f"{rest} not00"),
    ):
        pair = [Document(one, id="a", label=1), Document(two, id="a", label=0)]
        rows = CLAIMS["edited"]().measure(Study(evidence_model(), pair, Constant()))
        assert [row["value"] for row in rows] == pytest.approx([0.0, 0.0])
        assert rows[0]["hit"] == pytest.approx(3 / 12)


def test_edits_that_tie_for_the_top_count_by_their_chance() -> None:
    """Two words above, four that tie for the third place, one of them edited."""

    @dataclass(frozen=True)
    class Tied(Method):
        name: ClassVar[str] = "tied"

        def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
            scores = np.array([3.0, 3.0, 2.0, 2.0, 2.0, 2.0, *np.zeros(6)])
            return [Measured(scores, forward_passes=0) for _ in jobs]

    words = FILLERS[:12]
    pair = [
        Document(" ".join([*words[:5], edit, *words[6:]]), id="a", label=i)
        for i, edit in enumerate(("for00", "not00"))
    ]
    row, _ = CLAIMS["edited"]().measure(Study(evidence_model(), pair, Tied()))
    scores = Tied().measure(evidence_model(), [None])[0].scores  # type: ignore[list-item]
    hits = [5 in order[:3] for order in orders_of_top(scores.tolist())]
    assert row["hit"] == pytest.approx(np.mean(hits)) == pytest.approx(1 / 4)


def orders_of_top(scores: Sequence[float]) -> list[list[int]]:
    """Every order of the words that tie for the third place."""
    above, tied = [0, 1], [i for i, s in enumerate(scores) if s == 2.0]
    return [[*above, *order] for order in permutations(tied)]


# The yardstick of `tracks`


def blind(n: int = 60) -> tuple[SingleLayer, list[Document]]:
    """A model whose filler is what moves the prediction, so that gradients say nothing of removal.

    Words are worth almost nothing, whichever way; <unk> counts a lot.
    """
    rng = np.random.default_rng(0)
    words = [*WORTH, *FILLERS]
    drawn = {w: Word(float(rng.uniform(0, 2)), (float(rng.normal(0, 0.003)),)) for w in words}
    model = built(drawn, scale=2.0, unknown=Word(2.0, (1.0,)))
    return model, [write(rng, (words, int(rng.integers(8, 15)))) for _ in range(n)]


def test_a_yardstick_that_is_no_better_than_chance_measures_nothing() -> None:
    model, documents = blind()
    audit = heed.audit(model, documents, "tracks", methods=ByPlace(), examples=0)
    (verdict,) = [v for v in audit.verdicts if v.claim.id == "tracks"]
    assert (verdict.outcome, verdict.cause) == ("not applicable", "yardstick"), verdict
    assert "gradient × input" in verdict.reason and "random scores" in verdict.reason
    rows = audit.judged[-1].rows
    assert len(rows) == len(documents)  # the numbers are kept
    own, chance = (np.mean([r[f"spearman_{c}"] for r in rows]) for c in ("gradient", "random"))
    assert (
        f"(Spearman {own:.2f} and {chance:.2f}, difference {own - chance:.2f} [" in verdict.reason
    )


def test_a_yardstick_that_beats_chance_is_used() -> None:
    verdict, evidence = judged("tracks", evidence_model(), short_posts(60), AttentionMean())
    assert verdict.outcome != "not applicable", verdict
    for row in evidence.rows:
        assert {"spearman_random", "spearman_length", "spearman_gradient"} <= set(row)


def test_few_documents_are_too_few_and_not_a_bad_yardstick() -> None:
    verdict, _ = judged("tracks", *blind(12), Constant())
    assert verdict.outcome == "undecided"


def test_scores_without_an_order_follow_nothing() -> None:
    rows = Tracks().measure(Study(evidence_model(), short_posts(10), Constant()))
    for row in rows:
        assert row["value"] == pytest.approx(-row["spearman_gradient"]) and row["spearman"] == 0


# Noise


def noisy() -> Study:
    """Texts of 14 words of which all count, of a model for which LIME must sample."""
    rng = np.random.default_rng(5)
    words = [*WORTH, *FILLERS]
    drawn = {w: Word(float(rng.uniform(0, 2)), (float(rng.normal()),)) for w in words}
    texts = [write(rng, (words, 14)) for _ in range(PROBED + 3)]
    return Study(sampled(built(drawn, scale=2.0)), texts)


def test_reliability_is_the_mean_agreement_of_two_draws() -> None:
    study, method = noisy(), Lime(samples=40, output="log-odds")
    taus = []
    for document in study.documents[:PROBED]:
        one, two = (
            np.abs(method.explain(study.model, [document], seed=seed)[0].scores) for seed in (0, 1)
        )
        taus.append(literal_weighted_kendall(two, one))
    assert reliability(study, method, weighted_agreement) == pytest.approx(np.mean(taus))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """So that little is enough to be too much."""
    monkeypatch.setattr("heed.claims.yardsticks.FIRST_SAMPLES", 30)
    return 30


def test_samples_rise_until_two_draws_agree(few: int) -> None:
    study = noisy()
    found = reliable_lime(study, 4000)
    assert isinstance(found.method, Lime)
    assert found.reliability == reliability(study, found.method, weighted_agreement) > RELIABLE
    assert few < found.method.samples < 4000
    fewer = replace(found.method, samples=found.method.samples // 2)
    assert reliability(study, fewer, weighted_agreement) < found.reliability


def test_samples_stay_when_documents_are_added(few: int) -> None:
    study = noisy()
    before = Study(study.model, study.documents[:PROBED])
    assert reliable_lime(before, 4000) == reliable_lime(study, 4000)


def test_exact_lime_has_no_noise() -> None:
    study = Study(evidence_model(), short_posts(3))
    found = reliable_lime(study, 4000)
    assert found.method == LimeExact(output="log-odds") and found.reliability == 1
    assert study.explained == []


def test_claims_share_the_draws_of_lime(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    study = noisy()
    AgreesLime().measure(study)
    made: list[str] = []
    explain = Lime.explain
    monkeypatch.setattr(
        Lime, "explain", lambda self, *a, **k: made.append(self.name) or explain(self, *a, **k)
    )
    Signed().measure(study)
    CLAIMS["competitive"](samples=4000).measure(study)  # type: ignore[call-arg]
    assert not made


def test_examples_show_the_lime_that_claims_took_in_the_end(few: int) -> None:
    study = noisy()
    audit = heed.audit(study.model, study.documents[:5], "agrees-lime", examples=1)
    taken = reliable_lime(Study(study.model, study.documents[:5]), 4000).method
    (shown,) = [e for e in audit.examples[0].explanations if e.method == "lime"]
    assert isinstance(taken, Lime) and few < taken.samples == shown.settings["samples"]


def test_noise_that_is_left_is_corrected_for() -> None:
    study = noisy()
    rows = AgreesLime(samples=30).measure(study)
    method = Lime(samples=30, output="log-odds")
    r = reliability(study, method, weighted_agreement)
    assert 0 < r < RELIABLE
    for row, e, lime in zip(rows, study.explain(), study.explain(method), strict=True):
        tau = literal_weighted_kendall(e.scores, np.abs(lime.scores))
        assert row["uncorrected"] == pytest.approx(tau) and row["reliability"] == r
        rho = math.sin(math.pi / 2 * tau) / math.sqrt(math.sin(math.pi / 2 * r))
        assert row["value"] == pytest.approx(math.asin(min(1, max(-1, rho))) / (math.pi / 2))


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_the_correction_gives_back_what_noise_took(noise: float) -> None:
    """Scores whose truth is known: dividing τ itself would put back too much."""
    rng = np.random.default_rng(0)
    true, seen, again = [], [], []
    for _ in range(300):
        truth = rng.standard_t(3, 25)
        judged = np.abs(truth + 0.7 * rng.normal(size=25))
        one, two = (np.abs(truth + noise * rng.normal(size=25)) for _ in range(2))
        true.append(weighted_kendall(judged, np.abs(truth)))
        seen.append(weighted_kendall(judged, one))
        again.append(weighted_kendall(two, one))
    tau, r = float(np.mean(seen)), float(np.mean(again))
    found = corrected({"value": tau, "ceiling": 1.0, "reliability": r})
    assert found["value"] == pytest.approx(np.mean(true), abs=0.02)
    assert tau / math.sqrt(r) > np.mean(true) + 0.01
    assert found["uncorrected"] == tau


def test_an_exact_yardstick_needs_no_correction() -> None:
    for row in AgreesLime().measure(Study(evidence_model(), short_posts(3))):
        assert "uncorrected" not in row and row["reliability"] == 1


def test_robust_is_corrected_for_the_noise_of_both_sides() -> None:
    study = noisy()
    rows = Robust(samples=200).measure(study)
    ways = [Lime(samples=200, output="log-odds", removal=r) for r in (None, "delete")]
    r = [reliability(study, way, plain_agreement) for way in ways]
    one = ways[0].explain(study.model, study.documents)
    other = ways[1].explain(study.model, study.documents, seed=1)
    for row, e, f in zip(rows, one, other, strict=True):
        tau = kendall(e.scores, f.scores)
        assert row["uncorrected"] == pytest.approx(tau)
        half = math.pi / 2
        rho = math.sin(half * tau) / math.sqrt(math.sin(half * r[0]) * math.sin(half * r[1]))
        assert row["value"] == pytest.approx(math.asin(min(1, max(-1, rho))) / half)


def test_robust_says_nothing_by_noise_alone() -> None:
    study = noisy()
    found = collect(Robust(samples=16), study)
    assert found.refusal is not None and "hardly agree" in found.refusal.reason


def test_robust_takes_the_samples_that_two_draws_need(few: int) -> None:
    study = noisy()
    once, rows = Robust(samples=few).measure(noisy())[0], Robust().measure(study)
    (lime,) = [m for m in study.explained if isinstance(m, Lime)]
    assert few < lime.samples < 1000
    for way in ("again", "again_deleted"):
        assert rows[0][way] > once[way]


# Chance


def chance(audit: Audit) -> dict[str, list[str]]:
    """The chance methods beside the judged ones, by claim."""
    by_claim: dict[str, list[str]] = {}
    for e in audit.evidence:
        by_claim.setdefault(e.claim.id, []).extend([e.method] if e.control else [])
    return by_claim


def test_chance_stands_beside_every_explanation_that_is_judged(tmp_path: Path) -> None:
    model, texts = evidence_model(), short_posts(4)
    names = ["used", "plausible", "sensitive", "edited", "agrees-gradient"]
    audit = heed.audit(model, texts, names, examples=2)
    both = ["random", "word-length"]
    assert chance(audit) == {
        "used": [],  # judges no explanation
        "plausible": both,
        "sensitive": [],  # 1 for what knows no weights
        "edited": [],  # was not measured
        "agrees-gradient": both,
    }
    assert list(audit.facts["methods"]) == ["attention-mean"]
    assert {e.method for e in audit.judged} == {"attention-mean"}
    assert not {*both} & {*audit.example_methods}
    assert "word-length, by chance: " in html.audit(audit)  # a cross in the chart of all claims
    assert "word-length" not in printed(terminal.audit(audit))
    # as if it had been judged
    alone = heed.audit(model, texts, "plausible", methods="word-length", examples=0)
    (beside,) = [e for e in audit.evidence if (e.claim.id, e.method) == ("plausible", both[1])]
    assert beside.rows == alone.judged[0].rows
    audit.save(tmp_path / "audit.parquet")
    assert chance(Audit.load(tmp_path / "audit.parquet")) == chance(audit)


def test_a_chance_method_that_is_judged_is_no_control() -> None:
    judged = ["attention-mean", "random"]
    audit = heed.audit(evidence_model(), short_posts(4), "plausible", methods=judged, examples=0)
    assert chance(audit) == {"plausible": ["word-length"]}
    assert [e.method for e in audit.judged] == judged
