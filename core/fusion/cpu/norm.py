"""LayerNorm and RMSNorm by the compiled kernel."""

from __future__ import annotations

import torch
from torch import nn

from core.kernels.cpu.layer import Norm
from core.kernels.cpu.library import Kernels


class FusedNorm(nn.Module):
    """LayerNorm (``center``) or RMSNorm over the last dimension; float32 in and out."""

    def __init__(
        self,
        library: Kernels,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        *,
        eps: float,
        center: bool,
    ) -> None:
        super().__init__()
        self._library = library
        self._weight = weight.detach().float().contiguous()
        self._bias = None if bias is None else bias.detach().float().contiguous()
        self._eps = eps
        self._center = center

    @property
    def size(self) -> int:
        """Values of a row."""
        return len(self._weight)

    def arguments(self) -> Norm:
        """The norm as a layer's kernel reads it; good while this lives."""
        return Norm.of(self._weight, self._bias, eps=self._eps, center=self._center)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., n]``."""
        return self._library.norm(x, self._weight, self._bias, eps=self._eps, center=self._center)
