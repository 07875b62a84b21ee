"""Linear layers with packed weights."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import nn

from core.fusion.joint import joint_qkv
from core.fusion.patterns import QKV, Matrix, matrix_of
from core.fusion.proof import Proof, cpu_proof
from core.fusion.visitor import AttentionSite, Place, Replacement
from core.kernels.cpu.grouped import GroupedWeight, pack_groups
from core.kernels.cpu.library import Kernels
from core.kernels.cpu.linear import Epilogue, Format, PackedWeight, Rows, interleave, pack

Packed = TypeVar("Packed", PackedWeight, GroupedWeight)


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs matrices in one format, and knows how many bytes are in use."""

    kernels: Kernels
    format: Format
    _packed: list[weakref.ref[torch.Tensor]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed or counted tensors that still exist."""
        tensors = [reference() for reference in self._packed]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    def proof(self) -> Proof:
        """Return a proof with the tolerance of this format."""
        rounds = self.kernels.rounds_activations(self.format)
        return cpu_proof(is_int8=self.format is Format.INT8, rounds_activations=rounds)

    def count(self, *tensors: torch.Tensor | None) -> None:
        """Count tensors for as long as they exist."""
        self._packed.extend(weakref.ref(tensor) for tensor in tensors if tensor is not None)

    def stack(self, matrices: list[Matrix]) -> PackedWeight:
        """Pack matrices with a common input as one."""
        weights, biases = [w for w, _ in matrices], [b for _, b in matrices]
        return self._counted(pack(self.kernels, weights, biases, self.format))

    def interleave(self, gate: Matrix, up: Matrix) -> PackedWeight | None:
        """Pack the matrices of a gated block for a gated epilogue; None if they do not fit."""
        if gate[1] is not None or up[1] is not None:
            return None
        both = interleave(self.kernels, gate[0], up[0])
        if both is None:
            return None
        return self._counted(pack(self.kernels, both, [None], self.format))

    def groups(self, weights: torch.Tensor, bias: torch.Tensor | None) -> GroupedWeight:
        """Pack the matrices of ``[num_groups, num_rows, num_columns]`` with their biases."""
        return self._groups(weights, bias, tuple(weights.shape))

    def gated_groups(self, gates: torch.Tensor, ups: torch.Tensor) -> GroupedWeight:
        """Pack pairs of matrices for a gated epilogue. Their rows must divide into half panels."""
        pairs = (interleave(self.kernels, gate, up) for gate, up in zip(gates, ups, strict=True))
        num_groups, num_rows, num_columns = gates.shape
        shape = (num_groups, 2 * num_rows, num_columns)
        return self._groups((pair for pair in pairs if pair is not None), None, shape)

    def _groups(
        self,
        weights: Iterable[torch.Tensor | Rows],
        bias: torch.Tensor | None,
        shape: tuple[int, ...],
    ) -> GroupedWeight:
        num_groups, num_rows, num_columns = shape
        return self._counted(
            pack_groups(
                self.kernels, weights, bias, self.format, (num_groups, num_rows, num_columns)
            )
        )

    def _counted(self, packed: Packed) -> Packed:
        self.count(packed.data, packed.scale, packed.bias)
        return packed


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
