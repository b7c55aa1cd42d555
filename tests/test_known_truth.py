"""Where the truth is known by construction, an audit must find it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import heed
from bench.constructed import (
    SIDES,
    Construction,
    honest,
    two_minds,
    two_sided,
)
from bench.coverage import CASES
from bench.known_truth import (
    CONSTRUCTIONS,
    DOCUMENTS,
    TRUTH,
    by_cell,
    confusion,
    judged,
    over,
    right,
)
from heed.claims import CLAIMS, Verdict
from heed.metrics import jsd
from heed.text import Document


def attention(construction: Construction) -> list[np.ndarray]:
    """Attention on words, document by document."""
    explanations = heed.explain(construction.model, construction.documents, "attention-mean")
    return [e.scores for e in explanations]


# One of each kind: the run over seeds judges all of them.
KINDS = ("honest", "flat", "two-sided", "key word", "two minds", "long and thin", "short and full")
HARD = ("deceptive", "decorative", "prior only", "outvoted")


@pytest.mark.parametrize("name", [*KINDS, *HARD])
def test_the_truth_is_found(name: str) -> None:
    construction = CONSTRUCTIONS[name](0, DOCUMENTS)
    verdicts = judged(construction)
    assert {v.claim.id: v.outcome for v in verdicts} == TRUTH[name], verdicts


@pytest.mark.full
def test_the_truth_is_found_over_seeds() -> None:
    found = over(range(20))
    print(f"\n{confusion(found)}\n\n{by_cell(found)}")
    good, total = right(found)
    assert total == 20 * sum(len(claims) for claims in TRUTH.values())
    assert good >= 0.95 * total


def test_an_audit_judges_alike() -> None:
    construction = two_sided(1, 40)
    audit = heed.audit(
        construction.model,
        construction.documents,
        list(TRUTH[construction.name]),
        seed=1,
        examples=0,
    )
    assert audit.verdicts == judged(construction, 1)


def test_the_tables_count_what_was_found() -> None:
    used, signed = (CLAIMS[name].claim for name in ("used", "signed"))
    good, open_ = (
        Verdict(used, "supported", 0.25, 0.2, 0.3, 40),
        Verdict(used, "undecided", 0.05, 0.0, 0.1, 40),
    )
    closed = Verdict(signed, "not applicable", reason="closed")
    found = {("honest", "used"): [good, good, open_], ("flat", "signed"): [closed]}
    assert right(found) == (3, 4)
    assert "| supported | 2 | 0 | 0 | 1 |" in confusion(found)
    assert "| not applicable | 0 | 0 | 1 | 0 |" in confusion(found)
    assert (
        "| honest | `used` | supported | 2 of 3 | 1 undecided | 0.05 … 0.25 | > 0.05 |"
        in by_cell(found)
    )
    assert "| flat | `signed` | not applicable | 1 of 1 |  |  | > 0.8 |" in by_cell(found)


def test_the_page_shows_every_cell() -> None:
    page = (Path(__file__).parent.parent / "docs" / "known-truth.md").read_text(encoding="utf8")
    for name, claims in TRUTH.items():
        for claim, truth in claims.items():
            assert f"| {name} | `{claim}` | {truth} |" in page
    for case in CASES:
        assert f"| `{case.like}` | {case.about} |" in page


# The constructions are what they are said to be


def test_every_construction_has_its_truth() -> None:
    assert list(CONSTRUCTIONS) == list(TRUTH)
    for claims in TRUTH.values():
        assert set(claims) <= set(CLAIMS)


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_constructions_are_drawn_from_their_seed(name: str) -> None:
    one, same, other = (CONSTRUCTIONS[name](seed, 40) for seed in (3, 3, 4))
    assert one.model.revision == same.model.revision != other.model.revision
    assert one.documents == same.documents != other.documents
    assert one.documents[:10] == CONSTRUCTIONS[name](3, 10).documents
    lengths = [len(t.words) for t in one.model.tokens(one.documents)]
    assert min(lengths) >= (150 if name == "long and thin" else 20)
    assert max(lengths) <= (250 if name == "long and thin" else 40)


@pytest.mark.parametrize(
    "name", ["honest", "flat", "distracted", "two-sided", "key word", "two minds"]
)
def test_models_are_right_and_reasons_are_marked(name: str) -> None:
    construction = CONSTRUCTIONS[name](5, 40)
    labels = construction.model(construction.documents).argmax(1)
    assert labels.tolist() == [d.label for d in construction.documents]
    for d in construction.documents:
        assert marked(d) == [w for w in d.text.split() if w in SIDES[d.label or 0]]


def marked(document: Document) -> list[str]:
    return [document.text[s.start : s.end] for s in document.rationale]


def test_attention_of_the_flat_model_is_uniform() -> None:
    for scores in attention(CONSTRUCTIONS["flat"](0, 10)):
        np.testing.assert_allclose(scores, scores[0], rtol=1e-12)


def test_honest_attention_puts_evidence_first() -> None:
    construction = honest(0, 10)
    for d, scores in zip(construction.documents, attention(construction), strict=True):
        evidence = np.array([w in SIDES[d.label or 0] for w in d.text.split()])
        assert scores[evidence].min() > scores[~evidence].max()
        assert np.ptp(scores[~evidence]) < 1e-12


def test_another_row_gives_the_honest_output() -> None:
    """The least evidence and one filler, in the place of all.

    That row is at least as far away as docs/known-truth.md proves.
    """
    construction = honest(0, 40)
    for d, scores in zip(construction.documents, attention(construction), strict=True):
        evidence = np.array([w in SIDES[d.label or 0] for w in d.text.split()])
        own, other = scores / scores.sum(), np.zeros(len(scores))
        share = own[evidence].sum()
        other[np.where(evidence, own, np.inf).argmin()] = share
        other[np.flatnonzero(~evidence)[0]] = 1 - share
        assert other @ evidence == pytest.approx(own @ evidence)
        assert jsd(own, other) / np.log(2) > 0.548


def test_two_minds_think_alike_and_look_elsewhere() -> None:
    construction = two_minds(0, 20)
    minds = construction.retraining
    assert minds is not None and minds.seeds(8) == list(range(1, 9))
    own = construction.model(construction.documents)
    for seed in minds.seeds(8):
        other = minds.again(seed)
        assert other is minds.again(seed)
        np.testing.assert_allclose(other(construction.documents), own, atol=1e-12)
        assert other.revision != construction.model.revision


def test_short_documents_have_values_of_full_rank_and_long_ones_of_rank_one() -> None:
    for name, full in (("short and full", True), ("long and thin", False)):
        construction = CONSTRUCTIONS[name](0, 5)
        for t in construction.model.tokens(construction.documents):
            values = construction.model.trace([t]).values[0][0, 0, 1:].detach().numpy()
            assert np.linalg.matrix_rank(values) == (len(t.words) if full else 1)
