"""Write a model of transformers as a quantised GGUF file: ``roseinfer quantize``."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.contract.config import GgufMix, ModelConfig
from core.contract.errors import ModelLoadError
from core.gguf.blocks import BF16, F32, BlockType, Bytes
from core.gguf.export.keys import Described, describe_config
from core.gguf.export.names import NamedTensor, tensors_of
from core.gguf.export.vocabulary import describe_tokenizer
from core.gguf.export.writer import NewTensor, Writable, write_gguf
from core.gguf.file import SUFFIX
from core.gguf.mixes import MIXES, Mix, fitting
from core.gguf.quantise import plain, quantised
from core.kernels.cpu.library import Kernels, kernels
from core.model.export_check import check_config
from core.model.loader import load_model, source_of
from core.model.prequantised import is_quantised
from core.text.tokenizer import transformers_tokenizer

logger = logging.getLogger("roseinfer.core")

_QUANTIZATION_VERSION = 2
"""ggml's version of the layouts of blocks."""


@torch.inference_mode()
def export_gguf(config: ModelConfig, path: Path, mix_name: GgufMix) -> None:
    """Write the model of ``config`` to ``path``, its matrices in the mix of that name.

    ``path`` appears when it is complete. Raises ModelLoadError.
    """
    _check(config, path)
    mix = MIXES[mix_name]
    model: Any = load_model(config).module
    if is_quantised(model):
        raise ModelLoadError(f"{config.model} is quantised already")
    described = describe_config(model.config)
    named = list(tensors_of(model, described.family))
    tensors = [*_factors(described), *_tensors(named, mix)]
    metadata = _metadata(config, model, described, mix)
    check_config(model, metadata, tensors)
    try:
        write_gguf(path, metadata, tensors)
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be written: {error}") from error
    _log(path, tensors)


def _check(config: ModelConfig, path: Path) -> None:
    """Refuse what would fail after the model has been loaded."""
    if config.model is None:
        raise ModelLoadError("name the model and the file to write: roseinfer quantize MODEL OUT")
    if path.suffix != SUFFIX:
        raise ModelLoadError(f"{path} does not end in {SUFFIX}")
    if not path.parent.is_dir():
        raise ModelLoadError(f"there is no directory {path.parent}")
    if config.model.endswith(SUFFIX) or config.gguf_file is not None:
        raise ModelLoadError("a GGUF file cannot be quantised; name the model that it was made of")


def _metadata(
    config: ModelConfig, model: Any, described: Described, mix: Mix
) -> dict[str, Writable]:
    tokenizer = transformers_tokenizer(
        config.tokenizer or source_of(config),
        trust_remote_code=config.trust_remote_code,
        chat_template=config.chat_template,
    )
    num_rows = len(model.get_input_embeddings().weight)
    ends = model.generation_config.eos_token_id
    end_ids = [ends] if isinstance(ends, int) else ends or []
    return {
        "general.architecture": described.architecture,
        "general.type": "model",
        "general.name": Path(config.model or "roseinfer").name,
        "general.file_type": mix.code,
        "general.quantization_version": _QUANTIZATION_VERSION,
        **described.metadata,
        **describe_tokenizer(tokenizer, described.architecture, num_rows, end_ids),
    }


def _factors(described: Described) -> list[NewTensor]:
    return [
        NewTensor(name, factors.shape, F32, partial(_bytes, factors))
        for name, factors in described.factors.items()
    ]


def _bytes(values: np.ndarray) -> Bytes:
    return values.view(np.uint8)


def _tensors(named: list[NamedTensor], mix: Mix) -> list[NewTensor]:
    leaves = {tensor.leaf for tensor in named}
    num_layers = len({t.name.split(".")[1] for t in named if t.name.startswith("blk.")})
    compiled = kernels()
    tensors = []
    for tensor in named:
        kind = _type(tensor, mix, num_layers, is_tied="output" not in leaves)
        if compiled is None and not kind.is_plain:
            raise ModelLoadError(f"{kind.name} needs the compiled kernels: a C++ compiler")
        make = partial(_blocks, compiled, tensor, kind)
        tensors.append(NewTensor(tensor.name, tensor.shape, kind, make))
    return tensors


def _type(tensor: NamedTensor, mix: Mix, num_layers: int, *, is_tied: bool) -> BlockType:
    """The type that a mix has for a tensor. What fits in no blocks keeps its values."""
    if not tensor.is_quantised:
        return F32
    if tensor.leaf == "output" or (tensor.leaf == "token_embd" and is_tied):
        wanted = mix.output
    elif tensor.leaf == "token_embd":
        wanted = mix.most
    else:
        wanted = mix.type_of(tensor.module, num_layers)
    exact = BF16 if tensor.stored.dtype is torch.bfloat16 else F32
    return fitting(wanted, tensor.shape[-1]) or exact


def _blocks(compiled: Kernels | None, tensor: NamedTensor, kind: BlockType) -> Bytes:
    rows = tensor.value().reshape(-1, tensor.shape[-1])
    if kind.is_plain:
        return plain(kind, rows, tensor.name).data
    assert compiled is not None
    return quantised(compiled, kind, rows, tensor.name).data


def _log(path: Path, tensors: list[NewTensor]) -> None:
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.type.name] += tensor.nbytes
    num_values = sum(int(np.prod(tensor.shape)) for tensor in tensors)
    logger.info(
        "wrote %s: %.1f MB, %.2f bits per weight (%s)",
        path,
        path.stat().st_size / 1e6,
        8 * sum(sizes.values()) / num_values,
        ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.most_common()),
    )
