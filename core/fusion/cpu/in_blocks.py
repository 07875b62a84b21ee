"""``--quantization int4``: the matrices of a model become blocks, in the mix of Q4_K_M."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from core.contract.errors import ModelLoadError
from core.fusion.patterns import matrix_of, reads_weights
from core.fusion.visitor import Place
from core.gguf.blocks import F32
from core.gguf.mixes import Q4_K_M, fitting, layer_of
from core.gguf.modules import BlockEmbedding, BlockLinear, weights_in_blocks
from core.gguf.quantise import plain, quantised
from core.kernels.cpu.bindings import Kernels
from core.model.plain import is_plain

_FEW_ROWS = 16
"""Matrices with fewer rows may be routers or gates, and stay exact; they take little memory."""

_NUMBERS_OF_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


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
    num_layers = 1 + max((layer_of(name) or 0 for name, _ in places), default=0)
    for name, place in places:
        module = place.module
        matrix = matrix_of(module)
        if matrix is None or not isinstance(matrix[0], torch.Tensor):
            continue
        bias = None if matrix[1] is None else matrix[1].float()
        if module is not head and _may_route(matrix[0], num_experts):
            place.put(BlockLinear(plain(F32, matrix[0], name), bias))  # else it would become int8
            continue
        wanted = Q4_K_M.output if module is head else Q4_K_M.type_of(name, num_layers)
        kind = fitting(wanted, matrix[0].shape[1])
        if kind is None:
            continue
        blocks = quantised(kernels, kind, matrix[0], f"--quantization int4: {name}")
        place.put(BlockLinear(blocks, bias))
        if module is head and tied is not None:
            model.set_input_embeddings(BlockEmbedding(blocks, tied, matrix[0].dtype))


def _num_experts(config: Any) -> set[int]:
    """The numbers of experts that the configuration names; empty for dense models."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    values = (getattr(text, name, None) for name in _NUMBERS_OF_EXPERTS)
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
    # the exact number, as GGUF files mean it; a module of 16 bits has it rounded
    rounded = getattr(embedding, "embed_scale", 1.0)
    scale = float(getattr(embedding, "scalar_embed_scale", rounded))
    is_scaled = torch.allclose(found, rows * scale, rtol=1e-2, atol=1e-6)
    return scale if isinstance(embedding, nn.Embedding) and is_scaled else None


def types_of_blocks(model: nn.Module) -> list[str]:
    """Return the names of the types of a model's weights in blocks, most bytes first."""
    sizes: Counter[str] = Counter()
    for weight in weights_in_blocks(model):
        sizes[weight.type.name] += weight.nbytes
    return [name for name, _ in sizes.most_common()]
