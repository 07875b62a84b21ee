"""Grouped products: each group of rows is multiplied by a matrix of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from core.kernels.cpu.bindings import Kernels, address
from core.kernels.cpu.linear import Epilogue, Format, Rows, pack_into, padded_rows
from core.system import huge_pages


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """Matrices ``[num_rows, num_columns]``, each packed like a PackedWeight, one per group.

    ``format`` is a Format or a BlockFormat.
    """

    kernels: Kernels
    format: int
    num_groups: int
    num_rows: int
    num_columns: int
    data: torch.Tensor  # uint8 [num_groups, bytes of a matrix]
    scale: torch.Tensor | None  # [num_groups, rows of whole panels]
    bias: torch.Tensor | None  # [num_groups, rows of whole panels]

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return self.data.numel()

    def __deepcopy__(self, memo: object) -> GroupedWeight:
        """Return this one: it never changes, and may be most of a model."""
        return self

    def multiply(
        self, x: torch.Tensor, ends: torch.Tensor, epilogue: Epilogue = Epilogue.NONE
    ) -> torch.Tensor:
        """Return ``epilogue(x @ weight[group].T + bias[group])`` for rows sorted by group.

        ``x`` is contiguous float32 ``[count, num_columns]``. The rows of group i end before
        ``ends[i]``, int64 and at most ``count``. The result of rows after the last group is
        undefined.
        """
        assert x.shape[1] == self.num_columns, (x.shape, self.num_columns)
        assert len(ends) == self.num_groups, (len(ends), self.num_groups)
        y = torch.empty(len(x), self.num_rows // 2 if epilogue.is_gated else self.num_rows)
        self.kernels.grouped_linear(
            self.format,
            epilogue,
            x.data_ptr(),
            ends.data_ptr(),
            self.num_groups,
            self.num_columns,
            self.num_rows,
            self.data.data_ptr(),
            self.data.shape[1],
            address(self.scale),
            address(self.bias),
            padded_rows(self.kernels, self.num_rows),
            y.data_ptr(),
            y.shape[1],
        )
        return y


def pack_groups(
    kernels: Kernels,
    weights: Iterable[torch.Tensor | Rows],
    bias: torch.Tensor | None,
    fmt: Format,
    shape: tuple[int, int, int],
) -> GroupedWeight:
    """Pack matrices of any float type, read one by one.

    ``shape`` is ``(num_groups, num_rows, num_columns)``; ``bias`` is ``[num_groups, num_rows]``.
    """
    num_groups, num_rows, num_columns = shape
    padded = padded_rows(kernels, num_rows)
    size = padded // kernels.panel * kernels.panel_bytes(fmt, num_columns)
    data = huge_pages.zeros(num_groups * size).view(num_groups, size)
    scale = torch.zeros(num_groups, padded) if fmt is Format.INT8 else None
    for group, weight in enumerate(weights):
        rows = weight if isinstance(weight, Rows) else Rows.of([weight])
        assert (len(rows), rows.num_columns) == (num_rows, num_columns), shape
        pack_into(kernels, rows, fmt, data[group], None if scale is None else scale[group])
    stored_bias = None if bias is None else padded_biases(kernels, bias)
    return GroupedWeight(kernels, fmt, num_groups, num_rows, num_columns, data, scale, stored_bias)


def padded_biases(kernels: Kernels, bias: torch.Tensor) -> torch.Tensor:
    """Biases ``[num_groups, num_rows]`` in float32, with zeros for the rows of whole panels."""
    padded = torch.zeros(len(bias), padded_rows(kernels, bias.shape[1]))
    padded[:, : bias.shape[1]] = bias
    return padded
