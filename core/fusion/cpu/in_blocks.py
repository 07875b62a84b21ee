"""``--quantization int4``: the matrices of a model become blocks, in the mix of Q4_K_M.

Blocks of 4.5 bits (Q4_K), and of 6.6 bits (Q6_K) where an error costs most: the output layer, and
in half of the layers the value projection and the last matrix of the feed-forward block. A joint
projection to queries, keys and values gets 5.5 bits (Q5_K). The mix is llama.cpp's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from core.contract.errors import ModelLoadError
from core.fusion.patterns import matrix_of, reads_weights
from core.fusion.visitor import Place
from core.gguf.blocks import F32, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, BlockMatrix, BlockType
from core.gguf.modules import BlockEmbedding, BlockLinear, weights_in_blocks
from core.kernels.cpu.blocks import BlockFormat, quantise
from core.kernels.cpu.library import Kernels
from core.model.plain import is_plain

_NARROW = {Q4_K: Q5_0, Q5_K: Q5_0, Q6_K: Q8_0}
"""What matrices get whose columns do not divide into blocks of 256."""

_JOINT = ("c_attn", "qkv_proj", "query_key_value")
_SENSITIVE = ("v_proj", "down_proj", "mlp.c_proj", "fc2")

_FEW_ROWS = 16
"""Matrices with fewer rows may be routers or gates, and stay exact; they take little memory."""

_NUMBERS_OF_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")

_PIECE = 1 << 22
"""Values that exist in float32 at a time."""


@torch.inference_mode()
def quantise_to_blocks(kernels: Kernels | None, model: Any) -> None:
    """Replace linear layers by ones in blocks, and an embedding that shares the output's weight.

    Frees each original. Routers of mixtures become float32; matrices whose columns do not divide
    into blocks of 32 stay. Raises ModelLoadError without compiled kernels, and for weights that are
    not finite.
    """
    if kernels is None:
        raise ModelLoadError("--quantization int4 needs the compiled kernels: a C++ compiler")
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = _tied_scale(head, embedding)
    num_experts = _num_experts(getattr(model, "config", None))
    places = list(_places(model))
    num_layers = 1 + max((_index(name) or 0 for name, _ in places), default=0)
    for name, place in places:
        module = place.module
        matrix = matrix_of(module)
        if matrix is None or not isinstance(matrix[0], torch.Tensor):
            continue
        bias = None if matrix[1] is None else matrix[1].float()
        if module is not head and _may_route(matrix[0], num_experts):
            place.put(BlockLinear(_unchanged(matrix[0]), bias))  # else it would become int8
            continue
        kind = Q6_K if module is head else _type_of(name, num_layers)
        kind = kind if matrix[0].shape[1] % kind.size == 0 else _NARROW[kind]
        if matrix[0].shape[1] % kind.size:
            continue
        blocks = _quantised(kernels, kind, matrix[0], name)
        place.put(BlockLinear(blocks, bias))
        if module is head and tied is not None:
            model.set_input_embeddings(BlockEmbedding(blocks, tied, matrix[0].dtype))


def _num_experts(config: Any) -> set[int]:
    """The numbers of experts that the configuration names; empty for dense models."""
    values = (getattr(config, name, None) for name in _NUMBERS_OF_EXPERTS)
    return {value for value in values if isinstance(value, int)}


def _may_route(weight: torch.Tensor, num_experts: set[int]) -> bool:
    """Whether a matrix may choose experts or gate one: it has a row for each, or few rows."""
    return len(weight) < _FEW_ROWS or len(weight) in num_experts


def _places(model: nn.Module) -> Iterator[tuple[str, Place]]:
    """Names and places of the children that no forward function reads weights of."""
    for parent_name, parent in model.named_modules():
        if not reads_weights(parent):
            for name, _ in parent.named_children():
                yield f"{parent_name}.{name}", Place(parent, name)


def _tied_scale(head: Any, embedding: Any) -> float | None:
    """The factor of the embedding's rows if it shares the weight of ``head``; None if it does not.

    None also if its output is not its rows times that factor.
    """
    if not is_plain(head) or not is_plain(embedding) or head.weight is not embedding.weight:
        return None
    ids = torch.arange(min(8, len(embedding.weight)))
    rows, found = embedding.weight[ids].float(), embedding(ids).float()
    scale = float(getattr(embedding, "embed_scale", 1.0))
    is_scaled = torch.allclose(found, rows * scale, rtol=1e-2, atol=1e-6)
    return scale if isinstance(embedding, nn.Embedding) and is_scaled else None


def _index(name: str) -> int | None:
    """The index of the layer that a module belongs to."""
    found = re.search(r"\.(\d+)\.", name)
    return None if found is None else int(found[1])


def _type_of(name: str, num_layers: int) -> BlockType:
    """llama.cpp's choice for a linear layer by its name in the model.

    Sensitive ones get Q6_K in the first and last eighth of the layers, and in every third between.
    """
    if name.endswith(_JOINT):
        return Q5_K
    index, eighth = _index(name), num_layers // 8
    if index is None or not name.endswith(_SENSITIVE):
        return Q4_K
    is_outer = index < eighth or index >= 7 * num_layers // 8
    return Q6_K if is_outer or (index - eighth) % 3 == 2 else Q4_K


def _unchanged(weight: torch.Tensor) -> BlockMatrix:
    """The weight in float32."""
    values = weight.float().contiguous().numpy()
    num_rows, num_columns = weight.shape
    return BlockMatrix(F32, num_rows, num_columns, values.view(np.uint8))


def _quantised(kernels: Kernels, kind: BlockType, weight: torch.Tensor, name: str) -> BlockMatrix:
    num_rows, num_columns = weight.shape
    fmt = BlockFormat.of(kind.code)
    assert fmt is not None
    data = np.empty((num_rows, kind.row_nbytes(num_columns)), np.uint8)
    step = max(1, _PIECE // num_columns)
    for start in range(0, num_rows, step):
        piece = weight[start : start + step].float()
        if not bool(piece.isfinite().all()):
            raise ModelLoadError(f"--quantization int4: {name} has weights that are not finite")
        data[start : start + step] = quantise(kernels, fmt, piece)
    return BlockMatrix(kind, num_rows, num_columns, data)


def types_of_blocks(model: nn.Module) -> list[str]:
    """Return the names of the types of a model's weights in blocks, most bytes first."""
    sizes: Counter[str] = Counter()
    for weight in weights_in_blocks(model):
        sizes[weight.type.name] += weight.nbytes
    return [name for name, _ in sizes.most_common()]
