"""Zero-shot classification by entailment: beside the pipeline of `transformers`, and by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import heed
from bench import small
from heed.errors import InputError, NotApplicable
from heed.methods import METHODS
from heed.models.classifier import GRADIENT
from heed.text import Document
from tests.test_cli import command, refused

transformers = pytest.importorskip("transformers")

TEXTS = ["the film was very good", "bad", "it is not and the plot is great but slow ."]
LABELS = ["good", "bad", "slow plot"]
HYPOTHESIS = "it is {} ."
SMALL = {"lime": {"samples": 50}, "shapley": {"samples": 50}, "anchors": {"samples": 50}}
OFFERED = [name for name, cls in METHODS.items() if cls.needs <= {GRADIENT}]


@cache
def network(family: str = "bert") -> Any:
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    built = small.network(family)
    built.config.id2label, built.config.label2id = names, {n: i for i, n in names.items()}
    return built


@cache
def model(family: str = "bert", several: bool = False) -> Any:
    return heed.entailed(network(family), LABELS, HYPOTHESIS, small.tokenizer(), several=several)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("family", ["bert", "deberta-v2", "bart", "llama"])
def test_probabilities_are_those_of_the_zero_shot_pipeline(family: str, several: bool) -> None:
    pipeline = transformers.pipeline(
        "zero-shot-classification", model=network(family), tokenizer=small.tokenizer()
    )
    for text, row in zip(TEXTS, model(family, several).predict(TEXTS), strict=True):
        answer = pipeline(text, LABELS, hypothesis_template=HYPOTHESIS, multi_label=several)
        scores = dict(zip(answer["labels"], answer["scores"], strict=True))
        np.testing.assert_allclose(row, [scores[label] for label in LABELS], atol=1e-5)


def test_removed_words_are_those_of_the_text_in_every_reading() -> None:
    m = model()
    (tokens,) = m.tokens(TEXTS[:1])
    keep = np.array([[True, False, True, True, True]])
    for removal, text in (("delete", "the was very good"), ("replace", "the [MASK] was very good")):
        (row,) = m.score([tokens], [keep], removal=removal)[0]
        np.testing.assert_allclose(row, m([text])[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("name", OFFERED)
def test_methods_that_need_no_attention_explain_it(name: str, several: bool) -> None:
    e = heed.explain(model(several=several), TEXTS[0], name, **SMALL.get(name, {}))
    assert [u.text for u in e.units] == TEXTS[0].split() and np.isfinite(e.scores).all()
    assert any("'it is slow plot .'" in note for note in e.notes)


def test_attention_is_withheld_with_its_reason() -> None:
    with pytest.raises(NotApplicable, match="reads the text once for each label"):
        heed.explain(model(), TEXTS[0], "rollout")
    with pytest.raises(NotApplicable, match="reads the text once for each label"):
        model().trace(model().tokens(TEXTS), attention={0: torch.zeros(1)})


@pytest.mark.parametrize("output", ["logit", "log-odds"])
def test_gradients_are_those_of_finite_differences(output: str) -> None:
    m = model()
    tokens = m.tokens(TEXTS)
    results = m.gradient(tokens, [1, 0, 2], output)
    for t, label, result in zip(tokens, (1, 0, 2), results, strict=True):
        base, slope = result.embeddings, result.gradient
        step = torch.from_numpy(0.003 * slope / np.linalg.norm(slope))[None]
        outputs = []
        for moved in (step, -step):
            trace = m.trace([t], embeddings=(torch.from_numpy(base)[None] + moved).float())
            logits = trace.logits[0].double()
            others = torch.cat([logits[:label], logits[label + 1 :]]).logsumexp(0)
            outputs.append(float(logits[label] - (others if output == "log-odds" else 0)))
        found = (outputs[0] - outputs[1]) / 0.006
        np.testing.assert_allclose(np.linalg.norm(slope), found, rtol=2e-2)


def test_long_texts_are_cut_and_the_hypothesis_stays() -> None:
    m = model()
    (tokens,) = m.tokens(["good " * 200])
    longest = max(len(h.ids) for h in m.tokenizer.hypotheses)
    assert len(tokens) + longest == m.tokenizer.max_tokens == 96
    assert tokens.dropped == 200 - len(tokens.words) > 0
    assert np.isfinite(m(["good " * 200])).all()


def test_the_label_of_entailment_is_found_or_named() -> None:
    bare = small.network("bert")
    with pytest.raises(InputError, match="no label for entailment, only LABEL_0, LABEL_1, LABEL_2"):
        heed.entailed(bare, LABELS, HYPOTHESIS, small.tokenizer())
    named = heed.entailed(bare, LABELS, HYPOTHESIS, small.tokenizer(), entailment="LABEL_2")
    np.testing.assert_allclose(named(TEXTS), model()(TEXTS), rtol=1e-5)
    with pytest.raises(InputError, match="need a label for contradiction"):
        heed.entailed(bare, LABELS, HYPOTHESIS, small.tokenizer(), entailment=2, several=True)
    two = small.network("bert", num_labels=2)
    m = heed.entailed(two, LABELS, HYPOTHESIS, small.tokenizer(), entailment=0, several=True)
    judged = m.judge([(TEXTS[0], "it is bad .")])[0]
    np.testing.assert_allclose(m(TEXTS[:1])[0, 1], judged[0] - judged[1], rtol=1e-4, atol=1e-5)


def test_labels_may_have_other_words_in_the_hypothesis() -> None:
    m = heed.entailed(network(), {"+": "good", "-": "bad"}, HYPOTHESIS, small.tokenizer())
    typed = heed.entailed(network(), "+=good,-=bad", HYPOTHESIS, small.tokenizer())
    assert m.labels == typed.labels == ("+", "-") and m.revision == typed.revision
    np.testing.assert_allclose(m(TEXTS), model()(TEXTS)[:, :2], rtol=1e-5)


@pytest.mark.parametrize(
    ("labels", "hypothesis", "sentence"),
    [
        (["a"], HYPOTHESIS, "At least two labels"),
        (["a", "a"], HYPOTHESIS, "different names"),
        (["a", ""], HYPOTHESIS, "not empty"),
        ({"a": "good", "b": "good"}, HYPOTHESIS, "the same hypothesis"),
        (LABELS, "it is", "with one {} for the label"),
        (LABELS, "{} {}", "with one {} for the label"),
        (LABELS, "good " * 100 + "{}", "shorten it"),
    ],
)
def test_what_cannot_be_asked_is_refused(labels: Any, hypothesis: str, sentence: str) -> None:
    with pytest.raises(InputError) as refusal:
        heed.entailed(network(), labels, hypothesis, small.tokenizer())
    assert sentence in str(refusal.value)


def test_pairs_and_other_models_are_refused() -> None:
    with pytest.raises(InputError, match="give single texts"):
        model()([Document("good", "bad")])
    with pytest.raises(InputError, match="judged by a transformer"):
        heed.entailed(heed.load(), LABELS)


def test_weights_drawn_anew_are_asked_the_same() -> None:
    other = model().randomised(1)
    assert other.labels == model().labels
    assert np.abs(other(TEXTS) - model()(TEXTS)).max() > 0.1


def test_a_hypothesis_on_the_command_line(tmp_path: Path) -> None:
    network().save_pretrained(tmp_path / "nli")
    small.tokenizer().save_pretrained(tmp_path / "nli")
    asked = ["--model", tmp_path / "nli", "--hypothesis", HYPOTHESIS]
    more = ["--method", "occlusion", "--format", "json"]
    done = command("explain", TEXTS[0], *asked, "--labels", ",".join(LABELS), *more)
    expected = heed.explain(model(), TEXTS[0], "occlusion")
    np.testing.assert_allclose(done.explanations[0]["scores"], expected.scores, atol=1e-5)
    refused(command("explain", TEXTS[0], *asked), "--hypothesis needs --labels")
    refused(command("explain", TEXTS[0], *asked, "--template", "{text}"), "not both")
    refused(command("explain", TEXTS[0], "--hypothesis", "{}"), "name it with --model")


def test_the_label_of_entailment_and_several_labels_on_the_command_line(tmp_path: Path) -> None:
    small.network("bert").save_pretrained(tmp_path / "unnamed")  # LABEL_0, LABEL_1, LABEL_2
    network().save_pretrained(tmp_path / "nli")
    for folder in ("unnamed", "nli"):
        small.tokenizer().save_pretrained(tmp_path / folder)
    asked = ["--hypothesis", HYPOTHESIS, "--labels", ",".join(LABELS)]
    more = ["--method", "occlusion", "--format", "json"]
    unnamed = ["--model", tmp_path / "unnamed", *asked]
    refused(command("explain", TEXTS[0], *unnamed), "no label for entailment", "--entailment")
    for label in ("LABEL_2", "label_2", "2"):
        done = command("explain", TEXTS[0], *unnamed, "--entailment", label, *more)
        expected = heed.explain(model(), TEXTS[0], "occlusion")
        np.testing.assert_allclose(done.explanations[0]["scores"], expected.scores, atol=1e-5)
    done = command("explain", TEXTS[0], "-m", tmp_path / "nli", *asked, "--several", *more)
    expected = heed.explain(model(several=True), TEXTS[0], "occlusion")
    assert done.explanations[0]["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    assert sum(expected.probabilities.values()) != pytest.approx(1, abs=0.01)
    for verb in ("explain", "audit"):
        text = [TEXTS[0]] if verb == "explain" else []
        for flag in (["--several"], ["--entailment", "yes"]):
            refused(command(verb, *text, *flag), f"{flag[0]} is for a model of entailment")
