"""The transformer of a checkpoint that embeds or scores, and what its configuration says."""

from __future__ import annotations

import functools
from typing import Any

import torch

from core.contract.config import ModelConfig
from core.load.config_files import load_config
from core.load.devices import pick_dtype
from core.load.errors import one_line_errors
from core.load.loaded_model import context_length
from core.module.complete import load_complete
from core.module.modelling_import import import_modelling
from core.pooling.recipe import Recipe
from core.system import torch_import
from core.text.tokenizer import Tokenizer

UNUSED = {"embed": ("pooler",), "score": ()}
"""Parts of a transformer that change no hidden state, by task."""


def load_module(recipe: Recipe, model_config: ModelConfig, device: torch.device) -> Any:
    """Load the transformer to the device, in float32 on a CPU. Raises ModelLoadError."""
    import_modelling()
    torch_import.restore()
    with one_line_errors(model_config):
        hf_config = load_config(model_config, recipe.source)
        dtype = torch.float32
        if device.type != "cpu" or model_config.dtype != "auto":
            dtype = pick_dtype(model_config.dtype, getattr(hf_config, "dtype", None), device)
        load = functools.partial(
            kind_of(recipe).from_pretrained,
            recipe.source,
            config=hf_config,
            dtype=dtype,
            trust_remote_code=model_config.trust_remote_code,
        )
        module = load_complete(load, recipe.source, unused=UNUSED[recipe.task])
    return module.to(device).eval().requires_grad_(requires_grad=False)


def kind_of(recipe: Recipe) -> Any:
    """The class of transformers that loads the model."""
    from transformers import (  # noqa: PLC0415 - slow to import
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
    )

    if recipe.scores_by_logits:
        return AutoModelForCausalLM
    return AutoModel if recipe.task == "embed" else AutoModelForSequenceClassification


def context_of(config: Any) -> int | None:
    """Positions that a text may have: RoBERTa's begin behind the one of its padding."""
    length = context_length(config)
    is_offset = any(name in str(config.model_type) for name in ("roberta", "camembert", "mpnet"))
    return length - (config.pad_token_id or 0) - 1 if length and is_offset else length


def pad_id_of(module: Any, tokenizer: Tokenizer) -> int:
    """The token that fills the shorter texts of a batch. It is masked."""
    config = module.config.get_text_config()
    for token_id in (config.pad_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token_id is not None and 0 <= token_id < config.vocab_size:
            return int(token_id)
    return 0
