"""Load checkpoints: directories and hub ids in Hugging Face format."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.load.bars import download_options
from core.load.config_files import check_generation_config, load_config
from core.load.devices import pick_dtype
from core.module.complete import load_complete
from core.module.on_meta import QuickOnMeta
from core.module.prequantised import is_quantised, placement, quantisation_of
from core.system import torch_import


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
    # on a CPU our fused modules pass float32 to the modules of the quantisation library
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
