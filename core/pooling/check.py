"""check_pooler: whether a model that embeds or scores would load, without reading its weights."""

from __future__ import annotations

from dataclasses import replace

import torch

from core.contract.config import ModelConfig
from core.load.config_files import load_config
from core.load.errors import one_line_errors
from core.module.modelling_import import import_modelling
from core.module.stand_ins import check_checkpoint
from core.pooling.assembly import build_runner
from core.pooling.checkpoint import UNUSED, kind_of
from core.pooling.recipe import Recipe


def check_pooler(recipe: Recipe, model_config: ModelConfig) -> None:
    """Raise ModelLoadError if ``load_pooler`` would, but for what shows only in use."""
    import_modelling()
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    trust = model_config.trust_remote_code
    with one_line_errors(model_config):
        hf_config = load_config(model_config, recipe.source)
        with no_init_weights():
            module = kind_of(recipe).from_config(
                hf_config, dtype=torch.float32, trust_remote_code=trust
            )
        check_checkpoint(module, model_config, unused=UNUSED[recipe.task])
    any_pooling = recipe.poolings or ("mean",)  # all have the same width
    build_runner(replace(recipe, poolings=any_pooling), module, model_config)
