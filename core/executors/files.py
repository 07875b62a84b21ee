"""Files: the content of a model's files, and those of a directory in Hugging Face format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.load.config_files import check_generation_config, generation_of, raw_config
from core.load.devices import pick_dtype
from core.load.errors import named_errors
from core.load.hub_files import fetch_weights
from core.load.loaded_model import context_length
from core.load.room import check_room
from core.load.source import is_state_dict, source_of
from core.load.weight_files import weight_files
from core.models.families import describe
from core.models.names import Names
from core.models.sizes import num_parameters
from core.models.spec import DecoderSpec, Undescribed
from core.system.checkpoint_files import check_file, find_file, folder_of
from core.weights.roles import MetaTensors, SafetensorsFiles, Tensors, shapes_in

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Files:
    """The content of a model's files.

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


def folder_files(config: ModelConfig) -> Files:
    """The files of a directory in Hugging Face format, or of the hub's cache."""
    if is_state_dict(config):
        raise Undescribed("the weights are not in safetensors files")
    source = source_of(config)
    is_here = Path(source).exists()
    with named_errors(config.config or source):
        if not is_here and find_file(source, "config.json") is None:
            raise Undescribed(f"the hub has no config.json of {source} for this user")
        values = raw_config(config, source)
    if config.trust_remote_code and values.get("auto_map"):
        raise Undescribed("its own code computes it")
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
    check_room(config, None)
    for path in paths:
        check_file(path)
    _check_size(spec, paths, folder)
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


def _check_size(spec: DecoderSpec, paths: Sequence[Path], folder: Path) -> None:
    """Raise ModelLoadError for more parameters than the files can have.

    transformers would give random values to those that are not in the files.
    """
    count, nbytes = num_parameters(spec), sum(path.stat().st_size for path in paths)
    if count > 8 * nbytes:
        raise ModelLoadError(
            f"{folder} has {nbytes:,} bytes of weights and a config.json of {count:,} parameters"
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
