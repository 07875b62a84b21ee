"""A decoder layer by the compiled kernels: in two calls with its attention between them.

A layer of transformers' code calls about ten modules from Python. In a step of few tokens these
calls take as long as the computation. FusedDecoder computes all layers in one call.
"""

from __future__ import annotations

import ctypes
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from core.fusion.cpu.mixture import FusedMixture
from core.fusion.cpu.mlp import FusedMLP
from core.fusion.cpu.norm import FusedNorm
from core.huge_pages import zeros
from core.kernels.cpu.layer import LayerCall, LayerStep, Matrix
from core.kernels.cpu.library import Kernels
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
        self._storage = torch.empty(0)
        self._buffers: dict[tuple[LayerSpec, tuple[int, ...]], Buffers] = {}

    def buffers(self, num_tokens: int, spec: LayerSpec, widths: tuple[int, ...]) -> Buffers:
        """Return the buffers for a step; the next layer overwrites their content."""
        found = self._buffers.get((spec, widths))
        if found is None or found.num_tokens != num_tokens:
            size = num_tokens * sum(widths)
            if size > self._storage.numel():
                self._storage = zeros(4 * size).view(torch.float32)
            found = Buffers(self._storage, num_tokens, widths, spec)
            self._buffers[spec, widths] = found
        return found


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
    """The intermediate tensors for one number of tokens, and ``step``, which points to them."""

    def __init__(
        self, storage: torch.Tensor, num_tokens: int, widths: tuple[int, ...], spec: LayerSpec
    ) -> None:
        self.num_tokens = num_tokens
        whole = storage[: num_tokens * sum(widths)]
        parts = torch.split(whole, [num_tokens * width for width in widths])
        normed, self.hidden, inner, self.attended, projected, query, key = (
            part.view(num_tokens, width) for part, width in zip(parts, widths, strict=True)
        )
        sizes = [
            spec.num_heads * spec.head_dim,
            spec.num_kv_heads * spec.head_dim,
            spec.num_kv_heads * spec.value_dim,
        ]
        columns = list(torch.split(projected, sizes, dim=-1))
        is_copied = query.numel() > 0
        if is_copied:
            columns[:2] = [query, key]
        self.query = columns[0].view(num_tokens, spec.num_heads, -1)
        self.key = columns[1].view(num_tokens, spec.num_kv_heads, -1)
        self.value = columns[2].view(num_tokens, spec.num_kv_heads, -1)
        self.step = LayerStep(
            num_tokens=num_tokens,
            normed=normed.data_ptr(),
            projected=projected.data_ptr(),
            query=query.data_ptr() if is_copied else None,
            key=key.data_ptr() if is_copied else None,
            hidden=self.hidden.data_ptr(),
            inner=inner.data_ptr(),
        )

    def point(self, x: torch.Tensor, y: torch.Tensor, attended: torch.Tensor) -> None:
        """Set the input, the output and the result of attention, which the caller keeps alive."""
        step = self.step
        step.x, step.y, step.attended = x.data_ptr(), y.data_ptr(), attended.data_ptr()

    def rotate_by(self, cos: torch.Tensor, sin: torch.Tensor) -> None:
        """Set cosines and sines, contiguous float32, which the caller keeps alive."""
        step = self.step
        step.cos, step.sin, step.rotated = cos.data_ptr(), sin.data_ptr(), cos.shape[-1]


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
        self._spec = spec
        self._workspace = workspace
        self._widths = _widths(spec, parts)
        self._used: Buffers | None = None
        names = list(inspect.signature(type(original).forward).parameters)
        self._rotation_index = names.index(ROTATION) - 2 if ROTATION in names else len(names)
        if isinstance(parts.mlp, FusedMixture):
            self.experts = parts.mlp.experts  # listed among the model's modules
        self._call = _call(spec, parts)
        self.address = ctypes.addressof(self._call)
        """Of its LayerCall, which points to the buffers of the last ``use``."""

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
        assert self._used is not None
        return self._used.hidden

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Compute ``[1, num_tokens, hidden_size]``. Masks and caches in the arguments are unused.

        The attention function of AttentionHook has its own.
        """
        if x.dtype is not torch.float32 or not x.is_contiguous():
            x = x.float().contiguous()
        buffers = self.use(x.shape[1])
        if self._parts.applies_rope:
            angles = self.rotation(kwargs.get(ROTATION) or args[self._rotation_index])
            buffers.rotate_by(*angles)
        y = torch.empty_like(x)
        buffers.point(x, y, buffers.attended)
        self._begin(self.address)
        attention = self._attention[0]
        attended = attention.roseinfer_attention(
            buffers.query, buffers.key, buffers.value, attention, {}
        )
        attended = attended.float().contiguous()
        buffers.point(x, y, attended)
        self._end(self.address)
        return y

    def rotation(self, angles: tuple[torch.Tensor, torch.Tensor]) -> list[torch.Tensor]:
        """Return cosines and sines for ``Buffers.rotate_by`` from those of transformers."""
        if self._parts.repeats_angles:
            return [torch.cat([part, part], dim=-1).float() for part in angles]
        return [part.float().contiguous() for part in angles]

    def use(self, num_tokens: int) -> Buffers:
        """Point the kernel's arguments to the buffers for so many tokens."""
        buffers = self._workspace.buffers(num_tokens, self._spec, self._widths)
        if buffers is not self._used:
            self._used = buffers
            self._call.step = ctypes.addressof(buffers.step)
        return buffers


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
