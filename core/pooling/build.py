"""load_pooler: from a recipe to an engine that is ready to step."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch

from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.contract.info import EngineInfo, PoolingInfo
from core.grammar.compiler import GrammarCompiler
from core.model.devices import pick_device
from core.pooling.checkpoint import context_of, load_module, pad_id_of, sizes_of
from core.pooling.engine import PoolingEngine
from core.pooling.heads import activation, load_dense
from core.pooling.recipe import Recipe
from core.pooling.runner import EmbeddingRunner, PoolingRunner, ScoreRunner
from core.text.tokenizer import Tokenizer

logger = logging.getLogger("roseinfer.core")

DEFAULT_MAX_LENGTH = 8192
"""Tokens of a text unless the operator says more: a mask of attention has their square."""


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
    tokenizer = Tokenizer.load(
        model_config.tokenizer or recipe.source,
        trust_remote_code=model_config.trust_remote_code,
        vocab_size=module.config.get_text_config().vocab_size,
    )
    pad_id = pad_id_of(module, tokenizer)
    runner, size = _runner(recipe, module, pad_id)
    info = _info(recipe, module, tokenizer, config, size)
    engine = PoolingEngine.of(runner, config, device.type, num_token_ids=info.num_token_ids)
    compiler = GrammarCompiler(tokenizer.vocabulary, (), vocab_size=info.vocab_size)
    logger.info("%s on %s, %s, context %d", info.dtype, device, recipe.task, info.max_model_len)
    return LoadedPooler(engine, tokenizer, info, compiler)


def _runner(recipe: Recipe, module: Any, pad_id: int) -> tuple[PoolingRunner, int]:
    """The runner, and the size of its vectors."""
    if recipe.task == "score":
        size = int(module.config.num_labels)
        if size != 1:
            raise ModelLoadError(f"{recipe.source} has {size} labels; a cross-encoder has one")
        function = activation(recipe.activation or "Sigmoid")
        return ScoreRunner(module, pad_id=pad_id, activation=function), size
    dense = [load_dense(recipe.source, folder).to(module.device) for folder in recipe.dense]
    width = int(module.config.get_text_config().hidden_size) * len(recipe.poolings)
    runner = EmbeddingRunner(
        module,
        pad_id=pad_id,
        poolings=recipe.poolings,
        dense=dense,
        normalizes=recipe.normalizes,
    )
    return runner, int(dense[-1][0].out_features) if dense else width  # type: ignore[index]


def _info(
    recipe: Recipe, module: Any, tokenizer: Tokenizer, config: EngineConfig, size: int
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
        pooling=PoolingInfo(
            task=recipe.task,
            size=size,
            sizes=sizes_of(text_config, size),
            is_normalized=recipe.normalizes,
            lowercases=recipe.lowercases,
            prompts=recipe.prompts,
            default_prompt=recipe.default_prompt,
        ),
    )
