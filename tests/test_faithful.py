"""Claims about removal, random weights, people's marks and people's edits.

Each is compared with a literal version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

import heed
from heed.claims import CLAIMS, Study
from heed.claims.faithful import RIVAL
from heed.claims.plausible import edited, marked, partners
from heed.claims.removal import best_elsewhere, halves, removing, scales, tie_keys
from heed.claims.study import collect, controls
from heed.errors import NotApplicable
from heed.methods import AttentionMean, GradientInput, Lime, LimeExact, Method, Occlusion
from heed.methods.method import Job, Measured
from heed.methods.removing import by_occurrence
from heed.methods.soft import LEAST, kept_shares, soft_areas
from heed.methods.units import units_of
from heed.metrics import chance_precision, kendall, spearman
from heed.models.classifier import Classifier
from heed.models.single_layer import SingleLayer
from heed.text import Document, Span
from tests.conftest import TEXTS, WORDS, build
from tests.test_recurrent import build as recurrent
from tests.test_transformer import model as transformer


def documents(n: int, seed: int = 0) -> list[Document]:
    rng = np.random.default_rng(seed)
    return [Document(" ".join(rng.choice(WORDS, int(rng.integers(6, 14))))) for _ in range(n)]


Subset = frozenset[int]


class Literal:
    """A document of a model, one text at a time and without any batch."""

    def __init__(self, model: SingleLayer, document: Document, removal: str):
        self.model, self.removal = model, removal
        (self.tokens,) = model.tokens([document])
        self.n = len(self.tokens.words)
        before = model.logits([self.tokens])[0]
        self.label = int(before.argmax())
        self.before = self._outputs(before)
        self.seen: dict[Subset, np.ndarray] = {}

    def _outputs(self, logits: np.ndarray) -> np.ndarray:
        p = self.model.probabilities(logits)[self.label]
        return np.array([p, np.log(p / (1 - p))])

    def fall(self, kept: Subset) -> np.ndarray:
        """Of the probability and of the log-odds, when only these words are kept."""
        if kept in self.seen:
            return self.seen[kept]
        keep = np.array([[i in kept for i in range(self.n)]])
        logits = self.model.score([self.tokens], [keep], None, self.removal)[0][0]  # type: ignore[arg-type]
        self.seen[kept] = self.before - self._outputs(logits)
        return self.seen[kept]

    def area(self, order: Sequence[int], keep_top: bool) -> np.ndarray:
        """The mean fall over shares: without the top words, or with nothing but them."""
        falls = []
        for k in range(1, 11):
            top = frozenset(order[: max(1, -(-k * self.n // 20))])
            falls.append(self.fall(top if keep_top else frozenset(range(self.n)) - top))
        return np.mean(falls, axis=0)


def ranked(scores: np.ndarray) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: -scores[i])


def short(n: int = 4, words: int = 6) -> list[Document]:
    """Texts of so few distinct words that all their orders can be tried."""
    rng = np.random.default_rng(1)
    return [Document(" ".join(rng.choice(WORDS, words, replace=False))) for _ in range(n)]


@pytest.mark.parametrize(("claim", "keep_top"), [("removes", False), ("suffices", True)])
def test_areas_lie_between_those_of_the_worst_and_best_of_all_orders(
    model: SingleLayer, claim: str, keep_top: bool
) -> None:
    texts = short()
    study = Study(model, texts)
    rows = CLAIMS[claim](orders=3).measure(study)  # type: ignore[call-arg]
    sign = -1 if keep_top else 1  # where the top words are kept, a small fall is good
    for i, (row, e) in enumerate(zip(rows, study.explain(), strict=True)):
        keys = tie_keys(study, CLAIMS[claim](orders=3), i)  # type: ignore[call-arg, arg-type]
        for removal in model.removals:
            one = Literal(model, e.document, removal)
            every = {
                order: sign * one.area(order, keep_top) for order in permutations(range(one.n))
            }
            worst, best = (f(list(every.values()), axis=0) for f in (np.min, np.max))
            own = every[tuple(ranked(e.scores))]
            random = np.mean([every[tuple(np.argsort(key).tolist())] for key in keys], axis=0)
            value = (own - random) / (best - worst)
            assert row[f"value_{removal}"] == pytest.approx(value[0], abs=1e-9)
            assert row[f"variant_raw_{removal}"] == pytest.approx((own - random)[0], abs=1e-9)
        assert row["value"] == row[f"value_{model.removals[0]}"]
        one = Literal(model, e.document, model.removals[0])
        own_fall = one.area(ranked(e.scores), keep_top)[0]
        assert row["sufficiency" if keep_top else "comprehensiveness"] == pytest.approx(own_fall)
        falls = [one.area(order, keep_top)[0] for order in permutations(range(one.n))]
        assert row["best"] == pytest.approx(min(falls) if keep_top else max(falls), abs=1e-9)
        assert row["worst"] == pytest.approx(max(falls) if keep_top else min(falls), abs=1e-9)


def test_equal_scores_are_worth_what_random_orders_are(model: SingleLayer) -> None:
    """Forwards and backwards: no place in the text is better than another."""
    texts = [d.text for d in short(3, 8)]
    backwards = [" ".join(reversed(text.split())) for text in texts]
    for claim in ("removes", "suffices"):
        test = CLAIMS[claim]()
        for row in test.measure(Study(model, [*map(Document, texts + backwards)], Constant())):
            assert all(row[f"value_{r}"] == pytest.approx(0, abs=1e-12) for r in model.removals)


@dataclass(frozen=True)
class Constant(Method):
    name = "constant"
    summary = "the same score for every word"

    def measure(self, model: Classifier, jobs: Sequence[Job]) -> list[Measured]:
        return [Measured(np.full(len(job.units), 0.25)) for job in jobs]


def test_words_of_a_text_whose_output_is_frozen_support_nothing(
    constant_model: SingleLayer,
) -> None:
    """Attention that decorates an output which does not depend on words explains nothing."""
    quick = {"exact": 3, "candidates": 1, "orders": 2}
    tests = [CLAIMS[name](**quick) for name in ("removes", "suffices", "competitive")]
    audit = heed.audit(constant_model, documents(35), tests, examples=0)
    assert [v.outcome for v in audit.verdicts] == ["undecided"] * 3
    for evidence in audit.evidence:
        assert not len(evidence.values)
        columns = [key for key in evidence.rows[0] if key.startswith("value")]
        # what chance reaches under one way to remove words shows that it does not pass
        assert len(columns) == 1 + (1 if evidence.control else len(constant_model.removals))
        assert all(np.isnan(row[key]) for row in evidence.rows for key in columns)


def test_every_way_to_remove_words_is_measured_unless_one_is_chosen(model: SingleLayer) -> None:
    for claim in ("removes", "suffices", "competitive"):
        (row,) = CLAIMS[claim]().measure(Study(model, documents(1)))
        assert {key for key in row if key.startswith("value_")} == {
            f"value_{removal}" for removal in model.removals
        }
        (row,) = CLAIMS[claim](removal="hide").measure(Study(model, documents(1)))  # type: ignore[call-arg]
        assert [key for key in row if key.startswith("value_")] == ["value_hide"]
        assert row["value"] == row["value_hide"]


@pytest.mark.parametrize(("method", "ways"), [(Constant(), 1), (Occlusion(), 3)])
def test_what_might_pass_by_chance_is_measured_under_every_way_to_remove_words(
    model: SingleLayer, method: Method, ways: int
) -> None:
    test, study = CLAIMS["removes"](), Study(model, documents(12))
    judged = collect(test, study)
    (control,) = controls(test, [replace(study, method=method)], [judged])
    whole = collect(test, replace(study, method=method))
    assert (whole.combined() > test.claim.threshold) == (ways == 3)
    assert sum(key.startswith("value_") for key in control.rows[0]) == ways
    np.testing.assert_array_equal(control.values, whole.values)


def test_two_words_cannot_be_ranked(model: SingleLayer) -> None:
    for claim in ("removes", "suffices", "competitive"):
        (row,) = CLAIMS[claim]().measure(Study(model, [Document("good film")]))
        assert all(np.isnan(row[key]) for key in row if key.startswith("value"))


class Namesake(Occlusion):
    name = "lime-exact"


def test_a_method_of_the_same_name_is_another_method(model: SingleLayer) -> None:
    test = CLAIMS["competitive"]()
    rivals = {f"{RIVAL}{name}" for name in ("gradient-input", "occlusion", "lime-exact")}
    for method, left_out in ((Namesake(), ""), (LimeExact(), "lime-exact")):
        (row,) = test.measure(Study(model, documents(1), method))
        assert rivals & set(row) == rivals - {f"{RIVAL}{left_out}"}


def test_the_rival_is_chosen_on_the_other_half(model: SingleLayer) -> None:
    """On one scale for all: from the worst to the best order of the document."""
    texts = short(12)
    study = Study(model, texts, seed=5)
    rows = CLAIMS["competitive"]().measure(study)
    half = halves(study)
    assert half.sum() == 6
    methods = {
        "": AttentionMean(),
        "gradient-input": GradientInput(output="probability"),
        "occlusion": Occlusion(output="probability"),
        "lime-exact": LimeExact(output="log-odds"),
    }
    explained = {name: method.explain(model, texts) for name, method in methods.items()}
    for removal in model.removals:
        scaled: dict[str, list[float]] = {name: [] for name in methods}
        for i, text in enumerate(texts):
            one = Literal(model, text, removal)
            areas = [one.area(order, False)[0] for order in permutations(range(one.n))]
            for name, explanations in explained.items():
                own = one.area(ranked(explanations[i].scores), False)[0]
                scaled[name].append((own - min(areas)) / (max(areas) - min(areas)))
        rivals = [name for name in methods if name]
        for i, row in enumerate(rows):
            others = half != half[i]
            best = max(rivals, key=lambda name: np.mean(np.array(scaled[name])[others]))
            value = scaled[""][i] - scaled[best][i]
            assert row[f"value_{removal}"] == pytest.approx(value, abs=1e-9)
            if removal == model.removals[0]:
                assert row["comprehensiveness"] == pytest.approx(scaled[""][i], abs=1e-9)
                for name in rivals:
                    assert row[f"{RIVAL}{name}"] == pytest.approx(scaled[name][i], abs=1e-9)
                left = [name for name in rivals if name != best]
                second = max(left, key=lambda name: np.mean(np.array(scaled[name])[others]))
                gap = scaled[best][i] - scaled[second][i]
                assert row["ceiling"] == pytest.approx(gap, abs=1e-9)


def test_halves_keep_together_what_belongs_together(model: SingleLayer) -> None:
    texts = documents(10)
    twins = [replace(d, id=f"pair {i}") for i, d in enumerate(texts)]
    study = Study(model, [*twins, *(replace(d, text=d.text + " !") for d in twins)], seed=2)
    half = halves(study)
    np.testing.assert_array_equal(half[:10], half[10:])
    assert half.sum() == 10
    order = np.random.default_rng(0).permutation(20)
    shuffled = Study(model, [study.documents[i] for i in order], seed=2)
    np.testing.assert_array_equal(halves(shuffled), half[order])
    others = [halves(replace(study, seed=seed)) for seed in range(5)]
    assert any((other != half).any() for other in others)


def test_the_best_on_one_half_is_judged_on_the_other() -> None:
    half = np.array([True, True, False, False, False])
    values = {"a": [1.0, 1.0, 0.0, 0.0, np.nan], "b": [0.0, 0.0, 1.0, 1.0, 5.0]}
    assert best_elsewhere(values, half) == ["b", "b", "a", "a", "a"]
    nothing = {"a": [np.nan] * 5, "b": [1.0] * 5}
    assert best_elsewhere(nothing, half) == ["a"] * 5


def test_repeated_words_are_removed_one_by_one(model: SingleLayer) -> None:
    """LIME scores a repeated word as one: its score is split evenly among its occurrences."""
    document = Document("good film and good plot but slow")
    (e,) = LimeExact().explain(model, [document])
    assert len(e.units) == 6
    (tokens,) = model.tokens([document])
    units, _ = units_of(tokens)
    scores = by_occurrence(e, units)
    (good,) = [s for u, s in zip(e.units, e.scores, strict=True) if u.text == "good"]
    assert scores[0] == scores[3] == good / 2 and len(scores) == 7
    assert scores.sum() == pytest.approx(e.scores.sum())


def test_no_text_is_evaluated_twice(model: SingleLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever claims, methods, random orders and searches ask for."""
    texts = short(2, 12)
    asked: Counter[tuple[str, str, bytes]] = Counter()
    perturbed = SingleLayer.score

    def counted(
        self: SingleLayer, tokens: list, keep: list, groups: Any = None, removal: Any = None
    ) -> Any:
        for t, rows in zip(tokens, keep, strict=True):
            asked.update((t.document.text, removal, row.tobytes()) for row in rows)
        return perturbed(self, tokens, keep, groups, removal)

    study = Study(model, texts)
    occlusion = Occlusion(output="probability")
    for other in (occlusion, LimeExact(output="log-odds")):
        study.explain(other)
    monkeypatch.setattr(SingleLayer, "score", counted)
    for method in (AttentionMean(), occlusion):
        for claim in ("removes", "suffices", "competitive"):
            CLAIMS[claim]().measure(replace(study, method=method))
    assert asked.total() > 200 and set(asked.values()) == {1}
    shared = removing(study)
    assert sum(shared.evaluated.values()) == asked.total()


def test_a_search_takes_all_documents_a_step_together(
    model: SingleLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    score = SingleLayer.score

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return score(*arguments)

    monkeypatch.setattr(SingleLayer, "score", counted)
    study = Study(model, short(8, 14))
    scales(study, CLAIMS["removes"](), "comprehensiveness", "replace")  # type: ignore[arg-type]
    # single words, seven sizes, three times what single words are worth now, the random orders
    assert calls <= 1 + 7 + 3 + 1


def test_soft_variants_are_those_of_the_formula(model: SingleLayer) -> None:
    """Scores of 0 and 1 leave nothing to chance: whole words are set to zero."""
    (document,) = short(1, 7)
    study = Study(model, [document])
    (e,) = study.explain()
    hard = replace(e, scores=(e.scores >= np.median(e.scores)).astype(float))
    (tokens,) = model.tokens([document])
    label = model.label(e.label)

    def probability(kept: np.ndarray) -> float:
        embeddings = model.embeddings([tokens]).clone()
        for t, word in enumerate(tokens.word):
            if word >= 0 and not kept[word]:
                embeddings[0, t] = 0
        with torch.no_grad():
            logits = model.trace([tokens], embeddings=embeddings).logits.numpy()
        return float(model.probabilities(logits)[0, label])

    top = hard.scores > 0
    whole, zero = probability(np.ones(7, dtype=bool)), probability(np.zeros(7, dtype=bool))
    for kind, kept in (("comprehensiveness", ~top), ("sufficiency", top)):
        share = min(1.0, max(0.0, (whole - probability(kept)) / (whole - zero)))
        expected = share if kind == "comprehensiveness" else 1 - share
        if whole - zero < LEAST:
            expected = np.nan
        found = soft_areas(removing(study), kind, {0: hard}, 2, (0, "x"))[0]  # type: ignore[arg-type]
        assert found["soft"] == pytest.approx(expected, abs=1e-6, nan_ok=True)
        assert set(found) == {"soft", "soft_random"}
    assert soft_areas(removing(study), "sufficiency", {0: e}, 0, (0, "x")) == {0: {}}
    assert kept_shares(np.full(3, 0.2)).tolist() == [0.5] * 3


def test_robust_shares_its_lime_with_other_claims() -> None:
    """It runs as before by the model's own way to remove words, and anew by the other."""
    study = Study(transformer("bert"), documents(2))
    (row, _) = CLAIMS["robust"](samples=40).measure(study)  # type: ignore[call-arg]
    shared = Lime(samples=40, output="log-odds")
    assert study.model.removals[0] == "replace" and study.has_explained(shared)
    ways = [Lime(samples=40, removal=way, output="log-odds") for way in (None, "delete")]
    one, other = (
        way.explain(study.model, study.documents[:1], seed=seed)[0].scores
        for seed, way in enumerate(ways)
    )
    assert row["uncorrected"] == pytest.approx(kendall(one, other))


def test_examples_show_the_lime_that_a_claim_computed() -> None:
    claims = [CLAIMS["agrees-lime"](samples=30)]  # type: ignore[call-arg]
    audit = heed.audit(transformer("bert"), documents(3), claims, examples=2)
    (shown,) = [e for e in audit.examples[0].explanations if e.method == "lime"]
    assert shown.settings["samples"] == 30


@pytest.mark.parametrize("kind", ["single-layer", "recurrent", "bert", "gpt2"])
def test_random_weights_are_another_model_that_leaves_the_first_alone(kind: str) -> None:
    make = {
        "single-layer": build,
        "recurrent": lambda: recurrent(2, encoder="cnn", attention="additive"),
    }
    trained = make[kind]() if kind in make else transformer(kind)
    before, texts = trained(list(TEXTS[:4])), list(TEXTS[:4])
    revision = trained.revision
    one, same, other = (trained.randomised(seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(trained(texts), before)
    assert trained.revision == revision == type(trained).revision.func(trained)  # type: ignore[attr-defined]
    assert one.revision == same.revision != other.revision
    np.testing.assert_array_equal(one(texts), same(texts))
    assert np.abs(one(texts) - before).max() > 1e-3
    assert one.offers == trained.offers
    assert (
        heed.explain(one, texts[0], "attention-mean").scores.shape
        == heed.explain(trained, texts[0], "attention-mean").scores.shape
    )


def test_sensitive_is_the_correlation_with_the_random_model(model: SingleLayer) -> None:
    texts = documents(5)
    rows = CLAIMS["sensitive"](draws=2).measure(Study(model, texts, GradientInput(), seed=3))  # type: ignore[call-arg]
    for i, (row, text) in enumerate(zip(rows, texts, strict=True)):
        own = heed.explain(model, text, "gradient-input")
        found = []
        for seed in (3, 4):
            other = heed.explain(model.randomised(seed), text, "gradient-input", label=own.label)
            found.append(spearman(np.abs(own.scores), np.abs(other.scores)))
        assert row["value"] == pytest.approx(np.mean(found)), i
        assert row["largest"] == pytest.approx(max(found))


def test_a_function_has_no_weights_to_draw() -> None:
    def classify(texts: list[str]) -> np.ndarray:
        good = np.array([t.count("good") / 10 for t in texts])
        return np.stack([1 - good, good], 1)

    audit = heed.audit(
        classify,
        [d.text for d in documents(4)],
        claims=["sensitive"],
        methods="occlusion",
        examples=0,
    )
    assert (
        audit.verdicts[0].outcome == "not applicable" and "drawn anew" in audit.verdicts[0].reason
    )
    with pytest.raises(NotApplicable):
        heed.models.of(classify).randomised(0)


def test_an_explanation_that_ignores_the_weights_is_caught(model: SingleLayer) -> None:
    """`random` is the same for every model with the same seed: it has learnt nothing."""
    (verdict,) = heed.audit(
        model, documents(120), claims=["sensitive"], methods="random", examples=0
    ).verdicts
    assert verdict.outcome == "refuted" and verdict.mean == pytest.approx(1)


def test_marks_of_people_are_compared_by_characters(model: SingleLayer) -> None:
    text = "the film was good and the plot is great"
    document = Document(text, rationale=(Span(4, 8), Span(13, 16)))  # film, and most of good
    study = Study(model, [document, Document("the film")])
    (e, _) = study.explain()
    gold = marked(e)
    assert [u.text for u, g in zip(e.units, gold, strict=True) if g] == ["film", "good"]
    row, empty = CLAIMS["plausible"]().measure(study)
    expected = average_precision_score(gold, e.scores) - chance_precision(9, 2)
    assert row["value"] == pytest.approx(expected) and row["marked"] == pytest.approx(2 / 9)
    assert np.isnan(empty["value"])
    assert (
        "rationales" in CLAIMS["plausible"]().refusal(Study(model, [Document("the film")])).reason
    )


def test_an_edit_is_what_the_other_text_has_not(model: SingleLayer) -> None:
    one = Document("the film was good and the plot is great , very quick", id="a", label=1)
    two = Document("the film was bad and the plot is great , not very quick", id="a", label=0)
    alone = Document("the music", id="b", label=0)
    assert partners([one, two, alone]) == [two, one, None]
    study = Study(model, [one, two, alone])
    first, second, _ = study.explain()
    (words, other_words) = (t.words for t in model.tokens([one, two]))
    assert [
        u.text
        for u, g in zip(first.units, edited(first, words, two.text.split()), strict=True)
        if g
    ] == ["good"]
    assert [
        u.text
        for u, g in zip(second.units, edited(second, other_words, one.text.split()), strict=True)
        if g
    ] == ["bad", "not"]
    rows = CLAIMS["edited"]().measure(study)
    top = {first.units[i].text for i in np.argsort(-first.scores)[:3]}
    assert rows[0]["value"] == pytest.approx(("good" in top) - 3 / 12)
    assert np.isnan(rows[2]["value"])
    assert (
        "pairs" in CLAIMS["edited"]().refusal(Study(model, [alone, Document("x", id="c")])).reason
    )


def test_words_beyond_what_the_model_reads_are_no_edit() -> None:
    model = build()
    filler = " ".join(["the"] * 50)
    one, two = (
        Document(f"good {filler} bad", id="a", label=1),
        Document(f"{filler} bad", id="a", label=0),
    )
    with torch.no_grad():
        rows = CLAIMS["edited"]().measure(Study(model, [one, two]))
    assert rows[0]["edited"] == pytest.approx(1 / 40) and rows[1]["edited"] == 0
