"""load_pooler: from a recipe to an engine that is ready to step."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch

from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError, first_line
from core.contract.info import EngineInfo, PoolingInfo
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.grammar.compiler import GrammarCompiler
from core.load.devices import pick_device
from core.pooling.checkpoint import context_of, load_module, pad_id_of
from core.pooling.embedder import build_embedder, settled
from core.pooling.engine import PoolingEngine
from core.pooling.recipe import Recipe
from core.pooling.runner import PoolingRunner
from core.pooling.scorer import build_scorer
from core.text.tokenizer import Tokenizer

logger = logging.getLogger("roseinfer.core")

DEFAULT_MAX_LENGTH = 8192
"""Tokens of a text unless the operator says more: a mask of attention has their square."""

_NOTHING = SamplingParams(max_tokens=0)


def build_runner(
    recipe: Recipe, module: Any, model_config: ModelConfig
) -> tuple[Tokenizer, PoolingRunner, PoolingInfo]:
    """Build what is beside the transformer, whose weights are not read. Raises ModelLoadError."""
    tokenizer = Tokenizer.load(
        model_config.tokenizer or recipe.source,
        trust_remote_code=model_config.trust_remote_code,
        chat_template=model_config.chat_template,
        vocab_size=module.config.get_text_config().vocab_size,
    )
    build = build_embedder if recipe.task == "embed" else build_scorer
    return tokenizer, *build(recipe, module, tokenizer, pad_id_of(module, tokenizer), model_config)


def try_text(runner: PoolingRunner, recipe: Recipe, tokenizer: Tokenizer) -> None:
    """Compute one text. Raises ModelLoadError if the model cannot: each request would fail."""
    ids = tuple(tokenizer.encode("a", add_special_tokens=True)) or (0,)
    request = EngineRequest(request_id="", prompt_token_ids=ids, params=_NOTHING)
    try:
        runner.run([request])
    except Exception as error:  # any error that a module may raise for plain text
        raise ModelLoadError(
            f"{recipe.source} does not {recipe.task} a text: {first_line(error)}"
        ) from error


@dataclass(frozen=True, slots=True)
class LoadedPooler:
    """An engine, the facts about it, and what any thread may use."""

    engine: PoolingEngine
    tokenizer: Tokenizer
    info: EngineInfo
    grammar_compiler: GrammarCompiler


def load_pooler(recipe: Recipe, model_config: ModelConfig, config: EngineConfig) -> LoadedPooler:
    """Load everything, on the thread that will own it. Raises ModelLoadError."""
    device = pick_device(model_config.device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    module = load_module(recipe, model_config, device)
    if recipe.task == "embed":
        recipe = settled(recipe, module)
    tokenizer, runner, pooling = build_runner(recipe, module, model_config)
    try_text(runner, recipe, tokenizer)
    info = _info(recipe, module, tokenizer, config, pooling)
    engine = PoolingEngine.of(runner, config, device.type, num_token_ids=info.num_token_ids)
    compiler = GrammarCompiler(tokenizer.vocabulary, (), vocab_size=info.vocab_size)
    logger.info("%s on %s, %s, context %d", info.dtype, device, recipe.task, info.max_model_len)
    return LoadedPooler(engine, tokenizer, info, compiler)


def _info(
    recipe: Recipe, module: Any, tokenizer: Tokenizer, config: EngineConfig, pooling: PoolingInfo
) -> EngineInfo:
    text_config = module.config.get_text_config()
    known = [
        length
        for length in (
            recipe.max_length,
            tokenizer.model_max_length,
            config.max_model_len or DEFAULT_MAX_LENGTH,
            context_of(text_config),
        )
        if length
    ]
    return EngineInfo(
        max_model_len=min(known),
        max_num_seqs=config.max_num_seqs,
        vocab_size=text_config.vocab_size,
        num_token_ids=text_config.vocab_size,
        num_kv_tokens=0,
        dtype=str(module.dtype).removeprefix("torch."),
        device=str(module.device),
        computation="torch's own kernels",
        num_threads=torch.get_num_threads(),
        pooling=pooling,
    )
