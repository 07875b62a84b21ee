"""gguf_files: the content of a GGUF file of a model whose family has a row, and its tensors."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace

import torch

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.executors.files import Files
from core.gguf.blocks import F32, BlockMatrix
from core.gguf.describe import describe_file
from core.gguf.facts import ROPE_FACTORS
from core.gguf.file import GgufFile
from core.gguf.values import PLAIN_TYPES, narrowest, plain_values, values_of
from core.gguf.vocabulary.end_tokens import end_token_ids
from core.load.loaded_model import context_length
from core.load.room import check_room
from core.module.gguf import gguf_dtype
from core.weights.roles import MetaTensors

_CPU = torch.device("cpu")


def gguf_files(config: ModelConfig, path: Path) -> Files:
    """A GGUF file. Matrices stay as they are in it, unless a type or a quantisation is wanted."""
    if config.config is not None:
        raise ModelLoadError("--config is not used with a GGUF file, which has its own")
    check_room(config, path)
    file = GgufFile.open(path)
    try:
        values, _, names = describe_file(file, 0)
    except ModelLoadError as error:
        raise ModelLoadError(f"{path} cannot be served: {error}") from error
    dtype = gguf_dtype(config, file, _CPU, by_kernels=True)
    stays = config.dtype == "auto" and config.quantization == "none" and dtype is torch.float32
    matrices = [t.info for t in file.tensors.values() if len(t.shape) > 1]
    in_blocks = stays and any(info.type.name != "F32" for info in matrices)
    return Files(
        values=values,
        context=context_length(SimpleNamespace(**values)) or 0,
        names=names,
        dtype=dtype,
        spec_for=lambda length: describe_file(file, length)[1],
        tensors=lambda: GgufTensors(file, None if stays else dtype),
        headers=lambda: MetaTensors(
            {name: file.tensors[name].shape for name in GgufTensors(file).names}
        ),
        ends=frozenset(end_token_ids(file.metadata)),
        sampling={},
        nbytes=sum(info.nbytes for info in matrices) if in_blocks else 0,
    )


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
        """Return a tensor in the shape that the file gives; see Tensors."""
        tensor = self._tensors[name]
        matrix, stored = tensor.matrix(), PLAIN_TYPES.get(tensor.info.type)
        if len(tensor.shape) > 1:
            if self._dtype is None and tensor.info.type != F32:
                return narrowest(matrix)
            if self._dtype not in (None, stored):
                return values_of(matrix, self._dtype).view(tensor.shape)
        values = values_of(matrix) if stored is None else plain_values(matrix)
        return values.view(tensor.shape)
