"""Packed, paged, batched, chunked, preempted: token for token what ``generate`` gives."""

import random

import pytest
import torch
from transformers import GenerationConfig

from core.attention.base import backend_factory
from core.engine import Engine
from core.kv.manager import KVCacheManager
from core.kv.storage import KVStorage
from core.messages import EngineRequest, StepOutput
from core.model.forward import EagerForward
from core.model.hook import AttentionHook
from core.model.runner import ModelRunner
from core.params import SamplingParams
from core.sampling.sampler import Sampler
from core.scheduler import Scheduler
from core.text.tokenizer import Tokenizer
from tests.support.checkpoints import CONFIGS, VOCAB_SIZE, tiny_model
from tests.support.tokenizers import byte_level

FAMILIES = sorted(CONFIGS)
BLOCK_SIZE = 4


def build_engine(
    family: str,
    *,
    backend: str = "torch",
    num_blocks: int = 400,
    max_num_seqs: int = 16,
    max_num_batched_tokens: int = 64,
    enable_prefix_caching: bool = True,
) -> Engine:
    model = tiny_model(family)
    hook = AttentionHook(model)
    storage = KVStorage(
        hook.layers,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    kv = KVCacheManager(num_blocks, BLOCK_SIZE, enable_prefix_caching=enable_prefix_caching)
    attention = backend_factory(backend)(storage, hook.layers)
    hook.install(attention.forward)
    forward = EagerForward(model, attention, torch.device("cpu"))
    runner = ModelRunner(forward, Sampler(), storage)
    scheduler = Scheduler(
        kv, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens
    )
    tokenizer = Tokenizer(byte_level(), vocab_size=VOCAB_SIZE)
    return Engine(runner, scheduler, kv, tokenizer, eos_token_ids=frozenset(), seed=0)


def request(name: str, prompt: list[int], max_tokens: int, **params: object) -> EngineRequest:
    return EngineRequest(
        request_id=name,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(
            **{"max_tokens": max_tokens, "temperature": 0.0, "ignore_eos": True, **params}
        ),
    )


def run(engine: Engine, requests: list[EngineRequest]) -> dict[str, list[StepOutput]]:
    """Add the requests one a step, so that they join while others run, and run to the end."""
    outputs: dict[str, list[StepOutput]] = {r.request_id: [] for r in requests}
    waiting = list(requests)
    while waiting or engine.has_work:
        if waiting:
            engine.add(waiting.pop(0))
        for output in engine.step():
            outputs[output.request_id].append(output)
        engine.check()
    return outputs


def token_ids(outputs: list[StepOutput]) -> list[int]:
    assert outputs[-1].finish_reason == "length"
    return [token_id for output in outputs for token_id in output.token_ids]


def generated(family: str, prompt: list[int], max_tokens: int) -> list[int]:
    """The oracle: transformers' own greedy ``generate`` with its own attention."""
    model = tiny_model(family)
    model.set_attn_implementation("eager")
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        generation_config=GenerationConfig(
            max_new_tokens=max_tokens, do_sample=False, pad_token_id=0
        ),
    )
    return output[0, len(prompt) :].tolist()


def prompts(seed: int) -> list[list[int]]:
    """Short and long ones, some with a common prefix, some longer than the token budget."""
    rng = random.Random(seed)
    prefix = [rng.randrange(3, VOCAB_SIZE - 1) for _ in range(21)]
    lengths = [1, 3, 8, 30, 90, 12, 150]
    fresh = [[rng.randrange(3, VOCAB_SIZE - 1) for _ in range(n)] for n in lengths]
    return [*fresh, prefix + fresh[1], prefix + fresh[2], prefix + fresh[1]]


@pytest.mark.parametrize("family", FAMILIES)
def test_batch_equals_generate(family: str) -> None:
    given = prompts(1)
    expected = [generated(family, prompt, 24) for prompt in given]
    engine = build_engine(family)
    outputs = run(engine, [request(str(i), prompt, 24) for i, prompt in enumerate(given)])
    assert [token_ids(outputs[str(i)]) for i in range(len(given))] == expected
    assert engine.stats().num_cached_tokens > 0
    assert engine.stats().num_free_blocks == engine.stats().num_blocks


@pytest.mark.parametrize("family", FAMILIES)
def test_preemption_changes_nothing(family: str) -> None:
    given = [prompt[:40] for prompt in prompts(2)]
    expected = [generated(family, prompt, 30) for prompt in given]
    engine = build_engine(family, num_blocks=44)
    outputs = run(engine, [request(str(i), prompt, 30) for i, prompt in enumerate(given)])
    assert engine.stats().num_preemptions > 0
    assert [token_ids(outputs[str(i)]) for i in range(len(given))] == expected


@pytest.mark.parametrize("family", ["gpt2", "gemma3"])
def test_oracle_backend_agrees(family: str) -> None:
    given = prompts(3)
    requests = [request(str(i), prompt, 16) for i, prompt in enumerate(given)]
    by_backend = {
        name: run(build_engine(family, backend=name), requests) for name in ("torch", "sdpa")
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


def test_seeded_text_is_the_same_alone_and_in_any_batch() -> None:
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


def test_a_request_that_computes_no_number_hurts_no_other() -> None:
    """Its blocks are reused by the next request, whose unwritten slots must not be poisoned."""
    model = tiny_model("llama")
    given = prompts(7)
    requests = [request(str(i), prompt, 8) for i, prompt in enumerate(given)]
    alone = [generated("llama", prompt, 8) for prompt in given]
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
def test_prompt_scores_equal_a_plain_forward(family: str, is_warm: bool) -> None:
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
    entries = outputs[-1].prompt_logprobs
    assert entries is not None
    assert [entry.token_id for entry in entries] == prompt
    assert entries[0].logprob is None
    actual = torch.tensor([entry.logprob for entry in entries[1:]])
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-4)
    assert outputs[-1].num_output_tokens == 0
