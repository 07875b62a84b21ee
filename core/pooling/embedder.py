"""build_embedder: the runner of an embedding model, and the facts about its vectors."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError, first_line
from core.contract.info import PoolingInfo
from core.pooling.heads import load_dense
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


_NUM_SHARED = 4
"""Tokens with which both texts begin. The last of them is looked at: the first one's states may be
dominated by a few channels."""

_TOLERANCE = 2e-4
"""Of the mean magnitude. The states of a causal model differ by some roundings, if at all; those of
a small encoder with random weights by thousandths (tests/core/pooling/test_causality.py)."""


@torch.inference_mode()
def is_causal(module: Any) -> bool:
    """Whether the states of a token are the same whatever follows it. Raises ModelLoadError."""
    size = int(module.config.get_text_config().vocab_size)
    ids = torch.randint(size, (2, 2 * _NUM_SHARED), generator=torch.Generator().manual_seed(0))
    ids[1, :_NUM_SHARED] = ids[0, :_NUM_SHARED]
    ids[1, _NUM_SHARED:] = (ids[0, _NUM_SHARED:] + 1) % size
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    try:
        output = module(**{name: value.to(module.device) for name, value in inputs.items()})
        one, other = output.last_hidden_state[:, _NUM_SHARED - 1].float()
    except Exception as error:  # any error that a module may raise for plain text
        raise ModelLoadError(f"the model does not embed a text: {first_line(error)}") from error
    return bool((one - other).abs().mean() <= _TOLERANCE * one.abs().mean())


_TRAINED: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("qwen3-embedding", "qwen3", ()),
    ("embeddinggemma", "gemma3_text", (512, 256, 128)),
    ("nomic-embed-text-v1.5", "nomic_bert", (512, 256, 128, 64)),
)
"""How the name of a model begins, its ``model_type``, and the sizes that its authors name. Their
configurations do not say that the vectors may be cut."""


def sizes_of(
    config: Any, size: int, *, source: str, chosen: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Sizes to which a vector may be cut; empty: any below its own. None: it may not be cut.

    The operator's choice comes first, then the configuration, then the model's name. Raises
    ModelLoadError for a choice above ``size``, and for a configuration that names no numbers.
    """
    if chosen is not None:
        if max(chosen, default=0) > size:
            raise ModelLoadError(
                f"--matryoshka-dimensions has {max(chosen)}, and the vectors of {source} have "
                f"{size} dimensions"
            )
        return chosen
    named = getattr(config, "matryoshka_dimensions", None)
    if named:
        if not isinstance(named, list | tuple) or not all(
            type(one) is int and one > 0 for one in named
        ):
            raise ModelLoadError(
                f"matryoshka_dimensions in the configuration of {source} are no list of whole "
                "numbers above 0"
            )
        return tuple(one for one in named if one <= size) or None
    if getattr(config, "is_matryoshka", False):
        return ()
    name = _name_of(source)
    for beginning, model_type, sizes in _TRAINED:
        if name.startswith(beginning) and config.model_type == model_type:
            return sizes
    return None


def _name_of(source: str) -> str:
    """The model's own name, of a hub id, a directory, or a directory in the hub's cache."""
    path = Path(source)
    if path.is_dir():
        path = path.resolve()
    if path.parent.name == "snapshots":
        return path.parent.parent.name.rpartition("--")[2].lower()
    return path.name.lower()
