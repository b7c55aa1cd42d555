"""Models on disk: what is written is read back; what is broken or unsafe is refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from heed.errors import CheckpointError, OutputError
from heed.models import checkpoint
from heed.models.folders import check_free
from heed.models.single_layer import SingleLayer


@pytest.fixture
def saved(make: Callable[..., SingleLayer], tmp_path: Path) -> Path:
    checkpoint.save(make(double=False), tmp_path / "saved", {"seed": 3})
    return tmp_path / "saved"


def refused(folder: Path, *words: str) -> None:
    """One sentence that names what was wrong."""
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(folder)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "options",
    [{}, {"padding": "attends", "labels": 3}, {"biases": True}],
    ids=["plain", "attends", "biases"],
)
def test_a_saved_model_is_read_back_as_it_was(
    make: Callable[..., SingleLayer], texts: list, tmp_path: Path, options: dict
) -> None:
    model = make(double=False, **options)
    checkpoint.save(model, tmp_path / "deep" / "model", {"accuracy": 0.5})
    again = checkpoint.load(tmp_path / "deep" / "model")
    assert (
        again.labels == model.labels and again.revision == model.revision and again.name == "model"
    )
    np.testing.assert_array_equal(again(texts), model(texts))
    assert json.loads((tmp_path / "deep" / "model" / "model.json").read_text())["accuracy"] == 0.5
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == [
        "model"
    ]  # nothing is left lying about


def test_half_precision_halves_the_file_and_keeps_the_output_close(
    make: Callable[..., SingleLayer], texts: list, tmp_path: Path
) -> None:
    model = make(double=False)
    checkpoint.save(model, tmp_path / "half", {}, fp16=True)
    again = checkpoint.load(tmp_path / "half")
    assert {v.dtype for v in load_file(tmp_path / "half" / "model.safetensors").values()} == {
        torch.float16
    }
    assert again.network.W_e.dtype == torch.float32
    np.testing.assert_array_equal(
        again.network.W_e.numpy(), model.network.W_e.half().float().numpy()
    )
    np.testing.assert_allclose(again(texts), model(texts), atol=0.02)  # eleven bits of mantissa


def test_labels_that_are_not_ascii_survive(
    make: Callable[..., SingleLayer], tmp_path: Path
) -> None:
    like = make(double=False)
    checkpoint.save(
        SingleLayer(like.network, like.tokenizer, ("schön", "悪い")), tmp_path / "m", {}
    )
    assert checkpoint.load(tmp_path / "m").labels == ("schön", "悪い")


def test_a_model_is_written_over_an_older_one(
    make: Callable[..., SingleLayer], saved: Path
) -> None:
    checkpoint.save(make(double=False, seed=1), saved, {})
    assert checkpoint.load(saved).revision == make(double=False, seed=1).revision


# What is refused


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "no model", "nowhere")


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "tokenizer.json"])
def test_a_missing_file(saved: Path, name: str) -> None:
    (saved / name).unlink()
    refused(saved, name)


def test_an_empty_folder(tmp_path: Path) -> None:
    refused(tmp_path, "model.safetensors")


def test_a_file_instead_of_a_folder(saved: Path) -> None:
    refused(saved / "model.safetensors", "is a file")


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"\xff" * 64, b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "]
)
def test_broken_weights(saved: Path, content: bytes) -> None:
    (saved / "model.safetensors").write_bytes(content)
    refused(saved)


def test_weights_that_were_cut_off(saved: Path) -> None:
    whole = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    refused(saved, "cannot be read")


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"3", b"\xff\xfe"])
def test_broken_json(saved: Path, content: bytes) -> None:
    (saved / "model.json").write_bytes(content)
    refused(saved, "model.json")


@pytest.mark.parametrize("kind", ["transformer-9", None, 3, ["single-layer"]])
def test_an_unknown_kind(saved: Path, kind: object) -> None:
    edit(saved, kind=kind)
    refused(saved, "kind", "single-layer")


def edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "model.json").read_text())
    shape = config["shape"] | changes.pop("shape", {})
    (folder / "model.json").write_text(json.dumps(config | {"shape": shape} | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"heads": 4},
        {"d_e": 15},
        {"d_e": "wide"},
        {"vocabulary": 3},
        {"labels": 3},
        {"biases": True},
        {"d_att": -1},
        {"unheard_of": 1},
        {"padding": "sometimes"},
        {"max_words": 0},
        {"max_words": -7},
        {"position_base": "x"},
    ],
    ids=str,
)
def test_a_shape_that_does_not_fit(saved: Path, changes: dict) -> None:
    edit(saved, shape=changes)
    refused(saved)


@pytest.mark.parametrize("labels", [["one"], ["a", "b", "c"], "ab", None, 2], ids=str)
def test_labels_that_do_not_fit(saved: Path, labels: object) -> None:
    edit(saved, labels=labels)
    refused(saved)


@pytest.mark.parametrize("key", ["shape", "labels"])
def test_a_json_that_lacks_something(saved: Path, key: str) -> None:
    config = json.loads((saved / "model.json").read_text())
    del config[key]
    (saved / "model.json").write_text(json.dumps(config))
    refused(saved)


def test_tensors_that_do_not_fit(saved: Path) -> None:
    state = load_file(saved / "model.safetensors")
    save_file({k: v for k, v in state.items() if k != "W_k"}, saved / "model.safetensors")
    refused(saved)
    save_file(state | {"W_k": state["W_k"][:, :4].contiguous()}, saved / "model.safetensors")
    refused(saved)
    save_file(state | {"extra": torch.zeros(3)}, saved / "model.safetensors")
    refused(saved)


def test_a_tokenizer_with_more_words_than_the_model(saved: Path) -> None:
    tokenizer = json.loads((saved / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["newword"] = 9999
    (saved / "tokenizer.json").write_text(json.dumps(tokenizer))
    refused(saved)


def test_a_broken_tokenizer(saved: Path) -> None:
    (saved / "tokenizer.json").write_text("{")
    refused(saved, "tokenizer.json")


class Trap:
    """A pickle of this creates a file as soon as it is loaded."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


def test_the_trap_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "name", ["model.bin", "model.pt", "model.pth", "model.pkl", "model.ckpt", "model.PT", "weights"]
)
def test_a_pickle_is_refused_and_never_loaded(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    refused(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.PTH"])
def test_a_folder_with_only_a_pickle_is_refused_and_never_loaded(saved: Path, name: str) -> None:
    (saved / "model.safetensors").unlink()
    (saved / name).write_bytes(pickle.dumps(Trap(saved / "sprung")))
    refused(saved)
    assert not (saved / "sprung").exists()


def test_a_pickle_under_the_name_of_safetensors_is_refused_and_never_loaded(saved: Path) -> None:
    (saved / "model.safetensors").write_bytes(pickle.dumps(Trap(saved / "sprung")))
    refused(saved)
    assert not (saved / "sprung").exists()


def test_a_pickled_folder_names_the_pickle(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    refused(tmp_path, "pickle", "pytorch_model.bin", "safetensors")


# Where a model may be written


def test_a_folder_with_other_files_is_refused(
    make: Callable[..., SingleLayer], tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match="other files"):
        check_free(tmp_path)
    with pytest.raises(OutputError, match="other files"):
        checkpoint.save(make(double=False), tmp_path, {})
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file", tmp_path / "file" / "model"):
        with pytest.raises(OutputError, match="cannot be written"):
            check_free(target)


def test_new_empty_and_model_folders_are_free(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for target in (saved, tmp_path / "empty", tmp_path / "new" / "deeper"):
        check_free(target)
