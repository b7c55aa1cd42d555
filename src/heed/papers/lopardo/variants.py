"""Other models, other data: how far the paper's findings reach."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from heed import methods
from heed.claims.plausible import marked
from heed.data import Dataset, tasks
from heed.methods import AttentionMean, Explanation, LimeExact
from heed.methods.comparison import aligned, rank_agreement
from heed.metrics import kendall, spearman
from heed.models.classifier import BETWEEN, CLOSED
from heed.papers.lab import OTHER_DATA, Lab, fingerprint
from heed.papers.lopardo.comparisons import BETTER, models_of
from heed.papers.results import Outcome, Results, figure, texts
from heed.papers.table import Mean, Row, Table, mean_of
from heed.text import CLS, SEP, UNKNOWN, Document, Tokenizer

if TYPE_CHECKING:  # which load torch
    from heed.models.classifier import Classifier
    from heed.models.stacked import Stacked


def accuracy(lab: Lab) -> Outcome:
    """Test accuracy of the model that is examined, and of other training seeds."""
    test = lab.documents(lab.pick(300, 25_000))
    results = Results("accuracy", test.name)
    stand_in = (
        f"The published figure is for IMDB, which is not on this machine; {test.name} stands in"
        " for it."
    )
    note = "The paper's six layers of six heads reach 0.822." if test.name == "imdb" else stand_in
    rows: list[Row] = []
    for model in models_of(lab):
        share = _with_interval(_accuracy(model, test), len(test))
        rows.append({"model": model.name, "accuracy": share.ours})
        results.add("test accuracy", share, model=model.name, published=0.802, note=note)
        note = ""  # said once
    return Outcome(results, rows={"models": rows})


def _accuracy(model: Classifier, documents: Dataset) -> float:
    return float((model(documents.documents).argmax(1) == documents.gold).mean())


def _with_interval(p: float, n: int) -> Mean:
    """A share with Wilson's interval."""
    z = 1.96
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Mean(p, float(centre - half), float(centre + half), n)


def _trained_rows(
    lab: Lab, columns: Row, models: Sequence[Classifier], data: Dataset, samples: int
) -> Table:
    """How the explanations of each training of a model agree, after these columns."""
    rows = Table()
    for seed, model in enumerate(models):
        about: Row = {"what": f"agreement of {model.name}", "revision": model.revision}
        about |= {"documents": fingerprint(data), "samples": samples}
        measured = lab.piece(about, partial(_agreements, lab, model, data, samples))
        rows += [columns | {"seed": seed} | row for row in measured]
    return rows


def _agreements(lab: Lab, model: Classifier, data: Dataset, samples: int) -> list[Row]:
    """How attention and gradient agree with LIME and with removal, document by document."""
    lime = LimeExact(output="logit"), methods.Lime(samples=samples, output="logit")
    used: dict[str, methods.Method] = {
        "attention": AttentionMean(sink="kept"),
        "gradient": methods.GradientInput(output="logit"),
        "lime": lime[0] if CLOSED in model.offers else lime[1],
        "removal": methods.Occlusion(output="logit"),
    }
    if BETWEEN in model.offers:
        used["rollout"] = methods.Rollout(sink="kept")
    explanations = {
        key: method.explain(model, data.documents, seed=lab.seed) for key, method in used.items()
    }
    rows: list[Row] = []
    for i in range(len(data)):
        e = {key: each[i] for key, each in explanations.items()}
        if len(e["attention"].units) < 5:
            continue
        row = {
            "document": i,
            "gradient": rank_agreement(e["attention"], e["gradient"]),
            "lime": rank_agreement(e["attention"], e["lime"]),
            "removal": rank_agreement(e["attention"], e["removal"]),
            "gradient_removal": spearman(*aligned([e["gradient"], e["removal"]])),
            "reliability": _reliability(e["lime"]),
        }
        if "rollout" in e:
            row["rollout_removal"] = rank_agreement(e["rollout"], e["removal"])
        rows.append(row)
    return rows


def _reliability(e: Explanation) -> float:
    """How much of the variance of LIME's scores is not sampling noise."""
    if e.standard_errors is None:
        return 1.0
    variance = float(e.scores.var())
    noise = float(np.square(e.standard_errors).mean())
    return max(0.0, 1 - noise / variance) if variance > 0 else float("nan")


def _summarise(
    results: Results, rows: Table, accuracies: Sequence[float], note: str = "", **columns: Any
) -> list[Row]:
    """Add the accuracy, then means over documents; intervals resample documents.

    A document counts once, as the mean over training seeds. The means are also returned as rows of
    a chart, with these columns.
    """
    mean = float(np.mean(accuracies))
    results.add("test accuracy, mean over seeds", mean, n=len(accuracies), note=note)
    dots = []
    for key, metric in texts("metrics")["agreements"].items():
        if rows and key in rows[0]:
            mean_tau = rows.mean(key, per="document")
            results.add(f"{metric}, mean over documents", mean_tau)
            if key != "reliability":
                dots.append(mean_tau.row(metric=metric, **columns))
    return dots


def no_final_layer(lab: Lab) -> Outcome:
    """Does attention explain better when no last layer stands between it and the output?"""
    test = lab.documents(lab.pick(150, 5000))
    results = Results("no-final-layer", test.name)
    base: dict[str, Any] = {"layers": 1, "heads": 4, "max_words": lab.pick(64, 128)}
    shapes = {
        "final layer": base,
        "none, trained so": base | {"readout": "identity"},
        "none, values ≥ 0": base | {"readout": "identity", "values": "positive"},
    }
    few, seeds = test[: lab.pick(12, 200)], range(lab.pick(1, 3))
    models: dict[str, list[Any]] = {}
    for name, shape in shapes.items():
        slug = f"readout-{_slug(name)}"
        models[name] = [lab.train(f"{slug}-{seed}", {}, seed, stack=shape) for seed in seeds]
    models["trained values, mean read out"] = [_mean_readout(m) for m in models["final layer"]]
    rows = Table()
    dots = []
    for name, trained in models.items():
        results.model = name
        variant_rows = _trained_rows(lab, {"variant": name}, trained, few, lab.pick(500, 2000))
        rows += variant_rows
        accuracies = [_accuracy(model, test) for model in trained]
        dots += _summarise(results, variant_rows, accuracies, variant=name)
    _add_differences(results, rows)
    return Outcome(results, [figure("variants", dots)], {"documents": rows})


def _add_differences(results: Results, rows: Table) -> None:
    """What each variant adds to the agreement of attention with LIME, document by document."""
    plain = {(r["document"], r["seed"]): r["lime"] for r in rows.where(variant="final layer")}
    for name, documents in rows.by("variant"):
        if name == "final layer":
            continue
        gains = Table(r | {"more": r["lime"] - plain[r["document"], r["seed"]]} for r in documents)
        more = gains.mean("more", per="document")
        results.add(
            "τ(attention, |LIME|) less that with a final layer, paired",
            more,
            note=f"Attention agrees {BETTER[more.sign]} with LIME than with a final layer. W_l W_v"
            " is one matrix, so nearly the same functions can be learned without W_l. What changes"
            " is which vectors attention sums.",
            model=name,
        )


def _slug(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-")


def _mean_readout(model: Stacked) -> Stacked:
    """The same values; each label reads their mean, with opposite signs."""
    import torch

    from heed.models.stacked import Stacked, StackNetwork

    network = StackNetwork(model.shape)
    state = model.network.state_dict()
    width = model.shape.width
    ends = torch.linspace(-1, 1, len(model.labels))
    network.load_state_dict(state | {"W_l": ends[:, None].expand(-1, width).clone() / width})
    return Stacked(network, model.tokenizer, model.labels, "mean read out", model.pairs)


_UNLEARNT = (
    "Some of these models did not learn the task in two epochs; their agreement is that of"
    " untrained models."
)


def depth(lab: Lab) -> Outcome:
    """What layers, skip connections and non-linearities do to the agreement of explanations."""
    test = lab.documents(lab.pick(150, 5000))
    few = test[: lab.pick(6, 25)]
    results = Results("depth", test.name)
    smoke = lab.scale == "smoke"
    layers = (1, 2) if smoke else (1, 2, 4)
    blocks = ("attention", "gelu") if smoke else ("attention", "skip", "relu", "gelu")
    rows: list[Row] = []
    curves: list[Row] = []
    # beside skip connections small embeddings would drown in the positions
    changes = {"epochs": 2, "learning_rate": 1e-3, "embedding_scale": 1.0}
    for block, n in product(blocks, layers):
        stack = {"layers": n, "block": block, "max_words": lab.pick(64, 128)}
        models = [
            lab.train(f"depth-{n}-{block}-{seed}", changes, seed, stack=stack)
            for seed in range(lab.pick(1, 2))
        ]
        columns: Row = {"layers": n, "block": block}
        shape_rows = _trained_rows(lab, columns, models, few, lab.pick(500, 1000))
        rows += shape_rows
        accuracies = [_accuracy(model, test) for model in models]
        results.model = f"{n} layer{'s' * (n > 1)}, {block}"
        note = _UNLEARNT if min(accuracies) < 0.6 else ""
        curves += _summarise(results, shape_rows, accuracies, note, **columns)
    lost = [r.model for r in results if r.note == _UNLEARNT]
    caption = f"Not learnt in two epochs: {'; '.join(lost)}." if lost else ""
    return Outcome(results, [figure("depth", curves, caption=caption)], {"documents": rows})


def other_data(lab: Lab) -> Outcome:
    """The same model on other tasks: sentences, news, pairs, and questions about a story."""
    results = Results("other-data", model="single-layer")
    rows: list[Row] = []
    dots: list[Row] = []
    generated = ("task:reviews", "task:story")
    for name in generated if lab.scale == "smoke" else (*OTHER_DATA, "task:story"):
        story = name == "task:story"
        train, test = _pair_of_sets(lab, name)
        documents = test[: lab.pick(30, 500)]
        # a word left out now and then would make the only clue of a story disappear
        changes = {"word_dropout": 0.0, "epochs": lab.pick(3, 10)} if story else {}
        models = [
            lab.train(f"data-{_slug(name)}-{seed}", changes, seed, data=train)
            for seed in range(lab.pick(1, 3))
        ]
        accuracies = [_accuracy(model, test) for model in models]
        task_rows = _trained_rows(lab, {"data": name}, models, documents, 1000)
        for row in task_rows if story else ():
            row |= _pointing(models[row["seed"]], documents[row["document"]])
        rows += task_rows
        results.dataset = name
        dots += _summarise(results, task_rows, accuracies, variant=name)
        if story:
            results.add_means(task_rows, "answers", per="document")
    return Outcome(results, [figure("data", dots)], {"documents": rows})


def _pair_of_sets(lab: Lab, name: str) -> tuple[Dataset, Dataset]:
    if name.startswith("task:"):
        task = name.removeprefix("task:")
        train = tasks.generate(task, lab.pick(1500, 10_000), lab.seed)
        return train, tasks.generate(task, lab.pick(100, 1000), lab.seed + 1)
    return lab.parts(name)


def _pointing(model: Classifier, document: Document) -> Row:
    """Of as many top words as give the answer, the share that does, for attention and LIME."""
    row: Row = {}
    attention, lime = AttentionMean(sink="kept"), LimeExact(repeats="apart", output="logit")
    for key, method in (("attention", attention), ("lime", lime)):
        (e,) = method.explain(model, [document])
        gold = marked(e)
        k = int(gold.sum())
        top = np.argsort(-np.abs(e.scores), kind="stable")[:k]
        row[f"pointed {key}"] = float(gold[top].mean()) if k else float("nan")
        row["chance"] = k / len(gold)
    return row


def tokenizer(lab: Lab) -> Outcome:
    """Words drawn as wholes or piece by piece: word, sub-word and character models of reviews."""
    test = lab.documents(lab.pick(150, 5000))
    documents = test[: lab.pick(10, 300)].documents
    results = Results("tokenizer", test.name)
    kinds: dict[str, tuple[Any, dict[str, object]]] = {
        "words": (None, {}),
        "sub-words": (lambda d: _pieces(d, 4000, 512), {"max_words": 512}),
        "characters": (lambda d: _pieces(d, 0, 1024), {"max_words": 1024}),
    }
    rows = Table()
    by_words: dict[str, list[Explanation]] = {}
    for name, (make, changes) in kinds.items():
        model = lab.train(f"tokens-{name}", changes, lab.seed, tokenizer=make)
        words, pieces = (
            LimeExact(repeats="apart", output="logit").explain(model, documents, unit=unit)
            for unit in ("word", "token")
        )
        by_words[name] = words
        documents_read = Table(
            {"tokenizer": name, "document": i} | _drawn(model, w, p)
            for i, (w, p) in enumerate(zip(words, pieces, strict=True))
        )
        rows += documents_read
        results.model = name
        results.add("test accuracy", _with_interval(_accuracy(model, test), len(test)))
        results.add("tokens removed with one word", documents_read.mean("tokens"))
        results.add("tokens removed by one draw of words", documents_read.mean("draw"))
        results.add(
            "Kendall τ, exact LIME over words and over tokens (tokens of a word added up)",
            documents_read.mean("tau"),
            published="open question of the paper" if name != "words" else None,
        )
        results.add("share of the words that the model reads", documents_read.mean("read"))
    for name in ("sub-words", "characters"):
        taus = [_shared(a, b) for a, b in zip(by_words["words"], by_words[name], strict=True)]
        metric = "Kendall τ, word-level LIME of this model and of the word model"
        results.add(metric, mean_of(taus), model=name)
    boxes = [{"tokenizer": r["tokenizer"], "τ": r["tau"]} for r in rows]
    return Outcome(results, [figure("draws", boxes)], {"documents": rows})


def _drawn(model: Classifier, words: Explanation, pieces: Explanation) -> Row:
    """What one draw of LIME removes, and how far words and tokens agree."""
    (tokens,) = model.tokens([words.document])
    n, d = int((~tokens.special).sum()), len(tokens.words)
    return {
        "tokens": float(n / d),
        # a draw removes (d + 1) / 2 of d words on average
        "draw": float(n * (d + 1) / (2 * d)),
        "tau": kendall(words.scores, _merged(pieces, words)),
        "read": d / (d + tokens.dropped),
    }


def _merged(tokens: Explanation, words: Explanation) -> Float[np.ndarray, "word"]:
    """Scores of tokens added up over words; each occurrence of a token gets its share."""
    total = np.zeros(len(words.units))
    word_at = {
        (unit.segment, character): i
        for i, unit in enumerate(words.units)
        for start, end in unit.spans
        for character in range(start, end)
    }
    for unit, score in zip(tokens.units, tokens.scores, strict=True):
        for start, end in unit.spans:
            characters = ((unit.segment, c) for c in range(start, max(end, start + 1)))
            word = next((word_at[c] for c in characters if c in word_at), None)
            if word is not None:
                total[word] += score / len(unit.spans)
    return total


def _shared(a: Explanation, b: Explanation) -> float:
    """τ over the words that both explanations have."""
    one, other = (
        {(u.segment, u.text.lower()): s for u, s in zip(e.units, e.scores, strict=True)}
        for e in (a, b)
    )
    both = [word for word in one if word in other]
    if len(both) <= 2:
        return float("nan")
    return kendall(np.array([one[w] for w in both]), np.array([other[w] for w in both]))


def _pieces(documents: Sequence[Document], size: int, longest: int) -> Tokenizer:
    """Byte pairs within words (with size 0: single characters), trained on the documents."""
    import tokenizers

    like = Tokenizer.words((), longest + 1).backend
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=UNKNOWN))
    backend.normalizer, backend.pre_tokenizer = like.normalizer, like.pre_tokenizer
    texts = [segment for d in documents for segment in d.segments]
    special = [UNKNOWN, CLS, SEP]
    if size:
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size, special_tokens=special, show_progress=False, min_frequency=2
        )
        backend.train_from_iterator(texts, trainer)
    else:  # an alphabet and no merges
        alphabet = sorted(set("".join(like.normalizer.normalize_str(t) for t in texts)) - {" "})
        vocabulary = {name: i for i, name in enumerate([*special, *alphabet])}
        backend.model = tokenizers.models.BPE(vocabulary, [], unk_token=UNKNOWN)
        backend.add_special_tokens(special)
    backend.post_processor = like.post_processor
    return Tokenizer(backend, longest + 1, 0)
