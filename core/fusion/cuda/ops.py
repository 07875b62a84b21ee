"""Small operations of a model, each in as few launches as there is a way to."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import torch
from torch.nn import functional

from core.kernels.triton.head_norm import HeadNorm

Activation: TypeAlias = Literal["silu", "gelu_tanh"]


class Ops(Protocol):
    """What a fused leaf calls. Types are kept; sums are in float32."""

    def rms_norm(
        self, states: torch.Tensor, weight: torch.Tensor, eps: float, offset: float
    ) -> torch.Tensor:
        """Normalise ``[..., size]`` and multiply by ``weight + offset``."""

    def gated(self, gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
        """``activation(gate) * up`` of ``[..., 2 * size]``, the gate first."""

    def rotate(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        norm: HeadNorm | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate ``[num_tokens, heads, dim]`` by ``[num_tokens, dim]``, maybe in place.

        With a ``norm``, that of each head comes first.
        """


class TritonOps:
    """Our own kernels, one launch each. See Ops."""

    def __init__(self) -> None:
        """Raises ModuleNotFoundError without Triton."""
        from core.kernels.triton import gated, norm, rotary  # noqa: PLC0415 - needs Triton

        self._gated = gated.gated
        self._rms_norm = norm.rms_norm
        self._rotate = rotary.rotate_

    def rms_norm(
        self, states: torch.Tensor, weight: torch.Tensor, eps: float, offset: float
    ) -> torch.Tensor:
        """See Ops."""
        return self._rms_norm(states, weight, eps, weight_offset=offset)

    def gated(self, gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
        """See Ops."""
        return self._gated(gate_up, activation)

    def rotate(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        norm: HeadNorm | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops."""
        self._rotate(query, key, cos, sin, norm)
        return query, key


class TorchOps:
    """Plain torch, on any device: what the kernels are to compute. See Ops."""

    def rms_norm(
        self, states: torch.Tensor, weight: torch.Tensor, eps: float, offset: float
    ) -> torch.Tensor:
        """See Ops."""
        wide = states.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        if offset:
            return (wide * (weight.float() + offset)).to(states.dtype)
        return weight * wide.to(states.dtype)

    def gated(self, gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
        """See Ops."""
        gate, up = gate_up.chunk(2, dim=-1)
        if activation == "silu":
            return functional.silu(gate) * up
        return functional.gelu(gate, approximate="tanh") * up

    def rotate(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        norm: HeadNorm | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops."""
        if norm is not None:
            query = self.rms_norm(query, norm.query_weight, norm.epsilon, norm.offset)
            key = self.rms_norm(key, norm.key_weight, norm.epsilon, norm.offset)
        return _rotate(query, cos, sin), _rotate(key, cos, sin)


def _rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = states.chunk(2, dim=-1)
    return states * cos[:, None] + torch.cat([-high, low], dim=-1) * sin[:, None]
