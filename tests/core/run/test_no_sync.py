"""Launching a step never synchronises with the device.

A read from the device would make the host wait for all launched steps, which defeats async
scheduling, and it would fail during the capture of a CUDA graph.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

from core.attention.triton.backend import TritonBackend
from core.contract.grammar import Regex
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams, Thinking
from core.engine.engine import Engine
from core.fusion.cuda.catalogue import fuse_for_cuda
from core.fusion.cuda.ops import TritonOps
from core.grammar.compiler import GrammarCompiler
from core.grammar.processor import GrammarProcessor
from core.hook.hook import AttentionHook
from core.kernels.triton.draw import draw_rows
from core.kv.manager import KVCacheManager
from core.kv.storage import KVStorage
from core.module.facts import describe
from core.run.forward import EagerForward, ForwardPass
from core.run.graphs.forward import GraphedForward
from core.run.graphs.pieces import PiecewiseForward
from core.run.graphs.sizes import piece_sizes
from core.run.last_tokens import LastTokens
from core.run.runner import ModelRunner
from core.sampling.processors import default_processors
from core.sampling.processors.thinking_budget import ThinkingBudget
from core.sampling.sampler import Sampler
from core.scheduler import Scheduler
from core.text.tokenizer import Tokenizer
from tests.support.checkpoints import VOCAB_SIZE, tiny_model
from tests.support.meta_device import META, READ_VALUE, DeviceTrace, move, traced
from tests.support.tokenizers import byte_level

pytestmark = pytest.mark.slow

WAYS = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.7},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 0.8, "top_k": 20},
    {"temperature": 1.1, "min_p": 0.05},
    {"repetition_penalty": 1.2},
    {"temperature": 1.0, "frequency_penalty": 0.3, "presence_penalty": 0.2},
    {"logit_bias": {5: 1.0, 6: -100.0}},
    {"logprobs": 3},
    {"temperature": 0.8, "top_p": 0.9, "logprobs": 0},
    {"prompt_logprobs": 2},
    {"allowed_token_ids": (5, 6, 7)},
    {"bad_words_ids": ((7,), (7, 8), (7, 7, 9))},
    {"min_tokens": 5, "stop_token_ids": (9,)},
    {"grammar": Regex("(?s:.*)")},
    {
        "thinking": Thinking(
            begin="<a>", end="</a>", budget=3, is_open=True, end_token_ids=(9, 10)
        ),
    },
]


class FunctionCapture:
    """A GraphCapture whose replay calls the function. ``attach`` undoes what it routed."""

    def __init__(self, attach: Callable[[], None]) -> None:
        self._attach = attach

    def capture(self, compute):
        compute()
        return compute

    def capture_pieces(self, compute):
        compute(lambda *_: None)

        def replay():
            logits = compute(lambda work, *tensors: work(*tensors))
            self._attach()
            return logits

        return replay


def model_of(family: str, dtype: torch.dtype) -> tuple[nn.Module, AttentionHook]:
    """A model with fused modules, which are proved on the CPU."""
    model = copy.deepcopy(tiny_model(family))
    model.config.pad_token_id = 3
    model = describe(model, META).module
    hook = AttentionHook(model)
    fuse_for_cuda(model, list(zip(hook.modules, hook.layers, strict=True)), TritonOps())
    move(model, dtype)
    return model, hook


def engine_of(
    model: nn.Module,
    hook: AttentionHook,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    *,
    graphs: bool,
) -> Engine:
    """An engine as ``load_engine`` builds it for CUDA."""
    storage = KVStorage(hook.layers, num_blocks=600, block_size=16, dtype=kv_dtype, device=META)
    attention = TritonBackend(storage, hook.layers, dtype=dtype)
    hook.attach(attention)
    last_tokens = LastTokens(20, META)
    eager = EagerForward(model, attention, META, last_tokens)
    forward: ForwardPass = eager
    if graphs:
        capture = FunctionCapture(lambda: hook.attach(attention))
        decodes = GraphedForward(eager, attention, capture, max_num_seqs=20, max_context=2048)
        sizes = piece_sizes(128, 1)
        forward = PiecewiseForward(
            decodes, attention, hook, capture, sizes=sizes, max_num_logits=20
        )
    tokenizer = Tokenizer(byte_level(), vocab_size=VOCAB_SIZE)
    compiler = GrammarCompiler(tokenizer.vocabulary, (1,), vocab_size=VOCAB_SIZE)
    processors = (
        GrammarProcessor(compiler, META),
        *default_processors((1,)),
        ThinkingBudget(),
    )
    kv = KVCacheManager(600, 16, enable_prefix_caching=True)
    return Engine(
        ModelRunner(
            forward, Sampler(processors=processors, draw=draw_rows), [storage], last_tokens
        ),
        Scheduler(kv, max_num_seqs=20, max_num_batched_tokens=128),
        kv,
        tokenizer,
        num_token_ids=VOCAB_SIZE,
        eos_token_ids=frozenset(),
        seed=0,
        async_scheduling=True,
    )


def requests() -> list[EngineRequest]:
    rng = random.Random(1)
    return [
        EngineRequest(
            request_id=str(i),
            prompt_token_ids=tuple(rng.randrange(20, 200) for _ in range(length)),
            params=SamplingParams(
                **{"max_tokens": 6, "temperature": 0.0, "ignore_eos": True, **way}
            ),
        )
        for i, way in enumerate(WAYS)
        for length in [rng.choice([1, 3, 17, 150])]
    ]


def serve(engine: Engine, given: list[EngineRequest]) -> None:
    """Add one request per step and run to the end. Every token is READ_VALUE."""
    waiting, tokens = list(given), []
    while waiting or engine.has_work:
        if waiting:
            engine.add(waiting.pop(0))
        for output in engine.step():
            assert output.error is None
            tokens += output.token_ids
    assert tokens == [int(READ_VALUE)] * sum(r.params.max_tokens for r in given)


def served(family: str, dtype: torch.dtype, kv_dtype: torch.dtype, *, graphs: bool) -> DeviceTrace:
    model, hook = model_of(family, dtype)
    with traced() as trace:
        serve(engine_of(model, hook, dtype, kv_dtype, graphs=graphs), requests())
    return trace


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("family", ["qwen3", "gpt2", "gemma3"])
def test_a_launch_does_not_synchronise(family, graphs):
    trace = served(family, torch.bfloat16, torch.bfloat16, graphs=graphs)
    assert trace.syncs == set()
    assert trace.variants["_chunk_kernel"]
    assert trace.variants["_decode_kernel"]


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("qwen3", {"_rms_norm": 1, "_rotary": 1, "_gated": 1, "_chunk": 1, "_decode": 1}),
        ("gemma3", {"_rms_norm": 1, "_rotary": 1, "_gated": 1, "_chunk": 2, "_decode": 2}),
    ],
)
def test_kernels_are_not_compiled_again_while_serving(family, expected):
    """Triton compiles a kernel again if an integer argument becomes 1 or is not divisible by 16."""
    trace = served(family, torch.bfloat16, torch.float8_e4m3fn, graphs=True)
    found = {name: len(variants) for name, variants in trace.variants.items()}
    # steps in graphs have int32 slots, eager ones int64
    others = {"_write": 2, "_merge": 1, "_draw": 2}
    assert found == {f"{name}_kernel": count for name, count in (expected | others).items()}
