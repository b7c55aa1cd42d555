"""Encoders with attention against a literal pass, behind the doors, and in training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import heed
from heed.errors import CheckpointError, InputError
from heed.methods import METHODS, GradientInput
from heed.models import checkpoint
from heed.models.classifier import Classifier
from heed.models.recurrent import KERNELS, Recurrent, RecurrentNetwork
from heed.models.shapes import RecurrentShape
from heed.text import Document, Tokenizer
from heed.training.again import Retraining
from heed.training.card import recurrent_card
from heed.training.examples import Examples, Guide
from heed.training.goals import Disagree, said_by
from heed.training.recipes import RecurrentRecipe
from heed.training.recurrent import fit
from tests.conftest import LABELS, TEXTS, WORDS

SHAPES = [
    {"encoder": encoder, "attention": attention}
    for encoder in ("lstm", "cnn", "average")
    for attention in ("additive", "dot", "uniform")
]


def build(labels: int = 2, **options: object) -> Recurrent:
    tokenizer = Tokenizer.words(WORDS, 41)
    shape = RecurrentShape(len(tokenizer), labels, width=12, hidden=16, max_words=40, **options)  # type: ignore[arg-type]
    network = RecurrentNetwork(shape, torch.Generator().manual_seed(0)).double()
    for p in network.attends():
        p.data.mul_(3)  # attention that is far from uniform
    return Recurrent(network, tokenizer, LABELS[:labels], "tiny-recurrent", pairs=True)


@pytest.fixture(params=SHAPES, ids=lambda o: "-".join(o.values()))
def any_recurrent(request: pytest.FixtureRequest) -> Recurrent:
    return build(**request.param)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def literal_states(model: Recurrent, e: list[np.ndarray]) -> list[np.ndarray]:
    p = {k: v.numpy() for k, v in model.network.state_dict().items()}
    H = model.shape.hidden
    if model.shape.encoder == "average":
        return [np.tanh(p["token.weight"] @ x + p["token.bias"]) for x in e]
    if model.shape.encoder == "cnn":
        found = []
        for t in range(len(e)):
            parts = []
            for i, k in enumerate(KERNELS):
                total = p[f"convolutions.{i}.bias"].copy()
                for offset in range(-(k // 2), k // 2 + 1):
                    if 0 <= t + offset < len(e):
                        total += (
                            p[f"convolutions.{i}.weight"][:, :, offset + k // 2] @ e[t + offset]
                        )
                parts.append(np.maximum(total, 0))
            found.append(np.concatenate(parts))
        return found

    def one_way(name: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        h, c, found = np.zeros(H // 2), np.zeros(H // 2), []
        for x in inputs:
            gates = p[f"{name}.weight_ih_l0"] @ x + p[f"{name}.bias_ih_l0"]
            gates = gates + p[f"{name}.weight_hh_l0"] @ h + p[f"{name}.bias_hh_l0"]
            i, f, g, o = np.split(gates, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            found.append(h)
        return found

    onward, back = one_way("onward", e), one_way("back", e[::-1])[::-1]
    return [np.concatenate(both) for both in zip(onward, back, strict=True)]


def literal(model: Recurrent, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits and attention of one document, token by token."""
    p = {k: v.numpy() for k, v in model.network.state_dict().items()}
    h = literal_states(model, [p["W_e"][i] for i in ids])
    if model.shape.attention == "additive":
        scores = [
            (p["w_2.weight"] @ np.tanh(p["W_1.weight"] @ x + p["W_1.bias"])).item() for x in h
        ]
    elif model.shape.attention == "dot":
        scores = [(p["w.weight"] @ x).item() / np.sqrt(model.shape.hidden) for x in h]
    else:
        scores = [0.0] * len(h)
    g = np.array([0.0 if i in (1, 2) else np.exp(s) for i, s in zip(ids, scores, strict=True)])
    a = g / g.sum() if g.sum() else g
    z = p["W_o.weight"] @ sum(w * x for w, x in zip(a, h, strict=True)) + p["W_o.bias"]
    return (np.array([-z[0] / 2, z[0] / 2]) if model.shape.labels == 2 else z), a


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("options", SHAPES, ids=lambda o: "-".join(o.values()))
def test_against_a_literal_pass(options: dict, labels: int) -> None:
    model = build(labels, **options)
    tokens = model.tokens(TEXTS)
    with torch.no_grad():
        trace = model.trace(tokens)
    logits = model.logits(tokens)
    for i, t in enumerate(tokens):
        expected, attention = literal(model, t.ids)
        np.testing.assert_allclose(logits[i], expected, atol=1e-10)
        np.testing.assert_allclose(trace.logits[i].numpy(), expected, atol=1e-10)
        np.testing.assert_allclose(
            trace.attention[0][i, 0, 0, : len(t)].numpy(), attention, atol=1e-10
        )
        assert (trace.attention[0][i, 0, 0, len(t) :] == 0).all()


def test_removal_is_that_of_a_document_without_the_words(any_recurrent: Recurrent) -> None:
    tokens = any_recurrent.tokens(TEXTS[:2])
    rng = np.random.default_rng(0)
    keep = [rng.random((7, len(t.words))) < 0.5 for t in tokens]
    keep[0][0] = False  # nothing is left
    found = {r: any_recurrent.score(tokens, keep, removal=r) for r in any_recurrent.removals}  # type: ignore[arg-type]
    assert any_recurrent.removals == ("delete", "replace")
    for t, k, deleted, replaced in zip(
        tokens, keep, found["delete"], found["replace"], strict=True
    ):
        for row, one, other in zip(k, deleted, replaced, strict=True):
            present = np.where(t.word >= 0, row[t.word], True)
            np.testing.assert_allclose(one, literal(any_recurrent, t.ids[present])[0], atol=1e-10)
            np.testing.assert_allclose(
                other, literal(any_recurrent, np.where(present, t.ids, 0))[0], atol=1e-10
            )


def test_gradients_are_finite_differences(any_recurrent: Recurrent) -> None:
    (tokens,) = any_recurrent.tokens(TEXTS[:1])
    e = any_recurrent.embeddings([tokens])
    own = {0: any_recurrent.trace([tokens]).attention[0].detach()}
    for held in (False, True):
        (found,) = any_recurrent.gradient([tokens], [1], "probability", held)
        for t, d in ((0, 3), (2, 0), (4, 7)):
            values = []
            for step in (1e-5, -1e-5):
                moved = e.clone()
                moved[0, t, d] += step
                with torch.no_grad():
                    z = any_recurrent.trace([tokens], own if held else None, moved).logits
                values.append(z.softmax(-1)[0, 1].item())
            assert found.gradient[t, d] == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-8)


def test_fixed_attention_is_a_setting_of_gradients(any_recurrent: Recurrent) -> None:
    fixed, moves = (
        heed.explain(any_recurrent, TEXTS[0], "gradient-input", attention=how).scores
        for how in ("fixed", "moves")
    )
    uniform = any_recurrent.shape.attention == "uniform"
    assert np.allclose(fixed, moves) == uniform
    with pytest.raises(InputError, match="sideways"):
        GradientInput(attention="sideways")  # type: ignore[arg-type]


def test_replaced_attention_arrives(any_recurrent: Recurrent) -> None:
    tokens = any_recurrent.tokens(TEXTS[:3])
    with torch.no_grad():
        plain = any_recurrent.trace(tokens)
        wanted = torch.rand(4, *plain.attention[0].shape, dtype=torch.float64)
        found = any_recurrent.trace(tokens, {0: wanted}).logits
        again = any_recurrent.trace(
            tokens, {0: torch.full_like(plain.attention[0], torch.nan)}
        ).logits
        attending = any_recurrent.attending(tokens)
    torch.testing.assert_close(again, plain.logits)
    torch.testing.assert_close(attending.logits(wanted), found)
    h = plain.values[0][:, 0]
    for v in range(4):
        z = any_recurrent.network.read((wanted[v, :, 0, 0, :, None] * h).sum(1))
        torch.testing.assert_close(found[v], z)


def test_every_method_that_fits_explains(any_recurrent: Recurrent) -> None:
    small = {"lime": {"samples": 61}, "shapley": {"samples": 61}, "anchors": {"samples": 200}}
    for name, cls in METHODS.items():
        if name == "relevance" and any_recurrent.shape.encoder == "lstm":
            continue  # its gates are inside of a function, and cannot be held constant
        if cls.needs <= any_recurrent.offers:
            alone = heed.explain(any_recurrent, TEXTS[1], name, **small.get(name, {}))
            _, together = heed.explain(
                any_recurrent, [TEXTS[4], TEXTS[1]], name, **small.get(name, {})
            )
            scale = np.abs(alone.scores).max() or 1
            np.testing.assert_allclose(together.scores, alone.scores, atol=1e-6 * scale)
    assert "lime-exact" not in [
        n for n, cls in METHODS.items() if cls.needs <= any_recurrent.offers
    ]


def test_a_checkpoint_gives_the_same_model(any_recurrent: Recurrent, tmp_path: Path) -> None:
    any_recurrent.network.float()
    checkpoint.save(any_recurrent, tmp_path / "m", {})
    loaded = heed.load(tmp_path / "m")
    assert isinstance(loaded, Recurrent) and loaded.revision == any_recurrent.revision
    np.testing.assert_array_equal(loaded(list(TEXTS)), any_recurrent(list(TEXTS)))
    config = (tmp_path / "m" / "model.json").read_text()
    (tmp_path / "m" / "model.json").write_text(config.replace('"hidden": 16', '"hidden": 20'))
    with pytest.raises(CheckpointError, match="does not fit an encoder with attention"):
        heed.load(tmp_path / "m")


@pytest.mark.parametrize(
    "wrong",
    [
        {"encoder": "gru"},
        {"attention": "none"},
        {"hidden": 6},
        {"epochs": 0},
        {"spread": 0},
        {"vectors": "x"},
    ],
)
def test_recipes_refuse_what_makes_no_model(wrong: dict) -> None:
    from heed.training.recipes import recurrent

    with pytest.raises(InputError):
        recurrent(wrong)


SMALL = RecurrentRecipe(epochs=6, batch=8, width=16, hidden=16, learning_rate=1e-2, max_words=40)


def reviews(n: int, seed: int = 0) -> list[Document]:
    return list(heed.data.tasks.generate("reviews", n, seed))


@pytest.mark.parametrize(
    "options", [{"encoder": "lstm"}, {"encoder": "cnn"}, {"encoder": "average"}]
)
def test_training_learns_and_repeats_itself(options: dict) -> None:
    recipe = RecurrentRecipe(**{**SMALL.to_dict(), **options})
    state = torch.random.get_rng_state()
    one, two = (fit(reviews(240), ("negative", "positive"), recipe, seed=3) for _ in range(2))
    other = fit(reviews(240), ("negative", "positive"), recipe, seed=4)
    assert (
        torch.random.get_rng_state() == state
    ).all()  # torch's own generator belongs to the user
    assert one.model.revision == two.model.revision != other.model.revision
    test = reviews(200, seed=1)
    right = (one.model(test).argmax(1) == [d.label for d in test]).mean()
    assert right > (
        0.6 if recipe.encoder == "average" else 0.85
    )  # single words tell less than phrases here
    assert one.history[one.best - 1]["auc"] == max(row["auc"] for row in one.history)
    assert one.model.network.W_e.abs().max() > 0 and not one.model.network.W_e.requires_grad


def test_a_guide_is_all_the_attention_there_is() -> None:
    """With weights on the first word alone, nothing but the first word can be learnt."""
    texts = [
        Document(f"{a} {b}", label=int(b == "good"))
        for a in ("film", "plot")
        for b in ("good", "bad")
    ] * 20

    def weights(place: int) -> Guide:
        return lambda tokens: [np.eye(len(t))[place] for t in tokens]

    recipe = RecurrentRecipe(encoder="average", epochs=6, width=8, hidden=8, learning_rate=2e-2)
    for place, expected in ((1, 0.5), (2, 1.0)):
        done = fit(texts, ("bad", "good"), recipe, guide=weights(place))
        examples = Examples.of(done.model.tokenizer, texts, weights(place))
        found = examples.logits(done.model.network).argmax(1)
        assert (found == examples.gold.numpy()).mean() == pytest.approx(expected, abs=0.01)


def against(
    model: Classifier, documents: list[Document], examples: Examples, strength: float
) -> Disagree:
    rng, said = np.random.default_rng(0), said_by(model, documents)
    return Disagree(examples, examples, 1, rng, strength, said)


def test_an_adversary_keeps_predictions_and_moves_attention() -> None:
    documents = reviews(240)
    base = fit(documents, ("negative", "positive"), SMALL).model
    base.facts = {"recipe": SMALL.to_dict()}
    before = base.revision
    found = {}
    for strength in (0.0, 1.0):
        other = Retraining(base, documents[:200], documents[200:]).adversary(strength, epochs=6)
        checks = Examples.of(base.tokenizer, documents[200:])
        found[strength] = against(base, documents[200:], checks, strength).validate(other.network)
    assert base.network.state_dict().keys() and base.revision == before
    assert found[1.0]["kl"] > found[0.0]["kl"] + 0.1
    assert found[0.0]["tvd"] < 0.05


def test_terms_of_disagreement_are_the_distances(any_recurrent: Recurrent) -> None:
    documents = [Document.of(t) for t in TEXTS]
    other = build(encoder="average", attention="additive")
    examples = Examples.of(other.tokenizer, documents)
    goal = against(any_recurrent, documents, examples, 0.5)
    with torch.no_grad():
        distance, divergence = goal.terms(other.network, examples, range(len(documents)))
    for i, t in enumerate(other.tokens(documents)):
        (za, a), (zb, b) = literal(other, t.ids), literal(any_recurrent, t.ids)
        pa, pb = (np.exp(z) / np.exp(z).sum() for z in (za, zb))
        words = ~t.special
        assert distance[i].item() == pytest.approx(0.5 * np.abs(pa - pb).sum(), abs=1e-6)
        expected = (a[words] * np.log(a[words] / b[words])).sum()
        assert divergence[i].item() == pytest.approx(expected, abs=1e-5)


def test_the_card_says_what_the_model_is() -> None:
    facts = {
        "data": {"name": "d", "split": "train", "documents": 5, "source": "s"},
        "recipe": {"name": "recurrent"},
        "command": "c",
        "seed": 0,
        "history": [{"accuracy": 0.5}],
        "best_epoch": 1,
        "test": None,
    }
    text = recurrent_card(build(encoder="cnn"), facts)
    assert "convolutions under additive attention" in text and "negative, positive" in text
