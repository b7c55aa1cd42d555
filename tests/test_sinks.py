"""Attention sinks: what they are, that methods set them apart, and that claims hold them."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from test_transformer import TEXTS, network, tokenizer

import heed
from heed.audit import Audit
from heed.claims import CLAIMS, Study
from heed.claims.adversary import Adversary
from heed.claims.claim import Evidence
from heed.claims.conditions import measure as measure_conditions
from heed.methods.attention import heads
from heed.methods.sinks import sink_of
from heed.models.classifier import Attending
from heed.models.trace import Trace
from heed.models.transformer import Transformer
from heed.report.words import summary
from heed.text import Document

TEXT = TEXTS[0]
METHODS = ("attention-mean", "attention-max", "attention-head", "rollout", "flow")


class Boosted(Transformer):
    """Every row gives most of its attention to one token: w becomes (1 - boost) w + boost e_s."""

    boost, at = 0.0, 0

    def trace(self, tokens: Any, *arguments: Any, **named: Any) -> Trace:
        trace = super().trace(tokens, *arguments, **named)
        boosted = []
        for w in trace.attention:
            if not w.numel():  # of a layer that was not asked for
                boosted.append(w)
                continue
            one = torch.zeros_like(w)
            for b, t in enumerate(tokens):
                one[b, ..., self.at % len(t)] = 1
            boosted.append((1 - self.boost) * w + self.boost * one)
        return replace(trace, attention=tuple(boosted))


def bare() -> Any:
    """The tokenizer without special tokens: the first token is a word's."""
    changed = copy.deepcopy(tokenizer())
    template = tokenizers.processors.TemplateProcessing(single="$A", pair="$A $B:1")
    changed.backend_tokenizer.post_processor = template
    return changed


@cache
def model(family: str, begins: bool = True, boost: float = 0.9, at: int = 0) -> Boosted:
    m = Boosted(network(family).double(), tokenizer() if begins else bare(), family)
    m.boost, m.at = boost, at
    return m


def rows_of(e: heed.Explanation, m: Boosted, text: str = TEXT) -> np.ndarray:
    """One score for each token, in the order of the tokens, from an explanation of tokens."""
    (tokens,) = m.tokens([text])
    rows = np.zeros(len(tokens))
    rows[~tokens.special] = e.scores
    specials = {s.text.removesuffix(" (sink)"): s.score for s in e.specials}
    for i in np.flatnonzero(tokens.special):
        rows[i] = specials[tokens.names[i]]
    return rows


def weights_of(m: Boosted, text: str = TEXT) -> tuple[np.ndarray, list[int]]:
    """Attention [layer, head, query, key], and the rows that classify."""
    trace = m.trace(m.tokens([text]))
    row = int(trace.row[0])
    rows = list(range(trace.tokens.shape[1])) if row < 0 else [row]
    return np.stack([w[0].detach().numpy() for w in trace.attention]), rows


CASES = [
    ("llama", 0),
    ("gpt2", 0),
    ("bert", 0),  # [CLS], whose row classifies
    ("bert", -1),  # [SEP]
]


class Deep(Transformer):
    """Every layer counts four times."""

    def trace(self, tokens: Any, *arguments: Any, **named: Any) -> Trace:
        trace = super().trace(tokens, *arguments, **named)
        return replace(trace, attention=trace.attention * 4)


@pytest.mark.parametrize("sink", ["apart", "kept"])
def test_rollout_of_a_deep_causal_model_is_not_to_be_read_as_importance(sink: str) -> None:
    def warned(family: str, kind: type[Transformer], method: str) -> bool:
        m = kind(network(family).double(), tokenizer(), family)
        layers = len(m.trace(m.tokens([TEXT])).attention)
        assert (layers > 6) == (kind is Deep)
        notes = heed.explain(m, TEXT, method, sink=sink).notes
        return any("do not read it as importance" in note for note in notes)

    assert warned("llama", Deep, "rollout")
    assert not warned("llama", Transformer, "rollout")
    assert not warned("bert", Deep, "rollout")
    assert not warned("llama", Deep, "attention-mean")


@pytest.mark.parametrize(("family", "at"), CASES)
def test_the_sink_of_a_document_is_found(family: str, at: int) -> None:
    m = model(family, at=at)
    (tokens,) = m.tokens([TEXT])
    assert m.causal == (family != "bert") and tokens.special[0]
    for name in METHODS:
        e = heed.explain(m, TEXT, name)
        name_of_sink = tokens.names[at]
        (sink,) = [s for s in e.specials if s.text.endswith(" (sink)")]
        assert sink.text == f"{name_of_sink} (sink)"
        assert sink.score == e.facts["sink_attention"] > 0.5
        (note,) = [n for n in e.notes if "a sink" in n]
        assert f"{sink.score:.0%} of the attention lies on" in note and name_of_sink in note
        assert ("the classifying row's" in note) == (name in ("rollout", "flow"))
        assert e.settings["sink"] == "apart"
        kept = heed.explain(m, TEXT, name, sink="kept")
        assert (
            not any("sink" in s.text for s in kept.specials) and "sink_attention" not in kept.facts
        )


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_word_is_never_set_apart_however_much_it_holds(family: str) -> None:
    """It would be left without a score, and would come last in rankings."""
    m = model(family, begins=False)
    for name in METHODS:
        apart, kept = (heed.explain(m, TEXT, name, sink=sink) for sink in ("apart", "kept"))
        np.testing.assert_array_equal(apart.scores, kept.scores)
        assert apart.scores.argmax() == 0 and apart.specials == ()
        assert "sink_attention" not in apart.facts
        (note,) = [n for n in apart.notes if "a sink" in n]
        assert "of the attention lies on the first token, 'the'. It may be a sink" in note
        assert set(apart.notes) - {note} == set(kept.notes)
    even = model(family, begins=False, boost=0.0)
    assert not any("sink" in n for n in heed.explain(even, TEXT, "attention-mean").notes)


@pytest.mark.parametrize(("family", "at"), CASES)
def test_scores_and_the_share_of_the_sink_give_the_weights_back(family: str, at: int) -> None:
    m = model(family, at=at)
    for name in METHODS[:3]:
        apart, kept = (
            heed.explain(m, TEXT, name, unit="token", sink=sink) for sink in ("apart", "kept")
        )
        left = 1 - apart.facts["sink_attention"]
        assert left < 0.5
        np.testing.assert_allclose(apart.scores * left, kept.scores, rtol=1e-12)


@pytest.mark.parametrize(("family", "at"), CASES)
def test_attention_is_shown_as_shares_of_what_is_left(family: str, at: int) -> None:
    m = model(family, at=at)
    weights, rows = weights_of(m)
    last = weights[-1][:, rows].mean(1)
    sink = at % last.shape[1]
    reduced = {"mean": last.mean(0), "max": last.max(0), "head": last[0]}
    for name, whole in reduced.items():
        e = heed.explain(m, TEXT, f"attention-{name}", unit="token")
        found = rows_of(e, m)
        others = np.arange(len(whole)) != sink
        expected = whole[others] / (1 - whole[sink] / whole.sum())
        np.testing.assert_allclose(found[others], expected, atol=1e-6)  # a softmax in float32
        assert found[others].sum() == pytest.approx(whole.sum(), abs=1e-6)
        assert e.facts["sink_attention"] == pytest.approx(whole[sink] / whole.sum())


def without_sink(
    weights: np.ndarray, sink: int, residual: float, largest: bool
) -> list[np.ndarray]:
    """The layers as graphs, entry by entry: no row gives anything to the sink."""
    n, found = weights.shape[3], []
    for layer in weights:
        mixed = np.zeros((n, n))
        for i in range(n):
            over = [[layer[h, i, j] for h in range(len(layer))] for j in range(n)]
            row = [max(x) if largest else sum(x) / len(x) for x in over]
            left = sum(row) - row[sink]
            for j in range(n):
                share = row[j] / left if left > 0 else float(i == j)
                kept = 0.0 if j == sink and left > 0 else share * sum(row)
                mixed[i, j] = (1 - residual) * kept + residual * (i == j)
            mixed[i] /= mixed[i].sum()
        found.append(mixed)
    return found


@pytest.mark.parametrize(("residual", "way"), [(0.5, "mean"), (0.2, "max")])
@pytest.mark.parametrize(("family", "at"), CASES)
def test_rollout_takes_the_sink_out_layer_by_layer(
    family: str, at: int, residual: float, way: str
) -> None:
    m = model(family, at=at)
    weights, rows = weights_of(m)
    n = weights.shape[3]
    sink = at % n
    rolled = np.eye(n)
    for layer in without_sink(weights, sink, residual, way == "max"):
        rolled = layer @ rolled
    arrived = rolled[rows].mean(0)
    arrived[sink] = 0
    e = heed.explain(m, TEXT, "rollout", unit="token", residual=residual, heads=way)
    found = rows_of(e, m)
    others = np.arange(n) != sink
    np.testing.assert_allclose(found[others], (arrived / arrived.sum())[others], atol=1e-9)
    on_sink = on_all = 0.0
    for layer, head, row, key in product(*map(range, weights.shape[:2]), rows, range(n)):
        on_all += weights[layer, head, row, key]
        on_sink += weights[layer, head, row, key] * (key == sink)
    assert e.facts["sink_attention"] == pytest.approx(on_sink / on_all, abs=1e-9)


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_flow_takes_the_sink_out_layer_by_layer(family: str) -> None:
    m = model(family)
    weights, rows = weights_of(m)
    n = weights.shape[3]
    layers = without_sink(weights, 0, 0.5, False)
    start = np.isin(np.arange(n), rows) / len(rows)
    expected = heed.methods.Flow().follow(start, layers)
    found = rows_of(heed.explain(m, TEXT, "flow", unit="token"), m)
    np.testing.assert_allclose(found[1:], expected[1:], atol=1e-6)


def test_after_many_layers_words_have_scores_where_the_sink_would_have_all() -> None:
    """Thirty layers that give nine tenths to the first token."""
    plain = model("llama", boost=0.9)
    deep = copy.copy(plain)
    deep.trace = lambda *a, **b: _repeated(plain.trace(*a, **b), 15)  # type: ignore[method-assign]
    kept = heed.explain(deep, TEXT, "rollout", sink="kept")
    assert np.abs(kept.scores).max() < 1e-6
    apart = heed.explain(deep, TEXT, "rollout")
    assert apart.scores.sum() > 0.5 and (apart.scores > 1e-9).sum() > 5


def _repeated(trace: Trace, times: int) -> Trace:
    return replace(trace, attention=trace.attention * times)


@pytest.mark.parametrize("name", ["rollout", "flow"])
def test_under_even_causal_attention_the_first_token_holds_its_share_alone(name: str) -> None:
    """The mean over all rows would be (1 + 1/2 + … + 1/n) / n."""
    plain = model("llama")
    even = copy.copy(plain)
    even.trace = lambda *a, **b: _even(plain.trace(*a, **b))  # type: ignore[method-assign]
    (tokens,) = plain.tokens([TEXT])
    row = weights_of(plain)[1][0]
    e = heed.explain(even, TEXT, name)
    assert e.facts["sink_attention"] == pytest.approx(1 / (row + 1)) and row + 1 == len(tokens)


def _even(trace: Trace) -> Trace:
    n = trace.attention[0].shape[-1]
    lower = torch.ones(n, n, dtype=torch.float64).tril()
    rows = lower / lower.sum(1, keepdim=True)
    return replace(trace, attention=tuple(rows.expand_as(w) for w in trace.attention))


def test_without_a_sink_nothing_changes() -> None:
    m = model("bert", boost=0.0)
    for name in METHODS:
        one, other = (heed.explain(m, TEXT, name, sink=sink) for sink in ("apart", "kept"))
        np.testing.assert_array_equal(one.scores, other.scores)
        assert one.specials == other.specials and one.notes == other.notes


def test_half_of_the_attention_makes_no_sink_and_more_does() -> None:
    (tokens,) = model("bert").tokens(["good film"])  # [CLS] good film [SEP]
    assert sink_of(np.array([0.1, 0.2, 0.2, 0.5]), tokens, causal=False) is None
    assert sink_of(np.array([0.1, 0.2, 0.19, 0.51]), tokens, causal=False) == 3
    assert sink_of(np.array([0.1, 0.6, 0.2, 0.1]), tokens, causal=False) is None  # a word
    assert sink_of(np.array([0.1, 0.6, 0.2, 0.1]), tokens, causal=True) == 0
    (words,) = model("gpt2", begins=False).tokens(["good film"])
    assert sink_of(np.array([0.9, 0.1]), words, causal=True) is None


def test_a_single_token_is_no_sink() -> None:
    m = model("gpt2", begins=False)
    e = heed.explain(m, "good", "attention-mean")
    assert e.scores.tolist() == [1.0] and not e.specials and "sink_attention" not in e.facts


class Watched(Boosted):
    """Remembers the attention that it is asked about."""

    def attending(self, tokens: Any) -> Attending:
        attending = super().attending(tokens)
        self.base = attending.trace.classifying_rows()
        self.asked: list[torch.Tensor] = []

        def logits(rows: torch.Tensor) -> torch.Tensor:
            self.asked.append(rows.detach().clone())
            return attending.logits(rows)

        return attending._replace(logits=logits)


def watched(begins: bool) -> Watched:
    return Watched(network("gpt2"), tokenizer() if begins else bare(), "gpt2")


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize(
    ("claim", "settings"),
    [
        ("used", {"permutations": 20}),
        ("exclusive", {"candidates": 2, "steps": 3}),
        ("efficient-necessary", {"draws": 3}),
    ],
)
def test_claims_hold_a_sink_and_may_move_a_word(
    claim: str, settings: dict[str, Any], begins: bool
) -> None:
    m = watched(begins)
    text = " ".join(TEXTS)
    test = CLAIMS[claim](**settings)  # type: ignore[call-arg]
    (row,) = test.measure(Study(m, [Document(text)]))
    changed = [rows for rows in m.asked if not torch.equal(rows.expand_as(rows), m.base)]
    assert changed
    moved = max(float((rows[..., 0] - m.base[..., 0].to(rows)).abs().max()) for rows in changed)
    assert (moved < 1e-6) == begins
    first = m.base[0, :, 0, 0].double().mean()
    if begins:
        assert row["held_attention"] >= float(first) - 1e-6


def test_conditions_and_heads_count_the_first_word() -> None:
    m = model("gpt2", begins=False)
    (row,) = measure_conditions(Study(m, [Document(TEXT)]))
    (tokens,) = m.tokens([TEXT])
    weights, rows = weights_of(m)
    attention = m.attending([tokens]).trace.classifying()[0].mean(0)
    of_words = [attention[tokens.word == i].sum() for i in range(len(tokens.words))]
    falling = sorted(of_words, reverse=True)
    half = next(k for k in range(1, 99) if sum(falling[:k]) >= sum(of_words) / 2)
    # a word of several tokens counts once
    assert row["peaked"] == pytest.approx(half / len(tokens.words)) and len(tokens.words) < 17
    (table,) = heads(m, [TEXT], "token")
    np.testing.assert_allclose(table, weights[-1][:, rows[0]], atol=1e-6)


@pytest.mark.parametrize("begins", [True, False])
def test_the_adversary_does_not_touch_what_is_held(begins: bool) -> None:
    m = model("gpt2", begins=begins, boost=0.0)
    tokens = m.tokens([TEXT])
    plain = m.attending(tokens).trace
    base = plain.classifying_rows()
    free = [Study(m, []).free(t) for t in tokens]
    rows = Adversary([base], plain, free)._rows(torch.randn(4, *base.shape).to(base), base)
    same = bool(torch.allclose(rows[..., 0], base[..., 0].expand(4, *base.shape[:-1])))
    assert same == begins
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows.sum(-1)))


def test_the_summary_says_how_much_attention_a_test_cannot_move() -> None:
    for held, said in ((0.87, True), (0.3, False)):
        rows = [{"value": 0.1, "held_attention": held} for _ in range(30)]
        evidence = Evidence(CLAIMS["used"].claim, rows)
        text = summary(Audit({"methods": {"attention-mean": {}}}, (evidence,)))["Needed"]
        assert ("87% of the attention lies on special tokens, template" in text) == said
