"""The warm-up computes steps and leaves the engine as it was built."""

from __future__ import annotations

import dataclasses

import pytest

from core.engine.engine import Engine
from core.run.limits import Limits
from core.run.runner import ModelRunner
from core.run.warm_up import NUM_PROMPT_TOKENS, warm_up
from tests.support.tiny_engine import BLOCK_SIZE, build_engine, prompts, request, run, token_ids

LIMITS = Limits(
    max_num_seqs=16,
    max_model_len=256,
    max_num_batched_tokens=64,
    prefill_chunk_size=None,
    max_step_seconds=None,
    block_size=BLOCK_SIZE,
)


def runner_of(engine: Engine) -> ModelRunner:
    runner = engine._pipeline._runner
    assert isinstance(runner, ModelRunner)
    return runner


@pytest.mark.parametrize("max_model_len", [256, 20, 2, 1])
def test_it_computes_a_prompt_and_a_decode_step(max_model_len, monkeypatch):
    runner = runner_of(build_engine("llama"))
    counts, launch = [], runner.launch

    def counting_launch(step):
        counts.append(step.num_tokens)
        return launch(step)

    monkeypatch.setattr(runner, "launch", counting_launch)
    warm_up(runner, dataclasses.replace(LIMITS, max_model_len=max_model_len))
    length = min(NUM_PROMPT_TOKENS, max_model_len - 1)
    assert counts == ([length, 1] if length else [])


def test_it_leaves_cache_counters_and_timer_as_they_were():
    engine = build_engine("llama")
    runner, before = runner_of(engine), engine.stats()
    warm_up(runner, LIMITS)
    [storage] = runner._storages
    assert not any(tensor.any() for tensor in (*storage.keys, *storage.values))
    assert engine.stats() == before
    assert not any(runner.timer.nanoseconds.values())
    engine.check()


def test_it_changes_no_token():
    requests = [
        request(str(i), prompt, 12, **([{}, {"temperature": 1.0, "seed": i}][i % 2]))
        for i, prompt in enumerate(prompts(1))
    ]
    expected = run(build_engine("llama"), requests)
    warm = build_engine("llama")
    warm_up(runner_of(warm), LIMITS)
    actual = run(warm, requests)
    for r in requests:
        assert token_ids(actual[r.request_id]) == token_ids(expected[r.request_id])
