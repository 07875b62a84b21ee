"""TritonLayer: the attention kernels of one layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.attention.triton.plan import StepPlan
from core.kernels.triton.attention.chunk import launch_chunks
from core.kernels.triton.attention.decode import launch_decode
from core.kernels.triton.attention.merge import launch_merge
from core.kernels.triton.attention.parts import DecodePart
from core.kernels.triton.attention.shape import KernelShape
from core.kernels.triton.attention.write import launch_write

Scales = tuple[torch.Tensor, torch.Tensor]
"""Scales of the stored keys and values, ``[num_kv_heads]`` float32 each."""


@dataclass(frozen=True, slots=True)
class TritonLayer:
    """Cache, scales and kernel shapes of one layer. Core thread only."""

    keys: torch.Tensor  # [num_blocks, num_kv_heads, block_size, head_dim]
    values: torch.Tensor  # [num_blocks, num_kv_heads, block_size, value_dim]
    scales: Scales | None
    sinks: torch.Tensor | None  # [num_heads] float32
    shape: KernelShape
    max_programs: int  # of a decode launch

    def attend(
        self,
        output: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        plan: StepPlan,
    ) -> None:
        """Write keys and values, then attend. Shapes as in AttentionBackend."""
        query, key, value = (_contiguous_heads(states) for states in (query, key, value))
        keys, values, scales, shape = self.keys, self.values, self.scales, self.shape
        sinks = self.sinks
        launch_write(keys, values, key, value, plan.slots, scales, shape)
        if plan.decodes is not None:
            splits = plan.decodes.splits[shape.window]
            launch_decode(
                output,
                plan.partials,
                query,
                keys,
                values,
                scales,
                sinks,
                plan.decodes,
                splits,
                shape,
                max_programs=self.max_programs,
            )
            if splits.may_merge:
                launch_merge(output, plan.partials, sinks, plan.decodes, splits, shape)
        if plan.chunks is not None:
            launch_chunks(output, query, keys, values, scales, sinks, plan.chunks, shape)

    def num_partials(self, part: DecodePart) -> int:
        """Floats that the decodes of a step leave to the merge."""
        splits = part.splits[self.shape.window]
        if not splits.may_merge:
            return 0
        return splits.max_num_splits * self.shape.num_heads * self.shape.partial_size


def _contiguous_heads(states: torch.Tensor) -> torch.Tensor:
    """``states`` with a contiguous last dimension, as the kernels read them."""
    return states if states.stride(2) == 1 else states.contiguous()
