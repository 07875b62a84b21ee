"""Async scheduling of a real model gives the same tokens."""

from __future__ import annotations

import msgspec
import pytest

from core.contract.messages import EngineRequest
from tests.support.tiny_engine import BLOCK_SIZE, build_engine, prompts, request, run, token_ids

pytestmark = pytest.mark.slow


def both(family: str, requests: list[EngineRequest], **limits):
    """Outputs without and with async scheduling, and the latter engine's counters."""
    plain = run(build_engine(family), requests)
    engine = build_engine(family, async_scheduling=True, **limits)
    found = run(engine, requests)
    assert engine.stats().num_free_blocks == engine.stats().num_blocks
    return plain, found, engine.stats()


def assert_same(plain, found) -> None:
    assert plain.keys() == found.keys()
    for name, outputs in plain.items():
        assert token_ids(found[name]) == token_ids(outputs)


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "gemma3"])
def test_greedy_requests(family):
    given = prompts(1)
    plain, found, stats = both(family, [request(str(i), p, 24) for i, p in enumerate(given)])
    assert_same(plain, found)
    assert stats.num_cached_tokens > 0


def test_preempted_requests():
    given = [prompt[:40] for prompt in prompts(2)]
    requests = [request(str(i), prompt, 30) for i, prompt in enumerate(given)]
    plain, found, stats = both("llama", requests, num_blocks=44)
    assert stats.num_preemptions > 0
    assert_same(plain, found)


def test_sampled_requests():
    limits = [{}, {"top_p": 0.95}, {"top_k": 20}, {"min_p": 0.01, "min_tokens": 5}]
    requests = [
        request(str(i), prompt, 20, temperature=1.5, seed=i, logprobs=2, **limits[i % 4])
        for i, prompt in enumerate(prompts(5))
    ]
    plain, found, _ = both("llama", requests)
    assert_same(plain, found)
    for name, outputs in plain.items():
        pairs = zip(
            [entry for output in outputs for entry in output.logprobs],
            [entry for output in found[name] for entry in output.logprobs],
            strict=True,
        )
        for expected, actual in pairs:
            assert actual.token_id == expected.token_id
            assert actual.logprob == pytest.approx(expected.logprob, abs=1e-4)


def test_logits_processors_that_read_tokens():
    edits = [
        {"repetition_penalty": 1.3},
        {"frequency_penalty": 1.0},
        {"bad_words_ids": ((5,), (7, 8))},
        {"logit_bias": {5: 3.0}},
        {},
    ]
    requests = [
        request(str(i), prompt, 6 + 4 * (i % 3), **edits[i % len(edits)])
        for i, prompt in enumerate(prompts(6))
    ]
    plain, found, _ = both("qwen3", requests)
    assert_same(plain, found)


def test_prompt_logprobs():
    given = prompts(7)
    requests = [
        request(str(i), prompt, 5, prompt_logprobs=1) for i, prompt in enumerate(given) if i != 0
    ]
    plain, found, _ = both("gpt2", requests, max_num_batched_tokens=32)
    assert_same(plain, found)
    for name, outputs in plain.items():
        expected = [list(o.prompt_logprobs) for o in outputs if o.prompt_logprobs]
        actual = [list(o.prompt_logprobs) for o in found[name] if o.prompt_logprobs]
        assert len(expected) == len(actual) == 1
        assert [e.token_id for e in actual[0]] == [e.token_id for e in expected[0]]
        assert [e.logprob for e in actual[0][1:]] == pytest.approx(
            [e.logprob for e in expected[0][1:]], abs=1e-4
        )


def test_cached_prefixes_are_reused():
    prompt = prompts(4)[4]
    engine = build_engine("qwen3", async_scheduling=True)
    first = token_ids(run(engine, [request("first", prompt, 20)])["first"])
    outputs = run(engine, [request("second", prompt, 20)])["second"]
    assert token_ids(outputs) == first
    assert outputs[-1].num_cached_tokens == (len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE


@pytest.fixture(scope="module")
def of_tenants():
    """Greedy and seeded requests of tenants, and what each gets alone."""
    requests = [
        msgspec.structs.replace(
            request(str(i), prompt, 6 if i % 5 == 4 else 24, temperature=i % 2 * 1.0, seed=i),
            tenant=f"chat {i}" if i % 5 == 4 else "crowd",
        )
        for i, prompt in enumerate([*prompts(3), *prompts(4), *prompts(5)])
    ]
    reference = build_engine("qwen3")
    return requests, {r.request_id: run(reference, [r])[r.request_id] for r in requests}


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_tenants_that_preempt_each_other(of_tenants, async_scheduling):
    requests, alone = of_tenants
    engine = build_engine("qwen3", max_num_seqs=4, async_scheduling=async_scheduling)
    found = run(engine, requests)
    assert engine.stats().num_preemptions >= 3
    assert engine.stats().num_free_blocks == engine.stats().num_blocks
    assert_same(alone, found)
