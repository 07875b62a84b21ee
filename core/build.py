"""load_engine: from the operator's choices to an engine that is ready to step."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import msgspec
import torch

from core.assembly import assemble
from core.contract.config import EngineConfig, ModelConfig
from core.engine import Engine
from core.grammar.compiler import GrammarCompiler
from core.grammar.processor import GrammarProcessor
from core.kv.manager import KVCacheManager
from core.model.limits import Limits
from core.model.loader import load_model, source_of
from core.sampling.processors import default_processors
from core.sampling.processors.thinking_budget import ThinkingBudget
from core.scheduler import Scheduler
from core.text.tokenizer import Tokenizer

logger = logging.getLogger("roseinfer.core")


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
    limits = Limits.of(model, config)
    eos_token_ids = tuple(sorted(model.eos_token_ids))
    compiler = GrammarCompiler(tokenizer.vocabulary, eos_token_ids, vocab_size=model.vocab_size)
    processors = (
        GrammarProcessor(compiler, model.device),
        *default_processors(eos_token_ids),
        ThinkingBudget(),
    )
    assembly = assemble(model, processors, limits, config, model_config.quantization)
    kv = KVCacheManager(
        assembly.num_blocks, limits.block_size, enable_prefix_caching=config.enable_prefix_caching
    )
    engine = Engine(
        assembly.runner,
        Scheduler(
            kv,
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            prefill_chunk_size=limits.prefill_chunk_size,
        ),
        kv,
        tokenizer,
        eos_token_ids=model.eos_token_ids,
        seed=config.seed,
        async_scheduling=assembly.async_scheduling,
    )
    info = EngineInfo(
        max_model_len=limits.max_model_len,
        max_num_seqs=limits.max_num_seqs,
        vocab_size=model.vocab_size,
        num_kv_tokens=assembly.num_blocks * limits.block_size,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        default_sampling=model.default_sampling,
        eos_token_ids=eos_token_ids,
    )
    logger.info(
        "loaded in %.1f s: %s on %s, %s, context %d, KV cache %d tokens, %d threads",
        time.monotonic() - start,
        info.dtype,
        info.device,
        assembly.description,
        info.max_model_len,
        info.num_kv_tokens,
        torch.get_num_threads(),
    )
    return LoadedEngine(engine, tokenizer, info, compiler)
