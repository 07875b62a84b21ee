"""The output layer and the input embedding, which often share their weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from core.fusion.patterns import matrix_of, reads_weights
from core.fusion.proof import NUM_ROWS, Proof, output_of
from core.fusion.visitor import Candidate, Place, Replacement, place_of
from core.gguf.blocks import BlockMatrix
from core.gguf.modules import BlockEmbedding
from core.huge_pages import zeros
from core.kernels.cpu.linear import PackedWeight
from core.kernels.cpu.model import Table
from core.model.plain import is_plain
from core.weights.packer import Packer
from core.weights.roles import Weight

LEAST_ROWS = 8
"""Rows of logits that a buffer has room for, at least."""

LINE = 16
"""float32 numbers of a cache line."""


class Room(NamedTuple):
    """A place for logits: float32 ``[num_rows, out_features]``, its address and stride."""

    logits: torch.Tensor
    address: int
    stride: int
    num_rows: int


class PackedHead(nn.Module):
    """The output layer. It writes every result into the same buffer, of huge pages.

    Logits are the largest tensor of a step: allocating them costs more than sampling, and their
    rows are so far apart that each is in a page of its own. Every row starts at a cache line, so
    that no store touches two and large results can be written past the caches. Core thread only; a
    result is valid until the next call.
    """

    def __init__(self, weight: PackedWeight) -> None:
        super().__init__()
        self.weight = weight
        self._buffer = torch.empty(0)
        self._room = Room(torch.empty(0, weight.num_rows), 0, weight.num_rows, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., in_features]``."""
        out = self.room(x.numel() // self.weight.num_columns).logits
        return self.weight.multiply(x, out=out.view(*x.shape[:-1], out.shape[1]))

    def room(self, count: int) -> Room:
        """The buffer for ``count`` rows of logits."""
        if self._room.num_rows != count:
            num_rows = self.weight.num_rows
            stride = -(-num_rows // LINE) * LINE
            size = count * stride
            if self._buffer.numel() < size:
                # what is not written takes no memory, but every buffer before this one may have
                most = max(LEAST_ROWS, 1 << (count - 1).bit_length())
                self._buffer = zeros(4 * most * stride).view(torch.float32)
            logits = self._buffer[:size].view(count, stride)[:, :num_rows]
            self._room = Room(logits, logits.data_ptr(), stride, count)
        return self._room


class PackedEmbedding(nn.Module):
    """Rows of a packed weight, which may be the output layer's, times ``scale``."""

    def __init__(self, weight: PackedWeight, scale: float = 1.0) -> None:
        super().__init__()
        self.num_embeddings = weight.num_rows
        self._weight = weight
        self._scale = scale

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up int64 ``ids``; float32 ``[*ids.shape, num_columns]``."""
        rows = self._weight.rows(ids)
        return rows if self._scale == 1.0 else rows * self._scale

    def table(self) -> Table:
        """As the kernel of the whole model reads it; valid while this module lives."""
        return Table.of_packed(self._weight, self._scale)


class PlainEmbedding(nn.Module):
    """An embedding that keeps the type of its weight and returns float32."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.num_embeddings = len(weight)
        self._table = [weight]  # in a list, so that it is not widened

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up ``ids``; float32 ``[*ids.shape, dim]``."""
        return nn.functional.embedding(ids, self._table[0]).float()

    def table(self) -> Table | None:
        """As the kernel of the whole model reads it; valid while this module lives."""
        return Table.of_rows(self._table[0])


class FusedEmbedding:
    """A candidate for the input embedding."""

    counts: ClassVar[Mapping[str, int]] = {"embedding": 1}

    def __init__(self, place: Place, module: nn.Module) -> None:
        self._place = place
        self._module = module

    def is_equal(self, proof: Proof) -> bool:
        """See Candidate."""
        ids = torch.arange(NUM_ROWS)[None]
        expected = output_of(self._place.module, ids)
        return expected is not None and proof.is_close(
            expected.float(), self._module(ids), is_product=True
        )

    def install(self) -> None:
        """See Candidate."""
        self._place.put(self._module)


def head_pattern(packer: Packer, model: Any) -> Iterator[Candidate]:
    """The output layer, then the embedding; a shared weight is packed once."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    table = _table(embedding)
    matrix, packed = matrix_of(head), None
    if matrix is not None:
        place, fused = place_of(model, head), PackedHead(packer.stack([matrix]))
        is_tied = table is not None and _is_same(table, matrix[0])
        yield Replacement({"head": 1}, [place], [fused], size=matrix[0].shape[1], is_product=True)
        if is_tied and place.module is fused:
            packed = fused.weight
    if table is not None:
        place = place_of(model, embedding)
        if not reads_weights(place.parent):
            scale = getattr(embedding, "scale", 1.0)
            yield FusedEmbedding(place, _embedding(packer, table, scale, packed))


def _table(embedding: Any) -> Weight | None:
    """The weight of an embedding that is a look-up and no more, but for the scale of blocks."""
    if type(embedding) is BlockEmbedding:
        return embedding.weight
    return embedding.weight if type(embedding) is nn.Embedding and is_plain(embedding) else None


def _is_same(table: Weight, weight: Weight) -> bool:
    if isinstance(table, torch.Tensor) and isinstance(weight, torch.Tensor):
        return table.data_ptr() == weight.data_ptr()
    return table is weight


def _embedding(
    packer: Packer, table: Weight, scale: float, packed: PackedWeight | None
) -> nn.Module:
    if packed is not None:
        return PackedEmbedding(packed, scale)
    if isinstance(table, BlockMatrix):
        return PackedEmbedding(packer.stack([(table, None)]), scale)
    own = table.detach().clone()  # a copy, so that a mapped checkpoint is released
    packer.count(own)
    return PlainEmbedding(own)
