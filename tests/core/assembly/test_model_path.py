"""The path that computes a model: one call if a row reads it, or transformers with the reason."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.assembly.build import load_engine
from core.assembly.fit import try_path
from core.contract.config import EngineConfig, ModelConfig, Quantization
from core.contract.errors import ModelLoadError
from core.contract.info import ONE_CALL, ModelPath
from core.kernels.cpu import library
from core.kernels.cpu.compiler import KernelsUnavailable
from tests.support.damaged import change_config
from tests.support.each import each
from tests.support.tokenizers import byte_level
from tests.zoo.shrink import tiny_config, tiny_model

pytestmark = pytest.mark.skipif(library.kernels() is None, reason="no C++ compiler")

MODULES = "transformers' modules"
WHOLE = ModelPath(name=ONE_CALL, expected=ONE_CALL)


def saved(folder: Path, family: str, **fields: Any) -> ModelConfig:
    tiny_model(tiny_config(family, **fields)).save_pretrained(folder)
    byte_level().save_pretrained(folder)
    return ModelConfig(model=str(folder))


def limits(**changes: Any) -> EngineConfig:
    sizes = {"max_num_seqs": 2, "max_num_batched_tokens": 32, "max_model_len": 64}
    return EngineConfig(kv_cache_memory=8 << 20, **sizes, **changes)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of ours, not of transformers."""
    records = [record for record in caplog.records if record.name == "roseinfer.core"]
    return [record.getMessage() for record in records if record.levelno == logging.WARNING]


@each("quantization", ["none", "int8", "int4"])
@each("family", ["llama", "gpt2", "gemma3_text", "qwen3_moe"])
def test_the_whole_model_is_one_call(
    family: str, quantization: Quantization, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = ModelConfig(model=saved(tmp_path, family).model, quantization=quantization)
    assert load_engine(model, limits()).info.path == try_path(model, limits()) == WHOLE
    assert not warnings_in(caplog)


def test_a_key_that_no_row_knows_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = saved(tmp_path, "llama", hidden_act="tanh")
    path = load_engine(model, limits()).info.path
    assert (path.name, path.expected) == (MODULES, ONE_CALL)
    assert path.slower_because == "hidden_act is 'tanh'"
    assert warnings_in(caplog) == [f"the model's family has a faster path: {path}"]
    assert try_path(model, limits()) == path


def test_no_warning_where_a_family_has_no_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = saved(tmp_path, "biogpt")
    assert load_engine(model, limits()).info.path == try_path(model, limits()) == ModelPath()
    assert not warnings_in(caplog)
    with pytest.raises(ModelLoadError, match=r"--quantization int8 needs a model .*'biogpt'"):
        load_engine(ModelConfig(model=model.model, quantization="int8"), limits())


def test_attention_outside_of_the_kernels_is_the_reason(tmp_path: Path) -> None:
    path = load_engine(saved(tmp_path, "qwen3"), limits(attention_backend="torch")).info.path
    assert path.name == MODULES
    assert path.slower_because == "attention 'torch' is not part of the compiled kernels"


def test_code_of_the_model_s_own_is_the_reason(tmp_path: Path) -> None:
    model = saved(tmp_path, "qwen3")
    change_config(tmp_path, auto_map={"AutoTokenizer": "own.Tokens"})
    trusting = ModelConfig(model=model.model, trust_remote_code=True)
    assert try_path(model, limits()) == WHOLE
    assert try_path(trusting, limits()).slower_because == "its own code computes it"


def test_a_type_that_the_kernels_lack_is_the_reason(tmp_path: Path) -> None:
    model = ModelConfig(model=saved(tmp_path, "qwen3").model, dtype="float16")
    path = load_engine(model, limits()).info.path
    assert path.name == MODULES
    assert path.slower_because == "the compiled kernels do not compute in float16"


@pytest.fixture
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail() -> None:
        raise KernelsUnavailable("no C++ compiler: install g++")

    library.kernels_or_reason.cache_clear()
    monkeypatch.setattr(library, "compiled_library", fail)
    yield
    library.kernels_or_reason.cache_clear()


@pytest.mark.usefixtures("_no_compiler")
def test_a_machine_without_a_compiler_is_the_reason(tmp_path: Path) -> None:
    path = load_engine(saved(tmp_path, "qwen3"), limits()).info.path
    assert path.name == MODULES
    assert path.slower_because == "no compiled kernels: no C++ compiler: install g++"
