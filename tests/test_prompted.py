"""Language models that are prompted: beside a literal call of the model, by hand."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

import heed
from heed import store as store_module
from heed.claims import CLAIMS, Study
from heed.errors import CheckpointError, InputError
from heed.methods import METHODS
from heed.methods.method import units_of
from heed.models.classifier import CLOSED
from heed.models.template import PromptTokenizer, Template, label_words
from heed.store import Store
from heed.text import Document, Tokenizer
from tests.test_cli import command, refused

transformers = pytest.importorskip("transformers")

TEXT = "the film was very good , but the plot is not"
OTHERS = ["bad", "a great great plot .", "it is good and it is bad and it is slow and it is great"]
TEMPLATE = "Review: {text}\nSentiment:"
LABELS = {"negative": " bad", "positive": " good"}
SEVERAL = {"negative": [" bad", " slow"], "positive": [" good", " great"]}
LONGER = {"negative": " very bad", "positive": [" very good", " great"], "other": " not it"}
CHAT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
SIZES |= {"num_key_value_heads": 2, "intermediate_size": 40, "max_position_embeddings": 96}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SIZES,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96},
    # soft caps of attention and output, windows shorter than the text
    "gemma2": SIZES
    | {"sliding_window": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "cohere": SIZES | {"logit_scale": 0.3},
    "granite": SIZES | {"logits_scaling": 5.0},
}
ODD_FAMILIES: dict[str, dict[str, Any]] = {
    "mistral": SIZES | {"sliding_window": 24},
    # counts positions by what is seen
    "opt": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 40}
    | {"max_position_embeddings": 96, "word_embed_proj_dim": 32},
    # turns by other angles in texts of more than 32 tokens
    "phi3": SIZES
    | {
        "original_max_position_embeddings": 32,
        "pad_token_id": 1,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0] * 4,
            "long_factor": [4.0, 3.0, 2.0, 1.0],
            "original_max_position_embeddings": 32,
            "factor": 3.0,
        },
    },
}
SMALL: dict[str, dict[str, Any]] = {
    "lime": {"samples": 61},
    "shapley": {"samples": 61},
    "anchors": {"samples": 100},
    "slalom": {"samples": 100},
    "integrated-gradients": {"steps": 5},
}


@cache
def tokenizer() -> Any:
    """A byte-level tokenizer as GPT-2's, which knows the words of the texts."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<|end|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|system|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    texts = [TEXT, *OTHERS, "Review: it\nSentiment: good", "Review: a\nSentiment: bad"]
    backend.train_from_iterator(texts * 20, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        chat_template=CHAT,
        model_max_length=96,
    )


@cache
def network(family: str = "llama", seed: int = 0) -> Any:
    """A small language model with large random weights, so that mistakes show."""
    ids = {"vocab_size": len(tokenizer()), "eos_token_id": 0, "bos_token_id": 0}
    sizes = (FAMILIES | ODD_FAMILIES)[family]
    config = transformers.AutoConfig.for_model(family, **sizes, **ids)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = transformers.AutoModelForCausalLM.from_config(config)
        for parameter in built.parameters():
            if parameter.ndim >= 2:
                torch.nn.init.normal_(parameter, std=0.25)
    return built.eval()


@cache
def model(family: str = "llama", kind: str = "one", **options: Any) -> Any:
    labels = {"one": LABELS, "several": SEVERAL, "longer": LONGER}[kind]
    return heed.prompted(network(family), tokenizer(), TEMPLATE, labels, **options)


def following(prompt: str, family: str = "llama") -> torch.Tensor:
    """What the language model says of the token that follows a prompt, called by hand."""
    inputs = tokenizer()(prompt, return_tensors="pt")
    with torch.no_grad():
        return network(family)(**inputs).logits[0, -1].double()


def log_probability(prompt: str, word: str, family: str = "llama") -> float:
    """Of a word of any number of tokens, one pass for each token."""
    total = 0.0
    for token in tokenizer()(word).input_ids:
        total += float(following(prompt, family).log_softmax(-1)[token])
        prompt += tokenizer().decode([token])
    return total


def filled(text: str) -> str:
    return TEMPLATE.replace("{text}", text)


# Logits


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_labels_are_those_of_the_language_model(family: str) -> None:
    texts = [TEXT, *OTHERS]
    answers = model(family)(texts)
    ids = [tokenizer()(word).input_ids for word in LABELS.values()]
    assert all(len(word) == 1 for word in ids)
    for text, row in zip(texts, answers, strict=True):
        expected = following(filled(text), family)[[word[0] for word in ids]]
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)


def test_probabilities_of_several_words_of_a_label_add_up() -> None:
    answers = model(kind="several").predict([TEXT])[0]
    p = following(filled(TEXT)).softmax(-1)
    sums = np.array(
        [sum(float(p[tokenizer()(w).input_ids[0]]) for w in ws) for ws in SEVERAL.values()]
    )
    np.testing.assert_allclose(answers, sums / sums.sum(), rtol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_words_of_several_tokens_multiply_their_probabilities(family: str) -> None:
    texts = [TEXT, *OTHERS]
    lengths = [len(tokenizer()(w).input_ids) for w in (" very bad", " great", " not it")]
    assert lengths[0] > 1 and lengths[1] == 1
    for text, row in zip(texts, model(family, "longer")(texts), strict=True):
        expected = []
        for words in LONGER.values():
            listed = [words] if isinstance(words, str) else words
            parts = [log_probability(filled(text), word, family) for word in listed]
            expected.append(np.logaddexp.reduce(parts))
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-4)


def literal(family: str, ids: np.ndarray, seen: np.ndarray | None = None) -> list[float]:
    """Logits of LONGER, by one pass over the prompt and each word."""
    mask = np.ones(len(ids), dtype=int) if seen is None else seen.astype(int)
    logits = []
    for words in LONGER.values():
        parts = []
        for word in [words] if isinstance(words, str) else words:
            tokens = tokenizer()(word).input_ids
            whole = torch.tensor([[*ids, *tokens[:-1]]])
            both = torch.tensor([[*mask, *[1] * (len(tokens) - 1)]])
            with torch.no_grad():
                p = network(family)(whole, attention_mask=both).logits[0].double().log_softmax(-1)
            parts.append(sum(float(p[len(ids) - 1 + i, token]) for i, token in enumerate(tokens)))
        logits.append(float(np.logaddexp.reduce(parts)))
    return logits


def test_padding_takes_no_room_in_a_window_that_words_of_several_tokens_look_back() -> None:
    m = model("mistral", "longer")
    texts = [TEXT, TEXT + " and it is slow and it is great" * 4, *OTHERS]
    tokens = m.tokens(texts)
    assert min(len(t) for t in tokens) < 24 < max(len(t) for t in tokens)
    expected = [literal("mistral", t.ids) for t in tokens]
    np.testing.assert_allclose(m(texts), expected, rtol=1e-4, atol=1e-4)
    trace = m.trace(tokens[:1]).logits.detach()
    np.testing.assert_allclose(trace, expected[:1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "opt", "mistral"])
def test_words_of_several_tokens_follow_a_prompt_without_some_of_its_words(family: str) -> None:
    m = model(family, "longer")
    (t,) = m.tokens([TEXT])
    keep = np.ones((1, len(t.words)), dtype=bool)
    keep[0, 3:6] = False
    present = np.where(t.word >= 0, keep[0][t.word], True)
    expected = {
        "delete": literal(family, t.ids[present]),
        "hide": literal(family, t.ids, present),
    }
    assert m.removals == (("delete",) if family == "opt" else ("delete", "hide"))
    for removal in m.removals:
        (got,) = m.score([t], [keep], removal=removal)
        np.testing.assert_allclose(got[0], expected[removal], rtol=1e-4, atol=1e-4)


def test_positions_that_depend_on_the_length_are_those_of_each_text() -> None:
    m = model("phi3")
    assert m.even and m.shares == 0
    texts = [TEXT, TEXT + " and it is slow and it is great" * 3]
    assert [len(t) > 32 for t in m.tokens(texts)] == [False, True]
    ids = [word[0] for word in m.completions.words]
    for text, row in zip(texts, m(texts), strict=True):
        expected = following(filled(text), "phi3")[ids]
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-4)


def test_labels_that_begin_with_the_same_token_are_told_apart() -> None:
    m = heed.prompted(network(), tokenizer(), TEMPLATE, {"a": " very bad", "b": " very good"})
    (row,) = m([TEXT])
    expected = [log_probability(filled(TEXT), word) for word in (" very bad", " very good")]
    np.testing.assert_allclose(row, expected, rtol=1e-4)
    assert abs(row[0] - row[1]) > 0.1


@pytest.mark.parametrize("kind", ["one", "longer"])
def test_calibration_subtracts_what_follows_an_empty_text(kind: str) -> None:
    plain, calibrated = model(kind=kind), model(kind=kind, calibrate=True)
    texts = [TEXT, *OTHERS]
    odds = [np.log(m.predict(texts)) for m in (plain, calibrated)]
    empty = np.log(plain.probabilities(plain.logits(plain.tokenizer([Document("")]))))
    difference = odds[0] - odds[1] - empty  # the same for all labels
    np.testing.assert_allclose(
        difference, difference[:, :1].repeat(difference.shape[1], 1), atol=1e-5
    )
    (flat,) = calibrated.logits(calibrated.tokenizer([Document("")]))
    np.testing.assert_allclose(flat, 0, atol=1e-6)


def test_a_chat_is_the_message_of_a_user() -> None:
    m = heed.prompted(
        network(), tokenizer(), "{text} ?", ["bad", "good"], chat=True, system="it is a film"
    )
    prompt = f"<|system|>it is a film\n<|user|>{TEXT} ?\n<|assistant|>\n"
    (tokens,) = m.tokens([TEXT])
    assert tokens.ids.tolist() == tokenizer()(prompt).input_ids
    ids = [tokenizer()(word).input_ids for word in ("bad", "good")]  # no blank behind a line break
    assert m.completions.words == tuple(map(tuple, ids))


def test_the_model_that_is_passed_in_is_left_alone() -> None:
    net = network()
    before, forward = net.config.to_dict(), net.forward
    model(kind="longer")
    assert net.config.to_dict() == before and net.forward == forward
    assert following(filled(TEXT)).shape == (len(tokenizer()),)


# Tokens


@pytest.mark.parametrize(
    "text", [TEXT, " bad ", "{text} {pair} {0}", "Review: it\nSentiment:", "ü 🙂"]
)
def test_ids_are_those_of_the_whole_prompt_and_words_slice_the_text(text: str) -> None:
    (tokens,) = model().tokens([text])
    assert tokens.ids.tolist() == tokenizer()(filled(text)).input_ids
    assert [w.text for w in tokens.words] == [text[w.start : w.end] for w in tokens.words]
    assert "".join(w.text for w in tokens.words) == "".join(text.split())
    assert tokens.template.any() and not (tokens.template & ~tokens.special).any()


def test_a_token_over_the_border_is_clipped_to_the_text() -> None:
    m = heed.prompted(network(), tokenizer(), "it is {text}ly", LABELS)
    for text in ("good", "bad "):
        (tokens,) = m.tokens([text])
        assert [(w.text, w.start, w.end) for w in tokens.words] == [
            (text.strip(), 0, len(text.strip()))
        ]


def test_long_texts_are_cut_and_the_template_stays() -> None:
    m = model()
    text = " ".join(["good"] * 200)
    (tokens,) = m.tokens([text])
    assert len(tokens) == m.tokenizer.max_tokens == 96
    before, after = (tokenizer()(part).input_ids for part in ("Review:", "\nSentiment:"))
    assert tokens.ids[: len(before)].tolist() == before
    assert tokens.ids[-len(after) :].tolist() == after
    assert tokens.dropped == 200 - len(tokens.words) > 0
    assert any("were cut off" in note for note in heed.explain(m, text, "attention-mean").notes)


def test_pairs_stand_where_the_template_has_them() -> None:
    m = heed.prompted(network(), tokenizer(), "it is {pair} but {text} :", LABELS)
    (tokens,) = m.tokens([("the film", "a plot")])
    assert tokens.ids.tolist() == tokenizer()("it is a plot but the film :").input_ids
    assert [(w.segment, w.text) for w in tokens.words] == [
        (1, "a"),
        (1, "plot"),
        (0, "the"),
        (0, "film"),
    ]
    with pytest.raises(InputError, match="give pairs of texts"):
        m([TEXT])
    with pytest.raises(InputError, match=r"no \{pair\}"):
        model()([Document("a film", "a plot")])


def test_the_tokens_of_labels_are_those_that_follow_the_prompt() -> None:
    prompt = PromptTokenizer(tokenizer().backend_tokenizer, 96, None, Template(TEMPLATE), True)
    assert prompt.continuation(" good") == tuple(tokenizer()(" good").input_ids)
    blank = PromptTokenizer(
        tokenizer().backend_tokenizer, 96, None, Template("{text} It is "), True
    )
    # "is " and "good" would become "is" and " good": the word is then read by itself
    assert blank.continuation("good") == tuple(tokenizer()("good").input_ids)


def sentencepiece() -> tokenizers.Tokenizer:
    """A tokenizer of Llama's first kind: whole texts, "▁" for blanks and one before the text."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True))
    blanks = tokenizers.normalizers.Replace(" ", "▁")
    backend.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), blanks]
    )
    special = ["<unk>", "<s>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, max_token_length=6
    )
    backend.train_from_iterator(f"Review: {TEXT} Sentiment: great".split() * 30, trainer)
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return backend


@pytest.mark.parametrize("template", [TEMPLATE, "{text} It is", "Is ({text}) good?"])
@pytest.mark.parametrize("text", [TEXT, "  great , ü 🙂 plot", " bad"])
def test_tokenizers_of_whole_texts_find_the_words_of_the_text(template: str, text: str) -> None:
    backend = sentencepiece()
    prompt = PromptTokenizer(backend, 200, 0, Template(template), True)
    (tokens,) = prompt([Document(text)])
    assert tokens.ids.tolist() == backend.encode(template.replace("{text}", text)).ids
    assert [w.text for w in tokens.words] == text.split()
    assert [backend.id_to_token(i) for i in prompt.continuation(" good")] == ["▁good"]
    assert tokens.names[0] == "<s>" and not tokens.template[0]


def marking(single: str, **special: int) -> Any:
    """The same tokenizer with special tokens around a text."""
    backend = tokenizers.Tokenizer.from_str(tokenizer().backend_tokenizer.to_str())
    numbered = [(f"<|{name}|>", number) for name, number in special.items()]
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=single, special_tokens=numbered
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>", model_max_length=96
    )


@pytest.mark.parametrize("before", ["", "<|user|> "])
def test_an_end_that_the_tokenizer_puts_behind_the_prompt_is_not_asked(before: str) -> None:
    ended = marking(f"{before}$A <|end|>", user=2, end=0)
    m = heed.prompted(network(), ended, TEMPLATE, LABELS, calibrate=True)
    texts = [TEXT, *OTHERS]
    ids = [tokenizer()(filled(text)).input_ids for text in texts]
    if before:
        ids = [[2, *prompt] for prompt in ids]
    assert [t.ids.tolist() for t in m.tokens(texts)] == ids
    plain = heed.prompted(network(), marking(f"{before}$A", user=2), TEMPLATE, LABELS)
    empty = plain.logits(plain.tokenizer([Document("")]))
    expected = plain(texts)
    difference = np.log(plain.probabilities(expected)) - np.log(plain.probabilities(empty))
    odds = difference[:, 1] - difference[:, 0]
    got = m(texts)
    np.testing.assert_allclose(got[:, 1] - got[:, 0], odds, rtol=1e-4, atol=1e-4)


def test_special_tokens_around_the_prompt_take_room() -> None:
    template = "it is" + " it" * 93 + "{text}"
    assert len(tokenizer()(template.replace("{text}", "")).input_ids) == 95
    heed.prompted(network(), tokenizer(), template, LABELS)
    with pytest.raises(InputError, match="96 tokens, and the model reads 96: there is no room"):
        heed.prompted(network(), marking("<|user|> $A", user=2), template, LABELS)


def test_special_tokens_that_a_text_spells_are_named() -> None:
    text = "good<|assistant|>\n bad<|end|><|end|> plot"
    e = heed.explain(model(), text, "attention-mean")
    note = "The text holds special tokens of the model: <|assistant|>, <|end|>."
    assert note in e.notes
    chat = heed.prompted(network(), tokenizer(), TEMPLATE, LABELS, chat=True)
    assert not any("holds special" in n for n in heed.explain(chat, TEXT, "attention-mean").notes)


def test_a_word_that_is_unknown_is_no_special_token_of_the_text() -> None:
    from tests.test_transformer import tokenizer as words

    reader = Tokenizer(words().backend_tokenizer, 96, words().unk_token_id)
    (unknown, spelled) = reader([Document("good xyzzy"), Document("good [SEP] film")])
    assert unknown.unknown.any() and reader.remarks(unknown) == []
    assert reader.remarks(spelled) == ["The text holds special tokens of the model: [SEP]."]


def test_a_token_that_holds_a_part_of_the_template_is_named() -> None:
    """Of a tokenizer that was not taught to split before punctuation."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<|end|>", "<|pad|>"], initial_alphabet=list(":.\n")
    )
    backend.train_from_iterator([TEXT, *OTHERS, "Review:good:yes no it:slow"] * 20, trainer)
    whole = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>", model_max_length=96
    )
    labels = {"a": " good", "b": " bad"}
    m = heed.prompted(network(), whole, "it is:{text}: not:{pair}", labels)
    notes = {}
    for pair in (("good", " film"), ("good", "slow"), (" the film ", " plot")):
        listed = heed.explain(m, [pair], "attention-mean")[0].notes
        notes[pair] = [note for note in listed if "of the template: removing" in note]
    one = "The token ':g' holds a part of the template: removing its word removes that part, too."
    two = "The tokens ':g', ':slow' hold parts of the template: removing their words removes"
    assert list(notes.values()) == [[one], [f"{two} these parts, too."], []]
    plain = heed.explain(model(), TEXT, "attention-mean").notes
    assert not any("of the template: removing" in note for note in plain)


# Methods


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("kind", ["one", "longer"])
@pytest.mark.parametrize("name", [name for name, cls in METHODS.items() if CLOSED not in cls.needs])
def test_every_method_explains_a_prompted_model(family: str, kind: str, name: str) -> None:
    m = model(family, kind)
    e = heed.explain(m, TEXT, name, **SMALL.get(name, {}))
    assert {u.text for u in e.units} == set(TEXT.split()) and np.isfinite(e.scores).all()
    *sinks, template = [s.text for s in e.specials] or ["template"]
    assert template == "template" and all(name.endswith("(sink)") for name in sinks)
    assert any(repr(TEMPLATE) in note for note in e.notes)


@pytest.mark.parametrize("name", [name for name, cls in METHODS.items() if CLOSED not in cls.needs])
def test_a_list_is_one_by_one_in_any_order(name: str) -> None:
    """Within 1e-5 of the largest score or logit, as heed promises of every method."""
    m = model(kind="several")
    texts = [TEXT, *OTHERS]
    together = heed.explain(m, texts[::-1], name, **SMALL.get(name, {}))[::-1]
    largest = float(np.abs(m(texts)).max())
    for text, one in zip(texts, together, strict=True):
        alone = heed.explain(m, text, name, **SMALL.get(name, {}))
        scale = max(largest, np.abs(alone.scores).max())
        np.testing.assert_allclose(one.scores, alone.scores, rtol=0, atol=1e-5 * scale)


def test_attention_of_the_last_token_is_that_of_the_language_model() -> None:
    e = heed.explain(model(), TEXT, "attention-mean", sink="kept")
    eager = transformers.AutoModelForCausalLM.from_config(
        network().config, attn_implementation="eager"
    )
    eager.load_state_dict(network().state_dict())
    with torch.no_grad():
        output = eager(**tokenizer()(filled(TEXT), return_tensors="pt"), output_attentions=True)
    row = output.attentions[-1][0, :, -1].mean(0).numpy()
    (tokens,) = model().tokens([TEXT])
    _, groups = units_of(tokens)
    by_word = [row[groups == i].sum() for i in range(len(e.units))]
    np.testing.assert_allclose(e.scores, by_word, atol=1e-6)
    np.testing.assert_allclose(e.specials[0].score, row[tokens.template].sum(), atol=1e-6)


def test_words_are_removed_and_the_template_is_not() -> None:
    m = model()
    assert m.removals[0] == "delete"
    (tokens,) = m.tokens([TEXT])
    nothing = np.zeros((1, len(tokens.words)), dtype=bool)
    (emptied,) = m.score([tokens], [nothing], removal="delete")
    ids = tokens.ids[tokens.template]
    with torch.no_grad():
        expected = network()(torch.from_numpy(ids)[None]).logits[0, -1]
    words = [word[0] for word in m.completions.words]
    np.testing.assert_allclose(emptied[0], expected[words], rtol=1e-4, atol=1e-4)


def test_other_attention_in_the_last_layer_is_the_same_by_one_row_and_by_whole_passes() -> None:
    for kind in ("one", "longer"):
        m = model(kind=kind)
        tokens = m.tokens([TEXT, OTHERS[1]])
        attending = m.attending(tokens)
        assert attending.cheap
        rows = attending.trace.classifying_rows()
        even = torch.where(rows > 0, 1.0, 0.0)
        even = even / even.sum(-1, keepdim=True)
        whole = m.trace(tokens, attention={1: even}).logits
        torch.testing.assert_close(attending.logits(even), whole, rtol=1e-4, atol=1e-4)
        variants = attending.logits(torch.stack([rows, even]))
        torch.testing.assert_close(variants[1], whole, rtol=1e-4, atol=1e-4)
        assert (whole - attending.trace.logits).abs().max() > 1e-2


@pytest.mark.parametrize("kind", ["one", "longer"])
def test_gradients_are_those_of_finite_differences(kind: str) -> None:
    m = model(kind=kind)
    tokens = m.tokens([TEXT])
    (result,) = m.gradient(tokens, [1])
    base = torch.from_numpy(result.embeddings).float()[None]
    slope = torch.from_numpy(result.gradient).float()[None]
    step = 0.003 * slope / slope.norm()  # where the output moves most, so that rounding is small
    with torch.no_grad():
        up, down = (m.trace(tokens, embeddings=base + s).logits[0, 1] for s in (step, -step))
    np.testing.assert_allclose(float(slope.norm()), float(up - down) / 0.006, rtol=2e-2)


def test_weights_drawn_anew_are_asked_by_the_same_prompt() -> None:
    m = model(kind="several")
    other = m.randomised(1)
    assert type(other) is type(m) and other.labels == m.labels
    assert np.abs(other([TEXT]) - m([TEXT])).max() > 0.1


def test_another_prompt_is_another_revision() -> None:
    revisions = {
        m.revision
        for m in (
            model(),
            model(kind="several"),
            model(calibrate=True),
            heed.prompted(network(), tokenizer(), "{text} :", LABELS),
        )
    }
    assert len(revisions) == 4
    assert model().revision == heed.prompted(network(), tokenizer(), TEMPLATE, LABELS).revision


def test_models_that_read_otherwise_share_no_rows(tmp_path: Path) -> None:
    """They have the same weights, prompt and name."""
    plain = heed.prompted(network(), marking("$A"), TEMPLATE, LABELS)
    marked = heed.prompted(network(), marking("<|user|> $A", user=2), TEMPLATE, LABELS)
    assert (plain.revision, plain.name) == (marked.revision, marked.name)
    texts = [TEXT, *OTHERS]

    def values(m: Any, store: Path | None) -> list[float]:
        return [
            row["value"] for row in heed.audit(m, texts, ["used"], store=store).evidence[0].rows
        ]

    first = values(plain, tmp_path)
    assert values(marked, tmp_path) == values(marked, None) != first
    digests = {m.tokenizer.digest for m in (plain, marked)}
    shorter = marking("$A")
    shorter.model_max_length = 50
    digests.add(heed.prompted(network(), shorter, TEMPLATE, LABELS).tokenizer.digest)
    assert len(digests) == 3


def test_the_code_of_a_model_is_in_the_key_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store_module._source

    def key() -> str:
        return Study(model(), [Document(TEXT)], store=Store(tmp_path))._key("heed.metrics")

    before = key()
    assert key() == before
    edited = "heed.models.language_model"
    monkeypatch.setattr(store_module, "_source", lambda m: real(m) + b"#" * (m == edited))
    assert key() != before


def test_an_audit_of_a_prompted_model_moves_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    m = model()
    attending = m.attending
    moved: dict[str, float] = {"words": 0, "template": 0}

    def watched(tokens: Any) -> Any:
        plain = attending(tokens)

        def logits(rows: torch.Tensor) -> torch.Tensor:
            change = (rows.detach() - plain.trace.classifying_rows()).abs()
            for b, t in enumerate(tokens):
                for name, keys in (("words", ~t.special), ("template", t.template)):
                    there = change[..., b, :, :, : len(t)][..., torch.from_numpy(keys)]
                    moved[name] = max(moved[name], float(there.max()))
            return plain.logits(rows)

        return plain._replace(logits=logits)

    monkeypatch.setattr(m, "attending", watched)
    claims = [CLAIMS["used"](), CLAIMS["exclusive"](steps=5)]
    audited = heed.audit(m, [TEXT, *OTHERS], claims)
    assert not any(e.refusal for e in audited.evidence)
    assert moved["words"] > 0.1 and moved["template"] < 1e-6


# Refusals


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("Review:", "has no {text}"),
        ("{text} {text}", "{text} once, got it 2 times"),
        ("{text} {pair} {pair}", "{pair} once"),
        (3, "A template is a string"),
        ("good " * 100 + "{text}", "no room for a text"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(template: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        heed.prompted(network(), tokenizer(), template, LABELS)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ({"a": " good"}, "At least two labels"),
        (["a", "a"], "different names"),
        ("a,", "different names"),
        ({"a": " good", "b": " good"}, "stands for 'b' and for 'a'"),
        ({"a": [" good", " good"], "b": " bad"}, "twice"),
        ({"a": "", "b": " bad"}, "not empty"),
        ({"a": [], "b": " bad"}, "not empty"),
        ({"a": 3, "b": " bad"}, "a word or a list of words"),
        ({"a": [3], "b": " bad"}, "a word or a list of words"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(labels: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        heed.prompted(network(), tokenizer(), TEMPLATE, labels)


@pytest.mark.parametrize("size", [0, -5, "x", 2.5, True])
def test_a_batch_of_no_size_is_refused(size: Any) -> None:
    for load in (heed.load, lambda **o: heed.prompted(network(), tokenizer(), **o)):
        with pytest.raises(InputError, match="batch_tokens must be"):
            load(batch_tokens=size)


def test_calibration_of_a_bare_text_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="with an empty text, which has no token here"):
        heed.prompted(network(), tokenizer(), "{text}", LABELS, calibrate=True)


def test_outputs_that_are_no_numbers_are_refused() -> None:
    broken = copy.deepcopy(network())
    (token,) = tokenizer()(" plot").input_ids
    with torch.no_grad():
        broken.model.embed_tokens.weight[token] = float("inf")
    m = heed.prompted(broken, tokenizer(), TEMPLATE, LABELS)
    assert np.isfinite(m(["the film is good"])).all()
    for ask in (
        lambda: m(["the plot is bad"]),
        lambda: heed.explain(m, "the plot is bad", "occlusion"),
        lambda: heed.explain(m, "the plot is bad", "attention-mean"),
        lambda: heed.explain(m, "the plot is bad", "gradient-input"),
        lambda: m.attending(m.tokens(["the plot is bad"])),
    ):
        with pytest.raises(InputError, match="output for a text is not a number; in half"):
            ask()


def test_words_that_are_the_same_tokens_are_refused() -> None:
    from tests.test_transformer import tokenizer as lower_casing

    with pytest.raises(InputError, match="are the same to the tokenizer"):
        heed.prompted(network(), lower_casing(), "{text} is", {"a": " Good", "b": " good"})
    with pytest.raises(InputError, match="does not know the word '🙂'"):
        heed.prompted(network(), lower_casing(), "{text} is", {"a": " 🙂", "b": " good"})


def test_what_is_no_language_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="model of transformers and its tokenizer"):
        heed.prompted(network(), template=TEMPLATE, labels=LABELS)
    with pytest.raises(InputError, match="causal language models, got LlamaModel"):
        heed.prompted(network().model, tokenizer(), TEMPLATE, LABELS)
    with pytest.raises(InputError, match="add chat=True"):
        heed.prompted(network(), tokenizer(), TEMPLATE, LABELS, system="be brief")
    with pytest.raises(CheckpointError, match="There is no model"):
        heed.prompted("no-such-model", template=TEMPLATE, labels=LABELS)
    bare = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer().backend_tokenizer)
    with pytest.raises(InputError, match="no chat template"):
        heed.prompted(network(), bare, TEMPLATE, LABELS, chat=True)


def test_labels_are_typed_with_their_words() -> None:
    typed = label_words("negative=bad|awful, positive", Template("{text} It is"))
    assert typed == {"negative": (" bad", " awful"), "positive": (" positive",)}
    behind_a_blank = label_words(["a", "b"], Template("{text}\n"))
    assert behind_a_blank == {"a": ("a",), "b": ("b",)}


# Folders and the command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny-lm"
    network().save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


def test_a_folder_is_prompted_by_its_name(folder: Path) -> None:
    m = heed.prompted(folder, template=TEMPLATE, labels=LABELS)
    assert m.name == "tiny-lm"
    np.testing.assert_allclose(m([TEXT]), model()([TEXT]), rtol=1e-5)
    with pytest.raises(InputError, match="leave it out"):
        heed.prompted(folder, tokenizer(), TEMPLATE, LABELS)


def test_a_language_model_without_a_template_is_told_what_to_add(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"by --template and --labels, or by heed\.prompted"):
        heed.load(folder)
    with pytest.raises(InputError, match=r"ask a language model by heed\.prompted"):
        heed.explain((network(), tokenizer()), TEXT)


def test_a_template_on_the_command_line(folder: Path) -> None:
    asked = ["--model", folder, "--template", r"Review: {text}\nSentiment:"]
    words = ["--labels", "negative=bad,positive=good"]
    more = ["--method", "occlusion", "--format", "json"]
    (e,) = command("explain", TEXT, *asked, *words, *more).explanations
    expected = heed.explain(model(), TEXT, "occlusion")
    np.testing.assert_allclose(e["scores"], expected.scores, atol=1e-5)
    assert e["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)
    chat = ["--labels", "bad,good", "--chat", "--calibrate"]
    (e,) = command("explain", TEXT, *asked, *chat, *more).explanations
    assert any("<|assistant|>" in note for note in e["notes"])
    chat = ["--labels", "bad,good", "--chat", "--system", "it is a film"]
    (e,) = command("explain", TEXT, *asked, *chat, *more).explanations
    template, labels = "Review: {text}\nSentiment:", ["bad", "good"]
    told = heed.prompted(network(), tokenizer(), template, labels, chat=True, system="it is a film")
    expected = heed.explain(told, TEXT, "occlusion")
    assert e["probabilities"] == pytest.approx(expected.probabilities, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--template", "{text}"], "needs --labels"),
        (["--system", "be brief"], "--system is for a language model"),
        (["--template", "{text}", "--labels", "a,b", "--system", "x"], "add --chat"),
        (["--labels", "a,b"], "add --template"),
        (["--chat"], "--chat is for a language model"),
        (["--calibrate"], "--calibrate is for a language model"),
        (["--template", "x", "--labels", "a,b"], "has no {text}"),
        ([], "is a language model"),
    ],
)
def test_options_that_do_not_go_together_are_one_sentence(
    folder: Path, options: list[str], sentence: str
) -> None:
    refused(command("explain", TEXT, "--model", folder, *options), sentence)


def test_an_audit_of_a_prompted_model_knows_the_labels_of_the_data(
    folder: Path, tmp_path: Path
) -> None:
    data = tmp_path / "reviews.csv"
    rows = [
        f'"{text}",{"positive" if i % 2 else "negative"}' for i, text in enumerate([TEXT, *OTHERS])
    ]
    data.write_text("\n".join(["text,label", *rows]))
    asked = ["--model", folder, "--template", TEMPLATE, "--labels", "negative=bad,positive=good"]
    written = tmp_path / "audit.json"
    done = command("audit", *asked, "--data", data, "--claim", "used", "--output", written)
    assert done.code == 0, done
    assert json.loads(written.read_text())["facts"]["accuracy"] is not None


def test_a_note_says_how_much_the_model_would_say_the_answers() -> None:
    net = network("llama")
    m = heed.prompted(net, tokenizer(), TEMPLATE, LABELS)
    prompt = TEMPLATE.replace("{text}", "It is what it is.")
    ids = torch.tensor([tokenizer()(prompt).input_ids])
    with torch.no_grad():
        p = net(ids).logits[0, -1].double().softmax(-1)
    share = sum(p[word[0]] for word in m.completions.words)
    (note,) = [note for note in m.notes if "shares among the answers" in note]
    assert f"hold {share:.2g} of" in note
    assert repr(tokenizer().decode([int(p.argmax())])) in note
    assert ("That is little" in note) == bool(share < 0.05)


def test_a_note_says_what_calibration_subtracted() -> None:
    m = heed.prompted(network("llama"), tokenizer(), TEMPLATE, LABELS, calibrate=True)
    plain = heed.prompted(network("llama"), tokenizer(), TEMPLATE, LABELS)
    (note,) = [note for note in m.notes if note.startswith("Calibrated")]
    assert not any(note.startswith("Calibrated") for note in plain.notes)
    assert all(f"{label} -" in note for label in m.labels)  # logarithms of probabilities


def test_a_gap_that_heed_does_not_know_is_named(capsys: pytest.CaptureFixture) -> None:
    with heed.show_progress():
        heed.prompted(network("llama"), tokenizer(), TEMPLATE + " {foo} {}", LABELS)
    assert "{foo} in the template stands as it is" in capsys.readouterr().err


def test_a_classifier_needs_no_template(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(**SIZES, vocab_size=len(tokenizer()), pad_token_id=0)
    transformers.LlamaForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="labels of its own, not a language model"):
        heed.prompted(tmp_path, None, TEMPLATE, LABELS)
