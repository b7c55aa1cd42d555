"""SLALOM against its definition: model, loss and fit with loops, and models of which it is true."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import heed
from heed.algebra.one_head import OneHead, Problem, fit
from heed.algebra.ratios import Ratios
from heed.errors import InputError
from heed.methods import Explanation, Slalom
from heed.methods.method import Job, Keep, Measured
from heed.methods.slalom import fitted_head, implied
from heed.methods.units import units_of
from heed.models.function import Function
from heed.models.single_layer import Network, SingleLayer
from heed.report import charts
from heed.report.plane import plane

TEXT = "the film was slow but good and the plot is fresh"  # ten different words
REVIEW = "the selection is great but the service is bad and I would not come back here again"
WORDS = list(dict.fromkeys(TEXT.split()))
EXACT = 1e-12  # a penalty that outputs of one head do not notice


def literal(
    kept: Sequence[bool],
    s: Sequence[float],
    v: Sequence[float],
    empty: float,
    context: float,
    filler: Sequence[float],
) -> float:
    """Σ softmax(s)_i v_i over what is present: kept words, fillers, and what is always there."""
    weights, values = [context], [empty]
    for i in range(len(s)):
        weights.append(math.exp(s[i]) if kept[i] else filler[i])
        values.append(v[i] if kept[i] else empty)
    return sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)


def literal_loss(problem: Problem, parameters: np.ndarray) -> float:
    d = problem.z.shape[1]
    s, empty = parameters[:d], parameters[-1]
    v = empty + parameters[d:-1]
    total = 0.0
    for z, y in zip(problem.z, problem.y, strict=True):
        total += (literal(z > 0, s, v, empty, problem.context, problem.filler) - y) ** 2
    penalty = sum(x**2 for x in parameters[:-1])
    return (total / len(problem.y) + problem.ridge * penalty) / 2


def every(d: int) -> Keep:
    return np.array(list(product([True, False], repeat=d)))


def drawn(n: int, d: int, seed: int = 0) -> Keep:
    rng = np.random.default_rng(seed)
    return np.vstack([np.ones(d, bool), np.zeros(d, bool), rng.random((n, d)) < rng.random((n, 1))])


def planted(d: int, replaced: bool, seed: int = 0) -> OneHead:
    rng = np.random.default_rng(seed)
    filler = rng.integers(1, 3, d).astype(float) if replaced else np.zeros(d)
    return OneHead(rng.normal(size=d), rng.normal(size=d), 0.4, float(not replaced), filler)


def problem(d: int, replaced: bool) -> Problem:
    rng = np.random.default_rng(1)
    z, like = drawn(30, d), planted(d, replaced)
    return Problem(z.astype(float), rng.normal(size=len(z)), like.context, like.filler, 0.02)


# The fit


@pytest.mark.parametrize("replaced", [False, True])
def test_a_head_is_a_softmax_over_what_is_present(replaced: bool) -> None:
    head, keep = planted(4, replaced), every(4)
    expected = [
        literal(row, head.importance, head.value, head.empty, head.context, head.filler)
        for row in keep
    ]
    np.testing.assert_allclose(head(keep), expected, atol=1e-12)
    np.testing.assert_allclose(head.ratios()(keep), expected, atol=1e-12)
    change = expected[0] - expected[-1]  # from no word to all
    assert head.scores().sum() == pytest.approx(change, abs=1e-12)


@pytest.mark.parametrize("replaced", [False, True])
def test_loss_gradient_and_curvature(replaced: bool) -> None:
    p, rng = problem(3, replaced), np.random.default_rng(2)
    x, step = rng.normal(size=7), 1e-5
    assert p.loss(x) == pytest.approx(literal_loss(p, x), abs=1e-13)
    for i in range(7):
        ahead, behind = x + step * np.eye(7)[i], x - step * np.eye(7)[i]
        slope = (literal_loss(p, ahead) - literal_loss(p, behind)) / (2 * step)
        assert p.gradient(x)[i] == pytest.approx(slope, abs=1e-8)
        curve = (p.gradient(ahead) - p.gradient(behind)) / (2 * step)
        np.testing.assert_allclose(p.hessian(x)[i], curve, atol=1e-8)


@pytest.mark.parametrize("replaced", [False, True])
def test_no_other_start_finds_a_better_fit(replaced: bool) -> None:
    """Gradient descent on the literal loss, as in the paper, from random places."""
    from scipy.optimize import minimize

    p = problem(3, replaced)
    found = p.solve()
    assert np.abs(p.gradient(found)).max() < 1e-8
    for seed in range(3):
        start = np.random.default_rng(seed).normal(size=7)
        other = minimize(lambda x: literal_loss(p, x), start, method="L-BFGS-B")
        assert literal_loss(p, found) <= other.fun + 1e-7


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("d", [4, 15])
def test_planted_importances_and_values_are_recovered(d: int, replaced: bool) -> None:
    head, keep = planted(d, replaced), every(4) if d == 4 else drawn(400, d)
    found = fit(keep, head(keep), head.context, head.filler, EXACT)
    np.testing.assert_allclose(found.importance, head.importance, atol=1e-3)
    np.testing.assert_allclose(found.value, head.value, atol=1e-3)
    np.testing.assert_allclose(found.scores(), head.scores(), atol=1e-5)
    assert found.empty == pytest.approx(head.empty, abs=1e-4)


def test_what_is_always_there_can_be_counted_as_fillers() -> None:
    """A constant weight c beside fillers of weight b: e^s = (d a + c) / (c + d b)."""
    rng = np.random.default_rng(3)
    d, b, c = 5, 0.7, 1.9
    a, v = rng.lognormal(size=d), rng.normal(size=d)
    truth = Ratios(
        a=a[None],
        n=(a * v)[None],
        b=np.full((1, d), b),
        m=np.full((1, d), 0.3 * b),
        c=np.array([c]),
        n_c=np.array([-0.2 * c]),
        constant=0.5,
    )
    keep = every(d)
    found = fit(keep, truth(keep), 0.0, np.ones(d), EXACT)
    np.testing.assert_allclose(found(keep), truth(keep), atol=1e-4)
    np.testing.assert_allclose(found.importance, np.log((d * a + c) / (c + d * b)), atol=2e-3)
    assert found.empty == pytest.approx(truth.empty(), abs=1e-4)
    # the score does not depend on how the constant weight is counted
    D = c + a.sum()
    own = (a * (v + 0.5) - b * 0.8 - (a - b) * truth.empty()) / D
    np.testing.assert_allclose(found.scores(), own, atol=1e-4)


def test_an_additive_output_keeps_finite_importances() -> None:
    """It is the limit of small weights with large values: the penalty stops on the way."""
    keep, beta = drawn(300, 6), np.array([1.0, -2.0, 0.5, 0.0, 3.0, -1.0])
    y = keep @ beta + 1
    for ridge, error in ((1e-3, 0.25), (1e-9, 0.02)):
        found = fit(keep, y, 1.0, np.zeros(6), ridge)
        assert np.abs(found.importance).max() < 20
        np.testing.assert_allclose(found.scores(), beta, rtol=error, atol=1e-3)
        assert np.square(found(keep) - y).mean() < 0.003 * y.var()


# The method


class Seen(Slalom):
    """Remembers the texts and their outputs."""

    keep: Keep
    outputs: np.ndarray

    def fit(self, job: Job, keep: Keep, outputs: np.ndarray) -> Measured:
        Seen.keep, Seen.outputs = keep, outputs
        return super().fit(job, keep, outputs)


@pytest.mark.parametrize(("removal", "samples"), [("replace", 300), ("hide", 300), ("hide", 2000)])
def test_r2_is_that_of_texts_that_were_not_fitted(
    model: SingleLayer, removal: str, samples: int
) -> None:
    e = Seen(samples=samples, removal=removal).explain(model, model.documents(TEXT).documents)[0]  # type: ignore[arg-type]
    keep, y = Seen.keep, Seen.outputs
    assert len(np.unique(keep, axis=0)) == len(keep) == e.forward_passes <= samples
    assert keep[0].all() and not keep[1].any()
    fitted = len(keep) - len(keep) // 5
    replaced = removal == "replace"
    filler = [float(len(u.spans)) if replaced else 0.0 for u in e.units]
    s, v, empty = e.parts["importance"], e.parts["value"], e.facts["empty"]
    own = [literal(row, s, v, empty, float(not replaced), filler) for row in keep[fitted:]]
    x = np.column_stack([keep, np.ones(len(keep))]).astype(float)
    penalty = np.diag([1e-3] * len(s) + [0.0])
    normal = x[:fitted].T @ x[:fitted] + penalty
    additive = x[fitted:] @ np.linalg.solve(normal, x[:fitted].T @ y[:fitted])
    truth = y[fitted:]
    for name, predicted in (("r2", np.array(own)), ("r2_additive", additive)):
        left = sum((truth - predicted) ** 2)
        assert e.facts[name] == pytest.approx(1 - left / sum((truth - truth.mean()) ** 2), abs=1e-6)
    assert any(f"Of {len(truth)} texts that were not fitted" in note for note in e.notes)
    weights = np.exp(s)
    shares = weights / (weights.sum() + (not replaced))
    np.testing.assert_allclose(e.scores, shares * (v - empty), atol=1e-12)


def changed(model: SingleLayer, alike: bool = False) -> SingleLayer:
    """The same classifier with flatter attention; with `alike`, that of the first head in all."""
    network = Network(model.shape)
    network.load_state_dict(model.network.state_dict())
    network.W_q.data.mul_(0.2)  # else <cls> has nearly all of it, and outputs are additive
    for weights in (network.W_q, network.W_k) if alike else ():
        weights.data[:] = weights.data[:1].clone()
    return SingleLayer(network.double(), model.tokenizer, model.labels, "changed", pairs=True)


@pytest.mark.parametrize("padding", ["masked", "attends"])
@pytest.mark.parametrize("head", [0, 2])
def test_of_one_head_they_are_its_attention_logits_and_values(
    make: Callable[..., SingleLayer], padding: str, head: int
) -> None:
    """With words hidden, whatever the positions of words and padding."""
    model = changed(make(padding=padding))
    text = " ".join(WORDS)
    e = heed.explain(model, text, "slalom", label=1, head=head, removal="hide", ridge=EXACT)
    assert e.facts["r2"] > 1 - 1e-9
    (tokens,) = model.tokens([text])
    attention = model.trace([tokens]).attention[0][0, head, 0].detach().numpy()
    words = np.flatnonzero(~tokens.special)
    # the logarithm of a weight is an attention logit, up to what all of them share
    logits = np.log(attention[words]) - np.log(attention.sum() - attention[words].sum())
    np.testing.assert_allclose(e.parts["importance"], logits, atol=1e-4)
    net, K = model.network, 3
    embedded = net.embedded(torch.tensor(tokens.ids)[None])[0]
    values = (embedded @ net.W_v[head].T) @ net.W_l[1, head] / K  # W_l W_v e_t
    np.testing.assert_allclose(e.parts["value"], values.detach().numpy()[words], atol=1e-4)
    assert e.scores.sum() == pytest.approx(
        float(attention @ padded_values(model, tokens, head)) - e.facts["empty"], abs=1e-5
    )


def padded_values(model: SingleLayer, tokens: heed.text.Tokens, head: int) -> np.ndarray:
    ids = model.scalars.padded(tokens.ids)
    _, w = model.scalars.at(ids, np.arange(len(ids)))
    return np.asarray(w[:, head, 1] / 3)


def test_several_heads_are_one_as_far_as_they_attend_alike(model: SingleLayer) -> None:
    short = "the film was slow but good"
    settings = {"removal": "hide", "ridge": EXACT}
    different = heed.explain(changed(model), short, "slalom", **settings)
    alike = changed(model, alike=True)
    same = heed.explain(alike, short, "slalom", **settings)
    assert same.facts["r2"] > 1 - 1e-8 > different.facts["r2"] > different.facts["r2_additive"]
    one = heed.explain(alike, short, "slalom", head=0, label=same.label, **settings)
    np.testing.assert_allclose(same.parts["importance"], one.parts["importance"], atol=1e-2)


@pytest.mark.parametrize("head", [0, 4])
def test_heads_of_the_bundled_classifier_are_read_off(head: int) -> None:
    """Every one to 1e-5, of a text with a word that occurs several times."""
    model = heed.load()
    e = heed.explain(model, REVIEW, "slalom", label=1, head=head, removal="hide", ridge=EXACT)
    (tokens,) = model.tokens([REVIEW])
    groups = units_of(tokens, "word", True)[1]
    f = model.head(head).ratios(tokens, groups, len(e.units), 1, "hide")
    np.testing.assert_allclose(e.parts["importance"], np.log(f.a[0] / f.c[0]), atol=1e-5)
    np.testing.assert_allclose(e.parts["value"], f.n[0] / f.a[0], atol=1e-5)
    replaced = heed.explain(model, REVIEW, "slalom", label=1, head=head)
    assert replaced.facts["r2"] > 0.9999 > 0.95 > replaced.facts["r2_additive"]


def test_the_bundled_classifier_is_nearly_one_head() -> None:
    e = heed.explain(heed.load(), REVIEW, "slalom", samples=600)
    assert e.facts["r2"] > 0.95 > 0.9 > e.facts["r2_additive"]


def softmax_of_words(texts: list[str]) -> list[float]:
    """A black box that is one head, with something that is always there."""
    return [1 / (1 + math.exp(-of_words(text.split()))) for text in texts]


IMPORTANCE = {"a": -1.0, "fine": 1.5, "but": 0.5, "slow": 2.0, "long": 0.7, "film": 0.0}
VALUE = {"a": 0.1, "fine": 2.5, "but": -0.5, "slow": -3.0, "long": -1.0, "film": 0.4}


def of_words(words: list[str]) -> float:
    weights = [1.0] + [math.exp(IMPORTANCE[w]) for w in words]
    values = [0.2] + [VALUE[w] for w in words]
    return float(np.average(values, weights=weights))


def test_a_function_that_is_one_head_shows_its_numbers() -> None:
    black_box = Function(softmax_of_words, labels=["no", "yes"])
    e = heed.explain(black_box, "a fine but slow long film", "slalom", label="yes", ridge=EXACT)
    assert e.removal == "delete" and e.forward_passes == 64
    for i, unit in enumerate(e.units):
        assert e.parts["importance"][i] == pytest.approx(IMPORTANCE[unit.text], abs=1e-3)
        assert e.parts["value"][i] == pytest.approx(VALUE[unit.text], abs=1e-3)
    assert e.facts["empty"] == pytest.approx(0.2, abs=1e-4) and e.facts["r2"] > 1 - 1e-8


def test_few_texts_and_few_words_are_said_and_not_judged(model: SingleLayer) -> None:
    few = heed.explain(model, TEXT, "slalom", samples=20)
    assert any("cannot tell the two numbers of 10 words" in note for note in few.notes)
    short = heed.explain(model, "good film", "slalom")
    assert short.forward_passes == 4 and not {"r2", "r2_additive"} & {*short.facts}
    ends = heed.explain(model, TEXT, "slalom", samples=2)
    whole = ends.scores.sum()
    assert ends.forward_passes == 2 and np.isfinite(whole)


def test_an_output_that_never_moves_has_no_r2(constant_model: SingleLayer) -> None:
    e = heed.explain(constant_model, TEXT, "slalom")
    assert set(e.facts) == {"empty"} and not e.parts["importance"].any()
    np.testing.assert_allclose(e.parts["value"], e.facts["empty"])


# What follows from the two numbers


@pytest.mark.parametrize("removal", ["replace", "hide"])
def test_lime_and_shapley_values_follow(model: SingleLayer, removal: str) -> None:
    e = heed.explain(model, "good film but the slow film", "slalom", removal=removal)
    head, d = fitted_head(e), len(e.units)
    assert d == 5 and head(np.ones((1, d), bool)) == pytest.approx(head.ratios().whole())
    found = implied(e)
    f = dict(zip(map(tuple, every(d)), head(every(d)), strict=True))
    shapley = np.zeros(d)
    for order in permutations(range(d)):
        present = [False] * d
        for j in order:
            before = f[tuple(present)]
            present[j] = True
            shapley[j] += (f[tuple(present)] - before) / math.factorial(d)
    np.testing.assert_allclose(found.shapley, shapley, atol=1e-9)
    removed = d - every(d).sum(1)
    weights = [
        math.exp(-((1 - math.sqrt(1 - s / d)) ** 2) / (2 * 0.25**2)) / d / math.comb(d, s)
        if s
        else 0.0
        for s in removed
    ]
    x = np.column_stack([every(d), np.ones(2**d)]) * np.sqrt(weights)[:, None]
    lime = np.linalg.lstsq(x, np.array(list(f.values())) * np.sqrt(weights), rcond=None)[0]
    np.testing.assert_allclose(found.lime.coefficients, lime[:-1], atol=1e-8)


def test_only_heads_have_lime_and_shapley_values(model: SingleLayer) -> None:
    with pytest.raises(InputError, match="Only slalom fits an attention head"):
        implied(heed.explain(model, TEXT, "occlusion"))
    with pytest.raises(InputError, match="at least two words"):
        implied(heed.explain(model, "good", "slalom"))


# Files and drawings


def test_both_numbers_come_back_from_files(model: SingleLayer, tmp_path: Path) -> None:
    e = heed.explain(model, TEXT, "slalom", samples=100)
    path = tmp_path / "e.parquet"
    heed.save_explanations([e], path)
    (again,) = heed.load_explanations(path)
    for one in (again, Explanation.from_json(e.to_json())):
        assert list(one.parts) == ["importance", "value"]
        assert all((one.parts[name] == e.parts[name]).all() for name in e.parts)
        np.testing.assert_array_equal(implied(one).shapley, implied(e).shapley)
    values = e.to_dict()
    for wrong in ([1.0], [1e300] * len(e.units), ["a"] * len(e.units)):
        with pytest.raises(InputError, match="not an explanation"):
            Explanation.from_dict(values | {"parts": {"importance": wrong}})
    older = {key: value for key, value in values.items() if key != "parts"}
    assert Explanation.from_dict(older).parts == {}


def test_the_plane_names_words_at_their_numbers(model: SingleLayer) -> None:
    e = heed.explain(model, TEXT, "slalom", samples=300)
    described = plane(e).to_dict()
    (dots,) = (p for p in described["layer"] if p["mark"]["type"] == "circle")
    rows = described["datasets"][dots["data"]["name"]]
    by_name = {row["name"]: row for row in rows}
    assert list(by_name) == [name for name, _ in e.top(len(WORDS))]  # each word, strongest first
    for i, unit in enumerate(e.units):
        row = by_name[unit.text]
        assert (row["importance"], row["value"]) == tuple(e.parts[p][i] for p in e.parts)
        blue = row["colour"] == charts.COLOURS["supported"]
        assert blue == (row["value"] >= e.facts["empty"])  # above the line, for the label
    drawn_names = [
        row["name"]
        for layer in described["layer"]
        if layer["mark"]["type"] == "text" and "dx" in layer["mark"]
        for row in described["datasets"][layer["data"]["name"]]
    ]
    assert len(drawn_names) == len(set(drawn_names)) and drawn_names
    assert "<svg" in e._repr_html_() and "(importance " in on_a_terminal(e)
    with pytest.raises(InputError, match="nothing to draw"):
        plane(heed.explain(model, TEXT, "occlusion"))


def on_a_terminal(e: Explanation) -> str:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(e)
    return console.export_text()


def test_the_plane_of_long_names_and_of_one_word(model: SingleLayer) -> None:
    assert plane(heed.explain(model, "good", "slalom"))._repr_svg_()
    text = ". ".join(["The film was good and the plot was very fresh", "It's slow", "a dull scene"])
    sentences = heed.explain(model, text, "slalom", unit="sentence")
    assert "…" in plane(sentences)._repr_svg_()
