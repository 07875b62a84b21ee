"""load_engine: from the operator's choices to an engine that is ready to step."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from core.assembly.accelerate import Instrument
from core.assembly.runner import BuiltRunner, build_runner
from core.assembly.sampler import build_sampler
from core.assembly.scheduler import build_memory_ahead, build_scheduler
from core.contract.config import EngineConfig, ModelConfig, Quantization
from core.contract.info import EngineInfo
from core.engine.engine import Engine
from core.executors.described import Described, described_and
from core.executors.load import load_described
from core.grammar.compiler import GrammarCompiler
from core.load.devices import pick_device
from core.load.loaded_model import LoadedModel
from core.load.source import source_of
from core.module.loader import load_model
from core.observe.load_progress import Stages
from core.proof.prove import check_proved
from core.run.limits import Limits
from core.text.tokenizer import Tokenizer

logger = logging.getLogger("roseinfer.core")


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """An engine, the facts about it, and what any thread may use: tokenizer and compiler.

    A request's grammar must have passed ``grammar_compiler.check``.
    """

    engine: Engine
    tokenizer: Tokenizer
    info: EngineInfo
    grammar_compiler: GrammarCompiler


def load_engine(
    model_config: ModelConfig, config: EngineConfig, *, instrument: Instrument | None = None
) -> LoadedEngine:
    """Load everything, on the thread that will own it. Raises ModelLoadError."""
    stages = Stages()
    model = _load(model_config, config)
    stages.end("model")
    tokenizer = Tokenizer.load(
        model_config.tokenizer or source_of(model_config),
        trust_remote_code=model_config.trust_remote_code,
        chat_template=model_config.chat_template,
        vocab_size=model.vocab_size,
    )
    stages.end("tokenizer")
    loaded = assemble(model, tokenizer, config, model_config.quantization, instrument)
    stages.end("engine")
    logger.info("loaded in %s", stages)
    return loaded


def _load(model_config: ModelConfig, config: EngineConfig) -> LoadedModel:
    """The model from its spec, if its family has a row, else transformers' module."""
    if pick_device(model_config.device).type != "cpu":
        return load_model(model_config)

    def load_proved(known: Described) -> LoadedModel:
        check_proved(known.files.values)
        return load_described(model_config, known)

    found = described_and(model_config, config.attention_backend, load_proved)
    if isinstance(found, LoadedModel):
        return found
    logger.debug("transformers computes the model: %s", found.reason)
    model = load_model(model_config)
    return replace(model, undescribed=found.reason) if found.has_row else model


def assemble(
    model: LoadedModel,
    tokenizer: Tokenizer,
    config: EngineConfig,
    quantization: Quantization = "none",
    instrument: Instrument | None = None,
) -> LoadedEngine:
    """Build the engine of a loaded model, which it changes. Raises ModelLoadError."""
    model = replace(model, eos_token_ids=_end_token_ids(model, tokenizer))
    limits = Limits.of(model, config)
    num_token_ids = model.num_token_ids  # before its modules are replaced
    compiler = GrammarCompiler(
        tokenizer.vocabulary,
        tuple(sorted(model.eos_token_ids)),
        vocab_size=model.vocab_size,
        limits=config.grammar_limits,
    )
    sampler = build_sampler(model, compiler)
    built = build_runner(model, sampler, limits, config, quantization, instrument)
    scheduler, kv = build_scheduler(
        built.limits,
        built.cache.num_blocks,
        windows=built.cache.windows,
        enable_prefix_caching=config.enable_prefix_caching,
    )
    engine = Engine(
        built.runner,
        scheduler,
        kv,
        tokenizer,
        num_token_ids=num_token_ids,
        eos_token_ids=model.eos_token_ids,
        seed=config.seed,
        async_scheduling=config.async_scheduling and model.device.type == "cuda",
        timer=built.runner.timer,
        memory_ahead=build_memory_ahead(built.cache.storages, kv, model.device.type),
    )
    info = _info(model, built, num_token_ids)
    logger.info(
        "%s on %s, %s, %s, %d threads, context %d, KV cache %d tokens",
        info.dtype,
        info.device,
        info.path.name,
        info.computation,
        info.num_threads,
        info.max_model_len,
        info.num_kv_tokens,
    )
    if info.path.slower_because:
        logger.warning("the model's family has a faster path: %s", info.path)
    return LoadedEngine(engine, tokenizer, info, compiler)


def _end_token_ids(model: LoadedModel, tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens that end an answer: generation_config, config, tokenizer or template name them.

    A config that names none has its class's default, which may be any token of this vocabulary:
    beside a generation_config, its ids must be special tokens.
    """
    named = model.eos_token_ids | tokenizer.end_token_ids
    ids = named | (model.config_eos_ids & tokenizer.special_ids - {tokenizer.bos_token_id})
    return frozenset(token_id for token_id in ids if 0 <= token_id < model.vocab_size)


def _info(model: LoadedModel, built: BuiltRunner, num_token_ids: int) -> EngineInfo:
    limits = built.limits
    return EngineInfo(
        max_model_len=limits.max_model_len,
        max_num_seqs=limits.max_num_seqs,
        vocab_size=model.vocab_size,
        num_token_ids=num_token_ids,
        num_kv_tokens=built.cache.num_blocks * limits.block_size,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        architecture=model.architecture,
        default_sampling=model.default_sampling,
        eos_token_ids=tuple(sorted(model.eos_token_ids)),
        computation=built.description,
        path=built.path,
        num_threads=built.num_threads,
    )
