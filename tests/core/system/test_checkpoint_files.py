"""Files that are not what their names say are told apart, and named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from core.contract.errors import ModelLoadError
from core.gguf.file import GgufFile
from core.system.checkpoint_files import check_file, check_files, folder_of, read_file
from tests.support.damaged import PAGE, POINTER

NAMES = (
    "config.json",
    "model.safetensors",
    "pytorch_model.bin",
    "tokenizer.model",
    "merges.txt",
    "chat_template.jinja",
)


def reason(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        check_file(path)
    said = str(caught.value)
    assert said.startswith(f"{path} ")
    assert "\n" not in said
    return said.removeprefix(f"{path} ")


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_pointers_and_pages_are_known_in_any_place(tmp_path: Path, name: str) -> None:
    assert "`git lfs pull`" in reason(written(tmp_path / name, POINTER))
    assert "is a web page (HTML)" in reason(written(tmp_path / name, PAGE))
    assert "is a web page (HTML)" in reason(written(tmp_path / name, b'<html lang="en">'))


def test_pointers_and_pages_in_the_place_of_a_gguf_file(tmp_path: Path) -> None:
    for content, said in ((POINTER, "`git lfs pull`"), (PAGE, "web page")):
        with pytest.raises(ModelLoadError, match=said):
            GgufFile.open(written(tmp_path / "m.gguf", content))


def test_a_link_to_nothing_and_a_folder_are_said(tmp_path: Path) -> None:
    link = tmp_path / "config.json"
    link.symlink_to("gone.json")
    assert reason(link) == "is a link to a file that is not there"
    link.unlink()
    link.symlink_to(link)
    assert reason(link) == "is a link to a file that is not there"
    link.unlink()
    link.mkdir()
    assert reason(link) == "cannot be read: Is a directory"


@pytest.mark.parametrize("name", ["a.json", "a.safetensors", "a.bin", "a.pt"])
def test_an_empty_file_is_said(tmp_path: Path, name: str) -> None:
    assert reason(written(tmp_path / name, b"")) == "is empty"


def test_an_empty_template_is_one(tmp_path: Path) -> None:
    check_file(written(tmp_path / "chat_template.jinja", b""))


@pytest.mark.parametrize("content", [b"{bad", b"[1,", b"\xff\xfe", b"[" * 200_000])
def test_what_is_no_json_is_said(tmp_path: Path, content: bytes) -> None:
    assert reason(written(tmp_path / "a.json", content)).startswith("is not valid JSON: ")


def test_json_of_another_kind_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", b"[]")
    with pytest.raises(ModelLoadError, match=r"a\.json holds no JSON object"):
        read_file(path)
    assert read_file(path, list) == []


def test_numbers_of_python_are_json(tmp_path: Path) -> None:
    """Configurations of Mamba have them."""
    content = read_file(written(tmp_path / "a.json", b'{"limit": [0.0, Infinity]}'))
    assert content == {"limit": [0.0, float("inf")]}


def test_where_a_safetensors_file_is_cut_off_is_said(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(64), "b": torch.zeros(64)}, path)
    whole = path.read_bytes()
    check_file(path)
    for length in (len(whole) - 1, len(whole) // 2 + 100, len(whole) - 512):
        said = reason(written(path, whole[:length]))
        assert said == f"is cut off: it has {length:,} of {len(whole):,} bytes"
    for length in (100, 9, 8):
        assert reason(written(path, whole[:length])).startswith("is cut off: it ends within its ")


@pytest.mark.parametrize(
    "content", [b"random bytes of any kind", b"\x02" + bytes(7) + b"{]", b"\x02" + bytes(7) + b"[]"]
)
def test_what_is_no_safetensors_file_is_said(tmp_path: Path, content: bytes) -> None:
    assert "is no safetensors file" in reason(written(tmp_path / "m.safetensors", content))


@pytest.mark.parametrize(
    "change",
    [
        (b'"F32"', b'"F99"'),
        (b"[64]", b"[63]"),
        (b"[64]", b"[-4]"),
        (b'"__metadata__":{"a":"b"}', b'"__metadata__":["a","b"]'),
    ],
)
def test_what_the_library_says_of_a_header_is_told(
    tmp_path: Path, change: tuple[bytes, bytes]
) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(64)}, path, metadata={"a": "b"})
    whole = path.read_bytes()
    check_file(path)
    assert "is no safetensors file: " in reason(written(path, whole + b"more"))
    changed = whole.replace(*change)
    assert len(changed) == len(whole)
    assert changed != whole
    assert "is no safetensors file: " in reason(written(path, changed))


@pytest.mark.parametrize("is_zip", [True, False])
def test_files_of_torch_are_known(tmp_path: Path, *, is_zip: bool) -> None:
    path = tmp_path / "w.bin"
    torch.save({"a": torch.zeros(9)}, path, _use_new_zipfile_serialization=is_zip)
    check_file(path)
    if is_zip:
        assert "is cut off" in reason(written(path, path.read_bytes()[:300]))
    assert reason(written(path, b"anything else")) == "is no file of torch.save"


def test_text_that_is_not_in_utf_8_is_said(tmp_path: Path) -> None:
    assert "is not text in UTF-8" in reason(written(tmp_path / "vocab.txt", b"caf\xe9"))


def test_only_files_that_are_there_are_checked(tmp_path: Path) -> None:
    good = written(tmp_path / "a.json", json.dumps({}).encode())
    check_files([good, tmp_path / "none.json"])
    bad = written(tmp_path / "b.json", b"{")
    with pytest.raises(ModelLoadError, match=r"b\.json"):
        check_files([good, bad])


def test_a_name_too_long_for_a_file_has_no_folder(tmp_path: Path) -> None:
    assert folder_of(str(tmp_path)) == tmp_path
    assert folder_of("a" * 5000) is None
    assert folder_of("no such/name at/all") is None
