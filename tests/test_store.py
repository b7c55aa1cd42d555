"""Values are kept by how they were made, whole or not at all, for several processes at once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import heed.store as store_module
from heed.errors import OutputError
from heed.store import Store, code_of, key_of, sweep, write_text, writing, writing_folder


def test_a_value_is_made_once(tmp_path: Path) -> None:
    calls = []

    def make() -> list[dict[str, float]]:
        calls.append(1)
        return [{"value": 0.1}]

    for _ in range(3):
        store = Store(tmp_path)
        assert store.rows("key", make) == store.rows("key", make) == [{"value": 0.1}]
    assert len(calls) == 1
    assert Store(tmp_path, rerun=True).rows("key", make) and len(calls) == 2


def test_without_a_folder_values_last_as_long_as_the_store() -> None:
    store = Store()
    assert store.rows("key", lambda: 1) == 1 and store.rows("key", lambda: 2) == 1
    assert "key" not in Store()


def test_what_is_missing_is_made_and_kept_as_it_comes_in(tmp_path: Path) -> None:
    def stops(indices: list[int]):
        yield {indices[0]: "a"}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).each(["k0", "k1"], stops)
    asked = []

    def rest(indices: list[int]):
        asked.extend(indices)
        yield dict.fromkeys(indices, "b")

    assert Store(tmp_path).each(["k0", "k1"], rest) == ["a", "b"] and asked == [1]


def test_half_a_line_of_a_killed_process_is_skipped(tmp_path: Path) -> None:
    Store(tmp_path).put({"a": {"value": 1.0}, "b": [1, 2]})
    (path,) = (tmp_path / "rows").glob("*.jsonl")
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        store = Store(tmp_path)
        assert ("a" in store) == (cut >= whole.index(b"\n"))
        store.put({"c": cut})
        assert Store(tmp_path)["c"] == cut
        for other in (tmp_path / "rows").glob("*.jsonl"):
            if other != path:
                other.unlink()


def test_values_survive_a_kill_at_any_moment(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from heed.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "for i in range(100000): store.put({f'k{i}': {'value': i, 'text': 'x' * 500}})\n"
    )
    rng = random.Random(0)
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
        deadline = time.monotonic() + 60
        while not list((tmp_path / "rows").glob(f"{process.pid}-*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(rng.random() / 5)
        process.send_signal(signal.SIGKILL)
        process.wait()
        store = Store(tmp_path)
        assert all(store[f"k{i}"]["value"] == i for i in range(100000) if f"k{i}" in store)
        assert "k0" in store


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from heed.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "for i in range(500): store.put({f'{sys.argv[2]}{i}': 'x' * 5000})\n"
    )
    names = ("a", "b")
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name]) for name in names
    ]
    assert [p.wait() for p in processes] == [0, 0]
    store = Store(tmp_path)
    assert all(store[f"{name}{i}"] == "x" * 5000 for name in names for i in range(500))


def test_a_key_holds_all_of_its_parts() -> None:
    parts = ("lime", {"samples": 5}, "text", 0)
    assert key_of(*parts) == key_of("lime", {"samples": 5}, "text", 0)
    others = [("lime", {"samples": 6}, "text", 0), ("lime", {"samples": 5}, "text", 1)]
    assert len({key_of(*parts), *(key_of(*other) for other in others)}) == 3


def test_a_change_of_the_code_below_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {m: code_of(m) for m in ("heed.claims.needed", "heed.metrics", "heed.report.words")}
    real = store_module._source

    def edited(module: str) -> bytes:
        return real(module) + (b"# mended" if module == "heed.models.single_layer" else b"")

    monkeypatch.setattr(store_module, "_source", edited)
    assert code_of("heed.claims.needed") != before["heed.claims.needed"]
    assert code_of("heed.metrics") == before["heed.metrics"]


def test_a_change_of_a_table_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = ("heed.claims.needed", "heed.papers.lopardo.theorems", "heed.metrics")
    before = [code_of(module) for module in modules]
    real = Path.read_bytes
    monkeypatch.setattr(store_module, "_tables", store_module._tables.__wrapped__)

    def edited(path: Path) -> bytes:
        return real(path) + (b"# mended" if path.name in ("claims.toml", "figures.toml") else b"")

    monkeypatch.setattr(Path, "read_bytes", edited)
    after = [code_of(module) for module in modules]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, False, True]


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), writing(path) as scratch:
        scratch.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_folder_gets_all_its_files_or_none(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(RuntimeError), writing_folder(folder) as scratch:
        (scratch / "a").write_text("half")
        raise RuntimeError
    assert not folder.exists() and not list(tmp_path.iterdir())
    with writing_folder(folder) as scratch:
        (scratch / "a").write_text("whole")
    assert (folder / "a").read_text() == "whole" and list(tmp_path.iterdir()) == [folder]


def test_scratch_of_killed_processes_is_removed_and_that_of_others_stays(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for pid in (dead.pid, os.getpid()):
        (tmp_path / f".writing-{pid}-abc").mkdir()
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [f".writing-{os.getpid()}-abc"]


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "below", tmp_path):
        with pytest.raises(OutputError, match="cannot be written"):
            write_text(path, "text")
    with pytest.raises(OutputError, match="cannot be written"):
        Store(tmp_path / "file").put({"a": 1})


def test_a_model_is_made_once(tmp_path: Path) -> None:
    made = []

    def make() -> str:
        made.append(1)
        return "weights"

    def save(model: str, folder: Path) -> None:
        with writing_folder(folder) as scratch:
            (scratch / "model.json").write_text(json.dumps(model))

    def load(folder: Path) -> str:
        return json.loads((folder / "model.json").read_text())

    for _ in range(2):
        store = Store(tmp_path)
        assert store.model("key", make, save, load) == "weights"
        assert store.model("key", make, save, load) == "weights"
    assert len(made) == 1
