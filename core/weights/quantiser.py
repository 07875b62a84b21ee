"""Quantiser: matrices of a spec as blocks, by role (``--quantization int4``)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from core.gguf.blocks import BlockType
from core.gguf.quantise import Q4_K_M, fitting, quantised
from core.kernels.cpu.bindings import Kernels
from core.weights.roles import Weight

_SENSITIVE = {"down", "shared_down"}


class Quantiser:
    """Quantises matrices of any float type in the mix of Q4_K_M.

    Routers, the gates of shared experts and experts are no matrices of this kind: they are packed
    in float32, and in the packer's format.
    """

    def __init__(self, kernels: Kernels, num_layers: int) -> None:
        self._kernels = kernels
        self._num_layers = num_layers

    def quantised(self, role: str, layer: int | None, parts: Sequence[Weight]) -> list[Weight]:
        """The matrices of a role in blocks; those stay whose columns do not divide into blocks.

        Raises ModelLoadError for weights that are not finite.
        """
        kinds = self._kinds(role, layer, len(parts))
        where = role if layer is None else f"{role} of layer {layer}"
        found: list[Weight] = []
        for part, wanted in zip(parts, kinds, strict=True):
            kind = fitting(wanted, part.shape[1])
            if kind is None or not isinstance(part, torch.Tensor):
                found.append(part)
            else:
                name = f"--quantization int4: {where}"
                found.append(quantised(self._kernels, kind, part, name))
        return found

    def _kinds(self, role: str, layer: int | None, num_parts: int) -> list[BlockType]:
        if layer is None:
            is_head = role in ("head", "embedding")
            return [Q4_K_M.output if is_head else Q4_K_M.most] * num_parts
        sensitive = Q4_K_M.sensitive_of(layer, self._num_layers)
        if role == "qkv":
            joint = num_parts == 1
            return [Q4_K_M.joint] if joint else [*[Q4_K_M.most] * (num_parts - 1), sensitive]
        return [sensitive if role in _SENSITIVE else Q4_K_M.most] * num_parts
