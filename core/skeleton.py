"""Skeleton: a model without its weights, and how many bytes they would take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from core.contract.config import ModelConfig, Quantization
from core.gguf.file import GgufFile
from core.model.config_files import load_config
from core.model.devices import pick_dtype
from core.model.gguf import config_of, gguf_dtype, stays_in_blocks, weights_in
from core.model.load_errors import one_line_errors
from core.model.loaded_model import LoadedModel, context_length
from core.model.modelling_import import import_modelling
from core.model.source import find_gguf, source_of
from core.model.stand_ins import check_checkpoint

_BYTES_PER_VALUE = {"int8": 1.0, "int4": 0.61}
"""Of the matrices, by quantisation; int4 is 4 and 6 bits with their scales."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A model whose parameters are never written, and so have no memory.

    ``nbytes`` are those of the weights. ``in_blocks``: they stay in a GGUF file's, or become int4.
    """

    model: LoadedModel
    nbytes: int
    in_blocks: bool


def build_skeleton(
    config: ModelConfig, device: torch.device, *, needs_weights: bool = True
) -> Skeleton:
    """Build it. Raises ModelLoadError, without ``needs_weights`` only for what is built."""
    import_modelling()
    with one_line_errors(config):
        module, dtype, nbytes = _module(config, device)
        if needs_weights and find_gguf(config) is None:
            check_checkpoint(module, config)
    text_config = module.config.get_text_config()
    model = LoadedModel(
        module=module,
        config=text_config,
        device=device,
        dtype=dtype,
        vocab_size=text_config.vocab_size,
        max_model_len=context_length(text_config),
        eos_token_ids=frozenset(),
        default_sampling={},
    )
    in_blocks = nbytes is not None or config.quantization == "int4"
    if nbytes is None:
        nbytes = _nbytes(module, config.quantization)
    return Skeleton(model, nbytes, in_blocks)


def _module(config: ModelConfig, device: torch.device) -> tuple[Any, torch.dtype, int | None]:
    """The module, whose parameters are never written; its type; bytes of a file in blocks."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - slow to import
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    path, trust = find_gguf(config), config.trust_remote_code
    if path is None:
        hf_config = load_config(config, source_of(config))
        dtype, nbytes = pick_dtype(config.dtype, getattr(hf_config, "dtype", None), device), None
    else:
        file = GgufFile.open(path)
        family, hf_config = config_of(file)
        dtype, nbytes = gguf_dtype(config, file, device), None
        if stays_in_blocks(config, file, device):
            nbytes = sum(tensor.info.nbytes for tensor in file.tensors.values())
    with no_init_weights():  # parameters get no memory until they are written
        module = AutoModelForCausalLM.from_config(
            hf_config, dtype=dtype, trust_remote_code=trust
        ).eval()
    module.tie_weights()
    if path is not None:
        weights_in(file, family, module)  # refuses what is missing
    return module, dtype, nbytes


def _nbytes(module: nn.Module, quantization: Quantization) -> int:
    """Bytes of the weights, shared ones once."""
    narrow = _BYTES_PER_VALUE.get(quantization)
    quantised = {id(child.weight) for child in module.modules() if isinstance(child, nn.Linear)}
    total = 0.0
    for parameter in module.parameters():
        own = parameter.dtype.itemsize
        each = own if narrow is None or id(parameter) not in quantised else narrow
        total += parameter.numel() * each
    return int(total)
