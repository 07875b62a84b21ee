"""Load checkpoints: directories and hub ids in Hugging Face format."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import init

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.load.bars import download_options
from core.load.config_files import check_generation_config, load_config
from core.load.devices import pick_dtype
from core.module.complete import load_complete
from core.module.prequantised import is_quantised, placement, quantisation_of
from core.system import torch_import
from core.system.torch_import import restored_if_needed


def load_pretrained(config: ModelConfig, source: str, device: torch.device) -> Any:
    """Load the directory or hub id ``source`` with ``from_pretrained``."""
    check_generation_config(source)
    module = _load_pretrained(config, source, device)
    check_generation_config(source)  # the hub's files are here only now
    return module


def _load_pretrained(config: ModelConfig, source: str, device: torch.device) -> Any:
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - slow to import

    trust = config.trust_remote_code
    if trust:
        torch_import.restore()  # that code may use the device anywhere
    hf_config = load_config(config, source)
    dtype = pick_dtype(config.dtype, getattr(hf_config, "dtype", None), device)
    method = quantisation_of(hf_config)
    load = functools.partial(
        AutoModelForCausalLM.from_pretrained,
        source,
        config=hf_config,
        trust_remote_code=trust,
        **download_options(source),
    )
    if method is None:
        with QuickOnMeta():
            return load_complete(functools.partial(load, dtype=dtype), source)
    if config.quantization != "none":
        raise ModelLoadError(
            f"--quantization {config.quantization} is not supported with {source}, which is "
            f"already quantised with {method!r}"
        )
    torch_import.restore()
    # on a CPU the parts around quantised layers are float32 unless the operator names a type
    is_wide = device.type == "cpu" and config.dtype == "auto"
    load = functools.partial(load, dtype=torch.float32 if is_wide else dtype, **placement(device))
    with _quantisation_errors(method):
        module = load_complete(load, source)
    # some methods dequantise the model on a device that they do not support
    return module if is_quantised(module) else module.to(dtype)


@contextlib.contextmanager
def _quantisation_errors(method: str) -> Iterator[None]:
    """Name the quantisation method in errors: its package may be missing."""
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelLoadError(
            f"cannot load a checkpoint that is quantised with {method!r}: {reason}"
        ) from error


_OF_A_NUMBER = {
    *("div", "__truediv__", "__rdiv__", "__rtruediv__"),
    *("mul", "__mul__", "__rmul__", "pow", "__rpow__", "reciprocal"),
}
"""Names of functions that give a tensor of floats, with a number, another one of its kind."""


class QuickOnMeta(torch.overrides.TorchFunctionMode):
    """On "meta", initialise no parameter, and know the result's shape of what RoPE's angles take.

    transformers builds a model on that device before it assigns the weights of a checkpoint. To do
    arithmetic there, torch imports a package for symbolic algebra, which takes longer than to load
    the weights of a small model. It acts in the thread that enters it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == init.__name__:
            tensor = kwargs.get("tensor", args[0] if args else None)
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        elif func is torch.arange and str(kwargs.get("device")) == "meta":
            return _like(func(*args, **(kwargs | {"device": "cpu"})))
        elif func is torch.empty_like and kwargs.keys() <= {"dtype", "device"}:
            if args[0].is_meta and args[0].is_contiguous():
                given = {name: value for name, value in kwargs.items() if value is not None}
                return torch.empty(
                    args[0].shape, **({"dtype": args[0].dtype, "device": "meta"} | given)
                )
        elif not kwargs and getattr(func, "__name__", "") in _OF_A_NUMBER and _is_plain(args):
            return _like(args[0])
        return restored_if_needed(func, *args, **kwargs)


def _is_plain(args: tuple[Any, ...]) -> bool:
    """Return true if these are a tensor of floats on "meta" and numbers."""
    tensor, *others = args
    return (
        type(tensor) is torch.Tensor
        and tensor.is_meta
        and tensor.is_floating_point()
        and all(isinstance(other, int | float) for other in others)
    )


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape and type on "meta"."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
