"""Transformers trained again: uniform attention, other seeds, adversaries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import heed
from heed.audit import audit
from heed.claims.informative import Informative
from heed.claims.needed import Needed
from heed.claims.retrained import ExclusiveModel, Stable, attention_of
from heed.models.hook import Recorder, install, recording
from heed.models.transformer import Transformer
from heed.store import Store
from heed.training import transformer
from heed.training.again_transformer import TrainableTransformer, TransformerRetraining
from heed.training.examples import Examples, outputs_of
from heed.training.recipes import Tuning
from tests.test_transformer import FAMILIES, TEXTS, inputs, model, network

RECIPE = Tuning(
    epochs=2, batch=16, learning_rate=5e-3, vocabulary=200, heads=2, max_tokens=32, dropout=0.1
)
LABELS = ("negative", "positive")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Transformer:
    folder = tmp_path_factory.mktemp("models") / "small"
    done = transformer.fit(
        list(heed.data.tasks.generate("reviews", 80, 0)), LABELS, RECIPE, size=(2, 16)
    )
    facts = {"recipe": {"name": "scratch"} | RECIPE.to_dict(scratch=True), "base": None, "seed": 0}
    facts |= {
        "data": {"name": "d", "split": "train", "documents": 80, "source": "s"},
        "history": done.history,
    }
    transformer.save(done, folder, facts | {"best_epoch": done.best, "test": None, "command": "c"})
    loaded = heed.load(folder)
    assert isinstance(loaded, Transformer) and loaded.facts["seed"] == 0
    return loaded


@pytest.mark.parametrize("family", FAMILIES)
def test_uniform_attention_is_the_mean_of_what_may_be_seen(family: str) -> None:
    """Against a pass in which all weights are replaced by equal ones where the model has any."""
    m = model(family)
    for text in TEXTS[:2]:
        tokens = m.tokens([text])
        with torch.no_grad():
            own = m.trace(tokens).attention
            seen = [(w > 0).any(1, keepdim=True).expand_as(w).float() for w in own]
            if family in (
                "albert",
                "electra",
            ):  # which see everything, with weights that underflow in all heads
                seen = [torch.ones_like(w) for w in own]
            flat = {i: s / s.sum(-1, keepdim=True) for i, s in enumerate(seen)}
            expected = m.trace(tokens, attention=flat).logits
            with recording(Recorder(uniform=True)):
                found = m.model(**inputs(m, text), **m._uncached).logits
        torch.testing.assert_close(m._spread(found), expected, rtol=1e-3, atol=1e-3)


def test_a_family_with_an_attention_of_its_own_is_refused() -> None:
    raw = network("deberta")
    assert not install(raw)


def test_a_network_in_training_shows_logits_and_the_row_of_its_trace(trained: Transformer) -> None:
    texts = list(heed.data.tasks.generate("reviews", 6, 3))
    examples = Examples.of(trained.tokenizer, texts)
    subject = TrainableTransformer(
        Transformer(trained.model, trained.pretrained_tokenizer, "copy")
    ).eval()
    with torch.no_grad():
        logits, rows = examples.run(subject, range(6))
    np.testing.assert_allclose(logits.numpy(), trained(texts), atol=1e-4)
    for (tokens, p, a), row, z in zip(outputs_of(trained, texts), rows, logits, strict=True):
        np.testing.assert_allclose(row[: len(tokens)].numpy(), a, atol=1e-5)
        np.testing.assert_allclose(z.softmax(-1).numpy(), p, atol=1e-5)
    assert (rows[0, len(examples.ids[0]) :] < 1e-6).all()


def test_again_from_a_seed_without_attention_and_against_it(
    trained: Transformer, tmp_path: Path
) -> None:
    texts = list(heed.data.tasks.generate("reviews", 80, 0))
    before = trained.revision, trained(texts[:4])
    state = torch.random.get_rng_state()
    again = TransformerRetraining(trained, texts, store=Store(tmp_path))
    one, flat, adversary = (
        again.again(1),
        again.again(1, uniform=True),
        again.adversary(0.5, epochs=2),
    )
    assert (torch.random.get_rng_state() == state).all()
    assert [len(t) for t in one.tokens(texts)] == [
        len(t) for t in trained.tokens(texts)
    ]  # the same tokenizer
    assert len({m.revision for m in (trained, one, flat, adversary)}) == 4
    far = [
        np.abs(a - b).sum()
        for a, b in zip(*(attention_of(m, texts) for m in (trained, adversary)), strict=True)
    ]
    assert np.mean(far) > 0.02
    assert trained.revision == before[0]
    np.testing.assert_array_equal(trained(texts[:4]), before[1])
    # what is on disk gives the same models, and is not trained again
    fresh = TransformerRetraining(
        heed.models.transformer.Transformer(trained.model, trained.pretrained_tokenizer, "x"),
        texts,
        store=Store(tmp_path),
    )
    fresh.model.facts = trained.facts
    fresh.model.__dict__["revision"] = trained.revision
    for ours, theirs in (
        (again.again(1), fresh.again(1)),
        (adversary, fresh.adversary(0.5, epochs=2)),
    ):
        np.testing.assert_allclose(theirs(texts[:5]), ours(texts[:5]), atol=1e-5)


def test_a_model_is_kept_by_the_weights_of_its_base(trained: Transformer, tmp_path: Path) -> None:
    keys = set()
    for weights in ("one", "two", "two"):
        (tmp_path / "model.safetensors").write_text(weights)
        again = TransformerRetraining(trained, [], base=tmp_path)
        keys.add(again.key({"kind": "seed"}))
    assert len(keys) == 2


def test_an_audit_trains_a_transformer_again(trained: Transformer) -> None:
    documents = heed.data.tasks.generate("reviews", 32, 5)
    texts = heed.data.tasks.generate("reviews", 60, 0)
    claims = [Needed(), Stable(seeds=1), Informative(seeds=1), ExclusiveModel(seeds=1, epochs=1)]
    found = audit(trained, documents, claims, examples=0, training=texts)
    for e in found.evidence:
        assert e.claim.id == "used" or (not e.reason and len(e.rows) == 32)


def test_a_fine_tuned_model_asks_for_its_base(trained: Transformer) -> None:
    tuned = Transformer(trained.model, trained.pretrained_tokenizer, "tuned")
    tuned.facts = {**trained.facts, "base": "minilm"}
    texts = heed.data.tasks.generate("reviews", 30, 0)
    found = audit(tuned, texts[:3], ["needed"], examples=0, training=texts)
    assert "fine-tuned from minilm: give that with --base" in found.verdicts[-1].reason
