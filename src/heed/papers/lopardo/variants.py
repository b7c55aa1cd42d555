"""Other models, other data: how far the paper's findings reach."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from heed import data as sets
from heed.claims.eraser import marked
from heed.data import Dataset, tasks
from heed.methods import (
    AttentionMean,
    Explanation,
    GradientInput,
    Lime,
    LimeExact,
    Occlusion,
    Rollout,
)
from heed.methods.comparison import aligned, rank_agreement
from heed.metrics import kendall, spearman
from heed.models.classifier import BETWEEN, CLOSED
from heed.papers.lab import Lab
from heed.papers.results import Figure, Outcome, Result, Row, mean_by_document, mean_of
from heed.text import CLS, SEP, UNKNOWN, Document, Tokenizer
from heed.training.recipes import RECIPES

if TYPE_CHECKING:  # which load torch
    from heed.models.classifier import Classifier
    from heed.models.stacked import Stacked

AGREEMENTS = {
    "gradient": "τ(attention, |gradient × input|)",
    "lime": "τ(attention, |LIME|)",
    "removal": "τ(attention, |change on removal|)",
    "gradient_removal": "Spearman(gradient × input, change on removal)",
    "rollout_removal": "τ(rollout, |change on removal|)",
    "reliability": "share of the variance of LIME's scores that is not sampling noise",
}


def accuracy(lab: Lab) -> Outcome:
    """Test accuracy of the model that is examined, and of other training seeds."""
    test = lab.documents(lab.pick(300, 25_000))
    models = (
        [lab.main] if lab.scale == "smoke" or lab.model else [lab.paper(seed) for seed in range(3)]
    )
    rows: list[Row] = [{"model": m.name, "accuracy": _accuracy(m, test)} for m in models]
    results = [
        Result(
            "accuracy",
            test.name,
            row["model"],
            "test accuracy",
            row["accuracy"],
            *_binomial(row["accuracy"], len(test)),
            n=len(test),
            published=0.802,
            note=_accuracy_note(test.name) if i == 0 else "",
        )
        for i, row in enumerate(rows)
    ]
    return Outcome(results, rows={"models": rows})


def _accuracy_note(name: str) -> str:
    if name == "imdb":
        return "The paper's six layers of six heads reach 0.822."
    return (
        f"The published figure is for IMDB, which is not on this machine; {name} stands in for it."
    )


def _accuracy(model: Classifier, documents: Dataset) -> float:
    return float((model(documents.documents).argmax(1) == documents.gold).mean())


def _binomial(p: float, n: int) -> tuple[float, float]:
    """Wilson's interval of a share."""
    z = 1.96
    centre, half = (
        (p + z * z / (2 * n)) / (1 + z * z / n),
        z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n),
    )
    return float(centre - half), float(centre + half)


def _agreements(lab: Lab, model: Classifier, data: Dataset, samples: int) -> list[Row]:
    """How attention and gradient agree with LIME and with removal, document by document."""
    documents = data.documents
    lime = LimeExact() if CLOSED in model.offers else Lime(samples=samples)
    deep = BETWEEN in model.offers
    methods: dict[str, Any] = {
        "attention": AttentionMean(),
        "gradient": GradientInput(),
        "lime": lime,
        "removal": Occlusion(),
    }
    if deep:
        methods["rollout"] = Rollout()
    found = {k: m.explain(model, documents, seed=lab.seed) for k, m in methods.items()}
    rows: list[Row] = []
    for i in range(len(documents)):
        e = {k: v[i] for k, v in found.items()}
        if len(e["attention"].units) < 5:
            continue
        gradient, removal = aligned([e["gradient"], e["removal"]])
        row = {
            "document": i,
            "gradient": rank_agreement(e["attention"], e["gradient"]),
            "lime": rank_agreement(e["attention"], e["lime"]),
            "removal": rank_agreement(e["attention"], e["removal"]),
            "gradient_removal": spearman(gradient, removal),
            "reliability": _reliability(e["lime"]),
        }
        rows.append(
            row | ({"rollout_removal": rank_agreement(e["rollout"], e["removal"])} if deep else {})
        )
    return rows


def _reliability(e: Explanation) -> float:
    """How much of the variance of LIME's scores is not sampling noise."""
    if e.standard_errors is None:
        return 1.0
    variance = float(e.scores.var())
    return (
        max(0.0, 1 - float(np.square(e.standard_errors).mean()) / variance)
        if variance > 0
        else float("nan")
    )


def _summaries(
    rows: Sequence[Row], experiment: str, dataset: str, model: str, note: str = ""
) -> list[Result]:
    """Means over all documents of all seeds; their intervals resample documents."""
    return [
        Result(
            experiment,
            dataset,
            model,
            f"{metric}, mean over documents",
            note=note,
            **mean_by_document(rows, key),
        )
        for key, metric in AGREEMENTS.items()
        if rows and key in rows[0]
    ]


def no_final_layer(lab: Lab) -> Outcome:
    """Does attention explain better when no last layer stands between it and the output?"""
    test = lab.documents(lab.pick(150, 5000))
    some = test[: lab.pick(12, 200)]
    words = lab.pick(64, 128)
    shapes: dict[str, dict[str, Any]] = {
        "final layer": {"layers": 1, "heads": 4, "max_words": words},
        "none, trained so": {"layers": 1, "heads": 4, "max_words": words, "readout": "identity"},
        "none, values ≥ 0": {
            "layers": 1,
            "heads": 4,
            "max_words": words,
            "readout": "identity",
            "values": "positive",
        },
    }
    rows: list[Row] = []
    results: list[Result] = []
    by_name: dict[str, list[float]] = {}
    for seed in range(lab.pick(1, 3)):
        models: dict[str, Classifier] = {
            name: lab.train(
                f"readout-{_slug(name)}-{seed}", {}, seed, RECIPES["default"], stack=shape
            )
            for name, shape in shapes.items()
        }
        models["trained values, mean read out"] = _mean_readout(models["final layer"])  # type: ignore[arg-type]
        for name, model in models.items():
            by_name.setdefault(name, []).append(_accuracy(model, test))
            own = _agreements(lab, model, some, lab.pick(500, 2000))
            rows += [{"variant": name, "seed": seed} | row for row in own]
    dots = []
    for name, accuracies in by_name.items():
        own = [r for r in rows if r["variant"] == name]
        results.append(
            Result(
                "no-final-layer",
                test.name,
                name,
                "test accuracy, mean over seeds",
                float(np.mean(accuracies)),
                n=len(accuracies),
            )
        )
        results += _summaries(own, "no-final-layer", test.name, name)
        dots += _dots(own, name)
    results += _less(rows, test.name)
    figure = Figure(
        "variants",
        "With and without a final layer",
        "dots",
        dots,
        "value",
        "variant",
        panel="metric",
    )
    return Outcome(results, [figure], {"documents": rows})


def _less(rows: Sequence[Row], dataset: str) -> list[Result]:
    """What each variant adds to the agreement of attention with LIME, document by document."""
    plain = {(r["document"], r["seed"]): r["lime"] for r in rows if r["variant"] == "final layer"}
    results = []
    for name in dict.fromkeys(r["variant"] for r in rows if r["variant"] != "final layer"):
        own = [
            r | {"more": r["lime"] - plain[r["document"], r["seed"]]}
            for r in rows
            if r["variant"] == name
        ]
        found = mean_by_document(own, "more")
        low, high = found["low"] or 0.0, found["high"] or 0.0
        verdict = "better" if low > 0 else "worse" if high < 0 else "neither better nor worse"
        note = (
            f"Attention agrees {verdict} with LIME than with a final layer. W_l W_v is one matrix:"
            " without W_l nearly"
        )
        results.append(
            Result(
                "no-final-layer",
                dataset,
                name,
                "τ(attention, |LIME|) less that with a final layer, paired",
                note=f"{note} the same functions can be learnt; what changes is which vectors attention adds up.",
                **found,
            )
        )
    return results


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


def _dots(rows: Sequence[Row], variant: str) -> list[Row]:
    found = []
    for key, metric in AGREEMENTS.items():
        if rows and key in rows[0] and key != "reliability":
            stats = mean_by_document(rows, key)
            found.append(
                {
                    "variant": variant,
                    "metric": metric,
                    "value": stats["ours"],
                    "low": stats["low"],
                    "high": stats["high"],
                }
            )
    return found


_UNLEARNT = (
    "Not all of these learnt the task in two epochs; their agreement is that of untrained models."
)


def depth(lab: Lab) -> Outcome:
    """Layers, skip connections and non-linearities: what they do to the agreement of explanations."""
    test = lab.documents(lab.pick(150, 5000))
    some = test[: lab.pick(6, 25)]
    layers = (1, 2) if lab.scale == "smoke" else (1, 2, 4)
    blocks = (
        ("attention", "gelu") if lab.scale == "smoke" else ("attention", "skip", "relu", "gelu")
    )
    rows: list[Row] = []
    results: list[Result] = []
    curves: list[Row] = []
    for block in blocks:
        for n in layers:
            accuracies, own = [], []
            for seed in range(lab.pick(1, 2)):
                stack = {"layers": n, "block": block, "max_words": lab.pick(64, 128)}
                name = f"depth-{n}-{block}-{seed}"
                # beside skip connections small embeddings would drown in the positions
                changes = {"epochs": 2, "learning_rate": 1e-3, "embedding_scale": 1.0}
                model = lab.train(name, changes, seed, stack=stack)
                accuracies.append(_accuracy(model, test))
                about = {
                    "what": "depth",
                    "model": name,
                    "revision": model.revision,
                    "documents": len(some),
                }
                found = lab.piece(
                    about, partial(_agreements, lab, model, some, lab.pick(500, 1000))
                )
                own += [{"layers": n, "block": block, "seed": seed} | row for row in found]
            rows += own
            title = f"{n} layer{'s' * (n > 1)}, {block}"
            results.append(
                Result(
                    "depth",
                    test.name,
                    title,
                    "test accuracy, mean over seeds",
                    float(np.mean(accuracies)),
                    n=len(accuracies),
                    note=_UNLEARNT if min(accuracies) < 0.6 else "",
                )
            )
            results += _summaries(own, "depth", test.name, title)
            for dot in _dots(own, block):
                curves.append(
                    {"layers": n, "block": block, "metric": dot["metric"], "value": dot["value"]}
                    | {k: dot[k] for k in ("low", "high")}
                )
    lost = [r.model for r in results if r.note == _UNLEARNT]
    figure = Figure(
        "depth",
        "Agreement by depth and by what surrounds attention",
        "lines",
        curves,
        "layers",
        "value",
        colour="block",
        panel="metric",
        caption=f"Not learnt in two epochs: {'; '.join(lost)}." if lost else "",
    )
    return Outcome(results, [figure], {"documents": rows})


def other_data(lab: Lab) -> Outcome:
    """The same model on other tasks: sentences, news, pairs, and questions about a story."""
    rows: list[Row] = []
    results: list[Result] = []
    dots: list[Row] = []
    for name in (
        ("task:reviews", "task:story")
        if lab.scale == "smoke"
        else ("sst", "ag_news", "sick", "task:story")
    ):
        train, test = _pair_of_sets(lab, name)
        accuracies: list[float] = []
        own: list[Row] = []
        for seed in range(lab.pick(1, 3)):
            # a word left out now and then would make the only clue of a story disappear
            changes = (
                {"word_dropout": 0.0, "epochs": lab.pick(3, 10)} if name == "task:story" else {}
            )
            model = lab.train(f"data-{_slug(name)}-{seed}", changes, seed, data=train)
            accuracies.append(_accuracy(model, test))
            some = test[: lab.pick(30, 500)]
            found = _agreements(lab, model, some, 1000)
            found = (
                [r | _pointing(model, some.documents[r["document"]]) for r in found]
                if name == "task:story"
                else found
            )
            own += [{"data": name, "seed": seed} | row for row in found]
        rows += own
        results.append(
            Result(
                "other-data",
                name,
                "single-layer",
                "test accuracy, mean over seeds",
                float(np.mean(accuracies)),
                n=len(accuracies),
            )
        )
        results += _summaries(own, "other-data", name, "single-layer")
        if name == "task:story":
            for key in ("pointed attention", "pointed lime", "chance"):
                results.append(
                    Result(
                        "other-data",
                        name,
                        "single-layer",
                        f"share of the words that give the answer among as many top words: {key.split()[-1]}",
                        **mean_of([r[key] for r in own]),
                    )
                )
        dots += _dots(own, name)
    figure = Figure(
        "data", "Agreement on other data", "dots", dots, "value", "variant", panel="metric"
    )
    return Outcome(results, [figure], {"documents": rows})


def _pair_of_sets(lab: Lab, name: str) -> tuple[Dataset, Dataset]:
    if name.startswith("task:"):
        task = name.removeprefix("task:")
        return tasks.generate(task, lab.pick(1500, 10_000), lab.seed), tasks.generate(
            task, lab.pick(100, 1000), lab.seed + 1
        )
    return sets.load(name, "train", limit=30_000, seed=lab.seed), sets.load(
        name, "test", limit=3000, seed=lab.seed
    )


def _pointing(model: Classifier, document: Document) -> Row:
    """Of as many top words as give the answer, the share that does, for attention and LIME."""
    found: Row = {}
    for key, method in (("attention", AttentionMean()), ("lime", LimeExact(repeats="apart"))):
        (e,) = method.explain(model, [document])
        gold = marked(e)
        k = int(gold.sum())
        top = np.argsort(-np.abs(e.scores), kind="stable")[:k]
        found[f"pointed {key}"] = float(gold[top].mean()) if k else float("nan")
        found["chance"] = k / len(gold)
    return found


def tokenizer(lab: Lab) -> Outcome:
    """Words drawn as wholes or piece by piece: word, sub-word and character models of the same reviews."""
    test = lab.documents(lab.pick(150, 5000))
    some = test[: lab.pick(10, 300)]
    kinds = {
        "words": (None, {}),
        "sub-words": (lambda d: _pieces(d, 4000, 512), {"max_words": 512}),
        "characters": (lambda d: _pieces(d, 0, 1024), {"max_words": 1024}),
    }
    rows: list[Row] = []
    results: list[Result] = []
    whole: dict[str, list[Explanation]] = {}
    for name, (make, changes) in kinds.items():
        model = lab.train(f"tokens-{name}", changes, lab.seed, tokenizer=make)
        by_word, by_token = (
            LimeExact(repeats="apart").explain(model, some.documents, unit=unit)
            for unit in ("word", "token")
        )
        whole[name] = by_word
        own = []
        for i, (w, t) in enumerate(zip(by_word, by_token, strict=True)):
            (tokens,) = model.tokens([w.document])
            merged = _merged(t, w)
            own.append(
                {
                    "tokenizer": name,
                    "document": i,
                    "tokens": float((~tokens.special).sum() / len(tokens.words)),
                    "draw": float(
                        (~tokens.special).sum() * (len(tokens.words) + 1) / (2 * len(tokens.words))
                    ),
                    "tau": kendall(w.scores, merged),
                    "read": len(tokens.words) / (len(tokens.words) + tokens.dropped),
                }
            )
        rows += own
        share = _accuracy(model, test)
        common = ("tokenizer", test.name, name)
        results += [
            Result(*common, "test accuracy", share, *_binomial(share, len(test)), n=len(test)),
            Result(*common, "tokens removed with one word", **mean_of([r["tokens"] for r in own])),
            Result(
                *common, "tokens removed by one draw of words", **mean_of([r["draw"] for r in own])
            ),
            Result(
                *common,
                "Kendall τ, exact LIME over words and over tokens (tokens of a word added up)",
                published="open question of the paper" if name != "words" else None,
                **mean_of([r["tau"] for r in own]),
            ),
            Result(
                *common,
                "share of the words that the model reads",
                **mean_of([r["read"] for r in own]),
            ),
        ]
    for name in ("sub-words", "characters"):
        taus = [_shared(a, b) for a, b in zip(whole["words"], whole[name], strict=True)]
        results.append(
            Result(
                "tokenizer",
                test.name,
                name,
                "Kendall τ, word-level LIME of this model and of the word model",
                **mean_of(taus),
            )
        )
    boxes = [{"tokenizer": r["tokenizer"], "τ": r["tau"]} for r in rows]
    figure = Figure("draws", "LIME over words and over tokens", "boxes", boxes, "tokenizer", "τ")
    return Outcome(results, [figure], {"documents": rows})


def _merged(tokens: Explanation, words: Explanation) -> np.ndarray:
    """Scores of tokens added up over the words they are part of, an occurrence's share for each occurrence."""
    total = np.zeros(len(words.units))
    owner = {}
    for i, unit in enumerate(words.units):
        for start, end in unit.spans:
            for at in range(start, end):
                owner[unit.segment, at] = i
    for unit, score in zip(tokens.units, tokens.scores, strict=True):
        for start, end in unit.spans:
            place = next(
                (
                    owner[unit.segment, at]
                    for at in range(start, max(end, start + 1))
                    if (unit.segment, at) in owner
                ),
                None,
            )
            if place is not None:
                total[place] += score / len(unit.spans)
    return total


def _shared(a: Explanation, b: Explanation) -> float:
    """τ over the words that both explanations have."""
    one = {(u.segment, u.text.lower()): s for u, s in zip(a.units, a.scores, strict=True)}
    other = {(u.segment, u.text.lower()): s for u, s in zip(b.units, b.scores, strict=True)}
    both = [k for k in one if k in other]
    return (
        kendall(np.array([one[k] for k in both]), np.array([other[k] for k in both]))
        if len(both) > 2
        else float("nan")
    )


def _pieces(documents: Sequence[Document], size: int, longest: int) -> Tokenizer:
    """Byte pairs within words (with size 0: single characters), trained on the documents."""
    import tokenizers

    like = Tokenizer.words((), longest + 1).backend
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=UNKNOWN))
    backend.normalizer, backend.pre_tokenizer = like.normalizer, like.pre_tokenizer
    texts = [segment for d in documents for segment in d.segments]
    characters = len(set("".join(texts)))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size or 3 + characters,
        special_tokens=[UNKNOWN, CLS, SEP],
        show_progress=False,
        min_frequency=2,
    )
    if not size:  # an alphabet and no merges
        alphabet = sorted(set("".join(like.normalizer.normalize_str(t) for t in texts)) - {" "})
        vocabulary = {name: i for i, name in enumerate([UNKNOWN, CLS, SEP, *alphabet])}
        backend.model = tokenizers.models.BPE(vocabulary, [], unk_token=UNKNOWN)
        backend.add_special_tokens([UNKNOWN, CLS, SEP])
    else:
        backend.train_from_iterator(texts, trainer)
    backend.post_processor = like.post_processor
    return Tokenizer(backend, longest + 1, 0)
