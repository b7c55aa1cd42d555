"""Laws that hold for every method in the table of methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pytest
import torch
from conftest import OFFERED, WORDS

import heed
from heed.errors import InputError, NotApplicable
from heed.methods import CHANCE, METHODS, Explanation, reads_attention
from heed.methods.method import OutputMethod, TokenMethod
from heed.models.classifier import CLOSED
from heed.models.single_layer import Network, SingleLayer
from heed.models.transformer import Transformer
from tests.test_transformer import network, tokenizer

# small, so that the laws are quick to check; samples=61 is below 2^d for all but the shortest texts
SMALL: dict[str, dict[str, Any]] = {
    "lime": {"samples": 61},
    "shapley": {"samples": 61},
    "anchors": {"samples": 400},
    "slalom": {"samples": 61},
    "integrated-gradients": {"steps": 5},
}
ATTENTION = ["attention-mean", "attention-max", "attention-head"]
SAMPLED = [name for name in METHODS if name in ("lime", "shapley", "anchors", "slalom", "random")]
GUESSING = [cls.name for cls in CHANCE]
MEASURING = [name for name in OFFERED if not reads_attention(name) and name not in GUESSING]

TRANSFORMED = [name for name, cls in METHODS.items() if CLOSED not in cls.needs]

each_method = pytest.mark.parametrize("name", OFFERED)
each_unit = pytest.mark.parametrize("unit", ["word", "token"])


def run(model: SingleLayer, text: Any, name: str, **options: Any) -> Any:
    return heed.explain(model, text, name, **SMALL.get(name, {}), **options)


def same(one: Explanation, other: Explanation, output: float = 1e-12) -> None:
    """Equal within 1e-5 of the largest score or of the output, which is what heed promises.

    The single-layer classifier does better: there the largest score alone is the scale.
    """
    assert one.units == other.units and one.label == other.label
    scale = max(np.abs(one.scores).max(), output)
    np.testing.assert_allclose(other.scores, one.scores, rtol=0, atol=1e-5 * scale)
    assert [s.text for s in one.specials] == [s.text for s in other.specials]
    np.testing.assert_allclose(
        [s.score for s in other.specials],
        [s.score for s in one.specials],
        rtol=0,
        atol=1e-5 * max(scale, 1),
    )
    if one.standard_errors is not None:
        np.testing.assert_allclose(other.standard_errors, one.standard_errors, rtol=1e-4, atol=1e-7)


@each_method
def test_a_longer_neighbour_changes_nothing(
    any_model: SingleLayer, texts: list, long_text: str, name: str
) -> None:
    for text in texts:
        same(run(any_model, text, name), run(any_model, [text, long_text], name)[0])


@each_method
def test_a_list_is_one_by_one_in_any_order(any_model: SingleLayer, texts: list, name: str) -> None:
    alone = [run(any_model, text, name) for text in texts]
    for one, other in zip(alone, run(any_model, texts, name), strict=True):
        same(one, other)
    for one, other in zip(alone, run(any_model, texts[::-1], name)[::-1], strict=True):
        same(one, other)


def saturated() -> Transformer:
    """A transformer with large logits that hardly react to single words."""
    model = Transformer(network("bert"), tokenizer(), "saturated")
    classifier = model.model.classifier
    with torch.no_grad():
        classifier.weight.mul_(5e-4)
        classifier.bias.copy_(torch.tensor([-9.0, 11.0, 2.0]))
    return model


@pytest.mark.parametrize("name", TRANSFORMED)
def test_neighbours_change_little_beside_the_output_of_a_saturated_transformer(name: str) -> None:
    """Scores are differences of nearly equal outputs, known to the rounding of the output only."""
    model = saturated()
    texts = ["good film", "the film was very good , but the plot is not", "bad", "it is slow " * 12]
    explains_output = "output" in {f.name for f in fields(METHODS[name])}
    largest = float(np.abs(model(texts)).max()) if explains_output else 1e-12
    alone = [run(model, text, name) for text in texts]
    for one, other in zip(alone, run(model, texts, name), strict=True):
        same(one, other, output=largest)
        assert not explains_output or np.abs(one.scores).max() < 1e-2 * largest


EXPLAINS = [name for name in OFFERED if issubclass(METHODS[name], OutputMethod)]


def shifted(model: SingleLayer) -> SingleLayer:
    """The same predictions, but all logits of a text are larger by the same number."""
    network = Network(model.shape).to(model.network.W_e.dtype)
    network.load_state_dict(model.network.state_dict())
    same = torch.randn(model.shape.heads, 8, generator=torch.Generator().manual_seed(3))
    network.W_l.data.add_(2 * same.to(network.W_l.dtype))
    return SingleLayer(network, model.tokenizer, model.labels, "shifted", pairs=True)


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("name", EXPLAINS)
def test_what_all_logits_share_counts_for_no_word(
    make: Callable[..., SingleLayer], texts: list, name: str, labels: int
) -> None:
    """It does not move the prediction. Logits see it, as do closed forms of three labels."""
    model = make(labels=labels)
    other = shifted(model)
    np.testing.assert_allclose(other.predict(texts), model.predict(texts), atol=1e-12)
    if not (labels == 3 and CLOSED in METHODS[name].needs):
        for text in texts[:2]:
            one, moved = run(model, text, name), run(other, text, name)
            assert one.settings["output"] == "log-odds"
            same(one, moved)
    logits = [run(m, texts[0], name, output="logit").scores for m in (model, other)]
    assert np.abs(logits[1] - logits[0]).max() > 0.1 * np.abs(logits[0]).max()


@each_method
def test_more_documents_than_are_measured_together(model: SingleLayer, name: str) -> None:
    words = ["the", "film", "was", "good", "bad", "slow", "quick", "fresh"]
    many = [f"{words[i % 8]} {words[i // 8 % 8]} plot {words[i * 3 % 7]}" for i in range(70)]
    found = run(model, many, name)
    assert [e.document.text for e in found] == many
    for i in (0, 63, 64, 69):
        same(run(model, many[i], name), found[i])


@each_method
def test_the_same_seed_gives_the_same_scores(model: SingleLayer, texts: list, name: str) -> None:
    for one, other in zip(
        run(model, texts, name, seed=4), run(model, texts, name, seed=4), strict=True
    ):
        assert (one.scores == other.scores).all() and one.seed == other.seed == 4


@each_method
def test_another_seed_matters_for_sampled_methods_alone(
    model: SingleLayer, texts: list, name: str
) -> None:
    text = texts[1]
    one, other = run(model, text, name, seed=1), run(model, text, name, seed=2)
    if name != "anchors":  # whose rule may well be the same
        assert (one.scores == other.scores).all() == (name not in SAMPLED)


@pytest.mark.parametrize("name", SAMPLED)
def test_sampling_leaves_the_global_random_state_alone(
    model: SingleLayer, texts: list, name: str
) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    run(model, texts[0], name)
    assert (before == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("name", MEASURING)
def test_a_constant_model_gives_nothing_to_any_word(
    constant_model: SingleLayer, texts: list, name: str
) -> None:
    assert np.abs(constant_model(texts)).min() > 1e-3
    for e in run(constant_model, texts, name, label=1):
        np.testing.assert_allclose(e.scores, 0, atol=1e-12)
        np.testing.assert_allclose([s.score for s in e.specials], 0, atol=1e-12)
        if e.standard_errors is not None:
            np.testing.assert_allclose(e.standard_errors, 0, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    ["occlusion", "lime", "shapley", "anchors", "flip", "slalom", "integrated-gradients"],
)
def test_words_that_the_model_does_not_know_have_no_effect_when_replaced(
    model: SingleLayer, name: str
) -> None:
    e = run(model, "zyzzyva qwertz xylem zyzzyva", name)
    np.testing.assert_allclose(e.scores, 0, atol=1e-12)


@each_method
def test_unknown_words_alone_are_explained_with_a_note(any_model: SingleLayer, name: str) -> None:
    e = run(any_model, "zyzzyva qwertz xylem", name)
    assert len(e.scores) == 3 and np.isfinite(e.scores).all()
    assert any("3 words are unknown" in note and "'zyzzyva'" in note for note in e.notes)


@each_method
@each_unit
def test_one_word(any_model: SingleLayer, name: str, unit: str) -> None:
    e = run(any_model, "good", name, unit=unit)
    assert [u.text for u in e.units] == ["good"] and np.isfinite(e.scores).all()
    if e.standard_errors is not None:
        assert np.isfinite(e.standard_errors).all()


@each_method
@each_unit
def test_scores_are_aligned_with_units_that_slice_the_text(
    model: SingleLayer, texts: list, name: str, unit: str
) -> None:
    for text, e in zip(texts, run(model, texts, name, unit=unit), strict=True):
        segments = (text,) if isinstance(text, str) else text
        assert e.scores.shape == (len(e.units),) and e.unit == unit
        assert e.standard_errors is None or e.standard_errors.shape == e.scores.shape
        for u in e.units:
            forms = {segments[u.segment][a:b].lower() for a, b in u.spans}
            assert forms == {u.text.lower()}
        spans = sorted((u.segment, *span) for u in e.units for span in u.spans)
        words = model.tokens([text])[0].words
        assert spans == [(w.segment, w.start, w.end) for w in words]  # every word, each once


@each_method
def test_words_and_tokens_are_the_same_units_where_every_word_is_one_token(
    model: SingleLayer, texts: list, name: str
) -> None:
    for word, token in zip(
        run(model, texts, name), run(model, texts, name, unit="token"), strict=True
    ):
        same(word, token)


@each_method
def test_the_same_word_in_both_texts_of_a_pair_is_two_units(model: SingleLayer, name: str) -> None:
    e = run(model, ("the plot is fresh", "the plot is dull"), name)
    assert [(u.segment, u.text) for u in e.units] == [
        (0, "the"),
        (0, "plot"),
        (0, "is"),
        (0, "fresh"),
        (1, "the"),
        (1, "plot"),
        (1, "is"),
        (1, "dull"),
    ]


@each_method
def test_special_tokens_are_kept_apart(make: Callable[..., SingleLayer], name: str) -> None:
    row_wise = issubclass(METHODS[name], TokenMethod)
    for padding in ("masked", "attends"):
        for text, specials in (
            ("good film", ["<cls>"]),
            (("good film", "slow plot"), ["<cls>", "<sep>"]),
        ):
            e = run(make(padding=padding), text, name)
            padded = (
                padding == "attends" and name != "integrated-gradients"
            )  # there, padding does not move
            found = [s.text.removesuffix(" (sink)") for s in e.specials]
            assert found == (specials + ["padding"] * padded if row_wise else [])
            assert not any(u.text in ("<cls>", "<sep>", "padding") for u in e.units)


@pytest.mark.parametrize("name", ["attention-mean", "attention-head"])
def test_attention_of_words_and_special_tokens_is_a_distribution(
    any_model: SingleLayer, texts: list, name: str
) -> None:
    """A sink is apart: the others are a distribution without it."""
    for sink in ("apart", "kept"):
        for e in run(any_model, texts, name, sink=sink):
            assert (e.scores >= 0).all()
            others = sum(s.score for s in e.specials if not s.text.endswith(" (sink)"))
            assert e.scores.sum() + others == pytest.approx(1, abs=1e-6)


def test_attention_methods_read_the_trace(any_model: SingleLayer, texts: list) -> None:
    for text in texts:
        (tokens,) = any_model.tokens([text])
        heads = (
            any_model.trace([tokens])
            .attention[0][0, :, 0, : len(tokens)]
            .detach()
            .numpy()[:, ~tokens.special]
        )
        np.testing.assert_allclose(
            run(any_model, text, "attention-mean", sink="kept").scores, heads.mean(0), atol=1e-6
        )
        np.testing.assert_allclose(
            run(any_model, text, "attention-max", sink="kept").scores, heads.max(0), atol=1e-6
        )
        for i in range(3):
            found = run(any_model, text, "attention-head", head=i, sink="kept").scores
            np.testing.assert_allclose(found, heads[i], atol=1e-6)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_on_padding_is_reported(make: Callable[..., SingleLayer], name: str) -> None:
    model = make(padding="attends")
    e = run(model, "good film", name)
    weights = model.trace(model.tokens(["good film"])).attention[0].detach().numpy()[0, :, 0]
    assert e.facts["padding_attention"] == pytest.approx(weights[:, 3:].sum(1).mean())
    assert any("padding" in note for note in e.notes)
    assert "padding_attention" not in run(make(), "good film", name).facts


@each_method
def test_a_label_by_name_or_index_or_the_predicted_one(
    any_model: SingleLayer, texts: list, name: str
) -> None:
    by_name, by_index = (
        run(any_model, texts, name, label="positive"),
        run(any_model, texts, name, label=1),
    )
    for one, other in zip(by_name, by_index, strict=True):
        assert one.label == "positive"
        same(one, other)
    predicted = [any_model.labels[i] for i in any_model(texts).argmax(1)]
    assert [e.label for e in run(any_model, texts, name)] == predicted


@pytest.mark.parametrize("name", [n for n in MEASURING if METHODS[n].signed])
def test_the_label_decides_the_sign(model: SingleLayer, name: str) -> None:
    """With two labels whose rows of W_l are opposite, scores for one are minus the scores for the
    other."""
    network = Network(model.shape)
    network.load_state_dict(model.network.state_dict())
    network.W_l.data[0] = -network.W_l.data[1]
    opposite = SingleLayer(network.double(), model.tokenizer, model.labels)
    for_it, against = (run(opposite, "the film was good", name, label=i) for i in (0, 1))
    np.testing.assert_allclose(for_it.scores, -against.scores, atol=1e-9)
    assert np.abs(for_it.scores).max() > 1e-3


@each_method
def test_unsigned_methods_have_no_negative_scores(
    model: SingleLayer, texts: list, name: str
) -> None:
    for e in run(model, texts, name):
        assert e.signed == METHODS[name].signed
        assert (
            e.signed or name == "effective" or (e.scores >= 0).all()
        )  # effective attention is no attention


@each_method
@each_unit
def test_json_gives_back_the_explanation(
    model: SingleLayer, texts: list, name: str, unit: str
) -> None:
    for e in run(model, texts, name, unit=unit, seed=3):
        again = Explanation.from_json(e.to_json())
        assert again.to_dict() == e.to_dict()
        assert (
            again.document == e.document and again.units == e.units and again.specials == e.specials
        )
        assert (again.scores == e.scores).all() and again.scores.dtype == e.scores.dtype
        for part, values in e.parts.items():
            assert values.shape == e.scores.shape and (again.parts[part] == values).all()
        assert again.notes == e.notes and again.settings == e.settings


@each_method
def test_an_explanation_says_where_it_comes_from(
    model: SingleLayer, texts: list, name: str
) -> None:
    e = run(model, texts[0], name, seed=9)
    method = METHODS[name](**SMALL.get(name, {}))
    assert (e.method, e.seed, e.model, e.revision) == (name, 9, model.name, model.revision)
    expected = asdict(method)
    used = {"at": "lookup", "output": "log-odds"}  # where the settings leave it to the model
    assert e.settings == expected | {key: used[key] for key in used if key in expected}
    assert e.removal == ("replace" if "removal" in e.settings else None)
    assert e.seconds > 0 and set(e.probabilities) == set(model.labels)
    assert sum(e.probabilities.values()) == pytest.approx(1)
    assert list(e.probabilities.values()) == pytest.approx(model.predict([texts[0]])[0].tolist())


@pytest.mark.parametrize("removal", ["replace", "delete", "hide"])
@pytest.mark.parametrize("name", ["occlusion", "lime", "shapley", "slalom"])
def test_an_explanation_names_how_words_were_removed(
    model: SingleLayer, texts: list, name: str, removal: str
) -> None:
    found = run(model, texts[0], name, removal=removal)
    assert found.removal == removal
    assert (removal == "replace") == np.allclose(found.scores, run(model, texts[0], name).scores)


@pytest.mark.parametrize(
    ("name", "settings", "passes"),
    [
        ("attention-mean", {}, 2),
        ("gradient-input", {}, 2),
        ("integrated-gradients", {"steps": 7}, 9),
        ("occlusion", {}, 8),
        ("lime", {"samples": 100}, 64),
        ("lime", {"samples": 20_000, "sampling": "lime"}, 64),
        ("shapley", {"samples": 100}, 64),
        ("shapley", {"samples": 20_000, "estimator": "permutation"}, 64),
        ("anchors", {}, 64),
        ("efficient", {}, 4),
        ("efficient", {"level": "prediction", "layer": 0}, 5),
        ("random", {}, 1),
    ],
)
def test_forward_passes_are_counted(
    model: SingleLayer, name: str, settings: dict, passes: int
) -> None:
    """Seven words, six of them different; the output for the whole document counts, too."""
    assert (
        heed.explain(model, "the film was good , the end", name, **settings).forward_passes
        == passes
    )


def test_integrated_gradients_run_no_pass_that_they_do_not_report(
    model: SingleLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    traced = SingleLayer.traced

    def watched(self: Any, inputs: Any, *arguments: Any) -> Any:
        passes.extend(inputs.ids)
        return traced(self, inputs, *arguments)

    monkeypatch.setattr(SingleLayer, "traced", watched)
    e = heed.explain(model, "the film was good , the end", "integrated-gradients", steps=7)
    assert len(passes) + 1 == e.forward_passes == 9  # and the prediction


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many outputs each door of any single-layer classifier or transformer was asked for.

    What a door asks of another door to do its own work is not counted.
    """
    outputs: Counter[str] = Counter()
    inside = []

    def watch(cls: type, door: str, count: Callable[..., int]) -> None:
        original = getattr(cls, door)

        def watched(self: Any, *args: Any, **options: Any) -> Any:
            inside.append(door)
            try:
                result = original(self, *args, **options)
            finally:
                inside.pop()
            if not inside:
                outputs[door] += count(result)
            return result

        monkeypatch.setattr(cls, door, watched)

    for cls in (SingleLayer, Transformer):
        watch(cls, "logits", len)
        watch(cls, "score", lambda tables: sum(len(table) for table in tables))
        watch(cls, "trace", lambda trace: trace.logits[..., 0].numel())
        watch(cls, "gradient", len)
        watch(cls, "ratios", lambda _: 1)
        watch(cls, "embeddings", lambda _: 0)  # they are looked up
    return outputs


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "gradient-input": [{"attention": "fixed"}, {"head": 1}],
    "lime": [{"head": 1}, {"sampling": "lime"}],
    "shapley": [{"estimator": "permutation"}],
    "lime-exact": [{"output": "logit"}, {"head": 1}],
    "efficient": [{"level": "prediction"}, {"level": "layer"}],
}


@each_method
@pytest.mark.parametrize("text", ["good", "the film was good , the end", " ".join(WORDS[:14])])
def test_no_method_asks_for_more_outputs_than_it_reports(
    model: SingleLayer, asked: Counter[str], name: str, text: str
) -> None:
    for settings in ({}, *VARIANTS.get(name, [])):
        asked.clear()
        e = heed.explain(model, text, name, **(SMALL.get(name, {}) | settings))
        assert 0 < asked.total() <= e.forward_passes
        held_or_solved = settings.get("attention") == "fixed" or METHODS[name].only_by_name
        assert held_or_solved or asked.total() == e.forward_passes


@pytest.mark.parametrize("name", TRANSFORMED)
def test_no_method_asks_a_transformer_for_more_outputs_than_it_reports(
    asked: Counter[str], name: str
) -> None:
    model = Transformer(network("bert"), tokenizer(), "bert")
    asked.clear()  # of the probe at load
    e = run(model, "the film was very good", name)
    assert 0 < asked.total() <= e.forward_passes


@each_method
@pytest.mark.parametrize("words", [1, 2, 3, 7, 14])
def test_a_method_asks_for_no_more_different_outputs_than_it_announces(
    model: SingleLayer, asked: Counter[str], name: str, words: int
) -> None:
    """What is expected of a text decides whether a method is quick enough to be run unasked."""
    text = " ".join(dict.fromkeys(WORDS[:words]))
    different: set[bytes] = set()
    score = SingleLayer.score

    def watched(self: Any, tokens: Any, keep: Any, *args: Any) -> Any:
        different.update(row.tobytes() for table in keep for row in table)
        return score(self, tokens, keep, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SingleLayer, "score", watched)
        method = METHODS[name](**SMALL.get(name, {}))
        method.explain(model, [text])
    # flip sets of few words are sought under each way to remove words
    ways = 3 if name == "flip" else 1
    assert len(different) <= method.evaluations(words) <= ways * 2**words or not different


@each_method
def test_a_text_that_is_too_long_is_explained_with_a_note(
    any_model: SingleLayer, name: str
) -> None:
    text = " ".join(["good", "film"] * 600)
    e = run(any_model, text, name)
    assert any(
        "first 40 of 1,200 words" in note and "1,160 were cut off" in note for note in e.notes
    )
    assert max(b for u in e.units for _, b in u.spans) <= 200


@each_method
def test_a_plain_text_has_no_reading_notes(model: SingleLayer, name: str) -> None:
    notes = run(model, "the film was good", name).notes
    assert not any("cut off" in note or "unknown" in note for note in notes)


@each_method
@pytest.mark.parametrize("text", ["", "   \n", ("", " "), "\x00\x1b"])
def test_a_text_without_words_is_refused(model: SingleLayer, name: str, text: Any) -> None:
    with pytest.raises(InputError, match="nothing to explain"):
        run(model, text, name)


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_that_the_model_does_not_offer_is_refused(model: SingleLayer, name: str) -> None:
    bare = SingleLayer(model.network, model.tokenizer, model.labels)
    bare.offers = frozenset()  # type: ignore[misc]
    if METHODS[name]().needs:
        with pytest.raises(NotApplicable, match=f"{name} (needs|has a closed form)"):
            run(bare, "good film", name)
    else:
        assert run(bare, "good film", name).method == name


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_is_a_frozen_value_that_says_what_it_is(name: str) -> None:
    method = METHODS[name]()
    assert method == METHODS[name]() and hash(method) == hash(METHODS[name]())
    assert method.name == name and method.summary and "\n" not in method.summary
    with pytest.raises(AttributeError):
        method.anything = 1  # type: ignore[attr-defined]


@each_method
def test_explaining_does_not_change_the_model(model: SingleLayer, name: str) -> None:
    before = model(["good film"]).copy(), model.revision
    run(model, "good film", name)
    assert (model(["good film"]) == before[0]).all() and model.revision == before[1]
    assert not any(p.requires_grad or p.grad is not None for p in model.network.parameters())
