"""What methods are compared by, measured document by document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from heed.algebra import orders as algebra
from heed.claims import CLAIMS, Study
from heed.claims.claim import Row
from heed.claims.faithful import Removes
from heed.claims.removal import RemovalTest, areas, measurable, removing, scales, stretched
from heed.claims.signed import beyond_noise
from heed.claims.yardsticks import best_lime
from heed.errors import NotApplicable
from heed.methods import CHANCE, Explanation, Imported, Lime, Method, Shapley
from heed.methods.comparison import aligned, rank_agreement
from heed.methods.removing import Areas, Kind
from heed.metrics import spearman
from heed.models.classifier import Removal
from heed.progress import bar

KINDS: tuple[Kind, ...] = ("comprehensiveness", "sufficiency")
REPEATED = 2  # documents that are explained twice to see whether a method draws at random
SAMPLES = 1000  # of LIME as a yardstick of signs, at most
# How many samples the line of cost has, as shares of what a method takes by default.
SHARES = (1 / 32, 1 / 8, 1 / 2)


@dataclass(frozen=True, eq=False)
class Measured:
    """Columns by name, each with a value for each method (by name) and document; NaN for none."""

    columns: dict[str, dict[str, Float[np.ndarray, "document"]]]

    def rows(self, study: Study, methods: Sequence[str]) -> list[Row]:
        """One row for each method and document."""
        rows: list[Row] = []
        for name in methods:
            for i, ids in enumerate(study.ids):
                values = {c: float(of[name][i]) for c, of in self.columns.items() if name in of}
                rows.append({"method": name, "document": i} | ids | values)
        return rows


def faithful(
    study: Study, methods: Mapping[str, Method], samples: Sequence[Method] = ()
) -> tuple[Measured, list[Row]]:
    """Comprehensiveness and sufficiency from 0 (worst order) to 1 (best), for each removal.

    All methods share the scale of a document; one that beats the search for its ends is an end.
    The mean of all of them is `faithfulness`. The rows are the same mean for `samples`, methods
    with fewer samples than usual, each with its evaluations.
    """
    test = Removes()
    columns: dict[str, dict[str, Float[np.ndarray, "document"]]] = {}
    fewer: dict[int, list[Float[np.ndarray, "document"]]] = {k: [] for k in range(len(samples))}
    kinds = [(kind, removal) for kind in KINDS for removal in study.model.removals]
    for kind, removal in bar(kinds, "removal", unit="way"):
        own = {name: _areas(study, test, kind, removal, m) for name, m in methods.items()}
        columns[f"{kind}_{removal}"] = _on_scale(study, test, kind, removal, own, own)
        for k, method in enumerate(samples):
            area = {"": _areas(study, test, kind, removal, method)}
            fewer[k].append(_on_scale(study, test, kind, removal, area, own)[""])
    columns["faithfulness"] = {
        name: np.mean([column[name] for column in columns.values()], axis=0) for name in methods
    }
    line = []
    for k, method in enumerate(samples):
        explanations = study.explain(method)
        line.append(
            {
                "curve": method.name,
                "evaluations": float(np.mean([e.forward_passes for e in explanations])),
                "faithfulness": float(np.nanmean(np.mean(fewer[k], axis=0))),
            }
        )
    return Measured(columns), line


def _areas(
    study: Study, test: RemovalTest, kind: Kind, removal: Removal, method: Method
) -> dict[int, Areas]:
    return areas(study, test, kind, removal, dict(enumerate(study.explain(method))))


def _on_scale(
    study: Study,
    test: RemovalTest,
    kind: Kind,
    removal: Removal,
    areas_of: Mapping[str, Mapping[int, Areas]],
    ends: Mapping[str, Mapping[int, Areas]],
) -> dict[str, Float[np.ndarray, "document"]]:
    """Areas on the scale of each document, which those of `ends` may stretch."""
    values = {name: np.full(len(study.documents), np.nan) for name in areas_of}
    for i, scale in enumerate(scales(study, test, kind, removal)):
        low, high = stretched(scale, *(of[i] for of in ends.values()))
        if not measurable(study, i, low, high):
            continue
        for name, of in areas_of.items():
            share = (of[i][:, 0].mean() - low[0]) / (high[0] - low[0])
            values[name][i] = np.clip(share, 0, 1)  # rounding, and fewer samples
    return values


def signs(study: Study, methods: Mapping[str, Method]) -> dict[str, Float[np.ndarray, "document"]]:
    """The share of words whose sign is that of LIME, of those whose LIME score is beyond noise.

    Only of methods whose scores claim a sign. A score of 0 counts half. Where a method is the
    yardstick itself, and samples, two draws of it are compared.
    """
    claims = {
        name: method
        for name, method in methods.items()
        if method.signed and not isinstance(method, CHANCE)
    }
    if not claims:
        return {}
    yardstick = best_lime(study, SAMPLES)
    found = {}
    for name, method in claims.items():
        same = method == yardstick and isinstance(method, Lime)
        others = study.explain_again(yardstick) if same else study.explain(yardstick)
        pairs = zip(study.explain(method), others, strict=True)
        found[name] = np.array([right_signs(*pair) for pair in pairs])
    return found


def right_signs(explanation: Explanation, lime: Explanation) -> float:
    """The share of words with the sign of LIME, of those that LIME is sure of."""
    sure = replace(lime, scores=np.where(beyond_noise(lime), lime.scores, 0.0))
    scores, signed = aligned([explanation, sure])
    known = signed != 0
    if not known.any():
        return float("nan")
    agreement = np.sign(scores[known]) * np.sign(signed[known])
    return float((agreement + 1).mean() / 2)


def stability(
    study: Study, methods: Mapping[str, Method]
) -> dict[str, Float[np.ndarray, "document"]]:
    """Kendall's τ between two seeds, on the first documents; 1 where nothing is drawn at random."""
    found = {}
    for name, method in methods.items():
        found[name] = np.full(len(study.documents), np.nan)
        if isinstance(method, CHANCE):
            continue
        probed = study.probed
        if not isinstance(method, Imported) and _draws(study, method, probed[:REPEATED]):
            found[name][probed] = _taus(study, method, probed)
        else:
            found[name][probed] = 1.0
    return found


def _draws(study: Study, method: Method, indices: Sequence[int]) -> bool:
    """Whether another seed gives other scores."""
    again = study.explain_only(method, indices, repetition=1)
    pairs = zip(study.explain_only(method, indices), again, strict=True)
    return not all(np.array_equal(one.scores, other.scores) for one, other in pairs)


def _taus(study: Study, method: Method, indices: Sequence[int]) -> list[float]:
    again = study.explain_only(method, indices, repetition=1)
    pairs = zip(study.explain_only(method, indices), again, strict=True)
    return [rank_agreement(one, other) for one, other in pairs]


def sensitivity(
    study: Study, methods: Mapping[str, Method]
) -> dict[str, Float[np.ndarray, "document"]]:
    """Spearman's ρ with the explanation of the model with random weights, on the first documents.

    Nothing where there are no weights to redraw, or no scores of another model.
    """
    judged = {n: m for n, m in methods.items() if not isinstance(m, (Imported, *CHANCE))}
    try:
        random = study.model.randomised(study.seed)
    except NotApplicable:
        return {}
    found = {}
    for name, method in bar(list(judged.items()), "random weights", unit="method"):
        values = np.full(len(study.documents), np.nan)
        own = {i: study.explain(method)[i] for i in study.probed}
        for label in dict.fromkeys(e.label for e in own.values()):
            indices = [i for i, e in own.items() if e.label == label]
            documents = [study.documents[i] for i in indices]
            try:
                others = method.explain(random, documents, label, study.unit, study.seed)
            except NotApplicable:
                continue
            for i, other in zip(indices, others, strict=True):
                values[i] = spearman(*(np.abs(scores) for scores in aligned([own[i], other])))
        found[name] = values
    return found


def plausibility(
    study: Study, methods: Mapping[str, Method]
) -> dict[str, Float[np.ndarray, "document"]]:
    """Average precision against what people marked, less that of a random order."""
    test = CLAIMS["plausible"]()
    if test.refusal(study) is not None:
        return {}
    found = {}
    for name, method in methods.items():
        rows = test.measure(replace(study, method=method))
        found[name] = np.array([row["value"] for row in rows])
    return found


def cost(study: Study, methods: Mapping[str, Method]) -> dict[str, dict[str, np.ndarray]]:
    """Seconds and evaluations of the model, document by document; of imported scores unknown."""
    computed = {n: study.explain(m) for n, m in methods.items() if not isinstance(m, Imported)}
    return {
        "seconds": {n: np.array([e.seconds for e in of]) for n, of in computed.items()},
        "evaluations": {
            n: np.array([float(e.forward_passes) for e in of]) for n, of in computed.items()
        },
    }


def fewer_samples(methods: Sequence[Method]) -> list[Method]:
    """Sampled methods with fewer samples, for the line of cost."""
    sampled = [method for method in methods if isinstance(method, Lime | Shapley)]
    return [
        replace(method, samples=max(16, round(share * method.samples)))
        for method in sampled
        for share in SHARES
    ]


def passes(study: Study, methods: Sequence[Method]) -> float:
    """About how many evaluations a document takes: those of methods, and of removing words."""
    units = float(np.mean([len(u) for u in removing(study).units]))
    explained = sum(max(1, m.evaluations(round(units))) for m in methods)
    short = units <= Removes().exact
    searched = 2**units if short else units + 4 * len(algebra.SHARES) * Removes().candidates
    ranked = len(algebra.SHARES) * (len(methods) + Removes().orders)
    return explained + len(KINDS) * len(study.model.removals) * (searched + ranked)
