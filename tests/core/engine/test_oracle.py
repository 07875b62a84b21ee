"""Packed, paged, batched, chunked and preempted: the tokens equal transformers' ``generate``."""

import pytest
import torch

from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from tests.support.checkpoints import CONFIGS, VOCAB_SIZE, tiny_model
from tests.support.sdpa_attention import SDPABackend
from tests.support.tiny_engine import (
    BLOCK_SIZE,
    assert_generated,
    build_engine,
    greedy,
    prompts,
    request,
    run,
    run_prompts,
    token_ids,
)

pytestmark = pytest.mark.slow

FAMILIES = sorted(CONFIGS)


@pytest.mark.parametrize("family", FAMILIES)
def test_batch_equals_generate(family: str) -> None:
    given = prompts(1)
    engine = build_engine(family)
    answers = run_prompts(engine, given, 24)
    assert_generated(tiny_model(family), given, answers)
    assert engine.stats().num_cached_tokens > 0
    assert engine.stats().num_free_blocks == engine.stats().num_blocks


@pytest.mark.parametrize("family", FAMILIES)
def test_preemption_changes_no_token(family: str) -> None:
    given = [prompt[:40] for prompt in prompts(2)]
    engine = build_engine(family, num_blocks=44)
    answers = run_prompts(engine, given, 30)
    assert engine.stats().num_preemptions > 0
    assert_generated(tiny_model(family), given, answers)


def test_the_oracle_itself_is_generate() -> None:
    """It takes no guess on trust, so it differs from a wrong one."""
    model, prompt = tiny_model("qwen3"), prompts(1)[3]
    expected = greedy(model, prompt, 8)
    assert greedy(model, prompt, 8, expected) == expected
    for place in range(8):
        wrong = [*expected[:place], expected[place] ^ 1, *expected[place + 1 :]]
        assert greedy(model, prompt, 8, wrong) == expected


@pytest.mark.parametrize("family", ["gpt2", "gemma3"])
def test_the_torch_backend_equals_the_oracle(family: str) -> None:
    given = prompts(3)
    requests = [request(str(i), prompt, 16) for i, prompt in enumerate(given)]
    by_backend = {
        name: run(build_engine(family, backend=backend), requests)
        for name, backend in (("torch", "torch"), ("sdpa", SDPABackend))
    }
    for r in requests:
        assert token_ids(by_backend["torch"][r.request_id]) == token_ids(
            by_backend["sdpa"][r.request_id]
        )


def test_prefix_cache_hit_equals_miss() -> None:
    prompt = prompts(4)[4]
    cold = build_engine("qwen3", enable_prefix_caching=False)
    expected = token_ids(run(cold, [request("a", prompt, 20)])["a"])
    warm = build_engine("qwen3")
    run(warm, [request("first", prompt, 20)])
    outputs = run(warm, [request("second", prompt, 20)])["second"]
    assert token_ids(outputs) == expected
    assert outputs[-1].num_cached_tokens == (len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE


def test_seeded_tokens_are_the_same_alone_and_in_a_batch() -> None:
    given = prompts(5)
    requests = [
        request(str(i), prompt, 20, temperature=1.0, seed=i, top_p=0.9 if i % 2 else 1.0)
        for i, prompt in enumerate(given)
    ]
    together = run(build_engine("llama"), requests)
    for r in requests:
        alone = run(build_engine("llama"), [r])
        assert token_ids(alone[r.request_id]) == token_ids(together[r.request_id])
    texts = {tuple(token_ids(outputs)) for outputs in together.values()}
    assert len(texts) == len(requests)


def test_nan_in_a_request_does_not_reach_other_requests() -> None:
    """The next request reuses its blocks, whose unwritten slots must not contain NaN."""
    model = tiny_model("llama")
    given = prompts(7)
    requests = [request(str(i), prompt, 8) for i, prompt in enumerate(given)]
    alone = [greedy(model, prompt, 8) for prompt in given]
    engine = build_engine("llama", num_blocks=150, enable_prefix_caching=False)
    poison = VOCAB_SIZE - 1
    embedding = model.get_input_embeddings().weight
    saved = embedding[poison].clone()
    embedding[poison] = float("nan")
    try:
        bad = EngineRequest(
            request_id="bad", prompt_token_ids=(poison,) * 100, params=SamplingParams(max_tokens=9)
        )
        outputs = run(engine, [requests[0], bad])
        assert outputs["bad"][-1].error is not None
        assert token_ids(outputs["0"]) == alone[0]
        after = run(engine, requests[1:])
    finally:
        embedding[poison] = saved
    assert [token_ids(after[str(i)]) for i in range(1, len(given))] == alone[1:]


@pytest.mark.parametrize("family", ["gpt2", "gemma3", "qwen3"])
@pytest.mark.parametrize("is_warm", [False, True])
def test_prompt_logprobs_equal_a_plain_forward_pass(family: str, is_warm: bool) -> None:
    prompt = prompts(6)[6]
    model = tiny_model(family)
    model.set_attn_implementation("eager")
    ids = torch.tensor([prompt])
    logits = model(ids, position_ids=torch.arange(len(prompt))[None]).logits[0]
    expected = torch.log_softmax(logits.float(), -1)[:-1].gather(1, ids[0, 1:, None])[:, 0]

    engine = build_engine(family, max_num_batched_tokens=32)
    if is_warm:
        run(engine, [request("first", prompt, 4)])
    outputs = run(engine, [request("a", prompt, 0, prompt_logprobs=2)])["a"]
    entries = list(outputs[-1].prompt_logprobs)
    assert [entry.token_id for entry in entries] == prompt
    assert entries[0].logprob is None
    actual = torch.tensor([entry.logprob for entry in entries[1:]])
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-4)
    assert outputs[-1].num_output_tokens == 0
