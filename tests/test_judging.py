"""From rows to verdicts: families, controls, ways to remove words, bounds, seeds, checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heed.claims import CLAIMS, Claim, Evidence, Verdict, checks, judge
from heed.claims.claim import Refusal
from heed.intervals import Sample, estimate

PLAIN = Claim("a", "agrees", "{method} is right", "τ", 0.5, "jain2019")


def evidence(
    values: Sequence[float] | np.ndarray,
    method: str = "attention-mean",
    control: bool = False,
    columns: dict[str, Sequence[float] | np.ndarray] | None = None,
    **changes: Any,
) -> Evidence:
    rows: list[dict[str, Any]] = [{"document": i, "value": float(v)} for i, v in enumerate(values)]
    for name, numbers in (columns or {}).items():
        for row, number in zip(rows, numbers, strict=True):
            row[name] = float(number)
    return Evidence(replace(PLAIN, **changes), rows, method=method, control=control)


def spread(centre: float, n: int = 120, width: float = 0.1, seed: int = 0) -> np.ndarray:
    """Normal values whose mean is exactly the centre."""
    values = np.random.default_rng(seed).normal(0, width, n)
    return np.asarray(values - values.mean() + centre)


def one(*found: Evidence, **options: Any) -> Verdict:
    return judge(found, **options)[0]


# Families


def test_a_claim_alone_has_an_interval_of_95_percent() -> None:
    values = spread(0.53, 120, 0.2)
    found = one(evidence(values))
    (interval,), _ = estimate([Sample(values, np.arange(120))], 120)
    assert (found.level, (found.low, found.high)) == (0.95, interval.ends(0.95))
    assert found.interval == "studentised" and found.strictest == found.low


def test_a_claim_that_holds_alone_may_be_undecided_among_many() -> None:
    surely = spread(0.54, 120, 0.2)
    others = [evidence(spread(0.5, 120, 0.2, seed), id=f"c{seed}") for seed in range(1, 20)]
    assert one(evidence(surely)).outcome == "supported"
    among = one(evidence(surely), *others)
    assert among.outcome == "undecided" and among.level > 0.99
    # the interval that is shown is the one that was decided by
    assert among.low < 0.5 < among.mean  # type: ignore[operator]


def test_copies_of_a_claim_cost_nothing() -> None:
    found = judge([evidence(spread(0.54, 120, 0.2), id=f"c{i}") for i in range(20)])
    assert {v.outcome for v in found} == {"supported"}
    assert judge([]) == []


def test_what_is_decided_makes_room_for_the_rest() -> None:
    """Step-down: alone among nineteen sure ones, the last claim is tested at 5 %."""
    sure = [evidence(spread(0.9, seed=seed), id=f"c{seed}") for seed in range(1, 20)]
    open_ = [evidence(spread(0.5, seed=seed), id=f"c{seed}") for seed in range(1, 20)]
    weak = evidence(spread(0.54, 120, 0.2))
    assert one(weak, *sure).outcome == "supported" and one(weak, *sure).level == 0.95
    assert one(weak, *open_).outcome == "undecided"


def test_claims_that_were_planned_and_not_measured_stay_in_the_family() -> None:
    weak = evidence(spread(0.54, 120, 0.2))
    refused = [
        Evidence(replace(PLAIN, id=f"c{i}"), [], Refusal("model", "no gradients"))
        for i in range(19)
    ]
    alone, *rest = judge([weak, *refused])
    assert alone.outcome == "undecided"
    assert alone.level == pytest.approx(0.95 ** (1 / 20), abs=1e-3)
    assert {v.outcome for v in rest} == {"not applicable"}
    # planned, and not even asked for
    pairs = [("a", "attention-mean"), *((f"c{i}", "attention-mean") for i in range(19))]
    assert one(weak, planned=pairs).level == pytest.approx(alone.level)


def test_a_method_that_was_not_planned_changes_no_verdict_on_another() -> None:
    planned = [
        evidence(spread(0.5 + 0.01 * k, 120, 0.2, k), id=f"c{k}", method="lime") for k in range(6)
    ]
    more = [
        evidence(spread(0.9, 140, 0.2, k), id=f"c{k}", method=name)
        for k in range(6)
        for name in ("random", "occlusion")
    ]
    before = judge(planned)
    for plan in (["lime"], [(f"c{k}", "lime") for k in range(6)]):
        mixed = judge([*more[:3], *planned, *more[3:]], planned=plan)
        assert mixed[3:9] == before
    assert judge([*planned, *more])[:6] != before
    # a claim about the model has no method: it was planned
    about = evidence(spread(0.5, seed=9), sentence="It is right", method="occlusion", id="m")
    assert judge([about, *planned], ["lime"])[1:] != before
    assert judge([about, *planned], [(f"c{k}", "lime") for k in range(6)])[1:] == before


def test_the_gate_is_tested_first_at_its_full_level() -> None:
    gate = evidence(spread(0.54, 120, 0.2), id="used", sentence="It is used")
    rest = [evidence(spread(0.5, seed=seed), id=f"c{seed}") for seed in range(1, 20)]
    found = judge([*rest, gate])
    assert (found[-1].outcome, found[-1].level) == ("supported", 0.95)
    assert found[0].level > 0.99
    assert found[:-1] == judge(rest)


def test_a_gate_about_explanations_closes_those_of_its_own_method() -> None:
    def of(method: str, centre: float) -> list[Evidence]:
        gate = evidence(spread(centre), method, id="used", sentence="{method} is used")
        return [gate, evidence(spread(0.9, seed=1), method, id="c", gated=True)]

    outcomes = [v.outcome for v in judge([*of("attention-mean", 0.1), *of("rollout", 0.9)])]
    assert outcomes == ["refuted", "not applicable", "supported", "supported"]


def test_looking_again_and_again_takes_bets() -> None:
    values = spread(0.7, 300, 0.1)
    bounded = {"bounds": (0.0, 1.0)}
    found = one(evidence(values, **bounded), any_time=True)
    assert (found.outcome, found.interval) == ("supported", "betting")
    once = one(evidence(values, **bounded))
    assert once.low > found.low and once.high < found.high  # type: ignore[operator]
    unknown = one(evidence(values), any_time=True)  # without bounds, nothing holds at all times
    assert (unknown.outcome, unknown.low, unknown.cause) == ("undecided", None, "spans")


# Too few documents


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (spread(0.7, 29), "fewer than 30 documents"),
        ([1.0] * 60 + [0.5] * 39, "fewer than 100 documents, and more than half"),
        ([1.0] * 50 + [0.5] * 50, ""),
        ([1.0] * 60 + [0.6] * 40, ""),
        (spread(0.7, 30), ""),
    ],
)
def test_too_few_documents(values: Sequence[float], reason: str) -> None:
    found = one(evidence(values))
    if reason:
        assert found.outcome == "undecided" and found.cause == "few"
        assert found.reason.startswith(reason) and found.mean is not None
    else:
        assert found.outcome == "supported"


def test_small_or_lumpy_samples_are_bet_on() -> None:
    kinds = {
        name: one(evidence(values, bounds=(-1.0, 1.0))).interval
        for name, values in {
            "small": spread(0.6, 99),
            "lumpy": [0.7] * 101 + [0.4] * 99,
            "many": spread(0.6, 100),
        }.items()
    }
    assert kinds == {"small": "betting", "lumpy": "betting", "many": "studentised"}


@pytest.mark.parametrize("n", [40, 200])
@pytest.mark.parametrize("above", [True, False])
def test_a_mean_exactly_at_the_threshold_is_undecided(n: int, above: bool) -> None:
    for values in (np.tile([0.4, 0.6], n // 2), [0.5] * n):
        found = one(evidence(values, above=above))
        assert found.outcome == "undecided" and found.wanted is None
        assert found.mean == pytest.approx(0.5)


def test_how_many_documents_would_decide() -> None:
    values = spread(0.53, 120, 0.3)
    found = one(evidence(values))
    end, distance = found.mean - found.low, found.mean - 0.5  # type: ignore[operator]
    assert found.cause == "spans" and found.wanted == math.ceil(120 * (end / distance) ** 2)
    assert one(evidence(spread(0.7))).wanted is None


# Ways to remove words


def removing(**centres: float) -> Evidence:
    columns = {f"value_{name}": spread(c, seed=3) for name, c in centres.items()}
    first = next(iter(columns.values()))
    return evidence(first, columns=columns, operators=True)


@pytest.mark.parametrize(
    ("centres", "outcome", "shown"),
    [
        ({"replace": 0.7, "delete": 0.6, "hide": 0.8}, "supported", 0.6),
        ({"replace": 0.2, "delete": 0.4}, "refuted", 0.4),
        ({"replace": 0.7}, "supported", 0.7),
    ],
)
def test_a_verdict_must_hold_for_every_way_to_remove_words(
    centres: dict[str, float], outcome: str, shown: float
) -> None:
    found = one(removing(**centres))
    assert found.outcome == outcome
    assert found.mean == pytest.approx(shown)  # the least favourable for the verdict
    assert set(found.parts) == (set(centres) if len(centres) > 1 else set())
    for name, (mean, low, high) in found.parts.items():
        assert mean == pytest.approx(centres[name]) and low < mean < high


def test_ways_that_disagree_leave_a_claim_undecided() -> None:
    apart = one(removing(replace=0.7, delete=0.3, hide=0.8))
    assert (apart.outcome, apart.cause) == ("undecided", "operators")
    assert "delete 0.3" in apart.reason and apart.mean == pytest.approx(0.3)
    unsure = one(removing(replace=0.7, delete=0.501))
    assert (unsure.outcome, unsure.cause) == ("undecided", "spans") and unsure.wanted
    near = one(removing(replace=0.7, delete=0.499))
    assert (near.outcome, near.cause, near.wanted) == ("undecided", "spans", None)


def test_the_way_that_is_decided_last_decides() -> None:
    """Among many claims, one way alone being sure is not enough."""
    others = [evidence(spread(0.5, seed=s), id=f"c{s}") for s in range(1, 20)]
    weak = spread(0.52, 120, 0.1)
    sure = evidence(weak, columns={"value_replace": spread(0.9)}, operators=True)
    both = evidence(
        weak, columns={"value_replace": spread(0.9), "value_hide": weak}, operators=True
    )
    assert one(sure, *others).outcome == "supported"
    assert one(both).outcome == "supported" and one(both, *others).outcome == "undecided"


# Bounds on the truth


@pytest.mark.parametrize(
    ("lower", "upper", "outcome", "mean"),
    [
        (0.1, 0.3, "supported", 0.3),
        (0.6, 0.9, "refuted", 0.6),
        (0.3, 0.7, "undecided", 0.3),
        (0.3, 0.499, "undecided", 0.499),
    ],
)
def test_the_upper_bound_supports_and_the_lower_one_refutes(
    lower: float, upper: float, outcome: str, mean: float
) -> None:
    columns = {"upper": spread(upper, seed=2)}
    found = one(evidence(spread(lower), columns=columns, bracket=True, above=False))
    assert found.outcome == outcome and found.mean == pytest.approx(mean)
    assert set(found.parts) == {"lower", "upper"}
    if (lower, upper) == (0.3, 0.7):  # no number of documents brings the bounds together
        assert found.wanted is None and "both sides" in found.reason
        assert found.low == found.parts["lower"][1] and found.high == found.parts["upper"][2]
    mirrored = one(evidence(spread(lower), columns=columns, bracket=True))
    other = {"supported": "refuted", "refuted": "supported", "undecided": "undecided"}
    assert mirrored.outcome == other[outcome]


def test_without_an_upper_bound_a_claim_below_can_only_be_refuted() -> None:
    found = [one(evidence(spread(c), bracket=True, above=False)).outcome for c in (0.1, 0.9)]
    assert found == ["undecided", "refuted"]


# Chance


def test_a_claim_that_chance_passes_is_not_supported() -> None:
    judged = evidence(spread(0.7))
    for centre, outcome in ((0.6, "undecided"), (0.5, "supported"), (0.3, "supported")):
        control = evidence(spread(centre, seed=5), "random", control=True)
        fails = evidence(spread(0.2, seed=6), "word-length", control=True)
        (found,) = judge([judged, control, fails])
        assert found.outcome == outcome
        assert found.controls == pytest.approx({"random": centre, "word-length": 0.2})
        if outcome == "undecided":
            assert found.cause == "chance" and "random reaches 0.6" in found.reason


def test_chance_makes_nothing_worse_than_undecided_and_is_in_no_family() -> None:
    refuted, weak = evidence(spread(0.3)), evidence(spread(0.54, 120, 0.2))
    controls = [evidence(spread(0.9), name, True) for name in ("random", "word-length")]
    assert one(refuted, *controls).outcome == "refuted"
    assert one(weak).level == one(weak, *controls).level == 0.95
    other = [replace(c, claim=replace(PLAIN, id="other")) for c in controls]
    assert one(weak, *other) == one(weak)
    # where a chance method passes by its nature, that is no argument
    exempt = [replace(e, claim=replace(PLAIN, chance=False)) for e in (weak, *controls)]
    assert one(*exempt).outcome == "supported"
    assert not CLAIMS["sensitive"].claim.chance
    # a chance method that is judged is not held against itself
    assert one(evidence(spread(0.9), "random"), controls[0]).outcome == "supported"


# Seeds


def crossed(by_seed: Sequence[float], n: int = 150) -> Evidence:
    table = np.stack([spread(c, n, 0.2, k) for k, c in enumerate(by_seed)])
    columns = {f"seed_{k + 1}": row for k, row in enumerate(table)}
    return evidence(table.mean(0), columns=columns)


def test_training_seeds_that_differ_leave_a_claim_undecided() -> None:
    alike, apart = one(crossed([0.6, 0.61, 0.62])), one(crossed([0.4, 0.61, 0.82]))
    assert (alike.outcome, alike.interval) == ("supported", "crossed")
    assert (apart.outcome, apart.cause) == ("undecided", "spans")
    assert "3 training seeds say too little" in apart.reason and apart.wanted is None
    assert alike.mean == pytest.approx(apart.mean, abs=1e-12)


def test_a_statistic_of_its_own_is_taken_seed_by_seed() -> None:
    rng = np.random.default_rng(0)
    n, shifts = 200, (0.0, 0.02, 0.1)
    columns = {f"right_{k + 1}": 0.6 + s + rng.normal(0, 0.1, n) for k, s in enumerate(shifts)}
    columns |= {f"seed_{k + 1}": columns[f"right_{k + 1}"] for k in range(3)}

    def combine(c: Any) -> float:
        return float(np.mean([c[name].mean() ** 2 for name in c if name.startswith("right_")]))

    found = one(evidence(rng.normal(size=n), columns=columns, combine=combine, threshold=0.3))
    each = [float(columns[f"right_{k}"].mean() ** 2) for k in (1, 2, 3)]
    assert found.interval == "crossed"
    assert found.mean == pytest.approx(np.mean(each))
    of_seeds = 4.302653 * np.std(each, ddof=1) / math.sqrt(3)
    assert found.high - found.mean > of_seeds  # type: ignore[operator]
    assert found.high - found.mean < 1.1 * of_seeds  # type: ignore[operator]


# Ceilings and checks


def test_what_the_best_yardsticks_reach_stands_beside_the_verdict() -> None:
    found = one(evidence(spread(0.7), columns={"ceiling": spread(0.8)}))
    assert found.ceiling == pytest.approx(0.8) and found.to_dict()["ceiling"] == found.ceiling
    assert one(evidence(spread(0.7))).ceiling is None


def test_what_is_true_by_algebra_is_checked_and_not_judged() -> None:
    small = evidence([1e-9, 3e-7, math.nan], check=True, threshold=1e-6, above=False, id="k")
    large = evidence([1e-9, 3e-6], check=True, threshold=1e-6, above=False, id="l")
    none = Evidence(small.claim, [], Refusal("model", "half precision"))
    weak = evidence(spread(0.54, 120, 0.2))
    assert judge([small, weak, large]) == judge([weak])
    first, second, third = checks([small, weak, large, none])
    assert (first.claim, first.largest, first.n, first.holds) == (small.claim, 3e-7, 2, True)
    assert (second.largest, second.bound, second.holds) == (3e-6, 1e-6, False)
    assert (third.largest, third.holds, third.reason) == (None, None, "half precision")


def test_no_document_has_the_statistic() -> None:
    found = one(evidence([math.nan] * 40))
    assert (found.outcome, found.cause) == ("undecided", "statistic")
    nothing = evidence(spread(0.7), combine=lambda c: math.nan)
    assert one(nothing).cause == "statistic"


def test_false_decisions_are_rare_where_all_truths_are_at_the_threshold() -> None:
    rng, wrong, times = np.random.default_rng(1), 0, 60
    for _ in range(times):
        common = rng.normal(size=120)
        found = judge(
            [evidence(0.5 + 0.1 * (common + rng.normal(size=120)), id=f"c{k}") for k in range(10)]
        )
        wrong += any(v.outcome != "undecided" for v in found)
    assert wrong / times <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / times)
