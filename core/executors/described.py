"""described: what a model's files say, for models whose family has a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import torch

from core.checkpoint_files import find_file, folder_of
from core.contract.config import AttentionBackendName, ModelConfig
from core.contract.errors import ModelLoadError
from core.executors.supported import check_supported
from core.gguf.describe import describe_file
from core.gguf.end_tokens import end_token_ids
from core.gguf.file import GgufFile
from core.gguf.tensors import GgufTensors
from core.kernels.cpu import library
from core.kernels.cpu.bindings import Kernels
from core.kernels.cpu.linear import Format
from core.model.config_files import check_generation_config, generation_of, raw_config
from core.model.devices import pick_dtype
from core.model.gguf import gguf_dtype
from core.model.hub_files import fetch_weights
from core.model.loaded_model import context_length
from core.model.source import find_gguf, is_state_dict, source_of
from core.model.weight_files import weight_files
from core.models.families import describe
from core.models.names import Names
from core.models.spec import DecoderSpec, NoRow, Undescribed
from core.weights.roles import MetaTensors, SafetensorsFiles, Tensors, shapes_in

_FORMATS = {torch.float32: Format.FLOAT32, torch.bfloat16: Format.BFLOAT16}
_CPU = torch.device("cpu")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Files:
    """What the files of a model say.

    ``values`` are those of its ``config.json``, ``context`` its length in tokens, 0 if no key says
    so. ``tensors`` opens the weights, ``headers`` has their names and shapes alone. ``ends`` are
    the tokens that end an answer, ``sampling`` the defaults of requests. ``nbytes`` is the size of
    the matrices if they stay in the blocks of a file, else 0.
    """

    values: Mapping[str, Any]
    context: int
    names: Names
    dtype: torch.dtype
    spec_for: Callable[[int], DecoderSpec]
    tensors: Callable[[], Tensors]
    headers: Callable[[], Tensors]
    ends: frozenset[int]
    sampling: dict[str, float]
    nbytes: int = 0


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
    """What ``use``, which may raise Undescribed, makes of a model that is to be served on a CPU.

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
    return _folder(config) if gguf is None else _gguf(config, gguf)


def _folder(config: ModelConfig) -> Files:
    """The files of a directory in Hugging Face format, or of the hub's cache."""
    if is_state_dict(config):
        raise Undescribed("the weights are not in safetensors files")
    source = source_of(config)
    is_here = Path(source).exists()
    if not is_here and find_file(source, "config.json") is None:
        raise Undescribed(f"the hub has no config.json of {source} for this user")
    values = raw_config(config, source)
    context = context_length(SimpleNamespace(**values)) or 0
    spec, names = describe(values, context)
    if spec.num_positions is not None:  # another key may say more
        context = min(context or spec.num_positions, spec.num_positions)
    if not is_here:
        fetch_weights(source)
        find_file(source, "generation_config.json")
    folder = folder_of(source)
    if folder is None:
        raise Undescribed(f"{source} is no directory")
    paths = _weights(folder)
    check_generation_config(source)
    ends, sampling = generation_of(folder)
    name = values.get("dtype") or values.get("torch_dtype")
    return Files(
        values=values,
        context=context,
        names=names,
        dtype=pick_dtype(config.dtype, getattr(torch, str(name), None), _CPU, by_kernels=True),
        spec_for=lambda length: describe(values, length)[0],
        tensors=lambda: SafetensorsFiles(paths),
        headers=lambda: MetaTensors(shapes_in(paths)),
        ends=ends,
        sampling=sampling,
    )


def _weights(folder: Path) -> list[Path]:
    """The safetensors files of a directory. Raises Undescribed if the weights have another form."""
    try:
        paths = weight_files(folder)
    except ModelLoadError as error:
        raise Undescribed(str(error)) from error
    if any(path.suffix != ".safetensors" for path in paths):
        raise Undescribed("the weights are not in safetensors files")
    return paths


def _gguf(config: ModelConfig, path: Path) -> Files:
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
