"""GgufTensors: the tensors of a file, as packing reads them."""

from __future__ import annotations

from collections.abc import Collection

import torch

from core.gguf.blocks import F32, BlockMatrix
from core.gguf.facts import ROPE_FACTORS
from core.gguf.file import GgufFile
from core.gguf.values import PLAIN_TYPES, narrowest, plain_values, values_of


class GgufTensors:
    """The tensors of a file by name, but for those that its configuration holds.

    Matrices keep the type of the file: F32 is a tensor, others are BlockMatrix, with the rows of
    all experts if it has three dimensions; F16 becomes BF16 where that is exact. With ``dtype`` all
    are tensors of that type. What the file stores so is a view of it.
    """

    def __init__(self, file: GgufFile, dtype: torch.dtype | None = None) -> None:
        self._tensors = file.tensors
        self._dtype = dtype
        self.names: Collection[str] = file.tensors.keys() - ROPE_FACTORS

    def get(self, name: str) -> torch.Tensor | BlockMatrix:
        """See Tensors."""
        tensor = self._tensors[name]
        matrix, stored = tensor.matrix(), PLAIN_TYPES.get(tensor.info.type)
        if len(tensor.shape) > 1:
            if self._dtype is None and tensor.info.type != F32:
                return narrowest(matrix)
            if self._dtype not in (None, stored):
                return values_of(matrix, self._dtype).view(tensor.shape)
        values = values_of(matrix) if stored is None else plain_values(matrix)
        return values.view(tensor.shape)
