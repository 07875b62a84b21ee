"""Weights in 8 bits with one scale per row, for GPUs. The CPU kernels have formats of their own.

The scale maps the largest value of a row to the largest value of the format. Activations are not
quantised.
"""

from __future__ import annotations

import functools

import torch

from core.contract.config import Quantization
from core.fusion.linear import DenseWeight, Stack, stacked_bias
from core.fusion.patterns import Matrix

FORMATS = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
"""The type of stored weights, by the name of the quantisation."""

_LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}

_PIECE = 1 << 24
"""Weights that are quantised at a time, from a float32 copy."""


class QuantisedWeight:
    """Stacked matrices with a common input, in 8 bits. Core thread only."""

    def __init__(self, matrices: list[Matrix], dtype: torch.dtype) -> None:
        """Quantise copies of the matrices. Raises ModuleNotFoundError without Triton."""
        from core.kernels.triton import quantised_linear  # noqa: PLC0415 - needs Triton

        self._linear = quantised_linear.quantised_linear
        weights = [weight for weight, _ in matrices]
        num_outputs, size = sum(map(len, weights)), weights[0].shape[1]
        device = weights[0].device
        self._weight = torch.empty((num_outputs, size), dtype=dtype, device=device)
        self._scale = torch.empty(num_outputs, device=device)
        start = 0
        for weight in weights:
            for piece in torch.split(weight, max(1, _PIECE // size)):
                rows = slice(start, start + len(piece))
                self._weight[rows], self._scale[rows] = quantise(piece, dtype)
                start = rows.stop
        self._bias = stacked_bias(matrices)
        num_tiles = quantised_linear.num_tiles(num_outputs)
        self._arrived = torch.zeros(num_tiles, dtype=torch.int32, device=device)

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T + bias`` of ``[..., in_features]``, in the type of ``x``."""
        rows = x.reshape(-1, x.shape[-1])
        y = self._linear(rows, self._weight, self._scale, self._bias, self._arrived)
        return y.view(*x.shape[:-1], y.shape[1])


def quantise(weight: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``weight`` ``[rows, columns]`` in 8 bits and the float32 scale of each row."""
    wide = weight.float()
    largest = _LARGEST[dtype]
    scale = wide.abs().amax(dim=1) / largest
    scale = torch.where(scale > 0, scale, 1.0)
    wide = wide / scale[:, None]
    if dtype is torch.int8:
        wide = wide.round()
    return wide.clamp(-largest, largest).to(dtype), scale


def stack_for(quantization: Quantization) -> Stack:
    """Return what stores weights: in 8 bits, or without a quantisation in the model's type."""
    if quantization == "none":
        return DenseWeight
    return functools.partial(QuantisedWeight, dtype=FORMATS[quantization])
