"""AngleTable: the cosines and sines of RoPE by position."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from core.kernels.cpu.structures import ANGLES
from core.models.spec import Rope

AnglesOf = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Maps positions ``[1, n]`` to cosines and sines, float32 ``[1, n, rotated]`` and contiguous."""


class AngleTable:
    """Keeps what a model's own code computes for positions, so that a step looks it up.

    An angle depends on nothing but its position. They are computed when a sequence comes so far.
    Core thread only.
    """

    def __init__(self, angles_of: AnglesOf) -> None:
        self._angles_of = angles_of
        self._kept: list[torch.Tensor] = []  # what the addresses point to
        self._addresses: tuple[list[int], list[int]] = [], []
        self._arrays: list[ctypes.Array[ctypes.c_void_p]] = []
        self.num_positions = 0
        """The angles of all positions below this one are known."""
        self.rotated = 0
        """Rotated columns of a head; 0 until the first ``cover``."""

    @property
    def addresses(self) -> tuple[int, int]:
        """The addresses of the arrays that the kernel reads, see ``ModelCall``; until ``cover``."""
        cosines, sines = map(ctypes.addressof, self._arrays)
        return cosines, sines

    def cover(self, num_positions: int) -> None:
        """Compute the angles of the first ``num_positions`` positions that are not known yet."""
        if num_positions <= self.num_positions:
            return
        end = -(-num_positions // ANGLES) * ANGLES
        found = self._angles_of(torch.arange(self.num_positions, end)[None])
        self.rotated = found[0].shape[-1]
        run_nbytes = ANGLES * self.rotated * found[0].itemsize
        for tensor, addresses in zip(found, self._addresses, strict=True):
            assert tensor.numel() == (end - self.num_positions) * self.rotated
            start = tensor.data_ptr()
            addresses.extend(range(start, start + tensor.nbytes, run_nbytes))
            self._kept.append(tensor)
        self._arrays = [(ctypes.c_void_p * len(found))(*found) for found in self._addresses]
        self.num_positions = end


def angles_of(rope: Rope, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of positions ``[1, n]``, float32 ``[1, n, 2 * pairs]``: see AnglesOf."""
    angles = positions[..., None].float() * torch.tensor(rope.frequencies)
    both = torch.cat([angles, angles], -1)
    return both.cos() * rope.scale, both.sin() * rope.scale
