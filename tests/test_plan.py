"""What an audit will test, fixed before it is measured, and how it departs from that."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

import heed
from heed import Document, Plan
from heed.audit import Audit, audit, plan, quick_claims
from heed.claims import CLAIMS
from heed.claims.needed import Used
from heed.claims.study import grouped
from heed.cli.audited import Audited
from heed.errors import DataError, InputError, OutputError
from heed.methods import METHODS, AttentionMean, make_method
from heed.models.single_layer import SingleLayer
from heed.report import html, terminal
from heed.settings import plain
from tests.test_cli import command, refused
from tests.test_report import printed

TEXTS = [f"the film was {word} and the plot is {word}" for word in ("good", "bad", "slow", "dull")]
CLAIMS_TESTED = ["used", "agrees-removal"]


@pytest.fixture(scope="module")
def planned(model: SingleLayer) -> Plan:
    return plan(model, TEXTS, CLAIMS_TESTED, seed=3)


def departures(audited: Audit) -> list[str]:
    return audited.facts["plan"]["departures"]


# The plan


def test_a_plan_says_what_will_be_tested(model: SingleLayer, planned: Plan) -> None:
    assert (planned.model, planned.revision) == (model.name, model.revision)
    assert planned.documents == 4 and planned.seed == 3 and planned.unit == "word"
    assert list(planned.claims) == CLAIMS_TESTED and list(planned.methods) == ["attention-mean"]
    used = planned.claims["used"]
    assert (used.side, used.settings) == (CLAIMS["used"].claim.side(), plain(Used()))
    pairs = [("used", "attention-mean"), ("agrees-removal", "attention-mean")]
    assert planned.pairs == pairs


def test_the_hash_is_that_of_canonical_json(planned: Plan) -> None:
    values = json.loads(planned.to_json())
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert planned.hash == hashlib.sha256(text.encode()).hexdigest()


def test_a_plan_is_the_same_from_its_file_however_that_is_laid_out(
    planned: Plan, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    planned.save(path)
    assert Plan.load(path) == planned
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7, sort_keys=True))
    assert Plan.load(path).hash == planned.hash


def test_every_claim_and_method_survives_a_plan(model: SingleLayer) -> None:
    """All settings of all claims and methods can be written and read."""
    every = plan(model, TEXTS)
    again = msgspec.json.decode(every.to_json(), type=Plan)
    assert again.tests() == [CLAIMS[name]() for name in every.claims]
    for name in METHODS:
        method = make_method(name)
        stated = msgspec.structs.replace(every, methods={name: plain(method)})
        assert msgspec.json.decode(stated.to_json(), type=Plan).judged() == [method]


@pytest.mark.parametrize(
    "changes",
    [
        {"claims": ["used"]},
        {"claims": [Used(permutations=9), "agrees-removal"]},
        {"methods": AttentionMean(layers="all")},
        {"seed": 4},
        {"unit": "token"},
        {"limit": 3},
        {"training": ["a good film", "a bad film"]},
        {"dataset": [Document(t, label=0) for t in TEXTS]},
        {"dataset": [Document(t, cluster="a") for t in TEXTS]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_decides_a_result_changes_the_hash(
    model: SingleLayer, planned: Plan, changes: dict
) -> None:
    arguments = {"dataset": TEXTS, "claims": CLAIMS_TESTED, "seed": 3} | changes
    assert plan(model, **arguments).hash != planned.hash


def test_the_order_of_documents_does_not_change_the_digest(
    model: SingleLayer, planned: Plan
) -> None:
    assert plan(model, TEXTS[::-1], CLAIMS_TESTED, seed=3).digest == planned.digest


def test_a_function_without_a_revision_cannot_be_planned() -> None:
    nameless = heed.Function(lambda texts: [[0.0, 1.0]] * len(texts), ["a", "b"])
    with pytest.raises(InputError, match="give it a revision"):
        plan(nameless, TEXTS, "agrees-removal", "random")


# The audit


def test_an_audit_goes_as_planned(model: SingleLayer, planned: Plan, tmp_path: Path) -> None:
    planned.save(tmp_path / "plan.json")
    for given in (planned, tmp_path / "plan.json", str(tmp_path / "plan.json")):
        audited = audit(model, TEXTS, plan=given)
        assert audited.facts["plan"] == {
            "hash": planned.hash,
            "departures": [],
            "pairs": planned.pairs,
        }
    same = audit(model, TEXTS, CLAIMS_TESTED, seed=3)
    assert same.verdicts == audited.verdicts and "plan" not in same.facts


def test_documents_drawn_for_a_plan_are_drawn_again(model: SingleLayer) -> None:
    for arguments in ({"limit": 2, "seed": 5}, {"claims": "quick", "limit": 3}):
        made = plan(model, TEXTS, **{"claims": "used"} | arguments)
        audited = audit(model, TEXTS, plan=made)
        assert departures(audited) == [] and audited.facts["documents"] == arguments["limit"]


def test_quick_is_the_claims_behind_the_headline_on_100_documents(model: SingleLayer) -> None:
    made = plan(model, [f"{t} {i}" for t in TEXTS for i in range(40)], "quick")
    assert list(made.claims) == quick_claims() and made.documents == 100
    families = {CLAIMS[name].claim.family for name in made.claims}
    assert families == {"needed", "determined", "causal", "signed", "faithful"}
    assert not any(CLAIMS[name].claim.trains for name in made.claims)


def test_every_departure_is_listed(model: SingleLayer, planned: Plan) -> None:
    def of(dataset: list = TEXTS, **changes: object) -> list[str]:
        return departures(audit(model, dataset, plan=planned, **changes))

    assert of(claims=["used"]) == ["the claim agrees-removal was left out"]
    assert of(claims=[*CLAIMS_TESTED, "sensitive"]) == ["the claim sensitive was added"]
    steps = f"used.permutations is 9, planned {Used().permutations}"
    assert of(claims=[Used(permutations=9), "agrees-removal"]) == [steps]
    assert of(methods=["attention-mean", "random"]) == ["the method random was added"]
    assert of(methods=AttentionMean(layers="0")) == ["attention-mean.layers is 0, planned last"]
    assert of(methods="random")[:1] == ["the method attention-mean was left out"]
    assert of(seed=4) == ["the seed is 4, planned 3"]
    assert of(unit="token") == ["the unit is token, planned word"]
    assert of(TEXTS[:3]) == ["the documents are 3, planned 4"]
    assert of([*TEXTS[:3], "a good film"]) == ["the documents are others"]
    assert of(budget=0) == [
        f"{name} was not measured: the budget of 0 minutes was spent"
        for name in ("used", "agrees-removal of attention-mean")
    ]


def test_another_model_another_version_and_other_claims_are_departures(
    model: SingleLayer, planned: Plan
) -> None:
    used = msgspec.structs.replace(planned.claims["used"], threshold=0.5, statistic="mean TVD")
    before = msgspec.structs.replace(
        planned,
        revision="abc",
        heed="0.0.1",
        training="def",
        until_decided=True,
        claims=planned.claims | {"used": used},
    )
    now, side = planned.heed, CLAIMS["used"].claim.side()
    assert departures(audit(model, TEXTS, plan=before, until_decided=False)) == [
        f"the model is {model.name}@{model.revision}, planned {model.name}@abc",
        "the model was not retrained, as planned",
        f"the version of heed is {now}, planned 0.0.1",
        "the audit stopped after all documents, which was not planned",
        f"used holds for {side} in heed {now}, planned > 0.5",
        f"used has the statistic “{planned.claims['used'].statistic}”, planned “mean TVD”",
    ]


def test_imported_scores_are_passed_beside_a_plan(model: SingleLayer) -> None:
    scores = [[1.0] * len(text.split()) for text in TEXTS]
    mine = heed.Imported.arrays("mine", TEXTS, scores)
    made = plan(model, TEXTS, "agrees-removal", mine)
    with pytest.raises(InputError, match="judges mine"):
        audit(model, TEXTS, plan=made)
    assert departures(audit(model, TEXTS, methods=mine, plan=made)) == []
    others = heed.Imported.arrays("mine", TEXTS, [[2.0] * len(s) for s in scores])
    assert departures(audit(model, TEXTS, methods=others, plan=made)) == ["mine has other scores"]


@pytest.mark.parametrize("as_planned", [True, False])
def test_terminal_page_and_file_say_whether_an_audit_went_as_planned(
    model: SingleLayer, planned: Plan, tmp_path: Path, as_planned: bool
) -> None:
    audited = audit(model, TEXTS, plan=planned, seed=None if as_planned else 8)
    audited.save(tmp_path / "rows.parquet")
    for value in (audited, Audit.load(tmp_path / "rows.parquet")):
        on_terminal, page = " ".join(printed(terminal.audit(value)).split()), html.audit(value)
        assert planned.hash in page and planned.hash[:12] in on_terminal
        for text in (on_terminal.lower(), page):
            assert ("as planned" in text) == as_planned
            assert ("the seed is 8, planned 3" in text) != as_planned


# Damaged plans


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"claims": {}}, "no claim"),
        ({"methods": {}}, "no method"),
        ({"seed": -1}, "seed"),
        ({"seed": "3"}, "seed"),
        ({"documents": 0}, "documents"),
        ({"limit": 0}, "limit"),
        ({"unit": "paragraph"}, "unit"),
        ({"surprise": 1}, "surprise"),
        ({"methods": {"lime": {"samples": -5}}}, "samples"),
        ({"methods": {"lime": {"sample": 5}}}, "sample"),
    ],
    ids=str,
)
def test_a_plan_that_nobody_could_follow_gets_one_sentence(
    planned: Plan, tmp_path: Path, changes: dict, says: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(json.loads(planned.to_json()) | changes))
    with pytest.raises(DataError, match=says) as error:
        Plan.load(path)
    assert "plan.json" in str(error.value) and "\n" not in str(error.value)


def test_a_claim_that_this_version_lacks_is_named(planned: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(planned.to_json().replace('"agrees-removal"', '"agrees-with-me"'))
    with pytest.raises(DataError, match="has no claim 'agrees-with-me'"):
        Plan.load(path)
    with pytest.raises(DataError, match="There is no plan"):
        Plan.load(tmp_path / "other.json")
    with pytest.raises(OutputError, match=r"\.json"):
        planned.save(tmp_path / "plan.txt")


# The command line


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    rows = [f"{text} {i},{i % 2},{'ab'[i % 2]}" for i, text in enumerate(TEXTS * 3)]
    path.write_text("\n".join(["text,label,author", *rows]))
    return path


def test_a_plan_is_written_and_followed(reviews: Path, tmp_path: Path) -> None:
    path, rows = tmp_path / "plan.json", tmp_path / "rows.parquet"
    asked = ("--data", reviews, "--limit", "5", "--cluster", "author", "--seed", "2")
    done = command(
        "plan", *asked, "--claim", "used,removes", "--set", "removes.orders=2", "-o", path
    )
    made = Plan.load(path)
    assert done.code == 0 and made.hash in done.out and str(path) in done.err
    assert made.documents == 5 and made.claims["removes"].settings["orders"] == 2
    assert max(map(len, done.out.splitlines())) <= 80
    done = command("audit", "--plan", path, "-o", rows)
    audited = Audit.load(rows)
    assert done.code == 0 and f"As planned ({made.hash[:12]})" in done.out
    assert departures(audited) == [] and audited.facts["clusters"] == 2
    more = ("--seed", "3", "--set", "removes.orders=3")
    done = command("audit", "--plan", path, *more, "--format", "json")
    assert json.loads(done.out)["facts"]["plan"]["departures"][1:] == [
        "the seed is 3, planned 2",
        "removes.orders is 3, planned 2",
    ]


def test_without_a_file_a_plan_is_printed(reviews: Path) -> None:
    done = command("plan", "--data", reviews, "--quick")
    made = msgspec.json.decode(done.out, type=Plan)
    assert made.hash in done.err and list(made.claims) == quick_claims()


def test_a_plan_of_imported_scores_names_their_file(reviews: Path, tmp_path: Path) -> None:
    scores = tmp_path / "mine.jsonl"
    rows = [{"text": text, "scores": [1.0] * len(text.split())} for text in TEXTS]
    scores.write_text("\n".join(map(json.dumps, rows)))
    path = tmp_path / "plan.json"
    asked = ("--claim", "agrees-removal", "--method", scores, "--method", "random")
    assert command("plan", *asked, "-o", path).code == 0
    done = command("audit", "--plan", path, "--format", "json")
    assert json.loads(done.out)["facts"]["plan"]["departures"] == []


def test_mistakes_with_plans_get_one_sentence(reviews: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert command("plan", "--data", reviews, "--claim", "used", "-o", path).code == 0
    refused(command("plan", "-o", tmp_path / "plan.txt"), ".json")
    refused(command("plan", "--quick", "--claim", "used"), "--quick")
    refused(command("audit", "--plan", tmp_path / "none.json"), "none.json")
    refused(command("audit", "--plan", path, "--set", "samples=3"), "--method")
    values = json.loads(path.read_text())
    for options in ({"surprise": 1}, {"limit": "many"}, {"data": ["a"]}, {"train": 3}):
        path.write_text(json.dumps(values | {"options": options}))
        refused(command("audit", "--plan", path), "option")


def test_plan_and_audit_share_their_options() -> None:
    for verb in ("plan", "audit"):
        text = " ".join(command(verb, "--help").out.split())
        assert all(f"--{name}" in text for name in ("model", "cluster", "quick", "set", "unit"))
    assert Audited().typed == frozenset()


# Clusters


def test_documents_of_a_cluster_count_as_one(model: SingleLayer) -> None:
    texts = [f"{t} {i}" for i, t in enumerate(TEXTS * 3)]
    rows = [{"text": t, "author": "abc"[i % 3]} for i, t in enumerate(texts)]
    apart = audit(model, rows, "used")
    together = audit(model, rows, "used", columns={"cluster": "author"})
    assert [v.n for v in (*apart.verdicts, *together.verdicts)] == [12, 3]
    assert together.facts["clusters"] == 3 and apart.facts["clusters"] == 0
    assert together.verdicts[0].mean == apart.verdicts[0].mean
    assert "12 documents in 3 clusters" in printed(terminal.audit(together))


def test_clusters_ids_and_texts_are_told_apart() -> None:
    documents = [
        Document("one", id="a"),
        Document("two", cluster="a"),
        Document("three", cluster="a", id="b"),
        Document("four", id="b"),
        Document("a"),
        Document("one", cluster="c"),
        Document("five", cluster="c"),
    ]
    # the first shares its text with the sixth, and that its cluster with the last
    assert grouped(documents) == [0, 1, 1, 1, 2, 0, 0]


def test_a_column_of_clusters_that_is_not_there_is_refused(model: SingleLayer) -> None:
    with pytest.raises(DataError, match=r"'author'.*--cluster"):
        audit(model, [{"text": "a film"}], columns={"cluster": "author"})


def test_a_cell_without_a_cluster_is_by_itself(model: SingleLayer) -> None:
    rows = [{"text": f"film {i}", "author": [None, float("nan"), 7][i % 3]} for i in range(6)]
    found = model.documents(rows, {"cluster": "author"})
    assert [d.cluster for d in found] == ["", "", "7"] * 2
    assert len(set(grouped(found.documents))) == 5
