"""Packer: matrices of a model in the layout of the kernels."""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from core.gguf.alike import alike
from core.gguf.blocks import BlockMatrix, BlockType
from core.gguf.values import plain_values
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.blocks import BlockFormat, pack_block_groups, pack_blocks
from core.kernels.cpu.linear import (
    Format,
    GroupedWeight,
    PackedWeight,
    Rows,
    interleave,
    interleave_biases,
    pack,
    pack_groups,
    padded_biases,
)
from core.weights.roles import Matrix

_PLAIN = {
    torch.float32: Format.FLOAT32,
    torch.float16: Format.FLOAT16,
    torch.bfloat16: Format.BFLOAT16,
}

Packed = TypeVar("Packed", PackedWeight, GroupedWeight)


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs matrices in one format, and knows how many bytes are in use."""

    kernels: Kernels
    format: Format
    _packed: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    _blocks: Counter[str] = field(default_factory=Counter)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed or counted tensors that still exist."""
        tensors = [reference() for reference in self._packed]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    @property
    def block_types(self) -> list[str]:
        """The names of the types of the matrices in blocks, most bytes first."""
        return [name for name, _ in self._blocks.most_common()]

    def count(self, *tensors: torch.Tensor | None) -> None:
        """Count tensors for as long as they exist."""
        self._packed.extend(weakref.ref(tensor) for tensor in tensors if tensor is not None)

    def stack(self, matrices: list[Matrix]) -> PackedWeight:
        """Pack matrices with a common input as one. Blocks keep their type."""
        stacked = None
        for matrix_type, run in reversed(runs(matrices)):
            packed = self._counted(self._pack(matrix_type, run))
            stacked = packed if stacked is None else replace(packed, more=stacked)
        assert stacked is not None
        return stacked

    def _pack(self, matrix_type: BlockType | None, matrices: list[Matrix]) -> PackedWeight:
        biases = [bias for _, bias in matrices]
        blocks = [weight for weight, _ in matrices if isinstance(weight, BlockMatrix)]
        fmt = None if matrix_type is None else BlockFormat.of(matrix_type.code)
        if fmt is not None:
            return pack_blocks(
                self.kernels, fmt, [b.data for b in blocks], blocks[0].columns, biases
            )
        if matrix_type is not None:
            values = [plain_values(b) for b in blocks]
            return pack(self.kernels, values, biases, _PLAIN[values[0].dtype])
        tensors = [weight for weight, _ in matrices if isinstance(weight, torch.Tensor)]
        return pack(self.kernels, tensors, biases, self.format)

    def interleave(self, gate: Matrix, up: Matrix) -> PackedWeight | None:
        """Pack the matrices of a gated block for a gated epilogue; None if they do not fit."""
        (left, left_bias), (right, right_bias) = gate, up
        biases = [left_bias, right_bias]
        if left.shape != right.shape:
            return None
        if isinstance(left, BlockMatrix) and isinstance(right, BlockMatrix):
            return self._interleaved_blocks([left, right], biases)
        if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
            return self._interleaved([left, right], biases, self.format)
        return None

    def _interleaved(
        self, pair: list[torch.Tensor], biases: list[torch.Tensor | None], fmt: Format
    ) -> PackedWeight | None:
        both = interleave(self.kernels, *pair)
        if both is None:
            return None
        bias = interleave_biases(self.kernels, *biases)
        return self._counted(pack(self.kernels, both, [bias], fmt))

    def _interleaved_blocks(
        self, pair: list[BlockMatrix], biases: list[torch.Tensor | None]
    ) -> PackedWeight | None:
        matrices = alike(pair)
        if matrices is None or matrices[0].rows % (self.kernels.panel // 2):
            return None
        first, parts = matrices[0], [matrix.data for matrix in matrices]
        fmt = BlockFormat.of(first.type.code)
        if fmt is None:
            values = [plain_values(matrix) for matrix in matrices]
            return self._interleaved(values, biases, _PLAIN[values[0].dtype])
        return self._counted(
            pack_blocks(self.kernels, fmt, parts, first.columns, biases, is_gated=True)
        )

    def exact(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> PackedWeight:
        """Pack in float32."""
        packed = pack(self.kernels, [weight.float()], [bias], Format.FLOAT32)
        return self._counted(packed)

    def groups(
        self,
        weights: Sequence[torch.Tensor] | torch.Tensor,
        bias: torch.Tensor | None,
        fmt: Format | None = None,
    ) -> GroupedWeight:
        """Pack the matrices of ``[num_groups, num_rows, num_columns]`` with their biases."""
        num_rows, num_columns = weights[0].shape
        return self._groups(weights, bias, (len(weights), num_rows, num_columns), fmt)

    def gated_groups(
        self,
        weights: Sequence[Sequence[torch.Tensor] | torch.Tensor],
        biases: Sequence[torch.Tensor] | None,
        fmt: Format | None = None,
    ) -> GroupedWeight | None:
        """Pack gates and ups for a gated epilogue; None if their rows do not divide into runs.

        Weights are ``[num_groups, num_rows, num_columns]``, biases ``[num_groups, num_rows]``.
        """
        num_groups, (num_rows, num_columns) = len(weights[0]), weights[0][0].shape
        if num_rows % (self.kernels.panel // 2):
            return None
        pairs = (interleave(self.kernels, gate, up) for gate, up in zip(*weights, strict=True))
        bias = None if biases is None else interleave_biases(self.kernels, *biases)
        shape = (num_groups, 2 * num_rows, num_columns)
        return self._groups((pair for pair in pairs if pair is not None), bias, shape, fmt)

    def block_groups(
        self,
        matrices: list[BlockMatrix],
        num_groups: int,
        *,
        is_gated: bool = False,
        biases: Sequence[torch.Tensor] | None = None,
    ) -> GroupedWeight | None:
        """Pack matrices that have the rows of all groups; None if they do not fit.

        If they are gate and up, they are packed for a gated epilogue. There is a bias
        ``[num_groups, num_rows]`` for each matrix, or none.
        """
        found = alike(matrices)
        num_rows = matrices[0].rows // num_groups
        if found is None or (is_gated and num_rows % (self.kernels.panel // 2)):
            return None
        first, parts = found[0], [matrix.data for matrix in found]
        fmt = BlockFormat.of(first.type.code)
        if fmt is None:
            values = [plain_values(m).view(num_groups, -1, m.columns) for m in found]
            plain = _PLAIN[values[0].dtype]
            if is_gated:
                return self.gated_groups(values, biases, plain)
            [only] = values
            return self.groups(only, None if biases is None else biases[0], plain)
        packed = pack_block_groups(
            self.kernels, fmt, parts, first.columns, num_groups, is_gated=is_gated
        )
        if biases is not None:
            bias = interleave_biases(self.kernels, *biases) if is_gated else biases[0]
            assert bias is not None
            packed = replace(packed, bias=padded_biases(self.kernels, bias))
        return self._counted(packed)

    def _groups(
        self,
        weights: Iterable[torch.Tensor | Rows],
        bias: torch.Tensor | None,
        shape: tuple[int, int, int],
        fmt: Format | None,
    ) -> GroupedWeight:
        fmt = self.format if fmt is None else fmt
        return self._counted(pack_groups(self.kernels, weights, bias, fmt, shape))

    def _counted(self, packed: Packed) -> Packed:
        self.count(packed.data, packed.scale, packed.bias)
        if packed.format in BlockFormat.__members__.values():
            self._blocks[BlockFormat(packed.format).name] += packed.data.nbytes
        return packed


def runs(matrices: list[Matrix]) -> list[tuple[BlockType | None, list[Matrix]]]:
    """Group neighbours with blocks of the same type; the type of a tensor is None."""

    def type_of(matrix: Matrix) -> BlockType | None:
        return matrix[0].type if isinstance(matrix[0], BlockMatrix) else None

    return [(kind, list(group)) for kind, group in itertools.groupby(matrices, type_of)]
