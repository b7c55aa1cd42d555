"""The single-layer classifier against its formulas, written out slowly: loops in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from heed.errors import InputError, UnknownName
from heed.models import scalar_form
from heed.models.passes import pad
from heed.models.single_layer import Network, Shape, SingleLayer, positions
from heed.text import Tokens

NONSENSE = "zzqx"  # not in the vocabulary


def literal(
    model: SingleLayer, ids: Sequence[int], seen: Sequence[bool] | None = None
) -> np.ndarray:
    """f(x) = (1/K) Σ_i W_l Σ_t a_t v_t, <unk> up to Tmax where padding attends.

    `seen` masks keys out.
    """
    net = {key: value.double().numpy() for key, value in model.network.state_dict().items()}
    W_p, shape = model.network.W_p.double().numpy(), model.shape
    ids = list(ids)
    seen = [True] * len(ids) if seen is None else list(seen)
    if shape.padding == "attends":
        seen += [True] * (shape.max_words + 1 - len(ids))
        ids += [0] * (shape.max_words + 1 - len(ids))
    e = [net["W_e"][word] + W_p[t] for t, word in enumerate(ids)]
    f = np.zeros(shape.labels)
    for i in range(shape.heads):
        q = net["W_q"][i] @ e[0] + (net["b_q"][i] if shape.biases else 0)
        g, v = [], []
        for t in range(len(ids)):
            k = net["W_k"][i] @ e[t] + (net["b_k"][i] if shape.biases else 0)
            g.append(math.exp(q @ k / math.sqrt(shape.d_att)) if seen[t] else 0.0)
            v.append(net["W_v"][i] @ e[t] + (net["b_v"][i] if shape.biases else 0))
        f += net["W_l"][:, i] @ sum(a / sum(g) * x for a, x in zip(g, v, strict=True)) / shape.heads
    return f + (net["b_l"] if shape.biases else 0)


def near(model: SingleLayer) -> float:
    """Rounding: about ten operations on numbers of order one, in the precision of the weights."""
    return 1e-12 if model.network.W_e.dtype == torch.float64 else 2e-5


def close(found: object, expected: object, tolerance: float) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=tolerance)


def random_keep(rows: int, units: int) -> np.ndarray:
    keep = np.random.default_rng(0).random((rows, units)) < 0.5
    keep[0], keep[1] = True, False
    return keep


# Passes


def test_logits_are_the_formula(any_model: SingleLayer, texts: list) -> None:
    tokens = any_model.tokens(texts)
    close(any_model.logits(tokens), [literal(any_model, t.ids) for t in tokens], near(any_model))


def test_trace_is_the_formula(any_model: SingleLayer, texts: list) -> None:
    tokens = any_model.tokens(texts)
    trace = any_model.trace(tokens)
    close(trace.logits.detach(), [literal(any_model, t.ids) for t in tokens], near(any_model))
    assert trace.tokens.sum(1).tolist() == [len(t) for t in tokens]
    attention = trace.attention[0].detach()
    close(attention.sum(-1), np.ones(attention.shape[:-1]), near(any_model))
    outside = attention.masked_fill(trace.tokens[:, None, None], 0).sum((1, 2, 3))
    assert (outside > 0).all() if any_model.shape.padding == "attends" else (outside == 0).all()


def test_the_training_pass_is_the_formula(any_model: SingleLayer, texts: list) -> None:
    tokens = any_model.tokens(texts)
    attends = any_model.shape.padding == "attends"
    ids, real = pad([t.ids for t in tokens], 41 if attends else max(map(len, tokens)))
    found = any_model.network(ids, torch.ones_like(real) if attends else real)
    close(found, [literal(any_model, t.ids) for t in tokens], near(any_model))


def test_a_document_that_was_cut_off_is_the_formula_of_what_was_read(
    any_model: SingleLayer, long_text: str
) -> None:
    (tokens,) = any_model.tokens([long_text])
    assert len(tokens) == 41 and tokens.dropped
    close(any_model.logits([tokens])[0], literal(any_model, tokens.ids), near(any_model))


def test_no_documents_give_no_logits(model: SingleLayer) -> None:
    assert model([]).shape == (0, 2)


def test_many_documents_in_small_chunks_give_the_same_logits(
    any_model: SingleLayer, texts: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = any_model.tokens(texts * 3)
    whole = any_model.logits(tokens)
    monkeypatch.setattr(scalar_form, "_ENTRIES", 1)
    close(any_model.logits(tokens), whole, 1e-13)


@pytest.mark.parametrize("base", [10000.0, 256.0])
@pytest.mark.parametrize("dim", [6, 7])
def test_positions_are_sine_on_even_and_cosine_on_odd_dimensions(dim: int, base: float) -> None:
    expected = [
        [(math.cos if j % 2 else math.sin)(t / base ** (2 * (j // 2) / dim)) for j in range(dim)]
        for t in range(9)
    ]
    close(positions(9, dim, base), expected, 1e-7)  # float32


def test_the_base_of_the_positions_arrives_in_the_network() -> None:
    shape = Shape(5, 2, d_e=6, heads=1, d_att=2, d_out=2, max_words=8, position_base=256.0)
    close(Network(shape).W_p, positions(9, 6, 256.0), 0)


def test_order_of_words_matters_through_positions_alone(model: SingleLayer) -> None:
    one, other = model(["good film", "film good"])
    assert abs(one - other).max() > 1e-6
    still = SingleLayer(Network(model.shape).double(), model.tokenizer, model.labels)
    still.network.W_p.zero_()
    one, other = still(["good film", "film good"])
    close(one, other, 1e-12)


def test_probabilities_are_the_softmax_of_the_logits(any_model: SingleLayer, texts: list) -> None:
    expected = [np.exp(row) / np.exp(row).sum() for row in any_model(texts)]
    close(any_model.predict(texts), expected, 1e-12)


# Removing words


@pytest.mark.parametrize(
    "text", ["the film is good and the plot is great", "it 's n't bad , very very dull NEWWORD !"]
)
def test_replace_is_the_text_with_nonsense_words(any_model: SingleLayer, text: str) -> None:
    words = text.split()
    keep = random_keep(12, len(words))
    changed = [
        " ".join(w if k else NONSENSE for w, k in zip(words, row, strict=True)) for row in keep
    ]
    (found,) = any_model.score(any_model.tokens([text]), [keep], removal="replace")
    close(found, any_model(changed), near(any_model))


@pytest.mark.parametrize(
    "text", ["the film is good and the plot is great", "it 's n't bad , very very dull NEWWORD !"]
)
def test_delete_is_the_text_without_the_words(any_model: SingleLayer, text: str) -> None:
    words = text.split()
    keep = random_keep(12, len(words))
    changed = [" ".join(w for w, k in zip(words, row, strict=True) if k) for row in keep]
    (found,) = any_model.score(any_model.tokens([text]), [keep], removal="delete")
    close(found, any_model(changed), near(any_model))


def test_removal_in_a_pair_is_the_changed_pair(any_model: SingleLayer) -> None:
    first, second = ["the", "plot", "is", "fresh"], ["the", "plot", "is", "dull", "and", "cold"]
    keep = random_keep(12, 10)
    tokens = any_model.tokens([(" ".join(first), " ".join(second))])

    def changed(row: np.ndarray, filler: list[str]) -> tuple[str, str]:
        kept = [[w] if k else filler for w, k in zip(first + second, row, strict=True)]
        return " ".join(w for k in kept[:4] for w in k), " ".join(w for k in kept[4:] for w in k)

    for removal, filler in (("replace", [NONSENSE]), ("delete", [])):
        (found,) = any_model.score(tokens, [keep], removal=removal)
        close(found, any_model([changed(row, filler) for row in keep]), near(any_model))


def test_hide_is_a_softmax_over_what_is_left(any_model: SingleLayer, texts: list) -> None:
    for tokens in any_model.tokens(texts):
        keep = random_keep(6, len(tokens.words))
        (found,) = any_model.score([tokens], [keep], removal="hide")
        expected = [
            literal(any_model, tokens.ids, [w < 0 or row[w] for w in tokens.word]) for row in keep
        ]
        close(found, expected, near(any_model))


def test_removal_of_a_text_that_fills_the_model(any_model: SingleLayer, long_text: str) -> None:
    (tokens,) = any_model.tokens([long_text])
    keep = random_keep(6, 40)
    words = [w.text for w in tokens.words]
    replaced = [
        " ".join(w if k else NONSENSE for w, k in zip(words, row, strict=True)) for row in keep
    ]
    deleted = [" ".join(w for w, k in zip(words, row, strict=True) if k) for row in keep]
    close(
        any_model.score([tokens], [keep], removal="replace")[0],
        any_model(replaced),
        near(any_model),
    )
    close(
        any_model.score([tokens], [keep], removal="delete")[0], any_model(deleted), near(any_model)
    )


@pytest.mark.parametrize("removal", [None, "replace", "delete", "hide"])
def test_keeping_all_words_is_the_document(
    any_model: SingleLayer, texts: list, removal: str | None
) -> None:
    tokens = any_model.tokens(texts)
    found = any_model.score(
        tokens, [np.ones((2, len(t.words)), dtype=bool) for t in tokens], removal=removal
    )
    close([rows[0] for rows in found], any_model.logits(tokens), 1e-12)
    close([rows[1] for rows in found], any_model.logits(tokens), 1e-12)


def test_the_default_removal_is_replace(model: SingleLayer, texts: list) -> None:
    tokens = model.tokens(texts[:1])
    keep = [random_keep(4, len(tokens[0].words))]
    close(model.score(tokens, keep)[0], model.score(tokens, keep, removal="replace")[0], 0)
    with pytest.raises(UnknownName, match="did you mean 'delete'"):
        model.removal("deleted")  # type: ignore[arg-type]


@pytest.mark.parametrize("removal", ["replace", "delete", "hide"])
def test_tokens_follow_their_column_and_minus_one_is_always_present(
    any_model: SingleLayer, removal: str
) -> None:
    (tokens,) = any_model.tokens(["the film is good and the plot is great"])
    groups = np.array([-1, 0, 1, 2, -1, 1, 0, 1, 2, -1])
    keep = np.array(
        [[a, b, c] for a in (True, False) for b in (True, False) for c in (True, False)]
    )
    by_word = np.array([[g < 0 or row[g] for g in groups[1:]] for row in keep])
    (found,) = any_model.score([tokens], [keep], [groups], removal)
    (expected,) = any_model.score([tokens], [by_word], removal=removal)
    close(found, expected, 1e-12)


@pytest.mark.parametrize("removal", ["replace", "delete", "hide"])
def test_scores_in_small_chunks_are_the_same(
    any_model: SingleLayer, texts: list, removal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = any_model.tokens(texts)
    keep = [random_keep(9, len(t.words)) for t in tokens]
    whole = any_model.score(tokens, keep, removal=removal)
    for entries in (1, 40):
        monkeypatch.setattr(scalar_form, "_ENTRIES", entries)
        for a, b in zip(any_model.score(tokens, keep, removal=removal), whole, strict=True):
            close(a, b, 1e-12)


@pytest.mark.parametrize("removal", ["replace", "delete", "hide"])
@pytest.mark.parametrize("padding", ["masked", "attends"])
@pytest.mark.parametrize(("factor", "apart"), [(4, 30), (40, 250)])
def test_what_a_dominant_word_left_over_counts_when_it_is_removed(
    make: Callable[..., SingleLayer], removal: str, padding: str, factor: int, apart: int
) -> None:
    """Scores far apart: 1 in e^30, or e^300, of attention is all of it once the rest is gone."""
    like = make(padding=padding)
    network = Network(like.shape)
    network.load_state_dict(like.network.state_dict())
    network.W_q.data.mul_(factor)
    peaked = SingleLayer(network.double(), like.tokenizer, like.labels)
    (tokens,) = peaked.tokens(["the film is good and the plot is great"])
    assert np.ptp(peaked.scalars.at(tokens.ids, np.arange(10))[0], axis=0).max() > apart
    keep = random_keep(20, 9)
    (found,) = peaked.score([tokens], [keep], removal=removal)
    if removal == "replace":
        expected = [
            literal(peaked, np.where([w < 0 or row[w] for w in tokens.word], tokens.ids, 0))
            for row in keep
        ]
    elif removal == "delete":
        expected = [
            literal(peaked, tokens.ids[[w < 0 or row[w] for w in tokens.word]]) for row in keep
        ]
    else:
        expected = [
            literal(peaked, tokens.ids, [w < 0 or row[w] for w in tokens.word]) for row in keep
        ]
    close(found, expected, 1e-10)  # scores in the hundreds carry a hundred times the rounding


# Replacing attention and embeddings


def weights_for(model: SingleLayer, tokens: Sequence[Tokens], *leading: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    keys = model.trace(tokens).tokens.shape[1]
    dtype = model.network.W_e.dtype
    return torch.rand(*leading, len(tokens), 3, 1, keys, generator=generator, dtype=dtype).softmax(
        -1
    )


def literal_with(model: SingleLayer, values: np.ndarray, attention: np.ndarray) -> np.ndarray:
    """(1/K) Σ_i W_l Σ_t a_t v_t for one document with these weights."""
    f = np.zeros(model.shape.labels)
    for i in range(model.shape.heads):
        for t in range(values.shape[1]):
            f += (
                model.network.W_l[:, i].double().numpy()
                @ (attention[i, 0, t] * values[i, t])
                / model.shape.heads
            )
    return f + (model.network.b_l.double().numpy() if model.shape.biases else 0)


def test_replaced_attention_arrives(any_model: SingleLayer, texts: list) -> None:
    tokens = any_model.tokens(texts)
    weights = weights_for(any_model, tokens)
    trace = any_model.trace(tokens, attention={0: weights})
    values = trace.values[0].detach().double().numpy()
    expected = [
        literal_with(any_model, values[b], weights[b].double().numpy()) for b in range(len(tokens))
    ]
    close(trace.logits.detach(), expected, near(any_model))
    close(trace.attention[0], weights, 0)
    assert abs(trace.logits.detach() - any_model.trace(tokens).logits.detach()).max() > 1e-3


def test_several_variants_of_attention_at_once(any_model: SingleLayer, texts: list) -> None:
    tokens = any_model.tokens(texts)
    weights = weights_for(any_model, tokens, 5)
    together = any_model.trace(tokens, attention={0: weights}).logits
    assert together.shape == (5, len(tokens), any_model.shape.labels)
    for variant, logits in zip(weights, together, strict=True):
        close(
            logits.detach(),
            any_model.trace(tokens, attention={0: variant}).logits.detach(),
            near(any_model),
        )


def test_its_own_attention_put_back_changes_nothing(any_model: SingleLayer, texts: list) -> None:
    trace = any_model.trace(any_model.tokens(texts))
    again = any_model.trace(any_model.tokens(texts), attention={0: trace.attention[0].detach()})
    close(again.logits.detach(), trace.logits.detach(), near(any_model))


def test_output_is_differentiable_in_replaced_attention(model: SingleLayer, texts: list) -> None:
    """f is linear in a: the derivative is W_l v_t / K."""
    tokens = model.tokens(texts)
    weights = weights_for(model, tokens).requires_grad_()
    trace = model.trace(tokens, attention={0: weights})
    (gradient,) = torch.autograd.grad(trace.logits[:, 1].sum(), weights)
    expected = torch.einsum("ko,bkto->bkt", model.network.W_l[1], trace.values[0]) / 3
    close(gradient.squeeze(2), expected.detach(), 1e-12)


def test_replaced_embeddings_arrive(any_model: SingleLayer, texts: list) -> None:
    """The embeddings of one text under the ids of another give the output of the first."""
    (tokens, other) = any_model.tokens(["the film is good", "a dull plot !"])
    trace = any_model.trace([other])
    found = any_model.trace([tokens], embeddings=trace.embeddings.detach())
    close(found.logits, any_model.logits([other]), near(any_model))
    assert found.embeddings.data_ptr() == trace.embeddings.data_ptr()


def test_gradient_flows_to_embeddings_of_every_token(any_model: SingleLayer, texts: list) -> None:
    trace = any_model.trace(any_model.tokens(texts))
    (gradient,) = torch.autograd.grad(trace.logits[:, 0].sum(), trace.embeddings)
    moved = gradient.abs().sum(-1) > 0
    assert moved[trace.tokens].all()
    assert moved.all() if any_model.shape.padding == "attends" else not moved[~trace.tokens].any()


def test_without_gradients_embeddings_do_not_ask_for_one(model: SingleLayer, texts: list) -> None:
    with torch.no_grad():
        assert not model.trace(model.tokens(texts)).embeddings.requires_grad


def test_classifying_reads_the_row_of_cls(any_model: SingleLayer, texts: list) -> None:
    trace = any_model.trace(any_model.tokens(texts))
    close(trace.classifying(), trace.attention[0][:, :, 0].detach(), 0)


# Heads


def test_heads_add_up_to_the_model(any_model: SingleLayer, texts: list) -> None:
    tokens = any_model.tokens(texts)
    heads = [any_model.head(i) for i in range(3)]
    close(sum(h.logits(tokens) for h in heads), any_model.logits(tokens), near(any_model))
    close(
        sum(h.trace(tokens).logits.detach() for h in heads),
        any_model.logits(tokens),
        near(any_model),
    )


@pytest.mark.parametrize("index", [-1, 3])
def test_a_head_that_does_not_exist_is_refused(model: SingleLayer, index: int) -> None:
    with pytest.raises(InputError, match=f"no head {index}: the model has heads 0 to 2"):
        model.head(index)


# Labels and identity


def test_a_label_goes_by_name_or_index(model: SingleLayer) -> None:
    assert (
        model.label("positive")
        == model.label("POSITIVE")
        == model.label(1)
        == model.label("1")
        == 1
    )


@pytest.mark.parametrize("label", ["positiv", "good", "", 2, -1, "7", "²", "1.5"])
def test_a_label_that_does_not_exist_is_refused(model: SingleLayer, label: int | str) -> None:
    with pytest.raises(InputError, match="no label"):
        model.label(label)


def test_a_name_written_exactly_wins_over_one_that_differs_in_case(model: SingleLayer) -> None:
    other = SingleLayer(model.network, model.tokenizer, ("us", "US"))
    assert (other.label("us"), other.label("US")) == (0, 1)


def test_revision_follows_the_weights(make: Callable[..., SingleLayer]) -> None:
    again = SingleLayer(make().network, make().tokenizer, make().labels)
    assert again.revision == make().revision
    assert make(seed=1).revision != make().revision


def test_a_single_string_instead_of_a_list_is_refused(model: SingleLayer) -> None:
    with pytest.raises(InputError, match="list"):
        model("the film")
