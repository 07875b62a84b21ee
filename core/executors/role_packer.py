"""RolePacker: packed matrices and norms by role, which the kernels' arguments point to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from core.executors.supported import unsupported
from core.gguf.blocks import BlockMatrix
from core.kernels.cpu.linear import PackedWeight
from core.kernels.cpu.structures import MAX_PARTS, NormCall, Table
from core.models import spec as specs
from core.models.spec import Norm
from core.weights.packer import Packer
from core.weights.quantiser import Quantiser
from core.weights.roles import RoleReader, Weight

Kept = TypeVar("Kept")


class RolePacker:
    """Packs what a reader reads, in blocks if there is a quantiser. Core thread only."""

    def __init__(
        self, reader: RoleReader, packer: Packer, quantiser: Quantiser | None = None
    ) -> None:
        self.reader, self.packer = reader, packer
        self._quantiser = quantiser
        self.kept: list[Any] = []  # ctypes structures do not keep what they point to

    def keep(self, value: Kept) -> Kept:
        """Keep what an argument points to."""
        self.kept.append(value)
        return value

    def matrix(self, role: str, layer: int | None, shape: specs.Shape, bias: bool) -> PackedWeight:
        """Pack a matrix and its bias."""
        parts = self.matrices(role, layer, shape)
        return self.stack(parts, self.bias(role, layer, shape) if bias else None)

    def matrices(self, role: str, layer: int | None, shape: specs.Shape) -> list[Weight]:
        """The matrices of a role as they are packed."""
        parts = self.reader.matrices(role, layer, shape)
        if self._quantiser is None:
            return parts
        return self._quantiser.quantised(role, layer, parts)

    def bias(self, role: str, layer: int | None, shape: specs.Shape) -> torch.Tensor:
        """The bias of a matrix in float32."""
        return self.reader.whole(f"{role}_bias", layer, shape[:-1])

    def stack(self, parts: Sequence[Weight], bias: torch.Tensor | None) -> PackedWeight:
        """Pack matrices whose rows follow each other as one."""
        sizes = [len(part) for part in parts]
        biases = [None] * len(parts) if bias is None else torch.split(bias, sizes)
        packed = self.packer.stack(list(zip(parts, biases, strict=True)))
        if packed.num_parts > MAX_PARTS:
            raise unsupported(f"a matrix in {packed.num_parts} formats")
        return self.keep(packed)

    def norm(
        self,
        spec: Norm | None,
        role: str,
        layer: int | None,
        shape: specs.Shape,
        *,
        scale: float = 1.0,
        order: torch.Tensor | None = None,
    ) -> NormCall:
        """A norm whose result is scaled; None for none. ``order`` is that of its values."""
        if spec is None:
            return NormCall()
        weight, bias = torch.ones(shape), None
        if spec.has_weight:
            weight = self.reader.whole(role, layer, shape) + spec.offset
        if spec.has_bias:
            bias = self.reader.whole(f"{role}_bias", layer, shape).flatten() * scale
        weight = weight.flatten() * scale
        if order is not None:
            weight, bias = weight[order], None if bias is None else bias[order]
        self.kept += [weight, bias]
        return NormCall.of(weight, bias, eps=spec.eps, center=spec.kind == "layer")

    def table(self, embedding: Weight, scale: float) -> Table:
        """The rows of an embedding, each times ``scale``."""
        if isinstance(embedding, BlockMatrix):
            return Table.of_packed(self.stack([embedding], None), scale)
        own = self.keep(embedding.clone())  # so that a mapped checkpoint is released
        self.packer.count(own)
        table = Table.of_rows(own)
        if table is None:
            raise unsupported(f"an embedding in {own.dtype}")
        table.factor = scale
        return table
