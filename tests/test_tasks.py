"""Generated data: every label is derived again from the text by a slow rule of its own, every
rationale sliced.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from heed.data import tasks
from heed.data.tasks import TASKS, generate
from heed.errors import InputError, UnknownName
from heed.text import Document

Answer = tuple[str, list[str]]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def planted(d: Document) -> Answer:
    found = [w for w in words(d.text) if w in {k for keys in tasks.KEYS for k in keys}]
    kinds = {"music" if w in tasks.KEYS[0] else "garden" for w in found}
    assert len(kinds) == 1
    return kinds.pop(), found


def negation(d: Document) -> Answer:
    read = words(d.text)
    (i,) = [i for i, w in enumerate(read) if w in tasks.VERDICTS[0] + tasks.VERDICTS[1]]
    positive = read[i] in tasks.VERDICTS[1]
    if read[i - 1] == "not":
        return ("negative" if positive else "positive"), ["not", read[i]]
    return ("positive" if positive else "negative"), [read[i]]


def first_token(d: Document) -> Answer:
    return words(d.text)[0], [words(d.text)[0]]


def counting(d: Document) -> Answer:
    found = [w for w in words(d.text) if w in ("red", "blue")]
    return ("red" if found.count("red") > found.count("blue") else "blue"), found


def story(d: Document) -> Answer:
    assert d.pair is not None
    asked = d.pair.removeprefix("Where is ").removesuffix("?")
    room = ""
    for line in d.text.split("."):
        if asked in line.split():
            room = line.split()[-1]
    return room, [asked.lower(), room]


def reviews(d: Document) -> Answer:
    counted = [w for line in d.text.split(".") for w in words(line.split(", but ")[-1])]
    positive = [w for w in counted if w in tasks.OPINIONS[1]]
    negative = [w for w in counted if w in tasks.OPINIONS[0]]
    assert len(positive) != len(negative)
    return ("positive", positive) if len(positive) > len(negative) else ("negative", negative)


RULES: dict[str, Callable[[Document], Answer]] = {
    f.__name__: f for f in (planted, negation, first_token, counting, story, reviews)
}


def test_every_task_has_a_rule() -> None:
    assert set(RULES) == set(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_label_and_rationale_follow_from_the_text(name: str) -> None:
    data = generate(name, 600, seed=11)
    for d in data:
        label, deciding = RULES[name](d)
        assert d.label is not None and data.labels[d.label] == label, d.text
        assert [w for s in d.rationale for w in words(d.text[s.start : s.end])] == deciding, d.text
        assert all(s.segment == 0 and 0 <= s.start < s.end <= len(d.text) for s in d.rationale)
        assert all(
            d.text[s.start : s.end].strip(" .,*") == d.text[s.start : s.end] for s in d.rationale
        )


@pytest.mark.parametrize("name", TASKS)
def test_same_seed_same_data_at_any_size(name: str) -> None:
    whole = generate(name, 120, seed=3)
    assert generate(name, 120, seed=3) == whole
    assert generate(name, 50, seed=3).documents == whole.documents[:50]
    assert generate(name, 120, seed=4).documents != whole.documents
    assert len({d.text for d in whole}) > 100 and len({d.id for d in whole}) == 120
    assert whole.name == name and whole.split == "generated" and "seed 3" in whole.source


@pytest.mark.parametrize("name", TASKS)
def test_labels_are_balanced_but_not_in_turn(name: str) -> None:
    data = generate(name, 240, seed=0)
    counts = Counter(data.gold.tolist())
    assert set(counts.values()) == {240 // len(data.labels)}
    gold, step = data.gold, len(data.labels)
    assert (gold[:-step] != gold[step:]).any()


@pytest.mark.parametrize("name", TASKS)
def test_texts_read_like_english(name: str) -> None:
    for d in generate(name, 200, seed=5):
        assert re.fullmatch(r"([A-Z][A-Za-z',]*( [A-Za-z',]+)*\. ?)+", d.text), d.text
        assert not re.search(r"  | I [A-Z]|\*", d.text), d.text


def test_the_decoys_are_there() -> None:
    negated = [d for d in tasks.negation(400) if "did not" in d.text]
    assert {0, 1} == {d.label for d in negated} and len(negated) > 100
    later = [words(d.text)[1:] for d in tasks.first_token(200)]
    assert all("yes" in w or "no" in w for w in later) and any(
        "yes" in w and "no" in w for w in later
    )
    assert sum(", but " in d.text for d in tasks.reviews(200)) > 60
    moved_twice = [d for d in tasks.story(200) if d.pair and d.text.count(d.pair[9:-1]) > 1]
    assert len(moved_twice) > 60, "the first place that is named must not be the answer"


def test_refusals() -> None:
    with pytest.raises(UnknownName, match=r"There is no task 'plantd': did you mean 'planted'\?"):
        generate("plantd")
    with pytest.raises(InputError, match="at least 1, got 0"):
        tasks.planted(0)
