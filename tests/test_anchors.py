"""Rules of functions whose precision is known, and the bounds behind them."""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import heed
from heed.errors import InputError
from heed.methods import Anchors, Explanation, anchors, make_method
from heed.models.single_layer import SingleLayer

FILL = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
SHORT = "a good film and a fun plot"  # few enough words to evaluate all texts
LONG = "a good film and a fun plot , " + " ".join(FILL)


def when(rule: Callable[[set[str]], bool]) -> Callable[[list[str]], list[list[float]]]:
    """A function that is positive (label 1) where the rule holds for the words of a text."""

    def positive(texts: list[str]) -> list[list[float]]:
        return [[0.1, 0.9] if rule(set(text.split())) else [0.8, 0.2] for text in texts]

    return positive


def words(e: Explanation) -> set[str]:
    return {u.text for u, s in zip(e.units, e.scores, strict=True) if s > 0}


def score(e: Explanation) -> dict[str, float]:
    return {u.text: s for u, s in zip(e.units, e.scores.tolist(), strict=True) if s > 0}


both = when(lambda w: {"good", "fun"} <= w)
either = when(lambda w: bool({"good", "fun"} & w))
odd = when(lambda w: ("good" in w) != ("fun" in w))
always = when(lambda w: True)


# Known rules, by all texts and by samples

each_text = pytest.mark.parametrize("text", [SHORT, LONG], ids=["exact", "sampled"])


@each_text
def test_and(text: str) -> None:
    e = heed.explain(both, text, "anchors")
    assert e.label == "1" and words(e) == {"good", "fun"}
    assert (
        e.facts["precision"] == 1
        and e.facts["precision_low"] >= 0.95
        and e.facts["precision_high"] == 1
    )
    assert e.facts["coverage"] == 0.25 and e.facts["words"] == 2
    assert score(e) == {"good": 1, "fun": 1}  # without either, nothing is left of the precision
    assert not e.signed
    assert e.notes[0].startswith("Rule: “good” and “fun” → 1 in 100.0 %") and len(e.notes) == 1


@each_text
def test_or(text: str) -> None:
    e = heed.explain(either, text, "anchors")
    (one,) = words(e)
    assert one in ("good", "fun") and e.facts["precision"] == 1 and e.facts["coverage"] == 0.5
    assert score(e)[one] == pytest.approx(
        0.5, abs=0 if text == SHORT else 0.1
    )  # the other word is there half the time
    assert "of the texts that keep it and lose others" in e.notes[0]


@each_text
def test_exclusive_or_of_a_text_that_has_both(text: str) -> None:
    """Neither word alone tells anything; the beam must keep one of them all the same."""
    e = heed.explain(odd, text, "anchors", beam=20)
    assert e.label == "0" and words(e) == {"good", "fun"}
    assert e.facts["precision"] == 1 and score(e) == {"good": 1, "fun": 1}


def test_more_words_than_are_allowed() -> None:
    for text in (SHORT, LONG):
        e = heed.explain(both, text, "anchors", most=1)
        (one,) = words(e)
        assert one in ("good", "fun") and e.facts["precision"] == pytest.approx(0.5, abs=0.07)
        assert e.notes[1] == "No rule of at most 1 word was found that reaches a precision of 95 %."


@each_text
def test_no_word_is_needed(text: str) -> None:
    e = heed.explain(always, text, "anchors")
    assert not e.scores.any() and not e.standard_errors.any()
    assert (e.facts["precision"], e.facts["coverage"], e.facts["words"]) == (1, 1, 0)
    assert (
        "no word is needed → 1 in 100.0 % of the texts that lose words" in e.notes[0]
        and len(e.notes) == 1
    )


@each_text
def test_a_label_that_is_not_predicted(text: str) -> None:
    e = heed.explain(both, text, "anchors", label=0)
    assert words(e) == set() and e.facts["precision"] == pytest.approx(0.75, abs=0.05)
    assert (
        e.notes[-1]
        == "The whole text does not get this label: the rule is about texts that lost some words."
    )
    e = heed.explain(always, text, "anchors", label=0)
    assert (e.facts["precision"], e.facts["precision_low"], e.facts["words"]) == (0, 0, 0)
    assert any("No rule of at most 6 words" in note for note in e.notes)


@pytest.mark.parametrize("text", [SHORT, LONG])
def test_labels_that_do_not_exclude_each_other_keep_their_side(text: str) -> None:
    def topics(texts: list[str]) -> list[list[float]]:
        return [[0.9 if "fun" in t else 0.2, 0.6, 0.1 if "good" in t else 0.7] for t in texts]

    model = heed.Function(topics, ["joy", "any", "war"], exclusive=False)
    joy, any_, war = (heed.explain(model, text, "anchors", label=i) for i in range(3))
    assert words(joy) == {"fun"} and "→ joy in" in joy.notes[0]
    assert words(any_) == set() and "→ any in" in any_.notes[0]
    assert words(war) == {"good"} and "→ not war in" in war.notes[0]


def test_repeated_words_are_one_condition_or_several() -> None:
    twice = when(lambda w: "good" in w)
    text = "good film good plot"
    together = heed.explain(twice, text, "anchors")
    assert [(u.text, len(u.spans)) for u in together.units] == [
        ("good", 2),
        ("film", 1),
        ("plot", 1),
    ]
    assert together.facts["precision"] == 1 and together.scores.tolist() == [1, 0, 0]
    apart = heed.explain(twice, text, "anchors", repeats="apart")
    assert len(apart.units) == 4 and apart.scores.tolist() == [
        0.5,
        0,
        0,
        0,
    ]  # the other one is there half the time


def test_words_of_both_texts_of_a_pair_are_told_apart() -> None:
    e = heed.explain(
        lambda pairs: [[0.0, 1.0] if "good" in b else [1.0, 0.0] for _, b in pairs],
        ("good film", "good plot"),
        "anchors",
    )
    assert "“good” (text 2) → 1" in e.notes[0] and e.scores.tolist() == [0, 0, 1, 0]


# Against the definition, by going over all texts


def table(d: int, seed: int) -> Callable[[set[str]], bool]:
    """A noisy function of d words: mostly whether the first two are there, with exceptions for one
    text in twenty."""
    flip = np.random.default_rng(seed).random(2**d) < 0.05
    flip[-1] = False
    names = [f"w{i}" for i in range(d)]

    def holds(present: set[str]) -> bool:
        index = sum(1 << i for i, name in enumerate(names) if name in present)
        return ({"w0", "w1"} <= present) != flip[index]

    return holds


def all_texts(d: int) -> list[tuple[bool, ...]]:
    return list(itertools.product([False, True], repeat=d))


def precision_of(rule: set[int], holds: Callable[[set[str]], bool], d: int) -> float:
    kept = [t for t in all_texts(d) if all(t[i] for i in rule)]
    return float(np.mean([holds({f"w{i}" for i in range(d) if t[i]}) for t in kept]))


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_all_rules_is_the_best_by_definition(seed: int) -> None:
    d, holds = 6, table(6, seed)
    text = " ".join(f"w{i}" for i in range(d))
    for asked, most in ((0.9, 6), (0.99, 6), (0.99, 2)):
        e = heed.explain(when(holds), text, "anchors", precision=asked, most=most)
        rules = [set(r) for k in range(most + 1) for r in itertools.combinations(range(d), k)]
        precisions = [precision_of(r, holds, d) for r in rules]
        reach = [(len(r), -p) for r, p in zip(rules, precisions, strict=True) if p >= asked]
        size, p = (
            min(reach)
            if reach
            else min((-p, len(r)) for r, p in zip(rules, precisions, strict=True))[::-1]
        )
        found = {int(name[1:]) for name in words(e)}
        assert (len(found), e.facts["precision"]) == pytest.approx((size, -p))
        assert e.facts["precision"] == e.facts["precision_low"] == e.facts["precision_high"]
        assert e.facts["precision"] == pytest.approx(precision_of(found, holds, d))
        assert e.forward_passes == 64
        for (
            i
        ) in found:  # precision with the rule minus precision with the rule and without this word
            rest = [t for t in all_texts(d) if not t[i] and all(t[j] for j in found - {i})]
            without = np.mean([holds({f"w{j}" for j in range(d) if t[j]}) for t in rest])
            assert score(e)[f"w{i}"] == pytest.approx(e.facts["precision"] - without)


def test_the_interval_holds_the_precision_as_often_as_it_says() -> None:
    """The rule is chosen by the search, so that an interval from its own samples would be too
    hopeful."""
    d, holds = 11, table(11, 0)
    text = " ".join(f"w{i}" for i in range(d))
    known: dict[frozenset[int], float] = {}
    cover, runs = 0, 100
    for seed in range(runs):
        e = heed.explain(when(holds), text, "anchors", samples=400, seed=seed, precision=0.93)
        rule = frozenset(int(name[1:]) for name in words(e))
        if rule not in known:
            known[rule] = precision_of(set(rule), holds, d)
        cover += e.facts["precision_low"] <= known[rule] <= e.facts["precision_high"]
        assert (
            0 <= e.facts["precision_low"] <= e.facts["precision"] <= e.facts["precision_high"] <= 1
        )
        assert e.forward_passes <= 401  # with the whole text
    assert cover >= 90  # at exactly 95 % fewer would happen once in 90 times


def test_losses_and_their_errors_are_those_of_the_words() -> None:
    d, holds = 11, table(11, 0)
    text = " ".join(f"w{i}" for i in range(d))
    exact = heed.explain(when(holds), text, "anchors", samples=4096, precision=0.85)
    assert words(exact) == {"w0", "w1"} and not exact.standard_errors.any()
    for seed in range(5):
        e = heed.explain(when(holds), text, "anchors", samples=2000, precision=0.85, seed=seed)
        assert words(e) == {"w0", "w1"}
        assert (np.abs(e.scores - exact.scores) <= 4 * e.standard_errors + 1e-12).all()
        assert (e.standard_errors[:2] > 0).all() and not e.standard_errors[2:].any()


def test_shared_texts_are_fair_draws_for_longer_rules() -> None:
    """What a candidate inherits has the law of its own texts: its words stay, others with
    probability one half."""
    rng = np.random.default_rng(0)
    root = anchors._Candidate(())
    keep = anchors.draw(rng, 40_000, 6, ())
    root.add(keep, keep[:, 1] & keep[:, 2])
    (child,) = [c for c in root.extensions() if c.rule == (2,)]
    own = anchors.draw(rng, 5_000, 6, (2,))
    child.add(own, own[:, 1] & own[:, 2])
    (grandchild,) = [c for c in child.extensions() if c.rule == (2, 1)]
    for candidate, size, share in ((child, 25_000, 0.5), (grandchild, 12_500, 1.0)):
        rows, held = candidate.texts()
        assert len(rows) == len(held) == candidate.n == pytest.approx(size, rel=0.03)
        assert held.sum() == candidate.hits and held.mean() == pytest.approx(share, abs=0.02)
        inside = np.isin(np.arange(6), candidate.rule)
        np.testing.assert_allclose(rows.mean(0), np.where(inside, 1, 0.5), atol=0.02)


# Bounds


@pytest.mark.parametrize("level", [0.5, 3.0, 14.0])
def test_kl_bounds_against_a_fine_grid(level: float) -> None:
    def kl(p: float, q: float) -> float:
        parts = ((p, q), (1 - p, 1 - q))
        return sum(a * math.log(a / b) if a else 0.0 for a, b in parts)

    grid = np.arange(1, 20_000) / 20_000
    cases = [(0, 10), (1, 10), (5, 10), (10, 10), (97, 100), (300, 1000), (999, 1000)]
    low, high = anchors.kl_bounds(
        np.array([h for h, _ in cases]), np.array([n for _, n in cases]), level
    )
    for (hits, n), a, b in zip(cases, low, high, strict=True):
        inside = [q for q in grid if n * kl(hits / n, q) <= level]
        assert a == pytest.approx(min(inside), abs=1e-4) and b == pytest.approx(
            max(inside), abs=1e-4
        )
    assert np.ravel(
        anchors.kl_bounds(np.array([0]), np.array([0]), level)
    ).tolist() == pytest.approx([0, 1], abs=1e-9)


def test_the_exact_interval_against_its_definition() -> None:
    """Its ends are where what was seen, or more extreme, has probability δ/2."""
    from scipy.stats import binom

    for hits, n, delta in ((3, 10, 0.05), (97, 100, 0.1), (1, 4, 0.5)):
        low, high = anchors.clopper_pearson(hits, n, delta)
        assert binom.sf(hits - 1, n, low) == pytest.approx(delta / 2)
        assert binom.cdf(hits, n, high) == pytest.approx(delta / 2)
    assert (
        anchors.clopper_pearson(0, 5, 0.05)[0] == 0 and anchors.clopper_pearson(5, 5, 0.05)[1] == 1
    )


def test_sums_over_supersets_against_the_definition() -> None:
    values = np.random.default_rng(1).random(32) < 0.4
    expected = [sum(values[t] for t in range(32) if t & s == s) for s in range(32)]
    assert anchors.sums_over_supersets(values).tolist() == expected
    assert anchors.sums_over_supersets(np.array([True])).tolist() == [1]


def test_the_exploration_rate_grows_slowly() -> None:
    rates = [anchors.exploration_rate(t, 20, 0.05) for t in (1, 10, 100, 1000)]
    assert rates == sorted(rates) and rates[-1] < 2 * rates[0]
    level = math.log(405.5 * 20 / 0.05)
    assert rates[0] == pytest.approx(level + math.log(level))


# Settings, samples, seeds


def test_samples_that_do_not_suffice_are_told() -> None:
    rare = when(
        lambda w: (
            "good" in w
            and not ("one" not in w and "two" not in w and "six" not in w and "ten" not in w)
        )
    )
    e = heed.explain(
        rare, LONG, "anchors", samples=400
    )  # true precision: 15/16, or 31/32 with one word more
    assert e.facts["precision_low"] < 0.95 <= e.facts["precision_high"] and e.forward_passes <= 401
    assert (
        e.notes[1]
        == "400 samples do not tell for sure whether the rule reaches a precision of 95 %."
    )
    e = heed.explain(both, LONG, "anchors", samples=20)
    assert e.facts["precision_low"] <= e.facts["precision"] <= e.facts["precision_high"]


@pytest.mark.parametrize("samples", [2, 3, 5, 20, 61, 500, 4000])
def test_no_more_samples_are_taken_than_allowed(samples: int) -> None:
    for function in (both, either, odd, always):
        e = heed.explain(function, LONG, "anchors", samples=samples)
        assert 1 < e.forward_passes <= samples + 1  # samples, and the whole text


def test_results_do_not_depend_on_neighbours_or_order() -> None:
    texts = [LONG, SHORT, LONG + " more", "good", LONG.upper(), LONG.replace("fun", "dull")]
    alone = [heed.explain(both, text, "anchors", samples=600) for text in texts]
    for order in (range(6), range(5, -1, -1)):
        found = heed.explain(both, [texts[i] for i in order], "anchors", samples=600)
        for i, e in zip(order, found, strict=True):
            assert (
                (e.scores == alone[i].scores).all()
                and e.facts == alone[i].facts
                and e.notes == alone[i].notes
            )
            assert e.forward_passes == alone[i].forward_passes


def test_a_seed_decides_which_texts_are_drawn() -> None:
    one, same, other = (heed.explain(either, LONG, "anchors", seed=seed) for seed in (1, 1, 2))
    assert (one.scores == same.scores).all() and one.facts == same.facts
    assert score(one) != score(other)


def test_documents_are_searched_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    texts = [f"{LONG} {w}" for w in FILL]

    class Counted(heed.Function):
        def score(self, tokens: Any, *args: Any) -> Any:
            calls.append(len(tokens))
            return super().score(tokens, *args)

    found = heed.explain(Counted(both), texts, "anchors", samples=600)
    assert calls[0] == len(texts) and len(calls) < 60
    monkeypatch.setattr(anchors, "_ENTRIES", 1)  # one by one
    calls.clear()
    for one, other in zip(
        found, heed.explain(Counted(both), texts, "anchors", samples=600), strict=True
    ):
        assert (one.scores == other.scores).all() and one.facts == other.facts
    assert set(calls) == {1}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"precision": 1.5}, "at most 1"),
        ({"precision": -1.0}, "at least 0"),
        ({"precision": float("nan")}, "precision"),
        ({"delta": 0.0}, "delta of anchors must be at least"),
        ({"delta": 0.9}, "delta of anchors must be at most 0.5"),
        ({"beam": 0}, "at least 1"),
        ({"most": 0}, "at least 1"),
        ({"batch": 0}, "at least 1"),
        ({"samples": 1}, "at least 2"),
        ({"samples": 2_000_000}, "at most 1,000,000"),
        ({"removal": "eat"}, "way to remove words"),
        ({"repeats": "maybe"}, "way to treat repeats"),
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused(settings: dict, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Anchors(**settings)


def test_settings_are_read_from_strings() -> None:
    found = make_method("anchors", {"precision": "0.9", "beam": "2", "removal": "delete"})
    assert found == Anchors(precision=0.9, beam=2, removal="delete")


# On a model, and as users see it


def test_on_a_model_the_rule_holds_what_it_says(model: SingleLayer) -> None:
    """Fresh texts of the rule, made without heed's help, get the label as often as the interval
    says."""
    text = "the film was slow but the music is good and fresh , a warm scene and a great actor"
    e = heed.explain(model, text, "anchors", removal="delete", repeats="apart")
    rng, rule = np.random.default_rng(5), [i for i, s in enumerate(e.scores) if s > 0]
    split, kept = text.split(), rng.random((4000, len(e.units))) < 0.5
    kept[:, rule] = True
    texts = [" ".join(w for w, k in zip(split, row, strict=True) if k) for row in kept]
    share = (model(texts).argmax(1) == model.label(e.label)).mean()
    assert e.facts["precision_low"] - 0.01 <= share <= e.facts["precision_high"] + 0.01
    assert e.facts["words"] == len(rule)


def test_the_rule_is_readable_everywhere() -> None:
    model = heed.Function(both, ["dull", "<b>worth seeing"])
    e = heed.explain(model, LONG, "anchors")
    file = io.StringIO()
    Console(file=file, width=80, no_color=True).print(e)
    out = " ".join(file.getvalue().split())
    rule = "Rule: “good” and “fun” → <b>worth seeing in 100.0 %"
    assert rule in out and "95 % interval: 99.6 to 100.0 %" in out
    assert (
        "a good[10] film and a fun[10] plot" in out
        and "strongest good 1.000 fun 1.000 measured precision" in out
    )
    assert "Rule: “good” and “fun” → &lt;b&gt;worth seeing" in e._repr_html_()
    again = Explanation.from_dict(json.loads(e.to_json()))
    assert rule in again.notes[0] and again.facts == e.facts
