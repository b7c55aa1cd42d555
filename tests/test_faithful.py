"""Claims about removal, random weights, people's marks and people's edits.

Each is compared with a literal version.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

import heed
from heed.claims import CLAIMS, Study
from heed.claims.faithful import RIVAL, SHARES
from heed.claims.plausible import edited, marked, partners
from heed.errors import NotApplicable
from heed.methods import AttentionMean, GradientInput, Lime, LimeExact, Occlusion
from heed.metrics import average_precision, kendall, spearman
from heed.models.single_layer import SingleLayer
from heed.text import Document, Span
from tests.conftest import TEXTS, WORDS, build
from tests.test_recurrent import build as recurrent
from tests.test_transformer import model as transformer


def documents(n: int, seed: int = 0) -> list[Document]:
    rng = np.random.default_rng(seed)
    return [Document(" ".join(rng.choice(WORDS, int(rng.integers(6, 14))))) for _ in range(n)]


def test_average_precision_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        n = int(rng.integers(2, 30))
        scores, gold = rng.integers(0, 6, n) / 5, rng.random(n) < 0.4
        if gold.any():
            np.testing.assert_allclose(
                average_precision(scores, gold), average_precision_score(gold, scores)
            )
    assert np.isnan(average_precision(np.ones(3), np.zeros(3, dtype=bool)))


def fall(
    model: SingleLayer, document: Document, scores: np.ndarray, label: int, keep_top: bool
) -> float:
    """Word by word, without a batch."""
    words = model.tokens([document])[0].words
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    before = model.predict([document])[0, label]
    falls = []
    for share in SHARES:
        top = set(order[: max(1, int(np.ceil(share * len(scores) - 1e-9)))])
        keep = np.array([[(i in top) == keep_top for i in range(len(words))]])
        (tokens,) = model.tokens([document])
        after = model.probabilities(model.score([tokens], [keep])[0])[0, label]
        falls.append(before - after)
    return float(np.mean(falls))


class Namesake(Occlusion):
    name = "lime-exact"


def test_a_method_of_the_same_name_is_another_method(model: SingleLayer) -> None:
    test = CLAIMS["competitive"]()
    rivals = {f"{RIVAL}{name}" for name in ("gradient-input", "occlusion", "lime-exact")}
    for method, left_out in ((Namesake(), ""), (LimeExact(), "lime-exact")):
        (row,) = test.measure(Study(model, documents(1), method))
        assert rivals & set(row) == rivals - {f"{RIVAL}{left_out}"}


def test_competitive_is_a_ratio_of_means(model: SingleLayer) -> None:
    texts = [
        d for d in documents(8) if len(set(d.text.split())) == len(d.text.split())
    ] or documents(3)
    study = Study(model, texts)
    test = CLAIMS["competitive"]()
    rows = test.measure(study)
    for method, key in (
        (AttentionMean(), "value"),
        (Occlusion(output="probability"), "comprehensiveness_of_occlusion"),
        (GradientInput(output="probability"), "comprehensiveness_of_gradient-input"),
    ):
        for row, e in zip(rows, method.explain(model, texts), strict=True):
            label = model.label(e.label)
            np.testing.assert_allclose(
                row[key], fall(model, e.document, e.scores, label, False), atol=1e-9
            )
    columns = {k: np.array([r[k] for r in rows]) for k in rows[0]}
    best = max(columns[k].mean() for k in columns if k.startswith("comprehensiveness_of_"))
    assert test.claim.combine is not None
    assert test.claim.combine(columns) == pytest.approx(columns["value"].mean() / best)
    assert set(rows[0]) == {
        "value",
        "comprehensiveness",
        *(f"comprehensiveness_of_{n}" for n in ("gradient-input", "occlusion", "lime-exact")),
    }
    against = Study(model, texts, LimeExact())
    assert "comprehensiveness_of_lime-exact" not in test.measure(against)[0]


def test_sufficiency_stands_beside_comprehensiveness(model: SingleLayer) -> None:
    texts = documents(3)
    study = Study(model, texts)
    for row, e in zip(CLAIMS["removes"]().measure(study), study.explain(), strict=True):
        expected = fall(model, e.document, e.scores, model.label(e.label), True)
        np.testing.assert_allclose(row["sufficiency"], expected, atol=1e-9)


def test_competitive_asks_for_nothing_but_what_is_left_without_top_words(
    model: SingleLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For attention and three rivals: the whole text, and the text without 5 % to 50 %."""
    study = Study(model, [Document("the film was good and quick")])
    asked: list[np.ndarray] = []
    score = model.score

    def counted(tokens: list, keep: list[np.ndarray], *rest: object) -> list[np.ndarray]:
        asked.extend(keep)
        return score(tokens, keep, *rest)  # type: ignore[arg-type]

    study.explain(), study.explain(Occlusion(output="probability"))
    study.explain(GradientInput(output="probability")), study.explain(LimeExact(output="log-odds"))
    monkeypatch.setattr(model, "score", counted)
    CLAIMS["competitive"]().measure(study)
    assert [len(rows) for rows in asked] == [1 + len(SHARES)] * 4
    assert all((~rows).sum(1).max() == 3 for rows in asked)  # half of six words


def test_robust_shares_its_lime_with_other_claims() -> None:
    """Both runs are as before: one by the model's own way to remove words, one by the other."""
    study = Study(transformer("bert"), documents(2))
    (row, _) = CLAIMS["robust"](samples=40).measure(study)  # type: ignore[call-arg]
    shared = Lime(samples=40, output="log-odds")
    assert study.model.removals[0] == "replace" and study.has_explained(shared)
    for way, column in (("replace", "again"), ("delete", "again_deleted")):
        lime = Lime(samples=40, removal=way, output="log-odds")  # type: ignore[arg-type]
        runs = [lime.explain(study.model, study.documents[:1], seed=s)[0].scores for s in (0, 1)]
        assert row[column] == pytest.approx(kendall(*runs))


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
        model, documents(40), claims=["sensitive"], methods="random", examples=0
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
    expected = average_precision_score(gold, e.scores) - 2 / 9
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
