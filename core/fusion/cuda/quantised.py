"""Matrices in 8 bits with one scale a row, for a GPU; the CPU's kernels have formats of their own.

A row is scaled so that its largest value is the largest that the format has. Nothing else of a
model is quantised, and activations stay what they are.
"""

from __future__ import annotations

import torch

from core.fusion.patterns import Matrix

FORMATS = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
"""What weights are stored in, by the name of the quantisation."""

_LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}

_PIECE = 1 << 24
"""Weights that are quantised at a time, over float32 copies."""


class QuantisedWeight:
    """Matrices with one input, below each other, in 8 bits. Core thread only."""

    def __init__(self, matrices: list[Matrix], dtype: torch.dtype) -> None:
        """Quantise; the matrices are only read. Raises ModuleNotFoundError without Triton."""
        from core.kernels.triton import quantised_linear, quantised_tiles  # noqa: PLC0415

        self._linear = quantised_linear.quantised_linear
        weights = [weight for weight, _ in matrices]
        num_outputs, size = sum(map(len, weights)), weights[0].shape[1]
        device = weights[0].device
        self._weight = torch.empty((num_outputs, size), dtype=dtype, device=device)
        self._scale = torch.empty(num_outputs, device=device)
        start = 0
        for weight in weights:
            for piece in torch.split(weight, max(1, _PIECE // size)):
                place = slice(start, start + len(piece))
                self._weight[place], self._scale[place] = quantise(piece, dtype)
                start = place.stop
        self._bias = None
        if any(bias is not None for _, bias in matrices):
            self._bias = torch.cat(
                [weight.new_zeros(len(weight)) if b is None else b for weight, b in matrices]
            )
        num_tiles = quantised_tiles.num_tiles(num_outputs)
        self._arrived = torch.zeros(num_tiles, dtype=torch.int32, device=device)

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T + bias`` of ``[..., in_features]``, in the type of ``x``."""
        rows = x.reshape(-1, x.shape[-1])
        y = self._linear(rows, self._weight, self._scale, self._bias, self._arrived)
        return y.view(*x.shape[:-1], y.shape[1])


def quantise(weight: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """``weight`` ``[rows, columns]`` in a format of ours, and the float32 scale of each row."""
    wide = weight.float()
    largest = _LARGEST[dtype]
    scale = wide.abs().amax(dim=1) / largest
    scale = torch.where(scale > 0, scale, 1.0)
    wide = wide / scale[:, None]
    if dtype is torch.int8:
        wide = wide.round()
    return wide.clamp(-largest, largest).to(dtype), scale
