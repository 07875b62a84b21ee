"""Every architecture: a tiny file by names and roles, without transformers' modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core.attention.cpu_backend import PagedCPUBackend
from core.attention.torch_backend import PagedTorchBackend
from core.contract.config import ModelConfig
from core.executors.compiled import CompiledExecutor
from core.executors.layer_calls import CallBuilder
from core.executors.plain import PlainExecutor, attention_layers
from core.executors.plain_weights import read_weights
from core.executors.supported import check_supported
from core.gguf.architectures import ARCHITECTURES
from core.gguf.describe import describe_file
from core.gguf.file import GgufFile
from core.gguf.tensors import GgufTensors
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.model.gguf import load_gguf
from core.models.spec import Undescribed
from core.weights.packer import Packer
from core.weights.roles import RoleReader
from tests.core.models.twins import Run, storage_of
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import (
    MODELS,
    architecture_of,
    in_blocks,
    tensors_of_file,
    tiny_model,
    values_of_file,
    write_tiny,
)

KERNELS = kernels()
needs_kernels = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")

MAX_LEN = 256
PROMPTS = [torch.arange(n) * 37 % 280 + 3 for n in (65, 80, 100)]
"""Longer than windows, and than Phi 3's first length: transformers changes its factors there."""

EXACT = 1e-5
"""Of the largest logit."""


def plain(path: Path) -> Run:
    file = GgufFile.open(path)
    _, spec, names = describe_file(file, MAX_LEN)
    weights = read_weights(GgufTensors(file), spec, names)
    layers = attention_layers(spec, weights)
    backend = PagedTorchBackend(storage_of(layers, len(PROMPTS)), layers)
    return Run(PlainExecutor(spec, weights, backend), backend)


def compiled(path: Path, dtype: torch.dtype | None = None) -> Run:
    """Raises Undescribed for what the kernels do not compute."""
    assert KERNELS is not None
    file = GgufFile.open(path)
    _, spec, names = describe_file(file, MAX_LEN)
    reader = RoleReader(GgufTensors(file, dtype), spec, names)
    calls = CallBuilder(spec, reader, Packer(KERNELS, Format.FLOAT32)).build()
    executor = CompiledExecutor(KERNELS, spec, calls)
    backend = PagedCPUBackend(storage_of(executor.layers, len(PROMPTS)), executor.layers)
    executor.attach(backend)
    return Run(executor, backend)


def expected(model: Any) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [model(prompt[None]).logits[0] for prompt in PROMPTS]


def worst(run: Run, logits: list[torch.Tensor]) -> float:
    """The largest difference, as a share of the largest logit, of prompts alone and in chunks."""
    pairs = [*zip(run.whole(PROMPTS), logits, strict=True)]
    pairs += zip(run.in_chunks(PROMPTS), logits, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def check_compiled(path: Path) -> None:
    """Skip what the kernels do not compute."""
    try:
        check_supported(describe_file(GgufFile.open(path), MAX_LEN)[1])
    except Undescribed as error:
        pytest.skip(str(error))


def test_every_architecture_has_a_tiny_model() -> None:
    assert {architecture_of(family) for family in MODELS} == ARCHITECTURES.keys()


@pytest.mark.parametrize("family", MODELS)
def test_a_file_computes_the_logits_of_transformers(tmp_path: Path, family: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", family)
    assert worst(plain(path), expected(tiny_model(family))) < EXACT


@needs_kernels
@pytest.mark.parametrize("family", MODELS)
def test_the_compiled_executor_computes_the_same(tmp_path: Path, family: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", family)
    check_compiled(path)
    assert worst(compiled(path), expected(tiny_model(family))) < EXACT


@pytest.mark.parametrize("family", MODELS)
def test_values_of_blocks_are_those_of_the_file(tmp_path: Path, family: str) -> None:
    values, tensors = values_of_file(family), in_blocks(tensors_of_file(family))
    path = write_gguf(tmp_path / "m.gguf", values, tensors)
    dense = load_gguf(ModelConfig(dtype="float32"), path, torch.device("cpu")).eval()
    assert worst(plain(path), expected(dense)) < EXACT
