"""gguf_files: what a GGUF file says of a model whose family has a row."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import torch

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.executors.files import Files
from core.gguf.describe import describe_file
from core.gguf.file import GgufFile
from core.gguf.tensors import GgufTensors
from core.gguf.vocabulary.end_tokens import end_token_ids
from core.load.loaded_model import context_length
from core.module.gguf import gguf_dtype
from core.weights.roles import MetaTensors

_CPU = torch.device("cpu")


def gguf_files(config: ModelConfig, path: Path) -> Files:
    """A GGUF file. Matrices stay as they are in it, unless a type or a quantisation is wanted."""
    if config.config is not None:
        raise ModelLoadError("--config is not used with a GGUF file, which has its own")
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
