"""described: which models the compiled kernels compute, and why they do not compute others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from core.contract.config import AttentionBackendName, ModelConfig
from core.contract.errors import ModelLoadError
from core.executors.files import Files, folder_files
from core.executors.gguf_files import gguf_files
from core.executors.supported import check_supported
from core.kernels.cpu import library
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.linear import Format
from core.load.source import find_gguf
from core.models.spec import DecoderSpec, NoRow, Undescribed

_FORMATS = {torch.float32: Format.FLOAT32, torch.bfloat16: Format.BFLOAT16}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Described:
    """A model that the compiled kernels compute from its spec.

    ``spec`` is that for the whole context. Matrices are stored as ``format``, or in blocks.
    """

    kernels: Kernels
    files: Files
    spec: DecoderSpec
    format: Format
    in_blocks: bool


@dataclass(frozen=True, slots=True)
class Fallback:
    """Why transformers computes a model; ``has_row``: although a row reads its family."""

    reason: str
    has_row: bool


def described_and(
    config: ModelConfig, attention: AttentionBackendName, use: Callable[[Described], T]
) -> T | Fallback:
    """Return ``use`` of a model that is to be served on a CPU, or why transformers computes it.

    ``use`` may raise Undescribed.
    Raises ModelLoadError for what nothing can load, and where a quantisation is wanted that
    transformers' modules do not have.
    """
    try:
        return use(described(config, attention))
    except Undescribed as error:
        if config.quantization != "none":
            raise ModelLoadError(
                f"--quantization {config.quantization} needs a model that the compiled kernels "
                f"compute: {error}"
            ) from error
        return Fallback(str(error), not isinstance(error, NoRow))


def described(config: ModelConfig, attention: AttentionBackendName) -> Described:
    """Describe a model that is to be served on a CPU. Raises Undescribed if transformers has to.

    Raises ModelLoadError for files that nothing can load.
    """
    if attention not in {"auto", "cpu"}:
        raise Undescribed(f"attention {attention!r} is not part of the compiled kernels")
    if config.quantization == "fp8":
        raise ModelLoadError("--quantization fp8 needs CUDA; a CPU has int8 and int4")
    files = files_of(config)
    spec = files.spec_for(files.context)
    check_supported(spec)
    compiled = library.kernels_or_reason()
    if isinstance(compiled, str):
        raise Undescribed(f"no compiled kernels: {compiled}")
    if files.dtype not in _FORMATS:
        raise Undescribed(f"the compiled kernels do not compute in {config.dtype}")
    is_quantised = config.quantization != "none"
    # with int4 what is not in blocks, such as experts, has 8 bits
    fmt = Format.INT8 if is_quantised else _FORMATS[files.dtype]
    in_blocks = bool(files.nbytes) or config.quantization == "int4"
    return Described(compiled, files, spec, fmt, in_blocks)


def files_of(config: ModelConfig) -> Files:
    """Read what the files of a model say. Raises Undescribed for other forms of weights.

    Raises ModelLoadError for what nothing can load.
    """
    gguf = find_gguf(config)
    return folder_files(config) if gguf is None else gguf_files(config, gguf)
