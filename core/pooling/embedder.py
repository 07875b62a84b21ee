"""build_embedder: the runner of an embedding model, and the facts about its vectors."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from torch import nn

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.contract.info import PoolingInfo
from core.pooling.causality import is_causal
from core.pooling.heads import load_dense
from core.pooling.matryoshka import sizes_of
from core.pooling.recipe import Recipe
from core.pooling.runner import EmbeddingRunner, PoolingRunner
from core.pooling.template import template_of
from core.text.tokenizer import Tokenizer

logger = logging.getLogger("roseinfer.core")


def build_embedder(
    recipe: Recipe, module: Any, tokenizer: Tokenizer, pad_id: int, model_config: ModelConfig
) -> tuple[PoolingRunner, PoolingInfo]:
    """Return both, of a recipe that says its pooling. Raises ModelLoadError."""
    poolings, normalizes = recipe.poolings or (), bool(recipe.normalizes)
    config = module.config.get_text_config()
    size = int(config.hidden_size) * len(poolings)
    dense: list[nn.Module] = []
    for folder in recipe.dense:
        layer, function = load_dense(recipe.source, folder)
        if layer.in_features != size:
            raise ModelLoadError(
                f"the dense layer {folder} of {recipe.source} takes vectors of "
                f"{layer.in_features} dimensions, and is given {size}"
            )
        dense += [layer.to(module.device), function]
        size = int(layer.out_features)
    runner = EmbeddingRunner(
        module, pad_id=pad_id, poolings=poolings, dense=dense, normalizes=normalizes
    )
    chosen = model_config.matryoshka_dimensions
    info = PoolingInfo(
        task="embed",
        size=size,
        sizes=sizes_of(config, size, source=recipe.source, chosen=chosen),
        poolings=poolings,
        is_normalized=normalizes,
        lowercases=recipe.lowercases,
        prompts=recipe.prompts,
        default_prompt=recipe.default_prompt,
        template=template_of(recipe, tokenizer, model_config),
    )
    return runner, info


def settled(recipe: Recipe, module: Any) -> Recipe:
    """Guess what the checkpoint does not say, and log it. Raises ModelLoadError.

    A causal model's last token has seen the whole text: such models are trained with it, and
    normalise. Of others it is the mean, as in sentence-transformers.
    """
    if recipe.poolings is not None and recipe.normalizes is not None:
        return recipe
    causal = is_causal(module)
    normalizes = causal if recipe.normalizes is None else recipe.normalizes
    if recipe.poolings is not None:
        return replace(recipe, normalizes=normalizes)
    poolings = ("lasttoken",) if causal else ("mean",)
    logger.warning(
        "%s does not say how it makes a vector of a text; a guess: pooling %s, %s, because its "
        "attention is %s. --pooling names another.",
        recipe.source,
        poolings[0],
        "normalised" if normalizes else "not normalised",
        "causal" if causal else "not causal",
    )
    return replace(recipe, poolings=poolings, normalizes=normalizes)
