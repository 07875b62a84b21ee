"""Linear layers with packed weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from core.fusion.joint import joint_qkv
from core.fusion.patterns import QKV, Matrix, matrix_of
from core.fusion.proof import Proof, cpu_proof
from core.fusion.visitor import AttentionSite, Place, Replacement
from core.kernels.cpu.library import Kernels
from core.kernels.cpu.linear import Epilogue, Format, PackedWeight, interleave, pack


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs matrices in one format."""

    kernels: Kernels
    format: Format

    def proof(self) -> Proof:
        """Return a proof with the tolerance of this format."""
        rounds = self.kernels.rounds_activations(self.format)
        return cpu_proof(is_int8=self.format is Format.INT8, rounds_activations=rounds)

    def stack(self, matrices: list[Matrix]) -> PackedWeight:
        """Pack matrices with a common input as one."""
        return pack(self.kernels, [w for w, _ in matrices], [b for _, b in matrices], self.format)

    def interleave(self, gate: Matrix, up: Matrix) -> PackedWeight | None:
        """Pack the matrices of a gated block for a gated epilogue; None if they do not fit."""
        if gate[1] is not None or up[1] is not None:
            return None
        both = interleave(self.kernels, gate[0], up[0])
        return None if both is None else self.stack([(both, None)])


class PackedLinear(nn.Module):
    """``epilogue(x @ weight.T + bias)``; float32 in and out. Core thread only."""

    def __init__(self, weight: PackedWeight, epilogue: Epilogue = Epilogue.NONE) -> None:
        super().__init__()
        self._weight = weight
        self._epilogue = epilogue

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``."""
        return self._weight.multiply(x, self._epilogue)


def linear_pattern(packer: Packer, place: Place) -> Iterator[Replacement]:
    """A linear layer with packed weights."""
    matrix = matrix_of(place.module)
    if matrix is not None:
        fused = PackedLinear(packer.stack([matrix]))
        yield Replacement({"linear": 1}, [place], [fused], matrix[0].shape[1], is_product=True)


def qkv_pattern(packer: Packer, site: AttentionSite) -> Iterator[Replacement]:
    """Query, key and value projections as one product."""
    return joint_qkv(packer.stack, site, {"linear": len(QKV)})
