"""build_skeleton: transformers' module of a model, without its weights."""

from __future__ import annotations

from typing import Any

import torch

from core.contract.config import ModelConfig
from core.gguf.file import GgufFile
from core.load.config_files import load_config
from core.load.devices import pick_dtype
from core.load.errors import one_line_errors
from core.load.loaded_model import LoadedModel, context_length
from core.load.source import find_gguf, source_of
from core.module.gguf import config_of, gguf_dtype, weights_in
from core.module.modelling_import import import_modelling
from core.module.stand_ins import check_checkpoint


def build_skeleton(config: ModelConfig, device: torch.device) -> LoadedModel:
    """Build a model whose parameters are never written, and so have no memory.

    Raises ModelLoadError, also for a checkpoint that lacks what the model needs.
    """
    import_modelling()
    with one_line_errors(config):
        module, dtype = _module(config, device)
        if find_gguf(config) is None:
            check_checkpoint(module, config)
    text_config = module.config.get_text_config()
    return LoadedModel(
        module=module,
        config=text_config,
        device=device,
        dtype=dtype,
        vocab_size=text_config.vocab_size,
        max_model_len=context_length(text_config),
        eos_token_ids=frozenset(),
        default_sampling={},
    )


def _module(config: ModelConfig, device: torch.device) -> tuple[Any, torch.dtype]:
    """The module, whose parameters are never written, and its type."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - slow to import
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    path, trust = find_gguf(config), config.trust_remote_code
    if path is None:
        hf_config = load_config(config, source_of(config))
        dtype = pick_dtype(config.dtype, getattr(hf_config, "dtype", None), device)
    else:
        file = GgufFile.open(path)
        names, hf_config = config_of(file)
        dtype = gguf_dtype(config, file, device)
    with no_init_weights():  # parameters get no memory until they are written
        module = AutoModelForCausalLM.from_config(
            hf_config, dtype=dtype, trust_remote_code=trust
        ).eval()
    module.tie_weights()
    if path is not None:
        weights_in(file, names, module)  # refuses a file that lacks tensors
    return module, dtype
