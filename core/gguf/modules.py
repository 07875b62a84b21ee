"""Modules whose weight stays in the blocks of its file.

They compute with the float32 values of the blocks: slow, and the reference of what replaces them.
They have no parameters, so that nothing converts or moves their weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from torch.overrides import handle_torch_function, has_torch_function_unary

from core.gguf.blocks import BlockMatrix
from core.gguf.values import put_values, rows_of, values_of
from core.pieces import linear_in_pieces


def product(x: torch.Tensor, weight: BlockMatrix) -> torch.Tensor:
    """``x @ weight.T`` in float32; ``x`` is ``[..., columns]``.

    torch's function modes see the call, so that one which needs no products can leave it out.
    """
    if has_torch_function_unary(x):
        result: torch.Tensor = handle_torch_function(product, (x,), x, weight)
        return result
    return linear_in_pieces(
        x.float(),
        weight.shape,
        lambda start, out: put_values(weight.part(start, start + len(out)), out),
    )


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
        y = product(x, self.weight)
        return (y if self.bias is None else y + self.bias).to(x.dtype)


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


class BlockExperts(nn.Module):
    """The experts of a layer: ``down(activation(gate and up of x))`` for each; float32.

    It is called like transformers' modules of stacked experts.
    """

    def __init__(
        self,
        gate: BlockMatrix,
        up: BlockMatrix,
        activation: Callable[[torch.Tensor], torch.Tensor],
        down: BlockMatrix,
        num_experts: int,
    ) -> None:
        """Each matrix stacks those of all experts; ``gate`` and ``up`` have one type.

        ``activation`` maps the columns of gate, then of up, to those of ``down``.
        """
        super().__init__()
        assert gate.type == up.type, (gate.type, up.type)
        self.gate, self.up, self.down = gate, up, down
        self.activation = activation
        self.num_experts = num_experts

    @property
    def matrices(self) -> tuple[BlockMatrix, BlockMatrix, BlockMatrix]:
        """Gate, up and down of all experts."""
        return self.gate, self.up, self.down

    def of(self, some: Sequence[int]) -> BlockExperts:
        """Return a module with only some of the experts, which have new numbers from 0 on."""
        gate, up, down = (
            matrix.taken(np.concatenate([np.arange(*self._rows(matrix, e)) for e in some]))
            for matrix in self.matrices
        )
        return BlockExperts(gate, up, self.activation, down, len(some))

    def _rows(self, matrix: BlockMatrix, expert: int) -> tuple[int, int]:
        """Where the rows of an expert start and end."""
        rows = matrix.rows // self.num_experts
        return expert * rows, (expert + 1) * rows

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """Return the weighted sum of each token's experts; a larger index stands for none."""
        x = hidden_states.float()
        y = torch.zeros_like(x)
        for expert in sorted(set(top_k_index.flatten().tolist())):
            if expert >= self.num_experts:
                continue
            gate, up, down = (
                values_of(matrix.part(*self._rows(matrix, expert))) for matrix in self.matrices
            )
            tokens, choices = torch.where(top_k_index == expert)
            inner = nn.functional.linear(x[tokens], torch.cat([gate, up]))
            rows = nn.functional.linear(self.activation(inner), down)
            y.index_add_(0, tokens, rows * top_k_weights[tokens, choices, None])
        return y.to(hidden_states.dtype)


def weights_in_blocks(model: nn.Module) -> list[BlockMatrix]:
    """Return the weights of a model that are in blocks; a shared one once."""
    found = [
        weight
        for module in model.modules()
        for weight in (
            module.matrices
            if isinstance(module, BlockExperts)
            else [module.weight]
            if isinstance(module, (BlockLinear, BlockEmbedding))
            else []
        )
    ]
    return list({id(weight): weight for weight in found}.values())
