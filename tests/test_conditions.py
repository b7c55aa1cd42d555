"""The conditions for attention to explain, against what the model's own weights say."""

import numpy as np
import pytest
from conftest import UNTRAINED

import heed
from heed.claims import Study
from heed.claims.conditions import CONDITIONS, findings, measure
from heed.models.single_layer import SingleLayer
from heed.report import words

TEXTS = [
    "a good film with a bad plot and warm music",
    "the music was warm , the plot was slow",
    "good film",
]


def test_rows_against_the_closed_form(model: SingleLayer) -> None:
    rows = measure(Study(model, list(map(heed.Document, TEXTS))))
    for row, text in zip(rows, TEXTS, strict=True):
        (tokens,) = model.tokens([text])
        trace = model.trace([tokens])
        label = int(trace.logits[0].argmax())
        weights = trace.attention[0][0, :, 0].detach().double().numpy()  # head key
        values, projection = (
            x.detach().double().numpy() for x in (trace.values[0][0], trace.projections[0])
        )
        worth = np.einsum("htd,hdc->htc", values, projection)
        words = ~tokens.special
        adds, attention = (
            (weights * (worth[..., label] - worth[..., 1 - label])).sum(0)[: len(words)][words],
            weights.mean(0)[: len(words)][words],
        )
        if len(attention) < 4:
            assert np.isnan(row["one-signed"]) and np.isnan(row["peaked"])
        else:
            assert row["one-signed"] == pytest.approx(
                attention[adds < 0].sum() / attention.sum(), abs=1e-6
            )
            enough = next(
                k
                for k in range(1, 99)
                if np.sort(attention)[::-1][:k].sum() >= attention.sum() / 2 - 1e-9
            )
            assert row["peaked"] == enough / len(attention)
        even = weights.copy()
        places = np.flatnonzero(words)
        even[:, places] = even[:, places].mean(1, keepdims=True)
        logits = trace.logits[0].detach().double().numpy()
        moved = logits + np.einsum("ht,htc->c", even - weights, worth)
        before, after = model.probabilities(logits), model.probabilities(moved)
        assert row["context"] == pytest.approx(np.abs(before - after).sum() / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "holds"),
    [({"peaked": 0.1}, True), ({"peaked": 0.6}, False), ({"context": 0.2}, True)],
)
def test_a_condition_holds_on_its_side(value: dict[str, float], holds: bool) -> None:
    plain = {c.id: c.threshold for c in CONDITIONS}
    found = findings([plain | value] * 40)
    assert [f.holds for f in found if f.condition.id in value] == [holds]
    assert [f.holds for f in found if f.condition.id not in value] == [None] * (
        len(CONDITIONS) - 1
    )  # at the threshold


def test_documents_without_a_number_do_not_count() -> None:
    rows = [{c.id: float("nan") for c in CONDITIONS}] * 3
    assert findings(rows) == [] and findings([]) == []
    (first, *_) = findings([*rows, {c.id: 0.5 for c in CONDITIONS}])
    assert (first.mean, first.n, first.holds) == (0.5, 1, None)  # one document decides nothing


def test_documents_that_share_an_id_count_as_one() -> None:
    row = {c.id: c.threshold + (0.2 if c.above else -0.2) for c in CONDITIONS}
    for ids, holds in (
        (list(map(str, range(40))), True),
        ([str(i // 2) for i in range(40)], None),
        (["a"] * 40, None),
    ):
        found = findings([row | {"id": name} for name in ids])
        assert {(f.n, f.independent, f.holds) for f in found} == {(40, len(set(ids)), holds)}


def test_every_claim_says_what_it_costs() -> None:
    from heed.catalogue import claims

    for name, about in claims():
        assert "\ncost: " in about, name
    assert set(UNTRAINED) < {name for name, _ in claims()}


def test_a_model_without_attention_has_no_conditions() -> None:
    def classify(texts: list[str]) -> np.ndarray:
        return np.array([[0.4, 0.6] if "good" in t else [0.5, 0.5] for t in texts])

    found = heed.audit(
        classify, ["a good film", "a bad plot"], ["removes"], "occlusion", examples=0
    )
    assert found.conditions == [] and words.CONDITIONS not in words.summary(found)
