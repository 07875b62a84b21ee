from __future__ import annotations

import copy
import weakref

import pytest
import torch

from core.attention.base import backend_factory
from core.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.kv.storage import block_nbytes
from core.model.hook import AttentionHook
from core.model.loader import LoadedModel
from core.model.memory import device_budget, enough_memory, num_kv_blocks
from core.model.worst_step import _lengths, run_worst_step
from tests.support.checkpoints import VOCAB_SIZE, tiny_model

LIMITS = {"block_nbytes": 100, "block_size": 16, "max_model_len": 64, "max_num_seqs": 3}


def test_no_more_blocks_than_can_be_in_use():
    assert num_kv_blocks(**LIMITS, budget=10**6) == 12


def test_no_more_blocks_than_memory_has_room_for():
    assert num_kv_blocks(**LIMITS, budget=750) == 7


@pytest.mark.parametrize("budget", [399, 0, -5_000_000])
def test_too_little_for_one_sequence(budget):
    with pytest.raises(ModelLoadError, match=r"less than one sequence of 64"):
        num_kv_blocks(**LIMITS, budget=budget)


class Device:
    """Ten thousand bytes: others have 500, weights take 2,000, libraries 300 once used."""

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
def test_the_cache_gets_what_a_step_leaves(utilization, budget):
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
def test_the_tokens_of_the_worst_step(num_tokens, num_seqs, longest, lengths):
    assert _lengths(num_tokens, num_seqs, longest) == lengths


def test_the_worst_step_runs_and_tells_what_it_borrowed():
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

    num_bytes = run_worst_step(
        model,
        hook,
        factory,
        max_num_batched_tokens=90,
        max_num_seqs=5,
        max_model_len=40,
        block_size=4,
        kv_dtype=torch.float32,
    )
    num_blocks = 10 + 10 + 2 + 1 + 10  # of 40, 40, 8, 1 and, to compute one more, 40 tokens
    assert num_bytes == num_blocks * block_nbytes(hook.layers, 4, torch.float32)
    assert [gone() for gone in made] == [None]


def test_an_fp8_cache_is_refused_where_it_cannot_be():
    with pytest.raises(ModelLoadError, match=r"fp8 needs CUDA and the attention backend 'triton'"):
        load_engine(ModelConfig(device="cpu"), EngineConfig(kv_cache_dtype="fp8"))


def test_out_of_memory_becomes_a_one_line_error():
    message = (
        "CUDA out of memory. Tried to allocate 9.66 GiB. GPU 0 has a total capacity of 8 GiB\nmore"
    )
    line = "no memory on the device for the weights (CUDA out of memory. Tried to allocate 9.66 "
    with pytest.raises(ModelLoadError) as caught, enough_memory("the weights"):
        raise torch.OutOfMemoryError(message)
    assert str(caught.value) == line + "GiB.)"
