"""check_checkpoint: refuse a checkpoint that lacks tensors of its model, without reading weights.

transformers loads tensors of the right names, shapes and types that have no memory.
"""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch

from core.contract.config import ModelConfig
from core.load.config_files import check_generation_config
from core.load.weight_files import files_of
from core.module.complete import load_complete
from core.module.prequantised import quantisation_of
from core.module.state_dict import read_state
from core.system import torch_import
from core.system.checkpoint_files import check_file, safetensors_header


def check_checkpoint(module: Any, config: ModelConfig, *, unused: Collection[str] = ()) -> None:
    """Raise ModelLoadError if loading the weights of ``config`` into this model would.

    The model's parameters may have any values. Only files that are here are checked, and of a
    quantised checkpoint none: a library replaces its layers.
    """
    if config.model is None or quantisation_of(module.config) is not None:
        return
    check_generation_config(config.model)
    files = files_of(config)
    if files:
        _check_tensors(module, files, config.model, unused)


def _check_tensors(module: Any, files: Iterable[Path], name: str, unused: Collection[str]) -> None:
    from transformers.initialization import no_init_weights  # noqa: PLC0415 - slow to import

    torch_import.restore()
    state = {key: tensor for file in files for key, tensor in _stand_ins(file).items()}
    load = functools.partial(
        type(module).from_pretrained,
        None,
        config=module.config,
        state_dict=state,
        dtype=module.dtype,
    )
    with no_init_weights():
        load_complete(load, name, unused=unused)


class _StandIn(torch.Tensor):
    """A tensor without memory that stays so, whatever device it is moved to."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.to:
            kwargs = {key: value for key, value in (kwargs or {}).items() if key != "device"}
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


def _stand_ins(file: Path) -> dict[str, torch.Tensor]:
    check_file(file)
    if file.suffix != ".safetensors":
        state = read_state(file, map_location="meta", mmap=zipfile.is_zipfile(file))
        return {name: tensor.as_subclass(_StandIn) for name, tensor in state.items()}
    return {
        name: torch.empty(info["shape"], device="meta").as_subclass(_StandIn)
        for name, info in safetensors_header(file).items()
    }
