"""LIME for text against its definition: samples, kernel, regression, and the limit that samples
converge to."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from conftest import log_odds
from scipy import stats

import heed
from heed.algebra import regression
from heed.algebra.regression import Controlled, Ridge, Words
from heed.algebra.regression import ridge as fit_ridge
from heed.methods import METHODS, perturbation
from heed.methods.perturbation import Lime, controls, random_subsets, uniform_subsets
from heed.models.single_layer import SingleLayer

TEXT = "the film was slow but good"  # six words, all different
NU = 0.25


def kernel(removed: int, d: int, nu: float) -> float:
    return math.exp(-((1 - math.sqrt(1 - removed / d)) ** 2) / (2 * nu**2))


def normal_equations(
    z: np.ndarray, y: np.ndarray, w: np.ndarray, penalty: float
) -> tuple[np.ndarray, float]:
    """β and intercept of argmin Σ w (y - β₀ - βz)² + penalty |β|², the intercept free."""
    x = np.column_stack([np.ones(len(z)), z])
    free = np.diag([0.0] + [penalty] * z.shape[1])
    solution = np.linalg.solve(x.T @ (w[:, None] * x) + free, x.T @ (w * y))
    return solution[1:], float(solution[0])


def ridge(z: np.ndarray, y: np.ndarray, w: np.ndarray, penalty: float) -> Ridge:
    return fit_ridge(Words(z), y, w, penalty)


def everything(
    model: SingleLayer, text: str, label: int, removal: str = "replace"
) -> tuple[np.ndarray, np.ndarray]:
    """All 2^d choices of distinct words and the output of each, from texts that are read anew."""
    words = text.split()
    distinct = list(dict.fromkeys(words))
    keep = np.array(list(product([True, False], repeat=len(distinct))))
    changed = []
    for row in keep:
        kept = {w for w, k in zip(distinct, row, strict=True) if k}
        changed.append(
            " ".join(w if w in kept else "zzqx" for w in words if w in kept or removal == "replace")
        )
    return keep, log_odds(model(changed), label)


def limit(
    keep: np.ndarray, y: np.ndarray, nu: float = NU, samples: float = np.inf, penalty: float = 0.0
) -> np.ndarray:
    """What LIME tends to: s uniform on 1..d, subsets uniform given s; sample 0 and the ridge count
    1 in `samples`."""
    d = keep.shape[1]
    removed = d - keep.sum(1)
    share = np.array([1 / d / math.comb(d, s) if s else 0.0 for s in removed]) * (1 - 1 / samples)
    share[removed == 0] = 1 / samples
    weights = share * np.array([kernel(s, d, nu) for s in removed])
    return normal_equations(keep.astype(float), y, weights, penalty / samples)[0]


# The regression


@pytest.mark.parametrize("penalty", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("entries", [1 << 21, 64])
def test_ridge_solves_the_normal_equations(
    penalty: float, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regression, "ENTRIES", entries)  # also in many small slices
    rng = np.random.default_rng(0)
    z, y, w = rng.random((90, 7)) < 0.6, rng.normal(size=90) * 5 + 100, rng.random(90)
    found = ridge(z, y, w, penalty)
    slope, intercept = normal_equations(z.astype(float), y, w, penalty)
    np.testing.assert_allclose(found.coefficients, slope, rtol=0, atol=1e-9)
    assert found.intercept == pytest.approx(intercept, abs=1e-9)
    mean = np.average(y, weights=w)
    left = y - intercept - z @ slope
    assert found.r2 == pytest.approx(
        1 - (w @ left**2) / (w @ (y - mean) ** 2), abs=1e-6
    )  # float32 inside


@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_ridge_is_that_of_scikit_learn(penalty: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(1)
    z, y, w = rng.random((200, 5)) < 0.5, rng.normal(size=200), rng.random(200)
    expected = linear_model.Ridge(alpha=penalty).fit(z, y, sample_weight=w)
    found = ridge(z, y, w, penalty)
    np.testing.assert_allclose(found.coefficients, expected.coef_, rtol=0, atol=1e-10)
    assert found.intercept == pytest.approx(expected.intercept_, abs=1e-10)
    assert found.r2 == pytest.approx(expected.score(z, y, sample_weight=w), abs=1e-6)


def test_ridge_errors_are_those_of_the_sandwich() -> None:
    """HC2: inverse · Σ w² e²/(1-h) x xᵀ · inverse without row 0, x centred."""
    rng = np.random.default_rng(2)
    z, y, w = rng.random((60, 4)) < 0.5, rng.normal(size=60), rng.random(60)
    found = ridge(z, y, w, 1.0)
    x = z - np.average(z, axis=0, weights=w)
    inverse = np.linalg.inv(x.T @ (w[:, None] * x) + np.eye(4))
    error = y - found.intercept - z @ found.coefficients
    leverage = np.array([w[i] * (x[i] @ inverse @ x[i] + 1 / w.sum()) for i in range(60)])
    meat = sum(
        w[i] ** 2 * error[i] ** 2 / (1 - leverage[i]) * np.outer(x[i], x[i]) for i in range(1, 60)
    )
    np.testing.assert_allclose(
        found.standard_errors, np.sqrt(np.diag(inverse @ meat @ inverse)), rtol=1e-4
    )


def test_a_word_that_is_always_kept_gets_nothing() -> None:
    z = np.array([[True, True], [True, False], [True, True], [True, False]])
    found = ridge(z, np.array([1.0, 0.0, 1.0, 0.0]), np.ones(4), 0.0)
    np.testing.assert_allclose(found.coefficients, [0, 1], atol=1e-6)
    assert np.isfinite(found.standard_errors).all()


# The samples


def test_subsets_have_exactly_the_sizes_asked_for() -> None:
    sizes = np.array([0, 1, 2, 3, 9, 10] * 50)
    assert random_subsets(np.random.default_rng(0), sizes, 10).sum(1).tolist() == sizes.tolist()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_subsets_are_uniform(size: int) -> None:
    """χ² over all subsets of that size; 0.1 % quantile, fixed seed."""
    drawn = random_subsets(np.random.default_rng(5), np.full(20_000, size), 5)
    index = {s: i for i, s in enumerate(combinations(range(5), size))}
    counts = np.bincount([index[tuple(np.flatnonzero(row))] for row in drawn], minlength=len(index))
    assert len(counts) == len(index)
    assert stats.chisquare(counts).pvalue > 1e-3


def captured(monkeypatch: pytest.MonkeyPatch) -> dict:
    seen: dict = {}

    def spy(design: Words, y: np.ndarray, weights: np.ndarray, penalty: float) -> Ridge:
        seen.update(keep=design.keep, y=y, weights=weights, penalty=penalty)
        return fit_ridge(design, y, weights, penalty)

    monkeypatch.setattr(perturbation, "ridge", spy)
    return seen


@pytest.mark.parametrize("bandwidth", [0.25, 1.0])
def test_samples_weights_and_outputs_are_those_of_the_definition(
    model: SingleLayer, bandwidth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = captured(monkeypatch)
    found = heed.explain(
        model,
        TEXT,
        "lime",
        label=1,
        samples=12_000,
        bandwidth=bandwidth,
        ridge=2.0,
        sampling="lime",
    )
    keep, removed = seen["keep"], 6 - seen["keep"].sum(1)
    assert keep[0].all() and len(keep) == 12_000 and found.forward_passes == 2**6
    assert (
        stats.chisquare(np.bincount(removed[1:], minlength=7)[1:]).pvalue > 1e-3
    )  # s uniform on 1..d, never 0
    np.testing.assert_allclose(
        seen["weights"], [kernel(s, 6, bandwidth) for s in removed], rtol=1e-12
    )
    (logits,) = model.score(model.tokens([TEXT]), [keep], removal="replace")
    np.testing.assert_allclose(seen["y"], log_odds(logits, 1), atol=1e-12)
    slope, intercept = normal_equations(keep.astype(float), seen["y"], seen["weights"], 2.0)
    np.testing.assert_allclose(found.scores, slope, atol=1e-10)
    assert found.facts["intercept"] == pytest.approx(intercept, abs=1e-10)


# The limit


@pytest.mark.parametrize("padding", ["masked", "attends"])
@pytest.mark.parametrize("removal", ["replace", "delete"])
@pytest.mark.parametrize("text", [TEXT, "good good film the good the slow", "very slow"])
def test_estimates_tend_to_the_enumerated_limit(
    make: Callable[..., SingleLayer], padding: str, removal: str, text: str
) -> None:
    """Within 4.5 standard errors for every word (a chance of 1e-5 each), which are small beside
    the largest score."""
    model = make(padding=padding)
    n = 20_000
    found = heed.explain(model, text, "lime", label=1, samples=n, removal=removal, sampling="lime")
    expected = limit(*everything(model, text, 1, removal), samples=n, penalty=1.0)
    assert [u.text for u in found.units] == list(dict.fromkeys(text.split()))
    assert (np.abs(found.scores - expected) < 4.5 * found.standard_errors + 1e-9).all()
    assert found.standard_errors.max() < 0.05 * np.abs(expected).max()


def test_infinite_bandwidth_has_the_known_limit(model: SingleLayer) -> None:
    """β_j = 3(d-1)/(d+1) (E[f|j∉S] - mean_k E[f|k∉S]) + 12d/(d²-1) Cov(f, 1-s/d)."""
    keep, y = everything(model, TEXT, 1)
    d = 6
    removed = d - keep.sum(1)
    p = np.array([1 / d / math.comb(d, s) if s else 0.0 for s in removed])
    given = np.array([(p * y)[keep[:, j]].sum() / p[keep[:, j]].sum() for j in range(d)])
    size = 1 - removed / d
    covariance = p @ (y * size) - (p @ y) * (p @ size)
    expected = 3 * (d - 1) / (d + 1) * (given - given.mean()) + 12 * d / (d * d - 1) * covariance
    np.testing.assert_allclose(limit(keep, y, nu=1e9), expected, atol=1e-10)
    found = heed.explain(
        model, TEXT, "lime", label=1, samples=40_000, bandwidth=1e9, ridge=0, sampling="lime"
    )
    assert (np.abs(found.scores - expected) < 4.5 * found.standard_errors).all()


@pytest.mark.parametrize("samples", [60, 400])
def test_standard_errors_are_honest(model: SingleLayer, samples: int) -> None:
    """95 % intervals of 200 runs × 6 words must cover the limit in 90 to 98 % of cases."""
    expected = limit(*everything(model, TEXT, 1), samples=samples, penalty=1.0)
    method = METHODS["lime"](samples=samples, sampling="lime")
    runs = [method.explain(model, [TEXT], 1, seed=seed)[0] for seed in range(200)]
    covered = np.array([np.abs(r.scores - expected) < 1.96 * r.standard_errors for r in runs])
    assert 0.90 <= covered.mean() <= 0.98


def test_standard_errors_fall_with_the_root_of_the_samples(model: SingleLayer) -> None:
    few, many = (
        heed.explain(model, TEXT, "lime", samples=n, sampling="lime").standard_errors
        for n in (1000, 16_000)
    )
    np.testing.assert_allclose(few / many, 4, rtol=0.25)


# Settings


@pytest.mark.parametrize("removal", ["replace", "delete", "hide"])
def test_lime_of_the_heads_adds_up_to_lime(any_model: SingleLayer, removal: str) -> None:
    """The regression is linear in the outputs, and the samples do not depend on the head."""
    text = "the film was slow but the plot is good"
    asked = {"label": 1, "samples": 300, "removal": removal}
    whole = heed.explain(any_model, text, "lime", **asked, output="logit")
    heads = [heed.explain(any_model, text, "lime", **asked, head=i) for i in range(3)]
    assert {h.settings["output"] for h in heads} == {"logit"}
    tolerance = 1e-9 if any_model.network.W_e.dtype.itemsize == 8 else 1e-5
    np.testing.assert_allclose(sum(h.scores for h in heads), whole.scores, atol=tolerance)


@pytest.mark.parametrize("name", ["lime", "shapley"])
def test_repeats_are_one_unit_together_and_several_apart(model: SingleLayer, name: str) -> None:
    text = "Good film , good plot GOOD"
    together = heed.explain(model, text, name, samples=100)
    assert [u.text for u in together.units] == ["Good", "film", ",", "plot"]
    assert together.units[0].spans == ((0, 4), (12, 16), (22, 26))
    apart = heed.explain(model, text, name, samples=100, repeats="apart")
    assert [u.text for u in apart.units] == ["Good", "film", ",", "good", "plot", "GOOD"]
    assert all(len(u.spans) == 1 for u in apart.units)


def test_repeats_apart_is_the_limit_over_positions(model: SingleLayer) -> None:
    text = "good slow good film"
    keep = np.array(list(product([True, False], repeat=4)))
    (y,) = model.score(model.tokens([text]), [keep], removal="replace")
    expected = limit(keep, log_odds(y, 1), samples=20_000, penalty=1.0)
    found = heed.explain(
        model, text, "lime", label=1, samples=20_000, repeats="apart", sampling="lime"
    )
    assert (np.abs(found.scores - expected) < 4.5 * found.standard_errors).all()


@pytest.mark.parametrize("output", ["probability", "log-odds"])
def test_other_outputs_are_what_is_fitted(
    make: Callable[..., SingleLayer], output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = make(labels=3), captured(monkeypatch)
    heed.explain(model, TEXT, "lime", label=1, samples=50, output=output, sampling="lime")
    (z,) = model.score(model.tokens([TEXT]), [seen["keep"]])
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    expected = p[:, 1] if output == "probability" else np.log(p[:, 1] / (1 - p[:, 1]))
    np.testing.assert_allclose(seen["y"], expected, atol=1e-12)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("bandwidth", [0.01, 1e9])
@pytest.mark.parametrize("text", ["good", "good film", TEXT])
@pytest.mark.parametrize("sampling", ["auto", "pairs", "lime"])
def test_extreme_settings_give_finite_scores(
    model: SingleLayer, text: str, bandwidth: float, penalty: float, sampling: str
) -> None:
    found = heed.explain(
        model, text, "lime", samples=20, bandwidth=bandwidth, ridge=penalty, sampling=sampling
    )
    assert np.isfinite(found.scores).all() and np.isfinite(found.standard_errors).all()


def test_fewer_samples_than_words_still_give_an_answer(model: SingleLayer) -> None:
    found = heed.explain(model, "the film was slow but the plot is good", "lime", samples=3)
    assert np.isfinite(found.scores).all() and np.isfinite(found.standard_errors).all()


# Few words


def test_the_words_with_the_largest_scores_are_fitted_anew(
    model: SingleLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = heed.explain(model, TEXT, "lime", label=1, samples=500, sampling="lime")
    seen = captured(monkeypatch)
    few = heed.explain(model, TEXT, "lime", label=1, samples=500, words=2, sampling="lime")
    chosen = np.sort(np.argsort(-np.abs(whole.scores))[:2])
    assert np.flatnonzero(few.scores).tolist() == chosen.tolist()
    assert seen["keep"].shape == (500, 2)
    slope, intercept = normal_equations(seen["keep"].astype(float), seen["y"], seen["weights"], 1.0)
    np.testing.assert_allclose(few.scores[chosen], slope, atol=1e-9)
    assert few.facts["intercept"] == pytest.approx(intercept, abs=1e-9)
    assert np.abs(few.scores[chosen] - whole.scores[chosen]).max() > 1e-6  # anew
    assert (
        few.standard_errors is not None
        and np.flatnonzero(few.standard_errors).tolist() == chosen.tolist()
    )
    for count in (6, 99):
        np.testing.assert_array_equal(
            heed.explain(
                model, TEXT, "lime", label=1, samples=500, words=count, sampling="lime"
            ).scores,
            whole.scores,
        )


def test_the_chosen_words_are_those_of_the_lime_package(model: SingleLayer) -> None:
    """Its "highest_weights", on the samples of one of its own explanations."""
    lime_base = pytest.importorskip("lime.lime_base")
    rng = np.random.default_rng(0)
    z = rng.random((400, 12)) < 0.5
    z[0] = True
    y, w = z @ rng.normal(size=12) + rng.normal(size=400), np.ones(400)
    base = lime_base.LimeBase(lambda d: np.ones(len(d)))
    theirs = base.feature_selection(z.astype(float), y, w, 4, "highest_weights")
    ours = np.argsort(-np.abs(ridge(z, y, w, 0.01).coefficients))[:4]
    assert sorted(theirs) == sorted(ours)


@pytest.mark.parametrize("words", [0, -1])
def test_no_words_are_refused(words: int) -> None:
    with pytest.raises(heed.errors.InputError, match="words of lime"):
        METHODS["lime"](words=words)


# Pairs with controls

LONG = "the film was slow but good and the plot is not very great , the music fine"


def drawn(model: SingleLayer, text: str, **settings: object) -> tuple[np.ndarray, np.ndarray, Lime]:
    """The rows that a method plans for a text, and the outputs of each."""
    method = Lime(**settings)  # type: ignore[arg-type]
    seen: dict = {}

    class Spy(Lime):
        def fit(self, job: object, keep: np.ndarray, outputs: np.ndarray) -> object:
            seen.update(keep=keep, outputs=outputs)
            return super().fit(job, keep, outputs)  # type: ignore[arg-type]

    Spy(**settings).explain(model, [text], 1)  # type: ignore[arg-type]
    return seen["keep"], seen["outputs"], method


def test_pairs_are_complements_with_sizes_that_are_uniform(model: SingleLayer) -> None:
    keep, _, _ = drawn(model, LONG, samples=20_001, sampling="pairs")
    d = keep.shape[1]
    assert keep[0].all() and not keep[1].any() and len(keep) == 20_000
    first, second = keep[2::2], keep[3::2]
    np.testing.assert_array_equal(first, ~second)
    counts = np.bincount(first.sum(1), minlength=d + 1)
    assert counts[0] == counts[d] == 0
    assert stats.chisquare(counts[1:d]).pvalue > 1e-3


def test_proper_subsets_are_neither_empty_nor_all() -> None:
    found = uniform_subsets(np.random.default_rng(0), 5000, 3, proper=True).sum(1)
    assert set(found.tolist()) == {1, 2}
    assert stats.chisquare(np.bincount(found)[1:]).pvalue > 1e-3


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("words", [None, 3])
@pytest.mark.parametrize("n", [400, 900])
def test_the_regression_of_pairs_is_its_definition(
    model: SingleLayer, n: int, penalty: float, words: int | None
) -> None:
    """Weighted least squares on words and controls, written out."""
    nu = 0.25
    keep, y, method = drawn(model, LONG, samples=n, sampling="pairs", ridge=penalty, words=words)
    found = heed.explain(model, LONG, method, label=1)
    keep, y = keep[1:], y[1:]
    d, s = keep.shape[1], keep.shape[1] - keep.sum(1)
    pi = np.array([kernel(k, d, nu) for k in range(d + 1)])
    paired = len(keep) - 1
    w = pi[s] * n * (d - 1) / (d * paired)
    w[0] = n * pi[d] / d
    assert w[0] == pytest.approx(paired * pi[d] / (d - 1) * (n * (d - 1) / (d * paired)))
    phi, psi = controls(d, nu)
    chosen = np.flatnonzero(found.scores) if words else np.arange(d)
    x = np.column_stack(
        [keep[:, chosen], phi[s], psi[s][:, None] * (keep - (1 - s / d)[:, None])[:, :-1]]
    ).astype(float)
    W, m = pi[1:] / d, 1 - np.arange(1, d + 1) / d
    ridges = (
        [penalty] * len(chosen)
        + [0.0] * phi.shape[1]
        + [d * float(W @ (psi[1:] ** 2 * m * (1 - m)))] * (d - 1)
    )
    full = np.column_stack([np.ones(len(x)), x])
    inverse = np.linalg.inv(full.T @ (w[:, None] * full) + np.diag([0.0, *ridges]))
    solution = inverse @ full.T @ (w * y)
    q = len(chosen)
    np.testing.assert_allclose(found.scores[chosen], solution[1 : 1 + q], atol=1e-8)
    assert found.facts["intercept"] == pytest.approx(solution[0], abs=1e-8)
    linear = solution[0] + keep[:, chosen] @ solution[1 : 1 + q]
    level = np.average(y - linear, weights=w)
    spread = w @ (y - np.average(y, weights=w)) ** 2
    assert found.facts["r2"] == pytest.approx(1 - w @ (y - linear - level) ** 2 / spread, abs=1e-5)
    scaled = np.sqrt(w)[:, None] * full
    variance = (by_unbiased if n == 400 else by_cr2)(
        scaled, inverse, np.sqrt(w) * (y - full @ solution)
    )
    assert found.standard_errors is not None
    np.testing.assert_allclose(
        found.standard_errors[chosen], np.sqrt(np.diag(variance))[1 : 1 + q], rtol=1e-3
    )


def by_cr2(scaled: np.ndarray, inverse: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Residuals of a pair times (I - H)^(-1/2) of its rows; the fixed row adds nothing, 250 pairs
    stand for all."""
    meat = np.zeros_like(inverse)
    for i in range(1, 501, 2):
        rows = scaled[i : i + 2]
        values, vectors = np.linalg.eigh(np.eye(2) - rows @ inverse @ rows.T)
        pushed = vectors @ np.diag(values**-0.5) @ vectors.T @ rest[i : i + 2]
        meat += np.outer(rows.T @ pushed, rows.T @ pushed)
    return inverse @ meat @ inverse * (len(scaled) - 1) / 500


def by_unbiased(scaled: np.ndarray, inverse: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """The covariances of pairs for which those of residuals have the right mean, by a system of
    Kronecker products."""
    pairs = [scaled[i : i + 2] for i in range(1, len(scaled), 2)]
    system = np.zeros((4 * len(pairs), 4 * len(pairs)))
    for g, own in enumerate(pairs):
        for h, other in enumerate(pairs):
            M = (g == h) * np.eye(2) - own @ inverse @ other.T
            system[4 * g : 4 * g + 4, 4 * h : 4 * h + 4] = np.kron(M, M)
    seen = [np.outer(rest[i : i + 2], rest[i : i + 2]).ravel() for i in range(1, len(scaled), 2)]
    C = np.linalg.solve(system, np.concatenate(seen)).reshape(-1, 2, 2)
    return sum(inverse @ rows.T @ own @ rows @ inverse for rows, own in zip(pairs, C, strict=True))


def test_standard_errors_have_an_answer_where_the_unbiased_ones_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    half = rng.random((40, 5)) < 0.5
    keep = np.vstack([np.ones(5, bool), np.stack([half, ~half], 1).reshape(-1, 5)])
    y, w = keep @ rng.normal(size=5) + rng.normal(size=81), np.ones(81)
    plain = fit_ridge(Words(keep), y, w, 0.1, pairs=True).standard_errors
    monkeypatch.setattr(regression, "_unbiased", lambda *_: np.array([-1.0, 0.0, 4.0, 4.0, 4.0]))
    some = fit_ridge(Words(keep), y, w, 0.1, pairs=True).standard_errors
    monkeypatch.setattr(
        regression, "_unbiased", lambda *_: np.linalg.solve(np.zeros((2, 2)), np.ones(2))
    )
    none = fit_ridge(Words(keep), y, w, 0.1, pairs=True).standard_errors
    assert (some[:2] == none[:2]).all() and (some[2:] == 2).all() and (none > 0).all()
    assert (plain != none).all()


def test_pairs_tend_to_the_limit_of_lime(model: SingleLayer) -> None:
    n = 30_000  # of 32,768 subsets
    found = heed.explain(model, LONG, "lime", label=1, samples=n, sampling="pairs")
    exact = heed.explain(model, LONG, "lime-exact", label=1, ridge=1 / n)
    assert found.standard_errors is not None
    assert (np.abs(found.scores - exact.scores) < 4.5 * found.standard_errors + 1e-9).all()
    assert found.standard_errors.max() < 0.02 * np.abs(exact.scores).max()
    assert found.facts["intercept"] == pytest.approx(exact.facts["intercept"], abs=0.02)


@pytest.mark.parametrize("sampling", ["pairs", "lime"])
@pytest.mark.parametrize("n", [150, 600])
def test_intervals_of_both_designs_cover(model: SingleLayer, sampling: str, n: int) -> None:
    """95 % intervals of 120 runs × 15 words hold the exact value in 92 to 98 % of cases."""
    exact = heed.explain(model, LONG, "lime-exact", label=1, ridge=1 / n).scores
    runs = [
        Lime(samples=n, sampling=sampling).explain(model, [LONG], 1, seed=s)[0] for s in range(120)
    ]  # type: ignore[arg-type]
    covered = np.array([np.abs(r.scores - exact) < 1.96 * r.standard_errors for r in runs])
    assert 0.92 <= covered.mean() <= 0.98


def test_pairs_have_the_smaller_error(model: SingleLayer) -> None:
    exact = heed.explain(model, LONG, "lime-exact", label=1, ridge=1 / 500).scores
    errors = {
        sampling: np.mean(
            [
                (
                    Lime(samples=500, sampling=sampling).explain(model, [LONG], 1, seed=s)[0].scores
                    - exact
                )
                ** 2
                for s in range(30)
            ]  # type: ignore[arg-type]
        )
        for sampling in ("pairs", "lime")
    }
    assert errors["pairs"] < 0.7 * errors["lime"]


@pytest.mark.parametrize("removal", ["replace", "delete", "hide"])
@pytest.mark.parametrize("text", [TEXT, "good good film the good the slow", "very slow"])
def test_all_subsets_of_a_short_text_give_the_limit_itself(
    model: SingleLayer, text: str, removal: str
) -> None:
    """Neither the number of samples nor the ridge, which vanishes with many, has a say."""
    found = heed.explain(model, text, "lime", label=1, samples=100, removal=removal)
    units = len(found.units)
    other = heed.explain(
        model, text, "lime", label=1, samples=2**units, removal=removal, ridge=50, sampling="pairs"
    )
    np.testing.assert_array_equal(found.scores, other.scores)
    note = f"All {2**units} subsets of words were evaluated: nothing was sampled."
    assert note in found.notes and note in other.notes
    keep = np.array(list(product([True, False], repeat=units)))
    assert found.forward_passes == 2**units
    assert found.standard_errors is not None and not found.standard_errors.any()
    if removal != "hide":
        y = everything(model, text, 1, removal)[1]
        s = units - keep.sum(1)
        w = np.array([kernel(k, units, NU) / units / math.comb(units, k) if k else 0.0 for k in s])
        expected, _ = normal_equations(keep.astype(float), y, w, 0.0)
        np.testing.assert_allclose(found.scores, expected, atol=1e-9)
    if removal == "replace":
        exact = heed.explain(model, text, "lime-exact", label=1)
        np.testing.assert_allclose(found.scores, exact.scores, atol=1e-8)


def test_which_design_is_taken_by_default(model: SingleLayer) -> None:
    d = len(heed.explain(model, LONG, "lime").units)
    few = heed.explain(model, LONG, "lime", samples=5 * d - 1).scores
    np.testing.assert_array_equal(
        few, heed.explain(model, LONG, "lime", samples=5 * d - 1, sampling="lime").scores
    )
    many = heed.explain(model, LONG, "lime", samples=5 * d).scores
    np.testing.assert_array_equal(
        many, heed.explain(model, LONG, "lime", samples=5 * d, sampling="pairs").scores
    )


def test_controls_leave_a_linear_output_alone() -> None:
    rng = np.random.default_rng(0)
    d, half = 12, uniform_subsets(rng, 200, 12, proper=True)
    keep = np.vstack([np.zeros((1, d), dtype=bool), np.stack([half, ~half], 1).reshape(-1, d)])
    beta = rng.normal(size=d)
    phi, psi = controls(d, 0.25)
    removed = d - keep.sum(1)
    penalty = np.concatenate([np.zeros(d + phi.shape[1]), np.ones(d - 1)])
    design = Controlled(keep, np.arange(d), removed, phi, psi)
    y, weights = keep @ beta + 3.0, np.ones(len(keep))
    found = fit_ridge(design, y, weights, penalty, reported=d, pairs=True)
    np.testing.assert_allclose(found.coefficients, beta, atol=1e-8)
    assert found.intercept == pytest.approx(3.0, abs=1e-8) and found.r2 == pytest.approx(1.0)
