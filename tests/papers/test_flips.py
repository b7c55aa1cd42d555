"""Flip sets beside a literal search: write the text without some words, and ask the model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

import heed
from heed.methods import flip
from heed.methods.flip import subsets_of
from heed.models.single_layer import SingleLayer

TEXTS = (
    "the film is good and the plot",
    "awful",
    "the music was not very good but fresh",
    "a dull scene was cold and slow",
    "great ending fine actor",
    "bad plot bad film bad music",
)
SEEDS = range(4)


def without(text: str, removed: tuple[int, ...], removal: str) -> str:
    """The text as it reads when these words are gone; the tiny models know no zyzzyva."""
    words = text.split()
    if removal == "delete":
        return " ".join(w for i, w in enumerate(words) if i not in removed)
    return " ".join("zyzzyva" if i in removed else w for i, w in enumerate(words))


def literal(
    model: SingleLayer, text: str, label: str, removal: str
) -> tuple[list[tuple[int, ...]], str]:
    """All smallest sets whose removal turns the prediction; by the book, one text at a time."""
    n = len(text.split())

    def predicted(removed: tuple[int, ...]) -> str:
        return model.labels[int(model([without(text, removed, removal)])[0].argmax())]

    before = predicted(())
    for size in range(1, n + 1):
        found = []
        for removed in combinations(range(n), size):
            if removal == "delete" and size == n:  # an empty text has no words to be read
                continue
            after = predicted(removed)
            if after != before if before == label else after == label:
                found.append(removed)
        if found:
            return found, before
    return [], before


@pytest.mark.parametrize("removal", ["replace", "delete"])
def test_no_smaller_set_turns_the_prediction(
    make: Callable[..., SingleLayer], removal: str
) -> None:
    turned = 0
    for seed in SEEDS:
        model = make(labels=3, seed=seed)
        for text in TEXTS:
            for label in model.labels:
                turned += matches(model, text, label, removal)
    assert turned > 20


def matches(model: SingleLayer, text: str, label: str, removal: str) -> bool:
    """Whether some set turns the prediction; if so, that the method finds the best of them."""
    e = heed.explain(model, text, "flip", label=label, removal=removal)
    sets, before = literal(model, text, label, removal)
    chosen = tuple(np.flatnonzero(e.scores).tolist())
    if not sets:
        # heed reads a filler where no word is left, which a text cannot say
        assert not chosen or (removal == "delete" and len(chosen) == len(text.split()))
        assert e.facts["size"] == len(chosen)
        return False
    assert chosen in sets
    assert e.facts["size"] == e.facts["least"] == len(chosen)
    after = {}
    for s in sets:
        after[s] = model.predict([without(text, s, removal)])[0][model.label(label)]
    farthest = min(after.values()) if before == label else max(after.values())
    assert after[chosen] == pytest.approx(farthest)
    assert e.facts["probability_after"] == pytest.approx(farthest)
    return True


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("samples", [2, 30, 60, 2000])
def test_a_greedy_set_turns_the_prediction_within_its_bounds(
    make: Callable[..., SingleLayer], seed: int, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(labels=2, seed=seed)
    monkeypatch.setattr(flip, "EXACT", 1)  # as if these few words were many
    for text in (text for text in TEXTS if " " in text):
        e = heed.explain(model, text, "flip", samples=samples)
        sets, before = literal(model, text, e.label, "replace")
        chosen = tuple(np.flatnonzero(e.scores).tolist())
        fewest = len(sets[0]) if sets else len(text.split()) + 1
        assert e.facts["least"] <= fewest
        n = len(text.split())
        # the other ways to remove words take their own
        assert e.forward_passes <= flip.Flip(samples=samples).evaluations(n) + 2 * 2**n
        if not chosen:
            assert any("No removal that was tried" in note for note in e.notes)
            continue
        assert fewest <= len(chosen)
        assert model.labels[int(model([without(text, chosen, "replace")])[0].argmax())] != before
        if not any("not be needed" in note for note in e.notes):
            for word in chosen if len(chosen) > 1 else ():  # none can be put back
                rest = tuple(i for i in chosen if i != word)
                kept = model([without(text, rest, "replace")])[0].argmax()
                assert model.labels[int(kept)] == before
        if samples == 2000:
            assert e.facts["least"] == min(3, fewest)  # all pairs were tried


def test_the_other_ways_to_remove_words_are_told_for_short_texts(model: SingleLayer) -> None:
    for text in TEXTS[:3]:
        e = heed.explain(model, text, "flip", removal="delete")
        for way in ("replace", "hide"):
            other = heed.explain(model, text, "flip", removal=way)
            assert e.facts[f"size_{way}"] == other.facts["size"]
        assert "size_delete" not in e.facts
    assert "size_hide" not in heed.explain(model, " ".join(TEXTS[:2] * 2), "flip").facts


def test_subsets_of_a_size() -> None:
    rows = subsets_of(5, 2)
    assert [tuple(np.flatnonzero(row)) for row in rows] == list(combinations(range(5), 2))


def test_the_sentence_says_what_is_known() -> None:
    """On the bundled model: reviews that turn by one word, by two, by three and by none."""
    texts = [
        "a great film",
        "it is not boring",
        "a dull plot and an awful , boring cast , but great music",
        "not a bad film",
    ]
    one, two, three, none = (e.notes[-1] for e in heed.explain(heed.load(), texts, "flip"))
    turns = "turns the prediction from {} to {} (probability of {}: "
    assert one.startswith(f"Removing “great” {turns.format('positive', 'negative', 'positive')}")
    negative = turns.format("negative", "positive", "negative")
    assert two.startswith(f"Removing “not” and “boring” {negative}")
    assert two.endswith("; no single word does.")
    assert three.startswith(f"Removing “dull”, “awful” and “boring” {negative}")
    assert three.endswith("; no fewer words do.")
    assert none == "No removal of words turns the prediction from negative: all 15 were tried."


def test_another_label_has_to_come_about() -> None:
    e = heed.explain(heed.load(), "it is not boring", "flip", label="positive")
    assert [u.text for u, s in zip(e.units, e.scores, strict=True) if s] == ["not", "boring"]
    assert e.facts["probability_after"] > 0.5 > e.probabilities["positive"]


def test_labels_that_do_not_exclude_each_other_turn_by_themselves(
    make: Callable[..., SingleLayer],
) -> None:
    like = make(labels=3)
    model = SingleLayer(like.network, like.tokenizer, like.labels)
    model.exclusive = False  # type: ignore[misc]
    for text in TEXTS:
        for label in model.labels:
            e = heed.explain(model, text, "flip", label=label)
            if e.facts["size"]:
                after = e.facts["probability_after"]
                assert (e.probabilities[label] > 0.5) != (after > 0.5)
                assert f"not {label}" in e.notes[-1]


def test_a_pair_names_the_text_of_a_word(model: SingleLayer) -> None:
    notes = [
        heed.explain(make_pair, (a, b), "flip").notes[-1]
        for make_pair in (model,)
        for a, b in (("good film", "bad plot"), ("awful", "fine music was great"))
    ]
    assert all("(text " in note or note.startswith("No removal") for note in notes)
