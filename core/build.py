"""load_engine: from the operator's choices to an engine that is ready to step."""

from __future__ import annotations

import functools
import logging
import time
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import torch

from core.attention.base import BackendFactory, backend_factory
from core.config import EngineConfig, ModelConfig
from core.engine import Engine
from core.errors import ModelLoadError
from core.kv.manager import KVCacheManager
from core.kv.storage import KVStorage, block_nbytes
from core.model.acceleration import accelerate
from core.model.forward import EagerForward, ForwardPass
from core.model.graphs import CUDAGraphRecorder, recorded, recorded_nbytes
from core.model.hook import AttentionHook
from core.model.last_tokens import LastTokens
from core.model.loader import LoadedModel, load_model, source_of
from core.model.memory import CUDAMemory, cpu_budget, device_budget, enough_memory, num_kv_blocks
from core.model.runner import ModelRunner
from core.model.worst_step import run_worst_step
from core.sampling.one_pass import row_draw
from core.sampling.processors import default_processors
from core.sampling.processors.thinking_budget import ThinkingBudget
from core.sampling.sampler import Sampler
from core.scheduler import Scheduler
from core.structured.compiler import GrammarCompiler
from core.structured.processor import GrammarProcessor
from core.text.tokenizer import Tokenizer

logger = logging.getLogger("roseinfer.core")

DEFAULT_MAX_NUM_BATCHED_TOKENS = {"cpu": 512, "cuda": 8192}
"""A step of this many tokens takes a fraction of a second on either."""

DEFAULT_PREFILL_CHUNK_SIZE = {"cpu": 128, "cuda": None}
"""Prompt tokens beside streams: as few as still keep the matrix products of a CPU busy."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a front end has to know of a loaded engine. Counts are in tokens."""

    max_model_len: int
    max_num_seqs: int
    vocab_size: int
    num_kv_tokens: int
    dtype: str
    device: str
    default_sampling: dict[str, float] = {}
    eos_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """An engine, the facts about it, and what it shares: both of that any thread may call.

    A request's grammar must have passed ``grammar_compiler.check``.
    """

    engine: Engine
    tokenizer: Tokenizer
    info: EngineInfo
    grammar_compiler: GrammarCompiler


def load_engine(model_config: ModelConfig, config: EngineConfig) -> LoadedEngine:
    """Load everything, on the thread that will own it. Raises ModelLoadError."""
    start = time.monotonic()
    model = load_model(model_config)
    tokenizer = Tokenizer.load(
        model_config.tokenizer or source_of(model_config),
        trust_remote_code=model_config.trust_remote_code,
        chat_template=model_config.chat_template,
        vocab_size=model.vocab_size,
    )
    max_model_len = _max_model_len(model, config.max_model_len)
    max_num_batched_tokens = _max_num_batched_tokens(model, config)
    eos_token_ids = tuple(sorted(model.eos_token_ids))
    compiler = GrammarCompiler(tokenizer.vocabulary, eos_token_ids, vocab_size=model.vocab_size)
    hook = AttentionHook(model.module)
    acceleration = accelerate(model, hook, model_config.quantization)
    backend = config.attention_backend
    if backend == "auto":
        backend = acceleration.attention_backend
    make_attention = _attention_factory(backend, model, config)
    storage = _storage(model, hook, make_attention, config, max_model_len, max_num_batched_tokens)
    kv = KVCacheManager(
        storage.num_blocks, config.block_size, enable_prefix_caching=config.enable_prefix_caching
    )
    processors = (
        GrammarProcessor(compiler, model.device),
        *default_processors(eos_token_ids),
        ThinkingBudget(tokenizer.token_bytes),
    )
    attention = make_attention(storage, hook.layers)
    hook.install(attention.forward)
    runs_ahead = model.device.type == "cuda"
    last_tokens = LastTokens(config.max_num_seqs, model.device) if runs_ahead else None
    eager = EagerForward(model.module, attention, model.device, last_tokens)
    forward: ForwardPass = eager
    if model.device.type == "cuda" and not config.enforce_eager:
        forward = recorded(
            eager,
            CUDAGraphRecorder(),
            max_num_seqs=config.max_num_seqs,
            max_context=max_model_len,
        )
    draw = row_draw(model.vocab_size, model.dtype, model.device)
    sampler = Sampler(processors=processors, draw=draw)
    engine = Engine(
        ModelRunner(forward, sampler, storage, last_tokens),
        Scheduler(
            kv,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            prefill_chunk_size=config.prefill_chunk_size
            or DEFAULT_PREFILL_CHUNK_SIZE[model.device.type],
        ),
        kv,
        tokenizer,
        eos_token_ids=model.eos_token_ids,
        seed=config.seed,
        runs_ahead=runs_ahead,
    )
    info = EngineInfo(
        max_model_len=max_model_len,
        max_num_seqs=config.max_num_seqs,
        vocab_size=model.vocab_size,
        num_kv_tokens=storage.num_blocks * config.block_size,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        default_sampling=model.default_sampling,
        eos_token_ids=eos_token_ids,
    )
    logger.info(
        "loaded in %.1f s: %s on %s, %s, attention %r%s, context %d, KV cache %d tokens, "
        "%d threads",
        time.monotonic() - start,
        info.dtype,
        info.device,
        acceleration.description,
        backend,
        "" if forward is eager else " in CUDA graphs",
        max_model_len,
        info.num_kv_tokens,
        torch.get_num_threads(),
    )
    return LoadedEngine(engine, tokenizer, info, compiler)


def _attention_factory(backend: str, model: LoadedModel, config: EngineConfig) -> BackendFactory:
    """What makes the attention. Raises ModelLoadError if it cannot do what is asked for."""
    factory = backend_factory(backend)
    if config.kv_cache_dtype == "auto":
        return factory
    if backend != "triton" or model.device.type != "cuda":
        raise ModelLoadError(
            f"--kv-cache-dtype {config.kv_cache_dtype} needs CUDA and the attention backend "
            f"'triton', not {backend!r} on {model.device.type}"
        )
    return functools.partial(cast("Any", factory), dtype=model.dtype)


def _storage(
    model: LoadedModel,
    hook: AttentionHook,
    make_attention: BackendFactory,
    config: EngineConfig,
    max_model_len: int,
    max_num_batched_tokens: int,
) -> KVStorage:
    """The cache, as large as memory or need allows."""
    dtype = model.dtype if config.kv_cache_dtype == "auto" else torch.float8_e4m3fn

    def work() -> int:
        return run_worst_step(
            model,
            hook,
            make_attention,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=config.max_num_seqs,
            max_model_len=max_model_len,
            block_size=config.block_size,
            kv_dtype=dtype,
        )

    if config.kv_cache_memory is not None:
        budget = config.kv_cache_memory
    elif model.device.type == "cuda":
        with enough_memory(
            f"a step of {max_num_batched_tokens} tokens; lower --max-num-batched-tokens"
        ):
            budget = device_budget(CUDAMemory(model.device), config.gpu_memory_utilization, work)
        if not config.enforce_eager:
            budget -= recorded_nbytes(
                max_num_seqs=config.max_num_seqs, vocab_size=model.vocab_size, dtype=model.dtype
            )
    else:
        budget = cpu_budget()
    num_blocks = num_kv_blocks(
        block_nbytes=block_nbytes(hook.layers, config.block_size, dtype),
        block_size=config.block_size,
        max_model_len=max_model_len,
        max_num_seqs=config.max_num_seqs,
        budget=budget,
    )
    with enough_memory(f"{num_blocks} blocks of KV cache; lower --kv-cache-memory"):
        return KVStorage(
            hook.layers,
            num_blocks=num_blocks,
            block_size=config.block_size,
            dtype=dtype,
            device=model.device,
        )


def _max_model_len(model: LoadedModel, wanted: int | None) -> int:
    if wanted is None:
        return model.max_model_len
    if wanted > model.max_model_len:
        raise ModelLoadError(
            f"--max-model-len {wanted} is more than the model's {model.max_model_len}"
        )
    return wanted


def _max_num_batched_tokens(model: LoadedModel, config: EngineConfig) -> int:
    wanted = config.max_num_batched_tokens
    if wanted is None:
        default = DEFAULT_MAX_NUM_BATCHED_TOKENS[model.device.type]
        return max(default, config.max_num_seqs)
    if wanted < config.max_num_seqs:
        raise ModelLoadError(
            f"--max-num-batched-tokens {wanted} is less than --max-num-seqs {config.max_num_seqs}"
        )
    return wanted
