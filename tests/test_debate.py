"""The tests of the debate.

Adversaries against a literal search, trained claims, and what survives an interruption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import heed
from bench.constructed import honest
from heed.audit import audit
from heed.claims import CLAIMS, Claim, Evidence, Study, judge
from heed.claims.adversary import STARTS, Adversary
from heed.claims.determined import Exclusive
from heed.claims.informative import Informative, f1_of
from heed.claims.needed import Needed, Used
from heed.claims.retrained import ExclusiveModel, Stable, attention_of
from heed.errors import InputError
from heed.metrics import auc, f1, jsd, kl
from heed.models import checkpoint
from heed.models.classifier import Classifier
from heed.models.recurrent import Recurrent
from heed.models.single_layer import SingleLayer
from heed.papers.wiegreffe_pinter.experiments import read_off
from heed.progress import Listener, listening
from heed.text import Document
from heed.training import own as training
from heed.training.again import Retraining, guide_random, guide_uniform
from heed.training.recipes import RECIPES, RecurrentRecipe, change
from heed.training.recurrent import fit
from tests.conftest import TEXTS
from tests.test_recurrent import build as recurrent
from tests.test_stacked import build as stacked

DOCUMENTS = [Document.of(t) for t in TEXTS]

# Distances and scores


def test_distances_by_their_definitions() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5), 3), rng.dirichlet(np.ones(5), 3)
    p[0] = [1, 0, 0, 0, 0]
    for a, b, found in zip(p, q, jsd(p, q), strict=True):
        middle = (a + b) / 2
        halves = [
            sum(x * np.log(x / m) for x, m in zip(one, middle, strict=True) if x) / 2
            for one in (a, b)
        ]
        assert found == pytest.approx(sum(halves), abs=1e-12)
    assert jsd(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(np.log(2))
    assert kl(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == np.inf
    assert jsd(p[1], p[1]) == pytest.approx(0)


def test_auc_and_f1_by_counting() -> None:
    rng = np.random.default_rng(1)
    scores, positive = rng.integers(0, 6, 40).astype(float), rng.random(40) < 0.4
    pairs = [(a, b) for a in scores[positive] for b in scores[~positive]]
    assert auc(scores, positive) == pytest.approx(
        np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs])
    )
    assert np.isnan(auc(scores, np.ones(40, dtype=bool)))
    predicted = rng.random(40) < 0.5
    precision, recall = positive[predicted].mean(), predicted[positive].mean()
    assert f1(predicted, positive) == pytest.approx(2 * precision * recall / (precision + recall))
    gold, guess = rng.integers(0, 3, 60), rng.integers(0, 3, 60)
    assert f1_of(guess, gold, 3) == pytest.approx(
        np.mean([f1(guess == c, gold == c) for c in range(3)])
    )
    assert f1_of(guess, gold, 2) == f1(guess == 1, gold == 1)


def test_a_claim_may_have_a_statistic_of_its_own() -> None:
    claim = Claim(
        "c",
        "needed",
        "s",
        "ratio of means",
        5,
        "jain2019",
        combine=lambda rows: float(rows["a"].mean() / rows["b"].mean()),
    )
    rows = [{"value": float(i), "a": float(i), "b": 1.0, "id": f"x{i}"} for i in range(40)]
    (verdict,) = judge([Evidence(claim, rows)])
    assert verdict.mean == 19.5 and verdict.outcome == "supported" and verdict.n == 40


# Attending


@pytest.mark.parametrize(
    "model",
    [recurrent(), recurrent(encoder="cnn", attention="dot"), stacked(layers=2, block="relu")],
    ids=lambda m: m.kind,
)
def test_attending_elsewhere_is_a_trace_with_replaced_attention(model: Classifier) -> None:
    tokens = model.tokens(TEXTS)
    plain, logits, *_ = model.attending(tokens)
    rows = plain.classifying_rows()
    torch.testing.assert_close(logits(rows), plain.logits)
    other = torch.rand(3, *rows.shape, dtype=rows.dtype, requires_grad=True)
    last = len(plain.attention) - 1
    expected = model.trace(tokens, {last: other}).logits
    torch.testing.assert_close(logits(other), expected)
    (fast,) = torch.autograd.grad(logits(other).sum(), other)
    (slow,) = torch.autograd.grad(expected.sum(), other)
    torch.testing.assert_close(fast, slow)


def test_attending_elsewhere_on_the_single_layer_model(any_model: SingleLayer) -> None:
    tokens = any_model.tokens(TEXTS)
    plain, logits, cheap, _ = any_model.attending(tokens)
    assert cheap
    other = torch.rand(2, *plain.attention[0].shape, dtype=plain.attention[0].dtype)
    torch.testing.assert_close(
        logits(other), any_model.trace(tokens, {0: other}).logits, rtol=1e-4, atol=1e-5
    )


# The adversary of one document


def literal_search(
    model: Classifier,
    document: Document,
    rng: np.random.Generator,
    candidates: int,
    steps: int,
    starts: Sequence[str] = ("random",),
    learning_rate: float = 0.01,
    slack: float = 0.01,
) -> tuple[np.ndarray, np.ndarray]:
    """One document and one candidate number after another, by plain softmaxes and sums."""
    (tokens,) = model.tokens([document])
    with torch.no_grad():
        plain = model.trace([tokens])
    last = len(plain.attention) - 1
    base = plain.classifying_rows()[0, :, 0]  # [head, key]
    words = torch.from_numpy(np.flatnonzero(~tokens.special))
    target = plain.logits[0].double().softmax(-1)
    drawn = rng.standard_normal((candidates, len(base), 1, len(words)), dtype=np.float32)
    noise = {"random": 3.0, "spread": 0.3, "peaked": 9.0, "own": 1.0, "idle": 1.0}
    own = base[:, words].float()
    centres = {"own": torch.log(torch.maximum(own, torch.tensor(1e-6)))}
    if "idle" in starts:
        row = base.clone().requires_grad_()
        z = model.trace([tokens], {last: row[None, :, None]}).logits[0]
        z = z - z.exp().sum().log()
        top = int(z.argmax())
        (z[top] - (1 - z[top].exp()).log()).backward()
        assert row.grad is not None
        slopes = row.grad[:, words].float()
        mean = (own * slopes).sum(1, keepdim=True) / own.sum(1, keepdim=True)
        apart = (slopes - mean).abs()
        centres["idle"] = -6 * apart / apart.max(1, keepdim=True).values.clamp(min=1e-30)
    first = [
        centres.get(kind, torch.zeros(())) + noise[kind] * torch.from_numpy(drawn[k, :, 0])
        for k, kind in enumerate([starts[k % len(starts)] for k in range(candidates)])
    ]
    free = torch.stack(first).requires_grad_()
    optimizer = torch.optim.Adam([free], lr=learning_rate, amsgrad=True)

    def divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        m = (p + q) / 2
        total = torch.zeros(())
        for x in (p, q):
            inside = x > 1e-20
            total = total + (x[inside] * (x[inside] / m[inside]).log()).sum() / 2
        return total

    def shares(row: torch.Tensor) -> torch.Tensor:
        return row[words] / row[words].sum()

    def measured() -> tuple[list, list, list]:
        rows, far, moves = [], [], []
        for k in range(candidates):
            row = base.clone()
            row[:, words] = (free[k].softmax(-1) * base[:, words].sum(-1, keepdim=True)).to(
                row.dtype
            )
            z = model.trace([tokens], {last: row[None, :, None]}).logits[0].double()
            rows.append(shares(row.mean(0)))
            far.append(divergence(rows[-1], shares(base.mean(0))))
            moves.append((z.softmax(-1) - target).abs().sum() / 2)
        return rows, far, moves

    for _ in range(steps):
        rows, far, moves = measured()
        loss = sum(500 * (m - slack).relu() - f for f, m in zip(far, moves, strict=True))
        pairs = [(i, j) for i in range(candidates) for j in range(i)]
        loss = loss - sum(divergence(rows[i], rows[j]) for i, j in pairs) / (
            candidates * (candidates - 1)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        _, far, moves = measured()
    return np.array([f.item() for f in far]), np.array([m.item() for m in moves])


@pytest.mark.parametrize("kind", ["single-layer", "recurrent", "stacked"])
def test_the_adversary_against_a_literal_search(model: SingleLayer, kind: str) -> None:
    subject = {
        "single-layer": model,
        "recurrent": recurrent(),
        "stacked": stacked(layers=2, block="skip"),
    }[kind]
    study = Study(subject, DOCUMENTS[:4])
    once, twice = (Exclusive(candidates=n, steps=12, rounds=0) for n in (3, 5))
    rows, further = once.measure(study), twice._round(study, 1)
    for row, other, document in zip(rows, further, DOCUMENTS[:4], strict=True):
        far, moves = literal_search(subject, document, study.rng("exclusive", document), 3, 12)
        check_row(row, far, moves)
        rng = study.rng("exclusive", document, "1")
        bold: tuple = (5, 12, STARTS, 0.1, 0.04)
        check_row(other, *literal_search(subject, document, rng, *bold))


def check_row(row: dict, far: np.ndarray, moves: np.ndarray) -> None:
    near = moves <= 0.05
    assert row["candidates_left"] == near.sum()
    expected = far[near].max() if near.any() else 0.0
    assert row["jsd"] == pytest.approx(expected, abs=2e-4)
    assert row["value"] == pytest.approx(row["jsd"] / np.log(2))
    spread = np.ptp(far[near]) / np.log(2) if near.any() else 0.0
    assert row["spread"] == pytest.approx(spread, abs=5e-4)


def test_a_search_goes_on_until_it_finds_no_more() -> None:
    """The farthest of all rounds counts; one kind of start ends early."""
    construction = honest(0, 6)
    study = Study(construction.model, construction.documents)
    rounds = [Exclusive(steps=200)._round(study, k) for k in range(4)]
    values = np.array([[row["value"] for row in rows] for rows in rounds])
    means = np.maximum.accumulate(values).mean(1)
    grown = np.diff(means)
    for most in range(4):
        rows = Exclusive(steps=200, rounds=most).measure(study)
        # the first round that gains less than 0.01 is the last
        last = min([k + 1 for k in range(most) if grown[k] < 0.01], default=most)
        assert np.mean([row["value"] for row in rows]) == pytest.approx(means[last])
        assert {row["cut"] for row in rows} == {float(last == 0 or grown[last - 1] >= 0.01)}
        for b, row in enumerate(rows):
            assert row["candidates"] == 5 * (last + 1)
            assert row["candidates_left"] == sum(
                r[b]["candidates_left"] for r in rounds[: last + 1]
            )
    assert means[0] < 0.75 < 0.85 < means[1]


def test_the_adversary_of_a_document_does_not_depend_on_the_others(model: SingleLayer) -> None:
    test = Exclusive(candidates=2, steps=10, rounds=0)
    together = test.measure(Study(model, DOCUMENTS))
    for row, document in zip(together, DOCUMENTS, strict=True):
        (alone,) = test.measure(Study(model, [document]))
        assert row["value"] == pytest.approx(alone["value"], abs=1e-5)


def test_what_lies_on_special_tokens_and_padding_stays(make: object) -> None:
    model = make(padding="attends")  # type: ignore[operator]
    tokens = model.tokens(TEXTS[:3])
    plain = model.attending(tokens).trace
    base = plain.classifying_rows()
    for positions in ("words", "all"):
        free = [Study(model, []).free(t, positions) for t in tokens]  # type: ignore[arg-type]
        adversary = Adversary([base], plain, free)
        rows = adversary._rows(torch.randn(4, *base.shape, dtype=base.dtype), base)
        torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows.sum(-1)))
        for b, t in enumerate(tokens):
            fixed = np.r_[
                np.flatnonzero(t.special) if positions == "words" else [], len(t) : base.shape[-1]
            ]
            at = torch.from_numpy(fixed.astype(int))
            torch.testing.assert_close(rows[:, b][..., at], base[b][..., at].expand(4, -1, -1, -1))


def test_a_flat_model_has_an_adversary_everywhere_and_an_identified_one_has_none() -> None:
    """Where all values are alike, any attention gives the output.

    With a single word, only the model's own attention gives it.
    """
    model = recurrent(encoder="average")
    model.network.token.weight.data.zero_()
    study = Study(model, [Document("the film is good and the plot is great")] * 1)
    (free,) = Exclusive(candidates=2, steps=100, rounds=0).measure(study)
    assert free["value"] > 0.6 and free["tvd"] == pytest.approx(0, abs=1e-9)
    (bound,) = Exclusive(candidates=2, steps=20, rounds=1).measure(
        Study(recurrent(), [Document("awful")])
    )
    assert bound["value"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("layers", ["0", "all"])
def test_other_layers_may_be_attacked(layers: str) -> None:
    model = stacked(layers=2, block="relu")
    said: list[str] = []

    class Ear(Listener):
        def say(self, line: str) -> None:
            said.append(line)

    with listening(Ear()):
        rows = Exclusive(candidates=2, steps=3, layers=layers, rounds=1).measure(
            Study(model, DOCUMENTS[:2])
        )
    assert all(0 <= row["value"] <= 1 for row in rows)
    assert "minutes" in said[0]


# What survives an interruption


def test_a_stopped_audit_goes_on_where_it_was(
    model: SingleLayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [
        Document(f"the film is {a} and the {b} is {c}")
        for a in ("good", "bad", "dull")
        for b in ("plot", "music")
        for c in ("great", "slow")
    ]
    claims = [Used(permutations=5), "agrees-removal"]
    whole = audit(model, documents, claims, examples=0)
    monkeypatch.setattr(SingleLayer, "batch_tokens", 30)
    real, calls = Used._batch, []

    def stops(self: Used, study: Study, tokens: list) -> list:
        calls.append(len(tokens))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, study, tokens)

    monkeypatch.setattr(Used, "_batch", stops)
    with pytest.raises(KeyboardInterrupt):
        audit(model, documents, claims, examples=0, store=tmp_path)
    done = sum(calls[:2])
    found = audit(model, documents, claims, examples=0, store=tmp_path)
    assert sum(calls[3:]) == len(documents) - done > 0
    for one, two in zip(whole.evidence, found.evidence, strict=True):
        assert [r["value"] for r in one.rows] == pytest.approx([r["value"] for r in two.rows])
    calls.clear()
    audit(model, documents, claims, examples=0, store=tmp_path)
    assert not calls


# Claims that train


RECIPE = RecurrentRecipe(epochs=3, width=16, hidden=16, learning_rate=1e-2, max_words=40)
LABELS = ("negative", "positive")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Recurrent:
    folder = tmp_path_factory.mktemp("models") / "m"
    done = fit(list(heed.data.tasks.generate("reviews", 200, 0)), LABELS, RECIPE)
    checkpoint.save(done.model, folder, {"recipe": {"name": "recurrent"} | RECIPE.to_dict()})
    loaded = heed.load(folder)
    assert isinstance(loaded, Recurrent)
    return loaded


def test_training_claims_say_what_they_need(trained: Recurrent) -> None:
    documents = heed.data.tasks.generate("reviews", 8, 5)
    names = ["needed", "stable", "informative", "exclusive-model"]
    found = audit(trained, documents, names, examples=0)
    by_id = {v.claim.id: v for v in found.verdicts}
    assert all(
        by_id[name].outcome == "not applicable" and "--train" in by_id[name].reason
        for name in names
    )
    unnamed = recurrent()
    texts = heed.data.tasks.generate("reviews", 30, 1)
    found = audit(unnamed, documents, names, examples=0, training=texts)
    assert all("how it was trained" in v.reason for v in found.verdicts if v.claim.id in names)
    with pytest.raises(InputError, match="not those of the model"):
        audit(trained, documents, names, examples=0, training=replace(texts, labels=("a", "b")))


def test_trained_claims_give_a_row_for_every_document(trained: Recurrent, tmp_path: Path) -> None:
    documents = heed.data.tasks.generate("reviews", 40, 5)
    claims = [Needed(), Stable(seeds=2), Informative(seeds=1), ExclusiveModel(seeds=2, epochs=2)]
    texts = heed.data.tasks.generate("reviews", 200, 0)
    found = audit(trained, documents, claims, examples=0, training=texts, store=tmp_path)
    by_id = {e.claim.id: e for e in found.evidence}
    for e in found.evidence:
        assert not e.reason and len(e.rows) == 40
    assert all(-1 <= r["value"] <= 1 and 0 <= r["correct"] <= 1 for r in by_id["needed"].rows)
    assert all(0 <= r["value"] <= r["maximum"] <= 1 for r in by_id["stable"].rows)
    for r in by_id["needed"].rows:
        assert r["value"] == pytest.approx(np.mean([r[f"seed_{seed}"] for seed in (1, 2, 3)]))
    for r in by_id["informative"].rows:
        right = [float(r[f"{guide}_0"] == r["gold"]) for guide in ("guided", "uniform")]
        assert r["value"] == r["seed_0"] == right[0] - right[1]
    assert {v.claim.id for v in found.verdicts if v.mean is not None} >= {
        "needed",
        "stable",
        "informative",
    }
    saved = tmp_path / "a.parquet"
    found.save(saved)
    assert heed.Audit.load(saved).to_dict()["verdicts"] == found.to_dict()["verdicts"]
    # the statistic of the adversary is the mean of its rows
    (verdict,) = judge([by_id["exclusive-model"]])
    assert verdict.mean == pytest.approx(
        np.mean([r["value"] for r in by_id["exclusive-model"].rows])
    )
    # no model is trained twice
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "models").glob("*/model.json")}
    # seeds, uniform ones, and adversaries until two straddle
    assert 3 + 3 + 2 <= len(before) <= 3 + 3 + 8
    again = audit(trained, documents, claims, examples=0, training=texts, store=tmp_path)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "models").glob("*/model.json")} == before
    assert again.to_dict()["verdicts"] == found.to_dict()["verdicts"]


def test_needed_is_a_difference_of_accuracies(trained: Recurrent) -> None:
    documents = heed.data.tasks.generate("reviews", 30, 6)
    retraining = Retraining(trained, list(heed.data.tasks.generate("reviews", 200, 0)))
    study = Study(
        trained, list(documents), gold=[d.label for d in documents], retraining=retraining
    )
    rows = Needed(seeds=3).measure(study)
    shares = [
        np.mean(
            [
                (retraining.again(s, flat)(documents).argmax(1) == documents.gold).mean()
                for s in (1, 2, 3)
            ]
        )
        for flat in (False, True)
    ]
    assert np.mean([r["value"] for r in rows]) == pytest.approx(shares[0] - shares[1])
    assert retraining.again(1, uniform=True).shape.attention == "uniform"


def test_single_layer_models_are_trained_again_from_their_recipe(tmp_path: Path) -> None:
    recipe = change(RECIPES["default"], {"epochs": 2, "batch": 32, "max_words": 40, "min_count": 1})
    texts = list(heed.data.tasks.generate("reviews", 120, 0))
    done = training.fit(texts, LABELS, recipe)
    checkpoint.save(done.model, tmp_path / "m", {"recipe": {"name": "default"} | recipe.to_dict()})
    model = heed.load(tmp_path / "m")
    again = Retraining(model, texts)  # type: ignore[arg-type]
    flat = again.again(1, uniform=True)
    for weights, document in zip(attention_of(flat, texts[:5]), texts[:5], strict=True):
        np.testing.assert_allclose(weights, 1 / len(weights), atol=1e-6)
        assert len(weights) == len(flat.tokens([document])[0].words)
    adversary = again.adversary(0.01, epochs=2)
    assert adversary.revision != model.revision and isinstance(adversary, SingleLayer)


def test_guides_put_all_weight_on_words(trained: Recurrent) -> None:
    tokens = trained.tokens(TEXTS)
    for guide in (guide_uniform, guide_random):
        for t, w in zip(tokens, guide(tokens), strict=True):
            assert w.sum() == pytest.approx(1) and (w[t.special] == 0).all()
    assert all(
        (a == b).all() for a, b in zip(guide_random(tokens), guide_random(tokens), strict=True)
    )


@pytest.mark.parametrize(
    ("moved", "away", "expected"),
    [
        ([0, 0.02, 0.08], [0, 0.2, 0.5], 0.35),  # half way between the second point and the third
        ([0, 0.01, 0.04], [0, 0.3, 0.4], 0.4),  # the curve ends before
        ([0, 0.1, 0.2], [0, 0.4, 0.5], 0.2),
        ([0, 0.04, 0.2], [0, 0.4, 0.3], 0.4),  # farther does not help
    ],
)
def test_the_curve_is_read_at_a_tvd_of_five_hundredths(
    moved: list, away: list, expected: float
) -> None:
    assert read_off(np.array(moved, dtype=float), np.array(away)) == pytest.approx(expected)


def test_every_claim_of_the_debate_is_known() -> None:
    assert {"needed", "used", "exclusive", "exclusive-model", "stable", "informative"} <= set(
        CLAIMS
    )


def test_seeds_are_never_the_models_own(trained: Recurrent) -> None:
    model = recurrent()
    model.facts = {"seed": 2}
    assert Retraining(model, []).seeds(3) == [1, 3, 4]
    assert Retraining(trained, []).seeds(2) == [1, 2]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("used", {"permutations": 0}),
        ("exclusive", {"candidates": 0}),
        ("exclusive", {"steps": -1}),
        ("exclusive", {"rounds": -1}),
        ("exclusive", {"layers": "top"}),
        ("needed", {"seeds": 0}),
        ("stable", {"seeds": 0}),
        ("informative", {"seeds": 0}),
        ("exclusive-model", {"epochs": 0}),
    ],
)
def test_settings_of_claims_that_make_no_sense_are_refused(name: str, settings: dict) -> None:
    with pytest.raises(InputError):
        CLAIMS[name](**settings)


def test_the_gate_opens_by_what_can_be_measured(trained: Recurrent) -> None:
    """'needed' cannot be measured without training data: then 'used' decides.

    Attention's own claims are gated whatever explanation is judged.
    """
    found = audit(
        trained,
        heed.data.tasks.generate("reviews", 5, 1),
        ["needed", Exclusive(steps=1)],
        examples=0,
    )
    assert [v.claim.id for v in found.verdicts] == ["needed", "used", "exclusive"]
    values = {"needed": -0.5, "exclusive": 0.0, "agrees-removal": 0.0}
    rows = [
        Evidence(CLAIMS[name].claim, [{"value": value}] * 250, method="lime")
        for name, value in values.items()
    ]
    by_id = {v.claim.id: v for v in judge(rows)}
    assert (
        by_id["exclusive"].outcome == "not applicable"
        and "does not need" in by_id["exclusive"].reason
    )
    assert by_id["agrees-removal"].outcome == "refuted"


def test_functions_cannot_be_told_apart_and_keep_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="revision"):
        audit(
            lambda texts: np.full((len(texts), 2), 0.5),
            ["a film"],
            ["removes"],
            "occlusion",
            store=tmp_path,
        )


def test_a_share_of_attention_on_special_tokens_is_no_disagreement() -> None:
    """Mass that moves from words to <cls> alike for all words leaves KL at zero."""
    from heed.training.examples import Examples
    from heed.training.goals import Disagree, said_by

    model = recurrent(encoder="average")
    documents = [Document("the film is good")]
    said = said_by(model, documents)
    ((key, (outputs, weights)),) = said.items()
    said[key] = (outputs, weights * 0.3)
    said[key][1][0] = 0.7
    examples = Examples.of(model.tokenizer, documents)
    goal = Disagree(examples, examples, 1, np.random.default_rng(0), 1.0, said)
    _, divergence = goal.terms(model.network, examples, [0])
    assert divergence.item() == pytest.approx(0, abs=1e-6)


def test_validation_documents_of_one_class_choose_by_accuracy() -> None:
    documents = list(heed.data.tasks.generate("reviews", 40, 0))
    alike = [d for d in heed.data.tasks.generate("reviews", 40, 1) if d.label == 1]
    done = fit(documents, LABELS, RECIPE, validation=alike)
    assert done.best >= 1 and "auc" not in done.history[0]
