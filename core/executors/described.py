"""described: what a model's files say, for models whose family has a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from core.checkpoint_files import folder_of
from core.contract.config import AttentionBackendName, ModelConfig
from core.contract.errors import ModelLoadError
from core.executors.supported import check_supported
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.library import kernels_or_reason
from core.kernels.cpu.linear import Format
from core.model.config_files import check_generation_config, raw_config
from core.model.devices import pick_device, pick_dtype
from core.model.loaded_model import context_length
from core.model.source import find_gguf, is_state_dict, source_of
from core.model.weight_files import weight_files
from core.models.families import describe
from core.models.names import Names
from core.models.spec import DecoderSpec, Undescribed

_FORMATS = {torch.float32: Format.FLOAT32, torch.bfloat16: Format.BFLOAT16}


@dataclass(frozen=True, slots=True)
class Described:
    """A model that the compiled kernels compute from its spec.

    ``values`` are those of its ``config.json``, ``context`` its length in tokens, 0 if no key says
    so. ``spec`` is that for the whole context. Matrices are stored as ``format``; ``dtype`` is the
    type of its activations.
    """

    kernels: Kernels
    folder: Path
    values: Mapping[str, Any]
    context: int
    spec: DecoderSpec
    names: Names
    dtype: torch.dtype
    format: Format

    def spec_for(self, max_model_len: int) -> DecoderSpec:
        """The spec for another served length: RoPE may have other frequencies."""
        return describe(self.values, max_model_len)[0]


def described(config: ModelConfig, attention: AttentionBackendName) -> Described:
    """Describe a model that is to be served on a CPU. Raises Undescribed if transformers has to.

    Raises ModelLoadError for files that nothing can load.
    """
    if attention not in {"auto", "cpu"}:
        raise Undescribed(f"attention {attention!r} is not part of the compiled kernels")
    device = pick_device(config.device)
    if device.type != "cpu":
        raise Undescribed("rows are computed on CPUs")
    folder = _folder(config)
    values = raw_config(config, str(folder))
    context = context_length(SimpleNamespace(**values)) or 0
    spec, names = describe(values, context)
    if spec.num_positions is not None:  # another key may say more
        context = min(context or spec.num_positions, spec.num_positions)
    check_supported(spec)
    compiled = kernels_or_reason()
    if isinstance(compiled, str):
        raise Undescribed(f"no compiled kernels: {compiled}")
    name = values.get("dtype") or values.get("torch_dtype")
    dtype = pick_dtype(config.dtype, getattr(torch, str(name), None), device)
    if dtype not in _FORMATS:
        raise Undescribed(f"the compiled kernels do not compute in {config.dtype}")
    check_generation_config(str(folder))
    fmt = Format.INT8 if config.quantization == "int8" else _FORMATS[dtype]
    return Described(compiled, folder, values, context, spec, names, dtype, fmt)


def _folder(config: ModelConfig) -> Path:
    """The folder of the model's files. Raises Undescribed if the weights have another form."""
    if find_gguf(config) is not None or is_state_dict(config):
        raise Undescribed("the weights are not in safetensors files")
    if config.quantization not in {"none", "int8"}:
        raise Undescribed(f"the rows do not know --quantization {config.quantization}")
    folder = folder_of(source_of(config))
    if folder is None:
        raise Undescribed("the hub's cache does not have the model yet")
    try:
        files = weight_files(folder)
    except ModelLoadError as error:
        raise Undescribed(str(error)) from error
    if any(file.suffix != ".safetensors" for file in files):
        raise Undescribed("the weights are not in safetensors files")
    return folder
