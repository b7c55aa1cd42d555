"""The experiments of Lopardo, Precioso and Garreau (2024) at their small scale."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import heed
from heed.algebra.limits import lime_theorem
from heed.errors import InputError
from heed.methods import AttentionMean, GradientInput, LimeExact
from heed.methods.comparison import agreement
from heed.papers import PAPERS, Lab, Outcome, run
from heed.papers.lopardo import comparisons, theorems, variants
from heed.papers.lopardo.histogram import histogram
from heed.papers.results import Results, texts
from heed.papers.table import Table, percentiles

EXPERIMENTS = {e.name: e for e in PAPERS["lopardo-2024"].experiments}
QUICK = ("accuracy", "side-by-side", "signatures", "anchors", "talk", "lemmas")
SLOW = [name for name in EXPERIMENTS if name not in QUICK]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Without IMDB: what a fresh machine has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEED_DATA", raising=False)
        yield Lab("smoke", tmp_path_factory.mktemp("reproduction"))


def check(lab: Lab, name: str, paper: str = "lopardo-2024") -> Outcome:
    sections = run(paper, lab, [name])
    (section,) = [s for s in sections if s.name == name]
    outcome = section.outcome
    assert outcome.results
    for r in outcome.results:
        assert r.experiment == name and r.metric and r.dataset and r.model
        numbers = [v for v in (r.ours, r.low, r.high) if v is not None]
        assert all(math.isfinite(v) for v in numbers), r
        if r.low is not None and r.high is not None and r.ours is not None:
            assert r.low - 1e-9 <= r.ours <= r.high + 1e-9, r
        assert r.ours is not None or r.note
    for f in outcome.figures:
        assert f.data and f.title
        needed = [c for c in (f.x, f.y, f.value, f.colour, f.panel) if c]
        assert all(
            c in row for row in f.data for c in needed if not (f.kind == "heat" and c == "value")
        )
    for path in (lab.folder / "rows").glob(f"{name}-*.parquet"):
        assert pq.read_table(path).num_rows > 0
    return outcome


@pytest.mark.parametrize("name", QUICK)
def test_an_experiment_runs_and_its_results_make_sense(lab: Lab, name: str) -> None:
    check(lab, name)


@pytest.mark.full
@pytest.mark.parametrize("name", SLOW)
def test_a_longer_experiment_runs_and_its_results_make_sense(lab: Lab, name: str) -> None:
    check(lab, name)


def test_every_experiment_answers_a_question() -> None:
    assert len(EXPERIMENTS) == len(PAPERS["lopardo-2024"].experiments) == 19
    assert all(e.question.endswith("?") and e.title for e in EXPERIMENTS.values())


def test_every_experiment_of_the_data_file_can_be_run() -> None:
    for name, about in texts("papers").items():
        assert [e.name for e in PAPERS[name].experiments] == list(about["experiments"])
    assert set(texts("papers")) == set(PAPERS)


def test_the_gradient_theorem_holds_and_its_printed_cls_row_does_not(lab: Lab) -> None:
    small = Lab("smoke", lab.folder)
    small.pick = lambda smoke, full: min(smoke, 8)  # type: ignore[method-assign]
    error, printed = theorems.gradient_theorem(small).results
    assert error.ours is not None and error.ours < 1e-12 and "holds" in error.note
    assert printed.ours is not None and printed.ours > 0.01


def test_correlations_are_means_of_tau_over_documents(lab: Lab) -> None:
    few = Lab("smoke", lab.folder)
    few.pick = lambda smoke, full: min(smoke, 4) if smoke < 1000 else 50  # type: ignore[method-assign]
    outcome = comparisons.correlations(few)
    documents = few.documents(4).documents
    # LIME makes distinct words the units of all
    used = AttentionMean(), GradientInput(output="logit"), LimeExact(output="logit")
    every = [method.explain(few.main, documents) for method in used]
    expected = np.mean([agreement(group)[0, 1] for group in zip(*every, strict=True)])
    (found,) = [r for r in outcome.results if "gradient-input and attention-mean" in r.metric]
    assert found.ours == pytest.approx(expected) and found.n == 4


def test_even_values_that_keep_the_order_of_attention_do_not_make_it_that_of_lime(lab: Lab) -> None:
    """A word below the average takes from the others, which LIME counts and αw does not."""
    results = Results("when")
    comparisons._add_ordering_law(results, lab)
    kept, other, mixed = (r.ours for r in results)
    assert kept is not None and other is not None and mixed is not None
    assert max(kept, other, mixed) < 0.9 and min(kept, other, mixed) > 0


def test_other_replacements_are_those_that_are_named(lab: Lab) -> None:
    """The mean word, zero and a frequent word stand in for removed ones, and for nothing else."""
    text = "a fine film with a dull ending"
    main = lab.main
    for name, model in theorems._fillers(main).items():
        np.testing.assert_allclose(model([text]), main([text]), atol=1e-9)
        (tokens,) = model.tokens([text])
        keep = np.ones((1, len(tokens.words)), dtype=bool)
        keep[0, 2] = False
        (found,) = model.score([tokens], [keep])
        if name == '"the"':
            np.testing.assert_allclose(
                found[0], main(["a fine the with a dull ending"])[0], atol=1e-9
            )
        elif name == "<unk>":
            np.testing.assert_allclose(
                found[0], main(["a fine zzqxv with a dull ending"])[0], atol=1e-9
            )
        else:
            trace = main.trace([tokens])
            e = trace.embeddings.detach().clone()
            word = main.network.W_e[3:].mean(0) if name == "mean word" else main.network.W_e[0] * 0
            e[0, 3] = word + main.network.W_p[3]
            moved = main.trace([tokens], embeddings=e).logits.detach().numpy()
            np.testing.assert_allclose(found, moved, atol=1e-5)


def test_more_positions_leave_the_words_where_they_were(lab: Lab) -> None:
    (tokens,) = lab.main.tokens(["a fine film with a dull ending"])
    longer = theorems._rebuilt(lab.main, max_words=600, padding="attends")
    f, g = theorems.form(lab.main, tokens, 1), theorems.form(longer, tokens, 1)
    np.testing.assert_allclose(f.a / f.a.sum(1)[:, None], g.a / g.a.sum(1)[:, None], rtol=1e-9)
    assert (g.c / g.a.sum(1) > f.c / f.a.sum(1)).all()  # padding attends
    assert lime_theorem(g).shape == lime_theorem(f).shape


def test_a_model_that_is_no_single_layer_classifier_is_refused(lab: Lab) -> None:
    with pytest.raises(InputError, match="single-layer classifiers"):
        Lab("smoke", lab.folder, model="transformer-imdb").main  # noqa: B018


def test_the_full_scale_says_that_it_needs_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEED_DATA", raising=False)
    monkeypatch.setenv("HEED_CACHE", str(tmp_path))
    with pytest.raises(heed.errors.DataError, match="needs IMDB"):
        Lab("full", tmp_path).documents(10)


def test_a_trained_model_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEED_DATA", raising=False)
    data = heed.data.tasks.generate("planted", 60)
    first = Lab("smoke", tmp_path).train("one", {}, 0, data=data)
    (folder,) = (tmp_path / "models").glob("smoke-one-*")
    changed = (folder / "model.safetensors").stat().st_mtime_ns
    again = Lab("smoke", tmp_path).train("one", {}, 0, data=data)
    assert again.revision == first.revision
    assert again.name == first.name == "smoke-one"
    assert (folder / "model.safetensors").stat().st_mtime_ns == changed


@pytest.mark.parametrize("size", [200, 0])
def test_pieces_are_parts_of_words(size: int) -> None:
    documents = heed.data.tasks.generate("reviews", 30).documents
    tokenizer = variants._pieces(documents, size, 300)
    for tokens in tokenizer(documents[:5]):
        assert tokens.ids[0] == 1 and not tokens.unknown.any()
        text = tokens.document.text
        assert "".join(tokens.text(i) for i in range(1, len(tokens))) == text.replace(" ", "")
        words = heed.text.Tokenizer.plain(1000)([tokens.document])[0].words
        assert [w.text for w in tokens.words] == [w.text for w in words]
        if size == 0:
            assert all(len(tokens.text(i)) == 1 for i in range(1, len(tokens)))


def test_scores_of_tokens_are_added_up_over_words(lab: Lab) -> None:
    text = "good film , good ending"
    words = LimeExact().explain(lab.main, [text])[0]
    tokens = LimeExact().explain(lab.main, [text], unit="token")[0]
    np.testing.assert_allclose(variants._merged(tokens, words), words.scores)


def test_the_words_that_give_the_answer_are_those_that_are_marked(lab: Lab) -> None:
    """A rationale marks characters: each document's own, wherever in the text they are."""
    for document in heed.data.tasks.generate("story", 30).documents:
        (explanation,) = AttentionMean().explain(lab.main, [document])
        gives = [
            any(
                u.segment == s.segment and s.start <= u.spans[0][0] < s.end
                for s in document.rationale
            )
            for u in explanation.units
        ]
        row = variants._pointing(lab.main, document)
        assert any(gives) and row["chance"] == pytest.approx(np.mean(gives))
        top = np.argsort(-explanation.scores, kind="stable")[: sum(gives)]
        assert row["pointed attention"] == pytest.approx(np.mean([gives[i] for i in top]))


def test_a_document_counts_once_however_often_a_model_is_trained(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three trainings give three rows per document; means and intervals are over documents."""
    thrice = Lab("smoke", lab.folder)
    monkeypatch.setattr(thrice, "pick", lambda smoke, full: full if full == 3 else min(smoke, 8))
    monkeypatch.setattr(thrice, "train", lambda *arguments, **named: lab.main)
    outcome = variants.other_data(thrice)
    results = [r for r in outcome.results if r.dataset == "task:story" and r.metric[:4] != "test"]
    rows = Table(outcome.rows["documents"]).where(data="task:story")
    assert len(rows) == 24 and {r.n for r in results} == {8}
    for key, metric in texts("metrics")["answers"].items():
        (result,) = [r for r in results if r.metric == metric]
        by_document = [group.average(key) for _, group in rows.by("document")]
        assert (result.low, result.high) == percentiles(np.array(by_document))


@pytest.mark.full
def test_letters_are_counted_with_telling_and_with_empty_attention(tmp_path: Path) -> None:
    lab = Lab("full", tmp_path)
    lab.pick = lambda smoke, full: 1 if full == 5 else 3000  # type: ignore[method-assign]
    outcome = histogram(lab)
    counted = [r.ours for r in outcome.results if "counted rightly" in r.metric]
    assert max(c for c in counted if c is not None) > 0.95
