"""Engines on tiny random models, and greedy requests to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationConfig

from core.attention.base import BackendFactory, backend_factory
from core.attention.layer_groups import layer_groups, one_group
from core.contract.messages import EngineRequest, StepOutput
from core.contract.params import SamplingParams
from core.engine.engine import Engine
from core.hook.hook import AttentionHook
from core.kv.manager import KVCacheManager
from core.load.executor import Attending, Executor
from core.run.forward import EagerForward, ForwardPass
from core.run.last_tokens import LastTokens
from core.run.limits import Limits
from core.run.runner import ModelRunner
from core.sampling.draw import load_row_draw
from core.sampling.sampler import Sampler
from core.scheduler import Scheduler
from core.sizing.cache import KVCache, blocks_per_seq
from core.text.tokenizer import Tokenizer
from tests.support.builders import NoDemand
from tests.support.checkpoints import VOCAB_SIZE, tiny_model
from tests.support.tokenizers import byte_level

BLOCK_SIZE = 4


def build_engine(
    family: str,
    *,
    backend: str | BackendFactory = "torch",
    num_blocks: int = 400,
    max_num_seqs: int = 16,
    max_num_batched_tokens: int = 64,
    enable_prefix_caching: bool = True,
    async_scheduling: bool = False,
    wrap: Callable[[EagerForward], ForwardPass] = lambda eager: eager,
    model: torch.nn.Module | None = None,
    prepare: Callable[[torch.nn.Module, AttentionHook], object] = lambda *_: None,
    num_window_blocks: int | None = None,
    executor: Executor | None = None,
) -> Engine:
    """``wrap`` makes something of the eager pass, such as one with recordings.

    ``model`` is served in place of the family's, ``prepare`` gets it with its hook. With
    ``num_window_blocks`` layers with windows are groups of their own, of so many blocks.
    ``executor`` serves in place of any module.
    """
    device = torch.device("cpu")
    hook: Attending
    if executor is not None:
        hook, model = executor, None
        executor.fix_length(num_blocks * BLOCK_SIZE)
    else:
        model = tiny_model(family) if model is None else model
        hook = AttentionHook(model)
        prepare(model, hook)
    groups = one_group(hook.layers)
    if num_window_blocks is not None:
        groups = layer_groups(hook.layers, num_blocks * BLOCK_SIZE)
    limits = Limits(
        max_num_seqs=max_num_seqs,
        max_model_len=num_blocks * BLOCK_SIZE,
        max_num_batched_tokens=max_num_batched_tokens,
        prefill_chunk_size=None,
        max_step_seconds=None,
        block_size=BLOCK_SIZE,
    )
    cache = KVCache.of(
        groups,
        [num_blocks, *[num_window_blocks or 0] * (len(groups) - 1)],
        blocks_per_seq(groups, limits),
        block_size=BLOCK_SIZE,
        dtype=torch.float32,
        device=device,
    )
    kv = KVCacheManager(
        num_blocks,
        BLOCK_SIZE,
        enable_prefix_caching=enable_prefix_caching,
        windows=cache.windows,
    )
    attention = cache.attention(backend_factory(backend) if isinstance(backend, str) else backend)
    hook.attach(attention)
    last_tokens = LastTokens(max_num_seqs, device) if async_scheduling else None
    runner = ModelRunner(
        wrap(EagerForward(model, attention, device, last_tokens, own=executor)),
        Sampler(draw=load_row_draw(VOCAB_SIZE, torch.float32, device)),
        cache.storages,
        last_tokens,
    )
    scheduler = Scheduler(
        kv,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        demand=NoDemand(),
    )
    tokenizer = Tokenizer(byte_level(), vocab_size=VOCAB_SIZE)
    return Engine(
        runner,
        scheduler,
        kv,
        tokenizer,
        num_token_ids=VOCAB_SIZE,
        eos_token_ids=frozenset(),
        seed=0,
        async_scheduling=async_scheduling,
    )


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


def run_prompts(engine: Engine, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    """Run a greedy request for each prompt; returns the tokens of each."""
    outputs = run(engine, [request(str(i), ids, max_tokens) for i, ids in enumerate(prompts)])
    return [token_ids(outputs[str(i)]) for i in range(len(prompts))]


def greedy(
    model: Any, prompt: list[int], max_tokens: int, guess: list[int] | None = None
) -> list[int]:
    """The oracle: transformers' own greedy ``generate`` with its own attention.

    ``guess`` saves time if it is right: one forward pass over the prompt and the guess shows that
    each token of it is the best one after those before.
    """
    model.set_attn_implementation("eager")
    if guess is not None and len(guess) == max_tokens:
        ids = torch.tensor([prompt + guess])
        with torch.inference_mode():
            logits = model(ids, position_ids=torch.arange(ids.shape[1])[None]).logits[0]
        if logits[len(prompt) - 1 : -1].argmax(-1).tolist() == guess:
            return guess
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        generation_config=GenerationConfig(
            max_new_tokens=max_tokens, do_sample=False, pad_token_id=0
        ),
    )
    new: list[int] = output[0, len(prompt) :].tolist()
    return new


def assert_generated(model: Any, prompts: list[list[int]], answers: list[list[int]]) -> None:
    """Assert that each answer is what ``greedy`` gives for its prompt."""
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer == greedy(model, prompt, len(answer), answer)


def token_ids(outputs: list[StepOutput]) -> list[int]:
    assert outputs[-1].finish_reason == "length"
    return [token_id for output in outputs for token_id in output.token_ids]


def prompts(seed: int) -> list[list[int]]:
    """Short and long ones, some with a common prefix, some longer than the token budget."""
    rng = random.Random(seed)
    prefix = [rng.randrange(3, VOCAB_SIZE - 1) for _ in range(21)]
    lengths = [1, 3, 8, 30, 90, 12, 150]
    fresh = [[rng.randrange(3, VOCAB_SIZE - 1) for _ in range(n)] for n in lengths]
    return [*fresh, prefix + fresh[1], prefix + fresh[2], prefix + fresh[1]]
