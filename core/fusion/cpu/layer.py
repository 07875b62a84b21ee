"""A decoder layer by the compiled kernels: in two calls with its attention between them.

A layer of transformers' code calls about ten modules from Python. In a step of few tokens these
calls take as long as the computation. FusedDecoder computes all layers in one call.
"""

from __future__ import annotations

import ctypes
import inspect
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from core.fusion.cpu.mixture import FusedMixture
from core.fusion.cpu.mlp import FusedMLP
from core.fusion.cpu.norm import FusedNorm
from core.huge_pages import zeros
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.layer import LayerCall, LayerStep, Matrix
from core.kernels.cpu.linear import PackedWeight
from core.layer_spec import LayerSpec

ROTATION = "position_embeddings"
"""The name of the argument of a layer that holds cosines and sines for RoPE."""


@dataclass(frozen=True, slots=True)
class LayerParts:
    """The parts of a layer.

    It computes ``h = x + output(attention(first_norm(x)))`` and then ``h + mlp(second_norm(h))``.
    ``projections`` gives queries, keys and values side by side; queries and keys may have norms,
    each over a head or over all heads.
    """

    first_norm: FusedNorm
    projections: PackedWeight
    query_norm: FusedNorm | None
    key_norm: FusedNorm | None
    output: PackedWeight
    second_norm: FusedNorm
    mlp: FusedMLP | FusedMixture
    applies_rope: bool
    repeats_angles: bool = False
    """Whether cosines and sines have half as many columns as they rotate: all of them twice."""

    @property
    def inner_size(self) -> int:
        """Columns between the products of a feed-forward block; a mixture has memory of its own."""
        return 0 if isinstance(self.mlp, FusedMixture) else self.mlp.second.num_columns

    def joins_heads(self, spec: LayerSpec) -> bool:
        """Whether query and key have one norm over all heads, not one for each head."""
        return self.query_norm is not None and self.query_norm.size != spec.head_dim


class Workspace:
    """Memory for the intermediate results of a layer, shared by all layers. Core thread only."""

    def __init__(self) -> None:
        self.storage = torch.empty(0)
        self._buffers: dict[tuple[LayerSpec, tuple[int, ...]], Buffers] = {}

    def buffers(self, spec: LayerSpec, widths: tuple[int, ...]) -> Buffers:
        """Return the buffers of layers of one kind; the next layer overwrites their content."""
        found = self._buffers.get((spec, widths))
        if found is None:
            found = self._buffers[spec, widths] = Buffers(self, widths, spec)
        return found

    def grow(self, size: int) -> None:
        """Have room for so many values. Buffers that fit already keep what they have."""
        if size > self.storage.numel():
            self.storage = zeros(4 * size).view(torch.float32)


def _widths(spec: LayerSpec, parts: LayerParts) -> tuple[int, ...]:
    """Columns of the buffers: see Buffers. Queries and keys have none if they are not changed."""
    hidden = parts.projections.num_columns
    inner = parts.inner_size
    is_copied = parts.applies_rope or parts.query_norm is not None
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    copied = (query, key) if is_copied else (0, 0)
    attended = spec.num_heads * spec.value_dim
    return (hidden, hidden, inner, attended, parts.projections.num_rows, *copied)


class Buffers:
    """The intermediate results of layers of one kind, and ``step``, which points to them."""

    def __init__(self, workspace: Workspace, widths: tuple[int, ...], spec: LayerSpec) -> None:
        self._workspace = workspace
        self._widths = widths
        self._sizes = [
            spec.num_heads * spec.head_dim,
            spec.num_kv_heads * spec.head_dim,
            spec.num_kv_heads * spec.value_dim,
        ]
        self._heads = [spec.num_heads, spec.num_kv_heads, spec.num_kv_heads]
        self._storage = workspace.storage
        self.step = LayerStep()

    def fit(self, num_tokens: int) -> None:
        """Point to memory for so many tokens."""
        step = self.step
        if step.num_tokens == num_tokens and self._storage is self._workspace.storage:
            return
        self._workspace.grow(num_tokens * sum(self._widths))
        self._storage = self._workspace.storage
        step.num_tokens = num_tokens
        starts = accumulate(
            (4 * num_tokens * width for width in self._widths), initial=self._storage.data_ptr()
        )
        addresses = [
            start if width else None for start, width in zip(starts, self._widths, strict=False)
        ]
        step.normed, step.hidden, step.inner, step.attended = addresses[:4]
        step.projected, step.query, step.key = addresses[4:]

    @property
    def hidden(self) -> torch.Tensor:
        """The residual stream after attention, ``[num_tokens, hidden_size]``."""
        return self._part(1)

    def states(self) -> list[torch.Tensor]:
        """Queries, keys and values, ``[num_tokens, heads, dim]`` each."""
        columns = list(torch.split(self._part(4), self._sizes, dim=-1))
        if self._widths[5]:
            columns[:2] = [self._part(5), self._part(6)]
        return [
            part.view(len(part), heads, -1)
            for part, heads in zip(columns, self._heads, strict=True)
        ]

    def _part(self, index: int) -> torch.Tensor:
        num_tokens, width = self.step.num_tokens, self._widths[index]
        start = num_tokens * sum(self._widths[:index])
        return self._storage[start : start + num_tokens * width].view(num_tokens, width)


class FusedLayer(nn.Module):
    """A decoder layer; float32 in and out. Core thread only.

    ``attention`` is the layer's attention module. AttentionHook stores the attention function
    there; the layer calls it and uses nothing else of the module.
    """

    def __init__(
        self,
        kernels: Kernels,
        original: nn.Module,
        attention: nn.Module,
        spec: LayerSpec,
        parts: LayerParts,
        workspace: Workspace,
    ) -> None:
        super().__init__()
        self._begin, self._end = kernels.layer_begin, kernels.layer_end
        self.attention = attention
        self._attention: Any = [attention]  # a list: looked up faster than a child module
        self._parts = parts
        self.intermediate = workspace.buffers(spec, _widths(spec, parts))
        names = list(inspect.signature(type(original).forward).parameters)
        self._rotation_index = names.index(ROTATION) - 2 if ROTATION in names else len(names)
        if isinstance(parts.mlp, FusedMixture):
            self.experts = parts.mlp.experts  # listed among the model's modules
        self._call = _call(spec, parts)
        self._call.step = ctypes.addressof(self.intermediate.step)
        self.address = ctypes.addressof(self._call)
        """Of its LayerCall, which points to ``intermediate``."""

    @property
    def hidden_size(self) -> int:
        """Columns of its input."""
        return self._parts.projections.num_columns

    @property
    def applies_rope(self) -> bool:
        """Whether it needs ``position_embeddings``."""
        return self._parts.applies_rope

    @property
    def hidden(self) -> torch.Tensor:
        """``h`` of the last call, ``[num_tokens, hidden_size]``; valid until the next call."""
        return self.intermediate.hidden

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Compute ``[1, num_tokens, hidden_size]``. Masks and caches in the arguments are unused.

        The attention function of AttentionHook has its own.
        """
        if x.dtype is not torch.float32 or not x.is_contiguous():
            x = x.float().contiguous()
        buffers = self.intermediate
        buffers.fit(x.shape[1])
        step = buffers.step
        if self._parts.applies_rope:
            cos, sin = self.rotation(kwargs.get(ROTATION) or args[self._rotation_index])
            step.cos, step.sin, step.rotated = cos.data_ptr(), sin.data_ptr(), cos.shape[-1]
        y = torch.empty_like(x)
        step.x, step.y = x.data_ptr(), y.data_ptr()
        self._begin(self.address)
        attention = self._attention[0]
        attended = attention.roseinfer_attention(*buffers.states(), attention, {})
        attended = attended.float().contiguous()
        own, step.attended = step.attended, attended.data_ptr()
        self._end(self.address)
        step.attended = own
        return y

    def rotation(
        self, angles: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return contiguous float32 cosines and sines from those of transformers."""
        cos, sin = angles
        if self._parts.repeats_angles:
            cos, sin = torch.cat([cos, cos], dim=-1), torch.cat([sin, sin], dim=-1)
        return cos.float().contiguous(), sin.float().contiguous()


def _call(spec: LayerSpec, parts: LayerParts) -> LayerCall:
    """Fill in the arguments that do not change between steps."""
    call = LayerCall(
        first_norm=parts.first_norm.arguments(),
        second_norm=parts.second_norm.arguments(),
        projections=Matrix.of(parts.projections),
        output=Matrix.of(parts.output),
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        value_dim=spec.value_dim,
        applies_rope=int(parts.applies_rope),
        joins_heads=int(parts.joins_heads(spec)),
    )
    if isinstance(parts.mlp, FusedMixture):
        call.mixture = ctypes.pointer(parts.mlp.arguments())
    else:
        call.up = Matrix.of(parts.mlp.first, parts.mlp.epilogue)
        call.down = Matrix.of(parts.mlp.second)
    if parts.query_norm is not None and parts.key_norm is not None:
        call.query_norm, call.key_norm = parts.query_norm.arguments(), parts.key_norm.arguments()
    return call
