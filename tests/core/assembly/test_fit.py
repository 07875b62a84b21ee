"""The estimate of the doctor beside the engine itself."""

from __future__ import annotations

import pytest
import torch
from safetensors import safe_open

from bench.random_model import make_random_model
from core.assembly.build import load_engine
from core.assembly.fit import estimate_fit
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.kernels.cpu import library
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import in_blocks, tensors_of_file, values_of_file


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(make_random_model("tiny", tmp_path_factory.mktemp("models") / "tiny"))


@pytest.mark.parametrize("memory", [2**20, 3 * 2**20 + 77])
@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_a_cache_of_given_size_holds_what_the_engine_holds(tiny, memory, dtype):
    model = ModelConfig(model=tiny, dtype=dtype)
    config = EngineConfig(kv_cache_memory=memory, max_num_seqs=4096, max_model_len=64)
    fit = estimate_fit(model, config)
    info = load_engine(model, config).info
    assert fit.num_kv_tokens == info.num_kv_tokens > 64
    assert (fit.dtype, fit.max_model_len) == (info.dtype, info.max_model_len)


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16"])
@pytest.mark.parametrize("change", [dict, in_blocks])
def test_a_gguf_file_is_estimated_as_it_is_loaded(tmp_path, dtype, change):
    file = tmp_path / "x.gguf"
    write_gguf(file, values_of_file("llama"), change(tensors_of_file("llama")))
    model = ModelConfig(model=str(file), dtype=dtype)
    config = EngineConfig(kv_cache_memory=2**20, max_num_seqs=4096, max_model_len=32)
    fit, info = estimate_fit(model, config), load_engine(model, config).info
    assert (fit.dtype, fit.num_kv_tokens) == (info.dtype, info.num_kv_tokens)


def test_the_context_is_lowered_as_the_engine_lowers_it():
    config = EngineConfig(kv_cache_memory=2 * 2**20, max_num_seqs=1)
    fit = estimate_fit(ModelConfig(), config)
    info = load_engine(ModelConfig(), config).info
    assert (fit.max_model_len, fit.num_kv_tokens) == (info.max_model_len, info.num_kv_tokens)
    assert fit.max_model_len < fit.own_context == 2048


def test_weights_are_counted_once_where_they_are_shared(tiny):
    with safe_open(f"{tiny}/model.safetensors", "pt") as file:
        tensors = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118
    fit = estimate_fit(ModelConfig(model=tiny, dtype="float32"), EngineConfig())
    assert fit.weights_nbytes == sum(t.numel() for t in tensors) * torch.float32.itemsize


def test_a_quantisation_that_cannot_be_is_refused_like_the_engine_does(tiny, monkeypatch):
    config = EngineConfig(kv_cache_memory=2**20, max_model_len=64)
    monkeypatch.setattr(library, "kernels_or_reason", lambda: "no compiler")
    for quantization, why in (
        ("fp8", "fp8 needs CUDA"),
        ("int8", "needs a model that the compiled"),
    ):
        model = ModelConfig(model=tiny, quantization=quantization)
        for load in (estimate_fit, load_engine):
            with pytest.raises(ModelLoadError, match=why):
                load(model, config)


def test_what_does_not_fit_is_refused_like_the_engine_does(tiny):
    config = EngineConfig(kv_cache_memory=2**10, max_model_len=64)
    with pytest.raises(ModelLoadError, match="less than one sequence of 64"):
        estimate_fit(ModelConfig(model=tiny), config)
