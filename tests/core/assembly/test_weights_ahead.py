"""When memory for weights is touched in advance."""

from pathlib import Path

import pytest

from core.assembly import weights_ahead
from core.assembly.weights_ahead import touch_ahead
from core.contract.config import ModelConfig
from core.system import memory_ahead

KIB = 1024


@pytest.fixture
def begun(monkeypatch):
    sizes = []
    monkeypatch.setattr(memory_ahead, "begin", sizes.append)
    monkeypatch.setattr(weights_ahead, "SMALLEST", 10)
    monkeypatch.setattr(weights_ahead, "num_cores", lambda _root: 2)
    return sizes


@pytest.fixture
def folder(tmp_path):
    for name in ("model-1.safetensors", "model-2.safetensors", "config.json"):
        (tmp_path / name).write_bytes(b"x" * KIB)
    return str(tmp_path)


@pytest.fixture
def root(tmp_path_factory):
    """A machine's files: its memory and its NUMA nodes."""
    root = tmp_path_factory.mktemp("root")
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemAvailable: 1000 kB\nMemTotal: 2000 kB\n")
    return root


def test_a_folder_of_weights_is(begun, folder, root):
    touch_ahead(ModelConfig(model=folder, device="cpu"), root)
    assert begun == [2 * KIB]


@pytest.mark.parametrize(
    ("model", "gguf_file"),
    [("", None), ("m-00001-of-00002.gguf", None), ("", "m-00001-of-00002.gguf")],
)
def test_a_gguf_file_is_with_all_its_parts_and_room_to_widen(
    begun, tmp_path, root, model, gguf_file
):
    for part in (1, 2):
        (tmp_path / f"m-0000{part}-of-00002.gguf").write_bytes(b"x" * KIB)
    config = ModelConfig(model=str(tmp_path / model), device="cpu", gguf_file=gguf_file)
    touch_ahead(config, root)
    assert begun == [int(2 * KIB * weights_ahead.WIDER_BLOCKS)]


def test_a_gguf_file_beside_a_checkpoint_is_not_counted(begun, folder, root):
    (Path(folder) / "m.gguf").write_bytes(b"x" * KIB)
    touch_ahead(ModelConfig(model=folder, device="cpu"), root)
    assert begun == [2 * KIB]


def test_a_folder_of_several_gguf_files_is_left_to_the_loader(begun, tmp_path, root):
    for name in ("first", "second"):
        (tmp_path / f"{name}.gguf").write_bytes(b"x" * KIB)
    touch_ahead(ModelConfig(model=str(tmp_path), device="cpu"), root)
    assert begun == []


@pytest.mark.parametrize(
    "fields",
    [
        {"model": None},
        {"model": "org/name"},
        {"device": "cuda"},
        {"quantization": "int8"},
        {"dtype": "float32"},
    ],
)
def test_what_is_packed_in_another_size_is_not(begun, folder, root, fields):
    touch_ahead(ModelConfig(**{"model": folder, "device": "cpu", **fields}), root)
    assert begun == []


def test_a_folder_with_a_dangling_link_is_left_to_the_loader(begun, root, tmp_path):
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "nowhere")
    touch_ahead(ModelConfig(model=str(tmp_path), device="cpu"), root)
    assert begun == []


def test_scarce_memory_is_not(begun, folder, root):
    (root / "proc/meminfo").write_text("MemAvailable: 3 kB\nMemTotal: 2000 kB\n")
    touch_ahead(ModelConfig(model=folder, device="cpu"), root)
    assert begun == []


def test_one_core_and_a_gpu_have_other_work(begun, folder, root, monkeypatch):
    monkeypatch.setattr(weights_ahead, "num_cores", lambda _root: 1)
    touch_ahead(ModelConfig(model=folder, device="cpu"), root)
    monkeypatch.setattr(weights_ahead, "num_cores", lambda _root: 2)
    (root / "proc/driver/nvidia").mkdir(parents=True)
    touch_ahead(ModelConfig(model=folder), root)
    assert begun == []


def test_memory_of_several_nodes_is_left_to_its_threads(begun, folder, root, monkeypatch):
    monkeypatch.setattr(weights_ahead, "threads_by_node", lambda _num, _root: ["a", "b"])
    touch_ahead(ModelConfig(model=folder, device="cpu"), root)
    assert begun == []
