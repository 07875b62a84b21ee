"""Files and their parts."""

from __future__ import annotations

import pytest
import torch

from core.contract.errors import ModelLoadError
from core.gguf.blocks import Q4_K
from core.gguf.file import GgufFile, opened_once
from core.gguf.values import values_of
from tests.support.gguf_blocks import random_matrix
from tests.support.gguf_files import Raw, write_gguf

MATRIX = random_matrix(Q4_K, 4, 512)


def tensor(value: float) -> Raw:
    return Raw.of(torch.full((3,), value))


def write_parts(folder, count=3, **changes):
    for i in range(count):
        values = {"split.no": i, "split.count": count, "split.tensors.count": count} | changes
        write_gguf(folder / f"m-{i + 1:05}-of-{count:05}.gguf", values, {f"t{i}": tensor(i)})
    return folder / f"m-00001-of-{count:05}.gguf"


def test_a_matrix_is_a_view_of_its_file(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", {}, {"w": Raw.of(MATRIX), "v": tensor(2.0)})
    file = GgufFile.open(str(path))
    matrix = file.tensors["w"].matrix()
    assert torch.equal(values_of(matrix), values_of(MATRIX))
    assert matrix.data.base is not None
    assert file.tensors["v"].matrix().shape == (1, 3)


def test_parts_of_a_split_file_are_one_model(tmp_path):
    file = GgufFile.open(write_parts(tmp_path))
    assert sorted(file.tensors) == ["t0", "t1", "t2"]
    assert [float(values_of(file.tensors[f"t{i}"].matrix())[0, 0]) for i in range(3)] == [0, 1, 2]


def test_a_load_reads_a_file_once(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", {}, {"v": tensor(2.0)})
    with opened_once():
        assert GgufFile.open(str(path)) is GgufFile.open(path)
    assert GgufFile.open(path) is not GgufFile.open(path)


def refused(path) -> str:
    with pytest.raises(ModelLoadError) as raised:
        GgufFile.open(path)
    return str(raised.value)


def test_what_is_wrong_with_parts_is_named(tmp_path):
    first = write_parts(tmp_path)
    assert "is not the first part; name m-00001-of-00003.gguf" in refused(
        first.with_name("m-00002-of-00003.gguf")
    )
    first.with_name("m-00003-of-00003.gguf").unlink()
    assert refused(first).endswith("one of 3 parts; not beside it: m-00003-of-00003.gguf")
    many = first.with_name("m-00001-of-00009.gguf")
    write_gguf(many, {"split.no": 0, "split.count": 9}, {})
    names = ", ".join(f"m-0000{i}-of-00009.gguf" for i in (2, 3, 4))
    assert refused(many).endswith(f"one of 9 parts; not beside it: {names} and 5 more")
    (tmp_path / "n").mkdir()
    assert "hold 3 of 4 tensors" in refused(
        write_parts(tmp_path / "n", **{"split.tensors.count": 4})
    )
    renamed = first.rename(tmp_path / "other.gguf")
    assert "is not named as such: NAME-00001-of-00003.gguf" in refused(renamed)


def test_parts_that_repeat_a_tensor_are_refused(tmp_path):
    first = write_parts(tmp_path, 2)
    values = {"split.no": 1, "split.count": 2, "split.tensors.count": 2}
    write_gguf(tmp_path / "m-00002-of-00002.gguf", values, {"t0": tensor(9.0)})
    assert "repeats the tensor t0" in refused(first)


def test_files_that_are_none_are_refused(tmp_path):
    assert "there is no file" in refused(tmp_path / "missing.gguf")
    empty = tmp_path / "empty.gguf"
    empty.write_bytes(b"")
    assert refused(empty) == f"{empty} is empty"
    assert "cannot be read: [Errno 21] Is a directory" in refused(tmp_path)
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04 something else")
    assert "is not a GGUF file that can be served: it does not begin with GGUF" in refused(other)
