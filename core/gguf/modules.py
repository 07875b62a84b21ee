"""Modules whose weight stays in the blocks of its file.

They compute with the float32 values of the blocks: slow, and the reference of what replaces them.
They have no parameters, so that nothing converts or moves their weight.
"""

from __future__ import annotations

import torch
from torch import nn

from core.gguf.blocks import BlockMatrix
from core.gguf.values import rows_of, values_of

_PIECE = 1 << 22
"""Values of a weight that exist in float32 at a time."""


class BlockLinear(nn.Module):
    """``x @ weight.T + bias``, computed in float32; the result has the type of ``x``."""

    def __init__(self, weight: BlockMatrix, bias: torch.Tensor | None = None) -> None:
        """``bias`` is float32 ``[weight.rows]``."""
        super().__init__()
        self.weight = weight
        self.bias = bias
        self.in_features, self.out_features = weight.columns, weight.rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply ``[..., columns]``."""
        step = max(1, _PIECE // self.weight.columns)
        parts = [
            nn.functional.linear(x.float(), values_of(self.weight.part(start, start + step)))
            for start in range(0, self.weight.rows, step)
        ]
        product = torch.cat(parts, dim=-1)
        return (product if self.bias is None else product + self.bias).to(x.dtype)


class BlockEmbedding(nn.Module):
    """Rows of ``weight`` times ``scale``, a number of the model's family, in ``dtype``."""

    def __init__(
        self, weight: BlockMatrix, scale: float = 1.0, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = weight
        self.scale = scale
        self.num_embeddings, self.embedding_dim = weight.rows, weight.columns

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Look up ``ids``."""
        rows = rows_of(self.weight, ids)
        return (rows if self.scale == 1.0 else rows * self.scale).to(self.dtype)


def weights_in_blocks(model: nn.Module) -> list[BlockMatrix]:
    """Return the weights of a model that are in blocks; a shared one once."""
    found = {
        id(module.weight): module.weight
        for module in model.modules()
        if isinstance(module, (BlockLinear, BlockEmbedding))
    }
    return list(found.values())
