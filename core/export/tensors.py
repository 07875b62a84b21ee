"""The tensors of a file: from which parameter of a model each is made, with the types of a mix."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.contract.errors import ModelLoadError
from core.export.keys import DescribedConfig
from core.export.writer import NewTensor
from core.gguf.blocks import BF16, F32, BlockType, Bytes
from core.gguf.module_names import ModuleNames
from core.gguf.quantise import Mix, fitting, plain, quantised
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.library import kernels

logger = logging.getLogger("roseinfer.core")

_PERMUTED = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
"""Tensors whose rows alternate between the halves of a head, and what counts their heads."""

_EXACT = frozenset({"ffn_gate_inp", "ffn_gate_inp_shexp", "position_embd"})
"""Matrices that stay as they are: routers, gates of experts, and embeddings of positions."""


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A tensor of a file, and the module that it is a parameter of."""

    name: str
    module: str
    stored: torch.Tensor
    num_heads: int | None = None
    """Heads whose halves' rows alternate in the file; None if the rows keep their order."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions, the contiguous one last."""
        return tuple(self.stored.shape)

    def value(self) -> torch.Tensor:
        """Return the values in the order of the file."""
        if self.num_heads is None:
            return self.stored
        halves = self.stored.view(self.num_heads, 2, -1, *self.shape[1:])
        return halves.swapaxes(1, 2).reshape(self.shape)

    @property
    def leaf(self) -> str:
        """The name without layer and suffix."""
        return self.name.rsplit(".", 2)[-2]

    @property
    def is_quantised(self) -> bool:
        """Return true for a matrix that a mix has a type for."""
        return self.stored.dim() > 1 and self.leaf not in _EXACT


def tensors_of(model: Any, names: ModuleNames) -> Iterator[NamedTensor]:
    """Arrange the parameters of a model as llama.cpp's converter does; a shared one once.

    Raises ModelLoadError for a parameter that a file of this family has no place for.
    """
    for name, parameter in model.named_parameters():
        yield from _tensors(name, parameter.detach(), names, model.config)


def _tensors(
    name: str, value: torch.Tensor, names: ModuleNames, config: Any
) -> Iterator[NamedTensor]:
    module, _, suffix = name.rpartition(".")
    if suffix not in ("weight", "bias"):  # all experts of a layer are one parameter
        module, suffix = name, "weight"
    prefix, leaves = _leaves(module, names)
    if not leaves:
        raise ModelLoadError(f"its parameter {name} has no place in a GGUF file of this family")
    if names.norm_offset and module.endswith("norm"):
        value = value.float() + names.norm_offset
    is_permuted = names.architecture.permutes_heads and leaves[0] in _PERMUTED
    num_heads = getattr(config, _PERMUTED[leaves[0]]) if is_permuted else None
    if names.is_transposed and value.dim() == 2 and prefix:
        value = value.t()
    parts = value.chunk(len(leaves), dim=1) if len(leaves) > 1 else (value,)
    for leaf, part in zip(leaves, parts, strict=True):
        yield NamedTensor(f"{prefix}{leaf}.{suffix}", module, part, num_heads)


def _leaves(module: str, names: ModuleNames) -> tuple[str, list[str]]:
    """The prefix of the layer, and the names without it of the tensors of a module."""
    inside = module.removeprefix(f"{names.layers}.")
    if inside == module:
        return "", [leaf for leaf, found in names.top.items() if found == module]
    number, _, inner = inside.partition(".")
    return f"blk.{number}.", [leaf for leaf, found in names.layer.items() if found == inner]


def new_tensors(model: Any, described: DescribedConfig, mix: Mix) -> list[NewTensor]:
    """Arrange a model's parameters, and give each matrix the type that a mix has for it.

    Raises ModelLoadError.
    """
    tensors = [
        NewTensor(name, factors.shape, F32, partial(_bytes, factors))
        for name, factors in described.factors.items()
    ]
    named = list(tensors_of(model, described.names))
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
