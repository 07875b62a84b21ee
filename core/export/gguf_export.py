"""Write a model of transformers as a quantised GGUF file: ``roseinfer quantize``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from core.assembly.tokenizer import tokenizer_of
from core.contract.config import GgufMix, ModelConfig
from core.contract.errors import ModelLoadError
from core.export.export_check import check_config
from core.export.keys import DescribedConfig, describe_config
from core.export.tensors import log_size, new_tensors
from core.export.vocabulary import describe_tokenizer
from core.export.writer import Writable, write_gguf
from core.gguf.names import SUFFIX
from core.gguf.quantise import MIXES, Mix
from core.load.loaded_model import LoadedModel
from core.load.source import find_gguf, holds_gguf
from core.module.loader import load_model
from core.module.prequantised import is_quantised

_QUANTIZATION_VERSION = 2
"""ggml's version of the layouts of blocks."""


@torch.inference_mode()
def export_gguf(config: ModelConfig, path: Path, mix_name: GgufMix) -> None:
    """Write the model of ``config`` to ``path``, its matrices in the mix of that name.

    ``path`` appears when it is complete. Raises ModelLoadError.
    """
    check_request(config, path)
    mix = MIXES[mix_name]
    loaded = load_model(config)
    model: Any = loaded.module
    if is_quantised(model):
        raise ModelLoadError(f"{config.model} is quantised already")
    described = describe_config(model.config)
    tensors = new_tensors(model, described, mix)
    metadata = _metadata(config, loaded, described, mix)
    check_config(loaded, metadata, tensors)
    try:
        write_gguf(path, metadata, tensors)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be written: {error}") from error
    log_size(path, tensors)


def _metadata(
    config: ModelConfig, loaded: LoadedModel, described: DescribedConfig, mix: Mix
) -> dict[str, Writable]:
    tokenizer = tokenizer_of(config)
    model: Any = loaded.module
    num_rows = len(model.get_input_embeddings().weight)
    return {
        "general.architecture": described.architecture,
        "general.type": "model",
        "general.name": Path(config.model or "roseinfer").name,
        "general.file_type": mix.code,
        "general.quantization_version": _QUANTIZATION_VERSION,
        **described.metadata,
        **describe_tokenizer(tokenizer, described.architecture, num_rows, loaded.eos_token_ids),
    }


def check_request(config: ModelConfig, path: Path) -> None:
    """Raise ModelLoadError for what would fail after the model has been loaded."""
    if config.model is None:
        raise ModelLoadError("the built-in model cannot be written as a GGUF file: name a model")
    if path.suffix != SUFFIX:
        raise ModelLoadError(f"{path} does not end in {SUFFIX}")
    if not path.parent.is_dir():
        raise ModelLoadError(f"there is no directory {path.parent}")
    if config.gguf_file is not None or holds_gguf(config.model):
        raise ModelLoadError("a GGUF file cannot be quantised; name the model that it was made of")
    find_gguf(config)  # refuses what is no model
