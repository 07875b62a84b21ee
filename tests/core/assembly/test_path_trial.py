"""The path that the doctor tries beside that of the engine, and what cannot be tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.assembly.build import load_engine
from core.assembly.fit import try_path
from core.contract.config import EngineConfig, ModelConfig
from core.contract.info import ModelPath
from core.kernels.cpu.library import kernels
from tests.support.each import each
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import in_blocks, tensors_of_file, values_of_file
from tests.zoo.shrink import tiny_config

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

WHOLE = "whole model in one call"


def tried(
    folder: Path, family: str, config: EngineConfig | None = None, **fields: Any
) -> ModelPath:
    """The path of a model whose folder has a configuration and no weights."""
    tiny_config(family, **fields).save_pretrained(folder)
    return try_path(ModelConfig(model=str(folder)), config or EngineConfig())


@each("config", [EngineConfig(max_model_len=64), EngineConfig(attention_backend="torch")])
def test_the_trial_finds_what_the_engine_has(config: EngineConfig) -> None:
    assert try_path(ModelConfig(), config) == load_engine(ModelConfig(), config).info.path


def test_the_path_of_a_gguf_file_is_tried(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    write_gguf(file, values_of_file("llama"), in_blocks(tensors_of_file("llama")))
    model, config = ModelConfig(model=str(file)), EngineConfig(max_model_len=32)
    assert try_path(model, config) == load_engine(model, config).info.path
    assert try_path(model, config).name == WHOLE
