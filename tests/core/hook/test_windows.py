"""Layers with sliding windows release their blocks, and the tokens stay those of ``generate``."""

from __future__ import annotations

import pytest
import torch

from core.engine.engine import Engine
from core.kv.window_group import window_blocks_per_seq
from tests.support.checkpoints import tiny_model
from tests.support.tiny_engine import (
    BLOCK_SIZE,
    build_engine,
    greedy,
    prompts,
    request,
    run,
    run_prompts,
    token_ids,
)

pytestmark = pytest.mark.slow

FAMILIES = ["gemma3", "mistral"]
"""Windows and full attention; windows only."""

WINDOWS = {"gemma3": 16, "mistral": 24}
BACKENDS = ["torch", "cpu"]
CHUNK = 24


def windowed(family: str, **fields) -> Engine:
    return build_engine(
        family, **{"num_window_blocks": 120, "max_num_batched_tokens": CHUNK, **fields}
    )


def expected_of(family: str, given: list[list[int]], max_tokens: int) -> list[list[int]]:
    return [greedy(tiny_model(family), prompt, max_tokens) for prompt in given]


def overwrite_free_blocks(engine: Engine) -> None:
    """Write large numbers over all free blocks: without a prefix cache no step may see them."""
    for pool, storage in zip(engine._kv._pools, engine._pipeline._runner._storages, strict=True):
        block_ids = [block_id for block_id in range(pool.num_blocks) if not pool.num_refs(block_id)]
        for tensor in (*storage.keys, *storage.values):
            tensor[block_ids] = 1e4


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_batch_in_chunks_equals_generate(family: str, backend: str) -> None:
    given = prompts(1)
    engine = windowed(family, backend=backend)
    found = run_prompts(engine, given, 24)
    assert found == expected_of(family, given, 24)
    stats = engine.stats()
    assert stats.num_cached_tokens > 0
    assert stats.num_free_blocks == stats.num_blocks


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_query_sees_a_released_block(family: str, backend: str) -> None:
    given = prompts(6)[:7]
    engine = windowed(family, backend=backend, enable_prefix_caching=False)
    for i, prompt in enumerate(given):
        engine.add(request(str(i), prompt, 20))
    found: dict[str, list[int]] = {str(i): [] for i in range(len(given))}
    num_released = 0
    while engine.has_work:
        overwrite_free_blocks(engine)
        for output in engine.step():
            found[output.request_id] += output.token_ids
        engine.check()
        num_released += sum(s.block_tables[1].num_released for s in engine._scheduler)
    assert num_released > 0
    assert [*found.values()] == expected_of(family, given, 20)


@pytest.mark.parametrize("family", FAMILIES)
def test_preemption_changes_nothing(family: str) -> None:
    given = [prompt[:40] for prompt in prompts(2)]
    engine = windowed(family, num_window_blocks=24)  # the full group has room for all
    found = run_prompts(engine, given, 30)
    assert engine.stats().num_preemptions > 0
    assert found == expected_of(family, given, 30)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_preempted_sequence_is_recomputed(family: str) -> None:
    given = [prompt[:40] for prompt in prompts(2)]
    engine = windowed(family, num_blocks=44)
    found = run_prompts(engine, given, 30)
    assert engine.stats().num_preemptions > 0
    assert found == expected_of(family, given, 30)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_is_reused_after_its_blocks_were_released(family: str) -> None:
    prompt = prompts(4)[4]
    assert len(prompt) > 3 * WINDOWS[family]
    engine = windowed(family)
    first = token_ids(run(engine, [request("first", prompt, 30)])["first"])
    follow_up = [*prompt, *first, 5, 6, 7]
    branch = [*prompt[:60], 9, 8, 7]
    given = [prompt, follow_up, branch]
    outputs = run(engine, [request(str(i), tokens, 20) for i, tokens in enumerate(given)])
    found = [token_ids(outputs[str(i)]) for i in range(len(given))]
    assert found == expected_of(family, given, 20)
    cached = [outputs[str(i)][-1].num_cached_tokens for i in range(len(given))]
    known = len(prompt) + 29  # the last token's keys were never computed
    assert cached == [
        (len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE,
        known // BLOCK_SIZE * BLOCK_SIZE,
        60,
    ]


def test_a_long_context_holds_a_fraction_of_the_window_layers() -> None:
    engine = windowed("gemma3", num_blocks=150)
    engine.add(request("a", prompts(1)[6] * 3, 30))
    most = [0, 0]
    while engine.has_work:
        engine.step()
        for sequence in engine._scheduler:
            held = [len(table.held()) for table in sequence.block_tables]
            most = [max(pair) for pair in zip(most, held, strict=True)]
    assert most[0] == -(-(450 + 29) // BLOCK_SIZE)
    assert most[1] <= window_blocks_per_seq(16, CHUNK, BLOCK_SIZE) <= most[0] / 10
    layers = engine._pipeline._runner._storages
    assert [len(storage.keys) for storage in layers] == [
        sum(kind != "sliding_attention" for kind in tiny_model("gemma3").config.layer_types),
        sum(kind == "sliding_attention" for kind in tiny_model("gemma3").config.layer_types),
    ]
    assert torch.float32 is layers[1].keys[0].dtype
