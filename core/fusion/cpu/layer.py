"""A whole decoder layer in two calls of the compiled kernel, with its attention between them.

A layer of transformers' code is about ten modules, each called from Python. Where a step computes
few tokens, that costs as much as what they compute.
"""

from __future__ import annotations

import ctypes
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from core.fusion.cpu.mlp import FusedMLP
from core.fusion.cpu.norm import FusedNorm
from core.kernels.cpu.layer import LayerCall, Matrix
from core.kernels.cpu.library import Kernels
from core.kernels.cpu.linear import PackedWeight
from core.layer_spec import LayerSpec

ROTATION = "position_embeddings"
"""What transformers calls the cosines and sines that it hands to a layer."""


@dataclass(frozen=True, slots=True)
class LayerParts:
    """What a layer is made of.

    ``h = x + output(attention(first_norm(x)))`` and then ``h + mlp(second_norm(h))``;
    ``projections`` gives queries, keys and values side by side; queries and keys may have norms.
    """

    first_norm: FusedNorm
    projections: PackedWeight
    query_norm: FusedNorm | None
    key_norm: FusedNorm | None
    output: PackedWeight
    second_norm: FusedNorm
    mlp: FusedMLP
    is_rotated: bool


class Workspace:
    """Room for what lies between the operations of a layer, shared by all. Core thread only."""

    def __init__(self) -> None:
        self._storage = torch.empty(0)
        self._rooms: dict[tuple[LayerSpec, tuple[int, ...]], _Room] = {}

    def room(self, num_tokens: int, spec: LayerSpec, widths: tuple[int, ...]) -> _Room:
        """Room for so many tokens; what lies in it is good until the next layer is computed."""
        room = self._rooms.get((spec, widths))
        if room is None or room.num_tokens != num_tokens:
            size = num_tokens * sum(widths)
            if size > self._storage.numel():
                self._storage = torch.empty(size)
            room = _Room(self._storage, num_tokens, widths, spec)
            self._rooms[spec, widths] = room
        return room


def _widths(spec: LayerSpec, parts: LayerParts) -> tuple[int, ...]:
    """Columns of: normed, hidden, inner, projected, and queries and keys that do not stay so."""
    hidden = parts.projections.num_columns
    inner = parts.mlp.second.num_columns
    is_apart = parts.is_rotated or parts.query_norm is not None
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    apart = (query, key) if is_apart else (0, 0)
    return (hidden, hidden, inner, parts.projections.num_rows, *apart)


class _Room:
    """The tensors of one number of tokens."""

    def __init__(
        self, storage: torch.Tensor, num_tokens: int, widths: tuple[int, ...], spec: LayerSpec
    ) -> None:
        self.num_tokens = num_tokens
        whole = storage[: num_tokens * sum(widths)]
        parts = torch.split(whole, [num_tokens * width for width in widths])
        self.normed, self.hidden, self.inner, projected, query, key = (
            part.view(num_tokens, width) for part, width in zip(parts, widths, strict=True)
        )
        sizes = [
            spec.num_heads * spec.head_dim,
            spec.num_kv_heads * spec.head_dim,
            spec.num_kv_heads * spec.value_dim,
        ]
        columns = list(torch.split(projected, sizes, dim=-1))
        self.is_apart = query.numel() > 0
        if self.is_apart:
            columns[:2] = [query, key]
        self.projected = projected
        self.query = columns[0].view(num_tokens, spec.num_heads, -1)
        self.key = columns[1].view(num_tokens, spec.num_kv_heads, -1)
        self.value = columns[2].view(num_tokens, spec.num_kv_heads, -1)


class FusedLayer(nn.Module):
    """A decoder layer; float32 in and out. Core thread only.

    ``attention`` is the layer's attention module: where AttentionHook puts the function that is
    called here, and nothing else of it is used.
    """

    def __init__(
        self,
        library: Kernels,
        original: nn.Module,
        attention: nn.Module,
        spec: LayerSpec,
        parts: LayerParts,
        workspace: Workspace,
    ) -> None:
        super().__init__()
        self._begin, self._end = library.layer_begin, library.layer_end
        self.attention = attention
        self._attention: Any = [attention]  # found sooner than a child
        self._parts = parts
        self._spec = spec
        self._workspace = workspace
        self._widths = _widths(spec, parts)
        self._room: _Room | None = None
        names = list(inspect.signature(type(original).forward).parameters)
        self._rotation_at = names.index(ROTATION) - 2 if ROTATION in names else len(names)
        self._call = _call(spec, parts)
        self._address = ctypes.addressof(self._call)

    @property
    def hidden_size(self) -> int:
        """Columns of its input."""
        return self._parts.projections.num_columns

    @property
    def is_rotated(self) -> bool:
        """Whether it wants to be told the angles of its tokens."""
        return self._parts.is_rotated

    @property
    def hidden(self) -> torch.Tensor:
        """``h`` of the last call, ``[num_tokens, hidden_size]``; good until the next one."""
        assert self._room is not None
        return self._room.hidden

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Compute ``[1, num_tokens, hidden_size]``; masks and caches are the hook's own."""
        call = self._call
        if x.dtype is not torch.float32 or not x.is_contiguous():
            x = x.float().contiguous()
        room = self._workspace.room(x.shape[1], self._spec, self._widths)
        if room is not self._room:
            self._move(room)
        if self._parts.is_rotated:
            cos, sin = kwargs.get(ROTATION) or args[self._rotation_at]
            cos, sin = cos.float().contiguous(), sin.float().contiguous()
            call.cos, call.sin, call.rotated = cos.data_ptr(), sin.data_ptr(), cos.shape[-1]
        y = torch.empty_like(x)
        call.x, call.y = x.data_ptr(), y.data_ptr()
        self._begin(self._address)
        attention = self._attention[0]
        attended = attention.roseinfer_attention(room.query, room.key, room.value, attention, {})
        attended = attended.float().contiguous()
        call.attended = attended.data_ptr()
        self._end(self._address)
        return y

    def _move(self, room: _Room) -> None:
        """Let the kernel work in this room."""
        call = self._call
        self._room = room
        call.num_tokens = room.num_tokens
        call.normed, call.hidden = room.normed.data_ptr(), room.hidden.data_ptr()
        call.inner, call.projected = room.inner.data_ptr(), room.projected.data_ptr()
        call.query = room.query.data_ptr() if room.is_apart else None
        call.key = room.key.data_ptr() if room.is_apart else None


def _call(spec: LayerSpec, parts: LayerParts) -> LayerCall:
    """Fill in everything that stays the same from step to step."""
    call = LayerCall(
        first_norm=parts.first_norm.arguments(),
        second_norm=parts.second_norm.arguments(),
        projections=Matrix.of(parts.projections),
        output=Matrix.of(parts.output),
        up=Matrix.of(parts.mlp.first, parts.mlp.epilogue),
        down=Matrix.of(parts.mlp.second),
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        value_dim=spec.value_dim,
    )
    if parts.query_norm is not None and parts.key_norm is not None:
        call.query_norm, call.key_norm = parts.query_norm.arguments(), parts.key_norm.arguments()
    return call
