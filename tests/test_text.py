"""Documents and tokens: what is read, where it stands, and what was cut off."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from heed.errors import CheckpointError, InputError
from heed.text import CLS, SEP, UNKNOWN, Document, Tokenizer, Tokens

TOKENIZER = Tokenizer.words(
    ["do", "n't", "it", "'s", "the", "film", "unk", "cls", "<", ">", "ok"], 50
)


def read(text: str | tuple[str, str], tokenizer: Tokenizer = TOKENIZER) -> Tokens:
    return tokenizer([Document.of(text)])[0]


def words(text: str | tuple[str, str]) -> list[str]:
    return [w.text for w in read(text).words]


anything = st.text(max_size=60)
hard = st.text(alphabet="aZ'’n t.<br/>😀é\u0301שلا\u200f\x00\x1b\u200d\nİßﬁ\U0001f468", max_size=40)


@given(st.one_of(anything, hard))
def test_spans_slice_the_original_text(text: str) -> None:
    tokens = read(text)
    at = 0
    for i in np.flatnonzero(~tokens.special).tolist():
        start, end = tokens.spans[i]
        assert at <= start < end <= len(text)  # in order, not empty, without overlap
        assert tokens.text(i) == text[start:end]
        assert not text[start:end].isspace()
        at = end
    for word in tokens.words:
        assert word.text == text[word.start : word.end]


@given(st.one_of(anything, hard), st.one_of(anything, hard))
def test_spans_of_a_pair_slice_their_own_segment(first: str, second: str) -> None:
    tokens = read((first, second))
    for word in tokens.words:
        assert word.text == (first, second)[word.segment][word.start : word.end]
    alone = [*read(first).words, *read(second).words]
    if not tokens.dropped and not read(first).dropped and not read(second).dropped:
        assert [w.text for w in tokens.words] == [w.text for w in alone]


@given(st.one_of(anything, hard))
def test_arrays_are_aligned_and_words_are_counted_without_gaps(text: str) -> None:
    tokens = read(text)
    assert (
        len(tokens)
        == len(tokens.ids)
        == len(tokens.spans)
        == len(tokens.segment)
        == len(tokens.names)
        == len(tokens.word)
    )
    own = tokens.word[~tokens.special]
    assert sorted(set(own.tolist())) == list(range(len(tokens.words)))
    assert (np.diff(own) >= 0).all()
    assert tokens.special.tolist() == (tokens.segment < 0).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("don't", ["do", "n't"]),
        ("Don’t", ["Do", "n’t"]),
        ("it's", ["it", "'s"]),
        (
            "it’s we'll they've I'm I'd you're",
            ["it", "’s", "we", "'ll", "they", "'ve", "I", "'m", "I", "'d", "you", "'re"],
        ),
        ("do n't it 's", ["do", "n't", "it", "'s"]),
        ("rock'n'roll", ["rock", "'", "n", "'", "roll"]),
        ("the<br />film<br>ok<br/>it", ["the", "film", "ok", "it"]),
        ("wait... what?!", ["wait", "...", "what", "?", "!"]),
        ("fun 😀😀 end", ["fun", "😀😀", "end"]),
        ("שלום עולם", ["שלום", "עולם"]),
        ("مرحبا film", ["مرحبا", "film"]),
        ("a\x00b\tc\x1bd\n", ["a", "b", "c", "d"]),
        ("caf\u00e9 cafe\u0301", ["caf\u00e9", "cafe\u0301"]),
        ("snake_case 3rd 4.5", ["snake_case", "3rd", "4", ".", "5"]),
        ("", []),
        (" \n\t", []),
    ],
)
def test_words_are_split_as_written(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_curly_and_straight_apostrophes_are_the_same_word_to_the_model() -> None:
    assert (
        read("don’t it’s").ids.tolist()
        == read("don't it's").ids.tolist()
        == read("DO N'T IT 'S").ids.tolist()
    )
    assert [w.form for w in read("Don’t").words] == ["do", "n't"]


@pytest.mark.parametrize("name", [UNKNOWN, CLS, SEP])
def test_a_special_name_in_the_text_is_not_the_special_token(name: str) -> None:
    tokens = read(f"the {name} film")
    assert tokens.special.sum() == 1 and tokens.names[0] == CLS
    assert [w.text for w in tokens.words] == ["the", "<", name[1:-1], ">", "film"]
    assert tokens.ids[3] == TOKENIZER([Document(name[1:-1])])[0].ids[1]


def test_unknown_marks_words_outside_the_vocabulary_and_no_special_token() -> None:
    tokens = read("the zebra film zebra")
    assert [tokens.text(i) for i in np.flatnonzero(tokens.unknown).tolist()] == ["zebra", "zebra"]
    assert tokens.unknown.tolist() == [False, False, True, False, True]


def test_words_of_a_pair_are_keyed_by_segment() -> None:
    tokens = read(("the film", "the film it"))
    assert tokens.names == (CLS, "the", "film", SEP, "the", "film", "it")
    assert tokens.segment.tolist() == [-1, 0, 0, -1, 1, 1, 1]
    assert tokens.word.tolist() == [-1, 0, 1, -1, 2, 3, 4]
    assert [(w.segment, w.start, w.text) for w in tokens.words] == [
        (0, 0, "the"),
        (0, 4, "film"),
        (1, 0, "the"),
        (1, 4, "film"),
        (1, 9, "it"),
    ]


def test_a_pair_with_an_empty_side_keeps_its_words_on_the_right_side() -> None:
    assert [w.segment for w in read(("", "the film")).words] == [1, 1]
    assert [w.segment for w in read(("the film", "")).words] == [0, 0]


@pytest.mark.parametrize("count", [1, 48, 49, 50, 51, 200, 100_000])
def test_every_word_is_read_or_counted_as_dropped(count: int) -> None:
    tokens = read("film " * count)
    assert len(tokens) == min(count + 1, 50)
    assert len(tokens.words) == min(count, 49)
    assert tokens.dropped == max(0, count - 49)


@pytest.mark.parametrize(
    "counts", [(10, 10), (24, 24), (100, 5), (5, 100), (100, 100), (300, 1), (100, 0), (0, 100)]
)
def test_every_word_of_a_pair_is_read_or_counted_as_dropped(counts: tuple[int, int]) -> None:
    first, second = counts
    tokens = read(
        (" ".join(f"a{i}" for i in range(first)), " ".join(f"b{i}" for i in range(second)))
    )
    assert len(tokens) <= 50
    assert len(tokens.words) == min(first + second, 48)
    assert tokens.dropped == first + second - len(tokens.words)
    for segment, letter in enumerate("ab"):  # what is read is the beginning of each side
        kept = [w.text for w in tokens.words if w.segment == segment]
        assert kept == [f"{letter}{i}" for i in range(len(kept))]


def test_a_batch_gives_the_tokens_of_its_documents() -> None:
    documents = [Document("the film"), Document("it 's", "ok"), Document("")]
    for together, alone in zip(TOKENIZER(documents), documents, strict=True):
        assert together.ids.tolist() == TOKENIZER([alone])[0].ids.tolist()
        assert together.document is alone
    assert TOKENIZER([]) == []


@pytest.mark.parametrize("text", ["a lone \ud800 surrogate", "\udcff"])
def test_text_that_is_not_unicode_is_read_or_refused_in_one_sentence(text: str) -> None:
    """The command line hands over bytes that are not UTF-8 as lone surrogates."""
    with suppress(InputError):
        assert all(w.text == text[w.start : w.end] for w in read(text).words)


# Vocabulary


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    return sorted(tokenizer.backend.get_vocab(), key=tokenizer.backend.token_to_id)


def test_vocabulary_is_ordered_by_count_and_then_by_spelling() -> None:
    tokenizer = Tokenizer.train(["b b b a a c c", "The the d"], 10)
    assert vocabulary(tokenizer) == [UNKNOWN, CLS, SEP, "b", "a", "c", "the", "d"]
    assert len(tokenizer) == 8


def test_vocabulary_size_and_minimum_count() -> None:
    texts = ["b b b a a c c d"]
    assert vocabulary(Tokenizer.train(texts, 10, size=2)) == [UNKNOWN, CLS, SEP, "b", "a"]
    assert vocabulary(Tokenizer.train(texts, 10, min_count=2)) == [UNKNOWN, CLS, SEP, "b", "a", "c"]
    assert vocabulary(Tokenizer.train(texts, 10, size=3, min_count=3)) == [UNKNOWN, CLS, SEP, "b"]
    assert vocabulary(Tokenizer.train([], 10)) == [UNKNOWN, CLS, SEP]


def test_training_reads_words_as_the_trained_tokenizer_does() -> None:
    text = "Don’t stop<br />it's FUN!!! 😀"
    tokenizer = Tokenizer.train([text], 30)
    assert not read(text, tokenizer).unknown.any()
    assert vocabulary(tokenizer)[3:] == sorted(
        ["do", "n't", "stop", "it", "'s", "fun", "!!!", "😀"]
    )


def test_a_saved_tokenizer_reads_the_same(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json", 7)
    for text in ("Don’t the <unk> zebra film", ("the film", "it's ok " * 4)):
        once, again = read(text, Tokenizer.load(tmp_path / "tokenizer.json", 50)), read(text)
        assert (
            once.ids.tolist() == again.ids.tolist() and once.spans.tolist() == again.spans.tolist()
        )
        assert once.unknown.tolist() == again.unknown.tolist()
        assert len(read(text, loaded)) <= 7
    assert len(loaded) == len(TOKENIZER)


@pytest.mark.parametrize("content", [None, "", "{", '{"version": "1.0"}', "\x00\x01"])
def test_a_broken_tokenizer_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path / "tokenizer.json", 10)


# Documents


def test_a_document_is_made_of_a_string_a_pair_or_a_document() -> None:
    document = Document("a", label=1)
    assert Document.of(document) is document
    assert Document.of("a") == Document("a")
    assert Document.of(("a", "b")) == Document.of(["a", "b"]) == Document("a", "b")
    assert Document("a").segments == ("a",) and Document("a", "").segments == ("a", "")


@pytest.mark.parametrize(
    "value", [None, 3, 2.5, b"bytes", ("a",), ("a", "b", "c"), ("a", None), {"text": "a"}, []]
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="must be a string or a pair"):
        Document.of(value)  # type: ignore[arg-type]


# Tokenizers of other people

CORPUS = [
    "the unbelievable film was surprisingly good",
    "an unwatchable, overlong mess of a film",
    "naïve café 😀 good",
]


def byte_level() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def word_piece() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    specials = ["[UNK]", "[CLS]", "[SEP]"]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=90, special_tokens=specials, show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return backend


@pytest.mark.parametrize("backend", [byte_level, word_piece])
@pytest.mark.parametrize(
    "text", ["the unwatchable film", "Naïve café, surprisingly 😀 overlong!", "  two  blanks "]
)
def test_words_of_sub_word_tokenizers_slice_the_text(
    backend: Callable[[], tokenizers.Tokenizer], text: str
) -> None:
    (tokens,) = Tokenizer(backend(), 128)([Document(text)])
    assert all(w.text == text[w.start : w.end] for w in tokens.words)
    joined = "".join(w.text for w in tokens.words)
    assert joined.replace(" ", "") == text.replace(" ", "")
    assert not any(w.text != w.text.strip() for w in tokens.words if w.text.strip())
    assert (np.diff(tokens.word[tokens.word >= 0]) >= 0).all()
    assert len(tokens.ids) > len(tokens.words)  # some words are several tokens


def whole_text() -> tokenizers.Tokenizer:
    """As Llama's: blanks become ▁ and nothing splits the text into words."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True))
    n = tokenizers.normalizers
    backend.normalizer = n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>"], show_progress=False
    )
    split = tokenizers.pre_tokenizers.Metaspace()
    backend.pre_tokenizer = split  # while it learns
    backend.train_from_iterator(CORPUS * 5, trainer)
    backend.pre_tokenizer = None
    return backend


@pytest.mark.parametrize("backend", [byte_level, word_piece, whole_text])
@pytest.mark.parametrize(
    "text",
    [
        "the unwatchable film",
        " the  film\n\n was good \n",
        "the\u00a0film was\tgood",
        "good",
        "  two  blanks ",
        "the surprisingly 😀 café",
    ],
)
def test_no_word_reaches_over_a_blank_and_no_blank_is_a_word(
    backend: Callable[[], tokenizers.Tokenizer], text: str
) -> None:
    tokenizer = Tokenizer(backend(), 128)
    (tokens,) = tokenizer([Document(text)])
    assert [w.text for w in tokens.words] == text.split()
    assert all(text[w.start : w.end] == w.text for w in tokens.words)
    assert (tokens.word[~tokens.special] >= 0).all()
    (pair,) = tokenizer([Document(text, "a good film \n")])
    assert [w.text for w in pair.words] == [*text.split(), "a", "good", "film"]
    assert [w.segment for w in pair.words] == [0] * len(text.split()) + [1, 1, 1]


@pytest.mark.parametrize("backend", [byte_level, whole_text])
def test_words_that_are_cut_off_are_counted_whatever_the_tokenizer(
    backend: Callable[[], tokenizers.Tokenizer],
) -> None:
    (tokens,) = Tokenizer(backend(), 10)([Document("the film was good \n " * 8)])
    assert len(tokens) == 10 and len(tokens.words) + tokens.dropped == 32
    (blank,) = Tokenizer(backend(), 10)([Document(" \n  ")])
    assert blank.words == ()


def test_pairs_of_a_bert_tokenizer_are_cut_as_the_library_cuts_them() -> None:
    first, second = "the unbelievable film was surprisingly good " * 4, "an unwatchable mess " * 2
    backend = word_piece().to_str()
    for limit in (8, 9, 15, 24, 60):
        plain, ours = tokenizers.Tokenizer.from_str(backend), tokenizers.Tokenizer.from_str(backend)
        plain.enable_truncation(limit)
        (tokens,) = Tokenizer(ours, limit)([Document(first, second)])
        assert tokens.ids.tolist() == plain.encode(first, second).ids
        assert tokens.word[~tokens.special].tolist() == sorted(
            tokens.word[~tokens.special].tolist()
        )
        assert tokens.word.max() + 1 == len(tokens.words)
        assert len(tokens.words) + tokens.dropped == len(first.split()) + len(second.split())


def test_words_of_which_only_the_beginning_is_read_are_counted() -> None:
    text, backend = "the unbelievable film was unbelievable", word_piece().to_str()
    (whole,) = Tokenizer(tokenizers.Tokenizer.from_str(backend), 60)([Document(text)])
    pieces = np.bincount(whole.word[~whole.special])
    assert pieces.max() > 1 and whole.cut_short == 0
    ends = np.cumsum(pieces)
    for limit in range(3, len(whole)):
        (tokens,) = Tokenizer(tokenizers.Tokenizer.from_str(backend), limit)([Document(text)])
        assert tokens.cut_short == int(limit - 2 not in ends)  # two special tokens
        (pair,) = Tokenizer(tokenizers.Tokenizer.from_str(backend), 2 * limit - 1)(
            [Document(text, text)]
        )
        room = int((~pair.special).sum()) // 2
        assert (pair.word[~pair.special] >= 0).sum() == 2 * room
        assert pair.cut_short == 2 * int(room not in ends)


def test_a_long_pair_is_read_in_time_and_its_rest_counted() -> None:
    (tokens,) = TOKENIZER([Document("good " * 100_000, "bad " * 100_000)])
    assert len(tokens) == TOKENIZER.max_tokens
    assert len(tokens.words) + tokens.dropped == 200_000
