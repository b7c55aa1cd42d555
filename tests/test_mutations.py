"""Broken files: whatever happens to a file that heed reads back, the answer is one sentence.

`mutations` breaks any JSON, JSON Lines or Parquet file in many ways: bytes are flipped, deleted,
inserted; keys are dropped, types changed, values nested, numbers made huge or NaN, entries doubled;
columns of Parquet get other types. The same seed gives the same files.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import heed
from heed import Imported
from heed.cli.audited import Audited
from heed.errors import HeedError
from heed.models.single_layer import SingleLayer
from heed.report import planned, terminal

ENDINGS = (".json", ".jsonl", ".parquet")
STRANGE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    10**30,
    -(10**400),
    1.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x" * 5000,
    "\ud800",
    "\x00",
    [],
    {},
    [[]],
    [None],
    {"": {}},
    [1, "a"],
    [[1, 2, 3, 4]],
    {"text": []},
)


def mutations(path: Path, n: int, seed: int) -> Iterator[Path]:
    """The same file broken in n ways, one after the other, in the folder `mutated` beside it."""
    rng = random.Random(f"{seed} {path.name}")
    folder = path.parent / "mutated"
    folder.mkdir(exist_ok=True)
    whole = path.read_bytes()
    ways = [_bytes, _parquet if path.suffix == ".parquet" else _json]
    for _ in range(n):
        broken = folder / path.name
        broken.write_bytes(rng.choice(ways)(whole, rng))
        yield broken


def _bytes(whole: bytes, rng: random.Random) -> bytes:
    """A few bytes flipped, deleted, inserted or doubled, or the end cut off."""
    changed = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed) or 1)
        length = rng.choice((1, 1, 4, 64))
        match rng.randrange(5):
            case 0 if changed:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                del changed[at : at + length]
            case 2:
                changed[at:at] = rng.randbytes(length)
            case 3:
                changed[at:at] = changed[at : at + length]
            case _ if rng.random() < 0.2:
                del changed[at:]
    return bytes(changed)


def _json(whole: bytes, rng: random.Random) -> bytes:
    """Something else at one or two places inside, or whole entries gone, doubled or nested."""
    text = whole.decode()
    lines = not text.startswith("[")
    values = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    for _ in range(rng.choice((1, 1, 2))):
        _change(rng, values)
    if lines:
        return "\n".join(json.dumps(value) for value in values).encode()
    return json.dumps(values).encode()


def _change(rng: random.Random, values: list[Any]) -> None:
    """One change somewhere in nested lists and dicts, in place."""
    places = list(_places(values))
    if not places:
        return
    container, key = rng.choice(places)
    match rng.randrange(7):
        case 0:
            del container[key]
        case 1:
            container[key] = [container[key]]
        case 2:
            container[key] = {"surprise": container[key]}
        case 3 if isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        case 3 | 4:
            for _ in range(rng.choice((2, 50, 300))):
                container[key] = [container[key]]
        case _:
            container[key] = copy.deepcopy(rng.choice(STRANGE))


def _places(values: Any) -> Iterator[tuple[Any, Any]]:
    """Every place where something stands, as container and key."""
    keys = range(len(values)) if isinstance(values, list) else list(values)
    for key in keys:
        yield values, key
        if isinstance(values[key], list | dict):
            yield from _places(values[key])


def _parquet(whole: bytes, rng: random.Random) -> bytes:
    """A column that is gone, doubled under another name, of another type or full of other values.
    A column that is gone, doubled under another name, of another type or full of other values."""
    table = pq.read_table(io.BytesIO(whole))
    name = rng.choice(table.column_names)
    at = table.column_names.index(name)
    strange = [value for value in STRANGE if value != "\ud800"]
    values: Any = {
        "null": pa.nulls(len(table)),
        "strange": None,
        "bytes": pa.array([rng.randbytes(8)] * len(table)),
        "numbers": pa.array([rng.random()] * len(table)),
        "lists": pa.array([[1, 2]] * len(table)),
        "json": pa.array([json.dumps(rng.choice(strange))] * len(table)),
        "times": pa.array([2**62] * len(table)).cast(pa.timestamp("us")),
    }
    kind = rng.choice([*values, "gone", "doubled", "twice"])
    if kind == "gone":
        table = table.remove_column(at)
    elif kind == "doubled":
        table = table.append_column(f"{name}2", table.column(at))
    elif kind == "twice":
        table = pa.concat_tables([table, table])
    elif kind == "strange":
        column = table.column(at).to_pylist()
        column[rng.randrange(len(column))] = None
        table = table.set_column(at, name, pa.array(column))
    else:
        table = table.set_column(at, name, values[kind])
    out = io.BytesIO()
    pq.write_table(table, out, compression=rng.choice(("none", "zstd")))
    return out.getvalue()


# What heed reads back


@pytest.fixture(scope="module")
def files(model: SingleLayer, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Explanations of heed, of all kinds, and rows of another program."""
    folder = tmp_path_factory.mktemp("files")
    texts = ["a good film with a bad plot", ("the plot is fresh", "the plot is dull, très dull 😀")]
    explanations = heed.explain(model, texts, "lime", samples=50)
    explanations += heed.explain(model, texts, "efficient")
    explanations += heed.explain(model, texts, "gradient-l2", unit="token")
    rows = [
        {"text": "a good film", "scores": [0.0, 1.0, -0.5], "label": "positive", "id": 7},
        {"text": "bad plot", "scores": [1, 2], "pieces": [[0, 3], [4, 8]], "method": "mine"},
        {"text": "one", "pair": "two", "scores": [1.0, 2.0], "pieces": ["one", "two"], "gold": 1},
    ]
    paths = []
    for ending in ENDINGS:
        paths.append(folder / f"heed{ending}")
        heed.save_explanations(explanations, paths[-1])
        paths.append(folder / f"plain{ending}")
        match ending:
            case ".json":
                paths[-1].write_text(json.dumps(rows), encoding="utf8")
            case ".jsonl":
                paths[-1].write_text("\n".join(map(json.dumps, rows)), encoding="utf8")
            case ".parquet":
                pq.write_table(
                    pa.Table.from_pylist([rows[0], rows[0] | {"text": "x y z"}]), paths[-1]
                )
    return paths


def refusal(path: Path, read: Callable[[], None]) -> str:
    """The sentence that refuses a file, or nothing; any other error is passed on."""
    try:
        read()
    except HeedError as error:
        sentence = str(error)
        assert path.name in sentence and "\n" not in sentence, sentence
        assert len(sentence) <= len(str(path)) + 500, sentence
        return sentence
    return ""


def check(model: SingleLayer, path: Path) -> bool:
    """Whether a broken file is still accepted; then all that it holds can be drawn and saved."""

    def load() -> None:
        explanations = heed.load_explanations(path)
        for e in explanations:
            assert e._repr_html_() and repr(e)
        for ending in ENDINGS:
            saved = path.parent / f"again{ending}"
            heed.save_explanations(explanations, saved)
            again = heed.load_explanations(saved)
            assert [e.to_dict() for e in again] == [e.to_dict() for e in explanations]

    imported: list[Imported] = []
    accepted = not refusal(path, load)
    accepted |= not refusal(path, lambda: imported.extend(Imported.read(path)))
    for method in imported:
        for document in method.documents:
            try:
                e = heed.explain(model, document, method)
            except HeedError:  # another label, another model, a text without words
                continue
            assert e._repr_html_() and heed.Explanation.from_json(e.to_json()).units == e.units
    return accepted


def attack(model: SingleLayer, files: list[Path], n: int, seed: int) -> None:
    accepted = refused = 0
    for path in files:
        assert check(model, path)
        for broken in mutations(path, n, seed):
            kept = broken.read_bytes()
            try:
                good = check(model, broken)
            except Exception as error:
                raise AssertionError(f"{broken.name}: {error!r} for {kept[:300]!r}") from error
            accepted, refused = accepted + good, refused + (not good)
    assert accepted and refused


def test_a_broken_file_of_explanations_gets_one_sentence(
    model: SingleLayer, files: list[Path]
) -> None:
    attack(model, files, 60, seed=0)


@pytest.fixture(scope="module")
def rows(model: SingleLayer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved audit with claims that were judged, one that was not, and documents."""
    texts = [f"the film was {word} and the plot is {word}" for word in ("good", "bad", "slow")]
    claims = ["used", "signed", "competitive", "needed"]
    path = tmp_path_factory.mktemp("audit") / "rows.parquet"
    heed.audit(model, texts, claims, examples=2).save(path)
    return path


def check_audit(path: Path) -> bool:
    """Whether a broken audit is still accepted; then its verdicts can be drawn and saved."""

    def load() -> None:
        audit = heed.Audit.load(path)
        assert repr(audit) and audit._repr_html_() and json.dumps(audit.to_dict())
        Console(file=io.StringIO(), width=80).print(terminal.audit(audit))
        audit.save(path.parent / "again.parquet")
        assert len(heed.Audit.load(path.parent / "again.parquet").verdicts) == len(audit.verdicts)

    return not refusal(path, load)


def about(path: Path, n: int, seed: int) -> Iterator[Path]:
    """The same audit with what stands beside its rows, as JSON, broken in n ways."""
    rng, table = random.Random(f"{seed} about"), pq.read_table(path)
    for i in range(n):
        broken = _json(table.schema.metadata[b"heed"], rng)
        mutated = path.parent / f"about-{i}.parquet"
        pq.write_table(table.replace_schema_metadata({"heed": broken}), mutated)
        yield mutated


def attack_audit(path: Path, n: int, seed: int) -> None:
    assert check_audit(path)
    accepted = refused = 0
    for broken in (*mutations(path, n, seed), *about(path, n, seed)):
        try:
            good = check_audit(broken)
        except Exception as error:
            raise AssertionError(f"{broken.name}: {error!r}") from error
        accepted, refused = accepted + good, refused + (not good)
    assert accepted and refused


def test_a_broken_audit_gets_one_sentence(rows: Path) -> None:
    attack_audit(rows, 20, seed=0)


@pytest.fixture(scope="module")
def plan(model: SingleLayer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of several claims and methods, with options of the command line."""
    made = heed.plan(model, ["a good film", "a bad plot"], None, ["attention-mean", "lime"])
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    options = {"data": "reviews.csv", "limit": 9, "train": True, "method": ["lime", "random"]}
    made = msgspec.structs.replace(made, options=options)
    path.write_text(json.dumps(json.loads(made.to_json())))  # in one line, as `mutations` takes it
    return path


def check_plan(path: Path) -> bool:
    """Whether a broken plan is still accepted; then it can be shown, followed and saved."""

    def load() -> None:
        plan = heed.Plan.load(path)
        Console(file=io.StringIO(), width=80).print(planned.terminal(plan))
        assert plan.tests() and len(plan.hash) == 64
        plan.save(path.parent / "again.json")
        assert heed.Plan.load(path.parent / "again.json").hash == plan.hash
        with contextlib.suppress(HeedError):  # imported scores, an option that nobody knows
            Audited().following(plan).methods(plan)

    return not refusal(path, load)


def attack_plan(path: Path, n: int, seed: int) -> None:
    assert check_plan(path)
    accepted = refused = 0
    for broken in mutations(path, n, seed):
        kept = broken.read_bytes()
        try:
            good = check_plan(broken)
        except Exception as error:
            raise AssertionError(f"{error!r} for {kept!r}") from error
        accepted, refused = accepted + good, refused + (not good)
    assert accepted and refused


def test_a_broken_plan_gets_one_sentence(plan: Path) -> None:
    attack_plan(plan, 200, seed=0)


@pytest.mark.full
def test_thousands_of_broken_plans_get_one_sentence_each(plan: Path) -> None:
    attack_plan(plan, 5000, seed=1)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_thousand_broken_audits_get_one_sentence_each(rows: Path, seed: int) -> None:
    attack_audit(rows, 200, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 6))
def test_thousands_of_broken_files_get_one_sentence_each(
    model: SingleLayer, files: list[Path], seed: int
) -> None:
    attack(model, files, 500, seed)


def test_mutations_depend_on_the_seed_alone(files: list[Path]) -> None:
    for path in files:
        one, other = ([p.read_bytes() for p in mutations(path, 20, seed=3)] for _ in range(2))
        assert one == other and any(broken != path.read_bytes() for broken in one)


@pytest.mark.parametrize("ending", [".json", ".jsonl"])
@pytest.mark.parametrize("depth", [1_500, 200_000])
def test_a_file_that_is_nested_too_deeply_is_refused(
    ending: str, depth: int, tmp_path: Path
) -> None:
    path = tmp_path / f"deep{ending}"
    path.write_text('{"text": ' + "[" * depth + "]" * depth + "}", encoding="utf8")
    for read in (heed.load_explanations, Imported.read):
        with pytest.raises(HeedError, match="deep"):
            read(path)
