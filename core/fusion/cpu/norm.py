"""LayerNorm and RMSNorm by the compiled kernel."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from core.fusion.patterns import NORM_OFFSETS, rms_norm
from core.fusion.proof import Proof
from core.fusion.visitor import Place, Replacement
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.layer import Norm


class FusedNorm(nn.Module):
    """LayerNorm (``center``) or RMSNorm over the last dimension; float32 in and out."""

    def __init__(
        self,
        kernels: Kernels,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        *,
        eps: float,
        center: bool,
    ) -> None:
        super().__init__()
        self._kernels = kernels
        self._weight = weight.detach().float().contiguous()
        self._bias = None if bias is None else bias.detach().float().contiguous()
        self._eps = eps
        self._center = center

    @property
    def size(self) -> int:
        """Values of a row."""
        return len(self._weight)

    def arguments(self) -> Norm:
        """Return the norm as the layer kernel reads it; valid while this module lives."""
        return Norm.of(self._weight, self._bias, eps=self._eps, center=self._center)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``[..., size]``."""
        return self._kernels.norm(x, self._weight, self._bias, eps=self._eps, center=self._center)


def fused_norms(kernels: Kernels, module: nn.Module) -> Iterator[FusedNorm]:
    """Candidates for a LayerNorm or an RMSNorm."""
    if type(module) is nn.LayerNorm:
        if module.weight is not None and len(module.normalized_shape) == 1:
            yield FusedNorm(kernels, module.weight, module.bias, eps=module.eps, center=True)
        return
    found = rms_norm(module)
    if found is not None:
        weight, eps = found
        for offset in NORM_OFFSETS:
            yield FusedNorm(kernels, weight.float() + offset, None, eps=eps, center=False)


def proved_norm(kernels: Kernels, module: nn.Module, proof: Proof) -> FusedNorm | None:
    """Return the candidate that equals the module."""
    for norm in fused_norms(kernels, module):
        if proof.is_equal([module], [norm], norm.size, is_product=False):
            return norm
    return None


def norm_pattern(kernels: Kernels, place: Place) -> Iterator[Replacement]:
    """A norm by the compiled kernel."""
    for fused in fused_norms(kernels, place.module):
        yield Replacement({"norm": 1}, [place], [fused], fused.size, is_product=False)
