"""CUDA graphs, async scheduling and memory on a real device."""

from __future__ import annotations

import copy

import pytest
import torch

from core.assembly.build import load_engine
from core.batch.logits import Logits
from core.contract.config import EngineConfig, ModelConfig, Quantization
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.engine.engine import Engine
from core.run.forward import EagerForward
from core.run.graphs.capture import CUDAGraphCapture
from core.run.graphs.pieces import PiecewiseForward

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def engine_of(**limits) -> Engine:
    config = EngineConfig(**{"max_model_len": 256, "max_num_seqs": 12, **limits})
    return load_engine(ModelConfig(device="cuda", dtype="float32"), config).engine


def requests() -> list[EngineRequest]:
    ways = [
        {"temperature": 0.0},
        {"temperature": 1.0, "seed": 1},
        {"temperature": 0.9, "top_p": 0.9, "seed": 2, "logprobs": 1},
        {"temperature": 0.0, "repetition_penalty": 1.2},
        {"temperature": 0.7, "top_k": 30, "min_tokens": 5, "seed": 3},
    ]
    return [
        EngineRequest(
            request_id=str(i),
            prompt_token_ids=tuple(range(20 + i, 21 + i + 9 * i)),
            params=SamplingParams(max_tokens=30, ignore_eos=True, **ways[i % len(ways)]),
        )
        for i in range(14)
    ]


def texts(engine: Engine, asked: list[EngineRequest]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {r.request_id: [] for r in asked}
    waiting = list(asked)
    while waiting or engine.has_work:
        if waiting:
            engine.add(waiting.pop(0))
        for output in engine.step():
            assert output.error is None
            found[output.request_id] += output.token_ids
        engine.check()
    return found


def test_graphs_and_async_scheduling_change_no_token():
    plain = engine_of(enforce_eager=True, async_scheduling=False)
    expected = texts(plain, requests())
    assert isinstance(plain._pipeline._runner._forward, EagerForward)
    for limits in ({}, {"enforce_eager": True}, {"kv_cache_memory": 2**23}):
        engine = engine_of(**limits)
        assert engine._pipeline._async_scheduling
        forward = engine._pipeline._runner._forward
        assert isinstance(forward, PiecewiseForward) != ("enforce_eager" in limits)
        assert texts(engine, requests()) == expected
        assert engine.stats().num_free_blocks == engine.stats().num_blocks


def test_tokens_are_the_same_alone_and_in_a_batch():
    engine = engine_of()
    together = texts(engine, requests())
    for asked in requests():
        assert texts(engine, [asked])[asked.request_id] == together[asked.request_id]


def test_a_function_that_waits_for_the_device_cannot_be_captured():
    x = torch.ones(3, device="cuda")

    def compute() -> Logits:
        assert x.sum().item() == 3
        return Logits(x * 2)

    with pytest.raises(RuntimeError):
        CUDAGraphCapture().capture(compute)
    assert_capture_works(CUDAGraphCapture())


def test_a_failed_capture_leaves_the_device_usable():
    x = torch.ones(3, device="cuda")
    calls = []

    def compute() -> Logits:
        calls.append(None)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("in the middle of it")
        return Logits(x * 2)

    capture = CUDAGraphCapture()
    with pytest.raises(torch.OutOfMemoryError, match="in the middle"):
        capture.capture(compute)
    assert_capture_works(capture)


def assert_capture_works(capture: CUDAGraphCapture) -> None:
    """Capture and replay; the allocator must not believe that a capture is still running."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    x = torch.ones(3, device="cuda")
    replay = capture.capture(lambda: Logits(x * 2))
    x.fill_(4)
    assert replay().values.tolist() == [8, 8, 8]


def test_the_cache_leaves_the_rest_of_the_device_free():
    engine = engine_of(gpu_memory_utilization=0.5, max_model_len=1024, max_num_seqs=64)
    free, total = torch.cuda.mem_get_info()
    assert 1 - free / total < 0.6
    assert texts(engine, requests())


def test_an_fp8_cache_serves_requests():
    engine = load_engine(
        ModelConfig(device="cuda", dtype="bfloat16"),
        EngineConfig(max_model_len=256, max_num_seqs=12, kv_cache_dtype="fp8"),
    ).engine
    found = texts(engine, requests())
    assert all(len(ids) == 30 for ids in found.values())


@pytest.mark.parametrize("quantization", ["int8", "fp8"])
def test_quantised_weights_with_and_without_graphs(quantization: Quantization):
    model = ModelConfig(device="cuda", dtype="float32", quantization=quantization)
    limits = {"max_model_len": 256, "max_num_seqs": 12}
    eager = load_engine(model, EngineConfig(**limits, enforce_eager=True)).engine
    expected = texts(eager, requests())
    engine = load_engine(model, EngineConfig(**limits)).engine
    assert texts(engine, requests()) == expected
    halved = ModelConfig(device="cuda", dtype="bfloat16", quantization=quantization)
    found = texts(load_engine(halved, EngineConfig(**limits)).engine, requests())
    assert all(len(ids) == 30 for ids in found.values())


def test_a_step_that_runs_out_of_memory_fails_only_its_requests():
    engine = engine_of()
    forward = engine._pipeline._runner._forward
    first, *others = requests()

    def hungry(_batch: object) -> Logits:
        torch.empty(2**50, dtype=torch.uint8, device="cuda")
        raise AssertionError

    engine._pipeline._runner._forward = hungry
    engine.add(copy.copy(first))
    outputs = []
    while engine.has_work:
        outputs += engine.step()
    assert outputs[-1].error is not None
    engine._pipeline._runner._forward = forward
    assert texts(engine, others)
