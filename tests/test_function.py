"""Any function from texts to outputs is a model for the methods that only remove words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import heed
from heed.errors import HeedError, InputError, NotApplicable, UnknownName
from heed.methods import CHANCE, METHODS
from heed.models.single_layer import SingleLayer

REMOVING = [name for name, cls in METHODS.items() if not cls().needs and cls not in CHANCE]
NUMBERS = {"good": 2.0, "fun": 1.0, "bad": -2.0}


def positive(texts: list[str]) -> np.ndarray:
    """The probability of the second label, by the sum of what the words say."""
    total = np.array(
        [sum(NUMBERS.get(word, 0.0) for word in text.lower().split()) for text in texts]
    )
    return 1 / (1 + np.exp(-total))


def two(texts: list[str]) -> np.ndarray:
    return np.stack([1 - positive(texts), positive(texts)], 1)


def overlap(pairs: list[tuple[str, str]]) -> np.ndarray:
    """The more words two texts share, the closer they are."""
    shared = [len(set(a.split()) & set(b.split())) for a, b in pairs]
    return np.array([[1 / (1 + n), n / (1 + n)] for n in shared])


def mirror(texts: list[str]) -> np.ndarray:
    """Two labels, and a record of what was asked in `mirror.seen`."""
    mirror.seen += texts  # type: ignore[attr-defined]
    return np.full((len(texts), 2), 0.5)


def asked(text: Any, keep: list[list[bool]], **options: Any) -> list[str]:
    """The texts that the function gets for some choices of words."""
    mirror.seen = []  # type: ignore[attr-defined]
    model = heed.Function(mirror)
    model.score(model.tokens([text]), [np.array(keep)], **options)
    return mirror.seen  # type: ignore[attr-defined]


# As a model


def test_a_function_is_explained(model: SingleLayer) -> None:
    e = heed.explain(two, "a good film , bad plot", "occlusion", output="log-odds")
    assert [u.text for u in e.units] == ["a", "good", "film", ",", "bad", "plot"]
    assert (e.model, e.revision, e.removal, e.label) == ("two", "unknown", "delete", "0")
    e = heed.explain(two, "a good film , bad plot", "occlusion", label=1, output="log-odds")
    np.testing.assert_allclose(e.scores, [0, 2, 0, 0, -2, 0], atol=1e-9)
    assert e.probabilities == pytest.approx({"0": 0.5, "1": 0.5})
    assert e.notes == ()


@pytest.mark.parametrize("name", REMOVING)
@pytest.mark.parametrize(
    "text", ["the film is good and the plot is great", "do n't see it . it 's slow !"]
)
def test_a_model_in_a_function_is_the_model(model: SingleLayer, name: str, text: str) -> None:
    """The same explanation through texts as through tokens, when words are deleted."""
    direct = heed.explain(model, text, name, removal="delete")
    wrapped = heed.explain(heed.Function(model.predict, model.labels), text, name)
    assert (wrapped.units, wrapped.label, wrapped.removal) == (direct.units, direct.label, "delete")
    if (
        "output" in direct.settings
    ):  # log p instead of a logit: the same up to what is added to both labels
        direct = heed.explain(model, text, name, removal="delete", output="log-odds")
        wrapped = heed.explain(
            heed.Function(model.predict, model.labels), text, name, output="log-odds"
        )
    np.testing.assert_allclose(wrapped.scores, direct.scores, atol=1e-5)
    through_logits = heed.explain(heed.Function(model, model.labels, output="logit"), text, name)
    np.testing.assert_allclose(
        through_logits.scores, heed.explain(model, text, name, removal="delete").scores, atol=1e-5
    )
    assert through_logits.probabilities == pytest.approx(direct.probabilities)


def test_replaced_words_are_unknown_to_a_model_that_does_not_know_the_replacement(
    model: SingleLayer,
) -> None:
    text = "the film is good and the plot is great"
    wrapped = heed.Function(model, model.labels, output="logit", replacement="zyzzyva")
    for name in REMOVING:
        one, other = (
            heed.explain(model, text, name, removal="replace"),
            heed.explain(wrapped, text, name, removal="replace"),
        )
        np.testing.assert_allclose(other.scores, one.scores, atol=1e-5)


def test_compare_and_audit_take_a_function() -> None:
    found = heed.compare(two, "a good film , bad plot")
    assert found.methods == ["occlusion", "lime"]
    assert found.left_out["attention-mean"].startswith("attention-mean needs attention, which")
    unasked = [name for name in REMOVING if not METHODS[name].only_by_name]
    assert heed.compare(two, "a good film , bad plot", "all").methods == [*unasked, "random"]
    audit = heed.audit(two, ["a good film", "a bad plot"] * 5, methods="occlusion", examples=1)
    assert audit.facts["model"] == "two" and audit.facts["accuracy"] is None
    outcomes = {v.claim.id: v.outcome for v in audit.verdicts}
    assert (
        outcomes["agrees-gradient"] == "not applicable" and outcomes["removes"] != "not applicable"
    )


def test_methods_that_look_inside_are_refused() -> None:
    for name, cls in METHODS.items():
        if cls().needs:
            with pytest.raises(
                NotApplicable,
                match=rf"{name} (needs .* which two does not offer|has a closed form)",
            ):
                heed.explain(two, "good film", name)
    model = heed.Function(two)
    with pytest.raises(NotApplicable, match="plain function"):
        model.gradient(model.tokens(["good film"]), [0])
    with pytest.raises(UnknownName, match="'hide'"):
        heed.explain(two, "good film", "occlusion", removal="hide")


def test_what_is_no_model_is_refused() -> None:
    for wrong in (None, 3, "single-layer-imdb", [two]):
        for ask in (heed.explain, heed.compare):
            with pytest.raises(InputError, match=r"A model is what heed\.load returns, a pair"):
                ask(wrong, "good film")  # type: ignore[operator]
    with pytest.raises(InputError, match="A function"):
        heed.Function("two")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "name"),
    [(two, "two"), (partial(two), "partial"), (lambda texts: two(texts), "<lambda>")],
    ids=["def", "partial", "lambda"],
)
def test_it_is_called_what_it_is_called(function: Callable, name: str) -> None:
    assert heed.explain(function, "good film", "occlusion").model == name
    assert heed.Function(function, name="mine", revision="v2").name == "mine"


# Texts


def test_deleted_words_leave_one_blank() -> None:
    text = " Well-made,  do n't miss it!\n"  # Well - made , do n't miss it !
    cases = {
        (): text,
        (1,): " Well made,  do n't miss it!\n",
        (0,): "-made,  do n't miss it!\n",
        (0, 1, 2): ",  do n't miss it!\n",
        (3,): " Well-made do n't miss it!\n",
        (8,): " Well-made,  do n't miss it",
        (4, 5, 6): " Well-made, it!\n",
        tuple(range(9)): "",
    }
    keep = [[i not in gone for i in range(9)] for gone in cases]
    assert sorted(asked(text, keep)) == sorted(cases.values())


def test_replaced_words_leave_the_rest_as_it_is() -> None:
    found = asked(
        "Well-made,\n really", [[True, False, True, True, False], [False] * 5], removal="replace"
    )
    assert sorted(found) == sorted(["Well[UNK]made,\n [UNK]", "[UNK][UNK][UNK][UNK]\n [UNK]"])


def test_words_are_taken_as_they_are_written() -> None:
    """A function may tell capitals apart, so repeats are repeats only if they are spelt the same.
    A function may tell capitals apart, so repeats are repeats only if they are spelt the same."""
    e = heed.explain(two, "Good good good FILM film", "lime", samples=20)
    assert [(u.text, len(u.spans)) for u in e.units] == [
        ("Good", 1),
        ("good", 2),
        ("FILM", 1),
        ("film", 1),
    ]
    assert e.notes == ("All 16 subsets of words were evaluated: nothing was sampled.",)


def test_equal_texts_are_evaluated_once() -> None:
    seen = asked(
        "very very good",
        [[True, False, True], [False, True, True], [True, True, True], [True, True, True]],
    )
    assert sorted(seen) == ["very good", "very very good"]


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_batches_are_bounded_and_change_nothing(batch: int) -> None:
    sizes = []

    def counted(texts: list[str]) -> np.ndarray:
        sizes.append(len(texts))
        return two(texts)

    text = "a good film , bad plot , fun end"
    found = heed.explain(
        heed.Function(counted, batch=batch), [text, "good fun"], "lime", samples=60
    )
    assert max(sizes) <= batch
    for e, alone in zip(found, (text, "good fun"), strict=True):
        np.testing.assert_array_equal(e.scores, heed.explain(two, alone, "lime", samples=60).scores)


def test_pairs_are_given_as_pairs() -> None:
    e = heed.explain(
        overlap, ("good film", "a good plot"), "occlusion", label=1, output="probability"
    )
    assert [(u.segment, u.text) for u in e.units] == [
        (0, "good"),
        (0, "film"),
        (1, "a"),
        (1, "good"),
        (1, "plot"),
    ]
    np.testing.assert_allclose(e.scores, [0.5, 0, 0, 0.5, 0], atol=1e-9)


def test_pairs_and_texts_are_asked_apart() -> None:
    def either(texts: list[Any]) -> np.ndarray:
        assert len({type(t) for t in texts}) == 1
        return overlap(texts) if isinstance(texts[0], tuple) else two(texts)

    pair, text = heed.explain(
        either, [("good film", "good plot"), "good film"], "occlusion", output="probability"
    )
    np.testing.assert_allclose(
        pair.scores,
        heed.explain(overlap, ("good film", "good plot"), "occlusion", output="probability").scores,
    )
    np.testing.assert_allclose(
        text.scores, heed.explain(two, "good film", "occlusion", output="probability").scores
    )


def test_a_long_text_is_read_whole() -> None:
    e = heed.explain(two, "film " * 3000 + "good", "lime", samples=10)
    assert [u.text for u in e.units] == ["film", "good"] and not any(
        "cut off" in note for note in e.notes
    )


# Outputs


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_one_column_speaks_for_the_second_label(shape: tuple) -> None:
    e = heed.explain(
        lambda texts: positive(texts).reshape(shape), "a good film", "occlusion", label=1
    )
    np.testing.assert_allclose(
        e.scores, heed.explain(two, "a good film", "occlusion", label=1).scores
    )
    logit = heed.Function(
        lambda texts: np.log(positive(texts) / (1 - positive(texts))), ["no", "yes"], output="logit"
    )
    found = heed.explain(logit, "a good film", "occlusion")
    assert found.label == "yes" and found.probabilities["yes"] == pytest.approx(
        positive(["a good film"])[0]
    )
    np.testing.assert_allclose(found.scores, [0, 2, 0], atol=1e-9)


def test_probabilities_come_back() -> None:
    texts = ["good", "bad bad bad bad", "film"]
    np.testing.assert_allclose(heed.Function(two).predict(texts), two(texts), atol=1e-12)
    certain = heed.Function(lambda t: [[0.0, 1.0]] * len(t))
    assert np.isfinite(certain(texts)).all()
    np.testing.assert_allclose(certain.predict(texts), [[0, 1]] * 3, atol=1e-11)


def test_labels_need_not_exclude_each_other() -> None:
    def topics(texts: list[str]) -> np.ndarray:
        return np.array(
            [[0.9 if "war" in t else 0.1, 0.8 if "love" in t else 0.2, 1.0] for t in texts]
        )

    model = heed.Function(topics, ["war", "love", "any"], exclusive=False)
    e = heed.explain(model, "love and war", "occlusion", label="love", output="probability")
    assert e.probabilities == pytest.approx({"war": 0.9, "love": 0.8, "any": 1.0})
    np.testing.assert_allclose(e.scores, [0.6, 0, 0], atol=1e-9)
    one = heed.Function(lambda texts: topics(texts)[:, 0], ["war"], exclusive=False)
    assert heed.explain(one, "love and war", "occlusion").label == "war"


def test_tensors_and_lists_are_outputs_too() -> None:
    for convert in (torch.tensor, np.ndarray.tolist):
        e = heed.explain(lambda texts, c=convert: c(two(texts)), "a good film", "occlusion")
        np.testing.assert_allclose(e.scores, heed.explain(two, "a good film", "occlusion").scores)


def test_labels_are_named_or_numbered() -> None:
    assert heed.explain(heed.Function(two, ["no", "yes"]), "good", "occlusion").label == "yes"
    assert heed.explain(two, "good", "occlusion", label="0").label == "0"  # before any other call
    with pytest.raises(InputError, match="no label 2"):
        heed.explain(two, "good", "occlusion", label=2)
    for wrong in ([], ["a", "a"], [1, 2]):
        with pytest.raises(InputError, match="different names"):
            heed.Function(two, wrong)

    def broken(texts: list[str]) -> np.ndarray:
        raise KeyError("no")

    with pytest.raises(InputError, match="name them"):
        heed.explain(broken, "good", "occlusion", label=1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda n: [{"label": "yes"}] * n, "must return an array of numbers"),
        (lambda n: [[0.5, 0.5]] * (n - 1) + [[1.0]], "must return an array of numbers"),
        (lambda n: None, "got the shape"),
        (lambda n: 0.5, "got the shape"),
        (lambda n: np.zeros((n, 2, 2)), "got the shape"),
        (lambda n: np.full((n + 1, 2), 0.5), "got the shape"),
        (lambda n: np.zeros((n, 0)), "got the shape"),
        (lambda n: np.full((n, 2), np.nan), "finite numbers, got nan"),
        (lambda n: np.full((n, 2), 0.6), "sum to 1, got 1.2"),
        (lambda n: np.tile([2.0, -1.0], (n, 1)), "must return probabilities, got -1 to 2"),
        (lambda n: np.tile([0.2, 0.3, 0.5], (n, 1)), "each of its 2 labels, got 3"),
    ],
)
def test_a_wrong_answer_gets_one_sentence(answer: Callable[[int], Any], words: str) -> None:
    def wrong(texts: list[str]) -> Any:
        return answer(len(texts))

    with pytest.raises(InputError) as caught:
        heed.explain(heed.Function(wrong, ["no", "yes"]), ["good film", "bad plot"], "occlusion")
    message = str(caught.value)
    assert words in message and "wrong" in message
    assert "\n" not in message and len(message) < 300


@pytest.mark.parametrize(
    "options", [{"output": "loss"}, {"batch": 0}, {"batch": 2.5}, {"batch": True}]
)
def test_a_wrong_option_gets_one_sentence(options: dict) -> None:
    with pytest.raises(HeedError):
        heed.Function(two, **options)


def test_errors_of_the_function_are_its_own() -> None:
    def failing(texts: list[str]) -> np.ndarray:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        heed.explain(failing, "good film")
