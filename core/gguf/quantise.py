"""Matrices of numbers as blocks of a type."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import torch

from core.contract.config import GgufMix
from core.contract.errors import ModelLoadError
from core.gguf.blocks import (
    BF16,
    F16,
    F32,
    Q4_K,
    Q5_0,
    Q5_K,
    Q6_K,
    Q8_0,
    BlockMatrix,
    BlockType,
    Bytes,
)
from core.gguf.values import PLAIN_TYPES
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.blocks import BlockFormat, quantise

_NARROW = {Q4_K: Q5_0, Q5_K: Q5_0, Q6_K: Q8_0}
"""Types of matrices whose columns do not divide into blocks of 256, by the type of others."""

_JOINT = ("c_attn", "qkv_proj", "query_key_value")
_SENSITIVE = ("v_proj", "down_proj", "mlp.c_proj", "fc2")


@dataclass(frozen=True, slots=True)
class Mix:
    """The types of a model's matrices. ``code`` is llama.cpp's number of the mix."""

    code: int
    most: BlockType
    joint: BlockType
    sensitive: BlockType
    output: BlockType

    @classmethod
    def of(cls, code: int, kind: BlockType) -> Mix:
        """One type for all matrices."""
        return cls(code, kind, kind, kind, kind)

    def type_of(self, name: str, num_layers: int) -> BlockType:
        """The type of a linear layer by its name in the model, but for the output layer."""
        if name.endswith(_JOINT):
            return self.joint
        layer = _layer_of(name)
        if layer is None or not name.endswith(_SENSITIVE):
            return self.most
        return self.sensitive_of(layer, num_layers)

    def sensitive_of(self, layer: int, num_layers: int) -> BlockType:
        """The type of a layer's sensitive matrices.

        They differ from most in the first and last eighth of the layers, and in every third
        between.
        """
        eighth = num_layers // 8
        is_outer = layer < eighth or layer >= 7 * num_layers // 8
        return self.sensitive if is_outer or (layer - eighth) % 3 == 2 else self.most


Q4_K_M = Mix(15, Q4_K, Q5_K, Q6_K, Q6_K)

MIXES: dict[GgufMix, Mix] = {
    "q4_k_m": Q4_K_M,
    "q5_k_m": Mix(17, Q5_K, Q6_K, Q6_K, Q6_K),
    "q6_k": Mix.of(18, Q6_K),
    "q8_0": Mix.of(7, Q8_0),
    "bf16": Mix.of(32, BF16),
    "f16": Mix.of(1, F16),
    "f32": Mix.of(0, F32),
}
"""The mixes by the name that an operator gives."""


def fitting(kind: BlockType, num_columns: int) -> BlockType | None:
    """Return the type for rows of ``num_columns``: another if they do not divide into its blocks.

    None if they divide into no blocks.
    """
    if num_columns % kind.size:
        kind = _NARROW.get(kind, kind)
    return None if num_columns % kind.size else kind


def _layer_of(name: str) -> int | None:
    """Return the index of the layer that a module belongs to, by its name."""
    found = re.search(r"\.(\d+)\.", name)
    return None if found is None else int(found[1])


_PIECE = 1 << 22
"""Values that exist in float32 at a time."""


def quantised(kernels: Kernels, kind: BlockType, weight: torch.Tensor, name: str) -> BlockMatrix:
    """Quantise a matrix ``[rows, columns]`` of any float type, whose columns divide into blocks.

    ``kind`` is Q4_K, Q5_K, Q6_K, Q5_0 or Q8_0. Raises ModelLoadError that names the matrix if a
    value is not finite.
    """
    num_rows, num_columns = weight.shape
    fmt = BlockFormat.of(kind.code)
    assert fmt is not None
    data = np.empty((num_rows, kind.row_nbytes(num_columns)), np.uint8)
    step = max(1, _PIECE // num_columns)
    for start in range(0, num_rows, step):
        piece = weight[start : start + step].float()
        if not bool(piece.isfinite().all()):
            raise ModelLoadError(f"{name} has weights that are not finite")
        data[start : start + step] = quantise(kernels, fmt, piece)
    return BlockMatrix(kind, num_rows, num_columns, data)


def plain(kind: BlockType, weight: torch.Tensor, name: str) -> BlockMatrix:
    """Round a matrix to F32, F16 or BF16.

    Raises ModelLoadError that names the matrix if a finite value becomes infinite.
    """
    values = weight.to(PLAIN_TYPES[kind]).contiguous()
    if not torch.equal(values.isinf(), weight.isinf()):
        raise ModelLoadError(f"{name} has weights that are too large for {kind.name}")
    num_rows, num_columns = weight.shape
    data: Bytes = values.view(torch.uint8).numpy()
    return BlockMatrix(kind, num_rows, num_columns, data)
