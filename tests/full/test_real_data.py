"""All real data.

Every split is read, the bundled model is as good as its card says, audits measure everything.
"""

import math
import os
from pathlib import Path

import pytest

import heed
from heed import data
from heed.audit import Audit
from heed.claims import CLAIMS
from heed.data import KNOWN
from heed.models.folders import bundled, facts
from heed.training.card import accuracy

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        "HEED_DATA" not in os.environ, reason="HEED_DATA does not name a folder with the data sets"
    ),
]


@pytest.mark.parametrize(
    ("name", "split"), [(name, split) for name, known in KNOWN.items() for split in known.splits]
)
def test_every_split_is_read_and_tokenized(name: str, split: str) -> None:
    if data.sources(name, split) is None:
        pytest.skip(f"the {split} part of {name} is only on the hub")
    dataset = data.load(name, split)
    assert len(dataset) > 100
    assert set(dataset.gold.tolist()) == set(range(len(dataset.labels)))
    assert all(segment.strip() for d in dataset for segment in d.segments)
    assert all((d.pair is not None) == (name == "sick") for d in dataset)
    limited = data.load(name, split, limit=1000, seed=1)
    assert len(limited) == min(1000, len(dataset))
    assert set(limited.documents) <= set(dataset.documents)
    assert all(t.words for t in heed.load().tokens(limited.documents))


@pytest.mark.parametrize(
    ("name", "least"), [("single-layer-imdb", 0.86), ("transformer-imdb", 0.84)]
)
def test_a_bundled_model_on_the_whole_test_set(name: str, least: float) -> None:
    model, test = heed.load(name), data.load("imdb", "test")
    assert len(test) == 25_000
    found = accuracy(model, test.documents)
    assert found >= least
    assert found == pytest.approx(facts(bundled()[name])["test"]["accuracy"], abs=2e-3)


@pytest.mark.parametrize(
    ("name", "split", "documents"),
    [("sst", "test", 1821), ("movie_rationales", "test", 199), ("imdb_counterfactual", "dev", 490)],
)
def test_an_audit_has_a_row_for_every_document(
    name: str, split: str, documents: int, tmp_path: Path
) -> None:
    found = heed.audit(heed.load(), data.load(name, split))
    assert (found.facts["documents"], found.facts["left_out"]) == (documents, 0)
    assert found.facts["accuracy"] > 0.7
    left_out = {name for name, cls in CLAIMS.items() if cls.claim.trains}
    left_out |= {
        "plausible",
        "edited",
        "null-step",
        "efficient-shared",
        "efficient-necessary",
        "efficient-near",
    }  # marks, pairs, long documents
    for evidence in found.evidence:
        if evidence.reason:
            assert evidence.claim.id in left_out
            continue
        assert [row["document"] for row in evidence.rows] == list(range(documents))
        if evidence.claim.id not in left_out | {
            "robust"
        }:  # which leaves out documents whose LIME is mostly noise
            assert len(evidence.values) > 0.95 * documents
        most = 2 if evidence.claim.id == "tracks" else 1  # a difference of two correlations
        assert all(math.isnan(row["value"]) or abs(row["value"]) <= most for row in evidence.rows)
    judged = [name for name, cls in CLAIMS.items() if not cls.claim.check]
    assert [v.claim.id for v in found.verdicts] == judged
    assert all(v.low <= v.mean <= v.high for v in found.verdicts if v.mean is not None)
    found.save(tmp_path / "rows.parquet")
    assert Audit.load(tmp_path / "rows.parquet").to_dict() == found.to_dict()


def test_a_rationale_lies_on_words_that_are_read() -> None:
    test = data.load("movie_rationales", "test", limit=50)
    for document, tokens in zip(test, heed.load().tokens(test.documents), strict=True):
        assert document.rationale
        marked = [
            w for w in tokens.words if any(s.start <= w.start < s.end for s in document.rationale)
        ]
        assert marked or tokens.dropped
