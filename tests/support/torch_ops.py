"""The operations of TritonOps in plain torch: what the kernels have to compute."""

from __future__ import annotations

import torch
from torch.nn import functional

from core.fusion.ops import TritonOps
from core.fusion.patterns import Activation
from core.kernels.triton.head_norm import QueryKeyNorm


class TorchOps(TritonOps):
    """See TritonOps. Needs neither Triton nor its interpreter, and overwrites nothing."""

    def __init__(self) -> None:
        pass

    def rms_norm(
        self, states: torch.Tensor, weight: torch.Tensor, eps: float, offset: float
    ) -> torch.Tensor:
        wide = states.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        if offset:
            return (wide * (weight.float() + offset)).to(states.dtype)
        return weight * wide.to(states.dtype)

    def gated(self, gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
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
        norm: QueryKeyNorm | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if norm is not None:
            query = self.rms_norm(query, norm.query_weight, norm.epsilon, norm.offset)
            key = self.rms_norm(key, norm.key_weight, norm.epsilon, norm.offset)
        return _rotate(query, cos, sin), _rotate(key, cos, sin)


def _rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = states.chunk(2, dim=-1)
    return states * cos[:, None] + torch.cat([-high, low], dim=-1) * sin[:, None]
