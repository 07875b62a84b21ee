"""RMSNorm as one operation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from core.fusion.cuda.ops import TritonOps
from core.fusion.patterns import NORM_OFFSETS, rms_norm
from core.fusion.visitor import Place, Replacement


class FusedRMSNorm(nn.Module):
    """RMSNorm over the last dimension in one operation."""

    def __init__(self, weight: torch.Tensor, eps: float, offset: float, ops: TritonOps) -> None:
        super().__init__()
        self._weight = weight
        self._eps = eps
        self._offset = offset
        self._ops = ops

    @property
    def weight_eps_offset(self) -> tuple[torch.Tensor, float, float]:
        """Weight, epsilon, and what is added to the weight."""
        return self._weight, self._eps, self._offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., size]``."""
        return self._ops.rms_norm(x, self._weight, self._eps, self._offset)


def norm_pattern(ops: TritonOps, place: Place) -> Iterator[Replacement]:
    """An RMSNorm, with each offset that its weight may have."""
    found = rms_norm(place.module)
    if found is not None:
        weight, eps = found
        for offset in NORM_OFFSETS:
            fused = FusedRMSNorm(weight, eps, offset, ops)
            yield Replacement({"norm": 1}, [place], [fused], len(weight), is_product=False)
