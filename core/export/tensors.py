"""The tensors of a file, with the types of a mix."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.contract.errors import ModelLoadError
from core.export.keys import Described
from core.export.names import NamedTensor, tensors_of
from core.export.writer import NewTensor
from core.gguf.blocks import BF16, F32, BlockType, Bytes
from core.gguf.mixes import Mix, fitting
from core.gguf.quantise import plain, quantised
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.library import kernels

logger = logging.getLogger("roseinfer.core")


def new_tensors(model: Any, described: Described, mix: Mix) -> list[NewTensor]:
    """Arrange a model's parameters, and give each matrix the type that a mix has for it.

    Raises ModelLoadError.
    """
    tensors = [
        NewTensor(name, factors.shape, F32, partial(_bytes, factors))
        for name, factors in described.factors.items()
    ]
    named = list(tensors_of(model, described.family))
    leaves = {tensor.leaf for tensor in named}
    num_layers = len({t.name.split(".")[1] for t in named if t.name.startswith("blk.")})
    compiled = kernels()
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


def _bytes(values: np.ndarray) -> Bytes:
    return values.view(np.uint8)


def log_size(path: Path, tensors: list[NewTensor]) -> None:
    """Log the size of a file that was written, by type."""
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
