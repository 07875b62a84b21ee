"""Which file an operator means, and serving it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.gguf.blocks import BF16, F16, Q8_0, BlockMatrix
from core.gguf.file import GgufFile
from core.gguf.tensors import GgufTensors
from core.gguf.values import narrowest, values_of
from core.kernels.cpu.library import kernels
from core.load.devices import pick_dtype
from core.load.source import find_gguf
from core.module.loader import load_model
from core.pooling.recipe import Recipe, read_recipe
from tests.support.gguf_blocks import random_matrix
from tests.support.gguf_files import Raw, write_gguf
from tests.support.gguf_models import (
    in_blocks,
    tensors_of_file,
    tiny_model,
    values_of_file,
    write_tiny,
)
from tests.support.tiny_engine import assert_generated, run_prompts

needs_kernels = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

LIMITS = EngineConfig(max_model_len=128, max_num_seqs=4, kv_cache_memory=4 << 20, threads=1)


def found(model: Path | str | None, name: str | None = None) -> Path | None:
    return find_gguf(ModelConfig(model=None if model is None else str(model), gguf_file=name))


def read_recipe_of(model: str) -> Recipe | None:
    return read_recipe(ModelConfig(model=model))


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()


def test_a_file_is_found_by_its_path_or_in_its_directory(tmp_path):
    assert found("some/model.gguf") == Path("some/model.gguf")
    assert found("org/repository") is None
    assert found(None) is None
    touch(tmp_path, "m.gguf", "mmproj-m.gguf")
    assert found(tmp_path) == tmp_path / "m.gguf"
    assert found(tmp_path, "other.gguf") == tmp_path / "other.gguf"
    touch(tmp_path, "config.json")
    assert found(tmp_path) is None


def test_a_directory_is_one_whatever_its_name(tmp_path):
    folder = tmp_path / "m.gguf"
    folder.mkdir()
    touch(folder, "n.gguf")
    assert found(folder) == folder / "n.gguf"


def test_the_parts_of_a_split_file_are_one_file_of_a_directory(tmp_path):
    touch(tmp_path, "m-00002-of-00002.gguf", "m-00001-of-00002.gguf")
    assert found(tmp_path) == tmp_path / "m-00001-of-00002.gguf"


def test_a_choice_between_files_is_the_operators(tmp_path):
    touch(tmp_path, "a.gguf", "b.gguf")
    with pytest.raises(ModelLoadError, match=r"name one of a\.gguf, b\.gguf with --gguf-file"):
        found(tmp_path)
    with pytest.raises(ModelLoadError, match="needs the directory or hub id"):
        found(None, "a.gguf")
    with pytest.raises(ModelLoadError, match=r"does not end in \.gguf"):
        found(tmp_path, "a.bin")


def test_a_path_that_is_no_model_is_named_with_what_to_do(tmp_path):
    def refused(name: str, gguf_file: str | None = None) -> str:
        with pytest.raises(ModelLoadError) as raised:
            found(tmp_path / name, gguf_file)
        return str(raised.value)

    (tmp_path / "sha256-0").write_bytes(b"GGUF\x03\x00")
    assert "a GGUF file whose name does not end in .gguf: rename it" in refused("sha256-0")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert refused("model.safetensors").endswith("name the directory of the model")
    (tmp_path / "eyes").mkdir()
    touch(tmp_path / "eyes", "mmproj-m.gguf")
    message = refused("eyes")
    assert f"{tmp_path / 'eyes'} has neither a config.json nor a model's GGUF file: name" in message
    touch(tmp_path / "eyes", "M.GGUF")
    assert "eyes has M.GGUF, whose name does not end in .gguf: rename it" in refused("eyes")
    touch(tmp_path / "eyes", "n.gguf")
    assert found(tmp_path / "eyes") == tmp_path / "eyes" / "n.gguf"
    touch(tmp_path, "m.gguf")
    assert refused("m.gguf", "m.gguf").endswith(f"or {tmp_path} with --gguf-file")
    touch(tmp_path, "state.pt")
    assert found(tmp_path / "state.pt") is None


def test_the_name_is_shown_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelLoadError, match=r"^\./ has neither"):
        found("./")
    with pytest.raises(ModelLoadError, match=r"^the name of the model is empty: name"):
        found("")


def test_a_path_that_cannot_be_read_is_named():
    long = "a" * 300
    for check in (found, read_recipe_of):
        with pytest.raises(ModelLoadError, match=f"{long} cannot be read: File name too long"):
            check(long)
    with pytest.raises(ModelLoadError, match=r"^/proc/self/mem cannot be read: Input/output error"):
        found("/proc/self/mem")  # opens; its first page is never mapped


def test_a_file_is_served_with_its_own_tokenizer(tmp_path):
    write_tiny(tmp_path / "m.gguf", "llama")
    loaded = load_engine(ModelConfig(model=str(tmp_path), device="cpu"), LIMITS)
    assert loaded.info.eos_token_ids == (2,)
    assert loaded.info.max_model_len == 128
    prompt = loaded.tokenizer.encode("Hello", add_special_tokens=False)
    [answer] = run_prompts(loaded.engine, [prompt], 8)
    assert_generated(tiny_model("llama"), [prompt], [answer])


def loaded(path: Path, **choices):
    return load_model(ModelConfig(model=str(path), device="cpu", **choices)).module


def in_16_bits(dtype: torch.dtype, *, exact: torch.dtype | None = None) -> dict[str, Raw]:
    """The tensors of a llama with every matrix in 16 bits, whose values ``exact`` has too."""
    kind = {torch.float16: F16, torch.bfloat16: BF16}[dtype]

    def stored(raw: Raw) -> Raw:
        if len(raw.shape) < 2:
            return raw
        value = torch.frombuffer(bytearray(raw.data), dtype=torch.float32).to(exact or dtype)
        return Raw(raw.shape, kind, value.to(dtype).view(torch.uint8).numpy().tobytes())

    return {name: stored(raw) for name, raw in tensors_of_file("llama").items()}


DOWN = "blk.1.ffn_down.weight"


def test_a_file_of_bfloat16_is_a_model_of_bfloat16(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", values_of_file("llama"), in_16_bits(torch.bfloat16))
    wanted = pick_dtype("auto", torch.bfloat16, torch.device("cpu"))
    assert loaded(path).model.embed_tokens.weight.dtype is wanted


def test_blocks_become_the_type_that_the_operator_names(tmp_path):
    blocks = {DOWN: Raw.of(random_matrix(Q8_0, 64, 96))}
    path = write_gguf(
        tmp_path / "m.gguf", values_of_file("llama"), tensors_of_file("llama") | blocks
    )
    for dtype in (torch.float32, torch.bfloat16):
        model = loaded(path, dtype=str(dtype).removeprefix("torch.")).model
        assert model.embed_tokens.weight.dtype is dtype
        assert model.layers[1].mlp.down_proj.weight.dtype is dtype


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matrices_of_16_bits_stay_that_small(tmp_path, caplog, dtype):
    """Beside blocks, and in a file of F16: nothing becomes float32."""
    for more in ({}, {DOWN: Raw.of(random_matrix(Q8_0, 64, 96))}):
        tensors = in_16_bits(dtype) | more
        path = write_gguf(tmp_path / "m.gguf", values_of_file("llama"), tensors)
        caplog.clear()
        with caplog.at_level("INFO", "roseinfer.core"):
            load_engine(ModelConfig(model=str(path), device="cpu"), LIMITS)
        [per_parameter] = re.findall(r"\((\d\.\d) bytes per parameter\)", caplog.text)
        assert float(per_parameter) <= 2.2


def test_values_of_f16_that_bfloat16_has_too_become_bfloat16(tmp_path):
    """CPUs multiply it faster. Most files of F16 are made from bfloat16."""
    matrix = BlockMatrix(
        F16, 3, 64, (torch.randn(3, 64).bfloat16().half().view(torch.uint8)).numpy()
    )
    assert narrowest(matrix).type is BF16
    assert torch.equal(values_of(narrowest(matrix)), values_of(matrix))
    wide = BlockMatrix(F16, 3, 64, torch.randn(3, 64).half().view(torch.uint8).numpy())
    assert narrowest(wide) is wide
    tensors = in_16_bits(torch.float16, exact=torch.bfloat16)
    file = GgufFile.open(write_gguf(tmp_path / "m.gguf", values_of_file("llama"), tensors))
    assert GgufTensors(file).get(DOWN).type is BF16


@needs_kernels
def test_keys_and_values_have_16_bits_beside_blocks(tmp_path):
    path = write_gguf(
        tmp_path / "m.gguf", values_of_file("llama"), in_blocks(tensors_of_file("llama"))
    )
    for choices, wanted in (({}, torch.bfloat16), ({"dtype": "float32"}, torch.float32)):
        config = ModelConfig(model=str(path), device="cpu", **choices)
        [storage] = load_engine(config, LIMITS).engine._pipeline._runner._storages
        assert {tensor.dtype for tensor in storage.tensors} == {wanted}


def test_a_quantised_file_is_served_from_its_blocks(tmp_path, caplog):
    tensors = in_blocks(tensors_of_file("llama"))
    path = write_gguf(tmp_path / "m.gguf", values_of_file("llama"), tensors)
    with caplog.at_level("INFO", "roseinfer.core"):
        engine = load_engine(ModelConfig(model=str(path), device="cpu"), LIMITS).engine
    assert "Q8_0 weights in compiled kernels" in caplog.text
    answers = run_prompts(engine, [[5, 80, 7], list(range(30, 60))], 6)
    assert [len(answer) for answer in answers] == [6, 6]


def test_a_configuration_of_ones_own_is_refused(tmp_path):
    path = write_tiny(tmp_path / "m.gguf", "llama")
    with pytest.raises(ModelLoadError, match="--config is not used with a GGUF file"):
        loaded(path, config="x")
