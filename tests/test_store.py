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
from heed.models import folders
from heed.store import Store, code_of, key_of, resumed, sweep, write_text, writing, writing_folder


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


def test_what_changes_no_number_leaves_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = ("heed.methods", "heed.claims.needed", "heed.training.again")
    before = [code_of(module) for module in modules]
    source, read = store_module._source, Path.read_bytes
    monkeypatch.setattr(store_module, "_tables", store_module._tables.__wrapped__)
    shown = ("heed.report", "heed.cli")
    monkeypatch.setattr(store_module, "_source", lambda m: source(m) + b"#" * m.startswith(shown))
    monkeypatch.setattr(Path, "read_bytes", lambda p: read(p) + b"#" * (p.name == "known.toml"))
    assert [code_of(module) for module in modules] == before
    assert "heed.report.words" in store_module._reached("heed.report.html")


def test_another_version_of_a_library_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_of("heed.metrics")
    monkeypatch.setattr(store_module, "_versions", lambda: ["0"])
    assert code_of("heed.metrics") != before


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


def files_of(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir()}


_KILLED_AT = """
import os, signal, sys
from pathlib import Path
from heed.models.folders import writing
calls = 0
def counted(real):
    def rename(*arguments):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)
    return rename
os.rename, os.replace = counted(os.rename), counted(os.replace)
with writing(Path(sys.argv[1])) as scratch:
    for name in ("model.json", "config.json", "tokenizer.json"):
        (scratch / name).write_text("new")
"""


def test_a_model_that_is_overwritten_is_the_old_or_the_new_one_at_any_moment(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "model"
    ended = []
    for kill in range(1, 20):
        with folders.writing(folder) as scratch:
            for name in ("model.json", "config.json", "tokenizer.json"):
                (scratch / name).write_text("old")
        (folder / "notes.txt").write_text("mine")
        done = subprocess.run([sys.executable, "-c", _KILLED_AT, folder, str(kill)], check=False)
        files = files_of(folders.find(folder))
        assert files.pop("notes.txt") == "mine"
        assert files in [
            dict.fromkeys(("model.json", "config.json", "tokenizer.json"), version)
            for version in ("old", "new")
        ]
        ended.append((done.returncode, files["model.json"]))
        if done.returncode == 0:
            break
    assert {("old"), ("new")} == {version for code, version in ended if code}
    assert ended[-1] == (0, "new")
    with folders.writing(folder) as scratch:
        (scratch / "model.json").write_text("newest")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_the_folder_that_you_are_in_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="the folder that you are in"):
        folders.check_free(Path())


_TOGETHER = """
import sys, time
from pathlib import Path
from heed.store import Store, writing, writing_folder
store, name = Store(Path(sys.argv[1])), sys.argv[2]
def save(model, folder):
    with writing_folder(folder) as scratch:
        for file in "ab":
            (scratch / file).write_text(model)
for i in range(150):
    time.sleep(max(0, float(sys.argv[3]) + i / 100 - time.time()))  # both at once
    with writing(store.unfinished(f"k{i}") / "state") as scratch:
        scratch.write_text(name)
    store.model(f"k{i}", lambda: name, save, lambda folder: (folder / "a").read_text())
    store.finish(f"k{i}")
"""


def test_two_processes_finish_the_same_models(tmp_path: Path) -> None:
    began = str(time.time() + 2)
    processes = [
        subprocess.Popen([sys.executable, "-c", _TOGETHER, str(tmp_path), name, began])
        for name in ("one", "two")
    ]
    assert [p.wait() for p in processes] == [0, 0]
    for i in range(150):
        files = files_of(tmp_path / "models" / f"k{i}")
        assert files["a"] == files["b"]
    assert not list((tmp_path / "unfinished").iterdir())


def dead_pid() -> int:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    return dead.pid


def test_scratch_of_killed_processes_is_removed_and_that_of_others_stays(tmp_path: Path) -> None:
    host, dead = store_module._HOST, dead_pid()
    names = [f".writing-{host}-{os.getpid()}-abc", f".writing-other-{dead}-abc", ".writing-notes"]
    for name in (f".writing-{host}-{dead}-abc", *names):
        (tmp_path / name).mkdir()
    (tmp_path / f".writing-{host}-{dead}-file").write_text("half")
    sweep(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names)
    for name in names:
        os.utime(tmp_path / name, (0, 0))
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [".writing-notes"]


def test_the_file_that_a_killed_process_was_writing_is_removed_by_the_next(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from heed.store import writing\n"
        "with writing(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.txt")], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    write_text(tmp_path / "a.txt", "whole")
    assert files_of(tmp_path) == {"a.txt": "whole"}


def test_a_folder_to_resume_belongs_to_one_process(tmp_path: Path) -> None:
    host, dead = store_module._HOST, dead_pid()
    left = tmp_path / f"key-{host}-{dead}-0"
    (left / "rows").mkdir(parents=True)
    living, old = tmp_path / f"key-{host}-{os.getppid()}-0", tmp_path / f"other-{host}-{dead}-0"
    for path in (living, old):
        path.mkdir()
    os.utime(old, (0, 0))
    folder = resumed(tmp_path, "key")
    assert (folder / "rows").is_dir() and resumed(tmp_path, "key") == folder
    assert {p.name for p in tmp_path.iterdir()} == {folder.name, living.name}


@pytest.mark.parametrize("content", ['["k", ' + "[" * 100_000 + "]" * 100_000 + "]\n", None])
def test_a_damaged_file_of_rows_is_skipped(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "rows" / "x.jsonl"
    path.parent.mkdir()
    path.mkdir() if content is None else path.write_text(content)
    assert Store(tmp_path).rows("k", lambda: 1) == 1


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
