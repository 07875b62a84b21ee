from __future__ import annotations

import copy
import logging
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from core.assembly.build import assemble, load_engine
from core.attention.base import backend_factory
from core.attention.cpu_backend import PagedCPUBackend
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.hook.hook import AttentionHook
from core.kv.layer_spec import LayerSpec
from core.kv.storage import block_nbytes
from core.load.loaded_model import LoadedModel
from core.module.facts import describe
from core.run.limits import Limits
from core.sizing.largest_step import chunk_lengths, run_largest_step
from core.sizing.step_size import step_nbytes
from core.system.device_memory import (
    MIN_CPU_RESERVE,
    cpu_budget,
    device_budget,
    enough_memory,
    lowered_context,
    num_kv_blocks,
)
from core.text.tokenizer import Tokenizer
from tests.support.checkpoints import DECODER, VOCAB_SIZE, tiny_model
from tests.support.tokenizers import byte_level

LIMITS = {
    "block_nbytes": [100],
    "blocks_per_seq": [4],
    "block_size": 16,
    "max_model_len": 64,
    "max_num_seqs": 3,
}
GROUPS = {**LIMITS, "block_nbytes": [20, 80], "blocks_per_seq": [10, 2], "max_model_len": 160}


def test_the_cache_has_no_more_blocks_than_can_be_in_use():
    assert num_kv_blocks(**LIMITS, budget=10**6) == [12]


def test_the_cache_fits_in_the_budget():
    assert num_kv_blocks(**LIMITS, budget=750) == [7]


@pytest.mark.parametrize("budget", [399, 0, -5_000_000])
def test_a_budget_below_one_sequence_is_an_error(budget):
    with pytest.raises(ModelLoadError, match=r"less than one sequence of 64"):
        num_kv_blocks(**LIMITS, budget=budget)


@pytest.mark.parametrize(
    ("budget", "num_blocks"),
    [
        (10**6, [30, 6]),
        (1080, [30, 6]),
        (1079, [29, 6]),
        (700, [11, 6]),
        (650, [10, 5]),  # less than one full-length sequence if all were equal
        (360, [10, 2]),
    ],
)
def test_window_groups_get_what_they_can_use(budget, num_blocks):
    assert num_kv_blocks(**GROUPS, budget=budget) == num_blocks


def test_too_little_for_one_sequence_of_all_groups():
    with pytest.raises(ModelLoadError, match=r"room for 144 tokens .* one sequence of 160"):
        num_kv_blocks(**GROUPS, budget=359)


BLOCK = {"block_size": 16, "context_nbytes": lambda num_blocks: num_blocks * 100}


def test_a_context_that_fits_stays(caplog):
    assert lowered_context(4096, **BLOCK, budget=lambda _: 25_600) == 4096
    assert not caplog.records


def test_a_context_that_does_not_fit_is_lowered_with_both_numbers(caplog):
    with caplog.at_level(logging.WARNING):
        assert lowered_context(4096, **BLOCK, budget=lambda _: 25_599) == 255 * 16
    assert "the model's 4096 tokens to 4080" in caplog.text


def test_a_lower_context_leaves_more_for_the_cache():
    length = lowered_context(10_000, **BLOCK, budget=lambda length: 20_000 - length)
    assert length == 172 * 16  # 17,200 of 17,248 bytes; a block more takes 17,300 of 17,232


@pytest.mark.parametrize("budget", [-1, 0, 31 * 100])
def test_a_context_is_not_lowered_to_a_useless_one(budget, caplog):
    assert lowered_context(4096, **BLOCK, budget=lambda _: budget) == 4096
    assert not caplog.records


def test_what_is_available_is_shared_with_steps_and_a_reserve(tmp_path: Path):
    (tmp_path / "proc").mkdir()
    meminfo = tmp_path / "proc/meminfo"
    meminfo.write_text(f"MemFree: 1 kB\nMemAvailable: {20 << 20} kB\n")
    assert cpu_budget(3 << 30, tmp_path) == 12 << 30
    meminfo.write_text(f"MemFree: 1 kB\nMemAvailable: {1 << 20} kB\n")
    assert cpu_budget(0, tmp_path) == (1 << 30) - MIN_CPU_RESERVE


TINY = {"block_size": 4, "kv_cache_memory": 250 * 4 * 2 * 4 * 2 * 8 * 4}
"""A cache for 1,000 of the 2,048 tokens of a tiny llama: 4 layers, 2 kv heads of 8 values."""


def _assembled(config: EngineConfig, **shape: int):
    llama = LlamaConfig(**{**DECODER, "max_position_embeddings": 2048, **shape})
    model = describe(AutoModelForCausalLM.from_config(llama), torch.device("cpu"))
    return assemble(model, Tokenizer(byte_level(), vocab_size=VOCAB_SIZE), config)


def test_an_engine_lowers_the_context_of_its_model():
    info = _assembled(EngineConfig(**TINY)).info
    assert (info.max_model_len, info.num_kv_tokens) == (1000, 1000)


def test_an_explicit_context_is_never_lowered():
    with pytest.raises(ModelLoadError, match=r"room for 1000 tokens .* one sequence of 2048"):
        _assembled(EngineConfig(**TINY, max_model_len=2048))


def test_a_cache_that_the_system_refuses_is_a_one_line_error():
    refused = pytest.raises(ModelLoadError, match=r"^no memory on the device for the cache \(")
    with refused, enough_memory("the cache"):
        raise MemoryError("Unable to allocate 9 GiB")


def test_the_cache_leaves_room_for_the_largest_step():
    """2.5 TB of logits. One sequence with so many kv heads has no partial results of attention."""
    config = EngineConfig(max_num_batched_tokens=10**9, max_num_seqs=1)
    with pytest.raises(ModelLoadError, match="less than one sequence"):
        _assembled(config, num_key_value_heads=6)


def test_a_small_model_with_a_long_context_fits_a_machine_of_24_gb(tmp_path: Path):
    """Qwen3-0.6B's shape, with 20 GiB available of which 3 are free: the rest holds files."""
    (tmp_path / "proc").mkdir()
    meminfo = f"MemFree: {3 << 20} kB\nMemAvailable: {20 << 20} kB\n"
    (tmp_path / "proc/meminfo").write_text(meminfo)
    shape = {"hidden_size": 1024, "intermediate_size": 3072, "vocab_size": 151_936}
    with torch.device("meta"):
        qwen = Qwen3Config(**shape, num_hidden_layers=1, max_position_embeddings=40_960)
        module = AutoModelForCausalLM.from_config(qwen)
    model = replace(describe(module, torch.device("cpu")), dtype=torch.bfloat16)
    limits = Limits.of(model, EngineConfig())
    layers = [LayerSpec(16, 8, 128, 128, 1.0, None)] * 28
    attention = PagedCPUBackend.step_nbytes(layers, 512, 64, 40_960)
    budget = cpu_budget(step_nbytes(model, limits) + attention, tmp_path)
    assert block_nbytes(layers, 16, torch.bfloat16) * (40_960 // 16) < budget


class Device:
    """10,000 bytes: 500 of other processes, 2,000 of weights, 300 of libraries after first use."""

    def __init__(self) -> None:
        self.has_run = False

    def total(self) -> int:
        return 10_000

    def elsewhere(self) -> int:
        return 800 if self.has_run else 500

    def peak_of(self, work) -> int:
        num_borrowed = work()
        self.has_run = True
        return 2_000 + 1_500 + num_borrowed - num_borrowed


@pytest.mark.parametrize(("utilization", "budget"), [(0.9, 4_700), (1.0, 5_700), (0.3, -1_300)])
def test_the_budget_is_what_the_largest_step_leaves(utilization, budget):
    assert device_budget(Device(), utilization, lambda: 123) == budget


@pytest.mark.parametrize(
    ("num_tokens", "num_seqs", "longest", "lengths"),
    [
        (10, 1, 20, [10]),
        (10, 4, 20, [7, 1, 1, 1]),
        (100, 4, 30, [30, 30, 30, 10]),
        (100, 3, 30, [30, 30, 30]),
        (3, 3, 30, [1, 1, 1]),
    ],
)
def test_the_largest_step_uses_the_token_budget_and_samples_every_sequence(
    num_tokens, num_seqs, longest, lengths
):
    assert chunk_lengths(num_tokens, num_seqs, longest) == lengths


def test_the_largest_step_returns_the_bytes_of_its_cache_and_frees_them():
    module = copy.deepcopy(tiny_model("llama"))
    hook = AttentionHook(module)
    model = LoadedModel(
        module=module,
        device=torch.device("cpu"),
        dtype=torch.float32,
        vocab_size=VOCAB_SIZE,
        max_model_len=40,
        eos_token_ids=frozenset(),
        default_sampling={},
    )
    made = []

    def factory(storage, layers):
        made.append(weakref.ref(storage))
        return backend_factory("torch")(storage, layers)

    limits = Limits(
        max_num_batched_tokens=90,
        max_num_seqs=5,
        max_model_len=40,
        prefill_chunk_size=None,
        max_step_seconds=None,
        block_size=4,
    )
    num_bytes = run_largest_step(model, hook, factory, limits, torch.float32)
    num_blocks = 10 + 10 + 2 + 1 + 10  # of 40, 40, 8, 1 and, to compute one more, 40 tokens
    assert num_bytes == num_blocks * block_nbytes(hook.layers, 4, torch.float32)
    assert [gone() for gone in made] == [None]


def test_an_fp8_cache_needs_cuda_and_triton():
    with pytest.raises(ModelLoadError, match=r"fp8 needs CUDA and the attention backend 'triton'"):
        load_engine(ModelConfig(device="cpu"), EngineConfig(kv_cache_dtype="fp8"))


def test_an_int8_cache_needs_the_compiled_kernels():
    limits = EngineConfig(kv_cache_dtype="int8", attention_backend="torch")
    with pytest.raises(ModelLoadError, match=r"int8 needs a CPU and the attention backend 'cpu'"):
        load_engine(ModelConfig(device="cpu"), limits)


def test_out_of_memory_becomes_a_one_line_error():
    message = (
        "CUDA out of memory. Tried to allocate 9.66 GiB. GPU 0 has a total capacity of 8 GiB\nmore"
    )
    line = "no memory on the device for the weights (CUDA out of memory. Tried to allocate 9.66 "
    with pytest.raises(ModelLoadError) as caught, enough_memory("the weights"):
        raise torch.OutOfMemoryError(message)
    assert str(caught.value) == line + "GiB.)"
