"""Files that are written, read again by the reader of files from anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from core.export.writer import NewTensor, write_gguf
from core.gguf.blocks import F32, Q8_0
from core.gguf.file import GgufFile
from tests.support.gguf_blocks import random_matrix

VALUES = {
    "flag": True,
    "small": 7,
    "large": 1 << 40,
    "negative": -3,
    "very.negative": -(1 << 40),
    "number": 0.5,
    "text": "naïve",
    "empty": "",
    "strings": ["a", "", "日本"],
    "types": np.array([1, -2, 3], np.int32),
    "scores": np.array([0.25, -1e9], np.float32),
    "bytes": np.arange(5, dtype=np.uint8),
}


def test_metadata_is_read_as_it_was_written(tmp_path):
    write_gguf(tmp_path / "m.gguf", VALUES, [])
    found = GgufFile.open(tmp_path / "m.gguf").metadata._values
    assert found.keys() == VALUES.keys()
    for key, wanted in VALUES.items():
        if isinstance(wanted, np.ndarray):
            assert np.array_equal(found[key], wanted)
            assert found[key].dtype == wanted.dtype
        else:
            value = list(found[key]) if isinstance(wanted, list) else found[key]
            assert value == wanted
            assert type(value) is type(wanted)


def test_tensors_are_read_as_they_were_written(tmp_path):
    blocks, vector = random_matrix(Q8_0, 5, 64), np.arange(3, dtype=np.float32)
    write_gguf(
        tmp_path / "m.gguf",
        {"general.architecture": "llama"},
        [
            NewTensor("vector", (3,), F32, lambda: vector.view(np.uint8)),
            NewTensor("matrix", (5, 64), Q8_0, lambda: blocks.data),
            NewTensor("experts", (1, 5, 64), Q8_0, lambda: blocks.data),
        ],
    )
    tensors = GgufFile.open(tmp_path / "m.gguf").tensors
    assert [(name, t.shape, t.info.type) for name, t in tensors.items()] == [
        ("vector", (3,), F32),
        ("matrix", (5, 64), Q8_0),
        ("experts", (1, 5, 64), Q8_0),
    ]
    assert tensors["vector"].data.tobytes() == vector.tobytes()
    assert tensors["matrix"].data.tobytes() == blocks.data.tobytes()
    assert tensors["experts"].data.tobytes() == blocks.data.tobytes()


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_text("earlier")

    def fail():
        assert path.read_text() == "earlier"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_gguf(path, VALUES, [NewTensor("t", (3,), F32, fail)])
    assert path.read_text() == "earlier"
    assert [found.name for found in tmp_path.iterdir()] == ["m.gguf"]
    write_gguf(path, VALUES, [])
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(found.name for found in tmp_path.iterdir()) == ["m.gguf", "other"]
