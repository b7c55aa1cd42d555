"""Any transformer through one hook: small, with large random weights, so that mistakes show."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

import heed
from heed.errors import CheckpointError, InputError, NotApplicable
from heed.methods import METHODS

transformers = pytest.importorskip("transformers")

from heed.models.classifier import CLOSED  # noqa: E402
from heed.models.transformer import Transformer  # noqa: E402

WORDS = (
    *(
        "the",
        "a",
        "film",
        "plot",
        "good",
        "bad",
        "great",
        "slow",
        "very",
        "not",
        "and",
        "but",
        "is",
        "was",
        "it",
    ),
    *("'s", "unbelievable", "surprisingly", ",", "."),
)
ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}
DECODER = ENCODER | {"num_key_value_heads": 2}
# windows shorter than the text, a soft cap near 2: otherwise they would not show
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", ENCODER),
    "roberta": ("RobertaConfig", ENCODER),
    "xlm-roberta": ("XLMRobertaConfig", ENCODER),
    "camembert": ("CamembertConfig", ENCODER),
    "distilbert": (
        "DistilBertConfig",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37, "max_position_embeddings": 64},
    ),
    "albert": ("AlbertConfig", ENCODER | {"embedding_size": 16}),
    "electra": ("ElectraConfig", ENCODER | {"embedding_size": 16}),
    "modernbert": ("ModernBertConfig", ENCODER | {"num_hidden_layers": 3, "local_attention": 4}),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "gpt-neox": ("GPTNeoXConfig", ENCODER),
    "opt": (
        "OPTConfig",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 37,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 32,
            "init_std": 0.6,
        },
    ),
    "llama": ("LlamaConfig", DECODER),
    "mistral": ("MistralConfig", DECODER | {"sliding_window": 4}),
    "qwen2": ("Qwen2Config", DECODER),
    "qwen3": ("Qwen3Config", DECODER | {"head_dim": 8}),
    "gemma2": (
        "Gemma2Config",
        DECODER | {"head_dim": 8, "sliding_window": 4, "attn_logit_softcapping": 2.0},
    ),
}
OUTSIDE: dict[str, tuple[str, dict[str, Any]]] = {
    "deberta": ("DebertaV2Config", ENCODER),
    "mpnet": ("MPNetConfig", ENCODER),
    "xlnet": ("XLNetConfig", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 37}),
}
REFUSED = {"xlnet": {"value-norm"}}  # no linear map follows its attention
DECODERS = {"gpt2", "gpt-neox", "opt", "llama", "mistral", "qwen2", "qwen3", "gemma2"}
TEXTS = [
    "the film was very good , but the unbelievable plot is not",
    "bad",
    "great great film and a surprisingly slow unwatchable plot .",
    "it is good and it is bad and it is slow and it is great",
]


@cache
def tokenizer() -> Any:
    """A sub-word tokenizer with the special tokens of BERT; long words fall into several pieces."""
    pieces = sorted(
        {
            "##" + w[i:j]
            for w in WORDS
            for i in range(1, len(w))
            for j in (i + 1, i + 3)
            if j <= len(w)
        }
    )
    names = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *(w for w in WORDS if len(w) < 9),
        *"abcdefghijklmnopqrstuvwxyz",
        *pieces,
    ]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=48,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def network(family: str, seed: int = 0, **more: Any) -> Any:
    name, sizes = (FAMILIES | OUTSIDE)[family]
    options = {
        "vocab_size": len(tokenizer()),
        "pad_token_id": 0,
        "num_labels": 3,
        "initializer_range": 0.6,
    }
    ids = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    config = getattr(transformers, name)(**(options | ids | sizes | more))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.AutoModelForSequenceClassification.from_config(config)


@cache
def model(family: str) -> Transformer:
    return Transformer(network(family), tokenizer(), family)


def eager(family: str) -> Callable[..., Any]:
    """The same weights, as anyone would run them: eager attention, one document at a time."""
    plain = network(family).eval()
    plain.set_attn_implementation("eager")
    return plain


def inputs(m: Transformer, text: str) -> dict[str, torch.Tensor]:
    (tokens,) = m.tokens([text])
    found = {
        "input_ids": torch.from_numpy(tokens.ids)[None],
        "attention_mask": torch.ones(1, len(tokens), dtype=torch.long),
    }
    return found | ({"token_type_ids": torch.from_numpy(tokens.types)[None]} if m._typed else {})


@pytest.mark.parametrize("family", [*FAMILIES, *OUTSIDE])
def test_logits_and_trace_are_those_of_eager_attention(family: str) -> None:
    m, plain = model(family), eager(family)
    with torch.no_grad():
        expected = np.stack([plain(**inputs(m, text)).logits[0].numpy() for text in TEXTS])
    np.testing.assert_allclose(m(TEXTS), expected, atol=1e-4)
    if family != "xlnet":  # padding changes its answer: batches are of equal length there
        trace = m.trace(m.tokens(TEXTS))
        np.testing.assert_allclose(trace.logits.detach().numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("family", [*FAMILIES, *OUTSIDE])
def test_attention_is_the_models_own(family: str) -> None:
    m, plain = model(family), eager(family)
    trace = m.trace(m.tokens(TEXTS[:1]))
    with torch.no_grad():
        expected = plain(**inputs(m, TEXTS[0]), output_attentions=True).attentions
    assert len(trace.attention) == len(expected) == len(trace.values)
    for ours, theirs in zip(trace.attention, expected, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.numpy(), atol=1e-5)
        np.testing.assert_allclose(ours.detach().sum(-1).numpy(), 1, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_the_models_own_and_follow_what_is_replaced(family: str) -> None:
    m, plain = model(family), eager(family)
    tokens = m.tokens(TEXTS[:1])
    trace = m.trace(tokens)
    if family == "albert":  # its layers are one module, run again and again
        assert trace.states == ()
        return
    with torch.no_grad():
        expected = plain(**inputs(m, TEXTS[0]), output_hidden_states=True).hidden_states
    assert len(trace.states) == len(expected) - 1 == len(trace.attention)
    for ours, theirs in zip(
        trace.states[:-1], expected[1:-1], strict=True
    ):  # behind the last some put a norm
        np.testing.assert_allclose(ours.detach().numpy(), theirs.numpy(), atol=1e-4)
    other = m.trace(tokens, attention={0: trace.attention[0].detach().flip(-1)})
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(trace.states, other.states, strict=True))
    assert m.trace(tokens, layers=()).states == m.trace(tokens, layers=[-1]).states == ()


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_view_of_a_view_sees_the_same(family: str) -> None:
    m = model(family)
    again = Transformer(m.model, m.pretrained_tokenizer, "again")
    tokens = m.tokens(TEXTS[:2])
    for a, b in zip(m.trace(tokens).states, again.trace(tokens).states, strict=True):
        assert torch.equal(a, b)
    assert again.attending(tokens).cheap == m.attending(tokens).cheap


@pytest.mark.parametrize("family", [*FAMILIES, *OUTSIDE])
def test_replaced_attention_arrives_and_is_differentiable(family: str) -> None:
    m = model(family)
    tokens = m.tokens(TEXTS[:2])
    plain = m.trace(tokens)
    for layer, own in enumerate(plain.attention):
        same = m.trace(tokens, attention={layer: own.detach()})
        np.testing.assert_allclose(
            same.logits.detach().numpy(), plain.logits.detach().numpy(), atol=2e-4
        )
        nothing = m.trace(tokens, attention={layer: torch.full_like(own, float("nan"))})
        np.testing.assert_allclose(
            nothing.logits.detach().numpy(), plain.logits.detach().numpy(), atol=1e-6
        )
        row = own.detach().flip(-1).requires_grad_()
        other = m.trace(tokens, attention={layer: row})
        assert torch.equal(other.attention[layer], row)
        assert (other.logits - plain.logits).abs().max() > 1e-3
        (gradient,) = torch.autograd.grad(other.logits.sum(), row)
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("family", [*FAMILIES, "deberta"])
def test_a_trace_of_some_layers_shows_these_and_the_same_logits(family: str) -> None:
    m = model(family)
    tokens = m.tokens(TEXTS)
    whole = m.trace(tokens)
    for layers in ([-1], [0], [0, -1], []):
        some = m.trace(tokens, layers=layers)
        np.testing.assert_allclose(
            some.logits.detach().numpy(), whole.logits.detach().numpy(), atol=1e-4
        )
        for layer in layers:
            np.testing.assert_allclose(
                some.attention[layer].detach().numpy(),
                whole.attention[layer].detach().numpy(),
                atol=1e-4,
            )
        if family in FAMILIES and layers:
            shown = [n % len(whole.attention) for n in layers]
            assert [i for i, w in enumerate(some.attention) if w.numel()] == sorted(set(shown))
    if family in FAMILIES:
        own = whole.attention[0].detach().flip(-1)
        expected = m.trace(tokens, attention={0: own}).logits.detach().numpy()
        np.testing.assert_allclose(
            m.trace(tokens, {0: own}, layers=[]).logits.detach().numpy(), expected, atol=1e-4
        )


@pytest.mark.parametrize("family", [*FAMILIES, *OUTSIDE])
def test_attending_elsewhere_runs_only_the_last_row_and_gives_the_same(family: str) -> None:
    """Against a whole pass with the row replaced; ALBERT, whose layers are one, has to run that."""
    m = model(family)
    tokens = m.tokens(TEXTS)
    plain, logits, cheap, _ = m.attending(tokens)
    rows = plain.classifying_rows()
    torch.testing.assert_close(logits(rows), plain.logits, rtol=1e-3, atol=2e-4)
    other = torch.rand(3, *rows.shape).softmax(-1).requires_grad_()
    last = len(plain.attention) - 1
    expected = m.trace(tokens, attention={last: other}).logits
    found = logits(other)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-4)
    (fast,), (slow,) = (
        torch.autograd.grad(z[..., 0].sum(), other, retain_graph=True) for z in (found, expected)
    )
    torch.testing.assert_close(fast, slow, rtol=1e-2, atol=1e-3)
    ran = []
    handles = [
        module.register_forward_hook(lambda module, given, output: ran.append(output.shape))
        for module in m.model.modules()
        if type(module) is torch.nn.LayerNorm
    ]
    logits(rows)
    for handle in handles:
        handle.remove()
    assert cheap == (family not in ("albert", "xlnet"))  # which turns its batches
    if cheap:
        assert all(shape[-2] in (1, len(TEXTS)) for shape in ran)


def test_variants_of_attention_are_passes_of_their_own() -> None:
    m = model("bert")
    tokens = m.tokens(TEXTS[:2])
    own = m.trace(tokens).attention[-1].detach()
    variants = torch.stack([own, own.flip(-1), own.roll(1, -1)])
    together = m.trace(tokens, attention={1: variants}).logits
    for i, variant in enumerate(variants):
        np.testing.assert_allclose(
            together[i].detach().numpy(),
            m.trace(tokens, attention={1: variant}).logits.detach().numpy(),
            atol=1e-5,
        )


@pytest.mark.parametrize("family", [*FAMILIES, "deberta", "mpnet"])
def test_padding_does_not_leak(family: str) -> None:
    m = model(family)
    together = m.trace(m.tokens(TEXTS))
    for i, text in enumerate(TEXTS):
        alone = m.trace(m.tokens([text]))
        np.testing.assert_allclose(
            together.logits[i].detach().numpy(), alone.logits[0].detach().numpy(), atol=1e-4
        )
        n = alone.tokens.shape[1]
        np.testing.assert_allclose(
            together.classifying()[i][:, :n], alone.classifying()[0], atol=1e-4
        )
        assert not together.classifying()[i][:, n:].any()


@pytest.mark.parametrize("family", [*FAMILIES, *OUTSIDE])
def test_the_row_that_classifies_is_found(family: str) -> None:
    m = model(family)
    (tokens,) = m.tokens(TEXTS[:1])
    row = int(m.trace([tokens]).row[0])
    if family in DECODERS or family == "xlnet":
        assert row == len(tokens) - 1
    else:
        assert row == 0


@pytest.mark.parametrize("removal", ["replace", "delete", "hide"])
@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "llama", "deberta", "xlnet"])
def test_scores_are_those_of_documents_assembled_by_hand(family: str, removal: Any) -> None:
    m, rng = model(family), np.random.default_rng(0)
    tokens = m.tokens([TEXTS[0], TEXTS[2], ("good film", "the film is bad")])
    keep = [rng.random((6, len(t.words))) < 0.6 for t in tokens]
    for k in keep:
        k[0], k[1] = True, k[2]  # all present; and a repeated row
    found = m.score(tokens, keep, removal=removal)
    for t, k, scores in zip(tokens, keep, found, strict=True):
        np.testing.assert_allclose(scores[0], m.logits([t])[0], atol=1e-4)
        for row, score in zip(k, scores, strict=True):
            present = np.array([w < 0 or row[w] for w in t.word])
            ids, attends = t.ids, np.ones(len(t.ids), dtype=int)
            types = t.types
            if removal == "delete":
                ids, types, attends = ids[present], types[present], attends[present]
            elif removal == "replace":
                ids = np.where(present, ids, tokenizer().mask_token_id)
            else:
                attends = present.astype(int)
            batch = {"input_ids": ids, "attention_mask": attends} | (
                {"token_type_ids": types} if m._typed else {}
            )
            with torch.no_grad():
                expected = m.model(
                    **{key: torch.from_numpy(value)[None] for key, value in batch.items()}
                ).logits[0]
            np.testing.assert_allclose(score, expected.numpy(), atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "albert", "electra"])
def test_hidden_tokens_are_left_out_where_the_others_keep_their_places(family: str) -> None:
    m = copy.copy(model(family))
    tokens = m.tokens(TEXTS[:3])
    keep = [np.eye(len(t.words), dtype=bool) for t in tokens]
    read: list[int] = []

    def counted(rows: Any) -> Any:
        read.append(max(len(row.ids) for row in rows))
        return Transformer.outputs(m, rows)

    m.outputs = counted
    left_out = m.score(tokens, keep, removal="hide")
    assert m.gaps and max(read) < 10  # one word, of a few pieces, between two special tokens
    m.gaps = False
    hidden = m.score(tokens, keep, removal="hide")
    assert max(read) == max(len(t) for t in tokens)
    for a, b in zip(left_out, hidden, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("family", ["modernbert", "gpt2", "xlnet"])
def test_hidden_tokens_stay_where_their_places_count(family: str) -> None:
    assert not model(family).gaps


@pytest.mark.parametrize("name", [n for n, c in METHODS.items() if CLOSED not in c.needs])
@pytest.mark.parametrize("family", ["bert", "gpt2", "gemma2", "deberta", "xlnet"])
def test_every_method_explains_every_transformer(family: str, name: str) -> None:
    m = model(family)
    settings = (
        {"samples": 60}
        if name in ("lime", "shapley", "anchors")
        else {"steps": 8}
        if name == "integrated-gradients"
        else {}
    )
    if name in REFUSED.get(family, ()):
        with pytest.raises(NotApplicable, match=f"{name} needs .*, which {family} does not offer"):
            heed.explain(m, TEXTS, name)
        return
    together = heed.explain(m, TEXTS, name, **settings)
    for text, e in zip(TEXTS, together, strict=True):
        alone = heed.explain(m, text, name, **settings)
        assert np.isfinite(e.scores).all() and len(e.scores) == len(e.units)
        largest = np.abs(alone.scores).max() or 1.0
        np.testing.assert_allclose(
            e.scores, alone.scores, atol=max(1e-3 * largest, 1e-5)
        )  # saturated ones are noise
        assert [text[a:b] for u in e.units for a, b in u.spans[:1]] == [u.text for u in e.units]


def test_a_failure_leaves_the_model_as_it_was() -> None:
    m = model("bert")
    before = m(TEXTS)
    tokens = m.tokens(TEXTS[:2])
    with pytest.raises(RuntimeError):
        m.trace(tokens, attention={0: torch.ones(1, 2, 3, 4)})
    np.testing.assert_array_equal(m(TEXTS), before)


def test_threads_do_not_disturb_each_other() -> None:
    m = model("gemma2")
    expected = m(TEXTS)
    wrong: list[float] = []

    def read() -> None:
        for _ in range(20):
            wrong.append(float(np.abs(m(TEXTS) - expected).max()))

    def record() -> None:
        for _ in range(20):
            m.trace(m.tokens(TEXTS))

    threads = [threading.Thread(target=f) for f in (read, record, read, record)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(wrong) == 40 and max(wrong) == 0


def test_single_logit_and_multi_label_heads() -> None:
    single = Transformer(
        network("bert", num_labels=1, problem_type="multi_label_classification"),
        tokenizer(),
        "single",
    )
    assert single.labels == ("not LABEL_0", "LABEL_0")
    z = single(TEXTS)
    raw = network("bert", num_labels=1, problem_type="multi_label_classification")
    for text, row, p in zip(TEXTS, z, single.predict(TEXTS)[:, 1], strict=True):
        with torch.no_grad():
            logit = raw.eval()(**inputs(single, text)).logits.item()
        np.testing.assert_allclose(row, [-logit / 2, logit / 2], atol=1e-4)
        assert p == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-4)
    one, other = (
        heed.explain(single, TEXTS[0], "gradient-input", label=label).scores for label in (0, 1)
    )
    np.testing.assert_allclose(one, -other, rtol=1e-4)
    assert np.abs(one).max() > 0  # both labels can be explained
    assert any("one logit" in note for note in single.notes)
    several = Transformer(
        network("bert", problem_type="multi_label_classification"), tokenizer(), "several"
    )
    np.testing.assert_allclose(several.predict(TEXTS), 1 / (1 + np.exp(-several(TEXTS))))
    e = heed.explain(several, TEXTS[0], "occlusion", label="LABEL_2", output="probability")
    assert np.isfinite(e.scores).all()


def test_a_decoder_without_padding_gets_one_with_a_note() -> None:
    m = Transformer(network("gpt2", pad_token_id=None), tokenizer(), "gpt")
    assert any("padding token" in note for note in heed.explain(m, TEXTS[0], "occlusion").notes)
    alone = np.concatenate([m([text]) for text in TEXTS])
    np.testing.assert_allclose(m(TEXTS), alone, atol=1e-4)


def test_sub_words_are_summed_into_words_and_pairs_stay_apart() -> None:
    m = model("bert")
    (tokens,) = m.tokens([("the unbelievable film", "the film")])
    assert [w.text for w in tokens.words] == ["the", "unbelievable", "film", "the", "film"]
    assert (tokens.word == 1).sum() > 1
    words = heed.explain(m, ("the unbelievable film", "the film"), "gradient-input")
    pieces = heed.explain(m, ("the unbelievable film", "the film"), "gradient-input", unit="token")
    owner = tokens.word[~tokens.special]
    np.testing.assert_allclose(words.scores, np.bincount(owner, pieces.scores), atol=1e-5)
    lime = heed.explain(m, ("the unbelievable film", "the film"), "lime")
    assert [(u.text, u.segment) for u in lime.units].count(("film", 0)) == 1
    assert [(u.text, u.segment) for u in lime.units].count(("film", 1)) == 1


def test_a_saved_model_is_loaded_by_its_folder(tmp_path: Path) -> None:
    network("bert").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    m = heed.load(tmp_path)
    np.testing.assert_allclose(m(TEXTS), model("bert")(TEXTS), atol=1e-5)
    assert m.name == tmp_path.name and m.revision == model("bert").revision


def test_a_model_that_is_handed_in_is_loaded_as_it_is() -> None:
    pair = network("bert"), tokenizer()
    np.testing.assert_allclose(heed.load(pair)(TEXTS), model("bert")(TEXTS), atol=1e-5)
    with pytest.raises(InputError, match="stays where and as it is"):
        heed.load(pair, dtype="bfloat16")


def test_pickled_and_missing_models_are_refused(tmp_path: Path) -> None:
    network("bert").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        heed.load(tmp_path)
    with pytest.raises(CheckpointError, match="could not be reached"):
        heed.load("no-such-organisation/no-such-model")


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert"])
def test_one_row_replaces_the_row_that_classifies(family: str) -> None:
    m = model(family)
    tokens = m.tokens(TEXTS[:1])
    plain = m.trace(tokens)
    row = plain.classifying_rows().flip(-1)
    whole = plain.attention[-1].detach().clone()
    if plain.row[0] < 0:
        whole = whole.flip(-1)
    else:
        whole[:, :, plain.row[0]] = row[:, :, 0]
    last = len(plain.attention) - 1
    by_row = m.trace(tokens, attention={last: row}).logits.detach().numpy()
    np.testing.assert_allclose(
        by_row, m.trace(tokens, attention={last: whole}).logits.detach().numpy(), atol=1e-5
    )
    assert np.abs(by_row - plain.logits.detach().numpy()).max() > 1e-4


@pytest.mark.parametrize("family", ["bert", "llama", "deberta"])
def test_an_audit_runs_on_a_transformer(family: str) -> None:
    audit = heed.audit(model(family), TEXTS * 8, examples=1)
    outcomes = {v.claim.id: v.outcome for v in audit.verdicts}
    assert outcomes["used"] != "not applicable"
    assert all(len(e.rows) == 32 for e in audit.evidence if not e.reason)


def test_a_model_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    network("bert").bert.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"not a trained classifier: it lacks classifier\.bias"
    ):
        heed.load(tmp_path)


def test_a_model_that_is_handed_in_is_left_alone_and_its_further_training_is_seen() -> None:
    theirs = network("bert").train()
    theirs.config.pad_token_id = None
    before = (
        theirs.config.to_dict(),
        theirs.config._attn_implementation,
        [p.requires_grad for p in theirs.parameters()],
    )
    ours = Transformer(theirs, tokenizer(), "bert")
    first = ours(TEXTS)
    ours.trace(ours.tokens(TEXTS[:1]))
    after = (
        theirs.config.to_dict(),
        theirs.config._attn_implementation,
        [p.requires_grad for p in theirs.parameters()],
    )
    assert before == after and theirs.training
    assert not any(module._forward_hooks for module in theirs.modules())
    with torch.no_grad():
        theirs.classifier.bias += 1
    np.testing.assert_allclose(ours(TEXTS), first + 1, atol=1e-5)


def test_a_model_and_its_tokenizer_or_a_pipeline_of_them_can_be_explained() -> None:
    theirs = network("bert").eval()
    expected = heed.explain(model("bert"), TEXTS[0], "occlusion").scores
    both = heed.explain((theirs, tokenizer()), TEXTS[0], "occlusion")
    np.testing.assert_allclose(both.scores, expected, atol=1e-5)
    assert both.model == "bert"
    pipeline = transformers.pipeline("text-classification", model=theirs, tokenizer=tokenizer())
    assert (
        heed.compare(pipeline, TEXTS[0], ["rollout", "occlusion"]).explanations[1].model == "bert"
    )
    with pytest.raises(InputError, match=r"Got \(tokenizer, model\): swap them"):
        heed.explain((tokenizer(), theirs), TEXTS[0], "occlusion")
    with pytest.raises(InputError, match="needs its tokenizer"):
        heed.explain(theirs, TEXTS[0])
    with pytest.raises(InputError, match="sequence classifiers"):
        heed.explain((theirs.bert, tokenizer()), TEXTS[0])
    with pytest.raises(CheckpointError, match="no fast version"):
        heed.explain((theirs, SimpleNamespace(model_max_length=512)), TEXTS[0])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("family", ["bert", "gpt2", "xlnet"])
def test_batch_size_and_order_do_not_matter(
    family: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same samples, and scores within 1e-5 of the largest, for batches of 1, 7 and 64."""
    m = Transformer(network(family, initializer_range=0.2), tokenizer(), family)
    if METHODS[name].needs - m.offers:
        pytest.skip(f"{family} does not offer what {name} needs")
    settings = {
        "lime": {"samples": 80},
        "shapley": {"samples": 80},
        "anchors": {"samples": 200},
        "slalom": {"samples": 200},
    }.get(name, {})
    texts = [*TEXTS, *(" ".join(text.split()[::-1]) for text in TEXTS)]
    longest = max(len(t) for t in m.tokens(texts))
    asked: list[np.ndarray] = []
    score = m.score

    def watched(tokens: Any, keep: Any, *more: Any) -> Any:
        asked.extend(keep)
        return score(tokens, keep, *more)

    monkeypatch.setattr(m, "score", watched)
    found, drawn = [], []
    for size in (1, 7, 64):
        m.batch_tokens = size * longest
        asked.clear()
        order = np.random.default_rng(size).permutation(len(texts))
        explained = heed.explain(m, [texts[i] for i in order], name, **settings)
        found.append([explained[i].scores for i in np.argsort(order)])
        if name not in ("anchors", "flip"):  # which ask several times
            drawn.append([asked[i] for i in np.argsort(order)] if asked else [])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            # single precision knows an output of about 1, and no change of it, to seven digits
            near = 1e-5 * max(np.abs(a).max(), 0.02)
            np.testing.assert_allclose(a, b, rtol=0, atol=near)
    for rows in drawn[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(drawn[0], rows, strict=True))


def reader(**changes: Any) -> Any:
    """The tokenizer with other special tokens."""
    found = copy.deepcopy(tokenizer())
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_padding_never_stands_in_for_a_word() -> None:
    """Decoders find the last token by its id: padding in place of a word would move the row."""
    m = Transformer(
        network("gpt2", pad_token_id=1), reader(mask_token=None), "gpt2"
    )  # 1 is [UNK], the only filler
    assert m.removals == ("delete", "hide")


def test_the_last_row_is_the_one_that_the_model_takes() -> None:
    """The last token that is not padding by its id, also where a text ends in such a token."""
    m = Transformer(
        network("llama", pad_token_id=3), reader(pad_token="[SEP]"), "llama"
    )  # every text ends in [SEP]
    tokens = m.tokens(TEXTS[:2])
    trace = m.trace(tokens)
    assert trace.row.tolist() == [len(t) - 2 for t in tokens]
    for i, row in enumerate(trace.row.tolist()):
        gradients = torch.autograd.grad(
            trace.logits[i].sum(), trace.attention[-1], retain_graph=True
        )[0]
        assert np.flatnonzero(gradients[i].abs().sum((0, 2)).numpy()).tolist() == [row]


def test_a_model_that_averages_its_rows_is_found_out() -> None:
    m = Transformer(network("modernbert", classifier_pooling="mean"), tokenizer(), "modernbert")
    assert m.trace(m.tokens(TEXTS)).row.tolist() == [-1] * len(TEXTS)
    assert not any(getattr(module, "heed_first_row", False) for module in m.model.modules())


def test_labels_with_opposite_weights_do_not_hide_the_row() -> None:
    net = network("bert", num_labels=2)
    with torch.no_grad():
        net.classifier.weight[0] = -net.classifier.weight[1]
    assert Transformer(net, tokenizer(), "bert")._row == "first"


def test_labels_with_equal_names_stay_apart() -> None:
    net = network("bert", id2label={0: "x", 1: "x", 2: "y"}, label2id={"x": 0, "y": 2})
    e = heed.explain((net, tokenizer()), TEXTS[0], "random")
    assert list(e.probabilities) == ["x (0)", "x (1)", "y (2)"]
    assert sum(e.probabilities.values()) == pytest.approx(1)


def test_folders_with_broken_weights_or_no_tokenizer_are_refused(tmp_path: Path) -> None:
    network("bert", vocab_size=1000).save_pretrained(tmp_path / "bare")
    with pytest.raises(CheckpointError, match="without its tokenizer"):
        heed.load(tmp_path / "bare")
    network("bert").save_pretrained(tmp_path / "junk")
    tokenizer().save_pretrained(tmp_path / "junk")
    (tmp_path / "junk" / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        heed.load(tmp_path / "junk")


def test_positions_behind_padding_are_counted() -> None:
    for family in ("roberta", "mpnet"):
        net = network(family, max_position_embeddings=20, pad_token_id=1)
        m = Transformer(net, reader(model_max_length=10**9, pad_token="[UNK]"), family)
        assert m.tokenizer.max_tokens == 18
        assert np.isfinite(m(["good film " * 50])).all()


def test_attention_of_a_class_of_ones_own_is_found() -> None:
    net = network("bert")
    for layer in net.bert.encoder.layer:
        layer.attention.self.__class__ = type(
            "Mine", (type(layer.attention.self),), {"__module__": __name__}
        )
    m = Transformer(net, tokenizer(), "mine")
    np.testing.assert_allclose(
        m.trace(m.tokens(TEXTS[:1])).attention[0].detach(),
        model("bert").trace(m.tokens(TEXTS[:1])).attention[0].detach(),
    )


def test_a_text_that_loses_every_word_is_still_read() -> None:
    bare = reader()
    bare.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A", pair="$A $B"
    )
    for family in ("gpt2", "bert"):
        m = Transformer(network(family), bare, family)
        m.even = True
        nothing = np.zeros((1, 12), dtype=bool)
        assert np.isfinite(m.score(m.tokens(TEXTS[:1]), [nothing], removal="delete")[0]).all()


def test_a_padding_id_below_zero_is_none() -> None:
    m = Transformer(network("llama", pad_token_id=-1), tokenizer(), "llama")
    assert any("padding token" in note for note in m.notes)
    np.testing.assert_allclose(m(TEXTS)[1:2], m(TEXTS[1:2]), atol=1e-4)


@pytest.mark.parametrize("family", [*FAMILIES, "deberta"])
def test_only_the_first_row_of_the_last_attention_is_computed_where_it_alone_counts(
    family: str,
) -> None:
    """And nothing changes by it, neither outputs nor gradients."""
    m = model(family)
    short = [module for module in m.model.modules() if getattr(module, "heed_first_row", False)]
    expected = family in (
        "bert",
        "roberta",
        "xlm-roberta",
        "camembert",
        "distilbert",
        "electra",
    )  # ALBERT shares layers
    expected = expected or (family == "modernbert" and m._row == "first")
    assert len(short) == expected
    linear = [module for module in m.model.modules() if type(module) is torch.nn.Linear]
    mapped = [module for module in linear if "forward" in vars(module)]
    assert (len(mapped) >= 3) == expected  # behind attention, and two of the feed-forward part
    tokens = m.tokens(TEXTS)
    fast = m.gradient(tokens, [1] * len(TEXTS), at="lookup"), m.logits(tokens)
    plain = Transformer(network(family), tokenizer(), family)
    for module in plain.model.modules():
        vars(module).pop("forward", None)
        vars(module).pop("heed_first_row", None)
    slow = plain.gradient(tokens, [1] * len(TEXTS), at="lookup"), plain.logits(tokens)
    np.testing.assert_allclose(fast[1], slow[1], atol=1e-4)
    for a, b in zip(fast[0], slow[0], strict=True):
        np.testing.assert_allclose(
            a.gradient, b.gradient, atol=1e-5 * max(1e-6, np.abs(b.gradient).max())
        )
